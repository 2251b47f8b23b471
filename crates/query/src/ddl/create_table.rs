//! CREATE TABLE, and CREATE TABLE AS.

use crate::catalog::rows::streams;
use crate::ddl::table_definition;
use crate::ddl::table_options::{self, DeclaredOptions, LayoutChoice};
use crate::dml::writer::TableWriter;
use crate::error::Result;
use crate::parser::names::table_name;
use crate::parser::statement::query_statement;
use crate::planner::query::plan_query;
use crate::session::commit::blocking;
use crate::session::commit::commit_after;
use crate::session::core::SessionCore;
use crate::session::loads::analyze_loaded;
use crate::session::result::StatementResult;
use datafusion::dataframe::DataFrame;
use datafusion::sql::sqlparser::ast::{CreateTable, CreateTableOptions};
use entresol_tables::{
    Catalog, Error as TableError, NewSequence, RelationKind, TableDefinition, TableOptions,
};
use std::sync::Arc;
use std::time::Instant;

pub(crate) async fn create_table(session: &SessionCore, create: &CreateTable) -> Result<StatementResult> {
    let name = table_name(&create.name)?;
    if let CreateTableOptions::With(options) = &create.table_options {
        session.storage_notice(table_options::option_names(options));
    }
    streams::check_name(&session.catalog, &name)?;
    let Some(query) = &create.query else {
        if create.if_not_exists && session.catalog.relation_kind(&name).is_some() {
            return Ok(StatementResult::Done { verb: "CREATE TABLE" });
        }
        session.begin_definite()?;
        let (mut definition, sequences) = table_definition::declared(session, &name, create)?;
        let declared = table_options::declared_options(create)?;
        definition.placement = declared.placement.unwrap_or_default();
        (definition.layout, definition.auto_layout) = LayoutChoice::of_new_table(declared.layout);
        declared.set_structure(&session.catalog, &mut definition)?;
        definition.version_slots = declared.versions;
        let layout = (definition.layout, definition.auto_layout);
        definition.clustering = declared.clustering.definition(&name, &definition.schema, layout)?;
        definition.elf_layout = declared.elf.definition(&name, &definition.schema, layout)?;
        definition.changes = declared.changes.flatten();
        definition.object_store = declared.object_store.clone().flatten();
        let options = TableOptions { if_not_exists: create.if_not_exists, ..options_of(&declared) };
        make_table(session, &name, definition, sequences, options).await?;
        return Ok(StatementResult::Done { verb: "CREATE TABLE" });
    };
    table_definition::declared_schema_is_absent(create)?;
    match session.catalog.relation_kind(&name) {
        Some(_) if create.if_not_exists => return Ok(StatementResult::Done { verb: "CREATE TABLE" }),
        Some(RelationKind::Table) => return Err(TableError::TableExists { table: name }.into()),
        Some(_) => return Err(TableError::RelationExists { name }.into()),
        None => {}
    }
    let tx = session.catalog.begin()?;
    let _bound = session.bind(&tx);
    let frame = plan_query(session, query_statement(query.clone())).await?;
    let schema = table_definition::created_schema(frame.logical_plan())?;
    let declared = table_options::declared_options(create)?;
    let mut definition = TableDefinition::plain(schema);
    definition.placement = declared.placement.unwrap_or_default();
    (definition.layout, definition.auto_layout) = LayoutChoice::of_new_table(declared.layout);
    declared.set_structure(&session.catalog, &mut definition)?;
    definition.version_slots = declared.versions;
    let layout = (definition.layout, definition.auto_layout);
    definition.clustering = declared.clustering.definition(&name, &definition.schema, layout)?;
    definition.elf_layout = declared.elf.definition(&name, &definition.schema, layout)?;
    definition.changes = declared.changes.flatten();
    definition.object_store = declared.object_store.clone().flatten();
    session.begin_definite()?;
    make_table(session, &name, definition, Vec::new(), options_of(&declared)).await?;
    let unfilled = UnfinishedTable { catalog: &session.catalog, name: &name, kept: false };
    // There is nothing yet that would have to stay.
    session.end_definite();
    let rows = fill(session, &name, frame).await?;
    unfilled.keep();
    Ok(StatementResult::Count { verb: "CREATE TABLE AS", rows })
}

/// Drops the new table of a statement that does not come to its end: it fails, or its future is dropped.
struct UnfinishedTable<'s> {
    catalog: &'s Catalog,
    name: &'s str,
    kept: bool,
}

impl UnfinishedTable<'_> {
    /// The table has its rows.
    fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for UnfinishedTable<'_> {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        // On this thread: once the failure is reported, the table is gone.
        if let Err(error) = self.catalog.drop_table(self.name) {
            tracing::warn!(%error, table = self.name, "could not drop the table of a failed CREATE TABLE AS");
        }
    }
}

/// The table is new: its writer needs a snapshot that is not older.
async fn fill(session: &SessionCore, name: &str, frame: DataFrame) -> Result<u64> {
    let table = session.catalog.table(name)?;
    let began = Instant::now();
    let tx = session.catalog.begin()?;
    session.attend(&tx);
    let targets: Vec<usize> = (0..table.schema().visible_columns().len()).collect();
    let mut writer = TableWriter::new(session, &table, &targets)?.alone(true).shown(session);
    writer.write_query(session, &tx, frame).await?;
    commit_after(began, &tx, session.durability, &session.running).await?;
    analyze_loaded(&session.catalog, table, writer.written).await;
    Ok(writer.written)
}

/// Options of a new table, in a group of its own.
fn options_of(declared: &DeclaredOptions) -> TableOptions {
    TableOptions {
        group: None,
        protocol: declared.protocol,
        hot_bytes: declared.hot_bytes,
        if_not_exists: false,
        history: declared.history.flatten(),
    }
}

async fn make_table(
    session: &SessionCore,
    name: &str,
    definition: TableDefinition,
    sequences: Vec<NewSequence>,
    options: TableOptions,
) -> Result<()> {
    let (catalog, name) = (Arc::clone(&session.catalog), name.to_owned());
    blocking(move || catalog.create_table_with(&name, definition, options, sequences).map(drop)).await??;
    Ok(())
}
