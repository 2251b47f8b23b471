//! The race's tables, and what is asked of ours.

use super::Results;
use super::phases::{LOAD, MIXED, MIXED_ZIPF, WRITES, WRITES_MANY, YCSB_NAMES};
use crate::asked::AskedFigure;
use crate::peers::{BTREE_MAP, Class, Contender, FPTREE, FPTREE_DAX, HASH, Role};
use crate::plot::{Figure, Series};
use crate::report::Report;
use serde_json::json;

/// A table: title, class, threads, phases.
type Table = (&'static str, Class, usize, &'static [&'static str]);

const TABLES: [Table; 10] = [
    (
        "none, 1 thread",
        Class::None,
        1,
        &[
            LOAD, "get", "get z80", "get z99", "get_many", "scan", "insert", "update", "delete", MIXED,
            MIXED_ZIPF,
        ],
    ),
    ("none, many writes at once, 1 thread", Class::None, 1, &WRITES_MANY),
    ("YCSB, none, 1 thread", Class::None, 1, &YCSB_NAMES),
    ("none, 2 threads", Class::None, 2, &["get", "insert", "update", "delete", MIXED, MIXED_ZIPF]),
    ("group(10), 1 thread", Class::Group, 1, &WRITES),
    ("group(10), 2 threads", Class::Group, 2, &WRITES),
    ("group(10), many writes at once, 1 thread", Class::Group, 1, &WRITES_MANY),
    ("group(10), many writes at once, 2 threads", Class::Group, 2, &WRITES_MANY),
    ("sync, 1 thread", Class::Sync, 1, &WRITES),
    ("sync, 2 threads", Class::Sync, 2, &WRITES),
];

pub(super) fn tables(contenders: &[Contender], results: &Results, report: &mut Report) {
    for (title, class, threads, phases) in TABLES {
        // Syncs are counted in thousands.
        let (unit, scale) = if class == Class::Sync { ("k", 1000.0) } else { ("M", 1.0) };
        let row = |contender: &Contender| {
            let point = |phase: &&str| {
                let rate = results.rate(contender.name, phase, class, threads).unwrap_or(f64::NAN);
                (phase.to_string(), rate * scale)
            };
            Series { name: contender.name.to_string(), points: phases.iter().map(point).collect() }
        };
        let took_part = |contender: &&Contender| class == Class::None || contender.durable;
        report.figure(Figure {
            title: title.to_string(),
            x_label: "phase".to_string(),
            y_label: format!("{unit} operations/s"),
            series: contenders.iter().filter(took_part).map(row).collect(),
        });
    }
}

pub(super) fn footprints(contenders: &[Contender], results: &Results, report: &mut Report) {
    for (name, footprint) in &results.footprints {
        report.row(json!({
            "store": name,
            "bytes_per_tuple": footprint.tuple_bytes,
            "bytes_per_tuple_of_all_files": footprint.file_bytes,
            "bytes_per_tuple_of_memory": footprint.memory_bytes,
            "peak_mib": footprint.peak_mib,
        }));
    }
    let bytes = |name: &str| {
        let found = results.footprints.iter().find(|(other, _)| *other == name);
        found.map(|(_, footprint)| footprint.tuple_bytes)
    };
    let trees = contenders.iter().filter(|contender| contender.role == Role::BTreePeer);
    let best = trees.filter_map(|contender| bytes(contender.name)).min_by(f64::total_cmp);
    if let (Some(best), Some(ours)) = (best, bytes(FPTREE)) {
        let figure = AskedFigure::at_most("bytes per tuple, FPTree, to the best B-tree's", ours, best);
        report.asked(figure.unit("B").tolerance(0.0));
    }
}

/// Ratios to the map and to the best peer, and of two threads to one.
pub(super) fn asked(contenders: &[Contender], results: &Results, report: &mut Report) {
    let none = |name: &str, phase: &str| results.rate(name, phase, Class::None, 1).unwrap_or(f64::NAN);
    let mut beside_map = |ours: &str, phase: &str, asked| {
        // The map has no call for many gets.
        let theirs = none(BTREE_MAP, if phase == "get_many" { "get" } else { phase });
        report.asked(AskedFigure::at_least(
            format!("{phase}: {ours}/BTreeMap"),
            none(ours, phase) / theirs,
            asked,
        ));
    };
    for (phase, asked) in [("get", 1.8), ("get_many", 6.0), ("insert", 1.0), ("delete", 0.9), ("scan", 1.3)] {
        beside_map(FPTREE, phase, asked);
    }
    for phase in ["insert", "delete"] {
        if none(FPTREE_DAX, phase).is_finite() {
            beside_map(FPTREE_DAX, phase, 0.8);
        }
    }
    for (phase, asked) in
        [("get", 5.0), ("get_many", 15.0), ("insert", 2.5), ("update", 3.4), ("delete", 2.4)]
    {
        beside_map(HASH, phase, asked);
    }
    for ours in [FPTREE, HASH] {
        for (phase, asked) in [
            ("insert", 2.0),
            ("update", 2.0),
            ("delete", 2.0),
            ("get", 1.5),
            ("get_many", 5.0),
            ("scan", 1.2),
            (LOAD, 2.0),
        ] {
            beside_best((contenders, results), ours, phase, Class::None, 1, Some(asked), report);
        }
        for phase in WRITES_MANY {
            beside_best((contenders, results), ours, phase, Class::None, 1, Some(2.0), report);
        }
        for (class, phases) in [(Class::Group, WRITES), (Class::Group, WRITES_MANY), (Class::Sync, WRITES)] {
            for threads in [1, 2] {
                for phase in phases {
                    beside_best((contenders, results), ours, phase, class, threads, Some(3.0), report);
                }
            }
        }
        for (phase, asked) in [(MIXED, 1.8), (MIXED_ZIPF, 1.5)] {
            let two = results.rate(ours, phase, Class::None, 2).unwrap_or(f64::NAN);
            report.asked(AskedFigure::at_least(
                format!("{phase}: {ours}, 2 threads/1"),
                two / none(ours, phase),
                asked,
            ));
        }
    }
    for phase in YCSB_NAMES {
        beside_best((contenders, results), FPTREE, phase, Class::None, 1, None, report);
    }
}

/// Ours to the best peer of the same phase, if there is one.
fn beside_best(
    (contenders, results): (&[Contender], &Results),
    ours: &str,
    phase: &str,
    class: Class,
    threads: usize,
    asked: Option<f64>,
    report: &mut Report,
) {
    let peers =
        contenders.iter().filter(|contender| matches!(contender.role, Role::BTreePeer | Role::LsmPeer));
    let rates = peers.filter_map(|peer| Some((peer.name, results.rate(peer.name, phase, class, threads)?)));
    let best = rates.max_by(|(_, a), (_, b)| a.total_cmp(b));
    if let (Some((peer, theirs)), Some(rate)) = (best, results.rate(ours, phase, class, threads)) {
        let threads = if threads == 1 { String::new() } else { format!(", {threads} threads") };
        let name = format!("{phase}, {}{threads}: {ours}/best peer", class.name());
        report.row(json!({"best_peer": peer, "of": name}));
        match asked {
            Some(asked) => report.asked(AskedFigure::at_least(name, rate / theirs, asked)),
            None => report.ratio(&name, rate / theirs),
        }
    }
}
