//! Transaction of an epoch, which begins when something first needs it.
//!
//! The rows of an epoch are computed while the commit of the one before runs. Its transaction must see that commit, so
//! whatever reads a table waits for it. Blind upserts do not: their rows are encoded and collected
//! ([`DetachedWrites`]), and the transaction takes them over when it begins. From then on all goes to the transaction.
//! A transaction is the same whenever it began: reads see the commit before, and writes come in their order.
//!
//! Parts of an operator read and write side by side, each its own rows. Where those of several parts share a page, a write reads
//! the page and may divide it, so it excludes all others, and readers ([`EpochTransaction::read_pages`]).

use crate::error::{Error, Result};
use crate::execution::committer::PendingCommit;
use arrow_array::RecordBatch;
use entresol_tables::{Catalog, EncodedUpsert, Table, Value};
use entresol_transactions::{DetachedWrites, Isolation, Transaction};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use std::sync::{Arc, OnceLock};

/// See the [module](self).
pub(crate) struct EpochTransaction {
    catalog: Arc<Catalog>,
    isolation: Isolation,
    begun: OnceLock<Arc<Transaction>>,
    /// Commit of the epoch before, if it may still run.
    before: Option<Arc<PendingCommit>>,
    collected: Mutex<Option<CollectedWrites>>,
    /// Excludes writers of rows in pages from each other, and from readers.
    pages: RwLock<()>,
}

/// Rows that a part of an operator upserts.
pub(crate) enum PartRows {
    Encoded(EncodedUpsert),
    /// Of a table whose upserts need the transaction.
    Plain(RecordBatch),
}

impl PartRows {
    /// The same for the owner of a table with pages, who knows that none has these rows.
    pub(crate) fn known(table: &Table, rows: RecordBatch) -> Result<PartRows> {
        Ok(match table.encode_known_upsert(&rows)? {
            Some(encoded) => PartRows::Encoded(encoded),
            None => PartRows::Plain(rows),
        })
    }

    /// Encodes rows as far as that needs no transaction.
    pub(crate) fn new(table: &Table, rows: RecordBatch) -> Result<PartRows> {
        Ok(match table.encode_upsert(&rows)? {
            Some(encoded) => PartRows::Encoded(encoded),
            None => PartRows::Plain(rows),
        })
    }
}

/// Writes and votes that the transaction takes over when it begins.
struct CollectedWrites {
    writes: DetachedWrites,
    /// Tables that are written, as they were defined then.
    tables: Vec<Arc<Table>>,
    /// Tables whose states have been voted for.
    votes: Vec<Arc<Table>>,
}

impl CollectedWrites {
    /// Gives the writes and votes to a transaction.
    fn give(self, transaction: &Transaction) -> Result<()> {
        self.tables.iter().try_for_each(|table| table.check_detached(transaction))?;
        transaction.take_over(self.writes)?;
        self.votes.iter().try_for_each(|table| vote_for(table, transaction))
    }
}

/// Votes for the states of a table. A definition that came meanwhile may have an index more, which rows were written into.
fn vote_for(table: &Arc<Table>, transaction: &Transaction) -> Result<()> {
    table.vote_commit(transaction)?;
    if let Some(current) = table.current().filter(|current| !Arc::ptr_eq(current, table)) {
        current.vote_commit(transaction)?;
    }
    Ok(())
}

impl EpochTransaction {
    /// Transaction that begins when it is needed, behind a commit.
    pub(crate) fn behind(
        catalog: &Arc<Catalog>,
        isolation: Isolation,
        before: Option<Arc<PendingCommit>>,
    ) -> EpochTransaction {
        let writes = DetachedWrites::new(catalog.context());
        let collected = CollectedWrites { writes, tables: Vec::new(), votes: Vec::new() };
        EpochTransaction {
            catalog: Arc::clone(catalog),
            isolation,
            begun: OnceLock::new(),
            before,
            collected: Mutex::new(Some(collected)),
            pages: RwLock::new(()),
        }
    }

    /// Transaction that begins now.
    pub(crate) fn now(catalog: &Arc<Catalog>, isolation: Isolation) -> Result<EpochTransaction> {
        let begun = OnceLock::from(catalog.begin_at(isolation)?);
        let collected = Mutex::new(None);
        let (catalog, pages) = (Arc::clone(catalog), RwLock::new(()));
        Ok(EpochTransaction { catalog, isolation, begun, before: None, collected, pages })
    }

    /// The transaction, if it has begun.
    pub(crate) fn begun(&self) -> Option<&Arc<Transaction>> {
        self.begun.get()
    }

    /// The transaction, which begins now if it has not; waits for the commit of the epoch before.
    /// [`Error::EpochBefore`] if that has failed.
    pub(crate) fn get(&self) -> Result<&Arc<Transaction>> {
        if let Some(transaction) = self.begun.get() {
            return Ok(transaction);
        }
        let mut collected = self.collected.lock();
        if let Some(transaction) = self.begun.get() {
            return Ok(transaction);
        }
        if self.before.as_ref().is_some_and(|before| !before.wait()) {
            return Err(Error::EpochBefore);
        }
        let transaction = self.catalog.begin_at(self.isolation)?;
        let taken = collected.take().map_or(Ok(()), |collected| collected.give(&transaction));
        if taken.is_err() {
            // Without what was collected, no caller may go on.
            transaction.abort();
        }
        let begun = self.begun.get_or_init(|| transaction);
        taken.map(|()| begun)
    }

    /// Collects writes, if the transaction has not begun and they read nothing.
    fn collect(
        &self,
        table: &Arc<Table>,
        write: impl FnOnce(&mut DetachedWrites) -> entresol_tables::Result<bool>,
    ) -> Result<bool> {
        let mut collected = self.collected.lock();
        let Some(CollectedWrites { writes, tables, .. }) = collected.as_mut() else { return Ok(false) };
        let is_collected = write(writes)?;
        if is_collected && !tables.iter().any(|other| Arc::ptr_eq(other, table)) {
            tables.push(Arc::clone(table));
        }
        Ok(is_collected)
    }

    /// Upserts the rows of a batch.
    pub(crate) fn upsert(&self, table: &Arc<Table>, rows: &RecordBatch) -> Result<()> {
        if self.begun.get().is_none()
            && let Some(encoded) = table.encode_upsert(rows)?
        {
            return self.upsert_encoded(table, &[encoded]);
        }
        let transaction = self.get()?;
        let _alone = table.has_pages().then(|| self.pages.write());
        Ok(table.upsert_batch(transaction, rows)?)
    }

    /// Keeps other parts from writing rows in pages, while rows are read; none if the table has no pages.
    pub(crate) fn read_pages(&self, table: &Table) -> Option<RwLockReadGuard<'_, ()>> {
        table.has_pages().then(|| self.pages.read())
    }

    /// The same for the owner of a table with pages, who knows that none has these rows.
    pub(crate) fn upsert_known(&self, table: &Arc<Table>, rows: &RecordBatch) -> Result<()> {
        match table.encode_known_upsert(rows)? {
            Some(encoded) => self.upsert_encoded(table, &[encoded]),
            None => Ok(table.upsert_batch(self.get()?, rows)?),
        }
    }

    /// Upserts rows that are encoded.
    pub(crate) fn upsert_encoded(&self, table: &Arc<Table>, rows: &[EncodedUpsert]) -> Result<()> {
        let add = |writes: &mut DetachedWrites| table.upsert_detached(writes, rows).map(|()| true);
        if self.collect(table, add)? {
            return Ok(());
        }
        let mut writes = DetachedWrites::new(self.catalog.context());
        table.upsert_detached(&mut writes, rows)?;
        let transaction = self.get()?;
        table.check_detached(transaction)?;
        Ok(transaction.take_over(writes)?)
    }

    /// Upserts what parts have encoded.
    pub(crate) fn upsert_parts(&self, table: &Arc<Table>, parts: Vec<PartRows>) -> Result<()> {
        let mut encoded = Vec::with_capacity(parts.len());
        for rows in parts {
            match rows {
                PartRows::Encoded(rows) => encoded.push(rows),
                PartRows::Plain(rows) => self.upsert(table, &rows)?,
            }
        }
        if encoded.is_empty() { Ok(()) } else { self.upsert_encoded(table, &encoded) }
    }

    /// Upserts a row.
    pub(crate) fn upsert_row(&self, table: &Arc<Table>, row: &[Value]) -> Result<()> {
        if !self.collect(table, |writes| table.upsert_row_detached(writes, row))? {
            table.upsert(self.get()?, row)?;
        }
        Ok(())
    }

    /// Votes for the states of a table.
    pub(crate) fn vote(&self, table: &Arc<Table>) -> Result<()> {
        let mut collected = self.collected.lock();
        match collected.as_mut() {
            Some(collected) => collected.votes.push(Arc::clone(table)),
            None => {
                drop(collected);
                vote_for(table, self.get()?)?;
            }
        }
        Ok(())
    }

    /// Discards all writes.
    pub(crate) fn abort(&self) {
        *self.collected.lock() = None;
        if let Some(transaction) = self.begun.get() {
            transaction.abort();
        }
    }
}
