//! Runs `tests/sql/*.slt` under each configuration of the matrix.
//!
//! A file is a list of records, separated by blank lines; `#` begins a comment line.
//!
//! ```text
//! session b                    the session of the records that follow; `main` at first
//!
//! statement ok                 must succeed
//! SQL, perhaps several lines
//!
//! statement count 3            must succeed and change 3 rows
//! statement error some text    must fail, with this in its message
//!
//! query [rowsort]              must return these rows, columns separated by one blank
//! SQL
//! ----
//! 1 NULL text
//!
//! plan                         EXPLAIN must have these parts, and not those behind `!`
//! SQL
//! ----
//! EntresolScan: table=t, access=point
//! ! SortExec
//! ```
//!
//! `keep-open` as the first record: the file has session settings, so the database is not opened again
//! between its statements.

use entresol_memory::{DomainChoice, Durability, Pool, PoolOptions};
use entresol_query::arrow::record_batch::RecordBatch;
use entresol_query::arrow::util::display::{ArrayFormatter, FormatOptions};
use entresol_query::{Session, SessionOptions, StatementResult};
use entresol_tables::Catalog;
use entresol_transactions::StateContext;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone, Copy)]
struct Configuration {
    journal: bool,
    /// True to close and open the database after each record outside of transactions.
    reopen: bool,
    durability: Durability,
    target_partitions: usize,
}

/// Database of a test, which can be closed and opened again.
pub(crate) struct TestDatabase {
    configuration: Configuration,
    directory: tempfile::TempDir,
    catalog: Option<Arc<Catalog>>,
}

impl TestDatabase {
    fn new(configuration: Configuration) -> TestDatabase {
        let directory = tempfile::tempdir().unwrap();
        let mut database = TestDatabase { configuration, directory, catalog: None };
        database.open();
        database
    }

    pub(crate) fn volatile() -> TestDatabase {
        TestDatabase::new(Configuration {
            journal: false,
            reopen: false,
            durability: Durability::Sync,
            target_partitions: 2,
        })
    }

    pub(crate) fn journal() -> TestDatabase {
        TestDatabase::new(Configuration {
            journal: true,
            reopen: false,
            durability: Durability::Sync,
            target_partitions: 2,
        })
    }

    /// Opens a copy of the files, as a kill of the process would leave them now; requires that no writer is
    /// active.
    pub(crate) fn copied(&self) -> TestDatabase {
        let directory = tempfile::tempdir().unwrap();
        for file in std::fs::read_dir(self.directory.path()).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), directory.path().join(file.file_name())).unwrap();
        }
        let mut database = TestDatabase { configuration: self.configuration, directory, catalog: None };
        database.open();
        database
    }

    fn open(&mut self) {
        let choice = if self.configuration.journal { DomainChoice::Journal } else { DomainChoice::Volatile };
        let options = PoolOptions { domain: choice, ..PoolOptions::default() };
        let pool = if self.configuration.journal {
            self.open_pool(&options)
        } else {
            Pool::volatile(&options).unwrap()
        };
        self.catalog = Some(Catalog::open_or_create(StateContext::open_or_create(pool).unwrap()).unwrap());
    }

    /// Opens the pool; waits for tasks of queries that ended early, which may still hold it.
    fn open_pool(&self, options: &PoolOptions) -> Arc<Pool> {
        for _ in 0..500 {
            match Pool::open_or_create(self.directory.path(), options) {
                Err(entresol_memory::Error::Busy { .. }) => std::thread::sleep(Duration::from_millis(10)),
                opened => return opened.unwrap(),
            }
        }
        panic!("something keeps the pool open");
    }

    fn reopen(&mut self) {
        let catalog = self.catalog.take().unwrap();
        catalog.release_cached_sequences();
        catalog.context().pool().close().unwrap();
        drop(catalog);
        self.open();
    }

    pub(crate) fn catalog(&self) -> &Arc<Catalog> {
        self.catalog.as_ref().unwrap()
    }

    pub(crate) fn session(&self) -> Session {
        let options = SessionOptions {
            durability: self.configuration.durability,
            target_partitions: Some(self.configuration.target_partitions),
            ..SessionOptions::default()
        };
        Session::new(Arc::clone(self.catalog()), options)
    }
}

struct Record {
    line: usize,
    command: String,
    sql: String,
    expected: Vec<String>,
}

fn parse(text: &str) -> Vec<Record> {
    let mut records = Vec::new();
    let lines: Vec<(usize, &str)> =
        text.lines().enumerate().filter(|(_, line)| !line.starts_with('#')).collect();
    for block in lines.split(|(_, line)| line.trim().is_empty()).filter(|block| !block.is_empty()) {
        let mut parts = block[1..].split(|(_, line)| *line == "----");
        let joined =
            |part: &[(usize, &str)]| part.iter().map(|(_, line)| (*line).to_owned()).collect::<Vec<_>>();
        records.push(Record {
            line: block[0].0 + 1,
            command: block[0].1.trim().to_owned(),
            sql: parts.next().map(joined).unwrap_or_default().join("\n"),
            expected: parts.next().map(joined).unwrap_or_default(),
        });
    }
    records
}

pub(crate) fn rows(batches: &[RecordBatch]) -> Vec<String> {
    let options = FormatOptions::default().with_null("NULL");
    let mut rows = Vec::new();
    for batch in batches {
        let formatters: Vec<_> =
            batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &options).unwrap()).collect();
        for row in 0..batch.num_rows() {
            let mut text = String::new();
            for (at, formatter) in formatters.iter().enumerate() {
                let separator = if at == 0 { "" } else { " " };
                write!(text, "{separator}{}", formatter.value(row)).unwrap();
            }
            rows.push(text);
        }
    }
    rows
}

async fn run_record(session: &mut Session, record: &Record) -> Result<(), String> {
    let words: Vec<&str> = record.command.splitn(3, ' ').collect();
    match words.as_slice() {
        ["statement", "ok"] => {
            session.execute(&record.sql).await.map_err(|error| format!("failed: {error}"))?;
            Ok(())
        }
        ["statement", "count", expected] => {
            let results = session.execute(&record.sql).await.map_err(|error| format!("failed: {error}"))?;
            match results.last() {
                Some(StatementResult::Count { rows, .. }) if rows.to_string() == *expected => Ok(()),
                other => Err(format!("gave {other:?}")),
            }
        }
        ["statement", "error", expected] => match session.execute(&record.sql).await {
            Err(error) if error.to_string().contains(expected) => Ok(()),
            Err(error) => Err(format!("failed otherwise: {error}")),
            Ok(results) => Err(format!("succeeded: {results:?}")),
        },
        ["query", order @ ..] => {
            let batches = session.query(&record.sql).await.map_err(|error| format!("failed: {error}"))?;
            let (mut actual, mut expected) = (rows(&batches), record.expected.clone());
            if order == ["rowsort"] {
                actual.sort();
                expected.sort();
            }
            if actual == expected { Ok(()) } else { Err(format!("returned\n{}", actual.join("\n"))) }
        }
        ["plan"] => {
            let explain = format!("EXPLAIN FORMAT INDENT {}", record.sql);
            let batches = session.query(&explain).await.map_err(|error| format!("failed: {error}"))?;
            let plan = rows(&batches).join("\n");
            for part in &record.expected {
                let (part, wanted) =
                    part.strip_prefix("! ").map_or((part.as_str(), true), |part| (part, false));
                if plan.contains(part) != wanted {
                    return Err(format!("{part:?} is {}in\n{plan}", if wanted { "not " } else { "" }));
                }
            }
            Ok(())
        }
        other => Err(format!("unknown command {other:?}")),
    }
}

/// Runs a file; returns the records that failed.
async fn run_file(path: &Path, configuration: Configuration) -> Vec<String> {
    let mut failures = Vec::new();
    let mut database = TestDatabase::new(configuration);
    let mut sessions: HashMap<String, Session> = HashMap::new();
    let mut name = "main".to_owned();
    let mut may_reopen = configuration.reopen;
    for record in parse(&std::fs::read_to_string(path).unwrap()) {
        if let Some(session) = record.command.strip_prefix("session ") {
            name = session.to_owned();
            continue;
        }
        if record.command == "keep-open" {
            may_reopen = false;
            continue;
        }
        let session = sessions.entry(name.clone()).or_insert_with(|| database.session());
        if let Err(message) = run_record(session, &record).await {
            failures.push(format!("{}:{}: {}\n{message}", path.display(), record.line, record.sql));
        }
        if may_reopen && !sessions.values().any(Session::in_transaction) {
            sessions.clear();
            database.reopen();
        }
    }
    sessions.clear();
    database.catalog.take().unwrap().context().pool().close().unwrap();
    failures
}

fn run_all(configuration: Configuration) {
    let directory = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("tests/sql");
    let mut paths: Vec<_> =
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "slt"));
    paths.sort();
    assert!(paths.len() >= 5, "the test files are not where they should be");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut failures = Vec::new();
    for path in paths {
        failures.extend(runtime.block_on(run_file(&path, configuration)));
    }
    assert!(failures.is_empty(), "{} records failed:\n\n{}", failures.len(), failures.join("\n\n"));
}

#[test]
fn sql_on_a_volatile_pool() {
    run_all(Configuration {
        journal: false,
        reopen: false,
        durability: Durability::Sync,
        target_partitions: 4,
    });
}

#[test]
fn sql_on_a_journal() {
    run_all(Configuration {
        journal: true,
        reopen: false,
        durability: Durability::None,
        target_partitions: 1,
    });
}

#[test]
fn sql_with_the_database_opened_again_after_each_statement() {
    run_all(Configuration {
        journal: true,
        reopen: true,
        durability: Durability::Sync,
        target_partitions: 2,
    });
}
