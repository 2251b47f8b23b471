//! EXPLAIN and EXPLAIN ANALYZE: plans as lines of text in one column, `QUERY PLAN`, as PostgreSQL clients
//! expect.
//!
//! - EXPLAIN shows the physical plan; VERBOSE the logical ones too. Of an INSERT, UPDATE or DELETE it shows
//!   the query that computes the rows to write, of a MERGE the join.
//! - EXPLAIN ANALYZE runs the statement, and a writing one does write. Of a query it shows the plan with the
//!   metrics of its operators; of a writing statement rows and time, and the plan without metrics.
//! - EXPLAIN (COSTS) adds what the cost model expects of each scan, and of the paths that were not taken
//!   ([`crate::planner::costs`]); only of queries.
//! - EXPLAIN (FORMAT JSON) is one value instead of lines ([`explain_json`]).

use crate::error::{Error, Result};
use crate::planner::explain_json;
use crate::session::result::texts;
use crate::session::result::{CollectedRows, StatementResult};
use datafusion::arrow::array::{AsArray, StringArray};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::format::ExplainStatementOptions;
use datafusion::sql::parser::{ExplainStatement, Statement as DFStatement};
use std::sync::Arc;
use std::time::Duration;

/// Name of the one column.
pub(crate) const COLUMN: &str = "QUERY PLAN";
/// DataFusion's name of the last plan.
const PHYSICAL: &str = "physical_plan";

/// Columns of the result of EXPLAIN, of lines or as JSON.
pub(crate) fn columns(options: &ExplainStatementOptions) -> SchemaRef {
    if explain_json::is_json(options) { explain_json::columns() } else { line_columns() }
}

/// Columns of lines.
pub(crate) fn line_columns() -> SchemaRef {
    texts(&[COLUMN])
}

/// Result of EXPLAIN ANALYZE of a writing statement.
pub(crate) fn written(
    verb: &str,
    rows: u64,
    (elapsed, loads): (Duration, bool),
    batches: &[RecordBatch],
) -> Result<StatementResult> {
    let time_ms = elapsed.as_secs_f64() * 1000.0;
    // The way of most rows is not worth a word.
    let way = if loads { " by bulk load" } else { "" };
    let mut shown = vec![format!("{verb}{way} (actual rows={rows} time={time_ms:.3} ms)")];
    shown.extend(plan_lines(false, batches)?.into_iter().map(|line| format!("  {line}")));
    lines(shown)
}

/// Lines of DataFusion's batches of plan types and plans.
pub(crate) fn plan_lines(verbose: bool, batches: &[RecordBatch]) -> Result<Vec<String>> {
    let mut plans = Vec::new();
    for batch in batches {
        let text = |column: usize| {
            let column = batch.columns().get(column).and_then(|column| column.as_string_opt::<i32>());
            column.ok_or_else(|| Error::Internal("EXPLAIN returned a plan that is not a string".into()))
        };
        let (kinds, texts) = (text(0)?, text(1)?);
        for row in 0..batch.num_rows() {
            plans.push((kinds.value(row).to_owned(), texts.value(row).to_owned()));
        }
    }
    if !verbose && plans.iter().any(|(kind, _)| kind == PHYSICAL) {
        plans.retain(|(kind, _)| kind == PHYSICAL);
    }
    let mut lines = Vec::new();
    for (kind, text) in &plans {
        if plans.len() > 1 {
            lines.push(format!("{kind}:"));
        }
        lines.extend(text.lines().map(str::to_owned));
    }
    Ok(lines)
}

/// Result of these lines.
pub(crate) fn lines(lines: Vec<String>) -> Result<StatementResult> {
    let schema = line_columns();
    let batch = RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(StringArray::from(lines))])?;
    Ok(StatementResult::Rows(CollectedRows { schema, batches: vec![batch] }))
}

/// The statement without ANALYZE.
pub(crate) fn without_analyze(explain: &ExplainStatement) -> DFStatement {
    let mut explain = explain.clone();
    explain.options.analyze = false;
    explain.options.verbose = false;
    explain.options.show_statistics = None;
    DFStatement::Explain(explain)
}
