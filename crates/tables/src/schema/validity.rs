//! Validity of the definitions of a table.
//!
//! ```text
//!   CREATE TABLE       CREATE INDEX        ADD COLUMN
//!   ├─── Table 1 ──────┤
//!                      ├─── Table 2 ───────┤
//!                                          ├─── Table 3 ──▶      timestamps of snapshots
//! ```
//!
//! - A transaction writes through the definition that is valid at its snapshot and no other: the transactions
//!   crate refuses those that began before a change ([`StateContext::refuse_older_writers`]), and this module
//!   those that come after it with an old object.
//! - Reading through an old definition goes on as long as rows keep their schema version.
//!
//! All of it is volatile: after a restart there is one definition, the catalog's.
//!
//! [`StateContext::refuse_older_writers`]: entresol_transactions::StateContext::refuse_older_writers

use crate::error::{Error, Result};
use crate::statistics::AnalyzedTable;
use crate::table::Table;
use entresol_transactions::{AtomicTimestamp, INFINITY, Timestamp, Transaction};
use parking_lot::{Mutex, RwLock};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

/// Snapshots that may use a definition.
#[derive(Debug)]
pub(crate) struct Validity {
    since: AtomicTimestamp,
    write_until: AtomicTimestamp,
    read_until: AtomicTimestamp,
}

impl Default for Validity {
    fn default() -> Validity {
        Validity {
            since: AtomicTimestamp::new(Timestamp::START),
            write_until: AtomicTimestamp::new(INFINITY),
            read_until: AtomicTimestamp::new(INFINITY),
        }
    }
}

impl Validity {
    /// Begins the validity of the definition at this timestamp.
    pub(crate) fn begin(&self, at: Timestamp) {
        self.since.store(at, Ordering::Release);
    }

    /// Ends it; `for_readers` if rows of another schema version will be written.
    pub(crate) fn end(&self, at: Timestamp, for_readers: bool) {
        if for_readers {
            self.read_until.store(at, Ordering::Release);
        }
        self.write_until.store(at, Ordering::Release);
    }

    pub(crate) fn check_reader(&self, table: &str, tx: &Transaction) -> Result<()> {
        if !tx.sees(self.read_until.load(Ordering::Acquire)) {
            return Ok(());
        }
        Err(Error::TableChanged { table: table.to_owned() })
    }

    /// Returns true if the transaction writes through this definition, false if through a later one.
    fn admits_writer(&self, table: &str, tx: &Transaction) -> Result<bool> {
        // It would get a conflict when it commits: better now.
        if !tx.sees(self.since.load(Ordering::Acquire)) {
            return Err(Error::TableChanged { table: table.to_owned() });
        }
        Ok(!tx.sees(self.write_until.load(Ordering::Acquire)))
    }
}

/// State that all definitions of one table share.
#[derive(Debug, Default)]
pub(crate) struct Lineage {
    current: RwLock<Weak<Table>>,
    /// Next row number, once one was needed.
    pub(crate) next_rowid: Mutex<Option<i64>>,
    /// Statistics of the last ANALYZE.
    pub(crate) analyzed: RwLock<Option<Arc<AnalyzedTable>>>,
    /// Rows of the last page that was read or written; 0 before.
    page_rows: AtomicU32,
}

impl Lineage {
    pub(crate) fn set_current(&self, table: &Arc<Table>) {
        *self.current.write() = Arc::downgrade(table);
    }

    /// Notes the rows of a page.
    pub(crate) fn note_page(&self, rows: usize) {
        self.page_rows.store(u32::try_from(rows).unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    /// Rows of an entry of the state, about.
    pub(crate) fn rows_of_entry(&self) -> u64 {
        u64::from(self.page_rows.load(Ordering::Relaxed)).max(1)
    }
}

impl Table {
    /// Definition that the catalog has now; `None` once the table is dropped.
    pub fn current(&self) -> Option<Arc<Table>> {
        self.lineage().current.read().upgrade().filter(|table| !table.state().is_dropped())
    }

    /// Statistics of the last ANALYZE, or of that behind a load; none if there was none.
    pub fn analyzed(&self) -> Option<Arc<AnalyzedTable>> {
        self.lineage().analyzed.read().clone()
    }

    /// Definition through which the transaction has to write: `None` if it is this one.
    pub(crate) fn writer(&self, tx: &Transaction) -> Result<Option<Arc<Table>>> {
        if self.validity().admits_writer(self.name(), tx)? {
            return Ok(None);
        }
        let changed = || Error::TableChanged { table: self.name().to_owned() };
        let current = self.lineage().current.read().upgrade().ok_or_else(changed)?;
        // Rows mean the same if neither their columns nor their constraints have changed.
        let (old, new) = (self.definition(), current.definition());
        let same = old.schema == new.schema && old.defaults == new.defaults && old.checks == new.checks;
        if same && current.validity().admits_writer(self.name(), tx)? {
            Ok(Some(current))
        } else {
            Err(changed())
        }
    }
}
