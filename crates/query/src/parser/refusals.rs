//! Unsupported clauses that the parser accepts: refused before anything runs, each with an alternative.
//!
//! | clause | reason to refuse it |
//! | --- | --- |
//! | FOR UPDATE, FOR SHARE, NOWAIT, SKIP LOCKED | the caller relies on rows locked against others |
//! | COLLATE of any order but that of the bytes | results would come in another order |
//! | ASOF JOIN with USING or NATURAL | its condition is a mark beside ON |
//! | WITH TIES without ORDER BY, or of NULL rows | all rows would be ties; PostgreSQL's errors |
//! | INTO of a SELECT within a statement | no table would be made |
//! | a window function in WHERE or HAVING | rows are filtered before they have windows |
//!
//! A cast to UUID checks its string, and returns it in lower case with hyphens ([`uuid_function`]).

use crate::error::{Error, Result, external};
use crate::parser::text::tokens::mentions;
use crate::parser::visit::walk;
use datafusion::arrow::array::{AsArray, StringArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::error::Result as DFResult;
use datafusion::logical_expr::{ColumnarValue, ScalarUDF, Volatility, create_udf};
use datafusion::sql::sqlparser::ast::{
    Expr, Join, JoinConstraint, JoinOperator, ObjectName, Query, Select, TableFactor, TableWithJoins,
    Value as Literal, Visit, Visitor,
};
use datafusion::sql::sqlparser::tokenizer::TokenWithSpan;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Words of which every statement with such a clause has at least one.
const WORDS: [&str; 5] = ["update", "share", "collate", "over", "ties"];
/// Collations in byte order, the only one supported.
const COLLATIONS: [&str; 6] = ["c", "posix", "default", "ucs_basic", "c.utf8", "c.utf-8"];
/// Name of the function for a cast to UUID.
pub(crate) const UUID: &str = "uuid_text";

/// Returns true if a statement of these tokens may have such a clause.
pub(crate) fn may_refuse(tokens: &[TokenWithSpan]) -> bool {
    mentions(tokens, &WORDS)
}

/// Refuses a tree that has such a clause anywhere.
pub(crate) fn check(tree: &impl Visit) -> Result<()> {
    match walk(tree, &mut Search) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// Refuses ASOF joins with USING or NATURAL anywhere in a tree.
pub(crate) fn check_joins(tree: &impl Visit) -> Result<()> {
    match walk(tree, &mut Joins) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// Refuses a tree of which a SELECT that is not the statement itself has INTO.
pub(crate) fn check_into(tree: &impl Visit) -> Result<()> {
    match walk(tree, &mut IntoClauses) {
        ControlFlow::Break(()) => Err(Error::coded("42601", "SELECT ... INTO is not allowed here")),
        ControlFlow::Continue(()) => Ok(()),
    }
}

struct IntoClauses;

impl Visitor for IntoClauses {
    type Break = ();

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        if select.into.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

struct Joins;

impl Joins {
    fn check(joined: &TableWithJoins) -> ControlFlow<Error> {
        let is_merging = |join: &Join| match &join.join_operator {
            JoinOperator::AsOf { constraint, .. } => {
                matches!(constraint, JoinConstraint::Using(_) | JoinConstraint::Natural)
            }
            _ => false,
        };
        if !joined.joins.iter().any(is_merging) {
            return ControlFlow::Continue(());
        }
        ControlFlow::Break(Error::unsupported("ASOF JOIN with USING or NATURAL: write ON with equalities"))
    }
}

impl Visitor for Joins {
    type Break = Error;

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<Error> {
        select.from.iter().try_for_each(Joins::check)
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<Error> {
        match factor {
            TableFactor::NestedJoin { table_with_joins, .. } => Joins::check(table_with_joins),
            _ => ControlFlow::Continue(()),
        }
    }
}

struct Search;

impl Visitor for Search {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Error> {
        match query.locks.first() {
            None => check_ties(query),
            Some(lock) => ControlFlow::Break(Error::unsupported(format!(
                "{lock}: rows are not locked. Use BEGIN ISOLATION LEVEL SERIALIZABLE and retry after an error 40001, or \
                 an UPDATE with the expected values in WHERE and a check of its row count"
            ))),
        }
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<Error> {
        let filters = [("WHERE", &select.selection), ("HAVING", &select.having)];
        match filters.into_iter().find(|(_, filter)| filter.as_ref().is_some_and(has_window)) {
            None => ControlFlow::Continue(()),
            Some((clause, _)) => {
                let message = format!(
                    "window functions are not allowed in {clause}: compute them in a subquery in FROM, and filter its rows"
                );
                ControlFlow::Break(Error::coded("42P20", message))
            }
        }
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<Error> {
        match expr {
            Expr::Collate { collation, .. } => check_collation(collation),
            _ => ControlFlow::Continue(()),
        }
    }
}

fn check_ties(query: &Query) -> ControlFlow<Error> {
    let Some(fetch) = query.fetch.as_ref().filter(|fetch| fetch.with_ties) else {
        return ControlFlow::Continue(());
    };
    let is_null = |rows: &Expr| matches!(rows, Expr::Value(value) if value.value == Literal::Null);
    if query.order_by.is_none() {
        let message = "WITH TIES cannot be specified without ORDER BY clause";
        ControlFlow::Break(Error::coded("42601", message))
    } else if fetch.quantity.as_ref().is_some_and(is_null) {
        let message = "row count cannot be null in FETCH FIRST ... WITH TIES clause";
        ControlFlow::Break(Error::coded("2201W", message))
    } else {
        ControlFlow::Continue(())
    }
}

/// Tells whether an expression has a window function outside of its subqueries.
fn has_window(expr: &Expr) -> bool {
    let mut search = Windows { depth: 0 };
    walk(expr, &mut search).is_break()
}

/// Search for window functions; `depth` is that of subqueries.
struct Windows {
    depth: usize,
}

impl Visitor for Windows {
    type Break = ();

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Function(function) if function.over.is_some() && self.depth == 0 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }
}

fn check_collation(collation: &ObjectName) -> ControlFlow<Error> {
    let name = collation.0.last().and_then(|part| part.as_ident()).map(|name| name.value.clone());
    let name = name.unwrap_or_default();
    if COLLATIONS.iter().any(|known| known.eq_ignore_ascii_case(&name)) {
        ControlFlow::Continue(())
    } else {
        ControlFlow::Break(Error::coded(
            "42704",
            format!(
                "collation \"{name}\" for encoding \"UTF8\" does not exist: strings are ordered by their bytes, \
                 COLLATE \"C\""
            ),
        ))
    }
}

/// `uuid_text(string)`: a UUID as PostgreSQL shows it; an error if the string is none.
pub(crate) fn uuid_function() -> ScalarUDF {
    let call = |arguments: &[ColumnarValue]| -> DFResult<ColumnarValue> {
        match arguments {
            [ColumnarValue::Scalar(ScalarValue::Utf8(text))] => {
                let uuid = text.as_deref().map(uuid).transpose()?;
                Ok(ColumnarValue::Scalar(ScalarValue::Utf8(uuid)))
            }
            [other] => {
                let array = other.to_array(1)?;
                let uuids = array.as_string::<i32>().iter().map(|text| text.map(uuid).transpose());
                Ok(ColumnarValue::Array(Arc::new(uuids.collect::<DFResult<StringArray>>()?)))
            }
            _ => datafusion::common::internal_err!("{UUID} expects a string"),
        }
    };
    create_udf(UUID, vec![DataType::Utf8], DataType::Utf8, Volatility::Immutable, Arc::new(call))
}

/// Parses 32 hexadecimal digits, with hyphens behind any four of them, in braces or not.
fn uuid(text: &str) -> DFResult<String> {
    let wrong = || external(Error::coded("22P02", format!("invalid input syntax for type uuid: \"{text}\"")));
    let inner = match text.strip_prefix('{') {
        Some(rest) => rest.strip_suffix('}').ok_or_else(wrong)?,
        None => text,
    };
    let mut digits = String::with_capacity(32);
    let mut hyphen = false;
    for c in inner.chars() {
        match c {
            '-' if !hyphen && !digits.is_empty() && digits.len().is_multiple_of(4) && digits.len() < 32 => {
                hyphen = true
            }
            c if c.is_ascii_hexdigit() => {
                digits.push(c.to_ascii_lowercase());
                hyphen = false;
            }
            _ => return Err(wrong()),
        }
    }
    if digits.len() != 32 {
        return Err(wrong());
    }
    let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
    Ok(parts.join("-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_have_one_text() {
        let expected = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
        for text in [
            expected,
            "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
            "{a0eebc99-9c0b4ef8-bb6d6bb9-bd380a11}",
            "a0eebc999c0b4ef8bb6d6bb9bd380a11",
        ] {
            assert_eq!(uuid(text).unwrap(), expected, "{text}");
        }
        for text in
            ["x", "", "{a0eebc999c0b4ef8bb6d6bb9bd380a11", "a0-eebc999c0b4ef8bb6d6bb9bd380a11", "a0ee--bc99"]
        {
            assert_eq!(crate::Error::from(uuid(text).unwrap_err()).sqlstate(), "22P02", "{text}");
        }
    }
}
