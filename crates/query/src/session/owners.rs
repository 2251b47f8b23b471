//! Owners of sources, streams, topologies and materialized views: roles that are no superusers.
//!
//! They are rows of one table, which only the database writes: kind and name of the object, and the role. An object without a
//! row belongs to the superusers, as all objects do that a version without the table made. A row is written and removed in the
//! transaction of its object, where that is a row too ([`crate::ddl::stored_topologies`]). That of a materialized view over
//! tables is written before the view and removed behind it: a crash may leave a row of a view that is not there, which counts
//! for nothing.

use crate::error::Result;
use crate::schema_names::{CATALOG, OWNERS_TABLE, SOURCES_TABLE, STREAMS_TABLE, TOPOLOGIES_TABLE};
use crate::session::materialized::{maintained_by, streamed_by};
use entresol_memory::Durability;
use entresol_tables::{
    Catalog, Column, DataType, Error as TableError, ScanRange, Schema, Table, TableDefinition, TableOptions,
    Value,
};
use entresol_transactions::Transaction;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Writer of the table, as errors of other statements name it.
const WRITER: &str = "the topologies";

/// Kind of an object that a role may own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum OwnedObject {
    Source,
    /// Stream of no topology.
    Stream,
    /// Topology, or one of its kind: a sink, and a materialized view over streams.
    Topology,
    /// Materialized view over tables.
    MaterializedView,
}

impl OwnedObject {
    const ALL: [OwnedObject; 4] =
        [OwnedObject::Source, OwnedObject::Stream, OwnedObject::Topology, OwnedObject::MaterializedView];

    /// Name in messages, and as stored.
    pub(crate) fn noun(self) -> &'static str {
        match self {
            OwnedObject::Source => "source",
            OwnedObject::Stream => "stream",
            OwnedObject::Topology => "topology",
            OwnedObject::MaterializedView => "materialized view",
        }
    }

    /// Tells whether there is such an object of a name.
    pub(crate) fn exists(self, catalog: &Catalog, transaction: &Transaction, name: &str) -> Result<bool> {
        let stored = match self {
            OwnedObject::Source => SOURCES_TABLE,
            OwnedObject::Stream => STREAMS_TABLE,
            OwnedObject::Topology => TOPOLOGIES_TABLE,
            OwnedObject::MaterializedView => {
                return Ok(catalog.table(name).is_ok_and(|table| maintained_by(&table) == Some(name)));
            }
        };
        let Ok(stored) = catalog.table(stored) else { return Ok(false) };
        Ok(stored.get(transaction, &[Value::from(name)])?.is_some())
    }
}

/// Owners by object.
pub(crate) type Owners = BTreeMap<(OwnedObject, String), String>;

/// Opens the table of the owners, which is made if it is missing.
pub(crate) fn open(catalog: &Catalog) -> Result<Arc<Table>> {
    let varchar = |name: &str| Column::new(name, DataType::Varchar).not_null();
    let schema = Schema::new(vec![varchar("kind"), varchar("name"), varchar("owner")], &["kind", "name"])?;
    let definition = TableDefinition { owner: Some(WRITER.to_owned()), ..TableDefinition::plain(schema) };
    let options = TableOptions { if_not_exists: true, ..TableOptions::default() };
    Ok(catalog.create_table_as(OWNERS_TABLE, definition, options)?)
}

/// The table of the owners, if it is there. One that is damaged is an error: its objects would be those of superusers.
fn stored(catalog: &Catalog) -> Result<Option<Arc<Table>>> {
    match catalog.table(OWNERS_TABLE) {
        Ok(owners) => Ok(Some(owners)),
        Err(TableError::NoSuchTable { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Makes the table of the owners before a transaction that writes an owner.
pub(crate) fn prepare(catalog: &Catalog, owner: Option<&str>) -> Result<()> {
    owner.map_or(Ok(()), |_| open(catalog).map(drop))
}

/// Writes the owner of an object in a transaction; none: the superusers. The table is there if there is an owner.
pub(crate) fn write(
    catalog: &Catalog,
    transaction: &Transaction,
    (object, name): (OwnedObject, &str),
    owner: Option<&str>,
) -> Result<()> {
    let Some(owners) = stored(catalog)? else { return Ok(()) };
    let key = [Value::from(object.noun()), Value::from(name)];
    match owner {
        Some(owner) => {
            let [kind, name] = key;
            owners.upsert(transaction, &[kind, name, Value::from(owner)])?;
        }
        None => drop(owners.delete(transaction, &key)?),
    }
    Ok(())
}

/// Writes the owner of an object in a transaction of its own.
pub(crate) fn set(catalog: &Catalog, object: (OwnedObject, &str), owner: Option<&str>) -> Result<()> {
    if owner.is_none() && stored(catalog)?.is_none() {
        return Ok(());
    }
    prepare(catalog, owner)?;
    let transaction = catalog.begin()?;
    write(catalog, &transaction, object, owner)?;
    transaction.commit(Durability::Sync)?;
    Ok(())
}

/// Owner of an object; none: the superusers.
pub(crate) fn owner_of(catalog: &Catalog, object: OwnedObject, name: &str) -> Result<Option<String>> {
    let Some(owners) = stored(catalog)? else { return Ok(None) };
    let transaction = catalog.begin()?;
    let row = owners.get(&transaction, &[Value::from(object.noun()), Value::from(name)])?;
    Ok(row.and_then(|row| owned(&row)).map(|(_, owner)| owner))
}

/// Object and owner of a row; none if it is malformed.
fn owned(row: &[Value]) -> Option<((OwnedObject, String), String)> {
    let [Value::Varchar(kind), Value::Varchar(name), Value::Varchar(owner)] = row else { return None };
    let object = OwnedObject::ALL.into_iter().find(|object| object.noun() == &**kind)?;
    Some(((object, name.to_string()), owner.to_string()))
}

/// Owners of all objects that do not belong to the superusers.
pub(crate) fn all(catalog: &Catalog) -> Result<Owners> {
    let Some(owners) = stored(catalog)? else { return Ok(Owners::new()) };
    let transaction = catalog.begin()?;
    let mut found = Owners::new();
    for ((object, name), owner) in
        owners.scan(ScanRange::full()).rows(&transaction)?.iter().filter_map(|row| owned(row))
    {
        if object.exists(catalog, &transaction, &name)? {
            found.insert((object, name), owner);
        }
    }
    Ok(found)
}

/// Owner as it is shown: that of all tables for what belongs to the superusers.
pub(crate) fn shown(owners: &Owners, object: OwnedObject, name: &str) -> String {
    let owner = owners.get(&(object, name.to_owned()));
    owner.cloned().unwrap_or_else(|| CATALOG.to_owned())
}

/// Owner of a relation by that of what it is a part of: a source or stream, the table of a materialized view, or state of a
/// topology. None: the superusers.
pub fn owner_of_relation(catalog: &Catalog, name: &str) -> Result<Option<String>> {
    let Ok(table) = catalog.table(name) else {
        let source = owner_of(catalog, OwnedObject::Source, name)?;
        return if source.is_some() { Ok(source) } else { owner_of(catalog, OwnedObject::Stream, name) };
    };
    if let Some(topology) = entresol_streams::state_owner(&table).or_else(|| streamed_by(&table)) {
        return owner_of(catalog, OwnedObject::Topology, topology);
    }
    match maintained_by(&table) {
        Some(view) => owner_of(catalog, OwnedObject::MaterializedView, view),
        None => Ok(None),
    }
}

/// Names of the objects of a role, with their kinds.
pub fn owned_by(catalog: &Catalog, role: &str) -> Result<Vec<String>> {
    let all = all(catalog)?;
    let own = all.into_iter().filter(|(_, owner)| owner == role);
    Ok(own.map(|((object, name), _)| format!("{} {name}", object.noun())).collect())
}

/// Gives all objects of some roles to another, in one transaction; none: to the superusers.
pub fn reassign_owned(catalog: &Catalog, roles: &[String], to: Option<&str>) -> Result<()> {
    let Some(owners) = stored(catalog)? else { return Ok(()) };
    let transaction = catalog.begin()?;
    let rows = owners.scan(ScanRange::full()).rows(&transaction)?;
    for ((object, name), owner) in rows.iter().filter_map(|row| owned(row)) {
        if roles.contains(&owner) {
            write(catalog, &transaction, (object, &name), to)?;
        }
    }
    transaction.commit(Durability::Sync)?;
    Ok(())
}
