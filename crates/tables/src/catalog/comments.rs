//! Comments on tables, indexes, views, sequences and columns: a row of the catalog for each.
//!
//! The key is a control character, `comments/`, the relation, a control character, and the part of the relation. The value
//! has a version and a checksum as that of a view, and the comment in UTF-8.
//!
//! | relation | |
//! | --- | --- |
//! | `table` and the id of its state | which it has under all of its names and definitions |
//! | `view`, `sequence` and the name | |
//!
//! | part | |
//! | --- | --- |
//! | nothing | the relation itself |
//! | `column` and an id | that of the column in all schema versions of a table; the place of a view's column |
//! | `index` and the name, `key` | a secondary index, the index of the primary key |
//!
//! # Invariants
//!
//! - A comment goes in the commit that drops what it is about: a crash leaves both or none.
//! - A damaged comment is as if it were missing, and a new one replaces it.
//!
//! # Memory
//!
//! The keys of all comments: at most one for each object of the database.

use super::relations::{CatalogRow, KEY_MARK, RelationName, body_of, row_of};
use super::{Catalog, RelationKind};
use crate::error::{Error, Result};
use crate::schema::invalid;
use crate::table::Table;
use entresol_memory::Durability;
use parking_lot::RwLock;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Maximum bytes of a comment.
pub const COMMENT_BYTES_MAX: usize = 16 << 10;

const NAME: &str = "comments/";
/// Character between a relation and its part, which no name has.
const SEPARATOR: char = '\u{1}';

/// Object that a comment is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommentTarget<'n> {
    /// A relation of a kind, by its name.
    Relation(RelationKind, &'n str),
    /// Column of a table or a view: the names of both.
    Column(&'n str, &'n str),
}

/// Keys of the comments of a catalog.
#[derive(Default)]
pub(super) struct Comments(RwLock<BTreeSet<Vec<u8>>>);

/// Returns true if a key of the catalog's state is that of a comment.
pub(super) fn is_key(key: &[u8]) -> bool {
    key.strip_prefix(&[KEY_MARK]).is_some_and(|name| name.starts_with(NAME.as_bytes()))
}

/// Beginning of the keys of the comments on a relation and its parts.
fn prefix(relation: &str) -> Vec<u8> {
    let mut key = vec![KEY_MARK];
    key.extend_from_slice(format!("{NAME}{relation}{SEPARATOR}").as_bytes());
    key
}

fn of_table(table: &Table) -> String {
    of_state(table.state().id().0)
}

fn of_state(state: u32) -> String {
    format!("table {state}")
}

fn key_of(relation: &str, part: &str) -> Vec<u8> {
    let mut key = prefix(relation);
    key.extend_from_slice(part.as_bytes());
    key
}

impl Comments {
    /// Adds the key of a row.
    pub(super) fn load(&self, key: Vec<u8>) {
        self.0.write().insert(key);
    }

    /// Keys of the comments on a relation and its parts.
    fn on(&self, relation: &str) -> Vec<Vec<u8>> {
        let prefix = prefix(relation);
        let keys = self.0.read();
        keys.range(prefix.clone()..).take_while(|key| key.starts_with(&prefix)).cloned().collect()
    }

    /// Notes that rows were written.
    pub(super) fn written(&self, rows: &[CatalogRow]) {
        let of_comments = || rows.iter().filter(|(key, _)| is_key(key));
        if of_comments().next().is_none() {
            return;
        }
        let mut keys = self.0.write();
        for (key, value) in of_comments() {
            match value {
                Some(_) => drop(keys.insert(key.clone())),
                None => drop(keys.remove(key)),
            }
        }
    }

    /// Keys of comments on relations that are not there.
    fn without_relation(&self, known: &BTreeSet<Vec<u8>>) -> Vec<Vec<u8>> {
        let relation_of = |key: &Vec<u8>| {
            let end = key.iter().skip(1).position(|byte| *byte == SEPARATOR as u8);
            end.map(|end| key[..end + 2].to_vec())
        };
        let is_orphan = |key: &&Vec<u8>| relation_of(key).is_none_or(|relation| !known.contains(&relation));
        self.0.read().iter().filter(is_orphan).cloned().collect()
    }
}

impl Catalog {
    /// Comment on an object; an error if that is not there.
    pub fn comment(&self, target: &CommentTarget<'_>) -> Result<Option<String>> {
        let key = self.comment_key(target)?;
        if !self.comments.0.read().contains(&key) {
            return Ok(None);
        }
        let tx = self.context.begin()?;
        let decoded = |value: &[u8]| {
            let body = body_of(&key, value)?;
            std::str::from_utf8(body).map(str::to_owned).map_err(|error| error.to_string())
        };
        match tx.read(&self.state, &key, decoded) {
            Ok(None) => Ok(None),
            Ok(Some(Ok(comment))) => Ok(Some(comment)),
            Err(error) if !error.is_corrupt() => Err(error.into()),
            damaged => {
                tracing::warn!(?target, ?damaged, "a comment is damaged: COMMENT ON makes a new one");
                Ok(None)
            }
        }
    }

    /// Sets the comment on an object, or removes it; durable when this returns.
    pub fn set_comment(&self, target: &CommentTarget<'_>, comment: Option<&str>) -> Result<()> {
        if let Some(bytes) = comment.map(str::len).filter(|bytes| *bytes > COMMENT_BYTES_MAX) {
            return Err(invalid(format!("a comment has at most {COMMENT_BYTES_MAX} bytes, not {bytes}")));
        }
        let _changing = self.changing.lock();
        let key = self.comment_key(target)?;
        let row = match comment {
            Some(comment) => row_of(key, comment.as_bytes()),
            None => (key, None),
        };
        self.write_rows(&[row], Durability::Sync)?;
        self.changed();
        Ok(())
    }

    /// Key of the comment on an object that is there.
    fn comment_key(&self, target: &CommentTarget<'_>) -> Result<Vec<u8>> {
        Ok(match *target {
            CommentTarget::Relation(RelationKind::Table, name) => {
                key_of(&of_table(self.table(name)?.as_ref()), "")
            }
            CommentTarget::Relation(RelationKind::View, name) => {
                key_of(&format!("view {}", self.view(name)?.name()), "")
            }
            CommentTarget::Relation(RelationKind::Sequence, name) => {
                key_of(&format!("sequence {}", self.sequence(name)?.name()), "")
            }
            CommentTarget::Relation(RelationKind::Index, name) => match self.table_of_index(name) {
                Ok(table) => key_of(&of_table(&table), &format!("index {name}")),
                Err(error) => {
                    let tables = self.tables.read();
                    let has_key = |table: &&Arc<Table>| {
                        !table.schema().hidden_key()
                            && table.definition().key_constraint(table.name()) == name
                    };
                    key_of(&of_table(tables.values().find(has_key).ok_or(error)?), "key")
                }
            },
            CommentTarget::Column(relation, column) => {
                let missing =
                    || Error::NoSuchColumn { table: relation.to_owned(), column: column.to_owned() };
                if let Ok(view) = self.view(relation) {
                    let place = view.definition().columns.iter().position(|known| known == column);
                    let place = place.ok_or_else(missing)?;
                    return Ok(key_of(&format!("view {relation}"), &format!("column {place}")));
                }
                let table = self.table(relation)?;
                let place = table.schema().visible_columns().iter().position(|known| known.name == column);
                let id = place.and_then(|place| table.schema().schema_versions().id_of(place));
                key_of(&of_table(&table), &format!("column {}", id.ok_or_else(missing)?))
            }
        })
    }

    /// Deletions of the comments on relations that are dropped, and on their parts.
    pub(super) fn comments_on_dropped(&self, dropped: &BTreeSet<RelationName>) -> Vec<CatalogRow> {
        let relation = |(kind, name): &RelationName| match kind {
            RelationKind::Table => {
                let state = self.tables.read().get(name).map(|table| table.state().id());
                let damaged = || self.damaged.read().get(name).and_then(|table| table.state);
                state.or_else(damaged).map(|state| of_state(state.0))
            }
            RelationKind::Index => None,
            kind => Some(format!("{kind} {name}")),
        };
        let keys = dropped.iter().filter_map(relation).flat_map(|relation| self.comments.on(&relation));
        keys.map(|key| (key, None)).collect()
    }

    /// Deletions of the comments on columns and indexes that a table does not have by another definition.
    pub(super) fn lost_comments(&self, new: &Table) -> Vec<CatalogRow> {
        let relation = of_table(new);
        let begin = prefix(&relation).len();
        let is_lost = |key: &Vec<u8>| {
            let part = String::from_utf8_lossy(&key[begin..]);
            match part.split_once(' ') {
                Some(("column", id)) => {
                    id.parse().map_or(true, |id| new.schema().schema_versions().column_of(id).is_none())
                }
                Some((_, index)) => !new.has_index(index),
                None => part == "key" && new.schema().hidden_key(),
            }
        };
        self.comments.on(&relation).into_iter().filter(is_lost).map(|key| (key, None)).collect()
    }

    /// Deletions of the comments on the columns of a view behind its first `columns`.
    pub(super) fn lost_view_comments(&self, view: &str, columns: usize) -> Vec<CatalogRow> {
        let relation = format!("view {view}");
        let begin = prefix(&relation).len();
        let is_lost = |key: &Vec<u8>| {
            let part = String::from_utf8_lossy(&key[begin..]);
            part.strip_prefix("column ")
                .is_some_and(|place| place.parse().map_or(true, |at: usize| at >= columns))
        };
        self.comments.on(&relation).into_iter().filter(is_lost).map(|key| (key, None)).collect()
    }

    /// Deletes comments on relations that are not there, which the drop of a damaged one leaves.
    pub(super) fn delete_orphaned_comments(&self) -> Result<()> {
        let tables = self.tables.read();
        let named = |(kind, name): (RelationKind, &str)| prefix(&format!("{kind} {name}"));
        let views = self.views();
        let sequences = self.sequences();
        let damaged = self.damaged_relations();
        let mut known: BTreeSet<Vec<u8>> = tables.values().map(|table| prefix(&of_table(table))).collect();
        known.extend(views.iter().map(|view| named((RelationKind::View, view.name()))));
        known.extend(sequences.iter().map(|sequence| named((RelationKind::Sequence, sequence.name()))));
        known.extend(damaged.iter().map(|(kind, name, _)| named((*kind, name))));
        let orphans = self.comments.without_relation(&known);
        drop(tables);
        if orphans.is_empty() {
            return Ok(());
        }
        let rows: Vec<CatalogRow> = orphans.into_iter().map(|key| (key, None)).collect();
        self.write_rows(&rows, Durability::None).map(drop)
    }
}
