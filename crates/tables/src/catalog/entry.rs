//! Rows of the catalog: encoding, and loading of tables.
//!
//! The key of a row is the name of a table, the value, little-endian:
//!
//! | bytes | what |
//! | --- | --- |
//! | 1 | version, 3 |
//! | 4 | state of the rows |
//! | 4 | group of that state |
//! | 4 | CRC-32C of the name and all other bytes; not in version 1 |
//! | rest | version 3: the definition ([`TableDefinition::to_bytes`]); before: the schema ([`Schema::to_bytes`]) |
//!
//! Older versions are read; a table gets a row of this version when it is changed.

use super::comments::{self, Comments};
use super::relations::{self, Relations};
use super::statistics::{self, LoadedStatistics};
use crate::columns::cache::PageCache;
use crate::columns::objects::owner;
use crate::columns::store::ColumnStore;
use crate::error::{Error, Result};
use crate::index::Index;
use crate::schema::Schema;
use crate::schema::definition::{StatesBeside, TableDefinition};
use crate::table::Table;
use entresol_transactions::{ChangeLog, GroupId, State, StateContext, StateId, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;

const VERSION: u8 = 3;
const VERSION_SCHEMA: u8 = 2;
const VERSION_PLAIN: u8 = 1;
const HEADER_BYTES: usize = 9;
const CRC_BYTES: usize = 4;

/// Encodes the row of a table.
pub(super) fn encode_entry(table: &Table) -> Result<Vec<u8>> {
    let mut bytes = vec![VERSION];
    bytes.extend_from_slice(&table.state().id().0.to_le_bytes());
    bytes.extend_from_slice(&table.group().0.to_le_bytes());
    let indexes = table.indexes().iter().map(|index| index.state_id().0).collect();
    let log = match table.definition().changes {
        Some(_) => table.change_log()?.map(|log| log.state().id().0),
        None => None,
    };
    let columns = table.own_columns().map(|columns| columns.state().id().0);
    let places = table.own_columns().and_then(|columns| columns.places()).map(|places| places.id().0);
    let states = StatesBeside { indexes, change_log: log, columns, places };
    let definition = table.definition().to_bytes(&states)?;
    let checksum = checksum(table.name().as_bytes(), &bytes, &definition);
    bytes.extend_from_slice(&checksum);
    bytes.extend_from_slice(&definition);
    Ok(bytes)
}

fn checksum(name: &[u8], header: &[u8], rest: &[u8]) -> [u8; CRC_BYTES] {
    [header, rest]
        .iter()
        .fold(crc32c::crc32c(name), |crc, part| crc32c::crc32c_append(crc, part))
        .to_le_bytes()
}

/// Table of a row, or its damage.
enum DecodedEntry {
    Table(Arc<Table>),
    /// The row is valid, the state is damaged.
    Damaged(DamagedTable),
}

/// Table that cannot be used.
pub(super) struct DamagedTable {
    /// State of its rows; none if its row in the catalog is damaged.
    pub(super) state: Option<StateId>,
    /// States of its indexes, change log, row groups and places of rows: sound or not, they stay.
    pub(super) beside: Vec<StateId>,
    pub(super) reason: String,
}

fn decode_entry(
    (context, pages): (&Arc<StateContext>, &Arc<PageCache>),
    name: &str,
    entry: &[u8],
) -> Result<DecodedEntry> {
    let corrupt = |reason: String| Error::corrupt(format!("catalog entry of table {name}"), reason);
    let truncated = || corrupt("truncated".to_owned());
    let (header, rest) = entry.split_at_checked(HEADER_BYTES).ok_or_else(truncated)?;
    let rest = match header[0] {
        VERSION_PLAIN => rest,
        VERSION | VERSION_SCHEMA => {
            let (found, rest) = rest.split_at_checked(CRC_BYTES).ok_or_else(truncated)?;
            if found != checksum(name.as_bytes(), header, rest) {
                return Err(corrupt("checksum mismatch".to_owned()));
            }
            rest
        }
        version => return Err(corrupt(format!("unknown version {version}"))),
    };
    let (definition, beside) = match header[0] {
        VERSION => TableDefinition::from_bytes(name, rest)?,
        _ => (TableDefinition::plain(Schema::from_bytes(rest)?), StatesBeside::default()),
    };
    let number = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let id = StateId(number(1));
    let (groups, places) = (beside.columns.map(StateId), beside.places.map(StateId));
    if let Some(what) =
        [Some(id), groups, places].iter().flatten().find_map(|id| context.damaged_states().get(id))
    {
        let indexes = beside.indexes.iter().copied().map(StateId);
        let others = [beside.change_log.map(StateId), groups, places];
        let beside = indexes.chain(others.into_iter().flatten()).collect();
        return Ok(DecodedEntry::Damaged(DamagedTable { state: Some(id), beside, reason: what.clone() }));
    }
    let state = context.state(id).ok_or_else(|| corrupt(format!("{id} does not exist")))?;
    state.set_holder(&format!("table {name}"));
    let mut indexes = Vec::with_capacity(beside.indexes.len());
    for (index, id) in definition.indexes.iter().zip(beside.indexes) {
        let id = StateId(id);
        let state = match context.damaged_states().get(&id) {
            Some(what) => Err(what.clone()),
            None => Ok(context.state(id).ok_or_else(|| corrupt(format!("{id} does not exist")))?),
        };
        if let Ok(state) = &state {
            state.set_holder(&format!("index {} of table {name}", index.name));
        }
        indexes.push(Index::new(index.clone(), id, state, Timestamp::START));
    }
    if let (Some(id), Some(retention)) = (beside.change_log.map(StateId), definition.changes) {
        match context.state(id) {
            Some(log) => {
                log.set_holder(&format!("change log of table {name}"));
                context.resume_change_log(&state, &ChangeLog::open(log, retention.time()));
            }
            // The table can be read and written; who asks for its changes gets an error.
            None => tracing::error!(table = name, state = id.0, "the change log of a table is damaged"),
        }
    }
    let opened = |id: Option<StateId>, holder: &str| {
        let Some(id) = id else { return Ok(None) };
        let state = context.state(id).ok_or_else(|| corrupt(format!("{id} does not exist")))?;
        state.set_holder(&format!("{holder} of table {name}"));
        Ok::<_, Error>(Some(state))
    };
    let (groups, places) = (opened(groups, "row groups")?, opened(places, "places of rows")?);
    let columns = groups.map(|groups| ColumnStore::open(context, (groups, places), pages));
    let (group, beside) = (GroupId(number(5)), (indexes, columns));
    Ok(DecodedEntry::Table(Table::new(name.to_owned(), definition, state, group, beside)))
}

/// Content of the catalog.
pub(super) struct LoadedCatalog {
    pub(super) tables: BTreeMap<String, Arc<Table>>,
    pub(super) damaged: BTreeMap<String, DamagedTable>,
    pub(super) relations: Relations,
    pub(super) statistics: LoadedStatistics,
    pub(super) comments: Comments,
    /// True if the states of some tables are unknown.
    pub(super) rows_damaged: bool,
}

/// Loads the catalog row by row: a damaged one does not prevent other tables from being opened.
pub(super) fn load(
    context: &Arc<StateContext>,
    pages: &Arc<PageCache>,
    state: &Arc<State>,
) -> Result<LoadedCatalog> {
    // Small, and everything depends on it.
    state.check_index()?;
    let tx = context.begin()?;
    let mut loaded = LoadedCatalog {
        tables: BTreeMap::new(),
        damaged: BTreeMap::new(),
        relations: Relations::default(),
        statistics: LoadedStatistics::default(),
        comments: Comments::default(),
        rows_damaged: false,
    };
    for key in state.keys()? {
        if owner::is_key(&key) {
            // Who writes objects reads it.
            continue;
        }
        if statistics::is_key(&key) {
            loaded.statistics.load(&tx, state, &key)?;
            continue;
        }
        if comments::is_key(&key) {
            loaded.comments.load(key.to_vec());
            continue;
        }
        if relations::is_key(&key) {
            // A row of an unknown version may have states.
            loaded.rows_damaged |= !relations::load_row(&loaded.relations, &tx, state, &key)?;
            continue;
        }
        let name = String::from_utf8_lossy(&key).into_owned();
        let decoded = match tx.read(state, &key, |entry| decode_entry((context, pages), &name, entry)) {
            Ok(Some(decoded)) => decoded,
            Ok(None) => continue,
            Err(error) if error.is_corrupt() => Err(error.into()),
            Err(error) => return Err(error.into()),
        };
        match decoded {
            Ok(DecodedEntry::Table(table)) => {
                loaded.tables.insert(name, table);
            }
            Ok(DecodedEntry::Damaged(table)) => {
                loaded.damaged.insert(name, table);
            }
            Err(error) => {
                tracing::error!(table = name, %error, "a damaged row of the catalog");
                loaded.rows_damaged = true;
                loaded.damaged.insert(
                    name,
                    DamagedTable { state: None, beside: Vec::new(), reason: error.to_string() },
                );
            }
        }
    }
    Ok(loaded)
}
