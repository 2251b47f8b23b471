//! Watermark of an operator, which is stored in `streams_watermarks` in the transaction that moves it.

use crate::error::Result;
use crate::event_time::EventTime;
use entresol_tables::{Table, Value};
use entresol_transactions::Transaction;
use std::sync::Arc;

pub(crate) struct StoredWatermark {
    table: Arc<Table>,
    /// Names of the topology and of the operator's state table, of a join with the side.
    key: [Value; 2],
    /// `None` if it is not loaded from the table yet.
    current: Option<EventTime>,
    /// Watermark as of the last commit.
    stored: EventTime,
}

impl StoredWatermark {
    pub(crate) fn new(table: &Arc<Table>, topology: &str, operator: &str) -> StoredWatermark {
        StoredWatermark {
            table: Arc::clone(table),
            key: [topology, operator].map(Value::from),
            current: None,
            stored: EventTime::START,
        }
    }

    /// Returns the watermark, which is read from the table if it is not in DRAM.
    pub(crate) fn load(&mut self, tx: &Transaction) -> Result<EventTime> {
        if let Some(watermark) = self.current {
            return Ok(watermark);
        }
        let row = self.table.get(tx, &self.key)?;
        let watermark = match row.as_ref().and_then(|row| row.get(2)) {
            Some(Value::Timestamp(watermark)) => EventTime::from_micros(*watermark),
            _ => EventTime::START,
        };
        self.current = Some(watermark);
        self.stored = watermark;
        Ok(watermark)
    }

    /// Watermark in DRAM, after it was loaded.
    pub(crate) fn current(&self) -> EventTime {
        self.current.unwrap_or(self.stored)
    }

    /// Moves the watermark forward, after it was loaded.
    pub(crate) fn raise(&mut self, to: EventTime) {
        self.current = self.current.map(|watermark| watermark.max(to));
    }

    /// Writes the watermark if it has moved since the last commit.
    pub(crate) fn write(&mut self, tx: &Transaction) -> Result<()> {
        let watermark = self.load(tx)?;
        if watermark != self.stored {
            let [topology, operator] = self.key.clone();
            self.table.upsert(tx, &[topology, operator, Value::Timestamp(watermark.micros())])?;
            self.table.vote_commit(tx)?;
        }
        Ok(())
    }

    pub(crate) fn committed(&mut self) {
        self.stored = self.current.unwrap_or(self.stored);
    }

    pub(crate) fn aborted(&mut self) {
        self.current = None;
    }
}
