//! Start of a topology: plan, operators, state, and the thread that runs it.
//!
//! | a start | stores the statement |
//! | --- | --- |
//! | of a new one | before it runs, so that what has written rows is there after a crash |
//! | of one that is stored | no |
//!
//! Both remove first what a topology with other steps has no use for ([`crate::streaming::replacement`]): a
//! crash may have come between.

use crate::ddl::stored_topologies::{self, StoredTopology};
use crate::error::{Error, Result};
use crate::parser::command::Command;
use crate::parser::own::streaming::{CommitBoundary, CreateTopology, ErrorClause, StreamingStatement};
use crate::parser::statement::parse_one;
use crate::schema_names::STREAMS_CATALOG;
use crate::session::commit::blocking;
use crate::session::core::SessionCore;
use crate::session::topologies::UsedRelations;
use crate::streaming::names::Reference;
use crate::streaming::operators::{PlannedState, translate};
use crate::streaming::options::{StreamOptions, interval, invalid};
use crate::streaming::parallelism;
use crate::streaming::retention::StateTtl;
use crate::streaming::steps::{self, PlannedTopology, Target};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::logical_expr::LogicalPlan;
use entresol_memory::Durability;
use entresol_streams::{Boundary, Error as StreamError, Merge, OnError, Topology, TopologyBuilder};
use entresol_tables::Catalog;
use std::sync::Arc;
use std::time::Duration;

/// Boundary of topologies without COMMIT.
pub(crate) const ROWS_DEFAULT: usize = 1000;
pub(crate) const INTERVAL_DEFAULT: Duration = Duration::from_millis(100);
/// Rows of a transaction that is ended by its interval alone.
const ROWS_OF_INTERVAL: usize = 1 << 20;

/// Plans, builds and starts a topology; stores its statement before that if it is new.
pub(crate) async fn start(session: &SessionCore, create: &CreateTopology, is_new: bool) -> Result<()> {
    if is_new {
        stored_topologies::check_length(&create.text)?;
    }
    let planned = steps::plan(session, create).await?;
    let relations = relations_of(create, &planned);
    check_cycle(session, &create.name, &relations)?;
    // The session's own setting would be forgotten when the database is opened again.
    let durability = session.options.durability;
    let (catalog, create) = (Arc::clone(&session.catalog), create.clone());
    let topologies = session.options.topologies.clone();
    blocking(move || {
        if is_new && create.sink.is_some() {
            entresol_streams::forget_sinks(&catalog, &create.name).map_err(stream_error)?;
        }
        remove_unused(&catalog, &create.name, &planned)?;
        let (builder, _) = operators(&catalog, &create, &planned, durability, &[])?;
        let topology = builder.build().map_err(stream_error)?;
        if is_new {
            let stored =
                StoredTopology { name: create.name.clone(), text: create.text.clone(), is_paused: false };
            stored_topologies::put_topology(&catalog, &stored)?;
        }
        let started = topologies.start(&create.name, topology, relations).map_err(stream_error);
        if is_new && started.is_err() {
            stored_topologies::remove_topology(&catalog, &create.name)?;
        }
        started
    })
    .await?
}

/// Refuses a topology that would read what it causes.
pub(crate) fn check_cycle(session: &SessionCore, name: &str, relations: &UsedRelations) -> Result<()> {
    let views = session.options.materialized.all();
    let Some(cycle) = session.options.topologies.cycle(name, relations, &views) else { return Ok(()) };
    let message = format!("topology \"{name}\" would read what it causes: {}", cycle.join(" → "));
    Err(Error::coded("42P17", message))
}

/// Removes what a topology that was given other steps has no use for.
fn remove_unused(catalog: &Catalog, name: &str, planned: &PlannedTopology) -> Result<()> {
    let unused = stored_topologies::unused_state(catalog, name)?;
    let sources: Vec<String> = planned.sources.keys().cloned().collect();
    entresol_streams::remove_unused_state(catalog, name, &unused, &sources).map_err(stream_error)?;
    if unused.is_empty() { Ok(()) } else { stored_topologies::removed_state(catalog, name, &unused) }
}

/// Builder of a topology with all of its operators, and their states. State tables of `removed` count as not there.
pub(crate) fn operators(
    catalog: &Arc<Catalog>,
    create: &CreateTopology,
    planned: &PlannedTopology,
    durability: Durability,
    removed: &[String],
) -> Result<(TopologyBuilder, Vec<PlannedState>)> {
    let mut options = StreamOptions::new(format!("topology \"{}\"", create.name), &create.options);
    let durability = match options.take("durability") {
        None => durability,
        Some(text) => text.parse().map_err(|_| invalid("durability", &text))?,
    };
    let merge = match options.take("merge").as_deref() {
        None | Some("arrival") => Merge::RoundRobin,
        Some("event_time") => Merge::EventTime,
        Some(other) => return Err(invalid("merge", other)),
    };
    StateTtl::take(&mut options)?;
    let threads = parallelism::take(&mut options, &create.boundaries)?;
    options.end()?;
    let on_error = match create.on_error {
        ErrorClause::Stop => OnError::Stop,
        ErrorClause::Abort => OnError::Abort,
        ErrorClause::Skip(_) => OnError::Skip,
    };
    let builder = Topology::builder(&create.name, catalog)
        .durability(durability)
        .on_error(on_error)
        .merge(merge)
        .parallelism(threads)
        .without_state(removed);
    let mut builder = bounded(builder, &create.boundaries)?;
    if let ErrorClause::Skip(Some(table)) = &create.on_error {
        builder = builder.skipped_into(table);
    }
    let states = translate(&create.name, catalog, &builder, planned)?;
    Ok((builder, states))
}

/// Sets the boundary of the transactions.
fn bounded(builder: TopologyBuilder, boundaries: &[CommitBoundary]) -> Result<TopologyBuilder> {
    if boundaries.is_empty() {
        return Ok(builder.boundary(Boundary::Every(ROWS_DEFAULT)).commit_interval(INTERVAL_DEFAULT));
    }
    let (mut boundary, mut commit_interval) = (None, None);
    for clause in boundaries {
        let wanted = match clause {
            CommitBoundary::Interval(text) => {
                commit_interval = Some(interval("COMMIT EVERY", text)?);
                continue;
            }
            CommitBoundary::EachRow => Boundary::EachTuple,
            CommitBoundary::Rows(rows) => Boundary::Every(*rows),
            CommitBoundary::WindowClose => Boundary::PerWindow,
            CommitBoundary::Source => Boundary::Punctuated,
        };
        if boundary.replace(wanted).is_some() {
            return Err(Error::unsupported("COMMIT boundaries other than one, OR EVERY interval"));
        }
    }
    let builder = builder.boundary(boundary.unwrap_or(Boundary::Every(ROWS_OF_INTERVAL)));
    Ok(match commit_interval {
        Some(commit_interval) => builder.commit_interval(commit_interval),
        None => builder,
    })
}

/// Sources and tables that a topology reads and writes.
pub(crate) fn relations_of(create: &CreateTopology, planned: &PlannedTopology) -> UsedRelations {
    let skipped = match &create.on_error {
        ErrorClause::Skip(table) => table.clone(),
        _ => None,
    };
    let mut relations: Vec<String> = planned.sources.keys().cloned().collect();
    let rejects = planned.sources.values().filter_map(|source| source.rejects.clone());
    let mut written: Vec<String> = rejects.chain(skipped).collect();
    let mut sink = None;
    for step in &planned.steps {
        if let Target::Sink(definition) = &step.target {
            sink = Some(definition.describe());
        }
        if let Target::Insert { table, .. } | Target::Merge { table } = &step.target {
            written.push(table.name().to_owned());
        }
        written.extend(step.late.table.clone());
        relations.extend(step.references.values().filter_map(|reference| match reference {
            Reference::Changes { table, .. } => Some(table.clone()),
            _ => None,
        }));
        // The visitor fails never.
        let _ = step.plan.apply_with_subqueries(|node| {
            if let LogicalPlan::TableScan(scan) = node
                && scan.table_name.catalog() != Some(STREAMS_CATALOG)
            {
                relations.push(scan.table_name.table().to_owned());
            }
            Ok(TreeNodeRecursion::Continue)
        });
    }
    relations.extend(written.iter().cloned());
    relations.sort_unstable();
    relations.dedup();
    let logged = planned.sources.values().filter_map(|source| source.logged_table());
    UsedRelations { all: relations, changes: logged.map(str::to_owned).collect(), written, sink }
}

/// Parses a stored topology.
pub(crate) fn parse(text: &str) -> Result<CreateTopology> {
    match parse_one(text)? {
        Some(Command::Streaming(statement)) => match *statement {
            StreamingStatement::CreateTopology(create) => Ok(*create),
            _ => Err(Error::Internal(format!("{text} is no topology"))),
        },
        _ => Err(Error::Internal(format!("{text} is no topology"))),
    }
}

/// Error of the streams as one of a statement.
pub(crate) fn stream_error(error: StreamError) -> Error {
    match error {
        StreamError::Tables(error) => error.into(),
        StreamError::Transactions(error) => error.into(),
        StreamError::Io { .. } | StreamError::File { .. } => Error::coded("58030", error.to_string()),
        error => Error::coded("22023", error.to_string()),
    }
}
