//! Probing: rows of the fact that find a row in every dimension.
//!
//! - Dimensions are probed one after the other, each with the rows that passed those before it; the one that
//!   leaves out the most rows for its cost comes first, as measured by the batches before. Measures are halved
//!   now and then, so that the order follows the fact.
//! - Rows of dimensions are looked up once the row has passed all of them.
//! - A row of the fact that finds several rows of one key in a dimension becomes several joined rows, in
//!   chunks of bounded size, however many there are.

use crate::planner::star::dimension::{Dimension, DimensionPlan};
use crate::planner::star::keys::KeyColumn;
use datafusion::arrow::array::{Array, BooleanArray, RecordBatch};
use datafusion::common::Result as DFResult;
use datafusion::physical_plan::metrics::{Count, ExecutionPlanMetricsSet, MetricBuilder};
use std::sync::Arc;

/// Batches after which the order of dimensions is looked at again.
const BATCHES_OF_ORDER: usize = 8;
/// Rows probed, above which measures are halved.
const MEASURED_ROWS_MAX: f64 = 1_048_576.0;
/// Maximum joined rows of a chunk.
const CHUNK_ROWS: usize = 8192;

/// Measures of one dimension.
struct Measure {
    probed: f64,
    matched: f64,
    probed_rows: Count,
    matched_rows: Count,
}

/// Probing of one partition of the fact.
pub(super) struct Probe {
    plans: Vec<Arc<DimensionPlan>>,
    dimensions: Arc<Vec<Dimension>>,
    /// Dimensions whose rows are asked for.
    with_rows: Vec<bool>,
    order: Vec<usize>,
    measures: Vec<Measure>,
    batches: usize,
    selection: Vec<u32>,
    rows: Vec<Vec<u32>>,
    expansion: Option<Expansion>,
    /// True once the selection of the batch was returned.
    is_done: bool,
}

impl Probe {
    /// Probing of a partition; `is_needed` says of which dimensions joined rows need the row.
    pub(super) fn new(
        plans: &[Arc<DimensionPlan>],
        dimensions: &Arc<Vec<Dimension>>,
        is_needed: impl Fn(usize) -> bool,
        metrics: &ExecutionPlanMetricsSet,
        partition: usize,
    ) -> Probe {
        let counter =
            |name: &str, of: &str| MetricBuilder::new(metrics).counter(format!("{name}_{of}"), partition);
        let measures = plans.iter().zip(dimensions.iter()).map(|(plan, dimension)| Measure {
            probed: 1.0,
            matched: dimension.keys.fill(),
            probed_rows: counter(&plan.name, "probed"),
            matched_rows: counter(&plan.name, "matched"),
        });
        let mut probe = Probe {
            plans: plans.to_vec(),
            dimensions: Arc::clone(dimensions),
            with_rows: (0..plans.len()).map(is_needed).collect(),
            order: (0..plans.len()).collect(),
            measures: measures.collect(),
            batches: 0,
            selection: Vec::new(),
            rows: vec![Vec::new(); plans.len()],
            expansion: None,
            is_done: true,
        };
        probe.arrange();
        probe
    }

    /// Puts the dimensions in order: the most rows left out for the cost of a probe first.
    fn arrange(&mut self) {
        let (measures, dimensions) = (&self.measures, &self.dimensions);
        let gain = |at: &usize| {
            let measure = &measures[*at];
            (1.0 - measure.matched / measure.probed) / dimensions[*at].keys.cost()
        };
        self.order.sort_by(|one, other| gain(other).total_cmp(&gain(one)));
        for measure in &mut self.measures {
            if measure.probed > MEASURED_ROWS_MAX {
                measure.probed /= 2.0;
                measure.matched /= 2.0;
            }
        }
    }

    /// Probes a batch; its joined rows come from [`Probe::next_chunk`].
    pub(super) fn begin(&mut self, batch: &RecordBatch) -> DFResult<()> {
        self.batches += 1;
        if self.batches.is_multiple_of(BATCHES_OF_ORDER) {
            self.arrange();
        }
        for (at, &dimension) in self.order.iter().enumerate() {
            let column = KeyColumn::of(batch.column(self.plans[dimension].fact_key))?;
            let keys = &self.dimensions[dimension].keys;
            let probed = if at == 0 {
                keys.select(&column, &mut self.selection);
                batch.num_rows()
            } else {
                let probed = self.selection.len();
                keys.refine(&column, &mut self.selection);
                probed
            };
            let measure = &mut self.measures[dimension];
            measure.probed += probed as f64;
            measure.matched += self.selection.len() as f64;
            measure.probed_rows.add(probed);
            measure.matched_rows.add(self.selection.len());
            if self.selection.is_empty() {
                break;
            }
        }
        self.is_done = self.selection.is_empty();
        self.expansion = None;
        if self.is_done {
            return Ok(());
        }
        let mut multiple = Vec::new();
        for (dimension, plan) in self.plans.iter().enumerate() {
            let keys = &self.dimensions[dimension].keys;
            if self.with_rows[dimension] || keys.has_duplicates() {
                let column = KeyColumn::of(batch.column(plan.fact_key))?;
                keys.rows(&column, &self.selection, &mut self.rows[dimension]);
            }
            if keys.has_duplicates() {
                multiple.push(dimension);
            }
        }
        if !multiple.is_empty() {
            let selection = std::mem::take(&mut self.selection);
            let rows = self.rows.iter_mut().map(std::mem::take).collect();
            self.expansion = Some(Expansion { selection, rows, multiple, at: 0, current: Vec::new() });
        }
        Ok(())
    }

    /// Goes to the next chunk of joined rows of the batch; false if there is none.
    pub(super) fn next_chunk(&mut self) -> bool {
        if self.is_done {
            return false;
        }
        match &mut self.expansion {
            None => self.is_done = true,
            Some(expansion) => {
                self.is_done = !expansion.fill(&self.dimensions, &mut self.selection, &mut self.rows);
            }
        }
        !self.selection.is_empty()
    }

    /// Leaves of this chunk the joined rows for which a condition is true.
    pub(super) fn retain(&mut self, met: &BooleanArray) {
        for rows in self.rows.iter_mut().chain([&mut self.selection]).filter(|rows| !rows.is_empty()) {
            let mut count = 0;
            for at in 0..rows.len() {
                rows[count] = rows[at];
                count += usize::from(met.value(at) & met.is_valid(at));
            }
            rows.truncate(count);
        }
    }

    /// Rows of the batch of this chunk, one for each joined row.
    pub(super) fn selection(&self) -> &[u32] {
        &self.selection
    }

    /// Rows of each dimension of this chunk.
    pub(super) fn rows(&self) -> &[Vec<u32>] {
        &self.rows
    }
}

/// Joined rows of a batch where keys of dimensions occur several times: an odometer over the rows of each key.
struct Expansion {
    /// Selected rows of the fact, each once.
    selection: Vec<u32>,
    /// First rows of the dimensions.
    rows: Vec<Vec<u32>>,
    /// Dimensions with keys that occur several times.
    multiple: Vec<usize>,
    /// Position in the selection.
    at: usize,
    /// Row of each of these dimensions that comes next; empty before the first of a row of the fact.
    current: Vec<u32>,
}

impl Expansion {
    /// Fills the next chunk; false if it is the last one.
    fn fill(&mut self, dimensions: &[Dimension], selection: &mut Vec<u32>, rows: &mut [Vec<u32>]) -> bool {
        selection.clear();
        rows.iter_mut().for_each(Vec::clear);
        while self.at < self.selection.len() {
            if selection.len() == CHUNK_ROWS {
                return true;
            }
            let at = self.at;
            if self.current.is_empty() {
                self.current = self.multiple.iter().map(|&of| self.rows[of][at]).collect();
            }
            selection.push(self.selection[at]);
            for (dimension, first) in self.rows.iter().enumerate() {
                match self.multiple.iter().position(|of| *of == dimension) {
                    Some(digit) => rows[dimension].push(self.current[digit]),
                    None => rows[dimension].extend(first.get(at)),
                }
            }
            if !self.advance(dimensions) {
                self.current.clear();
                self.at += 1;
            }
        }
        false
    }

    /// Goes to the next combination of rows of one row of the fact; false after the last one.
    fn advance(&mut self, dimensions: &[Dimension]) -> bool {
        for (digit, &dimension) in self.multiple.iter().enumerate().rev() {
            if let Some(next) = dimensions[dimension].keys.next(self.current[digit]) {
                self.current[digit] = next;
                return true;
            }
            self.current[digit] = self.rows[dimension][self.at];
        }
        false
    }
}
