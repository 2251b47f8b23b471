//! A device profile as a medium.

use super::Medium;
use crate::Error;
use entresol_memory::profile::{Profile, Workload};

/// Answers from a profile's curves; the same on every machine.
pub struct ModelledMedium {
    name: &'static str,
    profile: Profile,
    threads: Vec<u64>,
    access_bytes: Vec<u64>,
}

impl ModelledMedium {
    /// The device of a profile, and what tables call it.
    pub fn new(name: &'static str, profile: Profile) -> ModelledMedium {
        let curve = &profile.bandwidth.write.individual;
        ModelledMedium {
            name,
            threads: curve.threads.clone(),
            access_bytes: curve.access_bytes.clone(),
            profile,
        }
    }
}

impl Medium for ModelledMedium {
    fn name(&self) -> String {
        self.name.to_string()
    }

    fn threads(&self) -> &[u64] {
        &self.threads
    }

    fn access_bytes(&self) -> &[u64] {
        &self.access_bytes
    }

    /// Physical cores of a socket in the bandwidth paper (2.3).
    fn cores(&self) -> u64 {
        18
    }

    fn has_far(&self) -> bool {
        self.profile.far.is_some()
    }

    fn measure(&self, workload: &Workload) -> Result<f64, Error> {
        Ok(self.profile.bandwidth_gb_per_s(workload))
    }
}
