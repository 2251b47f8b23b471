//! The history: what step n does follows from the seed and n alone, so a model of any prefix can be made again.

use entresol_memory::Env;

/// The longest history.
pub(crate) const STEPS_MAX: u64 = 20_000;
/// Keys are below this.
const KEYS: u64 = 400;
/// The trees grow in the first half of this many steps and shrink in the second.
const TIDE_STEPS: u64 = 600;

/// Why a check failed, in a sentence.
pub(crate) type Failure = Box<dyn std::error::Error>;

/// What a step does to one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) key: u64,
    /// Bytes of the new value; none: the key goes away.
    pub(crate) value_bytes: Option<usize>,
    /// Tells this value from every other.
    pub(crate) stamp: u64,
}

fn random(seed: u64, step: u64) -> Env {
    Env::simulated(seed.rotate_left(32) ^ step.wrapping_mul(0xA24B_AED4_963E_E407))
}

fn change(random: &Env, step: u64, bytes: &[usize]) -> Change {
    let removes = if step % TIDE_STEPS < TIDE_STEPS / 2 { 2 } else { 7 };
    let put = random.random_u64() % 10 >= removes;
    let value_bytes = put.then(|| bytes[(random.random_u64() % bytes.len() as u64) as usize]);
    Change { key: random.random_u64() % KEYS, value_bytes, stamp: random.random_u64() | 1 }
}

/// The change that a step makes to the tree: values in the tree itself (0 bytes), in a line, in
/// several.
pub(crate) fn tree_change(seed: u64, step: u64) -> Change {
    change(&random(seed, step), step, &[0, 0, 64, 128, 256, 700, 1500, 5000])
}

/// The changes that a step commits.
pub(crate) fn commit_changes(seed: u64, step: u64) -> Vec<Change> {
    let random = random(!seed, step);
    (0..1 + random.random_u64() % 3).map(|_| change(&random, step, &[3, 8, 20, 90, 300, 4500])).collect()
}
