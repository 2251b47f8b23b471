//! Share of allocation in a leaf's split: sequential inserts into the FPTree, each timed. Inserts that
//! allocate are the splits; what they cost beyond a plain insert is the split. Beside it, the allocation
//! alone: reserving and publishing an object of a leaf's size, without filling it, ours and through the undo
//! log.

use super::undo_log::{Metadata, UndoHeap};
use super::{Medium, RUN, Sizes};
use crate::measure::median;
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol_memory::Pool;
use entresol_structures::{FpTree, WordKey};
use serde_json::json;
use std::time::Instant;

pub(super) fn share_of_allocation(
    options: &RunOptions,
    sizes: &Sizes,
    report: &mut Report,
) -> Result<(), Error> {
    let mut right = true;
    for medium in Medium::ALL {
        let dir = options.database_dir()?;
        let Some(pool) = medium.pool(&dir)? else { continue };
        let mut publication = pool.publication();
        let root = FpTree::<WordKey>::create(&pool, 0, &mut publication)?;
        publication.set_root("tree", root)?;
        publication.publish()?;
        let tree = FpTree::<WordKey>::open(&pool, root, 0)?;
        let (mut plain, mut splits, mut leaf_bytes) = (Vec::new(), Vec::new(), 0);
        let mut used = pool.space().used_bytes();
        for key in 0..sizes.keys {
            let publication = pool.publication();
            let start = Instant::now();
            tree.insert(key, key ^ 1, publication)?;
            let ns = start.elapsed().as_nanos() as f64;
            let now_used = pool.space().used_bytes();
            if now_used > used {
                splits.push(ns);
                leaf_bytes = now_used - used;
            } else {
                plain.push(ns);
            }
            used = now_used;
        }
        let found = (0..sizes.keys).all(|key| tree.get(key).is_ok_and(|value| value == Some(key ^ 1)));
        right &= found && !splits.is_empty();
        let split_ns = median(&splits) - median(&plain);
        let (ours_ns, theirs_ns) = allocation_alone(&pool, leaf_bytes)?;
        let name =
            format!("share of allocation in a split, percent, {}, PMDK there, undo log here", medium.name());
        let share = 100.0 * theirs_ns / (split_ns - ours_ns + theirs_ns);
        report.paper("dissertation 3.4.2 (E5)", &name, "about 80", Some(share));
        report.row(json!({
            "medium": medium.name(),
            "leaf_bytes": leaf_bytes,
            "splits": splits.len(),
            "insert_ns": median(&plain),
            "insert_with_split_ns": median(&splits),
            "allocation_ns": ours_ns,
            "undo_log_allocation_ns": theirs_ns,
            "allocation_share_percent": 100.0 * ours_ns / split_ns,
            "share_with_undo_log_percent": share,
        }));
    }
    report.check("the trees hold every key, and some leaves were split", right);
    Ok(())
}

/// Nanoseconds of an allocation of so many bytes that is not filled: ours, and through the undo log.
fn allocation_alone(pool: &Pool, bytes: u64) -> Result<(f64, f64), Error> {
    const RUNS: usize = 20;
    let anchor = pool.reserve(64)?;
    let heap = UndoHeap::new(pool, bytes, (RUN * RUNS) as u64, Metadata::Undone)?;
    let mut lane = heap.lane()?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let start = Instant::now();
        for _ in 0..RUN {
            let object = pool.reserve(bytes as usize)?;
            let mut publication = pool.publication();
            let offset = publication.allocate(object);
            publication.set(anchor.offset(), offset.to_word());
            publication.publish()?;
        }
        ours.push(start.elapsed().as_nanos() as f64 / RUN as f64);
        let start = Instant::now();
        for _ in 0..RUN {
            let block = heap.allocate(&mut lane, anchor.offset(), 0, |_| {});
            block.expect("the heap has a block for each");
        }
        theirs.push(start.elapsed().as_nanos() as f64 / RUN as f64);
    }
    Ok((median(&ours), median(&theirs)))
}
