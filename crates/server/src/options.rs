//! Options of a server: addresses, encryption, limits.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Default maximum of connections at a time.
pub const CONNECTIONS_MAX: usize = 100;
/// Default maximum of bytes of one message of a client: the longest SQL text, and some.
pub const PACKET_BYTES_MAX: usize = 65 << 20;
/// Default maximum of bytes for the sorts, joins and aggregates of one statement.
pub const STATEMENT_MEMORY_BYTES_MAX: usize = 256 << 20;
/// Default time until a client must be authenticated.
pub const STARTUP_TIME_MAX: Duration = Duration::from_secs(10);
/// Default time that a transaction may be open without a statement.
pub const IDLE_IN_TRANSACTION_TIME_MAX: Duration = Duration::from_secs(600);
/// Default time that statements may go on once the server is told to end.
pub const SHUTDOWN_TIME_MAX: Duration = Duration::from_secs(2);
/// Prepared statements and portals of a connection.
pub const NAMES_MAX: usize = 10_000;

/// Options of a server.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Address to listen on. Port 0 takes a free one.
    pub listen: SocketAddr,
    /// Address to serve `/metrics` and `/healthz` on over HTTP, without a password; `None`: they are not
    /// served.
    pub metrics: Option<SocketAddr>,
    /// Encryption; without it only cleartext is spoken.
    pub tls: Option<TlsOptions>,
    /// Limits of clients.
    pub limits: Limits,
}

impl Default for ServerOptions {
    fn default() -> ServerOptions {
        ServerOptions {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 5432)),
            metrics: None,
            tls: None,
            limits: Limits::default(),
        }
    }
}

/// Encryption of connections.
#[derive(Debug, Clone)]
pub struct TlsOptions {
    /// PEM file with the server's certificate, and those between it and the root behind it.
    pub certificate: PathBuf,
    /// PEM file with its private key.
    pub key: PathBuf,
    /// Set if clients that do not encrypt are refused.
    pub required: bool,
}

/// Limits of clients; `None` of a time means no limit.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections at a time; more get SQLSTATE 53300. Each may have a transaction open: keep them below the
    /// database's bound of those, [`entresol::TRANSACTIONS_MAX`].
    pub connections: usize,
    /// Bytes of one message; more get 08P01.
    pub packet_bytes: usize,
    /// Time of one statement, sending its rows included; longer ones get 57014. `SET statement_timeout` is
    /// shorter.
    pub statement: Option<Duration>,
    /// Time that a transaction may stay open without a statement; then 25P03, and the connection ends.
    pub idle_in_transaction: Option<Duration>,
    /// Time until a client is authenticated.
    pub startup: Duration,
    /// Memory of one statement; more gets 53200. The bound of all is the database's.
    pub statement_memory_bytes: usize,
    /// Time that running statements have when the server ends; then they are stopped.
    pub shutdown: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: CONNECTIONS_MAX,
            packet_bytes: PACKET_BYTES_MAX,
            statement: None,
            idle_in_transaction: Some(IDLE_IN_TRANSACTION_TIME_MAX),
            startup: STARTUP_TIME_MAX,
            statement_memory_bytes: STATEMENT_MEMORY_BYTES_MAX,
            shutdown: SHUTDOWN_TIME_MAX,
        }
    }
}
