//! The same device once more from below: single accesses through a modelled pool, line by line through
//! caches, buffers and queues. Latencies, amplification and one thread's bandwidth come out of the model
//! instead of a curve.

use crate::Error;
use crate::asked::AskedFigure;
use crate::measure::Random;
use crate::report::Report;
use entresol_memory::profile::{Access, Direction, Pattern, Profile};
use entresol_memory::{ModelledCost, Pool, PoolOffset, PoolOptions};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const OBJECT_BYTES: u64 = 8 << 20;
const OPERATIONS: u64 = 8192;

struct Bench {
    pool: Arc<Pool>,
    start: PoolOffset,
}

impl Bench {
    fn new(profile: &Profile) -> Result<Bench, Error> {
        let pool = Pool::modelled(&PoolOptions::default(), profile)?;
        let reservation = pool.reserve(OBJECT_BYTES as usize)?;
        let start = reservation.offset();
        let mut publication = pool.publication();
        publication.allocate(reservation);
        publication.publish()?;
        Ok(Bench { pool, start })
    }

    fn cost(&self) -> ModelledCost {
        self.pool.modelled_cost().expect("the pool is modelled")
    }

    /// One access after the other, in order or at random places.
    fn run(&self, write: bool, random: bool, bytes: u64) -> ModelledCost {
        // Each piece once: none is cached.
        let mut pieces: Vec<u64> = (0..OBJECT_BYTES / bytes).collect();
        if random {
            Random::new(bytes).shuffle(&mut pieces);
        }
        let before = self.cost();
        for piece in pieces.into_iter().take(OPERATIONS as usize) {
            let at = self.start.block(piece, bytes);
            let words = self.pool.words(at, (bytes / 8) as usize);
            if write {
                words.iter().for_each(|word| word.store(piece + bytes, Ordering::Relaxed));
                self.pool.flush(at, bytes as usize);
                self.pool.fence();
            } else {
                words[0].load(Ordering::Relaxed);
            }
        }
        self.cost() - before
    }
}

pub(super) fn run(profile: &Profile, report: &mut Report) -> Result<(), Error> {
    let mut amplifications = Vec::new();
    let mut latencies = Vec::new();
    let mut bandwidths = Vec::new();
    for write in [false, true] {
        for random in [false, true] {
            for bytes in [64, 256, 1024, 4096] {
                // A pool of its own each time: nothing is cached.
                let bench = Bench::new(profile)?;
                let cost = bench.run(write, random, bytes);
                let operations = OPERATIONS.min(OBJECT_BYTES / bytes);
                let ns = cost.ns() / operations as f64;
                let (order, direction) =
                    (if random { "random" } else { "sequential" }, if write { "write" } else { "read" });
                let amplification =
                    if write { cost.write_amplification() } else { cost.read_amplification() };
                report.row(json!({
                    "medium": format!("modelled pool: {}", profile.name),
                    "access": format!("{order} {direction}"),
                    "bytes": bytes,
                    "modelled_ns": ns,
                    "gb_per_s_one_thread": bytes as f64 / ns,
                    "lines_read": cost.lines_read,
                    "lines_written": cost.lines_written,
                    "amplification": amplification,
                }));
                if bytes == 64 {
                    latencies.push(ns);
                }
                amplifications.push((write, random, bytes, amplification));
                bandwidths.push(((write, random, bytes), bytes as f64 / ns));
            }
        }
    }
    for (name, paper, ours) in [("sequential", 174, latencies[0]), ("random", 325, latencies[1])] {
        let name = format!("{name} read of a line, ns");
        report.paper("dissertation, table 2.2", &name, &paper.to_string(), Some(ours));
    }
    report.check(
        "modelled pool: latencies of sequential and random reads are within 20% of the dissertation's",
        (latencies[0] / 174.0 - 1.0).abs() < 0.2 && (latencies[1] / 325.0 - 1.0).abs() < 0.2,
    );
    report.check(
        "modelled pool: lone random lines are amplified, whole blocks are not",
        amplifications.iter().all(|(write, random, bytes, amplification)| match (write, random, bytes) {
            (true, true, 64) => *amplification > 2.5,
            (_, _, 256..) => (*amplification - 1.0).abs() < 0.05,
            _ => true,
        }),
    );
    insights(profile, &bandwidths, report);
    Ok(())
}

/// Bandwidth of one thread in GB/s, by write, random and bytes of an access.
type Bandwidths = [((bool, bool, u64), f64)];

/// Insights of the paper that one thread on one socket can show, from the model's caches, buffers and queues;
/// and the model beside the curves that were transcribed from the paper.
fn insights(profile: &Profile, bandwidths: &Bandwidths, report: &mut Report) {
    let of = |write: bool, random: bool, bytes: u64| {
        let found = bandwidths.iter().find(|(access, _)| *access == (write, random, bytes));
        found.map_or(f64::NAN, |(_, gb_per_s)| *gb_per_s)
    };
    let best_below =
        |write: bool| [64, 256, 1024].map(|bytes| of(write, false, bytes)).into_iter().fold(0.0, f64::max);
    for (name, ratio, asked) in [
        (
            "insight 1, reads in order: 4 KiB to the best smaller size",
            of(false, false, 4096) / best_below(false),
            1.0,
        ),
        (
            "insight 6, writes in order: 4 KiB to the best smaller size",
            of(true, false, 4096) / best_below(true),
            1.0,
        ),
        ("insight 6, random writes: 256 B to 64 B", of(true, true, 256) / of(true, true, 64), 2.0),
        ("insight 12, reads of 64 B: in order to random", of(false, false, 64) / of(false, true, 64), 1.5),
        ("insight 12, random reads: 4 KiB to 64 B", of(false, true, 4096) / of(false, true, 64), 5.0),
        ("insight 12, random writes: 4 KiB to 64 B", of(true, true, 4096) / of(true, true, 64), 5.0),
    ] {
        let figure = AskedFigure::at_least(format!("modelled pool, {name}"), ratio, asked);
        report.asked(figure.tolerance(0.0).judged_at_small_sizes());
    }
    report.note(
        "The modelled pool has one thread, one socket and no processor time: insights 2 to 5 and 7 to 11 (threads, pinning, \
         sockets, mixtures) it cannot show. For modelled Optane they rest on the transcribed curves alone.",
    );
    for (direction, write) in [(Direction::Read, false), (Direction::Write, true)] {
        let curve = profile.bandwidth_gb_per_s(&Access::new(direction, Pattern::Individual, 1, 4096).near());
        let name = format!("modelled pool, one thread, 4 KiB in order, {direction:?}, GB/s");
        let paper = format!("{curve:.2}");
        report.paper(
            "bandwidth paper, figures 3b and 7b, transcribed",
            &name,
            &paper,
            Some(of(write, false, 4096)),
        );
    }
}
