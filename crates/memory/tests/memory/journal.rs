//! Guarantees of the journal: durability of returned commits, orderly close, behaviour after failures.

use entresol_memory::env::{Env, Files, OpenMode, RealFiles, StorageFile};
use entresol_memory::placement::WriteSettings;
use entresol_memory::{DomainChoice, Error, JournalOptions, Pool, PoolOffset, PoolOptions};
use std::fs;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const SLOT_BYTES: u64 = 64 << 10;

fn options(env: Env) -> PoolOptions {
    PoolOptions {
        domain: DomainChoice::Journal,
        extent_bytes: 1 << 20,
        journal: JournalOptions {
            slot_bytes: SLOT_BYTES,
            checkpoint_bytes: 8 << 20,
            journal_bytes_max: 16 << 20,
            preallocated_slots: 2,
            ..JournalOptions::default()
        },
        env,
        ..PoolOptions::default()
    }
}

/// Allocates a page of words that the root "words" names.
fn make_words(pool: &Arc<Pool>) -> PoolOffset {
    let object = pool.reserve(4096).unwrap();
    let mut publication = pool.publication();
    (0..512).for_each(|word| publication.write(object.offset().plus(word * 8), 0));
    let at = publication.allocate(object);
    publication.set_root("words", at).unwrap();
    publication.publish().unwrap();
    at
}

fn set(pool: &Pool, offset: PoolOffset, value: u64) {
    pool.word(offset).store(value, Ordering::Release);
    pool.flush(offset, 8);
    pool.fence();
}

/// Additional action of a watched file's calls.
trait Watch: Send + Sync {
    fn wrote(&self, _offset: u64, _bytes: &[u8]) {}
    fn sync_begins(&self) {}
    fn synced(&self) {}
}

/// Real files, of which those with a name prefix are watched.
struct Watched<W> {
    name: &'static str,
    watch: Arc<W>,
}

struct WatchedFile<W> {
    file: Box<dyn StorageFile>,
    watch: Option<Arc<W>>,
}

impl<W: Watch + 'static> Files for Watched<W> {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn StorageFile>> {
        let watched = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(self.name));
        let file = RealFiles.open(path, mode)?;
        Ok(Box::new(WatchedFile { file, watch: watched.then(|| self.watch.clone()) }))
    }

    fn sync_directory(&self, dir: &Path) -> io::Result<()> {
        RealFiles.sync_directory(dir)
    }
}

impl<W: Watch> StorageFile for WatchedFile<W> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_at(buffer, offset)?;
        self.watch.iter().for_each(|watch| watch.wrote(offset, buffer));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.watch.iter().for_each(|watch| watch.sync_begins());
        // The watched tests check what is synced, not whether this machine's disk is.
        if self.watch.is_none() {
            self.file.sync_data()?;
        }
        self.watch.iter().for_each(|watch| watch.synced());
        Ok(())
    }

    fn allocate(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.file.allocate(offset, bytes)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.descriptor()
    }
}

fn watched<W: Watch + 'static>(name: &'static str, watch: &Arc<W>) -> PoolOptions {
    options(Env::real().with_files(Arc::new(Watched { name, watch: watch.clone() })))
}

/// Journal file as it is, and as it was at the beginning of the last completed sync.
#[derive(Default)]
struct Images {
    images: Mutex<[Vec<u8>; 3]>,
}

impl Watch for Images {
    fn wrote(&self, offset: u64, bytes: &[u8]) {
        let [now, ..] = &mut *self.images.lock().unwrap();
        let end = offset as usize + bytes.len();
        now.resize(now.len().max(end), 0);
        now[offset as usize..end].copy_from_slice(bytes);
    }

    fn sync_begins(&self) {
        let [now, syncing, _] = &mut *self.images.lock().unwrap();
        syncing.clone_from(now);
    }

    fn synced(&self) {
        // Long enough for others to gather.
        std::thread::sleep(Duration::from_micros(300));
        let [_, syncing, synced] = &mut *self.images.lock().unwrap();
        synced.clone_from(syncing);
    }
}

#[test]
fn a_commit_that_returned_is_synced_however_many_commit_together() {
    const COMMITTERS: u64 = 16;
    let dir = TempDir::new().unwrap();
    let images = Arc::new(Images::default());
    let pool = Pool::create(dir.path(), &watched("journal", &images)).unwrap();
    let at = make_words(&pool);
    pool.sync().unwrap();
    let acknowledged: Vec<AtomicU64> = (0..COMMITTERS).map(|_| AtomicU64::new(0)).collect();
    let stop = AtomicBool::new(false);
    let before = pool.stats();
    std::thread::scope(|scope| {
        for (committer, acknowledged) in (0..).zip(&acknowledged) {
            let (pool, stop) = (&pool, &stop);
            scope.spawn(move || {
                for value in 1.. {
                    set(pool, at.plus(committer * 64), value);
                    pool.sync().unwrap();
                    acknowledged.store(value, Ordering::SeqCst);
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
        }
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(10));
            let promised: Vec<u64> = acknowledged.iter().map(|value| value.load(Ordering::SeqCst)).collect();
            let synced = images.images.lock().unwrap()[2].clone();
            let copy = TempDir::new().unwrap();
            fs::copy(dir.path().join("pool.entresol"), copy.path().join("pool.entresol")).unwrap();
            fs::write(copy.path().join("journal.entresol"), synced).unwrap();
            let killed = Pool::open(copy.path(), &options(Env::real())).unwrap();
            for (committer, promised) in (0..).zip(promised) {
                let found = killed.word(at.plus(committer * 64)).load(Ordering::Relaxed);
                assert!(found >= promised, "committer {committer}: {found} of {promised}");
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    let commits: u64 = acknowledged.iter().map(|value| value.load(Ordering::SeqCst)).sum();
    let syncs = pool.stats().syncs - before.syncs;
    assert!(commits > 100 && syncs * 2 < commits, "{commits} commits shared {syncs} syncs");
}

/// Blocks of the journal file that were written and then synced.
#[derive(Default)]
struct Blocks {
    written: Mutex<Vec<bool>>,
    synced: Mutex<Vec<bool>>,
    fresh: AtomicU64,
    frames: AtomicU64,
}

impl Watch for Blocks {
    fn wrote(&self, offset: u64, bytes: &[u8]) {
        let blocks = offset as usize / 4096..(offset as usize + bytes.len()).div_ceil(4096);
        let mut written = self.written.lock().unwrap();
        let synced = self.synced.lock().unwrap();
        let length = written.len().max(blocks.end);
        written.resize(length, false);
        if bytes.iter().any(|byte| *byte != 0) {
            self.frames.fetch_add(1, Ordering::Relaxed);
            if blocks.start >= 2 && !blocks.clone().all(|block| synced.get(block) == Some(&true)) {
                self.fresh.fetch_add(1, Ordering::Relaxed);
            }
        }
        written[blocks].fill(true);
    }

    fn sync_begins(&self) {
        let written = self.written.lock().unwrap();
        self.synced.lock().unwrap().clone_from(&written);
    }
}

#[test]
fn what_goes_into_the_journal_overwrites_what_was_written_and_synced() {
    let dir = TempDir::new().unwrap();
    let blocks = Arc::new(Blocks::default());
    let pool = Pool::create(dir.path(), &watched("journal", &blocks)).unwrap();
    let at = make_words(&pool);
    // Through many more slots than there were at first.
    for value in 0..400 {
        pool.words(at, 512).iter().for_each(|word| word.store(value, Ordering::Relaxed));
        pool.flush(at, 4096);
        if value % 10 == 0 {
            pool.sync().unwrap();
        }
    }
    pool.sync().unwrap();
    let length = fs::metadata(dir.path().join("journal.entresol")).unwrap().len();
    assert!(length > 8192 + 10 * SLOT_BYTES, "{length}");
    assert!(blocks.frames.load(Ordering::Relaxed) > 40);
    assert_eq!(blocks.fresh.load(Ordering::Relaxed), 0, "frames went to blocks that were not ready for them");
}

/// Panics at writes once it is armed.
#[derive(Default)]
struct Panics(AtomicBool);

impl Watch for Panics {
    fn wrote(&self, _offset: u64, _bytes: &[u8]) {
        assert!(!self.0.load(Ordering::SeqCst), "a panic on purpose");
    }
}

#[test]
fn a_journal_thread_that_panics_latches() {
    for name in ["pool", "journal"] {
        let dir = TempDir::new().unwrap();
        let panics = Arc::new(Panics::default());
        let mut options = watched(name, &panics);
        options.journal.checkpoint_bytes = SLOT_BYTES;
        let pool = Pool::create(dir.path(), &options).unwrap();
        let at = make_words(&pool);
        set(&pool, at, 1);
        pool.sync().unwrap();
        panics.0.store(true, Ordering::SeqCst);
        // Enough for the flusher and the checkpointer to act.
        for value in 0..40 {
            pool.words(at.plus(8), 511).iter().for_each(|word| word.store(value, Ordering::Relaxed));
            let flushed =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| pool.flush(at.plus(8), 4088)));
            assert!(flushed.is_ok() || name == "journal", "only a writer of the journal may meet the panic");
        }
        let deadline = Instant::now() + Duration::from_secs(20);
        while pool.check_healthy().is_ok() {
            assert!(Instant::now() < deadline, "nothing latched");
            std::thread::sleep(Duration::from_millis(1));
        }
        let error = pool.sync().unwrap_err();
        assert!(error.to_string().contains("panicked"), "{error}");
        panics.0.store(false, Ordering::SeqCst);
        drop(pool);
        let pool = Pool::open(dir.path(), &options).unwrap();
        assert_eq!(pool.word(at).load(Ordering::Relaxed), 1);
    }
}

#[test]
fn closing_is_the_end_whoever_still_writes() {
    let dir = TempDir::new().unwrap();
    let pool = Pool::create(dir.path(), &options(Env::real())).unwrap();
    let at = make_words(&pool);
    let closed = AtomicBool::new(false);
    let begun = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for value in 1.. {
                set(&pool, at, value);
                begun.store(value, Ordering::SeqCst);
                if closed.load(Ordering::SeqCst) {
                    return;
                }
            }
        });
        while begun.load(Ordering::SeqCst) < 1000 {
            std::thread::yield_now();
        }
        pool.close().unwrap();
        set(&pool, at.plus(64), 5);
        closed.store(true, Ordering::SeqCst);
    });
    let error = pool.sync().unwrap_err();
    assert!(matches!(error, Error::Closed), "{error}");
    drop(pool);
    let pool = Pool::open(dir.path(), &options(Env::real())).unwrap();
    assert!(pool.was_clean());
    assert_eq!(pool.stats().replayed_bytes, 0);
    assert!(pool.word(at).load(Ordering::Relaxed) >= 1000);
    assert_eq!(pool.word(at.plus(64)).load(Ordering::Relaxed), 0, "written after the close");
}

#[test]
fn a_newer_journal_is_told_from_a_damaged_one() {
    let dir = TempDir::new().unwrap();
    let pool = Pool::create(dir.path(), &options(Env::real())).unwrap();
    pool.close().unwrap();
    drop(pool);
    let path = dir.path().join("journal.entresol");
    let good = fs::read(&path).unwrap();
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    for block in [0, 4096] {
        file.write_all_at(&99u32.to_le_bytes(), block + 8).unwrap();
    }
    let error = Pool::open(dir.path(), &options(Env::real())).unwrap_err();
    assert!(matches!(error, Error::Corrupt { .. }), "no checksum vouches for the version: {error}");
    for block in [0, 4096] {
        let mut header = good[block..block + 72].to_vec();
        header[8..12].copy_from_slice(&99u32.to_le_bytes());
        let crc = u64::from(crc32c::crc32c(&header));
        file.write_all_at(&header, block as u64).unwrap();
        file.write_all_at(&crc.to_le_bytes(), block as u64 + 72).unwrap();
    }
    let error = Pool::open(dir.path(), &options(Env::real())).unwrap_err();
    assert!(matches!(error, Error::NewerVersion { found: 99, .. }), "{error}");
}

#[test]
fn a_time_target_makes_checkpoints_though_the_bytes_are_few() {
    let dir = TempDir::new().unwrap();
    let mut hasty = options(Env::real());
    hasty.journal.recovery_ms_target = 1;
    let pool = Pool::create(dir.path(), &hasty).unwrap();
    let at = make_words(&pool);
    for value in 0..2_000 {
        pool.words(at, 512).iter().for_each(|word| word.store(value, Ordering::Relaxed));
        pool.flush(at, 4096);
    }
    assert!(pool.stats().checkpoints > 2, "{:?}", pool.stats());
    drop(pool);
    let pool = Pool::open(dir.path(), &hasty).unwrap();
    assert!(pool.words(at, 512).iter().all(|word| word.load(Ordering::Relaxed) == 1_999));
    hasty.journal.recovery_ms_target = 0;
    assert!(matches!(
        Pool::open(TempDir::new().unwrap().path(), &hasty),
        Err(Error::NotFound { .. } | Error::Invalid(_))
    ));
}

/// Lengths of the writes of a file.
#[derive(Default)]
struct Lengths {
    lengths: Mutex<Vec<usize>>,
}

impl Watch for Lengths {
    fn wrote(&self, _offset: u64, bytes: &[u8]) {
        self.lengths.lock().unwrap().push(bytes.len());
    }
}

#[test]
fn checkpoints_write_in_pieces_as_the_profile_of_the_disk_says() {
    const OBJECT_BYTES: usize = 512 << 10;
    let longest_with = |writing: Option<WriteSettings>| {
        let (dir, watch) = (TempDir::new().unwrap(), Arc::new(Lengths::default()));
        let mut options = watched("pool", &watch);
        options.journal.writing = writing;
        let pool = Pool::create(dir.path(), &options).unwrap();
        let in_effect = pool.checkpoint_writing().unwrap();
        let object = pool.reserve(OBJECT_BYTES).unwrap();
        let mut publication = pool.publication();
        let at = publication.allocate(object);
        publication.set_root("object", at).unwrap();
        publication.publish().unwrap();
        pool.store_flushed(at, &[7; OBJECT_BYTES]);
        pool.sync().unwrap();
        watch.lengths.lock().unwrap().clear();
        pool.checkpoint().unwrap();
        let longest = watch.lengths.lock().unwrap().iter().copied().max().unwrap();
        // All writes are there, whatever the pieces.
        drop(pool);
        let pool = Pool::open(dir.path(), &options).unwrap();
        let all_sevens = u64::from_le_bytes([7; 8]);
        let words = pool.words(pool.root("object").unwrap(), OBJECT_BYTES / 8);
        assert!(words.iter().all(|word| word.load(Ordering::Relaxed) == all_sevens));
        assert!(pool.verify_pages(|_| ()).unwrap().unwrap().damaged.is_empty());
        (longest, in_effect)
    };
    let calibrated = WriteSettings { piece_bytes: 64 << 10, at_once: 3, is_calibrated: true };
    let (longest, in_effect) = longest_with(Some(calibrated));
    assert_eq!(longest, 64 << 10);
    assert_eq!(in_effect, WriteSettings { at_once: 1, ..calibrated }, "these files write one by one");
    let (longest, in_effect) = longest_with(None);
    assert!((256 << 10..=1 << 20).contains(&longest), "{longest}");
    assert_eq!((in_effect.piece_bytes, in_effect.is_calibrated), (1 << 20, false));
}

#[test]
fn pieces_that_no_checkpoint_could_write_are_refused() {
    for (piece_bytes, at_once) in
        [(0, 1), (4096, 1), (70_000, 1), (16 << 20, 1), (64 << 10, 0), (64 << 10, 65)]
    {
        let mut options = options(Env::real());
        options.journal.writing = Some(WriteSettings { piece_bytes, at_once, is_calibrated: true });
        let error = Pool::create(TempDir::new().unwrap().path(), &options).unwrap_err();
        assert!(matches!(&error, Error::Invalid(what) if what.contains("pieces must be")), "{error}");
    }
}

#[test]
fn journal_buffers_count_in_the_budget_while_the_pool_is_open() {
    use entresol_memory::{MemoryBudget, MemoryConsumer};
    let dir = TempDir::new().unwrap();
    let memory = MemoryBudget::new(64 << 20).unwrap();
    let used = || {
        let usage = memory.usage();
        usage
            .consumers
            .iter()
            .find(|line| line.consumer == MemoryConsumer::JournalBuffers)
            .unwrap()
            .used_bytes
    };
    let options = PoolOptions { memory: Some(memory.clone()), ..options(Env::real()) };
    let pool = Pool::create(dir.path(), &options).unwrap();
    assert!((1..=16 << 20).contains(&used()), "{}", used());
    pool.close().unwrap();
    drop(pool);
    assert_eq!(used(), 0);
}

#[test]
fn closing_returns_what_a_burst_made_of_the_journal() {
    let dir = TempDir::new().unwrap();
    let pool = Pool::create(dir.path(), &options(Env::real())).unwrap();
    let journal = |pool: &Pool| pool.stats().journal_bytes;
    let created = journal(&pool);
    let words = make_words(&pool);
    for value in 1..=400 {
        (0..512).for_each(|word| set(&pool, words.plus(word * 8), value));
        pool.sync().unwrap();
    }
    assert!(journal(&pool) > 4 * created, "{} bytes of {created}", journal(&pool));
    pool.close().unwrap();
    drop(pool);
    for value in 401..=403 {
        let pool = Pool::open(dir.path(), &options(Env::real())).unwrap();
        assert_eq!(journal(&pool), created);
        assert_eq!(pool.word(words.plus(8)).load(Ordering::Relaxed), value - 1);
        (0..512).for_each(|word| set(&pool, words.plus(word * 8), value));
        pool.close().unwrap();
    }
}
