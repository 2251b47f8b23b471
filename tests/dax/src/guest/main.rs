//! What runs in the guest: a seeded history of tree operations, allocations and commits, and of lines that are written in
//! order, on three pools of the `dax` domain, and the check of what a power failure left of them.
//!
//! ```text
//! dax-guest run DIR SEED STEPS ACKNOWLEDGED    recover, check, go on with the history up to STEPS
//! dax-guest check DIR SEED ACKNOWLEDGED        recover, check that exactly the acknowledged steps are there
//!                                              (and at most one more), go on for a few steps, check again
//! dax-guest nodes DIR                          where threads and pages are on a machine with two memory nodes
//! ```
//!
//! A step is acknowledged on the console (`dax: done 7`) and by a mark that the plugin sees. Every line that the
//! host waits for begins with `dax:`.

mod commits;
mod history;
mod marks;
mod nodes;
mod order;
// A build with mutants lists these points, too; none of them is a mutant of the floor under test.
#[cfg_attr(feature = "mutants", allow(dead_code, reason = "the list"))]
mod points;
mod tree;

use commits::Commits;
use entresol_memory::{DomainChoice, DomainKind, EXTENT_BYTES_MIN, Env, FlushChoice, Pool, PoolOptions};
use history::{Failure, STEPS_MAX};
use order::Order;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use tree::Tree;

/// Steps that go on after a recovery that is only checked.
const STEPS_AFTER_CHECK: u64 = 20;

const USAGE: &str =
    "usage: dax-guest run DIR SEED STEPS ACKNOWLEDGED | check DIR SEED ACKNOWLEDGED | nodes DIR";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments[..] {
        ["run", dir, seed, steps, acknowledged] => {
            numbers([seed, steps, acknowledged]).and_then(|[seed, steps, acknowledged]| {
                run(Path::new(dir), seed, steps.min(STEPS_MAX), acknowledged)
            })
        }
        ["check", dir, seed, acknowledged] => numbers([seed, acknowledged])
            .and_then(|[seed, acknowledged]| check(Path::new(dir), seed, acknowledged)),
        ["nodes", dir] => nodes::run(Path::new(dir)),
        _ => Err(USAGE.into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            println!("dax: FAILED {failure}");
            ExitCode::FAILURE
        }
    }
}

fn numbers<const N: usize>(texts: [&str; N]) -> Result<[u64; N], Failure> {
    let mut parsed = [0; N];
    for (number, text) in parsed.iter_mut().zip(texts) {
        *number = text.parse().map_err(|_| format!("'{text}' is not a number"))?;
    }
    Ok(parsed)
}

/// The parts of the history, each in its own pool, and how far each has come.
struct Histories {
    seed: u64,
    /// Whether every step is acknowledged on the console.
    reports: bool,
    tree: Tree,
    tree_steps: u64,
    commits: Commits,
    commits_steps: u64,
    order: Order,
    order_steps: u64,
}

impl Histories {
    /// Opens (which recovers) and finds out how many steps are there: `acknowledged` or, up to `most`, more.
    fn recover(dir: &Path, seed: u64, acknowledged: u64, most: u64) -> Result<Histories, Failure> {
        let tree = Tree::open(pool(&dir.join("tree"))?)?;
        let tree_steps = tree.steps(seed, acknowledged, most)?;
        let commits = Commits::open(pool(&dir.join("commits"))?)?;
        let commits_steps = commits.steps(seed, acknowledged, most)?;
        let order = Order::open(pool(&dir.join("order"))?)?;
        let order_steps = order.steps(acknowledged, most)?;
        Ok(Histories { seed, reports: false, tree, tree_steps, commits, commits_steps, order, order_steps })
    }

    /// Carries out the steps up to `last` that are missing.
    fn go_on(&mut self, last: u64) -> Result<(), Failure> {
        for step in 1..=last {
            if step > self.tree_steps {
                self.tree.apply(self.seed, step)?;
                self.tree_steps = step;
            }
            if step > self.commits_steps {
                self.commits.apply(self.seed, step)?;
                self.commits_steps = step;
            }
            if step > self.order_steps {
                self.order.apply(step);
                self.order_steps = step;
                marks::acknowledge(step);
                if self.reports {
                    println!("dax: done {step}");
                }
            }
        }
        Ok(())
    }

    fn done(&self) -> u64 {
        self.tree_steps.min(self.commits_steps).min(self.order_steps)
    }
}

/// Small extents, so that the pools grow while the power fails.
fn pool(dir: &Path) -> Result<Arc<Pool>, Failure> {
    let flush = if std::env::var_os("ENTRESOL_FLUSH_AS_PLATFORM").is_some() {
        FlushChoice::AsPlatform
    } else {
        FlushChoice::Always
    };
    let options = PoolOptions {
        domain: DomainChoice::Dax,
        flush,
        extent_bytes: EXTENT_BYTES_MIN,
        address_space_bytes: 64 << 20,
        env: Env::simulated(1),
        ..PoolOptions::default()
    };
    let pool = Pool::open_or_create(dir, &options)?;
    if pool.domain() != DomainKind::Dax {
        return Err(format!("the domain is {}", pool.domain()).into());
    }
    Ok(pool)
}

fn run(dir: &Path, seed: u64, steps: u64, acknowledged: u64) -> Result<(), Failure> {
    marks::begin();
    let mut histories = Histories::recover(dir, seed, acknowledged, STEPS_MAX)?;
    let pool = histories.tree.pool();
    let instruction = pool.flush_instruction().map_or("none".to_string(), |i| i.to_string());
    println!("dax: ready domain={} flush={instruction} done={}", pool.domain(), histories.done());
    let before = histories.done();
    marks::acknowledge(before);
    histories.reports = true;
    histories.go_on(steps)?;
    marks::end();
    histories.tree.steps(seed, steps, steps)?;
    histories.commits.steps(seed, steps, steps)?;
    histories.order.steps(steps, steps)?;
    println!("dax: finished {steps}");
    Ok(())
}

fn check(dir: &Path, seed: u64, acknowledged: u64) -> Result<(), Failure> {
    let mut histories = Histories::recover(dir, seed, acknowledged, acknowledged + 1)?;
    let found = (histories.tree_steps, histories.commits_steps);
    let last = acknowledged + STEPS_AFTER_CHECK;
    histories.go_on(last)?;
    drop(histories);
    Histories::recover(dir, seed, last, last)?;
    println!("dax: checked {dir} tree={} commits={}", found.0, found.1, dir = dir.display());
    Ok(())
}
