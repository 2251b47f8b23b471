//! The product's scans on emulated drives ([`super::machine`]), with the speeds of the HPCache paper's machine at a
//! hundredth: figure 5 (one query and what is in memory), figure 8 (two queries), figures 6 and 7 (predictions).

use super::machine::{Machine, Run};
use super::replay::Query;
use super::{FOUR_DRIVES, GB, ONE_DRIVE, PROPORTIONAL, QUARTER_OF_INPUT};
use crate::asked::AskedFigure;
use crate::measure::median;
use crate::plot::{Figure, Series};
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol_tables::caching::CachePolicy;
use serde_json::json;

/// Speed of everything beside that of the paper's machine.
const SCALE: f64 = 0.01;
/// Two drives, in bytes per second.
const TWO_DRIVES: f64 = ONE_DRIVE + 4970.0 * 1_048_576.0;
/// Query 2.1: its speed in memory as the paper has it.
const QUERY: Query = Query { columns: &[0, 1, 2, 3], bytes_per_second: SCALE * 14.7 * GB };
/// Query 1.1, limited by its input: that of the first flight.
const INPUT_BOUND: Query = Query { columns: &[0, 1, 2, 3], bytes_per_second: SCALE * 32.0 * GB };

/// Drives, and the paper's time of query 2.1 with nothing in memory beside all of it.
const DRIVES: [(&str, f64, Option<f64>); 3] = [
    ("1 drive", ONE_DRIVE, Some(16.5 * 14.7 / 96.0)),
    ("2 drives", TWO_DRIVES, Some(9.8 * 14.7 / 96.0)),
    ("4 drives", FOUR_DRIVES, None),
];
const PROPORTIONS: [u32; 7] = [0, 10, 20, 25, 50, 75, 100];

/// Statement that each experiment checks.
const RIGHT: &str = "all sums are right, and the cache is within its limit";

fn groups(options: &RunOptions) -> usize {
    if options.quick { 48 } else { 320 }
}

/// Least time of a query whose shares have settled: other load on the machine only lengthens it.
fn settled(machine: &Machine, query: &Query, runs: usize, is_right: &mut bool) -> Result<f64, Error> {
    for _ in 0..2 {
        machine.run(query)?;
        machine.settle();
    }
    // Fills the shares.
    machine.run(query)?;
    let measured: Vec<Run> = (0..runs).map(|_| machine.run(query)).collect::<Result<_, _>>()?;
    *is_right &= measured.iter().all(|run| run.is_right) && machine.is_within_limit();
    Ok(measured.iter().map(|run| run.seconds).fold(f64::INFINITY, f64::min))
}

/// Figure 5.
pub(in crate::experiments) fn run_proportions(
    options: &RunOptions,
    report: &mut Report,
) -> Result<(), Error> {
    let machine = Machine::new(QUERY.columns.len(), groups(options), options.seed)?;
    let (runs, proportions) = if options.quick { (1, &[25, 100][..]) } else { (5, &PROPORTIONS[..]) };
    let (mut series, mut of_paper, mut is_right) = (Vec::new(), Vec::new(), true);
    for (name, bandwidth, paper) in DRIVES {
        let mut points = Vec::new();
        for percent in proportions {
            machine.begin(PROPORTIONAL, f64::from(*percent) / 100.0, SCALE * bandwidth);
            let seconds = settled(&machine, &QUERY, runs, &mut is_right)?;
            report.row(json!({ "drives": name, "in_memory_percent": percent, "seconds": seconds }));
            points.push((*percent, seconds));
        }
        let at = |percent: u32| points.iter().find(|(at, _)| *at == percent).map(|(_, seconds)| *seconds);
        let beside = |percent| Some(at(percent)? / at(100)?);
        if let Some(paper) = paper {
            let figure = format!("query 2.1, {name}: nothing in memory to everything");
            report.paper("figure 5", &figure, &format!("{paper:.2}"), beside(0));
            // The paper's times on another machine, by that with everything in memory.
            if let Some(all) = at(100) {
                let points = vec![("0%".to_owned(), paper * all), ("100%".to_owned(), all)];
                of_paper.push(Series::of_paper(&format!("figure 5, {name}"), points));
            }
        }
        let of_processing =
            at(100).map(|seconds| seconds * QUERY.bytes_per_second / machine.input_bytes(&QUERY));
        report.ratio(
            &format!("{name}: time in memory to that of processing"),
            of_processing.unwrap_or(f64::NAN),
        );
        if name == "2 drives" {
            let ratio = beside(25).unwrap_or(f64::NAN);
            report.asked(
                AskedFigure::at_most("25% in memory to everything, 2 drives", ratio, 1.05).tolerance(0.0),
            );
        }
        let points = points.into_iter().map(|(percent, seconds)| (format!("{percent}%"), seconds)).collect();
        series.push(Series { name: name.to_owned(), points });
    }
    report.check(RIGHT, is_right);
    series.extend(of_paper);
    report.figure(Figure {
        title: "query 2.1 under HPCache".to_owned(),
        x_label: "memory for the cache, of its input".to_owned(),
        y_label: "s".to_owned(),
        series,
    });
    Ok(())
}

/// The two queries of figure 8.
const TWO: [Query; 2] = [INPUT_BOUND, Query { columns: &[4, 5, 6, 7], bytes_per_second: SCALE * 40.0 * GB }];
/// Memory budgets of figure 8, in GB of 192.
const BUDGETS_GB: [u32; 6] = [20, 60, 80, 100, 140, 200];
const INPUT_GB: f64 = 192.0;
/// MRU's time to that of HPCache with 100 GB, in figure 8.
const FASTER_THAN_MRU: f64 = 1.156;

/// Figure 8: two queries alternately, three times, from an empty cache.
pub(in crate::experiments) fn run_alternating(
    options: &RunOptions,
    report: &mut Report,
) -> Result<(), Error> {
    let machine = Machine::new(8, groups(options), options.seed)?;
    let (runs, budgets) = if options.quick { (1, &[100][..]) } else { (3, &BUDGETS_GB[..]) };
    let policies = [CachePolicy::Lru, CachePolicy::Mru, CachePolicy::S3Fifo, PROPORTIONAL];
    let mut series: Vec<Series> =
        policies.iter().map(|policy| Series { name: policy.to_string(), points: Vec::new() }).collect();
    let (mut of_paper, mut is_right) = (None, true);
    for gb in budgets {
        let mut seconds = Vec::new();
        for (policy, series) in policies.into_iter().zip(&mut series) {
            let mut totals: Vec<f64> = Vec::new();
            for _ in 0..runs {
                machine.begin(policy, f64::from(*gb) / INPUT_GB, SCALE * FOUR_DRIVES);
                let six = (0..6).map(|at| machine.run(&TWO[at % 2])).collect::<Result<Vec<Run>, _>>()?;
                is_right &= six.iter().all(|run| run.is_right) && machine.is_within_limit();
                totals.push(six.iter().map(|run| run.seconds).sum());
            }
            let total = totals.into_iter().fold(f64::INFINITY, f64::min);
            report.row(json!({ "policy": policy.to_string(), "budget_gb": gb, "seconds": total }));
            series.points.push((gb.to_string(), total));
            seconds.push(total);
        }
        let [_, mru, _, own] = seconds[..] else { continue };
        if *gb == 100 {
            let faster = 100.0 * (mru / own - 1.0);
            report.paper("figure 8", "two queries, 100 GB: faster than MRU, %", "15.6", Some(faster));
            let points = vec![("100".to_owned(), mru / FASTER_THAN_MRU)];
            of_paper = Some(Series::of_paper("figure 8, hpcache by MRU", points));
        }
        let best = seconds[..3].iter().copied().fold(f64::INFINITY, f64::min);
        report.asked(AskedFigure::at_least(
            format!("best other to hpcache, time at {gb} GB"),
            best / own,
            1.0,
        ));
    }
    report.check(RIGHT, is_right);
    series.extend(of_paper);
    report.figure(Figure {
        title: "two queries alternately, each three times".to_owned(),
        x_label: "budget, GB of 192".to_owned(),
        y_label: "s".to_owned(),
        series,
    });
    Ok(())
}

/// Figures 6 and 7: predictions after a fifth of the input, with a quarter of it in memory.
pub(in crate::experiments) fn run_prediction(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let machine = Machine::new(QUERY.columns.len(), groups(options), options.seed)?;
    let runs = if options.quick { 1 } else { 7 };
    let (mut series, mut is_right) = (Vec::new(), true);
    for (name, query) in [("limited by its input", INPUT_BOUND), ("limited by its processing", QUERY)] {
        let storage = SCALE * FOUR_DRIVES;
        machine.begin(PROPORTIONAL, 1.0, storage);
        let in_memory = settled(&machine, &query, runs, &mut is_right)?;
        machine.begin(PROPORTIONAL, QUARTER_OF_INPUT, storage);
        settled(&machine, &query, 1, &mut is_right)?;
        let (mut off, mut points) = (Vec::new(), Vec::new());
        for run in 0..runs {
            let outcome = machine.run(&query)?;
            let Some(prediction) = outcome.prediction else { continue };
            let error = prediction.seconds / outcome.seconds - 1.0;
            off.push(error.abs());
            points.push((run.to_string(), error * 100.0));
            report.row(json!({
                "query": name,
                "progress": prediction.progress,
                "predicted_seconds": prediction.seconds,
                "seconds": outcome.seconds,
                "predicted_in_memory_seconds": prediction.in_memory_seconds,
                "in_memory_seconds": in_memory,
            }));
        }
        report.check(&format!("{name}: each run has a prediction"), off.len() == runs);
        let figure = format!("prediction off by, after a fifth, {name}");
        report.asked(AskedFigure::at_most(figure, median(&off), 0.10).tolerance(0.0));
        series.push(Series { name: name.to_owned(), points });
    }
    report.check(RIGHT, is_right);
    report.figure(Figure {
        title: "predicted beside measured time, a quarter in memory".to_owned(),
        x_label: "run".to_owned(),
        y_label: "% too long".to_owned(),
        series,
    });
    Ok(())
}
