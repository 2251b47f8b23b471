//! Joins of two streams whose rows are taken back, and windows of such rows: sources that follow the tables of another
//! database, and results of aggregates.

use super::{Random, append, rows, wait_for};
use entresol::{Database, Options, Session};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// Targets with the queries over both sources, and the queries over tables where these have other words.
const STEPS: [(&str, &str, &str); 13] = [
    (
        "billed (id INT PRIMARY KEY, name VARCHAR, amount BIGINT)",
        "SELECT p.id, c.name, p.amount FROM purchase p JOIN customer c ON c.id = p.customer",
        "",
    ),
    (
        "named (id INT PRIMARY KEY, name VARCHAR, customer INT)",
        "SELECT p.id, coalesce(c.name, 'nobody') AS name, c.id AS customer FROM customer c RIGHT JOIN purchase p ON c.id = p.customer",
        "",
    ),
    (
        "large_of (id INT PRIMARY KEY, name VARCHAR, large BIGINT)",
        "SELECT p.id, c.name, p.amount AS large FROM purchase p LEFT JOIN customer c ON c.id = p.customer AND p.amount > 150 AND c.name <> 'n3'",
        "",
    ),
    (
        "spent (id INT PRIMARY KEY, name VARCHAR, purchases BIGINT, least BIGINT)",
        "SELECT id, min(name) AS name, count(amount) AS purchases, min(amount) AS least FROM
            (SELECT c.id, c.name, p.amount FROM purchase p RIGHT JOIN customer c ON p.customer = c.id AND p.amount % 3 <> length(c.city)) j
            GROUP BY id",
        "",
    ),
    (
        "either (customer INT, purchase INT, n BIGINT, PRIMARY KEY (customer, purchase))",
        "SELECT customer, purchase, count(*) AS n FROM (SELECT coalesce(c.id, -1) AS customer, coalesce(p.id, -1) AS purchase
            FROM customer c FULL JOIN purchase p ON p.customer = c.id AND p.amount < 200) j GROUP BY customer, purchase",
        "",
    ),
    (
        "city_total (city VARCHAR PRIMARY KEY, customers BIGINT, purchases BIGINT, amount BIGINT)",
        "SELECT city, count(DISTINCT id) AS customers, count(amount) AS purchases, coalesce(sum(amount), 0)::bigint AS amount FROM
            (SELECT c.city, c.id, p.amount FROM customer c LEFT JOIN purchase p ON p.customer = c.id) j GROUP BY city",
        "",
    ),
    (
        "neighbour (one INT, other INT, city VARCHAR, PRIMARY KEY (one, other))",
        "SELECT a.id AS one, b.id AS other, a.city FROM customer a JOIN customer b ON b.city = a.city AND a.name < b.name",
        "",
    ),
    (
        "hourly (hour TIMESTAMP PRIMARY KEY, purchases BIGINT, least BIGINT)",
        "SELECT window_start AS hour, count(*) AS purchases, min(amount) AS least FROM TUMBLE(purchase, at, INTERVAL '1 hour')
            GROUP BY window_start",
        "SELECT date_trunc('hour', at), count(*), min(amount) FROM purchase GROUP BY 1",
    ),
    (
        "purchase_hour (id INT, began TIMESTAMP, ended TIMESTAMP, amount BIGINT, PRIMARY KEY (id, began))",
        "SELECT id, window_start AS began, window_end AS ended, amount FROM HOP(purchase, at, INTERVAL '1 hour', INTERVAL '2 hours')
            WHERE amount > 100",
        "SELECT id, date_trunc('hour', at) - i * INTERVAL '1 hour', date_trunc('hour', at) - i * INTERVAL '1 hour' + INTERVAL '2 hours',
            amount FROM purchase, generate_series(0, 1) g(i) WHERE amount > 100",
    ),
    (
        "day_so_far (city VARCHAR, until TIMESTAMP, amount BIGINT, PRIMARY KEY (city, until))",
        "SELECT city, window_end AS until, sum(amount)::bigint AS amount FROM CUMULATE(paid, at, INTERVAL '6 hours', INTERVAL '1 day')
            GROUP BY city, window_end",
        "SELECT city, until, sum(amount)::bigint FROM (SELECT c.city, p.amount, p.at, date_trunc('day', p.at) + i * INTERVAL '6 hours' AS until
            FROM purchase p JOIN customer c ON c.id = p.customer, generate_series(1, 4) g(i)) j WHERE at < until GROUP BY 1, 2",
    ),
    (
        "visit (customer INT, began TIMESTAMP, ended TIMESTAMP, purchases BIGINT, amount BIGINT, PRIMARY KEY (customer, began))",
        "SELECT customer, window_start AS began, window_end AS ended, count(*) AS purchases, max(amount) AS amount
            FROM SESSION(purchase, at, INTERVAL '5 hours') WHERE customer IS NOT NULL GROUP BY customer, window_start, window_end",
        "SELECT customer, min(at), max(at) + INTERVAL '5 hours', count(*), max(amount) FROM (SELECT *, sum(CASE WHEN at < before
            + INTERVAL '5 hours' THEN 0 ELSE 1 END) OVER (PARTITION BY customer ORDER BY at) AS s FROM (SELECT customer, at, amount,
            lag(at) OVER (PARTITION BY customer ORDER BY at) AS before FROM purchase WHERE customer IS NOT NULL) p) q GROUP BY customer, s",
    ),
    (
        "busiest (city VARCHAR, place BIGINT, until TIMESTAMP, purchases BIGINT, PRIMARY KEY (city, place))",
        "SELECT city, place, until, purchases FROM (SELECT *, row_number() OVER (PARTITION BY city ORDER BY purchases DESC, until) AS place
            FROM (SELECT city, window_end AS until, count(*) AS purchases FROM SESSION(paid, at, INTERVAL '2 hours')
            GROUP BY city, window_end) v) r WHERE place <= 2",
        "SELECT city, place, until, purchases FROM (SELECT *, row_number() OVER (PARTITION BY city ORDER BY purchases DESC, until) AS place
            FROM (SELECT city, max(at) + INTERVAL '2 hours' AS until, count(*) AS purchases FROM (SELECT *, sum(CASE WHEN at < before
            + INTERVAL '2 hours' THEN 0 ELSE 1 END) OVER (PARTITION BY city ORDER BY at) AS s FROM (SELECT c.city, p.at,
            lag(p.at) OVER (PARTITION BY c.city ORDER BY p.at) AS before FROM purchase p JOIN customer c ON c.id = p.customer) o) q
            GROUP BY city, s) v) r WHERE place <= 2",
    ),
    (
        "largest (city VARCHAR, place BIGINT, id INT, amount BIGINT, PRIMARY KEY (city, place))",
        "SELECT city, place, id, amount FROM (SELECT *, row_number() OVER (PARTITION BY city ORDER BY amount DESC, id) AS place FROM paid) r
            WHERE place <= 2",
        "SELECT city, place, id, amount FROM (SELECT c.city, p.id, p.amount, row_number() OVER (PARTITION BY c.city
            ORDER BY p.amount DESC, p.id) AS place FROM purchase p JOIN customer c ON c.id = p.customer) r WHERE place <= 2",
    ),
];

/// Lines of Debezium that write and delete rows of a key below `keys`, with the values that a function makes.
fn debezium(
    random: &mut Random,
    there: &mut BTreeMap<usize, String>,
    keys: usize,
    mut values: impl FnMut(&mut Random) -> String,
) -> String {
    let mut lines = String::new();
    for _ in 0..40 {
        let id = random.below(keys);
        let row = format!("{{\"id\": {id}, {}}}", values(random));
        match there.remove(&id).filter(|_| random.below(4) == 0) {
            Some(before) => {
                writeln!(lines, "{{\"before\": {before}, \"after\": null, \"op\": \"d\"}}").unwrap();
            }
            None => {
                writeln!(lines, "{{\"before\": null, \"after\": {row}, \"op\": \"u\"}}").unwrap();
                there.insert(id, row);
            }
        }
    }
    lines
}

/// Name of a table, its columns and its key.
fn columns_of(table: &str) -> (String, Vec<String>, Vec<String>) {
    let (name, rest) = table.split_once(" (").unwrap();
    let columns: Vec<String> =
        rest.split(", ").map(|column| column.split(' ').next().unwrap().to_owned()).collect();
    let key = match rest.split_once(", PRIMARY KEY (") {
        Some((_, key)) => key.trim_end_matches(')').split(", ").map(str::to_owned).collect(),
        None => vec![columns[0].clone()],
    };
    // The columns of a key of several are repeated behind the declarations.
    (name.to_owned(), columns.into_iter().take_while(|column| column != "PRIMARY").collect(), key)
}

fn create(session: &mut Session, directory: &Path, commit: &str) {
    let mut steps = vec![
        "INSERT INTO customers SELECT id, name, city FROM customer ON CONFLICT (id) DO UPDATE SET name = EXCLUDED.name, city = EXCLUDED.city".to_owned(),
        "INSERT INTO purchases SELECT id, customer, amount, at FROM purchase
            ON CONFLICT (id) DO UPDATE SET customer = EXCLUDED.customer, amount = EXCLUDED.amount, at = EXCLUDED.at"
            .to_owned(),
        "CREATE STREAM paid WITH (state_table = 'paid_rows') AS
            SELECT c.city, p.id, p.amount, p.at FROM purchase p JOIN customer c ON c.id = p.customer"
            .to_owned(),
        "MERGE INTO bonus b USING (SELECT id, amount FROM paid WHERE amount > 50) p ON b.id = p.id
            WHEN MATCHED THEN UPDATE SET points = b.points + p.amount
            WHEN NOT MATCHED THEN INSERT VALUES (p.id, -p.amount)"
            .to_owned(),
    ];
    for (table, query, _) in STEPS {
        session.execute(&format!("CREATE TABLE {table}")).unwrap();
        let (name, columns, key) = columns_of(table);
        let set = columns.iter().filter(|column| !key.contains(column));
        let set: Vec<String> = set.map(|column| format!("{column} = EXCLUDED.{column}")).collect();
        steps.push(format!(
            "INSERT INTO {name} {query} ON CONFLICT ({}) DO UPDATE SET {}",
            key.join(", "),
            set.join(", ")
        ));
    }
    let source = |name: &str, columns: &str| {
        let path = directory.join(name);
        format!(
            "CREATE SOURCE {name} (id INT PRIMARY KEY, {columns}) WITH (connector = 'file', path = '{}', tail = 'true') FORMAT DEBEZIUM ENCODE JSON",
            path.display()
        )
    };
    session.execute(&source("customer", "name VARCHAR NOT NULL, city VARCHAR NOT NULL")).unwrap();
    session
        .execute(&source("purchase", "customer INT, amount BIGINT NOT NULL, at TIMESTAMP NOT NULL"))
        .unwrap();
    session
        .execute(
            "CREATE TABLE customers (id INT PRIMARY KEY, name VARCHAR, city VARCHAR);
             CREATE TABLE purchases (id INT PRIMARY KEY, customer INT, amount BIGINT, at TIMESTAMP);
             CREATE TABLE bonus (id INT PRIMARY KEY, points BIGINT);
             INSERT INTO bonus SELECT i, 1000 FROM generate_series(0, 9) g(i)",
        )
        .unwrap();
    let steps = steps.join("; ");
    session.execute(&format!("CREATE TOPOLOGY shop {commit} AS ({steps})")).unwrap();
}

/// Compares each target with its query over the rows of both sources.
fn compare(session: &mut Session, what: &str) {
    session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ").unwrap();
    let merged = "SELECT b.id, CASE WHEN p.amount > 50 THEN 1000 + p.amount ELSE 1000 END FROM (SELECT i AS id FROM generate_series(0, 9) g(i)) b
        LEFT JOIN (SELECT p.id, p.amount FROM purchase p JOIN customer c ON c.id = p.customer) p ON p.id = b.id
        UNION ALL SELECT p.id, -p.amount FROM purchase p JOIN customer c ON c.id = p.customer WHERE p.id > 9 AND p.amount > 50";
    let targets = STEPS.iter().map(|(table, query, other)| {
        let (name, columns, _) = columns_of(table);
        (format!("SELECT {} FROM {name}", columns.join(", ")), if other.is_empty() { *query } else { *other })
    });
    for (target, query) in targets.chain([("SELECT id, points FROM bonus".to_owned(), merged)]) {
        let over_tables = ["FROM", "JOIN"].iter().fold(query.to_owned(), |query, word| {
            ["customer", "purchase"].iter().fold(query, |query, table| {
                query.replace(&format!("{word} {table} "), &format!("{word} {table}s "))
            })
        });
        let over_tables = over_tables.replace("FROM purchase,", "FROM purchases,");
        let (mut found, mut wanted) = (rows(session, &target), rows(session, &over_tables));
        found.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(found, wanted, "{what}: {target} is other than {over_tables}");
    }
    session.execute("COMMIT").unwrap();
}

#[test]
fn joins_and_windows_of_sources_that_change_equal_their_queries() {
    for commit in ["COMMIT EVERY 3 ROWS", "COMMIT EACH ROW", ""] {
        let directory = tempfile::tempdir().unwrap();
        let mut random = Random(11);
        let (mut customers, mut purchases) = (BTreeMap::new(), BTreeMap::new());
        for round in 0..4 {
            let lines = debezium(&mut random, &mut customers, 12, |random| {
                format!("\"name\": \"n{}\", \"city\": \"c{}\"", random.below(5), random.below(4))
            });
            let last = format!(
                "{{\"before\": null, \"after\": {{\"id\": 99, \"name\": \"{round}\", \"city\": \"last\"}}, \"op\": \"u\"}}\n"
            );
            append(&directory.path().join("customer"), &(lines + &last));
            let lines = debezium(&mut random, &mut purchases, 25, |random| {
                let customer = random.below(14);
                let customer = if customer == 13 { "null".to_owned() } else { customer.to_string() };
                let (day, hour) = (1 + random.below(2), random.below(24));
                format!(
                    "\"customer\": {customer}, \"amount\": {}, \"at\": \"2026-01-0{day} {hour:02}:30:00\"",
                    random.below(300)
                )
            });
            let last = format!(
                "{{\"before\": null, \"after\": {{\"id\": 99, \"customer\": 99, \"amount\": {round}, \"at\": \"2026-01-01 00:00:00\"}}, \"op\": \"u\"}}\n"
            );
            append(&directory.path().join("purchase"), &(lines + &last));
            let database = Database::open(directory.path().join("db"), Options::default()).unwrap();
            let mut session = database.session().unwrap();
            if round == 0 {
                create(&mut session, directory.path(), commit);
            }
            compare(&mut session, &format!("{commit}, round {round}, under way"));
            wait_for(&mut session, "SELECT name FROM customers WHERE id = 99", &round.to_string());
            wait_for(&mut session, "SELECT amount FROM purchases WHERE id = 99", &round.to_string());
            compare(&mut session, &format!("{commit}, round {round}"));
            if round == 3 {
                assert!(database.check(|_| {}).unwrap().problems.is_empty());
            }
            // Closed, or left as by a crash.
            if round % 2 == 0 {
                drop(session);
                database.close().unwrap();
            }
        }
    }
}

/// Appended rows beside those that change: the target has the pairs of all rows so far.
#[test]
fn appended_rows_are_joined_with_results_that_change() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(
            "CREATE SOURCE reading (at TIMESTAMP NOT NULL, meter INT NOT NULL, feeder VARCHAR NOT NULL, kw DOUBLE,
                WATERMARK FOR at AS at) WITH (connector = 'generator', rows = 400, step = '30 seconds',
                meter.cardinality = 20, feeder.cardinality = 5);
             CREATE TABLE readings (at TIMESTAMP PRIMARY KEY, meter INT, feeder VARCHAR, kw DOUBLE);
             CREATE TABLE shares (meter INT, share BIGINT, n BIGINT, PRIMARY KEY (meter, share));
             CREATE TABLE top_of (feeder VARCHAR PRIMARY KEY, meter INT, readings BIGINT, of_feeder BIGINT);
             CREATE TABLE per_hour (hour TIMESTAMP, feeder VARCHAR, meters BIGINT, PRIMARY KEY (hour, feeder));
             CREATE TOPOLOGY x COMMIT EVERY 17 ROWS WITH (durability = 'none') AS (
                INSERT INTO readings SELECT * FROM reading;
                CREATE STREAM of_meter AS SELECT meter, feeder, count(*) AS n, max(at) AS at FROM reading GROUP BY meter, feeder;
                CREATE STREAM of_feeder AS SELECT feeder, count(*) AS n FROM reading GROUP BY feeder;
                INSERT INTO shares SELECT meter, n % 7, count(*) FROM
                    (SELECT r.meter, f.n FROM reading r JOIN of_feeder f ON f.feeder = r.feeder AND f.n > r.kw) j
                    GROUP BY meter, n % 7 ON CONFLICT (meter, share) DO UPDATE SET n = EXCLUDED.n;
                INSERT INTO top_of SELECT t.feeder, t.meter, t.n, f.n FROM (SELECT * FROM (SELECT *, row_number() OVER
                        (PARTITION BY feeder ORDER BY n DESC, meter) AS place FROM of_meter) r WHERE place = 1) t
                    JOIN of_feeder f ON f.feeder = t.feeder
                    ON CONFLICT (feeder) DO UPDATE SET meter = EXCLUDED.meter, readings = EXCLUDED.readings, of_feeder = EXCLUDED.of_feeder;
                INSERT INTO per_hour SELECT window_start, feeder, count(*) FROM TUMBLE(of_meter, at, INTERVAL '1 hour')
                    GROUP BY window_start, feeder ON CONFLICT (hour, feeder) DO UPDATE SET meters = EXCLUDED.meters
                    EMIT ON COMMIT)",
        )
        .unwrap();
    super::wait_for_end(&mut session, "x");
    for (target, query) in [
        (
            "SELECT * FROM shares ORDER BY 1, 2",
            "SELECT r.meter, f.n % 7, count(*) FROM readings r JOIN (SELECT feeder, count(*) AS n FROM readings GROUP BY feeder) f
                ON f.feeder = r.feeder AND f.n > r.kw GROUP BY 1, 2 ORDER BY 1, 2",
        ),
        (
            "SELECT * FROM top_of ORDER BY feeder",
            "SELECT t.feeder, t.meter, t.n, f.n FROM (SELECT feeder, meter, n, row_number() OVER (PARTITION BY feeder
                ORDER BY n DESC, meter) AS place FROM (SELECT feeder, meter, count(*) AS n FROM readings GROUP BY feeder, meter) m) t
                JOIN (SELECT feeder, count(*) AS n FROM readings GROUP BY feeder) f ON f.feeder = t.feeder
                WHERE place = 1 ORDER BY t.feeder",
        ),
        (
            "SELECT * FROM per_hour ORDER BY 1, 2",
            "SELECT date_trunc('hour', at), feeder, count(*) FROM (SELECT meter, feeder, max(at) AS at FROM readings GROUP BY meter, feeder) m
                GROUP BY 1, 2 ORDER BY 1, 2",
        ),
    ] {
        let wanted = rows(&mut session, query);
        assert!(!wanted.is_empty());
        assert_eq!(rows(&mut session, target), wanted, "{target}");
    }
    let plan: Vec<String> = rows(&mut session, "EXPLAIN TOPOLOGY x").into_iter().flatten().collect();
    for text in [
        "regular join of appended rows with changes, all rows of both are kept",
        "regular join of changes with changes, all rows of both are kept",
        "changes, rows are taken back, by feeder",
    ] {
        assert!(plan.iter().any(|line| line.contains(text)), "{text}: {plan:?}");
    }
}

#[test]
fn joins_and_windows_that_cannot_be_of_rows_that_are_taken_back_are_refused() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session.execute(super::SOURCE).unwrap();
    session
        .execute(
            "CREATE TABLE t (meter INT PRIMARY KEY, n BIGINT);
             CREATE TABLE late (at TIMESTAMP, meter INT, feeder VARCHAR, kw DOUBLE, cost DECIMAL(8,2))",
        )
        .unwrap();
    let upsert = "ON CONFLICT (meter) DO UPDATE SET n = EXCLUDED.n";
    let windows = "INSERT INTO t SELECT meter, count(*) FROM TUMBLE(s, at, INTERVAL '1 hour') GROUP BY meter, window_start";
    let join = |join: &str| format!("INSERT INTO t SELECT s.meter, s.n FROM s {join} {upsert}");
    for (step, expected) in [
        (join("FULL JOIN u ON u.meter = s.meter"), "rows of a join of streams, which change while rows come"),
        (join("JOIN u ON u.meter < s.meter"), "without equal columns of both"),
        (join("LEFT JOIN u ON u.n = s.meter"), "rows of a join of streams, which change while rows come"),
        (join("JOIN u ON u.n = s.n"), "a table whose key is that of the left side"),
        (join("JOIN reading r ON r.meter = s.meter"), "a table whose key is that of the left side"),
        (join("JOIN ended e ON e.meter = s.meter"), "JOIN of the results of groups that state_ttl ends"),
        (join("JOIN early e ON e.meter = s.meter"), "JOIN of results that are sent before they are final"),
        (
            format!("{} LATE ROWS INTO late", join("JOIN u ON u.meter = s.meter")),
            "late rows, if there are any, are counted and dropped",
        ),
        (format!("{windows} {upsert}"), "a table whose key is the columns of GROUP BY"),
        (
            format!("{windows} {upsert} EMIT ON WINDOW CLOSE"),
            "EMIT ON WINDOW CLOSE of windows of results of an aggregate",
        ),
        (
            format!("{windows} {upsert} LATE ROWS INTO late"),
            "LATE ROWS of windows of results of an aggregate",
        ),
        (
            format!("{} {upsert}", windows.replace("TUMBLE", "SESSION")),
            "a table whose key is the columns of GROUP BY",
        ),
        (
            format!("{} {upsert} EMIT ON WINDOW CLOSE", windows.replace("TUMBLE", "SESSION")),
            "EMIT ON WINDOW CLOSE of windows of results of an aggregate",
        ),
        (
            "INSERT INTO t SELECT meter, count(*) FROM SESSION(s, at, INTERVAL '1 hour') GROUP BY meter".to_owned(),
            "GROUP BY window_start of SESSION(stream, time, gap)",
        ),
        (
            "INSERT INTO t SELECT meter, n FROM SESSION(s, at, INTERVAL '1 hour') WHERE window_end > window_start".to_owned(),
            "an edge of SESSION(relation, time, gap) other than in GROUP BY",
        ),
        (
            "INSERT INTO t SELECT meter, n FROM s MATCH_RECOGNIZE (PARTITION BY meter ORDER BY at
                MEASURES last(n) AS n PATTERN (a) WITHIN INTERVAL '1 hour' DEFINE a AS n > 1)"
                .to_owned(),
            "MATCH_RECOGNIZE of results of an aggregate",
        ),
    ] {
        let refused = session.execute(&format!(
            "CREATE TOPOLOGY x AS (
                CREATE STREAM s AS SELECT meter, count(*) AS n, max(at) AS at FROM reading GROUP BY meter;
                CREATE STREAM u AS SELECT meter, count(*) AS n FROM reading GROUP BY meter;
                CREATE STREAM ended WITH (state_ttl = '1 hour') AS SELECT meter, count(*) AS n FROM reading GROUP BY meter;
                CREATE STREAM early AS SELECT meter, count(*) AS n FROM reading GROUP BY meter EMIT CHANGES EVERY INTERVAL '1 hour';
                {step})"
        ));
        let error = refused.err().unwrap_or_else(|| panic!("{step} is accepted")).to_string();
        assert!(error.contains(expected), "{step}: {error}");
    }
}
