//! Steps that read tables as the transaction sees them, other than by a key: joins by any columns and conditions,
//! subqueries; `unnest`. Their targets equal the queries over all rows.

use super::{rows, wait_for, wait_for_end};
use entresol::{Database, Options, Session};

const SOURCE: &str = "CREATE SOURCE reading (
        at TIMESTAMP NOT NULL, meter INT NOT NULL, feeder VARCHAR NOT NULL, kw DOUBLE,
        WATERMARK FOR at AS at - INTERVAL '2 minutes'
    ) WITH (connector = 'generator', rows = 1200, step = '67 seconds', meter.cardinality = 23, feeder.cardinality = 4)";

const TABLES: &str = "
    CREATE TABLE readings (at TIMESTAMP PRIMARY KEY, meter INT, feeder VARCHAR, kw DOUBLE);
    CREATE TABLE places (place INT PRIMARY KEY, feeder VARCHAR, low DOUBLE, high DOUBLE, meter INT);
    CREATE INDEX places_by_feeder ON places (feeder);
    INSERT INTO places SELECT i, nullif('feeder ' || (i % 6), 'feeder 2'), i, i * 3, i % 11 FROM generate_series(1, 400) g(i);
    CREATE TABLE factors (factor INT PRIMARY KEY);
    INSERT INTO factors VALUES (1), (2), (3);
    CREATE TABLE by_column (at TIMESTAMP, place INT, kw DOUBLE);
    CREATE TABLE by_range (at TIMESTAMP, place INT);
    CREATE TABLE with_factors (at TIMESTAMP, times DOUBLE);
    CREATE TABLE above (at TIMESTAMP, kw DOUBLE, part DOUBLE);
    CREATE TABLE listed (at TIMESTAMP, meter INT);
    CREATE TABLE flagged (at TIMESTAMP, is_there BOOLEAN);
    CREATE TABLE words (at TIMESTAMP, word VARCHAR, n BIGINT);
    CREATE TABLE per_place (place INT, hour TIMESTAMP, readings BIGINT, PRIMARY KEY (place, hour));
    CREATE TABLE of_query (at TIMESTAMP, places BIGINT);
    CREATE TABLE nearest (at TIMESTAMP, place INT, kw DOUBLE);
    CREATE TABLE next_place (at TIMESTAMP, low DOUBLE);
    CREATE TABLE correlated (at TIMESTAMP, most DOUBLE)";

const STEPS: &str = "
    INSERT INTO readings SELECT * FROM reading;
    INSERT INTO by_column SELECT r.at, p.place, r.kw FROM reading r JOIN places p ON p.feeder = r.feeder AND p.meter = r.meter;
    INSERT INTO by_range SELECT r.at, p.place FROM reading r LEFT JOIN places p ON r.kw BETWEEN p.low AND p.high AND p.place % 7 = 0
        WHERE r.meter > 3;
    INSERT INTO with_factors SELECT r.at, r.kw * f.factor FROM reading r CROSS JOIN factors f;
    INSERT INTO above SELECT at, kw, kw / (SELECT max(high) FROM places) FROM reading WHERE kw > (SELECT avg(low) FROM places) / 4;
    INSERT INTO listed SELECT at, meter FROM reading
        WHERE meter IN (SELECT meter FROM places WHERE place < 9) OR meter NOT IN (SELECT factor + 3 FROM factors);
    INSERT INTO flagged SELECT at, meter IN (SELECT factor FROM factors) FROM reading;
    INSERT INTO words SELECT at, word, 1 FROM
        (SELECT at, unnest(string_to_array(feeder || ' of ' || meter, ' ')) AS word FROM reading) w WHERE word <> 'of';
    INSERT INTO per_place SELECT p.meter, w.window_start, count(*)
        FROM TUMBLE(reading, at, INTERVAL '1 hour') w JOIN places p ON p.meter = w.meter AND p.place < 50 GROUP BY p.meter, w.window_start;
    INSERT INTO of_query SELECT r.at, q.n FROM reading r
        JOIN (SELECT feeder, count(*) AS n FROM places p JOIN factors f ON f.factor = p.place % 5 GROUP BY feeder) q ON q.feeder = r.feeder;
    INSERT INTO nearest SELECT r.at, p.place, r.kw FROM reading r ASOF JOIN places p MATCH_CONDITION (r.kw * 4 >= p.low)
        ON p.feeder = r.feeder AND p.meter = r.meter;
    INSERT INTO next_place SELECT r.at, p.low FROM reading r ASOF JOIN places p MATCH_CONDITION (p.low > r.meter) WHERE r.meter % 2 = 0;
    INSERT INTO correlated SELECT at, (SELECT max(low) FROM places p WHERE p.meter = r.meter)
        FROM reading r WHERE NOT EXISTS (SELECT 1 FROM factors f WHERE f.factor = r.meter)
            AND EXISTS (SELECT 1 FROM places p WHERE p.feeder = r.feeder AND p.place < 4)";

/// Targets, and the queries that they equal at the end.
fn pairs() -> Vec<(&'static str, &'static str)> {
    vec![
        (
            "SELECT at, place, kw FROM by_column",
            "SELECT r.at, p.place, r.kw FROM readings r JOIN places p ON p.feeder = r.feeder AND p.meter = r.meter",
        ),
        (
            "SELECT at, place FROM by_range",
            "SELECT r.at, p.place FROM readings r LEFT JOIN places p ON r.kw BETWEEN p.low AND p.high AND p.place % 7 = 0 WHERE r.meter > 3",
        ),
        ("SELECT at, times FROM with_factors", "SELECT r.at, r.kw * f.factor FROM readings r CROSS JOIN factors f"),
        (
            "SELECT at, kw, part FROM above",
            "SELECT at, kw, kw / (SELECT max(high) FROM places) FROM readings WHERE kw > (SELECT avg(low) FROM places) / 4",
        ),
        (
            "SELECT at, meter FROM listed",
            "SELECT at, meter FROM readings
                WHERE meter IN (SELECT meter FROM places WHERE place < 9) OR meter NOT IN (SELECT factor + 3 FROM factors)",
        ),
        ("SELECT at, is_there FROM flagged", "SELECT at, meter IN (SELECT factor FROM factors) FROM readings"),
        (
            "SELECT word, sum(n)::bigint FROM words GROUP BY word",
            "SELECT word, count(*) FROM (SELECT unnest(string_to_array(feeder || ' of ' || meter, ' ')) AS word FROM readings) w
                WHERE word <> 'of' GROUP BY word",
        ),
        (
            "SELECT place, hour, readings FROM per_place",
            "SELECT p.meter, date_trunc('hour', r.at), count(*) FROM readings r JOIN places p ON p.meter = r.meter AND p.place < 50
                GROUP BY 1, 2",
        ),
        (
            "SELECT at, places FROM of_query",
            "SELECT r.at, q.n FROM readings r JOIN (SELECT feeder, count(*) AS n FROM places p
                JOIN factors f ON f.factor = p.place % 5 GROUP BY feeder) q ON q.feeder = r.feeder",
        ),
        (
            "SELECT at, place, kw FROM nearest",
            "SELECT at, place, kw FROM (SELECT r.at, p.place, r.kw, row_number() OVER (PARTITION BY r.at ORDER BY p.low DESC NULLS LAST) AS n
                FROM readings r LEFT JOIN places p ON p.feeder = r.feeder AND p.meter = r.meter AND r.kw * 4 >= p.low) j WHERE n = 1",
        ),
        (
            "SELECT at, low FROM next_place",
            "SELECT r.at, (SELECT min(low) FROM places p WHERE p.low > r.meter) FROM readings r WHERE r.meter % 2 = 0",
        ),
        (
            "SELECT at, most FROM correlated",
            "SELECT r.at, m.most FROM readings r LEFT JOIN (SELECT meter, max(low) AS most FROM places GROUP BY meter) m ON m.meter = r.meter
                WHERE r.meter NOT IN (SELECT factor FROM factors) AND r.feeder IN (SELECT feeder FROM places WHERE place < 4)",
        ),
    ]
}

fn compare(session: &mut Session, what: &str) {
    for (target, query) in pairs() {
        assert_ne!(
            rows(session, &format!("SELECT count(*) FROM ({target}) t"))[0],
            ["0"],
            "{what}: {target}"
        );
        for (one, other) in [(target, query), (query, target)] {
            let missing = rows(session, &format!("SELECT * FROM ({one} EXCEPT ALL {other}) d LIMIT 3"));
            assert_eq!(missing, Vec::<Vec<String>>::new(), "{what}: {one} has more than {other}");
        }
    }
}

#[test]
fn steps_with_tables_equal_the_queries_over_all_rows() {
    for (boundary, threads) in [("EVERY 1 ROW", "1"), ("EVERY 300 ROWS", "2"), ("EVERY 10000 ROWS", "1")] {
        let database = Database::volatile(Options::default()).unwrap();
        let mut session = database.session().unwrap();
        let rows_of_source = if boundary == "EVERY 1 ROW" { "rows = 60" } else { "rows = 1200" };
        session.execute(&SOURCE.replace("rows = 1200", rows_of_source)).unwrap();
        session.execute(TABLES).unwrap();
        session
            .execute(&format!(
                "CREATE TOPOLOGY reading_tables COMMIT {boundary} WITH (durability = 'none', parallelism = '{threads}') AS ({STEPS})"
            ))
            .unwrap();
        wait_for_end(&mut session, "reading_tables");
        compare(&mut session, boundary);
        let plan = rows(&mut session, "EXPLAIN TOPOLOGY reading_tables");
        assert!(plan.iter().any(|line| line[0].contains("for each batch")), "{plan:?}");
        assert!(plan.iter().any(|line| line[0].contains("by=index places_by_feeder")), "{plan:?}");
    }
}

/// Tables are read as of the transaction, with what it has written before.
#[test]
fn subqueries_see_what_the_transaction_has_written() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(
            "CREATE SOURCE numbers (at TIMESTAMP NOT NULL, n INT NOT NULL)
                 WITH (connector = 'generator', rows = 100, step = '1 second', n.cardinality = 1000);
             CREATE TABLE stored (at TIMESTAMP PRIMARY KEY, n INT);
             CREATE TABLE known (at TIMESTAMP PRIMARY KEY, before BIGINT);
             CREATE TOPOLOGY counting COMMIT EVERY 10 ROWS AS (
                 INSERT INTO stored SELECT at, n FROM numbers;
                 INSERT INTO known SELECT c.at, (SELECT count(*) FROM stored) FROM CHANGES(stored) FOR EACH COMMIT AS c)",
        )
        .unwrap();
    wait_for_end(&mut session, "counting");
    let counts = "SELECT before, count(*) FROM known GROUP BY before ORDER BY before";
    let expected: Vec<[String; 2]> =
        (1..=10).map(|tens| [(tens * 10).to_string(), "10".to_owned()]).collect();
    assert_eq!(rows(&mut session, counts), expected);
}

/// Rows that replace each other come in the order of those that they are of.
#[test]
fn results_come_in_the_order_of_the_rows() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session.execute(SOURCE).unwrap();
    session.execute(TABLES).unwrap();
    session
        .execute(
            "CREATE TABLE last (feeder VARCHAR PRIMARY KEY, at TIMESTAMP, place INT);
             CREATE TOPOLOGY latest COMMIT EVERY 400 ROWS AS (
                 INSERT INTO readings SELECT * FROM reading;
                 INSERT INTO last SELECT r.feeder, r.at, p.place FROM reading r JOIN places p ON p.meter = r.meter % 11 AND p.place <= 11
                     ON CONFLICT (feeder) DO UPDATE SET at = EXCLUDED.at, place = EXCLUDED.place)",
        )
        .unwrap();
    wait_for_end(&mut session, "latest");
    let wrong =
        "SELECT count(*) FROM last l JOIN (SELECT feeder, max(at) AS at FROM readings GROUP BY feeder) m
        ON m.feeder = l.feeder WHERE l.at <> m.at";
    assert_eq!(rows(&mut session, wrong)[0], ["0"]);
    assert_eq!(rows(&mut session, "SELECT count(*) FROM last")[0], ["4"]);
}

#[test]
fn spellings_of_others_and_options_of_formats() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lines.csv");
    std::fs::write(&path, "id;note\n1;one\n2;-\n").unwrap();
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(&format!(
            "CREATE SOURCE lines (id INT NOT NULL, note VARCHAR) WITH (connector = 'file', path = '{}')
                 FORMAT PLAIN ENCODE CSV (delimiter = ';', null = '-');
             CREATE TABLE stored (id INT PRIMARY KEY, note VARCHAR);
             CREATE TOPOLOGY follow AS (INSERT INTO stored SELECT id, note FROM lines)",
            path.display()
        ))
        .unwrap();
    wait_for(&mut session, "SELECT count(*) FROM stored WHERE note IS NULL", "1");
    for seed in [7, 8] {
        session
            .execute(&format!(
                "CREATE SOURCE s{seed} (at TIMESTAMP NOT NULL, meter INT, kw DOUBLE, note VARCHAR, WATERMARK FOR at AS at)
                     WITH ('connector' = 'generator', 'rows' = '500', step = '1 minute', seed = {seed});
                 CREATE TABLE t{seed} (meter INT, hour TIMESTAMP, n BIGINT, PRIMARY KEY (meter, hour));
                 CREATE TOPOLOGY x{seed} AS (
                     INSERT INTO t{seed} SELECT meter, window_start, count(*)
                         FROM TABLE(TUMBLE(TABLE s{seed}, DESCRIPTOR(at), INTERVAL '1' HOUR)) GROUP BY meter, window_start)"
            ))
            .unwrap();
        wait_for_end(&mut session, &format!("x{seed}"));
    }
    assert_eq!(rows(&mut session, "SELECT sum(n)::bigint FROM t7"), [["500"]]);
    assert_ne!(
        rows(&mut session, "SELECT count(*) FROM (SELECT * FROM t7 EXCEPT SELECT * FROM t8) d")[0],
        ["0"]
    );
    for (sql, expected) in [
        (
            "CREATE SOURCE bad (id INT) WITH (connector = 'file', path = 'x', delimiter = ';') FORMAT PLAIN ENCODE CSV (delimiter = ',')",
            "option \"delimiter\" specified more than once",
        ),
        (
            "CREATE SOURCE bad (id INT) WITH (connector = 'file', path = 'x') FORMAT PLAIN ENCODE JSON (delimiter = ',')",
            "unrecognized option \"delimiter\"",
        ),
        (
            "CREATE SOURCE bad (id INT) WITH (connector = 'file', path = 'x') FORMAT PLAIN ENCODE CSV (null = '') x",
            "x",
        ),
        (
            "SELECT * FROM stored s ASOF JOIN stored t MATCH_CONDITION (s.id >= t.id) USING (id)",
            "ASOF JOIN with USING or NATURAL",
        ),
        (
            "SELECT * FROM stored s ASOF JOIN stored t MATCH_CONDITION (s.id = t.id)",
            "MATCH_CONDITION other than one comparison",
        ),
        (
            "SELECT * FROM stored s ASOF JOIN stored t MATCH_CONDITION (s.id >= t.id) ON s.id + t.id = 3",
            "ON of an ASOF JOIN other than equalities",
        ),
    ] {
        let error = session.execute(sql).err().unwrap_or_else(|| panic!("{sql} is accepted")).to_string();
        assert!(error.contains(expected), "{sql}: {error}");
        assert!(!error.contains("BinaryOp") && !error.contains('{'), "{sql}: {error}");
    }
}

#[test]
fn what_tables_cannot_be_read_for_is_refused() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session.execute(SOURCE).unwrap();
    session.execute(TABLES).unwrap();
    session.execute("CREATE TABLE t (at TIMESTAMP, kw DOUBLE)").unwrap();
    for (steps, expected) in [
        (
            "INSERT INTO t SELECT at, (SELECT low FROM places p WHERE p.meter = r.meter) FROM reading r",
            "reads columns of the stream",
        ),
        (
            "INSERT INTO t SELECT at, kw FROM reading r WHERE kw > (SELECT max(low) FROM places p WHERE p.place > r.meter)",
            "reads columns of the stream",
        ),
        (
            "INSERT INTO t SELECT at, kw FROM reading WHERE meter IN (SELECT meter FROM reading)",
            "a subquery of a stream",
        ),
        (
            "INSERT INTO t SELECT r.at, p.low FROM reading r FULL JOIN places p ON p.feeder = r.feeder",
            "has all rows of a table",
        ),
        (
            "INSERT INTO t SELECT r.at, p.low FROM reading r RIGHT JOIN places p ON p.feeder = r.feeder",
            "has all rows of a table",
        ),
        ("INSERT INTO t SELECT at, kw FROM reading WHERE kw > (SELECT random())", "random() in a step"),
        (
            "INSERT INTO t SELECT r.at, p.low FROM places p ASOF JOIN reading r MATCH_CONDITION (p.low >= r.kw) ON p.meter = r.meter",
            "has all rows of a table",
        ),
        (
            "INSERT INTO t SELECT at, approx_distinct(kw) FROM TUMBLE(reading, at, INTERVAL '1 hour') GROUP BY at, window_start",
            "approx_distinct",
        ),
    ] {
        let refused = session.execute(&format!("CREATE TOPOLOGY x AS ({steps})"));
        let error = refused.err().unwrap_or_else(|| panic!("{steps} is accepted")).to_string();
        assert!(error.contains(expected), "{steps}: {error}");
    }
}

/// Indexes and columns of a table that is read for each batch, and asked about at the commit, come and go meanwhile.
#[test]
fn tables_that_are_read_for_each_batch_are_altered_meanwhile() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(
            "CREATE SOURCE numbers (at TIMESTAMP NOT NULL, n INT NOT NULL) WITH (connector = 'generator', rows = 100000,
                 step = '1 second', n.cardinality = 10, rows_per_second = 400);
             CREATE TABLE names (id INT PRIMARY KEY, n INT, name TEXT);
             INSERT INTO names SELECT i, i, 'name ' || i FROM generate_series(0, 9) g(i);
             CREATE TABLE named (at TIMESTAMP PRIMARY KEY, name TEXT);
             CREATE TOPOLOGY naming COMMIT EVERY 5 ROWS WITH (durability = 'none') AS (
                 INSERT INTO named SELECT r.at, m.name FROM numbers r JOIN names m ON m.n = r.n WHERE r.n IN (SELECT n FROM names);
                 ABORT WHEN (SELECT count(*) FROM CHANGES(named) c JOIN names m ON m.name = c.name) > 1000)",
        )
        .unwrap();
    let mut stored = 0_i64;
    for change in [
        "CREATE INDEX names_by_n ON names (n)",
        "ALTER TABLE names ADD COLUMN more INT",
        "DROP INDEX names_by_n",
        "CREATE UNIQUE INDEX names_by_name ON names (name)",
        "ANALYZE names",
        "DROP INDEX names_by_name",
        "ALTER TABLE names DROP COLUMN more",
    ] {
        wait_for(&mut session, &format!("SELECT count(*) > {stored} FROM named"), "true");
        let changed = session.execute(change);
        if change.contains("DROP COLUMN") {
            let error = changed.unwrap_err().to_string();
            assert!(error.contains("topology naming"), "{error}");
        } else {
            changed.unwrap_or_else(|error| panic!("{change}: {error}"));
        }
        stored = rows(&mut session, "SELECT count(*) FROM named")[0][0].parse().unwrap();
    }
    wait_for(&mut session, &format!("SELECT count(*) > {} FROM named", stored + 20), "true");
    let wrong = "SELECT count(*) FROM named WHERE name IS NULL";
    assert_eq!(rows(&mut session, wrong)[0], ["0"]);
    assert_eq!(rows(&mut session, "SELECT state, error FROM entresol.topologies"), [["running", ""]]);
}
