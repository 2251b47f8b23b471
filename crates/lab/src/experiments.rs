//! The experiments by name.

mod basics;
mod crash_states;

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
        name: "crash-states",
        about: "states that a power failure may leave: how many are looked at, how many are wrong",
        run: crash_states::run,
    },
];

/// The experiment with a name.
pub fn find(name: &str) -> Result<&'static Experiment, Error> {
    ALL.iter().find(|experiment| experiment.name == name).ok_or_else(|| Error::Unknown {
        name: name.to_string(),
        known: ALL.iter().map(|experiment| experiment.name).collect::<Vec<_>>().join(", "),
    })
}
