//! CREATE, ALTER and DROP of sources and topologies; the start of all topologies when a database is opened.
//!
//! A topology is planned and checked before its statement is stored: what is refused leaves nothing behind. It
//! is stored before it is built and starts: what has written rows is there after a crash. DROP removes the statement first
//! and the state last: a crash in between leaves tables that nothing writes any more.

use crate::ddl::ownership::check_owner;
use crate::ddl::stored_topologies::{self, StoredTopology};
use crate::error::{Error, Result};
use crate::materialized::{deferred, explaining as view_explaining};
use crate::parser::own::streaming::{CreateSource, CreateTopology, StreamObject, StreamingStatement};
use crate::privileges::Privileges;
use crate::session::commit::blocking;
use crate::session::core::SessionCore;
use crate::session::owners::OwnedObject;
use crate::session::result::StatementResult;
use crate::session::topologies::Topologies;
use crate::streaming::boundaries::Boundaries;
use crate::streaming::connectors::SourceDefinition;
use crate::streaming::definers::check_outside;
use crate::streaming::made_tables::check_rejects;
use crate::streaming::sinks::SinkDefinition;
use crate::streaming::starting::{parse, relations_named, relations_of, start, stored};
use crate::streaming::stream_names::check_stream_names;
use crate::streaming::{
    alterations, dependents, explaining, replacement, steps, stored_streams, view_tables, view_topologies,
};
use std::sync::Arc;

/// Runs a statement of streams.
pub(crate) async fn run(session: &SessionCore, statement: &StreamingStatement) -> Result<StatementResult> {
    let verb = statement.verb();
    let _changing = session.options.topologies.changing().await;
    session.options.topologies.check_loaded(verb)?;
    check_owners(session, statement)?;
    match statement {
        StreamingStatement::CreateSource(create) => create_source(session, create).await?,
        StreamingStatement::CreateStream(create) => stored_streams::create(session, create).await?,
        StreamingStatement::CreateTopology(create) => create_topology(session, create).await?,
        StreamingStatement::Alter { object: StreamObject::Source, name, change, .. } => {
            alterations::alter_source(session, name, change).await?;
        }
        StreamingStatement::Alter { object, name, change, text } => {
            alterations::alter_topology(session, *object, name, (change, text)).await?;
        }
        StreamingStatement::Explain { name, analyze } => {
            if deferred::is_deferred(&session.catalog, name)? {
                return view_explaining::explain(session, name, *analyze);
            }
            return explaining::explain(session, name, *analyze).await;
        }
        StreamingStatement::Drop { object, names, if_exists, cascade } => {
            dependents::drop_objects(session, *object, names, *if_exists, *cascade).await?;
        }
    }
    Ok(StatementResult::Done { verb })
}

/// Refuses a statement on objects of another role.
fn check_owners(session: &SessionCore, statement: &StreamingStatement) -> Result<()> {
    let check = |object: StreamObject, name: &str| {
        let object = match object {
            StreamObject::Source => OwnedObject::Source,
            StreamObject::Stream => OwnedObject::Stream,
            StreamObject::Topology if deferred::is_deferred(&session.catalog, name)? => {
                OwnedObject::MaterializedView
            }
            StreamObject::Topology | StreamObject::Sink => OwnedObject::Topology,
        };
        check_owner(session, (object, name))
    };
    match statement {
        StreamingStatement::CreateStream(create) if create.replaces => {
            check(StreamObject::Stream, &create.name)
        }
        StreamingStatement::CreateTopology(create) if create.replaces => {
            check(StreamObject::Topology, &create.name)
        }
        StreamingStatement::Alter { object, name, .. } => check(*object, name),
        StreamingStatement::Explain { name, .. } => check(StreamObject::Topology, name),
        StreamingStatement::Drop { object, names, .. } => {
            names.iter().try_for_each(|name| check(*object, name))
        }
        StreamingStatement::CreateSource(_)
        | StreamingStatement::CreateStream(_)
        | StreamingStatement::CreateTopology(_) => Ok(()),
    }
}

async fn create_source(session: &SessionCore, create: &CreateSource) -> Result<()> {
    if let Some(table) = create.logged_table() {
        session.variables.authority.require(Privileges::SELECT, table)?;
    }
    let definition = SourceDefinition::new(&session.catalog, &steps::state_of_topologies(session), create)?;
    if let Some(connector) = definition.outside() {
        check_outside(session, ("source", connector))?;
    }
    let (catalog, name, text) = (Arc::clone(&session.catalog), create.name.clone(), create.text.clone());
    if stored_topologies::source(&catalog, &name)?.is_some() {
        if create.if_not_exists {
            return Ok(());
        }
        return Err(Error::coded("42710", format!("source \"{name}\" already exists")));
    }
    if stored_topologies::stream(&catalog, &name)?.is_some() {
        return Err(Error::coded("42710", format!("stream \"{name}\" already exists")));
    }
    if let Some(kind) = catalog.relation_kind(&name) {
        return Err(Error::coded("42P07", format!("{kind} \"{name}\" already exists")));
    }
    check_rejects(&catalog, &name, definition.rejects.as_deref())?;
    let owner = session.variables.authority.owner();
    blocking(move || stored_topologies::put_source(&catalog, &name, &text, owner.as_deref())).await?
}

async fn create_topology(session: &SessionCore, create: &CreateTopology) -> Result<()> {
    Boundaries::check_new(&create.boundaries)?;
    if let Some(sink) = &create.sink
        && let Some(connector) = SinkDefinition::new(&create.name, sink)?.outside()
    {
        check_outside(session, ("sink", connector))?;
    }
    let topologies = &session.options.topologies;
    let found = stored(session, &create.name, StreamObject::Topology);
    if topologies.has(&create.name) || found.is_ok() {
        if create.if_not_exists {
            return Ok(());
        }
        if create.replaces {
            let found = found?;
            replacement::check_kind(&found)?;
            check_stream_names(&session.catalog, create)?;
            return replacement::replace(session, found, create.text.clone(), true).await;
        }
        let noun = dependents::noun_of(session, &create.name);
        return Err(Error::coded("42710", format!("{noun} \"{}\" already exists", create.name)));
    }
    check_stream_names(&session.catalog, create)?;
    start(session, create, true).await
}

/// Starts the topologies of a database that is opened, those that are paused apart. One that cannot start is
/// shown as failed, with the reason.
pub(crate) async fn start_all(session: &SessionCore) -> Result<()> {
    let topologies = &session.options.topologies;
    topologies.loaded();
    let catalog = Arc::clone(&session.catalog);
    blocking(move || view_topologies::remove_dropped(&catalog)).await??;
    for stored in stored_topologies::topologies(&session.catalog)? {
        if let Err(error) = start_stored(session, topologies, &stored).await {
            tracing::error!(topology = stored.name, %error, "a topology cannot start");
            let relations = parse(&stored.text).map(|create| relations_named(&create)).unwrap_or_default();
            topologies.note(&stored.name, Some(error.to_string()), relations);
        }
    }
    Ok(())
}

async fn start_stored(session: &SessionCore, topologies: &Topologies, stored: &StoredTopology) -> Result<()> {
    let create = parse(&stored.text)?;
    if !stored.is_paused {
        return start(session, &create, false).await;
    }
    view_tables::make_table(session, &create).await?;
    let planned = steps::plan(session, &create).await?;
    topologies.note(&stored.name, None, relations_of(&create, &planned));
    Ok(())
}
