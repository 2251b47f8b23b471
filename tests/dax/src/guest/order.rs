//! Lines that depend on nothing but the order of their stores.
//!
//! A step writes its number into every line of a row, from the first to the last, each flushed and fenced before the
//! next is stored. So a power failure leaves a stair: the lines up to some place have the number of a step, those
//! behind it the number before. Without fences, any of the flushed lines may be missing at the next fence of the kernel;
//! only a power failure right there shows it.

use crate::history::Failure;
use crate::points::{LINE, LINE_AFTER_LINE};
use entresol_memory::{Pool, PoolOffset};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const ROOT: &str = "row";
const LINES: u64 = 8;
const LINE_BYTES: u64 = 64;

pub(crate) struct Order {
    pool: Arc<Pool>,
    row: PoolOffset,
}

impl Order {
    pub(crate) fn open(pool: Arc<Pool>) -> Result<Order, Failure> {
        let row = match pool.root(ROOT) {
            Some(row) => row,
            None => {
                let object = pool.reserve((LINES * LINE_BYTES) as usize)?;
                let (row, bytes) = (object.offset(), object.bytes());
                pool.words(row, bytes / 8).iter().for_each(|word| word.store(0, Ordering::Relaxed));
                let mut publication = pool.publication();
                publication.flush(row, bytes);
                publication.allocate(object);
                publication.set_root(ROOT, row)?;
                publication.publish()?;
                row
            }
        };
        Ok(Order { pool, row })
    }

    pub(crate) fn apply(&self, step: u64) {
        for line in 0..LINES {
            let at = self.row.plus(line * LINE_BYTES);
            self.pool.word(at).store(step, Ordering::Relaxed);
            self.pool.flush_word_at(at, LINE);
            self.pool.fence_at(LINE_AFTER_LINE);
        }
    }

    /// How many steps are there, at least `least` and at most `most`; an error if the lines are no stair.
    pub(crate) fn steps(&self, least: u64, most: u64) -> Result<u64, Failure> {
        let lines: Vec<u64> = (0..LINES)
            .map(|line| self.pool.word(self.row.plus(line * LINE_BYTES)).load(Ordering::Relaxed))
            .collect();
        let (first, last) = (lines[0], lines[lines.len() - 1]);
        let is_stair = lines.is_sorted_by(|line, next| line >= next) && first - last <= 1;
        if !is_stair {
            return Err(
                format!("lines that were written one after the other have the steps {lines:?}").into()
            );
        }
        if !(least..=most).contains(&last) {
            return Err(format!("{last} steps are in the row, in place of {least} to {most}").into());
        }
        Ok(last)
    }
}
