//! Joins of two streams of which one or both take rows back: regular joins, which keep all rows of both sides.
//!
//! | join | rows |
//! | --- | --- |
//! | INNER ON equal columns, and any other condition | pairs of the rows that are there |
//! | LEFT, RIGHT ON equal columns alone | the same, and rows of one side without partner |
//! | FULL; without equal columns | refused |
//!
//! The key of the results, by which a table may have them:
//!
//! | the key of a side is among its columns that ON compares | key of the results |
//! | --- | --- |
//! | of the right side, or of the one that may be missing | that of the left side |
//! | of the left side, of an inner join | that of the right side |
//! | of neither, of an inner join | both |
//! | else, or a side is append-only and not the one with the key | none: aggregates, rankings and sinks take them |

use crate::error::{Error, Result};
use crate::postgres::types::column_type;
use crate::streaming::expressions::Columns;
use crate::streaming::joins::{Side, equality, filtered, ordered_columns};
use crate::streaming::operators::{Flow, Translator, plain_column, storage};
use crate::streaming::replaced::{ReplacedBy, Replacement};
use datafusion::arrow::datatypes::DataType as ArrowType;
use datafusion::common::DFSchema;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, ExprSchemable, Join, JoinType};
use entresol_streams::{Expression, GROUPS_IN_DRAM_MAX, JoinKind, RegularJoin};
use entresol_tables::{Column, arrow_type};

/// Sides of a join, the one that decides about its rows first.
type Sides<'a, 'p> = (&'a Side<'p>, &'a Side<'p>);

/// Expressions of the key of a side.
type KeyExpressions = Vec<Box<dyn Expression>>;

impl Translator<'_> {
    /// Join of two streams of which at least one takes rows back. `conjuncts` are what must hold besides the
    /// equalities.
    pub(crate) fn join_changes(
        &mut self,
        (join, predicate): (&Join, Option<&Expr>),
        kind: JoinKind,
        (first, second): Sides<'_, '_>,
        mut equal: Vec<(Expr, Expr)>,
        conjuncts: Vec<&Expr>,
    ) -> Result<Flow> {
        let mut others: Vec<Expr> = Vec::new();
        for conjunct in conjuncts {
            match equality(conjunct, first, second)? {
                Some(pair) => equal.push(pair),
                None => others.push(conjunct.clone()),
            }
        }
        check_kept(join.join_type, &equal, &others)?;
        let planned = first.plan.schema().join(second.plan.schema())?;
        let condition = self.condition_of_pairs((first, second), &planned, others)?;
        let (left_keys, right_keys) = self.kept_keys(&equal, (first, second))?;
        let state_table = self.state_table_of(&filtered(join, predicate)?, &describe(first, second));
        self.joins = true;
        let stream = first.flow.stream.regular_join(
            &second.flow.stream,
            RegularJoin {
                kind,
                state_table,
                left_keys,
                right_keys,
                condition,
                keys_in_dram: GROUPS_IN_DRAM_MAX,
            },
        );
        let widths = [first, second].map(|side| side.flow.stream.columns().len());
        let (stream, places) = ordered_columns(join, &stream, widths);
        let replaced =
            replaced_by(kind, (first, second), &equal).projected(|at| Some(places[at]), Vec::new());
        Ok(Flow { stream, windows: None, event_time: None, replaced: Some(replaced) })
    }

    /// Expression of a condition on the pairs of both sides; none without one.
    fn condition_of_pairs(
        &self,
        (first, second): Sides<'_, '_>,
        planned: &DFSchema,
        conjuncts: Vec<Expr>,
    ) -> Result<Option<Box<dyn Expression>>> {
        let Some(condition) = conjunction(conjuncts) else { return Ok(None) };
        let both = first.flow.stream.columns().iter().chain(second.flow.stream.columns());
        let stored = storage(&both.cloned().collect::<Vec<Column>>());
        let columns = Columns { planned, stored: &stored };
        Ok(Some(Box::new(columns.expression(&self.planned.state, &condition, &ArrowType::Boolean)?)))
    }

    /// Expressions of the keys of both sides, of types that a table stores.
    fn kept_keys(
        &self,
        equal: &[(Expr, Expr)],
        (first, second): Sides<'_, '_>,
    ) -> Result<(KeyExpressions, KeyExpressions)> {
        let key = |side: &Side<'_>, expr: &Expr, result: &ArrowType| -> Result<Box<dyn Expression>> {
            let stored = storage(side.flow.stream.columns());
            let columns = Columns { planned: side.plan.schema(), stored: &stored };
            Ok(Box::new(columns.expression(&self.planned.state, expr, result)?))
        };
        let (mut of_first, mut of_second) = (Vec::new(), Vec::new());
        for (left, right) in equal {
            let types = [left.get_type(first.plan.schema())?, right.get_type(second.plan.schema())?];
            let stored = types.each_ref().map(column_type);
            let [Some(one), Some(other)] = stored else { return Err(not_comparable(left, right, &types)) };
            let result = arrow_type(one, "UTC");
            if result != arrow_type(other, "UTC") {
                return Err(not_comparable(left, right, &types));
            }
            of_first.push(key(first, left, &result)?);
            of_second.push(key(second, right, &result)?);
        }
        Ok((of_first, of_second))
    }
}

fn not_comparable(left: &Expr, right: &Expr, [of_left, of_right]: &[ArrowType; 2]) -> Error {
    Error::unsupported(format!(
        "a join of streams ON {left} = {right}, of types {of_left} and {of_right}: cast both to one type of a column"
    ))
}

/// Refuses conditions without equal columns, and those of an outer join that have more.
fn check_kept(join: JoinType, equal: &[(Expr, Expr)], others: &[Expr]) -> Result<()> {
    if equal.is_empty() {
        return Err(Error::unsupported(
            "a join of two streams of which rows are taken back, without equal columns of both: each change would be compared with all rows",
        ));
    }
    match others.first() {
        Some(other) if join != JoinType::Inner => Err(Error::unsupported(format!(
            "{} JOIN of two streams of which rows are taken back, ON more than equal columns: {other}; filter a side in FROM, or join INNER",
            join.to_string().to_uppercase()
        ))),
        _ => Ok(()),
    }
}

/// Text of a join for EXPLAIN.
fn describe(first: &Side<'_>, second: &Side<'_>) -> String {
    let rows = |side: &Side<'_>| if side.flow.replaced.is_some() { "changes" } else { "appended rows" };
    let (first, second) = (rows(first), rows(second));
    format!("regular join of {first} with {second}, all rows of both are kept")
}

/// Columns by which results of a join are told apart, the columns of the first side before those of the second.
fn replaced_by(kind: JoinKind, (first, second): Sides<'_, '_>, equal: &[(Expr, Expr)]) -> ReplacedBy {
    let is_inner = kind == JoinKind::Inner;
    let width = first.flow.stream.columns().len();
    let place = |side: &Side<'_>, expr: &Expr| {
        let stored = storage(side.flow.stream.columns());
        plain_column(expr, &Columns { planned: side.plan.schema(), stored: &stored })
    };
    let compared: Vec<[Option<usize>; 2]> =
        equal.iter().map(|(left, right)| [place(first, left), place(second, right)]).collect();
    let keys = [first, second].map(|side| side.flow.replaced.as_ref().and_then(ReplacedBy::identity));
    let is_one = |side: usize| {
        let is_compared = |column: &usize| compared.iter().any(|places| places[side] == Some(*column));
        keys[side].as_ref().is_some_and(|key| key.iter().all(is_compared))
    };
    let of_first = |key: &[usize]| key.iter().copied().map(Some).collect::<Vec<Option<usize>>>();
    let of_second =
        |key: &[usize]| key.iter().map(|column| Some(width + column)).collect::<Vec<Option<usize>>>();
    let key = match (&keys[0], &keys[1]) {
        (Some(key), _) if is_one(1) => Some(of_first(key)),
        (_, Some(key)) if is_inner && is_one(0) => Some(of_second(key)),
        (Some(one), Some(other)) if is_inner => Some([of_first(one), of_second(other)].concat()),
        _ => None,
    };
    let Some(key) = key else { return ReplacedBy::without_key(Replacement::Joined) };
    let mut replaced = ReplacedBy::of_key(Replacement::Joined, key);
    for (side, before) in [(first, 0), (second, width)] {
        // Those of the other side may be NULL.
        let Some(of_side) = side.flow.replaced.as_ref().filter(|_| is_inner || before == 0) else { continue };
        replaced.besides.extend(of_side.besides.iter().map(|column| before + column));
        replaced.equal.extend(of_side.equal.iter().map(|(one, other)| (before + one, before + other)));
    }
    if is_inner {
        let pairs = compared.iter().filter_map(|[left, right]| Some(((*left)?, width + (*right)?)));
        replaced.equal.extend(pairs);
    }
    replaced
}
