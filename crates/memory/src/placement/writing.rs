//! What a disk gains from when much is written to it: by checkpoints.

use super::Limits;
use crate::error::{Error, Result};
use crate::profile::{Direction, Pattern, Profile};

/// The smallest transfer of a medium that is a disk; memory moves cache lines.
const DISK_TRANSFER_BYTES_MIN: u64 = 512;

/// Bytes that go to a disk in one write, and writes at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Writing {
    /// The longest single write.
    pub piece_bytes: usize,
    /// Writes in flight at once, where the system can have several (io_uring).
    pub at_once: usize,
    /// Whether a profile says so; else it is what suits most drives.
    pub is_calibrated: bool,
}

impl Writing {
    /// Bounds of [`Writing::piece_bytes`]: smaller ones reach no more bandwidth and cost more of the processor, and there are none larger
    /// than a batch of a checkpoint.
    pub const PIECE_BYTES: std::ops::RangeInclusive<usize> = 64 << 10..=8 << 20;
    /// Most writes in flight at once.
    pub const AT_ONCE_MAX: usize = 64;

    /// What suits most drives: pieces of 256 KiB, 64 at once.
    pub const UNCALIBRATED: Writing =
        Writing { piece_bytes: 256 << 10, at_once: Writing::AT_ONCE_MAX, is_calibrated: false };

    /// What the profile of a disk says: its [`Limits::access_bytes`], within [`Writing::PIECE_BYTES`], and as many at once as it
    /// has writers before its bandwidth falls; if that was never seen to fall, [`Writing::AT_ONCE_MAX`].
    ///
    /// Errors: [`Error::Invalid`] if the profile is that of a memory.
    pub fn of(profile: &Profile) -> Result<Writing> {
        let transfer_bytes = profile.medium.transfer_bytes;
        if transfer_bytes < DISK_TRANSFER_BYTES_MIN {
            return Err(Error::Invalid(format!(
                "'{}' is a memory (medium.transfer_bytes is {transfer_bytes}); the profile of a disk is expected, \
                 with at least {DISK_TRANSFER_BYTES_MIN}",
                profile.name
            )));
        }
        let limits = Limits::of(profile);
        let curve = profile.bandwidth.curve(Direction::Write, Pattern::Individual);
        let falls = curve.threads.last().is_some_and(|most| (limits.writers_max as u64) < *most);
        let at_once = if falls { limits.writers_max } else { Writing::AT_ONCE_MAX };
        let piece_bytes =
            limits.access_bytes.clamp(*Writing::PIECE_BYTES.start(), *Writing::PIECE_BYTES.end());
        Ok(Writing {
            piece_bytes: piece_bytes / 4096 * 4096,
            at_once: at_once.clamp(1, Writing::AT_ONCE_MAX),
            is_calibrated: true,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// A disk whose bandwidth is so, for 1, 2, 4 and 8 writers (down) with 4 to 256 KiB.
    fn disk(gb_per_s: [[f64; 4]; 4]) -> Profile {
        let mut profile = Profile::embedded("nvme").unwrap();
        for curve in [&mut profile.bandwidth.write.individual, &mut profile.bandwidth.write.grouped] {
            curve.threads = vec![1, 2, 4, 8];
            curve.access_bytes = vec![4 << 10, 16 << 10, 64 << 10, 256 << 10];
            curve.gb_per_s = gb_per_s.map(|row| row.to_vec()).to_vec();
        }
        profile
    }

    fn writing(piece_bytes: usize, at_once: usize) -> Writing {
        Writing { piece_bytes, at_once, is_calibrated: true }
    }

    #[test]
    fn pieces_and_writers_are_those_of_the_curve() {
        let falls =
            disk([[0.1, 0.3, 0.5, 0.5], [0.2, 0.5, 0.9, 0.9], [0.2, 0.6, 1.0, 1.0], [0.2, 0.4, 0.7, 0.6]]);
        assert_eq!(Writing::of(&falls).unwrap(), writing(64 << 10, 4));
        let rises =
            disk([[0.1, 0.3, 0.4, 0.5], [0.2, 0.5, 0.6, 0.9], [0.2, 0.6, 0.8, 1.2], [0.2, 0.6, 0.9, 1.9]]);
        assert_eq!(Writing::of(&rises).unwrap(), writing(256 << 10, 64), "nobody saw where it ends");
    }

    #[test]
    fn odd_sizes_stay_within_bounds() {
        let mut small = disk([[1.0; 4]; 4]);
        assert_eq!(Writing::of(&small).unwrap(), writing(64 << 10, 64), "4 KiB would do, says the curve");
        for curve in [&mut small.bandwidth.write.individual, &mut small.bandwidth.write.grouped] {
            curve.access_bytes = vec![70_000];
            curve.gb_per_s.iter_mut().for_each(|row| row.truncate(1));
        }
        assert_eq!(Writing::of(&small).unwrap().piece_bytes, 17 * 4096, "whole pages");
        for curve in [&mut small.bandwidth.write.individual, &mut small.bandwidth.write.grouped] {
            curve.access_bytes = vec![1 << 30];
        }
        assert_eq!(Writing::of(&small).unwrap().piece_bytes, 8 << 20);
    }

    #[test]
    fn a_memory_is_no_disk() {
        for name in ["dram", "optane-dcpmm", "cxl-dram"] {
            let error = Writing::of(&Profile::embedded(name).unwrap()).unwrap_err().to_string();
            assert!(error.contains("medium.transfer_bytes is 64") && error.contains("disk"), "{error}");
        }
        assert!(Writing::of(&Profile::embedded("nvme").unwrap()).unwrap().is_calibrated);
    }
}
