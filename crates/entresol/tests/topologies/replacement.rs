//! ALTER TOPOLOGY … AS and CREATE OR REPLACE TOPOLOGY: state goes on where what it is computed from is the same.

use super::{append, notices_of, rows, wait_for};
use entresol::{Database, Options, Session};
use std::path::Path;

/// Lines of a quarter of an hour each, of one meter: 00:00, 00:15, ...
fn lines(quarters: std::ops::Range<u32>) -> String {
    let line = |quarter: u32| {
        let (hour, minute) = (quarter / 4, quarter % 4 * 15);
        format!("2026-01-01T{hour:02}:{minute:02}:00,{},{quarter}\n", quarter % 2)
    };
    quarters.map(line).collect()
}

const HOURLY: &str = "INSERT INTO hourly SELECT meter, window_start, count(*), sum(kw)
    FROM TUMBLE(reading, at, INTERVAL '1 hour') GROUP BY meter, window_start";

fn prepare(session: &mut Session, path: &Path) {
    append(path, "at,meter,kw\n");
    session
        .execute(&format!(
            "CREATE SOURCE reading (at TIMESTAMP NOT NULL, meter INT NOT NULL, kw BIGINT, WATERMARK FOR at AS at)
                 WITH (connector = 'file', path = '{}', tail = true);
             CREATE TABLE seen (at TIMESTAMP PRIMARY KEY, kw BIGINT);
             CREATE TABLE hourly (meter INT, hour TIMESTAMP, readings BIGINT, kw BIGINT, PRIMARY KEY (meter, hour));
             CREATE TOPOLOGY metering COMMIT EVERY 3 ROWS OR EVERY INTERVAL '2 ms' AS (
                 INSERT INTO seen SELECT at, kw FROM reading; {HOURLY})",
            path.display()
        ))
        .unwrap();
}

fn wait_for_rows(session: &mut Session, rows: u32) {
    wait_for(session, "SELECT sum(tuples) FROM streams_positions", &rows.to_string());
}

const EXPECTED: &str = "SELECT meter, date_trunc('hour', at), count(*), sum(kw) AS kw FROM
    (SELECT at, kw, kw % 2 AS meter FROM seen) s GROUP BY 1, 2";

#[test]
fn steps_change_and_state_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("readings.csv");
    let open = || Database::open(directory.path().join("db"), Options::default()).unwrap();
    let database = open();
    let mut session = database.session().unwrap();
    prepare(&mut session, &path);
    append(&path, &lines(0..6));
    wait_for_rows(&mut session, 6);
    // What stands above the windows is another, and there is one step more; hour 1 is open meanwhile.
    session
        .execute(
            "CREATE TABLE busy (meter INT, hour TIMESTAMP, PRIMARY KEY (meter, hour));
             ALTER TOPOLOGY metering AS (
                 INSERT INTO seen SELECT at, kw FROM reading;
                 CREATE STREAM per_hour AS SELECT meter, window_start, count(*) AS n, sum(kw) AS kw
                     FROM TUMBLE(reading, at, INTERVAL '1 hour') GROUP BY meter, window_start;
                 INSERT INTO hourly SELECT * FROM per_hour;
                 INSERT INTO busy SELECT meter, window_start FROM per_hour WHERE kw > 6;
             )",
        )
        .unwrap();
    assert!(session.take_notices().is_empty());
    append(&path, &lines(6..10));
    wait_for_rows(&mut session, 10);
    let definition = rows(&mut session, "SELECT definition FROM streams_topologies")[0][0].clone();
    assert!(
        definition.starts_with("CREATE TOPOLOGY metering COMMIT EVERY 3 ROWS OR EVERY INTERVAL '2 ms' AS"),
        "{definition}"
    );
    drop(session);
    database.close().unwrap();
    drop(database);
    let database = open();
    let mut session = database.session().unwrap();
    append(&path, &lines(10..17));
    wait_for(&mut session, "SELECT count(*) FROM seen", "17");
    wait_for(&mut session, "SELECT count(*) FROM hourly", "8");
    let differ = format!(
        "SELECT count(*) FROM (SELECT * FROM ({EXPECTED}) e WHERE kw < 16
             EXCEPT ALL SELECT * FROM hourly) d"
    );
    assert_eq!(rows(&mut session, &differ), [["0"]]);
    assert_eq!(rows(&mut session, "SELECT count(*) FROM busy"), [["6"]]);
}

#[test]
fn state_that_cannot_go_on_is_named_before_anything_happens() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("readings.csv");
    let database = Database::open(directory.path().join("db"), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    prepare(&mut session, &path);
    append(&path, &lines(0..6));
    wait_for_rows(&mut session, 6);
    let other = HOURLY.replace("1 hour", "30 minutes");
    for (steps, expected) in [
        (other.as_str(), "cannot go on with its state in metering_open"),
        ("INSERT INTO seen SELECT at, kw FROM reading", "state in metering_open"),
        ("INSERT INTO seen SELECT at, watts FROM reading", "watts"),
        ("INSERT INTO seen SELECT at, kw FROM seen", "reading it triggers nothing"),
    ] {
        let error = session.execute(&format!("ALTER TOPOLOGY metering AS ({steps})")).unwrap_err();
        assert!(error.to_string().contains(expected), "{steps}: {error}");
    }
    let error = session.execute(&format!("ALTER TOPOLOGY nothing AS ({HOURLY})")).unwrap_err().to_string();
    assert!(error.contains("topology \"nothing\" does not exist"), "{error}");
    let path = directory.path().join("sent.csv");
    let sink =
        format!("CREATE SINK sent FROM reading WITH (connector = 'file', path = '{}')", path.display());
    session.execute(&sink).unwrap();
    for statement in ["ALTER TOPOLOGY sent AS", "CREATE OR REPLACE TOPOLOGY sent AS"] {
        let error = session.execute(&format!("{statement} ({HOURLY})")).unwrap_err().to_string();
        assert!(error.contains("\"sent\" is a sink"), "{error}");
    }
    session.execute("DROP SINK sent").unwrap();
    // The old steps go on.
    append(&directory.path().join("readings.csv"), &lines(6..10));
    wait_for(&mut session, "SELECT count(*) FROM seen", "10");
    wait_for(&mut session, "SELECT count(*) FROM hourly", "4");
}

#[test]
fn a_replacement_begins_without_state_of_other_steps_and_reads_on() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("readings.csv");
    let open = || Database::open(directory.path().join("db"), Options::default()).unwrap();
    let database = open();
    let mut session = database.session().unwrap();
    prepare(&mut session, &path);
    append(&path, &lines(0..6));
    wait_for_rows(&mut session, 6);
    // Replaced while it is paused: the tables of the old steps are removed when it starts, here after a restart.
    session.execute("ALTER TOPOLOGY metering PAUSE").unwrap();
    session
        .execute(
            "CREATE TABLE halves (half TIMESTAMP PRIMARY KEY, readings BIGINT);
             CREATE OR REPLACE TOPOLOGY metering COMMIT EACH ROW AS (
                 INSERT INTO halves SELECT window_start, count(*) FROM TUMBLE(reading, at, INTERVAL '30 minutes')
                     GROUP BY window_start)",
        )
        .unwrap();
    let notices = session.take_notices();
    assert!(
        notices.iter().any(|notice| notice.message.contains("without the state in metering_open")),
        "{notices:?}"
    );
    assert_eq!(rows(&mut session, "SELECT count(*) > 0 FROM metering_open"), [["true"]]);
    drop(session);
    database.close().unwrap();
    drop(database);
    append(&path, &lines(6..10));
    let database = open();
    let mut session = database.session().unwrap();
    assert_eq!(rows(&mut session, "SELECT state FROM entresol.topologies"), [["paused"]]);
    session.execute("ALTER TOPOLOGY metering RESUME").unwrap();
    wait_for(&mut session, "SELECT count(*) FROM halves", "1");
    wait_for_rows(&mut session, 10);
    let halves = rows(&mut session, "SELECT * FROM halves");
    assert_eq!(halves, [["2026-01-01T01:30:00", "2"]]);
    assert_eq!(rows(&mut session, "SELECT count(*) FROM streams_unused_state"), [["0"]]);
    assert_eq!(rows(&mut session, "SELECT count(*) FROM seen"), [["6"]]);
    // One that does not exist is created, and one with the same steps goes on with all.
    session
        .execute(
            "DELETE FROM seen;
             CREATE OR REPLACE TOPOLOGY other AS (INSERT INTO seen SELECT at, kw FROM reading);
             CREATE OR REPLACE TOPOLOGY metering COMMIT EVERY 5 ROWS OR EVERY INTERVAL '1 ms' AS (
                 INSERT INTO halves SELECT window_start, count(*) FROM TUMBLE(reading, at, INTERVAL '30 minutes')
                     GROUP BY window_start HAVING count(*) > 0)",
        )
        .unwrap();
    assert!(session.take_notices().is_empty());
    append(&path, &lines(10..12));
    wait_for(&mut session, "SELECT count(*) FROM seen", "12");
    wait_for(&mut session, "SELECT count(*) FROM halves", "2");
    assert_eq!(rows(&mut session, "SELECT sum(readings)::bigint FROM halves"), [["4"]]);
}

/// Rows of a target by key that the new steps compute otherwise stay, which a notice says; steps that are the same say nothing.
#[test]
fn a_notice_names_targets_that_keep_rows_of_the_steps_before() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("readings.csv");
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    prepare(&mut session, &path);
    session
        .execute("CREATE TABLE so_far (meter INT PRIMARY KEY, n BIGINT); CREATE TABLE latest (meter INT PRIMARY KEY, kw BIGINT)")
        .unwrap();
    let steps = |selected: &str| {
        format!(
            "(INSERT INTO latest SELECT meter, kw FROM reading ON CONFLICT (meter) DO UPDATE SET kw = EXCLUDED.kw;
              CREATE STREAM many AS SELECT meter, count(*) AS n FROM reading GROUP BY meter;
              INSERT INTO so_far {selected} ON CONFLICT (meter) DO UPDATE SET n = EXCLUDED.n)"
        )
    };
    let all = steps("SELECT meter, n FROM many");
    session.execute(&format!("CREATE TOPOLOGY counting COMMIT EACH ROW AS {all}")).unwrap();
    append(&path, &lines(0..6));
    wait_for(&mut session, "SELECT sum(n) FROM so_far", "6");
    session.execute(&format!("ALTER TOPOLOGY counting AS {all}")).unwrap();
    session.execute("ALTER TOPOLOGY counting SET (durability = 'none')").unwrap();
    assert_eq!(notices_of(&session), Vec::<String>::new());
    for statement in ["ALTER TOPOLOGY", "CREATE OR REPLACE TOPOLOGY"] {
        let selected = format!("SELECT meter, n + {} FROM many WHERE meter <> 1", statement.len());
        session.execute(&format!("{statement} counting AS {}", steps(&selected))).unwrap();
        let notices = notices_of(&session);
        assert_eq!(notices.len(), 1, "{notices:?}");
        for word in ["table so_far keeps the rows", "topology \"counting\"", "step 3 (INSERT INTO so_far)"] {
            assert!(notices[0].contains(word), "{notices:?}");
        }
    }
    assert_eq!(rows(&mut session, "SELECT sum(n) FROM so_far"), [["6"]]);
}
