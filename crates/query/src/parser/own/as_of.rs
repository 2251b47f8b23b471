//! BEGIN and SET TRANSACTION with AS OF, and the point in time behind it.

use crate::error::{Error, Result};
use crate::parser::command::Command;
use crate::parser::refusals;
use crate::parser::rewriting::rewrite;
use crate::parser::sequence_calls;
use crate::parser::system_time::{SystemTimes, parse_time};
use crate::parser::text::tokens::{is_word, shown};
use datafusion::sql::sqlparser::ast::Expr;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

/// Parses a BEGIN, START or SET that has AS OF; `None` for others.
pub(crate) fn parse(tokens: &[TokenWithSpan]) -> Result<Option<Command>> {
    let is = |at: usize, wanted: &str| tokens.get(at).is_some_and(|token| is_word(&token.token, wanted));
    let begins = is(0, "begin") || is(0, "start");
    if !begins && !is(1, "transaction") {
        return Ok(None);
    }
    let at = 1 + usize::from(is(1, "transaction") || is(1, "work"));
    if !is(at, "as") || !is(at + 1, "of") {
        return Ok(None);
    }
    let first = if is(at + 2, "system") && is(at + 3, "time") {
        at + 4
    } else if is(at + 2, "transaction") {
        at + 2
    } else {
        return Ok(None);
    };
    let time = Box::new(point_in_time(&tokens[first..])?);
    Ok(Some(if begins { Command::BeginAsOf(time) } else { Command::SetAsOf(time) }))
}

/// Parses a point in time: an expression without columns, or `TRANSACTION n`.
fn point_in_time(written: &[TokenWithSpan]) -> Result<Expr> {
    let only = || {
        let words: Vec<&Token> = written.iter().map(|token| &token.token).collect();
        Error::Syntax(format!("syntax error: AS OF {}: expected a single point in time", shown(&words)))
    };
    if written.is_empty() {
        return Err(only());
    }
    let mut tokens = written.to_vec();
    rewrite(&mut tokens)?;
    let times = SystemTimes::take(&mut tokens)?;
    let (mut time, length) = parse_time(&tokens)?;
    if length < tokens.len() {
        return Err(only());
    }
    times.put(&mut time)?;
    refusals::check(&time)?;
    sequence_calls::without_regclass(&mut time);
    Ok(time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::statement::parse as parse_text;

    #[test]
    fn points_in_time_are_those_of_blocks() {
        let time = |sql: &str| match parse_text(sql).unwrap().pop() {
            Some(Command::BeginAsOf(time)) => Some(format!("begin {time}")),
            Some(Command::SetAsOf(time)) => Some(format!("set {time}")),
            _ => None,
        };
        for (sql, expected) in [
            ("BEGIN AS OF SYSTEM TIME '2026-01-01'", Some("begin '2026-01-01'")),
            (
                "begin transaction as of system time now() - interval '1 h';",
                Some("begin now() - INTERVAL '1 h'"),
            ),
            ("START TRANSACTION AS OF TRANSACTION 5", Some("begin transaction 5")),
            ("SELECT 'system'; SET TRANSACTION AS OF SYSTEM\nTIME $1", Some("set $1")),
            ("BEGIN TRANSACTION READ ONLY", None),
            ("SELECT 1 AS of, system.time FROM system", None),
        ] {
            assert_eq!(time(sql).as_deref(), expected, "{sql}");
        }
        for sql in ["BEGIN AS OF SYSTEM TIME", "BEGIN AS OF SYSTEM TIME 1, 2", "BEGIN AS OF TRANSACTION 5 6"]
        {
            let error = parse_text(sql).err().unwrap().to_string();
            assert!(error.contains("expected a single point in time"), "{sql}: {error}");
        }
    }
}
