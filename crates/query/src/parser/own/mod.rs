//! Statements that sqlparser does not know, recognised by their first words:
//!
//! ```text
//! BACKUP TO 'directory'
//! VACUUM                                                              PostgreSQL's forms: crate::parser::own::vacuum
//! BEGIN [TRANSACTION] AS OF {SYSTEM TIME time | TRANSACTION n}      CockroachDB's words; SET TRANSACTION too
//! CREATE SEQUENCE, ALTER SEQUENCE                                     options in any order: crate::parser::own::sequence
//! FETCH, MOVE                                                         all of PostgreSQL's forms: crate::parser::own::fetch
//! CREATE, ALTER and DROP of ROLE and USER, GRANT, REVOKE              crate::parser::own::role
//! ALTER … OWNER TO                                                    crate::parser::own::owner
//! COPY                                                                sqlparser's, with its options: crate::parser::own::copy
//! CREATE, ALTER and DROP of SOURCE and TOPOLOGY, EXPLAIN TOPOLOGY     crate::parser::own::streaming, stream_changes
//! REFRESH MATERIALIZED VIEW                                           crate::parser::own::materialized
//! SUBSCRIBE                                                           a query of its changes: crate::parser::own::subscription
//! ```

pub(crate) mod as_of;
pub(crate) mod copy;
pub(crate) mod copy_options;
pub(crate) mod fetch;
pub(crate) mod materialized;
pub(crate) mod owner;
pub(crate) mod role;
pub(crate) mod sequence;
pub(crate) mod stream_changes;
pub(crate) mod streaming;
pub(crate) mod subscription;
pub(crate) mod vacuum;
pub(crate) mod words;

use crate::error::{Error, Result};
use crate::parser::command::Command;
use crate::parser::own::copy::CopyStatement;
use crate::parser::own::materialized::MaterializedStatement;
use crate::parser::own::vacuum::Vacuum;
use crate::parser::text::tokens::{is_word, shown};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use std::path::PathBuf;

/// Parses a statement that is one of these; `None` for all others.
pub(crate) fn parse(tokens: &[TokenWithSpan]) -> Result<Option<Command>> {
    let Some(Token::Word(first)) = tokens.first().map(|first| &first.token) else { return Ok(None) };
    if first.quote_style.is_some() {
        return Ok(None);
    }
    let words = || tokens.iter().map(|token| &token.token).collect::<Vec<&Token>>();
    Ok(Some(match first.value.to_ascii_lowercase().as_str() {
        "backup" => Command::Backup(destination(&words())?),
        "vacuum" => Command::Vacuum(Vacuum::parse(&words())?),
        "fetch" | "move" => Command::Motion(fetch::parse(&words())?),
        "copy" => Command::Copy(Box::new(CopyStatement::of_tokens(tokens)?)),
        "refresh" => Command::Materialized(Box::new(MaterializedStatement::refresh(&words())?)),
        "begin" | "start" | "set" => return as_of::parse(tokens),
        "grant" | "revoke" | "reassign" => Command::Role(Box::new(role::parse(&words())?)),
        "alter" if owner::is_owner_change(tokens) => Command::Role(Box::new(owner::parse(&words())?)),
        "create" | "alter" | "drop" if role::is_role(tokens) => {
            Command::Role(Box::new(role::parse(&words())?))
        }
        "create" | "alter" | "drop" | "explain" if streaming::is_streaming(tokens) => {
            Command::Streaming(Box::new(streaming::parse(tokens)?))
        }
        "explain" if materialized::is_explanation(tokens) => {
            Command::Materialized(Box::new(materialized::explanation(&words())?))
        }
        "create" | "alter" if sequence::is_sequence(tokens) => {
            Command::Sequence(Box::new(sequence::parse(&words())?))
        }
        _ => return Ok(None),
    }))
}

fn destination(words: &[&Token]) -> Result<PathBuf> {
    match words {
        [_, to, Token::SingleQuotedString(path)] if is_word(to, "to") && !path.is_empty() => {
            Ok(PathBuf::from(path))
        }
        _ => Err(Error::Syntax(format!(
            "syntax error: {}: expected BACKUP TO 'directory', with a directory that does not exist yet",
            shown(words)
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::statement::parse as parse_text;

    fn backup(sql: &str) -> Option<String> {
        match parse_text(sql).unwrap().pop()? {
            Command::Backup(path) => Some(path.display().to_string()),
            _ => None,
        }
    }

    #[test]
    fn backups_have_a_directory() {
        assert_eq!(backup("-- now\n BACKUP\tto 'a''b;c'").as_deref(), Some("a'b;c"));
        assert_eq!(backup("SELECT 'BACKUP TO ''x''' AS backup"), None);
        assert_eq!(backup("-- BACKUP TO 'x'\nSELECT 1"), None);
        let all = parse_text("SELECT ';'; Backup To 'x'; SELECT 2").unwrap();
        assert!(matches!(all.as_slice(), [Command::Query(_), Command::Backup(_), Command::Query(_)]));
        for sql in ["BACKUP", "BACKUP 'x'", "BACKUP TO", "BACKUP TO ''", "BACKUP TO x", "BACKUP TO 'x' NOW"] {
            let error = parse_text(sql).err().unwrap().to_string();
            assert!(error.contains("BACKUP TO 'directory'") && error.contains(sql), "{error}");
        }
    }
}
