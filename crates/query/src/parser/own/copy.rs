//! COPY as it was written.

use crate::error::{Error, Result};
use crate::parser::depth::NESTING_MAX;
use crate::parser::own::copy_options::Layout;
use crate::parser::rewriting::rewrite;
use crate::parser::text::tokens::{POSTGRESQL, is_word};
use datafusion::sql::sqlparser::ast::{
    CopyOption, CopySource, CopyTarget, Ident, ObjectName, Query, Statement,
};
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

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
    /// Number of rows after which a COPY FROM commits, and goes on in a new transaction.
    pub(crate) commit_rows: Option<u64>,
}

/// Takes `COMMIT_ROWS n` or `COMMIT_ROWS = n` out of the options, which the parser does not know.
fn take_commit_rows(tokens: &mut Vec<TokenWithSpan>) -> Result<Option<u64>> {
    let Some(at) = tokens.iter().position(|token| is_word(&token.token, "commit_rows")) else {
        return Ok(None);
    };
    let token = |at: usize| tokens.get(at).map(|token| &token.token);
    let is_option = at > 0 && matches!(token(at - 1), Some(Token::LParen | Token::Comma));
    let value_at = if token(at + 1) == Some(&Token::Eq) { at + 2 } else { at + 1 };
    let (true, Some(Token::Number(number, _))) = (is_option, token(value_at)) else {
        // A column of this name.
        return Ok(None);
    };
    let rows = number.parse().ok().filter(|rows| *rows > 0).ok_or_else(|| {
        Error::coded("22023", format!("COPY commit_rows must be a number of rows from 1, not {number}"))
    })?;
    match (token(at - 1), token(value_at + 1)) {
        (Some(Token::LParen), Some(Token::RParen)) => {
            // The only option: without the word in front, and the parentheses.
            let with = at > 1 && is_word(&tokens[at - 2].token, "with");
            tokens.drain(at - 1 - usize::from(with)..=value_at + 1);
        }
        (Some(Token::LParen), Some(Token::Comma)) => {
            tokens.drain(at..=value_at + 1);
        }
        _ => {
            tokens.drain(at - 1..=value_at);
        }
    }
    if tokens.iter().any(|token| is_word(&token.token, "commit_rows")) {
        return Err(Error::coded("42601", "conflicting or redundant options"));
    }
    Ok(Some(rows))
}

/// Rewrites `FREEZE on` as `FREEZE TRUE`, which the parser knows.
fn spell_flags(tokens: &mut [TokenWithSpan]) {
    for at in 1..tokens.len() {
        if !["freeze", "header"].iter().any(|flag| is_word(&tokens[at - 1].token, flag)) {
            continue;
        }
        if is_word(&tokens[at].token, "on") {
            tokens[at].token = Token::make_keyword("TRUE");
        } else if is_word(&tokens[at].token, "off") {
            tokens[at].token = Token::make_keyword("FALSE");
        }
    }
}

impl CopyStatement {
    /// Parses the tokens of a COPY.
    pub(crate) fn of_tokens(tokens: &[TokenWithSpan]) -> Result<CopyStatement> {
        let mut tokens = tokens.to_vec();
        rewrite(&mut tokens)?;
        spell_flags(&mut tokens);
        let commit_rows = take_commit_rows(&mut tokens)?;
        let mut parser =
            Parser::new(&POSTGRESQL).with_recursion_limit(NESTING_MAX).with_tokens_with_locations(tokens);
        let statement = parser.parse_statement()?;
        match parser.peek_token().token {
            Token::EOF => CopyStatement::new(statement, commit_rows),
            found => Err(Error::Syntax(format!("syntax error at or near \"{found}\""))),
        }
    }

    fn new(statement: Statement, commit_rows: Option<u64>) -> Result<CopyStatement> {
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
        if to && commit_rows.is_some() {
            return Err(Error::coded("0A000", "COPY commit_rows cannot be used with COPY TO"));
        }
        Ok(CopyStatement { source, from: !to, layout, freeze, commit_rows })
    }

    /// Returns true for COPY FROM STDIN, run by [`Session::copy_in`](crate::Session::copy_in), and false for
    /// COPY TO STDOUT, run by [`Session::copy_out`](crate::Session::copy_out).
    pub fn is_in(&self) -> bool {
        self.from
    }

    /// Returns true if rows are passed as values, not as lines.
    pub fn is_binary(&self) -> bool {
        self.layout == Layout::Binary
    }
}
