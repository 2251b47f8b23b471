//! Names of objects: which database wrote them, and a number.
//!
//! An object is `identity/number-nonce` in its store, all hexadecimal. Numbers ascend: the high half is that of the run of
//! the database which wrote it, the low half counts. A name is never used twice: not behind a crash, since the number of a
//! run is durable before its first object, nor where older files are put back, since each run has a random nonce.

use crate::schema::parts::Reader;

/// Identity of a database in object stores, which no other has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Identity(pub(crate) u128);

/// Number of an object of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ObjectNumber(pub(crate) u64);

/// Name of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ObjectName {
    pub(crate) identity: Identity,
    pub(crate) number: ObjectNumber,
    pub(crate) nonce: u32,
}

impl Identity {
    pub(crate) fn from_reader(reader: &mut Reader<'_>) -> Option<Identity> {
        Some(Identity(u128::from_le_bytes(reader.take(16)?.try_into().ok()?)))
    }
}

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl ObjectNumber {
    /// Number of an object of a run.
    pub(crate) fn new(run: u32, count: u32) -> ObjectNumber {
        ObjectNumber(u64::from(run) << 32 | u64::from(count))
    }

    /// Run that the number is of.
    pub(crate) fn run(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Number with this name; none if it is not one.
    pub(crate) fn parse(text: &str) -> Option<ObjectNumber> {
        let is_number = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        u64::from_str_radix(text, 16).ok().filter(|_| is_number).map(ObjectNumber)
    }
}

impl std::fmt::Display for ObjectNumber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl ObjectName {
    pub(crate) fn put(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.identity.0.to_le_bytes());
        bytes.extend_from_slice(&self.number.0.to_le_bytes());
        bytes.extend_from_slice(&self.nonce.to_le_bytes());
    }

    pub(crate) fn from_reader(reader: &mut Reader<'_>) -> Option<ObjectName> {
        let identity = Identity::from_reader(reader)?;
        let number = u64::from_le_bytes(reader.take(8)?.try_into().ok()?);
        Some(ObjectName { identity, number: ObjectNumber(number), nonce: reader.number()? })
    }

    /// Name of an object of an identity by the rest of its path; none if it is not one.
    pub(crate) fn parse(identity: Identity, rest: &str) -> Option<ObjectName> {
        let (number, nonce) = rest.split_once('-')?;
        let is_nonce = nonce.len() == 8 && nonce.bytes().all(|byte| byte.is_ascii_hexdigit());
        let nonce = u32::from_str_radix(nonce, 16).ok().filter(|_| is_nonce)?;
        Some(ObjectName { identity, number: ObjectNumber::parse(number)?, nonce })
    }
}

impl std::fmt::Display for ObjectName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}-{:08x}", self.identity, self.number, self.nonce)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written_and_others_are_none() {
        let name = ObjectName { identity: Identity(5 << 100), number: ObjectNumber::new(3, 9), nonce: 0xab };
        let text = name.to_string();
        let (identity, rest) = text.split_once('/').unwrap();
        assert_eq!(identity, name.identity.to_string());
        assert_eq!(ObjectName::parse(name.identity, rest), Some(name));
        let mut bytes = Vec::new();
        name.put(&mut bytes);
        assert_eq!(ObjectName::from_reader(&mut Reader(&bytes)), Some(name));
        assert_eq!(ObjectName::from_reader(&mut Reader(&bytes[1..])), None);
        for other in
            ["holds/x", "0000000300000009", "0000000300000009-", "3-000000ab", "+000000300000009-000000ab"]
        {
            assert_eq!(ObjectName::parse(name.identity, other), None, "{other}");
        }
        assert!(ObjectNumber::new(3, u32::MAX) < ObjectNumber::new(4, 0));
    }
}
