//! `entresol.vacuum`: dead keys of each table and index, and what holds their reclamation back.

use crate::session::snapshots::Sessions;
use datafusion::arrow::array::{ArrayRef, StringArray, TimestampNanosecondArray, UInt64Array};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::Result as EngineResult;
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
pub(crate) fn progress(catalog: &Catalog, sessions: &Sessions) -> EngineResult<RecordBatch> {
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
