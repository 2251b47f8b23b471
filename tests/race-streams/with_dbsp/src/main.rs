//! The queries of the race on dbsp: with-dbsp QUERY INPUT_DIR OUTPUT_CSV STATE_DIR
//!
//! One worker computes the changes of a result from batches of 10,000 rows, while a thread reads the next ones, as
//! in NEXMark's benchmark of dbsp. The output file has these changes: the columns, the number of the transaction, and
//! the weight. State is in dbsp's storage: batches of 10 MB or more are files in STATE_DIR, and a checkpoint of the
//! rest is taken each second and at the end. It is published when the changes until then are on disk.

mod input;
mod queries;

use anyhow::{Context, Result, bail};
use dbsp::circuit::{CircuitConfig, CircuitStorageConfig, StorageConfig, StorageOptions};
use dbsp::mimalloc::MiMalloc;
use dbsp::{DBSPHandle, Runtime};
use queries::Changes;
use std::collections::HashSet;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(1);

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [query, directory, output, state] = &arguments[..] else {
        bail!("usage: with-dbsp QUERY INPUT_DIR OUTPUT_CSV STATE_DIR");
    };
    let build = queries::named(query)?;
    let (circuit, (sources, changes)) = Runtime::init_circuit(configuration(Path::new(state))?, build)?;
    let (to_circuit, batches) = mpsc::sync_channel(1);
    let directory = Path::new(directory).to_path_buf();
    let reader = thread::spawn(move || input::read(&directory, sources, &to_circuit));
    let mut run = Run { circuit, changes, output: Output::create(Path::new(output))?, rows: 0 };
    let mut checkpoint = Instant::now();
    for batch in batches {
        run.transaction(batch)?;
        if checkpoint.elapsed() >= CHECKPOINT_INTERVAL {
            run.checkpoint()?;
            checkpoint = Instant::now();
        }
    }
    reader.join().expect("the reader does not panic")?;
    run.checkpoint()
}

/// One worker, and state in files of a directory.
fn configuration(state: &Path) -> Result<CircuitConfig> {
    std::fs::create_dir_all(state).with_context(|| format!("create {}", state.display()))?;
    let config = StorageConfig { path: state.display().to_string(), cache: Default::default() };
    let storage = CircuitStorageConfig::for_config(config, StorageOptions::default())?;
    Ok(CircuitConfig::with_workers(1).with_storage(Some(storage)))
}

/// A query at work.
struct Run {
    circuit: DBSPHandle,
    changes: Changes,
    output: Output,
    rows: u64,
}

impl Run {
    /// Computes what a batch changes, and writes it.
    fn transaction(&mut self, batch: input::Batch) -> Result<()> {
        self.rows += batch.rows as u64;
        (batch.append)();
        self.circuit.transaction()?;
        self.output.transaction += 1;
        (self.changes)(&mut self.output)
    }

    /// Takes a checkpoint and publishes it when the output that belongs to it is durable; older ones are removed.
    fn checkpoint(&mut self) -> Result<()> {
        let taken = self.circuit.checkpoint().with_processed_records(self.rows).prepare()?.commit()?;
        self.output.sync()?;
        taken.publish()?;
        self.circuit.gc_checkpoint(HashSet::new())?;
        Ok(())
    }
}

/// File of changes.
pub struct Output {
    file: BufWriter<File>,
    transaction: u64,
}

impl Output {
    fn create(path: &Path) -> Result<Output> {
        let file = File::create(path).with_context(|| format!("create {}", path.display()))?;
        let mut output = Output { file: BufWriter::with_capacity(1 << 18, file), transaction: 0 };
        writeln!(output.file, "columns,transaction,weight")?;
        Ok(output)
    }

    /// Writes a row that has come, or has gone if the weight is negative.
    fn change(&mut self, columns: &[i64], weight: i64) -> Result<()> {
        for column in columns {
            write!(self.file, "{column},")?;
        }
        writeln!(self.file, "{},{weight}", self.transaction)?;
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        self.file.flush()?;
        self.file.get_ref().sync_data()?;
        Ok(())
    }
}
