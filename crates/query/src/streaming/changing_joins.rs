//! Joins of two streams of which one or both take rows back: regular joins, which keep all rows of both sides.
//!
//! | join | rows |
//! | --- | --- |
//! | INNER ON equal columns, and any other condition | pairs of the rows that are there |
//! | LEFT, RIGHT | the same, and rows of one side without partner |
//! | FULL | the same, and rows of both sides without partner |
//! | without equal columns | refused |
//!
//! The key of the results, by which a table may have them:
//!
//! | the key of a side is among its columns that ON compares | key of the results |
//! | --- | --- |
//! | of the right side, or of the one that may be missing | that of the left side |
//! | of the left side, of an inner join | that of the right side |
//! | of neither, of an inner join | both |
//! | FULL | none |
//! | else, or a side is append-only and not the one with the key | none: aggregates, rankings and sinks take them |

use crate::error::{Error, Result};
use crate::planner::row_expressions::Columns;
use crate::postgres::types::column_type;
use crate::streaming::joins::{Side, equality, filtered, ordered_columns};
use crate::streaming::operator_tree::describe_keys;
use crate::streaming::operators::{Flow, Translator, plain_column, storage};
use crate::streaming::replaced::{ReplacedBy, Replacement};
use crate::streaming::retention::StateTtl;
use crate::streaming::watermarks::EventTime;
use datafusion::arrow::datatypes::DataType as ArrowType;
use datafusion::common::DFSchema;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, ExprSchemable, Join, JoinType};
use entresol_streams::{Expression, GROUPS_IN_DRAM_MAX, JoinLife, RegularJoin};
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
        if equal.is_empty() {
            return Err(Error::unsupported(
                "a join of two streams of which rows are taken back, without equal columns of both: each change would be compared with all rows",
            ));
        }
        let preserved = match join.join_type {
            JoinType::Full => [true, true],
            JoinType::Left | JoinType::Right => [true, false],
            _ => [false, false],
        };
        let planned = first.plan.schema().join(second.plan.schema())?;
        let condition = self.condition_of_pairs((first, second), &planned, others)?;
        let (left_keys, right_keys) = self.kept_keys(&equal, (first, second))?;
        let life = self.life_of_appended((first, second), preserved)?;
        let text = describe(join, (first, second), life);
        let state_table = self.state_table_of(&filtered(join, predicate)?, &text);
        self.joins = true;
        let stream = first.flow.stream.regular_join(
            &second.flow.stream,
            RegularJoin {
                preserved,
                state_table,
                left_keys,
                right_keys,
                condition,
                life,
                keys_in_dram: GROUPS_IN_DRAM_MAX,
            },
        );
        let stream = stream.described(&describe_keys(join));
        let widths = [first, second].map(|side| side.flow.stream.columns().len());
        let (stream, places) = ordered_columns(join, &stream, widths);
        let replaced =
            replaced_by(preserved, (first, second), &equal).projected(|at| Some(places[at]), Vec::new());
        Ok(Flow { stream, windows: None, event_time: None, replaced: Some(replaced) })
    }

    /// Life of the rows of the side that is only added to, if `state_ttl` says one.
    fn life_of_appended(
        &mut self,
        (first, second): Sides<'_, '_>,
        preserved: [bool; 2],
    ) -> Result<Option<JoinLife>> {
        let of_step = self.step.and_then(|step| step.state_ttl);
        let Some(ttl) = of_step.or(self.planned.state_ttl) else { return Ok(None) };
        let is_left = first.flow.replaced.is_none();
        if !is_left && second.flow.replaced.is_some() {
            return Ok(None);
        }
        self.has_used_ttl = true;
        let StateTtl::For(ttl) = ttl else { return Ok(None) };
        if preserved[usize::from(is_left)] {
            return Err(Error::unsupported(
                "state_ttl of an outer join that sends rows without partner which are taken back: when their partners leave they would have none; join INNER, or say 'infinity'",
            ));
        }
        let time = if is_left { first.time } else { second.time };
        let EventTime { column, lateness, future_limit } = time.ok_or_else(|| {
            Error::unsupported(
                "state_ttl of a join of appended rows without event time: declare WATERMARK FOR … in CREATE SOURCE, and keep that column, or say 'infinity'",
            )
        })?;
        Ok(Some(JoinLife { is_left, time: column, ttl, lateness, future_limit }))
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

/// Text of a join for EXPLAIN, whose sides are swapped in a RIGHT JOIN.
fn describe(join: &Join, (first, second): Sides<'_, '_>, life: Option<JoinLife>) -> String {
    let rows = |side: &Side<'_>| if side.flow.replaced.is_some() { "changes" } else { "appended rows" };
    let (first, second) = (rows(first), rows(second));
    let sides = format!("regular join of {first} with {second}");
    let Some(life) = life else { return format!("{sides}, all rows of both are kept") };
    let is_left = life.is_left != (join.join_type == JoinType::Right);
    let side = if is_left { "left" } else { "right" };
    format!("{sides}, rows of the {side} are kept until {:?} behind their time, all of the other", life.ttl)
}

/// Columns by which results of a join are told apart, the columns of the first side before those of the second.
fn replaced_by(preserved: [bool; 2], (first, second): Sides<'_, '_>, equal: &[(Expr, Expr)]) -> ReplacedBy {
    if preserved == [true; 2] {
        return ReplacedBy::without_key(Replacement::Joined);
    }
    let is_inner = preserved == [false; 2];
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
