//! Windows of rows that are taken back: `TUMBLE`, `HOP`, `CUMULATE` and `SESSION` in FROM, over any column of a TIMESTAMP
//! type.
//!
//! The windows of a row follow from its time alone, so assigning them is an expression, or `unnest`, that keeps the
//! type of a change. An aggregate grouped by their edges is one of all rows so far, as any over rows that are taken
//! back: its results change at each commit, and no watermark says that one is complete. The session of a row follows from
//! the rows around it: see [`super::changing_sessions`].

use crate::error::{Error, Result};
use crate::streaming::operators::{Flow, Translator};
use crate::streaming::replaced::ReplacedBy;
use crate::streaming::windows::open_sessions;
use entresol_streams::{TimeWindow, WindowKind};

impl Translator<'_> {
    /// Stream with each row of a stream whose rows are taken back once for each of its windows, and their edges.
    pub(crate) fn windows_of_changes(
        &self,
        flow: &Flow,
        replaced: &ReplacedBy,
        time: &str,
        kind: WindowKind,
    ) -> Result<Flow> {
        flow.check_whole("a window")?;
        let late = self.step.map(|step| &step.late);
        if let Some(clause) = late.and_then(|late| late.clause) {
            return Err(Error::unsupported(format!(
                "{clause} of windows of {}: no watermark closes such a window, and no row is late; their results change at each commit",
                replaced.by.rows()
            )));
        }
        let width = flow.stream.columns().len();
        let window = TimeWindow::of_kind(time, kind);
        if let (WindowKind::Session { .. }, Some(column)) = (kind, flow.stream.column(time)) {
            let open = open_sessions(flow, column, &window);
            return Ok(Flow { event_time: None, replaced: Some(replaced.clone()), ..open });
        }
        let stream = flow.stream.assign_windows(&window);
        let replaced = replaced.in_windows(kind, width, width + 1);
        Ok(Flow { stream, windows: None, event_time: None, replaced: Some(replaced) })
    }
}

impl ReplacedBy {
    /// Columns of the key of rows that come once for each of their windows, whose edges are two more columns.
    fn in_windows(&self, kind: WindowKind, start: usize, end: usize) -> ReplacedBy {
        let mut replaced = self.clone();
        // One of the columns before is enough, and edges are another choice.
        let chosen = std::mem::take(&mut replaced.one_of);
        if !chosen.is_empty() {
            let first = chosen.iter().copied().flatten().next();
            replaced.partition.push(first);
            replaced.besides.extend(chosen.into_iter().flatten());
        }
        match kind {
            WindowKind::Hopping { .. } => replaced.one_of = vec![Some(start), Some(end)],
            WindowKind::Cumulating { .. } => {
                replaced.one_of = vec![Some(end)];
                replaced.besides.push(start);
            }
            WindowKind::Tumbling { .. } | WindowKind::Session { .. } => replaced.besides.extend([start, end]),
        }
        replaced
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::streaming::replaced::Replacement;
    use std::time::Duration;

    #[test]
    fn edges_are_in_the_key_where_a_row_has_several_windows() {
        let size = Duration::from_secs(60);
        let rank = ReplacedBy {
            one_of: vec![Some(1)],
            besides: vec![1],
            ..ReplacedBy::of_key(Replacement::Ranking, vec![Some(0)])
        };
        let tumbling = rank.in_windows(WindowKind::Tumbling { size }, 3, 4);
        assert_eq!(tumbling.identity(), Some(vec![0, 1]));
        let hopping = rank.in_windows(WindowKind::Hopping { slide: size, size }, 3, 4);
        assert_eq!(hopping.identity(), Some(vec![0, 1, 3]));
        let cumulating = rank.in_windows(WindowKind::Cumulating { step: size, size }, 3, 4);
        assert_eq!(cumulating.identity(), Some(vec![0, 1, 4]));
    }
}
