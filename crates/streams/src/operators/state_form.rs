//! Choice of the form in which the groups of a window are stored: each as a row, or several in a page.
//!
//! Costs of the state of an operator (dissertation 5.6.3, formula 5.1):
//!
//! ```text
//!   c_op = f_op_r · f_s_r + f_op_w · f_s_w
//! ```
//!
//! with the reads and writes of the operator (`f_op`), and the cost of one of them in a representation of the state (`f_s`). The
//! groups that a window aggregate needs are in DRAM, so it reads nothing (`f_op_r = 0`) in either form, and
//!
//! | form | writes of a commit that touches t of g groups, r of which fill a page | cost of a write |
//! | --- | --- | --- |
//! | rows | t | [`ROW_NS`] |
//! | pages | ⌈g / r⌉ · (1 − (1 − t/g)^r): pages with at least one of them | [`PAGE_NS`] |
//!
//! The mean over the last commits decides. A form is changed only where the other one costs clearly less, since the window is
//! written as a whole then.

/// Processor time of writing a row, or a page, in nanoseconds: encoding, write set, look-up, version, journal. Measured by
/// the example `state_forms` with 1,000 to 20,000 groups; only their ratio decides.
const ROW_NS: f64 = 750.0;
const PAGE_NS: f64 = 12_000.0;
/// Commits before the first choice, and weight of those of which the mean is.
const COMMITS_MIN: u32 = 32;
/// Part of the other form's cost that a form must cost to be taken instead.
const CLEARLY_LESS: f64 = 0.7;
/// Rows of a page, until one has been made.
const ROWS_OF_PAGE: f64 = 64.0;

/// Form in which the groups of a window aggregate are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StateForm {
    /// Each as a row.
    #[default]
    Rows,
    /// Several in a page of at most 4 KiB.
    Pages,
}

/// Costs of a state in both forms, of a commit, and the form that was chosen by them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateCosts {
    /// True if groups are stored in pages.
    pub in_pages: bool,
    /// Rows that a commit writes.
    pub rows: u64,
    /// Pages that a commit writes, or would write.
    pub pages: u64,
    /// Nanoseconds of both.
    pub rows_ns: u64,
    /// Nanoseconds of the pages.
    pub pages_ns: u64,
}

/// Choice by the last commits.
#[derive(Debug, Default)]
pub(super) struct FormChoice {
    form: StateForm,
    commits: u32,
    rows: f64,
    pages: f64,
    /// Rows of a page, as they were made last.
    rows_of_page: Option<f64>,
    /// Form that is taken whatever it costs.
    fixed: Option<StateForm>,
}

impl FormChoice {
    /// Choice of a form, if it is given, whatever it costs.
    pub(super) fn fixed(fixed: Option<StateForm>) -> FormChoice {
        FormChoice { fixed, form: fixed.unwrap_or_default(), ..FormChoice::default() }
    }

    /// Notes that an earlier run has chosen pages: it goes on with them until it knows better.
    pub(super) fn found_pages(&mut self) {
        if self.fixed.is_none() && self.commits == 0 {
            self.form = StateForm::Pages;
        }
    }

    /// Notes a commit that writes some of a window's groups; returns the form to write them in.
    pub(super) fn note(&mut self, touched: usize, groups: usize) -> StateForm {
        self.commits = (self.commits + 1).min(COMMITS_MIN);
        let (touched, groups) = (touched as f64, groups.max(touched).max(1) as f64);
        let of_page = self.rows_of_page.unwrap_or(ROWS_OF_PAGE).max(1.0);
        let pages = (groups / of_page).ceil() * (1.0 - (1.0 - touched / groups).powf(of_page));
        let weight = 1.0 / f64::from(self.commits);
        self.rows += (touched - self.rows) * weight;
        self.pages += (pages - self.pages) * weight;
        if self.commits == COMMITS_MIN && self.fixed.is_none() {
            let (rows_ns, pages_ns) = (self.rows * ROW_NS, self.pages * PAGE_NS);
            self.form = match self.form {
                StateForm::Rows if pages_ns < rows_ns * CLEARLY_LESS => StateForm::Pages,
                StateForm::Pages if rows_ns < pages_ns * CLEARLY_LESS => StateForm::Rows,
                form => form,
            };
        }
        self.form
    }

    /// Notes pages that were made of rows.
    pub(super) fn note_pages(&mut self, rows: usize, pages: usize) {
        if pages > 0 {
            self.rows_of_page = Some(rows as f64 / pages as f64);
        }
    }

    /// Costs of both forms; none before the first choice.
    pub(super) fn costs(&self) -> Option<StateCosts> {
        (self.commits == COMMITS_MIN).then(|| StateCosts {
            in_pages: self.form == StateForm::Pages,
            rows: self.rows.round() as u64,
            pages: self.pages.round() as u64,
            rows_ns: (self.rows * ROW_NS) as u64,
            pages_ns: (self.pages * PAGE_NS) as u64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_for_commits_that_touch_most_groups() {
        let mut dense = FormChoice::default();
        let forms: Vec<StateForm> = (0..100).map(|_| dense.note(1000, 1000)).collect();
        assert_eq!(forms[..COMMITS_MIN as usize - 1], [StateForm::Rows; COMMITS_MIN as usize - 1]);
        assert_eq!(forms.last(), Some(&StateForm::Pages));
        let costs = dense.costs().unwrap();
        assert_eq!((costs.in_pages, costs.rows, costs.pages), (true, 1000, 16));
        // It changes when the groups become many.
        assert!((0..100).any(|_| dense.note(1000, 100_000) == StateForm::Rows));
        assert!(!dense.costs().unwrap().in_pages);
    }

    #[test]
    fn a_window_that_begins_with_new_groups_stays_in_rows() {
        let mut sparse = FormChoice::default();
        for commit in 1..=100 {
            assert_eq!(sparse.note(1000, 1000 * commit), StateForm::Rows, "commit {commit}");
        }
        assert_eq!(sparse.costs().unwrap().rows, 1000);
    }

    #[test]
    fn a_form_is_not_changed_for_little() {
        let mut choice = FormChoice::default();
        choice.note_pages(100, 10);
        let forms: Vec<StateForm> = (0..200).map(|commit| choice.note(100 + commit % 3, 110)).collect();
        let changes = forms.windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert!(changes <= 1, "{changes} changes");
    }
}
