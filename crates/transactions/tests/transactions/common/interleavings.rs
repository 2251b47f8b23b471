//! Every interleaving of small transactions, on any protocol: the committed ones must be as if they had run
//! one after another.

use super::{key, scan, volatile};
use entresol_memory::Durability;
use entresol_structures::{KeyBytes, KeyWidth};
use entresol_transactions::{
    ContextOptions, Error, Isolation, KeyRange, Protocol, State, StateContext, Transaction,
};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

/// A step of a transaction. Each ends with a commit.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Read(u64),
    /// Its value says which transaction and step wrote it.
    Write(u64),
    /// Writes what was read last and one more.
    Increment(u64),
    Delete(u64),
    /// Reads all keys.
    Scan,
    /// Reads the last key up to this one, of its state.
    Last(u64),
}

use Step::{Delete, Increment, Last, Read, Scan, Write};

/// Transactions that run side by side.
pub(crate) type Program = &'static [&'static [Step]];

/// The anomalies of the literature (Berenson et al., Adya, Fekete et al.) as programs over the keys 1 and 2,
/// which are there, and 3, which is not.
pub(crate) const PROGRAMS: &[(&str, Program)] = &[
    ("dirty write", &[&[Write(1), Write(2)], &[Write(2), Write(1)]]),
    ("dirty read", &[&[Write(1), Delete(2)], &[Read(1), Read(2)]]),
    ("lost update", &[&[Read(1), Increment(1)], &[Read(1), Increment(1)]]),
    ("read skew", &[&[Read(1), Read(2)], &[Write(1), Write(2)]]),
    ("write skew", &[&[Read(1), Read(2), Write(1)], &[Read(1), Read(2), Write(2)]]),
    ("phantom", &[&[Scan, Write(3)], &[Scan, Write(4)]]),
    ("missing key", &[&[Read(3), Write(1)], &[Read(1), Write(3)]]),
    ("deletion", &[&[Read(1), Write(2)], &[Read(2), Delete(1)]]),
    ("read-only anomaly", &[&[Read(1), Write(1)], &[Read(1), Read(2), Write(2)], &[Read(1), Read(2)]]),
    ("blind writes in a circle", &[&[Read(1), Write(2)], &[Write(1), Write(2)], &[Read(2), Read(1)]]),
    ("last key, one behind it", &[&[Last(3), Write(2)], &[Read(2), Write(3)]]),
    ("last key, changed", &[&[Last(3), Write(2)], &[Read(2), Increment(1)]]),
    ("last key, deleted", &[&[Last(3), Write(2)], &[Read(2), Delete(1)]]),
    ("no last key", &[&[Delete(1), Last(3), Write(2)], &[Read(2), Write(3)]]),
    ("deleting nothing", &[&[Delete(3), Read(1)], &[Write(3), Write(1)]]),
];

type Rows = BTreeMap<u64, u64>;

/// Reads and writes of a transaction.
#[derive(Clone, Default, Debug)]
struct Done {
    reads: Vec<(u64, Option<u64>)>,
    scans: Vec<Rows>,
    /// Keys up to which the last one was read, and it.
    lasts: Vec<(u64, Option<(u64, u64)>)>,
    writes: Vec<(u64, Option<u64>)>,
    /// Their order.
    order: Vec<Kind>,
    committed: bool,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Read,
    Scan,
    Last,
    Write,
}

fn number(value: &[u8]) -> u64 {
    u64::from_le_bytes(value.try_into().unwrap())
}

fn initial() -> Rows {
    BTreeMap::from([(1, 10), (2, 20)])
}

struct Bench {
    context: Arc<StateContext>,
    /// Keys 1 and 3 are in the first, in a group of its own.
    states: [Arc<State>; 2],
}

impl Bench {
    fn new(protocol: Protocol) -> Bench {
        let options = ContextOptions { protocol, lock_wait_max: Duration::ZERO, ..ContextOptions::default() };
        let context = StateContext::open_or_create_with(volatile(), options).unwrap();
        let state = |width| context.create_state(context.create_group().unwrap(), width).unwrap();
        let states = [state(KeyWidth::Eight), state(KeyWidth::Variable)];
        Bench { context, states }
    }

    fn state(&self, key: u64) -> &Arc<State> {
        &self.states[usize::from(key.is_multiple_of(2))]
    }

    /// Back to the rows at the beginning.
    fn reset(&self) {
        let load = self.context.begin().unwrap();
        for number in 1..5 {
            let value = initial().get(&number).map(|value| value.to_le_bytes());
            load.write(self.state(number), &key(number), value.as_ref().map(|value| &value[..])).unwrap();
        }
        load.commit(Durability::None).unwrap();
    }

    fn rows(&self, transaction: &Transaction) -> Result<Rows, Error> {
        let mut rows = Rows::new();
        for state in &self.states {
            let mut from = None;
            let mut take = |key: &[u8], value: &[u8]| {
                rows.insert(u64::from_be_bytes(key.try_into().unwrap()), number(value));
            };
            while transaction.scan_batch(state, &KeyRange::full(), &mut from, &mut take)? {}
        }
        Ok(rows)
    }

    fn last(&self, transaction: &Transaction, at: u64) -> Result<Option<(u64, u64)>, Error> {
        let upper = Bound::Included(KeyBytes::from_slice(&key(at)));
        let range = KeyRange { lower: Bound::Unbounded, upper };
        transaction.last_in(self.state(at), &range, |key, value| {
            (u64::from_be_bytes(key.try_into().unwrap()), number(value))
        })
    }

    fn step(&self, transaction: &Transaction, step: Step, mark: u64, done: &mut Done) -> Result<(), Error> {
        let mut write = |at: u64, value: Option<u64>| {
            let bytes = value.map(u64::to_le_bytes);
            transaction.write(self.state(at), &key(at), bytes.as_ref().map(|bytes| &bytes[..]))?;
            done.writes.push((at, value));
            done.order.push(Kind::Write);
            Ok(())
        };
        match step {
            Read(at) => {
                done.reads.push((at, transaction.read(self.state(at), &key(at), number)?));
                done.order.push(Kind::Read);
                Ok(())
            }
            Scan => {
                done.scans.push(self.rows(transaction)?);
                done.order.push(Kind::Scan);
                Ok(())
            }
            Last(at) => {
                done.lasts.push((at, self.last(transaction, at)?));
                done.order.push(Kind::Last);
                Ok(())
            }
            Write(at) => write(at, Some(mark)),
            Increment(at) => {
                let last = done.reads.last().and_then(|(_, value)| *value).unwrap_or(0);
                write(at, Some(last + 1))
            }
            Delete(at) => write(at, None),
        }
    }
}

/// Runs the transactions in this order of steps; an entry is the transaction whose next step it is.
fn run(bench: &Bench, program: Program, order: &[usize]) -> (Vec<Done>, Rows) {
    bench.reset();
    let begin = |_| bench.context.begin_at(Isolation::Serializable).unwrap();
    let mut transactions: Vec<Option<Arc<Transaction>>> = (0..program.len()).map(begin).map(Some).collect();
    let mut done = vec![Done::default(); program.len()];
    let mut next = vec![0; program.len()];
    for &which in order {
        let at = next[which];
        next[which] += 1;
        let Some(transaction) = transactions[which].clone() else { continue };
        let result = match program[which].get(at) {
            Some(&step) => {
                bench.step(&transaction, step, 1000 * (which as u64 + 1) + at as u64, &mut done[which])
            }
            None => transaction.commit(Durability::None).map(|_| done[which].committed = true),
        };
        match result {
            Ok(()) => (),
            // It starts again some other time; here it is over.
            Err(error) if error.is_retryable() => {
                transaction.abort();
                transactions[which] = None;
            }
            Err(error) => panic!("{error}"),
        }
    }
    drop(transactions);
    let reader = bench.context.begin().unwrap();
    let rows = bench.rows(&reader).unwrap();
    for state in &bench.states {
        assert!(scan(&reader, state, &KeyRange::full()).len() <= 3);
    }
    (done, rows)
}

/// Tells whether the transaction could have run alone on these rows, which it changes.
fn replay(done: &Done, rows: &mut Rows) -> bool {
    let (mut reads, mut scans, mut writes) = (done.reads.iter(), done.scans.iter(), done.writes.iter());
    let mut lasts = done.lasts.iter();
    done.order.iter().all(|kind| match kind {
        Kind::Read => reads.next().is_some_and(|(key, value)| rows.get(key) == value.as_ref()),
        Kind::Scan => scans.next() == Some(&*rows),
        Kind::Last => lasts.next().is_some_and(|(at, last)| {
            let of_state = |row: &(&u64, &u64)| row.0 % 2 == at % 2;
            rows.range(..=at).rev().find(of_state).map(|(key, value)| (*key, *value)) == *last
        }),
        Kind::Write => {
            match writes.next() {
                Some((key, Some(value))) => drop(rows.insert(*key, *value)),
                Some((key, None)) => drop(rows.remove(key)),
                None => return false,
            }
            true
        }
    })
}

/// Tells whether there is an order of the committed ones that explains what they read, and the rows at the
/// end.
fn is_serializable(committed: &[&Done], end: &Rows) -> bool {
    fn from(rows: &Rows, left: &[&Done], end: &Rows) -> bool {
        if left.is_empty() {
            return rows == end;
        }
        (0..left.len()).any(|first| {
            let mut rows = rows.clone();
            let mut rest = left.to_vec();
            replay(rest.remove(first), &mut rows) && from(&rows, &rest, end)
        })
    }
    from(&initial(), committed, end)
}

/// All orders of `steps[i]` steps of each transaction i.
fn orders(steps: &[usize]) -> Vec<Vec<usize>> {
    let mut all = Vec::new();
    fn go(left: &mut Vec<usize>, order: &mut Vec<usize>, all: &mut Vec<Vec<usize>>) {
        let mut any = false;
        for which in 0..left.len() {
            if left[which] > 0 {
                any = true;
                left[which] -= 1;
                order.push(which);
                go(left, order, all);
                order.pop();
                left[which] += 1;
            }
        }
        if !any {
            all.push(order.clone());
        }
    }
    go(&mut steps.to_vec(), &mut Vec::new(), &mut all);
    all
}

/// Outcome of running all interleavings.
#[derive(Debug, Default)]
pub(crate) struct LookupOutcome {
    pub(crate) interleavings: usize,
    pub(crate) restarted: usize,
    pub(crate) committed: usize,
    /// The first that no serial order explains.
    pub(crate) violation: Option<String>,
}

/// Runs every interleaving of every program, those of three transactions up to `of_three_max` evenly chosen
/// ones.
pub(crate) fn look(protocol: Protocol, of_three_max: usize) -> LookupOutcome {
    let bench = Bench::new(protocol);
    let mut found = LookupOutcome::default();
    for (name, program) in PROGRAMS {
        let steps: Vec<usize> = program.iter().map(|steps| steps.len() + 1).collect();
        let all = orders(&steps);
        let every = if program.len() > 2 { all.len().div_ceil(of_three_max) } else { 1 };
        for order in all.iter().step_by(every) {
            let (done, rows) = run(&bench, program, order);
            let committed: Vec<&Done> = done.iter().filter(|done| done.committed).collect();
            found.interleavings += 1;
            found.committed += committed.len();
            found.restarted += done.len() - committed.len();
            if !is_serializable(&committed, &rows) {
                let what = format!("{protocol}, {name}, {order:?}: {done:?}, then {rows:?}");
                found.violation.get_or_insert(what);
            }
        }
    }
    found
}
