//! DRAM: the words of a volatile pool, read and written by plain loads and stores.
//!
//! Stores go through the caches (a line is read before it is written, and written when it is evicted): the
//! papers use non-temporal stores, which go past them. So the figures for writing count what the program
//! wrote, and the memory moves twice as much.

use super::Medium;
use super::run::{self, Rounds, ThreadWork};
use crate::Error;
use crate::measure::{Random, median};
use entresol_memory::placement::{Policy, pin_thread};
use entresol_memory::profile::{Direction, Pattern, SocketPlacement, Workload};
use entresol_memory::{Pool, PoolOffset, PoolOptions};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// One object of the pool that the buffer is made of.
const OBJECT_BYTES: u64 = 8 << 20;
const OBJECT_WORDS: usize = OBJECT_BYTES as usize / 8;
/// Bytes that a worker reads or writes between two readings of the clock.
const BATCH_BYTES: u64 = 64 << 10;

/// A buffer in DRAM.
pub struct Memory {
    pool: Arc<Pool>,
    objects: Vec<PoolOffset>,
    rounds: Rounds,
    cpus: Vec<usize>,
    threads: Vec<u64>,
    access_bytes: Vec<u64>,
}

impl Memory {
    /// A buffer of so many MiB (a multiple of eight), touched first by as many pinned threads as there are
    /// cores.
    pub fn new(mib: u64, rounds: Rounds, policy: &Policy) -> Result<Memory, Error> {
        let pool = Pool::volatile(&PoolOptions::default())?;
        let mut objects = Vec::new();
        for _ in 0..mib * (1 << 20) / OBJECT_BYTES {
            let reservation = pool.reserve(OBJECT_BYTES as usize)?;
            objects.push(reservation.offset());
            let mut publication = pool.publication();
            publication.allocate(reservation);
            publication.publish()?;
        }
        let cpus = policy.cpus_of_socket(policy.sockets()[0]);
        std::thread::scope(|scope| {
            let share = objects.len().div_ceil(cpus.len());
            let workers: Vec<_> = objects
                .chunks(share)
                .zip(&cpus)
                .map(|(share, cpu)| {
                    let pool = &pool;
                    scope.spawn(move || {
                        pin_thread(&[*cpu])?;
                        for offset in share {
                            pool.words(*offset, OBJECT_WORDS)
                                .iter()
                                .for_each(|word| word.store(offset.to_word(), Ordering::Relaxed));
                        }
                        Ok::<(), Error>(())
                    })
                })
                .collect();
            workers.into_iter().try_for_each(|worker| worker.join().expect("filling a buffer does not panic"))
        })?;
        let cores = cpus.len() as u64;
        Ok(Memory {
            pool,
            objects,
            rounds,
            threads: vec![1, cores.max(2), 2 * cores.max(2), 4 * cores.max(2)],
            cpus,
            access_bytes: vec![64, 256, 512, 1024, 4096, 16_384, 65_536],
        })
    }

    fn bytes(&self) -> u64 {
        self.objects.len() as u64 * OBJECT_BYTES
    }

    /// The words from a byte of the buffer on; a piece never leaves its object.
    fn piece(&self, at: u64, bytes: u64) -> &[AtomicU64] {
        let object = self.objects[(at / OBJECT_BYTES) as usize];
        self.pool.words(object.plus(at % OBJECT_BYTES), (bytes / 8) as usize)
    }

    fn worker<'w>(&'w self, direction: Direction, mut positions: Positions) -> ThreadWork<'w> {
        let pieces = (BATCH_BYTES / positions.access_bytes).max(1);
        Box::new(move || {
            let mut sum = 0;
            for _ in 0..pieces {
                let words = self.piece(positions.next(), positions.access_bytes);
                match direction {
                    Direction::Read => sum += add_up(words),
                    Direction::Write => words.iter().for_each(|word| word.store(pieces, Ordering::Relaxed)),
                }
            }
            black_box(sum);
            Ok(pieces * positions.access_bytes)
        })
    }

    /// Nanoseconds of one load of a line, each load's address being the result of the one before; in
    /// sequence, and in random order over the buffer. The median of the rounds.
    pub fn read_latency_ns(&self, seed: u64, steps: usize) -> Result<(f64, f64), Error> {
        const LINE: u64 = 64;
        let lines = self.bytes() / LINE;
        let mut order: Vec<u32> = (0..lines as u32).collect();
        let mut measured = Vec::new();
        for shuffled in [false, true] {
            if shuffled {
                Random::new(seed).shuffle(&mut order);
            }
            for (i, line) in order.iter().enumerate() {
                let next = u64::from(order[(i + 1) % order.len()]);
                self.piece(u64::from(*line) * LINE, 8)[0].store(next, Ordering::Relaxed);
            }
            let mut samples = Vec::new();
            let mut line = 0;
            for _ in 0..self.rounds.count {
                let start = Instant::now();
                for _ in 0..steps {
                    line = self.piece(line * LINE, 8)[0].load(Ordering::Relaxed);
                }
                black_box(line);
                samples.push(start.elapsed().as_nanos() as f64 / steps as f64);
            }
            measured.push(median(&samples));
        }
        Ok((measured[0], measured[1]))
    }
}

fn add_up(words: &[AtomicU64]) -> u64 {
    // Four sums, so that an addition need not wait for the one before.
    let mut sums = [0u64; 4];
    for four in words.chunks_exact(4) {
        for (sum, word) in sums.iter_mut().zip(four) {
            *sum = sum.wrapping_add(word.load(Ordering::Relaxed));
        }
    }
    sums.iter().fold(0, |all, sum| all.wrapping_add(*sum))
}

/// Positions of a worker's pieces.
pub(super) struct Positions {
    pub(super) access_bytes: u64,
    next: u64,
    step: u64,
    first: u64,
    end: u64,
    random: Option<Random>,
}

impl Positions {
    /// Worker `index` of `workers` on `bytes`; each round another part of random positions.
    pub(super) fn new(
        (pattern, access_bytes): (Pattern, u64),
        bytes: u64,
        (index, workers): (u64, u64),
        round: u64,
    ) -> Positions {
        let pieces = bytes / access_bytes;
        let all = Positions { access_bytes, next: 0, step: 1, first: 0, end: pieces, random: None };
        match pattern {
            Pattern::Individual => {
                let (first, end) = (pieces * index / workers, pieces * (index + 1) / workers);
                Positions { next: first, first, end, ..all }
            }
            Pattern::Grouped => Positions { next: index, first: index, step: workers, ..all },
            Pattern::Random => Positions { random: Some(Random::new(round << 32 | index)), ..all },
        }
    }

    /// Byte at which the next piece starts.
    pub(super) fn next(&mut self) -> u64 {
        if let Some(random) = &mut self.random {
            return random.below(self.end) * self.access_bytes;
        }
        let at = self.next;
        self.next += self.step;
        if self.next >= self.end {
            self.next = self.first;
        }
        at * self.access_bytes
    }
}

/// The workers of a workload: first those that are measured, then those that do the opposite.
pub(super) fn workers(workload: &Workload) -> Vec<(Direction, u64, u64)> {
    let access = workload.access;
    let opposite = match access.direction {
        Direction::Read => Direction::Write,
        Direction::Write => Direction::Read,
    };
    let measured = (0..access.threads).map(|i| (access.direction, i, access.threads));
    let others = (0..workload.opposite_threads).map(|i| (opposite, i, workload.opposite_threads));
    measured.chain(others).collect()
}

impl Medium for Memory {
    fn name(&self) -> String {
        "DRAM of this machine".to_string()
    }

    fn threads(&self) -> &[u64] {
        &self.threads
    }

    fn access_bytes(&self) -> &[u64] {
        &self.access_bytes
    }

    fn cores(&self) -> u64 {
        self.cpus.len() as u64
    }

    fn has_far(&self) -> bool {
        false
    }

    fn measure(&self, workload: &Workload) -> Result<f64, Error> {
        let cpus = (workload.place != SocketPlacement::Unpinned).then_some(self.cpus.as_slice());
        let access = workload.access;
        run::gb_per_s(self.rounds, access.threads as usize, cpus, |round| {
            let workers = workers(workload).into_iter().map(|(direction, index, count)| {
                let shape = (access.pattern, access.access_bytes);
                self.worker(direction, Positions::new(shape, self.bytes(), (index, count), round as u64))
            });
            Ok(workers.collect())
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn patterns_cover_the_buffer() {
        const BYTES: u64 = 1 << 16;
        for pattern in [Pattern::Individual, Pattern::Grouped] {
            let mut seen: Vec<u64> = Vec::new();
            for worker in 0..3 {
                let mut positions = Positions::new((pattern, 256), BYTES, (worker, 3), 0);
                let first = positions.next();
                seen.push(first);
                loop {
                    match positions.next() {
                        at if at == first => break,
                        at => seen.push(at),
                    }
                }
            }
            seen.sort_unstable();
            assert_eq!(seen, (0..256).map(|i| i * 256).collect::<Vec<_>>(), "{pattern:?}");
        }
        let mut random = Positions::new((Pattern::Random, 4096), BYTES, (0, 1), 1);
        assert!((0..100).all(|_| random.next() <= BYTES - 4096));
    }

    #[test]
    fn sums_see_every_word() {
        let words: Vec<AtomicU64> = (0..64).map(AtomicU64::new).collect();
        assert_eq!(add_up(&words), 2016, "0 + 1 + ... + 63");
    }
}
