//! A source with columns that say where its tuples come from: the file, the place in it, the time at which they were read.

use crate::UTC;
use crate::error::Result;
use crate::sources::{CommittedInput, Next, Position, Reject, Source, SourceBatch, SplitPosition};
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use entresol_tables::{Column, DataType, arrow_schema};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Content of a column of [`IncludingSource`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IncludedColumns {
    /// Split of the tuple, such as its file; NULL of a source without splits.
    Split,
    /// Position behind the tuple: in bytes of a file, else its number.
    Offset,
    /// Line on which it ends; NULL of a source without lines.
    Line,
    /// Time at which it was read.
    Time,
}

impl IncludedColumns {
    /// Type of the column.
    pub fn data_type(self) -> DataType {
        match self {
            IncludedColumns::Split => DataType::Varchar,
            IncludedColumns::Offset | IncludedColumns::Line => DataType::BigInt,
            IncludedColumns::Time => DataType::TimestampTz,
        }
    }

    /// Column of the tuples of a batch.
    fn array(self, batch: &SourceBatch, now_us: i64) -> ArrayRef {
        let tuples = batch.tuples.num_rows();
        let positions = (0..tuples).map(|at| batch.positions.after(at));
        match self {
            IncludedColumns::Split => {
                let name = batch.split.as_ref().map(|split| split.name.as_ref());
                Arc::new(std::iter::repeat_n(name, tuples).collect::<StringArray>())
            }
            IncludedColumns::Offset => Arc::new(Int64Array::from_iter_values(
                positions.map(|position| position.offset.cast_signed()),
            )),
            // The position has the next one.
            IncludedColumns::Line => Arc::new(
                positions
                    .map(|position| position.line.checked_sub(1).map(u64::cast_signed))
                    .collect::<Int64Array>(),
            ),
            IncludedColumns::Time => {
                Arc::new(TimestampMicrosecondArray::from_value(now_us, tuples).with_timezone(UTC))
            }
        }
    }
}

/// Source with further columns behind those of another.
pub struct IncludingSource {
    source: Box<dyn Source>,
    included: Vec<(IncludedColumns, String)>,
}

impl IncludingSource {
    /// Adds columns by these names to a source.
    pub fn new(source: Box<dyn Source>, included: Vec<(IncludedColumns, String)>) -> IncludingSource {
        IncludingSource { source, included }
    }

    fn with_columns(&self, mut batch: SourceBatch) -> Next {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now_us = i64::try_from(now.as_micros()).unwrap_or(i64::MAX);
        let added = self.included.iter().map(|(included, _)| included.array(&batch, now_us));
        let columns = batch.tuples.columns().iter().cloned().chain(added).collect();
        match RecordBatch::try_new(arrow_schema(&self.columns(), UTC), columns) {
            Ok(tuples) => {
                batch.tuples = tuples;
                Next::Batch(batch)
            }
            Err(error) => Next::Invalid(error.to_string()),
        }
    }
}

impl Source for IncludingSource {
    fn columns(&self) -> Vec<Column> {
        let added =
            self.included.iter().map(|(included, name)| Column::new(name.clone(), included.data_type()));
        self.source.columns().into_iter().chain(added).collect()
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
            Next::Batch(batch) => self.with_columns(batch),
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
        let mut source = IncludingSource::new(Box::new(Listening(Arc::clone(&heard))), included);
        assert!(source.acknowledges());
        source.committed(&CommittedInput::default()).unwrap();
        assert_eq!(heard.load(Ordering::Relaxed), 1);
    }
}
