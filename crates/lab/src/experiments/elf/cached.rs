//! Exact matches, ranges and partial matches of an Elf on modelled Optane, with copies of some lists in DRAM and
//! without, beside the same Elf in DRAM (Jibril et al. 2021, figures 3 and 5 to 7).

use super::machine::{Machine, work_ns};
use super::{ModelledQuery, THETA, build, conditions, size};
use crate::asked::AskedFigure;
use crate::experiments::elf::tuples::Tuples;
use crate::measure::Random;
use crate::plot::{Figure, Series};
use crate::report::Report;
use crate::workload::Zipf;
use crate::{Error, RunOptions};
use entresol_structures::elf::{
    CodeCondition, Elf, ElfInPlace, ElfStorage, ListCache, ListCacheOptions, ListPolicy,
};
use serde_json::json;

/// Bytes of copies, in percent of those of the Elf.
pub(super) const PERCENT: usize = 3;
/// Queries of which the processor's work is measured, and how often.
const WORK_QUERIES: usize = 64;
const WORK_ROUNDS: usize = 15;

/// Queries, and those before them.
pub(super) struct Load {
    pub(super) warm: Vec<Vec<CodeCondition>>,
    pub(super) queries: Vec<Vec<CodeCondition>>,
}

impl Load {
    /// Queries of a kind around tuples drawn with Zipf's distribution.
    pub(super) fn new(kind: &ModelledQuery, tuples: &Tuples, seed: u64, quick: bool) -> Load {
        let zipf = Zipf::new(tuples.len() as u64, THETA);
        let mut random = Random::new(seed);
        let mut draw = |count: usize| {
            let of = |_| conditions(kind.dimensions, kind.width, tuples, zipf.rank(&mut random) as usize);
            (0..count).map(of).collect::<Vec<_>>()
        };
        if quick {
            return Load { warm: draw(200), queries: draw(10) };
        }
        Load { warm: draw(kind.warm), queries: draw(kind.modelled) }
    }
}

/// Time of a query and what the cache was.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct QueryFigures {
    pub(super) memory_ns: f64,
    pub(super) work_ns: f64,
    pub(super) bytes: u64,
    pub(super) hit_rate: f64,
    pub(super) found: usize,
}

impl QueryFigures {
    /// Time of memory alone, the same in every run: what is judged. The processor's work, which would be added on both
    /// sides of a ratio, is measured by the clock and stands beside it.
    pub(super) fn ns(&self) -> f64 {
        self.memory_ns
    }

    /// Percent that it takes longer than another.
    pub(super) fn overhead(&self, than: &QueryFigures) -> f64 {
        100.0 * (self.ns() / than.ns() - 1.0)
    }
}

/// A policy with bytes in percent of the Elf's.
pub(super) fn options(policy: &str, elf: &Elf, percent: f64) -> Result<ListCacheOptions, Error> {
    let policy: ListPolicy = policy.parse().map_err(|error| Error::Invalid(format!("{error}")))?;
    let bytes = 4.0 * elf.words().len() as f64 * percent / 100.0;
    Ok(ListCacheOptions::new(bytes as usize, policy))
}

/// Runs queries; returns what they found and their nanoseconds.
fn run_all<S: ElfStorage>(
    machine: &Machine,
    elf: &ElfInPlace<S>,
    cache: Option<&ListCache>,
    queries: &[Vec<CodeCondition>],
) -> Result<(usize, f64), Error> {
    machine.ns(|| {
        let (mut found, mut ids) = (0, Vec::new());
        for conditions in queries {
            ids.clear();
            elf.collect(cache, conditions, &mut ids)?;
            found += ids.len();
        }
        Ok(found)
    })
}

/// Runs a load with a cache or without, and measures its queries.
pub(super) fn measure<S: ElfStorage>(
    (machine, placed, elf): (&Machine, &ElfInPlace<S>, &Elf),
    options: Option<ListCacheOptions>,
    load: &Load,
    quick: bool,
) -> Result<QueryFigures, Error> {
    let cache = options.map(|options| machine.cache(placed, options));
    run_all(machine, placed, cache.as_ref(), &load.warm)?;
    let before = cache.as_ref().map(ListCache::stats).unwrap_or_default();
    let (found, ns) = run_all(machine, placed, cache.as_ref(), &load.queries)?;
    let after = cache.as_ref().map(ListCache::stats).unwrap_or_default();
    let (hits, misses) = (after.hits - before.hits, after.misses - before.misses);
    let count = load.queries.len();
    let in_dram = ElfInPlace::open(elf.words())?;
    let few = &load.queries[..count.min(WORK_QUERIES)];
    let rounds = if quick { 1 } else { WORK_ROUNDS };
    Ok(QueryFigures {
        memory_ns: ns / count as f64,
        work_ns: work_ns(&in_dram, options, few, rounds)?,
        bytes: after.bytes,
        hit_rate: if hits + misses > 0 { hits as f64 / (hits + misses) as f64 } else { 0.0 },
        found,
    })
}

/// Curve of the queries a second of consecutive parts of a load, from a cold cache on.
fn over_time(
    machine: &Machine,
    placed: &ElfInPlace<impl ElfStorage>,
    options: Option<ListCacheOptions>,
    work_ns: f64,
    load: &Load,
) -> Result<Vec<(String, f64)>, Error> {
    const PARTS: u32 = 5;
    let cold = options.map(|options| ListCacheOptions { is_warm: false, ..options });
    let cache = cold.map(|options| machine.cache(placed, options));
    let mut rest = &load.warm[..];
    let mut points = Vec::new();
    for part in (0..PARTS).rev() {
        let count = (load.warm.len() >> (2 * part)).max(1).min(rest.len());
        let (now, later) = rest.split_at(count);
        rest = later;
        if now.is_empty() {
            break;
        }
        let (_, ns) = run_all(machine, placed, cache.as_ref(), now)?;
        points.push((format!("{}", load.warm.len() - rest.len()), 1e9 / (ns / count as f64 + work_ns)));
    }
    Ok(points)
}

/// Variants of a kind of query, measured.
pub(super) struct Variants {
    pub(super) dram: QueryFigures,
    all: Vec<(String, QueryFigures)>,
}

impl Variants {
    /// One of them; a panic if it was not measured.
    pub(super) fn of(&self, name: &str) -> &QueryFigures {
        let found = self.all.iter().find(|(known, _)| known == name);
        &found.unwrap_or_else(|| panic!("{name} is measured")).1
    }

    /// The fastest of some.
    pub(super) fn fastest<'v>(&'v self, names: &[&'v str]) -> &'v str {
        let by_time = |a: &&&str, b: &&&str| self.of(a).ns().total_cmp(&self.of(b).ns());
        names.iter().min_by(by_time).expect("there are some")
    }
}

/// Caches at [`PERCENT`], by the name of the policy.
pub(super) const AT_PERCENT: [&str; 8] =
    ["probability", "levels:2+lla", "lla", "naive", "fifo", "lru", "lfu", "2q"];
/// Caches of levels, whatever they take.
const LEVELS: [&str; 4] = ["levels:1", "levels:2", "levels:3", "levels:4"];

/// Measures a kind of query under all variants, and draws throughput over time.
pub(super) fn run(
    kind: &ModelledQuery,
    options_of: &RunOptions,
    report: &mut Report,
) -> Result<Variants, Error> {
    let quick = options_of.quick;
    let tuples = Tuples::uniform(size(options_of), options_of.seed);
    let elf = build(&tuples)?;
    let load = Load::new(kind, &tuples, options_of.seed + 2, quick);
    let dram_machine = Machine::dram(&elf)?;
    let dram = measure((&dram_machine, &dram_machine.elf()?, &elf), None, &load, quick)?;
    drop(dram_machine);
    let machine = Machine::optane(&elf)?;
    let placed = machine.elf()?;
    let mut all = vec![("none".to_owned(), measure((&machine, &placed, &elf), None, &load, quick)?)];
    all.push((
        "dual access".to_owned(),
        measure((&machine, &machine.dual(&elf)?, &elf), None, &load, quick)?,
    ));
    for policy in AT_PERCENT {
        let options = options(policy, &elf, PERCENT as f64)?;
        all.push((policy.to_owned(), measure((&machine, &placed, &elf), Some(options), &load, quick)?));
    }
    for policy in LEVELS {
        let options = options(policy, &elf, 100.0)?;
        all.push((policy.to_owned(), measure((&machine, &placed, &elf), Some(options), &load, quick)?));
    }
    let with_monos = ListCacheOptions { mono_lists: true, ..options("lla", &elf, PERCENT as f64)? };
    all.push((
        "lla, MonoLists".to_owned(),
        measure((&machine, &placed, &elf), Some(with_monos), &load, quick)?,
    ));
    let same = all.iter().all(|(_, measured)| measured.found == dram.found);
    report.check(&format!("{}: every variant finds what DRAM finds", kind.name), same);
    let bytes = 4.0 * elf.words().len() as f64;
    for (name, measured) in [("DRAM".to_owned(), dram)].iter().chain(&all) {
        report.row(json!({ "query": kind.name, "variant": name, "memory_us": measured.ns() / 1e3,
            "work_us": measured.work_ns / 1e3,
            "overhead_percent": measured.overhead(&dram), "hit_rate": measured.hit_rate,
            "cache_percent": 100.0 * measured.bytes as f64 / bytes }));
    }
    let variants = Variants { dram, all };
    draw(kind, (&machine, &placed, &elf), &variants, &load, report)?;
    Ok(variants)
}

fn draw(
    kind: &ModelledQuery,
    (machine, placed, elf): (&Machine, &ElfInPlace<impl ElfStorage>, &Elf),
    variants: &Variants,
    load: &Load,
    report: &mut Report,
) -> Result<(), Error> {
    let mut series = Vec::new();
    for name in ["none", "probability", "levels:3", "lla", "naive", "lru", "levels:2+lla"] {
        let percent = if name == "levels:3" { 100.0 } else { PERCENT as f64 };
        let options = if name == "none" { None } else { Some(options(name, elf, percent)?) };
        let points = over_time(machine, placed, options, variants.of(name).work_ns, load)?;
        series.push(Series { name: name.to_owned(), points });
    }
    report.figure(Figure {
        title: format!("{}, modelled Optane, caches cold at first", kind.name),
        x_label: "queries so far".to_owned(),
        y_label: "queries a second".to_owned(),
        series,
    });
    Ok(())
}

/// Figures that the paper gives for a kind of query, and what is asked: overhead over DRAM in percent.
pub(super) struct Figures {
    pub(super) without: f64,
    pub(super) with: f64,
    pub(super) asked: f64,
}

/// Says what the paper measured and what is asked of a cache of [`PERCENT`].
pub(super) fn judge(kind: &ModelledQuery, figures: &Figures, variants: &Variants, report: &mut Report) {
    let (dram, none) = (&variants.dram, variants.of("none"));
    let best = variants.fastest(&AT_PERCENT);
    let overhead = variants.of(best).overhead(dram);
    let name = kind.name;
    report.paper(
        "Jibril et al., figure 3",
        &format!("{name}: overhead of Optane over DRAM, %"),
        &figures.without.to_string(),
        Some(none.overhead(dram)),
    );
    report.paper(
        "Jibril et al., section 6",
        &format!("{name}: overhead with copies of 3%, %"),
        &figures.with.to_string(),
        Some(overhead),
    );
    let per_second = |overhead: f64| 1e9 / (dram.ns() * (1.0 + overhead / 100.0));
    let label = |name: &str| name.to_owned();
    report.figure(Figure {
        title: format!("{name}, caches warm, modelled Optane; paper: by the overhead over DRAM"),
        x_label: "copies".to_owned(),
        y_label: "queries a second".to_owned(),
        series: vec![
            Series {
                name: "ours".to_owned(),
                points: vec![
                    (label("none"), 1e9 / none.ns()),
                    (label("3%"), 1e9 / variants.of(best).ns()),
                    (label("DRAM"), 1e9 / dram.ns()),
                ],
            },
            Series::of_paper(
                "Jibril et al., figure 3",
                vec![(label("none"), per_second(figures.without)), (label("3%"), per_second(figures.with))],
            ),
        ],
    });
    report.note(&format!("{name}: of the policies with {PERCENT}%, {best} is the fastest."));
    report.asked(
        AskedFigure::at_most(
            format!("{name}, {PERCENT}% of DRAM: overhead over DRAM"),
            overhead,
            figures.asked,
        )
        .unit("%"),
    );
    let slowest = AT_PERCENT.iter().map(|policy| variants.of(policy).ns()).fold(0.0, f64::max);
    report.asked(AskedFigure::at_most(
        format!("{name}: slowest policy, time to that without a cache"),
        slowest / none.ns(),
        1.0,
    ));
}
