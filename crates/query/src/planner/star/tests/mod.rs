//! Tests of star joins over tables in memory.

#![allow(clippy::unwrap_used)]

mod random;
mod scans;

use crate::planner::star::exec::StarJoinExec;
use crate::planner::star::rule::StarJoins;
use crate::postgres::overflow::CheckedArithmetic;
use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::catalog::MemTable;
use datafusion::common::Result as DFResult;
use datafusion::execution::memory_pool::GreedyMemoryPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::{ExecutionPlan, displayable};
use datafusion::prelude::{SessionConfig, SessionContext};
use std::sync::Arc;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn one_in(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }

    fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

/// DataFusion with the rules that a star join depends on.
fn state(with_rule: bool, memory_max: Option<usize>) -> SessionState {
    let config = SessionConfig::new().with_target_partitions(3).with_batch_size(50);
    let mut rules = PhysicalOptimizer::new().rules;
    if with_rule {
        StarJoins::insert(&mut rules);
    }
    let mut builder = SessionStateBuilder::new()
        .with_config(config)
        .with_default_features()
        .with_physical_optimizer_rules(rules)
        .with_physical_optimizer_rule(Arc::new(CheckedArithmetic));
    if let Some(bytes) = memory_max {
        let pool = Arc::new(GreedyMemoryPool::new(bytes));
        builder =
            builder.with_runtime_env(RuntimeEnvBuilder::new().with_memory_pool(pool).build_arc().unwrap());
    }
    builder.build()
}

/// Rows as strings, sorted; or that it failed.
fn rows(result: DFResult<Vec<RecordBatch>>) -> Result<Vec<String>, String> {
    let options = FormatOptions::default().with_null("NULL");
    let mut rows = Vec::new();
    for batch in result.map_err(|error| error.to_string())? {
        let columns = batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &options).unwrap());
        let columns: Vec<_> = columns.collect();
        for row in 0..batch.num_rows() {
            let values: Vec<String> = columns.iter().map(|column| column.value(row).to_string()).collect();
            rows.push(values.join("|"));
        }
    }
    rows.sort();
    Ok(rows)
}

fn star_joins(plan: &Arc<dyn ExecutionPlan>, found: &mut Vec<bool>) {
    if let Some(star) = plan.downcast_ref::<StarJoinExec>() {
        found.push(star.is_aggregating());
    }
    plan.children().into_iter().for_each(|child| star_joins(child, found));
}

/// Context with the rule, a fact of `rows` rows and a dimension `d` of `keys` keys, each with its own group.
fn two_tables(rows: i64, keys: i64, memory_max: Option<usize>) -> SessionContext {
    let context = SessionContext::new_with_state(state(true, memory_max));
    let table = |columns: Vec<(&str, ArrayRef)>| {
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        Arc::new(MemTable::try_new(batch.schema(), vec![vec![batch]]).unwrap())
    };
    let ids = Int64Array::from_iter_values(0..keys);
    let names = StringArray::from_iter_values((0..keys).map(|at| format!("name {at}")));
    context.register_table("d", table(vec![("id", Arc::new(ids)), ("name", Arc::new(names))])).unwrap();
    let of_fact = Int64Array::from_iter_values((0..rows).map(|at| at % keys));
    let values = Int64Array::from_iter_values(0..rows);
    context.register_table("f", table(vec![("k", Arc::new(of_fact)), ("v", Arc::new(values))])).unwrap();
    context
}

async fn selected(context: &SessionContext, sql: &str) -> Result<Vec<String>, String> {
    let frame = context.sql(sql).await.unwrap();
    let plan = frame.clone().create_physical_plan().await.unwrap();
    let mut found = Vec::new();
    star_joins(&plan, &mut found);
    assert_eq!(found, [true], "{sql}: {}", displayable(plan.as_ref()).indent(false));
    rows(frame.collect().await)
}

#[tokio::test]
async fn groups_that_are_too_many_for_codes_are_right() {
    let keys = 2 * crate::planner::star::aggregate::COMBINATIONS_MAX as i64 / 300;
    let context = two_tables(40_000, keys, None);
    let more = "SELECT count(*), sum(n), max(m) FROM (SELECT d.name, e.name AS other, count(*) AS n, max(v) AS m \
                FROM f, d, (SELECT id AS other, name FROM d WHERE id < 300) e WHERE k = d.id AND k = other \
                GROUP BY 1, 2)";
    let expected = (0..40_000).filter(|v| v % keys < 300);
    let expected = format!("300|{}|{}", expected.clone().count(), expected.max().unwrap());
    assert_eq!(selected(&context, more).await.unwrap(), [expected]);
    let fewer = "SELECT min(n) FROM (SELECT name, count(*) AS n FROM f, d WHERE k = id GROUP BY 1)";
    assert_eq!(selected(&context, fewer).await.unwrap(), [(40_000 / keys).to_string()]);
}

#[tokio::test]
async fn dimensions_count_as_memory_of_the_query() {
    let sql = "SELECT name, sum(v) FROM f, d WHERE k = id GROUP BY name";
    let roomy = two_tables(50_000, 5_000, Some(16 << 20));
    assert_eq!(selected(&roomy, sql).await.unwrap().len(), 5_000);
    assert_eq!(roomy.runtime_env().memory_pool.reserved(), 0);
    let tight = two_tables(50_000, 5_000, Some(100 << 10));
    let error = selected(&tight, sql).await.unwrap_err();
    assert!(error.contains("StarJoinExec"), "{error}");
}

#[tokio::test]
async fn a_table_may_be_several_dimensions() {
    let context = two_tables(20_000, 100, None);
    let sql = "SELECT a.name, b.name AS other, count(*), min(b.id + a.id) FROM f, d a, d b \
               WHERE k = a.id AND v = b.id AND b.id BETWEEN 7 AND 9 AND a.id <> 8 GROUP BY 1, 2";
    let plan = context.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
    let shown = displayable(plan.as_ref()).indent(false).to_string();
    assert!(shown.contains("DataSourceExec on k = id, DataSourceExec_2 on v = id"), "{shown}");
    let found = selected(&context, sql).await.unwrap();
    assert_eq!(found, ["name 7|name 7|1|14", "name 9|name 9|1|18"]);
}
