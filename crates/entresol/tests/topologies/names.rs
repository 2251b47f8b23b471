//! Names of what topologies make: none is that of another relation that FROM could mean.

use super::{rows, sqlstate};
use entresol::{Database, Options, Session};

/// Checks that a statement is refused, with this SQLSTATE and all of these words.
fn check_refused(session: &mut Session, statement: &str, state: &str, words: &[&str]) {
    let error = session.execute(statement).err().unwrap_or_else(|| panic!("{statement} is accepted"));
    assert_eq!(sqlstate(&error), state, "{statement}: {error}");
    for word in words {
        assert!(error.to_string().contains(word), "{statement}: {error}");
    }
}

fn prepare(session: &mut Session) {
    session
        .execute(
            "CREATE SOURCE reading (at TIMESTAMP NOT NULL, meter INT NOT NULL, WATERMARK FOR at AS at)
                 WITH (connector = 'generator', rows = 10);
             CREATE SOURCE other (n INT) WITH (connector = 'generator', rows = 10);
             CREATE STREAM twice AS SELECT n * 2 AS n FROM other;
             CREATE TABLE target (n BIGINT);
             CREATE VIEW shown AS SELECT n FROM target",
        )
        .unwrap();
}

#[test]
fn tables_beside_targets_take_no_name_of_a_source_or_stream() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    prepare(&mut session);
    let counted =
        "SELECT count(*) FROM TUMBLE(reading, at, INTERVAL '1 minute') GROUP BY meter, window_start";
    for (steps, table, kind) in [
        (
            format!("INSERT INTO target {counted} EMIT ON WINDOW CLOSE LATE ROWS INTO other"),
            "other",
            "source",
        ),
        (
            format!("INSERT INTO target {counted} EMIT ON WINDOW CLOSE LATE ROWS INTO twice"),
            "twice",
            "stream",
        ),
        (
            format!(
                "CREATE STREAM many WITH (state_table = 'other') AS {counted}; INSERT INTO target SELECT * FROM many"
            ),
            "other",
            "source",
        ),
        (
            format!(
                "CREATE STREAM many WITH (state_table = 'many') AS {counted}; INSERT INTO target SELECT * FROM many"
            ),
            "many",
            "stream",
        ),
    ] {
        let message = format!("cannot make table \"{table}\": {kind} \"{table}\" already exists");
        let statement = format!("CREATE TOPOLOGY t AS ({steps})");
        check_refused(&mut session, &statement, "42P07", &["topology \"t\"", &message]);
    }
    let skipping =
        "CREATE TOPOLOGY t ON ERROR SKIP ROW INTO other AS (INSERT INTO target SELECT n FROM other)";
    check_refused(&mut session, skipping, "42P07", &["cannot make table \"other\""]);
    let view = "CREATE MATERIALIZED VIEW v AS SELECT meter, count(*) AS n FROM reading GROUP BY meter";
    session.execute("CREATE SOURCE v_open (n INT) WITH (connector = 'generator')").unwrap();
    check_refused(&mut session, view, "42P07", &["cannot make table \"v_open\""]);
    assert_eq!(rows(&mut session, "SELECT count(*) FROM entresol.topologies"), [["0"]]);
    assert!(session.query("SELECT n FROM other").is_err(), "no table has its name");
    // A topology that is there is given no such step either.
    session.execute("CREATE TOPOLOGY t AS (INSERT INTO target SELECT n FROM other)").unwrap();
    let alter = format!("ALTER TOPOLOGY t AS (INSERT INTO target {counted} LATE ROWS INTO other)");
    check_refused(&mut session, &alter, "42P07", &["cannot make table \"other\""]);
}

#[test]
fn rejected_records_go_to_no_source_or_stream() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lines.csv");
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    prepare(&mut session);
    let line = |rejects: &str| {
        format!(
            "CREATE SOURCE line (n INT) WITH (connector = 'file', path = '{}', rejects = '{rejects}')",
            path.display()
        )
    };
    for (rejects, kind) in [("line", "source"), ("other", "source"), ("twice", "stream")] {
        let words = [&format!("source \"line\" cannot make table \"{rejects}\": {kind}")];
        check_refused(&mut session, &line(rejects), "42P07", &words.map(String::as_str));
    }
    session.execute(&line("bad")).unwrap();
    check_refused(&mut session, "ALTER SOURCE line SET (rejects = 'line')", "42P07", &["table \"line\""]);
}

#[test]
fn streams_take_no_name_of_a_relation() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    prepare(&mut session);
    for (name, state, kind) in
        [("target", "42P07", "table"), ("shown", "42P07", "view"), ("other", "42710", "source")]
    {
        let statement = format!(
            "CREATE TOPOLOGY t AS (CREATE STREAM {name} AS SELECT n FROM other; INSERT INTO target SELECT n FROM {name})"
        );
        check_refused(
            &mut session,
            &statement,
            state,
            &[&format!("stream \"{name}\""), &format!("name of a {kind}")],
        );
    }
}
