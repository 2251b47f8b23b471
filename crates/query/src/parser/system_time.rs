//! Points in time: `FROM t FOR SYSTEM_TIME AS OF time`, taken out of the tokens and put into the tree.
//!
//! The syntax is that of SQL:2011, also found in MariaDB, SQL Server and Db2; `TRANSACTION n` in place of a
//! time is MariaDB's. PostgreSQL has none, and sqlparser knows the clause for dialects only that reserve
//! names of PostgreSQL's (`FROM t at`). So the clauses are parsed here: sqlparser gets the statement without
//! them, and each time becomes the version of the table whose name stands where the name before the clause
//! was.

use crate::error::{Error, Result};
use crate::parser::depth::NESTING_MAX;
use crate::parser::text::tokens::{POSTGRESQL, is_word};
use crate::parser::visit::walk_mut;
use datafusion::sql::sqlparser::ast::{Expr, Ident, TableFactor, TableVersion, VisitMut, VisitorMut};
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan};
use std::ops::ControlFlow;

/// Maximum number of clauses of a statement; each time is computed before the statement is planned.
const CLAUSES_MAX: usize = 100;
/// Word in front of the number of a commit.
pub(crate) const TRANSACTION: &str = "transaction";
/// Clause in front of a time.
const CLAUSE: [&str; 4] = ["for", "system_time", "as", "of"];
/// Words before a relation that has no alias yet.
const BEFORE_RELATION: [&str; 7] = ["from", "join", "only", "lateral", "into", "update", "using"];

/// Times of a statement, by the places of the tables' names.
#[derive(Debug, Default)]
pub(crate) struct SystemTimes(Vec<(Location, Expr)>);

impl SystemTimes {
    /// Takes the clauses out of the tokens of a statement.
    pub(crate) fn take(tokens: &mut Vec<TokenWithSpan>) -> Result<SystemTimes> {
        let mut times = SystemTimes::default();
        if !tokens.iter().any(|token| is_word(&token.token, CLAUSE[1])) {
            return Ok(times);
        }
        // The last first: a time may be computed by a query that has another.
        for clause in (1..tokens.len()).rev() {
            let Some(table) = table_before(tokens, clause) else { continue };
            let first = clause + CLAUSE.len();
            if times.0.len() == CLAUSES_MAX {
                let message = format!("a statement has at most {CLAUSES_MAX} FOR SYSTEM_TIME");
                return Err(Error::coded("54001", message));
            }
            let (time, length) = parse_time(&tokens[first..])?;
            times.0.push((tokens[table].span.start, time));
            tokens.drain(clause..first + length);
        }
        Ok(times)
    }

    /// Puts the times into the tree that was parsed from the other tokens.
    pub(crate) fn put(self, tree: &mut impl VisitMut) -> Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        let mut putting = SystemTimeInserter(self);
        let visited: ControlFlow<()> = walk_mut(tree, &mut putting);
        debug_assert!(visited.is_continue());
        match putting.0.0.first() {
            None => Ok(()),
            Some((place, _)) => Err(Error::Syntax(format!(
                "syntax error: FOR SYSTEM_TIME is not behind a table at Line: {}, Column: {}",
                place.line, place.column
            ))),
        }
    }
}

struct SystemTimeInserter(SystemTimes);

impl VisitorMut for SystemTimeInserter {
    type Break = ();

    // Before its parts: the time may have a table with a time of its own.
    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table { name, version, .. } = factor
            && let Some(last) = name.0.last().and_then(|part| part.as_ident())
            && let Some(at) = self.0.0.iter().position(|(place, _)| *place == last.span.start)
        {
            *version = Some(TableVersion::ForSystemTimeAsOf(self.0.0.swap_remove(at).1));
        }
        ControlFlow::Continue(())
    }
}

/// Parses the time that tokens begin with; returns the number of its tokens, too.
pub(crate) fn parse_time(tokens: &[TokenWithSpan]) -> Result<(Expr, usize)> {
    let is_number = |token: &Token| matches!(token, Token::Number(..) | Token::Placeholder(_));
    let counts = matches!(tokens, [first, number, ..]
        if is_word(&first.token, TRANSACTION) && is_number(&number.token));
    let skipped = usize::from(counts);
    let mut parser = Parser::new(&POSTGRESQL)
        .with_recursion_limit(NESTING_MAX)
        .with_tokens_with_locations(tokens[skipped..].to_vec());
    let parsed = if counts { parser.parse_value().map(Expr::Value) } else { parser.parse_expr() };
    let mut time = parsed?;
    if counts {
        time = Expr::Prefixed { prefix: Ident::new(TRANSACTION), value: Box::new(time) };
    }
    Ok((time, skipped + parser.index()))
}

/// Position of the table's name before a clause that begins at `at`.
fn table_before(tokens: &[TokenWithSpan], at: usize) -> Option<usize> {
    let is = |at: usize, wanted: &str| tokens.get(at).is_some_and(|token| is_word(&token.token, wanted));
    let is_any_word = |at: usize| matches!(tokens.get(at).map(|token| &token.token), Some(Token::Word(_)));
    let begins = CLAUSE.iter().enumerate().all(|(part, word)| is(at + part, word));
    let last = at.checked_sub(1).filter(|&last| begins && is_any_word(last))?;
    let Some(before) = last.checked_sub(1) else { return Some(last) };
    if is(before, "as") {
        return before.checked_sub(1);
    }
    let is_alias = is_any_word(before) && !BEFORE_RELATION.iter().any(|word| is(before, word));
    Some(if is_alias { before } else { last })
}
