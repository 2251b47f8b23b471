//! Groups of rows by codes of their keys: small integers, which as digits of one say where the group is in an array.
//!
//! No key is hashed or compared. Ranges of integers and the strings become known as rows are added; once there would be
//! more than [`GroupCodes::COMBINATIONS_MAX`] combinations, nothing can be added any more, and the groups that are there stay.

mod key_codes;

use arrow_array::ArrayRef;
use arrow_schema::DataType;
use key_codes::{CODES_MAX, KeyCodes, RoomForCodes};

/// Groups of rows; see the [module](self).
#[derive(Debug)]
pub struct GroupCodes {
    keys: Vec<KeyCodes>,
    /// Weight of a code of each key in a combination.
    weights: Vec<usize>,
    /// Group of each combination of codes plus one; 0 if it has not occurred.
    groups: Vec<u32>,
    /// Combination of each group.
    combinations: Vec<u32>,
    /// Combination, then group, of each row that was added last.
    rows: Vec<usize>,
    /// Codes of the groups, once nothing can be added any more.
    known: Option<Vec<Vec<usize>>>,
}

/// Outcome of adding rows to groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddedRows {
    /// The rows have groups.
    All,
    /// None has, and none can be added any more.
    TooManyCodes,
    /// A key is of another type.
    OtherType,
}

impl GroupCodes {
    /// Most combinations of codes.
    pub const COMBINATIONS_MAX: usize = CODES_MAX;

    /// No groups of keys of these types yet; none if keys of a type have no codes, or there is no key.
    pub fn new<'t>(types: impl IntoIterator<Item = &'t DataType>) -> Option<GroupCodes> {
        let keys = types.into_iter().map(KeyCodes::of).collect::<Option<Vec<KeyCodes>>>()?;
        let mut groups = GroupCodes {
            keys,
            weights: Vec::new(),
            groups: Vec::new(),
            combinations: Vec::new(),
            rows: Vec::new(),
            known: None,
        };
        let fits = !groups.keys.is_empty() && groups.lay_out(&[]);
        fits.then_some(groups)
    }

    /// Count of groups.
    pub fn len(&self) -> usize {
        self.known.as_ref().map_or(self.combinations.len(), Vec::len)
    }

    /// Returns true if there is no group.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Group of each of the rows that were added last.
    pub fn of_rows(&self) -> &[usize] {
        &self.rows
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        let keys: usize = self.keys.iter().map(KeyCodes::bytes).sum();
        let arrays = self.groups.capacity() + self.combinations.capacity();
        keys + arrays * size_of::<u32>() + self.rows.capacity() * size_of::<usize>()
    }

    /// Finds the groups of rows, an array for each key, those that are new included.
    pub fn add(&mut self, keys: &[ArrayRef]) -> AddedRows {
        match self.fit(keys) {
            Some(true) => {}
            Some(false) => return AddedRows::TooManyCodes,
            None => return AddedRows::OtherType,
        }
        self.rows.clear();
        self.rows.resize(keys.first().map_or(0, |keys| keys.len()), 0);
        for ((codes, keys), weight) in self.keys.iter().zip(keys).zip(&self.weights) {
            if codes.add_codes(keys, *weight, &mut self.rows).is_none() {
                return AddedRows::OtherType;
            }
        }
        for row in &mut self.rows {
            let group = &mut self.groups[*row];
            if *group == 0 {
                self.combinations.push(*row as u32);
                *group = self.combinations.len() as u32;
            }
            *row = *group as usize - 1;
        }
        AddedRows::All
    }

    /// Keys of the groups, an array for each.
    pub fn keys(&self) -> Vec<ArrayRef> {
        let decoded;
        let codes = match &self.known {
            Some(codes) => codes,
            None => {
                decoded = self.codes(&self.counts());
                &decoded
            }
        };
        let arrays = self.keys.iter().enumerate();
        arrays.map(|(at, keys)| keys.values(codes.iter().map(|codes| codes[at]))).collect()
    }

    /// Makes room for the codes of keys. False if there are too many; none if a key is of another type.
    fn fit(&mut self, keys: &[ArrayRef]) -> Option<bool> {
        if self.known.is_some() {
            return Some(false);
        }
        let before = self.counts();
        let (mut known, mut is_possible): (Option<Vec<Vec<usize>>>, bool) = (None, true);
        for (at, keys) in keys.iter().enumerate() {
            let shift = match self.keys[at].fit(keys)? {
                RoomForCodes::Same => continue,
                RoomForCodes::Grown { shift } => shift,
                RoomForCodes::TooMany => {
                    is_possible = false;
                    0
                }
            };
            let known = known.get_or_insert_with(|| self.codes(&before));
            let codes = known.iter_mut().map(|codes| &mut codes[at]);
            codes.filter(|code| **code > 0).for_each(|code| *code += shift);
            if !is_possible {
                break;
            }
        }
        let Some(known) = known else { return Some(true) };
        if is_possible && self.lay_out(&known) {
            return Some(true);
        }
        self.known = Some(known);
        Some(false)
    }

    fn counts(&self) -> Vec<usize> {
        self.keys.iter().map(KeyCodes::count).collect()
    }

    /// Codes of the keys of each group, of which there were so many when the groups were laid out.
    fn codes(&self, counts: &[usize]) -> Vec<Vec<usize>> {
        let of_group = |combination: &u32| {
            let digits = self.weights.iter().zip(counts);
            digits.map(|(weight, count)| *combination as usize / weight % count).collect()
        };
        self.combinations.iter().map(of_group).collect()
    }

    /// Gives each key its weight, and each group the place of its codes. False if there are too many combinations.
    fn lay_out(&mut self, codes: &[Vec<usize>]) -> bool {
        let mut weights = Vec::with_capacity(self.keys.len());
        let mut combinations = 1_usize;
        for key in &self.keys {
            weights.push(combinations);
            combinations = combinations.saturating_mul(key.count());
        }
        if combinations > Self::COMBINATIONS_MAX {
            return false;
        }
        self.weights = weights;
        self.groups.clear();
        self.groups.resize(combinations, 0);
        self.combinations.clear();
        for codes in codes {
            let combination: usize =
                codes.iter().zip(&self.weights).map(|(code, weight)| code * weight).sum();
            self.combinations.push(combination as u32);
            self.groups[combination] = self.combinations.len() as u32;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{Int32Array, StringArray};
    use std::sync::Arc;

    #[test]
    fn groups_stay_the_same_while_codes_grow() {
        let mut groups = GroupCodes::new([&DataType::Int32, &DataType::Utf8]).unwrap();
        let batch = |ints: Vec<Option<i32>>, strings: Vec<Option<&str>>| -> [ArrayRef; 2] {
            [Arc::new(Int32Array::from(ints)), Arc::new(StringArray::from(strings))]
        };
        assert_eq!(
            groups.add(&batch(vec![Some(1), None, Some(1)], vec![Some("a"), None, Some("a")])),
            AddedRows::All
        );
        assert_eq!(groups.of_rows(), [0, 1, 0]);
        let next = batch(vec![Some(-900), Some(1), Some(5000)], vec![Some("b"), Some("a"), Some("a")]);
        assert_eq!(groups.add(&next), AddedRows::All);
        assert_eq!(groups.of_rows(), [2, 0, 3]);
        let far = batch(vec![Some(0), Some(1 << 29)], vec![Some("c"), Some("d")]);
        assert_eq!(groups.add(&far), AddedRows::TooManyCodes);
        assert_eq!(groups.add(&next), AddedRows::TooManyCodes);
        assert_eq!(groups.len(), 4);
        let expected =
            batch(vec![Some(1), None, Some(-900), Some(5000)], vec![Some("a"), None, Some("b"), Some("a")]);
        assert_eq!(groups.keys(), expected);
        let mut groups = GroupCodes::new([&DataType::Int32]).unwrap();
        assert_eq!(groups.add(&expected[1..]), AddedRows::OtherType);
        assert!(GroupCodes::new([&DataType::Float64]).is_none() && GroupCodes::new([]).is_none());
    }
}
