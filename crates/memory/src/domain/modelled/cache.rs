//! Set-associative caches with least-recently-used replacement; each level includes the nearer ones.
//! Memory: 8 bytes for each line of each level.

use crate::profile::Profile;

/// Number that no line has.
const EMPTY: u64 = u64::MAX;

/// One level.
struct Level {
    /// Sets one after the other; in a set the most recently used line first.
    lines: Vec<u64>,
    ways: usize,
}

impl Level {
    fn set_of(&mut self, line: u64) -> &mut [u64] {
        let sets = self.lines.len() / self.ways;
        let start = (line % sets as u64) as usize * self.ways;
        &mut self.lines[start..start + self.ways]
    }

    /// Returns true if the line is present; it then becomes the most recently used one.
    fn touch(&mut self, line: u64) -> bool {
        let set = self.set_of(line);
        let Some(position) = set.iter().position(|held| *held == line) else { return false };
        set[..=position].rotate_right(1);
        true
    }

    /// Inserts an absent line; returns the evicted one.
    fn insert(&mut self, line: u64) -> Option<u64> {
        let set = self.set_of(line);
        let evicted = set[set.len() - 1];
        set.rotate_right(1);
        set[0] = line;
        (evicted != EMPTY).then_some(evicted)
    }

    fn remove(&mut self, line: u64) {
        let set = self.set_of(line);
        if let Some(position) = set.iter().position(|held| *held == line) {
            set[position..].rotate_left(1);
            set[set.len() - 1] = EMPTY;
        }
    }
}

/// The processor's caches.
pub(super) struct Caches {
    levels: Vec<Level>,
}

impl Caches {
    pub(super) fn new(profile: &Profile) -> Caches {
        let level = |cache: &crate::profile::Cache| Level {
            lines: vec![EMPTY; (cache.bytes / profile.medium.transfer_bytes) as usize],
            ways: cache.ways as usize,
        };
        Caches { levels: profile.caches.iter().map(level).collect() }
    }

    /// Nearest level that has the line; it is in all nearer ones afterwards.
    pub(super) fn find(&mut self, line: u64) -> Option<usize> {
        let level = self.levels.iter_mut().position(|level| level.touch(line))?;
        for nearer in &mut self.levels[..level] {
            // A line evicted from a nearer level is still in the farther ones.
            nearer.insert(line);
        }
        Some(level)
    }

    /// Inserts a line that no level has; returns the one evicted from all caches for it.
    pub(super) fn insert(&mut self, line: u64) -> Option<u64> {
        let last = self.levels.len() - 1;
        let evicted = self.levels[last].insert(line);
        for nearer in &mut self.levels[..last] {
            if let Some(evicted) = evicted {
                nearer.remove(evicted);
            }
            nearer.insert(line);
        }
        evicted
    }

    pub(super) fn remove(&mut self, line: u64) {
        self.levels.iter_mut().for_each(|level| level.remove(line));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn small() -> Caches {
        let level = |lines: usize, ways| Level { lines: vec![EMPTY; lines], ways };
        // Two sets of two ways, then two sets of four.
        Caches { levels: vec![level(4, 2), level(8, 4)] }
    }

    #[test]
    fn the_least_recently_used_line_leaves() {
        let mut caches = small();
        for line in [0, 2, 4, 6] {
            assert_eq!(caches.find(line), None);
            assert_eq!(caches.insert(line), None, "four lines of a set fit the outer level");
        }
        assert_eq!(caches.find(0), Some(1), "the inner level kept the last two only");
        assert_eq!(caches.find(0), Some(0));
        assert_eq!(caches.insert(8), Some(2), "0 was used since");
        assert_eq!(caches.find(2), None);
        assert_eq!(caches.find(1), None, "the other set has nothing");
    }

    #[test]
    fn what_leaves_the_outer_level_leaves_all() {
        let mut caches = small();
        caches.insert(0);
        for line in [2, 4, 6] {
            caches.insert(line);
            // Keeps line 0 in the inner level, but only there.
            caches.levels[0].touch(0);
            if !caches.levels[0].touch(0) {
                caches.levels[0].insert(0);
            }
        }
        assert_eq!(caches.insert(8), Some(0));
        assert_eq!(caches.find(0), None);
        caches.remove(8);
        assert_eq!(caches.find(8), None);
        assert_eq!(caches.insert(10), None, "the removed line left room");
    }
}
