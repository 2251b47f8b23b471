//! Tables, sources, views and topologies that others depend on: who uses them is said, CASCADE drops it too, and no
//! statement changes the tables that topologies and materialized views keep for themselves.

use super::{rows, sqlstate, wait_for, wait_for_end};
use entresol::{Database, Options, Session};

/// A topology with windows, one that reads the changes of its target, a view of each kind, and one over state.
fn prepare(session: &mut Session) {
    session
        .execute(
            "CREATE SOURCE reading (at TIMESTAMP NOT NULL, meter INT NOT NULL, kw DOUBLE, WATERMARK FOR at AS at)
                 WITH (connector = 'generator', step = '1 minute', meter.cardinality = 10, rows_per_second = 500);
             CREATE TABLE hourly (meter INT, hour TIMESTAMP, readings BIGINT, PRIMARY KEY (meter, hour)) WITH (changes = '1 hour');
             CREATE TABLE copied (meter INT, hour TIMESTAMP, PRIMARY KEY (meter, hour));
             CREATE TABLE place (meter INT PRIMARY KEY, town VARCHAR);
             CREATE TABLE placed (at TIMESTAMP, meter INT, town VARCHAR, PRIMARY KEY (at, meter));
             CREATE TOPOLOGY metering COMMIT EVERY 20 ROWS AS (
                 INSERT INTO hourly SELECT meter, window_start, count(*) FROM TUMBLE(reading, at, INTERVAL '1 hour')
                     GROUP BY meter, window_start);
             CREATE TOPOLOGY copying AS (INSERT INTO copied SELECT meter, hour FROM CHANGES(hourly));
             CREATE TOPOLOGY placing AS (
                 INSERT INTO placed SELECT r.at, r.meter, p.town FROM reading r LEFT JOIN place p ON p.meter = r.meter);
             CREATE MATERIALIZED VIEW totals AS SELECT meter, count(*) AS hours FROM hourly GROUP BY meter;
             CREATE MATERIALIZED VIEW latest WITH (refresh = 'deferred') AS SELECT meter, max(hour) AS hour FROM hourly GROUP BY meter;
             CREATE MATERIALIZED VIEW busy AS SELECT meter FROM totals WHERE hours > 1;
             CREATE VIEW shown AS SELECT * FROM busy",
        )
        .unwrap();
    wait_for(session, "SELECT count(*) > 5 FROM copied", "true");
}

const RUNNING: &str = "SELECT string_agg(name || ' ' || state, ', ' ORDER BY name) FROM entresol.topologies";

fn refused(session: &mut Session, statement: &str, code: &str, expected: &[&str]) {
    let error = session.execute(statement).err().unwrap_or_else(|| panic!("{statement} is accepted"));
    let found = sqlstate(&error);
    let error = error.to_string();
    for expected in expected {
        assert!(error.contains(expected), "{statement}: {error}");
    }
    assert_eq!(found, code, "{statement}: {error}");
}

#[test]
fn what_topologies_keep_for_themselves_is_changed_by_nothing_else() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    prepare(&mut session);
    let of_all = ["streams_positions", "streams_watermarks", "streams_topologies", "streams_sources"];
    let of_views = ["materialized_view_guards", "materialized_view_positions"];
    for table in of_all.iter().chain(&of_views) {
        let column = if table.starts_with("materialized") { "view" } else { "topology" };
        let column = if ["streams_topologies", "streams_sources"].contains(table) { "name" } else { column };
        for statement in [
            format!("DROP TABLE {table}"),
            format!("DROP TABLE {table} CASCADE"),
            format!("ALTER TABLE {table} RENAME TO mine"),
            format!("ALTER TABLE {table} RENAME COLUMN {column} TO mine"),
            format!("ALTER TABLE {table} ADD COLUMN more INT"),
            format!("ALTER TABLE {table} DROP COLUMN {column}"),
            format!("ALTER TABLE {table} ADD CHECK ({column} <> '')"),
            format!("ALTER TABLE {table} SET (changes = '1 hour')"),
            format!("CREATE INDEX mine ON {table} ({column})"),
        ] {
            let owner = if of_all.contains(table) { "the topologies" } else { "the materialized views" };
            refused(&mut session, &statement, "42501", &[table, "belongs to", owner]);
        }
    }
    for (table, owner) in [("metering_open", "it is state of topology metering"), ("totals_state", "totals")]
    {
        let code = if table == "metering_open" { "2BP01" } else { "42501" };
        for statement in [
            format!("DROP TABLE {table}"),
            format!("ALTER TABLE {table} RENAME TO mine"),
            format!("ALTER TABLE {table} RENAME COLUMN meter TO mine"),
            format!("ALTER TABLE {table} ADD COLUMN more INT"),
            format!("CREATE INDEX mine ON {table} (meter)"),
        ] {
            refused(&mut session, &statement, code, &[table, owner]);
        }
    }
    // An index of a view is an index.
    session.execute("CREATE INDEX by_hours ON totals (hours)").unwrap();
    let expected = "copying running, latest running, metering running, placing running";
    assert_eq!(rows(&mut session, RUNNING), [[expected]]);
    session.execute("DROP TOPOLOGY metering").unwrap();
    assert!(database.catalog().table("metering_open").is_err());
}

#[test]
fn all_users_are_named_and_cascade_drops_them() {
    let directory = tempfile::tempdir().unwrap();
    let database = Database::open(directory.path(), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    prepare(&mut session);
    let users = ["topology copying uses it", "topology metering uses it"];
    let views = ["latest", "totals", "busy"].map(|view| format!("materialized view {view} depends on"));
    let all: Vec<&str> = users.into_iter().chain(views.iter().map(String::as_str)).collect();
    refused(&mut session, "DROP TABLE hourly", "2BP01", &all);
    refused(&mut session, "DROP TABLE hourly RESTRICT", "2BP01", &all);
    refused(
        &mut session,
        "DROP SOURCE reading",
        "2BP01",
        &["topology metering uses it", "topology placing uses it"],
    );
    refused(&mut session, "DROP MATERIALIZED VIEW totals", "2BP01", &["materialized view busy depends on"]);
    refused(&mut session, "DROP MATERIALIZED VIEW busy", "2BP01", &["view shown depends on"]);
    super::notices_of(&session);
    session.execute("DROP TABLE hourly CASCADE").unwrap();
    let notices = super::notices_of(&session);
    for expected in [
        "drop cascades to topology copying",
        "drop cascades to topology metering",
        "drop cascades to view shown",
        "drop cascades to materialized view busy",
        "drop cascades to materialized view totals",
        "drop cascades to materialized view latest",
    ] {
        assert!(notices.iter().any(|notice| notice == expected), "{expected}: {notices:?}");
    }
    assert_eq!(rows(&mut session, RUNNING), [["placing running"]]);
    for gone in ["hourly", "totals", "totals_state", "latest", "busy", "metering_open"] {
        assert!(database.catalog().table(gone).is_err(), "{gone}");
    }
    let left = "SELECT count(*) FROM streams_positions WHERE topology <> 'placing'";
    assert_eq!(rows(&mut session, left), [["0"]]);
    assert!(rows(&mut session, "SELECT count(*) FROM copied")[0][0] != "0", "targets stay");
    session.execute("DROP SOURCE reading CASCADE").unwrap();
    assert_eq!(super::notices_of(&session), ["drop cascades to topology placing"]);
    drop(session);
    database.close().unwrap();
    drop(database);
    let database = Database::open(directory.path(), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    assert!(rows(&mut session, "SELECT * FROM entresol.topologies").is_empty());
    assert!(rows(&mut session, "SELECT * FROM entresol.sources").is_empty());
}

/// A view over the state of a topology, and one that a condition reads.
#[test]
fn views_between_topologies_are_dependencies() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    prepare(&mut session);
    session
        .execute(
            "CREATE VIEW open_hours AS SELECT * FROM metering_open;
             CREATE VIEW most AS SELECT count(*) AS n FROM place;
             CREATE TABLE seen (at TIMESTAMP PRIMARY KEY);
             CREATE TOPOLOGY seeing AS (
                 INSERT INTO seen SELECT at FROM reading;
                 ABORT WHEN (SELECT count(*) FROM CHANGES(seen)) > 1000 + (SELECT n FROM most))",
        )
        .unwrap();
    refused(
        &mut session,
        "DROP TOPOLOGY metering",
        "2BP01",
        &["view open_hours depends on table metering_open"],
    );
    refused(&mut session, "DROP VIEW most", "2BP01", &["topology seeing uses it"]);
    super::notices_of(&session);
    session.execute("DROP TOPOLOGY metering CASCADE").unwrap();
    assert_eq!(super::notices_of(&session), ["drop cascades to view open_hours"]);
    session.execute("DROP VIEW most CASCADE").unwrap();
    assert_eq!(super::notices_of(&session), ["drop cascades to topology seeing"]);
    assert_eq!(rows(&mut session, RUNNING), [["copying running, latest running, placing running"]]);
}

/// A topology may have the name of a table that it writes.
#[test]
fn a_table_with_the_name_of_its_topology_is_used_by_it() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(
            "CREATE SOURCE number (n INT) WITH (connector = 'generator', rows_per_second = 100);
             CREATE TABLE numbers (n INT);
             CREATE TOPOLOGY numbers AS (INSERT INTO numbers SELECT n FROM number)",
        )
        .unwrap();
    refused(&mut session, "DROP TABLE numbers", "2BP01", &["topology numbers uses it"]);
    assert_eq!(rows(&mut session, RUNNING), [["numbers running"]]);
    session.execute("DROP TOPOLOGY numbers; DROP TABLE numbers").unwrap();
}

/// A topology that cannot be planned any more still says what it uses.
#[test]
fn a_failed_topology_keeps_its_tables() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..2 {
        let database = Database::open(directory.path(), Options::default()).unwrap();
        let mut session = database.session().unwrap();
        if round == 0 {
            session
                .execute(
                    "CREATE SOURCE number (n INT) WITH (connector = 'generator', rows = 10);
                     CREATE TABLE stored (n INT);
                     CREATE TOPOLOGY storing AS (INSERT INTO stored SELECT n FROM number)",
                )
                .unwrap();
            wait_for_end(&mut session, "storing");
            // As another version might leave it.
            let table = database.catalog().table("streams_topologies").unwrap();
            let transaction = database.begin().unwrap();
            let mut row =
                table.scan(entresol::tables::ScanRange::full()).rows(&transaction).unwrap().remove(0);
            row[1] = "CREATE TOPOLOGY storing AS (INSERT INTO stored SELECT gone FROM number)".into();
            table.upsert(&transaction, &row).unwrap();
            transaction.commit(entresol::Durability::Sync).unwrap();
        } else {
            assert_eq!(rows(&mut session, RUNNING), [["storing failed"]]);
            refused(&mut session, "DROP TABLE stored", "2BP01", &["topology storing uses it"]);
            refused(&mut session, "DROP SOURCE number", "2BP01", &["topology storing uses it"]);
            session.execute("DROP TABLE stored CASCADE").unwrap();
            assert!(rows(&mut session, "SELECT * FROM entresol.topologies").is_empty());
        }
        drop(session);
        database.close().unwrap();
    }
}

/// All names of a statement are looked at before one is dropped.
#[test]
fn a_name_that_is_refused_drops_nothing() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    prepare(&mut session);
    session
        .execute(
            "CREATE VIEW open_hours AS SELECT * FROM metering_open;
             CREATE SEQUENCE numbers;
             CREATE TABLE numbered (n BIGINT DEFAULT nextval('numbers'))",
        )
        .unwrap();
    let running = rows(&mut session, RUNNING);
    super::notices_of(&session);
    for (statement, code, expected) in [
        ("DROP TABLE hourly, typo CASCADE", "42P01", "typo"),
        ("DROP TABLE hourly, shown CASCADE", "42809", "shown"),
        ("DROP TABLE hourly, streams_positions CASCADE", "42501", "streams_positions"),
        ("DROP SEQUENCE numbers, typo CASCADE", "42P01", "typo"),
        ("DROP TOPOLOGY placing, metering", "2BP01", "view open_hours depends on table metering_open"),
        ("DROP TOPOLOGY placing, typo CASCADE", "42704", "typo"),
        ("DROP SOURCE reading, typo CASCADE", "42704", "typo"),
        ("DROP MATERIALIZED VIEW latest, typo CASCADE", "42P01", "typo"),
        ("DROP MATERIALIZED VIEW latest, busy", "2BP01", "view shown depends on"),
    ] {
        refused(&mut session, statement, code, &[expected]);
        assert_eq!(rows(&mut session, RUNNING), running, "{statement}");
        assert!(super::notices_of(&session).is_empty(), "{statement}");
    }
    session.execute("INSERT INTO numbered VALUES (DEFAULT)").unwrap();
    assert_eq!(rows(&mut session, "SELECT n FROM numbered"), [["1"]]);
    // Names given twice, and a view before the one that it reads.
    session
        .execute(
            "DROP VIEW shown; DROP MATERIALIZED VIEW totals, busy, totals;
             DROP TOPOLOGY placing, copying, placing; DROP TABLE placed, copied, placed",
        )
        .unwrap();
    assert_eq!(rows(&mut session, RUNNING), [["latest running, metering running"]]);
}

/// A DROP TOPOLOGY that was cut short behind its first step has removed the statement alone.
#[test]
fn a_new_topology_begins_without_the_state_of_an_old_one() {
    let directory = tempfile::tempdir().unwrap();
    let create = "CREATE TOPOLOGY counting AS (
        INSERT INTO counted SELECT n, count(*) FROM number GROUP BY n ON CONFLICT (n) DO UPDATE SET many = EXCLUDED.many)";
    for round in 0..2 {
        let database = Database::open(directory.path(), Options::default()).unwrap();
        let mut session = database.session().unwrap();
        if round == 0 {
            session
                .execute(
                    "CREATE SOURCE number (n INT NOT NULL) WITH (connector = 'generator', rows = 100, n.cardinality = 10);
                     CREATE TABLE counted (n INT PRIMARY KEY, many BIGINT)",
                )
                .unwrap();
            session.execute(create).unwrap();
            wait_for_end(&mut session, "counting");
            let table = database.catalog().table("streams_topologies").unwrap();
            let transaction = database.begin().unwrap();
            assert!(table.delete(&transaction, &["counting".into()]).unwrap());
            transaction.commit(entresol::Durability::Sync).unwrap();
        } else {
            assert!(rows(&mut session, "SELECT * FROM entresol.topologies").is_empty());
            session.execute("DELETE FROM counted").unwrap();
            session.execute(create).unwrap();
            wait_for_end(&mut session, "counting");
            assert_eq!(rows(&mut session, "SELECT sum(many) FROM counted"), [["100"]]);
            session.execute("DROP TOPOLOGY counting").unwrap();
            refused(&mut session, "DROP TOPOLOGY counting", "42704", &["counting"]);
            session.execute(create).unwrap();
        }
        drop(session);
        database.close().unwrap();
    }
}
