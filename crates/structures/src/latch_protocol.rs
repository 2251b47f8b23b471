//! Model check of the protocol of version latches, in every interleaving: readers, an update and a split of a
//! leaf, as in [`crate::fptree`] and [`crate::btree`]. Each step is one call of [`crate::latch`] or one
//! access to a word, and all orders of the threads' steps are explored (memory orderings weaker than that are
//! not).
//!
//! ```text
//!  parent latch, child ── leaf 0: latch, a pair of words that are always alike
//!                      └─ leaf 1: the same, once the split has moved the pair there
//! ```

use crate::latch;
use std::collections::HashSet;
use std::sync::atomic::AtomicU64;

const PARENT: usize = 0;
const CHILD: usize = 1;
const LEAVES: [usize; 2] = [2, 3];
const PAIRS: [[usize; 2]; 2] = [[4, 5], [6, 7]];
const WORDS: usize = 8;
/// Lookups of a reader.
const LOOKUPS: u8 = 2;

/// Deliberate bug of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    None,
    /// Reader that does not validate that the parent still leads to the leaf.
    ParentNotValidated,
    /// Reader that does not validate that no writer changed the leaf meanwhile.
    LeafNotValidated,
    /// A writer latches the leaf whatever its version.
    LatchedAtAnyVersion,
    /// The split releases the leaf before the parent leads to the new one.
    LeafReleasedBeforeParent,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Role {
    Reads,
    Updates,
    Splits,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Thread {
    role: Role,
    step: u8,
    parent_version: u64,
    leaf_version: u64,
    leaf: usize,
    pair: [u64; 2],
    /// The greatest value that it has read.
    seen: u64,
    lookups: u8,
    is_done: bool,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct ModelState {
    words: [u64; WORDS],
    threads: Vec<Thread>,
}

impl ModelState {
    fn new(roles: &[Role]) -> ModelState {
        let thread = |role: &Role| Thread {
            role: *role,
            step: 0,
            parent_version: 0,
            leaf_version: 0,
            leaf: 0,
            pair: [0; 2],
            seen: 1,
            lookups: 0,
            is_done: false,
        };
        ModelState { words: [0, 0, 0, 0, 1, 1, 0, 0], threads: roles.iter().map(thread).collect() }
    }

    /// Calls a function of the latch on a word.
    fn on<T>(&mut self, word: usize, call: impl FnOnce(&AtomicU64) -> T) -> T {
        let latch = AtomicU64::new(self.words[word]);
        let result = call(&latch);
        self.words[word] = latch.into_inner();
        result
    }

    fn is_held(&self, latch: usize) -> bool {
        self.words[latch] & 1 == 1
    }

    /// Executes one step of a thread. False if it waits; an error if it reads an impossible state.
    fn advance(&mut self, number: usize, fault: Fault) -> Result<bool, String> {
        let mut thread = self.threads[number].clone();
        let moved = match (thread.role, thread.step) {
            (Role::Splits, _) => self.split(&mut thread, fault),
            (_, 0..=3) => self.descend(&mut thread, fault),
            (Role::Reads, _) => self.look_up(&mut thread, fault)?,
            (Role::Updates, _) => self.update(&mut thread, fault),
        };
        self.threads[number] = thread;
        Ok(moved)
    }

    fn descend(&mut self, thread: &mut Thread, fault: Fault) -> bool {
        match thread.step {
            0 if self.is_held(PARENT) => return false,
            0 => thread.parent_version = self.on(PARENT, latch::read),
            1 => thread.leaf = self.words[CHILD] as usize,
            2 if self.is_held(LEAVES[thread.leaf]) => return false,
            2 => thread.leaf_version = self.on(LEAVES[thread.leaf], latch::read),
            _ => {
                let version = thread.parent_version;
                if !self.on(PARENT, |parent| latch::validate(parent, version))
                    && fault != Fault::ParentNotValidated
                {
                    thread.step = 0;
                    return true;
                }
            }
        }
        thread.step += 1;
        true
    }

    fn look_up(&mut self, thread: &mut Thread, fault: Fault) -> Result<bool, String> {
        if let 4 | 5 = thread.step {
            let half = usize::from(thread.step - 4);
            thread.pair[half] = self.words[PAIRS[thread.leaf][half]];
            thread.step += 1;
            return Ok(true);
        }
        thread.step = 0;
        let version = thread.leaf_version;
        if self.on(LEAVES[thread.leaf], |leaf| latch::validate(leaf, version))
            || fault == Fault::LeafNotValidated
        {
            let [first, second] = thread.pair;
            if first != second || first < thread.seen {
                return Err(format!("a lookup found {first} and {second} after {}", thread.seen));
            }
            thread.seen = first;
            thread.lookups += 1;
            thread.is_done = thread.lookups == LOOKUPS;
        }
        Ok(true)
    }

    fn update(&mut self, thread: &mut Thread, fault: Fault) -> bool {
        let leaf = LEAVES[thread.leaf];
        let [first, second] = PAIRS[thread.leaf];
        match thread.step {
            4 => {
                let version = thread.leaf_version;
                let mut locked = self.on(leaf, |leaf| latch::try_lock_at(leaf, version));
                if !locked && fault == Fault::LatchedAtAnyVersion {
                    locked = self.on(leaf, latch::try_lock);
                }
                if !locked {
                    thread.step = 0;
                    return true;
                }
            }
            5 => self.words[first] += 1,
            6 => self.words[second] += 1,
            _ => {
                self.on(leaf, latch::unlock);
                thread.is_done = true;
            }
        }
        thread.step += 1;
        true
    }

    fn split(&mut self, thread: &mut Thread, fault: Fault) -> bool {
        let [old, new] = PAIRS;
        match thread.step {
            0 if self.is_held(LEAVES[0]) => return false,
            0 => thread.leaf_version = self.on(LEAVES[0], latch::read),
            1 => {
                let version = thread.leaf_version;
                if !self.on(LEAVES[0], |leaf| latch::try_lock_at(leaf, version)) {
                    thread.step = 0;
                    return true;
                }
            }
            2 => self.words[new[0]] = self.words[old[0]],
            3 => self.words[new[1]] = self.words[old[1]],
            4 => self.words[old[0]] = 0,
            5 => self.words[old[1]] = 0,
            6 if fault == Fault::LeafReleasedBeforeParent => self.on(LEAVES[0], latch::unlock),
            6 => {}
            7 => self.on(PARENT, latch::lock_alone),
            8 => self.words[CHILD] = 1,
            9 => self.on(PARENT, latch::unlock),
            _ => {
                if fault != Fault::LeafReleasedBeforeParent {
                    self.on(LEAVES[0], latch::unlock);
                }
                thread.is_done = true;
            }
        }
        thread.step += 1;
        true
    }
}

/// Explores all states that any order of steps leads to; returns their number.
fn explore(roles: &[Role], fault: Fault) -> Result<usize, String> {
    let updates = roles.iter().filter(|role| **role == Role::Updates).count() as u64;
    let mut seen = HashSet::new();
    let mut open = vec![ModelState::new(roles)];
    while let Some(state) = open.pop() {
        if !seen.insert(state.clone()) {
            continue;
        }
        let mut moves = 0;
        for number in (0..roles.len()).filter(|number| !state.threads[*number].is_done) {
            let mut next = state.clone();
            if next.advance(number, fault)? {
                moves += 1;
                open.push(next);
            }
        }
        if moves == 0 {
            if state.threads.iter().any(|thread| !thread.is_done) {
                return Err("threads wait for each other".to_string());
            }
            let pair = PAIRS[state.words[CHILD] as usize].map(|word| state.words[word]);
            if pair != [updates + 1; 2] {
                return Err(format!("after {updates} updates the leaf holds {pair:?}"));
            }
        }
    }
    Ok(seen.len())
}

#[test]
fn no_order_of_steps_shows_a_partial_change_or_loses_an_update() {
    use Role::{Reads, Splits, Updates};
    for roles in [vec![Reads, Reads, Splits], vec![Reads, Updates, Splits], vec![Updates, Updates, Splits]] {
        let states = explore(&roles, Fault::None).unwrap_or_else(|wrong| panic!("{wrong}"));
        println!("{states} states");
        assert!(states > 1_000, "{states}");
    }
    explore(&[Reads, Updates, Updates, Splits], Fault::None).unwrap_or_else(|wrong| panic!("{wrong}"));
}

/// Each step of the protocol is needed.
#[test]
fn every_fault_shows_in_some_order() {
    use Role::{Reads, Splits, Updates};
    for fault in [
        Fault::ParentNotValidated,
        Fault::LeafNotValidated,
        Fault::LatchedAtAnyVersion,
        Fault::LeafReleasedBeforeParent,
    ] {
        let wrong = explore(&[Reads, Updates, Splits], fault);
        assert!(wrong.is_err(), "{fault:?} shows in none of {wrong:?} states");
    }
}
