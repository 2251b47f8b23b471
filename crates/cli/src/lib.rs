//! The command line of Entresol: `entresol shell`, `entresol demo`, `entresol ssb`, `entresol serve`, and the
//! tools `top`, `role`, `check`, `info` and `backup`.
//!
//! - Results go to standard output; progress, notices and errors to standard error.
//! - Exit status: 0 on success, 1 on an error (its message is the last line on standard error), 2 on wrong
//!   arguments. A reader of standard output that goes away is no error.
//! - Notices are set by `ENTRESOL_LOG` (`warn` by default), such as `ENTRESOL_LOG=info`.
#![forbid(unsafe_code)]

pub mod arguments;
pub mod demo;
pub mod error;
pub mod serve;
pub mod shell;
pub mod ssb;
pub mod tools;
pub mod top;

use arguments::{Arguments, Command, DemoCommand};
use clap::Parser;
use error::Error;
use std::io::{self, IsTerminal};
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

/// Runs the program with the process's arguments.
pub fn run() -> ExitCode {
    let arguments = Arguments::parse();
    // The victims of the crash loop would repeat the notices of their parent.
    let quiet = matches!(arguments.command, Command::Demo(DemoCommand::CrashChild(_)));
    let default = if quiet { "error" } else { "warn" };
    let filter = EnvFilter::try_from_env("ENTRESOL_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .with_target(false)
        .without_time()
        .init();
    let outcome = match &arguments.command {
        Command::Shell(arguments) => shell::run(arguments),
        Command::Serve(arguments) => serve::run(arguments),
        Command::Top(arguments) => top::run(arguments),
        Command::Role(command) => serve::role::run(command),
        Command::Check(arguments) => tools::check::run(arguments),
        Command::Info(arguments) => tools::info::run(arguments),
        Command::Backup(arguments) => tools::backup::run(arguments),
        Command::Ssb(command) => ssb::run(command),
        Command::Demo(DemoCommand::SmartMetering(arguments)) => demo::run(arguments),
        Command::Demo(DemoCommand::CrashChild(arguments)) => {
            entresol_demo::crash::child::run(arguments).map_err(Error::from)
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is_closed_output() => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
