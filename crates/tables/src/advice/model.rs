//! Recorded workload beside the statistics of its table: what all of it costs in a design.

use crate::advice::Change;
use crate::catalog::{NewLayout, with_layout};
use crate::cost::{AccessPath, Design, PathCost, QueryProfile, TableStatistics};
use crate::schema::definition::TableLayout;
use crate::table::Table;
use crate::workload::{QueryClass, RowCounts};

/// Least measured time from which the speed of the machine is concluded, in nanoseconds.
const MEASURED_NS_MIN: f64 = 1e6;
/// Greatest factor between measured and predicted times that is believed.
const SCALE_MAX: f64 = 8.0;

/// Queries of a class, with examples.
pub(super) struct ModelledClass {
    pub(super) class: QueryClass,
    pub(super) runs: f64,
    /// Runs that were timed, and their nanoseconds.
    timed: (f64, f64),
    pub(super) profiles: Vec<QueryProfile>,
}

/// Workload with what the cost model needs.
pub(super) struct WorkloadModel<'s> {
    pub(super) statistics: &'s TableStatistics,
    pub(super) classes: Vec<ModelledClass>,
    rows: RowCounts,
    /// Names of the visible columns.
    names: Vec<String>,
}

impl ModelledClass {
    /// Mean nanoseconds of a run.
    pub(super) fn query_ns(&self, statistics: &TableStatistics, design: &Design) -> f64 {
        let sum: f64 = self.profiles.iter().map(|profile| design.query_ns(statistics, profile)).sum();
        sum / self.profiles.len().max(1) as f64
    }

    /// Mean share of the rows that meet the conditions.
    pub(super) fn share(&self) -> f64 {
        let sum: f64 = self.profiles.iter().map(QueryProfile::share).sum();
        sum / self.profiles.len().max(1) as f64
    }
}

impl<'s> WorkloadModel<'s> {
    pub(super) fn new(table: &Table, statistics: &'s TableStatistics) -> WorkloadModel<'s> {
        let classes = table.workload().classes().into_iter().map(|(class, counts)| {
            let profile = |filters: &std::sync::Arc<[crate::ColumnFilter]>| {
                QueryProfile::new(statistics, filters, &class.columns)
            };
            ModelledClass {
                profiles: counts.examples.iter().map(profile).collect(),
                runs: counts.runs as f64,
                timed: (counts.timed_runs as f64, counts.elapsed.as_nanos() as f64),
                class,
            }
        });
        let columns = table.schema().visible_columns();
        WorkloadModel {
            statistics,
            classes: classes.collect(),
            rows: table.workload().row_counts(),
            names: columns.iter().map(|column| column.name.clone()).collect(),
        }
    }

    /// Predicted nanoseconds of all of it.
    pub(super) fn total_ns(&self, design: &Design) -> f64 {
        let queries: f64 = self.classes.iter().map(|of| of.runs * of.query_ns(self.statistics, design)).sum();
        let (costs, rows) = (design.write_costs(), &self.rows);
        queries
            + rows.read as f64 * costs.read
            + rows.inserted as f64 * costs.insert
            + rows.updated as f64 * costs.update
            + rows.deleted as f64 * costs.delete
    }

    /// Measured time of the recorded scans by what is predicted for them.
    pub(super) fn scale(&self, design: &Design) -> f64 {
        let measured: f64 = self.classes.iter().map(|of| of.timed.1).sum();
        let predicted: f64 =
            self.classes.iter().map(|of| of.timed.0 * of.query_ns(self.statistics, design)).sum();
        if measured < MEASURED_NS_MIN || predicted <= 0.0 {
            return 1.0;
        }
        (measured / predicted).clamp(SCALE_MAX.recip(), SCALE_MAX)
    }

    /// Reason of a change: the queries that gain most, or the writes.
    pub(super) fn why(&self, change: &Change, before: &Design, after: &Design, scale: f64) -> String {
        if let Change::DropIndex(name) = change {
            let written = self.rows.inserted + self.rows.updated + self.rows.deleted;
            return format!("no recorded query used {name}, and {written} rows were written into it");
        }
        let statistics = self.statistics;
        let gain = |of: &&ModelledClass| {
            of.runs * (of.query_ns(statistics, before) - of.query_ns(statistics, after))
        };
        let class = self.classes.iter().max_by(|first, second| gain(first).total_cmp(&gain(second)));
        match class.filter(|class| gain(class) > 0.0) {
            Some(class) => self.why_queries(class, before, after, scale),
            None => self.why_rows(before, after, scale),
        }
    }

    fn why_queries(&self, class: &ModelledClass, before: &Design, after: &Design, scale: f64) -> String {
        let name = |column: usize| self.names.get(column).map_or("?", String::as_str);
        let conditions: Vec<String> = class
            .class
            .conditions
            .iter()
            .map(|(column, kind)| format!("{} ({kind})", name(*column)))
            .collect();
        let asked = if conditions.is_empty() {
            format!("{} queries read {} columns of all rows", class.runs, class.class.columns.len())
        } else {
            format!("{} queries have conditions on {}", class.runs, conditions.join(", "))
        };
        let path =
            |design: &Design| class.profiles.first().map(|profile| design.taken(self.statistics, profile));
        // Of a query without conditions all rows.
        let of_rows = format!("{:.3}% of {} rows", class.share() * 100.0, self.statistics.rows.round());
        let (before, after) = (shown(path(before), scale), shown(path(after), scale));
        format!("{asked}, which {of_rows} meet: {before} each, {after} then")
    }

    fn why_rows(&self, before: &Design, after: &Design, scale: f64) -> String {
        let rows = &self.rows;
        let us = |ns: f64| ns * scale / 1e3;
        let (now, then) = (before.write_costs(), after.write_costs());
        format!(
            "{} rows were read by key and {} written: {:.1} and {:.1} us each, {:.1} and {:.1} us then",
            rows.read,
            rows.inserted + rows.updated + rows.deleted,
            us(now.read),
            us(now.update),
            us(then.read),
            us(then.update)
        )
    }
}

/// Time and path: `1.204 ms by columns`.
fn shown(path: Option<PathCost>, scale: f64) -> String {
    path.map_or_else(String::new, |cost| {
        let by = match cost.path {
            AccessPath::Index(name) if name.is_empty() => "a btree index".to_owned(),
            AccessPath::Elf(name) if name.is_empty() => "an elf".to_owned(),
            path => path.to_string(),
        };
        format!("{:.3} ms by {by}", cost.ns * scale / 1e6)
    })
}

/// Returns true if a table can have a layout, and nothing that was asked for ends with the change to it.
pub(super) fn may_have(table: &Table, new: &NewLayout) -> bool {
    // By rows its version history would begin anew.
    let keeps_history = new.layout != TableLayout::Rows || table.history_bounds().is_none();
    keeps_history && with_layout(table, new).is_ok()
}
