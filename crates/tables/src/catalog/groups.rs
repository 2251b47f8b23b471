//! State groups of tables: each table has one of its own, unless another is named.
//!
//! A large commit to one table therefore does not delay writers of another. Groups are never removed from the
//! directory of the context; the group of a dropped last table is reused by the next new one with the same protocol. Groups that a
//! crash leaves unused are found at open.
//!
//! Memory: 24 bytes per group.

use crate::error::Result;
use crate::table::Table;
use entresol_transactions::{Error, GroupId, Protocol, StateContext};
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap, HashSet};

/// State groups of tables; see the [module](self).
pub(super) struct TableGroups(Mutex<Groups>);

struct Groups {
    /// Number of tables of each group.
    tables: HashMap<GroupId, usize>,
    /// Groups without a state, available to new tables, by their protocol's name.
    unused: BTreeSet<(&'static str, GroupId)>,
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
        let unused = context.groups().into_iter().filter(|group| !used.contains(group));
        let with_protocol = |group| Some((context.protocol(group)?.name(), group));
        let mut groups =
            Groups { tables: HashMap::new(), unused: unused.filter_map(with_protocol).collect(), shared };
        tables.for_each(|table| groups.add(context, table.group()));
        TableGroups(Mutex::new(groups))
    }

    /// Group for a new table: the named one, or one of its own, with a protocol if that is asked for.
    pub(super) fn take(
        &self,
        context: &StateContext,
        named: Option<GroupId>,
        protocol: Option<Protocol>,
    ) -> Result<GroupId> {
        let default = context.options().protocol;
        let protocol = protocol.unwrap_or(default);
        let mut groups = self.0.lock();
        let with_protocol = |(name, _): &&(&'static str, GroupId)| *name == protocol.name();
        let unused = groups.unused.iter().find(with_protocol).map(|(_, group)| *group);
        let group = match named.or(unused) {
            Some(group) => group,
            None => match context.create_group_with(protocol) {
                Ok(group) => group,
                Err(Error::Full { .. }) if protocol == default => groups.shared,
                Err(error) => return Err(error.into()),
            },
        };
        groups.add(context, group);
        Ok(group)
    }

    /// Notes that a table of the group was dropped.
    pub(super) fn release_cached(&self, context: &StateContext, group: GroupId) {
        let mut groups = self.0.lock();
        let Some(tables) = groups.tables.get_mut(&group) else { return };
        *tables -= 1;
        if *tables == 0 {
            groups.tables.remove(&group);
            if group != groups.shared
                && let Some(protocol) = context.protocol(group)
            {
                groups.unused.insert((protocol.name(), group));
            }
        }
    }
}

impl Groups {
    fn add(&mut self, context: &StateContext, group: GroupId) {
        *self.tables.entry(group).or_default() += 1;
        if let Some(protocol) = context.protocol(group) {
            self.unused.remove(&(protocol.name(), group));
        }
    }
}
