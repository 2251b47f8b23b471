//! The paper's figures: a row of the table for each thread count, a picture for each figure.

use crate::Error;
use crate::media::CachedMedium;
use crate::plot::{Figure, Series};
use crate::report::Report;
use entresol_memory::profile::{Access, Direction, Pattern, SocketPlacement};
use serde_json::{Map, Value, json};

/// `64 B`, `4 KiB`.
pub(super) fn size(bytes: u64) -> String {
    if bytes >= 1024 { format!("{} KiB", bytes / 1024) } else { format!("{bytes} B") }
}

fn rounded(value: f64) -> Value {
    json!((value * 1000.0).round() / 1000.0)
}

/// Figures 3, 7, 8, 12 and 13: bandwidth by threads and access size.
pub(super) fn curves(medium: &mut CachedMedium<'_>, report: &mut Report) -> Result<(), Error> {
    curves_of(medium, Direction::Read, report)?;
    curves_of(medium, Direction::Write, report)
}

/// The same for one direction.
pub(super) fn curves_of(
    medium: &mut CachedMedium<'_>,
    direction: Direction,
    report: &mut Report,
) -> Result<(), Error> {
    for pattern in [Pattern::Grouped, Pattern::Individual, Pattern::Random] {
        let number = match (direction, pattern) {
            (Direction::Read, Pattern::Grouped) => "3a",
            (Direction::Read, Pattern::Individual) => "3b",
            (Direction::Read, Pattern::Random) => "12",
            (Direction::Write, Pattern::Grouped) => "7a",
            (Direction::Write, Pattern::Individual) => "7b, 8",
            (Direction::Write, Pattern::Random) => "13",
        };
        let (threads, sizes) = (medium.medium().threads().to_vec(), medium.medium().access_bytes().to_vec());
        let mut series = Vec::new();
        for threads in threads {
            let mut points = Vec::new();
            for bytes in &sizes {
                let gb_per_s = medium.gb_per_s(Access::new(direction, pattern, threads, *bytes).near())?;
                points.push((size(*bytes), gb_per_s));
            }
            let mut row = Map::new();
            row.insert("figure".to_string(), json!(number));
            row.insert("medium".to_string(), json!(medium.medium().name()));
            row.insert("gb_per_s".to_string(), json!(format!("{direction:?} {pattern:?}").to_lowercase()));
            row.insert("threads".to_string(), json!(threads));
            row.extend(points.iter().map(|(size, y)| (size.clone(), rounded(*y))));
            report.row(Value::Object(row));
            series.push(Series { name: format!("{threads} threads"), points });
        }
        series.extend(of_paper(medium, number));
        report.figure(Figure {
            title: format!("{number}: {:?} {direction:?}, {}", pattern, medium.medium().name()),
            x_label: "access size".to_string(),
            y_label: "GB/s".to_string(),
            series,
        });
    }
    Ok(())
}

/// Highest bandwidth of one socket over all thread counts and access sizes, beside the paper's of this kind
/// of memory.
pub(super) fn peaks(
    medium: &mut CachedMedium<'_>,
    [read, write]: [Option<&str>; 2],
    report: &mut Report,
) -> Result<(), Error> {
    let (threads, sizes) = (medium.medium().threads().to_vec(), medium.medium().access_bytes().to_vec());
    for (direction, source, paper) in [
        (Direction::Read, "bandwidth paper, figures 3 and 6", read),
        (Direction::Write, "bandwidth paper, figure 7", write),
    ] {
        let Some(paper) = paper else { continue };
        let mut peak: f64 = 0.0;
        for (threads, bytes) in
            threads.iter().flat_map(|threads| sizes.iter().map(move |bytes| (*threads, *bytes)))
        {
            for pattern in [Pattern::Grouped, Pattern::Individual] {
                peak = peak.max(medium.gb_per_s(Access::new(direction, pattern, threads, bytes).near())?);
            }
        }
        let name = format!(
            "highest sequential bandwidth of a socket, {direction:?}, {}, GB/s",
            medium.medium().name()
        );
        report.paper(source, &name, paper, Some(peak));
    }
    Ok(())
}

/// A figure over thread counts, individual, 4 KiB a piece.
fn over_threads(
    medium: &mut CachedMedium<'_>,
    number: &str,
    direction: Direction,
    places: &[(SocketPlacement, &str)],
    report: &mut Report,
) -> Result<(), Error> {
    let threads = medium.medium().threads().to_vec();
    let mut series = Vec::new();
    for (place, name) in places {
        let mut points = Vec::new();
        for count in &threads {
            let access = Access::new(direction, Pattern::Individual, *count, 4096);
            points.push((count.to_string(), medium.gb_per_s(access.at(*place))?));
        }
        let mut row = Map::new();
        row.insert("figure".to_string(), json!(number));
        row.insert("medium".to_string(), json!(medium.medium().name()));
        row.insert(
            "gb_per_s".to_string(),
            json!(format!("{direction:?}, {name}, by threads").to_lowercase()),
        );
        row.extend(points.iter().map(|(threads, y)| (threads.clone(), rounded(*y))));
        report.row(Value::Object(row));
        series.push(Series { name: (*name).to_string(), points });
    }
    series.extend(of_paper(medium, number));
    report.figure(Figure {
        title: format!("{number}: {direction:?}, {}", medium.medium().name()),
        x_label: "threads (a socket), individual, 4 KiB".to_string(),
        y_label: "GB/s".to_string(),
        series,
    });
    Ok(())
}

/// Figures 4 and 9: threads pinned to processors, and not at all.
pub(super) fn pinning(medium: &mut CachedMedium<'_>, report: &mut Report) -> Result<(), Error> {
    let places = [(SocketPlacement::Near, "pinned"), (SocketPlacement::Unpinned, "not pinned")];
    over_threads(medium, "4", Direction::Read, &places, report)?;
    over_threads(medium, "9", Direction::Write, &places, report)
}

/// Figures 5, 6 and 10: near and far, one and two sockets.
pub(super) fn places(medium: &mut CachedMedium<'_>, report: &mut Report) -> Result<(), Error> {
    let reading = [
        (SocketPlacement::Near, "near"),
        (SocketPlacement::FarFirst, "far"),
        (SocketPlacement::Far, "2nd far"),
    ];
    over_threads(medium, "5", Direction::Read, &reading, report)?;
    let both = [
        (SocketPlacement::Near, "1 near"),
        (SocketPlacement::Far, "1 far"),
        (SocketPlacement::BothNear, "2 near"),
        (SocketPlacement::BothFar, "2 far"),
        (SocketPlacement::Shared, "1 near 1 far"),
    ];
    over_threads(medium, "6", Direction::Read, &both, report)?;
    over_threads(medium, "10", Direction::Write, &both, report)
}

/// Figure 11: readers beside writers, individual, 4 KiB a piece.
pub(super) fn mixed(medium: &mut CachedMedium<'_>, report: &mut Report) -> Result<(), Error> {
    let (writers, readers) = mixture(medium);
    let mut series = [Vec::new(), Vec::new()];
    for writers in &writers {
        for readers in &readers {
            let read =
                Access::new(Direction::Read, Pattern::Individual, *readers, 4096).near().beside(*writers);
            let write =
                Access::new(Direction::Write, Pattern::Individual, *writers, 4096).near().beside(*readers);
            let (read, write) = (medium.gb_per_s(read)?, medium.gb_per_s(write)?);
            report.row(json!({
                "figure": "11",
                "medium": medium.medium().name(),
                "writers/readers": format!("{writers}/{readers}"),
                "read_gb_per_s": rounded(read),
                "write_gb_per_s": rounded(write),
            }));
            for (points, value) in series.iter_mut().zip([read, write]) {
                points.push((format!("{writers}/{readers}"), value));
            }
        }
    }
    let names = ["read", "write"].into_iter();
    let ours = names.zip(series).map(|(name, points)| Series { name: name.to_string(), points });
    report.figure(Figure {
        title: format!("11: Mixed, {}", medium.medium().name()),
        x_label: "writers/readers, individual, 4 KiB".to_string(),
        y_label: "GB/s".to_string(),
        series: ours.chain(of_paper(medium, "11")).collect(),
    });
    Ok(())
}

/// Points of a figure of the bandwidth paper that its text gives (sections 3.2 to 5.1), beside its kind of memory.
fn of_paper(medium: &CachedMedium<'_>, number: &str) -> Vec<Series> {
    let known = match medium.medium().name().as_str() {
        "modelled Optane" => PERSISTENT,
        "modelled DRAM" => DRAM,
        _ => &[],
    };
    let of_figure = known.iter().filter(|(figure, ..)| *figure == number);
    let series = of_figure.map(|(_, curve, points)| {
        let points = points.iter().map(|(label, gb_per_s)| ((*label).to_string(), *gb_per_s));
        Series::of_paper(curve, points.collect())
    });
    series.collect()
}

/// Figure, curve, and points: label of the horizontal axis and GB/s.
type PaperPoints = (&'static str, &'static str, &'static [(&'static str, f64)]);

/// Of Optane, near and far.
const PERSISTENT: &[PaperPoints] = &[
    ("3a", "18 threads", &[("4 KiB", 40.0)]),
    ("3b", "18 threads", &[("4 KiB", 40.0)]),
    ("7a", "4 threads", &[("4 KiB", 12.6)]),
    ("7a", "36 threads", &[("64 B", 2.6)]),
    ("7b, 8", "36 threads", &[("64 B", 9.6)]),
    ("4", "pinned", &[("18", 41.0)]),
    ("4", "not pinned", &[("8", 9.0), ("36", 9.0)]),
    ("5", "near", &[("18", 40.0)]),
    ("5", "far", &[("4", 8.0)]),
    ("5", "2nd far", &[("18", 33.0)]),
    ("6", "1 near", &[("18", 40.0)]),
    ("6", "1 far", &[("18", 33.0)]),
    ("6", "2 near", &[("18", 80.0)]),
    ("6", "2 far", &[("18", 50.0)]),
    ("9", "pinned", &[("4", 13.0)]),
    ("10", "1 near", &[("4", 12.5)]),
    ("10", "1 far", &[("8", 7.0)]),
    ("10", "2 near", &[("4", 25.0)]),
    ("10", "2 far", &[("8", 13.0)]),
    ("11", "read", &[("1/30", 26.0), ("6/30", 0.45 * 31.0)]),
    ("11", "write", &[("4/1", 12.0), ("6/1", 12.0), ("4/30", 0.4 * 13.0)]),
];

/// Of DRAM.
const DRAM: &[PaperPoints] = &[
    ("6", "1 near", &[("18", 100.0)]),
    ("6", "1 far", &[("18", 33.0)]),
    ("6", "2 near", &[("18", 185.0)]),
    ("6", "2 far", &[("18", 60.0)]),
];

/// Writer and reader counts: the paper's, or as many as the machine has cores for.
fn mixture(medium: &CachedMedium<'_>) -> (Vec<u64>, Vec<u64>) {
    let cores = medium.medium().cores();
    if cores >= 18 {
        return (vec![1, 4, 6], vec![1, 8, 18, 30]);
    }
    let counts = |most: u64| {
        let mut counts = vec![1, (most / 2).max(1), most.max(1)];
        counts.dedup();
        counts
    };
    (counts(cores), counts(2 * cores))
}
