//! Front door of SQL: a query text becomes [`Command`]s here and nowhere else.
//!
//! ```text
//!   text ─▶ script: statements, at depth zero ─▶ tokens, once ─┬─ own: statements that sqlparser does not know
//!                                                              └─ rewriting ─▶ sqlparser ─▶ classification ─▶ Command
//! ```
//!
//! SQL is parsed in PostgreSQL's dialect; names fold to lower case unless quoted. A query text is parsed
//! completely before its first statement runs. Query texts are at most [`SQL_BYTES_MAX`] long; cost and
//! memory are linear in them.

use crate::error::{Error, Result};
use crate::parser::classification::classify;
use crate::parser::command::Command;
use crate::parser::depth::{self, NESTING_MAX};
use crate::parser::distinct_from;
use crate::parser::normal_forms;
use crate::parser::own;
use crate::parser::own::copy::{CopyStatement, take_file};
use crate::parser::own::materialized::{self, CreateMaterialized, MaterializedStatement};
use crate::parser::own::role::RoleStatement;
use crate::parser::own::streaming::{CreateSource, CreateStream, StreamingStatement};
use crate::parser::patterns::RowPatterns;
use crate::parser::refusals;
use crate::parser::rewriting::rewrite;
use crate::parser::sequence_calls;
use crate::parser::system_time::SystemTimes;
use crate::parser::text::kind::StatementKind;
use crate::parser::text::script::statements;
use crate::parser::text::tokens::{BEGINNING, POSTGRESQL, mentions, tokenize};
use crate::parser::window_names;
use datafusion::sql::parser::{DFParserBuilder, Statement as DFStatement};
use datafusion::sql::sqlparser::ast::{Query, Statement};
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan};
use entresol_memory::budget::MemoryReservation;

/// Words of clauses that a query of streams may have, and no other.
const STEP_WORDS: [&str; 6] = ["asof", "changes", "descriptor", "emit", "late", "match_recognize"];
/// Maximum bytes of the query text of one call.
pub const SQL_BYTES_MAX: usize = 64 << 20;

/// Statement that was parsed and has not run yet.
#[derive(Debug)]
pub enum ParsedStatement {
    /// COPY with STDIN or STDOUT, which needs a stream of rows: [`Session::copy_in`](crate::Session::copy_in) or
    /// [`Session::copy_out`](crate::Session::copy_out).
    Copy(Box<CopyStatement>),
    /// Statement about roles, which a server runs.
    Role(Box<RoleStatement>),
    /// Any other, for [`Session::prepare_statement`](crate::Session::prepare_statement).
    Session(SessionStatement),
}

/// Statement that a session prepares and runs.
#[derive(Debug)]
pub struct SessionStatement {
    /// `None` for an empty query text.
    pub(crate) command: Option<Command>,
    /// Reservation for the tree.
    pub(crate) memory: Option<MemoryReservation>,
}

impl ParsedStatement {
    /// Parses a query text of at most one statement, for those who only look at it:
    /// [`Session::parse`](crate::Session::parse) reserves memory for it.
    pub fn parse(sql: &str) -> Result<ParsedStatement> {
        Ok(ParsedStatement::new(parse_one(sql)?, None))
    }

    pub(crate) fn new(command: Option<Command>, memory: Option<MemoryReservation>) -> ParsedStatement {
        match command {
            Some(Command::Copy(copy)) if copy.file().is_none() => ParsedStatement::Copy(copy),
            Some(Command::Role(role)) => ParsedStatement::Role(role),
            command => ParsedStatement::Session(SessionStatement { command, memory }),
        }
    }

    /// Kind with regard to transactions; that of a query for an empty query text.
    pub fn kind(&self) -> StatementKind {
        match self {
            ParsedStatement::Copy(_) => StatementKind::Copy,
            ParsedStatement::Role(_) => StatementKind::Role,
            ParsedStatement::Session(statement) => {
                statement.command.as_ref().map_or(StatementKind::Read, Command::kind)
            }
        }
    }
}

impl CopyStatement {
    /// Parses a query text that is one COPY; `None` if it begins with something else.
    pub fn parse(sql: &str) -> Result<Option<CopyStatement>> {
        match statements(sql).as_slice() {
            [first, ..] if first.kind != StatementKind::Copy => Ok(None),
            [] => Ok(None),
            [only] => match parse_statement(only.sql, place_of(sql, only.start))? {
                Some(Command::Copy(copy)) => Ok(Some(*copy)),
                _ => Ok(None),
            },
            _ => Err(Error::unsupported("COPY together with other statements in one query text")),
        }
    }

    /// Parses a COPY that names a file of the client in place of STDIN or STDOUT, as `\copy` of a shell has it, and
    /// returns it with the file; `None` if it names none.
    pub fn of_client(sql: &str) -> Result<Option<(CopyStatement, String)>> {
        check_length(sql)?;
        let mut tokens = tokenize(sql, BEGINNING)?;
        while tokens.last().is_some_and(|last| last.token == Token::SemiColon) {
            tokens.pop();
        }
        if tokens.iter().any(|token| token.token == Token::SemiColon) {
            return Err(Error::unsupported("COPY together with other statements in one query text"));
        }
        depth::check(&tokens)?;
        let Some(file) = take_file(&mut tokens) else { return Ok(None) };
        Ok(Some((CopyStatement::of_tokens(&tokens)?, file)))
    }

    /// Returns true for COPY FROM STDIN, whose rows the caller provides.
    pub fn reads_stdin(&self) -> bool {
        self.from && self.file.is_none()
    }

    /// Returns true for COPY TO STDOUT, whose rows the caller takes.
    pub fn writes_stdout(&self) -> bool {
        !self.from && self.file.is_none()
    }
}

/// Parses statements, separated by semicolons.
pub(crate) fn parse(sql: &str) -> Result<Vec<Command>> {
    check_length(sql)?;
    let mut commands = Vec::new();
    let (mut place, mut from) = (BEGINNING, 0);
    for statement in statements(sql) {
        place = advanced(place, &sql[from..statement.start]);
        from = statement.start;
        commands.extend(parse_statement(statement.sql, place)?);
    }
    Ok(commands)
}

/// Parses a query text of at most one statement.
pub(crate) fn parse_one(sql: &str) -> Result<Option<Command>> {
    check_length(sql)?;
    match statements(sql).as_slice() {
        [] => Ok(None),
        [only] => parse_statement(only.sql, place_of(sql, only.start)),
        _ => Err(Error::coded("42601", "cannot insert multiple commands into a prepared statement")),
    }
}

fn check_length(sql: &str) -> Result<()> {
    if sql.len() <= SQL_BYTES_MAX {
        return Ok(());
    }
    let bytes = sql.len();
    Err(Error::coded(
        "54000",
        format!("the SQL text has {bytes} bytes, at most {SQL_BYTES_MAX} are possible"),
    ))
}

/// Place of a byte of a script.
fn place_of(sql: &str, byte: usize) -> Location {
    advanced(BEGINNING, &sql[..byte])
}

/// Place behind a text that begins at `place`.
fn advanced(place: Location, text: &str) -> Location {
    let lines = text.matches('\n').count() as u64;
    let last = text.rsplit('\n').next().unwrap_or_default().chars().count() as u64;
    if lines == 0 {
        Location { line: place.line, column: place.column + last }
    } else {
        Location { line: place.line + lines, column: 1 + last }
    }
}

/// Parses a statement that begins at a place of its script.
fn parse_statement(sql: &str, place: Location) -> Result<Option<Command>> {
    let tokens = tokenize(sql, place)?;
    depth::check(&tokens)?;
    if materialized::is_creation(&tokens) {
        return created_view(tokens, sql).map(Some);
    }
    match own::parse(&tokens)? {
        None => plain_statement(tokens),
        Some(Command::Streaming(mut statement)) => {
            statement.written_as(sql);
            Ok(Some(Command::Streaming(statement)))
        }
        own => Ok(own),
    }
}

/// Parses a statement of sqlparser's.
fn plain_statement(tokens: Vec<TokenWithSpan>) -> Result<Option<Command>> {
    let may_be_asof = mentions(&tokens, &["asof"]);
    let statement = datafusion_statement(tokens)?;
    if let Some(tree) = statement.as_ref().and_then(inner).filter(|_| may_be_asof) {
        refusals::check_joins(tree)?;
    }
    statement.map(classify).transpose()
}

/// Parses CREATE MATERIALIZED VIEW: with a query of tables, and with the clauses that a query of streams may have.
fn created_view(tokens: Vec<TokenWithSpan>, sql: &str) -> Result<Command> {
    let over_streams = materialized::over_streams(&tokens, sql).ok();
    let has_clauses = mentions(&tokens, &STEP_WORDS);
    let create = match plain_statement(tokens) {
        Ok(Some(Command::Materialized(mut statement))) => {
            if let MaterializedStatement::Create(create) = statement.as_mut() {
                create.over_streams = over_streams;
            }
            return Ok(Command::Materialized(statement));
        }
        Err(_) if over_streams.is_some() && has_clauses => {
            CreateMaterialized { over_tables: None, over_streams }
        }
        Err(error) => return Err(error),
        Ok(_) => return Err(Error::Internal(format!("{sql} is not a materialized view"))),
    };
    Ok(Command::Materialized(Box::new(MaterializedStatement::Create(Box::new(create)))))
}

/// Parses with DataFusion's parser, a thin layer around sqlparser.
fn datafusion_statement(mut tokens: Vec<TokenWithSpan>) -> Result<Option<DFStatement>> {
    rewrite(&mut tokens)?;
    let times = SystemTimes::take(&mut tokens)?;
    let patterns = RowPatterns::take(&mut tokens)?;
    let casts_names = mentions(&tokens, &["regclass"]);
    let refused = refusals::may_refuse(&tokens);
    let has_into = mentions(&tokens, &["into"]);
    let (has_distinct, has_over) = (mentions(&tokens, &["distinct"]), mentions(&tokens, &["over"]));
    let mut parser =
        DFParserBuilder::new(tokens).with_dialect(&POSTGRESQL).with_recursion_limit(NESTING_MAX).build()?;
    let mut parsed = parser.parse_statements()?;
    let Some(mut statement) = parsed.pop_front() else { return Ok(None) };
    if !parsed.is_empty() {
        return Err(Error::Syntax("syntax error: a statement has a semicolon in it".into()));
    }
    let Some(tree) = inner_mut(&mut statement) else { return Ok(Some(statement)) };
    patterns.put(tree)?;
    times.put(tree)?;
    if has_distinct {
        distinct_from::reassociate(tree);
    }
    if has_over {
        window_names::resolve(tree)?;
    }
    normal_forms::normalise(tree, template)?;
    if has_into && matches!(tree, Statement::Query(_) | Statement::CreateTable(_)) {
        refusals::check_into(tree)?;
    }
    if refused {
        refusals::check(tree)?;
    }
    if casts_names {
        sequence_calls::without_regclass(tree);
    }
    Ok(Some(statement))
}

/// Parses a query text of exactly one statement of sqlparser's.
pub(crate) fn query_of(sql: &str) -> Result<DFStatement> {
    let tokens = tokenize(sql, BEGINNING)?;
    depth::check(&tokens)?;
    datafusion_statement(tokens)?.ok_or_else(|| Error::Internal(format!("{sql} is not one statement")))
}

/// Parses the tokens of exactly one statement of sqlparser's.
pub(crate) fn statement_of(tokens: Vec<TokenWithSpan>) -> Result<DFStatement> {
    datafusion_statement(tokens)?.ok_or_else(|| Error::Syntax("syntax error: a step is empty".to_owned()))
}

/// Statement inside of the one that DataFusion's parser returns, and inside of EXPLAIN.
pub(crate) fn inner(statement: &DFStatement) -> Option<&Statement> {
    match statement {
        DFStatement::Statement(statement) => Some(statement),
        DFStatement::Explain(explain) => inner(&explain.statement),
        _ => None,
    }
}

pub(crate) fn inner_mut(statement: &mut DFStatement) -> Option<&mut Statement> {
    match statement {
        DFStatement::Statement(statement) => Some(statement),
        DFStatement::Explain(explain) => inner_mut(&mut explain.statement),
        _ => None,
    }
}

pub(crate) fn query_statement(query: Box<Query>) -> DFStatement {
    DFStatement::Statement(Box::new(Statement::Query(query)))
}

/// `SELECT 1 FROM t`, whose parts are replaced to build queries from parts of other statements.
pub(crate) fn template() -> Result<Query> {
    let DFStatement::Statement(statement) = query_of("SELECT 1 FROM t")? else {
        return Err(Error::Internal("the query template is not a statement".into()));
    };
    match *statement {
        Statement::Query(query) => Ok(*query),
        other => Err(Error::Internal(format!("the query template is {other}"))),
    }
}

/// Beginning of the stored statement of a view over streams, behind which its name stands.
pub(crate) const STREAM_VIEW: &str = "CREATE VIEW ";

/// Stored statement of a stream of no topology, which a view over streams is too; none if it is no such statement.
pub(crate) fn created_stream(text: &str) -> Option<CreateStream> {
    if let Some(view) = text.strip_prefix(STREAM_VIEW) {
        return created_stream(&format!("CREATE STREAM {view}"));
    }
    match parse_one(text) {
        Ok(Some(Command::Streaming(statement))) => match *statement {
            StreamingStatement::CreateStream(create) => Some(*create),
            _ => None,
        },
        _ => None,
    }
}

/// Stored statement of a source; none if it is no CREATE SOURCE.
pub(crate) fn created_source(text: &str) -> Option<CreateSource> {
    match parse_one(text) {
        Ok(Some(Command::Streaming(statement))) => match *statement {
            StreamingStatement::CreateSource(create) => Some(*create),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_supported_is_named() {
        let error = parse("CREATE EXTENSION e").unwrap_err();
        assert_eq!(error.to_string(), "unsupported: statement CREATE EXTENSION e");
        let error = parse("SELEC 1").unwrap_err();
        assert!(matches!(error, Error::Syntax(_)), "{error:?}");
        let deep = format!("SELECT {}1{}", "(".repeat(10_000), ")".repeat(10_000));
        assert!(parse(&deep).is_err());
    }

    #[test]
    fn errors_name_places_of_the_script() {
        let error = parse("SELECT 1;\n  SELEC 2").unwrap_err().to_string();
        assert!(error.ends_with("at Line: 2, Column: 3"), "{error}");
        let error = parse("SELECT 1; SELECT 'ü").unwrap_err().to_string();
        assert!(error.contains("Line: 1, Column: 18"), "{error}");
    }

    #[test]
    fn the_file_of_a_client_is_found() {
        for (sql, from, file) in [
            ("COPY t FROM 'a b.csv' csv", true, "a b.csv"),
            ("copy t (a, b) TO 'it''s';", false, "it's"),
            (r"COPY t TO E'a\'b'", false, "a'b"),
            ("COPY (SELECT 'x to ''y' AS \"from\" FROM t)TO 'out' WITH (NULL 'n')", false, "out"),
            ("COPY (SELECT $$it's ( to 'x'$$ /* ' ) to 'y' */, E'\\' to') TO 'out' -- 'end'", false, "out"),
        ] {
            let (copy, found) = CopyStatement::of_client(sql).unwrap().unwrap();
            assert_eq!((copy.is_in(), found.as_str()), (from, file), "{sql}");
            assert!(copy.reads_stdin() || copy.writes_stdout(), "{sql}");
        }
        for missing in ["COPY t", "COPY t FROM", "COPY t FROM file", "COPY t IN 'file'", "COPY t FROM ''"] {
            assert!(CopyStatement::of_client(missing).unwrap().is_none(), "{missing}");
        }
        for wrong in ["COPY t FROM 'open", "COPY FROM 'x'", "COPY t FROM 'x'; SELECT 1"] {
            assert!(CopyStatement::of_client(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_large_script_is_parsed_in_a_pass() {
        let script = "INSERT INTO t VALUES (1, 'it''s; a value');\n".repeat(20_000);
        assert_eq!(parse(&script).unwrap().len(), 20_000);
    }
}
