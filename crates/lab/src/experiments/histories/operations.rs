//! Random transactions over lists and registers, and carrying them out.
//!
//! A key's value is what was appended to it, numbers of four bytes one after the other; a register holds the
//! last of them. Numbers are unique for a key, also over the lives of the process. Half of the operations
//! read, a quarter of these by a range. Keys come from a window that moves on, so that lists stay short and
//! all threads contend for them.

use super::worker::Workload;
use crate::measure::Random;
use entresol_memory::Durability;
use entresol_structures::KeyBytes;
use entresol_transactions::{Error, Isolation, KeyRange, Result, State, StateContext, Transaction};
use std::fmt::Write;
use std::ops::Bound;
use std::sync::Arc;

/// Keys that are in use at a time.
pub(super) const WINDOW: u64 = 8;
/// After so many transactions of a thread the window moves on by a key.
const TRANSACTIONS_PER_KEY: u64 = 6;
const OPERATIONS_MAX: u64 = 5;
/// One of so many transactions changes its mind before its commit.
const ABORTS_ONE_OF: u64 = 16;

/// Operation of a transaction on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Read {
        key: u64,
        by_range: bool,
    },
    /// Adds the number to the list, or makes it the register's value.
    Put {
        key: u64,
        number: u32,
    },
}

/// Outcome of a transaction.
#[derive(Debug)]
pub(super) enum Outcome {
    /// Committed, durably; what each read saw, nothing for the others.
    Committed(Vec<Option<Vec<u32>>>),
    /// It left nothing.
    Aborted,
}

/// Draws the operations of a thread.
pub(super) struct Generator {
    pub(super) random: Random,
    pub(super) first_key: u64,
    /// Numbers go up in steps, so that threads never take the same one.
    pub(super) next_number: u32,
    pub(super) step: u32,
    pub(super) transactions: u64,
}

impl Generator {
    pub(super) fn draw(&mut self) -> Vec<Operation> {
        let first = self.first_key + self.transactions / TRANSACTIONS_PER_KEY;
        self.transactions += 1;
        let count = 1 + self.random.below(OPERATIONS_MAX);
        (0..count)
            .map(|_| {
                let key = first + self.random.below(WINDOW);
                if self.random.below(2) == 0 {
                    return Operation::Read { key, by_range: self.random.below(4) == 0 };
                }
                let number = self.next_number;
                self.next_number += self.step;
                Operation::Put { key, number }
            })
            .collect()
    }

    pub(super) fn changes_its_mind(&mut self) -> bool {
        self.random.below(ABORTS_ONE_OF) == 0
    }
}

/// Keys in two states: even ones in one, odd ones in the other.
pub(super) struct Lists {
    pub(super) context: Arc<StateContext>,
    pub(super) states: [Arc<State>; 2],
    pub(super) workload: Workload,
    pub(super) isolation: Isolation,
    pub(super) durability: Durability,
}

impl Lists {
    /// Runs the operations as one transaction. An error is none of those that other transactions cause.
    pub(super) fn perform(&self, operations: &[Operation], aborts: bool) -> Result<Outcome> {
        match self.attempt(operations, aborts) {
            Ok(outcome) => Ok(outcome),
            Err(error) if error.is_retryable() => Ok(Outcome::Aborted),
            Err(error) => Err(error),
        }
    }

    fn attempt(&self, operations: &[Operation], aborts: bool) -> Result<Outcome> {
        let mut statement = self.context.begin_at(self.isolation)?;
        let mut reads = Vec::with_capacity(operations.len());
        for operation in operations {
            // Each is a statement of its own. Others get a chance between them, on few processors too.
            statement = statement.next_statement()?;
            std::thread::yield_now();
            reads.push(match *operation {
                Operation::Read { key, by_range: false } => Some(self.get(&statement, key)?),
                Operation::Read { key, by_range: true } => Some(self.scan(&statement, key)?),
                Operation::Put { key, number } => {
                    let mut value = match self.workload {
                        Workload::Lists => self.get(&statement, key)?,
                        Workload::Registers => Vec::new(),
                    };
                    value.push(number);
                    let bytes: Vec<u8> = value.iter().flat_map(|number| number.to_le_bytes()).collect();
                    statement.write(self.state(key), &key.to_be_bytes(), Some(&bytes))?;
                    None
                }
            });
        }
        if aborts {
            statement.abort();
            return Ok(Outcome::Aborted);
        }
        statement.commit(self.durability)?;
        Ok(Outcome::Committed(reads))
    }

    fn state(&self, key: u64) -> &Arc<State> {
        &self.states[(key % 2) as usize]
    }

    fn get(&self, transaction: &Transaction, key: u64) -> Result<Vec<u32>> {
        Ok(transaction.read(self.state(key), &key.to_be_bytes(), numbers)?.unwrap_or_default())
    }

    fn scan(&self, transaction: &Transaction, key: u64) -> Result<Vec<u32>> {
        let bound = Bound::Included(KeyBytes::from_slice(&key.to_be_bytes()));
        let range = KeyRange { lower: bound.clone(), upper: bound };
        let (mut from, mut found) = (None, Vec::new());
        while transaction.scan_batch(self.state(key), &range, &mut from, |_, value| found = numbers(value))? {
        }
        Ok(found)
    }
}

fn numbers(value: &[u8]) -> Vec<u32> {
    let (words, rest) = value.as_chunks();
    assert!(rest.is_empty(), "a torn value of {} bytes", value.len());
    words.iter().map(|word| u32::from_le_bytes(*word)).collect()
}

/// The operations in the words of the checker's format, with what the reads saw.
pub(super) fn render(workload: Workload, operations: &[Operation], reads: &[Option<Vec<u32>>]) -> String {
    let mut text = String::from("[");
    for (i, operation) in operations.iter().enumerate() {
        let comma = if i > 0 { "," } else { "" };
        let seen = reads.get(i).and_then(Option::as_ref);
        let written = match *operation {
            Operation::Put { key, number } => match workload {
                Workload::Lists => write!(text, "{comma}[\"append\",{key},{number}]"),
                Workload::Registers => write!(text, "{comma}[\"w\",{key},{number}]"),
            },
            Operation::Read { key, .. } => match (seen, workload) {
                (Some(list), Workload::Lists) => write!(text, "{comma}[\"r\",{key},{list:?}]"),
                (Some(register), Workload::Registers) if !register.is_empty() => {
                    write!(text, "{comma}[\"r\",{key},{}]", register[0])
                }
                _ => write!(text, "{comma}[\"r\",{key},null]"),
            },
        };
        written.expect("a string takes all that is written to it");
    }
    text.push(']');
    text
}

/// Reason for which a worker ends.
pub(super) fn fatal(error: &Error) -> String {
    format!("a transaction failed of what no other transaction explains: {error}")
}
