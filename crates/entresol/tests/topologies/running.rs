//! Aggregates without windows, and DISTINCT: at each commit their targets equal the queries over all rows so far, over
//! aborts, restarts and changes that are taken back.

use super::{Random, rows, wait_for, wait_for_end};
use entresol::{Database, Options, Session};

const SOURCE: &str = "CREATE SOURCE reading (
        at TIMESTAMP NOT NULL, meter INT NOT NULL, feeder VARCHAR NOT NULL, kw DOUBLE, cost DECIMAL(8,2),
        WATERMARK FOR at AS at - INTERVAL '2 minutes'
    ) WITH (connector = 'generator', rows = 900, step = '67 seconds', meter.cardinality = 23,
        feeder.cardinality = 4, cost.cardinality = 500)";

/// Rows of one query that another has not, as texts.
fn missing(session: &mut Session, one: &str, other: &str) -> Vec<Vec<String>> {
    rows(session, &format!("SELECT * FROM ({one} EXCEPT ALL {other}) d LIMIT 3"))
}

/// Compares targets with queries at one snapshot.
fn compare(session: &mut Session, pairs: &[(String, String)], what: &str) {
    session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ").unwrap();
    for (target, query) in pairs {
        let none = Vec::<Vec<String>>::new();
        assert_eq!(missing(session, target, query), none, "{what}: {target} has more than {query}");
        assert_eq!(missing(session, query, target), none, "{what}: {target} has less than {query}");
    }
    session.execute("COMMIT").unwrap();
}

fn pair(target: &str, query: &str) -> (String, String) {
    (target.to_owned(), query.to_owned())
}

const TABLES: &str = "
    CREATE TABLE readings (at TIMESTAMP PRIMARY KEY, meter INT, feeder VARCHAR, kw DOUBLE, cost DECIMAL(8,2));
    CREATE TABLE per_meter (meter INT PRIMARY KEY, readings BIGINT, cost DECIMAL(20,2), most DOUBLE, first_at TIMESTAMP, mean DOUBLE);
    CREATE TABLE busy (meter INT PRIMARY KEY, readings BIGINT);
    CREATE TABLE spread (readings BIGINT PRIMARY KEY, meters BIGINT, least INT, most INT, cost DECIMAL(20,2), sum_kw DOUBLE,
        different BIGINT, middle DOUBLE);
    CREATE TABLE spread_of_spread (meters BIGINT PRIMARY KEY, times BIGINT, readings BIGINT, longest VARCHAR);
    CREATE TABLE all_of_it (one INT PRIMARY KEY, readings BIGINT, cost DECIMAL(20,2), groups BIGINT);
    CREATE TABLE pairs (meter INT, feeder VARCHAR);
    CREATE TABLE states (state INT PRIMARY KEY, meters BIGINT);
    CREATE TABLE both_sides (meter INT PRIMARY KEY, number BIGINT)";

const STEPS: &str = "
    INSERT INTO readings SELECT * FROM reading;
    CREATE STREAM m WITH (state_table = 'meters_state') AS
        SELECT meter, count(*) AS readings, sum(cost) AS cost, max(kw) AS most, min(at) AS first_at, avg(meter * 2) AS mean,
            sum(kw) FILTER (WHERE kw < 50) AS small
        FROM reading WHERE cost > 1 GROUP BY meter;
    INSERT INTO per_meter SELECT meter, readings, cost, most, first_at, mean FROM m
        ON CONFLICT (meter) DO UPDATE SET readings = EXCLUDED.readings, cost = EXCLUDED.cost, most = EXCLUDED.most,
            first_at = EXCLUDED.first_at, mean = EXCLUDED.mean;
    INSERT INTO busy SELECT meter, readings FROM m WHERE readings % 3 <> 0
        ON CONFLICT (meter) DO UPDATE SET readings = EXCLUDED.readings;
    CREATE STREAM s AS
        SELECT readings, count(*) AS meters, min(meter) AS least, max(meter) AS most, sum(cost) AS cost,
            sum(small) AS sum_kw, count(DISTINCT meter % 4) AS different, median(most) AS middle
        FROM m GROUP BY readings HAVING count(*) < 7;
    INSERT INTO spread SELECT * FROM s ON CONFLICT (readings) DO UPDATE SET meters = EXCLUDED.meters,
        least = EXCLUDED.least, most = EXCLUDED.most, cost = EXCLUDED.cost, sum_kw = EXCLUDED.sum_kw,
        different = EXCLUDED.different, middle = EXCLUDED.middle;
    INSERT INTO spread_of_spread
        SELECT meters, count(*), sum(readings), max('times ' || readings) FROM s GROUP BY meters
        ON CONFLICT (meters) DO UPDATE SET times = EXCLUDED.times, readings = EXCLUDED.readings, longest = EXCLUDED.longest;
    INSERT INTO all_of_it SELECT 1, coalesce(sum(readings), 0), sum(cost), count(*) FROM m
        ON CONFLICT (one) DO UPDATE SET readings = EXCLUDED.readings, cost = EXCLUDED.cost, groups = EXCLUDED.groups;
    INSERT INTO pairs SELECT DISTINCT nullif(meter % 5, 3), nullif(feeder, 'feeder 1') FROM reading;
    CREATE STREAM per_state AS SELECT nullif(readings % 4, 2) AS state, count(*) AS meters FROM m GROUP BY nullif(readings % 4, 2);
    INSERT INTO states SELECT coalesce(state, -1) AS state, sum(meters) FROM per_state GROUP BY coalesce(state, -1)
        ON CONFLICT (state) DO UPDATE SET meters = EXCLUDED.meters;
    INSERT INTO both_sides SELECT meter, sum(number) FROM
            (SELECT meter, readings AS number FROM m UNION ALL SELECT meter, 1000 FROM reading) u GROUP BY meter
        ON CONFLICT (meter) DO UPDATE SET number = EXCLUDED.number;
    ABORT WHEN (SELECT count(*) FROM CHANGES(readings) WHERE cost = 0.02) > 0";

/// Targets, and the queries over all readings that they equal at each commit.
fn pairs() -> Vec<(String, String)> {
    let m = "(SELECT meter, count(*) AS readings, sum(cost) AS cost, max(kw) AS most, min(at) AS first_at, avg(meter * 2) AS mean,
            sum(kw) FILTER (WHERE kw < 50) AS small FROM readings WHERE cost > 1 GROUP BY meter) m";
    let s = format!(
        "(SELECT readings, count(*) AS meters, min(meter) AS least, max(meter) AS most, sum(cost) AS cost, sum(small) AS sum_kw,
            count(DISTINCT meter % 4) AS different, median(most) AS middle FROM {m} GROUP BY readings HAVING count(*) < 7) s"
    );
    vec![
        pair(
            "SELECT meter, readings, cost, most, first_at, round(mean::numeric, 3) FROM per_meter",
            &format!("SELECT meter, readings, cost, most, first_at, round(mean::numeric, 3) FROM {m}"),
        ),
        pair("SELECT * FROM busy", &format!("SELECT meter, readings FROM {m} WHERE readings % 3 <> 0")),
        pair(
            "SELECT readings, meters, least, most, cost, round(sum_kw, 6), different, middle FROM spread",
            &format!("SELECT readings, meters, least, most, cost, round(sum_kw, 6), different, middle FROM {s}"),
        ),
        pair(
            "SELECT meters, times, readings, longest FROM spread_of_spread",
            &format!("SELECT meters, count(*), sum(readings), max('times ' || readings) FROM {s} GROUP BY meters"),
        ),
        // Before the first commit there is no row.
        pair(
            "SELECT readings, cost, groups FROM all_of_it",
            &format!(
                "SELECT readings, cost, groups FROM (SELECT coalesce(sum(readings), 0) AS readings, sum(cost) AS cost, count(*) AS groups
                    FROM {m}) a WHERE EXISTS (SELECT 1 FROM readings)"
            ),
        ),
        pair(
            "SELECT meter, feeder FROM pairs",
            "SELECT DISTINCT nullif(meter % 5, 3), nullif(feeder, 'feeder 1') FROM readings",
        ),
        pair(
            "SELECT state, meters FROM states",
            &format!("SELECT coalesce(nullif(readings % 4, 2), -1), count(*) FROM {m} GROUP BY 1"),
        ),
        pair(
            "SELECT meter, number FROM both_sides",
            &format!(
                "SELECT meter, sum(number) FROM (SELECT meter, readings AS number FROM {m}
                    UNION ALL SELECT meter, 1000 FROM readings) u GROUP BY meter"
            ),
        ),
    ]
}

#[test]
fn aggregates_without_windows_equal_the_queries_over_all_rows() {
    for boundary in ["EACH ROW", "EVERY 37 ROWS", "EVERY 300 ROWS"] {
        let directory = tempfile::tempdir().unwrap();
        for round in 0..4 {
            let database = Database::open(directory.path(), Options::default()).unwrap();
            let mut session = database.session().unwrap();
            if round == 0 {
                session.execute(SOURCE).unwrap();
                session.execute(TABLES).unwrap();
                session
                    .execute(&format!(
                        "CREATE TOPOLOGY running COMMIT {boundary} ON ERROR ABORT WITH (durability = 'none') AS ({STEPS})"
                    ))
                    .unwrap();
            }
            // Closed, or left as by a crash, in the middle.
            if round < 3 {
                for _ in 0..2 {
                    compare(&mut session, &pairs(), boundary);
                }
                if round == 1 {
                    drop(session);
                    database.close().unwrap();
                }
                continue;
            }
            wait_for_end(&mut session, "running");
            let stored: i64 = rows(&mut session, "SELECT count(*) FROM readings")[0][0].parse().unwrap();
            assert!((300..900).contains(&stored), "{stored}");
            compare(&mut session, &pairs(), boundary);
            assert!(database.check(|_| {}).unwrap().problems.is_empty());
        }
    }
}

#[test]
fn state_is_a_table_and_plans_say_what_changes() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session.execute(SOURCE).unwrap();
    session.execute(TABLES).unwrap();
    session
        .execute(&format!("CREATE TOPOLOGY running COMMIT EVERY 300 ROWS ON ERROR ABORT AS ({STEPS})"))
        .unwrap();
    wait_for_end(&mut session, "running");
    let counted = "SELECT count(*), sum(rows)::bigint = (SELECT count(*) FROM readings WHERE cost > 1) FROM meters_state";
    assert_eq!(rows(&mut session, counted), [["23", "true"]]);
    let plan = rows(&mut session, "EXPLAIN TOPOLOGY running");
    let has = |text: &str| plan.iter().any(|line| line[0].contains(text));
    assert!(has("append-only"), "{plan:?}");
    assert!(has("changes, rows are taken back, by meter"), "{plan:?}");
    assert!(has("state meters_state: running aggregate of appended rows, groups live for ever"), "{plan:?}");
    assert!(has("running aggregate of changes, groups live for ever"), "{plan:?}");
    assert!(has("values of its groups"), "{plan:?}");
    assert!(has("distinct rows of appended rows, groups live for ever"), "{plan:?}");
    let error = session.execute("DELETE FROM meters_state").unwrap_err().to_string();
    assert!(error.contains("topology running"), "{error}");
    session.execute("DROP TOPOLOGY running").unwrap();
    assert!(session.query("SELECT * FROM meters_state").is_err());
    let owned = "SELECT count(*) FROM information_schema.tables WHERE table_name LIKE 'running_open%'";
    assert_eq!(rows(&mut session, owned)[0], ["0"]);
}

/// Logged changes of a table are rows that are added.
#[test]
fn changes_of_a_table_are_grouped() {
    let directory = tempfile::tempdir().unwrap();
    let database = Database::open(directory.path(), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(
            "CREATE TABLE account (id INT PRIMARY KEY, owner TEXT, amount BIGINT) WITH (changes = '1 day');
             CREATE TABLE balance (owner TEXT PRIMARY KEY, amount BIGINT, changes BIGINT);
             CREATE TOPOLOGY balances COMMIT EVERY INTERVAL '5 milliseconds' AS (
                 CREATE STREAM b WITH (state_ttl = 'infinity') AS
                     SELECT coalesce(owner, old_owner) AS owner, count(*) AS changes,
                         sum(CASE change_type WHEN 'delete' THEN -old_amount ELSE amount - coalesce(old_amount, 0) END) AS amount
                     FROM CHANGES(account) GROUP BY coalesce(owner, old_owner);
                 INSERT INTO balance SELECT owner, amount, changes FROM b
                     ON CONFLICT (owner) DO UPDATE SET amount = EXCLUDED.amount, changes = EXCLUDED.changes)",
        )
        .unwrap();
    session
        .execute("INSERT INTO account SELECT i, 'owner ' || i % 3, i FROM generate_series(1, 30) g(i)")
        .unwrap();
    session
        .execute("UPDATE account SET amount = amount * 2 WHERE id < 10; DELETE FROM account WHERE id > 25")
        .unwrap();
    wait_for(&mut session, "SELECT sum(changes)::bigint FROM balance", "44");
    let same = "SELECT count(*) FROM balance b JOIN (SELECT owner, sum(amount) AS amount FROM account GROUP BY owner) a
        ON a.owner = b.owner AND a.amount = b.amount";
    assert_eq!(rows(&mut session, same)[0], ["3"]);
}

/// A group begins anew when the watermark has passed its last row by `state_ttl`: the target has its last life.
#[test]
fn groups_live_as_long_as_state_ttl_says() {
    let source = SOURCE.replace("23", "97");
    let ttl = "(INTERVAL '40 minutes' + INTERVAL '2 minutes' + INTERVAL '67 seconds')";
    let lives = format!(
        "(SELECT meter, life, count(*) AS readings, max(kw) AS most, max(at) AS at
            FROM (SELECT *, sum(begins) OVER (PARTITION BY meter ORDER BY at) AS life
                FROM (SELECT *, CASE WHEN at - lag(at) OVER (PARTITION BY meter ORDER BY at) < {ttl} THEN 0 ELSE 1 END AS begins
                    FROM readings) b) l GROUP BY meter, life)"
    );
    let last = format!(
        "SELECT meter, readings, most FROM (SELECT *, row_number() OVER (PARTITION BY meter ORDER BY life DESC) AS place
            FROM {lives} s) r WHERE place = 1"
    );
    for boundary in ["EACH ROW", "EVERY 37 ROWS", "EVERY 10000 ROWS"] {
        let directory = tempfile::tempdir().unwrap();
        for round in 0..3 {
            let database = Database::open(directory.path(), Options::default()).unwrap();
            let mut session = database.session().unwrap();
            if round == 0 {
                session.execute(&source).unwrap();
                session
                    .execute(
                        "CREATE TABLE readings (at TIMESTAMP PRIMARY KEY, meter INT, kw DOUBLE);
                         CREATE TABLE lives (meter INT PRIMARY KEY, readings BIGINT, most DOUBLE);
                         CREATE TABLE first_of_life (meter INT)",
                    )
                    .unwrap();
                session
                    .execute(&format!(
                        "CREATE TOPOLOGY lives COMMIT {boundary} WITH (state_ttl = '40 minutes', durability = 'none') AS (
                            INSERT INTO readings SELECT at, meter, kw FROM reading;
                            INSERT INTO lives SELECT meter, count(*), max(kw) FROM reading GROUP BY meter
                                ON CONFLICT (meter) DO UPDATE SET readings = EXCLUDED.readings, most = EXCLUDED.most;
                            INSERT INTO first_of_life SELECT meter FROM reading GROUP BY meter)"
                    ))
                    .unwrap();
            }
            let of_lives = pair("SELECT meter, readings, most FROM lives", &last);
            let of_first = pair("SELECT meter FROM first_of_life", &format!("SELECT meter FROM {lives} l"));
            for _ in 0..2 {
                compare(&mut session, &[of_lives.clone(), of_first.clone()], boundary);
            }
            if round < 2 {
                continue;
            }
            wait_for_end(&mut session, "lives");
            compare(&mut session, &[of_lives, of_first], boundary);
            assert_eq!(rows(&mut session, "SELECT count(*) FROM readings")[0], ["900"]);
            assert_eq!(rows(&mut session, "SELECT count(*) > 97 FROM first_of_life")[0], ["true"]);
            // Those of groups whose life is over have left the state, but for the last ones of them.
            if boundary != "EVERY 10000 ROWS" {
                let left = "SELECT count(*) < 97 FROM lives_open";
                assert_eq!(rows(&mut session, left)[0], ["true"]);
            }
        }
    }
}

/// Query of random groups, aggregates and conditions over a relation, and the number of its groups.
fn random_aggregate(random: &mut Random, from: &str, columns: [&str; 3]) -> (String, usize) {
    let [text, number, exact] = columns;
    let groups = [
        format!("{number} % 3"),
        text.to_owned(),
        format!("nullif({number} % 5, 2)"),
        format!("upper({text})"),
        format!("{exact} > 2"),
    ];
    // NULL is no key of a table.
    let groups: Vec<String> = groups
        .iter()
        .filter(|_| random.below(3) == 0)
        .take(2)
        .map(|group| format!("coalesce(({group})::text, 'none')"))
        .collect();
    let aggregates = [
        "count(*)".to_owned(),
        format!("count({exact})"),
        format!("sum({number})"),
        format!("sum({exact})"),
        format!("min({exact})"),
        format!("max({text})"),
        format!("count(*) FILTER (WHERE {number} > 6)"),
        format!("sum({number}) FILTER (WHERE {exact} < 3)"),
        format!("count(DISTINCT {number})"),
        format!("max({number}) - min({number})"),
        format!("avg({number})"),
        format!("bool_or({number} > 12)"),
    ];
    let aggregates: Vec<&String> =
        (0..1 + random.below(3)).map(|_| &aggregates[random.below(aggregates.len())]).collect();
    let conditions =
        ["true".to_owned(), format!("{number} % 4 <> 1"), format!("{exact} > 1 OR {number} = 3")];
    let condition = &conditions[random.below(3)];
    let having = ["", "", " HAVING count(*) % 3 <> 1", " HAVING max(NUMBER) > 9"][random.below(4)];
    let having = if groups.is_empty() { String::new() } else { having.replace("NUMBER", number) };
    let mut shown: Vec<String> =
        groups.iter().enumerate().map(|(at, group)| format!("{group} AS g{at}")).collect();
    shown.extend(aggregates.iter().enumerate().map(|(at, aggregate)| format!("{aggregate} AS a{at}")));
    let by = if groups.is_empty() { String::new() } else { format!(" GROUP BY {}", groups.join(", ")) };
    let query = format!("SELECT {} FROM {from} WHERE {condition}{by}{having}", shown.join(", "));
    (query, groups.len())
}

/// Creates the target of a query of all rows; returns its columns.
fn create_target(session: &mut Session, batch: &str, groups: usize) -> Vec<Vec<String>> {
    session.execute(&format!("CREATE TABLE shape AS {batch}")).unwrap();
    let columns = rows(
        session,
        "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'shape' ORDER BY ordinal_position",
    );
    session.execute("DROP TABLE shape").unwrap();
    let mut definition = vec!["one INT".to_owned()];
    for column in &columns {
        let data_type = if column[1] == "numeric" { "NUMERIC(38,6)" } else { &column[1] };
        definition.push(format!("{} {data_type}", column[0]));
    }
    let key: String = (0..groups).map(|group| format!(", g{group}")).collect();
    let create = format!("CREATE TABLE target ({}, PRIMARY KEY (one{key}))", definition.join(", "));
    session.execute(&create).unwrap_or_else(|error| panic!("{create}: {error}"));
    columns
}

/// Random aggregates of rows, and of the results of others, equal their queries.
#[test]
fn random_aggregates_equal_their_queries() {
    let seed = std::env::var("ENTRESOL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(11);
    let topologies =
        std::env::var("ENTRESOL_TOPOLOGIES").ok().and_then(|text| text.parse().ok()).unwrap_or(60);
    println!("ENTRESOL_SEED={seed}");
    let mut random = Random(seed);
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session.execute(&SOURCE.replace("rows = 900", "rows = 600")).unwrap();
    session
        .execute(
            "CREATE TABLE readings (at TIMESTAMP, meter INT, feeder VARCHAR, kw DOUBLE, cost DECIMAL(8,2));
             CREATE TOPOLOGY everything AS (INSERT INTO readings SELECT * FROM reading)",
        )
        .unwrap();
    wait_for_end(&mut session, "everything");
    let inner = "(SELECT meter % 11 AS k, feeder AS f, count(*) AS n, sum(cost) AS c FROM reading GROUP BY meter % 11, feeder) i";
    for _ in 0..topologies {
        let (query, groups) = if random.below(2) == 0 {
            random_aggregate(&mut random, inner, ["f", "n", "c"])
        } else {
            random_aggregate(&mut random, "reading", ["feeder", "meter", "cost"])
        };
        let commit = random.one(&["EVERY 1 ROW", "EVERY 37 ROWS", "EVERY 5000 ROWS", "EVERY 150 ROWS"]);
        let batch = query.replace("FROM reading ", "FROM readings AS reading ");
        let columns = create_target(&mut session, &batch, groups);
        let set: Vec<String> =
            columns[groups..].iter().map(|column| format!("{0} = EXCLUDED.{0}", column[0])).collect();
        let key: String = (0..groups).map(|group| format!(", g{group}")).collect();
        let create = format!(
            "CREATE TOPOLOGY x COMMIT {commit} WITH (durability = 'none') AS (INSERT INTO target SELECT 1, * FROM ({query}) q
                ON CONFLICT (one{key}) DO UPDATE SET {})",
            set.join(", ")
        );
        session.execute(&create).unwrap_or_else(|error| panic!("{create}: {error}"));
        wait_for_end(&mut session, "x");
        let names = columns.iter().map(|column| match column[1].as_str() {
            "double precision" | "numeric" => format!("round({}::numeric, 3)", column[0]),
            _ => column[0].clone(),
        });
        let names = names.collect::<Vec<String>>().join(", ");
        let pairs = [(format!("SELECT {names} FROM target"), format!("SELECT {names} FROM ({batch}) b"))];
        compare(&mut session, &pairs, &create);
        session.execute("DROP TOPOLOGY x; DROP TABLE target").unwrap();
    }
}

#[test]
fn what_changes_is_refused_where_it_cannot_be_taken_back() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session.execute(SOURCE).unwrap();
    session
        .execute(
            "CREATE TABLE t (meter INT PRIMARY KEY, n BIGINT);
             CREATE TABLE account (id INT PRIMARY KEY, amount BIGINT) WITH (changes = '1 day')",
        )
        .unwrap();
    let stream =
        "CREATE STREAM s AS SELECT meter, count(*) AS n, max(at) AS at FROM reading GROUP BY meter; ";
    let expired = "CREATE STREAM s WITH (state_ttl = '1 hour') AS SELECT meter, count(*) AS n FROM reading GROUP BY meter; ";
    for (steps, expected) in [
        (
            "INSERT INTO t SELECT meter, count(*) FROM reading GROUP BY meter".to_owned(),
            "ON CONFLICT (key) DO UPDATE SET of all other columns, into a table whose key is the columns of GROUP BY",
        ),
        (
            "INSERT INTO t SELECT meter, count(*) FROM reading GROUP BY meter, feeder
                ON CONFLICT (meter) DO UPDATE SET n = EXCLUDED.n"
                .to_owned(),
            "a table whose key is the columns of GROUP BY",
        ),
        (
            format!("{expired}MERGE INTO t USING s ON t.meter = s.meter WHEN MATCHED THEN UPDATE SET n = t.n + s.n"),
            "a change of the rows of table t of the results of groups that state_ttl ends",
        ),
        (
            format!("{expired}INSERT INTO t SELECT s.meter, s.n FROM s JOIN account a ON a.id = s.meter"),
            "JOIN of the results of groups that state_ttl ends",
        ),
        (
            format!("{stream}INSERT INTO t SELECT s.meter, s.n FROM s JOIN reading r ON r.meter = s.meter AND r.at = s.at"),
            "INSERT INTO t of rows of a join of streams, which change while rows come",
        ),
        (
            format!("{stream}INSERT INTO t SELECT meter, n FROM s MATCH_RECOGNIZE (PARTITION BY meter ORDER BY at
                MEASURES last(n) AS n PATTERN (a) WITHIN INTERVAL '1 hour' DEFINE a AS n > 1)"),
            "of results of an aggregate",
        ),
        (
            format!("{expired}INSERT INTO t SELECT meter, n FROM (SELECT *, row_number() OVER (PARTITION BY meter ORDER BY n) AS p FROM s) r WHERE p = 1"),
            "a ranking of the results of groups that state_ttl ends",
        ),
        (
            format!("{expired}INSERT INTO t SELECT n, count(*) FROM s GROUP BY n ON CONFLICT (meter) DO UPDATE SET n = EXCLUDED.n"),
            "GROUP BY of the results of groups that state_ttl ends",
        ),
        (
            "CREATE STREAM s WITH (state_ttl = '1 hour') AS SELECT id, count(*) AS n FROM CHANGES(account) GROUP BY id;
                INSERT INTO t SELECT id, n FROM s ON CONFLICT (meter) DO UPDATE SET n = EXCLUDED.n"
                .to_owned(),
            "state_ttl of an aggregate over a stream without event time",
        ),
        (
            "INSERT INTO t SELECT meter, count(*) FROM reading GROUP BY meter ON CONFLICT (meter) DO UPDATE SET n = EXCLUDED.n
                LATE ROWS INTO l"
                .to_owned(),
            "LATE ROWS INTO of an aggregate whose groups live for ever",
        ),
        (
            "INSERT INTO t SELECT meter, count(*) FROM reading GROUP BY ROLLUP (meter) ON CONFLICT (meter) DO UPDATE SET n = EXCLUDED.n"
                .to_owned(),
            "GROUPING SETS, ROLLUP and CUBE of a stream",
        ),
    ] {
        let refused = session.execute(&format!("CREATE TOPOLOGY x AS ({steps})"));
        let error = refused.err().unwrap_or_else(|| panic!("{steps} is accepted")).to_string();
        assert!(error.contains(expected), "{steps}: {error}");
    }
    let sink = "CREATE SINK k AS SELECT meter, count(*) AS change_type FROM reading GROUP BY meter WITH (connector = 'file', path = '/tmp/never.csv')";
    let error = session.execute(sink).unwrap_err().to_string();
    assert!(error.contains("has a column change_type already"), "{error}");
}
