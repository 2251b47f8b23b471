//! EXPLAIN (COSTS): what the cost model expects of the scans of a plan, beside the paths that were not taken.
//!
//! Times are of one processor, of the scan alone: the operators above it are not predicted. With ANALYZE the measured
//! time and rows stand beside those of the path that was taken.

use crate::error::Result;
use crate::planner::scans::access::Access;
use crate::planner::scans::column_scan::EntresolColumnScan;
use crate::planner::scans::scan::EntresolScan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::MetricsSet;
use entresol_tables::cost::{AccessPath, Design, PathCost, QueryProfile, TableStatistics};
use entresol_tables::workload::RecordedScan;
use entresol_tables::{Catalog, Table};
use std::sync::Arc;

/// Scan of a plan, with what its costs depend on.
struct CostedScan<'p> {
    table: &'p Arc<Table>,
    record: &'p RecordedScan,
    /// Path of a scan row by row; one by columns asks Elfs as it goes.
    path: Option<AccessPath>,
    metrics: Option<MetricsSet>,
}

/// Lines about the scans of a plan, with what was measured if it was run.
pub(crate) fn lines(
    catalog: &Catalog,
    plan: &Arc<dyn ExecutionPlan>,
    is_measured: bool,
) -> Result<Vec<String>> {
    let (mut scans, mut lines) = (Vec::new(), Vec::new());
    collect(plan, &mut scans);
    let tx = catalog.begin()?;
    for scan in scans {
        let statistics = TableStatistics::of(scan.table, &tx)?;
        lines.extend(scan.lines(&statistics, is_measured));
    }
    Ok(lines)
}

/// Adds the scans of a plan, those of its leaves from left to right.
fn collect<'p>(plan: &'p Arc<dyn ExecutionPlan>, scans: &mut Vec<CostedScan<'p>>) {
    let metrics = plan.metrics();
    if let Some(scan) = plan.downcast_ref::<EntresolScan>() {
        let costed = scan.record().map(|record| CostedScan {
            table: scan.table(),
            record,
            path: Some(path_of(scan.access())),
            metrics,
        });
        scans.extend(costed);
    } else if let Some(scan) = plan.downcast_ref::<EntresolColumnScan>() {
        let costed =
            scan.record().map(|record| CostedScan { table: scan.table(), record, path: None, metrics });
        scans.extend(costed);
    }
    plan.children().into_iter().for_each(|child| collect(child, scans));
}

/// Path of the cost model for an access.
fn path_of(access: &Access) -> AccessPath {
    match access {
        Access::Full => AccessPath::Rows,
        Access::Point(_) | Access::Keys(_) => AccessPath::Keys,
        Access::Ranges(_) => AccessPath::KeyRange,
        Access::Index { name, .. } => AccessPath::Index(name.clone()),
    }
}

impl CostedScan<'_> {
    /// Lines of its paths, the one that was taken first.
    fn lines(&self, statistics: &TableStatistics, is_measured: bool) -> Vec<String> {
        let query = QueryProfile::new(statistics, self.record.filters(), &self.record.class().columns);
        let paths = Design::of(self.table).paths(statistics, &query);
        let is_taken = |cost: &PathCost| match &self.path {
            Some(path) => cost.path == *path,
            None => matches!(cost.path, AccessPath::Columns | AccessPath::Elf(_)),
        };
        let taken = paths.iter().position(is_taken);
        let structure = match &self.table.definition().structure_reason {
            Some(why) => format!(", structure 'auto': {why}"),
            None if self.table.has_row_groups() => String::new(),
            None => format!(", structure {}", self.table.definition().structure),
        };
        let head = format!("Costs of {} ({} rows{structure}):", self.table.name(), statistics.rows.round());
        let first = taken.map(|at| format!("{}, taken{}", shown(&paths[at]), self.measured(is_measured)));
        let others = paths.iter().enumerate().filter(|(at, _)| Some(*at) != taken);
        let others = others.map(|(_, cost)| shown(cost));
        [head].into_iter().chain(first.into_iter().chain(others).map(|line| format!("  {line}"))).collect()
    }

    /// Measured rows and time.
    fn measured(&self, is_measured: bool) -> String {
        let Some(metrics) = self.metrics.as_ref().filter(|_| is_measured) else { return String::new() };
        // The model expects rows that are read, not those that filters let pass.
        let rows_read = metrics.sum_by_name("rows_read").map(|rows| rows.as_usize());
        let rows = rows_read.or(metrics.output_rows()).unwrap_or(0);
        let ns = metrics.elapsed_compute().unwrap_or(0) as f64;
        format!("; measured rows={rows} time={:.3} ms", ns / 1e6)
    }
}

/// Path with its rows and time.
fn shown(cost: &PathCost) -> String {
    format!("{}: rows={} time={:.3} ms", cost.path, cost.rows.round(), cost.ns / 1e6)
}
