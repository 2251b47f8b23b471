//! Transactions that rows of sources mark: each is committed as it was marked, over runs, batches and several sources.

use crate::support::*;
use entresol_streams::{
    Batch, Boundary, MarkedSource, Next, Position, Positions, Reject, Result, Sink, Source, SourceBatch,
    ToTable, Topology, TopologyBuilder, TransactionColumns,
};
use entresol_tables::{BatchBuilder, Catalog, Column, DataType, Value};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Row of a source: id of its transaction, whether it is a mark, and a number; or a record that is rejected.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Line {
    Row(Option<i64>, i64),
    Mark(Option<i64>),
    Reject,
}

/// Source of lines, in batches of at most so many.
#[derive(Clone)]
struct Script {
    lines: Vec<Line>,
    batch: usize,
    at: usize,
    /// True if it has no end.
    tails: bool,
    /// Number of calls that found nothing.
    idle: Arc<AtomicUsize>,
}

impl Script {
    fn new(lines: &[Line], batch: usize) -> Script {
        Script { lines: lines.to_vec(), batch, at: 0, tails: false, idle: Arc::default() }
    }

    fn marked(self, id: bool, end: bool) -> MarkedSource {
        let name = |is_there: bool, name: &str| is_there.then(|| name.to_owned());
        let columns = TransactionColumns { id: name(id, "tx"), end: name(end, "last") };
        MarkedSource::new(Box::new(self), &columns)
    }
}

impl Source for Script {
    fn columns(&self) -> Vec<Column> {
        vec![
            Column::new("tx", DataType::BigInt),
            Column::new("last", DataType::Boolean),
            Column::new("n", DataType::BigInt).not_null(),
        ]
    }

    fn open(&mut self, from: Option<Position>) -> Result<()> {
        self.at = from.unwrap_or_default().offset as usize;
        Ok(())
    }

    fn next(&mut self, _tuples_max: usize) -> Result<Next> {
        let mut builder = BatchBuilder::new(&self.columns(), 0);
        let (mut positions, mut rejects) = (Vec::new(), Vec::new());
        let to = self.lines.len().min(self.at + self.batch);
        if self.at >= to {
            self.idle.fetch_add(1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_micros(100));
            return Ok(if self.tails { Next::Idle } else { Next::End });
        }
        let number = |number: Option<i64>| number.map_or(Value::Null, Value::BigInt);
        for at in self.at..to {
            let tuple = match self.lines[at] {
                Line::Row(id, n) => [number(id), Value::Null, Value::BigInt(n)],
                Line::Mark(id) => [number(id), Value::Boolean(true), Value::BigInt(-1)],
                Line::Reject => {
                    let (line, reason, raw) = (at as u64, "no row".to_owned(), String::new());
                    rejects.push(Reject { tuples_before: positions.len(), line, offset: None, reason, raw });
                    continue;
                }
            };
            builder.push(&tuple).unwrap();
            positions.push(Position { offset: at as u64 + 1, line: 0 });
        }
        self.at = to;
        let end = Position { offset: to as u64, line: 0 };
        let positions = Positions::Listed(positions);
        Ok(Next::Batch(SourceBatch { tuples: builder.finish(), positions, rejects, end, split: None }))
    }
}

/// Numbers of each transaction.
type Transactions = Vec<Vec<i64>>;

/// Sink of the numbers of each transaction.
#[derive(Clone, Default)]
struct Collected {
    open: Vec<i64>,
    all: Arc<Mutex<Transactions>>,
}

impl Sink for Collected {
    fn open(&mut self, _columns: &[Column]) -> Result<()> {
        Ok(())
    }

    fn emit(&mut self, batch: &Batch) -> Result<()> {
        self.open.extend(batch.tuples()?.iter().map(|tuple| match tuple[2] {
            Value::BigInt(n @ 0..) => n,
            _ => panic!("a mark row is no row: {tuple:?}"),
        }));
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.all.lock().unwrap().push(std::mem::take(&mut self.open));
        Ok(())
    }
}

fn builder(catalog: &Arc<Catalog>) -> TopologyBuilder {
    Topology::builder("t", catalog).boundary(Boundary::Punctuated)
}

/// Transactions of one source, the number of rejected records, and the error that ended it, if there was one.
fn run(catalog: &Arc<Catalog>, source: MarkedSource) -> (Transactions, u64, Option<String>) {
    let (topology, collected) = (builder(catalog), Collected::default());
    let rows = topology.source("s", source);
    rows.sink(collected.clone());
    rows.to_table(ToTable::upsert("numbers").key(&["n"]));
    let (rejected, error) = match topology.build().unwrap().run() {
        Ok(report) => (report.rejected_rows, None),
        Err(error) => (0, Some(error.to_string())),
    };
    let all = std::mem::take(&mut *collected.all.lock().unwrap());
    (all, rejected, error)
}

/// Random lines of transactions, and these.
fn random_lines(random: &mut Random, transactions: i64, ends: bool) -> (Vec<Line>, Transactions) {
    let (mut lines, mut wanted, mut n) = (Vec::new(), Vec::new(), 0);
    for id in 0..transactions {
        let rows = random.below(7) + u64::from(!ends);
        let mut numbers = Vec::new();
        for row in 0..rows {
            if random.below(8) == 0 {
                lines.push(Line::Reject);
            }
            // The first row has an id: without one it would be of the transaction before.
            let has_id = row == 0 || random.below(4) > 0;
            lines.push(Line::Row(has_id.then_some(id), n));
            numbers.push(n);
            n += 1;
        }
        if ends {
            lines.push(Line::Mark((random.below(3) > 0 || rows == 0).then_some(id)));
        }
        wanted.push(numbers);
    }
    wanted.retain(|numbers| !numbers.is_empty());
    (lines, wanted)
}

#[test]
fn transactions_are_as_they_are_marked() {
    let seed = seed();
    for round in 0..200 {
        let mut random = Random(seed ^ round);
        let ends = round % 2 == 0;
        let (lines, wanted) = random_lines(&mut random, 12, ends);
        let batch = 1 + random.below(9) as usize;
        let rejects = lines.iter().filter(|line| **line == Line::Reject).count() as u64;
        let found = run(&volatile(), Script::new(&lines, batch).marked(true, ends));
        assert_eq!(found, (wanted.clone(), rejects, None), "round {round}");
        if ends {
            // Marks are enough.
            let found = run(&volatile(), Script::new(&lines, batch).marked(false, true));
            assert_eq!(found, (wanted, rejects, None), "round {round} without ids");
        }
    }
}

/// A source that ends anywhere goes on there: transactions that were not complete come as a whole.
#[test]
fn transactions_are_complete_over_runs_that_end_anywhere() {
    let seed = seed();
    for round in 0..10 {
        let mut random = Random(seed ^ (round + 1000));
        let (lines, wanted) = random_lines(&mut random, 6, true);
        let database = tempfile::tempdir().unwrap();
        let mut found = Vec::new();
        let mut to = 0;
        while to < lines.len() {
            to = lines.len().min(to + 1 + random.below(4) as usize);
            let batch = 1 + random.below(5) as usize;
            let catalog = journal(database.path());
            let (transactions, _, error) = run(&catalog, Script::new(&lines[..to], batch).marked(true, true));
            found.extend(transactions);
            if let Some(error) = error {
                assert!(error.contains("has no end at the end of the source"), "{error}");
            }
        }
        assert_eq!(found, wanted, "round {round}");
        assert_eq!(rows(&journal(database.path()), "numbers").len(), wanted.concat().len());
    }
}

#[test]
fn rows_and_marks_of_other_transactions_are_errors() {
    for (lines, reason) in [
        (
            [Line::Row(Some(1), 1), Line::Row(Some(2), 2)],
            "transaction 1 has no end before the first row of transaction 2",
        ),
        (
            [Line::Row(Some(1), 1), Line::Mark(Some(2))],
            "transaction 1 has no end before the first row of transaction 2",
        ),
        ([Line::Mark(Some(1)), Line::Row(Some(2), 2)], "transaction 2 has no end at the end of the source"),
    ] {
        let (found, _, error) = run(&volatile(), Script::new(&lines, 9).marked(true, true));
        assert!(error.as_ref().is_some_and(|error| error.contains(reason)), "{error:?}");
        assert_eq!(found, Transactions::new());
    }
    let lines = [Line::Row(None, 1)];
    let (_, _, error) = run(&volatile(), Script::new(&lines, 9).marked(true, false));
    assert!(error.is_some_and(|error| error.contains("no end at the end")), "a row without any id");
}

/// Parts of the same transactions in two sources, in batches of other sizes, are committed together.
#[test]
fn parts_of_several_sources_are_one_transaction() {
    let seed = seed();
    for round in 0..40 {
        let mut random = Random(seed ^ (round + 2000));
        let mut parts = [Vec::new(), Vec::new()];
        let mut wanted = Transactions::new();
        for id in 0..9 {
            let mut numbers = Vec::new();
            for (source, lines) in parts.iter_mut().enumerate() {
                for row in 0..random.below(4) as i64 {
                    let n = id * 100 + source as i64 * 10 + row;
                    lines.push(Line::Row(Some(id), n));
                    numbers.push(n);
                }
                lines.push(Line::Mark(Some(id)));
            }
            wanted.push(numbers);
        }
        wanted.retain(|numbers| !numbers.is_empty());
        let (catalog, collected) = (volatile(), Collected::default());
        let topology = builder(&catalog);
        let [left, right] = [0, 1].map(|source| {
            let script = Script::new(&parts[source], 1 + random.below(6) as usize);
            topology.source(["left", "right"][source], script.marked(true, true))
        });
        left.union(&right).sink(collected.clone());
        topology.build().unwrap().run().unwrap();
        let mut found = std::mem::take(&mut *collected.all.lock().unwrap());
        found.iter_mut().for_each(|numbers| numbers.sort_unstable());
        assert_eq!(found, wanted, "round {round}");
    }
}

/// A stop behind the mark of a part without rows, before the other part has come, does not lose the alignment.
#[test]
fn a_stop_between_the_parts_of_a_transaction_keeps_it() {
    let database = tempfile::tempdir().unwrap();
    let left = [Line::Mark(Some(1)), Line::Row(Some(2), 2), Line::Mark(Some(2))];
    let right = [Line::Row(Some(1), 1), Line::Mark(Some(1)), Line::Mark(Some(2))];
    for lines in [&right[..0], &right[..]] {
        let (catalog, collected) = (journal(database.path()), Collected::default());
        let topology = builder(&catalog);
        let (of_left, mut of_right) = (Script::new(&left, 1), Script::new(lines, 1));
        of_right.tails = lines.is_empty();
        let idle = Arc::clone(&of_right.idle);
        let sources = [("left", of_left), ("right", of_right)];
        let [left, right] = sources.map(|(name, script)| topology.source(name, script.marked(true, true)));
        left.union(&right).sink(collected.clone());
        let running = topology.build().unwrap().start().unwrap();
        if lines.is_empty() {
            while idle.load(Ordering::SeqCst) < 20 {
                std::thread::sleep(Duration::from_millis(1));
            }
            running.stop();
        }
        running.join().unwrap();
        let wanted: Transactions = if lines.is_empty() { vec![] } else { vec![vec![1], vec![2]] };
        assert_eq!(*collected.all.lock().unwrap(), wanted);
    }
}

/// Rows of other sources are of the transaction that the leader ends next, and with the leader the topology ends.
#[test]
fn one_source_leads() {
    let (catalog, collected) = (volatile(), Collected::default());
    let topology = builder(&catalog).leader("orders");
    let mut random = Random(seed());
    let (lines, wanted) = random_lines(&mut random, 30, true);
    let others: Vec<Line> = (1000..1200).map(|n| Line::Row(None, n)).collect();
    let mut prices = Script::new(&others, 3);
    prices.tails = true;
    let orders = topology.source("orders", Script::new(&lines, 4).marked(true, true));
    let prices = topology.source("prices", prices);
    orders.union(&prices).sink(collected.clone());
    topology.build().unwrap().run().unwrap();
    let found = std::mem::take(&mut *collected.all.lock().unwrap());
    let of = |is_led: bool| -> Transactions {
        let part = |numbers: &Vec<i64>| {
            numbers.iter().copied().filter(|n| (*n >= 1000) == is_led).collect::<Vec<_>>()
        };
        found.iter().map(part).filter(|numbers| !numbers.is_empty()).collect()
    };
    assert_eq!(of(false), wanted);
    let led = of(true).concat();
    assert_eq!(led, (1000..1000 + led.len() as i64).collect::<Vec<_>>());
    assert!(!led.is_empty() && of(true).len() > 1, "{led:?}");
    // One that leads has to be there, and to mark.
    let other = builder(&catalog).leader("nothing");
    other.source("s", Script::new(&lines, 4).marked(true, true)).to_table("numbers");
    assert!(other.build().err().unwrap().to_string().contains("source nothing, which leads, is none"));
    let rows = Topology::builder("t", &catalog).boundary(Boundary::Every(9)).leader("s");
    rows.source("s", Script::new(&lines, 4).marked(true, true)).to_table("numbers");
    assert!(rows.build().err().unwrap().to_string().contains("its marks are not the boundary"));
}
