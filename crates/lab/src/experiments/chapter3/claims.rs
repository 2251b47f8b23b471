//! The paper's statements as checks.

use crate::report::Report;

/// The paper's words, and whether they hold of ours.
pub(in crate::experiments) fn holds(report: &mut Report, paper: &str, holds: bool) {
    report.check(&format!("as in the paper: {paper}"), holds);
}

/// The paper's words, what ours does otherwise, whether that is so, and why.
pub(in crate::experiments) fn differs(report: &mut Report, paper: &str, ours: &str, so: bool, why: &str) {
    report.note(&format!("The paper: {paper}. Here: {ours}. {why}"));
    report.check(&format!("otherwise than in the paper ({paper}): {ours}"), so);
}
