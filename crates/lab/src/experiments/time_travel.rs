//! `time-travel`: cost of a version history for writers, of reads AS OF beside reads of the latest state,
//! bytes of a version.
//!
//! One state, keys of 8 bytes, values of 32; rounds of updates over all keys in random order, a few keys a
//! commit. The states with and without a version history are written in turn, so that what disturbs the
//! machine disturbs both. Readers look keys up and scan all of them, now and as of so many rounds back; every
//! value read says its round, which is checked against the point in time.

use crate::measure::{Random, median};
use crate::plot::{Figure, Series};
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol_memory::{DomainChoice, Durability, Pool, PoolOptions};
use entresol_structures::KeyWidth;
use entresol_transactions::{
    ContextOptions, KeyRange, Protocol, State, StateContext, Timestamp, Transaction,
};
use serde_json::json;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

const VALUE_BYTES: usize = 32;
/// Keys of a commit.
const KEYS_PER_COMMIT: [usize; 2] = [1, 10];
/// Rounds that readers look back; 0 is the latest state.
const BACK: [usize; 5] = [0, 1, 4, 16, 63];
const ROUNDS: usize = 64;

#[derive(Clone, Copy)]
struct Sizes {
    keys: u64,
    lookups: usize,
}

struct Bench {
    context: Arc<StateContext>,
    state: Arc<State>,
    keys: u64,
    rounds: usize,
    /// The last commit of each round.
    ends: Vec<Timestamp>,
    random: Random,
}

impl Bench {
    fn new(protocol: Protocol, keys: u64, history: bool, seed: u64) -> Result<Bench, Error> {
        let pool = Pool::volatile(&PoolOptions { domain: DomainChoice::Volatile, ..PoolOptions::default() })?;
        let options = ContextOptions { protocol, ..ContextOptions::default() };
        let context = StateContext::open_or_create_with(pool, options)?;
        let state = context.create_state(context.create_group()?, KeyWidth::Eight)?;
        if history {
            context.keep_history(state.id(), None)?;
        }
        let mut bench =
            Bench { context, state, keys, rounds: 0, ends: Vec::new(), random: Random::new(seed) };
        bench.write_round(100)?;
        Ok(bench)
    }

    /// Writes every key once; nanoseconds a key.
    fn write_round(&mut self, keys_per_commit: usize) -> Result<f64, Error> {
        let mut order: Vec<u64> = (0..self.keys).collect();
        self.random.shuffle(&mut order);
        let value = (self.rounds as u64).to_le_bytes().repeat(VALUE_BYTES / 8);
        let started = Instant::now();
        for keys in order.chunks(keys_per_commit) {
            let transaction = self.context.begin()?;
            for key in keys {
                transaction.write(&self.state, &key.to_be_bytes(), Some(&value))?;
            }
            transaction.commit(Durability::None)?;
        }
        let elapsed = started.elapsed();
        self.rounds += 1;
        self.ends.push(self.context.newest_commit());
        Ok(elapsed.as_nanos() as f64 / self.keys as f64)
    }

    /// A reader so many rounds back, and the round that it has to see.
    fn reader(&self, back: usize) -> Result<(Arc<Transaction>, u64), Error> {
        let round = self.rounds - 1 - back;
        let reader = match back {
            0 => self.context.begin()?,
            _ => self.context.begin_as_of(self.ends[round])?,
        };
        Ok((reader, round as u64))
    }

    /// Nanoseconds a look-up; false if one saw another point in time.
    fn look_up(&mut self, back: usize, lookups: usize) -> Result<(f64, bool), Error> {
        let (reader, round) = self.reader(back)?;
        let keys: Vec<[u8; 8]> = (0..lookups).map(|_| self.random.below(self.keys).to_be_bytes()).collect();
        let mut right = true;
        let started = Instant::now();
        for key in &keys {
            let seen = reader.read(&self.state, key, |value| value[..8] == round.to_le_bytes())?;
            right &= black_box(seen) == Some(true);
        }
        Ok((started.elapsed().as_nanos() as f64 / lookups as f64, right))
    }

    /// Nanoseconds a row of a scan of all keys.
    fn scan(&self, back: usize) -> Result<(f64, bool), Error> {
        let (reader, round) = self.reader(back)?;
        let (mut from, mut rows, mut right) = (None, 0, true);
        let started = Instant::now();
        let mut see = |_: &[u8], value: &[u8]| {
            rows += 1;
            right &= value[..8] == round.to_le_bytes();
        };
        while reader.scan_batch(&self.state, &KeyRange::full(), &mut from, &mut see)? {}
        Ok((started.elapsed().as_nanos() as f64 / self.keys as f64, right && rows == self.keys))
    }

    fn allocated(&self) -> u64 {
        let mut bytes = 0;
        self.context.pool().for_each_object(|_, size| bytes += size);
        bytes
    }
}

pub(super) fn run(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let sizes = if options.quick {
        Sizes { keys: 2_000, lookups: 4_000 }
    } else {
        Sizes { keys: 20_000, lookups: 200_000 }
    };
    let mut right = true;
    for protocol in [Protocol::MvccInPlace, Protocol::MvccOutOfPlace] {
        right &= run_protocol(protocol, sizes, options.seed, report)?;
    }
    report.check("every AS OF read saw its point in time, all keys of it", right);
    Ok(())
}

fn run_protocol(protocol: Protocol, sizes: Sizes, seed: u64, report: &mut Report) -> Result<bool, Error> {
    let mut plain = Bench::new(protocol, sizes.keys, false, seed)?;
    let mut kept = Bench::new(protocol, sizes.keys, true, seed)?;
    let before = kept.allocated();
    for keys_per_commit in KEYS_PER_COMMIT {
        let (mut without, mut with) = (Vec::new(), Vec::new());
        for _ in 0..(ROUNDS - 1) / KEYS_PER_COMMIT.len() {
            without.push(plain.write_round(keys_per_commit)?);
            with.push(kept.write_round(keys_per_commit)?);
        }
        let (without, with) = (median(&without), median(&with));
        report.row(json!({
            "figure": "writing", "protocol": protocol.to_string(), "keys_per_commit": keys_per_commit,
            "without_history_ns_per_key": without, "with_history_ns_per_key": with,
        }));
        let name =
            format!("writing with a history beside without, {keys_per_commit} keys a commit, {protocol}");
        report.ratio(&name, with / without);
    }
    while kept.rounds < ROUNDS {
        kept.write_round(KEYS_PER_COMMIT[1])?;
    }
    let versions = (kept.rounds as u64 - 1) * sizes.keys;
    let per_version = (kept.allocated() - before) as f64 / versions as f64;
    report.row(json!({
        "figure": "space", "protocol": protocol.to_string(), "versions": versions,
        "bytes_per_version": per_version, "value_bytes": VALUE_BYTES,
    }));
    let (mut right, mut present) = (true, (0.0, 0.0));
    let (mut looked_up, mut scanned) = (Vec::new(), Vec::new());
    for back in BACK {
        let mut samples = (Vec::new(), Vec::new());
        for _ in 0..5 {
            let (look_up, saw) = kept.look_up(back, sizes.lookups / 5)?;
            let (scan, all) = kept.scan(back)?;
            samples.0.push(look_up);
            samples.1.push(scan);
            right &= saw && all;
        }
        let (look_up, scan) = (median(&samples.0), median(&samples.1));
        report.row(json!({
            "figure": "reading", "protocol": protocol.to_string(), "rounds_back": back,
            "look_up_ns": look_up, "scan_ns_per_row": scan,
        }));
        if back == 0 {
            present = (look_up, scan);
        } else if back == BACK[BACK.len() - 1] || back == 1 {
            report.ratio(
                &format!("look-up {back} rounds back beside the present, {protocol}"),
                look_up / present.0,
            );
            report
                .ratio(&format!("scan {back} rounds back beside the present, {protocol}"), scan / present.1);
        }
        looked_up.push((back.to_string(), look_up));
        scanned.push((back.to_string(), scan));
    }
    report.figure(Figure {
        title: format!("Reads AS OF, {protocol}: {} keys, {ROUNDS} versions of each", sizes.keys),
        x_label: "rounds back (0: the present)".to_string(),
        y_label: "ns".to_string(),
        series: vec![
            Series { name: "a look-up".to_string(), points: looked_up },
            Series { name: "a row of a scan".to_string(), points: scanned },
        ],
    });
    Ok(right)
}
