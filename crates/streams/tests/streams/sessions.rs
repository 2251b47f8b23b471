//! Sessions: streaming equals recomputing, whatever the transactions, aborts and restarts; merging; late tuples.

use crate::support::*;
use entresol_memory::{MemoryBudget, Pool, PoolOptions};
use entresol_streams::{
    Aggregate, Boundary, ChannelSource, Element, GeneratorSource, Punctuation, Report, TimeWindow, Topology,
    Tuple,
};
use entresol_tables::{Catalog, Row, Value};
use entresol_transactions::StateContext;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

fn aggregates() -> [Aggregate; 5] {
    [
        Aggregate::count(),
        Aggregate::sum("power"),
        Aggregate::min("power"),
        Aggregate::max("power"),
        Aggregate::avg("power"),
    ]
}

fn window(gap_s: u64, lateness_s: u64) -> TimeWindow {
    TimeWindow::session("at", Duration::from_secs(gap_s)).lateness(Duration::from_secs(lateness_s))
}

/// Runs a topology over readings, with one transaction per `boundary`.
fn run(catalog: &Arc<Catalog>, readings: Vec<Tuple>, window: TimeWindow, boundary: Boundary) -> Report {
    let topology = Topology::builder("t", catalog).boundary(boundary);
    let source = GeneratorSource::new(reading_columns(), move |n| readings.get(n as usize).cloned());
    let windows = topology.source("readings", source).window(window);
    windows.group_by(&["meter"]).aggregate(&aggregates(), "open").to_table("sessions");
    topology.build().unwrap().run().unwrap()
}

/// Sessions of times in order, as their first times with the number and the sum of their values.
fn sessions(times: &BTreeMap<(i64, usize), f64>, gap_us: i64) -> Vec<(i64, i64, i64, f64)> {
    let mut sessions: Vec<(i64, i64, i64, f64)> = Vec::new();
    for (&(at, _), &power) in times {
        match sessions.last_mut() {
            Some((_, end, count, sum)) if at < *end => {
                (*end, *count, *sum) = (at + gap_us, *count + 1, *sum + power);
            }
            _ => sessions.push((at, at + gap_us, 1, power)),
        }
    }
    sessions
}

/// Meter, start, end, count and sum of a session.
type Session = (i32, i64, i64, i64, f64);

/// Sessions of all readings but the late ones, and the number of late ones.
fn recompute(readings: &[Tuple], gap_s: i64, lateness_s: i64) -> (Vec<Session>, u64) {
    let gap_us = gap_s * SECOND_US;
    let mut meters: BTreeMap<i32, BTreeMap<(i64, usize), f64>> = BTreeMap::new();
    let (mut watermark, mut late) = (i64::MIN, 0);
    for (n, tuple) in readings.iter().enumerate() {
        let (Value::Int(meter), Value::Timestamp(at), Value::Double(power)) =
            (&tuple[0], &tuple[1], &tuple[2])
        else {
            panic!("{tuple:?}")
        };
        let times = meters.entry(*meter).or_default();
        let mut open = sessions(times, gap_us).into_iter().filter(|(_, end, ..)| *end > watermark);
        if *at < watermark && !open.any(|(start, end, ..)| (start..end).contains(at)) {
            late += 1;
            continue;
        }
        times.insert((*at, n), *power);
        watermark = watermark.max(at - lateness_s * SECOND_US);
    }
    let all = meters.iter().flat_map(|(meter, times)| {
        let of_meter = |(start, end, count, sum)| (*meter, start, end, count, sum);
        sessions(times, gap_us).into_iter().map(of_meter)
    });
    (all.collect(), late)
}

/// Rows (meter, window_start, window_end, count, sum, ...) in order.
fn found(rows: &[Row]) -> Vec<Session> {
    let mut found: Vec<Session> = rows
        .iter()
        .map(|row| match row.as_slice() {
            [
                Value::Int(meter),
                Value::Timestamp(start),
                Value::Timestamp(end),
                Value::BigInt(count),
                Value::Double(sum),
                Value::Double(min),
                Value::Double(max),
                Value::Double(avg),
            ] => {
                assert!(min <= avg && avg <= max && (sum / *count as f64 - avg).abs() < 1e-9, "{row:?}");
                (*meter, *start, *end, *count, *sum)
            }
            other => panic!("{other:?}"),
        })
        .collect();
    found.sort_by(|a, b| a.partial_cmp(b).unwrap());
    found
}

#[test]
fn streaming_equals_recomputing() {
    let seed = seed();
    let boundaries = [Boundary::EachTuple, Boundary::Every(1), Boundary::Every(7), Boundary::Every(100_000)];
    for (round, boundary) in boundaries.into_iter().enumerate() {
        for (gap_s, lateness_s, disorder) in [(5, 0, 0), (4, 0, 9), (9, 3, 5), (12, 30, 40), (3, 10, 60)] {
            let readings: Vec<Tuple> =
                (0..900).map(|n| random_reading(seed + round as u64, n, 4, disorder)).collect();
            let (expected, late) = recompute(&readings, gap_s, lateness_s);
            let catalog = volatile();
            let report = run(&catalog, readings, window(gap_s as u64, lateness_s as u64), boundary);
            let what = format!("{boundary:?}, gap {gap_s}, lateness {lateness_s}, disorder {disorder}");
            assert_eq!(found(&rows(&catalog, "sessions")), expected, "{what}");
            assert_eq!((report.late, report.tuples), (late, 900), "{what}");
            assert!(rows(&catalog, "open").is_empty(), "{what}: all sessions are closed at the end");
        }
    }
}

/// Aborted transactions leave no trace in open sessions; those that are repeated count once.
#[test]
fn aborts_and_restarts_change_nothing() {
    let seed = seed();
    let readings: Vec<Tuple> = (0..1500).map(|n| random_reading(seed, n, 5, 25)).collect();
    let directory = tempfile::tempdir().unwrap();
    let mut kept: Vec<Tuple> = Vec::new();
    let mut late = 0;
    for (run, part) in readings.chunks(250).enumerate() {
        let catalog = journal(directory.path());
        let (sender, receiver) = crossbeam_channel::bounded(1024);
        for (n, chunk) in part.chunks(25).enumerate() {
            let is_kept = (n + run) % 3 > 0;
            sender.send(Element::Punctuation(Punctuation::Begin)).unwrap();
            sender.send(Element::Tuples(chunk.to_vec())).unwrap();
            let end = if is_kept { Punctuation::Commit } else { Punctuation::Abort };
            sender.send(Element::Punctuation(end)).unwrap();
            if is_kept {
                kept.extend_from_slice(chunk);
            }
        }
        let is_last = kept.len() + 25 > readings.len() || (run + 1) * 250 == readings.len();
        let topology = Topology::builder("t", &catalog).boundary(Boundary::Punctuated);
        topology
            .source("readings", ChannelSource::new(reading_columns(), receiver))
            .window(window(7, 20))
            .group_by(&["meter"])
            .aggregate(&aggregates(), "open")
            .to_table("sessions");
        let running = topology.build().unwrap().start().unwrap();
        if is_last {
            drop(sender);
        } else {
            let wanted = (0..10).filter(|n| (n + run) % 3 > 0).count() as u64 * 25;
            while running.progress().snapshot().tuples < wanted {
                std::thread::yield_now();
            }
            running.stop();
        }
        late += running.join().unwrap().late;
        if !is_last {
            assert!(!rows(&catalog, "open").is_empty());
        }
    }
    let (expected, expected_late) = recompute(&kept, 7, 20);
    let catalog = journal(directory.path());
    assert_eq!(found(&rows(&catalog, "sessions")), expected);
    assert_eq!(late, expected_late);
    assert!(rows(&catalog, "open").is_empty());
}

#[test]
fn a_tuple_between_two_sessions_makes_them_one() {
    let at = |seconds: &[i64]| seconds.iter().map(|&second| reading(1, second, 1.0)).collect::<Vec<_>>();
    for boundary in [Boundary::EachTuple, Boundary::Every(100)] {
        let catalog = volatile();
        // 100 to 104 and 110 are two sessions until 107 comes; 100 + 5 is not within a gap of 5.
        run(&catalog, at(&[100, 104, 110, 107, 115, 200]), window(5, 60), boundary);
        let ends: Vec<(i64, i64, i64)> = found(&rows(&catalog, "sessions"))
            .into_iter()
            .map(|(_, start, end, count, _)| (start / SECOND_US, end / SECOND_US, count))
            .collect();
        assert_eq!(ends, [(100, 115, 4), (115, 120, 1), (200, 205, 1)]);
    }
}

#[test]
fn open_sessions_are_a_table_and_must_fit_the_memory_budget() {
    let budget = MemoryBudget::tiny(64 << 20);
    let options = PoolOptions { memory: Some(Arc::clone(&budget)), ..PoolOptions::default() };
    let context = StateContext::open_or_create(Pool::volatile(&options).unwrap()).unwrap();
    let catalog = Catalog::open_or_create(context).unwrap();
    let readings = |n: u64| (n < 200_000).then(|| reading(n as i32, n as i64 / 1000, 1.0));
    let topology = Topology::builder("t", &catalog).boundary(Boundary::Every(1000));
    let windows = topology
        .source("readings", GeneratorSource::new(reading_columns(), readings))
        .window(window(3600, 0));
    windows.group_by(&["meter"]).aggregate(&aggregates(), "open").to_table("sessions");
    let error = topology.build().unwrap().run().unwrap_err().to_string();
    assert!(error.contains("stream state"), "{error}");
    // What was committed is there.
    let open = rows(&catalog, "open");
    assert!(open.len() >= 1000 && open.len().is_multiple_of(1000), "{}", open.len());
    let [Value::Int(_), Value::Timestamp(start), Value::Timestamp(end), ..] = open[0].as_slice() else {
        panic!("{:?}", open[0])
    };
    assert_eq!(end - start, 3600 * SECOND_US);
}
