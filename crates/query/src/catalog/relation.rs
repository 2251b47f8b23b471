//! Relations that are computed: their columns, as PostgreSQL 16 has them, and the functions that compute
//! their rows.
//!
//! A description is a string, `name type, name type`; types are the short names of [`super::cell::type_of`].

use super::cell::{self, Cell};
use super::oids;
use super::view::{Source, View};
use crate::schema_names::{INFORMATION_INNER, INFORMATION_SCHEMA};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::TableProvider;
use datafusion::common::Result as DFResult;
use datafusion::datasource::MemTable;
use std::sync::Arc;

/// Rows of cells.
pub(crate) type Rows = Vec<Vec<Cell>>;

/// Computed relation.
pub(crate) struct Relation {
    /// PostgreSQL's number; 0 if clients do not rely on it.
    number: i64,
    pub(crate) name: &'static str,
    description: &'static str,
    /// Function that computes the rows; `None` if there is never a row.
    rows: Option<fn(&View) -> DFResult<Rows>>,
}

impl std::fmt::Debug for Relation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Relation").field(&self.name).finish()
    }
}

/// A relation with rows.
pub(crate) const fn relation(
    number: i64,
    name: &'static str,
    description: &'static str,
    rows: fn(&View) -> DFResult<Rows>,
) -> Relation {
    Relation { number, name, description, rows: Some(rows) }
}

/// Relation about a kind of object that does not exist here.
pub(crate) const fn empty(number: i64, name: &'static str, description: &'static str) -> Relation {
    Relation { number, name, description, rows: None }
}

impl Relation {
    /// Names and types of its columns.
    pub(crate) fn columns(&self) -> impl Iterator<Item = (&'static str, &'static str)> + use<> {
        self.description.split(',').filter_map(|column| column.trim().split_once(' '))
    }

    /// Table provider over its current content.
    pub(crate) fn provider(&self, source: &Source) -> DFResult<Arc<dyn TableProvider>> {
        let fields: Vec<Field> = self
            .columns()
            .map(|(name, word)| Ok(Field::new(name, cell::type_of(word)?, true)))
            .collect::<DFResult<_>>()?;
        let schema = Arc::new(Schema::new(fields));
        let rows = match self.rows {
            Some(rows) => rows(&source.view()?)?,
            None => Vec::new(),
        };
        let mut columns: Vec<Vec<Cell>> =
            schema.fields().iter().map(|_| Vec::with_capacity(rows.len())).collect();
        for row in rows {
            debug_assert_eq!(row.len(), columns.len(), "a row of {} has all columns", self.name);
            row.into_iter().zip(&mut columns).for_each(|(cell, column)| column.push(cell));
        }
        let types = schema.fields().iter().map(|field| field.data_type());
        let arrays = types.zip(columns).map(|(of, cells): (&DataType, _)| cell::column(of, cells));
        let batch = RecordBatch::try_new(Arc::clone(&schema), arrays.collect::<DFResult<_>>()?)?;
        Ok(Arc::new(MemTable::try_new(schema, vec![vec![batch]])?))
    }
}

/// Relation that stands for the function `pg_get_keywords()`.
const KEYWORDS: &str = "pg_get_keywords";

/// Schemas and their relations, in the order of their numbers.
#[derive(Debug)]
pub(crate) struct Registry(pub(crate) &'static [(&'static str, &'static [Relation])]);

impl Registry {
    /// All relations that are tables or views, with their schemas.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, &'static Relation)> + use<> {
        let all = self.0.iter().flat_map(|(schema, relations)| relations.iter().map(|of| (*schema, of)));
        all.filter(|(_, relation)| relation.name != KEYWORDS)
    }

    /// Number of a relation.
    pub(crate) fn oid(&self, relation: &Relation) -> i64 {
        if relation.number != 0 {
            return relation.number;
        }
        let place = self.all().position(|(_, other)| std::ptr::eq(other, relation));
        oids::RELATIONS + place.unwrap_or(0) as i64
    }

    /// Relations of a schema.
    pub(crate) fn of_schema(&self, schema: &str) -> &'static [Relation] {
        let schema = if schema == INFORMATION_INNER { INFORMATION_SCHEMA } else { schema };
        self.0.iter().find(|(name, _)| *name == schema).map_or(&[], |(_, relations)| relations)
    }

    /// Relation of a name in a schema.
    pub(crate) fn find(&self, schema: &str, name: &str) -> Option<&'static Relation> {
        self.of_schema(schema).iter().find(|relation| relation.name == name)
    }
}
