//! `entresol serve` and `entresol role` as processes.
#![allow(clippy::unwrap_used)]

mod support;

use entresol::query::{CHAIN_MAX, SELECTS_MAX};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::{entresol, stderr, succeed};

const PATIENCE: Duration = Duration::from_secs(60);

/// A server process; killed if the test fails.
struct Served {
    child: Child,
    line: String,
}

impl Served {
    fn start(path: &str, more: &[&str]) -> Served {
        let mut child = Command::new(env!("CARGO_BIN_EXE_entresol"))
            .args(["serve", path, "--listen", "127.0.0.1:0"])
            .args(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Served { child, line }
    }

    fn address(&self) -> &str {
        self.line.strip_prefix("listening on ").unwrap().split(' ').next().unwrap()
    }

    /// Runs a query text as a client without a password and returns the answer.
    fn query(&self, sql: &str) -> Vec<u8> {
        let mut socket = self.send(sql);
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer).unwrap();
        answer
    }

    /// Sends a query text as a client without a password that sends Terminate.
    fn send(&self, sql: &str) -> TcpStream {
        let mut socket = TcpStream::connect(self.address()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut bytes = b"\0\0\0\x10\0\x03\0\0user\0x\0\0".to_vec();
        bytes[3] = bytes.len() as u8;
        for (kind, body) in [(b'Q', format!("{sql}\0")), (b'X', String::new())] {
            bytes.push(kind);
            bytes.extend((body.len() as u32 + 4).to_be_bytes());
            bytes.extend(body.as_bytes());
        }
        socket.write_all(&bytes).unwrap();
        socket
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[test]
fn a_server_says_where_it_is_and_ends_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db").display().to_string();
    for signal in ["TERM", "INT"] {
        let mut served = Served::start(&path, &[]);
        let port = served.address().rsplit(':').next().unwrap();
        assert!(
            served.line.contains(&format!("connect with: psql -h 127.0.0.1 -p {port}")),
            "{}",
            served.line
        );
        let sql = format!("CREATE TABLE t_{signal} (id INT PRIMARY KEY); INSERT INTO t_{signal} VALUES (7)");
        let answer = served.query(&sql);
        assert!(contains(&answer, "INSERT 0 1"), "{}", String::from_utf8_lossy(&answer));
        served.signal(signal);
        assert!(served.child.wait().unwrap().success());
    }
    // Closed in order: the next open has nothing to recover.
    let sql = "SELECT value FROM entresol.database WHERE property = 'was_clean'";
    assert!(succeed(&["shell", &path, "--format", "csv", "-c", sql]).contains("true"));
    assert!(succeed(&["shell", &path, "--format", "csv", "-c", "SELECT id FROM t_int"]).contains('7'));
    succeed(&["check", &path, "--quiet"]);
}

#[test]
fn the_deepest_accepted_statements_overrun_no_stack() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db").display().to_string();
    let served = Served::start(&path, &[]);
    // SELECT and the first value are links too.
    for (first, link, links) in [
        ("SELECT 1", "+1", CHAIN_MAX / 2 - 1),
        ("SELECT true", " AND true", CHAIN_MAX / 2 - 1),
        ("SELECT 1", "::int", CHAIN_MAX / 2 - 1),
        ("SELECT true", " IS TRUE", CHAIN_MAX / 2 - 1),
        ("SELECT 1", " UNION ALL SELECT 1", SELECTS_MAX),
        ("SELECT 1", " EXCEPT SELECT 2", SELECTS_MAX),
    ] {
        let answer = served.query(&format!("{first}{}", link.repeat(links)));
        assert!(contains(&answer, "SELECT "), "{links} times {link}: {}", String::from_utf8_lossy(&answer));
        let answer = served.query(&format!("{first}{}", link.repeat(2 * links + 2)));
        assert!(contains(&answer, "54001"), "{link}: {}", String::from_utf8_lossy(&answer));
    }
    assert!(contains(&served.query("SELECT 7 AS still_there"), "still_there"));
}

#[test]
fn a_killed_server_loses_nothing_that_it_answered() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db").display().to_string();
    let served = Served::start(&path, &[]);
    let answer = served.query("CREATE TABLE t (id INT PRIMARY KEY); INSERT INTO t VALUES (7)");
    assert!(contains(&answer, "INSERT 0 1"));
    let answer = served.query("BEGIN; INSERT INTO t VALUES (8)");
    assert!(contains(&answer, "INSERT 0 1"));
    drop(served);
    assert!(
        succeed(&["shell", &path, "--format", "csv", "-c", "SELECT count(*) AS n, max(id) FROM t"])
            .contains("1,7")
    );
}

#[test]
fn roles_are_made_listed_and_needed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db").display().to_string();
    let refused = entresol(&["serve", &path, "--listen", "0.0.0.0:0"]);
    assert!(
        !refused.status.success() && stderr(&refused).contains("entresol role add"),
        "{}",
        stderr(&refused)
    );
    succeed(&[
        "shell",
        &path,
        "-c",
        "CREATE TABLE a (id INT PRIMARY KEY); CREATE TABLE b (id INT PRIMARY KEY)",
    ]);
    let file = dir.path().join("password");
    std::fs::write(&file, "secret\n").unwrap();
    let file = file.display().to_string();
    succeed(&["role", "add", &path, "anna", "--read", "a", "--write", "b", "--password-file", &file]);
    succeed(&["role", "add", &path, "admin", "--administrator", "--password-file", &file]);
    assert_eq!(succeed(&["role", "list", &path]), "admin: administrator\nanna: read a, write b\n");
    let unknown = entresol(&["role", "grant", &path, "anna", "--read", "missing"]);
    assert!(!unknown.status.success() && stderr(&unknown).contains("missing"));
    succeed(&["role", "revoke", &path, "anna", "b"]);
    succeed(&["role", "grant", &path, "anna", "--write", "*"]);
    assert_eq!(succeed(&["role", "list", &path]), "admin: administrator\nanna: write *, read a\n");
    let served = Served::start(&path, &[]);
    assert!(!contains(&served.query("SELECT 1"), "SELECT 1"), "nobody gets in without the password");
    drop(served);
    succeed(&["role", "drop", &path, "anna"]);
    assert_eq!(succeed(&["role", "list", &path]), "admin: administrator\n");
}

#[test]
fn a_signal_ends_the_process_within_seconds_whatever_statements_do() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db").display().to_string();
    let mut served = Served::start(&path, &[]);
    served.query("CREATE TABLE t (id INT PRIMARY KEY)");
    let endless = [
        "SELECT count(*) FROM generate_series(1, 300000) a, generate_series(1, 300000) b WHERE a.value + b.value < 0",
        "SELECT count(*) FROM (SELECT md5(repeat('x', 1000000 + value % 3)) AS m FROM generate_series(1, 100000000)) q WHERE m = ''",
        "INSERT INTO t SELECT value FROM generate_series(1, 1000000000)",
    ];
    let clients: Vec<TcpStream> = endless.iter().map(|sql| served.send(sql)).collect();
    std::thread::sleep(Duration::from_millis(500));
    let start = Instant::now();
    served.signal("TERM");
    let status = served.child.wait().unwrap();
    println!("ended after {:?} with {status}", start.elapsed());
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    drop(clients);
    let sql = "SELECT count(*) AS n FROM t";
    assert_eq!(succeed(&["shell", &path, "--format", "csv", "-c", sql]), "n\n0\n");
    succeed(&["check", &path, "--quiet"]);
}

#[test]
fn results_of_functions_are_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db").display().to_string();
    let served = Served::start(&path, &[]);
    for (sql, code) in [
        ("SELECT repeat('x', 1000000000)", "54000"),
        ("SELECT lpad('x', 1000000000)", "54000"),
        ("SELECT replace(repeat('x', 1000000), 'x', repeat('y', 1000))", "54000"),
        ("SELECT generate_series(1, 1000000000)", "54000"),
    ] {
        let answer = served.query(sql);
        assert!(contains(&answer, code), "{sql}: {}", String::from_utf8_lossy(&answer));
    }
    assert!(contains(&served.query("SELECT length(repeat('x', 1000000)) AS n"), "1000000"));
    // A batch of long results is computed slice by slice.
    let many = "SELECT sum(length(repeat('x', 1000000 + value % 2))) FROM generate_series(1, 1000)";
    assert!(contains(&served.query(many), "1000000500"));
}

/// A topology of SQL in a server that is killed again and again: at the end its tables are as if it had run
/// once, and agree with each other at every look in between.
#[test]
fn a_topology_survives_kills_of_its_server() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    let db = db.to_str().unwrap();
    const READINGS: u64 = 60_000;
    let server = Served::start(db, &[]);
    let created = server.query(&format!(
        "CREATE SOURCE reading (at TIMESTAMP NOT NULL, meter INT NOT NULL, kw DOUBLE NOT NULL, WATERMARK FOR at AS at)
             WITH (connector = 'generator', rows = {READINGS}, rows_per_second = 20000, step = '1 second',
                 meter.cardinality = 10);
         CREATE TABLE every (at TIMESTAMP PRIMARY KEY, meter INT, kw DOUBLE);
         CREATE TABLE hours (hour TIMESTAMP PRIMARY KEY, readings BIGINT);
         CREATE TABLE high (at TIMESTAMP PRIMARY KEY, kw DOUBLE);
         CREATE TOPOLOGY metering COMMIT EVERY 500 ROWS AS (
             INSERT INTO every SELECT at, meter, kw FROM reading;
             INSERT INTO hours SELECT window_start, count(*) FROM TUMBLE(reading, at, INTERVAL '1 hour')
                 GROUP BY window_start;
             INSERT INTO high SELECT at, kw FROM CHANGES(every) FOR EACH COMMIT WHERE kw > 99)"
    ));
    assert!(contains(&created, "CREATE TOPOLOGY"), "{}", String::from_utf8_lossy(&created));
    // Closed hours, the open one and its readings are of one commit.
    let agree =
        "SELECT 'agrees ' || ((SELECT count(*) FROM every) = coalesce((SELECT sum(readings) FROM hours), 0)
            + coalesce((SELECT sum(count) FROM metering_open), 0)
        AND (SELECT count(*) FROM every WHERE kw > 99) = (SELECT count(*) FROM high)
        AND (SELECT count(*) FROM every) = (SELECT coalesce(sum(\"position\"), 0) FROM streams_positions))";
    let mut server = server;
    for round in 0..6 {
        std::thread::sleep(Duration::from_millis(60 + 70 * (round % 3)));
        let answer = server.query(agree);
        assert!(contains(&answer, "agrees true"), "{}", String::from_utf8_lossy(&answer));
        server.signal("KILL");
        server.child.wait().unwrap();
        server = Served::start(db, &[]);
        let answer = server.query(agree);
        assert!(contains(&answer, "agrees true"), "after kill {round}: {}", String::from_utf8_lossy(&answer));
    }
    let begin = Instant::now();
    let ended = "SELECT 'state ' || state FROM entresol.topologies";
    while !contains(&server.query(ended), "state ended") {
        assert!(begin.elapsed() < PATIENCE, "{}", String::from_utf8_lossy(&server.query("SHOW TOPOLOGIES")));
        std::thread::sleep(Duration::from_millis(20));
    }
    let counts = server.query(
        "SELECT 'counts ' || (SELECT count(*) FROM every) || ' ' || (SELECT sum(readings) FROM hours)",
    );
    let wanted = format!("counts {READINGS} {READINGS}");
    assert!(contains(&counts, &wanted), "{}", String::from_utf8_lossy(&counts));
    assert!(contains(&server.query(agree), "agrees true"));
    server.signal("TERM");
    assert!(server.child.wait().unwrap().success());
    assert!(succeed(&["check", db]).contains("no problems"));
}

/// `entresol top` on a server, in a directory, at a terminal, and with wrong targets.
#[test]
fn top_shows_what_topologies_do() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    let db = db.to_str().unwrap();
    let server = Served::start(db, &[]);
    let created = server.query(
        "CREATE SOURCE reading (at TIMESTAMP NOT NULL, meter INT NOT NULL, WATERMARK FOR at AS at)
             WITH (connector = 'generator', rows_per_second = 5000, step = '1 second', meter.cardinality = 10);
         CREATE TABLE hours (hour TIMESTAMP PRIMARY KEY, readings BIGINT);
         CREATE TABLE quotients (at TIMESTAMP PRIMARY KEY, quotient BIGINT);
         CREATE TOPOLOGY metering COMMIT EVERY 500 ROWS AS (
             INSERT INTO hours SELECT window_start, count(*) FROM TUMBLE(reading, at, INTERVAL '1 hour')
                 GROUP BY window_start);
         CREATE TOPOLOGY broken AS (INSERT INTO quotients SELECT at, 1 / meter FROM reading)",
    );
    assert!(contains(&created, "CREATE TOPOLOGY"), "{}", String::from_utf8_lossy(&created));
    let url = format!("postgresql://{}", server.address());
    let begin = Instant::now();
    while !contains(
        &server.query("SELECT 'commits ' || (commits > 1) FROM entresol.topologies"),
        "commits true",
    ) || !contains(&server.query("SELECT state FROM entresol.topologies"), "failed")
    {
        assert!(begin.elapsed() < PATIENCE);
    }
    // A password is not shown.
    let page = succeed(&["top", &format!("postgresql://anna:secret@{}", server.address())]);
    let name = format!("postgresql://anna@{}", server.address());
    assert!(page.starts_with(&format!("{name}: topologies: 1 running, 1 failed; ")), "{page}");
    for expected in ["broken: ", "division by zero", "window metering_open", "generator", "metering  running"]
    {
        assert!(page.contains(expected), "{expected}: {page}");
    }
    // At a terminal it goes on until q.
    let program = env!("CARGO_BIN_EXE_entresol");
    let mut terminal = Command::new("script")
        .args(["-qec", &format!("{program} top {url} --interval 0.1"), "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut keys, mut screen) = (terminal.stdin.take().unwrap(), terminal.stdout.take().unwrap());
    let mut drawn = Vec::new();
    while String::from_utf8_lossy(&drawn).matches("1 running").count() < 3 {
        let mut some = [0; 4096];
        let read = screen.read(&mut some).unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&drawn));
        drawn.extend_from_slice(&some[..read]);
    }
    keys.write_all(b"q").unwrap();
    screen.read_to_end(&mut drawn).unwrap();
    assert!(terminal.wait().unwrap().success());
    for (arguments, expected) in [
        (["top", db, "--once"], "if it is served, give its address"),
        (["top", "nowhere", "--once"], "nowhere: expected the directory of a database, or postgresql://"),
        (
            ["top", "postgresql://127.0.0.1:1", "--once"],
            "postgresql://entresol@127.0.0.1:1: error connecting",
        ),
        (["top", &url, "--interval=0"], "--interval 0: expected seconds, more than 0"),
    ] {
        let output = entresol(&arguments);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(stderr(&output).contains(expected), "{arguments:?}: {}", stderr(&output));
    }
    drop(server);
    let page = succeed(&["top", db]);
    assert!(page.contains("metering  running") && page.contains("broken"), "{page}");
}
