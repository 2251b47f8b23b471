//! Entresol: an embedded database for transactional streams and analytics on tiered memory.
//!
//! One directory is one [`Database`]. Its tables are written by SQL, by topologies of continuous queries, or
//! directly; all of them in transactions with snapshot isolation, durable when they say so.
//!
//! ```
//! use entresol::{Database, Options, Value};
//!
//! # let dir = tempfile::tempdir()?;
//! let db = Database::open(dir.path(), Options::default())?;
//! let mut session = db.session()?;
//! session.execute("CREATE TABLE meter (id INT PRIMARY KEY, place VARCHAR, kwh DECIMAL(10,3))")?;
//! session.execute("INSERT INTO meter VALUES (1, 'cellar', 17.5), (2, 'roof', -3.25)")?;
//!
//! // The same table, without SQL.
//! let meter = db.catalog().table("meter")?;
//! let tx = db.begin()?;
//! meter.insert(&tx, &[Value::Int(3), Value::from("hall"), Value::Decimal(250)])?;
//! tx.commit(db.durability())?;
//!
//! let sums = session.query("SELECT sum(kwh) FROM meter WHERE id IN (1, 3)")?;
//! assert_eq!(sums[0].num_rows(), 1);
//! assert_eq!(meter.get(&*db.begin()?, &[Value::Int(2)])?.unwrap()[2], Value::Decimal(-3250));
//! db.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Crates
//!
//! | module | contents |
//! | --- | --- |
//! | [`query`] | SQL: sessions, DataFusion, Arrow |
//! | [`streams`] | topologies, operators, windows, sources and sinks |
//! | [`tables`] | catalog, schemas, rows |
//! | [`transactions`] | states, snapshots, commit, recovery |
//! | [`structures`] | ordered index |
//! | [`memory`] | the pool and its persistence domain |
//!
//! # What a crash leaves
//!
//! Every committed transaction whose durability was reached, completely; nothing of any other. Opening the
//! database again is all that is to be done.
#![forbid(unsafe_code)]

mod database;
mod error;
pub mod offline;
mod options;
mod session;

pub use database::{Database, DatabaseStats};
pub use error::{Error, ErrorKind, Result};
pub use options::{Options, QUERY_MEMORY_BYTES_MAX, TRANSACTIONS_MAX};
pub use session::{AsyncSession, Session};

pub use entresol_memory::budget::{MemorySize, MemoryUsage};
pub use entresol_memory::{BackupReport, DomainChoice, DomainKind, Durability};
pub use entresol_query::arrow;
pub use entresol_query::{
    Canceller, CollectedRows, CopyIn, CopyOut, CopyStatement, Outcome, PreparedStatement, StatementResult,
};
pub use entresol_streams::{Topology, TopologyBuilder};
pub use entresol_tables::{
    CacheGoal, CachePolicy, Catalog, CheckReport, Column, Cursor, DataType, Row, RowView, ScanRange, Schema,
    Table, TableOptions, Value,
};
pub use entresol_transactions::{Timestamp, Transaction};

pub use entresol_memory as memory;
pub use entresol_query as query;
pub use entresol_streams as streams;
pub use entresol_structures as structures;
pub use entresol_tables as tables;
pub use entresol_transactions as transactions;
