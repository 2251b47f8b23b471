//! The hotspot paper's tables 3 to 5 (Liu, Luo, Jin): gets, updates, deletes and inserts of wB+-tree, FPTree
//! and FAST&FAIR with and without hot entries in DRAM, at several skews and budgets, and a hot set that
//! moves.
//!
//! On modelled Optane an operation takes what the model bills for the pool, and the processor's work: the
//! time on this machine of the same operation on an index that fits its caches. With the hotspot index it
//! takes besides the random latency of modelled DRAM for each line that is waited for, and that index' work.
//! DRAM inner nodes of an FPTree are not billed. Modelled caches are as much smaller than the paper's as
//! there are fewer keys than its ten million. On the real journal the clock decides.
//!
//! "FPTree" is the product's (`FpTree`), of which a get reads two neighbouring lines. The "FP-like tree" is
//! put together of node layouts like the other two; both stand beside the paper's FPTree.
//!
//! The index may step aside where it does not pay. On modelled Optane, with a hot set, it must not: there a
//! move of the hot set must leave as many hits as before. On the journal, which is DRAM, it may, and must
//! then cost nothing.

mod load;
mod meter;

use super::chapter3::scaled;
use crate::asked::AskedFigure;
use crate::measure::Random;
use crate::plot::{Figure, Series};
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol_memory::profile::Profile;
use entresol_memory::{DomainChoice, Pool, PoolOptions};
use entresol_structures::btree::instances::{FastFairTree, FpLikeTree, WbTree};
use entresol_structures::{FpTree, HotspotIndex, HotspotOptions, PointIndex, WordKey};
use load::{Change, Skew, key};
use meter::{CountingIndex, Meter, ProcessorCost};
use serde_json::json;
use std::sync::Arc;

/// Default budget of the cache, in percent of the keys: the hot ones.
const BUDGET_PERCENT: usize = 20;
const BUDGETS: [usize; 4] = [5, 10, 20, 40];
const SKEWS: [Skew; 6] =
    [Skew::Uniform, Skew::Hot(50), Skew::Hot(70), Skew::Hot(80), Skew::Hot(90), Skew::Zipf];
const TREES: [&str; 4] = ["wB+-tree", "FP-like tree", "FAST&FAIR", "FPTree"];
/// Trees of the paper, the first ones of [`TREES`].
const PAPER_TREES: usize = 3;
const BY_SKEW: &str = "Gets by skew";
/// Row of [`PAPER`] for each tree.
const NAMESAKES: [usize; 4] = [0, 1, 2, 1];
/// Millions of operations a second of wB+-tree, FPTree and FAST&FAIR: plain, with the adaptive index (tables
/// 3 with 10 million queries, 4 and 5).
const PAPER: [(&str, &str, [[f64; 2]; 3]); 3] = [
    ("get", "hotspot paper, table 3", [[0.713, 1.154], [0.920, 1.317], [0.811, 1.245]]),
    ("update", "hotspot paper, table 4", [[0.538, 0.500], [0.612, 0.543], [0.552, 0.511]]),
    ("delete", "hotspot paper, table 5", [[0.537, 0.534], [0.735, 0.711], [0.559, 0.536]]),
];

struct Sizes {
    keys: u64,
    operations: usize,
    /// Windows in which the hot set stays where it is.
    moves: usize,
}

/// Runs the experiment.
pub(super) fn run(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let (modelled, real) = if options.quick {
        let quick = || Sizes { keys: 12_000, operations: 12_000, moves: 2 };
        (quick(), quick())
    } else {
        (
            Sizes { keys: 100_000, operations: 60_000, moves: 3 },
            Sizes { keys: 500_000, operations: 300_000, moves: 3 },
        )
    };
    let dram = Profile::embedded("dram")?;
    let optane = scaled(Profile::embedded("optane-dcpmm")?, modelled.keys);
    let mut curves = Curves::default();
    for number in 0..TREES.len() {
        let pool = Pool::modelled(&PoolOptions::default(), &optane)?;
        let meter = Meter::modelled(&pool, dram.read.random_ns);
        one_tree(number, &pool, &meter, &modelled, options, &mut curves, report)?;
    }
    for number in 0..TREES.len() {
        let dir = options.database_dir()?;
        let pool = Pool::create(
            dir.path(),
            &PoolOptions { domain: DomainChoice::Journal, ..PoolOptions::default() },
        )?;
        one_tree(number, &pool, &Meter::Real, &real, options, &mut curves, report)?;
    }
    curves.draw(report);
    Ok(())
}

/// Points of the figures: domain, tree, position, value.
#[derive(Default)]
struct Curves {
    skews: Vec<(&'static str, &'static str, String, f64)>,
    budgets: Vec<(&'static str, &'static str, String, f64)>,
    moves: Vec<(&'static str, &'static str, String, f64)>,
}

impl Curves {
    fn draw(&self, report: &mut Report) {
        let drawn = [
            (&self.skews, BY_SKEW, "percent of gets on a fifth of the keys"),
            (&self.budgets, "Gets by budget, 80% on 20%", "DRAM entries, percent of keys"),
            (&self.moves, "The hot set moves", "windows of gets; it moves before the second, fourth, ..."),
        ];
        for (points, title, x_label) in drawn {
            for domain in ["modelled Optane", "journal"] {
                let series = TREES.iter().map(|tree| Series {
                    name: (*tree).to_string(),
                    points: points
                        .iter()
                        .filter(|point| point.0 == domain && point.1 == *tree)
                        .map(|(.., label, ratio)| (label.clone(), *ratio))
                        .collect(),
                });
                let mut series: Vec<Series> = series.collect();
                if title == BY_SKEW && domain == "modelled Optane" {
                    series.extend(TREES[..PAPER_TREES].iter().zip(PAPER[0].2).map(|(tree, [plain, hot])| {
                        Series::of_paper(tree, vec![(Skew::Hot(80).name(), hot / plain)])
                    }));
                }
                report.figure(Figure {
                    title: format!("{title}, {domain}"),
                    x_label: x_label.to_string(),
                    y_label: "times the plain index".to_string(),
                    series,
                });
            }
        }
    }
}

fn one_tree(
    number: usize,
    pool: &Arc<Pool>,
    meter: &Meter,
    sizes: &Sizes,
    options: &RunOptions,
    curves: &mut Curves,
    report: &mut Report,
) -> Result<(), Error> {
    let seed = options.seed;
    let bench =
        Bench { number, name: TREES[number], pool, meter, sizes, seed, work: ProcessorCost::default() };
    let small = Pool::volatile(&PoolOptions::default())?;
    macro_rules! run {
        ($create:expr, $open:expr) => {{
            let made = |pool: &Arc<Pool>| {
                let mut publication = pool.publication();
                let root = $create(pool, &mut publication)?;
                publication.publish()?;
                $open(pool, root)
            };
            let work = if meter.is_modelled() {
                ProcessorCost::of_index(&made(&small)?, &small)?
            } else {
                ProcessorCost::default()
            };
            Bench { work, ..bench }.run(&made(pool)?, curves, report)
        }};
    }
    match number {
        0 => run!(WbTree::<u64>::create, WbTree::<u64>::open),
        1 => run!(FpLikeTree::<u64>::create, FpLikeTree::<u64>::open),
        2 => run!(FastFairTree::<u64>::create, FastFairTree::<u64>::open),
        _ => {
            run!(|pool, publication| FpTree::<WordKey>::create(pool, 0, publication), |pool, root| FpTree::<
                WordKey,
            >::open(
                pool, root, 0
            ))
        }
    }
}

/// The paper's figures of an operation beside ours, if it has them: rates, and what the hotspot index makes
/// of them.
fn beside_paper(tree: usize, operation: &str, plain_ns: f64, hot_ns: f64, report: &mut Report) {
    let Some((_, source, rates)) = PAPER.iter().find(|(name, ..)| *name == operation) else { return };
    let [plain, hot] = rates[NAMESAKES[tree]];
    let name = format!("{}, {operation}, 80% on 20%, modelled Optane", TREES[tree]);
    report.paper(source, &format!("{name}: plain, M/s"), &plain.to_string(), Some(1e3 / plain_ns));
    report.paper(source, &format!("{name}: with the index, M/s"), &hot.to_string(), Some(1e3 / hot_ns));
    let ratio = format!("{:.2}", hot / plain);
    report.paper(source, &format!("{name}: with to without"), &ratio, Some(plain_ns / hot_ns));
}

/// An index under measurement.
struct Bench<'b> {
    number: usize,
    name: &'static str,
    pool: &'b Arc<Pool>,
    meter: &'b Meter,
    sizes: &'b Sizes,
    seed: u64,
    /// The processor's, of the index' own operations.
    work: ProcessorCost,
}

type HotspotTree<'i, I> = HotspotIndex<CountingIndex<'i, I>>;

impl Bench<'_> {
    fn random(&self, stream: u64) -> Random {
        Random::new(self.seed ^ stream << 32)
    }

    fn run<I: PointIndex<Key = u64>>(
        &self,
        index: &I,
        curves: &mut Curves,
        report: &mut Report,
    ) -> Result<(), Error> {
        let mut numbers: Vec<u64> = (0..self.sizes.keys).collect();
        self.random(1).shuffle(&mut numbers);
        for number in &numbers {
            index.insert(key(*number), *number, self.pool.publication())?;
        }
        for skew in SKEWS {
            let (plain_ns, hot_ns) = self.gets(index, skew, BUDGET_PERCENT, report)?;
            let ratio = plain_ns / hot_ns;
            curves.skews.push((self.meter.name(), self.name, skew.name(), ratio));
            if self.meter.is_modelled() {
                if skew == Skew::Hot(80) {
                    beside_paper(self.number, "get", plain_ns, hot_ns, report);
                    let name = format!("{}, get, 80% on 20%, modelled Optane", self.name);
                    report.asked(AskedFigure::at_least(name, ratio, 1.6));
                }
                if skew == Skew::Uniform {
                    let cost = 100.0 * (1.0 / ratio - 1.0);
                    let name = format!("{}, uniform get, cost, modelled Optane", self.name);
                    report.asked(AskedFigure::at_most(name, cost, 5.0).unit("%"));
                }
            }
        }
        for percent in BUDGETS {
            let (plain_ns, hot_ns) = self.gets(index, Skew::Hot(80), percent, report)?;
            curves.budgets.push((self.meter.name(), self.name, percent.to_string(), plain_ns / hot_ns));
        }
        self.moving(index, curves, report)?;
        for skew in [Skew::Hot(80), Skew::Uniform] {
            for change in [Change::Update, Change::DeleteAndInsert] {
                self.changes(index, change, skew, report)?;
            }
        }
        let right = (0..self.sizes.keys).all(|number| {
            index
                .get(key(number))
                .is_ok_and(|value| value.is_some_and(|value| value % self.sizes.keys == number))
        });
        report.check(
            &format!("{}, {}: every key has its value at the end", self.name, self.meter.name()),
            right,
        );
        Ok(())
    }

    fn cached<'i, I: PointIndex<Key = u64>>(
        &self,
        index: &'i I,
        budget_percent: usize,
    ) -> Result<HotspotTree<'i, I>, Error> {
        let entries = self.sizes.keys as usize * budget_percent / 100;
        let options = HotspotOptions {
            budget_bytes: HotspotTree::<'i, I>::budget_bytes(entries),
            clock: self.meter.clock(),
            ..HotspotOptions::default()
        };
        Ok(HotspotIndex::new(CountingIndex::new(index), options)?)
    }

    /// Lets a cache get to know its load; what it has then stays as the load does.
    fn warm<I: PointIndex<Key = u64>>(&self, hot: &HotspotTree<'_, I>, skew: Skew) -> Result<(), Error> {
        for round in 0..3 {
            let mut random = self.random(10 + round);
            for number in skew.draw(&mut random, self.sizes.keys, 0, self.sizes.operations) {
                hot.get(key(number))?;
            }
        }
        Ok(())
    }

    /// Gets without and with a cache of so many percent of the keys, in ns.
    fn gets<I: PointIndex<Key = u64>>(
        &self,
        index: &I,
        skew: Skew,
        budget_percent: usize,
        report: &mut Report,
    ) -> Result<(f64, f64), Error> {
        let hot = self.cached(index, budget_percent)?;
        self.warm(&hot, skew)?;
        let numbers = skew.draw(&mut self.random(2), self.sizes.keys, 0, self.sizes.operations);
        let (plain_ns, hot_ns, hits) = self.compare_gets(index, &hot, &numbers)?;
        let stats = hot.stats();
        report.row(
            json!({"domain": self.meter.name(), "tree": self.name, "operation": "get", "skew": skew.name(),
            "budget_percent": budget_percent, "plain_ns": plain_ns, "with_hotspot_ns": hot_ns,
            "ratio": plain_ns / hot_ns, "hits_percent": 100.0 * hits, "is_aside": stats.is_bypassed,
            "dram_bytes": stats.bytes}),
        );
        Ok((plain_ns, hot_ns))
    }

    /// The same gets of both: ns of a get without and with a cache, and the share of hits.
    fn compare_gets<I: PointIndex<Key = u64>>(
        &self,
        index: &I,
        hot: &HotspotTree<'_, I>,
        numbers: &[u64],
    ) -> Result<(f64, f64, f64), Error> {
        let plain_ns = self.meter.ns(numbers, |number| Ok(index.get(key(number))?.is_some()))?;
        let before = hot.behind().gets();
        let behind_ns = self.meter.ns(numbers, |number| Ok(hot.get(key(number))?.is_some()))?;
        let hits = 1.0 - (hot.behind().gets() - before) as f64 / numbers.len() as f64;
        let own_ns = self.meter.own_get_ns(hits, hot.stats().is_bypassed);
        let work_ns = self.work.get;
        Ok((plain_ns + work_ns, behind_ns + (1.0 - hits) * work_ns + own_ns, hits))
    }

    /// Updates, or deletes and inserts of the same keys, with and without a cache that knows the load.
    fn changes<I: PointIndex<Key = u64>>(
        &self,
        index: &I,
        change: Change,
        skew: Skew,
        report: &mut Report,
    ) -> Result<(), Error> {
        let mut numbers = skew.draw(&mut self.random(3), self.sizes.keys, 0, self.sizes.operations / 2);
        if change == Change::DeleteAndInsert {
            // A key can be deleted once.
            numbers.sort_unstable();
            numbers.dedup();
            self.random(4).shuffle(&mut numbers);
        }
        let values = self.sizes.keys;
        let plain = change.ns(self.meter, index, self.pool, &numbers, values)?;
        let hot = self.cached(index, BUDGET_PERCENT)?;
        self.warm(&hot, skew)?;
        let before = hot.stats();
        let cached = change.ns(self.meter, &hot, self.pool, &numbers, 2 * values)?;
        let work_ns = change.work_ns(&self.work);
        // Inserts are last, and pass by.
        let own_ns = self.meter.own_change_ns();
        for (index, (operation, plain_ns)) in change.names().iter().zip(plain).enumerate() {
            let plain_ns = plain_ns + work_ns[index];
            let hot_ns = cached[index] + work_ns[index] + if index == 0 { own_ns } else { 0.0 };
            let cost_percent = 100.0 * (hot_ns / plain_ns - 1.0);
            report.row(json!({"domain": self.meter.name(), "tree": self.name, "operation": operation,
                "skew": skew.name(), "plain_ns": plain_ns, "with_hotspot_ns": hot_ns, "ratio": plain_ns / hot_ns,
                "cost_percent": cost_percent, "is_aside": before.is_bypassed}));
            if self.meter.is_modelled() {
                if skew == Skew::Hot(80) {
                    beside_paper(self.number, operation, plain_ns, hot_ns, report);
                }
                let name = format!("{}, {operation}, {}, cost, modelled Optane", self.name, skew.name());
                report.asked(AskedFigure::at_most(name, cost_percent, 5.0).unit("%"));
            }
        }
        Ok(())
    }

    /// Windows of gets between which the hot set moves, to keys that were cold before.
    fn moving<I: PointIndex<Key = u64>>(
        &self,
        index: &I,
        curves: &mut Curves,
        report: &mut Report,
    ) -> Result<(), Error> {
        let hot = self.cached(index, BUDGET_PERCENT)?;
        self.warm(&hot, Skew::Hot(80))?;
        let (mut settled, mut last_ratio) = (Vec::new(), f64::NAN);
        for window in 0..2 * self.sizes.moves {
            let first = (window as u64).div_ceil(2) * self.sizes.keys / 5;
            let mut random = self.random(20 + window as u64);
            let numbers = Skew::Hot(80).draw(&mut random, self.sizes.keys, first, self.sizes.operations);
            let (plain_ns, hot_ns, hits) = self.compare_gets(index, &hot, &numbers)?;
            report.row(
                json!({"domain": self.meter.name(), "tree": self.name, "operation": "get, moving hot set",
                "window": window, "plain_ns": plain_ns, "with_hotspot_ns": hot_ns, "ratio": plain_ns / hot_ns,
                "hits_percent": 100.0 * hits}),
            );
            curves.moves.push((self.meter.name(), self.name, window.to_string(), plain_ns / hot_ns));
            if window % 2 == 0 {
                settled.push(hits);
                last_ratio = plain_ns / hot_ns;
            }
        }
        let (first, last) = (settled[0], settled[settled.len() - 1]);
        let name = self.name;
        if self.meter.is_modelled() {
            let last = if hot.stats().is_bypassed { 0.0 } else { last };
            let name = format!("{name}, hits after the hot set has moved to before, modelled Optane");
            let figure = AskedFigure::at_least(name, last / first, 0.8).tolerance(0.0);
            // In front of the FPTree, whose gets wait for two lines, few keys are a tie: either choice is
            // right.
            report.asked(if self.name == "FPTree" { figure } else { figure.judged_at_small_sizes() });
        } else {
            let name = format!("{name}, gets after the hot set has moved to the plain index', journal");
            report.asked(AskedFigure::at_least(name, last_ratio, 0.95));
        }
        Ok(())
    }
}
