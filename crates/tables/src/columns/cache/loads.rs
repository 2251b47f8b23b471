//! Meter of the bandwidths that proportional caching computes with.
//!
//! Storage: bytes of loads by the time in which at least one was in flight, so loads side by side count as one
//! faster one. It begins with the figure of the disk's profile, if there is one, which loads then outweigh. Memory:
//! reading some cached pages from the first word to the last.

use super::CachedObject;
use super::model::Bandwidths;
use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// Cached pages that are read to measure the bandwidth of memory.
pub(super) const SAMPLE_PAGES: usize = 16;
/// Bytes after which earlier loads count half.
const HALVED_BYTES: u64 = 256 << 20;
/// Bytes for which the figure of a profile counts.
const PROFILE_BYTES: u64 = 16 << 20;

/// Meter of loads; see the [module](self).
#[derive(Debug, Default)]
pub(crate) struct LoadMeter {
    loads: Mutex<Loads>,
    #[cfg(feature = "testkit")]
    device: super::device::EmulatedDevice,
}

#[derive(Debug, Default)]
struct Loads {
    in_flight: u32,
    since: Option<Instant>,
    bytes: u64,
    busy: Duration,
}

impl LoadMeter {
    /// Begins with a bandwidth, in bytes per second, as if it had been measured.
    pub(super) fn expect(&self, bytes_per_second: f64) {
        let mut loads = self.loads.lock();
        loads.bytes += PROFILE_BYTES;
        loads.busy += Duration::from_secs_f64(PROFILE_BYTES as f64 / bytes_per_second);
    }

    /// Device that loads wait for.
    #[cfg(feature = "testkit")]
    pub(super) fn device(&self) -> &super::device::EmulatedDevice {
        &self.device
    }

    /// Runs a load and notes the bytes that `bytes_of` says of its result. Returns the time that it took, too.
    pub(crate) fn load<T>(&self, load: impl FnOnce() -> T, bytes_of: impl Fn(&T) -> u64) -> (T, Duration) {
        let began = Instant::now();
        {
            let mut loads = self.loads.lock();
            loads.in_flight += 1;
            loads.since.get_or_insert(began);
        }
        let loaded = load();
        let bytes = bytes_of(&loaded);
        #[cfg(feature = "testkit")]
        self.device.wait(began, bytes);
        let ended = Instant::now();
        let mut loads = self.loads.lock();
        loads.in_flight -= 1;
        loads.bytes += bytes;
        let since = loads.since.replace(ended).unwrap_or(began);
        loads.busy += ended.saturating_duration_since(since);
        if loads.in_flight == 0 {
            loads.since = None;
        }
        if loads.bytes > HALVED_BYTES {
            loads.bytes /= 2;
            loads.busy /= 2;
        }
        (loaded, ended.saturating_duration_since(began))
    }

    /// Bandwidth of loads in bytes per second; none before the first one.
    pub(super) fn storage(&self) -> Option<f64> {
        let loads = self.loads.lock();
        let seconds = loads.busy.as_secs_f64();
        (loads.bytes > 0 && seconds > 0.0).then_some(loads.bytes as f64 / seconds)
    }
}

/// Bandwidths with that of storage. Memory is at least as fast.
pub(super) fn bandwidths(storage: f64, sample: &[CachedObject]) -> Bandwidths {
    let began = Instant::now();
    let bytes = sample.iter().map(|cached| match cached {
        CachedObject::Page(page) => page.read_through(),
        CachedObject::Summary(_)
        | CachedObject::ElfHead(_)
        | CachedObject::Elf(_)
        | CachedObject::ElfLists(_) => 0,
    });
    let (bytes, seconds) = (bytes.sum::<usize>(), began.elapsed().as_secs_f64());
    let memory = if bytes > 0 && seconds > 0.0 { bytes as f64 / seconds } else { storage };
    Bandwidths { storage, memory: memory.max(storage) }
}
