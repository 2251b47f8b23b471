//! Replacement policies of the page cache: time of queries under each of them, at several budgets, replayed with the
//! product's own policies ([`replay`]), and scans of the product on emulated drives ([`drives`]). Beside them the figures of the HPCache paper (DaMoN 2022), section 5.
//!
//! - *mix*: queries that share columns and differ in how fast they are processed, in random order; the most frequent
//!   one is slower than the drive, so its input gains nothing in memory;
//! - *two queries*: the paper's figure 8, alternately three times, with four drives;
//! - *SSB*: its 13 queries once, in order, with one drive, as in the paper's figure 9. The paper prints the speed
//!   of few of them; a flight has that of the one which is known.

mod drives;
mod machine;
mod replay;

use crate::asked::AskedFigure;
use crate::measure::Random;
use crate::plot::{Figure, Series};
use crate::report::Report;
use crate::{Error, RunOptions};
pub(super) use drives::{run_alternating, run_prediction, run_proportions};
use entresol_tables::caching::{Bandwidths, CacheGoal, CachePolicy, Division};
use replay::{Outcome, Query, Setting, replay};
use serde_json::json;

const GB: f64 = 1e9;
/// Drives of the paper, in bytes per second: the one of experiments with one drive, and all four.
const ONE_DRIVE: f64 = 5780.0 * 1_048_576.0;
const FOUR_DRIVES: f64 = ONE_DRIVE + 3.0 * 4970.0 * 1_048_576.0;
/// Memory of a machine as the paper's, of which it prints no bandwidth.
const MEMORY: f64 = 100.0 * GB;
/// Column of SSB with scale factor 1000.
const COLUMN: f64 = 24.0 * GB;

/// Budgets, in percent of all columns.
const BUDGETS: [u32; 6] = [100, 75, 50, 35, 25, 10];
/// Row groups that are loaded ahead, where that is bounded.
const READ_AHEAD: u32 = 16;

/// Memory of the paper's figures 6 and 7, of the input.
const QUARTER_OF_INPUT: f64 = 25.0 / 96.0;
const PROPORTIONAL: CachePolicy = CachePolicy::Proportional(CacheGoal::LeastTime);

/// Queries of the mix with their weights.
const MIX: [(Query, u64); 6] = [
    (Query { columns: &[0, 1, 2, 3], bytes_per_second: 4.5 * GB }, 6),
    (Query { columns: &[4, 5, 6], bytes_per_second: 32.0 * GB }, 3),
    (Query { columns: &[4, 5, 7, 8], bytes_per_second: 40.0 * GB }, 3),
    (Query { columns: &[0, 6, 9], bytes_per_second: 14.7 * GB }, 2),
    (Query { columns: &[8, 9, 10, 11], bytes_per_second: 9.0 * GB }, 3),
    (Query { columns: &[11], bytes_per_second: 60.0 * GB }, 1),
];
/// Columns of the mix: 1 to 8 bytes a row.
const MIX_COLUMNS: [f64; 12] = [
    24.0 * GB,
    24.0 * GB,
    12.0 * GB,
    48.0 * GB,
    24.0 * GB,
    12.0 * GB,
    48.0 * GB,
    6.0 * GB,
    24.0 * GB,
    12.0 * GB,
    24.0 * GB,
    6.0 * GB,
];

const TWO: [Query; 2] = [
    Query { columns: &[0, 1, 2, 3], bytes_per_second: 32.0 * GB },
    Query { columns: &[4, 5, 6, 7], bytes_per_second: 40.0 * GB },
];

/// Flights of SSB: columns of lineorder (order date, discount, quantity, extended price, part, supplier, revenue,
/// customer, supply cost), bytes per second, number of queries.
const FLIGHTS: [(&[u16], f64, usize); 4] = [
    (&[0, 1, 2, 3], 4.8 * ONE_DRIVE, 3),
    (&[0, 4, 5, 6], 14.7 * GB, 3),
    (&[0, 5, 6, 7], FOUR_DRIVES / 2.0, 4),
    (&[0, 4, 5, 6, 7, 8], FOUR_DRIVES / 2.0, 3),
];

fn setting(options: &RunOptions, storage: f64, column_bytes: &'static [f64]) -> Setting {
    Setting {
        bandwidths: Bandwidths { storage, memory: MEMORY },
        column_bytes,
        groups: if options.quick { 160 } else { 640 },
        read_ahead: None,
        division: Division::default(),
    }
}

fn mix(seed: u64) -> Vec<Query> {
    const QUERIES: usize = 72;
    let mut random = Random::new(seed);
    let weights: u64 = MIX.iter().map(|(_, weight)| weight).sum();
    let mut draw = || {
        let mut at = random.below(weights);
        let chosen = MIX.iter().find(|(_, weight)| {
            let is_here = at < *weight;
            at = at.saturating_sub(*weight);
            is_here
        });
        chosen.map_or(MIX[0].0, |(query, _)| *query)
    };
    (0..QUERIES).map(|_| draw()).collect()
}

/// Runs the mix under all policies; returns the least ratio of the best other policy's time to that of HPCache, by
/// budget.
fn run_mix(report: &mut Report, setting: Setting, queries: &[Query], name: &str) -> Vec<(u32, f64)> {
    let mut series: Vec<Series> = CachePolicy::ALL
        .iter()
        .map(|policy| Series { name: policy.to_string(), points: Vec::new() })
        .collect();
    let mut ratios = Vec::new();
    let mut is_within = true;
    for percent in BUDGETS {
        let budget = setting.bytes() * f64::from(percent) / 100.0;
        let mut seconds: Vec<f64> = Vec::new();
        for (policy, series) in CachePolicy::ALL.into_iter().zip(&mut series) {
            let outcome = replay(setting, policy, budget, queries);
            report.row(row(name, policy, percent, &outcome));
            is_within &= outcome.peak_bytes as f64 <= budget;
            series.points.push((format!("{percent}%"), outcome.seconds));
            seconds.push(outcome.seconds);
        }
        let (own, others) = seconds.split_last().map_or((f64::NAN, &[][..]), |(own, others)| (*own, others));
        ratios.push((percent, others.iter().copied().fold(f64::INFINITY, f64::min) / own));
    }
    report.check(&format!("{name}: no policy exceeds its budget"), is_within);
    report.figure(Figure {
        title: format!("time of {} queries, {name}", queries.len()),
        x_label: "budget, of all columns".to_owned(),
        y_label: "s".to_owned(),
        series,
    });
    ratios
}

fn row(name: &str, policy: CachePolicy, percent: u32, outcome: &Outcome) -> serde_json::Value {
    json!({
        "workload": name,
        "policy": policy.to_string(),
        "budget_percent": percent,
        "seconds": outcome.seconds,
        "hit_rate": outcome.hits as f64 / outcome.look_ups as f64,
        "peak_gb": outcome.peak_bytes as f64 / GB,
    })
}

/// The paper's figure 8: speed-up over MRU at 100 GB, in percent. Returns the greatest ratio of the best other policy's
/// time to that of HPCache.
fn run_two(options: &RunOptions, report: &mut Report) -> f64 {
    const BUDGETS_GB: [f64; 8] = [20.0, 40.0, 60.0, 80.0, 100.0, 120.0, 160.0, 200.0];
    let setting = setting(options, FOUR_DRIVES, &[COLUMN; 8]);
    let queries: Vec<Query> = TWO.into_iter().cycle().take(6).collect();
    let seconds = |policy, gb: f64| replay(setting, policy, gb * GB, &queries).seconds;
    let faster = |gb| 100.0 * (seconds(CachePolicy::Mru, gb) / seconds(PROPORTIONAL, gb) - 1.0);
    report.paper("figure 8", "two queries, 100 GB: faster than MRU, %", "15.6", Some(faster(100.0)));
    let times = CachePolicy::ALL.map(|policy| (policy, BUDGETS_GB.map(|gb| seconds(policy, gb))));
    let mut most = 0.0_f64;
    for (at, gb) in BUDGETS_GB.into_iter().enumerate() {
        let (own, others): (Vec<_>, Vec<_>) = times.iter().partition(|(policy, _)| *policy == PROPORTIONAL);
        let best = |of: Vec<&(CachePolicy, [f64; 8])>| {
            of.iter().map(|(_, seconds)| seconds[at]).fold(f64::INFINITY, f64::min)
        };
        let ratio = best(others) / best(own);
        most = most.max(ratio);
        report.asked(
            AskedFigure::at_least(format!("two queries: best other to hpcache, time at {gb} GB"), ratio, 1.0)
                .tolerance(0.01)
                .judged_at_small_sizes(),
        );
    }
    let points = |seconds: [f64; 8]| {
        BUDGETS_GB.iter().zip(seconds).map(|(gb, seconds)| (format!("{gb}"), seconds)).collect()
    };
    report.figure(Figure {
        title: "two queries alternately, each three times".to_owned(),
        x_label: "budget, GB".to_owned(),
        y_label: "s".to_owned(),
        series: times
            .map(|(policy, seconds)| Series { name: policy.to_string(), points: points(seconds) })
            .into_iter()
            .chain([Series::of_paper(
                "figure 8, hpcache by MRU",
                vec![("100".to_owned(), seconds(CachePolicy::Mru, 100.0) / 1.156)],
            )])
            .collect(),
    });
    most
}

/// The paper's figure 9: all queries once.
fn run_ssb(options: &RunOptions, report: &mut Report) {
    let setting = setting(options, ONE_DRIVE, &[COLUMN; 9]);
    let of_flight = |(columns, bytes_per_second, queries): &(&'static [u16], f64, usize)| {
        let query = Query { columns, bytes_per_second: *bytes_per_second };
        std::iter::repeat_n(query, *queries)
    };
    let queries: Vec<Query> = FLIGHTS.iter().flat_map(of_flight).collect();
    let seconds = |policy, gb: f64| replay(setting, policy, gb * GB, &queries).seconds;
    let budgets = [20.0, 40.0, 60.0, 80.0, 100.0, 120.0, 140.0, 160.0];
    let faster = budgets.map(|gb| 100.0 * (seconds(CachePolicy::Mru, gb) / seconds(PROPORTIONAL, gb) - 1.0));
    let most = faster.into_iter().fold(f64::NEG_INFINITY, f64::max);
    report.paper("figure 9", "SSB once, 20 to 160 GB: faster than MRU at most, %", "12", Some(most));
    let target = seconds(CachePolicy::Mru, 80.0);
    let enough = (1..=80).map(f64::from).find(|gb| seconds(PROPORTIONAL, *gb) <= target * 1.005);
    report.paper("figure 9", "SSB once: budget with the time of MRU at 80 GB, GB", "20", enough);
}

/// The second goal on the paper's figure 5: memory of one query that is repeated, with one drive.
fn run_least_memory(options: &RunOptions, report: &mut Report) {
    let setting = setting(options, ONE_DRIVE, &[COLUMN; 4]);
    let query = Query { columns: &[0, 1, 2, 3], bytes_per_second: 14.7 * GB };
    let policy = CachePolicy::Proportional(CacheGoal::LeastMemory { slowdown_percent: 0 });
    let workload_bytes = setting.bytes();
    let advised = replay::advised_bytes(setting, policy, workload_bytes, &query);
    let needed = (1.0 - ONE_DRIVE / query.bytes_per_second) * workload_bytes;
    let cold = replay(setting, CachePolicy::Mru, 1.0, &[query]).seconds;
    report.paper("figure 5", "query 2.1, one drive, nothing in memory, s", "16.5", Some(cold));
    report.asked(
        AskedFigure::at_most(
            "memory for query 2.1 at full speed beside what (1) says",
            advised / needed,
            1.0,
        )
        .tolerance(0.01)
        .judged_at_small_sizes(),
    );
}

/// Runs the experiment.
pub(super) fn run(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let setting = setting(options, ONE_DRIVE, &MIX_COLUMNS);
    let queries = mix(options.seed);
    let (flow, bounded) = ("mix", "mix, bounded read-ahead");
    let ratios = run_mix(report, setting, &queries, flow);
    let bounded_setting = Setting { read_ahead: Some(READ_AHEAD), ..setting };
    run_mix(report, bounded_setting, &queries, bounded).iter().for_each(|(percent, ratio)| {
        report.ratio(&format!("{bounded}: best other to hpcache at {percent}%"), *ratio);
    });
    for (percent, ratio) in &ratios {
        report.asked(
            AskedFigure::at_least(format!("best other to hpcache, time at {percent}%"), *ratio, 1.0)
                .tolerance(0.0)
                .judged_at_small_sizes(),
        );
    }
    let most_of_mix = ratios.iter().map(|(_, ratio)| *ratio).fold(0.0, f64::max);
    let most_of_two = run_two(options, report);
    for (name, most) in [("mix", most_of_mix), ("two queries", most_of_two)] {
        report.asked(
            AskedFigure::at_least(
                format!("{name}: best other to hpcache, time at its best budget"),
                most,
                1.12,
            )
            .tolerance(0.0)
            .judged_at_small_sizes(),
        );
    }
    for percent in BUDGETS {
        let seconds = replay::least_seconds(setting, setting.bytes() * f64::from(percent) / 100.0, &queries);
        report.row(json!({ "workload": "mix, all queries known, warm", "budget_percent": percent, "seconds": seconds }));
    }
    for division in Division::ALL {
        for percent in BUDGETS {
            let budget = setting.bytes() * f64::from(percent) / 100.0;
            let outcome = replay(Setting { division, ..setting }, PROPORTIONAL, budget, &queries);
            report.row(row(&format!("{flow}, times divided {division:?}"), PROPORTIONAL, percent, &outcome));
        }
    }
    run_ssb(options, report);
    run_least_memory(options, report);
    Ok(())
}
