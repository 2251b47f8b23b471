//! Numbers as in PostgreSQL that sqlparser's tokens do not have: `0x1F`, `0o17`, `0b101`, `1_000_000`.
//!
//! sqlparser takes `0x1F` for the bytes `X'1F'`, and `0b101` for a zero with an alias. They become decimal numbers here, each at
//! its place in the text. Underscores stand between digits; other letters behind such a number are an error (42601).

use crate::error::{Error, Result};
use datafusion::sql::sqlparser::tokenizer::{Span, Token, TokenWithSpan};

/// Rewrites integers of another base and numbers with underscores.
pub(super) fn rewrite(tokens: &mut Vec<TokenWithSpan>) -> Result<()> {
    let mut at = 0;
    while at < tokens.len() {
        let (number, taken) = match &tokens[at].token {
            // `0x` before the digits, not `X'` and `'` around them.
            Token::HexStringLiteral(digits)
                if width(tokens[at].span) == digits.chars().count() as u64 + 2 =>
            {
                let behind = tokens.get(at + 1).and_then(|next| word_behind(tokens[at].span, next));
                (integer('x', &format!("{digits}{}", behind.unwrap_or_default()))?, 1)
            }
            Token::Number(text, _) if text == "0" => {
                let behind = tokens.get(at + 1).and_then(|next| word_behind(tokens[at].span, next));
                match behind.and_then(base_of) {
                    Some((base, digits)) => (integer(base, digits)?, 2),
                    None => (text.clone(), 1),
                }
            }
            Token::Number(text, _) if text.contains('_') => {
                let behind = tokens.get(at + 1).and_then(|next| word_behind(tokens[at].span, next));
                if behind.is_some() || text.ends_with('_') {
                    return Err(junk(&format!("{text}{}", behind.unwrap_or_default())));
                }
                (text.replace('_', ""), 1)
            }
            _ => {
                at += 1;
                continue;
            }
        };
        if taken == 2 {
            let end = tokens.remove(at + 1).span.end;
            tokens[at].span = Span::new(tokens[at].span.start, end);
        }
        let is_long = matches!(&tokens[at].token, Token::Number(_, true));
        tokens[at].token = Token::Number(number, is_long);
        at += 1;
    }
    Ok(())
}

/// Number of characters of a token within a line.
fn width(span: Span) -> u64 {
    span.end.column.saturating_sub(span.start.column)
}

/// Word without quotes that follows a token without a blank.
fn word_behind(span: Span, next: &TokenWithSpan) -> Option<&str> {
    match &next.token {
        Token::Word(word) if word.quote_style.is_none() && next.span.start == span.end => Some(&word.value),
        _ => None,
    }
}

/// Letter of the base and the digits of a word behind a zero.
fn base_of(word: &str) -> Option<(char, &str)> {
    let base = word.chars().next()?.to_ascii_lowercase();
    "xob".contains(base).then(|| (base, &word[1..]))
}

fn junk(text: &str) -> Error {
    Error::coded("42601", format!("syntax error: trailing junk after numeric literal at or near \"{text}\""))
}

/// Decimal text of an integer of another base.
fn integer(base: char, digits: &str) -> Result<String> {
    let (radix, name) = match base {
        'x' => (16, "hexadecimal"),
        'o' => (8, "octal"),
        _ => (2, "binary"),
    };
    let written = format!("0{base}{digits}");
    let mut value: u128 = 0;
    let mut is_digit_before = true;
    for letter in digits.chars() {
        if letter == '_' && is_digit_before {
            is_digit_before = false;
            continue;
        }
        let Some(digit) = letter.to_digit(radix) else {
            return Err(match value {
                0 => invalid(name, &written),
                _ => junk(&written),
            });
        };
        let next =
            value.checked_mul(u128::from(radix)).and_then(|value| value.checked_add(u128::from(digit)));
        value = next.ok_or_else(|| Error::coded("22003", format!("number out of range: {written}")))?;
        is_digit_before = true;
    }
    if digits.is_empty() || !is_digit_before {
        return Err(invalid(name, &written));
    }
    Ok(value.to_string())
}

fn invalid(name: &str, written: &str) -> Error {
    Error::coded("42601", format!("syntax error: invalid {name} integer at or near \"{written}\""))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::parser::text::tokens::{BEGINNING, tokenize};

    fn shown(sql: &str) -> Result<String, String> {
        let tokens = tokenize(sql, BEGINNING).map_err(|error| error.to_string())?;
        Ok(tokens.iter().map(|token| token.token.to_string()).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn integers_of_any_base_are_numbers() {
        for (sql, expected) in [
            ("SELECT 0x1F, 0X1f, 0o17, 0O17, 0b101, 0B101", "SELECT 31 , 31 , 15 , 15 , 5 , 5"),
            ("SELECT 1_000_000, 0xFFFF_FFFF, 0b_1_0, 1_0.5_0", "SELECT 1000000 , 4294967295 , 2 , 10.50"),
            ("SELECT X'1F', x'', 0 b101, 10, 0 AS x", "SELECT X'1F' , X'' , 0 b101 , 10 , 0 AS x"),
            ("SELECT 'a', -0x7FFFFFFFFFFFFFFF", "SELECT 'a' , - 9223372036854775807"),
        ] {
            assert_eq!(shown(sql).unwrap(), expected, "{sql}");
        }
        for (sql, expected) in [
            ("SELECT 0b", "invalid binary integer at or near \"0b\""),
            ("SELECT 0b2", "invalid binary integer at or near \"0b2\""),
            ("SELECT 0xG", "invalid hexadecimal integer at or near \"0xG\""),
            ("SELECT 0x1G", "trailing junk after numeric literal at or near \"0x1G\""),
            ("SELECT 0b1_", "invalid binary integer"),
            ("SELECT 1_000_", "trailing junk after numeric literal at or near \"1_000_\""),
            (&format!("SELECT 0x{}", "F".repeat(33)), "number out of range"),
        ] {
            let error = shown(sql).unwrap_err();
            assert!(error.contains(expected), "{sql}: {error}");
        }
    }
}
