//! Materialized views: at every snapshot they hold what their query gives, whoever writes what they read, by
//! whatever way, over restarts.
#![allow(clippy::unwrap_used)]

use entresol::arrow::util::display::array_value_to_string;
use entresol::tables::Value;
use entresol::{CollectedRows, Database, Durability, Options, Session, StatementResult};
use std::sync::atomic::{AtomicBool, Ordering};

/// Rows of a query, as sorted texts.
fn rows(session: &mut Session, sql: &str) -> Vec<String> {
    let batches = session.query(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let mut rows = Vec::new();
    for batch in batches {
        for row in 0..batch.num_rows() {
            let text = |column| array_value_to_string(batch.column(column), row).unwrap();
            rows.push((0..batch.num_columns()).map(text).collect::<Vec<_>>().join(" "));
        }
    }
    rows.sort_unstable();
    rows
}

/// Compares each view with its query, in one snapshot.
fn check(session: &mut Session, views: &[&str], when: &str) {
    session.execute("BEGIN").unwrap();
    for view in views {
        let (held, computed) = (format!("SELECT * FROM {view}"), format!("SELECT * FROM {view}_query"));
        assert_eq!(rows(session, &held), rows(session, &computed), "{view}, {when}");
    }
    session.execute("COMMIT").unwrap();
}

const TABLES: &str = "
    CREATE TABLE reading (id INT PRIMARY KEY, meter INT, feeder VARCHAR, kw DECIMAL(8,2), at TIMESTAMP);
    CREATE TABLE place (meter INT PRIMARY KEY, town VARCHAR);
    INSERT INTO place SELECT i, 'town ' || (i % 3) FROM generate_series(0, 7) g(i)";

/// Views of all kinds: by key, by group, of the whole, joined, over each other.
const VIEWS: [(&str, &str); 16] = [
    ("high", "SELECT id, meter, kw * 2 AS twice FROM reading WHERE kw > 50"),
    (
        "by_feeder",
        "SELECT feeder, count(*) AS n, sum(kw) AS kw, max(kw) AS most, count(DISTINCT meter) AS meters FROM reading GROUP BY feeder",
    ),
    (
        "by_two",
        "SELECT meter, feeder, min(at) AS first, avg(kw) AS mean FROM reading WHERE kw IS NOT NULL GROUP BY meter, feeder HAVING count(*) > 1",
    ),
    ("total", "SELECT count(*) AS n, sum(kw) AS kw FROM reading"),
    ("in_towns", "SELECT p.town, r.id, r.kw FROM reading r JOIN place p ON p.meter = r.meter"),
    (
        "towns",
        "SELECT p.town, count(r.id) AS n FROM place p LEFT JOIN reading r ON p.meter = r.meter GROUP BY p.town",
    ),
    ("over", "SELECT n, count(*) AS feeders FROM by_feeder GROUP BY n"),
    (
        "sums",
        "SELECT meter, feeder AS fed, count(*) AS n, count(kw) AS measured, sum(kw) AS kw, avg(kw) AS mean, sum(id) AS ids,
            count(*) FILTER (WHERE kw > 30) AS high FROM reading GROUP BY meter, feeder",
    ),
    (
        "many",
        "SELECT sum(kw * 2) + 1 AS kw, upper(r.feeder) || '!' AS fed FROM (SELECT * FROM reading WHERE id > 2) r
            WHERE meter <> 3 GROUP BY upper(r.feeder) || '!' HAVING count(*) > 2 AND sum(kw) > 10",
    ),
    (
        "converted",
        "SELECT meter, cast(sum(id) AS BIGINT) AS ids, coalesce(avg(kw), 0) AS mean, greatest(count(*), 2) AS n
            FROM reading GROUP BY meter",
    ),
    ("over_sums", "SELECT measured, sum(n) AS n, avg(ids) AS ids FROM sums WHERE fed IS NOT NULL GROUP BY measured"),
    ("days", "SELECT date_trunc('minute', at) AS minute, count(*) AS n FROM reading GROUP BY 1"),
    (
        "parts",
        "SELECT substr(fed, 8, 1) AS part, id % 3 AS third, count(*) AS n, sum(id) AS ids, avg(id) AS mean
            FROM (SELECT id, feeder AS fed, meter AS m FROM reading WHERE meter >= 1) r WHERE m < 7 AND m <> 4 AND id * 2 > 3
            GROUP BY substr(fed, 8, 1), id % 3 HAVING count(*) <= 40",
    ),
    ("top", "SELECT id, kw FROM reading ORDER BY kw DESC NULLS LAST, id LIMIT 5"),
    (
        "last_two",
        "SELECT meter, sum(id) AS ids FROM (SELECT meter, id, row_number() OVER (PARTITION BY meter ORDER BY kw DESC, id) AS place,
            count(*) OVER (PARTITION BY meter, feeder) AS n FROM reading) r WHERE place <= 2 AND n < 9 GROUP BY meter",
    ),
    (
        "missing",
        "SELECT meter FROM place WHERE meter NOT IN (SELECT meter FROM reading WHERE meter IS NOT NULL)",
    ),
];

fn make_views(session: &mut Session) -> Vec<&'static str> {
    for (name, query) in VIEWS {
        session.execute(&format!("CREATE MATERIALIZED VIEW {name} AS {query}")).unwrap();
    }
    VIEWS.iter().map(|(name, _)| *name).collect()
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// A random statement on the tables.
fn statement(random: &mut Random) -> String {
    let feeder = |n: u64| if n == 3 { "NULL".to_owned() } else { format!("'feeder {n}'") };
    let id = random.below(60);
    match random.below(10) {
        0..=2 => {
            let (meter, kw) = (random.below(10), random.below(10_000));
            let meter = if meter == 9 { "NULL".to_owned() } else { meter.to_string() };
            format!(
                "INSERT INTO reading VALUES ({id}, {meter}, {}, {}.{:02}, '2026-01-01 00:00:00'::timestamp + INTERVAL '{kw} seconds')
                 ON CONFLICT (id) DO UPDATE SET meter = EXCLUDED.meter, feeder = EXCLUDED.feeder, kw = EXCLUDED.kw",
                feeder(random.below(4)),
                kw / 100,
                kw % 100
            )
        }
        3 => format!("DELETE FROM reading WHERE id = {id}"),
        4 => format!("UPDATE reading SET kw = kw + 1 WHERE meter = {}", random.below(9)),
        5 => format!("UPDATE reading SET feeder = {} WHERE id % 7 = {}", feeder(random.below(4)), random.below(7)),
        6 => format!(
            "INSERT INTO reading SELECT i, i % 9, 'feeder ' || i % 3, i, NULL FROM generate_series({id}, {}) g(i)
             ON CONFLICT (id) DO NOTHING",
            id + 20
        ),
        7 => format!(
            "MERGE INTO reading r USING (SELECT i FROM generate_series({id}, {}) AS g(i)) AS s ON r.id = s.i
             WHEN MATCHED AND r.id % 3 = 0 THEN DELETE
             WHEN MATCHED THEN UPDATE SET id = r.id, meter = r.id % 8, kw = r.kw + 2
             WHEN NOT MATCHED THEN INSERT (id, meter, feeder, kw) VALUES (i, i % 9, {}, i)
             WHEN NOT MATCHED BY SOURCE AND kw > 50 AND id % 5 = 1 THEN UPDATE SET feeder = {}",
            id + 9,
            feeder(random.below(4)),
            feeder(random.below(4))
        ),
        8 => format!("UPDATE place SET town = 'town {}' WHERE meter = {}", random.below(4), random.below(8)),
        _ => format!("DELETE FROM place WHERE meter = {0}; INSERT INTO place VALUES ({0}, 'town 9')", random.below(8)),
    }
}

/// Views of counts and sums have a state, and go without one where a row cannot be taken back.
#[test]
fn counts_and_sums_have_a_state() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session.execute(TABLES).unwrap();
    make_views(&mut session);
    let states = "SELECT table_name FROM information_schema.tables WHERE table_name LIKE '%\\_state'";
    let expected = [
        "converted_state",
        "days_state",
        "many_state",
        "over_state",
        "over_sums_state",
        "parts_state",
        "sums_state",
        "total_state",
    ];
    assert_eq!(rows(&mut session, states), expected);
    for refused in
        ["DELETE FROM sums_state", "DROP TABLE sums_state", "ALTER TABLE sums_state ADD COLUMN a INT"]
    {
        let error = session.execute(refused).unwrap_err().to_string();
        assert!(error.contains("the state of materialized view sums"), "{refused}: {error}");
    }
    session.execute("DROP MATERIALIZED VIEW over_sums; DROP MATERIALIZED VIEW sums").unwrap();
    assert_eq!(
        rows(&mut session, states),
        ["converted_state", "days_state", "many_state", "over_state", "parts_state", "total_state"]
    );
    session.execute("CREATE TABLE sums_state (a INT)").unwrap();
    let error =
        session.execute("CREATE MATERIALIZED VIEW sums AS SELECT count(*) AS n FROM place").unwrap_err();
    assert!(error.to_string().contains("sums_state"), "{error}");
    session
        .execute("DROP TABLE sums_state; CREATE MATERIALIZED VIEW sums AS SELECT count(*) AS n FROM place")
        .unwrap();
    assert_eq!(rows(&mut session, "SELECT n FROM sums"), ["8"]);
}

#[test]
fn groups_with_long_keys_and_sums_out_of_range() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(
            "CREATE TABLE word (id INT PRIMARY KEY, text VARCHAR, n NUMERIC(38,0));
             CREATE MATERIALIZED VIEW words AS SELECT text, count(*) AS many, sum(n) AS n FROM word GROUP BY text;
             INSERT INTO word SELECT i, repeat('long ', 100 + i % 3 * 200) || i % 2, i FROM generate_series(1, 60) g(i);
             UPDATE word SET text = repeat('long ', 500) || '1', n = 5 WHERE id < 30;
             DELETE FROM word WHERE id % 5 = 0",
        )
        .unwrap();
    check(&mut session, &["words"], "after long texts");
    let high = "9".repeat(38);
    session.execute(&format!("INSERT INTO word VALUES (100, 'high', {high})")).unwrap();
    let error = session.execute("INSERT INTO word VALUES (101, 'high', 1)").unwrap_err().to_string();
    assert!(error.contains("out of range"), "{error}");
    check(&mut session, &["words"], "after a sum out of range");
}

#[test]
fn views_hold_what_their_queries_give_after_random_statements() {
    after_random_statements("rows");
}

/// Tables by column, of which one is converted and converted back between statements.
#[test]
fn views_over_tables_by_column_hold_what_their_queries_give() {
    after_random_statements("columns");
}

fn after_random_statements(layout: &str) {
    let seed = std::env::var("ENTRESOL_SEED").map_or(5, |seed| seed.parse().unwrap());
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session.execute(&TABLES.replace(");", &format!(") WITH (layout = '{layout}');"))).unwrap();
    let mut random = Random(seed);
    for _ in 0..10 {
        session.execute(&statement(&mut random)).unwrap();
    }
    let views = make_views(&mut session);
    check(&mut session, &views, "when they were created");
    for round in 0..60 {
        let mut script = String::new();
        let block = random.below(3) == 0;
        if block {
            session.execute("BEGIN").unwrap();
        }
        for _ in 0..1 + random.below(3) * u64::from(block) {
            script = statement(&mut random);
            session.execute(&script).unwrap_or_else(|error| panic!("{script}: {error}"));
        }
        if block {
            let of_view = |view: &&str| rows(&mut session, &format!("SELECT * FROM {view}"));
            let within: Vec<Vec<String>> = views.iter().map(of_view).collect();
            let commits = random.below(4) > 0;
            session.execute(if commits { "COMMIT" } else { "ROLLBACK" }).unwrap();
            for (view, within) in views.iter().zip(within).filter(|_| commits) {
                let behind = rows(&mut session, &format!("SELECT * FROM {view}"));
                assert_eq!(
                    within, behind,
                    "{view} before the commit of round {round}, seed {seed}: {script}"
                );
            }
        }
        if layout == "columns" && round % 4 == 1 {
            session.execute("VACUUM reading, place").unwrap();
        }
        if layout == "columns" && round % 15 == 8 {
            let other = if round % 2 == 0 { "rows" } else { "columns" };
            session.execute(&format!("ALTER TABLE reading SET (layout = '{other}')")).unwrap();
        }
        check(&mut session, &views, &format!("seed {seed}, round {round}: {script}"));
    }
    session.execute("TRUNCATE reading").unwrap();
    check(&mut session, &views, "all gone");
}

/// Rows of tables by their own interface, many at once, and of topologies.
#[test]
fn writers_without_sql_maintain_views_too() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session.execute(TABLES).unwrap();
    let views = make_views(&mut session);
    let table = database.catalog().table("reading").unwrap();
    let row = |id: i32| {
        vec![
            Value::Int(id),
            Value::Int(id % 8),
            Value::from("direct"),
            Value::Decimal(i128::from(id)),
            Value::Null,
        ]
    };
    let tx = database.begin().unwrap();
    table.insert_many(&tx, &(0..5000).map(row).collect::<Vec<_>>()).unwrap();
    tx.commit(Durability::None).unwrap();
    check(&mut session, &views, "inserted");
    session
        .execute(
            "CREATE SOURCE made (id INT NOT NULL, kw DOUBLE) WITH (connector = 'generator', rows = 500, id.cardinality = 900);
             CREATE TOPOLOGY makers COMMIT EVERY 50 ROWS AS (
                 INSERT INTO reading SELECT id, 3, 'made', kw, CAST(NULL AS TIMESTAMP) FROM made ON CONFLICT (id) DO UPDATE SET
                     meter = EXCLUDED.meter, feeder = EXCLUDED.feeder, kw = EXCLUDED.kw, at = EXCLUDED.at)",
        )
        .unwrap();
    let begun = std::time::Instant::now();
    while rows(&mut session, "SELECT state FROM entresol.topologies") != ["ended"] {
        assert!(begun.elapsed().as_secs() < 60, "{:?}", rows(&mut session, "SHOW TOPOLOGIES"));
        check(&mut session, &views, "while a topology writes");
    }
    check(&mut session, &views, "written by a topology");
    let made = rows(&mut session, "SELECT n FROM by_feeder WHERE feeder = 'made'");
    assert_eq!(made, rows(&mut session, "SELECT count(*) FROM reading WHERE feeder = 'made'"));
}

#[test]
fn concurrent_writers_leave_views_as_their_queries() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session.execute(TABLES).unwrap();
    let views = make_views(&mut session);
    std::thread::scope(|scope| {
        for writer in 0..3 {
            let mut session = database.session().unwrap();
            scope.spawn(move || {
                let mut random = Random(100 + writer);
                for _ in 0..40 {
                    // Losing against another writer too often is an error, and nothing of it is there.
                    let _ = session.execute(&statement(&mut random));
                }
            });
        }
        for _ in 0..20 {
            check(&mut session, &views, "beside writers");
        }
    });
    check(&mut session, &views, "after writers");
}

/// Ends writers when it goes, also by a failed assertion.
struct Writers<'e>(&'e AtomicBool);

impl Drop for Writers<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Groups are added and go while the view is made and made again: some go between its making and its first rows.
#[test]
fn views_are_made_and_refreshed_beside_writers() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session.execute("CREATE TABLE item (id INT PRIMARY KEY, kind INT, n BIGINT)").unwrap();
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let (mut session, ends) = (database.session().unwrap(), &ends);
            scope.spawn(move || {
                let mut random = Random(7 + writer);
                while !ends.load(Ordering::Relaxed) {
                    let (id, kind) = (random.below(12), random.below(4));
                    let statement = match random.below(3) {
                        0 => format!("DELETE FROM item WHERE kind = {kind}"),
                        1 => format!("UPDATE item SET n = n + 1, kind = {kind} WHERE id = {id}"),
                        _ => format!("INSERT INTO item VALUES ({id}, {kind}, {id}) ON CONFLICT DO NOTHING"),
                    };
                    let _ = session.execute(&statement);
                }
            });
        }
        let _writers = Writers(&ends);
        let differ = "SELECT (SELECT count(*) FROM (SELECT * FROM kinds EXCEPT ALL SELECT * FROM kinds_query) more)
                         + (SELECT count(*) FROM (SELECT * FROM kinds_query EXCEPT ALL SELECT * FROM kinds) less)";
        for _ in 0..40 {
            for statement in [
                "CREATE MATERIALIZED VIEW kinds AS SELECT kind, count(*) AS items, sum(n) AS n FROM item GROUP BY kind",
                "REFRESH MATERIALIZED VIEW kinds",
            ] {
                // It may lose against the writers as often as it tries.
                while session.execute(statement).is_err() {}
                for _ in 0..3 {
                    assert_eq!(rows(&mut session, differ), ["0"], "{statement}");
                }
            }
            session.execute("DROP MATERIALIZED VIEW kinds").unwrap();
        }
    });
}

#[test]
fn views_are_there_again_and_are_guarded() {
    let dir = tempfile::tempdir().unwrap();
    let database = Database::open(dir.path().join("db"), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session.execute(TABLES).unwrap();
    let views = make_views(&mut session);
    session.execute("INSERT INTO reading VALUES (1, 1, 'a', 60, NULL), (2, 1, 'b', 70, NULL)").unwrap();
    drop(session);
    database.close().unwrap();
    drop(database);

    let database = Database::open(dir.path().join("db"), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    check(&mut session, &views, "opened again");
    session.execute("UPDATE reading SET kw = 80 WHERE id = 1").unwrap();
    check(&mut session, &views, "changed after that");
    assert_eq!(rows(&mut session, "SELECT kw FROM total"), ["150.00"]);
    session.execute("REFRESH MATERIALIZED VIEW total").unwrap();
    session
        .execute(
            "CREATE VIEW low AS SELECT id FROM reading WHERE kw < 5;
             CREATE MATERIALIZED VIEW lows AS SELECT count(*) AS n FROM low;
             CREATE VIEW seen AS SELECT * FROM high_query;
             ALTER TABLE reading SET (changes = '1 hour')",
        )
        .unwrap();
    check(&mut session, &views, "refreshed");
    for (statement, expected) in [
        ("INSERT INTO total VALUES (1, 1)", "materialized view total"),
        ("DROP TABLE total", "use DROP MATERIALIZED VIEW total"),
        ("ALTER TABLE total RENAME TO sums", "total is a materialized view"),
        ("ALTER TABLE total ADD COLUMN more INT", "total is a materialized view"),
        ("DROP TABLE materialized_view_guards", "belongs to the materialized views"),
        ("CREATE OR REPLACE VIEW low AS SELECT 1 AS id", "materialized view lows depends on view low"),
        ("DROP VIEW low", "materialized view lows depends on view low"),
        ("DROP MATERIALIZED VIEW high", "view seen depends on materialized view high"),
        ("CREATE VIEW changed AS SELECT * FROM CHANGES(reading)", "CHANGES in a view"),
        ("DROP VIEW total_query", "is the query of materialized view total"),
        (
            "CREATE OR REPLACE VIEW total_query AS SELECT 1 AS n, 2 AS kw",
            "is the query of materialized view total",
        ),
        ("DROP TABLE reading", "materialized view high depends on table reading"),
        ("ALTER TABLE reading DROP COLUMN kw CASCADE", "depends on table reading"),
        ("DROP MATERIALIZED VIEW by_feeder", "materialized view over depends on materialized view by_feeder"),
        ("DROP MATERIALIZED VIEW reading", "\"reading\" is not a materialized view"),
        ("REFRESH MATERIALIZED VIEW nothing", "materialized view \"nothing\" does not exist"),
        ("CREATE MATERIALIZED VIEW total AS SELECT 1 AS one", "relation \"total\" already exists"),
        ("CREATE MATERIALIZED VIEW v AS SELECT random() AS r FROM reading", "random in a materialized view"),
        ("CREATE MATERIALIZED VIEW v AS SELECT * FROM entresol.tables", "in a materialized view"),
        ("CREATE MATERIALIZED VIEW v AS SELECT nothing FROM reading", "nothing"),
    ] {
        let error = session.execute(statement).unwrap_err().to_string();
        assert!(error.contains(expected), "{statement}: {error}");
    }
    assert_eq!(rows(&mut session, "SELECT count(*) FROM pg_class WHERE relname IN ('v', 'v_query')"), ["0"]);
    // A refused DROP leaves it maintained.
    session.execute("UPDATE reading SET kw = 55 WHERE id = 2").unwrap();
    check(&mut session, &views, "after refused statements");
    session.execute("ALTER TABLE total SET (changes = '1 hour')").unwrap();
    let error = session
        .execute("CREATE TOPOLOGY t AS (INSERT INTO reading SELECT n, 1, 'x', kw, CAST(NULL AS TIMESTAMP) FROM CHANGES(total))")
        .unwrap_err();
    assert!(error.to_string().contains("t → reading → total → t"), "{error}");
    for name in ["over", "by_feeder"] {
        session.execute(&format!("DROP MATERIALIZED VIEW {name}")).unwrap();
    }
    session.execute("INSERT INTO reading VALUES (3, 2, 'c', 1, NULL)").unwrap();
    let left: Vec<&str> = views.into_iter().filter(|name| !["over", "by_feeder"].contains(name)).collect();
    check(&mut session, &left, "without two of them");
    drop(session);
    assert_eq!(database.check(|_| {}).unwrap().problems, []);
    database.close().unwrap();
}

/// Rows of the creator's zone would become those of the maintenance with each commit.
#[test]
fn views_are_computed_in_utc_and_follow_tables_that_are_emptied() {
    let dir = tempfile::tempdir().unwrap();
    let database = Database::open(dir.path().join("db"), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(
            "CREATE TABLE seen (id INT PRIMARY KEY, at TIMESTAMPTZ);
             INSERT INTO seen VALUES (1, '2026-01-01 23:00:00+00');
             SET TimeZone = 'Asia/Tokyo';
             CREATE MATERIALIZED VIEW days AS SELECT id, at::date AS day FROM seen;
             CREATE TABLE gone (id INT PRIMARY KEY) WITH (placement = 'dram');
             INSERT INTO gone VALUES (1), (2);
             CREATE MATERIALIZED VIEW left_over AS SELECT count(*) AS n FROM gone;
             INSERT INTO seen VALUES (2, '2026-01-01 23:00:00+00')",
        )
        .unwrap();
    let days = rows(&mut session, "SELECT id, day FROM days");
    assert_eq!(days, ["1 2026-01-01", "2 2026-01-01"]);
    assert_eq!(rows(&mut session, "SELECT n FROM left_over"), ["2"]);
    drop(session);
    database.close().unwrap();
    drop(database);
    let database = Database::open(dir.path().join("db"), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    assert_eq!(rows(&mut session, "SELECT n FROM left_over"), ["0"]);
    drop(session);
    database.close().unwrap();
}

#[test]
fn loads_of_a_table_by_column_are_seen_by_its_views() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session.execute("CREATE TABLE facts (id INT, kw INT) WITH (layout = 'columns')").unwrap();
    let load = "INSERT INTO facts SELECT i % 9, i FROM generate_series(1, 20000) g(i)";
    session.execute(load).unwrap();
    session
        .execute(
            "CREATE MATERIALIZED VIEW totals AS SELECT id, sum(kw) AS kw, count(*) AS n FROM facts GROUP BY id;
             CREATE MATERIALIZED VIEW most AS SELECT max(kw) AS kw FROM facts",
        )
        .unwrap();
    let views = ["totals", "most"];
    check(&mut session, &views, "when they were created");
    // A batch of this size would become a row group at once, if no view read the table.
    session.execute(load).unwrap();
    check(&mut session, &views, "after a load");
    session.execute("VACUUM facts; UPDATE facts SET kw = -kw WHERE id = 3 AND kw > 10000").unwrap();
    check(&mut session, &views, "after rows of row groups were changed");
    session.execute("DELETE FROM facts WHERE kw % 2 = 0; VACUUM facts").unwrap();
    check(&mut session, &views, "after most was deleted, and merged");
    assert_eq!(rows(&mut session, "SELECT sum(n) FROM totals"), ["20000"]);
}

/// A crash between the two halves of a creation leaves the view of the query: the statement can be repeated.
#[test]
fn a_creation_that_was_cut_short_is_repeated() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(
            "CREATE TABLE t (id INT PRIMARY KEY, n INT);
             INSERT INTO t VALUES (1, 2), (2, 2);
             CREATE VIEW v_query AS SELECT n, count(*) AS rows FROM t GROUP BY n",
        )
        .unwrap();
    let other = session.execute("CREATE MATERIALIZED VIEW v AS SELECT n FROM t").unwrap_err();
    assert!(other.to_string().contains("\"v_query\" already exists"), "{other}");
    session.execute("CREATE MATERIALIZED VIEW v AS SELECT n, count(*) AS rows FROM t GROUP BY n").unwrap();
    session.execute("INSERT INTO t VALUES (3, 2)").unwrap();
    assert_eq!(rows(&mut session, "SELECT n || ' ' || rows FROM v"), ["2 3"]);
}

#[test]
fn views_of_clustered_tables_go_with_them_through_merges_and_layouts() {
    let dir = tempfile::tempdir().unwrap();
    let database = Database::open(dir.path(), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(
            "CREATE TABLE parts (id INT PRIMARY KEY, code VARCHAR(20) UNIQUE, kind INT, price DECIMAL(10, 2))
                 WITH (layout = 'clustered', cluster_by = (kind 5, price), block_bytes = 16384);
             CREATE MATERIALIZED VIEW by_kind AS SELECT kind, count(*) AS n, sum(price) AS price FROM parts GROUP BY kind;
             INSERT INTO parts SELECT i, 'code ' || i, i * 7919 % 500, i % 977 FROM generate_series(1, 20000) g(i)",
        )
        .unwrap();
    check(&mut session, &["by_kind"], "loaded");
    for statement in [
        "VACUUM parts",
        "UPDATE parts SET price = 1 WHERE kind = 263",
        "DELETE FROM parts WHERE code = 'code 78'",
        "INSERT INTO parts VALUES (20001, 'code 77', 263, 5) ON CONFLICT (code) DO UPDATE SET price = 9",
        "VACUUM parts",
        "ALTER TABLE parts SET (layout = 'rows')",
        "ALTER TABLE parts SET (layout = 'clustered', cluster_by = (kind, price 4))",
    ] {
        session.execute(statement).unwrap();
        check(&mut session, &["by_kind"], statement);
    }
    assert_eq!(rows(&mut session, "SELECT n, price FROM by_kind WHERE kind = 263"), ["40 48.00"]);
}

#[test]
fn explaining_a_view_says_how_it_follows_its_tables() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session.execute(TABLES).unwrap();
    make_views(&mut session);
    session.execute("ALTER TABLE reading SET (changes = '1 hour')").unwrap();
    session
        .execute(
            "CREATE MATERIALIZED VIEW later WITH (refresh = 'deferred', refresh_interval = '1 hour') AS
             SELECT meter, max(kw) AS kw FROM reading GROUP BY meter",
        )
        .unwrap();
    session.execute("ALTER TOPOLOGY later PAUSE").unwrap();
    let mut lines = |view: &str| -> Vec<String> {
        let batches =
            session.query(&format!("EXPLAIN {view}")).unwrap_or_else(|error| panic!("{view}: {error}"));
        let texts = batches.iter().flat_map(|batch| {
            (0..batch.num_rows()).map(|row| array_value_to_string(batch.column(0), row).unwrap())
        });
        texts.collect()
    };
    let in_commits = "maintained in the commits that change what it reads";
    assert_eq!(
        lines("MATERIALIZED VIEW total")[..2],
        [
            format!("Materialized view total, {in_commits}"),
            "  changes of reading: added to the counts and sums of their groups, without the query"
                .to_owned(),
        ]
    );
    let by_key = lines("MATERIALIZED VIEW by_feeder");
    assert_eq!(by_key[1], "  changes of reading: the query for their values of feeder");
    assert!(by_key[2].starts_with("  query: SELECT feeder, count(*)"), "{by_key:?}");
    assert_eq!(lines("MATERIALIZED VIEW \"top\"")[1], "  changes of reading: the entire query");
    let joined = lines("MATERIALIZED VIEW in_towns");
    assert!(
        joined.contains(&"  changes of several of them in a transaction: the entire query".to_owned()),
        "{joined:?}"
    );
    let stored = lines("ANALYZE MATERIALIZED VIEW sums");
    assert!(stored.iter().any(|line| line.starts_with("  table sums_state: ")), "{stored:?}");
    let later = lines("MATERIALIZED VIEW later");
    assert!(
        later[0].starts_with("Materialized view later, refreshed behind the commits every 3600 s, ")
            && later[0].ends_with(", paused"),
        "{later:?}"
    );
    for (wrong, message) in [
        ("EXPLAIN MATERIALIZED VIEW reading", "\"reading\" is not a materialized view"),
        ("EXPLAIN MATERIALIZED VIEW nothing", "materialized view \"nothing\" does not exist"),
        ("EXPLAIN MATERIALIZED VIEW total WITH", "syntax error"),
    ] {
        let error = session.execute(wrong).unwrap_err().to_string();
        assert!(error.contains(message), "{wrong}: {error}");
    }
    // It is no definition: it runs in a block, and on a connection that may only read.
    session.execute("BEGIN READ ONLY").unwrap();
    assert!(!session.query("EXPLAIN MATERIALIZED VIEW total").unwrap().is_empty());
    let error = session.execute("EXPLAIN TOPOLOGY nothing").unwrap_err().to_string();
    assert!(error.contains("topology \"nothing\" does not exist"), "{error}");
    session.execute("ROLLBACK").unwrap();
}

/// A transaction that has written the tables of a view sees both agree.
#[test]
fn a_transaction_sees_its_changes_in_views() {
    let database = Database::volatile(Options::default()).unwrap();
    let (mut session, mut other) = (database.session().unwrap(), database.session().unwrap());
    session
        .execute(
            "CREATE TABLE reading (id INT PRIMARY KEY, meter INT, kw DECIMAL(8,2), at TIMESTAMPTZ) WITH (changes = '1 hour');
             INSERT INTO reading VALUES (1, 1, 10, '2026-01-01 23:30:00Z'), (2, 2, 5, '2026-01-02 10:00:00Z');
             CREATE MATERIALIZED VIEW by_meter AS SELECT meter, count(*) AS n, sum(kw) AS kw FROM reading GROUP BY meter;
             CREATE UNIQUE INDEX one_by_meter ON by_meter (meter);
             CREATE MATERIALIZED VIEW most AS SELECT max(n) AS n, count(*) AS meters FROM by_meter;
             CREATE MATERIALIZED VIEW days AS SELECT date_trunc('day', at) AS day, max(at) AS last FROM reading GROUP BY 1;
             CREATE MATERIALIZED VIEW behind WITH (refresh = 'deferred', refresh_interval = '1 hour') AS
                 SELECT meter, max(kw) AS kw FROM reading GROUP BY meter;
             CREATE TABLE copied (meter INT, kw DECIMAL(8,2));
             SET TIME ZONE 'Asia/Tokyo'",
        )
        .unwrap();
    let by_key = "SELECT n, kw FROM by_meter WHERE meter = 1";
    let of_meters = session.prepare("SELECT n FROM by_meter WHERE meter = $1", &[]).unwrap();
    let prepared = |session: &mut Session| match session.run_prepared(&of_meters, &[1_i32.into()]).unwrap() {
        StatementResult::Rows(CollectedRows { batches, .. }) => {
            let values = batches.iter().map(|batch| array_value_to_string(batch.column(0), 0).unwrap());
            values.collect::<Vec<_>>().concat()
        }
        other => panic!("{other:?}"),
    };
    let days = "SELECT day AT TIME ZONE 'UTC', last FROM days";
    let of_days = rows(&mut session, days);
    assert_eq!(of_days.len(), 2);
    assert_eq!(
        (rows(&mut session, by_key), prepared(&mut session)),
        (vec!["1 10.00".to_owned()], "1".to_owned())
    );
    session.execute("BEGIN; INSERT INTO reading VALUES (3, 1, 2, '2026-01-01 22:30:00Z')").unwrap();
    for _ in 0..3 {
        // The same plan, made anew and again.
        assert_eq!(rows(&mut session, by_key), ["2 12.00"]);
        assert_eq!(prepared(&mut session), "2");
    }
    assert_eq!(rows(&mut session, "SELECT * FROM most"), ["2 2"]);
    assert_eq!(
        rows(&mut session, "SELECT b.kw, (SELECT n FROM most) FROM by_meter b WHERE n > 1"),
        ["12.00 2"]
    );
    assert_eq!(rows(&mut session, days), of_days, "in UTC, as its maintenance computes it");
    assert_eq!(rows(&mut session, "SELECT * FROM behind WHERE meter = 3"), [""; 0]);
    assert_eq!(rows(&mut other, by_key), ["1 10.00"]);
    session
        .execute("SAVEPOINT s; INSERT INTO reading VALUES (4, 3, 9, NULL), (5, 3, 9, NULL), (6, 3, 9, NULL)")
        .unwrap();
    assert_eq!(rows(&mut session, "SELECT * FROM most"), ["3 3"]);
    assert_eq!(rows(&mut session, "SELECT count(*) FROM behind"), ["2"]);
    session.execute("INSERT INTO copied SELECT meter, kw FROM by_meter").unwrap();
    assert_eq!(rows(&mut session, "SELECT meter FROM copied"), ["1", "2", "3"]);
    session.execute("ROLLBACK TO s").unwrap();
    assert_eq!(rows(&mut session, "SELECT * FROM most"), ["2 2"]);
    let shown = |session: &mut Session| rows(session, "EXPLAIN SELECT * FROM most").concat();
    assert!(shown(&mut session).contains("reading"), "{}", shown(&mut session));
    session.execute("COMMIT").unwrap();
    assert!(!shown(&mut session).contains("reading"), "{}", shown(&mut session));
    assert_eq!(
        (rows(&mut session, by_key), prepared(&mut session)),
        (vec!["2 12.00".to_owned()], "2".to_owned())
    );
    session.execute("BEGIN; DELETE FROM reading; ROLLBACK").unwrap();
    assert_eq!(rows(&mut other, "SELECT * FROM most"), ["2 2"]);
    assert_eq!(prepared(&mut session), "2");
}

/// Columns that a view does not read may go, and its rows are the same after opening: in UTC, of rows with NULL where there was
/// none, and of rows that another part of a condition rules out.
#[test]
fn views_go_on_when_their_tables_change_and_are_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Database::open(dir.path().join("db"), Options::default()).unwrap();
    let database = open();
    let mut session = database.session().unwrap();
    session
        .execute(
            "CREATE TABLE seen (id INT PRIMARY KEY, at TIMESTAMPTZ NOT NULL, unused INT, n INT NOT NULL);
             INSERT INTO seen VALUES (1, '2026-01-01 23:00Z', 1, 1);
             SET TimeZone = 'Asia/Tokyo';
             CREATE MATERIALIZED VIEW days AS SELECT at::date AS day, count(*) AS many FROM seen GROUP BY at::date;
             CREATE MATERIALIZED VIEW known AS SELECT count(*) AS many FROM seen WHERE n IS NOT NULL;
             CREATE MATERIALIZED VIEW parts AS SELECT id % 2 AS part, count(*) AS many FROM seen
                 WHERE 10 / n > 1 AND n <> 0 GROUP BY id % 2;
             CREATE UNIQUE INDEX many_of_parts ON parts (many);
             ALTER TABLE seen DROP COLUMN unused, ALTER COLUMN n DROP NOT NULL;
             INSERT INTO seen VALUES (2, '2026-01-02 01:00Z', NULL), (4, '2026-01-02 01:00Z', 0);
             INSERT INTO seen VALUES (3, '2026-01-01 22:00Z', 2), (6, '2026-01-02 01:00Z', 3)",
        )
        .unwrap();
    let days = "SELECT day || ' ' || many FROM days ORDER BY day";
    assert_eq!(rows(&mut session, days), ["2026-01-01 2", "2026-01-02 3"]);
    assert_eq!(rows(&mut session, "SELECT many FROM known"), ["4"]);
    assert_eq!(rows(&mut session, "SELECT part || ' ' || many FROM parts"), ["0 1", "1 2"]);
    drop(session);
    database.close().unwrap();
    drop(database);
    let database = open();
    let mut session = database.session().unwrap();
    session.execute("DELETE FROM seen WHERE id IN (1, 2, 3)").unwrap();
    assert_eq!(rows(&mut session, days), ["2026-01-02 2"]);
    assert_eq!(rows(&mut session, "SELECT many FROM known"), ["2"]);
    assert_eq!(rows(&mut session, "SELECT part || ' ' || many FROM parts"), ["0 1"]);
    drop(session);
    database.close().unwrap();
}
