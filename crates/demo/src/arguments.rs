//! Arguments of the demo.

use clap::Args;
use entresol::{Durability, MemorySize};
use std::path::PathBuf;

const DEMO_HELP: &str = "Runs the script examples/smart-metering.sql. Readings of households and of the \
infrastructure (transformers, generators) are put in windows of 30 minutes and written to the tables `household`, \
`infrastructure` and `latest`. Windows out of the limits in `specification`, which a third stream revises, and loads \
that the demand of the households does not explain go to `alarms` and are printed. Meanwhile, SQL sessions check that \
snapshots over several tables are consistent. The input is written first, as CSV files in the folder `input` of the \
database's directory: about 45 bytes per reading.";

const DEMO_EXAMPLES: &str = "Examples:
  entresol demo smart-metering                                      a million simulated readings
  entresol demo smart-metering --meters 100 --durability group:10ms
  entresol demo smart-metering --data DIR --dir ./demo-db           real series; keep the database ...
  entresol shell ./demo-db -c 'SELECT * FROM alarms LIMIT 10'       ... and query it
  entresol demo smart-metering --crash --cycles 50 --json crash.json

DIR of --data: household/household_power_consumption.txt, transformer/ETTh1.csv, transformer/ETTh2.csv,
nab/data/realKnownCause/{machine,ambient}_temperature_system_failure.csv, nab/labels/combined_windows.json";

/// Arguments of the demo.
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
    /// Durability of commits: sync, group:10ms (any number of milliseconds) or none.
    #[arg(long, default_value = "sync", value_name = "LEVEL")]
    pub durability: Durability,
    /// Memory of the database: bytes such as 512MiB, or a share of the machine or its control group such as
    /// 25%.
    #[arg(long, value_name = "SIZE", default_value = "50%")]
    pub memory_max: MemorySize,
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
    /// File for rejected rows of the input files, if there are any [default: rejected.csv in DIR of --dir,
    /// else entresol-rejected.csv here].
    #[arg(long, value_name = "FILE")]
    pub rejects: Option<PathBuf>,
    /// Kill the demo with SIGKILL at random times, reopen and verify it, go on.
    #[arg(long)]
    pub crash: bool,
    /// Kills of the crash loop.
    #[arg(long, value_name = "N", default_value_t = 50, requires = "crash")]
    pub cycles: u32,
    /// For the victim of the crash loop: end by itself after so long.
    #[arg(long, value_name = "MS", hide = true)]
    pub stop_after_ms: Option<u64>,
}
