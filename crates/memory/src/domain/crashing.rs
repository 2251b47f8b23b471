//! DRAM that remembers what a power failure would leave: the crash checker's domain.
//!
//! Beside the working words stands the persisted image: what is there for certain. A flush notes the words of
//! its range with their values; a fence moves the noted words into the image. A crash at any moment leaves the
//! image, plus any subset of the noted words, plus any subset of the words that differ from it (a cache may
//! evict whatever it likes), each 8-byte word on its own.
//!
//! An observer is called before every fence, when the freedom of the crash is greatest, and gets a
//! [`crate::crash::CrashPoint`] to make such images from. It runs under the domain's lock, in the thread that
//! fences, and must not touch the pool that it observes.

use super::redo::Lanes;
use crate::crash::{CrashPoint, Observer};
use crate::mapping::Mapping;
use crate::stats::PoolStats;
use parking_lot::Mutex;
use std::sync::atomic::Ordering;

pub(crate) struct Crashing {
    state: Mutex<State>,
    lanes: Lanes,
}

struct State {
    persisted: Vec<u64>,
    /// Flushed and not fenced: (word index, value at the flush).
    noted: Vec<(u32, u64)>,
    observer: Option<Observer>,
    flushes: u64,
    fences: u64,
}

impl Crashing {
    /// A domain whose image is the mapping's present content.
    pub(crate) fn new(mapping: &Mapping, bytes: u64, observer: Option<Observer>) -> Crashing {
        let words = mapping.words(0, (bytes / 8) as usize);
        let persisted = words.iter().map(|w| w.load(Ordering::Relaxed)).collect();
        let state = State { persisted, noted: Vec::new(), observer, flushes: 0, fences: 0 };
        Crashing { state: Mutex::new(state), lanes: Lanes::default() }
    }

    pub(crate) fn lanes(&self) -> &Lanes {
        &self.lanes
    }

    /// The pool grew: new words are zero, on the medium too.
    pub(crate) fn grow(&self, bytes: u64) {
        self.state.lock().persisted.resize((bytes / 8) as usize, 0);
    }

    pub(crate) fn flush(&self, mapping: &Mapping, ranges: &[(u64, usize)]) {
        let mut state = self.state.lock();
        for &(offset, bytes) in ranges {
            state.flushes += 1;
            let words = mapping.words(offset, bytes / 8);
            for (i, word) in words.iter().enumerate() {
                let index = (offset / 8) as u32 + i as u32;
                state.noted.push((index, word.load(Ordering::Acquire)));
            }
        }
    }

    pub(crate) fn fence(&self, mapping: &Mapping) {
        let state = &mut *self.state.lock();
        state.fences += 1;
        if let Some(observer) = &mut state.observer {
            observer(&CrashPoint::new(state.fences, &state.persisted, &state.noted, mapping));
        }
        for (index, value) in state.noted.drain(..) {
            state.persisted[index as usize] = value;
        }
    }

    pub(crate) fn add_stats(&self, stats: &mut PoolStats) {
        let state = self.state.lock();
        stats.flushes += state.flushes;
        stats.fences += state.fences;
    }
}
