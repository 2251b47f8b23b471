//! The modelled devices against the papers' own figures, and refusals of invalid files.

use Direction::{Read, Write};
use Pattern::{Grouped, Individual, Random};
use entresol_memory::placement::Limits;
use entresol_memory::profile::{Access, Direction, Pattern, Profile, SocketPlacement};
use entresol_memory::{Pool, PoolOptions};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

fn optane() -> Profile {
    Profile::embedded("optane-dcpmm").unwrap()
}

fn gb_per_s(profile: &Profile, direction: Direction, pattern: Pattern, threads: u64, bytes: u64) -> f64 {
    profile.bandwidth_gb_per_s(&Access::new(direction, pattern, threads, bytes).near())
}

/// Highest bandwidth of any thread count at an access size.
fn best(profile: &Profile, direction: Direction, pattern: Pattern, bytes: u64) -> f64 {
    (1..=36).map(|threads| gb_per_s(profile, direction, pattern, threads, bytes)).fold(0.0, f64::max)
}

fn peak(profile: &Profile, direction: Direction, pattern: Pattern) -> f64 {
    (6..=16).map(|power| best(profile, direction, pattern, 1 << power)).fold(0.0, f64::max)
}

#[track_caller]
fn assert_within(ours: f64, paper: f64, share: f64) {
    assert!((ours / paper - 1.0).abs() <= share, "ours {ours:.3}, the paper's {paper:.3}");
}

/// Modelled nanoseconds of reading single lines of a large object in the given order, through a pool.
fn read_latency_ns(profile: &Profile, lines: impl Iterator<Item = u64>) -> f64 {
    const BYTES: u64 = 8 << 20;
    let pool = Pool::modelled(&PoolOptions::default(), profile).unwrap();
    let start = pool.reserve(BYTES as usize).unwrap().offset();
    let before = pool.modelled_cost().unwrap();
    let mut count = 0;
    for line in lines {
        pool.word(start.plus(line * 64 % BYTES)).load(Relaxed);
        count += 1;
    }
    let cost = pool.modelled_cost().unwrap() - before;
    assert_eq!((cost.lines_read, cost.cache_hits), (count, 0), "every line came from the device");
    cost.ns() / count as f64
}

/// Dissertation, table 2.2: idle sequential and random read latency are 81 and 88 ns for DRAM, 174 and 325 ns
/// for DCPMM.
#[test]
fn read_latencies_are_those_of_the_dissertation() {
    let sequence = || 0..100_000;
    // Far steps that visit no line twice: the step has no factor in common with the number of lines.
    let scattered = || (0..100_000).map(|i| i * 12_347 % 131_072);
    for (name, sequential_ns, random_ns) in [("dram", 81.0, 88.0), ("optane-dcpmm", 174.0, 325.0)] {
        let profile = Profile::embedded(name).unwrap();
        let sequential = read_latency_ns(&profile, sequence());
        let random = read_latency_ns(&profile, scattered());
        assert_within(sequential, sequential_ns, 0.02);
        assert_within(random, random_ns, 0.02);
        assert_within(random / sequential, random_ns / sequential_ns, 0.03);
    }
}

/// Dissertation, table 2.2: maximum read bandwidth 85 GB/s (DRAM) and 32 GB/s (DCPMM), write 46 and 13 GB/s.
/// Bandwidth paper, 3.5: "~40 GB/s" near PMEM, "peak bandwidth for near DRAM (~100 GB/s)".
#[test]
fn persistent_memory_has_the_papers_share_of_the_bandwidth_of_dram() {
    let (optane, dram) = (optane(), Profile::embedded("dram").unwrap());
    let read = peak(&optane, Read, Individual) / peak(&dram, Read, Individual);
    assert_within(read, 32.0 / 85.0, 0.2);
    assert_within(read, 40.0 / 100.0, 0.2);
    let write = peak(&optane, Write, Individual) / peak(&dram, Write, Individual);
    assert_within(write, 13.0 / 46.0, 0.2);
    assert_within(peak(&optane, Read, Individual), 40.0, 0.2);
    assert_within(peak(&optane, Write, Individual), 13.0, 0.2);
}

/// 4.1: "there are two peaks at around 256 Byte and 4 KB"; "a global maximum of 12.6 GB/s for grouped 4 KB
/// access"; 4.2: "A second peak is visible around 256 Byte, where all thread counts above 18 achieve ~10
/// GB/s"; "2.6 GB/s compared to 9.6 GB/s with 64 Byte and 36 threads" (grouped, individual).
#[test]
fn writes_have_two_peaks() {
    let optane = optane();
    let at = |bytes| best(&optane, Write, Grouped, bytes);
    assert_within(at(4096), 12.6, 0.2);
    assert_within(at(256), 10.0, 0.2);
    assert_within(at(4096) / at(256), 12.6 / 10.0, 0.2);
    assert!(at(256) > at(128) && at(256) > at(512), "256 bytes is a peak");
    assert!(at(4096) > at(2048) && at(4096) > at(8192), "4 KiB is a peak");
    assert!((6..=16).all(|power| at(1 << power) <= at(4096)), "4 KiB is the highest");
    for threads in 19..=36 {
        assert_within(gb_per_s(&optane, Write, Grouped, threads, 256), 10.0, 0.2);
        assert_within(gb_per_s(&optane, Write, Individual, threads, 256), 10.0, 0.2);
    }
    assert_within(gb_per_s(&optane, Write, Grouped, 36, 64), 2.6, 0.2);
    assert_within(gb_per_s(&optane, Write, Individual, 36, 64), 9.6, 0.2);
}

/// 4.2: "the highest bandwidth of ~12.5 GB/s for 4, 6 and 8 threads at 4 KB. However, only the 4- and
/// 6-thread configurations achieve ~12 GB/s with an increasing access size while the 8-thread configuration
/// drops to ~8 GB/s"; above 18 threads "stabilizing at around 5–6 GB/s"; "for larger writes, 2 threads
/// achieve the same bandwidth as 8".
#[test]
fn writes_fall_beyond_eight_threads() {
    let optane = optane();
    for pattern in [Grouped, Individual] {
        let at = |threads, bytes| gb_per_s(&optane, Write, pattern, threads, bytes);
        for threads in [4, 6, 8] {
            assert_within(at(threads, 4096), 12.5, 0.2);
        }
        assert_within(at(4, 65_536), 12.0, 0.2);
        assert_within(at(6, 65_536), 12.0, 0.2);
        assert_within(at(8, 65_536), 8.0, 0.2);
        assert_within(at(2, 65_536), at(8, 65_536), 0.2);
        for threads in [24, 30, 36] {
            assert_within(at(threads, 65_536), 5.5, 0.2);
        }
        assert_within(at(36, 65_536) / at(4, 65_536), 5.5 / 12.0, 0.2);
    }
    // 4.2: "the performance does not drop significantly when increasing the threads but keeping the access
    // size constant between 256 Byte and 1 KB".
    assert!(
        gb_per_s(&optane, Write, Individual, 36, 256) > 0.9 * gb_per_s(&optane, Write, Individual, 6, 256)
    );
    // 4.2 of DRAM: "scales nearly linearly"; it never falls.
    let dram = Profile::embedded("dram").unwrap();
    assert!((1..36).all(
        |n| gb_per_s(&dram, Write, Individual, n + 1, 4096) > gb_per_s(&dram, Write, Individual, n, 4096)
    ));
}

/// 3.1: grouped "from 12 to 40 GB/s for 36 threads, whereas the maximum individual spans only 3 GB"; 3.2:
/// "~40 GB/s with 16 and 18 threads"; "as few as 8 threads achieves nearly as much ... (~15% difference)";
/// 5.2: random reads "up to ~2/3 of the maximum", "~50%" at 256 and 512 bytes; random writes about 2/3, best
/// with 4 to 6 threads.
#[test]
fn reads_and_random_access_are_as_in_the_paper() {
    let optane = optane();
    let at = |pattern, threads, bytes| gb_per_s(&optane, Read, pattern, threads, bytes);
    assert_within(at(Grouped, 36, 64), 12.0, 0.2);
    assert_within(at(Grouped, 36, 4096), 40.0, 0.2);
    assert!(at(Individual, 36, 4096) - at(Individual, 36, 64) < 3.0 + 1e-9);
    assert_within(at(Individual, 16, 4096), 40.0, 0.2);
    assert_within(at(Individual, 8, 4096) / at(Individual, 36, 4096), 0.85, 0.2);
    assert_within(at(Individual, 30, 4096), 31.0, 0.2);
    assert_within(peak(&optane, Read, Random) / peak(&optane, Read, Individual), 2.0 / 3.0, 0.2);
    assert_within(best(&optane, Read, Random, 256) / peak(&optane, Read, Individual), 0.5, 0.2);
    assert_within(peak(&optane, Write, Random) / peak(&optane, Write, Grouped), 2.0 / 3.0, 0.2);
    let random_write = |threads| gb_per_s(&optane, Write, Random, threads, 4096);
    assert!((1..=36).all(|threads| random_write(threads) <= random_write(4)));
}

/// 3.3 to 3.5, 4.3 to 4.5 and 5.1; the figures are in the profile beside each line.
#[test]
fn places_and_mixtures_are_as_in_the_paper() {
    let optane = optane();
    let at = |direction, threads, place| {
        optane.bandwidth_gb_per_s(&Access::new(direction, Individual, threads, 4096).at(place))
    };
    let peak_at = |direction, place| (1..=36).map(|n| at(direction, n, place)).fold(0.0, f64::max);
    for (direction, place, paper) in [
        (Read, SocketPlacement::FarFirst, 8.0),
        (Read, SocketPlacement::Far, 33.0),
        (Read, SocketPlacement::Unpinned, 9.0),
        (Read, SocketPlacement::BothNear, 80.0),
        (Read, SocketPlacement::BothFar, 50.0),
        (Write, SocketPlacement::Far, 7.0),
        (Write, SocketPlacement::Unpinned, 7.0),
        (Write, SocketPlacement::BothNear, 25.0),
        (Write, SocketPlacement::BothFar, 13.0),
        (Write, SocketPlacement::Shared, 8.0),
    ] {
        assert_within(peak_at(direction, place), paper, 0.2);
    }
    let readers = |n: u64, writers| {
        optane.bandwidth_gb_per_s(&Access::new(Read, Individual, n, 4096).near().beside(writers))
    };
    let writers = |n: u64, readers| {
        optane.bandwidth_gb_per_s(&Access::new(Write, Individual, n, 4096).near().beside(readers))
    };
    assert_within(readers(30, 1), 26.0, 0.2);
    assert_within(readers(30, 6) / readers(30, 0), 0.45, 0.2);
    assert_within(writers(4, 1), 12.0, 0.2);
    assert_within(writers(4, 30) / writers(4, 0), 0.41, 0.2);
    for (w, r) in
        [(1, 1), (1, 8), (1, 18), (1, 30), (4, 1), (4, 8), (4, 18), (4, 30), (6, 1), (6, 8), (6, 18), (6, 30)]
    {
        assert!(
            readers(r, w) + writers(w, r) <= 41.0,
            "{w} writers and {r} readers exceed the readers' maximum"
        );
    }
}

/// Section 7: "limit the threads to 4 – 6 per socket when writing"; insight 6: 4 KB, or 256 bytes.
#[test]
fn limits_follow_from_the_curves() {
    let limits = Limits::of(&optane());
    assert_eq!((limits.writers_min, limits.writers_max), (4, 6));
    assert_eq!((limits.access_bytes, limits.small_access_bytes), (4096, 256));
    assert!(limits.serializes_mixed);
    let dram = Limits::of(&Profile::embedded("dram").unwrap());
    assert_eq!(dram.writers_max, 36);
    assert!(!dram.serializes_mixed);
}

#[test]
fn all_embedded_profiles_make_sense() {
    assert_eq!(Profile::embedded_names().count(), 4);
    for name in Profile::embedded_names() {
        let profile = Profile::embedded(name).unwrap();
        assert!(!profile.sources.is_empty() && profile.buffered_read_ns() > 0.0, "{name}");
    }
    let error = Profile::embedded("core").unwrap_err().to_string();
    assert!(error.contains("'core'") && error.contains("optane-dcpmm"), "{error}");
}

/// Changes of a good file, and the strings that the error must contain.
const ABSURD: &[(&str, &str, &[&str])] = &[
    ("random_ns = 325.0", "", &["read.random_ns is missing"]),
    (
        "random_ns = 325.0",
        "random_ns = 325.0\nrandom_latency = 3",
        &["read.random_latency (which is 3)", "unknown field"],
    ),
    ("random_ns = 325.0", "random_ns = -1.0", &["read.random_ns is -1", "must be above 0"]),
    ("random_ns = 325.0", "random_ns = nan", &["read.random_ns is NaN"]),
    ("random_ns = 325.0", "random_ns = \"fast\"", &["read.random_ns is \"fast\"", "a number"]),
    (
        "random_ns = 325.0",
        "random_ns = 100.0",
        &["read.random_ns is 100", "read.sequential_ns, which is 174"],
    ),
    ("random_ns = 325.0", "random_ns = 700.0", &["read.sequential_ns is 174", "175"]),
    ("sequential_ns = 174.0", "sequential_ns = 5.0", &["read.sequential_ns is 5"]),
    ("block_bytes = 256", "block_bytes = 300", &["medium.block_bytes is 300", "power of two"]),
    (
        "block_bytes = 256",
        "block_bytes = 32",
        &["medium.block_bytes is 32", "medium.transfer_bytes, which is 64"],
    ),
    ("modules = 6 ", "modules = 0 ", &["medium.modules is 0"]),
    ("modules = 6 ", "modules = -6 ", &["medium.modules is -6"]),
    ("combining_blocks = 64", "combining_blocks = 0", &["write.combining_blocks is 0"]),
    ("accept_ns = 62.0", "accept_ns = 1.0", &["write.accept_ns is 1", "write.flush_ns, which is 8"]),
    ("bytes = 14417920", "bytes = 14417921", &["caches[2].bytes is 14417921", "704"]),
    ("bytes = 14417920", "bytes = 704", &["caches[2].bytes is 704", "caches[1].bytes"]),
    ("hit_ns = 4.1", "hit_ns = 0.1", &["caches[1].hit_ns is 0.1", "caches[0].hit_ns, which is 1.2"]),
    ("hit_ns = 18.0", "hit_ns = 500.0", &["read.sequential_ns is 174", "caches[2].hit_ns, which is 500"]),
    ("[37.2, 38.0, 39.6,", "[0.0, 38.0, 39.6,", &["bandwidth.read.individual.gb_per_s[6][0] is 0"]),
    ("[37.2, 38.0, 39.6,", "[38.0, 39.6,", &["bandwidth.read.individual.gb_per_s[6] has 9 figures", "10"]),
    ("threads = [1, 2, 4, 6", "threads = [2, 1, 4, 6", &["bandwidth.read.individual.threads", "[2, 1, 4, 6"]),
    ("latency_factor = 2.0", "latency_factor = 0.5", &["far.latency_factor is 0.5"]),
    ("[0.97, 0.95, 0.90, 0.84]", "[0.97, 0.95, 0.90, 1.5]", &["mixed.read_share has 1.5"]),
    ("[sockets]", "[away]", &["away", "unknown field"]),
    ("flush_keeps_line = false", "flush_keeps_line = 0", &["write.flush_keeps_line is 0", "true or false"]),
    ("name = \"LLC\"", "name = 3", &["caches[2].name is 3"]),
    ("threads = [1, 2, 4, 6", "threads = [1, 2.5, 4, 6", &["bandwidth.read.individual.threads[1] is 2.5"]),
    ("[write]", "[write", &["TOML parse error", "[write"]),
    ("read_near_gb_per_s = 80.0", "read_near_gb_per_s = inf", &["sockets.read_near_gb_per_s is inf"]),
];

#[test]
fn absurd_profiles_are_refused_with_file_field_and_value() {
    let good = include_str!("../../profiles/optane-dcpmm.toml");
    for (from, to, expected) in ABSURD {
        let bad = good.replacen(from, to, 1);
        assert_ne!(bad, good, "{from} is in the file");
        let error = Profile::parse(&bad, Path::new("/etc/my-device.toml")).unwrap_err().to_string();
        assert!(error.contains("/etc/my-device.toml"), "{error}");
        for part in *expected {
            assert!(error.contains(part), "changed to '{to}': {error} lacks '{part}'");
        }
    }
}

#[test]
fn profiles_are_read_from_files() {
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("mine.toml");
    let error = Profile::load(&path).unwrap_err().to_string();
    assert!(error.contains("read profile") && error.contains("mine.toml"), "{error}");
    std::fs::write(&path, include_str!("../../profiles/dram.toml")).unwrap();
    assert_eq!(Profile::load(&path).unwrap(), Profile::embedded("dram").unwrap());
    std::fs::write(&path, [0xFF, 0xFE]).unwrap();
    assert!(Profile::load(&path).unwrap_err().to_string().contains("mine.toml"));
}
