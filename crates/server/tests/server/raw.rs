//! A client that sees every message.

use crate::support::PATIENCE;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub(crate) struct Raw {
    pub(crate) socket: TcpStream,
}

/// A message of the server: its type and its body.
pub(crate) type Message = (char, Vec<u8>);

pub(crate) fn startup(parameters: &[(&str, &str)]) -> Vec<u8> {
    let mut body = 196_608u32.to_be_bytes().to_vec();
    for (name, value) in parameters {
        body.extend_from_slice(format!("{name}\0{value}\0").as_bytes());
    }
    body.push(0);
    let mut packet = (body.len() as u32 + 4).to_be_bytes().to_vec();
    packet.extend(body);
    packet
}

pub(crate) fn message(kind: char, body: &[u8]) -> Vec<u8> {
    let mut packet = vec![kind as u8];
    packet.extend((body.len() as u32 + 4).to_be_bytes());
    packet.extend_from_slice(body);
    packet
}

/// Parse, Bind, Execute of a statement without parameters.
pub(crate) fn extended(sql: &str) -> Vec<u8> {
    let mut bytes = message('P', format!("\0{sql}\0\0\0").as_bytes());
    bytes.extend(message('B', b"\0\0\0\0\0\0\0\0"));
    bytes.extend(message('E', b"\0\0\0\0\0"));
    bytes
}

impl Raw {
    pub(crate) async fn open(address: SocketAddr) -> Raw {
        Raw { socket: TcpStream::connect(address).await.unwrap() }
    }

    /// A client that is connected as a user.
    pub(crate) async fn start(address: SocketAddr) -> Raw {
        let mut raw = Raw::open(address).await;
        raw.send(&startup(&[("user", "test")])).await;
        let messages = raw.until_ready().await;
        assert_eq!(messages.last().unwrap(), &('Z', b"I".to_vec()));
        raw
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).await.unwrap();
    }

    /// Waits until something has been answered, and leaves it where it is.
    pub(crate) async fn answered(&self) {
        self.socket.peek(&mut [0]).await.unwrap();
    }

    /// Lets the connection be reset when it is closed: the server is not told that the client leaves.
    pub(crate) fn reset_when_closed(&self) {
        socket2::SockRef::from(&self.socket).set_linger(Some(std::time::Duration::ZERO)).unwrap();
    }

    /// The next message; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Message> {
        let read = async {
            let mut header = [0; 5];
            self.socket.read_exact(&mut header).await.ok()?;
            let length = u32::from_be_bytes(header[1..].try_into().unwrap()) as usize - 4;
            let mut body = vec![0; length];
            self.socket.read_exact(&mut body).await.ok()?;
            Some((header[0] as char, body))
        };
        tokio::time::timeout(PATIENCE, read).await.expect("an answer in time")
    }

    /// All messages up to ReadyForQuery, or to the end.
    pub(crate) async fn until_ready(&mut self) -> Vec<Message> {
        let mut messages = Vec::new();
        while let Some(message) = self.next().await {
            messages.push(message);
            if messages.last().unwrap().0 == 'Z' {
                break;
            }
        }
        messages
    }

    /// Runs a query text and returns the short form of the answer.
    pub(crate) async fn query(&mut self, sql: &str) -> Vec<String> {
        self.send(&message('Q', format!("{sql}\0").as_bytes())).await;
        shorts(&self.until_ready().await)
    }
}

/// The kinds of messages; of tags, errors and notices, their contents.
pub(crate) fn shorts(messages: &[Message]) -> Vec<String> {
    messages.iter().map(short).collect()
}

fn short((kind, body): &Message) -> String {
    match kind {
        'C' => format!("C {}", String::from_utf8_lossy(&body[..body.len() - 1])),
        'Z' => format!("Z {}", body[0] as char),
        'E' | 'N' => format!("{kind} {} {}", field(body, 'S'), field(body, 'C')),
        kind => kind.to_string(),
    }
}

/// A field of an error.
pub(crate) fn field(body: &[u8], name: char) -> String {
    let fields = body.split(|&byte| byte == 0).filter(|field| !field.is_empty());
    let mut found = fields.filter(|field| field[0] == name as u8);
    found.next().map_or_else(String::new, |field| String::from_utf8_lossy(&field[1..]).into_owned())
}
