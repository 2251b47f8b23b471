//! Deliberate bugs of the protocols: the interleavings that the unchanged code passes catch each of them.
//!
//! `cargo test -p entresol-transactions --features mutants --test protocol_mutants`
#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "transactions/common/mod.rs"]
mod common;
#[path = "transactions/common/points.rs"]
mod points;

use common::interleavings::look;
use common::{get, put, volatile};
use entresol_memory::order::faults::{check_all, select};
use entresol_structures::KeyWidth;
use entresol_transactions::{ContextOptions, POINTS, Protocol, StateContext};
use points::{INTERLEAVINGS, LIST};
use std::sync::Arc;

/// A reader of the first version, while others come and go.
fn long_reader() -> Option<String> {
    let options = ContextOptions { version_slots_max: 2, ..ContextOptions::default() };
    let context = StateContext::open_or_create_with(volatile(), options).unwrap();
    let state = context.create_state(context.create_group().unwrap(), KeyWidth::Eight).unwrap();
    put(&context, &state, 1, b"first");
    let reader = Arc::clone(&context.begin().unwrap());
    (0..5).for_each(|_| put(&context, &state, 1, b"later"));
    let seen = get(&reader, &state, 1);
    (seen.as_deref() != Some(b"first")).then(|| format!("a long reader sees {seen:?}"))
}

fn violation() -> Option<String> {
    let looked = Protocol::ALL.into_iter().find_map(|protocol| look(protocol, 400).violation);
    looked.or_else(long_reader)
}

#[test]
fn every_mutant_is_caught_and_the_code_as_it_is_passes() {
    select(None);
    assert_eq!(violation(), None);
    let look_at_all = || violation().map_or(Ok(()), Err);
    assert_eq!(check_all(POINTS, LIST, INTERLEAVINGS, look_at_all), 3);
}
