//! Sources of column pages: the pool, through its mapping or past it, and objects.
//!
//! The summary of the row group says which one. Whatever the source, a page is checked, counted by the meter of its kind
//! of storage, and put into the one cache of column pages.

use crate::columns::group::{EntryKind, GroupSummary};
use crate::columns::objects::GroupObject;
use crate::columns::objects::client::ObjectRead;
use crate::columns::page::ColumnPage;
use crate::columns::store::ColumnStore;
use crate::error::{Error, Result};
use bytes::Bytes;
use entresol_transactions::Transaction;
use std::ops::Range;

impl ColumnStore {
    /// Reads pages of a row group from where they are.
    pub(crate) fn read_pages(
        &self,
        tx: &Transaction,
        (group, summary): (u32, &GroupSummary),
        columns: &[u16],
    ) -> Result<Vec<ColumnPage>> {
        match &summary.object {
            Some(object) => self.read_object(tx, (group, summary), object, columns),
            None => columns.iter().map(|column| self.read_from_pool(tx, group, *column)).collect(),
        }
    }

    /// Reads a page from the pool. One that is on the disk only is read from there, past the pool's own pages: it goes into
    /// the cache of column pages.
    fn read_from_pool(&self, tx: &Transaction, group: u32, column: u16) -> Result<ColumnPage> {
        let key = EntryKind::Page { column }.key(group);
        let damaged = || self.damaged(group, &format!("the page of column {column} is damaged"));
        let direct = tx.read_in_place(self.state(), &[key], |pool, places| {
            places
                .first()
                .map_or(Ok(None), |place| pool.read_direct(place.offset, place.bytes, ColumnPage::open))
        });
        if let Some(page) = direct?.transpose()?.flatten() {
            return page.ok_or_else(damaged);
        }
        tx.read(self.state(), &key, ColumnPage::open)?.flatten().ok_or_else(damaged)
    }

    /// Reads pages from the object of a row group, by one request if they lie near each other.
    fn read_object(
        &self,
        tx: &Transaction,
        (group, summary): (u32, &GroupSummary),
        object: &GroupObject,
        columns: &[u16],
    ) -> Result<Vec<ColumnPage>> {
        let places: Vec<ObjectPlace> = columns
            .iter()
            .map(|column| {
                let place = summary.place_in_object(object, *column);
                place
                    .ok_or_else(|| self.damaged(group, &format!("its object has no page of column {column}")))
            })
            .collect::<Result<_>>()?;
        let ranges = places.iter().map(|place| place.range.clone()).collect();
        let read = match self.cache().objects().read(tx, object, ranges)? {
            ObjectRead::Bytes(read) => read,
            ObjectRead::Missing => return Err(self.damaged_object(group, object, "is missing")),
            ObjectRead::Short(bytes) => {
                let what = format!("has {bytes} bytes of {}", summary.object_bytes());
                return Err(self.damaged_object(group, object, &what));
            }
        };
        let page = |((bytes, place), column): ((Bytes, &ObjectPlace), &u16)| {
            let is_sound = crc32c::crc32c(&bytes) == place.checksum;
            ColumnPage::open(&bytes).filter(|_| is_sound).ok_or_else(|| {
                let Range { start, end } = place.range;
                let what = format!("is damaged: bytes {start} to {end}, the page of column {column}");
                self.damaged_object(group, object, &what)
            })
        };
        read.into_iter().zip(&places).zip(columns).map(page).collect()
    }

    /// Error of an object that is not as it was written.
    pub(crate) fn damaged_object(&self, group: u32, object: &GroupObject, what: &str) -> Error {
        let holder = self.state().holder();
        let table = holder.strip_prefix("row groups of ").unwrap_or(&holder);
        let url = self.cache().objects().url_of(&object.store, &object.name);
        Error::corrupt(format!("row group {group} of {table}"), format!("its object {url} {what}"))
    }

    /// Compares the objects of all row groups with their summaries; says what is wrong.
    pub(crate) fn check_objects(&self, tx: &Transaction) -> Result<Vec<String>> {
        let mut wrong = Vec::new();
        for group in self.groups(tx)? {
            let summary = self.summary(tx, group.number)?;
            let Some(object) = &summary.object else { continue };
            if let Err(error) = self.check_object(tx, (group.number, &summary), object) {
                wrong.push(error.to_string());
            }
        }
        Ok(wrong)
    }

    fn check_object(&self, tx: &Transaction, of: (u32, &GroupSummary), object: &GroupObject) -> Result<()> {
        let client = self.cache().objects().client(&object.store)?;
        let bytes = client.bytes_of(&object.name.to_string(), &|| Ok(tx.check_running()?))?;
        let expected = of.1.object_bytes();
        match bytes {
            None => return Err(self.damaged_object(of.0, object, "is missing")),
            Some(bytes) if bytes != expected => {
                return Err(self.damaged_object(of.0, object, &format!("has {bytes} bytes of {expected}")));
            }
            Some(_) => {}
        }
        for column in of.1.columns.iter().filter(|column| !column.is_in_elf) {
            tx.check_running()?;
            self.read_object(tx, of, object, &[column.column])?;
        }
        Ok(())
    }
}

/// Place of a page in an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ObjectPlace {
    pub(crate) range: Range<u64>,
    pub(crate) checksum: u32,
}

impl GroupSummary {
    /// Place of the page of a column in the object of the row group; none if that does not have it.
    pub(crate) fn place_in_object(&self, object: &GroupObject, column: u16) -> Option<ObjectPlace> {
        let pages = self.columns.iter().filter(|known| !known.is_in_elf).count();
        assert_eq!(pages, object.checksums.len(), "each page of an object has a checksum");
        let mut start = 0;
        let in_object = self.columns.iter().filter(|known| !known.is_in_elf);
        for (known, checksum) in in_object.zip(&object.checksums) {
            let end = start + u64::from(known.bytes);
            if known.column == column {
                return Some(ObjectPlace { range: start..end, checksum: *checksum });
            }
            start = end;
        }
        None
    }

    /// Bytes of the object of the row group.
    pub(crate) fn object_bytes(&self) -> u64 {
        let in_object = self.columns.iter().filter(|known| !known.is_in_elf);
        in_object.map(|known| u64::from(known.bytes)).sum()
    }
}
