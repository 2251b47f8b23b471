//! Clock, randomness, threads and files, injected, so that a run can be repeated from one seed and files can
//! be made to fail. The crates above use [`Env`] and never the operating system.

#[cfg(feature = "testkit")]
mod failing;
#[cfg(feature = "testkit")]
mod faults;
mod files;
mod overlay;
mod ring;
#[cfg(feature = "testkit")]
mod simulated;

#[cfg(feature = "testkit")]
pub use failing::{CallFailure, FailingFiles, FileOperation};
#[cfg(feature = "testkit")]
pub use faults::{Fault, FaultyFiles};
pub use files::{Files, OpenMode, RealFiles, StorageFile};
pub use overlay::OverlayFiles;
#[cfg(feature = "testkit")]
pub use simulated::{FileEvent, FilesImage, SimulatedFiles};

use crate::placement::ThreadPlacement;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

#[derive(Clone)]
enum Clock {
    Real,
    /// Every read advances it by one microsecond.
    Simulated(Arc<AtomicU64>),
}

/// Environment of one database. Cheap to clone.
#[derive(Clone)]
pub struct Env {
    clock: Clock,
    /// Offset of the clock in nanoseconds, set by tests.
    clock_off_ns: Arc<AtomicI64>,
    random: Arc<AtomicU64>,
    files: Arc<dyn Files>,
    /// Placement of threads; none: by the system.
    threads: Option<Arc<ThreadPlacement>>,
}

impl Env {
    /// Environment with the machine's own clock, files and entropy.
    pub fn real() -> Env {
        let mut env = Env::simulated(0);
        env.clock = Clock::Real;
        env.random = Arc::new(AtomicU64::new(env.now_ns() ^ u64::from(std::process::id()).rotate_left(32)));
        env
    }

    /// Environment with a clock that starts at a time derived from the seed and advances by a microsecond per
    /// read, and random numbers derived from the seed. Files are real.
    pub fn simulated(seed: u64) -> Env {
        let start_ns = 1_700_000_000_000_000_000 + (seed % 1_000_000) * 1_000_000_000;
        Env {
            clock: Clock::Simulated(Arc::new(AtomicU64::new(start_ns))),
            clock_off_ns: Arc::default(),
            random: Arc::new(AtomicU64::new(seed)),
            files: Arc::new(RealFiles),
            threads: None,
        }
    }

    /// Environment with other files, e.g. [`FaultyFiles`].
    pub fn with_files(mut self, files: Arc<dyn Files>) -> Env {
        self.files = files;
        self
    }

    /// Environment with placed threads. Threads of a simulated environment are not placed.
    pub(crate) fn with_threads(mut self, placement: Option<ThreadPlacement>) -> Env {
        self.threads = placement.filter(|_| !self.is_simulated()).map(Arc::new);
        self
    }

    /// Placement of the threads of [`Env::spawn`]; none: by the system.
    pub fn threads(&self) -> Option<&ThreadPlacement> {
        self.threads.as_deref()
    }

    /// Nanoseconds since the Unix epoch. The clock may be set, forward and back.
    pub fn now_ns(&self) -> u64 {
        let now = match &self.clock {
            Clock::Real => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)),
            Clock::Simulated(ns) => ns.fetch_add(1_000, Ordering::Relaxed) + 1_000,
        };
        now.saturating_add_signed(self.clock_off_ns.load(Ordering::Relaxed))
    }

    /// Nanoseconds since some instant before the process began, including sleep of the machine. Never set.
    pub fn uptime_ns(&self) -> u64 {
        match &self.clock {
            Clock::Real => boot_time_ns(),
            Clock::Simulated(ns) => ns.load(Ordering::Relaxed),
        }
    }

    /// Sets the offset of the clock of this environment, and of its clones: for tests.
    pub fn set_clock_off_ns(&self, off_ns: i64) {
        self.clock_off_ns.store(off_ns, Ordering::Relaxed);
    }

    /// Returns true if clock and randomness come from a seed.
    pub fn is_simulated(&self) -> bool {
        matches!(self.clock, Clock::Simulated(_))
    }

    /// A random number (SplitMix64; not for secrets).
    pub fn random_u64(&self) -> u64 {
        const GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;
        let mut z = self.random.fetch_add(GAMMA, Ordering::Relaxed).wrapping_add(GAMMA);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// The files.
    pub fn files(&self) -> &Arc<dyn Files> {
        &self.files
    }

    /// Starts a named thread, placed if there is a placement. Threads that it starts inherit that.
    pub fn spawn<T: Send + 'static>(
        &self,
        name: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> std::io::Result<JoinHandle<T>> {
        let placement = self.threads.clone();
        std::thread::Builder::new().name(name.to_string()).spawn(move || {
            if let Some(placement) = placement {
                placement.apply();
            }
            work()
        })
    }
}

fn boot_time_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec that lives during the call.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut time) };
    assert_eq!(failed, 0, "every Linux has this clock");
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

impl Default for Env {
    fn default() -> Self {
        Env::real()
    }
}

impl std::fmt::Debug for Env {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.clock {
            Clock::Real => "Env(real)",
            Clock::Simulated(_) => "Env(simulated)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_repeats_clock_and_randomness() {
        let run = || {
            let env = Env::simulated(7);
            (env.now_ns(), env.now_ns(), env.random_u64(), env.random_u64())
        };
        assert_eq!(run(), run());
        let (first, second, a, b) = run();
        assert!(second > first && a != b);
    }

    #[test]
    fn a_clock_that_is_set_leaves_the_uptime_alone() {
        for env in [Env::real(), Env::simulated(3)] {
            let (now, uptime) = (env.now_ns(), env.uptime_ns());
            env.clone().set_clock_off_ns(3_600_000_000_000);
            assert!(env.now_ns() >= now + 3_600_000_000_000);
            assert!((uptime..uptime + 60_000_000_000).contains(&env.uptime_ns()));
        }
    }
}
