//! Windows of tables: a query over the rows of a source, as it stands in a step, gives what the topology wrote.

use super::{rows, wait_for_end};
use entresol::{Database, Options};

/// Target, its columns, and the query; `{}` is the source, or the table with its rows.
const QUERIES: [(&str, &str, &str); 5] = [
    (
        "tumbling",
        "meter INT, began TIMESTAMP, ended TIMESTAMP, n BIGINT, kw DOUBLE",
        "SELECT meter, window_start, window_end, count(*), max(kw) FROM TUMBLE({}, at, INTERVAL '10 minutes')
            WHERE kw < 80 GROUP BY meter, window_start, window_end",
    ),
    (
        "hopping",
        "feeder VARCHAR, ended TIMESTAMP, n BIGINT",
        "SELECT w.feeder, w.window_end, count(*) FROM TABLE(HOP(TABLE {}, DESCRIPTOR(at), INTERVAL '7' MINUTE, INTERVAL '20' MINUTE)) w
            GROUP BY w.feeder, w.window_end HAVING count(*) > 2",
    ),
    (
        "cumulating",
        "began TIMESTAMP, ended TIMESTAMP, n BIGINT",
        "SELECT window_start, window_end, count(DISTINCT meter) FROM CUMULATE({}, at, INTERVAL '5 minutes', INTERVAL '30 minutes')
            GROUP BY window_start, window_end",
    ),
    (
        "sessions",
        "feeder VARCHAR, meter INT, began TIMESTAMP, ended TIMESTAMP, n BIGINT",
        "SELECT feeder, meter % 3, window_start, window_end, count(*) FROM SESSION({}, at, INTERVAL '40 seconds')
            WHERE meter <> 7 GROUP BY feeder, meter % 3, window_start, window_end",
    ),
    (
        "all_sessions",
        "began TIMESTAMP, n BIGINT, kw DOUBLE",
        "SELECT window_start, count(*), min(kw) FROM SESSION({}, at, INTERVAL '11 seconds') GROUP BY window_start",
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
        let topology = format!("CREATE TOPOLOGY windows COMMIT EVERY 500 ROWS AS ({})", steps.join(";\n"));
        session.execute(&topology).unwrap();
        wait_for_end(&mut session, "windows");
        let late = rows(&mut session, "SELECT late, tuples FROM entresol.topologies");
        assert_eq!(late, [["0", "3000"]]);
        let unsorted = "SELECT count(*) > 500 FROM (SELECT at, lag(at) OVER () AS before FROM stored) s WHERE at < before";
        assert_eq!(rows(&mut session, unsorted), [["true"]], "the generator's skew");
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
fn views_of_windows_are_maintained() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session.execute("CREATE TABLE stored (id INT PRIMARY KEY, at TIMESTAMP, meter INT, kw BIGINT)").unwrap();
    let views = [
        (
            "t",
            "SELECT meter, window_start, count(*) AS n, sum(kw) AS kw FROM TUMBLE(stored, at, INTERVAL '1 hour') GROUP BY meter, window_start",
        ),
        (
            "h",
            "SELECT window_end, max(kw) AS kw FROM HOP(stored, at, INTERVAL '1 hour', INTERVAL '2 hours') GROUP BY window_end",
        ),
        (
            "s",
            "SELECT meter, window_start, window_end, count(*) AS n FROM SESSION(stored, at, INTERVAL '1 hour') GROUP BY meter, window_start, window_end",
        ),
    ];
    for (name, query) in views {
        session.execute(&format!("CREATE MATERIALIZED VIEW {name} AS {query}")).unwrap();
    }
    let statements = [
        "INSERT INTO stored SELECT i, TIMESTAMP '2026-01-01' + i * INTERVAL '13 minutes', i % 5, i FROM generate_series(1, 300) g(i)",
        "UPDATE stored SET at = at + INTERVAL '50 minutes', kw = kw + 1 WHERE id % 7 = 3",
        "DELETE FROM stored WHERE id % 4 = 1",
        "UPDATE stored SET meter = meter + 1 WHERE id BETWEEN 20 AND 60",
        "UPDATE stored SET at = NULL WHERE id % 31 = 0",
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
