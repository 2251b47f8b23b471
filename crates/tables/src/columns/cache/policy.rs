//! Replacement policies: the trait, and the choice among them.
//!
//! | name | evicts | from |
//! | --- | --- | --- |
//! | `lru` | the page that was used least recently | |
//! | `mru` | the page that was used most recently, so a scan retains the pages that came first | Chou and DeWitt 1985 |
//! | `lfu` | the page that was used least often, pages that came back included | |
//! | `2q` | pages used once, unless they come back soon after they went | Johnson and Shasha 1994 |
//! | `s3-fifo` | pages of a small queue that were not used again | Yang and others 2023 |
//! | `hpcache` | pages beyond the share of their column that speeds up the last queries | Nicholson and others 2022 |

use super::frequency::LeastFrequent;
use super::model::Shares;
use super::page_key::PageKey;
use super::proportional::ProportionalPolicy;
use super::recency::{LeastRecent, MostRecent};
use super::s3_fifo::S3Fifo;
use super::two_queues::TwoQueues;
use std::fmt;
use std::str::FromStr;

/// Replacement policy of a cache of pages. It knows the pages that are cached and nothing of their content.
///
/// Every page of [`ReplacementPolicy::insert`] is cached until [`ReplacementPolicy::victim`] returns it or
/// [`ReplacementPolicy::remove`] is called.
pub trait ReplacementPolicy: Send + fmt::Debug {
    /// Sets the bytes that the cache may take.
    fn set_capacity(&mut self, _bytes: u64) {}

    /// Notes the use of a cached page.
    fn hit(&mut self, page: &PageKey);

    /// Chooses a cached page to make room for another one of so many bytes, and forgets it; none if the other one
    /// should not be cached instead of any.
    fn victim(&mut self, incoming: &PageKey, bytes: u64) -> Option<PageKey>;

    /// Notes a page that is cached from now on.
    fn insert(&mut self, page: PageKey, bytes: u64);

    /// Forgets a page that is no longer cached.
    fn remove(&mut self, page: &PageKey);

    /// Sets the shares of columns, for a policy that has such.
    fn set_shares(&mut self, _shares: &Shares) {}

    /// Chooses a page that need not be cached at all, and forgets it.
    fn surplus(&mut self) -> Option<PageKey> {
        None
    }
}

/// Goal of proportional caching.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CacheGoal {
    /// Least time of the last queries within the budget.
    #[default]
    LeastTime,
    /// Least memory with which they take at most so many percent longer than with the whole budget.
    LeastMemory {
        /// Percent.
        slowdown_percent: u16,
    },
}

/// Replacement policy of the cache of column pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CachePolicy {
    /// Least recently used.
    Lru,
    /// Most recently used.
    Mru,
    /// Least frequently used.
    Lfu,
    /// 2Q.
    TwoQueues,
    /// S3-FIFO.
    S3Fifo,
    /// HPCache: proportional caching.
    Proportional(CacheGoal),
}

impl Default for CachePolicy {
    fn default() -> CachePolicy {
        CachePolicy::Proportional(CacheGoal::LeastTime)
    }
}

impl CachePolicy {
    /// All policies, the proportional one with its default goal.
    pub const ALL: [CachePolicy; 6] = [
        CachePolicy::Lru,
        CachePolicy::Mru,
        CachePolicy::Lfu,
        CachePolicy::TwoQueues,
        CachePolicy::S3Fifo,
        CachePolicy::Proportional(CacheGoal::LeastTime),
    ];

    /// Empty policy of this kind.
    pub fn start(self) -> Box<dyn ReplacementPolicy> {
        match self {
            CachePolicy::Lru => Box::new(LeastRecent::default()),
            CachePolicy::Mru => Box::new(MostRecent::default()),
            CachePolicy::Lfu => Box::new(LeastFrequent::default()),
            CachePolicy::TwoQueues => Box::new(TwoQueues::default()),
            CachePolicy::S3Fifo => Box::new(S3Fifo::default()),
            CachePolicy::Proportional(_) => Box::new(ProportionalPolicy::default()),
        }
    }

    /// Goal of proportional caching, if it is chosen.
    pub fn goal(self) -> Option<CacheGoal> {
        if let CachePolicy::Proportional(goal) = self { Some(goal) } else { None }
    }
}

impl fmt::Display for CachePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CachePolicy::Lru => "lru",
            CachePolicy::Mru => "mru",
            CachePolicy::Lfu => "lfu",
            CachePolicy::TwoQueues => "2q",
            CachePolicy::S3Fifo => "s3-fifo",
            CachePolicy::Proportional(CacheGoal::LeastTime) => "hpcache",
            CachePolicy::Proportional(CacheGoal::LeastMemory { slowdown_percent }) => {
                return write!(f, "hpcache:{slowdown_percent}%");
            }
        })
    }
}

/// Error of a policy's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is not a policy of the page cache: use lru, mru, lfu, 2q, s3-fifo, hpcache, or hpcache:10% for the least \
     memory with which queries are at most 10% slower"
)]
pub struct ParseCachePolicyError(String);

impl FromStr for CachePolicy {
    type Err = ParseCachePolicyError;

    fn from_str(text: &str) -> Result<CachePolicy, ParseCachePolicyError> {
        let invalid = || ParseCachePolicyError(text.to_owned());
        if let Some(policy) = CachePolicy::ALL.into_iter().find(|policy| policy.to_string() == text) {
            return Ok(policy);
        }
        let percent = text.strip_prefix("hpcache:").and_then(|text| text.strip_suffix('%'));
        let slowdown_percent = percent.and_then(|text| text.parse().ok()).ok_or_else(invalid)?;
        Ok(CachePolicy::Proportional(CacheGoal::LeastMemory { slowdown_percent }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        let least_memory = CachePolicy::Proportional(CacheGoal::LeastMemory { slowdown_percent: 10 });
        for policy in CachePolicy::ALL.into_iter().chain([least_memory]) {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        let refused = |text: &str| text.parse::<CachePolicy>().unwrap_err().to_string();
        assert!(refused("clock").starts_with("'clock' is not a policy of the page cache"));
        refused("hpcache:10");
        refused("hpcache:-1%");
    }
}
