//! Dimensions: their plans, and what is built of one before the fact is read.
//!
//! - All partitions of a dimension are read at the same time, and so are all dimensions.
//! - Of each batch remain its keys, the columns that joined rows have, and the columns of group keys; group
//!   keys become codes, from 0 without gaps, one for each combination that occurs in the dimension.
//! - Group keys that fail for a row of the dimension, which may join with nothing, leave no codes: they are
//!   computed later, for joined rows.
//! - Memory is reserved in the pool of the query as batches come, and for a map before it is made.

use crate::planner::star::keys::{KeyColumn, KeyMap, KeyMapBuilder, KeyRange, LookupResult};
use crate::planner::star::turn::Turn;
use datafusion::arrow::array::{Array, ArrayRef, RecordBatch, new_empty_array};
use datafusion::arrow::compute::concat;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::runtime::JoinSet;
use datafusion::common::{Result as DFResult, exec_datafusion_err};
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::logical_expr::EmitTo;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::aggregates::group_values::new_group_values;
use datafusion::physical_plan::aggregates::order::GroupOrdering;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use futures::StreamExt;
use std::sync::Arc;

/// Dimension as planned.
#[derive(Debug)]
pub(super) struct DimensionPlan {
    pub(super) name: String,
    /// Key column of the fact.
    pub(super) fact_key: usize,
    /// Key column of the dimension.
    pub(super) key: usize,
    /// True if it only matters that there is a row.
    pub(super) exists: bool,
    /// Columns of the dimension that joined rows have.
    pub(super) columns: Vec<usize>,
    /// Group keys that are computed of this dimension alone.
    pub(super) groups: Vec<Arc<dyn PhysicalExpr>>,
}

/// Codes of the group keys of a dimension.
#[derive(Debug)]
pub(super) struct GroupCodes {
    /// Code of each row.
    pub(super) codes: Vec<u32>,
    /// Group keys of each code.
    pub(super) values: Vec<ArrayRef>,
    /// Number of codes.
    pub(super) count: usize,
}

/// Dimension that was read.
#[derive(Debug)]
pub(super) struct Dimension {
    pub(super) keys: Arc<KeyMap>,
    /// Columns as in [`DimensionPlan::columns`]; those that were not asked for are empty.
    pub(super) columns: Vec<ArrayRef>,
    /// Codes of the group keys; `None` if they cannot be computed for all rows.
    pub(super) groups: Option<GroupCodes>,
    pub(super) rows: usize,
}

/// Columns of one batch of a dimension.
#[derive(Debug)]
struct Part {
    key: ArrayRef,
    columns: Vec<ArrayRef>,
    /// Group keys, or `None` if they fail.
    groups: Option<Vec<ArrayRef>>,
}

/// All batches of a dimension.
#[derive(Debug)]
pub(super) struct DimensionBatches {
    parts: Vec<Part>,
    schema: SchemaRef,
}

impl Part {
    fn of(plan: &DimensionPlan, batch: &RecordBatch) -> Part {
        let evaluated = plan.groups.iter().map(|group| group.evaluate(batch)?.into_array(batch.num_rows()));
        Part {
            key: Arc::clone(batch.column(plan.key)),
            columns: plan.columns.iter().map(|&column| Arc::clone(batch.column(column))).collect(),
            groups: evaluated.collect::<DFResult<_>>().ok(),
        }
    }

    fn bytes(&self) -> DFResult<usize> {
        let arrays = self.columns.iter().chain([&self.key]).chain(self.groups.iter().flatten());
        let mut bytes = 0;
        for array in arrays {
            bytes += array.to_data().get_slice_memory_size()?;
        }
        Ok(bytes)
    }
}

/// Reads all partitions of a dimension.
pub(super) async fn collect(
    plan: &Arc<DimensionPlan>,
    input: &Arc<dyn ExecutionPlan>,
    context: &Arc<TaskContext>,
    reservation: &Arc<MemoryReservation>,
) -> DFResult<DimensionBatches> {
    let mut tasks = JoinSet::new();
    for partition in 0..input.output_partitioning().partition_count() {
        let mut rows = input.execute(partition, Arc::clone(context))?;
        let (plan, reservation) = (Arc::clone(plan), Arc::clone(reservation));
        tasks.spawn(async move {
            let mut parts = Vec::new();
            while let Some(batch) = rows.next().await {
                let part = Part::of(&plan, &batch?);
                reservation.try_grow(part.bytes()?)?;
                parts.push(part);
            }
            Ok::<_, DataFusionError>((partition, parts))
        });
    }
    let mut collected = Vec::new();
    while let Some(finished) = tasks.join_next().await {
        collected.push(finished.map_err(|error| exec_datafusion_err!("a dimension was not read: {error}"))??);
    }
    collected.sort_by_key(|(partition, _)| *partition);
    let parts = collected.into_iter().flat_map(|(_, parts)| parts).collect();
    Ok(DimensionBatches { parts, schema: input.schema() })
}

impl DimensionBatches {
    /// Builds the dimension, without its columns.
    pub(super) async fn build(
        &self,
        plan: &DimensionPlan,
        reservation: &MemoryReservation,
    ) -> DFResult<Dimension> {
        let mut turn = Turn::begin();
        let mut range = KeyRange::default();
        let mut rows = 0;
        for part in &self.parts {
            range.extend(&KeyColumn::of(&part.key)?);
            rows += part.key.len();
            turn.yield_if_over().await;
        }
        if rows >= u32::MAX as usize {
            return Err(exec_datafusion_err!("dimension {} of a star join has {rows} rows", plan.name));
        }
        let bytes = range.bytes(rows);
        reservation.try_grow(bytes)?;
        let has_columns = !plan.columns.is_empty() || !plan.groups.is_empty();
        let mut wanted = if has_columns { LookupResult::Rows } else { LookupResult::Matches };
        if plan.exists {
            wanted = LookupResult::Keys;
        }
        let keys = loop {
            if let Some(keys) = self.map(&range, rows, wanted, &mut turn).await? {
                break keys;
            }
            wanted = LookupResult::Rows;
        };
        reservation.shrink(bytes.saturating_sub(keys.bytes()));
        let groups = self.groups(plan, rows, reservation, &mut turn).await?;
        Ok(Dimension { keys: Arc::new(keys), columns: Vec::new(), groups, rows })
    }

    /// Map of the keys; `None` if it needs rows and has none.
    async fn map(
        &self,
        range: &KeyRange,
        rows: usize,
        wanted: LookupResult,
        turn: &mut Turn,
    ) -> DFResult<Option<KeyMap>> {
        let mut builder = KeyMapBuilder::new(range, rows, wanted);
        for part in self.parts.iter().rev() {
            if !builder.push_before(&KeyColumn::of(&part.key)?) {
                return Ok(None);
            }
            turn.yield_if_over().await;
        }
        Ok(Some(builder.finish()))
    }

    async fn groups(
        &self,
        plan: &DimensionPlan,
        rows: usize,
        reservation: &MemoryReservation,
        turn: &mut Turn,
    ) -> DFResult<Option<GroupCodes>> {
        if plan.groups.is_empty() {
            return Ok(Some(GroupCodes { codes: Vec::new(), values: Vec::new(), count: 1 }));
        }
        let fields = plan.groups.iter().map(|group| group.return_field(&self.schema));
        let schema = Arc::new(Schema::new(fields.collect::<DFResult<Vec<_>>>()?));
        let mut interned = new_group_values(schema, &GroupOrdering::None)?;
        reservation.try_grow(rows * size_of::<u32>())?;
        let mut codes = Vec::with_capacity(rows);
        let mut found = Vec::new();
        for part in &self.parts {
            let Some(groups) = &part.groups else { return Ok(None) };
            let before = interned.size();
            interned.intern(groups, &mut found)?;
            reservation.try_grow(interned.size().saturating_sub(before))?;
            codes.extend(found.iter().map(|code| *code as u32));
            turn.yield_if_over().await;
        }
        let count = interned.len();
        let values = interned.emit(EmitTo::All)?;
        Ok(Some(GroupCodes { codes, values, count }))
    }

    /// Columns of all batches, those that `is_needed`; the others are empty.
    pub(super) fn columns(
        &self,
        plan: &DimensionPlan,
        is_needed: impl Fn(usize) -> bool,
    ) -> DFResult<Vec<ArrayRef>> {
        let all = plan.columns.iter().enumerate().map(|(at, &column)| {
            let arrays = || self.parts.iter().map(move |part| part.columns[at].as_ref());
            if self.parts.is_empty() || !is_needed(at) {
                return Ok(new_empty_array(self.schema.field(column).data_type()));
            }
            Ok(concat(&arrays().collect::<Vec<&dyn Array>>())?)
        });
        all.collect()
    }

    /// Memory of all columns of all batches.
    pub(super) fn bytes(&self) -> DFResult<usize> {
        self.parts.iter().map(Part::bytes).sum()
    }
}
