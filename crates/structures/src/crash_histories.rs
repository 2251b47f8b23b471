//! Operation histories with which the crash checker checks an index: for this crate's tests, for the crates
//! above, and for the lab.
//!
//! After every crash the index is sound, owns all allocated objects, holds the operations that had returned,
//! with or without the one in flight, and continues to work.

use crate::{KeyWidth, OrderedIndex};
use entresol_memory::crash::{
    ConcurrentRecorder, CrashOptions, CrashReport, MapOperation, Recorder, apply_to_key, check_at, take_turns,
};
use entresol_memory::{Env, Pool};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

type Content = BTreeMap<Vec<u8>, u64>;
type Operation = MapOperation<Vec<u8>, u64>;

const ROOT: &str = "index";
/// Value of the probe of a recovered index, under the key after all others.
const LATER: u64 = u64::MAX;

fn key(width: KeyWidth, number: u64) -> Vec<u8> {
    match width {
        KeyWidth::Eight => number.to_be_bytes().to_vec(),
        KeyWidth::Sixteen => [(number / 7).to_be_bytes(), number.to_be_bytes()].concat(),
        KeyWidth::Variable => format!("a common prefix, then {number:020}").into_bytes(),
    }
}

/// Generates a seeded operation history over a quarter as many keys as operations: it grows, churns, and in
/// its last quarter removes all keys from the greatest down. With 600 operations several leaves split, and
/// all are freed again.
fn operations(width: KeyWidth, count: u64, seed: u64) -> Vec<Operation> {
    let env = Env::simulated(seed);
    let keys = (count / 4).max(1);
    let random = |i: u64, inserts: u64| {
        let key = key(width, env.random_u64() % keys);
        match env.random_u64() % 10 {
            n if n < inserts => MapOperation::Insert(key, i),
            9 => MapOperation::Replace(key, i),
            _ => MapOperation::Remove(key),
        }
    };
    let grows = (0..count / 2).map(|i| random(i, 8));
    let churns = (count / 2..count * 3 / 4).map(|i| random(i, 5));
    let shrinks = (0..keys).rev().map(|number| MapOperation::Remove(key(width, number)));
    grows.chain(churns).chain(shrinks).collect()
}

/// Leaves junk in free space, on the medium as well, of which objects of so many bytes are made later.
pub(crate) fn leave_junk(pool: &Pool, bytes: usize) -> entresol_memory::Result<()> {
    let reserved: Vec<_> = (0..4).map(|_| pool.reserve(bytes)).collect::<entresol_memory::Result<_>>()?;
    for object in &reserved {
        let words = pool.words(object.offset(), bytes / 8);
        words.iter().for_each(|word| word.store(u64::MAX, Ordering::Relaxed));
        pool.flush(object.offset(), bytes);
    }
    pool.fence();
    Ok(())
}

fn create(pool: &Arc<Pool>, width: KeyWidth) -> entresol_memory::Result<OrderedIndex> {
    leave_junk(pool, 1024)?;
    let mut publication = pool.publication();
    let root = OrderedIndex::create(pool, width, &mut publication).map_err(of_memory)?;
    publication.set_root(ROOT, root)?;
    publication.publish()?;
    OrderedIndex::open(pool, root).map_err(of_memory)
}

fn of_memory(error: crate::Error) -> entresol_memory::Error {
    entresol_memory::Error::Invalid(error.to_string())
}

/// Applies an operation; returns the value before it.
fn apply(pool: &Arc<Pool>, index: &OrderedIndex, operation: &Operation) -> crate::Result<Option<u64>> {
    let with = pool.publication();
    match operation {
        MapOperation::Insert(key, value) => Ok(index.insert(key, *value, with)?.before()),
        MapOperation::Replace(key, value) => index.replace(key, *value, with),
        MapOperation::Remove(key) => index.remove(key, with),
        MapOperation::Get(key) => index.get(key),
        MapOperation::Put(..) => unreachable!("an index has no such operation"),
    }
}

/// Checks one writer: `count` operations on an index of this width.
pub fn check_index(
    width: KeyWidth,
    count: u64,
    options: &CrashOptions,
) -> entresol_memory::Result<CrashReport> {
    let recorder = Recorder::new(Content::new());
    let recorded = Arc::clone(&recorder);
    let seed = options.seed;
    let history = move |pool: &Arc<Pool>| {
        let index = create(pool, width)?;
        for operation in operations(width, count, seed) {
            recorded.run(operation.clone(), || apply(pool, &index, &operation)).map_err(of_memory)?;
        }
        Ok(())
    };
    check_at(options, history, recorder.legal_contents(), move |pool, legal| {
        let Some(index) = open(pool)? else { return legal.judge(&Content::new()) };
        legal.judge(&content(&index)?)?;
        probe_recovered(pool, &index, width).map_err(|error| error.to_string())
    })
}

/// Checks the note of an index, which threads store that fence nothing after it.
pub fn check_notes(options: &CrashOptions) -> entresol_memory::Result<CrashReport> {
    let returned = Arc::new(AtomicU64::new(0));
    let at_crash = Arc::clone(&returned);
    let history = move |pool: &Arc<Pool>| {
        let index = create(pool, KeyWidth::Eight)?;
        for number in 1..=8 {
            let store = || index.set_note(number);
            std::thread::scope(|scope| scope.spawn(store).join().expect("it does not panic"));
            returned.store(number, Ordering::Release);
            index.insert(&key(KeyWidth::Eight, number), 1, pool.publication()).map_err(of_memory)?;
        }
        Ok(())
    };
    let returned_at_crash = move || at_crash.load(Ordering::Acquire);
    check_at(options, history, returned_at_crash, |pool, returned| {
        let Some(index) = open(pool)? else { return Ok(()) };
        match index.note() {
            Some(note) if (*returned..=returned + 1).contains(&note) => Ok(()),
            note => Err(format!("the note is {note:?}, {returned} were stored")),
        }
    })
}

/// Scheduling of two writers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writers {
    /// One at a time, interleaved by the seed: a failure can be reproduced.
    InTurns,
    /// By the operating system.
    Free,
}

/// Checks two writers with `count` operations each on a few shared keys: the recovered state must be the
/// result of some order of their operations.
pub fn check_two_writers(
    width: KeyWidth,
    count: u64,
    writers: Writers,
    options: &CrashOptions,
) -> entresol_memory::Result<CrashReport> {
    let recorder: Arc<ConcurrentRecorder<Vec<u8>, u64, Operation, Option<u64>>> =
        ConcurrentRecorder::new(2, apply_to_key);
    let recorded = Arc::clone(&recorder);
    let seed = options.seed;
    let history = move |pool: &Arc<Pool>| {
        let index = create(pool, width)?;
        let writer = |thread: usize| {
            let (index, recorded) = (&index, &recorded);
            move || {
                let env = Env::simulated(seed * 2 + thread as u64);
                let keys = (count / 2).max(8);
                for i in 0..count {
                    let number = env.random_u64() % keys;
                    let (key, value) = (key(width, number), i * 2 + thread as u64);
                    let operation = match env.random_u64() % 10 {
                        0..=5 => MapOperation::Insert(key.clone(), value),
                        6 => MapOperation::Replace(key.clone(), value),
                        7 => MapOperation::Get(key.clone()),
                        _ => MapOperation::Remove(key.clone()),
                    };
                    recorded.run(thread, key, operation.clone(), || {
                        apply(pool, index, &operation).expect("a small index has room")
                    });
                }
            }
        };
        match writers {
            Writers::InTurns => take_turns(seed, vec![Box::new(writer(0)), Box::new(writer(1))]),
            Writers::Free => std::thread::scope(|scope| {
                scope.spawn(writer(1));
                writer(0)();
            }),
        }
        Ok(())
    };
    check_at(options, history, recorder.legal_contents(), move |pool, legal| {
        let Some(index) = open(pool)? else { return legal.judge(&Content::new()) };
        legal.judge(&content(&index)?)?;
        probe_recovered(pool, &index, width).map_err(|error| error.to_string())
    })
}

/// Opens the index of a pool, if it has one; it must be sound and own all allocated objects.
fn open(pool: &Arc<Pool>) -> Result<Option<OrderedIndex>, String> {
    let mut own = Vec::new();
    let index = match pool.root(ROOT) {
        None => None,
        Some(root) => {
            let index = OrderedIndex::open(pool, root).map_err(|error| error.to_string())?;
            index.check(|offset| own.push(offset)).map_err(|error| error.to_string())?;
            Some(index)
        }
    };
    own.sort_unstable();
    let mut allocated = Vec::new();
    pool.for_each_object(|offset, _| allocated.push(offset));
    allocated.sort_unstable();
    if own == allocated { Ok(index) } else { Err(format!("owned are {own:?}, allocated {allocated:?}")) }
}

/// Returns all entries, without that of the probe of a recovered index.
fn content(index: &OrderedIndex) -> Result<Content, String> {
    let mut entries = Vec::new();
    let text = |error: crate::Error| error.to_string();
    let mut next = index.scan_batch(Bound::Unbounded, &mut entries).map_err(text)?;
    while let Some(from) = next {
        next = index.scan_batch(Bound::Included(&from), &mut entries).map_err(text)?;
    }
    if !entries.is_sorted_by(|before, after| before.0 < after.0) {
        return Err("a scan does not ascend".to_string());
    }
    let entries = entries.into_iter().filter(|(_, value)| *value != LATER);
    Ok(entries.map(|(key, value)| (key.to_vec(), value)).collect())
}

/// Probes a recovered index: adds a key and removes it. The power can fail again meanwhile.
fn probe_recovered(pool: &Arc<Pool>, index: &OrderedIndex, width: KeyWidth) -> crate::Result<()> {
    let later = match width {
        KeyWidth::Variable => b"later".to_vec(),
        _ => vec![0xFF; index.key_bytes_max()],
    };
    apply(pool, index, &MapOperation::Insert(later.clone(), LATER))?;
    assert_eq!(index.get(&later)?, Some(LATER), "what was inserted after a recovery is there");
    apply(pool, index, &MapOperation::Remove(later.clone()))?;
    assert_eq!(index.get(&later)?, None, "what was removed after a recovery is gone");
    Ok(())
}
