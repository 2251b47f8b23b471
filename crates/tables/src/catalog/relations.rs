//! Views and sequences in the catalog: their rows, their names, and their dependencies.
//!
//! Their rows lie beside those of tables, under keys that no table's name can have: a control character, the
//! kind, `/` and the name. The value:
//!
//! | bytes | what |
//! | --- | --- |
//! | 1 | version, 1 |
//! | 4 | CRC-32C of the key and all other bytes |
//! | rest | [`ViewDefinition::to_bytes`], or [`sequence::to_bytes`](crate::sequence::to_bytes) |
//!
//! # Invariants
//!
//! - Tables, indexes, views and sequences share one space of names.
//! - No relation, and no column that is named, is dropped or renamed as long as a view reads it, unless the
//!   view is dropped in the same commit.
//! - A sequence owned by a column is dropped in the commit that drops the column.
//!
//! # Damage
//!
//! A damaged row is known by its name: using it reports the damage, dropping it works. Its dependencies are
//! unknown, so it prevents no other object from being dropped.

use super::{Catalog, TABLES_MAX};
use crate::error::{Error, Result};
use crate::schema::invalid;
use crate::sequence::{self, Sequence};
use crate::view::{View, ViewDefinition};
use entresol_memory::Durability;
use entresol_transactions::{StateContext, Timestamp};
use parking_lot::RwLock;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// First byte of all keys of this module.
pub(super) const KEY_MARK: u8 = 1;
const VERSION: u8 = 1;
const HEADER_BYTES: usize = 5;
/// Maximum number of views of a database, and of sequences.
const RELATIONS_MAX: usize = TABLES_MAX;

/// Kind of a relation: an object with a name in the catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RelationKind {
    /// A table.
    Table,
    /// A secondary index.
    Index,
    /// A view.
    View,
    /// A sequence.
    Sequence,
}

impl RelationKind {
    /// Returns the kind with its article: "a view", "an index".
    pub fn with_article(self) -> String {
        match self {
            RelationKind::Index => "an index".to_owned(),
            other => format!("a {other}"),
        }
    }
}

impl std::fmt::Display for RelationKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            RelationKind::Table => "table",
            RelationKind::Index => "index",
            RelationKind::View => "view",
            RelationKind::Sequence => "sequence",
        })
    }
}

/// Kind and name of a relation.
pub(super) type RelationName = (RelationKind, String);
/// Key of the catalog's state, and its new value; `None` deletes it.
pub(super) type CatalogRow = (Vec<u8>, Option<Vec<u8>>);

/// Views and sequences of a catalog.
#[derive(Default)]
pub(super) struct Relations {
    pub(super) views: RwLock<BTreeMap<String, Arc<View>>>,
    pub(super) sequences: RwLock<BTreeMap<String, Arc<Sequence>>>,
    /// Relations with damaged rows, with the damage.
    pub(super) damaged: RwLock<BTreeMap<RelationName, String>>,
}

/// Returns true if a key of the catalog's state belongs to a view or a sequence.
pub(super) fn is_key(key: &[u8]) -> bool {
    key.first() == Some(&KEY_MARK)
}

fn key_of(kind: RelationKind, name: &str) -> Vec<u8> {
    match kind {
        RelationKind::View | RelationKind::Sequence => {
            let mut key = vec![KEY_MARK];
            key.extend_from_slice(format!("{kind}/{name}").as_bytes());
            key
        }
        RelationKind::Table | RelationKind::Index => name.as_bytes().to_vec(),
    }
}

/// Relation of a key; `None` if it is of a kind unknown to this version.
fn named(key: &[u8]) -> Option<RelationName> {
    let text = String::from_utf8_lossy(key.get(1..)?).into_owned();
    let (kind, name) = text.split_once('/')?;
    let kind =
        [RelationKind::View, RelationKind::Sequence].into_iter().find(|known| known.to_string() == kind);
    Some((kind?, name.to_owned()))
}

fn row(kind: RelationKind, name: &str, body: &[u8]) -> CatalogRow {
    row_of(key_of(kind, name), body)
}

/// Row with a version and a checksum.
pub(super) fn row_of(key: Vec<u8>, body: &[u8]) -> CatalogRow {
    let mut value = vec![VERSION];
    value.extend_from_slice(&checksum(&key, body));
    value.extend_from_slice(body);
    (key, Some(value))
}

/// Bytes of a row behind its version and checksum, or its damage.
pub(super) fn body_of<'v>(key: &[u8], value: &'v [u8]) -> Result<&'v [u8], String> {
    let (header, body) = value.split_at_checked(HEADER_BYTES).ok_or("truncated")?;
    if header[0] != VERSION {
        return Err(format!("unknown version {}", header[0]));
    }
    if header[1..] != checksum(key, body) {
        return Err("checksum mismatch".to_owned());
    }
    Ok(body)
}

pub(super) fn view_row(view: &View) -> Result<CatalogRow> {
    Ok(row(RelationKind::View, view.name(), &view.definition().to_bytes()?))
}

pub(super) fn sequence_row(
    name: &str,
    definition: &sequence::SequenceDefinition,
    at: sequence::Position,
) -> CatalogRow {
    row(RelationKind::Sequence, name, &sequence::to_bytes(definition, at))
}

fn checksum(key: &[u8], body: &[u8]) -> [u8; 4] {
    crc32c::crc32c_append(crc32c::crc32c_append(crc32c::crc32c(key), &[VERSION]), body).to_le_bytes()
}

impl Relations {
    /// Loads a row. False if it is of a kind unknown to this version.
    pub(super) fn load(&self, key: &[u8], value: Result<Vec<u8>>) -> bool {
        let Some((kind, name)) = named(key) else {
            tracing::warn!(key = %String::from_utf8_lossy(key), "a row of the catalog of an unknown kind");
            return false;
        };
        let loaded =
            value.map_err(|error| error.to_string()).and_then(|value| self.decode(kind, &name, key, &value));
        if let Err(reason) = loaded {
            tracing::error!(name, reason, "the row of a {kind} in the catalog is damaged");
            self.damaged.write().insert((kind, name), reason);
        }
        true
    }

    fn decode(&self, kind: RelationKind, name: &str, key: &[u8], value: &[u8]) -> Result<(), String> {
        let body = body_of(key, value)?;
        match kind {
            RelationKind::View => {
                let definition = ViewDefinition::from_bytes(body).ok_or("malformed bytes")?;
                let view = Arc::new(View::new(name.to_owned(), definition));
                self.views.write().insert(name.to_owned(), view);
            }
            _ => {
                let (definition, position) = sequence::from_bytes(body).ok_or("malformed bytes")?;
                let sequence = Sequence::new(name.to_owned(), definition, position);
                self.sequences.write().insert(name.to_owned(), sequence);
            }
        }
        Ok(())
    }

    /// Kind of the view or sequence of this name, damaged or not.
    pub(super) fn kind(&self, name: &str) -> Option<RelationKind> {
        if self.views.read().contains_key(name) {
            return Some(RelationKind::View);
        }
        if self.sequences.read().contains_key(name) {
            return Some(RelationKind::Sequence);
        }
        let damaged = self.damaged.read();
        damaged.keys().find(|(_, known)| known == name).map(|(kind, _)| *kind)
    }

    /// Error of a missing, damaged or differently typed relation.
    pub(super) fn missing(&self, wanted: RelationKind, name: &str) -> Option<Error> {
        match self.damaged.read().get(&(wanted, name.to_owned())) {
            Some(reason) => Some(Error::corrupt(format!("{wanted} {name}"), reason.clone())),
            None => (self.kind(name)? != wanted).then(|| Error::WrongKind { name: name.to_owned(), wanted }),
        }
    }

    pub(super) fn check_room(&self) -> Result<()> {
        let most = self.views.read().len().max(self.sequences.read().len());
        if most >= RELATIONS_MAX {
            Err(invalid(format!("the database has {most} views or sequences, the maximum")))
        } else {
            Ok(())
        }
    }

    /// Removes dropped relations.
    fn forget(&self, dropped: &BTreeSet<RelationName>) {
        for named in dropped {
            self.damaged.write().remove(named);
            match named.0 {
                RelationKind::View => drop(self.views.write().remove(&named.1)),
                RelationKind::Sequence => drop(self.sequences.write().remove(&named.1)),
                RelationKind::Table | RelationKind::Index => {}
            }
        }
    }
}

impl Catalog {
    /// Kind of the relation of this name; `None` if the name is free.
    pub fn relation_kind(&self, name: &str) -> Option<RelationKind> {
        let tables = self.tables.read();
        if tables.contains_key(name) || self.damaged.read().contains_key(name) {
            return Some(RelationKind::Table);
        }
        let is_index = || tables.values().any(|table| table.has_index(name));
        self.relations.kind(name).or_else(|| is_index().then_some(RelationKind::Index))
    }

    /// Views and sequences that cannot be used because their rows are damaged, with the damage.
    pub fn damaged_relations(&self) -> Vec<(RelationKind, String, String)> {
        let damaged = self.relations.damaged.read();
        damaged.iter().map(|((kind, name), reason)| (*kind, name.clone(), reason.clone())).collect()
    }

    /// Commits rows and deletes those of relations, atomically; then removes the views and sequences among
    /// them. Sequence functions wait meanwhile, so that none writes such a row again.
    pub(super) fn write_dropping(
        &self,
        rows: Vec<CatalogRow>,
        dropped: &BTreeSet<RelationName>,
    ) -> Result<Timestamp> {
        let known = self.relations.sequences.read().clone();
        let sequences: Vec<&Arc<Sequence>> = dropped
            .iter()
            .filter(|(kind, _)| *kind == RelationKind::Sequence)
            .filter_map(|(_, name)| known.get(name))
            .collect();
        let mut locked: Vec<_> = sequences.iter().map(|sequence| sequence.lock()).collect();
        let deleted = dropped.iter().map(|(kind, name)| (key_of(*kind, name), None));
        let comments = self.comments_on_dropped(dropped);
        let mut rows: Vec<CatalogRow> = rows.into_iter().chain(deleted).collect();
        rows.extend(comments);
        let cts = self.write_rows(&rows, Durability::Sync)?;
        locked.iter_mut().for_each(|inner| inner.dropped = true);
        self.relations.forget(dropped);
        Ok(cts)
    }

    /// Writes or deletes rows of the catalog, atomically. Returns the timestamp of the commit.
    pub(super) fn write_rows(&self, rows: &[CatalogRow], durability: Durability) -> Result<Timestamp> {
        let tx = self.context.begin()?;
        for (key, value) in rows {
            tx.write(&self.state, key, value.as_deref())?;
        }
        let commit = match durability {
            Durability::Sync => self.context.wait(|| tx.commit(durability)),
            _ => tx.commit(durability),
        };
        let cts = commit?.cts;
        self.comments.written(rows);
        Ok(cts)
    }
}

/// Reads the row of a view or a sequence; a row that cannot be read is damaged.
pub(super) fn load_row(
    relations: &Relations,
    tx: &entresol_transactions::Transaction,
    state: &Arc<entresol_transactions::State>,
    key: &[u8],
) -> Result<bool> {
    match tx.read(state, key, <[u8]>::to_vec) {
        Ok(Some(value)) => Ok(relations.load(key, Ok(value))),
        Ok(None) => Ok(true),
        Err(error) if error.is_corrupt() => Ok(relations.load(key, Err(error.into()))),
        Err(error) => Err(error.into()),
    }
}

impl sequence::SequenceStore for Catalog {
    fn write(
        &self,
        name: &str,
        definition: &sequence::SequenceDefinition,
        at: sequence::Position,
        durability: Durability,
    ) -> Result<()> {
        self.write_rows(&[sequence_row(name, definition, at)], durability).map(drop)
    }

    fn sync(&self) -> Result<()> {
        let context: &StateContext = &self.context;
        Ok(context.pool().sync()?)
    }
}
