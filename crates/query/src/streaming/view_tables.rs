//! Definition of the table of a materialized view over streams: columns, and the key by which its rows replace each other, or
//! where that may be NULL an index.

use crate::ddl::table_definition;
use crate::ddl::table_options::retention_of;
use crate::error::{Error, Result};
use crate::parser::own::materialized::ViewClause;
use crate::parser::own::streaming::{CreateTopology, StreamOption};
use crate::session::commit::blocking;
use crate::session::core::SessionCore;
use crate::session::materialized::{index_of, stream_owner_of};
use crate::streaming::made_tables::check_builder;
use crate::streaming::replaced::ReplacedBy;
use crate::streaming::starting::translated;
use crate::streaming::steps::{self, PlannedTopology};
use datafusion::logical_expr::LogicalPlan;
use entresol_tables::{Column, IndexDefinition, Retention, Schema, TableDefinition, TableOptions};
use std::sync::Arc;

/// Statement, in errors.
pub(crate) const VERB: &str = "CREATE MATERIALIZED VIEW";

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

/// Definition of the table of a view whose step is planned; an error if the step cannot run.
pub(crate) fn definition(
    session: &SessionCore,
    create: &CreateTopology,
    planned: &PlannedTopology,
) -> Result<(TableDefinition, TableOptions)> {
    let (Some(clause), Some(step)) = (&create.view, planned.steps.last()) else {
        return Err(Error::Internal(format!("{} is not a materialized view", create.text)));
    };
    let options = ViewOptions::of(&create.name, &clause.options)?;
    let (builder, translated) =
        translated(&session.catalog, create, planned, session.options.durability, &[])?;
    check_builder(&session.catalog, create, builder)?;
    let replaced = translated.view.as_ref();
    let (columns, key) = columns_of(&create.name, clause, &step.plan, replaced)?;
    let fields = step.plan.schema().fields();
    let may_be_null = |at: &usize| fields.get(*at).is_some_and(|field| field.is_nullable());
    let (key, indexed) = if key.iter().any(may_be_null) { (Vec::new(), key) } else { (key, Vec::new()) };
    let names: Vec<String> = key.into_iter().map(|at| columns[at].name.clone()).collect();
    let mut definition = TableDefinition {
        owner: Some(stream_owner_of(&create.name)),
        changes: options.changes,
        ..TableDefinition::plain(Schema::new(columns, &names)?)
    };
    if !indexed.is_empty() {
        definition.indexes.push(IndexDefinition::plain(index_of(&create.name), indexed));
    }
    Ok((definition, TableOptions { history: options.history, ..TableOptions::default() }))
}

/// Columns of a view, and those by which its rows replace each other.
fn columns_of(
    name: &str,
    clause: &ViewClause,
    plan: &LogicalPlan,
    replaced: Option<&ReplacedBy>,
) -> Result<(Vec<Column>, Vec<usize>)> {
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
    Ok((columns, key.transpose()?.unwrap_or_default()))
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
