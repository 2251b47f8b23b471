//! A source that computes its tuples: the same position always gives the same tuple.

use crate::element::Tuple;
use crate::error::Result;
use crate::sources::{Next, Position, Source, SourceBatch};
use entresol_tables::Column;

/// Tuples by position: `None` ends the stream.
pub struct GeneratorSource<F> {
    columns: Vec<Column>,
    function: F,
    position: u64,
}

impl<F: FnMut(u64) -> Option<Tuple> + Send> GeneratorSource<F> {
    /// Creates a source; `function` returns the tuple at a position, from 0 on, and must depend on the
    /// position alone.
    pub fn new(columns: Vec<Column>, function: F) -> Self {
        GeneratorSource { columns, function, position: 0 }
    }
}

impl<F: FnMut(u64) -> Option<Tuple> + Send> Source for GeneratorSource<F> {
    fn columns(&self) -> Vec<Column> {
        self.columns.clone()
    }

    fn open(&mut self, from: Option<Position>) -> Result<()> {
        self.position = from.unwrap_or_default().offset;
        Ok(())
    }

    fn next(&mut self, tuples_max: usize) -> Result<Next> {
        let mut batch = SourceBatch::default();
        while batch.tuples.len() < tuples_max {
            let Some(tuple) = (self.function)(self.position) else { break };
            self.position += 1;
            batch.tuples.push(tuple);
            batch.positions.push(Position { offset: self.position, line: 0 });
        }
        if batch.tuples.is_empty() {
            return Ok(Next::End);
        }
        batch.end = Position { offset: self.position, line: 0 };
        Ok(Next::Batch(batch))
    }
}
