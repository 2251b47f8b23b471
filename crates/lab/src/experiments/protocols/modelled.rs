//! The protocols on modelled Optane: what the device takes for a transaction, one at a time. No contention
//! there: what differs is what they read, write, flush and fence.

use super::bench::Bench;
use super::skew::Skew;
use crate::asked::AskedFigure;
use crate::measure::Random;
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol_memory::profile::Profile;
use entresol_memory::{Durability, Pool, PoolOptions};
use entresol_transactions::{ContextOptions, Protocol};
use serde_json::json;

const THETAS: [f64; 2] = [0.0, 2.9];

/// Modelled time of transactions of so many operations, by protocol.
pub(super) fn transactions(
    options: &RunOptions,
    report: &mut Report,
    operations: usize,
) -> Result<(), Error> {
    let (tuples, transactions) = if options.quick { (2_000, 30) } else { (100_000, 1_000) };
    let profile = Profile::embedded("optane-dcpmm")?;
    let mut in_place = [0.0; THETAS.len()];
    let mut right = true;
    for protocol in Protocol::ALL {
        let pool = Pool::modelled(&PoolOptions::default(), &profile)?;
        let bench = Bench::new(pool, None, ContextOptions { protocol, ..ContextOptions::default() }, tuples)?;
        for (place, theta) in THETAS.into_iter().enumerate() {
            let keys = (operations / 2).max(1);
            let drawn =
                Skew::new(tuples, theta).draw(&mut Random::new(options.seed), 2 * keys * transactions);
            let (written, read) = drawn.split_at(keys * transactions);
            let write_us = us_of_each(&bench, transactions, || {
                written.chunks_exact(keys).zip(1..).try_for_each(|(keys, round)| {
                    right &= bench.write(keys, round, Durability::None)? == Some(true);
                    Ok(())
                })
            })?;
            let mut seen = true;
            let read_us = us_of_each(&bench, transactions, || {
                read.chunks_exact(keys).try_for_each(|keys| {
                    seen &= bench.read(keys)? == Some(true);
                    Ok(())
                })
            })?;
            right &= seen;
            report.row(json!({
                "protocol": protocol.to_string(),
                "medium": "modelled Optane",
                "theta": theta,
                "operations": operations,
                "write_transaction_us": write_us,
                "read_transaction_us": read_us,
            }));
            if protocol == Protocol::MvccInPlace {
                in_place[place] = write_us;
            }
            if protocol == Protocol::MvccOutOfPlace {
                let name = format!("in place beside out of place, writer, theta {theta}, modelled Optane");
                let figure = AskedFigure::at_least(name, write_us / in_place[place].max(1e-9), 2.0);
                report.asked(figure.tolerance(0.0).judged_at_small_sizes());
            }
        }
    }
    report.note(
        "Modelled Optane bills the device for one transaction after the other: it shows what a protocol reads, writes, \
         flushes and fences, not locks, waits, restarts or the processor's time.",
    );
    report.check("every transaction on modelled Optane committed and saw one snapshot", right);
    Ok(())
}

/// Modelled microseconds of each of so many.
fn us_of_each(bench: &Bench, count: usize, work: impl FnOnce() -> Result<(), Error>) -> Result<f64, Error> {
    let cost = || bench.context.pool().modelled_cost().unwrap_or_default();
    let before = cost();
    work()?;
    Ok((cost() - before).ns() / count as f64 / 1e3)
}
