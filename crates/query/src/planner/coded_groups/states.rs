//! States of the aggregates of groups whose keys have codes.

use crate::planner::partial_states::condition;
use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::{Result as DFResult, internal_err};
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use datafusion::physical_plan::aggregates::AggregateExec;
use entresol_tables::{AddedRows, GroupCodes};
use std::sync::Arc;

/// Codes of the groups of an aggregation, of which there are none yet; none if its keys have no codes.
pub(super) fn codes(plan: &AggregateExec) -> DFResult<Option<GroupCodes>> {
    let schema = plan.input_schema();
    let types = plan.group_expr().expr().iter().map(|(key, _)| key.data_type(&schema));
    Ok(GroupCodes::new(&types.collect::<DFResult<Vec<DataType>>>()?))
}

/// Groups and states of one partition.
pub(super) struct CodedStates<'p> {
    plan: &'p AggregateExec,
    groups: GroupCodes,
    accumulators: Vec<Box<dyn GroupsAccumulator>>,
}

impl<'p> CodedStates<'p> {
    /// No groups yet; none if keys of an aggregation have no codes.
    pub(super) fn of(plan: &'p AggregateExec) -> DFResult<Option<CodedStates<'p>>> {
        let Some(groups) = codes(plan)? else { return Ok(None) };
        let functions = plan.aggr_expr().iter();
        let accumulators = functions.map(|function| function.create_groups_accumulator());
        Ok(Some(CodedStates { plan, groups, accumulators: accumulators.collect::<DFResult<_>>()? }))
    }

    /// Adds the rows of a batch. False if there are too many codes for it: then it has added none.
    pub(super) fn add(&mut self, batch: &RecordBatch) -> DFResult<bool> {
        let rows = batch.num_rows();
        let keys = self.plan.group_expr().expr().iter();
        let keys = keys.map(|(key, _)| key.evaluate(batch)?.into_array(rows));
        let keys = keys.collect::<DFResult<Vec<ArrayRef>>>()?;
        match self.groups.add(&keys) {
            AddedRows::All => {}
            AddedRows::TooManyCodes => return Ok(false),
            AddedRows::OtherType => return internal_err!("a group key is of another type than planned"),
        }
        let functions = self.plan.aggr_expr().iter().zip(self.plan.filter_expr());
        for (accumulator, (function, filter)) in self.accumulators.iter_mut().zip(functions) {
            let values =
                function.expressions().into_iter().map(|value| value.evaluate(batch)?.into_array(rows));
            let values = values.collect::<DFResult<Vec<ArrayRef>>>()?;
            let filter = filter.as_ref().map(|filter| condition(filter, batch)).transpose()?;
            accumulator.update_batch(&values, self.groups.of_rows(), filter.as_ref(), self.groups.len())?;
        }
        Ok(true)
    }

    /// Bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        let states: usize = self.accumulators.iter().map(|accumulator| accumulator.size()).sum();
        self.groups.bytes() + states
    }

    /// Keys and states of all groups, as the aggregation above takes them; none without groups.
    pub(super) fn finish(mut self, schema: &SchemaRef) -> DFResult<Option<RecordBatch>> {
        if self.groups.is_empty() {
            return Ok(None);
        }
        let mut columns = self.groups.keys();
        for accumulator in &mut self.accumulators {
            columns.extend(accumulator.state(EmitTo::All)?);
        }
        Ok(Some(RecordBatch::try_new(Arc::clone(schema), columns)?))
    }
}
