//! Commits over two states of two groups: both always hold the same rows.

use crate::history::{Failure, commit_changes};
use entresol_memory::{Durability, Pool};
use entresol_structures::KeyWidth;
use entresol_transactions::{KeyRange, State, StateContext, StateId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A vacuum after every so many commits.
const VACUUM_EVERY: u64 = 16;

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

pub(crate) struct Commits {
    context: Arc<StateContext>,
    states: [Arc<State>; 2],
}

impl Commits {
    pub(crate) fn open(pool: Arc<Pool>) -> Result<Commits, Failure> {
        let context = StateContext::open_or_create(pool)?;
        let open = |number: u32, width| -> Result<Arc<State>, Failure> {
            if let Some(state) = context.state(StateId(number)) {
                return Ok(state);
            }
            // A crash may have left a group without its state.
            let groups = context.groups();
            let group = match groups.get(number as usize) {
                Some(group) => *group,
                None => context.create_group()?,
            };
            Ok(context.create_state(group, width)?)
        };
        let states = [open(0, KeyWidth::Eight)?, open(1, KeyWidth::Variable)?];
        Ok(Commits { context, states })
    }

    pub(crate) fn apply(&self, seed: u64, step: u64) -> Result<(), Failure> {
        let transaction = self.context.begin()?;
        for change in commit_changes(seed, step) {
            let value = change.value_bytes.map(|bytes| value(change.stamp, bytes));
            for state in &self.states {
                transaction.write(state, &change.key.to_be_bytes(), value.as_deref())?;
            }
        }
        transaction.commit(Durability::Sync)?;
        if step.is_multiple_of(VACUUM_EVERY) {
            self.context.vacuum()?;
        }
        Ok(())
    }

    /// How many commits are there, at least `least` and at most `most`; an error if no number of them gives
    /// what is found in both states.
    pub(crate) fn steps(&self, seed: u64, least: u64, most: u64) -> Result<u64, Failure> {
        let found = self.rows(0)?;
        if self.rows(1)? != found {
            return Err("the two states differ".into());
        }
        let mut model = Rows::new();
        for step in 0..=most {
            if step > 0 {
                for change in commit_changes(seed, step) {
                    let key = change.key.to_be_bytes().to_vec();
                    match change.value_bytes {
                        Some(bytes) => model.insert(key, value(change.stamp, bytes)),
                        None => model.remove(&key),
                    };
                }
            }
            if step >= least && model == found {
                return Ok(step);
            }
        }
        let keys = found.len();
        Err(format!("the {keys} rows are as after no number of commits from {least} to {most}").into())
    }

    fn rows(&self, state: usize) -> Result<Rows, Failure> {
        let transaction = self.context.begin()?;
        let mut rows = Rows::new();
        let mut from = None;
        while transaction.scan_batch(&self.states[state], &KeyRange::full(), &mut from, |key, value| {
            rows.insert(key.to_vec(), value.to_vec());
        })? {}
        Ok(rows)
    }
}

fn value(stamp: u64, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| stamp.rotate_left(at as u32) as u8).collect()
}
