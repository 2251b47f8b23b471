//! Exactly once over stops and crashes: the tables are as if the stream had been read in one run.

use crate::support::*;
use entresol_memory::Durability;
use entresol_streams::{
    Aggregate, Boundary, ChannelSink, CsvSource, Element, Error, GeneratorSource, POSITIONS_TABLE,
    TimeWindow, ToTable, Topology, TopologyBuilder, Trigger, Tuple,
};
use entresol_tables::{Catalog, Value};
use std::sync::Arc;
use std::time::Duration;

const READINGS: u64 = 3_000;

/// Windows per meter, and the latest reading of each meter.
fn metering(catalog: &Arc<Catalog>, seed: u64, boundary: Boundary, readings: u64) -> TopologyBuilder {
    let topology = Topology::builder("metering", catalog).boundary(boundary).durability(Durability::None);
    let source = GeneratorSource::new(reading_columns(), move |n| {
        (n < readings).then(|| random_reading(seed, n, 7, 20))
    });
    let readings = topology.source("readings", source);
    let window = TimeWindow::tumbling("at", Duration::from_secs(30)).lateness(Duration::from_secs(10));
    let aggregates =
        [Aggregate::count(), Aggregate::sum("power"), Aggregate::min("power"), Aggregate::max("power")];
    readings
        .window(window)
        .group_by(&["meter"])
        .aggregate(&aggregates, "open")
        .to_table(ToTable::insert("windows").key(&["meter", "window_start"]));
    readings.to_table(ToTable::upsert("latest").key(&["meter"]));
    topology
}

/// Runs until about `tuples` more are committed, then stops or crashes.
fn run_some(catalog: &Arc<Catalog>, topology: TopologyBuilder, tuples: u64) {
    let running = topology.build().unwrap().start().unwrap();
    while running.progress().snapshot().tuples < tuples && !running.is_finished() {
        std::thread::yield_now();
    }
    running.stop();
    running.join().unwrap();
    catalog.context().pool().sync().unwrap();
}

fn check_against_one_run(catalog: &Arc<Catalog>, seed: u64) {
    let readings: Vec<Tuple> = (0..READINGS).map(|n| random_reading(seed, n, 7, 20)).collect();
    let (expected, _) = recompute(&readings, 30, 10);
    assert_eq!(as_oracle(&rows(catalog, "windows")), expected);
    let whole = volatile();
    metering(&whole, seed, Boundary::Every(100), READINGS).build().unwrap().run().unwrap();
    assert_eq!(rows(catalog, "latest"), rows(&whole, "latest"));
    assert!(rows(catalog, "open").is_empty());
    let position = &rows(catalog, POSITIONS_TABLE)[0];
    assert_eq!(position[2], Value::BigInt(READINGS as i64));
}

#[test]
fn exactly_once_over_stops_and_reopening_without_a_close() {
    let seed = seed();
    let mut random = Random(seed);
    for boundary in [Boundary::Every(37), Boundary::PerWindow, Boundary::EachTuple] {
        let directory = tempfile::TempDir::new().unwrap();
        for _ in 0..6 {
            let catalog = journal(directory.path());
            let topology = metering(&catalog, seed, boundary, READINGS);
            run_some(&catalog, topology, 1 + random.below(READINGS / 4));
        }
        let catalog = journal(directory.path());
        metering(&catalog, seed, boundary, READINGS).build().unwrap().run().unwrap();
        check_against_one_run(&catalog, seed);
        let again = metering(&catalog, seed, boundary, READINGS).build().unwrap().run().unwrap();
        assert_eq!((again.tuples, again.transactions), (0, 0), "nothing is left to do");
        check_against_one_run(&catalog, seed);
    }
}

#[test]
fn exactly_once_over_errors_in_the_middle_of_transactions() {
    let seed = seed();
    let directory = tempfile::TempDir::new().unwrap();
    let mut random = Random(seed);
    let mut done = 0;
    while done < READINGS as i64 {
        let catalog = journal(directory.path());
        let fails_at = done as u64 + 200 + random.below(500);
        let topology = Topology::builder("metering", &catalog).boundary(Boundary::Every(50));
        let source = GeneratorSource::new(reading_columns(), move |n| {
            (n < READINGS).then(|| random_reading(seed, n, 7, 20))
        });
        let mut seen = done as u64;
        // Fails in the middle of a batch, behind the operators that have already written into the
        // transaction.
        let readings = topology.source("readings", source);
        let window = TimeWindow::tumbling("at", Duration::from_secs(30)).lateness(Duration::from_secs(10));
        let aggregates =
            [Aggregate::count(), Aggregate::sum("power"), Aggregate::min("power"), Aggregate::max("power")];
        readings
            .window(window)
            .group_by(&["meter"])
            .aggregate(&aggregates, "open")
            .to_table(ToTable::insert("windows").key(&["meter", "window_start"]));
        readings.to_table(ToTable::upsert("latest").key(&["meter"]));
        readings
            .try_map(reading_columns(), move |tuple| {
                seen += 1;
                if seen == fails_at { Err("stumbles".to_owned()) } else { Ok(Some(tuple.to_vec())) }
            })
            .to_table(ToTable::upsert("latest_again").key(&["meter"]));
        let result = topology.build().unwrap().run();
        if let Err(error) = &result {
            assert!(matches!(error, Error::Tuple { .. }), "{error}");
        }
        done = match rows(&catalog, POSITIONS_TABLE).first() {
            Some(row) => match row[2] {
                Value::BigInt(position) => position,
                _ => unreachable!(),
            },
            None => 0,
        };
        assert_eq!(done % 50, 0);
        assert_eq!(rows(&catalog, "latest"), rows(&catalog, "latest_again"));
    }
    check_against_one_run(&journal(directory.path()), seed);
}

#[test]
fn a_file_that_grows_is_read_on_and_its_rejects_are_counted_once() {
    let directory = tempfile::TempDir::new().unwrap();
    let (file, rejects) = (directory.path().join("in.csv"), directory.path().join("rejects.csv"));
    let mut text = "meter,at,power\n".to_owned();
    for round in 0..4 {
        for n in 0..300 {
            let second = round * 300 + n;
            text += &format!("{},{},1.5\n", n % 3, support_time(second));
            if n % 50 == 7 {
                text += "not,a reading\n";
            }
        }
        std::fs::write(&file, &text).unwrap();
        let catalog = journal(&directory.path().join("db"));
        let topology = Topology::builder("import", &catalog).boundary(Boundary::Every(64));
        let source = CsvSource::new(&file, reading_columns()).rejects(&rejects);
        topology.source("file", source).to_table(ToTable::insert("readings").key(&["meter", "at"]));
        let report = topology.build().unwrap().run().unwrap();
        assert_eq!((report.tuples, report.rejected_rows), (300, 6));
        assert_eq!(rows(&catalog, "readings").len() as i64, (round + 1) * 300);
        let position = &rows(&catalog, POSITIONS_TABLE)[0];
        assert_eq!(position[2], Value::BigInt(text.len() as i64));
        assert_eq!(position[4..], [Value::BigInt((round + 1) * 300), Value::BigInt((round + 1) * 6)]);
        let written = std::fs::read_to_string(&rejects).unwrap();
        assert_eq!(written.lines().count() as i64, 1 + (round + 1) * 6);
        assert_eq!(written.lines().nth(1), Some("10,\"expected 3 fields, found 2\",\"not,a reading\""));
    }
}

fn support_time(second: i64) -> String {
    Value::Timestamp(second * SECOND_US).to_string()
}

#[test]
fn the_same_topology_twice_at_once_is_noticed() {
    let catalog = volatile();
    let first = metering(&catalog, 1, Boundary::Every(50), READINGS).build().unwrap();
    let second = metering(&catalog, 1, Boundary::Every(50), READINGS).build().unwrap();
    first.run().unwrap();
    let error = second.run().unwrap_err();
    assert!(matches!(error, Error::PositionMoved { .. } | Error::Tables(_)), "{error}");
    check_against_one_run(&catalog, 1);
}

#[test]
fn sinks_get_each_committed_tuple_once_over_clean_stops() {
    let directory = tempfile::TempDir::new().unwrap();
    let mut received = Vec::new();
    for _ in 0..3 {
        let catalog = journal(directory.path());
        let (sender, receiver) = crossbeam_channel::unbounded();
        let topology = Topology::builder("t", &catalog).boundary(Boundary::Every(10));
        let source =
            GeneratorSource::new(reading_columns(), |n| (n < 400).then(|| random_reading(3, n, 5, 0)));
        topology.source("s", source).to_table(ToTable::upsert("latest").key(&["meter"]));
        topology.to_stream("latest", Trigger::OnCommit).sink(ChannelSink::new(sender));
        run_some(&catalog, topology, 100);
        while let Ok(Element::Batch(batch)) = receiver.try_recv() {
            received.extend(batch.tuples().unwrap());
        }
        let stored = rows(&catalog, "latest");
        for row in stored {
            let last = received.iter().rfind(|tuple| tuple[0] == row[0]);
            assert_eq!(last, Some(&row), "the last that came out is what is stored");
        }
    }
}
