//! The constants of the cost model, each measured by what differs in it alone.

use super::table::{DAY, ID, KIND, MergedTable, PRICE, QUANTITY, SHOP, SHOPS, between, timed};
use crate::measure::Random;
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol_structures::elf::{CodeCondition, Elf, ElfWork};
use entresol_tables::cost::{CostConstants, MEASURED};
use entresol_tables::{Row, ScanRange, Value};
use serde_json::json;
use std::ops::Bound;

/// Keys that are looked up.
const KEYS: usize = 2_000;

/// Measures the constants on the tables of the grid and reports them beside those of the model.
pub(super) fn measure(
    all: &[MergedTable],
    runs: usize,
    options: &RunOptions,
    report: &mut Report,
) -> Result<(), Error> {
    let [by_rows, indexed, columns, with_elf, clustered] = all else {
        return Err(Error::Invalid("the grid has five tables".into()));
    };
    let of_rows = rows(by_rows, indexed, runs, options)?;
    let of_columns = pages(columns, runs)?;
    let of_elf = elf(with_elf, runs, options)?;
    let measured = CostConstants {
        column_point: point(columns, options)?,
        clustered_point: point(clustered, options)?,
        place_row: places(clustered, runs)?,
        group: groups(clustered, runs, &of_columns)?,
        elf_word: of_elf.word,
        elf_jump: of_elf.jump,
        elf_row: of_elf.row,
        write: by_rows.write_ns,
        write_entry: indexed.write_ns - by_rows.write_ns,
        merge: columns.merge_ns,
        merge_clustered: clustered.merge_ns,
        check: of_columns.check,
        recheck: of_columns.recheck,
        value: of_columns.value,
        sparse_value: of_columns.sparse_value,
        ..of_rows
    };
    for (name, of) in NAMED {
        let (model, ours) = (of(&MEASURED), of(&measured));
        report.row(json!({ "constant": name, "model_ns": model, "measured_ns": ours, "measured_by_model": ours / model }));
    }
    Ok(())
}

/// Constant by name.
type NamedConstant = (&'static str, fn(&CostConstants) -> f64);

/// Constants that are measured here.
const NAMED: [NamedConstant; 18] = [
    ("row_point", |of| of.row_point),
    ("column_point", |of| of.column_point),
    ("clustered_point", |of| of.clustered_point),
    ("row", |of| of.row),
    ("row_value", |of| of.row_value),
    ("index_row", |of| of.index_row),
    ("group", |of| of.group),
    ("check", |of| of.check),
    ("recheck", |of| of.recheck),
    ("value", |of| of.value),
    ("sparse_value", |of| of.sparse_value),
    ("elf_word", |of| of.elf_word),
    ("elf_jump", |of| of.elf_jump),
    ("elf_row", |of| of.elf_row),
    ("write", |of| of.write),
    ("write_entry", |of| of.write_entry),
    ("merge", |of| of.merge),
    ("place_row", |of| of.place_row),
];

/// Mean nanoseconds of a row by its key.
fn point(filled: &MergedTable, options: &RunOptions) -> Result<f64, Error> {
    let mut random = Random::new(options.seed + 7);
    let count = if filled.table.has_row_groups() { KEYS / 10 } else { KEYS };
    let keys: Vec<Row> =
        (0..count).map(|_| vec![Value::BigInt(random.below(filled.rows as u64) as i64)]).collect();
    let tx = filled.catalog.begin()?;
    let get = || keys.iter().try_for_each(|key| filled.table.get(&tx, key).map(drop).map_err(Error::from));
    Ok(timed(1, get)?.0 * 1e6 / count as f64)
}

/// Constants of rows and of their index.
fn rows(
    by_rows: &MergedTable,
    indexed: &MergedTable,
    runs: usize,
    options: &RunOptions,
) -> Result<CostConstants, Error> {
    let (count, tx) = (by_rows.rows as f64, by_rows.catalog.begin()?);
    let one = timed(runs, || by_rows.all_rows(&tx, &[], &[PRICE]))?.0 * 1e6 / count;
    let all =
        timed(runs, || by_rows.all_rows(&tx, &[], &[ID, SHOP, KIND, DAY, QUANTITY, PRICE]))?.0 * 1e6 / count;
    let row_value = (all - one) / 5.0;
    let tx = indexed.catalog.begin()?;
    let some = [between(SHOP, 100, 100 + SHOPS / 100)];
    let (ms, found) = timed(runs, || indexed.by_index(&tx, &some, &[PRICE]))?;
    Ok(CostConstants {
        row_point: point(by_rows, options)?,
        row: one - row_value,
        row_value,
        index_row: ms * 1e6 / found.max(1) as f64 - 2.0 * row_value,
        ..MEASURED
    })
}

/// Constants of column pages.
struct PageConstants {
    check: f64,
    recheck: f64,
    value: f64,
    sparse_value: f64,
}

fn pages(columns: &MergedTable, runs: usize) -> Result<PageConstants, Error> {
    let (count, tx) = (columns.rows as f64, columns.catalog.begin()?);
    let ns = |filters: &[_], read: &[usize]| {
        Ok::<_, Error>(timed(runs, || columns.scan(&tx, filters, read))?.0 * 1e6)
    };
    // Odd quantities, of which there are none.
    let none = between(QUANTITY, 51, 51);
    let check = ns(std::slice::from_ref(&none), &[PRICE])? / count;
    let tenth = between(SHOP, 100, 100 + SHOPS / 10 - 1);
    let first = ns(&[tenth.clone(), none], &[PRICE])?;
    let value = (ns(&[], &[SHOP, KIND, DAY, QUANTITY, PRICE])? - ns(&[], &[PRICE])?) / 4.0 / count;
    let some = [between(SHOP, 100, 100 + SHOPS / 100 - 1)];
    let found = columns.scan(&tx, &some, &[PRICE])?.max(1) as f64;
    let sparse = (ns(&some, &[SHOP, KIND, DAY, QUANTITY, PRICE])? - ns(&some, &[PRICE])?) / 4.0;
    Ok(PageConstants {
        check,
        recheck: (first - check * count) / (count / 10.0),
        value,
        sparse_value: sparse / found,
    })
}

/// Nanoseconds of a block of a clustered table beside those of its values.
fn groups(clustered: &MergedTable, runs: usize, pages: &PageConstants) -> Result<f64, Error> {
    let tx = clustered.catalog.begin()?;
    let ns = timed(runs, || clustered.scan(&tx, &[], &[PRICE]))?.0 * 1e6;
    let blocks = clustered.rows as f64 * ROW_BYTES / BLOCK_BYTES;
    Ok((ns - pages.value * clustered.rows as f64).max(0.0) / blocks.max(1.0))
}

/// Nanoseconds of a row of a range of keys that is looked up by its place.
fn places(clustered: &MergedTable, runs: usize) -> Result<f64, Error> {
    let (tx, count) = (clustered.catalog.begin()?, clustered.rows / 100);
    let (first, end) = ([Value::BigInt(count as i64)], [Value::BigInt(2 * count as i64)]);
    let range = || ScanRange::between(Bound::Included(&first), Bound::Excluded(&end));
    let walk = || {
        let (mut cursor, mut rows) = (clustered.table.scan(range()), 0_u64);
        while cursor.next_batch(&tx, |_| rows += 1)? {}
        Ok(rows)
    };
    Ok(timed(runs, walk)?.0 * 1e6 / count as f64)
}

/// Bytes of a row's values, and of a block's.
const ROW_BYTES: f64 = 40.0;
const BLOCK_BYTES: f64 = 262_144.0;

/// Constants of a search of an Elf.
struct ElfConstants {
    word: f64,
    jump: f64,
    row: f64,
}

fn elf(with_elf: &MergedTable, runs: usize, options: &RunOptions) -> Result<ElfConstants, Error> {
    let (tuples, mut random) = (with_elf.rows.min(131_072), Random::new(options.seed + 9));
    let mut codes = |below: i64| (0..tuples).map(|_| random.below(below as u64) as u32).collect::<Vec<u32>>();
    let (shops, kinds) = (codes(SHOPS), codes(20));
    let built = |columns: &[&[u32]]| Elf::build(columns).map_err(|error| Error::Invalid(error.to_string()));
    let search = |built: &Elf, conditions: &[CodeCondition]| {
        let mut ids = Vec::new();
        let (ms, ()) = timed(runs.max(3), || {
            ids.clear();
            built.collect(conditions, &mut ids);
            Ok(())
        })?;
        Ok::<_, Error>((ms * 1e6, ids.len().max(1) as f64))
    };
    let up_to = |greatest: u32| CodeCondition::Between { least: 0, greatest };
    // Few lists, with all rows of a kind in each.
    let (of_kinds, found) = search(&built(&[&kinds])?, &[up_to(9)])?;
    let row = of_kinds / found;
    let both = built(&[&shops, &kinds])?;
    let (read_on, found) = search(&both, &[up_to(SHOPS as u32 / 10 - 1), CodeCondition::Any])?;
    let word = ((read_on - row * found) / ElfWork::of(both.levels(), &[0.1, 1.0]).words).max(0.0);
    // No kind has this code, so a search goes from one list to the next and finds nothing.
    let none = CodeCondition::Between { least: 21, greatest: 21 };
    let (past_lists, _) = search(&both, &[CodeCondition::Any, none])?;
    let work = ElfWork::of(both.levels(), &[1.0, 0.0]);
    let jump = ((past_lists - word * work.words) / work.jumps.max(1.0)).max(0.0);
    Ok(ElfConstants { word, jump, row })
}
