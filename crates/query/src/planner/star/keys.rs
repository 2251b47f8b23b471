//! Map from the keys of a dimension to its rows, and its probing by columns of the fact.
//!
//! - Keys in a small range are a bitmap, so that the keys of a dimension stay in a cache near the processor
//!   while the fact streams by; the rows behind them are an array, which only rows that passed all dimensions
//!   read. Keys in a wide range are a hash table.
//! - NULL is no key and matches none.
//! - Rows of equal keys are a chain, in the order of the dimension.
//! - Memory: [`KeyRange::bytes`] before the map is made, [`KeyMap::bytes`] after.

use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::datatypes::{DataType, Date32Type, Int8Type, Int16Type, Int32Type, Int64Type};
use datafusion::common::hash_map::Entry;
use datafusion::common::{HashMap, Result as DFResult, internal_err};

/// Positions in the range of keys that are always mapped by position.
const DENSE_KEYS_MIN: u64 = 1 << 20;
/// Positions in the range of keys for each row, up to which keys are mapped by position.
const POSITIONS_OF_ROW_MAX: u64 = 32;
/// End of a chain of rows.
const END: u32 = u32::MAX;

/// Types of keys that the map takes.
pub(crate) fn is_key_type(data_type: &DataType) -> bool {
    is_integer(data_type) || *data_type == DataType::Date32
}

/// Types of keys among which widening casts change no comparison.
pub(crate) fn is_integer(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64)
}

/// Values of a key column.
#[derive(Clone, Copy)]
pub(super) enum KeyValues<'a> {
    Int8(&'a [i8]),
    Int16(&'a [i16]),
    Int32(&'a [i32]),
    Int64(&'a [i64]),
}

/// Key column: its values, and which of them are NULL.
#[derive(Clone, Copy)]
pub(crate) struct KeyColumn<'a> {
    values: KeyValues<'a>,
    nulls: Option<&'a NullBuffer>,
}

/// Calls `$body` with `$keys` as the typed slice of a [`KeyValues`].
macro_rules! with_typed {
    ($values:expr, $keys:ident => $body:expr) => {
        match $values {
            KeyValues::Int8($keys) => $body,
            KeyValues::Int16($keys) => $body,
            KeyValues::Int32($keys) => $body,
            KeyValues::Int64($keys) => $body,
        }
    };
}

impl<'a> KeyColumn<'a> {
    /// Key column of an array; an error if it is of another type.
    pub(crate) fn of(array: &'a dyn Array) -> DFResult<KeyColumn<'a>> {
        let values = match array.data_type() {
            DataType::Int8 => KeyValues::Int8(array.as_primitive::<Int8Type>().values()),
            DataType::Int16 => KeyValues::Int16(array.as_primitive::<Int16Type>().values()),
            DataType::Int32 => KeyValues::Int32(array.as_primitive::<Int32Type>().values()),
            DataType::Int64 => KeyValues::Int64(array.as_primitive::<Int64Type>().values()),
            DataType::Date32 => KeyValues::Int32(array.as_primitive::<Date32Type>().values()),
            other => return internal_err!("a star join has no keys of type {other}"),
        };
        Ok(KeyColumn { values, nulls: array.nulls().filter(|nulls| nulls.null_count() > 0) })
    }

    /// Key of a row; `None` if it is NULL.
    pub(super) fn get(&self, row: usize) -> Option<i64> {
        if self.nulls.is_some_and(|nulls| nulls.is_null(row)) {
            return None;
        }
        Some(with_typed!(self.values, keys => wide(keys[row])))
    }

    fn len(&self) -> usize {
        with_typed!(self.values, keys => keys.len())
    }
}

/// Smallest and largest key, and the number of rows that have one.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct KeyRange {
    bounds: Option<(i64, i64)>,
    keys: u64,
}

impl KeyRange {
    /// Adds the keys of a column.
    pub(crate) fn extend(&mut self, column: &KeyColumn<'_>) {
        for key in (0..column.len()).filter_map(|row| column.get(row)) {
            let (min, max) = self.bounds.unwrap_or((key, key));
            self.bounds = Some((min.min(key), max.max(key)));
            self.keys += 1;
        }
    }

    /// Number of positions from the smallest to the largest key, if keys are mapped by position.
    fn positions(&self) -> Option<u64> {
        let Some((min, max)) = self.bounds else { return Some(0) };
        let positions = (max.wrapping_sub(min) as u64).checked_add(1)?;
        let positions_max = DENSE_KEYS_MIN.max(self.keys.saturating_mul(POSITIONS_OF_ROW_MAX));
        (positions <= positions_max.min(u64::from(u32::MAX))).then_some(positions)
    }

    /// Returns true if a map of the keys has a bit for each.
    pub(crate) fn is_dense(&self) -> bool {
        self.positions().is_some()
    }

    /// Memory of the bits of the keys.
    pub(crate) fn bytes_of_bits(&self) -> usize {
        self.positions().map_or(0, |positions| positions as usize / 8 + size_of::<u64>())
    }

    /// Upper bound of the memory of a map of `rows` rows.
    pub(super) fn bytes(&self, rows: usize) -> usize {
        let map = match self.positions() {
            Some(positions) => positions as usize * size_of::<u32>() + positions as usize / 8,
            None => self.keys as usize * 2 * size_of::<(i64, u32)>(),
        };
        map + rows * size_of::<u32>()
    }
}

/// Structure behind the map.
#[derive(Debug)]
enum Lookup {
    /// By the position in the range of keys.
    Dense {
        /// Bit of each key, and a word of zeros behind the last one.
        bits: Vec<u64>,
        /// First row of each key; empty if rows are not asked for.
        rows: Vec<u32>,
    },
    /// First rows of keys.
    Sparse(HashMap<i64, u32>),
}

/// Map of the keys of a dimension; see the [module](self).
#[derive(Debug)]
pub(crate) struct KeyMap {
    min: i64,
    max: i64,
    /// Positions from `min` to `max` of a dense map.
    positions: u64,
    distinct: u64,
    lookup: Lookup,
    /// Next row with the same key of each row; empty where all keys are different.
    next: Vec<u32>,
}

/// Knowledge that is asked of a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LookupResult {
    /// Keys alone, however many rows have them.
    Keys,
    /// Number of rows of a key; the rows where it is not one.
    Matches,
    /// Rows of a key.
    Rows,
}

/// Maker of a [`KeyMap`]: takes the keys of a dimension from its last row to its first.
pub(crate) struct KeyMapBuilder {
    map: KeyMap,
    wanted: LookupResult,
    rows: usize,
    /// Row of the key that comes next, plus one.
    row: usize,
}

impl KeyMapBuilder {
    /// Map of `rows` rows with keys in a range.
    pub(crate) fn new(range: &KeyRange, rows: usize, wanted: LookupResult) -> KeyMapBuilder {
        let (min, max) = range.bounds.unwrap_or((0, 0));
        let positions = range.positions();
        let lookup = match positions {
            Some(positions) => Lookup::Dense {
                bits: vec![0; positions as usize / 64 + 1],
                rows: if wanted == LookupResult::Rows { vec![0; positions as usize] } else { Vec::new() },
            },
            None => Lookup::Sparse(HashMap::with_capacity(range.keys as usize)),
        };
        let positions = positions.unwrap_or(0);
        let map = KeyMap { min, max, positions, distinct: 0, lookup, next: Vec::new() };
        KeyMapBuilder { map, wanted, rows, row: rows }
    }

    /// Adds the keys of the rows before those added; false if the rows of a key must be known and are not:
    /// then the map must be built again with [`LookupResult::Rows`].
    pub(crate) fn push_before(&mut self, column: &KeyColumn<'_>) -> bool {
        for at in (0..column.len()).rev() {
            self.row -= 1;
            let Some(key) = column.get(at) else { continue };
            let row = self.row as u32;
            let before = match &mut self.map.lookup {
                Lookup::Dense { bits, rows } => {
                    let position = key.wrapping_sub(self.map.min) as u64 as usize;
                    let (word, bit) = (&mut bits[position / 64], 1 << (position % 64));
                    let is_known = *word & bit != 0;
                    *word |= bit;
                    if rows.is_empty() {
                        if is_known && self.wanted != LookupResult::Keys {
                            return false;
                        }
                        is_known.then_some(row)
                    } else {
                        let before = std::mem::replace(&mut rows[position], row);
                        is_known.then_some(before)
                    }
                }
                Lookup::Sparse(rows) => match rows.entry(key) {
                    Entry::Vacant(entry) => {
                        entry.insert(row);
                        None
                    }
                    Entry::Occupied(mut entry) => Some(entry.insert(row)),
                },
            };
            match before {
                None => self.map.distinct += 1,
                Some(_) if self.wanted == LookupResult::Keys => {}
                Some(before) => {
                    if self.map.next.is_empty() {
                        self.map.next = vec![END; self.rows];
                    }
                    self.map.next[self.row] = before;
                }
            }
        }
        true
    }

    pub(crate) fn finish(self) -> KeyMap {
        self.map
    }
}

impl KeyMap {
    /// Smallest and largest key; `None` if there is no key.
    pub(crate) fn bounds(&self) -> Option<(i64, i64)> {
        (self.distinct > 0).then_some((self.min, self.max))
    }

    /// Number of different keys.
    pub(crate) fn distinct(&self) -> u64 {
        self.distinct
    }

    /// Keys as bits: bit `k - min` of the words is set if there is a key `k`. `None` where the range of keys is
    /// too wide for it.
    pub(crate) fn bitmap(&self) -> Option<&[u64]> {
        match &self.lookup {
            Lookup::Dense { bits, .. } => Some(bits),
            Lookup::Sparse(_) => None,
        }
    }

    /// Returns true if there is this key.
    pub(crate) fn contains(&self, key: i64) -> bool {
        match &self.lookup {
            Lookup::Dense { bits, .. } => has(bits, self.positions, self.min, key),
            Lookup::Sparse(rows) => rows.contains_key(&key),
        }
    }

    /// Returns true if several rows have one key.
    pub(super) fn has_duplicates(&self) -> bool {
        !self.next.is_empty()
    }

    /// Next row with the key of `row`.
    pub(super) fn next(&self, row: u32) -> Option<u32> {
        self.next.get(row as usize).copied().filter(|next| *next != END)
    }

    /// Share of the range of keys that are keys: a first guess of the share of the fact that finds one.
    pub(super) fn fill(&self) -> f64 {
        let range = self.max.wrapping_sub(self.min) as u64 as f64 + 1.0;
        self.distinct as f64 / range
    }

    /// Cost of probing one key, relative to other maps.
    pub(super) fn cost(&self) -> f64 {
        match &self.lookup {
            Lookup::Dense { .. } => 1.0,
            Lookup::Sparse(_) => 8.0,
        }
    }

    /// Memory of the map.
    pub(super) fn bytes(&self) -> usize {
        let lookup = match &self.lookup {
            Lookup::Dense { bits, rows } => bits.len() * size_of::<u64>() + rows.len() * size_of::<u32>(),
            Lookup::Sparse(rows) => rows.allocation_size(),
        };
        lookup + self.next.len() * size_of::<u32>()
    }

    /// Puts the positions of all keys of a column that the map has into `selection`.
    pub(super) fn select(&self, column: &KeyColumn<'_>, selection: &mut Vec<u32>) {
        with_typed!(column.values, keys => self.select_typed(keys, column.nulls, selection));
    }

    /// Leaves of a selection of a column's keys those that the map has.
    pub(super) fn refine(&self, column: &KeyColumn<'_>, selection: &mut Vec<u32>) {
        with_typed!(column.values, keys => self.refine_typed(keys, column.nulls, selection));
    }

    fn select_typed<K: Copy + Into<i64>>(
        &self,
        keys: &[K],
        nulls: Option<&NullBuffer>,
        selection: &mut Vec<u32>,
    ) {
        let (min, positions) = (self.min, self.positions);
        match (&self.lookup, nulls) {
            (Lookup::Dense { .. }, None) if self.distinct == positions => {
                all_where(keys, selection, |_, key| (key.wrapping_sub(min) as u64) < positions);
            }
            (Lookup::Dense { bits, .. }, None) => {
                all_where(keys, selection, |_, key| has(bits, positions, min, key));
            }
            (Lookup::Dense { bits, .. }, Some(nulls)) => {
                all_where(keys, selection, |at, key| nulls.is_valid(at) & has(bits, positions, min, key));
            }
            (Lookup::Sparse(rows), nulls) => all_where(keys, selection, |at, key| {
                nulls.is_none_or(|nulls| nulls.is_valid(at)) && rows.contains_key(&key)
            }),
        }
    }

    fn refine_typed<K: Copy + Into<i64>>(
        &self,
        keys: &[K],
        nulls: Option<&NullBuffer>,
        selection: &mut Vec<u32>,
    ) {
        let (min, positions) = (self.min, self.positions);
        match (&self.lookup, nulls) {
            (Lookup::Dense { bits, .. }, None) => {
                selected_where(keys, selection, |_, key| has(bits, positions, min, key));
            }
            (Lookup::Dense { bits, .. }, Some(nulls)) => {
                selected_where(keys, selection, |at, key| {
                    nulls.is_valid(at) & has(bits, positions, min, key)
                });
            }
            (Lookup::Sparse(rows), nulls) => selected_where(keys, selection, |at, key| {
                nulls.is_none_or(|nulls| nulls.is_valid(at)) && rows.contains_key(&key)
            }),
        }
    }

    /// First rows of the selected keys of a column, all of which the map must have; the map must have been
    /// built with rows.
    pub(super) fn rows(&self, column: &KeyColumn<'_>, selection: &[u32], found: &mut Vec<u32>) {
        found.clear();
        with_typed!(column.values, keys => match &self.lookup {
            Lookup::Dense { rows, .. } => {
                let min = self.min;
                found.extend(selection.iter().map(|at| {
                    let key = wide(keys[*at as usize]);
                    rows[key.wrapping_sub(min) as u64 as usize]
                }));
            }
            Lookup::Sparse(rows) => {
                found.extend(selection.iter().map(|at| rows[&wide(keys[*at as usize])]));
            }
        });
    }
}

#[inline(always)]
fn wide<K: Into<i64>>(key: K) -> i64 {
    key.into()
}

/// Returns true if the bit of a key is set. A key outside of the range reads the bit behind the last one, which
/// is not set: no branch depends on the key.
#[inline(always)]
fn has(bits: &[u64], positions: u64, min: i64, key: i64) -> bool {
    let position = (key.wrapping_sub(min) as u64).min(positions);
    bits[(position / 64) as usize] >> (position % 64) & 1 == 1
}

/// Selects the positions of the keys that meet a condition, without a branch that depends on it.
#[inline(always)]
fn all_where<K: Copy + Into<i64>>(
    keys: &[K],
    selection: &mut Vec<u32>,
    condition: impl Fn(usize, i64) -> bool,
) {
    selection.resize(keys.len(), 0);
    let mut found = 0;
    for (at, key) in keys.iter().enumerate() {
        selection[found] = at as u32;
        found += usize::from(condition(at, wide(*key)));
    }
    selection.truncate(found);
}

/// Leaves those of the selected positions whose keys meet a condition.
#[inline(always)]
fn selected_where<K: Copy + Into<i64>>(
    keys: &[K],
    selection: &mut Vec<u32>,
    condition: impl Fn(usize, i64) -> bool,
) {
    let mut found = 0;
    for next in 0..selection.len() {
        let at = selection[next];
        selection[found] = at;
        found += usize::from(condition(at as usize, wide(keys[at as usize])));
    }
    selection.truncate(found);
}
