//! Pages: several rows, whose keys ascend, as one value under the key of the first.
//!
//! | bytes | what |
//! | --- | --- |
//! | 1 | 0, with which no row begins |
//! | 2 | number of rows, at least 2 |
//! | 4 each | length of the key (2) and of the value (2) |
//! | rest | of each row the key, padded to the width of the index, and the value |
//!
//! Numbers are little-endian. A page has at most [`PAGE_BYTES_MAX`]; a row by itself is stored as any row.
//!
//! The decoder does not panic, whatever the bytes: it returns `Corrupt` with the table's name.

use crate::error::{Error, Result};

/// Maximum bytes of a page.
pub(crate) const PAGE_BYTES_MAX: usize = 4096;

const MARK: u8 = 0;
const HEADER_BYTES: usize = 3;
const LENGTHS_BYTES: usize = 4;

/// Key and value of a row.
pub(crate) type PageRow<'a> = (&'a [u8], &'a [u8]);

/// Returns true if a stored value is a page.
#[inline]
pub(crate) fn is_page(value: &[u8]) -> bool {
    value.first() == Some(&MARK)
}

/// Page whose lengths are those of its bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Page<'a> {
    lengths: &'a [[u8; LENGTHS_BYTES]],
    rows: &'a [u8],
}

/// Lengths of the key and the value of a row.
fn lengths_of(lengths: [u8; LENGTHS_BYTES]) -> (usize, usize) {
    let [key_low, key_high, value_low, value_high] = lengths;
    let length = |low, high| usize::from(u16::from_le_bytes([low, high]));
    (length(key_low, key_high), length(value_low, value_high))
}

impl<'a> Page<'a> {
    /// Page of stored bytes, which begin with its mark.
    pub(crate) fn new(table: &str, bytes: &'a [u8]) -> Result<Page<'a>> {
        let page = Page::of(bytes).filter(|page| {
            let lengths = page.lengths.iter().map(|lengths| lengths_of(*lengths));
            page.lengths.len() > 1
                && lengths.map(|(key, value)| key + value).sum::<usize>() == page.rows.len()
        });
        page.ok_or_else(|| {
            Error::corrupt(format!("page of table {table}"), "lengths of rows that it does not have")
        })
    }

    fn of(bytes: &'a [u8]) -> Option<Page<'a>> {
        let ([MARK, low, high], rest) = bytes.split_first_chunk::<HEADER_BYTES>()? else { return None };
        let count = usize::from(u16::from_le_bytes([*low, *high]));
        let (lengths, rows) = rest.split_at_checked(count * LENGTHS_BYTES)?;
        Some(Page { lengths: lengths.as_chunks().0, rows })
    }

    /// Number of rows.
    pub(crate) fn len(&self) -> usize {
        self.lengths.len()
    }

    /// Rows in the order of their keys.
    pub(crate) fn rows(self) -> impl Iterator<Item = PageRow<'a>> {
        let mut rest = self.rows;
        self.lengths.iter().map(move |lengths| {
            let (key_bytes, value_bytes) = lengths_of(*lengths);
            let (key, behind) = rest.split_at(key_bytes);
            let (value, behind) = behind.split_at(value_bytes);
            rest = behind;
            (key, value)
        })
    }

    /// Value of a key.
    pub(crate) fn find(self, key: &[u8]) -> Option<&'a [u8]> {
        self.rows().find(|(found, _)| *found == key).map(|(_, value)| value)
    }

    /// Greatest key.
    pub(crate) fn last_key(self) -> &'a [u8] {
        let (key, value) = self.lengths.last().map_or((0, 0), |lengths| lengths_of(*lengths));
        let begin = self.rows.len() - key - value;
        &self.rows[begin..begin + key]
    }
}

/// Bytes that a row takes in a page.
fn bytes_of((key, value): PageRow<'_>) -> usize {
    LENGTHS_BYTES + key.len() + value.len()
}

/// Ends of the pages of rows, so many that each of them fits, and with about as many bytes. A row that does not fit has a
/// page of its own, which is no page when it is stored.
pub(crate) fn page_ends(rows: &[PageRow<'_>]) -> Vec<usize> {
    let room = PAGE_BYTES_MAX - HEADER_BYTES;
    let total: usize = rows.iter().map(|row| bytes_of(*row)).sum();
    let target = total.div_ceil(total.div_ceil(room).max(1));
    let (mut ends, mut bytes) = (Vec::new(), 0);
    for (at, row) in rows.iter().enumerate() {
        let row_bytes = bytes_of(*row);
        if at > 0 && bytes > 0 && (bytes + row_bytes > room || bytes >= target) {
            ends.push(at);
            bytes = 0;
        }
        bytes += row_bytes;
    }
    if !rows.is_empty() {
        ends.push(rows.len());
    }
    ends
}

/// Encodes rows, whose keys ascend, as they are stored under the first key: as a page, or one row as itself.
pub(crate) fn encode(rows: &[PageRow<'_>], bytes: &mut Vec<u8>) {
    bytes.clear();
    if let [(_, value)] = rows {
        bytes.extend_from_slice(value);
        return;
    }
    debug_assert!(rows.is_sorted_by(|one, next| one.0 < next.0), "the keys of a page ascend");
    let count = u16::try_from(rows.len()).expect("a page of so many bytes has fewer rows");
    bytes.push(MARK);
    bytes.extend_from_slice(&count.to_le_bytes());
    for (key, value) in rows {
        for length in [key.len(), value.len()] {
            let length = u16::try_from(length).expect("a row is shorter than a page");
            bytes.extend_from_slice(&length.to_le_bytes());
        }
    }
    for (key, value) in rows {
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value);
    }
    assert!(bytes.len() <= PAGE_BYTES_MAX, "a page of {} bytes", bytes.len());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(count: usize, value_bytes: usize) -> Vec<([u8; 8], Vec<u8>)> {
        (0..count)
            .map(|n| ((n as u64).to_be_bytes(), vec![1 + (n % 200) as u8; value_bytes + n % 3]))
            .collect()
    }

    fn as_slices(rows: &[([u8; 8], Vec<u8>)]) -> Vec<PageRow<'_>> {
        rows.iter().map(|(key, value)| (&key[..], &value[..])).collect()
    }

    #[test]
    fn pages_have_the_rows_that_they_were_made_of() {
        let rows = rows(500, 40);
        let rows = as_slices(&rows);
        let ends = page_ends(&rows);
        let (mut first, mut bytes, mut sizes) = (0, Vec::new(), Vec::new());
        for end in ends {
            let of_page = &rows[first..end];
            encode(of_page, &mut bytes);
            sizes.push(bytes.len());
            assert!(is_page(&bytes));
            let page = Page::new("t", &bytes).unwrap();
            assert_eq!(page.rows().collect::<Vec<_>>(), of_page);
            assert_eq!((page.len(), page.last_key()), (of_page.len(), rows[end - 1].0));
            assert_eq!(page.find(rows[first + 1].0), Some(rows[first + 1].1));
            assert_eq!(page.find(rows[(end + 1) % rows.len()].0), None);
            first = end;
        }
        assert_eq!(first, rows.len());
        let (least, greatest) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
        assert!(greatest - least < 300, "they have about the same size: {sizes:?}");
    }

    #[test]
    fn long_rows_and_single_ones_stay_rows() {
        let long = [(&b"a"[..], &[7; 10][..]), (b"b", &[8; 5000]), (b"c", &[9; 10]), (b"d", &[9; 10])];
        let ends = page_ends(&long);
        assert_eq!(ends, [1, 2, 4]);
        let mut bytes = Vec::new();
        encode(&long[1..2], &mut bytes);
        assert_eq!(bytes, [8; 5000]);
        assert!(!is_page(&bytes) && !is_page(&[]));
        assert_eq!(page_ends(&[]), [0; 0]);
    }

    #[test]
    fn damaged_pages_are_errors() {
        let rows = rows(9, 20);
        let mut bytes = Vec::new();
        encode(&as_slices(&rows), &mut bytes);
        for cut in 1..bytes.len() {
            assert!(Page::new("t", &bytes[..cut]).is_err(), "cut to {cut}");
        }
        for at in 1..HEADER_BYTES + 9 * LENGTHS_BYTES {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            assert!(Page::new("t", &damaged).is_err(), "byte {at}");
        }
    }
}
