//! Random operation histories of interleaved transactions against a model: full copies per snapshot.

use crate::common::Rows;
use entresol_memory::Durability;
use entresol_structures::{KeyBytes, KeyWidth};
use entresol_transactions::{Error, KeyRange, Mark, State, StateContext, Transaction};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

const TRANSACTIONS: usize = 4;
const KEYS: u8 = 6;

#[derive(Clone, Debug)]
enum Action {
    Begin,
    Write { state: usize, key: u8, bytes: usize },
    Delete { state: usize, key: u8 },
    Read { state: usize, key: u8 },
    Scan { state: usize, lower: u8, upper: u8 },
    Mark,
    RollBack,
    Commit,
    Abort,
    Vacuum,
}

fn action() -> impl Strategy<Value = (usize, Action)> {
    let state = || 0..2_usize;
    let key = || 0..KEYS;
    let action = prop_oneof![
        2 => Just(Action::Begin),
        6 => (state(), key(), prop_oneof![4 => 0..20_usize, 1 => 20..300_usize])
            .prop_map(|(state, key, bytes)| Action::Write { state, key, bytes }),
        2 => (state(), key()).prop_map(|(state, key)| Action::Delete { state, key }),
        2 => (state(), key()).prop_map(|(state, key)| Action::Read { state, key }),
        2 => (state(), key(), key()).prop_map(|(state, lower, upper)| Action::Scan { state, lower, upper }),
        1 => Just(Action::Mark),
        1 => Just(Action::RollBack),
        4 => Just(Action::Commit),
        1 => Just(Action::Abort),
        1 => Just(Action::Vacuum),
    ];
    (0..TRANSACTIONS, action)
}

type Key = (usize, Vec<u8>);
type StateWrites = BTreeMap<Key, Option<Vec<u8>>>;

/// A transaction beside its state in the model.
struct Open {
    transaction: Arc<Transaction>,
    /// Number of commits that it sees.
    begun_at: usize,
    snapshot: [Rows; 2],
    writes: StateWrites,
    marks: Vec<(Mark, StateWrites)>,
}

impl Open {
    fn expected(&self, state: usize) -> Rows {
        let mut rows = self.snapshot[state].clone();
        for ((of, key), value) in &self.writes {
            if *of == state {
                match value {
                    Some(value) => drop(rows.insert(key.clone(), value.clone())),
                    None => drop(rows.remove(key)),
                }
            }
        }
        rows
    }
}

struct Model {
    context: Arc<StateContext>,
    states: [Arc<State>; 2],
    committed: [Rows; 2],
    commits: usize,
    changed_at: BTreeMap<Key, usize>,
    open: [Option<Open>; TRANSACTIONS],
    written: u64,
}

impl Model {
    fn new(one_group: bool, width: KeyWidth) -> Model {
        let context = crate::common::context();
        let group = context.create_group().unwrap();
        let other = if one_group { group } else { context.create_group().unwrap() };
        let states = [group, other].map(|group| context.create_state(group, width).unwrap());
        Model {
            context,
            states,
            committed: Default::default(),
            commits: 0,
            changed_at: BTreeMap::new(),
            open: Default::default(),
            written: 0,
        }
    }

    fn step(&mut self, at: usize, action: &Action) {
        if matches!(action, Action::Vacuum) {
            self.context.vacuum().unwrap();
            return;
        }
        let Some(open) = &mut self.open[at] else {
            self.open[at] = Some(Open {
                transaction: self.context.begin().unwrap(),
                begun_at: self.commits,
                snapshot: self.committed.clone(),
                writes: BTreeMap::new(),
                marks: Vec::new(),
            });
            return;
        };
        let name = |key: u8| crate::common::key(u64::from(key)).to_vec();
        match *action {
            Action::Begin | Action::Vacuum => (),
            Action::Write { state, key, bytes } => {
                self.written += 1;
                let value = self.written.to_le_bytes().repeat(1 + bytes / 8)[..bytes].to_vec();
                open.transaction.write(&self.states[state], &name(key), Some(&value)).unwrap();
                open.writes.insert((state, name(key)), Some(value));
            }
            Action::Delete { state, key } => {
                open.transaction.write(&self.states[state], &name(key), None).unwrap();
                open.writes.insert((state, name(key)), None);
            }
            Action::Read { state, key } => {
                let read = open.transaction.read(&self.states[state], &name(key), <[u8]>::to_vec).unwrap();
                assert_eq!(read.as_ref(), open.expected(state).get(&name(key)));
                let mut many = BTreeMap::new();
                let keys: Vec<_> = (0..KEYS).map(name).collect();
                let insert = |at: usize, value: Option<&[u8]>| {
                    value.map(|value| many.insert(keys[at].clone(), value.to_vec()));
                };
                open.transaction.read_many(&self.states[state], &keys, insert).unwrap();
                assert_eq!(many, open.expected(state));
            }
            Action::Scan { state, lower, upper } => {
                let (lower, upper) = (name(lower), name(upper));
                let range = KeyRange {
                    lower: Bound::Included(KeyBytes::from_slice(&lower)),
                    upper: Bound::Excluded(KeyBytes::from_slice(&upper)),
                };
                let seen = crate::common::scan(&open.transaction, &self.states[state], &range);
                let mut expected: Vec<_> = open.expected(state).into_iter().collect();
                expected.retain(|(key, _)| (&lower..&upper).contains(&key));
                assert_eq!(seen, expected);
            }
            Action::Mark => {
                let mark = open.transaction.mark();
                open.marks.push((mark, open.writes.clone()));
            }
            Action::RollBack => {
                if let Some((mark, writes)) = open.marks.pop() {
                    open.transaction.rollback_to(mark);
                    open.writes = writes;
                }
            }
            Action::Commit => self.commit(at),
            Action::Abort => self.open[at] = None,
        }
    }

    fn commit(&mut self, at: usize) {
        let Some(open) = self.open[at].take() else { return };
        let changed_since =
            |key: &Key| self.changed_at.get(key).is_some_and(|&commit| commit > open.begun_at);
        let conflict = open.writes.keys().any(changed_since);
        let result = open.transaction.commit(Durability::Sync);
        if conflict {
            assert!(matches!(result, Err(Error::Conflict { .. })), "{result:?}");
            return;
        }
        result.unwrap();
        self.commits += 1;
        for (key, value) in open.writes {
            let rows = &mut self.committed[key.0];
            let changed = match value {
                Some(value) => {
                    rows.insert(key.1.clone(), value);
                    true
                }
                None => rows.remove(&key.1).is_some(),
            };
            if changed {
                self.changed_at.insert(key, self.commits);
            }
        }
    }

    fn check(&self) {
        let reader = self.context.begin().unwrap();
        for (state, committed) in self.states.iter().zip(&self.committed) {
            assert_eq!(&crate::common::rows(&reader, state), committed);
        }
        for open in self.open.iter().flatten() {
            for state in 0..2 {
                assert_eq!(crate::common::rows(&open.transaction, &self.states[state]), open.expected(state));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: crate::common::soak(512, 20_000) as u32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_histories_match_the_model(
        one_group: bool,
        wide: bool,
        actions in proptest::collection::vec(action(), 1..160),
    ) {
        let mut model = Model::new(one_group, if wide { KeyWidth::Variable } else { KeyWidth::Eight });
        for (at, action) in &actions {
            model.step(*at, action);
        }
        model.check();
        model.context.vacuum().unwrap();
        model.check();
    }
}
