//! Catalog rows of views and sequences.
//!
//! They have no state that could number them, so their numbers derive from their names: a renamed or
//! recreated one has another or the same number. The columns of a view are those of its plan; a view that
//! cannot be planned any more (its table is damaged, say) is listed without columns.

use crate::catalog::cell::Cell;
use crate::catalog::oids;
use crate::catalog::relation::Rows;
use crate::catalog::view::{Attribute, View, attribute};
use crate::postgres::pg_types::{self, PgType};
use crate::postgres::types::column_of;
use crate::schema_names::{CATALOG, SCHEMA};
use datafusion::common::Result as DFResult;
use entresol_tables::{Catalog, Table};
use entresol_tables::{Sequence, SequenceType};
use futures::FutureExt;
use std::ops::Range;

/// A view or a sequence.
pub(crate) struct NamedRelation {
    pub(crate) oid: i64,
    pub(crate) name: String,
    /// `pg_class.relkind`: v, S.
    pub(crate) kind: char,
    /// Query text of a view.
    pub(crate) query: Option<String>,
}

/// All views and sequences.
pub(crate) fn all(view: &View) -> Vec<NamedRelation> {
    let views = view.catalog.views().into_iter().map(|view| NamedRelation {
        oid: oids::view(view.name()),
        name: view.name().to_owned(),
        kind: 'v',
        query: Some(view.definition().query.clone()),
    });
    let sequences = view.catalog.sequences().into_iter().map(|sequence| NamedRelation {
        oid: oids::sequence(sequence.name()),
        name: sequence.name().to_owned(),
        kind: 'S',
        query: None,
    });
    views.chain(sequences).collect()
}

/// The columns of a view or a sequence.
pub(crate) fn attributes_of(view: &View, named: &NamedRelation) -> Vec<Attribute> {
    // Table look-ups never wait, so planning completes at once or, if not, is left out.
    let provider = view.views.get().and_then(|views| views.relation(&named.name).now_or_never());
    let Some(Ok(Some(provider))) = provider else { return Vec::new() };
    let schema = provider.schema();
    let columns = schema.fields().iter().map(|field| match column_of(field) {
        Some(column) => Attribute { not_null: false, ..attribute(&column, None) },
        None => Attribute {
            name: field.name().clone(),
            data_type: pg_types::text(),
            modifier: -1,
            not_null: false,
            default: None,
        },
    });
    columns.collect()
}

fn type_of(sequence: &Sequence) -> &'static PgType {
    let name = match sequence.definition().data_type {
        SequenceType::SmallInt => "int2",
        SequenceType::Int => "int4",
        SequenceType::BigInt => "int8",
    };
    pg_types::named(name).unwrap_or(pg_types::text())
}

/// `pg_views`.
pub(crate) fn views(view: &View) -> DFResult<Rows> {
    let views = all(view).into_iter().filter(|named| named.kind == 'v');
    Ok(views
        .map(|named| vec![SCHEMA.into(), named.name.into(), CATALOG.into(), named.query.into()])
        .collect())
}

/// `pg_sequence`.
pub(crate) fn sequence_rows(view: &View) -> DFResult<Rows> {
    let row = |sequence: &Sequence| {
        let definition = sequence.definition();
        vec![
            oids::sequence(sequence.name()).into(),
            type_of(sequence).oid.into(),
            definition.start.into(),
            definition.increment.into(),
            definition.max_value.into(),
            definition.min_value.into(),
            definition.cache.into(),
            definition.cycle.into(),
        ]
    };
    Ok(view.catalog.sequences().iter().map(|sequence| row(sequence)).collect())
}

/// `pg_sequences`.
pub(crate) fn sequences(view: &View) -> DFResult<Rows> {
    let row = |sequence: &Sequence| {
        let (definition, position) = (sequence.definition(), sequence.status().position);
        vec![
            SCHEMA.into(),
            sequence.name().into(),
            CATALOG.into(),
            type_of(sequence).long_name.into(),
            definition.start.into(),
            definition.min_value.into(),
            definition.max_value.into(),
            definition.increment.into(),
            definition.cycle.into(),
            definition.cache.into(),
            position.called.then_some(position.last).into(),
        ]
    };
    Ok(view.catalog.sequences().iter().map(|sequence| row(sequence)).collect())
}

/// `information_schema.views`.
pub(crate) fn standard_views(view: &View) -> DFResult<Rows> {
    let row = |named: NamedRelation| {
        let mut row: Vec<Cell> = vec![CATALOG.into(), SCHEMA.into(), named.name.into(), named.query.into()];
        row.push("NONE".into());
        row.extend((0..5).map(|_| Cell::from("NO")));
        row
    };
    Ok(all(view).into_iter().filter(|named| named.kind == 'v').map(row).collect())
}

/// `information_schema.sequences`.
pub(crate) fn standard_sequences(view: &View) -> DFResult<Rows> {
    let row = |sequence: &Sequence| {
        let definition = sequence.definition();
        let of = type_of(sequence);
        vec![
            CATALOG.into(),
            SCHEMA.into(),
            sequence.name().into(),
            of.long_name.into(),
            (8 * of.length).into(),
            Cell::Int(2),
            Cell::Int(0),
            definition.start.to_string().into(),
            definition.min_value.to_string().into(),
            definition.max_value.to_string().into(),
            definition.increment.to_string().into(),
            if definition.cycle { "YES" } else { "NO" }.into(),
        ]
    };
    Ok(view.catalog.sequences().iter().map(|sequence| row(sequence)).collect())
}

/// The sequences that belong to columns of a table.
pub(crate) fn sequences_of(catalog: &Catalog, table: &Table, columns: Range<usize>) -> Vec<String> {
    let owners: Vec<_> = columns.filter_map(|column| Catalog::owner(table, column)).collect();
    let is_owned = |owner: &entresol_tables::SequenceOwner| {
        owners.iter().any(|known| known.table == owner.table && known.column == owner.column)
    };
    let sequences = catalog.sequences();
    let owned =
        sequences.iter().filter(|sequence| sequence.definition().owner.as_ref().is_some_and(is_owned));
    owned.map(|sequence| sequence.name().to_owned()).collect()
}
