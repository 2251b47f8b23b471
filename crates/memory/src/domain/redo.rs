//! Redo lanes: make a publication of several words atomic where the medium guarantees single words only
//! (`dax`, and `crashing`, which simulates it).
//!
//! ```text
//! lane word   what
//! 0           number of entries (low 32 bits) and CRC-32C of the entries (high 32 bits); 0: lane idle
//! 1 + 2i      entry i: offset (low 56 bits) and operation (high 8 bits)
//! 2 + 2i      entry i: value
//! ```
//!
//! 0. Fence: a complete lane commits its updates, so everything that they make reachable comes before it.
//! 1. Entries and word 0 are written and flushed; fence. The checksum makes a half-written lane idle.
//! 2. The updates are carried out and flushed; fence.
//! 3. Word 0 is cleared and flushed; fence. Without that last fence a later crash could replay old values
//!    over newer ones.
//!
//! A crash before 1 completes leaves nothing; after it, [`recover`] carries out all updates again. They set
//! words or bits, so doing it twice, or crashing while doing it, changes nothing.

use super::Domain;
use super::dax::LINE_BYTES;
use crate::layout::{REDO_LANE_BYTES, REDO_LANES, REDO_LANES_COUNT};
use crate::mapping::Mapping;
use crate::offset::PoolOffset;
use crate::order::{check, fence, flush, flush_word, in_order, step};
use crate::points::{
    CLEARED_LANE, CLEARING_AFTER_UPDATES, EMPTY_PUBLICATION_ORDERS, LANE, LANE_AFTER_ITS_OBJECTS,
    LANE_CLEARED, LANE_IS_WHOLE, PUBLISHED_WORD, RECOVERED_LANE_CLEARED, RECOVERY_CARRIES_OUT_FIRST,
    RETURN_AFTER_CLEARING, RETURN_AFTER_WORD, UPDATED_WORDS, UPDATES_AFTER_LANE, WORD_AFTER_ITS_OBJECTS,
};
use crate::publication::{Operation, PUBLICATION_WORDS_MAX, Update};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicUsize, Ordering};

const _: () = assert!(8 + PUBLICATION_WORDS_MAX as u64 * 16 <= REDO_LANE_BYTES);
const OFFSET_MASK: u64 = (1 << 56) - 1;

/// Allocation of lanes to threads; DRAM only.
#[derive(Default)]
pub(crate) struct Lanes {
    locks: [Mutex<()>; REDO_LANES_COUNT],
    next: AtomicUsize,
}

/// Carries out the updates atomically; orders all earlier flushes before them.
pub(crate) fn publish(mapping: &Mapping, updates: &[Update], lanes: &Lanes, domain: &Domain) {
    assert!(
        updates.len() <= PUBLICATION_WORDS_MAX,
        "{} updates do not fit a lane of {PUBLICATION_WORDS_MAX}",
        updates.len()
    );
    debug_assert!(
        updates.iter().all(|update| update.offset.is_aligned(8) && update.offset.bytes() <= OFFSET_MASK),
        "updates change words of the pool"
    );
    if updates.is_empty() {
        return fence(EMPTY_PUBLICATION_ORDERS, || domain.fence(mapping));
    }
    if let [single] = updates
        && single.operation == Operation::Set
    {
        fence(WORD_AFTER_ITS_OBJECTS, || domain.fence(mapping));
        single.apply(mapping);
        flush_word(PUBLISHED_WORD, || domain.flush(mapping, &[(single.offset, 8)]));
        return fence(RETURN_AFTER_WORD, || domain.fence(mapping));
    }
    let start = lanes.next.fetch_add(1, Ordering::Relaxed);
    let free = (0..REDO_LANES_COUNT).find_map(|i| {
        let lane = (start + i) % REDO_LANES_COUNT;
        lanes.locks[lane].try_lock().map(|held| (lane, held))
    });
    let (lane, _held) = free.unwrap_or_else(|| {
        let lane = start % REDO_LANES_COUNT;
        (lane, lanes.locks[lane].lock())
    });
    let offset = REDO_LANES.block(lane as u64, REDO_LANE_BYTES);
    debug_assert!(lane < REDO_LANES_COUNT, "lane {lane} lies in the header");
    fence(LANE_AFTER_ITS_OBJECTS, || domain.fence(mapping));
    write_lane(mapping, offset, updates);
    flush(LANE, 8 + updates.len() * 16, |bytes| domain.flush(mapping, &[(offset, bytes)]));
    fence(UPDATES_AFTER_LANE, || domain.fence(mapping));
    carry_out(mapping, updates, domain);
    step(LANE_CLEARED, || clear_lane(mapping, offset, domain));
}

fn clear_lane(mapping: &Mapping, offset: PoolOffset, domain: &Domain) {
    debug_assert!(is_lane(offset), "{offset:#x} is not a lane");
    mapping.words(offset.bytes(), 1)[0].store(0, Ordering::Release);
    flush_word(CLEARED_LANE, || domain.flush(mapping, &[(offset, 8)]));
    fence(RETURN_AFTER_CLEARING, || domain.fence(mapping));
}

/// Carries the updates out. The lane is complete, so their order is free: a line with several of them is
/// written back once.
fn carry_out(mapping: &Mapping, updates: &[Update], domain: &Domain) {
    assert!(!updates.is_empty(), "a lane has updates");
    updates.iter().for_each(|update| update.apply(mapping));
    let mut offsets: SmallVec<[PoolOffset; PUBLICATION_WORDS_MAX]> =
        updates.iter().map(|update| update.offset).collect();
    offsets.sort_unstable();
    for line in offsets.chunk_by(|a, b| a.aligned_down(LINE_BYTES) == b.aligned_down(LINE_BYTES)) {
        let between = line[line.len() - 1].since(line[0]);
        debug_assert!(between < LINE_BYTES, "words that are flushed together share a line");
        let bytes = between as usize + 8;
        flush(UPDATED_WORDS, bytes, |bytes| domain.flush(mapping, &[(line[0], bytes)]));
    }
    fence(CLEARING_AFTER_UPDATES, || domain.fence(mapping));
}

fn write_lane(mapping: &Mapping, offset: PoolOffset, updates: &[Update]) {
    assert!(
        (1..=PUBLICATION_WORDS_MAX).contains(&updates.len()),
        "a lane has room for {PUBLICATION_WORDS_MAX} updates, not for {}",
        updates.len()
    );
    debug_assert!(is_lane(offset), "{offset:#x} is not a lane");
    let words = mapping.words(offset.bytes(), 1 + 2 * updates.len());
    let mut crc = 0;
    for (update, pair) in updates.iter().zip(words[1..].chunks_exact(2)) {
        let target = update.offset.to_word() | (update.operation as u64) << 56;
        crc = entry_crc(crc, target, update.value);
        pair[0].store(target, Ordering::Relaxed);
        pair[1].store(update.value, Ordering::Relaxed);
    }
    words[0].store(updates.len() as u64 | u64::from(crc) << 32, Ordering::Release);
}

/// Returns true if a lane begins at an offset.
fn is_lane(offset: PoolOffset) -> bool {
    let end = REDO_LANES.block(REDO_LANES_COUNT as u64, REDO_LANE_BYTES);
    (REDO_LANES..end).contains(&offset) && offset.since(REDO_LANES).is_multiple_of(REDO_LANE_BYTES)
}

fn entry_crc(crc: u32, target: u64, value: u64) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c_append(crc, &target.to_le_bytes()), &value.to_le_bytes())
}

/// Finishes the publications that a crash interrupted. Returns their number.
pub(crate) fn recover(mapping: &Mapping, domain: &Domain) -> usize {
    let mut finished = 0;
    for lane in 0..REDO_LANES_COUNT as u64 {
        let offset = REDO_LANES.block(lane, REDO_LANE_BYTES);
        let head = &mapping.words(offset.bytes(), 1)[0];
        if head.load(Ordering::Acquire) == 0 {
            continue;
        }
        let clear = || step(RECOVERED_LANE_CLEARED, || clear_lane(mapping, offset, domain));
        match read_lane(mapping, offset) {
            Some(updates) => {
                in_order(RECOVERY_CARRIES_OUT_FIRST, || carry_out(mapping, &updates, domain), clear);
                finished += 1;
            }
            None => clear(),
        }
    }
    finished
}

/// Updates of the lane, if it is complete.
fn read_lane(mapping: &Mapping, offset: PoolOffset) -> Option<Vec<Update>> {
    let head = mapping.words(offset.bytes(), 1)[0].load(Ordering::Acquire);
    let count = (head & 0xFFFF_FFFF) as usize;
    if count == 0 || count > PUBLICATION_WORDS_MAX {
        return None;
    }
    let mut crc = 0;
    let mut updates = Vec::with_capacity(count);
    for pair in mapping.words(offset.plus(8).bytes(), 2 * count).chunks_exact(2) {
        let (target, value) = (pair[0].load(Ordering::Relaxed), pair[1].load(Ordering::Relaxed));
        crc = entry_crc(crc, target, value);
        let operation = match target >> 56 {
            0 => Operation::Set,
            1 => Operation::SetBits,
            2 => Operation::ClearBits,
            _ => return None,
        };
        updates.push(Update { offset: PoolOffset::from_word(target & OFFSET_MASK), operation, value });
    }
    check(u64::from(crc) == head >> 32, LANE_IS_WHOLE).then_some(updates)
}
