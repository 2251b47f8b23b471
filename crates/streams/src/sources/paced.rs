//! A source that is slowed down to a rate.

use crate::error::Result;
use crate::sources::{CommittedInput, Next, Position, Reject, Source, SplitPosition};
use entresol_tables::Column;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest wait of a call.
const WAIT_MAX: Duration = Duration::from_millis(5);

/// Source with at most a number of tuples a second.
pub struct PacedSource {
    source: Box<dyn Source>,
    tuples_per_s: u64,
    since: Option<Instant>,
    tuples: u64,
}

impl PacedSource {
    /// Slows a source down.
    pub fn new(source: Box<dyn Source>, tuples_per_s: u64) -> PacedSource {
        PacedSource { source, tuples_per_s, since: None, tuples: 0 }
    }
}

impl Source for PacedSource {
    fn columns(&self) -> Vec<Column> {
        self.source.columns()
    }

    fn open(&mut self, from: Option<Position>) -> Result<()> {
        (self.since, self.tuples) = (None, 0);
        self.source.open(from)
    }

    fn has_splits(&self) -> bool {
        self.source.has_splits()
    }

    fn open_splits(&mut self, from: Option<Position>, splits: &[SplitPosition]) -> Result<()> {
        (self.since, self.tuples) = (None, 0);
        self.source.open_splits(from, splits)
    }

    fn next(&mut self, tuples_max: usize) -> Result<Next> {
        let since = *self.since.get_or_insert_with(Instant::now);
        let due = (since.elapsed().as_secs_f64() * self.tuples_per_s as f64) as u64;
        let Some(wanted) = due.checked_sub(self.tuples).filter(|wanted| *wanted > 0) else {
            std::thread::sleep(WAIT_MAX.min(Duration::from_secs(1) / self.tuples_per_s as u32));
            return Ok(Next::Idle);
        };
        let next = self.source.next(tuples_max.min(wanted as usize))?;
        if let Next::Batch(batch) = &next {
            self.tuples += batch.tuples.num_rows() as u64;
        }
        Ok(next)
    }

    fn follows_commits(&self) -> bool {
        self.source.follows_commits()
    }

    fn transaction(&self) -> Option<Arc<str>> {
        self.source.transaction()
    }

    fn rejected(&mut self, rejects: &[Reject]) -> Result<()> {
        self.source.rejected(rejects)
    }

    fn acknowledges(&self) -> bool {
        self.source.acknowledges()
    }

    fn committed(&mut self, input: &CommittedInput) -> Result<()> {
        self.source.committed(input)
    }
}
