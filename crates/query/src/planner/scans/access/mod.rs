//! Access paths: filters to the rows to read, as points, keys, ranges or the full table, by the key or by an
//! index.
//!
//! Each filter that compares one key column with literals is a [`Constraint`]: a set of values or an
//! interval. The constraints of a column are intersected; then the access follows the key:
//!
//! ```text
//!   key column   a            b            c
//!   filters      a IN (1,2)   b = 7        c > 5
//!   constraint   {1,2}        {7}          (5,∞)
//!                └── sets: their product ──┘└─ the first interval, or column without constraint, ends it
//!   access       ranges (1,7,5)..(1,7]  and  (2,7,5)..(2,7]
//! ```
//!
//! # Invariants
//!
//! - The access covers every row that passes the filters.
//! - It covers *only* rows that pass a filter which [`Analysis::coverage`] calls `ExactOperation`. More filters never
//!   make an exact one inexact (tested). The optimizer may still rewrite a filter after it asked, so the scan
//!   must apply all filters that are not exact in the end.
//! - Keys and ranges are sorted, without duplicates or overlaps: rows come in key order, each once.
//! - Doubles are never exact, because Arrow distinguishes -0.0 from 0.0 and keys do not.
//!
//! Of key and indexes, the one with the most leading columns compared for equality is chosen, then one with
//! an interval behind them; the key is preferred among equals, because rows lie in its order. There are no
//! statistics.
//!
//! Memory: at most [`KEYS_MAX`] keys or ranges.

pub(crate) mod choice;
pub(crate) mod columns;
pub(crate) mod dynamic;
pub(crate) mod known;
mod patterns;

use crate::postgres::time_zones::UTC;
use datafusion::arrow::datatypes::DataType as ArrowType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{Between, BinaryExpr, Expr, Operator};
use entresol_tables::{DataType, Row, ScanRange, Schema, Table, Value, arrow_type};
use entresol_transactions::Transaction;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Bound;

/// The most keys or ranges of one access; with more the key columns behind are left to the filter.
pub(crate) const KEYS_MAX: usize = 8192;

/// Bounds of a range by leading key columns.
pub(crate) type KeyBounds = (Bound<Row>, Bound<Row>);

/// Rows that a scan reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// All rows.
    Full,
    /// The row with this key.
    Point(Row),
    /// The rows with these keys, in key order; perhaps none.
    Keys(Vec<Row>),
    /// The rows in these ranges, in key order.
    Ranges(Vec<KeyBounds>),
    /// Rows found by an index, in the order of the index.
    Index {
        /// The index.
        name: String,
        /// Access within the index: values of its columns in place of keys.
        within: Box<Access>,
    },
}

/// Effect of an access on a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coverage {
    /// Nothing: it is no comparison of a key column with literals, or columns before it are not constrained.
    None,
    /// The access may return rows that do not pass.
    Partial,
    /// The access returns only rows that pass.
    Exact,
}

/// Access for a list of filters, and its coverage of each of them.
#[derive(Debug)]
pub(crate) struct Analysis {
    /// Rows to read.
    pub access: Access,
    /// Coverage of each filter, in their order.
    pub coverage: Vec<Coverage>,
}

/// Values that a column may have.
#[derive(Debug, Clone)]
enum Constraint {
    Values(BTreeSet<Value>),
    Interval(Bound<Value>, Bound<Value>),
}

/// Finds the access by the key for the conjunction of `filters`.
#[cfg(test)]
fn analyse<'e>(schema: &Schema, filters: impl IntoIterator<Item = &'e Expr>) -> Analysis {
    let filters: Vec<&Expr> = filters.into_iter().collect();
    analyse_by(schema, schema.key(), &filters).0
}

/// Finds the best access, by the key or by an index that the transaction may read.
pub(crate) fn choose<'e>(
    table: &Table,
    transaction: &Transaction,
    filters: impl IntoIterator<Item = &'e Expr>,
) -> Analysis {
    let filters: Vec<&Expr> = filters.into_iter().collect();
    let schema = table.schema();
    let (mut best, mut rank) = analyse_by(schema, schema.key(), &filters);
    if filters.is_empty() || matches!(best.access, Access::Point(_) | Access::Keys(_)) {
        return best;
    }
    for index in table.indexes().iter().filter(|index| index.is_readable(transaction)) {
        let (by_index, index_rank) = analyse_by(schema, &index.definition().columns, &filters);
        if index_rank > rank && (!index.definition().hashed || by_index.access.is_by_values()) {
            let within = Box::new(by_index.access);
            let access = Access::Index { name: index.name().to_owned(), within };
            (best, rank) = (Analysis { access, ..by_index }, index_rank);
        }
    }
    best
}

/// Selectivity of an access: number of leading columns compared for equality, true if an interval follows.
type Rank = (usize, bool);

/// Returns the access by these columns, in their order.
fn analyse_by(schema: &Schema, columns: &[usize], filters: &[&Expr]) -> (Analysis, Rank) {
    let by = AccessOrder { schema, columns };
    let mut constraints: Vec<Option<Constraint>> = vec![None; columns.len()];
    let mut places = Vec::new();
    for filter in filters {
        let Some((position, constraint)) = by.constraint_of(filter) else {
            places.push(None);
            continue;
        };
        places.push(Some((position, matches!(constraint, Constraint::Interval(..)))));
        constraints[position] = Some(match constraints[position].take() {
            None => constraint,
            Some(earlier) => earlier.intersect(constraint),
        });
    }
    let equal = constraints.iter().take_while(|of| matches!(of, Some(Constraint::Values(_)))).count();
    let AccessCandidate { access, exact, spanned } = build_access(&constraints);
    let coverage = places.into_iter().map(|place| {
        let Some((position, interval)) = place else { return Coverage::None };
        // A span over many values excludes the rows outside its intervals, but not those between the values
        // of its sets.
        let by_access = position < exact || (interval && spanned == Some(position));
        let data_type = &schema.columns()[columns[position]].data_type;
        if by_access && !matches!(data_type, DataType::Real | DataType::Double) {
            Coverage::Exact
        } else if by_access || spanned == Some(position) {
            Coverage::Partial
        } else {
            Coverage::None
        }
    });
    let equal = equal.min(exact);
    (Analysis { access, coverage: coverage.collect() }, (equal, exact > equal || spanned.is_some()))
}

struct AccessCandidate {
    access: Access,
    /// Number of leading key columns that the access constrains exactly.
    exact: usize,
    /// Column behind them, if the access covers the span from the first to the last of its values.
    spanned: Option<usize>,
}

fn build_access(constraints: &[Option<Constraint>]) -> AccessCandidate {
    let built = |access, exact| AccessCandidate { access, exact, spanned: None };
    let is_empty =
        |constraint: &Constraint| matches!(constraint, Constraint::Values(values) if values.is_empty());
    if constraints.iter().flatten().any(is_empty) {
        return built(Access::Keys(Vec::new()), constraints.len());
    }
    let mut prefixes: Vec<Row> = vec![Vec::new()];
    let mut used = 0;
    while let Some(Some(Constraint::Values(values))) = constraints.get(used) {
        if prefixes.len().saturating_mul(values.len()) > KEYS_MAX {
            break;
        }
        let extended = prefixes.iter().flat_map(|prefix| values.iter().map(|value| with(prefix, value)));
        prefixes = extended.collect();
        used += 1;
    }
    if used == constraints.len() {
        return match <[Row; 1]>::try_from(prefixes) {
            Ok([key]) => built(Access::Point(key), used),
            Err(keys) => built(Access::Keys(keys), used),
        };
    }
    let ranges = |lower: &Bound<Value>, upper: &Bound<Value>| {
        Access::Ranges(prefixes.iter().map(|prefix| (end(prefix, lower), end(prefix, upper))).collect())
    };
    match &constraints[used] {
        None if used == 0 => built(Access::Full, 0),
        None => built(ranges(&Bound::Unbounded, &Bound::Unbounded), used),
        Some(Constraint::Interval(lower, upper)) => built(ranges(lower, upper), used + 1),
        // Too many values for points: the span from the first to the last.
        Some(Constraint::Values(values)) => {
            let bound = |value: Option<&Value>| {
                value.map_or(Bound::Unbounded, |value| Bound::Included(value.clone()))
            };
            let access = ranges(&bound(values.first()), &bound(values.last()));
            AccessCandidate { access, exact: used, spanned: Some(used) }
        }
    }
}

fn with(prefix: &Row, value: &Value) -> Row {
    let mut row = prefix.clone();
    row.push(value.clone());
    row
}

/// The bound of a range that begins with `prefix`.
fn end(prefix: &Row, bound: &Bound<Value>) -> Bound<Row> {
    match bound {
        Bound::Included(value) => Bound::Included(with(prefix, value)),
        Bound::Excluded(value) => Bound::Excluded(with(prefix, value)),
        Bound::Unbounded if prefix.is_empty() => Bound::Unbounded,
        Bound::Unbounded => Bound::Included(prefix.clone()),
    }
}

impl Constraint {
    fn none() -> Constraint {
        Constraint::Values(BTreeSet::new())
    }

    fn one(value: Value) -> Constraint {
        Constraint::Values(BTreeSet::from([value]))
    }

    fn admits(&self, value: &Value) -> bool {
        match self {
            Constraint::Values(values) => values.contains(value),
            Constraint::Interval(lower, upper) => {
                let above = match lower {
                    Bound::Included(lower) => value >= lower,
                    Bound::Excluded(lower) => value > lower,
                    Bound::Unbounded => true,
                };
                let below = match upper {
                    Bound::Included(upper) => value <= upper,
                    Bound::Excluded(upper) => value < upper,
                    Bound::Unbounded => true,
                };
                above && below
            }
        }
    }

    fn intersect(self, other: Constraint) -> Constraint {
        match (self, other) {
            (Constraint::Values(mut values), other) | (other, Constraint::Values(mut values)) => {
                values.retain(|value| other.admits(value));
                Constraint::Values(values)
            }
            (Constraint::Interval(low, up), Constraint::Interval(other_low, other_up)) => {
                let lower = tighter(low, other_low, |a, b| a > b);
                let upper = tighter(up, other_up, |a, b| a < b);
                match (&lower, &upper) {
                    (Bound::Included(low), Bound::Included(up)) if low == up => Constraint::one(low.clone()),
                    _ if is_empty(&lower, &upper) => Constraint::none(),
                    _ => Constraint::Interval(lower, upper),
                }
            }
        }
    }

    /// The union of two sets; intervals are not united.
    fn unite(self, other: Constraint) -> Option<Constraint> {
        match (self, other) {
            (Constraint::Values(mut values), Constraint::Values(others)) => {
                values.extend(others);
                Some(Constraint::Values(values))
            }
            _ => None,
        }
    }
}

fn tighter(a: Bound<Value>, b: Bound<Value>, wins: impl Fn(&Value, &Value) -> bool) -> Bound<Value> {
    let a_wins = match (&a, &b) {
        (_, Bound::Unbounded) => true,
        (Bound::Unbounded, _) => false,
        (Bound::Included(x), Bound::Included(y)) | (Bound::Excluded(x), Bound::Excluded(y)) => wins(x, y),
        (Bound::Excluded(x), Bound::Included(y)) => x == y || wins(x, y),
        (Bound::Included(x), Bound::Excluded(y)) => wins(x, y),
    };
    if a_wins { a } else { b }
}

fn is_null(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(scalar, _) if scalar.is_null())
}

fn is_empty(lower: &Bound<Value>, upper: &Bound<Value>) -> bool {
    match (lower, upper) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(low), Bound::Included(up)) => low > up,
        (Bound::Included(low) | Bound::Excluded(low), Bound::Included(up) | Bound::Excluded(up)) => low >= up,
    }
}

fn comparison(op: Operator, value: Value) -> Option<Constraint> {
    if value.is_null() {
        // Comparisons with NULL are never true.
        return matches!(op, Operator::Eq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq)
            .then(Constraint::none);
    }
    Some(match op {
        Operator::Eq => Constraint::one(value),
        Operator::Lt => Constraint::Interval(Bound::Unbounded, Bound::Excluded(value)),
        Operator::LtEq => Constraint::Interval(Bound::Unbounded, Bound::Included(value)),
        Operator::Gt => Constraint::Interval(Bound::Excluded(value), Bound::Unbounded),
        Operator::GtEq => Constraint::Interval(Bound::Included(value), Bound::Unbounded),
        _ => return None,
    })
}

/// Columns that order an access: of the key or of an index.
struct AccessOrder<'s> {
    schema: &'s Schema,
    columns: &'s [usize],
}

impl AccessOrder<'_> {
    /// Column position and constraint of a filter, if the filter is a comparison of one column with literals.
    fn constraint_of(&self, filter: &Expr) -> Option<(usize, Constraint)> {
        match filter {
            // A NULL result does not pass either.
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) if is_null(right) => {
                self.constraint_of(left)
            }
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) if is_null(left) => {
                self.constraint_of(right)
            }
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
                let (position, first) = self.constraint_of(left)?;
                let (other, second) = self.constraint_of(right)?;
                (position == other).then_some(())?;
                Some((position, first.unite(second)?))
            }
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => {
                let (position, first) = self.constraint_of(left)?;
                let (other, second) = self.constraint_of(right)?;
                (position == other).then(|| (position, first.intersect(second)))
            }
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
                if let Some((position, data_type)) = self.column(left) {
                    return Some((position, comparison(*op, literal(right, data_type)?)?));
                }
                let (position, data_type) = self.column(right)?;
                Some((position, comparison(op.swap()?, literal(left, data_type)?)?))
            }
            Expr::Between(Between { expr, negated: false, low, high }) => {
                let (position, data_type) = self.column(expr)?;
                let low = comparison(Operator::GtEq, literal(low, data_type)?)?;
                let high = comparison(Operator::LtEq, literal(high, data_type)?)?;
                Some((position, low.intersect(high)))
            }
            Expr::InList(InList { expr, list, negated: false }) => {
                let (position, data_type) = self.column(expr)?;
                // A NULL in the list admits no row.
                let values: Option<BTreeSet<Value>> = list
                    .iter()
                    .map(|item| literal(item, data_type))
                    .filter(|value| !matches!(value, Some(Value::Null)))
                    .collect();
                Some((position, Constraint::Values(values?)))
            }
            Expr::Column(_) => self.boolean_column(filter, true),
            Expr::Not(inner) => self.boolean_column(inner, false),
            _ => None,
        }
    }

    fn boolean_column(&self, expr: &Expr, value: bool) -> Option<(usize, Constraint)> {
        let (position, data_type) = self.column(expr)?;
        (data_type == DataType::Boolean).then(|| (position, Constraint::one(Value::Boolean(value))))
    }

    /// The position and the type of a column.
    fn column(&self, expr: &Expr) -> Option<(usize, DataType)> {
        let Expr::Column(column) = expr else { return None };
        let index = self.schema.column_index(&column.name)?;
        let position = self.columns.iter().position(|&column| column == index)?;
        Some((position, self.schema.columns()[index].data_type))
    }
}

/// Longer strings are compared by the filter: they may not fit a key.
const TEXT_BYTES_MAX: usize = 900;

/// Literal as a value of the column's type, if the conversion is lossless. NULL stays NULL.
fn literal(expr: &Expr, data_type: DataType) -> Option<Value> {
    let Expr::Literal(scalar, _) = expr else { return None };
    if scalar.is_null() {
        return Some(Value::Null);
    }
    let zone = match scalar.data_type() {
        ArrowType::Timestamp(_, zone) => zone,
        _ => None,
    };
    if zone.is_some() != (data_type == DataType::TimestampTz) {
        return None;
    }
    let exact = scalar.cast_to(&arrow_type(data_type, zone.as_deref().unwrap_or(UTC))).ok()?;
    if exact.is_null()
        || exact.data_type() != scalar.data_type() && exact.cast_to(&scalar.data_type()).ok()? != *scalar
    {
        return None;
    }
    value_of(exact)
}

/// Value of a column, if the scalar is one that keys and indexes may have.
pub(crate) fn value_of(scalar: ScalarValue) -> Option<Value> {
    Some(match scalar {
        ScalarValue::Boolean(Some(value)) => Value::Boolean(value),
        ScalarValue::Int16(Some(value)) => Value::Int(value.into()),
        ScalarValue::Int32(Some(value)) => Value::Int(value),
        ScalarValue::Int64(Some(value)) => Value::BigInt(value),
        ScalarValue::Float32(Some(value)) => Value::Double(value.into()),
        ScalarValue::Float64(Some(value)) => Value::Double(value),
        ScalarValue::Decimal128(Some(value), _, _) => Value::Decimal(value),
        ScalarValue::Date32(Some(value)) => Value::Date(value),
        ScalarValue::TimestampMicrosecond(Some(value), _) => Value::Timestamp(value),
        ScalarValue::Utf8(Some(value)) if value.len() <= TEXT_BYTES_MAX => Value::varchar(value),
        _ => return None,
    })
}

impl Access {
    /// Number of leading columns that have one value in all rows.
    pub(crate) fn fixed_columns(&self) -> usize {
        match self {
            Access::Point(key) => key.len(),
            Access::Ranges(ranges) => match &ranges[..] {
                [
                    (
                        Bound::Included(lower) | Bound::Excluded(lower),
                        Bound::Included(upper) | Bound::Excluded(upper),
                    ),
                ] => lower.iter().zip(upper).take_while(|(lower, upper)| lower == upper).count(),
                _ => 0,
            },
            Access::Full | Access::Keys(_) | Access::Index { .. } => 0,
        }
    }

    /// Maximum number of rows, if the access bounds it: points and keys.
    pub(crate) fn rows_max(&self) -> Option<usize> {
        match self {
            Access::Point(_) => Some(1),
            Access::Keys(keys) => Some(keys.len()),
            Access::Full | Access::Ranges(_) | Access::Index { .. } => None,
        }
    }

    /// Returns true if it names values of all columns: what a hashed index can find.
    fn is_by_values(&self) -> bool {
        matches!(self, Access::Point(_) | Access::Keys(_))
    }

    /// Name of the index that finds the rows; `None` if the key does.
    pub(crate) fn index(&self) -> Option<&str> {
        match self {
            Access::Index { name, .. } => Some(name),
            _ => None,
        }
    }

    /// Access within the index, or by the key.
    pub(crate) fn within(&self) -> &Access {
        match self {
            Access::Index { within, .. } => within,
            access => access,
        }
    }

    /// Bounds on the columns of an index for this access.
    pub(crate) fn index_bounds(&self) -> Vec<KeyBounds> {
        let one = |key: &Row| (Bound::Included(key.clone()), Bound::Included(key.clone()));
        match self {
            Access::Full | Access::Index { .. } => vec![(Bound::Unbounded, Bound::Unbounded)],
            Access::Point(key) => vec![one(key)],
            Access::Keys(keys) => keys.iter().map(one).collect(),
            Access::Ranges(ranges) => ranges.clone(),
        }
    }

    /// Ranges to scan; not for points, keys and indexes.
    pub(crate) fn scan_ranges(&self) -> Vec<ScanRange> {
        match self {
            Access::Full => vec![ScanRange::full()],
            Access::Point(_) | Access::Keys(_) | Access::Index { .. } => Vec::new(),
            Access::Ranges(ranges) => ranges
                .iter()
                .map(|(lower, upper)| {
                    ScanRange::between(lower.as_ref().map(Vec::as_slice), upper.as_ref().map(Vec::as_slice))
                })
                .collect(),
        }
    }
}

/// Formats the access as EXPLAIN shows it: `full`, `point`, `keys(3)`, `range`, `range(2)`, `index i range`.
impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Access::Full => f.write_str("full"),
            Access::Point(_) => f.write_str("point"),
            Access::Keys(keys) => write!(f, "keys({})", keys.len()),
            Access::Ranges(ranges) if ranges.len() == 1 => f.write_str("range"),
            Access::Ranges(ranges) => write!(f, "range({})", ranges.len()),
            Access::Index { name, within } => write!(f, "index {name} {within}"),
        }
    }
}

#[cfg(test)]
mod tests;
