//! Definition of a table as it was before an ALTER TABLE that is taken back.
//!
//! Names, NULLs, defaults and checks are those of before; columns and indexes that were added are dropped. Columns are NOT NULL,
//! and checks hold, again only if no row has got another value meanwhile. The table must have all columns of before.

use crate::ddl::alter::{Change, Rule};
use crate::dml::checks::Checks;
use crate::error::Result;
use crate::session::core::SessionCore;
use entresol_tables::{Check, Table, TableDefinition};
use std::sync::Arc;

/// Gives a table the definition that it had before.
pub(crate) async fn restore(session: &SessionCore, before: &Arc<Table>) -> Result<()> {
    let now = || session.catalog.table(before.name());
    let definition = before.definition().clone();
    Change::of(session, now()?).redefine(None, move |now| shrunk(now, definition)).await?;
    // Rules that were dropped, each against the rows of now.
    for (at, column) in before.schema().visible_columns().iter().enumerate() {
        let table = now()?;
        if table.schema().columns()[at].nullable && !column.nullable {
            let name = column.name.clone();
            let not_null = move |now: &mut TableDefinition| {
                now.schema = Arc::new(now.schema.with_changed(at, &name, false)?);
                Ok(())
            };
            Change::of(session, table).redefine(Some(Rule::NotNull(at)), not_null).await?;
        }
    }
    let table = now()?;
    let is_lost = |check: &&Check| table.definition().checks.iter().all(|now| now.name != check.name);
    let lost: Vec<Check> = before.definition().checks.iter().filter(is_lost).cloned().collect();
    if lost.is_empty() {
        return Ok(());
    }
    let state = session.context.state();
    let checks = Checks::of(state, table.name(), table.schema(), &lost)?;
    let added = move |now: &mut TableDefinition| {
        now.checks.extend(lost);
        Ok(())
    };
    Change::of(session, table).redefine(Some(Rule::Checks(checks)), added).await?;
    Ok(())
}

/// Takes away what was added; what rows may contradict stays as loose as it is.
fn shrunk(now: &mut TableDefinition, before: TableDefinition) -> Result<()> {
    let columns = before.schema.visible_columns();
    for added in (columns.len()..now.schema.visible_columns().len()).rev() {
        now.schema = Arc::new(now.schema.without_column(added)?);
    }
    for (at, column) in columns.iter().enumerate() {
        let nullable = column.nullable || now.schema.columns()[at].nullable;
        now.schema = Arc::new(now.schema.with_changed(at, &column.name, nullable)?);
    }
    now.indexes.retain(|index| before.indexes.iter().any(|other| other.name == index.name));
    now.checks.retain(|check| before.checks.contains(check));
    now.defaults = before.defaults;
    Ok(())
}
