//! Expressions of steps, and those that a step cannot have.

use crate::dml::assignment;
use crate::error::{Error, Result};
use crate::planner::row_expressions::PhysicalExpression;
use crate::planner::rules::asof::is_asof;
use crate::planner::rules::correlated::PER_ROW;
use crate::postgres::time_zones::Zone;
use crate::streaming::bound_plans::reads_stream;
use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Expr, LogicalPlan, Volatility};
use entresol_streams::{Expression, Reason};
use entresol_tables::Column;

/// Column of a projection, and its expression.
pub(crate) type ComputedColumn = (Column, Box<dyn Expression>);

/// Expression over some columns of a stream.
pub(crate) struct ColumnsExpression {
    pub(crate) columns: Vec<usize>,
    pub(crate) expression: PhysicalExpression,
}

impl Expression for ColumnsExpression {
    fn evaluate(&mut self, rows: &RecordBatch) -> Result<ArrayRef, Reason> {
        self.expression.evaluate(&rows.project(&self.columns).map_err(Error::from)?)
    }
}

/// Values of an expression as those of a column of a table, to which they are assigned as INSERT assigns them.
pub(crate) struct AssignedValues {
    pub(crate) table: String,
    pub(crate) column: Column,
    pub(crate) value: Box<dyn Expression>,
}

impl Expression for AssignedValues {
    fn evaluate(&mut self, rows: &RecordBatch) -> Result<ArrayRef, Reason> {
        let value = self.value.evaluate(rows)?;
        Ok(assignment::array(&self.table, &self.column, &value, &Zone::utc())?)
    }
}

/// Functions of the time of a statement, of which a stream has no end.
const FIXED_BY_STATEMENT: [&str; 7] = [
    "now",
    "current_date",
    "current_time",
    "current_timestamp",
    "localtimestamp",
    "statement_timestamp",
    "transaction_timestamp",
];

/// Functions whose value is that of a session.
pub(crate) const FIXED_BY_SESSION: [&str; 10] = [
    "current_user",
    "session_user",
    "current_setting",
    "current_schema",
    "current_database",
    "currval",
    "lastval",
    "pg_backend_pid",
    "pg_cancel_backend",
    "pg_terminate_backend",
];

/// Refuses what the expressions of a step cannot have.
pub(crate) fn check_plan(plan: &LogicalPlan) -> Result<()> {
    let mut refused = Ok(());
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            refused = check(expr);
            Ok(if refused.is_ok() { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
        })
    })?;
    refused
}

/// Refuses subqueries of streams. Before rules make other plans of them.
pub(crate) fn check_subqueries(plan: &LogicalPlan) -> Result<()> {
    let mut refused = Ok(());
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                let subquery = match expr {
                    Expr::ScalarSubquery(subquery) => subquery,
                    Expr::InSubquery(in_subquery) => &in_subquery.subquery,
                    Expr::Exists(exists) => &exists.subquery,
                    _ => return Ok(TreeNodeRecursion::Continue),
                };
                if reads_stream(&subquery.subquery) {
                    refused = Err(Error::unsupported("a subquery of a stream in a step: join the streams"));
                }
                Ok(if refused.is_ok() { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
            })
        })
    })?;
    refused
}

/// Refuses a condition that is no truth value, and functions that it cannot have.
pub(crate) fn check_condition(plan: &LogicalPlan) -> Result<()> {
    let fields = plan.schema().fields();
    if fields.len() != 1 || *fields[0].data_type() != DataType::Boolean {
        let found: Vec<String> = fields.iter().map(|field| field.data_type().to_string()).collect();
        let message = format!("ABORT WHEN needs one truth value, found {}", found.join(", "));
        return Err(Error::coded("42804", message));
    }
    let mut refused = Ok(());
    plan.apply_with_subqueries(|node| {
        if matches!(node, LogicalPlan::Join(join) if is_asof(join)) {
            refused = Err(Error::unsupported("ASOF JOIN of CHANGES in ABORT WHEN"));
            return Ok(TreeNodeRecursion::Stop);
        }
        node.apply_expressions(|expr| {
            refused = check(expr);
            Ok(if refused.is_ok() { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
        })
    })?;
    refused
}

pub(crate) fn check(expr: &Expr) -> Result<()> {
    check_in("a step", expr)
}

/// Refuses what an expression cannot have whose values are the same whenever a row is read; `place` names where it is.
pub(crate) fn check_in(place: &str, expr: &Expr) -> Result<()> {
    let mut refused = None;
    expr.apply(|expr| {
        let what = match expr {
            Expr::Placeholder(_) => format!("a parameter in {place}"),
            Expr::ScalarFunction(function) => {
                let (name, volatility) = (function.func.name(), function.func.signature().volatility);
                if name == PER_ROW {
                    refused = Some(
                        "a subquery in a step that reads columns of the stream, other than by =, and is neither EXISTS or IN in \
                         WHERE nor one aggregate: join the stream with the table"
                            .to_owned(),
                    );
                    return Ok(TreeNodeRecursion::Stop);
                }
                let is_fixed = FIXED_BY_STATEMENT.contains(&name) || FIXED_BY_SESSION.contains(&name);
                if volatility != Volatility::Volatile && !is_fixed {
                    return Ok(TreeNodeRecursion::Continue);
                }
                format!("{name}() in {place}: after a restart it would have another value for the same rows")
            }
            _ => return Ok(TreeNodeRecursion::Continue),
        };
        refused = Some(what);
        Ok(TreeNodeRecursion::Stop)
    })?;
    refused.map_or(Ok(()), |what| Err(Error::unsupported(what)))
}
