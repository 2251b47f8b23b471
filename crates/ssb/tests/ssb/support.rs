//! Calling the steps as the command line does.

use clap::Parser;
use entresol_ssb::generate::{TableFile, generate};
use entresol_ssb::load::{LoadedTable, load};
use entresol_ssb::run::{Report, run};
use entresol_ssb::{Error, SsbCommand};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use tempfile::TempDir;

#[derive(Debug, Parser)]
struct Call {
    #[command(subcommand)]
    command: SsbCommand,
}

fn command(step: &str, arguments: &[&str]) -> SsbCommand {
    let call = Call::try_parse_from(["ssb", step].iter().chain(arguments));
    call.unwrap_or_else(|error| panic!("{arguments:?}: {error}")).command
}

/// Message of arguments that are refused.
pub fn refused(arguments: &[&str]) -> String {
    Call::try_parse_from(["ssb"].iter().chain(arguments)).unwrap_err().to_string()
}

pub fn generated(arguments: &[&str]) -> Result<Vec<TableFile>, Error> {
    let SsbCommand::Generate(arguments) = command("generate", arguments) else { panic!() };
    generate(&arguments)
}

pub fn loaded(files: &Path, dir: &Path, arguments: &[&str]) -> Result<Vec<LoadedTable>, Error> {
    let all = [&[text(files), "--dir", text(dir)], arguments].concat();
    let SsbCommand::Load(arguments) = command("load", &all) else { panic!() };
    load(&arguments)
}

pub fn ran(dir: &Path, arguments: &[&str]) -> Result<Report, Error> {
    let all = [&["--dir", text(dir)], arguments].concat();
    let SsbCommand::Run(arguments) = command("run", &all) else { panic!() };
    run(&arguments)
}

pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Files of scale factor 0.01, for all tests that only read them.
pub fn small_files() -> &'static Path {
    static FILES: OnceLock<TempDir> = OnceLock::new();
    let dir = FILES.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        generated(&["--sf", "0.01", "--out", text(dir.path())]).unwrap();
        dir
    });
    dir.path()
}

/// A copy of these files.
pub fn copied_files() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for table in entresol_ssb::TABLES {
        std::fs::copy(file(small_files(), table), file(dir.path(), table)).unwrap();
    }
    dir
}

pub fn file(dir: &Path, table: &str) -> PathBuf {
    dir.join(format!("{table}.tbl"))
}
