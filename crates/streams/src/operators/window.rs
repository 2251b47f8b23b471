//! Windows over event time, and what they say about a time: which contain it, when they close.
//!
//! | windows | start at | contain |
//! | --- | --- | --- |
//! | tumbling | multiples of the size, since the epoch | each time once |
//! | hopping | multiples of the slide | each time size / slide times |
//! | cumulating | multiples of the size; one ends after each step of it | each time in those that end after it |
//!
//! | sessions | a time, of each group its own | times less than the gap apart |
//!
//! Sessions depend on the tuples ([`super::session_state`]); the others are known from a time alone.
//! Such a window is known by its *anchor*: its start, or of a cumulating window the start of its last step, since several
//! have one start.

use crate::event_time::EventTime;
use std::time::Duration;

/// Number of windows that may contain one time.
pub(crate) const WINDOWS_OF_A_TIME_MAX: i64 = 10_000;

/// Kind of windows over event time, with their sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowKind {
    /// Windows one after another.
    Tumbling {
        /// Time from a start to the end, and to the next start.
        size: Duration,
    },
    /// Windows that overlap.
    Hopping {
        /// Time from a start to the next one; with a longer one than the size, some times are in no window.
        slide: Duration,
        /// Time from a start to the end.
        size: Duration,
    },
    /// Windows with a common start that end after one, two, ... steps, up to a size.
    Cumulating {
        /// Time from an end to the next one.
        step: Duration,
        /// Time from a start to the next one, a multiple of the step.
        size: Duration,
    },
    /// Per group, windows that last as long as its tuples follow one another.
    Session {
        /// Time between two tuples of different sessions, and from the last tuple of one to its end.
        gap: Duration,
    },
}

impl WindowKind {
    /// Description of windows over a column, as they stand in FROM.
    pub(crate) fn describe(&self, time: &str) -> String {
        match self {
            WindowKind::Tumbling { size } => format!("TUMBLE({time}, {size:?})"),
            WindowKind::Hopping { slide, size } => format!("HOP({time}, {slide:?}, {size:?})"),
            WindowKind::Cumulating { step, size } => format!("CUMULATE({time}, {step:?}, {size:?})"),
            WindowKind::Session { gap } => format!("SESSION({time}, {gap:?})"),
        }
    }
}

/// Windows over an event time.
#[derive(Debug, Clone)]
pub struct TimeWindow {
    /// Event time column: TIMESTAMP, or BIGINT in microseconds.
    pub time: String,
    /// Their kind.
    pub kind: WindowKind,
    /// Allowed lateness: a tuple that is behind the greatest event time by no more than this is not late.
    pub lateness: Duration,
    /// Maximum time ahead of the clock of an event time that moves the watermark.
    pub future_limit: Duration,
    /// Column by which the windows of a tuple are known already: their start, the end of cumulating ones.
    pub(crate) edge: Option<String>,
    /// True if the tuples are results of these windows, whose time is the start.
    pub(crate) is_of_results: bool,
}

/// Default of [`TimeWindow::future_limit`].
const FUTURE_LIMIT: Duration = Duration::from_secs(24 * 60 * 60);

impl TimeWindow {
    fn new(time: &str, kind: WindowKind) -> TimeWindow {
        TimeWindow {
            time: time.to_owned(),
            kind,
            lateness: Duration::ZERO,
            future_limit: FUTURE_LIMIT,
            edge: None,
            is_of_results: false,
        }
    }

    /// Windows of `size`, one after another, without lateness.
    pub fn tumbling(time: &str, size: Duration) -> TimeWindow {
        TimeWindow::new(time, WindowKind::Tumbling { size })
    }

    /// Windows of `size`, of which one starts every `slide`, without lateness.
    pub fn hopping(time: &str, slide: Duration, size: Duration) -> TimeWindow {
        TimeWindow::new(time, WindowKind::Hopping { slide, size })
    }

    /// Windows that start every `size` and end after each `step`, without lateness.
    pub fn cumulating(time: &str, step: Duration, size: Duration) -> TimeWindow {
        TimeWindow::new(time, WindowKind::Cumulating { step, size })
    }

    /// Sessions: each group's tuples less than `gap` apart, without lateness.
    pub fn session(time: &str, gap: Duration) -> TimeWindow {
        TimeWindow::new(time, WindowKind::Session { gap })
    }

    /// Windows of a kind, without lateness.
    pub fn of_kind(time: &str, kind: WindowKind) -> TimeWindow {
        TimeWindow::new(time, kind)
    }

    /// Sets how far ahead of the clock an event time may be to move the watermark; the default is a day.
    pub fn future_limit(mut self, future_limit: Duration) -> TimeWindow {
        self.future_limit = future_limit;
        self
    }

    /// Sets the allowed lateness of tuples out of order. With [`Duration::MAX`] only watermark punctuations close
    /// windows.
    pub fn lateness(mut self, lateness: Duration) -> TimeWindow {
        self.lateness = lateness;
        self
    }

    /// Takes the window of each tuple from a column of [`crate::Stream::assign_windows`]: `window_start`, and of
    /// cumulating windows `window_end`. With `is_of_results` the tuples are results of an aggregate over these
    /// windows, and the time is their start.
    pub fn assigned_by(mut self, edge: &str, is_of_results: bool) -> TimeWindow {
        self.edge = Some(edge.to_owned());
        self.is_of_results = is_of_results;
        self
    }

    /// Checks the sizes; an error says which is wrong.
    pub fn check(&self) -> Result<(), String> {
        self.times().map(drop)
    }

    /// Assigner of these windows to times, if they are not sessions. An error says which duration is wrong.
    pub fn assigner(&self) -> Result<WindowAssigner, String> {
        self.span().map(WindowAssigner)
    }

    /// Times of the windows in microseconds; an error says which duration is wrong.
    pub(crate) fn times(&self) -> Result<WindowTimes, String> {
        match self.kind {
            WindowKind::Session { gap } => Ok(WindowTimes::Sessions(SessionSpan {
                gap_us: size_us(gap).ok_or_else(wrong_size)?,
                lateness_us: limit_us(self.lateness),
                future_us: limit_us(self.future_limit),
            })),
            _ => self.span().map(WindowTimes::Windows),
        }
    }

    /// Spans in microseconds; an error says which duration is wrong.
    pub(crate) fn span(&self) -> Result<WindowSpan, String> {
        let both = |one: Duration, other: Duration| Some((size_us(one)?, size_us(other)?));
        let (every_us, length_us, aligned_us) = match self.kind {
            WindowKind::Tumbling { size } => size_us(size).map(|size| (size, size, size)),
            WindowKind::Hopping { slide, size } => {
                both(slide, size).map(|(slide, size)| (slide, size, slide))
            }
            WindowKind::Cumulating { step, size } => match both(step, size) {
                Some((step, size)) if size % step != 0 => {
                    return Err(format!("the size {size} us is not a multiple of the step {step} us"));
                }
                sizes => sizes.map(|(step, size)| (step, step, size)),
            },
            WindowKind::Session { .. } => {
                return Err("the session of a tuple is not known before all of it is there".to_owned());
            }
        }
        .ok_or_else(wrong_size)?;
        let copies = length_us.max(aligned_us) / every_us;
        if copies > WINDOWS_OF_A_TIME_MAX {
            return Err(format!("a time is in {copies} windows, more than {WINDOWS_OF_A_TIME_MAX}"));
        }
        Ok(WindowSpan {
            every_us,
            length_us,
            aligned_us,
            closes_us: if self.is_of_results { every_us } else { length_us },
            lateness_us: limit_us(self.lateness),
            future_us: limit_us(self.future_limit),
            has_edges_of_ends: matches!(self.kind, WindowKind::Cumulating { .. }),
            is_of_results: self.is_of_results,
        })
    }
}

/// Assigner of windows to times.
#[derive(Debug, Clone, Copy)]
pub struct WindowAssigner(WindowSpan);

impl WindowAssigner {
    /// Starts and ends of the windows that contain a time, in the order of the ends.
    pub fn edges(&self, time: EventTime) -> impl Iterator<Item = (EventTime, EventTime)> {
        self.0.anchors(time).map(|anchor| (self.0.start_of(anchor), self.0.end_of(anchor)))
    }
}

/// Microseconds of a size, which has one at least.
fn size_us(duration: Duration) -> Option<i64> {
    i64::try_from(duration.as_micros()).ok().filter(|us| *us > 0)
}

/// Microseconds of a limit: one that is longer than time itself is none.
fn limit_us(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

fn wrong_size() -> String {
    "the sizes of windows must be from 1 microsecond to 292,000 years".to_owned()
}

/// Times of windows of either sort.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WindowTimes {
    /// Windows that are known from a time.
    Windows(WindowSpan),
    /// Sessions, which depend on the tuples.
    Sessions(SessionSpan),
}

/// Watermark after an event time was seen: none if tuples may be late without end.
pub(crate) fn watermark_after(time: EventTime, lateness_us: i64) -> EventTime {
    if lateness_us == i64::MAX {
        return EventTime::START;
    }
    time.minus(lateness_us)
}

/// Times of sessions in microseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SessionSpan {
    pub(crate) gap_us: i64,
    pub(crate) lateness_us: i64,
    pub(crate) future_us: i64,
}

/// Times of windows in microseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WindowSpan {
    /// Distance of anchors, which are its multiples.
    every_us: i64,
    /// Time from the anchor to the end.
    length_us: i64,
    /// Distance of starts.
    aligned_us: i64,
    /// Time from the anchor until the window closes.
    closes_us: i64,
    pub(crate) lateness_us: i64,
    future_us: i64,
    has_edges_of_ends: bool,
    is_of_results: bool,
}

impl WindowSpan {
    /// Anchor of the first window that contains an event time, or comes after it.
    #[inline]
    pub(crate) fn first_anchor(&self, time: EventTime) -> EventTime {
        if self.every_us == self.length_us {
            return time.rounded_down(self.every_us);
        }
        time.minus(self.length_us).rounded_down(self.every_us).plus(self.every_us)
    }

    /// Returns true if each event time is in one window.
    pub(crate) fn is_once(&self) -> bool {
        self.every_us == self.length_us && self.every_us == self.aligned_us
    }

    /// Anchors of the windows that contain an event time.
    pub(crate) fn anchors(&self, time: EventTime) -> impl Iterator<Item = EventTime> {
        let first = self.first_anchor(time);
        // The last one is that of the last step of a window.
        let end =
            if self.has_edges_of_ends { self.start_of(first).plus(self.aligned_us) } else { time.plus(1) };
        let every_us = self.every_us;
        std::iter::successors(Some(first), move |anchor| Some(anchor.plus(every_us)))
            .take_while(move |anchor| *anchor < end)
            .take(WINDOWS_OF_A_TIME_MAX as usize)
    }

    /// Anchor of the window with this edge: its start, or the end of a cumulating one.
    #[inline]
    pub(crate) fn anchor_at(&self, edge: EventTime) -> EventTime {
        if self.has_edges_of_ends { edge.minus(self.length_us) } else { edge }
    }

    /// Anchor of the window with this end.
    pub(crate) fn anchor_of_end(&self, end: EventTime) -> EventTime {
        end.minus(self.length_us)
    }

    /// Start of a window.
    #[inline]
    pub(crate) fn start_of(&self, anchor: EventTime) -> EventTime {
        anchor.rounded_down(self.aligned_us)
    }

    /// End of a window.
    #[inline]
    pub(crate) fn end_of(&self, anchor: EventTime) -> EventTime {
        anchor.plus(self.length_us)
    }

    /// Watermark that closes a window.
    #[inline]
    pub(crate) fn closes_at(&self, anchor: EventTime) -> EventTime {
        anchor.plus(self.closes_us)
    }

    /// Time before which the anchors of all windows lie that a watermark closes.
    pub(crate) fn closed_before(&self, watermark: EventTime) -> EventTime {
        // A window closes at or before the watermark if anchor < watermark - closes + 1.
        watermark.minus(self.closes_us).plus(1)
    }

    /// Anchor of the first window that a watermark leaves open.
    pub(crate) fn first_open(&self, watermark: EventTime) -> EventTime {
        if self.every_us == self.closes_us {
            return watermark.rounded_down(self.every_us);
        }
        watermark.minus(self.closes_us).rounded_down(self.every_us).plus(self.every_us)
    }

    /// Start of the first window that a watermark leaves open: no result behind the watermark has an earlier one.
    pub(crate) fn watermark_of_results(&self, watermark: EventTime) -> EventTime {
        self.start_of(self.first_open(watermark))
    }

    /// Tells whether a window is the first of those that contain a time, which closes before the others.
    pub(crate) fn is_first(&self, anchor: EventTime, time: EventTime) -> bool {
        self.is_of_results || anchor == self.first_anchor(time)
    }

    /// Tells whether an event time is too far ahead of the clock to be believed.
    pub(crate) fn is_future(&self, time: EventTime, now: EventTime) -> bool {
        time > now.plus(self.future_us)
    }

    /// Watermark after an event time was seen.
    pub(crate) fn watermark_after(&self, time: EventTime) -> EventTime {
        watermark_after(time, self.lateness_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(s: i64) -> EventTime {
        EventTime::from_micros(s * 1_000_000)
    }

    /// Windows of a time, as (start, end) in seconds.
    fn windows(window: TimeWindow, time_s: i64) -> Vec<(i64, i64)> {
        let span = window.span().unwrap();
        let edges = |anchor| (span.start_of(anchor), span.end_of(anchor));
        let in_seconds =
            |(start, end): (EventTime, EventTime)| (start.micros() / 1_000_000, end.micros() / 1_000_000);
        span.anchors(seconds(time_s)).map(edges).map(in_seconds).collect()
    }

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_time_is_in_the_windows_that_the_table_says() {
        assert_eq!(windows(TimeWindow::tumbling("at", s(10)), 29), [(20, 30)]);
        let hopping = |slide, size| TimeWindow::hopping("at", s(slide), s(size));
        assert_eq!(windows(hopping(5, 10), 29), [(20, 30), (25, 35)]);
        assert_eq!(windows(hopping(5, 10), 30), [(25, 35), (30, 40)]);
        assert_eq!(windows(hopping(4, 10), 11), [(4, 14), (8, 18)]);
        assert_eq!(windows(hopping(4, 10), 8), [(0, 10), (4, 14), (8, 18)]);
        assert_eq!(windows(hopping(4, 10), -1), [(-8, 2), (-4, 6)]);
        assert_eq!(windows(hopping(10, 4), 13), [(10, 14)]);
        assert_eq!(windows(hopping(10, 4), 14), []);
        let cumulating = TimeWindow::cumulating("at", s(5), s(15));
        assert_eq!(windows(cumulating.clone(), 0), [(0, 5), (0, 10), (0, 15)]);
        assert_eq!(windows(cumulating.clone(), 6), [(0, 10), (0, 15)]);
        assert_eq!(windows(cumulating, 29), [(15, 30)]);
    }

    #[test]
    fn a_watermark_closes_windows_in_order() {
        for window in [
            TimeWindow::tumbling("at", s(10)),
            TimeWindow::hopping("at", s(4), s(10)),
            TimeWindow::hopping("at", s(10), s(4)),
            TimeWindow::cumulating("at", s(5), s(15)),
            TimeWindow::hopping("at", s(4), s(10)).assigned_by("window_start", true),
        ] {
            let span = window.span().unwrap();
            for watermark in (-40..40).map(seconds) {
                let first = span.first_open(watermark);
                assert!(
                    span.closes_at(first) > watermark && first >= span.closed_before(watermark),
                    "{window:?}"
                );
                let before = first.minus(span.every_us);
                assert!(
                    span.closes_at(before) <= watermark && before < span.closed_before(watermark),
                    "{window:?}"
                );
                assert!(span.watermark_of_results(watermark) <= first, "{window:?}");
                let first_of_time = span.anchors(watermark).next();
                assert!(first_of_time.is_none_or(|anchor| span.is_first(anchor, watermark)), "{window:?}");
            }
        }
    }

    #[test]
    fn wrong_sizes_are_refused() {
        for (window, reason) in [
            (TimeWindow::tumbling("at", s(0)), "from 1 microsecond"),
            (TimeWindow::hopping("at", s(0), s(1)), "from 1 microsecond"),
            (TimeWindow::hopping("at", Duration::from_micros(1), s(1)), "1000000 windows"),
            (TimeWindow::cumulating("at", s(4), s(10)), "not a multiple of the step"),
            (TimeWindow::cumulating("at", Duration::from_micros(1), s(10)), "windows"),
        ] {
            let error = window.span().unwrap_err();
            assert!(error.contains(reason), "{window:?}: {error}");
        }
    }
}
