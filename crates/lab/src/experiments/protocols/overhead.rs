//! `protocol-overhead` (figure 5.11): reads and commits beside the bare base table.

use super::bare::BareTable;
use super::bench::{Bench, Medium, round_of, value};
use super::skew::Skew;
use super::{MEDIUM, Sizes};
use crate::measure::{Random, median};
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol_memory::Durability;
use entresol_transactions::Protocol;
use serde_json::json;
use std::time::Instant;

/// Commits a second that are asked for.
const ASKED_NONE: f64 = 250_000.0;
const ASKED_GROUP: f64 = 150_000.0;

pub(crate) fn run(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    report.paper(
        json!({"figure": "5.11", "reads": "about 5% below the base table", "writes": "up to 50% below"}),
    );
    let sizes = Sizes::of(options);
    for medium in Medium::ALL {
        let bench = Bench::of(Protocol::MvccInPlace, medium, sizes.tuples, options)?;
        let bare = BareTable::new(bench.context.pool(), sizes.tuples)?;
        let drawn = Skew::new(sizes.tuples, 0.0).draw(&mut Random::new(options.seed), 1 << 18);
        reads(medium, &sizes, &bench, &bare, &drawn, report)?;
        writes(medium, &sizes, &bench, &bare, &drawn, report)?;
    }
    Ok(())
}

/// Calls `work` on parts of the keys for a phase; returns keys a second.
fn rate(
    sizes: &Sizes,
    drawn: &[u32],
    mut work: impl FnMut(&[u32]) -> Result<(), Error>,
) -> Result<f64, Error> {
    let (started, mut done) = (Instant::now(), 0usize);
    for keys in drawn.chunks_exact(MEDIUM).cycle() {
        work(keys)?;
        done += keys.len();
        if done.is_multiple_of(100 * MEDIUM) && started.elapsed() >= sizes.phase {
            break;
        }
    }
    Ok(done as f64 / started.elapsed().as_secs_f64())
}

/// In turns, so that what disturbs the machine disturbs both.
fn reads(
    medium: Medium,
    sizes: &Sizes,
    bench: &Bench,
    bare: &BareTable,
    drawn: &[u32],
    report: &mut Report,
) -> Result<(), Error> {
    let (mut ratios, mut bare_rates, mut rates, mut right) = (Vec::new(), Vec::new(), Vec::new(), true);
    for _ in 0..3 * sizes.rounds {
        let bare_rate = rate(sizes, drawn, |keys| {
            keys.iter().for_each(|&number| {
                right &= bare.read(u64::from(number), round_of).flatten().is_some();
            });
            Ok(())
        })?;
        let mvcc = rate(sizes, drawn, |keys| {
            let transaction = bench.context.begin()?;
            for &number in keys {
                let read = transaction.read(&bench.states[0], &u64::from(number).to_be_bytes(), round_of)?;
                right &= read.flatten().is_some();
            }
            transaction.commit(Durability::None)?;
            Ok(())
        })?;
        ratios.push(mvcc / bare_rate);
        bare_rates.push(bare_rate);
        rates.push(mvcc);
    }
    report.row(json!({
        "medium": medium.name(),
        "bare_reads_per_s": median(&bare_rates),
        "mvcc_reads_per_s": median(&rates),
    }));
    report.ratio(&format!("MVCC reads beside the base table, {}", medium.name()), median(&ratios), Some(0.9));
    report.check(&format!("every tuple was read whole, {}", medium.name()), right);
    Ok(())
}

fn writes(
    medium: Medium,
    sizes: &Sizes,
    bench: &Bench,
    bare: &BareTable,
    drawn: &[u32],
    report: &mut Report,
) -> Result<(), Error> {
    let levels = match medium {
        Medium::Dram => &[("none", Durability::None, ASKED_NONE)][..],
        Medium::Journal => &[
            ("none", Durability::None, ASKED_NONE),
            ("group(10)", Durability::Group { interval_ms: 10 }, ASKED_GROUP),
        ],
    };
    for &(level, durability, asked) in levels {
        let (mut bare_rates, mut rates, mut round, mut right) = (Vec::new(), Vec::new(), 0, true);
        for _ in 0..sizes.rounds {
            bare_rates.push(rate(sizes, drawn, |keys| {
                round += 1;
                keys.iter().for_each(|&number| right &= bare.write(u64::from(number), &value(round)));
                Ok(())
            })?);
            rates.push(rate(sizes, drawn, |keys| {
                round += 1;
                // Each of these keys in both states: ten operations.
                right &= bench.write(&keys[..MEDIUM / 2], round, durability)? == Some(true);
                Ok(())
            })?);
        }
        let commits = median(&rates) / MEDIUM as f64;
        report.row(json!({
            "medium": medium.name(),
            "durability": level,
            "commits_of_10_per_s": commits,
            "mvcc_writes_per_s": median(&rates),
            "bare_writes_per_s": median(&bare_rates),
        }));
        let name = format!("commits of 10 a second beside {asked}, {level}, {}", medium.name());
        report.ratio(&name, commits / asked, Some(1.0));
        report.check(&format!("every write committed, {level}, {}", medium.name()), right);
    }
    Ok(())
}
