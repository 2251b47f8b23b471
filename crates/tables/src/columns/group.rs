//! Row groups: up to [`GROUP_ROWS`] rows in key order, as one column page per column and a summary.
//!
//! A row group is a few entries of the table's column state, whose keys are, big-endian:
//!
//! | bytes | what |
//! | --- | --- |
//! | 1 | kind of entry: 0 directory, 1 deleted rows, 2 summary, 3 column page, 4 object of a removed row group |
//! | 4 | number of the row group; it is never used again |
//! | 2 | column id of a page, else 0; of an Elf 32,768 and its number |
//! | 1 | of an Elf 1 and the number of its piece, else 0 |
//!
//! Pages and summaries are written once; the directory entry and the deleted rows change with merges. Which row
//! groups a transaction sees is what it sees of the directory: the others belong to what it sees there.
//!
//! The pages of a row group may be an object in an object store ([`crate::columns::objects`]): then its summary names that,
//! and its directory entry has the code of the store.

use crate::columns::objects::GroupObject;
use crate::columns::page::{BLOCK_ROWS, ColumnPage, PageKind};
use crate::schema::parts::Reader;
use entresol_structures::{KeyBytes, KeyWidth};
use entresol_transactions::KeyRange;
use std::ops::Bound;

/// Maximum number of rows of a row group.
pub(crate) const GROUP_ROWS: usize = 16 * BLOCK_ROWS;
/// Width of the keys of a column state.
pub(crate) const KEY_WIDTH: KeyWidth = KeyWidth::Eight;

const FORMAT: u8 = 1;
/// Format of a directory entry with a range of cluster keys.
const FORMAT_CLUSTERED: u8 = 2;
/// Format of a directory entry with the dimensions that an Elf holds.
const FORMAT_ELF: u8 = 3;
/// Format of a summary of a row group whose pages are an object.
const FORMAT_OBJECT: u8 = 2;
/// Mark on the format of a directory entry with the code of an object store.
const IN_STORE: u8 = 0x80;
/// Mark on the kind of a summary of a column whose values are in an Elf.
const IN_ELF: u8 = 0x80;

/// Kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryKind {
    Directory,
    Deleted,
    Summary,
    Page {
        column: u16,
    },
    /// Piece of an Elf, among the pages.
    Elf {
        number: u16,
        piece: u8,
    },
    /// Scheme of a clustering of a version of 24 bits, as a summary of the row group 0, which there is not.
    Scheme {
        version: u32,
    },
    /// Object of a row group that was removed, as long as the object is there.
    Removed,
}

/// Column id in the key of the Elf with the number 0.
const ELF_COLUMN: u16 = 1 << 15;

impl EntryKind {
    /// Greatest number of an Elf: that of the one that holds the rows in the layout `elf`.
    pub(crate) const ELVES_MAX: u16 = 8191;

    fn code(self) -> u8 {
        match self {
            EntryKind::Directory => 0,
            EntryKind::Deleted => 1,
            EntryKind::Summary | EntryKind::Scheme { .. } => 2,
            EntryKind::Page { .. } | EntryKind::Elf { .. } => 3,
            EntryKind::Removed => 4,
        }
    }

    /// Key of the entry of a row group.
    pub(crate) fn key(self, group: u32) -> [u8; 8] {
        debug_assert!(
            match self {
                EntryKind::Elf { number, piece } => number <= EntryKind::ELVES_MAX && piece < u8::MAX,
                EntryKind::Scheme { version } => version < 1 << 24,
                _ => true,
            },
            "{self:?} has a key of its own"
        );
        let (column, last) = match self {
            EntryKind::Page { column } => (column, 0),
            EntryKind::Elf { number, piece } => (ELF_COLUMN + number, piece + 1),
            EntryKind::Scheme { version } => ((version >> 8) as u16, version as u8),
            _ => (0, 0),
        };
        let mut key = [0; 8];
        key[0] = self.code();
        key[1..5].copy_from_slice(&group.to_be_bytes());
        key[5..7].copy_from_slice(&column.to_be_bytes());
        key[7] = last;
        key
    }
}

/// Number of the row group of an entry.
pub(crate) fn group_of(key: &[u8]) -> u32 {
    key.get(1..5).map_or(0, |bytes| u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

/// Number of the Elf of the entry of a piece.
pub(crate) fn elf_of(key: &[u8]) -> Option<u16> {
    let page = EntryKind::Page { column: 0 }.code();
    let &[kind, .., high, low, last] = key else { return None };
    (kind == page && last > 0).then(|| u16::from_be_bytes([high, low]).wrapping_sub(ELF_COLUMN))
}

/// Keys of the Elfs of a row group, those of some pages perhaps among them.
pub(crate) fn elf_range(group: u32) -> KeyRange {
    let first = EntryKind::Elf { number: 0, piece: 0 }.key(group);
    let end = EntryKind::Elf { number: EntryKind::ELVES_MAX, piece: u8::MAX - 1 }.key(group);
    let [first, end] = [first, end].map(|key| KeyBytes::from_slice(&key));
    KeyRange { lower: Bound::Included(first), upper: Bound::Included(end) }
}

/// Keys of the schemes.
pub(crate) fn scheme_range() -> KeyRange {
    let [first, end] = [0, (1 << 24) - 1].map(|version| EntryKind::Scheme { version }.key(0));
    let [first, end] = [first, end].map(|key| KeyBytes::from_slice(&key));
    KeyRange { lower: Bound::Included(first), upper: Bound::Included(end) }
}

/// Keys of the summaries of row groups.
pub(crate) fn summary_range() -> KeyRange {
    let (first, end) = (EntryKind::Summary.key(1), EntryKind::Page { column: 0 }.key(0));
    let [first, end] = [first, end].map(|key| KeyBytes::from_slice(&key));
    KeyRange { lower: Bound::Included(first), upper: Bound::Excluded(end) }
}

/// Keys of the objects of removed row groups.
pub(crate) fn removed_range() -> KeyRange {
    let first = KeyBytes::from_slice(&EntryKind::Removed.key(0));
    KeyRange { lower: Bound::Included(first), upper: Bound::Unbounded }
}

/// Version of the scheme of an entry.
pub(crate) fn scheme_of(key: &[u8]) -> u32 {
    key.get(5..8).map_or(0, |bytes| u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]))
}

/// Keys of the directory.
pub(crate) fn directory_range() -> KeyRange {
    let end = EntryKind::Deleted.key(0);
    KeyRange { lower: Bound::Unbounded, upper: Bound::Excluded(KeyBytes::from_slice(&end)) }
}

/// Cluster keys of the rows of a row group, by the scheme of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClusterRange {
    pub(crate) scheme: u32,
    pub(crate) least: u64,
    pub(crate) greatest: u64,
}

/// Entry of a row group in the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RowGroup {
    pub(crate) number: u32,
    pub(crate) rows: u32,
    /// Rows that were deleted or replaced, as of the last merge.
    pub(crate) deleted: u32,
    /// Bytes of its pages, those of dimensions as they are in the cache among them.
    pub(crate) bytes: u64,
    /// Encoded key of the first and of the last row.
    pub(crate) first: KeyBytes,
    pub(crate) last: KeyBytes,
    /// Of a block of the layout `clustered`, whose rows are in the order of their cluster keys; its first and last key
    /// are the least and the greatest one.
    pub(crate) cluster: Option<ClusterRange>,
    /// Ids of the columns that its Elf holds in place of pages, in the order of its levels; none but in the layout
    /// `elf`.
    pub(crate) dimensions: Vec<u16>,
    /// Code of the object store that has its pages ([`store_code`]); 0: the pool.
    pub(crate) store: u32,
}

/// Code of an object store, by its URL, which tells whether a row group is where its table wants it; never 0.
pub(crate) fn store_code(url: &str) -> u32 {
    crc32c::crc32c(url.as_bytes()).max(1)
}

impl RowGroup {
    pub(crate) fn live_rows(&self) -> u64 {
        u64::from(self.rows - self.deleted)
    }

    /// Tells whether a key lies between its first and its last one.
    pub(crate) fn spans(&self, key: &[u8]) -> bool {
        &self.first[..] <= key && key <= &self.last[..]
    }

    /// Returns true if its numbers are those of a row group.
    fn is_sound(&self) -> bool {
        self.rows > 0
            && self.rows as usize <= GROUP_ROWS
            && self.deleted <= self.rows
            && self.first <= self.last
            && self.cluster.is_none_or(|cluster| cluster.least <= cluster.greatest)
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        assert!(self.is_sound(), "an entry that is written can be read: {self:?}");
        assert!(
            (self.cluster.is_none() || self.dimensions.is_empty()) && self.dimensions.len() <= 255,
            "an entry has a range of cluster keys or dimensions: {self:?}"
        );
        let mut bytes = vec![match (&self.cluster, &self.dimensions[..]) {
            (Some(_), _) => FORMAT_CLUSTERED,
            (None, []) => FORMAT,
            (None, _) => FORMAT_ELF,
        }];
        bytes.extend_from_slice(&self.rows.to_le_bytes());
        bytes.extend_from_slice(&self.deleted.to_le_bytes());
        bytes.extend_from_slice(&self.bytes.to_le_bytes());
        put_key(&mut bytes, &self.first);
        put_key(&mut bytes, &self.last);
        if let Some(cluster) = &self.cluster {
            bytes.extend_from_slice(&cluster.scheme.to_le_bytes());
            bytes.extend_from_slice(&cluster.least.to_le_bytes());
            bytes.extend_from_slice(&cluster.greatest.to_le_bytes());
        } else if !self.dimensions.is_empty() {
            bytes.push(self.dimensions.len() as u8);
            self.dimensions.iter().for_each(|column| bytes.extend_from_slice(&column.to_le_bytes()));
        }
        if self.store != 0 {
            bytes[0] |= IN_STORE;
            bytes.extend_from_slice(&self.store.to_le_bytes());
        }
        bytes
    }

    /// Decodes a directory entry; none if it is damaged.
    pub(crate) fn from_bytes(number: u32, bytes: &[u8]) -> Option<RowGroup> {
        let mut reader = Reader(bytes);
        let byte = reader.byte()?;
        let (format, is_in_store) = (byte & !IN_STORE, byte & IN_STORE != 0);
        matches!(format, FORMAT | FORMAT_CLUSTERED | FORMAT_ELF).then_some(())?;
        let (rows, deleted) = (reader.number()?, reader.number()?);
        let low = reader.number()?;
        let bytes = u64::from(low) | u64::from(reader.number()?) << 32;
        let (first, last) = (take_key(&mut reader)?, take_key(&mut reader)?);
        let (mut cluster, mut dimensions) = (None, Vec::new());
        if format == FORMAT_CLUSTERED {
            let scheme = reader.number()?;
            let mut long = || Some(u64::from_le_bytes(reader.take(8)?.try_into().ok()?));
            let (least, greatest) = (long()?, long()?);
            cluster = Some(ClusterRange { scheme, least, greatest });
        }
        if format == FORMAT_ELF {
            let count = reader.byte()?;
            dimensions = (0..count).map(|_| Some(reader.short()? as u16)).collect::<Option<_>>()?;
            (count > 0).then_some(())?;
        }
        let store = if is_in_store { reader.number().filter(|code| *code != 0)? } else { 0 };
        let found = RowGroup { number, rows, deleted, bytes, first, last, cluster, dimensions, store };
        found.is_sound().then_some(found)
    }
}

fn put_key(bytes: &mut Vec<u8>, key: &[u8]) {
    assert!(u16::try_from(key.len()).is_ok(), "the length of a key has 16 bits: {} bytes", key.len());
    bytes.extend_from_slice(&(key.len() as u16).to_le_bytes());
    bytes.extend_from_slice(key);
}

fn take_key(reader: &mut Reader<'_>) -> Option<KeyBytes> {
    let length = reader.short()?;
    Some(KeyBytes::from_slice(reader.take(length)?))
}

/// Meaning of the least and the greatest encoded value of a column of a row group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SummaryKind {
    /// Values of different pages do not compare.
    Opaque = 0,
    /// Integers that compare as the column's values do.
    Integers = 1,
    /// Doubles as ordered bits.
    Doubles = 2,
}

impl SummaryKind {
    fn of(page: PageKind) -> SummaryKind {
        match page {
            PageKind::Integers => SummaryKind::Integers,
            PageKind::Doubles(_) => SummaryKind::Doubles,
            _ => SummaryKind::Opaque,
        }
    }

    fn of_byte(byte: u8) -> SummaryKind {
        match byte {
            1 => SummaryKind::Integers,
            2 => SummaryKind::Doubles,
            _ => SummaryKind::Opaque,
        }
    }
}

/// Least and greatest encoded value of a column of a row group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ColumnSummary {
    pub(crate) column: u16,
    pub(crate) kind: SummaryKind,
    pub(crate) least: i64,
    pub(crate) greatest: i64,
    pub(crate) nulls: u32,
    /// Bytes of its page, stored or not.
    pub(crate) bytes: u32,
    /// True if the Elf of the row group holds its values, and its page is made of that.
    pub(crate) is_in_elf: bool,
}

impl ColumnSummary {
    pub(crate) fn of(column: u16, page: &ColumnPage, bytes: usize) -> ColumnSummary {
        let blocks = page.blocks();
        ColumnSummary {
            column,
            kind: SummaryKind::of(page.kind()),
            least: blocks.iter().map(|block| block.least).min().unwrap_or(i64::MIN),
            greatest: blocks.iter().map(|block| block.greatest).max().unwrap_or(i64::MAX),
            nulls: blocks.iter().map(|block| block.nulls as u32).sum(),
            bytes: bytes as u32,
            is_in_elf: false,
        }
    }
}

/// Summary of a row group: of its columns, and the first key of each block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GroupSummary {
    pub(crate) columns: Vec<ColumnSummary>,
    pub(crate) block_keys: Vec<KeyBytes>,
    /// Object that has the pages; none: they are beside the summary.
    pub(crate) object: Option<GroupObject>,
}

impl GroupSummary {
    /// Summary of a column, if rows of the group have it.
    pub(crate) fn column(&self, column: u16) -> Option<&ColumnSummary> {
        self.columns.iter().find(|known| known.column == column)
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let of_object = self.object.as_ref().map_or(0, GroupObject::memory_bytes);
        let of_columns = self.columns.len() * size_of::<ColumnSummary>();
        of_columns + self.block_keys.len() * size_of::<KeyBytes>() + of_object
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        assert!(u16::try_from(self.columns.len()).is_ok(), "a summary has {} columns", self.columns.len());
        let pages = self.columns.iter().filter(|column| !column.is_in_elf).count();
        assert!(
            self.object.as_ref().is_none_or(|object| object.checksums.len() == pages),
            "an object has the checksum of each of {pages} pages"
        );
        let mut bytes = vec![if self.object.is_some() { FORMAT_OBJECT } else { FORMAT }];
        bytes.extend_from_slice(&(self.columns.len() as u16).to_le_bytes());
        for column in &self.columns {
            bytes.extend_from_slice(&column.column.to_le_bytes());
            bytes.push(column.kind as u8 | if column.is_in_elf { IN_ELF } else { 0 });
            bytes.extend_from_slice(&column.least.to_le_bytes());
            bytes.extend_from_slice(&column.greatest.to_le_bytes());
            bytes.extend_from_slice(&column.nulls.to_le_bytes());
            bytes.extend_from_slice(&column.bytes.to_le_bytes());
        }
        self.object.iter().for_each(|object| object.put(&mut bytes));
        self.block_keys.iter().for_each(|key| put_key(&mut bytes, key));
        let checksum = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Decodes a summary; none if it is damaged.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<GroupSummary> {
        let (content, checksum) = bytes.split_last_chunk::<4>()?;
        (crc32c::crc32c(content) == u32::from_le_bytes(*checksum)).then_some(())?;
        let mut reader = Reader(content);
        let format = reader.byte()?;
        matches!(format, FORMAT | FORMAT_OBJECT).then_some(())?;
        let mut columns = Vec::new();
        for _ in 0..reader.short()? {
            let (column, byte) = (reader.short()? as u16, reader.byte()?);
            let (kind, is_in_elf) = (SummaryKind::of_byte(byte & !IN_ELF), byte & IN_ELF != 0);
            let mut long = || {
                let bytes: [u8; 8] = reader.take(8)?.try_into().ok()?;
                Some(i64::from_le_bytes(bytes))
            };
            let (least, greatest) = (long()?, long()?);
            let (nulls, bytes) = (reader.number()?, reader.number()?);
            columns.push(ColumnSummary { column, kind, least, greatest, nulls, bytes, is_in_elf });
        }
        let mut object = None;
        if format == FORMAT_OBJECT {
            let named = GroupObject::from_reader(&mut reader)?;
            let pages = columns.iter().filter(|column| !column.is_in_elf).count();
            object = Some(named).filter(|named| named.checksums.len() == pages);
            object.as_ref()?;
        }
        let mut block_keys = Vec::new();
        while !reader.0.is_empty() {
            block_keys.push(take_key(&mut reader)?);
        }
        Some(GroupSummary { columns, block_keys, object })
    }
}

/// Set of rows of a row group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RowSet {
    words: Vec<u32>,
    len: usize,
}

impl RowSet {
    /// Empty set for a group of so many rows.
    pub(crate) fn new(rows: usize) -> RowSet {
        RowSet { words: vec![0; rows.div_ceil(32)], len: 0 }
    }

    /// Adds a row; false if it was there.
    pub(crate) fn insert(&mut self, row: usize) -> bool {
        let bit = 1 << (row % 32);
        let added = self.words[row / 32] & bit == 0;
        self.words[row / 32] |= bit;
        self.len += usize::from(added);
        added
    }

    #[inline]
    pub(crate) fn contains(&self, row: usize) -> bool {
        self.words[row / 32] >> (row % 32) & 1 == 1
    }

    /// Number of rows.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Tells whether a block has rows of the set.
    pub(crate) fn is_in_block(&self, block: usize) -> bool {
        let first = block * BLOCK_ROWS / 32;
        let end = (first + BLOCK_ROWS / 32).min(self.words.len());
        self.words[first..end].iter().any(|word| *word != 0)
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        debug_assert_eq!(
            self.words.iter().map(|word| word.count_ones() as usize).sum::<usize>(),
            self.len,
            "the rows of a set are counted"
        );
        let mut bytes: Vec<u8> = self.words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let checksum = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Decodes the set of a group of so many rows; none if it is damaged.
    pub(crate) fn from_bytes(rows: usize, bytes: &[u8]) -> Option<RowSet> {
        let (content, checksum) = bytes.split_last_chunk::<4>()?;
        let (chunks, []) = content.as_chunks::<4>() else { return None };
        let sound =
            crc32c::crc32c(content) == u32::from_le_bytes(*checksum) && chunks.len() == rows.div_ceil(32);
        let words: Vec<u32> = chunks.iter().map(|word| u32::from_le_bytes(*word)).collect();
        let len = words.iter().map(|word| word.count_ones() as usize).sum();
        sound.then_some(RowSet { words, len })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::objects::name::{Identity, ObjectName, ObjectNumber};

    #[test]
    fn entries_are_read_as_they_were_written_and_damage_is_seen() {
        let key = |bytes: &[u8]| KeyBytes::from_slice(bytes);
        let group = RowGroup {
            number: 7,
            rows: 9000,
            deleted: 3,
            bytes: 1 << 33,
            first: key(b"a"),
            last: key(b"ab"),
            cluster: None,
            dimensions: Vec::new(),
            store: 0,
        };
        assert_eq!(RowGroup::from_bytes(7, &group.to_bytes()), Some(group.clone()));
        let cluster = Some(ClusterRange { scheme: 3, least: 7, greatest: u64::MAX });
        let clustered = RowGroup { cluster, ..group.clone() };
        assert_eq!(RowGroup::from_bytes(7, &clustered.to_bytes()), Some(clustered.clone()));
        let of_elf = RowGroup { dimensions: vec![3, 0, 700], ..group.clone() };
        assert_eq!(RowGroup::from_bytes(7, &of_elf.to_bytes()), Some(of_elf.clone()));
        for other in [&group, &clustered, &of_elf] {
            let in_store = RowGroup { store: store_code("file:///data"), ..other.clone() };
            assert_eq!(RowGroup::from_bytes(7, &in_store.to_bytes()), Some(in_store.clone()));
            assert_eq!(RowGroup::from_bytes(7, &in_store.to_bytes()[..in_store.to_bytes().len() - 1]), None);
        }
        for other in [clustered, of_elf] {
            let without = &other.to_bytes()[..group.to_bytes().len()];
            assert_eq!(RowGroup::from_bytes(7, without), None);
        }
        let column = ColumnSummary {
            column: 3,
            kind: SummaryKind::Doubles,
            least: -1,
            greatest: 9,
            nulls: 1,
            bytes: 77,
            is_in_elf: false,
        };
        let in_elf = ColumnSummary { column: 4, is_in_elf: true, ..column };
        let name = ObjectName { identity: Identity(7 << 90), number: ObjectNumber::new(3, 9), nonce: 7 };
        let object = GroupObject { store: "file:///data".to_owned(), name, checksums: vec![17] };
        let block_keys = vec![key(b"a"), key(b"")];
        let summary = GroupSummary { columns: vec![column, in_elf], block_keys, object: Some(object) };
        assert_eq!(GroupSummary::from_bytes(&summary.to_bytes()), Some(summary.clone()));
        let summary = GroupSummary { object: None, ..summary };
        let bytes = summary.to_bytes();
        assert_eq!(GroupSummary::from_bytes(&bytes), Some(summary));
        let mut deleted = RowSet::new(9000);
        assert!(deleted.insert(8999) && deleted.insert(31) && !deleted.insert(31));
        assert!(deleted.is_in_block(1) && deleted.contains(31) && !deleted.contains(32));
        assert_eq!(RowSet::from_bytes(9000, &deleted.to_bytes()), Some(deleted.clone()));
        assert_eq!(RowSet::from_bytes(9500, &deleted.to_bytes()), None);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 4;
            assert_eq!(GroupSummary::from_bytes(&damaged), None, "byte {at}");
            assert_eq!(GroupSummary::from_bytes(&bytes[..at]), None, "cut at {at}");
        }
    }

    #[test]
    fn the_directory_comes_first_and_numbers_ascend() {
        let range = directory_range();
        let Bound::Excluded(end) = &range.upper else { panic!("a bound") };
        assert!(EntryKind::Directory.key(u32::MAX)[..] < end[..]);
        assert!(EntryKind::Deleted.key(0)[..] >= end[..]);
        assert!(EntryKind::Directory.key(9) < EntryKind::Directory.key(10));
        assert_eq!(group_of(&EntryKind::Page { column: 5 }.key(77)), 77);
        let elf = EntryKind::Elf { number: 5, piece: 254 }.key(77);
        assert_eq!((group_of(&elf), elf_of(&elf)), (77, Some(5)));
        let page = EntryKind::Page { column: u16::MAX }.key(77);
        assert_eq!(elf_of(&page), None);
        let scheme = EntryKind::Scheme { version: 0x01_0203 }.key(0);
        assert!(scheme_range().contains(&scheme) && !scheme_range().contains(&EntryKind::Summary.key(1)));
        assert_eq!((scheme_of(&scheme), group_of(&scheme)), (0x01_0203, 0));
        let greatest = EntryKind::Elf { number: EntryKind::ELVES_MAX, piece: 254 }.key(77);
        assert!(elf_range(77).contains(&elf) && elf_range(77).contains(&greatest));
        assert!(summary_range().contains(&EntryKind::Summary.key(1)) && !summary_range().contains(&scheme));
        assert!(removed_range().contains(&EntryKind::Removed.key(1)) && !removed_range().contains(&page));
        assert!(greatest < page && !elf_range(77).contains(&page) && !elf_range(78).contains(&elf));
    }
}
