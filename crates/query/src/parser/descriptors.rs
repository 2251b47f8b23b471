//! Windows as Flink spells them: `TABLE(TUMBLE(TABLE t, DESCRIPTOR(c), INTERVAL '...'))` is `TUMBLE(t, c, INTERVAL '...')`.
//!
//! The words that are only there are taken out of the tokens of a statement before it is parsed.

use crate::parser::text::tokens::is_word;
use crate::parser::windows::FUNCTIONS;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

/// Takes TABLE and DESCRIPTOR out of window functions.
pub(crate) fn take_descriptors(tokens: &mut Vec<TokenWithSpan>) {
    let mut at = 0;
    while at < tokens.len() {
        if is_function(tokens, at) {
            take_words_of(tokens, at);
        }
        at += 1;
    }
}

fn is_token(tokens: &[TokenWithSpan], at: usize, token: &Token) -> bool {
    tokens.get(at).is_some_and(|found| found.token == *token)
}

fn is(tokens: &[TokenWithSpan], at: usize, word: &str) -> bool {
    tokens.get(at).is_some_and(|found| is_word(&found.token, word))
}

fn is_function(tokens: &[TokenWithSpan], at: usize) -> bool {
    FUNCTIONS.iter().any(|function| is(tokens, at, function)) && is_token(tokens, at + 1, &Token::LParen)
}

/// Place of the parenthesis that closes one.
fn closing(tokens: &[TokenWithSpan], open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen if depth == 1 => return Some(at),
            Token::RParen => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

/// Takes the words out of the function at a place, and TABLE around it.
fn take_words_of(tokens: &mut Vec<TokenWithSpan>, function: usize) {
    if is(tokens, function + 2, "table") && !is_token(tokens, function + 3, &Token::Comma) {
        tokens.remove(function + 2);
    }
    let Some(close) = closing(tokens, function + 1) else { return };
    let descriptor = (function + 2..close).find(|at| {
        is(tokens, *at, "descriptor")
            && is_token(tokens, at + 1, &Token::LParen)
            && is_token(tokens, at + 3, &Token::RParen)
    });
    if let Some(at) = descriptor {
        tokens.remove(at + 3);
        tokens.drain(at..at + 2);
    }
    let Some(close) = closing(tokens, function + 1) else { return };
    let is_around = function >= 2
        && is(tokens, function - 2, "table")
        && is_token(tokens, function - 1, &Token::LParen)
        && is_token(tokens, close + 1, &Token::RParen);
    if is_around {
        tokens.remove(close + 1);
        tokens.drain(function - 2..function);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::text::tokens::{BEGINNING, tokenize};

    #[test]
    fn words_of_windows_are_taken_out() {
        for (sql, expected) in [
            (
                "SELECT * FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(at), INTERVAL '1 hour')) w",
                "SELECT * FROM TUMBLE(t, at, INTERVAL '1 hour') w",
            ),
            (
                "FROM TABLE ( HOP(TABLE \"T\", DESCRIPTOR(\"at\"), INTERVAL '1' MINUTE, INTERVAL '1' HOUR) )",
                "FROM HOP(\"T\", \"at\", INTERVAL '1' MINUTE, INTERVAL '1' HOUR)",
            ),
            ("FROM TUMBLE(t, at, INTERVAL '1 hour')", "FROM TUMBLE(t, at, INTERVAL '1 hour')"),
            ("FROM TUMBLE(table, at, INTERVAL '1 hour')", "FROM TUMBLE(table, at, INTERVAL '1 hour')"),
            ("SELECT tumble, descriptor(x) FROM f(TABLE t)", "SELECT tumble, descriptor(x) FROM f(TABLE t)"),
            ("FROM TUMBLE(TABLE t, DESCRIPTOR(a", "FROM TUMBLE(t, DESCRIPTOR(a"),
        ] {
            let mut tokens = tokenize(sql, BEGINNING).unwrap();
            take_descriptors(&mut tokens);
            let texts = |tokens: &[TokenWithSpan]| -> Vec<String> {
                tokens.iter().map(|token| token.token.to_string()).filter(|text| text.trim() != "").collect()
            };
            assert_eq!(texts(&tokens), texts(&tokenize(expected, BEGINNING).unwrap()), "{sql}");
        }
    }
}
