//! System tables: state of the database when the statement is planned.
//!
//! | table | rows |
//! | --- | --- |
//! | `entresol.tables` | `name`, `key_columns`, `hidden_key`, `columns`, `state`, `state_group`, `placement`, `layout`, `cluster_by`, `layout_choice`, `structure`, `protocol`, `hot_bytes`, `structure_choice`, `structure_reason`, `node_bytes`, `elf_by`, `object_store`; one per table |
//! | `entresol.advice` | `table`, `rank`, `statement`, `gain`, `before_ms`, `after_ms`, `why`; one per proposal, and per decision about a layout `auto` |
//! | `entresol.cache` | `table`, `column`, `pages`, `bytes`, `target_share`, `hits`, `misses`, `expected_gain_ms`, `lists`, `levels`: pages of tables with row groups that are in DRAM; one per column that was read, and per Elf index that was searched, with the lists of each dimension where lists are cached |
//! | `entresol.memory` | `consumer`, `used_bytes`, `peak_bytes`, `elastic`, `max_bytes`; one per consumer of the memory budget |
//! | `entresol.pool` | `counter`, `value`: the pool's counters ([`PoolStats`](entresol_memory::PoolStats)) |
//! | `entresol.placement` | `pool`, `domain`, `device_node`, `processors`, `piece_bytes`, `writes_at_once`, `calibrated`; one per pool |
//! | `entresol.loads` | `session`, `user`, `table`, `rows`, `seconds`, `way`, `file`, `bytes`, `bytes_total`; one per COPY, INSERT ... SELECT and CREATE TABLE AS that runs |
//! | `entresol.history` | `table`, `kept`, `readable_from`, `readable_from_transaction`; one per table with a version history |
//! | `entresol.indexes` | `name`, `table`, `columns`, `unique`, `method`, `structure`, `structure_choice`, `structure_reason`, `node_bytes`, `hot_bytes`; one per index that is not of a primary key |
//! | `entresol.vacuum` | `table`, `index`, `state`, `dead_keys`, `reclaimed`, `last_pass`, `held_by`; one per table and index |
//! | `entresol.operators` | `topology`, `number`, `operator`, `tuples_in`, `tuples_out`, `parts`, `late`, `expired`, `watermark`, `tuples_per_second`; one per operator and source of a topology that has run |
//! | `entresol.sources` | `name`, `connector`, `topology`, `state`, `tuples`, `rejected`, `watermark_lag_ms`, `error`, `position`, `definition`, `owner`; one per source and topology that reads it |
//! | `entresol.sinks` | `name`, `state`, `target`, `tuples`, `commits`, `bytes_written`, `rows_written`, `error`, `owner`; one per sink; bytes and rows of files |
//! | `entresol.streams` | `name`, `topologies`, `columns`, `definition`, `owner`; one per stream of no topology or view over streams, with those that read it |
//! | `entresol.subscriptions` | `session`, `user`, `relations`, `phase`, `position`, `rows`, `seconds`; one per SUBSCRIBE that runs |
//! | `entresol.topologies` | `name`, `state`, `tuples`, `commits`, `aborts`, `retries`, `late`, `rejected`, `tuples_per_second`, `watermark`, `watermark_lag_ms`, `last_commit`, `commit_p50_us`, `commit_p99_us`, `error`, `parallelism`, `state_rows`, `state_bytes`, `owner`; one per topology |
//! | `entresol.workload` | `table`, `kind`, `conditions`, `columns`, `runs`, `rows`, `bytes`, `selectivity`, `selectivity_class`, `elapsed_ms`; one per query class, kind of operation by key, and index |
//! | `entresol.database` | `property`, `value`: domain, whether the last run closed it, policy and maximum of the cache of column pages |

use crate::catalog::rows::history;
use crate::catalog::rows::indexes;
use crate::catalog::rows::loads;
use crate::catalog::rows::streams;
use crate::catalog::rows::subscriptions;
use crate::catalog::rows::vacuum;
use crate::catalog::rows::workload;
use crate::catalog::view::Source;
use datafusion::arrow::array::{
    ArrayRef, BooleanArray, Float64Array, Int32Array, Int64Array, StringArray, UInt32Array, UInt64Array,
};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::TableProvider;
use datafusion::common::Result as DFResult;
use datafusion::datasource::MemTable;
use entresol_memory::Pool;
use entresol_memory::budget::ConsumerUsage;
use entresol_memory::placement::format_cpu_list;
use entresol_tables::{CachedColumn, Catalog, Table};
use std::sync::Arc;

/// The names of the system tables.
pub(crate) const TABLES: [&str; 18] = [
    "advice",
    "cache",
    "database",
    "history",
    "indexes",
    "loads",
    "memory",
    "operators",
    "placement",
    "pool",
    "sinks",
    "sources",
    "streams",
    "subscriptions",
    "tables",
    "topologies",
    "vacuum",
    "workload",
];

/// Current content of a system table; `None` if there is none of this name.
pub(crate) fn table(source: &Source, name: &str) -> DFResult<Option<Arc<dyn TableProvider>>> {
    let catalog = &source.catalog;
    let batch = match name {
        "advice" => workload::advice(catalog)?,
        "cache" => cache(catalog)?,
        "database" => database(catalog)?,
        "history" => history::bounds(catalog)?,
        "indexes" => indexes::indexes(catalog)?,
        "loads" => loads::progress(&source.sessions)?,
        "memory" => memory(catalog)?,
        "operators" => streams::operators(&source.topologies)?,
        "placement" => placement(catalog)?,
        "pool" => pool(catalog)?,
        "sinks" => streams::sinks(&source.topologies, catalog)?,
        "streams" => streams::streams(&source.topologies, catalog)?,
        "subscriptions" => subscriptions::progress(&source.sessions)?,
        "sources" => streams::sources(&source.topologies, catalog)?,
        "tables" => tables(catalog)?,
        "topologies" => streams::topologies(&source.topologies, catalog)?,
        "vacuum" => vacuum::progress(catalog, &source.sessions)?,
        "workload" => workload::recorded(catalog)?,
        _ => return Ok(None),
    };
    Ok(Some(Arc::new(MemTable::try_new(batch.schema(), vec![vec![batch]])?)))
}

fn database(catalog: &Catalog) -> DFResult<RecordBatch> {
    let pool = catalog.context().pool();
    let values = [
        format!("{:?}", pool.domain()).to_lowercase(),
        pool.was_clean().to_string(),
        catalog.cache_policy().to_string(),
        catalog.page_cache_stats().max_bytes.to_string(),
    ];
    let properties = vec!["domain", "was_clean", "cache_policy", "cache_bytes_max"];
    let columns: [(&str, ArrayRef); 2] = [
        ("property", Arc::new(StringArray::from(properties))),
        ("value", Arc::new(StringArray::from_iter_values(values))),
    ];
    Ok(RecordBatch::try_from_iter(columns)?)
}

/// Columns of which pages were looked up in the cache.
fn cache(catalog: &Catalog) -> DFResult<RecordBatch> {
    let cached = catalog.cached_columns();
    let text = |of: &dyn Fn(&CachedColumn) -> String| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(cached.iter().map(of)))
    };
    let number = |of: &dyn Fn(&CachedColumn) -> u64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(cached.iter().map(|column| of(column).cast_signed())))
    };
    // NULL without proportional caching, and as long as no scan of the column is known.
    let share = |column: &CachedColumn| Some(column.share.as_ref()?.proportion);
    let gain_ms = |column: &CachedColumn| Some(column.gain_seconds? * 1e3);
    let lists = |column: &CachedColumn| Some(column.lists.as_ref()?.iter().sum::<u64>().cast_signed());
    let levels = |column: &CachedColumn| {
        let lists: Vec<String> = column.lists.as_ref()?.iter().map(u64::to_string).collect();
        Some(lists.join(", "))
    };
    let columns: [(&str, ArrayRef); 10] = [
        ("table", text(&|column| column.table.clone())),
        ("column", text(&|column| column.column.clone())),
        ("pages", number(&|column| column.counts.pages)),
        ("bytes", number(&|column| column.counts.bytes)),
        ("target_share", Arc::new(Float64Array::from_iter(cached.iter().map(share)))),
        ("hits", number(&|column| column.counts.hits)),
        ("misses", number(&|column| column.counts.misses)),
        ("expected_gain_ms", Arc::new(Float64Array::from_iter(cached.iter().map(gain_ms)))),
        ("lists", Arc::new(Int64Array::from_iter(cached.iter().map(lists)))),
        ("levels", Arc::new(StringArray::from_iter(cached.iter().map(levels)))),
    ];
    Ok(RecordBatch::try_from_iter(columns)?)
}

/// Consumers of the memory budget; no rows if the pool was opened without one.
fn memory(catalog: &Catalog) -> DFResult<RecordBatch> {
    let usage = catalog.context().pool().memory().map(|budget| budget.usage());
    let (max_bytes, lines) = usage.map_or((0, Vec::new()), |usage| (usage.max_bytes, usage.consumers));
    let number = |of: &dyn Fn(&ConsumerUsage) -> u64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(lines.iter().map(|line| of(line).cast_signed())))
    };
    let elastic: BooleanArray = lines.iter().map(|line| Some(line.consumer.is_elastic())).collect();
    let columns: [(&str, ArrayRef); 5] = [
        ("consumer", Arc::new(StringArray::from_iter_values(lines.iter().map(|line| line.consumer.name())))),
        ("used_bytes", number(&|line| line.used_bytes)),
        ("peak_bytes", number(&|line| line.peak_bytes)),
        ("elastic", Arc::new(elastic)),
        ("max_bytes", number(&|_| max_bytes)),
    ];
    Ok(RecordBatch::try_from_iter(columns)?)
}

/// Pools with their placement. The node is NULL if the kernel does not report it, processors if threads are
/// not pinned, pieces if checkpoints write nothing.
fn placement(catalog: &Catalog) -> DFResult<RecordBatch> {
    let context = catalog.context();
    let main = [("main", context.pool())];
    let beside = [("disk", context.disk_pool()), ("volatile", context.volatile_pool())];
    let beside = beside.into_iter().filter_map(|(name, pool)| Some((name, pool?)));
    let pools: Vec<(&str, &Arc<Pool>)> = main.into_iter().chain(beside).collect();
    let text = |of: &dyn Fn(&Pool) -> Option<String>| -> ArrayRef {
        Arc::new(pools.iter().map(|(_, pool)| of(pool)).collect::<StringArray>())
    };
    let number = |of: &dyn Fn(&Pool) -> Option<usize>| -> ArrayRef {
        let numbers = pools.iter().map(|(_, pool)| of(pool).map(|number| number as i64));
        Arc::new(numbers.collect::<Int64Array>())
    };
    let calibrated: BooleanArray =
        pools.iter().map(|(_, pool)| Some(pool.checkpoint_writing()?.is_calibrated)).collect();
    let processors = |pool: &Pool| pool.thread_placement().map(|place| format_cpu_list(place.cpus()));
    let columns: [(&str, ArrayRef); 7] = [
        ("pool", Arc::new(StringArray::from_iter_values(pools.iter().map(|(name, _)| name)))),
        ("domain", text(&|pool| Some(pool.domain().to_string()))),
        ("device_node", number(&|pool| pool.device_node())),
        ("processors", text(&processors)),
        ("piece_bytes", number(&|pool| Some(pool.checkpoint_writing()?.piece_bytes))),
        ("writes_at_once", number(&|pool| Some(pool.checkpoint_writing()?.at_once))),
        ("calibrated", Arc::new(calibrated)),
    ];
    let nullable =
        |(name, column): (&'static str, ArrayRef)| (name, column, !matches!(name, "pool" | "domain"));
    Ok(RecordBatch::try_from_iter_with_nullable(columns.map(nullable))?)
}

fn pool(catalog: &Catalog) -> DFResult<RecordBatch> {
    let (stats, objects) = (catalog.context().pool().stats(), catalog.object_store_stats());
    let counters = [
        ("pool_bytes", stats.pool_bytes),
        ("allocated_bytes", stats.allocated_bytes),
        ("journal_bytes", stats.journal_bytes),
        ("journal_appended_bytes", stats.journal_appended_bytes),
        ("checkpoint_bytes", stats.checkpoint_bytes),
        ("checkpoints", stats.checkpoints),
        ("flushes", stats.flushes),
        ("fences", stats.fences),
        ("syncs", stats.syncs),
        ("replayed_bytes", stats.replayed_bytes),
        ("direct_reads", stats.direct_reads),
        ("direct_read_bytes", stats.direct_read_bytes),
        ("object_reads", objects.reads),
        ("object_read_bytes", objects.read_bytes),
        ("object_writes", objects.writes),
        ("object_written_bytes", objects.written_bytes),
        ("object_lists", objects.lists),
        ("object_deletes", objects.deletes),
        ("object_failures", objects.failures),
    ];
    let columns: [(&str, ArrayRef); 2] = [
        ("counter", Arc::new(StringArray::from_iter_values(counters.map(|(name, _)| name)))),
        ("value", Arc::new(UInt64Array::from_iter_values(counters.map(|(_, value)| value)))),
    ];
    Ok(RecordBatch::try_from_iter(columns)?)
}

fn tables(catalog: &Catalog) -> DFResult<RecordBatch> {
    let tables = catalog.tables();
    let text = |of: &dyn Fn(&Table) -> String| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(tables.iter().map(|table| of(table))))
    };
    let number = |of: &dyn Fn(&Table) -> u32| -> ArrayRef {
        Arc::new(UInt32Array::from_iter_values(tables.iter().map(|table| of(table))))
    };
    let hidden: BooleanArray = tables.iter().map(|table| Some(table.schema().hidden_key())).collect();
    let counts = tables.iter().map(|table| table.schema().visible_columns().len() as i32);
    let cluster_by = |table: &Table| {
        let clustering = table.definition().clustering.as_ref();
        clustering.map_or(String::new(), |clustering| clustering.cluster_by(table.schema()))
    };
    let choice = |table: &Table| if table.definition().auto_layout { "auto" } else { "set" };
    let hot_bytes = tables.iter().map(|table| table.state().hot_bytes().cast_signed());
    let structure_choice =
        |table: &Table| if table.definition().structure_reason.is_some() { "auto" } else { "set" };
    let reason = |table: &Table| table.definition().structure_reason.clone().unwrap_or_default();
    let node_bytes = tables.iter().map(|table| table.definition().node_bytes.map(i32::from));
    let elf_by = |table: &Table| table.definition().elf_layout.elf_by(table.schema()).unwrap_or_default();
    let columns: [(&str, ArrayRef); 18] = [
        ("name", text(&|table| table.name().to_owned())),
        ("key_columns", text(&|table| table.schema().key_names().collect::<Vec<_>>().join(", "))),
        ("hidden_key", Arc::new(hidden)),
        ("columns", Arc::new(Int32Array::from_iter_values(counts))),
        ("state", number(&|table| table.state().id().0)),
        ("state_group", number(&|table| table.group().0)),
        ("placement", text(&|table| table.tier().to_string())),
        ("layout", text(&|table| table.definition().layout.name().to_owned())),
        ("cluster_by", text(&cluster_by)),
        ("layout_choice", text(&|table| choice(table).to_owned())),
        ("structure", text(&|table| table.definition().structure.name().to_owned())),
        ("protocol", text(&|table| table.state().protocol().name().to_owned())),
        ("hot_bytes", Arc::new(Int64Array::from_iter_values(hot_bytes))),
        ("structure_choice", text(&|table| structure_choice(table).to_owned())),
        ("structure_reason", text(&reason)),
        ("node_bytes", Arc::new(Int32Array::from_iter(node_bytes))),
        ("elf_by", text(&elf_by)),
        ("object_store", text(&|table| table.object_store().unwrap_or_default().to_owned())),
    ];
    Ok(RecordBatch::try_from_iter(columns)?)
}
