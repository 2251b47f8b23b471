//! Transactional streams: topologies of continuous queries over tables (dissertation 5.1, 5.3.3, 5.5).
//!
//! A [`Topology`] reads sources, pushes batches of tuples through operators and writes tables (TO_TABLE);
//! changes of tables continue as streams (TO_STREAM). A bounded part of the stream is a transaction
//! ([`Boundary`]): all its writes, operator state and source positions included, become visible and durable
//! at once.
//!
//! ```text
//!   source ── filter ── window + aggregate ── TO_TABLE ─ ─ ─ TO_STREAM ── lookup join ── TO_TABLE
//!     │                        │                 │         (on commit)                      │
//!     ▼                        ▼                 ▼                                          ▼
//!  streams_positions      state table          table                                      table
//!  └───────────────────────── one transaction ──────────────────────────────────────────────┘
//! ```
//!
//! # Invariants
//!
//! - Exactly once: a source that can be read again from a position contributes every tuple once to the
//!   tables, whatever crashes, stops, conflicts and aborts occur.
//! - A punctuation reaches every operator once, after all operators before it.
//! - External sinks see committed tuples only, at most once; a file has each exactly once
//!   ([`Stream::file_sink`], [`Stream::rolled_sink`]), a connection at least once ([`Stream::tcp_sink`]).
//! - Operator state is stored in tables; DRAM only caches it.
//!
//! # Crash
//!
//! A crash leaves the last committed transaction: positions, windows and tables of one snapshot. Starting the
//! topology again continues from there.
//!
//! # Limits
//!
//! [`BATCH_TUPLES`], [`GROUPS_IN_DRAM_MAX`] and [`OPEN_WINDOWS_MAX`] per window operator, [`JOIN_ROWS_MAX`] per join, [`PATTERN_ROWS_MAX`] per pattern,
//! [`READ_AHEAD_BATCHES_MAX`] per CSV source, [`REJECTS_PENDING_MAX`], the memory budget (input held for
//! replay), and the write set bound of the transactions.
//!
//! ```
//! # use entresol_memory::{Pool, PoolOptions};
//! # use entresol_transactions::StateContext;
//! use std::time::Duration;
//! use entresol_streams::{Aggregate, Boundary, GeneratorSource, Topology, TimeWindow};
//! use entresol_tables::{Catalog, Column, DataType, ScanRange, Value};
//!
//! # let pool = Pool::volatile(&PoolOptions::default())?;
//! let catalog = Catalog::open_or_create(StateContext::open_or_create(pool)?)?;
//! let columns = vec![Column::new("meter", DataType::Int), Column::new("at", DataType::Timestamp)];
//! let readings = GeneratorSource::new(columns, |n| {
//!     (n < 100).then(|| vec![Value::Int(n as i32 % 2), Value::Timestamp(n as i64 * 1_000_000)])
//! });
//! let topology = Topology::builder("metering", &catalog).boundary(Boundary::Every(10));
//! let hourly = topology
//!     .source("readings", readings)
//!     .window(TimeWindow::tumbling("at", Duration::from_secs(50)))
//!     .group_by(&["meter"])
//!     .aggregate(&[Aggregate::count()], "open_windows");
//! hourly.to_table("windows");
//! let report = topology.build()?.run()?;
//! assert_eq!(report.tuples, 100);
//!
//! let windows = catalog.table("windows")?.scan(ScanRange::full()).rows(&*catalog.begin()?)?;
//! assert_eq!(windows.len(), 4);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod asof_join;
mod boundary;
mod changing_sessions;
mod element;
mod error;
mod event_time;
mod execution;
mod expression;
mod graph;
mod histogram;
mod join;
mod operators;
mod owned_tables;
mod pattern;
mod positions;
mod ranking;
mod regular_join;
mod row_windows;
mod running;
mod running_groups;
mod sink_lengths;
mod sinks;
mod sources;
mod stream;
mod topology;
mod windowed;

pub use asof_join::{AsofJoin, AsofMatch};
pub use boundary::{Boundary, Merge, OnError};
pub use changing_sessions::ChangingSessions;
pub use element::{Batch, Element, Punctuation, Tuple};
pub use error::{Error, Result, StepError};
pub use event_time::EventTime;
pub use expression::{ColumnExpression, Expression, Reason};
pub use graph::TopologyOperator;
pub use histogram::Latencies;
pub use join::{JoinSide, StreamJoin, WindowEdge};
pub use operators::accumulator::Aggregate;
pub use operators::group_states::{AggregateFunction, GroupState};
pub use operators::lookup_join::JoinKind;
pub use operators::merge_into::MergeInto;
pub use operators::pattern::automaton::Pattern;
pub use operators::pattern::partition::{MatchGuard, PartitionMatcher};
pub use operators::pattern::path::{
    MatchExpression, NavigatedRows, Navigation, PatternExpression, PatternMeasure,
};
pub use operators::row_rules::RowRules;
pub use operators::state_form::{StateCosts, StateForm};
pub use operators::to_stream::Trigger;
pub use operators::to_table::ToTable;
pub use operators::window::{TimeWindow, WindowAssigner, WindowKind};
pub use operators::{Context, Operator, Output};
pub use owned_tables::{owned_targets, state_owner, state_tables, target_changes, target_owner};
pub use pattern::{PATTERN_VARIABLES_MAX, PartitionPattern, PatternVariable, RowPattern, numbers_table};
pub use positions::{
    POSITIONS_TABLE, SPLITS_TABLE, WATERMARKS_TABLE, remove_state, remove_unused_state, seek,
};
pub use ranking::{RANK_MAX, RankChanges, RankEmission, RankFunction, RankOrder, Ranking};
pub use regular_join::{JoinLife, RegularJoin};
pub use row_windows::{
    FrameBound, PRECEDING_ROWS_MAX, RANGE_ROWS_MAX, RowFrame, RowFunction, RowFunctionKind, RowWindows,
};
pub use running::{OperatorProgress, Progress, ProgressSnapshot, Report, Running};
pub use running_groups::{GroupLife, RunningGroups, values_table};
pub use sink_lengths::SINKS_TABLE;
pub use sinks::Sink;
pub use sinks::channel::ChannelSink;
pub use sinks::csv::CsvSink;
pub use sinks::json_lines::JsonLinesSink;
pub use sinks::rolled::{RolledFileFormat, RolledFiles};
pub use sources::change_rounds::ChangeRounds;
pub use sources::changes::ChangesSource;
pub use sources::channel::ChannelSource;
pub use sources::computed::SourceColumn;
pub use sources::csv::{CsvSource, DateFormat, READ_AHEAD_BATCHES_MAX, RECORD_FIELDS_MAX};
pub use sources::csv_reader::Record;
pub use sources::envelopes::{ChangeFormat, DELETED, Envelope, TRANSACTION, TRANSACTION_ORDER};
pub use sources::files::batches::{BatchFileFormat, BatchFileReader};
pub use sources::files::{FILES_MAX, FileFormat, FilesSource};
pub use sources::generator::{GeneratorSource, mixed};
pub use sources::included::IncludedColumns;
pub use sources::mapped::MappedSource;
pub use sources::marked::{MarkedSource, TransactionColumns};
pub use sources::nexmark::{Nexmark, NexmarkEntity};
pub use sources::paced::PacedSource;
pub use sources::tcp::{CONNECTIONS_MAX, QUEUE_BATCHES_MAX, TcpEndpoint, TcpSource};
pub use sources::transactions::TransactionSource;
pub use sources::{
    CommittedInput, Head, Next, Position, Positions, Reject, Source, SourceBatch, Split, SplitPosition,
};
pub use stream::Stream;
pub use topology::{Topology, TopologyBuilder};
pub use windowed::{EarlyEmission, GroupedStream, WindowedStream};

/// Maximum of tuples per call of a source.
pub const BATCH_TUPLES: usize = 4096;
/// Number of retries of a transaction after conflicts, behind which the topology fails if they took [`RETRY_TIME_MAX`].
pub const RETRIES_MAX: u32 = 16;
/// Time in which a transaction is tried again after conflicts, however often: definitions and other topologies may
/// come between it and its commit many times within milliseconds.
pub const RETRY_TIME_MAX: std::time::Duration = std::time::Duration::from_secs(3);
/// Number of times that a transaction is tried again when a condition of the topology aborts it, before the topology ends:
/// others may change the tables that the condition reads.
pub const ABORT_RETRIES_MAX: u32 = 5;
/// Maximum of tuples of a failed transaction that are stored in the table of its errors.
pub const DROPPED_TUPLES_MAX: usize = 1 << 16;
/// Maximum of bytes of such tuples, with the reason beside each.
pub const DROPPED_BYTES_MAX: usize = 64 << 20;
/// Maximum of changed results of an operator that wait for an interval; beyond them all are sent.
pub const EARLY_RESULTS_WAITING_MAX: usize = 1 << 16;
/// Bytes of results that waited for an interval, behind which the rest is sent in the next transaction.
pub const EARLY_RESULTS_BYTES_MAX: usize = 16 << 20;
/// Maximum of groups that one window operator caches in DRAM; others are read from its table.
pub const GROUPS_IN_DRAM_MAX: usize = 1 << 18;
/// Maximum of bytes that the state of a group has in its state table: functions that keep all values have no other.
pub const GROUP_STATE_BYTES_MAX: usize = 64 << 20;
/// Maximum of open windows of one window operator.
pub const OPEN_WINDOWS_MAX: usize = 1 << 16;
/// Maximum of open sessions of one session operator; all are in DRAM, as far as the memory budget allows.
pub const SESSIONS_OPEN_MAX: usize = 1 << 24;
/// Maximum of rows that one join of streams keeps, and of changed results of a regular join, or rows of changed sessions, in a
/// transaction.
pub const JOIN_ROWS_MAX: usize = 1 << 24;
/// Maximum of rows that one pattern buffers.
pub const PATTERN_ROWS_MAX: usize = 1 << 24;
/// Least number of tuples of a transaction whose commit runs beside the next one: for fewer, waking the other thread costs more
/// than it saves.
pub const OVERLAPPED_TUPLES_MIN: usize = 256;
/// Least bound of the memory of a topology: each operator reserves some.
pub const TOPOLOGY_MEMORY_MIN: u64 = 1 << 20;
/// Maximum of threads of a topology.
pub const PARALLELISM_MAX: usize = 64;
/// Maximum of bad records that wait for a commit; more make the topology commit early.
pub const REJECTS_PENDING_MAX: usize = 4096;
/// Time in which commits become durable, at any level, for a source that wants to know of them ([`Source::committed`]).
pub const ACKNOWLEDGED_WITHIN_MS: u32 = 100;
/// A partly filled transaction of `Boundary::Every` is committed if no tuple arrives for this long.
pub const IDLE_COMMIT_MS: u64 = 1000;
/// Windows over several sources do not wait for one that has sent nothing for this long.
pub const SOURCE_IDLE_MS: u64 = 10_000;

/// Zone of TIMESTAMPTZ in batches: values are instants.
const UTC: &str = "UTC";
