//! CREATE MATERIALIZED VIEW over sources and streams: a topology of one step, which writes a table of its name.
//!
//! ```text
//!   CREATE MATERIALIZED VIEW v AS SELECT ... FROM reading   ─▶ topology v: [step] ─▶ table v
//!   CREATE MATERIALIZED VIEW w AS SELECT ... FROM places    ─▶ maintained by the commits ([`crate::materialized`])
//! ```
//! The names in FROM decide: a source, a stream of no topology, or CHANGES of a table makes a topology. It is stored, started,
//! paused and explained as any other; its table is written by nothing else.
//!
//! | rows of the query | table |
//! | --- | --- |
//! | are only added | has no primary key: they are appended |
//! | replace each other, or are taken back | the primary key is what identifies them: written as by ON CONFLICT DO UPDATE of all other columns |
//! | the same, and what identifies them may be NULL | has no primary key: an index of these columns finds them |
//! | are one, of an aggregate of all rows | has no primary key: its one row is replaced |
//! | have no such key | the statement is refused |
//!
//! # What a crash leaves
//! - Creation stores the statement, makes the table, and starts the topology. A topology that starts without its table makes
//!   it: nothing was read yet.
//! - DROP removes the statement and notes that the table is of no use, in one transaction, and then removes the table. The next
//!   open removes what is noted ([`remove_dropped`]).

use crate::catalog::rows::streams;
use crate::ddl::stored_topologies::{self, StoredTopology};
use crate::error::{Error, Result};
use crate::parser::own::materialized::CreateMaterialized;
use crate::parser::own::streaming::CreateTopology;
use crate::session::commit::blocking;
use crate::session::core::SessionCore;
use crate::session::materialized::index_of;
use crate::session::result::StatementResult;
use crate::streaming::dependents::noun_of;
use crate::streaming::names::Reference;
use crate::streaming::operators::{Flow, Translator};
use crate::streaming::parsed_steps::references_of;
use crate::streaming::replaced::check_replaced;
use crate::streaming::starting::{check_cycle, forget_state, relations_of, start};
use crate::streaming::steps;
use crate::streaming::stream_views::reads_streams;
use crate::streaming::view_tables::{VERB, definition};
use crate::streaming::view_targets::check_written;
use entresol_streams::ToTable;
use entresol_tables::{Catalog, Table};
use std::sync::Arc;

/// Runs CREATE MATERIALIZED VIEW of a query over streams; none if it is over tables.
pub(crate) async fn create(
    session: &SessionCore,
    create: &CreateMaterialized,
) -> Result<Option<StatementResult>> {
    let Some(topology) = &create.over_streams else { return Ok(None) };
    match reads_stream(&session.catalog, topology) {
        Ok(true) => {}
        Ok(false) | Err(_) if create.over_tables.is_some() => return Ok(None),
        Ok(false) => return Err(no_stream(&topology.name)),
        Err(error) => return Err(error),
    }
    if topology.replaces {
        return Err(Error::unsupported(format!("OR REPLACE in {VERB}")));
    }
    let _topologies = session.options.topologies.changing().await;
    let _views = session.options.materialized.changing().await;
    session.options.topologies.check_loaded(VERB)?;
    if !(is_there(session, topology)? && topology.if_not_exists) {
        create_view(session, topology).await?;
    }
    Ok(Some(StatementResult::Done { verb: VERB }))
}

/// Tells whether the query of a view reads a source, a stream or CHANGES of a table.
fn reads_stream(catalog: &Catalog, create: &CreateTopology) -> Result<bool> {
    let mut references = Vec::new();
    for step in &create.steps {
        references.extend(references_of(step)?);
    }
    let is_changes = |reference: &Reference| matches!(reference, Reference::Changes { .. });
    let names: Vec<String> = references.iter().map(|reference| reference.name().to_owned()).collect();
    Ok(references.iter().any(is_changes) || reads_streams(catalog, &names)?)
}

/// Refusal of clauses of streams of a query that reads none.
fn no_stream(name: &str) -> Error {
    Error::unsupported(format!(
        "EMIT, LATE ROWS, MATCH_RECOGNIZE and windows of a stream in materialized view \"{name}\", whose query reads no source, \
         stream or CHANGES(table): it is maintained by the commits that change its tables"
    ))
}

/// Tells whether there is a relation of the name of a view; an error if that is in the way of the statement.
fn is_there(session: &SessionCore, create: &CreateTopology) -> Result<bool> {
    let (catalog, name) = (&session.catalog, &create.name);
    streams::check_name(catalog, name)?;
    let is_relation = catalog.relation_kind(name).is_some();
    let all = stored_topologies::topologies(catalog)?;
    let is_topology = session.options.topologies.has(name) || all.iter().any(|stored| stored.name == *name);
    match (is_relation, is_topology) {
        (true, _) if !create.if_not_exists => {
            Err(Error::coded("42P07", format!("relation \"{name}\" already exists")))
        }
        (false, true) if !(create.if_not_exists && session.options.topologies.is_view(name)) => {
            let noun = noun_of(session, name);
            Err(Error::coded("42710", format!("{noun} \"{name}\" already exists")))
        }
        _ => Ok(is_relation || is_topology),
    }
}

async fn create_view(session: &SessionCore, create: &CreateTopology) -> Result<()> {
    stored_topologies::check_topology(&create.text)?;
    let planned = steps::plan(session, create).await?;
    let relations = relations_of(create, &planned);
    check_written(&session.catalog, create, &relations)?;
    check_cycle(session, &create.name, &relations)?;
    let (definition, options) = definition(session, create, &planned)?;
    let (catalog, name) = (Arc::clone(&session.catalog), create.name.clone());
    let owner = session.variables.authority.owner();
    let stored = StoredTopology { name: name.clone(), text: create.text.clone(), is_paused: false, owner };
    blocking(move || {
        forget_state(&catalog, &name)?;
        stored_topologies::put_topology(&catalog, &stored)?;
        let made = catalog.create_table_as(&name, definition, options);
        if made.is_err() {
            stored_topologies::remove_topology(&catalog, &name)?;
        }
        made.map(drop).map_err(Error::from)
    })
    .await??;
    let started = start(session, create, false).await;
    if started.is_err() {
        let (catalog, name) = (Arc::clone(&session.catalog), create.name.clone());
        blocking(move || {
            stored_topologies::remove_view(&catalog, &name)?;
            forget_state(&catalog, &name)
        })
        .await??;
    }
    started
}

/// Removes what a crash left of views that were being dropped. A table that a materialized view still reads stays until that is
/// dropped.
pub(crate) fn remove_dropped(catalog: &Arc<Catalog>) -> Result<()> {
    for name in stored_topologies::dropped_views(catalog)? {
        if let Err(error) = forget_state(catalog, &name) {
            tracing::warn!(view = name, %error, "what a dropped materialized view left is still there");
        }
    }
    Ok(())
}

impl Translator<'_> {
    /// Writes the rows of a view into its table.
    pub(crate) fn write_view(&self, flow: &Flow, table: &Arc<Table>) -> Result<()> {
        let columns: Vec<usize> = (0..table.schema().visible_columns().len()).collect();
        let target = match &flow.replaced {
            None => ToTable::insert(table.name()),
            Some(replaced) if replaced.is_single_row() => ToTable::single_row(table.name()),
            Some(_) if table.schema().hidden_key() => {
                ToTable::by_index(table.name(), &index_of(table.name()))
            }
            Some(replaced) => {
                check_replaced(Some(replaced), table, &columns, true)?;
                ToTable::upsert(table.name())
            }
        };
        self.insert(flow, table, &columns, target)
    }
}
