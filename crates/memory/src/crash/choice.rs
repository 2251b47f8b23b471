//! Selection of the states of a crash point to check.
//!
//! All of them where they are few. Otherwise the extremes, the adversarial ones (the newest without the
//! oldest, the oldest without the newest, each single unit missing, each single unit alone) within a cap, and
//! random ones of every density; words and whole cache lines.

use super::CrashOptions;
use super::point::{CrashPoint, SplitMix, Survivors, mix};

/// Limits on the states of one point.
pub(super) struct StateLimits {
    exhaustive: u64,
    adversarial: u32,
    random: u32,
}

impl StateLimits {
    /// Limits for crashes of the history (depth 0) or of a recovery, where the states multiply.
    pub(super) fn of(options: &CrashOptions, depth: usize) -> StateLimits {
        if depth == 0 {
            StateLimits {
                exhaustive: options.exhaustive_states_max,
                adversarial: options.adversarial_states_max,
                random: options.random_states,
            }
        } else {
            StateLimits {
                exhaustive: options.exhaustive_states_max.min(16),
                adversarial: 0,
                random: options.random_states.div_ceil(4),
            }
        }
    }
}

/// Survivors to check, and true if these are all possible ones.
pub(super) fn survivors(point: &CrashPoint<'_>, caps: &StateLimits, seed: u64) -> (Vec<Survivors>, bool) {
    let combinations = point.combinations();
    if combinations <= caps.exhaustive {
        return ((0..combinations).map(Survivors::Chosen).collect(), true);
    }
    let mut chosen =
        vec![Survivors::Fenced, Survivors::Flushed, Survivors::Everything, Survivors::OnlyEvicted];
    let (words, lines) = (point.free_words() as u32, point.free_lines() as u32);
    // A quarter of the limit each: single words alone, missing; lines alone, missing. Beyond it every n-th.
    let each = caps.adversarial.div_ceil(4);
    if each > 0 {
        let spread = |count: u32| (0..count).step_by(count.div_ceil(each).max(1) as usize);
        // Another offset at each fence, so that every unit is selected at some fence.
        let turned = |unit: u32, count: u32| (unit + point.fence() as u32) % count;
        chosen.extend(spread(words).map(|unit| Survivors::Only(turned(unit, words))));
        chosen.extend(spread(words).map(|unit| Survivors::Without(turned(unit, words))));
        if lines > 1 && 1u64 << lines.min(63) <= u64::from(each) {
            chosen.extend((1..(1u64 << lines) - 1).map(Survivors::Lines));
        } else if lines > 1 {
            chosen.extend(spread(lines).map(|unit| Survivors::OnlyLine(turned(unit, lines))));
            chosen.extend(spread(lines).map(|unit| Survivors::WithoutLine(turned(unit, lines))));
        }
        for part in [words.div_ceil(2), words - 1, words / 4, 1] {
            chosen.extend([Survivors::Oldest(part), Survivors::Newest(part)]);
        }
    }
    let mut random = SplitMix::new(seed ^ mix(point.fence()));
    for i in 0..caps.random {
        // Short seeds: they are printed.
        let seed = random.next() >> 32;
        chosen.push(if i % 4 == 3 && lines > 1 {
            Survivors::RandomLines(seed)
        } else {
            Survivors::Random(seed)
        });
    }
    (chosen, false)
}
