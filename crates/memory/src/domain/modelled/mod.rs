//! DRAM billed like a device: the same cost on every machine.
//!
//! Every access through the pool goes through a model of the processor's caches ([`cache`]) and of the device
//! behind them ([`device`]), as a [`Profile`] describes them. The result is modelled time and traffic
//! ([`ModelledCost`]).
//!
//! Billed are:
//! - each line of the words that [`crate::Pool::words`] and [`crate::Pool::word`] return, each time; of those
//!   of [`crate::Pool::view`] only the ranges given to [`crate::Pool::touch`]. The lines of one call overlap,
//!   as far as the core can have transfers in flight; calls wait for each other, as if each depended on the
//!   one before;
//! - prefetches: the line is on its way while modelled time goes on;
//! - writes: the domain keeps the content of the medium; a line is dirty if it differs. A dirty line goes to
//!   the device when it is flushed or evicted. A fence waits until the device has accepted the flushed lines.
//!
//! DRAM beside the pool ([`crate::Pool::modelled_beside`]) has a device of its own behind the same caches: a
//! structure that has copies of a part of the pool there reports what it reads of them
//! ([`crate::Pool::touch_beside`]). What is written to it is not billed beyond having the line.
//!
//! Not billed are the processor's own work, pages and TLBs. There is one modelled core: threads that really
//! run at the same time are billed one after the other, in order of arrival. More threads are given as a
//! [`Load`], which keeps the numbers the same from run to run.
//!
//! Nothing survives; a crash leaves nothing. Memory: the pool a second time, and the caches' directories.

mod cache;
mod cost;
mod device;

pub use cost::ModelledCost;
pub use device::Load;

use super::redo::Lanes;
use crate::mapping::{Bill, Mapping};
use crate::offset::PoolOffset;
use crate::profile::Profile;
use crate::stats::PoolStats;
use cache::Caches;
use device::Device;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Modelled domain; shared with the mapping, which reports accesses to it.
pub(crate) struct ModelledDomain {
    profile: Profile,
    model: Mutex<Model>,
    lanes: Lanes,
}

struct Model {
    caches: Caches,
    device: Device,
    /// DRAM beside the pool, if it is modelled.
    beside: Option<Device>,
    hit: Vec<u64>,
    flush: u64,
    line_bytes: u64,
    in_flight_max: usize,
    flush_keeps_line: bool,
    /// Content of the medium.
    medium: Vec<u64>,
    /// Lines in flight: (line, time of arrival).
    in_flight: Vec<(u64, u64)>,
    /// Time at which all flushed lines are safe.
    accepted: u64,
    ranges: u64,
    cost: ModelledCost,
}

/// First line of the memory beside the pool; no pool is as large.
const BESIDE: u64 = 1 << 48;

impl ModelledDomain {
    /// Bills a mapping from now on; its present content is on the medium. `beside` is the profile of memory beside it,
    /// which has as large lines.
    pub(crate) fn attach(
        profile: &Profile,
        beside: Option<&Profile>,
        mapping: &mut Mapping,
    ) -> Arc<ModelledDomain> {
        let words = mapping.view(0, (mapping.mapped_bytes() / 8) as usize);
        let medium = words.iter().map(|word| word.load(Ordering::Relaxed)).collect();
        let picoseconds = |ns: f64| (ns * 1000.0 + 0.5) as u64;
        let model = Model {
            caches: Caches::new(profile),
            device: Device::new(profile),
            beside: beside.map(Device::new),
            hit: profile.caches.iter().map(|cache| picoseconds(cache.hit_ns)).collect(),
            flush: picoseconds(profile.write.flush_ns),
            line_bytes: profile.medium.transfer_bytes,
            in_flight_max: profile.read.in_flight_max as usize,
            flush_keeps_line: profile.write.flush_keeps_line,
            medium,
            in_flight: Vec::new(),
            accepted: 0,
            ranges: 0,
            cost: ModelledCost {
                line_bytes: profile.medium.transfer_bytes,
                block_bytes: profile.medium.block_bytes,
                ..ModelledCost::default()
            },
        };
        let modelled = Arc::new(ModelledDomain {
            profile: profile.clone(),
            model: Mutex::new(model),
            lanes: Lanes::default(),
        });
        mapping.bill_to(Arc::clone(&modelled) as Arc<dyn Bill>);
        modelled
    }

    pub(crate) fn lanes(&self) -> &Lanes {
        &self.lanes
    }

    pub(crate) fn cost(&self) -> ModelledCost {
        self.model.lock().cost
    }

    /// Bills bytes of the memory beside the pool, which all are in flight together.
    pub(crate) fn touched_beside(&self, mapping: &Mapping, ranges: &[(u64, u64)]) {
        let mut model = self.model.lock();
        if model.beside.is_none() {
            return;
        }
        let mut done = 0;
        for &(address, bytes) in ranges.iter().filter(|(_, bytes)| *bytes > 0) {
            for line in model.lines(address, bytes) {
                done = done.max(model.load(mapping, BESIDE + line));
            }
        }
        model.cost.picoseconds = model.cost.picoseconds.max(done);
    }

    pub(crate) fn set_load(&self, load: Load) {
        self.model.lock().device.set_load(&self.profile, load);
    }

    pub(crate) fn flush(&self, mapping: &Mapping, ranges: &[(PoolOffset, usize)]) {
        let mut model = self.model.lock();
        for &(offset, bytes) in ranges {
            model.ranges += 1;
            for line in model.lines(offset.bytes(), bytes as u64) {
                model.flush_line(mapping, line);
            }
        }
    }

    pub(crate) fn fence(&self) {
        let mut model = self.model.lock();
        model.cost.fences += 1;
        model.cost.picoseconds = model.cost.picoseconds.max(model.accepted);
    }

    pub(crate) fn add_stats(&self, stats: &mut PoolStats) {
        let model = self.model.lock();
        stats.flushes += model.ranges;
        stats.fences += model.cost.fences;
    }
}

impl Bill for ModelledDomain {
    fn touched(&self, mapping: &Mapping, offset: u64, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let mut model = self.model.lock();
        let mut done = 0;
        for line in model.lines(offset, bytes) {
            done = done.max(model.load(mapping, line));
        }
        model.cost.picoseconds = model.cost.picoseconds.max(done);
    }

    fn prefetched(&self, mapping: &Mapping, offset: u64) {
        let mut model = self.model.lock();
        let line = offset / model.line_bytes;
        // An address outside of the pool is no error for a prefetch.
        if offset < mapping.mapped_bytes() && model.caches.find(line).is_none() {
            model.fetch(mapping, line);
        }
    }
}

impl Model {
    fn lines(&self, offset: u64, bytes: u64) -> std::ops::RangeInclusive<u64> {
        offset / self.line_bytes..=(offset + bytes - 1) / self.line_bytes
    }

    /// Time at which the line is with the core.
    fn load(&mut self, mapping: &Mapping, line: u64) -> u64 {
        let Some(level) = self.caches.find(line) else { return self.fetch(mapping, line) };
        self.cost.cache_hits += 1;
        let on_its_way =
            self.in_flight.iter().find(|(other, _)| *other == line).map_or(0, |(_, ready)| *ready);
        on_its_way.max(self.cost.picoseconds + self.hit[level])
    }

    /// Requests a line that no cache has from the device; returns the time of its arrival. Waits only if the
    /// core has its maximum of transfers in flight.
    fn fetch(&mut self, mapping: &Mapping, line: u64) -> u64 {
        let now = self.cost.picoseconds;
        self.in_flight.retain(|(_, ready)| *ready > now);
        if self.in_flight.len() == self.in_flight_max {
            let first = self.in_flight.iter().map(|(_, ready)| *ready).min().expect("there is one");
            self.cost.picoseconds = first;
            self.in_flight.retain(|(_, ready)| *ready > first);
        }
        let ready = match &mut self.beside {
            Some(beside) if line >= BESIDE => {
                self.cost.lines_read_beside += 1;
                beside.read(line - BESIDE, self.cost.picoseconds, &mut ModelledCost::default())
            }
            _ => self.device.read(line, self.cost.picoseconds, &mut self.cost),
        };
        self.in_flight.push((line, ready));
        if let Some(evicted) = self.caches.insert(line) {
            // No access waits for an eviction.
            self.write_back(mapping, evicted);
        }
        ready
    }

    fn flush_line(&mut self, mapping: &Mapping, line: u64) {
        self.cost.flushes += 1;
        self.cost.picoseconds += self.flush;
        if let Some(accepted) = self.write_back(mapping, line) {
            self.accepted = self.accepted.max(accepted);
        }
        if !self.flush_keeps_line {
            self.caches.remove(line);
        }
    }

    /// Sends the line to the device if it is dirty; returns the time at which it is safe.
    fn write_back(&mut self, mapping: &Mapping, line: u64) -> Option<u64> {
        if line >= BESIDE {
            return None;
        }
        let words = (self.line_bytes / 8) as usize;
        let start = line as usize * words;
        let mapped = (mapping.mapped_bytes() / 8) as usize;
        if self.medium.len() < mapped {
            // The pool grew: new words are zero, on the medium too.
            self.medium.resize(mapped, 0);
        }
        let held = mapping.view(start as u64 * 8, words);
        let mut dirty = false;
        for (word, on_medium) in held.iter().zip(&mut self.medium[start..start + words]) {
            let value = word.load(Ordering::Relaxed);
            dirty |= value != *on_medium;
            *on_medium = value;
        }
        dirty.then(|| self.device.write(line, self.cost.picoseconds, &mut self.cost))
    }
}
