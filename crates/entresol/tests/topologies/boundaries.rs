//! COMMIT with several boundaries, and of the windows of one stream.

use super::{rows, wait_for_end};
use entresol::{Database, Options};

/// Transactions of a topology over readings each half a minute, with windows of an hour and of a day.
fn transactions(commit: &str) -> u64 {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(&format!(
            "CREATE SOURCE reading (at TIMESTAMP NOT NULL, meter INT NOT NULL, WATERMARK FOR at AS at)
                 WITH (connector = 'generator', rows = 2880, step = '30 seconds', meter.cardinality = 3);
             CREATE TABLE hourly (meter INT, hour TIMESTAMP, n BIGINT, PRIMARY KEY (meter, hour));
             CREATE TABLE daily (meter INT, day TIMESTAMP, n BIGINT, PRIMARY KEY (meter, day));
             CREATE TOPOLOGY counting COMMIT {commit} AS (
                 CREATE STREAM hours AS SELECT meter, window_start, count(*) AS n
                     FROM TUMBLE(reading, at, INTERVAL '1 hour') GROUP BY meter, window_start EMIT ON WINDOW CLOSE;
                 CREATE STREAM days AS SELECT meter, window_start, count(*) AS n
                     FROM TUMBLE(reading, at, INTERVAL '1 day') GROUP BY meter, window_start;
                 INSERT INTO hourly SELECT * FROM hours;
                 INSERT INTO daily SELECT * FROM days)"
        ))
        .unwrap_or_else(|error| panic!("{commit}: {error}"));
    wait_for_end(&mut session, "counting");
    let sums = "SELECT (SELECT sum(n)::bigint FROM hourly), (SELECT sum(n)::bigint FROM daily), (SELECT count(*) FROM hourly)";
    assert_eq!(rows(&mut session, sums), [["2880", "2880", "72"]], "{commit}");
    rows(&mut session, "SELECT commits FROM entresol.topologies")[0][0].parse().unwrap()
}

#[test]
fn the_first_boundary_ends_a_transaction() {
    // 24 hours of 120 rows, each closed by the row behind it, and the end.
    let by_window = transactions("ON WINDOW CLOSE OF hours");
    assert!((24..=26).contains(&by_window), "{by_window}");
    assert_eq!(transactions("ON WINDOW CLOSE"), by_window);
    let by_day = transactions("ON WINDOW CLOSE OF days");
    assert!(by_day < 5, "{by_day}");
    // The rows of an hour are 50, 50 and 20.
    let by_both = transactions("ON WINDOW CLOSE OF hours OR EVERY 50 ROWS OR EVERY 5000 ROWS");
    assert!((72..=76).contains(&by_both), "{by_both}");
    let by_rows = transactions("EVERY 500 ROWS OR EVERY INTERVAL '1 hour' OR EVERY 160 ROWS");
    assert!((18..=20).contains(&by_rows), "{by_rows}");
    // What ends where an hour does is one transaction with its results.
    let in_step = transactions("ON WINDOW CLOSE OF hours OR EVERY 120 ROWS");
    assert!((24..=50).contains(&in_step), "{in_step}");
}
