//! VACUUM as it was written:
//!
//! ```text
//! VACUUM [FULL] [FREEZE] [VERBOSE] [ANALYZE] [table, ...]
//! VACUUM (option [value], ...) [table, ...]
//! ```

use crate::error::{Error, Result};
use crate::schema_names::{CATALOG, SCHEMA};
use datafusion::sql::sqlparser::tokenizer::Token;

/// The options of PostgreSQL's that may stand without parentheses.
const PLAIN_OPTIONS: [&str; 4] = ["full", "freeze", "verbose", "analyze"];

/// All of them.
const OPTIONS: [&str; 14] = [
    "full",
    "freeze",
    "verbose",
    "analyze",
    "disable_page_skipping",
    "skip_locked",
    "index_cleanup",
    "process_main",
    "process_toast",
    "truncate",
    "parallel",
    "skip_database_stats",
    "only_database_stats",
    "buffer_usage_limit",
];

/// VACUUM statement.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Vacuum {
    /// None: all.
    pub(crate) tables: Vec<String>,
    pub(crate) full: bool,
    pub(crate) verbose: bool,
    pub(crate) analyze: bool,
    /// Options that are on and change nothing.
    pub(crate) without_effect: Vec<String>,
}

impl Vacuum {
    /// Parses the tokens of a statement that begins with VACUUM.
    pub(crate) fn parse(tokens: &[&Token]) -> Result<Vacuum> {
        let (mut vacuum, mut at) = (Vacuum::default(), 1);
        if tokens.get(at) == Some(&&Token::LParen) {
            let close = tokens.iter().position(|token| **token == Token::RParen);
            let close = close.ok_or_else(|| wrong(tokens))?;
            for option in tokens[at + 1..close].split(|token| **token == Token::Comma) {
                vacuum.option(option).ok_or_else(|| wrong(tokens))?;
            }
            at = close + 1;
        } else {
            while let Some(option) = tokens
                .get(at)
                .and_then(|token| plain(token))
                .filter(|word| PLAIN_OPTIONS.contains(&word.as_str()))
            {
                vacuum.take(option);
                at += 1;
            }
        }
        if at < tokens.len() {
            // A list of columns behind a name is ignored.
            let mut depth = 0;
            let named = tokens[at..].iter().copied().filter(|token| {
                depth += i32::from(**token == Token::LParen) - i32::from(**token == Token::RParen);
                depth == 0 && **token != Token::RParen
            });
            let named: Vec<&Token> = named.collect();
            for name in named.split(|token| **token == Token::Comma) {
                vacuum.tables.push(table(name).ok_or_else(|| wrong(tokens))?);
            }
        }
        Ok(vacuum)
    }

    /// Parses an option in parentheses; None: there is no such option.
    fn option(&mut self, tokens: &[&Token]) -> Option<()> {
        let (first, value) = tokens.split_first()?;
        let name = plain(first).filter(|name| OPTIONS.contains(&name.as_str()))?;
        let is_off = matches!(value, [value] if plain(value).is_some_and(|v| v == "false" || v == "off")
            || matches!(value, Token::Number(number, _) if number == "0"));
        if value.len() > 1 {
            return None;
        }
        if !is_off {
            self.take(name);
        }
        Some(())
    }

    fn take(&mut self, option: String) {
        match option.as_str() {
            "full" => self.full = true,
            "verbose" => self.verbose = true,
            "analyze" => self.analyze = true,
            _ => self.without_effect.push(option),
        }
    }
}

/// Unquoted word, in lower case.
fn plain(token: &Token) -> Option<String> {
    match token {
        Token::Word(word) if word.quote_style.is_none() => Some(word.value.to_ascii_lowercase()),
        _ => None,
    }
}

/// Name of a table, perhaps with schema and catalog.
fn table(tokens: &[&Token]) -> Option<String> {
    let mut parts = Vec::new();
    for part in tokens.split(|token| **token == Token::Period) {
        let [Token::Word(word)] = part else { return None };
        parts.push(word.quote_style.map_or_else(|| word.value.to_lowercase(), |_| word.value.clone()));
    }
    match parts.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [table] | [SCHEMA, table] | [CATALOG, SCHEMA, table] => Some((*table).to_owned()),
        _ => None,
    }
}

fn wrong(tokens: &[&Token]) -> Error {
    let text: Vec<String> = tokens.iter().map(ToString::to_string).collect();
    Error::Syntax(format!(
        "syntax error: {}: expected VACUUM [FULL] [FREEZE] [VERBOSE] [ANALYZE] [table, ...]",
        text.join(" ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::command::Command;
    use crate::parser::statement::parse as parse_text;

    fn parse(sql: &str) -> Result<(Vec<String>, bool)> {
        match parse_text(sql)?.pop() {
            Some(Command::Vacuum(vacuum)) => Ok((vacuum.tables, vacuum.full)),
            other => panic!("{sql}: {other:?}"),
        }
    }

    #[test]
    fn all_forms_are_read_and_others_are_refused_with_the_right_one() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(parse("VACUUM").unwrap(), (names(&[]), false));
        assert_eq!(parse("vacuum analyze T").unwrap(), (names(&["t"]), false));
        assert_eq!(parse("VACUUM FULL VERBOSE a, public.\"B\"").unwrap(), (names(&["a", "B"]), true));
        assert_eq!(parse("VACUUM (VERBOSE, FULL, PARALLEL 2) a (x, y)").unwrap(), (names(&["a"]), true));
        assert_eq!(parse("VACUUM (FULL off, ANALYZE true)").unwrap(), (names(&[]), false));
        let analyzes = |sql: &str| match parse_text(sql).unwrap().pop() {
            Some(Command::Vacuum(vacuum)) => vacuum.analyze,
            other => panic!("{sql}: {other:?}"),
        };
        assert!(analyzes("VACUUM ANALYZE t") && analyzes("VACUUM (FULL, ANALYZE)"));
        assert!(!analyzes("VACUUM (ANALYZE off) t") && !analyzes("VACUUM FULL t"));
        for sql in ["VACUUM (NONSENSE) t", "VACUUM t u", "VACUUM t,", "VACUUM (FULL", "VACUUM 'x'"] {
            let error = parse(sql).unwrap_err().to_string();
            assert!(error.contains("expected VACUUM"), "{sql}: {error}");
        }
    }
}
