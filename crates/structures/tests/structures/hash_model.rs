//! Any operation history on a hash table against a `HashMap`, for both key widths, with reopening.

use entresol_memory::{DomainChoice, JournalOptions, Pool, PoolOptions};
use entresol_structures::{Change, HashKey, HashTable, Inserted, PairKey, WordKey};
use proptest::prelude::*;
use std::collections::{BTreeSet, HashMap};
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

/// Keys that tests make from numbers.
trait Numbered: HashKey<Stored: Eq + Hash + Debug> {
    fn key(number: u64) -> Self::Key<'static>;
}

impl Numbered for WordKey {
    fn key(number: u64) -> u64 {
        number << 20
    }
}

impl Numbered for PairKey {
    fn key(number: u64) -> [u64; 2] {
        [number % 10, number / 10]
    }
}

type Model<K> = HashMap<<K as entresol_structures::TreeKey>::Stored, u64>;

fn options() -> PoolOptions {
    PoolOptions {
        domain: DomainChoice::Journal,
        extent_bytes: 1 << 20,
        journal: JournalOptions {
            slot_bytes: 64 << 10,
            checkpoint_bytes: 256 << 10,
            journal_bytes_max: 1 << 20,
            preallocated_slots: 2,
            ..JournalOptions::default()
        },
        ..PoolOptions::default()
    }
}

fn create<K: Numbered>(pool: &Arc<Pool>) -> HashTable<K> {
    let mut publication = pool.publication();
    let root = HashTable::<K>::create(pool, &mut publication).unwrap();
    publication.set_root("table", root).unwrap();
    publication.publish().unwrap();
    HashTable::open(pool, root).unwrap()
}

fn reopen<K: Numbered>(pool: &Arc<Pool>) -> HashTable<K> {
    HashTable::open(pool, pool.root("table").unwrap()).unwrap()
}

fn whole<K: Numbered>(table: &HashTable<K>) -> Model<K> {
    let (mut entries, mut position) = (Vec::new(), Some(0));
    while let Some(from) = position {
        position = table.scan_batch(from, &mut entries);
    }
    let count = entries.len();
    let found: Model<K> = entries.into_iter().collect();
    assert_eq!(found.len(), count, "every key is seen once");
    found
}

fn assert_nothing_leaks<K: Numbered>(pool: &Arc<Pool>, table: &HashTable<K>) {
    let mut own = BTreeSet::new();
    table.check(|offset| assert!(own.insert(offset), "an object has one owner")).unwrap();
    let mut allocated = BTreeSet::new();
    pool.for_each_object(|offset, _| {
        allocated.insert(offset);
    });
    assert_eq!(allocated, own);
}

#[derive(Debug, Clone)]
enum Step {
    InsertRange(u64, u64),
    Insert(u64, u64),
    Replace(u64, u64),
    Remove(u64),
    RemoveRange(u64, u64),
    Batch(Vec<(u64, u8)>),
    GetMany(u64),
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let number = 0..4000u64;
    let step = prop_oneof![
        6 => (number.clone(), 1..400u64).prop_map(|(first, count)| Step::InsertRange(first, count)),
        8 => (number.clone(), any::<u64>()).prop_map(|(key, value)| Step::Insert(key, value)),
        5 => (number.clone(), any::<u64>()).prop_map(|(key, value)| Step::Replace(key, value)),
        5 => number.clone().prop_map(Step::Remove),
        2 => (number.clone(), 1..600u64).prop_map(|(first, count)| Step::RemoveRange(first, count)),
        3 => prop::collection::vec((number.clone(), any::<u8>()), 1..200).prop_map(Step::Batch),
        3 => number.prop_map(Step::GetMany),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..120)
}

fn insert<K: Numbered>(table: &HashTable<K>, pool: &Pool, model: &mut Model<K>, number: u64, value: u64) {
    let key = K::key(number);
    let expected = model.get(&K::stored(key)).map_or(Inserted::New, |old| Inserted::Exists(*old));
    assert_eq!(table.insert(key, value, pool.publication()).unwrap(), expected);
    model.entry(K::stored(key)).or_insert(value);
}

fn apply_batch<K: Numbered>(table: &HashTable<K>, model: &mut Model<K>, batch: &[(u64, u8)]) {
    let change = |number: u64, kind: u8| match kind % 3 {
        0 => Change::Insert(number + u64::from(kind)),
        1 => Change::Replace(number + u64::from(kind)),
        _ => Change::Remove,
    };
    let mut before = Vec::new();
    let changes = batch.iter().map(|(number, kind)| (K::key(*number), change(*number, *kind)));
    table.apply_many(changes, &mut before).unwrap();
    assert_eq!(before.len(), batch.len());
    for ((number, kind), before) in batch.iter().zip(before) {
        let key = K::stored(K::key(*number));
        assert_eq!(before, model.get(&key).copied());
        match change(*number, *kind) {
            Change::Insert(value) => {
                model.entry(key).or_insert(value);
            }
            Change::Replace(value) => {
                if let Some(slot) = model.get_mut(&key) {
                    *slot = value;
                }
            }
            Change::Remove => {
                model.remove(&key);
            }
        }
    }
}

fn run<K: Numbered>(steps: &[Step]) {
    let dir = tempfile::TempDir::new().unwrap();
    let mut pool = Pool::create(dir.path(), &options()).unwrap();
    let mut table = create::<K>(&pool);
    let mut model = Model::<K>::new();
    for step in steps {
        match step {
            Step::InsertRange(first, count) => {
                (*first..first + count)
                    .for_each(|number| insert(&table, &pool, &mut model, number, number ^ 5));
            }
            Step::Insert(number, value) => insert(&table, &pool, &mut model, *number, *value),
            Step::Replace(number, value) => {
                let key = K::key(*number);
                let old = table.replace(key, *value, pool.publication()).unwrap();
                assert_eq!(old, model.get_mut(&K::stored(key)).map(|slot| std::mem::replace(slot, *value)));
            }
            Step::Remove(number) => {
                let key = K::key(*number);
                assert_eq!(table.remove(key, pool.publication()).unwrap(), model.remove(&K::stored(key)));
            }
            Step::RemoveRange(first, count) => {
                for number in *first..first + count {
                    let key = K::key(number);
                    assert_eq!(table.remove(key, pool.publication()).unwrap(), model.remove(&K::stored(key)));
                }
            }
            Step::Batch(batch) => apply_batch(&table, &mut model, batch),
            Step::GetMany(first) => {
                let mut values = Vec::new();
                table.get_many((*first..first + 100).map(K::key), &mut values);
                assert_eq!(values.len(), 100);
                for (number, value) in (*first..).zip(values) {
                    let key = K::key(number);
                    assert_eq!(value, model.get(&K::stored(key)).copied());
                    assert_eq!(value, table.get(key));
                }
            }
            Step::Reopen => {
                drop(table);
                drop(pool);
                pool = Pool::open(dir.path(), &options()).unwrap();
                table = reopen(&pool);
            }
        }
    }
    assert_eq!(whole(&table), model);
    assert_eq!(table.stats().keys, model.len() as u64);
    assert_nothing_leaks(&pool, &table);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn eight_byte_keys_behave_like_a_map(steps in steps()) {
        run::<WordKey>(&steps);
    }

    #[test]
    fn sixteen_byte_keys_behave_like_a_map(steps in steps()) {
        run::<PairKey>(&steps);
    }
}

#[test]
fn a_large_table_holds_its_keys_through_growth_and_decay() {
    let pool = Pool::volatile(&PoolOptions { extent_bytes: 1 << 20, ..PoolOptions::default() }).unwrap();
    let table = create::<WordKey>(&pool);
    for number in 0..100_000 {
        assert_eq!(table.insert(number, number * 3, pool.publication()).unwrap(), Inserted::New);
    }
    let stats = table.stats();
    assert_eq!(stats.keys, 100_000);
    assert!(stats.slots < 260_000 && stats.displaced < 20_000, "{stats:?}");
    assert!(stats.directory_bytes as u64 <= stats.segments * 64, "{stats:?}");
    let reopened = reopen::<WordKey>(&pool);
    assert!((0..200_000).all(|n| reopened.get(n) == (n < 100_000).then_some(n * 3)));
    for number in 0..100_000 {
        assert_eq!(reopened.remove(number, pool.publication()).unwrap(), Some(number * 3));
    }
    assert_nothing_leaks(&pool, &reopened);
    let stats = reopened.stats();
    assert_eq!((stats.keys, stats.displaced), (0, 0));
}

#[test]
fn a_destroyed_table_gives_everything_back_in_steps() {
    let pool = Pool::volatile(&PoolOptions { extent_bytes: 1 << 20, ..PoolOptions::default() }).unwrap();
    let table = create::<WordKey>(&pool);
    for number in 0..3000 {
        let object = pool.reserve(100).unwrap();
        let mut with = pool.publication();
        let value = with.allocate(object);
        assert_eq!(table.insert(number, value.to_word(), with).unwrap(), Inserted::New);
    }
    let root = table.root_offset();
    drop(table);
    let mut steps = 0;
    while !HashTable::<WordKey>::destroy_step(&pool, root, true, 2).unwrap() {
        steps += 1;
        let error = HashTable::<WordKey>::open(&pool, root).err().unwrap();
        assert!(error.to_string().contains("being destroyed"), "{error}");
    }
    assert!(steps > 1);
    let mut left = Vec::new();
    pool.for_each_object(|offset, _| left.push(offset));
    assert_eq!(left, [root]);
}

#[test]
fn a_pool_too_full_is_a_clear_error_and_no_change() {
    let options =
        PoolOptions { extent_bytes: 1 << 20, address_space_bytes: 2 << 20, ..PoolOptions::default() };
    let pool = Pool::volatile(&options).unwrap();
    let table = create::<WordKey>(&pool);
    let mut inserted = 0;
    let error = loop {
        match table.insert(inserted, inserted, pool.publication()) {
            Ok(_) => inserted += 1,
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("address range"), "{error}");
    assert_eq!(table.get(inserted), None);
    assert_eq!(table.stats().keys, inserted);
    assert_nothing_leaks(&pool, &table);
    assert_eq!(table.remove(0, pool.publication()).unwrap(), Some(0));
    assert_eq!(table.replace(1, 7, pool.publication()).unwrap(), Some(1));
}
