//! The experiments by name.

mod allocation;
mod basics;

use crate::report::Report;
use crate::{Error, RunOptions};

/// An experiment.
#[derive(Debug)]
pub struct Experiment {
    /// What `lab run` calls it.
    pub name: &'static str,
    /// One line on what it measures.
    pub about: &'static str,
    /// Measures and checks.
    pub run: fn(&RunOptions, &mut Report) -> Result<(), Error>,
}

/// All of them.
pub const ALL: &[Experiment] = &[
    Experiment {
        name: "basics",
        about: "FPTree beside BTreeMap, snapshot reads, opening a large database",
        run: basics::run,
    },
    Experiment {
        name: "allocation",
        about: "allocating nodes beside undo-log transactions, fragmentation, share of a split",
        run: allocation::run,
    },
];

/// The experiment with a name.
pub fn find(name: &str) -> Result<&'static Experiment, Error> {
    ALL.iter().find(|experiment| experiment.name == name).ok_or_else(|| Error::Unknown {
        name: name.to_string(),
        known: ALL.iter().map(|experiment| experiment.name).collect::<Vec<_>>().join(", "),
    })
}
