//! `entresol ssb`: runs a step of the Star Schema Benchmark, prints its results, and fails if an answer is
//! different.

use crate::error::{Error, Result};
use crate::shell::meta::print_table;
use crate::shell::output;
use crate::tools::bytes_text;
use entresol_ssb::{GenerateArguments, LoadArguments, RunArguments, SsbCommand, generate, load, run};
use std::fs;
use std::io::Write;
use std::path::Path;

/// Runs a step.
pub fn run(command: &SsbCommand) -> Result<()> {
    match command {
        SsbCommand::Generate(arguments) => write_files(arguments),
        SsbCommand::Load(arguments) => load_files(arguments),
        SsbCommand::Run(arguments) => run_queries(arguments),
    }
}

fn write_files(arguments: &GenerateArguments) -> Result<()> {
    let files = generate::generate(arguments)?;
    let rows = files.iter().map(|file| {
        vec![
            file.path.display().to_string(),
            file.rows.to_string(),
            bytes_text(file.bytes),
            seconds(file.seconds),
        ]
    });
    print(&["file", "rows", "size", "seconds"], &rows.collect::<Vec<_>>())
}

fn load_files(arguments: &LoadArguments) -> Result<()> {
    let tables = load::load(arguments)?;
    let rows = tables.iter().map(|table| {
        let rate = format!("{:.0}", table.rows as f64 / table.seconds.max(1e-6));
        vec![table.table.to_owned(), table.rows.to_string(), seconds(table.seconds), rate]
    });
    print(&["table", "rows", "seconds", "rows/s"], &rows.collect::<Vec<_>>())
}

fn run_queries(arguments: &RunArguments) -> Result<()> {
    for path in [&arguments.json, &arguments.plot].into_iter().flatten() {
        // Before a long run rather than after it.
        let opened = fs::OpenOptions::new().create(true).append(true).open(path);
        opened.map_err(|error| Error::file("write", path, error))?;
    }
    let report = run::run(arguments)?;
    print(&run::Report::HEADER, &report.rows())?;
    if let Some(path) = &arguments.json {
        write(path, format!("{:#}\n", report.to_json()))?;
    }
    if let Some(path) = &arguments.plot {
        write(path, run::render(&report))?;
    }
    match report.faults() {
        faults if faults.is_empty() => Ok(()),
        faults => Err(Error::Check(faults.join("\n"))),
    }
}

fn seconds(seconds: f64) -> String {
    format!("{seconds:.2}")
}

fn print(header: &[&str], rows: &[Vec<String>]) -> Result<()> {
    let mut out = output::stdout();
    print_table(header, rows, &mut out)?;
    Ok(out.flush()?)
}

fn write(path: &Path, text: String) -> Result<()> {
    fs::write(path, text).map_err(|error| Error::file("write", path, error))
}
