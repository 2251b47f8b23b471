//! Window functions in FROM: `TUMBLE`, `HOP`, `CUMULATE` and `SESSION` of a relation.
//!
//! Over a source or stream they are read by [`crate::streaming::names`], over tables and queries by
//! [`crate::planner::windows`].

use crate::error::{Error, Result};
use crate::parser::durations::{interval, interval_of};
use crate::parser::names::identifier;
use datafusion::sql::sqlparser::ast::{Expr, FunctionArg, FunctionArgExpr};
use entresol_streams::{TimeWindow, WindowKind};
use std::time::Duration;

/// Columns that windows add.
pub(crate) const WINDOW_START: &str = "window_start";
pub(crate) const WINDOW_END: &str = "window_end";
/// Names of the functions.
pub(crate) const FUNCTIONS: [&str; 4] = ["tumble", "hop", "cumulate", "session"];

/// Call of a window function.
pub(crate) struct WindowCall<'e> {
    /// Name of a relation, or a subquery.
    pub(crate) of: &'e Expr,
    /// Column of the time.
    pub(crate) time: String,
    pub(crate) kind: WindowKind,
}

impl<'e> WindowCall<'e> {
    /// Call of a function in FROM; none if it is no window function.
    pub(crate) fn of(called: &str, args: &'e [FunctionArg]) -> Result<Option<WindowCall<'e>>> {
        if !FUNCTIONS.contains(&called) {
            return Ok(None);
        }
        let args = expressions(args);
        let function = called.to_uppercase();
        let expected = match called {
            "tumble" => "TUMBLE(relation, time column, INTERVAL 'size')",
            "hop" => "HOP(relation, time column, INTERVAL 'slide', INTERVAL 'size')",
            "session" => "SESSION(relation, time column, INTERVAL 'gap')",
            _ => "CUMULATE(relation, time column, INTERVAL 'step', INTERVAL 'size')",
        };
        let wrong = || Error::Syntax(format!("syntax error: expected {expected}"));
        let [of, Expr::Identifier(time), intervals @ ..] = args.as_slice() else { return Err(wrong()) };
        let time = identifier(time);
        let durations = intervals.iter().map(|expr| {
            let length = interval_of(expr).ok_or_else(wrong)?;
            interval(&function, &length)
        });
        let kind = match (called, durations.collect::<Result<Vec<Duration>>>()?.as_slice()) {
            ("tumble", &[size]) => WindowKind::Tumbling { size },
            ("hop", &[slide, size]) => WindowKind::Hopping { slide, size },
            ("session", &[gap]) => WindowKind::Session { gap },
            ("cumulate", &[step, size]) => WindowKind::Cumulating { step, size },
            _ => return Err(wrong()),
        };
        let checked = TimeWindow::of_kind(&time, kind).check();
        checked.map_err(|reason| Error::coded("22023", format!("{function}: {reason}")))?;
        Ok(Some(WindowCall { of, time, kind }))
    }
}

/// Arguments of a function in FROM that are expressions without a name.
pub(crate) fn expressions(args: &[FunctionArg]) -> Vec<&Expr> {
    args.iter()
        .filter_map(|arg| match arg {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
            _ => None,
        })
        .collect()
}

/// Refusal of what reads an edge of a session before it is known.
pub(crate) fn open_session() -> Error {
    Error::unsupported(
        "an edge of SESSION(relation, time, gap) other than in GROUP BY: it is known when all rows of the session are",
    )
}
