//! CREATE, ALTER and DROP of sources and topologies; the start of all topologies when a database is opened.
//!
//! A topology is planned and built before its statement is stored: what is refused leaves nothing behind. It
//! is stored before it starts: what has written rows is there after a crash. DROP removes the statement first
//! and the state last: a crash in between leaves tables that nothing writes any more.

use crate::ddl::stored_topologies::{self, StoredTopology};
use crate::error::{Error, Result};
use crate::parser::own::streaming::{
    CommitBoundary, CreateSource, CreateTopology, StreamingStatement, TopologyKind,
};
use crate::planner::explain;
use crate::schema_names::STREAMS_CATALOG;
use crate::session::commit::blocking;
use crate::session::core::SessionCore;
use crate::session::result::StatementResult;
use crate::session::topologies::{Topologies, UsedRelations};
use crate::streaming::connectors::SourceDefinition;
use crate::streaming::names::STREAMS_SCHEMA;
use crate::streaming::parallelism;
use crate::streaming::replacement;
use crate::streaming::sinks::SinkDefinition;
use crate::streaming::starting::{
    INTERVAL_DEFAULT, ROWS_DEFAULT, operators, parse, relations_of, start, stream_error,
};
use crate::streaming::steps::{self, Target};
use std::sync::Arc;

/// Runs a statement of streams.
pub(crate) async fn run(session: &SessionCore, statement: &StreamingStatement) -> Result<StatementResult> {
    let verb = statement.verb();
    let _changing = session.options.topologies.changing().await;
    if !session.options.topologies.is_loaded() {
        return Err(Error::coded("55000", format!("{verb}: the database was opened without its topologies")));
    }
    match statement {
        StreamingStatement::CreateSource(create) => create_source(session, create).await?,
        StreamingStatement::DropSource { name, if_exists } => {
            drop_source(session, name, *if_exists).await?;
        }
        StreamingStatement::CreateTopology(create) => create_topology(session, create).await?,
        StreamingStatement::AlterSteps { name, text } => {
            let stored = stored(session, name, TopologyKind::Topology)?;
            replacement::replace_steps(session, stored, text).await?;
        }
        StreamingStatement::AlterTopology { name, kind, pauses } => {
            alter(session, name, *kind, *pauses).await?;
        }
        StreamingStatement::Explain(name) => return explain_topology(session, name).await,
        StreamingStatement::DropTopology { name, kind, if_exists } => {
            drop_topology(session, name, *kind, *if_exists).await?;
        }
    }
    Ok(StatementResult::Done { verb })
}

async fn create_source(session: &SessionCore, create: &CreateSource) -> Result<()> {
    SourceDefinition::new(create)?;
    let (catalog, name, text) = (Arc::clone(&session.catalog), create.name.clone(), create.text.clone());
    if stored_topologies::source(&catalog, &name)?.is_some() {
        if create.if_not_exists {
            return Ok(());
        }
        return Err(Error::coded("42710", format!("source \"{name}\" already exists")));
    }
    if let Some(kind) = catalog.relation_kind(&name) {
        return Err(Error::coded("42P07", format!("{kind} \"{name}\" already exists")));
    }
    blocking(move || stored_topologies::put_source(&catalog, &name, &text)).await?
}

async fn drop_source(session: &SessionCore, name: &str, if_exists: bool) -> Result<()> {
    let (catalog, name) = (Arc::clone(&session.catalog), name.to_owned());
    if stored_topologies::source(&catalog, &name)?.is_none() {
        if if_exists {
            return Ok(());
        }
        return Err(Error::coded("42704", format!("source \"{name}\" does not exist")));
    }
    if let Some(user) = session.options.topologies.user_of(&name) {
        let message = format!("cannot drop source \"{name}\" because topology \"{user}\" reads it");
        return Err(Error::coded("2BP01", message));
    }
    blocking(move || stored_topologies::remove_source(&catalog, &name)).await?
}

async fn create_topology(session: &SessionCore, create: &CreateTopology) -> Result<()> {
    let topologies = &session.options.topologies;
    let found = stored(session, &create.name, TopologyKind::Topology);
    if topologies.has(&create.name) || found.is_ok() {
        if create.if_not_exists {
            return Ok(());
        }
        if create.replaces {
            return replacement::replace(session, found?, create.text.clone(), true).await;
        }
        return Err(Error::coded("42710", format!("topology \"{}\" already exists", create.name)));
    }
    start(session, create, true).await
}

async fn alter(session: &SessionCore, name: &str, kind: TopologyKind, pauses: bool) -> Result<()> {
    let mut stored = stored(session, name, kind)?;
    let (catalog, topologies) = (Arc::clone(&session.catalog), session.options.topologies.clone());
    if pauses {
        let name = name.to_owned();
        return blocking(move || {
            stored.is_paused = true;
            stored_topologies::put_topology(&catalog, &stored)?;
            topologies.pause(&name);
            Ok(())
        })
        .await?;
    }
    if topologies.is_running(name) {
        return Ok(());
    }
    let create = parse(&stored.text)?;
    start(session, &create, false).await?;
    stored.is_paused = false;
    blocking(move || stored_topologies::put_topology(&catalog, &stored)).await?
}

async fn drop_topology(session: &SessionCore, name: &str, kind: TopologyKind, if_exists: bool) -> Result<()> {
    if if_exists && all_stored(session)?.iter().all(|stored| stored.name != name) {
        return Ok(());
    }
    stored(session, name, kind)?;
    let (catalog, topologies) = (Arc::clone(&session.catalog), session.options.topologies.clone());
    let name = name.to_owned();
    blocking(move || {
        topologies.pause(&name);
        stored_topologies::remove_topology(&catalog, &name)?;
        entresol_streams::remove_state(&catalog, &name).map_err(stream_error)?;
        let unused = stored_topologies::unused_state(&catalog, &name)?;
        stored_topologies::removed_state(&catalog, &name, &unused)?;
        topologies.remove(&name);
        Ok(())
    })
    .await?
}

/// Steps of a topology with their plans.
async fn explain_topology(session: &SessionCore, name: &str) -> Result<StatementResult> {
    let create = parse(&stored(session, name, TopologyKind::Topology)?.text)?;
    let planned = steps::plan(session, &create).await?;
    let mut lines = vec![format!("Topology {name}, {}", boundaries_text(&create.boundaries))];
    for step in &planned.steps {
        lines.push(match &step.target {
            Target::Stream(name) => format!("  stream {name}"),
            Target::Insert { table, upserts, .. } => {
                format!("  {} {}", if *upserts { "upsert into" } else { "insert into" }, table.name())
            }
            Target::Merge { table } => format!("  change rows of {} by key", table.name()),
            Target::Sink(sink) => format!("  sink into {}", sink.describe()),
            Target::Abort { text, .. } => format!("  {text}"),
        });
        let plan = step.plan.display_indent().to_string();
        let plan = plan.replace(&format!("{STREAMS_CATALOG}.{STREAMS_SCHEMA}."), "");
        lines.extend(plan.lines().map(|line| format!("    {line}")));
    }
    let tables = entresol_streams::state_tables(&session.catalog, name);
    let (_, states) = operators(&session.catalog, &create, &planned, session.options.durability, &tables)?;
    lines.extend(states.iter().map(|state| format!("  state {}: {}", state.table, state.operator)));
    let statuses = session.options.topologies.statuses();
    lines.extend(statuses.iter().filter(|status| status.name == name).flat_map(parallelism::explained));
    explain::lines(lines)
}

fn boundaries_text(boundaries: &[CommitBoundary]) -> String {
    let text = |boundary: &CommitBoundary| match boundary {
        CommitBoundary::EachRow => "each row".to_owned(),
        CommitBoundary::Rows(rows) => format!("every {rows} rows"),
        CommitBoundary::Interval(interval) => format!("every {interval}"),
        CommitBoundary::WindowClose => "on window close".to_owned(),
        CommitBoundary::Source => "with source".to_owned(),
    };
    if boundaries.is_empty() {
        return format!("commit every {ROWS_DEFAULT} rows or every {} ms", INTERVAL_DEFAULT.as_millis());
    }
    let texts: Vec<String> = boundaries.iter().map(text).collect();
    format!("commit {}", texts.join(" or "))
}

fn all_stored(session: &SessionCore) -> Result<Vec<StoredTopology>> {
    stored_topologies::topologies(&session.catalog)
}

/// Stored topology of this name. A sink is one too; a statement about sinks takes no other.
fn stored(session: &SessionCore, name: &str, kind: TopologyKind) -> Result<StoredTopology> {
    let is_sink = kind == TopologyKind::Sink;
    let noun = if is_sink { "sink" } else { "topology" };
    let found = all_stored(session)?.into_iter().find(|stored| stored.name == name);
    let found = found.ok_or_else(|| Error::coded("42704", format!("{noun} \"{name}\" does not exist")))?;
    if is_sink && parse(&found.text)?.sink.is_none() {
        return Err(Error::coded("42809", format!("\"{name}\" is not a sink")));
    }
    Ok(found)
}

/// Starts the topologies of a database that is opened, those that are paused apart. One that cannot start is
/// shown as failed, with the reason.
pub(crate) async fn start_all(session: &SessionCore) -> Result<()> {
    let topologies = &session.options.topologies;
    topologies.loaded();
    for stored in stored_topologies::topologies(&session.catalog)? {
        if let Err(error) = start_stored(session, topologies, &stored).await {
            tracing::error!(topology = stored.name, %error, "a topology cannot start");
            let relations = UsedRelations { sink: sink_of(&stored), ..UsedRelations::default() };
            topologies.note(&stored.name, Some(error.to_string()), relations);
        }
    }
    Ok(())
}

/// Target of a stored sink, which may have failed to start.
fn sink_of(stored: &StoredTopology) -> Option<String> {
    let create = parse(&stored.text).ok()?;
    let definition = SinkDefinition::new(&create.name, &create.sink?).ok()?;
    Some(definition.describe())
}

async fn start_stored(session: &SessionCore, topologies: &Topologies, stored: &StoredTopology) -> Result<()> {
    let create = parse(&stored.text)?;
    if !stored.is_paused {
        return start(session, &create, false).await;
    }
    let planned = steps::plan(session, &create).await?;
    topologies.note(&stored.name, None, relations_of(&create, &planned));
    Ok(())
}
