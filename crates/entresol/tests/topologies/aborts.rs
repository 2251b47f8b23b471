//! ABORT WHEN that holds, and what becomes of the rows of transactions that are dropped or end their topology.

use super::{append, rows, wait_for, wait_for_end};
use entresol::{Database, Options, Session};

const STATE: &str = "SELECT state FROM entresol.topologies";

fn create(session: &mut Session, path: &std::path::Path, on_error: &str, steps: &str) {
    session
        .execute(&format!(
            "CREATE SOURCE line (id INT NOT NULL, n INT) WITH (connector = 'file', path = '{}', tail = true);
             CREATE TABLE stored (id INT PRIMARY KEY, n INT);
             CREATE TABLE bounds (n_max INT PRIMARY KEY);
             INSERT INTO bounds VALUES (100);
             CREATE TOPOLOGY storing COMMIT EVERY 3 ROWS OR EVERY INTERVAL '20 ms' {on_error} AS (
                 INSERT INTO stored SELECT id, 10 / (n - 7) FROM line; {steps})",
            path.display()
        ))
        .unwrap();
}

/// A condition that always holds is asked a few times, then the topology ends; its input comes again.
#[test]
fn a_condition_that_always_holds_ends_the_topology_and_keeps_its_input() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lines.csv");
    append(&path, "id,n\n1,1\n2,200\n3,3\n");
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    let condition = "ABORT WHEN (SELECT max(n)   FROM CHANGES(stored)) IS NULL OR 'x' || 'y' = 'xy'";
    create(&mut session, &path, "", condition);
    wait_for(&mut session, STATE, "failed");
    let shown = rows(&mut session, "SELECT aborts, retries, commits, error FROM entresol.topologies");
    assert_eq!(shown[0][..3], ["1", "5", "0"]);
    // The condition is as it was written, but for runs of blanks.
    let text = "ABORT WHEN (SELECT max(n) FROM CHANGES(stored)) IS NULL OR 'x' || 'y' = 'xy'; its input is read again";
    assert!(shown[0][3].contains("was aborted 6 times") && shown[0][3].contains(text), "{shown:?}");
    assert_eq!(rows(&mut session, "SELECT count(*) FROM stored"), [["0"]]);
    session.execute("ALTER TOPOLOGY storing AS (INSERT INTO stored SELECT id, n FROM line)").unwrap();
    wait_for(&mut session, "SELECT count(*) FROM stored", "3");
}

/// A condition may hold for a while, until others have changed what it reads.
#[test]
fn a_condition_that_holds_no_more_lets_the_transaction_commit() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lines.csv");
    append(&path, "id,n\n1,1\n");
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    create(
        &mut session,
        &path,
        "",
        "ABORT WHEN (SELECT count(*) FROM CHANGES(stored)) > (SELECT max(n_max) FROM bounds) - 100",
    );
    // It is asked over 310 ms.
    wait_for(&mut session, "SELECT retries > 0 FROM entresol.topologies", "true");
    session.execute("UPDATE bounds SET n_max = 1000").unwrap();
    // On a machine that is busy that may be after the last attempt.
    for _ in 0..200 {
        session.execute("ALTER TOPOLOGY storing RESUME").unwrap();
        if rows(&mut session, "SELECT count(*) FROM stored") == [["1"]] {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(rows(&mut session, "SELECT count(*) FROM stored"), [["1"]]);
}

/// Each row of a dropped transaction is stored once, over restarts, and none of another.
#[test]
fn rows_of_dropped_transactions_are_stored_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lines.csv");
    append(&path, "id,n\n");
    for round in 0..3 {
        let database = Database::open(directory.path().join("db"), Options::default()).unwrap();
        let mut session = database.session().unwrap();
        if round == 0 {
            create(
                &mut session,
                &path,
                "ON ERROR ABORT INTO failures",
                "ABORT WHEN (SELECT max(id) FROM CHANGES(stored)) = 8 INTO refused",
            );
        }
        // The first three are a transaction; the division by zero drops the second one, the condition the third.
        let lines: String = match round {
            0 => "1,1\n2,2\n3,3\n4,4\n5,7\n6,6\n7,1\n8,\n".to_owned(),
            1 => "9,9\n".to_owned(),
            _ => "10,7\n".to_owned(),
        };
        append(&path, &lines);
        match round {
            0 => {
                wait_for(&mut session, "SELECT count(*) FROM failures", "3");
                wait_for(&mut session, "SELECT count(*) FROM refused", "2");
            }
            1 => wait_for(&mut session, "SELECT count(*) FROM stored", "4"),
            _ => wait_for(&mut session, "SELECT count(*) FROM failures", "4"),
        }
        drop(session);
        database.close().unwrap();
    }
    let database = Database::open(directory.path().join("db"), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    let ids = "SELECT string_agg(id::varchar, ' ' ORDER BY id) FROM stored";
    assert_eq!(rows(&mut session, ids), [["1 2 3 9"]]);
    let records = "SELECT source, line, record FROM failures ORDER BY record";
    let expected = [
        ["line", "0", "id = 10, n = 7"],
        ["line", "0", "id = 4, n = 4"],
        ["line", "0", "id = 5, n = 7"],
        ["line", "0", "id = 6, n = 6"],
    ];
    assert_eq!(rows(&mut session, records), expected);
    let reasons = rows(&mut session, "SELECT DISTINCT lower(reason) LIKE '%zero%' FROM failures");
    assert_eq!(reasons, [["true"]]);
    let expected = [
        [
            "id = 7, n = 1",
            "step 2 (ABORT WHEN): the transaction is aborted: ABORT WHEN (SELECT max(id) FROM CHANGES(stored)) = 8 (SQLSTATE 40000)",
        ],
        [
            "id = 8, n = NULL",
            "step 2 (ABORT WHEN): the transaction is aborted: ABORT WHEN (SELECT max(id) FROM CHANGES(stored)) = 8 (SQLSTATE 40000)",
        ],
    ];
    assert_eq!(rows(&mut session, "SELECT record, reason FROM refused ORDER BY record"), expected);
}

/// The rows of the transaction that ended a topology are shown, and are still to come.
#[test]
fn rows_of_the_transaction_that_ended_a_topology_are_stored() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lines.csv");
    append(&path, "id,n\n1,1\n2,2\n3,3\n4,4\n5,7\n6,6\n");
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    create(&mut session, &path, "ON ERROR STOP INTO failures", "");
    wait_for(&mut session, STATE, "failed");
    let records = "SELECT string_agg(record, '; ' ORDER BY record) FROM failures";
    assert_eq!(rows(&mut session, records), [["id = 4, n = 4; id = 5, n = 7; id = 6, n = 6"]]);
    assert_eq!(rows(&mut session, "SELECT count(*) FROM stored"), [["3"]]);
    session.execute("ALTER TOPOLOGY storing AS (INSERT INTO stored SELECT id, n FROM line)").unwrap();
    wait_for(&mut session, "SELECT count(*) FROM stored", "6");
    session.execute("DROP TABLE failures CASCADE").unwrap();
    assert_eq!(super::notices_of(&session), ["drop cascades to topology storing"]);
}

/// Of a long transaction as many rows are stored as there is room for.
#[test]
fn a_long_transaction_is_stored_up_to_a_limit() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(
            "CREATE SOURCE number (at TIMESTAMP NOT NULL, n INT NOT NULL)
                 WITH (connector = 'generator', rows = 70000, step = '1 second', n.cardinality = 5);
             CREATE TABLE stored (n INT PRIMARY KEY);
             CREATE TOPOLOGY storing COMMIT EVERY 100000 ROWS ON ERROR ABORT INTO failures AS (
                 INSERT INTO stored SELECT n FROM number)",
        )
        .unwrap();
    wait_for_end(&mut session, "storing");
    assert_eq!(rows(&mut session, "SELECT count(*) FROM failures"), [["65537"]]);
    let more = "SELECT record FROM failures WHERE source = ''";
    assert_eq!(rows(&mut session, more), [["4464 more tuples of the transaction"]]);
    assert_eq!(rows(&mut session, "SELECT count(*) FROM stored"), [["0"]]);
}

/// Windows and rankings that wait for the end of a source are sent, though the last transaction of its rows is dropped.
#[test]
fn windows_close_at_the_end_of_a_source_whose_last_transaction_is_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lines.csv");
    append(&path, "at,n\n2026-01-01 00:00:01,1\n2026-01-01 00:00:02,2\n2026-01-01 00:01:01,3\n");
    append(&path, "2026-01-01 00:01:02,4\n2026-01-01 00:01:03,5\n2026-01-01 00:01:04,-1\n");
    for boundary in ["EVERY 4 ROWS", "EVERY 5 ROWS", "EVERY 5 ROWS OR EVERY INTERVAL '1 hour'"] {
        let database = Database::volatile(Options::default()).unwrap();
        let mut session = database.session().unwrap();
        session
            .execute(&format!(
                "CREATE SOURCE line (at TIMESTAMP NOT NULL, n INT, WATERMARK FOR at AS at)
                     WITH (connector = 'file', path = '{}');
                 CREATE TABLE stored (at TIMESTAMP PRIMARY KEY, n INT);
                 CREATE TABLE minute (at TIMESTAMP PRIMARY KEY, n BIGINT);
                 CREATE TABLE ranked (at TIMESTAMP PRIMARY KEY, place BIGINT);
                 CREATE TOPOLOGY x COMMIT {boundary} ON ERROR ABORT AS (
                     INSERT INTO stored SELECT at, n FROM line;
                     INSERT INTO minute SELECT window_start, count(*) FROM TUMBLE(line, at, INTERVAL '1 minute') GROUP BY window_start;
                     INSERT INTO ranked SELECT at, row_number() OVER (ORDER BY at) FROM line;
                     ABORT WHEN (SELECT min(n) FROM CHANGES(stored)) < 0)",
                path.display()
            ))
            .unwrap();
        wait_for_end(&mut session, "x");
        let committed: i64 = rows(&mut session, "SELECT count(*) FROM stored")[0][0].parse().unwrap();
        let last = if boundary == "EVERY 4 ROWS" { 2 } else { 3 };
        assert_eq!(committed, 2 + last, "{boundary}");
        let minutes = "SELECT at::time::text, n FROM minute ORDER BY at";
        let wanted = [["00:00:00", "2"], ["00:01:00", &last.to_string()]];
        assert_eq!(rows(&mut session, minutes), wanted, "{boundary}");
        let ranked = rows(&mut session, "SELECT max(place) FROM ranked");
        assert_eq!(ranked, [[committed.to_string()]], "{boundary}");
        let aborts = rows(&mut session, "SELECT aborts, state FROM entresol.topologies");
        assert_eq!(aborts, [["1", "ended"]], "{boundary}");
    }
}
