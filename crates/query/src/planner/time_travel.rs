//! Time travel: `FROM t FOR SYSTEM_TIME AS OF time`, blocks AS OF, and the readable range of tables.
//!
//! A point in time is a time (anything that is a timestamp, a date, or a text that is one, without a column), or
//! `TRANSACTION n`, the number of a commit. A time without zone is one of the session's zone. It is computed
//! once, before the query is planned, in the statement's transaction; then the table's name is replaced by
//! one in a schema as of that point ([`crate::planner::schemas`]), whose tables read in a transaction of their
//! own. So one statement may read several points in time, and the present.
//!
//! # Invariants
//! - Time travel uses no index and no cached plan: indexes have no version history, and a plan may rely on
//!   rules (NOT NULL, UNIQUE) that came later.
//! - Rows are read through the current columns of the table; all of them but the key may be NULL.

use crate::error::{Error, Result};
use crate::parser::names::table_name;
use crate::parser::statement::query_statement;
use crate::parser::statement::template;
use crate::parser::system_time::TRANSACTION;
use crate::parser::visit::walk_mut;
use crate::planner::schemas::as_of_schema;
use crate::schema_names::CATALOG;
use crate::session::current::Current;
use datafusion::arrow::datatypes::{DataType as ArrowType, TimeUnit};
use datafusion::common::{Result as DFResult, ScalarValue};
use datafusion::dataframe::DataFrame;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{ColumnarValue, Volatility, create_udf};
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::Statement as DFStatement;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, ObjectName, Query, SelectItem, SetExpr, TableAlias, TableFactor, TableVersion,
    Value as Literal, VisitorMut,
};
use entresol_tables::Catalog;
use entresol_transactions::Timestamp;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Returns true if a statement has an AS OF clause on a table.
pub(crate) fn has_as_of(statement: &DFStatement) -> bool {
    !points_of(&mut statement.clone(), |_| None).is_empty()
}

/// Removes the AS OF clauses of a statement, which does not change its columns.
pub(crate) fn without(statement: &mut DFStatement) {
    points_of(statement, |table| {
        present(table);
        None
    });
}

fn present(table: &mut TableFactor) {
    if let TableFactor::Table { version, .. } = table {
        *version = None;
    }
}

/// Computes the points in time of a statement, and replaces its tables by those of the snapshot timestamps.
pub(crate) async fn resolve(
    state: &SessionState,
    catalog: &Catalog,
    statement: &mut DFStatement,
) -> Result<()> {
    let points = points_of(statement, |_| None);
    if points.is_empty() {
        return Ok(());
    }
    let mut computed = Vec::with_capacity(points.len());
    for point in points {
        computed.push(compute(state, &point?).await?);
    }
    let mut next = computed.into_iter();
    let replaced = points_of(statement, |table| match next.next() {
        Some(at) => as_of_table(catalog, table, at).err(),
        None => Some(Error::Internal("the point in time of AS OF was not computed".into())),
    });
    replaced.into_iter().try_for_each(|point| point.map(drop))
}

/// AS OF clauses of a statement, in order: calls `f` with each table, which may change it, and returns the
/// points in time.
fn points_of(
    statement: &mut DFStatement,
    mut f: impl FnMut(&mut TableFactor) -> Option<Error>,
) -> Vec<Result<Expr>> {
    let mut points = Vec::new();
    let Some(statement) = crate::parser::statement::inner_mut(statement) else { return points };
    let mut visitor = PointsInTime(|table: &mut TableFactor| {
        let TableFactor::Table { version: Some(version), .. } = table else { return };
        let point = match version {
            TableVersion::ForSystemTimeAsOf(point) => Ok(point.clone()),
            other => Err(Error::unsupported(format!("{other}: write FOR SYSTEM_TIME AS OF"))),
        };
        points.push(match f(table) {
            Some(error) => Err(error),
            None => point,
        });
    });
    let _ = walk_mut(statement, &mut visitor);
    points
}

struct PointsInTime<F>(F);

impl<F: FnMut(&mut TableFactor)> VisitorMut for PointsInTime<F> {
    type Break = ();

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
        (self.0)(table);
        ControlFlow::Continue(())
    }
}

/// Replaces a table by that of a snapshot timestamp.
fn as_of_table(catalog: &Catalog, table: &mut TableFactor, at: Timestamp) -> Result<()> {
    present(table);
    let TableFactor::Table { name, alias, .. } = table else {
        return Err(Error::Internal("only tables have a version history".into()));
    };
    let own = table_name(name).map_err(|_| {
        Error::unsupported(format!("FOR SYSTEM_TIME of {name}: only tables have a version history"))
    })?;
    // An unknown table is reported under its own name.
    catalog.table(&own)?;
    let quoted = |name: &str| Ident::with_quote('"', name);
    *name = ObjectName::from(vec![quoted(CATALOG), quoted(&as_of_schema(at)), quoted(&own)]);
    alias.get_or_insert_with(|| TableAlias {
        explicit: true,
        name: quoted(&own),
        columns: Vec::new(),
        at: None,
    });
    Ok(())
}

/// Snapshot timestamp of a point in time.
pub(crate) async fn compute(state: &SessionState, point: &Expr) -> Result<Timestamp> {
    if let Expr::Prefixed { prefix, value } = point
        && prefix.value.eq_ignore_ascii_case(TRANSACTION)
    {
        let number = match value.as_ref() {
            Expr::Value(value) => match &value.value {
                Literal::Number(number, _) => number.to_string().parse().ok(),
                _ => None,
            },
            // Value of a parameter.
            Expr::Nested(inner) => inner.to_string().parse().ok(),
            _ => None,
        };
        return number.ok_or_else(|| Error::coded("22023", format!("{value} is not the number of a commit")));
    }
    let mut query: Query = template()?;
    let SetExpr::Select(select) = query.body.as_mut() else {
        return Err(Error::Internal("the query template is not a query".into()));
    };
    select.from.clear();
    select.projection = vec![SelectItem::UnnamedExpr(point.clone())];
    let plan = state.statement_to_plan(query_statement(Box::new(query))).await?;
    let batches = DataFrame::new(state.clone(), plan).collect().await?;
    let batch = batches.iter().find(|batch| batch.num_rows() == 1);
    let column = batch.filter(|batch| batch.num_columns() == 1).map(|batch| batch.column(0));
    let column = column
        .ok_or_else(|| Error::coded("22023", format!("AS OF {point} is not a single point in time")))?;
    let value = ScalarValue::try_from_array(column, 0)?;
    if value.is_null() {
        return Err(Error::coded("22004", format!("AS OF {point} is NULL")));
    }
    let is_time =
        matches!(value.data_type(), ArrowType::Timestamp(..) | ArrowType::Date32 | ArrowType::Date64);
    if !is_time && !value.data_type().is_string() {
        let found = value.data_type();
        let message = format!(
            "AS OF {point} is of type {found}, not a timestamp; write TRANSACTION n for the number of a commit"
        );
        return Err(Error::coded("42804", message));
    }
    let zone = state.config_options().execution.time_zone.clone().unwrap_or_else(|| "+00:00".to_owned());
    // A time without zone is local time in the session's zone.
    let zoned = ArrowType::Timestamp(TimeUnit::Nanosecond, Some(zone.into()));
    match value.cast_to(&zoned) {
        Ok(ScalarValue::TimestampNanosecond(Some(nanos), _)) => Timestamp::try_from(nanos)
            .map_err(|_| Error::coded("22008", format!("AS OF {point} is before 1970"))),
        _ => Err(Error::coded("22007", format!("AS OF {point}: {value} is not a timestamp"))),
    }
}

/// The functions of this module: `entresol_current_commit()`, the commit that the statement sees.
pub(crate) fn register(context: &SessionContext, catalog: &Arc<Catalog>, current: &Arc<Current>) {
    let (catalog, current) = (Arc::clone(catalog), Arc::clone(current));
    let call = move |_: &[ColumnarValue]| -> DFResult<ColumnarValue> {
        let transaction = current.get(&catalog)?;
        let seen = transaction.as_of().unwrap_or(transaction.snapshot());
        Ok(ColumnarValue::Scalar(ScalarValue::Int64(Some(seen.bigint()))))
    };
    let name = "entresol_current_commit";
    context.register_udf(create_udf(name, Vec::new(), ArrowType::Int64, Volatility::Stable, Arc::new(call)));
}
