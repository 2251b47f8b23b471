//! A table over one structure: rows by key, ranges, writes, opening.

use super::super::independence::processor_ns;
use crate::Error;
use crate::measure::Random;
use entresol_memory::profile::Profile;
use entresol_memory::{DomainChoice, Durability, Pool, PoolOptions};
use entresol_structures::IndexStructure;
use entresol_tables::{
    Catalog, Column, DataType, Row, ScanRange, Schema, Table, TableDefinition, TableOptions, Value,
};
use entresol_transactions::StateContext;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Rows of a transaction, and of a range.
const COMMIT_ROWS: usize = 1_000;
pub(super) const RANGE_ROWS: u64 = 100;
/// Bytes of the values of a row: two numbers of eight bytes and one of four.
pub(super) const ROW_BYTES: f64 = 20.0;
const TABLE: &str = "tuples";

/// Medium of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MediumKind {
    /// Files of this machine, through the journal.
    Journal,
    /// Modelled Optane, which bills what the device takes.
    Optane,
}

impl MediumKind {
    pub(super) const ALL: [MediumKind; 2] = [MediumKind::Journal, MediumKind::Optane];

    pub(super) fn name(self) -> &'static str {
        match self {
            MediumKind::Journal => "journal",
            MediumKind::Optane => "modelled Optane",
        }
    }
}

/// Nanoseconds of a row of each operation; bytes of a row.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StructureFigures {
    pub(super) read: f64,
    pub(super) write: f64,
    pub(super) row: f64,
    pub(super) row_bytes: f64,
    /// Opening until the first answer; none where nothing can be opened.
    pub(super) opening_ms: Option<f64>,
}

/// Answers, which have to be the same over each structure.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Answers {
    pub(super) found: u64,
    pub(super) sum: i64,
    pub(super) in_ranges: u64,
    pub(super) in_all: u64,
}

/// Work for each structure: keys in random order, and which of them are read.
pub(super) struct Plan {
    pub(super) inserted: Vec<i64>,
    pub(super) read: Vec<i64>,
    pub(super) ranges: Vec<i64>,
}

impl Plan {
    /// Plan of rows with every third key, a tenth of them read, every second one of these there.
    pub(super) fn new(rows: usize, seed: u64) -> Plan {
        let mut random = Random::new(seed);
        let mut inserted: Vec<i64> = (0..rows as i64).map(|id| id * 3).collect();
        random.shuffle(&mut inserted);
        let mut below = |limit: usize| random.below(limit as u64) as i64;
        let read = (0..rows / 5).map(|at| below(rows) * 3 + (at % 2) as i64).collect();
        let ranges = (0..(rows / 1_000).max(5)).map(|_| below(rows) * 3).collect();
        Plan { inserted, read, ranges }
    }
}

/// Table over a structure.
pub(super) struct StructureTable {
    structure: IndexStructure,
    path: PathBuf,
    medium: MediumKind,
    catalog: Arc<Catalog>,
    table: Arc<Table>,
}

impl StructureTable {
    /// Empty table; on modelled Optane its caches are those of a profile.
    pub(super) fn new(
        directory: &Path,
        structure: IndexStructure,
        medium: MediumKind,
        optane: &Profile,
    ) -> Result<StructureTable, Error> {
        let path = directory.join(format!("{structure}.entresol"));
        let pool = match medium {
            MediumKind::Journal => Pool::open_or_create(&path, &on_journal())?,
            MediumKind::Optane => Pool::modelled(&PoolOptions::default(), optane)?,
        };
        let catalog = Catalog::open_or_create(StateContext::open_or_create(pool)?)?;
        let columns = [("id", DataType::BigInt), ("number", DataType::BigInt), ("kind", DataType::Int)];
        let columns = columns.map(|(name, data_type)| Column::new(name, data_type)).to_vec();
        let plain = TableDefinition::plain(Schema::new(columns, &["id"])?);
        let definition = TableDefinition { structure, ..plain };
        let table = catalog.create_table_as(TABLE, definition, TableOptions::default())?;
        Ok(StructureTable { structure, path, medium, catalog, table })
    }

    /// Runs the plan.
    pub(super) fn run(&mut self, plan: &Plan) -> Result<(StructureFigures, Answers), Error> {
        let (mut measured, mut answers) = (StructureFigures::default(), Answers::default());
        let before = self.catalog.context().pool().stats().allocated_bytes;
        measured.write = self.timed(plan.inserted.len(), || self.insert(&plan.inserted))?;
        let rows = plan.inserted.len() as f64;
        let after = self.catalog.context().pool().stats().allocated_bytes;
        measured.row_bytes = after.saturating_sub(before) as f64 / rows;
        measured.read = self.timed(plan.read.len(), || self.read(&plan.read, &mut answers))?;
        let in_ranges = plan.ranges.len() * RANGE_ROWS as usize;
        measured.row = self.timed(in_ranges, || self.ranges(&plan.ranges, &mut answers))?;
        if self.medium == MediumKind::Journal {
            let opening_ms = self.open_again(&plan.read)?;
            measured.opening_ms = Some(opening_ms);
        }
        let tx = self.catalog.begin()?;
        let mut cursor = self.table.scan(ScanRange::full());
        while cursor.next_batch(&tx, |_| answers.in_all += 1)? {}
        Ok((measured, answers))
    }

    /// Nanoseconds of each of so many: that this thread had a processor, or as billed.
    fn timed(&self, count: usize, work: impl FnOnce() -> Result<(), Error>) -> Result<f64, Error> {
        let cost = || self.catalog.context().pool().modelled_cost().unwrap_or_default();
        let (before, begin) = (cost(), processor_ns()?);
        work()?;
        let ns = match self.medium {
            MediumKind::Journal => (processor_ns()? - begin) as f64,
            MediumKind::Optane => (cost() - before).ns(),
        };
        Ok(ns / count as f64)
    }

    fn insert(&self, ids: &[i64]) -> Result<(), Error> {
        for part in ids.chunks(COMMIT_ROWS) {
            let tx = self.catalog.begin()?;
            part.iter().try_for_each(|id| self.table.insert(&tx, &row(*id)))?;
            tx.commit(Durability::None)?;
        }
        Ok(())
    }

    fn read(&self, ids: &[i64], answers: &mut Answers) -> Result<(), Error> {
        let tx = self.catalog.begin()?;
        for id in ids {
            if let Some(found) = self.table.get(&tx, &[Value::BigInt(*id)])? {
                answers.found += 1;
                if let Value::BigInt(number) = found[1] {
                    answers.sum = answers.sum.wrapping_add(number);
                }
            }
        }
        Ok(())
    }

    fn ranges(&self, first: &[i64], answers: &mut Answers) -> Result<(), Error> {
        let tx = self.catalog.begin()?;
        for id in first {
            let (first, end) = ([Value::BigInt(*id)], [Value::BigInt(*id + 3 * RANGE_ROWS as i64)]);
            let range = ScanRange::between(Bound::Included(&first), Bound::Excluded(&end));
            let (mut cursor, mut sum) = (self.table.scan(range), 0_i64);
            while cursor.next_batch(&tx, |row| {
                answers.in_ranges += 1;
                sum = sum.wrapping_add(row.bigint(1));
            })? {}
            answers.sum = answers.sum.wrapping_add(sum);
        }
        Ok(())
    }

    /// Closes the database and opens it again; milliseconds until a key is read.
    fn open_again(&mut self, keys: &[i64]) -> Result<f64, Error> {
        // Something has to stand in the fields meanwhile.
        let other = Pool::volatile(&PoolOptions::default())?;
        let empty = Catalog::open_or_create(StateContext::open_or_create(other)?)?;
        let pool = Arc::clone(self.catalog.context().pool());
        self.table =
            empty.create_table(TABLE, Schema::clone(self.table.schema()), TableOptions::default())?;
        drop(std::mem::replace(&mut self.catalog, empty));
        pool.close()?;
        drop(pool);
        let begin = Instant::now();
        let pool = Pool::open_or_create(&self.path, &on_journal())?;
        self.catalog = Catalog::open_or_create(StateContext::open_or_create(pool)?)?;
        self.table = self.catalog.table(TABLE)?;
        let tx = self.catalog.begin()?;
        self.table.get(&tx, &[Value::BigInt(keys[0])])?;
        let ms = begin.elapsed().as_secs_f64() * 1e3;
        if self.table.definition().structure != self.structure {
            return Err(Error::Invalid(format!("{}: another structure after opening", self.structure)));
        }
        Ok(ms)
    }
}

fn on_journal() -> PoolOptions {
    PoolOptions { domain: DomainChoice::Journal, ..PoolOptions::default() }
}

fn row(id: i64) -> Row {
    vec![
        Value::BigInt(id),
        Value::BigInt(id.wrapping_mul(0x5851_F42D_4C95_7F2D)),
        Value::Int((id % 97) as i32),
    ]
}
