//! `entresol info DIR`: properties and contents of a database. If another process has it open, those in its
//! file headers.

use super::{bytes_text, uuid_text};
use crate::arguments::InfoArguments;
use crate::error::Result;
use crate::shell::meta::print_table;
use crate::shell::output;
use entresol::memory::{Pool, PoolInfo, PoolOffset, PoolStats};
use entresol::tables::{Catalog, ScanRange, Table};
use entresol::{ErrorKind, offline};
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Information that needs the database to be opened, beyond the headers.
struct OpenedDatabase {
    domain: String,
    was_clean: bool,
    stats: PoolStats,
    roots: Vec<(String, PoolOffset)>,
    tables: Vec<TableInfo>,
    damaged: Vec<(String, String)>,
}

struct TableInfo {
    name: String,
    rows: u64,
    bytes: u64,
    history: Option<HistoryInfo>,
}

/// Version history of a table.
struct HistoryInfo {
    bytes: u64,
    kept: Option<Duration>,
}

impl HistoryInfo {
    fn kept(&self) -> String {
        self.kept.map_or("forever".to_owned(), |kept| format!("{kept:?}"))
    }
}

/// Runs `entresol info`.
pub fn run(arguments: &InfoArguments) -> Result<()> {
    let headers = Pool::inspect(&arguments.dir).map_err(entresol::Error::from)?;
    let opened = match offline::open(&arguments.dir) {
        Ok(pool) => Some(open_database(&pool)?),
        Err(error) if error.kind() == ErrorKind::Busy => None,
        Err(error) => return Err(error.into()),
    };
    let mut out = output::stdout();
    if arguments.json {
        writeln!(out, "{:#}", to_json(&arguments.dir, &headers, opened.as_ref()))?;
    } else {
        print(&arguments.dir, &headers, opened.as_ref(), &mut out)?;
    }
    Ok(out.flush()?)
}

fn open_database(pool: &Arc<Pool>) -> Result<OpenedDatabase> {
    // Before anything is opened that adds to it.
    let stats = pool.stats();
    let catalog = offline::catalog(pool)?;
    let mut bytes = std::collections::BTreeMap::new();
    let mut history_bytes = std::collections::BTreeMap::new();
    let states = catalog.context().check(|_, _, _| Ok(()), |_| {}).map_err(entresol::Error::from)?;
    for state in states {
        bytes.insert(state.id, state.index_bytes + state.object_bytes);
        history_bytes.extend(state.history_of.map(|of| (of, state.index_bytes + state.object_bytes)));
    }
    let mut damaged: Vec<(String, String)> = catalog.damaged_tables().into_iter().collect();
    let mut tables = Vec::new();
    for table in catalog.tables() {
        match count_rows(&catalog, &table) {
            Ok(rows) => tables.push(TableInfo {
                name: table.name().to_owned(),
                rows,
                bytes: bytes.get(&table.state().id()).copied().unwrap_or(0),
                history: table.history_bounds().map(|past| HistoryInfo {
                    bytes: history_bytes.get(&table.state().id()).copied().unwrap_or(0),
                    kept: past.kept,
                }),
            }),
            Err(error) => damaged.push((table.name().to_owned(), error.to_string())),
        }
    }
    Ok(OpenedDatabase {
        domain: pool.domain().to_string(),
        was_clean: pool.was_clean(),
        stats,
        roots: pool.roots(),
        tables,
        damaged,
    })
}

fn count_rows(catalog: &Catalog, table: &Arc<Table>) -> entresol::tables::Result<u64> {
    let tx = catalog.begin()?;
    let (mut rows, mut cursor) = (0, table.scan(ScanRange::full()));
    while cursor.next_batch(&tx, |_| rows += 1)? {}
    Ok(rows)
}

fn print(
    directory: &Path,
    headers: &PoolInfo,
    opened: Option<&OpenedDatabase>,
    out: &mut dyn Write,
) -> Result<()> {
    let mut rows = vec![
        ("directory", directory.display().to_string()),
        ("format version", headers.format_version.to_string()),
        ("UUID", uuid_text(headers.uuid)),
        ("pool file", bytes_text(headers.pool_file_bytes)),
        ("grows by", bytes_text(headers.extent_bytes)),
    ];
    match &headers.journal {
        Some(journal) => {
            rows.push(("journal file", bytes_text(journal.file_bytes)));
            rows.push(("opens", journal.opens.to_string()));
            rows.push(("replay position", journal.replay_position.to_string()));
        }
        None => rows.push(("journal file", "none".to_owned())),
    }
    match opened {
        None => {
            rows.push(("state", "in use by another process; further properties are not available".to_owned()))
        }
        Some(opened) => {
            let clean = if opened.was_clean { "closed in order" } else { "not closed in order" };
            rows.push(("state", clean.to_owned()));
            rows.push(("domain", opened.domain.clone()));
            rows.push(("journal to replay", bytes_text(opened.stats.replayed_bytes)));
            rows.push(("pool", bytes_text(opened.stats.pool_bytes)));
            rows.push(("allocated", bytes_text(opened.stats.allocated_bytes)));
            let roots: Vec<&str> = opened.roots.iter().map(|(name, _)| name.as_str()).collect();
            rows.push(("roots", roots.join(", ")));
        }
    }
    let rows: Vec<Vec<String>> = rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    print_table(&["database", ""], &rows, out)?;
    let Some(opened) = opened else { return Ok(()) };
    let tables: Vec<Vec<String>> = opened
        .tables
        .iter()
        .map(|table| vec![table.name.clone(), table.rows.to_string(), bytes_text(table.bytes)])
        .collect();
    print_table(&["table", "rows", "size"], &tables, out)?;
    for table in &opened.tables {
        if let Some(history) = &table.history {
            writeln!(
                out,
                "history of {}: {}, kept {}",
                table.name,
                bytes_text(history.bytes),
                history.kept()
            )?;
        }
    }
    for (name, what) in &opened.damaged {
        writeln!(out, "table {name} is damaged: {what}")?;
    }
    Ok(())
}

fn to_json(directory: &Path, headers: &PoolInfo, opened: Option<&OpenedDatabase>) -> Value {
    let mut object = json!({
        "directory": directory.display().to_string(),
        "format_version": headers.format_version,
        "uuid": uuid_text(headers.uuid),
        "pool_file_bytes": headers.pool_file_bytes,
        "extent_bytes": headers.extent_bytes,
        "in_use": opened.is_none(),
        "journal": headers.journal.map(|journal| json!({
            "file_bytes": journal.file_bytes, "slot_bytes": journal.slot_bytes, "opens": journal.opens,
            "replay_position": journal.replay_position.bytes(), "closed": journal.closed,
        })),
    });
    let Some(opened) = opened else { return object };
    let tables: Vec<Value> = opened
        .tables
        .iter()
        .map(|table| {
            let history = table.history.as_ref();
            let history = history.map(|history| json!({ "bytes": history.bytes, "kept": history.kept() }));
            json!({ "name": table.name, "rows": table.rows, "bytes": table.bytes, "history": history })
        })
        .collect();
    let damaged: Vec<Value> =
        opened.damaged.iter().map(|(name, what)| json!({ "name": name, "what": what })).collect();
    let roots: Vec<Value> =
        opened.roots.iter().map(|(name, offset)| json!({ "name": name, "offset": offset.bytes() })).collect();
    let more = json!({
        "domain": opened.domain,
        "clean": opened.was_clean,
        "replay_bytes": opened.stats.replayed_bytes,
        "pool_bytes": opened.stats.pool_bytes,
        "allocated_bytes": opened.stats.allocated_bytes,
        "tables": tables,
        "damaged": damaged,
        "roots": roots,
    });
    if let (Some(object), Value::Object(more)) = (object.as_object_mut(), more) {
        object.extend(more);
    }
    object
}
