//! Dataflow: the operators and the elements in flight between them.
//!
//! - A pass visits every node once, in topological order; so a node has all its input of the pass before it
//!   runs, and sees each punctuation once.
//! - A node's watermark is the least watermark of its upstream nodes. It never decreases within a
//!   transaction; an abort resets it to its value at the last commit.
//! - Between passes all inboxes are empty.

use crate::element::Batch;
use crate::error::Result;
use crate::event_time::EventTime;
use crate::execution::skipped::SkippedTuples;
use crate::operators::{Context, Operator, Output};
use crate::running::{OperatorCounts, TupleCounts};
use entresol_transactions::Transaction;

pub(crate) struct Dataflow {
    nodes: Vec<DataflowNode>,
    order: Vec<usize>,
    /// Inputs of the nodes, until all are added.
    inputs: Vec<Vec<usize>>,
    /// Tuples that operators left out, if they may.
    skipped: Option<SkippedTuples>,
}

struct DataflowNode {
    /// `None` for sources.
    operator: Option<Box<dyn Operator>>,
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
    pub(crate) fn new(order: Vec<usize>, skipped: Option<SkippedTuples>) -> Dataflow {
        Dataflow { nodes: Vec::with_capacity(order.len()), order, inputs: Vec::new(), skipped }
    }

    /// Adds the next node. Upstream nodes may have higher numbers only if they are added later.
    pub(crate) fn add(&mut self, operator: Option<Box<dyn Operator>>, inputs: Vec<usize>, after: Vec<usize>) {
        let of_inputs = if inputs.len() > 1 { vec![EventTime::START; inputs.len()] } else { Vec::new() };
        let none = Watermarks { seen: EventTime::START, sent: EventTime::START, of_inputs };
        self.inputs.push(inputs.clone());
        let mut before = inputs;
        before.extend(after);
        self.nodes.push(DataflowNode {
            operator,
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

    fn pass(&mut self, context: &Context<'_>, commit: bool) -> Result<()> {
        for at in 0..self.order.len() {
            let number = self.order[at];
            let Some(mut operator) = self.nodes[number].operator.take() else { continue };
            let result = self.visit(context, number, &mut *operator, commit);
            self.nodes[number].operator = Some(operator);
            result?;
        }
        Ok(())
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
            node.tuples.received += batch.len() as u64;
            let context = Context { input, ..*context };
            match &mut self.skipped {
                Some(skipped) if operator.takes_each_tuple_alone() => {
                    skipped.batch(operator, &context, batch, &mut output)?;
                }
                _ => operator.batch(&context, &batch, &mut output)?,
            }
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
            (node.tuples, node.tuples_sealed) = Default::default();
            node.watermarks.clone_from(&node.committed);
            if let Some(operator) = &mut node.operator {
                operator.aborted();
            }
        }
    }
}
