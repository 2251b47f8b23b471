//! A subscription as a query without an end: the rows of relations, then their changes as they are committed.
//!
//! ```text
//!   snapshot at T ─▶ changes of (T, T'] ─▶ progress T' ─▶ wait ─▶ changes of (T', T''] ─▶ ...
//! ```
//! One relation or a query of it gives `commit_cts`, `change_type` and its columns; several give `commit_cts`, `relation`,
//! `change_type` and `row`, a JSON object. `change_type` is `snapshot`, `insert`, `update`, `delete` or
//! `progress`; a deleted row is shown as it was.
//!
//! # Invariants
//! - Rows are in the order of commits, over all relations, and a change comes once.
//! - The snapshot is that of one timestamp: changes that its transaction saw, and that are later, are undone
//!   in it.
//! - No snapshot is held while it waits or its client reads: a client that is slower than the retention of a
//!   log gets "snapshot too old".
//!
//! Memory: a batch for each relation; the snapshot is read in batches, but for changes that were committed while
//! it was taken.

use crate::error::{Error, Result, external};
use crate::parser::own::subscription::{CommitTime, Subscription};
use crate::planner::scans::json_rows::json_rows;
use crate::planner::scans::subscribed_query::SubscribedQuery;
use crate::postgres::time_zones::parse_instant;
use crate::session::snapshots::Sessions;
use crate::session::subscriptions::SubscriptionProgress;
use crate::session::variables::SessionVariables;
use datafusion::arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringArray, new_null_array};
use datafusion::arrow::compute::take;
use datafusion::arrow::datatypes::{DataType as ArrowType, Field, Int64Type, Schema, SchemaRef};
use datafusion::catalog::TableProvider;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use entresol_tables::{
    CHANGE_TYPE, COMMIT_CTS, Catalog, ChangeBatchBuilder, ChangeKind, Cursor, RowChange, ScanRange, Table,
};
use entresol_transactions::{INFINITY, LogPosition, NotedChanges, Timestamp, Transaction};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most changes of a relation that are read at a time.
const BATCH_ROWS: usize = 1024;
/// Longest wait until the query looks whether it is cancelled.
const WAIT_MAX: Duration = Duration::from_millis(100);
/// Wait for a commit that is not visible yet, or an older one.
const WAIT_FOR_OLDER: Duration = Duration::from_micros(500);
/// Interval of progress rows while nothing changes.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
const SNAPSHOT: &str = "snapshot";
const PROGRESS: &str = "progress";

/// Session whose subscription is shown.
#[derive(Debug, Clone)]
pub(crate) struct ShownSubscription {
    pub(crate) sessions: Sessions,
    pub(crate) variables: Arc<SessionVariables>,
}

/// Plans a subscription to these tables, or to a query of one; `zone` is the time zone in which TIMESTAMPTZ is shown.
pub(crate) fn provider(
    catalog: &Arc<Catalog>,
    (tables, query): (Vec<Arc<Table>>, Option<SubscribedQuery>),
    subscription: &Subscription,
    (zone, shown): (&str, ShownSubscription),
) -> Result<Arc<dyn TableProvider>> {
    for table in &tables {
        table.change_log()?.ok_or_else(|| {
            let table = table.name().to_owned();
            Error::from(entresol_tables::Error::NoChangeLog { table })
        })?;
    }
    let schema = match &query {
        Some(query) => schema_behind(query.columns.fields().iter().map(|field| field.as_ref().clone())),
        None => schema_of(&tables, subscription.is_list, zone),
    };
    let changes = SubscribedChanges {
        catalog: Arc::clone(catalog),
        tables,
        query: query.map(Arc::new),
        subscription: Subscription {
            after: subscription.after.as_ref().map(|time| in_zone(time, zone)).transpose()?,
            up_to: subscription.up_to.as_ref().map(|time| in_zone(time, zone)).transpose()?,
            ..subscription.clone()
        },
        shown,
        zone: zone.to_owned(),
        schema: Arc::clone(&schema),
    };
    let table = StreamingTable::try_new(schema, vec![Arc::new(changes)])?;
    Ok(Arc::new(table.with_infinite_table(true)))
}

/// Time of a subscription without a string, which is in a time zone if it names none.
fn in_zone(time: &CommitTime, zone: &str) -> Result<CommitTime> {
    let CommitTime::Quoted(quoted) = time else { return Ok(time.clone()) };
    let nanos = parse_instant(quoted, zone).and_then(|micros| micros.checked_mul(1000));
    let nanos = nanos.ok_or_else(|| {
        Error::coded("22007", format!("SUBSCRIBE: \"{quoted}\" is not the time of a commit"))
    })?;
    Timestamp::try_from(nanos)
        .map(CommitTime::Commit)
        .map_err(|_| Error::coded("22008", format!("SUBSCRIBE: \"{quoted}\" is before 1970")))
}

fn schema_of(tables: &[Arc<Table>], is_list: bool, zone: &str) -> SchemaRef {
    if is_list {
        return Arc::new(Schema::new(vec![
            Field::new(COMMIT_CTS, ArrowType::Int64, false),
            Field::new("relation", ArrowType::Utf8, true),
            Field::new(CHANGE_TYPE, ArrowType::Utf8, false),
            Field::new("row", ArrowType::Utf8, true),
        ]));
    }
    let columns = tables.iter().flat_map(|table| {
        let builder = ChangeBatchBuilder::new(table, zone);
        let visible = table.schema().visible_columns().len();
        builder.schema().fields()[..visible].to_vec()
    });
    schema_behind(columns.map(|field| field.as_ref().clone().with_nullable(true)))
}

/// Columns of changes of rows with these columns.
fn schema_behind(columns: impl Iterator<Item = Field>) -> SchemaRef {
    let first =
        [Field::new(COMMIT_CTS, ArrowType::Int64, false), Field::new(CHANGE_TYPE, ArrowType::Utf8, false)];
    Arc::new(Schema::new(first.into_iter().chain(columns).collect::<Vec<_>>()))
}

#[derive(Debug, Clone)]
struct SubscribedChanges {
    catalog: Arc<Catalog>,
    tables: Vec<Arc<Table>>,
    /// Query of the one table, if it is subscribed to.
    query: Option<Arc<SubscribedQuery>>,
    subscription: Subscription,
    shown: ShownSubscription,
    zone: String,
    schema: SchemaRef,
}

impl PartitionStream for SubscribedChanges {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        // It begins now, not when its first row is read.
        let feed = SubscriptionFeed::begin(self.clone());
        let batches = futures::stream::try_unfold(feed, |feed| async move {
            let mut feed = feed.map_err(external)?;
            let batch = feed.next().await.map_err(external)?;
            Ok::<_, DataFusionError>(batch.map(|batch| (batch, Ok(feed))))
        });
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), batches))
    }
}

/// Changes of a relation that were read and not sent yet.
struct Relation {
    table: Arc<Table>,
    position: LogPosition,
    batch: Option<RecordBatch>,
    /// Rows of the batch that were sent.
    sent: usize,
}

/// Phase of a subscription.
enum Phase {
    Snapshot(Box<SnapshotRows>),
    Changes,
    End,
}

/// Rows that were there when a subscription began.
struct SnapshotRows {
    transaction: Arc<Transaction>,
    relation: usize,
    cursor: Option<Cursor>,
    /// Rows of keys that changed after the snapshot's timestamp, as they were before, by relation.
    undone: Vec<BTreeMap<Vec<u8>, Option<RecordBatch>>>,
}

struct SubscriptionFeed {
    source: SubscribedChanges,
    relations: Vec<Relation>,
    phase: Phase,
    /// Timestamp up to which changes may be sent: those of all relations are visible.
    up_to: Timestamp,
    /// Timestamp at which it ends.
    end: Option<Timestamp>,
    /// Commits that were known to be visible then.
    noted: NotedChanges,
    /// Timestamp of the last progress row, and when it was sent.
    progress: (Timestamp, Instant),
    /// True if changes were sent since.
    is_behind: bool,
    shown: Arc<SubscriptionProgress>,
}

impl SubscriptionFeed {
    /// Takes the snapshot, or begins where the statement says.
    fn begin(source: SubscribedChanges) -> Result<SubscriptionFeed> {
        let visible = source.catalog.context().visible_up_to();
        let timestamp_of = |time: &CommitTime| match time {
            CommitTime::Commit(timestamp) => *timestamp,
            CommitTime::Now | CommitTime::Quoted(_) => visible,
        };
        let after = source.subscription.after.as_ref().map(timestamp_of);
        let end = source.subscription.up_to.as_ref().map(timestamp_of);
        let start = LogPosition::after(after.unwrap_or_default());
        let relations = source.tables.iter().map(|table| Relation {
            table: Arc::clone(table),
            position: start,
            batch: None,
            sent: 0,
        });
        let names: Vec<&str> = source.tables.iter().map(|table| table.name()).collect();
        let shown = Arc::new(SubscriptionProgress::begin(names.join(", ")));
        source.shown.sessions.show_subscription(&source.shown.variables, &shown);
        let mut feed = SubscriptionFeed {
            shown,
            relations: relations.collect(),
            source,
            phase: Phase::Changes,
            up_to: Timestamp::START,
            end,
            noted: NotedChanges::default(),
            progress: (Timestamp::START, Instant::now()),
            is_behind: false,
        };
        feed.look();
        match after {
            None => feed.take_snapshot()?,
            // No progress is behind it.
            Some(after) if after > feed.up_to => feed.progress.0 = after,
            Some(_) => {}
        }
        Ok(feed)
    }

    /// The next rows; none at the end.
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            match &mut self.phase {
                Phase::Snapshot(_) => {
                    if let Some(batch) = self.snapshot_batch()? {
                        if batch.num_rows() > 0 {
                            return Ok(Some(batch));
                        }
                        // No row passes the query.
                        tokio::task::yield_now().await;
                        continue;
                    }
                    self.phase = Phase::Changes;
                    if let Some(batch) = self.progress()? {
                        return Ok(Some(batch));
                    }
                }
                Phase::Changes => {
                    if let Some(batch) = self.changes()? {
                        if batch.num_rows() > 0 {
                            return Ok(Some(batch));
                        }
                        tokio::task::yield_now().await;
                        continue;
                    }
                    let (newest, sent_at) = self.progress;
                    let is_due = newest == Timestamp::START
                        || self.is_behind
                        || sent_at.elapsed() >= PROGRESS_INTERVAL;
                    if is_due && let Some(batch) = self.progress()? {
                        return Ok(Some(batch));
                    }
                    self.shown.reached(self.up_to);
                    if self.end.is_some_and(|end| self.up_to >= end) {
                        self.phase = Phase::End;
                        continue;
                    }
                    self.wait().await?;
                }
                Phase::End => return Ok(None),
            }
        }
    }

    /// Begins at the rows that are there, which it sends first if the statement wants them.
    fn take_snapshot(&mut self) -> Result<()> {
        let now = self.up_to;
        let transaction = self.source.catalog.begin()?;
        let mut undone = Vec::with_capacity(self.relations.len());
        for relation in &mut self.relations {
            relation.position = LogPosition::after(now);
            let mut before = BTreeMap::new();
            let mut failed = None;
            relation.table.logged_changes(&transaction, relation.position, INFINITY, |change, _| {
                let Some(row) = change.new.or(change.old) else { return true };
                if !before.contains_key(row.key()) {
                    let old = change.old.map(|row| one_row(&relation.table, &self.source.zone, row));
                    match old.transpose() {
                        Ok(old) => drop(before.insert(row.key().to_vec(), old)),
                        Err(error) => failed = Some(error),
                    }
                }
                failed.is_none()
            })?;
            if let Some(error) = failed {
                return Err(error);
            }
            undone.push(before);
        }
        if self.source.subscription.snapshot {
            let rows = SnapshotRows { transaction, relation: 0, cursor: None, undone };
            self.phase = Phase::Snapshot(Box::new(rows));
        }
        Ok(())
    }

    /// Rows of the snapshot; none at its end.
    fn snapshot_batch(&mut self) -> Result<Option<RecordBatch>> {
        let Phase::Snapshot(rows) = &mut self.phase else { return Ok(None) };
        while let Some(relation) = self.relations.get(rows.relation) {
            let table = &relation.table;
            let undone = &mut rows.undone[rows.relation];
            let cursor = rows.cursor.get_or_insert_with(|| table.scan(ScanRange::full()));
            let mut builder = ChangeBatchBuilder::new(table, &self.source.zone);
            let mut parts = Vec::new();
            let more = cursor.next_batch(&rows.transaction, |row| match undone.remove(row.key()) {
                Some(before) => parts.extend(before),
                None => builder.push(&RowChange {
                    cts: self.up_to,
                    kind: ChangeKind::Insert,
                    old: None,
                    new: Some(row),
                }),
            })?;
            if !more {
                // Keys that were deleted since.
                parts.extend(std::mem::take(undone).into_values().flatten());
                (rows.relation, rows.cursor) = (rows.relation + 1, None);
            }
            parts.push(builder.finish()?);
            let schema = parts[0].schema();
            let batch = datafusion::arrow::compute::concat_batches(&schema, &parts)?;
            if batch.num_rows() > 0 {
                let (table, cts) = (Arc::clone(table), self.up_to);
                return Ok(Some(self.shown(&table, &batch, Some(SNAPSHOT), Some(cts))?));
            }
        }
        Ok(None)
    }

    /// Changes up to `up_to`, of one relation; none if all were sent.
    fn changes(&mut self) -> Result<Option<RecordBatch>> {
        let up_to = self.end.map_or(self.up_to, |end| end.min(self.up_to));
        let end = LogPosition::after(up_to);
        let mut transaction = None;
        for relation in &mut self.relations {
            if relation.batch.is_some() || relation.position >= end {
                continue;
            }
            let transaction = match &transaction {
                Some(transaction) => transaction,
                None => transaction.insert(self.source.catalog.begin()?),
            };
            relation.fill(transaction, up_to, &self.source.zone)?;
        }
        // The relation with the oldest change, and how many come before those of the others.
        let next = |relation: &Relation| relation.next_cts();
        let first =
            self.relations.iter().enumerate().filter_map(|(at, relation)| Some((next(relation)?, at))).min();
        let Some((_, at)) = first else { return Ok(None) };
        let others = self.relations.iter().enumerate().filter(|(other, _)| *other != at);
        let limit = others.filter_map(|(other, relation)| Some((next(relation)?, other))).min();
        let relation = &mut self.relations[at];
        let Some(batch) = relation.batch.take() else { return Ok(None) };
        let cts = cts_of(&batch);
        let is_before = |cts: i64| limit.is_none_or(|(first, other)| (cts, at) < (first.bigint(), other));
        let count = cts.values()[relation.sent..].iter().take_while(|cts| is_before(**cts)).count();
        let part = batch.slice(relation.sent, count);
        relation.sent += count;
        if relation.sent < batch.num_rows() {
            relation.batch = Some(batch);
        }
        let table = Arc::clone(&relation.table);
        self.is_behind = true;
        self.shown(&table, &part, None, None).map(Some)
    }

    /// Row that says up to where changes are complete, if the client wants it.
    fn progress(&mut self) -> Result<Option<RecordBatch>> {
        let up_to = self.end.map_or(self.up_to, |end| end.min(self.up_to));
        if !self.source.subscription.progress || self.progress.0 >= up_to {
            return Ok(None);
        }
        (self.progress, self.is_behind) = ((up_to, Instant::now()), false);
        let schema = &self.source.schema;
        let columns = schema.fields().iter().map(|field| -> ArrayRef {
            match field.name().as_str() {
                COMMIT_CTS if field.data_type() == &ArrowType::Int64 => {
                    Arc::new(Int64Array::from(vec![up_to.bigint()]))
                }
                CHANGE_TYPE if !field.is_nullable() => Arc::new(StringArray::from(vec![PROGRESS])),
                _ => new_null_array(field.data_type(), 1),
            }
        });
        Ok(Some(RecordBatch::try_new(Arc::clone(schema), columns.collect())?))
    }

    /// Waits until there may be later changes.
    async fn wait(&mut self) -> Result<()> {
        let context = Arc::clone(self.source.catalog.context());
        if self.up_to < self.noted.newest {
            tokio::time::sleep(WAIT_FOR_OLDER).await;
        } else {
            let noted = self.noted;
            let waited = tokio::task::spawn_blocking(move || context.wait_for_changes(noted, WAIT_MAX));
            waited.await.map_err(|error| Error::Internal(error.to_string()))?;
        }
        self.look();
        Ok(())
    }

    /// Looks up to where changes can be sent.
    fn look(&mut self) {
        let context = self.source.catalog.context();
        self.noted = context.noted_changes();
        self.up_to = self.up_to.max(context.visible_up_to());
    }

    /// Changes of a table in the columns of the subscription.
    fn shown(
        &self,
        table: &Table,
        changes: &RecordBatch,
        kind: Option<&str>,
        cts: Option<Timestamp>,
    ) -> Result<RecordBatch> {
        if let Some(query) = &self.source.query {
            return self.computed(query, table, changes, (kind, cts));
        }
        let rows = changes.num_rows();
        self.shown.add(rows);
        let visible = table.schema().visible_columns().len();
        let columns = changes.columns();
        let kinds: ArrayRef = match kind {
            Some(kind) => Arc::new(StringArray::from(vec![kind; rows])),
            None => Arc::clone(&columns[columns.len() - 2]),
        };
        let times: ArrayRef = match cts {
            Some(cts) => Arc::new(Int64Array::from(vec![cts.bigint(); rows])),
            None => Arc::clone(&columns[columns.len() - 1]),
        };
        let mut shown = vec![times];
        if self.source.subscription.is_list {
            shown.push(Arc::new(StringArray::from(vec![table.name(); rows])));
            shown.push(kinds);
            shown.push(json_rows(
                &changes.project(&(0..visible).collect::<Vec<_>>())?,
                table.schema().visible_columns(),
            )?);
        } else {
            shown.push(kinds);
            shown.extend(columns[..visible].iter().cloned());
        }
        Ok(RecordBatch::try_new(Arc::clone(&self.source.schema), shown)?)
    }

    /// Changes of the rows of a query; rows of the snapshot have a kind and a timestamp.
    fn computed(
        &self,
        query: &SubscribedQuery,
        table: &Table,
        changes: &RecordBatch,
        (kind, cts): (Option<&str>, Option<Timestamp>),
    ) -> Result<RecordBatch> {
        let visible = table.schema().visible_columns().len();
        let columns = changes.columns();
        let (kinds, times) = (&columns[columns.len() - 2], &columns[columns.len() - 1]);
        let (rows, kinds, times): (RecordBatch, ArrayRef, ArrayRef) = match (kind, cts) {
            (Some(kind), Some(cts)) => {
                let rows = query.results(&columns[..visible])?;
                let count = rows.num_rows();
                let kinds = Arc::new(StringArray::from(vec![kind; count]));
                (rows, kinds, Arc::new(Int64Array::from(vec![cts.bigint(); count])))
            }
            _ => {
                let sides = (&columns[..visible], &columns[visible..2 * visible]);
                let changed = query.changes(sides, kinds.as_string::<i32>())?;
                let times = take(times, &changed.places, None)?;
                (changed.rows, changed.kinds, times)
            }
        };
        self.shown.add(rows.num_rows());
        let shown = [times, kinds].into_iter().chain(rows.columns().iter().cloned());
        Ok(RecordBatch::try_new(Arc::clone(&self.source.schema), shown.collect())?)
    }
}

impl Relation {
    /// Reads changes up to a timestamp.
    fn fill(&mut self, transaction: &Transaction, up_to: Timestamp, zone: &str) -> Result<()> {
        let is_same = self.table.current().is_some_and(|now| now.schema() == self.table.schema());
        if !is_same {
            let message = format!("table {} has changed or is gone: subscribe again", self.table.name());
            return Err(Error::coded("55000", message));
        }
        let mut builder = ChangeBatchBuilder::new(&self.table, zone);
        self.position = self.table.logged_changes(transaction, self.position, up_to, |change, _| {
            builder.push(&change);
            builder.rows() < BATCH_ROWS
        })?;
        if builder.rows() > 0 {
            (self.batch, self.sent) = (Some(builder.finish()?), 0);
        }
        Ok(())
    }

    /// Timestamp of the first change that was not sent.
    fn next_cts(&self) -> Option<Timestamp> {
        let batch = self.batch.as_ref()?;
        Timestamp::try_from(cts_of(batch).value(self.sent)).ok()
    }
}

fn cts_of(changes: &RecordBatch) -> &Int64Array {
    changes.column(changes.num_columns() - 1).as_primitive::<Int64Type>()
}

/// Batch of one row.
fn one_row(table: &Table, zone: &str, row: entresol_tables::RowView<'_>) -> Result<RecordBatch> {
    let mut builder = ChangeBatchBuilder::new(table, zone);
    builder.push(&RowChange { cts: Timestamp::START, kind: ChangeKind::Insert, old: None, new: Some(row) });
    Ok(builder.finish()?)
}
