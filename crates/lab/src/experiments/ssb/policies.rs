//! The 13 queries with memory for a part of what they read, under each policy, on emulated drives: cold, and hot in
//! rounds of all queries, so that they take each other's pages away as those of a user do.

use super::{Star, make, scale, settle};
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
/// Memory in percent of what the queries read.
const BUDGETS: [u32; 4] = [100, 50, 25, 10];
/// Rounds before those that count: shares follow the last queries.
const ROUNDS_BEFORE: usize = 2;

/// Seconds of the queries under a policy: all of them at first, and the median of each later.
struct Outcome {
    cold: f64,
    hot: Vec<f64>,
    hit_rate: f64,
}

impl Outcome {
    fn hot_seconds(&self) -> f64 {
        self.hot.iter().sum()
    }
}

/// Runs the experiment.
pub(in crate::experiments) fn run(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let dir = options.database_dir()?;
    make(dir.path(), scale(options), &[("columns", Layout::Columns)], options.seed)?;
    let mut star = Star::open(&dir.path().join("columns"), None)?;
    let queries: Vec<(&str, &str)> = QUERIES.iter().map(|query| (query.name, query.sql)).collect();
    let all_bytes = star.input_bytes(&queries)?;
    let drives = star.drives(if options.quick { 2 } else { 7 })?;
    let (policies, budgets, rounds) = if options.quick {
        (vec![CachePolicy::Mru, PROPORTIONAL], &BUDGETS[..1], 1)
    } else {
        (CachePolicy::ALL.to_vec(), &BUDGETS[..], 5)
    };
    let drives = if options.quick { &drives[1..2] } else { &drives[..] };
    let mut is_within = true;
    for (name, bandwidth) in drives {
        let mut of_drives = Vec::new();
        for percent in budgets {
            let mut outcomes = Vec::new();
            for policy in &policies {
                star.begin(*policy, all_bytes * u64::from(*percent) / 100, Some(*bandwidth));
                let outcome = measure(&mut star, rounds)?;
                is_within &= star.is_within_limit();
                report.row(row(name, *policy, *percent, &outcome));
                outcomes.push((*policy, outcome));
            }
            of_drives.push((*percent, outcomes));
        }
        judge(report, name, &of_drives);
    }
    report.check("all results are those of the first run", star.is_right);
    report.check("the cache is within its limit", is_within);
    star.close()
}

fn measure(star: &mut Star, rounds: usize) -> Result<Outcome, Error> {
    let cold = star.run_all()?.iter().sum();
    for _ in 0..ROUNDS_BEFORE {
        settle();
        star.run_all()?;
    }
    let before = star.database.catalog().page_cache_stats();
    let measured = (0..rounds).map(|_| star.run_all()).collect::<Result<Vec<_>, _>>()?;
    let after = star.database.catalog().page_cache_stats();
    let of_query = |at: usize| median(&measured.iter().map(|round| round[at]).collect::<Vec<_>>());
    let (hits, misses) = (after.hits - before.hits, after.misses - before.misses);
    let hit_rate = hits as f64 / (hits + misses).max(1) as f64;
    Ok(Outcome { cold, hot: (0..QUERIES.len()).map(of_query).collect(), hit_rate })
}

fn row(drives: &str, policy: CachePolicy, percent: u32, outcome: &Outcome) -> serde_json::Value {
    let of_query = QUERIES.iter().zip(&outcome.hot);
    let of_query: serde_json::Map<String, serde_json::Value> =
        of_query.map(|(query, seconds)| (query.name.to_owned(), json!(1e3 * seconds))).collect();
    json!({
        "drives": drives,
        "policy": policy.to_string(),
        "memory_percent": percent,
        "cold_ms": 1e3 * outcome.cold,
        "hot_ms": 1e3 * outcome.hot_seconds(),
        "hit_rate": outcome.hit_rate,
        "hot_ms_of_query": of_query,
    })
}

/// Reports proportional caching beside the best of the others, at each budget.
fn judge(report: &mut Report, drives: &str, of_drives: &[(u32, Vec<(CachePolicy, Outcome)>)]) {
    let hot = |outcomes: &[(CachePolicy, Outcome)], is_own: bool| {
        let of = outcomes.iter().filter(|(policy, _)| (*policy == PROPORTIONAL) == is_own);
        of.map(|(_, outcome)| outcome.hot_seconds()).fold(f64::INFINITY, f64::min)
    };
    let mut most = 0.0_f64;
    for (percent, outcomes) in of_drives {
        let ratio = hot(outcomes, false) / hot(outcomes, true);
        most = most.max(ratio);
        let name = format!("{drives}: best other to hpcache, time at {percent}%");
        report.asked(AskedFigure::at_least(name, ratio, 1.0));
    }
    let at = |percent: u32| of_drives.iter().find(|(of, _)| *of == percent).map(|(_, of)| hot(of, true));
    if drives == "2 drives" {
        let ratio = at(25).zip(at(100)).map_or(f64::NAN, |(quarter, all)| quarter / all);
        if of_drives.len() == BUDGETS.len() {
            report.asked(
                AskedFigure::at_most("2 drives: hpcache, 25% in memory to all", ratio, 1.05).tolerance(0.0),
            );
        }
        let name = "2 drives: best other to hpcache, time at its best budget";
        report.asked(AskedFigure::at_least(name, most, 1.12).tolerance(0.0));
    }
    let policies = of_drives.first().map_or(&[][..], |(_, outcomes)| &outcomes[..]);
    let series = policies.iter().enumerate().map(|(at, (policy, _))| {
        let point = |(percent, outcomes): &(u32, Vec<(CachePolicy, Outcome)>)| {
            (format!("{percent}%"), 1e3 * outcomes[at].1.hot_seconds())
        };
        Series { name: policy.to_string(), points: of_drives.iter().map(point).collect() }
    });
    report.figure(Figure {
        title: format!("the 13 queries, hot, {drives}"),
        x_label: "memory, of what they read".to_owned(),
        y_label: "ms".to_owned(),
        series: series.collect(),
    });
}
