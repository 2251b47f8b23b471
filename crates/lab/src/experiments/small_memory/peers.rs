//! A table twice the memory, beside LMDB and RocksDB: random reads and random updates of the same rows, by
//! one thread, each store in a process of its own whose control group has the memory.
//!
//! The control group counts the page cache too, on which LMDB lives and RocksDB leans. Settings: LMDB as in
//! `race-kv` at `none`; RocksDB with a block cache of a quarter of the memory and memtables of an eighth,
//! Bloom filters, no compression; Entresol with seven eighths of the memory as its budget. All read and write
//! a thousand rows in a transaction or batch, and none waits for the disk. Reads are measured one by one and,
//! where the store can look up several keys in one call, together.

use crate::asked::AskedFigure;
use crate::measure::Random;
use crate::peers::{Class, lmdb, peer_error, rocksdb};
use crate::report::Report;
use crate::{Error, RunOptions};
use ::rocksdb::{BlockBasedOptions, Cache, DB, WriteBatch};
use clap::{Args, ValueEnum};
use entresol::{
    Column, DataType, Database, Durability, MemorySize, Options, Schema, Table, TableOptions, Value,
};
use heed::byteorder::NativeEndian;
use heed::types::{Bytes, U64};
use heed::{CommitOrAbort, IntegerComparator};
use serde_json::json;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const VALUE_BYTES: usize = 440;
const BATCH: u64 = 1000;
/// Time after which a store's worker is ended.
const DURATION_MAX: Duration = Duration::from_secs(300);
/// Least advantage over the better peer.
const READS_MIN: f64 = 0.8;
const UPDATES_MIN: f64 = 2.0;

/// Store of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StoreName {
    /// A table of ours.
    Entresol,
    /// LMDB.
    Lmdb,
    /// RocksDB.
    Rocksdb,
}

/// Arguments of the process that measures one store.
#[derive(Clone, Debug, Args)]
pub struct StoreWorker {
    /// The store.
    #[arg(long)]
    store: StoreName,
    /// Directory of its files.
    #[arg(long)]
    dir: PathBuf,
    /// File of a control group that takes the process's number.
    #[arg(long)]
    group: PathBuf,
    /// Memory of the group.
    #[arg(long)]
    memory_bytes: u64,
    /// Rows.
    #[arg(long)]
    rows: u64,
    /// Random reads, and then as many random updates.
    #[arg(long)]
    operations: u64,
    /// Seed of the keys.
    #[arg(long)]
    seed: u64,
}

/// Control group with a limit of memory, until it is dropped.
struct MemoryGroup(PathBuf);

impl MemoryGroup {
    /// Makes one, of version 1 or 2; none where this process may not.
    fn new(bytes: u64) -> Option<MemoryGroup> {
        let name = format!("entresol-lab-{}", std::process::id());
        let versions = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
        versions.into_iter().find_map(|(root, limit)| {
            let group = MemoryGroup(Path::new(root).join(&name));
            fs::create_dir(&group.0).ok()?;
            fs::write(group.0.join(limit), bytes.to_string()).ok()?;
            Some(group)
        })
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // Its processes have ended.
        let _ = fs::remove_dir(&self.0);
    }
}

fn failed(action: &str) -> impl Fn(std::io::Error) -> Error {
    let action = action.to_owned();
    move |error| Error::Io { action: action.clone(), error }
}

/// Status and output of a worker; none, and it is ended, if it takes too long.
fn wait(mut worker: Child) -> Result<Option<(ExitStatus, String)>, Error> {
    let begin = Instant::now();
    let status = loop {
        if let Some(status) = worker.try_wait().map_err(failed("wait for a worker"))? {
            break status;
        }
        if begin.elapsed() > DURATION_MAX {
            worker.kill().and_then(|()| worker.wait()).map_err(failed("end a worker"))?;
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(50));
    };
    let mut text = String::new();
    // It is a line, which the pipe holds until it is read.
    if let Some(mut output) = worker.stdout.take() {
        output.read_to_string(&mut text).map_err(failed("read from a worker"))?;
    }
    Ok(Some((status, text)))
}

/// Operations a second of a store.
#[derive(Clone, Copy, Default)]
struct Rates {
    reads: f64,
    /// Keys looked up together; as `reads` for a store that cannot.
    reads_together: f64,
    updates: f64,
}

/// Measures all stores.
pub(super) fn run(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let (memory_bytes, rows, operations) =
        if options.quick { (256 << 20, 20_000, 2_000) } else { (512 << 20, (1 << 30) / 448, 20_000) };
    let mut rates = Vec::new();
    for store in [StoreName::Entresol, StoreName::Lmdb, StoreName::Rocksdb] {
        let Some(group) = MemoryGroup::new(memory_bytes) else {
            report.row(json!({ "peers": "not measured: this process may not make control groups" }));
            return Ok(());
        };
        let dir = options.database_dir()?;
        let name = store.to_possible_value().expect("no store is skipped");
        let worker = Command::new(std::env::current_exe().map_err(failed("find this program"))?)
            .args(["store-worker", "--store", name.get_name(), "--dir"])
            .arg(dir.path())
            .arg("--group")
            .arg(group.0.join("cgroup.procs"))
            .args(["--memory-bytes", &memory_bytes.to_string(), "--rows", &rows.to_string()])
            .args(["--operations", &operations.to_string(), "--seed", &options.seed.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed("run a worker"))?;
        let Some((status, text)) = wait(worker)? else {
            report.row(json!({
                "beside": name.get_name(), "rows": rows, "memory_bytes": memory_bytes,
                "not_finished_within_s": DURATION_MAX.as_secs(),
            }));
            rates.push(Rates::default());
            continue;
        };
        let mut numbers = text.split_whitespace().filter_map(|number| number.parse::<f64>().ok());
        let mut next = || numbers.next();
        let (Some(reads), Some(reads_together), Some(updates), true) =
            (next(), next(), next(), status.success())
        else {
            return Err(Error::Invalid(format!("the worker of {store:?} ended with {status}: {text}")));
        };
        report.row(json!({
            "beside": name.get_name(), "rows": rows, "memory_bytes": memory_bytes,
            "random_reads_per_s": reads, "random_reads_together_per_s": reads_together,
            "random_updates_per_s": updates,
        }));
        rates.push(Rates { reads, reads_together, updates });
    }
    // A store that did not finish has no rate.
    let beside = |of: fn(&Rates) -> f64| of(&rates[0]) / rates[1..].iter().map(of).fold(0.0, f64::max);
    let figures = [
        ("random reads beside the better peer", beside(|rates| rates.reads), READS_MIN),
        ("random reads together beside the better peer", beside(|rates| rates.reads_together), READS_MIN),
        ("random updates beside the better peer", beside(|rates| rates.updates), UPDATES_MIN),
    ];
    figures
        .into_iter()
        .for_each(|(name, ratio, least)| report.asked(AskedFigure::at_least(name, ratio, least)));
    Ok(())
}

/// Runs in the worker: loads the store, and prints reads, reads together and updates a second.
pub fn work(arguments: &StoreWorker) -> Result<(), Error> {
    fs::write(&arguments.group, std::process::id().to_string()).map_err(failed("enter the control group"))?;
    let mut store = open(arguments)?;
    for first in (0..arguments.rows).step_by(BATCH as usize) {
        let keys: Vec<u64> = (first..(first + BATCH).min(arguments.rows)).collect();
        store.write(&keys, 0)?;
    }
    let mut random = Random::new(arguments.seed);
    let mut timed = |work: &mut dyn FnMut(&[u64]) -> Result<(), Error>| {
        let begin = Instant::now();
        for _ in 0..arguments.operations.div_ceil(BATCH) {
            let keys: Vec<u64> = (0..BATCH).map(|_| random.below(arguments.rows)).collect();
            work(&keys)?;
        }
        Ok::<f64, Error>(arguments.operations as f64 / begin.elapsed().as_secs_f64())
    };
    let reads = timed(&mut |keys| store.read(keys))?;
    let reads_together = timed(&mut |keys| store.read_together(keys))?;
    let updates = timed(&mut |keys| store.write(keys, 1))?;
    println!("{reads} {reads_together} {updates}");
    store.close()
}

/// A store of rows of [`VALUE_BYTES`].
trait Rows {
    /// Writes rows, in one transaction.
    fn write(&mut self, keys: &[u64], updates: u8) -> Result<(), Error>;

    /// Reads rows, in one transaction; an error if one is not there whole.
    fn read(&mut self, keys: &[u64]) -> Result<(), Error>;

    /// Reads rows as [`Rows::read`], in one call.
    fn read_together(&mut self, keys: &[u64]) -> Result<(), Error> {
        self.read(keys)
    }

    fn close(self: Box<Self>) -> Result<(), Error>;
}

fn value(key: u64, updates: u8) -> String {
    format!("{updates}{key:x>width$}", width = VALUE_BYTES - 1)
}

fn check(key: u64, found: Option<usize>) -> Result<(), Error> {
    if found == Some(VALUE_BYTES) {
        Ok(())
    } else {
        Err(Error::Invalid(format!("key {key} has {found:?} bytes")))
    }
}

fn open(arguments: &StoreWorker) -> Result<Box<dyn Rows>, Error> {
    let memory_bytes = arguments.memory_bytes;
    match arguments.store {
        StoreName::Entresol => {
            let options = Options::default()
                .durability(Durability::None)
                .memory_max(MemorySize::Bytes(memory_bytes / 8 * 7))
                .worker_threads(1);
            let database = Database::open(arguments.dir.join("db"), options)?;
            let columns = vec![Column::new("id", DataType::BigInt), Column::new("t", DataType::Varchar)];
            let schema = Schema::new(columns, &["id"])?;
            let table = database.catalog().create_table("large", schema, TableOptions::default())?;
            Ok(Box::new(OurRows { database, table }))
        }
        StoreName::Lmdb => {
            let env = lmdb::environment(&arguments.dir, Class::None, 0)?;
            let failed = |error: heed::Error| peer_error("LMDB")(error);
            let transaction = env.write_txn().map_err(failed)?;
            let made = env.create_databases_and_commit(transaction, |opener, transaction| {
                let options = opener.database_options().types::<U64<NativeEndian>, Bytes>();
                let made = options.key_comparator::<IntegerComparator>().create(transaction);
                made.map(CommitOrAbort::<_, ()>::Commit)
            });
            let database = made.map_err(failed)?.commit();
            let database = database.ok_or_else(|| Error::Invalid("LMDB made no database".to_owned()))?;
            Ok(Box::new(LmdbRows { env, database }))
        }
        StoreName::Rocksdb => {
            let mut options = rocksdb::options(Class::None);
            options.optimize_level_style_compaction(memory_bytes as usize / 8);
            options.set_compression_per_level(&[::rocksdb::DBCompressionType::None; 7]);
            let mut table = BlockBasedOptions::default();
            table.set_block_cache(&Cache::new_lru_cache(memory_bytes as usize / 4));
            table.set_bloom_filter(10.0, false);
            options.set_block_based_table_factory(&table);
            Ok(Box::new(RocksRows(DB::open(&options, &arguments.dir).map_err(peer_error("RocksDB"))?)))
        }
    }
}

struct OurRows {
    database: Database,
    table: Arc<Table>,
}

impl Rows for OurRows {
    fn write(&mut self, keys: &[u64], updates: u8) -> Result<(), Error> {
        let tx = self.database.begin()?;
        let rows: Vec<[Value; 2]> = keys
            .iter()
            .map(|key| [Value::BigInt(*key as i64), Value::from(value(*key, updates).as_str())])
            .collect();
        self.table.upsert_many(&tx, &rows)?;
        tx.commit(Durability::None)?;
        Ok(())
    }

    fn read(&mut self, keys: &[u64]) -> Result<(), Error> {
        let tx = self.database.begin()?;
        keys.iter().try_for_each(|key| {
            let found =
                self.table.get_with(&tx, &[Value::BigInt(*key as i64)], |row| row.varchar(1).len())?;
            check(*key, found)
        })
    }

    fn read_together(&mut self, keys: &[u64]) -> Result<(), Error> {
        let tx = self.database.begin()?;
        let wanted: Vec<[Value; 1]> = keys.iter().map(|key| [Value::BigInt(*key as i64)]).collect();
        let mut found = vec![None; keys.len()];
        self.table.get_many_with(&tx, &wanted, |at, row| found[at] = Some(row.varchar(1).len()))?;
        keys.iter().zip(found).try_for_each(|(key, found)| check(*key, found))
    }

    fn close(self: Box<Self>) -> Result<(), Error> {
        Ok(self.database.close()?)
    }
}

struct LmdbRows {
    env: heed::Env,
    database: heed::Database<'static, U64<NativeEndian>, Bytes, IntegerComparator>,
}

impl Rows for LmdbRows {
    fn write(&mut self, keys: &[u64], updates: u8) -> Result<(), Error> {
        let mut transaction = self.env.write_txn().map_err(peer_error("LMDB"))?;
        for key in keys {
            let put = self.database.put(&mut transaction, key, value(*key, updates).as_bytes());
            put.map_err(peer_error("LMDB"))?;
        }
        transaction.commit().map_err(peer_error("LMDB"))
    }

    fn read(&mut self, keys: &[u64]) -> Result<(), Error> {
        let transaction = self.env.read_txn().map_err(peer_error("LMDB"))?;
        keys.iter().try_for_each(|key| {
            let found = self.database.get(&transaction, key).map_err(peer_error("LMDB"))?;
            check(*key, found.map(<[u8]>::len))
        })
    }

    fn close(self: Box<Self>) -> Result<(), Error> {
        self.env.prepare_for_closing().wait();
        Ok(())
    }
}

struct RocksRows(DB);

impl Rows for RocksRows {
    fn write(&mut self, keys: &[u64], updates: u8) -> Result<(), Error> {
        let mut batch = WriteBatch::default();
        keys.iter().for_each(|key| batch.put(key.to_be_bytes(), value(*key, updates)));
        self.0.write(batch).map_err(peer_error("RocksDB"))
    }

    fn read(&mut self, keys: &[u64]) -> Result<(), Error> {
        keys.iter().try_for_each(|key| {
            let found = self.0.get_pinned(key.to_be_bytes()).map_err(peer_error("RocksDB"))?;
            check(*key, found.map(|found| found.len()))
        })
    }

    fn read_together(&mut self, keys: &[u64]) -> Result<(), Error> {
        let keys: Vec<[u8; 8]> = keys.iter().map(|key| key.to_be_bytes()).collect();
        let found = self.0.multi_get(&keys);
        keys.iter().zip(found).try_for_each(|(key, found)| {
            check(u64::from_be_bytes(*key), found.map_err(peer_error("RocksDB"))?.map(|found| found.len()))
        })
    }

    fn close(self: Box<Self>) -> Result<(), Error> {
        self.0.cancel_all_background_work(true);
        Ok(())
    }
}
