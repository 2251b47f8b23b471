//! Representations of a state (dissertation 5.6): a table over each structure that SQL has, beside what the cost model
//! expects by the formulas (5.1) to (5.3).
//!
//! On `journal` a time is what the thread had of a processor: table and transaction are in it, so predictions are judged
//! with the speed of the machine taken out. On modelled Optane it is what the device bills for the pool, the same in each
//! run; the processor and nodes in DRAM are not in it, so it stands beside the pool's part of a prediction. Keys are
//! inserted in random order, a thousand a transaction; half of the keys that are read are there; a range has a hundred
//! rows. Opening lasts until a key is read; what an FPTree loads behind that is not in it.

mod table;

use super::chapter3::scaled;
use crate::asked::AskedFigure;
use crate::measure::median;
use crate::plot::{Figure, Series};
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol_memory::profile::Profile;
use entresol_structures::IndexStructure;
use entresol_tables::cost::{OperationCost, OperationMix, StructureCosts, StructureMedium, TableSize};
use entresol_transactions::Tier;
use serde_json::json;
use table::{Answers, MediumKind, Plan, ROW_BYTES, StructureFigures, StructureTable};

/// Structure with what was measured and what is expected.
struct StructureComparison {
    structure: IndexStructure,
    measured: StructureFigures,
    expected: StructureCosts,
}

/// Operations with a prediction: name, measured nanoseconds, expected cost.
type Operation = (&'static str, fn(&StructureFigures) -> f64, fn(&StructureCosts) -> OperationCost);

const OPERATIONS: [Operation; 3] = [
    ("a row by key", |measured| measured.read, looked_up),
    ("a row written", |measured| measured.write, |costs| costs.write),
    ("a row of a range", |measured| measured.row, |costs| costs.row),
];

/// Expected cost of a key of the plan, half of which are there.
fn looked_up(costs: &StructureCosts) -> OperationCost {
    let half = |read: f64, absent: f64| (read + absent) / 2.0;
    let (read, absent) = (costs.read, costs.absent);
    OperationCost {
        processor: half(read.processor, absent.processor),
        pool: half(read.pool, absent.pool),
        dram: half(read.dram, absent.dram),
    }
}

/// Workloads for which a structure is chosen: rows by key, written, of ranges, for each row of the table.
const MIXES: [(&str, [f64; 3]); 4] = [
    ("rows by key", [100.0, 1.0, 0.0]),
    ("writes", [0.0, 1.0, 0.0]),
    ("ranges", [0.0, 1.0, 1_000.0]),
    ("each of them", [2.0, 1.0, 10.0]),
];

/// Every structure on both media.
pub(super) fn run(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let rows = if options.quick { 20_000 } else { 1_000_000 };
    let plan = Plan::new(rows, options.seed);
    for medium in MediumKind::ALL {
        let compared = measure(medium, &plan, options, report)?;
        match medium {
            MediumKind::Journal => judge_times(&compared, report),
            MediumKind::Optane => judge_device(&compared, report),
        }
        report.figure(figure(medium, &compared));
    }
    report.note(
        "expected: the cost model's, (5.1) of a row by key and written, (5.2) of a row of a range, (5.3) of opening beside \
         what is constant; ns a row, on modelled Optane of the pool alone",
    );
    Ok(())
}

/// Measures all structures on a medium, and checks that they answer alike.
fn measure(
    medium: MediumKind,
    plan: &Plan,
    options: &RunOptions,
    report: &mut Report,
) -> Result<Vec<StructureComparison>, Error> {
    let rows = plan.inserted.len() as u64;
    let (dram, optane) = (Profile::embedded("dram")?, Profile::embedded("optane-dcpmm")?);
    let optane = scaled(optane, rows);
    let times = match medium {
        MediumKind::Journal => StructureMedium::of_tier(Tier::Disk),
        MediumKind::Optane => StructureMedium::of(&optane, &dram),
    };
    let size = TableSize { rows: rows as f64, key_bytes: 8.0, row_bytes: ROW_BYTES };
    let (mut compared, mut first): (Vec<StructureComparison>, Option<Answers>) = (Vec::new(), None);
    for structure in IndexStructure::ALL {
        let directory = options.database_dir()?;
        let mut table = StructureTable::new(directory.path(), structure, medium, &optane)?;
        let (measured, answers) = table.run(plan)?;
        let is_alike = *first.get_or_insert(answers) == answers && answers.in_all == rows;
        report.check(&format!("{structure}, {}: answers as the others", medium.name()), is_alike);
        let expected = StructureCosts::new(structure, &size, &times);
        let mut shown = json!({ "structure": structure.name(), "medium": medium.name(),
            "bytes": measured.row_bytes, "expected_bytes": expected.row_bytes });
        for (name, of, cost) in OPERATIONS {
            shown[format!("{name}, ns")] = json!(of(&measured));
            shown[format!("{name}, expected")] = json!(expected_ns(medium, cost(&expected)));
        }
        if let Some(ms) = measured.opening_ms {
            shown["opening_ms"] = json!(ms);
            shown["recovery_expected_ms"] = json!(expected.recovery_ns() / 1e6);
        }
        report.row(shown);
        compared.push(StructureComparison { structure, measured, expected });
    }
    Ok(compared)
}

/// Part of an expected cost that a medium shows.
fn expected_ns(medium: MediumKind, cost: OperationCost) -> f64 {
    match medium {
        MediumKind::Journal => cost.ns(),
        MediumKind::Optane => cost.pool,
    }
}

/// Judges the times of this machine: predictions, the structure that the model takes, opening.
fn judge_times(compared: &[StructureComparison], report: &mut Report) {
    let mut ratios = Vec::new();
    for of in compared {
        ratios.extend(OPERATIONS.map(|(_, measured, cost)| measured(&of.measured) / cost(&of.expected).ns()));
    }
    judge_predictions("journal", &ratios, report);
    let mut times = Vec::new();
    for (name, [reads, writes, rows]) in MIXES {
        let mix = OperationMix { reads, writes, rows, openings: 0.0 };
        let ns = |of: &StructureFigures| reads * of.read + writes * of.write + rows * of.row;
        let least = |cost: &dyn Fn(&StructureComparison) -> f64| {
            compared.iter().min_by(|first, second| cost(first).total_cmp(&cost(second)))
        };
        let taken = least(&|of| mix.ns(&of.expected));
        let fastest = least(&|of| ns(&of.measured));
        let (Some(taken), Some(fastest)) = (taken, fastest) else { continue };
        let ratio = ns(&taken.measured) / ns(&fastest.measured);
        report.row(json!({ "workload": name, "model_takes": taken.structure.name(),
            "fastest": fastest.structure.name(), "ratio": ratio }));
        times.push(ratio);
    }
    let worst = times.iter().copied().fold(1.0, f64::max);
    report.asked(AskedFigure::at_most("structure of the model beside the fastest one, at worst", worst, 1.3));
    judge_opening(compared, report);
    let bytes: Vec<f64> =
        compared.iter().map(|of| factor(of.measured.row_bytes / of.expected.row_bytes)).collect();
    report.asked(AskedFigure::at_most("bytes of a row, median error", median(&bytes), 1.5));
}

/// Judges opening: of structures that read nothing, and of those that read each leaf.
fn judge_opening(compared: &[StructureComparison], report: &mut Report) {
    let ms = |of: &StructureComparison| of.measured.opening_ms.unwrap_or(f64::NAN);
    let reads_nothing = |of: &&StructureComparison| of.expected.recovery_ns() == 0.0;
    let longest = |least: bool| {
        let of = compared.iter().filter(|of| reads_nothing(of) == least).map(ms);
        of.fold(0.0, f64::max)
    };
    report.asked(
        AskedFigure::at_most("opening, structures with a delta of 0 in (5.3)", longest(true), 50.0)
            .unit("ms"),
    );
    // What they take beyond the others, by what is expected.
    let others = median(&compared.iter().filter(reads_nothing).map(ms).collect::<Vec<_>>());
    for of in compared.iter().filter(|of| !reads_nothing(of)) {
        let beyond = (ms(of) - others).max(0.0);
        report.ratio(
            &format!("{}: opening beyond the others by (5.3)", of.structure),
            beyond / (of.expected.recovery_ns() / 1e6),
        );
    }
}

/// Judges what the device bills: predictions, and that hybrid trees find rows faster than those that are entirely in the pool.
fn judge_device(compared: &[StructureComparison], report: &mut Report) {
    let mut ratios = Vec::new();
    for of in compared {
        ratios.extend(OPERATIONS.map(|(_, measured, cost)| measured(&of.measured) / cost(&of.expected).pool));
    }
    judge_predictions("modelled Optane", &ratios, report);
    let read = |structure| {
        let found = compared.iter().find(|of| of.structure == structure);
        found.map_or(f64::NAN, |of| of.measured.read)
    };
    for (hybrid, persistent) in [
        (IndexStructure::HybridWbTree, IndexStructure::WbTree),
        (IndexStructure::HybridPbpTree, IndexStructure::PbpTree),
    ] {
        let name = format!("{persistent} beside {hybrid}, a row by key, modelled Optane");
        report
            .asked(AskedFigure::at_least(name, read(persistent) / read(hybrid), 1.0).judged_at_small_sizes());
    }
}

/// Judges predictions with their common factor taken out.
fn judge_predictions(medium: &str, ratios: &[f64], report: &mut Report) {
    let speed = median(&ratios.iter().map(|ratio| ratio.ln()).collect::<Vec<_>>()).exp();
    report.ratio(&format!("{medium}: measured by expected, median"), speed);
    let errors: Vec<f64> = ratios.iter().map(|ratio| factor(ratio / speed)).collect();
    let worst = errors.iter().copied().fold(1.0, f64::max);
    let name = format!("{medium}: median error of an expected time, the speed taken out");
    report.asked(AskedFigure::at_most(name, median(&errors), 1.5));
    report.asked(AskedFigure::at_most(format!("{medium}: greatest error of an expected time"), worst, 3.0));
}

/// Ratio as a factor of at least 1.
fn factor(ratio: f64) -> f64 {
    ratio.max(ratio.recip())
}

/// Times of a medium by structure, beside the expected ones.
fn figure(medium: MediumKind, compared: &[StructureComparison]) -> Figure {
    let points = |of: &dyn Fn(&StructureComparison) -> f64| {
        compared.iter().map(|one| (one.structure.name().to_owned(), of(one))).collect::<Vec<_>>()
    };
    let mut series = Vec::new();
    for (name, measured, cost) in OPERATIONS {
        series.push(Series { name: name.to_owned(), points: points(&|of| measured(&of.measured)) });
        let expected = points(&|of| expected_ns(medium, cost(&of.expected)));
        series.push(Series { name: format!("{name}, expected"), points: expected });
    }
    Figure {
        title: format!("a table over each structure, {}", medium.name()),
        x_label: "structure".to_owned(),
        y_label: "ns a row".to_owned(),
        series,
    }
}
