//! Column pages: the values of one column of a row group, encoded, with a summary of each block.
//!
//! 32-bit words, little-endian:
//!
//! | words | what |
//! | --- | --- |
//! | 1 | format, 1 |
//! | 1 | CRC-32C of all words behind it |
//! | 1 | kind (low byte), decimal exponent of scaled doubles (next byte) |
//! | 1 | rows |
//! | 1 | offset of the dictionary; 0: none |
//! | 3 | unused, 0 |
//! | 12 per block | least value (2), greatest (2), base (2), encoding and bit widths (1), NULLs (1), offsets of its data, of its bitmap of values that are not NULL (0: no NULL) and of its strings (1 each), unused (1) |
//! | rest | data of the blocks, strings, the dictionary: entries (1), the end of each (1 each), UTF-8 |
//!
//! A block is [`BLOCK_ROWS`] rows, the last one of a page may have fewer. The kinds:
//!
//! | kind | values are encoded as |
//! | --- | --- |
//! | integers | themselves: BOOLEAN, integers, dates, timestamps, decimals whose unscaled values have 64 bits |
//! | scaled | doubles that are decimal numbers: integers, to be divided by a power of ten |
//! | floats | integers that order as the doubles do: their bits, flipped below zero |
//! | wide | decimals of 128 bits, plain; intervals as they are stored in rows |
//! | dictionary | numbers of entries of the page's sorted dictionary |
//! | texts | ends of strings, which lie one after another |

mod values;

pub(crate) use values::ColumnValues;

use crate::batch::ColumnArray;
use crate::columns::integers::{Decoded, Encoding, IntegerBlock};
use crate::columns::texts::{Dictionary, encode_texts};
use crate::value::DataType;
use crate::value::interval::Interval;
use arrow_array::{ArrayRef, StringArray};
use arrow_buffer::BooleanBuffer;
use arrow_schema::DataType as ArrowType;
use std::ops::Range;
use values::TextValues;

/// Number of rows of a block.
pub(crate) const BLOCK_ROWS: usize = 8192;

/// Share of the rows of a block below which values are looked up one by one, as a divisor.
const FEW_SHARE: usize = 16;
const FORMAT: u32 = 1;
const HEADER_WORDS: usize = 8;
const BLOCK_WORDS: usize = 12;
/// Words of a bitmap of a block.
const BITMAP_WORDS: usize = BLOCK_ROWS / 32;
/// Powers of ten that are doubles exactly, as far as sensors need them.
const EXPONENTS: std::ops::RangeInclusive<u8> = 0..=10;
/// Integers up to here are doubles exactly.
const EXACT_MAX: i64 = 1 << 53;

/// Meaning of the integers of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageKind {
    Integers,
    Scaled { exponent: u8 },
    Floats,
    Wide,
    Dictionary,
    Texts,
}

impl PageKind {
    fn word(self) -> u32 {
        match self {
            PageKind::Integers => 0,
            PageKind::Scaled { exponent } => 1 | u32::from(exponent) << 8,
            PageKind::Floats => 2,
            PageKind::Wide => 3,
            PageKind::Dictionary => 4,
            PageKind::Texts => 5,
        }
    }

    fn of_word(word: u32) -> Option<PageKind> {
        let exponent = (word >> 8) as u8;
        Some(match word & 0xff {
            0 => PageKind::Integers,
            1 if EXPONENTS.contains(&exponent) => PageKind::Scaled { exponent },
            2 => PageKind::Floats,
            3 => PageKind::Wide,
            4 => PageKind::Dictionary,
            5 => PageKind::Texts,
            _ => return None,
        })
    }
}

/// Summary of a block (SMA), and the places of its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) rows: usize,
    /// Least and greatest encoded value; NULLs have none.
    pub(crate) least: i64,
    pub(crate) greatest: i64,
    pub(crate) nulls: usize,
    integers: IntegerBlock,
    data: usize,
    /// 0: no value is NULL.
    valid: usize,
    /// Of [`PageKind::Texts`].
    texts: usize,
}

/// Column page in memory.
#[derive(Debug)]
pub(crate) struct ColumnPage {
    words: Box<[u32]>,
    kind: PageKind,
    rows: usize,
    blocks: Vec<Block>,
    dictionary: Option<Dictionary>,
}

/// Values of a page, before they are encoded.
enum PageValues<'p> {
    Integers(PageKind, Vec<i64>),
    Wide(Vec<i128>),
    Texts(Vec<&'p str>),
}

/// Maps a double to an integer, in the order of doubles (`total_cmp`).
pub(crate) fn ordered_bits(value: f64) -> i64 {
    let bits = value.to_bits() as i64;
    bits ^ (((bits >> 63) as u64) >> 1) as i64
}

/// Double of such an integer.
pub(crate) fn double_of(ordered: i64) -> f64 {
    f64::from_bits((ordered ^ (((ordered >> 63) as u64) >> 1) as i64) as u64)
}

/// Encodes a column, given as arrays of its type, one after another.
pub(crate) fn encode_page(data_type: DataType, arrays: &[ColumnArray<'_>]) -> Vec<u8> {
    let rows = arrays.iter().map(|array| array.array().len()).sum();
    let mut valid: Vec<bool> = Vec::new();
    if arrays.iter().any(|array| array.array().null_count() > 0) {
        valid =
            arrays.iter().flat_map(|of| (0..of.array().len()).map(|row| of.array().is_valid(row))).collect();
    }
    let (kind, blocks, mut words) = match values_of(data_type, arrays, rows, &valid) {
        PageValues::Integers(kind, values) => {
            let mut words = header(rows);
            let blocks = integer_blocks(&values, &valid, &mut words);
            (kind, blocks, words)
        }
        PageValues::Wide(values) => {
            let mut words = header(rows);
            let blocks = values.chunks(BLOCK_ROWS).enumerate().map(|(number, values)| {
                let data = words.len();
                words
                    .extend(values.iter().flat_map(|value| [0, 32, 64, 96].map(|bit| (value >> bit) as u32)));
                plain_block(values.len(), data, valid_of(&valid, number), &mut words)
            });
            let blocks = blocks.collect();
            (PageKind::Wide, blocks, words)
        }
        PageValues::Texts(texts) => match Dictionary::of(&texts) {
            Some((dictionary, codes)) => {
                let mut words = header(rows);
                let blocks = integer_blocks(&codes, &valid, &mut words);
                words[4] = words.len() as u32;
                dictionary.encode(&mut words);
                (PageKind::Dictionary, blocks, words)
            }
            None => {
                let mut words = header(rows);
                let blocks = texts.chunks(BLOCK_ROWS).enumerate().map(|(number, texts)| {
                    let (data, integers, at) = encode_texts(texts, &mut words);
                    let block = plain_block(texts.len(), data, valid_of(&valid, number), &mut words);
                    Block { integers, texts: at, ..block }
                });
                let blocks = blocks.collect();
                (PageKind::Texts, blocks, words)
            }
        },
    };
    words[2] = kind.word();
    finish(&blocks, words)
}

/// Words of a page before its blocks.
fn header(rows: usize) -> Vec<u32> {
    let mut words = vec![0; HEADER_WORDS + BLOCK_WORDS * rows.div_ceil(BLOCK_ROWS)];
    words[0] = FORMAT;
    words[3] = rows as u32;
    words
}

/// Validity of the rows of a block; empty if no row of the page is NULL.
fn valid_of(valid: &[bool], block: usize) -> &[bool] {
    let first = (block * BLOCK_ROWS).min(valid.len());
    &valid[first..(first + BLOCK_ROWS).min(valid.len())]
}

/// Block whose values have no summary.
fn plain_block(rows: usize, data: usize, valid: &[bool], words: &mut Vec<u32>) -> Block {
    let integers = IntegerBlock { encoding: Encoding::Packed, bits: 0, end_bits: 0, base: 0 };
    let (nulls, valid) = encode_validity(valid, words);
    Block { rows, least: i64::MIN, greatest: i64::MAX, nulls, integers, data, valid, texts: 0 }
}

fn encode_validity(valid: &[bool], words: &mut Vec<u32>) -> (usize, usize) {
    let nulls = valid.iter().filter(|valid| !**valid).count();
    if nulls == 0 {
        return (0, 0);
    }
    let at = words.len();
    words.resize(at + BITMAP_WORDS, 0);
    for row in (0..valid.len()).filter(|row| valid[*row]) {
        words[at + row / 32] |= 1 << (row % 32);
    }
    (nulls, at)
}

fn integer_blocks(values: &[i64], valid: &[bool], words: &mut Vec<u32>) -> Vec<Block> {
    let mut filled;
    let mut blocks = Vec::new();
    for (number, mut values) in values.chunks(BLOCK_ROWS).enumerate() {
        let valid = valid_of(valid, number);
        if valid.contains(&false) {
            // NULLs have no value: whichever costs least.
            filled = values.to_vec();
            let mut last = (0..values.len()).find(|row| valid[*row]).map_or(0, |row| values[row]);
            for (value, valid) in filled.iter_mut().zip(valid) {
                last = if *valid { *value } else { last };
                *value = last;
            }
            values = &filled;
        }
        let (nulls, valid) = encode_validity(valid, words);
        let data = words.len();
        let integers = IntegerBlock::encode(values, words);
        let least = values.iter().copied().min().unwrap_or(0);
        let greatest = values.iter().copied().max().unwrap_or(0);
        blocks.push(Block { rows: values.len(), least, greatest, nulls, integers, data, valid, texts: 0 });
    }
    blocks
}

fn finish(blocks: &[Block], mut words: Vec<u32>) -> Vec<u8> {
    for (number, block) in blocks.iter().enumerate() {
        let IntegerBlock { encoding, bits, end_bits, base } = block.integers;
        let halves = |value: i64| [value as u32, (value >> 32) as u32];
        let [least, greatest, base] = [block.least, block.greatest, base].map(halves);
        let described = [
            [least[0], least[1], greatest[0], greatest[1]],
            [base[0], base[1], encoding.code() | bits << 8 | end_bits << 16, block.nulls as u32],
            [block.data as u32, block.valid as u32, block.texts as u32, 0],
        ];
        let at = HEADER_WORDS + number * BLOCK_WORDS;
        words[at..at + BLOCK_WORDS].copy_from_slice(described.as_flattened());
    }
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let checksum = crc32c::crc32c(&bytes[8..]);
    bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

fn values_of<'p>(
    data_type: DataType,
    arrays: &'p [ColumnArray<'_>],
    rows: usize,
    valid: &[bool],
) -> PageValues<'p> {
    let mut integers: Vec<i64> = Vec::with_capacity(rows);
    let mut doubles: Vec<f64> = Vec::new();
    let mut wide: Vec<i128> = Vec::new();
    let mut texts: Vec<&str> = Vec::new();
    for array in arrays {
        match array {
            ColumnArray::Boolean(array) => integers.extend(array.values().iter().map(i64::from)),
            ColumnArray::SmallInt(array) => integers.extend(array.values().iter().map(|v| i64::from(*v))),
            ColumnArray::Int(array) => integers.extend(array.values().iter().map(|v| i64::from(*v))),
            ColumnArray::Date(array) => integers.extend(array.values().iter().map(|v| i64::from(*v))),
            ColumnArray::BigInt(array) => integers.extend_from_slice(array.values()),
            ColumnArray::Timestamp(array) => integers.extend_from_slice(array.values()),
            ColumnArray::Real(array) => doubles.extend(array.values().iter().map(|v| f64::from(*v))),
            ColumnArray::Double(array) => doubles.extend_from_slice(array.values()),
            ColumnArray::Decimal(array) => wide.extend_from_slice(array.values()),
            ColumnArray::Interval(array) => {
                wide.extend(array.values().iter().map(|value| Interval::from_arrow(*value).to_word()));
            }
            ColumnArray::Varchar(array) => texts.extend(array.iter().map(Option::unwrap_or_default)),
        }
    }
    let is_valid = |row: usize| valid.get(row).copied().unwrap_or(true);
    match data_type {
        DataType::Real | DataType::Double => match scaled(&doubles, is_valid) {
            Some((exponent, values)) => PageValues::Integers(PageKind::Scaled { exponent }, values),
            None => {
                let ordered = doubles.into_iter().map(ordered_bits).collect();
                PageValues::Integers(PageKind::Floats, ordered)
            }
        },
        DataType::Decimal { .. } => {
            let short: Option<Vec<i64>> = wide
                .iter()
                .enumerate()
                .map(|(row, value)| if is_valid(row) { i64::try_from(*value).ok() } else { Some(0) })
                .collect();
            short.map_or(PageValues::Wide(wide), |values| PageValues::Integers(PageKind::Integers, values))
        }
        DataType::Interval => PageValues::Wide(wide),
        DataType::Varchar => PageValues::Texts(texts),
        _ => PageValues::Integers(PageKind::Integers, integers),
    }
}

/// Decimal exponent and integers of doubles that are decimal numbers with few digits behind the point.
fn scaled(doubles: &[f64], is_valid: impl Fn(usize) -> bool) -> Option<(u8, Vec<i64>)> {
    let mut exponent = *EXPONENTS.start();
    let mut row = 0;
    // The least exponent with which all are exact: a greater one stays exact for those before, or none is.
    while row < doubles.len() {
        if !is_valid(row) || scale(doubles[row], exponent).is_some() {
            row += 1;
        } else if exponent < *EXPONENTS.end() {
            exponent += 1;
        } else {
            return None;
        }
    }
    let values = doubles.iter().enumerate();
    let values = values.map(|(row, value)| if is_valid(row) { scale(*value, exponent) } else { Some(0) });
    Some((exponent, values.collect::<Option<_>>()?))
}

/// Integer of a double, if it gives back exactly its bits.
fn scale(value: f64, exponent: u8) -> Option<i64> {
    let power = 10_f64.powi(exponent.into());
    let integer = (value * power).round();
    if integer.is_nan() || integer.abs() > EXACT_MAX as f64 {
        return None;
    }
    // As it will be decoded: -0.0 is no integer.
    let integer = integer as i64;
    ((integer as f64 / power).to_bits() == value.to_bits()).then_some(integer)
}

impl ColumnPage {
    /// Opens an encoded page; none if the bytes are damaged.
    pub(crate) fn open(bytes: &[u8]) -> Option<ColumnPage> {
        let (chunks, []) = bytes.as_chunks::<4>() else { return None };
        let words: Box<[u32]> = chunks.iter().map(|word| u32::from_le_bytes(*word)).collect();
        if words.len() < HEADER_WORDS || words[0] != FORMAT || words[1] != crc32c::crc32c(&bytes[8..]) {
            return None;
        }
        let kind = PageKind::of_word(words[2])?;
        let rows = words[3] as usize;
        let count = rows.div_ceil(BLOCK_ROWS);
        let described = words[HEADER_WORDS..].get(..count.checked_mul(BLOCK_WORDS)?)?;
        let mut blocks = Vec::with_capacity(count);
        for (number, words_of) in described.chunks_exact(BLOCK_WORDS).enumerate() {
            let rows = BLOCK_ROWS.min(rows - number * BLOCK_ROWS);
            blocks.push(read_block(kind, rows, words_of, &words)?);
        }
        let dictionary = match (kind, words[4]) {
            (PageKind::Dictionary, at) => Some(Dictionary::decode(words.get(at as usize..)?)?),
            _ => None,
        };
        Some(ColumnPage { words, kind, rows, blocks, dictionary })
    }

    /// Reads all words once; returns their bytes.
    pub(crate) fn read_through(&self) -> usize {
        std::hint::black_box(self.words.iter().fold(0_u32, |sum, word| sum.wrapping_add(*word)));
        4 * self.words.len()
    }

    /// Bytes that it takes in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        let dictionary = self.dictionary.as_ref().map_or(0, Dictionary::memory_bytes);
        size_of::<ColumnPage>() + 4 * self.words.len() + self.blocks.len() * size_of::<Block>() + dictionary
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn kind(&self) -> PageKind {
        self.kind
    }

    pub(crate) fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Dictionary of a page of strings, if it has one.
    pub(crate) fn dictionary(&self) -> Option<&Dictionary> {
        self.dictionary.as_ref()
    }

    /// Values of a block that are not NULL; none if all are.
    pub(crate) fn validity(&self, block: usize) -> Option<BooleanBuffer> {
        let Block { rows, valid, .. } = self.blocks[block];
        (valid > 0).then(|| {
            let bits = &self.words[valid..valid + BITMAP_WORDS];
            BooleanBuffer::collect_bool(rows, |row| bits[row / 32] >> (row % 32) & 1 == 1)
        })
    }

    /// Tells whether a row of a block is not NULL.
    #[inline]
    pub(crate) fn is_valid(&self, block: usize, row: u32) -> bool {
        let valid = self.blocks[block].valid;
        valid == 0 || self.words[valid + row as usize / 32] >> (row % 32) & 1 == 1
    }

    /// Encoded integers of a block, where it has some, and the words that begin with them.
    pub(crate) fn integers_of(&self, block: usize) -> (IntegerBlock, &[u32]) {
        let Block { integers, data, .. } = self.blocks[block];
        (integers, &self.words[data..])
    }

    /// Integers of a block, where it has some.
    pub(crate) fn integers<T: Decoded>(&self, block: usize, out: &mut Vec<T>) {
        let Block { rows, integers, data, .. } = self.blocks[block];
        integers.decode(&self.words[data..], rows, out);
    }

    /// Integers of a block.
    pub(crate) fn decoded(&self, block: usize) -> Vec<i64> {
        let mut values = Vec::new();
        self.integers(block, &mut values);
        values
    }

    /// Strings of a block; those of NULLs are empty.
    pub(crate) fn block_texts(&self, block: usize) -> StringArray {
        let mut texts = TextValues::default();
        self.append_texts(block, None, &mut texts);
        texts.finish(None)
    }

    /// Doubles of a block.
    pub(crate) fn block_doubles(&self, block: usize) -> Vec<f64> {
        let mut values = Vec::new();
        self.append_doubles(block, None, &mut values);
        values
    }

    /// Wide decimals of a block.
    pub(crate) fn block_wide(&self, block: usize) -> Vec<i128> {
        let mut values = Vec::new();
        self.append_wide(block, None, &mut values);
        values
    }

    /// Array of the rows of a block, or of those selected.
    pub(crate) fn decode(
        &self,
        block: usize,
        selection: Option<&[u32]>,
        data_type: DataType,
        arrow: &ArrowType,
    ) -> ArrayRef {
        let mut values = ColumnValues::new(data_type, arrow);
        values.append(self, block, selection);
        values.finish()
    }

    /// Appends the integers of a block, or of the rows selected.
    fn append_integers<T: Decoded>(&self, block: usize, selection: Option<&[u32]>, out: &mut Vec<T>) {
        let Block { rows, integers, data, .. } = self.blocks[block];
        match selection {
            Some(selected) => integers.decode_at(&self.words[data..], rows, selected, out),
            None => integers.decode(&self.words[data..], rows, out),
        }
    }

    fn append_doubles(&self, block: usize, selection: Option<&[u32]>, out: &mut Vec<f64>) {
        let mut integers: Vec<i64> = Vec::new();
        self.append_integers(block, selection, &mut integers);
        match self.kind {
            PageKind::Scaled { exponent } => {
                let power = 10_f64.powi(exponent.into());
                out.extend(integers.into_iter().map(|value| value as f64 / power));
            }
            _ => out.extend(integers.into_iter().map(double_of)),
        }
    }

    /// Appends the decimals of a block, or of the rows selected.
    fn append_wide(&self, block: usize, selection: Option<&[u32]>, out: &mut Vec<i128>) {
        if self.kind != PageKind::Wide {
            return self.append_integers(block, selection, out);
        }
        let Block { rows, data, .. } = self.blocks[block];
        let (values, _) = self.words[data..data + 4 * rows].as_chunks::<4>();
        let value = |words: &[u32; 4]| {
            words.iter().rev().fold(0_u128, |value, word| value << 32 | u128::from(*word)) as i128
        };
        match selection {
            Some(selected) => out.extend(selected.iter().map(|row| value(&values[*row as usize]))),
            None => out.extend(values.iter().map(value)),
        }
    }

    /// Copies a range of the bytes that begin at a word, in place of what `copied` has.
    fn copy_bytes(&self, at: usize, range: Range<usize>, copied: &mut Vec<u8>) {
        copied.clear();
        let words = &self.words[at + range.start / 4..at + range.end.div_ceil(4)];
        copied.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        copied.truncate(range.end - range.start / 4 * 4);
        copied.drain(..range.start % 4);
    }

    /// Appends the strings of a block, or of the rows selected; those of NULLs are empty.
    fn append_texts(&self, block: usize, selection: Option<&[u32]>, out: &mut TextValues) {
        if let Some(dictionary) = &self.dictionary {
            let mut codes: Vec<i32> = Vec::new();
            self.append_integers(block, selection, &mut codes);
            return codes.iter().for_each(|code| out.push(dictionary.entry(*code as usize)));
        }
        let Block { rows, texts, .. } = self.blocks[block];
        let mut ends: Vec<i32> = Vec::with_capacity(rows);
        self.integers(block, &mut ends);
        let range = |row: usize| {
            let start = if row == 0 { 0 } else { ends[row - 1] as usize };
            start..ends[row] as usize
        };
        if let Some(selected) = selection.filter(|selected| selected.len() * FEW_SHARE < rows) {
            let mut copied = Vec::new();
            for row in selected {
                self.copy_bytes(texts, range(*row as usize), &mut copied);
                out.push(std::str::from_utf8(&copied).unwrap_or_default());
            }
            return;
        }
        let total = ends.last().map_or(0, |end| *end as usize);
        let stored = &self.words[texts..texts + total.div_ceil(4)];
        let stored: Vec<u8> = stored.iter().flat_map(|word| word.to_le_bytes()).collect();
        let text = |row: usize| std::str::from_utf8(&stored[range(row)]).unwrap_or_default();
        match selection {
            Some(selected) => selected.iter().for_each(|row| out.push(text(*row as usize))),
            None => (0..rows).for_each(|row| out.push(text(row))),
        }
    }
}

/// Reads the description of a block and checks that its data lie within the page.
fn read_block(kind: PageKind, rows: usize, described: &[u32], words: &[u32]) -> Option<Block> {
    let value = |at: usize| i64::from(described[at]) | i64::from(described[at + 1] as i32) << 32;
    let widths = described[6];
    let integers = IntegerBlock {
        encoding: Encoding::of_code(widths & 0xff)?,
        bits: widths >> 8 & 0xff,
        end_bits: widths >> 16,
        base: value(4),
    };
    let [nulls, data, valid, texts] = [7, 8, 9, 10].map(|at| described[at] as usize);
    let data_words = words.get(data..)?;
    if kind == PageKind::Wide {
        data_words.get(..4 * rows)?;
    } else {
        integers.words(rows, data_words)?;
    }
    if valid > 0 {
        words.get(valid..valid.checked_add(BITMAP_WORDS)?)?;
    }
    if kind == PageKind::Texts {
        let ends = integers.value(data_words, rows, rows - 1);
        words.get(texts..texts.checked_add(usize::try_from(ends).ok()?.div_ceil(4))?)?;
    }
    Some(Block { rows, least: value(0), greatest: value(2), nulls, integers, data, valid, texts })
}

#[cfg(test)]
mod tests;
