//! Share of a state's appended keys that are written again, which decides for how many versions a new one has room.
//!
//! A key that is appended is mostly a reading or an event, which stays as it is: an object of one version takes little more than
//! half the bytes of one of two. Its first update costs a new object and frees a place of the old size; so a state
//! whose keys are written again, as counters are, has objects of two versions, but for a part of its keys: enough to see
//! when they are no longer written again.
//!
//! The counts are volatile: a state that is opened begins with objects of one version.

use std::sync::atomic::{AtomicU64, Ordering};

/// Appended keys for each that may be written again.
const APPENDED_FOR_EACH_REWRITTEN: u64 = 8;
/// Keys that may be written again in a state whatever it appends.
const REWRITTEN_MIN: u64 = 512;

/// Counts of appended and rewritten keys; see the [module](self).
#[derive(Debug, Default)]
pub(crate) struct RewrittenKeys {
    appended: AtomicU64,
    /// Objects of one version that were replaced by a larger one.
    rewritten: AtomicU64,
}

impl RewrittenKeys {
    /// Returns true if a key that is appended now gets an object of one version.
    pub(crate) fn are_few(&self) -> bool {
        let allowed = self.appended.load(Ordering::Relaxed) / APPENDED_FOR_EACH_REWRITTEN;
        self.rewritten.load(Ordering::Relaxed) <= allowed.max(REWRITTEN_MIN)
    }

    /// Counts keys that are appended.
    pub(crate) fn count_appended(&self, keys: usize) {
        self.appended.fetch_add(keys as u64, Ordering::Relaxed);
    }

    /// Counts an object of one version that is replaced by a larger one.
    pub(crate) fn count_rewritten(&self) {
        self.rewritten.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_are_written_again_get_room_for_it() {
        let keys = RewrittenKeys::default();
        assert!(keys.are_few(), "nothing is known at first");
        keys.count_appended(4096);
        (0..REWRITTEN_MIN).for_each(|_| keys.count_rewritten());
        assert!(keys.are_few());
        keys.count_rewritten();
        assert!(!keys.are_few(), "513 of 4,096");
        keys.count_appended(100_000);
        assert!(keys.are_few(), "513 of 104,096");
    }
}
