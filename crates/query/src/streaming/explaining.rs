//! EXPLAIN TOPOLOGY: the operators as a tree, steps with their plans, state and threads; with ANALYZE what each operator did.

use crate::error::Result;
use crate::parser::own::streaming::{CreateTopology, ErrorClause, StreamObject};
use crate::planner::explain;
use crate::schema_names::STREAMS_CATALOG;
use crate::session::core::SessionCore;
use crate::session::result::StatementResult;
use crate::session::state_size;
use crate::session::topologies::TopologyStatus;
use crate::streaming::bound_plans;
use crate::streaming::boundaries::boundaries_text;
use crate::streaming::memory;
use crate::streaming::names::STREAMS_SCHEMA;
use crate::streaming::operators::PlannedState;
use crate::streaming::starting::{parse, stored, stream_error, translated};
use crate::streaming::steps::{self, Target};
use crate::streaming::{operator_tree, owned_targets, parallelism};
use datafusion::arrow::temporal_conversions::timestamp_us_to_datetime;
use entresol_memory::Durability;
use entresol_streams::{EventTime, OperatorProgress, TopologyBuilder};
use entresol_transactions::Isolation;

/// Steps of a topology with their plans; with `analyze` the counters of its current or last run.
pub(crate) async fn explain(session: &SessionCore, name: &str, analyze: bool) -> Result<StatementResult> {
    let stored = stored(session, name, StreamObject::Topology)?;
    let create = parse(&stored.text)?;
    let planned = steps::plan(session, &create).await?;
    let leader = create.options.iter().find(|(option, _)| option == "leader");
    let leader = leader.map_or_else(String::new, |(_, leader)| format!(", led by source {leader}"));
    let boundaries = boundaries_text(&create.boundaries);
    let owned = if owned_targets::is_owner(&create)? { ", owns its targets" } else { "" };
    let memory = memory::describe(&create)?;
    let owner = stored.owner.map_or_else(String::new, |owner| format!(", of role {owner}"));
    let mut lines = vec![format!("Topology {name}, {boundaries}{leader}{owned}{memory}{owner}")];
    let tables = entresol_streams::state_tables(&session.catalog, name);
    let status = session.options.topologies.statuses().into_iter().find(|status| status.name == name);
    let durability = session.options.durability;
    let translated = {
        let (builder, translated) = translated(&session.catalog, &create, &planned, durability, &tables)?;
        lines.push(transactions_line(&create, builder.commit_durability()));
        lines.extend(tree_lines(builder, &translated.states, status.as_ref().filter(|_| analyze))?);
        translated
    };
    for (step, edge) in planned.steps.iter().zip(&translated.edges) {
        lines.push(match &step.target {
            Target::Stream(name) => format!("  stream {name}"),
            Target::Insert { table, upserts, .. } => {
                format!("  {} {}", if *upserts { "upsert into" } else { "insert into" }, table.name())
            }
            Target::Merge { table, .. } => format!("  change rows of {} by key", table.name()),
            Target::Sink(sink) => format!("  sink into {}", sink.describe()),
            Target::View(_) => format!("  materialized view {name}"),
            Target::Abort { text, into: None, .. } => format!("  {text}"),
            Target::Abort { text, into: Some(table), .. } => format!("  {text} INTO {table}"),
        });
        lines.extend(edge.iter().map(|edge| format!("    {edge}")));
        let plan = step.plan.display_indent().to_string();
        let plan = plan.replace(&format!("{STREAMS_CATALOG}.{STREAMS_SCHEMA}."), "");
        lines.extend(plan.lines().map(|line| format!("    {line}")));
    }
    lines.extend(bound_plans::explained(&translated.queries, &session.catalog).await?);
    let states = &translated.states;
    lines.extend(states.iter().map(|state| format!("  state {}: {}", state.table, state.operator)));
    if let Some(status) = &status {
        lines.extend(parallelism::explained(status));
        lines.extend(status.operators.iter().filter_map(state_costs_line));
        if analyze {
            lines.extend(analyzed(status));
            for state in states {
                lines.extend(state_line(session, &state.table)?);
            }
        }
    }
    explain::lines(lines)
}

/// Lines of a run: of all of it, and of each operator.
fn analyzed(status: &TopologyStatus) -> Vec<String> {
    let Some(progress) = &status.progress else { return vec![format!("  {}, has not run", status.state)] };
    let line = format!(
        "  {}: {} rows in {} transactions, {} rows/s, {} aborts, {} retries, {} late, {} rejected",
        status.state,
        progress.tuples,
        progress.transactions,
        if status.state == "running" { progress.tuples_per_s } else { 0 },
        progress.aborts,
        progress.retries,
        progress.late,
        progress.rejected
    );
    vec![line]
}

/// Line of how transactions run: isolation, durability, and what becomes of errors.
fn transactions_line(create: &CreateTopology, durability: Durability) -> String {
    let isolation = match create.isolation {
        Isolation::ReadCommitted => "read committed",
        Isolation::Snapshot => "repeatable read",
        Isolation::Serializable => "serializable",
    };
    let on_error = match create.on_error {
        ErrorClause::Stop => "stop",
        ErrorClause::Abort => "abort",
        ErrorClause::Skip => "skip row",
    };
    let into = create.errors_into.as_ref().map_or_else(String::new, |table| format!(" into {table}"));
    format!("  isolation {isolation}, durability {durability}, on error {on_error}{into}")
}

/// The operators as a tree, with what they did in the run of a status.
fn tree_lines(
    builder: TopologyBuilder,
    states: &[PlannedState],
    status: Option<&TopologyStatus>,
) -> Result<Vec<String>> {
    let mut operators = builder.operators().map_err(stream_error)?;
    for operator in &mut operators {
        let state = states.iter().find(|state| operator.state_tables.contains(&state.table));
        if let Some(state) = state {
            let behind = operator.detail.take().map_or_else(String::new, |detail| format!(", {detail}"));
            operator.detail = Some(state.operator.clone() + &behind);
        }
    }
    let names: Vec<String> = operators.iter().map(|operator| operator.name.clone()).collect();
    let tree = operator_tree::lines(&operators, |at| {
        // Those of a run before the last ALTER may be others.
        let progress = status.and_then(|status| status.operators.get(at));
        let progress = progress.filter(|progress| progress.name == names[at]);
        progress.zip(status).map_or_else(String::new, |(progress, status)| {
            format!(" ({})", operator_counters(progress, status.state == "running"))
        })
    });
    Ok(tree.into_iter().map(|line| format!("  {line}")).collect())
}

/// Counters of an operator; a source has no rows in.
fn operator_counters(operator: &OperatorProgress, is_running: bool) -> String {
    let mut line = format!("{} rows in, {} out", operator.tuples_in, operator.tuples_out);
    if is_running {
        line += &format!(", {} rows/s", operator.tuples_per_s);
    }
    if operator.late > 0 {
        line += &format!(", {} late", operator.late);
    }
    if operator.expired > 0 {
        line += &format!(", {} expired", operator.expired);
    }
    match operator.watermark {
        Some(EventTime::END) => line += ", at its end",
        Some(time) => {
            if let Some(time) = timestamp_us_to_datetime(time.micros()) {
                line += &format!(", watermark {}", time.format("%Y-%m-%d %H:%M:%S%.f"));
            }
        }
        None => {}
    }
    line
}

/// Form in which an operator stores its state, with the costs that it was chosen by.
fn state_costs_line(operator: &OperatorProgress) -> Option<String> {
    let costs = operator.state_costs?;
    let us = |ns: u64| ns as f64 / 1000.0;
    let rows = format!("{} rows ({:.0} us)", costs.rows, us(costs.rows_ns));
    let pages = format!("{} pages of 4 KiB ({:.0} us)", costs.pages, us(costs.pages_ns));
    let name = &operator.name;
    Some(if costs.in_pages {
        format!("  state of {name}: several groups in a page; a commit writes {pages}, not {rows}")
    } else {
        format!("  state of {name}: a row for each group; a commit writes {rows}, not {pages}")
    })
}

/// Rows and bytes of a state table; none if it does not exist yet.
fn state_line(session: &SessionCore, table: &str) -> Result<Option<String>> {
    let Ok(table) = session.catalog.table(table) else { return Ok(None) };
    let size = state_size::size_of(&session.catalog, &table)?;
    Ok(Some(format!("  state {}: {} rows, {} bytes", table.name(), size.rows, size.bytes)))
}
