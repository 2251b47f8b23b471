//! Conditions on the strings of one column that are no set and no interval: `LIKE`, `NOT LIKE`, `<>`, `NOT IN`.
//!
//! A scan by columns checks them once for each entry of a dictionary, and otherwise where the string lies, before
//! anything else of the row is decoded. Patterns with `_` or an escape are left to the filter.

use crate::planner::scans::access::{AccessOrder, literal};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{BinaryExpr, Expr, Like, Operator};
use entresol_tables::{ColumnCondition, ColumnFilter, DataType, Value};
use memchr::memmem::Finder;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Condition on a text.
type TextCondition = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// Pattern whose only special character is `%`.
#[derive(Debug)]
struct Pattern {
    /// Beginning and end of the string, where they are asked for.
    prefix: String,
    suffix: String,
    /// Strings between them, in this order.
    inner: Vec<Finder<'static>>,
    /// True without a `%`: the string is the prefix.
    is_whole: bool,
}

impl Pattern {
    /// Pattern of LIKE; none if it has other special characters.
    fn of(pattern: &str) -> Option<Pattern> {
        if pattern.contains(['_', '\\']) {
            return None;
        }
        let Some((prefix, rest)) = pattern.split_once('%') else {
            let (prefix, suffix) = (pattern.to_owned(), String::new());
            return Some(Pattern { prefix, suffix, inner: Vec::new(), is_whole: true });
        };
        let (inner, suffix) = rest.rsplit_once('%').unwrap_or(("", rest));
        let inner = inner.split('%').filter(|piece| !piece.is_empty());
        let inner = inner.map(|piece| Finder::new(piece).into_owned()).collect();
        Some(Pattern { prefix: prefix.to_owned(), suffix: suffix.to_owned(), inner, is_whole: false })
    }

    fn matches(&self, text: &str) -> bool {
        if self.is_whole {
            return *text == *self.prefix;
        }
        let Some(rest) = text.strip_prefix(&*self.prefix) else { return false };
        let Some(rest) = rest.strip_suffix(&*self.suffix) else { return false };
        let mut rest = rest.as_bytes();
        // The first place of each is the best one: it leaves the most to those behind it.
        self.inner.iter().all(|piece| match piece.find(rest) {
            Some(at) => {
                rest = &rest[at + piece.needle().len()..];
                true
            }
            None => false,
        })
    }
}

/// Condition of a filter on a column of strings, if it is one of these.
pub(super) fn text_condition(by: &AccessOrder<'_>, filter: &Expr) -> Option<ColumnFilter> {
    let text_column = |expr: &Expr| {
        let (column, data_type) = by.column(expr)?;
        (data_type == DataType::Varchar).then_some(column)
    };
    let (column, condition): (usize, TextCondition) = match filter {
        Expr::Like(Like { negated, expr, pattern, escape_char: None, case_insensitive: false }) => {
            let Expr::Literal(ScalarValue::Utf8(Some(text)), _) = &**pattern else { return None };
            let (pattern, negated) = (Pattern::of(text)?, *negated);
            (text_column(expr)?, Arc::new(move |text| pattern.matches(text) != negated))
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::NotEq, right }) => {
            let (column, value) = match text_column(left) {
                Some(column) => (column, right),
                None => (text_column(right)?, left),
            };
            let Value::Varchar(value) = literal(value, DataType::Varchar)? else { return None };
            (column, Arc::new(move |text| *text != *value))
        }
        Expr::InList(InList { expr, list, negated: true }) => {
            let column = text_column(expr)?;
            // A NULL in the list lets no row pass: left to the filter.
            let values = list.iter().map(|item| match literal(item, DataType::Varchar) {
                Some(Value::Varchar(value)) => Some(value),
                _ => None,
            });
            let values: BTreeSet<Box<str>> = values.collect::<Option<_>>()?;
            (column, Arc::new(move |text| !values.contains(text)))
        }
        _ => return None,
    };
    Some(ColumnFilter { column, condition: ColumnCondition::Texts(condition) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn like(pattern: &str, text: &str) -> bool {
        Pattern::of(pattern).unwrap().matches(text)
    }

    #[test]
    fn patterns_match_as_like_does() {
        for (pattern, text) in [
            ("%", ""),
            ("", ""),
            ("ab", "ab"),
            ("ab%", "ab"),
            ("%ab", "ab"),
            ("%b%", "abc"),
            ("a%a", "aa"),
            ("%special%requests%", "very special, early requests"),
            ("%aa%a%", "xaaa"),
            ("%ä%", "Bär"),
            ("a%%b", "ab"),
        ] {
            assert!(like(pattern, text), "{text} LIKE {pattern}");
        }
        for (pattern, text) in [
            ("", "a"),
            ("ab", "abc"),
            ("a%a", "a"),
            ("%aa%aa%", "xaaay"),
            ("%special%requests%", "requests that are special"),
            ("%ab%", "a b"),
            ("b%", "ab"),
        ] {
            assert!(!like(pattern, text), "{text} NOT LIKE {pattern}");
        }
        assert!(Pattern::of("a_").is_none() && Pattern::of("a\\%").is_none());
    }
}
