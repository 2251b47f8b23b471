//! The logged changes of a table as a source, in the order of commits.
//!
//! Its position is a place in the table's change log, so each change counts exactly once over restarts, also
//! when a transaction of the topology ends within a commit. It holds no snapshot while it waits: a topology
//! that stood still for longer than the log's retention fails with "snapshot too old".

use crate::error::{Error, Result};
use crate::sources::{Next, Position, Positions, Source, SourceBatch};
use entresol_tables::{Catalog, ChangeBatchBuilder, Column, Table, change_columns};
use entresol_transactions::{LogPosition, NotedChanges, Timestamp};
use std::sync::Arc;
use std::time::Duration;

/// Wait for a change.
const WAIT: Duration = Duration::from_millis(5);
/// Wait for commits that are older than those that are known to be visible.
const WAIT_FOR_OLDER: Duration = Duration::from_micros(500);
/// Line of a position behind all changes of a commit.
const ALL: u64 = i64::MAX as u64;

/// Changes of a table that logs them; see the [module](self).
pub struct ChangesSource {
    catalog: Arc<Catalog>,
    table: Arc<Table>,
    position: LogPosition,
    /// Timestamp up to which changes may be read, and commits that were known to be visible then.
    up_to: Timestamp,
    noted: NotedChanges,
}

impl ChangesSource {
    /// Creates the source. Its columns are those of [`change_columns`].
    pub fn new(catalog: &Arc<Catalog>, table: &Arc<Table>) -> ChangesSource {
        ChangesSource {
            catalog: Arc::clone(catalog),
            table: Arc::clone(table),
            position: LogPosition::after(Timestamp::START),
            up_to: Timestamp::START,
            noted: NotedChanges::default(),
        }
    }

    /// The table as it is now; an error if its columns have changed.
    fn table_now(&self) -> Result<Arc<Table>> {
        let now = self.table.current();
        match now.filter(|now| now.schema().visible_columns() == self.table.schema().visible_columns()) {
            Some(now) => Ok(now),
            None => Err(Error::Tuple {
                operator: format!("CHANGES({})", self.table.name()),
                reason: "the table is gone, or has other columns".to_owned(),
            }),
        }
    }
}

fn as_position(position: LogPosition) -> Position {
    Position { offset: position.cts.stored(), line: position.rest.min(ALL) }
}

fn as_log_position(position: Position) -> LogPosition {
    let rest = if position.line == ALL { u64::MAX } else { position.line };
    LogPosition { cts: Timestamp::from_stored(position.offset), rest }
}

impl Source for ChangesSource {
    fn columns(&self) -> Vec<Column> {
        change_columns(self.table.schema().visible_columns())
    }

    fn follows_commits(&self) -> bool {
        true
    }

    fn open(&mut self, from: Option<Position>) -> Result<()> {
        self.position = match from {
            // What a table in volatile memory had is gone with its log.
            Some(position) if self.table.state().is_volatile() => {
                as_log_position(position).max(self.table.changes_begin(&*self.catalog.begin()?)?)
            }
            Some(position) => as_log_position(position),
            None => self.table.changes_begin(&*self.catalog.begin()?)?,
        };
        Ok(())
    }

    fn next(&mut self, tuples_max: usize) -> Result<Next> {
        let table = self.table_now()?;
        let context = self.catalog.context();
        if self.position >= LogPosition::after(self.up_to) {
            if self.up_to < self.noted.newest {
                std::thread::sleep(WAIT_FOR_OLDER);
            } else if self.up_to > Timestamp::START {
                context.wait_for_changes(self.noted, WAIT);
            }
            self.noted = context.noted_changes();
            self.up_to = self.up_to.max(context.visible_up_to());
        }
        let transaction = self.catalog.begin()?;
        let (mut builder, mut positions) = (ChangeBatchBuilder::new(&table, "UTC"), Vec::<Position>::new());
        let mut is_full = false;
        let reached = table.logged_changes(&transaction, self.position, self.up_to, |change, position| {
            // A position behind all of a commit stays valid when the commit leaves the log.
            if let Some(last) = positions.last_mut()
                && last.offset != change.cts.stored()
            {
                last.line = ALL;
            }
            is_full = positions.len() == tuples_max;
            if !is_full {
                builder.push(&change);
                positions.push(as_position(position));
            }
            !is_full
        })?;
        if let (false, Some(last)) = (is_full, positions.last_mut()) {
            last.line = ALL;
        }
        self.position = match positions.last() {
            Some(last) if is_full => as_log_position(*last),
            _ => reached,
        };
        if positions.is_empty() {
            return Ok(Next::Idle);
        }
        let end = positions[positions.len() - 1];
        let (tuples, positions) = (builder.finish()?, Positions::Listed(positions));
        Ok(Next::Batch(SourceBatch { tuples, positions, rejects: Vec::new(), end, split: None }))
    }
}
