//! The standard library's `BTreeMap`: volatile, the baseline. Behind a mutex that a session takes once a
//! slice, which costs nothing with one thread.

use super::{Class, Session, Store};
use crate::Error;
use crate::workload::{Op, OperationKind, Tally};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

struct VolatileMap(Mutex<BTreeMap<u64, u64>>);

impl VolatileMap {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn open(_: &Path, class: Class) -> Result<Box<dyn Store>, Error> {
    if class != Class::None {
        return Err(Error::Invalid(format!("BTreeMap is volatile; it has no class {}", class.name())));
    }
    Ok(new())
}

/// An empty map.
pub(super) fn new() -> Box<dyn Store> {
    Box::new(VolatileMap(Mutex::default()))
}

impl Store for VolatileMap {
    fn session(&self) -> Result<Box<dyn Session + '_>, Error> {
        Ok(Box::new(self))
    }

    fn sync(&self) -> Result<(), Error> {
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<(), Error> {
        Ok(())
    }
}

impl Session for &VolatileMap {
    fn run(&mut self, ops: &[Op], tally: &mut Tally) -> Result<(), Error> {
        let mut map = self.lock();
        for op in ops {
            match op.kind() {
                OperationKind::Get => tally.got(op, map.get(&op.key).copied()),
                OperationKind::Insert => tally.wrote(map.insert(op.key, op.value()).is_none()),
                OperationKind::Update => {
                    let there = map.get_mut(&op.key).map(|value| *value = op.value());
                    tally.wrote(there.is_some());
                }
                OperationKind::Delete => tally.wrote(map.remove(&op.key).is_some()),
                OperationKind::Scan => tally.scanned(op, map.range(op.key..).map(|(_, value)| *value)),
                OperationKind::ReadModifyWrite => {
                    let value = map.get_mut(&op.key);
                    tally.got(op, value.as_deref().copied());
                    if let Some(value) = value {
                        *value = op.value();
                    }
                }
            }
        }
        Ok(())
    }
}
