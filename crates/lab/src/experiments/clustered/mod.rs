//! Clustered tables (PTable; dissertation 4.2.4): ranges of keys and of other attributes, block sizes, points.
//!
//! The paper's tables have a million tuples on Optane; its figures 4.3 to 4.6 are curves, so what the text says of them
//! stands beside ours. Here the tables are in files, all pages in the cache, and every scan materialises its rows.

mod table;

use crate::asked::AskedFigure;
use crate::measure::Random;
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol_tables::{Row, ScanRange, TableLayout, Value};
use serde_json::json;
use std::ops::Bound;
use std::time::Instant;
use table::{DOUBLE, FilledTable, NUMBER, filter, timed};

/// Shares of the rows that are selected, in thousandths.
const SHARES: [usize; 6] = [1, 10, 50, 100, 500, 1000];
const CLUSTERED: (TableLayout, Option<u32>) = (TableLayout::Clustered, None);
const COLUMNS: (TableLayout, Option<u32>) = (TableLayout::Columns, None);
const ROWS: (TableLayout, Option<u32>) = (TableLayout::Rows, None);

fn size(options: &RunOptions) -> (usize, usize) {
    if options.quick { (20_000, 1) } else { (1_000_000, 9) }
}

/// Ranges of attributes that are not the key, beside full scans of the other layouts; and the rates of writing.
pub(super) fn run_attributes(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let ((rows, runs), directory) = (size(options), options.database_dir()?);
    let clustered = FilledTable::new(directory.path(), rows, CLUSTERED, true, options.seed)?;
    let loaded = FilledTable::new(directory.path(), rows, CLUSTERED, false, options.seed)?;
    for (name, filled) in [("insert", &clustered), ("load without a key", &loaded)] {
        report.row(
            json!({ "written": name, "rows_per_s": filled.inserted, "merged_rows_per_s": filled.merged }),
        );
        report.asked(
            AskedFigure::at_least(format!("{name}, with merges"), filled.merged / 1e6, 0.5).unit("M/s"),
        );
    }
    drop(loaded);
    let by_columns = FilledTable::new(directory.path(), rows, COLUMNS, true, options.seed)?;
    let by_rows = FilledTable::new(directory.path(), rows, ROWS, true, options.seed)?;
    for (name, filled) in [("layout columns", &by_columns), ("layout rows", &by_rows)] {
        report.row(
            json!({ "written": name, "rows_per_s": filled.inserted, "merged_rows_per_s": filled.merged }),
        );
    }
    let [tx, tx_columns, tx_rows] =
        [clustered.catalog.begin()?, by_columns.catalog.begin()?, by_rows.catalog.begin()?];
    let (rows_ms, _) = timed(runs.min(3), || by_rows.walk(&tx_rows, ScanRange::full()))?;
    let (own_ms, _) = timed(runs, || clustered.scan(&tx, &[]))?;
    for column in [NUMBER, DOUBLE] {
        for share in SHARES {
            let filters = [filter(column, rows, share)];
            let (ms, found) = timed(runs, || clustered.scan(&tx, &filters))?;
            let (columns_ms, expected) = timed(runs, || by_columns.scan(&tx_columns, &filters))?;
            let name = if column == NUMBER { "integer" } else { "double" };
            report.row(
                json!({ "attribute": name, "selected": share as f64 / 1000.0, "rows": found.rows, "ms": ms,
                "blocks_pruned": found.pruned, "blocks_read": found.read, "columns_ms": columns_ms,
                "full_scan_ms": own_ms, "rows_full_scan_ms": rows_ms }),
            );
            report.check(
                &format!("{name}, {share}: the rows are those by columns"),
                found.rows == expected.rows,
            );
            if share == 10 {
                let asked = format!("{name}, 1%: its full scan beside it");
                report.asked(AskedFigure::at_least(asked, own_ms / ms, 5.0));
            }
            if share == 1000 {
                let asked = format!("{name}, 100%: beside a scan by columns");
                report.asked(AskedFigure::at_most(asked, ms / columns_ms, 1.1).tolerance(0.05));
            }
        }
    }
    report.paper(
        "dissertation, 4.2.4",
        "attributes",
        "the block iterator outperforms all up to 10-20%",
        None,
    );
    Ok(())
}

fn keys(first: usize, count: usize) -> ScanRange {
    let (first, end) = ([Value::Int(first as i32)], [Value::Int((first + count) as i32)]);
    ScanRange::between(Bound::Included(&first), Bound::Excluded(&end))
}

/// Ranges of the key: by the index iterator, by the block iterator, by the one that the cost model takes, and by rows.
pub(super) fn run_keys(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let ((rows, runs), directory) = (size(options), options.database_dir()?);
    let clustered = FilledTable::new(directory.path(), rows, CLUSTERED, true, options.seed)?;
    let by_rows = FilledTable::new(directory.path(), rows, ROWS, true, options.seed)?;
    let (tx, tx_rows) = (clustered.catalog.begin()?, by_rows.catalog.begin()?);
    let mut worst: f64 = 0.0;
    for share in [1, 5, 10, 20, 50, 100, 1000] {
        let count = rows * share / 1000;
        let first = if share == 1000 { 0 } else { rows / 10 };
        let filters = [filter(0, rows, share)];
        let (index_ms, found) = timed(runs, || clustered.walk(&tx, keys(first, count)))?;
        let (blocks_ms, scanned) = timed(runs, || clustered.scan(&tx, &filters))?;
        let (rows_ms, expected) = timed(runs, || by_rows.walk(&tx_rows, keys(first, count)))?;
        let choice = clustered.table.choose_iterator(&tx, &[keys(first, count)], &filters)?;
        let choice = choice.ok_or_else(|| Error::Invalid("the table is not clustered".into()))?;
        let chosen_ms = if choice.is_by_places() { index_ms } else { blocks_ms };
        worst = worst.max(chosen_ms / index_ms.min(blocks_ms));
        report.row(json!({ "selected": share as f64 / 1000.0, "rows": found, "index_ms": index_ms,
            "blocks_ms": blocks_ms, "chosen": choice.to_string(), "layout_rows_ms": rows_ms }));
        let is_same = found == expected && scanned.rows == expected && found == count as u64;
        report.check(&format!("{share}: the rows are those by rows"), is_same);
    }
    report.paper(
        "dissertation, 4.2.4",
        "keys",
        "the better iterator changes at 10-20% (of attributes)",
        None,
    );
    report.asked(AskedFigure::at_most("iterator of the cost model beside the better one", worst, 1.5));
    Ok(())
}

/// Block sizes: ranges of an attribute, and writing.
pub(super) fn run_block_sizes(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let ((rows, runs), directory) = (size(options), options.database_dir()?);
    let mut best = f64::INFINITY;
    let mut of_default = f64::INFINITY;
    let sizes: &[u32] = if options.quick { &[16, 256] } else { &[16, 32, 64, 128, 256, 512, 1024] };
    for kib in sizes {
        let filled = FilledTable::new(
            directory.path(),
            rows,
            (TableLayout::Clustered, Some(kib << 10)),
            true,
            options.seed,
        )?;
        let tx = filled.catalog.begin()?;
        let mut times = Vec::new();
        for share in [1, 10, 100, 1000] {
            times.push(timed(runs, || filled.scan(&tx, &[filter(NUMBER, rows, share)]))?);
        }
        let milliseconds: Vec<f64> = times.iter().map(|(ms, _)| *ms).collect();
        let sum: f64 = milliseconds[1] + milliseconds[2];
        best = best.min(sum);
        of_default = if *kib == 256 { sum } else { of_default };
        report.row(json!({ "block_kib": kib, "ms_0.1%": milliseconds[0], "ms_1%": milliseconds[1],
            "ms_10%": milliseconds[2], "ms_100%": milliseconds[3], "blocks": times[3].1.read,
            "blocks_at_1%": times[1].1.read, "merged_rows_per_s": filled.merged }));
        report.check(&format!("{kib} KiB: all rows"), times[3].1.rows == rows as u64);
    }
    report.paper("dissertation, figure 4.4", "block size", "16 to 64 KiB alike", None);
    report.asked(AskedFigure::at_most("1% and 10%, default size beside the best", of_default / best, 1.3));
    Ok(())
}

/// Points by key, with their rows and without, beside the layout by rows.
pub(super) fn run_points(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let ((rows, _), directory) = (size(options), options.database_dir()?);
    let count = if options.quick { 200 } else { 200_000 };
    let clustered = FilledTable::new(directory.path(), rows, CLUSTERED, true, options.seed)?;
    let by_rows = FilledTable::new(directory.path(), rows, ROWS, true, options.seed)?;
    let by_columns = FilledTable::new(directory.path(), rows, COLUMNS, true, options.seed)?;
    let mut random = Random::new(options.seed + 1);
    let keys: Vec<Row> = (0..count).map(|_| vec![Value::Int(random.below(rows as u64) as i32)]).collect();
    let measure =
        |filled: &FilledTable, keys: &[Row], f: &dyn Fn(&FilledTable, &Row) -> Result<bool, Error>| {
            let begin = Instant::now();
            let found = keys.iter().map(|key| f(filled, key)).collect::<Result<Vec<bool>, Error>>()?;
            let us = begin.elapsed().as_secs_f64() * 1e6 / keys.len() as f64;
            Ok::<_, Error>((us, found.iter().all(|found| *found)))
        };
    let transactions = [clustered.catalog.begin()?, by_rows.catalog.begin()?, by_columns.catalog.begin()?];
    let get = |tx: usize| {
        let tx = &transactions[tx];
        move |filled: &FilledTable, key: &Row| Ok(filled.table.get(tx, key)?.is_some())
    };
    let place = |filled: &FilledTable, key: &Row| Ok(filled.table.has_place(&transactions[0], key)?);
    let few = &keys[..count / 20];
    let [with_rows, index, of_rows, of_columns] = [
        measure(&clustered, &keys, &get(0))?,
        measure(&clustered, &keys, &place)?,
        measure(&by_rows, &keys, &get(1))?,
        measure(&by_columns, few, &get(2))?,
    ];
    let is_found = [with_rows, index, of_rows, of_columns].iter().all(|(_, is_found)| *is_found);
    report.check("every key is found", is_found);
    report.row(json!({ "point_us": with_rows.0, "place_us": index.0, "layout_rows_us": of_rows.0,
        "layout_columns_us": of_columns.0 }));
    report.paper(
        "dissertation, figure 4.3",
        "point",
        "DRAM tree with rows as a PMem tree without; 80-400 ns",
        None,
    );
    report.asked(AskedFigure::at_most("place, beside a row of the layout rows", index.0 / of_rows.0, 1.5));
    report.asked(AskedFigure::at_most("row, beside a row of the layout rows", with_rows.0 / of_rows.0, 1.5));
    Ok(())
}
