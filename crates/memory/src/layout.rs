//! Layout of a pool file. All numbers little-endian, all words 8 bytes.
//!
//! The file is a row of extents of equal size (a power of two, 256 KiB to 16 MiB), each divided into chunks
//! of 64 KiB. The first chunk of every extent describes the others:
//!
//! ```text
//! byte in extent   what
//! 0                pool header, 4 KiB (extent 0 only; zero elsewhere)
//! 4096             root directory, 64 entries of 64 bytes (extent 0 only)
//! 8192             redo lanes, 8 of 1,536 bytes (extent 0 only)
//! 20480            chunk descriptors, 256 words
//! 22528            slab bitmaps, 256 of 128 bytes
//! 55296            unused
//! 65536            chunk 1, chunk 2, ...
//!
//! header word   what
//! 0             magic "ENTRESOL"
//! 1             format version
//! 2, 3          UUID of the pool
//! 4             bytes of an extent
//! 5             CRC-32C of words 0 to 4
//! 8             extents in use            (changes; published after the file has grown)
//! 9             1 if closed in order      (changes)
//! 10            1 once the pool has a journal, without which it must not be opened
//!
//! root entry word   what
//! 0                 offset of the root object; 0: entry free
//! 1                 bytes of the name
//! 2..8              the name, zero padded
//!
//! chunk descriptor   what
//! 0                  free (or inside a large object, see its head)
//! kind 1 | class     slab of objects of one size class; its bitmap has a bit for each allocated one
//! kind 2 | n         head of a large object of n chunks
//! ```

use crate::offset::PoolOffset;

/// "ENTRESOL" read as a little-endian word.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"ENTRESOL");
/// Format version that this release writes and reads.
pub(crate) const FORMAT_VERSION: u32 = 2;

/// The pool file's name in the database directory.
pub(crate) const POOL_FILE: &str = "pool.entresol";
/// The journal's name in the database directory.
pub(crate) const JOURNAL_FILE: &str = "journal.entresol";
/// The name of the file of the pool file's checksums in the database directory.
pub(crate) const CHECKSUMS_FILE: &str = "checksums.entresol";
/// The lock file's name in the database directory.
pub(crate) const LOCK_FILE: &str = "lock.entresol";

/// Bytes of a chunk, the unit that the allocator hands to size classes.
pub(crate) const CHUNK_BYTES: u64 = 64 * 1024;
/// The largest extent: as many chunks as the descriptor area of an extent can describe.
pub const EXTENT_BYTES_MAX: u64 = 256 * CHUNK_BYTES;
/// The smallest extent.
pub const EXTENT_BYTES_MIN: u64 = 4 * CHUNK_BYTES;

pub(crate) const HEADER_MAGIC: PoolOffset = PoolOffset::new(0);
pub(crate) const HEADER_VERSION: PoolOffset = PoolOffset::new(8);
pub(crate) const HEADER_UUID: PoolOffset = PoolOffset::new(16);
pub(crate) const HEADER_EXTENT_BYTES: PoolOffset = PoolOffset::new(32);
pub(crate) const HEADER_CRC: PoolOffset = PoolOffset::new(40);
/// Bytes that the header's CRC covers.
pub(crate) const HEADER_CRC_BYTES: usize = 40;
pub(crate) const HEADER_EXTENTS: PoolOffset = PoolOffset::new(64);
pub(crate) const HEADER_CLEAN: PoolOffset = PoolOffset::new(72);
pub(crate) const HEADER_JOURNAL: PoolOffset = PoolOffset::new(80);

pub(crate) const ROOT_DIRECTORY: PoolOffset = PoolOffset::new(4096);
/// Maximum number of root objects of a pool.
pub const ROOTS_MAX: usize = 64;
pub(crate) const ROOT_ENTRY_BYTES: u64 = 64;
/// Maximum bytes of the name of a root object.
pub const ROOT_NAME_BYTES_MAX: usize = 48;

pub(crate) const REDO_LANES: PoolOffset = PoolOffset::new(8192);
pub(crate) const REDO_LANES_COUNT: usize = 8;
pub(crate) const REDO_LANE_BYTES: u64 = 1536;

pub(crate) const DESCRIPTORS: u64 = 20_480;
pub(crate) const BITMAPS: u64 = 22_528;
pub(crate) const BITMAP_BYTES: u64 = 128;
/// End of the chunk descriptors and bitmaps of an extent.
pub(crate) const MAPS_END: u64 = BITMAPS + EXTENT_BYTES_MAX / CHUNK_BYTES * BITMAP_BYTES;
/// Words of one slab bitmap: a 64 KiB chunk holds at most 1,024 objects of 64 bytes.
pub(crate) const BITMAP_WORDS: usize = 16;

const _: () = {
    let chunks = EXTENT_BYTES_MAX / CHUNK_BYTES;
    assert!(ROOT_DIRECTORY.block(ROOTS_MAX as u64, ROOT_ENTRY_BYTES).bytes() == REDO_LANES.bytes());
    assert!(REDO_LANES.block(REDO_LANES_COUNT as u64, REDO_LANE_BYTES).bytes() == DESCRIPTORS);
    assert!(DESCRIPTORS + chunks * 8 == BITMAPS);
    assert!(MAPS_END == BITMAPS + chunks * BITMAP_BYTES && MAPS_END <= CHUNK_BYTES);
    assert!(BITMAP_WORDS as u64 * 8 == BITMAP_BYTES);
    assert!(ROOT_NAME_BYTES_MAX as u64 + 16 == ROOT_ENTRY_BYTES);
};
