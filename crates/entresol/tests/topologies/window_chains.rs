//! Windows over the results of windows, by the same names of their edges.

use super::{SOURCE, rows, sqlstate, wait_for_end};
use entresol::{Database, Options};

#[test]
fn results_of_windows_have_windows_again() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session.execute(SOURCE).unwrap();
    session
        .execute(
            "CREATE TABLE readings (at TIMESTAMP, meter INT, kw DOUBLE, PRIMARY KEY (at, meter));
             CREATE TABLE hours (meter INT, from_time TIMESTAMP, to_time TIMESTAMP, minutes BIGINT, readings BIGINT, most DOUBLE,
                 PRIMARY KEY (meter, from_time));
             CREATE TABLE days (from_time TIMESTAMP PRIMARY KEY, hours BIGINT, readings BIGINT);
             CREATE TABLE hops (from_time TIMESTAMP PRIMARY KEY, readings BIGINT);
             CREATE TABLE ranked (meter INT, from_time TIMESTAMP, to_time TIMESTAMP, readings BIGINT);
             CREATE TOPOLOGY chain COMMIT EVERY 100 ROWS WITH (durability = 'none') AS (
                 CREATE STREAM per_minute AS
                     SELECT meter, window_start, window_end, count(*) AS readings, max(kw) AS most
                     FROM TUMBLE(reading, at, INTERVAL '1 minute') GROUP BY meter, window_start, window_end;
                 CREATE STREAM per_hour AS
                     SELECT meter, window_start, window_end, count(*) AS minutes, sum(readings)::bigint AS readings, max(most) AS most
                     FROM TUMBLE(per_minute, window_start, INTERVAL '1 hour') GROUP BY meter, window_start, window_end;
                 INSERT INTO readings SELECT at, meter, kw FROM reading;
                 INSERT INTO hours SELECT meter, window_start, window_end, minutes, readings, most FROM per_hour;
                 INSERT INTO days SELECT window_start, count(*), sum(readings)::bigint
                     FROM TUMBLE(per_hour, window_start, INTERVAL '1 day') GROUP BY window_start;
                 INSERT INTO hops SELECT window_start, sum(readings)::bigint
                     FROM HOP(per_minute, window_start, INTERVAL '30 minutes', INTERVAL '2 hours') GROUP BY window_start, window_end;
                 INSERT INTO ranked SELECT meter, window_start, per_minute_window_start, readings
                     FROM TUMBLE(per_minute, window_start, INTERVAL '1 hour') WHERE per_minute_window_start = window_start)",
        )
        .unwrap();
    wait_for_end(&mut session, "chain");
    for (target, batch) in [
        (
            "SELECT meter, from_time, to_time, minutes, readings, most FROM hours",
            "SELECT meter, date_trunc('hour', at), date_trunc('hour', at) + INTERVAL '1 hour', count(DISTINCT date_trunc('minute', at)),
                count(*), max(kw) FROM readings GROUP BY 1, 2, 3",
        ),
        (
            "SELECT from_time, hours, readings FROM days",
            "SELECT date_trunc('day', w), count(*), sum(n)::bigint FROM (SELECT meter, date_trunc('hour', at) AS w, count(*) AS n
                FROM readings GROUP BY 1, 2) h GROUP BY 1",
        ),
        (
            "SELECT from_time, readings FROM hops",
            "SELECT w, count(*) FROM (SELECT date_trunc('hour', at) + INTERVAL '30 minutes' * (i + CASE WHEN extract(minute FROM at) >= 30 THEN 1 ELSE 0 END) AS w
                FROM readings CROSS JOIN generate_series(-3, 0) g(i)) r GROUP BY w",
        ),
        (
            "SELECT meter, from_time, to_time, readings FROM ranked",
            "SELECT meter, m, m, count(*) FROM (SELECT meter, date_trunc('minute', at) AS m FROM readings) r
                WHERE m = date_trunc('hour', m) GROUP BY meter, m",
        ),
    ] {
        let differ = format!(
            "SELECT count(*) FROM (({target} EXCEPT ALL {batch}) UNION ALL ({batch} EXCEPT ALL {target})) d"
        );
        assert_eq!(rows(&mut session, &differ)[0], ["0"], "{target}");
        assert_ne!(rows(&mut session, &format!("SELECT count(*) FROM ({target}) t"))[0], ["0"]);
    }
}

#[test]
fn names_of_streams_are_of_one_thing() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session.execute(SOURCE).unwrap();
    session
        .execute(
            "CREATE TABLE target (meter INT); CREATE STREAM loud AS SELECT meter FROM reading WHERE kw > 50",
        )
        .unwrap();
    for (steps, code, expected) in [
        (
            "CREATE STREAM a AS SELECT meter FROM reading; CREATE STREAM a AS SELECT 1 AS meter FROM reading; INSERT INTO target SELECT meter FROM a",
            "42712",
            "stream \"a\" of topology \"naming\" specified more than once",
        ),
        (
            "CREATE STREAM reading AS SELECT meter FROM reading; INSERT INTO target SELECT meter FROM reading",
            "42710",
            "stream \"reading\" of topology \"naming\" has the name of a source",
        ),
        (
            "CREATE STREAM loud AS SELECT meter FROM reading; INSERT INTO target SELECT meter FROM loud",
            "42710",
            "stream \"loud\" of topology \"naming\" has the name of a stream of no topology",
        ),
    ] {
        for create in ["CREATE TOPOLOGY naming AS", "CREATE OR REPLACE TOPOLOGY naming AS"] {
            let error = session.execute(&format!("{create} ({steps})")).unwrap_err();
            assert!(error.to_string().contains(expected), "{steps}: {error}");
            assert_eq!(sqlstate(&error), code, "{steps}");
        }
    }
    session.execute("CREATE TOPOLOGY naming AS (INSERT INTO target SELECT meter FROM reading)").unwrap();
    let twice = "CREATE STREAM a AS SELECT meter FROM reading; CREATE STREAM a AS SELECT meter FROM reading; INSERT INTO target SELECT meter FROM a";
    let error = session.execute(&format!("ALTER TOPOLOGY naming AS ({twice})")).unwrap_err();
    assert_eq!(sqlstate(&error), "42712", "{error}");
    wait_for_end(&mut session, "naming");
    assert_eq!(rows(&mut session, "SELECT count(*) FROM target")[0], ["5000"]);
}
