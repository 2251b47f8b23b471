//! Numbers of the groups of a window, by their keys: a key is copied only when its group is new.
//!
//! Keys of one column of integers, days or times are numbers in a hash map; others are rows in Arrow's row
//! format, whose bytes are equal where the values are, and in their order. Hash functions are seeded per map,
//! so keys cannot be made to collide from outside.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType,
};
use arrow_array::{ArrayRef, PrimitiveArray};
use arrow_row::{RowConverter, Rows, SortField};
use arrow_schema::{ArrowError, DataType as ArrowType};
use entresol_tables::normalize_double;
use hashbrown::hash_map::Entry;
use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use std::cmp::Ordering;
use std::hash::BuildHasher;
use std::sync::Arc;

/// Bytes of an entry of a hash table, with the spare room of one that grows.
const ENTRY_BYTES: usize = 32;

/// Groups of a window.
pub(crate) struct GroupIndex {
    keys: Keys,
}

enum Keys {
    /// Without group columns there is one group.
    One {
        groups: usize,
    },
    Numbers {
        data_type: ArrowType,
        groups: HashMap<i64, u32>,
        values: Vec<i64>,
    },
    Rows {
        converter: RowConverter,
        rows: Rows,
        groups: HashTable<u32>,
        hasher: DefaultHashBuilder,
    },
}

impl GroupIndex {
    /// Index of groups with keys of these types; `groups` is their expected number.
    pub(crate) fn new(types: &[ArrowType], groups: usize) -> Result<GroupIndex, ArrowError> {
        let keys = match types {
            [] => Keys::One { groups: 0 },
            [
                data_type @ (ArrowType::Int16
                | ArrowType::Int32
                | ArrowType::Int64
                | ArrowType::Date32
                | ArrowType::Timestamp(..)),
            ] => Keys::Numbers {
                data_type: data_type.clone(),
                groups: HashMap::with_capacity(groups),
                values: Vec::with_capacity(groups),
            },
            types => {
                let converter = RowConverter::new(types.iter().cloned().map(SortField::new).collect())?;
                Keys::Rows {
                    rows: converter.empty_rows(groups, 0),
                    converter,
                    groups: HashTable::with_capacity(groups),
                    hasher: DefaultHashBuilder::default(),
                }
            }
        };
        Ok(GroupIndex { keys })
    }

    pub(crate) fn len(&self) -> usize {
        match &self.keys {
            Keys::One { groups } => *groups,
            Keys::Numbers { values, .. } => values.len(),
            Keys::Rows { rows, .. } => rows.num_rows(),
        }
    }

    /// Estimated bytes of memory of the keys.
    pub(crate) fn bytes(&self) -> usize {
        match &self.keys {
            Keys::One { .. } => 0,
            Keys::Numbers { values, .. } => values.len() * (ENTRY_BYTES + size_of::<i64>()),
            Keys::Rows { rows, .. } => rows.size() + rows.num_rows() * ENTRY_BYTES,
        }
    }

    /// Sets `numbers` to the groups of rows with these keys, which have no NULL; new groups get the next
    /// numbers.
    pub(crate) fn number(&mut self, keys: &[ArrayRef], numbers: &mut Vec<u32>) -> Result<(), ArrowError> {
        numbers.clear();
        match &mut self.keys {
            Keys::One { .. } => unreachable!("without columns the number of rows is not known"),
            Keys::Numbers { data_type, groups, values } => {
                let key = &keys[0];
                match data_type {
                    ArrowType::Int16 => number_each(key.as_primitive::<Int16Type>(), groups, values, numbers),
                    ArrowType::Int32 => number_each(key.as_primitive::<Int32Type>(), groups, values, numbers),
                    ArrowType::Date32 => {
                        number_each(key.as_primitive::<Date32Type>(), groups, values, numbers);
                    }
                    ArrowType::Int64 => number_each(key.as_primitive::<Int64Type>(), groups, values, numbers),
                    _ => {
                        let key = key.as_primitive::<TimestampMicrosecondType>();
                        number_each(key, groups, values, numbers);
                    }
                }
            }
            Keys::Rows { converter, rows, groups, hasher } => {
                let keys: Vec<ArrayRef> = keys.iter().map(normalized).collect();
                let found = converter.convert_columns(&keys)?;
                for row in found.iter() {
                    let hash = hasher.hash_one(row.as_ref());
                    let number = match groups.find(hash, |&group| rows.row(group as usize) == row) {
                        Some(group) => *group,
                        None => {
                            let group = rows.num_rows() as u32;
                            rows.push(row);
                            let rehash = |&group: &u32| hasher.hash_one(rows.row(group as usize).as_ref());
                            groups.insert_unique(hash, group, rehash);
                            group
                        }
                    };
                    numbers.push(number);
                }
            }
        }
        Ok(())
    }

    /// Sets `numbers` to the one group of so many rows: without group columns.
    pub(crate) fn number_one(&mut self, rows: usize, numbers: &mut Vec<u32>) {
        numbers.clear();
        numbers.resize(rows, 0);
        if let Keys::One { groups } = &mut self.keys {
            *groups = (*groups).max(rows.min(1));
        }
    }

    /// Compares groups by their keys.
    pub(crate) fn compare(&self, one: u32, other: u32) -> Ordering {
        match &self.keys {
            Keys::One { .. } => Ordering::Equal,
            Keys::Numbers { values, .. } => values[one as usize].cmp(&values[other as usize]),
            Keys::Rows { rows, .. } => rows.row(one as usize).cmp(&rows.row(other as usize)),
        }
    }

    /// Sorts groups by their keys.
    pub(crate) fn sort(&self, groups: &mut [u32]) {
        match &self.keys {
            Keys::One { .. } => {}
            Keys::Numbers { values, .. } => groups.sort_unstable_by_key(|&group| values[group as usize]),
            Keys::Rows { rows, .. } => {
                groups.sort_unstable_by(|&a, &b| rows.row(a as usize).cmp(&rows.row(b as usize)));
            }
        }
    }

    /// Arrays of the keys of these groups.
    pub(crate) fn keys(&self, groups: &[u32]) -> Result<Vec<ArrayRef>, ArrowError> {
        match &self.keys {
            Keys::One { .. } => Ok(Vec::new()),
            Keys::Numbers { data_type, values, .. } => {
                let values = groups.iter().map(|&group| values[group as usize]);
                Ok(vec![match data_type {
                    ArrowType::Int16 => Arc::new(PrimitiveArray::<Int16Type>::from_iter_values(
                        values.map(|value| value as i16),
                    )),
                    ArrowType::Int32 => Arc::new(PrimitiveArray::<Int32Type>::from_iter_values(
                        values.map(|value| value as i32),
                    )),
                    ArrowType::Date32 => Arc::new(PrimitiveArray::<Date32Type>::from_iter_values(
                        values.map(|value| value as i32),
                    )),
                    ArrowType::Int64 => Arc::new(PrimitiveArray::<Int64Type>::from_iter_values(values)),
                    data_type => {
                        let array = PrimitiveArray::<TimestampMicrosecondType>::from_iter_values(values);
                        Arc::new(array.with_data_type(data_type.clone()))
                    }
                }])
            }
            Keys::Rows { converter, rows, .. } => {
                converter.convert_rows(groups.iter().map(|&group| rows.row(group as usize)))
            }
        }
    }
}

fn number_each<T: ArrowPrimitiveType>(
    keys: &PrimitiveArray<T>,
    groups: &mut HashMap<i64, u32>,
    values: &mut Vec<i64>,
    numbers: &mut Vec<u32>,
) where
    T::Native: Into<i64>,
{
    numbers.extend(keys.values().iter().map(|&key| {
        let key: i64 = key.into();
        match groups.entry(key) {
            Entry::Occupied(entry) => *entry.get(),
            Entry::Vacant(entry) => {
                let group = values.len() as u32;
                values.push(key);
                *entry.insert(group)
            }
        }
    }));
}

/// Array in which equal doubles have equal bits.
pub(crate) fn normalized(array: &ArrayRef) -> ArrayRef {
    match array.data_type() {
        ArrowType::Float64 => {
            Arc::new(array.as_primitive::<Float64Type>().unary::<_, Float64Type>(normalize_double))
        }
        ArrowType::Float32 => Arc::new(
            array
                .as_primitive::<Float32Type>()
                .unary::<_, Float32Type>(|value| normalize_double(f64::from(value)) as f32),
        ),
        _ => Arc::clone(array),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{Float64Array, Int32Array, StringArray};

    fn number(index: &mut GroupIndex, keys: &[ArrayRef]) -> Vec<u32> {
        let mut numbers = Vec::new();
        index.number(keys, &mut numbers).unwrap();
        numbers
    }

    #[test]
    fn groups_get_numbers_in_the_order_of_their_coming() {
        let keys: Vec<ArrayRef> = vec![Arc::new(Int32Array::from(vec![7, -1, 7, 3, -1]))];
        let texts: Vec<ArrayRef> = vec![Arc::new(StringArray::from(vec!["g", "a", "g", "c", "a"]))];
        for keys in [keys, texts] {
            let mut index = GroupIndex::new(&[keys[0].data_type().clone()], 0).unwrap();
            assert_eq!(number(&mut index, &keys), [0, 1, 0, 2, 1]);
            assert_eq!(number(&mut index, &[keys[0].slice(3, 2)]), [2, 1]);
            assert_eq!(index.len(), 3);
            let mut order = vec![0, 1, 2];
            index.sort(&mut order);
            assert_eq!(order, [1, 2, 0]);
            let sorted = index.keys(&order).unwrap();
            assert_eq!(
                *sorted[0],
                *arrow_select::take::take(&keys[0], &Int32Array::from(vec![1, 3, 0]), None).unwrap()
            );
        }
    }

    #[test]
    fn equal_values_are_of_one_group() {
        let doubles: ArrayRef = Arc::new(Float64Array::from(vec![0.0, -0.0, f64::NAN, -f64::NAN, 1.0]));
        let strings: ArrayRef = Arc::new(StringArray::from(vec!["a", "a", "a\0", "a\0", ""]));
        let types = [ArrowType::Float64, ArrowType::Utf8];
        let mut index = GroupIndex::new(&types, 0).unwrap();
        assert_eq!(number(&mut index, &[doubles, strings]), [0, 0, 1, 1, 2]);
    }
}
