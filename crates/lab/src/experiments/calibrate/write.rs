//! A profile as a TOML file, with where each figure comes from beside it.

use crate::Error;
use crate::media::CachedMedium;
use entresol_memory::profile::{Access, Direction, Pattern, Profile};
use std::fmt::Write;

/// Measured latencies.
pub(super) struct Latencies {
    pub(super) sequential_ns: f64,
    pub(super) random_ns: f64,
    pub(super) flush_ns: f64,
    pub(super) accept_ns: f64,
}

/// A name as a TOML string.
fn quoted(text: &str) -> String {
    let kept: String = text.chars().filter(|c| !c.is_control()).collect();
    format!("\"{}\"", kept.replace('\\', "\\\\").replace('"', "\\\""))
}

fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("model name"));
    let name =
        line.and_then(|line| line.split_once(':')).map_or("unknown processor", |(_, name)| name.trim());
    name.to_string()
}

/// The medium's profile; what cannot be measured is taken from `base`.
pub(super) fn profile_text(
    medium: &mut CachedMedium<'_>,
    base: &Profile,
    latencies: &Latencies,
) -> Result<String, Error> {
    let cores = medium.medium().cores();
    let name = format!("{}: {}, {cores} cores", medium.medium().name(), processor());
    // What a medium may not have: a random read that is faster than a sequential one.
    let sequential_ns = latencies.sequential_ns;
    let random_ns = latencies.random_ns.max(sequential_ns);
    let slowest_cache_ns = base.caches.last().map_or(sequential_ns, |cache| cache.hit_ns);
    let mut text = format!(
        "# Measured by `lab run calibrate`. `measured`: on this machine, median of the rounds; `base`: what a program \
         cannot see,\n# taken from the profile \"{}\".\n\n\
         name = {}\nsources = [\"lab run calibrate\"]\n\n\
         [medium]\ntransfer_bytes = {} # base\nblock_bytes = {} # base\ninterleave_bytes = {} # base\n\
         modules = {} # base\n\n\
         [read]\n\
         sequential_ns = {sequential_ns:.3} # measured: as a program sees it, the processor's prefetchers included\n\
         random_ns = {random_ns:.3} # measured: each address the result of the read before\n\
         buffer_blocks = {} # base\nin_flight_max = {} # base\n\n\
         [write]\nflush_ns = {:.3} # measured on memory\naccept_ns = {:.3} # measured: until a fence, or a sync, returns\n\
         combining_blocks = {} # base\nqueue_transfers = {} # base\nflush_keeps_line = {} # base\n",
        base.name,
        quoted(&name),
        base.medium.transfer_bytes,
        base.medium.block_bytes,
        base.medium.interleave_bytes,
        base.medium.modules,
        base.read.buffer_blocks,
        base.read.in_flight_max,
        latencies.flush_ns,
        latencies.accept_ns.max(latencies.flush_ns),
        base.write.combining_blocks,
        base.write.queue_transfers,
        base.write.flush_keeps_line,
    );
    for cache in &base.caches {
        // A cache is no slower than what is behind it, whatever the base says.
        let hit_ns = cache.hit_ns * (sequential_ns / slowest_cache_ns).min(1.0);
        let _ = write!(
            text,
            "\n[[caches]] # base, no slower than the medium\nname = {}\nbytes = {}\nways = {}\nhit_ns = {hit_ns:.3}\n",
            quoted(&cache.name),
            cache.bytes,
            cache.ways,
        );
    }
    for (direction, direction_name) in [(Direction::Read, "read"), (Direction::Write, "write")] {
        for (pattern, pattern_name) in
            [(Pattern::Individual, "individual"), (Pattern::Grouped, "grouped"), (Pattern::Random, "random")]
        {
            let _ = write!(text, "\n[bandwidth.{direction_name}.{pattern_name}] # measured\n");
            text += &curve(medium, direction, pattern)?;
        }
    }
    Ok(text)
}

fn curve(medium: &mut CachedMedium<'_>, direction: Direction, pattern: Pattern) -> Result<String, Error> {
    let (threads, sizes) = (medium.medium().threads().to_vec(), medium.medium().access_bytes().to_vec());
    let mut text = format!("threads = {threads:?}\naccess_bytes = {sizes:?}\ngb_per_s = [\n");
    for count in threads {
        let mut row = Vec::new();
        for bytes in &sizes {
            let gb_per_s = medium.gb_per_s(Access::new(direction, pattern, count, *bytes).near())?;
            // A window in which nothing was moved is no statement; the loader wants figures above 0.
            row.push(format!("{:.6}", gb_per_s.max(1e-6)));
        }
        let _ = writeln!(text, "    [{}],", row.join(", "));
    }
    Ok(text + "]\n")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::media::modelled::ModelledMedium;
    use std::path::Path;

    #[test]
    fn a_profile_survives_being_written() {
        for (name, latencies) in [
            ("dram", Latencies { sequential_ns: 5.25, random_ns: 96.5, flush_ns: 12.0, accept_ns: 90.0 }),
            (
                "nvme",
                Latencies { sequential_ns: 90_000.0, random_ns: 80_000.0, flush_ns: 1000.0, accept_ns: 10.0 },
            ),
        ] {
            let base = Profile::embedded(name).unwrap();
            let medium = ModelledMedium::new(name, base.clone());
            let text = profile_text(&mut CachedMedium::new(&medium), &base, &latencies).unwrap();
            let read = Profile::parse(&text, Path::new("written.toml")).unwrap();
            assert_eq!(read.medium, base.medium);
            assert_eq!(read.bandwidth, base.bandwidth, "six digits hold what the file has");
            assert_eq!(read.read.sequential_ns, latencies.sequential_ns);
            assert!(
                read.read.random_ns >= latencies.random_ns && read.read.random_ns >= read.read.sequential_ns
            );
            assert!(read.write.accept_ns >= latencies.flush_ns);
        }
        assert_eq!(quoted("a \"b\" \\ \n"), "\"a \\\"b\\\" \\\\ \"");
    }
}
