//! ALTER and DROP of sources, topologies and sinks:
//!
//! ```text
//! ALTER {TOPOLOGY | SINK} name {PAUSE | RESUME | SET (option = value, ...)}
//! ALTER TOPOLOGY name AS ( step {; step} [;] )
//! ALTER SOURCE name {SET (option = value, ...) | ADD [COLUMN] column type | SEEK TO {BEGINNING | position}}
//! DROP {SOURCE | STREAM | TOPOLOGY | SINK} [IF EXISTS] name, ... [CASCADE | RESTRICT]
//! ```

use crate::error::{Error, Result};
use crate::parser::own::streaming::{
    SeekTarget, StreamChange, StreamObject, StreamingStatement, options_of, parenthesised, source_column,
};
use crate::parser::own::words::Words;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

/// Parses the tokens behind `ALTER object name`.
pub(crate) fn alter(
    object: StreamObject,
    name: String,
    tokens: &[TokenWithSpan],
) -> Result<StreamingStatement> {
    let all: Vec<&Token> = tokens.iter().map(|token| &token.token).collect();
    let mut words = Words(&all);
    if object == StreamObject::Stream {
        return Err(Error::unsupported("ALTER STREAM: CREATE OR REPLACE STREAM gives it another query"));
    }
    let change = if words.word("set") {
        let (body, rest) = parenthesised(&tokens[1..])?;
        words = Words(&all[all.len() - rest.len()..]);
        StreamChange::Options(options_of(body)?)
    } else if object == StreamObject::Topology && words.word("as") {
        // Its steps are parsed with the other clauses.
        return Ok(StreamingStatement::Alter {
            object,
            name,
            change: StreamChange::Steps,
            text: String::new(),
        });
    } else if object == StreamObject::Source && words.word("add") {
        let _ = words.word("column");
        let column = &tokens[tokens.len() - words.0.len()..];
        let (column, computed) = source_column(column)?;
        words = Words(&[]);
        let computed = computed.map_or_else(String::new, |expression| format!(" AS {expression}"));
        StreamChange::AddColumn(format!("{column}{computed}"))
    } else if object == StreamObject::Source && words.word("seek") {
        words.expect("to")?;
        StreamChange::Seek(seek_target(&mut words)?)
    } else if object != StreamObject::Source && words.word("pause") {
        StreamChange::Pause
    } else if object != StreamObject::Source && words.word("resume") {
        StreamChange::Resume
    } else {
        return Err(Error::unsupported(
            "ALTER of a topology other than PAUSE, RESUME, SET (options) and AS (steps), of a sink other than PAUSE, RESUME \
             and SET (options), of a source other than SET (options), ADD COLUMN and SEEK TO",
        ));
    };
    words.end()?;
    Ok(StreamingStatement::Alter { object, name, change, text: String::new() })
}

/// Parses the words behind `SEEK TO`.
fn seek_target(words: &mut Words<'_>) -> Result<SeekTarget> {
    if words.word("beginning") {
        return Ok(SeekTarget::Beginning);
    }
    let position = words.number()?;
    let position = u64::try_from(position)
        .map_err(|_| Error::coded("22003", format!("SEEK TO {position}: a position is not negative")))?;
    Ok(SeekTarget::Position(position))
}

/// Parses the words behind `DROP object`.
pub(crate) fn dropping(object: StreamObject, words: &mut Words<'_>) -> Result<StreamingStatement> {
    let if_exists = words.phrase(&["if", "exists"]);
    let mut names = vec![words.relation()?];
    while words.comma() {
        names.push(words.relation()?);
    }
    let cascade = words.word("cascade");
    if !cascade {
        let _ = words.word("restrict");
    }
    words.end()?;
    Ok(StreamingStatement::Drop { object, names, if_exists, cascade })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::command::Command;
    use crate::parser::statement::parse as parse_text;

    fn one(sql: &str) -> Result<StreamingStatement> {
        match parse_text(sql)?.pop() {
            Some(Command::Streaming(statement)) => Ok(*statement),
            other => panic!("{sql}: {other:?}"),
        }
    }

    fn change(sql: &str) -> (StreamObject, StreamChange) {
        match one(sql).unwrap() {
            StreamingStatement::Alter { object, name, change, text } => {
                assert_eq!((name.as_str(), text.as_str()), ("t", sql));
                (object, change)
            }
            other => panic!("{sql}: {other:?}"),
        }
    }

    #[test]
    fn changes_are_of_an_object() {
        assert_eq!(change("ALTER TOPOLOGY t PAUSE"), (StreamObject::Topology, StreamChange::Pause));
        assert_eq!(change("ALTER SINK T resume"), (StreamObject::Sink, StreamChange::Resume));
        assert_eq!(change("ALTER TOPOLOGY t AS (INSERT INTO a SELECT 1)").1, StreamChange::Steps);
        let options = vec![("a.b".to_owned(), "1".to_owned()), ("c".to_owned(), "x".to_owned())];
        assert_eq!(
            change("ALTER SOURCE t SET (a.b = 1, c = 'x')"),
            (StreamObject::Source, StreamChange::Options(options))
        );
        let (_, added) = change("ALTER SOURCE t ADD COLUMN more DECIMAL(8,2)");
        assert!(matches!(added, StreamChange::AddColumn(column) if column == "more DECIMAL(8,2)"));
        let (_, added) = change("ALTER SOURCE t ADD COLUMN more INT NOT NULL AS cast(a AS int) + 1");
        let computed = "more INT NOT NULL AS CAST(a AS INT) + 1";
        assert_eq!(added, StreamChange::AddColumn(computed.to_owned()));
        for (sql, target) in [
            ("ALTER SOURCE t SEEK TO BEGINNING", SeekTarget::Beginning),
            ("ALTER SOURCE t SEEK TO 120", SeekTarget::Position(120)),
        ] {
            assert_eq!(change(sql), (StreamObject::Source, StreamChange::Seek(target)));
        }
        for sql in ["ALTER SOURCE t SEEK TO -1", "ALTER SOURCE t SEEK 1", "ALTER SOURCE t SEEK TO end"] {
            assert!(one(sql).is_err(), "{sql}");
        }
        for sql in ["ALTER SOURCE t PAUSE", "ALTER SINK t AS (x)", "ALTER SINK t ADD COLUMN a INT"] {
            assert!(one(sql).unwrap_err().to_string().contains("ALTER of a topology other than"), "{sql}");
        }
        assert!(one("ALTER TOPOLOGY t PAUSE now").is_err());
        assert!(one("ALTER TOPOLOGY t SET (a = 1) b").is_err());
    }

    #[test]
    fn several_are_dropped_with_what_depends_on_them() {
        for (sql, expected) in [
            ("DROP SOURCE a, B", (StreamObject::Source, 2, false, false)),
            ("DROP TOPOLOGY IF EXISTS a CASCADE", (StreamObject::Topology, 1, true, true)),
            ("DROP SINK a RESTRICT", (StreamObject::Sink, 1, false, false)),
        ] {
            let StreamingStatement::Drop { object, names, if_exists, cascade } = one(sql).unwrap() else {
                panic!("{sql}")
            };
            assert_eq!((object, names.len(), if_exists, cascade), expected);
        }
        assert!(one("DROP SINK a CASCADE RESTRICT").is_err());
    }
}
