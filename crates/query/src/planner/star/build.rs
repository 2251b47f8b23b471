//! Dimensions of one execution, which all partitions of the fact share.

use crate::planner::star::aggregate::AggregatePlan;
use crate::planner::star::conditions::Conditions;
use crate::planner::star::dimension::{Dimension, DimensionBatches, DimensionPlan, collect};
use crate::planner::star::exec::DimensionFilters;
use crate::planner::star::gather::JoinedColumns;
use crate::planner::star::sideways;
use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{Result as DFResult, exec_datafusion_err};
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder};
use std::sync::Arc;

/// Dimensions that were read.
#[derive(Debug)]
pub(super) struct Dimensions {
    pub(super) all: Arc<Vec<Dimension>>,
    /// Number of combinations of group keys, if the aggregation is done by their codes.
    pub(super) combinations: Option<usize>,
    /// True if a dimension has no key: then nothing joins.
    pub(super) is_empty: bool,
    /// Memory of them, held as long as they are.
    _reservation: Arc<MemoryReservation>,
}

/// Reads and builds all dimensions, each in its own task.
pub(super) async fn build(
    fact: &Arc<dyn ExecutionPlan>,
    (plans, inputs): (&[Arc<DimensionPlan>], &[Arc<dyn ExecutionPlan>]),
    filters: &DimensionFilters,
    (joined, conditions): (&JoinedColumns, &Conditions),
    aggregate: Option<&AggregatePlan>,
    context: &Arc<TaskContext>,
    metrics: &ExecutionPlanMetricsSet,
) -> DFResult<Dimensions> {
    let time = MetricBuilder::new(metrics).subset_time("build_time", 0);
    let _timer = time.timer();
    let reservation = Arc::new(MemoryConsumer::new("StarJoinExec").register(context.memory_pool()));
    let tasks = plans.iter().zip(inputs).map(|(plan, input)| {
        let (plan, input, context) = (Arc::clone(plan), Arc::clone(input), Arc::clone(context));
        let reservation = Arc::clone(&reservation);
        SpawnedTask::spawn(async move {
            let collected = collect(&plan, &input, &context, &reservation).await?;
            let dimension = collected.build(&plan, &reservation).await?;
            Ok::<_, DataFusionError>((collected, dimension))
        })
    });
    let tasks: Vec<_> = tasks.collect();
    let mut built: Vec<(DimensionBatches, Dimension)> = Vec::with_capacity(plans.len());
    for task in tasks {
        let finished = task.await;
        built.push(finished.map_err(|error| exec_datafusion_err!("a dimension was not built: {error}"))??);
    }
    let (collected, mut all): (Vec<DimensionBatches>, Vec<Dimension>) = built.into_iter().unzip();
    let combinations = aggregate.and_then(|aggregate| aggregate.combinations(&all));
    let needed = match aggregate.filter(|_| combinations.is_some()) {
        Some(aggregate) => &aggregate.joined,
        None => joined,
    };
    for (at, (collected, dimension)) in collected.into_iter().zip(&mut all).enumerate() {
        reservation.try_grow(collected.bytes()?)?;
        dimension.columns =
            collected.columns(&plans[at], |column| needed.has(at, column) || conditions.need(at, column))?;
    }
    let bytes: DFResult<usize> = all.iter().map(bytes).sum();
    reservation.try_resize(bytes?)?;
    for ((plan, dimension), filter) in plans.iter().zip(&all).zip(filters) {
        MetricBuilder::new(metrics).counter(format!("{}_rows", plan.name), 0).add(dimension.rows);
        if let Some(filter) = filter {
            let data_type = fact.schema().field(plan.fact_key).data_type().clone();
            sideways::publish(filter, &dimension.keys, &data_type, &plan.name)?;
        }
    }
    let is_empty = all.iter().any(|dimension| dimension.keys.distinct() == 0);
    Ok(Dimensions { all: Arc::new(all), combinations, is_empty, _reservation: reservation })
}

fn bytes(dimension: &Dimension) -> DFResult<usize> {
    let size = |array: &ArrayRef| Ok(array.to_data().get_slice_memory_size()?);
    let groups = dimension.groups.as_ref();
    let values = groups.into_iter().flat_map(|groups| &groups.values);
    let arrays: DFResult<usize> = dimension.columns.iter().chain(values).map(size).sum();
    let codes = groups.map_or(0, |groups| groups.codes.len() * size_of::<u32>());
    Ok(arrays? + codes + dimension.keys.bytes())
}
