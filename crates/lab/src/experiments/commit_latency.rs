//! Latency of a topology's commits: from the commit punctuation behind 1,000 tuples until their effects are visible; rows
//! inserted, rows replaced by key, and groups of windows. Domain `journal`, durability `none`; as fast as tuples can be
//! taken, which fills the journal, and at a rate.

use crate::asked::AskedFigure;
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol::arrow::array::AsArray;
use entresol::arrow::datatypes::{Float64Type, Int64Type};
use entresol::{Database, Durability, Options, Session};
use serde_json::json;
use std::thread;
use std::time::{Duration, Instant};

/// AskedFigure for: microseconds within which 99 of 100 transactions are visible.
const P99_ASKED_US: f64 = 1000.0;
/// Longest wait for a topology to end.
const WAIT_MAX: Duration = Duration::from_secs(600);

/// Rate of the tuples that do not come as fast as they can be taken, a second.
const TUPLES_PER_SECOND: u64 = 500_000;

struct Case {
    name: &'static str,
    step: &'static str,
}

const CASES: [Case; 3] = [
    Case { name: "insert", step: "INSERT INTO stored SELECT id, kw FROM reading" },
    Case {
        name: "upsert",
        step: "INSERT INTO latest SELECT meter, at, kw FROM reading
                   ON CONFLICT (meter) DO UPDATE SET at = EXCLUDED.at, kw = EXCLUDED.kw",
    },
    Case {
        name: "windows",
        step: "INSERT INTO hourly SELECT meter, window_start, count(*), sum(kw)
                   FROM TUMBLE(reading, at, INTERVAL '1 hour') GROUP BY meter, window_start",
    },
];

/// Runs the experiment.
pub(super) fn run(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let transactions: u64 = if options.quick { 20 } else { 2000 };
    for case in &CASES {
        for rate in [None, Some(TUPLES_PER_SECOND)] {
            let (commits, p50, p99) = measured(case, rate, transactions, options)?;
            report.row(json!({
                "case": case.name, "tuples_per_second": rate, "commits": commits, "p50_us": p50, "p99_us": p99
            }));
            let name =
                rate.map_or_else(|| case.name.to_owned(), |rate| format!("{}, {rate} tuples/s", case.name));
            report.check(&format!("{name}: each transaction is a commit"), commits >= transactions);
            let figure = format!("p99 of a commit of 1,000 tuples, {name}");
            report.asked(AskedFigure::at_most(figure, p99, P99_ASKED_US).unit("us"));
        }
    }
    Ok(())
}

/// Number of commits of a topology and their latencies.
fn measured(
    case: &Case,
    rate: Option<u64>,
    transactions: u64,
    options: &RunOptions,
) -> Result<(u64, f64, f64), Error> {
    let dir = options.database_dir()?;
    let database = Database::open(dir.path().join("db"), Options::default().durability(Durability::None))?;
    let mut session = database.session()?;
    let rate = rate.map(|rate| format!(", rows_per_second = {rate}")).unwrap_or_default();
    session.execute(&format!(
        "CREATE SOURCE reading (at TIMESTAMP NOT NULL, id BIGINT NOT NULL, meter INT NOT NULL, kw DOUBLE, WATERMARK FOR at AS at)
             WITH (connector = 'generator', rows = {}, step = '1 second', meter.cardinality = 5000, id.cardinality = 1000000000{rate});
         CREATE TABLE stored (id BIGINT, kw DOUBLE);
         CREATE TABLE latest (meter INT PRIMARY KEY, at TIMESTAMP, kw DOUBLE);
         CREATE TABLE hourly (meter INT, hour TIMESTAMP, readings BIGINT, kw DOUBLE, PRIMARY KEY (meter, hour));
         CREATE TOPOLOGY measured COMMIT EVERY 1000 ROWS WITH (durability = 'none') AS ({})",
        transactions * 1000,
        case.step
    ))?;
    let latencies = ended(&mut session)?;
    drop(session);
    database.close()?;
    Ok(latencies)
}

/// Number of commits and their latencies, once the topology has ended.
fn ended(session: &mut Session) -> Result<(u64, f64, f64), Error> {
    let begin = Instant::now();
    while begin.elapsed() < WAIT_MAX {
        let batches = session
            .query("SELECT state, commits, commit_p50_us, commit_p99_us, error FROM entresol.topologies")?;
        let Some(batch) = batches.iter().find(|batch| batch.num_rows() > 0) else { break };
        match batch.column(0).as_string::<i32>().value(0) {
            "ended" => {
                let commits = batch.column(1).as_primitive::<Int64Type>().value(0);
                let latency = |column: usize| batch.column(column).as_primitive::<Float64Type>().value(0);
                return Ok((commits.unsigned_abs(), latency(2), latency(3)));
            }
            "failed" => return Err(Error::Invalid(batch.column(4).as_string::<i32>().value(0).to_owned())),
            _ => thread::sleep(Duration::from_millis(10)),
        }
    }
    Err(Error::Invalid("the topology did not end".to_owned()))
}
