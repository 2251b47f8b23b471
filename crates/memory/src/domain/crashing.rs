//! The crash checker's domain: DRAM that records what a power failure could leave.
//!
//! Beside the working words there is the persisted image: the certain values. A flush notes the words of its
//! range with their values; a fence moves the notes of *its own thread* into the image (a store fence orders
//! the write-backs of its thread only). A crash at any point leaves the image, in which any subset of the
//! words that were noted or stored since has one of its later values, each 8-byte word on its own:
//!
//! - a value that was flushed and not fenced; if there were several, any of them;
//! - the working value, flushed or not: a cache may evict any line;
//! - a value that was stored, not flushed, at an earlier fence: it may have been evicted then.
//!
//! A word never goes back: once a value of it is fenced, its earlier values cannot return.
//!
//! An observer is called before every fence, where a crash may leave the most states, and gets a
//! [`crate::crash::CrashPoint`]. It runs under the domain's lock, in the thread that fences, and must not
//! touch the pool that it observes. Without an observer nothing is recorded.
//!
//! Freed objects of such a pool wait for the guards of this pool alone, so that a history repeats whatever
//! runs beside it.
//!
//! Memory: the image (shared with the pools that recover from states of it, which keep what they persist
//! beside it), a note for each word of each flush until it is fenced, and [`GUESSES_MAX`] notes of values
//! that may have been evicted.

use super::redo::Lanes;
use crate::crash::{CrashPoint, Observer, turns};
use crate::mapping::Mapping;
use crate::offset::PoolOffset;
use crate::stats::PoolStats;
use crossbeam_epoch::{Collector, Guard, LocalHandle};
use parking_lot::Mutex;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Maximum number of values stored and never flushed that are remembered over a fence.
const GUESSES_MAX: usize = 1024;

/// Thread of a note that no thread flushed.
const NO_THREAD: u32 = 0;

/// Value of a word that may be on the medium.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Note {
    pub(crate) index: u32,
    pub(crate) value: u64,
    thread: u32,
}

impl Note {
    /// Returns true if it was flushed, not only stored.
    pub(crate) fn is_flushed(&self) -> bool {
        self.thread != NO_THREAD
    }
}

pub(crate) struct CrashingDomain {
    state: Option<Mutex<State>>,
    lanes: Lanes,
    collector: Collector,
    flushes: AtomicU64,
    fences: AtomicU64,
}

/// Certain content of the medium.
pub(crate) struct Image {
    words: Arc<Vec<u64>>,
    /// Words that differ from those, where the words belong to another pool.
    changed: Option<HashMap<u32, u64>>,
    /// Length of the pool in words; those beyond `words` are zero.
    length: usize,
}

impl Image {
    /// Image of a pool that owns these words.
    pub(crate) fn new(words: Vec<u64>) -> Image {
        Image { length: words.len(), words: Arc::new(words), changed: None }
    }

    /// Image of a pool that begins with some words of another image changed.
    pub(crate) fn over(words: &Arc<Vec<u64>>, changes: &[(u32, u64)], length: usize) -> Image {
        Image { words: Arc::clone(words), changed: Some(changes.iter().copied().collect()), length }
    }

    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// Base words of the changes.
    pub(crate) fn words(&self) -> &Arc<Vec<u64>> {
        &self.words
    }

    pub(crate) fn changed(&self) -> impl Iterator<Item = (u32, u64)> {
        self.changed.iter().flatten().map(|(index, value)| (*index, *value))
    }

    pub(crate) fn get(&self, index: u32) -> u64 {
        let changed = self.changed.as_ref().and_then(|changed| changed.get(&index).copied());
        // A recovery may grow the pool, by zeroes.
        changed.unwrap_or_else(|| self.words.get(index as usize).copied().unwrap_or(0))
    }

    fn set(&mut self, index: u32, value: u64) {
        match &mut self.changed {
            None => Arc::make_mut(&mut self.words)[index as usize] = value,
            Some(changed) => drop(changed.insert(index, value)),
        }
    }

    fn grow(&mut self, words: usize) {
        self.length = words;
        if self.changed.is_none() {
            Arc::make_mut(&mut self.words).resize(words, 0);
        }
    }
}

struct State {
    image: Image,
    /// Changes of the image since the last observation: word, before, after.
    fenced: Vec<(u32, u64, u64)>,
    /// Notes in order of time.
    notes: Vec<Note>,
    guesses: usize,
    fences: u64,
    observer: Observer,
}

thread_local! {
    static THREAD: u32 = {
        static NEXT: AtomicU32 = AtomicU32::new(NO_THREAD + 1);
        NEXT.fetch_add(1, Ordering::Relaxed)
    };
    /// This thread's handles of the collectors of crashing pools that it has used.
    static HANDLES: RefCell<Vec<LocalHandle>> = const { RefCell::new(Vec::new()) };
}

impl CrashingDomain {
    /// Domain of a mapping that holds this image; without an observer the image is not needed.
    pub(crate) fn new(observed: Option<(Observer, Image)>) -> CrashingDomain {
        let state = observed.map(|(observer, image)| {
            let (fenced, notes) = (Vec::new(), Vec::new());
            Mutex::new(State { image, fenced, notes, guesses: 0, fences: 0, observer })
        });
        CrashingDomain {
            state,
            lanes: Lanes::default(),
            collector: Collector::new(),
            flushes: AtomicU64::new(0),
            fences: AtomicU64::new(0),
        }
    }

    pub(crate) fn lanes(&self) -> &Lanes {
        &self.lanes
    }

    /// Guard of this pool's own freed objects.
    pub(crate) fn pin(&self) -> Guard {
        HANDLES.with_borrow_mut(|handles| {
            let known = handles.iter().position(|handle| *handle.collector() == self.collector);
            let at = known.unwrap_or_else(|| {
                handles.push(self.collector.register());
                handles.len() - 1
            });
            handles[at].pin()
        })
    }

    /// Grows the image with the pool: new words are zero, on the medium too.
    pub(crate) fn grow(&self, bytes: u64) {
        if let Some(state) = &self.state {
            state.lock().image.grow((bytes / 8) as usize);
        }
    }

    pub(crate) fn flush(&self, mapping: &Mapping, ranges: &[(PoolOffset, usize)]) {
        self.flushes.fetch_add(ranges.len() as u64, Ordering::Relaxed);
        let Some(state) = &self.state else { return };
        turns::pass();
        let thread = THREAD.with(|thread| *thread);
        let mut state = state.lock();
        for &(offset, bytes) in ranges {
            let words = mapping.words(offset.bytes(), bytes / 8);
            for (i, word) in words.iter().enumerate() {
                let index = (offset.bytes() / 8) as u32 + i as u32;
                state.notes.push(Note { index, value: word.load(Ordering::Acquire), thread });
            }
        }
    }

    pub(crate) fn fence(&self, mapping: &Mapping) {
        self.fences.fetch_add(1, Ordering::Relaxed);
        let Some(state) = &self.state else { return };
        turns::pass();
        let state = &mut *state.lock();
        state.fences += 1;
        let evictable = state.observe(mapping);
        state.persist(THREAD.with(|thread| *thread));
        state.guess(&evictable);
    }

    /// Passes the observer the states that a crash now, not at a fence, would leave.
    pub(crate) fn observe(&self, mapping: &Mapping) {
        if let Some(state) = &self.state {
            let state = &mut *state.lock();
            state.fences += 1;
            state.observe(mapping);
        }
    }

    pub(crate) fn add_stats(&self, stats: &mut PoolStats) {
        stats.flushes += self.flushes.load(Ordering::Relaxed);
        stats.fences += self.fences.load(Ordering::Relaxed);
    }
}

impl State {
    /// Returns the words that differ from all their known values, with their values.
    fn observe(&mut self, mapping: &Mapping) -> Vec<(u32, u64)> {
        let fenced = std::mem::take(&mut self.fenced);
        let (point, evictable) = CrashPoint::new(self.fences, &self.image, fenced, &self.notes, mapping);
        turns::paused(|| (self.observer)(&point));
        evictable
    }

    /// Moves the words that a thread has flushed into the image.
    fn persist(&mut self, thread: u32) {
        let mut last: HashMap<u32, usize> = HashMap::new();
        for (position, note) in self.notes.iter().enumerate() {
            if note.thread == thread {
                last.insert(note.index, position);
            }
        }
        for position in last.values() {
            let note = self.notes[*position];
            let before = self.image.get(note.index);
            if before != note.value {
                self.fenced.push((note.index, before, note.value));
                self.image.set(note.index, note.value);
            }
        }
        let mut position = 0;
        let mut guesses = 0;
        self.notes.retain(|note| {
            let kept = last.get(&note.index).is_none_or(|last| position > *last);
            position += 1;
            guesses += usize::from(kept && !note.is_flushed());
            kept
        });
        self.guesses = guesses;
    }

    /// Notes words that were stored and not flushed: they may be evicted now, and overwritten later.
    fn guess(&mut self, evictable: &[(u32, u64)]) {
        let room = GUESSES_MAX.saturating_sub(self.guesses);
        let guesses = evictable.iter().take(room);
        self.notes.extend(guesses.map(|&(index, value)| Note { index, value, thread: NO_THREAD }));
        self.guesses += evictable.len().min(room);
    }
}

impl Drop for CrashingDomain {
    fn drop(&mut self) {
        // The handle of this thread; those of others go with their threads.
        let ours = |handle: &LocalHandle| *handle.collector() == self.collector;
        let dropped = HANDLES.try_with(|handles| {
            let mut handles = handles.borrow_mut();
            handles.iter().position(ours).map(|at| handles.swap_remove(at))
        });
        drop(dropped);
    }
}
