//! Point SELECTs by key over the wire: one by one, and pipelined on two connections.
//!
//! `cargo run -p entresol-server --example point_reads [ROWS] [SECONDS]`. Client and server share the machine, so both
//! are paid for. Every answer is counted and its value checked.
#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use entresol::{Database, Options};
use entresol_server::{Server, ServerOptions};
use tokio::sync::oneshot;

/// Statements that are sent before the first answer is read.
const DEPTH: usize = 128;

struct Client {
    socket: TcpStream,
    random: u64,
    rows: u64,
    input: Vec<u8>,
}

fn message(kind: u8, body: &[u8], out: &mut Vec<u8>) {
    out.push(kind);
    out.extend((body.len() as u32 + 4).to_be_bytes());
    out.extend_from_slice(body);
}

impl Client {
    fn connect(address: SocketAddr, rows: u64, seed: u64) -> Client {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.set_nodelay(true).unwrap();
        let mut bytes = b"\0\0\0\x11\0\x03\0\0user\0me\0\0".to_vec();
        message(b'P', b"s\0SELECT v FROM t WHERE id = $1\0\0\0", &mut bytes);
        message(b'S', b"", &mut bytes);
        socket.write_all(&bytes).unwrap();
        let mut client = Client { socket, random: seed | 1, rows, input: Vec::new() };
        client.answers(2, &[]);
        client
    }

    /// Sends `count` reads and checks their answers.
    fn reads(&mut self, count: usize) {
        let mut bytes = Vec::with_capacity(count * 64);
        let mut keys = Vec::with_capacity(count);
        for _ in 0..count {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            let key = (self.random % self.rows) as i64;
            keys.push(key);
            // Value and result in binary.
            let mut body = b"\0s\0\0\x01\0\x01\0\x01\0\0\0\x08".to_vec();
            body.extend(key.to_be_bytes());
            body.extend(b"\0\x01\0\x01");
            message(b'B', &body, &mut bytes);
            message(b'E', b"\0\0\0\0\0", &mut bytes);
            message(b'S', b"", &mut bytes);
        }
        self.socket.write_all(&bytes).unwrap();
        self.answers(count, &keys);
    }

    /// Reads up to so many ReadyForQuery.
    fn answers(&mut self, count: usize, keys: &[i64]) {
        let (mut ready, mut row, mut at) = (0, 0, 0);
        self.input.clear();
        let mut chunk = [0; 64 << 10];
        while ready < count {
            while let Some(header) = self.input.get(at..at + 5) {
                let length = u32::from_be_bytes(header[1..].try_into().unwrap()) as usize;
                let kind = header[0];
                let Some(body) = self.input.get(at + 5..at + 1 + length) else { break };
                match kind {
                    b'D' => {
                        // Two bytes of count, four of length.
                        let value = i64::from_be_bytes(body[6..14].try_into().unwrap());
                        assert_eq!(value, keys[row] * 3);
                        row += 1;
                    }
                    b'E' => panic!("{}", String::from_utf8_lossy(body)),
                    b'Z' => ready += 1,
                    _ => {}
                }
                at += 1 + length;
            }
            if ready < count {
                let read = self.socket.read(&mut chunk).unwrap();
                assert!(read > 0, "the server has gone");
                self.input.extend_from_slice(&chunk[..read]);
            }
        }
        assert_eq!(row, keys.len());
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>().unwrap());
    let rows = arguments.next().unwrap_or(100_000);
    let time = Duration::from_secs(arguments.next().unwrap_or(3));
    let db = Database::volatile(Options::default()).unwrap();
    let mut session = db.session().unwrap();
    session.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)").unwrap();
    session
        .execute(&format!("INSERT INTO t SELECT value, value * 3 FROM generate_series(0, {})", rows - 1))
        .unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let options = ServerOptions { listen: SocketAddr::from(([127, 0, 0, 1], 0)), ..ServerOptions::default() };
    let server = runtime.block_on(Server::bind(db, options)).unwrap();
    let address = server.address().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let served = runtime.spawn(server.run(async {
        let _ = stopped.await;
    }));

    let mut client = Client::connect(address, rows, 1);
    client.reads(1000);
    let start = Instant::now();
    let mut took = Vec::new();
    while start.elapsed() < time {
        let one = Instant::now();
        client.reads(1);
        took.push(one.elapsed());
    }
    took.sort();
    let micros = |at: usize| took[at].as_secs_f64() * 1e6;
    println!(
        "one by one: {:.0}/s, p50 {:.1} us, p99 {:.1} us",
        took.len() as f64 / start.elapsed().as_secs_f64(),
        micros(took.len() / 2),
        micros(took.len() * 99 / 100)
    );
    drop(client);

    let threads: Vec<_> = (0..2)
        .map(|seed| {
            std::thread::spawn(move || {
                let mut client = Client::connect(address, rows, seed * 77 + 5);
                let start = Instant::now();
                let mut done = 0;
                while start.elapsed() < time {
                    client.reads(DEPTH);
                    done += DEPTH;
                }
                done as f64 / start.elapsed().as_secs_f64()
            })
        })
        .collect();
    let rates: Vec<f64> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    println!("pipelined, 2 connections, {DEPTH} deep: {:.0}/s", rates.iter().sum::<f64>());
    let _ = stop.send(());
    runtime.block_on(served).unwrap();
}
