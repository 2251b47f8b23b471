//! MATCH_RECOGNIZE in SQL: matches equal queries over all rows; late rows; restarts and aborts; refusals.

use super::{SOURCE, append, rows, wait_for, wait_for_end};
use entresol::{Database, Options, Session};

fn tables(session: &mut Session) {
    session.execute(SOURCE).unwrap();
    session
        .execute(
            "CREATE TABLE readings (at TIMESTAMP, meter INT, feeder VARCHAR, kw DOUBLE, cost DECIMAL(8,2), PRIMARY KEY (at, meter));
             CREATE TABLE jump (meter INT, at TIMESTAMP, from_kw DOUBLE, kw DOUBLE, PRIMARY KEY (meter, at));
             CREATE TABLE climb (meter INT, began TIMESTAMP, ended TIMESTAMP, lows BIGINT, cost DECIMAL(20,2), mean DOUBLE,
                 most DOUBLE, high DOUBLE, feeders BIGINT, PRIMARY KEY (meter, ended));
             CREATE TABLE per_hour (hour TIMESTAMP PRIMARY KEY, climbs BIGINT);
             CREATE TABLE other_feeder (at TIMESTAMP PRIMARY KEY, feeder VARCHAR, before VARCHAR);
             CREATE TABLE climbing (meter INT, at TIMESTAMP, run BIGINT, variable VARCHAR, place BIGINT, began TIMESTAMP, ended TIMESTAMP,
                 cost DECIMAL(20,2), lows BIGINT, feeder VARCHAR, kw DOUBLE, own_cost DECIMAL(8,2), PRIMARY KEY (meter, at));
             CREATE TABLE rows_per_hour (hour TIMESTAMP PRIMARY KEY, steps BIGINT)",
        )
        .unwrap();
}

const STEPS: &str = "
    INSERT INTO readings SELECT * FROM reading;
    INSERT INTO jump SELECT meter, at, from_kw, kw
        FROM reading MATCH_RECOGNIZE (
            PARTITION BY meter ORDER BY at
            MEASURES last(b.at) AS at, a.kw AS from_kw, b.kw AS kw
            ONE ROW PER MATCH AFTER MATCH SKIP TO NEXT ROW
            PATTERN (a b) WITHIN INTERVAL '5 minutes'
            DEFINE a AS kw < 20, b AS b.kw > a.kw + 50
        ) AS m WHERE m.kw < 99;
    CREATE STREAM climbs WITH (state_table = 'open_climbs') AS
        SELECT *
        FROM reading MATCH_RECOGNIZE (
            PARTITION BY meter ORDER BY at ASC
            MEASURES first(low.at) AS began, last(at) AS ended, count(low.*) AS lows, sum(low.cost) AS cost, avg(low.kw) AS mean,
                max(kw) AS most, high.kw AS high, count(DISTINCT feeder) AS feeders
            AFTER MATCH SKIP PAST LAST ROW
            PATTERN (low+ high) WITHIN INTERVAL '3 days'
            DEFINE low AS kw < 50, high AS kw >= 50
        );
    INSERT INTO climb SELECT meter, began, ended, lows, cost, mean, most, high, feeders FROM climbs;
    INSERT INTO per_hour SELECT window_start, count(*) FROM TUMBLE(climbs, ended, INTERVAL '1 hour') GROUP BY window_start;
    INSERT INTO other_feeder
        SELECT at, feeder, before
        FROM reading MATCH_RECOGNIZE (
            ORDER BY at
            MEASURES at AS at, feeder AS feeder, prev(feeder, 2) AS before
            PATTERN (changed) WITHIN INTERVAL '1 second'
            DEFINE changed AS feeder <> prev(feeder, 2) AND kw > 0
        );
    CREATE STREAM steps WITH (state_table = 'open_steps') AS
        SELECT *
        FROM reading MATCH_RECOGNIZE (
            PARTITION BY meter ORDER BY at
            MEASURES match_number() AS run, CLASSIFIER() AS variable, RUNNING count(*) AS place, first(at) AS began, FINAL last(at) AS ended,
                sum(cost) AS so_far, final count(low.*) AS lows
            ALL ROWS PER MATCH
            PATTERN (low+ high) WITHIN INTERVAL '3 days'
            DEFINE low AS kw < 50, high AS kw >= 50
        );
    INSERT INTO climbing SELECT meter, at, run, variable, place, began, ended, so_far, lows, feeder, kw, cost FROM steps;
    INSERT INTO rows_per_hour SELECT window_start, count(*) FROM TUMBLE(steps, at, INTERVAL '1 hour') GROUP BY window_start";

/// Targets, and the queries over all readings that they equal.
const AT_END: [(&str, &str); 6] = [
    (
        "SELECT meter, at, from_kw, kw FROM jump",
        "SELECT meter, at, before, kw FROM (SELECT meter, at, kw, lag(kw) OVER (PARTITION BY meter ORDER BY at) AS before,
                lag(at) OVER (PARTITION BY meter ORDER BY at) AS before_at FROM readings) r
            WHERE before < 20 AND kw > before + 50 AND at - before_at <= INTERVAL '5 minutes' AND kw < 99",
    ),
    (
        "SELECT meter, began, ended, lows, cost, round(mean, 6), most, high, feeders FROM climb",
        "SELECT meter, min(at), max(at), count(*) FILTER (WHERE kw < 50), sum(cost) FILTER (WHERE kw < 50),
            round(avg(kw) FILTER (WHERE kw < 50), 6), max(kw), max(kw) FILTER (WHERE kw >= 50), count(DISTINCT feeder)
            FROM (SELECT *, coalesce(sum(high) OVER (PARTITION BY meter ORDER BY at) - high, 0) AS number
                FROM (SELECT *, CASE WHEN kw >= 50 THEN 1 ELSE 0 END AS high FROM readings) h) r
            GROUP BY meter, number HAVING count(*) > 1 AND max(kw) >= 50",
    ),
    (
        "SELECT hour, climbs FROM per_hour",
        "SELECT date_trunc('hour', ended), count(*) FROM climb GROUP BY 1",
    ),
    (
        "SELECT at, feeder, before FROM other_feeder",
        "SELECT at, feeder, before FROM (SELECT at, feeder, kw, lag(feeder, 2) OVER (ORDER BY at) AS before FROM readings) r
            WHERE feeder <> before AND kw > 0",
    ),
    (
        "SELECT meter, at, run, variable, place, began, ended, cost, lows, feeder, kw, own_cost FROM climbing",
        "SELECT r.meter, r.at, m.run, CASE WHEN r.kw < 50 THEN 'low' ELSE 'high' END,
            row_number() OVER (PARTITION BY r.meter, m.run ORDER BY r.at), m.began, m.ended,
            sum(r.cost) OVER (PARTITION BY r.meter, m.run ORDER BY r.at), m.lows, r.feeder, r.kw, r.cost
            FROM readings r JOIN (SELECT *, row_number() OVER (PARTITION BY meter ORDER BY began) AS run FROM climb) m
                ON m.meter = r.meter AND r.at BETWEEN m.began AND m.ended",
    ),
    (
        "SELECT hour, steps FROM rows_per_hour",
        "SELECT date_trunc('hour', at), count(*) FROM climbing GROUP BY 1",
    ),
];

fn compare(session: &mut Session) {
    for (target, query) in AT_END {
        for (one, other) in [(target, query), (query, target)] {
            let missing = rows(session, &format!("SELECT * FROM ({one} EXCEPT ALL {other}) d LIMIT 3"));
            assert_eq!(missing, Vec::<Vec<String>>::new(), "{one} has more than {other}");
        }
        assert_ne!(rows(session, &format!("SELECT count(*) FROM ({target}) t"))[0], ["0"], "{target}");
    }
}

#[test]
fn matches_equal_the_queries_over_all_rows() {
    for boundary in ["EACH ROW", "EVERY 70 ROWS", "EVERY 10000 ROWS"] {
        let database = Database::volatile(Options::default()).unwrap();
        let mut session = database.session().unwrap();
        tables(&mut session);
        session.execute(&format!("CREATE TOPOLOGY matching COMMIT {boundary} AS ({STEPS})")).unwrap();
        wait_for_end(&mut session, "matching");
        assert_eq!(rows(&mut session, "SELECT count(*) FROM readings")[0], ["5000"]);
        compare(&mut session);
        // Rows that conditions look back to stay, those of matches do not.
        assert_eq!(rows(&mut session, "SELECT count(*) FROM matching_open"), [["0"]]);
        let explained: Vec<String> =
            rows(&mut session, "EXPLAIN TOPOLOGY matching").into_iter().flatten().collect();
        let text = explained.join("\n");
        assert!(text.contains("  state open_climbs: PATTERN (low+ high) WITHIN 259200 s"), "{text}");
        let operators = "SELECT count(*) FROM entresol.operators WHERE operator LIKE 'match %'";
        assert_eq!(rows(&mut session, operators)[0], ["4"]);
        assert!(
            text.contains("  state open_steps_numbers: numbers of the matches: PATTERN (low+ high)"),
            "{text}"
        );
        let numbers =
            "SELECT count(*) = 20, sum(matches) = (SELECT count(*) FROM climb) FROM open_steps_numbers";
        assert_eq!(rows(&mut session, numbers), [["true", "true"]]);
        drop(session);
        database.close().unwrap();
    }
}

/// Matches that are being formed go on over restarts, crashes and aborts, and with other measures.
#[test]
fn matches_go_on_where_they_were() {
    let directory = tempfile::tempdir().unwrap();
    let steps = format!("{STEPS}; ABORT WHEN (SELECT count(*) FROM CHANGES(readings) WHERE meter = 7) > 1");
    for round in 0..4 {
        let database = Database::open(directory.path(), Options::default()).unwrap();
        let mut session = database.session().unwrap();
        if round == 0 {
            tables(&mut session);
            session
                .execute(&format!(
                    "CREATE TOPOLOGY matching COMMIT EVERY 20 ROWS ON ERROR ABORT AS ({steps})"
                ))
                .unwrap();
        }
        if round == 2 {
            let refused = steps.replace("low AS kw < 50", "low AS kw < 51");
            let error =
                session.execute(&format!("ALTER TOPOLOGY matching AS ({refused})")).unwrap_err().to_string();
            assert!(
                error.contains("cannot go on with its state in matching_open_3, matching_open_7, open_climbs, open_steps, open_steps_numbers:"),
                "{error}"
            );
            let altered = steps.replace("a.kw AS from_kw", "a.kw + 0 AS from_kw");
            session.execute(&format!("ALTER TOPOLOGY matching AS ({altered})")).unwrap();
        }
        if round == 3 {
            wait_for_end(&mut session, "matching");
            let count = rows(&mut session, "SELECT count(*) FROM readings")[0][0].parse::<u64>().unwrap();
            assert!((500..5000).contains(&count), "{count}");
            compare(&mut session);
            break;
        }
        let more = 300 * (round + 1);
        wait_for(&mut session, &format!("SELECT count(*) > {more} FROM readings"), "true");
        // Left as by a crash, or closed.
        if round == 1 {
            drop(session);
            database.close().unwrap();
        }
    }
}

/// Rows come out of order, some too late; a match waits for the watermark.
#[test]
fn late_rows_are_of_no_match() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("door.csv");
    append(&path, "at,door,event\n2026-01-01 10:00:00,1,open\n2026-01-01 10:02:00,1,alarm\n");
    append(&path, "2026-01-01 10:01:00,1,warn\n2026-01-01 10:01:30,1,warn\n2026-01-01 10:05:00,1,shut\n");
    append(&path, "2026-01-01 10:01:45,1,warn\n2026-01-01 10:06:00,2,open\n2026-01-01 10:20:00,1,open\n");
    let database = Database::open(directory.path().join("db"), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(&format!(
            "CREATE SOURCE door (at TIMESTAMP NOT NULL, door INT NOT NULL, event VARCHAR, WATERMARK FOR at AS at - INTERVAL '1 minute')
                 WITH (connector = 'file', path = '{}', tail = true);
             CREATE TABLE alarm (door INT, began TIMESTAMP, ended TIMESTAMP, warned TIMESTAMP, second TIMESTAMP, events BIGINT,
                 PRIMARY KEY (door, began));
             CREATE TOPOLOGY doors COMMIT EACH ROW AS (
                 INSERT INTO alarm SELECT door, began, ended, warned, second, events
                     FROM door MATCH_RECOGNIZE (
                         PARTITION BY door ORDER BY at
                         MEASURES o.at AS began, last(at) AS ended, first(w.at) AS warned, first(w.at, 1) AS second,
                             count(*) AS events
                         PATTERN (o w{{1,3}} (a | s)) WITHIN INTERVAL '4 minutes'
                         DEFINE o AS event = 'open', w AS event = 'warn', a AS event = 'alarm', s AS event = 'shut'
                     )
                     LATE ROWS INTO late_event)",
            path.display()
        ))
        .unwrap();
    wait_for(&mut session, "SELECT count(*) FROM late_event", "1");
    let alarms = "SELECT door, began::time::text, ended::time::text, warned::time::text, second::time::text, events FROM alarm";
    wait_for(&mut session, "SELECT count(*) FROM alarm", "1");
    assert_eq!(rows(&mut session, alarms), [["1", "10:00:00", "10:02:00", "10:01:00", "10:01:30", "4"]]);
    // The door that was opened last, and no other, may still be of a match.
    let open = "SELECT row_door, row_event, passed FROM doors_open";
    assert_eq!(rows(&mut session, open), [["1", "open", "false"]]);
}

#[test]
fn what_a_pattern_cannot_do_is_refused_by_name() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    tables(&mut session);
    session
        .execute("CREATE SOURCE timeless (at TIMESTAMP, a INT) WITH (connector = 'generator', rows = 10)")
        .unwrap();
    let matched = "INSERT INTO jump SELECT meter, at, kw, kw FROM reading MATCH_RECOGNIZE (PARTITION BY meter ORDER BY at
        MEASURES last(b.at) AS at, b.kw AS kw PATTERN (a b) WITHIN INTERVAL '5 minutes' DEFINE b AS b.kw > a.kw)";
    session.execute(&format!("CREATE TOPOLOGY fits AS ({matched})")).unwrap();
    session.execute("DROP TOPOLOGY fits").unwrap();
    let changed = |from: &str, to: &str| {
        assert!(matched.contains(from), "{from}");
        matched.replace(from, to)
    };
    for (steps, expected) in [
        (changed("WITHIN INTERVAL '5 minutes'", ""), "without WITHIN INTERVAL"),
        (changed("ORDER BY at", "ORDER BY at DESC"), "other than ORDER BY the event time, ascending"),
        (changed("ORDER BY at", "ORDER BY at, kw"), "other than ORDER BY the event time, ascending"),
        (changed("ORDER BY at", ""), "other than ORDER BY the event time, ascending"),
        (changed("ORDER BY at", "ORDER BY kw"), "expected a time first, ascending"),
        (changed("PATTERN (a b)", "PATTERN (a* b*)"), "matches no rows at all"),
        (changed("PATTERN (a b)", "PATTERN ((a?)+ b)"), "a quantifier of a part that matches no rows"),
        (changed("PATTERN (a b)", "PATTERN (^ a b)"), "PATTERN with \"^\""),
        (changed("PATTERN (a b)", "PATTERN (PERMUTE(a, b))"), "PATTERN with \",\""),
        (changed("PATTERN (a b)", "PATTERN (a c)"), "DEFINE b: the pattern has no such variable"),
        (changed("PATTERN (a b)", "PATTERN (a{5000} b)"), "more than 4096 parts"),
        (changed("b.kw > a.kw", "b.kw > c.kw"), "the pattern has no variable \"c\""),
        (changed("b.kw > a.kw", "b.kw + a.kw"), "not a truth value"),
        (changed("b.kw > a.kw", "b.watts > 3"), "watts"),
        (changed("b.kw > a.kw", "b.kw > random()"), "random() in MATCH_RECOGNIZE"),
        (changed("b.kw > a.kw", "b.kw > (SELECT max(kw) FROM jump)"), "subquery"),
        (changed("b.kw > a.kw", "b.kw > next(b.kw)"), "NEXT() in MATCH_RECOGNIZE"),
        (changed("b.kw > a.kw", "b.kw > first(prev(a.kw))"), "PREV() in another of its kind"),
        (changed("b.kw > a.kw", "b.kw > last(a.kw, 5000)"), "a number from 0 to 1000"),
        (changed("b.kw > a.kw", "b.kw > sum(a.kw + b.kw)"), "columns of several variables of the pattern"),
        (changed("b.kw AS kw", "match_number() + 1 AS kw"), "MATCH_NUMBER() in an expression of MATCH_RECOGNIZE"),
        (changed("b.kw AS kw", "classifier(b) AS kw"), "CLASSIFIER() in an expression of MATCH_RECOGNIZE"),
        (changed("b.kw > a.kw", "classifier() = 'a'"), "CLASSIFIER() in an expression of MATCH_RECOGNIZE"),
        (changed("b.kw AS kw", "b.kw AS at"), "measure \"at\" specified more than once"),
        (changed("PATTERN (", "ALL ROWS PER MATCH PATTERN ("), "measure \"at\" specified more than once"),
        (changed("PATTERN (", "ALL ROWS PER MATCH WITH UNMATCHED ROWS PATTERN ("), "Expected: PATTERN"),
        (changed("PATTERN (", "AFTER MATCH SKIP TO LAST b PATTERN ("), "Expected: NEXT"),
        (changed("PARTITION BY meter", "PARTITION BY meter % 3"), "compute it as a column"),
        (changed("PARTITION BY meter", "PARTITION BY house"), "house"),
        (changed("FROM reading MATCH", "FROM (SELECT * FROM reading) MATCH"), "make it a CREATE STREAM before"),
        (changed("FROM reading MATCH", "FROM readings MATCH"), "source or stream \"readings\" does not exist"),
        (
            "INSERT INTO per_hour SELECT at, 1 FROM timeless MATCH_RECOGNIZE (ORDER BY at MEASURES a.at AS at PATTERN (a)
                WITHIN INTERVAL '1 hour')"
                .to_owned(),
            "which has no watermark",
        ),
    ] {
        let refused = session.execute(&format!("CREATE TOPOLOGY x AS ({steps})"));
        let error = refused.err().unwrap_or_else(|| panic!("{steps} is accepted")).to_string();
        assert!(error.contains(expected), "{steps}: {error}");
    }
}
