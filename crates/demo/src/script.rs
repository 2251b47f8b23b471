//! The script of the demo: `examples/smart-metering.sql`, as it stands there.
//!
//! Three words of it are those of the arguments: the folder of the input, the readings of a transaction, and, for
//! streams without an end, that files are followed.

use crate::SmartMeteringArguments;
use crate::input::{HOUSEHOLD_FILE, INFRASTRUCTURE_FILE};
use std::path::Path;

const SCRIPT: &str = include_str!("../../../examples/smart-metering.sql");
/// Folder of the input in the script.
const FOLDER: &str = "examples/smart-metering/";
/// Boundary of the topology of households in the script.
const BOUNDARY: &str = "COMMIT EVERY 500 ROWS";

/// Topology of the households.
pub const HOUSEHOLD_TOPOLOGY: &str = "households";
/// Topology of the infrastructure and its specification.
pub const INFRASTRUCTURE_TOPOLOGY: &str = "infrastructure";
/// Topology that judges the balances of feeders.
pub const BALANCE_TOPOLOGY: &str = "balances";
/// Source of the households.
pub const HOUSEHOLD_SOURCE: &str = "household_reading";
/// Source of the infrastructure.
pub const INFRASTRUCTURE_SOURCE: &str = "infrastructure_reading";
/// Source of the specification.
pub const SPECIFICATION_SOURCE: &str = "revision";
/// Source of the balances.
pub const BALANCE_SOURCE: &str = "CHANGES(feeder_balance)";

/// The script on the input in a folder. With `is_endless`, readings may be added to it later.
pub fn script(arguments: &SmartMeteringArguments, input: &Path, is_endless: bool) -> String {
    let folder = format!("{}/", input.display()).replace('\'', "''");
    let script = SCRIPT
        .replace(BOUNDARY, &format!("COMMIT EVERY {} ROWS", arguments.batch))
        .replace(&format!("'{FOLDER}"), &format!("'{folder}"));
    if !is_endless {
        return script;
    }
    [HOUSEHOLD_FILE, INFRASTRUCTURE_FILE]
        .iter()
        .fold(script, |script, file| script.replace(&format!("{file}'"), &format!("{file}', tail = true")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct CommandLine {
        #[command(flatten)]
        arguments: SmartMeteringArguments,
    }

    #[test]
    fn the_script_has_the_words_that_arguments_replace() {
        let arguments = CommandLine::parse_from(["demo", "--batch", "60"]).arguments;
        let script = script(&arguments, Path::new("/it's/input"), true);
        for expected in [
            "COMMIT EVERY 60 ROWS",
            "path = '/it''s/input/household.csv', tail = true",
            "path = '/it''s/input/infrastructure.csv', tail = true",
            "path = '/it''s/input/specification.csv', future_limit",
        ] {
            assert_eq!(script.matches(expected).count(), 1, "{expected} in {script}");
        }
        assert!(!script.contains("'examples/"), "{script}");
    }

    #[test]
    fn the_script_names_what_the_checks_read() {
        for name in [HOUSEHOLD_TOPOLOGY, INFRASTRUCTURE_TOPOLOGY, BALANCE_TOPOLOGY] {
            assert!(SCRIPT.contains(&format!("CREATE TOPOLOGY IF NOT EXISTS {name} ")), "{name}");
        }
        for name in [HOUSEHOLD_SOURCE, INFRASTRUCTURE_SOURCE, SPECIFICATION_SOURCE] {
            assert!(SCRIPT.contains(&format!("CREATE SOURCE IF NOT EXISTS {name} ")), "{name}");
        }
        assert!(SCRIPT.contains(BALANCE_SOURCE));
    }
}
