//! ALTER TOPOLOGY, SOURCE and SINK: options and columns that change are stored, and rows count once; the topology of a
//! materialized view may be paused.

use super::{append, rows, sqlstate, wait_for};
use entresol::{Database, Options, Session};

fn prepare(session: &mut Session, path: &std::path::Path) {
    append(path, "id,n\n1,1\n2,2\n");
    session
        .execute(&format!(
            "CREATE SOURCE line (id INT NOT NULL, n INT) WITH (connector = 'file', path = '{}', tail = true);
             CREATE TABLE stored (id INT PRIMARY KEY, n INT) WITH (changes = '1 hour');
             CREATE TOPOLOGY storing COMMIT EACH ROW AS (INSERT INTO stored SELECT id, n FROM line)",
            path.display()
        ))
        .unwrap();
    wait_for(session, "SELECT count(*) FROM stored", "2");
}

const SHOWN: &str = "SELECT state, parallelism, error FROM entresol.topologies WHERE name = 'storing'";

#[test]
fn options_of_topologies_change_and_stay() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lines.csv");
    let open = || Database::open(directory.path().join("db"), Options::default()).unwrap();
    let database = open();
    let mut session = database.session().unwrap();
    prepare(&mut session, &path);
    session.execute("ALTER TOPOLOGY storing SET (durability = 'none', parallelism = 2)").unwrap();
    assert_eq!(rows(&mut session, SHOWN), [["running", "2", ""]]);
    append(&path, "3,3\n");
    wait_for(&mut session, "SELECT count(*) FROM stored", "3");
    for (statement, code, expected) in [
        ("SET (durability = 'maybe')", "22023", "invalid value for option \"durability\""),
        ("SET (speed = 3)", "22023", "unrecognized option \"speed\""),
        ("SET (state_ttl = '1 hour')", "22023", "has no join of streams without a bound"),
        ("SET (parallelism = 65)", "22023", "it must be from 1 to 64"),
    ] {
        let error = session.execute(&format!("ALTER TOPOLOGY storing {statement}")).unwrap_err();
        assert_eq!(sqlstate(&error), code, "{error}");
        assert!(error.to_string().contains(expected), "{statement}: {error}");
    }
    assert_eq!(rows(&mut session, SHOWN), [["running", "2", ""]]);
    session.execute("ALTER TOPOLOGY storing PAUSE; ALTER TOPOLOGY storing SET (parallelism = 3)").unwrap();
    assert_eq!(rows(&mut session, SHOWN)[0][0], "paused");
    session.execute("ALTER TOPOLOGY storing RESUME").unwrap();
    assert_eq!(rows(&mut session, SHOWN), [["running", "3", ""]]);
    drop(session);
    database.close().unwrap();
    drop(database);
    let database = open();
    let mut session = database.session().unwrap();
    assert_eq!(rows(&mut session, SHOWN), [["running", "3", ""]]);
    let definition = rows(&mut session, "SELECT definition FROM streams_topologies")[0][0].clone();
    assert_eq!(
        definition,
        "CREATE TOPOLOGY storing COMMIT EACH ROW WITH ('durability' = 'none', 'parallelism' = '3') AS (INSERT INTO stored SELECT id, n FROM line)"
    );
    append(&path, "4,4\n");
    wait_for(&mut session, "SELECT count(*) FROM stored", "4");
}

#[test]
fn a_source_gets_other_options_and_columns() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lines.csv");
    let database = Database::open(directory.path().join("db"), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    prepare(&mut session, &path);
    session.execute("ALTER SOURCE line SET (rejects = 'bad_lines')").unwrap();
    append(&path, "z,1\n3,3\n");
    wait_for(&mut session, "SELECT count(*) FROM stored", "3");
    wait_for(&mut session, "SELECT count(*) FROM bad_lines", "1");
    let error = session.execute("DROP TABLE bad_lines").unwrap_err().to_string();
    assert!(error.contains("topology storing uses it"), "{error}");
    for (statement, code, expected) in [
        ("SET (path = 'other.csv')", "55000", "option \"path\" of source \"line\" cannot be changed"),
        ("SET (connector = 'tcp')", "55000", "cannot be changed"),
        ("SET (retry = '1 second')", "22023", "unrecognized option \"retry\""),
        ("ADD COLUMN n INT", "42701", "column \"n\" specified more than once"),
        ("ADD COLUMN m INT DEFAULT 5", "0A000", "constraints of a source's column"),
    ] {
        let error = session.execute(&format!("ALTER SOURCE line {statement}")).unwrap_err();
        assert!(error.to_string().contains(expected), "{statement}: {error}");
        assert_eq!(sqlstate(&error), code, "{statement}");
    }
    // The column is not in the file yet: it is NULL in lines of JSON, and refused in those of CSV.
    append(&directory.path().join("more.csv"), "id,n,unit\n");
    session
        .execute(&format!(
            "CREATE SOURCE more (id INT NOT NULL) WITH (connector = 'file', path = '{}', tail = true);
             CREATE TOPOLOGY adding COMMIT EACH ROW AS (INSERT INTO stored SELECT id, 0 FROM more)",
            directory.path().join("more.csv").display()
        ))
        .unwrap();
    append(&directory.path().join("more.csv"), "10,1,kW\n");
    wait_for(&mut session, "SELECT count(*) FROM stored WHERE id >= 10", "1");
    session
        .execute(
            "ALTER SOURCE more ADD COLUMN unit VARCHAR;
             CREATE TABLE units (id INT PRIMARY KEY, unit VARCHAR);
             ALTER TOPOLOGY adding AS (
                 INSERT INTO stored SELECT id, 0 FROM more; INSERT INTO units SELECT id, unit FROM more)",
        )
        .unwrap();
    append(&directory.path().join("more.csv"), "11,1,W\n");
    wait_for(&mut session, "SELECT unit FROM units", "W");
    assert_eq!(rows(&mut session, "SELECT count(*) FROM stored WHERE id >= 10"), [["2"]]);
    let described = rows(&mut session, "DESCRIBE more");
    assert_eq!(described, [["id", "INT", "NO"], ["unit", "VARCHAR", "YES"]]);
    // A step that takes all columns could not go on.
    session
        .execute(
            "CREATE TABLE every (id INT PRIMARY KEY, unit VARCHAR);
             CREATE TOPOLOGY taking AS (INSERT INTO every SELECT * FROM more)",
        )
        .unwrap();
    let error = session.execute("ALTER SOURCE more ADD COLUMN n INT").unwrap_err();
    assert_eq!(sqlstate(&error), "2BP01");
    assert!(error.to_string().contains("topology taking could not go on"), "{error}");
    assert_eq!(rows(&mut session, "DESCRIBE more").len(), 2);
    let states = "SELECT DISTINCT state FROM entresol.topologies";
    assert_eq!(rows(&mut session, states), [["running"]]);
}

#[test]
fn a_sink_gets_another_durability_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lines.csv");
    let database = Database::open(directory.path().join("db"), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    prepare(&mut session, &path);
    let sent = directory.path().join("sent.json");
    session
        .execute(&format!(
            "CREATE SINK sent FROM stored WITH (connector = 'file', path = '{}') FORMAT PLAIN ENCODE JSON",
            sent.display()
        ))
        .unwrap();
    session.execute("ALTER SINK sent SET (durability = 'none')").unwrap();
    append(&path, "3,3\n");
    wait_for(&mut session, "SELECT rows_written FROM entresol.sinks", "3");
    assert_eq!(std::fs::read_to_string(&sent).unwrap().lines().count(), 3);
    let error = session.execute("ALTER SINK sent SET (path = 'x')").unwrap_err().to_string();
    assert!(error.contains("option \"path\" of a sink cannot be changed"), "{error}");
    let error = session.execute("ALTER SINK storing SET (durability = 'none')").unwrap_err().to_string();
    assert!(error.contains("\"storing\" is not a sink"), "{error}");
}

#[test]
fn the_topology_of_a_view_is_paused_and_resumed() {
    let directory = tempfile::tempdir().unwrap();
    let state = "SELECT state FROM entresol.topologies";
    for round in 0..3 {
        let database = Database::open(directory.path(), Options::default()).unwrap();
        let mut session = database.session().unwrap();
        match round {
            0 => {
                session
                    .execute(
                        "CREATE TABLE account (id INT PRIMARY KEY, amount BIGINT) WITH (changes = '1 hour');
                         CREATE MATERIALIZED VIEW rich WITH (refresh = 'deferred', refresh_interval = '5 milliseconds') AS
                             SELECT id FROM account WHERE amount > 100;
                         ALTER TOPOLOGY rich PAUSE;
                         INSERT INTO account VALUES (1, 500)",
                    )
                    .unwrap();
                std::thread::sleep(std::time::Duration::from_millis(100));
            }
            1 => {
                assert_eq!(rows(&mut session, "SELECT count(*) FROM rich"), [["0"]]);
                // REFRESH is of now, and resumes nothing.
                session.execute("REFRESH MATERIALIZED VIEW rich").unwrap();
                assert_eq!(rows(&mut session, "SELECT count(*) FROM rich"), [["1"]]);
                assert_eq!(rows(&mut session, state), [["paused"]]);
                let explained = rows(&mut session, "EXPLAIN TOPOLOGY rich");
                assert_eq!(explained, rows(&mut session, "EXPLAIN MATERIALIZED VIEW rich"));
                let error = session.execute("DROP TOPOLOGY rich").unwrap_err().to_string();
                assert!(error.contains("use DROP MATERIALIZED VIEW rich"), "{error}");
                session.execute("INSERT INTO account VALUES (2, 500)").unwrap();
                session.execute("ALTER TOPOLOGY rich RESUME").unwrap();
                wait_for(&mut session, "SELECT count(*) FROM rich", "2");
                let error = session.execute("ALTER TOPOLOGY rich SET (durability = 'none')").unwrap_err();
                assert!(error.to_string().contains("\"rich\" is a materialized view"), "{error}");
            }
            _ => {
                assert_eq!(rows(&mut session, state), [["running"]]);
                session.execute("DROP MATERIALIZED VIEW rich").unwrap();
                assert!(rows(&mut session, state).is_empty());
            }
        }
        if round == 0 {
            assert_eq!(rows(&mut session, state), [["paused"]]);
            assert_eq!(rows(&mut session, "SELECT count(*) FROM rich"), [["0"]]);
        }
        drop(session);
        database.close().unwrap();
    }
}

#[test]
fn the_error_of_a_failed_topology_outlives_a_pause() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lines.csv");
    let database = Database::open(directory.path().join("db"), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    prepare(&mut session, &path);
    append(&path, "1,1\n");
    wait_for(&mut session, "SELECT state FROM entresol.topologies", "failed");
    session.execute("ALTER TOPOLOGY storing PAUSE").unwrap();
    let shown = rows(&mut session, SHOWN);
    assert!(shown[0][0] == "failed" && !shown[0][2].is_empty(), "{shown:?}");
    session.execute("DELETE FROM stored WHERE id = 1; ALTER TOPOLOGY storing RESUME").unwrap();
    wait_for(&mut session, "SELECT count(*) FROM stored", "2");
    let paused = "SELECT paused FROM streams_topologies";
    assert_eq!(rows(&mut session, paused), [["false"]]);
    // One that cannot start is paused as before.
    session.execute("ALTER TOPOLOGY storing PAUSE").unwrap();
    let table = database.catalog().table("streams_topologies").unwrap();
    let transaction = database.begin().unwrap();
    let mut row = table.scan(entresol::tables::ScanRange::full()).rows(&transaction).unwrap().remove(0);
    row[1] = "CREATE TOPOLOGY storing AS (INSERT INTO stored SELECT gone FROM line)".into();
    table.upsert(&transaction, &row).unwrap();
    transaction.commit(entresol::Durability::Sync).unwrap();
    let error = session.execute("ALTER TOPOLOGY storing RESUME").unwrap_err();
    assert_eq!(sqlstate(&error), "42703", "{error}");
    assert_eq!(rows(&mut session, paused), [["true"]]);
    assert_eq!(rows(&mut session, SHOWN)[0][0], "paused");
}

/// The functions of a topology end with no statement of the session that created it.
#[test]
fn a_topology_outlives_the_timeout_of_its_creator() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lines.csv");
    append(&path, "id,n\n");
    let database = Database::open(directory.path().join("db"), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    let mut other = database.session().unwrap();
    session
        .execute(&format!(
            "CREATE SOURCE line (id INT NOT NULL, n INT) WITH (connector = 'file', path = '{}', tail = true);
             CREATE TABLE stored (id INT PRIMARY KEY, name VARCHAR);
             CREATE TABLE place (id INT PRIMARY KEY, town VARCHAR);
             INSERT INTO place VALUES (1, 'a'), (2, 'b');
             CREATE VIEW named AS SELECT id, concat(repeat('x', 3), town) AS town FROM place;
             CREATE TOPOLOGY storing COMMIT EACH ROW AS (
                 INSERT INTO stored SELECT l.id, concat(lpad(l.n::VARCHAR, 3, '0'), ' ', v.town)
                     FROM line l JOIN named v ON v.town <> replace('b', 'b', 'xxxb') AND v.id = l.id);
             SET statement_timeout = '200ms';
             SELECT 1",
            path.display()
        ))
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(400));
    append(&path, "1,7\n");
    wait_for(&mut other, "SELECT name FROM stored", "007 xxxa");
}

/// A statement that is longer than a row is stored in pieces, which are there after a restart, changed and removed with it.
#[test]
fn a_topology_may_have_many_steps() {
    const STEPS: usize = 120;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lines.csv");
    append(&path, "id,n\n1,1\n2,2\n");
    let open = || Database::open(directory.path().join("db"), Options::default()).unwrap();
    let database = open();
    let mut session = database.session().unwrap();
    session
        .execute(&format!(
            "CREATE SOURCE line (id INT NOT NULL, n INT) WITH (connector = 'file', path = '{}', tail = true);
             CREATE TABLE stored (step INT, id INT, note TEXT)",
            path.display()
        ))
        .unwrap();
    let step = |number: usize| {
        let note = "schön und gut, ".repeat(15);
        format!("INSERT INTO stored SELECT {number}, id, 'step {number}, {note}' FROM line WHERE n > 0")
    };
    let steps = |count: usize| (0..count).map(step).collect::<Vec<String>>().join("; ");
    session.execute(&format!("CREATE TOPOLOGY storing COMMIT EACH ROW AS ({})", steps(STEPS))).unwrap();
    wait_for(&mut session, "SELECT count(*) FROM stored", &(2 * STEPS).to_string());
    let pieces = "SELECT count(*) >= 2, max(length(definition)) <= 16384 FROM streams_topology_parts";
    assert_eq!(rows(&mut session, pieces), [["true", "true"]]);
    drop(session);
    // Left as by a crash.
    drop(database);
    let database = open();
    let mut session = database.session().unwrap();
    session.execute("ALTER TOPOLOGY storing SET (durability = 'none')").unwrap();
    append(&path, "3,3\n");
    wait_for(&mut session, "SELECT count(*) FROM stored", &(3 * STEPS).to_string());
    let different = "SELECT count(DISTINCT note) FROM stored";
    assert_eq!(rows(&mut session, different), [[STEPS.to_string()]]);
    session.execute(&format!("ALTER TOPOLOGY storing AS ({})", steps(1))).unwrap();
    assert_eq!(rows(&mut session, "SELECT count(*) FROM streams_topology_parts"), [["0"]]);
    append(&path, "4,4\n");
    wait_for(&mut session, "SELECT count(*) FROM stored", &(3 * STEPS + 1).to_string());
    session.execute(&format!("ALTER TOPOLOGY storing AS ({})", steps(STEPS))).unwrap();
    session.execute("DROP TOPOLOGY storing").unwrap();
    assert_eq!(rows(&mut session, "SELECT count(*) FROM streams_topology_parts"), [["0"]]);
    let long = format!(
        "CREATE TOPOLOGY long AS (INSERT INTO stored SELECT 1, id, '{}' FROM line)",
        "x".repeat(4 << 20)
    );
    let error = session.execute(&long).unwrap_err();
    assert_eq!(sqlstate(&error), "54000", "{error}");
    assert!(error.to_string().contains("divide it into several topologies"), "{error}");
}

/// Names that rewriting a subquery makes are others each time that the steps are planned; what they compute is the same.
#[test]
fn subqueries_over_changing_rows_go_on_behind_an_alter() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(
            "CREATE TABLE reading (id INT PRIMARY KEY, meter INT) WITH (changes = '1 hour');
             CREATE TABLE wanted (meter INT PRIMARY KEY);
             INSERT INTO wanted VALUES (1), (2);
             CREATE TABLE counted (meter INT PRIMARY KEY, n BIGINT);
             CREATE TOPOLOGY counting COMMIT EACH ROW AS (
                 CREATE STREAM of_meter AS SELECT meter, count(*) AS n FROM CHANGES(reading) GROUP BY meter;
                 INSERT INTO counted SELECT meter, n FROM of_meter WHERE meter IN (SELECT meter FROM wanted)
                     ON CONFLICT (meter) DO UPDATE SET n = EXCLUDED.n)",
        )
        .unwrap();
    for round in 1..=3 {
        session
            .execute(&format!(
                "INSERT INTO reading SELECT {round} * 10 + i, i FROM generate_series(1, 3) g(i)"
            ))
            .unwrap();
        let all = format!("{round},{round}");
        wait_for(&mut session, "SELECT string_agg(n::text, ',') FROM counted", &all);
        session.execute(&format!("ALTER TOPOLOGY counting SET (parallelism = {round})")).unwrap();
    }
    let other = "ALTER TOPOLOGY counting AS (
        CREATE STREAM of_meter AS SELECT meter, count(*) AS n FROM CHANGES(reading) GROUP BY meter;
        INSERT INTO counted SELECT meter, n FROM of_meter WHERE meter IN (SELECT meter + 1 FROM wanted)
            ON CONFLICT (meter) DO UPDATE SET n = EXCLUDED.n)";
    let error = session.execute(other).unwrap_err();
    assert!(error.to_string().contains("cannot go on with its state in counting_open_2:"), "{error}");
}
