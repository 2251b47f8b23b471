//! Replacement policies of a partition.
//!
//! Searches only note uses, as numbers that they store without a lock. So the least recent and the least frequent copy
//! are those of a few that are looked at, not of all (as in Redis). The other policies are exact.

use super::policy::{Candidate, Notes, ReplaceLists, UseCounts};
use std::collections::{BTreeSet, HashSet, VecDeque};

/// Copies that are compared to find one to replace.
const SAMPLE: usize = 8;
/// Number that no position is.
const NOWHERE: u32 = u32::MAX;

/// No replacement.
#[derive(Debug)]
pub(super) struct NoReplacement;

impl ReplaceLists for NoReplacement {
    fn victim(&mut self, _list: Candidate, _uses: &UseCounts<'_>) -> Option<u32> {
        None
    }

    fn insert(&mut self, _number: u32, _list: Candidate) {}

    fn remove(&mut self, _number: u32) {}
}

/// Copies in the order in which they were made.
#[derive(Debug, Default)]
pub(super) struct FirstIn {
    /// Each with the time at which it was made; those that are not [`FirstIn::made`] then are gone.
    queue: VecDeque<(u32, u32)>,
    made: Vec<u32>,
    now: u32,
}

impl ReplaceLists for FirstIn {
    fn victim(&mut self, _list: Candidate, _uses: &UseCounts<'_>) -> Option<u32> {
        while let Some((number, at)) = self.queue.front().copied() {
            if self.made.get(number as usize) == Some(&at) {
                return Some(number);
            }
            self.queue.pop_front();
        }
        None
    }

    fn insert(&mut self, number: u32, _list: Candidate) {
        self.now = self.now.wrapping_add(1) % NOWHERE;
        grown(&mut self.made, number, NOWHERE);
        self.made[number as usize] = self.now;
        // What is gone is dropped here, too, so that the queue is at most twice as long as needed.
        if self.queue.len() > 2 * self.made.len() + SAMPLE {
            let made = &self.made;
            self.queue.retain(|(number, at)| made.get(*number as usize) == Some(at));
        }
        self.queue.push_back((number, self.now));
    }

    fn remove(&mut self, number: u32) {
        if let Some(made) = self.made.get_mut(number as usize) {
            *made = NOWHERE;
        }
    }
}

/// Makes a vector long enough for an index.
fn grown(of: &mut Vec<u32>, index: u32, with: u32) {
    if of.len() <= index as usize {
        of.resize(index as usize + 1, with);
    }
}

/// Copies of which a few are looked at.
#[derive(Debug, Default)]
struct SampledCopies {
    numbers: Vec<u32>,
    /// Position in `numbers` by number.
    positions: Vec<u32>,
    random: u32,
}

impl SampledCopies {
    fn insert(&mut self, number: u32) {
        grown(&mut self.positions, number, NOWHERE);
        self.positions[number as usize] = self.numbers.len() as u32;
        self.numbers.push(number);
    }

    fn remove(&mut self, number: u32) {
        let Some(position) = self.positions.get_mut(number as usize) else { return };
        let position = std::mem::replace(position, NOWHERE) as usize;
        if position >= self.numbers.len() {
            return;
        }
        self.numbers.swap_remove(position);
        if let Some(moved) = self.numbers.get(position) {
            self.positions[*moved as usize] = position as u32;
        }
    }

    /// Number of a few with the least value.
    fn least(&mut self, value: impl Fn(u32) -> u32) -> Option<u32> {
        let count = self.numbers.len();
        let looked = (0..SAMPLE.min(count)).map(|_| {
            self.random = self.random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            self.numbers[((u64::from(self.random) * count as u64) >> 32) as usize]
        });
        looked.min_by_key(|number| value(*number))
    }
}

/// Least recently used.
#[derive(Debug, Default)]
pub(super) struct LeastRecent(SampledCopies);

impl ReplaceLists for LeastRecent {
    fn notes(&self) -> Notes {
        Notes::Recency
    }

    fn victim(&mut self, _list: Candidate, uses: &UseCounts<'_>) -> Option<u32> {
        // The time since the last use is right when times begin at 0 again.
        self.0.least(|number| u32::MAX - uses.now.wrapping_sub((uses.of)(number)))
    }

    fn insert(&mut self, number: u32, _list: Candidate) {
        self.0.insert(number);
    }

    fn remove(&mut self, number: u32) {
        self.0.remove(number);
    }
}

/// Least frequently used.
#[derive(Debug, Default)]
pub(super) struct LeastFrequent(SampledCopies);

impl ReplaceLists for LeastFrequent {
    fn notes(&self) -> Notes {
        Notes::Frequency
    }

    fn victim(&mut self, _list: Candidate, uses: &UseCounts<'_>) -> Option<u32> {
        self.0.least(|number| (uses.of)(number))
    }

    fn insert(&mut self, number: u32, _list: Candidate) {
        self.0.insert(number);
    }

    fn remove(&mut self, number: u32) {
        self.0.remove(number);
    }
}

/// 2Q, as in the paper: a queue of lists that were met once, with their places alone, in front of the copies.
#[derive(Debug)]
pub(super) struct TwoQueues {
    copies: LeastRecent,
    met: VecDeque<u32>,
    is_met: HashSet<u32>,
    met_max: usize,
}

impl TwoQueues {
    /// As many lists that were met once as copies, at most, since they take less.
    pub(super) fn new(copies_max: usize) -> TwoQueues {
        let (copies, met, is_met) = (LeastRecent::default(), VecDeque::new(), HashSet::new());
        TwoQueues { copies, met, is_met, met_max: copies_max.max(1) }
    }
}

impl ReplaceLists for TwoQueues {
    fn notes(&self) -> Notes {
        Notes::Recency
    }

    fn admits(&mut self, list: Candidate) -> bool {
        if self.is_met.remove(&list.child) {
            return true;
        }
        self.is_met.insert(list.child);
        self.met.push_back(list.child);
        while self.met.len() > self.met_max {
            if let Some(child) = self.met.pop_front() {
                self.is_met.remove(&child);
            }
        }
        false
    }

    fn victim(&mut self, list: Candidate, uses: &UseCounts<'_>) -> Option<u32> {
        self.copies.victim(list, uses)
    }

    fn insert(&mut self, number: u32, list: Candidate) {
        self.copies.insert(number, list);
    }

    fn remove(&mut self, number: u32) {
        self.copies.remove(number);
    }
}

/// Least likely to be accessed.
#[derive(Debug, Default)]
pub(super) struct LeastLikely {
    by_words: BTreeSet<(u32, u32)>,
    words: Vec<u32>,
}

impl ReplaceLists for LeastLikely {
    fn victim(&mut self, list: Candidate, _uses: &UseCounts<'_>) -> Option<u32> {
        let (words, number) = *self.by_words.first()?;
        (words < list.words).then_some(number)
    }

    fn insert(&mut self, number: u32, list: Candidate) {
        grown(&mut self.words, number, 0);
        self.words[number as usize] = list.words;
        self.by_words.insert((list.words, number));
    }

    fn remove(&mut self, number: u32) {
        if let Some(words) = self.words.get(number as usize) {
            self.by_words.remove(&(*words, number));
        }
    }
}
