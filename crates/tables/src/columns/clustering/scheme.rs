//! Scheme of a clustering: the bins of its dimensions and the order of their bits, as of some version.
//!
//! - It is made from the first rows that are merged or loaded, and anew when the table has [`GROWTH`] times as many; a
//!   block names the version that its keys are of, so blocks of several versions stand beside each other, and each
//!   is pruned by its own.
//! - Schemes are entries of the column state. They are committed before the rows that use them, never change and are
//!   never removed, so every block of every snapshot has its own.
//! - Memory: at most some 16 KiB for each dimension.

use crate::batch::ColumnArray;
use crate::columns::clustering::bins::{DIMENSION_BITS_MAX, DimensionBins, number_of_double};
use crate::columns::clustering::key::{KEY_BITS_MAX, KeyBits, KeyBox};
use crate::columns::condition::{ColumnCondition, ColumnFilter, IntegerSet};
use crate::columns::store::column_id;
use crate::error::Result;
use crate::schema::Schema;
use crate::schema::clustering::{ClusteringDefinition, Interleave};
use crate::schema::parts::Reader;
use arrow_array::{Array, ArrayRef};

/// Growth of a table with which its scheme is made anew.
pub(crate) const GROWTH: u64 = 4;
/// Number of rows that a table is expected to have at least.
const ROWS_EXPECTED_MIN: u64 = 1 << 20;
/// Bits of a key beyond those that number the blocks, where dimensions have as many different values.
const SPARE_BITS: u32 = 3;
/// Maximum number of values of a set that are looked at one by one.
const SET_VALUES_MAX: u64 = 4096;
const FORMAT: u8 = 1;

/// Scheme; see the [module](self).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scheme {
    pub(crate) version: u32,
    /// Rows of the table when it was made.
    pub(crate) rows: u64,
    /// Column id of each dimension.
    columns: Vec<u16>,
    bins: Vec<DimensionBins>,
    interleave: Interleave,
    key: KeyBits,
}

/// Number of bits that tell so many values apart.
fn bits_of(values: u64) -> u32 {
    u64::BITS - values.max(1).saturating_sub(1).leading_zeros()
}

/// Bits of each dimension: those of the definition, and for the others one after another until there are enough for
/// the blocks, as long as a dimension has as many different values.
fn chosen_bits(definition: &ClusteringDefinition, different: &[u64], blocks: u64) -> Vec<u8> {
    let given = definition.dimensions.iter().map(|dimension| dimension.bits);
    let mut bits: Vec<u8> = given.map(|bits| bits.unwrap_or(1)).collect();
    let enough = (bits_of(blocks) + SPARE_BITS).min(KEY_BITS_MAX);
    let is_free = |at: usize, bits: &[u8]| {
        let most = bits_of(different[at]).clamp(1, u32::from(DIMENSION_BITS_MAX));
        definition.dimensions[at].bits.is_none() && u32::from(bits[at]) < most
    };
    let total = |bits: &[u8]| bits.iter().map(|bits| u32::from(*bits)).sum::<u32>();
    loop {
        let mut has_grown = false;
        for at in 0..bits.len() {
            if total(&bits) < enough && is_free(at, &bits) {
                bits[at] += 1;
                has_grown = true;
            }
        }
        if !has_grown {
            return bits;
        }
    }
}

impl Scheme {
    /// Scheme made from rows, given as arrays of all columns, of a table that has `rows` of them, `block_rows` in a
    /// block.
    pub(crate) fn of(
        version: u32,
        definition: &ClusteringDefinition,
        (table, schema): (&str, &Schema),
        pieces: &[Vec<ArrayRef>],
        (rows, block_rows): (u64, usize),
    ) -> Result<Scheme> {
        let mut samples = Vec::new();
        for dimension in &definition.dimensions {
            let column = &schema.columns()[dimension.column];
            let arrays = pieces.iter().map(|piece| ColumnArray::new(table, column, &piece[dimension.column]));
            samples.push(arrays.collect::<Result<Vec<_>>>()?);
        }
        let finest = |sample: &Vec<ColumnArray<'_>>| DimensionBins::of(sample, 10).bins() as u64;
        let different: Vec<u64> = samples
            .iter()
            .map(finest)
            // As many bins as there are: more values than are counted.
            .map(|bins| if bins >= 1023 { u64::MAX } else { bins })
            .collect();
        let blocks = rows.max(ROWS_EXPECTED_MIN) / block_rows.max(1) as u64;
        let bits = chosen_bits(definition, &different, blocks);
        let bins = samples.iter().zip(&bits).map(|(sample, bits)| DimensionBins::of(sample, *bits)).collect();
        let columns = definition.dimensions.iter().map(|dimension| column_id(schema, dimension.column));
        let (interleave, key) = (definition.interleave, KeyBits::new(&bits, definition.interleave));
        Ok(Scheme { version, rows, columns: columns.collect(), bins, interleave, key })
    }

    /// Returns true if it is one of the dimensions of a definition, with the bits that this names.
    pub(crate) fn is_of(&self, definition: &ClusteringDefinition, schema: &Schema) -> bool {
        let is_dimension = |at: usize| {
            let dimension = &definition.dimensions[at];
            self.columns[at] == column_id(schema, dimension.column)
                && dimension.bits.is_none_or(|bits| bits == self.bins[at].bits())
        };
        self.interleave == definition.interleave
            && self.columns.len() == definition.dimensions.len()
            && (0..self.columns.len()).all(is_dimension)
    }

    /// Returns true if the table has the columns of all of its dimensions.
    pub(crate) fn is_known(&self, schema: &Schema) -> bool {
        let has = |id: &u16| (0..schema.columns().len()).any(|column| column_id(schema, column) == *id);
        self.columns.iter().all(has)
    }

    /// Order of the bits of its keys.
    pub(crate) fn key(&self) -> &KeyBits {
        &self.key
    }

    /// Bits of each dimension.
    #[cfg(test)]
    pub(crate) fn bits(&self) -> impl Iterator<Item = u8> + '_ {
        self.bins.iter().map(DimensionBins::bits)
    }

    /// Keys of rows, given as arrays of all columns.
    pub(crate) fn keys(
        &self,
        (table, schema): (&str, &Schema),
        pieces: &[Vec<ArrayRef>],
    ) -> Result<Vec<u64>> {
        let rows = pieces.iter().map(|piece| piece.first().map_or(0, |array| array.len())).sum();
        let mut keys = vec![0_u64; rows];
        for (at, (id, bins)) in self.columns.iter().zip(&self.bins).enumerate() {
            let known = (0..schema.columns().len()).find(|column| column_id(schema, *column) == *id);
            // Dropped since it is no dimension of the table any more.
            let Some(column) = known else { continue };
            let (mut row, mut last) = (0, (0, 0));
            for piece in pieces {
                let array = ColumnArray::new(table, &schema.columns()[column], &piece[column])?;
                bins.for_each_code(&array, |code| {
                    if code != last.0 {
                        last = (code, self.key.spread(at, code));
                    }
                    keys[row] |= last.1;
                    row += 1;
                });
            }
        }
        Ok(keys)
    }

    /// Box of the keys that rows which meet all filters may have; none if no filter narrows it.
    pub(crate) fn key_box(&self, schema: &Schema, filters: &[ColumnFilter]) -> Option<KeyBox> {
        let (mut keys, mut is_narrow) = (self.key.all(), false);
        for filter in filters {
            let id = column_id(schema, filter.column);
            let Some(at) = self.columns.iter().position(|known| *known == id) else { continue };
            if let Some(codes) = codes_of(&self.bins[at], &filter.condition) {
                self.key.narrow(&mut keys, at, &codes);
                is_narrow = true;
            }
        }
        is_narrow.then_some(keys)
    }

    /// Encodes it: format (1), rows (8), interleave (1), number of dimensions (1), per dimension: column id (2) and
    /// bins; CRC-32C (4).
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![FORMAT];
        bytes.extend_from_slice(&self.rows.to_le_bytes());
        bytes.push(u8::from(self.interleave == Interleave::MajorMinor));
        bytes.push(self.columns.len() as u8);
        for (column, bins) in self.columns.iter().zip(&self.bins) {
            bytes.extend_from_slice(&column.to_le_bytes());
            bins.put(&mut bytes);
        }
        let checksum = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Decodes the scheme of a version; none if it is damaged.
    pub(crate) fn from_bytes(version: u32, bytes: &[u8]) -> Option<Scheme> {
        let (content, checksum) = bytes.split_last_chunk::<4>()?;
        (crc32c::crc32c(content) == u32::from_le_bytes(*checksum)).then_some(())?;
        let mut reader = Reader(content);
        (reader.byte()? == FORMAT).then_some(())?;
        let rows = u64::from_le_bytes(reader.take(8)?.try_into().ok()?);
        let interleave = match reader.byte()? {
            0 => Interleave::RoundRobin,
            1 => Interleave::MajorMinor,
            _ => return None,
        };
        let (mut columns, mut bins) = (Vec::new(), Vec::new());
        for _ in 0..reader.byte()? {
            columns.push(reader.short()? as u16);
            bins.push(DimensionBins::take(&mut reader)?);
        }
        let bits: Vec<u8> = bins.iter().map(DimensionBins::bits).collect();
        let total: u32 = bits.iter().map(|bits| u32::from(*bits)).sum();
        let is_sound = reader.0.is_empty() && total <= KEY_BITS_MAX;
        let key = is_sound.then(|| KeyBits::new(&bits, interleave))?;
        Some(Scheme { version, rows, columns, bins, interleave, key })
    }
}

/// Codes of the values that meet a condition, as sorted ranges, perhaps of others too; none if the condition says
/// nothing about codes.
fn codes_of(bins: &DimensionBins, condition: &ColumnCondition) -> Option<Vec<(u64, u64)>> {
    let number = |number: i64| bins.code_of_number(number.into());
    Some(match condition {
        ColumnCondition::Between { least, greatest } if least > greatest => Vec::new(),
        ColumnCondition::Between { least, greatest } => vec![(number(*least), number(*greatest))],
        ColumnCondition::Among(set) => codes_of_set(bins, set),
        ColumnCondition::Doubles { least, greatest } => {
            let of = |value: f64| bins.code_of_number(number_of_double(value));
            let range = (least <= greatest).then(|| (of(*least), of(*greatest)));
            // Those that are not numbers are for the caller to check.
            joined(range.into_iter().chain([(of(f64::NAN), of(f64::NAN))]).collect())
        }
        ColumnCondition::TextsWithin { least, greatest, .. } => {
            let least = least.as_ref().map_or(bins.least_code(), |least| bins.code_of_text(least));
            let greatest = greatest.as_ref().map_or(bins.greatest_code(), |text| bins.code_of_text(text));
            if least > greatest { Vec::new() } else { vec![(least, greatest)] }
        }
        ColumnCondition::Null => vec![(bins.null_code(), bins.null_code())],
        ColumnCondition::NotNull => vec![(bins.least_code(), bins.greatest_code())],
        ColumnCondition::Texts(_) => return None,
    })
}

/// Codes of the integers of a set.
fn codes_of_set(bins: &DimensionBins, set: &IntegerSet) -> Vec<(u64, u64)> {
    let code = |value: i64| bins.code_of_number(value.into());
    if set.is_empty() {
        return Vec::new();
    }
    let (least, greatest) = set.bounds();
    if set.len() > SET_VALUES_MAX {
        return vec![(code(least), code(greatest))];
    }
    joined(set.values().map(|value| (code(value), code(value))).collect())
}

/// Ranges in order, with those joined that overlap or follow each other.
fn joined(mut ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    ranges.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (first, last) in ranges {
        match joined.last_mut() {
            Some(before) if before.1.saturating_add(1) >= first => before.1 = before.1.max(last),
            _ => joined.push((first, last)),
        }
    }
    joined
}
