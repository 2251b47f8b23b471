//! Materialized views as `pg_class`, `pg_matviews` and `pg_get_viewdef` have them: tables with the texts of their queries.

use crate::catalog::cell::Cell;
use crate::catalog::oids;
use crate::catalog::relation::Rows;
use crate::catalog::view::{View, indexes_of};
use crate::error::external;
use crate::schema_names::SCHEMA;
use crate::session::materialized::{held_by, query_view, streamed_by};
use crate::session::owners::{self, OwnedObject};
use datafusion::common::Result as DFResult;
use entresol_tables::Table;
use std::sync::Arc;

/// `pg_matviews`.
pub(crate) fn views(view: &View) -> DFResult<Rows> {
    let owners = owners::all(&view.catalog).map_err(external)?;
    let owner = |table: &Table| {
        let object = match streamed_by(table) {
            Some(_) => OwnedObject::Topology,
            None => OwnedObject::MaterializedView,
        };
        owners::shown(&owners, object, table.name())
    };
    let row = |(table, query): (&Arc<Table>, Option<String>)| -> Vec<Cell> {
        vec![
            SCHEMA.into(),
            table.name().into(),
            owner(table).into(),
            Cell::Null,
            (!indexes_of(table).is_empty()).into(),
            true.into(),
            query.into(),
        ]
    };
    Ok(queries(view).into_iter().map(row).collect())
}

/// Query of the materialized view of a number.
pub(crate) fn query_of(view: &View, oid: i64) -> Option<String> {
    let is_of = |(table, _): &(&Arc<Table>, _)| oids::state(table.state().id()) == oid;
    queries(view).into_iter().find(is_of).and_then(|(_, query)| query)
}

/// Tables of the materialized views, each with its query. A query that is damaged is none.
fn queries(view: &View) -> Vec<(&Arc<Table>, Option<String>)> {
    let held = view.tables.iter().filter(|table| held_by(table).is_some());
    let query = |table: &Arc<Table>| match streamed_by(table) {
        Some(name) => view.topologies.view_query(name),
        None => {
            let query = view.catalog.view(&query_view(table.name()));
            query.ok().map(|query| query.definition().query.clone())
        }
    };
    held.map(|table| (table, query(table))).collect()
}
