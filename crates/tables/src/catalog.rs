//! The catalog: which tables there are, kept in a transactional state of its own.
//!
//! # Where it lies
//!
//! The pool root `entresol.catalog` is an object of four words: format (1), the catalog's state, the default
//! group, 0. The catalog's state (variable keys, in a group of its own) has a row per table: the key is the
//! name in UTF-8, the value, little-endian:
//!
//! | bytes | what |
//! | --- | --- |
//! | 1 | version, 1 |
//! | 4 | state of the rows |
//! | 4 | group of that state |
//! | rest | the schema, as [`Schema::to_bytes`] gives it |
//!
//! # Invariants
//!
//! - Between calls, every state of the context is the catalog's or that of exactly one row. The catalog owns
//!   the context's states: states made past it are taken for orphans at the next open and dropped.
//! - There is one [`Table`] object per name as long as the table is not dropped.
//! - Changes of the catalog are serialised by one lock and durable when they return.
//!
//! # What a crash leaves
//!
//! A table is made in two steps (state, then row) and dropped in two (row, then state): a crash between them
//! leaves a state without a row, which the next open drops. A crash before the root was set leaves the catalog's
//! own state likewise.
//!
//! # Memory
//!
//! One `Table` per table, at most [`TABLES_MAX`].

use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use entresol_memory::{Durability, Pool};
use entresol_structures::KeyWidth;
use entresol_transactions::{GroupId, KeyRange, State, StateContext, StateId, Transaction};
use parking_lot::{Mutex, RwLock};

use crate::error::{Error, Result};
use crate::schema::{KEY_BYTES_MAX, Schema};
use crate::table::Table;

/// The most tables of a database.
pub const TABLES_MAX: usize = 4096;
/// The most bytes of a table's name.
pub const TABLE_NAME_BYTES_MAX: usize = 127;
const _: () = assert!(TABLE_NAME_BYTES_MAX <= KEY_BYTES_MAX);

const ROOT_NAME: &str = "entresol.catalog";
const ROOT_FORMAT: u64 = 1;
const ROOT_WORDS: usize = 4;
const ENTRY_VERSION: u8 = 1;
const ENTRY_HEADER_BYTES: usize = 9;

/// How a table is made.
#[derive(Debug, Clone, Default)]
pub struct TableOptions {
    /// The group of its state; the catalog's default group if `None`.
    pub group: Option<GroupId>,
    /// Return the table of this name if there is one, whatever its schema, instead of an error.
    pub if_not_exists: bool,
}

/// All tables of a database.
pub struct Catalog {
    context: Arc<StateContext>,
    state: Arc<State>,
    default_group: GroupId,
    tables: RwLock<BTreeMap<String, Arc<Table>>>,
    /// Held while the catalog changes.
    changing: Mutex<()>,
}

impl Catalog {
    /// Opens the catalog of a database, or makes an empty one; drops the states that no table has.
    pub fn open_or_create(context: Arc<StateContext>) -> Result<Arc<Catalog>> {
        let (state, default_group) = match context.pool().root(ROOT_NAME) {
            Some(root) => read_root(&context, root)?,
            None => create_root(&context)?,
        };
        let tables = load(&context, &state)?;
        drop_orphans(&context, &state, &tables)?;
        Ok(Arc::new(Catalog {
            context,
            state,
            default_group,
            tables: RwLock::new(tables),
            changing: Mutex::new(()),
        }))
    }

    /// The state context under the catalog.
    pub fn context(&self) -> &Arc<StateContext> {
        &self.context
    }

    /// The group of tables that were made without naming one: they commit with one LastCTS.
    pub fn default_group(&self) -> GroupId {
        self.default_group
    }

    /// Makes a group for tables that are written together and apart from others.
    pub fn create_group(&self) -> Result<GroupId> {
        Ok(self.context.create_group()?)
    }

    /// Makes a table; it is durable and visible to all when this returns.
    pub fn create_table(&self, name: &str, schema: Schema, options: TableOptions) -> Result<Arc<Table>> {
        check_name(name)?;
        let _changing = self.changing.lock();
        if let Some(table) = self.tables.read().get(name) {
            return match options.if_not_exists {
                true => Ok(Arc::clone(table)),
                false => Err(Error::TableExists { table: name.to_owned() }),
            };
        }
        if self.tables.read().len() >= TABLES_MAX {
            return Err(Error::InvalidSchema {
                reason: format!("there are {TABLES_MAX} tables, the most possible"),
            });
        }
        let group = options.group.unwrap_or(self.default_group);
        let state = self.context.create_state(group, schema.key_width())?;
        if let Err(error) = self.write_entry(name, Some(&encode_entry(state.id(), group, &schema))) {
            if let Err(second) = self.context.drop_state(state.id()) {
                tracing::warn!(table = name, error = %second, "the state of a table that was not made stays until the next open");
            }
            return Err(error);
        }
        let table = Table::new(name.to_owned(), schema, state, group);
        self.tables.write().insert(name.to_owned(), Arc::clone(&table));
        Ok(table)
    }

    /// Drops a table. Transactions that have read it may go on reading; its space comes back after them.
    pub fn drop_table(&self, name: &str) -> Result<()> {
        let _changing = self.changing.lock();
        let table = self.table(name)?;
        self.write_entry(name, None)?;
        self.tables.write().remove(name);
        Ok(self.context.drop_state(table.state().id())?)
    }

    /// The table of this name.
    pub fn table(&self, name: &str) -> Result<Arc<Table>> {
        let tables = self.tables.read();
        tables.get(name).cloned().ok_or_else(|| Error::NoSuchTable { table: name.to_owned() })
    }

    /// All tables, by name.
    pub fn tables(&self) -> Vec<Arc<Table>> {
        self.tables.read().values().cloned().collect()
    }

    /// Begins a transaction.
    pub fn begin(&self) -> Result<Arc<Transaction>> {
        Ok(self.context.begin()?)
    }

    fn write_entry(&self, name: &str, entry: Option<&[u8]>) -> Result<()> {
        let tx = self.context.begin()?;
        tx.write(&self.state, name.as_bytes(), entry)?;
        tx.commit(Durability::Sync)?;
        Ok(())
    }
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
    let words = [ROOT_FORMAT, u64::from(state.id().0), u64::from(default_group.0), 0];
    for (word, value) in pool.words(reservation.offset(), ROOT_WORDS).iter().zip(words) {
        word.store(value, Ordering::Relaxed);
    }
    pool.flush(reservation.offset(), ROOT_WORDS * 8);
    let mut publication = pool.publication();
    let offset = publication.allocate(reservation);
    publication.set_root(ROOT_NAME, offset)?;
    // Recovery: until this is published there is no catalog, and the state above is an orphan.
    publication.publish()?;
    pool.sync()?;
    Ok((state, default_group))
}

fn read_root(context: &Arc<StateContext>, root: u64) -> Result<(Arc<State>, GroupId)> {
    let corrupt = |reason: String| Error::corrupt("catalog root", reason);
    let words = context.pool().words(root, ROOT_WORDS);
    let word = |at: usize| words[at].load(Ordering::Relaxed);
    if word(0) != ROOT_FORMAT {
        return Err(corrupt(format!("unknown format {}", word(0))));
    }
    let id = u32::try_from(word(1)).map_err(|_| corrupt(format!("state number {}", word(1))))?;
    let group = u32::try_from(word(2)).map_err(|_| corrupt(format!("group number {}", word(2))))?;
    let state = context.state(StateId(id)).ok_or_else(|| corrupt(format!("there is no state {id}")))?;
    Ok((state, GroupId(group)))
}

fn encode_entry(state: StateId, group: GroupId, schema: &Schema) -> Vec<u8> {
    let mut bytes = vec![ENTRY_VERSION];
    bytes.extend_from_slice(&state.0.to_le_bytes());
    bytes.extend_from_slice(&group.0.to_le_bytes());
    bytes.extend_from_slice(&schema.to_bytes());
    bytes
}

fn decode_entry(context: &StateContext, name: &[u8], entry: &[u8]) -> Result<(String, Arc<Table>)> {
    let name =
        std::str::from_utf8(name).map_err(|_| Error::corrupt("catalog", "a name that is not UTF-8"))?;
    let corrupt = |reason: String| Error::corrupt(format!("catalog entry of table {name}"), reason);
    let (header, schema) =
        entry.split_at_checked(ENTRY_HEADER_BYTES).ok_or_else(|| corrupt("cut off".to_owned()))?;
    if header[0] != ENTRY_VERSION {
        return Err(corrupt(format!("unknown version {}", header[0])));
    }
    let number = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let schema = Schema::from_bytes(schema)?;
    let state = StateId(number(1));
    let state = context.state(state).ok_or_else(|| corrupt(format!("{state} does not exist")))?;
    Ok((name.to_owned(), Table::new(name.to_owned(), schema, state, GroupId(number(5)))))
}

fn load(context: &Arc<StateContext>, state: &Arc<State>) -> Result<BTreeMap<String, Arc<Table>>> {
    let tx = context.begin()?;
    let range = KeyRange { lower: Bound::Unbounded, upper: Bound::Unbounded };
    let mut tables = BTreeMap::new();
    let mut failed = None;
    let mut from = None;
    loop {
        let more = tx.scan_batch(state, &range, &mut from, |name, entry| {
            match decode_entry(context, name, entry) {
                Ok((name, table)) => {
                    tables.insert(name, table);
                }
                Err(error) => failed = Some(error),
            }
        })?;
        if let Some(error) = failed.take() {
            return Err(error);
        }
        if !more {
            return Ok(tables);
        }
    }
}

fn drop_orphans(
    context: &Arc<StateContext>,
    catalog: &Arc<State>,
    tables: &BTreeMap<String, Arc<Table>>,
) -> Result<()> {
    let mut known: HashSet<StateId> = tables.values().map(|table| table.state().id()).collect();
    if known.len() != tables.len() || !known.insert(catalog.id()) {
        return Err(Error::corrupt("catalog", "two tables with one state"));
    }
    for state in context.states() {
        if !known.contains(&state.id()) {
            tracing::info!(state = state.id().0, "dropping a state that no table has");
            context.drop_state(state.id())?;
        }
    }
    Ok(())
}
