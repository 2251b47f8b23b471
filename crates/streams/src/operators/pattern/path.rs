//! Paths: the rows of a match that is being formed, with their variables; and what conditions and measures read of them.

use crate::event_time::EventTime;
use crate::expression::Reason;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_row::OwnedRow;
use std::sync::Arc;

/// Place of a row in the order of its partition: its time, then its number among all rows.
pub(crate) type RowPosition = (EventTime, i64);

/// Row of a partition.
#[derive(Debug)]
pub(crate) struct PatternRow {
    pub(crate) position: RowPosition,
    pub(crate) values: OwnedRow,
}

/// Last row of a path, and the path before it.
#[derive(Debug)]
pub(crate) struct PathRow {
    pub(crate) row: Arc<PatternRow>,
    pub(crate) variable: usize,
    pub(crate) before: Option<Arc<PathRow>>,
}

impl PathRow {
    /// Rows of the path in their order.
    pub(crate) fn rows(&self) -> Vec<(&Arc<PatternRow>, usize)> {
        let mut rows = vec![(&self.row, self.variable)];
        let mut before = &self.before;
        while let Some(path) = before {
            rows.push((&path.row, path.variable));
            before = &path.before;
        }
        rows.reverse();
        rows
    }
}

impl Drop for PathRow {
    /// Frees the rows before it one by one: each freeing the one before it would take a stack frame for each.
    fn drop(&mut self) {
        let mut before = self.before.take();
        while let Some(mut path) = before.and_then(Arc::into_inner) {
            before = path.before.take();
        }
    }
}

/// Rows that a condition or measure reads; without a variable those of all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Navigation {
    /// Row so many rows from the first of a variable.
    First {
        /// Variable.
        variable: Option<usize>,
        /// Number of rows of the variable behind the first.
        offset: usize,
    },
    /// Row so many rows of a variable before its last: for a condition, the row that is asked about is the last.
    Last {
        /// Variable.
        variable: Option<usize>,
        /// Number of rows of the variable before the last.
        offset: usize,
    },
    /// Row of the partition so many rows before the last of a variable, whether or not it is of the match.
    Previous {
        /// Variable.
        variable: Option<usize>,
        /// Number of rows before the last.
        offset: usize,
    },
    /// All rows of a variable.
    All {
        /// Variable.
        variable: Option<usize>,
    },
}

/// Rows that a navigation has found for several matches.
#[derive(Debug)]
pub struct NavigatedRows {
    /// One row for each match, NULL in all columns where there is none; of [`Navigation::All`] the rows of the first match,
    /// then those of the second, and so on.
    pub rows: RecordBatch,
    /// Ends of the rows of each match; empty but for [`Navigation::All`].
    pub ends: Vec<usize>,
}

/// Expression over rows of matches.
pub trait MatchExpression: Send + 'static {
    /// Evaluates it for several matches: a value for each, from the rows that each of its navigations has found.
    fn evaluate(&mut self, matches: usize, navigated: &[NavigatedRows]) -> Result<ArrayRef, Reason>;
}

/// Condition or measure: the rows that it reads, and how its value comes from them.
pub struct PatternExpression {
    /// Rows that it reads.
    pub navigations: Vec<Navigation>,
    /// Value.
    pub expression: Box<dyn MatchExpression>,
}

/// Column of a pattern's result.
pub enum PatternMeasure {
    /// Value of an expression.
    Expression {
        /// Expression.
        expression: PatternExpression,
        /// True if it reads all rows of the match in each row that is sent, else those up to the row.
        is_final: bool,
    },
    /// Name of the variable that the row is of, among the names of all.
    Classifier(Vec<String>),
    /// Number of the match in its partition, from 1.
    MatchNumber,
}

impl From<PatternExpression> for PatternMeasure {
    fn from(expression: PatternExpression) -> PatternMeasure {
        PatternMeasure::Expression { expression, is_final: false }
    }
}

impl PatternMeasure {
    fn is_final(&self) -> bool {
        matches!(self, PatternMeasure::Expression { is_final: true, .. })
    }

    /// Rows that it reads.
    pub(crate) fn navigations(&self) -> &[Navigation] {
        match self {
            PatternMeasure::Expression { expression, .. } => &expression.navigations,
            PatternMeasure::Classifier(_) | PatternMeasure::MatchNumber => &[],
        }
    }
}

/// Row of the result of a match.
pub(crate) struct MatchRow {
    /// Rows of the match, with their variables.
    pub(crate) path: Arc<[(Arc<PatternRow>, usize)]>,
    /// Number of rows of the match up to the one that is sent.
    pub(crate) end: usize,
    /// Rows that each measure reads; those of [`Navigation::All`] follow from the path.
    pub(crate) found: Vec<FoundRows>,
    /// Number of the match.
    pub(crate) number: i64,
}

impl MatchRow {
    /// Rows of a match as a measure reads them in the row that is sent.
    pub(crate) fn new(
        path: &Arc<[(Arc<PatternRow>, usize)]>,
        end: usize,
        measures: &[PatternMeasure],
        number: i64,
        previous: &dyn Fn(RowPosition, usize) -> Option<Arc<PatternRow>>,
    ) -> MatchRow {
        let rows: Vec<(&Arc<PatternRow>, usize)> =
            path.iter().map(|(row, variable)| (row, *variable)).collect();
        let found = measures.iter().map(|measure| {
            let rows = if measure.is_final() { &rows[..] } else { &rows[..end] };
            let navigations = measure.navigations().iter();
            navigations
                .map(|navigation| match navigation {
                    Navigation::All { .. } => Vec::new(),
                    other => navigate(*other, rows, previous),
                })
                .collect()
        });
        MatchRow { path: Arc::clone(path), end, found: found.collect(), number }
    }

    /// Rows that a measure reads.
    pub(crate) fn rows_of(&self, at: usize, measure: &PatternMeasure) -> FoundRows {
        let end = if measure.is_final() { self.path.len() } else { self.end };
        let found = self.found[at].iter().zip(measure.navigations()).map(|(found, navigation)| {
            let Navigation::All { variable } = navigation else { return found.clone() };
            let rows = self.path[..end].iter().filter(|(_, of)| variable.is_none_or(|wanted| wanted == *of));
            rows.map(|(row, _)| Some(Arc::clone(row))).collect()
        });
        found.collect()
    }
}

/// Rows that the navigations of an expression have found in a match.
pub(crate) type FoundRows = Vec<Vec<Option<Arc<PatternRow>>>>;

/// Finds the rows of a navigation; `previous` knows the row so many rows before one.
pub(crate) fn navigate(
    navigation: Navigation,
    path: &[(&Arc<PatternRow>, usize)],
    previous: &dyn Fn(RowPosition, usize) -> Option<Arc<PatternRow>>,
) -> Vec<Option<Arc<PatternRow>>> {
    let of = |wanted: Option<usize>| {
        let rows = path.iter().filter(move |(_, variable)| wanted.is_none_or(|wanted| wanted == *variable));
        rows.map(|(row, _)| Arc::clone(row))
    };
    match navigation {
        Navigation::First { variable, offset } => vec![of(variable).nth(offset)],
        Navigation::Last { variable, offset } => vec![of(variable).nth_back(offset)],
        Navigation::Previous { variable, offset: 0 } => vec![of(variable).next_back()],
        Navigation::Previous { variable, offset } => {
            vec![of(variable).next_back().and_then(|last| previous(last.position, offset))]
        }
        Navigation::All { variable } => of(variable).map(Some).collect(),
    }
}
