//! ASOF joins of two streams.

use super::joins::{check, create_sources};
use super::*;

/// ASOF join of random order, keys, conditions and reach: over streams, with the options of the topology, and over the tables
/// of all of their rows.
fn random_asof(random: &mut Random) -> (String, &'static str, String) {
    let orders = [
        ("r.at >= p.at", "", "true"),
        ("p.at < r.at", "", "true"),
        ("r.at > p.at", ", state_ttl = 'infinity'", "true"),
        ("p.at <= r.at", ", state_ttl = '7 minutes'", "r.at - p.at <= INTERVAL '7 minutes'"),
        ("r.at <= p.at", ", state_ttl = '12 minutes'", "p.at - r.at <= INTERVAL '12 minutes'"),
        ("p.at > r.at", ", state_ttl = '2 hours'", "p.at - r.at <= INTERVAL '2 hours'"),
    ];
    let (order, options, reach) = orders[random.below(orders.len())];
    let on = random.one(&[
        " ON r.meter = p.meter",
        " ON r.feeder = p.feeder AND p.meter = r.meter",
        " ON r.meter % 4 = p.meter % 3",
        " ON p.meter = r.meter + 1 AND r.feeder = p.feeder",
        "",
    ]);
    let condition = random.one(&["", "", " WHERE r.kw > 40", " WHERE p.cents > 30 OR p.id IS NULL"]);
    let join =
        |left: &str, right: &str| format!("{left} r ASOF JOIN {right} p MATCH_CONDITION ({order}){on}");
    let of_streams = format!(
        "SELECT r.at, r.meter, r.feeder, r.kw, p.id, p.at AS price_at, p.meter AS price_meter, p.cents FROM {}{condition}",
        join("reading", "price")
    );
    let is_near = |column: &str| format!("CASE WHEN {reach} THEN p.{column} END");
    let near = format!(
        "(SELECT r.at, r.meter, r.feeder, r.kw, {} AS id, {} AS price_at, {} AS price_meter, {} AS cents FROM {}) n",
        is_near("id"),
        is_near("at"),
        is_near("meter"),
        is_near("cents"),
        join("readings", "prices")
    );
    let condition = condition.replace("r.", "n.").replace("p.", "n.");
    (of_streams, options, format!("SELECT * FROM {near}{condition}"))
}

#[test]
fn random_asof_joins_equal_their_queries() {
    let seed = std::env::var("ENTRESOL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(17);
    println!("ENTRESOL_SEED={seed}");
    let mut random = Random(seed);
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    create_sources(&mut session, "");
    let (mut pairs, mut alone) = (0, 0);
    for _ in 0..25 {
        let (of_streams, options, of_tables) = random_asof(&mut random);
        let commit = random.one(&["EVERY 1 ROW", "EVERY 37 ROWS", "EVERY 5000 ROWS"]);
        let merge = random.one(&["arrival", "event_time"]);
        session
            .execute(&format!("CREATE TABLE target AS SELECT * FROM ({of_tables}) b WHERE false"))
            .unwrap();
        let create = format!(
            "CREATE TOPOLOGY x COMMIT {commit} WITH (durability = 'none', merge = '{merge}'{options}) AS (INSERT INTO target {of_streams})"
        );
        session.execute(&create).unwrap_or_else(|error| panic!("{create}: {error}"));
        wait_for_end(&mut session, "x");
        check(&mut session, "target", &of_tables, &create);
        let left = rows(&mut session, "SELECT count(*) FROM x_open WHERE side = 0");
        assert_eq!(left[0], ["0"], "{create}");
        let mut count = |of: &str| -> usize {
            rows(&mut session, &format!("SELECT count(*) FROM target WHERE {of}"))[0][0].parse().unwrap()
        };
        (pairs, alone) = (pairs + count("id IS NOT NULL"), alone + count("id IS NULL"));
        session.execute("DROP TOPOLOGY x; DROP TABLE target").unwrap();
    }
    assert!(pairs > 2500 && alone > 250, "{pairs} pairs, {alone} rows without partner");
}

#[test]
fn asof_joins_go_on_when_the_database_is_opened_again() {
    let mut random = Random(5);
    let mut waited = 0;
    for round in 0..3 {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::open(directory.path(), Options::default()).unwrap();
        let mut session = database.session().unwrap();
        create_sources(&mut session, "");
        session.execute("DROP TOPOLOGY everything; DROP SOURCE reading; DROP SOURCE price").unwrap();
        session.execute("ALTER TABLE readings RENAME TO r; ALTER TABLE prices RENAME TO p").unwrap();
        create_sources(&mut session, ", rows_per_second = 3000");
        let joins: Vec<(String, &str, String)> = (0..3).map(|_| random_asof(&mut random)).collect();
        for (number, (of_streams, options, of_tables)) in joins.iter().enumerate() {
            let commit = random.one(&["EACH ROW", "EVERY 37 ROWS"]);
            session
                .execute(&format!(
                    "CREATE TABLE target_{number} AS SELECT * FROM ({of_tables}) b WHERE false;
                     CREATE TOPOLOGY x{number} COMMIT {commit} WITH (durability = 'none'{options}) AS (
                         INSERT INTO target_{number} {of_streams})"
                ))
                .unwrap();
        }
        let are_far = "SELECT min(tuples) > 200 FROM entresol.topologies WHERE name LIKE 'x%'";
        wait_for(&mut session, are_far, "true");
        // Closed, or left as by a crash.
        drop(session);
        if round > 0 {
            database.close().unwrap();
        }
        drop(database);
        let database = Database::open(directory.path(), Options::default().start_topologies(false)).unwrap();
        let mut session = database.session().unwrap();
        for number in 0..joins.len() {
            let left = format!("SELECT count(*) FROM x{number}_open WHERE side = 0");
            waited += rows(&mut session, &left)[0][0].parse::<usize>().unwrap();
        }
        drop(session);
        drop(database);
        let database = Database::open(directory.path(), Options::default()).unwrap();
        let mut session = database.session().unwrap();
        for (number, (of_streams, _, of_tables)) in joins.iter().enumerate() {
            wait_for_end(&mut session, &format!("x{number}"));
            check(&mut session, &format!("target_{number}"), of_tables, of_streams);
        }
    }
    assert!(waited > 0, "no row waited over a restart");
}

/// Joins of a stream with itself, of results of windows, and windows and joins of the results.
#[test]
fn asof_joins_stand_among_other_steps() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    create_sources(&mut session, "");
    session
        .execute(
            "CREATE TABLE before (at TIMESTAMP, kw DOUBLE, before TIMESTAMP, kw_before DOUBLE);
             CREATE TABLE hours (window_start TIMESTAMP, readings BIGINT, priced BIGINT);
             CREATE TABLE of_windows (meter INT, window_start TIMESTAMP, n BIGINT, price_start TIMESTAMP, prices BIGINT);
             CREATE TABLE twice (at TIMESTAMP, id BIGINT, next_id BIGINT);
             CREATE TOPOLOGY steps COMMIT EVERY 50 ROWS WITH (merge = 'event_time') AS (
                 INSERT INTO before SELECT r.at, r.kw, o.at, o.kw
                     FROM reading r ASOF JOIN reading o MATCH_CONDITION (r.at > o.at) ON o.meter = r.meter;
                 CREATE STREAM priced WITH (state_table = 'kept_prices') AS SELECT r.at, r.feeder, p.id
                     FROM reading r ASOF JOIN price p MATCH_CONDITION (r.at >= p.at) ON p.feeder = r.feeder;
                 INSERT INTO hours SELECT window_start, count(*), count(id)
                     FROM TUMBLE(priced, at, INTERVAL '1 hour') GROUP BY window_start;
                 CREATE STREAM next_price WITH (state_ttl = '1 hour') AS SELECT b.at, b.id, p.id AS next_id
                     FROM priced b ASOF JOIN price p MATCH_CONDITION (b.at < p.at) ON p.feeder = b.feeder;
                 INSERT INTO twice SELECT * FROM next_price;
                 CREATE STREAM of_reading AS SELECT meter, window_start, count(*) AS n
                     FROM TUMBLE(reading, at, INTERVAL '20 minutes') GROUP BY meter, window_start;
                 CREATE STREAM of_price AS SELECT meter, window_start, count(*) AS n
                     FROM TUMBLE(price, at, INTERVAL '30 minutes') GROUP BY meter, window_start;
                 INSERT INTO of_windows SELECT r.meter, r.window_start, r.n, p.window_start, p.n FROM of_reading r
                     ASOF JOIN of_price p MATCH_CONDITION (r.window_start >= p.window_start) ON p.meter = r.meter)",
        )
        .unwrap();
    let explained = rows(&mut session, "EXPLAIN TOPOLOGY steps").concat().concat();
    assert!(explained.contains("ASOF join of streams, the last row of each key of the right stays"));
    assert!(explained.contains("rows of the left wait until 3600s behind their time"), "{explained}");
    wait_for_end(&mut session, "steps");
    let windows = |table: &str, minutes: i64| {
        format!(
            "(SELECT meter, date_bin(INTERVAL '{minutes} minutes', at, TIMESTAMP '1970-01-01 00:00:00') AS w, count(*) AS n
                 FROM {table} GROUP BY 1, 2)"
        )
    };
    let priced =
        "(SELECT r.at, r.feeder, p.id FROM readings r ASOF JOIN prices p MATCH_CONDITION (r.at >= p.at)
        ON p.feeder = r.feeder) b";
    for (target, batch) in [
        (
            "before",
            "SELECT r.at, r.kw, o.at, o.kw FROM readings r ASOF JOIN readings o MATCH_CONDITION (r.at > o.at)
                ON o.meter = r.meter"
                .to_owned(),
        ),
        ("hours", format!("SELECT date_trunc('hour', at), count(*), count(id) FROM {priced} GROUP BY 1")),
        (
            "twice",
            format!(
                "SELECT b.at, b.id, p.id FROM {priced} ASOF JOIN prices p MATCH_CONDITION (b.at < p.at) ON p.feeder = b.feeder"
            ),
        ),
        (
            "of_windows",
            format!(
                "SELECT r.meter, r.w, r.n, p.w, p.n FROM {} r ASOF JOIN {} p MATCH_CONDITION (r.w >= p.w) ON p.meter = r.meter",
                windows("readings", 20),
                windows("prices", 30)
            ),
        ),
    ] {
        check(&mut session, target, &batch, target);
    }
}

#[test]
fn asof_joins_that_no_watermark_decides_are_refused() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    create_sources(&mut session, "");
    session
        .execute(
            "CREATE SOURCE untimed (at TIMESTAMP NOT NULL, meter INT NOT NULL) WITH (connector = 'generator', rows = 1);
             CREATE TABLE t (at TIMESTAMP, id BIGINT)",
        )
        .unwrap();
    let asof = |right: &str, condition: &str| {
        format!(
            "INSERT INTO t SELECT r.at, 1 FROM reading r ASOF JOIN {right} p MATCH_CONDITION ({condition}) ON p.meter = r.meter"
        )
    };
    for (steps, expected) in [
        (asof("untimed", "r.at >= p.at"), "which is not the event time of its stream"),
        (asof("price", "r.kw >= p.cents"), "MATCH_CONDITION on r.kw"),
        (asof("price", "r.at >= p.at + INTERVAL '1 minute'"), "MATCH_CONDITION on p.at +"),
        (asof("price", "r.at <= p.at"), "state_ttl = '1 hour'"),
        (
            format!(
                "CREATE STREAM last AS SELECT meter, max(at) AS at FROM price GROUP BY meter; {}",
                asof("last", "r.at >= p.at")
            ),
            "of which rows are taken back",
        ),
        (
            asof("price", "r.at >= p.at") + " LATE ROWS INTO late",
            "LATE ROWS INTO or UPDATE of a step that joins streams",
        ),
        (
            "INSERT INTO t SELECT r.at, p.id FROM reading r ASOF JOIN price p MATCH_CONDITION (r.at >= p.at)
                ON p.meter = r.meter AND p.cents > 3"
                .to_owned(),
            "ON of an ASOF JOIN other than equalities",
        ),
    ] {
        let refused = session.execute(&format!("CREATE TOPOLOGY x AS ({steps})"));
        let error = refused.err().unwrap_or_else(|| panic!("{steps} is accepted")).to_string();
        assert!(error.contains(expected), "{steps}: {error}");
    }
}
