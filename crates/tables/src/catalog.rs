//! The catalog: which tables there are, kept in a transactional state of its own.
//!
//! # Where it lies
//!
//! The pool root `entresol.catalog` is an object of four words: format (1), the catalog's state, the default
//! group, checksum. The catalog's state (variable keys, in a group of its own) has a row per table: the key is the
//! name in UTF-8, the value, little-endian:
//!
//! | bytes | what |
//! | --- | --- |
//! | 1 | version, 2 (1: without the checksum) |
//! | 4 | state of the rows |
//! | 4 | group of that state |
//! | 4 | CRC-32C of the name and all other bytes |
//! | rest | the schema, as [`Schema::to_bytes`] gives it |
//!
//! The fourth word of the root has the CRC-32C of the other three, plus 2^32 (0: written without one).
//!
//! # Damage
//!
//! A table whose row or whose state is damaged is known by its name and says so when it is used; all others work. As
//! long as a row is damaged, no state is taken for an orphan: it may be that table's.
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
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use entresol_memory::{Durability, Pool};
use entresol_structures::KeyWidth;
use entresol_transactions::{GroupId, Isolation, State, StateContext, StateId, Transaction};
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
const ENTRY_VERSION: u8 = 2;
const ENTRY_VERSION_PLAIN: u8 = 1;
const ENTRY_HEADER_BYTES: usize = 9;
const ENTRY_CRC_BYTES: usize = 4;

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
    /// Tables that cannot be used.
    damaged: RwLock<BTreeMap<String, DamagedTable>>,
    /// Held while the catalog changes.
    changing: Mutex<()>,
    /// How often it has changed.
    version: AtomicU64,
}

impl Catalog {
    /// Opens the catalog of a database, or makes an empty one; drops the states that no table has.
    pub fn open_or_create(context: Arc<StateContext>) -> Result<Arc<Catalog>> {
        let (state, default_group) = match context.pool().root(ROOT_NAME) {
            Some(root) => read_root(&context, root)?,
            None => create_root(&context)?,
        };
        state.set_holder("the catalog");
        let Loaded { tables, damaged, rows_damaged } = load(&context, &state)?;
        if rows_damaged {
            tracing::warn!("rows of the catalog are damaged: states without a table are kept");
        } else {
            drop_orphans(&context, &state, &tables)?;
        }
        Ok(Arc::new(Catalog {
            context,
            state,
            default_group,
            tables: RwLock::new(tables),
            damaged: RwLock::new(damaged),
            changing: Mutex::new(()),
            version: AtomicU64::new(0),
        }))
    }

    /// The state context under the catalog.
    pub fn context(&self) -> &Arc<StateContext> {
        &self.context
    }

    /// How often a table was made, changed or dropped in this run. What was planned at an older version is to be
    /// planned again; read the version before planning.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// After the tables have changed.
    fn advance(&self) {
        self.version.fetch_add(1, Ordering::Release);
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
        if let Some(table) = self.damaged.read().get(name) {
            return Err(Error::corrupt(format!("table {name}"), table.reason.clone()));
        }
        if self.tables.read().len() >= TABLES_MAX {
            return Err(Error::InvalidSchema {
                reason: format!("there are {TABLES_MAX} tables, the most possible"),
            });
        }
        let group = options.group.unwrap_or(self.default_group);
        let state = self.context.create_state(group, schema.key_width())?;
        if let Err(error) = self.write_entry(name, Some(&encode_entry(name, state.id(), group, &schema))) {
            if let Err(second) = self.context.drop_state(state.id()) {
                tracing::warn!(table = name, error = %second, "the state of a table that was not made stays until the next open");
            }
            return Err(error);
        }
        let table = Table::new(name.to_owned(), schema, state, group);
        self.tables.write().insert(name.to_owned(), Arc::clone(&table));
        self.advance();
        Ok(table)
    }

    /// Drops a table. Transactions that have read it may go on reading; its space comes back after them. A damaged
    /// table loses its name; its space does not come back.
    pub fn drop_table(&self, name: &str) -> Result<()> {
        let _changing = self.changing.lock();
        if self.damaged.read().contains_key(name) {
            // What its state consists of cannot be trusted: it stays allocated.
            self.write_entry(name, None)?;
            self.damaged.write().remove(name);
            self.advance();
            return Ok(());
        }
        let table = self.table(name)?;
        self.write_entry(name, None)?;
        self.tables.write().remove(name);
        self.advance();
        Ok(self.context.drop_state(table.state().id())?)
    }

    /// The table of this name.
    pub fn table(&self, name: &str) -> Result<Arc<Table>> {
        if let Some(table) = self.tables.read().get(name) {
            return Ok(Arc::clone(table));
        }
        match self.damaged.read().get(name) {
            Some(table) => Err(Error::corrupt(format!("table {name}"), table.reason.clone())),
            None => Err(Error::NoSuchTable { table: name.to_owned() }),
        }
    }

    /// The tables that cannot be used because they are damaged, by name, with what is wrong.
    pub fn damaged_tables(&self) -> BTreeMap<String, String> {
        self.damaged.read().iter().map(|(name, table)| (name.clone(), table.reason.clone())).collect()
    }

    /// Which damaged states belong to which tables ("table x").
    pub(crate) fn damaged_states(&self) -> BTreeMap<StateId, String> {
        let damaged = self.damaged.read();
        let known = damaged.iter().filter_map(|(name, table)| Some((table.state?, format!("table {name}"))));
        known.collect()
    }

    /// The catalog's own state.
    pub(crate) fn state(&self) -> &Arc<State> {
        &self.state
    }

    /// The catalog's root object, as (offset, bytes).
    pub(crate) fn root_object(&self) -> (u64, u64) {
        (self.context.pool().root(ROOT_NAME).unwrap_or(0), ROOT_WORDS as u64 * 8)
    }

    /// All tables, by name.
    pub fn tables(&self) -> Vec<Arc<Table>> {
        self.tables.read().values().cloned().collect()
    }

    /// Begins a transaction with snapshot isolation.
    pub fn begin(&self) -> Result<Arc<Transaction>> {
        Ok(self.context.begin()?)
    }

    /// Begins a transaction.
    pub fn begin_at(&self, isolation: Isolation) -> Result<Arc<Transaction>> {
        Ok(self.context.begin_at(isolation)?)
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
    let mut words = [ROOT_FORMAT, u64::from(state.id().0), u64::from(default_group.0), 0];
    words[3] = root_checksum(&words[..3]);
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
    let no_root = || corrupt(format!("no root can be at {root:#x}"));
    let words = context.pool().try_words(root, ROOT_WORDS).ok_or_else(no_root)?;
    context.pool().verify(root, ROOT_WORDS * 8)?;
    let word = |at: usize| words[at].load(Ordering::Relaxed);
    if word(0) != ROOT_FORMAT {
        return Err(corrupt(format!("unknown format {}", word(0))));
    }
    if word(3) != 0 && word(3) != root_checksum(&[word(0), word(1), word(2)]) {
        return Err(corrupt(format!("at {root:#x}, its checksum differs")));
    }
    let id = u32::try_from(word(1)).map_err(|_| corrupt(format!("state number {}", word(1))))?;
    let group = u32::try_from(word(2)).map_err(|_| corrupt(format!("group number {}", word(2))))?;
    let missing = || match context.damaged_states().get(&StateId(id)) {
        Some(what) => corrupt(what.clone()),
        None => corrupt(format!("there is no state {id}")),
    };
    Ok((context.state(StateId(id)).ok_or_else(missing)?, GroupId(group)))
}

fn root_checksum(words: &[u64]) -> u64 {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    1 << 32 | u64::from(crc32c::crc32c(&bytes))
}

fn encode_entry(name: &str, state: StateId, group: GroupId, schema: &Schema) -> Vec<u8> {
    let mut bytes = vec![ENTRY_VERSION];
    bytes.extend_from_slice(&state.0.to_le_bytes());
    bytes.extend_from_slice(&group.0.to_le_bytes());
    let schema = schema.to_bytes();
    bytes.extend_from_slice(&entry_checksum(name.as_bytes(), &bytes, &schema));
    bytes.extend_from_slice(&schema);
    bytes
}

fn entry_checksum(name: &[u8], header: &[u8], schema: &[u8]) -> [u8; ENTRY_CRC_BYTES] {
    [header, schema]
        .iter()
        .fold(crc32c::crc32c(name), |crc, part| crc32c::crc32c_append(crc, part))
        .to_le_bytes()
}

fn decode_entry(context: &StateContext, name: &str, entry: &[u8]) -> Result<Decoded> {
    let corrupt = |reason: String| Error::corrupt(format!("catalog entry of table {name}"), reason);
    let cut_off = || corrupt("cut off".to_owned());
    let (header, rest) = entry.split_at_checked(ENTRY_HEADER_BYTES).ok_or_else(cut_off)?;
    let schema = match header[0] {
        ENTRY_VERSION_PLAIN => rest,
        ENTRY_VERSION => {
            let (checksum, schema) = rest.split_at_checked(ENTRY_CRC_BYTES).ok_or_else(cut_off)?;
            if checksum != entry_checksum(name.as_bytes(), header, schema) {
                return Err(corrupt("its checksum differs".to_owned()));
            }
            schema
        }
        version => return Err(corrupt(format!("unknown version {version}"))),
    };
    let number = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let schema = Schema::from_bytes(schema)?;
    let id = StateId(number(1));
    if let Some(what) = context.damaged_states().get(&id) {
        return Ok(Decoded::Damaged(DamagedTable { state: Some(id), reason: what.clone() }));
    }
    let state = context.state(id).ok_or_else(|| corrupt(format!("{id} does not exist")))?;
    state.set_holder(&format!("table {name}"));
    Ok(Decoded::Table(Table::new(name.to_owned(), schema, state, GroupId(number(5)))))
}

/// What a row of the catalog stands for.
enum Decoded {
    Table(Arc<Table>),
    /// The row is sound, the state is not.
    Damaged(DamagedTable),
}

/// A table that cannot be used.
struct DamagedTable {
    /// None if its row in the catalog is damaged.
    state: Option<StateId>,
    reason: String,
}

/// What the catalog holds.
struct Loaded {
    tables: BTreeMap<String, Arc<Table>>,
    damaged: BTreeMap<String, DamagedTable>,
    /// It is not known which states belong to some tables.
    rows_damaged: bool,
}

/// Row by row: one that is damaged keeps no other table from being opened.
fn load(context: &Arc<StateContext>, state: &Arc<State>) -> Result<Loaded> {
    // Small, and everything hangs on it.
    state.check_index()?;
    let tx = context.begin()?;
    let mut loaded = Loaded { tables: BTreeMap::new(), damaged: BTreeMap::new(), rows_damaged: false };
    for key in state.keys() {
        let name = String::from_utf8_lossy(&key).into_owned();
        let decoded = match tx.read(state, &key, |entry| decode_entry(context, &name, entry)) {
            Ok(Some(decoded)) => decoded,
            Ok(None) => continue,
            Err(error) if error.is_corrupt() => Err(error.into()),
            Err(error) => return Err(error.into()),
        };
        match decoded {
            Ok(Decoded::Table(table)) => {
                loaded.tables.insert(name, table);
            }
            Ok(Decoded::Damaged(table)) => {
                loaded.damaged.insert(name, table);
            }
            Err(error) => {
                tracing::error!(table = name, %error, "a damaged row of the catalog");
                loaded.rows_damaged = true;
                loaded.damaged.insert(name, DamagedTable { state: None, reason: error.to_string() });
            }
        }
    }
    Ok(loaded)
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
