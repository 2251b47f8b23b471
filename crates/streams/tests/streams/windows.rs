//! Windows: streaming equals recomputing, whatever the transactions; edges of windows; late tuples.

use crate::support::*;
use arrow_array::{Float64Array, Int32Array, RecordBatch, TimestampMicrosecondArray};
use entresol_memory::{MemoryBudget, MemoryConsumer, Pool, PoolOptions};
use entresol_streams::{
    Aggregate, Boundary, ChannelSource, Element, EventTime, GeneratorSource, Merge, Punctuation, Report,
    TimeWindow, Topology, Tuple,
};
use entresol_tables::{Catalog, DataType, Value};
use entresol_transactions::StateContext;
use std::sync::Arc;
use std::time::Duration;

fn aggregates() -> [Aggregate; 4] {
    [Aggregate::count(), Aggregate::sum("power"), Aggregate::min("power"), Aggregate::max("power")]
}

fn run(
    catalog: &Arc<Catalog>,
    readings: Vec<Tuple>,
    size_s: u64,
    lateness_s: u64,
    boundary: Boundary,
) -> Report {
    let topology = Topology::builder("t", catalog).boundary(boundary);
    let source = GeneratorSource::new(reading_columns(), move |n| readings.get(n as usize).cloned());
    let window =
        TimeWindow::tumbling("at", Duration::from_secs(size_s)).lateness(Duration::from_secs(lateness_s));
    topology
        .source("readings", source)
        .window(window)
        .group_by(&["meter"])
        .aggregate(&aggregates(), "open")
        .to_table("windows");
    topology.build().unwrap().run().unwrap()
}

#[test]
fn streaming_equals_recomputing() {
    let seed = seed();
    for (round, boundary) in [
        Boundary::EachTuple,
        Boundary::Every(1),
        Boundary::Every(7),
        Boundary::Every(100_000),
        Boundary::PerWindow,
    ]
    .into_iter()
    .enumerate()
    {
        for (size_s, lateness_s, disorder) in [(10, 0, 0), (10, 0, 15), (7, 5, 5), (60, 30, 100)] {
            let readings: Vec<Tuple> =
                (0..900).map(|n| random_reading(seed + round as u64, n, 5, disorder)).collect();
            let (expected, late) = recompute(&readings, size_s, lateness_s);
            let catalog = volatile();
            let report = run(&catalog, readings, size_s as u64, lateness_s as u64, boundary);
            let what = format!("{boundary:?}, size {size_s}, lateness {lateness_s}, disorder {disorder}");
            assert_eq!(as_oracle(&rows(&catalog, "windows")), expected, "{what}");
            assert_eq!((report.late, report.tuples), (late, 900), "{what}");
            assert!(rows(&catalog, "open").is_empty(), "{what}: all windows are closed at the end");
        }
    }
}

#[test]
fn a_small_cache_changes_nothing() {
    let seed = seed();
    let readings: Vec<Tuple> = (0..2000).map(|n| random_reading(seed, n, 40, 90)).collect();
    let (expected, late) = recompute(&readings, 20, 60);
    for (groups, every) in [(1, 50), (7, 4), (30, 200), (100, 1000)] {
        let catalog = volatile();
        let mut dropped = 0;
        let mut total_late = 0;
        // Two runs: the second loads more open windows than fit.
        for until in [1000, 2000] {
            let topology = Topology::builder("t", &catalog).boundary(Boundary::Every(every));
            let part: Vec<Tuple> = readings[..until].to_vec();
            let (sender, receiver) = crossbeam_channel::bounded(1);
            sender.send(Element::Tuples(part[dropped..].to_vec())).unwrap();
            dropped = until;
            topology
                .source("readings", ChannelSource::new(reading_columns(), receiver))
                .window(TimeWindow::tumbling("at", Duration::from_secs(20)).lateness(Duration::from_secs(60)))
                .group_by(&["meter"])
                .groups_in_dram(groups)
                .aggregate(&aggregates(), "open")
                .to_table("windows");
            let running = topology.build().unwrap().start().unwrap();
            if until == 1000 {
                while running.progress().snapshot().tuples < (1000 / every * every) as u64 {
                    std::thread::yield_now();
                }
                running.stop();
            } else {
                drop(sender);
            }
            total_late += running.join().unwrap().late;
        }
        assert_eq!(as_oracle(&rows(&catalog, "windows")), expected, "{groups} groups, {every} tuples");
        assert_eq!(total_late, late);
        assert!(rows(&catalog, "open").is_empty());
    }
}

#[test]
fn windows_that_do_not_fit_the_memory_budget_wait_in_their_table() {
    let budget = MemoryBudget::tiny(64 << 20);
    let options = PoolOptions { memory: Some(Arc::clone(&budget)), ..PoolOptions::default() };
    let pool = Pool::volatile(&options).unwrap();
    // The pool's own memory counts too: it is allocated from the beginning.
    drop(pool.reserve(12 << 20).unwrap());
    let context = StateContext::open_or_create(pool).unwrap();
    let catalog = Catalog::open_or_create(context).unwrap();
    let usage = || budget.usage().consumers[MemoryConsumer::StreamState as usize];
    // All but 128 KiB are reserved by another consumer.
    let free = budget.free_bytes();
    let other = budget.try_reserve(MemoryConsumer::Queries, free - (128 << 10)).unwrap();
    let readings: Vec<Tuple> = (0..6000).map(|n| random_reading(7, n, 3000, 90)).collect();
    let (expected, _) = recompute(&readings, 20, 60);
    run(&catalog, readings, 20, 60, Boundary::Every(50));
    assert_eq!(as_oracle(&rows(&catalog, "windows")), expected);
    let peak = usage().peak_bytes;
    assert!((64 << 10..=128 << 10).contains(&peak), "{peak}");
    assert_eq!(usage().used_bytes, 0, "the operator is gone");
    drop(other);
    // Not even one group fits.
    let all = budget.try_reserve(MemoryConsumer::Queries, budget.free_bytes()).unwrap();
    let topology = Topology::builder("u", &catalog);
    let source = GeneratorSource::new(reading_columns(), |n| (n < 10).then(|| reading(1, n as i64, 1.0)));
    let windows =
        topology.source("readings", source).window(TimeWindow::tumbling("at", Duration::from_secs(20)));
    windows.group_by(&["meter"]).aggregate(&aggregates(), "open2").to_table("windows2");
    let error = topology.build().unwrap().run().unwrap_err().to_string();
    assert!(error.contains("stream state need 64KiB more") && error.contains("queries"), "{error}");
    drop(all);
}

/// A window, and so a transaction, of more tuples than fit a batch a thousand times.
#[test]
fn a_long_window_is_one_transaction() {
    let budget = MemoryBudget::tiny(256 << 20);
    let options = PoolOptions { memory: Some(Arc::clone(&budget)), ..PoolOptions::default() };
    let context = StateContext::open_or_create(Pool::volatile(&options).unwrap()).unwrap();
    let catalog = Catalog::open_or_create(context).unwrap();
    let columns = reading_columns();
    let schema = entresol_tables::arrow_schema(&columns, "UTC");
    const READINGS: u64 = (1 << 20) + (1 << 16);
    let generate = move |first: u64, tuples_max: usize| {
        let range = first..READINGS.min(first + tuples_max as u64);
        let meters = Int32Array::from_iter_values(range.clone().map(|n| (n % 3) as i32));
        let times = TimestampMicrosecondArray::from_iter_values(range.clone().map(|n| n as i64));
        let powers = Float64Array::from_iter_values(range.map(|_| 1.0));
        RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(meters), Arc::new(times), Arc::new(powers)])
            .unwrap()
    };
    let run = || {
        let topology = Topology::builder("t", &catalog).boundary(Boundary::PerWindow);
        let source = GeneratorSource::batches(columns.clone(), generate.clone());
        let windows =
            topology.source("s", source).window(TimeWindow::tumbling("at", Duration::from_secs(10)));
        windows.aggregate(&[Aggregate::count()], "open").to_table("windows");
        topology.build().unwrap().run()
    };
    // The input of the transaction does not fit: nothing of it is left.
    let rest = budget.try_reserve(MemoryConsumer::Queries, budget.free_bytes() - (8 << 20)).unwrap();
    let error = run().unwrap_err().to_string();
    assert!(error.contains("stream state need") && error.contains("queries"), "{error}");
    assert!(rows(&catalog, "windows").is_empty());
    drop(rest);
    let report = run().unwrap();
    assert_eq!((report.tuples, report.transactions), (READINGS, 1));
    assert_eq!(rows(&catalog, "windows")[0][2], Value::BigInt(READINGS as i64));
}

#[test]
fn a_tuple_at_the_edge_belongs_to_the_next_window() {
    let catalog = volatile();
    let readings = vec![reading(1, -1, 1.0), reading(1, 0, 2.0), reading(1, 9, 3.0), reading(1, 10, 4.0)];
    let report = run(&catalog, readings, 10, 0, Boundary::Every(100));
    let windows = rows(&catalog, "windows");
    let starts: Vec<(Value, Value)> = windows.iter().map(|row| (row[1].clone(), row[3].clone())).collect();
    let window = |second: i64, count: i64| (Value::Timestamp(second * SECOND_US), Value::BigInt(count));
    assert_eq!(starts, [window(-10, 1), window(0, 2), window(10, 1)]);
    assert_eq!(report.late, 0);
}

#[test]
fn windows_over_moments_are_moments() {
    let catalog = volatile();
    let mut columns = reading_columns();
    columns[1].data_type = DataType::TimestampTz;
    let readings = [reading(1, 0, 2.0), reading(1, 9, 3.0), reading(1, 10, 4.0)];
    let topology = Topology::builder("t", &catalog).boundary(Boundary::Every(2));
    let source = GeneratorSource::new(columns, move |n| readings.get(n as usize).cloned());
    let windows =
        topology.source("readings", source).window(TimeWindow::tumbling("at", Duration::from_secs(10)));
    windows.group_by(&["meter"]).aggregate(&aggregates(), "open").to_table("windows");
    topology.build().unwrap().run().unwrap();
    for (table, column) in [("windows", "window_start"), ("windows", "window_end"), ("open", "window_start")]
    {
        let table = catalog.table(table).unwrap();
        let found = table.schema().columns().iter().find(|found| found.name == column).unwrap();
        assert_eq!(found.data_type, DataType::TimestampTz, "{column}");
    }
    let starts: Vec<Value> = rows(&catalog, "windows").iter().map(|row| row[1].clone()).collect();
    assert_eq!(starts, [Value::Timestamp(0), Value::Timestamp(10 * SECOND_US)]);
}

#[test]
fn late_tuples_are_counted_and_dropped_lateness_waits_for_them() {
    let readings = || {
        vec![
            reading(1, 5, 1.0),
            reading(1, 12, 1.0),
            reading(1, 6, 1.0),
            reading(1, 30, 1.0),
            reading(1, 19, 1.0),
        ]
    };
    let catalog = volatile();
    assert_eq!(run(&catalog, readings(), 10, 0, Boundary::EachTuple).late, 2);
    let catalog = volatile();
    let report = run(&catalog, readings(), 10, 3, Boundary::EachTuple);
    assert_eq!(report.late, 1, "only the one at 19 comes when its window is closed");
    assert_eq!(rows(&catalog, "windows")[0][3], Value::BigInt(2));
}

#[test]
fn each_window_is_a_transaction() {
    let readings: Vec<Tuple> = (0..50).map(|n| reading(n % 3, i64::from(n), 1.0)).collect();
    let catalog = volatile();
    let report = run(&catalog, readings, 10, 0, Boundary::PerWindow);
    assert_eq!(report.transactions, 5, "five windows; the end of the stream closes the last");
    assert_eq!(rows(&catalog, "windows").len(), 15);
}

#[test]
fn open_windows_can_be_queried() {
    let catalog = volatile();
    let (sender, receiver) = crossbeam_channel::bounded(10);
    let topology = Topology::builder("t", &catalog).boundary(Boundary::Punctuated);
    topology
        .source("readings", ChannelSource::new(reading_columns(), receiver))
        .window(TimeWindow::tumbling("at", Duration::from_secs(10)))
        .group_by(&["meter"])
        .aggregate(&aggregates(), "open")
        .to_table("windows");
    let running = topology.build().unwrap().start().unwrap();
    let wait_for = |transactions: u64| {
        while running.progress().snapshot().transactions < transactions {
            assert!(!running.is_finished());
            std::thread::yield_now();
        }
    };
    sender.send(Element::Tuples(vec![reading(1, 1, 2.0), reading(1, 2, 3.0)])).unwrap();
    sender.send(Element::Punctuation(Punctuation::Commit)).unwrap();
    wait_for(1);
    let open = rows(&catalog, "open");
    assert_eq!(open.len(), 1);
    assert_eq!(open[0][2..4], [Value::BigInt(2), Value::Double(5.0)]);
    sender
        .send(Element::Punctuation(Punctuation::Watermark(EventTime::from_micros(10 * SECOND_US))))
        .unwrap();
    sender.send(Element::Punctuation(Punctuation::Commit)).unwrap();
    wait_for(2);
    assert!(rows(&catalog, "open").is_empty());
    assert_eq!(rows(&catalog, "windows").len(), 1);
    drop(sender);
    running.join().unwrap();
}

#[test]
fn two_sources_by_event_time() {
    let catalog = volatile();
    let topology = Topology::builder("t", &catalog).boundary(Boundary::PerWindow).merge(Merge::EventTime);
    let half = |parity: i64| {
        GeneratorSource::new(reading_columns(), move |n| {
            (n < 100).then(|| reading(0, 2 * n as i64 + parity, 1.0))
        })
    };
    let all = topology.source("even", half(0)).union(&topology.source("odd", half(1)));
    all.window(TimeWindow::tumbling("at", Duration::from_secs(10)))
        .aggregate(&[Aggregate::count()], "open")
        .to_table("windows");
    let report = topology.build().unwrap().run().unwrap();
    assert_eq!((report.late, report.tuples), (0, 200));
    let windows = rows(&catalog, "windows");
    assert_eq!(windows.len(), 20);
    assert!(windows.iter().all(|row| row[2] == Value::BigInt(10)), "{windows:?}");
}

#[test]
fn mistakes_are_reported_by_build() {
    let catalog = volatile();
    let build = |make: &dyn Fn(&entresol_streams::TopologyBuilder, entresol_streams::Stream)| {
        let topology = Topology::builder("t", &catalog);
        let stream = topology.source("s", GeneratorSource::new(reading_columns(), |_| None));
        make(&topology, stream);
        topology.build().err().unwrap().to_string()
    };
    let window = |column: &str| TimeWindow::tumbling(column, Duration::from_secs(1));
    let error = build(&|_, s| s.window(window("nope")).aggregate(&[Aggregate::count()], "o").to_table("w"));
    assert_eq!(error, "topology t: aggregate with state o: the stream has no column nope");
    let error = build(&|_, s| s.window(window("at")).aggregate(&[Aggregate::sum("at")], "o").to_table("w"));
    assert!(error.contains("sum is not defined for timestamp columns"), "{error}");
    let error = build(&|_, s| drop(s.lookup_join("nope", &["meter"], entresol_streams::JoinKind::Inner)));
    assert_eq!(error, "topology t: lookup join: there is no table nope");
    let error = build(&|t, _| drop(t.to_stream("nope", entresol_streams::Trigger::OnCommit)));
    assert_eq!(error, "topology t: TO_STREAM: there is no table nope");
    let error = build(&|t, s| {
        s.to_table("a");
        t.to_stream("a", entresol_streams::Trigger::OnCommit).to_table("a");
    });
    assert!(error.contains("writes the table whose changes it reads"), "{error}");
    assert!(catalog.tables().is_empty(), "a topology that is not built makes no table");
}

/// Two sources, one of which is behind the other in event time: nothing of it is late, and windows close when
/// both have come past them, or the slower one has ended.
#[test]
fn a_window_waits_for_the_slower_of_two_sources() {
    const READINGS: i64 = 5000;
    let catalog = volatile();
    let topology = Topology::builder("t", &catalog).boundary(Boundary::Every(100));
    let source = |meter: i32, steps: i64| {
        GeneratorSource::new(reading_columns(), move |n| {
            let n = n as i64;
            (n < READINGS).then(|| reading(meter, n / steps, 1.0))
        })
    };
    let both = topology.source("fast", source(1, 1)).union(&topology.source("slow", source(2, 3)));
    let (out, closed) = crossbeam_channel::unbounded();
    both.window(TimeWindow::tumbling("at", Duration::from_secs(10)))
        .group_by(&["meter"])
        .aggregate(&[Aggregate::count()], "open")
        .sink(entresol_streams::ChannelSink::new(out));
    let report = topology.build().unwrap().run().unwrap();
    assert_eq!(report.late, 0);
    let mut counted = 0;
    while let Ok(Element::Batch(batch)) = closed.try_recv() {
        for tuple in batch.tuples().unwrap() {
            let entresol_tables::Value::BigInt(count) = tuple[3] else { panic!("{tuple:?}") };
            counted += count;
        }
    }
    assert_eq!(counted, 2 * READINGS);
}

/// A tuple of a clock that is wrong by centuries: it waits in its window, and the others close as without it.
#[test]
fn a_time_from_the_future_closes_no_window() {
    const FAR: i64 = 10_000_000_000;
    for boundary in [Boundary::EachTuple, Boundary::Every(7), Boundary::PerWindow] {
        let readings: Vec<Tuple> = (0..100).map(|n| reading(1, n, 1.0)).collect();
        let (expected, _) = recompute(&readings, 10, 0);
        let mut with_wrong = readings.clone();
        with_wrong.insert(35, reading(1, FAR, 1.0));
        let catalog = volatile();
        let report = run(&catalog, with_wrong, 10, 0, boundary);
        assert_eq!((report.late, report.future, report.tuples), (0, 1, 101), "{boundary:?}");
        let mut windows = rows(&catalog, "windows");
        let last = windows.pop().unwrap();
        assert_eq!(last[1], Value::Timestamp(FAR * SECOND_US), "it is closed at the end of the stream");
        assert_eq!(as_oracle(&windows), expected, "{boundary:?}");
    }
}

/// Windows of all readings that are not later than corrections are made for, and the number of the others. A run ends
/// behind so many readings.
fn recompute_corrected(readings: &[Tuple], corrected_s: i64, run: usize) -> (Oracle, u64) {
    let (size, lateness, corrected) = (10 * SECOND_US, 5 * SECOND_US, corrected_s * SECOND_US);
    let (mut watermark, mut last, mut late) = (i64::MIN, i64::MIN, 0);
    let mut in_time = Vec::new();
    for (number, tuple) in readings.iter().enumerate() {
        let Value::Timestamp(at) = tuple[1] else { panic!("{tuple:?}") };
        if number == run {
            watermark = watermark.max(last);
        }
        let end = (at.div_euclid(size) + 1) * size;
        if end.saturating_add(corrected) <= watermark {
            late += 1;
            continue;
        }
        last = last.max(end);
        watermark = watermark.max(at - lateness);
        in_time.push(tuple.clone());
    }
    // None of these is late for an oracle that waits for ever.
    let (oracle, others) = recompute(&in_time, 10, 1_000_000_000);
    assert_eq!(others, 0);
    (oracle, late)
}

/// Readings as elements of a channel: those that marks divide come in vain first.
fn elements(readings: &[Tuple], boundary: Boundary) -> Vec<Element> {
    let mut elements = Vec::new();
    for tuples in readings.chunks(100) {
        if boundary == Boundary::Punctuated {
            elements.push(Element::Tuples(tuples.to_vec()));
            elements.push(Element::Punctuation(Punctuation::Abort));
        }
        elements.push(Element::Tuples(tuples.to_vec()));
        if boundary == Boundary::Punctuated {
            elements.push(Element::Punctuation(Punctuation::Commit));
        }
    }
    elements
}

/// Runs windows of ten seconds that late tuples correct; returns the number of those that were too late.
fn run_corrected(
    catalog: &Arc<Catalog>,
    readings: &[Tuple],
    boundary: Boundary,
    groups: usize,
    corrected_s: i64,
) -> u64 {
    let (sender, receiver) = crossbeam_channel::unbounded();
    elements(readings, boundary).into_iter().for_each(|element| sender.send(element).unwrap());
    drop(sender);
    let topology = Topology::builder("t", catalog).boundary(boundary);
    topology
        .source("readings", ChannelSource::new(reading_columns(), receiver))
        .window(TimeWindow::tumbling("at", Duration::from_secs(10)).lateness(Duration::from_secs(5)))
        .group_by(&["meter"])
        .groups_in_dram(groups)
        .corrected_for(Duration::from_secs(corrected_s as u64))
        .aggregate(&aggregates(), "open")
        .to_table("windows");
    topology.build().unwrap().run().unwrap().late
}

/// Late tuples correct what was sent, whatever the transactions, aborts, restarts, and windows in DRAM.
#[test]
fn corrected_windows_equal_recomputing() {
    let seed = seed();
    for (boundary, groups, corrected_s) in [
        (Boundary::EachTuple, 1, 15),
        (Boundary::Every(7), 3, 40),
        (Boundary::Every(50), 1 << 18, 40),
        (Boundary::Every(50), 2, 1_000_000),
        (Boundary::Punctuated, 4, 40),
        (Boundary::PerWindow, 1 << 18, 20),
    ] {
        let readings: Vec<Tuple> = (0..1200).map(|n| random_reading(seed + 1, n, 5, 70)).collect();
        let (expected, late) = recompute_corrected(&readings, corrected_s, 400);
        let catalog = volatile();
        let found = run_corrected(&catalog, &readings[..400], boundary, groups, corrected_s)
            + run_corrected(&catalog, &readings[400..], boundary, groups, corrected_s);
        let what = format!("{boundary:?}, {groups} groups, corrected for {corrected_s} s");
        let windows = as_oracle(&rows(&catalog, "windows"));
        let wrong = expected.iter().find(|(key, window)| windows.get(key) != Some(window));
        assert_eq!((wrong, windows.len()), (None, expected.len()), "{what}");
        assert_eq!(found, late, "{what}");
        assert!((late > 0) == (corrected_s < 1000), "{what}: {late} late");
        assert!(
            !rows(&catalog, "open").is_empty(),
            "{what}: the last windows may be corrected by a later run"
        );
    }
}

#[test]
fn sessions_are_not_corrected() {
    let catalog = volatile();
    let topology = Topology::builder("t", &catalog);
    let source = GeneratorSource::new(reading_columns(), |_| None);
    let grouped = topology
        .source("readings", source)
        .window(TimeWindow::session("at", Duration::from_secs(10)))
        .group_by(&["meter"])
        .corrected_for(Duration::from_secs(1));
    let error = grouped.try_aggregate(&aggregates(), "open").map(drop).unwrap_err();
    assert!(error.contains("late tuples correct no sessions"), "{error}");
}
