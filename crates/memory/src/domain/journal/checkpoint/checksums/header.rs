//! The header blocks of the checksums.
//!
//! ```text
//! header word    what
//! 0              magic "ECHECKSM"
//! 1              format version
//! 2, 3           UUID of the pool
//! 4              generation
//! 5              position of the journal that the entries stand for
//! 6              the position before
//! 7              CRC-32C of words 0 to 6, and of 8 and the runs behind it if there are any
//! 8              number of runs of pages whose entries are being forgotten
//! 9..            a run: its first page (low 32 bits), how many pages (high)
//! ```

use super::BLOCK_BYTES;
use crate::domain::journal::position::JournalPosition;
use crate::domain::journal::writing::frame::words_crc;
use std::ops::Range;

const MAGIC: u64 = u64::from_le_bytes(*b"ECHECKSM");
const VERSION: u64 = 1;
const CRC: usize = 7;
const RUNS: usize = 8;
const BLOCK_WORDS: usize = BLOCK_BYTES / 8;
/// The most runs of pages that a header has room for.
pub(super) const RUNS_MAX: usize = BLOCK_WORDS - RUNS - 1;

/// Header of the checksums; two blocks take turns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) generation: u64,
    pub(super) position: JournalPosition,
    pub(super) before: JournalPosition,
    /// Runs of pages whose entries do not count, whatever they are.
    pub(super) forgotten: Vec<Range<u32>>,
}

impl Header {
    /// Next header, for a position.
    pub(super) fn next(&self, position: JournalPosition) -> Header {
        Header { generation: self.generation + 1, position, before: self.position, forgotten: Vec::new() }
    }

    /// Offset of its block: not that of the header before.
    pub(super) fn offset(&self) -> u64 {
        self.generation % 2 * BLOCK_BYTES as u64
    }

    pub(super) fn encode(&self, uuid: [u64; 2]) -> [u8; BLOCK_BYTES] {
        assert!(self.forgotten.len() <= RUNS_MAX, "{} runs in one header", self.forgotten.len());
        debug_assert!(
            self.forgotten.iter().all(|run| run.start <= run.end),
            "runs of pages go forwards: {:?}",
            self.forgotten
        );
        let mut words = [0; BLOCK_WORDS];
        words[..CRC].copy_from_slice(&[
            MAGIC,
            VERSION,
            uuid[0],
            uuid[1],
            self.generation,
            self.position.bytes(),
            self.before.bytes(),
        ]);
        words[RUNS] = self.forgotten.len() as u64;
        for (word, run) in words[RUNS + 1..].iter_mut().zip(&self.forgotten) {
            *word = u64::from(run.start) | u64::from(run.end - run.start) << 32;
        }
        words[CRC] = crc(&words).expect("the runs fit");
        let mut bytes = [0; BLOCK_BYTES];
        for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    pub(super) fn decode(block: &[u8], uuid: [u64; 2]) -> Option<Header> {
        let mut words = [0; BLOCK_WORDS];
        for (word, bytes) in words.iter_mut().zip(block.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        if words[..4] != [MAGIC, VERSION, uuid[0], uuid[1]] || Some(words[CRC]) != crc(&words) {
            return None;
        }
        let run = |word: &u64| *word as u32..(*word as u32).saturating_add((*word >> 32) as u32);
        let forgotten = words[RUNS + 1..].iter().take(words[RUNS] as usize).map(run).collect();
        let [position, before] = [words[5], words[6]].map(JournalPosition::from_word);
        Some(Header { generation: words[4], position: position?, before: before?, forgotten })
    }
}

/// Checksum; none if it cannot be a header.
fn crc(words: &[u64; BLOCK_WORDS]) -> Option<u64> {
    let runs = usize::try_from(words[RUNS]).ok().filter(|runs| *runs <= RUNS_MAX)?;
    if runs == 0 {
        return Some(u64::from(words_crc(&words[..CRC])));
    }
    let covered = [&words[..CRC], &words[RUNS..=RUNS + runs]].concat();
    Some(u64::from(words_crc(&covered)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_read_back_and_torn_ones_do_not() {
        let [position, before] = [48, 24].map(|bytes| JournalPosition::START.plus(bytes));
        let old = Header { generation: 4, position, before, forgotten: Vec::new() };
        let full = Header {
            forgotten: (0..RUNS_MAX as u32).map(|i| i * 9..i * 9 + 4).collect(),
            ..old.next(position.plus(8))
        };
        for header in [&old, &full] {
            assert_eq!(Header::decode(&header.encode([1, 2]), [1, 2]).as_ref(), Some(header));
            assert_eq!(Header::decode(&header.encode([1, 2]), [1, 3]), None);
        }
        let (before, after) = (old.encode([1, 2]), full.encode([1, 2]));
        let whole = [Some(old), Some(full)];
        for cut in 1..BLOCK_BYTES {
            let torn = [&after[..cut], &before[cut..]].concat();
            let read = Header::decode(&torn, [1, 2]);
            assert!(read.is_none() || whole.contains(&read), "cut at {cut}: {read:?}");
        }
    }
}
