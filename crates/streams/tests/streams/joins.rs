//! Joins of two streams: the output is that of a join of all rows that were not late, whatever the transactions,
//! stops, crashes and aborts.

use crate::support::*;
use entresol_memory::{Durability, MemoryBudget, MemoryConsumer, Pool, PoolOptions};
use entresol_streams::{
    Boundary, ChannelSource, ColumnExpression, Element, Expression, GeneratorSource, JoinSide, Merge,
    OnError, PacedSource, Punctuation, Report, Stream, StreamJoin, TimeWindow, Topology, TopologyBuilder,
    Tuple, WATERMARKS_TABLE, WindowEdge, WindowKind,
};
use entresol_tables::{Catalog, Column, DataType, Value};
use entresol_transactions::StateContext;
use std::sync::Arc;
use std::time::Duration;

const LATENESS_S: i64 = 5;
/// Right minus left, in seconds.
const BOUNDS_S: (i64, i64) = (-4, 9);
const ROWS: u64 = 700;
/// Tuples a second of sources that are not slowed down.
const FAST: u64 = 1_000_000_000;

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

/// The n-th row of a side: keys and times may be NULL, times are out of order, some are twice.
fn random_row(seed: u64, side: u64, n: u64) -> Tuple {
    let mut random = Random(seed ^ (n / 3 * 2 + side).wrapping_mul(0xA076_1D64_78BD_642F) ^ (n % 3 / 2));
    let k = (random.below(20) > 0).then(|| random.below(6) as i32);
    let second = 1_000_000 + (n + side * 3) as i64 - random.below(9) as i64;
    row(k, (random.below(30) > 0).then_some(second), random.below(50) as i32)
}

fn side(edge: Option<WindowEdge>) -> JoinSide {
    JoinSide {
        keys: vec![Box::new(ColumnExpression(0))],
        time: 1,
        edge,
        lateness: Duration::from_secs(LATENESS_S as u64),
        future_limit: Duration::from_secs(24 * 60 * 60),
        last: None,
    }
}

/// Condition that a left value is at most the right one.
fn at_most() -> Box<dyn Expression> {
    Box::new(|rows: &arrow_array::RecordBatch| -> Result<arrow_array::ArrayRef, String> {
        let values = |at: usize| rows.column(at).as_any().downcast_ref::<arrow_array::Int32Array>().unwrap();
        let holds = values(2).iter().zip(values(5).iter()).map(|(left, right)| Some(left? <= right?));
        Ok(Arc::new(holds.collect::<arrow_array::BooleanArray>()))
    })
}

/// Sides whose rows without partner are sent too.
const INNER: [bool; 2] = [false, false];
const LEFT_JOIN: [bool; 2] = [true, false];
const FULL: [bool; 2] = [true, true];

fn join(preserved: [bool; 2], has_condition: bool) -> StreamJoin {
    StreamJoin {
        preserved,
        state_table: "kept".to_owned(),
        left: side(None),
        right: side(None),
        bounds_us: (Some(BOUNDS_S.0 * SECOND_US), Some(BOUNDS_S.1 * SECOND_US)),
        condition: has_condition.then(at_most),
    }
}

fn to_table(joined: &Stream) {
    let names = ["k", "at", "v", "right_k", "right_at", "right_v"];
    let columns: Vec<Column> = joined
        .columns()
        .iter()
        .zip(names)
        .map(|(column, name)| Column { name: name.to_owned(), ..column.clone() })
        .collect();
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

/// Joins all rows of two sides that are not late.
fn rejoin(left: &[Tuple], right: &[Tuple], kind: [bool; 2], has_condition: bool) -> (Vec<String>, u64) {
    let ((left, left_late), (right, right_late)) = (in_time(left), in_time(right));
    let is_near = |row: &Tuple, difference: i64| {
        let bounds = BOUNDS_S.0 * SECOND_US..=BOUNDS_S.1 * SECOND_US;
        !row.is_empty() && bounds.contains(&difference)
    };
    (rejoin_near(&left, &right, kind, has_condition, is_near), left_late + right_late)
}

/// Joins all rows of two sides; a left one says which differences of time its partners have.
fn rejoin_near(
    left: &[Tuple],
    right: &[Tuple],
    kind: [bool; 2],
    has_condition: bool,
    is_near: impl Fn(&Tuple, i64) -> bool,
) -> Vec<String> {
    let (mut joined, mut has_partner) = (Vec::new(), vec![false; right.len()]);
    for row in left {
        let before = joined.len();
        for (partner, has_partner) in right.iter().zip(&mut has_partner) {
            let (Value::Timestamp(at), Value::Timestamp(other)) = (&row[1], &partner[1]) else { continue };
            let (Value::Int(value), Value::Int(other_value)) = (&row[2], &partner[2]) else { continue };
            let is_equal = row[0] == partner[0] && !row[0].is_null();
            if is_near(row, other - at) && is_equal && (!has_condition || value <= other_value) {
                joined.push(format!("{:?}", [row.clone(), partner.clone()].concat()));
                *has_partner = true;
            }
        }
        if joined.len() == before && kind[0] {
            joined.push(format!("{:?}", [row.clone(), vec![Value::Null; 3]].concat()));
        }
    }
    for (partner, _) in right.iter().zip(&has_partner).filter(|(_, has)| kind[1] && !**has) {
        joined.push(format!("{:?}", [vec![Value::Null; 3], partner.clone()].concat()));
    }
    joined.sort_unstable();
    joined
}

fn texts(catalog: &Catalog) -> Vec<String> {
    rows(catalog, "joined").iter().map(|row| format!("{:?}", &row[..6])).collect()
}

fn sorted(mut texts: Vec<String>) -> Vec<String> {
    texts.sort_unstable();
    texts
}

fn topology(
    catalog: &Arc<Catalog>,
    seed: u64,
    kind: [bool; 2],
    boundary: Boundary,
    tuples_per_s: u64,
) -> TopologyBuilder {
    let topology = Topology::builder("t", catalog).boundary(boundary).durability(Durability::None);
    let source = |side: u64| {
        let generator = GeneratorSource::new(columns(), move |n| {
            (n < ROWS - side * 100).then(|| random_row(seed, side, n))
        });
        let paced = PacedSource::new(Box::new(generator), tuples_per_s);
        topology.source(if side == 0 { "left" } else { "right" }, paced)
    };
    to_table(&source(0).join(&source(1), join(kind, true)));
    topology
}

fn expected(seed: u64, kind: [bool; 2]) -> (Vec<String>, u64) {
    let of = |side: u64| (0..ROWS - side * 100).map(|n| random_row(seed, side, n)).collect::<Vec<_>>();
    rejoin(&of(0), &of(1), kind, true)
}

#[test]
fn a_join_of_streams_equals_one_of_all_rows() {
    let seed = seed();
    for kind in [INNER, LEFT_JOIN, FULL] {
        let (expected, late) = expected(seed, kind);
        assert!(expected.len() > 300 && late > 20, "{} rows, {late} late", expected.len());
        for boundary in [Boundary::EachTuple, Boundary::Every(7), Boundary::Every(100_000)] {
            let catalog = volatile();
            let report = topology(&catalog, seed, kind, boundary, FAST).build().unwrap().run().unwrap();
            assert_eq!(sorted(texts(&catalog)), expected, "{kind:?} {boundary:?}");
            assert_eq!(report.late, late, "{kind:?} {boundary:?}");
            assert!(rows(&catalog, "kept").is_empty(), "nothing is kept at the end");
        }
    }
}

#[test]
fn a_join_goes_on_after_stops_and_crashes() {
    let seed = seed();
    let mut random = Random(seed);
    for (kind, boundary) in
        [(INNER, Boundary::Every(37)), (LEFT_JOIN, Boundary::EachTuple), (FULL, Boundary::Every(5))]
    {
        let directory = tempfile::TempDir::new().unwrap();
        let mut kept = 0;
        for _ in 0..5 {
            let catalog = journal(directory.path());
            let running = topology(&catalog, seed, kind, boundary, 10_000).build().unwrap().start().unwrap();
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
        topology(&catalog, seed, kind, boundary, FAST).build().unwrap().run().unwrap();
        assert_eq!(sorted(texts(&catalog)), expected(seed, kind).0, "{kind:?}");
        assert!(rows(&catalog, "kept").is_empty());
        let again = topology(&catalog, seed, kind, boundary, FAST).build().unwrap().run().unwrap();
        assert_eq!((again.tuples, again.transactions), (0, 0), "nothing is left to do");
    }
}

/// Runs a join of the left and right rows of one source, which says the side in its last column.
fn run_marked(catalog: &Arc<Catalog>, join: StreamJoin, elements: Vec<Element>) -> Report {
    let (sender, receiver) = crossbeam_channel::unbounded();
    elements.into_iter().for_each(|element| sender.send(element).unwrap());
    drop(sender);
    let topology = Topology::builder("t", catalog).boundary(Boundary::Punctuated).on_error(OnError::Abort);
    let mut with_side = columns();
    with_side.push(Column::new("side", DataType::Int).not_null());
    let rows = topology.source("rows", ChannelSource::new(with_side, receiver));
    let side = |side: i32| rows.filter(move |tuple| tuple[3] == Value::Int(side)).select(&["k", "at", "v"]);
    // A tuple that no operator can process behind the join.
    let joined = side(0).join(&side(1), join);
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
    for kind in [INNER, LEFT_JOIN, FULL] {
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
                // Both are partners.
                let now = 1_000_000 + transaction as i64 * 6 + 100;
                tuples.push([row(Some(77), Some(now), -1), vec![Value::Int(0)]].concat());
                tuples.push([row(Some(77), Some(now), 0), vec![Value::Int(1)]].concat());
            }
            for part in tuples.chunks(5) {
                elements.push(Element::Tuples(part.to_vec()));
            }
            elements.push(Element::Punctuation(if is_dropped {
                Punctuation::Abort
            } else {
                Punctuation::Commit
            }));
            if is_dropped || is_bad {
                dropped += 1;
            } else {
                rows.into_iter().for_each(|(side, row)| committed[side].push(row));
            }
        }
        let catalog = volatile();
        let report = run_marked(&catalog, join(kind, true), elements);
        let (expected, late) = rejoin(&committed[0], &committed[1], kind, true);
        assert!(expected.len() > 50 && dropped > 20, "{} rows, {dropped} dropped", expected.len());
        assert_eq!(sorted(texts(&catalog)), expected, "{kind:?}");
        assert_eq!(report.late, late);
        assert!(rows(&catalog, "kept").is_empty());
    }
}

/// Sends batches of two sources in turn.
fn run_in_turn(
    catalog: &Arc<Catalog>,
    kind: [bool; 2],
    boundary: Boundary,
    batches: [Vec<Vec<Tuple>>; 2],
) -> Report {
    let topology = Topology::builder("t", catalog).boundary(boundary);
    let mut streams = Vec::new();
    for (name, batches) in ["left", "right"].into_iter().zip(batches) {
        let (sender, receiver) = crossbeam_channel::unbounded();
        batches.into_iter().for_each(|batch| sender.send(Element::Tuples(batch)).unwrap());
        streams.push(topology.source(name, ChannelSource::new(columns(), receiver)));
    }
    to_table(&streams[0].join(&streams[1], join(kind, false)));
    topology.build().unwrap().run().unwrap()
}

#[test]
fn null_keys_match_nothing_and_duplicates_all() {
    let left = vec![
        vec![row(Some(1), Some(100), 1), row(Some(1), Some(100), 1), row(None, Some(100), 2)],
        vec![row(Some(2), Some(101), 3), row(Some(1), None, 4), row(Some(1), Some(200), 5)],
        // Its side's watermark is 195.
        vec![row(Some(1), Some(194), 6), row(Some(1), Some(195), 7)],
    ];
    let right = vec![
        vec![row(Some(1), Some(96), 1), row(Some(1), Some(95), 2), row(None, Some(100), 3)],
        vec![row(Some(1), Some(109), 4), row(Some(1), Some(110), 5), row(Some(1), Some(110), 6)],
        vec![row(Some(1), Some(204), 7), row(Some(1), Some(204), 7)],
    ];
    for kind in [INNER, LEFT_JOIN, FULL] {
        let (expected, late) = rejoin(&left.concat(), &right.concat(), kind, false);
        let mut in_order: Option<Vec<String>> = None;
        for boundary in [Boundary::EachTuple, Boundary::Every(2), Boundary::Every(1000)] {
            let catalog = volatile();
            let report = run_in_turn(&catalog, kind, boundary, [left.clone(), right.clone()]);
            let found = texts(&catalog);
            assert_eq!(sorted(found.clone()), expected);
            assert_eq!((report.late, late), (1, 1));
            // The order too is the same.
            assert_eq!(*in_order.get_or_insert(found.clone()), found, "{kind:?} {boundary:?}");
        }
        let pairs = expected.iter().filter(|row| !row.contains("Null, Null, Null")).count();
        // Two equal rows with two partners each, and two rows with the two equal ones.
        assert_eq!(pairs, 2 * 2 + 2 * 2, "{expected:?}");
        assert_eq!(
            expected.len() - pairs,
            if kind[1] {
                3 + 4
            } else if kind[0] {
                3
            } else {
                0
            },
            "{expected:?}"
        );
    }
}

#[test]
fn windows_are_joined_by_their_edges() {
    let seed = seed();
    let (slide, size) = (4, 10);
    let kind = WindowKind::Hopping { slide: Duration::from_secs(slide), size: Duration::from_secs(size) };
    for is_end in [false, true] {
        let mut found: Vec<Vec<String>> = Vec::new();
        let mut late = Vec::new();
        for boundary in [Boundary::EachTuple, Boundary::Every(50)] {
            let catalog = volatile();
            let topology = Topology::builder("t", &catalog).boundary(boundary);
            let source = |number: u64| {
                let source =
                    GeneratorSource::new(columns(), move |n| (n < 200).then(|| random_row(seed, number, n)));
                let window = TimeWindow::of_kind("at", kind);
                topology.source(if number == 0 { "left" } else { "right" }, source).assign_windows(&window)
            };
            let edge = WindowEdge { column: if is_end { 4 } else { 3 }, is_end, kind, is_of_results: false };
            let join = StreamJoin {
                left: side(Some(edge)),
                right: side(Some(edge)),
                bounds_us: (Some(0), Some(0)),
                ..join(LEFT_JOIN, false)
            };
            let joined = source(0).join(&source(1), join);
            let names = joined.columns().iter().enumerate();
            let columns = names.map(|(at, column)| Column { name: format!("c{at}"), ..column.clone() });
            joined.map(columns.collect(), <[Value]>::to_vec).to_table("joined");
            late.push(topology.build().unwrap().run().unwrap().late);
            found.push(sorted(
                rows(&catalog, "joined").iter().map(|row| format!("{:?}", &row[..10])).collect(),
            ));
        }
        assert_eq!(found[0], found[1]);
        assert_eq!(late[0], late[1]);
        let of = |side: u64| (0..200).map(|n| random_row(seed, side, n)).collect::<Vec<_>>();
        assert_eq!(
            found[0],
            rejoin_windows(&of(0), &of(1), slide as i64, size as i64),
            "by the end: {is_end}"
        );
    }
}

/// Copies of rows for their windows, without late ones.
fn in_windows(rows: &[Tuple], slide: i64, size: i64) -> Vec<Tuple> {
    let mut watermark = i64::MIN;
    let mut copies = Vec::new();
    for row in rows {
        let Value::Timestamp(at) = row[1] else {
            copies.push([row.clone(), vec![Value::Null; 2]].concat());
            continue;
        };
        let seconds = at / SECOND_US;
        let first = ((seconds - size).div_euclid(slide) + 1) * slide;
        for start in (first..=seconds).step_by(slide as usize) {
            let (start, end) = (start * SECOND_US, (start + size) * SECOND_US);
            if end > watermark {
                copies.push([row.clone(), vec![Value::Timestamp(start), Value::Timestamp(end)]].concat());
            }
        }
        watermark = watermark.max(at - LATENESS_S * SECOND_US);
    }
    copies
}

fn rejoin_windows(left: &[Tuple], right: &[Tuple], slide: i64, size: i64) -> Vec<String> {
    let right = in_windows(right, slide, size);
    let mut joined = Vec::new();
    for row in in_windows(left, slide, size) {
        let is_partner = |other: &&Tuple| {
            other[0] == row[0] && other[3] == row[3] && !row[0].is_null() && !row[3].is_null()
        };
        let before = joined.len();
        let pairs = right.iter().filter(is_partner).map(|partner| [row.clone(), partner.clone()].concat());
        joined.extend(pairs.map(|pair| format!("{pair:?}")));
        if joined.len() == before {
            joined.push(format!("{:?}", [row, vec![Value::Null; 5]].concat()));
        }
    }
    sorted(joined)
}

#[test]
fn rows_leave_when_no_partner_can_come() {
    let catalog = volatile();
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..2).map(|_| crossbeam_channel::unbounded()).unzip();
    let topology = Topology::builder("t", &catalog).boundary(Boundary::EachTuple);
    let mut receivers = receivers.into_iter();
    let mut source =
        |name: &str| topology.source(name, ChannelSource::new(columns(), receivers.next().unwrap()));
    let (left, right) = (source("left"), source("right"));
    to_table(&left.join(&right, join(LEFT_JOIN, false)));
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
    assert_eq!(send(0, 100), (1, 0));
    // The right watermark is 109: a partner may still come.
    assert_eq!(send(1, 114), (2, 0));
    assert_eq!(send(1, 115), (2, 1), "one left row is sent alone, the right ones wait for theirs");
    // Left rows from 105 to 118 are partners of 114.
    assert_eq!(send(0, 123), (3, 1), "the left watermark is 118");
    assert_eq!(send(0, 124), (3, 1), "no left row can be a partner of 114");
    assert_eq!(send(0, 140), (3, 1), "nor of 115");
    senders[1]
        .send(Element::Punctuation(Punctuation::Watermark(entresol_streams::EventTime::from_micros(
            134 * SECOND_US,
        ))))
        .unwrap();
    senders[1].send(Element::Punctuation(Punctuation::Commit)).unwrap();
    while rows(&catalog, "kept").len() > 1 {
        std::thread::yield_now();
    }
    assert_eq!(rows(&catalog, "joined").len(), 3);
    drop(senders);
    running.join().unwrap();
    assert_eq!(rows(&catalog, "joined").len(), 4);
    let watermarks = rows(&catalog, WATERMARKS_TABLE);
    let of = |side: &str| {
        watermarks.iter().find(|row| row[1] == Value::from(format!("kept {side}").as_str())).unwrap()[2]
            .clone()
    };
    assert_eq!(of("left"), Value::Timestamp(135 * SECOND_US));
    // A right row up to 149 might have been a partner of the left one at 140, which is gone.
    assert_eq!(of("right"), Value::Timestamp(149 * SECOND_US + 1));
}

#[test]
fn rows_that_do_not_fit_the_memory_budget_are_an_error() {
    let budget = MemoryBudget::tiny(64 << 20);
    let options = PoolOptions { memory: Some(Arc::clone(&budget)), ..PoolOptions::default() };
    let pool = Pool::volatile(&options).unwrap();
    drop(pool.reserve(12 << 20).unwrap());
    let catalog = Catalog::open_or_create(StateContext::open_or_create(pool).unwrap()).unwrap();
    let usage = || budget.usage().consumers[MemoryConsumer::StreamState as usize];
    let other = budget.try_reserve(MemoryConsumer::Queries, budget.free_bytes() - (256 << 10)).unwrap();
    let run = |name: &str, second: fn(u64) -> i64| {
        let topology =
            Topology::builder(name, &catalog).boundary(Boundary::Every(50)).merge(Merge::EventTime);
        let source = |number: u64| {
            let tuple = move |n: u64| (n < 5000).then(|| row(Some(number as i32), Some(second(n)), 0));
            let name = if number == 0 { "left" } else { "right" };
            topology.source(name, GeneratorSource::new(columns(), tuple)).event_time("at")
        };
        let join = StreamJoin { state_table: format!("kept_{name}"), ..join(INNER, false) };
        to_table(&source(0).join(&source(1), join));
        topology.build().unwrap().run()
    };
    run("moves", |n| n as i64).unwrap();
    assert!(usage().peak_bytes >= 64 << 10, "{}", usage().peak_bytes);
    assert_eq!(usage().used_bytes, 0, "the operator is gone");
    let error = run("stands", |_| 1_000).unwrap_err().to_string();
    assert!(error.contains("stream state need"), "{error}");
    assert_eq!(usage().used_bytes, 0, "the operator is gone");
    drop(other);
    run("stands", |_| 1_000).unwrap();
}

#[test]
fn wrong_joins_are_refused() {
    let catalog = volatile();
    type Change = fn(&mut StreamJoin);
    let cases: [(&str, Change); 6] = [
        ("column v is not a time: INT", |join| join.left.time = 2),
        ("there is no column 9", |join| join.right.time = 9),
        ("different windows or numbers of keys", |join| join.left.keys.clear()),
        ("none is known to have no partner", |join| {
            (join.preserved, join.bounds_us) = (LEFT_JOIN, (Some(5), None))
        }),
        ("right tuples may always get a partner", |join| {
            (join.preserved, join.bounds_us) = (FULL, (None, Some(5)))
        }),
        ("partners within 5 to 4 us", |join| join.bounds_us = (Some(5), Some(4))),
    ];
    for (expected, change) in cases {
        let topology = Topology::builder("t", &catalog);
        let source = |name: &str| topology.source(name, GeneratorSource::new(columns(), |_| None));
        let mut wrong = join(INNER, false);
        change(&mut wrong);
        to_table(&source("left").join(&source("right"), wrong));
        let error = topology.build().err().unwrap().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

/// Join of left rows with the right ones of their lifetime: `v` seconds from their time on.
fn lifetime_join(kind: [bool; 2]) -> StreamJoin {
    let until = |rows: &arrow_array::RecordBatch| -> Result<arrow_array::ArrayRef, String> {
        use arrow_array::{Int32Array, TimestampMicrosecondArray};
        let column = |at: usize| rows.column(at).as_any();
        let times = column(1).downcast_ref::<TimestampMicrosecondArray>().unwrap();
        let values = column(2).downcast_ref::<Int32Array>().unwrap();
        let until = times.iter().zip(values.iter()).map(|(at, v)| Some(at? + i64::from(v?) * SECOND_US));
        Ok(Arc::new(until.collect::<TimestampMicrosecondArray>()))
    };
    let within = move |rows: &arrow_array::RecordBatch| -> Result<arrow_array::ArrayRef, String> {
        let until = until(rows)?;
        let times = |column: &arrow_array::ArrayRef| {
            let times = column.as_any().downcast_ref::<arrow_array::TimestampMicrosecondArray>();
            times.unwrap().iter().collect::<Vec<_>>()
        };
        let (begin, end, at) = (times(rows.column(1)), times(&until), times(rows.column(4)));
        let holds = (0..at.len()).map(|row| Some(at[row]? >= begin[row]? && at[row]? <= end[row]?));
        Ok(Arc::new(holds.collect::<arrow_array::BooleanArray>()))
    };
    let left = JoinSide { last: Some(Box::new(until)), ..side(None) };
    StreamJoin { left, bounds_us: (Some(0), None), condition: Some(Box::new(within)), ..join(kind, false) }
}

/// Rows of both sides, with the elements of a source of them, some of whose transactions are aborted.
fn marked_rows(seed: u64, transactions: u64) -> (Vec<Element>, [Vec<Tuple>; 2]) {
    let mut random = Random(seed);
    let (mut elements, mut committed) = (Vec::new(), [Vec::new(), Vec::new()]);
    for transaction in 0..transactions {
        let mut rows: Vec<(usize, Tuple)> = Vec::new();
        for _ in 0..random.below(12) {
            let side = random.below(2);
            rows.push((side as usize, random_row(seed, side, transaction * 6 + random.below(6))));
        }
        let with_side = |(side, row): &(usize, Tuple)| [row.clone(), vec![Value::Int(*side as i32)]].concat();
        for part in rows.iter().map(with_side).collect::<Vec<Tuple>>().chunks(5) {
            elements.push(Element::Tuples(part.to_vec()));
        }
        let is_dropped = random.below(4) == 0;
        let mark = if is_dropped { Punctuation::Abort } else { Punctuation::Commit };
        elements.push(Element::Punctuation(mark));
        if !is_dropped {
            rows.into_iter().for_each(|(side, row)| committed[side].push(row));
        }
    }
    (elements, committed)
}

/// Rows with a lifetime of their own are joined with those of it, and leave the state behind it.
#[test]
fn lifetimes_bound_a_join() {
    let seed = seed();
    for kind in [INNER, LEFT_JOIN, FULL] {
        let (elements, committed) = marked_rows(seed, 400);
        let ((left, left_late), (right, right_late)) = (in_time(&committed[0]), in_time(&committed[1]));
        let lives = |row: &Tuple, difference: i64| {
            let Value::Int(seconds) = row[2] else { panic!("{row:?}") };
            (0..=i64::from(seconds) * SECOND_US).contains(&difference)
        };
        let expected = rejoin_near(&left, &right, kind, false, lives);
        assert!(expected.len() > 300, "{} rows", expected.len());
        let catalog = volatile();
        let report = run_marked(&catalog, lifetime_join(kind), elements);
        let found = sorted(texts(&catalog));
        let differs = found.iter().zip(&expected).find(|(found, expected)| found != expected);
        assert_eq!((differs, found.len()), (None, expected.len()), "{kind:?}");
        assert_eq!(report.late, left_late + right_late, "{kind:?}");
        assert!(rows(&catalog, "kept").is_empty(), "lifetimes end with the other side");
    }
}

/// Without bounds all rows are joined, however late, over runs: each is buffered for ever.
#[test]
fn a_join_without_bounds_is_one_of_all_rows() {
    let seed = seed();
    let (elements, committed) = marked_rows(seed, 60);
    let middle = elements.iter().position(|element| *element == Element::Punctuation(Punctuation::Commit));
    let (first, second) = elements.split_at(middle.unwrap() + 1);
    let catalog = volatile();
    let unbounded = || StreamJoin { bounds_us: (None, None), ..join(INNER, true) };
    let late = run_marked(&catalog, unbounded(), first.to_vec()).late
        + run_marked(&catalog, unbounded(), second.to_vec()).late;
    let expected = rejoin_near(&committed[0], &committed[1], INNER, true, |_, _| true);
    assert!(expected.len() > 300, "{} rows", expected.len());
    let found = sorted(texts(&catalog));
    let differs = found.iter().zip(&expected).find(|(found, expected)| found != expected);
    assert_eq!((differs, found.len(), late), (None, expected.len(), 0));
    // All but those that can have no partner: NULL in the key or the time.
    let may_have = |row: &&Tuple| !row[0].is_null() && !row[1].is_null();
    let buffered = committed.iter().flatten().filter(may_have).count();
    assert_eq!(rows(&catalog, "kept").len(), buffered);
}
