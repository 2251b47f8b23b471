//! SQL parser front: query text into commands, each for a part of the session.
//!
//! SQL is parsed in PostgreSQL's dialect by DataFusion's parser; names fold to lower case unless quoted. A query text
//! is parsed completely before its first statement runs. Query texts are at most [`SQL_BYTES_MAX`] long.

use std::path::PathBuf;

use datafusion::sql::parser::{
    DFParserBuilder, ExplainStatement, ResetStatement, Statement as EngineStatement,
};
use datafusion::sql::sqlparser::ast::{
    Analyze, CloseCursor, ContextModifier, CreateTable, DataType as SqlType, Declare, DeclareType, Delete,
    DiscardObject, Expr, Ident, Insert, ObjectName, ObjectType, Query, Set, Statement, TransactionMode,
    Truncate, Update, Value as Literal,
};

use crate::error::{Error, Result};
use crate::parser::as_of::parse_as_of;
use crate::parser::copy::CopyStatement;
use crate::parser::depth::check_chains;
use crate::parser::dialect::dialect_of;
use crate::parser::fetch::CursorMotion;
use crate::parser::names::{column_name, identifier};
use crate::parser::refusals;
use crate::parser::sequence::SequenceStatement;
use crate::parser::sequence_calls;
use crate::parser::split::{self, QueryPart};
use crate::parser::vacuum::Vacuum;
use crate::parser::words::has_word;

/// Maximum bytes of the query text of one call.
pub const SQL_BYTES_MAX: usize = 64 << 20;
/// Maximum nesting of expressions that the parser accepts.
const NESTING_MAX: usize = 128;

/// Prefix of the names of DataFusion's options.
const ENGINE_OPTIONS: &str = "datafusion";
/// Setting that SQL spells TIME ZONE.
const TIME_ZONE: &str = "TimeZone";

/// Statement, by the part of the session that runs it.
#[derive(Debug, Clone)]
pub(crate) enum Command {
    Begin(Vec<TransactionMode>),
    /// BEGIN AS OF: a block that reads as of a point in time.
    BeginAsOf(Box<Expr>),
    /// SET TRANSACTION AS OF.
    SetAsOf(Box<Expr>),
    Commit,
    Rollback,
    Savepoint(String),
    RollbackTo(String),
    Release(String),
    CreateTable(Box<CreateTable>),
    DropTable {
        if_exists: bool,
        names: Vec<ObjectName>,
        cascade: bool,
    },
    /// CREATE and DROP of indexes, views and sequences, ALTER TABLE.
    Define(Box<Statement>),
    /// CREATE SEQUENCE, ALTER SEQUENCE.
    Sequence(Box<SequenceStatement>),
    Insert(Box<Insert>),
    Update(Box<Update>),
    Delete(Box<Delete>),
    Truncate(Box<Truncate>),
    Analyze(Box<Analyze>),
    Backup(PathBuf),
    Vacuum(Vacuum),
    /// SET or RESET of a setting; None is its default.
    Set {
        name: String,
        value: Option<String>,
        local: bool,
    },
    ResetAll,
    Show(String),
    ShowAll,
    /// SET TRANSACTION, or of the session's blocks to come.
    SetTransaction {
        modes: Vec<TransactionMode>,
        session: bool,
    },
    Discard(DiscardObject),
    /// UNLISTEN: there are no listeners.
    Unlisten,
    Prepare {
        name: String,
        types: Vec<SqlType>,
        command: Box<Command>,
        /// Statement as it was written.
        source: Box<Statement>,
    },
    Execute {
        name: String,
        arguments: Vec<Expr>,
    },
    /// DEALLOCATE; None: all.
    Deallocate(Option<String>),
    Declare {
        name: String,
        query: Box<EngineStatement>,
    },
    /// FETCH, MOVE.
    Motion(CursorMotion),
    /// CLOSE; None: all.
    Close(Option<String>),
    /// EXPLAIN ANALYZE of a statement that writes.
    ExplainWrite {
        explain: Box<ExplainStatement>,
        command: Box<Command>,
    },
    /// SET or RESET of an option of DataFusion.
    Engine(Box<EngineStatement>),
    /// Any statement that only reads.
    Query(Box<EngineStatement>),
}

impl Command {
    /// Command tag without counts.
    pub(crate) fn verb(&self) -> &'static str {
        match self {
            Command::Begin(_) | Command::BeginAsOf(_) => "BEGIN",
            Command::Commit => "COMMIT",
            Command::Rollback | Command::RollbackTo(_) => "ROLLBACK",
            Command::Savepoint(_) => "SAVEPOINT",
            Command::Release(_) => "RELEASE",
            Command::CreateTable(create) if create.query.is_some() => "CREATE TABLE AS",
            Command::CreateTable(_) => "CREATE TABLE",
            Command::DropTable { .. } => "DROP TABLE",
            Command::Define(statement) => definition_verb(statement),
            Command::Sequence(statement) if statement.creates => "CREATE SEQUENCE",
            Command::Sequence(_) => "ALTER SEQUENCE",
            Command::Insert(_) => "INSERT",
            Command::Update(_) => "UPDATE",
            Command::Delete(_) => "DELETE",
            Command::Truncate(_) => "TRUNCATE TABLE",
            Command::Analyze(_) => "ANALYZE",
            Command::Backup(_) => "BACKUP",
            Command::Vacuum(_) => "VACUUM",
            Command::Set { .. }
            | Command::SetTransaction { .. }
            | Command::SetAsOf(_)
            | Command::Engine(_) => "SET",
            Command::ResetAll => "RESET",
            Command::Show(_) | Command::ShowAll => "SHOW",
            Command::Discard(DiscardObject::ALL) => "DISCARD ALL",
            Command::Discard(DiscardObject::PLANS) => "DISCARD PLANS",
            Command::Discard(DiscardObject::SEQUENCES) => "DISCARD SEQUENCES",
            Command::Discard(DiscardObject::TEMP) => "DISCARD TEMP",
            Command::Unlisten => "UNLISTEN",
            Command::Prepare { .. } => "PREPARE",
            Command::Execute { .. } => "EXECUTE",
            Command::Deallocate(None) => "DEALLOCATE ALL",
            Command::Deallocate(Some(_)) => "DEALLOCATE",
            Command::Declare { .. } => "DECLARE CURSOR",
            Command::Motion(motion) if motion.passes => "MOVE",
            Command::Motion(_) => "FETCH",
            Command::Close(_) => "CLOSE CURSOR",
            Command::ExplainWrite { .. } => "EXPLAIN",
            Command::Query(statement) => match statement.as_ref() {
                EngineStatement::Explain(_) => "EXPLAIN",
                EngineStatement::Statement(statement) if matches!(**statement, Statement::Query(_)) => {
                    "SELECT"
                }
                _ => "SHOW",
            },
        }
    }

    /// Returns true if it reads or writes rows: it runs in a transaction and is retried after a conflict.
    pub(crate) fn is_rows(&self) -> bool {
        matches!(self, Command::Query(_)) || self.writes_rows()
    }

    fn writes_rows(&self) -> bool {
        matches!(
            self,
            Command::Insert(_) | Command::Update(_) | Command::Delete(_) | Command::ExplainWrite { .. }
        )
    }

    /// Returns true if a READ ONLY transaction refuses it.
    pub(crate) fn writes(&self) -> bool {
        self.writes_rows() || self.is_definition() || matches!(self, Command::Truncate(_))
    }

    /// Returns true for a definition: not allowed inside of a block.
    pub(crate) fn is_definition(&self) -> bool {
        matches!(
            self,
            Command::CreateTable(_) | Command::DropTable { .. } | Command::Define(_) | Command::Sequence(_)
        )
    }

    /// Returns true for a definition that may take long, and checks for cancellation itself.
    pub(crate) fn is_stopped_by_itself(&self) -> bool {
        matches!(self, Command::Define(statement) if matches!(**statement, Statement::CreateIndex(_)))
    }

    /// Returns true if it concerns only the session and its transaction.
    pub(crate) fn concerns_session(&self) -> bool {
        matches!(
            self,
            Command::Begin(_)
                | Command::Commit
                | Command::Rollback
                | Command::Savepoint(_)
                | Command::RollbackTo(_)
                | Command::Release(_)
                | Command::Set { .. }
                | Command::SetTransaction { .. }
                | Command::Show(_)
        )
    }
}

/// Beginning of a definition's command tag.
fn definition_verb(statement: &Statement) -> &'static str {
    match statement {
        Statement::CreateIndex(_) => "CREATE INDEX",
        Statement::AlterTable(_) => "ALTER TABLE",
        Statement::CreateView(_) => "CREATE VIEW",
        Statement::Drop { object_type: ObjectType::View, .. } => "DROP VIEW",
        Statement::Drop { object_type: ObjectType::Sequence, .. } => "DROP SEQUENCE",
        _ => "DROP INDEX",
    }
}

/// The name and the query of a DECLARE.
fn declared_cursor(declare: Declare) -> Result<(String, Box<EngineStatement>)> {
    let Declare { names, declare_type, binary, scroll, hold, for_query, .. } = declare;
    let (Some(query), [name], Some(DeclareType::Cursor)) = (for_query, names.as_slice(), declare_type) else {
        return Err(Error::unsupported("DECLARE of anything but a cursor"));
    };
    for (present, clause) in [(binary, "BINARY"), (scroll, "SCROLL"), (hold, "WITH HOLD")] {
        if present == Some(true) {
            return Err(Error::unsupported(format!("{clause} in DECLARE CURSOR")));
        }
    }
    Ok((identifier(name), Box::new(EngineStatement::Statement(Box::new(Statement::Query(query))))))
}

/// Statement inside of the one that DataFusion's parser returns, and inside of EXPLAIN.
pub(crate) fn inner(statement: &EngineStatement) -> Option<&Statement> {
    match statement {
        EngineStatement::Statement(statement) => Some(statement),
        EngineStatement::Explain(explain) => inner(&explain.statement),
        _ => None,
    }
}

pub(crate) fn inner_mut(statement: &mut EngineStatement) -> Option<&mut Statement> {
    match statement {
        EngineStatement::Statement(statement) => Some(statement),
        EngineStatement::Explain(explain) => inner_mut(&mut explain.statement),
        _ => None,
    }
}

/// Parses statements, separated by semicolons.
pub(crate) fn parse(sql: &str) -> Result<Vec<Command>> {
    if sql.len() > SQL_BYTES_MAX {
        return Err(Error::Invalid(format!(
            "the SQL text has {} bytes, at most {SQL_BYTES_MAX} are possible",
            sql.len()
        )));
    }
    if CopyStatement::parse(sql)?.is_some() {
        return Err(Error::unsupported(
            "COPY with STDIN or STDOUT outside of the wire protocol: use \\copy, or a client's COPY",
        ));
    }
    let Some(parts) = split::split_statements(sql)? else {
        return parse_engine(sql)?.into_iter().map(classify).collect();
    };
    let mut commands = Vec::new();
    for part in parts {
        match part {
            QueryPart::Backup(destination) => commands.push(Command::Backup(destination)),
            QueryPart::Vacuum(vacuum) => commands.push(Command::Vacuum(vacuum)),
            QueryPart::BeginAsOf(moment) => {
                commands.push(Command::BeginAsOf(Box::new(parse_as_of(&moment)?)))
            }
            QueryPart::SetAsOf(moment) => commands.push(Command::SetAsOf(Box::new(parse_as_of(&moment)?))),
            QueryPart::Motion(motion) => commands.push(Command::Motion(motion)),
            QueryPart::Sequence(statement) => commands.push(Command::Sequence(Box::new(statement))),
            QueryPart::Sql(sql) => {
                let statements: Result<Vec<Command>> =
                    parse_engine(&sql)?.into_iter().map(classify).collect();
                commands.extend(statements?);
            }
        }
    }
    Ok(commands)
}

fn parse_engine(sql: &str) -> Result<Vec<EngineStatement>> {
    check_chains(sql)?;
    let mut parser =
        DFParserBuilder::new(sql).with_dialect(dialect_of(sql)).with_recursion_limit(NESTING_MAX).build()?;
    let mut statements: Vec<EngineStatement> = parser.parse_statements()?.into();
    for statement in &statements {
        inner(statement).map_or(Ok(()), |statement| refusals::check(sql, statement))?;
    }
    if has_word(sql, "regclass") {
        statements.iter_mut().filter_map(inner_mut).for_each(sequence_calls::without_regclass);
    }
    Ok(statements)
}

fn classify(statement: EngineStatement) -> Result<Command> {
    match statement {
        EngineStatement::Statement(statement) => classify_sql(*statement),
        EngineStatement::Explain(explain) => {
            if explain.options.analyze {
                let command = classify((*explain.statement).clone())?;
                if command.writes_rows() {
                    return Ok(Command::ExplainWrite {
                        explain: Box::new(explain),
                        command: Box::new(command),
                    });
                }
            }
            Ok(Command::Query(Box::new(EngineStatement::Explain(explain))))
        }
        EngineStatement::Reset(ResetStatement::Variable(ref name)) => {
            let name = name.to_string();
            Ok(match name.to_ascii_lowercase().as_str() {
                "all" => Command::ResetAll,
                option if is_engine_option(option) => Command::Engine(Box::new(statement)),
                // The parser joins words like the parts of a name.
                "time.zone" => Command::Set { name: TIME_ZONE.into(), value: None, local: false },
                _ => Command::Set { name, value: None, local: false },
            })
        }
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
        Statement::Drop { object_type: ObjectType::Table, if_exists, names, cascade, .. } => {
            Command::DropTable { if_exists, names, cascade }
        }
        define @ (Statement::CreateIndex(_)
        | Statement::AlterTable(_)
        | Statement::CreateView(_)
        | Statement::Drop {
            object_type: ObjectType::Index | ObjectType::View | ObjectType::Sequence,
            ..
        }) => Command::Define(Box::new(define)),
        Statement::Insert(insert) => Command::Insert(Box::new(insert)),
        Statement::Update(update) => Command::Update(Box::new(update)),
        Statement::Delete(delete) => Command::Delete(Box::new(delete)),
        Statement::Truncate(truncate) => Command::Truncate(Box::new(truncate)),
        Statement::Analyze(analyze) => Command::Analyze(Box::new(analyze)),
        Statement::Set(set) => return classify_set(set),
        Statement::ShowVariable { ref variable } if !is_engine_option(&words(variable)) => {
            match words(variable).as_str() {
                "all" => Command::ShowAll,
                "time zone" => Command::Show(TIME_ZONE.into()),
                "transaction isolation level" => Command::Show("transaction_isolation".into()),
                name => Command::Show(name.to_owned()),
            }
        }
        Statement::Discard { object_type } => Command::Discard(object_type),
        Statement::UNLISTEN { .. } => Command::Unlisten,
        Statement::Prepare { name, data_types, statement } => Command::Prepare {
            name: identifier(&name),
            types: data_types,
            command: Box::new(preparable(classify_sql(statement.as_ref().clone())?)?),
            source: statement,
        },
        Statement::Execute { name: Some(name), parameters, immediate: false, using, into, .. }
            if using.is_empty() && into.is_empty() =>
        {
            Command::Execute { name: column_name(&name)?, arguments: parameters }
        }
        Statement::Deallocate { name, .. } => Command::Deallocate(unless_all(&name)),
        Statement::Declare { mut stmts } if stmts.len() == 1 => {
            let (name, query) = declared_cursor(stmts.swap_remove(0))?;
            Command::Declare { name, query }
        }
        Statement::Close { cursor: CloseCursor::All } => Command::Close(None),
        Statement::Close { cursor: CloseCursor::Specific { name } } => {
            Command::Close(Some(identifier(&name)))
        }
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

/// Name, unless it is ALL.
fn unless_all(name: &Ident) -> Option<String> {
    let all = name.quote_style.is_none() && name.value.eq_ignore_ascii_case("all");
    (!all).then(|| identifier(name))
}

/// Returns the command if PREPARE accepts it.
fn preparable(command: Command) -> Result<Command> {
    match command.is_rows() {
        true => Ok(command),
        false => Err(Error::unsupported(format!("PREPARE of {}", command.verb()))),
    }
}

/// Parses a query text of one statement.
pub(crate) fn query_of(sql: &str) -> Result<EngineStatement> {
    let mut statements = parse_engine(sql)?;
    match (statements.pop(), statements.is_empty()) {
        (Some(statement), true) => Ok(statement),
        _ => Err(Error::Internal(format!("{sql} is not one statement"))),
    }
}

/// Joins the words of a name by blanks, those of DataFusion's options by points.
fn words(variable: &[Ident]) -> String {
    let words: Vec<String> = variable.iter().map(|word| word.value.to_lowercase()).collect();
    match words.first() {
        Some(first) if first == ENGINE_OPTIONS => words.join("."),
        _ => words.join(" "),
    }
}

fn is_engine_option(name: &str) -> bool {
    let prefix = name.split('.').next().unwrap_or_default();
    prefix.eq_ignore_ascii_case(ENGINE_OPTIONS) && prefix.len() < name.len()
}

fn classify_set(set: Set) -> Result<Command> {
    match set {
        Set::SingleAssignment { ref variable, .. } if is_engine_option(&variable.to_string()) => {
            Ok(Command::Engine(Box::new(EngineStatement::Statement(Box::new(Statement::Set(set))))))
        }
        Set::SingleAssignment { scope, hivevar: false, variable, values } => {
            let values: Vec<String> = values.iter().map(setting_value).collect();
            let value = values.join(", ");
            let default = value.eq_ignore_ascii_case("default");
            Ok(Command::Set {
                name: variable.to_string().trim_matches('"').to_owned(),
                value: (!default).then_some(value),
                local: scope == Some(ContextModifier::Local),
            })
        }
        Set::SetTimeZone { local, value } => {
            let value = setting_value(&value);
            let default = value.eq_ignore_ascii_case("default") || value.eq_ignore_ascii_case("local");
            Ok(Command::Set { name: TIME_ZONE.into(), value: (!default).then_some(value), local })
        }
        Set::SetNames { charset_name, collation_name: None } => {
            Ok(Command::Set { name: "client_encoding".into(), value: Some(charset_name.value), local: false })
        }
        Set::SetTransaction { modes, snapshot: None, session } => {
            Ok(Command::SetTransaction { modes, session })
        }
        other => Err(unsupported(&Statement::Set(other))),
    }
}

/// String of a value: 'string', number, or word.
fn setting_value(value: &Expr) -> String {
    match value {
        Expr::Value(value) => match &value.value {
            Literal::SingleQuotedString(text) => text.clone(),
            other => other.to_string(),
        },
        Expr::Identifier(word) => word.value.clone(),
        other => other.to_string(),
    }
}

/// Error for an unsupported statement, named by its first words.
fn unsupported(statement: &impl std::fmt::Display) -> Error {
    const SHOWN_CHARS: usize = 60;
    let text = statement.to_string();
    let mut shown: String = text.chars().take(SHOWN_CHARS).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    Error::unsupported(format!("statement {shown}"))
}

pub(crate) fn query_statement(query: Box<Query>) -> EngineStatement {
    EngineStatement::Statement(Box::new(Statement::Query(query)))
}

/// `SELECT 1 FROM t`, whose parts are replaced to build queries from parts of other statements.
pub(crate) fn template() -> Result<Query> {
    let Some(EngineStatement::Statement(statement)) = parse_engine("SELECT 1 FROM t")?.pop() else {
        return Err(Error::Internal("the query template is no statement".into()));
    };
    match *statement {
        Statement::Query(query) => Ok(*query),
        other => Err(Error::Internal(format!("the query template is {other}"))),
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
            matches!(one("DROP TABLE IF EXISTS a, b"), Command::DropTable { if_exists: true, names, cascade: false } if names.len() == 2)
        );
        let set = |sql: &str| match one(sql) {
            Command::Set { name, value, local } => (name, value.unwrap_or("DEFAULT".into()), local),
            other => panic!("{sql}: {other:?}"),
        };
        let is = |name: &str, value: &str, local| (name.to_owned(), value.to_owned(), local);
        assert_eq!(set("SET durability = 'group:10ms'"), is("durability", "group:10ms", false));
        assert_eq!(set("SET LOCAL Durability TO none"), is("Durability", "none", true));
        assert_eq!(set("SET search_path TO a, \"B\""), is("search_path", "a, B", false));
        assert_eq!(set("SET TIME ZONE 'UTC'"), is("TimeZone", "UTC", false));
        assert_eq!(set("SET SESSION extra_float_digits = -3"), is("extra_float_digits", "-3", false));
        assert_eq!(set("SET NAMES 'utf8'"), is("client_encoding", "utf8", false));
        assert_eq!(set("RESET DateStyle"), is("DateStyle", "DEFAULT", false));
        assert_eq!(set("RESET TIME ZONE"), is("TimeZone", "DEFAULT", false));
        assert!(matches!(one("RESET ALL"), Command::ResetAll));
        assert!(matches!(one("SHOW durability"), Command::Show(name) if name == "durability"));
        assert!(matches!(one("SHOW ALL"), Command::ShowAll));
        assert!(
            matches!(one("SHOW TRANSACTION ISOLATION LEVEL"), Command::Show(name) if name == "transaction_isolation")
        );
        assert!(matches!(one("SHOW datafusion.execution.batch_size"), Command::Query(_)));
        assert!(matches!(one("SET datafusion.execution.batch_size = 7"), Command::Engine(_)));
        assert!(matches!(
            one("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY"),
            Command::SetTransaction { session: true, .. }
        ));
        assert!(matches!(one("EXPLAIN SELECT 1"), Command::Query(_)));
        assert_eq!(parse("SELECT 1; SELECT 2;").unwrap().len(), 2);
        assert_eq!(parse(" ; -- nothing\n").unwrap().len(), 0);
    }

    #[test]
    fn what_is_not_supported_is_named() {
        let error = parse("CREATE ROLE r").unwrap_err();
        assert_eq!(error.to_string(), "unsupported: statement CREATE ROLE r");
        let error = parse("SELEC 1").unwrap_err();
        assert!(matches!(error, Error::Syntax(_)), "{error:?}");
        let deep = format!("SELECT {}1{}", "(".repeat(10_000), ")".repeat(10_000));
        assert!(parse(&deep).is_err());
    }
}
