//! The Star Schema Benchmark (O'Neil, O'Neil, Chen: Star Schema Benchmark, revision 3, 2009): `entresol ssb`.
//!
//! | command | module |
//! | --- | --- |
//! | `generate`: the five tables as `.tbl` files | [`generate`] |
//! | `load`: `.tbl` files of any generator into a database | [`load`] |
//! | `run`: the 13 queries, timed and compared with answers | [`run`] |
//!
//! The functions return results; the command line prints them. Progress goes to standard error.
#![forbid(unsafe_code)]

mod arguments;
mod error;
pub mod generate;
pub mod load;
mod progress;
pub mod run;
mod tables;

pub use arguments::{GenerateArguments, Layout, LoadArguments, RunArguments, SsbCommand};
pub use error::{Error, Result};
pub use tables::TABLES;
