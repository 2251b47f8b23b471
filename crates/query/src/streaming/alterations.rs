//! ALTER TOPOLOGY, ALTER SINK and ALTER SOURCE.
//!
//! - PAUSE and RESUME are stored before they take effect. Those of a materialized view with deferred refresh are of its
//!   topology.
//! - SET (options) stores the statement with other options. A topology that runs commits its open transaction, and goes on
//!   with them behind it.
//! - SET and ADD COLUMN of a source stop the topologies that read it, and start them again; if one could not be
//!   planned with it, the source stays as it was. SEEK is in [`super::seeking`]. Options that say what rows are read,
//!   or where, stay: positions are of those rows.

use crate::ddl::stored_topologies::{self, StoredTopology};
use crate::error::{Error, Result};
use crate::materialized::deferred;
use crate::parser::own::streaming::{Encoding, StreamChange, StreamObject, StreamOption};
use crate::parser::statement::created_source;
use crate::session::commit::blocking;
use crate::session::core::SessionCore;
use crate::session::owners::{OwnedObject, owner_of};
use crate::streaming::connectors::SourceDefinition;
use crate::streaming::definers::check_outside;
use crate::streaming::made_tables::check_rejects;
use crate::streaming::options_text;
use crate::streaming::replacement;
use crate::streaming::replanning::ReplannedTopologies;
use crate::streaming::seeking::seek_source;
use crate::streaming::starting::{parse, start, stored};
use crate::streaming::steps::state_of_topologies;
use crate::streaming::stored_streams;
use std::sync::Arc;

/// Options of a source with which the rows behind a position are the same.
const CHANGEABLE: [&str; 11] = [
    "acknowledge",
    "connect",
    "events",
    "future_limit",
    "idle_timeout",
    "listen",
    "rejects",
    "retry",
    "rows",
    "rows_per_second",
    "tail",
];

/// Runs ALTER TOPOLOGY and ALTER SINK; a change to other steps is in the text of the statement.
pub(crate) async fn alter_topology(
    session: &SessionCore,
    object: StreamObject,
    name: &str,
    (change, text): (&StreamChange, &str),
) -> Result<()> {
    if object == StreamObject::Topology && deferred::is_deferred(&session.catalog, name)? {
        return alter_view(session, name, change).await;
    }
    let stored = stored(session, name, object)?;
    match change {
        StreamChange::Pause => pause(session, stored).await,
        StreamChange::Resume => resume(session, stored).await,
        StreamChange::Options(options) => set_options(session, stored, options).await,
        StreamChange::Steps => replacement::replace_steps(session, stored, text).await,
        StreamChange::AddColumn(_) | StreamChange::Seek(_) => {
            Err(Error::Internal("a change of a source of a topology".to_owned()))
        }
    }
}

async fn alter_view(session: &SessionCore, name: &str, change: &StreamChange) -> Result<()> {
    let pauses = match change {
        StreamChange::Pause => true,
        StreamChange::Resume => false,
        _ => {
            let message =
                format!("\"{name}\" is a materialized view: its topology has PAUSE and RESUME alone");
            return Err(Error::coded("42809", message));
        }
    };
    let (catalog, topologies) = (Arc::clone(&session.catalog), session.options.topologies.clone());
    let view = name.to_owned();
    blocking(move || {
        deferred::set_paused(&catalog, &view, pauses)?;
        if pauses {
            topologies.pause(&view);
        }
        Ok::<(), Error>(())
    })
    .await??;
    if pauses { Ok(()) } else { deferred::start(session, name) }
}

async fn pause(session: &SessionCore, mut stored: StoredTopology) -> Result<()> {
    let (catalog, topologies) = (Arc::clone(&session.catalog), session.options.topologies.clone());
    blocking(move || {
        stored.is_paused = true;
        stored_topologies::put_topology(&catalog, &stored)?;
        topologies.pause(&stored.name);
        Ok(())
    })
    .await?
}

async fn resume(session: &SessionCore, mut stored: StoredTopology) -> Result<()> {
    if session.options.topologies.is_running(&stored.name) {
        return Ok(());
    }
    let create = parse(&stored.text)?;
    let was_paused = stored.is_paused;
    let catalog = Arc::clone(&session.catalog);
    let mut put = move |is_paused: bool| {
        stored.is_paused = is_paused;
        let (catalog, row) = (Arc::clone(&catalog), stored.clone());
        blocking(move || stored_topologies::put_topology(&catalog, &row))
    };
    put(false).await??;
    let started = start(session, &create, false).await;
    if started.is_err() {
        put(was_paused).await??;
    }
    started
}

/// Options of a statement with some of them changed.
fn changed(mut options: Vec<StreamOption>, changes: &[StreamOption]) -> Vec<StreamOption> {
    for (name, value) in changes {
        match options.iter_mut().find(|(other, _)| other == name) {
            Some((_, found)) => found.clone_from(value),
            None => options.push((name.clone(), value.clone())),
        }
    }
    options
}

async fn set_options(session: &SessionCore, stored: StoredTopology, changes: &[StreamOption]) -> Result<()> {
    let create = parse(&stored.text)?;
    // Those of the topology and of its sink or view are one clause.
    let of_sink = create.sink.iter().flat_map(|sink| sink.options.iter().cloned());
    let of_view = create.view.iter().flat_map(|view| view.options.iter().cloned());
    if let Some((name, _)) =
        changes.iter().find(|(name, _)| create.sink.is_some() && name.as_str() != "durability")
    {
        let message = format!("option \"{name}\" of a sink cannot be changed: drop it and create it again");
        return Err(Error::coded("55000", message));
    }
    if create.view.is_some()
        && let Some((name, _)) = changes.iter().find(|(name, _)| is_of_table(name))
    {
        let message = format!(
            "option \"{name}\" is of the table of materialized view \"{view}\": ALTER TABLE {view} SET ({name} = ...) changes it",
            view = stored.name
        );
        return Err(Error::coded("42809", message));
    }
    let options = changed(create.options.iter().cloned().chain(of_sink).chain(of_view).collect(), changes);
    let text = options_text::with_options(&stored.text, &options)?;
    replacement::replace(session, stored, text, false).await
}

/// Tells whether an option of a materialized view is one of its table.
fn is_of_table(option: &str) -> bool {
    matches!(option, "changes" | "history")
}

/// Runs ALTER SOURCE.
pub(crate) async fn alter_source(session: &SessionCore, name: &str, change: &StreamChange) -> Result<()> {
    let before = stored_topologies::source(&session.catalog, name)?;
    let before = before.ok_or_else(|| Error::coded("42704", format!("source \"{name}\" does not exist")))?;
    let create =
        created_source(&before).ok_or_else(|| Error::Internal(format!("{before} is not a source")))?;
    let definition = SourceDefinition::new(&session.catalog, &state_of_topologies(session), &create)?;
    if let Some(connector) = definition.outside() {
        check_outside(session, ("source", connector))?;
    }
    let owner = owner_of(&session.catalog, OwnedObject::Source, name)?;
    let after = match change {
        StreamChange::Seek(target) => return seek_source(session, name, &definition, *target).await,
        StreamChange::Options(changes) => {
            if let Some((option, _)) = changes.iter().find(|(option, _)| !is_changeable(option)) {
                let message = format!(
                    "option \"{option}\" of source \"{name}\" cannot be changed, since positions are of the rows that were read \
                     with it; drop the source and create it again"
                );
                return Err(Error::coded("55000", message));
            }
            options_text::with_options(&before, &changed(create.options, changes))?
        }
        StreamChange::AddColumn(_) if matches!(create.encoding, Some(Encoding::Changes(_))) => {
            let message = format!(
                "ADD COLUMN of source \"{name}\", whose rows change: those that were read lack it; drop the source and create it again"
            );
            return Err(Error::coded("55000", message));
        }
        StreamChange::AddColumn(_) if create.columns.is_empty() => {
            let message =
                format!("ADD COLUMN of source \"{name}\", which has all columns of the changes of its table");
            return Err(Error::coded("55000", message));
        }
        StreamChange::AddColumn(column) => options_text::with_column(&before, column)?,
        _ => return Err(Error::Internal("a change of a topology of a source".to_owned())),
    };
    stored_topologies::check_topology(&after)?;
    let parsed = created_source(&after).ok_or_else(|| Error::Internal(format!("{after} is not a source")))?;
    let changed = SourceDefinition::new(&session.catalog, &state_of_topologies(session), &parsed)?;
    check_rejects(&session.catalog, name, changed.rejects.as_deref())?;
    let users = session.options.topologies.users(|used| used.uses(name));
    let replanning = ReplannedTopologies::stop(session, users, |_| true).await?;
    let put = |text: String| {
        let (catalog, name, owner) = (Arc::clone(&session.catalog), name.to_owned(), owner.clone());
        blocking(move || stored_topologies::put_source(&catalog, &name, &text, owner.as_deref()))
    };
    let stored = put(after).await.and_then(|stored| stored);
    let checked = if stored.is_ok() { replanning.check().await } else { Ok(()) };
    let undone = if checked.is_err() { put(before).await.and_then(|undone| undone) } else { Ok(()) };
    let started = replanning.start().await;
    stored.and(checked).and(undone).and(started)?;
    stored_streams::note_columns(session).await
}

fn is_changeable(option: &str) -> bool {
    CHANGEABLE.contains(&option)
}
