//! Errors of labelled steps: the tuple at which an operator fails, in batches and at the commit.

use crate::support::*;
use entresol_streams::{
    Batch, Boundary, Context, Error, GeneratorSource, OnError, Operator, Output, Result, Topology,
};
use entresol_tables::{Column, DataType, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

fn columns() -> Vec<Column> {
    vec![Column::new("n", DataType::BigInt).not_null()]
}

/// Operator with state that cannot go past a number: in a batch, or when it sends what it has at the commit.
struct Summing {
    seen: Vec<i64>,
    refused: i64,
    at_commit: bool,
    calls: Arc<AtomicU64>,
}

impl Summing {
    fn check(&self, n: i64) -> Result<()> {
        if n < self.refused {
            return Ok(());
        }
        Err(Error::Tuple { operator: self.name().to_owned(), reason: format!("{n} is too large") })
    }
}

impl Operator for Summing {
    fn name(&self) -> &str {
        "sum"
    }

    fn batch(&mut self, _: &Context<'_>, batch: &Batch, output: &mut Output) -> Result<()> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        for tuple in batch.tuples()? {
            let Value::BigInt(n) = tuple[0] else { panic!("{tuple:?}") };
            if !self.at_commit {
                self.check(n)?;
            }
            self.seen.push(n);
        }
        output.push(batch.clone());
        Ok(())
    }

    fn commit(&mut self, _: &Context<'_>, _: &mut Output) -> Result<()> {
        let last = self.seen.last().copied().unwrap_or_default();
        if self.at_commit { self.check(last) } else { Ok(()) }
    }

    fn committed(&mut self) -> Result<()> {
        self.seen.clear();
        Ok(())
    }

    fn aborted(&mut self) {
        self.seen.clear();
    }
}

/// Runs a topology over the numbers below 1,000, in transactions of 300, of which the operator refuses those from 457 on.
fn run(on_error: OnError, at_commit: bool, label: Option<&str>) -> (Result<u64, String>, Vec<i64>, u64) {
    let catalog = volatile();
    let topology = Topology::builder("t", &catalog)
        .boundary(Boundary::Every(300))
        .on_error(on_error)
        .sqlstates(|_| Some("22000"));
    let numbers = GeneratorSource::new(columns(), |n| (n < 1000).then(|| vec![Value::BigInt(n as i64)]));
    let source = topology.source("numbers", numbers);
    topology.label(label);
    let calls = Arc::new(AtomicU64::new(0));
    let summing = Summing { seen: Vec::new(), refused: 457, at_commit, calls: Arc::clone(&calls) };
    source.apply(columns(), summing).to_table("stored");
    let report = topology.build().unwrap().run();
    let stored = rows(&catalog, "stored").into_iter().map(|row| match row[0] {
        Value::BigInt(n) => n,
        ref other => panic!("{other:?}"),
    });
    let mut stored: Vec<i64> = stored.collect();
    stored.sort_unstable();
    let outcome = report.map(|report| report.aborts).map_err(|error| error.to_string());
    (outcome, stored, calls.load(Ordering::Relaxed))
}

#[test]
fn the_first_tuple_that_an_operator_with_state_refuses_is_found() {
    let (outcome, stored, calls) = run(OnError::Stop, false, Some("step 1 (SUM)"));
    assert_eq!(outcome.unwrap_err(), "step 1 (SUM): 457 is too large (SQLSTATE 22000); row: n = 457");
    assert_eq!(stored, (0..300).collect::<Vec<_>>());
    // One batch at a time, and the tuples of the one that failed up to it.
    assert!(calls < 300, "{calls} calls");
    // What is dropped is dropped as without a label.
    let labelled = run(OnError::Abort, false, Some("step 1 (SUM)"));
    let plain = run(OnError::Abort, false, None);
    assert_eq!((&labelled.0, &labelled.1), (&plain.0, &plain.1));
    assert_eq!(labelled.0, Ok(3));
}

#[test]
fn an_error_at_the_commit_has_its_step_and_no_tuple() {
    let (outcome, stored, _) = run(OnError::Stop, true, Some("step 1 (SUM)"));
    assert_eq!(outcome.unwrap_err(), "step 1 (SUM): 599 is too large (SQLSTATE 22000)");
    assert_eq!(stored, (0..300).collect::<Vec<_>>());
    let (outcome, ..) = run(OnError::Stop, false, None);
    assert_eq!(outcome.unwrap_err(), "operator sum: 457 is too large");
}
