//! Statistics in the catalog: a row for each table that was analyzed, under the number of its state.
//!
//! The key is a control character, `statistics/` and the number of the state, which a table has under all of its
//! names and definitions; the value has a version and a checksum as that of a view, and [`AnalyzedTable::to_bytes`].

use super::Catalog;
use super::relations::{CatalogRow, KEY_MARK, body_of, row_of};
use crate::error::{Error, Result};
use crate::statistics::{AnalyzedTable, STATISTICS_BYTES_MAX};
use crate::table::Table;
use entresol_memory::Durability;
use entresol_transactions::{State, StateId, Transaction};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

const NAME: &str = "statistics/";

/// Returns true if a key of the catalog's state is that of statistics.
pub(super) fn is_key(key: &[u8]) -> bool {
    key.strip_prefix(&[KEY_MARK]).is_some_and(|name| name.starts_with(NAME.as_bytes()))
}

fn key_of(state: StateId) -> Vec<u8> {
    let mut key = vec![KEY_MARK];
    key.extend_from_slice(format!("{NAME}{}", state.0).as_bytes());
    key
}

/// Deletion of the statistics of a table.
pub(super) fn deletion(state: StateId) -> CatalogRow {
    (key_of(state), None)
}

/// Statistics of the catalog, by the state of their table; those that are damaged are as if they were missing.
#[derive(Default)]
pub(super) struct LoadedStatistics(BTreeMap<Vec<u8>, Option<AnalyzedTable>>);

impl LoadedStatistics {
    /// Loads a row.
    pub(super) fn load(&mut self, tx: &Transaction, state: &Arc<State>, key: &[u8]) -> Result<()> {
        let decoded = match tx.read(state, key, |value| body_of(key, value).map(AnalyzedTable::from_bytes)) {
            Ok(None) => return Ok(()),
            Ok(Some(Ok(Some(analyzed)))) => Some(analyzed),
            Err(error) if !error.is_corrupt() => return Err(error.into()),
            damaged => {
                let key = String::from_utf8_lossy(key);
                tracing::warn!(%key, ?damaged, "statistics of a table are damaged: ANALYZE makes new ones");
                None
            }
        };
        self.0.insert(key.to_vec(), decoded);
        Ok(())
    }

    /// Gives the statistics to their tables. Returns the keys of those without one.
    pub(super) fn give(mut self, tables: &BTreeMap<String, Arc<Table>>) -> Vec<Vec<u8>> {
        for table in tables.values() {
            if let Some(analyzed) = self.0.remove(&key_of(table.state().id())) {
                *table.lineage().analyzed.write() = analyzed.map(Arc::new);
            }
        }
        self.0.into_keys().collect()
    }
}

impl Catalog {
    /// Makes statistics of a table from the rows that a transaction sees, of some visible columns or of all, and
    /// stores them; those of other columns stay. Plans are made anew from here on.
    ///
    /// Statistics are one row of the catalog in a commit of its own, whatever becomes of the transaction.
    pub fn analyze(
        &self,
        table: &Arc<Table>,
        tx: &Transaction,
        columns: Option<&[usize]>,
        durability: Durability,
    ) -> Result<Arc<AnalyzedTable>> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        let analyzed = AnalyzedTable::of(table, tx, (columns, now))?;
        let _changing = self.changing.lock();
        let current = table.current().ok_or_else(|| Error::NoSuchTable { table: table.name().to_owned() })?;
        let analyzed = match current.analyzed() {
            Some(earlier) => analyzed.over(&earlier, current.schema()),
            None => analyzed,
        };
        let analyzed = analyzed.within(current.schema(), STATISTICS_BYTES_MAX);
        let row = row_of(key_of(table.state().id()), &analyzed.to_bytes(current.schema()));
        self.write_rows(&[row], durability)?;
        let analyzed = Arc::new(analyzed);
        *current.lineage().analyzed.write() = Some(Arc::clone(&analyzed));
        self.changed();
        Ok(analyzed)
    }

    /// Deletes statistics without a table, which a crash may leave of a damaged one.
    pub(super) fn delete_statistics(&self, keys: Vec<Vec<u8>>) -> Result<()> {
        if keys.is_empty() {
            return Ok(());
        }
        let rows: Vec<CatalogRow> = keys.into_iter().map(|key| (key, None)).collect();
        self.write_rows(&rows, Durability::None).map(drop)
    }
}
