//! Queries of tables with EMIT ON COMMIT: at each commit they send what they give over the tables as of it.

use super::{append, rows, sqlstate, wait_for, wait_for_end};
use entresol::{Database, Options, Session};
use std::path::Path;

/// Results of tables at a point in time, of which `{latest}` is one.
const MIDDLE: &str = "SELECT median(kw) AS middle, count(*) AS meters,
    (SELECT count(*) FROM {latest} l JOIN specification s USING (meter) WHERE l.kw > s.high) AS above FROM {latest}";

fn create(session: &mut Session, path: &Path, threads: u32) {
    let middle = MIDDLE.replace("{latest}", "latest");
    session
        .execute(&format!(
            "CREATE SOURCE line (meter INT NOT NULL, kw INT NOT NULL) WITH (connector = 'file', path = '{}', tail = true);
             CREATE TABLE latest (meter INT PRIMARY KEY, kw INT) WITH (history = '1 day');
             CREATE TABLE specification (meter INT PRIMARY KEY, high INT);
             INSERT INTO specification SELECT n, 20 + n FROM generate_series(0, 19) g(n);
             CREATE TABLE middles (number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, middle DOUBLE, meters BIGINT, above BIGINT)
                 WITH (changes = '1 day');
             CREATE TABLE greatest (place BIGINT PRIMARY KEY, meter INT, kw INT);
             CREATE TABLE alarm (meters BIGINT, above BIGINT);
             CREATE TOPOLOGY watch COMMIT EVERY 7 ROWS WITH (durability = 'none', parallelism = '{threads}') AS (
                 CREATE STREAM middle AS {middle} EMIT ON COMMIT;
                 INSERT INTO alarm SELECT meters, above FROM middle WHERE above > 8;
                 INSERT INTO middles (middle, meters, above) SELECT * FROM middle;
                 INSERT INTO greatest SELECT row_number() OVER (ORDER BY kw DESC, meter) AS place, meter, kw FROM latest
                     ORDER BY place LIMIT 3
                     ON CONFLICT (place) DO UPDATE SET meter = EXCLUDED.meter, kw = EXCLUDED.kw EMIT ON COMMIT;
                 INSERT INTO latest SELECT * FROM line ON CONFLICT (meter) DO UPDATE SET kw = EXCLUDED.kw)",
            path.display()
        ))
        .unwrap();
}

/// Compares the results of each commit with the query as of it; returns their number.
fn compare(session: &mut Session) -> usize {
    let noted =
        rows(session, "SELECT commit_cts, middle, meters, above FROM CHANGES(middles) ORDER BY number");
    for result in &noted {
        let latest = format!("latest FOR SYSTEM_TIME AS OF TRANSACTION {}", result[0]);
        let found = rows(session, &MIDDLE.replace("{latest}", &latest));
        assert_eq!(found, [&result[1..]], "commit {}", result[0]);
    }
    let differ = "SELECT count(*) FROM (SELECT * FROM greatest EXCEPT
        SELECT row_number() OVER (ORDER BY kw DESC, meter), meter, kw FROM latest) d";
    assert_eq!(rows(session, differ), [["0"]]);
    let alarms = "SELECT (SELECT count(*) FROM alarm) - (SELECT count(*) FROM middles WHERE above > 8)";
    assert_eq!(rows(session, alarms), [["0"]]);
    noted.len()
}

/// One result for each commit, over restarts, with the commit of the next rows computed meanwhile or not.
#[test]
fn each_commit_sends_the_result_as_of_it() {
    for threads in [1, 2] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lines.csv");
        append(&path, "meter,kw\n");
        for round in 0..3_u32 {
            let database = Database::open(directory.path().join("db"), Options::default()).unwrap();
            let mut session = database.session().unwrap();
            if round == 0 {
                create(&mut session, &path, threads);
            }
            let line = |n: u32| format!("{},{}\n", n * 7 % 20, n * 37 % 61);
            append(&path, &(round * 140..round * 140 + 140).map(line).collect::<String>());
            let tuples = format!("{}", 140);
            wait_for(&mut session, "SELECT tuples FROM entresol.topologies", &tuples);
            let found = compare(&mut session);
            let least = 20 * (round as usize + 1);
            assert!((least..=least * 2).contains(&found), "{found} results of {least} commits");
            assert_ne!(rows(&mut session, "SELECT count(*) FROM alarm"), [["0"]]);
            drop(session);
            // Closed, or left as by a crash.
            if round == 1 {
                database.close().unwrap();
            }
        }
    }
}

/// A transaction that changes none of the tables sends nothing, and one that is aborted leaves nothing.
#[test]
fn only_commits_that_change_a_table_send() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("numbers.csv");
    append(&path, &(0..100).fold("n\n".to_owned(), |lines, n| format!("{lines}{n}\n")));
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(&format!(
            "CREATE SOURCE number (n INT NOT NULL) WITH (connector = 'file', path = '{}') FORMAT PLAIN ENCODE CSV;
             CREATE TABLE every (n INT);
             CREATE TABLE third (n INT PRIMARY KEY);
             CREATE TABLE beside (n INT PRIMARY KEY);
             INSERT INTO beside VALUES (1);
             CREATE TABLE sums (many BIGINT, sum BIGINT, beside BIGINT);
             CREATE TOPOLOGY x COMMIT EACH ROW ON ERROR ABORT AS (
                 INSERT INTO every SELECT n FROM number;
                 INSERT INTO third SELECT n FROM number WHERE n % 3 = 0;
                 DELETE FROM third USING (SELECT n - 10 AS n FROM number WHERE n % 30 = 10) d WHERE third.n = d.n;
                 INSERT INTO sums SELECT count(*), sum(n), (SELECT count(*) FROM beside) FROM third EMIT ON COMMIT;
                 ABORT WHEN (SELECT count(*) FROM CHANGES(third) WHERE n % 33 = 0 AND n > 0) > 0)",
            path.display()
        ))
        .unwrap();
    wait_for_end(&mut session, "x");
    // Of 34 transactions that insert, those of 33, 66 and 99 are aborted; those of 10, 40 and 70 delete 0, 30 and 60.
    assert_eq!(rows(&mut session, "SELECT count(*), max(many), min(beside) FROM sums"), [["34", "28", "1"]]);
    let last = "SELECT count(*) FROM sums s JOIN (SELECT count(*) AS many, sum(n) AS sum FROM third) t ON s.many = t.many AND s.sum = t.sum";
    assert_eq!(rows(&mut session, last), [["1"]]);
    assert_eq!(rows(&mut session, "SELECT count(*) FROM every"), [["97"]]);
    let plan = rows(&mut session, "EXPLAIN TOPOLOGY x");
    assert!(plan.iter().any(|line| line[0].trim() == "at each commit"), "{plan:?}");
}

#[test]
fn queries_of_tables_that_nothing_changes_are_refused() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(
            "CREATE SOURCE number (n INT NOT NULL) WITH (connector = 'generator', rows = 10);
             CREATE TABLE t (n INT PRIMARY KEY, v INT); CREATE TABLE u (n INT PRIMARY KEY, v INT); CREATE TABLE sums (n BIGINT)",
        )
        .unwrap();
    let fill = "INSERT INTO t SELECT n, 1 FROM number ON CONFLICT (n) DO UPDATE SET v = EXCLUDED.v";
    for (steps, state, expected) in [
        (
            format!("{fill}; INSERT INTO sums SELECT count(*) FROM u EMIT ON COMMIT"),
            "22023",
            "a query at its commits reads u, of which no step of this topology writes any",
        ),
        (
            format!("{fill}; INSERT INTO t SELECT n + 1, v FROM t EMIT ON COMMIT"),
            "22023",
            "a step writes the table whose changes it reads",
        ),
        (format!("{fill}; INSERT INTO sums SELECT count(*) FROM t EMIT CHANGES"), "0A000", "EMIT ON COMMIT"),
        (format!("{fill}; INSERT INTO sums SELECT count(*) FROM t"), "0A000", "EMIT ON COMMIT"),
        (
            format!("{fill}; INSERT INTO sums SELECT count(*) FROM t EMIT ON COMMIT LATE ROWS INTO late"),
            "0A000",
            "LATE ROWS",
        ),
        (
            format!(
                "{fill}; MERGE INTO u USING (SELECT * FROM t) s ON u.n = s.n WHEN NOT MATCHED THEN INSERT VALUES (s.n, s.v) EMIT ON COMMIT"
            ),
            "0A000",
            "CREATE STREAM of it",
        ),
        (
            format!("{fill}; INSERT INTO sums SELECT extract(year FROM now())::bigint FROM t EMIT ON COMMIT"),
            "0A000",
            "now() in a step",
        ),
        (
            format!("{fill}; INSERT INTO sums SELECT 1 EMIT ON COMMIT"),
            "0A000",
            "reads no source, stream or table",
        ),
    ] {
        let error = session.execute(&format!("CREATE TOPOLOGY x AS ({steps})")).unwrap_err();
        assert!(error.to_string().contains(expected), "{steps}: {error}");
        assert_eq!(sqlstate(&error), state, "{steps}: {error}");
    }
}
