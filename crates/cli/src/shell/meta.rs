//! The `\` commands.

use std::io::Write;

use clap::ValueEnum;

use super::Shell;
use super::output::Format;
use crate::error::{Error, Result};

/// What `\?` prints.
const HELP: &str = r"\q                     leave
\?                     this help
\d                     list the tables
\d TABLE               columns, types and key of a table
\timing [on|off]       print the time of each statement
\format table|csv|json how results are printed
Statements end with ';' and may take several lines. Ctrl-C drops the line, Ctrl-D leaves.";

/// Runs one command, which begins with a backslash.
pub fn run(shell: &mut Shell, line: &str, out: &mut dyn Write) -> Result<()> {
    let mut words = line.trim_end_matches(';').split_whitespace();
    let (command, argument) = (words.next().unwrap_or_default(), words.next());
    if words.next().is_some() {
        return Err(Error::Invalid(format!("{command}: too many words (\\? for help)")));
    }
    match (command, argument) {
        (r"\q", None) => shell.finish(),
        (r"\?" | r"\h", None) => writeln!(out, "{HELP}")?,
        (r"\d" | r"\dt", None) => list_tables(shell, out)?,
        (r"\d", Some(table)) => describe(shell, table, out)?,
        (r"\timing", None) => {
            shell.timing = !shell.timing;
            writeln!(out, "Timing is {}.", if shell.timing { "on" } else { "off" })?;
        }
        (r"\timing", Some(word @ ("on" | "off"))) => shell.timing = word == "on",
        (r"\format", Some(word)) => {
            shell.format = Format::from_str(word, true)
                .map_err(|_| Error::Invalid(format!("unknown format '{word}': use table, csv or json")))?;
        }
        _ => return Err(Error::Invalid(format!("unknown command '{line}' (\\? for help)"))),
    }
    Ok(out.flush()?)
}

fn list_tables(shell: &Shell, out: &mut dyn Write) -> Result<()> {
    let mut tables = shell.database.catalog().tables();
    tables.sort_by(|a, b| a.name().cmp(b.name()));
    let rows: Vec<Vec<String>> = tables
        .iter()
        .map(|table| {
            let schema = table.schema();
            let key = if schema.hidden_key() { String::new() } else { key_names(schema) };
            vec![table.name().to_string(), schema.visible_columns().len().to_string(), key]
        })
        .collect();
    draw(&["table", "columns", "primary key"], &rows, out)
}

fn key_names(schema: &entresol::tables::Schema) -> String {
    schema.key_names().collect::<Vec<_>>().join(", ")
}

fn describe(shell: &Shell, name: &str, out: &mut dyn Write) -> Result<()> {
    // As in SQL: unquoted names are folded to lower case.
    let name = match name.strip_prefix('"').and_then(|name| name.strip_suffix('"')) {
        Some(quoted) => quoted.to_string(),
        None => name.to_lowercase(),
    };
    let table = shell.database.catalog().table(&name)?;
    let schema = table.schema();
    let rows: Vec<Vec<String>> = schema
        .visible_columns()
        .iter()
        .enumerate()
        .map(|(place, column)| {
            let key = match schema.key().iter().position(|key| *key == place) {
                Some(key) => (key + 1).to_string(),
                None => String::new(),
            };
            let nullable = if column.nullable { "yes" } else { "no" };
            vec![column.name.clone(), column.data_type.to_string(), nullable.to_string(), key]
        })
        .collect();
    draw(&["column", "type", "nullable", "key"], &rows, out)
}

/// Draws a table of texts the way results are drawn.
pub fn draw(header: &[&str], rows: &[Vec<String>], out: &mut dyn Write) -> Result<()> {
    let width = |place: usize| {
        let cells = rows.iter().map(|row| row[place].chars().count());
        cells.chain([header[place].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let rule: String = widths.iter().map(|width| format!("+{}", "-".repeat(width + 2))).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| -> String {
        cells.zip(&widths).map(|(cell, width)| format!("| {cell:width$} ")).collect()
    };
    writeln!(out, "{rule}+\n{}|\n{rule}+", line(&mut header.iter().copied()))?;
    for row in rows {
        writeln!(out, "{}|", line(&mut row.iter().map(String::as_str)))?;
    }
    Ok(writeln!(out, "{rule}+")?)
}
