//! Dynamic filters of a copy of a plan: filters of its own in the place of those of the plan.
//!
//! An operator that learns something of its rows, a join of its keys say, makes it known to scans by a filter that
//! both hold. A copy that shared it would begin with what another run has learned. So a plan is copied
//! from an operator that makes a filter down to the scans that hold it, and both get the new one.

use datafusion::common::Result as DFResult;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{DynamicFilterPhysicalExpr, lit};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Filters of a copy by the identifiers of those of the plan; see the [module](self).
#[derive(Debug, Default)]
pub(crate) struct FreshFilters(BTreeMap<u64, Arc<DynamicFilterPhysicalExpr>>);

impl FreshFilters {
    /// New filter in the place of one that an operator makes known, which knows nothing yet.
    pub(crate) fn replacement(
        &mut self,
        filter: &DynamicFilterPhysicalExpr,
    ) -> Arc<DynamicFilterPhysicalExpr> {
        let columns = filter.children().into_iter().cloned().collect();
        let fresh = Arc::new(DynamicFilterPhysicalExpr::new(columns, lit(true)));
        self.replace(filter, Arc::clone(&fresh));
        fresh
    }

    /// Puts a new filter in the place of one that an operator makes known.
    pub(crate) fn replace(
        &mut self,
        filter: &DynamicFilterPhysicalExpr,
        fresh: Arc<DynamicFilterPhysicalExpr>,
    ) {
        if let Some(identifier) = filter.expression_id() {
            self.0.insert(identifier, fresh);
        }
    }

    /// Filter of the copy in the place of one that a scan holds, over the same columns of the scan; `None` if no
    /// operator of the copy makes it known: the scan goes without it.
    pub(crate) fn held(&self, filter: &Arc<dyn PhysicalExpr>) -> DFResult<Option<Arc<dyn PhysicalExpr>>> {
        let fresh = filter.expression_id().and_then(|identifier| self.0.get(&identifier));
        let columns = || filter.children().into_iter().cloned().collect();
        fresh
            .map(|fresh| (Arc::clone(fresh) as Arc<dyn PhysicalExpr>).with_new_children(columns()))
            .transpose()
    }
}
