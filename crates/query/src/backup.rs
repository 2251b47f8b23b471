//! `BACKUP TO 'directory'`: a backup of the open database, while others go on writing.
//!
//! The engine's parser does not know the statement: texts that have it are cut into statements here first, and so are
//! those on sequences ([`crate::sequence_text`]). Outside of a transaction only; what it holds is said at [`entresol_memory::Pool::backup`].

use std::path::PathBuf;
use std::sync::Arc;

use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer};

use crate::error::{Error, Result};
use crate::sequence_text::{self, SequenceStatement};
use crate::session::{Session, StatementResult, blocking};
use crate::statement::has_word;

/// A part of a text.
pub(crate) enum Part {
    /// Statements for the engine's parser.
    Sql(String),
    /// The directory of a BACKUP TO.
    Backup(PathBuf),
    /// A CREATE SEQUENCE or ALTER SEQUENCE.
    Sequence(SequenceStatement),
}

const BACKUP: &str = "backup";
const IDENTITY: &str = "identity";
/// A text without any of these words is the engine's as it is.
const KEYWORDS: [&str; 3] = [BACKUP, IDENTITY, "sequence"];

/// Cuts out the statements of a text that the engine's parser does not know, if it may have any: `None` if it has none.
pub(crate) fn cut(sql: &str) -> Result<Option<Vec<Part>>> {
    if !KEYWORDS.into_iter().any(|keyword| has_word(sql, keyword)) {
        return Ok(None);
    }
    // What is no SQL is the parser's to report.
    let Ok(tokens) = Tokenizer::new(&PostgreSqlDialect {}, sql).with_unescape(false).tokenize_with_location()
    else {
        return Ok(None);
    };
    let mut parts = Vec::new();
    let mut has_any = false;
    let mut start = 0;
    for statement in tokens.split_inclusive(|token| token.token == Token::SemiColon) {
        let ends = statement.last().filter(|last| last.token == Token::SemiColon);
        let end = ends.map_or(sql.len(), |semicolon| byte_at(sql, semicolon.span.start));
        let meant = |token: &&Token| !matches!(token, Token::Whitespace(_) | Token::SemiColon);
        let words: Vec<&Token> = statement.iter().map(|token| &token.token).filter(meant).collect();
        if words.first().is_some_and(|first| is_word(first, BACKUP)) {
            has_any = true;
            parts.push(Part::Backup(destination(&words)?));
        } else if sequence_text::is_sequence(&words) {
            has_any = true;
            parts.push(Part::Sequence(sequence_text::parse(&words)?));
        } else {
            let ordered = identity_ordered(sql, start..end, statement)?;
            has_any |= ordered.is_some();
            parts.push(Part::Sql(ordered.unwrap_or_else(|| sql[start..end].to_owned())));
        }
        start = (end + 1).min(sql.len());
    }
    Ok(has_any.then_some(parts))
}

/// A statement with the options of identity columns in the order that the engine's parser knows; `None` if it has none.
fn identity_ordered(
    sql: &str,
    statement: std::ops::Range<usize>,
    tokens: &[TokenWithSpan],
) -> Result<Option<String>> {
    let (mut text, mut copied) = (String::new(), statement.start);
    let meant: Vec<&TokenWithSpan> =
        tokens.iter().filter(|token| !matches!(token.token, Token::Whitespace(_))).collect();
    for at in 1..meant.len() {
        if !is_word(&meant[at - 1].token, IDENTITY) || meant[at].token != Token::LParen {
            continue;
        }
        let options = &meant[at + 1..];
        let Some(count) = options.iter().position(|token| token.token == Token::RParen) else { break };
        let options: Vec<&Token> = options[..count].iter().map(|token| &token.token).collect();
        text.push_str(&sql[copied..byte_at(sql, meant[at].span.start)]);
        text.push('(');
        text.push_str(sequence_text::ordered(&options)?.trim_start());
        copied = byte_at(sql, meant[at + 1 + count].span.start);
    }
    if copied == statement.start {
        return Ok(None);
    }
    text.push_str(&sql[copied..statement.end]);
    Ok(Some(text))
}

/// The byte of a place that is given by line and character, both from 1.
fn byte_at(sql: &str, place: Location) -> usize {
    let skipped: usize =
        sql.split_inclusive('\n').take(place.line.saturating_sub(1) as usize).map(str::len).sum();
    let column = place.column.saturating_sub(1) as usize;
    sql[skipped..].char_indices().nth(column).map_or(sql.len(), |(byte, _)| skipped + byte)
}

fn is_word(token: &Token, wanted: &str) -> bool {
    matches!(token, Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(wanted))
}

fn destination(words: &[&Token]) -> Result<PathBuf> {
    match words {
        [_, to, Token::SingleQuotedString(path)] if is_word(to, "to") && !path.is_empty() => {
            Ok(PathBuf::from(path.replace("''", "'")))
        }
        _ => {
            let text: Vec<String> = words.iter().map(ToString::to_string).collect();
            Err(Error::Syntax(format!(
                "syntax error: {}: the statement is BACKUP TO 'directory', where the directory is not there yet",
                text.join(" ")
            )))
        }
    }
}

pub(crate) async fn run(session: &Session, destination: PathBuf) -> Result<StatementResult> {
    let pool = Arc::clone(session.catalog.context().pool());
    blocking(move || pool.backup(&destination)).await?.map_err(entresol_tables::Error::from)?;
    Ok(StatementResult::Done { verb: "BACKUP" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(sql: &str) -> Vec<Option<String>> {
        let parts = cut(sql).unwrap().unwrap();
        let path = |part: &Part| match part {
            Part::Backup(path) => Some(path.display().to_string()),
            Part::Sql(_) | Part::Sequence(_) => None,
        };
        parts.iter().map(path).collect()
    }

    #[test]
    fn backups_are_cut_out_of_texts() {
        assert!(cut("SELECT 'BACKUP TO ''x''' AS backup").unwrap().is_none());
        assert!(cut("-- BACKUP TO 'x'\nSELECT 1").unwrap().is_none());
        assert_eq!(paths("-- now\n BACKUP\tto 'a''b;c'"), [Some("a'b;c".to_owned())]);
        assert_eq!(paths("SELECT ';'; Backup To 'x'; SELECT 2"), [None, Some("x".to_owned()), None]);
        let text = "SELECT 'it''s;', 'ä' || E'\\n' -- c;\n, 2\n ;\n BACKUP TO 'x';SELECT 3";
        let parts = cut(text).unwrap().unwrap();
        let [Part::Sql(first), Part::Backup(path), Part::Sql(last)] = parts.as_slice() else { panic!() };
        assert_eq!(first, "SELECT 'it''s;', 'ä' || E'\\n' -- c;\n, 2\n ");
        assert_eq!((path.to_str(), last.as_str()), (Some("x"), "SELECT 3"));
    }

    #[test]
    fn statements_on_sequences_are_cut_out_and_identities_put_in_order() {
        assert!(cut("SELECT 'create sequence s' AS sequence").unwrap().is_none());
        let parts = cut("SELECT 1; CREATE SEQUENCE s; ALTER sequence s RESTART").unwrap().unwrap();
        assert!(matches!(parts.as_slice(), [Part::Sql(_), Part::Sequence(_), Part::Sequence(_)]));
        let text = "CREATE TABLE t (ä INT GENERATED ALWAYS AS IDENTITY ( start 5 increment 2 ), b INT);";
        let parts = cut(text).unwrap().unwrap();
        let [Part::Sql(ordered)] = parts.as_slice() else { panic!() };
        let expected =
            "CREATE TABLE t (ä INT GENERATED ALWAYS AS IDENTITY (INCREMENT BY 2 START WITH 5), b INT)";
        assert_eq!(ordered, expected);
        assert!(cut("CREATE TABLE t (a INT GENERATED ALWAYS AS IDENTITY)").unwrap().is_none());
        assert!(cut("CREATE TABLE t (a INT GENERATED ALWAYS AS IDENTITY (nonsense))").is_err());
    }

    #[test]
    fn wrong_backups_are_refused_with_the_right_form() {
        for sql in ["BACKUP", "BACKUP 'x'", "BACKUP TO", "BACKUP TO ''", "BACKUP TO x", "BACKUP TO 'x' NOW"] {
            let error = cut(sql).err().unwrap().to_string();
            assert!(error.contains("BACKUP TO 'directory'") && error.contains(sql), "{error}");
        }
    }
}
