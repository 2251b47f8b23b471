//! ASOF JOIN: each row of the left side with the nearest row of the right one in an order, among those with equal keys; with
//! NULLs if there is none.
//!
//! ```sql
//! FROM trade t ASOF JOIN price p MATCH_CONDITION (t.at >= p.at) ON p.symbol = t.symbol
//! ```
//!
//! In the statement it becomes a LEFT JOIN whose condition has a mark ([`crate::planner::translation`]), and that in the plan
//! ([`expanded`]) windows over the rows of both sides together:
//!
//! ```text
//!   rows of both, by keys, in the order of MATCH_CONDITION; of equal times the right side's first if they match
//!     ─▶ number of rows of the right side so far ─▶ first row of each number: the partner of the others ─▶ left rows
//! ```
//!
//! Cost: a sort of both sides, whatever the number of pairs that the condition would have. Of rows of the right side with
//! equal keys and times one is taken. Joins that read a stream stay as they are: with a table
//! they are planned so for each batch, those of two streams are operators of their own.

use crate::schema_names::STREAMS_CATALOG;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result as DFResult, ScalarValue, internal_err, not_impl_err};
use datafusion::functions::core::expr_fn::{get_field, named_struct};
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::functions_window::nth_value::first_value_udwf;
use datafusion::logical_expr::expr::{ScalarFunction, Sort, WindowFunction};
use datafusion::logical_expr::type_coercion::binary::comparison_coercion;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{
    BinaryExpr, Cast, ColumnarValue, Expr, ExprFunctionExt, ExprSchemable, Join, LogicalPlan,
    LogicalPlanBuilder, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
    WindowFunctionDefinition, lit,
};
use datafusion::optimizer::AnalyzerRule;

/// Name of the mark: a function around the condition of MATCH_CONDITION.
pub(crate) const ASOF: &str = "entresol_asof";
/// Columns of the rows of both sides: the time, the place among rows of equal times, 1 of the right side's, the rows, the
/// number of the right side's so far, and the partner.
const TIME: &str = "\u{1}time";
const PLACE: &str = "\u{1}place";
const RIGHT: &str = "\u{1}of the right";
const LEFT_ROW: &str = "\u{1}left";
const RIGHT_ROW: &str = "\u{1}right";
const NUMBER: &str = "\u{1}number";
const PARTNER: &str = "\u{1}partner";

/// Function of the mark, for the planner.
pub(crate) fn function() -> ScalarUDF {
    ScalarUDF::from(Mark { signature: Signature::any(1, Volatility::Immutable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Mark {
    signature: Signature,
}

impl ScalarUDFImpl for Mark {
    fn name(&self) -> &str {
        ASOF
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> DFResult<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, _arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue> {
        internal_err!("MATCH_CONDITION of a join that was not planned")
    }
}

/// Analyzer rule that plans ASOF joins.
#[derive(Debug)]
pub(crate) struct AsofJoins;

impl AnalyzerRule for AsofJoins {
    fn name(&self) -> &str {
        "asof_joins"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> DFResult<LogicalPlan> {
        let mut found = false;
        plan.apply_with_subqueries(|node| {
            found |= matches!(node, LogicalPlan::Join(join) if is_asof(join));
            Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
        if !found {
            return Ok(plan);
        }
        let planned = plan.transform_up_with_subqueries(|node| {
            let node = match node {
                LogicalPlan::Join(join) if is_asof(&join) && !reads_stream(&join)? => expanded(&join)?,
                node => node,
            };
            // Columns of the left side may be NULL in what the plan of the join says.
            Ok(Transformed::yes(node.recompute_schema()?))
        });
        planned.data()
    }
}

fn reads_stream(join: &Join) -> DFResult<bool> {
    let mut found = false;
    for side in [&join.left, &join.right] {
        side.apply_with_subqueries(|node| {
            found |= matches!(node, LogicalPlan::TableScan(scan) if scan.table_name.catalog() == Some(STREAMS_CATALOG));
            Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
    }
    Ok(found)
}

/// Condition of MATCH_CONDITION.
fn marked(expr: &Expr) -> Option<&Expr> {
    match expr {
        Expr::ScalarFunction(ScalarFunction { func, args }) if func.name() == ASOF => args.first(),
        _ => None,
    }
}

/// Tells whether a join is ASOF.
pub(crate) fn is_asof(join: &Join) -> bool {
    join.filter
        .as_ref()
        .is_some_and(|filter| split_conjunction(filter).into_iter().any(|part| marked(part).is_some()))
}

/// Condition of an ASOF join.
pub(crate) struct Condition {
    /// Equal expressions of the left and the right side, of one type.
    pub(crate) keys: Vec<(Expr, Expr)>,
    pub(crate) left_time: Expr,
    pub(crate) right_time: Expr,
    /// True if the nearest row of the right side is the last one before the left's, false if it is the first one behind it.
    pub(crate) is_before: bool,
    /// True if rows of equal times match.
    pub(crate) is_equal: bool,
}

impl Condition {
    pub(crate) fn of(join: &Join) -> DFResult<Condition> {
        let (left, right) = (join.left.schema(), join.right.schema());
        let mut keys = Vec::new();
        for (one, other) in &join.on {
            keys.push(of_one_type((one.clone(), left), (other.clone(), right))?);
        }
        let mut times = None;
        for part in join.filter.iter().flat_map(|filter| split_conjunction(filter)) {
            let compared = match marked(part).unwrap_or(part) {
                Expr::BinaryExpr(BinaryExpr { left: one, op, right: other }) => {
                    sides((one, *op, other), left, right)
                }
                _ => None,
            };
            match (marked(part).is_some(), compared) {
                (false, Some((one, Operator::Eq, other))) => {
                    keys.push(of_one_type((one, left), (other, right))?)
                }
                (false, _) => {
                    return not_impl_err!(
                        "ON of an ASOF JOIN other than equalities of both sides, joined by AND"
                    );
                }
                (true, Some((one, op, other))) if is_order(op) && times.is_none() => {
                    times = Some((of_one_type((one, left), (other, right))?, op));
                }
                (true, _) => {
                    return not_impl_err!(
                        "MATCH_CONDITION other than one comparison by >=, >, <= or < of an expression of each side"
                    );
                }
            }
        }
        let Some(((left_time, right_time), op)) = times else {
            return internal_err!("a join without MATCH_CONDITION");
        };
        Ok(Condition {
            keys,
            left_time,
            right_time,
            is_before: matches!(op, Operator::Gt | Operator::GtEq),
            is_equal: matches!(op, Operator::GtEq | Operator::LtEq),
        })
    }
}

fn is_order(op: Operator) -> bool {
    matches!(op, Operator::Gt | Operator::GtEq | Operator::Lt | Operator::LtEq)
}

/// Comparison with the left side's expression before the right side's.
fn sides(
    (one, op, other): (&Expr, Operator, &Expr),
    left: &DFSchema,
    right: &DFSchema,
) -> Option<(Expr, Operator, Expr)> {
    let is_of = |expr: &Expr, schema: &DFSchema| {
        let columns = expr.column_refs();
        !columns.is_empty() && columns.iter().all(|column| schema.has_column(column))
    };
    if is_of(one, left) && is_of(other, right) {
        return Some((one.clone(), op, other.clone()));
    }
    if is_of(other, left) && is_of(one, right) {
        return Some((other.clone(), op.swap()?, one.clone()));
    }
    None
}

/// Expressions with one type.
fn of_one_type(
    (one, of_one): (Expr, &DFSchema),
    (other, of_other): (Expr, &DFSchema),
) -> DFResult<(Expr, Expr)> {
    let types = (one.get_type(of_one)?, other.get_type(of_other)?);
    if types.0 == types.1 {
        return Ok((one, other));
    }
    let Some(common) = comparison_coercion(&types.0, &types.1) else {
        return not_impl_err!("an ASOF JOIN that compares {} with {}", types.0, types.1);
    };
    let cast = |expr: Expr, data_type: &DataType| {
        if *data_type == common { expr } else { Expr::Cast(Cast::new(Box::new(expr), common.clone())) }
    };
    Ok((cast(one, &types.0), cast(other, &types.1)))
}

fn column(name: &str) -> Expr {
    Expr::Column(Column::new_unqualified(name))
}

fn key(number: usize) -> String {
    format!("\u{1}key {number}")
}

/// Row of a relation as one value.
fn row_of(schema: &DFSchema) -> Expr {
    let fields = schema.columns().into_iter().enumerate();
    named_struct(fields.flat_map(|(at, column)| [lit(format!("c{at}")), Expr::Column(column)]).collect())
}

/// Plan of an ASOF join, with its columns.
pub(crate) fn expanded(join: &Join) -> DFResult<LogicalPlan> {
    let condition = Condition::of(join)?;
    let (left, right) = (join.left.schema(), join.right.schema());
    let (left_row, right_row) = (row_of(left), row_of(right));
    let no_left = lit(ScalarValue::try_from(&left_row.get_type(left)?)?);
    let no_right = lit(ScalarValue::try_from(&right_row.get_type(right)?)?);
    let (left_place, right_place) = if condition.is_equal { (1, 0) } else { (0, 1) };
    let exprs = |keys: Vec<Expr>, time: &Expr, rest: [Expr; 4]| -> Vec<Expr> {
        let keys = keys.into_iter().enumerate().map(|(number, expr)| expr.alias(key(number)));
        let [place, of_right, left_row, right_row] = rest;
        let rest = [
            time.clone().alias(TIME),
            place.alias(PLACE),
            of_right.alias(RIGHT),
            left_row.alias(LEFT_ROW),
            right_row.alias(RIGHT_ROW),
        ];
        keys.chain(rest).collect()
    };
    let (left_keys, right_keys): (Vec<Expr>, Vec<Expr>) = condition.keys.iter().cloned().unzip();
    // What is compared with NULL has no partner.
    let is_there = right_keys
        .iter()
        .fold(condition.right_time.clone().is_not_null(), |all, key| all.and(key.clone().is_not_null()));
    let rest = [lit(right_place), lit(1_i32), no_left, right_row];
    let of_right = LogicalPlanBuilder::from(join.right.as_ref().clone())
        .filter(is_there)?
        .project(exprs(right_keys, &condition.right_time, rest))?
        .build()?;
    let rest = [lit(left_place), lit(ScalarValue::Int32(None)), left_row, no_right];
    let of_left = exprs(left_keys, &condition.left_time, rest);
    let keys: Vec<Expr> = (0..condition.keys.len()).map(|number| column(&key(number))).collect();
    // Rows without a time stand before all of the right side, so they have no partner.
    let order =
        || vec![Sort::new(column(TIME), condition.is_before, true), Sort::new(column(PLACE), true, false)];
    let number =
        WindowFunction::new(WindowFunctionDefinition::AggregateUDF(count_udaf()), vec![column(RIGHT)]);
    let number = Expr::from(number).partition_by(keys.clone()).order_by(order()).build()?.alias(NUMBER);
    let of_number: Vec<Expr> = keys.into_iter().chain([column(NUMBER)]).collect();
    let partner =
        WindowFunction::new(WindowFunctionDefinition::WindowUDF(first_value_udwf()), vec![column(RIGHT_ROW)]);
    let partner = Expr::from(partner).partition_by(of_number).order_by(order()).build()?.alias(PARTNER);
    LogicalPlanBuilder::from(join.left.as_ref().clone())
        .project(of_left)?
        .union(of_right)?
        .window([number])?
        .window([partner])?
        .filter(column(RIGHT).is_null())?
        .project(fields(LEFT_ROW, left).chain(fields(PARTNER, right)))?
        .build()
}

/// Columns of a relation from its row in a column.
fn fields<'s>(row: &'static str, schema: &'s DFSchema) -> impl Iterator<Item = Expr> + 's {
    schema.iter().enumerate().map(move |(at, (relation, field))| {
        get_field(column(row), format!("c{at}")).alias_qualified(relation.cloned(), field.name())
    })
}
