//! Integrity check of a database: every checksum, every object, every row.
//!
//! Checked are, in this order: the checksums of all pages (on `journal`); directories, catalog, indexes and
//! MVCC objects of every state, each against the allocation map (nothing unallocated or twice in use, and, if
//! all is sound, nothing allocated without a reference); then every visible row against its table's schema,
//! and every secondary index against its table, both ways: each row has its entry, and there are no other
//! entries. The Elf of each row group is compared with one that is built anew.
//!
//! States in volatile memory, or on the disk beside persistent memory, are checked the same way.
//!
//! Opening the database has checked headers, journal frames and allocation maps before. No thread may write
//! meanwhile. Best done on files that are never changed ([`entresol_memory::env::OverlayFiles`]).
//!
//! Memory: the allocation map, 17 bytes per object.

use crate::catalog::Catalog;
use crate::error::Result;
use crate::index::Index;
use crate::table::Table;
use crate::table::range::ScanRange;
use entresol_memory::{AllocationMap, PagesReport, PoolOffset};
use entresol_transactions::{Owner, StateId, StateReport, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Problem found by a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Affected object: a table, the catalog, free space, all tables.
    pub object: String,
    /// File, if it is known.
    pub file: Option<String>,
    /// Offset in the pool, and so in its file, if it is at one place.
    pub offset: Option<PoolOffset>,
    /// Description of the problem.
    pub message: String,
    /// Advice to the user.
    pub advice: &'static str,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.object, self.message)?;
        match (&self.file, self.offset) {
            (Some(file), Some(offset)) => write!(f, " (byte {offset} of {file})")?,
            (Some(file), None) => write!(f, " ({file})")?,
            (None, Some(offset)) => write!(f, " (pool offset {offset})")?,
            (None, None) => {}
        }
        write!(f, "; {}", self.advice)
    }
}

/// Statistics of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableReport {
    /// Name of the table.
    pub name: String,
    /// State of its rows.
    pub state: StateId,
    /// Number of visible rows.
    pub rows: u64,
    /// Number of keys in the index, including those that are deleted and not removed yet.
    pub keys: u64,
    /// Number of row versions.
    pub versions: u64,
    /// Bytes of the index.
    pub index_bytes: u64,
    /// Bytes of the rows' objects.
    pub object_bytes: u64,
    /// Version history: retained versions that have ended; none if the table has no version history.
    pub history: Option<HistoryReport>,
    /// True if no problem was found.
    pub sound: bool,
}

/// Version history of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryReport {
    /// Number of versions.
    pub versions: u64,
    /// Bytes of the index and the versions.
    pub bytes: u64,
    /// Oldest commit that can be read.
    pub horizon: Timestamp,
}

/// Result of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Tables that could be read, ordered by name.
    pub tables: Vec<TableReport>,
    /// All problems found.
    pub problems: Vec<Problem>,
    /// Pages of the pool file, on `journal`.
    pub pages: Option<PagesReport>,
    /// Number of allocated objects.
    pub objects: u64,
    /// Number of journal bytes replayed at open.
    pub replayed_bytes: u64,
}

const RESTORE: &str = "restore a backup";
const RESTORE_OR_DROP: &str = "restore a backup, or export the readable rows and drop the table";
const DROP: &str = "drop it and create it again; for a sequence, check the existing values first";
const REPORT: &str = "this is a bug: please report it; space is lost, but no data";

/// Checks a complete database. `progress` is called with the name of each step. `Err` if it cannot be read at
/// all.
pub fn check(catalog: &Arc<Catalog>, mut progress: impl FnMut(&str)) -> Result<CheckReport> {
    let context = catalog.context();
    let pool = context.pool();
    let _alone = context.pause_reclaiming();
    let tables = catalog.tables();
    let _no_merges: Vec<_> =
        tables.iter().filter_map(|table| Some(table.own_columns()?.merging.lock())).collect();
    let mut report = CheckReport { replayed_bytes: pool.stats().replayed_bytes, ..CheckReport::default() };
    let file = pool.file().map(|file| file.display().to_string());
    progress("verifying the checksums of all pages");
    report.pages = pool.verify_pages(|bytes| {
        if bytes.is_multiple_of(1 << 30) && bytes > 0 {
            progress(&format!("verified {} GiB of pages", bytes >> 30));
        }
    })?;
    let damaged_pages = report.pages.as_ref().map_or(Vec::new(), |pages| pages.damaged.clone());
    let mut walk = Walk { map: pool.allocation_map()?, hits: BTreeMap::new(), damaged_pages };
    report.objects = walk.map.len() as u64;
    let problem = |object: &str, offset: Option<PoolOffset>, message: String, advice: &'static str| Problem {
        object: object.to_owned(),
        file: file.clone(),
        offset,
        message,
        advice,
    };

    let (root, bytes) = catalog.root_object();
    if let Err(message) = walk.claim("the catalog", root, bytes) {
        report.problems.push(problem("the catalog", Some(root), message, RESTORE));
    }
    let holders = StateOwners::of(catalog);
    let states = context.check(
        |owner, offset, bytes| walk.claim(&holders.name(owner), offset, bytes),
        |state| progress(&format!("checking {}", holders.name(Owner::State(state)))),
    );
    let states = match states {
        Ok(states) => states,
        Err(error) => {
            report.problems.push(problem("all tables", None, error.to_string(), RESTORE));
            Vec::new()
        }
    };
    for state in &states {
        let object = match state.history_of {
            Some(of) => holders.name(Owner::State(of)),
            None => holders.name(Owner::State(state.id)),
        };
        for found in &state.problems {
            let mut problem = problem(&object, found.offset, found.what.clone(), RESTORE_OR_DROP);
            if state.is_beside {
                problem.file = None;
            }
            report.problems.push(problem);
        }
    }
    for (name, reason) in catalog.damaged_tables() {
        let object = format!("table {name}");
        if report.problems.iter().all(|known| known.object != object) {
            report.problems.push(problem(&object, None, reason, RESTORE_OR_DROP));
        }
    }
    for (kind, name, reason) in catalog.damaged_relations() {
        report.problems.push(problem(&format!("{kind} {name}"), None, reason, DROP));
    }
    for table in catalog.tables() {
        progress(&format!("reading table {}", table.name()));
        let (read, wrong) = read_table(catalog, &table, &states);
        report.tables.push(read);
        for message in wrong {
            let object = format!("table {}", table.name());
            report.problems.push(problem(&object, None, message, RESTORE_OR_DROP));
        }
    }
    walk.report_pages(&mut report.problems, &problem);
    if report.problems.is_empty() {
        let leaked: Vec<(PoolOffset, u64)> = walk.map.unclaimed().collect();
        if let Some((first, _)) = leaked.first() {
            let bytes: u64 = leaked.iter().map(|(_, bytes)| bytes).sum();
            let message =
                format!("{} objects of {bytes} bytes are allocated without a reference", leaked.len());
            report.problems.push(problem("free space", Some(*first), message, REPORT));
        }
    }
    Ok(report)
}

/// Reads every visible row.
fn read_table(catalog: &Catalog, table: &Arc<Table>, states: &[StateReport]) -> (TableReport, Vec<String>) {
    let state = states.iter().find(|state| state.id == table.state().id());
    let history = states.iter().find(|state| state.history_of == Some(table.state().id()));
    let mut report = TableReport {
        name: table.name().to_owned(),
        state: table.state().id(),
        rows: 0,
        keys: state.map_or(0, |state| state.keys),
        versions: state.map_or(0, |state| state.versions),
        index_bytes: state.map_or(0, |state| state.index_bytes),
        object_bytes: state.map_or(0, |state| state.object_bytes),
        history: history.map(|history| HistoryReport {
            versions: history.versions,
            bytes: history.index_bytes + history.object_bytes,
            horizon: table.history_bounds().map_or(Timestamp::START, |past| past.horizon),
        }),
        sound: [state, history].into_iter().flatten().all(|state| state.problems.is_empty())
            && state.is_some(),
    };
    // A table that is known to be damaged is not read a second time.
    if !report.sound {
        return (report, Vec::new());
    }
    let mut rows = 0;
    let mut wrong = Vec::new();
    let read = catalog.begin().and_then(|tx| {
        let mut cursor = table.scan(ScanRange::full());
        while cursor.next_batch(&tx, |_| rows += 1)? {}
        for index in table.indexes() {
            let known = states.iter().find(|state| state.id == index.state_id());
            if known.is_some_and(|state| state.problems.is_empty()) {
                wrong.extend(table.check_index(&tx, index)?);
            } else {
                wrong.push(format!("its index {} is damaged; drop it and create it again", index.name()));
            }
        }
        if let Some(columns) = table.own_columns() {
            wrong.extend(columns.check_objects(&tx)?);
            wrong.extend(columns.check_elves(&tx)?);
            wrong.extend(columns.check_rows_elves(&tx)?);
            wrong.extend(columns.check_blocks(&tx, table.named_schema())?);
        }
        Ok(())
    });
    report.rows = rows;
    wrong.extend(read.err().map(|error| error.to_string()));
    report.sound = wrong.is_empty();
    (report, wrong)
}

/// Owners of states, by state.
struct StateOwners {
    tables: BTreeMap<StateId, String>,
    catalog: StateId,
}

impl StateOwners {
    fn of(catalog: &Catalog) -> StateOwners {
        let tables = catalog.tables();
        let names = tables.iter().map(|table| (table.state().id(), format!("table {}", table.name())));
        let mut names: BTreeMap<StateId, String> = names.collect();
        for table in &tables {
            let of_index = |index: &Arc<Index>| {
                (index.state_id(), format!("index {} of table {}", index.name(), table.name()))
            };
            names.extend(table.indexes().iter().map(of_index));
            let log = table.state().change_log().map(|log| log.state().id());
            names.extend(log.map(|log| (log, format!("change log of table {}", table.name()))));
            for state in table.row_group_ids() {
                names.insert(state, format!("row groups of table {}", table.name()));
            }
        }
        names.extend(catalog.damaged_states());
        StateOwners { tables: names, catalog: catalog.state().id() }
    }

    fn name(&self, owner: Owner) -> String {
        match owner {
            Owner::Context => "the directories of states".to_owned(),
            Owner::State(state) if state == self.catalog => "the catalog".to_owned(),
            Owner::State(state) => self
                .tables
                .get(&state)
                .cloned()
                .unwrap_or_else(|| format!("{state}, which belongs to no table")),
        }
    }
}

/// Claimed objects, and owners of objects on damaged pages.
struct Walk {
    map: AllocationMap,
    damaged_pages: Vec<PoolOffset>,
    hits: BTreeMap<PoolOffset, BTreeSet<String>>,
}

const PAGE_BYTES: u64 = 4096;

impl Walk {
    fn claim(&mut self, object: &str, offset: PoolOffset, bytes: u64) -> std::result::Result<(), String> {
        self.map.claim(offset, bytes)?;
        let first = self.damaged_pages.partition_point(|page| page.plus(PAGE_BYTES) <= offset);
        for page in self.damaged_pages[first..].iter().take_while(|page| **page < offset.plus(bytes)) {
            self.hits.entry(*page).or_default().insert(object.to_owned());
        }
        Ok(())
    }

    fn report_pages(
        &self,
        problems: &mut Vec<Problem>,
        problem: &impl Fn(&str, Option<PoolOffset>, String, &'static str) -> Problem,
    ) {
        for page in &self.damaged_pages {
            let object = match self.hits.get(page) {
                Some(object) => object.iter().cloned().collect::<Vec<_>>().join(", "),
                None => "space without a valid reference".to_owned(),
            };
            let message = format!(
                "checksum mismatch: a page of {PAGE_BYTES} bytes differs from what was written there"
            );
            problems.push(problem(&object, Some(*page), message, RESTORE_OR_DROP));
        }
    }
}
