//! Fingerprints: statements that differ in their literals only have the same.
//!
//! `SELECT v FROM t WHERE id = 17` has the fingerprint `SELECT v FROM t WHERE id = $1`, and the literal 17.

use crate::parser::text::lexer::{Lexer, Token, TokenKind};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use std::fmt::Write;

/// Literal of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Literal {
    /// Digits; a sign before them is an operator.
    Integer(i64),
    /// String without its quotes.
    Text(String),
}

impl Literal {
    /// Value of exactly this type; `None` if the literal would have to be converted.
    pub fn value(&self, wanted: &DataType) -> Option<ScalarValue> {
        Some(match (self, wanted) {
            (Literal::Integer(value), DataType::Int64) => ScalarValue::Int64(Some(*value)),
            (Literal::Integer(value), DataType::Int32) => {
                ScalarValue::Int32(Some(i32::try_from(*value).ok()?))
            }
            (Literal::Text(text), DataType::Utf8) => ScalarValue::Utf8(Some(text.clone())),
            _ => return None,
        })
    }
}

/// Writes the fingerprint of a statement into `out`, and appends its literals. Returns false if it has parts
/// that are not replaced: comments, parameters, numbers that are no integers, literals of special forms.
pub fn fingerprint(sql: &str, out: &mut String, literals: &mut Vec<Literal>) -> bool {
    out.clear();
    let mut lexer = Lexer::default();
    // End of the copied part.
    let mut copied = 0;
    while let Some(token) = lexer.next(sql) {
        let Some(replaced) = literal(sql, token) else { return false };
        let Some(literal) = replaced else { continue };
        out.push_str(&sql[copied..token.start]);
        literals.push(literal);
        // Writing to a string does not fail.
        let _ = write!(out, "${}", literals.len());
        copied = token.end;
    }
    out.push_str(&sql[copied..]);
    true
}

/// Literal that is replaced; `None` if the token must not be in a statement with a fingerprint.
fn literal(sql: &str, token: Token) -> Option<Option<Literal>> {
    let text = &sql[token.start..token.end];
    match token.kind {
        _ if !token.closed => None,
        TokenKind::Comment
        | TokenKind::PrefixedString
        | TokenKind::DollarString
        | TokenKind::Parameter
        | TokenKind::Number
        | TokenKind::Symbol(b'$') => None,
        TokenKind::Integer => text.parse().ok().map(|value| Some(Literal::Integer(value))),
        TokenKind::String => {
            let inner = &text[1..text.len() - 1];
            let inner = if inner.contains('\'') { inner.replace("''", "'") } else { inner.to_owned() };
            Some(Some(Literal::Text(inner)))
        }
        TokenKind::Space | TokenKind::Word | TokenKind::QuotedName | TokenKind::Symbol(_) => Some(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(sql: &str) -> Option<(String, Vec<Literal>)> {
        let (mut out, mut literals) = (String::from("rest"), Vec::new());
        fingerprint(sql, &mut out, &mut literals).then_some((out, literals))
    }

    #[test]
    fn literals_become_parameters() {
        let (text, literals) =
            printed("SELECT v1 FROM \"t 2\" WHERE id=17 AND s = 'it''s ü' -7").unwrap_or_default();
        assert_eq!(text, "SELECT v1 FROM \"t 2\" WHERE id=$1 AND s = $2 -$3");
        let expected = [Literal::Integer(17), Literal::Text("it's ü".into()), Literal::Integer(7)];
        assert_eq!(literals, expected);
        assert_eq!(printed("'' 'ü'").unwrap_or_default().0, "$1 $2");
        assert_eq!(printed("SELECT a FROM t").unwrap_or_default().0, "SELECT a FROM t");
    }

    #[test]
    fn special_forms_are_left_alone() {
        for sql in [
            "SELECT 1.5",
            "SELECT .5",
            "SELECT 1e5",
            "SELECT 0x1F",
            "SELECT 1_000",
            "SELECT E'a'",
            "SELECT U&'a'",
            "SELECT $1",
            "SELECT $$a$$",
            "SELECT 1 -- x",
            "SELECT /* 'x */ 1",
            "SELECT 'open",
            "SELECT \"open",
            "SELECT 99999999999999999999",
        ] {
            assert_eq!(printed(sql), None, "{sql}");
        }
    }

    #[test]
    fn values_are_of_just_their_types() {
        assert_eq!(Literal::Integer(1 << 40).value(&DataType::Int32), None);
        assert_eq!(Literal::Integer(5).value(&DataType::Int32), Some(ScalarValue::Int32(Some(5))));
        assert_eq!(Literal::Integer(5).value(&DataType::Float64), None);
        assert_eq!(Literal::Text("5".into()).value(&DataType::Int64), None);
    }
}
