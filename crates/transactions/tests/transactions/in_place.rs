//! Values read where they are: those of the snapshot, while writers replace them; none where they are not only there.

use crate::common::{get, key, put, two_states, volatile};
use entresol_memory::{Durability, Pool};
use entresol_structures::KeyWidth;
use entresol_transactions::{ContextOptions, PlacedValue, Protocol, State, StateContext, Transaction};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn bytes(pool: &Pool, value: PlacedValue) -> Vec<u8> {
    let words = pool.words(value.offset, value.bytes.div_ceil(8)).iter();
    let mut bytes: Vec<u8> = words.flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect();
    bytes.truncate(value.bytes);
    bytes
}

fn in_place(tx: &Transaction, state: &Arc<State>, numbers: &[u64]) -> Option<Vec<Vec<u8>>> {
    let keys: Vec<[u8; 8]> = numbers.iter().map(|number| key(*number)).collect();
    let read = |pool: &Pool, values: &[PlacedValue]| values.iter().map(|value| bytes(pool, *value)).collect();
    tx.read_in_place(state, &keys, read).unwrap()
}

#[test]
fn values_in_place_are_those_that_are_read() {
    let (context, state, other) = two_states(KeyWidth::Eight);
    for number in 0..20_u64 {
        put(&context, &state, number, &number.to_le_bytes().repeat(1 + 4000 * (number as usize % 3)));
    }
    put(&context, &state, 3, b"again");
    let tx = context.begin().unwrap();
    put(&context, &state, 5, b"later");
    let numbers: Vec<u64> = (0..20).collect();
    let expected: Vec<Vec<u8>> = numbers.iter().map(|number| get(&tx, &state, *number).unwrap()).collect();
    assert_eq!(in_place(&tx, &state, &numbers).unwrap(), expected);
    assert_eq!(in_place(&tx, &state, &[3, 99]), None, "there is no such key");
    assert_eq!(in_place(&tx, &state, &[]).unwrap(), [] as [Vec<u8>; 0]);
    crate::common::delete(&context, &state, 7);
    assert_eq!(in_place(&context.begin().unwrap(), &state, &[7]), None);
    assert_eq!(in_place(&tx, &state, &[7]).unwrap(), [expected[7].clone()]);
    tx.write(&other, &key(1), Some(b"own")).unwrap();
    assert_eq!(in_place(&tx, &state, &[3]), None, "what it has written may be among it");
    tx.commit(Durability::None).unwrap();
    assert!(tx.read_in_place(&state, &[key(3)], |_, _| ()).is_err(), "it has ended");
}

#[test]
fn a_value_stays_while_it_is_read_in_place_and_its_key_is_written() {
    let options = ContextOptions { version_slots: 2, version_slots_max: 2, ..ContextOptions::default() };
    let context = StateContext::open_or_create_with(volatile(), options).unwrap();
    let state = context.create_state(context.create_group().unwrap(), KeyWidth::Eight).unwrap();
    put(&context, &state, 1, &[7; 5000]);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..4000_u32 {
                put(&context, &state, 1, &[round as u8; 5000]);
            }
            is_over.store(true, Ordering::Relaxed);
        });
        let mut in_pool = 0;
        while !is_over.load(Ordering::Relaxed) {
            let tx = context.begin().unwrap();
            let expected = get(&tx, &state, 1).unwrap();
            let read = tx.read_in_place(&state, &[key(1)], |pool, values| {
                (0..20).all(|_| {
                    std::thread::yield_now();
                    bytes(pool, values[0]) == expected
                })
            });
            if let Some(same) = read.unwrap() {
                in_pool += 1;
                assert!(same);
            }
        }
        assert!(in_pool > 0);
    });
}

#[test]
fn chains_and_states_without_snapshots_are_not_read_in_place() {
    for protocol in [Protocol::MvccOutOfPlace, Protocol::S2pl, Protocol::Bocc] {
        let options = ContextOptions { protocol, ..ContextOptions::default() };
        let context = StateContext::open_or_create_with(volatile(), options).unwrap();
        let state = context.create_state(context.create_group().unwrap(), KeyWidth::Eight).unwrap();
        put(&context, &state, 1, b"value");
        assert_eq!(in_place(&context.begin().unwrap(), &state, &[1]), None, "{protocol:?}");
    }
}
