//! `race-trees`: every structure of ours beside `BTreeMap` in the same run, one thread of calls (the LSM-tree
//! moves and merges in one of its own), random 8-byte keys and values; and the published figures of the C++
//! designs beside them.
//!
//! Left out, because of their size with ten million random keys: the plain trie, which has a node for every
//! half byte, and the skip-list of pairs with its towers in the pool (example `lists` has both).
//!
//! Ours run on `journal` at `none`, failure-atomic. The published figures are those without failure
//! atomicity, and with transactions where there are any; they were taken on another machine: `BTreeMap` of
//! this run beside `std::map` and `absl::btree_map` of theirs says how the machines compare.

use crate::asked::AskedFigure;
use crate::measure::Random;
use crate::peers::indexes::Index;
use crate::peers::ours::{PooledIndex, open_index};
use crate::peers::{Session, Store};
use crate::plot::{Figure, Series};
use crate::report::Report;
use crate::workload::{Op, OperationKind, Tally};
use crate::{Error, RunOptions};
use entresol_memory::DomainChoice;
use entresol_structures::btree::instances::{
    BitmapTree, FastFairTree, FpLikeTree, HybridBitmapTree, HybridPbpTree, HybridUnsortedTree, HybridWbTree,
    PbpTree, UnsortedTree, WbTree,
};
use entresol_structures::lsm::LsmTree;
use entresol_structures::skiplist::{BucketSkipList, HybridBucketSkipList, HybridPairSkipList};
use entresol_structures::trie::Patricia;
use entresol_structures::{FpTree, HashTable, WordKey};
use serde_json::json;
use std::time::Instant;

const SLICE: usize = 1000;
const SCAN: u64 = 100;
const PHASES: [&str; 5] = ["insert", "get", "get_many", "delete", "scan"];
/// Phases that were published.
const RATED: [&str; 4] = ["insert", "get", "delete", "scan"];

/// Published M operations a second without failure atomicity: insert, get, delete (none: it fails), scan.
struct PublishedRates {
    name: &'static str,
    rates: [Option<f64>; 4],
    bytes_per_tuple: Option<f64>,
}

const fn published(name: &'static str, rates: [f64; 4], bytes_per_tuple: Option<f64>) -> PublishedRates {
    let [insert, get, delete, scan] = rates;
    let delete = if delete > 0.0 { Some(delete) } else { None };
    PublishedRates { name, rates: [Some(insert), Some(get), delete, Some(scan)], bytes_per_tuple }
}

impl PublishedRates {
    /// Points of the phases that were published.
    fn series(&self) -> Series {
        let rates = RATED.iter().zip(self.rates);
        let points = rates.filter_map(|(phase, rate)| Some(((*phase).to_string(), rate?)));
        Series::of_paper(self.name, points.collect())
    }
}

/// A delete of 0 stands for one that fails.
const PUBLISHED: [PublishedRates; 8] = [
    published("FPTree", [1.13, 1.17, 0.81, 0.24], Some(34.0)),
    published("FPTree, leaves of 1 KiB", [1.48, 1.28, 0.97, 0.30], None),
    published("wB+-tree", [0.70, 0.59, 0.0, 0.21], Some(51.0)),
    published("hybrid wB+-tree", [0.80, 0.91, 0.0, 0.24], None),
    published("PBP-tree", [0.86, 0.84, 0.65, 0.27], None),
    published("FAST&FAIR", [1.02, 0.78, 0.73, 0.32], Some(33.0)),
    published("absl::btree_map", [1.39, 0.85, 1.13, 0.29], None),
    published("std::map", [0.45, 0.36, 0.36, 0.03], None),
];

/// The same with transactions.
const PUBLISHED_TRANSACTIONS: [(&str, [f64; 4]); 2] =
    [("FPTree", [0.25, 0.99, 0.32, 0.23]), ("FPTree, leaves of 1 KiB", [0.28, 1.22, 0.41, 0.32])];

/// Operations of all phases.
struct Plan {
    tuples: u64,
    load: Vec<Op>,
    gets: Vec<Op>,
    scans: Vec<Op>,
    deletes: Vec<Op>,
}

/// Rates and space of a structure.
struct StructureFigures {
    name: &'static str,
    /// Its namesake among the published.
    namesake: Option<&'static str>,
    /// As [`PHASES`].
    rates: [f64; 5],
    bytes_per_tuple: f64,
    dram_bytes_per_tuple: f64,
    tally: Tally,
    scanned: Tally,
}

/// Runs the experiment.
pub(super) fn run(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let tuples: u64 = if options.quick { 10_000 } else { 10_000_000 };
    let mut random = Random::new(options.seed);
    let mut draw = |kind, count: u64, detail| -> Vec<Op> {
        (0..count).map(|_| Op::new(kind, random.below(tuples), detail)).collect()
    };
    let gets = draw(OperationKind::Get, tuples / 2, 0);
    let scans = draw(OperationKind::Scan, tuples / 50, SCAN);
    let mut order: Vec<u64> = (0..tuples / 2).collect();
    random.shuffle(&mut order);
    let plan = Plan {
        tuples,
        load: (0..tuples).map(|tuple| Op::new(OperationKind::Insert, tuple, 0)).collect(),
        gets,
        scans,
        deletes: order.into_iter().map(|tuple| Op::new(OperationKind::Delete, tuple, 0)).collect(),
    };
    let mut all = vec![btree_map(&plan)?];
    macro_rules! measure {
        ($($name:literal as $namesake:expr, $index:ty;)*) => {
            $( all.push(structure::<$index>($name, $namesake, &plan, options)?); )*
        };
    }
    measure! {
        "FPTree" as Some("FPTree"), FpTree<WordKey>;
        "Hash table" as None, HashTable<WordKey>;
        "FP-like tree" as Some("FPTree, leaves of 1 KiB"), FpLikeTree<u64>;
        "wB+-tree" as Some("wB+-tree"), WbTree<u64>;
        "hybrid wB+-tree" as Some("hybrid wB+-tree"), HybridWbTree<u64>;
        "PBP-tree" as Some("PBP-tree"), PbpTree<u64>;
        "hybrid PBP-tree" as None, HybridPbpTree<u64>;
        "unsorted tree" as None, UnsortedTree<u64, 512, 512>;
        "hybrid unsorted tree" as None, HybridUnsortedTree<u64>;
        "bitmap tree" as None, BitmapTree<u64, 512, 512>;
        "hybrid bitmap tree" as None, HybridBitmapTree<u64>;
        "FAST&FAIR" as Some("FAST&FAIR"), FastFairTree<u64>;
        "LSM-tree" as None, LsmTree<u64>;
        "skip-list of buckets" as None, BucketSkipList<u64>;
        "hybrid skip-list of buckets" as None, HybridBucketSkipList<u64>;
        "hybrid skip-list of pairs" as None, HybridPairSkipList<u64>;
        "PATRICIA" as None, Patricia;
    }
    show(&all, report);
    compare(&all, report);
    report.check(
        "every answer was right: key there, value of its tuple",
        all.iter().all(|m| m.tally.wrong == 0),
    );
    let scans = all.iter().filter(|m| m.scanned.right > 0).map(|m| m.scanned);
    report.check("all scans found the same tuples in the same order", same(scans));
    Ok(())
}

fn same<T: PartialEq>(mut items: impl Iterator<Item = T>) -> bool {
    let first = items.next();
    first.is_some_and(|first| items.all(|item| item == first))
}

/// M operations a second.
fn rate(
    session: &mut dyn Session,
    ops: &[Op],
    tally: &mut Tally,
    step: impl Fn(&mut dyn Session, &[Op], &mut Tally) -> Result<(), Error>,
) -> Result<f64, Error> {
    let start = Instant::now();
    ops.chunks(SLICE).try_for_each(|ops| step(session, ops, tally))?;
    Ok(ops.len() as f64 / start.elapsed().as_secs_f64() / 1e6)
}

fn measure(
    name: &'static str,
    namesake: Option<&'static str>,
    store: &dyn Store,
    ordered: bool,
    plan: &Plan,
    node_bytes: impl FnOnce() -> Result<(u64, u64), Error>,
) -> Result<StructureFigures, Error> {
    let mut tally = Tally::default();
    let mut session = store.session()?;
    let session = &mut *session;
    let run = |session: &mut dyn Session, ops: &[Op], tally: &mut Tally| session.run(ops, tally);
    let many = |session: &mut dyn Session, ops: &[Op], tally: &mut Tally| session.get_many(ops, tally);
    let insert = rate(session, &plan.load, &mut tally, run)?;
    let (pool_bytes, dram_bytes) = node_bytes()?;
    let get = rate(session, &plan.gets, &mut tally, run)?;
    let get_many = rate(session, &plan.gets, &mut tally, many)?;
    let mut scanned = Tally::default();
    let scan = if ordered { rate(session, &plan.scans, &mut scanned, run)? } else { f64::NAN };
    tally.wrong += scanned.wrong;
    let delete = rate(session, &plan.deletes, &mut tally, run)?;
    Ok(StructureFigures {
        name,
        namesake,
        rates: [insert, get, get_many, delete, scan],
        bytes_per_tuple: (pool_bytes + dram_bytes) as f64 / plan.tuples as f64,
        dram_bytes_per_tuple: dram_bytes as f64 / plan.tuples as f64,
        tally,
        scanned,
    })
}

fn btree_map(plan: &Plan) -> Result<StructureFigures, Error> {
    let store = crate::peers::volatile_map();
    measure("BTreeMap", None, &*store, true, plan, || Ok((0, 0)))
}

fn structure<I: Index>(
    name: &'static str,
    namesake: Option<&'static str>,
    plan: &Plan,
    options: &RunOptions,
) -> Result<StructureFigures, Error> {
    let dir = options.database_dir()?;
    let store: Box<PooledIndex<I>> = open_index(dir.path(), DomainChoice::Journal)?;
    let ordered = store.index().scan(0, 1, &mut Vec::new())?;
    let measured = measure(name, namesake, &*store, ordered, plan, || store.index().node_bytes())?;
    store.close()?;
    Ok(measured)
}

fn show(all: &[StructureFigures], report: &mut Report) {
    let points =
        |rates: &[f64; 5]| PHASES.iter().zip(rates).map(|(phase, rate)| (phase.to_string(), *rate)).collect();
    let is_measured =
        |known: &&PublishedRates| all.iter().any(|measured| measured.namesake == Some(known.name));
    for measured in all {
        let [insert, get, get_many, delete, scan] = measured.rates;
        report.row(json!({
            "figure": "M operations a second",
            "structure": measured.name,
            "insert_million_per_s": insert,
            "get_million_per_s": get,
            "get_many_million_per_s": get_many,
            "delete_million_per_s": delete,
            "scan_million_per_s": scan.is_finite().then_some(scan),
            "bytes_per_tuple": measured.bytes_per_tuple,
            "dram_bytes_per_tuple": measured.dram_bytes_per_tuple,
        }));
    }
    report.figure(Figure {
        title: "structures on journal, none".to_string(),
        x_label: "phase".to_string(),
        y_label: "M operations/s".to_string(),
        series: all
            .iter()
            .map(|measured| Series { name: measured.name.to_string(), points: points(&measured.rates) })
            .chain(PUBLISHED.iter().filter(|known| is_measured(known)).map(PublishedRates::series))
            .collect(),
    });
    report.figure(Figure {
        title: "memory".to_string(),
        x_label: "where".to_string(),
        y_label: "bytes a tuple".to_string(),
        series: all[1..]
            .iter()
            .map(|measured| Series {
                name: measured.name.to_string(),
                points: vec![
                    ("all".to_string(), measured.bytes_per_tuple),
                    ("DRAM".to_string(), measured.dram_bytes_per_tuple),
                ],
            })
            .collect(),
    });
    for known in &PUBLISHED {
        let ours = all.iter().find(|measured| measured.namesake == Some(known.name));
        let rates = ours.map(|measured| {
            let [insert, get, _, delete, scan] = measured.rates;
            [insert, get, delete, scan]
        });
        for (i, (phase, theirs)) in RATED.iter().zip(known.rates).enumerate() {
            let source = format!("published {}", known.name);
            let theirs = theirs.map_or("fails".to_string(), |rate| rate.to_string());
            report.paper(&source, &format!("{phase}, million/s"), &theirs, rates.map(|rates| rates[i]));
        }
    }
    for (name, [insert, get, delete, scan]) in PUBLISHED_TRANSACTIONS {
        for (phase, theirs) in RATED.iter().zip([insert, get, delete, scan]) {
            let source = format!("published {name}, transactions");
            report.paper(&source, &format!("{phase}, million/s"), &theirs.to_string(), None);
        }
    }
}

/// Each design beside its namesake, and all beside `BTreeMap`.
fn compare(all: &[StructureFigures], report: &mut Report) {
    let map = &all[0];
    for measured in &all[1..] {
        for (i, phase) in PHASES.iter().enumerate().filter(|(_, phase)| **phase != "get_many") {
            if measured.rates[i].is_finite() {
                let name = format!("{phase}: {}/BTreeMap", measured.name);
                report.ratio(&name, measured.rates[i] / map.rates[i]);
            }
        }
        let Some(known) = PUBLISHED.iter().find(|known| Some(known.name) == measured.namesake) else {
            continue;
        };
        let [insert, get, _, delete, scan] = measured.rates;
        for ((phase, ours), theirs) in RATED.iter().zip([insert, get, delete, scan]).zip(known.rates) {
            if let Some(theirs) = theirs {
                let name = format!("{phase}: {}/published {}", measured.name, known.name);
                report.asked(AskedFigure::at_least(name, ours / theirs, 1.0));
            }
        }
        if let Some(bytes) = known.bytes_per_tuple {
            let name = format!("bytes per tuple, {}", measured.name);
            report
                .asked(AskedFigure::at_most(name, measured.bytes_per_tuple, bytes).unit("B").tolerance(0.0));
        }
    }
}
