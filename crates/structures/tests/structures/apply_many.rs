//! Changes to many keys with one call, each failure-atomic on its own.

use crate::ordered::{Content, Design, ROOT, content, create, designs, key};
use entresol_memory::crash::{CrashOptions, CrashReport, Model, Recorder, check_at, check_seeds};
use entresol_memory::{Env, Pool, PoolOptions};
use entresol_structures::{Change, Error, IndexStructure, KeyWidth, OrderedIndex};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// First key of the probe of a recovered index.
const LATER: u64 = 1000;
const MORE: u64 = 60;

type Batch = Vec<(Vec<u8>, Change)>;

fn small_pool() -> Arc<Pool> {
    Pool::volatile(&PoolOptions { extent_bytes: 1 << 20, ..PoolOptions::default() }).unwrap()
}

/// Generates `count` changes of keys of a range, some of them twice.
fn batch(random: &Env, width: KeyWidth, count: u64, first: u64, spread: u64, inserts: u64) -> Batch {
    let change = |_| {
        let key = key(width, first + random.random_u64() % spread);
        let change = match random.random_u64() % 10 {
            n if n < inserts => Change::Insert(random.random_u64()),
            9 => Change::Replace(random.random_u64()),
            _ => Change::Remove,
        };
        (key, change)
    };
    (0..count).map(change).collect()
}

/// Applies one change to a model; returns the value before it.
fn apply(content: &mut Content, (key, change): &(Vec<u8>, Change)) -> Option<u64> {
    let before = content.get(key).copied();
    match (change, before) {
        (Change::Insert(value), None) | (Change::Replace(value), Some(_)) => {
            content.insert(key.clone(), *value);
        }
        (Change::Remove, Some(_)) => {
            content.remove(key);
        }
        _ => {}
    }
    before
}

/// Verifies that the index is sound, and owns all allocated objects.
fn sound(pool: &Arc<Pool>, index: &OrderedIndex) {
    let (mut own, mut allocated) = (BTreeSet::new(), BTreeSet::new());
    index.check(|object| assert!(own.insert(object), "twice")).unwrap();
    pool.for_each_object(|offset, _| {
        allocated.insert(offset);
    });
    assert_eq!(own, allocated);
}

#[test]
fn changes_agree_with_a_model() {
    for (seed, design) in (1..).zip(designs()) {
        let (_, width) = design;
        let pool = small_pool();
        let (index, random) = (create(&pool, design), Env::simulated(seed));
        let (mut model, mut before) = (Content::new(), Vec::new());
        for round in 0..300 {
            // Together in a few leaves, or all over; more and fewer than go down at once; growing, then
            // shrinking.
            let spread = [30, 400, 6000][(random.random_u64() % 3) as usize];
            let count = random.random_u64() % 120;
            let changes = batch(
                &random,
                width,
                count,
                random.random_u64() % 3000,
                spread,
                if round < 200 { 8 } else { 2 },
            );
            index.apply_many(&changes, &mut before).unwrap();
            let expected: Vec<_> = changes.iter().map(|change| apply(&mut model, change)).collect();
            assert_eq!(before, expected);
        }
        assert_eq!(content(&index), model);
        sound(&pool, &index);
        assert!(index.stats().leaves > 20, "{:?}", index.stats());
    }
}

#[test]
fn a_key_that_does_not_fit_changes_nothing() {
    let pool = small_pool();
    let index = create(&pool, (IndexStructure::FpTree, KeyWidth::Eight));
    let mut before = vec![Some(1)];
    let changes = [(vec![1; 8], Change::Insert(1)), (vec![1; 9], Change::Insert(2))];
    assert!(matches!(index.apply_many(&changes, &mut before), Err(Error::KeyTooLong { .. })));
    assert_eq!((before, content(&index)), (Vec::new(), Content::new()));
}

/// The inserts and removals of each key leave none or one.
#[test]
fn writers_of_the_same_keys() {
    for design in designs() {
        let (_, width) = design;
        let pool = small_pool();
        let index = create(&pool, design);
        let balances: Vec<BTreeMap<Vec<u8>, i64>> = std::thread::scope(|scope| {
            let writer = |number: u64| {
                let index = &index;
                move || {
                    let (random, mut before) = (Env::simulated(number), Vec::new());
                    let mut balance = BTreeMap::new();
                    for round in 0..400 {
                        let inserts = if round % 100 < 60 { 8 } else { 1 };
                        let changes = batch(&random, width, 64, random.random_u64() % 900, 300, inserts);
                        index.apply_many(&changes, &mut before).unwrap();
                        for ((key, change), before) in changes.into_iter().zip(&before) {
                            *balance.entry(key).or_insert(0) += match (change, before) {
                                (Change::Insert(_), None) => 1,
                                (Change::Remove, Some(_)) => -1,
                                _ => 0,
                            };
                        }
                    }
                    balance
                }
            };
            let writers: Vec<_> = (0..3).map(|number| scope.spawn(writer(number))).collect();
            writers.into_iter().map(|writer| writer.join().unwrap()).collect()
        });
        let mut sum = BTreeMap::<Vec<u8>, i64>::new();
        balances.into_iter().flatten().for_each(|(key, balance)| *sum.entry(key).or_insert(0) += balance);
        let wrong: Vec<_> = sum.iter().filter(|(_, balance)| !(0..=1).contains(*balance)).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
        let there: Vec<_> =
            sum.into_iter().filter(|(_, balance)| *balance == 1).map(|(key, _)| key).collect();
        assert!(content(&index).into_keys().eq(there));
        sound(&pool, &index);
    }
}

/// Batches, in order.
#[derive(Clone, Debug, Default, PartialEq)]
struct Batches(Vec<Batch>);

impl Model for Batches {
    type Operation = Batch;

    fn apply(&mut self, batch: &Batch) {
        self.0.push(batch.clone());
    }

    fn difference(&self, found: &Self) -> String {
        format!("found {found:?} in place of {self:?}")
    }
}

/// After a crash all returned batches are applied, of the next one a prefix of the changes, and nothing
/// leaks.
fn survives(design: Design, options: &CrashOptions) -> entresol_memory::Result<CrashReport> {
    let (_, width) = design;
    let recorder = Recorder::new(Batches::default());
    let recorded = Arc::clone(&recorder);
    let seed = options.seed;
    let history = move |pool: &Arc<Pool>| {
        let index = create(pool, design);
        let (random, mut before) = (Env::simulated(seed), Vec::new());
        for round in 0..7 {
            let count = 1 + random.random_u64() % 30;
            let changes = batch(&random, width, count, 0, 300, if round < 5 { 8 } else { 1 });
            recorded.run(changes.clone(), || index.apply_many(&changes, &mut before)).unwrap();
        }
        Ok(())
    };
    check_at(options, history, recorder.legal_contents(), move |pool, legal| {
        let Some(root) = pool.root(ROOT) else {
            return if legal.returned.0.is_empty() { Ok(()) } else { Err("the index is gone".into()) };
        };
        let index = OrderedIndex::open(pool, root).map_err(|error| error.to_string())?;
        let mut found = content(&index);
        // Keys of probes that crashed themselves: a prefix, too.
        let later = found.split_off(&key(width, LATER));
        if !later.keys().enumerate().all(|(at, found)| *found == key(width, LATER + at as u64)) {
            return Err("what was added after the crash has a gap".into());
        }
        let mut model = Content::new();
        for change in legal.returned.0.iter().flatten() {
            apply(&mut model, change);
        }
        let next = legal.with_next.iter().filter_map(|(_, after)| after.0.last()).flatten();
        let is_legal = model == found
            || next.into_iter().any(|change| {
                apply(&mut model, change);
                model == found
            });
        if !is_legal {
            return Err(format!("{found:?} is no state between the batches {:?}", legal.with_next));
        }
        sound(pool, &index);
        let more: Batch =
            (LATER..LATER + MORE).map(|number| (key(width, number), Change::Insert(1))).collect();
        let mut before = Vec::new();
        index.apply_many(&more, &mut before).map_err(|error| error.to_string())?;
        if before.iter().filter(|before| before.is_some()).count() != later.len() {
            return Err("nothing can be added".into());
        }
        sound(pool, &index);
        Ok(())
    })
}

#[test]
fn changes_survive_up_to_any_of_them() {
    let chosen = designs().filter(|(structure, width)| match structure {
        IndexStructure::FpTree => *width != KeyWidth::Sixteen,
        IndexStructure::FastFair => true,
        _ => *width == KeyWidth::Sixteen,
    });
    for design in chosen {
        let seeds = if design.1 == KeyWidth::Variable { 1 } else { 2 };
        let report = check_seeds(&format!("changes, {design:?}"), seeds, |seed| {
            survives(design, &CrashOptions { crash_recovery_every: 61, ..CrashOptions::with_seed(seed) })
        });
        let report = report.unwrap();
        println!("{design:?}: {report:?}");
        assert!(report.explored(1_000), "{report:?}");
    }
}
