//! The number of fences and flushes of each operation, pinned in `tests/transactions/fences.txt`: a change of it is a
//! diff. `BLESS=1 cargo test -p entresol-transactions --test transactions fences` writes the file anew.

use crate::common::{key, put};
use entresol_memory::{Durability, Env, Pool, PoolOptions};
use entresol_structures::KeyWidth;
use entresol_transactions::{State, StateContext};
use std::fmt::Write;
use std::sync::Arc;

fn count(context: &Arc<StateContext>, out: &mut String, name: &str, operation: impl FnOnce()) {
    let before = context.pool().stats();
    operation();
    let after = context.pool().stats();
    let (fences, flushes) = (after.fences - before.fences, after.flushes - before.flushes);
    writeln!(out, "{name:<45} {fences:>4} fences {flushes:>5} flushes").unwrap();
}

fn write(context: &Arc<StateContext>, states: &[&Arc<State>], keys: u64, value: Option<&[u8]>) {
    let transaction = context.begin().unwrap();
    for state in states {
        (0..keys).for_each(|number| transaction.write(state, &key(number), value).unwrap());
    }
    transaction.commit(Durability::None).unwrap();
}

#[test]
fn fences_and_flushes_are_pinned() {
    let options = PoolOptions {
        extent_bytes: 1 << 20,
        address_space_bytes: 64 << 20,
        env: Env::simulated(1),
        ..PoolOptions::default()
    };
    let context = StateContext::open_or_create(Pool::crashing(&options, None, None).unwrap()).unwrap();
    let [group, other_group] = [(); 2].map(|()| context.create_group().unwrap());
    let [first, second] = [(); 2].map(|()| context.create_state(group, KeyWidth::Eight).unwrap());
    let other = context.create_state(other_group, KeyWidth::Eight).unwrap();
    for _ in 0..3 {
        write(&context, &[&first, &second, &other], 100, Some(b"value 8b"));
    }
    put(&context, &first, 1000, b"x");
    let mut out = String::new();
    let counted = &mut out;
    count(&context, counted, "update of 1 key", || write(&context, &[&first], 1, Some(b"1")));
    count(&context, counted, "update of 100 keys", || write(&context, &[&first], 100, Some(b"2")));
    let both = [&first, &second];
    count(&context, counted, "update of 200 keys in 2 states of a group", || {
        write(&context, &both, 100, Some(b"3"))
    });
    let groups = [&first, &other];
    count(&context, counted, "update of 200 keys in 2 groups", || write(&context, &groups, 100, Some(b"4")));
    count(&context, counted, "insert of 1 key", || put(&context, &first, 5000, b"5"));
    count(&context, counted, "growth of 1 key's object", || write(&context, &[&first], 1, Some(&[6; 500])));
    let reader = context.begin().unwrap();
    count(&context, counted, "delete of 1 key that a reader sees", || write(&context, &[&second], 1, None));
    drop(reader);
    count(&context, counted, "removal of 1 dead key", || {
        context.vacuum().unwrap();
    });
    // Two versions first, so that slots are used again.
    context.keep_history(other.id(), None).unwrap();
    (0..2).for_each(|_| write(&context, &[&other], 100, Some(b"7")));
    count(&context, counted, "update of 1 key with a history", || write(&context, &[&other], 1, Some(b"8")));
    count(&context, counted, "update of 10 keys with a history", || {
        write(&context, &[&other], 10, Some(b"9"))
    });
    count(&context, counted, "read of 100 keys in the past", || {
        let reader = context.begin_as_of(context.newest_commit().previous()).unwrap();
        (0..100).for_each(|number| assert!(reader.read(&other, &key(number), |_| ()).unwrap().is_some()));
    });
    count(&context, counted, "read of 100 keys", || {
        let reader = context.begin().unwrap();
        (0..100).for_each(|number| assert!(reader.read(&first, &key(number), |_| ()).unwrap().is_some()));
    });
    let path = format!("{}/tests/transactions/fences.txt", std::env::var("CARGO_MANIFEST_DIR").unwrap());
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &out).unwrap();
    }
    assert_eq!(out, std::fs::read_to_string(&path).unwrap_or_default(), "counted:\n{out}");
}
