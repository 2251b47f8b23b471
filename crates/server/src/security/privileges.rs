//! Privilege checks: may a role run a statement, by the tables that its text names.
//!
//! A role without SUPERUSER may do with tables as it was granted, and use transactions and settings. Everything else,
//! definitions and backups included, is for superusers. AS OF and arguments may contain queries, so BEGIN and EXECUTE
//! are examined as well.
//!
//! | statement | needs |
//! | --- | --- |
//! | any, for each table that it reads | SELECT |
//! | INSERT | INSERT; UPDATE if ON CONFLICT updates; SELECT if it returns rows or looks for conflicts |
//! | UPDATE, DELETE | UPDATE, DELETE; SELECT if it has a condition, computes or returns something |

use std::ops::ControlFlow;

use entresol::query::Privileges;
use entresol::query::datafusion::common::TableReference;
use entresol::query::datafusion::sql::parser::{DFParserBuilder, Statement as EngineStatement};
use entresol::query::datafusion::sql::sqlparser::ast::{
    Assignment, Expr as SqlExpr, FromTable, FunctionArg, FunctionArgExpr, FunctionArguments, ObjectName,
    OnConflictAction, OnInsert, SetExpr, Statement, TableFactor, TableObject, TableWithJoins, Value,
};
use entresol::query::datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use entresol::query::datafusion::sql::sqlparser::parser::Parser;
use entresol::query::walk::{visit_expressions, visit_relations};

use super::relations;
use super::roles::Role;
use crate::error::{Outcome, Report};
use crate::wire::split::Kind;

/// Maximum nesting that is examined; the query layer's own limit is the same.
const NESTING_MAX: usize = 128;
/// Schemas that describe objects and hold no rows of tables.
const OPEN_SCHEMAS: [&str; 3] = ["information_schema", "entresol", "pg_catalog"];

/// Checks the privileges of the role for a statement; SQLSTATE 42501 if one is missing.
pub(crate) fn check(role: &Role, sql: &str, kind: Kind) -> Outcome<()> {
    if role.administrator {
        return Ok(());
    }
    match kind {
        Kind::Commit | Kind::Rollback | Kind::Savepoint | Kind::RollbackTo | Kind::Show => return Ok(()),
        Kind::Begin => return check_as_of(role, sql),
        Kind::Setting if !prepares(sql) => return check_as_of(role, sql),
        // FETCH, MOVE, CLOSE: the cursor was checked when it was declared.
        Kind::Cursor if !begins_with(sql, &["declare"]) => return Ok(()),
        // Its text is not for the parser that finds the tables.
        Kind::Copy | Kind::Definition => {
            return Err(denied("must be superuser to run this statement"));
        }
        _ => {}
    }
    entresol::query::check_chains(sql)?;
    let parsed = DFParserBuilder::new(sql)
        .with_dialect(entresol::query::dialect_of(sql))
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

/// Tells whether it is PREPARE, which holds a statement, or EXECUTE, which has arguments that are computed.
fn prepares(sql: &str) -> bool {
    begins_with(sql, &["prepare", "execute"])
}

fn begins_with(sql: &str, words: &[&str]) -> bool {
    let is = |word: &&str| sql.get(..word.len()).is_some_and(|first| first.eq_ignore_ascii_case(word));
    words.iter().any(is)
}

/// Checks the privileges for the query of an AS OF.
fn check_as_of(role: &Role, sql: &str) -> Outcome<()> {
    match entresol::query::moment_query(sql) {
        Ok(Some(query)) => check_tables(role, &query),
        Ok(None) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Checks the privileges for the tables of a statement, for a role without SUPERUSER; SQLSTATE 42501 if one is missing.
pub(crate) fn check_tables(role: &Role, statement: &EngineStatement) -> Outcome<()> {
    let written = match statement {
        EngineStatement::Statement(statement) => write_target(statement)?,
        EngineStatement::Explain(explain) => return check_tables(role, &explain.statement),
        _ => return Err(denied("must be superuser to run this statement")),
    };
    let named = relations::named(statement);
    let named = named.map_err(|error| Report::from(entresol::query::Error::from(error)))?;
    for table in named.iter().filter(|table| !is_open(table)) {
        let only_written =
            written.as_ref().is_some_and(|written| written.table == table.table() && !written.reads);
        if !only_written {
            allow(role, Privileges::SELECT, table.table())?;
        }
    }
    check_sequences(role, statement)?;
    match written {
        Some(written) => allow(role, written.privileges, &written.table),
        None => Ok(()),
    }
}

/// Tells whether a table is of a schema that describes others.
fn is_open(table: &TableReference) -> bool {
    match table.schema() {
        Some(schema) => OPEN_SCHEMAS.contains(&schema),
        None => entresol::query::is_catalog_relation(table.table()),
    }
}

/// Checks `nextval` and `setval`, which write the sequence that they name. Those in defaults and views are not checked:
/// the creator of these had the privilege.
fn check_sequences(role: &Role, statement: &EngineStatement) -> Outcome<()> {
    let EngineStatement::Statement(statement) = statement else { return Ok(()) };
    let visited = visit_expressions(statement.as_ref(), |expr| match advanced_sequence(expr) {
        None => ControlFlow::Continue(()),
        Some(Some(sequence)) if role.may(Privileges::UPDATE, &sequence) => ControlFlow::Continue(()),
        Some(Some(sequence)) => {
            ControlFlow::Break(denied(format!("permission denied for sequence {sequence}")))
        }
        Some(None) => ControlFlow::Break(denied("must be superuser to compute a sequence's name")),
    });
    match visited {
        ControlFlow::Break(report) => Err(report),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// The sequence that an expression advances; `Some(None)` if its name is known at run time only.
fn advanced_sequence(expr: &SqlExpr) -> Option<Option<String>> {
    let SqlExpr::Function(function) = expr else { return None };
    let called = function.name.0.last()?.as_ident()?.value.to_ascii_lowercase();
    if called != "nextval" && called != "setval" {
        return None;
    }
    let FunctionArguments::List(list) = &function.args else { return Some(None) };
    let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(SqlExpr::Value(name)))) = list.args.first() else {
        return Some(None);
    };
    let Value::SingleQuotedString(text) = &name.value else { return Some(None) };
    let parsed = Parser::new(&PostgreSqlDialect {}).try_with_sql(text);
    Some(parsed.and_then(|mut parser| parser.parse_object_name(false)).ok().map(|name| last(&name)))
}

fn allow(role: &Role, wanted: Privileges, table: &str) -> Outcome<()> {
    if role.may(wanted, table) { Ok(()) } else { Err(denied(format!("permission denied for table {table}"))) }
}

fn denied(message: impl Into<String>) -> Report {
    Report::error("42501", message)
}

/// Effect of a statement on the table that it writes.
struct WriteTarget {
    table: String,
    privileges: Privileges,
    /// Set if its rows are read, too, or it is named twice.
    reads: bool,
}

/// The table that a statement writes, and how.
fn write_target(statement: &Statement) -> Outcome<Option<WriteTarget>> {
    let unknown = || denied("must be superuser to run this statement");
    let twice = |table: &str| {
        let mut times = 0;
        let visited: ControlFlow<()> = visit_relations(statement, |name| {
            times += usize::from(last(name) == table);
            ControlFlow::Continue(())
        });
        visited.is_break() || times > 1
    };
    let (table, privileges, reads) = match statement {
        Statement::Query(query) if !writes(&query.body) => return Ok(None),
        Statement::Insert(insert) => {
            let TableObject::TableName(name) = &insert.table else { return Err(unknown()) };
            let updates = match &insert.on {
                Some(OnInsert::OnConflict(conflict)) => {
                    !matches!(conflict.action, OnConflictAction::DoNothing)
                }
                Some(_) => return Err(unknown()),
                None => false,
            };
            let privileges = if updates { Privileges::UPDATE } else { Privileges::NONE };
            let reads = insert.returning.is_some() || insert.on.is_some();
            (last(name), Privileges::INSERT.with(privileges), reads)
        }
        Statement::Update(update) => {
            let constant = |assignment: &Assignment| matches!(assignment.value, SqlExpr::Value(_));
            let computes = !update.assignments.iter().all(constant);
            let reads = update.selection.is_some() || update.returning.is_some() || computes;
            (target(&update.table).ok_or_else(unknown)?, Privileges::UPDATE, reads)
        }
        Statement::Delete(delete) => {
            let (FromTable::WithFromKeyword(tables) | FromTable::WithoutKeyword(tables)) = &delete.from;
            let reads = delete.selection.is_some() || delete.returning.is_some();
            (tables.first().and_then(target).ok_or_else(unknown)?, Privileges::DELETE, reads)
        }
        Statement::Explain { statement, .. } => return write_target(statement),
        Statement::Prepare { statement, .. } => return write_target(statement),
        Statement::Declare { .. } | Statement::Fetch { .. } | Statement::Close { .. } => return Ok(None),
        Statement::Execute { .. } | Statement::Deallocate { .. } => return Ok(None),
        _ => return Err(unknown()),
    };
    let reads = reads || twice(&table);
    Ok(Some(WriteTarget { table, privileges, reads }))
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
            grants: [
                ("a".to_owned(), Privileges::SELECT),
                ("b".to_owned(), Privileges::ALL),
                ("i".to_owned(), Privileges::INSERT),
                ("u".to_owned(), Privileges::UPDATE.with(Privileges::DELETE)),
            ]
            .into(),
        };
        check(&role, sql, split(sql)[0].kind).map_err(|report| report.code)
    }

    #[test]
    fn tables_are_found_wherever_they_stand() {
        assert_eq!(code("SELECT * FROM a JOIN b ON true"), Ok(()));
        assert_eq!(code("INSERT INTO b SELECT * FROM a"), Ok(()));
        assert_eq!(code("BEGIN"), Ok(()));
        assert_eq!(code("SELECT 1"), Ok(()));
        assert_eq!(code("SELECT relname FROM pg_class JOIN pg_catalog.pg_namespace ON true"), Ok(()));
        for taken in [
            "INSERT INTO i VALUES (1)",
            "INSERT INTO i SELECT * FROM a",
            "UPDATE u SET x = 1",
            "DELETE FROM u",
        ] {
            assert_eq!(code(taken), Ok(()), "{taken}");
        }
        for taken in [
            "BEGIN AS OF SYSTEM TIME (SELECT max(x) FROM a)",
            "SET TRANSACTION AS OF TRANSACTION 5",
            "SET search_path = public",
            "EXECUTE p(1)",
            "FETCH ALL FROM d",
            "MOVE 5 IN d",
            "CLOSE d",
            "SELECT * FROM a FOR SYSTEM_TIME AS OF (SELECT max(x) FROM b)",
            "WITH c AS (SELECT 1), d AS (SELECT * FROM c) SELECT * FROM c, d",
            "WITH RECURSIVE n AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM n WHERE x < 9) SELECT * FROM n",
            "WITH RECURSIVE n AS (WITH i AS (SELECT 1 AS x) SELECT x FROM i UNION ALL SELECT x FROM n) SELECT * FROM n",
            "SELECT * FROM generate_series(1, 3)",
        ] {
            assert_eq!(code(taken), Ok(()), "{taken}");
        }
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
            "SELECT * FROM i",
            "INSERT INTO i VALUES (1) RETURNING x",
            "INSERT INTO i SELECT * FROM i",
            "INSERT INTO i VALUES (1) ON CONFLICT (x) DO UPDATE SET x = 2",
            "DELETE FROM i",
            "UPDATE u SET x = 1 WHERE y = 2",
            "UPDATE u SET x = x + 1",
            "DELETE FROM u WHERE x = 1",
            "DELETE FROM u RETURNING x",
            "SELECT * FROM pg_nothing",
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
            "EXECUTE p((SELECT max(x) FROM c))",
            "EXPLAIN SELECT * FROM c",
            "DECLARE d CURSOR FOR SELECT * FROM c",
            "BEGIN AS OF SYSTEM TIME (SELECT max(x) FROM c)",
            "START TRANSACTION AS OF SYSTEM TIME now() - (SELECT max(x) FROM a, c)",
            "SET TRANSACTION AS OF SYSTEM TIME (SELECT x FROM a FOR SYSTEM_TIME AS OF (SELECT max(x) FROM c))",
            "BEGIN AS OF SYSTEM TIME nextval('c')",
            "SELECT * FROM c FOR SYSTEM_TIME AS OF '2026-01-01'",
            "SELECT * FROM a FOR SYSTEM_TIME AS OF (SELECT max(x) FROM c)",
            "WITH q AS (SELECT * FROM c), c AS (SELECT 1) SELECT * FROM q",
            "WITH RECURSIVE q AS (SELECT * FROM c), c AS (SELECT 1) SELECT * FROM q",
            "WITH RECURSIVE c AS (SELECT * FROM c) SELECT * FROM c",
            "WITH RECURSIVE c AS (SELECT * FROM c UNION ALL SELECT * FROM c) SELECT * FROM c",
            "SELECT * FROM (WITH c AS (SELECT 1) SELECT * FROM c) AS x, c",
            "WITH c AS (SELECT 1) SELECT * FROM public.c",
            "SELECT * FROM generate_series(1, (SELECT max(x) FROM c))",
        ] {
            assert_eq!(code(refused), Err("42501"), "{refused}");
        }
    }
}
