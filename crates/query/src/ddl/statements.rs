//! CREATE INDEX, CREATE VIEW, COMMENT ON and the DROPs of indexes and sequences: from the statement to the catalog.
//!
//! - An index is complete and in use when the statement returns; other sessions write the table meanwhile.
//! - None of these can be part of a transaction. A transaction that began before and wrote the table gets a
//!   conflict.

use crate::ddl::comments;
use crate::ddl::elf;
use crate::ddl::owned_tables;
use crate::ddl::sequences;
use crate::ddl::table_definition::{ascending, column_indexes, index_name};
use crate::ddl::table_options::{NODE_BYTES, chosen_node_bytes, node_bytes_of, text_of};
use crate::ddl::views;
use crate::error::{Error, Result};
use crate::parser::names::{refuse, table_name};
use crate::session::cancellation::CancelOnDrop;
use crate::session::commit::blocking;
use crate::session::core::SessionCore;
use crate::session::materialized::check_unneeded;
use crate::session::notices::is_storage;
use crate::session::result::StatementResult;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CreateIndex, Expr, IndexType, ObjectName, ObjectType, Statement,
};
use entresol_structures::IndexStructure;
use entresol_tables::{Error as TableError, IndexDefinition, RelationKind};
use std::sync::Arc;

/// Runs a statement of this module.
pub(crate) async fn run(session: &SessionCore, statement: &Statement) -> Result<StatementResult> {
    match statement {
        Statement::CreateIndex(create) => create_index(session, create).await,
        Statement::CreateView(create) => views::create(session, create).await,
        Statement::Comment { object_type, object_name, comment, if_exists: false, .. } => {
            comments::comment(session, *object_type, object_name, comment.as_deref()).await
        }
        Statement::Drop { object_type: ObjectType::Sequence, if_exists, names, cascade, .. } => {
            sequences::drop_sequences(session, *if_exists, names, *cascade).await
        }
        Statement::Drop { if_exists, names, cascade, .. } => {
            refuse("DROP INDEX", &[(*cascade, "CASCADE")])?;
            drop_indexes(session, *if_exists, names).await
        }
        other => Err(Error::Internal(format!("{other} is not a definition"))),
    }
}

async fn create_index(session: &SessionCore, create: &CreateIndex) -> Result<StatementResult> {
    const DONE: StatementResult = StatementResult::Done { verb: "CREATE INDEX" };
    if elf::is_elf(create) {
        elf::create(session, create).await?;
        return Ok(DONE);
    }
    let hashed = create.using == Some(IndexType::Hash);
    let structure = match &create.using {
        Some(using) if !hashed => structure_of(using)?,
        _ => IndexStructure::default(),
    };
    if hashed && create.unique {
        return Err(Error::unsupported("access method \"hash\" does not support unique indexes; use btree"));
    }
    let parameters = create.with.iter().map(parameter);
    let is_node_bytes = |name: &str| name.eq_ignore_ascii_case(NODE_BYTES);
    let sizes = parameters.clone().flatten().filter(|(name, _)| is_node_bytes(name));
    let sizes =
        sizes.map(|(name, value)| node_bytes_of(name, &text_of(value))).collect::<Result<Vec<u16>>>()?;
    let storage =
        parameters.map(|known| known.map(|(name, _)| name)).filter(|name| !name.is_some_and(is_node_bytes));
    refuse(
        "CREATE INDEX",
        &[
            (!create.include.is_empty(), "INCLUDE"),
            (create.nulls_distinct == Some(false), "NULLS NOT DISTINCT"),
            (!storage.clone().all(|name| name.is_some_and(is_storage)), "WITH"),
            (sizes.len() > 1, "WITH (node_bytes) twice"),
            (hashed && !sizes.is_empty(), "WITH (node_bytes) USING hash"),
            (create.predicate.is_some(), "WHERE"),
            (!create.index_options.is_empty() || !create.alter_options.is_empty(), "an option"),
        ],
    )?;
    let table = session.catalog.table(&table_name(&create.table_name)?)?;
    owned_tables::check_indexable(session, &table)?;
    session.storage_notice(storage.flatten());
    let columns = column_indexes(table.name(), table.schema(), &ascending(session, &create.columns))?;
    let name = match &create.name {
        Some(name) => table_name(name)?,
        None => index_name(session, table.name(), table.definition(), &columns, "idx"),
    };
    let definition = IndexDefinition {
        name,
        columns,
        unique: create.unique,
        constraint: false,
        primary: false,
        structure,
        node_bytes: chosen_node_bytes(structure, sizes.first().copied())?,
        hashed,
    };
    let (catalog, if_not_exists) = (Arc::clone(&session.catalog), create.if_not_exists);
    let statement = session.running.statement();
    let stops = CancelOnDrop::new(Arc::clone(&statement));
    let created = blocking(move || catalog.create_index_for(&statement, table.name(), definition)).await;
    stops.done();
    match created? {
        Err(TableError::RelationExists { .. }) if if_not_exists => Ok(DONE),
        Err(TableError::UniqueViolation { constraint, columns, values, .. }) => Err(Error::coded(
            "23505",
            format!(
                "could not create unique index \"{constraint}\": Key ({columns})=({values}) is duplicated."
            ),
        )),
        created => created.map(|_| DONE).map_err(Error::from),
    }
}

/// Name and value of a parameter of an index; none of another expression.
fn parameter(option: &Expr) -> Option<(&str, &Expr)> {
    match option {
        Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => match left.as_ref() {
            Expr::Identifier(name) => Some((name.value.as_str(), right)),
            _ => None,
        },
        _ => None,
    }
}

/// Structure of an index by the name of its access method; `btree` is the default.
fn structure_of(using: &IndexType) -> Result<IndexStructure> {
    if *using == IndexType::BTree {
        return Ok(IndexStructure::default());
    }
    let name = using.to_string();
    name.parse().map_err(|_| {
        let others = IndexStructure::ALL.map(IndexStructure::name).join(", ");
        let message = format!("USING {} in CREATE INDEX", name.to_lowercase());
        let known = format!("there are btree, hash, {others}, and elf for the layout 'columns'");
        Error::unsupported(format!("{message}; {known}"))
    })
}

async fn drop_indexes(
    session: &SessionCore,
    if_exists: bool,
    names: &[ObjectName],
) -> Result<StatementResult> {
    let names: Result<Vec<String>> = names.iter().map(table_name).collect();
    let mut existing = Vec::new();
    for name in names? {
        match session.catalog.table_of_index(&name) {
            Ok(table) => {
                check_unneeded(&table, &name)?;
                existing.push(name);
            }
            Err(_) if session.catalog.relation_kind(&name).is_some() => {
                return Err(TableError::WrongKind { name, wanted: RelationKind::Index }.into());
            }
            Err(TableError::NoSuchIndex { .. }) if if_exists => {}
            Err(error) => return Err(error.into()),
        }
    }
    for name in existing {
        let catalog = Arc::clone(&session.catalog);
        match blocking(move || catalog.drop_index(&name)).await? {
            Err(TableError::NoSuchIndex { .. }) if if_exists => {}
            dropped => dropped?,
        }
    }
    Ok(StatementResult::Done { verb: "DROP INDEX" })
}
