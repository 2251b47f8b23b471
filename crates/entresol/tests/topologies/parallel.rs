//! Topologies with several threads.

use super::{SOURCE, rows, wait_for_end};
use entresol::{Database, Options, Session};

const HOURLY: &str = "CREATE TABLE hourly (meter INT, feeder VARCHAR, from_time TIMESTAMP, readings BIGINT, kw DOUBLE, cost DECIMAL(20,2),
    PRIMARY KEY (meter, feeder, from_time))";

fn topology(verb: &str, threads: &str, boundary: &str) -> String {
    format!(
        "{verb} TOPOLOGY counting COMMIT {boundary} WITH (durability = 'none', parallelism = '{threads}') AS (
            INSERT INTO hourly SELECT meter, feeder, window_start, count(*), sum(kw), sum(cost)
                FROM TUMBLE(reading, at, INTERVAL '1 hour') WHERE kw > 10
                GROUP BY meter, feeder, window_start)"
    )
}

fn explained(session: &mut Session, name: &str) -> String {
    rows(session, &format!("EXPLAIN TOPOLOGY {name}")).into_iter().flatten().collect::<Vec<_>>().join("\n")
}

#[test]
fn threads_and_parts_are_shown() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(&format!("{SOURCE}; {HOURLY}; CREATE TABLE highest (meter INT PRIMARY KEY, kw DOUBLE)"))
        .unwrap();
    session.execute(&topology("CREATE", "3", "EVERY 1000 ROWS")).unwrap();
    session
        .execute(
            "CREATE TOPOLOGY alone AS (INSERT INTO highest SELECT meter, kw FROM reading WHERE kw > 99
                 ON CONFLICT (meter) DO UPDATE SET kw = EXCLUDED.kw)",
        )
        .unwrap();
    for name in ["counting", "alone"] {
        wait_for_end(&mut session, name);
    }
    let plan = explained(&mut session, "counting");
    for line in [
        "up to 3 threads",
        "commit beside the next transaction",
        "exchange by hash of the key: window counting_open in 2 parts",
    ] {
        assert!(plan.contains(line), "{line}: {plan}");
    }
    assert!(!explained(&mut session, "alone").contains("threads"));
    let threads = "SELECT name, parallelism FROM entresol.topologies ORDER BY name";
    assert_eq!(rows(&mut session, threads), [["alone", "1"], ["counting", "3"]]);
    let parts = "SELECT operator, parts FROM entresol.operators WHERE topology = 'counting' AND parts > 1";
    assert_eq!(rows(&mut session, parts), [["window counting_open", "2"]]);
    // What cannot be divided says so.
    session
        .execute(
            "CREATE TABLE stay (meter INT, from_time TIMESTAMP, PRIMARY KEY (meter, from_time));
             CREATE TOPOLOGY stays WITH (parallelism = '2') AS (INSERT INTO stay SELECT meter, window_start
                 FROM SESSION(reading, at, INTERVAL '1 minute') GROUP BY meter, window_start, window_end)",
        )
        .unwrap();
    wait_for_end(&mut session, "stays");
    let plan = explained(&mut session, "stays");
    assert!(plan.contains("no operator that can be divided, or go on while a transaction commits"), "{plan}");
}

#[test]
fn wrong_numbers_of_threads_are_refused() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session.execute(&format!("{SOURCE}; {HOURLY}")).unwrap();
    for (threads, reason) in [
        ("0", "from 1 to 64, or auto"),
        ("65", "from 1 to 64, or auto"),
        ("many", "invalid value for option \"parallelism\": \"many\""),
        ("-1", "invalid value"),
    ] {
        let error = session.execute(&topology("CREATE", threads, "EVERY 10 ROWS")).unwrap_err().to_string();
        assert!(error.contains(reason), "{threads}: {error}");
    }
    // Transactions of few rows gain nothing.
    session.execute(&topology("CREATE", "auto", "EVERY 10 ROWS")).unwrap();
    assert_eq!(rows(&mut session, "SELECT parallelism FROM entresol.topologies"), [["1"]]);
}

#[test]
fn another_number_of_threads_goes_on_with_the_same_state() {
    let directory = tempfile::tempdir().unwrap();
    let source = SOURCE.replace("rows = 5000", "rows = 40000, rows_per_second = 30000");
    let open = || Database::open(directory.path().join("db"), Options::default()).unwrap();
    {
        let database = open();
        let mut session = database.session().unwrap();
        session
            .execute(&format!(
                "{source}; {HOURLY};
                 CREATE TABLE readings (at TIMESTAMP, meter INT, feeder VARCHAR, kw DOUBLE, cost DECIMAL(8,2))"
            ))
            .unwrap();
        session
            .execute("CREATE TOPOLOGY everything AS (INSERT INTO readings SELECT * FROM reading)")
            .unwrap();
        session.execute(&topology("CREATE", "2", "EVERY 600 ROWS")).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(300));
    }
    for threads in ["3", "1", "auto", "2"] {
        let database = open();
        let mut session = database.session().unwrap();
        session.execute(&topology("CREATE OR REPLACE", threads, "EVERY 600 ROWS")).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(150));
        drop(session);
        database.close().unwrap();
    }
    let database = open();
    let mut session = database.session().unwrap();
    for name in ["everything", "counting"] {
        wait_for_end(&mut session, name);
    }
    assert_eq!(rows(&mut session, "SELECT count(*) FROM readings")[0], ["40000"]);
    let batch =
        "SELECT meter, feeder, date_trunc('hour', at), count(*), round(sum(kw), 6), sum(cost) FROM readings
        WHERE kw > 10 GROUP BY meter, feeder, date_trunc('hour', at)";
    let written = "SELECT meter, feeder, from_time, readings, round(kw, 6), cost FROM hourly";
    let differ = format!(
        "SELECT count(*) FROM ((({batch}) EXCEPT ALL ({written})) UNION ALL (({written}) EXCEPT ALL ({batch}))) d"
    );
    assert_eq!(rows(&mut session, &differ)[0], ["0"]);
    assert_eq!(rows(&mut session, "SELECT count(*) FROM counting_open")[0], ["0"]);
}
