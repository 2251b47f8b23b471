//! Texts of stored statements with other options: the clause `WITH (...)` is replaced, or added before AS.

use crate::error::{Error, Result};
use crate::parser::own::streaming::StreamOption;
use crate::parser::text::lexer::{Lexer, Token, TokenKind};
use std::ops::Range;

/// Statement of a source, topology or sink with these options in place of its own.
pub(crate) fn with_options(text: &str, options: &[StreamOption]) -> Result<String> {
    let clause = clause_of(options);
    if let Some(found) = options_at(text) {
        return Ok(format!("{}{clause}{}", &text[..found.start], &text[found.end..]));
    }
    match word_at(text, "as") {
        Some(place) => Ok(format!("{}{clause} {}", &text[..place], &text[place..])),
        None => Err(Error::Internal(format!("{text} has no place for options"))),
    }
}

/// Statement of a source with one more column, behind the others.
pub(crate) fn with_column(text: &str, column: &str) -> Result<String> {
    let mut depth = 0_usize;
    let (mut lexer, mut last) = (Lexer::default(), None);
    while let Some(token) = lexer.next(text) {
        match token.kind {
            TokenKind::Symbol(b'(') => depth += 1,
            TokenKind::Symbol(b')') if depth == 1 => {
                let place = last.unwrap_or(token.start);
                return Ok(format!("{}, {column}{}", &text[..place], &text[place..]));
            }
            TokenKind::Symbol(b')') => depth = depth.saturating_sub(1),
            _ => {}
        }
        if !matches!(token.kind, TokenKind::Space | TokenKind::Comment) {
            last = Some(token.end);
        }
    }
    Err(Error::Internal(format!("{text} has no columns")))
}

/// Query of a CREATE MATERIALIZED VIEW, with its clauses: what is behind AS.
pub(crate) fn query_of_view(text: &str) -> Option<&str> {
    const AS: &str = "as";
    word_at(text, AS).map(|place| text[place + AS.len()..].trim())
}

/// Position of a word outside of parentheses.
pub(crate) fn word_at(sql: &str, word: &str) -> Option<usize> {
    outer_tokens(sql).into_iter().find(|token| is_word(sql, token, word)).map(|token| token.start)
}

fn is_word(sql: &str, token: &Token, word: &str) -> bool {
    token.kind == TokenKind::Word && sql[token.start..token.end].eq_ignore_ascii_case(word)
}

/// Tokens outside of parentheses, and the parentheses around the others.
fn outer_tokens(sql: &str) -> Vec<Token> {
    let (mut lexer, mut depth, mut found) = (Lexer::default(), 0_usize, Vec::new());
    while let Some(token) = lexer.next(sql) {
        if token.kind == TokenKind::Symbol(b')') {
            depth = depth.saturating_sub(1);
        }
        let is_blank = matches!(token.kind, TokenKind::Space | TokenKind::Comment);
        if depth == 0 && !is_blank {
            found.push(token);
        }
        if token.kind == TokenKind::Symbol(b'(') {
            depth += 1;
        }
    }
    found
}

/// Place of `WITH (...)`.
fn options_at(sql: &str) -> Option<Range<usize>> {
    let tokens = outer_tokens(sql);
    let found = tokens.windows(3).find(|tokens| {
        is_word(sql, &tokens[0], "with")
            && tokens[1].kind == TokenKind::Symbol(b'(')
            && tokens[2].kind == TokenKind::Symbol(b')')
    });
    found.map(|tokens| tokens[0].start..tokens[2].end)
}

fn clause_of(options: &[StreamOption]) -> String {
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
    let options: Vec<String> =
        options.iter().map(|(name, value)| format!("{} = {}", quoted(name), quoted(value))).collect();
    format!("WITH ({})", options.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(all: &[(&str, &str)]) -> Vec<StreamOption> {
        all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn options_take_the_place_of_others() {
        for (text, expected) in [
            (
                "CREATE TOPOLOGY t COMMIT EACH ROW AS (INSERT INTO a WITH (b) SELECT 1)",
                "CREATE TOPOLOGY t COMMIT EACH ROW WITH ('durability' = 'none', 'a' = 'it''s') AS (INSERT INTO a WITH (b) SELECT 1)",
            ),
            (
                "CREATE TOPOLOGY t /* with (a) */ with (merge = arrival) AS (x)",
                "CREATE TOPOLOGY t /* with (a) */ WITH ('durability' = 'none', 'a' = 'it''s') AS (x)",
            ),
            (
                "CREATE SINK s AS WITH w AS (SELECT 1) SELECT * FROM w WITH (connector = 'file') FORMAT PLAIN ENCODE CSV",
                "CREATE SINK s AS WITH w AS (SELECT 1) SELECT * FROM w WITH ('durability' = 'none', 'a' = 'it''s') FORMAT PLAIN ENCODE CSV",
            ),
        ] {
            let found = with_options(text, &options(&[("durability", "none"), ("a", "it's")])).unwrap();
            assert_eq!(found, expected);
        }
        assert!(with_options("CREATE TOPOLOGY t (x AS y)", &options(&[])).is_err());
    }

    #[test]
    fn the_query_of_a_view_is_behind_its_clauses() {
        let text = "CREATE MATERIALIZED VIEW v (\"as\") /* as */ WITH (changes = 'as') AS\n SELECT a AS b FROM s EMIT CHANGES ";
        assert_eq!(query_of_view(text), Some("SELECT a AS b FROM s EMIT CHANGES"));
        assert_eq!(query_of_view("CREATE MATERIALIZED VIEW v"), None);
    }

    #[test]
    fn a_column_is_added_behind_the_others() {
        let text =
            "CREATE SOURCE s (a DECIMAL(8,2), WATERMARK FOR at AS at -- (\n) WITH (connector = 'file')";
        let expected = "CREATE SOURCE s (a DECIMAL(8,2), WATERMARK FOR at AS at, more INT -- (\n) WITH (connector = 'file')";
        assert_eq!(with_column(text, "more INT").unwrap(), expected);
    }
}
