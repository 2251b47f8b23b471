//! `entresol check DIR`: every checksum, every object, every row. Nothing is changed.

use super::bytes_text;
use crate::arguments::CheckArguments;
use crate::error::{Error, Result};
use crate::shell::meta::print_table;
use crate::shell::output;
use entresol::tables::CheckReport;
use entresol::{ErrorKind, memory, offline};
use serde_json::json;
use std::fs;
use std::io::Write;
use std::path::Path;

/// Runs `entresol check`. `Err` if anything is wrong.
pub fn run(arguments: &CheckArguments) -> Result<()> {
    let report = check(&arguments.dir, |what| {
        if !arguments.quiet {
            eprintln!("{what}");
        }
    })?;
    print(&report, &mut output::stdout())?;
    if let Some(path) = &arguments.json {
        let text = format!("{:#}\n", to_json(&arguments.dir, &report));
        fs::write(path, text).map_err(|error| Error::file("write", path, error))?;
    }
    match report.problems.len() {
        0 => Ok(()),
        1 => Err(Error::Check(format!("{} has a problem", arguments.dir.display()))),
        count => Err(Error::Check(format!("{} has {count} problems", arguments.dir.display()))),
    }
}

/// Checks the database in a directory; says what to do if it is in use.
pub fn check(directory: &Path, progress: impl FnMut(&str)) -> Result<CheckReport> {
    offline::check(directory, progress).map_err(|error| {
        if error.kind() != ErrorKind::Busy {
            return error.into();
        }
        Error::Invalid(format!(
            "{error}. A check needs it for itself: close it, or check a backup that the process makes with \
             BACKUP TO 'directory'"
        ))
    })
}

fn print(report: &CheckReport, out: &mut dyn Write) -> Result<()> {
    let rows: Vec<Vec<String>> = report
        .tables
        .iter()
        .map(|table| {
            let state = if table.sound { "sound" } else { "DAMAGED" };
            let numbers = [table.rows, table.keys, table.versions].map(|number| number.to_string());
            let bytes = [table.index_bytes, table.object_bytes].map(bytes_text);
            [table.name.clone()].into_iter().chain(numbers).chain(bytes).chain([state.to_owned()]).collect()
        })
        .collect();
    print_table(&["table", "rows", "keys", "versions", "index", "objects", "state"], &rows, out)?;
    for table in &report.tables {
        if let Some(history) = &table.history {
            let (versions, bytes) = (history.versions, bytes_text(history.bytes));
            writeln!(out, "history of {}: {versions} versions, {bytes}", table.name)?;
        }
    }
    match &report.pages {
        Some(pages) => writeln!(
            out,
            "pages: {} sound, {} damaged, {} replayed from the journal, {} without a checksum{}",
            pages.sound,
            pages.damaged.len(),
            pages.replayed,
            pages.unknown,
            if pages.forgotten { " (the checksums were lost)" } else { "" }
        )?,
        None => writeln!(out, "pages: no checksums on this medium")?,
    }
    writeln!(
        out,
        "objects: {} allocated; journal: {} replayed",
        report.objects,
        bytes_text(report.replayed_bytes)
    )?;
    for problem in &report.problems {
        writeln!(out, "PROBLEM {problem}")?;
    }
    if report.problems.is_empty() {
        writeln!(out, "no problems")?;
    }
    Ok(out.flush()?)
}

fn to_json(directory: &Path, report: &CheckReport) -> serde_json::Value {
    let tables: Vec<_> = report
        .tables
        .iter()
        .map(|table| {
            json!({
                "name": table.name, "rows": table.rows, "keys": table.keys, "versions": table.versions,
                "index_bytes": table.index_bytes, "object_bytes": table.object_bytes, "sound": table.sound,
                "history": table.history.map(|history| json!({
                    "versions": history.versions, "bytes": history.bytes,
                    "readable_from": history.horizon.nanoseconds(),
                })),
            })
        })
        .collect();
    let problems: Vec<_> = report
        .problems
        .iter()
        .map(|problem| {
            json!({
                "whom": problem.object, "file": problem.file, "offset": problem.offset.map(memory::PoolOffset::bytes),
                "what": problem.message, "advice": problem.advice,
            })
        })
        .collect();
    let pages = report.pages.as_ref().map(|pages: &memory::PagesReport| {
        json!({
            "sound": pages.sound, "unknown": pages.unknown, "replayed": pages.replayed,
            "damaged_offsets": pages.damaged.iter().map(|page| page.bytes()).collect::<Vec<_>>(), "checksums_lost": pages.forgotten,
        })
    });
    json!({
        "directory": directory.display().to_string(), "sound": report.problems.is_empty(), "tables": tables,
        "problems": problems, "pages": pages, "objects": report.objects, "replayed_bytes": report.replayed_bytes,
    })
}
