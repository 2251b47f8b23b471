//! CREATE STREAM outside of a topology: a step with a name, which any topology may read as one of its own.
//!
//! ```text
//!   CREATE STREAM s AS ... FROM reading          topology a: [step of s] ─▶ steps of a
//!                                                topology b: [step of s] ─▶ steps of b
//! ```
//! Each topology that reads it has the step before its own, with state and watermarks of its own: what is between a stream and
//! its readers is in their transactions, and what no topology reads costs nothing. The statement is stored with the columns
//! that it gives, for DESCRIBE.

use crate::ddl::stored_topologies::{self, StoredStream};
use crate::error::{Error, Result};
use crate::parser::own::streaming::{CreateStream, CreateTopology, ErrorClause};
use crate::parser::statement::created_stream;
use crate::session::commit::blocking;
use crate::session::core::SessionCore;
use crate::session::owners::{OwnedObject, owner_of};
use crate::streaming::definers::authority_for;
use crate::streaming::dependents::{Dependents, Root};
use crate::streaming::starting::{operators, stream_error};
use crate::streaming::steps::{self, Target, columns_of};
use crate::streaming::stream_views::{check_kind, noun_of_text};
use entresol_tables::Column;
use entresol_transactions::Isolation;
use std::sync::Arc;

/// Runs CREATE STREAM.
pub(crate) async fn create(session: &SessionCore, create: &CreateStream) -> Result<()> {
    let name = &create.name;
    let stored = stored_topologies::stream(&session.catalog, name)?;
    if let Some(stored) = &stored {
        let noun = noun_of_text(stored);
        if !create.replaces {
            return Err(Error::coded("42710", format!("{noun} \"{name}\" already exists")));
        }
        check_kind(stored, name, noun_of_text(&create.text))?;
        let root = Root { noun: noun.to_owned(), name: name.clone() };
        let dependents = Dependents::of(session, &root, std::slice::from_ref(&root))?;
        if !dependents.is_empty() {
            return Err(dependents.refusal(session, "replace", &root));
        }
    }
    if stored_topologies::source(&session.catalog, name)?.is_some() {
        return Err(Error::coded("42710", format!("source \"{name}\" already exists")));
    }
    if let Some(kind) = session.catalog.relation_kind(name) {
        return Err(Error::coded("42P07", format!("{kind} \"{name}\" already exists")));
    }
    let stream = StoredStream {
        name: name.clone(),
        text: create.text.clone(),
        columns: declarations(&columns(session, create).await?),
        owner: match &stored {
            // One that is replaced keeps its owner.
            Some(_) => owner_of(&session.catalog, OwnedObject::Stream, name)?,
            None => session.variables.authority.owner(),
        },
    };
    let catalog = Arc::clone(&session.catalog);
    blocking(move || stored_topologies::put_stream(&catalog, &stream)).await?
}

/// Stores the columns of all streams anew, behind a change of what they read.
pub(crate) async fn note_columns(session: &SessionCore) -> Result<()> {
    for stream in stored_topologies::streams(&session.catalog)? {
        let Some(create) = created_stream(&stream.text) else { continue };
        // One that cannot be planned any more keeps what it had.
        let Ok(columns) = columns(session, &create).await else { continue };
        let stream = StoredStream { columns: declarations(&columns), ..stream };
        let catalog = Arc::clone(&session.catalog);
        blocking(move || stored_topologies::put_stream(&catalog, &stream)).await??;
    }
    Ok(())
}

/// Columns of a stream; an error if it cannot run.
async fn columns(session: &SessionCore, create: &CreateStream) -> Result<Vec<Column>> {
    let topology = CreateTopology {
        name: create.name.clone(),
        if_not_exists: false,
        replaces: false,
        boundaries: Vec::new(),
        isolation: Isolation::default(),
        on_error: ErrorClause::Stop,
        errors_into: None,
        options: Vec::new(),
        steps: vec![create.step.clone()],
        sink: None,
        view: None,
        text: create.text.clone(),
    };
    let definer = authority_for(session, (OwnedObject::Stream, &create.name))?;
    let planned = steps::plan_as(session, &topology, definer).await?;
    let (builder, _) = operators(&session.catalog, &topology, &planned, session.options.durability, &[])?;
    builder.check().map_err(stream_error)?;
    match planned.steps.last() {
        Some(step) if matches!(step.target, Target::Stream(_)) => columns_of(&create.name, &step.plan),
        _ => Err(Error::Internal(format!("{} is not a stream", create.text))),
    }
}

fn declarations(columns: &[Column]) -> String {
    let declared = columns.iter().map(|column| {
        let rule = if column.nullable { "" } else { " NOT NULL" };
        format!("\"{}\" {}{rule}", column.name.replace('"', "\"\""), column.data_type)
    });
    declared.collect::<Vec<String>>().join(",\n")
}
