//! What the command line understands.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use entresol::Durability;

use crate::shell::output::Format;

const EXAMPLES: &str = "Examples:
  entresol demo smart-metering                     the smart metering use case, simulated
  entresol demo smart-metering --crash --cycles 50 the same under kill -9, checked
  entresol shell ./db                              SQL by hand
  entresol shell ./db -c 'SELECT 1 + 1'            one statement
  entresol shell ./db --format csv -f query.sql    statements from a file, results as CSV
  entresol check ./db                              is everything as it was written?
  entresol backup ./db ./db-copy --verify          a copy, whole or not there at all";

/// An embedded database for transactional streams and analytics on tiered memory.
#[derive(Debug, Parser)]
#[command(name = "entresol", version, about, after_help = EXAMPLES, propagate_version = true)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run SQL on a database: at a terminal, with -c, from a file, or from standard input.
    Shell(ShellArguments),
    /// Verify every checksum, object and row of a database; changes nothing.
    Check(CheckArguments),
    /// Say what a database is and holds; changes nothing.
    Info(InfoArguments),
    /// Copy a database.
    Backup(BackupArguments),
    /// Run a demonstration.
    #[command(subcommand)]
    Demo(DemoCommand),
}

const SHELL_EXAMPLES: &str = "Examples:
  entresol shell ./db
  entresol shell ./db -c 'CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR); SELECT * FROM t'
  entresol shell ./db --format json -c 'SELECT * FROM t' | jq .
  entresol shell ./db < statements.sql
At the prompt, \\? lists the commands. The first error ends -c, -f and standard input with exit status 1.";

/// Arguments of `entresol shell`.
#[derive(Debug, Args)]
#[command(after_help = SHELL_EXAMPLES)]
pub struct ShellArguments {
    /// Directory of the database; made if it is not there.
    pub dir: PathBuf,
    /// Run these statements and leave (may be given several times).
    #[arg(short, long, value_name = "SQL")]
    pub command: Vec<String>,
    /// Run the statements of a file and leave (may be given several times; after all -c).
    #[arg(short, long, value_name = "FILE")]
    pub file: Vec<PathBuf>,
    /// How results are printed.
    #[arg(long, value_enum, default_value = "table")]
    pub format: Format,
    /// When commits are durable: sync, group:10ms (any number of milliseconds) or none.
    #[arg(long, default_value = "sync", value_name = "LEVEL")]
    pub durability: Durability,
    /// Neither read nor write the history.
    #[arg(long)]
    pub no_history: bool,
}

/// Arguments of `entresol check`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  entresol check ./db
  entresol check ./db --json report.json
The exit status is 1 if anything is wrong. Nobody may have the database open meanwhile.")]
pub struct CheckArguments {
    /// Directory of the database.
    pub dir: PathBuf,
    /// Write what was found as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Say nothing about progress.
    #[arg(short, long)]
    pub quiet: bool,
}

/// Arguments of `entresol info`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  entresol info ./db
  entresol info ./db --json | jq .tables
Of a database that a process has open, it says what the headers of the files say.")]
pub struct InfoArguments {
    /// Directory of the database.
    pub dir: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `entresol backup`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  entresol backup ./db /backups/monday --verify
  entresol shell ./db -c \"BACKUP TO '/backups/monday'\"
A backup is a database: open it, or copy it back. If a process has the database open, it makes the backup: with the
statement BACKUP TO 'directory', or Database::backup; others go on writing meanwhile.")]
pub struct BackupArguments {
    /// Directory of the database.
    pub dir: PathBuf,
    /// Directory of the copy: not there yet, or empty. It appears when the copy is whole.
    #[arg(value_name = "DEST")]
    pub destination: PathBuf,
    /// Check the copy, as `entresol check` does.
    #[arg(long)]
    pub verify: bool,
}

/// The demonstrations.
#[derive(Debug, Subcommand)]
pub enum DemoCommand {
    /// Smart meters and energy monitoring: three continuous queries and ad-hoc SQL on shared states.
    SmartMetering(Box<SmartMeteringArguments>),
    /// One cycle's victim of the crash loop.
    #[command(hide = true)]
    CrashChild(Box<SmartMeteringArguments>),
}

const DEMO_HELP: &str = "Readings of households and of the infrastructure (transformers, generators) are put in \
windows of 30 minutes and written to the states `household`, `infrastructure` and `latest`. What is committed is \
joined with the demand of the households and with `specification`, which a third stream updates; what is out of \
range goes to `alarms` and is printed. Meanwhile, SQL sessions check that snapshots over several states are \
consistent.";

const DEMO_EXAMPLES: &str = "Examples:
  entresol demo smart-metering                                      a million simulated readings
  entresol demo smart-metering --meters 100 --durability group:10ms
  entresol demo smart-metering --data DIR --dir ./demo-db           real series; keep the database ...
  entresol shell ./demo-db -c 'SELECT * FROM alarms LIMIT 10'       ... and query it
  entresol demo smart-metering --crash --cycles 50 --json crash.json

DIR of --data: household/household_power_consumption.txt, transformer/ETTh1.csv, transformer/ETTh2.csv,
nab/data/realKnownCause/{machine,ambient}_temperature_system_failure.csv, nab/labels/combined_windows.json";

/// Arguments of `entresol demo smart-metering`.
#[derive(Debug, Clone, Args)]
#[command(long_about = DEMO_HELP, after_help = DEMO_EXAMPLES)]
pub struct SmartMeteringArguments {
    /// Read real series from this directory instead of simulating (layout below).
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Readings in all, of households and infrastructure [default: 1000000 simulated; with --data: until the
    /// infrastructure's series end; with --crash: no end].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000))]
    pub readings: Option<u64>,
    /// Smart meters; with --data, the household is replayed for each with an offset.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub meters: u32,
    /// Readings per transaction.
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub batch: u32,
    /// When commits are durable: sync, group:10ms (any number of milliseconds) or none.
    #[arg(long, default_value = "sync", value_name = "LEVEL")]
    pub durability: Durability,
    /// Directory of the database, kept afterwards; the demo goes on where it was [default: a temporary one].
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Seed of the simulator and of the crash loop.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// SQL sessions that check snapshots while the demo runs.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=64))]
    pub sessions: u32,
    /// Alarms that are printed; all are stored and counted.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub print_alarms: u64,
    /// Write the results as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Where rejected rows of the files go, if there are any [default: rejected.csv in DIR of --dir, else
    /// entresol-rejected.csv here].
    #[arg(long, value_name = "FILE")]
    pub rejects: Option<PathBuf>,
    /// Kill the demo with SIGKILL at random moments, reopen and verify it, go on.
    #[arg(long)]
    pub crash: bool,
    /// Kills of the crash loop.
    #[arg(long, value_name = "N", default_value_t = 50, requires = "crash")]
    pub cycles: u32,
    /// For the victim of the crash loop: end by itself after so long.
    #[arg(long, value_name = "MS", hide = true)]
    pub stop_after_ms: Option<u64>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn arguments_are_consistent() {
        Arguments::command().debug_assert();
    }
}
