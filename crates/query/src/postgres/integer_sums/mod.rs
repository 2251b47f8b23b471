//! Sum of BIGINTs as a NUMERIC, without a NUMERIC for each value.
//!
//! To DataFusion such a sum is one of DECIMALs, of arguments that are cast to [`SUMMED`](crate::postgres::number_types::SUMMED): a check of the precision and 16 bytes
//! for each row. Here BIGINTs are added up in 128 bits, which as many rows as there may be do not exceed.
//!
//! - The sum has the name, the result and the state of DataFusion's, so rules, star joins and final aggregations know it.
//! - Sums of DECIMALs are DataFusion's: those of sums of BIGINTs, which DataFusion's rule for one DISTINCT argument plans.
//! - Memory of a sum: 16 bytes and a bit for each group.

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, Decimal128Builder, Int64Array,
};
use datafusion::arrow::compute;
use datafusion::arrow::datatypes::{
    ArrowPrimitiveType, DataType, Decimal128Type, Field, FieldRef, Int64Type,
};
use datafusion::common::{Result as DFResult, ScalarValue, internal_err};
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, ReversedUDAF, Signature,
    Volatility,
};
use datafusion::physical_expr::NullState;
use std::sync::{Arc, LazyLock};

/// Digits of a sum, as DataFusion has them of a sum of arguments that are cast.
const PRECISION: u8 = 29;

/// Type of a sum.
const SUM: DataType = DataType::Decimal128(PRECISION, 0);

/// The aggregate.
pub(crate) fn function() -> Arc<AggregateUDF> {
    static FUNCTION: LazyLock<Arc<AggregateUDF>> = LazyLock::new(|| {
        let signature = Signature::user_defined(Volatility::Immutable);
        Arc::new(AggregateUDF::from(IntegerSum { decimals: sum_udaf(), signature }))
    });
    Arc::clone(&FUNCTION)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct IntegerSum {
    /// Sum of DECIMALs.
    decimals: Arc<AggregateUDF>,
    signature: Signature,
}

/// Returns true if the argument of a sum is a BIGINT.
fn is_of_integers(arguments: &[FieldRef]) -> bool {
    arguments.first().is_some_and(|argument| *argument.data_type() == DataType::Int64)
}

impl AggregateUDFImpl for IntegerSum {
    fn name(&self) -> &str {
        self.decimals.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> DFResult<Vec<DataType>> {
        match arguments {
            [DataType::Int64 | DataType::Decimal128(..)] => Ok(arguments.to_vec()),
            other => internal_err!("a sum of BIGINTs does not take {other:?}"),
        }
    }

    fn return_type(&self, arguments: &[DataType]) -> DFResult<DataType> {
        match arguments {
            [DataType::Int64] => Ok(SUM),
            other => self.decimals.return_type(other),
        }
    }

    fn accumulator(&self, arguments: AccumulatorArgs<'_>) -> DFResult<Box<dyn Accumulator>> {
        if is_of_integers(arguments.expr_fields) {
            return Ok(Box::new(IntegerSumState::default()));
        }
        self.decimals.accumulator(arguments)
    }

    fn create_sliding_accumulator(&self, arguments: AccumulatorArgs<'_>) -> DFResult<Box<dyn Accumulator>> {
        if is_of_integers(arguments.expr_fields) {
            return Ok(Box::new(IntegerSumState::default()));
        }
        self.decimals.create_sliding_accumulator(arguments)
    }

    fn state_fields(&self, arguments: StateFieldsArgs<'_>) -> DFResult<Vec<FieldRef>> {
        if !is_of_integers(arguments.input_fields) {
            return self.decimals.state_fields(arguments);
        }
        let name = format_state_name(arguments.name, "sum");
        Ok(vec![Arc::new(Field::new(name, SUM, true))])
    }

    fn groups_accumulator_supported(&self, arguments: AccumulatorArgs<'_>) -> bool {
        is_of_integers(arguments.expr_fields) || self.decimals.groups_accumulator_supported(arguments)
    }

    fn create_groups_accumulator(
        &self,
        arguments: AccumulatorArgs<'_>,
    ) -> DFResult<Box<dyn GroupsAccumulator>> {
        if is_of_integers(arguments.expr_fields) {
            return Ok(Box::new(GroupedIntegerSums { sums: Vec::new(), seen: NullState::new() }));
        }
        self.decimals.create_groups_accumulator(arguments)
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }
}

/// Array that is the only argument or field of the state of a sum.
fn only(arrays: &[ArrayRef]) -> DFResult<&ArrayRef> {
    match arrays {
        [array] => Ok(array),
        other => internal_err!("a sum takes one column, found {}", other.len()),
    }
}

/// Sum of the values that are not NULL.
fn sum_of(values: &Int64Array) -> i128 {
    let wide = |values: &[i64]| values.iter().map(|value| i128::from(*value)).sum::<i128>();
    match values.nulls() {
        None => wide(values.values()),
        Some(valid) => valid.valid_slices().map(|(from, to)| wide(&values.values()[from..to])).sum(),
    }
}

/// Sum of one group, or of a frame, and the number of its values.
#[derive(Debug, Default)]
struct IntegerSumState {
    sum: i128,
    count: usize,
}

impl Accumulator for IntegerSumState {
    fn update_batch(&mut self, arrays: &[ArrayRef]) -> DFResult<()> {
        let values = only(arrays)?.as_primitive::<Int64Type>();
        self.sum += sum_of(values);
        self.count += values.len() - values.null_count();
        Ok(())
    }

    fn retract_batch(&mut self, arrays: &[ArrayRef]) -> DFResult<()> {
        let values = only(arrays)?.as_primitive::<Int64Type>();
        self.sum -= sum_of(values);
        self.count -= values.len() - values.null_count();
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    /// Adds sums; the count is then that of sums, of which it only matters whether there is one.
    fn merge_batch(&mut self, states: &[ArrayRef]) -> DFResult<()> {
        let sums = only(states)?.as_primitive::<Decimal128Type>();
        self.sum += compute::sum(sums).unwrap_or_default();
        self.count += sums.len() - sums.null_count();
        Ok(())
    }

    fn evaluate(&mut self) -> DFResult<ScalarValue> {
        let sum = (self.count > 0).then_some(self.sum);
        Ok(ScalarValue::Decimal128(sum, PRECISION, 0))
    }

    fn state(&mut self) -> DFResult<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn size(&self) -> usize {
        size_of::<IntegerSumState>()
    }
}

/// Sums by group.
#[derive(Debug)]
struct GroupedIntegerSums {
    sums: Vec<i128>,
    /// Groups that have a value.
    seen: NullState,
}

impl GroupedIntegerSums {
    fn add<T: ArrowPrimitiveType<Native: Into<i128>> + Send>(
        &mut self,
        array: &ArrayRef,
        groups: &[usize],
        filter: Option<&BooleanArray>,
        groups_total: usize,
    ) {
        self.sums.resize(groups_total, 0);
        let sums = &mut self.sums;
        self.seen.accumulate(groups, array.as_primitive::<T>(), filter, groups_total, |group, value| {
            sums[group] += value.into();
        });
    }
}

impl GroupsAccumulator for GroupedIntegerSums {
    fn update_batch(
        &mut self,
        arrays: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        groups_total: usize,
    ) -> DFResult<()> {
        self.add::<Int64Type>(only(arrays)?, groups, filter, groups_total);
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], groups_total: usize) -> DFResult<()> {
        self.add::<Decimal128Type>(only(states)?, groups, None, groups_total);
        Ok(())
    }

    fn evaluate(&mut self, emitted: EmitTo) -> DFResult<ArrayRef> {
        let sums = emitted.take_needed(&mut self.sums);
        let sums = Decimal128Array::new(sums.into(), self.seen.build(emitted));
        Ok(Arc::new(sums.with_data_type(SUM)))
    }

    fn state(&mut self, emitted: EmitTo) -> DFResult<Vec<ArrayRef>> {
        Ok(vec![self.evaluate(emitted)?])
    }

    /// States of rows that are groups of their own.
    fn convert_to_state(
        &self,
        arrays: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> DFResult<Vec<ArrayRef>> {
        let values = only(arrays)?.as_primitive::<Int64Type>();
        let is_counted = |row: usize| filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row));
        let mut sums = Decimal128Builder::with_capacity(values.len()).with_data_type(SUM);
        for (row, value) in values.iter().enumerate() {
            sums.append_option(value.filter(|_| is_counted(row)).map(i128::from));
        }
        Ok(vec![Arc::new(sums.finish())])
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<i128>() + self.seen.size()
    }
}

#[cfg(test)]
mod tests;
