//! Tests of tables from outside.

#![allow(clippy::unwrap_used, reason = "tests")]

mod advice;
mod both_layouts;
mod catalog;
mod changes;
mod clustered;
mod columns;
mod columns_elf;
mod crash;
mod crash_clustered;
mod crash_columns;
mod crash_comments;
mod crash_indexes;
mod crash_layout;
mod crash_sequences;
mod damage;
mod dropped;
mod indexes;
mod layout_change;
mod load;
mod object_stores;
mod pages;
mod placement;
mod relations;
mod schema_versions;
mod statistics;
mod structures;
mod table;
