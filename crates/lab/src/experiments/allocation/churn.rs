//! Mixed sizes, replaced at random for a long time: what is left of the space, and what comes back.

use super::{Medium, Sizes};
use crate::measure::Random;
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol_memory::{Pool, PoolOffset, SpaceStats};
use serde_json::json;

struct LiveBlock<'p> {
    pool: &'p Pool,
    random: Random,
    objects: Vec<(PoolOffset, u64)>,
    requested_bytes: u64,
}

impl LiveBlock<'_> {
    /// A size between 16 bytes and 4 KiB, small ones more often, times `scale`; one in a thousand is large.
    fn size(&mut self, scale: u64) -> u64 {
        if self.random.below(1000) == 0 {
            return 70_000 + self.random.below(400_000);
        }
        let doublings = self.random.below(8);
        scale * ((16 << doublings) + self.random.below(16 << doublings))
    }

    fn allocate(&mut self, scale: u64) -> Result<(), Error> {
        let bytes = self.size(scale);
        let object = self.pool.reserve(bytes as usize)?;
        let mut publication = self.pool.publication();
        self.objects.push((publication.allocate(object), bytes));
        self.requested_bytes += bytes;
        Ok(publication.publish()?)
    }

    fn free_one(&mut self) -> Result<(), Error> {
        let index = self.random.below(self.objects.len() as u64) as usize;
        let (offset, bytes) = self.objects.swap_remove(index);
        let mut publication = self.pool.publication();
        publication.free(offset);
        self.requested_bytes -= bytes;
        Ok(publication.publish()?)
    }

    /// Replaces random objects, as many as there are, and keeps the bytes as they are.
    fn churn(&mut self, target_bytes: u64, scale: u64) -> Result<(), Error> {
        for _ in 0..self.objects.len() {
            self.free_one()?;
            while self.requested_bytes < target_bytes {
                self.allocate(scale)?;
            }
        }
        Ok(())
    }
}

fn row(after: &str, requested_bytes: u64, space: &SpaceStats, report: &mut Report) {
    report.row(json!({
        "after": after,
        "requested_bytes": requested_bytes,
        "used_bytes": space.used_bytes(),
        "pool_bytes": space.pool_bytes,
        "internal_fragmentation_percent": 100.0 * (1.0 - requested_bytes as f64 / space.used_bytes().max(1) as f64),
        "slab_fragmentation_percent": 100.0 * space.slab_fragmentation(),
        "external_fragmentation_percent": 100.0 * space.external_fragmentation(),
        "free_chunk_bytes": space.free_chunk_bytes,
        "largest_free_run_bytes": space.largest_free_run_bytes,
        "cached_bytes": space.cached_bytes(),
        "waiting_bytes": space.waiting_bytes(),
    }));
}

pub(super) fn mixed_sizes(options: &RunOptions, sizes: &Sizes, report: &mut Report) -> Result<(), Error> {
    let dir = options.database_dir()?;
    let pool = Medium::Journal.pool(&dir)?.expect("every machine has files");
    let random = Random::new(options.seed);
    let mut live = LiveBlock { pool: &pool, random, objects: Vec::new(), requested_bytes: 0 };
    while live.requested_bytes < sizes.churn_bytes {
        live.allocate(1)?;
    }
    row("filling", live.requested_bytes, &pool.space(), report);
    let filled_bytes = pool.bytes();
    live.churn(sizes.churn_bytes, 1)?;
    row("replacing as many", live.requested_bytes, &pool.space(), report);
    report
        .ratio("churn: pool bytes after filling/after replacing", filled_bytes as f64 / pool.bytes() as f64);
    live.churn(sizes.churn_bytes, 2)?;
    row("replacing all by others, twice as large", live.requested_bytes, &pool.space(), report);
    let mut counted = 0;
    pool.for_each_object(|_, bytes| counted += bytes);
    report.check("used bytes are those of the allocated objects", counted == pool.space().used_bytes());
    while live.objects.len() > 10 {
        live.free_one()?;
    }
    let returned = pool.return_space()?;
    let space = pool.space();
    row("freeing all but ten", live.requested_bytes, &space, report);
    report.row(json!({"returned_to_the_disk_bytes": returned, "pool_bytes": space.pool_bytes}));
    report.check("no more than the ten objects is used", space.used_bytes() <= counted.min(10 << 20));
    Ok(())
}
