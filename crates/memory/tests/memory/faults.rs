//! Every call of a database's life fails once: each run ends in a clear error, and everything acknowledged is
//! there.

use entresol_memory::env::{
    CallFailure, Env, FailingFiles, FileOperation, Files, OpenMode, RealFiles, StorageFile,
};
use entresol_memory::{DomainChoice, Error, JournalOptions, Pool, PoolOffset, PoolOptions};
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tempfile::TempDir;

fn options(files: Arc<dyn Files>) -> PoolOptions {
    PoolOptions {
        domain: DomainChoice::Journal,
        extent_bytes: 256 << 10,
        address_space_bytes: 64 << 20,
        journal: JournalOptions {
            slot_bytes: 64 << 10,
            checkpoint_bytes: 64 << 20,
            journal_bytes_max: 64 << 20,
            preallocated_slots: 2,
            ..JournalOptions::default()
        },
        env: Env::real().with_files(files),
        ..PoolOptions::default()
    }
}

/// Creates a directory in memory where there is such a file system: thousands of databases are created.
fn scratch() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { TempDir::new_in(memory).unwrap() } else { TempDir::new().unwrap() }
}

/// Progress of a run before it ended.
#[derive(Default)]
struct Progress {
    begun: AtomicU64,
    acknowledged: AtomicU64,
}

impl Progress {
    fn push(&self, pool: &Pool, bytes: usize) -> Result<(), Error> {
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let node = pool.reserve(bytes)?;
        let words = pool.words(node.offset(), 2);
        words[0].store(pool.root("list").unwrap_or(PoolOffset::NULL).to_word(), Ordering::Relaxed);
        words[1].store(number, Ordering::Relaxed);
        pool.flush(node.offset(), 16);
        let mut publication = pool.publication();
        let offset = publication.allocate(node);
        publication.set_root("list", offset)?;
        publication.publish()
    }

    fn sync(&self, pool: &Pool) -> Result<(), Error> {
        let begun = self.begun.load(Ordering::SeqCst);
        pool.sync()?;
        self.acknowledged.store(begun, Ordering::SeqCst);
        Ok(())
    }

    /// Creates, writes, grows, checkpoints, closes, opens again.
    fn run(&self, dir: &Path, options: &PoolOptions) -> Result<(), Error> {
        let pool = Pool::create(dir, options)?;
        for _ in 0..3 {
            self.push(&pool, 64)?;
            self.sync(&pool)?;
        }
        for _ in 0..9 {
            self.push(&pool, 32 << 10)?;
        }
        self.sync(&pool)?;
        pool.checkpoint()?;
        for _ in 0..30 {
            self.push(&pool, 64)?;
            self.sync(&pool)?;
        }
        pool.close()?;
        drop(pool);
        let pool = Pool::open(dir, options)?;
        self.push(&pool, 64)?;
        self.sync(&pool)?;
        drop(pool);
        let pool = Pool::open(dir, options)?;
        self.push(&pool, 64)?;
        self.sync(&pool)?;
        pool.close()
    }
}

/// Number of objects of the list, which are all objects there are.
fn length(pool: &Pool) -> u64 {
    let (mut at, mut length) = (pool.root("list").unwrap_or(PoolOffset::NULL), 0);
    while !at.is_null() {
        length += 1;
        at = PoolOffset::from_word(pool.words(at, 2)[0].load(Ordering::Relaxed));
    }
    let mut objects = 0;
    pool.for_each_object(|_, _| objects += 1);
    assert_eq!(objects, length, "allocated and reachable");
    length
}

/// Checks that the error names the file and the failed action.
fn assert_clear(error: &Error, failed: &(FileOperation, PathBuf), how: CallFailure, dir: &Path) {
    let text = error.to_string();
    const OPERATIONS: [&str; 12] = [
        "create",
        "open",
        "read",
        "write",
        "sync",
        "extend",
        "preallocate",
        "remove",
        "get the length of",
        "the header of",
        "rename",
        "allocate blocks",
    ];
    assert!(OPERATIONS.iter().any(|operation| text.contains(operation)), "{failed:?}: {text}");
    let above = dir.parent().unwrap().display().to_string();
    // Files are created under temporary names; errors name their final ones.
    let names = ["pool.", "journal.", "checksums."];
    // Of several failures the first may have been one without a consequence, such as a slot that is prepared
    // ahead.
    let one = matches!(how, CallFailure::Io | CallFailure::ShortWrite);
    let named = match failed.0 {
        _ if !one => text.contains(&above),
        FileOperation::SyncDirectory | FileOperation::CreateDirectory => text.contains(&above),
        _ => names.iter().any(|name| failed.1.to_string_lossy().contains(name) && text.contains(name)),
    };
    assert!(named, "{failed:?}: {text}");
}

fn every_call_fails(how: CallFailure) {
    let calls = {
        let (dir, files) = (scratch(), FailingFiles::new());
        Progress::default().run(&dir.path().join("db"), &options(Arc::new(files.clone()))).unwrap();
        files.calls()
    };
    assert!(calls > 100, "{calls}");
    let mut errors = 0;
    for call in 1..=calls {
        let scratch = scratch();
        let dir = scratch.path().join("db");
        let files = FailingFiles::new();
        files.fail(call, how);
        let done = Progress::default();
        let outcome = done.run(&dir, &options(Arc::new(files.clone())));
        if let Err(error) = &outcome {
            errors += 1;
            let failed = files.failed().unwrap_or_else(|| panic!("call {call} did not fail, but: {error}"));
            assert_clear(error, &failed, how, &dir);
        }
        files.mend();
        let pool = Pool::open_or_create(&dir, &options(Arc::new(RealFiles)))
            .unwrap_or_else(|error| panic!("after call {call} failed with {how:?} ({outcome:?}): {error}"));
        let (begun, acknowledged) = (done.begun.into_inner(), done.acknowledged.into_inner());
        let found = length(&pool);
        assert!((acknowledged..=begun).contains(&found), "call {call}: {found} of {acknowledged}..={begun}");
        let more = Progress { begun: AtomicU64::new(found), ..Progress::default() };
        more.push(&pool, 64).unwrap();
        more.sync(&pool).unwrap();
        drop(pool);
        let pool = Pool::open(&dir, &options(Arc::new(RealFiles))).unwrap();
        assert_eq!(length(&pool), found + 1, "call {call}");
    }
    println!("{how:?}: {calls} calls, {errors} errors");
    assert!(errors > 40, "{errors} errors of {calls} calls");
}

#[test]
fn one_io_error_anywhere() {
    every_call_fails(CallFailure::Io);
}

#[test]
fn one_short_write_anywhere() {
    every_call_fails(CallFailure::ShortWrite);
}

#[test]
fn the_device_goes_away_anywhere() {
    every_call_fails(CallFailure::DeviceGone);
}

#[test]
fn the_disk_is_full_from_anywhere_on() {
    every_call_fails(CallFailure::DiskFull);
}

#[test]
fn the_file_system_becomes_read_only_anywhere() {
    every_call_fails(CallFailure::ReadOnly);
}

/// File system with neither direct I/O nor preallocation: an allocation only sets the length.
struct PlainFiles;

struct PlainFile(std::fs::File);

impl Files for PlainFiles {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn StorageFile>> {
        let mut options = std::fs::OpenOptions::new();
        options.read(true).write(true).create_new(mode == OpenMode::Create);
        Ok(Box::new(PlainFile(options.open(path)?)))
    }

    fn sync_directory(&self, dir: &Path) -> io::Result<()> {
        RealFiles.sync_directory(dir)
    }
}

impl StorageFile for PlainFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(&self.0, buffer, offset)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::write_all_at(&self.0, buffer, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn allocate(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.0.set_len(self.0.metadata()?.len().max(offset + bytes))
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.0)
    }
}

#[test]
fn a_file_system_without_the_features_serves_as_well() {
    let scratch = TempDir::new().unwrap();
    Progress::default().run(&scratch.path().join("plain"), &options(Arc::new(PlainFiles))).unwrap();
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        let scratch = TempDir::new_in(memory).unwrap();
        Progress::default().run(&scratch.path().join("tmpfs"), &options(Arc::new(RealFiles))).unwrap();
    } else {
        eprintln!("skipped: there is no tmpfs at /dev/shm");
    }
}

/// File system of its own while it lives; `None` where that is not allowed.
struct Mount(TempDir);

impl Mount {
    fn tmpfs(options: &str) -> Option<Mount> {
        let dir = TempDir::new().unwrap();
        let path = dir.path().to_str().unwrap();
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "tmpfs", path])
            .output()
            .is_ok_and(|output| output.status.success());
        if !mounted {
            eprintln!("skipped: a tmpfs may not be mounted here");
            return None;
        }
        Some(Mount(dir))
    }

    fn remount(&self, options: &str) -> bool {
        let path = self.0.path().to_str().unwrap();
        let remount = format!("remount,{options}");
        std::process::Command::new("mount")
            .args(["-o", &remount, path])
            .output()
            .is_ok_and(|output| output.status.success())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(self.0.path()).output();
    }
}

#[test]
fn a_disk_that_is_really_full() {
    let Some(mount) = Mount::tmpfs("size=1m") else { return };
    let dir = mount.0.path().join("db");
    let done = Progress::default();
    let options = options(Arc::new(RealFiles));
    let pool = Pool::create(&dir, &options).unwrap();
    done.push(&pool, 64).unwrap();
    done.sync(&pool).unwrap();
    let error = loop {
        match done.push(&pool, 32 << 10).and_then(|()| done.sync(&pool)) {
            Ok(()) => assert!(done.begun.load(Ordering::SeqCst) < 1000),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::OutOfSpace { .. }), "{error}");
    assert!(error.to_string().contains("pool.entresol"), "{error}");
    let acknowledged = done.acknowledged.load(Ordering::SeqCst);
    assert!(length(&pool) >= acknowledged && acknowledged > 3);
    drop(pool);
    let pool = Pool::open(&dir, &options).unwrap();
    assert!(length(&pool) >= acknowledged);
    pool.close().unwrap();
}

#[test]
fn a_directory_that_is_read_only() {
    let Some(mount) = Mount::tmpfs("size=8m") else { return };
    let dir = mount.0.path().join("db");
    let options = options(Arc::new(RealFiles));
    let done = Progress::default();
    done.run(&dir, &options).unwrap();
    assert!(mount.remount("ro"));
    let error = Pool::open(&dir, &options).unwrap_err().to_string();
    assert!(error.contains("lock") && error.contains("entresol"), "{error}");
    let error = Pool::create(&mount.0.path().join("other"), &options).unwrap_err().to_string();
    assert!(error.contains("create directory") && error.contains("other"), "{error}");
    assert!(mount.remount("rw"));
    let pool = Pool::open(&dir, &options).unwrap();
    assert_eq!(length(&pool), done.begun.load(Ordering::SeqCst));
}
