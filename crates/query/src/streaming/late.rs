//! LATE ROWS of a step: what happens to rows whose window is closed; and EMIT beside it ([`super::emission`]).
//!
//! | clause | late rows |
//! | --- | --- |
//! | DROP, or none | are counted |
//! | INTO table | are counted, and stored |
//! | UPDATE FOR interval | correct the results of their window, for so long; later ones are counted, and stored with INTO too |

use crate::error::{Error, Result};
use crate::parser::durations::{interval, invalid};
use crate::parser::own::words::Words;
use crate::parser::text::tokens::is_word;
use crate::streaming::emission::Emit;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use std::time::Duration;

/// Treatment of late rows.
#[derive(Debug, Clone, Default)]
pub(crate) struct LateClauses {
    /// Table that they are stored in.
    pub(crate) table: Option<String>,
    /// Time behind the end of a window in which they correct its results.
    pub(crate) corrected_for: Option<Duration>,
    /// The first clause of the step, as it is written.
    pub(crate) clause: Option<&'static str>,
    /// Occasion at which results are sent.
    pub(crate) emit: Emit,
}

impl LateClauses {
    /// True if there is a clause that needs an operator with late rows.
    pub(crate) fn is_there(&self) -> bool {
        self.table.is_some() || self.corrected_for.is_some()
    }

    /// Text for EXPLAIN of an operator that they correct.
    pub(crate) fn describe(&self, operator: &str) -> String {
        match self.corrected_for {
            None => operator.to_owned(),
            Some(time) => format!("{operator}, corrected by rows that are up to {time:?} late"),
        }
    }

    /// Takes a clause behind LATE ROWS at the beginning of tokens; returns their number, 0 if it is none.
    fn take(&mut self, clause: &[TokenWithSpan]) -> Result<usize> {
        if begins(clause, &["drop"]) {
            return Ok(1);
        }
        if begins(clause, &["into"])
            && matches!(clause.get(1).map(|token| &token.token), Some(Token::Word(_)))
        {
            let tokens: Vec<&Token> = clause.iter().map(|token| &token.token).collect();
            let mut words = Words(&tokens[1..]);
            self.table = Some(words.relation()?);
            return Ok(clause.len() - words.0.len());
        }
        if begins(clause, &["update", "for", "interval"])
            && let Some(Token::SingleQuotedString(text)) = clause.get(3).map(|token| &token.token)
        {
            let time = interval("LATE ROWS UPDATE FOR", text)?;
            if time.is_zero() {
                return Err(invalid("LATE ROWS UPDATE FOR", text));
            }
            self.corrected_for = Some(time);
            return Ok(4);
        }
        Ok(0)
    }
}

/// Tells whether tokens begin with these words.
fn begins(tokens: &[TokenWithSpan], words: &[&str]) -> bool {
    words.iter().enumerate().all(|(at, word)| tokens.get(at).is_some_and(|token| is_word(&token.token, word)))
}

/// Place of the first clause behind the query of a step.
fn first_clause(tokens: &[TokenWithSpan]) -> Option<usize> {
    let mut depth = 0_i32;
    for (at, token) in tokens.iter().enumerate() {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ => {}
        }
        let rest = &tokens[at..];
        let is_clause = begins(rest, &["emit", "on"])
            || begins(rest, &["emit", "changes"])
            || begins(rest, &["late", "rows"]);
        if depth == 0 && is_clause {
            return Some(at);
        }
    }
    None
}

/// Takes EMIT and LATE ROWS off the end of a step.
pub(crate) fn take_clauses(tokens: &mut Vec<TokenWithSpan>) -> Result<LateClauses> {
    let mut late = LateClauses::default();
    let Some(found) = first_clause(tokens) else { return Ok(late) };
    let clauses = tokens.split_off(found);
    let mut rest = clauses.as_slice();
    while !rest.is_empty() {
        let taken = if begins(rest, &["emit"]) {
            let taken = late.emit.take(rest)?;
            if late.emit == Emit::WindowClose {
                late.clause.get_or_insert("EMIT ON WINDOW CLOSE");
            }
            taken
        } else if begins(rest, &["late", "rows"]) {
            late.clause.get_or_insert("LATE ROWS");
            let of_late = late.take(&rest[2..])?;
            if of_late == 0 { 0 } else { of_late + 2 }
        } else {
            0
        };
        if taken == 0 {
            let text: Vec<String> = rest.iter().map(|token| token.token.to_string()).collect();
            return Err(Error::unsupported(format!(
                "{}: there are EMIT ON WINDOW CLOSE, EMIT CHANGES [EVERY INTERVAL '...'], EMIT ON COMMIT, LATE ROWS DROP, LATE ROWS INTO table and LATE ROWS UPDATE FOR INTERVAL '...'",
                text.join(" ")
            )));
        }
        rest = &rest[taken..];
    }
    Ok(late)
}
