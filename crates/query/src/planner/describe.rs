//! DESCRIBE: the columns of a table, view, source or stream; the operators of a topology or sink.

use crate::error::Result;
use crate::parser::names::{self, identifier};
use crate::parser::statement::{created_source, statement_of};
use crate::parser::text::tokens::{BEGINNING, tokenize};
use crate::privileges::Privileges;
use crate::schema_names::{SOURCES_TABLE, STREAMS_TABLE, SYSTEM_SCHEMA, TOPOLOGIES_TABLE};
use crate::session::core::SessionCore;
use datafusion::sql::parser::Statement as DFStatement;
use datafusion::sql::sqlparser::ast::{
    ColumnDef, ColumnOption, Ident, ObjectNamePart, Statement, Value as Literal,
};
use entresol_tables::{Catalog, Column, Value, change_columns};

/// Returns true for DESCRIBE.
pub(crate) fn is_description(statement: &DFStatement) -> bool {
    matches!(statement, DFStatement::Statement(inner) if matches!(**inner, Statement::ExplainTable { .. }))
}

/// Replaces DESCRIBE of a table, view, source, stream, topology or sink by a query. A relation of the name comes first.
pub(crate) fn resolve(session: &SessionCore, statement: &mut DFStatement) -> Result<()> {
    let catalog = &session.catalog;
    let DFStatement::Statement(inner) = &*statement else { return Ok(()) };
    let Statement::ExplainTable { table_name, .. } = inner.as_ref() else { return Ok(()) };
    if let Ok(name) = names::table_name(table_name)
        && let Some(kind) = catalog.relation_kind(&name)
    {
        session.variables.authority.require_on(Privileges::SELECT, kind, &name)?;
        *statement = statement_of(tokenize(&columns_of(&name), BEGINNING)?)?;
        return Ok(());
    }
    let [ObjectNamePart::Identifier(ident)] = table_name.0.as_slice() else { return Ok(()) };
    let name = identifier(ident);
    let quoted = Literal::SingleQuotedString(name.clone());
    let source = match stored(catalog, STREAMS_TABLE, &name, 2)? {
        // With the columns that it gives it reads as a source.
        Some(columns) => Some(format!("CREATE SOURCE s ({columns}) WITH (connector = 'stream')")),
        None => stored(catalog, SOURCES_TABLE, &name, 1)?,
    };
    let query = match source.as_deref().and_then(created_source) {
        Some(create) => {
            let included = create.included.iter().map(|(_, column)| column);
            let mut rows: Vec<String> = create.columns.iter().chain(included).map(row).collect();
            if let (Some(table), true) = (create.logged_table(), rows.is_empty()) {
                let table = catalog.table(table)?;
                rows.extend(change_columns(table.schema().visible_columns()).iter().map(row_of_change));
            }
            let columns = "column_name, data_type, is_nullable";
            format!("SELECT {columns} FROM (VALUES {}) d ({columns})", rows.join(", "))
        }
        None if stored(catalog, TOPOLOGIES_TABLE, &name, 1)?.is_some() => format!(
            "SELECT operator, tuples_in, tuples_out FROM {SYSTEM_SCHEMA}.operators WHERE topology = {quoted} ORDER BY number"
        ),
        None => return Ok(()),
    };
    *statement = statement_of(tokenize(&query, BEGINNING)?)?;
    Ok(())
}

/// Query of the columns of a relation, with their types as SQL has them.
fn columns_of(name: &str) -> String {
    let relation = Literal::SingleQuotedString(Ident::with_quote('"', name).to_string());
    format!(
        "SELECT a.attname AS column_name, pg_catalog.format_type(a.atttypid, a.atttypmod) AS data_type,
             CASE WHEN a.attnotnull THEN 'NO' ELSE 'YES' END AS is_nullable
         FROM pg_catalog.pg_attribute a
         WHERE a.attrelid = {relation}::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"
    )
}

/// Row of a column of a table's changes.
fn row_of_change(column: &Column) -> String {
    described([column.name.clone(), column.data_type.to_string()], !column.nullable)
}

/// Row of a column, as a list of literals.
fn row(column: &ColumnDef) -> String {
    let is_required = column.options.iter().any(|option| matches!(option.option, ColumnOption::NotNull));
    described([identifier(&column.name), column.data_type.to_string()], is_required)
}

/// List of literals: name and type of a column, and whether it may be NULL.
fn described(names: [String; 2], is_required: bool) -> String {
    let [name, data_type] = names.map(Literal::SingleQuotedString);
    format!("({name}, {data_type}, '{}')", if is_required { "NO" } else { "YES" })
}

/// Stored text of an object, in a column of its table.
fn stored(catalog: &Catalog, table: &str, name: &str, column: usize) -> Result<Option<String>> {
    let Ok(table) = catalog.table(table) else { return Ok(None) };
    let transaction = catalog.begin()?;
    let row = table.get(&transaction, &[Value::from(name)])?;
    Ok(row.and_then(|row| match row.get(column) {
        Some(Value::Varchar(text)) => Some(text.to_string()),
        _ => None,
    }))
}
