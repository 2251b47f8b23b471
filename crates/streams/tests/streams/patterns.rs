//! Row patterns: matches equal those of a matcher that tries all ways over all rows, whatever the transactions, aborts
//! and restarts; reading back; limits.

use crate::support::*;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type, TimestampMicrosecondType};
use arrow_array::{ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch};
use entresol_streams::{
    Batch, Boundary, ChannelSource, Element, GeneratorSource, MatchExpression, MatchGuard, NavigatedRows,
    Navigation, PartitionMatcher, PartitionPattern, Pattern, PatternExpression, PatternMeasure,
    PatternVariable, Punctuation, Reason, RowPattern, Stream, Topology, Tuple,
};
use entresol_tables::{Catalog, Column, DataType, Value, arrow_schema, rows_to_batch};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const LATENESS_S: i64 = 15;
/// Variables: a power below 60; one above the row before; one above the first A of the match; any.
const VARIABLES: usize = 4;

/// Pattern, the greatest time of its matches, and where the next match begins.
#[derive(Debug, Clone)]
struct Case {
    pattern: Pattern,
    within_s: i64,
    skips_match: bool,
    has_partitions: bool,
    /// True if no condition reads the match.
    is_local: bool,
    /// True if each row of a match is sent.
    all_rows: bool,
}

/// Meter, number of the match, number of rows so far, first and last time so far, power of the last B and of the row
/// before the last A, variable of the row, and last time of the match.
type Match = (i32, i64, i64, i64, i64, Option<i64>, Option<i64>, String, i64);

struct Computed<F>(F);

impl<F> MatchExpression for Computed<F>
where
    F: FnMut(usize, &[NavigatedRows]) -> ArrayRef + Send + 'static,
{
    fn evaluate(&mut self, matches: usize, navigated: &[NavigatedRows]) -> Result<ArrayRef, Reason> {
        Ok((self.0)(matches, navigated))
    }
}

fn expression(
    navigations: Vec<Navigation>,
    compute: impl FnMut(usize, &[NavigatedRows]) -> ArrayRef + Send + 'static,
) -> PatternExpression {
    PatternExpression { navigations, expression: Box::new(Computed(compute)) }
}

fn powers(rows: &RecordBatch) -> Vec<Option<f64>> {
    rows.column(2).as_primitive::<Float64Type>().iter().collect()
}

fn previous(offset: usize) -> Navigation {
    Navigation::Previous { variable: None, offset }
}

fn variables(is_local: bool) -> Vec<PatternVariable> {
    let is_low = expression(vec![previous(0)], |_, rows| {
        Arc::new(
            powers(&rows[0].rows)
                .iter()
                .map(|power| power.map(|power| power < 60.0))
                .collect::<BooleanArray>(),
        )
    });
    let rises = expression(vec![previous(0), previous(1)], |_, rows| {
        let pairs = powers(&rows[0].rows).into_iter().zip(powers(&rows[1].rows));
        Arc::new(pairs.map(|(power, before)| Some(power? > before?)).collect::<BooleanArray>())
    });
    let first = Navigation::First { variable: Some(0), offset: 0 };
    let last = Navigation::Last { variable: None, offset: 0 };
    let above_first = expression(vec![last, first], |_, rows| {
        let pairs = powers(&rows[0].rows).into_iter().zip(powers(&rows[1].rows));
        let above = pairs.map(|(power, first)| Some(first.is_none_or(|first| power.unwrap() > first)));
        Arc::new(above.collect::<BooleanArray>())
    });
    vec![
        PatternVariable { of_row: Some(is_low), of_match: None },
        PatternVariable { of_row: Some(rises), of_match: None },
        PatternVariable { of_row: None, of_match: (!is_local).then_some(above_first) },
        PatternVariable::default(),
    ]
}

fn measures() -> Vec<(Column, PatternMeasure)> {
    let last = |variable| Navigation::Last { variable, offset: 0 };
    let first = Navigation::First { variable: None, offset: 0 };
    let column = |at: usize| move |_: usize, rows: &[NavigatedRows]| Arc::clone(rows[0].rows.column(at));
    let power = |_: usize, rows: &[NavigatedRows]| -> ArrayRef {
        Arc::new(powers(&rows[0].rows).into_iter().collect::<Float64Array>())
    };
    let count = |_: usize, rows: &[NavigatedRows]| -> ArrayRef {
        let ends = &rows[0].ends;
        assert_eq!(ends.last().copied().unwrap_or(0), rows[0].rows.num_rows());
        let counts =
            ends.iter().enumerate().map(|(at, end)| (end - if at == 0 { 0 } else { ends[at - 1] }) as i64);
        Arc::new(counts.collect::<Int64Array>())
    };
    vec![
        (Column::new("meter", DataType::Int), expression(vec![last(None)], column(0)).into()),
        (Column::new("began", DataType::Timestamp), expression(vec![first], column(1)).into()),
        (Column::new("ended", DataType::Timestamp), expression(vec![last(None)], column(1)).into()),
        (
            Column::new("rows", DataType::BigInt),
            expression(vec![Navigation::All { variable: None }], count).into(),
        ),
        (Column::new("rise", DataType::Double), expression(vec![last(Some(1))], power).into()),
        (
            Column::new("before", DataType::Double),
            expression(vec![Navigation::Previous { variable: Some(0), offset: 1 }], power).into(),
        ),
        (
            Column::new("variable", DataType::Varchar),
            PatternMeasure::Classifier(["a", "b", "c", "d"].map(str::to_owned).to_vec()),
        ),
        (Column::new("number", DataType::BigInt), PatternMeasure::MatchNumber),
        (
            Column::new("last", DataType::Timestamp),
            PatternMeasure::Expression {
                expression: expression(vec![last(None)], column(1)),
                is_final: true,
            },
        ),
    ]
}

fn find(stream: &Stream, case: &Case) {
    let matched = stream.match_pattern(RowPattern {
        pattern: case.pattern.clone(),
        variables: variables(case.is_local),
        measures: measures(),
        all_rows: case.all_rows,
        partition: if case.has_partitions { vec![0] } else { Vec::new() },
        time: 1,
        within: Duration::from_secs(case.within_s as u64),
        skips_match: case.skips_match,
        lateness: Duration::from_secs(LATENESS_S as u64),
        future_limit: Duration::MAX,
        state_table: "open".to_owned(),
        late: None,
    });
    matched.to_table("matches");
}

/// Row of a partition, of the matcher that tries all ways.
#[derive(Clone, Copy)]
struct Reading {
    meter: i32,
    at: i64,
    power: f64,
}

/// Tells whether a row may be of a variable.
fn accepts(rows: &[Reading], path: &[(usize, usize)], row: usize, variable: usize, is_local: bool) -> bool {
    match variable {
        0 => rows[row].power < 60.0,
        1 => row > 0 && rows[row].power > rows[row - 1].power,
        2 if !is_local => {
            let first = path.iter().find(|(_, variable)| *variable == 0);
            first.is_none_or(|(first, _)| rows[row].power > rows[*first].power)
        }
        _ => true,
    }
}

/// Rows of a match with their variables.
type Path = Vec<(usize, usize)>;
/// Tells whether a row may be of a variable behind a path.
type Accepts<'a> = dyn Fn(&[(usize, usize)], usize, usize) -> bool + 'a;
/// Goes on at a row behind a path; tells whether a match is complete.
type Then<'a> = dyn FnMut(usize, &mut Path) -> bool + 'a;

/// Tries all ways in the order of preference; `then` goes on behind the pattern. Returns the first complete path.
fn attempt(
    pattern: &Pattern,
    row: usize,
    path: &mut Path,
    accepts: &Accepts<'_>,
    then: &mut Then<'_>,
) -> bool {
    match pattern {
        Pattern::Variable(variable) => {
            if !accepts(path, row, *variable) {
                return false;
            }
            path.push((row, *variable));
            then(row + 1, path) || {
                path.pop();
                false
            }
        }
        Pattern::Sequence(parts) => match parts.as_slice() {
            [] => then(row, path),
            [first, rest @ ..] => {
                let rest = Pattern::Sequence(rest.to_vec());
                attempt(first, row, path, accepts, &mut |row, path| attempt(&rest, row, path, accepts, then))
            }
        },
        Pattern::Alternation(parts) => parts.iter().any(|part| attempt(part, row, path, accepts, then)),
        Pattern::Repetition { of, least, most, is_reluctant } => {
            let rest = Pattern::Repetition {
                of: of.clone(),
                least: least.saturating_sub(1),
                most: most.map(|most| most.saturating_sub(1)),
                is_reluctant: *is_reluctant,
            };
            let may_repeat = most.is_none_or(|most| most > 0);
            let again = |path: &mut Path, then: &mut Then<'_>| {
                may_repeat
                    && attempt(of, row, path, accepts, &mut |next, path| {
                        // A round that takes no row would go on for ever.
                        (next > row || *least > 0) && attempt(&rest, next, path, accepts, then)
                    })
            };
            if *least > 0 {
                return again(path, then);
            }
            let is_first = if *is_reluctant { then(row, path) } else { again(path, then) };
            is_first || if *is_reluctant { again(path, then) } else { then(row, path) }
        }
    }
}

/// Matches of all readings but the late ones, and the number of late ones.
fn recompute(readings: &[Tuple], case: &Case) -> (Vec<Match>, u64) {
    let mut partitions: BTreeMap<i32, Vec<Reading>> = BTreeMap::new();
    let (mut watermark, mut late) = (i64::MIN, 0);
    for tuple in readings {
        let (Value::Int(meter), Value::Timestamp(at), Value::Double(power)) =
            (&tuple[0], &tuple[1], &tuple[2])
        else {
            panic!("{tuple:?}")
        };
        if *at < watermark {
            late += 1;
            continue;
        }
        watermark = watermark.max(at - LATENESS_S * SECOND_US);
        let partition = if case.has_partitions { *meter } else { 0 };
        partitions.entry(partition).or_default().push(Reading { meter: *meter, at: *at, power: *power });
    }
    let mut found = Vec::new();
    for (_, mut rows) in partitions {
        rows.sort_by_key(|row| row.at);
        let (mut start, mut number) = (0, 0);
        while start < rows.len() {
            let end = rows.partition_point(|row| row.at - rows[start].at <= case.within_s * SECOND_US);
            let accepts = |path: &[(usize, usize)], row: usize, variable: usize| {
                row < end && accepts(&rows, path, row, variable, case.is_local)
            };
            let mut path = Vec::new();
            let is_found = attempt(&case.pattern, start, &mut path, &accepts, &mut |_, _| true);
            let behind = path.last().map_or(start, |(row, _)| *row) + 1;
            number += i64::from(is_found);
            let ends = if case.all_rows { 1..path.len() + 1 } else { path.len()..path.len() + 1 };
            for end in ends.filter(|_| is_found) {
                let so_far = &path[..end];
                let last_of = |wanted| {
                    so_far.iter().rev().find(|(_, variable)| *variable == wanted).map(|(row, _)| *row)
                };
                let eighths = |row: usize| (rows[row].power * 8.0) as i64;
                let (last, variable) = path[end - 1];
                found.push((
                    rows[last].meter,
                    number,
                    end as i64,
                    rows[start].at,
                    rows[last].at,
                    last_of(1).map(eighths),
                    last_of(0).and_then(|row| row.checked_sub(1)).map(eighths),
                    ["a", "b", "c", "d"][variable].to_owned(),
                    rows[path[path.len() - 1].0].at,
                ));
            }
            start = if is_found && case.skips_match { behind } else { start + 1 };
        }
    }
    found.sort_unstable();
    (found, late)
}

fn found(catalog: &Catalog) -> Vec<Match> {
    matches_of(&rows(catalog, "matches"))
}

/// Matches that rows of results are.
fn matches_of(rows: &[Tuple]) -> Vec<Match> {
    let eighths = |value: &Value| match value {
        Value::Double(power) => Some((power * 8.0) as i64),
        Value::Null => None,
        other => panic!("{other:?}"),
    };
    let mut found: Vec<Match> = rows
        .iter()
        .map(|row| match row.as_slice() {
            [
                Value::Int(meter),
                Value::Timestamp(began),
                Value::Timestamp(ended),
                Value::BigInt(count),
                rise,
                before,
                Value::Varchar(variable),
                Value::BigInt(number),
                Value::Timestamp(last),
                ..,
            ] => {
                let (rise, before, variable) = (eighths(rise), eighths(before), variable.to_string());
                (*meter, *number, *count, *began, *ended, rise, before, variable, *last)
            }
            other => panic!("{other:?}"),
        })
        .collect();
    found.sort_unstable();
    found
}

fn compare(found: &[Match], expected: &[Match], what: &str) {
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert_eq!(found, expected, "match {at}: {what}");
    }
    assert_eq!(found.len(), expected.len(), "{what}");
}

fn random_pattern(random: &mut Random, depth: usize) -> Pattern {
    let part = |random: &mut Random| random_pattern(random, depth - 1);
    match random.below(if depth == 0 { 1 } else { 6 }) {
        0 | 1 => Pattern::Variable(random.below(VARIABLES as u64) as usize),
        2 | 3 => Pattern::Sequence((0..2 + random.below(2)).map(|_| part(random)).collect()),
        4 => Pattern::Alternation((0..2 + random.below(2)).map(|_| part(random)).collect()),
        _ => {
            let least = random.below(3) as u32;
            let most = [None, Some(least.max(1)), Some(least + 2)][random.below(3) as usize];
            Pattern::Repetition {
                of: Box::new(part(random)),
                least,
                most,
                is_reluctant: random.below(3) == 0,
            }
        }
    }
}

fn random_case(random: &mut Random) -> Case {
    let pattern = loop {
        let pattern = random_pattern(random, 3);
        if !pattern.matches_empty() && !pattern.repeats_empty() {
            break pattern;
        }
    };
    Case {
        pattern,
        within_s: [0, 3, 10, 25][random.below(4) as usize],
        skips_match: random.below(2) == 0,
        has_partitions: random.below(3) > 0,
        is_local: random.below(2) == 0,
        all_rows: random.below(2) == 0,
    }
}

/// Times of rows are not equal: which of them comes first would be open to the matcher's order of arrival only.
#[test]
fn matches_equal_those_of_all_ways() {
    let seed = seed();
    let mut random = Random(seed);
    let mut matches = 0;
    for round in 0..160 {
        let case = random_case(&mut random);
        let boundary =
            [Boundary::EachTuple, Boundary::Every(5), Boundary::Every(10_000)][random.below(3) as usize];
        let disorder = [0, 8, 30][random.below(3) as usize];
        let readings: Vec<Tuple> = (0..250).map(|n| random_reading(seed + round, n, 3, disorder)).collect();
        let (expected, late) = recompute(&readings, &case);
        let catalog = volatile();
        let topology = Topology::builder("t", &catalog).boundary(boundary);
        let source = GeneratorSource::new(reading_columns(), move |n| readings.get(n as usize).cloned());
        find(&topology.source("readings", source), &case);
        let report = topology.build().unwrap().run().unwrap();
        let what = format!("round {round}, {boundary:?}, disorder {disorder}, {case:?}");
        compare(&found(&catalog), &expected, &what);
        assert_eq!(report.late, late, "{what}");
        assert!(
            rows(&catalog, "open").len() <= 3,
            "{what}: no more than the rows that conditions look back to"
        );
        matches += expected.len();
    }
    assert!(matches > 2_000, "{matches}");
}

/// Guard that notes the greatest memory, and refuses to go on behind so many checks.
struct NotedLimits {
    bytes_max: Arc<AtomicUsize>,
    checks: usize,
}

impl MatchGuard for NotedLimits {
    fn check(&mut self) -> Result<(), Reason> {
        self.checks = self.checks.checked_sub(1).ok_or_else(|| Reason::from("stopped".to_owned()))?;
        Ok(())
    }

    fn resize(&mut self, bytes: usize) -> Result<(), Reason> {
        self.bytes_max.fetch_max(bytes, Ordering::Relaxed);
        Ok(())
    }
}

/// Matcher of partitions, and the greatest memory that it will have taken.
fn partition_matcher(case: &Case, checks: usize) -> (PartitionMatcher, Arc<AtomicUsize>) {
    let (columns, measures): (Vec<Column>, Vec<PatternMeasure>) = measures().into_iter().unzip();
    let pattern = PartitionPattern {
        pattern: case.pattern.clone(),
        variables: variables(case.is_local),
        measures,
        output: arrow_schema(&columns, "UTC"),
        all_rows: case.all_rows,
        within: Some(Duration::from_secs(case.within_s as u64)),
        skips_match: case.skips_match,
    };
    let bytes_max = Arc::default();
    let guard = NotedLimits { bytes_max: Arc::clone(&bytes_max), checks };
    let columns = arrow_schema(&reading_columns(), "UTC");
    (pattern.matcher("match", &columns, Box::new(guard)).unwrap(), bytes_max)
}

/// Results for readings in the order of their times, which are given partition by partition in batches of some rows.
fn matched(matcher: &mut PartitionMatcher, readings: &[Tuple], batch_rows: usize, case: &Case) -> Vec<Match> {
    let mut partitions: BTreeMap<i32, Vec<&Tuple>> = BTreeMap::new();
    for tuple in readings {
        let Value::Int(meter) = tuple[0] else { panic!("{tuple:?}") };
        partitions.entry(if case.has_partitions { meter } else { 0 }).or_default().push(tuple);
    }
    let (columns, mut found) = (reading_columns(), Vec::new());
    let schema = arrow_schema(&columns, "UTC");
    let mut take = |sent: RecordBatch| found.extend(Batch::from(sent).tuples().unwrap());
    for rows in partitions.values() {
        for part in rows.chunks(batch_rows) {
            let batch = rows_to_batch(&schema, &columns, part).unwrap();
            let times = batch.column(1).as_primitive::<TimestampMicrosecondType>().iter();
            matcher.add(&batch, Some(&times.collect::<Vec<_>>())).unwrap();
            while let Some(sent) = matcher.take_matches().unwrap() {
                take(sent);
            }
        }
        while let Some(sent) = matcher.end_partition().unwrap() {
            take(sent);
        }
    }
    while let Some(sent) = matcher.rest().unwrap() {
        take(sent);
    }
    matches_of(&found)
}

/// Partitions one after another, as a query gives them, in batches of any length.
#[test]
fn matches_in_partitions_equal_those_of_all_ways() {
    let seed = seed();
    let mut random = Random(seed ^ 3);
    let mut matches = 0;
    for round in 0..160 {
        let case = random_case(&mut random);
        let mut readings: Vec<Tuple> = (0..250).map(|n| random_reading(seed + round, n, 3, 0)).collect();
        readings.sort_by_key(|tuple| match tuple[1] {
            Value::Timestamp(at) => at,
            _ => panic!("{tuple:?}"),
        });
        let (expected, _) = recompute(&readings, &case);
        let batch_rows = [1, 7, 1000][random.below(3) as usize];
        let (mut matcher, _) = partition_matcher(&case, usize::MAX);
        let found = matched(&mut matcher, &readings, batch_rows, &case);
        compare(&found, &expected, &format!("round {round}, batches of {batch_rows}, {case:?}"));
        matches += expected.len();
    }
    assert!(matches > 2_000, "{matches}");
}

/// Rows that no match needs leave memory, and a long search asks whether it may go on.
#[test]
fn memory_follows_the_open_match_and_a_search_can_be_stopped() {
    let repeated = |least, most| Pattern::Repetition {
        of: Box::new(Pattern::Variable(3)),
        least,
        most,
        is_reluctant: false,
    };
    let case = Case {
        pattern: repeated(200, Some(200)),
        within_s: 1000,
        skips_match: true,
        has_partitions: false,
        is_local: true,
        all_rows: false,
    };
    let readings: Vec<Tuple> = (0..20_000).map(|n| reading(1, n / 100, 99.0)).collect();
    let (mut matcher, bytes_max) = partition_matcher(&case, usize::MAX);
    assert_eq!(matched(&mut matcher, &readings, 100, &case).len(), 100);
    let few = bytes_max.load(Ordering::Relaxed);
    // No row is below 60: the pattern fails at the end of each match that could have begun.
    let pattern = Pattern::Sequence(vec![repeated(1, None), Pattern::Variable(0)]);
    let case = Case { pattern, ..case };
    let (mut matcher, bytes_max) = partition_matcher(&case, 400);
    let (columns, schema) = (reading_columns(), arrow_schema(&reading_columns(), "UTC"));
    matcher.add(&rows_to_batch(&schema, &columns, &readings).unwrap(), None).unwrap();
    let many = bytes_max.load(Ordering::Relaxed);
    assert!(many > 10 * few, "{few} bytes for 100 rows at a time, {many} for all");
    assert!(matcher.take_matches().unwrap().is_none(), "the first match may go on");
    let error = matcher.end_partition().unwrap_err().to_string();
    assert!(error.contains("stopped"), "{error}");
}

/// A match of many rows is freed without a stack frame for each.
#[test]
fn a_match_may_have_many_rows() {
    let any = Pattern::Variable(3);
    let pattern = Pattern::Repetition { of: Box::new(any), least: 1, most: None, is_reluctant: false };
    let case = Case {
        pattern,
        within_s: 1000,
        skips_match: true,
        has_partitions: false,
        is_local: true,
        all_rows: false,
    };
    let readings: Vec<Tuple> = (0..300_000).map(|n| reading(1, n / 1000, 99.0)).collect();
    let (mut matcher, _) = partition_matcher(&case, usize::MAX);
    let found = matched(&mut matcher, &readings, 4096, &case);
    assert_eq!(found.iter().map(|found| found.2).collect::<Vec<_>>(), [300_000]);
}

/// Aborted transactions leave no trace; those that are repeated count once.
#[test]
fn aborts_and_restarts_change_nothing() {
    let seed = seed();
    let mut random = Random(seed ^ 77);
    for round in 0..24 {
        let case = Case { within_s: 20, ..random_case(&mut random) };
        let readings: Vec<Tuple> = (0..300).map(|n| random_reading(seed + round, n, 3, 12)).collect();
        let directory = tempfile::tempdir().unwrap();
        let (mut committed, mut late): (Vec<Tuple>, u64) = (Vec::new(), 0);
        for (run, part) in readings.chunks(100).enumerate() {
            let catalog = journal(directory.path());
            let (sender, receiver) = crossbeam_channel::bounded(1024);
            for (n, chunk) in part.chunks(10).enumerate() {
                let is_committed = (n + run) % 3 > 0;
                sender.send(Element::Punctuation(Punctuation::Begin)).unwrap();
                sender.send(Element::Tuples(chunk.to_vec())).unwrap();
                let end = if is_committed { Punctuation::Commit } else { Punctuation::Abort };
                sender.send(Element::Punctuation(end)).unwrap();
                if is_committed {
                    committed.extend_from_slice(chunk);
                }
            }
            let topology = Topology::builder("t", &catalog).boundary(Boundary::Punctuated);
            find(&topology.source("readings", ChannelSource::new(reading_columns(), receiver)), &case);
            let running = topology.build().unwrap().start().unwrap();
            let wanted = (0..10).filter(|n| (n + run) % 3 > 0).count() as u64 * 10;
            if run == 2 {
                drop(sender);
            } else {
                while running.progress().snapshot().tuples < wanted {
                    std::thread::yield_now();
                }
                running.stop();
            }
            late += running.join().unwrap().late;
        }
        let (expected, expected_late) = recompute(&committed, &case);
        let catalog = journal(directory.path());
        compare(&found(&catalog), &expected, &format!("round {round}, {case:?}"));
        assert_eq!(late, expected_late, "round {round}, {case:?}");
    }
}

#[test]
fn a_pattern_with_too_many_ways_is_an_error() {
    let catalog = volatile();
    let any = |variable| Pattern::Variable(variable);
    let repeated =
        |of: Pattern| Pattern::Repetition { of: Box::new(of), least: 1, most: None, is_reluctant: false };
    // Each row doubles the ways, none of which equals another: conditions read the match.
    let both = repeated(Pattern::Alternation(vec![any(2), any(3)]));
    let pattern = Pattern::Sequence(vec![both, any(0)]);
    let case = Case {
        pattern,
        within_s: 1000,
        skips_match: true,
        has_partitions: false,
        is_local: false,
        all_rows: false,
    };
    let topology = Topology::builder("t", &catalog);
    let source = GeneratorSource::new(reading_columns(), |n| (n < 100).then(|| reading(1, n as i64, 99.0)));
    find(&topology.source("readings", source), &case);
    let error = topology.build().unwrap().run().unwrap_err().to_string();
    assert!(
        error.contains("open matches of a partition in match open has reached its limit of 4096"),
        "{error}"
    );
}

#[test]
fn wrong_patterns_are_refused() {
    let catalog = volatile();
    let refused = |change: &dyn Fn(&mut RowPattern)| {
        let topology = Topology::builder("t", &catalog);
        let mut pattern = RowPattern {
            pattern: Pattern::Variable(0),
            variables: variables(true),
            measures: measures(),
            all_rows: false,
            partition: vec![0],
            time: 1,
            within: Duration::from_secs(1),
            skips_match: true,
            lateness: Duration::ZERO,
            future_limit: Duration::MAX,
            state_table: "open".to_owned(),
            late: None,
        };
        change(&mut pattern);
        let source = GeneratorSource::new(reading_columns(), |_| None);
        topology.source("readings", source).match_pattern(pattern).to_table("matches");
        topology.build().err().unwrap().to_string()
    };
    for (change, expected) in [
        (&(|p: &mut RowPattern| p.time = 2) as &dyn Fn(&mut RowPattern), "column power is not a time"),
        (&|p| p.time = 9, "there is no column 9"),
        (&|p| p.pattern = Pattern::Variable(7), "there is no variable 7"),
        (&|p| p.pattern = Pattern::Sequence(vec![]), "the pattern matches no rows at all"),
        (
            &|p| {
                p.variables[3].of_row =
                    Some(expression(vec![Navigation::All { variable: None }], |_, _| panic!()))
            },
            "a condition of a row reads other rows of the match",
        ),
        (&|p| p.variables.resize_with(65, PatternVariable::default), "a pattern of 65 variables, at most 64"),
    ] {
        let error = refused(change);
        assert!(error.contains(expected), "{error}");
    }
}

/// Types of the columns that the closures of this test read.
#[test]
fn columns_are_those_of_the_stream() {
    let seen = Arc::new(std::sync::Mutex::new(0));
    let noted = Arc::clone(&seen);
    let catalog = volatile();
    let topology = Topology::builder("t", &catalog);
    let source = GeneratorSource::new(reading_columns(), |n| (n < 3).then(|| reading(1, n as i64, 1.0)));
    let last = Navigation::Last { variable: None, offset: 0 };
    let measure = expression(vec![last], move |matches, rows| {
        let batch = &rows[0].rows;
        assert!(batch.column(0).as_primitive_opt::<Int32Type>().is_some());
        assert!(batch.column(1).as_primitive_opt::<TimestampMicrosecondType>().is_some());
        *noted.lock().unwrap() += matches;
        Arc::clone(batch.column(2))
    });
    topology
        .source("readings", source)
        .match_pattern(RowPattern {
            pattern: Pattern::Variable(0),
            variables: vec![PatternVariable::default()],
            measures: vec![(Column::new("power", DataType::Double), measure.into())],
            all_rows: false,
            partition: Vec::new(),
            time: 1,
            within: Duration::from_secs(1),
            skips_match: true,
            lateness: Duration::ZERO,
            future_limit: Duration::MAX,
            state_table: "open".to_owned(),
            late: None,
        })
        .to_table("matches");
    topology.build().unwrap().run().unwrap();
    assert_eq!((*seen.lock().unwrap(), rows(&catalog, "matches").len()), (3, 3));
}
