//! Operators: the nodes of a topology. One per file.
//!
//! Guarantees of the execution to an operator:
//!
//! - It is called from one thread, and between `open` and the end always within one transaction at a time:
//!   `batch`, `watermark` and `commit` get the transaction from their [`Context`].
//! - Every node sees a punctuation exactly once, after all nodes before it have seen it. So when `commit` is
//!   called, all tuples of the transaction have arrived, also those that earlier nodes sent at their
//!   `commit`.
//! - After `commit` comes either `sealed` and `committed`, or `aborted`; `aborted` may also come in between. Then the DRAM
//!   state of the operator must equal its tables again: it drops it, and reads it again when needed.
//! - Where all operators of a topology overlap ([`Operator::overlaps`]), the next transaction may begin between `sealed`
//!   and `committed`. If the commit fails, one `aborted` is about both.
//!
//! Duties of an operator: state that must survive is written through the transaction before `commit` returns;
//! all state in DRAM is bounded by a named constant.

pub(crate) mod abort_when;
pub(crate) mod accumulator;
pub(crate) mod asof_join;
pub(crate) mod assign_windows;
pub(crate) mod changes_as_rows;
pub(crate) mod changing_session_rows;
pub(crate) mod changing_sessions;
pub(crate) mod divided_state;
pub(crate) mod early;
pub(crate) mod file_sink;
pub(crate) mod filter;
pub(crate) mod group_index;
pub(crate) mod group_states;
pub(crate) mod join_bounds;
pub(crate) mod join_state;
pub(crate) mod key_parts;
pub(crate) mod keyed_rows;
pub(crate) mod lookup_join;
pub(crate) mod map;
pub(crate) mod merge_into;
pub(crate) mod merged_rows;
pub(crate) mod open_window;
pub(crate) mod pattern;
pub(crate) mod rank_state;
pub(crate) mod ranking;
pub(crate) mod regular_join;
pub(crate) mod regular_join_alone;
pub(crate) mod regular_join_rows;
pub(crate) mod regular_join_state;
pub(crate) mod rolled_sink;
pub(crate) mod row_functions;
pub(crate) mod row_numbers;
pub(crate) mod row_rules;
pub(crate) mod running_aggregate;
pub(crate) mod running_rows;
pub(crate) mod running_state;
pub(crate) mod running_values;
pub(crate) mod sent_rows;
pub(crate) mod session_aggregate;
pub(crate) mod session_state;
pub(crate) mod sink;
pub(crate) mod state_form;
pub(crate) mod state_rows;
pub(crate) mod stored_hash;
pub(crate) mod stored_keys;
pub(crate) mod stored_watermark;
pub(crate) mod stored_windows;
pub(crate) mod stream_join;
pub(crate) mod tcp_sink;
pub(crate) mod to_stream;
pub(crate) mod to_table;
pub(crate) mod union;
pub(crate) mod value_counts;
pub(crate) mod window;
pub(crate) mod window_aggregate;
mod window_pages;
pub(crate) mod window_state;
mod window_writes;
pub(crate) mod written_rows;

use crate::element::Batch;
use crate::error::{Error, Result};
use crate::event_time::EventTime;
use crate::execution::epoch_transaction::EpochTransaction;
use crate::operators::state_form::StateCosts;
use entresol_tables::{Schema, Table};
use entresol_transactions::Transaction;
use std::cell::Cell;
use std::sync::Arc;

/// Context of an operator's calls.
pub struct Context<'a> {
    pub(crate) epoch: &'a Arc<EpochTransaction>,
    pub(crate) counts: &'a Counts,
    /// Source of the tuples; none at the commit punctuation.
    pub(crate) source: Option<usize>,
    /// Number of the input, of an operator with several.
    pub(crate) input: usize,
    /// Time of the clock.
    pub(crate) now: EventTime,
    /// Per source, true if it has ended, or sent nothing for its idle time ([`crate::Stream::idle_after`]).
    pub(crate) quiet: &'a [bool],
    /// True if results that wait for an interval wait on although it is over.
    pub(crate) withholds: bool,
}

/// Counters of operators; added to the progress when the transaction commits.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    late: Cell<u64>,
    expired: Cell<u64>,
    future: Cell<u64>,
    /// True if results were sent that had waited for an interval.
    has_due: Cell<bool>,
}

impl Counts {
    pub(crate) fn late(&self) -> u64 {
        self.late.get()
    }

    pub(crate) fn expired(&self) -> u64 {
        self.expired.get()
    }

    pub(crate) fn future(&self) -> u64 {
        self.future.get()
    }

    /// Returns true if results were sent that had waited for an interval.
    pub(crate) fn has_due(&self) -> bool {
        self.has_due.get()
    }

    pub(crate) fn clear(&self) {
        self.late.set(0);
        self.expired.set(0);
        self.future.set(0);
        self.has_due.set(false);
    }
}

impl<'a> Context<'a> {
    /// The topology's current transaction. It waits for the commit of the one before, if the topology does not.
    pub fn transaction(&self) -> Result<&'a Arc<Transaction>> {
        self.epoch.get()
    }

    /// Counts late tuples that were dropped.
    pub fn count_late(&self, tuples: u64) {
        self.counts.late.set(self.counts.late.get() + tuples);
    }

    /// Counts tuples or groups that have left a state because their time to live is over.
    pub fn count_expired(&self, tuples: u64) {
        self.counts.expired.set(self.counts.expired.get() + tuples);
    }

    /// Notes that results are sent that have waited for an interval: an error of them is not one of the open input.
    pub(crate) fn note_due(&self) {
        self.counts.has_due.set(true);
    }

    /// Counts tuples whose event time was too far ahead of the clock to move a watermark.
    pub fn count_future(&self, tuples: u64) {
        self.counts.future.set(self.counts.future.get() + tuples);
    }
}

/// Output of an operator.
#[derive(Debug, Default)]
pub struct Output {
    pub(crate) batches: Vec<Batch>,
    pub(crate) watermark: Option<EventTime>,
}

impl Output {
    /// Sends tuples on. Empty batches are dropped.
    pub fn push(&mut self, batch: Batch) {
        if !batch.is_empty() {
            self.batches.push(batch);
        }
    }

    /// Sends a watermark: no tuple with an earlier event time follows.
    pub fn watermark(&mut self, time: EventTime) {
        self.watermark = Some(time);
    }
}

/// A node of a topology.
pub trait Operator: Send {
    /// Its name in errors.
    fn name(&self) -> &str;

    /// Number of parts of its state that threads work on side by side.
    fn parts(&self) -> usize {
        1
    }

    /// Called first, in the topology's thread.
    fn open(&mut self) -> Result<()> {
        Ok(())
    }

    /// Processes tuples from one of the inputs.
    fn batch(&mut self, context: &Context<'_>, batch: &Batch, output: &mut Output) -> Result<()>;

    /// Returns true if a batch may be split anywhere, and one that failed has left nothing but writes in the transaction.
    fn takes_each_tuple_alone(&self) -> bool {
        false
    }

    /// Processes a watermark: no tuple with an event time before `time` follows on any input;
    /// [`EventTime::END`] at the end.
    fn watermark(&mut self, _context: &Context<'_>, time: EventTime, output: &mut Output) -> Result<()> {
        output.watermark(time);
        Ok(())
    }

    /// Processes a watermark of one of several inputs, which [`Context`] has; [`Operator::watermark`] gets the least of
    /// all.
    fn input_watermark(&mut self, _: &Context<'_>, _: EventTime, _: &mut Output) -> Result<()> {
        Ok(())
    }

    /// Ends the transaction's input: the operator writes its state.
    fn commit(&mut self, _context: &Context<'_>, _output: &mut Output) -> Result<()> {
        Ok(())
    }

    /// Returns true if it has something to send by the clock, although nothing comes: a transaction is committed for it.
    fn is_due(&self, _now: EventTime) -> bool {
        false
    }

    /// Called before the last commit of a run: it is due if it has something that must not wait for the next run.
    fn ending(&mut self) {}

    /// Returns true if it can process the next transaction while one commits: it knows by [`Operator::sealed`] what
    /// `committed` is about, and goes on with what it has.
    fn overlaps(&self) -> bool {
        false
    }

    /// Called between `commit` and `committed` or `aborted`, before anything of the next transaction.
    fn sealed(&mut self) {}

    /// Called after the transaction has committed. If the operator overlaps, the next one may have begun.
    fn committed(&mut self) -> Result<()> {
        Ok(())
    }

    /// Returns what its state costs in the forms that it chooses from; none without such a choice.
    fn state_costs(&self) -> Option<StateCosts> {
        None
    }

    /// Returns the number of committed tuples that could not be sent outside, since the last call.
    fn take_lost(&mut self) -> u64 {
        0
    }

    /// Called after the transaction was aborted: all that was not committed, if the operator overlaps.
    fn aborted(&mut self) {}

    /// Called after an abort because a table was redefined: the operator takes the current definitions of its
    /// tables, or fails if it cannot go on with them.
    fn redefined(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Current definition of a table, if `fits` accepts the change of its schema from the old to the new one.
pub(crate) fn current_of(
    operator: &str,
    table: &Arc<Table>,
    fits: impl Fn(&Schema, &Schema) -> bool,
) -> Result<Arc<Table>> {
    let name = || table.name().to_owned();
    let current = table.current().ok_or_else(|| entresol_tables::Error::NoSuchTable { table: name() })?;
    if fits(table.schema(), current.schema()) {
        Ok(current)
    } else {
        Err(Error::TableChanged { operator: operator.to_owned(), table: name() })
    }
}

/// Returns true if the visible columns of a schema are the first ones of another.
pub(crate) fn extends(old: &Schema, new: &Schema) -> bool {
    old.key_names().eq(new.key_names()) && new.visible_columns().starts_with(old.visible_columns())
}
