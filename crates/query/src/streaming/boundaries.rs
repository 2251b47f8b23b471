//! COMMIT of a topology: boundaries of its transactions.
//!
//! | boundaries with OR | a transaction ends |
//! | --- | --- |
//! | EACH ROW, and any | behind each row |
//! | EVERY n ROWS, several | at the least number |
//! | EVERY INTERVAL, several | after the shortest |
//! | ON WINDOW CLOSE [OF stream] | before the row that closes a window, of that stream if it is named; with the others whichever comes first |
//! | WITH SOURCE | at the marks of the sources, which are in one file, or in their rows, or of one that leads; no other boundary is beside it, and those sources have no other |

use crate::error::{Error, Result};
use crate::parser::durations::{interval, invalid};
use crate::parser::own::streaming::CommitBoundary;
use crate::streaming::connectors::SourceMarks;
use crate::streaming::steps::PlannedTopology;
use entresol_streams::{Boundary, TopologyBuilder};
use std::time::Duration;

/// Boundary of topologies without COMMIT.
const ROWS_DEFAULT: usize = 1000;
const INTERVAL_DEFAULT: Duration = Duration::from_millis(100);
/// Rows of a transaction that is ended by its interval alone.
const ROWS_OF_INTERVAL: usize = 1 << 20;

/// Boundaries of a topology, of which the first that is reached ends a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Boundaries {
    boundary: Boundary,
    /// Number of rows beside windows.
    rows: Option<usize>,
    interval: Option<Duration>,
    /// Stream whose windows bound transactions; all if there is none.
    pub(crate) window_of: Option<String>,
}

impl Boundaries {
    /// Boundaries of a COMMIT clause, or those of a topology without one.
    pub(crate) fn of(clauses: &[CommitBoundary]) -> Result<Boundaries> {
        let mut found = Boundaries {
            boundary: Boundary::Every(ROWS_DEFAULT),
            rows: None,
            interval: None,
            window_of: None,
        };
        if clauses.is_empty() {
            found.interval = Some(INTERVAL_DEFAULT);
            return Ok(found);
        }
        let (mut has_windows, mut is_marked) = (false, false);
        for clause in clauses {
            match clause {
                CommitBoundary::EachRow => found.rows = Some(1),
                CommitBoundary::Rows(rows) => {
                    found.rows = Some(found.rows.map_or(*rows, |other| other.min(*rows)));
                }
                CommitBoundary::Interval(text) => {
                    let wanted = interval("COMMIT EVERY", text)?;
                    found.interval = Some(found.interval.map_or(wanted, |other| other.min(wanted)));
                }
                CommitBoundary::WindowClose(of) if has_windows && *of != found.window_of => {
                    return Err(Error::unsupported(
                        "COMMIT ON WINDOW CLOSE OF several streams: leave OF out",
                    ));
                }
                CommitBoundary::WindowClose(of) => {
                    has_windows = true;
                    found.window_of.clone_from(of);
                }
                CommitBoundary::Source => is_marked = true,
            }
        }
        if is_marked && clauses.len() > 1 {
            return Err(Error::unsupported(
                "COMMIT WITH SOURCE OR another boundary: it would divide the transactions that the sources mark",
            ));
        }
        found.boundary = match found.rows {
            _ if is_marked => Boundary::Punctuated,
            Some(1) => Boundary::EachTuple,
            _ if has_windows => Boundary::PerWindow,
            Some(rows) => Boundary::Every(rows),
            None => Boundary::Every(ROWS_OF_INTERVAL),
        };
        Ok(found)
    }

    /// Refuses an interval without length, which an earlier release stored.
    pub(crate) fn check_new(clauses: &[CommitBoundary]) -> Result<()> {
        for clause in clauses {
            if let CommitBoundary::Interval(length) = clause
                && interval("COMMIT EVERY", length)?.is_zero()
            {
                let message = format!("COMMIT EVERY INTERVAL '{length}': it must be longer than 0");
                return Err(Error::coded("22023", message));
            }
        }
        Ok(())
    }

    /// Refuses COMMIT WITH SOURCE if a source marks no transactions, or others mark them elsewhere, unless one leads; and any other
    /// boundary of a source that marks some, whose positions are behind its marks.
    pub(crate) fn check_sources(&self, planned: &PlannedTopology, leader: Option<&str>) -> Result<()> {
        let marks: Vec<(&str, SourceMarks<'_>)> =
            planned.sources.iter().map(|(name, source)| (name.as_str(), source.marks())).collect();
        match (self.boundary == Boundary::Punctuated, leader) {
            (true, None) => check_aligned(&marks),
            (true, Some(leader)) => check_leader(&marks, leader),
            (false, Some(_)) => {
                Err(Error::unsupported("option \"leader\" of a topology without COMMIT WITH SOURCE"))
            }
            (false, None) => match marks.iter().find(|(_, marks)| *marks != SourceMarks::None) {
                None => Ok(()),
                Some((name, _)) => Err(Error::unsupported(format!(
                    "source \"{name}\" marks transactions: COMMIT WITH SOURCE is the boundary of its topologies"
                ))),
            },
        }
    }

    /// Sets the boundaries of a topology.
    pub(crate) fn set(&self, builder: TopologyBuilder) -> TopologyBuilder {
        let mut builder = builder.boundary(self.boundary);
        if let (Boundary::PerWindow, Some(rows)) = (self.boundary, self.rows) {
            builder = builder.tuples_max(rows);
        }
        match self.interval {
            Some(interval) => builder.commit_interval(interval),
            None => builder,
        }
    }
}

/// Checks that all sources mark the same transactions.
fn check_aligned(marks: &[(&str, SourceMarks<'_>)]) -> Result<()> {
    if let Some((name, _)) = marks.iter().find(|(_, marks)| *marks == SourceMarks::None) {
        return Err(Error::unsupported(format!(
            "COMMIT WITH SOURCE: source \"{name}\" marks no transactions; there are EVERY n ROWS, EVERY INTERVAL '...' and ON \
             WINDOW CLOSE, and the options \"transactions\" of FORMAT DEBEZIUM, \"transaction_id\" and \"transaction_end\" of a \
             source, and \"leader\" of a topology"
        )));
    }
    let [first, others @ ..] = marks else { return Ok(()) };
    if let Some(other) = others.iter().find(|other| other.1 != first.1) {
        return Err(Error::unsupported(format!(
            "COMMIT WITH SOURCE of sources with other transactions: \"{}\" and \"{}\" have different files in the option \
             \"transactions\", or only one has ids of transactions in its rows",
            first.0, other.0
        )));
    }
    if first.1 == SourceMarks::Columns(false) && !others.is_empty() {
        return Err(Error::unsupported(format!(
            "COMMIT WITH SOURCE of several sources, of which \"{}\" has no \"transaction_id\": the option \"leader\" of the \
             topology names the source whose transactions they are",
            first.0
        )));
    }
    Ok(())
}

/// Checks that the source that leads marks transactions, and that no position of another is within one.
fn check_leader(marks: &[(&str, SourceMarks<'_>)], leader: &str) -> Result<()> {
    match marks.iter().find(|(name, _)| *name == leader) {
        None => return Err(invalid("leader", leader)),
        Some((_, SourceMarks::None)) => {
            return Err(Error::unsupported(format!("source \"{leader}\" leads, and marks no transactions")));
        }
        Some(_) => {}
    }
    let has_file =
        |other: &&(&str, SourceMarks<'_>)| other.0 != leader && matches!(other.1, SourceMarks::File(_));
    match marks.iter().find(has_file) {
        None => Ok(()),
        Some((name, _)) => Err(Error::unsupported(format!(
            "source \"{name}\" with a file of transactions beside \"{leader}\", which leads: its events belong together"
        ))),
    }
}

/// Refusal of ON WINDOW CLOSE OF what has no windows.
pub(crate) fn no_windows(stream: &str) -> Error {
    Error::coded(
        "42P01",
        format!(
            "COMMIT ON WINDOW CLOSE OF {stream}: no step is a CREATE STREAM {stream} with windows over a source"
        ),
    )
}

/// Text for EXPLAIN.
pub(crate) fn boundaries_text(boundaries: &[CommitBoundary]) -> String {
    let text = |boundary: &CommitBoundary| match boundary {
        CommitBoundary::EachRow => "each row".to_owned(),
        CommitBoundary::Rows(rows) => format!("every {rows} rows"),
        CommitBoundary::Interval(interval) => format!("every {interval}"),
        CommitBoundary::WindowClose(None) => "on window close".to_owned(),
        CommitBoundary::WindowClose(Some(stream)) => format!("on window close of {stream}"),
        CommitBoundary::Source => "with source".to_owned(),
    };
    if boundaries.is_empty() {
        return format!("commit every {ROWS_DEFAULT} rows or every {} ms", INTERVAL_DEFAULT.as_millis());
    }
    let texts: Vec<String> = boundaries.iter().map(text).collect();
    format!("commit {}", texts.join(" or "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_boundary_that_is_reached_counts() {
        use CommitBoundary::{EachRow, Interval, Rows, Source, WindowClose};
        let ms = |text: &str| Interval(format!("{text} ms"));
        let of = |clauses: &[CommitBoundary]| Boundaries::of(clauses).unwrap();
        let found = of(&[Rows(9), ms("5"), Rows(3), ms("2"), ms("7")]);
        assert_eq!((found.boundary, found.interval), (Boundary::Every(3), Some(Duration::from_millis(2))));
        assert_eq!(of(&[Rows(9), EachRow]).boundary, Boundary::EachTuple);
        assert_eq!(of(&[Rows(1), WindowClose(None)]).boundary, Boundary::EachTuple);
        let found = of(&[WindowClose(Some("s".to_owned())), Rows(5), ms("1")]);
        assert_eq!((found.boundary, found.rows), (Boundary::PerWindow, Some(5)));
        assert_eq!((found.window_of.as_deref(), found.interval), (Some("s"), Some(Duration::from_millis(1))));
        assert_eq!(of(&[Source]).boundary, Boundary::Punctuated);
        assert_eq!(
            of(&[]),
            Boundaries { interval: Some(INTERVAL_DEFAULT), ..of(&[Rows(ROWS_DEFAULT)]) }.without_rows()
        );
        for clauses in [&[Source, Rows(5)][..], &[WindowClose(None), WindowClose(Some("s".to_owned()))]] {
            assert!(Boundaries::of(clauses).is_err(), "{clauses:?}");
        }
    }

    impl Boundaries {
        fn without_rows(self) -> Boundaries {
            Boundaries { rows: None, ..self }
        }
    }
}
