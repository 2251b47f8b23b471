//! The experiments by name.

mod allocation;
mod atomicity;
mod bandwidth;
#[cfg(feature = "database")]
mod basics;
mod calibrate;
mod crash_states;
mod flush_cost;
mod journal_commit;

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
    #[cfg(feature = "database")]
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
    Experiment {
        name: "atomicity",
        about: "ways of failure atomicity: none, one word, publication, undo log, PMwCAS (E6)",
        run: atomicity::run,
    },
    Experiment {
        name: "crash-states",
        about: "states that a power failure may leave: how many are looked at, how many are wrong",
        run: crash_states::run,
    },
    Experiment {
        name: "journal-commit",
        about: "commits beside the device, flush cost, write amplification, stalls, recovery",
        run: journal_commit::run,
    },
    Experiment {
        name: "bandwidth",
        about: "the bandwidth paper's figures 3 to 13 and its insights: DRAM, disk, modelled Optane",
        run: bandwidth::run,
    },
    Experiment {
        name: "flush-cost",
        about: "a store, a flush, a fence; one fence or many; real domains and modelled Optane",
        run: flush_cost::run,
    },
    Experiment {
        name: "calibrate",
        about: "measures memory and disk of this machine into device profiles",
        run: calibrate::run,
    },
];

/// The experiment with a name.
pub fn find(name: &str) -> Result<&'static Experiment, Error> {
    ALL.iter().find(|experiment| experiment.name == name).ok_or_else(|| Error::Unknown {
        name: name.to_string(),
        known: ALL.iter().map(|experiment| experiment.name).collect::<Vec<_>>().join(", "),
    })
}
