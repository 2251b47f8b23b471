//! Messages of clients: framing and decoding.
//!
//! Bytes from a socket are untrusted until they are decoded: no length is used before it was compared with
//! the limit and with the bytes that are there, and a decoder never reads beyond its packet. Errors are
//! [`Violation`]s, after which the stream has no meaning any more and the connection ends.
//!
//! Memory: one packet, at most the bound that the caller gives; it is collected as it comes, not reserved as
//! the packet's header claims.

use bytes::{Buf, Bytes, BytesMut};

/// Bytes that are no message: the connection ends with this message and SQLSTATE 08P01.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation(pub(crate) String);

/// A message of a client after the start of the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Frontend {
    Query(String),
    Parse {
        name: String,
        sql: String,
        types: Vec<u32>,
    },
    Bind(Bind),
    Describe {
        target: Target,
        name: String,
    },
    Execute {
        portal: String,
        rows_max: u32,
    },
    Close {
        target: Target,
        name: String,
    },
    Flush,
    Sync,
    Terminate,
    /// A password, or a step of SASL.
    Password(Bytes),
    CopyData(Bytes),
    CopyDone,
    CopyFail(String),
    FunctionCall,
}

/// Values for a prepared statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bind {
    pub(crate) portal: String,
    pub(crate) statement: String,
    /// One for all, one for each, or none: text.
    pub(crate) formats: Vec<i16>,
    pub(crate) values: Vec<Option<Bytes>>,
    /// Formats of the result's columns, by the same rule.
    pub(crate) results: Vec<i16>,
}

/// Target of Describe and Close.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    Statement,
    Portal,
}

/// A packet: its type and its body.
pub(crate) type Packet = (u8, Bytes);

/// Bytes of the type and the length.
const HEADER_BYTES: usize = 5;

/// Splits the next complete packet off `input`; `None` if more bytes are needed.
pub(crate) fn next_packet(input: &mut BytesMut, bytes_max: usize) -> Result<Option<Packet>, Violation> {
    let Some(length) = peek(input, bytes_max)? else { return Ok(None) };
    let kind = input[0];
    input.advance(HEADER_BYTES);
    Ok(Some((kind, input.split_to(length).freeze())))
}

/// The type of the next packet if all of it has arrived.
pub(crate) fn next_kind(input: &BytesMut, bytes_max: usize) -> Option<u8> {
    matches!(peek(input, bytes_max), Ok(Some(_))).then(|| input[0])
}

/// Length of the next packet's body, if all of it is there.
fn peek(input: &BytesMut, bytes_max: usize) -> Result<Option<usize>, Violation> {
    let [kind, header @ ..] = &input[..] else { return Ok(None) };
    if !b"QPBDECHSXpdcfF".contains(kind) {
        return Err(Violation(format!("invalid frontend message type {kind}")));
    }
    let Some(length) = header.first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_be_bytes(*length) as usize;
    if length < 4 || length > bytes_max {
        return Err(Violation(format!("invalid message length {length}: at most {bytes_max} are allowed")));
    }
    let body = length - 4;
    Ok((header.len() - 4 >= body).then_some(body))
}

/// Decodes a packet.
pub(crate) fn decode((kind, body): Packet) -> Result<Frontend, Violation> {
    let mut body = Body(body);
    let message = match kind {
        b'Q' => Frontend::Query(body.string()?),
        b'P' => {
            let (name, sql) = (body.string()?, body.string()?);
            let types = body.list(Body::u32)?;
            Frontend::Parse { name, sql, types }
        }
        b'B' => Frontend::Bind(Bind {
            portal: body.string()?,
            statement: body.string()?,
            formats: body.list(Body::i16)?,
            values: body.list(Body::value)?,
            results: body.list(Body::i16)?,
        }),
        b'D' => Frontend::Describe { target: body.target()?, name: body.string()? },
        b'C' => Frontend::Close { target: body.target()?, name: body.string()? },
        // A limit of zero or less is none.
        b'E' => Frontend::Execute { portal: body.string()?, rows_max: body.i32()?.max(0) as u32 },
        b'H' => Frontend::Flush,
        b'S' => Frontend::Sync,
        b'X' => Frontend::Terminate,
        b'p' => return Ok(Frontend::Password(body.0)),
        b'd' => return Ok(Frontend::CopyData(body.0)),
        b'c' => Frontend::CopyDone,
        b'f' => Frontend::CopyFail(body.string()?),
        // No client uses it; the connection survives it.
        b'F' => return Ok(Frontend::FunctionCall),
        other => return Err(Violation(format!("invalid frontend message type {other}"))),
    };
    if body.0.is_empty() {
        Ok(message)
    } else {
        Err(Violation("invalid message format: extra bytes at its end".into()))
    }
}

/// Rest of a packet.
pub(crate) struct Body(pub(crate) Bytes);

impl Body {
    fn take(&mut self, bytes: usize) -> Result<Bytes, Violation> {
        if bytes <= self.0.len() {
            Ok(self.0.split_to(bytes))
        } else {
            Err(Violation("insufficient data left in message".into()))
        }
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Violation> {
        let mut bytes = [0; N];
        self.take(N)?.copy_to_slice(&mut bytes);
        Ok(bytes)
    }

    fn u8(&mut self) -> Result<u8, Violation> {
        Ok(self.fixed::<1>()?[0])
    }

    fn i16(&mut self) -> Result<i16, Violation> {
        Ok(i16::from_be_bytes(self.fixed()?))
    }

    fn u16(&mut self) -> Result<u16, Violation> {
        Ok(u16::from_be_bytes(self.fixed()?))
    }

    pub(crate) fn i32(&mut self) -> Result<i32, Violation> {
        Ok(i32::from_be_bytes(self.fixed()?))
    }

    fn u32(&mut self) -> Result<u32, Violation> {
        Ok(u32::from_be_bytes(self.fixed()?))
    }

    /// String up to a zero byte.
    pub(crate) fn string(&mut self) -> Result<String, Violation> {
        let end = self.0.iter().position(|&byte| byte == 0);
        let end = end.ok_or_else(|| Violation("invalid string in message".into()))?;
        let text = self.0.split_to(end);
        self.0.advance(1);
        match std::str::from_utf8(&text) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err(Violation("invalid byte sequence for encoding \"UTF8\"".into())),
        }
    }

    /// Four bytes of length and a value; -1 is NULL.
    fn value(&mut self) -> Result<Option<Bytes>, Violation> {
        match self.i32()? {
            -1 => Ok(None),
            length => match usize::try_from(length) {
                Ok(length) => self.take(length).map(Some),
                Err(_) => Err(Violation(format!("invalid length {length} of a value"))),
            },
        }
    }

    fn list<T>(&mut self, read: fn(&mut Body) -> Result<T, Violation>) -> Result<Vec<T>, Violation> {
        // Grows as elements are found: the count alone reserves nothing.
        let count = self.u16()?;
        (0..count).map(|_| read(self)).collect()
    }

    fn target(&mut self) -> Result<Target, Violation> {
        match self.u8()? {
            b'S' => Ok(Target::Statement),
            b'P' => Ok(Target::Portal),
            other => Err(Violation(format!("invalid subtype {other} of a DESCRIBE or CLOSE message"))),
        }
    }
}

/// First packet of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FirstPacket {
    Ssl,
    GssEncryption,
    Cancel { pid: i32, key: Bytes },
    Startup { minor: u16, parameters: Vec<(String, String)> },
}

/// The longest first packet; PostgreSQL has the same bound.
pub(crate) const FIRST_BYTES_MAX: usize = 10_000;

/// Splits the first packet, which has no type, off `input`.
pub(crate) fn next_first(input: &mut BytesMut) -> Result<Option<FirstPacket>, Violation> {
    let Some(length) = input.first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_be_bytes(*length) as usize;
    if !(8..=FIRST_BYTES_MAX).contains(&length) {
        return Err(Violation("invalid length of startup packet".into()));
    }
    if input.len() < length {
        return Ok(None);
    }
    let mut body = Body(input.split_to(length).freeze());
    body.i32()?;
    match (body.u16()?, body.u16()?) {
        (1234, 5679) => Ok(Some(FirstPacket::Ssl)),
        (1234, 5680) => Ok(Some(FirstPacket::GssEncryption)),
        (1234, 5678) => Ok(Some(FirstPacket::Cancel { pid: body.i32()?, key: body.0 })),
        (3, minor) => {
            let mut parameters = Vec::new();
            loop {
                let name = body.string()?;
                if name.is_empty() {
                    return Ok(Some(FirstPacket::Startup { minor, parameters }));
                }
                parameters.push((name, body.string()?));
            }
        }
        (major, minor) => Err(Violation(format!(
            "unsupported frontend protocol {major}.{minor}: server supports 3.0 to 3.2"
        ))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use proptest::prelude::*;

    fn packet(kind: u8, body: &[u8]) -> BytesMut {
        let mut bytes = BytesMut::from(&[kind][..]);
        bytes.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
        bytes.extend_from_slice(body);
        bytes
    }

    fn one(kind: u8, body: &[u8]) -> Result<Frontend, Violation> {
        decode(next_packet(&mut packet(kind, body), 1 << 20)?.unwrap())
    }

    #[test]
    fn messages_are_decoded() {
        assert_eq!(one(b'Q', b"SELECT 1\0"), Ok(Frontend::Query("SELECT 1".into())));
        let parse = Frontend::Parse { name: "a".into(), sql: "b".into(), types: vec![23] };
        assert_eq!(one(b'P', b"a\0b\0\0\x01\0\0\0\x17"), Ok(parse));
        let bind = Bind {
            portal: String::new(),
            statement: "s".into(),
            formats: vec![1],
            values: vec![None, Some(Bytes::from_static(b"xy"))],
            results: vec![],
        };
        let body = b"\0s\0\0\x01\0\x01\0\x02\xff\xff\xff\xff\0\0\0\x02xy\0\0";
        assert_eq!(one(b'B', body), Ok(Frontend::Bind(bind)));
        assert_eq!(one(b'E', b"p\0\0\0\0\x05"), Ok(Frontend::Execute { portal: "p".into(), rows_max: 5 }));
    }

    #[test]
    fn lengths_that_lie_are_refused() {
        // The value claims 100 bytes, one is there.
        assert!(one(b'B', b"\0s\0\0\0\0\x01\0\0\0\x64x\0\0").is_err());
        assert!(one(b'B', b"\0s\0\xff\xff").is_err());
        assert!(one(b'Q', b"no end").is_err());
        assert!(one(b'S', b"more").is_err());
        let mut huge = BytesMut::from(&b"Q\x7f\xff\xff\xff"[..]);
        assert!(next_packet(&mut huge, 1 << 20).is_err());
        let mut short = BytesMut::from(&b"Q\0\0\0\x03abc"[..]);
        assert!(next_packet(&mut short, 1 << 20).is_err());
        let mut part = packet(b'Q', b"SELECT 1\0");
        part.truncate(9);
        assert_eq!(next_packet(&mut part, 1 << 20), Ok(None));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0usize..14) {
            let _ = one(b"QPBDECHSXpdcfF"[kind], &bytes);
            let _ = next_first(&mut BytesMut::from(&bytes[..]));
            let mut input = BytesMut::from(&bytes[..]);
            while let Ok(Some(packet)) = next_packet(&mut input, 4096) {
                let _ = decode(packet);
            }
        }
    }
}
