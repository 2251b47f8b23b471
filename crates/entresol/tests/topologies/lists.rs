//! Aggregates over lists of values: array_agg within a function, JSON, ordered sets.

use super::{append, rows, sqlstate, wait_for};
use entresol::{Database, Options, Session};
use std::path::Path;

const AGGREGATES: &str = "string_agg(page, ',' ORDER BY at DESC), array_to_string(array_agg(ms ORDER BY ms DESC, at), '-'),
    array_to_string(array_agg(DISTINCT page ORDER BY page) FILTER (WHERE ms > 100), '-'), mode() WITHIN GROUP (ORDER BY page),
    percentile_disc(0.5) WITHIN GROUP (ORDER BY ms), percentile_cont(0.25) WITHIN GROUP (ORDER BY ms), jsonb_agg(ms ORDER BY at)::text,
    json_agg(page ORDER BY at, ms)::text, json_object_agg(at::text, ms ORDER BY at)::text, array_length(array_agg(ms), 1)";

const COLUMNS: &str = "pages VARCHAR, times VARCHAR, different VARCHAR, usual VARCHAR, middle INT, quarter DOUBLE, jsonb VARCHAR, json VARCHAR,
    object VARCHAR, rows BIGINT";

fn prepare(session: &mut Session, path: &Path) {
    let names: Vec<&str> =
        COLUMNS.split(',').map(|column| column.split_whitespace().next().unwrap()).collect();
    let all: Vec<String> = names.iter().map(|name| format!("{name} = EXCLUDED.{name}")).collect();
    session
        .execute(&format!(
            "CREATE SOURCE click (at TIMESTAMP NOT NULL, person VARCHAR NOT NULL, page VARCHAR, ms INT, WATERMARK FOR at AS at)
                 WITH (connector = 'file', path = '{}', tail = true);
             CREATE TABLE clicks (at TIMESTAMP, person VARCHAR, page VARCHAR, ms INT);
             CREATE TABLE windows (person VARCHAR, began TIMESTAMP, {COLUMNS}, PRIMARY KEY (person, began));
             CREATE TABLE totals (person VARCHAR PRIMARY KEY, {COLUMNS});
             CREATE TOPOLOGY listing COMMIT EVERY 3 ROWS OR EVERY INTERVAL '10 ms' AS (
                 INSERT INTO clicks SELECT at, person, page, ms FROM click;
                 INSERT INTO windows SELECT person, window_start, {AGGREGATES} FROM TUMBLE(click, at, INTERVAL '10 minutes')
                     GROUP BY person, window_start;
                 INSERT INTO totals SELECT person, {AGGREGATES} FROM click GROUP BY person
                     ON CONFLICT (person) DO UPDATE SET {})",
            path.display(),
            all.join(", ")
        ))
        .unwrap();
}

fn lines(of: std::ops::Range<u32>) -> String {
    let line = |n: u32| {
        let (person, page) = (["ada", "alan"][n as usize % 2], ["a", "b", "c", ""][n as usize * 7 % 4]);
        format!("2026-01-01 10:{:02}:{:02},{person},{page},{}\n", n / 4, n % 4, n * 37 % 500)
    };
    of.map(line).collect()
}

#[test]
fn functions_of_lists_equal_those_of_a_query() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("clicks.csv");
    append(&path, "at,person,page,ms\n");
    for round in 0..3_u32 {
        let database = Database::open(directory.path().join("db"), Options::default()).unwrap();
        let mut session = database.session().unwrap();
        if round == 0 {
            prepare(&mut session, &path);
        }
        append(&path, &lines(round * 50..round * 50 + 50));
        wait_for(&mut session, "SELECT count(*) FROM clicks", &(round * 50 + 50).to_string());
        drop(session);
        // Closed, or left as by a crash.
        if round == 1 {
            database.close().unwrap();
        }
    }
    let database = Database::open(directory.path().join("db"), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    wait_for(&mut session, "SELECT count(*) FROM windows", "6");
    let window = "date_trunc('hour', at) + INTERVAL '10 minutes' * floor(extract(minute FROM at) / 10)";
    for (target, batch) in [
        (
            "windows".to_owned(),
            format!(
                "SELECT person, {window} AS w, {AGGREGATES} FROM clicks WHERE at < '2026-01-01 10:30:00' GROUP BY person, {window}"
            ),
        ),
        ("totals".to_owned(), format!("SELECT person, {AGGREGATES} FROM clicks GROUP BY person")),
    ] {
        let differ = format!(
            "SELECT count(*) FROM ((SELECT * FROM {target} EXCEPT {batch}) UNION ALL ({batch} EXCEPT SELECT * FROM {target})) d"
        );
        let both = (
            rows(&mut session, &format!("SELECT * FROM {target} ORDER BY 1, 2")),
            rows(&mut session, &format!("{batch} ORDER BY 1, 2")),
        );
        assert_eq!(rows(&mut session, &differ), [["0"]], "{target}: {both:?}");
    }
}

/// A list itself is no column.
#[test]
fn lists_are_no_columns_of_streams() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("clicks.csv");
    append(&path, "at,person,page,ms\n");
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    prepare(&mut session, &path);
    session.execute("CREATE TABLE texts (person VARCHAR PRIMARY KEY, pages VARCHAR)").unwrap();
    for (steps, code, expected) in [
        (
            "CREATE STREAM s AS SELECT person, array_agg(page) AS pages FROM click GROUP BY person;
             INSERT INTO texts SELECT person, 'x' FROM s ON CONFLICT (person) DO UPDATE SET pages = EXCLUDED.pages",
            "0A000",
            "make a value of the list, as array_to_string does",
        ),
        (
            "INSERT INTO texts SELECT person, array_agg(page) FROM click GROUP BY person ON CONFLICT (person) DO UPDATE SET pages = EXCLUDED.pages",
            "42804",
            "pages",
        ),
    ] {
        let error = session.execute(&format!("CREATE TOPOLOGY refused AS ({steps})")).unwrap_err();
        assert!(error.to_string().contains(expected), "{steps}: {error}");
        assert_eq!(sqlstate(&error), code, "{steps}: {error}");
    }
}

/// Lists of a row in FROM, with and without LATERAL, in windows, and where a row has none.
#[test]
fn elements_of_lists_in_from_equal_those_of_a_query() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tagged.csv");
    append(&path, "at,id,tags,n\n");
    let line = |n: u32| {
        let tags = ["a;b;c", "", "b", "c;c;d"][n as usize * 7 % 4];
        format!("2026-01-01 {:02}:{:02}:00,{n},{tags},{}\n", 10 + n / 30, n % 30, n % 5)
    };
    append(&path, &(0..100).map(line).collect::<String>());
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    let list = "string_to_array(t.tags, ';')";
    let queries = [
        ("tags", format!("SELECT t.id, u.tag FROM tagged t, unnest({list}) AS u(tag)")),
        (
            "kept",
            format!("SELECT t.id, u.tag FROM tagged t LEFT JOIN LATERAL unnest({list}) AS u(tag) ON true"),
        ),
        (
            "numbers",
            "SELECT t.id, g.i::varchar FROM tagged t, generate_series(1, t.n) AS g(i) WHERE g.i <> 2"
                .to_owned(),
        ),
        (
            "upper_tags",
            format!(
                "SELECT t.id, s.tag FROM tagged t, LATERAL (SELECT upper(x) || t.n AS tag FROM unnest({list}) x WHERE x > 'a') s"
            ),
        ),
    ];
    let steps = queries.iter().map(|(target, query)| format!("INSERT INTO {target} {query};"));
    session
        .execute(&format!(
            "CREATE SOURCE tagged (at TIMESTAMP NOT NULL, id INT NOT NULL, tags VARCHAR, n INT, WATERMARK FOR at AS at)
                 WITH (connector = 'file', path = '{}');
             CREATE TABLE read (at TIMESTAMP, id INT, tags VARCHAR, n INT);
             CREATE TABLE tags (id INT, tag VARCHAR); CREATE TABLE kept (id INT, tag VARCHAR);
             CREATE TABLE numbers (id INT, tag VARCHAR); CREATE TABLE upper_tags (id INT, tag VARCHAR);
             CREATE TABLE counts (tag VARCHAR, hour TIMESTAMP, n BIGINT);
             CREATE TOPOLOGY listing COMMIT EVERY 7 ROWS AS (
                 INSERT INTO read SELECT * FROM tagged;
                 {}
                 INSERT INTO counts SELECT u.tag, window_start, count(*)
                     FROM TUMBLE(tagged, at, INTERVAL '1 hour') t, unnest({list}) AS u(tag)
                     GROUP BY u.tag, window_start, window_end EMIT ON WINDOW CLOSE)",
            path.display(),
            steps.collect::<String>()
        ))
        .unwrap();
    super::wait_for_end(&mut session, "listing");
    let counts = format!(
        "SELECT u.tag, date_trunc('hour', t.at), count(*) FROM tagged t, unnest({list}) AS u(tag) GROUP BY 1, 2"
    );
    for (target, query) in queries.into_iter().chain([("counts", counts)]) {
        let batch = query.replace("tagged t", "read t");
        let differ = format!(
            "SELECT count(*) FROM ((SELECT * FROM {target} EXCEPT ALL {batch}) UNION ALL ({batch} EXCEPT ALL SELECT * FROM {target})) d"
        );
        assert_eq!(rows(&mut session, &differ)[0], ["0"], "{target}");
        let count = rows(&mut session, &format!("SELECT count(*) FROM {target}"));
        assert!(count[0][0].parse::<u32>().unwrap() > 5, "{target}: {count:?}");
    }
    assert_eq!(rows(&mut session, "SELECT count(*) FROM kept WHERE tag IS NULL")[0], ["25"]);
}
