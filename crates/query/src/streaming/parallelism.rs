//! Option `parallelism` of a topology: the number of its threads, or `auto`.

use crate::error::{Error, Result};
use crate::parser::durations::invalid;
use crate::parser::own::streaming::CommitBoundary;
use crate::session::topologies::TopologyStatus;
use crate::streaming::options::StreamOptions;
use entresol_streams::{OVERLAPPED_TUPLES_MIN, PARALLELISM_MAX};
use std::num::NonZero;
use std::thread::available_parallelism;

const OPTION: &str = "parallelism";

/// Takes the number of threads: one without the option. `auto` is the number of processors, but one where transactions
/// have too few rows to be divided.
pub(crate) fn take(options: &mut StreamOptions, boundaries: &[CommitBoundary]) -> Result<usize> {
    let Some(text) = options.take(OPTION) else { return Ok(1) };
    if text.eq_ignore_ascii_case("auto") {
        let is_short = |boundary: &CommitBoundary| match boundary {
            CommitBoundary::EachRow => true,
            CommitBoundary::Rows(rows) => *rows < OVERLAPPED_TUPLES_MIN,
            CommitBoundary::Interval(_) | CommitBoundary::WindowClose(_) | CommitBoundary::Source => false,
        };
        let processors = available_parallelism().map_or(1, NonZero::get);
        return Ok(if boundaries.iter().any(is_short) { 1 } else { processors.min(PARALLELISM_MAX) });
    }
    match text.parse() {
        Ok(threads) if (1..=PARALLELISM_MAX).contains(&threads) => Ok(threads),
        Ok(_) => {
            let message =
                format!("option \"{OPTION}\" is {text}; it must be from 1 to {PARALLELISM_MAX}, or auto");
            Err(Error::coded("22023", message))
        }
        Err(_) => Err(invalid(OPTION, &text)),
    }
}

/// Lines of EXPLAIN TOPOLOGY: which operators of a topology are divided, and what runs beside the next transaction.
pub(crate) fn explained(status: &TopologyStatus) -> Vec<String> {
    let Some(parallelism) = status.parallelism.filter(|parallelism| *parallelism > 1) else {
        return Vec::new();
    };
    let mut lines = vec![format!("  up to {parallelism} threads")];
    if status.overlaps {
        lines.push("  commit beside the next transaction".to_owned());
    }
    let divided = status.operators.iter().filter(|operator| operator.parts > 1);
    lines.extend(divided.map(|operator| {
        format!("  exchange by hash of the key: {} in {} parts", operator.name, operator.parts)
    }));
    if lines.len() == 1 {
        lines.push("  no operator that can be divided, or go on while a transaction commits".to_owned());
    }
    lines
}
