//! The `entresol` program; all of it is in the library beside it.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    entresol_cli::run()
}
