//! `performance-profiles`: figure 3.17, how well each layout does each micro-operation, as a radar; and table
//! 3.3, what each is for. Both are derived from E1, E3, E4, E5, E8, E9 and E10 on modelled Optane, nodes of 1
//! KiB: the best layout of an axis has 1, the others the best cost over theirs.

use super::points::{Cost, Points};
use super::{e01_search, e03_iterate, e04_insert, e05_split, e08_erase, e09_balance, e10_merge};
use crate::plot::{COLOURS, Figure, Series, draw, text};
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol_structures::node::{Bitmap, Hashing, Indirection, Layout, Sorted, Unsorted};
use plotters::prelude::*;
use serde_json::json;
use std::f64::consts::TAU;

const LAYOUTS: [&str; 5] = ["sorted", "unsorted", "indirection", "hashing", "bitmap"];
const AXES: [&str; 9] =
    ["search", "iterate", "insert", "erase", "split", "balance", "merge", "few writes", "memory"];
const SIZE: usize = 1024;

/// Scores of a layout, as [`AXES`]; 1 is the best.
type Scores = [f64; 9];

pub(super) fn run(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let scores = scores(options, report)?;
    for (layout, scores) in LAYOUTS.iter().zip(&scores) {
        let mut row = json!({"figure": "3.17", "layout": layout});
        for (axis, score) in AXES.iter().zip(scores) {
            row[*axis] = json!(score);
        }
        report.row(row);
    }
    report.figure(Figure {
        title: format!("performance profiles (figure 3.17), nodes of {SIZE} B, modelled Optane"),
        x_label: "micro-operation".to_string(),
        y_label: "1: the best".to_string(),
        series: LAYOUTS
            .iter()
            .zip(&scores)
            .map(|(layout, scores)| Series {
                name: layout.to_string(),
                points: AXES.iter().zip(scores).map(|(axis, score)| (axis.to_string(), *score)).collect(),
            })
            .collect(),
    });
    report.picture(radar(&scores));
    workloads(&scores, report);
    Ok(())
}

fn scores(options: &RunOptions, report: &mut Report) -> Result<[Scores; 5], Error> {
    let measured = [
        e01_search::measure(options)?,
        e04_insert::measure(options)?,
        e08_erase::measure(options)?,
        e05_split::measure(options)?,
        e09_balance::measure(options)?,
        e10_merge::measure(options)?,
    ];
    let iterated = e03_iterate::measure(options)?;
    report.check(
        "all nodes held what they should",
        measured.iter().all(|points| points.right) && iterated.right,
    );
    let [search, insert, erase, split, balance, merge] = &measured;
    let mean = |points: &Points, layout: &str| points.mean(layout, SIZE, |cost: &Cost| cost.ns);
    let leaves = iterated.sizes().last().copied().unwrap_or(0);
    let costs = LAYOUTS.map(|layout| {
        let iteration = match layout {
            "sorted" | "unsorted" => "direct",
            // By the bitmap also where there is an indirection: E3.
            _ => "bitmap",
        };
        // A split by the better of its strategies.
        let split = ["move", "copy"].iter().map(|at| split.ns(layout, at, SIZE)).fold(f64::MAX, f64::min);
        let changes = [insert, erase, balance, merge];
        let written: f64 = changes.iter().map(|p| p.mean(layout, SIZE, |cost| cost.written_bytes)).sum();
        [
            mean(search, layout),
            iterated.clock(iteration, "", leaves),
            mean(insert, layout),
            mean(erase, layout),
            split,
            mean(balance, layout),
            mean(merge, layout),
            written,
            SIZE as f64 / capacity(layout) as f64,
        ]
    });
    let best: Vec<f64> =
        (0..AXES.len()).map(|axis| costs.iter().map(|cost| cost[axis]).fold(f64::MAX, f64::min)).collect();
    Ok(costs.map(|cost| std::array::from_fn(|axis| best[axis] / cost[axis])))
}

fn capacity(layout: &str) -> usize {
    match layout {
        "sorted" => Sorted::<SIZE>::geometry::<u64>().capacity,
        "unsorted" => Unsorted::<SIZE>::geometry::<u64>().capacity,
        "indirection" => Indirection::<SIZE>::geometry::<u64>().capacity,
        "hashing" => Hashing::<SIZE>::geometry::<u64>().capacity,
        _ => Bitmap::<SIZE>::geometry::<u64>().capacity,
    }
}

/// Table 3.3 with read, update and memory overhead, and what the scores say a layout is for.
fn workloads(scores: &[Scores; 5], report: &mut Report) {
    let of =
        |layout: &Scores, axis: &str| layout[AXES.iter().position(|a| *a == axis).expect("it is an axis")];
    let mean = |layout: &Scores, axes: &[&str]| {
        axes.iter().map(|axis| of(layout, axis)).sum::<f64>() / axes.len() as f64
    };
    report
        .note("Table 3.3 from these scores; overhead of reads, updates, memory: - low, = middling, + high.");
    const PAPER: [&str; 5] =
        ["scan-heavy", "read-heavy and read-write", "write-heavy", "read-write", "read-write"];
    for ((layout, scores), paper) in LAYOUTS.iter().zip(scores).zip(PAPER) {
        let overhead = |axes: &[&str]| match mean(scores, axes) {
            score if score >= 0.9 => "-",
            score if score >= 0.6 => "=",
            _ => "+",
        };
        let (read, update) = (["search", "iterate"], ["insert", "erase", "split", "balance", "merge"]);
        let named = |wanted: fn(f64) -> bool| -> String {
            let axes = AXES.iter().zip(scores).filter(|(_, score)| wanted(**score));
            axes.map(|(axis, _)| *axis).collect::<Vec<_>>().join(", ")
        };
        report.note(&format!(
            "  {layout:12} RUM {}{}{}   good at: {};   poor at: {}   (paper: {paper})",
            overhead(&read),
            overhead(&update),
            overhead(&["memory"]),
            named(|score| score >= 0.97),
            match named(|score| score < 0.7) {
                none if none.is_empty() => "nothing".to_string(),
                some => some,
            }
        ));
    }
    let [sorted, unsorted, indirection, hashing, bitmap] = scores;
    let holds = |report: &mut Report, statement: &str, holds| super::claims::holds(report, statement, holds);
    holds(
        report,
        "hashing is for point lookups, more than sorted nodes and indirection",
        of(hashing, "search") > of(sorted, "search") && of(hashing, "search") > of(indirection, "search"),
    );
    holds(report, "bitmaps are for erasing", of(bitmap, "erase") >= 0.98);
    holds(
        report,
        "sorted and unsorted nodes have the lowest memory footprint",
        of(sorted, "memory") == 1.0 && of(unsorted, "memory") == 1.0 && of(hashing, "memory") < 1.0,
    );
    holds(
        report,
        "sorted nodes are poor at placing entries",
        of(sorted, "insert") < of(unsorted, "insert") && of(sorted, "insert") < of(hashing, "insert"),
    );
    holds(
        report,
        "indirection writes less than direct sorting",
        of(indirection, "few writes") > of(sorted, "few writes"),
    );
    super::claims::differs(
        report,
        "underflow is costly with hashing",
        "balancing costs hashing at most a quarter more than the sorted layout",
        of(hashing, "balance") >= 0.8 * of(sorted, "balance"),
        "Entries are ordered once in DRAM instead of being searched one by one, and leave the donor by one word (E9).",
    );
}

/// A polygon for each layout over axes from the middle outwards.
fn radar(scores: &[Scores; 5]) -> String {
    const MIDDLE: (f64, f64) = (330.0, 300.0);
    const RADIUS: f64 = 220.0;
    let at = |axis: usize, share: f64| {
        let angle = TAU * axis as f64 / AXES.len() as f64 - TAU / 4.0;
        ((MIDDLE.0 + RADIUS * share * angle.cos()) as i32, (MIDDLE.1 + RADIUS * share * angle.sin()) as i32)
    };
    let ring = |share: &dyn Fn(usize) -> f64| -> Vec<(i32, i32)> {
        (0..=AXES.len()).map(|axis| at(axis % AXES.len(), share(axis % AXES.len()))).collect()
    };
    let grid = RGBColor(0xdd, 0xdd, 0xdd);
    draw((820, 590), |root| {
        let heading = format!(
            "Performance profiles of node layouts (figure 3.17): {SIZE} B, modelled Optane, outside is better"
        );
        root.draw(&text(&heading, (16, 14), 16))?;
        for ticks in 1..=4 {
            root.draw(&PathElement::new(ring(&|_| f64::from(ticks) / 4.0), grid))?;
        }
        for (axis, name) in AXES.iter().enumerate() {
            root.draw(&PathElement::new(vec![at(axis, 0.0), at(axis, 1.0)], grid))?;
            let (x, y) = at(axis, 1.12);
            root.draw(&text(name, (x - 3 * name.len() as i32, y - 6), 12))?;
        }
        for (number, (layout, scores)) in LAYOUTS.iter().zip(scores).enumerate() {
            let (colour, y) = (COLOURS[number], 70 + 22 * number as i32);
            let corners = ring(&|axis| scores[axis].clamp(0.0, 1.0));
            root.draw(&Polygon::new(corners.clone(), colour.mix(0.06)))?;
            root.draw(&PathElement::new(corners, colour.stroke_width(2)))?;
            root.draw(&PathElement::new(vec![(650, y), (676, y)], colour.stroke_width(3)))?;
            root.draw(&text(layout, (684, y - 6), 12))?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_radar_draws_every_layout_inside_its_frame() {
        let svg = radar(&[[1.0; 9], [0.5; 9], [0.1; 9], [0.0; 9], [0.7; 9]]);
        assert_eq!(svg.matches("<polygon").count(), 5);
        assert!(LAYOUTS.iter().chain(&AXES).all(|name| svg.contains(name)));
        let polygons = svg.lines().filter(|line| line.starts_with("<polygon"));
        let points = polygons.filter_map(|line| line.split("points=\"").nth(1)?.split('"').next());
        let mut numbers = points.flat_map(|points| points.split([' ', ','])).filter(|word| !word.is_empty());
        assert!(
            numbers.all(|number| number.parse::<f64>().is_ok_and(|n| (0.0..590.0).contains(&n))),
            "{svg}"
        );
    }
}
