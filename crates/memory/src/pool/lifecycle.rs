//! Creating and opening pools.
//!
//! A new pool is laid out under a temporary name and renamed when it is complete, so a crash during the
//! creation leaves no partial database. Opening: lock, header, mapping, recovery of the domain. Allocation
//! maps are loaded lazily.

use super::{Files, Pool, PoolOptions, SmallPages};
use crate::allocator::Allocator;
use crate::budget::{MemoryBudget, MemoryConsumer};
#[cfg(feature = "testkit")]
use crate::crash::Observer;
#[cfg(feature = "testkit")]
use crate::domain::crashing::{CrashingDomain, Image};
use crate::domain::dax::Dax;
use crate::domain::journal::{Journal, JournalParts};
#[cfg(feature = "testkit")]
use crate::domain::modelled::ModelledDomain;
use crate::domain::{Domain, DomainChoice, DomainKind, redo};
use crate::env::{Env, OpenMode, StorageFile};
use crate::error::{Error, Result};
use crate::layout::{
    CHUNK_BYTES, DESCRIPTORS, EXTENT_BYTES_MAX, EXTENT_BYTES_MIN, FORMAT_VERSION, HEADER_CLEAN, HEADER_CRC,
    HEADER_CRC_BYTES, HEADER_EXTENT_BYTES, HEADER_EXTENTS, HEADER_JOURNAL, HEADER_MAGIC, HEADER_UUID,
    HEADER_VERSION, JOURNAL_FILE, MAGIC, POOL_FILE,
};
use crate::lock::DirectoryLock;
use crate::mapping::{Backing, Mapping};
use crate::offset::PoolOffset;
use crate::order;
use crate::placement::ThreadPlacement;
use crate::points::JOURNAL_NAME_SYNCED;
#[cfg(feature = "testkit")]
use crate::profile::Profile;
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum number of extents whose allocation maps are loaded when the pool opens: a fraction of a
/// millisecond.
const EXTENTS_READ_AT_OPEN: u64 = 4;

/// Header of the pool file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Header {
    pub(super) uuid: [u64; 2],
    pub(super) extent_bytes: u64,
    /// Extents in the file; the journal may contain more.
    pub(super) extents: u64,
    /// Clean mark in the file.
    pub(super) clean: bool,
    has_journal: bool,
}

impl Header {
    fn new(env: &Env, extent_bytes: u64) -> Header {
        let uuid = [env.random_u64(), env.random_u64()];
        Header { uuid, extent_bytes, extents: 1, clean: true, has_journal: false }
    }

    /// First 4 KiB of a pool file.
    fn encode(&self) -> [u8; 4096] {
        assert!(
            self.extents > 0 && self.extent_bytes.is_power_of_two(),
            "a pool has extents of a power of two of bytes: {self:?}"
        );
        let mut bytes = [0; 4096];
        let mut put = |offset: PoolOffset, word: u64| {
            bytes[offset.bytes() as usize..][..8].copy_from_slice(&word.to_le_bytes());
        };
        put(HEADER_MAGIC, MAGIC);
        put(HEADER_VERSION, u64::from(FORMAT_VERSION));
        put(HEADER_UUID, self.uuid[0]);
        put(HEADER_UUID.plus(8), self.uuid[1]);
        put(HEADER_EXTENT_BYTES, self.extent_bytes);
        put(HEADER_EXTENTS, self.extents);
        put(HEADER_CLEAN, u64::from(self.clean));
        let crc = crc32c::crc32c(&bytes[..HEADER_CRC_BYTES]);
        bytes[HEADER_CRC.bytes() as usize..][..8].copy_from_slice(&u64::from(crc).to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; 4096], path: &Path) -> Result<Header> {
        let word = |offset: PoolOffset| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[offset.bytes() as usize..][..8]);
            u64::from_le_bytes(word)
        };
        if word(HEADER_MAGIC) != MAGIC {
            return Err(Error::corrupt(
                path,
                HEADER_MAGIC.bytes(),
                "this is not an Entresol pool (wrong magic number)",
            ));
        }
        let version = (word(HEADER_VERSION) & 0xFFFF_FFFF) as u32;
        if version > FORMAT_VERSION {
            let file = path.to_path_buf();
            return Err(Error::NewerVersion { file, found: version, supported: FORMAT_VERSION });
        }
        let (stored, computed) = (word(HEADER_CRC), u64::from(crc32c::crc32c(&bytes[..HEADER_CRC_BYTES])));
        if stored != computed {
            let what = format!("checksum mismatch in the header: stored {stored:#x}, computed {computed:#x}");
            return Err(Error::corrupt(path, HEADER_CRC.bytes(), what));
        }
        if version < FORMAT_VERSION {
            let file = path.to_path_buf();
            return Err(Error::OlderVersion { file, found: version, supported: FORMAT_VERSION });
        }
        let extent_bytes = word(HEADER_EXTENT_BYTES);
        if !extent_bytes.is_power_of_two() || !(EXTENT_BYTES_MIN..=EXTENT_BYTES_MAX).contains(&extent_bytes) {
            return Err(Error::corrupt(
                path,
                HEADER_EXTENT_BYTES.bytes(),
                format!("extent size {extent_bytes}"),
            ));
        }
        let uuid = [word(HEADER_UUID), word(HEADER_UUID.plus(8))];
        Ok(Header {
            uuid,
            extent_bytes,
            extents: word(HEADER_EXTENTS),
            clean: word(HEADER_CLEAN) == 1,
            has_journal: word(HEADER_JOURNAL) == 1,
        })
    }

    /// Lays the header out in fresh memory.
    fn store(&self, mapping: &Mapping) {
        for (word, bytes) in mapping.words(0, 512).iter().zip(self.encode().chunks_exact(8)) {
            let mut value = [0; 8];
            value.copy_from_slice(bytes);
            word.store(u64::from_le_bytes(value), Ordering::Relaxed);
        }
    }
}

fn reserve(bytes: u64) -> Result<Mapping> {
    Mapping::reserve(bytes)
        .map_err(|e| Error::OutOfSpace { what: format!("reserve an address range of {bytes} bytes: {e}") })
}

fn mapping_failed(path: &Path, error: &std::io::Error) -> Error {
    Error::io("map", path, error)
}

impl Pool {
    /// Creates a pool in a directory (created if it is missing).
    pub fn create(dir: &Path, options: &PoolOptions) -> Result<Arc<Pool>> {
        let lock = Pool::prepare(dir, options)?;
        if options.env.files().exists(&dir.join(POOL_FILE)) {
            return Err(Error::AlreadyExists { dir: dir.to_path_buf() });
        }
        Pool::lay_out(dir, options)?;
        Pool::open_locked(dir, options, lock)
    }

    /// Opens the pool of a directory, and recovers it if it was not closed orderly.
    pub fn open(dir: &Path, options: &PoolOptions) -> Result<Arc<Pool>> {
        if !options.env.files().exists(&dir.join(POOL_FILE)) {
            return Err(Error::NotFound { dir: dir.to_path_buf() });
        }
        let lock = Pool::prepare(dir, options)?;
        Pool::open_locked(dir, options, lock)
    }

    /// Opens the pool of a directory, or creates it.
    pub fn open_or_create(dir: &Path, options: &PoolOptions) -> Result<Arc<Pool>> {
        let lock = Pool::prepare(dir, options)?;
        if !options.env.files().exists(&dir.join(POOL_FILE)) {
            Pool::lay_out(dir, options)?;
        }
        Pool::open_locked(dir, options, lock)
    }

    /// Pool in DRAM. Its memory in use is reserved in the budget of the options, in pieces of 2 MiB (less
    /// with small extents); exceeding it is [`Error::MemoryLimit`].
    pub fn volatile(options: &PoolOptions) -> Result<Arc<Pool>> {
        options.validate()?;
        let mapping = Pool::fresh_memory(options)?;
        Pool::assemble(options, Arc::new(mapping), Domain::Volatile, None, Path::new("memory"))
    }

    /// Pool in DRAM billed like the device of a profile; see [`ModelledCost`](crate::ModelledCost).
    #[cfg(feature = "testkit")]
    pub fn modelled(options: &PoolOptions, profile: &Profile) -> Result<Arc<Pool>> {
        Pool::modelled_as(options, profile, None)
    }

    /// As [`Pool::modelled`], with DRAM beside the device and behind the same caches, whose accesses
    /// [`Pool::touch_beside`] reports.
    #[cfg(feature = "testkit")]
    pub fn modelled_beside(options: &PoolOptions, profile: &Profile, dram: &Profile) -> Result<Arc<Pool>> {
        Pool::modelled_as(options, profile, Some(dram))
    }

    #[cfg(feature = "testkit")]
    fn modelled_as(options: &PoolOptions, profile: &Profile, beside: Option<&Profile>) -> Result<Arc<Pool>> {
        options.validate()?;
        let mut mapping = Pool::fresh_memory(options)?;
        let domain = Domain::Modelled(ModelledDomain::attach(profile, beside, &mut mapping));
        Pool::assemble(options, Arc::new(mapping), domain, None, Path::new("memory"))
    }

    /// Pool of the crash checker: fresh, or as a crash left it. The observer is called before every fence
    /// from the recovery on. See [`crate::crash`].
    #[cfg(feature = "testkit")]
    pub fn crashing(
        options: &PoolOptions,
        image: Option<Vec<u64>>,
        observer: Option<Observer>,
    ) -> Result<Arc<Pool>> {
        options.validate()?;
        let mut mapping = Mapping::reserve_tracked(options.address_space_bytes)
            .and_then(|mapping| {
                let bytes = image.as_ref().map_or(options.extent_bytes, |image| image.len() as u64 * 8);
                mapping.grow_zeroed(bytes).map(|()| mapping)
            })
            .map_err(|e| mapping_failed(Path::new("memory"), &e))?;
        match &image {
            None => Header::new(&options.env, options.extent_bytes).store(&mapping),
            Some(image) => {
                for (word, value) in mapping.words(0, image.len()).iter().zip(image) {
                    word.store(*value, Ordering::Relaxed);
                }
            }
        }
        let observed = observer.map(|observer| {
            let words = mapping.words(0, (mapping.mapped_bytes() / 8) as usize);
            (observer, Image::new(words.iter().map(|word| word.load(Ordering::Relaxed)).collect()))
        });
        // So far it equals the image.
        mapping.forget_touched();
        Pool::crashing_in(options, Arc::new(mapping), observed)
    }

    /// As [`Pool::crashing`], in memory that holds the image already.
    #[cfg(feature = "testkit")]
    pub(crate) fn crashing_in(
        options: &PoolOptions,
        mapping: Arc<Mapping>,
        observed: Option<(Observer, Image)>,
    ) -> Result<Arc<Pool>> {
        let domain = Domain::Crashing(Box::new(CrashingDomain::new(observed)));
        Pool::assemble(options, mapping, domain, None, Path::new("memory"))
    }

    fn fresh_memory(options: &PoolOptions) -> Result<Mapping> {
        let mapping = reserve(options.address_space_bytes)?;
        mapping
            .grow(options.extent_bytes, &Backing::Anonymous)
            .map_err(|e| mapping_failed(Path::new("memory"), &e))?;
        Header::new(&options.env, options.extent_bytes).store(&mapping);
        Ok(mapping)
    }

    fn prepare(dir: &Path, options: &PoolOptions) -> Result<DirectoryLock> {
        options.validate()?;
        if options.domain == DomainChoice::Volatile {
            return Err(Error::Invalid("a volatile pool has no directory; use Pool::volatile".to_string()));
        }
        make_directory(dir, &options.env)?;
        DirectoryLock::acquire(dir)
    }

    /// Writes a complete empty pool file under a temporary name and renames it. Leftovers of an interrupted
    /// creation are removed first; a journal is not among them, since it is created after the pool file.
    fn lay_out(dir: &Path, options: &PoolOptions) -> Result<()> {
        let path = dir.join(POOL_FILE);
        let unfinished = dir.join(format!("{POOL_FILE}.new"));
        let journal = dir.join(JOURNAL_FILE);
        let files = options.env.files();
        if files.exists(&journal) {
            let what = format!("{} is missing, but its journal exists; restore the file", path.display());
            return Err(Error::corrupt(&journal, 0, what));
        }
        match files.remove(&unfinished) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::io("remove", &unfinished, &e));
            }
            _ => {}
        }
        // The directory may have been made by a run that was killed before its entry was durable.
        sync_entry_of(dir, &options.env)?;
        let io = |e: &std::io::Error| Error::io("create", &path, e);
        let file = files.open(&unfinished, OpenMode::Create).map_err(|e| io(&e))?;
        let written = file
            .allocate(0, options.extent_bytes)
            .and_then(|()| file.write_at(&Header::new(&options.env, options.extent_bytes).encode(), 0))
            .and_then(|()| file.sync_data())
            .and_then(|()| files.rename(&unfinished, &path))
            .and_then(|()| files.sync_directory(dir));
        written.map_err(|e| {
            // Best effort: the next creation removes it as well.
            let _ = files.remove(&unfinished);
            io(&e)
        })
    }

    fn open_locked(dir: &Path, options: &PoolOptions, lock: DirectoryLock) -> Result<Arc<Pool>> {
        let path = dir.join(POOL_FILE);
        let file =
            options.env.files().open(&path, OpenMode::Open).map_err(|e| Error::io("open", &path, &e))?;
        let header = read_header(&*file, &path)?;
        let file_bytes = file.len().map_err(|e| Error::io("get the length of", &path, &e))?;
        // A truncated file is detected here; an extent beyond the count is left by a crash during growth.
        let whole_bytes = file_bytes / header.extent_bytes * header.extent_bytes;
        check_length(&path, header.extents, header.extent_bytes, whole_bytes)?;
        let file: Arc<dyn StorageFile> = Arc::from(file);
        let may_place = options.near_device && !options.env.is_simulated();
        let place = if may_place { ThreadPlacement::near_device(dir) } else { None };
        let env = options.env.clone().with_threads(place);
        let options = PoolOptions { extent_bytes: header.extent_bytes, env, ..options.clone() };
        let (mapping, domain) = open_domain(dir, &path, &options, &header, &file, whole_bytes)?;
        let files = Files { pool: file, pool_path: path.clone(), _lock: lock };
        Pool::assemble(&options, mapping, domain, Some(files), &path)
    }

    fn assemble(
        options: &PoolOptions,
        mapping: Arc<Mapping>,
        domain: Domain,
        files: Option<Files>,
        path: &Path,
    ) -> Result<Arc<Pool>> {
        let finished = redo::recover(&mapping, &domain);
        if finished > 0 {
            tracing::info!(finished, "finished publications that a crash had interrupted");
        }
        let extents = mapping.words(HEADER_EXTENTS.bytes(), 1)[0].load(Ordering::Acquire);
        check_length(path, extents, options.extent_bytes, mapping.mapped_bytes())?;
        // Huge pages suit memory best; on a disk, blocks between slabs in use are freed too.
        let granule_bytes = if matches!(domain, Domain::Journal(_)) { CHUNK_BYTES } else { 2 << 20 };
        let is_volatile = matches!(domain, Domain::Volatile);
        let counted = |memory: &Arc<MemoryBudget>| Mutex::new(memory.empty(MemoryConsumer::VolatileStates));
        let pool = Arc::new(Pool {
            was_clean: mapping.words(HEADER_CLEAN.bytes(), 1)[0].load(Ordering::Acquire) == 1,
            domain,
            mapping,
            allocator: Arc::new(Allocator::new(
                options.extent_bytes,
                extents,
                granule_bytes,
                options.memory.as_ref(),
            )),
            files,
            env: options.env.clone(),
            extent_bytes: options.extent_bytes,
            growing: Mutex::new(()),
            root_claims: Mutex::default(),
            closed: AtomicBool::new(false),
            held: options.memory.as_ref().filter(|_| is_volatile).map(counted),
            memory: options.memory.clone(),
            small_pages: SmallPages::default(),
        });
        pool.reserve_memory(extents * pool.allocator.granule_bytes())?;
        pool.verify(PoolOffset::new(0), DESCRIPTORS as usize)?;
        // The maps of a small pool are verified at open. The crash checker's are loaded lazily as those of
        // large ones.
        #[cfg(feature = "testkit")]
        let is_lazy = matches!(pool.domain, Domain::Crashing(_));
        #[cfg(not(feature = "testkit"))]
        let is_lazy = false;
        if extents <= EXTENTS_READ_AT_OPEN && !is_lazy {
            pool.read_maps()?;
        }
        pool.begin_changes();
        Ok(pool)
    }
}

/// Creates the directory, with a name that survives a power failure: its commits must not be lost with an
/// entry of the directory above.
fn make_directory(dir: &Path, env: &Env) -> Result<()> {
    let missing = dir.ancestors().take_while(|path| !path.as_os_str().is_empty() && !path.exists());
    let made: Vec<&Path> = missing.collect();
    env.files().create_directory(dir).map_err(|e| Error::io("create directory", dir, &e))?;
    made.iter().try_for_each(|path| sync_entry_of(path, env))
}

/// Makes a directory's entry in the one above durable.
fn sync_entry_of(dir: &Path, env: &Env) -> Result<()> {
    // Above a single relative name is the current directory; above the root there is nothing.
    let Some(above) = dir.parent() else { return Ok(()) };
    let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
    env.files().sync_directory(above).map_err(|e| Error::io("sync directory", above, &e))
}

pub(super) fn read_header(file: &dyn StorageFile, path: &Path) -> Result<Header> {
    let mut bytes = [0; 4096];
    file.read_at(&mut bytes, 0)
        .map_err(|e| Error::read(path, 0, &e, "the file is shorter than a pool's header"))?;
    Header::decode(&bytes, path)
}

fn check_length(path: &Path, extents: u64, extent_bytes: u64, have_bytes: u64) -> Result<()> {
    let need = extents.saturating_mul(extent_bytes);
    if extents == 0 || need > have_bytes {
        let what = format!("the pool has {extents} extents ({need} bytes), the file holds {have_bytes}");
        return Err(Error::corrupt(path, HEADER_EXTENTS.bytes(), what));
    }
    Ok(())
}

/// Returns true if every pool without a budget is to have one in which nothing fits: so all tests show that
/// pages may be evicted at any time. Only in builds for tests.
pub(crate) fn is_short_memory_requested() -> bool {
    cfg!(debug_assertions) && std::env::var_os("ENTRESOL_SHORT_MEMORY").is_some()
}

fn short_memory() -> Option<Arc<MemoryBudget>> {
    is_short_memory_requested().then(|| MemoryBudget::tiny(1 << 20))
}

/// Maps the file and starts the requested domain, or the best available one.
fn open_domain(
    dir: &Path,
    path: &Path,
    options: &PoolOptions,
    header: &Header,
    file: &Arc<dyn StorageFile>,
    bytes: u64,
) -> Result<(Arc<Mapping>, Domain)> {
    let journal_path = dir.join(JOURNAL_FILE);
    let address_space_bytes = options.address_space_bytes.max(bytes);
    // A journal beside the pool may hold changes that the pool file lacks: it is always read.
    let has_journal = options.env.files().exists(&journal_path);
    if header.has_journal && !has_journal {
        let what = "the pool needs its journal, but the file is missing; restore the file or a backup";
        return Err(Error::corrupt(&journal_path, 0, what));
    }
    let may_dax = matches!(options.domain, DomainChoice::Auto | DomainChoice::Dax) && !has_journal;
    if may_dax && let Some(dax) = Dax::detect(DomainKind::Dax, options.flush, file.descriptor()) {
        let mapping = reserve(address_space_bytes)?;
        match mapping.grow(bytes, &Backing::SharedSync(file.descriptor())) {
            Ok(()) => return Ok((Arc::new(mapping), Domain::Dax(dax))),
            Err(e) if options.domain == DomainChoice::Dax => return Err(mapping_failed(path, &e)),
            Err(_) => {}
        }
    }
    if options.domain == DomainChoice::Dax || (options.domain == DomainChoice::DaxEmulated && has_journal) {
        let why = if has_journal { "its journal must be used" } else { "this machine cannot flush lines" };
        return Err(Error::Unsupported(format!("{} cannot be opened as dax: {why}", path.display())));
    }
    let mapping = Arc::new(reserve(address_space_bytes)?);
    if options.domain == DomainChoice::DaxEmulated {
        let dax =
            Dax::detect(DomainKind::DaxEmulated, options.flush, file.descriptor()).ok_or_else(|| {
                Error::Unsupported("this processor has no cache-line flush that Entresol knows".to_string())
            })?;
        mapping.grow(bytes, &Backing::Shared(file.descriptor())).map_err(|e| mapping_failed(path, &e))?;
        return Ok((mapping, Domain::Dax(dax)));
    }
    mapping.grow(bytes, &Backing::Private(file.descriptor())).map_err(|e| mapping_failed(path, &e))?;
    // Header and root directory are read next.
    mapping.read_ahead(0, CHUNK_BYTES);
    let parts = JournalParts {
        mapping: mapping.clone(),
        pool_file: file.clone(),
        pool_path: path.to_path_buf(),
        options: options.journal.clone(),
        memory: options.memory.clone().or_else(short_memory),
        extent_bytes: header.extent_bytes,
    };
    let journal = if has_journal {
        Journal::open(parts, &journal_path, header.uuid, &options.env)?
    } else {
        Journal::create(parts, &journal_path, header.uuid, &options.env)?
    };
    if !header.has_journal {
        // From here on the pool file alone is not the complete pool.
        let files = options.env.files();
        let named = order::step(JOURNAL_NAME_SYNCED, || files.sync_directory(dir));
        let marked = named
            .and_then(|()| file.write_at(&1u64.to_le_bytes(), HEADER_JOURNAL.bytes()))
            .and_then(|()| file.sync_data());
        marked.map_err(|e| Error::io("write the header of", path, &e))?;
        mapping.words(HEADER_JOURNAL.bytes(), 1)[0].store(1, Ordering::Release);
    }
    Ok((mapping, Domain::Journal(journal)))
}
