//! Power failures and damage that once lost or refused synced data.

use entresol_memory::env::{Env, Files, OpenMode, RealFiles, StorageFile};
use entresol_memory::{DomainChoice, Error, JournalOptions, Pool, PoolOffset, PoolOptions};
use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tempfile::TempDir;

const SLOT_BYTES: usize = 64 << 10;
const SLOTS_START: usize = 8192;

fn options() -> PoolOptions {
    PoolOptions {
        domain: DomainChoice::Journal,
        extent_bytes: 1 << 20,
        journal: JournalOptions {
            slot_bytes: SLOT_BYTES as u64,
            checkpoint_bytes: 64 << 20,
            journal_bytes_max: 64 << 20,
            preallocated_slots: 8,
            ..JournalOptions::default()
        },
        ..PoolOptions::default()
    }
}

/// Allocates an object of a page that the root "page" names.
fn make_page(pool: &Arc<Pool>) -> PoolOffset {
    let object = pool.reserve(4096).unwrap();
    let at = object.offset();
    pool.words(at, 512).iter().for_each(|word| word.store(0, Ordering::Relaxed));
    pool.flush(at, 4096);
    let mut publication = pool.publication();
    publication.allocate(object);
    publication.set_root("page", at).unwrap();
    publication.publish().unwrap();
    at
}

fn fill(pool: &Pool, at: PoolOffset, value: u64) {
    pool.words(at, 512).iter().for_each(|word| word.store(value, Ordering::Relaxed));
    pool.flush(at, 4096);
    pool.fence();
}

/// Number of values whose records are a little more than half a buffer: then the journal's own thread writes
/// them.
const GROUP: u64 = 8;

/// Fills the page with a group of values and waits until they are written, unsynced: one frame, in a slot of
/// its own if there is another group in it. Nothing is left for the thread to do, so the frames are the same
/// in every run.
fn write_group(pool: &Pool, at: PoolOffset, first: u64) {
    let written = || pool.stats().journal_stored_bytes;
    let before = written();
    (first..first + GROUP).for_each(|value| fill(pool, at, value));
    // Long: a machine with much write-back may delay a direct write.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(300);
    while written() == before {
        assert!(std::time::Instant::now() < deadline, "nothing was written");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// Writes ten slots of frames, the first behind what the pool has; the last sync comes when the pool is
/// dropped.
fn write_unsynced(pool: &Pool, at: PoolOffset) {
    (0..10).for_each(|group| write_group(pool, at, 1 + group * GROUP));
}

struct Database {
    dir: TempDir,
}

impl Database {
    fn new() -> (Database, Arc<Pool>, PoolOffset) {
        let database = Database { dir: TempDir::new().unwrap() };
        let pool = Pool::create(database.dir.path(), &options()).unwrap();
        let at = make_page(&pool);
        (database, pool, at)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn open(&self) -> Result<Arc<Pool>, Error> {
        Pool::open(self.dir.path(), &options())
    }

    fn journal(&self) -> Vec<u8> {
        fs::read(self.path("journal.entresol")).unwrap()
    }

    /// Kills the process as far as the files can tell: nothing that dropping the pool writes is kept.
    fn kill(&self, pool: Arc<Pool>) {
        let files: Vec<_> = ["journal.entresol", "pool.entresol"]
            .map(|name| (self.path(name), fs::read(self.path(name)).unwrap()))
            .into();
        drop(pool);
        for (path, content) in files {
            fs::write(path, content).unwrap();
        }
    }

    /// Loses the second frame of the first slot, as a power failure may if it was not synced.
    fn lose_second_frame(&self) {
        let mut journal = self.journal();
        let is_frame = |at: &usize| &journal[*at..*at + 4] == b"EFRM";
        let second = (SLOTS_START..journal.len()).step_by(4096).filter(is_frame).nth(1).unwrap();
        assert!(second < SLOTS_START + SLOT_BYTES);
        journal[second..second + 4096].fill(0);
        fs::write(self.path("journal.entresol"), journal).unwrap();
    }

    /// (slot, sequence) of the slots with headers.
    fn used_slots(&self) -> Vec<(usize, u64)> {
        let journal = self.journal();
        let starts = (SLOTS_START..journal.len()).step_by(SLOT_BYTES).enumerate();
        starts
            .filter(|(_, at)| &journal[*at..*at + 8] == b"EJSLOT..")
            .map(|(slot, at)| (slot, u64::from_le_bytes(journal[at + 8..at + 16].try_into().unwrap())))
            .collect()
    }
}

#[test]
fn slots_of_a_tail_that_was_cut_off_do_not_hide_later_ones() {
    let (database, pool, at) = Database::new();
    pool.sync().unwrap();
    write_unsynced(&pool, at);
    drop(pool);
    assert_eq!(database.used_slots().len(), 10, "the lost tail has slots of its own");
    database.lose_second_frame();
    for value in 1000..1010 {
        let pool = database.open().unwrap();
        if value > 1000 {
            assert_eq!(pool.word(at).load(Ordering::Relaxed), value - 1, "a synced change is lost");
        }
        fill(&pool, at, value);
        pool.sync().unwrap();
        if value % 3 == 0 {
            pool.checkpoint().unwrap();
        }
        database.kill(pool);
    }
}

#[test]
fn a_position_behind_a_dead_slot_is_found_in_the_live_one() {
    let (database, pool, at) = Database::new();
    pool.sync().unwrap();
    write_unsynced(&pool, at);
    drop(pool);
    database.lose_second_frame();
    let pool = database.open().unwrap();
    // Past the first position of a dead slot, within one live slot.
    (0..3).for_each(|group| write_group(&pool, at, group * GROUP));
    fill(&pool, at, 24);
    pool.sync().unwrap();
    pool.checkpoint().unwrap();
    fill(&pool, at, 2000);
    pool.sync().unwrap();
    database.kill(pool);
    for value in 2000..2006 {
        let pool = database.open().unwrap();
        assert_eq!(pool.word(at).load(Ordering::Relaxed), value, "a synced change is lost");
        fill(&pool, at, value + 1);
        pool.sync().unwrap();
        database.kill(pool);
    }
}

#[test]
fn a_first_slot_that_never_reached_the_disk_is_no_damage() {
    let (database, pool, at) = Database::new();
    write_unsynced(&pool, at);
    drop(pool);
    let mut journal = database.journal();
    journal[SLOTS_START..SLOTS_START + SLOT_BYTES].fill(0);
    // Nor did the frames that were written after the drop's sync began.
    let frames = |at: &usize| &journal[*at..*at + 4] == b"EFRM";
    let last = (SLOTS_START..journal.len()).step_by(4096).rfind(frames).unwrap();
    journal[last..last + 4096].fill(0);
    fs::write(database.path("journal.entresol"), journal).unwrap();
    let pool = database.open().unwrap();
    assert_eq!(pool.root("page"), None);
}

#[test]
fn a_damaged_slot_header_over_synced_frames_is_an_error() {
    let (database, pool, at) = Database::new();
    for value in 1..=28 {
        fill(&pool, at, value);
        pool.sync().unwrap();
    }
    drop(pool);
    let (last, _) = database.used_slots().into_iter().max_by_key(|(_, sequence)| *sequence).unwrap();
    let file = OpenOptions::new().write(true).open(database.path("journal.entresol")).unwrap();
    let at = SLOTS_START + last * SLOT_BYTES + 16;
    file.write_all_at(&[!database.journal()[at]], at as u64).unwrap();
    let error = database.open().unwrap_err();
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
}

#[test]
fn a_pool_without_its_files_is_refused() {
    let (database, pool, _) = Database::new();
    pool.close().unwrap();
    drop(pool);
    // A crash between creating the journal and noting that it is needed: the next open notes it.
    let file = OpenOptions::new().write(true).open(database.path("pool.entresol")).unwrap();
    file.write_all_at(&[0; 8], 80).unwrap();
    // No checkpoint was ever made then.
    fs::remove_file(database.path("checksums.entresol")).unwrap();
    database.open().unwrap().close().unwrap();
    let (journal, away) = (database.path("journal.entresol"), database.path("away"));
    fs::rename(&journal, &away).unwrap();
    assert!(database.open().unwrap_err().to_string().contains("needs its journal"));
    fs::rename(&away, &journal).unwrap();
    fs::rename(database.path("pool.entresol"), &away).unwrap();
    let error = Pool::open_or_create(database.dir.path(), &options()).unwrap_err();
    assert!(error.to_string().contains("pool.entresol is missing"), "{error}");
    assert!(journal.exists(), "the journal is not thrown away");
}

#[test]
fn a_foreign_journal_is_refused_untouched() {
    let ((ours, pool, _), (theirs, other, _)) = (Database::new(), Database::new());
    pool.close().unwrap();
    other.close().unwrap();
    drop((pool, other));
    fs::copy(theirs.path("journal.entresol"), ours.path("journal.entresol")).unwrap();
    let before = ours.journal();
    assert!(ours.open().unwrap_err().to_string().contains("another pool"));
    assert!(before == ours.journal());
}

/// Real files that record the length of the pool file at its last sync.
#[derive(Clone, Default)]
struct LengthAtSync(Arc<AtomicU64>);

struct WatchedFile {
    file: Box<dyn StorageFile>,
    length: Option<Arc<AtomicU64>>,
}

impl Files for LengthAtSync {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn StorageFile>> {
        let is_pool = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("pool"));
        let length = is_pool.then(|| self.0.clone());
        Ok(Box::new(WatchedFile { file: RealFiles.open(path, mode)?, length }))
    }

    fn sync_directory(&self, dir: &Path) -> io::Result<()> {
        RealFiles.sync_directory(dir)
    }
}

impl StorageFile for WatchedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_at(buffer, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        if let Some(length) = &self.length {
            length.store(self.file.len()?, Ordering::SeqCst);
        }
        self.file.sync_data()
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

#[test]
fn a_grown_pool_file_has_its_length_before_the_journal_needs_it() {
    let dir = TempDir::new().unwrap();
    let files = LengthAtSync::default();
    let options = PoolOptions { env: Env::real().with_files(Arc::new(files.clone())), ..options() };
    let pool = Pool::create(dir.path(), &options).unwrap();
    for number in 0..40 {
        let object = pool.reserve(32 << 10).unwrap();
        let mut publication = pool.publication();
        publication.write(object.offset(), number);
        let at = publication.allocate(object);
        publication.set_root(&format!("object {number}"), at).unwrap();
        publication.publish().unwrap();
    }
    pool.sync().unwrap();
    drop(pool);
    let file = OpenOptions::new().write(true).open(dir.path().join("pool.entresol")).unwrap();
    file.set_len(files.0.load(Ordering::SeqCst)).unwrap();
    let pool = Pool::open(dir.path(), &options).unwrap();
    for number in 0..40 {
        let at = pool.root(&format!("object {number}")).unwrap();
        assert_eq!(pool.word(at).load(Ordering::Relaxed), number);
    }
}

#[test]
fn a_panic_over_a_wild_offset_leaves_the_journal_whole() {
    let (database, pool, at) = Database::new();
    for value in 1..=6 {
        fill(&pool, at, value);
        pool.sync().unwrap();
    }
    let wild = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        pool.flush(PoolOffset::new(1 << 30), 16 << 10)
    }));
    assert!(wild.is_err());
    fill(&pool, at, 77);
    pool.sync().unwrap();
    drop(pool);
    let pool = database.open().unwrap();
    assert!(pool.words(at, 512).iter().all(|word| word.load(Ordering::Relaxed) == 77));
}

#[test]
fn flushes_and_publications_of_any_size_fit() {
    let (database, pool, at) = Database::new();
    pool.flush(at, 16);
    pool.flush(at.plus(64), 0);
    pool.close().unwrap();
    drop(pool);
    // Options with larger slots than the file has.
    let larger = PoolOptions { domain: DomainChoice::Journal, ..PoolOptions::default() };
    let pool = Pool::open(database.dir.path(), &larger).unwrap();
    let object = pool.reserve(600 << 10).unwrap();
    let large = object.offset();
    let mut publication = pool.publication();
    (0..70_000).for_each(|i| publication.write(large.plus(i * 8), i + 1));
    publication.allocate(object);
    publication.set_root("large", large).unwrap();
    publication.publish().unwrap();
    pool.flush(large, 560_000);
    pool.sync().unwrap();
    drop(pool);
    let pool = database.open().unwrap();
    let words = pool.words(pool.root("large").unwrap(), 70_000);
    assert!(words.iter().zip(1..).all(|(word, value)| word.load(Ordering::Relaxed) == value));
}

#[test]
fn many_small_syncs_do_not_grow_the_journal_without_bound() {
    let dir = TempDir::new().unwrap();
    let small = JournalOptions {
        checkpoint_bytes: 256 << 10,
        journal_bytes_max: 1 << 20,
        preallocated_slots: 2,
        ..options().journal
    };
    let pool = Pool::create(dir.path(), &PoolOptions { journal: small, ..options() }).unwrap();
    let at = make_page(&pool);
    for value in 1..=3000 {
        pool.word(at).store(value, Ordering::Relaxed);
        pool.flush(at, 8);
        pool.sync().unwrap();
    }
    let bytes = fs::metadata(dir.path().join("journal.entresol")).unwrap().len();
    assert!(bytes < 4 << 20, "{bytes} bytes, {:?}", pool.stats());
}

#[test]
fn two_publications_under_way_get_a_directory_entry_each() {
    let pool = Pool::volatile(&options()).unwrap();
    let (mut first, mut second) = (pool.publication(), pool.publication());
    let a = first.allocate(pool.reserve(64).unwrap());
    first.set_root("a", a).unwrap();
    let b = second.allocate(pool.reserve(64).unwrap());
    second.set_root("b", b).unwrap();
    first.publish().unwrap();
    second.publish().unwrap();
    assert_eq!((pool.root("a"), pool.root("b")), (Some(a), Some(b)));
}
