//! Bytes that are no protocol: the offender gets an error or is dropped, its neighbour notices nothing.

use std::time::{Duration, Instant};

use entresol_server::Limits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::raw::{Raw, extended, message, startup};
use crate::support::{PATIENCE, Served, one, options};

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
    for _ in 0..=random.below(4) {
        // Most of the time what comes after the start, so that it is looked at.
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
async fn random_bytes_hurt_nobody_else() {
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
    assert_eq!(one(&neighbour, "SELECT n FROM t WHERE id = 1").await, "1");
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
    // Every one is told that there are too many, or dropped, or connected: at most as many as there is room for.
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
