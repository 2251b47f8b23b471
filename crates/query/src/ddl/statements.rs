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
use crate::ddl::table_options::{
    HOT_BYTES, NODE_BYTES, chosen_node_bytes, hot_bytes_of, node_bytes_of, text_of,
};
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
    let method = Method::of(create.using.as_ref())?;
    let hashed = method == Method::Hash;
    if hashed && create.unique {
        return Err(Error::unsupported("access method \"hash\" does not support unique indexes; use btree"));
    }
    let parameters = Parameters::of(&create.with)?;
    refuse(
        "CREATE INDEX",
        &[
            (!create.include.is_empty(), "INCLUDE"),
            (create.nulls_distinct == Some(false), "NULLS NOT DISTINCT"),
            (hashed && parameters.node_bytes.is_some(), "WITH (node_bytes) USING hash"),
            (create.predicate.is_some(), "WHERE"),
            (!create.index_options.is_empty() || !create.alter_options.is_empty(), "an option"),
        ],
    )?;
    let table = session.catalog.table(&table_name(&create.table_name)?)?;
    owned_tables::check_indexable(session, &table)?;
    session.storage_notice(parameters.storage.iter().copied());
    let columns = column_indexes(table.name(), table.schema(), &ascending(session, &create.columns))?;
    let name = match &create.name {
        Some(name) => table_name(name)?,
        None => index_name(session, table.name(), table.definition(), &columns, "idx"),
    };
    let mut definition =
        IndexDefinition { unique: create.unique, hashed, ..IndexDefinition::plain(name, columns) };
    match method {
        Method::Hash => {}
        Method::Structure(structure) => definition.structure = structure,
        Method::Auto => {
            let choice = session.catalog.choose_index_structure(&table, &definition)?;
            (definition.structure, definition.structure_reason) = (choice.structure, Some(choice.why));
        }
    }
    definition.node_bytes = chosen_node_bytes(definition.structure, parameters.node_bytes)?;
    let hot_bytes = parameters.hot_bytes;
    let (catalog, if_not_exists) = (Arc::clone(&session.catalog), create.if_not_exists);
    let statement = session.running.statement();
    let stops = CancelOnDrop::new(Arc::clone(&statement));
    let created =
        blocking(move || catalog.create_index_for(&statement, table.name(), definition, hot_bytes)).await;
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

/// Parameters of an index behind WITH.
#[derive(Debug, Default)]
struct Parameters<'c> {
    node_bytes: Option<u16>,
    hot_bytes: Option<u64>,
    /// Names of those of PostgreSQL's about storage, which have no effect.
    storage: Vec<&'c str>,
}

impl Parameters<'_> {
    fn of(with: &[Expr]) -> Result<Parameters<'_>> {
        let mut parameters = Parameters::default();
        for option in with {
            let Some((name, value)) = parameter(option) else {
                return Err(Error::unsupported(format!("WITH ({option}) in CREATE INDEX")));
            };
            let is_again = match name.to_ascii_lowercase().as_str() {
                known @ NODE_BYTES => {
                    parameters.node_bytes.replace(node_bytes_of(known, &text_of(value))?).is_some()
                }
                HOT_BYTES => parameters.hot_bytes.replace(hot_bytes_of(&text_of(value))?).is_some(),
                known if is_storage(known) => {
                    parameters.storage.push(name);
                    false
                }
                _ => {
                    let message = format!("unrecognized parameter \"{name}\" of an index");
                    return Err(Error::coded(
                        "22023",
                        format!("{message}; there are {NODE_BYTES} and {HOT_BYTES}"),
                    ));
                }
            };
            if is_again {
                return Err(Error::coded("22023", format!("parameter \"{name}\" specified more than once")));
            }
        }
        Ok(parameters)
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

/// Access method of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    Hash,
    Structure(IndexStructure),
    /// Structure for which the cost model expects least.
    Auto,
}

impl Method {
    /// Method by its name; `btree` is the default structure.
    fn of(using: Option<&IndexType>) -> Result<Method> {
        let name = match using {
            None | Some(IndexType::BTree) => return Ok(Method::Structure(IndexStructure::default())),
            Some(IndexType::Hash) => return Ok(Method::Hash),
            Some(other) => other.to_string(),
        };
        if name.eq_ignore_ascii_case("auto") {
            return Ok(Method::Auto);
        }
        name.parse().map(Method::Structure).map_err(|_| {
            let others = IndexStructure::ALL.map(IndexStructure::name).join(", ");
            let message = format!("USING {} in CREATE INDEX", name.to_lowercase());
            let known = format!("there are btree, hash, {others}, auto, and elf for the layout 'columns'");
            Error::unsupported(format!("{message}; {known}"))
        })
    }
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
