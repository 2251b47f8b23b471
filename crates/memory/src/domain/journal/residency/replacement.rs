//! Page replacement policies, and the information that they have.
//!
//! Accesses are plain loads, without a reference bit that a process could read. The policies know only that a
//! page that was evicted is present again, so it was needed; while memory is short a fault loads one page
//! ([`super::single_faults`]), so it was that page. They are those of the literature with that in the place
//! of the hit:
//!
//! | policy | a loaded page | a page that returns soon | eviction |
//! | --- | --- | --- | --- |
//! | [`Clock`] | has no turn | has two turns of the hand | at the hand without a turn |
//! | [`TwoQueues`] (Johnson, Shasha, VLDB 1994) | is on probation | is in the main queue | from probation, while that has a quarter of all; else from the main queue |
//! | [`S3Fifo`] (Yang et al., SOSP 2023) | is in the small queue | is in the main queue, with a turn | from the small queue, while that has a tenth; else from the main queue, without a turn |
//!
//! The queues are ordered by the hand only: it visits all pages in the order of their addresses. "Soon" is
//! measured in pages evicted meanwhile. Memory: one byte per page.

/// Page replacement policy of a pool that is larger than its memory budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PageReplacement {
    /// Clock: pages that returned stay for two turns of the hand.
    Clock,
    /// 2Q: pages that returned soon are evicted only when few others are left.
    #[default]
    TwoQueues,
    /// S3-FIFO: a small queue for loaded pages, and a main one with second chances.
    S3Fifo,
}

impl PageReplacement {
    /// All policies.
    pub const ALL: [PageReplacement; 3] =
        [PageReplacement::Clock, PageReplacement::TwoQueues, PageReplacement::S3Fifo];

    pub(super) fn policy(self) -> Box<dyn Replacement> {
        match self {
            PageReplacement::Clock => Box::new(Clock::default()),
            PageReplacement::TwoQueues => Box::new(TwoQueues::default()),
            PageReplacement::S3Fifo => Box::new(S3Fifo::default()),
        }
    }
}

/// Replacement policy; see the [module](self).
pub(super) trait Replacement: Send {
    /// Returns true if the page at the hand, which is present, may be evicted.
    fn may_evict(&mut self, page: usize) -> bool;
    /// Notes an eviction. Takes no memory if the hand was there before, or there is
    /// [room](Replacement::make_room).
    fn note_eviction(&mut self, page: usize);
    /// Takes the memory for this many pages.
    fn make_room(&mut self, pages: usize);
    /// Bytes of the policy's state.
    fn memory_bytes(&self) -> usize;
}

/// One byte per page, 0 until it is set.
#[derive(Default)]
struct PageStates(Vec<u8>);

impl PageStates {
    fn of(&mut self, page: usize) -> &mut u8 {
        if self.0.len() <= page {
            self.0.resize((page + 1).next_power_of_two(), 0);
        }
        &mut self.0[page]
    }
}

/// Turns of the hand; see the [module](self).
#[derive(Default)]
pub(super) struct Clock {
    pages: PageStates,
}

impl Clock {
    const TURNS: u8 = 2;
    const GONE: u8 = 0x80;
}

impl Replacement for Clock {
    fn may_evict(&mut self, page: usize) -> bool {
        let state = self.pages.of(page);
        let turns = if *state == Clock::GONE { Clock::TURNS } else { *state };
        *state = turns.saturating_sub(1);
        turns == 0
    }

    fn note_eviction(&mut self, page: usize) {
        *self.pages.of(page) = Clock::GONE;
    }

    fn make_room(&mut self, pages: usize) {
        self.pages.of(pages.saturating_sub(1));
    }

    fn memory_bytes(&self) -> usize {
        self.pages.0.capacity()
    }
}

/// Marks of evicted pages by time: in steps of a sixteenth of the pages present.
#[derive(Default)]
struct Ghosts {
    step: u8,
    in_step: u64,
}

impl Ghosts {
    const MARK: u8 = 0x80;
    const STEPS_PER_MEMORY: u64 = 16;

    /// Mark of a page that is evicted now, of `there` pages present.
    fn mark(&mut self, there: u64) -> u8 {
        self.in_step += 1;
        if self.in_step >= (there / Ghosts::STEPS_PER_MEMORY).max(1) {
            self.step = (self.step + 1) % Ghosts::MARK;
            self.in_step = 0;
        }
        Ghosts::MARK | self.step
    }

    /// Returns true if a page with this state was evicted at most `steps` steps ago. After 128 steps they
    /// wrap around.
    fn is_recent(&self, state: u8, steps: u8) -> bool {
        state & Ghosts::MARK != 0 && (self.step.wrapping_sub(state) & !Ghosts::MARK) <= steps
    }
}

/// Number of pages of each queue that the hand has visited and that are still present.
#[derive(Default)]
struct QueueCounts {
    first: u64,
    main: u64,
}

impl QueueCounts {
    fn all(&self) -> u64 {
        self.first + self.main
    }
}

const FIRST: u8 = 1;
const MAIN: u8 = 2;

/// Probation and a main queue; see the [module](self).
#[derive(Default)]
pub(super) struct TwoQueues {
    pages: PageStates,
    ghosts: Ghosts,
    counts: QueueCounts,
}

impl TwoQueues {
    /// Ghosts of half the memory.
    const RECENT_STEPS: u8 = 8;
    const FIRST_SHARE: u64 = 4;
}

impl Replacement for TwoQueues {
    fn may_evict(&mut self, page: usize) -> bool {
        let state = self.pages.of(page);
        if !matches!(*state, FIRST | MAIN) {
            let is_main = self.ghosts.is_recent(*state, TwoQueues::RECENT_STEPS);
            *state = if is_main { MAIN } else { FIRST };
            *(if is_main { &mut self.counts.main } else { &mut self.counts.first }) += 1;
        }
        let first_goes = self.counts.first * TwoQueues::FIRST_SHARE > self.counts.all();
        (*state == FIRST) == first_goes
    }

    fn note_eviction(&mut self, page: usize) {
        let state = self.pages.of(page);
        match *state {
            FIRST => {
                *state = self.ghosts.mark(self.counts.all());
                self.counts.first -= 1;
            }
            MAIN => {
                *state = 0;
                self.counts.main -= 1;
            }
            // It was loaded and evicted between two turns.
            _ => *state = self.ghosts.mark(self.counts.all()),
        }
    }

    fn make_room(&mut self, pages: usize) {
        self.pages.of(pages.saturating_sub(1));
    }

    fn memory_bytes(&self) -> usize {
        self.pages.0.capacity()
    }
}

/// A small and a main queue; see the [module](self).
#[derive(Default)]
pub(super) struct S3Fifo {
    pages: PageStates,
    ghosts: Ghosts,
    counts: QueueCounts,
}

impl S3Fifo {
    /// Ghosts of nine tenths of the memory.
    const RECENT_STEPS: u8 = 14;
    const FIRST_SHARE: u64 = 10;
    /// In the main queue, with a turn left.
    const MAIN_WITH_TURN: u8 = MAIN + 1;
}

impl Replacement for S3Fifo {
    fn may_evict(&mut self, page: usize) -> bool {
        let state = self.pages.of(page);
        if !matches!(*state, FIRST..=S3Fifo::MAIN_WITH_TURN) {
            let is_main = self.ghosts.is_recent(*state, S3Fifo::RECENT_STEPS);
            *state = if is_main { S3Fifo::MAIN_WITH_TURN } else { FIRST };
            *(if is_main { &mut self.counts.main } else { &mut self.counts.first }) += 1;
        }
        let first_goes = self.counts.first * S3Fifo::FIRST_SHARE > self.counts.all();
        match *state {
            FIRST => first_goes,
            _ if first_goes => false,
            S3Fifo::MAIN_WITH_TURN => {
                *state = MAIN;
                false
            }
            _ => true,
        }
    }

    fn note_eviction(&mut self, page: usize) {
        let state = self.pages.of(page);
        match *state {
            FIRST => {
                *state = self.ghosts.mark(self.counts.all());
                self.counts.first -= 1;
            }
            MAIN | S3Fifo::MAIN_WITH_TURN => {
                *state = 0;
                self.counts.main -= 1;
            }
            // It was loaded and evicted between two turns.
            _ => *state = self.ghosts.mark(self.counts.all()),
        }
    }

    fn make_room(&mut self, pages: usize) {
        self.pages.of(pages.saturating_sub(1));
    }

    fn memory_bytes(&self) -> usize {
        self.pages.0.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_came_back_stays_for_two_turns() {
        let mut policy = Clock::default();
        assert!(policy.may_evict(9), "an unknown page may be evicted");
        policy.note_eviction(9);
        assert_eq!([(); 4].map(|()| policy.may_evict(9)), [false, false, true, true]);
        assert!(policy.may_evict(8), "neighbours are told apart");
    }

    #[test]
    fn pages_that_came_back_soon_outlive_those_that_come() {
        let policies: [Box<dyn Replacement>; 2] =
            [Box::new(TwoQueues::default()), Box::new(S3Fifo::default())];
        for mut policy in policies {
            // A hundred pages are evicted and return; then others are loaded.
            (0..100).for_each(|page| assert!(policy.may_evict(page) || page > 0));
            (0..4).for_each(|page| policy.note_eviction(page));
            assert!((0..4).all(|page| !policy.may_evict(page)), "they are in the main queue");
            assert!(policy.may_evict(100), "a new page goes first");
            // When few others are left, pages of the main queue are evicted.
            (4..101).for_each(|page| policy.note_eviction(page));
            policy.may_evict(0);
            assert!(policy.may_evict(0));
        }
    }

    #[test]
    fn a_page_that_comes_back_late_is_new() {
        let mut policy = TwoQueues::default();
        (0..1000).for_each(|page| {
            policy.may_evict(page);
        });
        (0..990).for_each(|page| policy.note_eviction(page));
        assert!(policy.may_evict(0), "hundreds of pages went since");
        assert!(!policy.may_evict(989), "a few pages went since");
    }
}
