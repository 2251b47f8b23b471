//! Cost model of tables (dissertation 5.6): its constants measured one by one, and its predictions beside measurements over
//! layouts, selectivities and numbers of columns.
//!
//! The first table has each constant of `entresol_tables::cost::MEASURED` beside what this machine measures: a fast
//! machine has smaller ones, by about the same factor for all. The grid is judged with the speed of the machine taken out:
//! by the median of the errors.

mod constants;
mod table;

use crate::asked::AskedFigure;
use crate::measure::median;
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol_tables::cost::{AccessPath, Design, QueryProfile, TableStatistics};
use entresol_tables::{ColumnFilter, TableLayout};
use serde_json::json;
use table::{DAY, KIND, MergedTable, PRICE, QUANTITY, SHOP, SHOPS, between, timed};

/// Table of the grid: its name, layout, and whether it has its index: a btree or an Elf.
const TABLES: [(&str, TableLayout, bool); 5] = [
    ("rows", TableLayout::Rows, false),
    ("rows with an index", TableLayout::Rows, true),
    ("columns", TableLayout::Columns, false),
    ("columns with an elf", TableLayout::Columns, true),
    ("clustered", TableLayout::Clustered, false),
];
/// Numbers of columns that queries read.
const COLUMNS: [&[usize]; 2] = [&[PRICE], &[SHOP, KIND, DAY, PRICE]];

fn size(options: &RunOptions) -> (usize, usize) {
    if options.quick { (20_000, 1) } else { (1_000_000, 5) }
}

/// Conditions of the grid, by name.
fn conditions(rows: usize) -> Vec<(&'static str, Vec<ColumnFilter>)> {
    let days = rows as i64 / 100;
    vec![
        ("a shop", vec![between(SHOP, 77, 77)]),
        ("a shop, some kinds", vec![between(SHOP, 77, 77), between(KIND, 2, 6)]),
        ("1% of the shops", vec![between(SHOP, 100, 100 + SHOPS / 100 - 1)]),
        (
            "10% of the shops, half of the quantities",
            vec![between(SHOP, 100, 100 + SHOPS / 10 - 1), between(QUANTITY, 0, 49)],
        ),
        ("half of the shops", vec![between(SHOP, 0, SHOPS / 2)]),
        ("1% of the days", vec![between(DAY, days / 2, days / 2 + days / 100)]),
        ("10% of the days", vec![between(DAY, days / 2, days / 2 + days / 10)]),
        ("all", Vec::new()),
    ]
}

/// Constants, then the grid.
pub(super) fn run(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let ((rows, runs), directory) = (size(options), options.database_dir()?);
    let filled = |(_, layout, is_indexed): (&str, TableLayout, bool)| {
        MergedTable::new(directory.path(), rows, layout, is_indexed, options.seed)
    };
    let tables = TABLES.map(filled);
    let mut all = Vec::with_capacity(tables.len());
    for table in tables {
        all.push(table?);
    }
    constants::measure(&all, runs, options, report)?;
    let mut errors = Vec::new();
    for ((name, ..), filled) in TABLES.iter().zip(&all) {
        errors.extend(grid(name, filled, runs, report)?);
    }
    let speed = median(&errors.iter().map(|error| error.ln()).collect::<Vec<_>>()).exp();
    let factors: Vec<f64> = errors.iter().map(|error| (error / speed).max(speed / error)).collect();
    report.ratio("measured by predicted, median", speed);
    report.asked(AskedFigure::at_most(
        "median error of a prediction, speed of the machine taken out",
        median(&factors),
        2.0,
    ));
    let far = factors.iter().filter(|factor| **factor > 5.0).count();
    report.asked(AskedFigure::at_most(
        "share of the predictions that are off by more than 5 times",
        far as f64 / factors.len() as f64,
        0.1,
    ));
    chosen(&all, runs, report)
}

/// Measured by predicted times of a table.
fn grid(name: &str, filled: &MergedTable, runs: usize, report: &mut Report) -> Result<Vec<f64>, Error> {
    let tx = filled.catalog.begin()?;
    let statistics = TableStatistics::of(&filled.table, &tx)?;
    let design = Design::of(&filled.table);
    let mut errors = Vec::new();
    for (conditions_name, filters) in conditions(filled.rows) {
        for columns in COLUMNS {
            let query = QueryProfile::new(&statistics, &filters, columns);
            let paths = design.paths(&statistics, &query);
            for cost in paths.iter().filter(|cost| is_run(&cost.path, &paths[0].path)) {
                let (ms, found) = timed(runs, || filled.read(&tx, &cost.path, &filters, columns))?;
                let predicted = cost.ns / 1e6;
                report.row(json!({ "table": name, "conditions": conditions_name, "columns": columns.len(),
                    "path": cost.path.to_string(), "predicted_ms": predicted, "ms": ms,
                    "predicted_rows": cost.rows.round(), "rows": found, "measured_by_predicted": ms / predicted }));
                errors.push(ms / predicted);
            }
        }
    }
    Ok(errors)
}

/// Returns true if a path is measured: of a scan by columns the better one, since it asks an Elf by itself.
fn is_run(path: &AccessPath, best: &AccessPath) -> bool {
    match path {
        AccessPath::Columns | AccessPath::Elf(_) => path == best,
        AccessPath::KeyRange => false,
        _ => true,
    }
}

/// For each query, the time in the design that the model takes, beside the best of all.
fn chosen(all: &[MergedTable], runs: usize, report: &mut Report) -> Result<(), Error> {
    let mut ratios = Vec::new();
    for (name, filters) in conditions(all[0].rows) {
        for columns in COLUMNS {
            let (mut predicted, mut measured) = (Vec::new(), Vec::new());
            for filled in all {
                let tx = filled.catalog.begin()?;
                let statistics = TableStatistics::of(&filled.table, &tx)?;
                let query = QueryProfile::new(&statistics, &filters, columns);
                let path = Design::of(&filled.table).paths(&statistics, &query).remove(0);
                measured.push(timed(runs, || filled.read(&tx, &path.path, &filters, columns))?.0);
                predicted.push(path.ns);
            }
            let least = |values: &[f64]| {
                values.iter().enumerate().min_by(|(_, a), (_, b)| a.total_cmp(b)).map_or(0, |(at, _)| at)
            };
            let (taken, best) = (least(&predicted), least(&measured));
            let ratio = measured[taken] / measured[best];
            report.row(json!({ "query": name, "columns": columns.len(), "model_takes": TABLES[taken].0,
                "fastest": TABLES[best].0, "ms": measured[taken], "fastest_ms": measured[best], "ratio": ratio }));
            ratios.push(ratio);
        }
    }
    report.asked(AskedFigure::at_most(
        "design of the model beside the fastest one, median",
        median(&ratios),
        1.2,
    ));
    Ok(())
}
