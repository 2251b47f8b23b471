//! Tables: named, typed rows over transactional states.
//!
//! A [`Catalog`] contains the tables of a database; a [`Table`] reads and writes rows through a
//! [`Transaction`](entresol_transactions::Transaction). Rows are stored with one key and one value each in an
//! ordered base table; [`encoding`] describes the format. An [`Index`] maps other columns to rows.
//!
//! # Invariants
//!
//! - Encoded keys order as their values do, so scans are in key order.
//! - Every stored row fits its table's [`Schema`]; bytes that do not are reported as [`Error::Corrupt`].
//! - The catalog and the states agree after every crash (see [`Catalog`]), and so do tables and their
//!   indexes.
//!
//! # Memory
//!
//! [`COLUMNS_MAX`], [`KEY_BYTES_MAX`], [`ROW_BYTES_MAX`] and [`TABLES_MAX`]; scans go leaf by leaf. Write
//! sets are bounded by the transactions.
//!
//! ```
//! # use entresol_memory::{Durability, Pool, PoolOptions};
//! # use entresol_transactions::StateContext;
//! use entresol_tables::{Catalog, Column, DataType, ScanRange, Schema, TableOptions, Value};
//!
//! # let pool = Pool::volatile(&PoolOptions::default())?;
//! let catalog = Catalog::open_or_create(StateContext::open_or_create(pool)?)?;
//! let columns = vec![Column::new("meter", DataType::Int), Column::new("power", DataType::Double)];
//! let table = catalog.create_table("readings", Schema::new(columns, &["meter"])?, TableOptions::default())?;
//!
//! let tx = catalog.begin()?;
//! table.insert(&tx, &[Value::Int(7), Value::Double(0.5)])?;
//! tx.commit(Durability::Sync)?;
//!
//! let mut total = 0.0;
//! let tx = catalog.begin()?;
//! let mut cursor = table.scan(ScanRange::full());
//! while cursor.next_batch(&tx, |row| total += row.double(1))? {}
//! assert_eq!(total, 0.5);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod advice;
mod background;
mod batch;
mod catalog;
mod changes;
mod check;
mod columns;
pub mod cost;
pub mod encoding;
mod error;
mod group_codes;
mod index;
mod schema;
mod sequence;
pub mod statistics;
mod table;
mod value;
mod view;
pub mod workload;

/// Parts of the page cache of tables by column: policies, the model of proportional caching and its programs.
pub mod caching {
    pub use crate::columns::cache::advisor::{PIPELINES_MAX, ShareAdvisor, advise, advise_after};
    pub use crate::columns::cache::frames::{ColumnUse, Frames};
    pub use crate::columns::cache::model::{
        Bandwidths, Division, Pipeline, Proportions, Share, Shares, Workload,
    };
    pub use crate::columns::cache::page_key::{ColumnKey, PageKey, StoreNumber};
    pub use crate::columns::cache::policy::{CacheGoal, CachePolicy, ReplacementPolicy};
    pub use crate::columns::cache::program::{least_memory, least_time};
}

/// Columns as row groups store them, apart from tables.
pub mod encodings {
    pub use crate::columns::encoded::EncodedColumn;
}

pub use batch::builder::ColumnBuilder;
pub use batch::decimals::{DecimalOperand, DecimalOperation, decimal_operation};
pub use batch::decode::StoredRows;
pub use batch::encode::fitted_texts;
pub use batch::rows::{BatchBuilder, batch_to_rows, rows_of, rows_to_batch, value_at};
pub use batch::{arrow_schema, arrow_type};
pub use catalog::{
    Alteration, COMMENT_BYTES_MAX, Catalog, CollectedObjects, CommentTarget, NewLayout, NewSequence,
    ObjectCollector, OwnerChange, RelationKind, TABLE_NAME_BYTES_MAX, TABLES_MAX, TableOptions, Verify,
};
pub use changes::{
    CHANGE_TYPE, COMMIT_CTS, ChangeBatchBuilder, ChangeKind, OLD_PREFIX, RowChange, change_columns,
    open_change_columns,
};
pub use check::{CheckReport, HistoryReport, Problem, TableReport, check};
pub use columns::cache::frames::ColumnUse;
pub use columns::cache::policy::{CacheGoal, CachePolicy, ParseCachePolicyError};
pub use columns::cache::{CachedColumn, PageCacheStats};
pub use columns::clustering::choice::IteratorChoice;
pub use columns::condition::{ColumnCondition, ColumnFilter, IntegerSet};
pub use columns::estimates::ColumnEstimates;
pub use columns::merge::MergeStats;
pub use columns::merger::Merger;
pub use columns::objects::ObjectStoreStats;
pub use columns::pipeline::PipelinePrediction;
pub use columns::scan::{BlockReader, ColumnMorsel, ColumnScan, ColumnScanStats, DeltaReader, PageUse};
pub use entresol_transactions::{Direction, KeyRange};
pub use error::{Error, Result};
pub use group_codes::{AddedRows, GroupCodes};
pub use index::Index;
pub use index::cursor::{IndexBounds, IndexCursor};
pub use index::unique_key::UniqueKey;
pub use schema::clustering::{
    BLOCK_BYTES_DEFAULT, BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, CLUSTER_BITS_MAX, CLUSTER_DIMENSION_BITS_MAX,
    ClusteringDefinition, Dimension, Interleave, SplitPolicy,
};
pub use schema::definition::{
    CHECKS_MAX, CONSTRAINT_NAME_BYTES_MAX, Check, DEFINITION_BYTES_MAX, INDEX_COLUMNS_MAX, INDEXES_MAX,
    IndexDefinition, Retention, TableDefinition, TableLayout,
};
pub use schema::elf::{
    DimensionOrder, ELF_COLUMNS_MAX, ELF_INDEXES_MAX, ElfCaching, ElfDefinition, ElfLayout,
};
pub use schema::modifier;
pub use schema::modifier::{Modifier, fitted};
pub use schema::versions::SCHEMA_VERSIONS_MAX;
pub use schema::{
    COLUMN_NAME_BYTES_MAX, COLUMNS_MAX, Column, KEY_BYTES_MAX, KEY_COLUMNS_MAX, ROW_BYTES_MAX, ROWID_COLUMN,
    Schema,
};
pub use sequence::{
    BLOCK_VALUES, CACHE_VALUES_MAX, Identity, Position, Sequence, SequenceDefinition, SequenceOwner,
    SequenceStatus, SequenceType,
};
pub use table::cursor::Cursor;
pub use table::detached::EncodedUpsert;
pub use table::range::ScanRange;
pub use table::row_view::RowView;
pub use table::{Change, Table};
pub use value::interval::{Interval, IntervalError, IntervalUnit};
pub use value::{DataType, Row, Value, normalize_double, single};
pub use value::{calendar, decimal, interval, json};
pub use view::{ReadColumn, View, ViewDefinition, ViewRead};
