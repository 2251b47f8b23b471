//! The MVCC object: all versions of one key (dissertation 5.3.1, figure 5.4), updated in place (5.4).
//!
//! ```text
//! word 0          bitmap of used slots
//! word 1          number of slots (low half) | capacity of a value in bytes (high half); never changes
//! 2 words x slots headers: CTS | DTS
//! then x slots    values: length in bytes | capacity / 8 words, little-endian
//! ```
//!
//! A version is visible at snapshot S when its bit is set, `cts <= S < dts`, and its CTS is not invalid; an
//! invalid DTS counts as infinity (its commit never happened).
//!
//! # Readers and the one writer
//! A slot is rewritten only if no registered snapshot sees its version, and then with a CTS above every
//! registered snapshot (it is not finished yet). So a reader can be misled only by mixing two versions of a
//! slot. It is not: the writer stores CTS before DTS (release), the reader loads DTS (acquire) before CTS, so
//! its CTS is at least as new as its DTS. If the DTS is that of a version which the reader's snapshot does
//! not see because it ended, the slot is out; if the DTS is newer than that, so is the CTS, and the slot is
//! out; otherwise the version is needed or not yet visible, and either it stays, or the CTS read is invalid
//! or above the snapshot. Once a version was found visible its value cannot change while the snapshot is
//! registered.
//!
//! # What a crash leaves
//! The phases of a commit are separated by fences: bits of reused slots cleared; headers and values written;
//! bits set. Whatever words of a phase survive, every slot with its bit set is complete, and what an
//! unfinished commit wrote carries its announced (hence invalid) timestamp.

use crate::mvcc::value_buffer::ValueBuffer;
use crate::points::{
    BIT_AFTER_ITS_VERSION, NEW_OBJECT, NEW_OBJECT_VALUES, SLOT_CLEARED, VERSION_BIT, VERSION_END,
    VERSION_TIMES, VERSION_VALUE,
};
use crate::protocol::VERSION_SLOTS_MIN;
use crate::visibility::active::Snapshots;
use crate::visibility::invalid_ranges::InvalidRanges;
use crate::visibility::snapshot::Snapshot;
use crate::{INFINITY, Timestamp, interleave};
use entresol_memory::order::{FlushWord, OrderPoint};
use entresol_memory::{OBJECT_BYTES_MAX, Pool, PoolOffset, Publication, STREAM_BYTES_MIN};
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Maximum number of versions of one key at a time: one bit each in a word.
pub const VERSION_SLOTS_MAX: usize = 64;
/// The longest value: three versions of it fit the largest object that a pool can hold.
pub const VALUE_BYTES_MAX: usize = 4 << 20;
const _: () = assert!(3 * (VALUE_BYTES_MAX as u64 + 64) < OBJECT_BYTES_MAX);
/// The longest content of an object with one slot, and of a version in a chain: a part of a change log can
/// hold two of the longest values, and a key.
pub(crate) const STORED_BYTES_MAX: usize = 2 * VALUE_BYTES_MAX + (64 << 10);
const _: () = assert!(STORED_BYTES_MAX as u64 + 64 < OBJECT_BYTES_MAX);

/// Least length of values that are rarely written again: column pages. Rows are shorter.
const LARGE_VALUE_BYTES: usize = 32 << 10;

const BITMAP: usize = 0;
const LAYOUT: usize = 1;
const HEADERS: usize = 2;

/// Layout of an object: the number of slots, and the maximum length of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ObjectLayout {
    slots: usize,
    /// A multiple of 8.
    capacity: usize,
}

impl ObjectLayout {
    /// With as many of the slots asked for as an object can have with such values; with one for values of
    /// [`LARGE_VALUE_BYTES`], which is moved when it is written again.
    pub(crate) fn for_new(value_bytes: usize, slots: usize) -> ObjectLayout {
        debug_assert!(
            (VERSION_SLOTS_MIN..=VERSION_SLOTS_MAX).contains(&slots),
            "an object has {VERSION_SLOTS_MIN} to {VERSION_SLOTS_MAX} slots, not {slots}"
        );
        if value_bytes >= LARGE_VALUE_BYTES {
            return ObjectLayout::of_one(value_bytes);
        }
        let capacity = value_bytes.next_multiple_of(8);
        let layouts = (VERSION_SLOTS_MIN..=slots).rev().map(|slots| ObjectLayout { slots, capacity });
        let mut fitting = layouts.filter(|layout| layout.bytes() as u64 <= OBJECT_BYTES_MAX);
        fitting.next().unwrap_or(ObjectLayout { slots: VERSION_SLOTS_MIN, capacity })
    }

    /// With one slot: for a key that is never written again.
    pub(crate) fn of_one(value_bytes: usize) -> ObjectLayout {
        ObjectLayout { slots: 1, capacity: value_bytes.next_multiple_of(8) }
    }

    /// The same, with at least so many slots.
    pub(crate) fn with_slots(self, slots: usize) -> ObjectLayout {
        ObjectLayout { slots: slots.max(self.slots), ..self }
    }

    /// A layout for `versions` versions and a value of this length, at least as roomy as now if possible;
    /// None if there are more than `slots_max` versions, or more than fit an object.
    pub(crate) fn grown(self, versions: usize, value_bytes: usize, slots_max: usize) -> Option<ObjectLayout> {
        debug_assert!(
            versions > 0 && self.capacity.is_multiple_of(8),
            "{self:?} grows for {versions} versions"
        );
        let doubled = if versions > self.slots { (2 * self.slots).max(versions) } else { self.slots };
        let needed = value_bytes.next_multiple_of(8).max(self.capacity);
        let slack =
            if needed > self.capacity { (self.capacity + self.capacity / 2).next_multiple_of(8) } else { 0 };
        let roomy = ObjectLayout {
            slots: doubled.min(slots_max.max(self.slots)),
            capacity: needed.max(slack).min(VALUE_BYTES_MAX),
        };
        let tight = ObjectLayout { slots: versions.max(VERSION_SLOTS_MIN), capacity: needed };
        [roomy, tight].into_iter().find(|layout| {
            (versions..=slots_max.max(self.slots)).contains(&layout.slots)
                && layout.bytes() as u64 <= OBJECT_BYTES_MAX
        })
    }

    /// The layout with which a key starts, keeping the capacity.
    pub(crate) fn shrunk(self, slots: usize) -> ObjectLayout {
        ObjectLayout { slots: slots.min(self.slots), ..self }
    }

    /// Gives what an allocation of this size has left over to the values.
    pub(crate) fn filling(self, bytes: usize) -> ObjectLayout {
        assert!(
            bytes >= self.bytes(),
            "an object of {} bytes does not fit an allocation of {bytes}",
            self.bytes()
        );
        let value_words = ((bytes / 8).saturating_sub(HEADERS) / self.slots).saturating_sub(3);
        ObjectLayout {
            capacity: (8 * value_words).clamp(self.capacity, VALUE_BYTES_MAX.max(self.capacity)),
            ..self
        }
    }

    #[inline]
    fn value_words(self) -> usize {
        1 + self.capacity / 8
    }

    #[inline]
    fn words(self) -> usize {
        HEADERS + self.slots * (2 + self.value_words())
    }

    pub(crate) fn bytes(self) -> usize {
        8 * self.words()
    }

    pub(crate) fn slots(self) -> usize {
        self.slots
    }

    fn encode(self) -> u64 {
        assert!(
            (1..=VERSION_SLOTS_MAX).contains(&self.slots)
                && self.capacity <= capacity_max(self.slots)
                && self.capacity.is_multiple_of(8),
            "an object that is written can be opened: {self:?}"
        );
        self.slots as u64 | (self.capacity as u64) << 32
    }

    #[inline]
    fn try_decode(word: u64) -> Option<ObjectLayout> {
        let layout = ObjectLayout { slots: (word & 0xffff_ffff) as usize, capacity: (word >> 32) as usize };
        let sane = (1..=VERSION_SLOTS_MAX).contains(&layout.slots)
            && layout.capacity <= capacity_max(layout.slots)
            && layout.capacity.is_multiple_of(8);
        sane.then_some(layout)
    }
}

/// Summary of an object for a writer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Census {
    /// The slot of the version that nothing has superseded.
    pub(crate) current: Option<usize>,
    /// The newest timestamp at which the key was written or deleted.
    pub(crate) newest: Timestamp,
    /// Used slots that some snapshot, now or later, may read.
    pub(crate) needed: u64,
    /// Slots that only registered snapshots need, none that is taken from now on.
    pub(crate) old: u64,
    /// Used slots that no snapshot reads.
    pub(crate) dead: u64,
}

/// An MVCC object in the pool. Readers hold a guard of the pool while they use one; writers the key.
#[derive(Clone, Copy)]
pub(crate) struct VersionedObject<'p> {
    pool: &'p Pool,
    offset: PoolOffset,
    layout: ObjectLayout,
    words: &'p [AtomicU64],
}

impl<'p> VersionedObject<'p> {
    /// The object at an offset, if there can be one: for readers, which must tolerate damage.
    #[inline]
    pub(crate) fn try_open(pool: &'p Pool, offset: PoolOffset) -> Option<Self> {
        let layout =
            ObjectLayout::try_decode(pool.try_words(offset, HEADERS)?[LAYOUT].load(Ordering::Relaxed))?;
        Some(VersionedObject { pool, offset, layout, words: pool.try_words(offset, layout.words())? })
    }

    /// Checks an object that may be damaged; returns the number of its versions and its bytes, or a
    /// description of the problem. No writer may run meanwhile.
    pub(crate) fn check(
        pool: &'p Pool,
        offset: PoolOffset,
        invalid: &InvalidRanges,
    ) -> Result<(usize, usize), String> {
        let object = VersionedObject::try_open(pool, offset).ok_or("no MVCC object can be there")?;
        let bitmap = object.words[BITMAP].load(Ordering::Acquire);
        if object.layout.slots < 64 && bitmap >> object.layout.slots != 0 {
            return Err(format!("bitmap {bitmap:#x} names slots that do not exist"));
        }
        let mut current = 0;
        for slot in slots(bitmap) {
            let (cts, dts) = object.header(slot);
            let bytes = object.words[object.value_at(slot)].load(Ordering::Relaxed) as usize;
            if bytes > object.layout.capacity {
                return Err(format!(
                    "version {slot} says it has {bytes} of {} bytes",
                    object.layout.capacity
                ));
            }
            if invalid.contains(cts) {
                continue;
            }
            let dts = if invalid.contains(dts) { INFINITY } else { dts };
            if cts >= dts {
                return Err(format!("version {slot} is valid from {cts} until {dts}"));
            }
            current += usize::from(dts == INFINITY);
        }
        if current > 1 {
            return Err(format!("it has {current} current versions"));
        }
        Ok((bitmap.count_ones() as usize, object.layout.bytes()))
    }

    /// Prepares reserved memory: no slot is used.
    pub(crate) fn initialise(pool: &'p Pool, offset: PoolOffset, layout: ObjectLayout) -> Self {
        debug_assert!(!offset.is_null() && offset.is_aligned(8), "no object begins at {offset:#x}");
        let words = pool.words(offset, layout.words());
        words[BITMAP].store(0, Ordering::Relaxed);
        words[LAYOUT].store(layout.encode(), Ordering::Relaxed);
        VersionedObject { pool, offset, layout, words }
    }

    pub(crate) fn offset(&self) -> PoolOffset {
        self.offset
    }

    pub(crate) fn layout(&self) -> ObjectLayout {
        self.layout
    }

    pub(crate) fn holds(&self, value_bytes: usize) -> bool {
        value_bytes <= self.layout.capacity
    }

    /// Bitmap of used slots. Bits of slots that do not exist would be damage, and are masked out.
    #[inline]
    fn bitmap(&self) -> u64 {
        let all = if self.layout.slots == 64 { u64::MAX } else { (1 << self.layout.slots) - 1 };
        self.words[BITMAP].load(Ordering::Acquire) & all
    }

    /// CTS and DTS of a slot. DTS first: see the module's argument.
    #[inline]
    fn header(&self, slot: usize) -> (Timestamp, Timestamp) {
        let header = &self.words[HEADERS + 2 * slot..HEADERS + 2 * slot + 2];
        let dts = header[1].load(Ordering::Acquire);
        interleave::point();
        let cts = header[0].load(Ordering::Acquire);
        (Timestamp::from_stored(cts), Timestamp::from_stored(dts))
    }

    #[inline]
    fn value_at(&self, slot: usize) -> usize {
        debug_assert!(slot < self.layout.slots, "slot {slot} of {:#x} does not exist", self.offset);
        HEADERS + 2 * self.layout.slots + slot * self.layout.value_words()
    }

    /// The slot of the version that the snapshot sees.
    #[inline]
    pub(crate) fn visible(&self, snapshot: Snapshot, invalid: &InvalidRanges) -> Option<usize> {
        slots(self.bitmap()).find(|&slot| {
            let (cts, dts) = self.header(slot);
            snapshot.sees(cts) && (!snapshot.sees(dts) || invalid.contains(dts)) && !invalid.contains(cts)
        })
    }

    /// Copies the value of a slot. Returns false, with the buffer empty, for a length that does not fit:
    /// possible only for a reader whose transaction was finished meanwhile.
    #[must_use]
    #[inline]
    pub(crate) fn copy_value(&self, slot: usize, buffer: &mut ValueBuffer) -> bool {
        buffer.clear();
        let at = self.value_at(slot);
        let bytes = self.words[at].load(Ordering::Relaxed) as usize;
        if bytes > self.layout.capacity {
            return false;
        }
        let words = &self.words[at + 1..at + 1 + bytes.div_ceil(8)];
        interleave::point();
        buffer.copy_words(words, bytes);
        true
    }

    /// Pool offset and bytes of the value of a slot; none for a length that does not fit, as [`Self::copy_value`] says.
    pub(crate) fn place(&self, slot: usize) -> Option<(PoolOffset, usize)> {
        let at = self.value_at(slot);
        let bytes = self.words[at].load(Ordering::Relaxed) as usize;
        (bytes <= self.layout.capacity).then(|| (self.word_offset(at + 1), bytes))
    }

    /// Tells whether the version in a slot, found with this CTS, has been there until now. For readers
    /// without a registered snapshot, after they have copied its value.
    pub(crate) fn is_still(&self, slot: usize, cts: Timestamp) -> bool {
        // Pairs with the release fence between the clearing of a bit and the stores into its slot: a reader
        // that copied one of those words sees the bit cleared, or set again with another CTS.
        fence(Ordering::Acquire);
        self.bitmap() & (1 << slot) != 0 && self.header(slot).0 == cts
    }

    /// The length of the value in a slot, as it is stored: the caller holds the key.
    pub(crate) fn value_bytes(&self, slot: usize) -> usize {
        let bytes = self.words[self.value_at(slot)].load(Ordering::Relaxed) as usize;
        assert!(bytes <= self.layout.capacity, "damaged MVCC object at {}: value length", self.offset);
        bytes
    }

    /// The CTS in a slot.
    pub(crate) fn cts(&self, slot: usize) -> Timestamp {
        self.header(slot).0
    }

    /// Copies of versions: CTS, DTS (as it counts), value. The caller holds the key.
    pub(crate) fn copies(
        &self,
        which: u64,
        invalid: &InvalidRanges,
    ) -> impl Iterator<Item = (Timestamp, Timestamp, ValueBuffer)> {
        slots(which).map(move |slot| {
            let (cts, dts) = self.header(slot);
            let mut value = ValueBuffer::new();
            assert!(
                self.copy_value(slot, &mut value),
                "damaged MVCC object at {}: value length",
                self.offset
            );
            (cts, if invalid.contains(dts) { INFINITY } else { dts }, value)
        })
    }

    /// Sorts the versions by the snapshots that need them.
    pub(crate) fn census(&self, invalid: &InvalidRanges, snapshots: &Snapshots) -> Census {
        let mut census = Census { current: None, newest: Timestamp::START, needed: 0, old: 0, dead: 0 };
        for slot in slots(self.bitmap()) {
            let (cts, dts) = self.header(slot);
            if invalid.contains(cts) {
                census.dead |= 1 << slot;
                continue;
            }
            let dts = if invalid.contains(dts) { INFINITY } else { dts };
            assert!(cts < dts, "damaged MVCC object at {}: version [{cts}, {dts})", self.offset);
            census.newest = census.newest.max(cts);
            if dts == INFINITY {
                assert!(
                    census.current.is_none(),
                    "damaged MVCC object at {}: two current versions",
                    self.offset
                );
                census.current = Some(slot);
            } else {
                census.newest = census.newest.max(dts);
            }
            if snapshots.needs(cts, dts) {
                census.needed |= 1 << slot;
                census.old |= if snapshots.is_recent(dts) { 0 } else { 1 << slot };
            } else {
                census.dead |= 1 << slot;
            }
        }
        census
    }

    /// The newest timestamp at which the key was written or deleted; the start if that never counted.
    pub(crate) fn newest(&self, invalid: &InvalidRanges) -> Timestamp {
        let counts = |timestamp: Timestamp| timestamp != INFINITY && !invalid.contains(timestamp);
        let headers = slots(self.bitmap()).map(|slot| self.header(slot));
        let valid = headers.filter(|&(cts, _)| counts(cts));
        valid.map(|(cts, dts)| if counts(dts) { cts.max(dts) } else { cts }).max().unwrap_or_default()
    }

    /// Number of versions that were written after this time, as far as they are still here.
    pub(crate) fn versions_after(&self, time: Timestamp) -> usize {
        slots(self.bitmap()).filter(|&slot| self.header(slot).0 > time).count()
    }

    /// Tells whether the key may be dead, as far as this snapshot can tell.
    pub(crate) fn seems_dead(&self, snapshot: Snapshot, invalid: &InvalidRanges) -> bool {
        slots(self.bitmap()).all(|slot| {
            let (cts, dts) = self.header(slot);
            invalid.contains(cts) || (snapshot.sees(dts) && !invalid.contains(dts))
        })
    }

    /// A slot that can take a new version: an unused one if there is one.
    pub(crate) fn free_slot(&self, census: &Census) -> Option<usize> {
        let all = if self.layout.slots == 64 { u64::MAX } else { (1 << self.layout.slots) - 1 };
        let unused = all & !self.bitmap();
        debug_assert!(census.needed & census.dead == 0, "no slot is needed and dead: {census:?}");
        slots(if unused != 0 { unused } else { census.dead }).next()
    }

    /// Phase 1: takes slots that no snapshot reads out of use.
    pub(crate) fn clear(&self, dead: u64) {
        debug_assert!(
            u64::BITS - dead.leading_zeros() <= self.layout.slots as u32,
            "only slots of the object are cleared: {dead:#x}"
        );
        if dead != 0 {
            self.clear_unflushed(dead);
            self.flush_word_at(BITMAP, SLOT_CLEARED);
        }
    }

    /// The same before a publication that stores the bitmap and cannot survive in part.
    pub(crate) fn clear_unflushed(&self, dead: u64) {
        debug_assert!(
            dead & !self.bitmap() == 0,
            "slots that are taken out of use are in use: {dead:#x} of {:#x}",
            self.offset
        );
        if dead != 0 {
            self.words[BITMAP].store(self.bitmap() & !dead, Ordering::Release);
        }
    }

    /// Makes the words of a slot ready to be stored to under a lock that others wait for: pages that were
    /// read only are copied now, and lines come.
    pub(crate) fn prepare_slot(&self, slot: usize, value_bytes: usize) {
        debug_assert!(slot < self.layout.slots, "the object has no slot {slot}");
        let last = self.value_at(slot) + value_bytes.div_ceil(8);
        for word in [HEADERS + 2 * slot, last].map(|word| &self.words[word]) {
            let value = word.load(Ordering::Relaxed);
            // The holder of the key alone stores here: it is the same value.
            let _ = word.compare_exchange(value, value, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Phases 2 and 3 in a publication: the words of the version, the end of the one that it supersedes, then
    /// the bit.
    pub(crate) fn publish_version(
        &self,
        slot: usize,
        cts: Timestamp,
        value: &[u8],
        superseded: Option<usize>,
        publication: &mut Publication<'_>,
    ) {
        assert!(self.bitmap() & (1 << slot) == 0, "slot {slot} of {} is in use", self.offset);
        assert!(self.holds(value.len()), "{} bytes do not fit the object", value.len());
        assert!(superseded != Some(slot), "a version in slot {slot} does not end itself");
        debug_assert!(Timestamp::START < cts && cts < INFINITY, "{cts} is not a timestamp of a commit");
        let header = HEADERS + 2 * slot;
        // Words side by side are one record of the journal.
        let before = superseded.filter(|superseded| superseded + 1 == slot);
        before.inspect(|&superseded| self.publish_end(superseded, cts, publication));
        // CTS before DTS: see the module's argument.
        publication.write(self.word_offset(header), cts.stored());
        publication.write(self.word_offset(header + 1), INFINITY.stored());
        let at = self.value_at(slot);
        publication.write(self.word_offset(at), value.len() as u64);
        let (whole, rest) = value.as_chunks::<8>();
        for (word, bytes) in (at + 1..).zip(whole) {
            publication.write(self.word_offset(word), u64::from_le_bytes(*bytes));
        }
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            publication.write(self.word_offset(at + 1 + whole.len()), u64::from_le_bytes(last));
        }
        let apart = superseded.filter(|_| before.is_none());
        apart.inspect(|&superseded| self.publish_end(superseded, cts, publication));
        publication.after(BIT_AFTER_ITS_VERSION);
        publication.set(self.word_offset(BITMAP), self.bitmap() | 1 << slot);
    }

    /// The end of a version's validity in a publication.
    pub(crate) fn publish_end(&self, slot: usize, dts: Timestamp, publication: &mut Publication<'_>) {
        debug_assert!(self.bitmap() & (1 << slot) != 0, "a version that ends is in use: slot {slot}");
        debug_assert!(self.header(slot).0 < dts, "a version ends behind its begin: slot {slot} at {dts}");
        publication.write(self.word_offset(HEADERS + 2 * slot + 1), dts.stored());
    }

    /// Words that [`VersionedObject::publish_version`] writes for a value.
    pub(crate) fn published_words(value_bytes: usize) -> usize {
        4 + value_bytes.div_ceil(8)
    }

    /// Phase 2: writes a version into an unused slot, and ends the one that it supersedes. Words side by side
    /// are flushed as one range: on `journal` a range costs more than a word.
    pub(crate) fn write(&self, slot: usize, cts: Timestamp, value: &[u8], superseded: Option<usize>) {
        assert!(self.bitmap() & (1 << slot) == 0, "slot {slot} of {} is in use", self.offset);
        assert!(superseded != Some(slot), "a version in slot {slot} does not end itself");
        debug_assert!(
            superseded.is_none_or(|superseded| self.header(superseded).0 < cts),
            "the version that ends at {cts} began before: {superseded:?} of {:#x}",
            self.offset
        );
        self.fill(slot, cts, INFINITY, value);
        let header = HEADERS + 2 * slot;
        let value = (self.word_offset(self.value_at(slot)), 8 * words_to_flush(value.len()), VERSION_VALUE);
        let (mut first, mut end) = (header, header + 2);
        if let Some(superseded) = superseded {
            let ended = HEADERS + 2 * superseded + 1;
            // At most its CTS lies between, which costs no more than the head of a record of its own.
            if (header - 1..=header + 3).contains(&ended) {
                self.words[ended].store(cts.stored(), Ordering::Release);
                (first, end) = (first.min(ended), end.max(ended + 1));
            } else {
                self.end(superseded, cts);
            }
        }
        self.pool.flush_two_at((self.word_offset(first), 8 * (end - first), VERSION_TIMES), value);
    }

    /// A large value is flushed here already, on its way past the caches; see [`words_to_flush`].
    fn fill(&self, slot: usize, cts: Timestamp, dts: Timestamp, value: &[u8]) {
        assert!(self.holds(value.len()), "{} bytes do not fit the object", value.len());
        // A version of a load begins at the start of time.
        debug_assert!(cts < dts, "a version is valid from {cts} until {dts}");
        debug_assert!(self.bitmap() & (1 << slot) == 0, "a slot's bit is set after its version: slot {slot}");
        // CTS before DTS: see the module's argument.
        self.words[HEADERS + 2 * slot].store(cts.stored(), Ordering::Release);
        interleave::point();
        self.words[HEADERS + 2 * slot + 1].store(dts.stored(), Ordering::Release);
        let at = self.value_at(slot);
        interleave::point();
        self.words[at].store(value.len() as u64, Ordering::Relaxed);
        if value.len() >= STREAM_BYTES_MIN {
            return self.pool.store_flushed_at(self.word_offset(at + 1), value, VERSION_VALUE);
        }
        let (whole, rest) = value.as_chunks::<8>();
        for (word, bytes) in self.words[at + 1..].iter().zip(whole) {
            word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
        }
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            self.words[at + 1 + whole.len()].store(u64::from_le_bytes(last), Ordering::Relaxed);
        }
    }

    /// Phase 2: ends the validity of a version.
    pub(crate) fn end(&self, slot: usize, dts: Timestamp) {
        debug_assert!(self.bitmap() & (1 << slot) != 0, "a version that ends is in use: slot {slot}");
        debug_assert!(self.header(slot).0 < dts, "a version ends behind its begin: slot {slot} at {dts}");
        self.store_end(slot, dts);
    }

    fn store_end(&self, slot: usize, dts: Timestamp) {
        debug_assert!(slot < self.layout.slots, "the object has no slot {slot}");
        self.words[HEADERS + 2 * slot + 1].store(dts.stored(), Ordering::Release);
        self.flush_word_at(HEADERS + 2 * slot + 1, VERSION_END);
    }

    /// Phase 3: the version in the slot counts.
    pub(crate) fn activate(&self, slot: usize) {
        debug_assert!(slot < self.layout.slots, "slot {slot} of {:#x} does not exist", self.offset);
        debug_assert!(
            self.bitmap() & (1 << slot) == 0,
            "a slot's bit is set once, after its version: slot {slot}"
        );
        self.words[BITMAP].store(self.bitmap() | 1 << slot, Ordering::Release);
        self.flush_word_at(BITMAP, VERSION_BIT);
    }

    /// Fills a fresh object with versions of another one (which the caller does not change any more), the
    /// current one ended at `cts`, and with the new version; flushes all of it.
    pub(crate) fn build(
        &self,
        old: Option<(&VersionedObject<'_>, &Census)>,
        new: Option<(Timestamp, &[u8])>,
    ) {
        debug_assert_eq!(self.bitmap(), 0, "a fresh object has no versions: {:#x}", self.offset);
        let versions = old.map_or(0, |(_, census)| census.needed.count_ones()) + u32::from(new.is_some());
        assert!(versions as usize <= self.layout.slots, "{versions} versions do not fit {:?}", self.layout);
        let mut next = 0;
        let mut value = ValueBuffer::new();
        if let Some((old, census)) = old {
            for slot in slots(census.needed) {
                let (cts, dts) = old.header(slot);
                let dts = match new {
                    _ if census.current != Some(slot) => dts,
                    Some((cts, _)) => cts,
                    None => INFINITY,
                };
                assert!(
                    old.copy_value(slot, &mut value),
                    "damaged MVCC object at {}: value length",
                    old.offset
                );
                self.fill(next, cts, dts, &value);
                next += 1;
            }
        }
        if let Some((cts, value)) = new {
            self.fill(next, cts, INFINITY, value);
            next += 1;
        }
        let used = if next == 64 { u64::MAX } else { (1 << next) - 1 };
        self.words[BITMAP].store(used, Ordering::Release);
        let bytes = |slot| self.words[self.value_at(slot)].load(Ordering::Relaxed) as usize;
        // The first value lies behind the headers.
        let whole = self.value_at(0) + if next > 0 { words_to_flush(bytes(0)) } else { 0 };
        self.pool.flush_at(self.word_offset(BITMAP), 8 * whole, NEW_OBJECT);
        for slot in 1..next {
            let value = self.word_offset(self.value_at(slot));
            self.pool.flush_at(value, 8 * words_to_flush(bytes(slot)), NEW_OBJECT_VALUES);
        }
    }

    /// Removes every trace of invalid timestamps; returns true if there was one. Idempotent, in any order:
    /// with and without the range the object means the same.
    pub(crate) fn scrub(&self, invalid: &InvalidRanges) -> bool {
        let mut dead = 0;
        let mut changed = false;
        for slot in slots(self.bitmap()) {
            let (cts, dts) = self.header(slot);
            if invalid.contains(cts) {
                dead |= 1 << slot;
            } else if invalid.contains(dts) {
                // It was never ended.
                self.store_end(slot, INFINITY);
                changed = true;
            }
        }
        self.clear(dead);
        changed || dead != 0
    }

    fn word_offset(&self, word: usize) -> PoolOffset {
        self.offset.word(word)
    }

    fn flush_word_at(&self, word: usize, point: OrderPoint<FlushWord>) {
        debug_assert!(word < self.words.len(), "the flushed word {word} is of the object");
        self.pool.flush_word_at(self.word_offset(word), point);
    }
}

/// The largest capacity of a slot.
fn capacity_max(slots: usize) -> usize {
    if slots == 1 { STORED_BYTES_MAX } else { VALUE_BYTES_MAX }
}

/// Words of a value that filling the slot leaves to be flushed, its length included.
fn words_to_flush(value_bytes: usize) -> usize {
    if value_bytes < STREAM_BYTES_MIN { 1 + value_bytes.div_ceil(8) } else { 1 }
}

/// The set bits, lowest first.
#[inline]
fn slots(mut bitmap: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        if bitmap == 0 {
            return None;
        }
        let slot = bitmap.trailing_zeros() as usize;
        bitmap &= bitmap - 1;
        Some(slot)
    })
}

#[cfg(test)]
mod tests;
