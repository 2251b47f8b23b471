//! Reading the past: `FROM t FOR SYSTEM_TIME AS OF moment`, blocks in the past, and what can be asked for.
//!
//! A moment is a time (anything that is a timestamp, a date, or a text that is one, without a column), or `TRANSACTION n`, the
//! number of a commit. A time without zone is one of the session's zone. It is computed once, before the query is planned, in the
//! statement's transaction; then the table's name is replaced by one in a schema of that moment ([`crate::schemas`]), whose
//! tables read in a transaction of their own. So one statement may read several moments, and the present.
//!
//! # Invariants
//! - No index and no kept plan is used for the past: indexes have none, and a plan may rely on rules (NOT NULL, UNIQUE) that came
//!   later.
//! - Rows are read through the table's columns of today; but for the key all of them may be NULL.

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array, StringArray, TimestampNanosecondArray};
use datafusion::arrow::compute::kernels::cast_utils::parse_interval_month_day_nano;
use datafusion::arrow::datatypes::{DataType as ArrowType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::{Result as EngineResult, ScalarValue};
use datafusion::dataframe::DataFrame;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{ColumnarValue, Volatility, create_udf};
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::Statement as EngineStatement;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, ObjectName, Query, SelectItem, SetExpr, Statement, TableAlias, TableFactor, TableVersion,
    Value as Literal, VisitorMut,
};

use crate::walk::walk_mut;
use entresol_tables::{Catalog, Kept};
use entresol_transactions::Timestamp;

use crate::cut::{self, Part};
use crate::dialect::TRANSACTION;
use crate::engine::query_statement;
use crate::error::{Error, Result};
use crate::provider::Current;
use crate::schemas::{CATALOG, past_schema};
use crate::statement::{query_of, template};
use crate::syntax::table_name;

/// Seconds of a day, and days of a month where an interval has some: as PostgreSQL counts them.
const DAY_SECONDS: i128 = 86_400;
const MONTH_DAYS: i128 = 30;

/// The columns that rows of the past have: the same, but rules may be younger than rows.
pub(crate) fn nullable(schema: &SchemaRef, key: &[usize]) -> SchemaRef {
    let fields = schema.fields().iter().enumerate();
    let fields: Vec<Field> = fields
        .map(|(at, field)| field.as_ref().clone().with_nullable(field.is_nullable() || !key.contains(&at)))
        .collect();
    Arc::new(Schema::new(fields))
}

/// Does a statement ask for the past of a table?
pub(crate) fn is_asked(statement: &EngineStatement) -> bool {
    !moments_of(&mut statement.clone(), |_| None).is_empty()
}

/// The statement as if it asked for the present: its columns are the same.
pub(crate) fn without(statement: &mut EngineStatement) {
    moments_of(statement, |table| {
        present(table);
        None
    });
}

fn present(table: &mut TableFactor) {
    if let TableFactor::Table { version, .. } = table {
        *version = None;
    }
}

/// Computes the moments that a statement asks for, and puts tables of those moments in the place of its tables.
pub(crate) async fn resolve(
    state: &SessionState,
    catalog: &Catalog,
    statement: &mut EngineStatement,
) -> Result<()> {
    let moments = moments_of(statement, |_| None);
    if moments.is_empty() {
        return Ok(());
    }
    let mut computed = Vec::with_capacity(moments.len());
    for moment in moments {
        computed.push(compute(state, &moment?).await?);
    }
    let mut next = computed.into_iter();
    let replaced = moments_of(statement, |table| match next.next() {
        Some(at) => past_table(catalog, table, at).err(),
        None => Some(Error::Internal("a moment was not computed".into())),
    });
    replaced.into_iter().try_for_each(|moment| moment.map(drop))
}

/// The tables with moments, in order: calls `f` with each, which may change it, and returns the moments.
fn moments_of(
    statement: &mut EngineStatement,
    mut f: impl FnMut(&mut TableFactor) -> Option<Error>,
) -> Vec<Result<Expr>> {
    let mut moments = Vec::new();
    let Some(statement) = crate::statement::inner_mut(statement) else { return moments };
    let mut visitor = Moments(|table: &mut TableFactor| {
        let TableFactor::Table { version: Some(version), .. } = table else { return };
        let moment = match version {
            TableVersion::ForSystemTimeAsOf(moment) => Ok(moment.clone()),
            other => Err(Error::unsupported(format!("{other}: write FOR SYSTEM_TIME AS OF"))),
        };
        moments.push(match f(table) {
            Some(error) => Err(error),
            None => moment,
        });
    });
    let _ = walk_mut(statement, &mut visitor);
    moments
}

struct Moments<F>(F);

impl<F: FnMut(&mut TableFactor)> VisitorMut for Moments<F> {
    type Break = ();

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
        (self.0)(table);
        ControlFlow::Continue(())
    }
}

/// Replaces a table by that of a moment.
fn past_table(catalog: &Catalog, table: &mut TableFactor, at: Timestamp) -> Result<()> {
    present(table);
    let TableFactor::Table { name, alias, .. } = table else {
        return Err(Error::Internal("only tables have a past".into()));
    };
    let own = table_name(name)
        .map_err(|_| Error::unsupported(format!("FOR SYSTEM_TIME of {name}: only tables have a past")))?;
    // Who is not there is reported under its own name.
    catalog.table(&own)?;
    let quoted = |name: &str| Ident::with_quote('"', name);
    *name = ObjectName::from(vec![quoted(CATALOG), quoted(&past_schema(at)), quoted(&own)]);
    alias.get_or_insert_with(|| TableAlias {
        explicit: true,
        name: quoted(&own),
        columns: Vec::new(),
        at: None,
    });
    Ok(())
}

/// The timestamp that a moment stands for.
pub(crate) async fn compute(state: &SessionState, moment: &Expr) -> Result<Timestamp> {
    if let Expr::Prefixed { prefix, value } = moment
        && prefix.value.eq_ignore_ascii_case(TRANSACTION)
    {
        let number = match value.as_ref() {
            Expr::Value(value) => match &value.value {
                Literal::Number(number, _) => number.to_string().parse().ok(),
                _ => None,
            },
            // The value of a parameter.
            Expr::Nested(inner) => inner.to_string().parse().ok(),
            _ => None,
        };
        return number.ok_or_else(|| Error::coded("22023", format!("{value} is not the number of a commit")));
    }
    let mut query: Query = template()?;
    let SetExpr::Select(select) = query.body.as_mut() else {
        return Err(Error::Internal("the template of queries is none".into()));
    };
    select.from.clear();
    select.projection = vec![SelectItem::UnnamedExpr(moment.clone())];
    let plan = state.statement_to_plan(query_statement(Box::new(query))).await?;
    let batches = DataFrame::new(state.clone(), plan).collect().await?;
    let batch = batches.iter().find(|batch| batch.num_rows() == 1);
    let column = batch.filter(|batch| batch.num_columns() == 1).map(|batch| batch.column(0));
    let column = column.ok_or_else(|| Error::coded("22023", format!("AS OF {moment} is not one moment")))?;
    let value = ScalarValue::try_from_array(column, 0)?;
    if value.is_null() {
        return Err(Error::coded("22004", format!("AS OF {moment} is NULL")));
    }
    let is_time =
        matches!(value.data_type(), ArrowType::Timestamp(..) | ArrowType::Date32 | ArrowType::Date64);
    if !is_time && !value.data_type().is_string() {
        let found = value.data_type();
        let message =
            format!("AS OF {moment} is no time but {found}; the number of a commit is TRANSACTION n");
        return Err(Error::coded("42804", message));
    }
    let zone = state.config_options().execution.time_zone.clone().unwrap_or_else(|| "+00:00".to_owned());
    // A time without zone is one of the session's.
    let zoned = ArrowType::Timestamp(TimeUnit::Nanosecond, Some(zone.into()));
    match value.cast_to(&zoned) {
        Ok(ScalarValue::TimestampNanosecond(Some(nanos), _)) => {
            u64::try_from(nanos).map_err(|_| Error::coded("22008", format!("AS OF {moment}: before 1970")))
        }
        _ => Err(Error::coded("22007", format!("AS OF {moment}: {value} is no time"))),
    }
}

/// The value of the parameter `history`; None: no history.
pub(crate) fn kept_of(text: &str) -> Result<Option<Kept>> {
    match text.to_ascii_lowercase().as_str() {
        "off" | "none" | "false" => return Ok(None),
        "forever" => return Ok(Some(Kept::Forever)),
        _ => {}
    }
    let wrong = || {
        let message = format!("invalid value for parameter \"history\": \"{text}\"");
        Error::coded("22023", format!("{message}; a time like '7 days', or forever, or off"))
    };
    let parsed = parse_interval_month_day_nano(text).map_err(|_| wrong())?;
    let days = i128::from(parsed.months) * MONTH_DAYS + i128::from(parsed.days);
    let nanos = days * DAY_SECONDS * 1_000_000_000 + i128::from(parsed.nanoseconds);
    match u64::try_from(nanos) {
        Ok(nanos) if nanos > 0 => Ok(Some(Kept::For(std::time::Duration::from_nanos(nanos)))),
        _ => Err(wrong()),
    }
}

/// The functions of this module: `entresol_current_commit()`, the moment that the statement sees.
pub(crate) fn register(context: &SessionContext, catalog: &Arc<Catalog>, current: &Arc<Current>) {
    let (catalog, current) = (Arc::clone(catalog), Arc::clone(current));
    let call = move |_: &[ColumnarValue]| -> EngineResult<ColumnarValue> {
        let transaction = current.get(&catalog)?;
        let seen = transaction.as_of().unwrap_or(transaction.snapshot());
        Ok(ColumnarValue::Scalar(ScalarValue::Int64(i64::try_from(seen).ok())))
    };
    let name = "entresol_current_commit";
    context.register_udf(create_udf(name, Vec::new(), ArrowType::Int64, Volatility::Stable, Arc::new(call)));
}

/// The content of `entresol.history`: the tables that keep one, for how long, and from when on they can be read.
pub(crate) fn bounds(catalog: &Catalog) -> EngineResult<RecordBatch> {
    let tables = catalog.tables();
    let known: Vec<_> = tables.iter().filter_map(|table| Some((table.name(), table.past()?))).collect();
    let kept =
        |time: Option<std::time::Duration>| time.map_or("forever".to_owned(), |time| format!("{time:?}"));
    let number = |at: Timestamp| i64::try_from(at).unwrap_or(i64::MAX);
    let horizons: TimestampNanosecondArray =
        known.iter().map(|(_, past)| Some(number(past.horizon))).collect();
    let columns: [(&str, ArrayRef); 4] = [
        ("table", Arc::new(StringArray::from_iter_values(known.iter().map(|(name, _)| name)))),
        ("kept", Arc::new(StringArray::from_iter_values(known.iter().map(|(_, past)| kept(past.kept))))),
        ("readable_from", Arc::new(horizons.with_timezone("+00:00"))),
        (
            "readable_from_transaction",
            Arc::new(Int64Array::from_iter_values(known.iter().map(|(_, past)| number(past.horizon)))),
        ),
    ];
    Ok(RecordBatch::try_from_iter(columns)?)
}

/// The query that computes the moment of a `BEGIN AS OF` or `SET TRANSACTION AS OF`, for those who ask what it reads;
/// `None` for all other statements.
pub fn moment_query(sql: &str) -> Result<Option<EngineStatement>> {
    let parts = cut::cut(sql)?.unwrap_or_default();
    let moment = parts.iter().find_map(|part| match part {
        Part::BeginAsOf(moment) | Part::SetAsOf(moment) => Some(moment),
        _ => None,
    });
    moment.map(|moment| query_computing(moment)).transpose()
}

fn query_computing(moment: &str) -> Result<EngineStatement> {
    query_of(&format!("SELECT {moment}\n/* system_time */"))
}

/// The moment behind AS OF in a statement on transactions, from its text.
pub(crate) fn moment_in(sql: &str) -> Result<Expr> {
    let parsed = query_computing(sql)?;
    let only = || Error::Syntax(format!("syntax error: AS OF {sql}: one moment"));
    let EngineStatement::Statement(statement) = parsed else { return Err(only()) };
    let Statement::Query(query) = *statement else { return Err(only()) };
    let SetExpr::Select(select) = *query.body else { return Err(only()) };
    match <[SelectItem; 1]>::try_from(select.projection) {
        Ok([SelectItem::UnnamedExpr(moment)]) if select.from.is_empty() && select.selection.is_none() => {
            Ok(moment)
        }
        _ => Err(only()),
    }
}
