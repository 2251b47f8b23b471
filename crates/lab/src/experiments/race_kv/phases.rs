//! Phases of every contender, in order. Tuples of the first third are there to be deleted; all others stay,
//! and what is read or changed is drawn from those. Each phase that adds or deletes has tuples of its own, so
//! that a contender that does not get through a phase in time finds the later ones as all others do.

use crate::measure::Random;
use crate::peers::Class;
use crate::workload::{Distribution, Op, OperationKind, YCSB, Zipf, ycsb};

/// Adding all tuples.
pub(super) const LOAD: &str = "load";
/// The columns of YCSB, in order.
pub(super) const YCSB_NAMES: [&str; 6] = ["YCSB A", "YCSB B", "YCSB C", "YCSB D", "YCSB E", "YCSB F"];
/// Half gets, half updates, uniform.
pub(super) const MIXED: &str = "mixed";
/// Half gets, half updates, Zipf 0.99.
pub(super) const MIXED_ZIPF: &str = "mixed z99";
/// Single writes.
pub(super) const WRITES: [&str; 3] = ["insert", "update", "delete"];
/// The same by the store's call for many.
pub(super) const WRITES_MANY: [&str; 3] = ["insert_many", "update_many", "delete_many"];

/// Tuples of a scan.
const SCAN: u64 = 100;

/// Operations, and how to run them.
pub(super) struct Phase {
    pub(super) name: &'static str,
    pub(super) class: Class,
    pub(super) threads: usize,
    pub(super) ops: Vec<Op>,
    /// By the store's call for many gets, or many writes.
    pub(super) many: bool,
    /// True if it leaves other tuples, or versions of them, than it found.
    pub(super) writes: bool,
    /// Needs keys in order.
    pub(super) ordered: bool,
    /// May go through its operations again, to fill its time.
    pub(super) repeats: bool,
}

impl Phase {
    fn new(name: &'static str, ops: Vec<Op>) -> Phase {
        let repeats =
            !ops.iter().any(|op| matches!(op.kind(), OperationKind::Insert | OperationKind::Delete));
        let ordered = ops.iter().any(|op| op.kind() == OperationKind::Scan);
        let writes = ops.iter().any(Op::writes);
        Phase { name, class: Class::None, threads: 1, ops, many: false, writes, ordered, repeats }
    }

    /// Inserts, updates and deletes, in this order, of tuples of their own.
    fn of_writes(
        drawing: &mut OperationGenerator,
        [inserts, updates, deletes]: [u64; 3],
        class: Class,
        threads: usize,
        many: bool,
    ) -> [Phase; 3] {
        let names = if many { WRITES_MANY } else { WRITES };
        let ops = [
            drawing.new_ones(inserts),
            drawing.some(updates, &Distribution::Uniform, &[OperationKind::Update]),
            drawing.deleted(deletes),
        ];
        let mut named =
            names.into_iter().zip(ops).map(|(name, ops)| Phase::new(name, ops).by(class, threads));
        std::array::from_fn(|_| Phase { many, ..named.next().expect("as many names as kinds") })
    }

    fn by(self, class: Class, threads: usize) -> Phase {
        Phase { class, threads, ..self }
    }
}

/// All phases.
pub(super) struct Plan {
    pub(super) tuples: u64,
    pub(super) load: Phase,
    /// Updates after an opening, which are not measured: what a store that was opened again gets into memory,
    /// or catches up with, when it is first used is `recovery`'s to show.
    pub(super) warm_up: Phase,
    phases: Vec<Phase>,
}

/// Draws operations; knows which tuples are there.
struct OperationGenerator {
    /// The tuples that stay: `stay..tuples`.
    stay: u64,
    tuples: u64,
    next_new: u64,
    next_deleted: u64,
    random: Random,
}

impl OperationGenerator {
    fn some(&mut self, count: u64, from: &Distribution, kinds: &[OperationKind]) -> Vec<Op> {
        let one = |i: u64| {
            let tuple = self.stay + from.draw(&mut self.random, self.tuples - self.stay);
            let kind = kinds[(self.random.next_u64() % kinds.len() as u64) as usize];
            Op::new(kind, tuple, if kind == OperationKind::Scan { SCAN } else { i })
        };
        (0..count).map(one).collect()
    }

    fn new_ones(&mut self, count: u64) -> Vec<Op> {
        let first = self.next_new;
        self.next_new += count;
        (first..self.next_new).map(|tuple| Op::new(OperationKind::Insert, tuple, 0)).collect()
    }

    fn deleted(&mut self, count: u64) -> Vec<Op> {
        let first = self.next_deleted;
        self.next_deleted += count;
        assert!(self.next_deleted <= self.stay, "{} tuples are there to be deleted", self.stay);
        (first..self.next_deleted).map(|tuple| Op::new(OperationKind::Delete, tuple, 0)).collect()
    }
}

impl Plan {
    pub(super) fn new(tuples: u64, quick: bool, seed: u64) -> Plan {
        let random = Random::new(seed);
        let mut drawing =
            OperationGenerator { stay: tuples / 3, tuples, next_new: tuples, next_deleted: 0, random };
        let live = tuples - tuples / 3;
        let (mild, strong) = (Zipf::new(live, 0.8), Zipf::new(live, 0.99));
        let (mild, skewed) = (Distribution::Zipf(mild), Distribution::Zipf(strong.clone()));
        let uniform = Distribution::Uniform;
        let many = tuples / 5;
        let mut phases = Vec::new();
        for (name, from) in [("get", &uniform), ("get z80", &mild), ("get z99", &skewed)] {
            phases.push(Phase::new(name, drawing.some(many, from, &[OperationKind::Get])));
        }
        let gets = drawing.some(many, &uniform, &[OperationKind::Get]);
        phases.push(Phase { many: true, ..Phase::new("get_many", gets) });
        phases.push(Phase::new("scan", drawing.some(many / 20, &uniform, &[OperationKind::Scan])));
        phases.push(Phase::new("update", drawing.some(many / 2, &uniform, &[OperationKind::Update])));
        for (name, from) in [(MIXED, &uniform), (MIXED_ZIPF, &skewed)] {
            phases.push(Phase::new(
                name,
                drawing.some(many / 2, from, &[OperationKind::Get, OperationKind::Update]),
            ));
        }
        for (workload, name) in YCSB.into_iter().zip(YCSB_NAMES) {
            let count = if workload == 'E' { many / 20 } else { many / 2 } as usize;
            let mut ops = ycsb(workload, count, live, &mut drawing.next_new, &strong, seed);
            // YCSB counts from 0; the tuples that stay begin later.
            ops.iter_mut().for_each(|op| *op = op.moved(drawing.stay, live));
            phases.push(Phase::new(name, ops));
        }
        phases.push(Phase::new("insert", drawing.new_ones(many)));
        phases.push(Phase::new("delete", drawing.deleted(many / 2)));
        for (name, from, kinds) in [
            ("get", &uniform, &[OperationKind::Get][..]),
            ("update", &uniform, &[OperationKind::Update]),
            (MIXED, &uniform, &[OperationKind::Get, OperationKind::Update]),
            (MIXED_ZIPF, &skewed, &[OperationKind::Get, OperationKind::Update]),
        ] {
            phases.push(Phase::new(name, drawing.some(many / 2, from, kinds)).by(Class::None, 2));
        }
        phases.push(Phase::new("insert", drawing.new_ones(many)).by(Class::None, 2));
        phases.push(Phase::new("delete", drawing.deleted(many / 4)).by(Class::None, 2));
        phases.extend(Phase::of_writes(&mut drawing, [many, many, many / 5], Class::None, 1, true));
        // A disk syncs a few thousand times a second at most.
        let synced = if quick { [24; 3] } else { [many / 2, many / 2, many / 40] };
        for threads in [1, 2] {
            let grouped = [many / 2, many / 2, many / 8];
            phases.extend(Phase::of_writes(&mut drawing, grouped, Class::Group, threads, false));
            phases.extend(Phase::of_writes(&mut drawing, grouped, Class::Group, threads, true));
            phases.extend(Phase::of_writes(&mut drawing, synced, Class::Sync, threads, false));
        }
        let warm_up = Phase::new("warm-up", drawing.some(many / 2, &uniform, &[OperationKind::Update]));
        let load = (0..tuples).map(|tuple| Op::new(OperationKind::Insert, tuple, 0)).collect();
        Plan { tuples, load: Phase::new(LOAD, load), warm_up, phases }
    }

    pub(super) fn of_class(&self, class: Class) -> impl Iterator<Item = &Phase> {
        self.phases.iter().filter(move |phase| phase.class == class)
    }
}
