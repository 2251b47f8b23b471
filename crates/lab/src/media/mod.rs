//! The media of the machine, and modelled ones, behind one question: how many GB/s does this workload get?
//!
//! Real media run each workload for a fixed time with all threads started together, several rounds, and give
//! the median. Every buffer is written before it is measured, by threads pinned as those that use it; sums of
//! what was read go to [`std::hint::black_box`].

pub mod file;
pub mod journal;
pub mod memory;
pub mod modelled;
mod run;

use crate::Error;
use entresol_memory::profile::Workload;
use std::collections::HashMap;
use std::time::Duration;

pub use run::Rounds;

/// Something with a bandwidth.
pub trait Medium {
    /// Name in tables.
    fn name(&self) -> String;
    /// Thread counts worth asking for.
    fn threads(&self) -> &[u64];
    /// Access sizes worth asking for.
    fn access_bytes(&self) -> &[u64];
    /// Processor cores next to it.
    fn cores(&self) -> u64;
    /// Returns true if there is another socket.
    fn has_far(&self) -> bool;
    /// GB/s of the workload's threads.
    fn measure(&self, workload: &Workload) -> Result<f64, Error>;
}

/// A medium with its measurements cached: figures and insights use the same ones.
pub struct CachedMedium<'m> {
    medium: &'m dyn Medium,
    known: HashMap<Workload, f64>,
}

impl<'m> CachedMedium<'m> {
    /// Nothing measured yet.
    pub fn new(medium: &'m dyn Medium) -> CachedMedium<'m> {
        CachedMedium { medium, known: HashMap::new() }
    }

    /// The medium.
    pub fn medium(&self) -> &dyn Medium {
        self.medium
    }

    /// GB/s of the workload, measured once.
    pub fn gb_per_s(&mut self, workload: Workload) -> Result<f64, Error> {
        if let Some(known) = self.known.get(&workload) {
            return Ok(*known);
        }
        let measured = self.medium.measure(&workload)?;
        self.known.insert(workload, measured);
        Ok(measured)
    }
}

/// Length and number of measurements.
pub fn rounds(quick: bool) -> Rounds {
    if quick {
        Rounds { window: Duration::from_millis(4), count: 1 }
    } else {
        Rounds { window: Duration::from_millis(50), count: 3 }
    }
}
