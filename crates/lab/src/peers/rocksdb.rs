//! RocksDB, an LSM-tree in C++. Settings: those of its tuning guide for data that fit into memory.
//!
//! - memtables of 512 MB in all, level style; as many background jobs as processors; two more settings of
//!   `optimize_level_style_compaction`;
//! - a block cache of 2 GB, Bloom filters of ten bits, hash index in data blocks, format of today;
//! - no compression: none of the others compresses. Built with `-march=native`, as its own makefile does;
//! - `none` and `group(10)`: the log is written when its buffer is full (`manual_wal_flush`), and synced
//!   every 10 ms; `sync`: `WriteOptions::sync`, two threads in one group commit.
//!
//! Writes do not look whether the key is there: blind puts and deletes, its fastest way.

use super::{Class, Session, Store, peer_error};
use crate::Error;
use crate::workload::{Op, OperationKind, Tally};
use rocksdb::{
    BlockBasedOptions, Cache, DB, DBRawIterator, DEFAULT_COLUMN_FAMILY_NAME, DataBlockIndexType, Options,
    ReadOptions, WaitForCompactOptions, WriteBatch, WriteOptions,
};
use std::path::Path;

const MEMTABLE_BYTES: usize = 512 << 20;
const CACHE_BYTES: usize = 2 << 30;

struct Rocks {
    db: DB,
    class: Class,
}

fn failed<E: std::fmt::Display>(error: E) -> Error {
    peer_error("RocksDB")(error)
}

/// The settings above.
pub(crate) fn options(class: Class) -> Options {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options.increase_parallelism(std::thread::available_parallelism().map_or(2, usize::from) as i32);
    options.optimize_level_style_compaction(MEMTABLE_BYTES);
    options.set_compression_per_level(&[rocksdb::DBCompressionType::None; 7]);
    options.set_manual_wal_flush(class != Class::Sync);
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(&Cache::new_lru_cache(CACHE_BYTES));
    table.set_bloom_filter(10.0, false);
    table.set_format_version(6);
    table.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
    table.set_cache_index_and_filter_blocks(false);
    options.set_block_based_table_factory(&table);
    options.set_max_open_files(-1);
    options
}

pub(super) fn open(dir: &Path, class: Class) -> Result<Box<dyn Store>, Error> {
    let options = options(class);
    // The handle of the default column family, which reading many keys takes, is there only if it is named.
    let families = [(DEFAULT_COLUMN_FAMILY_NAME, options.clone())];
    let db = DB::open_cf_with_opts(&options, dir, families).map_err(failed)?;
    Ok(Box::new(Rocks { db, class }))
}

impl Store for Rocks {
    fn session(&self) -> Result<Box<dyn Session + '_>, Error> {
        let mut write = WriteOptions::default();
        write.set_sync(self.class == Class::Sync);
        Ok(Box::new(RocksSession { db: &self.db, write, scan: None }))
    }

    fn sync(&self) -> Result<(), Error> {
        self.db.flush_wal(true).map_err(failed)
    }

    fn settle(&self) -> Result<(), Error> {
        self.db.flush().map_err(failed)?;
        self.db.wait_for_compact(&WaitForCompactOptions::default()).map_err(failed)
    }

    fn close(self: Box<Self>) -> Result<(), Error> {
        self.db.flush_wal(true).map_err(failed)?;
        self.db.cancel_all_background_work(true);
        Ok(())
    }
}

struct RocksSession<'s> {
    db: &'s DB,
    write: WriteOptions,
    /// Made anew where writes came between: an iterator is a snapshot.
    scan: Option<DBRawIterator<'s>>,
}

fn number(bytes: impl AsRef<[u8]>) -> Option<u64> {
    bytes.as_ref().try_into().ok().map(u64::from_le_bytes)
}

impl RocksSession<'_> {
    fn get(&self, op: &Op) -> Result<Option<u64>, Error> {
        Ok(self.db.get_pinned(op.key.to_be_bytes()).map_err(failed)?.and_then(number))
    }

    fn put(&self, op: &Op) -> Result<(), Error> {
        self.db.put_opt(op.key.to_be_bytes(), op.value().to_le_bytes(), &self.write).map_err(failed)
    }
}

impl Session for RocksSession<'_> {
    fn run(&mut self, ops: &[Op], tally: &mut Tally) -> Result<(), Error> {
        for op in ops {
            if op.writes() {
                self.scan = None;
            }
            match op.kind() {
                OperationKind::Get => tally.got(op, self.get(op)?),
                OperationKind::Insert | OperationKind::Update => {
                    self.put(op)?;
                    tally.wrote(true);
                }
                OperationKind::Delete => {
                    self.db.delete_opt(op.key.to_be_bytes(), &self.write).map_err(failed)?;
                    tally.wrote(true);
                }
                OperationKind::Scan => {
                    let iterator = self.scan.get_or_insert_with(|| self.db.raw_iterator());
                    iterator.seek(op.key.to_be_bytes());
                    let values = std::iter::from_fn(|| {
                        let value = iterator.value().and_then(number);
                        if value.is_some() {
                            iterator.next();
                        }
                        value
                    });
                    tally.scanned(op, values);
                    iterator.status().map_err(failed)?;
                }
                OperationKind::ReadModifyWrite => {
                    tally.got(op, self.get(op)?);
                    self.put(op)?;
                }
            }
        }
        self.scan = None;
        Ok(())
    }

    fn write_many(&mut self, ops: &[Op], tally: &mut Tally) -> Result<(), Error> {
        let mut batch = WriteBatch::default();
        for op in ops {
            match op.kind() {
                OperationKind::Delete => batch.delete(op.key.to_be_bytes()),
                _ => batch.put(op.key.to_be_bytes(), op.value().to_le_bytes()),
            }
            tally.wrote(true);
        }
        self.db.write_opt(batch, &self.write).map_err(failed)
    }

    fn get_many(&mut self, ops: &[Op], tally: &mut Tally) -> Result<(), Error> {
        let keys: Vec<[u8; 8]> = ops.iter().map(|op| op.key.to_be_bytes()).collect();
        let family = self.db.cf_handle(DEFAULT_COLUMN_FAMILY_NAME);
        let family = family.ok_or_else(|| failed("it has no default column family"))?;
        let found = self.db.batched_multi_get_cf_opt(family, &keys, false, &ReadOptions::default());
        for (op, value) in ops.iter().zip(found) {
            tally.got(op, value.map_err(failed)?.and_then(number));
        }
        Ok(())
    }
}
