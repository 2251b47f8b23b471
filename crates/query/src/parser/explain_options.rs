//! Options of `EXPLAIN (...)`: PostgreSQL's, put into those that DataFusion's parser knows.
//!
//! | option | |
//! | --- | --- |
//! | ANALYZE, VERBOSE, COSTS | as they are |
//! | TIMING | as it is, only with ANALYZE |
//! | FORMAT TEXT | left out: it is the default |
//! | FORMAT JSON | FORMAT PGJSON, see [`crate::planner::explain_json`] |
//! | BUFFERS, GENERIC_PLAN, MEMORY, SERIALIZE, SETTINGS, SUMMARY, WAL | refused, and left out where they are off |
//! | INDENT, TREE and GRAPHVIZ of FORMAT, LEVEL, METRICS | as they are: DataFusion's |

use crate::error::{Error, Result};
use crate::parser::text::tokens::is_word;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

/// Options that only PostgreSQL has.
const MISSING: [&str; 7] = ["buffers", "generic_plan", "memory", "serialize", "settings", "summary", "wal"];
/// Words that begin a query in parentheses.
const QUERIES: [&str; 5] = ["select", "table", "values", "with", "from"];

/// Rewrites the options of a statement that is EXPLAIN with options in parentheses.
pub(crate) fn rewrite_options(tokens: &mut Vec<TokenWithSpan>) -> Result<()> {
    let [explain, open, first, ..] = tokens.as_slice() else { return Ok(()) };
    let is_option =
        matches!(first.token, Token::Word(_)) && !QUERIES.iter().any(|word| is_word(&first.token, word));
    if !is_word(&explain.token, "explain") || open.token != Token::LParen || !is_option {
        return Ok(());
    }
    let Some(close) = tokens.iter().position(|token| token.token == Token::RParen) else { return Ok(()) };
    let mut options = Options::default();
    tokens[2..close].split(|token| token.token == Token::Comma).try_for_each(|option| options.add(option))?;
    if options.timing && !options.analyze {
        return Err(Error::coded("22023", "EXPLAIN option TIMING requires ANALYZE"));
    }
    let mut known = options.known;
    if known.is_empty() {
        tokens.drain(1..=close);
        return Ok(());
    }
    let last = known.pop();
    let listed = known.into_iter().flat_map(|mut option| {
        let span = option.last().map_or(tokens[1].span, |token| token.span);
        option.push(TokenWithSpan { token: Token::Comma, span });
        option
    });
    let mut listed: Vec<TokenWithSpan> = listed.collect();
    listed.extend(last.into_iter().flatten());
    tokens.splice(2..close, listed);
    Ok(())
}

#[derive(Default)]
struct Options {
    /// Options that DataFusion's parser knows.
    known: Vec<Vec<TokenWithSpan>>,
    analyze: bool,
    timing: bool,
}

impl Options {
    fn add(&mut self, option: &[TokenWithSpan]) -> Result<()> {
        let (name, value) = match option {
            [name] => (name, None),
            [name, value] => (name, Some(value)),
            _ => {
                let shown = option.get(2).map_or(")".to_owned(), |token| token.token.to_string());
                return Err(Error::Syntax(format!("syntax error at or near \"{shown}\"")));
            }
        };
        let Token::Word(word) = &name.token else {
            return Err(Error::Syntax(format!("syntax error at or near \"{}\"", name.token)));
        };
        let word = word.value.to_ascii_lowercase();
        match word.as_str() {
            "analyze" | "verbose" | "costs" | "timing" => {
                let is_on = truth(&word, value)?;
                self.analyze = if word == "analyze" { is_on } else { self.analyze };
                self.timing = if word == "timing" { is_on } else { self.timing };
                let value = TokenWithSpan {
                    token: Token::make_keyword(if is_on { "TRUE" } else { "FALSE" }),
                    span: name.span,
                };
                self.known.push(vec![name.clone(), value]);
            }
            "format" => self.known.extend(format(name, value)?),
            "level" | "metrics" => self.known.push(option.to_vec()),
            missing if MISSING.contains(&missing) => {
                let is_none = value.and_then(written).is_some_and(|written| written == "none");
                if !is_none && truth(&word, value)? {
                    return Err(Error::unsupported(format!("EXPLAIN ({})", word.to_uppercase())));
                }
            }
            _ => return Err(Error::coded("42601", format!("unrecognized EXPLAIN option \"{word}\""))),
        }
        Ok(())
    }
}

/// Word, string or digits of a value.
fn written(value: &TokenWithSpan) -> Option<String> {
    match &value.token {
        Token::Word(word) => Some(word.value.to_ascii_lowercase()),
        Token::SingleQuotedString(string) => Some(string.to_ascii_lowercase()),
        Token::Number(digits, _) => Some(digits.clone()),
        _ => None,
    }
}

fn truth(name: &str, value: Option<&TokenWithSpan>) -> Result<bool> {
    let Some(value) = value else { return Ok(true) };
    match written(value).as_deref() {
        Some("true" | "on" | "1") => Ok(true),
        Some("false" | "off" | "0") => Ok(false),
        _ => Err(Error::coded("42601", format!("{name} requires a Boolean value"))),
    }
}

/// Option of the format; none for the default.
fn format(name: &TokenWithSpan, value: Option<&TokenWithSpan>) -> Result<Option<Vec<TokenWithSpan>>> {
    let Some(value) = value else {
        return Err(Error::coded("42601", "format requires a parameter"));
    };
    let format = written(value).unwrap_or_default();
    let known = match format.as_str() {
        "text" => return Ok(None),
        "json" | "pgjson" => "pgjson",
        "indent" | "tree" | "graphviz" => format.as_str(),
        "xml" | "yaml" => {
            let format = format.to_uppercase();
            return Err(Error::unsupported(format!("EXPLAIN (FORMAT {format}): use TEXT or JSON")));
        }
        _ => {
            let message = format!("unrecognized value for EXPLAIN option \"format\": \"{format}\"");
            return Err(Error::coded("22023", message));
        }
    };
    let known = TokenWithSpan { token: Token::SingleQuotedString(known.to_owned()), span: value.span };
    Ok(Some(vec![name.clone(), known]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::text::tokens::{BEGINNING, tokenize};

    fn rewritten(sql: &str) -> String {
        let mut tokens = tokenize(sql, BEGINNING).unwrap();
        match rewrite_options(&mut tokens) {
            Ok(()) => {
                let texts: Vec<String> = tokens.iter().map(|token| token.token.to_string()).collect();
                texts.join(" ")
            }
            Err(error) => format!("{} {error}", error.sqlstate()),
        }
    }

    #[test]
    fn options_are_put_in_other_words() {
        for (sql, expected) in [
            ("EXPLAIN (FORMAT TEXT) SELECT 1", "EXPLAIN SELECT 1"),
            (
                "EXPLAIN (Format 'JSON', Analyze) SELECT 1",
                "EXPLAIN ( Format 'pgjson' , Analyze TRUE ) SELECT 1",
            ),
            (
                "EXPLAIN (FORMAT JSON, ANALYZE off, TIMING off, BUFFERS off, SUMMARY 0) SELECT (1)",
                "EXPLAIN ( FORMAT 'pgjson' , ANALYZE FALSE , TIMING FALSE ) SELECT ( 1 )",
            ),
            ("EXPLAIN (LEVEL dev) SELECT 1", "EXPLAIN ( LEVEL dev ) SELECT 1"),
            ("EXPLAIN (SELECT 1)", "EXPLAIN ( SELECT 1 )"),
            ("EXPLAIN ((SELECT 1))", "EXPLAIN ( ( SELECT 1 ) )"),
            ("SELECT (a) FROM t", "SELECT ( a ) FROM t"),
            ("EXPLAIN (WAL) SELECT 1", "0A000 unsupported: EXPLAIN (WAL)"),
            ("EXPLAIN (SERIALIZE none) SELECT 1", "EXPLAIN SELECT 1"),
            ("EXPLAIN (NOPE) SELECT 1", "42601 unrecognized EXPLAIN option \"nope\""),
            ("EXPLAIN (ANALYZE 7) SELECT 1", "42601 analyze requires a Boolean value"),
            ("EXPLAIN (FORMAT) SELECT 1", "42601 format requires a parameter"),
            (
                "EXPLAIN (FORMAT FOO) SELECT 1",
                "22023 unrecognized value for EXPLAIN option \"format\": \"foo\"",
            ),
            ("EXPLAIN (FORMAT XML) SELECT 1", "0A000 unsupported: EXPLAIN (FORMAT XML): use TEXT or JSON"),
            ("EXPLAIN (TIMING) SELECT 1", "22023 EXPLAIN option TIMING requires ANALYZE"),
        ] {
            assert_eq!(rewritten(sql), expected, "{sql}");
        }
    }
}
