//! Writes and lookups of a whole tree: how many of its levels are in the pool and how many in files, the
//! tuning ratio, Bloom filters or none; beside the FPTree on the same keys.

use super::{Bench, Medium, key};
use crate::plot::{Figure, Series};
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol_structures::lsm::{LsmOptions, LsmParameters, LsmStats};
use entresol_structures::{FpTree, WordKey};
use serde_json::json;

/// A way to set up a tree.
#[derive(Debug, Clone, Copy)]
struct Setting {
    medium: Medium,
    pool_levels: u32,
    disk_levels: u32,
    runs_per_level: u32,
    filter_bits: u32,
}

/// Nanoseconds an operation.
struct OperationTimes {
    upsert: f64,
    get: f64,
    absent: f64,
    /// The same three, of the thread on the processor.
    on_processor: [f64; 3],
    /// Modelled lines that a lookup of an absent key asked for, cached or not.
    absent_lines: f64,
    is_right: bool,
    stats: LsmStats,
    journal_bytes: f64,
    device_bytes: Option<f64>,
}

/// Every key is written twice, so that merges have something to drop; that fills some 236 buffers, so that
/// several levels have runs.
fn measure(options: &RunOptions, setting: &Setting, keys: u64) -> Result<OperationTimes, Error> {
    let parameters = LsmParameters {
        buffer_entries: (keys / 118).clamp(256, 1 << 15) as u32,
        buffers: 2,
        runs_per_level: setting.runs_per_level,
        pool_levels: setting.pool_levels,
        disk_levels: setting.disk_levels,
    };
    let lsm = LsmOptions { filter_bits: setting.filter_bits, ..LsmOptions::default() };
    let bench = Bench::new(options, setting.medium, &parameters, lsm)?;
    let writes = keys * 2;
    let cost = bench.cost(|| (0..writes).try_for_each(|i| bench.upsert(key(i % keys), i)))?;
    let device_bytes = cost.modelled.map(|c| (c.blocks_written * c.block_bytes) as f64 / writes as f64);
    let mut on_processor = [cost.processor_ns / writes as f64, 0.0, 0.0];
    let (upsert, journal_bytes) = (cost.ns / writes as f64, cost.journal_bytes as f64 / writes as f64);
    let mut is_right = true;
    let scattered = |i: u64| i * 7919 % keys;
    let cost = bench.cost(|| {
        for i in 0..keys {
            is_right &= bench.tree.get(key(scattered(i)))? == Some(keys + scattered(i));
        }
        Ok(())
    })?;
    let get = cost.ns / keys as f64;
    on_processor[1] = cost.processor_ns / keys as f64;
    let cost = bench.cost(|| {
        for i in keys..keys * 2 {
            is_right &= bench.tree.get(key(i))?.is_none();
        }
        Ok(())
    })?;
    on_processor[2] = cost.processor_ns / keys as f64;
    Ok(OperationTimes {
        on_processor,
        upsert,
        get,
        absent: cost.ns / keys as f64,
        absent_lines: cost
            .modelled
            .map_or(0.0, |cost| (cost.lines_read + cost.cache_hits) as f64 / keys as f64),
        is_right,
        stats: bench.tree.stats(),
        journal_bytes,
        device_bytes,
    })
}

fn settings() -> Vec<Setting> {
    let base = Setting {
        medium: Medium::Journal,
        pool_levels: 4,
        disk_levels: 0,
        runs_per_level: 4,
        filter_bits: 10,
    };
    let mut settings = vec![base];
    settings.extend([3, 2, 1, 0].map(|pool| Setting { pool_levels: pool, disk_levels: 4 - pool, ..base }));
    settings.extend([2, 8].map(|runs| Setting { runs_per_level: runs, ..base }));
    settings.push(Setting { filter_bits: 0, ..base });
    settings.push(Setting { filter_bits: 0, pool_levels: 2, disk_levels: 2, ..base });
    let optane = Setting { medium: Medium::Optane, ..base };
    settings.extend([2, 4, 8].map(|runs| Setting { runs_per_level: runs, ..optane }));
    settings.push(Setting { filter_bits: 0, ..optane });
    settings
}

pub(super) fn run(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let keys = if options.quick { 8_000 } else { 1_000_000 };
    let mut points = Vec::new();
    for setting in settings() {
        // The model is slow, and does not vary.
        let keys = if setting.medium == Medium::Optane { keys / 4 } else { keys };
        let measured = measure(options, &setting, keys)?;
        let mut row = json!({
            "what": "tree", "medium": setting.medium.name(), "pool_levels": setting.pool_levels,
            "disk_levels": setting.disk_levels, "runs_per_level": setting.runs_per_level,
            "filter_bits": setting.filter_bits, "upsert_ns": measured.upsert, "get_ns": measured.get,
            "get_absent_ns": measured.absent, "runs": measured.stats.runs(),
            "write_amplification": measured.stats.write_amplification(),
            "filter_bytes": measured.stats.filter_bytes, "index_bytes": measured.stats.index_bytes,
        });
        match measured.device_bytes {
            Some(bytes) => {
                row["device_bytes_an_upsert"] = json!(bytes);
                row["lines_asked_for_a_get_absent"] = json!(measured.absent_lines);
            }
            None => {
                row["journal_bytes_an_upsert"] = json!(measured.journal_bytes);
                row["on_processor_ns"] = json!(measured.on_processor);
            }
        }
        report.row(row);
        points.push((setting, measured));
    }
    let of = |medium: Medium, pool: u32, runs: u32, bits: u32| {
        let is_it = |s: &Setting| {
            s.medium == medium && s.pool_levels == pool && s.runs_per_level == runs && s.filter_bits == bits
        };
        &points.iter().find(|(setting, _)| is_it(setting)).expect("it is one of the settings").1
    };
    report.check(
        "every lookup in every setting is right",
        points.iter().all(|(_, measured)| measured.is_right),
    );
    let has_room = |setting: &Setting| setting.runs_per_level >= 4;
    report.check(
        "where the levels have room, an entry is written once a level, and at most once more in the last",
        points.iter().filter(|(s, _)| has_room(s)).all(|(_, m)| m.stats.write_amplification() <= 5.0),
    );
    let amplification = |runs| of(Medium::Optane, 4, runs, 10).stats.write_amplification();
    report.check(
        "a greater tuning ratio writes less: 2, 4 and 8 runs a level",
        amplification(2) > amplification(4) && amplification(4) > amplification(8),
    );
    let (with, without) = (of(Medium::Optane, 4, 4, 10), of(Medium::Optane, 4, 4, 0));
    report.check(
        "Optane: with Bloom filters a lookup of an absent key asks for less than a tenth of the lines",
        with.absent_lines < without.absent_lines / 10.0,
    );
    report.ratio("Optane: absent key, no filters/filters", without.absent / with.absent.max(0.01));
    let (with, without) = (of(Medium::Journal, 4, 4, 10), of(Medium::Journal, 4, 4, 0));
    report.ratio("journal: absent key, no filters/filters", without.on_processor[2] / with.on_processor[2]);
    let (with, without) = (of(Medium::Journal, 2, 4, 10), of(Medium::Journal, 2, 4, 0));
    report.ratio(
        "journal and files: absent key, no filters/filters",
        without.on_processor[2] / with.on_processor[2],
    );
    beside_fptree(options, report, keys, of(Medium::Journal, 4, 4, 10))?;
    let levels = |value: fn(&OperationTimes) -> f64, name: &str| Series {
        name: name.to_string(),
        points: (0..=4).map(|pool| (pool.to_string(), value(of(Medium::Journal, pool, 4, 10)))).collect(),
    };
    report.figure(Figure {
        title: "Four levels, some in the pool, the others in files".to_string(),
        x_label: "levels in the pool".to_string(),
        y_label: "ns".to_string(),
        series: vec![
            levels(|m| m.upsert, "upsert"),
            levels(|m| m.get, "get"),
            levels(|m| m.absent, "get, absent"),
        ],
    });
    Ok(())
}

/// The FPTree with the same keys: what a tree made for lookups costs.
fn beside_fptree(
    options: &RunOptions,
    report: &mut Report,
    keys: u64,
    lsm: &OperationTimes,
) -> Result<(), Error> {
    let parameters = LsmParameters { buffer_entries: 64, ..LsmParameters::default() };
    // For its pool only.
    let bench = Bench::new(options, Medium::Journal, &parameters, LsmOptions::default())?;
    let mut publication = bench.pool.publication();
    let root = FpTree::<WordKey>::create(&bench.pool, 1, &mut publication)?;
    publication.publish()?;
    let tree = FpTree::<WordKey>::open(&bench.pool, root, 1)?;
    let insert = bench.cost(|| {
        (0..keys)
            .try_for_each(|i| tree.insert(key(i), i, bench.pool.publication()).map(drop).map_err(Error::from))
    })?;
    let mut is_right = true;
    let get = bench.cost(|| {
        (0..keys)
            .map(|i| i * 7919 % keys)
            .for_each(|i| is_right &= tree.get(key(i)).is_ok_and(|value| value == Some(i)));
        Ok(())
    })?;
    report.check("the FPTree beside it finds its keys", is_right);
    let (insert, get) = (insert.processor_ns / keys as f64, get.processor_ns / keys as f64);
    report
        .row(json!({"what": "FPTree", "medium": Medium::Journal.name(), "insert_on_processor_ns": insert, "get_on_processor_ns": get}));
    report.ratio("journal: upsert with all merges in its call, FPTree/ours", insert / lsm.on_processor[0]);
    report.ratio("journal: get, FPTree/ours", get / lsm.on_processor[1]);
    Ok(())
}
