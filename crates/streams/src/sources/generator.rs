//! Sources that compute their tuples: the same position always gives the same tuple.

use crate::element::Tuple;
use crate::error::{Error, Result};
use crate::sources::{Next, Position, Source, SourceBatch};
use arrow_array::RecordBatch;
use entresol_tables::{BatchBuilder, Column};

/// Mixes the bits of a number, as SplitMix64 does: the same random number for the same position.
#[inline]
pub fn mixed(n: u64) -> u64 {
    let mut z = n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Tuples by position.
pub struct GeneratorSource<F> {
    columns: Vec<Column>,
    function: F,
    position: u64,
}

/// Function from a position, and a maximum of tuples, to the batch of the tuples from there on.
pub struct Batches<F>(F);

/// Function from a position to its tuple, and the builder of their batches.
pub struct Tuples<F> {
    function: F,
    builder: BatchBuilder,
}

impl<F: FnMut(u64) -> Option<Tuple> + Send> GeneratorSource<Tuples<F>> {
    /// Creates a source; `function` returns the tuple at a position, from 0 on, and none at the end. It must
    /// depend on the position alone.
    pub fn new(columns: Vec<Column>, function: F) -> Self {
        let builder = BatchBuilder::new(&columns, 0);
        GeneratorSource { columns, function: Tuples { function, builder }, position: 0 }
    }
}

impl<F: FnMut(u64, usize) -> RecordBatch + Send> GeneratorSource<Batches<F>> {
    /// Creates a source of batches; `function` returns at most so many tuples from a position on, and none at
    /// the end. It must depend on the position alone.
    pub fn batches(columns: Vec<Column>, function: F) -> Self {
        GeneratorSource { columns, function: Batches(function), position: 0 }
    }
}

/// Generator of batches.
pub trait Generate: Send {
    /// Returns at most so many tuples from a position on; none at the end.
    fn generate(&mut self, position: u64, tuples_max: usize) -> Result<RecordBatch>;
}

impl<F: FnMut(u64, usize) -> RecordBatch + Send> Generate for Batches<F> {
    fn generate(&mut self, position: u64, tuples_max: usize) -> Result<RecordBatch> {
        Ok((self.0)(position, tuples_max))
    }
}

impl<F: FnMut(u64) -> Option<Tuple> + Send> Generate for Tuples<F> {
    fn generate(&mut self, position: u64, tuples_max: usize) -> Result<RecordBatch> {
        for at in position..position + tuples_max as u64 {
            let Some(tuple) = (self.function)(at) else { break };
            self.builder
                .push(&tuple)
                .map_err(|reason| Error::Tuple { operator: "generator".to_owned(), reason })?;
        }
        Ok(self.builder.finish())
    }
}

impl<F: Generate> Source for GeneratorSource<F> {
    fn columns(&self) -> Vec<Column> {
        self.columns.clone()
    }

    fn open(&mut self, from: Option<Position>) -> Result<()> {
        self.position = from.unwrap_or_default().offset;
        Ok(())
    }

    fn next(&mut self, tuples_max: usize) -> Result<Next> {
        let tuples = self.function.generate(self.position, tuples_max)?;
        if tuples.num_rows() == 0 {
            return Ok(Next::End);
        }
        let batch = SourceBatch::counted(tuples, self.position);
        self.position = batch.end.offset;
        Ok(Next::Batch(batch))
    }
}
