//! Recorder of a history of one thread: prefix consistency.
//!
//! After a crash, the content must be that of all operations that had returned, with or without the one that
//! was in flight. A [`Recorder`] runs the operations on a model beside the structure and returns the legal
//! contents at each crash point ([`Recorder::legal_contents`], [`LegalContents`]).

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

/// The content of a structure as plain data.
pub trait Model: Clone + PartialEq + Send + Sync + 'static {
    /// Operation that changes it.
    type Operation: Clone + Debug + Send + Sync;

    /// Carries out the operation as the structure does.
    fn apply(&mut self, operation: &Self::Operation);

    /// Describes in a line the difference of `found` from this content.
    fn difference(&self, found: &Self) -> String;
}

/// Operation of a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MapOperation<K, V> {
    /// Sets the value of a key.
    Put(K, V),
    /// Adds a key, unless it is present.
    Insert(K, V),
    /// Changes the value of a key that is present.
    Replace(K, V),
    /// Removes a key.
    Remove(K),
    /// Reads a key.
    Get(K),
}

impl<K, V> Model for BTreeMap<K, V>
where
    K: Ord + Clone + Debug + Send + Sync + 'static,
    V: Clone + PartialEq + Debug + Send + Sync + 'static,
{
    type Operation = MapOperation<K, V>;

    fn apply(&mut self, operation: &MapOperation<K, V>) {
        match operation {
            MapOperation::Put(key, value) => drop(self.insert(key.clone(), value.clone())),
            MapOperation::Insert(key, value) => {
                let _ = self.entry(key.clone()).or_insert_with(|| value.clone());
            }
            MapOperation::Replace(key, value) => {
                if let Some(slot) = self.get_mut(key) {
                    *slot = value.clone();
                }
            }
            MapOperation::Remove(key) => drop(self.remove(key)),
            MapOperation::Get(_) => {}
        }
    }

    fn difference(&self, found: &Self) -> String {
        let missing: Vec<_> = self.iter().filter(|(key, value)| found.get(*key) != Some(value)).collect();
        let extra: Vec<_> = found.iter().filter(|(key, _)| !self.contains_key(*key)).collect();
        format!("missing {missing:?}, extra {extra:?}")
    }
}

/// Recorder of the operations of one thread; see the [module](self).
pub struct Recorder<M: Model> {
    legal: Mutex<LegalContents<M>>,
}

/// Contents that a crash may leave at a crash point.
#[derive(Debug, Clone)]
pub struct LegalContents<M: Model> {
    /// Content after all operations that had returned.
    pub returned: Arc<M>,
    /// Operation in flight, and the content after it.
    pub with_next: Option<(M::Operation, Arc<M>)>,
}

impl<M: Model> Recorder<M> {
    /// Recorder of a history that begins with this content.
    pub fn new(model: M) -> Arc<Recorder<M>> {
        Arc::new(Recorder { legal: Mutex::new(LegalContents { returned: Arc::new(model), with_next: None }) })
    }

    /// Runs an operation, which is in flight meanwhile.
    pub fn run<T>(&self, operation: M::Operation, work: impl FnOnce() -> T) -> T {
        let mut after = M::clone(&self.legal.lock().returned);
        after.apply(&operation);
        let after = Arc::new(after);
        self.legal.lock().with_next = Some((operation, Arc::clone(&after)));
        let result = work();
        *self.legal.lock() = LegalContents { returned: after, with_next: None };
        result
    }

    /// Content after the operations that have returned so far.
    pub fn returned(&self) -> Arc<M> {
        Arc::clone(&self.legal.lock().returned)
    }

    /// Contents that a crash may leave now.
    pub fn legal(&self) -> LegalContents<M> {
        self.legal.lock().clone()
    }

    /// Callback for the `legal_contents` of [`check_at`](super::check_at).
    pub fn legal_contents(self: &Arc<Self>) -> impl Fn() -> LegalContents<M> + Send + 'static {
        let recorder = Arc::clone(self);
        move || recorder.legal()
    }
}

impl<M: Model> LegalContents<M> {
    /// Returns an error with the difference if a crash may not leave this content.
    pub fn judge(&self, found: &M) -> Result<(), String> {
        if *found == *self.returned || self.with_next.as_ref().is_some_and(|(_, after)| *found == **after) {
            return Ok(());
        }
        Err(match &self.with_next {
            None => self.returned.difference(found),
            Some((operation, after)) => {
                format!("{}; in flight: {operation:?}", after.difference(found))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operation_in_flight_may_survive_and_no_other() {
        let recorder = Recorder::new(BTreeMap::new());
        recorder.run(MapOperation::Put(1, 'a'), || ());
        recorder.run(MapOperation::Remove(1), || {
            let legal = recorder.legal();
            assert!(legal.judge(&BTreeMap::from([(1, 'a')])).is_ok());
            assert!(legal.judge(&BTreeMap::new()).is_ok());
            assert!(legal.judge(&BTreeMap::from([(1, 'b')])).unwrap_err().contains("Remove(1)"));
        });
        assert!(recorder.legal().judge(&BTreeMap::from([(1, 'a')])).is_err());
        assert!(recorder.returned().is_empty());
    }
}
