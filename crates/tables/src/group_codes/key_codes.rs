//! Codes of group keys: small integers that stand for their values, as ranges and strings become known.
//!
//! The code 0 is NULL. Codes of integers are their distances from the beginning of a range, which grows; those
//! of strings are their places among those that are known.

use arrow_array::cast::AsArray;
use arrow_array::types::{Date32Type, Int16Type, Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType, BooleanArray, PrimitiveArray, StringArray};
use arrow_schema::DataType;
use std::collections::HashMap;
use std::sync::Arc;

/// Most codes of a key.
pub(super) const CODES_MAX: usize = 1 << 20;
/// Most strings of a key.
const STRINGS_MAX: usize = 1 << 12;
/// Codes that a range has room for, at least.
const RANGE_MIN: usize = 64;
/// Slots of the cache of short strings, and the bytes of the longest one.
const CACHE_SLOTS: usize = 1 << 10;
const SHORT_MAX: usize = 15;

/// Codes of one group key.
#[derive(Debug)]
pub(super) enum KeyCodes {
    Integers(IntegerCodes),
    Booleans,
    Strings(StringCodes),
}

/// Codes of a range of integers.
#[derive(Debug)]
pub(super) struct IntegerCodes {
    data_type: DataType,
    /// Value of the code 1.
    first: i64,
    /// Count of values; 0 before there is one.
    values: usize,
}

/// Codes of different strings.
#[derive(Debug)]
pub(super) struct StringCodes {
    strings: Vec<Box<str>>,
    codes: HashMap<Box<str>, u32>,
    /// Room for codes.
    values: usize,
    /// Codes of the last array.
    found: Vec<u32>,
    /// Short strings that were looked up lately, with their codes.
    cache: Vec<(u128, u32)>,
}

/// Change of the codes that are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RoomForCodes {
    /// The values have codes.
    Same,
    /// They have, since there is room for more: codes but that of NULL are greater by this.
    Grown { shift: usize },
    /// They would be too many.
    TooMany,
}

impl KeyCodes {
    /// Codes of keys of a type; none if keys of the type have no codes.
    pub(super) fn of(data_type: &DataType) -> Option<KeyCodes> {
        Some(match data_type {
            DataType::Int16 | DataType::Int32 | DataType::Int64 | DataType::Date32 => {
                KeyCodes::Integers(IntegerCodes { data_type: data_type.clone(), first: 0, values: 0 })
            }
            DataType::Boolean => KeyCodes::Booleans,
            DataType::Utf8 => KeyCodes::Strings(StringCodes {
                strings: Vec::new(),
                codes: HashMap::new(),
                values: 0,
                found: Vec::new(),
                // No string is as long as that says.
                cache: vec![(u128::MAX, 0); CACHE_SLOTS],
            }),
            _ => return None,
        })
    }

    /// Count of codes, NULL's included.
    pub(super) fn count(&self) -> usize {
        1 + match self {
            KeyCodes::Integers(integers) => integers.values,
            KeyCodes::Booleans => 2,
            KeyCodes::Strings(strings) => strings.values,
        }
    }

    /// Bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        match self {
            KeyCodes::Integers(_) | KeyCodes::Booleans => 0,
            KeyCodes::Strings(strings) => {
                let bytes: usize = strings.strings.iter().map(|string| 2 * string.len()).sum();
                let entries = strings.codes.capacity() * size_of::<(Box<str>, u32)>();
                bytes + entries + CACHE_SLOTS * size_of::<(u128, u32)>()
            }
        }
    }

    /// Makes room for the values of an array; none if it is of another type.
    pub(super) fn fit(&mut self, keys: &ArrayRef) -> Option<RoomForCodes> {
        match self {
            KeyCodes::Booleans => keys.as_boolean_opt().map(|_| RoomForCodes::Same),
            KeyCodes::Integers(integers) => Some(
                bounds(keys, &integers.data_type)?.map_or(RoomForCodes::Same, |bounds| integers.fit(bounds)),
            ),
            KeyCodes::Strings(strings) => keys.as_string_opt::<i32>().map(|keys| strings.fit(keys)),
        }
    }

    /// Adds the codes of the values that there was made room for last, times a weight, to the combinations of rows.
    pub(super) fn add_codes(&self, keys: &ArrayRef, weight: usize, combinations: &mut [usize]) -> Option<()> {
        match self {
            KeyCodes::Booleans => add_booleans(keys.as_boolean_opt()?, weight, combinations),
            KeyCodes::Integers(integers) => return integers.add_codes(keys, weight, combinations),
            KeyCodes::Strings(strings) => {
                let codes = combinations.iter_mut().zip(&strings.found);
                codes.for_each(|(combination, &code)| *combination += code as usize * weight);
            }
        }
        Some(())
    }

    /// Values of codes.
    pub(super) fn values(&self, codes: impl Iterator<Item = usize>) -> ArrayRef {
        match self {
            KeyCodes::Booleans => {
                let values = codes.map(|code| (code > 0).then_some(code == 2));
                Arc::new(values.collect::<BooleanArray>())
            }
            KeyCodes::Integers(integers) => integers.values_of(codes),
            KeyCodes::Strings(strings) => {
                let string = |code: usize| code.checked_sub(1).and_then(|at| strings.strings.get(at));
                Arc::new(codes.map(|code| string(code).map(|string| &**string)).collect::<StringArray>())
            }
        }
    }
}

/// Least and greatest value of integers, if there is one that is not NULL. The outer option is none for another type.
#[expect(clippy::option_option, reason = "two reasons for nothing")]
fn bounds(keys: &ArrayRef, data_type: &DataType) -> Option<Option<(i64, i64)>> {
    fn of<T: ArrowPrimitiveType>(keys: &ArrayRef) -> Option<Option<(i64, i64)>>
    where
        T::Native: Into<i64> + Ord,
    {
        let keys = keys.as_primitive_opt::<T>()?;
        let (least, greatest) = match keys.nulls().filter(|nulls| nulls.null_count() > 0) {
            None => {
                let values = keys.values();
                let Some(&first) = values.first() else { return Some(None) };
                values
                    .iter()
                    .fold((first, first), |(least, greatest), &key| (least.min(key), greatest.max(key)))
            }
            Some(_) => {
                let mut values = keys.iter().flatten();
                let Some(first) = values.next() else { return Some(None) };
                values.fold((first, first), |(least, greatest), key| (least.min(key), greatest.max(key)))
            }
        };
        Some(Some((least.into(), greatest.into())))
    }
    match data_type {
        DataType::Int16 => of::<Int16Type>(keys),
        DataType::Int32 => of::<Int32Type>(keys),
        DataType::Date32 => of::<Date32Type>(keys),
        _ => of::<Int64Type>(keys),
    }
}

impl IntegerCodes {
    fn fit(&mut self, (least, greatest): (i64, i64)) -> RoomForCodes {
        let span = |first: i64, last: i64| {
            usize::try_from(last.abs_diff(first)).map_or(usize::MAX, |span| span.saturating_add(1))
        };
        if self.values == 0 {
            let values = span(least, greatest);
            if values >= CODES_MAX {
                return RoomForCodes::TooMany;
            }
            (self.first, self.values) = (least, room(values));
            return RoomForCodes::Grown { shift: 0 };
        }
        let last = self.first.saturating_add_unsigned(self.values as u64 - 1);
        if least >= self.first && greatest <= last {
            return RoomForCodes::Same;
        }
        let first = least.min(self.first);
        let values = span(first, greatest.max(last));
        if values >= CODES_MAX {
            return RoomForCodes::TooMany;
        }
        // Of values in descending order, the next ones are below.
        let values = room(values);
        let first = if least < self.first {
            first.saturating_sub_unsigned((values - span(first, greatest.max(last))) as u64)
        } else {
            first
        };
        let shift = self.first.abs_diff(first) as usize;
        (self.first, self.values) = (first, values);
        RoomForCodes::Grown { shift }
    }

    fn add_codes(&self, keys: &ArrayRef, weight: usize, combinations: &mut [usize]) -> Option<()> {
        fn add<T: ArrowPrimitiveType>(
            keys: &ArrayRef,
            first: i64,
            weight: usize,
            combinations: &mut [usize],
        ) -> Option<()>
        where
            T::Native: Into<i64>,
        {
            let keys: &PrimitiveArray<T> = keys.as_primitive_opt()?;
            let code = |key: T::Native| (key.into().wrapping_sub(first).wrapping_add(1)) as usize;
            let rows = combinations.iter_mut().zip(keys.values());
            match keys.nulls().filter(|nulls| nulls.null_count() > 0) {
                None => rows.for_each(|(combination, &key)| *combination += code(key) * weight),
                Some(nulls) => {
                    for ((combination, &key), is_valid) in rows.zip(nulls.iter()) {
                        if is_valid {
                            *combination += code(key) * weight;
                        }
                    }
                }
            }
            Some(())
        }
        match self.data_type {
            DataType::Int16 => add::<Int16Type>(keys, self.first, weight, combinations),
            DataType::Int32 => add::<Int32Type>(keys, self.first, weight, combinations),
            DataType::Date32 => add::<Date32Type>(keys, self.first, weight, combinations),
            _ => add::<Int64Type>(keys, self.first, weight, combinations),
        }
    }

    /// Values of codes; each is one of a key, so it is of the type.
    fn values_of(&self, codes: impl Iterator<Item = usize>) -> ArrayRef {
        let values = codes.map(|code| {
            let distance = code.checked_sub(1)?;
            Some(self.first.wrapping_add_unsigned(distance as u64))
        });
        match self.data_type {
            DataType::Int16 => {
                Arc::new(values.map(|value| Some(value? as i16)).collect::<PrimitiveArray<Int16Type>>())
            }
            DataType::Int32 => {
                Arc::new(values.map(|value| Some(value? as i32)).collect::<PrimitiveArray<Int32Type>>())
            }
            DataType::Date32 => {
                Arc::new(values.map(|value| Some(value? as i32)).collect::<PrimitiveArray<Date32Type>>())
            }
            _ => Arc::new(values.collect::<PrimitiveArray<Int64Type>>()),
        }
    }
}

/// Room for so many values, with some for more.
fn room(values: usize) -> usize {
    (values + 1).max(RANGE_MIN).next_power_of_two() - 1
}

fn add_booleans(keys: &BooleanArray, weight: usize, combinations: &mut [usize]) {
    for (row, combination) in combinations.iter_mut().enumerate() {
        if keys.is_valid(row) {
            *combination += if keys.value(row) { 2 * weight } else { weight };
        }
    }
}

impl StringCodes {
    /// Looks up the codes of strings, and gives codes to those that have none.
    fn fit(&mut self, keys: &StringArray) -> RoomForCodes {
        self.found.clear();
        for row in 0..keys.len() {
            if keys.is_null(row) {
                self.found.push(0);
                continue;
            }
            let mut code = self.code(keys, row);
            if code == 0 {
                if self.strings.len() == STRINGS_MAX {
                    return RoomForCodes::TooMany;
                }
                let string: Box<str> = keys.value(row).into();
                self.strings.push(string.clone());
                code = self.strings.len() as u32;
                self.codes.insert(string, code);
            }
            self.found.push(code);
        }
        if self.strings.len() <= self.values {
            return RoomForCodes::Same;
        }
        self.values = (self.strings.len() + 1).next_power_of_two().max(4) - 1;
        RoomForCodes::Grown { shift: 0 }
    }

    /// Code of a string; 0 if it has none yet.
    fn code(&mut self, keys: &StringArray, row: usize) -> u32 {
        let Some(short) = short(keys, row) else {
            return self.codes.get(keys.value(row)).copied().unwrap_or_default();
        };
        let mixed = (short as u64 ^ (short >> 64) as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let slot = &mut self.cache[(mixed >> 54) as usize % CACHE_SLOTS];
        if slot.0 != short {
            let Some(&code) = self.codes.get(keys.value(row)) else { return 0 };
            *slot = (short, code);
        }
        slot.1
    }
}

/// Bytes and length of a short string, as one integer; none of one that is longer, or at the end of its buffer.
fn short(keys: &StringArray, row: usize) -> Option<u128> {
    let offsets = keys.value_offsets();
    let (begin, end) = (offsets[row] as usize, offsets[row + 1] as usize);
    let length = end - begin;
    if length > SHORT_MAX {
        return None;
    }
    let bytes: [u8; 16] = keys.value_data().get(begin..begin + 16)?.try_into().ok()?;
    let mask = (1_u128 << (8 * length)) - 1;
    Some(u128::from_le_bytes(bytes) & mask | (length as u128) << 120)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{Int16Array, Int64Array};

    fn codes_of(codes: &KeyCodes, keys: &ArrayRef) -> Vec<usize> {
        let mut combinations = vec![0; keys.len()];
        codes.add_codes(keys, 1, &mut combinations).unwrap();
        combinations
    }

    fn integers(values: &[Option<i64>]) -> ArrayRef {
        Arc::new(values.iter().copied().collect::<Int64Array>())
    }

    #[test]
    fn ranges_grow_to_both_sides_and_no_further_than_they_may() {
        let mut codes = KeyCodes::of(&DataType::Int64).unwrap();
        assert_eq!(codes.fit(&integers(&[None, None])).unwrap(), RoomForCodes::Same);
        assert_eq!(
            codes.fit(&integers(&[Some(-5), None, Some(10)])).unwrap(),
            RoomForCodes::Grown { shift: 0 }
        );
        assert_eq!(codes_of(&codes, &integers(&[Some(-5), None, Some(10)])), [1, 0, 16]);
        assert_eq!(codes.count(), 64);
        assert_eq!(codes.fit(&integers(&[Some(100)])).unwrap(), RoomForCodes::Grown { shift: 0 });
        let RoomForCodes::Grown { shift } = codes.fit(&integers(&[Some(-200)])).unwrap() else {
            panic!("no room")
        };
        let all = integers(&[Some(-200), Some(-5), Some(100), None]);
        let found = codes_of(&codes, &all);
        assert_eq!(found[1], 1 + shift);
        let values = codes.values(found.into_iter());
        assert_eq!(&values, &all);
        for far in [CODES_MAX as i64, i64::MIN, i64::MAX] {
            assert_eq!(codes.fit(&integers(&[Some(far)])).unwrap(), RoomForCodes::TooMany, "{far}");
        }
        assert_eq!(codes.fit(&integers(&[Some(-200)])).unwrap(), RoomForCodes::Same);
    }

    #[test]
    fn ends_of_a_type_have_codes() {
        let ends = [i64::MAX, i64::MAX - 3];
        for ends in [ends, ends.map(|end| -1 - end)] {
            let mut codes = KeyCodes::of(&DataType::Int64).unwrap();
            let first: ArrayRef = integers(&[Some(ends[1])]);
            assert_eq!(codes.fit(&first).unwrap(), RoomForCodes::Grown { shift: 0 });
            let all = integers(&[Some(ends[1]), Some(ends[0])]);
            codes.fit(&all).unwrap();
            let found = codes_of(&codes, &all);
            assert!(found.iter().all(|code| (1..codes.count()).contains(code)), "{found:?}");
            assert_eq!(&codes.values(found.into_iter()), &all);
        }
        let mut codes = KeyCodes::of(&DataType::Int16).unwrap();
        let all: ArrayRef = Arc::new(Int16Array::from(vec![i16::MAX, i16::MIN]));
        codes.fit(&all).unwrap();
        let found = codes_of(&codes, &all);
        assert_eq!(&codes.values(found.into_iter()), &all);
    }

    #[test]
    fn strings_have_codes() {
        let mut codes = KeyCodes::of(&DataType::Utf8).unwrap();
        let long = "long".repeat(9);
        let strings = [
            Some("a"),
            None,
            Some(""),
            Some("a\0"),
            Some("fifteen letters"),
            Some("sixteen letters!"),
            Some(&long),
        ];
        let keys: ArrayRef = Arc::new(strings.iter().copied().collect::<StringArray>());
        assert_eq!(codes.fit(&keys).unwrap(), RoomForCodes::Grown { shift: 0 });
        assert_eq!(codes_of(&codes, &keys), [1, 0, 2, 3, 4, 5, 6]);
        assert_eq!(codes.fit(&keys).unwrap(), RoomForCodes::Same);
        assert_eq!(codes_of(&codes, &keys), [1, 0, 2, 3, 4, 5, 6]);
        assert_eq!(&codes.values([1, 0, 2, 3, 4, 5, 6].into_iter()), &keys);
        let many: ArrayRef =
            Arc::new(StringArray::from_iter_values((0..=STRINGS_MAX).map(|n| n.to_string())));
        assert_eq!(codes.fit(&many).unwrap(), RoomForCodes::TooMany);
    }
}
