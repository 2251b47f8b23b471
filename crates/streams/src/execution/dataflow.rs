//! Dataflow: the operators and the elements in flight between them.
//!
//! - A pass visits every node once, in topological order; so a node has all its input of the pass before it
//!   runs, and sees each punctuation once.
//! - A node's watermark is the least watermark of its upstream nodes. It never decreases within a
//!   transaction; an abort resets it to its value at the last commit.
//! - Between passes all inboxes are empty.
//! - An error of a node has the label of its step. To find its tuple, the epoch is computed again, and the batch that
//!   failed is passed in parts ([`Dataflow::locate_failure`]).

use crate::element::Batch;
use crate::error::{Error, Result, StepError};
use crate::event_time::EventTime;
use crate::execution::skipped::{SkippedTuples, in_parts, record};
use crate::operators::{Context, Operator, Output};
use crate::running::{OperatorCounts, TupleCounts};
use entresol_transactions::Transaction;
use std::sync::Arc;

/// Bytes of the values of a tuple in an error; the rest is left out.
const SHOWN_BYTES_MAX: usize = 500;

pub(crate) struct Dataflow {
    nodes: Vec<DataflowNode>,
    order: Vec<usize>,
    /// Inputs of the nodes, until all are added.
    inputs: Vec<Vec<usize>>,
    /// Tuples that operators left out, if they may.
    skipped: Option<SkippedTuples>,
    sqlstates: Sqlstates,
    /// Batch with which the last pass failed, and the one whose tuples are passed one at a time.
    failed: Option<BatchPlace>,
    located: Option<BatchPlace>,
}

/// SQLSTATEs of errors, as far as they are known.
pub(crate) type Sqlstates = fn(&Error) -> Option<&'static str>;

/// Node, and the number of a batch among those that it has received in an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BatchPlace {
    node: usize,
    batch: u64,
}

/// Label of the step of a node, for its errors.
struct StepLabel {
    step: Option<Arc<str>>,
    sqlstates: Sqlstates,
}

impl StepLabel {
    /// Error with the label.
    fn of(&self, error: Error) -> Error {
        match (&self.step, error) {
            (None, error) | (_, error @ (Error::InStep(_) | Error::EpochBefore)) => error,
            (Some(step), error) => {
                let (step, sqlstate) = (step.to_string(), (self.sqlstates)(&error));
                Error::InStep(Box::new(StepError { step, tuple: None, sqlstate, error }))
            }
        }
    }

    /// Error with the label, and the values of its tuple.
    fn of_tuple(&self, error: Error, tuple: &Batch) -> Result<Error> {
        Ok(match self.of(error) {
            Error::InStep(step) => {
                let tuple = Some(record(tuple, SHOWN_BYTES_MAX)?);
                Error::InStep(Box::new(StepError { tuple, ..*step }))
            }
            error => error,
        })
    }
}

struct DataflowNode {
    /// `None` for sources.
    operator: Option<Box<dyn Operator>>,
    /// Label of its step.
    step: Option<Arc<str>>,
    /// Number of batches that it has received in the open epoch.
    batches: u64,
    /// Upstream nodes, whose watermarks count.
    before: Vec<usize>,
    /// Nodes that it sends tuples to, and which of their inputs it is.
    consumers: Vec<(usize, usize)>,
    /// Tuples, and the input that they came from.
    inbox: Vec<(usize, Batch)>,
    watermarks: Watermarks,
    /// Watermarks as of the last commit, and at the end of the epoch that was sealed last.
    committed: Watermarks,
    sealed: Watermarks,
    /// Tuples of the open epoch, and of the sealed one.
    tuples: TupleCounts,
    tuples_sealed: TupleCounts,
}

#[derive(Clone)]
struct Watermarks {
    seen: EventTime,
    sent: EventTime,
    /// Per input, where there are several.
    of_inputs: Vec<EventTime>,
}

impl Dataflow {
    pub(crate) fn new(order: Vec<usize>, skipped: Option<SkippedTuples>, sqlstates: Sqlstates) -> Dataflow {
        let nodes = Vec::with_capacity(order.len());
        Dataflow { nodes, order, inputs: Vec::new(), skipped, sqlstates, failed: None, located: None }
    }

    /// Adds the next node. Upstream nodes may have higher numbers only if they are added later.
    pub(crate) fn add(
        &mut self,
        operator: Option<Box<dyn Operator>>,
        step: Option<Arc<str>>,
        inputs: Vec<usize>,
        after: Vec<usize>,
    ) {
        let of_inputs = if inputs.len() > 1 { vec![EventTime::START; inputs.len()] } else { Vec::new() };
        let none = Watermarks { seen: EventTime::START, sent: EventTime::START, of_inputs };
        self.inputs.push(inputs.clone());
        let mut before = inputs;
        before.extend(after);
        self.nodes.push(DataflowNode {
            operator,
            step,
            batches: 0,
            before,
            consumers: Vec::new(),
            inbox: Vec::new(),
            watermarks: none.clone(),
            sealed: none.clone(),
            committed: none,
            tuples: TupleCounts::default(),
            tuples_sealed: TupleCounts::default(),
        });
        if self.nodes.len() == self.order.len() {
            self.connect();
        }
    }

    /// Connects nodes with their consumers, once all are added.
    fn connect(&mut self) {
        for (node, inputs) in std::mem::take(&mut self.inputs).into_iter().enumerate() {
            for (number, input) in inputs.into_iter().enumerate() {
                self.nodes[input].consumers.push((node, number));
            }
        }
    }

    /// Opens all operators.
    pub(crate) fn open(&mut self) -> Result<()> {
        self.nodes.iter_mut().filter_map(|node| node.operator.as_mut()).try_for_each(|node| node.open())
    }

    /// Passes tuples of a source through all operators.
    pub(crate) fn batch(&mut self, context: &Context<'_>, source: usize, batch: &Batch) -> Result<()> {
        self.send(source, vec![batch.clone()]);
        self.pass(context, false)
    }

    /// Passes a source's watermark through all operators.
    pub(crate) fn watermark(&mut self, context: &Context<'_>, source: usize, time: EventTime) -> Result<()> {
        let sent = &mut self.nodes[source].watermarks.sent;
        *sent = (*sent).max(time);
        self.pass(context, false)
    }

    /// Passes the commit punctuation through all operators.
    pub(crate) fn commit(&mut self, context: &Context<'_>) -> Result<()> {
        self.pass(context, true)
    }

    /// Returns true if an operator has something to send by the clock.
    pub(crate) fn is_due(&self, now: EventTime) -> bool {
        self.nodes.iter().filter_map(|node| node.operator.as_ref()).any(|operator| operator.is_due(now))
    }

    /// Tells all operators that the next commit is the last one of the run.
    pub(crate) fn ending(&mut self) {
        self.nodes.iter_mut().filter_map(|node| node.operator.as_mut()).for_each(|node| node.ending());
    }

    /// Number of tuples that were left out and wait for the commit to be stored.
    pub(crate) fn skipped_pending(&self) -> usize {
        self.skipped.as_ref().map_or(0, SkippedTuples::pending)
    }

    /// Stores the tuples that were left out in the transaction.
    pub(crate) fn write_skipped(&self, transaction: &Transaction) -> Result<()> {
        self.skipped.as_ref().map_or(Ok(()), |skipped| skipped.write(transaction))
    }

    /// Passes the tuples of the batch that failed last one at a time, once it comes again; false if none did.
    pub(crate) fn locate_failure(&mut self) -> bool {
        self.located = self.failed.take();
        self.located.is_some()
    }

    /// Passes all batches as they are again.
    pub(crate) fn end_location(&mut self) {
        self.located = None;
    }

    fn pass(&mut self, context: &Context<'_>, commit: bool) -> Result<()> {
        self.failed = None;
        for at in 0..self.order.len() {
            let number = self.order[at];
            let Some(mut operator) = self.nodes[number].operator.take() else { continue };
            let result = self.visit(context, number, &mut *operator, commit);
            self.nodes[number].operator = Some(operator);
            result.map_err(|error| self.label_of(number).of(error))?;
        }
        Ok(())
    }

    fn label_of(&self, node: usize) -> StepLabel {
        StepLabel { step: self.nodes[node].step.clone(), sqlstates: self.sqlstates }
    }

    /// Passes a batch through an operator; without the tuples that it cannot process, if they may be left out.
    fn process(
        &mut self,
        context: &Context<'_>,
        place: BatchPlace,
        operator: &mut dyn Operator,
        batch: Batch,
        output: &mut Output,
    ) -> Result<()> {
        let (label, takes_parts) = (self.label_of(place.node), operator.takes_each_tuple_alone());
        if let Some(skipped) = self.skipped.as_mut().filter(|_| takes_parts) {
            return in_parts(operator, context, batch, output, |operator, tuple, error| {
                skipped.note(operator, tuple, &label.of(error))
            });
        }
        if self.located != Some(place) {
            return operator.batch(context, &batch, output).inspect_err(|_| self.failed = Some(place));
        }
        if takes_parts {
            return in_parts(operator, context, batch, output, |_, tuple, error| {
                Err(label.of_tuple(error, tuple)?)
            });
        }
        // What is taken back, and what takes its place, belong together.
        if batch.retracted().is_some() {
            return operator.batch(context, &batch, output);
        }
        (0..batch.len()).try_for_each(|at| {
            let tuple = batch.slice(at..at + 1);
            let Err(error) = operator.batch(context, &tuple, output) else { return Ok(()) };
            Err(if error.is_tuple_error() { label.of_tuple(error, &tuple)? } else { error })
        })
    }

    fn visit(
        &mut self,
        context: &Context<'_>,
        number: usize,
        operator: &mut dyn Operator,
        commit: bool,
    ) -> Result<()> {
        let least = self.nodes[number].before.iter().map(|&before| self.nodes[before].watermarks.sent).min();
        let node = &mut self.nodes[number];
        let (late, expired) = (context.counts.late(), context.counts.expired());
        let mut output = Output::default();
        for (input, batch) in std::mem::take(&mut node.inbox) {
            let node = &mut self.nodes[number];
            node.tuples.received += batch.len() as u64;
            node.batches += 1;
            let place = BatchPlace { node: number, batch: node.batches };
            self.process(&Context { input, ..*context }, place, operator, batch, &mut output)?;
        }
        for input in 0..self.nodes[number].watermarks.of_inputs.len() {
            let sent = self.nodes[self.nodes[number].before[input]].watermarks.sent;
            let seen = &mut self.nodes[number].watermarks.of_inputs[input];
            if sent > *seen {
                *seen = sent;
                operator.input_watermark(&Context { input, ..*context }, sent, &mut output)?;
            }
        }
        let node = &mut self.nodes[number];
        if let Some(least) = least
            && least > node.watermarks.seen
        {
            node.watermarks.seen = least;
            operator.watermark(context, least, &mut output)?;
        }
        if commit {
            operator.commit(context, &mut output)?;
        }
        node.tuples.late += context.counts.late() - late;
        node.tuples.expired += context.counts.expired() - expired;
        if let Some(time) = output.watermark {
            node.watermarks.sent = node.watermarks.sent.max(time);
        }
        self.send(number, output.batches);
        Ok(())
    }

    fn send(&mut self, from: usize, batches: Vec<Batch>) {
        if batches.is_empty() {
            return;
        }
        self.nodes[from].tuples.sent += batches.iter().map(|batch| batch.len() as u64).sum::<u64>();
        for at in 0..self.nodes[from].consumers.len() {
            let (consumer, input) = self.nodes[from].consumers[at];
            self.nodes[consumer].inbox.extend(batches.iter().map(|batch| (input, batch.clone())));
        }
    }

    /// Names of the operators, and numbers of their parts, by the numbers of the nodes; none of sources.
    pub(crate) fn names_and_parts(&self) -> Vec<Option<(String, usize)>> {
        let of = |operator: &dyn Operator| (operator.name().to_owned(), operator.parts());
        self.nodes.iter().map(|node| node.operator.as_deref().map(of)).collect()
    }

    /// Number of tuples that were left out in the committed transaction.
    pub(crate) fn take_skipped(&mut self) -> u64 {
        self.skipped.as_mut().map_or(0, SkippedTuples::take)
    }

    /// Returns true if all operators can process the next epoch while one commits.
    pub(crate) fn overlaps(&self) -> bool {
        let mut operators = self.nodes.iter().filter_map(|node| node.operator.as_ref());
        // Savepoints of skipped tuples need the transaction.
        self.skipped.is_none() && operators.all(|operator| operator.overlaps())
    }

    /// Ends the epoch for all operators.
    pub(crate) fn sealed(&mut self) {
        for node in &mut self.nodes {
            node.sealed.clone_from(&node.watermarks);
            node.tuples_sealed = std::mem::take(&mut node.tuples);
            node.batches = 0;
            if let Some(operator) = &mut node.operator {
                operator.sealed();
            }
        }
    }

    /// Tells all operators that the sealed epoch has committed, and counts their tuples; returns the number of its
    /// tuples that sinks did not get.
    pub(crate) fn committed(&mut self, counts: &[OperatorCounts]) -> Result<u64> {
        for (node, counts) in self.nodes.iter_mut().zip(counts) {
            node.committed.clone_from(&node.sealed);
            counts.add(std::mem::take(&mut node.tuples_sealed), node.committed.sent);
        }
        let mut lost = 0;
        for (node, counts) in self.nodes.iter_mut().zip(counts) {
            let Some(operator) = &mut node.operator else { continue };
            operator.committed()?;
            lost += operator.take_lost();
            operator.state_costs().into_iter().for_each(|costs| counts.note_state_costs(costs));
        }
        Ok(lost)
    }

    /// Tells all operators that a table was redefined.
    pub(crate) fn redefined(&mut self) -> Result<()> {
        self.nodes.iter_mut().filter_map(|node| node.operator.as_mut()).try_for_each(|node| node.redefined())
    }

    /// Tells all operators that what was not committed is aborted.
    pub(crate) fn aborted(&mut self) {
        self.take_skipped();
        for node in &mut self.nodes {
            node.inbox.clear();
            node.batches = 0;
            (node.tuples, node.tuples_sealed) = Default::default();
            node.watermarks.clone_from(&node.committed);
            if let Some(operator) = &mut node.operator {
                operator.aborted();
            }
        }
    }
}
