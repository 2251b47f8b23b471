//! Names of what topologies make: none is that of another relation that FROM could mean.

use super::{rows, sqlstate, wait_for};
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

#[test]
fn names_may_have_their_schema() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(
            "CREATE SOURCE public.reading (at TIMESTAMP NOT NULL, meter INT NOT NULL, WATERMARK FOR at AS at)
                 WITH (connector = 'generator', rows = 10, step = '10 seconds', meter.cardinality = 1);
             CREATE STREAM public.low AS SELECT * FROM public.reading WHERE meter < 5;
             CREATE TABLE kept (at TIMESTAMP PRIMARY KEY, meter INT) WITH (changes = '1 hour');
             CREATE TABLE minutes (minute TIMESTAMP, n BIGINT);
             CREATE TABLE moved (at TIMESTAMP, what VARCHAR);
             CREATE TOPOLOGY public.keeping ON ERROR SKIP ROW INTO public.skipped AS (
                 INSERT INTO public.kept SELECT at, meter FROM public.low;
                 INSERT INTO minutes SELECT window_start, count(*) FROM TUMBLE(public.reading, at, INTERVAL '1 minute')
                     GROUP BY window_start LATE ROWS INTO public.late);
             CREATE TOPOLOGY moving AS (INSERT INTO moved SELECT at, change_type FROM CHANGES(public.kept));
             CREATE MATERIALIZED VIEW public.counted AS SELECT meter, count(*) AS n FROM public.reading GROUP BY meter",
        )
        .unwrap();
    for query in [
        "SELECT sum(n) FROM minutes",
        "SELECT count(*) FROM moved WHERE what = 'insert'",
        "SELECT count(*) FROM CHANGES(public.kept)",
        "SELECT max(n) FROM public.counted",
    ] {
        wait_for(&mut session, query, "10");
    }
    assert_eq!(rows(&mut session, "SELECT count(*) FROM skipped, late"), [["0"]]);
    assert!(rows(&mut session, "EXPLAIN TOPOLOGY public.keeping")[0][0].starts_with("Topology keeping"));
    session
        .execute("ALTER TOPOLOGY public.keeping PAUSE; DROP TOPOLOGY public.keeping, moving; DROP MATERIALIZED VIEW counted; DROP STREAM public.low; DROP SOURCE public.reading")
        .unwrap();
    for statement in [
        "CREATE SOURCE other.reading (n INT) WITH (connector = 'generator')",
        "CREATE TOPOLOGY other.t AS (INSERT INTO minutes SELECT at, 1 FROM reading)",
        "CREATE SINK other.s FROM kept WITH (connector = 'file', path = 'x')",
        "DROP SOURCE other.reading",
    ] {
        check_refused(&mut session, statement, "3F000", &["are in schema public alone"]);
    }
}

#[test]
fn refusals_name_the_option_or_clause_and_the_reason() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    prepare(&mut session);
    let steps = "AS (INSERT INTO target SELECT n FROM other)";
    for (statement, state, words) in [
        (
            "CREATE SOURCE s (n INT) WITH (connector = 'generator', rows = -1)".to_owned(),
            "22023",
            "invalid value for option \"rows\": \"-1\"",
        ),
        (
            "CREATE TOPOLOGY t AS (INSERT INTO target SELECT count(*) FROM TUMBLE(reading, at, INTERVAL '1 month') GROUP BY window_start)"
                .to_owned(),
            "22023",
            "invalid value for TUMBLE: \"1 month\": months differ in length",
        ),
        (
            format!("CREATE TOPOLOGY t COMMIT EVERY INTERVAL '0 seconds' {steps}"),
            "22023",
            "COMMIT EVERY INTERVAL '0 seconds': it must be longer than 0",
        ),
        (format!("CREATE TOPOLOGY t COMMIT EVERY INTERVAL 'soon' {steps}"), "22023", "invalid value for COMMIT EVERY: \"soon\""),
        (
            "CREATE MATERIALIZED VIEW v AS WITH RECURSIVE r(n) AS (SELECT n FROM target UNION ALL SELECT n + 1 FROM r WHERE n < 3)
                SELECT * FROM r"
                .to_owned(),
            "0A000",
            "WITH RECURSIVE r in a materialized view",
        ),
    ] {
        check_refused(&mut session, &statement, state, &[words]);
    }
}
