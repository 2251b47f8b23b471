//! Replacement policies: the trait, and the choice among them.
//!
//! | name | evicts | from |
//! | --- | --- | --- |
//! | `lru` | the page that was used least recently | |
//! | `mru` | the page that was used most recently, so a scan retains the pages that came first | Chou and DeWitt 1985 |
//! | `lfu` | the page that was used least often, pages that came back included | |
//! | `2q` | pages used once, unless they come back soon after they went | Johnson and Shasha 1994 |
//! | `s3-fifo` | pages of a small queue that were not used again | Yang and others 2023 |

use super::frequency::LeastFrequent;
use super::page_key::PageKey;
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
}

/// Replacement policy of the cache of column pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
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
    #[default]
    S3Fifo,
}

impl CachePolicy {
    /// All policies.
    pub const ALL: [CachePolicy; 5] =
        [CachePolicy::Lru, CachePolicy::Mru, CachePolicy::Lfu, CachePolicy::TwoQueues, CachePolicy::S3Fifo];

    /// Empty policy of this kind.
    pub fn start(self) -> Box<dyn ReplacementPolicy> {
        match self {
            CachePolicy::Lru => Box::new(LeastRecent::default()),
            CachePolicy::Mru => Box::new(MostRecent::default()),
            CachePolicy::Lfu => Box::new(LeastFrequent::default()),
            CachePolicy::TwoQueues => Box::new(TwoQueues::default()),
            CachePolicy::S3Fifo => Box::new(S3Fifo::default()),
        }
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
        })
    }
}

/// Error of a policy's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a policy of the page cache: use lru, mru, lfu, 2q or s3-fifo")]
pub struct ParseCachePolicyError(String);

impl FromStr for CachePolicy {
    type Err = ParseCachePolicyError;

    fn from_str(text: &str) -> Result<CachePolicy, ParseCachePolicyError> {
        let named = CachePolicy::ALL.into_iter().find(|policy| policy.to_string() == text);
        named.ok_or_else(|| ParseCachePolicyError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for policy in CachePolicy::ALL {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        let refused = |text: &str| text.parse::<CachePolicy>().unwrap_err().to_string();
        assert!(refused("clock").starts_with("'clock' is not a policy of the page cache"));
    }
}
