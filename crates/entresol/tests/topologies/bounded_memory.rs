//! Bound of the memory of a topology: state that can be read again leaves DRAM, other state ends it by name.

use super::*;
use entresol::memory::MemoryConsumer;

const MIB: u64 = 1 << 20;

/// Peak of the memory of stream state.
fn peak(database: &Database) -> u64 {
    let usage = database.memory_usage();
    usage.consumers.iter().find(|line| line.consumer == MemoryConsumer::StreamState).unwrap().peak_bytes
}

/// Counts per key and the last rows of each, with these options besides.
fn count(options: &str) -> (Database, Session) {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(&format!(
            "CREATE SOURCE number (at TIMESTAMP NOT NULL, n INT NOT NULL, kw DOUBLE, WATERMARK FOR at AS at)
                 WITH (connector = 'generator', rows = 40000, step = '1 second', n.cardinality = 20000);
             CREATE TABLE numbers (at TIMESTAMP PRIMARY KEY, n INT, kw DOUBLE);
             CREATE TABLE counts (n INT PRIMARY KEY, many BIGINT, most DOUBLE);
             CREATE TABLE days (n INT, window_start TIMESTAMP, many BIGINT, PRIMARY KEY (n, window_start));
             CREATE TOPOLOGY t COMMIT EVERY 200 ROWS WITH (durability = 'none'{options}) AS (
                 INSERT INTO numbers SELECT * FROM number;
                 INSERT INTO counts SELECT n, count(*), max(kw) FROM number GROUP BY n
                     ON CONFLICT (n) DO UPDATE SET many = EXCLUDED.many, most = EXCLUDED.most;
                 INSERT INTO days SELECT n, window_start, count(*) FROM TUMBLE(number, at, INTERVAL '1 day') GROUP BY n, window_start)"
        ))
        .unwrap();
    wait_for_end(&mut session, "t");
    (database, session)
}

#[test]
fn state_beyond_the_bound_leaves_memory() {
    let (unbounded, _session) = count("");
    assert!(peak(&unbounded) > 3 * MIB, "{}", peak(&unbounded));
    let (bounded, mut session) = count(", memory = '2 MB'");
    assert!((MIB / 2..=2 * MIB).contains(&peak(&bounded)), "{}", peak(&bounded));
    for (target, batch) in [
        ("counts", "SELECT n, count(*), max(kw) FROM numbers GROUP BY n"),
        ("days", "SELECT n, date_trunc('day', at), count(*) FROM numbers GROUP BY 1, 2"),
    ] {
        let differ = format!(
            "SELECT count(*) FROM ((SELECT * FROM {target} EXCEPT ALL {batch}) UNION ALL ({batch} EXCEPT ALL SELECT * FROM {target})) d"
        );
        assert_eq!(rows(&mut session, &differ), [["0"]], "{target}");
    }
    let explained = rows(&mut session, "EXPLAIN TOPOLOGY t");
    assert_eq!(explained[0], ["Topology t, commit every 200 rows, at most 2MiB of memory"]);
}

/// A join of all rows must have them in memory: it ends with the name of the bound, and goes on with a larger one.
#[test]
fn a_join_that_needs_more_ends_and_goes_on_with_a_larger_bound() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    for side in ["one", "other"] {
        session
            .execute(&format!(
                "CREATE SOURCE {side} (id BIGINT NOT NULL, at TIMESTAMP NOT NULL, WATERMARK FOR at AS at)
                     WITH (connector = 'generator', rows = 5000, step = '1 second', id.cardinality = 50000);
                 CREATE TABLE all_{side} (id BIGINT, at TIMESTAMP);
                 CREATE TOPOLOGY copy_{side} AS (INSERT INTO all_{side} SELECT * FROM {side})"
            ))
            .unwrap();
    }
    session
        .execute(
            "CREATE TABLE pairs (id BIGINT, at TIMESTAMP);
             CREATE TOPOLOGY t COMMIT EVERY 50 ROWS WITH (durability = 'none', memory = '1 MB', state_ttl = 'infinity') AS (
                 INSERT INTO pairs SELECT a.id, b.at FROM one a JOIN other b ON b.id = a.id)",
        )
        .unwrap();
    wait_for(&mut session, "SELECT state FROM entresol.topologies WHERE name = 't'", "failed");
    let error = rows(&mut session, "SELECT error FROM entresol.topologies WHERE name = 't'")[0][0].clone();
    assert!(
        error.contains("stream state need") && error.contains("of memory of topology t = 1MiB"),
        "{error}"
    );
    assert!(error.contains("53200"), "{error}");
    session.execute("ALTER TOPOLOGY t SET (memory = '64 MB')").unwrap();
    session.execute("ALTER TOPOLOGY t RESUME").unwrap();
    wait_for_end(&mut session, "t");
    ["copy_one", "copy_other"].iter().for_each(|copy| wait_for_end(&mut session, copy));
    let batch = "SELECT a.id, b.at FROM all_one a JOIN all_other b ON b.id = a.id";
    let differ = format!(
        "SELECT count(*) FROM ((SELECT * FROM pairs EXCEPT ALL {batch}) UNION ALL ({batch} EXCEPT ALL SELECT * FROM pairs)) d"
    );
    assert_eq!(rows(&mut session, &differ), [["0"]]);
    assert_eq!(rows(&mut session, "SELECT count(*) > 100 FROM pairs"), [["true"]]);
    for (memory, expected) in [("100 kB", "at least 1MiB"), ("50%", "memory"), ("much", "memory")] {
        let error = session.execute(&format!("ALTER TOPOLOGY t SET (memory = '{memory}')")).unwrap_err();
        assert_eq!(sqlstate(&error), "22023", "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
}
