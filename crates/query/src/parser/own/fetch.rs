//! Parser of FETCH and MOVE: DataFusion's parser has no MOVE, and knows FETCH only in its complete form.
//!
//! ```text
//! {FETCH | MOVE} [NEXT | count | ALL | FORWARD | FORWARD count | FORWARD ALL] [FROM | IN] name
//! ```

use crate::error::{Error, Result};
use crate::parser::names::identifier;
use crate::parser::own::words::Words;
use datafusion::sql::sqlparser::tokenizer::Token;

/// FETCH or MOVE statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CursorMotion {
    /// True for MOVE: the rows are skipped.
    pub(crate) passes: bool,
    pub(crate) name: String,
    /// Maximum number of rows.
    pub(crate) rows: u64,
}

/// Directions that are not supported.
const OTHERS: [&str; 6] = ["prior", "first", "last", "absolute", "relative", "backward"];

/// Parses a FETCH or MOVE; `words` has neither blanks nor the semicolon.
pub(crate) fn parse(words: &[&Token]) -> Result<CursorMotion> {
    let said = words.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    let mut words = Words(words);
    let passes = words.word("move");
    if !passes {
        words.expect("fetch")?;
    }
    // A single word is a name.
    let rows = if words.0.len() == 1 { 1 } else { rows(&mut words, &said)? };
    let _ = words.word("from") || words.word("in");
    let name = identifier(&words.ident()?);
    words.end()?;
    Ok(CursorMotion { passes, name, rows })
}

fn rows(words: &mut Words<'_>, said: &str) -> Result<u64> {
    let refused = || Error::unsupported(format!("{said}: cursors can only move forward"));
    if OTHERS.iter().any(|direction| words.word(direction)) {
        return Err(refused());
    }
    if words.word("next") {
        return Ok(1);
    }
    let _ = words.word("forward");
    if words.word("all") {
        return Ok(u64::MAX);
    }
    if words.is_number() { u64::try_from(words.number()?).map_err(|_| refused()) } else { Ok(1) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::command::Command;
    use crate::parser::statement::parse as parse_text;

    fn motion(sql: &str) -> Result<CursorMotion> {
        match parse_text(sql)?.pop() {
            Some(Command::Motion(motion)) => Ok(motion),
            other => panic!("{sql}: {other:?}"),
        }
    }

    #[test]
    fn words_may_be_left_out_as_in_postgresql() {
        for (sql, rows, name) in [
            ("FETCH c", 1, "c"),
            ("fetch next C", 1, "c"),
            ("FETCH NEXT", 1, "next"),
            ("FETCH FROM \"C\"\"d\"", 1, "C\"d"),
            ("FETCH 5 c", 5, "c"),
            ("FETCH 0 IN c", 0, "c"),
            ("FETCH ALL FROM c", u64::MAX, "c"),
            ("FETCH FORWARD IN c", 1, "c"),
            ("FETCH FORWARD 7 c", 7, "c"),
            ("FETCH FORWARD ALL c", u64::MAX, "c"),
        ] {
            for (sql, passes) in [(sql.to_owned(), false), (sql.replace("FETCH", "MOVE"), true)] {
                let passes = passes && sql.starts_with("MOVE");
                let expected = CursorMotion { passes, name: name.to_owned(), rows };
                assert_eq!(motion(&sql).unwrap(), expected, "{sql}");
            }
        }
    }

    #[test]
    fn what_goes_back_or_is_no_fetch_is_refused() {
        for sql in ["FETCH BACKWARD ALL FROM c", "FETCH -1 FROM c", "MOVE PRIOR c", "FETCH ABSOLUTE 3 c"] {
            let error = motion(sql).unwrap_err();
            assert_eq!(error.sqlstate(), "0A000", "{sql}");
            assert!(error.to_string().contains(sql.split(' ').next_back().unwrap()), "{error}");
        }
        for sql in ["FETCH", "FETCH 5", "FETCH FROM c INTO x", "MOVE 1.5 c", "FETCH a.b", "FETCH ALL"] {
            let code = motion(sql).map_or_else(|error| error.sqlstate(), |_| "00000");
            let expected = if sql == "FETCH ALL" { "00000" } else { "42601" };
            assert_eq!(code, expected, "{sql}");
        }
    }
}
