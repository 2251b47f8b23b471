//! Processor time and sleeps of this process's threads, as the system counts them.

use std::fs;
use std::ops::Sub;
use std::time::Duration;

/// The unit of times in `/proc`: always a hundredth of a second for programs.
const TICK: Duration = Duration::from_millis(10);
/// Bytes of a thread's name that the system keeps.
const NAME_BYTES: usize = 15;

/// Processor time, and how often a thread went to sleep.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ProcessorUse {
    pub(super) processor: Duration,
    pub(super) sleeps: u64,
}

impl Sub for ProcessorUse {
    type Output = ProcessorUse;

    fn sub(self, before: ProcessorUse) -> ProcessorUse {
        ProcessorUse {
            processor: self.processor.saturating_sub(before.processor),
            sleeps: self.sleeps.saturating_sub(before.sleeps),
        }
    }
}

/// Processor time and sleeps of the threads of this name since they began; zero where there is no `/proc`.
pub(super) fn spent(name: &str) -> ProcessorUse {
    let name = &name[..name.len().min(NAME_BYTES)];
    let mut spent = ProcessorUse::default();
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return spent };
    for thread in threads.flatten() {
        let read = |file: &str| fs::read_to_string(thread.path().join(file)).unwrap_or_default();
        if read("comm").trim_end() != name {
            continue;
        }
        spent.processor += processor(&read("schedstat")).unwrap_or_else(|| ticks(&read("stat")));
        let status = read("status");
        let sleeps = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        spent.sleeps += sleeps.and_then(|count| count.trim().parse().ok()).unwrap_or(0);
    }
    spent
}

/// Nanoseconds on a processor, if the system counts them.
fn processor(schedstat: &str) -> Option<Duration> {
    let time = schedstat.split(' ').next()?.parse().ok()?;
    Some(Duration::from_nanos(time))
}

/// The same in ticks: user's and system's, the 12th and 13th behind the name.
fn ticks(stat: &str) -> Duration {
    let behind = stat.rsplit_once(')').map_or("", |(_, behind)| behind);
    let fields: Vec<u32> =
        behind.split_whitespace().skip(11).take(2).filter_map(|field| field.parse().ok()).collect();
    TICK * fields.iter().sum::<u32>()
}
