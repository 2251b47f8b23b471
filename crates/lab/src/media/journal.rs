//! A pool on `journal`: a piece is stored and flushed, and appended to the redo journal; reading is reading
//! DRAM. Durability is `none` while it is measured: the journal goes to the disk as fast as that takes it.

use super::Medium;
use super::memory::{Positions, workers};
use super::run::{self, Rounds, ThreadWork};
use crate::{Error, RunOptions};
use entresol_memory::placement::Policy;
use entresol_memory::profile::{Direction, SocketPlacement, Workload};
use entresol_memory::{DomainChoice, Durability, Pool, PoolOffset, PoolOptions};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const OBJECT_BYTES: u64 = 8 << 20;

/// A pool whose large objects are the buffer.
pub struct JournalPool {
    pool: Arc<Pool>,
    objects: Vec<PoolOffset>,
    _dir: tempfile::TempDir,
    rounds: Rounds,
    cpus: Vec<usize>,
    threads: Vec<u64>,
    access_bytes: Vec<u64>,
    next_value: AtomicU64,
}

impl JournalPool {
    /// A new pool in the run's directory with a buffer of so many MiB (a multiple of eight).
    pub fn new(
        options: &RunOptions,
        mib: u64,
        rounds: Rounds,
        policy: &Policy,
    ) -> Result<JournalPool, Error> {
        let dir = options.database_dir()?;
        let pool_options = PoolOptions { domain: DomainChoice::Journal, ..PoolOptions::default() };
        let pool = Pool::create(dir.path(), &pool_options)?;
        let mut objects = Vec::new();
        for _ in 0..mib * (1 << 20) / OBJECT_BYTES {
            let reservation = pool.reserve(OBJECT_BYTES as usize)?;
            objects.push(reservation.offset());
            let mut publication = pool.publication();
            publication.allocate(reservation);
            publication.publish()?;
        }
        Ok(JournalPool {
            pool,
            objects,
            _dir: dir,
            rounds,
            cpus: policy.cpus_of_socket(policy.sockets()[0]),
            threads: vec![1, 2, 4],
            access_bytes: vec![64, 256, 512, 1024, 4096, 16_384],
            next_value: AtomicU64::new(1),
        })
    }

    fn worker<'w>(&'w self, direction: Direction, mut positions: Positions) -> ThreadWork<'w> {
        let bytes = positions.access_bytes;
        Box::new(move || {
            let mut moved = 0;
            let value = self.next_value.fetch_add(1, Ordering::Relaxed);
            while moved < 16 << 10 {
                let at = positions.next();
                let offset = self.objects[(at / OBJECT_BYTES) as usize].plus(at % OBJECT_BYTES);
                let words = self.pool.words(offset, (bytes / 8) as usize);
                if direction == Direction::Write {
                    words.iter().for_each(|word| word.store(value, Ordering::Relaxed));
                    self.pool.flush(offset, bytes as usize);
                } else {
                    black_box(
                        words.iter().fold(0, |sum: u64, word| sum.wrapping_add(word.load(Ordering::Relaxed))),
                    );
                }
                moved += bytes;
            }
            Ok(moved)
        })
    }
}

impl Medium for JournalPool {
    fn name(&self) -> String {
        "file on journal, none".to_string()
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
        let rate = run::gb_per_s(self.rounds, access.threads as usize, cpus, |round| {
            let bytes = self.objects.len() as u64 * OBJECT_BYTES;
            let workers = workers(workload).into_iter().map(|(direction, index, count)| {
                let shape = (access.pattern, access.access_bytes);
                self.worker(direction, Positions::new(shape, bytes, (index, count), round as u64))
            });
            Ok(workers.collect())
        })?;
        self.pool.persist(Durability::None)?;
        Ok(rate)
    }
}
