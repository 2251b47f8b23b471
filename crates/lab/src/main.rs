//! `lab`: the experiments, each one command.

use clap::{Parser, Subcommand};
use entresol_lab::experiments::histories::worker::{self, Life};
use entresol_lab::{Error, RunOptions, experiments, report::Report};
use std::path::PathBuf;
use std::process::ExitCode;

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
    /// Runs some, one after another; the exit status is 0 only if every check holds.
    Run {
        /// Their names, as `lab list` gives them.
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
        /// Small sizes: ends within a minute. Figures are then no statement about speed.
        #[arg(long)]
        quick: bool,
        /// Where to put the results as JSON: an object, or an array of them where several experiments run.
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
        /// Where to draw the results as SVG; for one experiment at a time.
        #[arg(long, value_name = "FILE")]
        plot: Option<PathBuf>,
        /// The directory to put databases in; by default one under the system's temporary directory.
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
        /// Where `calibrate` puts the profile that it measures; the disk's goes beside it, as FILE-disk.toml.
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        /// Seed of all randomness.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// How long `churn` takes, in place of ten minutes.
        #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(10..))]
        seconds: Option<u64>,
    },
    /// The process that `histories` starts and kills.
    #[command(hide = true)]
    HistoryWorker(Life),
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("lab: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(command: Command) -> Result<bool, Error> {
    let (names, quick, json, plot, dir, out, seed, seconds) = match command {
        Command::Run { names, quick, json, plot, dir, out, seed, seconds } => {
            (names, quick, json, plot, dir, out, seed, seconds)
        }
        Command::List => {
            for experiment in experiments::ALL {
                println!("{:22} {}", experiment.name, experiment.about);
            }
            return Ok(true);
        }
        Command::HistoryWorker(life) => return worker::run(&life).map(|()| true),
    };
    if plot.is_some() && names.len() > 1 {
        return Err(Error::Invalid("--plot draws one experiment; run them one by one".to_string()));
    }
    // A wrong name is found before the first experiment has run for minutes.
    let chosen = names.iter().map(|name| experiments::find(name)).collect::<Result<Vec<_>, _>>()?;
    let program = std::env::current_exe()
        .map_err(|error| Error::Io { what: "find this program".to_string(), error })?;
    let options = RunOptions { quick, seed, dir, out, program, seconds };
    let mut reports = Vec::new();
    for experiment in chosen {
        let mut report = Report::new(experiment.name, quick);
        (experiment.run)(&options, &mut report)?;
        print!("{report}");
        reports.push(report);
    }
    if let Some(path) = json {
        Report::write_json(&reports, &path)?;
    }
    if let (Some(path), [report]) = (plot, &reports[..]) {
        report.write_plot(&path)?;
    }
    Ok(reports.iter().all(Report::passed))
}
