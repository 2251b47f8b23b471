//! Streams in SQL: sources and topologies, from their statements to what runs.
//!
//! ```text
//!   CREATE TOPOLOGY ─▶ steps ─▶ names: FROM a source ─▶ DataFusion's plan ─▶ operators ─▶ entresol_streams::Topology
//!        │                                                                      │ expressions, sources
//!        ▼
//!   ddl::stored_topologies                                     started again when the database is opened
//! ```
//!
//! A step is planned as a query over a relation that has the columns of its source, with the functions, types
//! and coercions of any query; its nodes become operators. What cannot run on a stream is refused by name.

pub(crate) mod alterations;
pub(crate) mod altered_actions;
pub(crate) mod altered_tables;
pub(crate) mod asof_joins;
pub(crate) mod batch_queries;
pub(crate) mod bound_plans;
pub(crate) mod boundaries;
pub(crate) mod changed_rows;
pub(crate) mod changing_joins;
pub(crate) mod changing_sessions;
pub(crate) mod changing_windows;
pub(crate) mod common_parts;
pub(crate) mod computed_columns;
pub(crate) mod conditions;
pub(crate) mod connectors;
pub(crate) mod definers;
pub(crate) mod dependents;
pub(crate) mod emission;
pub(crate) mod explaining;
pub(crate) mod expressions;
pub(crate) mod filled_relations;
pub(crate) mod first_rows;
pub(crate) mod generated_rows;
mod insert_targets;
pub(crate) mod joins;
pub(crate) mod keyed_tables;
pub(crate) mod late;
pub(crate) mod logged_table;
pub(crate) mod made_tables;
pub(crate) mod memory;
pub(crate) mod merge;
pub(crate) mod names;
pub(crate) mod operator_tree;
pub(crate) mod operators;
pub(crate) mod options;
pub(crate) mod options_text;
pub(crate) mod owned_targets;
pub(crate) mod owner_changes;
pub(crate) mod parallelism;
pub(crate) mod parquet_sink;
pub(crate) mod parquet_source;
pub(crate) mod parsed_steps;
pub(crate) mod pattern;
pub(crate) mod planned_pattern;
pub(crate) mod ranking;
pub(crate) mod replaced;
pub(crate) mod replacement;
pub(crate) mod replanning;
pub(crate) mod retention;
pub(crate) mod revoked;
pub(crate) mod row_windows;
pub(crate) mod running;
pub(crate) mod seeking;
pub(crate) mod sinks;
pub(crate) mod starting;
pub(crate) mod statements;
pub(crate) mod steps;
pub(crate) mod stored_streams;
pub(crate) mod stream_names;
pub(crate) mod stream_views;
pub(crate) mod table_queries;
pub(crate) mod target_rules;
pub(crate) mod utc;
pub(crate) mod view_tables;
mod view_targets;
pub(crate) mod view_topologies;
pub(crate) mod watermarks;
pub(crate) mod windows;
