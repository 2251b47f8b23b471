//! Measurement of star joins beside hash joins: time for each row of a fact as in the Star Schema Benchmark.
//!
//! `cargo test --profile demo -p entresol-query --lib star::tests::speed -- --ignored --nocapture`; with `METRICS`
//! in the environment, the metrics of operators too.

use super::{Random, rows, state};
use datafusion::arrow::array::{ArrayRef, Int32Array, RecordBatch, StringArray};
use datafusion::catalog::MemTable;
use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use std::sync::Arc;
use std::time::Instant;

const ROWS: usize = 6_000_000;
const BATCH: usize = 8192;
const RUNS: usize = 5;

const QUERIES: [&str; 5] = [
    "SELECT sum(lo_revenue) FROM lineorder, date WHERE lo_date = d_key AND d_year = 1993",
    "SELECT sum(lo_revenue), d_year, p_brand FROM lineorder, date, part, supplier WHERE lo_date = d_key \
     AND lo_part = p_key AND lo_supplier = s_key AND p_category = 'category 7' AND s_region = 'region 2' \
     GROUP BY d_year, p_brand",
    "SELECT c_nation, s_nation, d_year, sum(lo_revenue) FROM customer, lineorder, supplier, date \
     WHERE lo_customer = c_key AND lo_supplier = s_key AND lo_date = d_key AND c_region = 'region 1' \
     AND s_region = 'region 2' AND d_year <= 1997 GROUP BY c_nation, s_nation, d_year",
    "SELECT d_year, c_nation, sum(lo_revenue - lo_cost) FROM date, customer, supplier, part, lineorder \
     WHERE lo_customer = c_key AND lo_supplier = s_key AND lo_part = p_key AND lo_date = d_key \
     AND c_region = 'region 1' AND s_region = 'region 2' AND p_category < 'category 18' GROUP BY d_year, c_nation",
    "SELECT d_year, sum(lo_revenue) FROM lineorder, date WHERE lo_date = d_key GROUP BY d_year",
];

fn ints(name: &str, values: impl Iterator<Item = i32>) -> (String, ArrayRef) {
    (name.to_owned(), Arc::new(Int32Array::from_iter_values(values)))
}

/// Strings `NAME n`, n below `of`.
fn strings(name: &str, rows: i32, of: i32) -> (String, ArrayRef) {
    (
        name.to_owned(),
        Arc::new(StringArray::from_iter_values((0..rows).map(|at| format!("{name} {}", at % of)))),
    )
}

fn dates() -> Vec<i32> {
    let date = |day| (1992 + day / 365) * 10_000 + (101 + day % 365 / 31 * 100) + day % 31;
    (0..2556).map(date).collect()
}

fn dimensions() -> [(&'static str, RecordBatch); 4] {
    let dates = dates();
    let places = |prefix: &str, rows: i32| {
        let (_, regions) = strings("region", rows, 5);
        let (_, nations) = strings("nation", rows, 25);
        let key = ints(&format!("{prefix}_key"), 0..rows);
        vec![key, (format!("{prefix}_region"), regions), (format!("{prefix}_nation"), nations)]
    };
    let (_, categories) = strings("category", 200_000, 25);
    let (_, brands) = strings("brand", 200_000, 1000);
    let parts =
        vec![ints("p_key", 0..200_000), ("p_category".into(), categories), ("p_brand".into(), brands)];
    let years = ints("d_year", dates.iter().map(|date| date / 10_000));
    let batch = |columns: Vec<(String, ArrayRef)>| RecordBatch::try_from_iter(columns).unwrap();
    [
        ("date", batch(vec![ints("d_key", dates.iter().copied()), years])),
        ("part", batch(parts)),
        ("supplier", batch(places("s", 2_000))),
        ("customer", batch(places("c", 30_000))),
    ]
}

fn fact() -> Vec<RecordBatch> {
    let (mut random, dates) = (Random(1), dates());
    let batches = (0..ROWS.div_ceil(BATCH)).map(|_| {
        let mut columns = vec![ints("lo_date", (0..BATCH).map(|_| *random.of(&dates)))];
        for (name, bound) in [
            ("lo_part", 200_000),
            ("lo_supplier", 2_000),
            ("lo_customer", 30_000),
            ("lo_revenue", 10_000),
            ("lo_cost", 1_000),
        ] {
            columns.push(ints(name, (0..BATCH).map(|_| random.below(bound) as i32)));
        }
        RecordBatch::try_from_iter(columns).unwrap()
    });
    batches.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn speed() {
    let (dimensions, fact) = (dimensions(), fact());
    let shows_metrics = std::env::var_os("METRICS").is_some();
    for (with_rule, partitions) in [(false, 1), (true, 1), (false, 2), (true, 2)] {
        let config = SessionConfig::new().with_target_partitions(partitions).with_batch_size(BATCH);
        let state =
            SessionStateBuilder::new_from_existing(state(with_rule, None)).with_config(config).build();
        let context = SessionContext::new_with_state(state);
        let table =
            |parts: Vec<Vec<RecordBatch>>| Arc::new(MemTable::try_new(parts[0][0].schema(), parts).unwrap());
        for (name, batch) in &dimensions {
            context.register_table(*name, table(vec![vec![batch.clone()]])).unwrap();
        }
        let parts = fact.chunks(fact.len().div_ceil(partitions)).map(<[RecordBatch]>::to_vec).collect();
        context.register_table("lineorder", table(parts)).unwrap();
        for (at, sql) in QUERIES.iter().enumerate() {
            let mut best = f64::MAX;
            for _ in 0..RUNS {
                let began = Instant::now();
                context.sql(sql).await.unwrap().collect().await.unwrap();
                best = best.min(began.elapsed().as_secs_f64());
            }
            let (ms, row) = (best * 1e3, best * 1e9 / ROWS as f64);
            println!(
                "query {at}, {partitions} partitions, star joins {with_rule}: {ms:.1} ms, {row:.2} ns a row"
            );
            if shows_metrics && with_rule {
                let frame = context.sql(&format!("EXPLAIN ANALYZE {sql}")).await.unwrap();
                println!("{}", rows(frame.collect().await).unwrap().join("\n"));
            }
        }
    }
}
