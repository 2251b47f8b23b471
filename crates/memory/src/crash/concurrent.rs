//! Recorder of a history of several threads: durable linearizability (Izraelevitz, Mendes, Scott, 2016).
//!
//! Each operation on a key has an invocation and a response. After a crash, the content must be the result of
//! some order of all operations that had returned and any of those that were pending, in which an operation
//! that returned before another was invoked comes first, and in which each has the result that it returned.
//! Linearizability is local, a property of each key by itself, so each key is searched alone: depth
//! first over the number of operations of each thread that are ordered (Wing and Gong, 1993), with a memo of
//! visited positions. Two threads with m and n operations on a key have at most (m + 1)(n + 1) positions.
//!
//! Cost: a key is searched again only when it has changed since the last crash point.

use super::MapOperation;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashSet};
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

/// Recorder of the operations of several threads on a map; see the [module](self).
///
/// `O` is an operation on one key, `R` its result; `apply` carries it out on the key's value.
///
/// ```
/// use entresol_memory::crash::ConcurrentRecorder;
/// use std::collections::BTreeMap;
///
/// // An operation that sets the value and returns the old one.
/// let swap = |value: &mut Option<u64>, new: &u64| value.replace(*new);
/// let recorder = ConcurrentRecorder::new(2, swap);
/// recorder.run(0, "key", 1, || None);
/// // A crash while the second thread swaps again:
/// recorder.run(1, "key", 2, || {
///     let legal = recorder.legal();
///     assert!(legal.judge(&BTreeMap::from([("key", 1)])).is_ok());
///     assert!(legal.judge(&BTreeMap::from([("key", 2)])).is_ok());
///     assert!(legal.judge(&BTreeMap::new()).is_err(), "what returned must survive");
///     Some(1)
/// });
/// ```
pub struct ConcurrentRecorder<K, V, O, R> {
    apply: fn(&mut Option<V>, &O) -> R,
    threads: usize,
    log: Mutex<Log<K, V, O, R>>,
}

struct Log<K, V, O, R> {
    clock: u64,
    keys: BTreeMap<K, KeyLog<V, O, R>>,
}

struct KeyLog<V, O, R> {
    /// Operations of each thread, in its order.
    operations: Vec<Vec<RecordedOperation<O, R>>>,
    /// Values that the key may have after a crash now, unless it has changed since they were computed.
    legal: Option<Arc<Vec<Option<V>>>>,
}

struct RecordedOperation<O, R> {
    operation: O,
    invoked: u64,
    returned: Option<(u64, R)>,
}

/// Values that each key may have after a crash at a crash point. A key without an entry must be absent.
#[derive(Debug, Clone)]
pub struct LegalValues<K, V> {
    keys: BTreeMap<K, Arc<Vec<Option<V>>>>,
}

/// Carries out a map's operation on the value of its key; returns the value before it. For
/// [`ConcurrentRecorder::new`].
pub fn apply_to_key<K, V: Clone>(value: &mut Option<V>, operation: &MapOperation<K, V>) -> Option<V> {
    let before = value.clone();
    match operation {
        MapOperation::Put(_, new) => *value = Some(new.clone()),
        MapOperation::Insert(_, new) => *value = before.clone().or_else(|| Some(new.clone())),
        MapOperation::Replace(_, new) => *value = before.as_ref().map(|_| new.clone()),
        MapOperation::Remove(_) => *value = None,
        MapOperation::Get(_) => {}
    }
    before
}

impl<K, V, O, R> ConcurrentRecorder<K, V, O, R>
where
    K: Ord + Clone + Debug,
    V: Clone + Eq + Hash + Debug,
    R: PartialEq + Clone,
{
    /// Recorder for threads `0..threads` and a map that is empty at first.
    pub fn new(threads: usize, apply: fn(&mut Option<V>, &O) -> R) -> Arc<ConcurrentRecorder<K, V, O, R>> {
        Arc::new(ConcurrentRecorder {
            apply,
            threads,
            log: Mutex::new(Log { clock: 0, keys: BTreeMap::new() }),
        })
    }

    /// Runs an operation of a thread, which is pending meanwhile; the result of `work` is its response.
    pub fn run(&self, thread: usize, key: K, operation: O, work: impl FnOnce() -> R) -> R {
        {
            let log = &mut *self.log.lock();
            log.clock += 1;
            let operation = RecordedOperation { operation, invoked: log.clock, returned: None };
            let key = log.keys.entry(key.clone()).or_insert_with(|| KeyLog {
                operations: (0..self.threads).map(|_| Vec::new()).collect(),
                legal: None,
            });
            key.operations[thread].push(operation);
            key.legal = None;
        }
        let result = work();
        let log = &mut *self.log.lock();
        log.clock += 1;
        let key = log.keys.get_mut(&key).expect("its invocation is there");
        let last = key.operations[thread].last_mut().expect("its invocation is there");
        last.returned = Some((log.clock, result.clone()));
        key.legal = None;
        result
    }

    /// Values that a crash may leave now.
    pub fn legal(&self) -> LegalValues<K, V> {
        let mut log = self.log.lock();
        let legal = log.keys.iter_mut().map(|(key, of_key)| {
            let legal = of_key.legal.take().unwrap_or_else(|| Arc::new(of_key.search(self.apply)));
            of_key.legal = Some(Arc::clone(&legal));
            (key.clone(), legal)
        });
        LegalValues { keys: legal.collect() }
    }

    /// Callback for the `legal_contents` of [`check_at`](super::check_at).
    pub fn legal_contents(self: &Arc<Self>) -> impl Fn() -> LegalValues<K, V> + Send + 'static
    where
        K: Send + 'static,
        V: Send + Sync + 'static,
        O: Send + 'static,
        R: Send + 'static,
    {
        let recorder = Arc::clone(self);
        move || recorder.legal()
    }
}

impl<V: Clone + Eq + Hash, O, R: PartialEq> KeyLog<V, O, R> {
    /// Values at the ends of all orders that explain the responses. Empty if there is no such order.
    fn search(&self, apply: fn(&mut Option<V>, &O) -> R) -> Vec<Option<V>> {
        let mut ends = Vec::new();
        let mut seen = HashSet::new();
        let mut open: Vec<(Vec<usize>, Option<V>)> = vec![(vec![0; self.operations.len()], None)];
        while let Some((placed, value)) = open.pop() {
            if !seen.insert((placed.clone(), value.clone())) {
                continue;
            }
            let next = || self.operations.iter().zip(&placed).map(|(operations, at)| operations.get(*at));
            let returns =
                |operation: &RecordedOperation<O, R>| operation.returned.as_ref().map(|(at, _)| *at);
            // No operation that was invoked after another's response comes before that one.
            let first_return = next().flatten().filter_map(returns).min();
            if first_return.is_none() && !ends.contains(&value) {
                ends.push(value.clone());
            }
            for (thread, operation) in next().enumerate() {
                let Some(operation) = operation else { continue };
                if first_return.is_some_and(|first| operation.invoked > first) {
                    continue;
                }
                let mut value = value.clone();
                let result = apply(&mut value, &operation.operation);
                if operation.returned.as_ref().is_none_or(|(_, returned)| *returned == result) {
                    let mut placed = placed.clone();
                    placed[thread] += 1;
                    open.push((placed, value));
                }
            }
        }
        ends
    }
}

impl<K: Ord + Debug, V: PartialEq + Clone + Debug> LegalValues<K, V> {
    /// Returns an error with the difference if a crash may not leave this content.
    pub fn judge(&self, found: &BTreeMap<K, V>) -> Result<(), String> {
        if let Some((key, value)) = found.iter().find(|(key, _)| !self.keys.contains_key(*key)) {
            return Err(format!("{key:?} = {value:?}, which no operation wrote"));
        }
        for (key, legal) in &self.keys {
            let found = found.get(key);
            if legal.is_empty() {
                return Err(format!("no order of the operations on {key:?} explains their results"));
            }
            if !legal.iter().any(|legal| legal.as_ref() == found) {
                return Err(format!(
                    "{key:?} is {found:?}, which no order of the operations gives; legal: {legal:?}"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Swaps = ConcurrentRecorder<u8, u64, u64, Option<u64>>;

    fn swap(value: &mut Option<u64>, new: &u64) -> Option<u64> {
        value.replace(*new)
    }

    fn legal(recorder: &Swaps) -> Vec<Option<u64>> {
        let mut values = recorder.legal().keys[&0].to_vec();
        values.sort_unstable();
        values
    }

    #[test]
    fn pending_operations_may_take_effect_in_any_order_or_not_at_all() {
        let recorder: Arc<Swaps> = ConcurrentRecorder::new(3, swap);
        recorder.run(0, 0, 1, || None);
        recorder.run(0, 0, 2, || {
            recorder.run(1, 0, 3, || {
                assert_eq!(legal(&recorder), [Some(1), Some(2), Some(3)]);
                Some(2)
            });
            // The inner swap returned 2, so the outer one took effect, and before it.
            assert_eq!(legal(&recorder), [Some(3)]);
            recorder.run(2, 0, 4, || Some(3));
            assert_eq!(legal(&recorder), [Some(4)]);
            Some(1)
        });
        assert_eq!(legal(&recorder), [Some(4)]);
    }

    #[test]
    fn a_response_that_no_order_explains_is_found() {
        let recorder: Arc<Swaps> = ConcurrentRecorder::new(2, swap);
        recorder.run(0, 0, 1, || None);
        // It began after the first had returned, and did not see it.
        recorder.run(1, 0, 2, || None);
        let error = recorder.legal().judge(&BTreeMap::from([(0, 2)])).unwrap_err();
        assert!(error.contains("no order"), "{error}");
    }

    #[test]
    fn what_returned_before_another_began_comes_first() {
        let recorder: Arc<Swaps> = ConcurrentRecorder::new(2, swap);
        recorder.run(0, 0, 1, || None);
        recorder.run(1, 0, 2, || Some(1));
        assert!(recorder.legal().judge(&BTreeMap::from([(0, 1)])).is_err());
        assert!(recorder.legal().judge(&BTreeMap::from([(0, 2)])).is_ok());
        assert!(recorder.legal().judge(&BTreeMap::from([(0, 2), (7, 7)])).is_err());
    }
}
