//! Arguments of `entresol ssb`.

use crate::generate::Scale;
use crate::load::LAYOUT_DEFAULT;
use crate::run::Selection;
use clap::{Args, Subcommand, ValueEnum};
use entresol::MemorySize;
use std::path::PathBuf;

/// Steps of the benchmark.
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub enum SsbCommand {
    /// Write the five tables as .tbl files.
    Generate(GenerateArguments),
    /// Load .tbl files, of this or another generator, into a database.
    Load(LoadArguments),
    /// Run the 13 queries, time them, and compare or save their results.
    Run(RunArguments),
}

const EXAMPLES: &str = "Examples:
  entresol ssb generate --sf 1 --out ./ssb-1               about 6 million lines of orders, 600 MB
  entresol ssb load ./ssb-1 --dir ./db
  entresol ssb run --dir ./db --repeat 5 --json ssb.json --plot ssb.svg
  entresol ssb run --dir ./db --memory 256MiB              the same with little memory";

const GENERATE_HELP: &str = "Files: customer.tbl, supplier.tbl, part.tbl, date.tbl, lineorder.tbl, with `|` between the
fields, no header and no separator at the end of a line. A file has its name when it is complete; before, it ends in
.partial. The same scale factor and seed give the same bytes, whatever the number of threads.

Rows at scale factor SF:
  customer    30,000 SF
  supplier     2,000 SF
  part       200,000 (1 + log2 SF), the sum rounded down; 200,000 SF below scale factor 1
  date         2,557, all days of 1992 to 1998
  lineorder    about 6,000,000 SF: 1 to 7 lines for each of 1,500,000 SF orders";

/// Arguments of `entresol ssb generate`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = GENERATE_HELP)]
pub struct GenerateArguments {
    /// Scale factor, from 0.001 to 10000: 1 is about 6 million rows and 600 MB.
    #[arg(long, value_name = "N")]
    pub sf: Scale,
    /// Directory of the files; made if it does not exist.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub out: PathBuf,
    /// Seed of the values.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Threads that make rows [default: as many as there are cores].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Replace files that are there.
    #[arg(long)]
    pub force: bool,
}

/// Storage layout of the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Layout {
    /// Row by row.
    Rows,
    /// Column by column.
    Columns,
}

const LOAD_HELP: &str =
    "Lines have the columns of the benchmark's tables in their order, with `|` between the fields,
and may have one more at their end. All tables are loaded under other names and take their own when the last
one is complete: after an error the tables are as they were, and a killed load leaves no part of a table.
Errors name file, line, column and value.";

/// Arguments of `entresol ssb load`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = LOAD_HELP)]
pub struct LoadArguments {
    /// Directory with customer.tbl, supplier.tbl, part.tbl, date.tbl and lineorder.tbl.
    #[arg(value_name = "TBL_DIR")]
    pub files: PathBuf,
    /// Directory of the database; created if it does not exist.
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// Layout of the tables.
    #[arg(long, value_enum, default_value_t = LAYOUT_DEFAULT)]
    pub layout: Layout,
    /// Replace tables of these names.
    #[arg(long)]
    pub force: bool,
    /// Memory of the database: bytes such as 512MiB, or a share of the machine or its control group such as
    /// 25%.
    #[arg(long, value_name = "SIZE", default_value = "50%")]
    pub memory: MemorySize,
}

const RUN_HELP: &str =
    "Each query runs once, which is the time `first`, and then --repeat times more; the median is of
those, the best of all. The database is opened once, before the first query, so the first times of later
queries profit from what earlier ones have read. A result that differs between two runs, or from --answers,
is DIFFERENT, and the exit status 1.

DIR of --answers and --save has one CSV file for each query, q1.1.csv to q4.3.csv: a header, then the rows in
the order of the query's ORDER BY. Rows that are equal in its columns may come in any order.";

/// Arguments of `entresol ssb run`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = RUN_HELP)]
pub struct RunArguments {
    /// Directory of the database, with tables that `entresol ssb load` made.
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// Queries to run, in this order, such as 1.1,2.1; a number alone is a flight, such as 3 [default: all 13].
    #[arg(long, value_name = "LIST", default_value = "1,2,3,4", hide_default_value = true)]
    pub queries: Selection,
    /// Memory of the database: bytes such as 512MiB, or a share of the machine or its control group such as
    /// 25%.
    #[arg(long, value_name = "SIZE|PERCENT", default_value = "50%")]
    pub memory: MemorySize,
    /// Threads for queries [default: as many as there are cores].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Runs of each query after the first.
    #[arg(long, value_name = "K", default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pub repeat: u32,
    /// Compare the results with the CSV files of this directory.
    #[arg(long, value_name = "DIR")]
    pub answers: Option<PathBuf>,
    /// Write the results as CSV files into this directory.
    #[arg(long, value_name = "DIR")]
    pub save: Option<PathBuf>,
    /// Write the times as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Draw the times as SVG.
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
}
