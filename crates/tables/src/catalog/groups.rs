//! State groups of tables: each table has one of its own, unless another is named.
//!
//! A large commit to one table therefore does not delay writers of another. Groups are never removed from the
//! directory of the context; the group of a dropped last table is reused by the next new one. Groups that a
//! crash leaves unused are found at open.
//!
//! Memory: 24 bytes per group.

use crate::error::Result;
use crate::table::Table;
use entresol_transactions::{Error, GroupId, StateContext};
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap, HashSet};

/// State groups of tables; see the [module](self).
pub(super) struct TableGroups(Mutex<Groups>);

struct Groups {
    /// Number of tables of each group.
    tables: HashMap<GroupId, usize>,
    /// Groups without a state, available to new tables.
    unused: BTreeSet<GroupId>,
    /// Group that tables share when no more can be created.
    shared: GroupId,
}

impl TableGroups {
    /// Groups of a catalog with these tables.
    pub(super) fn new<'t>(
        context: &StateContext,
        tables: impl Iterator<Item = &'t Table>,
        shared: GroupId,
    ) -> TableGroups {
        let mut used: HashSet<GroupId> = context.states().iter().map(|state| state.group()).collect();
        used.insert(shared);
        let of_default = |&group: &GroupId| context.protocol(group) == Some(context.options().protocol);
        let unused = context.groups().into_iter().filter(of_default);
        let mut groups = Groups {
            tables: HashMap::new(),
            unused: unused.filter(|group| !used.contains(group)).collect(),
            shared,
        };
        tables.for_each(|table| groups.add(table.group()));
        TableGroups(Mutex::new(groups))
    }

    /// Group for a new table: the named one, or one of its own.
    pub(super) fn take(&self, context: &StateContext, named: Option<GroupId>) -> Result<GroupId> {
        let mut groups = self.0.lock();
        let group = match named.or_else(|| groups.unused.first().copied()) {
            Some(group) => group,
            None => match context.create_group() {
                Ok(group) => group,
                Err(Error::Full { .. }) => groups.shared,
                Err(error) => return Err(error.into()),
            },
        };
        groups.add(group);
        Ok(group)
    }

    /// Notes that a table of the group was dropped.
    pub(super) fn release_cached(&self, context: &StateContext, group: GroupId) {
        let of_default = context.protocol(group) == Some(context.options().protocol);
        let mut groups = self.0.lock();
        let Some(tables) = groups.tables.get_mut(&group) else { return };
        *tables -= 1;
        if *tables == 0 {
            groups.tables.remove(&group);
            if of_default && group != groups.shared {
                groups.unused.insert(group);
            }
        }
    }
}

impl Groups {
    fn add(&mut self, group: GroupId) {
        *self.tables.entry(group).or_default() += 1;
        self.unused.remove(&group);
    }
}
