//! Random aggregations over tables in memory, with the rule and without it.

#![allow(clippy::unwrap_used)]

use super::{CodedAggregateExec, CodedGroups};
use crate::postgres::overflow::CheckedArithmetic;
use datafusion::arrow::array::{
    ArrayRef, BooleanArray, Date32Array, Float64Array, Int16Array, Int32Array, Int64Array, RecordBatch,
    StringArray,
};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::catalog::MemTable;
use datafusion::common::Result as DFResult;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::memory_pool::GreedyMemoryPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::{SessionConfig, SessionContext};
use std::sync::Arc;

/// Linear congruential generator.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % limit as u64) as usize
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

fn context(with_rule: bool, memory_max: Option<usize>) -> SessionContext {
    let config = SessionConfig::new().with_target_partitions(3).with_batch_size(50);
    let mut builder = SessionStateBuilder::new()
        .with_config(config)
        .with_default_features()
        .with_physical_optimizer_rule(Arc::new(CheckedArithmetic));
    if with_rule {
        builder = builder.with_physical_optimizer_rule(Arc::new(CodedGroups));
    }
    if let Some(bytes) = memory_max {
        let pool = Arc::new(GreedyMemoryPool::new(bytes));
        builder =
            builder.with_runtime_env(RuntimeEnvBuilder::new().with_memory_pool(pool).build_arc().unwrap());
    }
    SessionContext::new_with_state(builder.build())
}

fn is_coded(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<CodedAggregateExec>() || plan.children().into_iter().any(is_coded)
}

/// Sorted rows of a query, and whether it aggregates by codes.
async fn answer(context: &SessionContext, sql: &str) -> DFResult<(Vec<String>, bool)> {
    let plan = context.sql(sql).await?.create_physical_plan().await?;
    let coded = is_coded(&plan);
    let options = FormatOptions::default().with_null("NULL");
    let mut rows = Vec::new();
    for batch in collect(plan, context.task_ctx()).await? {
        let columns = batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &options).unwrap());
        let columns: Vec<_> = columns.collect();
        for row in 0..batch.num_rows() {
            let values: Vec<String> = columns.iter().map(|column| column.value(row).to_string()).collect();
            rows.push(values.join("|"));
        }
    }
    rows.sort();
    Ok((rows, coded))
}

/// Keys: about a place, ascending, descending, or anywhere; some NULL.
fn keys(random: &mut Random, rows: usize) -> Vec<Option<i64>> {
    let begin = random.of(&[0, 1, -7, 19_000, i64::MAX - 40_000, i64::MIN + 40_000]);
    let (way, width) = (random.below(4), random.of(&[1, 3, 40, 1000, 30_000]));
    let nulls = random.of(&[usize::MAX, 3, 20]);
    (0..rows)
        .map(|row| {
            let near = random.below(width) as i64;
            let key = match way {
                0 => begin + near,
                1 => begin + row as i64,
                2 => begin - row as i64,
                _ if random.below(50) == 0 => random.of(&[i64::MIN, i64::MAX, 0, 1 << 40]),
                _ => begin + near,
            };
            (random.below(nulls) > 0 || nulls == usize::MAX).then_some(key)
        })
        .collect()
}

fn table(random: &mut Random, rows: usize) -> MemTable {
    let narrow =
        |keys: Vec<Option<i64>>, bound: i64| keys.into_iter().map(move |key| key.map(|key| key % bound));
    let strings_max = random.of(&[2, 9, 300, 5000]);
    let mut string = || {
        let n = random.below(strings_max + 1);
        let long = if n.is_multiple_of(7) { "a string that is longer than others " } else { "" };
        (n > 0).then(|| format!("{long}{n}"))
    };
    let strings: ArrayRef = Arc::new((0..rows).map(|_| string()).collect::<StringArray>());
    let small: ArrayRef = Arc::new(Int16Array::from_iter(
        narrow(keys(random, rows), 30_000).map(|key| key.map(|key| key as i16)),
    ));
    let int: ArrayRef = Arc::new(Int32Array::from_iter(
        narrow(keys(random, rows), 1 << 30).map(|key| key.map(|key| key as i32)),
    ));
    let big: ArrayRef = Arc::new(Int64Array::from_iter(keys(random, rows)));
    let day: ArrayRef = Arc::new(Date32Array::from_iter(
        narrow(keys(random, rows), 20_000).map(|key| key.map(|key| key as i32)),
    ));
    let flag: ArrayRef =
        Arc::new((0..rows).map(|_| random.of(&[Some(true), Some(false), None])).collect::<BooleanArray>());
    let v: ArrayRef =
        Arc::new((0..rows).map(|_| random.of(&[Some(1), Some(-4), Some(99), None])).collect::<Int64Array>());
    let x: ArrayRef =
        Arc::new((0..rows).map(|_| random.of(&[Some(0.5), Some(2.25), None])).collect::<Float64Array>());
    let columns =
        [("t", strings), ("s", small), ("i", int), ("b", big), ("d", day), ("f", flag), ("v", v), ("x", x)];
    let columns = columns.into_iter().map(|(name, array)| (name, array, true));
    let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let mut partitions = vec![Vec::new(); 1 + random.below(3)];
    let mut from = 0;
    while from < rows {
        let taken = (1 + random.below(400)).min(rows - from);
        let partition = random.below(partitions.len());
        partitions[partition].push(batch.slice(from, taken));
        from += taken;
    }
    MemTable::try_new(batch.schema(), partitions).unwrap()
}

#[tokio::test]
async fn random_aggregations_are_right() {
    let aggregates = [
        "count(*)",
        "count(v)",
        "sum(v)",
        "avg(v)",
        "min(x)",
        "max(t)",
        "sum(v) FILTER (WHERE x > 1)",
        "count(DISTINCT v)",
        "bool_or(f)",
    ];
    let (mut coded, mut random) = (0, Random(20));
    for _ in 0..300 {
        let rows = random.of(&[0, 1, 70, 2000, 9000]);
        let table = Arc::new(table(&mut random, rows));
        let contexts = [context(true, None), context(false, None)];
        for context in &contexts {
            context.register_table("r", Arc::clone(&table) as _).unwrap();
        }
        let names = ["t", "s", "i", "b", "d", "f", "b % 10", "x"];
        let keys: Vec<&str> = (0..=random.below(3)).map(|_| random.of(&names)).collect();
        let mut columns: Vec<String> =
            keys.iter().enumerate().map(|(at, key)| format!("{key} AS key_{at}")).collect();
        for at in 0..random.below(4) {
            columns.push(format!("{} AS a_{at}", random.of(&aggregates)));
        }
        let condition = random.of(&["", "WHERE v > 0", "WHERE i < 100 OR f"]);
        let sql = format!("SELECT {} FROM r {condition} GROUP BY {}", columns.join(", "), keys.join(", "));
        let (expected, _) = answer(&contexts[1], &sql).await.unwrap();
        let (found, is_coded) = answer(&contexts[0], &sql).await.unwrap();
        assert_eq!(found, expected, "{sql}");
        coded += usize::from(is_coded);
    }
    assert!(coded > 150, "{coded} aggregations by codes");
}

#[tokio::test]
async fn what_has_no_room_is_aggregated_in_the_other_way() {
    let rows = 300_000;
    let id: ArrayRef = Arc::new(Int64Array::from_iter_values((0..rows).map(|row| row * 7)));
    let kind: ArrayRef = Arc::new(Int32Array::from_iter_values((0..rows).map(|row| (row / 3) as i32)));
    let batch = RecordBatch::try_from_iter([("id", id), ("kind", kind)]).unwrap();
    let batches = (0..30).map(|at| batch.slice(at * 10_000, 10_000)).collect();
    let table = Arc::new(MemTable::try_new(batch.schema(), vec![batches]).unwrap());
    // Ids are too far apart for codes from the middle on; of the kinds, memory is short.
    for (memory_max, key, groups) in
        [(None, "id", 300_000), (None, "kind", 100_000), (Some(12 << 20), "kind", 100_000)]
    {
        let context = context(true, memory_max);
        context.register_table("r", Arc::clone(&table) as _).unwrap();
        let sql = format!("SELECT count(*), sum(n) FROM (SELECT {key}, count(*) AS n FROM r GROUP BY {key})");
        let (found, is_coded) = answer(&context, &sql).await.unwrap();
        assert_eq!((found, is_coded), (vec![format!("{groups}|{rows}")], true), "{key}, {memory_max:?}");
        assert_eq!(context.runtime_env().memory_pool.reserved(), 0);
    }
}
