//! The clock that timestamps follow while version histories exist: that of the machine, as far as it can be
//! trusted.
//!
//! A clock that jumps ahead by mistake would take timestamps with it, which never go back: until that time
//! had come, `AS OF` now would miss all commits after the jump, and histories would be pruned as if their
//! time were over. So a clock that runs ahead of the time since it was last trusted by more than
//! [`ContextOptions::clock_jump_max`] is not followed: time goes on as the machine's uptime does, which
//! cannot be set, and the log says so. Opening the database again trusts the clock as it is then.
//!
//! A clock that is set back is trusted, since timestamps count on from where they are; and when it comes
//! forward again, up to where it would be had it not been set.
//!
//! [`ContextOptions::clock_jump_max`]: crate::ContextOptions::clock_jump_max

use crate::Timestamp;
use entresol_memory::Env;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::time::Duration;

/// See the module.
pub(crate) struct TrustedClock {
    env: Env,
    jump_max_ns: u64,
    /// Maximum lead of the clock over the uptime when it was trusted.
    ahead_ns: AtomicI64,
    /// The clock is not followed, and the log says so.
    is_off: AtomicBool,
}

impl TrustedClock {
    /// Trusts the clock as it is, and the newest stored timestamp.
    pub(crate) fn new(env: &Env, newest: Timestamp, jump_max: Duration) -> TrustedClock {
        let jump_max_ns = u64::try_from(jump_max.as_nanos()).unwrap_or(u64::MAX);
        let now = Timestamp::from_nanoseconds(env.now_ns());
        if newest > now.plus(jump_max_ns) {
            let ahead_s = newest.since(now) / 1_000_000_000;
            tracing::warn!(
                ahead_s,
                "commits have timestamps ahead of the clock, which was ahead once or is behind now: AS OF a time in \
                 between does not see commits until then"
            );
        }
        let ahead_ns = AtomicI64::new(difference(now.max(newest).nanoseconds(), env.uptime_ns()));
        TrustedClock { env: env.clone(), jump_max_ns, ahead_ns, is_off: AtomicBool::new(false) }
    }

    /// Timestamp of the present.
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_nanoseconds(self.now_ns())
    }

    /// Nanoseconds since 1970.
    pub(crate) fn now_ns(&self) -> u64 {
        let (now, uptime) = (self.env.now_ns(), self.env.uptime_ns());
        let expected = uptime.saturating_add_signed(self.ahead_ns.load(Relaxed));
        if now <= expected {
            self.follow(now);
            return now;
        }
        if now - expected > self.jump_max_ns {
            if !self.is_off.swap(true, Relaxed) {
                let ahead_s = (now - expected) / 1_000_000_000;
                tracing::warn!(
                    ahead_s,
                    "the clock has jumped ahead and is not followed: set it right, or open the database again if it is right"
                );
            }
            return expected;
        }
        self.ahead_ns.fetch_max(difference(now, uptime), Relaxed);
        self.follow(now);
        now
    }

    fn follow(&self, now: u64) {
        if self.is_off.load(Relaxed) && self.is_off.swap(false, Relaxed) {
            tracing::info!(now_ns = now, "the clock is followed again");
        }
    }
}

fn difference(now: u64, uptime: u64) -> i64 {
    i64::try_from(i128::from(now) - i128::from(uptime)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    #[test]
    fn a_jump_ahead_is_not_followed_and_small_steps_and_steps_back_are() {
        for env in [Env::real(), Env::simulated(9)] {
            let clock = TrustedClock::new(&env, Timestamp::START, Duration::from_secs(300));
            let by_itself = || env.clone().now_ns().saturating_add_signed(-env_off(&env));
            let near = |off: i64| {
                let right = by_itself().saturating_add_signed(off);
                let now = clock.now_ns();
                assert!(now.abs_diff(right) < 60 * SECOND as u64, "{now} is not near {right}");
            };
            near(0);
            env.set_clock_off_ns(10 * 365 * 86_400 * SECOND);
            near(0);
            env.set_clock_off_ns(0);
            near(0);
            env.set_clock_off_ns(200 * SECOND);
            near(200 * SECOND);
            env.set_clock_off_ns(-86_400 * SECOND);
            near(-86_400 * SECOND);
            env.set_clock_off_ns(0);
            near(0);
            env.set_clock_off_ns(i64::MAX);
            near(200 * SECOND);
        }
    }

    fn env_off(env: &Env) -> i64 {
        // Both are read within the minute that `near` allows for.
        let other = if env.is_simulated() { env.uptime_ns() } else { Env::real().now_ns() };
        difference(env.now_ns(), other)
    }
}
