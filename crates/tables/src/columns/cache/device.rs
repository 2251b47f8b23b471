//! Emulated storage of a bandwidth, for experiments: loads take at least as long as it needs, one after another.

use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// Device of a bandwidth; see the [module](self). Without one, loads do not wait.
#[derive(Debug, Default)]
pub(crate) struct EmulatedDevice(Mutex<Queue>);

#[derive(Debug, Default)]
struct Queue {
    bytes_per_second: Option<f64>,
    free_at: Option<Instant>,
}

impl EmulatedDevice {
    /// Sets the bandwidth in bytes per second.
    pub(super) fn set(&self, bytes_per_second: Option<f64>) {
        *self.0.lock() = Queue { bytes_per_second, free_at: None };
    }

    /// Waits until a load of so many bytes that began at a time is done.
    pub(super) fn wait(&self, began: Instant, bytes: u64) {
        let done = {
            let mut queue = self.0.lock();
            let Some(bytes_per_second) = queue.bytes_per_second else { return };
            let begin = queue.free_at.map_or(began, |free_at| free_at.max(began));
            let done = begin + Duration::from_secs_f64(bytes as f64 / bytes_per_second);
            queue.free_at = Some(done);
            done
        };
        std::thread::sleep(done.saturating_duration_since(Instant::now()));
    }
}
