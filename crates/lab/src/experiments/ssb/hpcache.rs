//! Figures 4 to 9 of the HPCache paper (DaMoN 2022) with the queries of the benchmark, on drives as fast beside
//! query 2.1 as the paper's. Its scale factor is 1,000, so figures compare as ratios.
//!
//! Figures 6 and 7 predict by the paper's equation 1 with the speed of the query in memory; those that a scan makes
//! while it runs are in `hpcache-prediction`.

use super::{QUERY, Star, make, scale, settle, text};
use crate::asked::AskedFigure;
use crate::measure::median;
use crate::plot::{Figure, Series};
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol::tables::{CacheGoal, CachePolicy};
use entresol_ssb::Layout;
use entresol_ssb::run::QUERIES;
use serde_json::json;

const PROPORTIONAL: CachePolicy = CachePolicy::Proportional(CacheGoal::LeastTime);
const PROPORTIONS: [u32; 9] = [0, 10, 20, 30, 40, 50, 60, 80, 100];
/// Drives, and the paper's time with nothing in memory beside that with everything.
const PAPER_RATIOS: [Option<f64>; 3] = [Some(16.5 * 14.7 / 96.0), Some(9.8 * 14.7 / 96.0), Some(1.0)];
/// Part of its input that query 2.1 needs in memory with one drive, by the figures of the paper.
const PAPER_KNEE_PERCENT: f64 = 100.0 * (1.0 - 5780.0 * 1_048_576.0 / 14.7e9);

/// Two queries without a column in common, both limited by their input (figure 8).
const TWO: [(&str, &str); 2] = [
    (
        "first",
        "SELECT sum(lo_extendedprice), sum(lo_discount), sum(lo_quantity), sum(lo_orderdate) FROM lineorder",
    ),
    ("second", "SELECT sum(lo_revenue), sum(lo_supplycost), sum(lo_partkey), sum(lo_suppkey) FROM lineorder"),
];
/// Budgets of figure 8 in GB of 192, and of figure 9 in GB of 216: nine columns.
const TWO_GB: [u32; 6] = [20, 60, 80, 100, 140, 200];
const ALL_GB: [u32; 8] = [20, 40, 60, 80, 100, 120, 140, 160];

/// Runs the experiment.
pub(in crate::experiments) fn run(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let dir = options.database_dir()?;
    make(dir.path(), scale(options), &[("columns", Layout::Columns)], options.seed)?;
    let mut star = Star::open(&dir.path().join("columns"), None)?;
    let runs = if options.quick { 1 } else { 5 };
    let drives = star.drives(runs + 1)?;
    let mut is_within = proportions(&mut star, &drives, options, report)?;
    for (name, figure) in [("1.1", "figure 6"), ("2.2", "figure 7")] {
        predictions(&mut star, (name, figure), drives[2].1, runs, report)?;
    }
    is_within &= alternating(&mut star, drives[2].1, options, report)?;
    is_within &= full(&mut star, drives[0].1, options, report)?;
    report.check("all results are those of the first run", star.is_right);
    report.check("the cache is within its limit", is_within);
    star.close()
}

/// Least time of a query whose shares have settled.
fn settled(star: &mut Star, name: &str, sql: &str, runs: usize) -> Result<f64, Error> {
    for _ in 0..2 {
        star.run(name, sql)?;
        settle();
    }
    star.run(name, sql)?;
    star.least(name, sql, runs)
}

/// Figures 4 and 5: query 2.1 with more and more of its input in memory.
fn proportions(
    star: &mut Star,
    drives: &[(&'static str, f64); 3],
    options: &RunOptions,
    report: &mut Report,
) -> Result<bool, Error> {
    let sql = text(QUERY)?;
    let bytes = star.input_bytes(&[(QUERY, sql)])?;
    let (proportions, runs) = if options.quick { (&[0, 100][..], 1) } else { (&PROPORTIONS[..], 5) };
    let (mut series, mut is_within) = (Vec::new(), true);
    for ((name, bandwidth), paper) in drives.iter().zip(PAPER_RATIOS) {
        let mut points = Vec::new();
        for percent in proportions {
            star.begin(PROPORTIONAL, bytes * u64::from(*percent) / 100, Some(*bandwidth));
            let seconds = settled(star, QUERY, sql, runs)?;
            is_within &= star.is_within_limit();
            report.row(json!({ "query": QUERY, "drives": name, "in_memory_percent": percent,
                "ms": 1e3 * seconds }));
            points.push((*percent, seconds));
        }
        let at = |percent: u32| points.iter().find(|(at, _)| *at == percent).map(|(_, seconds)| *seconds);
        if let Some(paper) = paper {
            let ours = at(0).zip(at(100)).map(|(none, all)| none / all);
            let figure = format!("query 2.1, {name}: nothing in memory to everything");
            report.paper("figure 5", &figure, &format!("{paper:.2}"), ours);
        }
        if *name == "1 drive" {
            // The least proportion with the time of all, but for a twentieth.
            let all = at(100).unwrap_or(f64::NAN);
            let knee = points.iter().find(|(_, seconds)| *seconds <= 1.05 * all);
            let figure = "query 2.1, 1 drive: proportion from which more memory gains nothing, %";
            let paper = format!("{PAPER_KNEE_PERCENT:.0}");
            report.paper("figure 4", figure, &paper, knee.map(|(percent, _)| f64::from(*percent)));
        }
        let points =
            points.into_iter().map(|(percent, seconds)| (format!("{percent}%"), 1e3 * seconds)).collect();
        series.push(Series { name: (*name).to_owned(), points });
    }
    report.figure(Figure {
        title: "figures 4 and 5: query 2.1 under HPCache".to_owned(),
        x_label: "memory for the cache, of its input".to_owned(),
        y_label: "ms".to_owned(),
        series,
    });
    Ok(is_within)
}

/// Figures 6 and 7: equation 1 beside the time with a quarter of the input in memory.
fn predictions(
    star: &mut Star,
    (name, figure): (&str, &str),
    storage: f64,
    runs: usize,
    report: &mut Report,
) -> Result<(), Error> {
    let sql = text(name)?;
    let bytes = star.input_bytes(&[(name, sql)])?;
    let in_memory = star.least(name, sql, runs + 2)?;
    star.begin(PROPORTIONAL, bytes / 4, Some(storage));
    let measured = settled(star, name, sql, runs)?;
    let predicted = in_memory.max(0.75 * bytes as f64 / storage);
    report.row(json!({ "query": name, "in_memory_ms": 1e3 * in_memory, "quarter_ms": 1e3 * measured,
        "predicted_ms": 1e3 * predicted, "input_bytes": bytes }));
    let title = format!("query {name}: equation 1 to the time with a quarter in memory");
    report.paper(figure, &title, "below 1", Some(predicted / measured));
    Ok(())
}

/// Figure 8: two queries alternately, three times, from an empty cache, with four drives.
fn alternating(
    star: &mut Star,
    storage: f64,
    options: &RunOptions,
    report: &mut Report,
) -> Result<bool, Error> {
    let bytes = star.input_bytes(&TWO)?;
    // Drives deliver less than either query takes, as in the paper, where they are 0.65 of the first.
    let sum = star.least(TWO[0].0, TWO[0].1, 3)?;
    let storage = storage.min(0.65 * bytes as f64 / 2.0 / sum);
    let (budgets, runs) = if options.quick { (&[100][..], 1) } else { (&TWO_GB[..], 3) };
    let policies = [CachePolicy::Lru, CachePolicy::Mru, PROPORTIONAL];
    let mut series = policies.map(|policy| Series { name: policy.to_string(), points: Vec::new() });
    let mut is_within = true;
    for gb in budgets {
        let mut seconds = Vec::new();
        for (policy, series) in policies.into_iter().zip(&mut series) {
            let mut totals = Vec::new();
            for _ in 0..runs {
                star.begin(policy, bytes * u64::from(*gb) / 192, Some(storage));
                let mut total = 0.0;
                for (name, sql) in TWO.iter().cycle().take(6) {
                    total += star.run(name, sql)?;
                    // A query of the paper lasts seconds, one of these less than shares take to follow it.
                    settle();
                }
                is_within &= star.is_within_limit();
                totals.push(total);
            }
            let total = median(&totals);
            report.row(
                json!({ "queries": "two", "policy": policy.to_string(), "gb_of_192": gb, "ms": 1e3 * total }),
            );
            series.points.push((gb.to_string(), 1e3 * total));
            seconds.push(total);
        }
        if *gb == 100 {
            let faster = 100.0 * (seconds[1] / seconds[2] - 1.0);
            report.paper("figure 8", "two queries, 100 GB of 192: faster than MRU, %", "15.6", Some(faster));
            report.asked(AskedFigure::at_least(
                "two queries, 100 GB of 192: MRU to hpcache",
                seconds[1] / seconds[2],
                1.0,
            ));
        }
    }
    report.figure(Figure {
        title: "figure 8: two queries alternately, each three times".to_owned(),
        x_label: "budget, GB of 192".to_owned(),
        y_label: "ms".to_owned(),
        series: series.to_vec(),
    });
    Ok(is_within)
}

/// Figure 9: all queries once, in order, from an empty cache, with one drive.
fn full(star: &mut Star, storage: f64, options: &RunOptions, report: &mut Report) -> Result<bool, Error> {
    let queries: Vec<(&str, &str)> = QUERIES.iter().map(|query| (query.name, query.sql)).collect();
    let bytes = star.input_bytes(&queries)?;
    let (budgets, runs) = if options.quick { (&[80][..], 1) } else { (&ALL_GB[..], 3) };
    let policies = [CachePolicy::Mru, PROPORTIONAL];
    let mut series = policies.map(|policy| Series { name: policy.to_string(), points: Vec::new() });
    let (mut is_within, mut times) = (true, Vec::new());
    for gb in budgets {
        let mut of_budget = [0.0; 2];
        for (at, policy) in policies.into_iter().enumerate() {
            let mut totals = Vec::new();
            for _ in 0..runs {
                star.begin(policy, bytes * u64::from(*gb) / 216, Some(storage));
                let mut total = 0.0;
                for query in &QUERIES {
                    total += star.run(query.name, query.sql)?;
                    settle();
                }
                is_within &= star.is_within_limit();
                totals.push(total);
            }
            of_budget[at] = median(&totals);
            report.row(json!({ "queries": "all 13", "policy": policy.to_string(), "gb_of_216": gb,
                "ms": 1e3 * of_budget[at] }));
            series[at].points.push((gb.to_string(), 1e3 * of_budget[at]));
        }
        times.push((*gb, of_budget));
    }
    let most = times.iter().map(|(_, [mru, own])| 100.0 * (mru / own - 1.0));
    let most = most.fold(f64::NEG_INFINITY, f64::max);
    report.paper("figure 9", "SSB once, 20 to 160 GB of 216: faster than MRU at most, %", "12", Some(most));
    let target = times.iter().find(|(gb, _)| *gb == 80).map(|(_, [mru, _])| *mru);
    let enough = times.iter().find(|(_, [_, own])| target.is_some_and(|target| *own <= 1.005 * target));
    let figure = "SSB once: budget with the time of MRU at 80 GB, GB of 216";
    report.paper("figure 9", figure, "20", enough.map(|(gb, _)| f64::from(*gb)));
    report.figure(Figure {
        title: "figure 9: the 13 queries once".to_owned(),
        x_label: "budget, GB of 216".to_owned(),
        y_label: "ms".to_owned(),
        series: series.to_vec(),
    });
    Ok(is_within)
}
