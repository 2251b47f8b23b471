//! Statements that DataFusion's parser does not know: split off from a query text before it is parsed.
//!
//! ```text
//! BACKUP TO 'directory'
//! VACUUM                                                              PostgreSQL's forms: crate::ddl::vacuum
//! BEGIN [TRANSACTION] AS OF {SYSTEM TIME moment | TRANSACTION n}      CockroachDB's words; SET TRANSACTION too
//! ALTER TABLE t RESET (history)                                       PostgreSQL's; the parser knows SET
//! CREATE SEQUENCE, ALTER SEQUENCE                                     options in any order: crate::parser::sequence
//! ... AS IDENTITY (options)                                           put in the order that the parser knows
//! FETCH, MOVE                                                         all of PostgreSQL's forms: crate::parser::fetch
//! TABLE t, FROM t a FOR SYSTEM_TIME AS OF moment                      in other words: crate::parser::respelling
//! ABORT                                                               PostgreSQL's: ROLLBACK
//! ANALYZE VERBOSE                                                     without VERBOSE: there is nothing to report
//! ```

use std::path::PathBuf;

use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer};

use crate::error::{Error, Result};
use crate::parser::fetch::{self, CursorMotion};
use crate::parser::respelling::respelled;
use crate::parser::sequence::{self, SequenceStatement};
use crate::parser::vacuum::Vacuum;
use crate::parser::words::has_word;

/// QueryPart of a query text.
#[derive(Debug)]
pub(crate) enum QueryPart {
    /// Statements for DataFusion's parser.
    Sql(String),
    /// Directory of a BACKUP TO.
    Backup(PathBuf),
    /// VACUUM statement.
    Vacuum(Vacuum),
    /// Point in time of a BEGIN AS OF, as written.
    BeginAsOf(String),
    /// Point in time of a SET TRANSACTION AS OF, as written.
    SetAsOf(String),
    /// CREATE SEQUENCE or ALTER SEQUENCE statement.
    Sequence(SequenceStatement),
    /// FETCH or MOVE statement.
    Motion(CursorMotion),
}

/// Words of which every query text with such a statement has at least one.
const WORDS: [&str; 12] = [
    "abort",
    "verbose",
    "backup",
    "vacuum",
    "system",
    "transaction",
    "reset",
    "sequence",
    "fetch",
    "move",
    "table",
    IDENTITY,
];
const IDENTITY: &str = "identity";

/// Splits a query text into parts; `None` if all of it is for DataFusion's parser.
pub(crate) fn split_statements(sql: &str) -> Result<Option<Vec<QueryPart>>> {
    if !WORDS.into_iter().any(|word| has_word(sql, word)) {
        return Ok(None);
    }
    // Syntax errors are reported by the parser.
    let Ok(tokens) = Tokenizer::new(&PostgreSqlDialect {}, sql).with_unescape(false).tokenize_with_location()
    else {
        return Ok(None);
    };
    let mut parts = Vec::new();
    let mut has_other = false;
    let mut start = 0;
    for statement in tokens.split_inclusive(|token| token.token == Token::SemiColon) {
        let ends = statement.last().filter(|last| last.token == Token::SemiColon);
        let end = ends.map_or(sql.len(), |semicolon| byte_at(sql, semicolon.span.start));
        let meant = |token: &&TokenWithSpan| !matches!(token.token, Token::Whitespace(_) | Token::SemiColon);
        let words: Vec<&TokenWithSpan> = statement.iter().filter(meant).collect();
        let tokens: Vec<&Token> = words.iter().map(|word| &word.token).collect();
        let other = match words.first() {
            Some(first) if is_word(&first.token, "abort") => {
                let after = byte_at(sql, first.span.end);
                Some(QueryPart::Sql(format!("ROLLBACK{}", &sql[after..end])))
            }
            Some(first)
                if ["analyze", "analyse"].iter().any(|word| is_word(&first.token, word))
                    && words.get(1).is_some_and(|second| is_word(&second.token, "verbose")) =>
            {
                let after = byte_at(sql, words[1].span.end);
                Some(QueryPart::Sql(format!("ANALYZE{}", &sql[after..end])))
            }
            Some(first) if is_word(&first.token, "backup") => Some(QueryPart::Backup(destination(&tokens)?)),
            Some(first) if is_word(&first.token, "vacuum") => {
                Some(QueryPart::Vacuum(Vacuum::parse(&tokens)?))
            }
            _ if fetch::is_motion(&tokens) => Some(QueryPart::Motion(fetch::parse(&tokens)?)),
            _ if sequence::is_sequence(&tokens) => Some(QueryPart::Sequence(sequence::parse(&tokens)?)),
            _ => match as_of(sql, &words, end).or_else(|| reset(sql, &words, start)) {
                None => match identity_ordered(sql, start..end, &words)? {
                    None => respelled(sql, start..end, &words, |word| byte_at(sql, word.span.start)),
                    ordered => ordered,
                }
                .map(QueryPart::Sql),
                other => other,
            },
        };
        has_other |= other.is_some();
        parts.push(other.unwrap_or_else(|| QueryPart::Sql(sql[start..end].to_owned())));
        start = (end + 1).min(sql.len());
    }
    Ok(has_other.then_some(parts))
}

/// Recognises BEGIN and SET TRANSACTION with AS OF.
fn as_of(sql: &str, words: &[&TokenWithSpan], end: usize) -> Option<QueryPart> {
    let is = |at: usize, wanted: &str| words.get(at).is_some_and(|word| is_word(&word.token, wanted));
    let begins = is(0, "begin") || is(0, "start");
    let sets = is(0, "set") && is(1, "transaction");
    let at = 1 + usize::from(is(1, "transaction") || is(1, "work"));
    if !(begins || sets) || !is(at, "as") || !is(at + 1, "of") {
        return None;
    }
    let first = match (is(at + 2, "system") && is(at + 3, "time"), is(at + 2, "transaction")) {
        (true, _) => at + 4,
        (_, true) => at + 2,
        _ => return None,
    };
    let from = words.get(first).map_or(end, |word| byte_at(sql, word.span.start));
    let moment = sql[from..end].to_owned();
    Some(if begins { QueryPart::BeginAsOf(moment) } else { QueryPart::SetAsOf(moment) })
}

/// Rewrites ALTER TABLE … RESET (history) into syntax that the parser knows.
fn reset(sql: &str, words: &[&TokenWithSpan], start: usize) -> Option<QueryPart> {
    let [alter, table, .., reset, open, option, close] = words else { return None };
    let is_reset = is_word(&alter.token, "alter")
        && is_word(&table.token, "table")
        && is_word(&reset.token, "reset")
        && open.token == Token::LParen
        && is_word(&option.token, "history")
        && close.token == Token::RParen;
    let before = byte_at(sql, reset.span.start);
    is_reset.then(|| QueryPart::Sql(format!("{}SET (history = 'off')", &sql[start..before])))
}

/// Rewrites a statement so that the options of identity columns have the order that DataFusion's parser knows; `None`
/// if it has none.
fn identity_ordered(
    sql: &str,
    statement: std::ops::Range<usize>,
    meant: &[&TokenWithSpan],
) -> Result<Option<String>> {
    let (mut text, mut copied) = (String::new(), statement.start);
    for at in 1..meant.len() {
        if !is_word(&meant[at - 1].token, IDENTITY) || meant[at].token != Token::LParen {
            continue;
        }
        let options = &meant[at + 1..];
        let Some(count) = options.iter().position(|token| token.token == Token::RParen) else { break };
        let options: Vec<&Token> = options[..count].iter().map(|token| &token.token).collect();
        text.push_str(&sql[copied..byte_at(sql, meant[at].span.start)]);
        text.push('(');
        text.push_str(sequence::ordered(&options)?.trim_start());
        copied = byte_at(sql, meant[at + 1 + count].span.start);
    }
    if copied == statement.start {
        return Ok(None);
    }
    text.push_str(&sql[copied..statement.end]);
    Ok(Some(text))
}

/// Byte offset of a location given by line and character, both from 1.
fn byte_at(sql: &str, place: Location) -> usize {
    let skipped: usize =
        sql.split_inclusive('\n').take(place.line.saturating_sub(1) as usize).map(str::len).sum();
    let column = place.column.saturating_sub(1) as usize;
    sql[skipped..].char_indices().nth(column).map_or(sql.len(), |(byte, _)| skipped + byte)
}

fn is_word(token: &Token, wanted: &str) -> bool {
    matches!(token, Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(wanted))
}

fn destination(tokens: &[&Token]) -> Result<PathBuf> {
    match tokens {
        [_, to, Token::SingleQuotedString(path)] if is_word(to, "to") && !path.is_empty() => {
            Ok(PathBuf::from(path.replace("''", "'")))
        }
        _ => {
            let text: Vec<String> = tokens.iter().map(ToString::to_string).collect();
            Err(Error::Syntax(format!(
                "syntax error: {}: expected BACKUP TO 'directory', with a directory that does not exist yet",
                text.join(" ")
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(sql: &str) -> Vec<Option<String>> {
        let parts = split_statements(sql).unwrap().unwrap();
        let path = |part: &QueryPart| match part {
            QueryPart::Backup(path) => Some(path.display().to_string()),
            _ => None,
        };
        parts.iter().map(path).collect()
    }

    #[test]
    fn backups_are_cut_out_of_texts() {
        assert!(split_statements("SELECT 'BACKUP TO ''x''' AS backup").unwrap().is_none());
        assert!(split_statements("-- BACKUP TO 'x'\nSELECT 1").unwrap().is_none());
        assert_eq!(paths("-- now\n BACKUP\tto 'a''b;c'"), [Some("a'b;c".to_owned())]);
        assert_eq!(paths("SELECT ';'; Backup To 'x'; SELECT 2"), [None, Some("x".to_owned()), None]);
        let text = "SELECT 'it''s;', 'ä' || E'\\n' -- c;\n, 2\n ;\n BACKUP TO 'x';SELECT 3";
        let parts = split_statements(text).unwrap().unwrap();
        let [QueryPart::Sql(first), QueryPart::Backup(path), QueryPart::Sql(last)] = parts.as_slice() else {
            panic!()
        };
        assert_eq!(first, "SELECT 'it''s;', 'ä' || E'\\n' -- c;\n, 2\n ");
        assert_eq!((path.to_str(), last.as_str()), (Some("x"), "SELECT 3"));
    }

    #[test]
    fn statements_on_sequences_are_cut_out_and_identities_put_in_order() {
        assert!(split_statements("SELECT 'create sequence s' AS sequence").unwrap().is_none());
        let parts =
            split_statements("SELECT 1; CREATE SEQUENCE s; ALTER sequence s RESTART").unwrap().unwrap();
        assert!(matches!(
            parts.as_slice(),
            [QueryPart::Sql(_), QueryPart::Sequence(_), QueryPart::Sequence(_)]
        ));
        let text = "CREATE TABLE t (ä INT GENERATED ALWAYS AS IDENTITY ( start 5 increment 2 ), b INT);";
        let parts = split_statements(text).unwrap().unwrap();
        let [QueryPart::Sql(ordered)] = parts.as_slice() else { panic!() };
        let expected =
            "CREATE TABLE t (ä INT GENERATED ALWAYS AS IDENTITY (INCREMENT BY 2 START WITH 5), b INT)";
        assert_eq!(ordered, expected);
        assert!(split_statements("CREATE TABLE t (a INT GENERATED ALWAYS AS IDENTITY)").unwrap().is_none());
        assert!(split_statements("CREATE TABLE t (a INT GENERATED ALWAYS AS IDENTITY (nonsense))").is_err());
    }

    #[test]
    fn wrong_backups_are_refused_with_the_right_form() {
        for sql in ["BACKUP", "BACKUP 'x'", "BACKUP TO", "BACKUP TO ''", "BACKUP TO x", "BACKUP TO 'x' NOW"] {
            let error = split_statements(sql).err().unwrap().to_string();
            assert!(error.contains("BACKUP TO 'directory'") && error.contains(sql), "{error}");
        }
    }

    #[test]
    fn moments_of_transactions_are_cut_out_of_texts() {
        let moment = |sql: &str| match split_statements(sql).unwrap()?.pop() {
            Some(QueryPart::BeginAsOf(moment)) => Some(format!("begin {}", moment.trim())),
            Some(QueryPart::SetAsOf(moment)) => Some(format!("set {}", moment.trim())),
            _ => None,
        };
        for (sql, expected) in [
            ("BEGIN AS OF SYSTEM TIME '2026-01-01'", Some("begin '2026-01-01'")),
            (
                "begin transaction as of system time now() - interval '1 h';",
                Some("begin now() - interval '1 h'"),
            ),
            ("START TRANSACTION AS OF TRANSACTION 5", Some("begin TRANSACTION 5")),
            ("SELECT 'system'; SET TRANSACTION AS OF SYSTEM\nTIME $1", Some("set $1")),
            ("BEGIN TRANSACTION READ ONLY", None),
            ("SELECT 1 AS of, system.time FROM system", None),
        ] {
            assert_eq!(moment(sql).as_deref(), expected, "{sql}");
        }
        let parts = split_statements("ALTER TABLE t RESET (history)").unwrap().unwrap();
        assert!(matches!(&parts[..], [QueryPart::Sql(sql)] if sql == "ALTER TABLE t SET (history = 'off')"));
        assert!(split_statements("RESET ALL").unwrap().is_none());
    }
}
