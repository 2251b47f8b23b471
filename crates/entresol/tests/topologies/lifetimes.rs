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

/// Readings beside counts that change with each of them: rows of the side that is only added to leave the state, and what was
/// sent for them stays.
const WITH_COUNTS: &str = "
    INSERT INTO readings SELECT at, meter, feeder FROM reading;
    CREATE STREAM of_feeder AS SELECT feeder, count(*) AS n FROM reading GROUP BY feeder;
    INSERT INTO feeders SELECT feeder, n FROM of_feeder ON CONFLICT (feeder) DO UPDATE SET n = EXCLUDED.n;
    CREATE STREAM beside WITH (state_ttl = '100 seconds', state_table = 'beside_rows') AS
        SELECT r.at, r.meter, r.feeder, f.n FROM reading r JOIN of_feeder f ON f.feeder = r.feeder;
    INSERT INTO each_reading SELECT at, count(*), min(feeder), min(n) FROM beside GROUP BY at
        ON CONFLICT (at) DO UPDATE SET rows = EXCLUDED.rows, feeder = EXCLUDED.feeder, n = EXCLUDED.n;
    INSERT INTO per_feeder SELECT feeder, count(*) FROM beside GROUP BY feeder
        ON CONFLICT (feeder) DO UPDATE SET readings = EXCLUDED.readings";

/// Compares what was joined: each reading counts once, and young ones have the count of now.
fn compare_counts(session: &mut Session, what: &str) {
    session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ").unwrap();
    for (differing, reason) in [
        ("SELECT count(*) FROM each_reading WHERE rows <> 1", "a reading counts more than once"),
        (
            "SELECT (SELECT count(*) FROM readings) - (SELECT count(*) FROM each_reading)",
            "a reading is not there",
        ),
        (
            "SELECT count(*) FROM (SELECT feeder, count(*) AS readings FROM readings GROUP BY feeder
                EXCEPT SELECT feeder, readings FROM per_feeder) d",
            "counts of feeders differ",
        ),
        (
            "SELECT count(*) FROM each_reading e JOIN feeders f ON f.feeder = e.feeder
                WHERE e.n <> f.n AND e.at > (SELECT max(at) FROM readings) - INTERVAL '110 seconds'",
            "a young reading has the count of before",
        ),
    ] {
        assert_eq!(rows(session, differing), [["0"]], "{what}: {reason}");
    }
    session.execute("COMMIT").unwrap();
}

#[test]
fn appended_rows_beside_rows_that_change_leave_the_state() {
    for commit in ["EVERY 7 ROWS", "EVERY 100 ROWS", "EVERY 23 ROWS"] {
        let directory = tempfile::tempdir().unwrap();
        for round in 0..3 {
            let database = Database::open(directory.path(), Options::default()).unwrap();
            let mut session = database.session().unwrap();
            if round == 0 {
                session
                    .execute(&format!(
                        "CREATE SOURCE reading (at TIMESTAMP NOT NULL, meter INT NOT NULL, feeder VARCHAR NOT NULL,
                             WATERMARK FOR at AS at - INTERVAL '10 seconds') WITH (connector = 'generator', rows = 600,
                             step = '1 second', meter.cardinality = 20, feeder.cardinality = 3, rows_per_second = 1500);
                         CREATE TABLE readings (at TIMESTAMP PRIMARY KEY, meter INT, feeder VARCHAR);
                         CREATE TABLE feeders (feeder VARCHAR PRIMARY KEY, n BIGINT);
                         CREATE TABLE each_reading (at TIMESTAMP PRIMARY KEY, rows BIGINT, feeder VARCHAR, n BIGINT);
                         CREATE TABLE per_feeder (feeder VARCHAR PRIMARY KEY, readings BIGINT);
                         CREATE TOPOLOGY x COMMIT {commit} WITH (durability = 'none') AS ({WITH_COUNTS})"
                    ))
                    .unwrap();
            }
            compare_counts(&mut session, &format!("{commit}, round {round}"));
            if round == 2 {
                wait_for_end(&mut session, "x");
                compare_counts(&mut session, commit);
                check_left(&mut session, commit);
                assert!(database.check(|_| {}).unwrap().problems.is_empty());
            }
            // Closed, or left as by a crash.
            if round == 0 {
                std::thread::sleep(Duration::from_millis(150));
                drop(session);
                database.close().unwrap();
            }
        }
    }
}

/// Checks that old rows have left the state of the join, that others are there, and that both are shown.
fn check_left(session: &mut Session, what: &str) {
    let kept = "SELECT count(*) FILTER (WHERE side = 0), count(*) FILTER (WHERE side = 1),
        count(*) FILTER (WHERE left_at > (SELECT max(at) FROM readings) - INTERVAL '100 seconds') FROM beside_rows";
    let kept = rows(session, kept).remove(0);
    let [readings, feeders, young]: [u64; 3] =
        kept.iter().map(|count| count.parse().unwrap()).collect::<Vec<_>>().try_into().unwrap();
    // Those of the last transaction go with later ones.
    assert!((100..450).contains(&readings), "{what}: {readings} rows are kept");
    assert_eq!((feeders, young), (3, 100), "{what}");
    // The counters are those of the last run, which has few rows if the machine was busy and runs before took longer.
    let of_run =
        "SELECT (SELECT sum(tuples_out)::bigint FROM entresol.operators WHERE operator = 'source reading'),
        (SELECT sum(expired)::bigint FROM entresol.operators WHERE operator = 'join beside_rows')";
    let of_run = rows(session, of_run).remove(0);
    let [read, expired] = [0, 1].map(|at| of_run[at].parse::<u64>().unwrap());
    let is_long = read >= 250;
    assert!(expired > 0 || !is_long, "{what}: none of {read} rows has left");
    assert!(expired + readings <= 600, "{what}: {expired} rows have left");
    let plan: Vec<String> = rows(session, "EXPLAIN ANALYZE TOPOLOGY x").into_iter().flatten().collect();
    let kept = "rows of the left are kept until 100s behind their time, all of the other";
    for (shown, is_there) in [(kept, true), (" expired", expired > 0)] {
        assert_eq!(plan.iter().any(|line| line.contains(shown)), is_there, "{what}: {shown}: {plan:?}");
    }
}

/// A row that comes behind its life is late; without an event time, or where those that stay would be alone, there is none.
#[test]
fn late_rows_of_a_join_with_changes_are_dropped_and_others_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lines.csv");
    let lines =
        "at,k\n2026-01-01 10:00:00,1\n2026-01-01 12:00:00,1\n2026-01-01 10:59:59,2\n2026-01-01 11:00:01,3\n";
    std::fs::write(&path, lines).unwrap();
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    let source = |name: &str, watermark: &str| {
        let options = format!("WITH (connector = 'file', path = '{}')", path.display());
        format!("CREATE SOURCE {name} (at TIMESTAMP NOT NULL, k INT NOT NULL{watermark}) {options};")
    };
    session.execute(&source("line", ", WATERMARK FOR at AS at")).unwrap();
    session.execute(&source("timeless", "")).unwrap();
    session.execute("CREATE TABLE joined (k INT PRIMARY KEY, rows BIGINT)").unwrap();
    let steps = |join: &str| {
        format!(
            "CREATE STREAM counts AS SELECT k, count(*) AS n FROM line GROUP BY k;
             CREATE STREAM j WITH (state_ttl = '1 hour') AS SELECT c.k, c.n FROM {join} ON c.k = l.k;
             INSERT INTO joined SELECT k, count(*) FROM j GROUP BY k ON CONFLICT (k) DO UPDATE SET rows = EXCLUDED.rows"
        )
    };
    for (join, expected) in [
        ("counts c LEFT JOIN line l", "state_ttl of an outer join"),
        ("line l FULL JOIN counts c", "state_ttl of an outer join"),
        ("timeless l JOIN counts c", "state_ttl of a join of appended rows without event time"),
        (
            "counts l JOIN counts c",
            "no join of streams without a bound in time of which one is of appended rows",
        ),
    ] {
        let refused = session.execute(&format!("CREATE TOPOLOGY x AS ({})", steps(join)));
        let error = refused.err().unwrap_or_else(|| panic!("{join} is accepted")).to_string();
        assert!(error.contains(expected), "{join}: {error}");
    }
    session
        .execute(&format!("CREATE TOPOLOGY x COMMIT EACH ROW AS ({})", steps("line l JOIN counts c")))
        .unwrap();
    wait_for_end(&mut session, "x");
    assert_eq!(rows(&mut session, "SELECT k, rows FROM joined ORDER BY k"), [["1", "2"], ["3", "1"]]);
    let late = "SELECT late FROM entresol.operators WHERE operator LIKE 'join %'";
    assert_eq!(rows(&mut session, late), [["1"]]);
}
