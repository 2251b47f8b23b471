//! The database: one directory, opened once, used by any number of sessions, topologies and threads.
//!
//! - A [`Database`] is a handle; clones share one open database. It stays open until the last handle, session
//!   or table of it is gone, or [`Database::close`] is called.
//! - Without `close` it ends as in a crash: the next open recovers, which takes milliseconds and loses
//!   nothing that was durable.
//! - One process at a time has a directory open.
//! - Memory: [`Options::memory_max`] for all of it, and [`Options::query_memory_bytes_max`] of that for
//!   queries.

use crate::error::{Error, ErrorKind, Result};
use crate::options::{Options, read_bandwidth_of};
use crate::session::{AsyncSession, Session};
use entresol_memory::budget::{MemoryConsumer, MemoryReservation, MemoryUsage};
use entresol_memory::{BackupReport, DomainChoice, DomainKind, Durability, Pool, PoolStats};
use entresol_query::datafusion::execution::runtime_env::RuntimeEnv;
use entresol_query::{
    MaterializedViews, STACK_BYTES, SessionOptions, Sessions, Topologies, UserFunctions, query_memory,
    statement_memory,
};
use entresol_streams::{Topology, TopologyBuilder};
use entresol_tables::advice::LayoutAdvisor;
use entresol_tables::{Catalog, CheckReport, Merger, ObjectCollector};
use entresol_transactions::{
    BlockingExecutor, Reclaimer, RecoveryReport, StateContext, Tier, Timestamp, Transaction,
};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// Interval of checks for snapshots that are too old.
const EXPIRY_TIME_MIN: Duration = Duration::from_millis(10);
const EXPIRY_TIME_MAX: Duration = Duration::from_secs(1);
/// Maximum time that dropping the last handle waits for the tasks of its queries to end.
const SHUTDOWN_WAIT_MAX: Duration = Duration::from_secs(10);

/// An open database; see the [module](self).
#[derive(Clone)]
pub struct Database {
    shared: Arc<SharedDatabase>,
}

/// State that all handles and sessions of an open database share.
pub(crate) struct SharedDatabase {
    catalog: Arc<Catalog>,
    /// Reclaims space while the database is open.
    reclaimer: Reclaimer,
    /// Merges changed rows into row groups while the database is open.
    merger: Merger,
    layouts: LayoutAdvisor,
    /// Deletes objects of removed row groups while the database is open.
    objects: ObjectCollector,
    directory: Option<PathBuf>,
    durability: Durability,
    threads: usize,
    query_runtime: Arc<RuntimeEnv>,
    /// Age at which snapshots of sessions end.
    max_snapshot_age: Option<Duration>,
    /// The sessions, with the snapshots that they hold.
    sessions: Sessions,
    /// The topologies of SQL.
    topologies: Topologies,
    materialized: MaterializedViews,
    functions: UserFunctions,
    /// Taken when the last handle goes.
    runtime: Option<Runtime>,
}

/// Statistics of a database since it was opened.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DatabaseStats {
    /// Its persistence domain.
    pub domain: DomainKind,
    /// Set if the previous run closed it.
    pub was_clean: bool,
    /// Tables.
    pub tables: usize,
    /// Counters of the pool.
    pub pool: PoolStats,
    /// Findings and actions of opening it.
    pub recovery: RecoveryReport,
}

impl Database {
    /// Opens the database in a directory, and makes it first if it does not exist and the options allow that.
    ///
    /// Errors: [`Busy`](ErrorKind::Busy) if it is open elsewhere, [`Corrupt`](ErrorKind::Corrupt) if a file
    /// is damaged, [`Unsupported`](ErrorKind::Unsupported) if a newer release wrote it,
    /// [`NotFound`](ErrorKind::NotFound) if it must exist and does not.
    pub fn open(directory: impl AsRef<Path>, options: Options) -> Result<Database> {
        let directory = directory.as_ref();
        let pool = if options.create_if_missing {
            Pool::open_or_create(directory, &options.pool()?)?
        } else {
            Pool::open(directory, &options.pool()?)?
        };
        Database::on_pool(pool, Some(directory.to_path_buf()), &options)
    }

    /// Creates a database in DRAM only, which is dropped with its last handle.
    pub fn volatile(options: Options) -> Result<Database> {
        let pool = Pool::volatile(&options.clone().domain(DomainChoice::Volatile).pool()?)?;
        Database::on_pool(pool, None, &options)
    }

    fn on_pool(pool: Arc<Pool>, directory: Option<PathBuf>, options: &Options) -> Result<Database> {
        let query_runtime = query_memory(options.query_memory_bytes_max, pool.memory())?;
        let disk = options.disk_directory.as_ref().map(|directory| disk_pool(&pool, directory, options));
        if let Some(file) = options.disk_profile.as_ref()
            && disk.is_none()
            && pool.checkpoint_writing().is_none()
        {
            let message = format!(
                "disk_profile {} is for databases with a journal; this one is on domain {}",
                file.display(),
                pool.domain()
            );
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let context = StateContext::open_or_create_beside(pool, disk.transpose()?, options.concurrency)?;
        let catalog = Catalog::open_or_create(context)?;
        catalog.set_cache_policy(options.cache_policy);
        catalog.limit_cache(options.cache_bytes_max.unwrap_or(u64::MAX));
        if let Some(profile) = &options.disk_profile {
            catalog.expect_storage_bandwidth(read_bandwidth_of(profile)?);
        }
        let threads = options.threads();
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(threads).thread_name("entresol query").enable_all();
        builder.thread_stack_size(STACK_BYTES);
        let runtime = builder.build().map_err(|error| {
            Error::new(ErrorKind::Io, format!("cannot start the threads for queries: {error}"))
        })?;
        if !options.functions.is_empty() {
            let plain = entresol_query::Session::new(Arc::clone(&catalog), SessionOptions::default());
            let checked = plain.check_functions(&options.functions);
            checked.map_err(|error| Error::new(ErrorKind::Invalid, error.to_string()))?;
        }
        let sessions = Sessions::default();
        if let Some(age_max) = options.max_snapshot_age {
            expire_snapshots(&runtime, sessions.clone(), age_max);
        }
        let shared = SharedDatabase {
            reclaimer: Reclaimer::start(catalog.context()),
            merger: Merger::start(&catalog),
            layouts: LayoutAdvisor::start(&catalog),
            objects: ObjectCollector::start(&catalog),
            catalog,
            directory,
            durability: options.durability,
            threads,
            query_runtime,
            max_snapshot_age: options.max_snapshot_age,
            sessions,
            topologies: Topologies::default(),
            materialized: MaterializedViews::default(),
            functions: options.functions.clone(),
            runtime: Some(runtime),
        };
        let database = Database { shared: Arc::new(shared) };
        // Before anything is written: what views hold follows each commit.
        database.shared.block_on(database.query_session()?.maintain_materialized_views())?;
        if options.starts_topologies {
            let session = database.query_session()?;
            database.shared.block_on(session.start_topologies())?;
        }
        Ok(database)
    }

    /// A session for SQL, which blocks its thread while a statement runs.
    pub fn session(&self) -> Result<Session> {
        Ok(Session::new(Arc::clone(&self.shared), self.query_session()?))
    }

    /// A session for SQL in async code. It runs on the caller's tokio runtime.
    pub fn async_session(&self) -> Result<AsyncSession> {
        Ok(AsyncSession::new(Arc::clone(&self.shared), self.query_session()?))
    }

    /// A session as a server needs it, with prepared statements and rows as they are computed. Its statements
    /// take at most `memory_bytes_max` of the memory for queries. Keep the database while it lives.
    pub fn server_session(&self, memory_bytes_max: usize) -> Result<entresol_query::Session> {
        let memory = statement_memory(&self.shared.query_runtime, memory_bytes_max)?;
        self.query_session_on(memory)
    }

    /// Counters of the topologies of SQL, their operators, sources and sinks, and of subscriptions. Errors: those of reading
    /// the stored positions and states.
    pub fn stream_metrics(&self) -> Result<Vec<entresol_query::StreamMetric>> {
        let shared = &self.shared;
        Ok(entresol_query::stream_metrics(&shared.topologies, &shared.sessions, &shared.catalog)?)
    }

    /// Ends the topologies of SQL that run and whose owners may no longer do what they do: to be called behind a change of roles.
    pub fn stop_denied_topologies(&self) -> Result<()> {
        let session = self.query_session()?;
        Ok(self.shared.block_on(session.stop_denied_topologies())?)
    }

    /// Memory in use now and at most so far, by consumer, and the budget.
    pub fn memory_usage(&self) -> MemoryUsage {
        self.pool().memory().expect("every database is opened with a budget").usage()
    }

    /// Reserves memory of the budget for data that a caller of the library keeps beside the database. Errors:
    /// [`MemoryLimit`](ErrorKind::MemoryLimit) with the largest consumers.
    pub fn reserve_memory(&self, consumer: MemoryConsumer, bytes: u64) -> Result<MemoryReservation> {
        let budget = self.pool().memory().expect("every database is opened with a budget");
        let reserved = budget.try_reserve(consumer, bytes);
        reserved.map_err(|limit| Error::new(ErrorKind::MemoryLimit, limit.to_string()))
    }

    /// Bytes that the queries of all sessions have taken now.
    pub fn query_memory_bytes(&self) -> usize {
        self.shared.query_runtime.memory_pool.reserved()
    }

    fn query_session(&self) -> Result<entresol_query::Session> {
        self.query_session_on(Arc::clone(&self.shared.query_runtime))
    }

    fn query_session_on(&self, memory: Arc<RuntimeEnv>) -> Result<entresol_query::Session> {
        self.pool().check_healthy()?;
        let options = SessionOptions {
            durability: self.shared.durability,
            target_partitions: Some(self.shared.threads),
            runtime: Some(memory),
            max_snapshot_age: self.shared.max_snapshot_age,
            sessions: self.shared.sessions.clone(),
            topologies: self.shared.topologies.clone(),
            materialized: self.shared.materialized.clone(),
            functions: self.shared.functions.clone(),
            ..SessionOptions::default()
        };
        Ok(entresol_query::Session::new(Arc::clone(&self.shared.catalog), options))
    }

    /// The tables.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.shared.catalog
    }

    /// Begins a transaction for the tables' own interface. End it with `commit`, best with
    /// [`Database::durability`]; dropping it aborts it.
    pub fn begin(&self) -> Result<Arc<Transaction>> {
        Ok(self.shared.catalog.begin()?)
    }

    /// Begins a transaction that reads the tables AS OF a point in time: a commit's timestamp, or a time
    /// ([`Timestamp::from_nanoseconds`]). Only tables that keep a version history can be read in it, as far back as they
    /// keep it, and nothing can be written.
    ///
    /// ```
    /// use entresol::{Database, Options};
    /// use entresol::tables::Value;
    ///
    /// let database = Database::volatile(Options::default())?;
    /// let mut session = database.session()?;
    /// session.execute("CREATE TABLE meters (id INT PRIMARY KEY, kwh INT) WITH (history = '7 days')")?;
    /// session.execute("INSERT INTO meters VALUES (1, 17)")?;
    /// let commit = database.newest_commit();
    /// session.execute("UPDATE meters SET kwh = 18; DELETE FROM meters")?;
    ///
    /// let meters = database.catalog().table("meters")?;
    /// let past = database.begin_as_of(commit)?;
    /// assert_eq!(meters.get(&past, &[Value::Int(1)])?, Some(vec![Value::Int(1), Value::Int(17)]));
    /// // The same in SQL.
    /// let rows = session.query(&format!("SELECT * FROM meters FOR SYSTEM_TIME AS OF TRANSACTION {commit}"))?;
    /// assert_eq!(rows[0].num_rows(), 1);
    /// # drop((session, past, meters));
    /// # database.close()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn begin_as_of(&self, at: Timestamp) -> Result<Arc<Transaction>> {
        Ok(self.shared.catalog.begin_as_of(at)?)
    }

    /// The newest commit that all transactions see: a point in time to come back to.
    pub fn newest_commit(&self) -> Timestamp {
        self.shared.catalog.context().newest_commit()
    }

    /// Sets the executor for blocking waits, for locks and for the disk, from now on: for servers whose
    /// threads are few. `run` calls its argument, once, and returns afterwards. Only the first call counts.
    pub fn set_blocking_executor(&self, run: BlockingExecutor) {
        self.shared.catalog.context().set_blocking_executor(run);
    }

    /// Default durability of commits.
    pub fn durability(&self) -> Durability {
        self.shared.durability
    }

    /// Begins to build a topology of this name. Its commits have the durability of the database's options.
    pub fn topology(&self, name: &str) -> TopologyBuilder {
        Topology::builder(name, &self.shared.catalog).durability(self.shared.durability)
    }

    /// The directory; `None` if the database is volatile.
    pub fn directory(&self) -> Option<&Path> {
        self.shared.directory.as_deref()
    }

    /// Counters.
    pub fn stats(&self) -> DatabaseStats {
        let pool = self.pool();
        DatabaseStats {
            domain: pool.domain(),
            was_clean: pool.was_clean(),
            tables: self.shared.catalog.tables().len(),
            pool: pool.stats(),
            recovery: self.shared.catalog.context().recovery(),
        }
    }

    /// Writes the content of the journal into the pool file and truncates the journal. It happens by itself
    /// as the journal grows; calling it makes the next open after a crash faster.
    pub fn checkpoint(&self) -> Result<()> {
        Ok(self.pool().checkpoint()?)
    }

    /// Copies the database to a directory that does not exist yet, while others go on writing. The copy is a
    /// database that holds all that was durable before the call, and perhaps some later commits. Row groups in object stores
    /// are not copied: the copy names them, and a hold in the store lets none be deleted.
    pub fn backup(&self, destination: impl AsRef<Path>) -> Result<BackupReport> {
        Ok(self.shared.catalog.backup(destination.as_ref())?)
    }

    /// Verifies everything: the checksums of all pages, every object, every row. No writer may run meanwhile.
    /// `progress` is told the part that is being checked.
    pub fn check(&self, progress: impl FnMut(&str)) -> Result<CheckReport> {
        Ok(entresol_tables::check(&self.shared.catalog, progress)?)
    }

    /// Closes the database: everything is made durable, the next open has nothing to recover. Sessions and
    /// topologies that are still there get [`Closed`](ErrorKind::Closed) errors when they commit. The
    /// directory can be opened again once they and all handles are dropped.
    pub fn close(&self) -> Result<()> {
        self.shared.topologies.stop();
        self.shared.materialized.stop();
        self.shared.layouts.stop();
        self.shared.merger.stop();
        self.shared.objects.stop();
        self.shared.reclaimer.stop();
        self.shared.catalog.release_cached_sequences();
        if is_check_requested() {
            self.check_before_closing()?;
        }
        let disk = self.shared.catalog.context().disk_pool();
        for pool in disk.into_iter().chain([self.pool()]) {
            match pool.close() {
                Err(entresol_memory::Error::Closed) => (),
                closed => closed?,
            }
        }
        Ok(())
    }

    fn pool(&self) -> &Arc<Pool> {
        self.shared.catalog.context().pool()
    }

    /// Checks the database at its end; fails with its problems. One that cannot be read, as it was closed before, is left.
    fn check_before_closing(&self) -> Result<()> {
        let Ok(report) = self.check(|_| ()) else { return Ok(()) };
        let problems: Vec<String> = report.problems.iter().map(ToString::to_string).collect();
        if problems.is_empty() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Corrupt, problems.join("; ")))
    }
}

/// Returns true if every database is to be checked when it is closed: so all tests show that what they leave is sound.
/// Only in builds for tests.
fn is_check_requested() -> bool {
    cfg!(debug_assertions) && std::env::var_os("ENTRESOL_CHECK_ON_CLOSE").is_some()
}

/// The pool on disk beside a main pool.
fn disk_pool(main: &Pool, directory: &Path, options: &Options) -> Result<Arc<Pool>> {
    let domain = main.domain();
    if Tier::of(domain) != Tier::Pmem {
        let message = format!(
            "disk_directory {} is for databases on persistent memory; this one is on domain {domain}",
            directory.display()
        );
        return Err(Error::new(ErrorKind::Invalid, message));
    }
    Ok(Pool::open_or_create(directory, &options.disk_pool(main)?)?)
}

/// Ends snapshots of sessions that are older than `age_max`, until the runtime ends.
fn expire_snapshots(runtime: &Runtime, sessions: Sessions, age_max: Duration) {
    let between = (age_max / 10).clamp(EXPIRY_TIME_MIN, EXPIRY_TIME_MAX);
    runtime.spawn(async move {
        loop {
            tokio::time::sleep(between).await;
            let expired = sessions.expire(age_max);
            if expired > 0 {
                tracing::warn!(expired, ?age_max, "ended snapshots that exceeded max_snapshot_age");
            }
        }
    });
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("directory", &self.shared.directory).finish_non_exhaustive()
    }
}

impl SharedDatabase {
    /// Runs a future to its end, also if the caller's thread runs an async runtime of its own.
    pub(crate) fn block_on<F: Future + Send>(&self, future: F) -> F::Output
    where
        F::Output: Send,
    {
        let runtime = self.runtime.as_ref().expect("the runtime is taken in drop only");
        if tokio::runtime::Handle::try_current().is_err() {
            return runtime.block_on(future);
        }
        // A thread that drives a runtime must not enter another one.
        std::thread::scope(|scope| match scope.spawn(|| runtime.block_on(future)).join() {
            Ok(output) => output,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    }
}

impl Drop for SharedDatabase {
    fn drop(&mut self) {
        self.topologies.stop();
        self.materialized.stop();
        if let Some(runtime) = self.runtime.take() {
            // Tasks of queries that ended early hold the pool: when the last handle is gone, the directory is
            // free.
            match tokio::runtime::Handle::try_current() {
                Err(_) => runtime.shutdown_timeout(SHUTDOWN_WAIT_MAX),
                // Waiting is not allowed on a thread of an async runtime.
                Ok(_) => runtime.shutdown_background(),
            }
        }
    }
}
