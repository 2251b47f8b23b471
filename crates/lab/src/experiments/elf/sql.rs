//! Selections of a table like TPC-H's `lineitem`, by columns, with an Elf index and without.
//!
//! The dimensions are those of the sixth query, then some others, in the order in which conditions are common; with
//! `auto` they are in the order of their number of values. Each selection is measured once its pages, and what the
//! scan has read of the Elf, are in the cache.

use crate::asked::AskedFigure;
use crate::measure::median;
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol::arrow::util::display::array_value_to_string;
use entresol::{Database, Durability, Options, Session};
use serde_json::json;
use std::time::Instant;

const TABLE: &str = "CREATE TABLE lineitem (l_orderkey BIGINT, l_partkey INT, l_suppkey INT, l_linenumber INT, \
     l_quantity INT, l_extendedprice DECIMAL(15,2), l_discount DECIMAL(15,2), l_tax DECIMAL(15,2), \
     l_returnflag CHAR(1), l_linestatus CHAR(1), l_shipdate DATE, l_shipmode VARCHAR(10)) WITH (layout = 'columns')";

const COLUMNS: &str = "l_shipdate, l_discount, l_quantity, l_shipmode, l_suppkey";

/// Selection, its name, and what is asked of it with an index: times as fast as without.
struct Case {
    name: &'static str,
    condition: &'static str,
    asked: Option<f64>,
}

const CASES: [Case; 7] = [
    Case {
        name: "a day, a discount, a quantity",
        condition: "l_shipdate = '1994-03-05' AND l_discount = 0.05 AND l_quantity = 24",
        asked: Some(3.0),
    },
    Case {
        name: "a week, discounts, quantities",
        condition: "l_shipdate BETWEEN '1994-03-05' AND '1994-03-11' AND l_discount IN (0.05, 0.06) AND l_quantity < 10",
        asked: Some(3.0),
    },
    Case {
        name: "TPC-H's query 6",
        condition: "l_shipdate >= '1994-01-01' AND l_shipdate < '1995-01-01' AND l_discount BETWEEN 0.05 AND 0.07 \
             AND l_quantity < 24",
        asked: Some(0.9),
    },
    Case {
        name: "all dimensions",
        condition: "l_shipdate = '1994-03-05' AND l_discount = 0.05 AND l_quantity < 25 AND l_shipmode = 'RAIL' \
             AND l_suppkey < 5000",
        asked: Some(3.0),
    },
    Case {
        name: "not the first dimension",
        condition: "l_discount = 0.05 AND l_quantity = 24 AND l_shipmode = 'AIR'",
        asked: Some(0.9),
    },
    Case { name: "the last dimension", condition: "l_suppkey = 77", asked: Some(0.9) },
    Case { name: "a day", condition: "l_shipdate = '1994-03-05'", asked: Some(0.9) },
];

/// Runs the experiment.
pub(crate) fn run(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let rows: u64 = if options.quick { 30_000 } else { 2_000_000 };
    let dir = options.database_dir()?;
    let database = Database::open(dir.path().join("db"), Options::default().durability(Durability::None))?;
    let mut session = database.session()?;
    load(&mut session, rows)?;
    let without = measure_all(&mut session, options)?;
    let mut written = Vec::new();
    for order in ["written", "auto"] {
        let begin = Instant::now();
        session.execute(&format!(
            "CREATE INDEX by_several ON lineitem USING elf ({COLUMNS}) WITH (dimension_order = '{order}')"
        ))?;
        let seconds = begin.elapsed().as_secs_f64();
        report.row(json!({ "order": order, "create_index_s": seconds,
            "million_rows_per_s": rows as f64 / seconds / 1e6 }));
        let with = measure_all(&mut session, options)?;
        for ((case, (result, ms)), (result_without, ms_without)) in CASES.iter().zip(&with).zip(&without) {
            let ratio = ms_without / ms;
            report.row(json!({ "case": case.name, "order": order, "ms": ms, "without_ms": ms_without,
                "times_as_fast": ratio, "rows": result }));
            report.check(
                &format!("{}, {order}: the rows are those without", case.name),
                result == result_without,
            );
        }
        if order == "written" {
            written = with;
        }
        session.execute("DROP INDEX by_several")?;
    }
    for ((case, (_, ms)), (_, ms_without)) in CASES.iter().zip(&written).zip(&without) {
        if let Some(asked) = case.asked {
            report.asked(AskedFigure::at_least(
                format!("{}, beside no index", case.name),
                ms_without / ms,
                asked,
            ));
        }
    }
    drop(session);
    Ok(database.close()?)
}

fn load(session: &mut Session, rows: u64) -> Result<(), Error> {
    session.execute(TABLE)?;
    // Lines of orders come in the order of their dates, about.
    session.execute(&format!(
        "INSERT INTO lineitem SELECT i / 4, i * 7919 % 200000, i * 31337 % 10000, i % 4, 1 + i * 611953 % 50, \
         i * 104729 % 9500000 / 100.0, i * 15485863 % 11 / 100.0, i * 32452843 % 9 / 100.0, \
         CASE i % 3 WHEN 0 THEN 'R' WHEN 1 THEN 'A' ELSE 'N' END, CASE i % 2 WHEN 0 THEN 'O' ELSE 'F' END, \
         DATE '1992-01-02' + CAST(i * 49979687 % 2526 AS INT), \
         CASE i * 67867967 % 7 WHEN 0 THEN 'REG AIR' WHEN 1 THEN 'AIR' WHEN 2 THEN 'RAIL' WHEN 3 THEN 'SHIP' \
         WHEN 4 THEN 'TRUCK' WHEN 5 THEN 'MAIL' ELSE 'FOB' END FROM generate_series(1, {rows}) g(i)"
    ))?;
    session.execute("VACUUM lineitem")?;
    Ok(())
}

/// Result and milliseconds of each case.
fn measure_all(session: &mut Session, options: &RunOptions) -> Result<Vec<(String, f64)>, Error> {
    CASES.iter().map(|case| measure(session, case, options)).collect()
}

fn measure(session: &mut Session, case: &Case, options: &RunOptions) -> Result<(String, f64), Error> {
    let sql = format!(
        "SELECT count(*) || ' ' || coalesce(sum(l_extendedprice * l_discount), 0) FROM lineitem WHERE {}",
        case.condition
    );
    let (warm, times) = if options.quick { (1, 1) } else { (60, 15) };
    let (mut milliseconds, mut result) = (Vec::new(), String::new());
    for round in 0..warm + times {
        let begin = Instant::now();
        let batches = session.query(&sql)?;
        if round >= warm {
            milliseconds.push(begin.elapsed().as_secs_f64() * 1e3);
        }
        let shown = batches.first().map(|batch| array_value_to_string(batch.column(0), 0));
        result = shown
            .and_then(|shown| shown.ok())
            .ok_or_else(|| Error::Invalid(format!("no result of {}", case.name)))?;
    }
    Ok((result, median(&milliseconds)))
}
