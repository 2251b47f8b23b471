//! System tables of streams.

use crate::error::{Error, Result};
use crate::parser::statement::{STREAM_VIEW, created_source};
use crate::schema_names::{SOURCES_TABLE, STREAMS_TABLE};
use crate::session::owners::{self, OwnedObject, Owners};
use crate::session::state_size::{self, StateSize};
use crate::session::topologies::{Topologies, TopologyStatus};
use datafusion::arrow::array::{ArrayRef, Float64Array, Int64Array, StringArray, TimestampMicrosecondArray};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::Result as DFResult;
use entresol_streams::{
    EventTime, Latencies, OperatorProgress, POSITIONS_TABLE, ProgressSnapshot, SINKS_TABLE, SPLITS_TABLE,
    WATERMARKS_TABLE,
};
use entresol_tables::{Catalog, ScanRange, Value};
use entresol_transactions::Timestamp;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Columns of the table of what sinks wrote.
const BYTES_WRITTEN: usize = 2;
const ROWS_WRITTEN: usize = 3;
/// Watermarks from the year 10000 on say that all sources have ended.
const WATERMARK_END_US: i64 = 253_402_300_800_000_000;

/// The topologies, with their counters.
pub(super) fn topologies(topologies: &Topologies, catalog: &Catalog) -> DFResult<RecordBatch> {
    let all = topologies.statuses();
    let text = |of: &dyn Fn(&TopologyStatus) -> Option<String>| -> ArrayRef {
        Arc::new(all.iter().map(of).collect::<StringArray>())
    };
    let number = |of: &dyn Fn(&ProgressSnapshot) -> Option<u64>| -> ArrayRef {
        let numbers = all.iter().map(|status| status.progress.as_ref().and_then(of).map(u64::cast_signed));
        Arc::new(numbers.collect::<Int64Array>())
    };
    let last_commits = all.iter().map(|status| {
        let last_cts = status.progress.as_ref().map(|progress| progress.last_cts);
        last_cts.filter(|cts| *cts > Timestamp::START).map(Timestamp::bigint)
    });
    let now_ns = catalog.context().pool().env().now_ns();
    let watermarks = watermarks(catalog)?;
    let watermarks = all.iter().map(|status| watermarks.get(&status.name).copied());
    let watermarks: ArrayRef = Arc::new(watermarks.collect::<TimestampMicrosecondArray>());
    let rates = all.iter().map(|status| {
        let rate = status.progress.as_ref().map(|progress| progress.tuples_per_s.cast_signed());
        if status.state == "running" { rate } else { None }
    });
    let rates: ArrayRef = Arc::new(rates.collect::<Int64Array>());
    let latency = |of: &dyn Fn(&Latencies) -> f64| -> ArrayRef {
        // None before the first commit.
        let committed = |status: &TopologyStatus| status.commit_latencies.filter(|found| found.samples > 0);
        Arc::new(all.iter().map(|status| committed(status).as_ref().map(of)).collect::<Float64Array>())
    };
    let sizes: Vec<StateSize> = all
        .iter()
        .map(|status| state_size::size_of_topology(catalog, &status.name).map_err(crate::error::external))
        .collect::<DFResult<_>>()?;
    let size = |of: fn(&StateSize) -> u64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(sizes.iter().map(|size| of(size).cast_signed())))
    };
    let threads = all.iter().map(|status| status.parallelism.and_then(|threads| i64::try_from(threads).ok()));
    let owners = owners(catalog)?;
    let owner = |status: &TopologyStatus| Some(owner_of_topology(&owners, &status.name));
    let columns: [(&str, ArrayRef); 19] = [
        ("name", text(&|status| Some(status.name.clone()))),
        ("state", text(&|status| Some(status.state.to_owned()))),
        ("tuples", number(&|progress| Some(progress.tuples))),
        ("commits", number(&|progress| Some(progress.transactions))),
        ("aborts", number(&|progress| Some(progress.aborts))),
        ("retries", number(&|progress| Some(progress.retries))),
        ("late", number(&|progress| Some(progress.late))),
        ("rejected", number(&|progress| Some(progress.rejected))),
        ("tuples_per_second", rates),
        ("watermark", watermarks),
        ("watermark_lag_ms", number(&|progress| progress.watermark_lag_ms(now_ns))),
        ("last_commit", Arc::new(last_commits.collect::<Int64Array>())),
        ("commit_p50_us", latency(&|latencies| latencies.p50_us)),
        ("commit_p99_us", latency(&|latencies| latencies.p99_us)),
        ("error", text(&|status| status.error.clone())),
        ("parallelism", Arc::new(threads.collect::<Int64Array>())),
        ("state_rows", size(|size| size.rows)),
        ("state_bytes", size(|size| size.bytes)),
        ("owner", text(&owner)),
    ];
    let nullable = |(name, column): (&'static str, ArrayRef)| {
        (name, column, !matches!(name, "name" | "state" | "owner"))
    };
    Ok(RecordBatch::try_from_iter_with_nullable(columns.map(nullable))?)
}

/// Owners of the objects that do not belong to the superusers.
fn owners(catalog: &Catalog) -> DFResult<Owners> {
    owners::all(catalog).map_err(crate::error::external)
}

/// Owner of a topology, which may be that of a materialized view with deferred refresh.
fn owner_of_topology(owners: &Owners, name: &str) -> String {
    let is_topology = owners.contains_key(&(OwnedObject::Topology, name.to_owned()));
    let object = if is_topology { OwnedObject::Topology } else { OwnedObject::MaterializedView };
    owners::shown(owners, object, name)
}

/// Least watermark of the windows of each topology, as of its last commit; none once its sources have ended.
fn watermarks(catalog: &Catalog) -> DFResult<BTreeMap<String, i64>> {
    let mut least: BTreeMap<String, i64> = BTreeMap::new();
    for row in stored_rows(catalog, WATERMARKS_TABLE)? {
        if let (Some(Value::Varchar(topology)), Some(Value::Timestamp(time_us))) = (row.first(), row.get(2))
            && *time_us < WATERMARK_END_US
        {
            let known = least.entry(topology.to_string()).or_insert(*time_us);
            *known = (*known).min(*time_us);
        }
    }
    Ok(least)
}

/// The operators and sources of the topologies that have run, with their counters.
pub(super) fn operators(topologies: &Topologies) -> DFResult<RecordBatch> {
    let all = topologies.statuses();
    let rows: Vec<(&TopologyStatus, usize, &OperatorProgress)> = all
        .iter()
        .flat_map(|status| {
            let numbered = status.operators.iter().enumerate();
            numbered.map(move |(number, operator)| (status, number, operator))
        })
        .collect();
    let number = |of: &dyn Fn(&OperatorProgress) -> u64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|(.., operator)| of(operator).cast_signed())))
    };
    let rates = rows.iter().map(|(status, _, operator)| {
        (status.state == "running").then(|| operator.tuples_per_s.cast_signed())
    });
    let watermarks = rows.iter().map(|(.., operator)| {
        operator.watermark.map(EventTime::micros).filter(|time_us| *time_us < WATERMARK_END_US)
    });
    let names = rows.iter().map(|(status, ..)| status.name.as_str());
    let columns: [(&str, ArrayRef); 10] = [
        ("topology", Arc::new(StringArray::from_iter_values(names))),
        ("number", Arc::new(Int64Array::from_iter_values(rows.iter().map(|(_, number, _)| *number as i64)))),
        ("operator", Arc::new(StringArray::from_iter_values(rows.iter().map(|(.., row)| row.name.as_str())))),
        ("tuples_in", number(&|operator| operator.tuples_in)),
        ("tuples_out", number(&|operator| operator.tuples_out)),
        ("parts", number(&|operator| operator.parts as u64)),
        ("late", number(&|operator| operator.late)),
        ("expired", number(&|operator| operator.expired)),
        ("watermark", Arc::new(watermarks.collect::<TimestampMicrosecondArray>())),
        ("tuples_per_second", Arc::new(rates.collect::<Int64Array>())),
    ];
    let nullable = |(name, column): (&'static str, ArrayRef)| {
        (name, column, matches!(name, "watermark" | "tuples_per_second"))
    };
    Ok(RecordBatch::try_from_iter_with_nullable(columns.map(nullable))?)
}

/// Rows and bytes that a sink has written, as far as it counts them.
#[derive(Debug, Clone, Copy)]
pub(super) struct SinkProgress {
    pub(super) bytes: Option<i64>,
    pub(super) rows: Option<i64>,
}

/// Progress of each sink of these topologies; none of one that stores nothing of it.
pub(super) fn written_of_sinks(
    sinks: &[TopologyStatus],
    catalog: &Catalog,
) -> DFResult<Vec<Option<SinkProgress>>> {
    let stored = stored_rows(catalog, SINKS_TABLE)?;
    let count = |row: &[Value], at: usize| match row.get(at) {
        Some(Value::BigInt(count)) => Some(*count),
        _ => None,
    };
    // Where files are rolled there are several: the last one has all rows, and of these the least bytes wait.
    let last = |row: &&Vec<Value>| (count(row, ROWS_WRITTEN), Reverse(count(row, BYTES_WRITTEN)));
    let of_sink = |status: &TopologyStatus| {
        let name = Value::from(status.name.as_str());
        let row = stored.iter().filter(|row| row.first() == Some(&name)).max_by_key(last)?;
        Some(SinkProgress { bytes: count(row, BYTES_WRITTEN), rows: count(row, ROWS_WRITTEN) })
    };
    Ok(sinks.iter().map(of_sink).collect())
}

/// The sinks, with what they wrote.
pub(super) fn sinks(topologies: &Topologies, catalog: &Catalog) -> DFResult<RecordBatch> {
    let all: Vec<TopologyStatus> =
        topologies.statuses().into_iter().filter(|status| status.sink.is_some()).collect();
    let written = written_of_sinks(&all, catalog)?;
    let text = |of: &dyn Fn(&TopologyStatus) -> Option<String>| -> ArrayRef {
        Arc::new(all.iter().map(of).collect::<StringArray>())
    };
    let number = |of: &dyn Fn(&ProgressSnapshot) -> u64| -> ArrayRef {
        let numbers =
            all.iter().map(|status| status.progress.as_ref().map(|progress| of(progress).cast_signed()));
        Arc::new(numbers.collect::<Int64Array>())
    };
    let written = |of: fn(&SinkProgress) -> Option<i64>| -> ArrayRef {
        Arc::new(written.iter().map(|written| of(written.as_ref()?)).collect::<Int64Array>())
    };
    let owners = owners(catalog)?;
    let owner = |status: &TopologyStatus| Some(owners::shown(&owners, OwnedObject::Topology, &status.name));
    let columns: [(&str, ArrayRef); 9] = [
        ("name", text(&|status| Some(status.name.clone()))),
        ("state", text(&|status| Some(status.state.to_owned()))),
        ("target", text(&|status| status.sink.clone())),
        ("tuples", number(&|progress| progress.tuples)),
        ("commits", number(&|progress| progress.transactions)),
        ("bytes_written", written(|written| written.bytes)),
        ("rows_written", written(|written| written.rows)),
        ("error", text(&|status| status.error.clone())),
        ("owner", text(&owner)),
    ];
    let nullable = |(name, column): (&'static str, ArrayRef)| {
        (name, column, !matches!(name, "name" | "state" | "target" | "owner"))
    };
    Ok(RecordBatch::try_from_iter_with_nullable(columns.map(nullable))?)
}

/// Kind of the object of streams of a name: a source, a stream of no topology, or a view over streams.
pub fn stream_kind(catalog: &Catalog, name: &str) -> DFResult<Option<&'static str>> {
    for table in [SOURCES_TABLE, STREAMS_TABLE] {
        let Ok(stored) = catalog.table(table) else { continue };
        let row = catalog.begin().map_err(crate::error::external).and_then(|transaction| {
            stored.get(&transaction, &[Value::from(name)]).map_err(crate::error::external)
        })?;
        let Some(row) = row else { continue };
        let is_view = matches!(row.get(1), Some(Value::Varchar(text)) if text.starts_with(STREAM_VIEW));
        return Ok(Some(match table {
            SOURCES_TABLE => "source",
            _ if is_view => "view over streams",
            _ => "stream",
        }));
    }
    Ok(None)
}

/// Refuses a name of a new relation that a source or stream has.
pub(crate) fn check_name(catalog: &Catalog, name: &str) -> Result<()> {
    match stream_kind(catalog, name)? {
        Some(kind) => Err(Error::coded("42P07", format!("{kind} \"{name}\" already exists"))),
        None => Ok(()),
    }
}

/// The streams of no topology.
pub(super) fn streams(topologies: &Topologies, catalog: &Catalog) -> DFResult<RecordBatch> {
    let stored = stored_rows(catalog, STREAMS_TABLE)?;
    let text = |at: usize| -> ArrayRef {
        let texts = stored.iter().map(|row| match row.get(at) {
            Some(Value::Varchar(text)) => text.to_string(),
            _ => String::new(),
        });
        Arc::new(StringArray::from_iter_values(texts))
    };
    let readers = stored.iter().map(|row| match row.first() {
        Some(Value::Varchar(name)) => topologies.users(|used| used.uses(name)).join(", "),
        _ => String::new(),
    });
    let owners = owners(catalog)?;
    let shown = stored.iter().map(|row| match row.first() {
        Some(Value::Varchar(name)) => owners::shown(&owners, OwnedObject::Stream, name),
        _ => String::new(),
    });
    let columns: [(&str, ArrayRef); 5] = [
        ("name", text(0)),
        ("topologies", Arc::new(StringArray::from_iter_values(readers))),
        ("columns", text(2)),
        ("definition", text(1)),
        ("owner", Arc::new(StringArray::from_iter_values(shown))),
    ];
    Ok(RecordBatch::try_from_iter(columns)?)
}

/// All rows of a table; none if it does not exist.
fn stored_rows(catalog: &Catalog, table: &str) -> DFResult<Vec<Vec<Value>>> {
    let Ok(table) = catalog.table(table) else { return Ok(Vec::new()) };
    let transaction = catalog.begin().map_err(crate::error::external)?;
    table.scan(ScanRange::full()).rows(&transaction).map_err(crate::error::external)
}

/// Source, and a topology that reads it.
struct SourceUse<'s> {
    name: String,
    definition: String,
    topology: Option<&'s TopologyStatus>,
    /// Tuples and bad records over all runs.
    progress: Option<[i64; 2]>,
    /// Position behind what was read.
    position: Option<String>,
}

/// Maximum of the files whose positions are shown of a source.
const FILES_SHOWN_MAX: usize = 100;

/// The sources: one row for each topology that reads one, or one without; and the change logs that topologies read.
pub(super) fn sources(topologies: &Topologies, catalog: &Catalog) -> DFResult<RecordBatch> {
    let all = topologies.statuses();
    sources_batch(&source_uses(&all, catalog)?, &owners(catalog)?, catalog.context().pool().env().now_ns())
}

/// Source that a topology reads, with the tuples and bad records of it so far.
pub(super) struct ReadSource {
    pub(super) topology: String,
    pub(super) source: String,
    pub(super) progress: Option<[i64; 2]>,
}

/// Sources that topologies read.
pub(super) fn topology_sources(topologies: &[TopologyStatus], catalog: &Catalog) -> Result<Vec<ReadSource>> {
    let uses = source_uses(topologies, catalog)?;
    let read = uses.into_iter().filter_map(|of| {
        Some(ReadSource { topology: of.topology?.name.clone(), source: of.name, progress: of.progress })
    });
    Ok(read.collect())
}

fn source_uses<'s>(all: &'s [TopologyStatus], catalog: &Catalog) -> DFResult<Vec<SourceUse<'s>>> {
    let stored = stored_rows(catalog, POSITIONS_TABLE)?;
    let splits = stored_rows(catalog, SPLITS_TABLE)?;
    let mut uses: Vec<SourceUse<'s>> = Vec::new();
    for row in stored_rows(catalog, SOURCES_TABLE)? {
        let text = |at: usize| match row.get(at) {
            Some(Value::Varchar(text)) => text.to_string(),
            _ => String::new(),
        };
        let (name, definition) = (text(0), text(1));
        let readers: Vec<&TopologyStatus> =
            all.iter().filter(|status| status.relations.contains(&name)).collect();
        if readers.is_empty() {
            uses.push(SourceUse { name, definition, topology: None, progress: None, position: None });
            continue;
        }
        for reader in readers {
            let progress = read_so_far(&stored, reader, &name);
            let position = position_of((&stored, &splits), reader, &name);
            let (name, definition) = (name.clone(), definition.clone());
            uses.push(SourceUse { name, definition, topology: Some(reader), progress, position });
        }
    }
    for (reader, table) in
        all.iter().flat_map(|status| status.changes.iter().map(move |table| (status, table)))
    {
        let name = format!("CHANGES({table})");
        let progress = read_so_far(&stored, reader, &name);
        let position = position_of((&stored, &splits), reader, &name);
        uses.push(SourceUse { definition: name.clone(), name, topology: Some(reader), progress, position });
    }
    Ok(uses)
}

/// Tuples and bad records of a source that a topology has read, by the rows of the positions.
fn read_so_far(stored: &[Vec<Value>], reader: &TopologyStatus, source: &str) -> Option<[i64; 2]> {
    let key = [Value::from(reader.name.as_str()), Value::from(source)];
    let position = stored.iter().find(|row| row.starts_with(&key));
    position.and_then(|row| match row.get(4..6) {
        Some([Value::BigInt(tuples), Value::BigInt(rejected)]) => Some([*tuples, *rejected]),
        _ => None,
    })
}

/// Position of a topology in a source; of one of several files, that in each with its name.
fn position_of(
    (stored, splits): (&[Vec<Value>], &[Vec<Value>]),
    reader: &TopologyStatus,
    source: &str,
) -> Option<String> {
    let key = [Value::from(reader.name.as_str()), Value::from(source)];
    let number = |row: &[Value], at: usize| match row.get(at) {
        Some(Value::BigInt(number)) => Some(number.to_string()),
        _ => None,
    };
    let in_files: Vec<&Vec<Value>> = splits.iter().filter(|row| row.starts_with(&key)).collect();
    match in_files.as_slice() {
        [] => stored.iter().find(|row| row.starts_with(&key)).and_then(|row| number(row, 2)),
        [row] => number(row, 3),
        several => {
            let named = several.iter().take(FILES_SHOWN_MAX).filter_map(|row| match row.get(2) {
                Some(Value::Varchar(name)) => Some(format!("{name}: {}", number(row, 3)?)),
                _ => None,
            });
            let mut shown = named.collect::<Vec<String>>().join(", ");
            if several.len() > FILES_SHOWN_MAX {
                shown += ", ...";
            }
            Some(shown)
        }
    }
}

fn sources_batch(uses: &[SourceUse<'_>], owners: &Owners, now_ns: u64) -> DFResult<RecordBatch> {
    let text = |of: &dyn Fn(&SourceUse<'_>) -> Option<String>| -> ArrayRef {
        Arc::new(uses.iter().map(of).collect::<StringArray>())
    };
    let number = |of: &dyn Fn(&SourceUse<'_>) -> Option<i64>| -> ArrayRef {
        Arc::new(uses.iter().map(of).collect::<Int64Array>())
    };
    let lag =
        |of: &SourceUse<'_>| of.topology?.progress.as_ref()?.watermark_lag_ms(now_ns).map(u64::cast_signed);
    let columns: [(&str, ArrayRef); 11] = [
        ("name", text(&|of| Some(of.name.clone()))),
        ("connector", text(&|of| connector_of(&of.definition))),
        ("topology", text(&|of| of.topology.map(|topology| topology.name.clone()))),
        ("state", text(&|of| of.topology.map(|topology| topology.state.to_owned()))),
        ("tuples", number(&|of| of.progress.map(|[tuples, _]| tuples))),
        ("rejected", number(&|of| of.progress.map(|[_, rejected]| rejected))),
        ("watermark_lag_ms", number(&lag)),
        ("error", text(&|of| of.topology.and_then(|topology| topology.error.clone()))),
        ("position", text(&|of| of.position.clone())),
        ("definition", text(&|of| Some(of.definition.clone()))),
        ("owner", text(&|of| Some(owners::shown(owners, OwnedObject::Source, &of.name)))),
    ];
    let nullable = |(name, column): (&'static str, ArrayRef)| {
        (name, column, !matches!(name, "name" | "definition" | "owner"))
    };
    Ok(RecordBatch::try_from_iter_with_nullable(columns.map(nullable))?)
}

/// Connector of a source, from its statement.
fn connector_of(definition: &str) -> Option<String> {
    if definition.starts_with("CHANGES(") {
        return Some("table".to_owned());
    }
    let create = created_source(definition)?;
    let option = create.options.into_iter().find(|(name, _)| name == "connector");
    option.map(|(_, connector)| connector)
}
