//! Stored definitions of sources, streams and topologies: their statements, in three tables that only the database
//! writes. In a fourth are tables that a topology with other steps has no use for, or that a dropped materialized view leaves,
//! until they are removed.
//!
//! A row has a limit, and a topology may have thousands of steps: what of its statement is behind the first
//! [`PIECE_BYTES_MAX`] is in a fifth table, in pieces. All of a statement is written and removed in one transaction, so a
//! crash leaves the statement before or the one behind it. Tables that a topology owns get and lose their owner in the same
//! transaction: none belongs to a topology that is not stored. So does the role that owns the object
//! ([`crate::session::owners`]).

use crate::error::{Error, Result};
use crate::schema_names::{
    SOURCES_TABLE, STREAMS_TABLE, TOPOLOGIES_TABLE, TOPOLOGY_PARTS_TABLE, UNUSED_STATE_TABLE,
};
use crate::session::owners::{self, OwnedObject};
use entresol_memory::Durability;
use entresol_tables::{
    Catalog, Column, DataType, ROW_BYTES_MAX, ScanRange, Schema, Table, TableDefinition, TableOptions, Value,
};
use entresol_transactions::Transaction;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Owner of the tables, as errors of statements that would write them name it.
const OWNER: &str = "the topologies";
/// Bytes of a row beside the statement.
const ROW_BYTES_BESIDE: usize = 1024;
/// Bytes of the statement of a topology in its row, and in each of the others.
const PIECE_BYTES_MAX: usize = 16 << 10;
/// Greatest length of the statement of a topology.
const TOPOLOGY_BYTES_MAX: usize = 4 << 20;

/// Stored topology.
#[derive(Debug, Clone)]
pub(crate) struct StoredTopology {
    pub(crate) name: String,
    pub(crate) text: String,
    pub(crate) is_paused: bool,
    /// Role that owns it; none: the superusers.
    pub(crate) owner: Option<String>,
}

/// Stored stream of no topology: the topologies that read it have its step among theirs.
pub(crate) struct StoredStream {
    pub(crate) name: String,
    pub(crate) text: String,
    /// Declarations of its columns, as of its creation: `name TYPE [NOT NULL]`, one on each line.
    pub(crate) columns: String,
    /// Role that owns it; none: the superusers.
    pub(crate) owner: Option<String>,
}

impl StoredTopology {
    /// Writes it in a transaction, in the place of one of its name.
    fn write(&self, catalog: &Catalog, transaction: &Transaction) -> Result<()> {
        let (topologies, others) = (catalog.table(TOPOLOGIES_TABLE)?, catalog.table(TOPOLOGY_PARTS_TABLE)?);
        let name = Value::from(self.name.as_str());
        remove_parts(&others, transaction, &name)?;
        let (first, mut rest) = self.text.split_at(self.text.floor_char_boundary(PIECE_BYTES_MAX));
        topologies
            .upsert(transaction, &[name.clone(), Value::from(first), Value::Boolean(self.is_paused)])?;
        for part in 1.. {
            if rest.is_empty() {
                break;
            }
            let (piece, behind) = rest.split_at(rest.floor_char_boundary(PIECE_BYTES_MAX));
            others.upsert(transaction, &[name.clone(), Value::Int(part), Value::from(piece)])?;
            rest = behind;
        }
        owners::write(catalog, transaction, (OwnedObject::Topology, &self.name), self.owner.as_deref())
    }
}

/// Removes the rest of the statement of a topology.
fn remove_parts(parts: &Arc<Table>, transaction: &Transaction, name: &Value) -> Result<()> {
    for row in parts.scan(ScanRange::prefix(std::slice::from_ref(name))).rows(transaction)? {
        parts.delete(transaction, &row[..2])?;
    }
    Ok(())
}

/// One of the tables; it is created if it is missing.
fn open(catalog: &Catalog, name: &str) -> Result<Arc<Table>> {
    let varchar = |name: &str| Column::new(name, DataType::Varchar).not_null();
    let paused = Column::new("paused", DataType::Boolean).not_null();
    let schema = match name {
        TOPOLOGIES_TABLE => Schema::new(vec![varchar("name"), varchar("definition"), paused], &["name"]),
        STREAMS_TABLE => {
            Schema::new(vec![varchar("name"), varchar("definition"), varchar("columns")], &["name"])
        }
        TOPOLOGY_PARTS_TABLE => {
            let part = Column::new("part", DataType::Int).not_null();
            Schema::new(vec![varchar("name"), part, varchar("definition")], &["name", "part"])
        }
        UNUSED_STATE_TABLE => {
            Schema::new(vec![varchar("topology"), varchar("state_table")], &["topology", "state_table"])
        }
        _ => Schema::new(vec![varchar("name"), varchar("definition")], &["name"]),
    };
    let definition = TableDefinition { owner: Some(OWNER.to_owned()), ..TableDefinition::plain(schema?) };
    let options = TableOptions { if_not_exists: true, ..TableOptions::default() };
    Ok(catalog.create_table_as(name, definition, options)?)
}

/// Checks that the statement of a topology can be stored.
pub(crate) fn check_topology(text: &str) -> Result<()> {
    let bytes = text.len();
    if bytes <= TOPOLOGY_BYTES_MAX {
        return Ok(());
    }
    let message = format!(
        "the statement has {bytes} bytes, at most {TOPOLOGY_BYTES_MAX} are possible: divide it into several topologies"
    );
    Err(Error::coded("54000", message))
}

/// Checks that a statement of a source or stream can be stored.
fn check_length(text: &str) -> Result<()> {
    if text.len() + ROW_BYTES_BESIDE <= ROW_BYTES_MAX {
        return Ok(());
    }
    let (bytes, bytes_max) = (text.len(), ROW_BYTES_MAX - ROW_BYTES_BESIDE);
    Err(Error::coded("54000", format!("the statement has {bytes} bytes, at most {bytes_max} are possible")))
}

/// Stores the row of an object with its owner.
fn put(
    catalog: &Catalog,
    (object, name): (OwnedObject, &str),
    (row, text): (&[Value], &str),
    owner: Option<&str>,
) -> Result<()> {
    check_length(text)?;
    let table = open(catalog, if object == OwnedObject::Source { SOURCES_TABLE } else { STREAMS_TABLE })?;
    owners::prepare(catalog, owner)?;
    let transaction = catalog.begin()?;
    table.upsert(&transaction, row)?;
    owners::write(catalog, &transaction, (object, name), owner)?;
    transaction.commit(Durability::Sync)?;
    Ok(())
}

fn rows(catalog: &Catalog, table: &str) -> Result<Vec<Vec<Value>>> {
    let Ok(table) = catalog.table(table) else { return Ok(Vec::new()) };
    let transaction = catalog.begin()?;
    Ok(table.scan(ScanRange::full()).rows(&transaction)?)
}

fn remove(catalog: &Catalog, (object, name): (OwnedObject, &str), table: &str) -> Result<()> {
    let Ok(table) = catalog.table(table) else { return Ok(()) };
    let transaction = catalog.begin()?;
    table.delete(&transaction, &[Value::from(name)])?;
    owners::write(catalog, &transaction, (object, name), None)?;
    transaction.commit(Durability::Sync)?;
    Ok(())
}

fn text(value: Option<&Value>) -> String {
    match value {
        Some(Value::Varchar(text)) => text.to_string(),
        _ => String::new(),
    }
}

/// Stores a source with its owner; none: the superusers.
pub(crate) fn put_source(catalog: &Catalog, name: &str, definition: &str, owner: Option<&str>) -> Result<()> {
    let row = [Value::from(name), Value::from(definition)];
    put(catalog, (OwnedObject::Source, name), (&row, definition), owner)
}

/// Statement of a source, if there is one.
pub(crate) fn source(catalog: &Catalog, name: &str) -> Result<Option<String>> {
    let Ok(table) = catalog.table(SOURCES_TABLE) else { return Ok(None) };
    let transaction = catalog.begin()?;
    let row = table.get(&transaction, &[Value::from(name)])?;
    Ok(row.map(|row| text(row.get(1))))
}

/// Names and statements of all sources.
pub(crate) fn sources(catalog: &Catalog) -> Result<Vec<(String, String)>> {
    let stored = |row: Vec<Value>| (text(row.first()), text(row.get(1)));
    Ok(rows(catalog, SOURCES_TABLE)?.into_iter().map(stored).collect())
}

pub(crate) fn remove_source(catalog: &Catalog, name: &str) -> Result<()> {
    remove(catalog, (OwnedObject::Source, name), SOURCES_TABLE)
}

pub(crate) fn put_stream(catalog: &Catalog, stream: &StoredStream) -> Result<()> {
    let row = [&stream.name, &stream.text, &stream.columns].map(|text| Value::from(text.as_str()));
    let (object, text) =
        ((OwnedObject::Stream, stream.name.as_str()), format!("{}{}", stream.text, stream.columns));
    put(catalog, object, (&row, &text), stream.owner.as_deref())
}

/// Statement of a stream of no topology, if there is one.
pub(crate) fn stream(catalog: &Catalog, name: &str) -> Result<Option<String>> {
    let Ok(table) = catalog.table(STREAMS_TABLE) else { return Ok(None) };
    let transaction = catalog.begin()?;
    let row = table.get(&transaction, &[Value::from(name)])?;
    Ok(row.map(|row| text(row.get(1))))
}

/// All streams of no topology, by name.
pub(crate) fn streams(catalog: &Catalog) -> Result<Vec<StoredStream>> {
    let owners = owners::all(catalog)?;
    let stored = |row: Vec<Value>| StoredStream {
        name: text(row.first()),
        text: text(row.get(1)),
        columns: text(row.get(2)),
        owner: owners.get(&(OwnedObject::Stream, text(row.first()))).cloned(),
    };
    Ok(rows(catalog, STREAMS_TABLE)?.into_iter().map(stored).collect())
}

pub(crate) fn remove_stream(catalog: &Catalog, name: &str) -> Result<()> {
    remove(catalog, (OwnedObject::Stream, name), STREAMS_TABLE)
}

/// Stores a topology, with the targets that it owns already.
pub(crate) fn put_topology(catalog: &Catalog, topology: &StoredTopology) -> Result<()> {
    replace_topology(catalog, topology, &[], &entresol_streams::owned_targets(catalog, &topology.name))
}

/// Stores a topology with other steps, notes the state tables that it has no use for, and makes it the owner of these targets
/// and no others: all or nothing.
pub(crate) fn replace_topology(
    catalog: &Catalog,
    topology: &StoredTopology,
    unused: &[String],
    owned: &[String],
) -> Result<()> {
    check_topology(&topology.text)?;
    open(catalog, TOPOLOGIES_TABLE)?;
    open(catalog, TOPOLOGY_PARTS_TABLE)?;
    let states = open(catalog, UNUSED_STATE_TABLE)?;
    owners::prepare(catalog, topology.owner.as_deref())?;
    let owners = entresol_streams::target_changes(catalog, &topology.name, owned);
    catalog.set_owners(&owners, |transaction| {
        topology.write(catalog, transaction)?;
        for state in unused {
            states
                .upsert(transaction, &[Value::from(topology.name.as_str()), Value::from(state.as_str())])?;
        }
        Ok(())
    })
}

/// State tables that a topology has no use for and that may still be there.
pub(crate) fn unused_state(catalog: &Catalog, topology: &str) -> Result<Vec<String>> {
    let rows = rows(catalog, UNUSED_STATE_TABLE)?;
    let own = rows.iter().filter(|row| row.first() == Some(&Value::from(topology)));
    Ok(own.map(|row| text(row.get(1))).collect())
}

/// Materialized views that were dropped, of which tables may still be there.
pub(crate) fn dropped_views(catalog: &Catalog) -> Result<Vec<String>> {
    // A table of statements that is damaged does not say which are gone.
    if catalog.table(TOPOLOGIES_TABLE).is_err() {
        return Ok(Vec::new());
    }
    let stored = topologies(catalog)?;
    let noted = rows(catalog, UNUSED_STATE_TABLE)?;
    let names = noted.iter().filter(|row| row.first() == row.get(1)).map(|row| text(row.first()));
    Ok(names.filter(|name| stored.iter().all(|stored| stored.name != *name)).collect())
}

/// Notes that these state tables of a topology are gone.
pub(crate) fn removed_state(catalog: &Catalog, topology: &str, removed: &[String]) -> Result<()> {
    let states = open(catalog, UNUSED_STATE_TABLE)?;
    let transaction = catalog.begin()?;
    for state in removed {
        states.delete(&transaction, &[Value::from(topology), Value::from(state.as_str())])?;
    }
    transaction.commit(Durability::Sync)?;
    Ok(())
}

/// All topologies, by name.
pub(crate) fn topologies(catalog: &Catalog) -> Result<Vec<StoredTopology>> {
    let Ok(table) = catalog.table(TOPOLOGIES_TABLE) else { return Ok(Vec::new()) };
    let transaction = catalog.begin()?;
    let mut rests: BTreeMap<String, String> = BTreeMap::new();
    if let Ok(parts) = catalog.table(TOPOLOGY_PARTS_TABLE) {
        for row in parts.scan(ScanRange::full()).rows(&transaction)? {
            rests.entry(text(row.first())).or_default().push_str(&text(row.get(2)));
        }
    }
    let owners = owners::all(catalog)?;
    let stored = |row: Vec<Value>| {
        let name = text(row.first());
        let rest = rests.get(&name).map_or("", String::as_str);
        StoredTopology {
            text: text(row.get(1)) + rest,
            is_paused: row.get(2) == Some(&Value::Boolean(true)),
            owner: owners.get(&(OwnedObject::Topology, name.clone())).cloned(),
            name,
        }
    };
    Ok(table.scan(ScanRange::full()).rows(&transaction)?.into_iter().map(stored).collect())
}

pub(crate) fn remove_topology(catalog: &Catalog, name: &str) -> Result<()> {
    remove_leaving(catalog, name, None)
}

/// Removes the topology of a materialized view, and notes that its table is of no use: both or nothing.
pub(crate) fn remove_view(catalog: &Catalog, name: &str) -> Result<()> {
    remove_leaving(catalog, name, Some(open(catalog, UNUSED_STATE_TABLE)?))
}

/// Removes a topology, which owns no targets then; notes that its table is of no use in the table of these, if it is given.
fn remove_leaving(catalog: &Catalog, name: &str, unused: Option<Arc<Table>>) -> Result<()> {
    let Ok(table) = catalog.table(TOPOLOGIES_TABLE) else { return Ok(()) };
    catalog.set_owners(&entresol_streams::target_changes(catalog, name, &[]), |transaction| {
        table.delete(transaction, &[Value::from(name)])?;
        if let Ok(parts) = catalog.table(TOPOLOGY_PARTS_TABLE) {
            remove_parts(&parts, transaction, &Value::from(name))?;
        }
        if let Some(unused) = unused {
            unused.upsert(transaction, &[Value::from(name), Value::from(name)])?;
        }
        owners::write(catalog, transaction, (OwnedObject::Topology, name), None)
    })
}
