//! `protocol-overhead` (figure 5.11): reads and commits beside the bare base table, and two writers beside
//! one.

use super::bare::BareTable;
use super::bench::{Bench, Medium, round_of, value};
use super::skew::Skew;
use super::{MEDIUM, Sizes};
use crate::asked::AskedFigure;
use crate::measure::{Random, median};
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol_memory::Durability;
use entresol_transactions::Protocol;
use serde_json::json;
use std::sync::Barrier;
use std::time::Instant;

/// Commits a second that are asked for.
const ASKED_NONE: f64 = 250_000.0;
const ASKED_GROUP: f64 = 150_000.0;
/// Two writers of different keys on `journal`, times one, by the clock.
const ASKED_TWO: f64 = 1.7;

pub(crate) fn run(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let sizes = Sizes::of(options);
    for medium in Medium::ALL {
        let bench = Bench::of(Protocol::MvccInPlace, medium, sizes.tuples, options)?;
        let bare = BareTable::new(bench.context.pool(), sizes.tuples)?;
        let drawn = Skew::new(sizes.tuples, 0.0).draw(&mut Random::new(options.seed), 1 << 18);
        reads(medium, &sizes, &bench, &bare, &drawn, report)?;
        writes(medium, &sizes, &bench, &bare, &drawn, report)?;
        two_writers(medium, &sizes, &bench, &drawn, report)?;
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
    let name = format!("reads beside the base table, {}", medium.name());
    report.paper("dissertation, figure 5.11", &name, "about 0.95", Some(median(&ratios)));
    report.row(json!({
        "medium": medium.name(),
        "bare_reads_per_s": median(&bare_rates),
        "mvcc_reads_per_s": median(&rates),
    }));
    report.asked(AskedFigure::at_least(
        format!("MVCC reads beside the base table, {}", medium.name()),
        median(&ratios),
        0.9,
    ));
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
    // In turns: a checkpoint of what was written before, or of the load, delays the writes of that time.
    let (mut bare_rates, mut rates) = (Vec::new(), vec![Vec::new(); levels.len()]);
    let (mut round, mut right) = (0, true);
    for _ in 0..2 * sizes.rounds {
        bare_rates.push(rate(sizes, drawn, |keys| {
            round += 1;
            keys.iter().for_each(|&number| right &= bare.write(u64::from(number), &value(round)));
            Ok(())
        })?);
        for (&(_, durability, _), rates) in levels.iter().zip(&mut rates) {
            rates.push(rate(sizes, drawn, |keys| {
                round += 1;
                // Each of these keys in both states: ten operations.
                right &= bench.write(&keys[..MEDIUM / 2], round, durability)? == Some(true);
                Ok(())
            })?);
        }
    }
    for (&(level, _, asked), rates) in levels.iter().zip(&rates) {
        let commits = median(rates) / MEDIUM as f64;
        report.row(json!({
            "medium": medium.name(),
            "durability": level,
            "commits_of_10_per_s": commits,
            "mvcc_writes_per_s": median(rates),
            "bare_writes_per_s": median(&bare_rates),
        }));
        if level == "none" {
            let name = format!("writes beside the base table, {}", medium.name());
            let ratio = median(rates) / median(&bare_rates);
            report.paper("dissertation, figure 5.11", &name, "down to 0.5", Some(ratio));
        }
        let name = format!("commits of 10 writes, {level}, {}", medium.name());
        report.asked(AskedFigure::at_least(name, commits, asked).unit("/s"));
    }
    report.check(&format!("every write committed, {}", medium.name()), right);
    Ok(())
}

/// Two writers that share no key beside one alone, in turns, at `none`.
fn two_writers(
    medium: Medium,
    sizes: &Sizes,
    bench: &Bench,
    drawn: &[u32],
    report: &mut Report,
) -> Result<(), Error> {
    let parts: [Vec<u32>; 2] =
        [0, 1].map(|writer| drawn.iter().copied().filter(|number| number % 2 == writer).collect());
    let (mut ones, mut twos, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..2 * sizes.rounds {
        let one = commits_a_second(sizes, bench, &parts[..1])?;
        let two = commits_a_second(sizes, bench, &parts)?;
        ratios.push(two / one);
        ones.push(one);
        twos.push(two);
    }
    report.row(json!({
        "medium": medium.name(),
        "commits_of_10_per_s_one_writer": median(&ones),
        "commits_of_10_per_s_two_writers": median(&twos),
    }));
    let name = format!("two writers of different keys beside one, {}", medium.name());
    if medium == Medium::Journal {
        report.asked(AskedFigure::at_least(name, median(&ratios), ASKED_TWO));
    } else {
        report.ratio(&name, median(&ratios));
    }
    Ok(())
}

/// Commits a second of all writers together, each on keys of its own.
fn commits_a_second(sizes: &Sizes, bench: &Bench, parts: &[Vec<u32>]) -> Result<f64, Error> {
    let start = Barrier::new(parts.len());
    let write = |part: &Vec<u32>| {
        start.wait();
        let mut round = 0;
        let keys_a_second = rate(sizes, part, |keys| {
            round += 1;
            match bench.write(&keys[..MEDIUM / 2], round, Durability::None)? {
                Some(true) => Ok(()),
                _ => Err(Error::Invalid("a commit on keys of one writer conflicted".to_string())),
            }
        })?;
        Ok::<f64, Error>(keys_a_second / MEDIUM as f64)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = parts.iter().map(|part| scope.spawn(|| write(part))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a writer panicked")).sum()
    })
}
