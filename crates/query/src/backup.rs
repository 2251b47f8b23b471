//! `BACKUP TO 'directory'`: a backup of the open database, while others go on writing.
//!
//! The engine's parser does not know the statement: texts that have it are cut into statements here first. Outside of
//! a transaction only; what it holds is said at [`entresol_memory::Pool::backup`].

use std::path::PathBuf;
use std::sync::Arc;

use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::tokenizer::{Location, Token, Tokenizer};

use crate::error::{Error, Result};
use crate::session::{Session, StatementResult, blocking};

/// A part of a text.
pub(crate) enum Part {
    /// Statements for the engine's parser.
    Sql(String),
    /// The directory of a BACKUP TO.
    Backup(PathBuf),
}

/// Cuts out the BACKUP statements of a text, if it may have any: `None` if it has none.
pub(crate) fn cut(sql: &str) -> Result<Option<Vec<Part>>> {
    const KEYWORD: &str = "backup";
    if !sql.as_bytes().windows(KEYWORD.len()).any(|word| word.eq_ignore_ascii_case(KEYWORD.as_bytes())) {
        return Ok(None);
    }
    // What is no SQL is the parser's to report.
    let Ok(tokens) = Tokenizer::new(&PostgreSqlDialect {}, sql).with_unescape(false).tokenize_with_location()
    else {
        return Ok(None);
    };
    let mut parts = Vec::new();
    let mut has_backup = false;
    let mut start = 0;
    for statement in tokens.split_inclusive(|token| token.token == Token::SemiColon) {
        let ends = statement.last().filter(|last| last.token == Token::SemiColon);
        let end = ends.map_or(sql.len(), |semicolon| byte_at(sql, semicolon.span.start));
        let meant = |token: &&Token| !matches!(token, Token::Whitespace(_) | Token::SemiColon);
        let words: Vec<&Token> = statement.iter().map(|token| &token.token).filter(meant).collect();
        if words.first().is_some_and(|first| is_word(first, KEYWORD)) {
            has_backup = true;
            parts.push(Part::Backup(destination(&words)?));
        } else {
            parts.push(Part::Sql(sql[start..end].to_owned()));
        }
        start = (end + 1).min(sql.len());
    }
    Ok(has_backup.then_some(parts))
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
            Part::Sql(_) => None,
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
    fn wrong_backups_are_refused_with_the_right_form() {
        for sql in ["BACKUP", "BACKUP 'x'", "BACKUP TO", "BACKUP TO ''", "BACKUP TO x", "BACKUP TO 'x' NOW"] {
            let error = cut(sql).err().unwrap().to_string();
            assert!(error.contains("BACKUP TO 'directory'") && error.contains(sql), "{error}");
        }
    }
}
