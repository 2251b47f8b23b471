//! Policies of what is copied: their names, and the trait of those that replace.
//!
//! | name | copies | replaces |
//! | --- | --- | --- |
//! | `levels:3` | the lists of the first three dimensions | never |
//! | `probability` | the lists that most tuples are below, as many as fit | never |
//! | `probability:0.01` | those that at least a hundredth of the tuples are below | never |
//! | `naive` | every list that is met, until there is no more room | never |
//! | `fifo` | every list that is met | the list that was copied first |
//! | `lru` | every list that is met | the list that was used least recently |
//! | `lfu` | every list that is met | the list that was used least often |
//! | `2q` | lists that are met again soon after | the list that was used least recently |
//! | `lla` | every list that is met | the list with the fewest tuples below, if the other one has more |
//! | `levels:2+lla` | as the first | the others, as the second |
//!
//! The probability that a search for a tuple meets a list is the share of the tuples that are below it (Jibril et al.,
//! 4.2). It is taken from the words of the list and what is below it, which the offsets of the lists tell.

use super::replacement::{FirstIn, LeastFrequent, LeastLikely, LeastRecent, NoReplacement, TwoQueues};
use std::fmt;
use std::str::FromStr;

const MILLION: f64 = 1e6;

/// Lists that are copied when the cache is made, and stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FixedLists {
    /// Lists of so many first dimensions.
    Levels(u8),
    /// Lists with at least so many millionths of the tuples below, the most likely first.
    Probability {
        /// Millionths.
        millionths: u32,
    },
}

/// Replacement of the lists that are copied as searches meet them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListReplacement {
    /// None.
    Naive,
    /// First in, first out.
    Fifo,
    /// Least recently used, of a few.
    Lru,
    /// Least frequently used, of a few.
    Lfu,
    /// 2Q.
    TwoQueues,
    /// Least likely to be accessed.
    LeastLikely,
}

/// Uses of copies that searches note for a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Notes {
    Nothing,
    Recency,
    Frequency,
}

/// List that may become a copy.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate {
    /// Child in the array.
    pub(super) child: u32,
    /// Words of it and what is below.
    pub(super) words: u32,
}

/// Uses of the copies of a partition by their numbers, and the time.
pub(super) struct UseCounts<'u> {
    pub(super) of: &'u dyn Fn(u32) -> u32,
    pub(super) now: u32,
}

/// Replacement policy of a partition. It knows the copies by numbers; every one of [`ReplaceLists::insert`] is there
/// until [`ReplaceLists::remove`].
pub(super) trait ReplaceLists: Send + Sync + fmt::Debug {
    /// Uses that it goes by.
    fn notes(&self) -> Notes {
        Notes::Nothing
    }

    /// Returns true if a list that was met should become a copy.
    fn admits(&mut self, _list: Candidate) -> bool {
        true
    }

    /// Chooses a copy to make room for a list; none if the list should not become one.
    fn victim(&mut self, list: Candidate, uses: &UseCounts<'_>) -> Option<u32>;

    /// Notes a copy.
    fn insert(&mut self, number: u32, list: Candidate);

    /// Forgets a copy.
    fn remove(&mut self, number: u32);
}

impl ListReplacement {
    /// All of them.
    pub const ALL: [ListReplacement; 6] = [
        ListReplacement::Naive,
        ListReplacement::Fifo,
        ListReplacement::Lru,
        ListReplacement::Lfu,
        ListReplacement::TwoQueues,
        ListReplacement::LeastLikely,
    ];

    /// Name.
    pub const fn name(self) -> &'static str {
        match self {
            ListReplacement::Naive => "naive",
            ListReplacement::Fifo => "fifo",
            ListReplacement::Lru => "lru",
            ListReplacement::Lfu => "lfu",
            ListReplacement::TwoQueues => "2q",
            ListReplacement::LeastLikely => "lla",
        }
    }

    /// Policy of a partition that may have so many copies.
    pub(super) fn start(self, copies_max: usize) -> Box<dyn ReplaceLists> {
        match self {
            ListReplacement::Naive => Box::new(NoReplacement),
            ListReplacement::Fifo => Box::new(FirstIn::default()),
            ListReplacement::Lru => Box::new(LeastRecent::default()),
            ListReplacement::Lfu => Box::new(LeastFrequent::default()),
            ListReplacement::TwoQueues => Box::new(TwoQueues::new(copies_max)),
            ListReplacement::LeastLikely => Box::new(LeastLikely::default()),
        }
    }
}

/// Policy of a cache of lists: what is copied when it is made, and what as searches meet it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListPolicy {
    /// Lists that stay.
    pub fixed: Option<FixedLists>,
    /// Replacement of the others.
    pub replacement: Option<ListReplacement>,
}

impl Default for ListPolicy {
    fn default() -> ListPolicy {
        ListPolicy { fixed: Some(FixedLists::Probability { millionths: 0 }), replacement: None }
    }
}

impl fmt::Display for ListPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fixed {
            Some(FixedLists::Levels(levels)) => write!(f, "levels:{levels}")?,
            Some(FixedLists::Probability { millionths: 0 }) => f.write_str("probability")?,
            Some(FixedLists::Probability { millionths }) => {
                write!(f, "probability:{}", f64::from(millionths) / MILLION)?;
            }
            None => (),
        }
        if let Some(replacement) = self.replacement {
            let plus = if self.fixed.is_some() { "+" } else { "" };
            write!(f, "{plus}{}", replacement.name())?;
        }
        Ok(())
    }
}

/// Error of a policy's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is not a policy for lists: use naive, fifo, lru, lfu, 2q or lla for lists as they are met, levels:3 for those of \
     the first three dimensions, probability for the most likely ones, probability:0.01 for those that a hundredth of the \
     rows is below, or two of them, as in levels:2+lla"
)]
pub struct ParseListPolicyError(String);

impl FromStr for ListPolicy {
    type Err = ParseListPolicyError;

    fn from_str(text: &str) -> Result<ListPolicy, ParseListPolicyError> {
        let invalid = || ParseListPolicyError(text.to_owned());
        let replacement = |name: &str| ListReplacement::ALL.into_iter().find(|known| known.name() == name);
        let fixed = |name: &str| {
            let (kind, number) = name.split_once(':').map_or((name, None), |(kind, of)| (kind, Some(of)));
            match (kind, number) {
                ("levels", Some(number)) => {
                    number.parse().ok().filter(|levels| *levels > 0).map(FixedLists::Levels)
                }
                ("probability", None) => Some(FixedLists::Probability { millionths: 0 }),
                ("probability", Some(number)) => {
                    let millionths = (number.parse::<f64>().ok()? * MILLION).round();
                    let is_share = (1.0..=MILLION).contains(&millionths);
                    is_share.then_some(FixedLists::Probability { millionths: millionths as u32 })
                }
                _ => None,
            }
        };
        let policy = match text.split_once('+') {
            Some((first, second)) => ListPolicy {
                fixed: Some(fixed(first).ok_or_else(invalid)?),
                replacement: Some(replacement(second).ok_or_else(invalid)?),
            },
            None => ListPolicy { fixed: fixed(text), replacement: replacement(text) },
        };
        let is_some = policy.fixed.is_some() || policy.replacement.is_some();
        is_some.then_some(policy).ok_or_else(invalid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        let names = ListReplacement::ALL.map(ListReplacement::name);
        let others = ["levels:4", "probability", "probability:0.01", "levels:2+2q", "probability+lla"];
        for name in names.into_iter().chain(others) {
            let policy: ListPolicy = name.parse().unwrap();
            assert_eq!(policy.to_string(), name);
        }
        for name in [
            "",
            "arc",
            "levels",
            "levels:0",
            "levels:x",
            "probability:2",
            "probability:0",
            "lru+levels:1",
            "levels:1+",
        ] {
            let error = name.parse::<ListPolicy>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("'{name}' is not a policy for lists")), "{error}");
        }
    }
}
