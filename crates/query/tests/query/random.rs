//! Random queries over small random tables, against DuckDB: `tests/random-queries` generates, compares and
//! minimises them, and runs ours through the pipes of this test.
//!
//! ```text
//!   a line of SQL ─▶ the types of the columns, a line for each row, `.`; or `!` and the error
//! ```
//!
//! 1,000 queries of one seed; `make random-queries` runs more, of another. Without the Python package of
//! DuckDB the test is skipped, and says so.

use crate::runner::TestDatabase;
use entresol_query::arrow::array::Array;
use entresol_query::arrow::datatypes::DataType;
use entresol_query::arrow::record_batch::RecordBatch;
use entresol_query::arrow::util::display::{ArrayFormatter, FormatOptions};
use entresol_query::{Session, StatementResult};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Separator of the values of a row, and representation of NULL.
const SEPARATOR: char = '\u{1f}';
const NULL: char = '\u{0}';
const TIMEOUT: Duration = Duration::from_secs(30);
const QUERIES: &str = "1000";
const SEED: &str = "1";

/// Python interpreter that `make drivers` installs.
fn python() -> Option<PathBuf> {
    let given = std::env::var_os("ENTRESOL_DRIVERS").map(PathBuf::from);
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cache")));
    let python = given.or_else(|| Some(cache?.join("entresol/drivers")))?.join("venv/bin/python");
    let found = Command::new(&python).args(["-c", "import duckdb"]).stderr(Stdio::null()).status();
    if !found.is_ok_and(|status| status.success()) {
        eprintln!("skipped: {} has no DuckDB, `make drivers` installs it", python.display());
        return None;
    }
    Some(python)
}

fn type_name(of: &DataType) -> &'static str {
    match of {
        DataType::Boolean => "boolean",
        of if of.is_integer() => "integer",
        of if of.is_floating() => "double",
        DataType::Decimal128(..) => "decimal",
        DataType::Date32 => "date",
        _ => "text",
    }
}

fn answer(batches: &[RecordBatch], out: &mut String) {
    let Some(first) = batches.first() else { return };
    let types: Vec<&str> = first.schema().fields().iter().map(|field| type_name(field.data_type())).collect();
    writeln!(out, "{}", types.join(",")).unwrap();
    let options = FormatOptions::default();
    for batch in batches {
        let formatters: Vec<_> =
            batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &options).unwrap()).collect();
        for row in 0..batch.num_rows() {
            for (at, formatter) in formatters.iter().enumerate() {
                if at > 0 {
                    out.push(SEPARATOR);
                }
                if batch.column(at).is_null(row) {
                    out.push(NULL)
                } else {
                    write!(out, "{}", formatter.value(row)).unwrap()
                }
            }
            out.push('\n');
        }
    }
}

async fn run(session: &mut Session, sql: &str) -> String {
    let mut out = String::new();
    match tokio::time::timeout(TIMEOUT, session.execute(sql)).await {
        Ok(Ok(results)) => {
            if let Some(StatementResult::Rows(rows)) = results.last() {
                answer(&rows.batches, &mut out);
            }
            out.push_str(".\n");
        }
        Ok(Err(error)) => {
            writeln!(out, "!{} {}", error.sqlstate(), error.to_string().replace('\n', " ")).unwrap();
        }
        Err(_) => out.push_str("!57014 it took too long\n"),
    }
    out
}

#[test]
fn random_queries_give_what_duckdb_gives() {
    let Some(python) = python() else { return };
    let setting = |name: &str, otherwise: &str| std::env::var(name).unwrap_or_else(|_| otherwise.to_owned());
    let script = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap())
        .join("../../tests/random-queries/run.py");
    let mut child = Command::new(python)
        .arg(script)
        .args(["--queries", &setting("ENTRESOL_RANDOM_QUERIES", QUERIES)])
        .args(["--seed", &setting("ENTRESOL_RANDOM_SEED", SEED)])
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut answers, questions) =
        (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let database = TestDatabase::volatile();
    let mut session = database.session();
    for sql in questions.lines() {
        let answer = runtime.block_on(run(&mut session, &sql.unwrap()));
        if answers.write_all(answer.as_bytes()).and_then(|()| answers.flush()).is_err() {
            break;
        }
    }
    drop(answers);
    assert!(child.wait().unwrap().success(), "queries differ, see above");
}
