//! Sources of lines from TCP connections.

use super::{rows, wait_for, wait_for_end};
use entresol::{Database, Options, Session};
use std::io::{ErrorKind, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Address on which nothing listens.
pub(super) fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// Connection to a source that begins to listen.
pub(super) fn connect(address: &str) -> TcpStream {
    let begun = Instant::now();
    loop {
        match TcpStream::connect(address) {
            Ok(stream) => return stream,
            Err(error) => assert!(begun.elapsed() < Duration::from_secs(20), "{error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn follow(session: &mut Session, options: &str, format: &str) {
    session
        .execute(&format!(
            "CREATE SOURCE lines (id INT NOT NULL, note VARCHAR) WITH (connector = 'tcp', rejects = 'bad', {options}) {format};
             CREATE TABLE stored (id INT PRIMARY KEY, note VARCHAR);
             CREATE TOPOLOGY follow COMMIT EVERY 1000 ROWS OR EVERY INTERVAL '5 ms' AS (
                 INSERT INTO stored SELECT id, note FROM lines)"
        ))
        .unwrap();
}

#[test]
fn connections_are_read_side_by_side_and_bad_lines_are_rejected() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    let address = free_address();
    follow(&mut session, &format!("listen = '{address}'"), "");
    let mut first = connect(&address);
    let mut second = connect(&address);
    first.write_all(b"1,one\r\nx,y\n2,\"t").unwrap();
    second.write_all(b"3,three\n\n").unwrap();
    wait_for(&mut session, "SELECT count(*) FROM stored", "2");
    first.write_all(b"wo, \"\"2\"\"\"\n4").unwrap();
    wait_for(&mut session, "SELECT count(*) FROM stored", "3");
    drop(first);
    wait_for(&mut session, "SELECT count(*) FROM bad", "2");
    assert_eq!(
        rows(&mut session, "SELECT line, record, reason FROM bad ORDER BY line"),
        [["2", "x,y", "column id: 'x' is not a INT"], ["4", "4", "the connection ended within the line"]]
    );
    second.write_all(format!("5,{}\n6,six\n", "x".repeat(2 << 20)).as_bytes()).unwrap();
    wait_for(&mut session, "SELECT count(*) FROM stored", "4");
    let notes = rows(&mut session, "SELECT note FROM stored ORDER BY id").concat();
    assert_eq!(notes, ["one", "two, \"2\"", "three", "six"]);
    assert_eq!(
        rows(&mut session, "SELECT count(*) FROM bad WHERE reason LIKE '%longer than 1048576 bytes'")[0],
        ["1"]
    );
    // It stops with the topology, and frees the port.
    session.execute("ALTER TOPOLOGY follow PAUSE").unwrap();
    drop(TcpListener::bind(&address).unwrap());
    session.execute("ALTER TOPOLOGY follow RESUME").unwrap();
    connect(&address).write_all(b"7,seven\n").unwrap();
    wait_for(&mut session, "SELECT count(*) FROM stored", "5");
    session.execute("CREATE TOPOLOGY other AS (INSERT INTO stored SELECT id, note FROM lines)").unwrap();
    let failed = "SELECT state FROM entresol.topologies WHERE name = 'other'";
    wait_for(&mut session, failed, "failed");
    let error = rows(&mut session, "SELECT error FROM entresol.topologies WHERE name = 'other'");
    assert!(error[0][0].contains(&format!("tcp {address}: Address already in use")), "{error:?}");
}

/// A sender waits while the topology cannot write: the bytes under way are bounded.
#[test]
fn a_sender_waits_for_the_topology() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    let address = free_address();
    session
        .execute(&format!(
            "CREATE SOURCE lines (id INT NOT NULL, note VARCHAR) WITH (connector = 'tcp', listen = '{address}') FORMAT PLAIN ENCODE JSON;
             CREATE TABLE slow (id INT, notes BIGINT);
             CREATE TOPOLOGY follow COMMIT EACH ROW AS (INSERT INTO slow SELECT id, length(note) FROM lines)"
        ))
        .unwrap();
    let mut sender = connect(&address);
    sender.set_nonblocking(true).unwrap();
    let line = format!("{{\"id\": 1, \"note\": \"{}\"}}\n", "x".repeat(10_000)).into_bytes();
    let (mut lines, mut at, mut waited) = (0_u64, 0, false);
    let begun = Instant::now();
    // The sockets of the system hold some megabytes, the queue 4 batches.
    while lines < 20_000 && !waited {
        assert!(begun.elapsed() < Duration::from_secs(60), "{lines}");
        match sender.write(&line[at..]) {
            Ok(written) => at += written,
            Err(error) if error.kind() == ErrorKind::WouldBlock => waited = true,
            Err(error) => panic!("{error}"),
        }
        if at == line.len() {
            (at, lines) = (0, lines + 1);
        }
    }
    assert!(waited, "200 MB were taken at once");
    sender.set_nonblocking(false).unwrap();
    sender.write_all(&line[at..]).unwrap();
    drop(sender);
    wait_for(&mut session, "SELECT count(*) FROM slow", &(lines + 1).to_string());
    assert_eq!(rows(&mut session, "SELECT min(notes), max(notes) FROM slow"), [["10000", "10000"]]);
}

#[test]
fn a_source_that_connects_ends_with_its_connection_or_makes_another() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    follow(&mut session, &format!("connect = '{address}'"), "FORMAT PLAIN ENCODE CSV");
    let (mut stream, _) = listener.accept().unwrap();
    stream.write_all(b"1,one\n2,two\n").unwrap();
    drop(stream);
    wait_for_end(&mut session, "follow");
    assert_eq!(rows(&mut session, "SELECT count(*) FROM stored")[0], ["2"]);
    session.execute("DROP TOPOLOGY follow; DROP TABLE stored; DROP SOURCE lines; DROP TABLE bad").unwrap();
    drop(listener);

    follow(&mut session, &format!("connect = '{address}'"), "");
    wait_for(&mut session, "SELECT state FROM entresol.topologies", "failed");
    let error = rows(&mut session, "SELECT error FROM entresol.topologies");
    assert!(error[0][0].contains(&format!("tcp {address}: Connection refused")), "{error:?}");
    session.execute("DROP TOPOLOGY follow; DROP TABLE stored; DROP SOURCE lines; DROP TABLE bad").unwrap();

    follow(&mut session, &format!("connect = '{address}', retry = '10 milliseconds'"), "");
    let listener = TcpListener::bind(address).unwrap();
    for line in ["3,three\n", "4,four\n"] {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(line.as_bytes()).unwrap();
    }
    wait_for(&mut session, "SELECT count(*) FROM stored", "2");
    assert_eq!(rows(&mut session, "SELECT state FROM entresol.topologies"), [["running"]]);
    for (options, expected) in [
        ("connector = 'tcp'", "needs the option \"listen\" or \"connect\""),
        ("connector = 'tcp', listen = 'a:1', connect = 'b:1'", "needs the option \"listen\" or \"connect\""),
        ("connector = 'tcp', listen = 'a:1', retry = '1 s'", "unrecognized option \"retry\""),
    ] {
        let sql = format!("CREATE SOURCE s (a INT) WITH ({options})");
        let error = session.execute(&sql).unwrap_err().to_string();
        assert!(error.contains(expected), "{options}: {error}");
    }
}
