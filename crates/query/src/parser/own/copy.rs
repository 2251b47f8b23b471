//! COPY as it was written.

use crate::error::{Error, Result};
use crate::parser::depth::NESTING_MAX;
use crate::parser::own::copy_options::{Compression, Layout};
use crate::parser::patterns::RowPatterns;
use crate::parser::refusals;
use crate::parser::rewriting::rewrite;
use crate::parser::sequence_calls;
use crate::parser::system_time::SystemTimes;
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
    /// FROM, not TO.
    pub(crate) from: bool,
    /// File of the database's machine; none for STDIN and STDOUT.
    pub(crate) file: Option<String>,
    pub(crate) layout: Layout,
    pub(crate) freeze: bool,
    /// Number of rows after which a COPY FROM commits, and goes on in a new transaction.
    pub(crate) commit_rows: Option<u64>,
}

/// Options that the parser does not know.
#[derive(Debug, Default)]
struct OwnOptions {
    commit_rows: Option<u64>,
    compression: Option<Compression>,
}

impl OwnOptions {
    /// Takes `COMMIT_ROWS n` and `COMPRESSION name` out of the tokens.
    fn take(tokens: &mut Vec<TokenWithSpan>) -> Result<OwnOptions> {
        let is_number = |token: &Token| matches!(token, Token::Number(..));
        let commit_rows = match take_option(tokens, "commit_rows", is_number)? {
            Some(Token::Number(number, _)) => {
                let rows = number.parse().ok().filter(|rows| *rows > 0);
                Some(rows.ok_or_else(|| {
                    let message = format!("COPY commit_rows must be a number of rows from 1, not {number}");
                    Error::coded("22023", message)
                })?)
            }
            _ => None,
        };
        let is_name = |token: &Token| matches!(token, Token::Word(_) | Token::SingleQuotedString(_));
        let compression = match take_option(tokens, "compression", is_name)? {
            Some(Token::Word(word)) => Some(Compression::named(&word.value)?),
            Some(Token::SingleQuotedString(name)) => Some(Compression::named(&name)?),
            _ => None,
        };
        Ok(OwnOptions { commit_rows, compression })
    }
}

/// Takes `NAME value` or `NAME = value` out of the options, and returns the value; none if there is only a column of
/// this name.
fn take_option(
    tokens: &mut Vec<TokenWithSpan>,
    name: &str,
    is_value: fn(&Token) -> bool,
) -> Result<Option<Token>> {
    let token = |tokens: &[TokenWithSpan], at: usize| tokens.get(at).map(|token| token.token.clone());
    let is_option = |tokens: &[TokenWithSpan], at: usize| {
        at > 0
            && is_word(&tokens[at].token, name)
            && matches!(tokens[at - 1].token, Token::LParen | Token::Comma)
    };
    let value_of = |tokens: &[TokenWithSpan], at: usize| {
        let value_at = if token(tokens, at + 1) == Some(Token::Eq) { at + 2 } else { at + 1 };
        token(tokens, value_at).filter(is_value).map(|value| (value_at, value))
    };
    let found = (1..tokens.len()).find(|&at| is_option(tokens, at) && value_of(tokens, at).is_some());
    let Some((at, (value_at, value))) = found.and_then(|at| Some((at, value_of(tokens, at)?))) else {
        return Ok(None);
    };
    match (&tokens[at - 1].token, token(tokens, value_at + 1)) {
        (Token::LParen, Some(Token::RParen)) => {
            // The only option: without the word in front, and the parentheses.
            let with = at > 1 && is_word(&tokens[at - 2].token, "with");
            tokens.drain(at - 1 - usize::from(with)..=value_at + 1);
        }
        (Token::LParen, Some(Token::Comma)) => {
            tokens.drain(at..=value_at + 1);
        }
        _ => {
            tokens.drain(at - 1..=value_at);
        }
    }
    if (1..tokens.len()).any(|at| is_option(tokens, at) && value_of(tokens, at).is_some()) {
        return Err(Error::coded("42601", "conflicting or redundant options"));
    }
    Ok(Some(value))
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

/// Takes the file out of the tokens of a COPY, and puts STDIN or STDOUT in its place; `None` if they have no file.
pub(crate) fn take_file(tokens: &mut [TokenWithSpan]) -> Option<String> {
    let mut depth = 0usize;
    for at in 1..tokens.len() {
        match &tokens[at].token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            Token::SingleQuotedString(path) | Token::EscapedStringLiteral(path) if depth == 0 => {
                let before = &tokens[at - 1].token;
                let is = |word, stream| is_word(before, word).then_some(stream);
                let stream = is("from", "STDIN").or_else(|| is("to", "STDOUT"))?;
                let path = path.clone();
                tokens[at].token = Token::make_keyword(stream);
                return (!path.is_empty()).then_some(path);
            }
            _ => {}
        }
    }
    None
}

impl CopyStatement {
    /// Parses the tokens of a COPY.
    pub(crate) fn of_tokens(tokens: &[TokenWithSpan]) -> Result<CopyStatement> {
        let mut tokens = tokens.to_vec();
        rewrite(&mut tokens)?;
        spell_flags(&mut tokens);
        let own = OwnOptions::take(&mut tokens)?;
        let times = SystemTimes::take(&mut tokens)?;
        let patterns = RowPatterns::take(&mut tokens)?;
        let mut parser =
            Parser::new(&POSTGRESQL).with_recursion_limit(NESTING_MAX).with_tokens_with_locations(tokens);
        let mut statement = parser.parse_statement()?;
        let end = parser.peek_token().token;
        if end != Token::EOF {
            return Err(Error::Syntax(format!("syntax error at or near \"{end}\"")));
        }
        patterns.put(&mut statement)?;
        times.put(&mut statement)?;
        refusals::check(&statement)?;
        refusals::check_joins(&statement)?;
        sequence_calls::without_regclass(&mut statement);
        CopyStatement::new(statement, own)
    }

    fn new(statement: Statement, own: OwnOptions) -> Result<CopyStatement> {
        let OwnOptions { commit_rows, compression } = own;
        let shown = statement.to_string();
        let Statement::Copy { source, to, target, options, legacy_options, .. } = statement else {
            return Err(Error::unsupported(format!("statement {shown}")));
        };
        let file = match (target, to) {
            (CopyTarget::Stdin, false) | (CopyTarget::Stdout, true) => None,
            (CopyTarget::File { filename }, _) => Some(filename),
            _ => return Err(Error::unsupported(format!("statement {shown}"))),
        };
        let source = match source {
            CopySource::Table { table_name, columns } => Source::Table { name: table_name, columns },
            CopySource::Query(query) => Source::Query(query),
        };
        let freeze = options.iter().any(|option| matches!(option, CopyOption::Freeze(true)));
        let layout = Layout::new(&options, &legacy_options, (file.as_deref(), compression))?;
        if to && commit_rows.is_some() {
            return Err(Error::coded("0A000", "COPY commit_rows cannot be used with COPY TO"));
        }
        if !to && compression.is_some() {
            return Err(Error::coded("0A000", "COPY compression cannot be used with COPY FROM"));
        }
        Ok(CopyStatement { source, from: !to, file, layout, freeze, commit_rows })
    }

    /// File of the database's machine that it reads or writes; none if a client sends or gets the rows. A session
    /// runs a COPY of a file as any other statement.
    pub fn file(&self) -> Option<&str> {
        self.file.as_deref()
    }

    /// Table of a COPY FROM.
    pub(crate) fn written_table(&self) -> Option<&ObjectName> {
        match &self.source {
            Source::Table { name, .. } if self.from => Some(name),
            _ => None,
        }
    }

    /// Returns true for COPY FROM, run by [`Session::copy_in`](crate::Session::copy_in), and false for COPY TO, run
    /// by [`Session::copy_out`](crate::Session::copy_out).
    pub fn is_in(&self) -> bool {
        self.from
    }

    /// Returns true if rows are passed as values, not as lines.
    pub fn is_binary(&self) -> bool {
        self.layout == Layout::Binary
    }
}
