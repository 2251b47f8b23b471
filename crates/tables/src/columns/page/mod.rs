//! Column pages: the values of one column of a row group, encoded, with a summary of each block.
//!
//! 32-bit words, little-endian:
//!
//! | words | what |
//! | --- | --- |
//! | 1 | format, 2; pages of format 1 are read |
//! | 1 | CRC-32C of all words behind it |
//! | 1 | kind (low byte) |
//! | 1 | rows |
//! | 1 | offset of the dictionary or of the symbols; 0: none |
//! | 3 | unused, 0 |
//! | 12 per block | least value (2), greatest (2), base (2), encoding and bit widths (1), NULLs (1), offsets of its data, of its bitmap of values that are not NULL (0: no NULL) and of its strings or exceptions (1 each), coding of doubles (1) |
//! | rest | data of the blocks, strings, exceptions, symbols, the dictionary: entries (1), the end of each (1 each), UTF-8 |
//!
//! A block is [`BLOCK_ROWS`] rows, the last one of a page may have fewer. The kinds:
//!
//! | kind | values are encoded as |
//! | --- | --- |
//! | integers | themselves: BOOLEAN, integers, dates, timestamps, decimals whose unscaled values have 64 bits |
//! | doubles, singles | integers, as [`crate::columns::doubles`] has it; the summary has their bits, ordered |
//! | wide | decimals of 128 bits, plain; intervals as they are stored in rows |
//! | dictionary | numbers of entries of the page's sorted dictionary |
//! | texts | ends of strings, which lie one after another |
//! | symbols | the same, of strings that are encoded by the page's symbols ([`crate::columns::symbols`]) |
//!
//! Format 1 had doubles in two kinds, without exceptions: decimal numbers with one exponent for the page, in its
//! word of the kind, and bits. They are opened as blocks of doubles.

mod encode;
mod values;

pub(crate) use encode::{PageValues, encode_page, encode_values};
pub(crate) use values::ColumnValues;

use crate::columns::doubles::{DoubleBlock, DoubleCoding, Exceptions, Precision, double_of, ordered_bits};
use crate::columns::integers::{DecodedInteger, Encoding, IntegerBlock};
use crate::columns::symbols::SymbolTable;
use crate::columns::texts::Dictionary;
use crate::value::DataType;
use arrow_array::{ArrayRef, StringArray};
use arrow_buffer::BooleanBuffer;
use arrow_schema::DataType as ArrowType;
use std::ops::Range;
use values::TextValues;

/// Number of rows of a block.
pub(crate) const BLOCK_ROWS: usize = 8192;

/// Share of the rows of a block below which values are looked up one by one, as a divisor.
const FEW_SHARE: usize = 16;
const FORMAT: u32 = 2;
const FORMAT_BEFORE: u32 = 1;
const HEADER_WORDS: usize = 8;
const BLOCK_WORDS: usize = 12;
/// Words of a bitmap of a block.
const BITMAP_WORDS: usize = BLOCK_ROWS / 32;

/// Kinds as they are stored.
const INTEGERS: u32 = 0;
const SCALED_BEFORE: u32 = 1;
const FLOATS_BEFORE: u32 = 2;
const WIDE: u32 = 3;
const DICTIONARY: u32 = 4;
const TEXTS: u32 = 5;
const DOUBLES: u32 = 6;
const SINGLES: u32 = 7;
const SYMBOLS: u32 = 8;

/// Meaning of the integers of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageKind {
    Integers,
    Doubles(Precision),
    Wide,
    Dictionary,
    Texts,
}

/// Kind of a page as it is stored.
#[derive(Debug, Clone, Copy)]
struct StoredKind {
    kind: PageKind,
    has_symbols: bool,
    /// Coding of all blocks of a page of format 1.
    coding: Option<DoubleCoding>,
}

impl StoredKind {
    fn of_word(format: u32, word: u32) -> Option<StoredKind> {
        if !matches!(format, FORMAT | FORMAT_BEFORE) {
            return None;
        }
        let coding = match word & 0xff {
            SCALED_BEFORE => DoubleCoding::of_word(1 | (word & 0xff00))?,
            _ => DoubleCoding::Ordered,
        };
        let kind = match (format, word & 0xff) {
            (_, INTEGERS) => PageKind::Integers,
            (FORMAT_BEFORE, SCALED_BEFORE | FLOATS_BEFORE) | (FORMAT, DOUBLES) => {
                PageKind::Doubles(Precision::Double)
            }
            (FORMAT, SINGLES) => PageKind::Doubles(Precision::Single),
            (_, WIDE) => PageKind::Wide,
            (_, DICTIONARY) => PageKind::Dictionary,
            (_, TEXTS) | (FORMAT, SYMBOLS) => PageKind::Texts,
            _ => return None,
        };
        let coding = (format == FORMAT_BEFORE).then_some(coding);
        Some(StoredKind { kind, has_symbols: word & 0xff == SYMBOLS, coding })
    }
}

/// Summary of a block (SMA), and the places of its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) rows: usize,
    /// Least and greatest encoded value, of doubles their ordered bits; NULLs have none.
    pub(crate) least: i64,
    pub(crate) greatest: i64,
    pub(crate) nulls: usize,
    integers: IntegerBlock,
    data: usize,
    /// 0: no value is NULL.
    valid: usize,
    /// Of [`PageKind::Texts`].
    texts: usize,
    /// Of [`PageKind::Doubles`].
    doubles: DoubleBlock,
}

/// Column page in memory.
#[derive(Debug)]
pub(crate) struct ColumnPage {
    words: Box<[u32]>,
    kind: PageKind,
    rows: usize,
    blocks: Vec<Block>,
    dictionary: Option<Dictionary>,
    symbols: Option<Box<SymbolTable>>,
}

impl ColumnPage {
    /// Opens an encoded page; none if the bytes are damaged.
    pub(crate) fn open(bytes: &[u8]) -> Option<ColumnPage> {
        let (chunks, []) = bytes.as_chunks::<4>() else { return None };
        let words: Box<[u32]> = chunks.iter().map(|word| u32::from_le_bytes(*word)).collect();
        if words.len() < HEADER_WORDS || words[1] != crc32c::crc32c(&bytes[8..]) {
            return None;
        }
        let stored = StoredKind::of_word(words[0], words[2])?;
        let rows = words[3] as usize;
        let count = rows.div_ceil(BLOCK_ROWS);
        let described = words[HEADER_WORDS..].get(..count.checked_mul(BLOCK_WORDS)?)?;
        let mut blocks = Vec::with_capacity(count);
        for (number, words_of) in described.chunks_exact(BLOCK_WORDS).enumerate() {
            let rows = BLOCK_ROWS.min(rows - number * BLOCK_ROWS);
            blocks.push(read_block(stored, rows, words_of, &words)?);
        }
        let (kind, table) = (stored.kind, words.get(words[4] as usize..)?);
        let dictionary = match kind {
            PageKind::Dictionary => Some(Dictionary::decode(table)?),
            _ => None,
        };
        let symbols = if stored.has_symbols { Some(Box::new(SymbolTable::read(table)?)) } else { None };
        Some(ColumnPage { words, kind, rows, blocks, dictionary, symbols })
    }

    /// Reads all words once; returns their bytes.
    pub(crate) fn read_through(&self) -> usize {
        std::hint::black_box(self.words.iter().fold(0_u32, |sum, word| sum.wrapping_add(*word)));
        4 * self.words.len()
    }

    /// Bytes that it takes in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        let dictionary = self.dictionary.as_ref().map_or(0, Dictionary::memory_bytes);
        let symbols = self.symbols.as_ref().map_or(0, |_| size_of::<SymbolTable>());
        size_of::<ColumnPage>()
            + 4 * self.words.len()
            + self.blocks.len() * size_of::<Block>()
            + dictionary
            + symbols
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

    /// Name of the encoding of a block.
    pub(crate) fn encoding(&self, block: usize) -> &'static str {
        let Block { integers, doubles, .. } = self.blocks[block];
        match (self.kind, doubles.coding) {
            (PageKind::Texts, _) if self.symbols.is_some() => "symbols",
            (PageKind::Texts | PageKind::Wide, _) => "plain",
            (_, _) if integers.encoding == Encoding::Packed && integers.bits == 0 => "constant",
            (PageKind::Dictionary, _) => "dictionary",
            (PageKind::Doubles(_), DoubleCoding::Decimal { .. }) => "decimal digits",
            (PageKind::Doubles(_), DoubleCoding::Ordered) => "ordered bits",
            (PageKind::Integers, _) => match integers.encoding {
                Encoding::Packed => "bit packing",
                Encoding::Delta => "delta",
                Encoding::Runs => "run length",
            },
        }
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
    pub(crate) fn integers<T: DecodedInteger>(&self, block: usize, out: &mut Vec<T>) {
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

    /// Coding of the doubles of a block, and those that it does not have.
    pub(crate) fn doubles_of(&self, block: usize) -> (DoubleBlock, Option<Exceptions<'_>>) {
        let doubles = self.blocks[block].doubles;
        (doubles, doubles.exceptions(&self.words))
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
    fn append_integers<T: DecodedInteger>(&self, block: usize, selection: Option<&[u32]>, out: &mut Vec<T>) {
        let Block { rows, integers, data, .. } = self.blocks[block];
        match selection {
            Some(selected) => integers.decode_at(&self.words[data..], rows, selected, out),
            None => integers.decode(&self.words[data..], rows, out),
        }
    }

    fn append_doubles(&self, block: usize, selection: Option<&[u32]>, out: &mut Vec<f64>) {
        let PageKind::Doubles(precision) = self.kind else { return };
        let Block { rows, integers, data, doubles, .. } = self.blocks[block];
        let data = (integers, &self.words[data..]);
        doubles.decode(data, (precision, doubles.exceptions(&self.words)), (rows, selection), out);
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
        let mut decoded = Vec::new();
        let mut push = |stored: &[u8]| match &self.symbols {
            Some(symbols) => {
                decoded.clear();
                symbols.decode(stored, &mut decoded);
                out.push(std::str::from_utf8(&decoded).unwrap_or_default());
            }
            None => out.push(std::str::from_utf8(stored).unwrap_or_default()),
        };
        if let Some(selected) = selection.filter(|selected| selected.len() * FEW_SHARE < rows) {
            let mut copied = Vec::new();
            for row in selected {
                self.copy_bytes(texts, range(*row as usize), &mut copied);
                push(&copied);
            }
            return;
        }
        let total = ends.last().map_or(0, |end| *end as usize);
        let stored = &self.words[texts..texts + total.div_ceil(4)];
        let stored: Vec<u8> = stored.iter().flat_map(|word| word.to_le_bytes()).collect();
        match selection {
            Some(selected) => selected.iter().for_each(|row| push(&stored[range(*row as usize)])),
            None => (0..rows).for_each(|row| push(&stored[range(row)])),
        }
    }
}

/// Reads the description of a block and checks that its data lie within the page.
fn read_block(stored: StoredKind, rows: usize, described: &[u32], words: &[u32]) -> Option<Block> {
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
    if stored.kind == PageKind::Wide {
        data_words.get(..4 * rows)?;
    } else {
        integers.words(rows, data_words)?;
    }
    if valid > 0 {
        words.get(valid..valid.checked_add(BITMAP_WORDS)?)?;
    }
    let mut block = Block {
        rows,
        least: value(0),
        greatest: value(2),
        nulls,
        integers,
        data,
        valid,
        texts: 0,
        doubles: DoubleBlock { coding: DoubleCoding::Ordered, exceptions: 0 },
    };
    match (stored.kind, stored.coding) {
        (PageKind::Texts, _) => {
            let ends = integers.value(data_words, rows, rows - 1);
            words.get(texts..texts.checked_add(usize::try_from(ends).ok()?.div_ceil(4))?)?;
            block.texts = texts;
        }
        (PageKind::Doubles(precision), Some(coding)) => {
            let bits = |integer: i64| ordered_bits(coding.value_of(precision, integer));
            (block.least, block.greatest) = (bits(block.least), bits(block.greatest));
            block.doubles.coding = coding;
        }
        (PageKind::Doubles(_), None) => {
            block.doubles = DoubleBlock { coding: DoubleCoding::of_word(described[11])?, exceptions: texts };
            block.doubles.is_sound(rows, words).then_some(())?;
        }
        _ => {}
    }
    Some(block)
}

impl Block {
    /// Least and greatest double of a block of doubles; NaN where one of its values is.
    pub(crate) fn double_bounds(&self) -> (f64, f64) {
        (double_of(self.least), double_of(self.greatest))
    }
}

#[cfg(test)]
mod tests;
