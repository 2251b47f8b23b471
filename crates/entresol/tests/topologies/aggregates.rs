//! Aggregates beside count, sum, avg, min and max: their states over commits, restarts and merged sessions.

use super::{append, rows, wait_for, wait_for_end};
use entresol::{Database, Options, Session};
use std::path::Path;

const AGGREGATES: &str = "count(DISTINCT page), string_agg(page, ','), median(ms), first_value(page ORDER BY at),
    last_value(page ORDER BY at DESC), bool_or(ms > 400), round(stddev(ms)::numeric, 6), approx_distinct(page),
    sum(DISTINCT ms) FILTER (WHERE ms < 400), approx_percentile_cont(ms, 0.5) FILTER (WHERE page = 'none')";

fn create(session: &mut Session, path: &Path, from: &str) {
    session
        .execute(&format!(
            "CREATE SOURCE click (at TIMESTAMP NOT NULL, person VARCHAR NOT NULL, page VARCHAR, ms INT,
                     WATERMARK FOR at AS at - INTERVAL '1 minute')
                 WITH (connector = 'file', path = '{}', tail = true);
             CREATE TABLE summary (person VARCHAR, began TIMESTAMP, pages BIGINT, all_pages VARCHAR, median DOUBLE,
                 first VARCHAR, last VARCHAR, slow BOOLEAN, deviation NUMERIC(20,6), about BIGINT, ms BIGINT,
                 nothing DOUBLE, PRIMARY KEY (person, began));
             CREATE TOPOLOGY summing COMMIT EACH ROW AS (
                 INSERT INTO summary SELECT person, window_start, {AGGREGATES} FROM {from}
                     GROUP BY person, window_start)",
            path.display()
        ))
        .unwrap();
}

/// Rows of a minute each, of two persons, and the row that closes their windows.
fn lines(of: std::ops::Range<u32>) -> String {
    let line = |n: u32| {
        let (person, page) = (["ada", "alan"][n as usize % 2], ["a", "b", "c"][n as usize % 3]);
        format!("2026-01-01 10:{n:02}:00,{person},{page},{}\n", n * 37 % 500)
    };
    of.map(line).collect()
}

#[test]
fn states_of_functions_survive_commits_and_restarts() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("clicks.csv");
    append(&path, "at,person,page,ms\n");
    append(&path, &lines(0..13));
    let open = || Database::open(directory.path().join("db"), Options::default()).unwrap();
    let database = open();
    let mut session = database.session().unwrap();
    create(&mut session, &path, "TUMBLE(click, at, INTERVAL '30 minutes')");
    wait_for(&mut session, "SELECT tuples FROM entresol.sources", "13");
    let state = "SELECT person, bool_or_value_state_1, count FROM (SELECT *, 1 AS count FROM summing_open WHERE part = 0) ORDER BY 1";
    assert_eq!(rows(&mut session, state), [["ada", "true", "1"], ["alan", "true", "1"]]);
    drop(session);
    database.close().unwrap();
    drop(database);
    append(&path, &lines(13..30));
    append(&path, "2026-01-01 11:40:00,ada,a,1\n");
    let database = open();
    let mut session = database.session().unwrap();
    wait_for(&mut session, "SELECT count(*) FROM summary", "2");
    session
        .execute(
            "CREATE TABLE clicks (at TIMESTAMP, person VARCHAR, page VARCHAR, ms INT);
             CREATE TOPOLOGY copying AS (INSERT INTO clicks SELECT * FROM click)",
        )
        .unwrap();
    wait_for(&mut session, "SELECT count(*) FROM clicks", "31");
    let expected = format!(
        "SELECT person, TIMESTAMP '2026-01-01 10:00:00', {AGGREGATES} FROM (SELECT * FROM clicks ORDER BY at) c
            WHERE at < '2026-01-01 10:30:00' GROUP BY person ORDER BY person"
    );
    let found = rows(&mut session, "SELECT * FROM summary ORDER BY person");
    assert_eq!(found, rows(&mut session, &expected));
    assert_eq!(found[0][2..7], ["3", "a,c,b,a,c,b,a,c,b,a,c,b,a,c,b", "222.0", "a", "a"]);
}

#[test]
fn merged_sessions_have_the_distinct_values_of_both() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("clicks.csv");
    append(&path, "at,person,page,ms\n2026-01-01 10:00:00,ada,a,1\n2026-01-01 10:00:50,ada,b,2\n");
    append(&path, "2026-01-01 10:00:25,ada,a,3\n");
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    create(&mut session, &path, "SESSION(click, at, INTERVAL '30 seconds')");
    wait_for(&mut session, "SELECT tuples FROM entresol.sources", "3");
    append(&path, "2026-01-01 10:30:00,ada,a,3\n");
    wait_for(&mut session, "SELECT count(*) FROM summary", "1");
    let merged = "SELECT pages, median, first, last, slow, ms, nothing FROM summary";
    assert_eq!(rows(&mut session, merged), [["2", "2.0", "a", "a", "false", "6", ""]]);
}

#[test]
fn what_has_no_column_or_no_order_is_refused() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(
            "CREATE SOURCE numbers (at TIMESTAMP NOT NULL, n INT NOT NULL, WATERMARK FOR at AS at)
                 WITH (connector = 'generator', rows = 10, step = '1 second');
             CREATE TABLE result (at TIMESTAMP PRIMARY KEY, found VARCHAR)",
        )
        .unwrap();
    for (aggregate, expected) in [
        ("array_agg(n)", "type List(Int32) does not fit VARCHAR"),
        ("nth_value(n, 1 ORDER BY n)::varchar", "ORDER BY in nth_value of a stream"),
    ] {
        let create = format!(
            "CREATE TOPOLOGY x AS (INSERT INTO result SELECT window_start, {aggregate}
                FROM TUMBLE(numbers, at, INTERVAL '1 hour') GROUP BY window_start)"
        );
        let error = session.execute(&create).unwrap_err().to_string();
        assert!(error.contains(expected), "{aggregate}: {error}");
    }
    session
        .execute(
            "CREATE TOPOLOGY x AS (INSERT INTO result SELECT window_start, string_agg('x', '-')
                FROM TUMBLE(numbers, at, INTERVAL '1 hour') GROUP BY window_start)",
        )
        .unwrap();
    wait_for_end(&mut session, "x");
    assert_eq!(rows(&mut session, "SELECT found FROM result"), [["x-x-x-x-x-x-x-x-x-x"]]);
}
