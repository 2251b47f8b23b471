//! Sinks: files that have each row once, connections, and what becomes of those that fail.

use super::tcp::free_address;
use super::{append, rows, wait_for, wait_for_end};
use entresol::{Database, Options, Session};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn wait_for_lines(path: &Path, lines: usize) -> Vec<String> {
    let begun = Instant::now();
    loop {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        if text.lines().count() >= lines {
            return text.lines().map(str::to_owned).collect();
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{text}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn state(session: &mut Session, sink: &str) -> Vec<String> {
    rows(session, &format!("SELECT state, error FROM entresol.sinks WHERE name = '{sink}'")).remove(0)
}

/// Numbers that come as fast as they are asked for, and a sink for them.
fn numbers(session: &mut Session, path: &Path, with: &str) {
    session
        .execute(&format!(
            "CREATE SOURCE numbers (at TIMESTAMP NOT NULL, n INT) WITH (connector = 'generator', rows = 20000, step = '1 second');
             CREATE SINK out AS SELECT CAST(extract(epoch FROM at) AS BIGINT) - 1767225600 AS i, n FROM numbers WHERE n <> 7
                 WITH (connector = 'file', path = '{}'{with}) FORMAT PLAIN ENCODE CSV",
            path.display()
        ))
        .unwrap();
}

#[test]
fn a_file_has_each_row_once_over_restarts() {
    for durability in ["", ", durability = 'none'"] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("out.csv");
        for round in 0.. {
            let database = Database::open(directory.path().join("db"), Options::default()).unwrap();
            let mut session = database.session().unwrap();
            if round == 0 {
                numbers(&mut session, &path, durability);
            }
            if round < 3 {
                wait_for_lines(&path, 2000 * (round + 1));
                // Closed, or left as by a crash; in one, rows of a transaction that was not committed are there.
                if round == 1 {
                    drop(session);
                    database.close().unwrap();
                    append(&path, "17,1\n18,");
                }
                continue;
            }
            wait_for_end(&mut session, "out");
            let wanted = rows(&mut session, "SELECT rows_written FROM entresol.sinks")[0][0].clone();
            let text = std::fs::read_to_string(&path).unwrap();
            let ids: Vec<i64> =
                text.lines().skip(1).map(|line| line.split_once(',').unwrap().0.parse().unwrap()).collect();
            assert_eq!(ids.len().to_string(), wanted);
            assert!(text.starts_with("i,n\n") && ids.is_sorted_by(|a, b| a < b), "rows are there twice");
            assert!(ids.len() > 19_000 && *ids.last().unwrap() > 19_900, "{}", ids.len());
            assert!(!text.contains(",7\n"));
            break;
        }
    }
}

/// A sink of results that change has each result that is sent or taken back, once; together they are the results.
#[test]
fn a_file_has_the_changes_of_results() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("changes.csv");
    for round in 0..3 {
        let database = Database::open(directory.path().join("db"), Options::default()).unwrap();
        let mut session = database.session().unwrap();
        if round == 0 {
            session
                .execute(&format!(
                    "CREATE SOURCE numbers (at TIMESTAMP NOT NULL, n INT NOT NULL) WITH (connector = 'generator', rows = 3000,
                         step = '1 second', n.cardinality = 9, rows_per_second = 3000);
                     CREATE TABLE stored (at TIMESTAMP, n INT);
                     CREATE TOPOLOGY storing WITH (durability = 'none') AS (INSERT INTO stored SELECT at, n FROM numbers);
                     CREATE SINK counts AS SELECT n, count(*) AS times FROM numbers GROUP BY n HAVING count(*) % 5 <> 0
                         WITH (connector = 'file', path = '{}') FORMAT PLAIN ENCODE CSV",
                    path.display()
                ))
                .unwrap();
        }
        if round < 2 {
            // Left as by a crash.
            wait_for_lines(&path, 20 * (round + 1));
            continue;
        }
        wait_for_end(&mut session, "counts");
        wait_for_end(&mut session, "storing");
        let text = std::fs::read_to_string(&path).unwrap();
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("n,times,change_type"));
        let mut results = std::collections::BTreeSet::new();
        for line in lines {
            let (row, change) = line.rsplit_once(',').unwrap();
            let is_known = match change {
                "insert" => !results.insert(row.to_owned()),
                "delete" => !results.remove(row),
                other => panic!("{other}"),
            };
            assert!(!is_known, "{line}");
        }
        let counts =
            "SELECT n || ',' || count(*) AS r FROM stored GROUP BY n HAVING count(*) % 5 <> 0 ORDER BY r";
        let wanted: Vec<String> =
            rows(&mut session, counts).into_iter().map(|mut row| row.remove(0)).collect();
        assert!(text.contains("delete"));
        assert_eq!(results.into_iter().collect::<Vec<_>>(), wanted);
    }
}

/// Directory of a database that this process opens to be killed, if it is the child of the test below.
const CHILD: &str = "ENTRESOL_SINK_CHILD";

#[test]
fn child_that_is_killed() {
    let Some(directory) = std::env::var_os(CHILD) else { return };
    let path = Path::new(&directory).join("out.csv");
    let database = Database::open(Path::new(&directory).join("db"), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    if rows(&mut session, "SHOW SINKS").is_empty() {
        numbers(&mut session, &path, "");
    }
    std::thread::sleep(Duration::from_secs(60));
}

/// A process that writes a file is killed again and again: no row is lost or there twice.
#[test]
fn a_file_has_each_row_once_over_kills() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("out.csv");
    for kill in 1..=4 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "sinks::child_that_is_killed"])
            .env(CHILD, directory.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        wait_for_lines(&path, 3000 * kill);
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let database = Database::open(directory.path().join("db"), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    wait_for_end(&mut session, "out");
    let text = std::fs::read_to_string(&path).unwrap();
    session
        .execute(
            "CREATE TABLE wanted (i BIGINT, n INT);
             CREATE TOPOLOGY again AS (INSERT INTO wanted
                 SELECT CAST(extract(epoch FROM at) AS BIGINT) - 1767225600, n FROM numbers WHERE n <> 7)",
        )
        .unwrap();
    wait_for_end(&mut session, "again");
    let wanted = rows(&mut session, "SELECT i, n FROM wanted ORDER BY i");
    let wanted: Vec<String> = wanted.into_iter().map(|row| row.join(",")).collect();
    assert_eq!(text.lines().skip(1).collect::<Vec<_>>(), wanted);
}

#[test]
fn changes_of_a_table_go_into_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("changes.json");
    let database = Database::open(directory.path().join("db"), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(&format!(
            "CREATE TABLE account (id INT PRIMARY KEY, owner TEXT, amount DECIMAL(10,2)) WITH (changes = '1 day');
             INSERT INTO account VALUES (1, 'Ada', 1.50);
             CREATE SINK audit FROM account WITH (connector = 'file', path = '{0}') FORMAT PLAIN ENCODE JSON;
             CREATE SINK IF NOT EXISTS audit FROM account WITH (connector = 'file', path = '{0}')",
            path.display()
        ))
        .unwrap();
    wait_for_lines(&path, 1);
    session.execute("UPDATE account SET amount = amount + 1; DELETE FROM account").unwrap();
    let lines = wait_for_lines(&path, 3);
    assert!(
        lines[0].contains("\"amount\":\"1.50\"") && lines[0].contains("\"change_type\":\"insert\""),
        "{lines:?}"
    );
    assert!(
        lines[1].contains("\"amount\":\"2.50\"") && lines[1].contains("\"old_amount\":\"1.50\""),
        "{lines:?}"
    );
    assert!(
        lines[2].contains("\"change_type\":\"delete\"") && lines[2].contains("\"commit_cts\":"),
        "{lines:?}"
    );
    let shown = rows(&mut session, "SHOW SINKS");
    assert_eq!(shown[0][..3], ["audit", "running", &format!("file {}", path.display())]);
    // It pauses by either name, and goes on behind what it wrote.
    session.execute("ALTER SINK audit PAUSE; INSERT INTO account VALUES (2, 'Alan', 3)").unwrap();
    assert_eq!(state(&mut session, "audit"), ["paused", ""]);
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(wait_for_lines(&path, 3).len(), 3);
    session.execute("ALTER TOPOLOGY audit RESUME").unwrap();
    assert_eq!(wait_for_lines(&path, 4).len(), 4);
    let error = session.execute("DROP TABLE account").unwrap_err().to_string();
    assert!(error.contains("sink audit uses it"), "{error}");
    // Its file stays, and one more sink appends to it.
    session.execute("DROP SINK audit; DROP SINK IF EXISTS audit").unwrap();
    assert_eq!(rows(&mut session, "SELECT count(*) FROM streams_sinks")[0], ["0"]);
    session
        .execute(&format!(
            "CREATE SINK again AS SELECT id, change_type FROM CHANGES(account) WHERE id = 2
                 WITH (connector = 'file', path = '{}') FORMAT PLAIN ENCODE JSON",
            path.display()
        ))
        .unwrap();
    assert_eq!(wait_for_lines(&path, 5)[4], "{\"change_type\":\"insert\",\"id\":2}");
}

/// JSON is a part of a line, in the row before as in the row after.
#[test]
fn documents_are_parts_of_lines() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("changes.json");
    let database = Database::open(directory.path().join("db"), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(&format!(
            "CREATE TABLE item (id INT PRIMARY KEY, doc JSONB, plain JSON) WITH (changes = '1 day');
             CREATE SINK audit FROM item WITH (connector = 'file', path = '{}') FORMAT PLAIN ENCODE JSON;
             INSERT INTO item VALUES (1, '{{\"a\": [1, 2.50]}}', '[1]');
             UPDATE item SET doc = '\"x\"', plain = NULL",
            path.display()
        ))
        .unwrap();
    let lines = wait_for_lines(&path, 2);
    assert!(lines[0].contains(r#""doc":{"a": [1, 2.50]},"id":1,"old_doc":null"#), "{lines:?}");
    assert!(lines[1].contains(r#""doc":"x","id":1,"old_doc":{"a": [1, 2.50]},"#), "{lines:?}");
    assert!(lines[1].contains(r#""old_plain":[1],"plain":null"#), "{lines:?}");
}

#[test]
fn a_file_that_cannot_be_written_ends_its_sink_and_the_input_comes_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("out");
    std::fs::create_dir(&path).unwrap();
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(&format!(
            "CREATE TABLE t (id INT PRIMARY KEY) WITH (changes = '1 day');
             INSERT INTO t VALUES (1), (2);
             CREATE SINK out AS SELECT id FROM CHANGES(t) WITH (connector = 'file', path = '{}')",
            path.display()
        ))
        .unwrap();
    let failed = "SELECT state FROM entresol.sinks WHERE name = 'out'";
    wait_for(&mut session, failed, "failed");
    assert!(state(&mut session, "out")[1].contains("Is a directory"));
    std::fs::remove_dir(&path).unwrap();
    session.execute("ALTER SINK out RESUME").unwrap();
    assert_eq!(wait_for_lines(&path, 3), ["id", "1", "2"]);
    // The file is another: it is left as it is.
    session.execute("ALTER SINK out PAUSE; INSERT INTO t VALUES (3)").unwrap();
    for (text, reason) in
        [("id\n1\n", "has 5 bytes, 7 were written"), ("id\n8\n9\n10\n", "other content before byte 7")]
    {
        std::fs::write(&path, text).unwrap();
        session.execute("ALTER SINK out RESUME").unwrap();
        wait_for(&mut session, failed, "failed");
        assert!(state(&mut session, "out")[1].contains(reason), "{:?}", state(&mut session, "out"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }
    std::fs::write(&path, "id\n1\n2\n").unwrap();
    session.execute("ALTER SINK out RESUME").unwrap();
    assert_eq!(wait_for_lines(&path, 4), ["id", "1", "2", "3"]);
    // Two sinks of one file.
    session
        .execute(&format!(
            "CREATE SINK other AS SELECT id FROM CHANGES(t) WITH (connector = 'file', path = '{}')",
            path.display()
        ))
        .unwrap();
    wait_for(&mut session, "SELECT state FROM entresol.sinks WHERE name = 'other'", "failed");
    assert!(state(&mut session, "other")[1].contains("has the file open"));
    // A device that is full.
    session
        .execute(
            "CREATE SINK full AS SELECT id FROM CHANGES(t) WITH (connector = 'file', path = '/dev/full')",
        )
        .unwrap();
    wait_for(&mut session, "SELECT state FROM entresol.sinks WHERE name = 'full'", "failed");
    assert!(state(&mut session, "full")[1].contains("not a regular file"));
}

#[test]
fn rows_go_over_a_connection_and_wait_for_one() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    let address = free_address();
    session
        .execute(&format!(
            "CREATE TABLE t (id INT PRIMARY KEY, note TEXT) WITH (changes = '1 day');
             INSERT INTO t VALUES (1, 'one'), (2, NULL);
             CREATE SINK feed AS SELECT id, note, change_type FROM CHANGES(t) WITH (connector = 'tcp', connect = '{address}')"
        ))
        .unwrap();
    wait_for(&mut session, "SELECT state FROM entresol.sinks", "failed");
    let shown = state(&mut session, "feed");
    assert!(shown[1].contains(&format!("tcp {address}: Connection refused")), "{shown:?}");
    let listener = TcpListener::bind(&address).unwrap();
    session.execute("ALTER SINK feed RESUME").unwrap();
    let mut lines = BufReader::new(listener.accept().unwrap().0).lines().map(Result::unwrap);
    assert_eq!([lines.next().unwrap(), lines.next().unwrap()], ["1,one,insert", "2,,insert"]);
    session.execute("UPDATE t SET note = 'two' WHERE id = 2").unwrap();
    assert_eq!(lines.next().unwrap(), "2,two,update");
    // The receiver goes, and another comes.
    drop(lines);
    session.execute("INSERT INTO t VALUES (3, 'three')").unwrap();
    let mut lines = BufReader::new(listener.accept().unwrap().0).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "3,three,insert");
}

/// A table as a sink: results replace each other by its key, and rows are appended where it has none.
#[test]
fn a_table_is_a_sink() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("numbers.csv");
    append(&path, &(0..1000).fold("n\n".to_owned(), |lines, n| format!("{lines}{n}\n")));
    let open = || Database::open(directory.path().join("db"), Options::default()).unwrap();
    let database = open();
    let mut session = database.session().unwrap();
    session
        .execute(&format!(
            "CREATE SOURCE numbers (n INT NOT NULL) WITH (connector = 'file', path = '{}') FORMAT PLAIN ENCODE CSV;
             CREATE TABLE counts (ending INT PRIMARY KEY, many BIGINT);
             CREATE TABLE even (n INT);
             CREATE SINK counting AS SELECT n % 10 AS ending, count(*) FROM numbers GROUP BY 1
                 WITH (connector = 'table', table = 'counts', type = 'upsert');
             CREATE SINK evens AS SELECT n FROM numbers WHERE n % 2 = 0 WITH (connector = 'table', table = 'even')",
            path.display()
        ))
        .unwrap();
    wait_for_end(&mut session, "counting");
    wait_for_end(&mut session, "evens");
    drop(session);
    database.close().unwrap();
    drop(database);
    let database = open();
    let mut session = database.session().unwrap();
    wait_for_end(&mut session, "evens");
    assert_eq!(
        rows(&mut session, "SELECT count(*), min(many), max(many) FROM counts"),
        [["10", "100", "100"]]
    );
    assert_eq!(rows(&mut session, "SELECT count(*), count(DISTINCT n) FROM even"), [["500", "500"]]);
    let targets = rows(&mut session, "SELECT name, target FROM entresol.sinks ORDER BY 1");
    assert_eq!(targets, [["counting", "table counts"], ["evens", "table even"]]);
    let error = session.execute("DROP TABLE even").unwrap_err().to_string();
    assert!(error.contains("sink evens"), "{error}");
    session.execute("DROP SINK evens; DROP TABLE even").unwrap();
    // A key that comes twice ends a sink that appends.
    session
        .execute(
            "CREATE TABLE once (ending INT PRIMARY KEY);
             CREATE SINK again AS SELECT n % 10 FROM numbers WITH (connector = 'table', table = 'once', type = 'append-only')",
        )
        .unwrap();
    wait_for(&mut session, "SELECT state FROM entresol.sinks WHERE name = 'again'", "failed");
    assert!(state(&mut session, "again")[1].contains("once"));
}

#[test]
fn what_is_no_sink_is_refused_by_name() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(
            "CREATE SOURCE numbers (n INT) WITH (connector = 'generator', rows = 10);
             CREATE TABLE t (n INT PRIMARY KEY);
             CREATE TABLE u (n INT PRIMARY KEY);
             CREATE TOPOLOGY filling AS (INSERT INTO u SELECT n FROM numbers ON CONFLICT (n) DO NOTHING)",
        )
        .unwrap();
    for (sql, expected) in [
        ("CREATE SINK s FROM t WITH (connector = 'file', path = 'a')", "table t logs no changes"),
        ("CREATE SINK s FROM nothing WITH (connector = 'file', path = 'a')", "nothing"),
        ("CREATE SINK s FROM numbers WITH (connector = 'kafka')", "there are file, tcp and table"),
        ("CREATE SINK s FROM numbers WITH (connector = 'file')", "needs the option \"path\""),
        ("CREATE SINK s FROM numbers WITH (connector = 'table')", "needs the option \"table\""),
        ("CREATE SINK s FROM numbers WITH (connector = 'table', table = 'nothing')", "nothing"),
        (
            "CREATE SINK s FROM numbers WITH (connector = 'table', table = 't', type = 'merge')",
            "option \"type\" of sink \"s\" is upsert or append-only, not merge",
        ),
        (
            "CREATE SINK s FROM numbers WITH (connector = 'table', table = 't') FORMAT PLAIN ENCODE CSV",
            "FORMAT of sink \"s\", whose connector is a table",
        ),
        (
            "CREATE SINK s AS SELECT n, n AS m FROM numbers WITH (connector = 'table', table = 't')",
            "INSERT INTO t has 1 columns, its query has 2",
        ),
        (
            "CREATE SINK s FROM numbers WITH (connector = 'file', path = 'a', b = 1)",
            "unrecognized option \"b\"",
        ),
        ("CREATE SINK s FROM numbers", "sink \"s\" needs the option \"connector\""),
        ("CREATE SINK s AS SELECT n FROM t WITH (connector = 'file', path = 'a')", "triggers nothing"),
        (
            "CREATE SINK s AS INSERT INTO t SELECT n FROM numbers WITH (connector = 'file', path = 'a')",
            "a query",
        ),
        ("CREATE SINK filling FROM numbers WITH (connector = 'file', path = 'a')", "already exists"),
        ("DROP SINK filling", "\"filling\" is not a sink"),
        ("ALTER SINK filling PAUSE", "\"filling\" is not a sink"),
        ("DROP SINK nothing", "sink \"nothing\" does not exist"),
    ] {
        let error = session.execute(sql).err().unwrap_or_else(|| panic!("{sql} is accepted")).to_string();
        assert!(error.contains(expected), "{sql}: {error}");
    }
    assert!(rows(&mut session, "SHOW SINKS").is_empty());
}
