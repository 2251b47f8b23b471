//! Rows of a ranking that replace each other: what says so in a plan, and the tables that may have them.

use crate::error::{Error, Result};
use entresol_tables::Table;

/// Columns by which a row of a stream replaces the one that was sent before; none where a column is not in the stream
/// any more.
#[derive(Debug, Clone)]
pub(crate) struct ReplacedBy {
    pub(crate) partition: Vec<Option<usize>>,
    pub(crate) rank: Option<usize>,
    /// True if the partition alone says which row is replaced.
    pub(crate) is_single: bool,
}

impl ReplacedBy {
    /// Columns behind a projection, which says where each has gone.
    pub(crate) fn projected(&self, place: impl Fn(usize) -> Option<usize>) -> ReplacedBy {
        ReplacedBy {
            partition: self.partition.iter().map(|column| column.and_then(&place)).collect(),
            rank: self.rank.and_then(&place),
            is_single: self.is_single,
        }
    }

    /// Tells whether rows with equal values in these columns are those that replace each other.
    fn is_key(&self, key: &[usize]) -> bool {
        let of_key = |column: &Option<usize>| column.is_some_and(|column| key.contains(&column));
        let is_of = |column: &usize| self.partition.contains(&Some(*column)) || self.rank == Some(*column);
        let has_rank = self.is_single || of_key(&self.rank);
        self.partition.iter().all(of_key) && has_rank && key.iter().all(is_of)
    }
}

/// Checks that rows that replace each other have their key in a table.
pub(crate) fn check_replaced(
    replaced: Option<&ReplacedBy>,
    table: &Table,
    columns: &[usize],
    upserts: bool,
) -> Result<()> {
    let Some(replaced) = replaced else { return Ok(()) };
    let key = table.schema().key();
    let is_keyed = !table.schema().hidden_key();
    let from: Vec<usize> = (0..columns.len()).filter(|&at| key.contains(&columns[at])).collect();
    if upserts && is_keyed && from.len() == key.len() && replaced.is_key(&from) {
        return Ok(());
    }
    let rank = if replaced.is_single { "" } else { " and the rank" };
    Err(Error::unsupported(format!(
        "INSERT INTO {} of ranked rows that change while rows come, other than ON CONFLICT (key) DO UPDATE SET of all other \
         columns, into a table whose key is the columns of PARTITION BY{rank}",
        table.name()
    )))
}

/// Ranking of a step.
#[derive(Debug, Default)]
pub(crate) struct RankingOfStep {
    /// Greatest rank that WHERE leaves, of the ranking below it.
    pub(crate) limit: Option<usize>,
    pub(crate) is_there: bool,
    /// True if its rows are never late.
    pub(crate) is_at_commit: bool,
}

impl RankingOfStep {
    /// Refuses LATE ROWS INTO where no row is late.
    pub(crate) fn check_late(&self, has_table: bool) -> Result<()> {
        if !(has_table && self.is_at_commit) {
            return Ok(());
        }
        Err(Error::unsupported(
            "LATE ROWS INTO of a ranking that is neither over windows nor by the event time ascending: none is late",
        ))
    }
}
