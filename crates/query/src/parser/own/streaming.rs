//! Statements of streams:
//!
//! ```text
//! CREATE SOURCE [IF NOT EXISTS] name (column type [NOT NULL] [AS expr], ..., WATERMARK FOR column AS column [- interval])
//!     WITH (connector = 'file' | 'generator', option = value, ...) [format]
//! CREATE [OR REPLACE] STREAM name [WITH (...)] AS query [EMIT ...] [LATE ROWS ...]
//! CREATE [OR REPLACE] TOPOLOGY [IF NOT EXISTS] name [COMMIT boundary {OR boundary}]
//!     [ON ERROR {STOP | ABORT | SKIP ROW} [INTO table]] [WITH (option = value, ...)] AS ( step {; step} [;] )
//! CREATE SINK [IF NOT EXISTS] name {FROM relation | AS query} WITH (connector = 'file' | 'tcp', option = value, ...)
//!     [format]
//! ALTER and DROP of them: [`crate::parser::own::stream_changes`]
//! EXPLAIN [ANALYZE] TOPOLOGY name
//!
//! format:   FORMAT {PLAIN ENCODE {CSV | JSON | TEXT | PARQUET} | {UPSERT | DEBEZIUM} ENCODE JSON} [(option = value, ...)]; a source of the latter has
//!           a PRIMARY KEY
//! boundary: EACH ROW | EVERY n ROWS | EVERY [INTERVAL] '...' | ON WINDOW CLOSE [OF stream] | WITH SOURCE
//! step:     CREATE STREAM name [WITH (state_table = '...')] AS query [EMIT ON WINDOW CLOSE] [LATE ROWS DROP]
//!         | INSERT INTO table [(columns)] query [ON CONFLICT (key) DO UPDATE SET ...] [EMIT ...] [LATE ...]
//! ```
//!
//! Steps are tokens here: they are parsed when they are planned, and their sources exist.

use crate::error::{Error, Result};
use crate::parser::own::materialized::ViewClause;
use crate::parser::own::stream_changes;
use crate::parser::own::words::Words;
use crate::parser::text::tokens::{BEGINNING, POSTGRESQL, is_word, tokenize};
use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::ast::{ColumnDef, Expr, Ident};
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use entresol_streams::{Envelope, IncludedColumns};
use entresol_transactions::Isolation;
use std::collections::BTreeMap;

/// Name of an option, in lower case, and its value.
pub(crate) type StreamOption = (String, String);

/// Statement of this module.
#[derive(Debug, Clone)]
pub(crate) enum StreamingStatement {
    CreateSource(Box<CreateSource>),
    /// CREATE STREAM of no topology.
    CreateStream(Box<CreateStream>),
    CreateTopology(Box<CreateTopology>),
    Alter {
        object: StreamObject,
        name: String,
        change: StreamChange,
        /// The statement itself.
        text: String,
    },
    Drop {
        object: StreamObject,
        names: Vec<String>,
        if_exists: bool,
        cascade: bool,
    },
    /// EXPLAIN TOPOLOGY; ANALYZE shows what ran.
    Explain {
        name: String,
        analyze: bool,
    },
}

/// Change of a source, topology or sink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StreamChange {
    Pause,
    Resume,
    /// SET (option = value, ...).
    Options(Vec<StreamOption>),
    /// AS (steps), which are in the text of the statement.
    Steps,
    /// ADD COLUMN, with the text of the column.
    AddColumn(String),
    /// SEEK TO of a source.
    Seek(SeekTarget),
}

/// Position that a source is set to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SeekTarget {
    Beginning,
    Position(u64),
}

/// Kind of an object of streams, as statements name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamObject {
    Source,
    /// Stream of no topology.
    Stream,
    Topology,
    /// Topology of one step, which sends rows out of the database.
    Sink,
}

impl StreamObject {
    /// Name in messages.
    pub(crate) fn noun(self) -> &'static str {
        match self {
            StreamObject::Source => "source",
            StreamObject::Stream => "stream",
            StreamObject::Topology => "topology",
            StreamObject::Sink => "sink",
        }
    }
}

/// CREATE SOURCE.
#[derive(Debug, Clone)]
pub(crate) struct CreateSource {
    pub(crate) name: String,
    pub(crate) if_not_exists: bool,
    pub(crate) columns: Vec<ColumnDef>,
    /// Expressions of the columns that are computed, by their places among them.
    pub(crate) computed: BTreeMap<usize, Expr>,
    /// Columns behind INCLUDE, with what they have.
    pub(crate) included: Vec<(IncludedColumns, ColumnDef)>,
    /// Event time column, and the expression of the watermark.
    pub(crate) watermark: Option<(String, Expr)>,
    pub(crate) options: Vec<StreamOption>,
    /// Columns of PRIMARY KEY (...), if it is there.
    pub(crate) key: Option<Vec<String>>,
    /// FORMAT and ENCODE, if they are there.
    pub(crate) encoding: Option<Encoding>,
    /// The statement itself.
    pub(crate) text: String,
}

/// Connector of a source of the logged changes of a table.
pub(crate) const TABLE_CONNECTOR: &str = "table";

impl CreateSource {
    /// Name of the table whose logged changes it has; none if it has another connector.
    pub(crate) fn logged_table(&self) -> Option<&str> {
        let option = |wanted: &str| {
            self.options.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str())
        };
        option("connector").filter(|connector| *connector == TABLE_CONNECTOR).and_then(|_| option("table"))
    }
}

/// CREATE STREAM of no topology.
#[derive(Debug, Clone)]
pub(crate) struct CreateStream {
    pub(crate) name: String,
    /// OR REPLACE.
    pub(crate) replaces: bool,
    /// Tokens of the step.
    pub(crate) step: Vec<TokenWithSpan>,
    /// The statement itself.
    pub(crate) text: String,
}

/// Encoding of rows outside of the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    Csv,
    /// A JSON object on each line.
    Json,
    /// TEXT: lines as they are.
    Plain,
    /// Rows of Parquet files.
    Parquet,
    /// Changes of rows with a key, as JSON.
    Changes(Envelope),
}

/// CREATE TOPOLOGY; CREATE SINK, or CREATE MATERIALIZED VIEW over streams: a topology of one step.
#[derive(Debug, Clone)]
pub(crate) struct CreateTopology {
    pub(crate) name: String,
    pub(crate) if_not_exists: bool,
    /// OR REPLACE.
    pub(crate) replaces: bool,
    pub(crate) boundaries: Vec<CommitBoundary>,
    pub(crate) isolation: Isolation,
    pub(crate) on_error: ErrorClause,
    /// Table behind INTO of ON ERROR.
    pub(crate) errors_into: Option<String>,
    pub(crate) options: Vec<StreamOption>,
    /// Tokens of each step.
    pub(crate) steps: Vec<Vec<TokenWithSpan>>,
    /// Clauses of a sink, of whose rows the step is the query.
    pub(crate) sink: Option<SinkClause>,
    /// Clauses of a materialized view, of whose rows the step is the query.
    pub(crate) view: Option<ViewClause>,
    /// The statement itself.
    pub(crate) text: String,
}

/// ON ERROR of a topology.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum ErrorClause {
    #[default]
    Stop,
    Abort,
    /// SKIP ROW.
    Skip,
}

/// Clauses of CREATE SINK.
#[derive(Debug, Clone)]
pub(crate) struct SinkClause {
    /// Relation behind FROM: the sink has its rows, or changes.
    pub(crate) from: Option<String>,
    pub(crate) options: Vec<StreamOption>,
    pub(crate) encoding: Option<Encoding>,
}

/// Boundary of transactions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CommitBoundary {
    EachRow,
    Rows(usize),
    /// Text of an interval.
    Interval(String),
    /// ON WINDOW CLOSE, of the windows of a stream or of all.
    WindowClose(Option<String>),
    Source,
}

impl StreamingStatement {
    /// Command tag.
    pub(crate) fn verb(&self) -> &'static str {
        match self {
            StreamingStatement::CreateSource(_) => "CREATE SOURCE",
            StreamingStatement::CreateStream(_) => "CREATE STREAM",
            StreamingStatement::CreateTopology(create) if create.sink.is_some() => "CREATE SINK",
            StreamingStatement::CreateTopology(_) => "CREATE TOPOLOGY",
            StreamingStatement::Alter { object, .. } => match object {
                StreamObject::Source => "ALTER SOURCE",
                StreamObject::Stream => "ALTER STREAM",
                StreamObject::Topology => "ALTER TOPOLOGY",
                StreamObject::Sink => "ALTER SINK",
            },
            StreamingStatement::Drop { object, .. } => match object {
                StreamObject::Source => "DROP SOURCE",
                StreamObject::Stream => "DROP STREAM",
                StreamObject::Topology => "DROP TOPOLOGY",
                StreamObject::Sink => "DROP SINK",
            },
            StreamingStatement::Explain { .. } => "EXPLAIN",
        }
    }

    /// Returns true if it makes an object.
    pub(crate) fn creates(&self) -> bool {
        matches!(
            self,
            StreamingStatement::CreateSource(_)
                | StreamingStatement::CreateStream(_)
                | StreamingStatement::CreateTopology(_)
        )
    }

    /// Notes the text of the statement.
    pub(crate) fn written_as(&mut self, sql: &str) {
        match self {
            StreamingStatement::CreateSource(create) => sql.clone_into(&mut create.text),
            StreamingStatement::CreateStream(create) => sql.clone_into(&mut create.text),
            StreamingStatement::CreateTopology(create) => sql.clone_into(&mut create.text),
            StreamingStatement::Alter { text, .. } => sql.clone_into(text),
            _ => {}
        }
    }
}

/// Returns true for the first words of such a statement.
pub(crate) fn is_streaming(tokens: &[TokenWithSpan]) -> bool {
    let is = |at: usize, word: &str| tokens.get(at).is_some_and(|token| is_word(&token.token, word));
    let kind = match () {
        () if is(1, "or") && is(2, "replace") => 3,
        () if is(0, "explain") && is(1, "analyze") => 2,
        () => 1,
    };
    ["source", "stream", "topology", "sink"].iter().any(|word| is(kind, word))
}

/// Takes the kind of the object that a statement is about.
fn object(words: &mut Words<'_>) -> Result<StreamObject> {
    if words.word("source") {
        return Ok(StreamObject::Source);
    }
    if words.word("sink") {
        return Ok(StreamObject::Sink);
    }
    if words.word("stream") {
        return Ok(StreamObject::Stream);
    }
    words.expect("topology")?;
    Ok(StreamObject::Topology)
}

/// Parses the tokens of a statement for which [`is_streaming`] is true.
pub(crate) fn parse(tokens: &[TokenWithSpan]) -> Result<StreamingStatement> {
    let all: Vec<&Token> = tokens.iter().map(|token| &token.token).collect();
    let mut words = Words(&all);
    if words.word("explain") {
        let analyze = words.word("analyze");
        words.expect("topology")?;
        let name = words.relation()?;
        words.end()?;
        return Ok(StreamingStatement::Explain { name, analyze });
    }
    if words.word("alter") {
        let object = object(&mut words)?;
        let name = words.relation()?;
        return stream_changes::alter(object, name, &tokens[tokens.len() - words.0.len()..]);
    }
    if words.word("drop") {
        let object = object(&mut words)?;
        return stream_changes::dropping(object, &mut words);
    }
    words.expect("create")?;
    let replaces = words.phrase(&["or", "replace"]);
    let object = object(&mut words)?;
    if replaces && matches!(object, StreamObject::Source | StreamObject::Sink) {
        return Err(Error::unsupported("OR REPLACE of a source or sink: drop it and create it again"));
    }
    if object == StreamObject::Stream {
        let name = words.clone().relation()?;
        let rest = &tokens[tokens.len() - words.0.len()..];
        // As it would be written in a topology.
        let step = tokens[..1].iter().chain([&tokens[tokens.len() - rest.len() - 1]]).chain(rest).cloned();
        let create = CreateStream { name, replaces, step: step.collect(), text: String::new() };
        return Ok(StreamingStatement::CreateStream(Box::new(create)));
    }
    let if_not_exists = words.phrase(&["if", "not", "exists"]);
    let name = words.relation()?;
    let rest = &tokens[tokens.len() - words.0.len()..];
    match object {
        StreamObject::Sink => create_sink(name, if_not_exists, rest),
        StreamObject::Source => create_source(name, if_not_exists, rest),
        StreamObject::Topology | StreamObject::Stream => {
            create_topology(name, (if_not_exists, replaces), rest)
        }
    }
}

fn create_source(name: String, if_not_exists: bool, tokens: &[TokenWithSpan]) -> Result<StreamingStatement> {
    let (elements, rest) = parenthesised(tokens)?;
    let (mut columns, mut computed, mut watermark, mut key) = (Vec::new(), BTreeMap::new(), None, None);
    for element in split(elements, &Token::Comma).filter(|_| !elements.is_empty()) {
        let words: Vec<&Token> = element.iter().map(|token| &token.token).collect();
        let mut words = Words(&words);
        if words.phrase(&["watermark", "for"]) {
            let column = words.folded()?;
            words.expect("as")?;
            let expression = &element[element.len() - words.0.len()..];
            let expression = with_parser(expression, |parser| parser.parse_expr())?;
            if watermark.replace((column, expression)).is_some() {
                return Err(Error::coded("42601", "a source has one watermark"));
            }
        } else if words.phrase(&["primary", "key"]) {
            if key.replace(names_in_parentheses(&element[element.len() - words.0.len()..])?).is_some() {
                return Err(Error::coded("42P16", format!("source \"{name}\" has several primary keys")));
            }
        } else {
            let (column, expression) = source_column(element)?;
            computed.extend(expression.map(|expression| (columns.len(), expression)));
            columns.push(column);
        }
    }
    let (included, rest) = included(rest)?;
    let (mut options, rest) = with_options(rest)?;
    let rest = take_format_options(rest, &mut options)?;
    let words: Vec<&Token> = rest.iter().map(|token| &token.token).collect();
    let mut words = Words(&words);
    let encoding = encoding(&mut words)?;
    words.end()?;
    let text = String::new();
    let create = CreateSource {
        name,
        if_not_exists,
        columns,
        computed,
        included,
        watermark,
        options,
        key,
        encoding,
        text,
    };
    Ok(StreamingStatement::CreateSource(Box::new(create)))
}

/// Parses a column of a source, and the expression behind AS if it is computed.
pub(crate) fn source_column(tokens: &[TokenWithSpan]) -> Result<(ColumnDef, Option<Expr>)> {
    let is_as = |at: &usize| is_word(&tokens[*at].token, "as") && depth_at(tokens, *at) == 0;
    let Some(place) = (0..tokens.len()).find(is_as) else {
        return Ok((with_parser(tokens, |parser| parser.parse_column_def())?, None));
    };
    if place < 2 {
        let name = tokens.first().map_or_else(String::new, |name| name.token.to_string());
        let message =
            format!("syntax error: computed column {name} AS ... has no type: write {name} type AS ...");
        return Err(Error::Syntax(message));
    }
    let column = with_parser(&tokens[..place], |parser| parser.parse_column_def())?;
    let expression = with_parser(&tokens[place + 1..], |parser| parser.parse_expr())?;
    Ok((column, Some(expression)))
}

/// Names between commas in parentheses, behind which nothing follows.
fn names_in_parentheses(tokens: &[TokenWithSpan]) -> Result<Vec<String>> {
    let (names, rest) = names_between_commas(tokens)?;
    match rest.first() {
        Some(token) => Err(Words(&[&token.token]).unexpected()),
        None => Ok(names),
    }
}

/// Names between commas in the parentheses that are next, and the tokens behind them.
pub(crate) fn names_between_commas(tokens: &[TokenWithSpan]) -> Result<(Vec<String>, &[TokenWithSpan])> {
    let (body, rest) = parenthesised(tokens)?;
    let name = |part: &[TokenWithSpan]| {
        let tokens: Vec<&Token> = part.iter().map(|token| &token.token).collect();
        let mut words = Words(&tokens);
        let name = words.folded()?;
        words.end().map(|()| name)
    };
    let names = split(body, &Token::Comma).map(name).collect::<Result<Vec<String>>>()?;
    Ok((names, rest))
}

/// Content of a column that INCLUDE adds, and its definition.
type IncludedColumn = (IncludedColumns, ColumnDef);

/// Takes clauses INCLUDE word [AS column].
fn included(tokens: &[TokenWithSpan]) -> Result<(Vec<IncludedColumn>, &[TokenWithSpan])> {
    let all: Vec<&Token> = tokens.iter().map(|token| &token.token).collect();
    let mut words = Words(&all);
    let mut included = Vec::new();
    while words.word("include") {
        let word = words.folded()?;
        let (what, data_type) = match word.as_str() {
            "partition" => (IncludedColumns::Split, "VARCHAR"),
            "offset" => (IncludedColumns::Offset, "BIGINT"),
            "line" => (IncludedColumns::Line, "BIGINT"),
            "timestamp" => (IncludedColumns::Time, "TIMESTAMPTZ"),
            other => {
                let message = format!(
                    "INCLUDE {}: records have PARTITION (the file), OFFSET, LINE and TIMESTAMP",
                    other.to_uppercase()
                );
                return Err(Error::unsupported(message));
            }
        };
        let name = if words.word("as") { words.folded()? } else { word };
        let definition = format!("{} {data_type}", Ident::with_quote('"', name));
        let column = with_parser(&tokenize(&definition, BEGINNING)?, |parser| parser.parse_column_def())?;
        included.push((what, column));
    }
    let rest = words.0.len();
    Ok((included, &tokens[tokens.len() - rest..]))
}

/// Adds the options in parentheses behind FORMAT and ENCODE to those of WITH; returns the tokens before them.
fn take_format_options<'t>(
    tokens: &'t [TokenWithSpan],
    options: &mut Vec<StreamOption>,
) -> Result<&'t [TokenWithSpan]> {
    const BEFORE: usize = 4;
    if tokens.get(BEFORE).is_none_or(|token| token.token != Token::LParen) {
        return Ok(tokens);
    }
    let (body, behind) = parenthesised(&tokens[BEFORE..])?;
    if let Some(next) = behind.first() {
        return Err(Words(&[&next.token]).unexpected());
    }
    for (name, value) in options_of(body)? {
        if options.iter().any(|(other, _)| *other == name) {
            return Err(Error::coded("42601", format!("option \"{name}\" specified more than once")));
        }
        options.push((name, value));
    }
    Ok(&tokens[..BEFORE])
}

/// Takes FORMAT and ENCODE, if they are next.
fn encoding(words: &mut Words<'_>) -> Result<Option<Encoding>> {
    if !words.word("format") {
        return Ok(None);
    }
    let envelope = if words.word("upsert") {
        Some(Envelope::Upsert)
    } else if words.word("debezium") {
        Some(Envelope::Debezium)
    } else if words.word("plain") {
        None
    } else {
        return Err(Error::unsupported("FORMAT other than PLAIN, UPSERT and DEBEZIUM"));
    };
    words.expect("encode")?;
    match envelope {
        Some(envelope) if words.word("json") => Ok(Some(Encoding::Changes(envelope))),
        Some(_) => Err(Error::unsupported("ENCODE other than JSON of FORMAT UPSERT and DEBEZIUM")),
        None if words.word("csv") => Ok(Some(Encoding::Csv)),
        None if words.word("json") => Ok(Some(Encoding::Json)),
        None if words.word("text") => Ok(Some(Encoding::Plain)),
        None if words.word("parquet") => Ok(Some(Encoding::Parquet)),
        None => Err(Error::unsupported("ENCODE other than CSV, JSON, TEXT and PARQUET")),
    }
}

fn create_topology(
    name: String,
    (if_not_exists, replaces): (bool, bool),
    tokens: &[TokenWithSpan],
) -> Result<StreamingStatement> {
    if if_not_exists && replaces {
        return Err(Error::Syntax(
            "syntax error: CREATE TOPOLOGY with both OR REPLACE and IF NOT EXISTS".to_owned(),
        ));
    }
    let all: Vec<&Token> = tokens.iter().map(|token| &token.token).collect();
    let mut words = Words(&all);
    let mut boundaries = Vec::new();
    if words.word("commit") {
        boundaries.push(boundary(&mut words)?);
        while words.word("or") {
            boundaries.push(boundary(&mut words)?);
        }
    }
    let isolation = isolation(&mut words)?;
    let (on_error, errors_into) = error_clause(&mut words)?;
    let (options, rest) = with_options(&tokens[tokens.len() - words.0.len()..])?;
    let [as_word, rest @ ..] = rest else { return Err(Words(&[]).unexpected()) };
    if !is_word(&as_word.token, "as") {
        return Err(Words(&[&as_word.token]).unexpected());
    }
    let (body, rest) = parenthesised(rest)?;
    if let Some(token) = rest.first() {
        return Err(Words(&[&token.token]).unexpected());
    }
    let steps: Vec<Vec<TokenWithSpan>> =
        split(body, &Token::SemiColon).filter(|step| !step.is_empty()).map(<[_]>::to_vec).collect();
    if steps.is_empty() {
        return Err(Error::coded("42601", format!("topology \"{name}\" has no steps")));
    }
    let text = String::new();
    let sink = None;
    let create = CreateTopology {
        name,
        if_not_exists,
        replaces,
        boundaries,
        isolation,
        on_error,
        errors_into,
        options,
        steps,
        sink,
        view: None,
        text,
    };
    Ok(StreamingStatement::CreateTopology(Box::new(create)))
}

/// Takes ISOLATION LEVEL. A transaction of a topology is one statement, so READ COMMITTED sees what REPEATABLE READ does.
fn isolation(words: &mut Words<'_>) -> Result<Isolation> {
    if !words.phrase(&["isolation", "level"]) {
        return Ok(Isolation::default());
    }
    if words.phrase(&["read", "committed"]) || words.phrase(&["repeatable", "read"]) {
        return Ok(Isolation::Snapshot);
    }
    if words.word("serializable") { Ok(Isolation::Serializable) } else { Err(words.unexpected()) }
}

/// Takes ON ERROR, and the table behind INTO.
fn error_clause(words: &mut Words<'_>) -> Result<(ErrorClause, Option<String>)> {
    if !words.phrase(&["on", "error"]) {
        return Ok((ErrorClause::Stop, None));
    }
    let clause = if words.phrase(&["skip", "row"]) {
        ErrorClause::Skip
    } else if words.word("abort") {
        ErrorClause::Abort
    } else if words.word("stop") {
        ErrorClause::Stop
    } else {
        return Err(Error::unsupported("ON ERROR other than STOP, ABORT and SKIP ROW"));
    };
    let into = if words.word("into") { Some(words.relation()?) } else { None };
    Ok((clause, into))
}

fn create_sink(name: String, if_not_exists: bool, tokens: &[TokenWithSpan]) -> Result<StreamingStatement> {
    let all: Vec<&Token> = tokens.iter().map(|token| &token.token).collect();
    let mut words = Words(&all);
    let (mut from, mut steps) = (None, Vec::new());
    if words.word("from") {
        from = Some(words.relation()?);
    } else {
        words.expect("as")?;
        let query = &tokens[tokens.len() - words.0.len()..];
        let is_with = |at: &usize| {
            is_word(&query[*at].token, "with")
                && query.get(at + 1).is_some_and(|next| next.token == Token::LParen)
                && depth_at(query, *at) == 0
        };
        let with = (0..query.len()).find(is_with).ok_or_else(|| {
            Error::Syntax(format!(
                "syntax error: CREATE SINK {name} AS query: expected WITH (connector = ...)"
            ))
        })?;
        steps.push(query[..with].to_vec());
        words = Words(&all[all.len() - query.len() + with..]);
    }
    let (mut options, rest) = with_options(&tokens[tokens.len() - words.0.len()..])?;
    let rest = take_format_options(rest, &mut options)?;
    let rest: Vec<&Token> = rest.iter().map(|token| &token.token).collect();
    let mut words = Words(&rest);
    let encoding = encoding(&mut words)?;
    words.end()?;
    let (options, of_sink) = options.into_iter().partition(|(option, _)| option == "durability");
    let create = CreateTopology {
        name,
        if_not_exists,
        replaces: false,
        boundaries: Vec::new(),
        isolation: Isolation::default(),
        on_error: ErrorClause::Stop,
        errors_into: None,
        options,
        steps,
        sink: Some(SinkClause { from, options: of_sink, encoding }),
        view: None,
        text: String::new(),
    };
    Ok(StreamingStatement::CreateTopology(Box::new(create)))
}

/// Number of parentheses that are open before a token.
fn depth_at(tokens: &[TokenWithSpan], at: usize) -> i32 {
    let depth = |token: &TokenWithSpan| match token.token {
        Token::LParen => 1,
        Token::RParen => -1,
        _ => 0,
    };
    tokens[..at].iter().map(depth).sum()
}

fn boundary(words: &mut Words<'_>) -> Result<CommitBoundary> {
    if words.phrase(&["each", "row"]) {
        Ok(CommitBoundary::EachRow)
    } else if words.phrase(&["on", "window", "close"]) {
        let of = if words.word("of") { Some(words.folded()?) } else { None };
        Ok(CommitBoundary::WindowClose(of))
    } else if words.phrase(&["with", "source"]) {
        Ok(CommitBoundary::Source)
    } else {
        words.expect("every")?;
        let _ = words.word("interval");
        match words.0.first() {
            Some(Token::SingleQuotedString(text)) => {
                let text = text.clone();
                words.skip();
                Ok(CommitBoundary::Interval(text))
            }
            Some(Token::Number(number, _)) => {
                let rows = number.parse().ok().filter(|rows| *rows > 0).ok_or_else(|| {
                    Error::coded("22023", format!("COMMIT EVERY {number} ROWS: it must be at least 1"))
                })?;
                words.skip();
                if !words.word("rows") {
                    words.expect("row")?;
                }
                Ok(CommitBoundary::Rows(rows))
            }
            _ => Err(words.unexpected()),
        }
    }
}

/// Options in `WITH (name = value, ...)`, if that is next, and the tokens behind it.
pub(crate) fn with_options(tokens: &[TokenWithSpan]) -> Result<(Vec<StreamOption>, &[TokenWithSpan])> {
    let [with, rest @ ..] = tokens else { return Ok((Vec::new(), tokens)) };
    if !is_word(&with.token, "with") {
        return Ok((Vec::new(), tokens));
    }
    let (body, rest) = parenthesised(rest)?;
    Ok((options_of(body)?, rest))
}

/// Options that may stand without a value, which is true.
const FLAGS: [&str; 1] = ["owned"];

/// Options between commas; names in lower case.
pub(crate) fn options_of(tokens: &[TokenWithSpan]) -> Result<Vec<StreamOption>> {
    let mut options: Vec<StreamOption> = Vec::new();
    for option in split(tokens, &Token::Comma) {
        if let [name] = option
            && let Some(flag) = FLAGS.iter().find(|flag| is_word(&name.token, flag))
        {
            add_option(&mut options, (*flag).to_owned(), "true".to_owned())?;
            continue;
        }
        let at = option.iter().position(|token| token.token == Token::Eq);
        let (Some(at), Some(last)) = (at, option.last()) else {
            return Err(Error::Syntax("syntax error: expected option = value".to_owned()));
        };
        let name: String = option[..at]
            .iter()
            .map(|token| match &token.token {
                Token::Word(word) => word.value.to_ascii_lowercase(),
                Token::SingleQuotedString(text) => text.to_ascii_lowercase(),
                other => other.to_string(),
            })
            .collect();
        let value = match &last.token {
            Token::SingleQuotedString(text) => text.clone(),
            Token::Word(word) => word.value.clone(),
            Token::Number(number, _) => number.clone(),
            other => other.to_string(),
        };
        if let [sign, digits] = &option[at + 1..]
            && sign.token == Token::Minus
            && matches!(digits.token, Token::Number(..))
        {
            add_option(&mut options, name, format!("-{value}"))?;
            continue;
        }
        if at + 2 != option.len() {
            return Err(Error::Syntax(format!("syntax error: option {name} has more than one value")));
        }
        add_option(&mut options, name, value)?;
    }
    Ok(options)
}

fn add_option(options: &mut Vec<StreamOption>, name: String, value: String) -> Result<()> {
    if options.iter().any(|(other, _)| *other == name) {
        return Err(Error::coded("42601", format!("option \"{name}\" specified more than once")));
    }
    options.push((name, value));
    Ok(())
}

/// Tokens inside of the parentheses that are next, and those behind them.
pub(crate) fn parenthesised(tokens: &[TokenWithSpan]) -> Result<(&[TokenWithSpan], &[TokenWithSpan])> {
    if tokens.first().map(|token| &token.token) != Some(&Token::LParen) {
        let next: Vec<&Token> = tokens.iter().take(1).map(|token| &token.token).collect();
        return Err(Words(&next).unexpected());
    }
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate() {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Ok((&tokens[1..at], &tokens[at + 1..]));
        }
    }
    Err(Words(&[]).unexpected())
}

/// Parts between separators outside of parentheses.
fn split<'t>(
    tokens: &'t [TokenWithSpan],
    separator: &'t Token,
) -> impl Iterator<Item = &'t [TokenWithSpan]> + 't {
    let mut depth = 0_i32;
    tokens.split(move |token| {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ => {}
        }
        depth == 0 && token.token == *separator
    })
}

/// Parses all of the tokens by a function of sqlparser's.
pub(crate) fn with_parser<T>(
    tokens: &[TokenWithSpan],
    parse: impl FnOnce(&mut Parser<'_>) -> Result<T, ParserError>,
) -> Result<T> {
    let mut parser = Parser::new(&POSTGRESQL).with_tokens_with_locations(tokens.to_vec());
    let parsed = parse(&mut parser).and_then(|parsed| {
        parser.expect_token(&Token::EOF)?;
        Ok(parsed)
    });
    parsed.map_err(|error| DataFusionError::from(error).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::command::Command;
    use crate::parser::statement::parse as parse_text;

    fn one(sql: &str) -> Result<StreamingStatement> {
        match parse_text(sql)?.pop() {
            Some(Command::Streaming(statement)) => Ok(*statement),
            other => panic!("{sql}: {other:?}"),
        }
    }

    #[test]
    fn a_topology_is_one_statement_with_steps() {
        let sql = "CREATE TOPOLOGY t COMMIT EVERY 10 ROWS OR EVERY INTERVAL '5 ms' ON ERROR ABORT \
                   WITH (durability = 'none') AS (INSERT INTO a SELECT x FROM s; INSERT INTO b SELECT ';' FROM s;)";
        let StreamingStatement::CreateTopology(create) = one(sql).unwrap() else { panic!("{sql}") };
        assert_eq!(
            create.boundaries,
            [CommitBoundary::Rows(10), CommitBoundary::Interval("5 ms".to_owned())]
        );
        assert_eq!((create.steps.len(), create.on_error), (2, ErrorClause::Abort));
        assert_eq!(create.options, [("durability".to_owned(), "none".to_owned())]);
        assert_eq!(create.text, sql);
    }

    #[test]
    fn a_source_has_columns_a_watermark_and_options() {
        let sql = "CREATE SOURCE IF NOT EXISTS S (at TIMESTAMP NOT NULL, v DECIMAL(10,2), \
                   WATERMARK FOR at AS at - INTERVAL '2 minutes') \
                   WITH (connector = 'file', path = 'a.csv', v.max = 7) FORMAT PLAIN ENCODE CSV";
        let StreamingStatement::CreateSource(create) = one(sql).unwrap() else { panic!("{sql}") };
        assert_eq!((create.name.as_str(), create.columns.len(), create.if_not_exists), ("s", 2, true));
        assert_eq!(create.watermark.unwrap().0, "at");
        assert_eq!(create.options[2], ("v.max".to_owned(), "7".to_owned()));
        assert_eq!(create.encoding, Some(Encoding::Csv));
    }

    #[test]
    fn a_sink_is_a_topology_of_one_step() {
        let sql = "CREATE SINK IF NOT EXISTS S AS WITH w AS (SELECT 1 FROM t WITH (a)) SELECT * FROM w \
                   WITH (connector = 'file', path = 'a.csv', durability = 'none') FORMAT PLAIN ENCODE JSON";
        let StreamingStatement::CreateTopology(create) = one(sql).unwrap() else { panic!("{sql}") };
        let sink = create.sink.unwrap();
        assert_eq!((create.name.as_str(), create.steps.len(), create.if_not_exists), ("s", 1, true));
        assert_eq!((sink.from, sink.encoding), (None, Some(Encoding::Json)));
        assert_eq!((create.options.len(), sink.options.len()), (1, 2));
        let sql = "CREATE SINK s FROM \"T\" WITH (connector = 'file')";
        let StreamingStatement::CreateTopology(create) = one(sql).unwrap() else { panic!("{sql}") };
        assert_eq!(create.sink.unwrap().from.as_deref(), Some("T"));
        assert!(create.steps.is_empty());
    }

    #[test]
    fn mistakes_are_named() {
        for (sql, expected) in [
            ("CREATE SOURCE s", "syntax error at end of input"),
            ("CREATE SOURCE s (a INT) WITH (a = 1, a = 2)", "option \"a\" specified more than once"),
            ("CREATE SOURCE s (a INT) WITH (a = 1) FORMAT CANAL ENCODE JSON", "FORMAT other than PLAIN"),
            (
                "CREATE SOURCE s (a INT) WITH (a = 1) FORMAT UPSERT ENCODE CSV",
                "ENCODE other than JSON of FORMAT UPSERT",
            ),
            (
                "CREATE SOURCE s (a INT, PRIMARY KEY (a), PRIMARY KEY (a)) WITH (a = 1)",
                "several primary keys",
            ),
            ("CREATE SOURCE s (a INT, PRIMARY KEY (a) b) WITH (a = 1)", "syntax error at or near \"b\""),
            (
                "CREATE SOURCE s (a INT) WITH (a = 1) FORMAT PLAIN ENCODE AVRO",
                "ENCODE other than CSV, JSON, TEXT and PARQUET",
            ),
            ("CREATE TOPOLOGY t AS ()", "has no steps"),
            ("CREATE TOPOLOGY t COMMIT EVERY 0 ROWS AS (INSERT INTO a SELECT 1)", "at least 1"),
            ("CREATE TOPOLOGY t ON ERROR SKIP AS (INSERT INTO a SELECT 1)", "ON ERROR other than"),
            ("ALTER TOPOLOGY t STOP", "other than PAUSE, RESUME, SET (options) and AS (steps)"),
            ("CREATE OR REPLACE SINK s FROM t WITH (connector = 'file')", "OR REPLACE of a source or sink"),
            (
                "CREATE OR REPLACE TOPOLOGY IF NOT EXISTS t AS (INSERT INTO a SELECT 1)",
                "OR REPLACE and IF NOT EXISTS",
            ),
            ("ALTER SINK t STOP", "of a sink other than PAUSE, RESUME"),
            ("CREATE SINK s AS SELECT 1", "expected WITH (connector = ...)"),
            ("CREATE SINK s SELECT 1", "syntax error at or near \"SELECT\""),
            ("DROP TOPOLOGY t u", "syntax error at or near \"u\""),
        ] {
            let error = one(sql).unwrap_err().to_string();
            assert!(error.contains(expected), "{sql}: {error}");
        }
    }
}
