//! Rows that replace each other, of rankings, of windows that late rows correct and of aggregates without windows: what says
//! so in a plan, and the tables that may have them.

use crate::error::{Error, Result};
use entresol_tables::Table;

/// Reason for which rows of a stream replace others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Replacement {
    /// Rows that come push others out of their rank.
    Ranking,
    /// New rows push others out of the first ones, which ORDER BY and LIMIT leave.
    First,
    /// Late rows correct the results of windows.
    LateRows,
    /// Results are sent before they are final.
    Early,
    /// Results of an aggregate without windows, which are taken back when they change.
    Running {
        /// True if a group may begin anew, whose result before is not taken back.
        expires: bool,
    },
    /// The source writes and deletes rows by their key.
    Source,
    /// Rows of a join of streams come and go with rows of its sides.
    Joined,
}

impl Replacement {
    /// Name of the rows in errors.
    pub(crate) fn rows(self) -> &'static str {
        match self {
            Replacement::Ranking => "ranked rows that change while rows come",
            Replacement::First => "the rows of ORDER BY and LIMIT, which change with later rows",
            Replacement::LateRows => "rows that LATE ROWS UPDATE corrects",
            Replacement::Early => "results that are sent before they are final",
            Replacement::Running { .. } => {
                "results of an aggregate without a window, which change while rows come"
            }
            Replacement::Source => "rows that their source changes and deletes",
            Replacement::Joined => "rows of a join of streams, which change while rows come",
        }
    }

    /// Reason of a stream that has rows of another one too: groups that may begin anew count before all others.
    pub(crate) fn or(self, other: Option<Replacement>) -> Replacement {
        let expires = Replacement::Running { expires: true };
        if other == Some(expires) { expires } else { self }
    }

    /// Columns of the key in errors.
    pub(crate) fn key(self, has_rank: bool) -> &'static str {
        match self {
            Replacement::Ranking if has_rank => "the columns of PARTITION BY and the rank",
            Replacement::Ranking => "the columns of PARTITION BY",
            Replacement::First => {
                "that of the rows that are ordered, if they have one, or their place: \
                 SELECT row_number() OVER (ORDER BY ...) AS place, ... ORDER BY place LIMIT n"
            }
            Replacement::LateRows | Replacement::Early | Replacement::Running { .. } => {
                "the columns of GROUP BY"
            }
            Replacement::Source => "the PRIMARY KEY of the source",
            Replacement::Joined => {
                "that of the left side, if the key of the right one is among the columns that ON compares, or else of both"
            }
        }
    }
}

/// Columns by which a row of a stream replaces the one that was sent before; none where a column is not in the stream
/// any more.
#[derive(Debug, Clone)]
pub(crate) struct ReplacedBy {
    pub(crate) by: Replacement,
    /// Columns that are all in the key.
    pub(crate) partition: Vec<Option<usize>>,
    /// Columns of which one at least is in the key, if there are any: the rank, or edges of the window.
    pub(crate) one_of: Vec<Option<usize>>,
    /// Columns that may be in the key too: with one value in all rows, or in those of a key.
    pub(crate) besides: Vec<usize>,
    /// Pairs of columns that are equal in each row, of which either may stand for the other.
    pub(crate) equal: Vec<(usize, usize)>,
}

impl ReplacedBy {
    /// Columns behind a projection, which says where each has gone, and which of its columns are literals.
    pub(crate) fn projected(
        &self,
        place: impl Fn(usize) -> Option<usize>,
        literals: Vec<usize>,
    ) -> ReplacedBy {
        let moved = |column: usize| {
            let others = self.equals_of(column);
            place(column).or_else(|| others.into_iter().find_map(&place))
        };
        let mut besides = literals;
        besides.extend(self.besides.iter().filter_map(|&column| moved(column)));
        let places = |columns: &[Option<usize>]| {
            columns.iter().map(|column| column.and_then(&moved)).collect::<Vec<Option<usize>>>()
        };
        let pairs = self.equal.iter().filter_map(|&(one, other)| Some((place(one)?, place(other)?)));
        ReplacedBy {
            by: self.by,
            partition: places(&self.partition),
            one_of: places(&self.one_of),
            besides,
            equal: pairs.collect(),
        }
    }

    /// Columns that equal a column.
    fn equals_of(&self, column: usize) -> Vec<usize> {
        let other = |&(one, other): &(usize, usize)| match column {
            _ if one == column => Some(other),
            _ if other == column => Some(one),
            _ => None,
        };
        self.equal.iter().filter_map(other).collect()
    }

    /// Changes by a key that is all of these columns.
    pub(crate) fn of_key(by: Replacement, partition: Vec<Option<usize>>) -> ReplacedBy {
        ReplacedBy { by, partition, one_of: Vec::new(), besides: Vec::new(), equal: Vec::new() }
    }

    /// Changes of several streams together, of which nothing is the key.
    pub(crate) fn without_key(by: Replacement) -> ReplacedBy {
        ReplacedBy::of_key(by, vec![None])
    }

    /// Columns that identify a row; none where one is not in the stream any more. Where there is a choice it is the first.
    pub(crate) fn identity(&self) -> Option<Vec<usize>> {
        let chosen = match self.one_of.iter().flatten().next() {
            None if !self.one_of.is_empty() => return None,
            chosen => chosen.copied().map(Some),
        };
        self.partition.iter().copied().chain(chosen).collect()
    }

    /// Tells whether there is one row at most: the columns that identify it are none.
    pub(crate) fn is_single_row(&self) -> bool {
        self.identity().is_some_and(|key| key.is_empty())
    }

    /// Text for EXPLAIN, with the names of the columns.
    pub(crate) fn describe(&self, names: &[String]) -> String {
        let name = |column: &usize| names.get(*column).map_or("?", String::as_str);
        let key: Vec<&str> =
            self.partition.iter().flatten().chain(self.one_of.iter().flatten()).map(name).collect();
        let kind = match self.by {
            Replacement::Early => "early results that replace each other",
            Replacement::LateRows => "rows that replace each other",
            Replacement::Ranking
            | Replacement::First
            | Replacement::Running { .. }
            | Replacement::Source
            | Replacement::Joined => "changes, rows are taken back",
        };
        if key.is_empty() { kind.to_owned() } else { format!("{kind}, by {}", key.join(", ")) }
    }

    /// Columns that are the key of the rows; none where one is not in the stream any more, or there is a choice.
    pub(crate) fn key_columns(&self) -> Option<Vec<usize>> {
        let key: Option<Vec<usize>> = self.partition.iter().copied().collect();
        key.filter(|key| self.one_of.is_empty() && !key.is_empty())
    }

    /// Tells whether rows with equal values in these columns are those that replace each other.
    fn is_key(&self, key: &[usize]) -> bool {
        let same = |column: usize, other: usize| column == other || self.equals_of(column).contains(&other);
        let in_key =
            |column: &Option<usize>| column.is_some_and(|column| key.iter().any(|&at| same(column, at)));
        let may_be = |at: &usize| {
            let mut known = self.partition.iter().chain(&self.one_of).flatten().chain(&self.besides);
            known.any(|&column| same(column, *at))
        };
        let has_one = self.one_of.is_empty() || self.one_of.iter().any(in_key);
        self.partition.iter().all(in_key) && has_one && key.iter().all(may_be)
    }
}

/// Checks that a MERGE finds rows that are taken back by the columns of the stream that ON compares with the key, of which
/// those are missing that are none.
pub(crate) fn check_merged(replaced: &ReplacedBy, table: &Table, on: &[Option<usize>]) -> Result<()> {
    let from: Option<Vec<usize>> = on.iter().copied().collect();
    if from.is_some_and(|from| replaced.is_key(&from)) {
        return Ok(());
    }
    Err(Error::unsupported(format!(
        "a change of the rows of table {} by {}, other than by a key that is {}",
        table.name(),
        replaced.by.rows(),
        replaced.by.key(!replaced.one_of.is_empty())
    )))
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
    Err(Error::unsupported(format!(
        "INSERT INTO {} of {}, other than ON CONFLICT (key) DO UPDATE SET of all other columns, into a table whose key is {}",
        table.name(),
        replaced.by.rows(),
        replaced.by.key(!replaced.one_of.is_empty())
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

#[cfg(test)]
mod tests {
    use super::{ReplacedBy, Replacement};

    #[test]
    fn equal_columns_stand_for_each_other_in_a_key() {
        let mut replaced = ReplacedBy::of_key(Replacement::Joined, vec![Some(0), Some(1)]);
        (replaced.equal, replaced.besides) = (vec![(0, 4)], vec![5]);
        for key in [vec![0, 1], vec![1, 4], vec![0, 1, 4], vec![4, 1, 5]] {
            assert!(replaced.is_key(&key), "{key:?}");
        }
        for key in [vec![0], vec![4, 0], vec![0, 1, 2], vec![5, 1]] {
            assert!(!replaced.is_key(&key), "{key:?}");
        }
        // Behind a projection to columns 4 and 1.
        let place = |column: usize| [4, 1].iter().position(|kept| *kept == column);
        let kept = replaced.projected(place, Vec::new());
        assert_eq!((kept.identity(), kept.is_key(&[0, 1])), (Some(vec![0, 1]), true));
        let lost = replaced.projected(|column| (column == 4).then_some(0), Vec::new());
        assert_eq!((lost.identity(), lost.is_key(&[0])), (None, false));
    }

    #[test]
    fn groups_that_expire_count_on_either_side() {
        let expires = Replacement::Running { expires: true };
        for other in
            [Replacement::Running { expires: false }, Replacement::Ranking, Replacement::LateRows, expires]
        {
            assert_eq!((expires.or(Some(other)), other.or(Some(expires))), (expires, expires), "{other:?}");
        }
        assert_eq!(Replacement::Ranking.or(Some(Replacement::Early)), Replacement::Ranking);
        assert_eq!(expires.or(None), expires);
    }
}
