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
use crate::ddl::table_definition;
use crate::ddl::table_options::retention_of;
use crate::error::{Error, Result};
use crate::parser::own::materialized::{CreateMaterialized, ViewClause};
use crate::parser::own::streaming::{CreateTopology, StreamOption};
use crate::session::commit::blocking;
use crate::session::core::SessionCore;
use crate::session::materialized::{check_dependents, held_by, stream_owner_of, streamed_by};
use crate::session::result::StatementResult;
use crate::session::topologies::UsedRelations;
use crate::streaming::dependents::noun_of;
use crate::streaming::names::Reference;
use crate::streaming::operators::{Flow, Translator};
use crate::streaming::replaced::{ReplacedBy, check_replaced};
use crate::streaming::starting::{check_cycle, forget_state, relations_of, start, stream_error, translated};
use crate::streaming::steps::{self, PlannedTopology, Target};
use crate::streaming::stream_views::reads_streams;
use datafusion::logical_expr::LogicalPlan;
use entresol_streams::ToTable;
use entresol_tables::{
    Catalog, Column, RelationKind, Retention, Schema, Table, TableDefinition, TableOptions,
};
use std::sync::Arc;

const VERB: &str = "CREATE MATERIALIZED VIEW";

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
        references.extend(steps::references_of(step)?);
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
    note_nullable_key(session, &create.name, &definition.schema, &planned);
    let (catalog, name) = (Arc::clone(&session.catalog), create.name.clone());
    let stored = StoredTopology { name: name.clone(), text: create.text.clone(), is_paused: false };
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

/// Refuses a topology that would write the table of a materialized view, other than its own.
pub(crate) fn check_written(
    catalog: &Catalog,
    create: &CreateTopology,
    relations: &UsedRelations,
) -> Result<()> {
    for written in &relations.written {
        let Ok(table) = catalog.table(written) else { continue };
        if held_by(&table).is_some() && !(create.view.is_some() && *written == create.name) {
            let owner = table.definition().owner.as_deref().unwrap_or_default();
            return Err(Error::coded("55000", format!("table {written} is state of {owner}")));
        }
    }
    Ok(())
}

/// Makes the table of a view that is stored, if a crash left it without.
pub(crate) async fn make_table(session: &SessionCore, create: &CreateTopology) -> Result<()> {
    if create.view.is_none() || session.catalog.relation_kind(&create.name).is_some() {
        return Ok(());
    }
    let planned = steps::plan(session, create).await?;
    let (definition, options) = definition(session, create, &planned)?;
    let (catalog, name) = (Arc::clone(&session.catalog), create.name.clone());
    blocking(move || catalog.create_table_as(&name, definition, options).map(drop)).await??;
    Ok(())
}

/// Table of a view, if it is there; an error if a relation of its name is another.
pub(crate) fn table_of(catalog: &Catalog, name: &str) -> Result<Option<Arc<Table>>> {
    if catalog.relation_kind(name).is_none() {
        return Ok(None);
    }
    let table = catalog.table(name)?;
    if streamed_by(&table) == Some(name) {
        return Ok(Some(table));
    }
    Err(Error::coded("55000", format!("table \"{name}\" is not that of materialized view \"{name}\"")))
}

/// Writes the rows of a view into its table.
pub(crate) fn write(translator: &Translator<'_>, flow: &Flow, table: &Arc<Table>) -> Result<()> {
    let columns: Vec<usize> = (0..table.schema().visible_columns().len()).collect();
    let target = match &flow.replaced {
        None => ToTable::insert(table.name()),
        Some(replaced) if replaced.is_single_row() => ToTable::single_row(table.name()),
        Some(replaced) => {
            check_replaced(Some(replaced), table, &columns, true)?;
            ToTable::upsert(table.name())
        }
    };
    translator.insert(flow, table, &columns, target)
}

/// Removes the table of a view that is dropped, with the plain views that read it; an error if a materialized view does.
pub(crate) fn remove_table(catalog: &Catalog, name: &str) -> Result<()> {
    let is_own = |table: Arc<Table>| streamed_by(&table) == Some(name);
    if catalog.table(name).is_ok_and(is_own) {
        check_dependents(catalog, RelationKind::Table, name)?;
        catalog.drop_relations(&[(RelationKind::Table, name)], true)?;
    }
    Ok(())
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

/// Definition of the table of a view whose step is planned; an error if the step cannot run.
fn definition(
    session: &SessionCore,
    create: &CreateTopology,
    planned: &PlannedTopology,
) -> Result<(TableDefinition, TableOptions)> {
    let (Some(clause), Some(step)) = (&create.view, planned.steps.last()) else {
        return Err(Error::Internal(format!("{} is no materialized view", create.text)));
    };
    let options = ViewOptions::of(&create.name, &clause.options)?;
    let (builder, translated) =
        translated(&session.catalog, create, planned, session.options.durability, &[])?;
    builder.check().map_err(stream_error)?;
    let schema = schema_of(&create.name, clause, &step.plan, translated.view.as_ref())?;
    let definition = TableDefinition {
        owner: Some(stream_owner_of(&create.name)),
        changes: options.changes,
        ..TableDefinition::plain(schema)
    };
    Ok((definition, TableOptions { history: options.history, ..TableOptions::default() }))
}

/// Columns of a view, and the key by which its rows replace each other.
fn schema_of(
    name: &str,
    clause: &ViewClause,
    plan: &LogicalPlan,
    replaced: Option<&ReplacedBy>,
) -> Result<Schema> {
    let mut columns = table_definition::derived_columns(plan.schema().as_arrow())?;
    if clause.columns.len() > columns.len() {
        return Err(Error::coded("42601", format!("{VERB} specifies more column names than columns")));
    }
    for (column, given) in columns.iter_mut().zip(&clause.columns) {
        column.name.clone_from(given);
    }
    if let Some(twice) = twice_named(&columns) {
        return Err(Error::coded("42701", format!("column \"{twice}\" specified more than once")));
    }
    let key = replaced.map(|replaced| replaced.identity().ok_or_else(|| without_key(name, replaced)));
    let key = key.transpose()?.unwrap_or_default();
    let key: Vec<String> = key.into_iter().map(|at| columns[at].name.clone()).collect();
    Ok(Schema::new(columns, &key)?)
}

/// Name that several columns have.
fn twice_named(columns: &[Column]) -> Option<&str> {
    let mut names = columns.iter().map(|column| column.name.as_str()).enumerate();
    names.find(|(at, name)| columns[..*at].iter().any(|other| other.name == *name)).map(|(_, name)| name)
}

/// Refusal of a view whose rows cannot be found again.
fn without_key(name: &str, replaced: &ReplacedBy) -> Error {
    Error::unsupported(format!(
        "materialized view \"{name}\" of {}: its query lacks the key by which they are found again, {}. Select it, aggregate or rank \
         the rows, or send them to a sink",
        replaced.by.rows(),
        replaced.by.key(!replaced.one_of.is_empty())
    ))
}

/// Leaves a notice if values of the key may be NULL, which no key has.
fn note_nullable_key(session: &SessionCore, name: &str, schema: &Schema, planned: &PlannedTopology) {
    let Some(step) = planned.steps.last().filter(|_| !schema.hidden_key()) else { return };
    let fields = step.plan.schema().fields();
    let is_nullable = |at: &&usize| fields.get(**at).is_some_and(|field| field.is_nullable());
    let nullable = schema.key().iter().filter(is_nullable).map(|&at| schema.columns()[at].name.as_str());
    let nullable: Vec<&str> = nullable.collect();
    if !nullable.is_empty() {
        session.notice(format!(
            "the key of materialized view \"{name}\" has columns that may be NULL in its query: {}; a row with NULL there stops it, so \
             map it to a value, as coalesce does",
            nullable.join(", ")
        ));
    }
}

/// Options of a view that are not those of its topology.
struct ViewOptions {
    changes: Option<Retention>,
    history: Option<Retention>,
}

impl ViewOptions {
    fn of(name: &str, options: &[StreamOption]) -> Result<ViewOptions> {
        let mut found = ViewOptions { changes: None, history: None };
        for (option, text) in options {
            match option.as_str() {
                "changes" => found.changes = retention_of(option, text)?,
                "history" => found.history = retention_of(option, text)?,
                _ => {
                    return Err(Error::unsupported(format!(
                        "option \"{option}\" of materialized view \"{name}\", which reads a stream: its topology maintains it, in \
                         transactions of its own behind what it reads"
                    )));
                }
            }
        }
        Ok(found)
    }
}

/// Tells whether a topology whose step is planned writes the table of a view, which may be missing.
pub(crate) fn is_view(planned: &PlannedTopology) -> bool {
    planned.steps.last().is_some_and(|step| matches!(step.target, Target::View(_)))
}

/// Refuses REFRESH of a view over streams.
pub(crate) fn check_refreshed(catalog: &Catalog, name: &str) -> Result<()> {
    match catalog.table(name) {
        Ok(table) if streamed_by(&table).is_some() => Err(Error::unsupported(format!(
            "REFRESH of materialized view \"{name}\", which reads a stream: the rows that have passed are not stored, and its topology \
             keeps it up to date"
        ))),
        _ => Ok(()),
    }
}
