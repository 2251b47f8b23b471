//! `entresol.vacuum`: dead keys of each table and index, and what holds their reclamation back;
//! `pg_stat_progress_vacuum`: VACUUM that runs. Where PostgreSQL counts blocks of a table, it counts keys of the
//! table or index that is worked on.

use crate::catalog::cell::Cell;
use crate::catalog::oids;
use crate::catalog::relation::Rows;
use crate::catalog::view::View;
use crate::schema_names::CATALOG;
use crate::session::snapshots::Sessions;
use crate::session::vacuums::VacuumLine;
use datafusion::arrow::array::{ArrayRef, StringArray, TimestampNanosecondArray, UInt64Array};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::Result as DFResult;
use entresol_tables::Catalog;
use entresol_transactions::{SnapshotHolder, StateId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Table, and index if it is one, of each state.
pub(crate) fn reclaimed_names(catalog: &Catalog) -> BTreeMap<StateId, (String, Option<String>)> {
    let mut names = BTreeMap::new();
    for table in catalog.tables() {
        names.insert(table.state().id(), (table.name().to_owned(), None));
        for index in table.indexes() {
            names.insert(index.state_id(), (table.name().to_owned(), Some(index.name().to_owned())));
        }
    }
    names
}

/// Session and transaction that hold a snapshot.
pub(crate) fn described_holder(sessions: &Sessions, holder: &SnapshotHolder) -> String {
    let who = sessions.holder(holder.transaction);
    let who = who.unwrap_or_else(|| "a transaction without a session".to_owned());
    format!("{who} (transaction {}, snapshot {})", holder.transaction, holder.snapshot)
}

/// The content of `entresol.vacuum`.
pub(crate) fn progress(catalog: &Catalog, sessions: &Sessions) -> DFResult<RecordBatch> {
    let names = reclaimed_names(catalog);
    let all = catalog.context().reclamation();
    let known: Vec<_> = all.iter().filter_map(|of| Some((names.get(&of.state)?, of))).collect();
    let number = |of: &dyn Fn(&entresol_transactions::StateReclamation) -> u64| -> ArrayRef {
        Arc::new(UInt64Array::from_iter_values(known.iter().map(|(_, row)| of(row))))
    };
    let passes: TimestampNanosecondArray =
        known.iter().map(|(_, of)| of.last_pass_ns.and_then(|at| i64::try_from(at).ok())).collect();
    let held = known.iter().map(|(_, of)| of.held_by.map(|holder| described_holder(sessions, &holder)));
    let columns: [(&str, ArrayRef); 7] = [
        ("table", Arc::new(StringArray::from_iter_values(known.iter().map(|((table, _), _)| table)))),
        ("index", Arc::new(known.iter().map(|((_, index), _)| index.as_deref()).collect::<StringArray>())),
        ("state", number(&|of| u64::from(of.state.0))),
        ("dead_keys", number(&|of| of.dead_keys)),
        ("reclaimed", number(&|of| of.reclaimed)),
        ("last_pass", Arc::new(passes.with_timezone("+00:00"))),
        ("held_by", Arc::new(held.collect::<StringArray>())),
    ];
    Ok(RecordBatch::try_from_iter(columns)?)
}

/// The content of `pg_stat_progress_vacuum`.
pub(crate) fn running(view: &View) -> DFResult<Rows> {
    let row = |VacuumLine { client, step }: VacuumLine| {
        let is_of = |table: &&Arc<entresol_tables::Table>| {
            Some(table.state().id()) == step.state
                || table.indexes().iter().any(|index| Some(index.state_id()) == step.state)
        };
        let table = view.tables.iter().find(is_of);
        let count = |keys: u64| -> Cell { keys.cast_signed().into() };
        vec![
            client.process_id.into(),
            oids::DATABASE.into(),
            CATALOG.into(),
            table.map(|table| oids::state(table.state().id())).into(),
            step.phase.name().into(),
            // Keys that were added meanwhile are visited, too.
            count(step.keys.max(step.keys_seen)),
            count(step.keys_seen),
            count(step.keys_seen),
            count(step.indexes),
            count(step.dead_keys.max(step.keys_removed)),
            count(step.keys_removed),
        ]
    };
    Ok(view.sessions.vacuums().into_iter().map(row).collect())
}
