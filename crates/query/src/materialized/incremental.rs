//! Aggregate views that a commit changes by what it changed: counts and sums of exact numbers over one table.
//!
//! ```text
//!   changed rows, old and new ─▶ below: WHERE, expressions ─▶ groups, -1 and +1 ─▶ state of the groups ─▶ above: HAVING,
//!                                                                                  (a table of its own)   expressions ─▶ rows
//! ```
//! The state of a group is the number of its rows, and of each aggregate the number of values and their sum, which a row
//! that goes takes back exactly. So a commit reads and writes as many rows of state and view as it touches groups, runs no
//! query, and does it on its own thread. Sums of floating point numbers cannot be taken back, and extremes neither: views
//! with such are computed by their query ([`super::maintenance`]).
//!
//! # Invariants
//! - At each snapshot the state table has a row for each group with rows, and one for the group of a view without GROUP BY.
//! - `row` is the number of the group's row in the view; NULL if HAVING keeps it out.
//! - Two transactions that change the same group write the same row of state: the first committer wins. Of a group without a row a
//!   guard is stored too: it may be one that goes before the view was filled, which changes no row of state.

use super::maintenance::{GUARDS, write_guards};
use crate::dml::assignment;
use crate::error::{Error, Result};
use crate::planner::scans::provider::EntresolTable;
use crate::postgres::overflow::checked;
use crate::postgres::time_zones::{UTC, Zone};
use crate::postgres::types::arrow_schema;
use crate::session::materialized::{MaintainsRows, state_table};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, Int64Array, RecordBatch,
};
use datafusion::arrow::compute::{filter_record_batch, interleave, prep_null_mask_filter};
use datafusion::arrow::datatypes::{
    DataType as ArrowType, Decimal128Type, Int64Type, Schema as ArrowSchema, SchemaRef,
};
use datafusion::arrow::record_batch::RecordBatchOptions;
use datafusion::arrow::row::{RowConverter, SortField};
use datafusion::common::DFSchema;
use datafusion::datasource::source_as_provider;
use datafusion::execution::SessionState;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::physical_expr::PhysicalExpr;
use entresol_tables::{
    Catalog, Column, DataType, Row, ScanRange, Schema, Table, TableDefinition, Value, decimal, rows_to_batch,
};
use entresol_transactions::Transaction;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

/// Longest key of a group that is stored as it is; of a longer one a part and a digest.
const KEY_TEXT_MAX: usize = 640;
/// Rows of a table that are added together when a view is filled.
const FILL_ROWS: usize = 4096;

/// Node of a plan over rows that are there: rows go through one by one.
#[derive(Debug)]
enum Step {
    Filter(Arc<dyn PhysicalExpr>),
    Project { exprs: Vec<Arc<dyn PhysicalExpr>>, schema: SchemaRef },
}

/// Rows that came through steps, with their numbers among those that went in.
struct PassedRows {
    batch: RecordBatch,
    numbers: Vec<u32>,
}

/// Count or sum.
#[derive(Debug)]
struct AdditiveAggregate {
    /// None if it counts rows.
    argument: Option<Arc<dyn PhysicalExpr>>,
    filter: Option<Arc<dyn PhysicalExpr>>,
    is_sum: bool,
    result: ArrowType,
}

/// View that is maintained by what changed.
pub(crate) struct IncrementalView {
    catalog: Arc<Catalog>,
    view: String,
    table: String,
    /// Columns of the table that it reads.
    columns: Vec<Column>,
    read: SchemaRef,
    below: Vec<Step>,
    groups: Vec<Arc<dyn PhysicalExpr>>,
    aggregates: Vec<AdditiveAggregate>,
    /// Columns of the aggregate.
    aggregated: SchemaRef,
    above: Vec<Step>,
    converter: Option<RowConverter>,
}

impl fmt::Debug for IncrementalView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IncrementalView")
            .field("view", &self.view)
            .field("table", &self.table)
            .finish_non_exhaustive()
    }
}

/// Values of an aggregate in a group: their number and sum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Total {
    count: i64,
    sum: i128,
}

/// Change of a group, or its state.
#[derive(Debug, Clone, PartialEq, Eq)]
struct GroupTotals {
    rows: i64,
    totals: Vec<Total>,
}

/// Groups that change.
struct Changes<'v> {
    view: &'v IncrementalView,
    /// Number of a group, by its key.
    numbers: HashMap<Vec<u8>, usize>,
    keys: Vec<Vec<u8>>,
    totals: Vec<GroupTotals>,
    /// Row with the columns of each group: a batch, and the place in it.
    places: Vec<(usize, usize)>,
    batches: Vec<Vec<ArrayRef>>,
}

/// Stored state of a group.
struct StoredGroup {
    row: Option<i64>,
    totals: GroupTotals,
}

impl IncrementalView {
    /// View that is maintained so, if the plan of its query is one of these. `plan` was analyzed.
    pub(crate) fn new(
        catalog: &Arc<Catalog>,
        view: &str,
        state: &SessionState,
        plan: &LogicalPlan,
    ) -> Result<Option<IncrementalView>> {
        let mut above = Vec::new();
        let Some(aggregate) = aggregate_below(plan, state, &mut above)? else { return Ok(None) };
        let mut below = Vec::new();
        let Some((table, read)) = table_below(&aggregate.input, state, &mut below)? else { return Ok(None) };
        let Ok(known) = catalog.table(&table) else { return Ok(None) };
        let known = known.schema();
        let columns = read
            .fields()
            .iter()
            .map(|field| known.columns().iter().find(|column| column.name == *field.name()).cloned());
        let Some(columns) = columns.collect::<Option<Vec<Column>>>() else { return Ok(None) };
        let input = aggregate.input.schema();
        let is_exact = |expr: &Expr| {
            use datafusion::logical_expr::ExprSchemable;
            expr.get_type(input).is_ok_and(|of| !of.is_floating() && !of.is_nested())
        };
        if !aggregate.group_expr.iter().all(is_exact) {
            return Ok(None);
        }
        let mut aggregates = Vec::new();
        let results = aggregate.schema.fields().iter().skip(aggregate.group_expr.len());
        for (expr, field) in aggregate.aggr_expr.iter().zip(results) {
            let Some(additive) = additive(state, expr, input, field.data_type())? else { return Ok(None) };
            aggregates.push(additive);
        }
        let groups = aggregate.group_expr.iter().map(|expr| physical(state, expr, input));
        let groups = groups.collect::<Result<Vec<_>>>()?;
        let aggregated = Arc::new(aggregate.schema.as_arrow().clone());
        let fields = aggregated.fields()[..groups.len()].iter();
        let fields: Vec<SortField> = fields.map(|field| SortField::new(field.data_type().clone())).collect();
        let converter = if fields.is_empty() { None } else { Some(RowConverter::new(fields)?) };
        let read = arrow_schema(&columns, UTC);
        above.reverse();
        below.reverse();
        let (catalog, view) = (Arc::clone(catalog), view.to_owned());
        Ok(Some(IncrementalView {
            catalog,
            view,
            table,
            columns,
            read,
            below,
            groups,
            aggregates,
            aggregated,
            above,
            converter,
        }))
    }

    /// Definition of the table of the state.
    pub(crate) fn state_definition(&self, owner: String) -> Result<TableDefinition> {
        let mut columns = vec![
            Column::new("group_key", DataType::Varchar).not_null(),
            Column::new("whole_key", DataType::Varchar),
            Column::new("row", DataType::BigInt),
            Column::new("rows", DataType::BigInt).not_null(),
        ];
        for number in 1..=self.aggregates.len() {
            columns.push(Column::new(format!("count_{number}"), DataType::BigInt).not_null());
            let sum = DataType::Decimal { precision: decimal::DECIMAL_PRECISION_MAX, scale: 0 };
            columns.push(Column::new(format!("sum_{number}"), sum).not_null());
        }
        let mut definition = TableDefinition::plain(Schema::new(columns, &["group_key"])?);
        definition.owner = Some(owner);
        Ok(definition)
    }

    fn state(&self) -> Result<Arc<Table>> {
        Ok(self.catalog.table(&state_table(&self.view))?)
    }

    fn changes(&self) -> Changes<'_> {
        Changes {
            view: self,
            numbers: HashMap::new(),
            keys: Vec::new(),
            totals: Vec::new(),
            places: Vec::new(),
            batches: Vec::new(),
        }
    }
}

impl MaintainsRows for IncrementalView {
    fn maintain(&self, transaction: &Transaction) -> Result<()> {
        let table = self.catalog.table(&self.table)?;
        let changed = table.changed_rows(transaction)?;
        if changed.is_empty() {
            return Ok(());
        }
        let mut changes = self.changes();
        let old = changed.iter().filter_map(|(old, _)| old.as_ref()).map(|row| (row, -1));
        let new = changed.iter().filter_map(|(_, new)| new.as_ref()).map(|row| (row, 1));
        changes.add(&table, &old.chain(new).collect::<Vec<_>>())?;
        changes.apply(transaction)
    }

    /// Stores the rows of the view and its state anew.
    fn fill(&self, transaction: &Transaction) -> Result<()> {
        let (held, state) = (self.catalog.table(&self.view)?, self.state()?);
        for table in [&held, &state] {
            let rows = table.scan(ScanRange::full()).rows(transaction)?;
            let keys: Vec<Row> = rows.iter().map(|row| table.key_of(row)).collect();
            table.delete_many(transaction, &keys)?;
        }
        let table = self.catalog.table(&self.table)?;
        let mut changes = self.changes();
        if self.groups.is_empty() {
            changes.add_empty();
        }
        let mut cursor = table.scan(ScanRange::full());
        let mut rows: Vec<Row> = Vec::new();
        loop {
            let more = cursor.next_batch(transaction, |row| rows.push(row.to_row()))?;
            if rows.len() >= FILL_ROWS || !more {
                changes.add(&table, &rows.iter().map(|row| (row, 1)).collect::<Vec<_>>())?;
                rows.clear();
            }
            if !more {
                break;
            }
        }
        changes.apply(transaction)
    }
}

impl Changes<'_> {
    /// Adds rows of the table to their groups, or takes them away: 1 and -1.
    fn add(&mut self, table: &Table, rows: &[(&Row, i64)]) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let places = self.view.columns.iter().map(|column| {
            let found = table.schema().columns().iter().position(|known| known.name == column.name);
            found.ok_or_else(|| {
                Error::Internal(format!("table {} has no column {}", table.name(), column.name))
            })
        });
        let places = places.collect::<Result<Vec<usize>>>()?;
        let read: Vec<Row> =
            rows.iter().map(|(row, _)| places.iter().map(|&place| row[place].clone()).collect()).collect();
        let batch = rows_to_batch(&self.view.read, &self.view.columns, &read)?;
        let PassedRows { batch, numbers: passed } = pass(&self.view.below, batch)?;
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let groups = evaluated(&self.view.groups, &batch)?;
        let numbers = self.numbered(groups, batch.num_rows())?;
        let signs: Vec<i64> = passed.iter().map(|&row| rows[row as usize].1).collect();
        numbers.iter().zip(&signs).for_each(|(&number, sign)| self.totals[number].rows += sign);
        for (place, aggregate) in self.view.aggregates.iter().enumerate() {
            let values = aggregate.values(&batch)?;
            for (row, value) in values.into_iter().enumerate() {
                let Some(value) = value else { continue };
                let total = &mut self.totals[numbers[row]].totals[place];
                total.count += signs[row];
                total.sum = i128::from(signs[row])
                    .checked_mul(value)
                    .and_then(|value| total.sum.checked_add(value))
                    .ok_or_else(|| self.view.overflows())?;
            }
        }
        Ok(())
    }

    /// Numbers of the groups of rows.
    fn numbered(&mut self, groups: Vec<ArrayRef>, rows: usize) -> Result<Vec<usize>> {
        let keys =
            self.view.converter.as_ref().map(|converter| converter.convert_columns(&groups)).transpose()?;
        let batch = self.batches.len();
        self.batches.push(groups);
        let mut numbers = Vec::with_capacity(rows);
        for row in 0..rows {
            let key = keys.as_ref().map_or(&[][..], |keys| keys.row(row).data());
            numbers.push(match self.numbers.get(key) {
                Some(number) => *number,
                None => self.new_group(key.to_vec(), (batch, row)),
            });
        }
        Ok(numbers)
    }

    fn new_group(&mut self, key: Vec<u8>, place: (usize, usize)) -> usize {
        let number = self.keys.len();
        self.numbers.insert(key.clone(), number);
        self.keys.push(key);
        self.places.push(place);
        self.totals.push(GroupTotals { rows: 0, totals: vec![Total::default(); self.view.aggregates.len()] });
        number
    }

    /// Adds the group of a view without GROUP BY, which is there without rows too.
    fn add_empty(&mut self) {
        self.new_group(Vec::new(), (0, 0));
    }

    /// Adds the changes to the stored groups, and writes what follows of the view.
    fn apply(mut self, transaction: &Transaction) -> Result<()> {
        self.drop_unchanged();
        if self.keys.is_empty() {
            return Ok(());
        }
        let (held, state) = (self.view.catalog.table(&self.view.view)?, self.view.state()?);
        let stored = self.stored(transaction, &state)?;
        for (totals, stored) in self.totals.iter_mut().zip(&stored) {
            if let Some(stored) = stored {
                totals.add(&stored.totals).ok_or_else(|| self.view.overflows())?;
            }
        }
        let passed = self.rows()?;
        let visible: Vec<usize> = (0..held.schema().visible_columns().len()).collect();
        let mut rows: Vec<Option<Row>> = vec![None; self.keys.len()];
        let computed = assignment::rows(&held, &visible, &passed.batch, &Zone::utc())?;
        for (number, row) in passed.numbers.into_iter().zip(computed) {
            rows[number as usize] = Some(row);
        }
        let (mut shown, mut hidden, mut states, mut gone) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut guards = BTreeSet::new();
        for (number, stored) in stored.into_iter().enumerate() {
            let was_stored = stored.is_some();
            if !was_stored {
                guards.insert(hash(&self.keys[number]) % GUARDS);
            }
            let row = stored.and_then(|stored| stored.row);
            let lives = self.totals[number].rows > 0 || self.view.groups.is_empty();
            let row = match (rows[number].take().filter(|_| lives), row) {
                (None, None) => None,
                (None, Some(row)) => {
                    hidden.push(vec![Value::BigInt(row)]);
                    None
                }
                (Some(mut values), row) => {
                    let row = row.map_or_else(|| held.new_row_number(), Ok)?;
                    values.push(Value::BigInt(row));
                    shown.push(values);
                    Some(row)
                }
            };
            if lives {
                states.push(self.state_row(number, row));
            } else if was_stored {
                gone.push(vec![Value::from(self.text_key(number).0)]);
            }
        }
        held.delete_many(transaction, &hidden)?;
        held.upsert_many(transaction, &shown)?;
        state.delete_many(transaction, &gone)?;
        state.upsert_many(transaction, &states)?;
        if guards.is_empty() {
            return Ok(());
        }
        write_guards(&self.view.catalog, transaction, &self.view.view, guards)
    }

    /// Drops groups that lose as much as they get.
    fn drop_unchanged(&mut self) {
        let is_changed: Vec<bool> = self
            .totals
            .iter()
            .map(|group| group.rows != 0 || group.totals.iter().any(|total| *total != Total::default()))
            .collect();
        if is_changed.iter().all(|changed| *changed) || self.view.groups.is_empty() {
            return;
        }
        let mut at = is_changed.iter();
        self.keys.retain(|_| *at.next().unwrap_or(&false));
        let mut at = is_changed.iter();
        self.totals.retain(|_| *at.next().unwrap_or(&false));
        let mut at = is_changed.iter();
        self.places.retain(|_| *at.next().unwrap_or(&false));
    }

    /// Key of a group in the state table, and what it was made of if that is longer.
    fn text_key(&self, number: usize) -> (String, Option<String>) {
        let text = STANDARD_NO_PAD.encode(&self.keys[number]);
        if text.len() <= KEY_TEXT_MAX {
            return (text, None);
        }
        let digest = md5::compute(text.as_bytes());
        (format!("{}#{digest:x}", &text[..KEY_TEXT_MAX - 33]), Some(text))
    }

    /// Stored groups.
    fn stored(&self, transaction: &Transaction, state: &Table) -> Result<Vec<Option<StoredGroup>>> {
        let keys: Vec<(String, Option<String>)> =
            (0..self.keys.len()).map(|number| self.text_key(number)).collect();
        let wanted: Vec<Row> = keys.iter().map(|(key, _)| vec![Value::from(key.as_str())]).collect();
        let rows = state.get_many(transaction, &wanted)?;
        let stored = rows.into_iter().zip(keys).map(|(row, (_, whole))| {
            let Some(row) = row else { return Ok(None) };
            let group = StoredGroup::of(&row, whole.as_deref());
            group.map(Some).ok_or_else(|| {
                let message = format!("a row of {} is not the state of the group", state.name());
                Error::Internal(message)
            })
        });
        stored.collect()
    }

    fn state_row(&self, number: usize, row: Option<i64>) -> Row {
        let (key, whole) = self.text_key(number);
        let group = &self.totals[number];
        let mut values = vec![
            Value::from(key.as_str()),
            whole.map_or(Value::Null, |whole| Value::from(whole.as_str())),
            row.map_or(Value::Null, Value::BigInt),
            Value::BigInt(group.rows),
        ];
        for total in &group.totals {
            values.extend([Value::BigInt(total.count), Value::Decimal(total.sum)]);
        }
        values
    }

    /// Rows of the view for the groups.
    fn rows(&self) -> Result<PassedRows> {
        let mut columns = Vec::with_capacity(self.view.aggregated.fields().len());
        for column in 0..self.view.groups.len() {
            let arrays: Vec<&dyn Array> = self.batches.iter().map(|batch| batch[column].as_ref()).collect();
            columns.push(interleave(&arrays, &self.places)?);
        }
        for (place, aggregate) in self.view.aggregates.iter().enumerate() {
            let totals = self.totals.iter().map(|group| group.totals[place]);
            columns.push(aggregate.results(totals).ok_or_else(|| self.view.overflows())?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(self.keys.len()));
        let batch = RecordBatch::try_new_with_options(nullable(&self.view.aggregated), columns, &options)?;
        pass(&self.view.above, batch)
    }
}

impl IncrementalView {
    fn overflows(&self) -> Error {
        Error::coded("22003", format!("a sum of materialized view {} is out of range", self.view))
    }
}

impl GroupTotals {
    /// Adds others; none if a sum is out of range.
    fn add(&mut self, other: &GroupTotals) -> Option<()> {
        self.rows = self.rows.checked_add(other.rows)?;
        for (total, other) in self.totals.iter_mut().zip(&other.totals) {
            total.count = total.count.checked_add(other.count)?;
            total.sum = total
                .sum
                .checked_add(other.sum)
                .filter(|sum| decimal::fits(*sum, decimal::DECIMAL_PRECISION_MAX))?;
        }
        Some(())
    }
}

impl StoredGroup {
    fn of(row: &Row, whole_key: Option<&str>) -> Option<StoredGroup> {
        let [_, whole, number, Value::BigInt(rows), totals @ ..] = row.as_slice() else { return None };
        let number = match number {
            Value::BigInt(number) => Some(*number),
            Value::Null => None,
            _ => return None,
        };
        let is_same = match (whole, whole_key) {
            (Value::Null, None) => true,
            (whole, Some(key)) => *whole == Value::from(key),
            _ => false,
        };
        let totals = totals.chunks(2).map(|total| match total {
            [Value::BigInt(count), Value::Decimal(sum)] => Some(Total { count: *count, sum: *sum }),
            _ => None,
        });
        let totals = totals.collect::<Option<Vec<Total>>>().filter(|_| is_same)?;
        Some(StoredGroup { row: number, totals: GroupTotals { rows: *rows, totals } })
    }
}

impl AdditiveAggregate {
    /// Value of each row, unscaled; none of rows that do not count.
    fn values(&self, batch: &RecordBatch) -> Result<Vec<Option<i128>>> {
        let mut counted: Option<BooleanArray> = None;
        if let Some(filter) = &self.filter {
            let condition = one(filter, batch)?;
            counted = Some(truths(&condition));
        }
        let is_counted = |row: usize| counted.as_ref().is_none_or(|counted| counted.value(row));
        let Some(argument) = &self.argument else {
            return Ok((0..batch.num_rows()).map(|row| is_counted(row).then_some(0)).collect());
        };
        let array = one(argument, batch)?;
        let value = |row: usize| match (self.is_sum, array.data_type()) {
            (false, _) => 0,
            (true, ArrowType::Int64) => array.as_primitive::<Int64Type>().value(row).into(),
            _ => array.as_primitive::<Decimal128Type>().value(row),
        };
        let rows = 0..batch.num_rows();
        Ok(rows.map(|row| (is_counted(row) && array.is_valid(row)).then(|| value(row))).collect())
    }

    /// Array of results; none if one is out of range.
    fn results(&self, totals: impl Iterator<Item = Total>) -> Option<ArrayRef> {
        if !self.is_sum {
            return Some(Arc::new(totals.map(|total| total.count).collect::<Int64Array>()));
        }
        let sums = totals.map(|total| (total.count > 0).then_some(total.sum));
        if self.result == ArrowType::Int64 {
            let narrow = |sum: Option<i128>| sum.map(i64::try_from).transpose().ok();
            return Some(Arc::new(sums.map(narrow).collect::<Option<Int64Array>>()?));
        }
        Some(Arc::new(sums.collect::<Decimal128Array>().with_data_type(self.result.clone())))
    }
}

/// Count or sum of exact numbers that an expression of an aggregate is, if it is one.
fn additive(
    state: &SessionState,
    expr: &Expr,
    input: &DFSchema,
    result: &ArrowType,
) -> Result<Option<AdditiveAggregate>> {
    use datafusion::logical_expr::ExprSchemable;
    let Expr::AggregateFunction(AggregateFunction { func, params }) = expr.clone().unalias() else {
        return Ok(None);
    };
    if params.distinct || !params.order_by.is_empty() || params.args.len() > 1 {
        return Ok(None);
    }
    let is_sum = match (func.name(), params.args.first()) {
        ("count", _) => false,
        ("sum", Some(argument)) => {
            let of = argument.get_type(input)?;
            let is_exact = matches!(of, ArrowType::Int64) && *result == ArrowType::Int64
                || matches!((&of, result), (ArrowType::Decimal128(_, from), ArrowType::Decimal128(_, to)) if from == to);
            if !is_exact {
                return Ok(None);
            }
            true
        }
        _ => return Ok(None),
    };
    let argument = match params.args.first() {
        Some(Expr::Literal(value, _)) if !is_sum && !value.is_null() => None,
        Some(argument) => Some(physical(state, argument, input)?),
        None => None,
    };
    let filter = params.filter.as_ref().map(|filter| physical(state, filter, input)).transpose()?;
    Ok(Some(AdditiveAggregate { argument, filter, is_sum, result: result.clone() }))
}

/// Aggregate of a plan, below filters and projections, which become steps, the last one first.
fn aggregate_below<'p>(
    plan: &'p LogicalPlan,
    state: &SessionState,
    steps: &mut Vec<Step>,
) -> Result<Option<&'p Aggregate>> {
    match plan {
        LogicalPlan::Aggregate(aggregate) => Ok(Some(aggregate)),
        other => match step(other, state, steps)? {
            Some(input) => aggregate_below(input, state, steps),
            None => Ok(None),
        },
    }
}

/// Table that a plan reads, and its columns, below filters and projections.
fn table_below(
    plan: &LogicalPlan,
    state: &SessionState,
    steps: &mut Vec<Step>,
) -> Result<Option<(String, ArrowSchema)>> {
    let LogicalPlan::TableScan(scan) = plan else {
        return match step(plan, state, steps)? {
            Some(input) => table_below(input, state, steps),
            None => Ok(None),
        };
    };
    let is_table = source_as_provider(&scan.source)?.downcast_ref::<EntresolTable>().is_some();
    if !is_table || !scan.filters.is_empty() || scan.fetch.is_some() {
        return Ok(None);
    }
    Ok(Some((scan.table_name.table().to_owned(), scan.projected_schema.as_arrow().clone())))
}

/// Adds a filter or projection to steps; returns what it reads. None for other nodes.
fn step<'p>(
    plan: &'p LogicalPlan,
    state: &SessionState,
    steps: &mut Vec<Step>,
) -> Result<Option<&'p LogicalPlan>> {
    match plan {
        LogicalPlan::SubqueryAlias(alias) => Ok(Some(&alias.input)),
        LogicalPlan::Filter(filter) => {
            let Ok(predicate) = physical(state, &filter.predicate, filter.input.schema()) else {
                return Ok(None);
            };
            steps.push(Step::Filter(predicate));
            Ok(Some(&filter.input))
        }
        LogicalPlan::Projection(projection) => {
            let exprs = projection.expr.iter().map(|expr| physical(state, expr, projection.input.schema()));
            // A subquery is none.
            let Ok(exprs) = exprs.collect::<Result<Vec<_>>>() else { return Ok(None) };
            let schema = nullable(projection.schema.as_arrow());
            steps.push(Step::Project { exprs, schema });
            Ok(Some(&projection.input))
        }
        _ => Ok(None),
    }
}

/// Expression on rows of a schema. Some functions, those that casts come to among them, are others once simplified.
fn physical(state: &SessionState, expr: &Expr, schema: &DFSchema) -> Result<Arc<dyn PhysicalExpr>> {
    let context = SimplifyContext::builder()
        .with_schema(Arc::new(schema.clone()))
        .with_config_options(Arc::clone(state.config_options()))
        .build();
    let expr = ExprSimplifier::new(context).simplify(expr.clone().unalias())?;
    let physical = state.create_physical_expr(expr, schema)?;
    Ok(checked(physical, schema.as_arrow())?.data)
}

/// Schema whose columns may be NULL: a plan's may say that they are not, for rows that do not come so far.
fn nullable(schema: &ArrowSchema) -> SchemaRef {
    let fields = schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
    Arc::new(ArrowSchema::new(fields.collect::<Vec<_>>()))
}

fn one(expr: &Arc<dyn PhysicalExpr>, batch: &RecordBatch) -> Result<ArrayRef> {
    Ok(expr.evaluate(batch)?.into_array(batch.num_rows())?)
}

fn evaluated(exprs: &[Arc<dyn PhysicalExpr>], batch: &RecordBatch) -> Result<Vec<ArrayRef>> {
    exprs.iter().map(|expr| one(expr, batch)).collect()
}

/// Rows of a batch that come through steps.
fn pass(steps: &[Step], batch: RecordBatch) -> Result<PassedRows> {
    let mut passed = PassedRows { numbers: (0..batch.num_rows() as u32).collect(), batch };
    for step in steps {
        match step {
            Step::Filter(predicate) => {
                let condition = one(predicate, &passed.batch)?;
                let selection = truths(&condition);
                passed.batch = filter_record_batch(&passed.batch, &selection)?;
                let mut selected = selection.values().iter();
                passed.numbers.retain(|_| selected.next().unwrap_or(false));
            }
            Step::Project { exprs, schema } => {
                let options = RecordBatchOptions::new().with_row_count(Some(passed.batch.num_rows()));
                let columns = evaluated(exprs, &passed.batch)?;
                passed.batch = RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?;
            }
        }
    }
    Ok(passed)
}

/// Truth values with false for NULL.
fn truths(condition: &ArrayRef) -> BooleanArray {
    let condition = condition.as_boolean();
    if condition.null_count() == 0 { condition.clone() } else { prep_null_mask_filter(condition) }
}

/// Hash of a group, for its guard.
fn hash(key: &[u8]) -> u64 {
    use std::hash::{DefaultHasher, Hasher};
    let mut hasher = DefaultHasher::new();
    hasher.write(key);
    hasher.finish()
}
