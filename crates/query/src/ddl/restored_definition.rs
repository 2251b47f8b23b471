//! Definition of a table as it was before an ALTER TABLE that is taken back.
//!
//! Names, NULLs, defaults and checks are those of before; columns and indexes that were added are dropped. A column is NOT
//! NULL again only if no row has got a NULL in it meanwhile. The table must have all columns of before.

use crate::ddl::alter::{Change, Rule};
use crate::error::Result;
use crate::session::core::SessionCore;
use entresol_tables::{Table, TableDefinition};
use std::sync::Arc;

/// Gives a table the definition that it had before.
pub(crate) async fn restore(session: &SessionCore, before: &Arc<Table>) -> Result<()> {
    let table = session.catalog.table(before.name())?;
    let mut columns = before.schema().visible_columns().iter().zip(table.schema().visible_columns());
    let not_null = columns.position(|(before, now)| now.nullable && !before.nullable);
    let definition = before.definition().clone();
    let change = Change::of(session, Arc::clone(&table));
    change.redefine(not_null.map(Rule::NotNull), move |now| restored(now, definition)).await?;
    Ok(())
}

fn restored(now: &mut TableDefinition, before: TableDefinition) -> Result<()> {
    let columns = before.schema.visible_columns();
    for added in (columns.len()..now.schema.visible_columns().len()).rev() {
        now.schema = Arc::new(now.schema.without_column(added)?);
    }
    for (at, column) in columns.iter().enumerate() {
        now.schema = Arc::new(now.schema.with_changed(at, &column.name, column.nullable)?);
    }
    now.indexes.retain(|index| before.indexes.iter().any(|other| other.name == index.name));
    (now.defaults, now.checks) = (before.defaults, before.checks);
    Ok(())
}
