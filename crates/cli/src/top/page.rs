//! A page of `entresol top`: topologies, their operators, sources and sinks, as lines of text.

use super::connection::{Connection, TextRow};
use crate::error::Result;
use entresol::MemorySize;
use std::time::Instant;

const TOPOLOGIES: &str =
    "SELECT name, state, tuples_per_second, tuples, commits, aborts, retries, late, rejected,
    watermark::varchar, watermark_lag_ms, error, state_bytes FROM entresol.topologies ORDER BY name";
const OPERATORS: &str = "SELECT topology, number, operator, tuples_in, tuples_out FROM entresol.operators
    ORDER BY topology, number";
const SOURCES: &str =
    "SELECT name, connector, topology, tuples, rejected, watermark_lag_ms FROM entresol.sources
    ORDER BY name, topology";
const SINKS: &str =
    "SELECT name, state, target, rows_written, bytes_written FROM entresol.sinks ORDER BY name";

/// Answers of a database at one time.
pub(super) struct Snapshot {
    at: Instant,
    topologies: Vec<TextRow>,
    operators: Vec<TextRow>,
    sources: Vec<TextRow>,
    sinks: Vec<TextRow>,
}

impl Snapshot {
    pub(super) fn take(connection: &mut Connection) -> Result<Snapshot> {
        Ok(Snapshot {
            at: Instant::now(),
            topologies: connection.rows(TOPOLOGIES)?,
            operators: connection.rows(OPERATORS)?,
            sources: connection.rows(SOURCES)?,
            sinks: connection.rows(SINKS)?,
        })
    }
}

/// Lines of a page: at most so many, of which the last says what is left out.
pub(super) fn lines(
    target: &str,
    now: &Snapshot,
    before: Option<&Snapshot>,
    lines_max: usize,
) -> Vec<String> {
    let mut lines = vec![summary(target, now)];
    let is_right = |column: usize| column >= 2;
    let topologies: Vec<TextRow> = now.topologies.iter().map(|row| topology_row(row)).collect();
    let header = [
        "topology",
        "state",
        "rows/s",
        "rows",
        "commits",
        "aborts",
        "retries",
        "late",
        "rejected",
        "size",
        "watermark",
        "lag",
    ];
    section(&mut lines, &header, &topologies, is_right);
    for row in now.topologies.iter().filter(|row| !row[11].is_empty()) {
        lines.push(format!("  {}: {}", row[0], row[11]));
    }
    let operators: Vec<TextRow> = now.operators.iter().map(|row| operator_row(row, now, before)).collect();
    section(&mut lines, &["topology", "operator", "in/s", "out/s", "in", "out"], &operators, is_right);
    let sources: Vec<TextRow> = now.sources.iter().map(|row| source_row(row)).collect();
    section(
        &mut lines,
        &["source", "connector", "rows", "rejected", "lag", "topology"],
        &sources,
        |column| (2..5).contains(&column),
    );
    let sinks: Vec<TextRow> = now.sinks.iter().map(|row| sink_row(row)).collect();
    section(&mut lines, &["sink", "state", "rows", "bytes", "target"], &sinks, |column| {
        (2..4).contains(&column)
    });
    if lines.len() > lines_max {
        let left_out = lines.len() - lines_max + 1;
        lines.truncate(lines_max.saturating_sub(1));
        lines.push(format!("... {left_out} lines more"));
    }
    lines
}

fn summary(target: &str, now: &Snapshot) -> String {
    if now.topologies.is_empty() {
        return format!("{target}: no topologies");
    }
    let count = |state: &str| now.topologies.iter().filter(|row| row[1] == state).count();
    let states = ["running", "paused", "ended", "failed"].map(|state| (count(state), state));
    let states: Vec<String> = states
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, state)| format!("{count} {state}"))
        .collect();
    let rate: u64 = now.topologies.iter().filter_map(|row| row[2].parse::<u64>().ok()).sum();
    format!("{target}: topologies: {}; {} rows/s", states.join(", "), grouped(&rate.to_string()))
}

fn topology_row(row: &[String]) -> TextRow {
    let mut cells: TextRow = row[..2].to_vec();
    cells.extend(row[2..9].iter().map(|number| grouped(number)));
    cells.extend([size(&row[12]), row[9].replace('T', " "), lag(&row[10])]);
    cells
}

fn operator_row(row: &[String], now: &Snapshot, before: Option<&Snapshot>) -> TextRow {
    let rate = |column: usize| {
        let earlier = before.and_then(|before| {
            let found = before.operators.iter().find(|earlier| earlier[..3] == row[..3])?;
            Some((now.at.duration_since(before.at).as_secs_f64(), found[column].parse::<f64>().ok()?))
        });
        let Some((seconds, earlier)) = earlier else { return String::new() };
        // Counters of a topology that was started again begin anew.
        let more = row[column].parse::<f64>().map_or(0.0, |number| (number - earlier).max(0.0));
        grouped(&format!("{:.0}", more / seconds))
    };
    vec![row[0].clone(), row[2].clone(), rate(3), rate(4), grouped(&row[3]), grouped(&row[4])]
}

fn source_row(row: &[String]) -> TextRow {
    let [name, connector, topology, tuples, rejected, lag_ms] = row else { return Vec::new() };
    vec![name.clone(), connector.clone(), grouped(tuples), grouped(rejected), lag(lag_ms), topology.clone()]
}

fn sink_row(row: &[String]) -> TextRow {
    let [name, state, target, rows, bytes] = row else { return Vec::new() };
    vec![name.clone(), state.clone(), grouped(rows), grouped(bytes), target.clone()]
}

/// Adds a table with a header behind an empty line; nothing if it has no rows.
fn section(lines: &mut Vec<String>, header: &[&str], rows: &[TextRow], is_right: impl Fn(usize) -> bool) {
    if rows.is_empty() {
        return;
    }
    let length = |cell: &str| cell.chars().count();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row.get(column).map_or(0, |cell| length(cell)));
        cells.max().unwrap_or(0).max(length(header[column]))
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let line =
        |cells: Vec<&str>| {
            let cells = cells.into_iter().zip(&widths).enumerate();
            let padded = cells.map(|(column, (cell, &width))| {
                if is_right(column) { format!("{cell:>width$}") } else { format!("{cell:width$}") }
            });
            padded.collect::<Vec<String>>().join("  ").trim_end().to_owned()
        };
    lines.push(String::new());
    lines.push(line(header.to_vec()));
    lines.extend(rows.iter().map(|row| line(row.iter().map(String::as_str).collect())));
}

/// Number with commas between groups of three digits.
fn grouped(number: &str) -> String {
    let digits = number.trim_start_matches('-').len();
    let mut text = String::with_capacity(number.len() + digits / 3);
    for (at, digit) in number.chars().enumerate() {
        let behind = number.len() - at;
        if at > number.len() - digits && behind.is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Bytes with a unit.
fn size(bytes: &str) -> String {
    bytes.parse().map(|bytes| MemorySize::Bytes(bytes).to_string()).unwrap_or_default()
}

/// Milliseconds as a time that is read at a glance.
fn lag(milliseconds: &str) -> String {
    let Ok(ms) = milliseconds.parse::<u64>() else { return String::new() };
    match ms {
        0..1000 => format!("{ms} ms"),
        1000..120_000 => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
        120_000..7_200_000 => format!("{} min", ms / 60_000),
        7_200_000..172_800_000 => format!("{} h", ms / 3_600_000),
        _ => format!("{} days", ms / 86_400_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn row(cells: &[&str]) -> TextRow {
        cells.iter().map(|&cell| cell.to_owned()).collect()
    }

    fn snapshot(at: Instant, tuples_in: &str) -> Snapshot {
        Snapshot {
            at,
            topologies: vec![
                row(&[
                    "a",
                    "running",
                    "1200",
                    "1234567",
                    "8",
                    "0",
                    "1",
                    "2",
                    "3",
                    "2026-01-01T00:00:00",
                    "1500",
                    "",
                    "3145728",
                ]),
                row(&["b", "failed", "", "5", "1", "0", "0", "0", "0", "", "", "operator x: it broke", "0"]),
            ],
            operators: vec![row(&["a", "1", "filter 1", tuples_in, "10"])],
            sources: vec![row(&["s", "file", "a", "1234567", "3", "1500"])],
            sinks: Vec::new(),
        }
    }

    #[test]
    fn a_page_has_rates_totals_and_errors() {
        let begin = Instant::now();
        let (before, now) = (snapshot(begin, "1000"), snapshot(begin + Duration::from_secs(2), "5000"));
        let lines = lines("db", &now, Some(&before), ALL);
        assert_eq!(lines[0], "db: topologies: 1 running, 1 failed; 1,200 rows/s");
        assert_eq!(
            lines[3],
            "a         running   1,200  1,234,567        8       0        1     2         3  3MiB  2026-01-01 00:00:00  1.5 s"
        );
        assert_eq!(lines[5], "  b: operator x: it broke");
        assert_eq!(lines[8], "a         filter 1  2,000      0  5,000   10");
        assert_eq!(lines[11], "s       file       1,234,567         3  1.5 s  a");
        assert_eq!(lines.len(), 12);
    }

    const ALL: usize = 100;

    #[test]
    fn a_page_fits_the_terminal() {
        let now = snapshot(Instant::now(), "1");
        let page = lines("db", &now, None, 5);
        assert_eq!(page.len(), 5);
        assert_eq!(page[4], "... 8 lines more");
    }

    #[test]
    fn numbers_and_times_are_read_at_a_glance() {
        let numbers = ["", "0", "999", "1000", "1234567", "-1234", "-123"].map(grouped);
        assert_eq!(numbers, ["", "0", "999", "1,000", "1,234,567", "-1,234", "-123"]);
        let times = ["", "7", "1900", "119999", "120000", "7200000", "172800000"].map(lag);
        assert_eq!(times, ["", "7 ms", "1.9 s", "119.9 s", "2 min", "2 h", "2 days"]);
    }
}
