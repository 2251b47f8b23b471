//! The shell at a terminal: line editing, history, completion, statements over several lines.
//!
//! The history is stored in `$ENTRESOL_HISTORY`, else in `$XDG_STATE_HOME/entresol/history`, else in
//! `~/.local/state/entresol/history`; at most [`HISTORY_ENTRIES_MAX`] entries. Where it cannot be stored, the
//! shell works without.

use super::{Shell, meta, output};
use crate::error::{Error, Result};
use entresol::query::{Splitter, statements};
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Config, Context, Editor, Helper};
use std::env;
use std::fs;
use std::io::Write;
use std::path::PathBuf;

/// Maximum number of entries of the history.
pub const HISTORY_ENTRIES_MAX: usize = 10_000;

const KEYWORDS: [&str; 40] = [
    "SELECT", "FROM", "WHERE", "GROUP", "ORDER", "BY", "HAVING", "LIMIT", "OFFSET", "INSERT", "INTO",
    "VALUES", "UPDATE", "SET", "DELETE", "CREATE", "DROP", "TABLE", "PRIMARY", "KEY", "NOT", "NULL", "BEGIN",
    "COMMIT", "ROLLBACK", "JOIN", "LEFT", "INNER", "ON", "AS", "AND", "OR", "COUNT", "DISTINCT", "BETWEEN",
    "EXPLAIN", "UNION", "CASE", "EXISTS", "WITH",
];

/// Line editor helper: decides if the input is complete, and completes words.
struct Assistant {
    tables: Vec<String>,
}

impl Validator for Assistant {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let input = context.input();
        if input.trim_start().starts_with('\\') {
            return Ok(ValidationResult::Valid(None));
        }
        let mut splitter = Splitter::default();
        while splitter.next_statement(input).is_some() {}
        let complete = splitter.rest(input).is_none() && !splitter.is_unclosed();
        Ok(if complete { ValidationResult::Valid(None) } else { ValidationResult::Incomplete })
    }
}

impl Completer for Assistant {
    type Candidate = String;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let from = line[..at]
            .rfind(|c| !is_word(c))
            .map_or(0, |before| before + line[before..].chars().next().map_or(1, char::len_utf8));
        let word = &line[from..at];
        if word.is_empty() {
            return Ok((at, Vec::new()));
        }
        let upper = word.to_uppercase();
        let keywords = KEYWORDS.iter().filter(|keyword| keyword.starts_with(&upper)).map(|k| k.to_string());
        let tables = self.tables.iter().filter(|name| name.starts_with(&word.to_lowercase())).cloned();
        Ok((from, tables.chain(keywords).collect()))
    }
}

impl Hinter for Assistant {
    type Hint = String;
}
impl Highlighter for Assistant {}
impl Helper for Assistant {}

/// Reads and runs until `\q` or Ctrl-D. Errors of statements are printed; the shell goes on.
pub fn run(shell: &mut Shell, no_history: bool) -> Result<()> {
    let failed = |error: ReadlineError| Error::Invalid(format!("the terminal cannot be used: {error}"));
    let config = Config::builder()
        .max_history_size(HISTORY_ENTRIES_MAX)
        .and_then(|config| config.history_ignore_dups(true))
        .map_err(failed)?
        .build();
    let mut editor: Editor<Assistant, DefaultHistory> = Editor::with_config(config).map_err(failed)?;
    let history = if no_history { None } else { history_path() };
    if let Some(path) = &history {
        // No history yet is no error.
        let _ = editor.load_history(path);
    }
    let mut out = output::stdout();
    writeln!(out, "Entresol {}. \\? for help, \\q to leave.", env!("CARGO_PKG_VERSION"))?;
    out.flush()?;
    // The lock is not to be held while lines are read.
    drop(out);
    while !shell.is_finished() {
        let tables = shell.database.catalog().tables().iter().map(|table| table.name().to_string()).collect();
        editor.set_helper(Some(Assistant { tables }));
        match editor.readline("entresol> ") {
            Ok(input) => {
                let _ = editor.add_history_entry(input.trim_end());
                if let Err(error) = run_input(shell, &input) {
                    if error.is_closed_output() {
                        return Err(error);
                    }
                    eprintln!("error: {error}");
                }
            }
            Err(ReadlineError::Interrupted) => {}
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(failed(error)),
        }
    }
    if let Some(path) = history
        && let Err(error) = editor.save_history(&path)
    {
        tracing::warn!("cannot save the history in {}: {error}", path.display());
    }
    Ok(())
}

fn run_input(shell: &mut Shell, input: &str) -> Result<()> {
    let mut out = output::stdout();
    let trimmed = input.trim();
    if trimmed.starts_with('\\') {
        return meta::run(shell, trimmed, &mut out);
    }
    for statement in statements(input) {
        shell.run_statement(statement.sql, &mut out)?;
    }
    Ok(())
}

/// The file of the history, its directory created.
fn history_path() -> Option<PathBuf> {
    let path = match env::var_os("ENTRESOL_HISTORY") {
        Some(path) => PathBuf::from(path),
        None => {
            let state = env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
            let state = state.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".local/state")))?;
            state.join("entresol/history")
        }
    };
    fs::create_dir_all(path.parent()?).ok()?;
    Some(path)
}
