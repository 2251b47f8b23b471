//! Statements that stop, snapshots that are held for too long, commits of unknown outcome.
#![allow(clippy::unwrap_used)]

use entresol::arrow::array::AsArray;
use entresol::memory::Env;
use entresol::memory::env::{Fault, FaultyFiles};
use entresol::{Database, DomainChoice, ErrorKind, Options};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[test]
fn a_snapshot_that_is_too_old_ends_and_says_so() {
    let age = Duration::from_millis(300);
    let database = Database::volatile(Options::default().max_snapshot_age(age)).unwrap();
    let mut session = database.session().unwrap();
    session.execute("CREATE TABLE t (id INT PRIMARY KEY); INSERT INTO t VALUES (1)").unwrap();
    let mut reader = database.session().unwrap();
    reader.execute("BEGIN").unwrap();
    reader.query("SELECT * FROM t").unwrap();
    std::thread::sleep(age * 3);
    let error = reader.query("SELECT * FROM t").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(error.message().contains("snapshot too old"), "{error}");
    reader.execute("ROLLBACK").unwrap();
    assert_eq!(reader.query("SELECT * FROM t").unwrap()[0].num_rows(), 1);
    // A writer's block commits nothing either.
    reader.execute("BEGIN; INSERT INTO t VALUES (2)").unwrap();
    std::thread::sleep(age * 3);
    assert!(reader.execute("COMMIT").unwrap_err().message().contains("snapshot too old"));
    assert_eq!(session.query("SELECT * FROM t").unwrap()[0].num_rows(), 1);
    // Statements that come in time are not touched.
    let start = Instant::now();
    while start.elapsed() < age * 3 {
        session.execute("BEGIN; SELECT * FROM t; COMMIT").unwrap();
    }
    drop((session, reader));
    database.close().unwrap();
}

#[test]
fn vacuum_says_which_session_holds_it_back() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut writer = database.session().unwrap();
    writer
        .execute(
            "CREATE TABLE t (id INT PRIMARY KEY); INSERT INTO t SELECT value FROM generate_series(1, 500)",
        )
        .unwrap();
    let mut reader = database.session().unwrap();
    reader.execute("BEGIN").unwrap();
    reader.query("SELECT count(*) FROM t").unwrap();
    writer.execute("DELETE FROM t; VACUUM t").unwrap();
    let mut holder = || {
        let held = writer.query("SELECT coalesce(held_by, 'nobody') FROM entresol.vacuum").unwrap();
        held[0].column(0).as_string::<i32>().value(0).to_owned()
    };
    let held = holder();
    assert!(held.starts_with("a session of entresol in this process for 0 s (transaction "), "{held}");
    reader.execute("COMMIT").unwrap();
    drop(reader);
    assert_eq!(holder(), "nobody");
    drop(writer);
    database.close().unwrap();
}

#[test]
fn a_statement_timeout_stops_sessions_without_a_server_too() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session.execute("CREATE TABLE t (id INT PRIMARY KEY); SET statement_timeout = '200ms'").unwrap();
    let error = session.execute("INSERT INTO t SELECT value FROM generate_series(1, 100000000)").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
    assert_eq!(session.query("SELECT count(*) FROM t WHERE id > 0").unwrap()[0].num_rows(), 1);
    assert!(session.query("SELECT id FROM t").unwrap().iter().all(|batch| batch.num_rows() == 0));
    drop(session);
    database.close().unwrap();
}

#[test]
fn a_commit_of_unknown_outcome_has_a_kind_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let files = FaultyFiles::new();
    let mut options = Options::default().domain(DomainChoice::Journal);
    options.env = Env::real().with_files(Arc::new(files.clone()));
    let database = Database::open(dir.path().join("db"), options).unwrap();
    let mut session = database.session().unwrap();
    session.execute("CREATE TABLE t (id INT PRIMARY KEY); INSERT INTO t VALUES (1)").unwrap();
    files.arm(Fault::SyncError, 0);
    let error = session.execute("INSERT INTO t VALUES (2)").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
    // Later commits did not happen, and fail with another error.
    assert_eq!(session.execute("INSERT INTO t VALUES (3)").unwrap_err().kind(), ErrorKind::Io);
}
