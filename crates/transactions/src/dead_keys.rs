//! Keys whose last version was deleted, waiting for their removal from the index.
//!
//! A hint, not a record: losing entries costs nothing but time, because scans put the dead keys that they meet
//! back, and [`vacuum`](crate::StateContext::vacuum) walks all states. Memory: [`DEAD_KEYS_MAX`] keys per group.

use std::collections::{HashSet, VecDeque};

use entresol_structures::KeyBytes;

use crate::StateId;

/// How many dead keys a group remembers; more are forgotten until a scan or a vacuum meets them.
pub const DEAD_KEYS_MAX: usize = 65_536;

#[derive(Default)]
pub(crate) struct DeadKeys {
    queue: VecDeque<(StateId, KeyBytes)>,
    queued: HashSet<(StateId, KeyBytes)>,
}

impl DeadKeys {
    pub(crate) fn push(&mut self, state: StateId, key: &[u8]) {
        if self.queue.len() >= DEAD_KEYS_MAX {
            return;
        }
        let dead = (state, KeyBytes::from_slice(key));
        if self.queued.insert(dead.clone()) {
            self.queue.push_back(dead);
        }
    }

    pub(crate) fn pop(&mut self) -> Option<(StateId, KeyBytes)> {
        let dead = self.queue.pop_front()?;
        self.queued.remove(&dead);
        Some(dead)
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_queued_once_and_bounded() {
        let mut dead = DeadKeys::default();
        for _ in 0..3 {
            dead.push(StateId(1), b"a");
        }
        assert_eq!(dead.len(), 1);
        assert_eq!(dead.pop(), Some((StateId(1), KeyBytes::from_slice(b"a"))));
        assert_eq!(dead.pop(), None);
        for number in 0..DEAD_KEYS_MAX as u64 + 10 {
            dead.push(StateId(1), &number.to_be_bytes());
        }
        assert_eq!(dead.len(), DEAD_KEYS_MAX);
    }
}
