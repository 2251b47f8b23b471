//! The paper's twelve insights as questions to a medium. Each answer has the figures it rests on; an insight
//! about sockets has no answer on a machine with one.

use super::figures::size;
use crate::Error;
use crate::media::CachedMedium;
use crate::report::Report;
use Direction::{Read, Write};
use Pattern::{Grouped, Individual, Random};
use entresol_memory::profile::{Access, Direction, Pattern, SocketPlacement, Workload};
use serde_json::{Value, json};

/// Differences below this are noise.
const NOISE: f64 = 0.05;

/// Answer of a medium to an insight: the figures, and whether it holds; none if this medium cannot show it.
struct Answer {
    figures: String,
    holds: Option<bool>,
}

impl Answer {
    fn new(holds: bool, figures: String) -> Answer {
        Answer { figures, holds: Some(holds) }
    }

    fn one_socket() -> Answer {
        Answer { figures: "one socket: no far memory".to_string(), holds: None }
    }
}

type Question = fn(&mut CachedMedium<'_>) -> Result<Answer, Error>;

/// The paper's words, and the question.
const INSIGHTS: [(&str, Question); 12] = [
    (
        "Read data from individual memory regions or in consecutive 4 KB chunks to benefit from prefetching and an even \
         thread-to-DIMM distribution.",
        read_chunks,
    ),
    ("Use all available cores for maximum read bandwidth and avoid hyperthreaded reads.", read_threads),
    ("Pin threads to avoid far-memory access.", |medium| pinning(medium, Read)),
    (
        "Threads should only read data on their near socket PMEM. If this is not possible, the assignment of address \
         spaces to NUMA regions should change as rarely as possible.",
        near_reads,
    ),
    (
        "If possible, stripe data into independent and evenly distributed data sets across the PMEM of all sockets and \
         ensure that sockets read only from near PMEM.",
        striped,
    ),
    (
        "Write data in 4 KB chunks to achieve the highest bandwidth or in 256 Byte chunks if smaller consecutive writes \
         are necessary.",
        write_chunks,
    ),
    (
        "Use 4 - 6 threads to write to PMEM in large blocks or keep the access small when scaling the number of threads.",
        write_threads,
    ),
    (
        "Pin write-threads to individual cores if you have full system control. Otherwise, pin them to NUMA regions.",
        |medium| pinning(medium, Write),
    ),
    ("Threads should only write data to their near PMEM.", near_writes),
    ("Avoid contending cross-socket writes.", contending_writes),
    ("Serialize PMEM access when possible.", serialized),
    ("Access PMEM sequentially or use the largest possible access for random workloads.", sequential),
];

/// Asks all; returns how many hold.
pub(super) fn all(medium: &mut CachedMedium<'_>, report: &mut Report) -> Result<usize, Error> {
    let mut holding = 0;
    for (i, (insight, ask)) in INSIGHTS.iter().enumerate() {
        let answer = ask(medium)?;
        holding += usize::from(answer.holds == Some(true));
        report.row(json!({
            "insight": i + 1,
            "medium": medium.medium().name(),
            "paper": insight,
            "figures": answer.figures,
            "holds": answer.holds.map_or(Value::String("cannot be asked".to_string()), Value::Bool),
        }));
    }
    Ok(holding)
}

fn near(direction: Direction, pattern: Pattern, threads: u64, bytes: u64) -> Workload {
    Access::new(direction, pattern, threads, bytes).near()
}

fn most_threads(medium: &CachedMedium<'_>) -> u64 {
    medium.medium().threads().last().copied().unwrap_or(1)
}

fn smallest(medium: &CachedMedium<'_>) -> u64 {
    medium.medium().access_bytes()[0]
}

fn largest(medium: &CachedMedium<'_>) -> u64 {
    medium.medium().access_bytes().last().copied().unwrap_or(4096)
}

/// The best over all thread counts.
fn best(
    medium: &mut CachedMedium<'_>,
    direction: Direction,
    pattern: Pattern,
    bytes: u64,
) -> Result<f64, Error> {
    let mut best = 0.0f64;
    for threads in medium.medium().threads().to_vec() {
        best = best.max(medium.gb_per_s(near(direction, pattern, threads, bytes))?);
    }
    Ok(best)
}

fn read_chunks(medium: &mut CachedMedium<'_>) -> Result<Answer, Error> {
    let (threads, small) = (medium.medium().cores(), smallest(medium));
    let mut grouped = Vec::new();
    for bytes in medium.medium().access_bytes().to_vec() {
        grouped.push(medium.gb_per_s(near(Read, Grouped, threads, bytes))?);
    }
    let grouped_best = grouped.iter().copied().fold(0.0, f64::max);
    let chunks = medium.gb_per_s(near(Read, Grouped, threads, 4096))?;
    let individual = medium.gb_per_s(near(Read, Individual, threads, small))?;
    Ok(Answer::new(
        chunks >= (1.0 - 2.0 * NOISE) * grouped_best && individual >= (1.0 - NOISE) * grouped[0],
        format!(
            "{threads} threads: grouped {} {:.2}, grouped 4 KiB {chunks:.2}, best grouped {grouped_best:.2}, individual \
             {} {individual:.2} GB/s",
            size(small),
            grouped[0],
            size(small)
        ),
    ))
}

fn read_threads(medium: &mut CachedMedium<'_>) -> Result<Answer, Error> {
    let cores = medium.medium().cores();
    let one = medium.gb_per_s(near(Read, Individual, 1, 4096))?;
    let all = medium.gb_per_s(near(Read, Individual, cores, 4096))?;
    let more = medium.gb_per_s(near(Read, Individual, 2 * cores, 4096))?;
    Ok(Answer::new(
        (cores == 1 || all > (1.0 + NOISE) * one) && more <= (1.0 + NOISE) * all,
        format!("1 thread {one:.2}, {cores} (all cores) {all:.2}, {} {more:.2} GB/s", 2 * cores),
    ))
}

fn pinning(medium: &mut CachedMedium<'_>, direction: Direction) -> Result<Answer, Error> {
    let access = Access::new(direction, Individual, medium.medium().cores(), 4096);
    let (pinned, free) =
        (medium.gb_per_s(access.near())?, medium.gb_per_s(access.at(SocketPlacement::Unpinned))?);
    Ok(Answer::new(
        pinned > (1.0 + NOISE) * free,
        format!("{} threads: pinned {pinned:.2}, not pinned {free:.2} GB/s", access.threads),
    ))
}

fn near_reads(medium: &mut CachedMedium<'_>) -> Result<Answer, Error> {
    if !medium.medium().has_far() {
        return Ok(Answer::one_socket());
    }
    let access = Access::new(Read, Individual, medium.medium().cores(), 4096);
    let near = medium.gb_per_s(access.near())?;
    let first = medium.gb_per_s(access.at(SocketPlacement::FarFirst))?;
    let again = medium.gb_per_s(access.at(SocketPlacement::Far))?;
    Ok(Answer::new(
        near > again && again > first,
        format!("near {near:.2}, far {first:.2} at first, {again:.2} later GB/s"),
    ))
}

fn striped(medium: &mut CachedMedium<'_>) -> Result<Answer, Error> {
    if !medium.medium().has_far() {
        return Ok(Answer::one_socket());
    }
    let access = Access::new(Read, Individual, medium.medium().cores(), 4096);
    let one = medium.gb_per_s(access.near())?;
    let striped = medium.gb_per_s(access.at(SocketPlacement::BothNear))?;
    let crossed = medium.gb_per_s(access.at(SocketPlacement::BothFar))?;
    let shared = medium.gb_per_s(access.at(SocketPlacement::Shared))?;
    Ok(Answer::new(
        striped > 1.5 * one && striped > crossed && striped > shared,
        format!(
            "one socket {one:.2}; two: near {striped:.2}, far {crossed:.2}, the same memory {shared:.2} GB/s"
        ),
    ))
}

fn write_chunks(medium: &mut CachedMedium<'_>) -> Result<Answer, Error> {
    let sizes = medium.medium().access_bytes().to_vec();
    let mut by_size = Vec::new();
    for bytes in &sizes {
        by_size.push((*bytes, best(medium, Write, Grouped, *bytes)?));
    }
    let at = |bytes: u64| by_size.iter().find(|(size, _)| *size == bytes).map(|(_, y)| *y);
    let peak = by_size.iter().map(|(_, y)| *y).fold(0.0, f64::max);
    let chunks = at(4096).unwrap_or(0.0);
    // 256 bytes is a peak of its own if both neighbours are lower.
    let block_peak = match (at(256), sizes.iter().position(|bytes| *bytes == 256)) {
        (Some(y), Some(i)) if i > 0 && i + 1 < sizes.len() => y > by_size[i - 1].1 && y > by_size[i + 1].1,
        _ => false,
    };
    let text: Vec<String> = by_size.iter().map(|(bytes, y)| format!("{} {y:.2}", size(*bytes))).collect();
    Ok(Answer::new(
        chunks >= (1.0 - NOISE) * peak && block_peak,
        format!("best grouped by size: {} GB/s", text.join(", ")),
    ))
}

fn write_threads(medium: &mut CachedMedium<'_>) -> Result<Answer, Error> {
    let (most, large) = (most_threads(medium), largest(medium));
    let mut by_threads = Vec::new();
    for threads in medium.medium().threads().to_vec() {
        by_threads.push((threads, medium.gb_per_s(near(Write, Individual, threads, large))?));
    }
    let (best_threads, peak) =
        by_threads.iter().fold((1, 0.0), |best, (n, y)| if *y > best.1 { (*n, *y) } else { best });
    let crowded = by_threads.last().map_or(0.0, |(_, y)| *y);
    Ok(Answer::new(
        (4..=6).contains(&best_threads) && crowded < 0.8 * peak,
        format!(
            "{} a piece: best with {best_threads} threads, {peak:.2}; {most} threads {crowded:.2} GB/s",
            size(large)
        ),
    ))
}

fn near_writes(medium: &mut CachedMedium<'_>) -> Result<Answer, Error> {
    if !medium.medium().has_far() {
        return Ok(Answer::one_socket());
    }
    let (mut near, mut far) = (0.0f64, 0.0f64);
    for threads in medium.medium().threads().to_vec() {
        let access = Access::new(Write, Individual, threads, 4096);
        near = near.max(medium.gb_per_s(access.near())?);
        far = far.max(medium.gb_per_s(access.at(SocketPlacement::Far))?);
    }
    Ok(Answer::new(far < 0.6 * near, format!("near {near:.2}, far {far:.2} GB/s at best")))
}

fn contending_writes(medium: &mut CachedMedium<'_>) -> Result<Answer, Error> {
    if !medium.medium().has_far() {
        return Ok(Answer::one_socket());
    }
    let access = Access::new(Write, Individual, 4, 4096);
    let near = medium.gb_per_s(access.near())?;
    let shared = medium.gb_per_s(access.at(SocketPlacement::Shared))?;
    let apart = medium.gb_per_s(access.at(SocketPlacement::BothNear))?;
    Ok(Answer::new(
        shared < near && apart > near,
        format!(
            "4 threads: one socket {near:.2}; two: the same memory {shared:.2}, each its own {apart:.2} GB/s"
        ),
    ))
}

/// Reading and writing at once is worth it if the two get more than one whole share together.
fn serialized(medium: &mut CachedMedium<'_>) -> Result<Answer, Error> {
    let cores = medium.medium().cores();
    let (readers, writers) = if cores >= 18 { (cores, 4) } else { (cores, cores) };
    let read = near(Read, Individual, readers, 4096);
    let write = near(Write, Individual, writers, 4096);
    let read_share = medium.gb_per_s(read.beside(writers))? / medium.gb_per_s(read)?;
    let write_share = medium.gb_per_s(write.beside(readers))? / medium.gb_per_s(write)?;
    let together = read_share + write_share;
    Ok(Answer::new(
        together <= 1.0 + NOISE,
        format!(
            "{readers} readers keep {:.0}%, {writers} writers {:.0}%: together {together:.2} of one after the other",
            100.0 * read_share,
            100.0 * write_share
        ),
    ))
}

fn sequential(medium: &mut CachedMedium<'_>) -> Result<Answer, Error> {
    let (small, large) = (smallest(medium), largest(medium));
    let mut figures = Vec::new();
    let mut holds = true;
    for direction in [Read, Write] {
        let in_order = best(medium, direction, Individual, large)?;
        let random_large = best(medium, direction, Random, large)?;
        let random_small = best(medium, direction, Random, small)?;
        holds &= random_small < (1.0 - NOISE) * in_order && random_small < (1.0 - NOISE) * random_large;
        figures.push(format!(
            "{direction:?}: in order {in_order:.2}, random {} {random_large:.2}, random {} {random_small:.2}",
            size(large),
            size(small)
        ));
    }
    Ok(Answer::new(holds, format!("{} GB/s", figures.join("; "))))
}
