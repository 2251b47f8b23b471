//! Ways of failure atomicity beside each other (dissertation 3.3.4, E6): none, ordered stores with one word
//! that counts, the pool's publication, an undo-log transaction, a persistent multi-word compare-and-swap.
//! Two workloads: one to eight words of a node change, each in a line of its own; and a node of presorted
//! entries moves from DRAM.
//!
//! Times are medians of rounds in which the ways take turns, over more nodes than a cache holds; modelled
//! Optane gives modelled time, the same on every machine. Beside it what each way flushes, fences and writes.

mod undo;
mod ways;

use crate::measure::{Random, median};
use crate::plot::{Figure, Series};
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol_memory::profile::Profile;
use entresol_memory::{DomainChoice, Pool, PoolOptions};
use serde_json::json;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;
use tempfile::TempDir;
use ways::{AtomicityMethod, Moves, Nodes, WORDS_MAX};

/// Numbers of words that change.
const WORDS: [u64; 5] = [1, 2, 4, 6, WORDS_MAX];
/// Bytes of nodes that move.
const NODE_BYTES: [usize; 5] = [256, 512, 1024, 2048, 4096];

struct Sizes {
    nodes: usize,
    operations: usize,
    rounds: usize,
}

/// Medium of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Medium {
    Journal,
    DaxEmulated,
    Optane,
}

impl Medium {
    const ALL: [Medium; 3] = [Medium::Journal, Medium::DaxEmulated, Medium::Optane];

    fn name(self) -> &'static str {
        match self {
            Medium::Journal => "journal, none",
            Medium::DaxEmulated => "dax (emulated)",
            Medium::Optane => "Optane (modelled)",
        }
    }

    /// A new pool; none where this machine has no cache-line flush.
    fn pool(self, dir: &TempDir) -> Result<Option<Arc<Pool>>, Error> {
        let domain = match self {
            Medium::Journal => DomainChoice::Journal,
            Medium::DaxEmulated => DomainChoice::DaxEmulated,
            Medium::Optane => {
                let profile = Profile::embedded("optane-dcpmm")?;
                return Ok(Some(Pool::modelled(&PoolOptions::default(), &profile)?));
            }
        };
        match Pool::open_or_create(dir.path(), &PoolOptions { domain, ..PoolOptions::default() }) {
            Err(entresol_memory::Error::Unsupported(_)) => Ok(None),
            pool => Ok(Some(pool?)),
        }
    }
}

/// Average cost of an operation.
#[derive(Debug, Clone, Copy)]
struct Cost {
    ns: f64,
    flushes: f64,
    fences: f64,
    /// To the journal, or to the device in whole lines; not known of an emulated one.
    bytes: Option<f64>,
}

impl Cost {
    /// Measures operations on a pool.
    fn of(pool: &Pool, operations: usize, work: impl FnOnce() -> Result<(), Error>) -> Result<Cost, Error> {
        let (stats, modelled, start) = (pool.stats(), pool.modelled_cost(), Instant::now());
        work()?;
        let elapsed_ns = start.elapsed().as_nanos() as f64;
        let (after, count) = (pool.stats(), operations as f64);
        let journal_bytes = after.journal_appended_bytes - stats.journal_appended_bytes;
        let counted = Cost {
            ns: elapsed_ns / count,
            flushes: (after.flushes - stats.flushes) as f64 / count,
            fences: (after.fences - stats.fences) as f64 / count,
            bytes: (journal_bytes > 0).then_some(journal_bytes as f64 / count),
        };
        Ok(match (modelled, pool.modelled_cost()) {
            (Some(before), Some(after)) => {
                let cost = after - before;
                let bytes = Some((cost.lines_written * cost.line_bytes) as f64 / count);
                Cost { ns: cost.ns() / count, bytes, ..counted }
            }
            _ => counted,
        })
    }

    /// Medians, each for itself.
    fn median(costs: &[Cost]) -> Cost {
        let of = |value: fn(&Cost) -> f64| median(&costs.iter().map(value).collect::<Vec<_>>());
        let bytes: Option<Vec<f64>> = costs.iter().map(|cost| cost.bytes).collect();
        Cost {
            ns: of(|cost| cost.ns),
            flushes: of(|cost| cost.flushes),
            fences: of(|cost| cost.fences),
            bytes: bytes.map(|bytes| median(&bytes)),
        }
    }
}

/// Costs by medium, way, and words or bytes.
type Costs = HashMap<(Medium, AtomicityMethod, u64), Cost>;

/// Runs the experiment.
pub(super) fn run(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let sizes = if options.quick {
        Sizes { nodes: 500, operations: 500, rounds: 3 }
    } else {
        Sizes { nodes: 50_000, operations: 20_000, rounds: 7 }
    };
    let (mut words, mut moves) = (Costs::new(), Costs::new());
    for medium in Medium::ALL {
        change_words(options, &sizes, medium, report, &mut words)?;
        move_nodes(options, &sizes, medium, report, &mut moves)?;
    }
    figures(report, "words that change, each in its line", "words", &WORDS, &words);
    figures(report, "a node moves from DRAM (E6)", "bytes", &NODE_BYTES.map(|bytes| bytes as u64), &moves);
    compare(report, &words, &moves);

    Ok(())
}

fn change_words(
    options: &RunOptions,
    sizes: &Sizes,
    medium: Medium,
    report: &mut Report,
    all: &mut Costs,
) -> Result<(), Error> {
    let dir = options.database_dir()?;
    let Some(pool) = medium.pool(&dir)? else { return Ok(()) };
    let mut nodes = Nodes::new(&pool, sizes.nodes)?;
    let mut random = Random::new(options.seed);
    let mut right = true;
    for words in WORDS {
        let mut costs: HashMap<AtomicityMethod, Vec<Cost>> = HashMap::new();
        // The first round warms up.
        for round in 0..=sizes.rounds {
            for way in AtomicityMethod::ALL {
                let picks: Vec<usize> =
                    (0..sizes.operations).map(|_| random.below(nodes.len() as u64) as usize).collect();
                let cost = Cost::of(&pool, sizes.operations, || {
                    picks.iter().try_for_each(|index| nodes.change(way, *index, words))
                })?;
                if way == AtomicityMethod::OneWord {
                    right &= nodes.are_right(words)?;
                    // Back to where the others look.
                    nodes.settle();
                }
                if round > 0 {
                    costs.entry(way).or_default().push(cost);
                }
            }
            right &= nodes.are_right(WORDS_MAX)?;
        }
        for way in AtomicityMethod::ALL {
            let cost = Cost::median(&costs[&way]);
            add_row(report, medium, way, "words", words, cost);
            all.insert((medium, way, words), cost);
        }
    }
    report.check(
        &format!("{}: every word of every node is what it must be, whatever the way", medium.name()),
        right,
    );
    Ok(())
}

fn move_nodes(
    options: &RunOptions,
    sizes: &Sizes,
    medium: Medium,
    report: &mut Report,
    all: &mut Costs,
) -> Result<(), Error> {
    let mut right = true;
    for bytes in NODE_BYTES {
        let dir = options.database_dir()?;
        let Some(pool) = medium.pool(&dir)? else { return Ok(()) };
        // As many bytes for every size.
        let (count, operations) =
            ((sizes.nodes * 256 / bytes).max(64), (sizes.operations * 256 / bytes).max(64));
        let mut moves = Moves::new(&pool, count, bytes)?;
        let mut random = Random::new(options.seed);
        let mut costs: HashMap<AtomicityMethod, Vec<Cost>> = HashMap::new();
        let mut entries = vec![0; bytes / 8];
        for round in 0..=sizes.rounds {
            for way in AtomicityMethod::ALL {
                let picks: Vec<usize> =
                    (0..operations).map(|_| random.below(moves.len() as u64) as usize).collect();
                entries.fill_with(|| random.next_u64());
                entries.sort_unstable();
                let cost = Cost::of(&pool, operations, || {
                    picks.iter().try_for_each(|index| moves.carry_out(way, *index, &entries))
                })?;
                right &= moves.is_right(&entries)?;
                if round > 0 {
                    costs.entry(way).or_default().push(cost);
                }
            }
        }
        for way in AtomicityMethod::ALL {
            let cost = Cost::median(&costs[&way]);
            add_row(report, medium, way, "node_bytes", bytes as u64, cost);
            all.insert((medium, way, bytes as u64), cost);
        }
    }
    report.check(&format!("{}: the node that the pointer names holds what was moved", medium.name()), right);
    Ok(())
}

fn add_row(report: &mut Report, medium: Medium, way: AtomicityMethod, what: &str, number: u64, cost: Cost) {
    report.row(json!({
        "medium": medium.name(),
        "way": way.name(),
        what: number,
        "ns": cost.ns,
        "flushes": cost.flushes,
        "fences": cost.fences,
        "modified_bytes": cost.bytes,
    }));
}

fn figures(report: &mut Report, title: &str, x_label: &str, numbers: &[u64], costs: &Costs) {
    for medium in Medium::ALL {
        let points = |way| {
            let point =
                |number: &u64| costs.get(&(medium, way, *number)).map(|cost| (number.to_string(), cost.ns));
            numbers.iter().filter_map(point).collect::<Vec<_>>()
        };
        let series: Vec<Series> = AtomicityMethod::ALL
            .map(|way| Series { name: way.name().to_string(), points: points(way) })
            .into();
        if series.iter().all(|series| !series.points.is_empty()) {
            report.figure(Figure {
                title: format!("{title}: {}", medium.name()),
                x_label: x_label.to_string(),
                y_label: "ns".to_string(),
                series,
            });
        }
    }
}

/// Adds the dissertation's figures for its medium beside ours, and checks the counts, which are the same on
/// all media.
fn compare(report: &mut Report, words: &Costs, moves: &Costs) {
    let optane = |costs: &Costs, way, number: u64| costs[&(Medium::Optane, way, number)];
    for number in WORDS {
        let cost = |way| optane(words, way, number).ns;
        report.ratio(
            &format!("{number} words: undo log/publication"),
            cost(AtomicityMethod::UndoLog) / cost(AtomicityMethod::Publication),
        );
        report.ratio(
            &format!("{number} words: PMwCAS/publication"),
            cost(AtomicityMethod::PmwCas) / cost(AtomicityMethod::Publication),
        );
    }
    let mut ratios = Vec::new();
    for bytes in NODE_BYTES.map(|bytes| bytes as u64) {
        let cost = |way| optane(moves, way, bytes).ns;
        let ratio = cost(AtomicityMethod::UndoLog) / cost(AtomicityMethod::OneWord);
        let source = "dissertation, figure 3.12 (E6)";
        let name = format!("{bytes} B node: transaction to individual failure atomicity");
        report.paper(source, &name, "1.2 to 3", Some(ratio));
        let name = format!("{bytes} B node: individual failure atomicity to none");
        report.paper(
            source,
            &name,
            "almost 1",
            Some(cost(AtomicityMethod::OneWord) / cost(AtomicityMethod::None)),
        );
        ratios.push(ratio);
    }
    report.check(
        "modelled Optane: an undo-log transaction costs more than ordered stores at every node size",
        ratios.iter().all(|ratio| *ratio > 1.0),
    );
    let fences_of = |way, number| optane(words, way, number).fences.round() as u64;
    report.check(
        "fences of n words: none 1, one word 2, publication 4 (of one word 2), undo log 2n + 2, PMwCAS 4",
        WORDS.iter().all(|n| {
            fences_of(AtomicityMethod::None, *n) == 1
                && fences_of(AtomicityMethod::OneWord, *n) == 2
                && fences_of(AtomicityMethod::Publication, *n) == if *n == 1 { 2 } else { 4 }
                && fences_of(AtomicityMethod::UndoLog, *n) == 2 * n + 2
                && fences_of(AtomicityMethod::PmwCas, *n) == 4
        }),
    );
}
