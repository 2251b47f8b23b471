//! The keys of histories: a key of the state and a timestamp, so that the versions of a key lie together, the
//! newest first.
//!
//! ```text
//! state's keys    history's keys
//! 8 bytes         key | ~CTS, big-endian                               16 bytes
//! 16 bytes        key | ~CTS                                           24 bytes
//! any             key, 0x00 as 0x00 0xff | 0x00 0x00 | ~CTS            as many
//! ```

use crate::{INFINITY, Timestamp};
use entresol_structures::{KEY_BYTES_MAX, KeyBytes, KeyWidth};
use std::ops::Bound;

const CTS_BYTES: usize = 8;

/// Encoding of the keys of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HistoryKeys {
    base: KeyWidth,
}

impl HistoryKeys {
    pub(crate) fn of(base: KeyWidth) -> HistoryKeys {
        HistoryKeys { base }
    }

    /// The width of the history's index.
    pub(crate) fn width(self) -> KeyWidth {
        match self.base {
            KeyWidth::Eight => KeyWidth::Sixteen,
            KeyWidth::Sixteen | KeyWidth::Variable => KeyWidth::Variable,
        }
    }

    /// The key of a version; None if it is too long. `key` is normalised.
    pub(crate) fn encode(self, key: &[u8], cts: Timestamp) -> Option<KeyBytes> {
        let Position(bytes) = self.position(key, cts);
        (bytes.len() <= KEY_BYTES_MAX).then_some(bytes)
    }

    /// Position of the first version of a key up to a timestamp; for the start, which no version has, the position
    /// behind them.
    pub(super) fn position(self, key: &[u8], cts: Timestamp) -> Position {
        let mut bytes = KeyBytes::new();
        match self.base {
            KeyWidth::Eight | KeyWidth::Sixteen => bytes.extend_from_slice(key),
            KeyWidth::Variable => {
                for &byte in key {
                    bytes.push(byte);
                    if byte == 0 {
                        bytes.push(0xff);
                    }
                }
                bytes.extend_from_slice(&[0, 0]);
            }
        }
        bytes.extend_from_slice(&(!cts.stored()).to_be_bytes());
        Position(bytes)
    }

    /// The key and the CTS of a version; None if the bytes are not a key of a history.
    pub(crate) fn decode(self, bytes: &[u8]) -> Option<(KeyBytes, Timestamp)> {
        let (escaped, cts) = bytes.split_at_checked(bytes.len().checked_sub(CTS_BYTES)?)?;
        let cts = Timestamp::from_stored(!u64::from_be_bytes(cts.try_into().ok()?));
        let key = match self.base {
            KeyWidth::Eight | KeyWidth::Sixteen => KeyBytes::from_slice(escaped),
            KeyWidth::Variable => {
                let escaped = escaped.strip_suffix(&[0, 0])?;
                let mut key = KeyBytes::new();
                let mut bytes = escaped.iter();
                while let Some(&byte) = bytes.next() {
                    key.push(byte);
                    if byte == 0 && bytes.next() != Some(&0xff) {
                        return None;
                    }
                }
                key
            }
        };
        Some((key, cts))
    }

    /// Position of the first key from `lower` on.
    pub(super) fn first_of(self, lower: Bound<&[u8]>) -> Position {
        match lower {
            Bound::Unbounded => Position(KeyBytes::new()),
            Bound::Included(key) => self.position(key, INFINITY),
            Bound::Excluded(key) => self.position(key, Timestamp::START),
        }
    }
}

/// A position between the keys of a history. May be longer than a key can be: the state has keys whose
/// versions do not fit.
#[derive(Clone, Debug)]
pub(super) struct Position(KeyBytes);

impl Position {
    /// Position of an entry.
    pub(super) fn of(entry: KeyBytes) -> Position {
        Position(entry)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Bytes, as long as a key can be. Entries from there on may lie a little before the position, then under a
/// key of the greatest length.
impl AsRef<[u8]> for Position {
    fn as_ref(&self) -> &[u8] {
        &self.0[..self.0.len().min(KEY_BYTES_MAX)]
    }
}

/// Tells whether the key does not lie behind the bound.
pub(super) fn reaches(key: &[u8], upper: Bound<&[u8]>) -> bool {
    match upper {
        Bound::Unbounded => true,
        Bound::Included(upper) => key <= upper,
        Bound::Excluded(upper) => key < upper,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timestamp::at;

    #[test]
    fn versions_lie_in_the_order_of_keys_and_the_newest_first() {
        let names: [&[u8]; 9] =
            [b"", b"\0", b"\0\0", b"\0\x01", b"\0\xff", b"a", b"a\0", b"a\0b", b"a\xff\xff"];
        let keys = HistoryKeys::of(KeyWidth::Variable);
        let mut all = Vec::new();
        for name in names {
            for cts in [9, 7, 1, 0].map(at) {
                let encoded = keys.encode(name, cts).unwrap();
                assert_eq!(keys.decode(&encoded), Some((KeyBytes::from_slice(name), cts)));
                all.push(encoded);
            }
        }
        assert!(all.windows(2).all(|pair| pair[0] < pair[1]), "{all:x?}");
        for (base, width, bytes) in [
            (KeyWidth::Eight, KeyWidth::Sixteen, [7; 8].to_vec()),
            (KeyWidth::Sixteen, KeyWidth::Variable, [7; 16].to_vec()),
        ] {
            let keys = HistoryKeys::of(base);
            assert_eq!(keys.width(), width);
            let (new, old) = (keys.encode(&bytes, at(5)).unwrap(), keys.encode(&bytes, at(4)).unwrap());
            assert!(new < old && keys.decode(&old) == Some((KeyBytes::from_slice(&bytes), at(4))));
        }
        assert_eq!(keys.encode(&[1; KEY_BYTES_MAX], at(1)), None, "too long");
        assert_eq!(keys.decode(b"short"), None);
        assert_eq!(keys.decode(b"a\0b\0\0\0\0\0\0\0\0\0\0"), None, "a zero that is not escaped");
    }
}
