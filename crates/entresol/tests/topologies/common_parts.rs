//! Common parts of steps: one operator and one state table, and the results that each step has alone.

use super::{SOURCE, rows, wait_for_end};
use entresol::{Database, Options};

/// Aggregates that two steps have in the same words, one that differs, and a join of streams that both have.
const STEPS: &str = "
    INSERT INTO readings SELECT at, meter, feeder, kw FROM reading;
    INSERT INTO hours SELECT meter, window_start, count(*), max(kw) FROM TUMBLE(reading, at, INTERVAL '1 hour')
        GROUP BY meter, window_start;
    INSERT INTO busy SELECT m, most * 2 FROM
        (SELECT meter AS m, window_start, count(*), max(kw) AS most FROM TUMBLE(reading, at, INTERVAL '1 hour')
            GROUP BY meter, window_start) h WHERE most > 90;
    INSERT INTO feeders SELECT feeder, count(*) FROM TUMBLE(reading, at, INTERVAL '1 hour') GROUP BY feeder, window_start;
    INSERT INTO totals SELECT meter, count(*) FROM reading GROUP BY meter
        ON CONFLICT (meter) DO UPDATE SET readings = EXCLUDED.readings;
    INSERT INTO odd SELECT meter, readings FROM (SELECT meter, count(*) AS readings FROM reading GROUP BY meter) t
        WHERE meter % 2 = 1 ON CONFLICT (meter) DO UPDATE SET readings = EXCLUDED.readings";

#[test]
fn common_parts_of_steps_are_one_operator() {
    let directory = tempfile::tempdir().unwrap();
    let database = Database::open(directory.path().join("db"), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(&format!(
            "{SOURCE};
             CREATE TABLE readings (at TIMESTAMP, meter INT, feeder VARCHAR, kw DOUBLE);
             CREATE TABLE hours (meter INT, hour TIMESTAMP, readings BIGINT, most DOUBLE);
             CREATE TABLE busy (meter INT, twice DOUBLE);
             CREATE TABLE feeders (feeder VARCHAR, readings BIGINT);
             CREATE TABLE totals (meter INT PRIMARY KEY, readings BIGINT);
             CREATE TABLE odd (meter INT PRIMARY KEY, readings BIGINT);
             CREATE TOPOLOGY x AS ({STEPS})"
        ))
        .unwrap();
    wait_for_end(&mut session, "x");
    for (found, expected) in [
        (
            "SELECT * FROM hours",
            "SELECT meter, date_trunc('hour', at), count(*), max(kw) FROM readings GROUP BY 1, 2",
        ),
        (
            "SELECT * FROM busy",
            "SELECT meter, 2 * max(kw) FROM readings GROUP BY meter, date_trunc('hour', at) HAVING max(kw) > 90",
        ),
        (
            "SELECT * FROM feeders",
            "SELECT feeder, count(*) FROM readings GROUP BY feeder, date_trunc('hour', at)",
        ),
        ("SELECT * FROM totals", "SELECT meter, count(*) FROM readings GROUP BY meter"),
        ("SELECT * FROM odd", "SELECT meter, count(*) FROM readings WHERE meter % 2 = 1 GROUP BY meter"),
    ] {
        let differ = format!(
            "SELECT count(*) FROM (({found} EXCEPT ALL ({expected})) UNION ALL (({expected}) EXCEPT ALL {found})) d"
        );
        assert_eq!(rows(&mut session, &differ), [["0"]], "{found}");
    }
    let plan: Vec<String> =
        rows(&mut session, "EXPLAIN TOPOLOGY x").into_iter().map(|mut row| row.remove(0)).collect();
    let shared =
        |step: &str| plan.iter().filter(|line| line.contains(&format!("by the operators of {step}"))).count();
    assert_eq!(
        (shared("step 2 (INSERT INTO hours)"), shared("step 5 (INSERT INTO totals)")),
        (1, 1),
        "{plan:#?}"
    );
    // The numbers are those of states that each step had alone.
    let states =
        "SELECT table_name FROM information_schema.tables WHERE table_name LIKE 'x_open%' ORDER BY 1";
    assert_eq!(rows(&mut session, states), [["x_open"], ["x_open_3"], ["x_open_4"]], "{plan:#?}");
}

/// Clauses about the results of a step are not those of another one.
#[test]
fn steps_with_clauses_have_their_own_operators() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    let hours = "SELECT meter, window_start, count(*) FROM TUMBLE(reading, at, INTERVAL '1 hour') GROUP BY meter, window_start";
    session
        .execute(&format!(
            "{SOURCE};
             CREATE TABLE hours (meter INT, hour TIMESTAMP, readings BIGINT);
             CREATE TABLE early (meter INT, hour TIMESTAMP, readings BIGINT, PRIMARY KEY (meter, hour));
             CREATE TABLE named (meter INT, hour TIMESTAMP, readings BIGINT);
             CREATE TOPOLOGY x AS (
                 INSERT INTO hours {hours};
                 INSERT INTO early {hours} ON CONFLICT (meter, hour) DO UPDATE SET readings = EXCLUDED.readings EMIT CHANGES;
                 CREATE STREAM n WITH (state_table = 'open_hours') AS {hours};
                 INSERT INTO named SELECT * FROM n;
                 INSERT INTO hours {hours} LATE ROWS INTO late)"
        ))
        .unwrap();
    wait_for_end(&mut session, "x");
    let plan = rows(&mut session, "EXPLAIN TOPOLOGY x");
    assert!(plan.iter().all(|line| !line[0].contains("by the operators of")), "{plan:#?}");
    let counts =
        "SELECT (SELECT count(*) FROM hours), (SELECT count(*) FROM early), (SELECT count(*) FROM named)";
    let counts = rows(&mut session, counts).remove(0).into_iter().map(|count| count.parse::<u64>().unwrap());
    let counts: Vec<u64> = counts.collect();
    assert_eq!((counts[0], counts[1]), (2 * counts[1], counts[2]));
}
