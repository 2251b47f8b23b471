//! The logged changes of a table as a source, in the order of commits.
//!
//! Its position is a place in the table's change log, so each change counts exactly once over restarts, also
//! when a transaction of the topology ends within a commit. It holds no snapshot while it waits: a topology
//! that stood still for longer than the log's retention fails with "snapshot too old".
//!
//! Where it matters that there are changes, and not which ([`ChangesSource::in_rounds`]), it goes on where the log begins,
//! and looks in rounds.

use crate::error::{Error, Result};
use crate::sources::change_rounds::ChangeRounds;
use crate::sources::{Next, Position, Positions, Source, SourceBatch};
use arrow_array::RecordBatch;
use entresol_tables::{Catalog, ChangeBatchBuilder, Column, Table, change_columns};
use entresol_transactions::{LogPosition, NotedChanges, Timestamp};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Wait for a change.
const WAIT: Duration = Duration::from_millis(5);
/// Wait for commits that are older than those that are known to be visible.
const WAIT_FOR_OLDER: Duration = Duration::from_micros(500);
/// Longest wait until the commits before the beginning of a log are visible.
const WAIT_FOR_ALL_MAX: Duration = Duration::from_secs(1);
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
    rounds: Option<LooksInRounds>,
    /// Places of its columns among those of the changes; none if it has all.
    columns: Option<Vec<usize>>,
}

/// Looks at a log for that there are changes.
struct LooksInRounds {
    rounds: Arc<ChangeRounds>,
    /// Round that it looks in, and the last one in which it has read all.
    now: u64,
    done: u64,
    missed: Box<dyn FnMut() -> Result<()> + Send>,
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
            rounds: None,
            columns: None,
        }
    }

    /// Gives it only these columns of the changes, by their places in [`change_columns`].
    pub fn with_columns(mut self, columns: Vec<usize>) -> ChangesSource {
        self.columns = Some(columns);
        self
    }

    /// Lets it look once in each of the rounds, and go on where the log begins if changes behind its position may be
    /// gone. Then, and when it opens without a position, it calls `missed`. The transactions of the topology need not
    /// see the commits that the changes are of.
    pub fn in_rounds(
        mut self,
        rounds: &Arc<ChangeRounds>,
        missed: impl FnMut() -> Result<()> + Send + 'static,
    ) -> ChangesSource {
        let (rounds, missed) = (Arc::clone(rounds), Box::new(missed));
        self.rounds = Some(LooksInRounds { rounds, now: 0, done: 0, missed });
        self
    }

    /// The table as it is now; an error if its columns have changed.
    fn table_now(&self) -> Result<Arc<Table>> {
        let now = self.table.current();
        match now.filter(|now| now.schema().visible_columns() == self.table.schema().visible_columns()) {
            Some(now) => Ok(now),
            None => Err(self.wrong("the table is gone, or has other columns")),
        }
    }

    /// Goes on where the log begins, and says so if changes before may be missed.
    fn go_on_at_begin(&mut self, table: &Table, from: Option<LogPosition>) -> Result<()> {
        let begin = table.changes_begin(&*self.catalog.begin()?)?;
        self.position = from.map_or(begin, |from| from.max(begin));
        match &mut self.rounds {
            Some(looks) if from.is_none_or(|from| from < begin) => {
                wait_until_all_visible(&self.catalog, begin.cts);
                (looks.missed)()
            }
            _ => Ok(()),
        }
    }

    /// Reads up to the commits of now once what was read for is read; waits for changes if there are none.
    fn advance(&mut self) {
        if self.position < LogPosition::after(self.up_to) {
            return;
        }
        let context = self.catalog.context();
        if self.rounds.is_none() {
            if self.up_to < self.noted.newest {
                std::thread::sleep(WAIT_FOR_OLDER);
            } else if self.up_to > Timestamp::START {
                context.wait_for_changes(self.noted, WAIT);
            }
        }
        self.noted = context.noted_changes();
        self.up_to = self.up_to.max(context.visible_up_to());
    }

    /// Reads changes up to the commits that are noted.
    fn read(&mut self, table: &Arc<Table>, tuples_max: usize) -> Result<Next> {
        let transaction = self.catalog.begin()?;
        let (mut builder, mut positions) = (ChangeBatchBuilder::new(table, "UTC"), Vec::<Position>::new());
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
        if let (false, Some(looks)) = (is_full, &mut self.rounds) {
            looks.done = looks.now;
        }
        let Some(end) = positions.last().copied() else { return Ok(Next::Idle) };
        let (tuples, positions) = (self.declared(builder.finish()?)?, Positions::Listed(positions));
        Ok(Next::Batch(SourceBatch { tuples, positions, rejects: Vec::new(), end, split: None }))
    }
}

impl ChangesSource {
    /// Its columns of a batch of changes.
    fn declared(&self, changes: RecordBatch) -> Result<RecordBatch> {
        let Some(columns) = &self.columns else { return Ok(changes) };
        changes.project(columns).map_err(|error| self.wrong(error.to_string()))
    }

    fn wrong(&self, reason: impl Into<String>) -> Error {
        Error::Tuple { operator: format!("CHANGES({})", self.table.name()), reason: reason.into() }
    }
}

impl LooksInRounds {
    /// Returns true if it is time to look; else waits for that a little.
    fn is_due(&mut self) -> bool {
        self.now = self.rounds.current();
        if self.now != self.done {
            return true;
        }
        std::thread::sleep(self.rounds.remaining().map_or(Duration::ZERO, |remaining| remaining.min(WAIT)));
        false
    }
}

/// Waits until those that begin see all commits up to a timestamp, at most for [`WAIT_FOR_ALL_MAX`].
fn wait_until_all_visible(catalog: &Catalog, cts: Timestamp) {
    let begin = Instant::now();
    while catalog.context().visible_up_to() < cts && begin.elapsed() < WAIT_FOR_ALL_MAX {
        std::thread::sleep(WAIT_FOR_OLDER);
    }
}

/// Returns true if changes are gone from a log.
fn is_too_old(error: &Error) -> bool {
    use entresol_transactions::Error::SnapshotTooOld;
    matches!(error, Error::Tables(entresol_tables::Error::Transactions(SnapshotTooOld { .. })))
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
        let all = change_columns(self.table.schema().visible_columns());
        match &self.columns {
            Some(columns) => columns.iter().filter_map(|at| all.get(*at).cloned()).collect(),
            None => all,
        }
    }

    fn follows_commits(&self) -> bool {
        self.rounds.is_none()
    }

    fn open(&mut self, from: Option<Position>) -> Result<()> {
        let from = from.map(as_log_position);
        match from {
            // What a table in volatile memory had is gone with its log.
            Some(from) if self.rounds.is_none() && !self.table.state().is_volatile() => {
                self.position = from;
                Ok(())
            }
            from => self.go_on_at_begin(&Arc::clone(&self.table), from),
        }
    }

    fn next(&mut self, tuples_max: usize) -> Result<Next> {
        if self.rounds.as_mut().is_some_and(|looks| !looks.is_due()) {
            return Ok(Next::Idle);
        }
        let table = self.table_now()?;
        self.advance();
        match self.read(&table, tuples_max) {
            Err(error) if self.rounds.is_some() && is_too_old(&error) => {
                self.go_on_at_begin(&table, Some(self.position))?;
                Ok(Next::Idle)
            }
            read => read,
        }
    }
}
