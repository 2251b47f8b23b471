//! Maintenance of materialized views: the difference between what they hold and what their queries give.

use super::GUARDS_TABLE;
use super::incremental::IncrementalView;
use super::keys::key_columns;
use crate::dml::assignment;
use crate::error::{Error, Result};
use crate::planner::query;
use crate::planner::scans::provider::EntresolTable;
use crate::schema_names::{CATALOG, KEYED_SCHEMA};
use crate::session::core::SessionCore;
use crate::session::materialized::{
    MaintainedView, MaintainsRows, MaintenanceRequest, MaintenanceWork, held_by, query_view, state_table,
};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, ScalarValue, TableReference};
use datafusion::dataframe::DataFrame;
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::{Expr, LogicalPlan, Volatility, lit};
use datafusion::sql::sqlparser::ast::Ident;
use entresol_memory::Durability;
use entresol_tables::{Catalog, Row, Table, Value, rows_to_batch};
use entresol_transactions::Transaction;
use futures::FutureExt;
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{Hash, Hasher};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Parts of a view's keys that have guards of their own.
pub(super) const GUARDS: u64 = 64;
/// Guard of a view that says that it was filled.
const FILLED: u64 = GUARDS;
/// Attempts to fill a view, and the wait between them.
const ATTEMPTS_MAX: u32 = 64;
const ATTEMPT_WAIT: Duration = Duration::from_millis(2);
/// Values of a column from which on the whole view is computed.
const VALUES_MAX: usize = 2000;

/// View whose query is planned.
pub(crate) struct PlannedView {
    pub(crate) name: String,
    /// As those of [`MaintainedView`].
    pub(crate) tables: Vec<(String, Vec<(usize, String)>)>,
    pub(crate) incremental: Option<IncrementalView>,
}

/// Rows of a view that may change.
enum Affected {
    All,
    /// Rows with one of the values in each of these columns.
    Keys(Vec<(usize, Vec<Value>)>),
}

/// Starts the maintenance of the views that a database has; on a thread of its own, with this session.
pub(crate) async fn start(session: SessionCore) -> Result<()> {
    let views = session.options.materialized.clone();
    let mut stored: Vec<Arc<Table>> =
        session.catalog.tables().into_iter().filter(|table| held_by(table).is_some()).collect();
    // A view is created behind those that it reads.
    stored.sort_by_key(|table| table.state().id());
    for table in stored {
        if let Err(error) = resume(&session, table.name()).await {
            tracing::error!(view = table.name(), %error, "a materialized view is not maintained");
        }
    }
    let (sender, requests) = mpsc::channel();
    let context = Arc::clone(session.catalog.context());
    let catalog = Arc::clone(&session.catalog);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Error::coded("58030", format!("materialized views: {error}")))?;
    let work = move || serve(&session, &requests, &runtime);
    let thread = std::thread::Builder::new().name("entresol views".to_owned()).spawn(work);
    let thread = thread.map_err(|error| Error::coded("58030", format!("materialized views: {error}")))?;
    views.serve(catalog, sender, thread);
    context.set_before_commit(Arc::new(views));
    Ok(())
}

/// Maintains a view from now on; fills it if it was not filled, or reads tables that are empty again.
async fn resume(session: &SessionCore, name: &str) -> Result<()> {
    let (mut view, _) = planned(session, name).await?;
    if session.catalog.table(&state_table(name)).is_err() {
        // It was created by a version that had no state.
        view.incremental = None;
    }
    let is_filled = match session.catalog.table(GUARDS_TABLE) {
        Ok(guards) => {
            let mark = guard_row(name, FILLED);
            guards.get(&*session.catalog.begin()?, &guards.key_of(&mark))?.is_some()
        }
        Err(_) => false,
    };
    let is_volatile =
        |(read, _): &(String, _)| session.catalog.table(read).is_ok_and(|read| read.state().is_volatile());
    let reads_volatile = view.tables.iter().any(is_volatile);
    watch(session, view)?;
    if is_filled && !reads_volatile { Ok(()) } else { fill(session, name).await }
}

fn serve(
    session: &SessionCore,
    requests: &mpsc::Receiver<MaintenanceRequest>,
    runtime: &tokio::runtime::Runtime,
) {
    for request in requests {
        let work = async {
            match &request.work {
                MaintenanceWork::Maintain(transaction, first) => maintain(session, transaction, *first).await,
                MaintenanceWork::Fill(name) => fill(session, name).await,
            }
        };
        let done = runtime.block_on(AssertUnwindSafe(work).catch_unwind());
        let panicked = || Error::Internal("the maintenance of a materialized view panicked".to_owned());
        let done = done.unwrap_or_else(|_| Err(panicked()));
        // A caller that is gone needs no answer.
        let _ = request.reply.send(done);
    }
}

/// Makes writers of the tables of a view maintain it from now on.
pub(crate) fn watch(session: &SessionCore, view: PlannedView) -> Result<()> {
    for (table, _) in &view.tables {
        session.catalog.context().watch(session.catalog.table(table)?.state());
    }
    let PlannedView { name, tables, incremental } = view;
    let incremental = incremental.map(|incremental| Arc::new(incremental) as Arc<dyn MaintainsRows>);
    session.options.materialized.add(MaintainedView { name, tables, incremental });
    Ok(())
}

/// Plans the query of a view: the tables that it reads, its columns that are theirs, and all of its columns.
pub(crate) async fn planned(session: &SessionCore, name: &str) -> Result<(PlannedView, SchemaRef)> {
    let transaction = session.catalog.begin()?;
    let _bound = session.bind(&transaction);
    let frame = computed(session, name).await?;
    check(frame.logical_plan())?;
    let tables = key_columns(frame.logical_plan())?.into_iter().collect();
    let schema = Arc::new(frame.schema().as_arrow().clone());
    let (state, plan) = frame.into_parts();
    let plan = state.analyzer().execute_and_check(plan, state.config_options(), |_, _| {})?;
    let incremental = IncrementalView::new(&session.catalog, name, &state, &plan)?;
    Ok((PlannedView { name: name.to_owned(), tables, incremental }, schema))
}

/// Refuses queries whose rows depend on more than tables.
fn check(plan: &LogicalPlan) -> Result<()> {
    let mut refused = None;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            let is_table = source_as_provider(&scan.source)?.downcast_ref::<EntresolTable>().is_some();
            if !is_table {
                refused.get_or_insert_with(|| format!("{} in a materialized view", scan.table_name.table()));
            }
        }
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                if let Expr::ScalarFunction(call) = expr
                    && call.func.signature().volatility != Volatility::Immutable
                {
                    let name = call.func.name();
                    refused.get_or_insert_with(|| {
                        format!("{name} in a materialized view: it has another value later")
                    });
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    refused.map_or(Ok(()), |refused| Err(Error::unsupported(refused)))
}

/// Rows of the query of a view.
async fn computed(session: &SessionCore, name: &str) -> Result<DataFrame> {
    let quoted = Ident::with_quote('"', query_view(name));
    let statement = crate::parser::statement::query_of(&format!("SELECT * FROM {quoted}"))?;
    query::plan_query(session, statement).await
}

/// Maintains the views from a number on that depend on what a transaction has written, in it.
async fn maintain(session: &SessionCore, transaction: &Arc<Transaction>, first: usize) -> Result<()> {
    let _bound = session.bind(transaction);
    for view in session.options.materialized.all().iter().skip(first) {
        if session.catalog.table(&view.name).is_err() {
            // It is being dropped.
            continue;
        }
        if let Some(incremental) = &view.incremental {
            incremental.maintain(transaction)?;
            continue;
        }
        let mut affected: Option<Affected> = None;
        let has_guards = has_guards(view);
        for (name, columns) in &view.tables {
            let table = session.catalog.table(name)?;
            let changed = table.changed_rows(transaction)?;
            if changed.is_empty() {
                continue;
            }
            affected = Some(match affected {
                // Rows of several tables: what depends on the one may not depend on the other.
                Some(_) => Affected::All,
                None => affected_by(&table, columns, &changed)?,
            });
            guard(session, transaction, view, has_guards.then_some((&*table, columns)), &changed)?;
        }
        if let Some(affected) = affected {
            replace(session, transaction, &view.name, affected).await?;
        }
    }
    Ok(())
}

/// Returns true if guards of parts suffice: all changes of a row of the view have the same key columns.
fn has_guards(view: &MaintainedView) -> bool {
    matches!(view.tables.as_slice(), [(_, columns)] if !columns.is_empty())
}

/// Rows of a view that depend on changed rows of a table.
fn affected_by(
    table: &Table,
    columns: &[(usize, String)],
    changed: &[(Option<Row>, Option<Row>)],
) -> Result<Affected> {
    let mut keys = Vec::new();
    for (place, column) in columns {
        let at = column_of(table, column)?;
        let rows = changed.iter().flat_map(|(old, new)| old.iter().chain(new));
        let mut values: BTreeMap<String, Value> = BTreeMap::new();
        for row in rows {
            values.entry(format!("{:?}", row[at])).or_insert_with(|| row[at].clone());
            if values.len() > VALUES_MAX {
                break;
            }
        }
        if values.len() <= VALUES_MAX {
            keys.push((*place, values.into_values().collect()));
        }
    }
    Ok(if keys.is_empty() { Affected::All } else { Affected::Keys(keys) })
}

fn column_of(table: &Table, column: &str) -> Result<usize> {
    let found = table.schema().columns().iter().position(|known| known.name == column);
    found.ok_or_else(|| Error::Internal(format!("table {} has no column {column}", table.name())))
}

/// Writes the guards of the rows of a view that may change.
fn guard(
    session: &SessionCore,
    transaction: &Transaction,
    view: &MaintainedView,
    keys: Option<(&Table, &Vec<(usize, String)>)>,
    changed: &[(Option<Row>, Option<Row>)],
) -> Result<()> {
    let mut guards = BTreeSet::new();
    match keys {
        None => {
            guards.insert(0);
        }
        Some((table, columns)) => {
            let places =
                columns.iter().map(|(_, column)| column_of(table, column)).collect::<Result<Vec<_>>>()?;
            for row in changed.iter().flat_map(|(old, new)| old.iter().chain(new)) {
                let mut hasher = DefaultHasher::new();
                places.iter().for_each(|&place| format!("{:?}", row[place]).hash(&mut hasher));
                guards.insert(hasher.finish() % GUARDS);
            }
        }
    }
    write_guards(&session.catalog, transaction, &view.name, guards)
}

/// Row of a guard.
fn guard_row(name: &str, guard: u64) -> Row {
    vec![Value::from(name), Value::BigInt(guard as i64)]
}

/// Writes guards of a view.
pub(super) fn write_guards(
    catalog: &Catalog,
    transaction: &Transaction,
    name: &str,
    guards: BTreeSet<u64>,
) -> Result<()> {
    let table = catalog.table(GUARDS_TABLE)?;
    let rows: Vec<Row> = guards.into_iter().map(|guard| guard_row(name, guard)).collect();
    Ok(table.upsert_many(transaction, &rows)?)
}

/// Stores the rows of a view that its query gives now, in a transaction with all of its guards. Others that
/// maintain it come before or behind on this thread; one that has, and commits meanwhile, may win.
async fn fill(session: &SessionCore, name: &str) -> Result<()> {
    for attempt in 1.. {
        let transaction = session.catalog.begin()?;
        let stored = {
            let _bound = session.bind(&transaction);
            write_guards(&session.catalog, &transaction, name, (0..GUARDS).chain([FILLED]).collect())?;
            let view = session.options.materialized.all().iter().find(|view| view.name == name).cloned();
            match view.and_then(|view| view.incremental) {
                Some(incremental) => incremental.fill(&transaction),
                None => replace(session, &transaction, name, Affected::All).await.map(drop),
            }
        };
        // Views over it are maintained here, too: its commit must not wait for this thread.
        let maintained = match stored {
            Ok(()) => maintain(session, &transaction, 0).await,
            Err(error) => Err(error),
        };
        let committed =
            maintained.and_then(|()| Ok(transaction.commit_maintained(Durability::Sync).map(drop)?));
        match committed {
            Err(error) if error.is_conflict() && attempt < ATTEMPTS_MAX => {
                tracing::debug!(view = name, %error, attempt, "a materialized view is computed again");
                std::thread::sleep(ATTEMPT_WAIT);
            }
            committed => return committed,
        }
    }
    Ok(())
}

/// Replaces the affected rows of a view by those that its query gives. Returns the number of rows that were
/// written or deleted.
async fn replace(
    session: &SessionCore,
    transaction: &Arc<Transaction>,
    name: &str,
    affected: Affected,
) -> Result<u64> {
    let table = session.catalog.table(name)?;
    let keyed = TableReference::full(CATALOG, KEYED_SCHEMA, name);
    let stored = session.context.table(keyed).await?;
    let computed = computed(session, name).await?;
    let (stored, computed) = match condition(session, &table, &affected)? {
        None => (stored, computed),
        Some(condition) => (stored.filter(condition.clone())?, computed.filter(condition)?),
    };
    let visible = table.schema().visible_columns().len();
    let targets: Vec<usize> = (0..visible).collect();
    let with_key: Vec<usize> = (0..=visible).collect();
    // Rows that are there, by their values: the keys of those that are left are deleted.
    let mut left: HashMap<String, Vec<Row>> = HashMap::new();
    for batch in stored.collect().await? {
        for row in assignment::rows(&table, &with_key, &batch, &session.zone)? {
            left.entry(format!("{:?}", &row[..visible])).or_default().push(row);
        }
    }
    let mut new = Vec::new();
    for batch in computed.collect().await? {
        for row in assignment::rows(&table, &targets, &batch, &session.zone)? {
            match left.get_mut(&format!("{row:?}")) {
                Some(same) if !same.is_empty() => drop(same.pop()),
                _ => new.push(row),
            }
        }
    }
    let gone: Vec<Row> = left.into_values().flatten().map(|row| table.key_of(&row)).collect();
    let written = (gone.len() + new.len()) as u64;
    if !gone.is_empty() {
        table.delete_many(transaction, &gone)?;
    }
    if !new.is_empty() {
        table.insert_many(transaction, &new)?;
    }
    Ok(written)
}

/// Condition on the columns of a view that the affected rows meet; none if all rows do.
fn condition(session: &SessionCore, table: &Table, affected: &Affected) -> Result<Option<Expr>> {
    let Affected::Keys(keys) = affected else { return Ok(None) };
    let mut conditions = Vec::new();
    for (place, values) in keys {
        let column = &table.schema().columns()[*place];
        let expr = Expr::Column(Column::new_unqualified(&column.name));
        let known: Vec<Row> =
            values.iter().filter(|value| !value.is_null()).map(|value| vec![value.clone()]).collect();
        let schema = crate::postgres::types::arrow_schema(std::slice::from_ref(column), session.zone.name());
        let batch = rows_to_batch(&schema, std::slice::from_ref(column), &known)?;
        let literals = (0..known.len())
            .map(|row| Ok(lit(ScalarValue::try_from_array(batch.column(0), row)?)))
            .collect::<Result<Vec<Expr>>>()?;
        let is_known = (!literals.is_empty()).then(|| expr.clone().in_list(literals, false));
        let is_null = (known.len() < values.len()).then(|| expr.is_null());
        conditions.extend(match (is_known, is_null) {
            (Some(known), Some(null)) => Some(known.or(null)),
            (known, null) => known.or(null),
        });
    }
    Ok(conditions.into_iter().reduce(Expr::and))
}
