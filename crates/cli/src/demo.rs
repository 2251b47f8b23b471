//! `entresol demo`: runs the demo, prints its summary, and fails if a check failed.

use crate::error::{Error, Result};
use crate::shell::meta::print_table;
use crate::shell::output;
use entresol_demo::SmartMeteringArguments;
use std::fs;
use std::io::Write;

/// Runs the demo, or its crash loop.
pub fn run(arguments: &SmartMeteringArguments) -> Result<()> {
    if let Some(path) = &arguments.json {
        // Before a long run rather than after it.
        let opened = fs::OpenOptions::new().create(true).append(true).open(path);
        opened.map_err(|error| Error::file("write", path, error))?;
    }
    let summary = entresol_demo::run(arguments)?;
    let rows: Vec<Vec<String>> = summary.rows().into_iter().map(Vec::from).collect();
    let mut out = output::stdout();
    print_table(&["smart-metering", ""], &rows, &mut out)?;
    out.flush()?;
    if let Some(path) = &arguments.json {
        let text = format!("{:#}\n", summary.to_json());
        fs::write(path, text).map_err(|error| Error::file("write", path, error))?;
    }
    if summary.is_sound() {
        return Ok(());
    }
    Err(Error::Check(format!(
        "{} snapshot violations, {} lost and {} torn transactions",
        summary.snapshot_violations, summary.lost_transactions, summary.torn_transactions
    )))
}
