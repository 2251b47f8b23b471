//! A value copied from the pool. Short ones lie on the stack; a buffer that is used again keeps its room for
//! long ones.

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum length of values that cost no allocation.
const SHORT_BYTES_MAX: usize = 256;

/// See the module.
pub(crate) struct ValueBuffer {
    bytes: usize,
    /// The value, if it is short.
    short: [u8; SHORT_BYTES_MAX],
    long: Vec<u8>,
}

impl ValueBuffer {
    #[inline]
    pub(crate) fn new() -> ValueBuffer {
        ValueBuffer { bytes: 0, short: [0; SHORT_BYTES_MAX], long: Vec::new() }
    }

    pub(crate) fn from_slice(value: &[u8]) -> ValueBuffer {
        let mut buffer = ValueBuffer::new();
        buffer.set(value);
        buffer
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        self
    }

    pub(crate) fn clear(&mut self) {
        self.bytes = 0;
    }

    /// Holds these bytes from now on.
    pub(crate) fn set(&mut self, value: &[u8]) {
        self.room(value.len()).copy_from_slice(value);
    }

    /// Holds the first `bytes` of little-endian words from now on. Each word is read as one.
    #[inline]
    pub(crate) fn copy_words(&mut self, words: &[AtomicU64], bytes: usize) {
        assert!(bytes <= 8 * words.len(), "{bytes} bytes of {} words", words.len());
        let (whole, rest) = self.room(bytes).as_chunks_mut::<8>();
        for (chunk, word) in whole.iter_mut().zip(words) {
            *chunk = word.load(Ordering::Relaxed).to_le_bytes();
        }
        if !rest.is_empty() {
            let last = words[whole.len()].load(Ordering::Relaxed).to_le_bytes();
            rest.copy_from_slice(&last[..rest.len()]);
        }
    }

    /// Room for so many bytes, which are the value then.
    #[inline]
    fn room(&mut self, bytes: usize) -> &mut [u8] {
        self.bytes = bytes;
        if bytes <= SHORT_BYTES_MAX { &mut self.short[..bytes] } else { self.long_room(bytes) }
    }

    #[cold]
    fn long_room(&mut self, bytes: usize) -> &mut [u8] {
        self.long.resize(bytes, 0);
        &mut self.long
    }
}

impl Deref for ValueBuffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        if self.bytes <= SHORT_BYTES_MAX { &self.short[..self.bytes] } else { &self.long[..self.bytes] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_out_as_they_were_stored_whatever_the_length() {
        let bytes: Vec<u8> = (0..1024).map(|byte| (byte % 251) as u8).collect();
        let words: Vec<AtomicU64> = bytes
            .chunks_exact(8)
            .map(|chunk| AtomicU64::new(u64::from_le_bytes(chunk.try_into().unwrap())))
            .collect();
        let mut buffer = ValueBuffer::new();
        for length in [0usize, 1, 7, 8, 9, 255, 256, 257, 1024, 3, 1000, 264, 0] {
            buffer.copy_words(&words[..length.div_ceil(8)], length);
            assert_eq!(buffer.as_slice(), &bytes[..length]);
            buffer.set(&bytes[1024 - length..]);
            assert_eq!(buffer.as_slice(), &bytes[1024 - length..]);
        }
        assert_eq!(&ValueBuffer::from_slice(b"abc")[..], b"abc");
        buffer.clear();
        assert!(buffer.is_empty());
    }
}
