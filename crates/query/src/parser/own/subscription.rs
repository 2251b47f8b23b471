//! SUBSCRIBE: the changes of relations as they are committed.
//!
//! ```text
//! SUBSCRIBE [TO] {relation | (relation, ...) | (query)}
//!     [WITH (SNAPSHOT [= bool], PROGRESS [= bool])] [AS OF time] [UP TO time]
//! ```
//! A time is the timestamp of a commit, as `commit_cts` shows it, a time in quotes, or `now()`.

use crate::error::{Error, Result};
use crate::parser::own::streaming::{options_of, parenthesised};
use crate::parser::text::tokens::{BEGINNING, is_word, tokenize};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use entresol_transactions::Timestamp;

/// Name of the function in FROM by which a subscription is planned.
pub(crate) const SUBSCRIBE: &str = "subscribe";

/// Time behind which a subscription begins, or at which it ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CommitTime {
    /// Timestamp of a commit.
    Commit(Timestamp),
    /// Time in quotes; without a zone it is in that of the session.
    Quoted(String),
    /// `now()`: the last commit when the subscription begins.
    Now,
}

/// Parsed SUBSCRIBE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Subscription {
    /// Names of the relations; none of a query.
    pub(crate) relations: Vec<String>,
    /// Query, if it is to one.
    pub(crate) query: Option<String>,
    /// True if the relations stand in parentheses: the rows of all have the same columns.
    pub(crate) is_list: bool,
    /// True if it begins with the rows that are there.
    pub(crate) snapshot: bool,
    /// True if it says up to which timestamp it is complete.
    pub(crate) progress: bool,
    /// Time behind which it begins.
    pub(crate) after: Option<CommitTime>,
    /// Time at which it ends.
    pub(crate) up_to: Option<CommitTime>,
}

fn wrong(expected: &str) -> Error {
    Error::Syntax(format!("syntax error: SUBSCRIBE: expected {expected}"))
}

fn is(tokens: &[TokenWithSpan], at: usize, word: &str) -> bool {
    tokens.get(at).is_some_and(|token| is_word(&token.token, word))
}

impl Subscription {
    /// Parses the statement.
    pub(crate) fn parse(text: &str) -> Result<Subscription> {
        let tokens = tokenize(text, BEGINNING)?;
        let mut rest = tokens.get(1..).unwrap_or_default();
        if is(rest, 0, "to") {
            rest = &rest[1..];
        }
        let is_list = rest.first().is_some_and(|token| token.token == Token::LParen);
        let mut query = None;
        let relations = if is_list {
            let (body, behind) = parenthesised(rest)?;
            rest = behind;
            query = query_of(body);
            let body = if query.is_some() { &[] } else { body };
            body.split(|token| token.token == Token::Comma)
                .filter(|_| query.is_none())
                .map(relation)
                .collect::<Result<Vec<_>>>()?
        } else {
            let length = rest
                .iter()
                .position(|token| ["with", "as", "up"].iter().any(|word| is_word(&token.token, word)))
                .unwrap_or(rest.len());
            let (name, behind) = rest.split_at(length);
            rest = behind;
            vec![relation(name)?]
        };
        if let Some((at, twice)) =
            relations.iter().enumerate().find(|(at, name)| relations[..*at].contains(name))
        {
            let message =
                format!("SUBSCRIBE names \"{twice}\" twice, the second time as relation {}", at + 1);
            return Err(Error::coded("42712", message));
        }
        let mut parsed = Subscription {
            relations,
            is_list: is_list && query.is_none(),
            query,
            snapshot: true,
            progress: false,
            after: None,
            up_to: None,
        };
        if is(rest, 0, "with") {
            let (body, behind) = parenthesised(&rest[1..])?;
            parsed.options(body)?;
            rest = behind;
        }
        if is(rest, 0, "as") && is(rest, 1, "of") {
            let (after, behind) = commit_time(&rest[2..])?;
            (parsed.after, rest) = (Some(after), behind);
        }
        if is(rest, 0, "up") && is(rest, 1, "to") {
            let (up_to, behind) = commit_time(&rest[2..])?;
            (parsed.up_to, rest) = (Some(up_to), behind);
        }
        match rest {
            [] => Ok(parsed),
            [token, ..] => Err(Error::Syntax(format!("syntax error at or near \"{}\"", token.token))),
        }
    }

    fn options(&mut self, body: &[TokenWithSpan]) -> Result<()> {
        for option in body.split(|token| token.token == Token::Comma) {
            let value = match option {
                [_] => true,
                [_, rest @ ..] => match options_of(option)?.pop().map(|(_, value)| value.to_lowercase()) {
                    Some(value) if ["true", "on", "1"].contains(&value.as_str()) => true,
                    Some(value) if ["false", "off", "0"].contains(&value.as_str()) => false,
                    _ => {
                        let text: Vec<String> = rest.iter().map(|token| token.token.to_string()).collect();
                        return Err(wrong(&format!("true or false, not \"{}\"", text.join(" "))));
                    }
                },
                [] => return Err(wrong("an option")),
            };
            match option {
                [name, ..] if is_word(&name.token, "snapshot") => self.snapshot = value,
                [name, ..] if is_word(&name.token, "progress") => self.progress = value,
                [name, ..] => {
                    let message = format!("unrecognized option \"{}\" of SUBSCRIBE", name.token);
                    return Err(Error::coded("22023", message));
                }
                [] => {}
            }
        }
        Ok(())
    }
}

/// Text of a query in the parentheses; none if they list relations.
fn query_of(body: &[TokenWithSpan]) -> Option<String> {
    let begins = ["select", "with", "values"].iter().any(|word| is(body, 0, word))
        || body.first().is_some_and(|token| token.token == Token::LParen);
    let words = body.iter().map(|token| token.token.to_string());
    begins.then(|| words.collect::<Vec<String>>().join(" "))
}

/// Name of a relation, perhaps behind `public`.
fn relation(tokens: &[TokenWithSpan]) -> Result<String> {
    let word = |token: &TokenWithSpan| match &token.token {
        Token::Word(word) if word.quote_style.is_some() => Some(word.value.clone()),
        Token::Word(word) => Some(word.value.to_lowercase()),
        _ => None,
    };
    match tokens {
        [name] => word(name),
        [schema, dot, name] if is_word(&schema.token, "public") && dot.token == Token::Period => word(name),
        _ => None,
    }
    .ok_or_else(|| wrong("the name of a table"))
}

/// Takes a time; returns the tokens behind it.
fn commit_time(tokens: &[TokenWithSpan]) -> Result<(CommitTime, &[TokenWithSpan])> {
    let next = |at: usize| tokens.get(at).map(|token| &token.token);
    if is(tokens, 0, "now") && next(1) == Some(&Token::LParen) && next(2) == Some(&Token::RParen) {
        return Ok((CommitTime::Now, &tokens[3..]));
    }
    let time = match next(0) {
        Some(Token::Number(digits, _)) => digits.parse().ok().map(CommitTime::Commit),
        Some(Token::SingleQuotedString(quoted)) => Some(CommitTime::Quoted(quoted.clone())),
        _ => None,
    };
    let time = time.ok_or_else(|| wrong("the timestamp of a commit, a time in quotes or now()"))?;
    Ok((time, &tokens[1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(relations: &[&str]) -> Subscription {
        Subscription {
            relations: relations.iter().map(|name| (*name).to_owned()).collect(),
            query: None,
            is_list: false,
            snapshot: true,
            progress: false,
            after: None,
            up_to: None,
        }
    }

    #[test]
    fn subscriptions_are_parsed() {
        let parse = |text: &str| Subscription::parse(text).unwrap();
        assert_eq!(parse("SUBSCRIBE alarms"), plain(&["alarms"]));
        assert_eq!(parse("subscribe to public.\"Alarms\""), plain(&["Alarms"]));
        assert_eq!(
            parse("SUBSCRIBE TO (Alarms, balance) WITH (SNAPSHOT = false, PROGRESS) AS OF 17 UP TO 99"),
            Subscription {
                is_list: true,
                snapshot: false,
                progress: true,
                after: Some(CommitTime::Commit(Timestamp::from_stored(17))),
                up_to: Some(CommitTime::Commit(Timestamp::from_stored(99))),
                ..plain(&["alarms", "balance"])
            }
        );
        let query = parse("SUBSCRIBE TO (SELECT a + 1 FROM t WHERE b > 'x, y') WITH (PROGRESS) UP TO 9");
        let text = "SELECT a + 1 FROM t WHERE b > 'x, y'".to_owned();
        let up_to = Some(CommitTime::Commit(Timestamp::from_stored(9)));
        assert_eq!(query, Subscription { query: Some(text), progress: true, up_to, ..plain(&[]) });
        let at = parse("SUBSCRIBE t AS OF '1970-01-01 00:00:01'");
        assert_eq!(at.after, Some(CommitTime::Quoted("1970-01-01 00:00:01".to_owned())));
        let from_now = parse("SUBSCRIBE t AS OF now() UP TO 9");
        assert_eq!((from_now.after, from_now.up_to), (Some(CommitTime::Now), query.up_to));
    }

    #[test]
    fn what_is_no_subscription_is_refused_by_name() {
        for (text, expected) in [
            ("SUBSCRIBE", "expected the name of a table"),
            ("SUBSCRIBE TO (SELECT 1), t", "syntax error at or near \",\""),
            ("SUBSCRIBE TO (a, b, a)", "names \"a\" twice"),
            ("SUBSCRIBE t WITH (PROGRESS = maybe)", "true or false, not \"= maybe\""),
            ("SUBSCRIBE t WITH (LIMIT = 1)", "unrecognized option \"LIMIT\""),
            ("SUBSCRIBE t AS OF yesterday", "expected the timestamp of a commit"),
            ("SUBSCRIBE t UP TO 7 8", "syntax error at or near \"8\""),
        ] {
            let error = Subscription::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
