//! Boundaries, aborts, triggers, joins and conflicts.

use crate::support::*;
use crossbeam_channel::bounded;
use entresol_memory::Durability;
use entresol_streams::{
    Aggregate, Batch, Boundary, ChannelSink, ChannelSource, CsvSink, Element, Error as StreamError,
    EventTime, GeneratorSource, JoinKind, JsonLinesSink, OnError, Punctuation, Sink, TimeWindow, ToTable,
    Topology, Trigger, Tuple,
};
use entresol_tables::{
    Catalog, Column, DataType, Error, Schema, TableDefinition, TableOptions, Value, Verify,
};
use std::sync::Arc;
use std::time::Duration;

fn commit() -> Element {
    Element::Punctuation(Punctuation::Commit)
}

fn abort() -> Element {
    Element::Punctuation(Punctuation::Abort)
}

/// Runs a topology over a channel with these elements: windows, the latest readings, and a sink, whose tuples
/// are returned.
fn run_punctuated(catalog: &Arc<Catalog>, elements: Vec<Element>) -> (entresol_streams::Report, Vec<Tuple>) {
    let (sender, receiver) = bounded(elements.len().max(1));
    elements.into_iter().for_each(|element| sender.send(element).unwrap());
    drop(sender);
    let (out, results) = crossbeam_channel::unbounded();
    let topology = Topology::builder("t", catalog).boundary(Boundary::Punctuated).on_error(OnError::Abort);
    let readings = topology.source("s", ChannelSource::new(reading_columns(), receiver));
    let aggregates =
        [Aggregate::count(), Aggregate::sum("power"), Aggregate::min("power"), Aggregate::max("power")];
    let window = TimeWindow::tumbling("at", Duration::from_secs(10));
    readings.window(window).group_by(&["meter"]).aggregate(&aggregates, "open").to_table("windows");
    readings.to_table(ToTable::upsert("latest").key(&["meter"]));
    readings.sink(ChannelSink::new(out));
    let report = topology.build().unwrap().run().unwrap();
    let mut emitted = Vec::new();
    while let Ok(Element::Batch(batch)) = results.try_recv() {
        emitted.extend(batch.tuples().unwrap());
    }
    (report, emitted)
}

#[test]
fn aborted_transactions_leave_nothing_anywhere() {
    let seed = seed();
    let mut random = Random(seed);
    for _ in 0..20 {
        let mut elements = Vec::new();
        let (mut kept, mut aborts) = (Vec::new(), 0);
        let mut n = 0;
        for _ in 0..30 {
            let tuples: Vec<Tuple> = (0..1 + random.below(20))
                .map(|_| {
                    n += 1;
                    random_reading(seed, n, 4, 8)
                })
                .collect();
            elements.push(Element::Tuples(tuples.clone()));
            if random.below(3) == 0 {
                elements.push(abort());
                aborts += 1;
            } else {
                elements.push(commit());
                kept.extend(tuples);
            }
        }
        // Never marked complete: dropped at the end.
        elements.push(Element::Tuples(vec![random_reading(seed, n + 1, 4, 0)]));
        let catalog = volatile();
        let (report, emitted) = run_punctuated(&catalog, elements);
        assert_eq!((report.aborts, report.tuples), (aborts + 1, kept.len() as u64));
        let (expected, late) = recompute(&kept, 10, 0);
        assert_eq!(as_oracle(&rows(&catalog, "windows")), expected);
        assert_eq!(report.late, late);
        assert_eq!(emitted, kept);
        let mut latest: Vec<Tuple> = Vec::new();
        for meter in 0..4 {
            latest.extend(kept.iter().rfind(|tuple| tuple[0] == Value::Int(meter)).cloned());
        }
        assert_eq!(rows(&catalog, "latest"), latest);
    }
}

#[test]
fn watermarks_of_aborted_transactions_count_for_nothing() {
    let catalog = volatile();
    let watermark = || Element::Punctuation(Punctuation::Watermark(EventTime::from_micros(20 * SECOND_US)));
    let elements = vec![
        Element::Tuples(vec![reading(1, 1, 1.0)]),
        watermark(),
        abort(),
        Element::Tuples(vec![reading(1, 2, 2.0)]),
        commit(),
        // Closes the window now, though the dropped transaction had seen the same.
        watermark(),
        commit(),
        Element::Tuples(vec![reading(1, 3, 3.0)]),
        commit(),
    ];
    let (report, _) = run_punctuated(&catalog, elements);
    assert_eq!((report.late, report.aborts), (1, 1));
    assert_eq!(rows(&catalog, "windows")[0][3..5], [Value::BigInt(1), Value::Double(2.0)]);
}

#[test]
fn a_transaction_with_a_bad_tuple_is_dropped_whole() {
    let catalog = volatile();
    let bad: Tuple = vec![Value::Int(2), Value::from("not a time"), Value::Null];
    let elements = vec![
        Element::Tuples(vec![reading(1, 1, 1.0)]),
        commit(),
        Element::Tuples(vec![reading(1, 2, 2.0), bad]),
        Element::Tuples(vec![reading(1, 3, 3.0)]),
        commit(),
        Element::Tuples(vec![reading(3, 4, 4.0)]),
        commit(),
    ];
    let (report, emitted) = run_punctuated(&catalog, elements);
    assert_eq!((report.tuples, report.aborts), (2, 1));
    assert_eq!(rows(&catalog, "latest"), [reading(1, 1, 1.0), reading(3, 4, 4.0)]);
    assert_eq!(emitted.len(), 2);
}

#[test]
fn inserting_a_key_twice_stops_or_aborts_as_told() {
    for on_error in [OnError::Stop, OnError::Abort, OnError::Skip] {
        let catalog = volatile();
        let topology = Topology::builder("t", &catalog).boundary(Boundary::Every(2)).on_error(on_error);
        let source = GeneratorSource::new(reading_columns(), |n| {
            let meter = [1, 2, 3, 2, 4, 5].get(n as usize)?;
            Some(reading(*meter, n as i64, 0.0))
        });
        topology.source("s", source).to_table(ToTable::insert("readings").key(&["meter"]));
        let result = topology.build().unwrap().run();
        let meters: Vec<Value> = rows(&catalog, "readings").iter().map(|row| row[0].clone()).collect();
        match on_error {
            OnError::Stop => {
                assert_eq!(
                    result.unwrap_err().to_string(),
                    "duplicate key value violates the primary key of table \"readings\": key (2) already exists"
                );
                assert_eq!(meters, [1, 2].map(Value::Int));
            }
            OnError::Abort => {
                assert_eq!(result.unwrap().aborts, 1);
                assert_eq!(meters, [1, 2, 4, 5].map(Value::Int));
            }
            OnError::Skip => {
                let report = result.unwrap();
                assert_eq!((report.aborts, report.rejected_rows), (0, 1));
                assert_eq!(meters, [1, 2, 3, 4, 5].map(Value::Int));
            }
        }
    }
}

fn specifications(catalog: &Arc<Catalog>) {
    let columns = vec![
        Column::new("meter", DataType::Int),
        Column::new("limit", DataType::Double),
        Column::new("power", DataType::Double),
    ];
    let table = catalog
        .create_table("specification", Schema::new(columns, &["meter"]).unwrap(), TableOptions::default())
        .unwrap();
    let tx = catalog.begin().unwrap();
    for meter in 0..3 {
        table.insert(&tx, &[Value::Int(meter), Value::Double(10.0 * f64::from(meter)), Value::Null]).unwrap();
    }
    tx.commit(Durability::Sync).unwrap();
}

#[test]
fn lookup_joins_inner_and_left() {
    for (kind, expected) in [(JoinKind::Inner, 2), (JoinKind::Left, 4)] {
        let catalog = volatile();
        specifications(&catalog);
        let topology = Topology::builder("t", &catalog);
        let columns = vec![
            Column::new("id", DataType::Int).not_null(),
            Column::new("meter", DataType::Int),
            Column::new("power", DataType::Double),
        ];
        let source = GeneratorSource::new(columns, |n| {
            let meter = [Value::Int(2), Value::Null, Value::Int(9), Value::Int(1)].get(n as usize)?.clone();
            Some(vec![Value::Int(n as i32), meter, Value::Double(15.0)])
        });
        let joined = topology.source("s", source).lookup_join("specification", &["meter"], kind);
        let names: Vec<&str> = joined.columns().iter().map(|column| column.name.as_str()).collect();
        assert_eq!(names, ["id", "meter", "power", "limit", "specification_power"]);
        joined.to_table(ToTable::insert("joined").key(&["id"]));
        topology.build().unwrap().run().unwrap();
        let joined = rows(&catalog, "joined");
        assert_eq!(joined.len(), expected);
        assert_eq!(joined[0][3], Value::Double(20.0));
        assert_eq!(joined[expected - 1][3], Value::Double(10.0));
        if kind == JoinKind::Left {
            assert_eq!(joined[2][3..], [Value::Null, Value::Null]);
        }
    }
}

/// Computes alarms from the changes of a table, joined with limits.
fn alarms(catalog: &Arc<Catalog>, trigger: Trigger, readings: Vec<Tuple>, every: usize) -> Vec<Tuple> {
    specifications(catalog);
    let topology = Topology::builder("t", catalog).boundary(Boundary::Every(every));
    let source = GeneratorSource::new(reading_columns(), move |n| readings.get(n as usize).cloned());
    topology.source("s", source).to_table(ToTable::upsert("latest").key(&["meter"]));
    let changes =
        topology.to_stream("latest", trigger).lookup_join("specification", &["meter"], JoinKind::Inner);
    let (power, limit) = (changes.column("power").unwrap(), changes.column("limit").unwrap());
    let alarms = changes.filter(move |tuple| tuple[power] > tuple[limit]).select(&["meter", "at", "power"]);
    alarms.to_table(ToTable::insert("alarms").key(&["meter", "at"]));
    let (sender, receiver) = crossbeam_channel::unbounded();
    alarms.sink(ChannelSink::new(sender));
    topology.build().unwrap().run().unwrap();
    let mut sent = Vec::new();
    while let Ok(Element::Batch(batch)) = receiver.try_recv() {
        sent.extend(batch.tuples().unwrap());
    }
    sent.sort();
    assert_eq!(sent, rows(catalog, "alarms"), "the sink got what the table has");
    sent
}

#[test]
fn triggers_each_tuple_and_on_commit() {
    // Meter 1 (limit 10): over, under; meter 2 (limit 20): under, over.
    let readings = || vec![reading(1, 1, 11.0), reading(1, 2, 9.0), reading(2, 3, 1.0), reading(2, 4, 21.0)];
    let each = alarms(&volatile(), Trigger::EachTuple, readings(), 4);
    assert_eq!(each, [reading(1, 1, 11.0), reading(2, 4, 21.0)]);
    let on_commit = alarms(&volatile(), Trigger::OnCommit, readings(), 4);
    assert_eq!(
        on_commit,
        [reading(2, 4, 21.0)],
        "meter 1 is under its limit again when the transaction commits"
    );
    let on_commit = alarms(&volatile(), Trigger::OnCommit, readings(), 1);
    assert_eq!(on_commit, each, "every tuple is a transaction");
}

#[test]
fn deletes_flow_into_tables_and_out_of_them() {
    let catalog = volatile();
    for trigger in [Trigger::EachTuple, Trigger::OnCommit] {
        let name = format!("{trigger:?}").to_lowercase();
        let topology = Topology::builder(&name, &catalog).boundary(Boundary::Every(3));
        let source = GeneratorSource::new(reading_columns(), |n| {
            let script = [(1, 1.0), (2, 2.0), (3, 3.0), (1, -1.0), (2, 4.0), (9, -1.0)];
            script.get(n as usize).map(|(meter, power)| reading(*meter, n as i64, *power))
        });
        let gone = |tuple: &[Value]| tuple[2] < Value::Double(0.0);
        topology.source("s", source).to_table(ToTable::upsert(&name).key(&["meter"]).delete_when(gone));
        let (sender, receiver) = crossbeam_channel::unbounded();
        let changes = topology.to_stream_changes(&name, trigger);
        changes
            .select(&["meter", "power", "old_power", "change_type", "commit_cts"])
            .sink(ChannelSink::new(sender));
        topology.build().unwrap().run().unwrap();
        assert_eq!(rows(&catalog, &name), [reading(2, 4, 4.0), reading(3, 2, 3.0)]);
        let mut sent = Vec::new();
        while let Ok(Element::Batch(batch)) = receiver.try_recv() {
            sent.extend(batch.tuples().unwrap());
        }
        let change = |meter: i32, power: f64, old: Option<f64>, kind: &str| {
            let old = old.map_or(Value::Null, Value::Double);
            vec![Value::Int(meter), Value::Double(power), old, Value::from(kind), Value::Null]
        };
        let expected = [
            change(1, 1.0, None, "insert"),
            change(2, 2.0, None, "insert"),
            change(3, 3.0, None, "insert"),
            change(1, 1.0, Some(1.0), "delete"),
            change(2, 4.0, Some(2.0), "update"),
        ];
        assert_eq!(sent, expected, "{trigger:?}");
    }
}

/// Rows before are those that the transaction sees, with its own writes, in the same batch and of the other writer too; what
/// reads rows alone has the same order without the deleted ones.
#[test]
fn each_change_follows_the_one_before_of_its_key() {
    let catalog = volatile();
    let topology = Topology::builder("t", &catalog).boundary(Boundary::Every(6));
    let source = GeneratorSource::new(reading_columns(), |n| {
        let script = [(1, 1.0), (1, 2.0), (1, -1.0), (1, -1.0), (1, 3.0), (2, -1.0), (1, 3.0), (1, -1.0)];
        script.get(n as usize).map(|(meter, power)| reading(*meter, n as i64, *power))
    });
    let gone = |tuple: &[Value]| tuple[2] < Value::Double(0.0);
    let readings = topology.source("s", source);
    readings.to_table(ToTable::upsert("latest").key(&["meter"]).delete_when(gone));
    let last = |tuple: &[Value]| *tuple == reading(1, 4, 3.0)[..];
    readings.filter(last).to_table(ToTable::upsert("latest").delete_when(|_| true));
    let (sender, receiver) = crossbeam_channel::unbounded();
    let changes = topology.to_stream_changes("latest", Trigger::EachTuple);
    changes.select(&["meter", "power", "old_power", "change_type"]).sink(ChannelSink::new(sender));
    let (sender, rows_alone) = crossbeam_channel::unbounded();
    let alone = topology.to_stream("latest", Trigger::EachTuple);
    alone.select(&["meter", "power"]).sink(ChannelSink::new(sender));
    let (sender, at_commit) = crossbeam_channel::unbounded();
    let changes = topology.to_stream_changes("latest", Trigger::OnCommit);
    changes.select(&["meter", "power", "old_power", "change_type"]).sink(ChannelSink::new(sender));
    topology.build().unwrap().run().unwrap();
    let sent = |receiver: crossbeam_channel::Receiver<Element>| {
        let mut sent = Vec::new();
        while let Ok(Element::Batch(batch)) = receiver.try_recv() {
            sent.extend(batch.tuples().unwrap());
        }
        sent
    };
    let change = |power: f64, old: Option<f64>, kind: &str| {
        let old = old.map_or(Value::Null, Value::Double);
        vec![Value::Int(1), Value::Double(power), old, Value::from(kind)]
    };
    let expected = [
        change(1.0, None, "insert"),
        change(2.0, Some(1.0), "update"),
        change(2.0, Some(2.0), "delete"),
        change(3.0, None, "insert"),
        // Of the second step.
        change(3.0, Some(3.0), "delete"),
        change(3.0, None, "insert"),
        change(3.0, Some(3.0), "delete"),
    ];
    assert_eq!(sent(receiver), expected);
    let row = |power: f64| vec![Value::Int(1), Value::Double(power)];
    assert_eq!(sent(rows_alone), [row(1.0), row(2.0), row(3.0), row(3.0)]);
    assert_eq!(sent(at_commit), Vec::<Tuple>::new(), "nothing is there before and behind each transaction");
    assert_eq!(rows(&catalog, "latest"), Vec::<Tuple>::new());
}

/// Adds one to the counter of each tuple's key; `meddle` runs in the middle of each run of a transaction.
fn count_into_counters(
    catalog: &Arc<Catalog>,
    name: &str,
    tuples: u64,
    mut meddle: impl FnMut() + Send + 'static,
) -> entresol_streams::Running {
    let topology = Topology::builder(name, catalog).boundary(Boundary::Every(1)).durability(Durability::None);
    let source = GeneratorSource::new(vec![Column::new("k", DataType::Int).not_null()], move |n| {
        (n < tuples).then(|| vec![Value::Int((n % 2) as i32)])
    });
    let joined = topology.source("s", source).lookup_join("counters", &["k"], JoinKind::Left);
    let added = joined.map(joined.columns().to_vec(), move |tuple| {
        meddle();
        let n = match tuple[1] {
            Value::BigInt(n) => n,
            _ => 0,
        };
        vec![tuple[0].clone(), Value::BigInt(n + 1)]
    });
    added.to_table("counters");
    topology.build().unwrap().start().unwrap()
}

fn counters() -> Arc<Catalog> {
    let catalog = volatile();
    let columns = vec![Column::new("k", DataType::Int), Column::new("n", DataType::BigInt)];
    catalog.create_table("counters", Schema::new(columns, &["k"]).unwrap(), TableOptions::default()).unwrap();
    catalog
}

#[test]
fn a_conflict_runs_the_transaction_again_on_the_newer_rows() {
    let catalog = counters();
    let (other, mut runs) = (Arc::clone(&catalog), 0);
    // Another client commits first in the first two runs of the first transaction.
    let running = count_into_counters(&catalog, "t", 4, move || {
        runs += 1;
        if runs <= 2 {
            let tx = other.begin().unwrap();
            other
                .table("counters")
                .unwrap()
                .upsert(&tx, &[Value::Int(0), Value::BigInt(100 * runs)])
                .unwrap();
            tx.commit(Durability::Sync).unwrap();
        }
    });
    let report = running.join().unwrap();
    assert_eq!((report.retries, report.tuples, report.transactions), (2, 4, 4));
    let expected = [vec![Value::Int(0), Value::BigInt(202)], vec![Value::Int(1), Value::BigInt(2)]];
    assert_eq!(rows(&catalog, "counters"), expected);
}

#[test]
fn a_transaction_that_is_always_overtaken_ends_with_the_conflict() {
    let catalog = counters();
    let other = Arc::clone(&catalog);
    let running = count_into_counters(&catalog, "t", 1, move || {
        let tx = other.begin().unwrap();
        other.table("counters").unwrap().upsert(&tx, &[Value::Int(0), Value::BigInt(7)]).unwrap();
        tx.commit(Durability::Sync).unwrap();
    });
    let error = running.join().unwrap_err();
    assert!(error.is_retriable());
    let expected =
        "could not serialize access: table \"counters\", key (k = 0): another transaction was first";
    assert!(error.to_string().starts_with(expected), "{error}");
    assert_eq!(rows(&catalog, "counters")[0][1], Value::BigInt(7));
    assert!(rows(&catalog, "streams_positions").is_empty());
}

#[test]
fn topologies_at_once_on_the_same_rows_count_every_tuple() {
    let catalog = counters();
    let running = ["first", "second", "third"].map(|name| {
        count_into_counters(&catalog, name, 60, || {
            std::thread::sleep(Duration::from_micros(200));
        })
    });
    let mut finished = 0;
    for running in running {
        let (progress, name) = (Arc::clone(running.progress()), running.topology().to_owned());
        match running.join() {
            Ok(report) => assert_eq!(report.tuples, 60),
            // Too many conflicts: it counted its commits, and would continue from there.
            Err(error) => assert!(error.is_retriable(), "{name}: {error}"),
        }
        finished += progress.snapshot().tuples as i64;
        println!("{name}: {:?}", progress.snapshot());
    }
    let counted: i64 =
        rows(&catalog, "counters").iter().map(|row| if let Value::BigInt(n) = row[1] { n } else { 0 }).sum();
    assert_eq!(counted, finished);
}

#[test]
fn files_get_committed_lines() {
    let directory = tempfile::TempDir::new().unwrap();
    let (json, csv) = (directory.path().join("out.jsonl"), directory.path().join("out.csv"));
    // A crash in the middle of a line leaves an incomplete one.
    std::fs::write(&json, "{\"meter\":0}\n{\"met").unwrap();
    let catalog = volatile();
    let topology = Topology::builder("t", &catalog);
    let source = GeneratorSource::new(reading_columns(), |n| {
        let tuple =
            vec![Value::Int(1), Value::Timestamp(0), if n == 0 { Value::Null } else { Value::Double(0.5) }];
        (n < 2).then_some(tuple)
    });
    let stream = topology.source("s", source);
    stream.sink(JsonLinesSink::file(&json));
    stream.sink(CsvSink::new(&csv));
    topology.build().unwrap().run().unwrap();
    let lines = std::fs::read_to_string(&json).unwrap();
    assert_eq!(
        lines,
        "{\"meter\":0}\n{\"at\":\"1970-01-01 00:00:00\",\"meter\":1,\"power\":null}\n\
         {\"at\":\"1970-01-01 00:00:00\",\"meter\":1,\"power\":0.5}\n"
    );
    let lines = std::fs::read_to_string(&csv).unwrap();
    assert_eq!(lines, "meter,at,power\n1,1970-01-01 00:00:00,\n1,1970-01-01 00:00:00,0.5\n");
}

/// Element of one of two marked sources, sent when all before it have been processed.
type Sent = (usize, Element);

/// Runs a topology over two marked sources, whose readings go to one table each and to a window; returns the
/// rows of both tables and the report.
fn run_two(elements: &[Sent]) -> (Vec<Vec<Value>>, Vec<Vec<Value>>, entresol_streams::Report) {
    let catalog = volatile();
    let (first, from_first) = bounded(64);
    let (second, from_second) = bounded(64);
    let topology = Topology::builder("t", &catalog).boundary(Boundary::Punctuated).on_error(OnError::Abort);
    for (name, receiver) in [("a", from_first), ("b", from_second)] {
        topology
            .source(name, ChannelSource::new(reading_columns(), receiver))
            .to_table(ToTable::insert(name).key(&["meter"]));
    }
    let running = topology.build().unwrap();
    let mut senders = [Some(first), Some(second)];
    let report = std::thread::scope(|scope| {
        let report = scope.spawn(move || running.run().unwrap());
        for (source, element) in elements {
            if *element == Element::Punctuation(Punctuation::End) {
                senders[*source] = None;
            } else if let Some(sender) = &senders[*source] {
                sender.send(element.clone()).unwrap();
            }
            // One after another, as far as the topology takes them.
            std::thread::sleep(Duration::from_millis(2));
        }
        drop(senders);
        report.join().unwrap()
    });
    (rows(&catalog, "a"), rows(&catalog, "b"), report)
}

fn meters(rows: &[Vec<Value>]) -> Vec<Value> {
    rows.iter().map(|row| row[0].clone()).collect()
}

#[test]
fn a_transaction_of_two_marked_sources_is_complete_when_both_have_marked_theirs() {
    let tuple = |meter| Element::Tuples(vec![reading(meter, 1, 0.0)]);
    let end = || Element::Punctuation(Punctuation::End);
    // The commit of one leaves the other's half transaction alone, which is aborted later.
    let (a, b, report) = run_two(&[
        (1, tuple(1)),
        (0, tuple(1)),
        (0, commit()),
        (1, tuple(2)),
        (1, abort()),
        (0, tuple(2)),
        (1, tuple(3)),
        (1, commit()),
        (0, commit()),
    ]);
    assert_eq!((meters(&a), meters(&b)), (vec![Value::Int(2)], vec![Value::Int(3)]));
    assert_eq!(report.aborts, 1);
    // A Begin without a mark before it, and an end, drop the open parts of their transaction only.
    let (a, b, report) = run_two(&[
        (0, tuple(1)),
        (1, tuple(1)),
        (0, Element::Punctuation(Punctuation::Begin)),
        (1, commit()),
        (0, tuple(2)),
        (1, tuple(2)),
        (0, commit()),
        (1, commit()),
        (1, tuple(3)),
        (0, tuple(3)),
        (0, commit()),
        (1, end()),
    ]);
    assert_eq!((meters(&a), meters(&b)), (vec![Value::Int(2)], vec![Value::Int(2)]));
    assert_eq!(report.aborts, 2);
    // One that has ended has no part in what follows.
    let (a, b, report) = run_two(&[
        (0, tuple(1)),
        (1, tuple(1)),
        (0, commit()),
        (0, end()),
        (1, commit()),
        (1, tuple(2)),
        (1, commit()),
    ]);
    assert_eq!((meters(&a), meters(&b)), (vec![Value::Int(1)], vec![Value::Int(1), Value::Int(2)]));
    assert_eq!(report.aborts, 0);
}

/// Adds a column to a table.
fn add_column(catalog: &Catalog, table: &str, name: &str) {
    let changed = catalog.redefine(table, None::<Verify<'_, Error>>, |definition| {
        definition.schema =
            Arc::new(definition.schema.with_column(Column::new(name, DataType::Int), Value::Null)?);
        definition.defaults.push(None);
        Ok(())
    });
    changed.unwrap();
}

#[test]
fn a_topology_goes_on_when_a_table_gets_a_column() {
    let catalog = counters();
    let (other, mut runs) = (Arc::clone(&catalog), 0);
    let running = count_into_counters(&catalog, "t", 10, move || {
        runs += 1;
        if runs == 5 {
            add_column(&other, "counters", "more");
        }
    });
    let report = running.join().unwrap();
    assert_eq!((report.tuples, report.transactions), (10, 10));
    let row = |key| vec![Value::Int(key), Value::BigInt(5), Value::Null];
    assert_eq!(rows(&catalog, "counters"), [row(0), row(1)]);
}

#[test]
fn streams_of_a_table_keep_their_columns_when_it_gets_one() {
    for (trigger, with_deletes) in [Trigger::EachTuple, Trigger::OnCommit]
        .into_iter()
        .flat_map(|trigger| [(trigger, false), (trigger, true)])
    {
        let catalog = volatile();
        let topology = Topology::builder("t", &catalog).boundary(Boundary::Every(1));
        let (other, mut read) = (Arc::clone(&catalog), 0);
        let source = GeneratorSource::new(reading_columns(), move |n| {
            read += 1;
            if read == 3 {
                add_column(&other, "latest", "more");
            }
            (n < 5).then(|| reading(n as i32, n as i64, 1.0))
        });
        topology.source("s", source).to_table(ToTable::upsert("latest").key(&["meter"]));
        let changes = if with_deletes {
            topology.to_stream_changes("latest", trigger)
        } else {
            topology.to_stream("latest", trigger)
        };
        changes.select(&["meter", "power"]).to_table(ToTable::upsert("copy").key(&["meter"]));
        topology.build().unwrap().run().unwrap();
        let copied = (0..5).map(|meter| vec![Value::Int(meter), Value::Double(1.0)]).collect::<Vec<_>>();
        assert_eq!(rows(&catalog, "copy"), copied, "{trigger:?}, deletes: {with_deletes}");
        assert_eq!(rows(&catalog, "latest").len(), 5);
    }
}

#[test]
fn a_topology_ends_with_a_table_that_it_cannot_write_any_more() {
    let catalog = counters();
    let (other, mut runs) = (Arc::clone(&catalog), 0);
    let running = count_into_counters(&catalog, "t", 10, move || {
        runs += 1;
        if runs == 3 {
            other.drop_table("counters").unwrap();
        }
    });
    let error = running.join().unwrap_err();
    assert_eq!(error.to_string(), "relation \"counters\" does not exist");
}

#[test]
fn a_refused_topology_leaves_no_table() {
    let catalog = volatile();
    let columns = vec![Column::new("meter", DataType::Int), Column::new("count", DataType::BigInt)];
    let mut definition = TableDefinition::plain(Schema::new(columns, &["meter"]).unwrap());
    definition.defaults[1] = Some("7".to_owned());
    catalog.create_table_as("with_default", definition, TableOptions::default()).unwrap();
    let topology = Topology::builder("t", &catalog);
    let source = GeneratorSource::new(reading_columns(), |_| None);
    let counted = topology
        .source("s", source)
        .window(TimeWindow::tumbling("at", Duration::from_secs(1)))
        .group_by(&["meter"])
        .aggregate(&[Aggregate::count()], "open_windows");
    counted.to_table(ToTable::upsert("counted"));
    counted.select(&["meter", "count"]).to_table("with_default");
    let error = topology.build().err().unwrap().to_string();
    assert!(error.contains("has defaults or checks"), "{error}");
    for table in ["open_windows", "counted"] {
        assert!(catalog.table(table).is_err(), "{table} is left behind");
    }
}

/// Sink that fails for some of the transactions.
struct Unreliable {
    calls: u64,
    sent: crossbeam_channel::Sender<Element>,
}

impl Sink for Unreliable {
    fn open(&mut self, _columns: &[Column]) -> Result<(), StreamError> {
        Ok(())
    }

    fn emit(&mut self, batch: &Batch) -> Result<(), StreamError> {
        self.calls += 1;
        if self.calls.is_multiple_of(3) {
            return Err(StreamError::Disconnected { endpoint: "unreliable".to_owned() });
        }
        self.sent.send(Element::Batch(batch.clone())).unwrap();
        Ok(())
    }
}

#[test]
fn a_failing_sink_loses_its_transactions_and_stops_nobody() {
    let catalog = volatile();
    let topology = Topology::builder("t", &catalog).boundary(Boundary::Every(2));
    let source = GeneratorSource::new(reading_columns(), |n| (n < 12).then(|| reading(n as i32, 1, 1.0)));
    let (sent, received) = crossbeam_channel::unbounded();
    let stream = topology.source("s", source);
    stream.sink(Unreliable { calls: 0, sent });
    stream.to_table(ToTable::upsert("all").key(&["meter"]));
    let report = topology.build().unwrap().run().unwrap();
    assert_eq!((report.tuples, report.transactions, report.lost), (12, 6, 4));
    assert_eq!(rows(&catalog, "all").len(), 12);
    let sent = received.try_iter().map(|element| match element {
        Element::Batch(batch) => {
            batch.tuples().unwrap().into_iter().map(|tuple| tuple[0].clone()).collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    });
    let meters: Vec<Value> = sent.flatten().collect();
    assert_eq!(meters, [0, 1, 2, 3, 6, 7, 8, 9].map(Value::Int));
}

#[test]
fn a_state_belongs_to_its_topology() {
    let catalog = volatile();
    let build = |name: &str| {
        let topology = Topology::builder(name, &catalog);
        let source = GeneratorSource::new(reading_columns(), |n| (n < 3).then(|| reading(1, n as i64, 1.0)));
        let window = TimeWindow::tumbling("at", Duration::from_secs(10));
        topology
            .source("s", source)
            .window(window)
            .aggregate(&[Aggregate::count()], "open")
            .to_table("counted");
        topology.build()
    };
    build("first").unwrap().run().unwrap();
    let owner = |table: &str| catalog.table(table).unwrap().definition().owner.clone();
    assert_eq!(owner("open").as_deref(), Some("topology first"));
    assert_eq!(owner("streams_positions").as_deref(), Some("the topologies"));
    assert_eq!(owner("counted"), None, "anyone may write a target");
    let error = build("second").err().unwrap().to_string();
    assert_eq!(error, "topology second: table open is state of topology first");
    build("first").unwrap().run().unwrap();

    // One of an earlier release has no owner: its topology takes it over.
    catalog
        .redefine("open", None::<Verify<'_, Error>>, |definition| {
            definition.owner = None;
            Ok(())
        })
        .unwrap();
    build("second").unwrap();
    assert_eq!(owner("open").as_deref(), Some("topology second"));
}
