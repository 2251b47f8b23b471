//! Tables in which topologies store their durable state besides operator state.
//!
//! `streams_positions`: per topology and source the position after the last committed tuple.
//! `streams_splits`: the same per split of a source that has splits, with the checksum of its head.
//! `streams_watermarks`: per topology and window operator (named by its state table) the watermark; of a join one per
//! side.
//!
//! A position is written in the transaction of its tuples' effects, after a check that the stored one is the
//! one that this run read or wrote last: if the same topology ran twice at once, neither could count tuples
//! twice.

use crate::error::{Error, Result};
use crate::owned_tables::{owner_of_state, state_tables};
use crate::sink_lengths::SINKS_TABLE;
use crate::sources::{Head, Position, Split, SplitPosition};
use entresol_memory::Durability;
use entresol_tables::{
    Catalog, Column, DataType, Row, ScanRange, Schema, Table, TableDefinition, TableOptions, Value, Verify,
};
use entresol_transactions::Transaction;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The table of source positions.
pub const POSITIONS_TABLE: &str = "streams_positions";
/// The table of positions in splits.
pub const SPLITS_TABLE: &str = "streams_splits";
/// Ends of the names under which a join stores the watermarks of its sides, behind its state table.
pub(crate) const JOIN_SIDES: [&str; 2] = [" left", " right"];
/// The table of watermarks.
pub const WATERMARKS_TABLE: &str = "streams_watermarks";

/// Creates the two tables if they are missing.
pub(crate) fn open_tables(catalog: &Catalog) -> Result<(Arc<Table>, Arc<Table>)> {
    let bigint = |name: &str| Column::new(name, DataType::BigInt).not_null();
    let varchar = |name: &str| Column::new(name, DataType::Varchar).not_null();
    let columns = vec![
        varchar("topology"),
        varchar("source"),
        bigint("position"),
        bigint("line"),
        bigint("tuples"),
        bigint("rejected"),
    ];
    let positions = Schema::new(columns, &["topology", "source"])?;
    let columns =
        vec![varchar("topology"), varchar("operator"), Column::new("watermark", DataType::Timestamp)];
    let watermarks = Schema::new(columns, &["topology", "operator"])?;
    Ok((
        open_owned(
            catalog,
            POSITIONS_TABLE,
            TableDefinition::plain(positions),
            None,
            TableOptions::default(),
        )?,
        open_owned(
            catalog,
            WATERMARKS_TABLE,
            TableDefinition::plain(watermarks),
            None,
            TableOptions::default(),
        )?,
    ))
}

/// Creates the table of positions in splits if it is missing.
pub(crate) fn open_splits_table(catalog: &Catalog) -> Result<Arc<Table>> {
    let bigint = |name: &str| Column::new(name, DataType::BigInt).not_null();
    let varchar = |name: &str| Column::new(name, DataType::Varchar).not_null();
    let columns = vec![
        varchar("topology"),
        varchar("source"),
        varchar("split"),
        bigint("position"),
        bigint("line"),
        bigint("head_bytes"),
        bigint("head_checksum"),
    ];
    let schema = Schema::new(columns, &["topology", "source", "split"])?;
    open_owned(catalog, SPLITS_TABLE, TableDefinition::plain(schema), None, TableOptions::default())
}

/// Creates a table that only a topology writes, or only topologies, if it is missing; takes over one that has
/// no owner.
pub(crate) fn open_owned(
    catalog: &Catalog,
    name: &str,
    definition: TableDefinition,
    topology: Option<&str>,
    options: TableOptions,
) -> Result<Arc<Table>> {
    let owner = owner_of_state(topology);
    let definition = TableDefinition { owner: Some(owner.clone()), ..definition };
    let options = TableOptions { if_not_exists: true, ..options };
    let table = catalog.create_table_as(name, definition, options)?;
    match &table.definition().owner {
        Some(found) if *found == owner => Ok(table),
        Some(found) => Err(Error::InvalidTopology {
            topology: topology.unwrap_or_default().to_owned(),
            reason: format!("table {name} is state of {found}"),
        }),
        None => {
            let own = |definition: &mut TableDefinition| {
                definition.owner = Some(owner);
                Ok(())
            };
            Ok(catalog.redefine(name, None::<Verify<'_, entresol_tables::Error>>, own)?)
        }
    }
}

/// Removes what a topology has stored: its positions and watermarks, and the tables that are its state. It
/// must not run.
pub fn remove_state(catalog: &Catalog, topology: &str) -> Result<()> {
    for table in [POSITIONS_TABLE, SPLITS_TABLE, SINKS_TABLE, WATERMARKS_TABLE] {
        remove_rows(catalog, table, topology, |_| true)?;
    }
    remove_tables(catalog, topology, |_| true)
}

/// Removes what a topology with other steps has no use for: the state in these tables, with its watermarks, and
/// the positions of all sources but these. It must not run. To repeat it changes nothing.
pub fn remove_unused_state(
    catalog: &Catalog,
    topology: &str,
    states: &[String],
    sources: &[String],
) -> Result<()> {
    let is_of_state = |operator: &str| {
        states.iter().any(|state| JOIN_SIDES.iter().any(|side| operator == format!("{state}{side}")))
            || states.iter().any(|state| operator == state)
    };
    remove_rows(catalog, WATERMARKS_TABLE, topology, is_of_state)?;
    for table in [POSITIONS_TABLE, SPLITS_TABLE] {
        remove_rows(catalog, table, topology, |source| sources.iter().all(|used| used != source))?;
    }
    remove_tables(catalog, topology, |table| states.iter().any(|state| state == table))
}

/// Removes the rows of a topology whose second column is one of these.
fn remove_rows(
    catalog: &Catalog,
    table: &str,
    topology: &str,
    is_removed: impl Fn(&str) -> bool,
) -> Result<()> {
    let Ok(table) = catalog.table(table) else { return Ok(()) };
    let tx = catalog.begin()?;
    let rows = table.scan(ScanRange::prefix(&[Value::from(topology)])).rows(&tx)?;
    let is_removed = |row: &&Row| matches!(row.get(1), Some(Value::Varchar(second)) if is_removed(second));
    let keys: Vec<Row> = rows.iter().filter(is_removed).map(|row| table.key_of(row)).collect();
    if !keys.is_empty() {
        table.delete_many(&tx, &keys)?;
        tx.commit(Durability::Sync)?;
    }
    Ok(())
}

fn remove_tables(catalog: &Catalog, topology: &str, is_removed: impl Fn(&str) -> bool) -> Result<()> {
    for table in state_tables(catalog, topology).iter().filter(|table| is_removed(table)) {
        catalog.drop_table(table)?;
    }
    Ok(())
}

/// Sets the position of a source of a topology, which must not run: the next run reads what is behind it. The
/// positions in its splits are forgotten, but for the one that is given. What was read so far counts on.
pub fn seek(
    catalog: &Catalog,
    topology: &str,
    source: &str,
    position: Position,
    split: Option<&SplitPosition>,
) -> Result<()> {
    let (positions, _) = open_tables(catalog)?;
    let tx = catalog.begin()?;
    let mut stored = StoredPosition::open(&positions, &tx, topology, source)?;
    let before = stored.stored().unwrap_or_default();
    stored.write(&tx, SourceProgress { position, ..before })?;
    let splits = open_splits_table(catalog)?;
    let of = [Value::from(topology), Value::from(source)];
    let known = splits.scan(ScanRange::prefix(&of)).rows(&tx)?;
    let keys: Vec<Row> = known.iter().map(|row| splits.key_of(row)).collect();
    if !keys.is_empty() {
        splits.delete_many(&tx, &keys)?;
    }
    if let Some(SplitPosition { split, position }) = split {
        splits.upsert(&tx, &split_row(topology, source, split, *position))?;
    }
    tx.commit(Durability::Sync)?;
    Ok(())
}

/// Row of a position in a split.
fn split_row(topology: &str, source: &str, split: &Split, position: Position) -> Row {
    let numbers = [position.offset, position.line, split.head.bytes, u64::from(split.head.checksum)];
    let names = [topology, source, &split.name].map(Value::from);
    names.into_iter().chain(numbers.map(|number| Value::BigInt(number.cast_signed()))).collect()
}

/// Stored progress of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct SourceProgress {
    pub(crate) position: Position,
    /// Tuples and bad records up to the position, over all runs.
    pub(crate) tuples: u64,
    pub(crate) rejected: u64,
}

impl SourceProgress {
    fn from_row(row: &[Value]) -> Option<SourceProgress> {
        let number = |at: usize| match row.get(at) {
            Some(Value::BigInt(number)) => u64::try_from(*number).ok(),
            _ => None,
        };
        let position = Position { offset: number(2)?, line: number(3)? };
        Some(SourceProgress { position, tuples: number(4)?, rejected: number(5)? })
    }
}

/// The stored position of one source.
pub(crate) struct StoredPosition {
    table: Arc<Table>,
    topology: String,
    source: String,
    stored: Option<SourceProgress>,
    written: Option<SourceProgress>,
}

impl StoredPosition {
    /// Reads the position that an earlier run stored.
    pub(crate) fn open(
        table: &Arc<Table>,
        tx: &Transaction,
        topology: &str,
        source: &str,
    ) -> Result<StoredPosition> {
        let mut position = StoredPosition {
            table: Arc::clone(table),
            topology: topology.to_owned(),
            source: source.to_owned(),
            stored: None,
            written: None,
        };
        position.stored = position.read(tx)?;
        Ok(position)
    }

    pub(crate) fn stored(&self) -> Option<SourceProgress> {
        self.stored
    }

    fn key(&self) -> Row {
        vec![Value::from(self.topology.as_str()), Value::from(self.source.as_str())]
    }

    fn read(&self, tx: &Transaction) -> Result<Option<SourceProgress>> {
        let Some(row) = self.table.get(tx, &self.key())? else { return Ok(None) };
        let progress = SourceProgress::from_row(&row);
        progress.map(Some).ok_or_else(|| Error::InvalidTopology {
            topology: self.topology.clone(),
            reason: format!("table {POSITIONS_TABLE} has a malformed row for source {}", self.source),
        })
    }

    /// Writes the position into the transaction, if it has changed.
    pub(crate) fn write(&mut self, tx: &Transaction, progress: SourceProgress) -> Result<()> {
        if self.stored == Some(progress) {
            return Ok(());
        }
        let found = self.read(tx)?;
        if found != self.stored {
            let offset = |progress: Option<SourceProgress>| progress.map_or(-1, |p| p.position.offset as i64);
            return Err(Error::PositionMoved {
                topology: self.topology.clone(),
                source_name: self.source.clone(),
                stored: offset(found),
                expected: offset(self.stored),
            });
        }
        let mut row = self.key();
        let numbers = [progress.position.offset, progress.position.line, progress.tuples, progress.rejected];
        row.extend(numbers.map(|number| Value::BigInt(number as i64)));
        self.table.upsert(tx, &row)?;
        self.written = Some(progress);
        Ok(())
    }

    /// Called after the transaction has committed.
    pub(crate) fn committed(&mut self) {
        if let Some(written) = self.written.take() {
            self.stored = Some(written);
        }
    }

    /// Called after the transaction was aborted.
    pub(crate) fn aborted(&mut self) {
        self.written = None;
    }
}

/// Positions in the splits of a source.
pub(crate) struct StoredSplits {
    table: Arc<Table>,
    topology: String,
    source: String,
    /// Positions that changed in the epoch.
    changed: ChangedSplits,
}

/// Positions in splits, by their names.
pub(crate) type ChangedSplits = BTreeMap<Arc<str>, SplitPosition>;

impl StoredSplits {
    pub(crate) fn new(table: &Arc<Table>, topology: &str, source: &str) -> StoredSplits {
        StoredSplits {
            table: Arc::clone(table),
            topology: topology.to_owned(),
            source: source.to_owned(),
            changed: BTreeMap::new(),
        }
    }

    /// Reads the positions that an earlier run stored.
    pub(crate) fn read(&self, tx: &Transaction) -> Result<Vec<SplitPosition>> {
        let of = [Value::from(self.topology.as_str()), Value::from(self.source.as_str())];
        let rows = self.table.scan(ScanRange::prefix(&of)).rows(tx)?;
        rows.iter().map(|row| split_of(row).ok_or_else(|| self.malformed())).collect()
    }

    fn malformed(&self) -> Error {
        Error::InvalidTopology {
            topology: self.topology.clone(),
            reason: format!("table {SPLITS_TABLE} has a malformed row for source {}", self.source),
        }
    }

    /// Notes the position behind the tuples of a split that were consumed.
    pub(crate) fn moved(&mut self, split: &Split, position: Position) {
        let moved = SplitPosition { split: split.clone(), position };
        self.changed.insert(Arc::clone(&split.name), moved);
    }

    /// Returns true if a position has changed since the last commit.
    pub(crate) fn has_moved(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Writes the changed positions into the transaction, and votes for them.
    pub(crate) fn write(&self, tx: &Transaction) -> Result<()> {
        if self.changed.is_empty() {
            return Ok(());
        }
        for SplitPosition { split, position } in self.changed.values() {
            self.table.upsert(tx, &split_row(&self.topology, &self.source, split, *position))?;
        }
        self.table.vote_commit(tx)?;
        Ok(())
    }

    /// Takes the positions that changed in the epoch, which ends.
    pub(crate) fn take_changed(&mut self) -> ChangedSplits {
        std::mem::take(&mut self.changed)
    }

    /// Adds positions that changed later than those that are there.
    pub(crate) fn add_changed(&mut self, changed: ChangedSplits) {
        self.changed.extend(changed);
    }
}

fn split_of(row: &[Value]) -> Option<SplitPosition> {
    let number = |at: usize| match row.get(at) {
        Some(Value::BigInt(number)) => u64::try_from(*number).ok(),
        _ => None,
    };
    let Some(Value::Varchar(name)) = row.get(2) else { return None };
    let head = Head { bytes: number(5)?, checksum: u32::try_from(number(6)?).ok()? };
    let split = Split { name: Arc::from(&**name), head };
    Some(SplitPosition { split, position: Position { offset: number(3)?, line: number(4)? } })
}
