//! Statements to DataFusion plans over tables.
//!
//! [`context`] sets DataFusion up, [`translation`] puts PostgreSQL's spellings into its own, [`query`] plans.
//! A table is a [`provider`], its filters become an [`access`], its rows come from a [`scan`]. [`fast_path`]
//! does rows by key without planning, [`generic`] short queries without planning them again, and statements that
//! come again without optimising them again ([`cacheability`]).

mod blocking;
pub(crate) mod bounded_functions;
pub(crate) mod cacheability;
pub(crate) mod coded_groups;
pub(crate) mod context;
pub(crate) mod costs;
pub(crate) mod counts;
pub(crate) mod describe;
pub(crate) mod explain;
pub(crate) mod explain_json;
pub(crate) mod fast_path;
pub(crate) mod formatted;
pub(crate) mod fresh_filters;
pub(crate) mod from_names;
pub(crate) mod generic;
pub(crate) mod join_using;
pub(crate) mod key_filters;
pub(crate) mod limits;
pub(crate) mod lookup;
pub(crate) mod over_clauses;
pub(crate) mod parameters;
pub(crate) mod partial_states;
pub(crate) mod patterns;
mod planned_relations;
pub(crate) mod query;
pub(crate) mod relation_aliases;
pub(crate) mod relation_rows;
pub(crate) mod replay;
pub(crate) mod row_expressions;
pub(crate) mod rules;
pub(crate) mod running_query;
pub(crate) mod sampling;
pub(crate) mod scans;
pub(crate) mod schemas;
mod sleep;
pub(crate) mod slices;
pub(crate) mod star;
pub(crate) mod time_travel;
pub(crate) mod translation;
pub(crate) mod turns;
pub(crate) mod views;
pub(crate) mod windows;
pub(crate) mod wrapped_expr;
pub(crate) mod yielding;
