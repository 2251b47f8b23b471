//! ASOF joins of two streams: the output is that of a join of all rows that were not late, whatever the transactions,
//! stops, crashes and aborts.

use crate::support::*;
use entresol_memory::crash::{CrashOptions, check};
use entresol_memory::{Durability, Pool};
use entresol_streams::{
    Aggregate, AsofJoin, AsofMatch, Boundary, ChannelSource, ColumnExpression, Element, EventTime,
    GeneratorSource, JoinSide, Merge, OnError, PacedSource, Punctuation, Report, Stream, TimeWindow,
    Topology, TopologyBuilder, Tuple, WATERMARKS_TABLE,
};
use entresol_tables::{Catalog, Column, DataType, Value};
use entresol_transactions::StateContext;
use std::sync::Arc;
use std::time::Duration;

const LATENESS_S: i64 = 5;
const ROWS: u64 = 700;
/// Tuples a second of sources that are not slowed down.
const FAST: u64 = 1_000_000_000;

/// Orders of times, with the greatest difference of partners in seconds.
const KINDS: [(AsofMatch, Option<i64>); 6] = [
    (AsofMatch::AtOrBefore, None),
    (AsofMatch::AtOrBefore, Some(9)),
    (AsofMatch::Before, None),
    (AsofMatch::Before, Some(4)),
    (AsofMatch::AtOrBehind, Some(12)),
    (AsofMatch::Behind, Some(7)),
];

fn columns() -> Vec<Column> {
    vec![
        Column::new("k", DataType::Int),
        Column::new("at", DataType::Timestamp),
        Column::new("v", DataType::Int).not_null(),
    ]
}

fn row(k: Option<i32>, second: Option<i64>, v: i32) -> Tuple {
    let at = second.map_or(Value::Null, |second| Value::Timestamp(second * SECOND_US));
    vec![k.map_or(Value::Null, Value::Int), at, Value::Int(v)]
}

/// The n-th row of a side, known by its value: keys and times may be NULL, times are out of order, some are twice.
fn random_row(seed: u64, side: u64, n: u64) -> Tuple {
    let mut random = Random(seed ^ (n * 2 + side).wrapping_mul(0xA076_1D64_78BD_642F));
    let k = (random.below(20) > 0).then(|| random.below(6) as i32);
    let second = 1_000_000 + (n + side * 3) as i64 - random.below(9) as i64;
    row(k, (random.below(30) > 0).then_some(second), n as i32)
}

fn side() -> JoinSide {
    JoinSide {
        keys: vec![Box::new(ColumnExpression(0))],
        time: 1,
        edge: None,
        lateness: Duration::from_secs(LATENESS_S as u64),
        future_limit: Duration::from_secs(24 * 60 * 60),
        last: None,
    }
}

fn join((nearest, within): (AsofMatch, Option<i64>)) -> AsofJoin {
    let within = within.map(|within| Duration::from_secs(within as u64));
    AsofJoin { nearest, within, state_table: "kept".to_owned(), left: side(), right: side() }
}

fn to_table(joined: &Stream) {
    let names = ["k", "at", "v", "right_k", "right_at", "right_v"];
    let columns = joined.columns().iter().zip(names);
    let columns: Vec<Column> =
        columns.map(|(column, name)| Column { name: name.to_owned(), ..column.clone() }).collect();
    joined.map(columns, <[Value]>::to_vec).to_table("joined");
}

/// Rows of a side that are not late, and the number of those that are.
fn in_time(rows: &[Tuple]) -> (Vec<Tuple>, u64) {
    let (mut watermark, mut late) = (i64::MIN, 0);
    let mut kept = Vec::new();
    for row in rows {
        if let Value::Timestamp(at) = row[1] {
            if at < watermark {
                late += 1;
                continue;
            }
            watermark = watermark.max(at - LATENESS_S * SECOND_US);
        }
        kept.push(row.clone());
    }
    (kept, late)
}

/// Joins all rows of two sides that are not late; returns the number of those that are, too.
fn rejoin(left: &[Tuple], right: &[Tuple], kind: (AsofMatch, Option<i64>)) -> (Vec<String>, u64) {
    let ((left, left_late), (right, right_late)) = (in_time(left), in_time(right));
    let within = kind.1.map_or(i64::MAX, |seconds| seconds * SECOND_US);
    // Left minus right.
    let matches = |difference: i64| match kind.0 {
        AsofMatch::AtOrBefore => (0..=within).contains(&difference),
        AsofMatch::Before => (1..=within).contains(&difference),
        AsofMatch::AtOrBehind => (0..=within).contains(&-difference),
        AsofMatch::Behind => (1..=within).contains(&-difference),
    };
    let mut joined = Vec::new();
    for row in left {
        // Time and place of the nearest row.
        let mut nearest: Option<(i64, usize)> = None;
        for (place, other) in right.iter().enumerate() {
            let (Value::Timestamp(at), Value::Timestamp(other_at)) = (&row[1], &other[1]) else { continue };
            if row[0].is_null() || row[0] != other[0] || !matches(at - other_at) {
                continue;
            }
            let is_nearer = nearest.is_none_or(|(time, _)| match kind.0 {
                AsofMatch::AtOrBefore | AsofMatch::Before => *other_at >= time,
                AsofMatch::AtOrBehind | AsofMatch::Behind => *other_at < time,
            });
            if is_nearer {
                nearest = Some((*other_at, place));
            }
        }
        let partner = nearest.map_or_else(|| vec![Value::Null; 3], |(_, place)| right[place].clone());
        joined.push(format!("{:?}", [row, partner].concat()));
    }
    joined.sort_unstable();
    (joined, left_late + right_late)
}

fn texts(catalog: &Catalog) -> Vec<String> {
    let mut texts: Vec<String> =
        rows(catalog, "joined").iter().map(|row| format!("{:?}", &row[..6])).collect();
    texts.sort_unstable();
    texts
}

/// Checks the results of a join.
fn compare(catalog: &Catalog, expected: &[String], what: &str) {
    let found = texts(catalog);
    let differs = found.iter().zip(expected).find(|(found, expected)| found != expected);
    assert_eq!((differs, found.len()), (None, expected.len()), "{what}");
}

/// Rows of the right side that the state table has; `None` if it has rows of the left one.
fn kept_of_right(catalog: &Catalog) -> Option<usize> {
    let kept = rows(catalog, "kept");
    kept.iter().all(|row| row[0] == Value::Int(1)).then_some(kept.len())
}

fn topology(
    catalog: &Arc<Catalog>,
    seed: u64,
    kind: (AsofMatch, Option<i64>),
    boundary: Boundary,
    (count, tuples_per_s): (u64, u64),
) -> TopologyBuilder {
    let topology = Topology::builder("t", catalog).boundary(boundary);
    let source = |side: u64| {
        let count = count - side * (count / 7);
        let generator =
            GeneratorSource::new(columns(), move |n| (n < count).then(|| random_row(seed, side, n)));
        let name = if side == 0 { "left" } else { "right" };
        topology.source(name, PacedSource::new(Box::new(generator), tuples_per_s))
    };
    to_table(&source(0).asof_join(&source(1), join(kind)));
    topology
}

fn expected(seed: u64, kind: (AsofMatch, Option<i64>), count: u64) -> (Vec<String>, u64) {
    let of = |side: u64| {
        let count = count - side * (count / 7);
        (0..count).map(|n| random_row(seed, side, n)).collect::<Vec<_>>()
    };
    rejoin(&of(0), &of(1), kind)
}

#[test]
fn an_asof_join_of_streams_equals_one_of_all_rows() {
    let seed = seed();
    for kind in KINDS {
        let (expected, late) = expected(seed, kind, ROWS);
        let alone = expected.iter().filter(|row| row.contains("Null, Null, Null")).count();
        assert!(expected.len() > 600 && late > 20 && (50..500).contains(&alone), "{alone} of {kind:?}");
        for boundary in [Boundary::EachTuple, Boundary::Every(7), Boundary::Every(100_000)] {
            let catalog = volatile();
            let topology = topology(&catalog, seed, kind, boundary, (ROWS, FAST));
            let report = topology.durability(Durability::None).build().unwrap().run().unwrap();
            compare(&catalog, &expected, &format!("{kind:?} {boundary:?}"));
            assert_eq!(report.late, late, "{kind:?} {boundary:?}");
            // Of six keys the last row, if it is not too far away.
            let last = if kind.1.is_none() { 6 } else { 0 };
            assert_eq!(kept_of_right(&catalog), Some(last), "{kind:?} {boundary:?}");
        }
    }
}

#[test]
fn an_asof_join_goes_on_after_stops_and_crashes() {
    let seed = seed();
    let mut random = Random(seed);
    for (kind, boundary) in [
        (KINDS[0], Boundary::Every(37)),
        (KINDS[3], Boundary::EachTuple),
        (KINDS[4], Boundary::Every(11)),
        (KINDS[5], Boundary::EachTuple),
    ] {
        let directory = tempfile::TempDir::new().unwrap();
        let mut kept = 0;
        for _ in 0..5 {
            let catalog = journal(directory.path());
            let topology = topology(&catalog, seed, kind, boundary, (ROWS, 10_000));
            let running = topology.durability(Durability::None).build().unwrap().start().unwrap();
            let until = 1 + random.below(ROWS / 3);
            while running.progress().snapshot().tuples < until && !running.is_finished() {
                std::thread::yield_now();
            }
            running.stop();
            running.join().unwrap();
            kept += rows(&catalog, "kept").len();
            catalog.context().pool().sync().unwrap();
        }
        assert!(kept > 0, "no row was kept over a stop");
        let catalog = journal(directory.path());
        let run = || topology(&catalog, seed, kind, boundary, (ROWS, FAST)).build().unwrap().run().unwrap();
        run();
        compare(&catalog, &expected(seed, kind, ROWS).0, &format!("{kind:?}"));
        let again = run();
        assert_eq!((again.tuples, again.transactions), (0, 0), "nothing is left to do");
    }
}

/// Runs a join of the left and right rows of one source, which says the side in its last column.
fn run_marked(
    catalog: &Arc<Catalog>,
    kind: (AsofMatch, Option<i64>),
    elements: impl IntoIterator<Item = Element>,
) -> Report {
    let (sender, receiver) = crossbeam_channel::unbounded();
    elements.into_iter().for_each(|element| sender.send(element).unwrap());
    drop(sender);
    let topology = Topology::builder("t", catalog).boundary(Boundary::Punctuated).on_error(OnError::Abort);
    let mut with_side = columns();
    with_side.push(Column::new("side", DataType::Int).not_null());
    let rows = topology.source("rows", ChannelSource::new(with_side, receiver));
    let side = |side: i32| rows.filter(move |tuple| tuple[3] == Value::Int(side)).select(&["k", "at", "v"]);
    // A tuple that no operator can process behind the join.
    let joined = side(0).asof_join(&side(1), join(kind));
    let checked = joined.try_map(joined.columns().to_vec(), |tuple| {
        let is_bad = tuple[2] == Value::Int(-1);
        if is_bad { Err("a bad value".to_owned()) } else { Ok(Some(tuple.to_vec())) }
    });
    to_table(&checked);
    topology.build().unwrap().run().unwrap()
}

#[test]
fn rows_of_aborted_transactions_leave_nothing() {
    let seed = seed();
    for kind in KINDS {
        let mut random = Random(seed);
        let (mut elements, mut committed) = (Vec::new(), [Vec::new(), Vec::new()]);
        let mut dropped = 0;
        for transaction in 0..400_u64 {
            let mut rows: Vec<(usize, Tuple)> = Vec::new();
            for _ in 0..random.below(12) {
                let side = random.below(2);
                rows.push((side as usize, random_row(seed, side, transaction * 6 + random.below(6))));
            }
            let is_dropped = random.below(4) == 0;
            let is_bad = !is_dropped && random.below(6) == 0;
            let with_side =
                |(side, row): &(usize, Tuple)| [row.clone(), vec![Value::Int(*side as i32)]].concat();
            let mut tuples: Vec<Tuple> = rows.iter().map(with_side).collect();
            if is_bad {
                // A left row without a key is sent at once.
                let now = 1_000_000 + transaction as i64 * 6 + 100;
                tuples.push([row(None, Some(now), -1), vec![Value::Int(0)]].concat());
                tuples.push([row(Some(2), Some(now), 0), vec![Value::Int(1)]].concat());
            }
            elements.extend(tuples.chunks(5).map(|part| Element::Tuples(part.to_vec())));
            let mark = if is_dropped { Punctuation::Abort } else { Punctuation::Commit };
            elements.push(Element::Punctuation(mark));
            if is_dropped || is_bad {
                dropped += 1;
            } else {
                rows.into_iter().for_each(|(side, row)| committed[side].push(row));
            }
        }
        let catalog = volatile();
        let report = run_marked(&catalog, kind, elements);
        let (expected, late) = rejoin(&committed[0], &committed[1], kind);
        assert!(expected.len() > 500 && dropped > 20, "{} rows, {dropped} dropped", expected.len());
        compare(&catalog, &expected, &format!("{kind:?}"));
        assert_eq!(report.late, late);
    }
}

/// Behind an end, the rows of a later run have the last row of each key, and those that were decided without them are late.
#[test]
fn a_run_behind_the_end_of_another_goes_on_with_its_rows() {
    let elements = |rows: Vec<(i32, Tuple)>| {
        let rows = rows.into_iter().map(|(side, row)| [row, vec![Value::Int(side)]].concat());
        [Element::Tuples(rows.collect()), Element::Punctuation(Punctuation::Commit)]
    };
    let of = |k: i32, second: i64, v: i32| row(Some(k), Some(second), v);
    let catalog = volatile();
    let first = vec![(1, of(1, 100, 1)), (1, of(1, 104, 2)), (0, of(1, 110, 1)), (0, of(2, 90, 2))];
    assert_eq!(run_marked(&catalog, KINDS[0], elements(first)).late, 1, "a left row behind 105");
    assert_eq!(kept_of_right(&catalog), Some(1), "the last of key 1");
    // The left watermark is 105, that of the right one 110.
    let second = vec![(1, of(1, 109, 3)), (1, of(1, 111, 4)), (0, of(1, 110, 5)), (0, of(1, 112, 6))];
    assert_eq!(run_marked(&catalog, KINDS[0], elements(second)).late, 1, "the right row at 109");
    let partners: Vec<(Value, Value)> =
        rows(&catalog, "joined").iter().map(|row| (row[2].clone(), row[5].clone())).collect();
    let pair = |left: i32, right: i32| (Value::Int(left), Value::Int(right));
    assert_eq!(partners, [pair(1, 2), pair(5, 2), pair(6, 4)]);
}

#[test]
fn rows_leave_when_they_are_no_partner_any_more() {
    let catalog = volatile();
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..2).map(|_| crossbeam_channel::unbounded()).unzip();
    let topology = Topology::builder("t", &catalog).boundary(Boundary::EachTuple);
    let mut receivers = receivers.into_iter();
    let mut source =
        |name: &str| topology.source(name, ChannelSource::new(columns(), receivers.next().unwrap()));
    let (left, right) = (source("left"), source("right"));
    to_table(&left.asof_join(&right, join(KINDS[0])));
    let running = topology.build().unwrap().start().unwrap();
    let mut sent = 0;
    let mut send = |side: usize, second: i64| {
        senders[side].send(Element::Tuples(vec![row(Some(1), Some(second), side as i32)])).unwrap();
        sent += 1;
        while running.progress().snapshot().tuples < sent {
            std::thread::yield_now();
        }
        (rows(&catalog, "kept").len(), rows(&catalog, "joined").len())
    };
    assert_eq!(send(1, 100), (1, 0));
    assert_eq!(send(0, 103), (2, 0), "the right watermark is 95");
    assert_eq!(send(1, 102), (3, 0), "it is 97");
    assert_eq!(send(1, 108), (4, 0), "it is 103: a row of that time may come");
    assert_eq!(send(1, 109), (4, 1), "the left row is sent with that at 102; one from 98 may come");
    assert_eq!(send(0, 107), (4, 1), "left rows from 102 may come: that at 100 is no partner any more");
    assert_eq!(send(0, 113), (5, 1), "left rows from 108 may come, but one at 107 waits");
    assert_eq!(send(1, 113), (5, 2), "that is sent; the right row at 102 leaves when none at 108 may come");
    senders[1]
        .send(Element::Punctuation(Punctuation::Watermark(EventTime::from_micros(114 * SECOND_US))))
        .unwrap();
    senders[1].send(Element::Punctuation(Punctuation::Commit)).unwrap();
    while rows(&catalog, "joined").len() < 3 {
        std::thread::yield_now();
    }
    drop(senders);
    running.join().unwrap();
    assert_eq!(kept_of_right(&catalog), Some(1), "the last row");
    let watermarks = rows(&catalog, WATERMARKS_TABLE);
    assert_eq!(watermarks.len(), 2, "one for each side: {watermarks:?}");
}

/// The watermark behind an ASOF join closes windows of its results while it runs, and none too early.
#[test]
fn windows_of_the_results_are_closed_by_the_rows_that_wait() {
    let seed = seed();
    for kind in [KINDS[0], KINDS[4]] {
        let catalog = volatile();
        let topology = Topology::builder("t", &catalog).boundary(Boundary::Every(10)).merge(Merge::EventTime);
        let source = |side: u64| {
            let generator = GeneratorSource::new(columns(), move |n| {
                // All in order, with a key and a time.
                (n < 300).then(|| row(Some((n % 3) as i32), Some((n * 2 + side) as i64), n as i32))
            });
            let name = if side == 0 { "left" } else { "right" };
            topology.source(name, generator).event_time("at")
        };
        let joined = source(0).asof_join(&source(1), join(kind));
        let names = ["k", "at", "v", "right_k", "right_at", "right_v"];
        let renamed = joined.columns().iter().zip(names);
        let renamed: Vec<Column> =
            renamed.map(|(column, name)| Column { name: name.to_owned(), ..column.clone() }).collect();
        let results = joined.map(renamed, <[Value]>::to_vec);
        results
            .window(TimeWindow::tumbling("at", Duration::from_secs(20)).lateness(Duration::MAX))
            .group_by(&[])
            .aggregate(&[Aggregate::count(), Aggregate::count_of("right_v")], "open")
            .to_table("windows");
        let report = topology.build().unwrap().run().unwrap();
        let windows = rows(&catalog, "windows");
        assert_eq!((windows.len(), report.late), (30, 0), "{seed} {kind:?}");
        assert!(windows.iter().all(|window| window[2] == Value::BigInt(10)), "{windows:?}");
    }
}

#[test]
fn each_row_has_one_partner_whatever_a_power_failure_leaves() {
    const COUNT: u64 = 14;
    let options = CrashOptions { crash_recovery_every: 0, random_states: 1, ..CrashOptions::default() };
    println!("seed {}", options.seed);
    for kind in [KINDS[0], KINDS[4]] {
        let run = move |pool: &Arc<Pool>| -> Result<Arc<Catalog>, String> {
            let context =
                StateContext::open_or_create(Arc::clone(pool)).map_err(|error| error.to_string())?;
            let catalog = Catalog::open_or_create(context).map_err(|error| error.to_string())?;
            let topology = topology(&catalog, 5, kind, Boundary::Every(5), (COUNT, FAST));
            topology.build().and_then(|topology| topology.run()).map_err(|error| error.to_string())?;
            Ok(catalog)
        };
        let history = move |pool: &Arc<Pool>| {
            run(pool).unwrap();
            Ok(())
        };
        let verify = move |pool: &Arc<Pool>| {
            let catalog = run(pool)?;
            let (expected, found) = (expected(5, kind, COUNT).0, texts(&catalog));
            if found != expected {
                return Err(format!("{kind:?}: {found:?} in place of {expected:?}"));
            }
            if kept_of_right(&catalog).is_none() {
                return Err("left rows wait behind the end".to_owned());
            }
            Ok(())
        };
        let report = check(&options, history, verify).unwrap();
        println!("{report:?}");
        assert!(report.states > 100);
    }
}

#[test]
fn wrong_asof_joins_are_refused() {
    let catalog = volatile();
    type Change = fn(&mut AsofJoin);
    let cases: [(&str, Change); 5] = [
        ("column v is not a time: INT", |join| join.left.time = 2),
        ("there is no column 9", |join| join.right.time = 9),
        ("different numbers of keys", |join| join.left.keys.clear()),
        ("none is known to have no partner", |join| {
            (join.nearest, join.within) = (AsofMatch::Behind, None);
        }),
        ("partners within 0ns", |join| {
            (join.nearest, join.within) = (AsofMatch::Before, Some(Duration::ZERO));
        }),
    ];
    for (expected, change) in cases {
        let topology = Topology::builder("t", &catalog);
        let source = |name: &str| topology.source(name, GeneratorSource::new(columns(), |_| None));
        let mut wrong = join(KINDS[0]);
        change(&mut wrong);
        to_table(&source("left").asof_join(&source("right"), wrong));
        let error = topology.build().err().unwrap().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
