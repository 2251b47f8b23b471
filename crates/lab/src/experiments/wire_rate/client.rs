//! A client that costs little: its messages are bytes, and of the answers it looks at what it has to.

use super::DEPTH;
use crate::measure::Random;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// Kind of statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StatementKind {
    /// `SELECT v FROM t WHERE id = …`
    Read,
    /// `UPDATE t SET v = v + 1 WHERE id = …`
    Update,
}

impl StatementKind {
    pub(super) fn verb(self) -> &'static str {
        match self {
            StatementKind::Read => "SELECT",
            StatementKind::Update => "UPDATE",
        }
    }

    fn sql(self, key: &str) -> String {
        match self {
            StatementKind::Read => format!("SELECT v FROM t WHERE id = {key}"),
            StatementKind::Update => format!("UPDATE t SET v = v + 1 WHERE id = {key}"),
        }
    }
}

/// Sub-protocol of the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    /// As text, one after the other.
    Simple,
    /// Prepared once, then Bind, Execute, Sync, one after the other.
    Prepared,
    /// The same, [`DEPTH`] of them before the first answer is read.
    Pipelined,
}

impl Protocol {
    pub(super) fn name(self) -> &'static str {
        match self {
            Protocol::Simple => "simple",
            Protocol::Prepared => "prepared",
            Protocol::Pipelined => "pipelined",
        }
    }

    pub(super) fn depth(self) -> usize {
        match self {
            Protocol::Pipelined => DEPTH,
            Protocol::Simple | Protocol::Prepared => 1,
        }
    }
}

pub(super) struct Client {
    socket: TcpStream,
    random: Random,
    rows: u64,
    work: StatementKind,
    protocol: Protocol,
    output: Vec<u8>,
    input: Vec<u8>,
    keys: Vec<u64>,
}

fn message(kind: u8, body: &[u8], out: &mut Vec<u8>) {
    out.push(kind);
    // Nothing here is long.
    out.extend((body.len() as u32 + 4).to_be_bytes());
    out.extend_from_slice(body);
}

fn wrong(what: impl Into<String>) -> io::Error {
    io::Error::other(what.into())
}

impl Client {
    pub(super) fn connect(
        address: SocketAddr,
        rows: u64,
        seed: u64,
        (work, protocol): (StatementKind, Protocol),
    ) -> io::Result<Client> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        let mut output = b"\0\0\0\x12\0\x03\0\0user\0lab\0\0".to_vec();
        output[3] = output.len() as u8;
        message(b'P', format!("s\0{}\0\0\0", work.sql("$1")).as_bytes(), &mut output);
        message(b'S', b"", &mut output);
        let mut client = Client {
            socket,
            random: Random::new(seed),
            rows,
            work,
            protocol,
            output,
            input: Vec::new(),
            keys: Vec::new(),
        };
        client.socket.write_all(&client.output)?;
        client.answers(2)?;
        client.run(1)?;
        Ok(client)
    }

    /// Sends so many statements and checks their answers.
    pub(super) fn run(&mut self, count: usize) -> io::Result<()> {
        self.output.clear();
        self.keys.clear();
        for _ in 0..count {
            let key = self.random.below(self.rows);
            self.keys.push(key);
            if self.protocol == Protocol::Simple {
                message(b'Q', format!("{}\0", self.work.sql(&key.to_string())).as_bytes(), &mut self.output);
                continue;
            }
            // The value in binary, and the result.
            let mut body = b"\0s\0\0\x01\0\x01\0\x01\0\0\0\x08".to_vec();
            body.extend(key.to_be_bytes());
            body.extend(b"\0\x01\0\x01");
            message(b'B', &body, &mut self.output);
            message(b'E', b"\0\0\0\0\0", &mut self.output);
            message(b'S', b"", &mut self.output);
        }
        self.socket.write_all(&self.output)?;
        let answered = self.answers(count)?;
        if answered == count {
            Ok(())
        } else {
            Err(wrong(format!("{answered} answers to {count} statements")))
        }
    }

    /// Reads up to so many ReadyForQuery; returns how many rows came, or were changed.
    fn answers(&mut self, count: usize) -> io::Result<usize> {
        let (mut ready, mut answered, mut at) = (0, 0, 0);
        self.input.clear();
        let mut chunk = [0; 64 << 10];
        while ready < count {
            while let Some(&[kind, a, b, c, d]) = self.input.get(at..at + 5) {
                let end = at + 1 + u32::from_be_bytes([a, b, c, d]) as usize;
                let Some(body) = self.input.get(at + 5..end) else { break };
                match kind {
                    b'D' => {
                        let key =
                            self.keys.get(answered).ok_or_else(|| wrong("a row that was not asked for"))?;
                        self.check(*key, body)?;
                        answered += 1;
                    }
                    b'C' if body == b"UPDATE 1\0" => answered += 1,
                    b'E' => return Err(wrong(String::from_utf8_lossy(body))),
                    b'Z' => ready += 1,
                    _ => {}
                }
                at = end;
            }
            if ready < count {
                let read = self.socket.read(&mut chunk)?;
                if read == 0 {
                    return Err(wrong("the server has gone"));
                }
                self.input.extend_from_slice(&chunk[..read]);
            }
        }
        Ok(answered)
    }

    /// A row of one value: two bytes of count and four of length stand before it.
    fn check(&self, key: u64, body: &[u8]) -> io::Result<()> {
        let value = &body[6..];
        let value = match self.protocol {
            Protocol::Simple => std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()),
            _ => value.try_into().ok().map(u64::from_be_bytes),
        };
        if value == Some(key * 3) { Ok(()) } else { Err(wrong(format!("key {key} has {value:?}"))) }
    }
}
