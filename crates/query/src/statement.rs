//! Parsing, and which part of the session a statement is for.
//!
//! SQL is parsed in PostgreSQL's dialect by DataFusion's parser; names fold to lower case unless quoted. A text
//! is parsed as a whole before its first statement runs. Texts are at most [`SQL_BYTES_MAX`] long.

use std::path::PathBuf;

use datafusion::sql::parser::{DFParserBuilder, Statement as EngineStatement};
use datafusion::sql::sqlparser::ast::{
    CreateTable, Delete, FromTable, Ident, Insert, ObjectName, ObjectNamePart, ObjectType, Query, Set,
    Statement, TableFactor, TableWithJoins, TransactionMode, Update,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;

use crate::backup::{self, Part};
use crate::error::{Error, Result};
use crate::schemas::{CATALOG, SCHEMA};

/// The longest text of one call.
pub const SQL_BYTES_MAX: usize = 64 << 20;
/// The deepest nesting of expressions that the parser follows.
const NESTING_MAX: usize = 128;

/// A statement, by who runs it.
#[derive(Debug, Clone)]
pub(crate) enum Command {
    Begin(Vec<TransactionMode>),
    Commit,
    Rollback,
    Savepoint(String),
    RollbackTo(String),
    Release(String),
    CreateTable(Box<CreateTable>),
    DropTable {
        if_exists: bool,
        names: Vec<ObjectName>,
    },
    /// CREATE INDEX, DROP INDEX, ALTER TABLE.
    Define(Box<Statement>),
    Insert(Box<Insert>),
    Update(Box<Update>),
    Delete(Box<Delete>),
    Backup(PathBuf),
    SetDurability(String),
    ShowDurability,
    /// SET or RESET of an option of the engine.
    Engine(Box<EngineStatement>),
    /// Whatever only reads.
    Query(Box<EngineStatement>),
}

/// Parses statements, separated by semicolons.
pub(crate) fn parse(sql: &str) -> Result<Vec<Command>> {
    if sql.len() > SQL_BYTES_MAX {
        return Err(Error::Invalid(format!(
            "the SQL text has {} bytes, at most {SQL_BYTES_MAX} are possible",
            sql.len()
        )));
    }
    let Some(parts) = backup::cut(sql)? else {
        return parse_engine(sql)?.into_iter().map(classify).collect();
    };
    let mut commands = Vec::new();
    for part in parts {
        match part {
            Part::Backup(destination) => commands.push(Command::Backup(destination)),
            Part::Sql(sql) => {
                let statements: Result<Vec<Command>> =
                    parse_engine(&sql)?.into_iter().map(classify).collect();
                commands.extend(statements?);
            }
        }
    }
    Ok(commands)
}

fn parse_engine(sql: &str) -> Result<Vec<EngineStatement>> {
    let mut parser = DFParserBuilder::new(sql)
        .with_dialect(&PostgreSqlDialect {})
        .with_recursion_limit(NESTING_MAX)
        .build()?;
    Ok(parser.parse_statements()?.into())
}

fn classify(statement: EngineStatement) -> Result<Command> {
    match statement {
        EngineStatement::Statement(statement) => classify_sql(*statement),
        EngineStatement::Explain(_) => Ok(Command::Query(Box::new(statement))),
        EngineStatement::Reset(_) => Ok(Command::Engine(Box::new(statement))),
        other @ (EngineStatement::CreateExternalTable(_) | EngineStatement::CopyTo(_)) => {
            Err(unsupported(&other))
        }
    }
}

fn classify_sql(statement: Statement) -> Result<Command> {
    Ok(match statement {
        Statement::StartTransaction { modes, ref statements, modifier: None, .. }
            if statements.is_empty() =>
        {
            Command::Begin(modes)
        }
        Statement::Commit { chain: false, .. } => Command::Commit,
        Statement::Rollback { chain: false, savepoint: None } => Command::Rollback,
        Statement::Rollback { chain: false, savepoint: Some(name) } => Command::RollbackTo(identifier(&name)),
        Statement::Savepoint { name } => Command::Savepoint(identifier(&name)),
        Statement::ReleaseSavepoint { name } => Command::Release(identifier(&name)),
        Statement::CreateTable(create) => Command::CreateTable(Box::new(create)),
        Statement::Drop { object_type: ObjectType::Table, if_exists, names, .. } => {
            Command::DropTable { if_exists, names }
        }
        define @ (Statement::CreateIndex(_)
        | Statement::AlterTable(_)
        | Statement::Drop { object_type: ObjectType::Index, .. }) => Command::Define(Box::new(define)),
        Statement::Insert(insert) => Command::Insert(Box::new(insert)),
        Statement::Update(update) => Command::Update(Box::new(update)),
        Statement::Delete(delete) => Command::Delete(Box::new(delete)),
        Statement::Set(set) => return classify_set(set),
        Statement::ShowVariable { ref variable } if is_durability(variable) => Command::ShowDurability,
        query @ (Statement::Query(_)
        | Statement::ShowTables { .. }
        | Statement::ShowColumns { .. }
        | Statement::ShowVariable { .. }
        | Statement::ShowFunctions { .. }
        | Statement::ExplainTable { .. }) => {
            Command::Query(Box::new(EngineStatement::Statement(Box::new(query))))
        }
        other => return Err(unsupported(&other)),
    })
}

fn is_durability(variable: &[Ident]) -> bool {
    matches!(variable, [name] if name.value.eq_ignore_ascii_case("durability"))
}

fn classify_set(set: Set) -> Result<Command> {
    if let Set::SingleAssignment { variable, values, .. } = &set
        && let [ObjectNamePart::Identifier(name)] = variable.0.as_slice()
        && is_durability(std::slice::from_ref(name))
    {
        let [value] = values.as_slice() else {
            return Err(Error::Invalid(format!("SET durability takes one value, not {}", values.len())));
        };
        let text = value.to_string();
        return Ok(Command::SetDurability(text.trim_matches(['\'', '"']).to_owned()));
    }
    match set {
        Set::SingleAssignment { .. } | Set::SetTimeZone { .. } => {
            Ok(Command::Engine(Box::new(EngineStatement::Statement(Box::new(Statement::Set(set))))))
        }
        other => Err(unsupported(&Statement::Set(other))),
    }
}

/// Names the statement by its first words.
fn unsupported(statement: &impl std::fmt::Display) -> Error {
    const SHOWN_CHARS: usize = 60;
    let text = statement.to_string();
    let mut shown: String = text.chars().take(SHOWN_CHARS).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    Error::unsupported(format!("statement {shown}"))
}

/// An identifier as the catalog has it: lower case unless it was quoted.
pub(crate) fn identifier(ident: &Ident) -> String {
    match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_lowercase(),
    }
}

/// The table that a statement writes: `t`, `public.t` or `entresol.public.t`.
pub(crate) fn table_name(name: &ObjectName) -> Result<String> {
    let parts: Option<Vec<String>> = name.0.iter().map(|part| part.as_ident().map(identifier)).collect();
    let parts = parts.unwrap_or_default();
    match parts.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [table] | [SCHEMA, table] | [CATALOG, SCHEMA, table] => Ok((*table).to_owned()),
        _ => Err(Error::Invalid(format!("{name} cannot be written: tables are in schema {SCHEMA}"))),
    }
}

/// A column in the list of an INSERT or on the left of an assignment.
pub(crate) fn column_name(name: &ObjectName) -> Result<String> {
    match name.0.as_slice() {
        [ObjectNamePart::Identifier(ident)] => Ok(identifier(ident)),
        _ => Err(Error::Invalid(format!("{name} is not the name of a column"))),
    }
}

/// The one table of an UPDATE or DELETE, and its alias.
pub(crate) fn single_table<'s>(
    verb: &str,
    tables: &'s [TableWithJoins],
) -> Result<(String, Option<&'s Ident>)> {
    let refused = || Error::unsupported(format!("{verb} of anything but one table"));
    let [TableWithJoins { relation, joins }] = tables else { return Err(refused()) };
    match relation {
        TableFactor::Table { name, alias, args: None, version: None, .. } if joins.is_empty() => {
            match alias {
                Some(alias) if !alias.columns.is_empty() => Err(refused()),
                alias => Ok((table_name(name)?, alias.as_ref().map(|alias| &alias.name))),
            }
        }
        _ => Err(refused()),
    }
}

/// The tables in the FROM of a DELETE.
pub(crate) fn from_tables(from: &FromTable) -> &[TableWithJoins] {
    match from {
        FromTable::WithFromKeyword(tables) | FromTable::WithoutKeyword(tables) => tables,
    }
}

/// `SELECT 1 FROM t`, whose parts are replaced to build queries from parts of other statements.
pub(crate) fn template() -> Result<Query> {
    let Some(EngineStatement::Statement(statement)) = parse_engine("SELECT 1 FROM t")?.pop() else {
        return Err(Error::Internal("the template of queries is no statement".into()));
    };
    match *statement {
        Statement::Query(query) => Ok(*query),
        other => Err(Error::Internal(format!("the template of queries is {other}"))),
    }
}

/// Refuses a clause that is present.
pub(crate) fn refuse(verb: &str, clauses: &[(bool, &str)]) -> Result<()> {
    match clauses.iter().find(|(present, _)| *present) {
        Some((_, clause)) => Err(Error::unsupported(format!("{clause} in {verb}"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(sql: &str) -> Command {
        parse(sql).unwrap().pop().unwrap()
    }

    #[test]
    fn statements_go_to_their_part_of_the_session() {
        assert!(matches!(one("BEGIN"), Command::Begin(_)));
        assert!(matches!(one("start transaction"), Command::Begin(_)));
        assert!(matches!(one("COMMIT"), Command::Commit));
        assert!(matches!(one("END"), Command::Commit));
        assert!(matches!(one("ROLLBACK"), Command::Rollback));
        assert!(matches!(one("ROLLBACK TO SAVEPOINT A"), Command::RollbackTo(name) if name == "a"));
        assert!(
            matches!(one("DROP TABLE IF EXISTS a, b"), Command::DropTable { if_exists: true, names } if names.len() == 2)
        );
        assert!(
            matches!(one("SET durability = 'group:10ms'"), Command::SetDurability(text) if text == "group:10ms")
        );
        assert!(matches!(one("SET Durability TO none"), Command::SetDurability(text) if text == "none"));
        assert!(matches!(one("SHOW durability"), Command::ShowDurability));
        assert!(matches!(one("EXPLAIN SELECT 1"), Command::Query(_)));
        assert_eq!(parse("SELECT 1; SELECT 2;").unwrap().len(), 2);
        assert_eq!(parse(" ; -- nothing\n").unwrap().len(), 0);
    }

    #[test]
    fn what_is_not_supported_is_named() {
        let error = parse("CREATE VIEW v AS SELECT 1").unwrap_err();
        assert_eq!(error.to_string(), "unsupported: statement CREATE VIEW v AS SELECT 1");
        let error = parse("SELEC 1").unwrap_err();
        assert!(matches!(error, Error::Syntax(_)), "{error:?}");
        let deep = format!("SELECT {}1{}", "(".repeat(10_000), ")".repeat(10_000));
        assert!(parse(&deep).is_err());
    }

    #[test]
    fn names_fold_unless_quoted() {
        let name = |sql: &str| match one(sql) {
            Command::DropTable { names, .. } => table_name(&names[0]),
            other => panic!("{other:?}"),
        };
        assert_eq!(name("DROP TABLE Meters").unwrap(), "meters");
        assert_eq!(name("DROP TABLE public.\"Meters\"").unwrap(), "Meters");
        assert!(name("DROP TABLE entresol.memory").is_err());
    }
}
