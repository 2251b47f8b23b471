//! EMIT of a step: when the results of its aggregate are sent.
//!
//! | clause | windows | aggregate without windows |
//! | --- | --- | --- |
//! | none | when they close | at each commit, as far as they have changed |
//! | ON WINDOW CLOSE | when they close | refused, as of windows of rows that are taken back |
//! | CHANGES, ON COMMIT | at each commit, as far as they have changed, and when they close | as without |
//! | CHANGES EVERY interval | at the first commit behind each interval, and when they close | at the first commit behind each interval |
//!
//! Changes of a transaction are seen when it commits, so CHANGES and ON COMMIT are the same there. The clause is about the last
//! aggregate of a step: those before it are as without one. A query of tables alone has ON COMMIT, and its result is sent
//! ([`super::table_queries`]).

use crate::error::{Error, Result};
use crate::parser::durations::{interval, invalid};
use crate::parser::text::tokens::is_word;
use crate::streaming::replaced::{ReplacedBy, Replacement};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use entresol_streams::{EarlyEmission, WindowKind};
use std::time::Duration;

/// Occasion at which results are sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Emit {
    /// Nothing is said.
    #[default]
    Default,
    WindowClose,
    Changes,
    Commit,
    Every(Duration),
}

impl Emit {
    /// Takes a clause at the beginning of tokens; returns the number of its tokens, 0 if it is none.
    pub(crate) fn take(&mut self, clause: &[TokenWithSpan]) -> Result<usize> {
        let begins = |words: &[&str]| {
            let is =
                |(at, word): (usize, &&str)| clause.get(at).is_some_and(|token| is_word(&token.token, word));
            words.iter().enumerate().all(is)
        };
        if begins(&["emit", "on", "window", "close"]) {
            *self = Emit::WindowClose;
            return Ok(4);
        }
        if begins(&["emit", "on", "commit"]) {
            *self = Emit::Commit;
            return Ok(3);
        }
        if begins(&["emit", "changes", "every", "interval"])
            && let Some(Token::SingleQuotedString(text)) = clause.get(4).map(|token| &token.token)
        {
            let every = interval("EMIT CHANGES EVERY", text)?;
            if every.is_zero() {
                return Err(invalid("EMIT CHANGES EVERY", text));
            }
            *self = Emit::Every(every);
            return Ok(5);
        }
        if begins(&["emit", "changes"]) && !begins(&["emit", "changes", "every"]) {
            *self = Emit::Changes;
            return Ok(2);
        }
        Ok(0)
    }

    /// Occasion at which the results of open windows are sent.
    pub(crate) fn of_windows(self, kind: WindowKind) -> Result<Option<EarlyEmission>> {
        let emission = match self {
            Emit::Default | Emit::WindowClose => return Ok(None),
            Emit::Changes | Emit::Commit => EarlyEmission::Commit,
            Emit::Every(interval) => EarlyEmission::Every(interval),
        };
        if matches!(kind, WindowKind::Session { .. }) {
            return Err(Error::unsupported(
                "EMIT CHANGES or ON COMMIT of SESSION(stream, time, gap): the edges of an open session change; there is EMIT ON WINDOW CLOSE",
            ));
        }
        Ok(Some(emission))
    }

    /// Interval in which the results of an aggregate without windows are sent; `may_wait` says whether they may be.
    pub(crate) fn of_running(self, may_wait: bool) -> Result<Option<Duration>> {
        match self {
            Emit::Default | Emit::Changes | Emit::Commit => Ok(None),
            Emit::WindowClose => Err(Error::unsupported(
                "EMIT ON WINDOW CLOSE of an aggregate without a window, or of windows of rows that are taken back, which no watermark closes",
            )),
            Emit::Every(interval) if may_wait => Ok(Some(interval)),
            Emit::Every(_) => Err(Error::unsupported(
                "EMIT CHANGES EVERY of an aggregate other than of appended rows, whose groups live for ever: of others, \
                 changes are sent at each commit",
            )),
        }
    }

    /// Refuses a clause that no aggregate has taken, if it would have no effect.
    pub(crate) fn check_taken(self) -> Result<()> {
        match self {
            Emit::Every(_) => Err(Error::unsupported(
                "EMIT CHANGES EVERY of a step without an aggregate: its rows are sent at each commit",
            )),
            _ => Ok(()),
        }
    }
}

impl ReplacedBy {
    /// The same columns of results that are sent before they are final.
    pub(crate) fn early(self) -> ReplacedBy {
        ReplacedBy { by: Replacement::Early, ..self }
    }
}
