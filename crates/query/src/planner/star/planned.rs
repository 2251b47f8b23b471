//! Stars as planned, and the operator that one becomes.

use crate::planner::key_filters::offers::{Offer, offered};
use crate::planner::star::aggregate::AggregatePlan;
use crate::planner::star::conditions::Conditions;
use crate::planner::star::dimension::DimensionPlan;
use crate::planner::star::exec::{StarJoinExec, StarPlan};
use crate::planner::star::gather::{JoinedColumns, Origin};
use crate::planner::star::sideways;
use datafusion::arrow::datatypes::{FieldRef, SchemaRef};
use datafusion::common::Result as DFResult;
use datafusion::common::config::ConfigOptions;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::DynamicFilterPhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;
use std::sync::Arc;

/// Dimension of a star.
pub(super) struct Arm {
    /// Table, with a number where it is in the star several times.
    pub(super) name: String,
    pub(super) table: String,
    pub(super) input: Arc<dyn ExecutionPlan>,
    /// Key column of the fact, and that of the dimension.
    pub(super) keys: [usize; 2],
    /// True if it only matters that there is a row.
    pub(super) exists: bool,
    /// Wide columns that its columns are.
    pub(super) columns: Vec<usize>,
}

/// Star of a tree.
pub(super) struct Star {
    pub(super) name: String,
    pub(super) fact: Arc<dyn ExecutionPlan>,
    pub(super) arms: Vec<Arm>,
    /// Origin of each wide column of the tree.
    pub(super) origins: Vec<Origin>,
    /// Further conditions on joined rows, of wide columns.
    pub(super) conditions: Vec<Arc<dyn PhysicalExpr>>,
}

/// Columns of dimensions that joined rows have, and group keys of each.
pub(super) struct NeededColumns {
    pub(super) columns: Vec<Vec<usize>>,
    pub(super) groups: Vec<Vec<Arc<dyn PhysicalExpr>>>,
}

impl Star {
    /// Nothing that joined rows need of the dimensions yet.
    pub(super) fn no_needs(&self) -> NeededColumns {
        NeededColumns {
            columns: vec![Vec::new(); self.arms.len()],
            groups: vec![Vec::new(); self.arms.len()],
        }
    }

    /// Operator that joins, without an aggregation; outputs are expressions of wide columns, `fields` their fields.
    pub(super) fn joined(
        self,
        fields: &[FieldRef],
        outputs: &[Arc<dyn PhysicalExpr>],
        schema: SchemaRef,
        config: &ConfigOptions,
    ) -> DFResult<Arc<dyn ExecutionPlan>> {
        let needed = self.no_needs();
        self.operator((fields, outputs, schema), None, needed, config)
    }

    /// Operator that joins, and perhaps aggregates.
    pub(super) fn operator(
        self,
        (fields, outputs, schema): (&[FieldRef], &[Arc<dyn PhysicalExpr>], SchemaRef),
        aggregate: Option<Arc<AggregatePlan>>,
        mut needed: NeededColumns,
        config: &ConfigOptions,
    ) -> DFResult<Arc<dyn ExecutionPlan>> {
        let joined = JoinedColumns::new(outputs.iter(), fields, &self.origins, &mut needed.columns);
        let outputs = outputs.iter().map(|output| joined.expr(output)).collect::<DFResult<_>>()?;
        let conditions = Conditions::new(&self.conditions, fields, &self.origins, &mut needed.columns)?;
        let (fact, filters) = self.with_filters(config)?;
        let mut inputs = vec![fact];
        let mut dimensions = Vec::new();
        let arms = self.arms.into_iter().zip(needed.columns).zip(needed.groups);
        for ((arm, columns), groups) in arms {
            let [fact_key, key] = arm.keys;
            // Groups of a plan that is not aggregated here are none of its concern.
            let groups = if aggregate.is_some() { groups } else { Vec::new() };
            let (name, exists) = (arm.name, arm.exists);
            dimensions.push(Arc::new(DimensionPlan { name, fact_key, key, exists, columns, groups }));
            inputs.push(arm.input);
        }
        let plan = Arc::new(StarPlan { fact: self.name, dimensions, joined, outputs, conditions, schema });
        Ok(Arc::new(StarJoinExec::new(plan, aggregate, inputs, filters)))
    }

    /// The fact, and the filter that its scan has taken for each dimension.
    #[expect(clippy::type_complexity, reason = "a pair that is taken apart at once")]
    fn with_filters(
        &self,
        config: &ConfigOptions,
    ) -> DFResult<(Arc<dyn ExecutionPlan>, Vec<Option<Arc<DynamicFilterPhysicalExpr>>>)> {
        let schema = self.fact.schema();
        let of_arm = |arm: &Arm| sideways::filter(schema.field(arm.keys[0]).name(), arm.keys[0]);
        let filters: Vec<_> = self.arms.iter().map(of_arm).collect();
        let offers = self.arms.iter().zip(&filters).map(|(arm, filter)| Offer {
            column: arm.keys[0],
            filter: Arc::clone(filter) as Arc<dyn PhysicalExpr>,
        });
        Ok(match offered(&self.fact, offers.collect(), config)? {
            Some(fact) => (fact, filters.into_iter().map(Some).collect()),
            None => (Arc::clone(&self.fact), vec![None; filters.len()]),
        })
    }
}
