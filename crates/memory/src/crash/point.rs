//! Crash points, and the states that a power failure there may leave.

use crate::domain::crashing::{Image, Note};
use crate::mapping::Mapping;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Words of a cache line.
const LINE_WORDS: u32 = 8;

/// A word that may survive with another value than the persisted one.
#[derive(Debug, Clone)]
struct FreeWord {
    index: u32,
    persisted: u64,
    /// Other values that it may have, oldest first.
    choices: SmallVec<[u64; 2]>,
    /// Value flushed last.
    flushed: Option<u64>,
    working: u64,
}

/// Point of a history at which the power could fail.
pub struct CrashPoint<'a> {
    fence: u64,
    image: &'a Image,
    /// Changes of the image since the last point: word, before, after.
    fenced: Vec<(u32, u64, u64)>,
    /// Flushed words in order of their first flush, then those that were only stored.
    words: Vec<FreeWord>,
    /// Cache lines of the words, ascending.
    lines: Vec<u32>,
}

/// Selection of the words that survive a crash. A *unit* is a free word (numbered by its first flush; the
/// words that were only stored come last) or a free cache line (numbered by its position).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Survivors {
    /// Fenced words only.
    Fenced,
    /// Fenced and flushed words.
    Flushed,
    /// All stored words: every cache line was evicted just in time.
    Everything,
    /// Fenced words and all that were stored but not flushed: the newest without the flushed.
    OnlyEvicted,
    /// One of the [`CrashPoint::combinations`] of all free words and their values, by number.
    Chosen(u64),
    /// A single word.
    Only(u32),
    /// All words but one.
    Without(u32),
    /// The first words, of this number: the oldest without the newest.
    Oldest(u32),
    /// The last words, of this number: the newest without the oldest.
    Newest(u32),
    /// A single cache line.
    OnlyLine(u32),
    /// All cache lines but one.
    WithoutLine(u32),
    /// A set of cache lines, a bit each.
    Lines(u64),
    /// A random subset of the words, from this seed; each seed has its own density.
    Random(u64),
    /// A random subset of the cache lines.
    RandomLines(u64),
}

/// Words of a state that differ from the persisted image: (index of the word, value).
pub(crate) type Changes = Vec<(u32, u64)>;

impl<'a> CrashPoint<'a> {
    /// Returns the point, and the words whose working value was neither flushed nor noted before.
    pub(crate) fn new(
        fence: u64,
        image: &'a Image,
        fenced: Vec<(u32, u64, u64)>,
        notes: &[Note],
        mapping: &Mapping,
    ) -> (CrashPoint<'a>, Vec<(u32, u64)>) {
        let mut places: HashMap<u32, usize> = HashMap::with_capacity(notes.len());
        let mut words: Vec<FreeWord> = Vec::with_capacity(notes.len());
        for note in notes {
            let place = *places.entry(note.index).or_insert_with(|| {
                let persisted = image.get(note.index);
                let working = mapping.words(u64::from(note.index) * 8, 1)[0].load(Ordering::Acquire);
                let (index, flushed, choices) = (note.index, None, SmallVec::new());
                words.push(FreeWord { index, persisted, choices, flushed, working });
                words.len() - 1
            });
            words[place].add(note.value);
            if note.is_flushed() {
                words[place].flushed = Some(note.value);
            }
        }
        words.sort_by_key(|word| word.flushed.is_none());
        let mut evictable = Vec::new();
        for word in &mut words {
            if word.add(word.working) {
                evictable.push((word.index, word.working));
            }
        }
        let certain = image.words();
        let scanned = mapping.touched_words().into_iter().flat_map(|range| {
            let working = mapping.words(range.start as u64 * 8, range.len());
            // Zeroes where this pool has grown beyond the image.
            let certain =
                certain.get(range.start..).unwrap_or(&[]).iter().copied().chain(std::iter::repeat(0));
            let pairs = range.zip(working.iter().zip(certain));
            pairs.filter_map(|(index, (working, certain))| {
                let working = working.load(Ordering::Acquire);
                (working != certain).then_some((index as u32, working))
            })
        });
        let changed = image.changed().map(|(index, _)| index);
        let back =
            changed.map(|index| (index, mapping.words(u64::from(index) * 8, 1)[0].load(Ordering::Acquire)));
        for (index, working) in scanned.chain(back) {
            let persisted = image.get(index);
            if working != persisted && !places.contains_key(&index) {
                places.insert(index, words.len());
                let choices = SmallVec::from_slice(&[working]);
                words.push(FreeWord { index, persisted, choices, flushed: None, working });
                evictable.push((index, working));
            }
        }
        words.retain(|word| !word.choices.is_empty());
        let mut lines: Vec<u32> = words.iter().map(|word| word.index / LINE_WORDS).collect();
        lines.sort_unstable();
        lines.dedup();
        (CrashPoint { fence, image, fenced, words, lines }, evictable)
    }

    /// Number of the fence that was about to happen, from 1. The end of a history counts as one.
    pub fn fence(&self) -> u64 {
        self.fence
    }

    /// Number of words that may survive with another value than the persisted one.
    pub fn free_words(&self) -> usize {
        self.words.len()
    }

    /// Number of cache lines of these words.
    pub fn free_lines(&self) -> usize {
        self.lines.len()
    }

    /// Number of states that a crash here may leave, word by word; saturating.
    pub fn combinations(&self) -> u64 {
        self.words.iter().fold(1, |product: u64, word| product.saturating_mul(word.choices.len() as u64 + 1))
    }

    /// Pool image that a crash here leaves.
    pub fn image(&self, survivors: Survivors) -> Vec<u64> {
        let mut image = self.image.words().to_vec();
        image.resize(self.length(), 0);
        for (index, value) in self.changes(survivors) {
            image[index as usize] = value;
        }
        image
    }

    /// Base image of the changes of this point's states.
    pub(crate) fn base(&self) -> &'a Arc<Vec<u64>> {
        self.image.words()
    }

    /// Length of the pool in words.
    pub(crate) fn length(&self) -> usize {
        self.image.length()
    }

    /// Changes of the base since the last point: word, before, after.
    pub(crate) fn fenced(&self) -> &[(u32, u64, u64)] {
        &self.fenced
    }

    /// Difference of the image that a crash here leaves from the base: the certain words, then the survivors.
    pub(crate) fn changes(&self, survivors: Survivors) -> Changes {
        let survived = self.survived(survivors);
        let mut changes: Changes = self.image.changed().collect();
        changes.retain(|(index, _)| survived.iter().all(|(survived, _)| survived != index));
        changes.extend(survived);
        changes.retain(|(index, value)| self.base().get(*index as usize) != Some(value));
        changes
    }

    /// Words whose certain values are overwritten.
    fn survived(&self, survivors: Survivors) -> Changes {
        let of_words = |value: &mut dyn FnMut(usize, &FreeWord) -> Option<u64>| {
            let values = self.words.iter().enumerate();
            let survived = values.filter_map(|(unit, word)| {
                let value = value(unit, word).filter(|value| *value != word.persisted)?;
                Some((word.index, value))
            });
            survived.collect::<Changes>()
        };
        let newest_if = |lives: &mut dyn FnMut(usize) -> bool| {
            of_words(&mut |unit, word| if lives(unit) { word.newest() } else { None })
        };
        let lines_if = |lives: &mut dyn FnMut(usize) -> bool| {
            let living: Vec<bool> = (0..self.lines.len()).map(&mut *lives).collect();
            of_words(&mut |_, word| if living[self.line_of(word)] { word.newest() } else { None })
        };
        let count = self.words.len();
        match survivors {
            Survivors::Fenced => Changes::new(),
            Survivors::Flushed => of_words(&mut |_, word| word.flushed),
            Survivors::Everything => of_words(&mut |_, word| Some(word.working)),
            Survivors::OnlyEvicted => {
                of_words(&mut |_, word| if word.flushed.is_none() { word.newest() } else { None })
            }
            Survivors::Chosen(mut number) => of_words(&mut |_, word| {
                let radix = word.choices.len() as u64 + 1;
                let choice = number % radix;
                number /= radix;
                choice.checked_sub(1).map(|choice| word.choices[choice as usize])
            }),
            Survivors::Only(only) => newest_if(&mut |unit| unit == only as usize),
            Survivors::Without(missing) => newest_if(&mut |unit| unit != missing as usize),
            Survivors::Oldest(n) => newest_if(&mut |unit| unit < n as usize),
            Survivors::Newest(n) => newest_if(&mut |unit| unit + n as usize >= count),
            Survivors::OnlyLine(only) => lines_if(&mut |line| line == only as usize),
            Survivors::WithoutLine(missing) => lines_if(&mut |line| line != missing as usize),
            Survivors::Lines(set) => lines_if(&mut |line| line < 64 && set & (1 << line) != 0),
            Survivors::Random(seed) => {
                let mut random = SplitMix::new(seed);
                let density = random.below(9);
                of_words(&mut |_, word| {
                    let lives = random.below(8) < density;
                    let choice = random.below(word.choices.len() as u64) as usize;
                    lives.then(|| word.choices[choice])
                })
            }
            Survivors::RandomLines(seed) => {
                let mut random = SplitMix::new(seed);
                let density = random.below(9);
                lines_if(&mut |_| random.below(8) < density)
            }
        }
    }

    fn line_of(&self, word: &FreeWord) -> usize {
        self.lines.binary_search(&(word.index / LINE_WORDS)).expect("the lines are those of the words")
    }
}

impl FreeWord {
    /// Adds a value that it may have; false if it is the persisted one or known.
    fn add(&mut self, value: u64) -> bool {
        let new = value != self.persisted && !self.choices.contains(&value);
        if new {
            self.choices.push(value);
        }
        new
    }

    fn newest(&self) -> Option<u64> {
        if self.working == self.persisted { self.choices.last().copied() } else { Some(self.working) }
    }
}

/// Random numbers (SplitMix64) from one seed.
#[derive(Debug, Clone)]
pub(crate) struct SplitMix(u64);

impl SplitMix {
    pub(crate) fn new(seed: u64) -> SplitMix {
        SplitMix(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }
}

/// Hash of one number.
pub(crate) fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl fmt::Display for Survivors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Survivors::Fenced => f.write_str("fenced"),
            Survivors::Flushed => f.write_str("flushed"),
            Survivors::Everything => f.write_str("everything"),
            Survivors::OnlyEvicted => f.write_str("evicted"),
            Survivors::Chosen(number) => write!(f, "chosen-{number}"),
            Survivors::Only(unit) => write!(f, "only-{unit}"),
            Survivors::Without(unit) => write!(f, "without-{unit}"),
            Survivors::Oldest(n) => write!(f, "oldest-{n}"),
            Survivors::Newest(n) => write!(f, "newest-{n}"),
            Survivors::OnlyLine(unit) => write!(f, "only_line-{unit}"),
            Survivors::WithoutLine(unit) => write!(f, "without_line-{unit}"),
            Survivors::Lines(set) => write!(f, "lines-{set}"),
            Survivors::Random(seed) => write!(f, "random-{seed}"),
            Survivors::RandomLines(seed) => write!(f, "random_lines-{seed}"),
        }
    }
}

impl FromStr for Survivors {
    type Err = String;

    /// Parses what [`Survivors`] prints.
    fn from_str(text: &str) -> Result<Survivors, String> {
        let wrong = || format!("'{text}' is not a selection of survivors");
        let (name, number) = match text.split_once('-') {
            None => (text, None),
            Some((name, number)) => (name, Some(number.parse::<u64>().map_err(|_| wrong())?)),
        };
        let unit = || number.and_then(|number| u32::try_from(number).ok()).ok_or_else(wrong);
        let number = || number.ok_or_else(wrong);
        Ok(match name {
            "fenced" => Survivors::Fenced,
            "flushed" => Survivors::Flushed,
            "everything" => Survivors::Everything,
            "evicted" => Survivors::OnlyEvicted,
            "chosen" => Survivors::Chosen(number()?),
            "only" => Survivors::Only(unit()?),
            "without" => Survivors::Without(unit()?),
            "oldest" => Survivors::Oldest(unit()?),
            "newest" => Survivors::Newest(unit()?),
            "only_line" => Survivors::OnlyLine(unit()?),
            "without_line" => Survivors::WithoutLine(unit()?),
            "lines" => Survivors::Lines(number()?),
            "random" => Survivors::Random(number()?),
            "random_lines" => Survivors::RandomLines(number()?),
            _ => return Err(wrong()),
        })
    }
}
