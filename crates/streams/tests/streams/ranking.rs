//! Rankings: streaming equals recomputing, whatever the transactions, aborts, restarts and partitions in DRAM.

use crate::support::*;
use entresol_streams::{
    Boundary, ChannelSource, Element, GROUPS_IN_DRAM_MAX, GeneratorSource, Punctuation, RankChanges,
    RankEmission, RankFunction, RankOrder, Ranking, Stream, TimeWindow, ToTable, Topology, TopologyBuilder,
    Tuple, WindowEdge, WindowKind,
};
use entresol_tables::{Catalog, Value};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Kind of ranking, and its limit.
#[derive(Debug, Clone, Copy)]
struct Case {
    emission: Emission,
    function: RankFunction,
    limit: Option<usize>,
    partitions_in_dram: usize,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Emission {
    /// Hopping windows by power, descending.
    Windows,
    /// First rows by time.
    EventTime,
    /// By power, descending.
    Commit,
}

const LATENESS_S: i64 = 12;
const SLIDE_S: i64 = 4;
const SIZE_S: i64 = 10;
/// Meter, window (0 without), time, power in eighths, rank.
type Ranked = (i32, i64, i64, i64, i64);

fn ascending(column: usize) -> RankOrder {
    RankOrder { column, descending: false, nulls_first: false }
}

/// Ranks readings with coarse powers, so that some are equal.
fn rank(stream: &Stream, case: Case) {
    let lateness = Duration::from_secs(LATENESS_S as u64);
    let future_limit = Duration::MAX;
    let by_power = vec![RankOrder { column: 2, descending: true, nulls_first: true }];
    let (slide, size) = (Duration::from_secs(SLIDE_S as u64), Duration::from_secs(SIZE_S as u64));
    let (stream, partition, order, emission) = match case.emission {
        Emission::Windows => {
            let kind = WindowKind::Hopping { slide, size };
            let edge = WindowEdge { column: 3, is_end: false, kind, is_of_results: false };
            let emission = RankEmission::WindowClose { time: 1, edge, lateness, future_limit };
            (stream.assign_windows(&TimeWindow::of_kind("at", kind)), vec![0, 3], by_power, emission)
        }
        Emission::EventTime => {
            let emission = RankEmission::EventTime { time: 1, lateness, future_limit };
            (stream.clone(), vec![0], vec![ascending(1)], emission)
        }
        Emission::Commit => (stream.clone(), vec![0], by_power, RankEmission::Commit),
    };
    let ranked = stream.rank(Ranking {
        function: case.function,
        partition,
        order,
        limit: case.limit,
        changes: RankChanges::OfRanks,
        emission,
        rank_column: "place".to_owned(),
        state_table: "open".to_owned(),
        late: None,
        partitions_in_dram: case.partitions_in_dram,
    });
    match case.emission {
        Emission::Commit => ranked.to_table(ToTable::upsert("ranked")),
        _ => ranked.to_table(ToTable::insert("ranked")),
    };
}

/// Rank of each of ordered values.
fn ranks(function: RankFunction, values: &[i64]) -> Vec<i64> {
    (0..values.len())
        .map(|at| match function {
            RankFunction::RowNumber => at as i64 + 1,
            RankFunction::Rank => values.iter().position(|value| *value == values[at]).unwrap() as i64 + 1,
            RankFunction::DenseRank => {
                let mut different = values[..=at].to_vec();
                different.dedup();
                different.len() as i64
            }
        })
        .collect()
}

/// Ranks of all readings but the late ones, and the number of late ones.
fn recompute(readings: &[Tuple], case: Case) -> (Vec<Ranked>, u64) {
    // Meter and window to (time, power) in the order of arrival.
    let mut partitions: BTreeMap<(i32, i64), Vec<(i64, i64)>> = BTreeMap::new();
    let (mut watermark, mut late) = (i64::MIN, 0);
    for tuple in readings {
        let (Value::Int(meter), Value::Timestamp(at), Value::Double(power)) =
            (&tuple[0], &tuple[1], &tuple[2])
        else {
            panic!("{tuple:?}")
        };
        let row = (*at, (power * 8.0) as i64);
        match case.emission {
            Emission::Commit => partitions.entry((*meter, 0)).or_default().push(row),
            Emission::EventTime if *at < watermark => late += 1,
            Emission::EventTime => partitions.entry((*meter, 0)).or_default().push(row),
            Emission::Windows => {
                let (slide, size) = (SLIDE_S * SECOND_US, SIZE_S * SECOND_US);
                let last = at.div_euclid(slide) * slide;
                let starts = (0..).map(|n| last - n * slide).take_while(|start| start + size > *at);
                let mut starts: Vec<i64> = starts.collect();
                starts.reverse();
                late += u64::from(starts[0] + size <= watermark);
                for start in starts.into_iter().filter(|start| start + size > watermark) {
                    partitions.entry((*meter, start)).or_default().push(row);
                }
            }
        }
        watermark = watermark.max(at - LATENESS_S * SECOND_US);
    }
    let mut all = Vec::new();
    for ((meter, window), mut rows) in partitions {
        let by_time = case.emission == Emission::EventTime;
        rows.sort_by_key(|(at, power)| if by_time { *at } else { -*power });
        let values: Vec<i64> = rows.iter().map(|(at, power)| if by_time { *at } else { *power }).collect();
        let ranked = rows.iter().zip(ranks(case.function, &values));
        let first = ranked.filter(|(_, rank)| case.limit.is_none_or(|limit| *rank <= limit as i64));
        all.extend(first.map(|((at, power), rank)| (meter, window, *at, *power, rank)));
    }
    all.sort_unstable();
    (all, late)
}

/// Compares ranks; an error shows the first that differ.
fn compare(found: &[Ranked], expected: &[Ranked], what: &str) {
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert_eq!(found, expected, "row {at}: {what}");
    }
    assert_eq!(found.len(), expected.len(), "{what}");
}

fn found(catalog: &Catalog, emission: Emission) -> Vec<Ranked> {
    let number = |value: &Value| match value {
        Value::Int(number) => i64::from(*number),
        Value::BigInt(number) | Value::Timestamp(number) => *number,
        Value::Double(number) => (number * 8.0) as i64,
        other => panic!("{other:?}"),
    };
    let mut found: Vec<Ranked> = rows(catalog, "ranked")
        .iter()
        .map(|row| {
            let (window, place) = match emission {
                Emission::Windows => (number(&row[3]), number(&row[5])),
                _ => (0, number(&row[3])),
            };
            (number(&row[0]) as i32, window, number(&row[1]), number(&row[2]), place)
        })
        .collect();
    found.sort_unstable();
    found
}

/// Readings with few different powers.
fn coarse(seed: u64, n: u64, meters: u64, disorder: u64) -> Tuple {
    let mut tuple = random_reading(seed, n, meters, disorder);
    if let Value::Double(power) = &mut tuple[2] {
        *power = (*power / 5.0).floor();
    }
    tuple
}

fn cases() -> Vec<Case> {
    let case = |emission, function, limit, partitions_in_dram| Case {
        emission,
        function,
        limit,
        partitions_in_dram,
    };
    let mut cases = Vec::new();
    for function in [RankFunction::RowNumber, RankFunction::Rank, RankFunction::DenseRank] {
        for limit in [Some(1), Some(3), None] {
            cases.push(case(Emission::Windows, function, limit, 1));
        }
    }
    for emission in [Emission::EventTime, Emission::Commit] {
        for limit in [1, 2, 7] {
            for partitions in [1, 4, GROUPS_IN_DRAM_MAX] {
                cases.push(case(emission, RankFunction::RowNumber, Some(limit), partitions));
            }
        }
    }
    cases
}

fn builder(catalog: &Arc<Catalog>, boundary: Boundary) -> TopologyBuilder {
    Topology::builder("t", catalog).boundary(boundary)
}

#[test]
fn streaming_equals_recomputing() {
    let seed = seed();
    for (round, case) in cases().into_iter().enumerate() {
        for (boundary, disorder) in
            [(Boundary::EachTuple, 9), (Boundary::Every(7), 40), (Boundary::Every(100_000), 20)]
        {
            let readings: Vec<Tuple> =
                (0..700).map(|n| coarse(seed + round as u64, n, 6, disorder)).collect();
            let (expected, late) = recompute(&readings, case);
            let catalog = volatile();
            let topology = builder(&catalog, boundary);
            let source = GeneratorSource::new(reading_columns(), move |n| readings.get(n as usize).cloned());
            rank(&topology.source("readings", source), case);
            let report = topology.build().unwrap().run().unwrap();
            let what = format!("{case:?}, {boundary:?}, disorder {disorder}");
            compare(&found(&catalog, case.emission), &expected, &what);
            assert_eq!((report.late, report.tuples), (late, 700), "{what}");
            let open = rows(&catalog, "open").len();
            let left = if case.emission == Emission::Windows { 0 } else { expected.len() };
            assert_eq!(open, left, "{what}: rows of closed windows go, others stay");
        }
    }
}

/// Aborted transactions leave no trace; those that are repeated count once.
#[test]
fn aborts_and_restarts_change_nothing() {
    let seed = seed();
    for (round, case) in cases().into_iter().enumerate().filter(|(round, _)| round % 2 == 0) {
        let readings: Vec<Tuple> = (0..600).map(|n| coarse(seed + round as u64, n, 5, 20)).collect();
        let directory = tempfile::tempdir().unwrap();
        let (mut committed, mut late): (Vec<Tuple>, u64) = (Vec::new(), 0);
        for (run, part) in readings.chunks(200).enumerate() {
            let catalog = journal(directory.path());
            let (sender, receiver) = crossbeam_channel::bounded(1024);
            for (n, chunk) in part.chunks(20).enumerate() {
                let is_committed = (n + run) % 3 > 0;
                sender.send(Element::Punctuation(Punctuation::Begin)).unwrap();
                sender.send(Element::Tuples(chunk.to_vec())).unwrap();
                let end = if is_committed { Punctuation::Commit } else { Punctuation::Abort };
                sender.send(Element::Punctuation(end)).unwrap();
                if is_committed {
                    committed.extend_from_slice(chunk);
                }
            }
            let topology = builder(&catalog, Boundary::Punctuated);
            rank(&topology.source("readings", ChannelSource::new(reading_columns(), receiver)), case);
            let running = topology.build().unwrap().start().unwrap();
            let wanted = (0..10).filter(|n| (n + run) % 3 > 0).count() as u64 * 20;
            if run == 2 {
                drop(sender);
            } else {
                while running.progress().snapshot().tuples < wanted {
                    std::thread::yield_now();
                }
                running.stop();
            }
            late += running.join().unwrap().late;
        }
        let (expected, expected_late) = recompute(&committed, case);
        let catalog = journal(directory.path());
        compare(&found(&catalog, case.emission), &expected, &format!("{case:?}"));
        assert_eq!(late, expected_late, "{case:?}");
    }
}

/// NULL is a partition, and the state says so; one that was stored for partitions without NULL stays as it is.
#[test]
fn a_state_without_null_is_used_as_it_is() {
    let catalog = volatile();
    let run = |rows: u64, state: &str, is_nullable: bool, meter: Value| {
        let mut columns = reading_columns();
        columns[0].nullable = is_nullable;
        let topology = builder(&catalog, Boundary::EachTuple);
        let source = GeneratorSource::new(columns, move |n| {
            let tuple = vec![meter.clone(), Value::Timestamp(n as i64 * SECOND_US), Value::Double(1.0)];
            (n < rows).then_some(tuple)
        });
        let (lateness, future_limit) = (Duration::ZERO, Duration::MAX);
        let ranking = Ranking {
            function: RankFunction::RowNumber,
            partition: vec![0],
            order: vec![ascending(1)],
            limit: Some(1),
            changes: RankChanges::OfRanks,
            emission: RankEmission::EventTime { time: 1, lateness, future_limit },
            rank_column: "place".to_owned(),
            state_table: state.to_owned(),
            late: None,
            partitions_in_dram: GROUPS_IN_DRAM_MAX,
        };
        topology.source("readings", source).rank(ranking).select(&["at"]).to_table(ToTable::insert("first"));
        topology.build().unwrap().run().map_err(|error| error.to_string())
    };
    let width = |state: &str| catalog.table(state).unwrap().schema().key().len();
    run(1, "open", false, Value::Int(1)).unwrap();
    run(2, "open", true, Value::Int(2)).unwrap();
    assert_eq!((width("open"), rows(&catalog, "open").len()), (2, 2));
    let error = run(3, "open", true, Value::Null).unwrap_err();
    assert!(error.contains("NULL in a PARTITION BY column"), "{error}");

    run(4, "other", true, Value::Null).unwrap();
    assert_eq!((width("other"), rows(&catalog, "other").len()), (3, 1), "of two rows the first one");
}

/// A commit sends the rows whose rank is another, and no others.
#[test]
fn a_commit_sends_what_has_changed() {
    let catalog = volatile();
    let case = Case {
        emission: Emission::Commit,
        function: RankFunction::RowNumber,
        limit: Some(2),
        partitions_in_dram: GROUPS_IN_DRAM_MAX,
    };
    let powers = [5.0, 4.0, 4.0, 6.0, 1.0, 7.0];
    let topology = builder(&catalog, Boundary::Every(2));
    let source = GeneratorSource::new(reading_columns(), move |n| {
        powers.get(n as usize).map(|power| reading(1, n as i64, *power))
    });
    rank(&topology.source("readings", source), case);
    let changes = topology.to_stream("ranked", entresol_streams::Trigger::EachTuple);
    changes.select(&["power", "place"]).to_table(ToTable::insert("sent"));
    topology.build().unwrap().run().unwrap();
    let sent: Vec<(i64, f64)> = rows(&catalog, "sent")
        .iter()
        .map(|row| match (&row[0], &row[1]) {
            (Value::Double(power), Value::BigInt(place)) => (*place, *power),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(sent, [(1, 5.0), (2, 4.0), (1, 6.0), (2, 5.0), (1, 7.0), (2, 6.0)]);
}

#[test]
fn a_ranking_without_bounds_is_refused() {
    let catalog = volatile();
    let refused = |change: &dyn Fn(&mut Ranking)| {
        let topology = builder(&catalog, Boundary::Every(2));
        let source = GeneratorSource::new(reading_columns(), |_| None);
        let mut ranking = Ranking {
            function: RankFunction::RowNumber,
            partition: vec![0],
            order: vec![ascending(1)],
            limit: Some(1),
            changes: RankChanges::OfRanks,
            emission: RankEmission::Commit,
            rank_column: "place".to_owned(),
            state_table: "open".to_owned(),
            late: None,
            partitions_in_dram: 1,
        };
        change(&mut ranking);
        topology.source("readings", source).rank(ranking).to_table("ranked");
        topology.build().err().unwrap().to_string()
    };
    let window = WindowEdge {
        column: 1,
        is_end: false,
        kind: WindowKind::Tumbling { size: Duration::from_secs(1) },
        is_of_results: false,
    };
    let (lateness, future_limit) = (Duration::ZERO, Duration::MAX);
    for (change, expected) in [
        (&(|r: &mut Ranking| r.limit = None) as &dyn Fn(&mut Ranking), "its limit is from 1 to 10000"),
        (&|r| r.limit = Some(10_001), "its limit is from 1 to 10000"),
        (&|r| r.limit = Some(0), "the limit is 0"),
        (&|r| r.order.clear(), "it has no order"),
        (&|r| r.partition.push(9), "there is no column 9"),
        (&|r| r.function = RankFunction::Rank, "only row numbers are sent before a window closes"),
        (
            &|r| r.emission = RankEmission::EventTime { time: 2, lateness, future_limit },
            "not ordered by the event time",
        ),
        (
            &|r| r.emission = RankEmission::WindowClose { time: 1, edge: window, lateness, future_limit },
            "the edge of the window is not in the partition",
        ),
    ] {
        let error = refused(change);
        assert!(error.contains(expected), "{error}");
    }
}
