//! Bytes that are no protocol: their sender gets an error or is dropped, its neighbour notices nothing.

use crate::raw::{Raw, extended, message, startup};
use crate::support::{PATIENCE, Served, one, options};
use entresol_server::Limits;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A small generator: the same bytes in each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }
}

/// A session as clients have it, with a few bytes changed.
fn mutated(random: &mut Random) -> Vec<u8> {
    let mut bytes = startup(&[("user", "fuzz"), ("database", "x")]);
    let after = bytes.len();
    bytes.extend(message('Q', b"SELECT 1; SELECT 'a'\0"));
    bytes.extend(message('P', b"s\0SELECT $1 + 1\0\0\x01\0\0\0\x17"));
    bytes.extend(message('B', b"p\0s\0\0\x01\0\x01\0\x01\0\0\0\x04\0\0\0\x07\0\x01\0\x01"));
    bytes.extend(message('D', b"Pp\0"));
    bytes.extend(message('E', b"p\0\0\0\0\x01"));
    bytes.extend(message('S', b""));
    bytes.extend(extended("SELECT value FROM generate_series(1, 10)"));
    bytes.extend(message('C', b"Ss\0"));
    bytes.extend(message('S', b""));
    bytes.extend(message('Q', b"COPY t FROM STDIN\0"));
    bytes.extend(message('d', b"1000\t1\n1001\t"));
    bytes.extend(message('d', b"2\n"));
    bytes.extend(message('f', b"the client has changed its mind\0"));
    bytes.extend(message('Q', b"BEGIN; INSERT INTO t VALUES (2000, 1)\0"));
    for _ in 0..=random.below(4) {
        // Most of the time the part after the start, so that it is reached.
        let from = if random.below(8) == 0 { 0 } else { after };
        let at = from + random.below(bytes.len() - from);
        match random.below(3) {
            0 => bytes[at] = random.next() as u8,
            1 => bytes.truncate(at),
            _ => {
                let garbage = random.bytes(5);
                bytes.splice(at..at, garbage);
            }
        }
        if bytes.len() <= after {
            break;
        }
    }
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn random_bytes_hurt_no_other_connection() {
    let limits = Limits { startup: Duration::from_millis(500), connections: 400, ..Limits::default() };
    let served = Served::with(entresol_server::ServerOptions { limits, ..options() }).await;
    let neighbour = served.client().await;
    neighbour
        .batch_execute("CREATE TABLE t (id INT PRIMARY KEY, n INT); INSERT INTO t VALUES (1, 1)")
        .await
        .unwrap();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut offenders = Vec::new();
    for case in 0..300 {
        let bytes = match case % 3 {
            0 => {
                let length = random.below(400);
                random.bytes(length)
            }
            _ => mutated(&mut random),
        };
        let address = served.address;
        offenders.push(tokio::spawn(async move {
            let mut raw = Raw::open(address).await;
            // The server may hang up before everything is sent.
            let _ = raw.socket.write_all(&bytes).await;
            let _ = raw.socket.shutdown().await;
            let mut answer = Vec::new();
            let read = tokio::time::timeout(PATIENCE, raw.socket.read_to_end(&mut answer)).await;
            assert!(read.is_ok(), "case {case}: the connection stays open");
        }));
        if case % 10 == 0 {
            assert_eq!(one(&neighbour, "SELECT n FROM t WHERE id = 1").await, "1");
        }
    }
    for offender in offenders {
        offender.await.unwrap();
    }
    // Their writes were never committed: but for the COPY, whose last word may have been mutated.
    assert_eq!(one(&neighbour, "SELECT n FROM t WHERE id = 1").await, "1");
    assert_eq!(one(&neighbour, "SELECT count(*) FROM t WHERE id >= 2000").await, "0");
    neighbour.batch_execute("INSERT INTO t VALUES (2000, 1)").await.unwrap();
    served
        .eventually("they are gone", |counts| counts.connections == 1 && counts.open_transactions == 0)
        .await;
    drop(neighbour);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_connections_get_an_answer() {
    let limits = Limits { connections: 50, ..Limits::default() };
    let served = Served::with(entresol_server::ServerOptions { limits, ..options() }).await;
    let neighbour = served.client().await;
    let mut open = Vec::new();
    for _ in 0..1000 {
        open.push(Raw::open(served.address).await);
    }
    let start = Instant::now();
    assert_eq!(one(&neighbour, "SELECT 1").await, "1");
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    let mut refused = 0;
    let hello = startup(&[("user", "many")]);
    for raw in &mut open {
        let _ = raw.socket.write_all(&hello).await;
    }
    // Every one is told that there are too many, or dropped, or connected: at most as many as there is room
    // for.
    let mut connected = 0;
    for raw in &mut open {
        match raw.next().await {
            Some(('R', _)) => connected += 1,
            Some(('E', body)) => {
                assert!(body.windows(5).any(|code| code == b"53300"));
                refused += 1;
            }
            _ => {}
        }
    }
    assert!(connected <= 49 && refused > 0, "{connected} connected, {refused} refused");
    assert_eq!(one(&neighbour, "SELECT 1").await, "1");
    drop(open);
    served.eventually("they are gone", |counts| counts.connections == 1).await;
    drop(neighbour);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_connections_are_served_and_leave_nothing() {
    let limits = Limits { connections: 1001, startup: PATIENCE, ..Limits::default() };
    let served = Served::with(entresol_server::ServerOptions { limits, ..options() }).await;
    let neighbour = served.client().await;
    neighbour.batch_execute("CREATE TABLE t (id INT PRIMARY KEY)").await.unwrap();
    let mut open = Vec::new();
    for _ in 0..20 {
        let starting = (0..50).map(|_| Raw::start(served.address));
        open.extend(futures::future::join_all(starting).await);
    }
    // A connection is counted shortly after its client was told that it is ready.
    served.eventually("all count", |counts| counts.connections == 1001).await;
    let mut refused = Raw::open(served.address).await;
    refused.send(&startup(&[("user", "one too many")])).await;
    assert_eq!(crate::raw::shorts(&refused.until_ready().await), ["E FATAL 53300"]);
    // All have a transaction open, and all are answered at once.
    let begin = message('Q', b"BEGIN\0");
    for (id, raw) in open.iter_mut().enumerate() {
        raw.send(&begin).await;
        raw.send(&message('Q', format!("INSERT INTO t VALUES ({id})\0").as_bytes())).await;
    }
    for raw in &mut open {
        assert_eq!(raw.until_ready().await.len(), 2);
        assert_eq!(crate::raw::shorts(&raw.until_ready().await), ["C INSERT 0 1", "Z T"]);
    }
    assert_eq!(served.counts().open_transactions, 1000);
    // Half of them commit, the others vanish.
    for raw in open.iter_mut().step_by(2) {
        assert_eq!(raw.query("COMMIT").await, ["C COMMIT", "Z I"]);
    }
    drop((open, refused));
    served
        .eventually("they are gone", |counts| counts.connections == 1 && counts.open_transactions == 0)
        .await;
    assert_eq!(one(&neighbour, "SELECT count(*) FROM t").await, "500");
    served.memory_is_back().await;
    drop(neighbour);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn too_large_or_too_deep_input_has_its_code() {
    let limits = Limits { packet_bytes: 1 << 20, ..Limits::default() };
    let served = Served::with(entresol_server::ServerOptions { limits, ..options() }).await;
    let neighbour = served.client().await;
    neighbour.batch_execute("CREATE TABLE t (id INT PRIMARY KEY, s VARCHAR)").await.unwrap();
    let mut raw = Raw::start(served.address).await;
    let deep = format!("SELECT {}1{}", "(".repeat(10_000), ")".repeat(10_000));
    assert_eq!(raw.query(&deep).await, ["E ERROR 54001", "Z I"]);
    let long = format!("INSERT INTO t VALUES (1, '{}')", "x".repeat(900_000));
    let answer = raw.query(&long).await;
    assert!(matches!(answer[0].as_str(), "E ERROR 54000" | "C INSERT 0 1"), "{answer:?}");
    // A value that claims more than a packet may have, in the middle of a COPY.
    raw.send(&message('Q', b"COPY t FROM STDIN\0")).await;
    raw.send(&message('d', b"2\tx\n")).await;
    raw.send(&[b'd', 0x7f, 0xff, 0xff, 0xff]).await;
    assert_eq!(crate::raw::shorts(&raw.until_ready().await), ["G", "E FATAL 08P01"]);
    assert_eq!(one(&neighbour, "SELECT count(*) FROM t WHERE id = 2").await, "0");
    // A first packet that is longer than any.
    let mut raw = Raw::open(served.address).await;
    raw.send(&[0, 1, 0, 0, 0, 3, 0, 0]).await;
    assert_eq!(crate::raw::shorts(&raw.until_ready().await), ["E FATAL 08P01"]);
    drop(raw);
    served.eventually("they are gone", |counts| counts.connections == 1).await;
    drop(neighbour);
    served.stop().await;
}

/// Nested joins share one budget of the runtime's cooperative scheduling.
#[tokio::test(flavor = "multi_thread")]
async fn the_leaves_of_many_joins_get_their_turn() {
    let served = Served::start().await;
    let client = served.client().await;
    client.batch_execute("CREATE TABLE one (id INT PRIMARY KEY); INSERT INTO one VALUES (1)").await.unwrap();
    let joins: String = (1..150).map(|at| format!(" JOIN one t{at} ON t{at}.id = t0.id")).collect();
    assert_eq!(one(&client, &format!("SELECT count(*) FROM one t0{joins}")).await, "1");
    drop(client);
    served.stop().await;
}

/// Expressions nested by repetition alone, without parentheses: the deepest trees that query texts produce.
#[tokio::test(flavor = "multi_thread")]
async fn chains_are_bounded_by_their_length() {
    let served = Served::start().await;
    let neighbour = served.client().await;
    let mut raw = Raw::start(served.address).await;
    for (first, link) in [
        ("SELECT 1", "+1"),
        ("SELECT true", " AND true"),
        ("SELECT 'a'", "||'a'"),
        ("SELECT 1", "::int"),
        ("SELECT true", " IS TRUE"),
        ("SELECT 1", "!"),
        ("SELECT 1", " UNION ALL SELECT 1"),
        ("SELECT 1, 2", " EXCEPT SELECT 1, 2"),
    ] {
        let text = |links: usize| format!("{first}{}", link.repeat(links));
        let links = if link.contains("SELECT") { 50 } else { 400 };
        let answer = raw.query(&text(links)).await;
        assert!(link == "!" || !answer[0].starts_with('E'), "{links} times {link}: {answer:?}");
        for links in [20_000, 200_000] {
            assert_eq!(raw.query(&text(links)).await, ["E ERROR 54001", "Z I"], "{links} times {link}");
        }
    }
    // As long, and not deep.
    let rows = format!("SELECT count(*) FROM (VALUES (1+1){}) AS v", ",(1+1)".repeat(20_000));
    assert!(!raw.query(&rows).await[0].starts_with('E'));
    assert_eq!(one(&neighbour, "SELECT 1").await, "1");
    drop((raw, neighbour));
    served.stop().await;
}
