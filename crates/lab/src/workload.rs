//! Operations on key-value stores, drawn from a seed: uniform and Zipf distributed keys, mixes, YCSB A to F.
//!
//! Tuple `i` has the key [`key_of`]`(i)`, a bijection that looks random, so tuples are loaded in random key
//! order. Its value says which tuple it is, so every answer can be verified where it comes back.

use crate::measure::Random;

/// Operation kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperationKind {
    /// Reads a key that is there.
    Get,
    /// Adds a key that is not there.
    Insert,
    /// Changes the value of a key that is there.
    Update,
    /// Removes a key that is there.
    Delete,
    /// Reads so many tuples from a key on, in key order.
    Scan,
    /// Reads a key and changes its value.
    ReadModifyWrite,
}

const KINDS: [OperationKind; 6] = [
    OperationKind::Get,
    OperationKind::Insert,
    OperationKind::Update,
    OperationKind::Delete,
    OperationKind::Scan,
    OperationKind::ReadModifyWrite,
];

const INDEX_BITS: u32 = 40;
const INDEX_MASK: u64 = (1 << INDEX_BITS) - 1;
const VERSION_MASK: u64 = 0xFFFF;

/// One operation: 16 bytes, so that a million of them pass by without disturbing what is measured.
#[derive(Debug, Clone, Copy)]
pub struct Op {
    /// The key, as a number.
    pub key: u64,
    /// Kind, version or length of a scan, tuple: from the top.
    packed: u64,
}

impl Op {
    /// An operation on a tuple; `detail` is the version that a write stores, or the length of a scan.
    pub fn new(kind: OperationKind, tuple: u64, detail: u64) -> Op {
        assert!(tuple <= INDEX_MASK, "tuple {tuple} is beyond {INDEX_MASK}");
        let packed = (kind as u64) << 56 | (detail & VERSION_MASK) << INDEX_BITS | tuple;
        Op { key: key_of(tuple), packed }
    }

    /// Operation kind.
    #[inline]
    pub fn kind(&self) -> OperationKind {
        KINDS[(self.packed >> 56) as usize]
    }

    /// Value that a write stores.
    #[inline]
    pub fn value(&self) -> u64 {
        self.packed & (VERSION_MASK << INDEX_BITS | INDEX_MASK)
    }

    /// Tuples of a scan.
    #[inline]
    pub fn length(&self) -> usize {
        (self.packed >> INDEX_BITS & VERSION_MASK) as usize
    }

    /// The same operation on another tuple: those below `tuples` are moved up by `by`, the others stay.
    #[must_use]
    pub fn moved(&self, by: u64, tuples: u64) -> Op {
        let tuple = self.packed & INDEX_MASK;
        if tuple < tuples {
            Op::new(self.kind(), tuple + by, self.packed >> INDEX_BITS & VERSION_MASK)
        } else {
            *self
        }
    }

    /// Returns true if it changes anything.
    #[inline]
    pub fn writes(&self) -> bool {
        !matches!(self.kind(), OperationKind::Get | OperationKind::Scan)
    }
}

/// The key of a tuple: a bijection of 64-bit words.
#[inline]
pub fn key_of(tuple: u64) -> u64 {
    let mixed = (tuple ^ tuple >> 31).wrapping_mul(0x7FB5_D329_728E_A185);
    (mixed ^ mixed >> 27).wrapping_mul(0x81DA_DEF4_BC2D_D44D)
}

/// Answers of a store, counted and verified.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Operations whose key was as expected: there, or absent for an insert.
    pub right: u64,
    /// Keys that were not there, or values of other tuples.
    pub wrong: u64,
    /// All values that were read, folded.
    pub sum: u64,
}

impl Tally {
    /// A value that was read.
    #[inline]
    pub fn got(&mut self, op: &Op, value: Option<u64>) {
        match value {
            Some(value) if value & INDEX_MASK == op.packed & INDEX_MASK => {
                self.right += 1;
                self.sum ^= value;
            }
            _ => self.wrong += 1,
        }
    }

    /// Counts a write; `as_expected` is true if it found the key, or its absence, as it should, or does not
    /// look.
    #[inline]
    pub fn wrote(&mut self, as_expected: bool) {
        self.right += u64::from(as_expected);
        self.wrong += u64::from(!as_expected);
    }

    /// The values of a scan, in key order: the first is the tuple's own.
    #[inline]
    pub fn scanned(&mut self, op: &Op, values: impl Iterator<Item = u64>) {
        let mut values = values.take(op.length());
        self.got(op, values.next());
        self.sum = values.fold(self.sum, |sum, value| sum.rotate_left(1) ^ value);
    }

    /// Adds another thread's.
    pub fn add(&mut self, other: Tally) {
        self.right += other.right;
        self.wrong += other.wrong;
        self.sum ^= other.sum;
    }
}

/// Distribution of accesses over tuples.
#[derive(Debug, Clone)]
pub enum Distribution {
    /// Each as often.
    Uniform,
    /// Few often, many seldom, and the popular ones spread over all keys.
    Zipf(Zipf),
}

impl Distribution {
    /// A tuple of so many.
    pub fn draw(&self, random: &mut Random, tuples: u64) -> u64 {
        match self {
            Distribution::Uniform => random.below(tuples),
            // Whatever range the ranks are of, the same ranks are popular.
            Distribution::Zipf(zipf) => {
                ((u128::from(key_of(zipf.rank(random))) * u128::from(tuples)) >> 64) as u64
            }
        }
    }
}

/// Ranks with Zipf's distribution, in constant time (Gray et al., SIGMOD 1994; the generator of YCSB).
#[derive(Debug, Clone)]
pub struct Zipf {
    items: u64,
    theta: f64,
    alpha: f64,
    zeta: f64,
    eta: f64,
}

impl Zipf {
    /// `theta` is the skew, below 1. Cost: a power for each item.
    pub fn new(items: u64, theta: f64) -> Zipf {
        assert!(items >= 2 && (0.0..1.0).contains(&theta), "{items} items, skew {theta}");
        let zeta: f64 = (1..=items).map(|i| (i as f64).powf(-theta)).sum();
        let zeta_of_two = 1.0 + 0.5f64.powf(theta);
        let eta = (1.0 - (2.0 / items as f64).powf(1.0 - theta)) / (1.0 - zeta_of_two / zeta);
        Zipf { items, theta, alpha: 1.0 / (1.0 - theta), zeta, eta }
    }

    /// A rank from 0 on; 0 is the most popular.
    pub fn rank(&self, random: &mut Random) -> u64 {
        let u = (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let share = u * self.zeta;
        if share < 1.0 {
            0
        } else if share < 1.0 + 0.5f64.powf(self.theta) {
            1
        } else {
            let rank = self.items as f64 * (self.eta * u - self.eta + 1.0).powf(self.alpha);
            (rank as u64).min(self.items - 1)
        }
    }
}

/// The workloads of YCSB (Cooper et al., SoCC 2010).
pub const YCSB: [char; 6] = ['A', 'B', 'C', 'D', 'E', 'F'];

/// Operations of a YCSB workload on `tuples` that are there; new ones are numbered from `next` on. `zipf` has
/// as many items as there are tuples.
pub fn ycsb(workload: char, count: usize, tuples: u64, next: &mut u64, zipf: &Zipf, seed: u64) -> Vec<Op> {
    let mut random = Random::new(seed ^ u64::from(workload as u32) << 32);
    let popular = Distribution::Zipf(zipf.clone());
    let mut added = Vec::new();
    let mut operation = |version: u64| {
        let writes = random.below(100);
        let (share, kind) = match workload {
            'A' => (50, OperationKind::Update),
            'B' => (5, OperationKind::Update),
            'C' => (0, OperationKind::Update),
            'D' | 'E' => (5, OperationKind::Insert),
            'F' => (50, OperationKind::ReadModifyWrite),
            other => panic!("YCSB has no workload {other}"),
        };
        if writes < share && kind == OperationKind::Insert {
            added.push(*next);
            *next += 1;
            return Op::new(kind, *next - 1, 0);
        }
        if workload == 'D' {
            // The latest are the most popular.
            let rank = zipf.rank(&mut random);
            let tuple = match added.len() as u64 {
                new if rank < new => added[(new - 1 - rank) as usize],
                new => (tuples - 1).saturating_sub(rank - new),
            };
            return Op::new(OperationKind::Get, tuple, 0);
        }
        let tuple = popular.draw(&mut random, tuples);
        match (writes < share, workload) {
            (true, _) => Op::new(kind, tuple, version),
            (false, 'E') => Op::new(OperationKind::Scan, tuple, 1 + random.below(100)),
            (false, _) => Op::new(OperationKind::Get, tuple, 0),
        }
    };
    (0..count as u64).map(&mut operation).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_keeps_its_parts() {
        for kind in KINDS {
            let op = Op::new(kind, 12_345_678_901, 100);
            assert_eq!((op.kind(), op.length(), op.key), (kind, 100, key_of(12_345_678_901)));
            let mut tally = Tally::default();
            tally.got(&op, Some(op.value()));
            tally.got(&op, Some(Op::new(kind, 12_345_678_901, 7).value()));
            assert_eq!((tally.right, tally.wrong), (2, 0), "any version of the tuple");
            tally.got(&op, Some(op.value() + 1));
            tally.got(&op, None);
            assert_eq!((tally.right, tally.wrong), (2, 2));
        }
    }

    #[test]
    fn zipf_is_as_skewed_as_its_formula() {
        const ITEMS: u64 = 1000;
        const DRAWS: usize = 200_000;
        for theta in [0.8, 0.99] {
            let zipf = Zipf::new(ITEMS, theta);
            let mut random = Random::new(3);
            let mut drawn = vec![0usize; ITEMS as usize];
            (0..DRAWS).for_each(|_| drawn[zipf.rank(&mut random) as usize] += 1);
            // The first two ranks are exact; the others follow the formula closely.
            for (rank, tolerance) in [(0, 0.05), (1, 0.05), (9, 0.2), (99, 0.35)] {
                let expected = DRAWS as f64 * f64::from(rank + 1).powf(-theta) / zipf.zeta;
                let found = drawn[rank as usize] as f64;
                assert!((found / expected - 1.0).abs() < tolerance, "{theta}, {rank}: {found}, {expected}");
            }
        }
    }

    #[test]
    fn ycsb_mixes_and_only_reads_what_is_there() {
        const TUPLES: u64 = 5000;
        let zipf = Zipf::new(TUPLES, 0.99);
        for (workload, share) in YCSB.into_iter().zip([50, 5, 0, 5, 5, 50]) {
            let mut next = TUPLES;
            let ops = ycsb(workload, 20_000, TUPLES, &mut next, &zipf, 1);
            let writes = ops.iter().filter(|op| op.writes()).count();
            assert!(writes.abs_diff(200 * share) < 600, "{workload}: {writes}");
            let mut there = TUPLES;
            for op in &ops {
                let tuple = op.packed & INDEX_MASK;
                if op.kind() == OperationKind::Insert {
                    assert_eq!(tuple, there);
                    there += 1;
                } else {
                    assert!(tuple < there, "{workload} reads tuple {tuple} of {there}");
                }
            }
            assert_eq!(next, there);
        }
    }
}
