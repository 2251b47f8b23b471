//! Partial aggregation of joined rows, where groups are made of columns of dimensions.
//!
//! - Each dimension has a code for each combination of its group keys. The codes of a joined row, as digits of
//!   one number, are the *combination*, which an array maps to the group: no key is hashed or compared.
//! - States are those of DataFusion's accumulators, so the aggregation above takes them as its own.
//! - Memory: the array of at most [`COMBINATIONS_MAX`], and states of the groups that occur; reserved.

use crate::planner::partial_states::condition;
use crate::planner::star::dimension::Dimension;
use crate::planner::star::gather::{JoinedColumns, JoinedRows};
use datafusion::arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use datafusion::arrow::compute::{filter_record_batch, take};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::{Result as DFResult, internal_err};
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use std::sync::Arc;

/// Maximum number of combinations of the codes of group keys.
pub(super) const COMBINATIONS_MAX: usize = 1 << 18;

/// Arguments of an aggregate, as expressions of joined rows.
#[derive(Debug)]
pub(super) struct Arguments {
    pub(super) values: Vec<Arc<dyn PhysicalExpr>>,
    pub(super) filter: Option<Arc<dyn PhysicalExpr>>,
}

/// Group key: its dimension, and its position among the group keys of that.
#[derive(Debug, Clone, Copy)]
pub(super) struct GroupKey {
    pub(super) dimension: usize,
    pub(super) at: usize,
}

/// Aggregation as planned.
#[derive(Debug)]
pub(super) struct AggregatePlan {
    pub(super) group_by: PhysicalGroupBy,
    pub(super) functions: Vec<Arc<AggregateFunctionExpr>>,
    pub(super) filters: Vec<Option<Arc<dyn PhysicalExpr>>>,
    pub(super) input_schema: SchemaRef,
    pub(super) keys: Vec<GroupKey>,
    pub(super) arguments: Vec<Arguments>,
    /// Columns that the arguments need.
    pub(super) joined: JoinedColumns,
    pub(super) schema: SchemaRef,
}

impl AggregatePlan {
    /// The same aggregation as DataFusion's operator over joined rows.
    pub(super) fn over(&self, joined: Arc<dyn ExecutionPlan>) -> DFResult<AggregateExec> {
        AggregateExec::try_new(
            AggregateMode::Partial,
            self.group_by.clone(),
            self.functions.clone(),
            self.filters.clone(),
            joined,
            Arc::clone(&self.input_schema),
        )
    }

    /// Number of combinations of group keys; `None` if they are too many, or cannot be computed of dimensions
    /// alone.
    pub(super) fn combinations(&self, dimensions: &[Dimension]) -> Option<usize> {
        let mut combinations = 1_usize;
        for dimension in dimensions {
            combinations = combinations.checked_mul(dimension.groups.as_ref()?.count)?;
        }
        (combinations <= COMBINATIONS_MAX).then_some(combinations)
    }

    /// Returns true if joined rows need the row of a dimension.
    pub(super) fn needs_rows(&self, dimension: usize) -> bool {
        self.joined.has_any(dimension) || self.keys.iter().any(|key| key.dimension == dimension)
    }

    fn evaluated(&self, arguments: &Arguments, batch: &RecordBatch) -> DFResult<Vec<ArrayRef>> {
        let rows = batch.num_rows();
        arguments.values.iter().map(|value| value.evaluate(batch)?.into_array(rows)).collect()
    }
}

/// States of the aggregates of one partition.
pub(super) enum States {
    /// One group, which there is without rows, too.
    Plain(Vec<Box<dyn Accumulator>>),
    Grouped(GroupedStates),
}

/// States by group.
pub(super) struct GroupedStates {
    /// Dimensions with group keys, and what a code of each counts in a combination.
    digits: Vec<(usize, usize)>,
    /// Group of each combination plus one; 0 if it has not occurred.
    groups: Vec<u32>,
    /// Combination of each group.
    combinations: Vec<u32>,
    /// Group of each joined row of a chunk.
    indices: Vec<usize>,
    accumulators: Vec<Box<dyn GroupsAccumulator>>,
}

impl States {
    /// States of no rows.
    pub(super) fn new(
        plan: &AggregatePlan,
        dimensions: &[Dimension],
        combinations: usize,
    ) -> DFResult<States> {
        if plan.keys.is_empty() {
            let accumulators = plan.functions.iter().map(|function| function.create_accumulator());
            return Ok(States::Plain(accumulators.collect::<DFResult<_>>()?));
        }
        let mut digits = Vec::new();
        let mut weight = 1;
        for (at, dimension) in dimensions.iter().enumerate() {
            if plan.keys.iter().any(|key| key.dimension == at) {
                digits.push((at, weight));
                weight *= dimension.groups.as_ref().map_or(1, |groups| groups.count);
            }
        }
        let accumulators = plan.functions.iter().map(|function| function.create_groups_accumulator());
        Ok(States::Grouped(GroupedStates {
            digits,
            groups: vec![0; combinations],
            combinations: Vec::new(),
            indices: Vec::new(),
            accumulators: accumulators.collect::<DFResult<_>>()?,
        }))
    }

    /// Adds a chunk of joined rows.
    pub(super) fn update(
        &mut self,
        plan: &AggregatePlan,
        dimensions: &[Dimension],
        joined: &JoinedRows<'_>,
        reservation: &MemoryReservation,
    ) -> DFResult<()> {
        match self {
            States::Plain(accumulators) => {
                let batch = plan.joined.gather(dimensions, joined)?;
                for (accumulator, arguments) in accumulators.iter_mut().zip(&plan.arguments) {
                    let values = match &arguments.filter {
                        Some(filter) => {
                            let filtered = filter_record_batch(&batch, &condition(filter, &batch)?)?;
                            plan.evaluated(arguments, &filtered)?
                        }
                        None => plan.evaluated(arguments, &batch)?,
                    };
                    accumulator.update_batch(&values)?;
                }
                reservation.try_resize(accumulators.iter().map(|accumulator| accumulator.size()).sum())
            }
            States::Grouped(grouped) => {
                grouped.find_groups(dimensions, joined);
                let batch = plan.joined.gather(dimensions, joined)?;
                let groups = grouped.combinations.len();
                for (accumulator, arguments) in grouped.accumulators.iter_mut().zip(&plan.arguments) {
                    let values = plan.evaluated(arguments, &batch)?;
                    let filter = arguments.filter.as_ref();
                    let filter = filter.map(|filter| condition(filter, &batch)).transpose()?;
                    accumulator.update_batch(&values, &grouped.indices, filter.as_ref(), groups)?;
                }
                reservation.try_resize(grouped.bytes())
            }
        }
    }

    /// Group keys and states, as the aggregation above takes them.
    pub(super) fn finish(
        self,
        plan: &AggregatePlan,
        dimensions: &[Dimension],
    ) -> DFResult<Option<RecordBatch>> {
        let columns = match self {
            States::Plain(mut accumulators) => {
                let mut columns = Vec::new();
                for accumulator in &mut accumulators {
                    for state in accumulator.state()? {
                        columns.push(state.to_array()?);
                    }
                }
                columns
            }
            States::Grouped(grouped) if grouped.combinations.is_empty() => return Ok(None),
            States::Grouped(grouped) => grouped.finish(plan, dimensions)?,
        };
        Ok(Some(RecordBatch::try_new(Arc::clone(&plan.schema), columns)?))
    }
}

impl GroupedStates {
    /// Finds the groups of joined rows, those that are new included.
    fn find_groups(&mut self, dimensions: &[Dimension], joined: &JoinedRows<'_>) {
        self.indices.clear();
        self.indices.resize(joined.selection.len(), 0);
        for &(dimension, weight) in &self.digits {
            let Some(groups) = &dimensions[dimension].groups else { continue };
            for (index, row) in self.indices.iter_mut().zip(&joined.rows[dimension]) {
                *index += groups.codes[*row as usize] as usize * weight;
            }
        }
        for index in &mut self.indices {
            let group = &mut self.groups[*index];
            if *group == 0 {
                self.combinations.push(*index as u32);
                *group = self.combinations.len() as u32;
            }
            *index = *group as usize - 1;
        }
    }

    fn bytes(&self) -> usize {
        let states: usize = self.accumulators.iter().map(|accumulator| accumulator.size()).sum();
        let arrays = self.groups.len() + self.combinations.capacity();
        states + arrays * size_of::<u32>() + self.indices.capacity() * size_of::<usize>()
    }

    fn finish(mut self, plan: &AggregatePlan, dimensions: &[Dimension]) -> DFResult<Vec<ArrayRef>> {
        let mut columns = Vec::with_capacity(plan.schema.fields().len());
        for key in &plan.keys {
            let digit = self.digits.iter().find(|(dimension, _)| *dimension == key.dimension);
            let (Some((_, weight)), Some(groups)) = (digit, &dimensions[key.dimension].groups) else {
                return internal_err!("a group key of a star join has no codes");
            };
            let codes = self.combinations.iter().map(|combination| {
                let code = *combination as usize / weight % groups.count;
                code as u32
            });
            columns.push(take(&groups.values[key.at], &UInt32Array::from_iter_values(codes), None)?);
        }
        for accumulator in &mut self.accumulators {
            columns.extend(accumulator.state(EmitTo::All)?);
        }
        Ok(columns)
    }
}
