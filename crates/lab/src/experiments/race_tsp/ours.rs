//! Ours: two states of one group, MVCC in place, on `journal`.

use super::{Session, States, key, round_of, value};
use crate::Error;
use crate::peers::{Class, GROUP_MS};
use entresol_memory::{DomainChoice, Durability, Pool, PoolOptions};
use entresol_structures::KeyWidth;
use entresol_transactions::{State, StateContext};
use std::path::Path;
use std::sync::Arc;

struct EntresolStore {
    context: Arc<StateContext>,
    states: [Arc<State>; 2],
    durability: Durability,
}

pub(super) fn open(dir: &Path, class: Class) -> Result<Box<dyn States>, Error> {
    let options = PoolOptions { domain: DomainChoice::Journal, ..PoolOptions::default() };
    let context = StateContext::open_or_create(Pool::create(dir, &options)?)?;
    let group = context.create_group()?;
    let first = context.create_state(group, KeyWidth::Eight)?;
    let states = [first, context.create_state(group, KeyWidth::Eight)?];
    let durability = match class {
        Class::None => Durability::None,
        Class::Group => Durability::Group { interval_ms: GROUP_MS },
        Class::Sync => Durability::Sync,
    };
    Ok(Box::new(EntresolStore { context, states, durability }))
}

impl States for EntresolStore {
    fn session(&self) -> Result<Box<dyn Session + '_>, Error> {
        Ok(Box::new(self))
    }

    fn sync(&self) -> Result<(), Error> {
        Ok(self.context.pool().sync()?)
    }

    fn syncs_by_itself(&self) -> bool {
        true
    }

    fn settle(&self) -> Result<(), Error> {
        Ok(self.context.pool().checkpoint()?)
    }
}

impl Session for &EntresolStore {
    fn write(&mut self, keys: &[u32], round: u64) -> Result<(), Error> {
        let transaction = self.context.begin()?;
        for &number in keys {
            for state in &self.states {
                transaction.write(state, &key(number), Some(&value(round)))?;
            }
        }
        transaction.commit(self.durability)?;
        Ok(())
    }

    fn read(&mut self, keys: &[u32]) -> Result<bool, Error> {
        let transaction = self.context.begin()?;
        let mut one_snapshot = true;
        for &number in keys {
            let [first, second] = &self.states;
            let first = transaction.read(first, &key(number), round_of)?.flatten();
            let second = transaction.read(second, &key(number), round_of)?.flatten();
            one_snapshot &= first.is_some() && first == second;
        }
        transaction.commit(Durability::None)?;
        Ok(one_snapshot)
    }
}
