//! Decoding of untrusted input from clients: for fuzzers, which search for bytes that make it panic, run for
//! ever, or take memory for data that was not sent; and for the tests here, which do the same with fewer
//! bytes.
//!
//! | function | input | property |
//! | --- | --- | --- |
//! | [`connection`] | all bytes of a connection | message contents were sent |
//! | [`statement`] | query text | it is split into parts of what was sent |
//! | [`value`] | a value of a parameter, and its type | it is of its type; written, it reads as the same |
//! | [`binary_copy`] | the data of a binary COPY | pieces give the same rows as all at once; written, they read as the
//! same |
//!
//! Each has `seeds` to begin with. `make fuzz` runs them under libFuzzer (`fuzz/`).

mod copy;
mod texts;
mod values;

use crate::security::scram::{Exchange, Verifier};
use crate::session::settings;
use crate::startup;
use crate::wire::frontend::{self, Bind, FirstPacket, Frontend};
use bytes::BytesMut;

pub use copy::binary_copy;
pub use texts::statement;
pub use values::value;

/// The longest packet.
const PACKET_BYTES_MAX: usize = 1 << 16;

/// Inputs to begin with, by the name of the function that takes them.
pub fn seeds(of: &str) -> Vec<Vec<u8>> {
    match of {
        "connection" => conversations(),
        "statement" => texts::seeds(),
        "value" => values::seeds(),
        "binary_copy" => copy::seeds(),
        other => panic!("nothing takes seeds of {other}"),
    }
}

/// Takes bytes as those of a connection from its first on. Returns the number of messages.
pub fn connection(bytes: &[u8]) -> usize {
    let mut input = BytesMut::from(bytes);
    loop {
        match frontend::next_first(&mut input) {
            Ok(Some(FirstPacket::Ssl | FirstPacket::GssEncryption)) => {}
            Ok(Some(FirstPacket::Startup { parameters, .. })) => {
                assert!(parameters.len() <= frontend::FIRST_BYTES_MAX, "as many as there are bytes for");
                for (name, value) in &parameters {
                    if name == "options" {
                        settings::options(value);
                    }
                }
                break;
            }
            Ok(Some(FirstPacket::Cancel { .. }) | None) | Err(_) => return 0,
        }
    }
    let mut count = 0;
    let mut exchange = None;
    while let Ok(Some(packet)) = frontend::next_packet(&mut input, PACKET_BYTES_MAX) {
        let sent = packet.1.len();
        let Ok(message) = frontend::decode(packet) else { return count };
        match message {
            Frontend::Password(bytes) => exchange = authentication(exchange, bytes),
            message => assert_sent(&message, sent),
        }
        count += 1;
    }
    count
}

/// A step of SCRAM: the first if none was done.
fn authentication(exchange: Option<Exchange>, bytes: bytes::Bytes) -> Option<Exchange> {
    match exchange {
        None => {
            let first = startup::sasl_initial(bytes).ok()?;
            let verifier = Verifier::made_up("unknown", b"secret");
            Exchange::begin(verifier, &first, "nonce").ok().map(|(exchange, _)| exchange)
        }
        Some(exchange) => {
            let last = std::str::from_utf8(&bytes).ok()?;
            assert!(!matches!(exchange.finish(last), Ok(Some(_))), "no password fits");
            None
        }
    }
}

/// Asserts that the contents of a message were sent.
fn assert_sent(message: &Frontend, sent: usize) {
    match message {
        Frontend::Query(sql) | Frontend::Parse { sql, .. } => {
            assert!(sql.len() <= sent);
            texts::assert_split(sql);
        }
        Frontend::Bind(Bind { values, formats, results, .. }) => {
            let bytes: usize = values.iter().flatten().map(|value| value.len()).sum();
            assert!(bytes + 4 * values.len() + 2 * (formats.len() + results.len()) <= sent);
        }
        _ => {}
    }
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind];
    bytes.extend((body.len() as u32 + 4).to_be_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// Well-formed conversations, without and with a password.
fn conversations() -> Vec<Vec<u8>> {
    let mut start = b"\0\0\0\x27\0\x03\0\0user\0me\0options\0-c a=b --c=d\0\0".to_vec();
    start[3] = start.len() as u8;
    let mut bytes = start.clone();
    bytes.extend(message(b'Q', b"SELECT 'a;', $$;$$ -- ;\n; /* /* */ */ UPDATE t SET v = 1 WHERE id = 5\0"));
    bytes.extend(message(b'P', b"s\0SELECT $1 + 1\0\0\x01\0\0\0\x17"));
    bytes.extend(message(b'B', b"p\0s\0\0\x01\0\x01\0\x02\0\0\0\x04\0\0\0\x07\xff\xff\xff\xff\0\x01\0\x01"));
    bytes.extend(message(b'D', b"Pp\0"));
    bytes.extend(message(b'E', b"p\0\0\0\0\x01"));
    bytes.extend(message(b'S', b""));
    bytes.extend(message(b'Q', b"COPY t FROM STDIN\0"));
    bytes.extend(message(b'd', b"1\t2\n"));
    bytes.extend(message(b'f', b"no\0"));
    bytes.extend(message(b'c', b""));
    bytes.extend(message(b'C', b"Ss\0"));
    bytes.extend(message(b'X', b""));
    let mut password = b"\0\0\0\x08\x04\xd2\x16\x2f".to_vec();
    password.extend(&start);
    password.extend(message(b'p', b"SCRAM-SHA-256\0\0\0\0\x0cn,,n=,r=abcd"));
    password.extend(message(b'p', b"c=biws,r=abcdnonce,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="));
    password.extend(message(b'H', b""));
    vec![bytes, password]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same numbers in each run.
    pub(super) struct Random(u64);

    impl Random {
        pub(super) fn below(&mut self, bound: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 % bound as u64) as usize
        }
    }

    /// Seeds with a few bytes changed, `count` of each.
    pub(super) fn mutated(of: &str, count: usize, mut take: impl FnMut(&[u8])) {
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        for seed in seeds(of) {
            take(&seed);
            for _ in 0..count {
                let mut bytes = seed.clone();
                for _ in 0..=random.below(6) {
                    mutate(&mut bytes, &mut random);
                }
                take(&bytes);
            }
        }
    }

    fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
        let at = random.below(bytes.len());
        match random.below(5) {
            0 => bytes[at] = random.below(256) as u8,
            1 => bytes[at] ^= 1 << random.below(8),
            2 => bytes.truncate(at + 1),
            3 => bytes.insert(at, random.below(256) as u8),
            _ => {
                let end = (at + random.below(40)).min(bytes.len());
                let copied = bytes[at..end].to_vec();
                bytes.splice(at..at, copied);
            }
        }
    }

    #[test]
    fn mutated_conversations_are_messages_or_refused() {
        let whole: Vec<usize> = conversations().iter().map(|bytes| connection(bytes)).collect();
        assert_eq!(whole, [12, 3]);
        let (mut messages, mut long) = (0, 0);
        mutated("connection", 15_000, |bytes| {
            let count = connection(bytes);
            messages += count;
            long += usize::from(count >= 12);
        });
        // Most are broken somewhere; the messages before that are checked.
        assert!(messages > 30_000 && long > 100, "{messages} messages, {long} whole conversations");
    }

    #[test]
    fn mutated_statements_values_and_rows_are_read_or_refused() {
        let mut statements = 0;
        mutated("statement", 300, |bytes| statements += statement(bytes));
        assert!(statements > 1000, "{statements} statements");
        let mut values = 0;
        mutated("value", 100, |bytes| values += usize::from(value(bytes)));
        assert!(values > 500, "{values} values");
        let mut rows = 0;
        mutated("binary_copy", 2000, |bytes| rows += binary_copy(bytes));
        assert!(rows > 1000, "{rows} rows");
    }
}
