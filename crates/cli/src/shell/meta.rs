//! The `\` commands.

use super::Shell;
use super::output::Format;
use crate::error::{Error, Result};
use clap::ValueEnum;
use entresol::query::CopyStatement;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// Text printed by `\?`.
const HELP: &str = r"\q                     leave
\?                     this help
\d                     list the tables, views and sequences
\d NAME                columns, types and key of a table, the query of a view, the bounds of a sequence
\copy TABLE FROM 'FILE' [WITH (FORMAT csv, HEADER, ...)]
\copy TABLE|(QUERY) TO 'FILE' [WITH (...)]
                       rows of a file into a table, and rows into a file
\timing [on|off]       print the time of each statement
\format table|csv|json how results are printed
Statements end with ';' and may take several lines. Ctrl-C drops the line, Ctrl-D leaves.";

/// Runs one command, which begins with a backslash.
pub fn run(shell: &mut Shell, line: &str, out: &mut dyn Write) -> Result<()> {
    if let Some(copy) = line.strip_prefix(r"\copy").filter(|rest| rest.starts_with([' ', '(', '\t'])) {
        return run_copy(shell, copy, out);
    }
    let mut words = line.trim_end_matches(';').split_whitespace();
    let (command, argument) = (words.next().unwrap_or_default(), words.next());
    if words.next().is_some() {
        return Err(Error::Invalid(format!("{command}: too many arguments (\\? for help)")));
    }
    match (command, argument) {
        (r"\q", None) => shell.finish(),
        (r"\?" | r"\h", None) => writeln!(out, "{HELP}")?,
        (r"\d", None) => list_relations(shell, out)?,
        (r"\dt", None) => list_tables(shell, out)?,
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

/// `\copy`: a COPY whose STDIN or STDOUT is a file.
fn run_copy(shell: &mut Shell, text: &str, out: &mut dyn Write) -> Result<()> {
    let copy = CopyStatement::of_client(&format!("COPY {text}")).map_err(entresol::Error::from)?;
    let Some((copy, path)) = copy else {
        let message = r"\copy: the file is missing: FROM 'FILE' or TO 'FILE' (\? for help)";
        return Err(Error::Invalid(message.to_string()));
    };
    let path = Path::new(&path);
    let rows = if copy.is_in() {
        let mut file = File::open(path).map_err(|error| Error::file("read", path, error))?;
        shell.session_mut().run_copy_in(&copy, &mut file)?
    } else {
        let file = File::create(path).map_err(|error| Error::file("write", path, error))?;
        let mut file = BufWriter::new(file);
        let rows = shell.session_mut().run_copy_out(&copy, &mut file)?;
        file.flush().map_err(|error| Error::file("write", path, error))?;
        rows
    };
    writeln!(out, "COPY {rows}")?;
    Ok(out.flush()?)
}

/// Tables, views and sequences, in the order of their names.
fn list_relations(shell: &Shell, out: &mut dyn Write) -> Result<()> {
    let catalog = shell.database.catalog();
    let mut rows = Vec::new();
    let mut add = |name: &str, kind: &str, columns: String, about: String| {
        rows.push(vec![name.to_string(), kind.to_string(), columns, about]);
    };
    for table in catalog.tables() {
        let schema = table.schema();
        let key = if schema.hidden_key() { String::new() } else { key_names(schema) };
        add(table.name(), "table", schema.visible_columns().len().to_string(), key);
    }
    for view in catalog.views() {
        add(view.name(), "view", view.definition().columns.len().to_string(), String::new());
    }
    for sequence in catalog.sequences() {
        add(sequence.name(), "sequence", String::new(), String::new());
    }
    rows.sort();
    print_table(&["name", "kind", "columns", "primary key"], &rows, out)
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
    print_table(&["table", "columns", "primary key"], &rows, out)
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
    let catalog = shell.database.catalog();
    if let Ok(view) = catalog.view(&name) {
        let columns = &view.definition().columns;
        let rows: Vec<Vec<String>> = columns.iter().map(|column| vec![column.clone()]).collect();
        print_table(&["column"], &rows, out)?;
        return Ok(writeln!(out, "View: {}", view.definition().query)?);
    }
    if let Ok(sequence) = catalog.sequence(&name) {
        let definition = sequence.definition();
        let owner = catalog.owner_of(&definition).map_or(String::new(), |(table, column)| {
            format!("{}.{}", table.name(), table.schema().columns()[column].name)
        });
        let numbers = [definition.start, definition.min_value, definition.max_value, definition.increment];
        let mut row = vec![definition.data_type.name().to_string()];
        row.extend(numbers.iter().map(ToString::to_string));
        row.extend([if definition.cycle { "yes" } else { "no" }.to_string(), owner]);
        return print_table(
            &["type", "start", "minimum", "maximum", "increment", "cycles", "owned by"],
            &[row],
            out,
        );
    }
    let table = catalog.table(&name)?;
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
    print_table(&["column", "type", "nullable", "key"], &rows, out)?;
    match choices(&table) {
        Some(choices) => Ok(writeln!(out, "{choices}")?),
        None => Ok(()),
    }
}

/// Structure, its nodes, protocol and hot entries of a table, if they are not the defaults.
fn choices(table: &entresol::tables::Table) -> Option<String> {
    let state = table.state();
    let (structure, protocol, hot) = (state.structure(), state.protocol(), state.hot_bytes());
    let default_structure = entresol::structures::IndexStructure::default();
    let default_protocol = entresol::transactions::Protocol::default();
    let parts = [
        (structure != default_structure).then(|| format!("Structure: {structure}")),
        state.node_bytes().map(|bytes| format!("Nodes: {bytes} bytes")),
        (protocol != default_protocol).then(|| format!("Protocol: {}", protocol.name())),
        (hot > 0).then(|| format!("Hot entries: {hot} bytes")),
    ];
    let named: Vec<String> = parts.into_iter().flatten().collect();
    (!named.is_empty()).then(|| named.join(", "))
}

/// Prints a table of strings in the format of results.
pub fn print_table(header: &[&str], rows: &[Vec<String>], out: &mut dyn Write) -> Result<()> {
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
