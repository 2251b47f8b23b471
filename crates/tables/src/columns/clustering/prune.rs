//! Pruning of blocks by the cluster keys that the rows which meet a scan's filters may have.

use crate::columns::clustering::key::KeyBox;
use crate::columns::clustering::scheme::Scheme;
use crate::columns::condition::ColumnFilter;
use crate::columns::group::RowGroup;
use crate::columns::store::ColumnStore;
use crate::error::Result;
use crate::schema::Schema;
use std::collections::HashMap;
use std::sync::Arc;

/// Boxes of the filters of a scan, by the schemes that blocks name.
pub(crate) struct KeyPruning<'s> {
    store: &'s ColumnStore,
    schema: &'s Schema,
    filters: &'s [ColumnFilter],
    boxes: HashMap<u32, Option<(Arc<Scheme>, KeyBox)>>,
}

impl<'s> KeyPruning<'s> {
    /// Pruning for filters.
    pub(crate) fn new(
        store: &'s ColumnStore,
        schema: &'s Schema,
        filters: &'s [ColumnFilter],
    ) -> KeyPruning<'s> {
        KeyPruning { store, schema, filters, boxes: HashMap::new() }
    }

    /// Returns true if a row group may have rows that meet the filters, as far as cluster keys tell.
    pub(crate) fn may_have(&mut self, group: &RowGroup) -> Result<bool> {
        let Some(range) = &group.cluster else { return Ok(true) };
        if self.filters.is_empty() {
            return Ok(true);
        }
        if !self.boxes.contains_key(&range.scheme) {
            let scheme = self.store.scheme(range.scheme)?;
            let keys = scheme.key_box(self.schema, self.filters);
            self.boxes.insert(range.scheme, keys.map(|keys| (scheme, keys)));
        }
        Ok(match self.boxes.get(&range.scheme) {
            Some(Some((scheme, keys))) => scheme.key().meets(keys, range.least, range.greatest),
            _ => true,
        })
    }
}
