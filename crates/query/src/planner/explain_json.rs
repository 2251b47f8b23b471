//! EXPLAIN (FORMAT JSON): the physical plan as PostgreSQL's tools read it, one row with a tree of JSON.
//!
//! ```text
//! [ { "Plan": { "Node Type": ..., "Relation Name": ..., "Details": ..., "Actual Rows": ..., "Metrics": {...}, "Plans": [...] },
//!     "Costs": [...], "Logical Plan": ..., "Planning Time": ms, "Execution Time": ms } ]
//! ```
//!
//! - A node has the name of DataFusion's operator, and as details what EXPLAIN shows behind that name.
//! - ANALYZE runs the query, whose rows are dropped at once; counts are those of all partitions together, and times
//!   milliseconds of the operator alone. VERBOSE adds the logical plan, COSTS the lines of [`crate::planner::costs`].

use crate::error::{Error, Result};
use crate::planner::costs;
use crate::planner::explain::COLUMN;
use crate::planner::query::plan_query;
use crate::planner::scans::column_scan::EntresolColumnScan;
use crate::planner::scans::scan::EntresolScan;
use crate::postgres::types::with_modifier;
use crate::session::core::SessionCore;
use crate::session::result::{CollectedRows, StatementResult};
use datafusion::arrow::array::StringArray;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::format::{
    ExplainAnalyzeCategories, ExplainFormat, ExplainStatementOptions, MetricCategory,
};
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use datafusion::physical_plan::metrics::{MetricValue, MetricsSet};
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::sql::parser::{ExplainStatement, Statement as DFStatement};
use entresol_tables::Modifier;
use entresol_tables::json::write_string;
use futures::StreamExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Returns true for FORMAT JSON.
pub(crate) fn is_json(options: &ExplainStatementOptions) -> bool {
    options.format == Some(ExplainFormat::PostgresJSON)
}

/// Columns of the result.
pub(crate) fn columns() -> SchemaRef {
    let field = Field::new(COLUMN, DataType::Utf8, false);
    Arc::new(Schema::new(vec![with_modifier(field, Modifier::Json)]))
}

/// Value of a document of JSON.
enum PlanValue {
    String(String),
    Numeral(String),
    List(Vec<PlanValue>),
    Object(Vec<(String, PlanValue)>),
}

impl PlanValue {
    fn milliseconds(time: Duration) -> PlanValue {
        PlanValue::Numeral(format!("{:.3}", time.as_secs_f64() * 1000.0))
    }

    fn lines(lines: Vec<String>) -> PlanValue {
        PlanValue::List(lines.into_iter().map(PlanValue::String).collect())
    }

    /// Appends a value on lines that begin with so many blanks.
    fn write(&self, blanks: usize, out: &mut String) {
        let line = |out: &mut String, at: usize, blanks: usize| {
            out.push_str(if at == 0 { "\n" } else { ",\n" });
            out.push_str(&" ".repeat(blanks));
        };
        let end = |out: &mut String| {
            out.push('\n');
            out.push_str(&" ".repeat(blanks));
        };
        match self {
            PlanValue::String(value) => write_string(value, out),
            PlanValue::Numeral(digits) => out.push_str(digits),
            PlanValue::List(values) => {
                out.push('[');
                for (at, value) in values.iter().enumerate() {
                    line(out, at, blanks + 2);
                    value.write(blanks + 2, out);
                }
                end(out);
                out.push(']');
            }
            PlanValue::Object(fields) => {
                out.push('{');
                for (at, (name, value)) in fields.iter().enumerate() {
                    line(out, at, blanks + 2);
                    write_string(name, out);
                    out.push_str(": ");
                    value.write(blanks + 2, out);
                }
                end(out);
                out.push('}');
            }
        }
    }
}

/// Parts of a document.
struct Fields(Vec<(String, PlanValue)>);

impl Fields {
    fn add(&mut self, name: &str, value: PlanValue) {
        self.0.push((name.to_owned(), value));
    }

    fn string(&mut self, name: &str, value: impl Into<String>) {
        self.add(name, PlanValue::String(value.into()));
    }
}

/// Result of these parts.
fn document(fields: Fields) -> Result<StatementResult> {
    let mut written = String::new();
    PlanValue::List(vec![PlanValue::Object(fields.0)]).write(0, &mut written);
    let schema = columns();
    let batch = RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(StringArray::from(vec![written]))])?;
    Ok(StatementResult::Rows(CollectedRows { schema, batches: vec![batch] }))
}

/// EXPLAIN of a query.
pub(crate) async fn explained(session: &SessionCore, explain: ExplainStatement) -> Result<StatementResult> {
    let options = explain.options;
    let began = Instant::now();
    let frame = plan_query(session, *explain.statement).await?;
    let logical = options.verbose.then(|| frame.logical_plan().display_indent().to_string());
    let context = Arc::new(frame.task_ctx());
    let plan = frame.create_physical_plan().await?;
    let planning = began.elapsed();
    let began = Instant::now();
    if options.analyze {
        let mut rows = execute_stream(Arc::clone(&plan), context)?;
        while let Some(batch) = rows.next().await {
            batch?;
        }
    }
    let execution = began.elapsed();
    let mut fields = Fields(Vec::new());
    fields.add("Plan", node(&plan, shown_metrics(&options)));
    if options.show_statistics == Some(true) {
        let costs = costs::lines(&session.catalog, &plan, options.analyze)?;
        fields.add("Costs", PlanValue::lines(costs));
    }
    if let Some(logical) = logical {
        fields.string("Logical Plan", logical);
    }
    if options.analyze {
        fields.add("Planning Time", PlanValue::milliseconds(planning));
        fields.add("Execution Time", PlanValue::milliseconds(execution));
    }
    document(fields)
}

/// Plan of the query of a writing statement; none if it has none.
pub(crate) async fn planned(
    session: &SessionCore,
    statement: DFStatement,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    match plan_query(session, statement).await {
        Ok(frame) => Ok(Some(frame.create_physical_plan().await?)),
        Err(Error::Unsupported(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// EXPLAIN ANALYZE of a writing statement, with the plan of its query.
pub(crate) fn written(
    verb: &str,
    rows: u64,
    (elapsed, loads): (Duration, bool),
    query: Option<&Arc<dyn ExecutionPlan>>,
) -> Result<StatementResult> {
    let mut plan = Fields(Vec::new());
    plan.string("Node Type", "ModifyTable");
    let (first, rest) = verb.split_at(verb.len().min(1));
    plan.string("Operation", format!("{first}{}", rest.to_ascii_lowercase()));
    if loads {
        plan.string("Details", "bulk load");
    }
    plan.add("Actual Rows", PlanValue::Numeral(rows.to_string()));
    if let Some(query) = query {
        plan.add("Plans", PlanValue::List(vec![node(query, ShownMetrics::None)]));
    }
    let mut fields = Fields(Vec::new());
    fields.add("Plan", PlanValue::Object(plan.0));
    fields.add("Execution Time", PlanValue::milliseconds(elapsed));
    document(fields)
}

/// Metrics that are shown.
#[derive(Clone, Copy, PartialEq)]
enum ShownMetrics {
    None,
    WithoutTimes,
    All,
}

fn shown_metrics(options: &ExplainStatementOptions) -> ShownMetrics {
    let has_times = match &options.analyze_categories {
        Some(ExplainAnalyzeCategories::Only(categories)) => categories.contains(&MetricCategory::Timing),
        _ => true,
    };
    match (options.analyze, has_times) {
        (false, _) => ShownMetrics::None,
        (true, false) => ShownMetrics::WithoutTimes,
        (true, true) => ShownMetrics::All,
    }
}

/// Node of a plan with those under it.
fn node(plan: &Arc<dyn ExecutionPlan>, shown: ShownMetrics) -> PlanValue {
    let line = DisplayableExecutionPlan::new(plan.as_ref()).one_line().to_string();
    let line = line.trim();
    let (name, details) = line.split_once(": ").unwrap_or((line, ""));
    let mut fields = Fields(Vec::new());
    fields.string("Node Type", name);
    let scan = plan.downcast_ref::<EntresolScan>().map(EntresolScan::table);
    let scan = scan.or_else(|| plan.downcast_ref::<EntresolColumnScan>().map(EntresolColumnScan::table));
    if let Some(table) = scan {
        fields.string("Relation Name", table.name());
    }
    if !details.is_empty() {
        fields.string("Details", details);
    }
    if let Some(metrics) = plan.metrics().filter(|_| shown != ShownMetrics::None) {
        if let Some(rows) = metrics.output_rows() {
            fields.add("Actual Rows", PlanValue::Numeral(rows.to_string()));
        }
        let metrics = measured(&metrics, shown);
        if !metrics.is_empty() {
            fields.add("Metrics", PlanValue::Object(metrics));
        }
    }
    let inputs = plan.children();
    if !inputs.is_empty() {
        fields.add("Plans", PlanValue::List(inputs.into_iter().map(|input| node(input, shown)).collect()));
    }
    PlanValue::Object(fields.0)
}

/// Metrics of a node, of all partitions together.
fn measured(metrics: &MetricsSet, shown: ShownMetrics) -> Vec<(String, PlanValue)> {
    let metrics = metrics.aggregate_by_name().sorted_for_display().timestamps_removed();
    let field = |value: &MetricValue| match value {
        MetricValue::OutputRows(_) => None,
        MetricValue::ElapsedCompute(time) | MetricValue::Time { time, .. } => {
            // Times are nanoseconds.
            let time = Duration::from_nanos(time.value() as u64);
            (shown == ShownMetrics::All)
                .then(|| (format!("{}_ms", value.name()), PlanValue::milliseconds(time)))
        }
        MetricValue::PruningMetrics { .. } | MetricValue::Ratio { .. } | MetricValue::Custom { .. } => {
            Some((value.name().to_owned(), PlanValue::String(value.to_string())))
        }
        other => Some((other.name().to_owned(), PlanValue::Numeral(other.as_usize().to_string()))),
    };
    metrics.iter().filter_map(|metric| field(metric.value())).collect()
}
