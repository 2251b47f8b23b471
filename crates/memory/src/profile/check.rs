//! Validation of profiles: every refusal names the field and the value.

use super::{Cache, Curve, MixedAccess, Profile, ThreadCurve};

type CheckResult = Result<(), String>;

const TRANSFER_BYTES_MAX: u64 = 1 << 20;
const CACHE_LEVELS_MAX: usize = 8;
const CACHE_BYTES_MAX: u64 = 1 << 32;
const BLOCKS_MAX: u64 = 1 << 16;

fn positive(field: &str, value: f64) -> CheckResult {
    if value.is_finite() && value > 0.0 {
        Ok(())
    } else {
        Err(format!("{field} is {value}; it must be above 0"))
    }
}

fn at_least(field: &str, value: f64, (other_field, other): (&str, f64)) -> CheckResult {
    positive(field, value)?;
    if value >= other {
        return Ok(());
    }
    Err(format!("{field} is {value}; it must not be below {other_field}, which is {other}"))
}

fn whole(field: &str, value: u64, range: std::ops::RangeInclusive<u64>) -> CheckResult {
    if range.contains(&value) {
        return Ok(());
    }
    Err(format!("{field} is {value}; it must be from {} to {}", range.start(), range.end()))
}

fn power_of_two(field: &str, value: u64, max: u64) -> CheckResult {
    if value.is_power_of_two() && (8..=max).contains(&value) {
        return Ok(());
    }
    Err(format!("{field} is {value}; it must be a power of two from 8 to {max}"))
}

fn growing(field: &str, values: &[u64]) -> CheckResult {
    if values.is_empty() || values[0] == 0 || !values.is_sorted_by(|a, b| a < b) {
        return Err(format!("{field} is {values:?}; it must have ascending figures above 0"));
    }
    Ok(())
}

fn figures(field: &str, values: &[f64], count: usize) -> CheckResult {
    if values.len() != count {
        return Err(format!("{field} has {} figures; it must have {count}", values.len()));
    }
    values.iter().enumerate().try_for_each(|(i, value)| positive(&format!("{field}[{i}]"), *value))
}

fn matrix(field: &str, rows: &[Vec<f64>], height: usize, width: usize) -> CheckResult {
    if rows.len() != height {
        return Err(format!("{field} has {} rows; it must have {height}", rows.len()));
    }
    rows.iter().enumerate().try_for_each(|(i, row)| figures(&format!("{field}[{i}]"), row, width))
}

impl Curve {
    fn check(&self, field: &str) -> CheckResult {
        growing(&format!("{field}.threads"), &self.threads)?;
        growing(&format!("{field}.access_bytes"), &self.access_bytes)?;
        matrix(&format!("{field}.gb_per_s"), &self.gb_per_s, self.threads.len(), self.access_bytes.len())
    }
}

impl ThreadCurve {
    fn check(&self, field: &str) -> CheckResult {
        growing(&format!("{field}.threads"), &self.threads)?;
        figures(&format!("{field}.gb_per_s"), &self.gb_per_s, self.threads.len())
    }
}

impl MixedAccess {
    fn check(&self) -> CheckResult {
        growing("mixed.writers", &self.writers)?;
        growing("mixed.readers", &self.readers)?;
        for (field, shares) in
            [("mixed.read_share", &self.read_share), ("mixed.write_share", &self.write_share)]
        {
            matrix(field, shares, self.writers.len(), self.readers.len())?;
            if let Some(share) = shares.iter().flatten().find(|share| **share > 1.0) {
                return Err(format!("{field} has {share}; a share is at most 1"));
            }
        }
        Ok(())
    }
}

impl Profile {
    pub(super) fn check(&self) -> CheckResult {
        self.check_medium()?;
        self.check_latencies()?;
        self.check_caches()?;
        for (direction, patterns) in [("read", &self.bandwidth.read), ("write", &self.bandwidth.write)] {
            patterns.individual.check(&format!("bandwidth.{direction}.individual"))?;
            patterns.grouped.check(&format!("bandwidth.{direction}.grouped"))?;
            patterns.random.check(&format!("bandwidth.{direction}.random"))?;
        }
        self.check_sockets()?;
        self.mixed.as_ref().map_or(Ok(()), MixedAccess::check)
    }

    fn check_medium(&self) -> CheckResult {
        let medium = &self.medium;
        power_of_two("medium.transfer_bytes", medium.transfer_bytes, TRANSFER_BYTES_MAX)?;
        power_of_two("medium.block_bytes", medium.block_bytes, TRANSFER_BYTES_MAX)?;
        power_of_two("medium.interleave_bytes", medium.interleave_bytes, 1 << 30)?;
        whole("medium.modules", medium.modules, 1..=1024)?;
        let transfer = ("medium.transfer_bytes", medium.transfer_bytes as f64);
        at_least("medium.block_bytes", medium.block_bytes as f64, transfer)?;
        let block = ("medium.block_bytes", medium.block_bytes as f64);
        at_least("medium.interleave_bytes", medium.interleave_bytes as f64, block)?;
        // The written transfers of an open block are kept as bits of a word.
        whole("medium.block_bytes / medium.transfer_bytes", self.transfers_per_block(), 1..=64)
    }

    fn check_latencies(&self) -> CheckResult {
        let (read, write) = (&self.read, &self.write);
        positive("read.sequential_ns", read.sequential_ns)?;
        at_least("read.random_ns", read.random_ns, ("read.sequential_ns", read.sequential_ns))?;
        let count = self.transfers_per_block() as f64;
        if count > 1.0 && read.sequential_ns * count <= read.random_ns {
            return Err(format!(
                "read.sequential_ns is {}; with {count} transfers a block it must be above read.random_ns / {count}, \
                 which is {}",
                read.sequential_ns,
                read.random_ns / count
            ));
        }
        whole("read.buffer_blocks", read.buffer_blocks, 1..=BLOCKS_MAX)?;
        whole("read.in_flight_max", read.in_flight_max, 1..=1024)?;
        positive("write.flush_ns", write.flush_ns)?;
        at_least("write.accept_ns", write.accept_ns, ("write.flush_ns", write.flush_ns))?;
        whole("write.combining_blocks", write.combining_blocks, 1..=BLOCKS_MAX)?;
        whole("write.queue_transfers", write.queue_transfers, 1..=BLOCKS_MAX)
    }

    /// Checks that each level is larger and slower than the one before, and all are faster than the medium.
    fn check_caches(&self) -> CheckResult {
        if self.caches.is_empty() || self.caches.len() > CACHE_LEVELS_MAX {
            let count = self.caches.len();
            return Err(format!("caches has {count} levels; it must have 1 to {CACHE_LEVELS_MAX}"));
        }
        let mut before: Option<(String, &Cache)> = None;
        for (i, cache) in self.caches.iter().enumerate() {
            let field = format!("caches[{i}]");
            whole(&format!("{field}.ways"), cache.ways, 1..=1024)?;
            whole(&format!("{field}.bytes"), cache.bytes, 1..=CACHE_BYTES_MAX)?;
            let set_bytes = cache.ways * self.medium.transfer_bytes;
            if !cache.bytes.is_multiple_of(set_bytes) {
                return Err(format!(
                    "{field}.bytes is {}; it must be a multiple of ways × medium.transfer_bytes, which is {set_bytes}",
                    cache.bytes
                ));
            }
            positive(&format!("{field}.hit_ns"), cache.hit_ns)?;
            if let Some((name, nearer)) = &before {
                let other = format!("{name}.hit_ns");
                at_least(&format!("{field}.hit_ns"), cache.hit_ns, (&other, nearer.hit_ns))?;
                let other = format!("{name}.bytes");
                at_least(&format!("{field}.bytes"), cache.bytes as f64, (&other, nearer.bytes as f64))?;
            }
            before = Some((field, cache));
        }
        let (name, last) = before.expect("there is a level");
        at_least("read.sequential_ns", self.read.sequential_ns, (&format!("{name}.hit_ns"), last.hit_ns))
    }

    fn check_sockets(&self) -> CheckResult {
        if self.far.is_some() != self.sockets.is_some() {
            let (has, lacks) = if self.far.is_some() { ("far", "sockets") } else { ("sockets", "far") };
            return Err(format!("{has} is present, but {lacks} is missing; a profile has both or neither"));
        }
        if let Some(far) = &self.far {
            at_least("far.latency_factor", far.latency_factor, ("that of near access", 1.0))?;
            far.read.check("far.read")?;
            far.first_read.check("far.first_read")?;
            far.write.check("far.write")?;
            far.unpinned_read.check("far.unpinned_read")?;
            far.unpinned_write.check("far.unpinned_write")?;
        }
        if let Some(sockets) = &self.sockets {
            positive("sockets.read_near_gb_per_s", sockets.read_near_gb_per_s)?;
            positive("sockets.read_far_gb_per_s", sockets.read_far_gb_per_s)?;
            positive("sockets.read_shared_gb_per_s", sockets.read_shared_gb_per_s)?;
            positive("sockets.write_near_gb_per_s", sockets.write_near_gb_per_s)?;
            positive("sockets.write_far_gb_per_s", sockets.write_far_gb_per_s)?;
            positive("sockets.write_shared_gb_per_s", sockets.write_shared_gb_per_s)?;
        }
        Ok(())
    }
}
