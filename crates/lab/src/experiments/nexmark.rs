//! NEXMark in SQL: the topologies of `examples/nexmark.sql`, each alone over the same events, on one thread.
//!
//! Domain `journal`, durability `group:10ms`. The rate is of the rows that a topology's sources read, which are made
//! meanwhile, over the time from CREATE TOPOLOGY to its end. Then all run at once over fewer events, and each target
//! is compared with the query of `examples/nexmark_check.sql`, a batch query over tables of all events.

use super::values::one;
use crate::asked::AskedFigure;
use crate::measure::median;
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol::{Database, Options, Session};
use serde_json::json;
use std::time::{Duration, Instant};

const SCRIPT: &str = include_str!("../../../../examples/nexmark.sql");
const CHECK: &str = include_str!("../../../../examples/nexmark_check.sql");
const EVENTS_OF_SCRIPT: &str = "events = 1000000";
/// Wait between two looks at a topology, and until it counts as stuck.
const LOOK: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_secs(600);

/// Million rows a second that are asked of some topologies.
const ASKED: [(&str, f64); 6] =
    [("q1", 5.0), ("q2", 5.0), ("q4", 0.5), ("q5", 0.5), ("q7", 0.5), ("q8", 0.5)];

/// Question of the benchmark, with the statements between its heading and the next.
struct Question<'s> {
    name: &'s str,
    sql: &'s str,
}

/// Statements before the first question, and the questions.
fn questions(script: &str) -> (&str, Vec<Question<'_>>) {
    let headings: Vec<usize> = script.match_indices("\n-- q").map(|(at, _)| at + 1).collect();
    let ends = headings.iter().skip(1).copied().chain([script.len()]);
    let questions = headings.iter().zip(ends).map(|(&begin, end)| {
        let sql = &script[begin..end];
        let name = sql.trim_start_matches("-- ").split([':', '\n']).next().unwrap_or_default();
        Question { name, sql }
    });
    let sources = headings.first().map_or(script, |first| &script[..*first]);
    (sources, questions.collect())
}

/// Topologies of a script, each with the statements before it: views of several questions may hang on one.
fn topologies<'s>(script: &'s str, questions: &[Question<'s>]) -> Vec<Question<'s>> {
    let mut begin = questions.first().and_then(|first| script.find(first.sql)).unwrap_or(script.len());
    let mut found = Vec::new();
    let mut end = begin;
    for question in questions {
        end += question.sql.len();
        let Some((_, topology)) = question.sql.split_once("CREATE TOPOLOGY ") else { continue };
        let name = topology.split_whitespace().next().unwrap_or_default();
        found.push(Question { name, sql: &script[begin..end] });
        begin = end;
    }
    found
}

/// Runs the experiment.
pub(super) fn run(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let (events, checked, runs) = if options.quick { (20_000, 20_000, 1) } else { (1_000_000, 100_000, 3) };
    let script = SCRIPT.replace(EVENTS_OF_SCRIPT, &format!("events = {events}"));
    let (sources, questions) = questions(&script);
    for question in &topologies(&script, &questions) {
        let runs = (0..runs).map(|_| measure(sources, question, options));
        let runs = runs.collect::<Result<Vec<_>, _>>()?;
        let rates: Vec<f64> = runs.iter().map(|(rows, seconds)| *rows as f64 / seconds / 1e6).collect();
        let (name, rate, rows) = (question.name, median(&rates), runs[0].0);
        report.row(json!({ "topology": name, "rows": rows, "million_rows_per_s": rate }));
        if let Some((_, asked)) = ASKED.iter().find(|(of, _)| *of == name) {
            report.asked(AskedFigure::at_least(name, rate, *asked).unit("M rows/s"));
        }
    }
    let names: Vec<&str> = questions.iter().map(|question| question.name).collect();
    check(checked, &names, options, report)
}

/// Rows that the sources of a topology read, and the seconds it ran.
fn measure(sources: &str, question: &Question<'_>, options: &RunOptions) -> Result<(u64, f64), Error> {
    let dir = options.database_dir()?;
    let database = Database::open(dir.path().join("db"), Options::default())?;
    let mut session = database.session()?;
    session.execute(sources)?;
    let at = question.sql.find("CREATE TOPOLOGY").unwrap_or_default();
    let (tables, topology) = question.sql.split_at(at);
    session.execute(tables)?;
    let topology = with_durability(topology);
    let begin = Instant::now();
    session.execute(&topology)?;
    wait_for_ends(&mut session)?;
    let seconds = begin.elapsed().as_secs_f64();
    let rows = one(&mut session, "SELECT sum(tuples) FROM streams_positions")?;
    drop(session);
    database.close()?;
    let rows = rows.parse().map_err(|_| Error::Invalid(format!("{}: read {rows} rows", question.name)))?;
    Ok((rows, seconds))
}

/// Statement of a topology with the durability that is measured, beside the options that it has.
fn with_durability(topology: &str) -> String {
    let (head, steps) = topology.split_once(" AS (\n").unwrap_or((topology, ""));
    let head = match head.strip_suffix(')') {
        Some(options) => format!("{options}, durability = 'group:10ms')"),
        None => format!("{head} WITH (durability = 'group:10ms')"),
    };
    format!("{head} AS (\n{steps}")
}

/// Runs all topologies over some events, and compares their targets with the queries.
fn check(events: u64, names: &[&str], options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let dir = options.database_dir()?;
    let database = Database::open(dir.path().join("db"), Options::default())?;
    let mut session = database.session()?;
    for script in [SCRIPT, CHECK] {
        session.execute(&script.replace(EVENTS_OF_SCRIPT, &format!("events = {events}")))?;
    }
    wait_for_ends(&mut session)?;
    let (_, expected) = questions(CHECK);
    for question in &expected {
        let view = question.sql.split_whitespace().find(|word| word.ends_with("_expected"));
        let view = view.ok_or_else(|| Error::Invalid(format!("{} has no view", question.name)))?;
        let target = view.trim_end_matches("_expected");
        let differ = format!(
            "SELECT (SELECT count(*) FROM (SELECT * FROM {target} EXCEPT ALL SELECT * FROM {view}) more)
                + (SELECT count(*) FROM (SELECT * FROM {view} EXCEPT ALL SELECT * FROM {target}) less)"
        );
        let differ = one(&mut session, &differ)?;
        let is_asked = names.contains(&question.name);
        report.check(
            &format!("{} of {events} events equals its query", question.name),
            differ == "0" && is_asked,
        );
    }
    report.check("each question has a query", names.len() == expected.len());
    drop(session);
    database.close()?;
    Ok(())
}

fn wait_for_ends(session: &mut Session) -> Result<(), Error> {
    let begin = Instant::now();
    loop {
        let left = one(session, "SELECT count(*) FROM entresol.topologies WHERE state = 'running'")?;
        if left == "0" {
            break;
        }
        if begin.elapsed() > PATIENCE {
            return Err(Error::Invalid(format!("{left} topologies have not ended after {PATIENCE:?}")));
        }
        std::thread::sleep(LOOK);
    }
    let failed =
        "SELECT coalesce(min(name || ': ' || error), '') FROM entresol.topologies WHERE state = 'failed'";
    match one(session, failed)? {
        failed if failed.is_empty() => Ok(()),
        failed => Err(Error::Invalid(failed)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_question_has_its_statements() {
        let (sources, asked) = questions(SCRIPT);
        assert_eq!(sources.matches("CREATE SOURCE").count(), 3);
        assert_eq!(asked.len(), 22);
        let topologies = topologies(SCRIPT, &asked);
        assert_eq!(topologies.len(), 20, "two questions are views of what another writes");
        assert_eq!(topologies.iter().map(|of| of.sql.len()).sum::<usize>() + sources.len(), SCRIPT.len());
        for topology in &topologies {
            assert_eq!(topology.sql.matches("CREATE TOPOLOGY").count(), 1, "{}", topology.name);
            assert!(topology.sql.contains(&format!("-- {}: ", topology.name)), "{}", topology.name);
        }
        let names = |of: &[Question<'_>]| -> Vec<String> { of.iter().map(|of| of.name.to_owned()).collect() };
        assert_eq!(names(&asked), names(&questions(CHECK).1));
    }
}
