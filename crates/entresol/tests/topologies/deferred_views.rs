//! Materialized views with deferred refresh: at any time they equal their queries at the snapshot that they say, beside
//! writers of all kinds, over restarts and crashes; REFRESH; refusals.

use super::{Random, rows, wait_for};
use entresol::tables::Value;
use entresol::{Database, Durability, ErrorKind, Options, Session};
use std::time::{Duration, Instant};

const TABLES: &str = "
    CREATE TABLE reading (id INT PRIMARY KEY, meter INT, feeder VARCHAR, wh BIGINT) WITH (changes = '1 hour', history = '1 hour');
    CREATE TABLE place (meter INT PRIMARY KEY, town VARCHAR) WITH (changes = '1 hour', history = '1 hour');
    INSERT INTO place SELECT i, 'town ' || (i % 3) FROM generate_series(0, 7) g(i)";

/// Views by keys of one and of two tables, of the whole, with window functions, and over another.
const VIEWS: [(&str, &str); 6] = [
    ("by_feeder", "SELECT feeder, count(*) AS n, sum(wh) AS wh, max(wh) AS most FROM reading GROUP BY feeder"),
    ("in_towns", "SELECT r.id, r.wh, p.meter, p.town FROM reading r JOIN place p ON p.meter = r.meter"),
    ("towns", "SELECT p.town, count(r.id) AS n FROM place p LEFT JOIN reading r ON p.meter = r.meter GROUP BY p.town"),
    ("total", "SELECT count(*) AS n, sum(wh) AS wh FROM reading"),
    (
        "last_two",
        "SELECT meter, sum(wh) AS wh FROM (SELECT meter, wh, row_number() OVER (PARTITION BY meter ORDER BY id DESC) AS place
            FROM reading) r WHERE place <= 2 GROUP BY meter",
    ),
    ("joined", "SELECT r.id, r.meter, p.town FROM reading r JOIN place p ON p.meter = r.meter WHERE r.wh > 50"),
];

fn create_views(session: &mut Session) {
    for (name, query) in VIEWS {
        let create = format!(
            "CREATE MATERIALIZED VIEW {name} WITH (refresh = 'deferred', refresh_interval = '5 milliseconds') AS {query}"
        );
        session.execute(&create).unwrap_or_else(|error| panic!("{create}: {error}"));
    }
}

/// Compares each view, and the timestamp of the same snapshot, with its query AS OF that timestamp.
fn compare(session: &mut Session) {
    for (name, _) in VIEWS {
        session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ").unwrap();
        let as_of = format!("SELECT as_of FROM materialized_view_positions WHERE view = '{name}'");
        let as_of = rows(session, &as_of)[0][0].clone();
        let mut held = rows(session, &format!("SELECT * FROM {name}"));
        session.execute("COMMIT").unwrap();
        session.execute(&format!("BEGIN AS OF TRANSACTION {as_of}")).unwrap();
        let mut expected = rows(session, &format!("SELECT * FROM {name}_query"));
        session.execute("COMMIT").unwrap();
        held.sort_unstable();
        expected.sort_unstable();
        assert_eq!(held, expected, "{name} as of {as_of}");
    }
}

/// Waits until the views are those of all commits.
fn wait_until_all_is_there(session: &mut Session) {
    for (name, _) in VIEWS {
        let differ = format!(
            "SELECT count(*) FROM ((SELECT * FROM {name} EXCEPT ALL SELECT * FROM {name}_query) UNION ALL
                (SELECT * FROM {name}_query EXCEPT ALL SELECT * FROM {name})) d"
        );
        wait_for(session, &differ, "0");
    }
}

/// A change of a table.
fn change(random: &mut Random) -> String {
    let (id, meter, wh) = (random.below(60), random.below(9), random.below(100));
    match random.below(8) {
        0..=2 => format!(
            "INSERT INTO reading VALUES ({id}, {meter}, 'feeder {}', {wh}) ON CONFLICT (id) DO UPDATE SET meter = EXCLUDED.meter, wh = EXCLUDED.wh",
            id % 5
        ),
        3 => format!("UPDATE reading SET wh = wh + 1, feeder = 'feeder {}' WHERE id = {id}", meter % 4),
        4 => format!("DELETE FROM reading WHERE id = {id}"),
        5 => format!("UPDATE reading SET meter = {meter} WHERE wh < {wh} AND id % 7 = 0"),
        6 => format!("UPDATE place SET town = 'town {}' WHERE meter = {meter}", wh % 4),
        _ => format!(
            "BEGIN; DELETE FROM reading WHERE meter = {meter}; UPDATE place SET town = 'none' WHERE meter = {meter}; COMMIT"
        ),
    }
}

#[test]
fn deferred_views_equal_their_queries_at_their_snapshots() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..3 {
        let database = Database::open(directory.path(), Options::default()).unwrap();
        let mut session = database.session().unwrap();
        if round == 0 {
            session.execute(TABLES).unwrap();
            create_views(&mut session);
            compare(&mut session);
        }
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let mut session = database.session().unwrap();
                // Commits become visible out of their order.
                session.execute(&format!("SET durability = '{}'", ["none", "sync"][writer])).unwrap();
                std::thread::spawn(move || {
                    let mut random = Random(round * 10 + writer as u64);
                    for _ in 0..120 {
                        let statement = change(&mut random);
                        if let Err(error) = session.execute(&statement) {
                            assert_eq!(error.kind(), ErrorKind::Conflict, "{statement}: {error}");
                            let _ = session.execute("ROLLBACK");
                        }
                    }
                })
            })
            .collect();
        let begin = Instant::now();
        while !writers.iter().all(|writer| writer.is_finished()) && begin.elapsed() < Duration::from_secs(30)
        {
            compare(&mut session);
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        wait_until_all_is_there(&mut session);
        compare(&mut session);
        let states = "SELECT DISTINCT state FROM entresol.topologies";
        assert_eq!(
            rows(&mut session, states),
            [["running"]],
            "{:?}",
            rows(&mut session, "SELECT name, error FROM entresol.topologies")
        );
        // Left as by a crash, or closed.
        if round == 1 {
            drop(session);
            database.close().unwrap();
        }
    }
}

#[test]
fn refresh_brings_a_deferred_view_up_to_date() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session.execute(TABLES).unwrap();
    session
        .execute(
            "INSERT INTO reading VALUES (1, 1, 'a', 5);
             CREATE MATERIALIZED VIEW sums WITH (refresh = 'deferred', refresh_interval = '1 hour', changes = '1 hour') AS
                 SELECT feeder, sum(wh) AS wh FROM reading GROUP BY feeder;
             CREATE MATERIALIZED VIEW feeders AS SELECT count(*) AS n FROM sums;
             CREATE MATERIALIZED VIEW whole WITH (refresh = 'deferred') AS SELECT max(wh) AS most FROM reading",
        )
        .unwrap();
    assert_eq!(rows(&mut session, "SELECT * FROM sums"), [["a", "5"]]);
    session.execute("INSERT INTO reading VALUES (2, 1, 'b', 7)").unwrap();
    session.execute("REFRESH MATERIALIZED VIEW sums").unwrap();
    assert_eq!(rows(&mut session, "SELECT * FROM sums ORDER BY feeder"), [["a", "5"], ["b", "7"]]);
    assert_eq!(rows(&mut session, "SELECT n FROM feeders"), [["2"]], "a view over it is maintained with it");
    session.execute("REFRESH MATERIALIZED VIEW whole").unwrap();
    assert_eq!(rows(&mut session, "SELECT most FROM whole"), [["7"]]);
    let intervals = "SELECT view, interval_ms FROM materialized_view_positions ORDER BY view";
    assert_eq!(rows(&mut session, intervals), [["sums", "3600000"], ["whole", "10000"]]);
    let sources = "SELECT name, connector, topology, state FROM entresol.sources ORDER BY topology";
    assert_eq!(
        rows(&mut session, sources),
        [["CHANGES(reading)", "table", "sums", "running"], ["CHANGES(reading)", "table", "whole", "running"]]
    );
    let changes = "SELECT feeder, wh FROM CHANGES(sums) ORDER BY commit_cts, feeder";
    assert_eq!(rows(&mut session, changes), [["a", "5"], ["b", "7"]]);
    for (statement, expected) in [
        ("DROP TABLE reading", "reading"),
        ("UPDATE sums SET wh = 1", "materialized view"),
        (
            "CREATE TOPOLOGY sums AS (INSERT INTO reading SELECT 9, 9, feeder, wh FROM CHANGES(sums))",
            "already exists",
        ),
        (
            "CREATE TOPOLOGY t AS (INSERT INTO reading SELECT 9, 9, feeder, wh FROM CHANGES(sums))",
            "would read what it causes",
        ),
    ] {
        let error = session.execute(statement).unwrap_err().to_string();
        assert!(error.contains(expected), "{statement}: {error}");
    }
    session.execute("DROP MATERIALIZED VIEW feeders, sums, whole").unwrap();
    for left in ["entresol.topologies", "streams_positions", "materialized_view_positions"] {
        assert_eq!(rows(&mut session, &format!("SELECT count(*) FROM {left}"))[0], ["0"], "{left}");
    }
    session.execute("INSERT INTO reading VALUES (3, 1, 'b', 7); DROP TABLE reading").unwrap();
}

/// A log that was dropped stops the refresh; when it is there again, all is computed.
#[test]
fn a_refresh_without_a_log_fails_with_the_reason() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session.execute(TABLES).unwrap();
    let create =
        "CREATE MATERIALIZED VIEW total WITH (refresh = 'deferred', refresh_interval = '5 milliseconds') AS
        SELECT count(*) AS n FROM reading";
    session.execute(create).unwrap();
    session.execute("ALTER TABLE reading RESET (changes)").unwrap();
    session.execute("INSERT INTO reading VALUES (1, 1, 'a', 5)").unwrap();
    let error = session.execute("REFRESH MATERIALIZED VIEW total").unwrap_err().to_string();
    assert!(error.contains("reading") && error.contains("change"), "{error}");
    wait_for(&mut session, "SELECT state FROM entresol.topologies", "failed");
    session.execute("ALTER TABLE reading SET (changes = '1 hour')").unwrap();
    session.execute("REFRESH MATERIALIZED VIEW total").unwrap();
    assert_eq!(rows(&mut session, "SELECT n FROM total"), [["1"]]);
    session.execute("INSERT INTO reading VALUES (2, 1, 'a', 5)").unwrap();
    wait_for(&mut session, "SELECT n FROM total", "2");
}

const TOTAL: &str = "CREATE TABLE r (id INT PRIMARY KEY) WITH (changes = '1 hour');
    CREATE MATERIALIZED VIEW total WITH (refresh = 'deferred', refresh_interval = '5 milliseconds') AS
        SELECT count(*) AS n FROM r";

/// The topology's stored position is before the log that is there again.
#[test]
fn a_refresh_recovers_from_a_log_that_begins_behind_its_position() {
    let directory = tempfile::tempdir().unwrap();
    let database = Database::open(directory.path(), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session.execute(TOTAL).unwrap();
    session.execute("INSERT INTO r VALUES (1)").unwrap();
    wait_for(&mut session, "SELECT n FROM total", "1");
    wait_for(&mut session, "SELECT count(*) FROM streams_positions", "1");
    session.execute("ALTER TABLE r RESET (changes)").unwrap();
    session.execute("INSERT INTO r VALUES (2)").unwrap();
    wait_for(&mut session, "SELECT state FROM entresol.topologies", "failed");
    session.execute("ALTER TABLE r SET (changes = '1 hour')").unwrap();
    session.execute("REFRESH MATERIALIZED VIEW total").unwrap();
    assert_eq!(rows(&mut session, "SELECT n FROM total"), [["2"]]);
    session.execute("INSERT INTO r VALUES (3)").unwrap();
    wait_for(&mut session, "SELECT n FROM total", "3");
    assert_eq!(rows(&mut session, "SELECT state FROM entresol.topologies"), [["running"]]);
}

/// Changes that the topology has not read are gone when the database is opened, or while it pauses between looks.
#[test]
fn changes_that_left_the_log_unread_are_in_the_view() {
    let directory = tempfile::tempdir().unwrap();
    let lose_changes = |session: &mut Session, id: u32| {
        session
            .execute(&format!(
                "INSERT INTO r VALUES ({id}); ALTER TABLE r RESET (changes); ALTER TABLE r SET (changes = '1 hour')"
            ))
            .unwrap();
    };
    let database = Database::open(directory.path(), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session.execute(&TOTAL.replace("5 milliseconds", "1 second")).unwrap();
    session.execute("INSERT INTO r VALUES (1)").unwrap();
    wait_for(&mut session, "SELECT n FROM total", "1");
    wait_for(&mut session, "SELECT count(*) FROM streams_positions", "1");
    lose_changes(&mut session, 2);
    wait_for(&mut session, "SELECT n FROM total", "2");
    drop(session);
    database.close().unwrap();
    drop(database);
    let options = Options { starts_topologies: false, ..Options::default() };
    let database = Database::open(directory.path(), options).unwrap();
    let mut session = database.session().unwrap();
    lose_changes(&mut session, 3);
    assert_eq!(rows(&mut session, "SELECT n FROM total"), [["2"]]);
    drop(session);
    database.close().unwrap();
    drop(database);
    let database = Database::open(directory.path(), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    wait_for(&mut session, "SELECT n FROM total", "3");
    session.execute("INSERT INTO r VALUES (4)").unwrap();
    wait_for(&mut session, "SELECT n FROM total", "4");
}

/// A commit every 50 ms: views are refreshed once in their intervals, of one table or two, and then have all of it.
#[test]
fn a_steady_load_costs_one_refresh_for_an_interval() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    for table in ["r", "s"] {
        session
            .execute(&format!("CREATE TABLE {table} (id INT PRIMARY KEY) WITH (changes = '1 hour')"))
            .unwrap();
    }
    let sum = "SELECT (SELECT count(*) FROM r) + (SELECT count(*) FROM s) AS n";
    for (view, interval, query) in [
        ("total", "refresh_interval = '300 milliseconds',", "SELECT count(*) AS n FROM r"),
        ("sum", "refresh_interval = '300 milliseconds',", sum),
        ("seldom", "", "SELECT count(*) AS n FROM r"),
    ] {
        let options = format!("refresh = 'deferred', {interval} changes = '1 hour'");
        session.execute(&format!("CREATE MATERIALIZED VIEW {view} WITH ({options}) AS {query}")).unwrap();
    }
    let begin = Instant::now();
    for id in 0..40 {
        session.execute(&format!("INSERT INTO r VALUES ({id}); INSERT INTO s VALUES ({id})")).unwrap();
        std::thread::sleep(Duration::from_millis(50));
    }
    wait_for(&mut session, "SELECT n FROM total", "40");
    wait_for(&mut session, "SELECT n FROM sum", "80");
    let most = begin.elapsed().as_millis() / 300 + 3;
    let refreshes = |session: &mut Session, view: &str| {
        let count = format!("SELECT count(DISTINCT commit_cts) FROM CHANGES({view})");
        rows(session, &count)[0][0].parse::<u128>().unwrap()
    };
    for view in ["total", "sum"] {
        let refreshes = refreshes(&mut session, view);
        assert!((3..=most).contains(&refreshes), "{refreshes} refreshes of {view}, at most {most}");
    }
    let seldom = refreshes(&mut session, "seldom");
    assert!(seldom <= 3 || begin.elapsed() > Duration::from_secs(9), "{seldom} refreshes of seldom");
}

/// A refresh of a second or more, beside commits that a view is maintained in by its query.
#[test]
fn a_long_refresh_does_not_hold_writers_of_other_views() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(
            "CREATE TABLE r (id INT PRIMARY KEY) WITH (changes = '1 hour');
             CREATE TABLE t (id INT PRIMARY KEY);
             INSERT INTO r SELECT i FROM generate_series(1, 30) g(i);
             CREATE MATERIALIZED VIEW most AS SELECT max(id) AS id FROM t;
             CREATE MATERIALIZED VIEW slow WITH (refresh = 'deferred', refresh_interval = '1 hour') AS
                 SELECT count(*) AS n FROM r a, r b, r c, r d WHERE (a.id * b.id + c.id * d.id) % 7 = 3;
             INSERT INTO r SELECT i FROM generate_series(31, 120) g(i)",
        )
        .unwrap();
    let mut other = database.session().unwrap();
    let refresh = std::thread::spawn(move || {
        let begin = Instant::now();
        other.execute("REFRESH MATERIALIZED VIEW slow").unwrap();
        begin.elapsed()
    });
    std::thread::sleep(Duration::from_millis(100));
    let (mut commits, mut longest) = (0, Duration::ZERO);
    while !refresh.is_finished() {
        let begin = Instant::now();
        session.execute(&format!("INSERT INTO t VALUES ({commits})")).unwrap();
        commits += 1;
        longest = longest.max(begin.elapsed());
        std::thread::sleep(Duration::from_millis(5));
    }
    let refreshed = refresh.join().unwrap();
    assert_eq!(rows(&mut session, "SELECT id FROM most"), [[(commits - 1).to_string()]]);
    assert!(
        commits > 5 && longest < refreshed / 2,
        "{commits} commits in {refreshed:?}, the longest took {longest:?}"
    );
}

/// Rows that a crash leaves while a view is dropped: its position, and the mark that it is filled.
#[test]
fn a_view_has_nothing_of_a_dropped_one_of_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let position = "SELECT count(*) FROM materialized_view_positions";
    for round in 0..3 {
        let database = Database::open(directory.path(), Options::default()).unwrap();
        let mut session = database.session().unwrap();
        if round == 0 {
            session.execute(TOTAL).unwrap();
            session.execute("DROP MATERIALIZED VIEW total").unwrap();
            assert_eq!(rows(&mut session, position), [["0"]]);
            let positions = database.catalog().table("materialized_view_positions").unwrap();
            let transaction = database.begin().unwrap();
            let left = vec![Value::from("total"), Value::BigInt(1), Value::BigInt(5), Value::Boolean(false)];
            positions.insert(&transaction, &left).unwrap();
            transaction.commit(Durability::Sync).unwrap();
            session.execute("CREATE MATERIALIZED VIEW total AS SELECT max(id) AS n FROM r").unwrap();
        }
        assert_eq!(rows(&mut session, position), [["0"]], "round {round}");
        assert_eq!(rows(&mut session, "SELECT count(*) FROM entresol.topologies"), [["0"]], "round {round}");
        session.execute(&format!("INSERT INTO r VALUES ({round})")).unwrap();
        assert_eq!(rows(&mut session, "SELECT n FROM total"), [[round.to_string()]]);
        drop(session);
        database.close().unwrap();
    }
}

#[test]
fn what_cannot_be_deferred_is_refused_by_name() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session.execute("CREATE TABLE t (id INT PRIMARY KEY); CREATE TABLE other (id INT PRIMARY KEY)").unwrap();
    for (options, query, expected) in [
        (
            "refresh = 'deferred'",
            "SELECT id FROM t",
            "reads table t, which has no change log: ALTER TABLE t SET (changes",
        ),
        ("refresh = 'sometimes'", "SELECT id FROM t", "invalid value for option \"refresh\": \"sometimes\""),
        ("refresh_interval = '1 second'", "SELECT id FROM t", "without refresh = 'deferred'"),
        (
            "refresh = 'deferred', refresh_interval = '0 ms'",
            "SELECT id FROM t",
            "\"refresh_interval\": \"0 ms\"",
        ),
        ("refresh = 'deferred', refresh = 'deferred'", "SELECT id FROM t", "specified more than once"),
        ("refresh = 'deferred'", "SELECT 1 AS one", "that reads no table"),
        ("refresh = 'deferred', history = '1 hour'", "SELECT id FROM t", "(history = "),
        ("structure = 'wbtree'", "SELECT id FROM t", "(structure = "),
        ("protocol = 's2pl'", "SELECT id FROM t", "(protocol = "),
        ("versions = 4", "SELECT id FROM t", "(versions = "),
        ("hot_bytes = '1 MB'", "SELECT id FROM t", "(hot_bytes = "),
        ("block_bytes = 65536", "SELECT id FROM t", "(block_bytes = "),
    ] {
        let create = format!("CREATE MATERIALIZED VIEW v WITH ({options}) AS {query}");
        let error = session.execute(&create).unwrap_err().to_string();
        assert!(error.contains(expected), "{create}: {error}");
    }
    let left = "SELECT count(*) FROM pg_class WHERE relname IN ('v', 'v_query')";
    assert_eq!(rows(&mut session, left)[0], ["0"]);
}
