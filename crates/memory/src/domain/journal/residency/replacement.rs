//! Which pages go: second chance, told by pages that came back.
//!
//! Nobody tells when a page is used: accesses are plain loads. But a page that was given back and is there again was
//! needed soon. So, each time the hand comes by a page:
//!
//! - it came back since it was given back: it may stay for two more turns;
//! - it has a turn left: it loses that;
//! - else it goes.
//!
//! A page that is read once goes at the next turn, so a scan does not displace what is used again and again. This is what
//! S3-FIFO does with its small queue, its main queue and its ghosts, with the hand's turns in the place of the
//! queues' lengths.

/// Turns that a page stays that came back.
const TURNS: u8 = 2;
/// The page was given back, and has not been seen since.
const GONE: u8 = 0x80;
/// The page differs from the file without a mark.
const STRAY: u8 = 0x40;
const TURNS_MASK: u8 = 0x0F;

/// What is remembered of each page: a byte.
#[derive(Debug, Default)]
pub(super) struct SecondChance {
    pages: Vec<u8>,
}

impl SecondChance {
    /// Bytes that it takes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.pages.capacity()
    }

    /// Whether a page that is there may be given back; `urgent` lets none stay for its turns.
    pub(super) fn may_go(&mut self, page: usize, urgent: bool) -> bool {
        let state = self.state(page);
        let turns = if *state & GONE != 0 { TURNS } else { *state & TURNS_MASK };
        let stays = turns > 0 && !urgent;
        *state = *state & STRAY | turns.saturating_sub(1);
        !stays
    }

    /// The page was given back.
    pub(super) fn gone(&mut self, page: usize) {
        *self.state(page) = GONE;
    }

    /// The page differs from the file without a mark; true if that is so for the second time.
    pub(super) fn is_stray_again(&mut self, page: usize) -> bool {
        let state = self.state(page);
        let again = *state & STRAY != 0;
        *state ^= STRAY;
        again
    }

    fn state(&mut self, page: usize) -> &mut u8 {
        if self.pages.len() <= page {
            self.pages.resize((page + 1).next_power_of_two(), 0);
        }
        &mut self.pages[page]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_came_back_stays_for_two_turns() {
        let mut policy = SecondChance::default();
        assert!(policy.may_go(9, false), "a page that nobody knows goes");
        policy.gone(9);
        let turns = [(); 4].map(|()| policy.may_go(9, false));
        assert_eq!(turns, [false, false, true, true]);
        policy.gone(9);
        assert!(policy.may_go(9, true), "nothing stays when memory is short");
    }

    #[test]
    fn a_stray_page_is_told_the_second_time() {
        let mut policy = SecondChance::default();
        let told = [(); 4].map(|()| policy.is_stray_again(3));
        assert_eq!(told, [false, true, false, true]);
        assert!(!policy.is_stray_again(4));
    }
}
