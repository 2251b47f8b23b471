//! The bare base table: the same index over values without versions, transactions or snapshots. What it costs
//! to read and write is what everything else is compared with (figure 5.11).

use super::bench::{VALUE_BYTES, key, value};
use crate::Error;
use entresol_memory::{Pool, PoolOffset};
use entresol_structures::{Inserted, KeyWidth, OrderedIndex};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const WORDS: usize = VALUE_BYTES / 8;

pub(super) struct BareTable {
    pool: Arc<Pool>,
    index: OrderedIndex,
}

impl BareTable {
    pub(super) fn new(pool: &Arc<Pool>, tuples: u64) -> Result<BareTable, Error> {
        let mut publication = pool.publication();
        let root = OrderedIndex::create(pool, KeyWidth::Eight, &mut publication)?;
        publication.set_root("bare", root)?;
        publication.publish()?;
        let table = BareTable { pool: Arc::clone(pool), index: OrderedIndex::open(pool, root)? };
        for number in 0..tuples {
            let reservation = pool.reserve(VALUE_BYTES)?;
            table.store(reservation.offset(), &value(0));
            let mut publication = pool.publication();
            let record = publication.allocate(reservation);
            if !matches!(table.index.insert(&key(number), record.to_word(), publication)?, Inserted::New) {
                return Err(Error::Invalid(format!("tuple {number} exists before it is inserted")));
            }
        }
        Ok(table)
    }

    fn store(&self, record: PoolOffset, value: &[u8; VALUE_BYTES]) {
        for (word, bytes) in self.pool.words(record, WORDS).iter().zip(value.chunks_exact(8)) {
            word.store(u64::from_le_bytes(bytes.try_into().expect("eight bytes")), Ordering::Relaxed);
        }
        self.pool.flush(record, VALUE_BYTES);
    }

    /// Copies a value and shows it.
    #[inline]
    pub(super) fn read<R>(&self, number: u64, f: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let _guard = self.pool.pin();
        let record = PoolOffset::from_word(self.index.get(&key(number)).ok()??);
        let mut value = [0; VALUE_BYTES];
        for (bytes, word) in value.chunks_exact_mut(8).zip(self.pool.words(record, WORDS)) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        Some(f(&value))
    }

    /// Writes a value in place; false if there is no such tuple. A crash may leave a part of it.
    pub(super) fn write(&self, number: u64, value: &[u8; VALUE_BYTES]) -> bool {
        let _guard = self.pool.pin();
        let Ok(Some(word)) = self.index.get(&key(number)) else { return false };
        self.store(PoolOffset::from_word(word), value);
        self.pool.fence();
        true
    }
}
