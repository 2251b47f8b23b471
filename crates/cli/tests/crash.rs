//! Kill -9 in a loop: reported commits are there, completely, and nothing else.
#![allow(clippy::unwrap_used)]

mod support;

use entresol::{Database, Durability, Options, ScanRange, Value};
use support::{begin, demo, entresol, stderr, succeed};

#[test]
fn fifty_kills_lose_and_tear_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    let arguments =
        ["--crash", "--cycles", "50", "--batch", "60", "--seed", "7", "--dir", db.to_str().unwrap()];
    let (json, _) = demo(dir.path(), &arguments);
    assert_eq!(json["cycles"], 50);
    for key in ["lost_transactions", "torn_transactions", "snapshot_violations"] {
        assert_eq!(json[key], 0, "{json}");
    }
    // Four between two kills, however slow the machine is.
    assert!(json["transactions"].as_u64().unwrap() > 4 * 50, "the loop did too little: {json}");
    assert!(json["recovery_ms"].as_f64().unwrap() > 0.0);
}

/// The streams end before the kills do: the loop begins again in a new database, and checks the end of a
/// stream.
#[test]
fn kills_around_the_end_of_the_streams() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    let arguments = [
        "--crash",
        "--cycles",
        "8",
        "--readings",
        "3000",
        "--batch",
        "50",
        "--seed",
        "3",
        "--dir",
        db.to_str().unwrap(),
    ];
    let (json, _) = demo(dir.path(), &arguments);
    assert_eq!(json["cycles"], 8);
    for key in ["lost_transactions", "torn_transactions", "snapshot_violations"] {
        assert_eq!(json[key], 0, "{json}");
    }
    assert_eq!(json["readings"].as_u64().unwrap() % 3000, 0, "the last run goes to the end: {json}");
}

/// Without a promise nothing counts as lost, but a transaction is still there completely or not at all.
#[test]
fn group_durability_tears_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    let arguments =
        ["--crash", "--cycles", "10", "--durability", "group:10ms", "--dir", db.to_str().unwrap()];
    let (json, _) = demo(dir.path(), &arguments);
    assert_eq!((&json["torn_transactions"], &json["snapshot_violations"]), (&0.into(), &0.into()), "{json}");
}

/// Loads are killed at times from their beginning to behind their end: the table has all rows or none.
#[test]
fn a_killed_load_leaves_all_rows_or_none() {
    const ROWS: u64 = 150_000;
    let dir = tempfile::tempdir().unwrap();
    let (db, file) = (dir.path().join("db"), dir.path().join("rows.csv"));
    let db = db.to_str().unwrap();
    let lines = (0..ROWS).map(|at| at * 7919 % ROWS).map(|id| format!("{id},{},name {id}\n", id % 97));
    std::fs::write(&file, lines.collect::<String>()).unwrap();
    let table = "CREATE TABLE t (id BIGINT PRIMARY KEY, kind INT, name VARCHAR)";
    succeed(&["shell", db, "-c", table]);
    succeed(&["shell", db, "-c", "CREATE INDEX t_kind ON t (kind)"]);
    let script = dir.path().join("load.sql");
    std::fs::write(&script, format!("\\copy t FROM '{}' CSV", file.to_str().unwrap())).unwrap();
    let (mut empty, mut loaded) = (0, 0);
    for wait_ms in [40, 90, 150, 220, 300, 400, 550, 700, 1000, 1500, 2500, 4000, 8000, 16_000, 40_000] {
        let mut load = begin(&["shell", db, "-f", script.to_str().unwrap()]);
        std::thread::sleep(std::time::Duration::from_millis(wait_ms));
        load.kill().unwrap();
        load.wait().unwrap();
        let count = |condition: &str| -> u64 {
            let query = format!("SELECT count(*) AS n FROM t WHERE {condition}");
            let said = succeed(&["shell", db, "--format", "csv", "-c", &query]);
            said.lines().nth(1).unwrap().parse().unwrap()
        };
        let (rows, by_index) = (count("id >= 0"), count("kind BETWEEN 0 AND 96"));
        assert!(rows == 0 || rows == ROWS, "killed after {wait_ms} ms: {rows} rows");
        assert_eq!(rows, by_index, "killed after {wait_ms} ms");
        succeed(&["check", db]);
        (empty, loaded) = (empty + u32::from(rows == 0), loaded + u32::from(rows > 0));
        if rows > 0 {
            break;
        }
    }
    assert!(empty >= 1 && loaded == 1, "{empty} times empty, {loaded} times loaded");
}

const MOVED_BACK: &str =
    "UPDATE streams_positions SET tuples = tuples - 100 WHERE source = 'household_reading'";

/// Does what no statement may do: to the first row of a table whose column has this value.
fn tamper(db: &str, table: &str, column: usize, value: &str, change: impl Fn(&mut Vec<Value>)) {
    let database = Database::open(db, Options::default().start_topologies(false)).unwrap();
    let table = database.catalog().table(table).unwrap();
    let tx = database.begin().unwrap();
    let rows = table.scan(ScanRange::full()).rows(&tx).unwrap();
    let mut row = rows.into_iter().find(|row| row[column] == Value::from(value)).unwrap();
    change(&mut row);
    table.upsert(&tx, &row).unwrap();
    tx.commit(Durability::Sync).unwrap();
    database.close().unwrap();
}

/// The loop must be able to fail: tampering with any state is noticed.
#[test]
fn tampering_with_any_state_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    let path = db.to_str().unwrap();
    let arguments = ["--crash", "--cycles", "1", "--readings", "20000", "--batch", "100", "--dir", path];
    let (json, _) = demo(dir.path(), &arguments);
    assert_eq!(json["torn_transactions"], 0, "{json}");
    for tampering in [
        "DELETE FROM latest WHERE asset = 'generator-2'",
        "UPDATE meter SET mean_kw = mean_kw + 0.000001 WHERE meter = 3",
        "DELETE FROM household WHERE window_start = (SELECT MAX(window_start) FROM household)",
        "DELETE FROM alarms WHERE window_start = (SELECT MIN(window_start) FROM alarms)",
        "UPDATE specification SET high = high + 1 WHERE asset = 'generator-1'",
        "UPDATE feeder_flow SET kw = kw + 0.000001 WHERE window_start = (SELECT MAX(window_start) FROM feeder_flow)",
        MOVED_BACK,
    ] {
        let copy = dir.path().join("copy");
        let _ = std::fs::remove_dir_all(&copy);
        std::fs::create_dir(&copy).unwrap();
        for file in std::fs::read_dir(&db).unwrap().map(Result::unwrap).filter(|file| file.path().is_file()) {
            std::fs::copy(file.path(), copy.join(file.file_name())).unwrap();
        }
        let copy = copy.to_str().unwrap();
        if tampering == MOVED_BACK {
            let output = entresol(&["shell", copy, "-c", tampering]);
            assert!(stderr(&output).contains("it is state of the topologies"), "{}", stderr(&output));
            tamper(copy, "streams_positions", 1, "household_reading", |row| {
                let Value::BigInt(tuples) = row[4] else { panic!("{row:?}") };
                row[4] = Value::BigInt(tuples - 100);
            });
        } else {
            succeed(&["shell", copy, "-c", tampering]);
        }
        let again =
            ["demo", "smart-metering", "--crash", "--cycles", "1", "--readings", "20000", "--batch", "100"];
        let output = entresol(&[&again[..], &["--dir", copy]].concat());
        assert_eq!(output.status.code(), Some(1), "not noticed: {tampering}");
        assert!(stderr(&output).contains("torn: "), "{tampering}: {}", stderr(&output));
    }
}
