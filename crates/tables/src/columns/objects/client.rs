//! Client of an object store: requests that block the calling thread until their answer.
//!
//! - Requests run on a small runtime that all stores of a database share, with threads of its own: the caller may be a
//!   thread of another runtime, and never waits for itself.
//! - Each request ends: after the timeout of the store and its bounded repetitions, or when the statement that waits is
//!   stopped.
//! - An object of a store of files is on the disk, with its directory entry, when its write returns.
//!
//! Memory: the bytes of the requests that are in flight.

use crate::columns::objects::location::StoreLocation;
use crate::error::{Error, Result};
use bytes::Bytes;
use futures::TryStreamExt;
use object_store::path::Path as ObjectPath;
use object_store::{Error as StoreError, ObjectStore, ObjectStoreExt, PutPayload};
use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::runtime::{Builder, Handle, Runtime};

/// Threads for calls of file systems that block.
const BLOCKING_THREADS: usize = 8;
/// Interval at which a waiting statement looks whether it is stopped.
const STOP_INTERVAL: Duration = Duration::from_millis(50);
/// Longest time of a request in its timeouts: that of the first try, and that of its repetitions.
const TRIES_TIMEOUTS: u32 = 3;

/// Check of a statement that waits: an error if it is stopped.
pub(crate) type Running<'r> = &'r dyn Fn() -> Result<()>;

/// Counters of the requests to all stores of a database since it was opened.
#[derive(Debug, Default)]
pub(crate) struct RequestCounters {
    pub(crate) reads: AtomicU64,
    pub(crate) read_bytes: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
    pub(crate) lists: AtomicU64,
    pub(crate) deletes: AtomicU64,
    pub(crate) failures: AtomicU64,
}

/// Runtime of requests; it begins with the first one.
#[derive(Debug, Default)]
pub(crate) struct RequestRuntime(OnceLock<Option<Runtime>>);

impl RequestRuntime {
    fn handle(&self) -> Option<&Handle> {
        let build = || {
            let mut builder = Builder::new_multi_thread();
            builder.worker_threads(1).max_blocking_threads(BLOCKING_THREADS);
            builder.thread_name("entresol objects").enable_all();
            builder.build().inspect_err(|error| tracing::error!(%error, "no threads for object stores")).ok()
        };
        self.0.get_or_init(build).as_ref().map(Runtime::handle)
    }
}

impl Drop for RequestRuntime {
    fn drop(&mut self) {
        if let Some(Some(runtime)) = self.0.take() {
            // It may be dropped on a thread of another runtime, which must not wait.
            runtime.shutdown_background();
        }
    }
}

/// Answer to a read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ObjectRead {
    /// Bytes of each range.
    Bytes(Vec<Bytes>),
    /// There is no such object.
    Missing,
    /// The object has only so many bytes.
    Short(u64),
}

/// Client of a store; see the [module](self).
pub(crate) struct StoreClient {
    location: StoreLocation,
    store: Arc<dyn ObjectStore>,
    prefix: ObjectPath,
    runtime: Arc<RequestRuntime>,
    counters: Arc<RequestCounters>,
}

impl std::fmt::Debug for StoreClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreClient").field("store", &self.location.url()).finish_non_exhaustive()
    }
}

impl StoreClient {
    /// Client of the store at a URL. It sends nothing yet.
    pub(crate) fn open(
        location: StoreLocation,
        runtime: &Arc<RequestRuntime>,
        counters: &Arc<RequestCounters>,
    ) -> Result<StoreClient> {
        let opened = location.open();
        let (store, prefix) = opened.map_err(|error| unreachable_store(location.url(), "open it", &error))?;
        Ok(StoreClient {
            location,
            store,
            prefix,
            runtime: Arc::clone(runtime),
            counters: Arc::clone(counters),
        })
    }

    /// Path of an object in the store.
    fn path(&self, name: &str) -> ObjectPath {
        name.split('/').fold(self.prefix.clone(), |path, part| path.join(part))
    }

    /// Full URL of an object, for messages.
    pub(crate) fn url_of(&self, name: &str) -> String {
        let base = self.location.url().split('?').next().unwrap_or_default();
        format!("{}/{name}", base.trim_end_matches('/'))
    }

    /// Runs a request to its end.
    fn run<T: Send + 'static>(
        &self,
        (what, running): (&str, Running<'_>),
        request: impl Future<Output = object_store::Result<T>> + Send + 'static,
    ) -> Result<object_store::Result<T>> {
        let failed = |reason: &dyn std::fmt::Display| {
            self.counters.failures.fetch_add(1, Ordering::Relaxed);
            unreachable_store(self.location.url(), what, reason)
        };
        let handle = self.runtime.handle().ok_or_else(|| failed(&"its threads cannot be started"))?;
        let (limit, (sender, receiver)) = (self.location.timeout() * TRIES_TIMEOUTS, sync_channel(1));
        let task = handle.spawn(async move {
            // Who does not wait any more needs no answer.
            let _ = sender.send(tokio::time::timeout(limit, request).await);
        });
        loop {
            match receiver.recv_timeout(STOP_INTERVAL) {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(_)) => {
                    return Err(failed(&format!("no answer within {} seconds", limit.as_secs())));
                }
                Err(RecvTimeoutError::Timeout) => running().inspect_err(|_| task.abort())?,
                Err(RecvTimeoutError::Disconnected) => return Err(failed(&"the request was stopped")),
            }
        }
    }

    /// As [`StoreClient::run`], where any error of the store is one of the caller.
    fn run_well<T: Send + 'static>(
        &self,
        (what, running): (&str, Running<'_>),
        request: impl Future<Output = object_store::Result<T>> + Send + 'static,
    ) -> Result<T> {
        self.run((what, running), request)?.map_err(|error| {
            self.counters.failures.fetch_add(1, Ordering::Relaxed);
            unreachable_store(self.location.url(), what, &error)
        })
    }

    /// Writes an object, durably.
    pub(crate) fn write(&self, name: &str, parts: Vec<Bytes>, running: Running<'_>) -> Result<()> {
        let (store, path) = (Arc::clone(&self.store), self.path(name));
        let bytes: usize = parts.iter().map(Bytes::len).sum();
        let file = self.location.directory().map(|root| (root.to_owned(), root.join(path.as_ref())));
        let what = format!("write object {name}");
        self.run_well((&what, running), async move {
            store.put(&path, PutPayload::from_iter(parts)).await?;
            let Some((root, file)) = file else { return Ok(()) };
            tokio::task::spawn_blocking(move || sync_file(&root, &file)).await?
        })?;
        self.counters.writes.fetch_add(1, Ordering::Relaxed);
        self.counters.written_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Reads ranges of an object; neighbours come by one request.
    pub(crate) fn read(
        &self,
        name: &str,
        ranges: Vec<Range<u64>>,
        running: Running<'_>,
    ) -> Result<ObjectRead> {
        let (store, path) = (Arc::clone(&self.store), self.path(name));
        let end = ranges.iter().map(|range| range.end).max().unwrap_or(0);
        let what = format!("read object {name}");
        let wanted = ranges.clone();
        let read = self.run((&what, running), async move { store.get_ranges(&path, &ranges).await })?;
        self.counters.reads.fetch_add(1, Ordering::Relaxed);
        let error = match read {
            Ok(read) => {
                let is_whole = read
                    .iter()
                    .zip(&wanted)
                    .all(|(bytes, range)| bytes.len() as u64 == range.end - range.start);
                let bytes: usize = read.iter().map(Bytes::len).sum();
                self.counters.read_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
                if is_whole && read.len() == wanted.len() {
                    return Ok(ObjectRead::Bytes(read));
                }
                None
            }
            Err(StoreError::NotFound { .. }) => return Ok(ObjectRead::Missing),
            Err(error) => Some(error),
        };
        // A range that reaches beyond the end is an error of another kind in each store.
        match self.bytes_of(name, running) {
            Ok(None) => Ok(ObjectRead::Missing),
            Ok(Some(bytes)) if bytes < end => Ok(ObjectRead::Short(bytes)),
            _ => {
                self.counters.failures.fetch_add(1, Ordering::Relaxed);
                let reason =
                    error.map_or_else(|| "its answer is too short".to_owned(), |error| error.to_string());
                Err(unreachable_store(self.location.url(), &what, &reason))
            }
        }
    }

    /// Bytes of an object; none if it is not there.
    pub(crate) fn bytes_of(&self, name: &str, running: Running<'_>) -> Result<Option<u64>> {
        let (store, path) = (Arc::clone(&self.store), self.path(name));
        let what = format!("look at object {name}");
        match self.run((&what, running), async move { store.head(&path).await })? {
            Ok(meta) => Ok(Some(meta.size)),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(error) => {
                self.counters.failures.fetch_add(1, Ordering::Relaxed);
                Err(unreachable_store(self.location.url(), &what, &error))
            }
        }
    }

    /// Content of a small object.
    pub(crate) fn read_whole(&self, name: &str, running: Running<'_>) -> Result<Bytes> {
        let (store, path) = (Arc::clone(&self.store), self.path(name));
        let what = format!("read object {name}");
        self.run_well((&what, running), async move { store.get(&path).await?.bytes().await })
    }

    /// Names of the objects below a prefix, without that.
    pub(crate) fn list(&self, below: &str, running: Running<'_>) -> Result<Vec<String>> {
        let (store, path) = (Arc::clone(&self.store), self.path(below));
        let listed = path.clone();
        let what = format!("list {below}");
        let found: Vec<object_store::ObjectMeta> =
            self.run_well((&what, running), async move { store.list(Some(&listed)).try_collect().await })?;
        self.counters.lists.fetch_add(1, Ordering::Relaxed);
        let rest = |found: &object_store::ObjectMeta| {
            let rest = found.location.as_ref().strip_prefix(path.as_ref())?;
            Some(rest.trim_start_matches('/').to_owned())
        };
        Ok(found.iter().filter_map(rest).collect())
    }

    /// Deletes an object, whether or not it is there.
    pub(crate) fn delete(&self, name: &str, running: Running<'_>) -> Result<()> {
        let (store, path) = (Arc::clone(&self.store), self.path(name));
        let what = format!("delete object {name}");
        let deleted = self.run((&what, running), async move { store.delete(&path).await })?;
        match deleted {
            Ok(()) | Err(StoreError::NotFound { .. }) => {
                self.counters.deletes.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => {
                self.counters.failures.fetch_add(1, Ordering::Relaxed);
                Err(unreachable_store(self.location.url(), &what, &error))
            }
        }
    }
}

/// Error of a store that does not do what it was asked for.
fn unreachable_store(store: &str, what: &str, reason: &dyn std::fmt::Display) -> Error {
    let store = store.split('?').next().unwrap_or_default().to_owned();
    Error::ObjectStore { store, what: what.to_owned(), reason: reason.to_string() }
}

/// Writes a file of a store to the disk, and the entries that lead to it.
fn sync_file(root: &Path, file: &Path) -> object_store::Result<()> {
    let sync = |path: &Path| {
        let synced = File::open(path).and_then(|file| file.sync_all());
        synced.map_err(|error| StoreError::Generic {
            store: "LocalFileSystem",
            source: format!("cannot sync {}: {error}", path.display()).into(),
        })
    };
    sync(file)?;
    let mut directory = file.parent();
    while let Some(path) = directory.filter(|path| path.starts_with(root)) {
        sync(path)?;
        directory = path.parent();
    }
    Ok(())
}
