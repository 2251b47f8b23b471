//! What the port does with bytes before anybody is asked for a password, and with messages of clients that are
//! believed: for fuzzers, and for the test here, which does the same with fewer bytes.
//!
//! `cargo fuzz run wire` in `fuzz/` looks for bytes that make it panic, run for ever, or take memory that nobody sent.

use bytes::BytesMut;

use crate::wire::frontend::{self, Bind, First, Frontend};
use crate::wire::split::split;

/// The longest packet.
const PACKET_BYTES_MAX: usize = 1 << 16;

/// Takes bytes as those of a connection from its first on. Returns how many messages they were.
pub fn connection(bytes: &[u8]) -> usize {
    let mut input = BytesMut::from(bytes);
    loop {
        match frontend::next_first(&mut input) {
            Ok(Some(First::Ssl | First::GssEncryption)) => {}
            Ok(Some(First::Startup { parameters, .. })) => {
                assert!(parameters.len() <= frontend::FIRST_BYTES_MAX, "as many as there are bytes for");
                for (name, value) in &parameters {
                    if name == "options" {
                        crate::session::settings::options(value);
                    }
                }
                break;
            }
            Ok(Some(First::Cancel { .. }) | None) | Err(_) => return 0,
        }
    }
    let mut count = 0;
    while let Ok(Some(packet)) = frontend::next_packet(&mut input, PACKET_BYTES_MAX) {
        let sent = packet.1.len();
        let Ok(message) = frontend::decode(packet) else { return count };
        look(&message, sent);
        count += 1;
    }
    count
}

/// What is in a message was sent.
fn look(message: &Frontend, sent: usize) {
    match message {
        Frontend::Query(sql) | Frontend::Parse { sql, .. } => {
            assert!(sql.len() <= sent);
            for piece in split(sql) {
                assert!(sql[piece.at..].starts_with(piece.sql));
                crate::session::fuzz_shape(piece.sql);
            }
        }
        Frontend::Bind(Bind { values, formats, results, .. }) => {
            let bytes: usize = values.iter().flatten().map(|value| value.len()).sum();
            assert!(bytes + 4 * values.len() + 2 * (formats.len() + results.len()) <= sent);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![kind];
        bytes.extend((body.len() as u32 + 4).to_be_bytes());
        bytes.extend_from_slice(body);
        bytes
    }

    /// What clients say when they mean well.
    fn valid() -> Vec<u8> {
        let mut bytes = b"\0\0\0\x27\0\x03\0\0user\0me\0options\0-c a=b --c=d\0\0".to_vec();
        bytes[3] = bytes.len() as u8;
        bytes.extend(message(
            b'Q',
            b"SELECT 'a;', $$;$$ -- ;\n; /* /* */ */ UPDATE t SET v = 1 WHERE id = 5\0",
        ));
        bytes.extend(message(b'P', b"s\0SELECT $1 + 1\0\0\x01\0\0\0\x17"));
        bytes.extend(message(
            b'B',
            b"p\0s\0\0\x01\0\x01\0\x02\0\0\0\x04\0\0\0\x07\xff\xff\xff\xff\0\x01\0\x01",
        ));
        bytes.extend(message(b'D', b"Pp\0"));
        bytes.extend(message(b'E', b"p\0\0\0\0\x01"));
        bytes.extend(message(b'S', b""));
        bytes.extend(message(b'Q', b"COPY t FROM STDIN\0"));
        bytes.extend(message(b'd', b"1\t2\n"));
        bytes.extend(message(b'f', b"no\0"));
        bytes.extend(message(b'c', b""));
        bytes.extend(message(b'C', b"Ss\0"));
        bytes.extend(message(b'X', b""));
        bytes
    }

    #[test]
    fn mutated_conversations_are_messages_or_refused() {
        assert_eq!(connection(&valid()), 12);
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut below = |bound: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random % bound as u64) as usize
        };
        let (mut messages, mut whole) = (0, 0);
        for _ in 0..30_000 {
            let mut bytes = valid();
            for _ in 0..=below(6) {
                let at = below(bytes.len());
                match below(5) {
                    0 => bytes[at] = below(256) as u8,
                    1 => bytes[at] ^= 1 << below(8),
                    2 => bytes.truncate(at + 1),
                    3 => {
                        bytes.insert(at, below(256) as u8);
                    }
                    _ => {
                        let end = (at + below(40)).min(bytes.len());
                        let copied = bytes[at..end].to_vec();
                        bytes.splice(at..at, copied);
                    }
                }
            }
            let count = connection(&bytes);
            messages += count;
            whole += usize::from(count >= 12);
        }
        // Most are broken somewhere; what stands before that is looked at.
        assert!(messages > 30_000 && whole > 100, "{messages} messages, {whole} whole conversations");
    }
}
