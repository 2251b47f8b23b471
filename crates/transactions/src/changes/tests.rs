//! Tests of change logs.

use super::{ChangeLog, LogPosition};
use crate::{ContextOptions, Error, INFINITY, Protocol, State, StateContext, Timestamp, VALUE_BYTES_MAX};
use entresol_memory::{Durability, Env, Pool, PoolOptions};
use entresol_structures::KeyWidth;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

type Value = Option<Vec<u8>>;
type Logged = (Timestamp, Vec<u8>, Value, Value);

struct Fixture {
    context: Arc<StateContext>,
    state: Arc<State>,
    log: Arc<ChangeLog>,
}

impl Fixture {
    fn new(protocol: Protocol) -> Fixture {
        let pool = Pool::volatile(&PoolOptions::default()).unwrap();
        let options = ContextOptions { protocol, ..ContextOptions::default() };
        let context = StateContext::open_or_create_with(pool, options).unwrap();
        let group = context.create_group().unwrap();
        let state = context.create_state(group, KeyWidth::Variable).unwrap();
        let log = ChangeLog::open(context.create_state(group, ChangeLog::KEY_WIDTH).unwrap(), None);
        context.resume_change_log(&state, &log);
        Fixture { context, state, log }
    }

    fn commit(&self, changes: &[(&[u8], Option<&[u8]>)]) -> Timestamp {
        let transaction = self.context.begin().unwrap();
        for (key, value) in changes {
            transaction.write(&self.state, key, *value).unwrap();
        }
        transaction.commit(Durability::None).unwrap().cts
    }

    fn read(&self, after: Timestamp) -> Result<Vec<Logged>, Error> {
        let owned = |value: Option<&[u8]>| value.map(<[u8]>::to_vec);
        let (mut found, reader) = (Vec::new(), self.context.begin().unwrap());
        self.log.read(&reader, LogPosition::after(after), INFINITY, |change, _| {
            found.push((change.cts, change.key.to_vec(), owned(change.old), owned(change.new)));
            true
        })?;
        Ok(found)
    }
}

#[test]
fn a_log_has_the_changes_of_all_commits_in_their_order() {
    for protocol in [Protocol::MvccInPlace, Protocol::MvccOutOfPlace, Protocol::S2pl, Protocol::Bocc] {
        let fixture = Fixture::new(protocol);
        let random = Env::simulated(7);
        let below = |limit: u64| random.random_u64() % limit;
        let mut rows: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        let mut expected: Vec<Logged> = Vec::new();
        for round in 0..60 {
            let mut changes: BTreeMap<Vec<u8>, Value> = BTreeMap::new();
            let keys = if round % 20 == 7 { 3000 } else { 1 + below(20) };
            for _ in 0..keys {
                let key = format!("key {}", below(4000)).into_bytes();
                let value = vec![round as u8; [3, 20, 400, 3000][below(4) as usize]];
                changes.insert(key, (below(4) != 0).then_some(value));
            }
            let transaction = fixture.context.begin().unwrap();
            for (key, value) in &changes {
                transaction.write(&fixture.state, key, value.as_deref()).unwrap();
            }
            if round % 10 == 3 {
                transaction.abort();
                continue;
            }
            let cts = transaction.commit(Durability::None).unwrap().cts;
            for (key, new) in changes {
                let old = match &new {
                    Some(value) => rows.insert(key.clone(), value.clone()),
                    None => rows.remove(&key),
                };
                if old.is_some() || new.is_some() {
                    expected.push((cts, key, old, new));
                }
            }
        }
        assert!(fixture.read(Timestamp::START).unwrap() == expected, "{protocol:?}");
        let middle = expected[expected.len() / 2].0;
        let later: Vec<Logged> = expected.iter().filter(|(cts, ..)| *cts > middle).cloned().collect();
        assert!(fixture.read(middle).unwrap() == later, "{protocol:?}");
    }
}

#[test]
fn a_reader_that_has_enough_goes_on_behind_its_last_change() {
    let fixture = Fixture::new(Protocol::MvccInPlace);
    let keys: Vec<Vec<u8>> = (0..3000).map(|number| format!("{number:020}").into_bytes()).collect();
    let changes: Vec<(&[u8], Option<&[u8]>)> =
        keys.iter().map(|key| (&key[..], Some(&b"a value of some bytes"[..]))).collect();
    let first = fixture.commit(&changes);
    let second = fixture.commit(&changes[..10]);
    let reader = fixture.context.begin().unwrap();
    let up_to = fixture.context.visible_up_to();
    let (mut position, mut found) = (LogPosition::after(Timestamp::START), Vec::new());
    while position < LogPosition::after(up_to) {
        let enough = found.len() + 7;
        let mut last = position;
        position = fixture
            .log
            .read(&reader, position, up_to, |change, behind| {
                assert!(behind > last);
                last = behind;
                found.push((change.cts, change.key.to_vec()));
                found.len() < enough
            })
            .unwrap();
        assert!(found.len() <= enough);
    }
    let expected = keys.iter().map(|key| (first, key.clone()));
    let expected: Vec<_> = expected.chain(keys[..10].iter().map(|key| (second, key.clone()))).collect();
    assert!(found == expected);
    let noted = fixture.context.noted_changes();
    assert_eq!((noted.commits, noted.newest), (2, second));
    assert!(!fixture.context.wait_for_changes(noted, Duration::from_millis(1)));
    fixture.commit(&changes[..1]);
    assert!(fixture.context.wait_for_changes(noted, Duration::ZERO));
}

#[test]
fn changes_before_the_horizon_are_gone_and_asking_for_them_says_so() {
    let fixture = Fixture::new(Protocol::MvccInPlace);
    let commits: Vec<Timestamp> =
        (0..700u32).map(|number| fixture.commit(&[(b"key", Some(&number.to_le_bytes()))])).collect();
    let horizon = commits[500];
    while fixture.context.prune_log(&fixture.log, horizon).unwrap() > 0 {}
    assert!(matches!(fixture.read(commits[499]), Err(Error::SnapshotTooOld { .. })));
    assert_eq!(fixture.read(horizon).unwrap().len(), 199);
    // By age: all but what is younger than the retention.
    fixture.log.set_retention(Some(Duration::from_secs(3600)));
    assert_eq!(fixture.context.prune_change_logs().unwrap(), 0);
    fixture.log.set_retention(Some(Duration::ZERO));
    while fixture.context.prune_change_logs().unwrap() > 0 {
        fixture.log.set_retention(Some(Duration::ZERO));
    }
    assert_eq!(fixture.read(commits[699]).unwrap(), []);
    assert!(fixture.read(commits[698]).is_err());
    fixture.context.vacuum().unwrap();
    assert_eq!(fixture.log.state().keys().unwrap().len(), 1, "the horizon alone is left");
}

#[test]
fn a_log_that_begins_later_has_what_comes_later() {
    let fixture = Fixture::new(Protocol::MvccInPlace);
    fixture.context.log_changes(&fixture.state, None).unwrap();
    let before = fixture.commit(&[(b"key", Some(b"before"))]);
    fixture.context.log_changes(&fixture.state, Some(Arc::clone(&fixture.log))).unwrap();
    let after = fixture.commit(&[(b"key", Some(b"after"))]);
    assert!(matches!(fixture.read(before), Err(Error::SnapshotTooOld { .. })));
    let horizon = fixture.log.horizon(&fixture.context.begin().unwrap()).unwrap();
    assert!(before < horizon && horizon < after);
    let changed = (after, b"key".to_vec(), Some(b"before".to_vec()), Some(b"after".to_vec()));
    assert_eq!(fixture.read(horizon).unwrap(), [changed]);
}

#[test]
fn a_change_of_the_longest_values_is_read_back() {
    for protocol in [Protocol::MvccInPlace, Protocol::MvccOutOfPlace] {
        let fixture = Fixture::new(protocol);
        let key = vec![7; 1000];
        let values = [1, 2].map(|byte| vec![byte; VALUE_BYTES_MAX]);
        let first = fixture.commit(&[(&key, Some(&values[0]))]);
        let second = fixture.commit(&[(&key, Some(&values[1]))]);
        let found = fixture.read(first).unwrap();
        let [(cts, of, old, new)] = &found[..] else { panic!("{} changes", found.len()) };
        assert_eq!((*cts, of), (second, &key));
        // Their debug form would be megabytes.
        assert!(old.as_ref() == Some(&values[0]) && new.as_ref() == Some(&values[1]), "{protocol:?}");
        assert_eq!(fixture.read(Timestamp::START).unwrap().len(), 2);
    }
}
