//! Sizes as a user writes them: `512MiB`, `4 GB`, `25%`.

use super::InvalidBudget;
use std::fmt;
use std::str::FromStr;

/// Memory size, absolute or as a share of the machine's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemorySize {
    /// Bytes.
    Bytes(u64),
    /// Percentage of the memory available to this process.
    Percent(u8),
}

impl Default for MemorySize {
    /// Returns half of the machine's memory.
    fn default() -> Self {
        MemorySize::Percent(50)
    }
}

impl MemorySize {
    /// Size in bytes on a machine with this memory.
    pub fn bytes_of(self, machine_bytes: u64) -> Result<u64, InvalidBudget> {
        match self {
            MemorySize::Bytes(bytes) => Ok(bytes),
            MemorySize::Percent(share @ 1..=100) => Ok(machine_bytes / 100 * u64::from(share)),
            MemorySize::Percent(share) => Err(InvalidBudget::NoShare(share)),
        }
    }
}

/// Error of a string that is not a memory size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is not a memory size: use bytes with a unit (B, kB, MB, GB, TB, or KiB, MiB, GiB, TiB; each is 1024 of \
         the one before) or a percentage, as in '512MiB' or '25%'"
)]
pub struct ParseMemorySizeError(String);

/// Units and their exponents, the longest spellings first. As in PostgreSQL, kB is 1,024 bytes.
const UNITS: [(&str, u32); 14] = [
    ("kib", 10),
    ("mib", 20),
    ("gib", 30),
    ("tib", 40),
    ("kb", 10),
    ("mb", 20),
    ("gb", 30),
    ("tb", 40),
    ("k", 10),
    ("m", 20),
    ("g", 30),
    ("t", 40),
    ("b", 0),
    ("", 0),
];

impl FromStr for MemorySize {
    type Err = ParseMemorySizeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ParseMemorySizeError(text.to_string());
        let lower = text.trim().to_ascii_lowercase();
        if let Some(share) = lower.strip_suffix('%') {
            let share = share.trim_end().parse().map_err(|_| wrong())?;
            return if (1..=100).contains(&share) { Ok(MemorySize::Percent(share)) } else { Err(wrong()) };
        }
        let digits = lower.find(|c: char| !c.is_ascii_digit()).unwrap_or(lower.len());
        let (number, unit) = lower.split_at(digits);
        let number: u64 = number.parse().map_err(|_| wrong())?;
        let unit = unit.trim();
        let (_, shift) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
        number.checked_mul(1 << shift).map(MemorySize::Bytes).ok_or_else(wrong)
    }
}

impl fmt::Display for MemorySize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemorySize::Bytes(bytes) => Bytes(*bytes).fmt(f),
            MemorySize::Percent(share) => write!(f, "{share}%"),
        }
    }
}

/// Bytes with a readable unit; multiples of a unit are exact, so that they parse back.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bytes(pub(super) u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0;
        let unit = [("GiB", 30), ("MiB", 20), ("KiB", 10)].into_iter().find(|(_, shift)| bytes >= 1 << shift);
        match unit {
            Some((name, shift)) if bytes.is_multiple_of(1 << shift) => write!(f, "{}{name}", bytes >> shift),
            Some((name, shift)) => write!(f, "{:.1}{name}", bytes as f64 / f64::from(1u32 << shift)),
            None => write!(f, "{bytes}B"),
        }
    }
}
