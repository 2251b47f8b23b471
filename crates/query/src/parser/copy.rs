//! COPY as it was written.

use datafusion::sql::sqlparser::ast::{
    CopyOption, CopySource, CopyTarget, Ident, ObjectName, Query, Statement,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

use crate::error::{Error, Result};
use crate::parser::copy_options::Layout;
use crate::parser::depth::check_chains;

/// Table or query that a COPY reads or writes.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    Table { name: ObjectName, columns: Vec<Ident> },
    Query(Box<Query>),
}

/// A parsed COPY.
#[derive(Debug, Clone)]
pub struct CopyStatement {
    pub(crate) source: Source,
    /// FROM STDIN, not TO STDOUT.
    pub(crate) from: bool,
    pub(crate) layout: Layout,
    pub(crate) freeze: bool,
}

/// Rewrites `FREEZE on` as `FREEZE TRUE`, which the parser knows.
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
    /// Parses a query text that is one COPY; `None` if it begins with something else.
    pub fn parse(sql: &str) -> Result<Option<CopyStatement>> {
        const KEYWORD: &str = "copy";
        // Nearly all query texts are something else.
        let start = sql.trim_start();
        let may_be = start.starts_with(['-', '/'])
            || start.get(..KEYWORD.len()).is_some_and(|word| word.eq_ignore_ascii_case(KEYWORD));
        if !may_be {
            return Ok(None);
        }
        let dialect = PostgreSqlDialect {};
        // Syntax errors are reported by the other parser.
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
            return Err(Error::unsupported("COPY together with other statements in one query text"));
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

    /// Returns true for COPY FROM STDIN, run by [`Session::copy_in`](crate::Session::copy_in), and false for COPY TO
    /// STDOUT, run by [`Session::copy_out`](crate::Session::copy_out).
    pub fn is_in(&self) -> bool {
        self.from
    }

    /// Returns true if rows are passed as values, not as lines.
    pub fn is_binary(&self) -> bool {
        self.layout == Layout::Binary
    }

    /// Statement of another form that reads or writes the same relations: it requires the same privileges as this COPY.
    pub fn equivalent(&self) -> String {
        match &self.source {
            Source::Query(query) => query.to_string(),
            Source::Table { name, .. } if self.from => format!("INSERT INTO {name} DEFAULT VALUES"),
            Source::Table { name, .. } => format!("SELECT * FROM {name}"),
        }
    }
}
