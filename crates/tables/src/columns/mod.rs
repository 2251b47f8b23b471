//! Layout `columns`: most rows of a table in row groups, column by column, the rest in its delta store.
//!
//! ```text
//!   INSERT, UPDATE, DELETE ──▶ delta store ──merge──▶ row groups ◀── batches of new rows
//!                                   │                     │
//!                                   └──────── scan ───────┘
//! ```
//!
//! - Both are states of one group, so a snapshot sees both as they were together, and a crash leaves what was
//!   committed. There is no other rule of recovery.
//! - A row group is written once ([`group`]): a page per column ([`page`]), its rows in key order. Rows that were
//!   replaced or deleted are marked by the next merge, and gone when their row group is merged again.
//! - The delta store is the state that a table of layout `rows` has, with the same rows; it overrides the row
//!   groups ([`crate::table::stored`]).
//! - In the layout `elf` an Elf of each row group holds some columns in place of their pages ([`elf::rows`]).
//! - The pages of a row group may be an object in an object store ([`objects`]).
//! - Pages are cached in DRAM as they are stored ([`cache`]).

pub(crate) mod cache;
pub(crate) mod clustering;
pub(crate) mod condition;
pub(crate) mod cursor;
pub(crate) mod doubles;
pub(crate) mod drain;
pub(crate) mod elf;
pub(crate) mod encoded;
pub(crate) mod estimates;
pub(crate) mod find;
pub(crate) mod form;
pub(crate) mod group;
pub(crate) mod integers;
pub(crate) mod lifetime;
pub(crate) mod merge;
pub(crate) mod merger;
pub(crate) mod objects;
pub(crate) mod packing;
pub(crate) mod page;
pub(crate) mod pipeline;
pub(crate) mod runs;
pub(crate) mod scan;
pub(crate) mod selection;
pub(crate) mod store;
pub(crate) mod symbols;
pub(crate) mod texts;
