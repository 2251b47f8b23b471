//! Hash codes of values that are stored as keys of state tables, and so never change: SplitMix64 over the words of the
//! values.
//!
//! Equal values have one code, doubles that are equal too. Different ones may have one as well, so what is found by a
//! code is then compared.

use entresol_tables::Value;
use std::hash::{Hash, Hasher};

/// Hash code of values.
pub(crate) fn stored_hash(values: &[Value]) -> i64 {
    let mut hasher = StoredHasher(0);
    values.iter().for_each(|value| value.hash(&mut hasher));
    i64::from_ne_bytes(hasher.finish().to_ne_bytes())
}

struct StoredHasher(u64);

impl Hasher for StoredHasher {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            let mixed = (self.0 ^ u64::from_le_bytes(word)).wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
            self.0 = mixed ^ mixed >> 31;
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn hash_codes_stay_and_equal_values_have_one() {
        let of = |values: Vec<Value>| stored_hash(&values);
        let number = |number: i32| of(vec![Value::Int(number), Value::from("a"), Value::Null]);
        let codes: BTreeSet<i64> = (0..20_000).map(number).collect();
        assert_eq!(codes.len(), 20_000);
        assert_eq!(of(vec![Value::Double(0.0)]), of(vec![Value::Double(-0.0)]));
        assert_ne!(of(vec![Value::Null, Value::Int(0)]), of(vec![Value::Int(0), Value::Null]));
        assert_ne!(
            of(vec![Value::from("ab"), Value::from("c")]),
            of(vec![Value::from("a"), Value::from("bc")])
        );
    }
}
