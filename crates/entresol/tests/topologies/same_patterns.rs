//! Patterns in tables: a query over the rows of a source, as it stands in a step, gives what the topology wrote.

use super::{rows, wait_for_end};
use entresol::{Database, Options};

/// Target, its columns, and the query; `{}` is the source, or the table with its rows.
const QUERIES: [(&str, &str, &str); 6] = [
    (
        "jumps",
        "meter INT, at TIMESTAMP, from_kw DOUBLE, kw DOUBLE",
        "SELECT meter, at, from_kw, kw FROM {} MATCH_RECOGNIZE (PARTITION BY meter ORDER BY at
            MEASURES last(b.at) AS at, a.kw AS from_kw, b.kw AS kw
            AFTER MATCH SKIP TO NEXT ROW PATTERN (a b) WITHIN INTERVAL '3 minutes'
            DEFINE a AS kw < 30, b AS b.kw > a.kw + 40) AS m WHERE m.kw < 99",
    ),
    (
        "climbs",
        "meter INT, began TIMESTAMP, ended TIMESTAMP, n BIGINT, total DOUBLE, most DOUBLE, number BIGINT",
        "SELECT * FROM {} MATCH_RECOGNIZE (PARTITION BY meter ORDER BY at
            MEASURES first(at) AS began, last(at) AS ended, count(up.*) AS n, sum(up.kw) AS total, max(kw) AS most, match_number() AS number
            PATTERN (low up{2,}) WITHIN INTERVAL '1 day' DEFINE up AS kw > prev(kw))",
    ),
    (
        "first_lows",
        "feeder VARCHAR, began TIMESTAMP, ended TIMESTAMP",
        "SELECT feeder, began, ended FROM {} MATCH_RECOGNIZE (PARTITION BY feeder ORDER BY at
            MEASURES first(at) AS began, last(at) AS ended PATTERN (high any*? low) WITHIN INTERVAL '5 minutes'
            DEFINE high AS kw > 80, low AS kw < 20)",
    ),
    (
        "last_lows",
        "feeder VARCHAR, began TIMESTAMP, ended TIMESTAMP, n BIGINT",
        "SELECT feeder, began, ended, n FROM {} MATCH_RECOGNIZE (PARTITION BY feeder ORDER BY at
            MEASURES first(at) AS began, last(at) AS ended, count(*) AS n PATTERN (high any* low) WITHIN INTERVAL '5 minutes'
            DEFINE high AS kw > 80, low AS kw < 20)",
    ),
    (
        "kinds",
        "at TIMESTAMP, kind VARCHAR, number BIGINT, meter INT, feeder VARCHAR, kw DOUBLE",
        "SELECT at, kind, number, meter, feeder, kw FROM {} MATCH_RECOGNIZE (ORDER BY at
            MEASURES classifier() AS kind, match_number() AS number ALL ROWS PER MATCH
            PATTERN ((low | high high)+ other?) WITHIN INTERVAL '2 hours'
            DEFINE low AS kw < 25, high AS kw > 60, other AS feeder <> first(feeder))",
    ),
    (
        "sums",
        "feeder VARCHAR, at TIMESTAMP, so_far DOUBLE, total DOUBLE, before DOUBLE",
        "SELECT feeder, at, so_far, total, before FROM {} MATCH_RECOGNIZE (PARTITION BY feeder ORDER BY at
            MEASURES sum(kw) AS so_far, FINAL sum(kw) AS total, prev(a.kw, 2) AS before ALL ROWS PER MATCH
            AFTER MATCH SKIP TO NEXT ROW PATTERN (a{1,4} b) WITHIN INTERVAL '10 minutes' DEFINE a AS sum(a.kw) < 120, b AS kw > last(a.kw))",
    ),
];

#[test]
fn queries_over_stored_rows_give_what_topologies_wrote() {
    for seed in 1..=3 {
        let database = Database::volatile(Options::default()).unwrap();
        let mut session = database.session().unwrap();
        session
            .execute(&format!(
                "CREATE SOURCE reading (at TIMESTAMP NOT NULL, meter INT NOT NULL, feeder VARCHAR NOT NULL, kw DOUBLE,
                    WATERMARK FOR at AS at - INTERVAL '1 minute')
                 WITH (connector = 'generator', rows = 3000, step = '9 seconds', skew = '1 minute', seed = {seed},
                    start = '1969-12-31 20:00:00', meter.cardinality = 11, feeder.cardinality = 3);
                 CREATE TABLE stored (at TIMESTAMP, meter INT, feeder VARCHAR, kw DOUBLE)"
            ))
            .unwrap();
        let mut steps = vec!["INSERT INTO stored SELECT * FROM reading".to_owned()];
        for (table, columns, query) in QUERIES {
            session.execute(&format!("CREATE TABLE {table} ({columns})")).unwrap();
            steps.push(format!("INSERT INTO {table} {}", query.replace("{}", "reading")));
        }
        let topology = format!("CREATE TOPOLOGY patterns COMMIT EVERY 500 ROWS AS ({})", steps.join(";\n"));
        session.execute(&topology).unwrap();
        wait_for_end(&mut session, "patterns");
        let late = rows(&mut session, "SELECT late, tuples FROM entresol.topologies");
        assert_eq!(late, [["0", "3000"]]);
        let unsorted = "SELECT count(*) > 500 FROM (SELECT at, lag(at) OVER () AS before FROM stored) s WHERE at < before";
        assert_eq!(rows(&mut session, unsorted), [["true"]], "the generator's skew");
        let ties = "SELECT count(*) - count(DISTINCT at) FROM stored";
        assert_eq!(rows(&mut session, ties), [["0"]], "rows of equal times have no order in a table");
        for (table, _, query) in QUERIES {
            let query = query.replace("{}", "stored");
            let written = rows(&mut session, &format!("SELECT count(*) > 20 FROM {table}"));
            assert_eq!(written, [["true"]], "{table}");
            for (one, other) in
                [(format!("SELECT * FROM {table}"), query.clone()), (query, format!("SELECT * FROM {table}"))]
            {
                let more = format!("SELECT * FROM ({one} EXCEPT ALL {other}) d LIMIT 3");
                assert_eq!(rows(&mut session, &more), Vec::<Vec<String>>::new(), "seed {seed}: {more}");
            }
        }
    }
}

#[test]
fn views_of_matches_are_maintained() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session.execute("CREATE TABLE stored (id INT PRIMARY KEY, at TIMESTAMP, meter INT, kw BIGINT)").unwrap();
    let views = [
        (
            "rises",
            "SELECT * FROM stored MATCH_RECOGNIZE (PARTITION BY meter ORDER BY at, id MEASURES first(id) AS f, last(id) AS l, sum(kw) AS kw
                PATTERN (low up+) DEFINE up AS kw > prev(kw))",
        ),
        (
            "steps",
            "SELECT m.meter, m.id, m.n FROM stored MATCH_RECOGNIZE (PARTITION BY meter ORDER BY at, id MEASURES count(*) AS n ALL ROWS PER MATCH
                PATTERN (x{2,3}) WITHIN INTERVAL '2 hours') m WHERE m.meter <> 3",
        ),
        (
            "whole",
            "SELECT f, n FROM stored MATCH_RECOGNIZE (ORDER BY at, id MEASURES first(id) AS f, count(*) AS n PATTERN (a+ b) DEFINE a AS kw % 5 < 3)",
        ),
    ];
    for (name, query) in views {
        session.execute(&format!("CREATE MATERIALIZED VIEW {name} AS {query}")).unwrap();
    }
    let statements = [
        "INSERT INTO stored SELECT i, TIMESTAMP '2026-01-01' + i * INTERVAL '13 minutes', i % 5, (i * 7919) % 100 FROM generate_series(1, 300) g(i)",
        "UPDATE stored SET at = at + INTERVAL '50 minutes', kw = kw + 1 WHERE id % 7 = 3",
        "DELETE FROM stored WHERE id % 4 = 1",
        "UPDATE stored SET meter = meter + 1 WHERE id BETWEEN 20 AND 60",
        "UPDATE stored SET at = NULL, meter = NULL WHERE id % 31 = 0",
        "DELETE FROM stored",
    ];
    for statement in statements {
        session.execute(statement).unwrap();
        for (name, query) in views {
            for (one, other) in
                [(format!("TABLE {name}"), query.to_owned()), (query.to_owned(), format!("TABLE {name}"))]
            {
                let more = format!("SELECT * FROM ({one} EXCEPT ALL {other}) d LIMIT 3");
                assert_eq!(rows(&mut session, &more), Vec::<Vec<String>>::new(), "{statement}: {more}");
            }
        }
    }
}
