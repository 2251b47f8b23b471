//! Moving a buffer (E6) and merging a level of four runs (E7): two at a time or all at once, straight to the
//! pool or through DRAM, with keys that differ and with the same keys in every run.

use super::{Bench, Cost, Medium, key};
use crate::plot::{Figure, Series};
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol_memory::ModelledCost;
use entresol_structures::lsm::{LsmOptions, LsmParameters, MergeAlgorithm, RunWriting};
use serde_json::json;

const SOURCES: u64 = 4;
const WAYS: [(MergeAlgorithm, RunWriting, &str); 4] = [
    (MergeAlgorithm::TwoWay, RunWriting::Direct, "2-way, direct"),
    (MergeAlgorithm::TwoWay, RunWriting::ThroughDram, "2-way, through DRAM"),
    (MergeAlgorithm::KWay, RunWriting::Direct, "K-way, direct"),
    (MergeAlgorithm::KWay, RunWriting::ThroughDram, "K-way, through DRAM"),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keys {
    Unique,
    Same,
}

impl Keys {
    const ALL: [Keys; 2] = [Keys::Unique, Keys::Same];

    fn name(self) -> &'static str {
        match self {
            Keys::Unique => "unique keys",
            Keys::Same => "the same keys",
        }
    }

    /// The i-th key of a run.
    fn of(self, run: u64, i: u64, entries: u64) -> u64 {
        match self {
            Keys::Unique => key(run * entries + i),
            Keys::Same => key(i),
        }
    }
}

/// The least of some samples: a merge is short, and what disturbs it only adds.
fn least(samples: impl Iterator<Item = f64>) -> f64 {
    samples.fold(f64::INFINITY, f64::min)
}

/// One merge of four runs.
struct MergeFigures {
    /// Of each move alone.
    moves: Vec<Cost>,
    /// Of the last move and the merge.
    both: Cost,
    /// The difference, on modelled media.
    modelled: Option<ModelledCost>,
    is_right: bool,
}

fn merge(
    options: &RunOptions,
    medium: Medium,
    (merge, path): (MergeAlgorithm, RunWriting),
    keys: Keys,
    entries: u64,
    sorted: bool,
) -> Result<MergeFigures, Error> {
    let parameters = LsmParameters {
        buffer_entries: entries as u32 + 1,
        buffers: 2,
        runs_per_level: SOURCES as u32,
        pool_levels: 2,
        disk_levels: 0,
    };
    let lsm = LsmOptions { merge, path, filter_bits: 0, ..LsmOptions::default() };
    let bench = Bench::new(options, medium, &parameters, lsm)?;
    let mut moves = Vec::new();
    let mut last = None;
    for run in 0..SOURCES {
        let mut of_run: Vec<u64> = (0..entries).map(|i| keys.of(run, i, entries)).collect();
        if sorted {
            of_run.sort_unstable();
        }
        of_run.iter().try_for_each(|key| bench.upsert(*key, run))?;
        let cost = bench.cost(|| Ok(bench.tree.settle()?))?;
        if run + 1 < SOURCES { moves.push(cost) } else { last = Some(cost) }
    }
    let stats = bench.tree.stats();
    let distinct = if keys == Keys::Unique { SOURCES * entries } else { entries };
    let newest = |run: u64| if keys == Keys::Unique { run } else { SOURCES - 1 };
    let mut is_right = stats.levels[0].runs == 0 && stats.levels[1].entries == distinct;
    for (run, i) in (0..SOURCES).flat_map(|run| (0..entries).step_by(7).map(move |i| (run, i))) {
        is_right &= bench.tree.get(keys.of(run, i, entries))? == Some(newest(run));
    }
    let both = last.expect("there are four runs");
    let of_move = moves.last().and_then(|cost| cost.modelled);
    let modelled = both.modelled.zip(of_move).map(|(both, one)| both - one);
    Ok(MergeFigures { moves, both, modelled, is_right })
}

pub(super) fn run(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let (sizes, rounds): (&[u64], _) =
        if options.quick { (&[512, 2048], 1) } else { (&[512, 2048, 8192, 32_768, 131_072], 7) };
    let mut is_right = true;
    let mut same_bytes = true;
    let mut fewer_bytes = true;
    let mut fences_most: f64 = 0.0;
    for (medium, keys) in Medium::ALL.into_iter().flat_map(|m| Keys::ALL.map(|keys| (m, keys))) {
        let rounds = if medium == Medium::Optane { 1 } else { rounds };
        let mut series: Vec<Series> =
            WAYS.map(|(.., name)| Series { name: name.to_string(), points: Vec::new() }).into();
        for &entries in sizes {
            // Of move and merge, and of moves alone.
            let mut samples = vec![(Vec::new(), Vec::new()); WAYS.len()];
            let mut written = Vec::new();
            // In turn, so that what disturbs the machine disturbs all.
            for round in 0..rounds {
                for (index, (way, path, name)) in WAYS.into_iter().enumerate() {
                    let merged = merge(options, medium, (way, path), keys, entries, false)?;
                    is_right &= merged.is_right;
                    samples[index].0.push(merged.both.ns);
                    samples[index].1.extend(merged.moves.iter().map(|cost| cost.ns));
                    if round > 0 {
                        continue;
                    }
                    let mut row = json!({
                        "what": "merge level (E7)", "medium": medium.name(), "way": name, "keys": keys.name(),
                        "entries_of_a_run": entries,
                    });
                    if let Some(cost) = merged.modelled {
                        let bytes = cost.lines_written * cost.line_bytes;
                        written.push(bytes);
                        fences_most = fences_most.max(cost.fences as f64 / (SOURCES * entries) as f64);
                        row["modified_bytes_an_entry"] = json!(bytes as f64 / (SOURCES * entries) as f64);
                        row["lines_read_an_entry"] =
                            json!(cost.lines_read as f64 / (SOURCES * entries) as f64);
                        row["device_bytes_an_entry"] = json!(
                            (cost.blocks_written * cost.block_bytes) as f64 / (SOURCES * entries) as f64
                        );
                        row["fences"] = json!(cost.fences);
                    } else {
                        let bytes = merged.both.journal_bytes - merged.moves[0].journal_bytes;
                        let bytes = bytes as f64 / (SOURCES * entries) as f64;
                        row["journal_bytes_an_entry"] = json!(bytes);
                    }
                    report.row(row);
                }
            }
            for (series, (both, moves)) in series.iter_mut().zip(&samples) {
                let merge = least(both.iter().copied()) - least(moves.iter().copied());
                series.points.push((entries.to_string(), merge / (SOURCES * entries) as f64));
            }
            if let (Some(least), Some(most)) = (written.iter().min(), written.iter().max()) {
                let result = 17 * if keys == Keys::Unique { SOURCES * entries } else { entries };
                same_bytes &= *most as f64 <= *least as f64 * 1.1;
                fewer_bytes &= *most <= result * 3 / 2 + 8192;
            }
        }
        report_ratios(medium, keys, &series, report);
        report.figure(Figure {
            title: format!("Merging four runs, {}, {}", medium.name(), keys.name()),
            x_label: "entries of a run".to_string(),
            y_label: "ns an entry".to_string(),
            series,
        });
    }
    report.check("every merge leaves each key with its newest value", is_right);
    report.check("Optane: all ways of merging modify the same bytes, within a tenth", same_bytes);
    report.check(
        "Optane: no merge modifies more than its result takes, so duplicates save writes",
        fewer_bytes,
    );
    report.check(
        "Optane: failure atomicity takes less than a fence for 8 entries of a merge",
        fences_most < 0.125,
    );
    moves(options, report, sizes, rounds)
}

/// Reports the ratios of the ways at the largest size, beside what the paper says of them.
fn report_ratios(medium: Medium, keys: Keys, series: &[Series], report: &mut Report) {
    let ends: Vec<f64> =
        series.iter().map(|series| series.points.last().map_or(f64::NAN, |(_, ns)| *ns)).collect();
    for (name, ratio) in [
        ("2-way: through DRAM/direct", ends[1] / ends[0]),
        ("K-way: through DRAM/direct", ends[3] / ends[2]),
        ("direct: K-way/2-way", ends[2] / ends[0]),
    ] {
        report.ratio(&format!("{}, {}: {name}", medium.name(), keys.name()), ratio);
        // The paper gives no numbers here: only which is faster.
        let statement = match (keys, name) {
            (Keys::Unique, "2-way: through DRAM/direct") => "well above 1",
            (Keys::Unique, "direct: K-way/2-way") => "above 1",
            (Keys::Same, "direct: K-way/2-way") => "about 1",
            _ => continue,
        };
        let source = "dissertation 3.4.2 (E7), figure 3.13";
        report.paper(source, &format!("{}, {}: {name}", medium.name(), keys.name()), statement, Some(ratio));
    }
}

/// E6: the buffer's entries in random order, sorted when they are moved, beside entries that came sorted.
fn moves(options: &RunOptions, report: &mut Report, sizes: &[u64], rounds: usize) -> Result<(), Error> {
    let way = (MergeAlgorithm::KWay, RunWriting::ThroughDram);
    let mut series = [false, true].map(|sorted| Series {
        name: if sorted { "came sorted" } else { "sorted when moved" }.to_string(),
        points: Vec::new(),
    });
    for &entries in sizes {
        let mut samples = [Vec::new(), Vec::new()];
        for _ in 0..rounds {
            for (sorted, samples) in [false, true].into_iter().zip(&mut samples) {
                let moved = merge(options, Medium::Journal, way, Keys::Unique, entries, sorted)?.moves;
                samples.extend(moved.iter().map(|cost| cost.ns / entries as f64));
            }
        }
        for (series, samples) in series.iter_mut().zip(&samples) {
            let ns = least(samples.iter().copied());
            series.points.push((entries.to_string(), ns));
            report.row(json!({
                "what": "move node (E6)", "medium": Medium::Journal.name(), "entries": &series.name,
                "entries_of_a_run": entries, "ns_an_entry": ns,
            }));
        }
    }
    let ratio = |at: usize| series[0].points[at].1 / series[1].points[at].1;
    report.ratio("E6, smallest buffer: sorted when moved/came sorted", ratio(0));
    report.ratio("E6, largest buffer: sorted when moved/came sorted", ratio(sizes.len() - 1));
    for (at, name) in [(0, "smallest"), (sizes.len() - 1, "largest")] {
        let name = format!("{name} buffer: sorted when moved/came sorted, no failure atomicity");
        report.paper("dissertation 3.4.2 (E6), figure 3.12", &name, "4 to 5", Some(ratio(at)));
    }
    report.figure(Figure {
        title: "Moving a buffer to the pool, journal, none".to_string(),
        x_label: "entries of the buffer".to_string(),
        y_label: "ns an entry".to_string(),
        series: series.into(),
    });
    Ok(())
}
