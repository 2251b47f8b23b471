//! Format of the journal's records and frames.
//!
//! The journal is a stream of records; a position in it is a byte count (LSN) that only ever grows, over all
//! opens. One write appends a frame to the file: a run of complete records with checksums.
//!
//! ```text
//! frame word   what
//! 0            magic "EFRM" (low 32 bits), CRC-32C of words 1 to 7 (high)
//! 1            LSN of the first payload byte
//! 2            payload bytes (low 32 bits), CRC-32C of the payload (high)
//! 3            epoch: counts the opens of the pool
//! 4            LSN up to which the journal was known durable when the frame was written
//! 5, 6         UUID of the pool
//! 7            0
//! 8..          records
//!
//! record word  what
//! 0            first word's index in the pool (low 48 bits), number of words - 1 (high 16 bits)
//! 1..          the words
//! ```
//!
//! Frames start at multiples of 4,096 bytes. Words are little-endian.

use crate::domain::journal::position::JournalPosition;
use crate::offset::PoolOffset;
use std::io;

pub(crate) const BLOCK_BYTES: usize = 4096;
pub(crate) const FRAME_HEADER_WORDS: usize = 8;
const FRAME_MAGIC: u32 = u32::from_le_bytes(*b"EFRM");
/// Maximum number of words of one record.
pub(crate) const RECORD_WORDS_MAX: usize = 1 << 16;
const INDEX_BITS: u32 = 48;

/// Header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) lsn: JournalPosition,
    pub(crate) payload_bytes: u32,
    pub(crate) payload_crc: u32,
    pub(crate) epoch: u64,
    pub(crate) durable_lsn: JournalPosition,
    pub(crate) uuid: [u64; 2],
}

impl FrameHeader {
    pub(crate) fn encode(&self) -> [u64; FRAME_HEADER_WORDS] {
        assert!(
            self.payload_bytes.is_multiple_of(8),
            "a frame holds whole words: {} bytes at position {}",
            self.payload_bytes,
            self.lsn
        );
        let mut words = [
            0,
            self.lsn.bytes(),
            u64::from(self.payload_bytes) | u64::from(self.payload_crc) << 32,
            self.epoch,
            self.durable_lsn.bytes(),
            self.uuid[0],
            self.uuid[1],
            0,
        ];
        words[0] = u64::from(FRAME_MAGIC) | u64::from(words_crc(&words[1..])) << 32;
        words
    }

    /// Decodes a header; none if the words are not one.
    pub(crate) fn decode(words: &[u64]) -> Option<FrameHeader> {
        let words: &[u64; FRAME_HEADER_WORDS] = words.first_chunk()?;
        let expected = u64::from(FRAME_MAGIC) | u64::from(words_crc(&words[1..])) << 32;
        if words[0] != expected {
            return None;
        }
        Some(FrameHeader {
            lsn: JournalPosition::from_word(words[1])?,
            payload_bytes: words[2] as u32,
            payload_crc: (words[2] >> 32) as u32,
            epoch: words[3],
            durable_lsn: JournalPosition::from_word(words[4])?,
            uuid: [words[5], words[6]],
        })
    }

    /// Bytes that the frame takes in the file.
    pub(crate) fn stored_bytes(&self) -> usize {
        stored_bytes(self.payload_bytes as usize)
    }
}

/// Bytes that a frame with this payload takes in the file.
pub(crate) fn stored_bytes(payload_bytes: usize) -> usize {
    (FRAME_HEADER_WORDS * 8 + payload_bytes).next_multiple_of(BLOCK_BYTES)
}

/// Checksum of words as they are stored.
pub(crate) fn words_crc(words: &[u64]) -> u32 {
    words.iter().fold(0, |crc, word| crc32c::crc32c_append(crc, &word.to_le_bytes()))
}

/// First word of a record.
pub(crate) fn record_head(offset: PoolOffset, words: usize) -> u64 {
    assert!(
        (1..=RECORD_WORDS_MAX).contains(&words),
        "a record holds 1 to {RECORD_WORDS_MAX} words, not {words}"
    );
    debug_assert!(
        offset.is_aligned(8) && offset.bytes() / 8 < 1 << INDEX_BITS,
        "a record begins at a word of the pool, not at {offset:#x}"
    );
    (offset.bytes() / 8) | ((words as u64 - 1) << INDEX_BITS)
}

/// Calls `apply` with the pool offset and the words of every record.
pub(crate) fn for_each_record(payload: &[u64], mut apply: impl FnMut(PoolOffset, &[u64])) -> io::Result<()> {
    let mut rest = payload;
    while let Some((head, after)) = rest.split_first() {
        let count = (head >> INDEX_BITS) as usize + 1;
        let Some((words, next)) = after.split_at_checked(count) else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a record is longer than its frame"));
        };
        apply(PoolOffset::new((head & ((1 << INDEX_BITS) - 1)) * 8), words);
        rest = next;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_headers_read_back_and_any_flipped_bit_is_found() {
        let header = FrameHeader {
            lsn: JournalPosition::START.plus(4096),
            payload_bytes: 48,
            payload_crc: 0xDEAD_BEEF,
            epoch: 3,
            durable_lsn: JournalPosition::START.plus(1024),
            uuid: [1, 2],
        };
        let words = header.encode();
        assert_eq!(FrameHeader::decode(&words), Some(header));
        for bit in 0..FRAME_HEADER_WORDS * 64 {
            let mut damaged = words;
            damaged[bit / 64] ^= 1 << (bit % 64);
            assert_eq!(FrameHeader::decode(&damaged), None, "bit {bit}");
        }
    }

    #[test]
    fn records_read_back() {
        let (near, far) = (PoolOffset::new(64), PoolOffset::new(1 << 40));
        let mut payload = vec![record_head(near, 2), 7, 8, record_head(far, 1), 9];
        let mut seen = Vec::new();
        for_each_record(&payload, |offset, words| seen.push((offset, words.to_vec()))).unwrap();
        assert_eq!(seen, [(near, vec![7, 8]), (far, vec![9])]);
        payload.pop();
        assert!(for_each_record(&payload, |_, _| {}).is_err());
    }
}
