//! The PostgreSQL wire protocol: PostgreSQL clients, drivers and tools talk to a database.
//!
//! ```text
//!   socket ─▶ server ─▶ startup ─▶ connection ──┬─ simple     a text of statements
//!                │         │            │       └─ extended   Parse, Bind, Describe, Execute, Sync
//!             limits    security        ▼                │        (either may COPY)
//!                                    session ◀───── statement ──▶ values ──▶ rows on the wire
//! ```
//!
//! # Invariants
//!
//! - Untrusted input from clients is checked before it is used ([`mod@wire`]); a protocol violation ends one
//!   connection and no other.
//! - Rows go out as they are computed; a client that does not read stops its own statement, at its snapshot.
//! - A connection owns one session. When it ends, however it ends, its transaction is aborted.
//! - A statement can be interrupted where it waits: by a cancel request, its time limit, its client's end,
//!   the server's. Its writes are rolled back; a commit that has begun may still happen.
//! - Without roles the server listens on this machine only; passwords are never stored, and never in logs.
//!
//! # What a crash leaves
//!
//! The remains of transactions, as described there. Roles are rows of tables. Nothing else here is
//! persistent.
//!
//! # What bounds memory
//!
//! Per connection: one message ([`Limits::packet_bytes`]), [`READ_AHEAD_BYTES_MAX`] read ahead,
//! [`SEND_BYTES`] and a row to be sent, [`NAMES_MAX`](options::NAMES_MAX) statements and portals, 128
//! statement fingerprints of a kilobyte, one statement's memory ([`Limits::statement_memory_bytes`]); and at
//! most [`Limits::connections`] of them.
//!
//! [`READ_AHEAD_BYTES_MAX`]: socket::READ_AHEAD_BYTES_MAX
//! [`SEND_BYTES`]: socket::SEND_BYTES
#![forbid(unsafe_code)]
#![allow(rustdoc::private_intra_doc_links)]

mod clients;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod http;
mod metrics;
mod options;
mod security;
mod server;
mod session;
mod socket;
mod startup;
mod values;
mod wire;

pub use options::{
    CONNECTIONS_MAX, IDLE_IN_TRANSACTION_TIME_MAX, Limits, NAMES_MAX, PACKET_BYTES_MAX, SHUTDOWN_TIME_MAX,
    STARTUP_TIME_MAX, STATEMENT_MEMORY_BYTES_MAX, ServerOptions, TlsOptions,
};
pub use security::roles;
pub use server::{Counts, Error, Server};
