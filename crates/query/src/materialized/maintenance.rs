//! Maintenance of materialized views: the difference between what they hold and what their queries give.

use super::GUARDS_TABLE;
use super::deferred;
use super::incremental::IncrementalView;
use super::keys::key_columns;
use crate::dml::assignment;
use crate::error::{Error, Result};
use crate::planner::query;
use crate::planner::scans::provider::EntresolTable;
use crate::schema_names::{CATALOG, KEYED_SCHEMA};
use crate::session::core::SessionCore;
use crate::session::materialized::{
    MaintainedView, MaintainsRows, MaintenanceRequest, MaintenanceWork, Worker, maintained_by, query_view,
    state_table,
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
use entresol_transactions::{Timestamp, Transaction};
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
/// Attempts to begin a transaction that sees all commits up to the last that it sees.
const ATTEMPTS_OF_SNAPSHOTS_MAX: u32 = 1000;
/// Values of a column from which on the whole view is computed.
const VALUES_MAX: usize = 2000;

/// View whose query is planned.
pub(crate) struct PlannedView {
    pub(crate) name: String,
    /// As those of [`MaintainedView`].
    pub(crate) tables: Vec<(String, Vec<(usize, String)>)>,
    pub(crate) incremental: Option<IncrementalView>,
    /// True if it is refreshed behind the commits.
    pub(crate) is_deferred: bool,
}

/// Columns of a view, each with values.
type KeyValues = Vec<(usize, Vec<Value>)>;

/// Rows of a view that may change.
enum AffectedRows {
    All,
    /// Rows with one of the values in each of these columns.
    Keys(KeyValues),
    /// Rows with one of the values in each column of one of these.
    Any(Vec<KeyValues>),
}

/// Starts the maintenance of the views that a database has: on a thread of its own with this session, and the refreshes
/// behind the commits on another, with a session that is opened for the first of them.
pub(crate) async fn start(
    session: SessionCore,
    refreshing: impl FnOnce() -> SessionCore + Send + 'static,
) -> Result<()> {
    let views = session.options.materialized.clone();
    let mut stored: Vec<Arc<Table>> =
        session.catalog.tables().into_iter().filter(|table| maintained_by(table).is_some()).collect();
    // A view is created behind those that it reads.
    stored.sort_by_key(|table| table.state().id());
    for table in stored {
        if let Err(error) = resume(&session, table.name()).await {
            tracing::error!(view = table.name(), %error, "a materialized view is not maintained");
        }
    }
    let context = Arc::clone(session.catalog.context());
    let catalog = Arc::clone(&session.catalog);
    let maintenance = worker("entresol views", move || session)?;
    views.serve(catalog, maintenance, worker("entresol refresh", refreshing)?);
    context.set_before_commit(Arc::new(views));
    Ok(())
}

/// Thread that does work for views, with a session that is opened for the first.
fn worker(name: &str, session: impl FnOnce() -> SessionCore + Send + 'static) -> Result<Worker> {
    let failed = |error| Error::coded("58030", format!("materialized views: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let (sender, requests) = mpsc::channel();
    let work = move || {
        // None: it is stopped before there is work.
        if let Ok(first) = requests.recv() {
            serve(&session(), std::iter::once(first).chain(requests), &runtime);
        }
    };
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work).map_err(failed)?;
    Ok(Worker { requests: sender, thread })
}

/// Maintains a view from now on; fills it if it was not filled, or reads tables that are empty again.
async fn resume(session: &SessionCore, name: &str) -> Result<()> {
    let (mut view, _) = planned(session, name).await?;
    if session.catalog.table(&state_table(name)).is_err() {
        // It was created by a version that had no state.
        view.incremental = None;
    }
    let is_volatile =
        |(read, _): &(String, _)| session.catalog.table(read).is_ok_and(|read| read.state().is_volatile());
    let reads_volatile = view.tables.iter().any(is_volatile);
    if let Some(as_of) = deferred::as_of(&session.catalog, &*session.catalog.begin()?, name)? {
        (view.incremental, view.is_deferred) = (None, true);
        watch(session, view)?;
        return if as_of == Timestamp::START || reads_volatile {
            compute_anew(session, name).await
        } else {
            Ok(())
        };
    }
    let is_filled = match session.catalog.table(GUARDS_TABLE) {
        Ok(guards) => {
            let mark = guard_row(name, FILLED);
            guards.get(&*session.catalog.begin()?, &guards.key_of(&mark))?.is_some()
        }
        Err(_) => false,
    };
    watch(session, view)?;
    if is_filled && !reads_volatile { Ok(()) } else { fill(session, name).await }
}

fn serve(
    session: &SessionCore,
    requests: impl Iterator<Item = MaintenanceRequest>,
    runtime: &tokio::runtime::Runtime,
) {
    for request in requests {
        let work = async {
            match &request.work {
                MaintenanceWork::Maintain(transaction, first) => maintain(session, transaction, *first).await,
                MaintenanceWork::Watch(name) => watch_new(session, name).await,
                MaintenanceWork::Fill(name) => fill(session, name).await,
                MaintenanceWork::CatchUp(name) => catch_up(session, name).await,
            }
        };
        let done = runtime.block_on(AssertUnwindSafe(work).catch_unwind());
        let panicked = || Error::Internal("the maintenance of a materialized view panicked".to_owned());
        let done = done.unwrap_or_else(|_| Err(panicked()));
        // A caller that is gone needs no answer.
        let _ = request.reply.send(done);
    }
}

/// Makes writers of the tables of a new view maintain it from now on. It is planned in this session, in UTC, as it will be when the
/// database is opened again.
async fn watch_new(session: &SessionCore, name: &str) -> Result<()> {
    let (mut view, _) = planned(session, name).await?;
    if session.catalog.table(&state_table(name)).is_err() {
        view.incremental = None;
    }
    watch(session, view)
}

/// Makes writers of the tables of a view maintain it from now on, if it is not refreshed behind them.
fn watch(session: &SessionCore, view: PlannedView) -> Result<()> {
    for (table, _) in view.tables.iter().filter(|_| !view.is_deferred) {
        session.catalog.context().watch(session.catalog.table(table)?.state());
    }
    session.options.materialized.add(view.maintained());
    Ok(())
}

impl PlannedView {
    /// View as the sessions know it.
    pub(crate) fn maintained(self) -> MaintainedView {
        let PlannedView { name, tables, incremental, is_deferred } = self;
        let incremental = incremental.map(|incremental| Arc::new(incremental) as Arc<dyn MaintainsRows>);
        MaintainedView { name, tables, incremental, is_deferred }
    }
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
    let incremental = IncrementalView::new(&session.catalog, name, &state, &plan);
    Ok((PlannedView { name: name.to_owned(), tables, incremental, is_deferred: false }, schema))
}

/// Refuses queries whose rows depend on more than tables.
fn check(plan: &LogicalPlan) -> Result<()> {
    let mut refused = None;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::RecursiveQuery(query) = node {
            let name = &query.name;
            refused.get_or_insert_with(|| {
                format!("WITH RECURSIVE {name} in a materialized view: a change may add and remove rows at any depth")
            });
        }
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
        if view.is_deferred || session.catalog.table(&view.name).is_err() {
            // Behind the commits, or it is being dropped.
            continue;
        }
        if let Some(incremental) = &view.incremental {
            incremental.maintain(transaction)?;
            continue;
        }
        let mut affected: Option<AffectedRows> = None;
        let has_guards = has_guards(view);
        for (name, columns) in &view.tables {
            let table = session.catalog.table(name)?;
            let changed = table.changed_rows(transaction)?;
            if changed.is_empty() {
                continue;
            }
            affected = Some(match affected {
                // Rows of several tables: what depends on the one may not depend on the other.
                Some(_) => AffectedRows::All,
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
) -> Result<AffectedRows> {
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
    Ok(if keys.is_empty() { AffectedRows::All } else { AffectedRows::Keys(keys) })
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
/// maintain it and commit meanwhile may win.
async fn fill(session: &SessionCore, name: &str) -> Result<()> {
    for attempt in 1.. {
        let transaction = session.catalog.begin()?;
        let stored = {
            let _bound = session.bind(&transaction);
            write_guards(&session.catalog, &transaction, name, (0..GUARDS).chain([FILLED]).collect())?;
            let view = session.options.materialized.all().iter().find(|view| view.name == name).cloned();
            match view.and_then(|view| view.incremental) {
                Some(incremental) => incremental.fill(&transaction),
                None => replace(session, &transaction, name, AffectedRows::All).await.map(drop),
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

/// Computes a view with deferred refresh whatever it has.
async fn compute_anew(session: &SessionCore, name: &str) -> Result<()> {
    let transaction = session.catalog.begin()?;
    deferred::write_as_of(&session.catalog, &transaction, name, Timestamp::START)?;
    transaction.commit_maintained(Durability::Sync)?;
    catch_up(session, name).await
}

/// Refreshes a view with deferred refresh to a snapshot of now.
async fn catch_up(session: &SessionCore, name: &str) -> Result<()> {
    for attempt in 1.. {
        match catch_up_once(session, name).await {
            Ok(true) => return Ok(()),
            Err(error) if !error.is_conflict() || attempt >= ATTEMPTS_MAX => return Err(error),
            // Commits became visible out of their order, or another wrote the view's row.
            _ if attempt < ATTEMPTS_OF_SNAPSHOTS_MAX => std::thread::sleep(ATTEMPT_WAIT),
            _ => return Err(no_snapshot(name)),
        }
    }
    Ok(())
}

/// Refusal of a refresh beside commits that become visible out of their order without a pause.
fn no_snapshot(name: &str) -> Error {
    Error::coded(
        "40001",
        format!(
            "materialized view {name}: no snapshot of all commits up to one in {ATTEMPTS_OF_SNAPSHOTS_MAX} attempts"
        ),
    )
}

/// Refreshes a view in one transaction; false if its snapshot has commits without all that are before them.
async fn catch_up_once(session: &SessionCore, name: &str) -> Result<bool> {
    let view = session.options.materialized.all().iter().find(|view| view.name == name).cloned();
    let catalog = &session.catalog;
    let all_up_to = catalog.context().visible_up_to();
    let transaction = catalog.begin()?;
    let Some(view) = view else { return Ok(true) };
    let Some(before) = deferred::as_of(catalog, &transaction, name)? else { return Ok(true) };
    let Some(as_of) = deferred::snapshot_of(catalog, &transaction, &view, all_up_to)? else {
        return Ok(false);
    };
    if let Some(affected) = affected_since(session, &transaction, &view, before)? {
        let _bound = session.bind(&transaction);
        replace(session, &transaction, name, affected).await?;
    }
    deferred::write_as_of(catalog, &transaction, name, as_of)?;
    // Views over it are maintained here, too: its commit must not wait for this thread.
    maintain(session, &transaction, 0).await?;
    transaction.commit_maintained(session.options.durability)?;
    Ok(true)
}

/// Rows of a view that depend on what was committed behind a timestamp; none if nothing was.
fn affected_since(
    session: &SessionCore,
    transaction: &Transaction,
    view: &MaintainedView,
    as_of: Timestamp,
) -> Result<Option<AffectedRows>> {
    if as_of == Timestamp::START {
        return Ok(Some(AffectedRows::All));
    }
    let mut any = Vec::new();
    for (name, columns) in &view.tables {
        let table = session.catalog.table(name)?;
        let Some(changed) = deferred::changed_since(&table, transaction, as_of)? else {
            return Ok(Some(AffectedRows::All));
        };
        if changed.is_empty() {
            continue;
        }
        match affected_by(&table, columns, &changed)? {
            AffectedRows::Keys(keys) => any.push(keys),
            others => return Ok(Some(others)),
        }
    }
    Ok((!any.is_empty()).then_some(AffectedRows::Any(any)))
}

/// Replaces the affected rows of a view by those that its query gives. Returns the number of rows that were
/// written or deleted.
async fn replace(
    session: &SessionCore,
    transaction: &Arc<Transaction>,
    name: &str,
    affected: AffectedRows,
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
fn condition(session: &SessionCore, table: &Table, affected: &AffectedRows) -> Result<Option<Expr>> {
    let any = match affected {
        AffectedRows::All => return Ok(None),
        AffectedRows::Keys(keys) => std::slice::from_ref(keys),
        AffectedRows::Any(any) => any.as_slice(),
    };
    let conditions = any.iter().map(|keys| key_condition(session, table, keys));
    let conditions: Option<Vec<Expr>> = conditions.collect::<Result<_>>()?;
    Ok(conditions.and_then(|conditions| conditions.into_iter().reduce(Expr::or)))
}

/// Condition on key columns of a view; none if they have no values.
fn key_condition(session: &SessionCore, table: &Table, keys: &KeyValues) -> Result<Option<Expr>> {
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
