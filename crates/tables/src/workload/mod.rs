//! Recorded workload of a table: what its queries asked, and how many rows were read by key and written.
//!
//! ```text
//!   row by key, write ──▶ counters in stripes, a line of the cache for each thread
//!   planned scan ───────▶ query class: conditions by column and kind, columns read ──▶ runs, rows, time, examples
//!   index, Elf ─────────▶ uses by name
//! ```
//!
//! - All definitions of a table share one [`Workload`], as long as its columns stay or others are added behind them; one
//!   that loses a column begins with an empty workload, since classes name columns by position.
//! - A row by key adds to a counter that other threads seldom write. A planned query takes a mutex, which is held
//!   for a look-up in a small map.
//! - It is volatile: a restart begins with an empty workload. No choice relies on it for right results.
//!
//! Memory: [`CLASSES_MAX`] classes with [`EXAMPLES_MAX`] sets of conditions each, of at most [`EXAMPLE_BYTES_MAX`] bytes
//! beside functions on strings, which have the strings of the query; the class with the fewest runs makes room for a
//! new one.

mod counters;

pub use counters::{RowCounts, RowOperation};

use crate::advice::LastDecision;
use crate::columns::condition::{ColumnCondition, ColumnFilter};
use counters::Counters;
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Maximum number of query classes of a table.
pub const CLASSES_MAX: usize = 64;
/// Maximum number of sets of conditions that are stored of a class.
pub const EXAMPLES_MAX: usize = 4;
/// Maximum number of indexes of which uses are counted, those that were dropped among them.
const INDEXES_MAX: usize = 128;
/// Maximum bytes of the values of an example's conditions, sets among them: of more their bounds are stored.
pub const EXAMPLE_BYTES_MAX: usize = 64 << 10;
/// Maximum conditions of an example: others are not recorded.
const CONDITIONS_MAX: usize = 64;

/// Kind of a condition on a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ConditionKind {
    /// One value.
    Equal,
    /// Several values.
    In,
    /// Values within bounds.
    Range,
    /// NULL, or all but NULL.
    Null,
}

impl ConditionKind {
    /// Kind of a condition. Lists of strings are ranges: a condition on strings does not tell them apart.
    pub fn of(condition: &ColumnCondition) -> ConditionKind {
        match condition {
            ColumnCondition::Between { least, greatest } if least == greatest => ConditionKind::Equal,
            ColumnCondition::Doubles { least, greatest } if least == greatest => ConditionKind::Equal,
            ColumnCondition::TextsWithin { least: Some(least), greatest: Some(greatest), .. }
                if least == greatest =>
            {
                ConditionKind::Equal
            }
            ColumnCondition::Among(_) => ConditionKind::In,
            ColumnCondition::Null | ColumnCondition::NotNull => ConditionKind::Null,
            _ => ConditionKind::Range,
        }
    }

    /// Returns true if rows that meet it have one of a few values, so that an index may go on with its next column.
    pub fn fixes_values(self) -> bool {
        matches!(self, ConditionKind::Equal | ConditionKind::In)
    }
}

/// Formats the kind as an operator: `=`, `IN`, `range`, `IS NULL`.
impl fmt::Display for ConditionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ConditionKind::Equal => "=",
            ConditionKind::In => "IN",
            ConditionKind::Range => "range",
            ConditionKind::Null => "IS NULL",
        })
    }
}

/// Queries that differ in the values of their conditions alone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueryClass {
    /// Conditions by column, each once, ascending.
    pub conditions: Vec<(usize, ConditionKind)>,
    /// Columns whose values the scan returns, ascending.
    pub columns: Vec<usize>,
}

impl QueryClass {
    /// Class of a scan of some columns with conditions.
    pub fn new(filters: &[ColumnFilter], columns: &[usize]) -> QueryClass {
        let kinds = filters.iter().map(|filter| (filter.column, ConditionKind::of(&filter.condition)));
        let mut conditions: Vec<_> = kinds.collect();
        conditions.sort_unstable();
        conditions.dedup();
        let mut columns = columns.to_vec();
        columns.sort_unstable();
        columns.dedup();
        QueryClass { conditions, columns }
    }
}

/// Counts of a query class.
#[derive(Debug, Clone, Default)]
pub struct ClassCounts {
    /// Number of runs.
    pub runs: u64,
    /// Rows that the scans returned, before conditions that are checked behind them.
    pub rows: u64,
    /// Processor time of the scans since the table has its layout and indexes.
    pub elapsed: Duration,
    /// Runs since then.
    pub timed_runs: u64,
    /// Conditions of some runs.
    pub examples: Vec<Arc<[ColumnFilter]>>,
}

/// Workload of a table since the database was opened, or since it was reset.
#[derive(Debug, Default)]
pub struct Workload {
    rows: Counters,
    classes: Mutex<HashMap<QueryClass, ClassCounts>>,
    index_uses: RwLock<BTreeMap<String, AtomicU64>>,
    /// Classes that made room for others.
    replaced: AtomicU64,
    since: Mutex<Option<Instant>>,
    /// Last decision about the layout `auto`.
    pub(crate) decision: LastDecision,
}

/// Scan whose runs are recorded.
#[derive(Debug)]
pub struct RecordedScan {
    workload: Arc<Workload>,
    class: QueryClass,
    filters: Arc<[ColumnFilter]>,
    /// The same, as they are stored.
    example: Arc<[ColumnFilter]>,
}

/// Conditions as they are stored: those with more than [`EXAMPLE_BYTES_MAX`] bytes of values have bounds in their place.
fn example_of(filters: &Arc<[ColumnFilter]>) -> Arc<[ColumnFilter]> {
    let bytes: usize = filters.iter().map(|filter| filter.condition.bytes_of_values()).sum();
    if bytes <= EXAMPLE_BYTES_MAX {
        return Arc::clone(filters);
    }
    let bounded = |filter: &ColumnFilter| ColumnFilter {
        column: filter.column,
        condition: filter.condition.without_values(),
    };
    filters.iter().map(bounded).collect()
}

impl Workload {
    /// Counts rows that an operation read or wrote by key.
    #[inline]
    pub fn note_rows(&self, operation: RowOperation, rows: u64) {
        self.rows.add(operation, rows);
    }

    /// Counts a use of an index, or of an Elf.
    pub fn note_index(&self, name: &str) {
        if let Some(count) = self.index_uses.read().get(name) {
            count.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let mut uses = self.index_uses.write();
        if uses.len() < INDEXES_MAX || uses.contains_key(name) {
            uses.entry(name.to_owned()).or_default().fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Scan of this workload whose runs are to be recorded.
    pub fn scan(self: &Arc<Workload>, filters: &[ColumnFilter], columns: &[usize]) -> RecordedScan {
        let filters = &filters[..filters.len().min(CONDITIONS_MAX)];
        let class = QueryClass::new(filters, columns);
        let filters: Arc<[ColumnFilter]> = filters.into();
        RecordedScan { workload: Arc::clone(self), class, example: example_of(&filters), filters }
    }

    /// Rows that were read and written by key.
    pub fn row_counts(&self) -> RowCounts {
        self.rows.sums()
    }

    /// Classes of queries with their counts, the most frequent ones first.
    pub fn classes(&self) -> Vec<(QueryClass, ClassCounts)> {
        let classes = self.classes.lock();
        let mut all: Vec<_> = classes.iter().map(|(class, counts)| (class.clone(), counts.clone())).collect();
        drop(classes);
        all.sort_by(|(class, counts), (other, more)| {
            more.runs.cmp(&counts.runs).then_with(|| class.cmp(other))
        });
        all
    }

    /// Number of uses of an index, or of an Elf.
    pub fn index_uses(&self, name: &str) -> u64 {
        self.index_uses.read().get(name).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// Number of classes that made room for others.
    pub fn replaced_classes(&self) -> u64 {
        self.replaced.load(Ordering::Relaxed)
    }

    /// Time since the first query was recorded.
    pub fn age(&self) -> Duration {
        self.since.lock().map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Forgets the times, which were those of another layout or of other indexes.
    pub(crate) fn forget_times(&self) {
        for counts in self.classes.lock().values_mut() {
            (counts.elapsed, counts.timed_runs) = (Duration::ZERO, 0);
        }
    }

    /// Forgets all of it.
    pub fn reset(&self) {
        self.rows.reset();
        self.classes.lock().clear();
        self.index_uses.write().clear();
        self.replaced.store(0, Ordering::Relaxed);
        *self.since.lock() = None;
    }

    /// Notes something of the class of a scan, which is made if it is not there.
    fn with_class(&self, scan: &RecordedScan, note: impl FnOnce(&mut ClassCounts)) {
        let mut classes = self.classes.lock();
        if let Some(counts) = classes.get_mut(&scan.class) {
            return note(counts);
        }
        if classes.len() >= CLASSES_MAX {
            let rarest = classes.iter().min_by_key(|(_, counts)| counts.runs);
            let rarest = rarest.map(|(class, _)| class.clone());
            rarest.and_then(|class| classes.remove(&class));
            self.replaced.fetch_add(1, Ordering::Relaxed);
        }
        note(classes.entry(scan.class.clone()).or_default());
        assert!(classes.len() <= CLASSES_MAX, "query classes are bounded");
    }
}

impl RecordedScan {
    /// Records that a run begins.
    pub fn begin(&self) {
        self.workload.since.lock().get_or_insert_with(Instant::now);
        self.workload.with_class(self, |counts| {
            let slot = counts.runs as usize % EXAMPLES_MAX;
            counts.runs += 1;
            counts.timed_runs += 1;
            match counts.examples.get_mut(slot) {
                Some(example) => *example = Arc::clone(&self.example),
                None => counts.examples.push(Arc::clone(&self.example)),
            }
        });
    }

    /// Records what a part of a run read, and the processor time that it took.
    pub fn end(&self, rows: u64, elapsed: Duration) {
        // One that made room for another class meanwhile, or was forgotten, does not come back without its run.
        if let Some(counts) = self.workload.classes.lock().get_mut(&self.class) {
            counts.rows += rows;
            counts.elapsed += elapsed;
        }
    }

    /// Its class.
    pub fn class(&self) -> &QueryClass {
        &self.class
    }

    /// Its conditions.
    pub fn filters(&self) -> &[ColumnFilter] {
        &self.filters
    }

    /// Workload that it is recorded in.
    pub fn workload(&self) -> &Workload {
        &self.workload
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::condition::IntegerSet;

    fn between(column: usize, least: i64, greatest: i64) -> ColumnFilter {
        ColumnFilter { column, condition: ColumnCondition::Between { least, greatest } }
    }

    #[test]
    fn queries_that_differ_in_values_are_one_class() {
        let workload = Arc::new(Workload::default());
        for value in 0..10 {
            let scan = workload.scan(&[between(3, value, value), between(1, 0, value + 1)], &[2, 0, 2]);
            scan.begin();
            scan.end(5, Duration::from_micros(7));
        }
        workload.scan(&[between(3, 0, 1)], &[0]).begin();
        let classes = workload.classes();
        assert_eq!(classes.len(), 2);
        let (class, counts) = &classes[0];
        assert_eq!(class.conditions, [(1, ConditionKind::Range), (3, ConditionKind::Equal)]);
        assert_eq!(class.columns, [0, 2]);
        assert_eq!((counts.runs, counts.rows, counts.elapsed), (10, 50, Duration::from_micros(70)));
        assert_eq!(counts.examples.len(), EXAMPLES_MAX);
        workload.reset();
        assert!(workload.classes().is_empty());
    }

    #[test]
    fn the_rarest_class_makes_room() {
        let workload = Arc::new(Workload::default());
        for column in 0..CLASSES_MAX {
            let scan = workload.scan(&[between(column, 0, 1)], &[0]);
            (0..if column == 7 { 1 } else { 2 }).for_each(|_| scan.begin());
        }
        workload.scan(&[], &[1]).begin();
        let classes = workload.classes();
        assert_eq!(classes.len(), CLASSES_MAX);
        assert_eq!(workload.replaced_classes(), 1);
        assert!(classes.iter().all(|(class, _)| class.conditions != [(7, ConditionKind::Range)]));
        assert!(classes.iter().any(|(class, _)| class.conditions.is_empty()));
    }

    #[test]
    fn the_end_of_a_run_brings_no_class_back() {
        let workload = Arc::new(Workload::default());
        let running = workload.scan(&[between(0, 0, 1)], &[0]);
        running.begin();
        for column in 1..=CLASSES_MAX {
            let scan = workload.scan(&[between(column, 0, 1)], &[0]);
            (0..2).for_each(|_| scan.begin());
        }
        assert_eq!(workload.replaced_classes(), 1, "that of the run");
        running.end(7, Duration::from_micros(7));
        assert_eq!(workload.replaced_classes(), 1);
        assert!(
            workload.classes().iter().all(|(class, counts)| class != running.class() && counts.runs == 2)
        );
        workload.reset();
        running.end(7, Duration::from_micros(7));
        assert!(workload.classes().is_empty());
    }

    #[test]
    fn of_large_sets_the_bounds_are_stored() {
        let among = |column: usize, greatest: i64| {
            let set = IntegerSet::new(&[-7, greatest], 1 << 30).unwrap();
            ColumnFilter { column, condition: ColumnCondition::Among(Arc::new(set)) }
        };
        let text = "x".repeat(EXAMPLE_BYTES_MAX + 1);
        let texts = ColumnCondition::TextsWithin {
            least: Some(text.as_str().into()),
            greatest: None,
            is_met: Arc::new(|_| true),
        };
        let workload = Arc::new(Workload::default());
        // Half of the bytes each: together not too many, then too many.
        let half = EXAMPLE_BYTES_MAX as i64 / 2 * 8 - 100;
        for (first, second) in [(among(0, half), among(1, half)), (among(0, half), among(1, half + 200))] {
            workload.scan(&[first, second], &[0]).begin();
        }
        workload.scan(&[between(0, 1, 2), ColumnFilter { column: 2, condition: texts }], &[0]).begin();
        let classes = workload.classes();
        let (class, counts) = &classes[0];
        assert_eq!(class.conditions, [(0, ConditionKind::In), (1, ConditionKind::In)]);
        let [whole, bounded] = &counts.examples[..] else { panic!("{:?}", counts.examples) };
        assert!(whole.iter().all(|filter| matches!(filter.condition, ColumnCondition::Among(_))));
        let bounds = |filter: &ColumnFilter| match filter.condition {
            ColumnCondition::Between { least, greatest } => Some((least, greatest)),
            _ => None,
        };
        let found: Vec<_> = bounded.iter().map(bounds).collect();
        assert_eq!(found, [Some((-7, half)), Some((-7, half + 200))]);
        let strings = &classes[1].1.examples[0];
        assert_eq!(bounds(&strings[0]), Some((1, 2)));
        assert!(matches!(strings[1].condition, ColumnCondition::NotNull));
        for (_, counts) in &classes {
            for example in &counts.examples {
                let bytes: usize = example.iter().map(|filter| filter.condition.bytes_of_values()).sum();
                assert!(bytes <= EXAMPLE_BYTES_MAX);
            }
        }
    }

    #[test]
    fn uses_of_indexes_are_counted_for_a_bounded_number() {
        let workload = Workload::default();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..1000).for_each(|_| workload.note_index("i")));
            }
        });
        assert_eq!((workload.index_uses("i"), workload.index_uses("j")), (8_000, 0));
        (0..INDEXES_MAX).for_each(|index| workload.note_index(&index.to_string()));
        workload.note_index("i");
        assert_eq!(workload.index_uses(&(INDEXES_MAX - 2).to_string()), 1);
        assert_eq!(
            (workload.index_uses(&(INDEXES_MAX - 1).to_string()), workload.index_uses("i")),
            (0, 8_001)
        );
        workload.reset();
        assert_eq!(workload.index_uses("i"), 0);
    }

    #[test]
    fn threads_lose_no_count() {
        let workload = Workload::default();
        std::thread::scope(|scope| {
            for _ in 0..40 {
                scope.spawn(|| (0..1000).for_each(|_| workload.note_rows(RowOperation::Read, 2)));
            }
        });
        workload.note_rows(RowOperation::Delete, 3);
        let counts = workload.row_counts();
        assert_eq!((counts.read, counts.inserted, counts.updated, counts.deleted), (80_000, 0, 0, 3));
    }

    #[test]
    fn kinds_follow_conditions() {
        let texts = |least: &str, greatest: &str| ColumnCondition::TextsWithin {
            least: Some(least.into()),
            greatest: Some(greatest.into()),
            is_met: Arc::new(|_| true),
        };
        assert_eq!(ConditionKind::of(&texts("a", "a")), ConditionKind::Equal);
        assert_eq!(ConditionKind::of(&texts("a", "b")), ConditionKind::Range);
        assert_eq!(ConditionKind::of(&ColumnCondition::NotNull), ConditionKind::Null);
        assert!(ConditionKind::In.fixes_values() && !ConditionKind::Range.fixes_values());
    }
}
