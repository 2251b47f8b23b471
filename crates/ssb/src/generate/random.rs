//! Random numbers by position: those of a row depend on seed, table and row number only, so that any thread
//! may make any part of a table.

/// Odd increment of SplitMix64 (Steele, Lea, Flood, 2014): 2^64 divided by the golden ratio.
const INCREMENT: u64 = 0x9e37_79b9_7f4a_7c15;

/// SplitMix64 sequence of one row.
pub(super) struct Random {
    state: u64,
}

fn mixed(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// Beginning of the sequences of a table.
pub(super) fn table_seed(seed: u64, table: &str) -> u64 {
    let name = table.bytes().fold(0, |hash, byte| mixed(hash ^ u64::from(byte)));
    mixed(mixed(seed.wrapping_add(INCREMENT)) ^ name)
}

impl Random {
    /// Sequence of a row of a table with this [`table_seed`].
    pub(super) fn of_row(table_seed: u64, row: u64) -> Random {
        // Mixed: neighbouring rows would have the same sequence, one step apart.
        Random { state: mixed(table_seed ^ row.wrapping_add(1).wrapping_mul(INCREMENT)) }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(INCREMENT);
        mixed(self.state)
    }

    /// Uniform number below `end`, which is greater than 0.
    pub(super) fn below(&mut self, end: u32) -> u32 {
        (((self.next() >> 32) * u64::from(end)) >> 32) as u32
    }

    /// Uniform number of `least..=most`.
    pub(super) fn between(&mut self, least: u32, most: u32) -> u32 {
        least + self.below(most - least + 1)
    }

    /// Element of a list that is not empty.
    pub(super) fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u32) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_uniform_and_belong_to_their_row() {
        let mut counts = [0u32; 11];
        for row in 0..110_000 {
            counts[Random::of_row(table_seed(7, "t"), row).below(11) as usize] += 1;
        }
        // The standard deviation is 95.
        assert!(counts.iter().all(|count| (9_600..10_400).contains(count)), "{counts:?}");
        let first = |seed, table, row| Random::of_row(table_seed(seed, table), row).next();
        assert_eq!(first(1, "part", 5), first(1, "part", 5));
        let all = [first(1, "part", 5), first(2, "part", 5), first(1, "date", 5), first(1, "part", 6)];
        assert_eq!(all.iter().collect::<std::collections::BTreeSet<_>>().len(), 4);
    }

    #[test]
    fn neighbouring_rows_share_no_numbers() {
        let numbers = (0..1000).flat_map(|row| {
            let mut random = Random::of_row(table_seed(1, "lineorder"), row);
            (0..50).map(move |_| random.next())
        });
        assert_eq!(numbers.collect::<std::collections::HashSet<_>>().len(), 50_000);
    }
}
