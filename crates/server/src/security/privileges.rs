//! Whether a role may run a statement: by the tables that its text names.
//!
//! Whoever is no administrator may read and write tables that it was granted, and use transactions and settings.
//! Everything else, definitions and backups included, is for administrators.

use std::ops::ControlFlow;

use entresol::query::datafusion::sql::parser::{DFParserBuilder, Statement as EngineStatement};
use entresol::query::datafusion::sql::resolve::resolve_table_references;
use entresol::query::datafusion::sql::sqlparser::ast::{
    Expr, FromTable, FunctionArg, FunctionArgExpr, FunctionArguments, Insert, ObjectName, SetExpr, Statement,
    TableFactor, TableObject, TableWithJoins, Value, visit_expressions,
};
use entresol::query::datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use entresol::query::datafusion::sql::sqlparser::parser::Parser;

use super::roles::{Access, Role};
use crate::error::{Outcome, Report};
use crate::wire::split::Kind;

/// The deepest nesting that is looked into; the query layer's own bound is the same.
const NESTING_MAX: usize = 128;
/// Schemas that describe and hold no rows of tables.
const OPEN_SCHEMAS: [&str; 3] = ["information_schema", "entresol", "pg_catalog"];

/// Refuses what the role may not do, with SQLSTATE 42501.
pub(crate) fn check(role: &Role, sql: &str, kind: Kind) -> Outcome<()> {
    if role.administrator {
        return Ok(());
    }
    match kind {
        Kind::Begin | Kind::Commit | Kind::Rollback | Kind::Savepoint | Kind::RollbackTo => return Ok(()),
        // Of these a client can name only what it has prepared or declared before, which was looked at then.
        Kind::Setting if !prepares(sql) => return Ok(()),
        Kind::Show => return Ok(()),
        // Its text is not for the parser that finds the tables.
        Kind::Copy | Kind::Definition => {
            return Err(denied("must be an administrator to run this statement"));
        }
        _ => {}
    }
    let parsed = DFParserBuilder::new(sql)
        .with_dialect(&PostgreSqlDialect {})
        .with_recursion_limit(NESTING_MAX)
        .build()
        .and_then(|mut parser| parser.parse_statements());
    let statements =
        parsed.map_err(|error| Report::from(entresol::query::Error::from(error)).positioned(sql, 0))?;
    for statement in &statements {
        check_tables(role, statement)?;
    }
    Ok(())
}

/// PREPARE holds a statement.
fn prepares(sql: &str) -> bool {
    sql.trim_start().get(..7).is_some_and(|word| word.eq_ignore_ascii_case("prepare"))
}

fn check_tables(role: &Role, statement: &EngineStatement) -> Outcome<()> {
    let written = match statement {
        EngineStatement::Statement(statement) => written(statement)?,
        EngineStatement::Explain(explain) => return check_tables(role, &explain.statement),
        _ => return Err(denied("must be an administrator to run this statement")),
    };
    let named = resolve_table_references(statement, true);
    let (named, _) = named.map_err(|error| Report::from(entresol::query::Error::from(error)))?;
    for table in named.iter().filter(|table| !table.schema().is_some_and(|of| OPEN_SCHEMAS.contains(&of))) {
        allow(role, Access::Read, table.table())?;
    }
    check_sequences(role, statement)?;
    match written {
        Some(table) => allow(role, Access::Write, &table),
        None => Ok(()),
    }
}

/// `nextval` and `setval` write the sequence that they name. Those in defaults and views are not looked at: whoever made
/// these may.
fn check_sequences(role: &Role, statement: &EngineStatement) -> Outcome<()> {
    let EngineStatement::Statement(statement) = statement else { return Ok(()) };
    let visited = visit_expressions(statement.as_ref(), |expr| match drawn_from(expr) {
        None => ControlFlow::Continue(()),
        Some(Some(sequence)) if role.may(Access::Write, &sequence) => ControlFlow::Continue(()),
        Some(Some(sequence)) => {
            ControlFlow::Break(denied(format!("permission denied for sequence {sequence}")))
        }
        Some(None) => ControlFlow::Break(denied("must be an administrator to compute a sequence's name")),
    });
    match visited {
        ControlFlow::Break(report) => Err(report),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// The sequence that an expression writes; `Some(None)` if only running it tells which.
fn drawn_from(expr: &Expr) -> Option<Option<String>> {
    let Expr::Function(function) = expr else { return None };
    let called = function.name.0.last()?.as_ident()?.value.to_ascii_lowercase();
    if called != "nextval" && called != "setval" {
        return None;
    }
    let FunctionArguments::List(list) = &function.args else { return Some(None) };
    let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(name)))) = list.args.first() else {
        return Some(None);
    };
    let Value::SingleQuotedString(text) = &name.value else { return Some(None) };
    let parsed = Parser::new(&PostgreSqlDialect {}).try_with_sql(text);
    Some(parsed.and_then(|mut parser| parser.parse_object_name(false)).ok().map(|name| last(&name)))
}

fn allow(role: &Role, access: Access, table: &str) -> Outcome<()> {
    match role.may(access, table) {
        true => Ok(()),
        false => Err(denied(format!("permission denied for table {table}"))),
    }
}

fn denied(message: impl Into<String>) -> Report {
    Report::error("42501", message)
}

/// The table that a statement writes.
fn written(statement: &Statement) -> Outcome<Option<String>> {
    let unknown = || denied("must be an administrator to run this statement");
    let table = match statement {
        Statement::Query(query) if !writes(&query.body) => None,
        Statement::Insert(Insert { table: TableObject::TableName(name), .. }) => Some(last(name)),
        Statement::Update(update) => Some(target(&update.table).ok_or_else(unknown)?),
        Statement::Delete(delete) => {
            let (FromTable::WithFromKeyword(tables) | FromTable::WithoutKeyword(tables)) = &delete.from;
            Some(tables.first().and_then(target).ok_or_else(unknown)?)
        }
        Statement::Explain { statement, .. } => return written(statement),
        Statement::Prepare { statement, .. } => return written(statement),
        Statement::Declare { .. } | Statement::Fetch { .. } | Statement::Close { .. } => None,
        Statement::Execute { .. } | Statement::Deallocate { .. } => None,
        _ => return Err(unknown()),
    };
    Ok(table)
}

/// A query whose body is a write, which a WITH in front of it hides.
fn writes(body: &SetExpr) -> bool {
    matches!(body, SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_))
}

fn target(table: &TableWithJoins) -> Option<String> {
    match &table.relation {
        TableFactor::Table { name, .. } => Some(last(name)),
        _ => None,
    }
}

/// The table's name as the catalog has it.
fn last(name: &ObjectName) -> String {
    let ident = name.0.last().and_then(|part| part.as_ident());
    ident.map_or_else(String::new, |ident| match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_lowercase(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::split::split;

    fn code(sql: &str) -> Result<(), &'static str> {
        let role = Role {
            name: "r".into(),
            administrator: false,
            grants: [("a".to_owned(), Access::Read), ("b".to_owned(), Access::Write)].into(),
        };
        check(&role, sql, split(sql)[0].kind).map_err(|report| report.code)
    }

    #[test]
    fn tables_are_found_wherever_they_stand() {
        assert_eq!(code("SELECT * FROM a JOIN b ON true"), Ok(()));
        assert_eq!(code("INSERT INTO b SELECT * FROM a"), Ok(()));
        assert_eq!(code("BEGIN"), Ok(()));
        assert_eq!(code("SELECT 1"), Ok(()));
        assert_eq!(code("SELECT nextval('b'), setval('public.B', 5), currval('c')"), Ok(()));
        for refused in [
            "SELECT nextval('a')",
            "SELECT 1 + pg_catalog.setval('c', 1)",
            "INSERT INTO b VALUES (NEXTVAL('c'))",
            "EXPLAIN SELECT nextval('c')",
            "SELECT nextval(x) FROM a",
            "SELECT nextval('b' || '')",
            "SELECT * FROM c",
            "SELECT (SELECT max(x) FROM c)",
            "WITH q AS (SELECT * FROM c) SELECT * FROM q",
            "SELECT * FROM a WHERE x IN (SELECT x FROM public.c)",
            "INSERT INTO a VALUES (1)",
            "INSERT INTO b SELECT * FROM c",
            "UPDATE a SET x = 1",
            "UPDATE b SET x = (SELECT max(x) FROM c)",
            "DELETE FROM a",
            "EXPLAIN ANALYZE DELETE FROM a",
            "SELECT * FROM entresol_roles",
            "CREATE TABLE c (x INT)",
            "DROP TABLE b",
            "BACKUP TO '/tmp/x'",
            "COPY a FROM STDIN",
            "PREPARE p AS SELECT * FROM c",
        ] {
            assert_eq!(code(refused), Err("42501"), "{refused}");
        }
    }
}
