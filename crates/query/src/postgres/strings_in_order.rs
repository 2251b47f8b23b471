//! `string_agg`, several times with different orders in one query.
//!
//! DataFusion's aggregate asks for rows in its order, and refuses a query in which another asks for a different one, though it
//! sorts the strings of a group itself. Here rows in its order are welcome and not needed, as for `array_agg`.

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::Result as DFResult;
use datafusion::functions_aggregate::string_agg::string_agg_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, ReversedUDAF, Signature,
};
use std::sync::Arc;

/// The aggregate.
pub(crate) fn aggregate() -> AggregateUDF {
    AggregateUDF::from(StringsInOrder { inner: string_agg_udaf() })
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct StringsInOrder {
    inner: Arc<AggregateUDF>,
}

impl AggregateUDFImpl for StringsInOrder {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> DFResult<DataType> {
        self.inner.return_type(arguments)
    }

    fn state_fields(&self, arguments: StateFieldsArgs<'_>) -> DFResult<Vec<FieldRef>> {
        self.inner.state_fields(arguments)
    }

    fn accumulator(&self, arguments: AccumulatorArgs<'_>) -> DFResult<Box<dyn Accumulator>> {
        self.inner.accumulator(arguments)
    }

    fn groups_accumulator_supported(&self, arguments: AccumulatorArgs<'_>) -> bool {
        self.inner.groups_accumulator_supported(arguments)
    }

    fn create_groups_accumulator(
        &self,
        arguments: AccumulatorArgs<'_>,
    ) -> DFResult<Box<dyn GroupsAccumulator>> {
        self.inner.create_groups_accumulator(arguments)
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::SoftRequirement
    }

    /// Same aggregate: the strings of a group are sorted here, whatever the order of the rows.
    fn with_beneficial_ordering(
        self: Arc<Self>,
        _beneficial_ordering: bool,
    ) -> DFResult<Option<Arc<dyn AggregateUDFImpl>>> {
        Ok(Some(self))
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::NotSupported
    }
}
