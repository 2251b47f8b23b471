//! One shard of the cache: a circular queue of entries, an index into it, and the query features of a period.
//!
//! ```text
//!   head ──── warm ──── ┆ ──── hot ──── tail        oldest entries are warm, the next to go
//!            hit: goes to the tail again
//!
//!   line of 64 bytes:  8 places (tag, slot)  8 features (tag, period, queries)      for four slots
//! ```
//!
//! Readers validate the shard's version and write nothing. Places and slots change under the latch. Readers that would
//! add or move an entry only try for it: a cache may leave out what it could do. A slot that no place names is dead
//! until the head has passed it. A line whose places are all taken loses one: the cache may forget.
//!
//! Memory: a slot (key and value) and 16 bytes of line for each entry, fixed at creation.

use super::changes::{Noted, UnderWay};
use super::sync::{Acquire, AtomicBool, AtomicU32, AtomicU64, Relaxed, Release, SeqCst, fence, pause};
use crate::simd::prefetch;

/// Places, and features, of a line.
const LANES: usize = 8;
/// Slots of a line: half of its places, so that few lines are too full.
pub(super) const SLOTS_PER_LINE: usize = LANES / 2;
const LINE_BYTES: usize = 64;
/// The most slots: so that a place keeps eight bits of tag.
const SLOTS_MAX: usize = 1 << 23;

/// The words of a key and their hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) key: [u64; 2],
    pub(super) hash: u64,
}

impl Wanted {
    /// For a key of so many words; the others are 0.
    #[inline]
    pub(super) fn new(key: [u64; 2], words: usize) -> Wanted {
        let mix = |word: u64| (word ^ (word >> 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let first = mix(key[0]);
        let hash = if words > 1 { mix(first.rotate_left(29) ^ key[1]) } else { first };
        Wanted { key, hash: mix(hash ^ (hash >> 29)) }
    }
}

#[repr(align(64))]
struct Line {
    /// Tag (upper bits), slot plus one (lower bits); 0: free.
    places: [AtomicU32; LANES],
    /// Tag (16 bits), period (8), queries (8).
    features: [AtomicU32; LANES],
}

/// See the [module](self).
#[repr(align(64))]
pub(super) struct Shard {
    /// Odd: held.
    latch: AtomicU64,
    /// Whether entries came in since it was cleared.
    is_used: AtomicBool,
    /// The slot of the oldest entry.
    head: AtomicU64,
    /// Slots from there on that have, or had, entries.
    length: AtomicU64,
    warm_percent: AtomicU64,
    capacity: u64,
    key_words: usize,
    place_bits: u32,
    slots: Box<[AtomicU64]>,
    lines: Box<[Line]>,
}

/// An entry that was found.
pub(super) struct Hit {
    pub(super) value: u64,
    pub(super) is_warm: bool,
}

/// The latch of a shard; dropping it lets go.
struct Held<'s>(&'s AtomicU64);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let held = self.0.load(Relaxed);
        self.0.store(held + 1, Release);
    }
}

impl Shard {
    /// Bytes of a line and its slots.
    pub(super) fn bytes_per_line(key_words: usize) -> usize {
        LINE_BYTES + SLOTS_PER_LINE * (key_words + 1) * 8
    }

    /// A shard with so many lines.
    pub(super) fn new(lines: usize, key_words: usize) -> Shard {
        let lines = lines.clamp(1, SLOTS_MAX / SLOTS_PER_LINE);
        let capacity = lines * SLOTS_PER_LINE;
        let zeros = || std::array::from_fn(|_| AtomicU32::new(0));
        Shard {
            latch: AtomicU64::new(0),
            is_used: AtomicBool::new(false),
            head: AtomicU64::new(0),
            length: AtomicU64::new(0),
            warm_percent: AtomicU64::new(50),
            capacity: capacity as u64,
            key_words,
            place_bits: usize::BITS - capacity.leading_zeros(),
            slots: (0..capacity * (key_words + 1)).map(|_| AtomicU64::new(0)).collect(),
            lines: (0..lines).map(|_| Line { places: zeros(), features: zeros() }).collect(),
        }
    }

    pub(super) fn capacity(&self) -> u64 {
        self.capacity
    }

    pub(super) fn bytes(&self) -> usize {
        self.slots.len() * 8 + self.lines.len() * LINE_BYTES
    }

    pub(super) fn warm_percent(&self) -> u64 {
        self.warm_percent.load(Relaxed)
    }

    pub(super) fn set_warm_percent(&self, percent: u64) {
        self.warm_percent.store(percent, Relaxed);
    }

    /// Words of a slot: key, then value.
    #[inline]
    fn slot(&self, number: u64) -> &[AtomicU64] {
        let words = self.key_words + 1;
        &self.slots[number as usize * words..][..words]
    }

    #[inline]
    fn is_of(&self, slot: &[AtomicU64], key: [u64; 2]) -> bool {
        slot[0].load(Relaxed) == key[0] && (self.key_words == 1 || slot[1].load(Relaxed) == key[1])
    }

    fn key_of(&self, slot: &[AtomicU64]) -> [u64; 2] {
        [slot[0].load(Relaxed), if self.key_words > 1 { slot[1].load(Relaxed) } else { 0 }]
    }

    #[inline]
    fn line(&self, hash: u64) -> &Line {
        // The eight upper bits chose the shard.
        let fraction = (hash << 8) >> 32;
        &self.lines[((fraction * self.lines.len() as u64) >> 32) as usize]
    }

    #[inline]
    fn place(&self, hash: u64, number: u64) -> u32 {
        (hash as u32) << self.place_bits | (number as u32 + 1)
    }

    fn try_lock(&self) -> Option<Held<'_>> {
        let version = self.latch.load(Relaxed);
        let is_locked =
            version & 1 == 0 && self.latch.compare_exchange(version, version + 1, SeqCst, Relaxed).is_ok();
        fence(Release);
        is_locked.then(|| Held(&self.latch))
    }

    /// For who must have it. It is held for a few dozen nanoseconds.
    fn lock(&self) -> Held<'_> {
        let mut spins = 0;
        loop {
            if let Some(held) = self.try_lock() {
                return held;
            }
            pause(&mut spins);
        }
    }

    /// The lower bits of a place.
    fn numbers(&self) -> u32 {
        (1 << self.place_bits) - 1
    }

    /// The lanes of a line that have a key's tag.
    #[inline]
    fn candidates(&self, line: &Line, hash: u64) -> u32 {
        let (tag, numbers) = ((hash as u32) << self.place_bits, self.numbers());
        let is_same = |place: u32| place & !numbers == tag && place & numbers != 0;
        let lanes = line.places.iter().enumerate();
        lanes.fold(0, |same, (lane, place)| same | u32::from(is_same(place.load(Relaxed))) << lane)
    }

    /// The lane of a key, and the slot that it names.
    #[inline]
    fn place_of<'l>(&self, line: &'l Line, wanted: Wanted) -> Option<(&'l AtomicU32, u64)> {
        let numbers = self.numbers();
        let mut same = self.candidates(line, wanted.hash);
        while same != 0 {
            let lane = &line.places[same.trailing_zeros() as usize % LANES];
            let number = u64::from(lane.load(Relaxed) & numbers).wrapping_sub(1);
            if number < self.capacity && self.is_of(self.slot(number), wanted.key) {
                return Some((lane, number));
            }
            same &= same - 1;
        }
        None
    }

    /// How many entries are older than the one of a slot.
    #[inline]
    fn age(&self, number: u64) -> u64 {
        let head = self.head.load(Relaxed);
        if number >= head { number - head } else { number + self.capacity - head }
    }

    /// The entry of a key. None as well if somebody changes the shard just then.
    #[inline]
    pub(super) fn find(&self, wanted: Wanted) -> Option<Hit> {
        let version = self.latch.load(Acquire);
        let (_, number) = self.place_of(self.line(wanted.hash), wanted)?;
        let value = self.slot(number)[self.key_words].load(Relaxed);
        let warm = self.length.load(Relaxed) * self.warm_percent.load(Relaxed) / 100;
        let is_warm = self.age(number) < warm;
        // Keeps the reads before it before the second look at the version.
        fence(Acquire);
        let is_whole = version & 1 == 0 && self.latch.load(Relaxed) == version;
        is_whole.then_some(Hit { value, is_warm })
    }

    /// Puts a warm entry that was hit to the tail, if it is still there.
    pub(super) fn renew(&self, wanted: Wanted) {
        let Some(_held) = self.try_lock() else { return };
        let Some((lane, number)) = self.place_of(self.line(wanted.hash), wanted) else { return };
        let value = self.slot(number)[self.key_words].load(Relaxed);
        lane.store(0, Relaxed);
        self.append(wanted, value);
    }

    /// Adds an entry whose value was read after `noted`, if no change began or ended since.
    pub(super) fn fill(&self, wanted: Wanted, value: u64, noted: Noted<'_>) -> bool {
        let Some(_held) = self.try_lock() else { return false };
        // After the latch: a writer that begins later finds the latch held, or the entry.
        if !noted.holds() {
            return false;
        }
        if self.place_of(self.line(wanted.hash), wanted).is_none() {
            self.append(wanted, value);
        }
        true
    }

    /// Asks for what [`Shard::settle`] will read.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        if self.is_used.load(Relaxed) {
            prefetch(self.line(hash));
        }
    }

    /// After a change of a key: its entry, if it has one, gets the new value, or goes. Whether there was one.
    #[inline]
    pub(super) fn settle(&self, wanted: Wanted, value: Option<u64>, change: &UnderWay<'_>) -> bool {
        let version = self.latch.load(SeqCst);
        let may_have =
            self.is_used.load(Relaxed) && self.candidates(self.line(wanted.hash), wanted.hash) != 0;
        fence(Acquire);
        // An entry that moves is nowhere for a moment.
        if !may_have && version & 1 == 0 && self.latch.load(Relaxed) == version {
            return false;
        }
        self.settle_latched(wanted, value, change)
    }

    #[inline(never)]
    fn settle_latched(&self, wanted: Wanted, value: Option<u64>, change: &UnderWay<'_>) -> bool {
        let _held = self.lock();
        let Some((lane, number)) = self.place_of(self.line(wanted.hash), wanted) else { return false };
        match value.filter(|_| change.is_alone()) {
            Some(value) => self.slot(number)[self.key_words].store(value, Relaxed),
            None => lane.store(0, Relaxed),
        }
        true
    }

    /// Drops all entries.
    pub(super) fn clear(&self) {
        let _held = self.lock();
        self.lines.iter().flat_map(|line| &line.places).for_each(|place| place.store(0, Relaxed));
        [&self.head, &self.length].into_iter().for_each(|word| word.store(0, Relaxed));
        self.is_used.store(false, Relaxed);
    }

    /// Entries that count.
    pub(super) fn entries(&self) -> usize {
        let places = self.lines.iter().flat_map(|line| &line.places);
        places.filter(|place| place.load(Relaxed) != 0).count()
    }

    /// Takes the entry of a slot, if it has one, out of the index; under the latch.
    fn kill(&self, number: u64) {
        let key = self.key_of(self.slot(number));
        let hash = Wanted::new(key, self.key_words).hash;
        let place = self.place(hash, number);
        if let Some(lane) = self.line(hash).places.iter().find(|lane| lane.load(Relaxed) == place) {
            lane.store(0, Relaxed);
        }
    }

    /// Puts an entry at the tail; under the latch. A full queue loses its oldest.
    fn append(&self, wanted: Wanted, value: u64) {
        let (head, length) = (self.head.load(Relaxed), self.length.load(Relaxed));
        let after = |number: u64| if number >= self.capacity { number - self.capacity } else { number };
        let number = after(head + length);
        if length == self.capacity {
            self.kill(number);
            self.head.store(after(head + 1), Relaxed);
        } else {
            self.length.store(length + 1, Relaxed);
        }
        let slot = self.slot(number);
        for (word, content) in slot.iter().zip(&wanted.key[..self.key_words]) {
            word.store(*content, Relaxed);
        }
        slot[self.key_words].store(value, Relaxed);
        self.set_place(wanted.hash, number);
    }

    /// Lets the index name a slot; under the latch.
    fn set_place(&self, hash: u64, number: u64) {
        let places = &self.line(hash).places;
        let free = places.iter().find(|lane| lane.load(Relaxed) == 0);
        let lane = free.unwrap_or(&places[number as usize % LANES]);
        lane.store(self.place(hash, number), Release);
        if !self.is_used.load(Relaxed) {
            self.is_used.store(true, Relaxed);
        }
    }

    /// Counts a query for a key that is not here; how often it was asked for in this period. Threads may lose each
    /// other's counts. Of the keys of a full line the one with the fewest queries goes.
    #[inline]
    pub(super) fn note_query(&self, hash: u64, period: u64) -> u64 {
        let features = &self.line(hash).features;
        let period = (period as u32 & 0xFF) << 8;
        let tag = (hash as u32) << 16;
        let (mut least, mut victim) = (u32::MAX, 0);
        for (lane, feature) in features.iter().enumerate() {
            let word = feature.load(Relaxed);
            let queries = if word & 0xFF00 == period { word & 0xFF } else { 0 };
            if queries > 0 && word & 0xFFFF_0000 == tag {
                let queries = queries.min(254) + 1;
                feature.store(tag | period | queries, Relaxed);
                return u64::from(queries);
            }
            if queries < least {
                (least, victim) = (queries, lane);
            }
        }
        features[victim].store(tag | period | 1, Relaxed);
        1
    }
}
