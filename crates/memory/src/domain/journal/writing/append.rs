//! Appending: flushes and publications go into the journal, in order, under one short lock.
//!
//! Records go into the active buffer. A full one is queued and a free one takes its place, so appenders go on
//! while the device is busy. Buffers beyond the first two are allocated on first need. A caller that has not
//! begun waits when [`BUFFERS_MAX`] are full ([`crate::domain::journal::writing::room`]); an appender, which
//! may hold latches, takes more, and writes one itself only when [`BUFFERS_WITH_RESERVE`] are full.
//!
//! A flush is noted by its thread and appended with its next fence or publication ([`stage`]).

use crate::domain::journal::hook::{self, HookPoint};
use crate::domain::journal::position::{AtomicPosition, JournalPosition};
use crate::domain::journal::writing::buffer::AlignedBuffer;
use crate::domain::journal::writing::frame::{FRAME_HEADER_WORDS, for_each_record, record_head};
use crate::domain::journal::writing::stage::{self, NoteResult};
use crate::domain::journal::{Gate, JournalState};
use crate::error::Result;
use crate::offset::PoolOffset;
use crate::order::{step, value};
use crate::points::{FENCE_APPENDS, PUBLICATION_BEHIND_FLUSHES, PUBLISHED_PAGES_MARKED};
use crate::publication::{Operation, PUBLICATION_WORDS_MAX, Update};
use crate::spin::SpinLock;
use crossbeam_utils::CachePadded;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

/// The largest journal buffer.
pub(crate) const BUFFER_BYTES_MAX: usize = 2 << 20;
/// Maximum number of buffers in ordinary use: how far appenders may be ahead of the device.
pub(crate) const BUFFERS_MAX: usize = 8;
/// Maximum number with those of appenders that hold latches. Buffers beyond [`BUFFERS_MAX`] are freed after
/// use.
pub(crate) const BUFFERS_WITH_RESERVE: usize = 24;

/// Full buffer with the payload of one frame.
pub(crate) struct FullBuffer {
    pub(crate) buffer: AlignedBuffer,
    pub(crate) payload_words: usize,
}

/// End of the journal at which records are appended. An appender fetches the lines that another thread's
/// append has changed, one after the other, with the lock held. So the words that every append changes are in
/// one line of their own: position, lock, counts.
#[repr(align(128))]
pub(crate) struct Appender {
    /// Position behind the last record. Changed under the lock.
    pub(crate) appended: AtomicPosition,
    pub(crate) active: SpinLock<AppendState>,
}

impl Appender {
    pub(crate) fn new(payload_bytes_max: usize, appended: JournalPosition) -> Appender {
        const { assert!(size_of::<AtomicPosition>() + size_of::<SpinLock<AppendState>>() <= 64, "it is one line") };
        Appender {
            appended: AtomicPosition::new(appended),
            active: SpinLock::new(AppendState::new(payload_bytes_max)),
        }
    }
}

/// State under the append lock.
pub(crate) struct AppendState {
    payload_words: usize,
    pub(crate) flushes: u64,
    /// State that changes with a buffer, not with an append: lines that stay in all appenders' caches.
    buffers: Box<CachePadded<Buffers>>,
}

struct Buffers {
    active: AlignedBuffer,
    payload_words_max: usize,
    /// Full buffers, oldest first.
    full: VecDeque<FullBuffer>,
    /// Empty buffers, the one used last on top: it is in the processor's caches.
    free: Vec<AlignedBuffer>,
    /// Number of buffers, in any state.
    count: usize,
}

impl AppendState {
    pub(crate) fn new(payload_bytes_max: usize) -> AppendState {
        assert!(
            payload_bytes_max > 0 && payload_bytes_max.is_multiple_of(8),
            "a buffer has room for words: {payload_bytes_max} bytes"
        );
        let buffer = || AlignedBuffer::new(payload_bytes_max + FRAME_HEADER_WORDS * 8);
        let mut free = Vec::with_capacity(BUFFERS_MAX);
        free.push(buffer());
        let buffers = Buffers {
            active: buffer(),
            payload_words_max: payload_bytes_max / 8,
            full: VecDeque::with_capacity(BUFFERS_MAX),
            free,
            count: 2,
        };
        AppendState { payload_words: 0, flushes: 0, buffers: Box::new(CachePadded::new(buffers)) }
    }

    /// Records of the active buffer from a word on.
    #[inline]
    fn records_from(&mut self, at: usize) -> &mut [u64] {
        debug_assert!(at <= self.buffers.payload_words_max, "records begin inside the buffer");
        &mut self.buffers.active.words_mut()[FRAME_HEADER_WORDS + at..]
    }

    /// Queues the active buffer and activates a free one; false if there is none.
    fn rotate(&mut self) -> bool {
        let payload_words = self.payload_words;
        assert!(
            (1..=self.buffers.payload_words_max).contains(&payload_words),
            "a queued buffer has records, and none beyond its end: {payload_words} words"
        );
        assert!(self.buffers.full.len() < BUFFERS_WITH_RESERVE, "no more buffers are full than there may be");
        let Buffers { active, full, free, .. } = &mut **self.buffers;
        let Some(next) = free.pop() else { return false };
        let buffer = std::mem::replace(active, next);
        full.push_back(FullBuffer { buffer, payload_words: std::mem::take(&mut self.payload_words) });
        true
    }

    /// Oldest records that are not written yet, at most a buffer of them. At most one caller holds such a
    /// buffer at a time and returns it with [`AppendState::release_buffer`].
    pub(crate) fn take_oldest(&mut self) -> Option<FullBuffer> {
        if self.buffers.full.is_empty() && self.payload_words > 0 {
            assert!(self.rotate(), "one buffer is active, one is being written, none is full: one is free");
        }
        let oldest = self.buffers.full.pop_front();
        debug_assert!(
            oldest.is_some() || self.payload_words == 0,
            "no buffer to write means that all records are written"
        );
        oldest
    }

    /// Takes a buffer back; returns one to be freed, with its requested bytes, if there are too many.
    pub(crate) fn release_buffer(&mut self, buffer: AlignedBuffer) -> Option<(AlignedBuffer, usize)> {
        assert_eq!(
            buffer.bytes().len(),
            self.buffers.active.bytes().len(),
            "a buffer that comes back is one of this journal's"
        );
        debug_assert!(
            self.buffers.free.len() + self.buffers.full.len() + 2 <= self.buffers.count,
            "beside the active buffer one is being written: the one that comes back"
        );
        if self.buffers.count > BUFFERS_MAX && !self.buffers.free.is_empty() {
            self.buffers.count -= 1;
            return Some((buffer, self.buffer_bytes()));
        }
        self.buffers.free.push(buffer);
        None
    }

    /// Counts a buffer that is about to be allocated; returns its bytes, if one more is allowed.
    pub(crate) fn add_buffer(&mut self) -> Option<usize> {
        let may_add = self.buffers.count < BUFFERS_WITH_RESERVE;
        self.buffers.count += usize::from(may_add);
        debug_assert!(self.buffers.count <= BUFFERS_WITH_RESERVE, "the number of buffers has a maximum");
        may_add.then(|| self.buffer_bytes())
    }

    fn buffer_bytes(&self) -> usize {
        self.buffers.payload_words_max * 8 + FRAME_HEADER_WORDS * 8
    }

    pub(crate) fn take_new(&mut self, buffer: AlignedBuffer) {
        assert!(buffer.bytes().len() >= self.buffer_bytes(), "a new buffer has room for a frame's records");
        debug_assert!(
            self.buffers.free.len() + self.buffers.full.len() < self.buffers.count,
            "a new buffer was counted before"
        );
        self.buffers.free.push(buffer);
    }

    /// Returns true if as many buffers are full as may be before callers wait.
    pub(crate) fn is_behind(&self) -> bool {
        self.buffers.full.len() + 2 >= BUFFERS_MAX
    }
}

impl JournalState {
    /// Notes the ranges for the next fence of this thread, or appends them.
    #[inline]
    pub(crate) fn flush(&self, ranges: &[(PoolOffset, usize)]) {
        // Panics here on an offset outside the pool, not under the lock.
        ranges.iter().for_each(|(offset, bytes)| self.mapping.assert_mapped(offset.bytes(), bytes / 8));
        debug_assert!(ranges.iter().all(is_words), "flushed ranges are whole words: {ranges:x?}");
        let words = words_of(ranges);
        if stage::note(&self.id, ranges, words) != NoteResult::Yes {
            self.flush_unnoted(ranges, words);
        }
    }

    #[cold]
    fn flush_unnoted(&self, ranges: &[(PoolOffset, usize)], words: usize) {
        assert_eq!(words, words_of(ranges), "records are counted with their heads");
        self.append_noted();
        if stage::note(&self.id, ranges, words) != NoteResult::Yes {
            self.flush_at_once(ranges);
        }
    }

    /// Appends what this thread has noted.
    #[inline]
    pub(crate) fn append_noted(&self) {
        let words = stage::words(&self.id);
        if words > 0 {
            step(FENCE_APPENDS, || {
                self.append_noted_and(words, |_, _| {});
            });
        }
    }

    /// Appends what this thread has noted, and behind it what `fill` writes; `words` are for both. False if
    /// the journal has failed or is closed: then the notes are discarded.
    #[inline]
    fn append_noted_and(&self, words: usize, fill: impl FnOnce(&mut u64, &mut [u64])) -> bool {
        let appended = self.append(words, |active, at| {
            let mut rest = &mut active.buffers.active.words_mut()[FRAME_HEADER_WORDS + at..];
            let noted = stage::take(&self.id, |range| {
                let records = std::mem::take(&mut rest);
                rest = self.fill_range(records, range);
            });
            debug_assert!(noted > 0, "notes are appended where there are some");
            active.flushes += noted as u64;
            fill(&mut active.flushes, rest);
        });
        if !appended {
            stage::take(&self.id, |_| {});
        }
        appended
    }

    /// Appends ranges that are not noted.
    fn flush_at_once(&self, ranges: &[(PoolOffset, usize)]) {
        debug_assert!(ranges.iter().all(is_words), "flushed ranges are whole words: {ranges:x?}");
        let words = words_of(ranges);
        if words > self.append_words_max {
            return self.flush_large(ranges);
        }
        self.append(words, |active, at| {
            active.flushes += ranges.len() as u64;
            self.fill_ranges(active.records_from(at), ranges);
        });
    }

    /// Copies the words of the ranges into records; returns the rest of the buffer. Under the append lock.
    #[inline]
    fn fill_ranges<'r>(&self, records: &'r mut [u64], ranges: &[(PoolOffset, usize)]) -> &'r mut [u64] {
        ranges.iter().fold(records, |rest, range| self.fill_range(rest, *range))
    }

    /// Copies the words of a range into a record; returns the rest of the buffer. Under the append lock.
    #[inline]
    fn fill_range<'r>(&self, records: &'r mut [u64], (offset, bytes): (PoolOffset, usize)) -> &'r mut [u64] {
        debug_assert!(is_words(&(offset, bytes)), "a record holds whole words: {offset:#x} (+{bytes})");
        let (record, rest) = records.split_at_mut(bytes / 8 + 1);
        self.dirty.mark(offset, bytes as u64);
        record[0] = record_head(offset, bytes / 8);
        self.mapping.copy_words(offset.bytes(), &mut record[1..]);
        rest
    }

    /// Flushes ranges that need several appends: allowed, since a flush of many words is not atomic.
    #[cold]
    fn flush_large(&self, ranges: &[(PoolOffset, usize)]) {
        debug_assert!(words_of(ranges) > self.append_words_max, "ranges that fit are one append");
        let step = (self.append_words_max - 1) * 8;
        for &(offset, bytes) in ranges {
            let mut done = 0;
            while done < bytes {
                let part = step.min(bytes - done);
                debug_assert!(
                    is_words(&(offset.plus(done as u64), part)),
                    "parts of a range are whole words"
                );
                self.flush_at_once(&[(offset.plus(done as u64), part)]);
                done += part;
            }
        }
    }

    /// Stores and flushes writes that are too many for one append. They need not be atomic, only come before
    /// the updates.
    #[cold]
    fn write_large(&self, writes: &[(PoolOffset, u64)]) {
        assert!(self.append_words_max >= 4, "an append has room for a record of a write");
        for part in writes.chunks(self.append_words_max / 2) {
            for run in crate::domain::runs(part) {
                let offset = run[0].0;
                let words = self.mapping.words(offset.bytes(), run.len());
                words.iter().zip(run).for_each(|(word, (_, value))| word.store(*value, Ordering::Relaxed));
                self.flush_at_once(&[(offset, run.len() * 8)]);
            }
        }
    }

    pub(crate) fn publish(
        &self,
        flushes: &[(PoolOffset, usize)],
        writes: &[(PoolOffset, u64)],
        updates: &[Update],
    ) {
        let (mut flushes, mut writes) = (flushes, writes);
        // Panics here on an offset outside the pool, not under the lock.
        flushes.iter().for_each(|(offset, bytes)| self.mapping.assert_mapped(offset.bytes(), bytes / 8));
        writes.iter().for_each(|(offset, _)| self.mapping.assert_mapped(offset.bytes(), 1));
        updates.iter().for_each(|update| self.mapping.assert_mapped(update.offset.bytes(), 1));
        assert!(
            updates.len() <= PUBLICATION_WORDS_MAX,
            "a publication of {} updates is more than one append takes",
            updates.len()
        );
        debug_assert!(flushes.iter().all(is_words), "flushed ranges are whole words: {flushes:x?}");
        let mut noted_words = value(stage::words(&self.id), 0, PUBLICATION_BEHIND_FLUSHES);
        let mut flushed_words = words_of(flushes);
        if noted_words + flushed_words + writes.len() * 2 + updates.len() * 2 > self.append_words_max {
            self.append_noted();
            self.flush_at_once(flushes);
            self.write_large(writes);
            (noted_words, flushes, writes, flushed_words) = (0, &[], &[], 0);
        }
        let runs = crate::domain::runs(writes).count();
        let words = flushed_words + runs + writes.len() + updates.len() * 2;
        let fill = |flushed: &mut u64, records: &mut [u64]| {
            *flushed += (flushes.len() + runs) as u64;
            let mut rest = self.fill_ranges(records, flushes);
            for run in crate::domain::runs(writes) {
                let offset = run[0].0;
                self.dirty.mark(offset, run.len() as u64 * 8);
                let words = self.mapping.words(offset.bytes(), run.len());
                rest[0] = record_head(offset, run.len());
                debug_assert!(rest.len() > run.len(), "the append has room for the record of a run");
                for ((record, word), (_, value)) in rest[1..].iter_mut().zip(words).zip(run) {
                    *record = *value;
                    word.store(*value, Ordering::Release);
                }
                rest = &mut rest[run.len() + 1..];
            }
            self.fill_updates(rest, updates);
        };
        let appended = if noted_words > 0 {
            self.append_noted_and(noted_words + words, fill)
        } else {
            self.append(words, |active, at| {
                let records = &mut active.buffers.active.words_mut()[FRAME_HEADER_WORDS + at..];
                fill(&mut active.flushes, records);
            })
        };
        if !appended {
            // The journal has failed or is closed. What is in DRAM stays consistent for readers; it never
            // becomes durable.
            for (offset, value) in writes {
                self.mapping.words(offset.bytes(), 1)[0].store(*value, Ordering::Release);
            }
            updates.iter().for_each(|update| update.apply(&self.mapping));
        }
    }

    /// Appends the last record of all, after the gate was shut.
    pub(crate) fn append_last(&self, updates: &[Update]) -> Result<()> {
        // Appends admitted before have ended once the lock is free; writing all buffers makes room.
        drop(self.appender.active.lock());
        self.write_out()?;
        let mut active = self.appender.active.lock();
        assert_eq!(active.payload_words, 0, "nothing is appended behind a shut gate");
        assert_eq!(self.gate(), Gate::Shut, "the last record comes behind a shut gate");
        let words = updates.len() * 2;
        self.fill_updates(active.records_from(0), updates);
        active.payload_words = words;
        let before = self.appender.appended.load(Ordering::Relaxed);
        self.appender.appended.store(before.plus(words as u64 * 8), Ordering::Release);
        Ok(())
    }

    /// Carries the updates out and writes their records. Under the append lock.
    fn fill_updates(&self, records: &mut [u64], updates: &[Update]) {
        assert!(records.len() >= updates.len() * 2, "every update has room for its record");
        for (update, record) in updates.iter().zip(records.chunks_exact_mut(2)) {
            step(PUBLISHED_PAGES_MARKED, || self.dirty.mark(update.offset, 8));
            hook::pass(HookPoint::Marked);
            let word = &self.mapping.words(update.offset.bytes(), 1)[0];
            let value = match update.operation {
                Operation::Set => update.value,
                Operation::SetBits => word.load(Ordering::Acquire) | update.value,
                Operation::ClearBits => word.load(Ordering::Acquire) & !update.value,
            };
            record[0] = record_head(update.offset, 1);
            record[1] = value;
            word.store(value, Ordering::Release);
            hook::pass(HookPoint::HalfStored);
        }
    }

    /// Makes room for `words` in the buffer and lets `fill` write them, all under the append lock. False if
    /// the journal has failed or is closed.
    #[inline]
    fn append(&self, words: usize, fill: impl FnOnce(&mut AppendState, usize)) -> bool {
        assert!(
            words <= self.append_words_max,
            "an append of {words} words does not fit the journal's buffer"
        );
        loop {
            if !matches!(self.gate(), Gate::Open | Gate::Full) && !self.pass_gate() {
                return false;
            }
            let mut active = self.appender.active.lock();
            // Under the lock: nothing is appended behind the last record of a closed journal.
            if self.gate() == Gate::Shut {
                return false;
            }
            if active.payload_words + words > active.buffers.payload_words_max && !active.rotate() {
                drop(active);
                if self.make_room().is_err() {
                    return false;
                }
                continue;
            }
            let at = active.payload_words;
            assert!(
                at + words <= active.buffers.payload_words_max,
                "records of {words} words at word {at} end behind the buffer"
            );
            fill(&mut active, at);
            debug_assert!(
                is_filled(active.records_from(at), words),
                "the records fill exactly the {words} words that the append counted"
            );
            active.payload_words = at + words;
            // Under the lock, so that positions and buffer contents never disagree.
            let before = self.appender.appended.load(Ordering::Relaxed);
            let after = before.plus(words as u64 * 8);
            self.appender.appended.store(after, Ordering::Release);
            let much_to_write = active.payload_words * 2 > active.buffers.payload_words_max
                || !active.buffers.full.is_empty();
            if much_to_write && active.is_behind() {
                self.is_behind.store(true, Ordering::Relaxed);
            }
            drop(active);
            if much_to_write {
                self.background.request_write();
            }
            if before.piece(self.policy.check_shift) != after.piece(self.policy.check_shift) {
                self.consider_checkpoint();
            }
            return true;
        }
    }
}

/// Words of the records of ranges.
#[inline]
fn words_of(ranges: &[(PoolOffset, usize)]) -> usize {
    ranges.iter().map(|(_, bytes)| bytes / 8 + 1).sum()
}

/// Returns true if a range is a positive number of whole words.
#[inline]
fn is_words((offset, bytes): &(PoolOffset, usize)) -> bool {
    *bytes > 0 && offset.is_aligned(8) && bytes.is_multiple_of(8)
}

/// Returns true if records fill exactly the first `words` words.
fn is_filled(records: &[u64], words: usize) -> bool {
    records.get(..words).is_some_and(|records| for_each_record(records, |_, _| {}).is_ok())
}
