//! A source whose tuples have other columns than those that it reads.

use crate::error::Result;
use crate::sources::computed::{ComputedColumns, SourceColumn};
use crate::sources::included::{AddedColumns, IncludedColumns};
use crate::sources::{CommittedInput, Next, Position, Reject, Source, SourceBatch, SplitPosition};
use entresol_tables::Column;
use std::sync::Arc;

/// Columns that the batches of a source get.
pub(crate) trait BatchMap: Send {
    /// Returns the columns behind it, of those before it.
    fn columns(&self, read: Vec<Column>) -> Vec<Column>;

    /// Returns a batch with these columns.
    fn map(&mut self, batch: SourceBatch) -> Next;
}

/// Source with the columns of a [`BatchMap`]; all else is as in the source that it reads.
pub struct MappedSource {
    source: Box<dyn Source>,
    map: Box<dyn BatchMap>,
}

impl MappedSource {
    /// Adds columns with the origin of tuples, by these names.
    pub fn including(source: Box<dyn Source>, included: Vec<(IncludedColumns, String)>) -> MappedSource {
        MappedSource { source, map: Box::new(AddedColumns(included)) }
    }

    /// Makes these columns of those of a source. A tuple of which one cannot be computed is a rejected record, with its place in the
    /// file if `has_lines`.
    pub fn computing(source: Box<dyn Source>, columns: Vec<SourceColumn>, has_lines: bool) -> MappedSource {
        let map = Box::new(ComputedColumns::new(columns, source.columns(), has_lines));
        MappedSource { source, map }
    }
}

impl Source for MappedSource {
    fn columns(&self) -> Vec<Column> {
        self.map.columns(self.source.columns())
    }

    fn open(&mut self, from: Option<Position>) -> Result<()> {
        self.source.open(from)
    }

    fn has_splits(&self) -> bool {
        self.source.has_splits()
    }

    fn follows_commits(&self) -> bool {
        self.source.follows_commits()
    }

    fn transaction(&self) -> Option<Arc<str>> {
        self.source.transaction()
    }

    fn open_splits(&mut self, from: Option<Position>, splits: &[SplitPosition]) -> Result<()> {
        self.source.open_splits(from, splits)
    }

    fn next(&mut self, tuples_max: usize) -> Result<Next> {
        Ok(match self.source.next(tuples_max)? {
            Next::Batch(batch) => self.map.map(batch),
            other => other,
        })
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

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_tables::DataType;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Source that counts what it hears of commits.
    struct Listening(Arc<AtomicUsize>);

    impl Source for Listening {
        fn columns(&self) -> Vec<Column> {
            vec![Column::new("n", DataType::Int)]
        }

        fn open(&mut self, _from: Option<Position>) -> Result<()> {
            Ok(())
        }

        fn next(&mut self, _tuples_max: usize) -> Result<Next> {
            Ok(Next::End)
        }

        fn acknowledges(&self) -> bool {
            true
        }

        fn committed(&mut self, _input: &CommittedInput) -> Result<()> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    }

    #[test]
    fn the_source_within_hears_of_commits() {
        let heard = Arc::new(AtomicUsize::new(0));
        let included = vec![(IncludedColumns::Time, "read_at".to_owned())];
        let mut source = MappedSource::including(Box::new(Listening(Arc::clone(&heard))), included);
        assert!(source.acknowledges());
        source.committed(&CommittedInput::default()).unwrap();
        assert_eq!(heard.load(Ordering::Relaxed), 1);
    }
}
