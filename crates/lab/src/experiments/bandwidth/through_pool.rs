//! The same device once more from below: single accesses through a modelled pool, line by line through caches, buffers
//! and queues. Latencies, amplification and one thread's bandwidth come out of the model instead of a curve.

use crate::Error;
use crate::measure::Random;
use crate::report::Report;
use entresol_memory::profile::Profile;
use entresol_memory::{ModelledCost, Pool, PoolOptions};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const OBJECT_BYTES: u64 = 8 << 20;
const OPERATIONS: u64 = 8192;

struct Bench {
    pool: Arc<Pool>,
    start: u64,
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
        let pieces = OBJECT_BYTES / bytes;
        let operations = OPERATIONS.min(pieces);
        let mut places = Random::new(bytes);
        let before = self.cost();
        for i in 0..operations {
            let piece = if random { places.below(pieces) } else { i };
            let at = self.start + piece * bytes;
            let words = self.pool.words(at, (bytes / 8) as usize);
            if write {
                words.iter().for_each(|word| word.store(i + bytes, Ordering::Relaxed));
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
    for write in [false, true] {
        for random in [false, true] {
            for bytes in [64, 256, 1024, 4096] {
                // A pool of its own each time: nothing is cached.
                let bench = Bench::new(profile)?;
                let cost = bench.run(write, random, bytes);
                let operations = OPERATIONS.min(OBJECT_BYTES / bytes);
                let ns = cost.ns() / operations as f64;
                let amplification =
                    if write { cost.write_amplification() } else { cost.read_amplification() };
                report.row(json!({
                    "medium": format!("modelled pool: {}", profile.name),
                    "access": format!("{} {}", if random { "random" } else { "sequential" }, if write { "write" } else { "read" }),
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
    Ok(())
}
