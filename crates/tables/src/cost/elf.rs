//! Levels of an Elf that is not there: how many lists, entries and MonoLists a row group would have.
//!
//! Values of different columns are taken for independent, so a prefix of columns with `p` possible combinations of values
//! has `r / p` of `r` rows on average, distributed as Poisson says. One with several rows is a list, one with a single
//! row whose prefix before had several begins a MonoList.

use super::statistics::TableStatistics;
use entresol_structures::elf::ElfLevel;

/// Possible combinations are counted up to here: more make no difference.
const COMBINATIONS_MAX: f64 = 1e15;

/// Expected levels for some columns of so many rows.
pub(super) fn levels(statistics: &TableStatistics, columns: &[usize], rows: f64) -> Vec<ElfLevel> {
    let mut combinations = 1.0_f64;
    let (mut singles, mut several) = (vec![0.0], vec![1.0]);
    for column in columns {
        let distinct = statistics.columns[*column].distinct.min(rows).max(1.0);
        combinations = (combinations * distinct).min(COMBINATIONS_MAX);
        let of_each = rows / combinations;
        let single = rows * (-of_each).exp();
        singles.push(single);
        several.push((combinations * (1.0 - (-of_each).exp()) - single).max(0.0));
    }
    let level = |at: usize| {
        let begun = if at == 0 { 0.0 } else { (singles[at] - singles[at - 1]).max(0.0) };
        let next = (singles[at + 1] - singles[at]).max(0.0);
        let last = at + 1 == columns.len();
        // Behind the last column each different combination is an entry, with the rows that have it.
        let entries = if last { next.max(several[at + 1] + next) } else { several[at + 1] + next };
        ElfLevel { lists: several[at].max(0.0) as u32, entries: entries as u32, monos: begun as u32 }
    };
    (0..columns.len()).map(level).collect()
}

#[cfg(test)]
mod tests {
    use super::super::statistics::ColumnStatistics;
    use super::*;
    use entresol_structures::elf::Elf;

    #[test]
    fn levels_are_about_those_of_an_index_that_is_built() {
        let (rows, distinct) = (50_000_usize, [20_u32, 100, 7, 1_000]);
        let mut state = 1_u64;
        let mut random = |below: u32| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 33) as u32) % below
        };
        let codes: Vec<Vec<u32>> =
            distinct.iter().map(|below| (0..rows).map(|_| random(*below)).collect()).collect();
        let built = Elf::build(&codes.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap();
        let column =
            |distinct: &u32| ColumnStatistics { distinct: f64::from(*distinct), nulls: 0.0, bytes: 4.0 };
        let statistics = TableStatistics {
            rows: rows as f64,
            delta_rows: 0.0,
            columns: distinct.iter().map(column).collect(),
            storage: None,
            sample: Default::default(),
        };
        let expected = levels(&statistics, &[0, 1, 2, 3], rows as f64);
        for (at, (expected, built)) in expected.iter().zip(built.levels()).enumerate() {
            let close = |a: u32, b: u32| f64::from(a.abs_diff(b)) <= 0.15 * f64::from(a.max(b)) + 30.0;
            // The first dimension may be a dense array.
            assert!(at == 0 || close(expected.lists, built.lists), "{at}: {expected:?} {built:?}");
            assert!(at == 0 || close(expected.entries, built.entries), "{at}: {expected:?} {built:?}");
            assert!(close(expected.monos, built.monos), "{at}: {expected:?} {built:?}");
        }
    }
}
