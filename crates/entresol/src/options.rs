//! Options for opening a database.

use crate::error::{Error, ErrorKind, Result};
use entresol_memory::budget::{MemoryBudget, MemorySize};
use entresol_memory::placement::WriteSettings;
use entresol_memory::profile::{Direction, Pattern, Profile};
use entresol_memory::{DomainChoice, Durability, Env, JournalOptions, Pool, PoolOptions};
use entresol_query::UserFunctions;
use entresol_query::datafusion::logical_expr::{AggregateUDF, ScalarUDF};
use entresol_tables::CachePolicy;
use entresol_transactions::ContextOptions;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Default memory of queries.
pub const QUERY_MEMORY_BYTES_MAX: usize = 1 << 30;

/// Default maximum of transactions at a time: one for each session of a server with a thousand clients, and
/// more.
pub const TRANSACTIONS_MAX: usize = 4096;

/// Options for opening a database; the methods change one option each.
///
/// ```
/// use entresol::{Durability, Options};
/// let options = Options::default().durability(Durability::Group { interval_ms: 10 }).worker_threads(2);
/// ```
#[derive(Debug, Clone)]
pub struct Options {
    /// Default durability of commits, for sessions and topologies.
    pub durability: Durability,
    /// The persistence domain; `Auto` takes persistent memory if the directory is on it, else a journal.
    pub domain: DomainChoice,
    /// Create the database if it does not exist; else that is an error.
    pub create_if_missing: bool,
    /// Memory that the database may take: pages, indexes, write sets, queries, connections together.
    pub memory_max: MemorySize,
    /// Bytes of it that all running queries may take together; queries that need more spill to temporary
    /// files or fail.
    pub query_memory_bytes_max: usize,
    /// Replacement policy of the cache of tables by column.
    pub cache_policy: CachePolicy,
    /// Bytes that this cache takes at most; a quarter of `memory_max` if `None`, or if that is less.
    pub cache_bytes_max: Option<u64>,
    /// Threads for queries; as many as the machine has cores if `None`.
    pub worker_threads: Option<usize>,
    /// Concurrency control: the protocol of a new database, and its limits.
    pub concurrency: ContextOptions,
    /// Maximum age of a snapshot that a session holds, which keeps the versions that it sees from being
    /// reclaimed. An older one ends: later statements on it fail with "snapshot too old" (SQLSTATE 72000).
    /// `None`: no limit.
    pub max_snapshot_age: Option<Duration>,
    /// Directory on a disk for tables that are placed there (`placement = 'disk'`), beside a database on
    /// persistent memory.
    pub disk_directory: Option<PathBuf>,
    /// Placement of background threads and topologies on the processors that are near the device of the
    /// directory, and take memory there, on a machine with several memory nodes.
    pub near_device: bool,
    /// Start of the topologies that were created in SQL, when the database is opened.
    pub starts_topologies: bool,
    /// User-defined functions.
    pub functions: UserFunctions,
    /// Profile of the disk that checkpoints write to, as `lab run calibrate` measures it.
    pub disk_profile: Option<PathBuf>,
    /// Address range to reserve for the pool: the maximum that it can grow to. Takes no memory.
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
            memory_max: MemorySize::default(),
            query_memory_bytes_max: QUERY_MEMORY_BYTES_MAX,
            cache_policy: CachePolicy::default(),
            cache_bytes_max: None,
            worker_threads: None,
            max_snapshot_age: None,
            disk_directory: None,
            near_device: pool.near_device,
            starts_topologies: true,
            functions: UserFunctions::default(),
            disk_profile: None,
            concurrency: ContextOptions { transactions_max: TRANSACTIONS_MAX, ..ContextOptions::default() },
            address_space_bytes: pool.address_space_bytes,
            env: pool.env,
        }
    }
}

impl Options {
    /// Sets the default durability of commits.
    pub fn durability(mut self, durability: Durability) -> Options {
        self.durability = durability;
        self
    }

    /// Sets the persistence domain.
    pub fn domain(mut self, domain: DomainChoice) -> Options {
        self.domain = domain;
        self
    }

    /// Sets if the database is created when it does not exist.
    pub fn create_if_missing(mut self, create: bool) -> Options {
        self.create_if_missing = create;
        self
    }

    /// Memory that the database may take, in bytes or as a share of the machine (or of its control group);
    /// half of it if nothing else is said. Pages of the pool make room for all else; what still does not fit
    /// spills, or fails with [`ErrorKind::MemoryLimit`](crate::ErrorKind::MemoryLimit) and the largest
    /// consumers.
    ///
    /// ```
    /// use entresol::{MemorySize, Options};
    /// let options = Options::default().memory_max(MemorySize::Bytes(512 << 20));
    /// let share = Options::default().memory_max("25%".parse()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn memory_max(mut self, memory_max: MemorySize) -> Options {
        self.memory_max = memory_max;
        self
    }

    /// Bytes for all running queries together.
    pub fn query_memory_bytes_max(mut self, bytes: usize) -> Options {
        self.query_memory_bytes_max = bytes;
        self
    }

    /// Sets the policy that decides which pages of tables with the layout `columns` stay in DRAM.
    /// `entresol.cache` shows what is there.
    ///
    /// ```
    /// use entresol::{CacheGoal, CachePolicy, Options};
    /// let plain = Options::default().cache_policy(CachePolicy::Lru);
    /// // The least memory with which the last queries are at most 10% slower than with all of it.
    /// let frugal: CachePolicy = "hpcache:10%".parse()?;
    /// assert_eq!(frugal.goal(), Some(CacheGoal::LeastMemory { slowdown_percent: 10 }));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cache_policy(mut self, policy: CachePolicy) -> Options {
        self.cache_policy = policy;
        self
    }

    /// Sets the most bytes that the cache of tables by column takes. It never takes more than a quarter of
    /// `memory_max`; of 0 bytes, nothing is cached.
    pub fn cache_bytes_max(mut self, bytes: u64) -> Options {
        self.cache_bytes_max = Some(bytes);
        self
    }

    /// Threads for queries.
    pub fn worker_threads(mut self, threads: usize) -> Options {
        self.worker_threads = Some(threads);
        self
    }

    /// Sets the concurrency control. The protocol of a database is the one that it was created with.
    pub fn concurrency(mut self, concurrency: ContextOptions) -> Options {
        self.concurrency = concurrency;
        self
    }

    /// Sets the maximum age of a snapshot that a session holds.
    pub fn max_snapshot_age(mut self, age: Duration) -> Options {
        self.max_snapshot_age = Some(age);
        self
    }

    /// Sets the directory for tables that are placed on disk, if the database is on persistent memory; made
    /// with the first open, and needed by all later ones. A copy of the database is a copy of both
    /// directories. [`Invalid`](crate::ErrorKind::Invalid) when a database on another domain is opened: there
    /// the disk is where it is.
    pub fn disk_directory(mut self, directory: impl Into<PathBuf>) -> Options {
        self.disk_directory = Some(directory.into());
        self
    }

    /// Sets if the topologies that were created in SQL start when the database is opened; the default. If not,
    /// they can't be seen or changed in SQL either.
    pub fn start_topologies(mut self, start: bool) -> Options {
        self.starts_topologies = start;
        self
    }

    /// Adds a scalar function in Rust, which SQL calls by its name: in queries, views and topologies. What says that it is
    /// immutable may be computed once for equal arguments. Functions belong to the open database and not to its files: the next
    /// open has to add them again, or what calls them fails with the name.
    ///
    /// ```
    /// use entresol::query::datafusion::arrow::array::{ArrayRef, AsArray, Float64Array};
    /// use entresol::query::datafusion::arrow::datatypes::{DataType, Float64Type};
    /// use entresol::query::datafusion::logical_expr::{ColumnarValue, Volatility, create_udf};
    /// use entresol::{Database, Options};
    /// use std::sync::Arc;
    ///
    /// let fahrenheit = create_udf(
    ///     "fahrenheit",
    ///     vec![DataType::Float64],
    ///     DataType::Float64,
    ///     Volatility::Immutable,
    ///     Arc::new(|arguments: &[ColumnarValue]| {
    ///         let celsius = ColumnarValue::values_to_arrays(arguments)?;
    ///         let celsius = celsius[0].as_primitive::<Float64Type>();
    ///         let degrees: Float64Array = celsius.unary(|degrees| degrees * 1.8 + 32.0);
    ///         Ok(ColumnarValue::Array(Arc::new(degrees) as ArrayRef))
    ///     }),
    /// );
    /// let database = Database::volatile(Options::default().scalar_function(fahrenheit))?;
    /// let found = database.session()?.query("SELECT fahrenheit(100)")?;
    /// assert_eq!(found[0].column(0).as_primitive::<Float64Type>().value(0), 212.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Opening fails with [`Invalid`](crate::ErrorKind::Invalid) if its name is that of another function, or has other than
    /// lower-case letters, digits and underscores.
    pub fn scalar_function(mut self, function: impl Into<Arc<ScalarUDF>>) -> Options {
        self.functions.add_scalar(function);
        self
    }

    /// Adds an aggregate function in Rust, as [`Options::scalar_function`] adds a scalar one. In topologies its state is stored
    /// with the groups, by what its accumulator says of it: a changed form of it needs a function of another name.
    pub fn aggregate_function(mut self, function: impl Into<Arc<AggregateUDF>>) -> Options {
        self.functions.add_aggregate(function);
        self
    }

    /// Sets if background threads and topologies run near the device: on the processors of its memory node,
    /// as far as the process may use them. They do if nothing else is said, where the machine has several
    /// nodes and the kernel tells that of the device. Queries, and the threads of the caller, run where they
    /// like. `entresol.placement` shows what is in effect.
    pub fn near_device(mut self, near: bool) -> Options {
        self.near_device = near;
        self
    }

    /// File with the profile of the disk that the journal's checkpoints write to: the disk of the directory,
    /// or of [`Options::disk_directory`] beside a database on persistent memory. It says how many bytes go
    /// there in one write, and how many writes at once; without one, pieces and counts are what suits most
    /// drives. `lab run calibrate --out disk.toml` measures this machine's disk into `disk-disk.toml`;
    /// `entresol.placement` shows what is in effect. The cache of tables by column computes with its bandwidth
    /// of reads until it has measured loads.
    ///
    /// Opening fails with [`Invalid`](crate::ErrorKind::Invalid) if the file is no profile (with the field
    /// and the value), or that of a memory, or if the database has no journal; with
    /// [`Io`](crate::ErrorKind::Io) if it cannot be read.
    pub fn disk_profile(mut self, file: impl Into<PathBuf>) -> Options {
        self.disk_profile = Some(file.into());
        self
    }

    /// The journal's options, with those of the profile.
    fn journal(&self) -> Result<JournalOptions> {
        let writing = self.disk_profile.as_deref().map(writing_of).transpose()?;
        Ok(JournalOptions { writing, ..JournalOptions::default() })
    }

    /// Options of the pool on disk beside a pool.
    pub(crate) fn disk_pool(&self, main: &Pool) -> Result<PoolOptions> {
        Ok(PoolOptions {
            domain: DomainChoice::Journal,
            address_space_bytes: self.address_space_bytes,
            env: self.env.clone(),
            memory: main.memory().cloned(),
            near_device: self.near_device,
            journal: self.journal()?,
            ..PoolOptions::default()
        })
    }

    /// Errors: [`Invalid`](crate::ErrorKind::Invalid) if the memory is less than a database needs.
    pub(crate) fn pool(&self) -> Result<PoolOptions> {
        let memory = MemoryBudget::of_size(self.memory_max)
            .map_err(|error| Error::new(ErrorKind::Invalid, error.to_string()))?;
        Ok(PoolOptions {
            domain: self.domain,
            address_space_bytes: self.address_space_bytes,
            env: self.env.clone(),
            memory: Some(memory),
            near_device: self.near_device,
            journal: self.journal()?,
            ..PoolOptions::default()
        })
    }

    pub(crate) fn threads(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        self.worker_threads.unwrap_or_else(cores).max(1)
    }
}

/// Bandwidth of sequential reads in bytes per second, from the profile.
pub(crate) fn read_bandwidth_of(file: &Path) -> Result<f64> {
    let profile = Profile::load(file)?;
    Ok(1e9 * profile.bandwidth.curve(Direction::Read, Pattern::Individual).peak())
}

/// Writing parameters of checkpoints, from the profile.
fn writing_of(file: &Path) -> Result<WriteSettings> {
    let profile = Profile::load(file)?;
    WriteSettings::of(&profile).map_err(|error| {
        let message = format!("disk_profile {}: {error}", file.display());
        Error::new(ErrorKind::Invalid, message)
    })
}
