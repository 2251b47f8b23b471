//! Materialized views with deferred refresh: a topology behind the commits reads the change logs of their tables.
//!
//! ```text
//!   CHANGES(table) ─┐                       at the commit of the topology
//!   CHANGES(table) ─┴▶ operator ─▶ thread of the views: log since as_of ─▶ query WHERE key IN (...) ─▶ difference, as_of
//!                                                       └────────── one transaction of its own ──────────┘
//! ```
//! The topology says when there is something to do, and shows how far it is; its own transactions have nothing but the
//! positions of its sources. What a refresh reads of the logs begins at the stored `as_of`, in the transaction that writes
//! rows and the new `as_of`. So each change counts once, also if the topology reads it again after a crash, or never: where
//! changes may have left the log before it read them, it asks for a refresh without.
//!
//! The sources look at the logs in rounds: those of an interval are one refresh, and the next look is an interval behind it.
//!
//! It may be paused: the view stays as it is then, but for REFRESH.
//!
//! # Invariants
//! - The rows are those of the query at the snapshot of all commits up to `as_of`, and of no later one.
//! - Changes that a refresh has not seen are later than `as_of`, and the topology has not committed them.
//!
//! # Cost
//! A refresh runs the query for the keys that changed, of several tables for those of any; the whole query where a table has
//! no key columns ([`super::keys`]), or many rows changed, or the log does not reach back to `as_of`.

use super::POSITIONS_TABLE;
use crate::error::{Error, Result, as_stream_error};
use crate::schema_names::REFRESH_OPTION;
use crate::session::core::SessionCore;
use crate::session::materialized::{GUARDS_OWNER, MaintainedView, MaintenanceWork, MaterializedViews};
use crate::session::topologies::{Topologies, UsedRelations};
use datafusion::sql::sqlparser::ast::SqlOption;
use entresol_memory::Durability;
use entresol_streams::{
    Batch, Boundary, ChangeRounds, ChangesSource, Context, Operator, Output, Stream, Topology,
    TopologyBuilder,
};
use entresol_tables::{
    COMMIT_CTS, Catalog, Column, DataType, Row, Schema, Table, TableDefinition, TableOptions, Value, Verify,
};
use entresol_transactions::{INFINITY, LogPosition, Timestamp, Transaction};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Interval of refreshes for the keys that changed, without an option.
const INTERVAL_OF_KEYS: Duration = Duration::from_millis(100);
/// Interval of refreshes of the whole, without an option.
const INTERVAL_OF_WHOLE: Duration = Duration::from_secs(10);
/// Changes of a topology's transaction at most; more are read in another one.
const CHANGES_PER_REFRESH: usize = 100_000;
/// Changed rows of a table from which on the whole view is computed.
pub(super) const CHANGED_ROWS_MAX: usize = 100_000;
/// Longest wait for commits that are older than the last that a refresh has seen.
const WAIT_FOR_OLDER_MAX: Duration = Duration::from_millis(100);
/// Pause of that wait.
const WAIT_STEP: Duration = Duration::from_micros(200);

/// Refresh of a view that its statement declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeferredRefresh {
    /// Interval, if it is declared.
    pub(crate) interval: Option<Duration>,
}

impl DeferredRefresh {
    /// Takes the options of the refresh from those of a view; none if it is immediate.
    pub(crate) fn take(options: &mut Vec<SqlOption>) -> Result<Option<DeferredRefresh>> {
        let refresh = take_option(options, REFRESH_OPTION)?;
        let interval = take_option(options, "refresh_interval")?;
        let is_deferred = match refresh.as_deref() {
            None | Some("immediate") => false,
            Some("deferred") => true,
            Some(other) => return Err(invalid(REFRESH_OPTION, other)),
        };
        let interval = interval.map(|text| interval_of(&text)).transpose()?;
        if interval.is_some() && !is_deferred {
            return Err(Error::coded(
                "22023",
                "refresh_interval of a materialized view without refresh = 'deferred'",
            ));
        }
        Ok(is_deferred.then_some(DeferredRefresh { interval }))
    }
}

/// Takes an option by its name.
fn take_option(options: &mut Vec<SqlOption>, wanted: &str) -> Result<Option<String>> {
    let is_wanted = |option: &SqlOption| matches!(option, SqlOption::KeyValue { key, .. } if key.value.eq_ignore_ascii_case(wanted));
    let Some(at) = options.iter().position(is_wanted) else { return Ok(None) };
    let option = options.remove(at);
    if options.iter().any(is_wanted) {
        return Err(Error::coded("42601", format!("parameter \"{wanted}\" specified more than once")));
    }
    match option {
        SqlOption::KeyValue { value, .. } => Ok(Some(crate::ddl::table_options::text_of(&value))),
        other => Err(Error::unsupported(format!("{other} in CREATE MATERIALIZED VIEW"))),
    }
}

fn invalid(name: &str, text: &str) -> Error {
    Error::coded("22023", format!("invalid value for option \"{name}\": \"{text}\""))
}

/// Interval of refreshes: from a millisecond to a day.
fn interval_of(text: &str) -> Result<Duration> {
    let refused = || invalid("refresh_interval", text);
    let parsed = datafusion::arrow::compute::kernels::cast_utils::parse_interval_month_day_nano(text);
    let parsed = parsed.map_err(|_| refused())?;
    let nanos = i128::from(parsed.nanoseconds) + i128::from(parsed.days) * 86_400_000_000_000;
    let nanos = u64::try_from(nanos).ok().filter(|nanos| (1_000_000..=86_400_000_000_000).contains(nanos));
    nanos.filter(|_| parsed.months == 0).map(Duration::from_nanos).ok_or_else(refused)
}

/// Snapshot that a view equals its query at, and its refresh.
struct RefreshPosition {
    as_of: Timestamp,
    interval: Duration,
    /// True if its topology is paused.
    is_paused: bool,
}

/// Column that tables of earlier versions lack.
fn paused_column() -> Column {
    Column::new("paused", DataType::Boolean).not_null()
}

/// Opens the table of the positions; makes it if it is missing.
fn positions(catalog: &Catalog) -> Result<Arc<Table>> {
    let columns = vec![
        Column::new("view", DataType::Varchar).not_null(),
        Column::new("as_of", DataType::BigInt).not_null(),
        Column::new("interval_ms", DataType::BigInt).not_null(),
        paused_column(),
    ];
    let width = columns.len();
    let schema = Schema::new(columns, &["view"])?;
    let owner = Some(GUARDS_OWNER.to_owned());
    let definition = TableDefinition { owner, ..TableDefinition::plain(schema) };
    let options = TableOptions { if_not_exists: true, ..TableOptions::default() };
    let table = catalog.create_table_as(POSITIONS_TABLE, definition, options)?;
    if table.schema().columns().len() == width {
        return Ok(table);
    }
    let added = |definition: &mut TableDefinition| {
        let missing = Value::Boolean(false);
        definition.schema = Arc::new(definition.schema.with_column(paused_column(), missing)?);
        definition.defaults.push(None);
        Ok(())
    };
    Ok(catalog.redefine(POSITIONS_TABLE, None::<Verify<'_, entresol_tables::Error>>, added)?)
}

/// Row of a position in a table with so many columns.
fn position_row(name: &str, position: &RefreshPosition, width: usize) -> Row {
    let interval_ms = i64::try_from(position.interval.as_millis()).unwrap_or(i64::MAX);
    let mut row = vec![
        Value::from(name),
        Value::BigInt(position.as_of.bigint()),
        Value::BigInt(interval_ms),
        Value::Boolean(position.is_paused),
    ];
    row.truncate(width);
    row
}

/// Stored position of a view; none if its refresh is immediate.
fn position(catalog: &Catalog, transaction: &Transaction, name: &str) -> Result<Option<RefreshPosition>> {
    let Ok(table) = catalog.table(POSITIONS_TABLE) else { return Ok(None) };
    let row = table.get(transaction, &[Value::from(name)])?;
    match row.as_deref() {
        None => Ok(None),
        Some([_, Value::BigInt(as_of), Value::BigInt(interval_ms), paused @ ..]) => {
            let as_of = Timestamp::from_stored(as_of.cast_unsigned());
            let interval = Duration::from_millis(interval_ms.cast_unsigned());
            let is_paused = paused.first() == Some(&Value::Boolean(true));
            Ok(Some(RefreshPosition { as_of, interval, is_paused }))
        }
        Some(other) => Err(Error::Internal(format!("row {other:?} of {POSITIONS_TABLE}"))),
    }
}

/// Refresh of a view behind the commits, in words; none if it is maintained in them.
pub(super) fn described(catalog: &Catalog, name: &str) -> Result<Option<String>> {
    let Some(refresh) = position(catalog, &*catalog.begin()?, name)? else { return Ok(None) };
    let interval = refresh.interval.as_secs_f64();
    let paused = if refresh.is_paused { ", paused" } else { "" };
    let of = match refresh.as_of {
        Timestamp::START => "no snapshot yet".to_owned(),
        as_of => format!("the snapshot of commit {}", as_of.bigint()),
    };
    Ok(Some(format!("refreshed behind the commits every {interval} s, {of}{paused}")))
}

/// Tells whether a view is refreshed behind the commits.
pub(crate) fn is_deferred(catalog: &Catalog, name: &str) -> Result<bool> {
    Ok(position(catalog, &*catalog.begin()?, name)?.is_some())
}

/// Stores that a view is refreshed behind the commits, and nothing of it is there yet.
pub(super) fn declare(catalog: &Catalog, name: &str, interval: Duration) -> Result<()> {
    let table = positions(catalog)?;
    let transaction = catalog.begin()?;
    let position = RefreshPosition { as_of: Timestamp::START, interval, is_paused: false };
    table.upsert(&transaction, &position_row(name, &position, table.schema().columns().len()))?;
    transaction.commit(Durability::Sync)?;
    Ok(())
}

/// Stores whether the topology of a view is paused. A refresh may write the position at the same time.
pub(crate) fn set_paused(catalog: &Catalog, name: &str, is_paused: bool) -> Result<()> {
    let table = positions(catalog)?;
    loop {
        let transaction = catalog.begin()?;
        let Some(found) = position(catalog, &transaction, name)? else { return Ok(()) };
        let row = position_row(name, &RefreshPosition { is_paused, ..found }, table.schema().columns().len());
        table.upsert(&transaction, &row)?;
        match transaction.commit(Durability::Sync) {
            Err(entresol_transactions::Error::Conflict { .. }) => std::thread::sleep(WAIT_STEP),
            committed => return Ok(committed.map(drop)?),
        }
    }
}

/// Removes the position of a view, in a transaction that removes the view.
pub(super) fn forget(
    catalog: &Catalog,
    transaction: &Transaction,
    name: &str,
) -> entresol_tables::Result<()> {
    match catalog.table(POSITIONS_TABLE) {
        Ok(table) => table.delete_many(transaction, &[vec![Value::from(name)]]).map(drop),
        Err(_) => Ok(()),
    }
}

/// Checks that the tables of a view log their changes; returns the interval of its refreshes.
pub(super) fn check(catalog: &Catalog, view: &MaintainedView, refresh: DeferredRefresh) -> Result<Duration> {
    if view.tables.is_empty() {
        return Err(Error::unsupported(
            "a materialized view WITH (refresh = 'deferred') that reads no table",
        ));
    }
    for (name, _) in &view.tables {
        if catalog.table(name)?.change_log()?.is_none() {
            return Err(Error::coded(
                "55000",
                format!(
                    "materialized view {} WITH (refresh = 'deferred') reads table {name}, which has no change log: ALTER TABLE {name} SET (changes = '1 hour')",
                    view.name
                ),
            ));
        }
    }
    let is_by_keys = view.tables.iter().all(|(_, columns)| !columns.is_empty());
    Ok(refresh.interval.unwrap_or(if is_by_keys { INTERVAL_OF_KEYS } else { INTERVAL_OF_WHOLE }))
}

/// Refresh of a view that a topology asks for.
#[derive(Clone)]
struct RefreshRequest {
    /// Name of the operator, for errors.
    operator: String,
    view: String,
    views: MaterializedViews,
}

impl RefreshRequest {
    /// Lets the view be refreshed, and waits for that while `check` lets it.
    fn ask(&self, check: impl Fn() -> Result<()>) -> entresol_streams::Result<()> {
        let refreshed = self.views.ask(MaintenanceWork::CatchUp(self.view.clone()), check);
        refreshed.map_err(|error| as_stream_error(self.operator.clone(), error))
    }
}

/// Operator that lets a view be refreshed at the commit.
struct RefreshOperator {
    request: RefreshRequest,
    rounds: Arc<ChangeRounds>,
    has_changes: bool,
}

impl Operator for RefreshOperator {
    fn name(&self) -> &str {
        &self.request.operator
    }

    fn batch(&mut self, _: &Context<'_>, batch: &Batch, _: &mut Output) -> entresol_streams::Result<()> {
        if !batch.is_empty() {
            self.has_changes = true;
            self.rounds.hold();
        }
        Ok(())
    }

    fn commit(&mut self, context: &Context<'_>, _: &mut Output) -> entresol_streams::Result<()> {
        if !std::mem::take(&mut self.has_changes) {
            return Ok(());
        }
        let transaction = context.transaction()?;
        let refreshed = self.request.ask(|| Ok(transaction.check_running()?));
        self.rounds.pause();
        refreshed
    }

    fn aborted(&mut self) {
        self.has_changes = false;
        self.rounds.pause();
    }
}

/// Changes of the tables of a view, which are looked at in rounds. A refresh is asked for where they may be missed.
fn changes_of(
    builder: &TopologyBuilder,
    catalog: &Arc<Catalog>,
    view: &MaintainedView,
    (request, rounds): (&RefreshRequest, &Arc<ChangeRounds>),
) -> Result<Stream> {
    let mut all: Option<Stream> = None;
    for (table, _) in &view.tables {
        let request = request.clone();
        let missed = move || request.ask(|| Ok(()));
        let source = ChangesSource::new(catalog, &catalog.table(table)?).in_rounds(rounds, missed);
        let changes = builder.source(&format!("CHANGES({table})"), source).select(&[COMMIT_CTS]);
        all = Some(all.map_or(changes.clone(), |all| all.union(&changes)));
    }
    all.ok_or_else(|| Error::Internal(format!("materialized view {} reads no table", view.name)))
}

/// Starts the topology of a view, if it does not run.
pub(crate) fn start(session: &SessionCore, name: &str) -> Result<()> {
    let (catalog, topologies) = (&session.catalog, &session.options.topologies);
    let views = session.options.materialized.clone();
    let view = views.all().iter().find(|view| view.name == name).cloned();
    let (Some(view), Some(position)) = (view, position(catalog, &*catalog.begin()?, name)?) else {
        return Ok(());
    };
    if topologies.is_running(name) {
        return Ok(());
    }
    let tables: Vec<String> = view.tables.iter().map(|(table, _)| table.clone()).collect();
    let all_columns: Vec<(String, Option<String>)> =
        tables.iter().map(|table| (table.clone(), None)).collect();
    let relations = UsedRelations {
        all: tables.clone(),
        columns: all_columns,
        planned: tables.clone(),
        changes: tables,
        written: vec![name.to_owned()],
        ..UsedRelations::default()
    };
    if position.is_paused {
        if !topologies.has(name) {
            topologies.note(name, None, relations);
        }
        return Ok(());
    }
    let builder = Topology::builder(name, catalog)
        .boundary(Boundary::Every(CHANGES_PER_REFRESH))
        .commits_when_idle()
        .durability(session.options.durability);
    let rounds = Arc::new(ChangeRounds::new(position.interval));
    let request = RefreshRequest { operator: format!("refresh of {name}"), view: name.to_owned(), views };
    let all = changes_of(&builder, catalog, &view, (&request, &rounds))?;
    let operator = RefreshOperator { request, rounds, has_changes: false };
    all.apply(all.columns().to_vec(), operator);
    let started = builder.build().and_then(|topology| topologies.start(name, topology, relations));
    started.map_err(|error| Error::coded("22023", error.to_string()))
}

/// Starts the topologies of all views with deferred refresh: for the opening of a database. One that cannot start is
/// shown as failed, with the reason.
pub(crate) fn start_all(session: &SessionCore) {
    for view in session.options.materialized.all().iter().filter(|view| view.is_deferred) {
        if let Err(error) = start(session, &view.name) {
            tracing::error!(view = view.name, %error, "a materialized view is not refreshed");
            let topologies = &session.options.topologies;
            topologies.note(&view.name, Some(error.to_string()), UsedRelations::default());
        }
    }
}

/// Stops the topology of a view, and removes its positions.
pub(super) fn stop(catalog: &Catalog, topologies: &Topologies, name: &str) -> Result<()> {
    topologies.remove(name);
    let removed = entresol_streams::remove_state(catalog, name);
    removed.map_err(|error| Error::coded("22023", error.to_string()))
}

/// Number of logged changes of the tables of a view behind a timestamp that a transaction sees, and the greatest timestamp.
fn seen_behind(
    catalog: &Catalog,
    transaction: &Transaction,
    view: &MaintainedView,
    (from, up_to): (Timestamp, Timestamp),
) -> Result<(u64, Timestamp)> {
    let (mut count, mut newest) = (0, from);
    for (name, _) in &view.tables {
        catalog.table(name)?.logged_changes(transaction, LogPosition::after(from), up_to, |change, _| {
            count += 1;
            newest = newest.max(change.cts);
            true
        })?;
    }
    Ok((count, newest))
}

/// Timestamp of the snapshot of a transaction, as far as the tables of a view go; none if it sees a commit and not all
/// before it. All commits up to `all_up_to` are seen.
pub(super) fn snapshot_of(
    catalog: &Arc<Catalog>,
    transaction: &Transaction,
    view: &MaintainedView,
    all_up_to: Timestamp,
) -> Result<Option<Timestamp>> {
    let (count, newest) = seen_behind(catalog, transaction, view, (all_up_to, INFINITY))?;
    if count == 0 {
        return Ok(Some(all_up_to));
    }
    let begin = Instant::now();
    while catalog.context().visible_up_to() < newest {
        if begin.elapsed() > WAIT_FOR_OLDER_MAX {
            return Ok(None);
        }
        std::thread::sleep(WAIT_STEP);
    }
    // All commits up to the newest are visible now: are there more than were seen?
    let (all, _) = seen_behind(catalog, &*catalog.begin()?, view, (all_up_to, newest))?;
    Ok((all == count).then_some(newest))
}

/// Timestamp of the snapshot that a view equals its query at, as a transaction sees it; none if its refresh is immediate.
pub(super) fn as_of(catalog: &Catalog, transaction: &Transaction, name: &str) -> Result<Option<Timestamp>> {
    Ok(position(catalog, transaction, name)?.map(|position| position.as_of))
}

/// Writes the timestamp of the snapshot that a view is refreshed to.
pub(super) fn write_as_of(
    catalog: &Catalog,
    transaction: &Transaction,
    name: &str,
    as_of: Timestamp,
) -> Result<()> {
    let Some(position) = position(catalog, transaction, name)? else { return Ok(()) };
    let table = catalog.table(POSITIONS_TABLE)?;
    let row = position_row(name, &RefreshPosition { as_of, ..position }, table.schema().columns().len());
    Ok(table.upsert(transaction, &row)?)
}

/// Rows of a table before and after, as far as they are there.
pub(super) type LoggedRows = Vec<(Option<Row>, Option<Row>)>;

/// Changed rows of a table since a timestamp; none if they are too many, or the log does not reach back so far.
pub(super) fn changed_since(
    table: &Table,
    transaction: &Transaction,
    as_of: Timestamp,
) -> Result<Option<LoggedRows>> {
    let mut rows: LoggedRows = Vec::new();
    let read = table.logged_changes(transaction, LogPosition::after(as_of), INFINITY, |change, _| {
        rows.push((change.old.map(|row| row.to_row()), change.new.map(|row| row.to_row())));
        rows.len() <= CHANGED_ROWS_MAX
    });
    match read {
        Ok(_) => Ok((rows.len() <= CHANGED_ROWS_MAX).then_some(rows)),
        Err(error) if is_too_old(&error) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn is_too_old(error: &entresol_tables::Error) -> bool {
    matches!(error, entresol_tables::Error::Transactions(entresol_transactions::Error::SnapshotTooOld { .. }))
}
