//! Churn: sessions insert and delete rows of their own for ten minutes; time, memory and space must stay
//! flat.
//!
//! Eight sessions each keep a window of rows that moves on through the keys of `moving`, and rewrite the same
//! keys of `rewritten`, which has a history of ten seconds. Beside them a reader scans without a pause, and
//! another one holds a snapshot for half a minute in the middle. Each second `SELECT count(*)` is timed, and
//! resident memory and the blocks of the files are read. Asked: each of the four, in the last minute, within
//! a tenth of what it was in the second one; afterwards space within 1.3 times of a database freshly loaded
//! with the same rows. SQLite and RocksDB do the same with the moving rows where the lab is built with
//! `peers`.

#[cfg(feature = "peers")]
mod peers;
mod samples;

use crate::asked::AskedFigure;
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol::{Database, Durability, Options};
pub(super) use samples::resident_bytes;
use samples::{Sample, Samples, allocated_bytes};
use serde_json::json;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const SESSIONS: u64 = 8;
/// Rows of one INSERT or DELETE.
const BATCH_ROWS: u64 = 100;
/// Distance between the keys of two sessions.
const SESSION_KEYS: u64 = 1_000_000_000;
/// Largest quotient of the last minute and the second one.
const DRIFT_MAX: f64 = 1.1;
/// Largest quotient of the space after the run and that of a fresh copy.
const SPACE_MAX: f64 = 1.3;
/// Time that reclamation has after the run before space is measured.
const SETTLE_MAX: Duration = Duration::from_secs(60);
const TABLES: [&str; 2] = ["moving", "rewritten"];

pub(super) struct Sizes {
    total: Duration,
    /// Length of the two intervals that are compared; the first one begins after as long a time.
    interval: Duration,
    sample_every: Duration,
    snapshot: Duration,
    /// Batches that each session keeps.
    batches: u64,
}

impl Sizes {
    fn of(options: &RunOptions) -> Sizes {
        let sizes = Sizes::usual(options.quick);
        let Some(seconds) = options.seconds else { return sizes };
        let total = Duration::from_secs(seconds);
        let (interval, snapshot) = (sizes.interval.min(total / 8), sizes.snapshot.min(total / 10));
        Sizes { total, interval, snapshot, ..sizes }
    }

    fn usual(quick: bool) -> Sizes {
        if quick {
            Sizes {
                total: Duration::from_secs(15),
                interval: Duration::from_secs(3),
                sample_every: Duration::from_millis(250),
                snapshot: Duration::from_secs(2),
                batches: 5,
            }
        } else {
            Sizes {
                total: Duration::from_secs(600),
                interval: Duration::from_secs(60),
                sample_every: Duration::from_secs(1),
                snapshot: Duration::from_secs(30),
                batches: 50,
            }
        }
    }
}

/// Counters that the threads of a run share.
#[derive(Default)]
pub(super) struct Progress {
    stop: AtomicBool,
    batches: AtomicU64,
    scans: AtomicU64,
}

impl Progress {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Stops the other threads of a run when its owner returns, also with an error.
struct StopOnDrop<'a>(&'a Progress);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

/// Runs the experiment.
pub(super) fn run(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let sizes = Sizes::of(options);
    let dir = options.database_dir()?;
    let database = Database::open(dir.path().join("db"), Options::default().durability(Durability::None))?;
    let mut session = database.session()?;
    session.execute("CREATE TABLE moving (id BIGINT PRIMARY KEY, v BIGINT, note VARCHAR)")?;
    session.execute(
        "CREATE TABLE rewritten (id BIGINT PRIMARY KEY, v BIGINT, note VARCHAR) WITH (history = '10 seconds')",
    )?;
    let progress = Progress::default();
    let samples = churn(&database, &dir.path().join("db"), &sizes, &progress)?;
    report.row(json!({
        "store": "Entresol",
        "batches": progress.batches.load(Ordering::Relaxed),
        "scans": progress.scans.load(Ordering::Relaxed),
        "rows_changed_per_s":
            progress.batches.load(Ordering::Relaxed) as f64 * BATCH_ROWS as f64 * 4.0 / sizes.total.as_secs_f64(),
    }));
    samples.report("Entresol", &sizes, (!options.quick).then_some(DRIFT_MAX), report);
    for table in TABLES {
        let rows = count(&mut session, table)?;
        let expected = SESSIONS * sizes.batches * BATCH_ROWS;
        report
            .check(&format!("{table} has the rows of its {SESSIONS} sessions at the end"), rows == expected);
    }
    drop(session);
    space(options, &database, dir.path(), report)?;
    database.close()?;
    #[cfg(feature = "peers")]
    peers::run(options, &sizes, report)?;
    Ok(())
}

/// Lets all threads run for the time of the sizes, and samples beside them.
fn churn(database: &Database, dir: &Path, sizes: &Sizes, progress: &Progress) -> Result<Samples, Error> {
    std::thread::scope(|scope| {
        let stop = StopOnDrop(progress);
        let mut threads = Vec::new();
        for number in 0..SESSIONS {
            threads.push(scope.spawn(move || work(database, number, sizes, progress)));
        }
        threads.push(scope.spawn(move || scan(database, progress)));
        threads.push(scope.spawn(move || hold(database, sizes, progress)));
        let samples = sample(database, dir, sizes)?;
        drop(stop);
        for thread in threads {
            thread.join().expect("a thread of the run panicked")?;
        }
        Ok(samples)
    })
}

/// One session: after its first rows, each round inserts a batch and deletes one, in each table.
fn work(database: &Database, number: u64, sizes: &Sizes, progress: &Progress) -> Result<(), Error> {
    let mut session = database.session()?;
    let base = number * SESSION_KEYS;
    let mut round = 0;
    while round < sizes.batches || !progress.stopped() {
        let first = base + round * BATCH_ROWS;
        if round >= sizes.batches {
            let oldest = base + (round - sizes.batches) * BATCH_ROWS;
            session.execute(&delete("moving", oldest))?;
            session.execute(&delete("rewritten", base + round % sizes.batches * BATCH_ROWS))?;
        }
        session.execute(&insert("moving", first, round))?;
        session.execute(&insert("rewritten", base + round % sizes.batches * BATCH_ROWS, round))?;
        round += 1;
        progress.batches.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

fn insert(table: &str, first: u64, round: u64) -> String {
    let rows: Vec<String> = (first..first + BATCH_ROWS)
        .map(|id| format!("({id}, {}, 'a note of round {round}')", id * 3))
        .collect();
    format!("INSERT INTO {table} VALUES {}", rows.join(", "))
}

fn delete(table: &str, first: u64) -> String {
    format!("DELETE FROM {table} WHERE id >= {first} AND id < {}", first + BATCH_ROWS)
}

/// A reader that scans both tables again and again; in each the sum must fit the keys.
fn scan(database: &Database, progress: &Progress) -> Result<(), Error> {
    let mut session = database.session()?;
    while !progress.stopped() {
        for table in TABLES {
            let wrong = number(&mut session, &format!("SELECT count(*) FROM {table} WHERE v <> id * 3"))?;
            if wrong != 0 {
                return Err(Error::Invalid(format!("{wrong} rows of {table} are not what was inserted")));
            }
        }
        progress.scans.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// A reader that holds one snapshot for long, from a third of the run on.
fn hold(database: &Database, sizes: &Sizes, progress: &Progress) -> Result<(), Error> {
    pause(sizes.total / 3, progress);
    let mut session = database.session()?;
    session.execute("BEGIN")?;
    let before = count(&mut session, "moving")?;
    pause(sizes.snapshot, progress);
    let after = count(&mut session, "moving")?;
    session.execute("COMMIT")?;
    if before == after {
        Ok(())
    } else {
        Err(Error::Invalid(format!("a snapshot had {before} rows, and {after} later")))
    }
}

fn pause(time: Duration, progress: &Progress) {
    let end = Instant::now() + time;
    while Instant::now() < end && !progress.stopped() {
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn sample(database: &Database, dir: &Path, sizes: &Sizes) -> Result<Samples, Error> {
    let mut session = database.session()?;
    let begin = Instant::now();
    let mut samples = Samples::default();
    while begin.elapsed() < sizes.total {
        std::thread::sleep(sizes.sample_every);
        let at = begin.elapsed();
        let started = Instant::now();
        count(&mut session, "moving")?;
        samples.push(Sample {
            at,
            count_ms: started.elapsed().as_secs_f64() * 1e3,
            resident_bytes: resident_bytes()?,
            pool_bytes: allocated_bytes(dir, |name| name == "pool.entresol")?,
            journal_bytes: allocated_bytes(dir, |name| name == "journal.entresol")?,
        });
    }
    Ok(samples)
}

/// Space of the database after the run beside that of a new one with the same rows.
fn space(options: &RunOptions, database: &Database, dir: &Path, report: &mut Report) -> Result<(), Error> {
    let fresh = Database::open(dir.join("fresh"), Options::default().durability(Durability::None))?;
    let mut from = database.session()?;
    let mut to = fresh.session()?;
    to.execute("CREATE TABLE moving (id BIGINT PRIMARY KEY, v BIGINT, note VARCHAR)")?;
    to.execute("CREATE TABLE rewritten (id BIGINT PRIMARY KEY, v BIGINT, note VARCHAR)")?;
    for table in TABLES {
        for batch in from.query(&format!("SELECT id, note FROM {table} ORDER BY id"))? {
            let ids = entresol::arrow::array::AsArray::as_primitive::<entresol::arrow::datatypes::Int64Type>(
                batch.column(0),
            );
            let text = |row| entresol::arrow::util::display::array_value_to_string(batch.column(1), row);
            let mut rows = Vec::new();
            for row in 0..batch.num_rows() {
                let note = text(row).map_err(|error| Error::Invalid(error.to_string()))?;
                rows.push(format!("({}, {}, '{note}')", ids.value(row), ids.value(row) * 3));
            }
            to.execute(&format!("INSERT INTO {table} VALUES {}", rows.join(", ")))?;
        }
    }
    drop((from, to));
    fresh.checkpoint()?;
    let pool = |name: &str| allocated_bytes(&dir.join(name), |file| file == "pool.entresol");
    let fresh_bytes = pool("fresh")?;
    let fresh_allocated = fresh.catalog().context().pool().stats().allocated_bytes;
    fresh.close()?;
    let begin = Instant::now();
    let quotient = |bytes: u64| bytes as f64 / fresh_bytes.max(1) as f64;
    let settle = if options.quick { SETTLE_MAX / 12 } else { SETTLE_MAX };
    let mut bytes = pool("db")?;
    while quotient(bytes) > SPACE_MAX && begin.elapsed() < settle {
        std::thread::sleep(Duration::from_millis(500));
        database.checkpoint()?;
        bytes = pool("db")?;
    }
    let allocated = database.catalog().context().pool().stats().allocated_bytes;
    report.row(json!({
        "store": "Entresol",
        "pool_bytes_after": bytes,
        "pool_bytes_of_a_fresh_copy": fresh_bytes,
        "settled_s": begin.elapsed().as_secs_f64(),
        "allocated_bytes_after": allocated,
        "allocated_bytes_of_a_fresh_copy": fresh_allocated,
    }));
    let name = "space after the run to that of a fresh copy";
    report.asked(AskedFigure::at_most(name, quotient(bytes), SPACE_MAX));
    Ok(())
}

fn count(session: &mut entresol::Session, table: &str) -> Result<u64, Error> {
    number(session, &format!("SELECT count(*) FROM {table}"))
}

fn number(session: &mut entresol::Session, sql: &str) -> Result<u64, Error> {
    let batches = session.query(sql)?;
    let text = entresol::arrow::util::display::array_value_to_string(batches[0].column(0), 0);
    let text = text.map_err(|error| Error::Invalid(format!("{sql}: {error}")))?;
    text.parse().map_err(|_| Error::Invalid(format!("{sql} returned {text}, not a number")))
}
