//! Watermark of an operator, which is stored in `streams_watermarks` in the transaction that moves it.

use crate::error::Result;
use crate::event_time::EventTime;
use crate::operators::Context;
use entresol_tables::{Table, Value};
use std::sync::Arc;

pub(crate) struct StoredWatermark {
    table: Arc<Table>,
    /// Names of the topology and of the operator's state table, of a join with the side.
    key: [Value; 2],
    /// `None` if it is not loaded from the table yet.
    current: Option<EventTime>,
    /// Watermark as of the last commit, and at the end of the epoch that was sealed last.
    stored: EventTime,
    sealed: EventTime,
}

impl StoredWatermark {
    pub(crate) fn new(table: &Arc<Table>, topology: &str, operator: &str) -> StoredWatermark {
        StoredWatermark {
            table: Arc::clone(table),
            key: [topology, operator].map(Value::from),
            current: None,
            stored: EventTime::START,
            sealed: EventTime::START,
        }
    }

    /// Returns the watermark, which is read from the table if it is not in DRAM.
    pub(crate) fn load(&mut self, context: &Context<'_>) -> Result<EventTime> {
        if let Some(watermark) = self.current {
            return Ok(watermark);
        }
        let row = self.table.get(context.transaction()?, &self.key)?;
        let watermark = match row.as_ref().and_then(|row| row.get(2)) {
            Some(Value::Timestamp(watermark)) => EventTime::from_micros(*watermark),
            _ => EventTime::START,
        };
        self.current = Some(watermark);
        (self.stored, self.sealed) = (watermark, watermark);
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

    /// Writes the watermark if it has moved in this epoch.
    pub(crate) fn write(&mut self, context: &Context<'_>) -> Result<()> {
        let watermark = self.load(context)?;
        if watermark != self.sealed {
            let [topology, operator] = self.key.clone();
            let row = [topology, operator, Value::Timestamp(watermark.micros())];
            context.epoch.upsert_row(&self.table, &row)?;
            context.epoch.vote(&self.table)?;
        }
        Ok(())
    }

    pub(crate) fn sealed(&mut self) {
        self.sealed = self.current.unwrap_or(self.stored);
    }

    pub(crate) fn committed(&mut self) {
        self.stored = self.sealed;
    }

    pub(crate) fn aborted(&mut self) {
        self.current = None;
    }
}
