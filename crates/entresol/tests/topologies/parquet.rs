//! Parquet files as sources, and sinks that roll them.

use super::{rows, sqlstate, wait_for, wait_for_end};
use entresol::{Database, Options, Session};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Writes a file of a query's rows, which appears as a whole.
fn write(session: &mut Session, path: &Path, query: &str) {
    session.execute(&format!("COPY ({query}) TO '{}' (FORMAT parquet)", path.display())).unwrap();
}

fn numbers(session: &mut Session, path: &Path, from: i64, to: i64) {
    write(
        session,
        path,
        &format!(
            "SELECT g AS id, 'n' || g AS name, g * 0.5 AS half FROM generate_series({from}, {to}) s(g) ORDER BY g"
        ),
    );
}

const FOLLOW: &str =
    "CREATE TABLE stored (id INT PRIMARY KEY, half DOUBLE, name VARCHAR, file VARCHAR, place BIGINT);
    CREATE TOPOLOGY follow COMMIT EVERY 7 ROWS OR EVERY INTERVAL '5 ms' AS (
        INSERT INTO stored SELECT id, half, name, file, place FROM numbers)";

fn source(path: &str, options: &str) -> String {
    format!(
        "CREATE SOURCE numbers (id INT NOT NULL, half DOUBLE, name VARCHAR) INCLUDE PARTITION AS file INCLUDE OFFSET AS place
             WITH (connector = 'file', path = '{path}'{options}) FORMAT PLAIN ENCODE PARQUET"
    )
}

fn error_of(session: &mut Session) -> String {
    wait_for(session, "SELECT state FROM entresol.topologies WHERE name = 'follow'", "failed");
    rows(session, "SELECT error FROM entresol.topologies WHERE name = 'follow'").remove(0).remove(0)
}

#[test]
fn files_of_a_pattern_are_read_once_each_over_restarts() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    let open = || Database::open(directory.path().join("db"), Options::default()).unwrap();
    let database = open();
    let mut session = database.session().unwrap();
    numbers(&mut session, &file("b.parquet"), 101, 130);
    numbers(&mut session, &file("a.parquet"), 1, 20);
    let pattern = file("*.parquet").display().to_string();
    session.execute(&source(&pattern, ", tail = true")).unwrap();
    session.execute(FOLLOW).unwrap();
    wait_for(&mut session, "SELECT count(*) FROM stored", "50");
    let found = rows(
        &mut session,
        "SELECT file, min(place), max(place), sum(half), max(name) FROM stored GROUP BY file ORDER BY file",
    );
    let (a, b) = (file("a.parquet").display().to_string(), file("b.parquet").display().to_string());
    assert_eq!(found[0][..4], [a.as_str(), "1", "20", "105.0"]);
    assert_eq!(found[1], [b.as_str(), "1", "30", "1732.5", "n130"]);
    // A new file comes by a rename, or grows to its end.
    numbers(&mut session, &file("0.parquet"), 201, 210);
    numbers(&mut session, &file("growing"), 301, 340);
    let bytes = std::fs::read(file("growing")).unwrap();
    std::fs::write(file("c.parquet"), &bytes[..bytes.len() / 2]).unwrap();
    wait_for(&mut session, "SELECT count(*) FROM stored", "60");
    std::thread::sleep(Duration::from_millis(30));
    std::fs::write(file("c.parquet"), &bytes).unwrap();
    wait_for(&mut session, "SELECT count(*) FROM stored", "100");
    assert_eq!(
        rows(&mut session, "SELECT position FROM streams_splits ORDER BY split"),
        [["10"], ["20"], ["30"], ["40"]]
    );
    drop(session);
    database.close().unwrap();
    drop(database);
    let database = open();
    let mut session = database.session().unwrap();
    numbers(&mut session, &file("d.parquet"), 401, 405);
    wait_for(&mut session, "SELECT count(*) FROM stored", "105");
    // One that was read may be taken away, and one that is another is refused, whether it is open or not.
    std::fs::remove_file(file("a.parquet")).unwrap();
    numbers(&mut session, &file("e.parquet"), 501, 501);
    wait_for(&mut session, "SELECT count(*) FROM stored", "106");
    numbers(&mut session, &file("b.parquet"), 601, 630);
    let error = error_of(&mut session);
    assert!(error.contains("b.parquet") && error.contains("replaced"), "{error}");
    session.execute("ALTER TOPOLOGY follow RESUME").unwrap();
    let error = error_of(&mut session);
    assert!(error.contains("b.parquet: the file has"), "{error}");
    assert_eq!(rows(&mut session, "SELECT count(*) FROM stored")[0], ["106"]);
}

/// Values go through the rules of assignment; rows that do not fit are in their table, each with its place.
#[test]
fn values_are_assigned_and_rows_that_do_not_fit_are_rejected() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rows.parquet");
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    write(
        &mut session,
        &path,
        "SELECT g AS \"ID\", CASE g WHEN 5 THEN 'x' WHEN 6 THEN NULL ELSE g::text END AS number,
             '2026-01-0' || g AS day, CASE WHEN g = 4 THEN '{' ELSE '{\"g\": ' || g || '}' END AS json,
             TIMESTAMP '2026-01-01 00:00:00' + g * INTERVAL '1 hour' AS at, repeat('a', g::int) AS word, g / 3.0 AS more
         FROM generate_series(1, 9) s(g)",
    );
    session
        .execute(&format!(
            "CREATE SOURCE numbers (id SMALLINT NOT NULL, number DECIMAL(8,2) NOT NULL, day DATE, json JSONB, at TIMESTAMPTZ, word VARCHAR(8))
                 WITH (connector = 'file', path = '{}', rejects = 'bad') FORMAT PLAIN ENCODE PARQUET;
             CREATE TABLE stored (id INT PRIMARY KEY, number DECIMAL(8,2), day DATE, json JSONB, at TIMESTAMPTZ, word VARCHAR(8));
             CREATE TOPOLOGY follow AS (INSERT INTO stored SELECT id, number, day, json, at, word FROM numbers)",
            path.display()
        ))
        .unwrap();
    wait_for_end(&mut session, "follow");
    assert_eq!(
        rows(
            &mut session,
            "SELECT id, number, day, json->>'g', word FROM stored WHERE id < 4 OR id > 6 ORDER BY id"
        ),
        [
            ["1", "1.00", "2026-01-01", "1", "a"],
            ["2", "2.00", "2026-01-02", "2", "aa"],
            ["3", "3.00", "2026-01-03", "3", "aaa"],
            ["7", "7.00", "2026-01-07", "7", "aaaaaaa"],
            ["8", "8.00", "2026-01-08", "8", "aaaaaaaa"],
        ]
    );
    let at = "SELECT count(*) FROM stored WHERE at = TIMESTAMPTZ '2026-01-01 00:00:00+00' + id * INTERVAL '1 hour'";
    assert_eq!(rows(&mut session, at), [["5"]]);
    let bad = rows(&mut session, "SELECT source, line, reason, record FROM bad ORDER BY line");
    let lines: Vec<&str> = bad.iter().map(|row| row[1].as_str()).collect();
    assert_eq!(lines, ["4", "5", "6", "9"]);
    assert_eq!(bad[1][2], "row group 1, row 5: column number: 'x' does not fit DECIMAL(8,2)");
    assert!(bad[1][3].contains("ID = 5, number = x, day = 2026-01-05"), "{bad:?}");
    assert_eq!(bad[2][2], "row group 1, row 6: column number: NULL in a NOT NULL column");
    assert!(bad[0][2].contains("json") && bad[3][2].contains("too long"), "{bad:?}");
    assert_eq!(rows(&mut session, "SELECT tuples, rejected FROM entresol.sources"), [["5", "4"]]);
}

#[test]
fn files_that_cannot_be_read_end_the_topology_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    numbers(&mut session, &file("good"), 1, 5000);
    write(&mut session, &file("columns"), "SELECT 1 AS id, 'x' AS other");
    write(&mut session, &file("types"), "SELECT DATE '2026-01-01' AS id, 'x' AS name, 1 AS half");
    let good = std::fs::read(file("good")).unwrap();
    let mut damaged = good.clone();
    damaged[good.len() / 3..good.len() / 2].fill(0xA5);
    for (name, bytes) in [
        ("shorter", &good[..good.len() / 2]),
        ("damaged", &damaged),
        ("text", b"id,name\n1,one\n"),
        ("empty", b""),
    ] {
        std::fs::write(file(name), bytes).unwrap();
    }
    for (name, expected) in [
        ("columns", "has no column \"half\" for source numbers: it has id, other"),
        ("types", "column \"id\" of source numbers is of type INT, but of type Date32"),
        ("shorter", "cannot be read as Parquet"),
        ("damaged", "row group 1"),
        ("text", "cannot be read as Parquet"),
        ("empty", "cannot be read as Parquet"),
        ("missing", "No such file"),
    ] {
        session.execute(&source(&file(name).display().to_string(), "")).unwrap();
        session.execute(FOLLOW).unwrap();
        let error = error_of(&mut session);
        assert!(error.contains(expected) && error.contains(file(name).to_str().unwrap()), "{name}: {error}");
        session.execute("DROP TOPOLOGY follow; DROP SOURCE numbers; DROP TABLE stored").unwrap();
    }
    // A file that can be no Parquet file is not waited for.
    session.execute(&source(&file("text").display().to_string(), ", tail = true")).unwrap();
    session.execute(FOLLOW).unwrap();
    let error = error_of(&mut session);
    assert!(error.contains("does not begin as a Parquet file"), "{error}");
}

#[test]
fn options_that_do_not_fit_are_refused() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(
            "CREATE SOURCE numbers (n INT) WITH (connector = 'generator', rows = 3);
             CREATE TABLE t (id INT PRIMARY KEY, span INTERVAL) WITH (changes = '1 day')",
        )
        .unwrap();
    let sink = |options: &str| {
        format!("CREATE SINK s AS SELECT n FROM numbers WITH ({options}) FORMAT PLAIN ENCODE PARQUET")
    };
    let file = |options: &str| sink(&format!("connector = 'file', path = 'n-{{n}}.parquet', {options}"));
    for (sql, expected) in [
        (sink("connector = 'file', path = 'n.parquet'"), "has no {n}"),
        (sink("connector = 'file', path = '{n}/n-{n}.parquet'"), "{n} stands once, in the file's name"),
        (sink("connector = 'tcp', connect = 'localhost:1'"), "ENCODE PARQUET of anything but files"),
        (file("rows_max = 0"), "invalid value for option \"rows_max\": \"0\""),
        (file("bytes_max = '5%'"), "invalid value for option \"bytes_max\": \"5%\""),
        (file("interval = '0 s'"), "invalid value for option \"interval\": \"0\""),
        (file("compression = 'brotli'"), "invalid value for option \"compression\": \"brotli\""),
        (file("delimiter = ';'"), "unrecognized option \"delimiter\""),
        (
            "CREATE SINK s FROM t WITH (connector = 'file', path = 't-{n}.parquet') FORMAT PLAIN ENCODE PARQUET".to_owned(),
            "column \"span\" of type INTERVAL in a sink of ENCODE PARQUET",
        ),
        (
            "CREATE SOURCE s (a INT) WITH (connector = 'tcp', listen = 'localhost:1') FORMAT PLAIN ENCODE PARQUET".to_owned(),
            "ENCODE PARQUET of anything but files",
        ),
        (
            "CREATE SOURCE s (a INT) WITH (connector = 'file', path = 'a', null = '-') FORMAT PLAIN ENCODE PARQUET".to_owned(),
            "unrecognized option \"null\"",
        ),
        (
            "CREATE SOURCE s (a INT PRIMARY KEY) WITH (connector = 'file', path = 'a') FORMAT UPSERT ENCODE PARQUET".to_owned(),
            "ENCODE other than JSON of FORMAT UPSERT",
        ),
    ] {
        let error = session.execute(&sql).unwrap_err();
        assert!(error.to_string().contains(expected), "{sql}: {error}");
        let code = sqlstate(&error);
        assert!(["0A000", "22023"].contains(&code) || expected.contains("{n}"), "{sql}: {code}");
    }
}

/// Names of the files of a folder that are complete, and number of those with rows that wait.
fn files(folder: &Path) -> (Vec<String>, usize) {
    let entries = std::fs::read_dir(folder).unwrap();
    let names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let waiting = names.iter().filter(|name| name.ends_with(".rows") || name.ends_with(".part")).count();
    let mut complete: Vec<String> = names.into_iter().filter(|name| name.ends_with(".parquet")).collect();
    complete.sort_unstable();
    (complete, waiting)
}

fn wait_for_files(folder: &Path, wanted: usize) {
    let begun = Instant::now();
    while files(folder).0.len() < wanted {
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", files(folder));
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Rows that come as fast as they are asked for, and a sink that rolls files of them.
fn rolled(session: &mut Session, folder: &Path, with: &str) {
    std::fs::create_dir_all(folder).unwrap();
    session
        .execute(&format!(
            "CREATE SOURCE numbers (at TIMESTAMP NOT NULL, n INT, price DECIMAL(8,2)) WITH (connector = 'generator', rows = 20000, step = '1 second');
             CREATE SINK out AS SELECT CAST(extract(epoch FROM at) AS BIGINT) - 1767225600 AS i, at, NULLIF(n, 8) AS n, price FROM numbers WHERE n <> 7
                 WITH (connector = 'file', path = '{}/part-{{n}}.parquet'{with}) FORMAT PLAIN ENCODE PARQUET",
            folder.display()
        ))
        .unwrap();
}

/// Checks that the files have the rows of the source once each.
fn check_rolled(session: &mut Session, folder: &Path) {
    session
        .execute(&format!(
            "CREATE TABLE wanted (i BIGINT PRIMARY KEY, at TIMESTAMP, n INT, price DECIMAL(8,2));
             CREATE TABLE found (i BIGINT, at TIMESTAMP, n INT, price DECIMAL(8,2));
             CREATE TOPOLOGY again AS (INSERT INTO wanted
                 SELECT CAST(extract(epoch FROM at) AS BIGINT) - 1767225600, at, NULLIF(n, 8), price FROM numbers WHERE n <> 7);
             COPY found FROM '{}/part-*.parquet'",
            folder.display()
        ))
        .unwrap();
    wait_for_end(session, "again");
    let counts = "SELECT count(*) = (SELECT count(*) FROM found), count(*) > 19000 FROM wanted";
    assert_eq!(rows(session, counts), [["true", "true"]]);
    let missing = "SELECT count(*) FROM (SELECT * FROM wanted EXCEPT SELECT * FROM found) d";
    assert_eq!(rows(session, missing), [["0"]]);
    let written = "SELECT rows_written = (SELECT count(*) FROM wanted), bytes_written FROM entresol.sinks";
    assert_eq!(rows(session, written), [["true", "0"]]);
    assert_eq!(files(folder).1, 0, "nothing waits");
    session.execute("DROP TOPOLOGY again; DROP TABLE wanted; DROP TABLE found").unwrap();
}

#[test]
fn files_have_each_row_once_over_restarts() {
    for options in [", rows_max = 3000", ", bytes_max = '64KiB', durability = 'none', compression = 'zstd'"] {
        let directory = tempfile::tempdir().unwrap();
        let folder = directory.path().join("out");
        for round in 0..4 {
            let database = Database::open(directory.path().join("db"), Options::default()).unwrap();
            let mut session = database.session().unwrap();
            if round == 0 {
                rolled(&mut session, &folder, options);
            }
            if round < 3 {
                wait_for_files(&folder, round + 1);
                // Closed, or left as by a crash.
                if round == 1 {
                    drop(session);
                    database.close().unwrap();
                    assert_eq!(files(&folder).1, 0, "closing completes the file");
                }
                continue;
            }
            wait_for_end(&mut session, "out");
            check_rolled(&mut session, &folder);
            assert!(files(&folder).0.len() > 4);
        }
    }
}

/// Directory of a database that this process opens to be killed, if it is the child of the tests below.
const CHILD: &str = "ENTRESOL_PARQUET_CHILD";

#[test]
fn child_that_is_killed() {
    let Some(directory) = std::env::var_os(CHILD) else { return };
    let path = Path::new(&directory);
    let database = Database::open(path.join("db"), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    if rows(&mut session, "SHOW SOURCES").is_empty() {
        if path.join("in").exists() {
            session.execute(&source(&format!("{}/in/*", path.display()), "")).unwrap();
            session.execute(FOLLOW).unwrap();
        } else {
            rolled(&mut session, &path.join("out"), ", rows_max = 2000");
        }
    }
    std::fs::write(path.join("ready"), "").unwrap();
    std::thread::sleep(Duration::from_secs(60));
}

fn child(directory: &Path) -> Child {
    let _ = std::fs::remove_file(directory.join("ready"));
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "parquet::child_that_is_killed"])
        .env(CHILD, directory)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    while !directory.join("ready").exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    child
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn files_have_each_row_once_over_kills() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("out");
    for round in 1..=5 {
        let child = child(directory.path());
        wait_for_files(&folder, round);
        std::thread::sleep(Duration::from_millis(7 * round as u64));
        kill(child);
    }
    let database = Database::open(directory.path().join("db"), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    wait_for_end(&mut session, "out");
    check_rolled(&mut session, &folder);
}

#[test]
fn rows_of_files_count_once_over_kills() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("in");
    std::fs::create_dir(&folder).unwrap();
    let writer = Database::volatile(Options::default()).unwrap();
    let mut session = writer.session().unwrap();
    for file in 0..4 {
        numbers(&mut session, &folder.join(file.to_string()), file * 10_000, file * 10_000 + 9_999);
    }
    for round in 1..=5 {
        let child = child(directory.path());
        std::thread::sleep(Duration::from_millis(40 * round));
        kill(child);
    }
    let database = Database::open(directory.path().join("db"), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    wait_for_end(&mut session, "follow");
    let counts =
        "SELECT count(*), min(id), max(id), count(*) FILTER (WHERE place = id % 10000 + 1) FROM stored";
    assert_eq!(rows(&mut session, counts), [["40000", "0", "39999", "40000"]]);
}

/// Changes of a table go into files by the clock, at a pause, and in commits that are there as a whole.
#[test]
fn changes_of_a_table_roll_into_files_and_back() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path();
    let database = Database::open(folder.join("db"), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(&format!(
            "CREATE TABLE account (id INT PRIMARY KEY, owner TEXT, amount DECIMAL(10,2), at TIMESTAMPTZ) WITH (changes = '1 day');
             INSERT INTO account VALUES (1, 'Ada', 1.50, '2026-01-01 00:00:00+00');
             CREATE SINK audit FROM account WITH (connector = 'file', path = '{}/audit-{{n}}.parquet', interval = '50 ms') FORMAT PLAIN ENCODE PARQUET;
             CREATE SOURCE audited (id INT, owner VARCHAR, amount DECIMAL(10,2), at TIMESTAMPTZ, old_amount DECIMAL(10,2), change_type VARCHAR,
                 commit_cts BIGINT) WITH (connector = 'file', path = '{}/audit-*.parquet', tail = true) FORMAT PLAIN ENCODE PARQUET;
             CREATE TABLE audit_copy (cts BIGINT, id INT, what VARCHAR, amount DECIMAL(10,2), old_amount DECIMAL(10,2), at TIMESTAMPTZ, PRIMARY KEY (cts, id));
             CREATE TOPOLOGY auditing AS (INSERT INTO audit_copy SELECT commit_cts, id, change_type, amount, old_amount, at FROM audited)",
            folder.display(),
            folder.display()
        ))
        .unwrap();
    wait_for(&mut session, "SELECT count(*) FROM audit_copy", "1");
    session.execute("UPDATE account SET amount = amount + 1; DELETE FROM account").unwrap();
    wait_for(&mut session, "SELECT count(*) FROM audit_copy", "3");
    assert_eq!(
        rows(&mut session, "SELECT what, amount, old_amount FROM audit_copy ORDER BY cts"),
        [["insert", "1.50", ""], ["update", "2.50", "1.50"], ["delete", "2.50", "2.50"]]
    );
    let cts = "SELECT count(*) FROM audit_copy c JOIN CHANGES(account) a ON a.commit_cts = c.cts";
    assert_eq!(rows(&mut session, cts), [["3"]]);
    session.execute("INSERT INTO account SELECT i, 'x', i, now() FROM generate_series(10, 19) g(i)").unwrap();
    session.execute("ALTER SINK audit PAUSE").unwrap();
    assert_eq!(files(folder).1, 0, "a pause completes the file");
    session.execute("ALTER SINK audit RESUME").unwrap();
    wait_for(&mut session, "SELECT count(*) FROM audit_copy", "13");
    session.execute("DROP SINK audit").unwrap();
    assert_eq!(rows(&mut session, "SELECT count(*) FROM streams_sinks")[0], ["0"]);
}

/// Ends with the reason where it cannot write; its rows come when it can.
#[test]
fn a_folder_that_is_not_there_ends_the_sink_until_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("later");
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(&format!(
            "CREATE TABLE t (id INT PRIMARY KEY) WITH (changes = '1 day');
             INSERT INTO t VALUES (1), (2);
             CREATE SINK out AS SELECT id FROM CHANGES(t) WITH (connector = 'file', path = '{}/{{n}}.parquet', interval = '20 ms') FORMAT PLAIN ENCODE PARQUET",
            folder.display()
        ))
        .unwrap();
    wait_for(&mut session, "SELECT state FROM entresol.sinks", "failed");
    let error = rows(&mut session, "SELECT error FROM entresol.sinks").remove(0).remove(0);
    assert!(error.contains("No such file"), "{error}");
    std::fs::create_dir(&folder).unwrap();
    session.execute("ALTER SINK out RESUME").unwrap();
    wait_for_files(&folder, 1);
    assert_eq!(files(&folder).0, ["00000001.parquet"]);
    session
        .execute(&format!("CREATE TABLE copy (id INT); COPY copy FROM '{}/*.parquet'", folder.display()))
        .unwrap();
    assert_eq!(rows(&mut session, "SELECT id FROM copy ORDER BY id"), [["1"], ["2"]]);
}
