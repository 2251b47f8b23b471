//! Turns of the loops of a star join, which compute for long without asking an input for rows.

use crate::planner::turns::TURN_MAX;
use std::time::Instant;

/// Time since a loop last let others compute.
pub(super) struct Turn(Instant);

impl Turn {
    pub(super) fn begin() -> Turn {
        Turn(Instant::now())
    }

    /// Yields to the scheduler, and so to whatever cancels the query, if the turn lasts for too long.
    pub(super) async fn yield_if_over(&mut self) {
        if self.0.elapsed() > TURN_MAX {
            tokio::task::yield_now().await;
            self.0 = Instant::now();
        }
    }
}
