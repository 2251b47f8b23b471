//! Table of a COPY FROM.

use crate::dml::source;
use crate::error::Result;
use crate::parser::names::table_name;
use crate::privileges::Privileges;
use crate::session::core::SessionCore;
use datafusion::sql::sqlparser::ast::ObjectName;
use entresol_tables::Table;
use std::sync::Arc;

/// Table that a COPY FROM writes, if the session's role may.
pub(crate) fn copied_table(session: &SessionCore, name: &ObjectName) -> Result<Arc<Table>> {
    let table = source::written(&session.catalog, "copy to", &table_name(name)?)?;
    session.variables.authority.require(Privileges::INSERT, table.name())?;
    Ok(table)
}
