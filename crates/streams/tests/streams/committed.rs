//! Sources hear of what is committed and durable: never of what a run behind an abort, a failure of power or a kill reads
//! again.

use crate::support::*;
use entresol_memory::env::{FilesImage, SimulatedFiles};
use entresol_memory::{DomainChoice, Durability, Env, JournalOptions, Pool, PoolOptions};
use entresol_streams::{
    Boundary, CommittedInput, Error, Next, OnError, POSITIONS_TABLE, Position, Punctuation, Source,
    SourceBatch, ToTable, Topology, Tuple,
};
use entresol_tables::{BatchBuilder, Catalog, Column, Value};
use entresol_transactions::StateContext;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Tuples of a batch; two are enough for a commit that runs beside the next transaction.
const BATCH: u64 = 200;

/// Calls of a source, with what a failure of power would have left at each.
#[derive(Default)]
struct Calls {
    opened: Vec<u64>,
    committed: Vec<u64>,
    left: Vec<FilesImage>,
}

/// Element of a source.
#[derive(Clone, Copy)]
enum Step {
    Batch,
    Mark(Punctuation),
    Pause,
    Fail,
}

/// Source of numbered readings in steps, which notes its calls.
struct NotingSource {
    steps: std::vec::IntoIter<Step>,
    /// Steps that an earlier run has taken are skipped up to this position.
    position: u64,
    read: u64,
    calls: Arc<Mutex<Calls>>,
    files: Option<SimulatedFiles>,
}

impl NotingSource {
    fn new(steps: Vec<Step>, calls: &Arc<Mutex<Calls>>, files: Option<&SimulatedFiles>) -> NotingSource {
        let calls = Arc::clone(calls);
        NotingSource { steps: steps.into_iter(), position: 0, read: 0, calls, files: files.cloned() }
    }
}

impl Source for NotingSource {
    fn columns(&self) -> Vec<Column> {
        reading_columns()
    }

    fn open(&mut self, from: Option<Position>) -> entresol_streams::Result<()> {
        self.position = from.unwrap_or_default().offset;
        self.calls.lock().unwrap().opened.push(self.position);
        Ok(())
    }

    fn next(&mut self, _tuples_max: usize) -> entresol_streams::Result<Next> {
        let Some(step) = self.steps.next() else { return Ok(Next::End) };
        match step {
            Step::Batch => {
                let first = self.read;
                self.read += BATCH;
                if self.read <= self.position {
                    return Ok(Next::Idle);
                }
                let mut tuples = BatchBuilder::new(&reading_columns(), BATCH as usize);
                for n in first..self.read {
                    tuples.push(&reading(n as i32, n as i64, n as f64)).unwrap();
                }
                Ok(Next::Batch(SourceBatch::counted(tuples.finish(), first)))
            }
            Step::Mark(_) if self.read <= self.position => Ok(Next::Idle),
            Step::Mark(punctuation) => Ok(Next::Punctuation(punctuation)),
            Step::Pause => {
                std::thread::sleep(Duration::from_millis(40));
                Ok(Next::Idle)
            }
            Step::Fail => {
                Err(Error::Tuple { operator: "s".to_owned(), reason: "the source fails".to_owned() })
            }
        }
    }

    fn acknowledges(&self) -> bool {
        true
    }

    fn committed(&mut self, input: &CommittedInput) -> entresol_streams::Result<()> {
        let mut calls = self.calls.lock().unwrap();
        calls.committed.push(input.position.offset);
        calls.left.extend(self.files.as_ref().map(SimulatedFiles::synced_image));
        Ok(())
    }
}

/// A database on files in memory.
fn simulated(directory: &Path, files: &SimulatedFiles) -> Arc<Catalog> {
    let options = PoolOptions {
        domain: DomainChoice::Journal,
        extent_bytes: 256 << 10,
        address_space_bytes: 64 << 20,
        journal: JournalOptions { slot_bytes: 64 << 10, ..JournalOptions::default() },
        env: Env::real().with_files(Arc::new(files.clone())),
        ..PoolOptions::default()
    };
    let pool = Pool::open_or_create(directory, &options).unwrap();
    Catalog::open_or_create(StateContext::open_or_create(pool).unwrap()).unwrap()
}

fn topology(
    catalog: &Arc<Catalog>,
    source: NotingSource,
    (boundary, durability, threads): (Boundary, Durability, usize),
) -> Topology {
    let topology = Topology::builder("t", catalog).boundary(boundary).durability(durability);
    let topology = topology.parallelism(threads).on_error(OnError::Abort);
    topology.source("s", source).to_table(ToTable::upsert("readings").key(&["meter"]));
    topology.build().unwrap()
}

fn stored_position(catalog: &Catalog) -> u64 {
    if catalog.table(POSITIONS_TABLE).is_err() {
        return 0;
    }
    match rows(catalog, POSITIONS_TABLE).first().map(|row| row[2].clone()) {
        Some(Value::BigInt(position)) => position as u64,
        _ => 0,
    }
}

/// Opens a database as a failure of power left it; returns the position that a source would be opened with.
fn position_left(image: &FilesImage) -> u64 {
    let directory = tempfile::TempDir::new().unwrap();
    let moved = |path: &std::path::PathBuf| directory.path().join(path.file_name().unwrap());
    let image: FilesImage = image.iter().map(|(path, bytes)| (moved(path), bytes.clone())).collect();
    let files = SimulatedFiles::new();
    files.load(&image).unwrap();
    let catalog = simulated(directory.path(), &files);
    let position = stored_position(&catalog);
    let meters: Vec<Value> = rows_if_any(&catalog).into_iter().map(|row| row[0].clone()).collect();
    let expected: Vec<Value> = (0..position as i32).map(Value::Int).collect();
    assert_eq!(meters, expected, "the effects are those of the position");
    position
}

fn rows_if_any(catalog: &Catalog) -> Vec<Tuple> {
    if catalog.table("readings").is_ok() { rows(catalog, "readings") } else { Vec::new() }
}

#[test]
fn what_a_source_hears_of_survives_a_failure_of_power_at_that_time() {
    for durability in [Durability::None, Durability::Group { interval_ms: 4 }, Durability::Sync] {
        for threads in [1, 2] {
            let directory = tempfile::TempDir::new().unwrap();
            let files = SimulatedFiles::new();
            files.keep_synced();
            files.record();
            let calls = Arc::new(Mutex::new(Calls::default()));
            let steps: Vec<Step> =
                (0..60).map(|step| if step % 6 == 5 { Step::Pause } else { Step::Batch }).collect();
            let catalog = simulated(directory.path(), &files);
            let source = NotingSource::new(steps, &calls, Some(&files));
            topology(&catalog, source, (Boundary::Every(2 * BATCH as usize), durability, threads))
                .run()
                .unwrap();
            let calls = calls.lock().unwrap();
            println!("{durability}, {threads} threads: {:?}", calls.committed);
            assert_eq!(calls.opened, [0]);
            assert!(calls.committed.is_sorted());
            assert_eq!(calls.committed.last(), Some(&(50 * BATCH)), "the end of a run is durable");
            assert!(calls.committed.len() > 1, "it hears of commits in between");
            for (position, image) in calls.committed.iter().zip(&calls.left) {
                assert!(position_left(image) >= *position, "of {position}, {} is left", position_left(image));
            }
        }
    }
}

#[test]
fn aborted_tuples_are_acknowledged_with_the_commit_behind_them() {
    use Punctuation::{Abort, Begin, Commit};
    let catalog = volatile();
    let calls = Arc::new(Mutex::new(Calls::default()));
    let transaction = |end| [Step::Mark(Begin), Step::Batch, Step::Batch, Step::Mark(end)];
    let steps: Vec<Step> = [Commit, Abort, Abort, Commit, Abort]
        .into_iter()
        .flat_map(transaction)
        .chain([Step::Batch])
        .collect();
    let source = NotingSource::new(steps, &calls, None);
    topology(&catalog, source, (Boundary::Punctuated, Durability::Sync, 1)).run().unwrap();
    let calls = calls.lock().unwrap();
    assert_eq!(calls.committed[..2], [2 * BATCH, 8 * BATCH], "nothing at an abort");
    assert_eq!(rows(&catalog, "readings").len() as u64, 4 * BATCH);
    let behind: Vec<u64> = calls.committed[2..].to_vec();
    assert!(behind.iter().all(|position| *position <= stored_position(&catalog)), "{behind:?}");
}

#[test]
fn no_run_opens_a_source_before_what_it_has_heard_of() {
    let seed = seed();
    let mut random = Random(seed);
    let directory = tempfile::TempDir::new().unwrap();
    let calls = Arc::new(Mutex::new(Calls::default()));
    let mut runs = BTreeMap::new();
    for run in 0..12 {
        let fails_at = 5 + random.below(8) + 7 * run;
        let steps: Vec<Step> = (0..100)
            .map(|step| match step {
                step if step == fails_at && run < 11 => Step::Fail,
                step if random.below(5) == 0 && step > 0 => Step::Pause,
                _ => Step::Batch,
            })
            .collect();
        // The batches of all runs are the same, wherever it pauses.
        let batches = steps.iter().filter(|step| matches!(step, Step::Batch)).count();
        let rest = (batches..100).map(|_| Step::Batch);
        let steps = steps.into_iter().chain(rest.filter(|_| run == 11)).collect();
        let catalog = journal(directory.path());
        let durability = [Durability::None, Durability::Group { interval_ms: 2 }][run as usize % 2];
        let threads = 1 + random.below(2) as usize;
        let source = NotingSource::new(steps, &calls, None);
        let ran =
            topology(&catalog, source, (Boundary::Every(3 * BATCH as usize), durability, threads)).run();
        assert_eq!(ran.is_ok(), run == 11);
        let noted = calls.lock().unwrap();
        runs.insert(run, (noted.opened.last().copied(), noted.committed.last().copied()));
        // The catalog is dropped without a close: what is not written is lost.
    }
    println!("{runs:?}");
    let mut heard = 0;
    for (opened, committed) in runs.values() {
        assert!(opened.unwrap() >= heard, "opened at {opened:?}, and {heard} is acknowledged");
        heard = heard.max(committed.unwrap_or(0));
    }
    assert_eq!(heard, 100 * BATCH);
}
