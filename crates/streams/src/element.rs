//! Stream elements: tuples in batches, and punctuations.
//!
//! - A [`Batch`] shares its tuples: filters, splits at transaction boundaries and fan-out copy no tuple.
//! - A batch keeps all tuples of the batch it was sliced from alive; batches live no longer than a
//!   transaction.

use entresol_tables::Value;
use std::ops::Range;
use std::sync::Arc;

/// The values of one stream element, in the order of the stream's columns.
pub type Tuple = Vec<Value>;

/// Element of a channel.
#[derive(Debug, Clone, PartialEq)]
pub enum Element {
    /// Tuples, in order.
    Batch(Vec<Tuple>),
    /// A mark between tuples.
    Punctuation(Punctuation),
}

/// Punctuations: marks between tuples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Punctuation {
    /// A transaction begins (dissertation 5.1.2: BOT). Optional: a tuple outside a transaction begins one.
    Begin,
    /// The transaction's tuples are complete.
    Commit,
    /// The transaction is to be aborted.
    Abort,
    /// No tuple with an earlier event time (microseconds) follows.
    Watermark(i64),
    /// Nothing follows.
    End,
}

/// Batch of tuples that are processed together.
#[derive(Debug, Clone)]
pub struct Batch {
    tuples: Arc<Vec<Tuple>>,
    selection: Selection,
}

#[derive(Debug, Clone)]
enum Selection {
    Range(Range<usize>),
    Listed(Arc<Vec<u32>>),
}

impl Batch {
    /// A batch of all the tuples.
    pub fn new(tuples: Vec<Tuple>) -> Batch {
        let selection = Selection::Range(0..tuples.len());
        Batch { tuples: Arc::new(tuples), selection }
    }

    /// Number of tuples.
    pub fn len(&self) -> usize {
        match &self.selection {
            Selection::Range(range) => range.len(),
            Selection::Listed(places) => places.len(),
        }
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns tuple number `at`.
    pub fn tuple(&self, at: usize) -> &Tuple {
        match &self.selection {
            Selection::Range(range) => &self.tuples[range.start + at],
            Selection::Listed(places) => &self.tuples[places[at] as usize],
        }
    }

    /// The tuples in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Tuple> {
        (0..self.len()).map(|at| self.tuple(at))
    }

    /// A part of the batch.
    pub fn slice(&self, part: Range<usize>) -> Batch {
        assert!(part.start <= part.end && part.end <= self.len());
        let selection = match &self.selection {
            Selection::Range(range) => Selection::Range(range.start + part.start..range.start + part.end),
            Selection::Listed(places) => Selection::Listed(Arc::new(places[part].to_vec())),
        };
        Batch { tuples: Arc::clone(&self.tuples), selection }
    }

    /// Returns the tuples that `keep` accepts.
    pub fn filter(&self, mut keep: impl FnMut(&[Value]) -> bool) -> Batch {
        let mut places: Vec<u32> = Vec::with_capacity(self.len());
        for at in 0..self.len() {
            let place = match &self.selection {
                Selection::Range(range) => (range.start + at) as u32,
                Selection::Listed(listed) => listed[at],
            };
            if keep(&self.tuples[place as usize]) {
                places.push(place);
            }
        }
        if places.len() == self.len() {
            return self.clone();
        }
        Batch { tuples: Arc::clone(&self.tuples), selection: Selection::Listed(Arc::new(places)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_and_filters_compose() {
        let batch = Batch::new((0..10).map(|n| vec![Value::Int(n)]).collect());
        let number = |tuple: &[Value]| match tuple[0] {
            Value::Int(n) => n,
            _ => unreachable!(),
        };
        let even = batch.slice(1..9).filter(|tuple| number(tuple) % 2 == 0);
        assert_eq!(even.iter().map(|t| number(t)).collect::<Vec<_>>(), [2, 4, 6, 8]);
        let middle = even.slice(1..3).filter(|tuple| number(tuple) > 4);
        assert_eq!(middle.iter().map(|t| number(t)).collect::<Vec<_>>(), [6]);
        assert!(middle.slice(1..1).is_empty());
    }
}
