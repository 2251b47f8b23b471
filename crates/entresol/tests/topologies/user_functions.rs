//! User-defined functions of the application, in queries, views and topologies.

use super::{append, rows, wait_for};
use entresol::arrow::array::{ArrayRef, AsArray, Int64Array};
use entresol::arrow::datatypes::{DataType, Int64Type};
use entresol::query::datafusion::common::{Result, ScalarValue};
use entresol::query::datafusion::logical_expr::{
    Accumulator, AggregateUDF, ColumnarValue, ScalarUDF, Volatility, create_udaf, create_udf,
};
use entresol::{Database, ErrorKind, Options};
use std::sync::Arc;

/// Greatest distance of two values.
#[derive(Debug, Default)]
struct Spread(Option<(i64, i64)>);

impl Spread {
    fn include(&mut self, least: i64, greatest: i64) {
        let (before, after) = self.0.unwrap_or((least, greatest));
        self.0 = Some((before.min(least), after.max(greatest)));
    }
}

impl Accumulator for Spread {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = values[0].as_primitive::<Int64Type>().iter().flatten();
        values.for_each(|value| self.include(value, value));
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Int64(self.0.map(|(least, greatest)| greatest - least)))
    }

    fn size(&self) -> usize {
        size_of::<Spread>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let of = |value: fn((i64, i64)) -> i64| ScalarValue::Int64(self.0.map(value));
        Ok(vec![of(|both| both.0), of(|both| both.1)])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [least, greatest] = [0, 1].map(|at| states[at].as_primitive::<Int64Type>().iter());
        least.zip(greatest).filter_map(|(least, greatest)| least.zip(greatest)).for_each(
            |(least, greatest)| {
                self.include(least, greatest);
            },
        );
        Ok(())
    }
}

fn spread(name: &str) -> AggregateUDF {
    create_udaf(
        name,
        vec![DataType::Int64],
        Arc::new(DataType::Int64),
        Volatility::Immutable,
        Arc::new(|_| Ok(Box::<Spread>::default())),
        Arc::new(vec![DataType::Int64, DataType::Int64]),
    )
}

fn twice(name: &str) -> ScalarUDF {
    let call = |arguments: &[ColumnarValue]| {
        let values = ColumnarValue::values_to_arrays(arguments)?;
        let doubled: Int64Array = values[0].as_primitive::<Int64Type>().unary(|value| 2 * value);
        Ok(ColumnarValue::Array(Arc::new(doubled)))
    };
    create_udf(name, vec![DataType::Int64], DataType::Int64, Volatility::Immutable, Arc::new(call))
}

fn options() -> Options {
    Options::default().aggregate_function(spread("spread")).scalar_function(twice("twice"))
}

#[test]
fn they_run_in_queries_views_and_topologies() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("readings.csv");
    append(&path, "meter,watts\n1,10\n1,70\n2,5\n");
    let database = Database::open(directory.path().join("db"), options()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(&format!(
            "CREATE SOURCE reading (meter INT NOT NULL, watts BIGINT) WITH (connector = 'file', path = '{}', tail = true);
             CREATE TABLE kept (meter INT, watts BIGINT);
             CREATE VIEW wide AS SELECT meter, spread(twice(watts)) AS spread FROM kept GROUP BY meter;
             CREATE MATERIALIZED VIEW maintained AS SELECT meter, spread(twice(watts)) AS spread FROM kept GROUP BY meter;
             CREATE TABLE streamed (meter INT PRIMARY KEY, spread BIGINT, doubled BIGINT);
             CREATE TOPOLOGY spreads AS (
                 INSERT INTO kept SELECT meter, watts FROM reading;
                 INSERT INTO streamed SELECT meter, spread(twice(watts)), twice(sum(watts)::bigint) FROM reading GROUP BY meter
                     ON CONFLICT (meter) DO UPDATE SET spread = EXCLUDED.spread, doubled = EXCLUDED.doubled)",
            path.display()
        ))
        .unwrap();
    wait_for(&mut session, "SELECT count(*) FROM kept", "3");
    let expected = "1|120|160;2|0|10";
    wait_for(
        &mut session,
        "SELECT string_agg(concat_ws('|', meter, spread, doubled), ';' ORDER BY meter) FROM streamed",
        expected,
    );
    for relation in ["wide", "maintained"] {
        let found = rows(&mut session, &format!("SELECT * FROM {relation} ORDER BY meter"));
        assert_eq!(found, [["1", "120"], ["2", "0"]], "{relation}");
    }
    let over = "SELECT spread(watts) OVER (PARTITION BY meter) FROM kept ORDER BY 1";
    assert_eq!(rows(&mut session, over), [["0"], ["60"], ["60"]]);
    drop(session);
    database.close().unwrap();
    drop(database);

    // Without the functions the topology says which is missing, and goes on when it is there again.
    append(&path, "2,105\n");
    let without = Database::open(directory.path().join("db"), Options::default()).unwrap();
    let mut session = without.session().unwrap();
    let shown = rows(&mut session, "SELECT state, error FROM entresol.topologies WHERE name = 'spreads'");
    assert!(shown[0][0] == "failed" && shown[0][1].contains("spread"), "{shown:?}");
    let error = session.query("SELECT * FROM wide").unwrap_err();
    assert!(error.to_string().contains("spread"), "{error}");
    drop(session);
    without.close().unwrap();
    drop(without);
    let database = Database::open(directory.path().join("db"), options()).unwrap();
    let mut session = database.session().unwrap();
    wait_for(&mut session, "SELECT spread FROM streamed WHERE meter = 2", "200");
    assert_eq!(rows(&mut session, "SELECT spread FROM maintained WHERE meter = 2"), [["200"]]);
}

#[test]
fn names_that_cannot_be_called_are_refused() {
    for (options, reason) in [
        (Options::default().scalar_function(twice("lower")), "there is a function of this name"),
        (Options::default().aggregate_function(spread("sum")), "there is a function of this name"),
        (options().scalar_function(twice("spread")), "there is a function of this name"),
        (Options::default().scalar_function(twice("pg_sleep")), "there is a function of this name"),
        (Options::default().scalar_function(twice("Twice")), "lower-case letters"),
        (Options::default().scalar_function(twice("")), "lower-case letters"),
        (Options::default().aggregate_function(spread("2nd")), "lower-case letters"),
    ] {
        let error = Database::volatile(options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(reason), "{error}");
    }
}
