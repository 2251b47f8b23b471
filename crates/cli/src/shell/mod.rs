//! `entresol shell DIR`: SQL by hand, from the command line, a file, or standard input.
//!
//! - Statements end with `;` and run one after the other in one session; the first error ends everything but
//!   the interactive shell, with exit status 1 and the message (and the line, where there is one) on standard
//!   error.
//! - `\` commands stand alone on a line, outside of a statement.
//! - The rows of a `COPY ... FROM STDIN` in a script follow it, up to a line `\.`, as `pg_dump` writes them.
//! - Memory: one statement's result at a time, as the session returns it.

mod inline_rows;
pub mod interactive;
pub mod meta;
pub mod output;

use crate::arguments::ShellArguments;
use crate::error::{Error, Result};
use entresol::query::{CopyStatement, Splitter, StatementKind, StatementText};
use entresol::{Database, Options, Session};
use inline_rows::InlineRows;
use output::Format;
use std::fs;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::Path;
use std::time::Instant;

/// Maximum length of a statement; a longer one is taken for a mistake.
pub const STATEMENT_BYTES_MAX: usize = 64 << 20;

/// A session with the user's choices for its output.
pub struct Shell {
    /// For the `\d` commands.
    pub database: Database,
    session: Session,
    /// Format of results.
    pub format: Format,
    /// Set if the time of each statement is printed.
    pub timing: bool,
    finished: bool,
}

/// Runs `entresol shell`.
pub fn run(arguments: &ShellArguments) -> Result<()> {
    let options = Options { durability: arguments.durability, ..arguments.storage.options() };
    let database = Database::open(&arguments.dir, options)?;
    let session = database.session()?;
    let mut shell = Shell { database, session, format: arguments.format, timing: false, finished: false };
    let outcome = shell.run_all(arguments);
    let Shell { database, session, .. } = shell;
    drop(session);
    let closed = database.close();
    outcome?;
    Ok(closed?)
}

impl Shell {
    fn run_all(&mut self, arguments: &ShellArguments) -> Result<()> {
        let mut out = output::stdout();
        for text in &arguments.command {
            self.run_text(text, None, &mut out)?;
        }
        for path in &arguments.file {
            self.run_file(path, &mut out)?;
        }
        if !arguments.command.is_empty() || !arguments.file.is_empty() {
            return Ok(out.flush()?);
        }
        if io::stdin().is_terminal() {
            drop(out);
            return interactive::run(self, arguments.no_history);
        }
        self.run_stream(&mut io::stdin().lock(), &mut out)?;
        Ok(out.flush()?)
    }

    /// For `\copy`.
    pub fn session_mut(&mut self) -> &mut Session {
        &mut self.session
    }

    /// True after `\q`.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// Ends the shell after the current command.
    pub fn finish(&mut self) {
        self.finished = true;
    }

    /// Runs one statement and prints its result.
    pub fn run_statement(&mut self, statement: &str, out: &mut dyn Write) -> Result<()> {
        let started = Instant::now();
        let results = self.session.execute(statement);
        for notice in self.session.take_notices() {
            eprintln!("{}:  {}", notice.level.name(), notice.message);
        }
        let results = results?;
        let elapsed = started.elapsed();
        for result in &results {
            output::print(result, self.format, out)?;
        }
        if self.timing {
            writeln!(out, "Time: {:.3} ms", elapsed.as_secs_f64() * 1000.0)?;
        }
        Ok(out.flush()?)
    }

    /// Runs a statement of a script; the rows of a COPY FROM STDIN follow it there.
    fn run_in_script(
        &mut self,
        statement: &StatementText<'_>,
        rows: &mut InlineRows<'_>,
        out: &mut dyn Write,
    ) -> Result<()> {
        let copy = match statement.kind {
            StatementKind::Copy => CopyStatement::parse(statement.sql).map_err(entresol::Error::from)?,
            _ => None,
        };
        match copy {
            Some(copy) if copy.reads_stdin() => {
                let copied = self.session.run_copy_in(&copy, rows)?;
                writeln!(out, "COPY {copied}")?;
            }
            Some(copy) if copy.writes_stdout() => {
                self.session.run_copy_out(&copy, out)?;
            }
            _ => return self.run_statement(statement.sql, out),
        }
        Ok(out.flush()?)
    }

    /// Runs all statements and `\` commands of a script; `name` and the line precede an error.
    pub fn run_text(&mut self, text: &str, name: Option<&str>, out: &mut dyn Write) -> Result<()> {
        let mut lines = io::Cursor::new(text.as_bytes());
        self.run_lines(&mut lines, name, out)
    }

    fn run_file(&mut self, path: &Path, out: &mut dyn Write) -> Result<()> {
        let file = fs::File::open(path).map_err(|error| Error::file("read", path, error))?;
        self.run_lines(&mut io::BufReader::new(file), Some(&path.display().to_string()), out)
    }

    fn run_stream(&mut self, input: &mut dyn BufRead, out: &mut dyn Write) -> Result<()> {
        self.run_lines(input, Some("standard input"), out)
    }

    fn run_lines(&mut self, input: &mut dyn BufRead, name: Option<&str>, out: &mut dyn Write) -> Result<()> {
        let at_line = |line: usize, error: Error| match name {
            Some(name) if !error.is_closed_output() => {
                Error::Invalid(format!("{name}, line {line}: {error}"))
            }
            _ => error,
        };
        // The line of the beginning of what is pending.
        let (mut pending, mut splitter, mut first_line, mut lines) =
            (String::new(), Splitter::default(), 1, 0);
        let mut line = Vec::new();
        while !self.finished {
            line.clear();
            let read = input.read_until(b'\n', &mut line);
            if read.map_err(|error| Error::Invalid(format!("cannot read the statements: {error}")))? == 0 {
                break;
            }
            lines += 1;
            let text = std::str::from_utf8(&line)
                .map_err(|_| at_line(lines, Error::Invalid("not UTF-8".to_string())))?;
            if pending.trim().is_empty() && text.trim_start().starts_with('\\') {
                pending.clear();
                meta::run(self, text.trim(), out).map_err(|error| at_line(lines, error))?;
                continue;
            }
            if pending.is_empty() {
                (first_line, splitter) = (lines, Splitter::default());
            }
            pending.push_str(text);
            let mut counted = 0;
            while let Some(statement) = splitter.next_statement(&pending) {
                first_line += lines_in(&pending[counted..statement.start]);
                counted = statement.start;
                let mut rows = InlineRows::new(input);
                self.run_in_script(&statement, &mut rows, out).map_err(|error| at_line(first_line, error))?;
                lines += rows.lines();
                first_line += rows.lines();
            }
            first_line += lines_in(&pending[counted..splitter.consumed()]);
            pending.drain(..splitter.consumed());
            splitter.forget_consumed();
            if pending.len() > STATEMENT_BYTES_MAX {
                let message = format!("statement exceeds the maximum of {STATEMENT_BYTES_MAX} bytes");
                return Err(at_line(first_line, Error::Invalid(message)));
            }
        }
        if !self.finished
            && let Some(statement) = splitter.rest(&pending)
        {
            let line = first_line + lines_in(&pending[..statement.start]);
            self.run_statement(statement.sql, out).map_err(|error| at_line(line, error))?;
        }
        Ok(())
    }
}

/// Number of line ends in a text.
fn lines_in(text: &str) -> usize {
    text.matches('\n').count()
}
