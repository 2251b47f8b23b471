//! CREATE VIEW over sources and streams: topologies read it as if its text stood there.

use super::{rows, sqlstate, wait_for_end};
use entresol::{Database, Options, Session};

fn prepare(session: &mut Session) {
    session
        .execute(
            "CREATE SOURCE reading (at TIMESTAMP NOT NULL, meter INT NOT NULL, kw DOUBLE, WATERMARK FOR at AS at)
                 WITH (connector = 'generator', rows = 3000, step = '7 seconds', meter.cardinality = 20);
             CREATE TABLE place (meter INT PRIMARY KEY, town VARCHAR);
             INSERT INTO place SELECT i, 'town ' || i % 4 FROM generate_series(0, 18) g(i);
             CREATE VIEW towns AS SELECT meter, upper(town) AS town FROM place;
             CREATE VIEW high (at, meter, kw) AS SELECT at, meter, kw * 1000 FROM reading WHERE kw > 50;
             CREATE VIEW placed AS SELECT h.at, t.town, h.kw FROM high h JOIN towns t ON t.meter = h.meter;
             CREATE OR REPLACE VIEW hours AS SELECT town, window_start, count(*) AS readings, max(kw) AS kw
                 FROM TUMBLE(placed, at, INTERVAL '1 hour') GROUP BY town, window_start;
             CREATE TABLE readings (at TIMESTAMP PRIMARY KEY, meter INT, kw DOUBLE);
             CREATE TABLE hourly (town VARCHAR, hour TIMESTAMP, readings BIGINT, kw DOUBLE, PRIMARY KEY (town, hour));
             CREATE TABLE busiest (town VARCHAR PRIMARY KEY, readings BIGINT)",
        )
        .unwrap();
}

const TOPOLOGIES: &str = "CREATE TOPOLOGY one COMMIT EVERY 100 ROWS AS (
        INSERT INTO hourly SELECT town, window_start, readings, kw FROM hours; INSERT INTO readings SELECT * FROM reading);
    CREATE TOPOLOGY two COMMIT EVERY 37 ROWS AS (
        INSERT INTO busiest SELECT town, count(*) FROM placed GROUP BY town ON CONFLICT (town) DO UPDATE SET readings = EXCLUDED.readings)";

#[test]
fn topologies_read_views_as_their_text_over_restarts() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..2 {
        let database = Database::open(directory.path(), Options::default()).unwrap();
        let mut session = database.session().unwrap();
        if round == 0 {
            prepare(&mut session);
            session.execute(TOPOLOGIES).unwrap();
        }
        wait_for_end(&mut session, "one");
        wait_for_end(&mut session, "two");
        let placed = "(SELECT r.at, upper(p.town) AS town, r.kw * 1000 AS kw FROM readings r JOIN place p ON p.meter = r.meter WHERE r.kw > 50) p";
        for (target, wanted) in [
            (
                "hourly",
                format!(
                    "SELECT town, date_trunc('hour', at), count(*), max(kw) FROM {placed} GROUP BY 1, 2 ORDER BY 1, 2"
                ),
            ),
            ("busiest", format!("SELECT town, count(*) FROM {placed} GROUP BY 1 ORDER BY 1")),
        ] {
            let wanted = rows(&mut session, &wanted);
            assert!(!wanted.is_empty());
            assert_eq!(
                rows(&mut session, &format!("SELECT * FROM {target} ORDER BY 1, 2")),
                wanted,
                "{target}"
            );
        }
        let shown = rows(&mut session, "SELECT name, topologies FROM entresol.streams ORDER BY name");
        assert_eq!(shown, [["high", "one, two"], ["hours", "one"], ["placed", "one, two"]]);
        let described = rows(&mut session, "DESCRIBE high");
        assert_eq!(described[0], ["at", "TIMESTAMP", "NO"]);
        drop(session);
        database.close().unwrap();
    }
}

#[test]
fn views_over_streams_are_no_tables_and_no_streams() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    prepare(&mut session);
    session.execute(TOPOLOGIES).unwrap();
    for (statement, code, expected) in [
        (
            "SELECT * FROM hours",
            "42809",
            "\"hours\" is a view over streams, not a table: its rows pass through topologies",
        ),
        (
            "SELECT count(*) FROM towns t JOIN high h ON h.meter = t.meter",
            "42809",
            "\"high\" is a view over streams",
        ),
        ("SELECT * FROM reading", "42809", "\"reading\" is a source, not a table"),
        ("CREATE VIEW high AS SELECT at FROM reading", "42710", "view \"high\" already exists"),
        (
            "CREATE OR REPLACE STREAM high AS SELECT at FROM reading",
            "42809",
            "\"high\" is a view, not a stream",
        ),
        ("CREATE OR REPLACE VIEW high AS SELECT at FROM reading", "2BP01", "cannot replace view high"),
        ("CREATE VIEW place AS SELECT at FROM reading", "42P07", "table \"place\" already exists"),
        ("CREATE VIEW v AS SELECT at FROM reading ORDER BY at", "0A000", "ORDER BY or OFFSET without LIMIT"),
        ("CREATE VIEW v AS SELECT nope FROM reading", "42703", "nope"),
        ("DROP STREAM high", "42809", "\"high\" is a view, not a stream"),
        ("DROP VIEW high", "2BP01", "view hours uses it"),
        ("DROP VIEW towns", "2BP01", "cannot drop view towns"),
        ("DROP VIEW nothing", "42P01", "view \"nothing\" does not exist"),
    ] {
        let error = session.execute(statement).err().unwrap_or_else(|| panic!("{statement} is accepted"));
        assert_eq!(sqlstate(&error), code, "{statement}: {error}");
        assert!(error.to_string().contains(expected), "{statement}: {error}");
    }
    session.execute("DROP TOPOLOGY one, two; DROP VIEW hours; DROP VIEW IF EXISTS hours").unwrap();
    session.execute("CREATE OR REPLACE VIEW placed AS SELECT at, meter AS town, kw FROM high").unwrap();
    // Views of both kinds, and what reads them.
    session.execute("DROP VIEW high, towns CASCADE").unwrap();
    assert_eq!(rows(&mut session, "SELECT count(*) FROM entresol.streams"), [["0"]]);
    session.execute("CREATE VIEW high AS SELECT meter FROM place; SELECT * FROM high").unwrap();
}
