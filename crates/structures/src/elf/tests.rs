//! Elf beside a search of all tuples, and damaged words.

use super::*;
use proptest::prelude::*;
use std::ops::ControlFlow;

/// Repeatable random numbers.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Kind of the codes of a dimension.
#[derive(Debug, Clone, Copy)]
pub(super) enum Codes {
    One,
    Few(u32),
    Skewed(u32),
    Different,
    Wide,
}

pub(super) fn codes_of(kind: Codes, tuples: usize, random: &mut Random) -> Vec<u32> {
    (0..tuples)
        .map(|tuple| match kind {
            Codes::One => 7,
            Codes::Few(codes) => random.below(codes.into()) as u32,
            Codes::Skewed(codes) => (random.below(codes.into()) * random.below(codes.into()) / 16) as u32,
            Codes::Different => ((tuple * 7919 + 5) % tuples) as u32,
            Codes::Wide => random.below(1 << 31) as u32,
        })
        .collect()
}

pub(super) fn kinds() -> impl Strategy<Value = Codes> {
    prop_oneof![
        1 => Just(Codes::One),
        4 => (1_u32..20).prop_map(Codes::Few),
        2 => (2_u32..200).prop_map(Codes::Skewed),
        1 => Just(Codes::Different),
        1 => Just(Codes::Wide),
    ]
}

/// Condition that some of the codes meet, on the whole.
pub(super) fn condition(codes: &[u32], random: &mut Random) -> CodeCondition {
    let any = |random: &mut Random| match codes.len() {
        0 => 3,
        tuples => codes[random.below(tuples as u64) as usize],
    };
    match random.below(8) {
        0..=2 => CodeCondition::Any,
        3 => CodeCondition::equals(any(random)),
        4 => CodeCondition::Between { least: any(random), greatest: any(random) },
        5 => {
            let least = any(random);
            CodeCondition::Between { least, greatest: least.saturating_add(random.below(40) as u32) }
        }
        6 => CodeCondition::Among(CodeSet::new((0..random.below(6)).map(|_| any(random)).collect())),
        _ => CodeCondition::Among(CodeSet::new((0..100).map(|at| any(random) ^ (at & 1)).collect())),
    }
}

/// Compares random conjunctions with a search of all tuples.
fn compare(elf: &Elf, codes: &[Vec<u32>], random: &mut Random) {
    for _ in 0..40 {
        let conditions: Vec<CodeCondition> = codes.iter().map(|codes| condition(codes, random)).collect();
        let used = random.below(codes.len() as u64 + 1) as usize;
        let conditions = &conditions[..used];
        let is_met =
            |tuple: &u32| conditions.iter().zip(codes).all(|(of, codes)| of.is_met(codes[*tuple as usize]));
        let expected: Vec<u32> = (0..codes[0].len() as u32).filter(is_met).collect();
        let mut found = vec![99];
        elf.collect(conditions, &mut found);
        assert_eq!(found.remove(0), 99, "ids are appended");
        assert_eq!(elf.count(conditions), expected.len());
        let stop = random.below(expected.len() as u64 + 1) as usize;
        let mut seen = 0;
        let ended = elf.search(conditions, |_| {
            seen += 1;
            if seen == stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!((seen, ended.is_break()), if stop == 0 { (expected.len(), false) } else { (stop, true) });
        let in_order = |id: u32| (codes.iter().map(move |codes| codes[id as usize]).collect::<Vec<_>>(), id);
        assert!(found.iter().map(|id| in_order(*id)).is_sorted(), "in the order of codes");
        found.sort_unstable();
        assert_eq!(found, expected, "{conditions:?}");
    }
}

pub(super) fn build(codes: &[Vec<u32>]) -> Elf {
    Elf::build(&codes.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn searches_find_what_a_search_of_all_tuples_finds(
        schema in proptest::collection::vec(kinds(), 1..=20),
        tuples in prop_oneof![Just(0_usize), Just(1), 2..40_usize, 40..600_usize],
        copies in 0..3_usize,
        seed: u64,
    ) {
        let mut random = Random(seed);
        let mut codes: Vec<Vec<u32>> =
            schema.iter().map(|kind| codes_of(*kind, tuples, &mut random)).collect();
        // Tuples that are there several times.
        for dimension in &mut codes {
            let some = dimension[..tuples / 3].to_vec();
            (0..copies).for_each(|_| dimension.extend_from_slice(&some));
        }
        let elf = build(&codes);
        prop_assert_eq!(elf.tuples(), codes[0].len());
        compare(&elf, &codes, &mut random);
        let opened = Elf::open(elf.words().to_vec()).unwrap();
        prop_assert_eq!(&opened, &elf);
        let all = ElfWork::of(elf.levels(), &[]);
        prop_assert!(all.words <= 4.0 * elf.words().len() as f64);
        let some = ElfWork::of(elf.levels(), &[0.01; ELF_DIMENSIONS_MAX]);
        prop_assert!(some.words <= all.words);
        prop_assert!(some.jumps >= 0.0 && all.jumps <= all.words);
    }

    #[test]
    fn damaged_words_are_an_error_or_another_sound_elf(
        schema in proptest::collection::vec(kinds(), 1..=6),
        tuples in 0..80_usize,
        changes in proptest::collection::vec((any::<prop::sample::Index>(), 0..40_u32, any::<u32>()), 1..4),
        seed: u64,
    ) {
        let mut random = Random(seed);
        let codes: Vec<Vec<u32>> =
            schema.iter().map(|kind| codes_of(*kind, tuples, &mut random)).collect();
        let elf = build(&codes);
        let mut words = elf.words().to_vec();
        for (at, bit, other) in changes {
            let at = at.index(words.len());
            words[at] = if bit < 32 { words[at] ^ (1 << bit) } else { other };
        }
        match Elf::open(words) {
            Err(error) => prop_assert!(matches!(error, Error::DamagedElf { .. }), "{error}"),
            Ok(elf) => {
                let conditions: Vec<CodeCondition> =
                    codes.iter().map(|codes| condition(codes, &mut random)).collect();
                prop_assert!(elf.count(&conditions) <= elf.tuples());
                prop_assert_eq!(elf.count(&[]), elf.tuples());
            }
        }
    }
}

#[test]
fn every_shorter_array_is_damaged() {
    let mut random = Random(3);
    let codes: Vec<Vec<u32>> = (2..6).map(|codes| codes_of(Codes::Few(codes), 60, &mut random)).collect();
    let words = build(&codes).words().to_vec();
    for end in 0..words.len() {
        let mut shorter = words[..end].to_vec();
        assert!(matches!(Elf::open(shorter.clone()), Err(Error::DamagedElf { .. })), "{end} words");
        if let Some(length) = shorter.get_mut(3) {
            *length = end as u32;
            assert!(matches!(Elf::open(shorter), Err(Error::DamagedElf { .. })), "{end} words, as it says");
        }
    }
    let mut longer = words.clone();
    longer.push(0);
    longer[3] += 1;
    assert!(Elf::open(longer).unwrap_err().to_string().contains("belong to no list"));
    // Both children of a list are the first one: no search may read a subtree twice.
    let elf = build(&[vec![0, 100_000], vec![1, 2]]);
    let mut words = elf.words().to_vec();
    let children = elf.root() + 3;
    words[children + 1] = words[children];
    assert!(matches!(Elf::open(words), Err(Error::DamagedElf { .. })));
}

#[test]
fn codes_of_each_dimension_are_those_that_it_was_built_of() {
    let mut random = Random(5);
    let kinds = [Codes::One, Codes::Few(5), Codes::Skewed(50), Codes::Different, Codes::Wide];
    for tuples in [0, 1, 2, 60, 900] {
        for first in 0..kinds.len() {
            for dimensions in [1, 3, 12] {
                let kind = |at: usize| kinds[(first + at) % kinds.len()];
                let codes: Vec<Vec<u32>> =
                    (0..dimensions).map(|at| codes_of(kind(at), tuples, &mut random)).collect();
                let elf = build(&codes);
                for (at, codes) in codes.iter().enumerate() {
                    assert_eq!(elf.codes(at), *codes, "{tuples} tuples, dimension {at} from {first} on");
                }
            }
        }
    }
}

#[test]
fn the_papers_example_has_its_lists() {
    // Tuples of the picture of the module.
    let elf = build(&[vec![0, 0, 0, 1], vec![3, 3, 4, 5], vec![7, 9, 1, 5]]);
    let level = |lists, entries, monos| ElfLevel { lists, entries, monos };
    assert_eq!(elf.levels(), [level(1, 2, 0), level(1, 2, 1), level(1, 2, 1)]);
    let mut ids = Vec::new();
    elf.collect(&[CodeCondition::Any, CodeCondition::Between { least: 4, greatest: 9 }], &mut ids);
    assert_eq!(ids, [2, 3]);
    let exact = [CodeCondition::equals(0), CodeCondition::equals(3), CodeCondition::equals(9)];
    assert_eq!(elf.count(&exact), 1);
}

#[test]
fn what_is_too_much_is_refused_with_its_numbers() {
    let build = |codes: &[&[u32]]| Elf::build(codes).unwrap_err().to_string();
    assert!(build(&[]).contains("not 0"));
    assert!(build(&[&[1][..]; 65]).contains("64 dimensions, not 65"));
    assert!(build(&[&[1, 2], &[1]]).contains("dimension 1 of an Elf has 1 codes, dimension 0 has 2"));
    assert!(build(&[&[1], &[1 << 31]]).contains("code 2147483648 of dimension 1"));
    let most = Elf::build(&[&[5, 5, 4][..]; ELF_DIMENSIONS_MAX]).unwrap();
    assert_eq!(most.count(&vec![CodeCondition::equals(5); ELF_DIMENSIONS_MAX]), 2);
}
