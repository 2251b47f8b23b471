//! Trees as indexes of tables under the crash checker: values that are objects, destruction with its cursor.

use super::super::{LsmParameters, LsmTree, PooledLsmTree};
use super::ROOT;
use crate::{Change, Inserted};
use entresol_memory::crash::{CrashOptions, CrashReport, check};
use entresol_memory::{Pool, PoolOffset, PoolOptions};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Three levels that the keys fill, in several publications of freed values.
const SMALL: LsmParameters =
    LsmParameters { buffer_entries: 5, buffers: 2, runs_per_level: 2, pool_levels: 3, disk_levels: 0 };
const KEYS: u64 = 70;

/// Verifies that each allocated object is one of the tree's or of its values, and that the rest of a destruction frees
/// all but the header.
fn verify(pool: &Arc<Pool>) -> Result<(), String> {
    let Some(root) = pool.root(ROOT) else { return Ok(()) };
    let (mut own, mut values) = (BTreeSet::new(), Vec::new());
    let claim = |offset, _| if own.insert(offset) { Ok(()) } else { Err("it is used twice".to_string()) };
    let entry = |_, value| values.push(PoolOffset::from_word(value));
    PooledLsmTree::<u64>::check_remains(pool, root, claim, entry).map_err(|error| error.to_string())?;
    if let Some(value) = values.into_iter().find(|value| !own.insert(*value)) {
        return Err(format!("the object at {value:#x} is used twice"));
    }
    let allocated = |pool: &Arc<Pool>| {
        let mut allocated = BTreeSet::new();
        pool.for_each_object(|offset, _| {
            allocated.insert(offset);
        });
        allocated
    };
    if own != allocated(pool) {
        return Err(format!("the tree owns {own:?}, allocated are {:?}", allocated(pool)));
    }
    while !PooledLsmTree::<u64>::destroy_step(pool, root, true, 1).map_err(|error| error.to_string())? {}
    let left = allocated(pool);
    if left == BTreeSet::from([root]) { Ok(()) } else { Err(format!("{left:?} are left of {root:#x}")) }
}

fn destroyed() -> entresol_memory::Result<CrashReport> {
    let options = CrashOptions { random_states: 3, crash_recovery_every: 31, ..CrashOptions::default() };
    let history = |pool: &Arc<Pool>| {
        let mut publication = pool.publication();
        let root = LsmTree::<u64>::create(pool, &SMALL, &mut publication).expect("room for a tree");
        publication.set_root(ROOT, root)?;
        publication.publish()?;
        let tree = PooledLsmTree::<u64>::open(pool, root).expect("just created");
        for key in 0..KEYS {
            let object = pool.reserve(64)?;
            let mut with = pool.publication();
            let value = with.allocate(object).to_word();
            assert_eq!(tree.insert(key * 37 % KEYS, value, with).expect("room for a key"), Inserted::New);
        }
        for key in (0..KEYS).step_by(9) {
            let value = tree.get(key).expect("sound").expect("it was added");
            let mut with = pool.publication();
            with.free(PoolOffset::from_word(value));
            assert_eq!(tree.remove(key, with).expect("room for a removal"), Some(value));
        }
        drop(tree);
        while !PooledLsmTree::<u64>::destroy_step(pool, root, true, 1).expect("the tree is sound") {}
        let mut publication = pool.publication();
        publication.free(root);
        publication.set_root(ROOT, PoolOffset::NULL)?;
        publication.publish()
    };
    check(&options, history, verify)
}

#[test]
fn a_crash_while_a_tree_is_filled_or_destroyed_leaves_each_object_to_one_owner() {
    let report = destroyed().unwrap();
    println!("{report:?}");
    assert!(report.explored(1_000), "{report:?}");
}

#[test]
fn estimates_notes_and_batches_over_runs_are_as_over_buffers() {
    let pool = Pool::volatile(&PoolOptions::default()).unwrap();
    let mut publication = pool.publication();
    let root = LsmTree::<u128>::create(&pool, &SMALL, &mut publication).unwrap();
    publication.publish().unwrap();
    let tree = PooledLsmTree::<u128>::open(&pool, root).unwrap();
    assert_eq!((tree.note(), tree.estimated_keys(), tree.split_points(4).len()), (0, 0, 0));
    let mut before = Vec::new();
    let changes: Vec<(u128, Change)> = (0..900).map(|key| (key, Change::Insert(key as u64))).collect();
    tree.apply_many(&changes, &mut before).unwrap();
    assert!(before.iter().all(Option::is_none) && before.len() == 900);
    tree.apply_many(&[(7, Change::Remove), (8, Change::Replace(3))], &mut before).unwrap();
    assert_eq!(before, [Some(7), Some(8)]);
    tree.set_note(9);
    drop(tree);
    let tree = PooledLsmTree::<u128>::open(&pool, root).unwrap();
    assert_eq!((tree.note(), tree.get(7).unwrap(), tree.get(8).unwrap()), (9, None, Some(3)));
    assert!((899..1_200).contains(&tree.estimated_keys()), "{}", tree.estimated_keys());
    let share = tree.estimated_share_below(450);
    assert!((0.3..0.7).contains(&share), "{share}");
    let points = tree.split_points(4);
    assert!((2..10).contains(&points.len()) && points.is_sorted(), "{points:?}");
    let (mut existing, mut added) = (Vec::new(), 0);
    let keys: Vec<u128> = (895..905).collect();
    tree.insert_many(
        &keys,
        &mut |_, _| {
            added += 1;
            1
        },
        &mut |at, value| existing.push((at, value)),
    )
    .unwrap();
    assert_eq!((added, existing.len(), existing[4]), (5, 5, (4, 899)));
}
