//! Changes of an overlay: a state whose values lie over others, which something else stores.
//!
//! A key of such a state replaces what lies beneath it, and an empty value says that there is nothing. So what a commit
//! changed is not what it changed in the state: the value before may lie beneath, and who writes notes it with
//! its transaction; and a transaction that moves values from one place to the other changes nothing.
//!
//! Memory: the noted values of a transaction, counted with its write set.

use crate::context::state::State;
use crate::transaction::Transaction;
use crate::{Result, StateId};
use entresol_structures::KeyBytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Statements of a transaction about the overlays that it writes.
#[derive(Default)]
pub(crate) struct Overlaid {
    /// True if it changes nothing.
    pub(crate) is_moving: bool,
    /// Values beneath written keys.
    beneath: BTreeMap<StateId, BTreeMap<KeyBytes, Box<[u8]>>>,
}

impl Overlaid {
    /// Value beneath a key, if one was noted.
    pub(crate) fn beneath(&self, state: StateId, key: &[u8]) -> Option<&[u8]> {
        self.beneath.get(&state)?.get(key).map(|value| &**value)
    }

    /// Notes the value beneath a key; false if it was noted before.
    pub(crate) fn note(&mut self, state: StateId, key: KeyBytes, value: &[u8]) -> bool {
        self.beneath.entry(state).or_default().insert(key, value.into()).is_none()
    }
}

impl State {
    /// Makes it an overlay: an empty value is a deletion, and what lies beneath its keys is told by who writes them.
    pub fn set_overlay(&self) {
        self.is_overlay.store(true, Ordering::Release);
    }

    /// Returns true if its values lie over others.
    pub(crate) fn is_overlay(&self) -> bool {
        self.is_overlay.load(Ordering::Acquire)
    }
}

impl Transaction {
    /// Notes the value that lies beneath a key of an overlay which the transaction writes: the value before its change
    /// if the overlay has none.
    pub fn note_beneath(&self, state: &Arc<State>, key: &[u8], value: &[u8]) -> Result<()> {
        assert!(state.is_overlay(), "values lie beneath those of overlays alone");
        let key = KeyBytes::from_slice(&state.normalise(key)?);
        self.note_overlaid(|writes, memory| writes.note_beneath(memory, state.id, key, value))
    }

    /// Says that the transaction moves values of overlays and changes none: it logs no changes, and no view has to be
    /// maintained.
    pub fn set_moving(&self) -> Result<()> {
        self.note_overlaid(|writes, _| {
            writes.overlaid.is_moving = true;
            Ok(())
        })
    }
}
