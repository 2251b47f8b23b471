//! Objects of all schemas: tables, indexes, views, sequences, and the relations that are computed.

use crate::catalog::oids;
use crate::catalog::rows::named;
use crate::catalog::view::{View, schema_oid};
use crate::schema_names::PG_CATALOG;

/// A relation of any schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Object {
    pub(crate) oid: i64,
    pub(crate) schema: i64,
    pub(crate) name: String,
    /// As in `pg_class.relkind`: r, i, v, S.
    pub(crate) kind: char,
}

impl View {
    /// All tables and indexes.
    pub(crate) fn objects(&self) -> Vec<Object> {
        let tables = self.tables.iter().map(|table| Object {
            oid: oids::state(table.state().id()),
            schema: oids::PUBLIC,
            name: table.name().to_owned(),
            kind: 'r',
        });
        let indexes = self.indexes().map(|index| Object {
            oid: index.oid,
            schema: oids::PUBLIC,
            name: index.name,
            kind: 'i',
        });
        let registry = self.registry;
        let described = registry.all().map(|(schema, relation)| Object {
            oid: registry.oid(relation),
            schema: schema_oid(schema),
            name: relation.name.to_owned(),
            kind: if schema == PG_CATALOG { 'r' } else { 'v' },
        });
        let named = named::all(self).into_iter().map(|named| Object {
            oid: named.oid,
            schema: oids::PUBLIC,
            name: named.name,
            kind: named.kind,
        });
        tables.chain(indexes).chain(named).chain(described).collect()
    }

    /// The table or index of a number.
    pub(crate) fn object(&self, oid: i64) -> Option<Object> {
        self.objects().into_iter().find(|object| object.oid == oid)
    }
}
