//! COPY: many rows in and out of tables, as lines of text, as PostgreSQL's clients send and expect them, or as
//! columns in files.
//!
//! ```text
//! COPY t [(columns)] FROM STDIN [WITH (…)]            bytes ─▶ CopyIn ─▶ decode ─▶ rows, a batch at a time
//! COPY {t [(columns)] | (query)} TO STDOUT [WITH (…)]  query ─▶ encode ─▶ CopyOut ─▶ bytes, a batch at a time
//! COPY t FROM 'file', COPY t TO 'file'                 the same in a session: [`server_files`]
//! ```
//!
//! - The formats of lines are `text`, `csv` and `tbl` with FORMAT, DELIMITER, NULL, HEADER, QUOTE and ESCAPE;
//!   [`decode`] and [`encode`] say how. Other options are refused. In format `binary` rows go as values
//!   ([`CopyIn::push_row`], [`CopyOut::next_batch`]): what their bytes are is the wire's. In the formats `parquet`
//!   and `arrow`, of files alone, columns go as arrays.
//! - A COPY FROM is one statement: outside of a block a transaction of its own, which is not run again after
//!   a conflict if its data cannot be read again; inside of one, what it wrote is taken back if it fails. It fails
//!   too if it is dropped before [`CopyIn::finish`].
//! - Errors name the table, the line and the column, or the row group and the row, and the file.
//!
//! Memory: [`LINE_BYTES_MAX`] and a batch of rows in; a batch of rows out; and the transaction's write set.

mod decode;
mod encode;
mod files;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod input;
mod output;
mod pending;
mod reading;
mod refusals;
mod server_files;
mod target;
mod writing;

pub use decode::LINE_BYTES_MAX;
pub use input::CopyIn;
pub use output::{CopyLines, CopyOut};
pub(crate) use target::copied_table;
