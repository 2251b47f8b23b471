//! Write settings of checkpoints: sizes and numbers of writes that suit a disk.

use super::limits::NEARLY;
use crate::error::{Error, Result};
use crate::profile::{Direction, Pattern, Profile};

/// Smallest transfer of a medium that is a disk; memory moves cache lines.
const DISK_TRANSFER_BYTES_MIN: u64 = 512;

/// Share of the best bandwidth from which on a measurement shows no certain loss.
const HOLDS: f64 = 0.8;

/// Write settings: bytes of one write, and number of writes in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteSettings {
    /// Maximum bytes of a single write.
    pub piece_bytes: usize,
    /// Number of writes in flight at once, where the system supports several (io_uring).
    pub at_once: usize,
    /// True if derived from a profile; else these are the defaults.
    pub is_calibrated: bool,
}

impl WriteSettings {
    /// Bounds of [`WriteSettings::piece_bytes`]: smaller ones cost more of the processor than any drive repays, and
    /// there are none larger than a batch of a checkpoint.
    pub const PIECE_BYTES: std::ops::RangeInclusive<usize> = 64 << 10..=8 << 20;
    /// Maximum number of writes in flight at once.
    pub const AT_ONCE_MAX: usize = 64;

    /// Defaults that suit most drives: pieces of 256 KiB, 64 at once.
    pub const UNCALIBRATED: WriteSettings =
        WriteSettings { piece_bytes: 256 << 10, at_once: WriteSettings::AT_ONCE_MAX, is_calibrated: false };

    /// Derives the settings from the profile of a disk. Pieces are the largest that reach its full write
    /// bandwidth, within [`WriteSettings::PIECE_BYTES`]. The number in flight is that of its writers; less than
    /// [`WriteSettings::AT_ONCE_MAX`] only if more were measured to cost a fifth of the bandwidth with pieces of
    /// every size, since a checkpoint has pieces of all sizes and single pages need a long queue.
    ///
    /// Errors: [`Error::Invalid`] if the profile is that of a memory.
    pub fn of(profile: &Profile) -> Result<WriteSettings> {
        let transfer_bytes = profile.medium.transfer_bytes;
        if transfer_bytes < DISK_TRANSFER_BYTES_MIN {
            return Err(Error::Invalid(format!(
                "'{}' is the profile of a memory (medium.transfer_bytes is {transfer_bytes}); expected that of a disk, \
                 with at least {DISK_TRANSFER_BYTES_MIN}",
                profile.name
            )));
        }
        let curve = profile.bandwidth.curve(Direction::Write, Pattern::Individual);
        let columns = 0..curve.access_bytes.len();
        let best = |column: usize| curve.gb_per_s.iter().map(|row| row[column]).fold(0.0, f64::max);
        let widest = columns.clone().rfind(|column| best(*column) >= NEARLY * curve.peak());
        let piece_bytes = widest.map_or(0, |column| curve.access_bytes[column] as usize);

        let holds = |row: &Vec<f64>| columns.clone().any(|column| row[column] >= HOLDS * best(column));
        let most = curve.gb_per_s.iter().rposition(holds).unwrap_or(0);
        let falls = most + 1 < curve.threads.len();
        let at_once = if falls { curve.threads[most] as usize } else { WriteSettings::AT_ONCE_MAX };
        let piece_bytes =
            piece_bytes.clamp(*WriteSettings::PIECE_BYTES.start(), *WriteSettings::PIECE_BYTES.end());
        Ok(WriteSettings {
            piece_bytes: piece_bytes / 4096 * 4096,
            at_once: at_once.clamp(1, WriteSettings::AT_ONCE_MAX),
            is_calibrated: true,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Profile of a disk with this bandwidth, for 1, 2, 4 and 8 writers (down) with 4 to 256 KiB.
    fn disk(gb_per_s: [[f64; 4]; 4]) -> Profile {
        let mut profile = Profile::embedded("nvme").unwrap();
        let curve = &mut profile.bandwidth.write.individual;
        curve.threads = vec![1, 2, 4, 8];
        curve.access_bytes = vec![4 << 10, 16 << 10, 64 << 10, 256 << 10];
        curve.gb_per_s = gb_per_s.map(|row| row.to_vec()).to_vec();
        profile
    }

    fn writing(piece_bytes: usize, at_once: usize) -> WriteSettings {
        WriteSettings { piece_bytes, at_once, is_calibrated: true }
    }

    #[test]
    fn pieces_are_the_largest_with_full_bandwidth() {
        let flat =
            disk([[0.1, 0.3, 0.5, 0.5], [0.2, 0.5, 0.9, 0.9], [0.2, 0.6, 1.0, 1.0], [0.2, 0.6, 1.0, 0.98]]);
        assert_eq!(WriteSettings::of(&flat).unwrap(), writing(256 << 10, 64));
        let bends =
            disk([[0.1, 0.3, 0.5, 0.4], [0.2, 0.5, 0.9, 0.6], [0.2, 0.6, 1.0, 0.7], [0.2, 0.6, 1.0, 0.7]]);
        assert_eq!(WriteSettings::of(&bends).unwrap(), writing(64 << 10, 64));
        let small = disk([[1.0, 0.5, 0.5, 0.5]; 4]);
        assert_eq!(WriteSettings::of(&small).unwrap(), writing(64 << 10, 64), "not below the bound");
    }

    #[test]
    fn fewer_at_once_only_where_more_are_worse_in_all_sizes() {
        let falls =
            disk([[0.1, 0.3, 0.5, 0.5], [0.2, 0.5, 0.9, 0.9], [0.2, 0.6, 1.0, 1.0], [0.1, 0.4, 0.7, 0.6]]);
        assert_eq!(WriteSettings::of(&falls).unwrap().at_once, 4);
        let pages_gain =
            disk([[0.1, 0.3, 0.5, 0.5], [0.2, 0.5, 0.9, 0.9], [0.2, 0.6, 1.0, 1.0], [0.3, 0.4, 0.7, 0.6]]);
        assert_eq!(WriteSettings::of(&pages_gain).unwrap().at_once, 64, "single pages want the queue");
        let scatters =
            disk([[0.1, 0.3, 0.5, 0.5], [0.2, 0.5, 0.9, 0.9], [0.2, 0.6, 1.0, 1.0], [0.17, 0.5, 0.85, 0.85]]);
        assert_eq!(WriteSettings::of(&scatters).unwrap().at_once, 64, "no more than measurements scatter");
        let one = disk([[1.0; 4], [0.7; 4], [0.5; 4], [0.2; 4]]);
        assert_eq!(WriteSettings::of(&one).unwrap().at_once, 1);
    }

    #[test]
    fn odd_sizes_stay_within_bounds() {
        let mut profile = disk([[1.0; 4]; 4]);
        let curve = &mut profile.bandwidth.write.individual;
        curve.access_bytes = vec![70_000];
        curve.gb_per_s.iter_mut().for_each(|row| row.truncate(1));
        assert_eq!(WriteSettings::of(&profile).unwrap().piece_bytes, 17 * 4096, "whole pages");
        profile.bandwidth.write.individual.access_bytes = vec![1 << 30];
        assert_eq!(WriteSettings::of(&profile).unwrap().piece_bytes, 8 << 20);
    }

    #[test]
    fn a_memory_is_no_disk() {
        for name in ["dram", "optane-dcpmm", "cxl-dram"] {
            let error = WriteSettings::of(&Profile::embedded(name).unwrap()).unwrap_err().to_string();
            assert!(error.contains("medium.transfer_bytes is 64") && error.contains("disk"), "{error}");
        }
        assert!(WriteSettings::of(&Profile::embedded("nvme").unwrap()).unwrap().is_calibrated);
    }
}
