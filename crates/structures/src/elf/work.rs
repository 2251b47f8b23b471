//! Expected work of a search, from the counts of the levels and the share of the tuples that satisfies each condition.
//!
//! Lists lie in the array depth first, each with all that is below it behind it. So a search that reads what is below a list
//! goes on where it is; one that a condition leads past most of it waits for the line of the next list, as it does for the
//! children of a long list behind its codes. A condition that is not on the first dimensions leaves few tuples and such a way to
//! each of many lists.

use super::ElfLevel;

/// Words of a cache line.
const LINE_WORDS: f64 = 16.0;

/// Expected work of a search.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ElfWork {
    /// Words that are read.
    pub words: f64,
    /// Lists, and children of a list, that are reached past a line or more of words that are not read.
    pub jumps: f64,
}

/// Level of an index in a search.
#[derive(Debug, Clone, Copy)]
struct SearchedLevel {
    /// DimensionLists and MonoLists.
    lists: f64,
    /// DimensionLists.
    parents: f64,
    entries: f64,
    /// Words of all, and of those that are read.
    words: f64,
    read: f64,
    /// Share of the tuples that satisfies the conditions of the levels above, and that of this level.
    reached: f64,
    share: f64,
}

impl ElfWork {
    /// Work of a search in an index with these levels, given the share of the tuples that satisfies the condition of each dimension,
    /// if conditions do not depend on each other.
    pub fn of(levels: &[ElfLevel], shares: &[f64]) -> ElfWork {
        let mut reached = 1.0;
        let searched = levels.iter().enumerate().map(|(at, level)| {
            let (parents, entries) = (f64::from(level.lists), f64::from(level.entries));
            let share = shares.get(at).copied().unwrap_or(1.0);
            // A list costs its head and a search, then the entries that satisfy it.
            let monos = (levels.len() - at + 1) as f64 * f64::from(level.monos);
            let of_level = SearchedLevel {
                lists: parents + f64::from(level.monos),
                parents,
                entries,
                words: 2.0 * (parents + entries) + monos,
                read: reached * (2.0 * (parents + share * entries) + monos),
                reached,
                share,
            };
            reached *= share;
            of_level
        });
        let searched: Vec<SearchedLevel> = searched.collect();
        let mut work = ElfWork::default();
        let mut words_below = 0.0;
        for at in (0..searched.len()).rev() {
            words_below += searched[at].words;
            work.words += searched[at].read;
            if let Some(above) = at.checked_sub(1) {
                work.jumps += jumps(&searched[above], &searched[at], (words_below, work.words));
            }
        }
        work
    }
}

/// Jumps to the lists of a level and within them, given the words of it and of those below it, all and those that are read.
fn jumps(above: &SearchedLevel, level: &SearchedLevel, (words, read): (f64, f64)) -> f64 {
    let visited = level.reached * level.lists;
    if visited == 0.0 || above.parents == 0.0 {
        return 0.0;
    }
    // Entries that satisfy a condition lie side by side: before the first one are those that do not, before another one is what
    // the search left of the one before.
    let first = if above.share < 1.0 { visited.min(above.reached * above.parents) } else { 0.0 };
    let before_first = (1.0 - above.share) / 2.0 * words / above.parents;
    let before_next = words / level.lists - read / visited;
    let within = if level.parents > 0.0 { far(level.entries / level.parents) } else { 0.0 };
    first * far(before_first) + (visited - first) * far(before_next) + level.reached * level.parents * within
}

/// Share of the ways over so many words on average that are a line or longer.
fn far(skipped: f64) -> f64 {
    if skipped > 0.0 { (-(LINE_WORDS / skipped).powi(2)).exp() } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Random, build};
    use super::*;
    use crate::elf::{CodeCondition, ElfInPlace, ElfStorage};
    use std::cell::Cell;

    /// Storage that counts how often a search goes past a line or more of words that it did not read.
    struct Counted<'w> {
        words: &'w [u32],
        end: Cell<usize>,
        jumps: Cell<u32>,
    }

    impl ElfStorage for &Counted<'_> {
        fn len(&self) -> usize {
            self.words.len()
        }

        fn word(&self, at: usize) -> u32 {
            self.words.word(at)
        }

        fn touch(&self, at: usize, words: usize) {
            if at >= self.end.get() + LINE_WORDS as usize {
                self.jumps.set(self.jumps.get() + 1);
            }
            self.end.set(self.end.get().max(at + words));
        }
    }

    /// Codes of 60,000 tuples, with this many different ones in each dimension.
    fn tuples(different: &[u64]) -> Vec<Vec<u32>> {
        let mut random = Random(7);
        different.iter().map(|of| (0..60_000).map(|_| random.below(*of) as u32).collect()).collect()
    }

    #[test]
    fn jumps_are_about_those_of_a_search() {
        let different = [1_500, 12, 40, 6];
        let elf = build(&tuples(&different));
        // Codes that satisfy the condition of each dimension; 0: it has none.
        let cases = [
            [1, 0, 0, 0],
            [150, 0, 0, 0],
            [150, 0, 0, 1],
            [0, 1, 0, 0],
            [0, 6, 0, 0],
            [0, 1, 1, 0],
            [0, 1, 1, 1],
            [0, 0, 1, 0],
            [0, 0, 10, 2],
            [0, 0, 0, 1],
            [200, 3, 20, 0],
            [1, 0, 0, 1],
        ];
        for case in cases {
            let condition = |codes: &u32| match codes {
                0 => CodeCondition::Any,
                codes => CodeCondition::Between { least: 2, greatest: 1 + codes },
            };
            let conditions: Vec<CodeCondition> = case.iter().map(condition).collect();
            let share =
                |(codes, of): (&u32, &u64)| if *codes == 0 { 1.0 } else { f64::from(*codes) / *of as f64 };
            let shares: Vec<f64> = case.iter().zip(&different).map(share).collect();
            let counted = Counted { words: elf.words(), end: Cell::new(0), jumps: Cell::new(0) };
            let searched = ElfInPlace::open(&counted).unwrap();
            searched.collect(None, &conditions, &mut Vec::new()).unwrap();
            let (jumps, expected) = (f64::from(counted.jumps.get()), ElfWork::of(elf.levels(), &shares));
            // Where most ways are about a line long, more than there are count as longer.
            assert!(
                expected.jumps <= 2.5 * jumps + 0.02 * expected.words + 5.0,
                "{case:?}: {expected:?}, but {jumps} jumps"
            );
            assert!(jumps <= 1.5 * expected.jumps + 5.0, "{case:?}: {expected:?}, but {jumps} jumps");
        }
    }

    #[test]
    fn a_condition_on_the_first_dimension_reads_on_and_one_behind_it_jumps() {
        let elf = build(&tuples(&[1_500, 12, 40, 6]));
        let of = |shares: &[f64]| ElfWork::of(elf.levels(), shares);
        let (first, second) = (of(&[0.01]), of(&[1.0, 1.0 / 12.0]));
        assert!(first.jumps < 20.0, "{first:?}");
        assert!(second.jumps > 2_000.0, "{second:?}");
    }
}
