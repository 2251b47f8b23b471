//! `lab`: the experiments, each one command.

use clap::{Parser, Subcommand};
use entresol_lab::asked::KnownMisses;
use entresol_lab::experiments::histories::worker::{self, Life};
#[cfg(all(feature = "database", feature = "peers"))]
use entresol_lab::experiments::small_memory;
use entresol_lab::{Error, RunOptions, experiments, report::Report};
use std::path::PathBuf;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

/// Experiments of the papers and races against peers, with the results checked inside the run.
#[derive(Parser)]
#[command(version, after_help = "Example:\n  lab run basics --quick --json basics.json --plot basics.svg")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Lists the experiments.
    List,
    /// Runs some, one after another. The exit status is 0 only if every check holds and no figure misses what
    /// is asked of it, known misses apart; the last line names each miss.
    Run {
        /// Their names, as `lab list` gives them.
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
        /// Small sizes: ends within a minute. Figures are then no statement about speed.
        #[arg(long)]
        quick: bool,
        /// Writes the results as JSON to a file: an object, or an array of them where several experiments
        /// run.
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
        /// Draws the results as SVG into a file; for one experiment at a time.
        #[arg(long, value_name = "FILE")]
        plot: Option<PathBuf>,
        /// The directory to put databases in; by default one under the system's temporary directory.
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
        /// Writes the profile that `calibrate` measures to a file; the disk's goes beside it, as
        /// FILE-disk.toml.
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        /// Seed of all randomness.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Asks another value of a figure, at any size; may be repeated.
        #[arg(long, value_name = "FIGURE=VALUE", value_parser = figure_and_value)]
        ask: Vec<(String, f64)>,
        /// List of known misses to use in place of the built-in one (crates/lab/known-misses.toml).
        #[arg(long, value_name = "FILE")]
        known_misses: Option<PathBuf>,
        /// Duration of `churn`, in place of ten minutes.
        #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(10..))]
        seconds: Option<u64>,
    },
    /// The process that `histories` starts and kills.
    #[command(hide = true)]
    HistoryWorker(Life),
    /// The process in which `small-memory` measures one store.
    #[cfg(all(feature = "database", feature = "peers"))]
    #[command(hide = true)]
    StoreWorker(small_memory::peers::StoreWorker),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let filter = EnvFilter::try_from_env("ENTRESOL_LOG").unwrap_or_else(|_| EnvFilter::new("error"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false).init();
    match run(arguments.command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("lab: {error}");
            ExitCode::from(2)
        }
    }
}

/// A figure's name and a value, separated by the last `=`.
fn figure_and_value(argument: &str) -> Result<(String, f64), String> {
    let (name, value) = argument.rsplit_once('=').ok_or("no '=' in it")?;
    let value = value.parse().map_err(|_| format!("'{value}' is not a number"))?;
    Ok((name.to_string(), value))
}

fn run(command: Command) -> Result<bool, Error> {
    let (names, quick, json, plot, dir, out, seed, ask, known_misses, seconds) = match command {
        Command::Run { names, quick, json, plot, dir, out, seed, ask, known_misses, seconds } => {
            (names, quick, json, plot, dir, out, seed, ask, known_misses, seconds)
        }
        Command::List => {
            for experiment in experiments::ALL {
                println!("{:22} {}", experiment.name, experiment.about);
            }
            return Ok(true);
        }
        Command::HistoryWorker(life) => return worker::run(&life).map(|()| true),
        #[cfg(all(feature = "database", feature = "peers"))]
        Command::StoreWorker(arguments) => return small_memory::peers::work(&arguments).map(|()| true),
    };
    if plot.is_some() && names.len() > 1 {
        return Err(Error::Invalid("--plot draws one experiment; run them one by one".to_string()));
    }
    if !ask.is_empty() && names.len() > 1 {
        return Err(Error::Invalid(
            "--ask names a figure of one experiment; run them one by one".to_string(),
        ));
    }
    // Wrong names and lists are found before the first experiment has run for minutes.
    let chosen = names.iter().map(|name| experiments::find(name)).collect::<Result<Vec<_>, _>>()?;
    let known_misses = match known_misses {
        Some(path) => KnownMisses::read(&path)?,
        None => KnownMisses::built_in()?,
    };
    let program = std::env::current_exe()
        .map_err(|error| Error::Io { action: "find this program".to_string(), error })?;
    let options = RunOptions { quick, seed, dir, out, program, seconds };
    let mut reports = Vec::new();
    for experiment in chosen {
        let mut report =
            Report::new(experiment.name, quick).with_known_misses(&known_misses).with_overrides(&ask);
        (experiment.run)(&options, &mut report)?;
        print!("{report}");
        report.check_names()?;
        reports.push(report);
    }
    if let Some(path) = json {
        Report::write_json(&reports, &path)?;
    }
    if let (Some(path), [report]) = (plot, &reports[..]) {
        report.write_plot(&path)?;
    }
    summarise(&reports);
    Ok(reports.iter().all(Report::passed))
}

/// Prints what failed; misses last, all in one line.
fn summarise(reports: &[Report]) {
    let print = |title: &str, lines: Vec<String>| {
        if !lines.is_empty() {
            println!("{title}: {}", lines.join("; "));
        }
    };
    let all = |of: fn(&Report) -> Vec<String>| reports.iter().flat_map(of).collect();
    print("met now, remove from the known misses", all(Report::known_misses_met));
    print("failed", all(Report::failed_checks));
    print("missed", all(Report::misses));
}
