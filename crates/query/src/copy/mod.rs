//! COPY: many rows in and out of tables as lines of text, as PostgreSQL's clients send and expect them.
//!
//! ```text
//! COPY t [(columns)] FROM STDIN [WITH (…)]            bytes ─▶ CopyIn ─▶ decode ─▶ rows, a batch at a time
//! COPY {t [(columns)] | (query)} TO STDOUT [WITH (…)]  query ─▶ encode ─▶ CopyOut ─▶ bytes, a batch at a time
//! ```
//!
//! - The formats are `text` and `csv` with FORMAT, DELIMITER, NULL, HEADER, QUOTE and ESCAPE; [`decode`] and
//!   [`encode`] say how. Other options are refused. In format `binary` rows go as values ([`CopyIn::push_row`],
//!   [`CopyOut::next_batch`]): what their bytes are is the wire's.
//! - A COPY FROM is one statement: outside of a block a transaction of its own, which is not run again after a
//!   conflict because its data is gone; inside of one, what it wrote is taken back if it fails. It fails too if it is
//!   dropped before [`CopyIn::finish`].
//! - Errors name the table, the line and the column.
//!
//! Memory: [`LINE_BYTES_MAX`] and a batch of rows in; a batch of rows out; and the transaction's write set.

mod decode;
mod encode;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod input;
mod options;
mod output;

use datafusion::sql::sqlparser::ast::{
    CopyOption, CopySource, CopyTarget, Ident, ObjectName, Query, Statement,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

pub use decode::LINE_BYTES_MAX;
pub use input::CopyIn;
pub use output::{CopyLines, CopyOut};

use crate::chains::check_chains;
use crate::error::{Error, Result};
use options::Layout;

/// Bytes of lines are asked for where there are no lines.
fn no_lines() -> Error {
    Error::unsupported("COPY with FORMAT binary but for clients on the wire")
}

/// What a COPY reads or writes.
#[derive(Debug, Clone)]
enum Source {
    Table { name: ObjectName, columns: Vec<Ident> },
    Query(Box<Query>),
}

/// A parsed COPY.
#[derive(Debug, Clone)]
pub struct CopyStatement {
    source: Source,
    /// FROM STDIN, not TO STDOUT.
    from: bool,
    layout: Layout,
    freeze: bool,
}

/// `FREEZE on` as `FREEZE TRUE`, which the parser knows.
fn spell_flags(tokens: &mut [Token]) {
    let is = |token: &Token, words: &[&str]| {
        matches!(token, Token::Word(word) if word.quote_style.is_none()
            && words.iter().any(|known| word.value.eq_ignore_ascii_case(known)))
    };
    for at in 1..tokens.len() {
        if !is(&tokens[at - 1], &["freeze", "header"]) {
            continue;
        }
        if is(&tokens[at], &["on"]) {
            tokens[at] = Token::make_keyword("TRUE");
        } else if is(&tokens[at], &["off"]) {
            tokens[at] = Token::make_keyword("FALSE");
        }
    }
}

impl CopyStatement {
    /// The COPY that a text consists of; `None` if it begins with something else.
    pub fn parse(sql: &str) -> Result<Option<CopyStatement>> {
        const KEYWORD: &str = "copy";
        // Nearly all texts are something else.
        let start = sql.trim_start();
        let may_be = start.starts_with(['-', '/'])
            || start.get(..KEYWORD.len()).is_some_and(|word| word.eq_ignore_ascii_case(KEYWORD));
        if !may_be {
            return Ok(None);
        }
        let dialect = PostgreSqlDialect {};
        // What is no SQL is for the other parser to report.
        let Ok(mut tokens) = Tokenizer::new(&dialect, sql).tokenize() else { return Ok(None) };
        tokens.retain(|token| !matches!(token, Token::Whitespace(_)));
        let is_copy = |token: &Token| matches!(token, Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(KEYWORD));
        if !tokens.first().is_some_and(is_copy) {
            return Ok(None);
        }
        while tokens.last() == Some(&Token::SemiColon) {
            tokens.pop();
        }
        if tokens.contains(&Token::SemiColon) {
            return Err(Error::unsupported("COPY beside other statements in one text"));
        }
        check_chains(sql)?;
        spell_flags(&mut tokens);
        let mut parser = Parser::new(&dialect).with_tokens(tokens);
        let statement =
            parser.parse_statement().map_err(|error| Error::Syntax(format!("syntax error: {error}")))?;
        if parser.peek_token().token != Token::EOF {
            let found = parser.peek_token().token;
            return Err(Error::Syntax(format!("syntax error at or near \"{found}\"")));
        }
        CopyStatement::new(statement).map(Some)
    }

    fn new(statement: Statement) -> Result<CopyStatement> {
        let shown = statement.to_string();
        let Statement::Copy { source, to, target, options, legacy_options, .. } = statement else {
            return Err(Error::unsupported(format!("statement {shown}")));
        };
        match (&target, to) {
            (CopyTarget::Stdin, false) | (CopyTarget::Stdout, true) => {}
            _ => return Err(Error::unsupported(format!("statement {shown}"))),
        }
        let source = match source {
            CopySource::Table { table_name, columns } => Source::Table { name: table_name, columns },
            CopySource::Query(query) => Source::Query(query),
        };
        let freeze = options.iter().any(|option| matches!(option, CopyOption::Freeze(true)));
        let layout = Layout::new(&options, &legacy_options)?;
        Ok(CopyStatement { source, from: !to, layout, freeze })
    }

    /// True for COPY FROM STDIN: [`Session::copy_in`](crate::Session::copy_in); else it is COPY TO STDOUT:
    /// [`Session::copy_out`](crate::Session::copy_out).
    pub fn is_in(&self) -> bool {
        self.from
    }

    /// Whether rows go as values, not as lines.
    pub fn is_binary(&self) -> bool {
        self.layout == Layout::Binary
    }

    /// A statement of other words that reads or writes the same: who may run it may run this COPY.
    pub fn equivalent(&self) -> String {
        match &self.source {
            Source::Query(query) => query.to_string(),
            Source::Table { name, .. } if self.from => format!("INSERT INTO {name} DEFAULT VALUES"),
            Source::Table { name, .. } => format!("SELECT * FROM {name}"),
        }
    }
}
