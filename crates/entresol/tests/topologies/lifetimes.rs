//! Joins of streams that a column of one side bounds, or `state_ttl`: at each commit they equal the joins of all rows so
//! far, over aborts and restarts; refusals.

use super::{rows, wait_for_end};
use entresol::{Database, Options, Session};
use std::time::{Duration, Instant};

/// Sources of bids and auctions, and tables for them and for what is joined.
fn tables(session: &mut Session) {
    session
        .execute(
            "CREATE SOURCE auction (id BIGINT NOT NULL, seller BIGINT, date_time TIMESTAMP NOT NULL, expires TIMESTAMP,
                 WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds')
                 WITH (connector = 'nexmark', entity = 'auction', events = 2500, events_per_second = 40);
             CREATE SOURCE bid (auction BIGINT NOT NULL, price BIGINT, date_time TIMESTAMP NOT NULL,
                 WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds')
                 WITH (connector = 'nexmark', entity = 'bid', events = 2500, events_per_second = 40);
             CREATE TABLE auctions (id BIGINT PRIMARY KEY, seller BIGINT, date_time TIMESTAMP, expires TIMESTAMP);
             CREATE TABLE bids (auction BIGINT, price BIGINT, date_time TIMESTAMP PRIMARY KEY);
             CREATE TABLE valid (id BIGINT, price BIGINT, at TIMESTAMP);
             CREATE TABLE winning (id BIGINT PRIMARY KEY, price BIGINT, at TIMESTAMP);
             CREATE TABLE near (id BIGINT, price BIGINT, at TIMESTAMP);
             CREATE TABLE every (id BIGINT, price BIGINT, at TIMESTAMP);
             CREATE TABLE sold (id BIGINT, price BIGINT);
             CREATE TABLE per_minute (minute TIMESTAMP PRIMARY KEY, bids BIGINT)",
        )
        .unwrap();
}

const STEPS: &str = "
    INSERT INTO auctions SELECT id, seller, date_time, expires FROM auction;
    INSERT INTO bids SELECT auction, price, date_time FROM bid;
    CREATE STREAM valid_bid AS SELECT a.id, b.price, b.date_time AS at, a.date_time AS opened
        FROM auction a JOIN bid b ON b.auction = a.id WHERE b.date_time BETWEEN a.date_time AND a.expires;
    INSERT INTO valid SELECT id, price, at FROM valid_bid;
    INSERT INTO winning SELECT id, price, at
        FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY price DESC, at) AS place FROM valid_bid) r
        WHERE place = 1 ON CONFLICT (id) DO UPDATE SET price = EXCLUDED.price, at = EXCLUDED.at;
    CREATE STREAM near_bid WITH (state_ttl = '3 seconds') AS SELECT a.id, b.price, b.date_time AS at
        FROM bid b JOIN auction a ON b.auction = a.id AND b.date_time >= a.date_time;
    INSERT INTO near SELECT * FROM near_bid;
    CREATE STREAM every_bid WITH (state_ttl = 'infinity', state_table = 'all_open') AS
        SELECT a.id, b.price, b.date_time AS at FROM bid b JOIN auction a ON b.auction = a.id;
    INSERT INTO every SELECT * FROM every_bid;
    INSERT INTO sold SELECT a.id, b.price FROM auction a LEFT JOIN bid b
        ON b.auction = a.id AND a.date_time <= b.date_time AND a.expires + INTERVAL '1 second' > b.date_time;
    INSERT INTO per_minute SELECT window_start, count(*) FROM TUMBLE(valid_bid, opened, INTERVAL '1 minute') GROUP BY window_start;
    ABORT WHEN (SELECT count(*) FROM CHANGES(bids) WHERE price % 997 = 7) > 0";

/// Targets that equal these queries at each commit.
const AT_COMMIT: [(&str, &str); 4] = [
    (
        "SELECT id, price, at FROM valid",
        "SELECT a.id, b.price, b.date_time AS at FROM auctions a JOIN bids b ON b.auction = a.id
            WHERE b.date_time BETWEEN a.date_time AND a.expires",
    ),
    (
        "SELECT id, price, at FROM winning",
        "SELECT id, price, at FROM (SELECT a.id, b.price, b.date_time AS at,
                row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time) AS place
            FROM auctions a JOIN bids b ON b.auction = a.id WHERE b.date_time BETWEEN a.date_time AND a.expires) r
            WHERE place = 1",
    ),
    (
        "SELECT id, price, at FROM near",
        "SELECT a.id, b.price, b.date_time AS at FROM auctions a JOIN bids b ON b.auction = a.id
            WHERE b.date_time >= a.date_time AND b.date_time <= a.date_time + INTERVAL '3 seconds'",
    ),
    (
        "SELECT id, price, at FROM every",
        "SELECT a.id, b.price, b.date_time AS at FROM auctions a JOIN bids b ON b.auction = a.id",
    ),
];

/// Targets that are complete at the end.
const AT_END: [(&str, &str); 2] = [
    (
        "SELECT id, price FROM sold",
        "SELECT a.id, b.price FROM auctions a LEFT JOIN bids b
            ON b.auction = a.id AND a.date_time <= b.date_time AND a.expires + INTERVAL '1 second' > b.date_time",
    ),
    (
        "SELECT minute, bids FROM per_minute",
        "SELECT date_trunc('minute', a.date_time) AS minute, count(*) AS bids FROM auctions a JOIN bids b ON b.auction = a.id
            WHERE b.date_time BETWEEN a.date_time AND a.expires GROUP BY 1",
    ),
];

fn compare(session: &mut Session, pairs: &[(&str, &str)]) {
    session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ").unwrap();
    for (target, query) in pairs {
        for (one, other) in [(target, query), (query, target)] {
            let missing = rows(session, &format!("SELECT * FROM ({one} EXCEPT ALL {other}) d LIMIT 3"));
            assert_eq!(missing, Vec::<Vec<String>>::new(), "{one} has more than {other}");
        }
    }
    session.execute("COMMIT").unwrap();
}

/// Number of rows of a table.
fn count(session: &mut Session, table: &str) -> u64 {
    rows(session, &format!("SELECT count(*) FROM {table}"))[0][0].parse().unwrap()
}

#[test]
fn joins_by_lifetimes_equal_those_of_all_rows() {
    for (boundary, merge) in
        [("EVERY 1 ROW", "event_time"), ("EVERY 23 ROWS", "arrival"), ("EVERY 500 ROWS", "event_time")]
    {
        let directory = tempfile::tempdir().unwrap();
        for round in 0..4 {
            let database = Database::open(directory.path(), Options::default()).unwrap();
            let mut session = database.session().unwrap();
            if round == 0 {
                tables(&mut session);
                let create = format!(
                    "CREATE TOPOLOGY joined COMMIT {boundary} ON ERROR ABORT WITH (durability = 'none', merge = '{merge}') AS ({STEPS})"
                );
                session.execute(&create).unwrap();
            }
            if round == 3 {
                check_end(&mut session);
                break;
            }
            let begin = Instant::now();
            while count(&mut session, "bids") < 500 * (round + 1) && begin.elapsed() < Duration::from_secs(20)
            {
                compare(&mut session, &AT_COMMIT);
            }
            // Left as by a crash, or closed.
            if round == 1 {
                drop(session);
                database.close().unwrap();
            }
        }
    }
}

/// Compares all targets when the topology has ended.
fn check_end(session: &mut Session) {
    wait_for_end(session, "joined");
    compare(session, &AT_COMMIT);
    compare(session, &AT_END);
    for table in ["valid", "winning", "near", "every", "sold", "per_minute"] {
        assert_ne!(count(session, table), 0, "{table}");
    }
    // Lifetimes are over; what may get a partner for ever is still there.
    assert_eq!(count(session, "joined_open"), 0);
    let both = count(session, "bids") + count(session, "auctions");
    assert_eq!(count(session, "all_open"), both);
    let explained = rows(session, "EXPLAIN TOPOLOGY joined");
    for line in [
        "  state joined_open: join of streams, rows of the left buffered until a.expires, of the right until 0ns behind their time",
        "  state joined_open_3: join of streams, rows of the left buffered until 1µs behind their time, of the right until 3s behind their time",
        "  state all_open: join of streams, rows of the left buffered for ever, of the right for ever",
    ] {
        assert!(explained.iter().any(|row| row[0] == line), "{line}: {explained:?}");
    }
}

#[test]
fn joins_without_an_end_are_refused_by_name() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    tables(&mut session);
    let every = "SELECT a.id, b.price, b.date_time AS at FROM bid b JOIN auction a ON b.auction = a.id";
    for (options, steps, expected) in [
        ("", format!("INSERT INTO every {every}"), "WITH (state_ttl = '1 hour'), or 'infinity'"),
        ("", format!("INSERT INTO every {every} AND b.date_time <= a.expires"), "two streams without end"),
        (
            "WITH (state_ttl = 'infinity')",
            format!("INSERT INTO every {}", every.replace("JOIN", "LEFT JOIN")),
            "none is known to have none",
        ),
        (
            "WITH (state_ttl = 'infinity')",
            format!(
                "CREATE STREAM e AS {every}; INSERT INTO per_minute SELECT window_start, count(*)
                FROM TUMBLE(e, at, INTERVAL '1 minute') GROUP BY window_start"
            ),
            "has no watermark",
        ),
        (
            "WITH (state_ttl = '0 seconds')",
            format!("INSERT INTO every {every}"),
            "\"state_ttl\": \"0 seconds\"",
        ),
        ("WITH (state_ttl = 'soon')", format!("INSERT INTO every {every}"), "\"state_ttl\": \"soon\""),
        (
            "WITH (state_ttl = '1 day')",
            format!("INSERT INTO every {every} AND b.date_time BETWEEN a.date_time AND a.expires"),
            "no join of streams without a bound in time",
        ),
        (
            "",
            "CREATE STREAM e WITH (state_ttl = '1 day') AS SELECT * FROM bid".to_owned(),
            "option \"state_ttl\" of a step",
        ),
    ] {
        let refused = session.execute(&format!("CREATE TOPOLOGY x {options} AS ({steps})"));
        let error = refused.err().unwrap_or_else(|| panic!("{steps} is accepted")).to_string();
        assert!(error.contains(expected), "{steps}: {error}");
    }
}
