//! CREATE INDEX ... USING elf: an index of several columns of a table with the layout `columns`.
//!
//! `WITH (dimension_order = 'auto')` lets each row group order the columns by the number of their different values;
//! the default is `written`, as the statement names them, since the columns that queries have conditions on should
//! come first, and only the user knows those.

use crate::ddl::statements::ascending;
use crate::ddl::table_definition::{column_indexes, index_name};
use crate::ddl::table_options::text_of;
use crate::error::{Error, Result};
use crate::parser::names::{refuse, table_name};
use crate::session::cancellation::CancelOnDrop;
use crate::session::commit::blocking;
use crate::session::core::SessionCore;
use crate::session::notices::is_storage;
use datafusion::sql::sqlparser::ast::{BinaryOperator, CreateIndex, Expr, IndexType};
use entresol_tables::{DimensionOrder, Error as TableError};
use std::sync::Arc;

/// Name of the access method.
const ELF: &str = "elf";
/// Name of the parameter for the order of dimensions.
const DIMENSION_ORDER: &str = "dimension_order";

/// Tells whether a statement creates an Elf.
pub(crate) fn is_elf(create: &CreateIndex) -> bool {
    matches!(&create.using, Some(IndexType::Custom(name)) if name.value.eq_ignore_ascii_case(ELF))
}

/// Creates the index; it is complete and in use then.
pub(crate) async fn create(session: &SessionCore, create: &CreateIndex) -> Result<()> {
    refuse(
        "CREATE INDEX ... USING elf",
        &[
            (create.unique, "UNIQUE"),
            (!create.include.is_empty(), "INCLUDE"),
            (create.nulls_distinct == Some(false), "NULLS NOT DISTINCT"),
            (create.predicate.is_some(), "WHERE"),
            (!create.index_options.is_empty() || !create.alter_options.is_empty(), "an option"),
        ],
    )?;
    let order = dimension_order(session, &create.with)?;
    let table = session.catalog.table(&table_name(&create.table_name)?)?;
    let columns = column_indexes(table.name(), table.schema(), &ascending(session, &create.columns))?;
    let name = match &create.name {
        Some(name) => table_name(name)?,
        None => index_name(session, table.name(), table.definition(), &columns, "idx"),
    };
    let (catalog, statement) = (Arc::clone(&session.catalog), session.running.statement());
    let stops = CancelOnDrop::new(Arc::clone(&statement));
    let of = (columns, order);
    let created = blocking(move || catalog.create_elf(&statement, table.name(), &name, of)).await;
    stops.done();
    match created? {
        Err(TableError::RelationExists { .. }) if create.if_not_exists => Ok(()),
        created => Ok(created?),
    }
}

/// Order of dimensions that the parameters say; storage parameters have no effect, as a notice says.
fn dimension_order(session: &SessionCore, parameters: &[Expr]) -> Result<DimensionOrder> {
    let mut order = None;
    for parameter in parameters {
        let named = match parameter {
            Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => match &**left {
                Expr::Identifier(name) => Some((name.value.as_str(), right)),
                _ => None,
            },
            _ => None,
        };
        let Some((name, value)) = named else {
            return Err(Error::unsupported(format!("{parameter} in CREATE INDEX")));
        };
        if is_storage(name) {
            session.storage_notice(std::iter::once(name));
        } else if !name.eq_ignore_ascii_case(DIMENSION_ORDER) {
            return Err(Error::coded("22023", format!("unrecognized parameter \"{name}\"")));
        } else if order.replace(order_of(&text_of(value))?).is_some() {
            return Err(Error::coded("42601", format!("parameter \"{name}\" specified more than once")));
        }
    }
    Ok(order.unwrap_or_default())
}

fn order_of(text: &str) -> Result<DimensionOrder> {
    let known = DimensionOrder::ALL.into_iter().find(|order| order.name().eq_ignore_ascii_case(text));
    known.ok_or_else(|| {
        let message = format!("invalid value for parameter \"{DIMENSION_ORDER}\": \"{text}\"");
        Error::coded("22023", format!("{message}; written or auto"))
    })
}
