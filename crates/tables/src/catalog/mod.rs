//! Catalog: the tables, views and sequences of a database, in a transactional state of its own.
//!
//! # Storage
//!
//! The pool root `entresol.catalog` is an object of four words: format (1), the catalog's state, the default
//! group, checksum. The catalog's state (variable keys, in a group of its own) has a row per table: the key
//! is the name in UTF-8, the value is described in `entry`; views and sequences have rows too (`relations`), and
//! statistics of tables (`statistics`).
//! The fourth word of the root has the CRC-32C of the other three, plus 2^32 (0: written without one).
//!
//! # Damage
//!
//! A table whose row or whose state is damaged is known by its name and reports the damage when it is used;
//! all others work. As long as a row is damaged, no state is taken for an orphan: it may be that table's. A
//! damaged secondary index can be dropped; until then its table is read without it and not written.
//!
//! # Invariants
//!
//! - Between calls, every state of the context is the catalog's, or that of exactly one row, for its table or
//!   for one of its indexes. The catalog owns the context's states: states created without it are taken for
//!   orphans at the next open and dropped.
//! - There is one current [`Table`] object per name as long as the table is not dropped.
//! - Changes of the catalog are serialised by one lock and durable when they return.
//!
//! # Crashes
//!
//! A table or an index is created in two steps (states, then row) and dropped in two (row, then states): a
//! crash between them leaves states without a row, which the next open drops. A crash before the root was set
//! leaves the catalog's own state likewise. Every other change is one row, written in one transaction.
//!
//! # Memory
//!
//! One `Table` per table, at most [`TABLES_MAX`].

use crate::columns;
use crate::columns::cache::page_key::ColumnKey;
use crate::columns::cache::policy::CachePolicy;
use crate::columns::cache::{CachedColumn, PageCache, PageCacheStats};
use crate::columns::store::ColumnStore;
use crate::cost::StructureMedium;
use crate::error::{Error, Result};
use crate::index::{self, Index};
use crate::schema::definition::{IndexDefinition, Retention, TableDefinition, TableLayout};
use crate::schema::{KEY_BYTES_MAX, Schema};
use crate::table::{RowsBeside, Table};
use entresol_memory::{Durability, Pool, PoolOffset};
use entresol_structures::{HotMemory, KeyWidth};
use entresol_transactions::{
    GroupId, Isolation, Protocol, State, StateContext, StateId, StateOptions, Timestamp, Transaction,
};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

mod change;
mod change_logs;
mod comments;
mod conflicts;
mod dependents;
mod elf;
mod entry;
mod groups;
mod layout;
mod named;
mod objects;
mod owners;
mod relations;
mod statistics;

pub use change::{Alteration, Verify};
use comments::Comments;
pub use comments::{COMMENT_BYTES_MAX, CommentTarget};
use entry::{DamagedTable, LoadedCatalog, encode_entry, load};
use groups::TableGroups;
pub use layout::NewLayout;
pub(crate) use layout::with_layout;
pub use named::NewSequence;
pub use objects::{CollectedObjects, ObjectCollector};
pub(crate) use objects::{key_with_mark, row_body, sealed_row};
pub use owners::OwnerChange;
pub use relations::RelationKind;
use relations::{CatalogRow, Relations};

/// Maximum number of tables of a database.
pub const TABLES_MAX: usize = 100_000;
/// Maximum bytes of a table's name.
pub const TABLE_NAME_BYTES_MAX: usize = 127;
const _: () = assert!(TABLE_NAME_BYTES_MAX <= KEY_BYTES_MAX);

const ROOT_NAME: &str = "entresol.catalog";
const ROOT_FORMAT: u64 = 1;
const ROOT_WORDS: usize = 4;
/// Options of creating a table.
#[derive(Debug, Clone, Default)]
pub struct TableOptions {
    /// Group of its state; one of its own if `None`.
    pub group: Option<GroupId>,
    /// Protocol of a group of its own; that of the database if `None`. Without effect beside `group`.
    pub protocol: Option<Protocol>,
    /// DRAM for its hot rows' places, out of the memory budget; `None`: none. For keys of up to 16 bytes.
    pub hot_bytes: Option<u64>,
    /// Return an existing table of this name, whatever its schema, instead of an error.
    pub if_not_exists: bool,
    /// Retention of its version history; see [`Catalog::keep_history`].
    pub history: Option<Retention>,
}

/// Catalog of a database.
pub struct Catalog {
    context: Arc<StateContext>,
    state: Arc<State>,
    default_group: GroupId,
    groups: TableGroups,
    /// Pages of columns of all tables.
    pages: Arc<PageCache>,
    tables: RwLock<BTreeMap<String, Arc<Table>>>,
    /// Tables that cannot be used because they are damaged.
    damaged: RwLock<BTreeMap<String, DamagedTable>>,
    /// Views and sequences.
    relations: Relations,
    comments: Comments,
    /// Lock of changes of the catalog.
    changing: Mutex<()>,
    /// Lock of changes of change logs, which have several steps.
    changing_logs: Mutex<()>,
    /// Number of changes.
    version: AtomicU64,
}

impl Catalog {
    /// Opens the catalog of a database, or creates an empty one; drops the states that belong to no table.
    pub fn open_or_create(context: Arc<StateContext>) -> Result<Arc<Catalog>> {
        let (state, default_group) = match context.pool().root(ROOT_NAME) {
            Some(root) => read_root(&context, root)?,
            None => create_root(&context)?,
        };
        state.set_holder("the catalog");
        let pages = PageCache::new(context.pool().memory(), Some(context.pool().env()));
        let LoadedCatalog { tables, damaged, relations, statistics, comments, rows_damaged } =
            load(&context, &pages, &state)?;
        let without_table = statistics.give(&tables);
        let is_sound = !rows_damaged && damaged.is_empty();
        pages.objects().attach(&context, &state, is_sound);
        if rows_damaged {
            tracing::warn!("rows of the catalog are damaged: orphaned states are retained");
        } else {
            drop_orphans(&context, &state, &tables, &damaged)?;
        }
        let groups = TableGroups::new(&context, tables.values().map(|table| &**table), default_group);
        let catalog = Catalog {
            context,
            state,
            default_group,
            groups,
            pages,
            tables: RwLock::new(tables),
            damaged: RwLock::new(damaged),
            relations,
            comments,
            changing: Mutex::new(()),
            changing_logs: Mutex::new(()),
            version: AtomicU64::new(0),
        };
        if is_sound && let Err(error) = catalog.delete_statistics(without_table) {
            // They harm nothing, and the next opening tries it again.
            tracing::warn!(%error, "statistics without a table stay in the catalog");
        }
        if is_sound && let Err(error) = catalog.delete_orphaned_comments() {
            tracing::warn!(%error, "comments on relations that are not there stay in the catalog");
        }
        Ok(Arc::new(catalog))
    }

    /// State context of the catalog.
    pub fn context(&self) -> &Arc<StateContext> {
        &self.context
    }

    /// Number of changes of tables, indexes, views and sequences in this run. Plans made at an older version
    /// have to be made again; read the version before planning.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Notes that the tables have changed.
    fn changed(&self) {
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Group of tables that earlier releases created without naming one, and of all beyond the maximum number
    /// of groups.
    pub fn default_group(&self) -> GroupId {
        self.default_group
    }

    /// Creates a group for tables that are always written together: their commits cost a little less than
    /// those over several groups.
    pub fn create_group(&self) -> Result<GroupId> {
        Ok(self.context.create_group()?)
    }

    /// Creates a table; it is durable and visible to all when this returns.
    pub fn create_table(&self, name: &str, schema: Schema, options: TableOptions) -> Result<Arc<Table>> {
        self.create_table_as(name, TableDefinition::plain(schema), options)
    }

    /// Creates a table with defaults, checks and indexes; it is durable and visible to all when this returns.
    pub fn create_table_as(
        &self,
        name: &str,
        definition: TableDefinition,
        options: TableOptions,
    ) -> Result<Arc<Table>> {
        self.create_table_with(name, definition, options, Vec::new())
    }

    /// Creates a table and the sequences of its columns, in one commit.
    pub fn create_table_with(
        &self,
        name: &str,
        definition: TableDefinition,
        options: TableOptions,
        sequences: Vec<NewSequence>,
    ) -> Result<Arc<Table>> {
        check_name(name)?;
        let _changing = self.changing.lock();
        if let Some(table) = self.tables.read().get(name) {
            return if options.if_not_exists {
                Ok(Arc::clone(table))
            } else {
                Err(Error::TableExists { table: name.to_owned() })
            };
        }
        self.check_free(name)?;
        definition.check(name)?;
        check_hot_entries(name, &definition, options.hot_bytes)?;
        self.check_object_store(definition.object_store.as_deref())?;
        definition.indexes.iter().try_for_each(|index| self.check_free(&index.name))?;
        if let Some(index) = definition.indexes.iter().find(|index| index.name == name) {
            return Err(Error::RelationExists { name: index.name.clone() });
        }
        if self.tables.read().len() >= TABLES_MAX {
            return Err(Error::InvalidSchema {
                reason: format!("the database has {TABLES_MAX} tables, the maximum"),
            });
        }
        let group = self.groups.take(&self.context, options.group, options.protocol)?;
        let mut made = Vec::new();
        let table = self
            .check_group(name, &definition, group)
            .and_then(|()| self.make_states(name, (&definition, options.hot_bytes), group, &mut made))
            .and_then(|(state, (indexes, columns))| {
                if let Some(retention) = definition.changes {
                    let placed = (definition.placement, retention);
                    let log = self.make_change_log(name, &state, placed, &mut made)?;
                    self.context.resume_change_log(&state, &log);
                }
                if let Some(kept) = options.history {
                    let beside = columns.iter().flat_map(|columns| columns.state_ids());
                    beside
                        .chain([state.id()])
                        .try_for_each(|id| self.context.keep_history(id, kept.time()))?;
                }
                let sequences = self.new_sequences(state.id(), &definition.schema, sequences)?;
                let same_name =
                    |taken: &str| taken == name || definition.indexes.iter().any(|index| index.name == taken);
                if let Some(taken) = sequences.iter().find(|sequence| same_name(sequence.name())) {
                    return Err(Error::RelationExists { name: taken.name().to_owned() });
                }
                let table = Table::new(name.to_owned(), definition, state, group, (indexes, columns));
                let mut rows = vec![table_row(&table)?];
                rows.extend(sequences.iter().map(|sequence| named::fresh_row(sequence)));
                self.write_rows(&rows, Durability::Sync)?;
                Ok((table, sequences))
            });
        if table.is_err() {
            self.drop_states(name, made);
            self.groups.release_cached(&self.context, group);
        }
        let (table, sequences) = table?;
        self.adopt(sequences);
        self.tables.write().insert(name.to_owned(), Arc::clone(&table));
        self.changed();
        Ok(table)
    }

    /// Returns an error if a table of a group cannot have the group's protocol.
    fn check_group(&self, name: &str, definition: &TableDefinition, group: GroupId) -> Result<()> {
        self.context.protocol(group).map_or(Ok(()), |protocol| check_protocol(name, definition, protocol))
    }

    /// Creates the states of a new table; `made` receives all that were created.
    fn make_states(
        &self,
        name: &str,
        (definition, hot_bytes): (&TableDefinition, Option<u64>),
        group: GroupId,
        made: &mut Vec<StateId>,
    ) -> Result<(Arc<State>, RowsBeside)> {
        let options = |width| StateOptions::new(group, width, definition.placement);
        let create = |width| self.context.create_state_with(options(width));
        let width = definition.schema.key_width();
        let of_rows = StateOptions {
            structure: definition.structure,
            node_bytes: definition.node_bytes,
            version_slots: definition.version_slots,
            hot_bytes,
            ..options(width)
        };
        let state = self.context.create_state_with(of_rows)?;
        state.set_holder(&format!("table {name}"));
        made.push(state.id());
        let mut indexes = Vec::with_capacity(definition.indexes.len());
        for index in &definition.indexes {
            let width = index::key_width(&definition.schema, index);
            let of_index =
                StateOptions { structure: index.structure, node_bytes: index.node_bytes, ..options(width) };
            let state = self.context.create_state_with(of_index)?;
            state.set_holder(&format!("index {} of table {name}", index.name));
            made.push(state.id());
            indexes.push(Index::new(index.clone(), state.id(), Ok(state), Timestamp::START));
        }
        let mut columns = None;
        if definition.layout.has_row_groups() {
            let groups = create(columns::group::KEY_WIDTH)?;
            groups.set_holder(&format!("row groups of table {name}"));
            made.push(groups.id());
            let mut places = None;
            if definition.layout == TableLayout::Clustered {
                let state = create(definition.schema.key_width())?;
                state.set_holder(&format!("places of rows of table {name}"));
                made.push(state.id());
                places = Some(state);
            }
            columns = Some(ColumnStore::open(&self.context, (groups, places), &self.pages));
        }
        Ok((state, (indexes, columns)))
    }

    /// Drops states without a row in the catalog.
    fn drop_states(&self, table: &str, states: Vec<StateId>) {
        for state in states {
            if let Err(error) = self.context.drop_state(state) {
                tracing::warn!(table, %error, "could not drop an orphaned state; the next open drops it");
            }
        }
    }

    /// Returns an error if a relation has this name.
    fn check_free(&self, name: &str) -> Result<()> {
        if let Some(table) = self.damaged.read().get(name) {
            return Err(Error::corrupt(format!("table {name}"), table.reason.clone()));
        }
        let tables = self.tables.read();
        let is_index = || tables.values().any(|table| table.has_index(name));
        if tables.contains_key(name) || is_index() || self.relations.kind(name).is_some() {
            return Err(Error::RelationExists { name: name.to_owned() });
        }
        Ok(())
    }

    /// Drops a table that no view reads; see [`Catalog::drop_relations`].
    pub fn drop_table(&self, name: &str) -> Result<()> {
        self.drop_relations(&[(RelationKind::Table, name)], false)
    }

    /// Table of this name.
    pub fn table(&self, name: &str) -> Result<Arc<Table>> {
        if let Some(table) = self.tables.read().get(name) {
            return Ok(Arc::clone(table));
        }
        match self.damaged.read().get(name) {
            Some(table) => Err(Error::corrupt(format!("table {name}"), table.reason.clone())),
            None if self.relations.kind(name).is_some() => {
                Err(Error::WrongKind { name: name.to_owned(), wanted: RelationKind::Table })
            }
            None => Err(Error::NoSuchTable { table: name.to_owned() }),
        }
    }

    /// Tables that cannot be used because they are damaged, by name, with the damage.
    pub fn damaged_tables(&self) -> BTreeMap<String, String> {
        self.damaged.read().iter().map(|(name, table)| (name.clone(), table.reason.clone())).collect()
    }

    /// Tables ("table x") of the damaged states.
    pub(crate) fn damaged_states(&self) -> BTreeMap<StateId, String> {
        let damaged = self.damaged.read();
        let known = damaged.iter().filter_map(|(name, table)| Some((table.state?, format!("table {name}"))));
        known.collect()
    }

    /// State of the catalog.
    pub(crate) fn state(&self) -> &Arc<State> {
        &self.state
    }

    /// Root object of the catalog, as (offset, bytes).
    pub(crate) fn root_object(&self) -> (PoolOffset, u64) {
        (self.context.pool().root(ROOT_NAME).unwrap_or(PoolOffset::NULL), ROOT_WORDS as u64 * 8)
    }

    /// Makes the table retain row versions that were changed or deleted, so that it can be read as of a point
    /// in time ([`Catalog::begin_as_of`]); or changes the retention. Durable when this returns. Indexes have
    /// no version history: time travel uses the key, or scans all rows.
    ///
    /// Versions are read through the present definition of the table: their values in dropped columns are
    /// invisible, and in younger columns they have the values that all rows had then.
    pub fn keep_history(&self, table: &str, kept: Retention) -> Result<()> {
        let _changing = self.changing.lock();
        let (table, retention) = (self.table(table)?, kept.time());
        for id in table.row_group_ids() {
            // First: what a version of a row needs is there as long as the version.
            self.context.keep_history(id, retention)?;
        }
        self.context.keep_history(table.state().id(), retention)?;
        self.context.pool().sync()?;
        Ok(())
    }

    /// Ends the version history of a table; it is removed once no transaction reads it.
    pub fn drop_history(&self, table: &str) -> Result<()> {
        let _changing = self.changing.lock();
        let table = self.table(table)?;
        self.context.drop_history(table.state().id())?;
        for id in table.row_group_ids() {
            self.context.drop_history(id)?;
        }
        self.context.pool().sync()?;
        Ok(())
    }

    /// Begins a transaction that reads as of a point in time; see [`StateContext::begin_as_of`].
    pub fn begin_as_of(&self, at: Timestamp) -> Result<Arc<Transaction>> {
        Ok(self.context.begin_as_of(at)?)
    }

    /// All tables, ordered by name.
    pub fn tables(&self) -> Vec<Arc<Table>> {
        self.tables.read().values().cloned().collect()
    }

    /// Statistics of the cache of column pages.
    pub fn page_cache_stats(&self) -> PageCacheStats {
        self.pages.stats()
    }

    /// Sets the replacement policy of the cache of column pages; pages that are cached stay.
    pub fn set_cache_policy(&self, policy: CachePolicy) {
        self.pages.set_policy(policy);
    }

    /// Limits the bytes of the cache of column pages, which never takes more than a quarter of the memory budget.
    pub fn limit_cache(&self, bytes_max: u64) {
        self.pages.limit(bytes_max);
    }

    /// Tells proportional caching the bandwidth of storage in bytes per second, as a profile has it, with which it
    /// computes until it has measured loads.
    pub fn expect_storage_bandwidth(&self, bytes_per_second: f64) {
        self.pages.expect_bandwidth(bytes_per_second);
    }

    /// Emulates storage of a bandwidth in bytes per second under the cache of column pages, or none.
    #[cfg(feature = "testkit")]
    pub fn emulate_storage(&self, bytes_per_second: Option<f64>) {
        self.pages.emulate_storage(bytes_per_second);
    }

    /// Replacement policy of the cache of column pages.
    pub fn cache_policy(&self) -> CachePolicy {
        self.pages.policy()
    }

    /// Columns of tables with row groups of which pages were read, by table and column.
    pub fn cached_columns(&self) -> Vec<CachedColumn> {
        let cached = self.pages.columns();
        let mut columns = Vec::new();
        for table in self.tables() {
            let Some(row_groups) = table.own_columns() else { continue };
            let store = row_groups.number();
            let medium = StructureMedium::of_tier(table.tier());
            for (at, column) in table.schema().columns().iter().enumerate() {
                let id = columns::store::column_id(table.schema(), at);
                if let Some((counts, share)) = cached.get(&ColumnKey { store, column: id }).copied() {
                    let (table, column) = (table.name().to_owned(), column.name.clone());
                    let gain_seconds = share.map(|share| share.gain_seconds);
                    columns.push(CachedColumn { table, column, counts, share, lists: None, gain_seconds });
                }
            }
            let elves = table.definition().elves.iter().cloned().chain(table.definition().rows_elf());
            for elf in elves {
                if let Some((counts, lists)) = row_groups.cached_elf_use(&elf, &cached) {
                    let (table, column) = (table.name().to_owned(), elf.name.clone());
                    let gain_seconds = lists.is_some().then(|| medium.gain_seconds(counts.hits));
                    columns.push(CachedColumn { table, column, counts, share: None, lists, gain_seconds });
                }
            }
        }
        columns
    }

    /// Begins a transaction with snapshot isolation.
    pub fn begin(&self) -> Result<Arc<Transaction>> {
        Ok(self.context.begin()?)
    }

    /// Begins a transaction.
    pub fn begin_at(&self, isolation: Isolation) -> Result<Arc<Transaction>> {
        Ok(self.context.begin_at(isolation)?)
    }

    /// Writes the row of a table. Returns the timestamp of the commit.
    fn write_entry(&self, table: &Table) -> Result<Timestamp> {
        self.write_rows(&[table_row(table)?], Durability::Sync)
    }
}

/// Row of a table.
fn table_row(table: &Table) -> Result<CatalogRow> {
    Ok((table.name().as_bytes().to_vec(), Some(encode_entry(table)?)))
}

impl std::fmt::Debug for Catalog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Catalog").field("tables", &self.tables.read().keys()).finish()
    }
}

fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > TABLE_NAME_BYTES_MAX || name.chars().any(char::is_control) {
        return Err(Error::InvalidName { name: name.to_owned(), bytes_max: TABLE_NAME_BYTES_MAX });
    }
    Ok(())
}

fn create_root(context: &Arc<StateContext>) -> Result<(Arc<State>, GroupId)> {
    let state = context.create_state(context.create_group()?, KeyWidth::Variable)?;
    let default_group = context.create_group()?;
    let pool: &Arc<Pool> = context.pool();
    let reservation = pool.reserve(ROOT_WORDS * 8)?;
    let mut words = [ROOT_FORMAT, u64::from(state.id().0), u64::from(default_group.0), 0];
    words[3] = root_checksum(&words[..3]);
    let mut publication = pool.publication();
    let offset = publication.allocate(reservation);
    (0..).zip(words).for_each(|(word, value)| publication.write(offset.word(word), value));
    publication.set_root(ROOT_NAME, offset)?;
    // Recovery: until this is published there is no catalog, and the state above is an orphan.
    publication.publish()?;
    pool.sync()?;
    Ok((state, default_group))
}

fn read_root(context: &Arc<StateContext>, root: PoolOffset) -> Result<(Arc<State>, GroupId)> {
    let corrupt = |reason: String| Error::corrupt("catalog root", reason);
    let no_root = || corrupt(format!("invalid offset {root:#x}"));
    let words = context.pool().try_words(root, ROOT_WORDS).ok_or_else(no_root)?;
    context.pool().verify(root, ROOT_WORDS * 8)?;
    let word = |at: usize| words[at].load(Ordering::Relaxed);
    if word(0) != ROOT_FORMAT {
        return Err(corrupt(format!("unknown format {}", word(0))));
    }
    if word(3) != 0 && word(3) != root_checksum(&[word(0), word(1), word(2)]) {
        return Err(corrupt(format!("checksum mismatch at {root:#x}")));
    }
    let id = u32::try_from(word(1)).map_err(|_| corrupt(format!("state number {}", word(1))))?;
    let group = u32::try_from(word(2)).map_err(|_| corrupt(format!("group number {}", word(2))))?;
    let missing = || match context.damaged_states().get(&StateId(id)) {
        Some(what) => corrupt(what.clone()),
        None => corrupt(format!("state {id} does not exist")),
    };
    Ok((context.state(StateId(id)).ok_or_else(missing)?, GroupId(group)))
}

fn root_checksum(words: &[u64]) -> u64 {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    1 << 32 | u64::from(crc32c::crc32c(&bytes))
}

fn drop_orphans(
    context: &Arc<StateContext>,
    catalog: &Arc<State>,
    tables: &BTreeMap<String, Arc<Table>>,
    damaged: &BTreeMap<String, DamagedTable>,
) -> Result<()> {
    let of_table = |table: &Arc<Table>| {
        let indexes: Vec<StateId> = table.indexes().iter().map(|index| index.state_id()).collect();
        let log = table.state().change_log().map(|log| log.state().id());
        let columns = table.row_group_ids();
        std::iter::once(table.state().id()).chain(indexes).chain(log).chain(columns)
    };
    let states: Vec<StateId> =
        tables.values().flat_map(of_table).chain(std::iter::once(catalog.id())).collect();
    let mut known: HashSet<StateId> = states.iter().copied().collect();
    if known.len() != states.len() {
        return Err(Error::corrupt("catalog", "two tables share a state"));
    }
    // Where one half of a table is damaged, the other one stays.
    known.extend(damaged.values().flat_map(|table| table.state.iter().chain(&table.beside)));
    for state in context.states() {
        if !known.contains(&state.id()) {
            tracing::info!(state = state.id().0, "dropping an orphaned state");
            context.drop_state(state.id())?;
        }
    }
    Ok(())
}

/// Returns an error for a protocol that tables of this kind cannot have.
fn check_protocol(name: &str, definition: &TableDefinition, protocol: Protocol) -> Result<()> {
    match (protocol, definition.layout_of_row_groups()) {
        (Protocol::S2pl | Protocol::Bocc, Some(layout)) => {
            Err(Error::ProtocolOfLayout { table: name.to_owned(), layout, protocol })
        }
        _ => Ok(()),
    }
}

/// Returns an error if the state of a table, which stays, is none for another definition of the table.
fn check_state(table: &Table, definition: &TableDefinition) -> Result<()> {
    let hot_bytes = Some(table.state().hot_bytes()).filter(|bytes| *bytes > 0);
    check_protocol(table.name(), definition, table.state().protocol())?;
    check_hot_entries(table.name(), definition, hot_bytes)
}

/// Returns an error if a table of this kind cannot have hot entries.
fn check_hot_entries(name: &str, definition: &TableDefinition, hot_bytes: Option<u64>) -> Result<()> {
    let Some(bytes) = hot_bytes else { return Ok(()) };
    let reason = if definition.layout_of_row_groups().is_some() {
        "they are for the layout 'rows'".to_owned()
    } else if definition.schema.key_width() == KeyWidth::Variable {
        let key = definition.column_names(definition.schema.key());
        format!("they are for keys of up to 16 bytes, and the key ({key}) may be longer")
    } else if bytes < HotMemory::BYTES_MIN {
        too_few_hot_bytes()
    } else {
        return Ok(());
    };
    Err(Error::InvalidSchema { reason: format!("table {name}: {bytes} bytes for hot entries: {reason}") })
}

/// Returns an error if an index of this kind, with entries of this width, cannot have hot entries.
fn check_hot_index(index: &IndexDefinition, width: KeyWidth, hot_bytes: Option<u64>) -> Result<()> {
    let Some(bytes) = hot_bytes else { return Ok(()) };
    let reason = if !index.unique {
        "they are for entries that are found by their whole key, as those of a UNIQUE index".to_owned()
    } else if width == KeyWidth::Variable {
        "they are for entries of up to 16 bytes: of the columns, with a byte more for each, and the table's key"
            .to_owned()
    } else if bytes < HotMemory::BYTES_MIN {
        too_few_hot_bytes()
    } else {
        return Ok(());
    };
    let name = &index.name;
    Err(Error::InvalidSchema { reason: format!("index {name}: {bytes} bytes for hot entries: {reason}") })
}

fn too_few_hot_bytes() -> String {
    format!("they need at least {} bytes", HotMemory::BYTES_MIN)
}
