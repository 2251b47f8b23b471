//! Start of a topology: plan, operators, state, and the thread that runs it.
//!
//! | a start | stores the statement |
//! | --- | --- |
//! | of a new one | once it is planned and checked, with the targets that it owns, before it is built: what has written rows is there after a crash |
//! | of one that is stored | no |
//!
//! A new one removes first what an incomplete DROP left of another of its name: its positions and state. Both remove what a
//! topology with other steps has no use for ([`crate::streaming::replacement`]): a crash may have come between.

use crate::catalog::rows::streams::stream_kind;
use crate::ddl::stored_topologies::{self, StoredTopology};
use crate::error::{Error, Result, operator_sqlstate};
use crate::parser::command::Command;
use crate::parser::durations::invalid;
use crate::parser::own::materialized::MaterializedStatement;
use crate::parser::own::streaming::{CreateTopology, ErrorClause, StreamObject, StreamingStatement};
use crate::parser::statement::parse_one;
use crate::schema_names::STREAMS_CATALOG;
use crate::session::commit::blocking;
use crate::session::core::SessionCore;
use crate::session::topologies::UsedRelations;
use crate::streaming::boundaries;
use crate::streaming::made_tables::check_made;
use crate::streaming::names::Reference;
use crate::streaming::operators::{PlannedState, TranslatedSteps, translate};
use crate::streaming::options::StreamOptions;
use crate::streaming::options_text::query_of_view;
use crate::streaming::parallelism;
use crate::streaming::parsed_steps::names_of;
use crate::streaming::retention::StateTtl;
use crate::streaming::sinks::SinkDefinition;
use crate::streaming::steps::{self, PlannedTopology, Target};
use crate::streaming::{memory, owned_targets, view_tables, view_targets};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::logical_expr::LogicalPlan;
use entresol_memory::Durability;
use entresol_streams::{Error as StreamError, Merge, OnError, Topology, TopologyBuilder};
use entresol_tables::{Catalog, Table};
use std::sync::Arc;

/// Plans, builds and starts a topology; stores its statement before that if it is new.
pub(crate) async fn start(session: &SessionCore, create: &CreateTopology, is_new: bool) -> Result<()> {
    if is_new {
        stored_topologies::check_topology(&create.text)?;
    }
    view_tables::make_table(session, create).await?;
    let planned = steps::plan(session, create).await?;
    let relations = relations_of(create, &planned);
    view_targets::check_written(&session.catalog, create, &relations)?;
    check_cycle(session, &create.name, &relations)?;
    let owned = owned_targets::checked(session, create, &planned)?;
    // The session's own setting would be forgotten when the database is opened again.
    let durability = session.options.durability;
    let (catalog, create) = (Arc::clone(&session.catalog), create.clone());
    let (topologies, owner) = (session.options.topologies.clone(), session.variables.authority.owner());
    blocking(move || {
        if is_new {
            forget_state(&catalog, &create.name)?;
        }
        remove_unused(&catalog, &create.name, &planned)?;
        let (builder, _) = operators(&catalog, &create, &planned, durability, &[])?;
        if is_new {
            check_made(&catalog, &create, &builder)?;
            let stored = StoredTopology {
                name: create.name.clone(),
                text: create.text.clone(),
                is_paused: false,
                owner,
            };
            stored_topologies::replace_topology(&catalog, &stored, &[], &owned)?;
        }
        // Its operators write the tables as they are with their owner.
        let started = builder.build().and_then(|built| topologies.start(&create.name, built, relations));
        let started = started.map_err(stream_error);
        if is_new && started.is_err() {
            stored_topologies::remove_topology(&catalog, &create.name)?;
        }
        started
    })
    .await?
}

/// Removes all that is stored of a topology beside its statement: positions, watermarks, lengths of files, state tables, and
/// the table of a materialized view that was dropped.
pub(crate) fn forget_state(catalog: &Arc<Catalog>, name: &str) -> Result<()> {
    entresol_streams::remove_state(catalog, name).map_err(stream_error)?;
    let unused = stored_topologies::unused_state(catalog, name)?;
    if unused.is_empty() {
        return Ok(());
    }
    if unused.iter().any(|table| table == name) {
        view_targets::remove_table(catalog, name)?;
    }
    stored_topologies::removed_state(catalog, name, &unused)
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
    let (builder, translated) = translated(catalog, create, planned, durability, removed)?;
    Ok((builder, translated.states))
}

/// Same as [`operators`], with what EXPLAIN shows of them.
pub(crate) fn translated(
    catalog: &Arc<Catalog>,
    create: &CreateTopology,
    planned: &PlannedTopology,
    durability: Durability,
    removed: &[String],
) -> Result<(TopologyBuilder, TranslatedSteps)> {
    let noun = if create.view.is_some() { "materialized view" } else { "topology" };
    let mut options = StreamOptions::new(format!("{noun} \"{}\"", create.name), &create.options);
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
    let leader = options.take("leader");
    let threads = parallelism::take(&mut options, &create.boundaries)?;
    let memory = memory::take(&mut options)?;
    if create.view.is_none() && create.sink.is_none() {
        owned_targets::take(&mut options)?;
    }
    options.end()?;
    let on_error = match create.on_error {
        ErrorClause::Stop => OnError::Stop,
        ErrorClause::Abort => OnError::Abort,
        ErrorClause::Skip => OnError::Skip,
    };
    let boundaries = boundaries::Boundaries::of(&create.boundaries)?;
    boundaries.check_sources(planned, leader.as_deref())?;
    let builder = Topology::builder(&create.name, catalog)
        .durability(durability)
        .isolation(create.isolation)
        .on_error(on_error)
        .merge(merge)
        .parallelism(threads)
        .sqlstates(operator_sqlstate)
        .without_state(removed);
    let mut builder = boundaries.set(builder);
    if let Some(bytes) = memory {
        builder = builder.memory_max(bytes);
    }
    if let Some(table) = &create.errors_into {
        builder = builder.errors_into(table);
    }
    if let Some(leader) = &leader {
        builder = builder.leader(leader);
    }
    let translated = translate(&create.name, catalog, &builder, planned)?;
    if let Some(stream) = &boundaries.window_of {
        let windows = translated.windows_of(stream).cloned();
        builder = builder.bounded_by(windows.ok_or_else(|| boundaries::no_windows(stream))?);
    }
    Ok((builder, translated))
}

/// Sources and tables that a topology reads and writes.
pub(crate) fn relations_of(create: &CreateTopology, planned: &PlannedTopology) -> UsedRelations {
    let all = planned.sources.keys().cloned().collect();
    let mut used = UsedRelations { all, sink: sink_of(create), ..UsedRelations::default() };
    let rejects = planned.sources.values().filter_map(|source| source.rejects.clone());
    let mut by_operators: Vec<String> = rejects.chain(create.errors_into.clone()).collect();
    for step in &planned.steps {
        used.all.extend(step.names.iter().cloned());
        by_operators.extend(step.late.table.clone());
        match &step.target {
            Target::View(table) => {
                used.view = view_query(create);
                match table {
                    Some(table) => {
                        let columns: Vec<usize> = (0..table.schema().visible_columns().len()).collect();
                        note_insert(&mut used, table, &columns);
                    }
                    None => used.written.push(create.name.clone()),
                }
            }
            Target::Insert { table, columns, upserts } => {
                note_insert(&mut used, table, columns);
                if *upserts {
                    used.planned.push(table.name().to_owned());
                }
            }
            Target::Merge { table, .. } => {
                used.ruled.push(table.name().to_owned());
                used.written.push(table.name().to_owned());
                note_all_columns(&mut used, table.name());
            }
            Target::Abort { into, .. } => by_operators.extend(into.clone()),
            Target::Stream(_) | Target::Sink(_) => {}
        }
        for reference in step.references.values() {
            if let Reference::Changes { table, .. } = reference {
                note_all_columns(&mut used, table);
            }
        }
        // The visitor fails never.
        let _ = step.plan.apply_with_subqueries(|node| {
            if let LogicalPlan::TableScan(scan) = node
                && scan.table_name.catalog() != Some(STREAMS_CATALOG)
            {
                note_all_columns(&mut used, scan.table_name.table());
            }
            Ok(TreeNodeRecursion::Continue)
        });
    }
    for table in &by_operators {
        note_all_columns(&mut used, table);
    }
    used.ruled.retain(|table| !by_operators.contains(table));
    used.written.extend(by_operators);
    for table in planned.sources.values().filter_map(|source| source.logged_table()) {
        used.changes.push(table.to_owned());
        note_all_columns(&mut used, table);
    }
    used.all.extend(used.written.iter().cloned());
    for names in [&mut used.all, &mut used.planned] {
        names.sort_unstable();
        names.dedup();
    }
    used
}

/// Notes the columns of a table that rows are added to: those of the rows, and the key.
fn note_insert(used: &mut UsedRelations, table: &Table, columns: &[usize]) {
    let schema = table.schema();
    for &column in columns.iter().chain(schema.key()) {
        let column = schema.columns()[column].name.clone();
        used.columns.push((table.name().to_owned(), Some(column)));
    }
    used.written.push(table.name().to_owned());
    used.ruled.push(table.name().to_owned());
}

/// Notes a table all of whose columns the operators know.
fn note_all_columns(used: &mut UsedRelations, table: &str) {
    used.all.push(table.to_owned());
    used.columns.push((table.to_owned(), None));
    used.planned.push(table.to_owned());
}

/// Query of the materialized view that a topology is.
fn view_query(create: &CreateTopology) -> Option<String> {
    create.view.as_ref().map(|_| query_of_view(&create.text).unwrap_or_default().to_owned())
}

/// Relations that a stored topology names, which cannot be planned.
pub(crate) fn relations_named(create: &CreateTopology) -> UsedRelations {
    let mut all: Vec<String> = create.errors_into.iter().cloned().collect();
    all.extend(create.sink.iter().filter_map(|sink| sink.from.clone()));
    let view = view_query(create);
    all.extend(view.is_some().then(|| create.name.clone()));
    let mut streams = Vec::new();
    for tokens in &create.steps {
        let (stream, names) = names_of(tokens);
        all.extend(names.into_iter().filter(|name| !streams.contains(name)));
        streams.extend(stream);
    }
    UsedRelations { all, sink: sink_of(create), view, ..UsedRelations::default() }
}

/// Text of the target of a sink.
fn sink_of(create: &CreateTopology) -> Option<String> {
    let sink = SinkDefinition::new(&create.name, create.sink.as_ref()?).ok()?;
    Some(sink.describe())
}

/// Stored topology of this name. A sink is one too; a statement about sinks takes no other.
pub(crate) fn stored(session: &SessionCore, name: &str, object: StreamObject) -> Result<StoredTopology> {
    let found =
        stored_topologies::topologies(&session.catalog)?.into_iter().find(|stored| stored.name == name);
    let Some(found) = found else {
        return Err(match stream_kind(&session.catalog, name)? {
            Some(kind) => other_kind(name, kind, object),
            None => Error::coded("42704", format!("{} \"{name}\" does not exist", object.noun())),
        });
    };
    if object == StreamObject::Sink && parse(&found.text)?.sink.is_none() {
        return Err(Error::coded("42809", format!("\"{name}\" is not a sink")));
    }
    Ok(found)
}

/// Refusal of a source or stream where a topology or sink is named.
fn other_kind(name: &str, kind: &str, wanted: StreamObject) -> Error {
    let why = if kind == "source" { "it runs" } else { "it is a definition, which runs" };
    let message = format!(
        "\"{name}\" is a {kind}, not a {}: {why} as a part of the topologies that read it",
        wanted.noun()
    );
    Error::coded("42809", message)
}

/// Parses a stored topology.
pub(crate) fn parse(text: &str) -> Result<CreateTopology> {
    match parse_one(text)? {
        Some(Command::Streaming(statement)) => match *statement {
            StreamingStatement::CreateTopology(create) => Ok(*create),
            _ => Err(Error::Internal(format!("{text} is not a topology"))),
        },
        Some(Command::Materialized(statement)) => match *statement {
            MaterializedStatement::Create(create) => create.over_streams,
            _ => None,
        }
        .ok_or_else(|| Error::Internal(format!("{text} is not a materialized view over streams"))),
        _ => Err(Error::Internal(format!("{text} is not a topology"))),
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
