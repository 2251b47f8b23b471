//! Windows with many groups over restarts and aborts: groups are read when they are needed, and results are those of one run
//! over the committed tuples.

use crate::support::*;
use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{ArrayRef, Int64Array, StringArray};
use crossbeam_channel::{Sender, unbounded};
use entresol_streams::{
    Aggregate, AggregateFunction, Boundary, ChannelSource, Element, GroupState, Punctuation, StateForm,
    TimeWindow, ToTable, Topology, Tuple,
};
use entresol_tables::{Catalog, Column, DataType, Row, ScanRange, Value};
use std::sync::Arc;
use std::time::Duration;

/// More than are read when a topology starts.
const GROUPS: u64 = 40_000;

/// Tuples, and the mark behind them.
type Sent = (Vec<Tuple>, Punctuation);

/// Reading of one of the groups, some without a power.
fn group_reading(random: &mut Random, groups: u64, second: i64) -> Tuple {
    let mut tuple = reading(random.below(groups) as i32, second, random.below(1000) as f64 / 8.0);
    if random.below(4) == 0 {
        tuple[2] = Value::Null;
    }
    tuple
}

/// A function whose state has some thousand bytes for each value, so that most groups have several rows.
#[derive(Debug, Clone)]
struct Gathered;

#[derive(Debug, Default)]
struct GatheredGroup {
    text: String,
}

impl AggregateFunction for Gathered {
    fn result_type(&self) -> DataType {
        DataType::BigInt
    }

    fn state_columns(&self) -> Vec<Column> {
        vec![Column::new("text", DataType::Varchar)]
    }

    fn group(&self) -> Result<Box<dyn GroupState>, String> {
        Ok(Box::new(GatheredGroup::default()))
    }
}

impl GroupState for GatheredGroup {
    fn add(&mut self, columns: &[ArrayRef]) -> Result<(), String> {
        for value in columns[0].as_primitive::<Float64Type>().iter().flatten() {
            self.text += &format!("{value}ü").repeat((value * 8.0) as usize);
        }
        Ok(())
    }

    fn store(&mut self) -> Result<Vec<ArrayRef>, String> {
        Ok(vec![Arc::new(StringArray::from(vec![self.text.as_str()]))])
    }

    fn merge(&mut self, stored: &[ArrayRef]) -> Result<(), String> {
        self.text += stored[0].as_string::<i32>().value(0);
        Ok(())
    }

    fn result(&mut self) -> Result<ArrayRef, String> {
        let hash =
            self.text.bytes().fold(7_i64, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
        Ok(Arc::new(Int64Array::from(vec![hash])))
    }

    fn bytes(&self) -> usize {
        size_of::<GatheredGroup>() + self.text.capacity()
    }
}

/// Aggregates with states of some bytes.
fn short() -> Vec<Aggregate> {
    vec![Aggregate::count(), Aggregate::sum("power"), Aggregate::min("power"), Aggregate::max("power")]
}

/// Aggregates with states that may have several rows.
fn long() -> Vec<Aggregate> {
    let gathered = Aggregate::function(Arc::new(Gathered), &["power"]);
    vec![Aggregate::count(), gathered.named("gathered"), Aggregate::max("power")]
}

/// Threads, groups in DRAM, and form of the state.
type Setting = (usize, usize, Option<StateForm>);

/// Runs a topology over what is sent, and then stops it, or lets the stream end.
fn run(
    catalog: &Arc<Catalog>,
    sent: &[Sent],
    (threads, in_dram, form): Setting,
    aggregates: &[Aggregate],
    ends: bool,
) {
    let (sender, receiver) = unbounded();
    let topology = Topology::builder("t", catalog).boundary(Boundary::Punctuated).parallelism(threads);
    let readings = topology.source("s", ChannelSource::new(reading_columns(), receiver));
    let grouped = readings
        .window(TimeWindow::tumbling("at", Duration::from_secs(1000)).lateness(Duration::from_secs(1000)))
        .group_by(&["meter"])
        .groups_in_dram(in_dram);
    let grouped = match form {
        Some(form) => grouped.state_form(form),
        None => grouped,
    };
    grouped.aggregate(aggregates, "open").to_table(ToTable::insert("windows"));
    let running = topology.build().unwrap().start().unwrap();
    let sender: Sender<Element> = sender;
    let mut committed = 0;
    for (tuples, end) in sent {
        sender.send(Element::Tuples(tuples.clone())).unwrap();
        sender.send(Element::Punctuation(*end)).unwrap();
        committed += if *end == Punctuation::Commit { tuples.len() as u64 } else { 0 };
    }
    if ends {
        drop(sender);
    } else {
        while running.progress().snapshot().tuples < committed && !running.is_finished() {
            std::thread::sleep(Duration::from_millis(1));
        }
        running.stop();
    }
    running.join().unwrap();
}

/// Rows of the results, and of the open windows before the last run, of one run over the committed tuples.
fn expected(runs: &[Vec<Sent>], aggregates: &[Aggregate]) -> (Vec<Row>, Vec<Row>) {
    let is_committed = |sent: &&Sent| sent.1 == Punctuation::Commit;
    let committed =
        |runs: &[Vec<Sent>]| -> Vec<Sent> { runs.iter().flatten().filter(is_committed).cloned().collect() };
    let (whole, before) = (volatile(), volatile());
    run(&whole, &committed(runs), (1, usize::MAX, Some(StateForm::Rows)), aggregates, true);
    let earlier = committed(&runs[..runs.len() - 1]);
    run(&before, &earlier, (1, usize::MAX, Some(StateForm::Rows)), aggregates, false);
    (rows(&whole, "windows"), rows(&before, "open"))
}

/// Runs the topology, each time with another setting, and compares what it leaves.
fn compare(
    runs: &[Vec<Sent>],
    settings: &[Setting],
    aggregates: &[Aggregate],
    expected: &(Vec<Row>, Vec<Row>),
) {
    let directory = tempfile::TempDir::new().unwrap();
    for (at, sent) in runs.iter().enumerate() {
        let catalog = journal(directory.path());
        run(&catalog, sent, settings[at % settings.len()], aggregates, at + 1 == runs.len());
        catalog.context().pool().sync().unwrap();
        if at + 2 == runs.len() {
            assert!(rows(&catalog, "open") == expected.1, "open windows of {settings:?}");
        }
        if at + 1 == runs.len() {
            assert!(rows(&catalog, "windows") == expected.0, "windows of {settings:?}");
            assert!(rows(&catalog, "open").is_empty(), "no open window is left");
            let report = entresol_tables::check(&catalog, |_| {}).unwrap();
            assert_eq!(report.problems, []);
        }
    }
}

#[test]
fn a_topology_resumes_without_reading_its_groups() {
    let mut random = Random(seed());
    // All groups of two windows; then few, of which some are aborted; then the end.
    let all = |second: i64| -> Vec<Tuple> {
        (0..GROUPS).map(|meter| reading(meter as i32, second, (meter % 100) as f64)).collect()
    };
    let mut few = |tuples: usize, groups: u64| -> Vec<Tuple> {
        let mut one = || {
            let second = 1_000_000 + random.below(2000) as i64;
            group_reading(&mut random, groups, second)
        };
        (0..tuples).map(|_| one()).collect()
    };
    let runs = vec![
        vec![(all(1_000_000), Punctuation::Commit), (all(1_001_000), Punctuation::Commit)],
        vec![
            (few(50, GROUPS + 1000), Punctuation::Abort),
            (few(500, GROUPS + 1000), Punctuation::Commit),
            (few(3000, 100), Punctuation::Abort),
            (few(3000, GROUPS), Punctuation::Commit),
        ],
        vec![(few(10, 10), Punctuation::Commit)],
        vec![(few(100, GROUPS + 2000), Punctuation::Abort), (few(100, GROUPS), Punctuation::Commit)],
    ];
    let expected = expected(&runs, &short());
    for settings in [
        &[(1, usize::MAX, None)][..],
        &[(1, usize::MAX, Some(StateForm::Pages)), (1, usize::MAX, None)],
        &[(1, usize::MAX, None), (3, usize::MAX, None), (2, usize::MAX, None)],
        &[(1, usize::MAX, Some(StateForm::Pages)), (1, 5000, None), (3, usize::MAX, None), (1, 9000, None)],
    ] {
        compare(&runs, settings, &short(), &expected);
    }
}

/// A window with so many groups that none is read at the start.
#[test]
fn groups_of_a_very_large_window_are_looked_up() {
    const GROUPS: u64 = 180_000;
    let mut random = Random(seed());
    let mut few = |tuples: usize, end: Punctuation| -> Sent {
        let mut one = || {
            let second = 1_000_000 + random.below(1000) as i64;
            group_reading(&mut random, GROUPS + 1000, second)
        };
        ((0..tuples).map(|_| one()).collect(), end)
    };
    let runs = vec![
        all_groups(GROUPS),
        vec![few(300, Punctuation::Abort), few(500, Punctuation::Commit), few(50, Punctuation::Commit)],
        vec![few(10, Punctuation::Commit)],
    ];
    let expected = expected(&runs, &short());
    for settings in [&[(1, usize::MAX, None)][..], &[PAGES, (1, usize::MAX, None), (3, usize::MAX, None)]] {
        compare(&runs, settings, &short(), &expected);
    }
}

#[test]
fn aborts_undo_groups_windows_and_what_has_left_memory() {
    let mut random = Random(seed());
    const IN_PAGES: Option<StateForm> = Some(StateForm::Pages);
    for settings in [
        &[(1, usize::MAX, None)][..],
        &[(3, usize::MAX, None)],
        &[(1, 40, None)],
        &[(2, 100, None)],
        &[(1, usize::MAX, IN_PAGES)],
        &[(2, 100, IN_PAGES)],
        &[(1, usize::MAX, IN_PAGES), (1, usize::MAX, Some(StateForm::Rows))],
        &[(1, 60, IN_PAGES), (3, usize::MAX, None), (1, usize::MAX, IN_PAGES)],
        &[(1, usize::MAX, None), (1, usize::MAX, IN_PAGES)],
    ] {
        let runs: Vec<Vec<Sent>> = (0..4).map(|run| random_run(&mut random, run)).collect();
        compare(&runs, settings, &short(), &expected(&runs, &short()));
    }
}

/// States that need several rows are read lazily, looked up, undone and removed with all of them; no form makes them pages.
#[test]
fn groups_of_several_rows_are_resumed_and_undone() {
    let mut random = Random(seed());
    for settings in [
        &[(1, usize::MAX, None)][..],
        &[(3, usize::MAX, None), (1, usize::MAX, Some(StateForm::Pages))],
        &[(1, 40, Some(StateForm::Pages)), (2, 100, None)],
    ] {
        let runs: Vec<Vec<Sent>> = (0..4).map(|run| random_run(&mut random, run)).collect();
        let expected = expected(&runs, &long());
        let parts = |row: &Row| row[row.len() - 3] != Value::Int(0);
        assert!(expected.1.iter().any(parts), "some groups have several rows");
        compare(&runs, settings, &long(), &expected);
    }
}

/// Transactions of a run, a third of which is aborted.
fn random_run(random: &mut Random, run: i64) -> Vec<Sent> {
    let transactions = (0..30).map(|number| {
        let begin = 1_000_000 + (run * 30 + number) * 60;
        // Some have many groups, which fill pages.
        let groups = if random.below(6) == 0 { 600 } else { 60 };
        let tuples = (0..1 + random.below(60) * (1 + groups / 100)).map(|_| {
            let at = begin + random.below(3000) as i64;
            group_reading(random, groups, at)
        });
        let tuples: Vec<Tuple> = tuples.collect();
        let end = if random.below(3) == 0 { Punctuation::Abort } else { Punctuation::Commit };
        (tuples, end)
    });
    transactions.collect()
}

/// Readings of each of some groups.
fn all_groups(groups: u64) -> Vec<Sent> {
    let readings = (0..groups).map(|meter| reading(meter as i32, 1_000_000, (meter % 100) as f64));
    vec![(readings.collect(), Punctuation::Commit)]
}

const PAGES: Setting = (1, usize::MAX, Some(StateForm::Pages));

/// Returns true if the last group of so many stands alone, as a row.
fn ends_in_a_row(groups: u64) -> bool {
    let catalog = volatile();
    run(&catalog, &all_groups(groups), PAGES, &short(), false);
    let range = ScanRange::prefix(&[Value::Timestamp(1_000_000 * SECOND_US)]);
    !catalog.table("open").unwrap().ends_in_page(&catalog.begin().unwrap(), &range).unwrap()
}

/// A last group that does not fit into the page before it is a row: the window is in pages nevertheless.
#[test]
fn windows_in_pages_that_end_in_a_row_are_known_as_such() {
    let mut random = Random(seed());
    let of_pages: Vec<u64> = (30..400).filter(|&groups| ends_in_a_row(groups)).take(3).collect();
    assert_eq!(of_pages.len(), 3);
    for groups in of_pages {
        let mut few = |tuples: usize| -> Sent {
            let mut one = || {
                let second = 1_000_000 + random.below(1000) as i64;
                group_reading(&mut random, groups, second)
            };
            ((0..tuples).map(|_| one()).collect(), Punctuation::Commit)
        };
        let runs = vec![all_groups(groups), vec![few(3), few(2)], vec![few(3)], vec![few(1)]];
        let expected = expected(&runs, &short());
        for settings in [
            [PAGES, (1, usize::MAX, None), (1, usize::MAX, None), PAGES],
            [PAGES, (1, usize::MAX, Some(StateForm::Rows)), (2, usize::MAX, None), PAGES],
            [PAGES, (3, usize::MAX, None), PAGES, (4, usize::MAX, None)],
            [PAGES, (1, 20, Some(StateForm::Pages)), (3, usize::MAX, None), (1, 20, None)],
        ] {
            compare(&runs, &settings, &short(), &expected);
        }
    }
}

/// Threads whose groups leave DRAM write into pages that have groups of other threads, too, and read them.
#[test]
fn threads_that_write_groups_out_leave_the_groups_of_others_in_their_pages() {
    const GROUPS: u64 = 1500;
    let mut random = Random(seed());
    let mut many = || -> Sent {
        let mut one = || {
            let second = 1_000_000 + random.below(1000) as i64;
            group_reading(&mut random, GROUPS, second)
        };
        ((0..4000).map(|_| one()).collect(), Punctuation::Commit)
    };
    let runs = vec![all_groups(GROUPS), vec![many(), many(), many()], vec![many()]];
    let expected = expected(&runs, &short());
    for _ in 0..3 {
        compare(&runs, &[PAGES, (8, 70, None), PAGES], &short(), &expected);
    }
}
