//! Calls of `nextval` and its siblings in expressions, and the sequences that they name.

use crate::error::{Error, Result};
use crate::parser::names::table_name;
use crate::parser::visit::{visit_expressions, visit_expressions_mut};
use datafusion::sql::sqlparser::ast::{
    DataType as SqlType, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, ObjectName, Value as Literal,
    VisitMut,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::Token;
use std::ops::ControlFlow;

/// The name of a relation that is written as a text.
pub(crate) fn relation_name(text: &str) -> Result<String> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    if !text.is_empty() && text.bytes().all(plain) {
        return Ok(text.to_owned());
    }
    let invalid = || Error::coded("42602", format!("invalid name syntax: {text}"));
    let mut parser = Parser::new(&PostgreSqlDialect {}).try_with_sql(text).map_err(|_| invalid())?;
    let name = parser.parse_object_name(false).map_err(|_| invalid())?;
    match parser.peek_token().token {
        Token::EOF => table_name(&name),
        _ => Err(invalid()),
    }
}

/// Takes the cast out of `nextval('s'::regclass)` and its siblings, which is how PostgreSQL's tools write
/// them.
pub(crate) fn without_regclass(sql: &mut impl VisitMut) {
    let visited: ControlFlow<()> = visit_expressions_mut(sql, |expr| {
        if let Some(Expr::Cast { expr: inner, data_type: SqlType::Regclass, .. }) = sequence_argument(expr) {
            let inner = std::mem::replace(inner.as_mut(), Expr::Value(Literal::Null.into()));
            if let Some(argument) = sequence_argument(expr) {
                *argument = inner;
            }
        }
        ControlFlow::Continue(())
    });
    debug_assert!(visited.is_continue());
}

/// The argument of a call that says which sequence it is for.
fn sequence_argument(expr: &mut Expr) -> Option<&mut Expr> {
    let Expr::Function(function) = expr else { return None };
    if !is_on_sequence(&function.name) {
        return None;
    }
    let FunctionArguments::List(list) = &mut function.args else { return None };
    match list.args.first_mut()? {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)) => Some(argument),
        _ => None,
    }
}

fn is_on_sequence(name: &ObjectName) -> bool {
    let called = name.0.last().and_then(|part| part.as_ident()).map(|name| name.value.to_ascii_lowercase());
    called.is_some_and(|called| ["nextval", "currval", "setval"].contains(&called.as_str()))
}

/// The sequences that an expression names in `nextval` and its siblings.
pub(crate) fn sequences_in(expr: &Expr) -> Vec<String> {
    let mut names = Vec::new();
    let visited: ControlFlow<()> = visit_expressions(expr, |part| {
        names.extend(sequence_of(part));
        ControlFlow::Continue(())
    });
    debug_assert!(visited.is_continue());
    names
}

/// The sequence that a call names.
pub(crate) fn sequence_of(expr: &Expr) -> Option<String> {
    let Expr::Function(function) = expr else { return None };
    if !is_on_sequence(&function.name) {
        return None;
    }
    let FunctionArguments::List(list) = &function.args else { return None };
    let FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(name))) = list.args.first()? else {
        return None;
    };
    match &name.value {
        Literal::SingleQuotedString(name) => relation_name(name).ok(),
        _ => None,
    }
}

/// Sequence that a call of `nextval` or `setval` advances.
pub(crate) enum AdvancedSequence {
    Named(String),
    /// Its name is known at run time only.
    Computed,
}

/// Sequence that an expression advances, without its parts.
pub(crate) fn advanced_sequence(expr: &Expr) -> Option<AdvancedSequence> {
    let Expr::Function(function) = expr else { return None };
    let called = function.name.0.last()?.as_ident()?;
    if !["nextval", "setval"].iter().any(|name| called.value.eq_ignore_ascii_case(name)) {
        return None;
    }
    Some(sequence_of(expr).map_or(AdvancedSequence::Computed, AdvancedSequence::Named))
}

/// The text that names a sequence in a default which is nothing but `nextval('…')`.
pub(crate) fn sequence_of_default(default: &str) -> Option<&str> {
    let name = default.strip_prefix("nextval('")?.strip_suffix("')")?;
    (!name.contains('\'')).then_some(name)
}
