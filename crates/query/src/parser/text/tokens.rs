//! Tokens of one statement, as sqlparser and the parsers of our own statements take them: without blanks and
//! comments.

use crate::error::{Error, Result};
use crate::parser::text::integers;
use crate::schema_names::HIDDEN;
use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::ParserError;
use datafusion::sql::sqlparser::tokenizer::{Location, Span, Token, TokenWithSpan, Tokenizer};

/// Dialect of all texts.
pub(crate) const POSTGRESQL: PostgreSqlDialect = PostgreSqlDialect {};
/// Place of the first character of a text.
pub(crate) const BEGINNING: Location = Location { line: 1, column: 1 };

/// Tokenizes a statement; `place` is where it begins in its script, so that errors name places of the script.
pub(crate) fn tokenize(sql: &str, place: Location) -> Result<Vec<TokenWithSpan>> {
    let tokens = Tokenizer::new(&POSTGRESQL, sql).tokenize_with_location().map_err(|mut error| {
        error.location = moved(error.location, place);
        DataFusionError::from(ParserError::from(error))
    })?;
    let mut tokens: Vec<TokenWithSpan> =
        tokens.into_iter().filter(|token| !matches!(token.token, Token::Whitespace(_))).collect();
    let hidden =
        |token: &TokenWithSpan| matches!(&token.token, Token::Word(word) if word.value.contains(HIDDEN));
    if tokens.iter().any(hidden) {
        return Err(Error::coded("42602", "invalid name: it has the character U+0001"));
    }
    integers::rewrite(&mut tokens)?;
    if place != BEGINNING {
        for token in &mut tokens {
            token.span = Span::new(moved(token.span.start, place), moved(token.span.end, place));
        }
    }
    Ok(tokens)
}

/// Place in a script of a place in a statement that begins at `place`.
fn moved(at: Location, place: Location) -> Location {
    let column = if at.line == 1 { at.column + place.column - 1 } else { at.column };
    Location { line: at.line + place.line - 1, column }
}

/// Returns true for an unquoted keyword.
pub(crate) fn is_keyword(token: &Token, wanted: Keyword) -> bool {
    matches!(token, Token::Word(word) if word.keyword == wanted)
}

/// Returns true for an unquoted word.
pub(crate) fn is_word(token: &Token, wanted: &str) -> bool {
    matches!(token, Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(wanted))
}

/// Returns true if one of these words is among the tokens, unquoted.
pub(crate) fn mentions(tokens: &[TokenWithSpan], words: &[&str]) -> bool {
    tokens.iter().any(|token| words.iter().any(|word| is_word(&token.token, word)))
}

/// Text of tokens, for errors.
pub(crate) fn shown(tokens: &[&Token]) -> String {
    let texts: Vec<String> = tokens.iter().map(ToString::to_string).collect();
    texts.join(" ")
}
