//! Encoding of column pages; see [`super`] for the format.

use super::{
    BITMAP_WORDS, BLOCK_ROWS, BLOCK_WORDS, Block, ColumnPage, DICTIONARY, DOUBLES, FORMAT, HEADER_WORDS,
    INTEGERS, SINGLES, SYMBOLS, TEXTS, WIDE,
};
use crate::batch::ColumnArray;
use crate::columns::doubles::{DoubleBlock, DoubleCoding, Precision};
use crate::columns::integers::{Encoding, IntegerBlock};
use crate::columns::symbols::SymbolTable;
use crate::columns::texts::{Dictionary, encode_texts};
use crate::value::DataType;
use crate::value::interval::Interval;

/// Values of a page, before they are encoded.
pub(crate) enum PageValues<'p> {
    Integers(Vec<i64>),
    Doubles(Precision, Vec<f64>),
    Wide(Vec<i128>),
    Texts(Vec<&'p str>),
    /// Numbers of the entries of a dictionary.
    Coded(&'p Dictionary, Vec<i64>),
}

/// Block without doubles, of which the integers are not described yet.
const PLAIN: DoubleBlock = DoubleBlock { coding: DoubleCoding::Ordered, exceptions: 0 };

/// Encodes a column, given as arrays of its type, one after another.
pub(crate) fn encode_page(data_type: DataType, arrays: &[ColumnArray<'_>]) -> Vec<u8> {
    let rows = arrays.iter().map(|array| array.array().len()).sum();
    let mut valid: Vec<bool> = Vec::new();
    if arrays.iter().any(|array| array.array().null_count() > 0) {
        valid =
            arrays.iter().flat_map(|of| (0..of.array().len()).map(|row| of.array().is_valid(row))).collect();
    }
    encode_values(&values_of(data_type, arrays, rows, &valid), &valid)
}

/// Encodes the values of a column; `valid` tells of each whether it is not NULL, and is empty if all are.
pub(crate) fn encode_values(values: &PageValues<'_>, valid: &[bool]) -> Vec<u8> {
    assert!(
        valid.is_empty() || valid.len() == values.len(),
        "each of {} values is NULL or not, not each of {}",
        values.len(),
        valid.len()
    );
    let mut words = header(values.len());
    let (kind, blocks) = match values {
        PageValues::Integers(values) => (INTEGERS, integer_blocks(values, valid, &mut words)),
        PageValues::Doubles(precision, values) => {
            let kind = if *precision == Precision::Single { SINGLES } else { DOUBLES };
            (kind, double_blocks(values, valid, *precision, &mut words))
        }
        PageValues::Wide(values) => (WIDE, wide_blocks(values, valid, &mut words)),
        PageValues::Texts(texts) => match Dictionary::of(texts) {
            Some((dictionary, codes)) => coded_blocks(&dictionary, &codes, valid, &mut words),
            None => text_blocks(texts, valid, &mut words),
        },
        PageValues::Coded(dictionary, codes) => coded_blocks(dictionary, codes, valid, &mut words),
    };
    words[2] = kind;
    let rows: usize = blocks.iter().map(|block| block.rows).sum();
    assert_eq!(rows, values.len(), "each row is in a block");
    let bytes = finish(&blocks, words);
    debug_assert!(
        ColumnPage::open(&bytes).is_some_and(|page| page.blocks().len() == blocks.len()),
        "a page that is written can be read"
    );
    bytes
}

impl PageValues<'_> {
    /// Number of values.
    fn len(&self) -> usize {
        match self {
            PageValues::Integers(values) | PageValues::Coded(_, values) => values.len(),
            PageValues::Doubles(_, values) => values.len(),
            PageValues::Wide(values) => values.len(),
            PageValues::Texts(texts) => texts.len(),
        }
    }
}

/// Kind and blocks of strings that a dictionary has.
fn coded_blocks(
    dictionary: &Dictionary,
    codes: &[i64],
    valid: &[bool],
    words: &mut Vec<u32>,
) -> (u32, Vec<Block>) {
    debug_assert!(
        codes.iter().enumerate().all(|(row, code)| {
            (0..dictionary.len() as i64).contains(code) || valid.get(row) == Some(&false)
        }),
        "each code is of one of {} entries",
        dictionary.len()
    );
    let blocks = integer_blocks(codes, valid, words);
    words[4] = words.len() as u32;
    dictionary.encode(words);
    (DICTIONARY, blocks)
}

/// Words of a page before its blocks.
fn header(rows: usize) -> Vec<u32> {
    assert!(u32::try_from(rows).is_ok(), "the header of a page has its {rows} rows");
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
    let (least, greatest) = (i64::MIN, i64::MAX);
    Block { rows, least, greatest, nulls, integers, data, valid, texts: 0, doubles: PLAIN }
}

fn encode_validity(valid: &[bool], words: &mut Vec<u32>) -> (usize, usize) {
    assert!(valid.len() <= BLOCK_ROWS, "a bitmap has the {} rows of a block", valid.len());
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
        let rows = values.len();
        debug_assert!(least <= greatest && nulls <= rows, "{least} to {greatest}, {nulls} of {rows} NULL");
        blocks.push(Block { rows, least, greatest, nulls, integers, data, valid, texts: 0, doubles: PLAIN });
    }
    blocks
}

fn double_blocks(values: &[f64], valid: &[bool], precision: Precision, words: &mut Vec<u32>) -> Vec<Block> {
    let is_valid = |row: usize| valid.get(row).copied().unwrap_or(true);
    let candidates = DoubleCoding::candidates(values, precision, is_valid);
    let block = |(number, values): (usize, &[f64])| {
        let of_block = valid_of(valid, number);
        let encoded = DoubleBlock::encode((values, of_block), precision, &candidates, words);
        let plain = plain_block(values.len(), encoded.data, of_block, words);
        Block {
            least: encoded.least,
            greatest: encoded.greatest,
            integers: encoded.integers,
            doubles: encoded.doubles,
            ..plain
        }
    };
    values.chunks(BLOCK_ROWS).enumerate().map(block).collect()
}

fn wide_blocks(values: &[i128], valid: &[bool], words: &mut Vec<u32>) -> Vec<Block> {
    let block = |(number, values): (usize, &[i128])| {
        let data = words.len();
        words.extend(values.iter().flat_map(|value| [0, 32, 64, 96].map(|bit| (value >> bit) as u32)));
        plain_block(values.len(), data, valid_of(valid, number), words)
    };
    values.chunks(BLOCK_ROWS).enumerate().map(block).collect()
}

/// Kind and blocks of strings, by symbols where these make them smaller.
fn text_blocks(texts: &[&str], valid: &[bool], words: &mut Vec<u32>) -> (u32, Vec<Block>) {
    let symbols = SymbolTable::of_strings(texts);
    let block = |(number, texts): (usize, &[&str])| {
        let (data, integers, at) = encode_texts(texts, symbols.as_ref(), words);
        let block = plain_block(texts.len(), data, valid_of(valid, number), words);
        Block { integers, texts: at, ..block }
    };
    let blocks = texts.chunks(BLOCK_ROWS).enumerate().map(block).collect();
    let Some(symbols) = symbols else { return (TEXTS, blocks) };
    words[4] = words.len() as u32;
    symbols.write(words);
    (SYMBOLS, blocks)
}

fn finish(blocks: &[Block], mut words: Vec<u32>) -> Vec<u8> {
    assert!(u32::try_from(words.len()).is_ok(), "places in a page have 32 bits: {} words", words.len());
    let first = HEADER_WORDS + blocks.len() * BLOCK_WORDS;
    for (number, block) in blocks.iter().enumerate() {
        let IntegerBlock { encoding, bits, end_bits, base } = block.integers;
        let halves = |value: i64| [value as u32, (value >> 32) as u32];
        let [least, greatest, base] = [block.least, block.greatest, base].map(halves);
        assert!(
            first <= block.data && block.data <= words.len() && bits <= 64 && end_bits <= 32,
            "the data of block {number} lie at {} of {} words, {bits} and {end_bits} bits each",
            block.data,
            words.len()
        );
        // A block has strings or exceptions.
        assert!(block.texts == 0 || block.doubles.exceptions == 0, "block {number} has strings, or doubles");
        let aside = block.texts.max(block.doubles.exceptions);
        let described = [
            [least[0], least[1], greatest[0], greatest[1]],
            [base[0], base[1], encoding.code() | bits << 8 | end_bits << 16, block.nulls as u32],
            [block.data as u32, block.valid as u32, aside as u32, block.doubles.coding.word()],
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
        DataType::Real => PageValues::Doubles(Precision::Single, doubles),
        DataType::Double => PageValues::Doubles(Precision::Double, doubles),
        DataType::Decimal { .. } => {
            let short: Option<Vec<i64>> = wide
                .iter()
                .enumerate()
                .map(|(row, value)| if is_valid(row) { i64::try_from(*value).ok() } else { Some(0) })
                .collect();
            short.map_or(PageValues::Wide(wide), PageValues::Integers)
        }
        DataType::Interval => PageValues::Wide(wide),
        DataType::Varchar => PageValues::Texts(texts),
        _ => PageValues::Integers(integers),
    }
}
