//! Node layouts against a sorted model, on every size, and their cost, pinned in `nodes.txt`.

use entresol_memory::crash::{CrashOptions, check};
use entresol_memory::{Env, Pool, PoolOptions};
use entresol_structures::node::{
    Bitmap, Fast, FixedKey, Hashing, Indirection, Layout, Medium, Node, Sorted, Unsorted, balance, merge,
    split_copy, split_move,
};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex};

/// A node in a pool, and its expected content.
struct Tested<'p> {
    pool: &'p Arc<Pool>,
    node: Node<'p>,
}

fn pool(crashing: bool) -> Arc<Pool> {
    let options = PoolOptions { extent_bytes: 1 << 20, env: Env::simulated(1), ..PoolOptions::default() };
    if crashing { Pool::crashing(&options, None, None).unwrap() } else { Pool::volatile(&options).unwrap() }
}

impl<'p> Tested<'p> {
    fn new<L: Layout, K: FixedKey>(pool: &'p Arc<Pool>, entries: &[(K, u64)]) -> Tested<'p> {
        let mut with = pool.publication();
        let offset = with.allocate(pool.reserve(L::BYTES).unwrap());
        with.publish().unwrap();
        let node = Node::new(pool.words(offset, L::BYTES / 8), offset);
        L::fill(node, entries);
        pool.flush(offset, L::BYTES);
        pool.fence();
        Tested { pool, node }
    }

    /// Executes an operation and commits it.
    fn commit(&self, operation: impl FnOnce(Node<'p>, &mut Medium<'_, 'p>)) {
        let mut with = self.pool.publication();
        operation(self.node, &mut Medium::Pool(self.pool, &mut with));
        with.publish().unwrap();
    }

    /// Executes an operation without committing it.
    fn abandon(&self, operation: impl FnOnce(Node<'p>, &mut Medium<'_, 'p>)) {
        let mut with = self.pool.publication();
        operation(self.node, &mut Medium::Pool(self.pool, &mut with));
    }
}

#[derive(Debug, Clone)]
enum Step {
    Insert(u64, u64),
    Erase(u64),
    Update(u64, u64),
    /// An insert or erase that is never committed.
    Abandon(u64),
    Split(bool),
    Balance,
    Merge,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = 0u64..400;
    let step = prop_oneof![
        6 => (key.clone(), any::<u64>()).prop_map(|(key, value)| Step::Insert(key, value)),
        3 => key.clone().prop_map(Step::Erase),
        1 => (key.clone(), any::<u64>()).prop_map(|(key, value)| Step::Update(key, value)),
        1 => key.prop_map(Step::Abandon),
        1 => any::<bool>().prop_map(Step::Split),
        1 => Just(Step::Balance),
        1 => Just(Step::Merge),
    ];
    prop::collection::vec(step, 0..400)
}

fn assert_holds<L: Layout, K: FixedKey + From<u64>>(node: Node<'_>, model: &BTreeMap<u64, u64>) {
    L::check::<K>(node).unwrap();
    let expected: Vec<(K, u64)> = model.iter().map(|(key, value)| (K::from(*key), *value)).collect();
    assert_eq!(L::sorted::<K>(node), expected, "{}", L::NAME);
    assert_eq!(L::count::<K>(node), model.len());
    let mut iterated = Vec::new();
    L::iterate::<K>(node, |key, value| iterated.push((key, value)));
    iterated.sort_unstable();
    assert_eq!(iterated, expected);
    let geometry = L::geometry::<K>();
    for key in (0..400).step_by(7) {
        let value = L::find(node, K::from(key)).map(|slot| node.value(geometry, slot));
        assert_eq!(value, model.get(&key).copied());
        let floor = L::floor(node, K::from(key)).map(|slot| node.key::<K>(geometry, slot));
        assert_eq!(floor, model.range(..=key).next_back().map(|(key, _)| K::from(*key)));
    }
}

/// Two neighbouring nodes; the right one has the keys from a boundary on.
fn run<L: Layout, K: FixedKey + From<u64>>(steps: &[Step]) {
    let pool = pool(false);
    let (left, right) = (Tested::new::<L, K>(&pool, &[]), Tested::new::<L, K>(&pool, &[]));
    let (mut lower, mut upper) = (BTreeMap::new(), BTreeMap::new());
    let mut boundary = 200;
    let capacity = L::geometry::<K>().capacity;
    for step in steps {
        let side = |key: u64| key < boundary;
        match *step {
            Step::Insert(key, value) => {
                let (tested, model) = if side(key) { (&left, &mut lower) } else { (&right, &mut upper) };
                if model.contains_key(&key) || L::is_full::<K>(tested.node) {
                    continue;
                }
                tested.commit(|node, medium| L::insert(node, K::from(key), value, medium).unwrap());
                model.insert(key, value);
            }
            Step::Erase(key) => {
                let (tested, model) = if side(key) { (&left, &mut lower) } else { (&right, &mut upper) };
                let Some(slot) = L::find(tested.node, K::from(key)) else { continue };
                tested.commit(|node, medium| L::erase::<K>(node, slot, medium).unwrap());
                model.remove(&key).unwrap();
            }
            Step::Update(key, value) => {
                let (tested, model) = if side(key) { (&left, &mut lower) } else { (&right, &mut upper) };
                let Some(slot) = L::find(tested.node, K::from(key)) else { continue };
                tested.commit(|node, medium| L::update::<K>(node, slot, value, medium));
                model.insert(key, value);
            }
            Step::Abandon(key) => {
                let tested = if side(key) { &left } else { &right };
                match L::find(tested.node, K::from(key)) {
                    Some(slot) => {
                        tested.abandon(|node, medium| L::erase::<K>(node, slot, medium).unwrap());
                    }
                    None if !L::is_full::<K>(tested.node) => {
                        tested.abandon(|node, medium| L::insert(node, K::from(key), 1, medium).unwrap());
                    }
                    None => {}
                }
            }
            Step::Split(copies) if upper.is_empty() && lower.len() > 1 => {
                let mut at = None;
                left.commit(|node, medium| {
                    let split = if copies { split_copy::<L, K> } else { split_move::<L, K> };
                    at = Some(split(node, right.node, medium).unwrap());
                });
                upper = lower.split_off(lower.keys().nth(lower.len() / 2).copied().as_ref().unwrap());
                boundary = *upper.keys().next().unwrap();
                assert_eq!(at, Some(K::from(boundary)));
            }
            Step::Balance if L::SHIFTS_BLOCKS => {
                let mut at = None;
                left.commit(|node, medium| at = balance::<L, K>(node, right.node, medium).unwrap());
                let mut all = std::mem::take(&mut lower);
                all.append(&mut upper);
                if at.is_some() {
                    boundary = *all.keys().find(|key| Some(K::from(**key)) == at).unwrap();
                }
                upper = all.split_off(&boundary);
                lower = all;
                assert!(lower.len().abs_diff(upper.len()) <= 1);
            }
            Step::Merge if lower.len() + upper.len() <= capacity => {
                left.commit(|node, medium| merge::<L, K>(node, right.node, medium).unwrap());
                right.commit(|node, medium| L::truncate::<K>(node, 0, medium).unwrap());
                lower.append(&mut upper);
                boundary = 400;
            }
            _ => {}
        }
        assert_holds::<L, K>(left.node, &lower);
        assert_holds::<L, K>(right.node, &upper);
    }
}

macro_rules! on_sizes {
    ($steps:expr, $layout:ident, $key:ty: $($bytes:literal)*) => { $(run::<$layout<$bytes>, $key>($steps);)* };
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn layouts_hold_what_a_sorted_model_holds(steps in steps()) {
        on_sizes!(&steps, Sorted, u64: 256 512 1024 2048 4096);
        on_sizes!(&steps, Sorted, u128: 256 768 4096);
        on_sizes!(&steps, Unsorted, u64: 256 512 1024 2048 4096);
        on_sizes!(&steps, Unsorted, u128: 256 768 4096);
        on_sizes!(&steps, Bitmap, u64: 256 512 1024 2048 4096);
        on_sizes!(&steps, Bitmap, u128: 256 768 4096);
        on_sizes!(&steps, Indirection, u64: 256 512 1024 2048 4096);
        on_sizes!(&steps, Indirection, u128: 256 768 4096);
        on_sizes!(&steps, Hashing, u64: 256 512 1024 2048 4096);
        on_sizes!(&steps, Hashing, u128: 256 768 4096);
        on_sizes!(&steps, Fast, u64: 256 512 1024 2048 4096);
    }

    /// Readers get inconsistent words while a node changes; they must not panic.
    #[test]
    fn no_words_make_a_reader_panic(words in prop::collection::vec(any::<u64>(), 64), key: u64, small: bool) {
        fn read<L: Layout>(words: &[u64], key: u64) {
            let pool = pool(false);
            let tested = Tested::new::<L, u64>(&pool, &[]);
            for (word, value) in pool.words(tested.node.word_offset(0), words.len()).iter().zip(words) {
                word.store(*value, std::sync::atomic::Ordering::Relaxed);
            }
            let node = tested.node;
            let found = L::find(node, key).into_iter().chain(L::floor(node, key));
            found.for_each(|slot| assert!(slot < L::geometry::<u64>().capacity));
            L::sorted::<u64>(node);
            assert!(L::count::<u64>(node) <= L::geometry::<u64>().capacity);
            let _ = L::check::<u64>(node);
        }
        let words: Vec<u64> = if small { words.iter().map(|word| word >> 50).collect() } else { words };
        read::<Sorted<512>>(&words, key);
        read::<Unsorted<512>>(&words, key);
        read::<Bitmap<512>>(&words, key);
        read::<Indirection<512>>(&words, key);
        read::<Hashing<512>>(&words, key);
        read::<Fast<512>>(&words, key);
    }
}

/// Flushed ranges and fences of an operation.
fn cost(text: &mut String, name: &str, pool: &Arc<Pool>, operation: impl FnOnce()) {
    let before = pool.stats();
    operation();
    let after = pool.stats();
    let (flushes, fences) = (after.flushes - before.flushes, after.fences - before.fences);
    writeln!(text, "{name:42} {flushes:4} {fences:4}").unwrap();
}

fn costs<L: Layout>(text: &mut String) {
    let pool = pool(true);
    let half: Vec<(u64, u64)> = (0..L::geometry::<u64>().capacity as u64 / 2).map(|i| (i * 2, i)).collect();
    let middle = half.len() as u64 | 1;
    let name = |operation: &str| format!("{} {}: {operation}", L::NAME, L::BYTES);
    let half_full = || Tested::new::<L, u64>(&pool, &half);
    let tested = half_full();
    cost(text, &name("insert at the end"), &pool, || {
        tested.commit(|node, medium| L::insert(node, 100_000u64, 1, medium).unwrap());
    });
    let tested = half_full();
    cost(text, &name("insert in the middle"), &pool, || {
        tested.commit(|node, medium| L::insert(node, middle, 1, medium).unwrap());
    });
    let slot = L::find(tested.node, middle).unwrap();
    cost(text, &name("update"), &pool, || {
        tested.commit(|node, medium| L::update::<u64>(node, slot, 2, medium));
    });
    cost(text, &name("erase in the middle"), &pool, || {
        tested.commit(|node, medium| L::erase::<u64>(node, slot, medium).unwrap());
    });
    let slot = L::find(tested.node, half[1].0).unwrap();
    cost(text, &name("then erase near the start"), &pool, || {
        tested.commit(|node, medium| L::erase::<u64>(node, slot, medium).unwrap());
    });
    let all: Vec<(u64, u64)> = (0..L::geometry::<u64>().capacity as u64).map(|i| (i * 2, i)).collect();
    let (full, fresh) = (Tested::new::<L, u64>(&pool, &all), Tested::new::<L, u64>(&pool, &[]));
    cost(text, &name("split move (without the fresh node)"), &pool, || {
        full.commit(|node, medium| {
            split_move::<L, u64>(node, fresh.node, medium).unwrap();
        });
    });
    if L::SHIFTS_BLOCKS {
        let (full, less) =
            (Tested::new::<L, u64>(&pool, &all), Tested::new::<L, u64>(&pool, &[(1_000_000, 1)]));
        cost(text, &name("balance from the left"), &pool, || {
            full.commit(|node, medium| {
                balance::<L, u64>(node, less.node, medium).unwrap();
            });
        });
    }
    cost(text, &name("merge"), &pool, || {
        full.commit(|node, medium| merge::<L, u64>(node, fresh.node, medium).unwrap());
    });
}

#[test]
fn micro_operations_cost_what_the_text_file_says() {
    let mut text = String::from("# layout, bytes: operation                 flushes fences\n");
    costs::<Sorted<1024>>(&mut text);
    costs::<Unsorted<1024>>(&mut text);
    costs::<Bitmap<1024>>(&mut text);
    costs::<Indirection<1024>>(&mut text);
    costs::<Indirection<2048>>(&mut text);
    costs::<Hashing<1024>>(&mut text);
    costs::<Fast<512>>(&mut text);
    let path = format!("{}/tests/structures/nodes.txt", std::env::var("CARGO_MANIFEST_DIR").unwrap());
    if std::env::var_os("UPDATE_PINS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let pinned = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, pinned, "the cost changed; if that is meant, run with UPDATE_PINS=1");
}

/// Content of two neighbouring nodes before the change in flight, and after it.
#[derive(Default, Clone)]
struct Progress {
    before: BTreeMap<u64, u64>,
    after: BTreeMap<u64, u64>,
}

/// Random micro-operations on two neighbours under the crash checker: after a crash, they hold together the
/// content before the operation in flight, or after it, each key in one of them.
fn survives<L: Layout>(operations: u64, states_min: u64) {
    let progress = Arc::new(Mutex::new(Progress::default()));
    let seen = progress.clone();
    let options = CrashOptions { random_states: 3, crash_recovery_every: 0, ..CrashOptions::default() };
    let report = check(
        &options,
        |pool| {
            let (left, right) = (Tested::new::<L, u64>(pool, &[]), Tested::new::<L, u64>(pool, &[]));
            let mut names = pool.publication();
            names.set_root("left", left.node.word_offset(0))?;
            names.set_root("right", right.node.word_offset(0))?;
            names.publish()?;
            let env = Env::simulated(options.seed);
            let mut boundary = 50;
            let mut model = BTreeMap::new();
            for operation in 0..operations {
                let key = env.random_u64() % 100;
                let tested = if key < boundary { &left } else { &right };
                let found = L::find(tested.node, key);
                let mut with = pool.publication();
                let mut medium = Medium::Pool(pool, &mut with);
                let medium = &mut medium;
                let before = model.clone();
                let announce = |model: &BTreeMap<u64, u64>| {
                    *progress.lock().unwrap() = Progress { before, after: model.clone() };
                };
                match (env.random_u64() % 12, found) {
                    (0, _) if L::SHIFTS_BLOCKS => {
                        announce(&model);
                        let moved = balance::<L, u64>(left.node, right.node, medium).unwrap();
                        boundary = moved.unwrap_or(boundary);
                    }
                    (1, _) if model.len() <= L::geometry::<u64>().capacity => {
                        announce(&model);
                        merge::<L, u64>(left.node, right.node, medium).unwrap();
                        L::truncate::<u64>(right.node, 0, medium).unwrap();
                        boundary = 100;
                    }
                    (2, _) if boundary == 100 && model.len() > 1 => {
                        announce(&model);
                        // The fresh node is not empty: its content is valid only with the commit.
                        let mut copy = L::sorted::<u64>(left.node);
                        let upper = copy.split_off(copy.len() / 2);
                        L::append(right.node, &upper, medium).unwrap();
                        L::truncate::<u64>(left.node, copy.len(), medium).unwrap();
                        boundary = upper[0].0;
                    }
                    (3, Some(slot)) => {
                        model.insert(key, operation);
                        announce(&model);
                        L::update::<u64>(tested.node, slot, operation, medium);
                    }
                    (4..8, Some(slot)) => {
                        model.remove(&key);
                        announce(&model);
                        L::erase::<u64>(tested.node, slot, medium).unwrap();
                    }
                    (_, None) if !L::is_full::<u64>(tested.node) => {
                        model.insert(key, operation);
                        announce(&model);
                        L::insert(tested.node, key, operation, medium).unwrap();
                    }
                    _ => continue,
                }
                with.publish()?;
                let mut progress = progress.lock().unwrap();
                progress.before = progress.after.clone();
            }
            Ok(())
        },
        move |pool| {
            let (Some(left), Some(right)) = (pool.root("left"), pool.root("right")) else { return Ok(()) };
            let node = |offset| Node::new(pool.words(offset, L::BYTES / 8), offset);
            L::check::<u64>(node(left))?;
            L::check::<u64>(node(right))?;
            let mut all = L::sorted::<u64>(node(left));
            L::append_sorted(node(right), &mut all);
            let progress = seen.lock().unwrap();
            let is = |model: &BTreeMap<u64, u64>| all.iter().copied().eq(model.iter().map(|(k, v)| (*k, *v)));
            if is(&progress.before) || is(&progress.after) {
                return Ok(());
            }
            Err(format!("found {all:?}, before {:?}, after {:?}", progress.before, progress.after))
        },
    )
    .unwrap_or_else(|error| panic!("{}: {error}", L::NAME));
    assert!(report.explored(states_min), "{}: {report:?}", L::NAME);
}

#[test]
fn sorted_nodes_survive_every_fence() {
    survives::<Sorted<256>>(5200, 8000);
}

#[test]
fn unsorted_nodes_survive_every_fence() {
    survives::<Unsorted<256>>(8000, 8000);
}

#[test]
fn bitmap_nodes_survive_every_fence() {
    survives::<Bitmap<256>>(9000, 8000);
    survives::<Bitmap<2048>>(400, 1000);
}

#[test]
fn indirection_nodes_survive_every_fence() {
    survives::<Indirection<256>>(3600, 8000);
    survives::<Indirection<2048>>(400, 1000);
}

#[test]
fn hashing_nodes_survive_every_fence() {
    survives::<Hashing<256>>(7000, 8000);
}

#[test]
fn fast_nodes_survive_every_fence() {
    survives::<Fast<256>>(2000, 8000);
}
