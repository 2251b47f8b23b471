//! `VACUUM`: gives back now what the background gives back in time; and `entresol.vacuum`, which shows both.
//!
//! ```text
//! VACUUM [FULL] [FREEZE] [VERBOSE] [ANALYZE] [table, ...]
//! VACUUM (option [value], ...) [table, ...]
//! ```
//! Without tables it is all of them and the catalog. FULL gives free blocks of the file back to the disk, too. The
//! other options of PostgreSQL's are taken and change nothing: there is nothing to freeze, and statistics are not kept.
//!
//! It runs beside readers and writers, outside of a transaction. A statement that is given up ends between two slices; a table
//! that is dropped meanwhile is left to whoever frees dropped states.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use datafusion::arrow::array::{ArrayRef, StringArray, TimestampNanosecondArray, UInt64Array};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::Result as EngineResult;
use datafusion::sql::sqlparser::tokenizer::Token;
use entresol_tables::Catalog;
use entresol_transactions::{State, VacuumStats};

use crate::error::{Error, Result};
use crate::result::StatementResult;
use crate::schemas::{CATALOG, SCHEMA};
use crate::session::{Session, blocking};
use crate::snapshots::Sessions;

/// Between two lines of the log.
const LOG_EVERY: Duration = Duration::from_secs(5);
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

/// A VACUUM as it was written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Vacuum {
    /// None: all.
    tables: Vec<String>,
    full: bool,
}

impl Vacuum {
    /// Reads the tokens of a statement that begins with VACUUM.
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
                vacuum.full |= option == "full";
                at += 1;
            }
        }
        if at < tokens.len() {
            // A list of columns behind a name says nothing.
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

    /// An option in parentheses; None: there is no such option.
    fn option(&mut self, tokens: &[&Token]) -> Option<()> {
        let (first, value) = tokens.split_first()?;
        let name = plain(first).filter(|name| OPTIONS.contains(&name.as_str()))?;
        let is_off = matches!(value, [value] if plain(value).is_some_and(|v| v == "false" || v == "off")
            || matches!(value, Token::Number(number, _) if number == "0"));
        if value.len() > 1 {
            return None;
        }
        self.full |= name == "full" && !is_off;
        Some(())
    }
}

/// An unquoted word, in lower case.
fn plain(token: &Token) -> Option<String> {
    match token {
        Token::Word(word) if word.quote_style.is_none() => Some(word.value.to_ascii_lowercase()),
        _ => None,
    }
}

/// A table's name, perhaps with schema and catalog.
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
        "syntax error: {}: the statement is VACUUM [FULL] [FREEZE] [VERBOSE] [ANALYZE] [table, ...]",
        text.join(" ")
    ))
}

/// Ends the work of a statement that nobody waits for any more.
struct GivenUp(Arc<AtomicBool>);

impl Drop for GivenUp {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Runs it to the end.
pub(crate) async fn run(session: &Session, vacuum: &Vacuum) -> Result<StatementResult> {
    let catalog = Arc::clone(&session.catalog);
    let states = states(&catalog, &vacuum.tables)?;
    let given_up = GivenUp(Arc::default());
    let (stop, full) = (Arc::clone(&given_up.0), vacuum.full);
    let stats = blocking(move || -> Result<VacuumStats> {
        let stats = work(&catalog, &states, &stop)?;
        if full {
            let context = catalog.context();
            let beside = context.volatile_pool().into_iter().chain(context.disk_pool());
            for pool in beside.chain([context.pool()]) {
                pool.return_space().map_err(entresol_tables::Error::from)?;
            }
        }
        Ok(stats)
    })
    .await??;
    tracing::info!(?stats, "VACUUM is done");
    Ok(StatementResult::Done { verb: "VACUUM" })
}

/// The states of tables with their indexes; of all, if none is named.
fn states(catalog: &Arc<Catalog>, tables: &[String]) -> Result<Vec<Arc<State>>> {
    let context = catalog.context();
    if tables.is_empty() {
        return Ok(context.states());
    }
    let mut states = Vec::new();
    for name in tables {
        let table = catalog.table(name)?;
        states.push(Arc::clone(table.state()));
        states.extend(table.indexes().iter().filter_map(|index| context.state(index.state_id())));
    }
    Ok(states)
}

fn work(catalog: &Catalog, states: &[Arc<State>], stop: &AtomicBool) -> Result<VacuumStats> {
    let (began, mut told) = (Instant::now(), Instant::now());
    let done = catalog.context().vacuum_states(states, |stats| {
        if stop.load(Ordering::Acquire) {
            return Err(entresol_transactions::Error::Busy("the statement was given up"));
        }
        if told.elapsed() >= LOG_EVERY {
            told = Instant::now();
            tracing::info!(seconds = began.elapsed().as_secs(), ?stats, "VACUUM goes on");
        }
        Ok(())
    });
    Ok(done.map_err(entresol_tables::Error::from)?)
}

/// The content of `entresol.vacuum`.
pub(crate) fn progress(catalog: &Catalog, sessions: &Sessions) -> EngineResult<RecordBatch> {
    let mut names = std::collections::BTreeMap::new();
    for table in catalog.tables() {
        names.insert(table.state().id(), (table.name().to_owned(), None));
        for index in table.indexes() {
            names.insert(index.state_id(), (table.name().to_owned(), Some(index.name().to_owned())));
        }
    }
    let all = catalog.context().reclamation();
    let known: Vec<_> = all.iter().filter_map(|of| Some((names.get(&of.state)?, of))).collect();
    let number = |of: &dyn Fn(&entresol_transactions::StateReclamation) -> u64| -> ArrayRef {
        Arc::new(UInt64Array::from_iter_values(known.iter().map(|(_, row)| of(row))))
    };
    let passes: TimestampNanosecondArray =
        known.iter().map(|(_, of)| of.last_pass_ns.and_then(|at| i64::try_from(at).ok())).collect();
    let held = known.iter().map(|(_, of)| {
        of.held_by.map(|holder| {
            let who = sessions.holder(holder.transaction);
            let who = who.unwrap_or_else(|| "a transaction without a session".to_owned());
            format!("{who} (transaction {}, snapshot {})", holder.transaction, holder.snapshot)
        })
    });
    let columns: [(&str, ArrayRef); 7] = [
        ("table", Arc::new(StringArray::from_iter_values(known.iter().map(|((table, _), _)| table)))),
        ("index", Arc::new(known.iter().map(|((_, index), _)| index.as_deref()).collect::<StringArray>())),
        ("state", number(&|of| u64::from(of.state.0))),
        ("dead_keys", number(&|of| of.dead_keys)),
        ("reclaimed", number(&|of| of.reclaimed)),
        ("last_pass", Arc::new(passes.with_timezone("+00:00"))),
        ("held_by", Arc::new(held.collect::<StringArray>())),
    ];
    Ok(RecordBatch::try_from_iter(columns)?)
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::tokenizer::Tokenizer;

    use super::*;

    fn parse(sql: &str) -> Result<(Vec<String>, bool)> {
        let tokens = Tokenizer::new(&PostgreSqlDialect {}, sql).tokenize().unwrap();
        let tokens: Vec<&Token> =
            tokens.iter().filter(|token| !matches!(token, Token::Whitespace(_))).collect();
        Vacuum::parse(&tokens).map(|vacuum| (vacuum.tables, vacuum.full))
    }

    #[test]
    fn all_forms_are_read_and_others_are_refused_with_the_right_one() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(parse("VACUUM").unwrap(), (names(&[]), false));
        assert_eq!(parse("vacuum analyze T").unwrap(), (names(&["t"]), false));
        assert_eq!(parse("VACUUM FULL VERBOSE a, public.\"B\"").unwrap(), (names(&["a", "B"]), true));
        assert_eq!(parse("VACUUM (VERBOSE, FULL, PARALLEL 2) a (x, y)").unwrap(), (names(&["a"]), true));
        assert_eq!(parse("VACUUM (FULL off, ANALYZE true)").unwrap(), (names(&[]), false));
        for sql in ["VACUUM (NONSENSE) t", "VACUUM t u", "VACUUM t,", "VACUUM (FULL", "VACUUM 'x'"] {
            let error = parse(sql).unwrap_err().to_string();
            assert!(error.contains("the statement is VACUUM"), "{sql}: {error}");
        }
    }
}
