//! How a database is opened.

use entresol_memory::{DomainChoice, Durability, Env, PoolOptions};
use entresol_transactions::ContextOptions;

/// Memory of queries if nothing else is said.
pub const QUERY_MEMORY_BYTES_MAX: usize = 1 << 30;

/// Transactions at a time if nothing else is said: one for each session of a server with a thousand clients, and more.
pub const TRANSACTIONS_MAX: usize = 4096;

/// How a database is opened; the methods change one option each.
///
/// ```
/// use entresol::{Durability, Options};
/// let options = Options::default().durability(Durability::Group { interval_ms: 10 }).worker_threads(2);
/// ```
#[derive(Debug, Clone)]
pub struct Options {
    /// When commits are durable, if a session or topology says nothing else.
    pub durability: Durability,
    /// The persistence domain; `Auto` takes persistent memory if the directory is on it, else a journal.
    pub domain: DomainChoice,
    /// Make the database if it does not exist; else that is an error.
    pub create_if_missing: bool,
    /// Bytes that all running queries may take together; what needs more spills to temporary files or fails.
    pub query_memory_bytes_max: usize,
    /// Threads for queries; as many as the machine has cores if `None`.
    pub worker_threads: Option<usize>,
    /// How transactions are kept apart: the protocol of a new database, and its bounds.
    pub concurrency: ContextOptions,
    /// Address range to reserve for the pool: the most that it can grow to. Takes no memory.
    pub address_space_bytes: u64,
    /// Clock, randomness, files: other than real in simulations.
    pub env: Env,
}

impl Default for Options {
    fn default() -> Options {
        let pool = PoolOptions::default();
        Options {
            durability: Durability::default(),
            domain: pool.domain,
            create_if_missing: true,
            query_memory_bytes_max: QUERY_MEMORY_BYTES_MAX,
            worker_threads: None,
            concurrency: ContextOptions { transactions_max: TRANSACTIONS_MAX, ..ContextOptions::default() },
            address_space_bytes: pool.address_space_bytes,
            env: pool.env,
        }
    }
}

impl Options {
    /// When commits are durable.
    pub fn durability(mut self, durability: Durability) -> Options {
        self.durability = durability;
        self
    }

    /// The persistence domain.
    pub fn domain(mut self, domain: DomainChoice) -> Options {
        self.domain = domain;
        self
    }

    /// Whether to make the database if it does not exist.
    pub fn create_if_missing(mut self, create: bool) -> Options {
        self.create_if_missing = create;
        self
    }

    /// Bytes for all running queries together.
    pub fn query_memory_bytes_max(mut self, bytes: usize) -> Options {
        self.query_memory_bytes_max = bytes;
        self
    }

    /// Threads for queries.
    pub fn worker_threads(mut self, threads: usize) -> Options {
        self.worker_threads = Some(threads);
        self
    }

    /// How transactions are kept apart. The protocol is kept with the database that it was created with.
    pub fn concurrency(mut self, concurrency: ContextOptions) -> Options {
        self.concurrency = concurrency;
        self
    }

    pub(crate) fn pool(&self) -> PoolOptions {
        PoolOptions {
            domain: self.domain,
            address_space_bytes: self.address_space_bytes,
            env: self.env.clone(),
            ..PoolOptions::default()
        }
    }

    pub(crate) fn threads(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        self.worker_threads.unwrap_or_else(cores).max(1)
    }
}
