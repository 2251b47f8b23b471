//! Policies over the bytes of copies, and copying all (Jibril et al. 2021, figure 4 and section 5.4).

use super::cached::{Load, QueryFigures, measure, options};
use super::machine::Machine;
use super::{EXACT, ModelledQuery, RANGE, build, size};
use crate::asked::AskedFigure;
use crate::experiments::elf::tuples::Tuples;
use crate::plot::{Figure, Series};
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol_structures::elf::{Elf, ListCacheOptions};
use serde_json::json;

/// Bytes of copies, in percent of those of the Elf.
const PERCENTS: [f64; 4] = [0.5, 1.0, 3.0, 10.0];
const POLICIES: [&str; 7] = ["naive", "fifo", "lru", "lfu", "2q", "lla", "probability"];

/// Measurements of a kind of query: without, dual access, by policy and percent.
struct Grid {
    none: QueryFigures,
    dual: QueryFigures,
    by_policy: Vec<(&'static str, Vec<QueryFigures>)>,
}

impl Grid {
    fn of(&self, policy: &str) -> &[QueryFigures] {
        let found = self.by_policy.iter().find(|(name, _)| *name == policy);
        &found.unwrap_or_else(|| panic!("{policy} is measured")).1
    }

    /// Least time of some policies.
    fn best(&self, policies: &[&str]) -> f64 {
        let all = policies.iter().flat_map(|policy| self.of(policy));
        all.map(QueryFigures::ns).fold(f64::INFINITY, f64::min)
    }
}

/// Runs the experiment.
pub(crate) fn run(options_of: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let tuples = Tuples::uniform(size(options_of), options_of.seed);
    let elf = build(&tuples)?;
    let exact = measure_grid(&EXACT, &tuples, &elf, options_of, report)?;
    let range = measure_grid(&RANGE, &tuples, &elf, options_of, report)?;
    if !options_of.quick {
        state(&exact, &range, report);
    }
    copy_all(&elf, report)
}

fn measure_grid(
    kind: &ModelledQuery,
    tuples: &Tuples,
    elf: &Elf,
    options_of: &RunOptions,
    report: &mut Report,
) -> Result<Grid, Error> {
    let quick = options_of.quick;
    let load = Load::new(kind, tuples, options_of.seed + 3, quick);
    let machine = Machine::optane(elf)?;
    let placed = machine.elf()?;
    let none = measure((&machine, &placed, elf), None, &load, quick)?;
    let dual = measure((&machine, &machine.dual(elf)?, elf), None, &load, quick)?;
    let mut by_policy = Vec::new();
    for policy in POLICIES {
        let mut of_policy = Vec::new();
        for percent in PERCENTS {
            // As in the paper, the queries before make the copies.
            let cold = ListCacheOptions { is_warm: false, ..options(policy, elf, percent)? };
            let measured = measure((&machine, &placed, elf), Some(cold), &load, quick)?;
            report.row(json!({ "query": kind.name, "policy": policy, "percent": percent,
                "memory_us": measured.ns() / 1e3, "work_us": measured.work_ns / 1e3,
                "hit_rate": measured.hit_rate, "none_us": none.ns() / 1e3, "dual_us": dual.ns() / 1e3 }));
            of_policy.push(measured);
        }
        by_policy.push((policy, of_policy));
    }
    let grid = Grid { none, dual, by_policy };
    let found = grid.by_policy.iter().flat_map(|(_, of_policy)| of_policy).chain([&grid.dual]);
    report.check(
        &format!("{}: every policy finds what no cache finds", kind.name),
        found.into_iter().all(|measured| measured.found == none.found),
    );
    draw(kind, &grid, report);
    judge(kind, &grid, report);
    Ok(grid)
}

fn draw(kind: &ModelledQuery, grid: &Grid, report: &mut Report) {
    let per_second = |measured: &QueryFigures| 1e9 / measured.ns();
    let label = |percent: f64| format!("{percent}%");
    let level = |name: &str, measured: &QueryFigures| Series {
        name: name.to_owned(),
        points: PERCENTS.map(|percent| (label(percent), per_second(measured))).to_vec(),
    };
    let mut series = vec![level("none", &grid.none), level("dual access", &grid.dual)];
    series.extend(grid.by_policy.iter().map(|(policy, of_policy)| Series {
        name: (*policy).to_owned(),
        points: PERCENTS.iter().zip(of_policy).map(|(at, of)| (label(*at), per_second(of))).collect(),
    }));
    report.figure(Figure {
        title: format!("{}, modelled Optane", kind.name),
        x_label: "bytes of copies, of the Elf".to_owned(),
        y_label: "queries a second".to_owned(),
        series,
    });
}

/// Says of each policy that it is not slower than no cache.
fn judge(kind: &ModelledQuery, grid: &Grid, report: &mut Report) {
    for (policy, of_policy) in &grid.by_policy {
        let slowest = of_policy.iter().map(QueryFigures::ns).fold(0.0, f64::max);
        report.asked(AskedFigure::at_most(
            format!("{}, {policy}: time to that without a cache, at its worst size", kind.name),
            slowest / grid.none.ns(),
            1.0,
        ));
    }
}

/// The paper's statements about its figure 4.
fn state(exact: &Grid, range: &Grid, report: &mut Report) {
    let dynamic = ["naive", "fifo", "lru", "lfu", "2q", "lla"];
    let ratio = |grid: &Grid, of: &str| grid.best(&dynamic) / grid.best(&[of]);
    for (name, grid, best) in [("exact matches", exact, "lla"), ("ranges", range, "naive")] {
        report.asked(AskedFigure::at_least(
            format!("{name}: the paper's best policy, {best}, beside the best of all"),
            ratio(grid, best),
            0.95,
        ));
    }
    let classic = exact.best(&["lru", "lfu", "2q"]);
    super::differs(
        report,
        "LRU, LFU and 2Q never paid off",
        "each is faster than no cache where it has room for the upper lists",
        classic < exact.none.ns(),
        "A copy's place is in the list above it: no hash table is asked, and uses are noted in passing.",
    );
    super::holds(
        report,
        "selective caching is ahead of dual access for ranges, which copies all DimensionLists",
        range.best(&POLICIES) < range.dual.ns(),
    );
}

/// The hybrid Elf: all words are copied when the database is opened.
fn copy_all(elf: &Elf, report: &mut Report) -> Result<(), Error> {
    let machine = Machine::optane(elf)?;
    let placed = machine.elf()?;
    let (copy, ns) = machine.ns(|| Ok(placed.storage().to_vec()))?;
    report.check("the copy of all words is the Elf", copy == elf.words());
    let gb_per_s = 4.0 * copy.len() as f64 / ns;
    report.paper("Jibril et al., 5.4", "hybrid Elf: copying 4 GB, GB/s", "2.26", Some(gb_per_s));
    report.asked(
        AskedFigure::at_least("hybrid copy: recovery", gb_per_s, 2.0).unit("GB/s").judged_at_small_sizes(),
    );
    Ok(())
}
