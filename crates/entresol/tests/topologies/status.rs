//! What SHOW, DESCRIBE and the system tables say about sources, topologies and their operators.

use super::{append, rows, wait_for, wait_for_end};
use entresol::{Database, Options};
use std::time::{Duration, Instant};

#[test]
fn sources_and_operators_are_shown_with_their_counters() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lines.csv");
    append(
        &path,
        "id,value,at\n1,1.5,2026-01-01 00:00:00\nx,y,z\n2,2.5,2026-01-01 00:01:00\n3,3.5,2026-01-01 00:02:30\n",
    );
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(&format!(
            "CREATE SOURCE lines (id INT NOT NULL, \"the 'value'\" DECIMAL(8,2), at TIMESTAMP NOT NULL, WATERMARK FOR at AS at)
                 WITH (connector = 'file', path = '{0}', tail = true);
             CREATE SOURCE numbers (n INT) WITH (connector = 'generator', rows = 100);
             DROP SOURCE lines;
             CREATE SOURCE lines (id INT NOT NULL, value DECIMAL(8,2), at TIMESTAMP NOT NULL, WATERMARK FOR at AS at)
                 WITH (connector = 'file', path = '{0}', tail = true)",
            path.display()
        ))
        .unwrap();
    let shown = rows(&mut session, "SHOW SOURCES");
    assert_eq!(shown[0][..4], ["lines", "file", "", ""]);
    assert_eq!(shown[1][..4], ["numbers", "generator", "", ""]);
    assert_eq!(
        rows(&mut session, "DESCRIBE lines"),
        [["id", "INT", "NO"], ["value", "DECIMAL(8,2)", "YES"], ["at", "TIMESTAMP", "NO"]]
    );
    session
        .execute(
            "CREATE TABLE stored (id INT PRIMARY KEY);
             CREATE TABLE minutes (minute TIMESTAMP PRIMARY KEY, lines BIGINT);
             CREATE TOPOLOGY following COMMIT EVERY INTERVAL '1 ms' AS (
                 INSERT INTO stored SELECT id FROM lines WHERE id > 1;
                 INSERT INTO minutes SELECT window_start, count(*) FROM TUMBLE(lines, at, INTERVAL '1 minute') GROUP BY window_start);
             CREATE TOPOLOGY counting AS (INSERT INTO stored SELECT n + 10 FROM numbers ON CONFLICT (id) DO NOTHING)",
        )
        .unwrap();
    wait_for(&mut session, "SELECT count(*) FROM minutes", "2");
    wait_for_end(&mut session, "counting");
    let shown = rows(
        &mut session,
        "SELECT name, topology, state, tuples, rejected, error FROM entresol.sources ORDER BY name",
    );
    assert_eq!(
        shown,
        [["lines", "following", "running", "3", "1", ""], ["numbers", "counting", "ended", "100", "0", ""]]
    );
    let positions = rows(&mut session, "SELECT position FROM entresol.sources WHERE name = 'numbers'");
    assert_eq!(positions, [["100"]]);
    let operators = rows(&mut session, "DESCRIBE following");
    assert_eq!(operators[0], ["source lines", "0", "3"]);
    let of = |name: &str| operators.iter().find(|row| row[0].starts_with(name)).unwrap();
    assert_eq!(of("filter")[1..], ["3", "2"]);
    assert_eq!(of("TO_TABLE stored")[1], "2");
    assert_eq!(of("TO_TABLE minutes")[1], "2");
    let watermark = "SELECT watermark, tuples_per_second IS NULL FROM entresol.topologies ORDER BY name";
    assert_eq!(rows(&mut session, watermark), [["", "true"], ["2026-01-01T00:02:30", "false"]]);
    let same = "SELECT count(*) FROM entresol.operators WHERE topology = 'following'";
    assert_eq!(rows(&mut session, same)[0], [operators.len().to_string()]);
    // A table of the name comes first.
    session.execute("CREATE TABLE following (a INT)").unwrap();
    assert_eq!(rows(&mut session, "DESCRIBE following"), [["a", "integer", "YES"]]);
    assert!(session.query("DESCRIBE nothing").unwrap_err().to_string().contains("nothing"));
}

#[test]
fn a_rate_rises_and_falls() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(
            "CREATE SOURCE numbers (at TIMESTAMP NOT NULL) WITH (connector = 'generator', rows = 5000, rows_per_second = 2000);
             CREATE TABLE stored (at TIMESTAMP PRIMARY KEY);
             CREATE TOPOLOGY counting AS (INSERT INTO stored SELECT at FROM numbers)",
        )
        .unwrap();
    let begun = Instant::now();
    let mut most = 0;
    while most < 500 {
        assert!(begun.elapsed() < Duration::from_secs(20), "{most}");
        let rate = rows(&mut session, "SELECT coalesce(tuples_per_second, 0) FROM entresol.topologies");
        most = most.max(rate[0][0].parse::<u64>().unwrap());
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(most < 3000, "{most}");
    // Each operator has a rate of its own.
    let slow = "SELECT count(*) FROM entresol.operators WHERE coalesce(tuples_per_second, 0) < 100";
    wait_for(&mut session, slow, "0");
    let lines = rows(&mut session, "EXPLAIN ANALYZE TOPOLOGY counting");
    assert!(
        lines.iter().any(|line| line[0].contains("source numbers") && line[0].contains(" rows/s")),
        "{lines:?}"
    );
    wait_for_end(&mut session, "counting");
    assert_eq!(rows(&mut session, "SELECT tuples_per_second FROM entresol.topologies"), [[""]]);
}
