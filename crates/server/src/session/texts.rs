//! Statements of the simple protocol that differ in their literals only: parsed once, run with the literals as values.
//!
//! `SELECT v FROM t WHERE id = 17` has the fingerprint `SELECT v FROM t WHERE id = $1`. Parsing is most of the cost of
//! such a statement, and clients that do not prepare send thousands of the same fingerprint.
//!
//! # Invariants
//!
//! - Only statements of the fast path, which need no planning, are cached ([`Session::prepare_short`]), and only if
//!   each literal is exactly of its parameter's type. So a statement means what its text means; all others are parsed
//!   as usual.
//! - A fingerprint that was parsed at another version of the catalog is parsed again.
//!
//! Memory: [`SHAPES_MAX`] fingerprints of at most [`SHAPE_BYTES_MAX`] bytes; the least recently used one is evicted.

use std::collections::HashMap;

use entresol::arrow::datatypes::DataType;
use entresol::query::datafusion::common::ScalarValue;
use entresol::query::{Prepared, Session};

/// Maximum number of fingerprints of a connection.
const SHAPES_MAX: usize = 128;
/// Maximum bytes of a statement that is fingerprinted.
const SHAPE_BYTES_MAX: usize = 1024;

/// The fingerprints of a connection.
#[derive(Debug, Default)]
pub(super) struct Texts {
    shapes: HashMap<String, Shape>,
    /// Counts statements.
    clock: u64,
    /// The fingerprint of the last statement, and its literals.
    text: String,
    literals: Vec<Literal>,
}

#[derive(Debug)]
struct Shape {
    /// `None`: it is not of the fast path.
    prepared: Option<Prepared>,
    /// The version of the catalog.
    version: u64,
    used: u64,
}

/// A literal of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Literal {
    Integer(i64),
    Text(String),
}

impl Texts {
    /// The prepared statement for a query text, with its values; `None` if there is none.
    pub(super) fn find(&mut self, session: &mut Session, sql: &str) -> Option<(Prepared, Vec<ScalarValue>)> {
        self.literals.clear();
        if sql.len() > SHAPE_BYTES_MAX || !shape(sql, &mut self.text, &mut self.literals) {
            return None;
        }
        self.clock += 1;
        let version = session.catalog().version();
        let known = self.shapes.get_mut(&self.text).filter(|known| known.version == version);
        let prepared = match known {
            Some(known) => {
                known.used = self.clock;
                known.prepared.clone()?
            }
            None => {
                let prepared = session.prepare_short(&self.text);
                self.keep(Shape { prepared: prepared.clone(), version, used: self.clock });
                prepared?
            }
        };
        let types = prepared.parameters();
        if types.len() != self.literals.len() {
            return None;
        }
        let values = self.literals.iter().zip(types).map(|(literal, wanted)| literal.exactly(wanted));
        let values = values.collect::<Option<Vec<_>>>()?;
        Some((prepared, values))
    }

    fn keep(&mut self, shape: Shape) {
        if self.shapes.len() >= SHAPES_MAX && !self.shapes.contains_key(&self.text) {
            let oldest = self.shapes.iter().min_by_key(|(_, shape)| shape.used);
            if let Some(oldest) = oldest.map(|(text, _)| text.clone()) {
                self.shapes.remove(&oldest);
            }
        }
        self.shapes.insert(self.text.clone(), shape);
    }
}

impl Literal {
    /// The value of just this type.
    fn exactly(&self, wanted: &DataType) -> Option<ScalarValue> {
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

/// Writes the fingerprint of a statement into `out`, and its literals; false if it has unsupported parts: comments,
/// parameters, numbers that are no integers, literals of special forms.
fn shape(sql: &str, out: &mut String, literals: &mut Vec<Literal>) -> bool {
    out.clear();
    let bytes = sql.as_bytes();
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$') || byte >= 0x80;
    let mut at = 0;
    // End of the copied part.
    let mut copied = 0;
    while at < bytes.len() {
        let next = bytes.get(at + 1).copied();
        match bytes[at] {
            b'\'' => {
                // E'…', B'…', U&'…' have rules of their own.
                if at > 0 && (is_word(bytes[at - 1]) || bytes[at - 1] == b'&') {
                    return false;
                }
                let Some((text, end)) = quoted(sql, at) else { return false };
                out.push_str(&sql[copied..at]);
                literals.push(Literal::Text(text));
                push_parameter(out, literals.len());
                (at, copied) = (end, end);
            }
            b'"' => match sql[at + 1..].find('"') {
                Some(length) => at += length + 2,
                None => return false,
            },
            b'$' => return false,
            b'-' if next == Some(b'-') => return false,
            b'/' if next == Some(b'*') => return false,
            b'0'..=b'9' => {
                let length = bytes[at..].iter().position(|byte| !byte.is_ascii_digit());
                let end = length.map_or(bytes.len(), |length| at + length);
                let joined = |byte: &u8| is_word(*byte) || *byte == b'.';
                if bytes.get(end).is_some_and(joined) || (at > 0 && bytes[at - 1] == b'.') {
                    return false;
                }
                let Ok(value) = sql[at..end].parse() else { return false };
                out.push_str(&sql[copied..at]);
                literals.push(Literal::Integer(value));
                push_parameter(out, literals.len());
                (at, copied) = (end, end);
            }
            byte if is_word(byte) => {
                let length = bytes[at..].iter().position(|&byte| !is_word(byte));
                at = length.map_or(bytes.len(), |length| at + length);
            }
            _ => at += 1,
        }
    }
    out.push_str(&sql[copied..]);
    true
}

/// Fingerprints a text, for fuzzers: its parts were in it.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) fn fuzz_shape(sql: &str) {
    let (mut out, mut literals) = (String::new(), Vec::new());
    if shape(sql, &mut out, &mut literals) {
        // A parameter may be longer than its literal: $1 for 7.
        assert!(out.len() <= sql.len() + literals.len() * 5, "{sql}");
    }
}

fn push_parameter(out: &mut String, number: usize) {
    use std::fmt::Write;
    // Writing to a string does not fail.
    let _ = write!(out, "${number}");
}

/// The string of the quoted literal at `start`, and its end.
fn quoted(sql: &str, start: usize) -> Option<(String, usize)> {
    let mut text = String::new();
    let mut at = start + 1;
    loop {
        let length = sql[at..].find('\'')?;
        text.push_str(&sql[at..at + length]);
        at += length + 1;
        if !sql[at..].starts_with('\'') {
            return Some((text, at));
        }
        text.push('\'');
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shaped(sql: &str) -> Option<(String, Vec<Literal>)> {
        let (mut out, mut literals) = (String::from("rest"), Vec::new());
        shape(sql, &mut out, &mut literals).then_some((out, literals))
    }

    #[test]
    fn literals_become_parameters() {
        let (text, literals) =
            shaped("SELECT v1 FROM \"t 2\" WHERE id=17 AND s = 'it''s ü' -7").unwrap_or_default();
        assert_eq!(text, "SELECT v1 FROM \"t 2\" WHERE id=$1 AND s = $2 -$3");
        let expected = [Literal::Integer(17), Literal::Text("it's ü".into()), Literal::Integer(7)];
        assert_eq!(literals, expected);
        assert_eq!(shaped("'' 'ü'").unwrap_or_default().0, "$1 $2");
        assert_eq!(shaped("SELECT a FROM t").unwrap_or_default().0, "SELECT a FROM t");
    }

    #[test]
    fn what_has_rules_of_its_own_is_left_alone() {
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
            assert_eq!(shaped(sql), None, "{sql}");
        }
    }

    #[test]
    fn values_are_of_just_their_types() {
        assert_eq!(Literal::Integer(1 << 40).exactly(&DataType::Int32), None);
        assert_eq!(Literal::Integer(5).exactly(&DataType::Int32), Some(ScalarValue::Int32(Some(5))));
        assert_eq!(Literal::Integer(5).exactly(&DataType::Float64), None);
        assert_eq!(Literal::Text("5".into()).exactly(&DataType::Int64), None);
    }
}
