//! Random stars, with the rule and without it; the interface for scans.

#![allow(clippy::unwrap_used)]

use crate::planner::star::exec::StarJoinExec;
use crate::planner::star::rule::StarJoins;
use crate::planner::star::sideways::KeySetExpr;
use crate::postgres::overflow::CheckedArithmetic;
use async_trait::async_trait;
use datafusion::arrow::array::{
    Array, ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int16Array, Int32Array,
    Int64Array, RecordBatch, StringArray,
};
use datafusion::arrow::compute::filter_record_batch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::catalog::{MemTable, Session, TableProvider};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result as EngineResult, Statistics};
use datafusion::execution::memory_pool::GreedyMemoryPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::{SendableRecordBatchStream, SessionState, SessionStateBuilder, TaskContext};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, DynamicFilterPhysicalExpr};
use datafusion::physical_expr::utils::split_conjunction;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterPushdownPhase, FilterPushdownPropagation,
};
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, ReplaceChildrenOptions, collect, displayable,
};
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::StreamExt;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

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

/// Type of a key column.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Key {
    Small,
    Int,
    Big,
    Date,
}

fn keys(of: Key, values: &[Option<i64>]) -> ArrayRef {
    let narrow = |bits: u32| {
        let max = (1_i64 << (bits - 1)) - 1;
        values.iter().map(move |value| value.map(|value| value.clamp(-max - 1, max)))
    };
    match of {
        Key::Small => Arc::new(Int16Array::from_iter(narrow(16).map(|key| key.map(|key| key as i16)))),
        Key::Int => Arc::new(Int32Array::from_iter(narrow(32).map(|key| key.map(|key| key as i32)))),
        Key::Big => Arc::new(Int64Array::from_iter(values.iter().copied())),
        Key::Date => Arc::new(Date32Array::from_iter(narrow(32).map(|key| key.map(|key| key as i32)))),
    }
}

/// Table of columns, in batches and partitions at random.
fn table(random: &mut Random, columns: Vec<(String, ArrayRef)>) -> MemTable {
    let rows = columns[0].1.len();
    let batch = RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, array)| (name, array, true)),
    );
    let batch = batch.unwrap();
    let mut partitions = vec![Vec::new(); 1 + random.below(3)];
    let mut from = 0;
    while from < rows {
        let taken = (1 + random.below(200)).min(rows - from);
        let partition = random.below(partitions.len());
        partitions[partition].push(batch.slice(from, taken));
        from += taken;
    }
    MemTable::try_new(batch.schema(), partitions).unwrap()
}

/// Keys of a dimension: in a row, scattered, extreme or several times.
fn dimension_keys(random: &mut Random, rows: usize, with_duplicates: bool) -> Vec<Option<i64>> {
    let start = *random.of(&[0_i64, 1, -5, 19_920_101, i64::MAX - 100, i64::MIN]);
    let step = *random.of(&[1_i64, 1, 2, 7, 1 << 40]);
    let mut keys: Vec<Option<i64>> = (0..rows as i64).map(|at| start.checked_add(at * step)).collect();
    if with_duplicates && rows > 1 {
        for _ in 0..1 + random.below(2) {
            let (from, to) = (random.below(rows), random.below(rows));
            keys[to] = keys[from];
        }
    }
    if rows > 0 && random.one_in(4) {
        let at = random.below(rows);
        keys[at] = None;
    }
    keys
}

fn numbers(random: &mut Random, rows: usize, of: &[Option<i64>]) -> Vec<Option<i64>> {
    (0..rows).map(|_| *random.of(of)).collect()
}

/// Attributes of a dimension or of the fact: small numbers, strings, large numbers.
fn attributes(random: &mut Random, prefix: &str, rows: usize) -> Vec<(String, ArrayRef)> {
    let small = numbers(random, rows, &[Some(0), Some(1), Some(2), Some(-3), Some(4), None]);
    let strings: Vec<Option<&str>> =
        (0..rows).map(|_| *random.of(&[Some("x"), Some("yy"), Some(""), Some("Zz"), None])).collect();
    let extreme = random.one_in(3);
    let large = (0..rows).map(|at| {
        let is_large = extreme && random.one_in(6);
        Some(if is_large { *random.of(&[i64::MAX, i64::MIN, i64::MAX - 1]) } else { at as i64 % 9 })
    });
    let named = |name: &str| format!("{prefix}{name}");
    vec![
        (named("a"), Arc::new(Int32Array::from_iter(small.iter().map(|v| v.map(|v| v as i32)))) as ArrayRef),
        (named("s"), Arc::new(StringArray::from(strings))),
        (named("w"), Arc::new(Int64Array::from_iter(large))),
    ]
}

/// Star of random tables.
struct Star {
    context: SessionContext,
    dimensions: usize,
    /// Dimensions with a further one behind them.
    arms: Vec<bool>,
}

fn star(random: &mut Random) -> Star {
    let context = SessionContext::new_with_state(state(false, None));
    let dimensions = 1 + random.below(4);
    let rows = if random.one_in(12) { random.below(30) } else { 300 + random.below(500) };
    let mut fact = attributes(random, "f", rows);
    let decimals = (0..rows).map(|_| (!random.one_in(9)).then(|| random.below(100_000) as i128 - 40_000));
    let decimals = Decimal128Array::from_iter(decimals).with_precision_and_scale(12, 2).unwrap();
    fact.push(("fd".into(), Arc::new(decimals)));
    let doubles = (0..rows).map(|_| (!random.one_in(9)).then(|| random.below(64) as f64 / 4.0));
    fact.push(("fx".into(), Arc::new(Float64Array::from_iter(doubles))));
    let mut arms = Vec::new();
    for at in 0..dimensions {
        let of = *random.of(&[Key::Small, Key::Int, Key::Int, Key::Big, Key::Date]);
        let other = if of == Key::Date || random.one_in(2) { of } else { *random.of(&[Key::Int, Key::Big]) };
        let count = if random.one_in(10) { 0 } else { 1 + random.below(9) };
        let with_duplicates = random.one_in(4);
        let known = dimension_keys(random, count, with_duplicates);
        let mut pool = known.clone();
        pool.extend([None, Some(3), Some(-1)].into_iter().take(random.below(4)));
        pool.push(known.first().copied().flatten());
        let chosen = numbers(random, rows, &pool);
        fact.push((format!("k{at}"), keys(of, &chosen)));
        let mut columns = vec![(format!("id{at}"), keys(other, &known))];
        columns.extend(attributes(random, &format!("d{at}"), count));
        arms.push(random.one_in(5));
        if arms[at] {
            let far = dimension_keys(random, 3, with_duplicates);
            let near = numbers(random, count, &far);
            columns.push((format!("e{at}"), keys(Key::Big, &near)));
            let mut arm = vec![(format!("eid{at}"), keys(Key::Big, &far))];
            arm.extend(attributes(random, &format!("e{at}"), 3));
            context.register_table(format!("e{at}"), Arc::new(table(random, arm))).unwrap();
        }
        context.register_table(format!("d{at}"), Arc::new(table(random, columns))).unwrap();
    }
    context.register_table("f", Arc::new(table(random, fact))).unwrap();
    Star { context, dimensions, arms }
}

fn condition(random: &mut Random, of: &str) -> String {
    match random.below(5) {
        0 => format!("{of}a < {}", random.below(4)),
        1 => format!("{of}s = 'x'"),
        2 => format!("{of}a IN (0, 2, 4)"),
        3 => format!("{of}s IS NOT NULL"),
        _ => format!("({of}a > 0 OR {of}s >= 'Z')"),
    }
}

/// Random query over a star.
fn query(random: &mut Random, star: &Star) -> String {
    let used: Vec<usize> = (0..star.dimensions).filter(|_| !random.one_in(5)).collect();
    let used = if used.is_empty() { vec![0] } else { used };
    let mut tables = vec!["f".to_owned()];
    let mut conditions = Vec::new();
    let mut prefixes = Vec::new();
    for (number, &at) in used.iter().enumerate() {
        let has_arm = star.arms[at] && !random.one_in(3);
        if number > 0 && random.one_in(5) {
            let mut within = if random.one_in(2) { format!(" AND d{at}a > 0") } else { String::new() };
            if has_arm {
                within += &format!(" AND d{at}.e{at} IN (SELECT eid{at} FROM e{at})");
            }
            conditions.push(if random.one_in(2) {
                format!("EXISTS (SELECT 1 FROM d{at} WHERE k{at} = id{at}{within})")
            } else {
                format!("k{at} IN (SELECT id{at} FROM d{at} WHERE 1 = 1{within})")
            });
            continue;
        }
        tables.push(format!("d{at}"));
        conditions.push(format!("k{at} = id{at}"));
        prefixes.push(format!("d{at}"));
        if has_arm && random.one_in(4) {
            conditions.push(format!("d{at}.e{at} IN (SELECT eid{at} FROM e{at})"));
        } else if has_arm {
            tables.push(format!("e{at}"));
            conditions.push(format!("e{at}.eid{at} = d{at}.e{at}"));
            prefixes.push(format!("e{at}.e{at}"));
        }
    }
    for at in (1..tables.len()).rev() {
        tables.swap(at, random.below(at + 1));
    }
    for prefix in &prefixes {
        if random.one_in(3) {
            conditions.push(condition(random, prefix));
        }
    }
    if random.one_in(3) {
        conditions.push(condition(random, "f"));
    }
    let any = |random: &mut Random| random.of(&prefixes).clone();
    let mut selected = Vec::new();
    for _ in 0..random.below(4) {
        let of = any(random);
        selected.push(match random.below(9) {
            0 => format!("{of}a + 1"),
            1 => format!("{of}w * 2"),
            2 => format!("coalesce({of}s, 'none')"),
            3 => "fa".to_owned(),
            4 | 5 => format!("{of}a"),
            6 => format!("{of}w"),
            _ => format!("{of}s"),
        });
    }
    let groups = selected.len();
    for _ in 0..1 + random.below(4) {
        let of = any(random);
        let aggregate = match random.below(16) {
            0 => "count(*)".to_owned(),
            1 => format!("count({of}s)"),
            2 => "sum(fa)".to_owned(),
            3 => "sum(fw)".to_owned(),
            4 => format!("sum(fw * {of}w)"),
            5 => format!("max(fa - {of}a)"),
            6 => format!("min({of}s)"),
            7 => "avg(fa)".to_owned(),
            8 => "sum(fd)".to_owned(),
            9 => "avg(fd)".to_owned(),
            10 => "sum(fx)".to_owned(),
            11 => "max(fx)".to_owned(),
            12 => format!("count(DISTINCT {of}s)"),
            13 => format!("sum(fa) FILTER (WHERE {of}a > 0)"),
            14 => format!("max({of}w)"),
            _ => format!("sum(fd * {of}a)"),
        };
        selected.push(aggregate);
    }
    let named = selected.iter().enumerate().map(|(at, of)| format!("{of} AS c{at}"));
    let named: Vec<String> = named.collect();
    let mut sql = format!("SELECT {} FROM {}", named.join(", "), tables.join(", "));
    sql += &format!(" WHERE {}", conditions.join(" AND "));
    if groups > 0 {
        let keys: Vec<String> = (1..=groups).map(|at| at.to_string()).collect();
        sql += &format!(" GROUP BY {}", keys.join(", "));
    }
    sql
}

/// Rows as strings, sorted; or that it failed.
fn rows(result: EngineResult<Vec<RecordBatch>>) -> Result<Vec<String>, String> {
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

/// Results of queries so far.
#[derive(Default, Debug)]
struct Counts {
    queries: usize,
    star_joins: usize,
    aggregating: usize,
    errors: usize,
    with_rows: usize,
}

async fn compare(star: &Star, with_rule: &SessionState, sql: &str, counts: &mut Counts) {
    let without_rule = star.context.state();
    let logical =
        without_rule.create_logical_plan(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let logical = without_rule.optimize(&logical).unwrap();
    let expected = without_rule.query_planner().create_physical_plan(&logical, &without_rule).await.unwrap();
    let planned = with_rule.query_planner().create_physical_plan(&logical, with_rule).await;
    let planned = planned.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let mut found = Vec::new();
    star_joins(&planned, &mut found);
    let expected = rows(collect(expected, without_rule.task_ctx()).await);
    let actual = rows(collect(Arc::clone(&planned), with_rule.task_ctx()).await);
    match (&expected, &actual) {
        (Ok(expected), Ok(actual)) => {
            let plan = displayable(planned.as_ref()).indent(false);
            assert_eq!(expected, actual, "{sql}\n{plan}");
        }
        (Err(_), Err(_)) => counts.errors += 1,
        _ => panic!("{sql}\n{expected:?}\n{actual:?}"),
    }
    counts.queries += 1;
    counts.star_joins += found.len().min(1);
    counts.aggregating += usize::from(found.contains(&true));
    counts.with_rows += usize::from(expected.is_ok_and(|rows| !rows.is_empty()));
}

/// Queries of a range of seeds.
async fn run(seeds: std::ops::Range<u64>) {
    let with_rule = state(true, None);
    let mut counts = Counts::default();
    for seed in seeds.clone() {
        let mut random = Random(seed);
        let star = star(&mut random);
        for _ in 0..16 {
            let sql = query(&mut random, &star);
            compare(&star, &with_rule, &sql, &mut counts).await;
        }
    }
    println!("seeds {seeds:?}: {counts:?}");
    assert!(counts.star_joins * 4 > counts.queries * 3, "{counts:?}");
    assert!(counts.aggregating * 5 > counts.queries * 2, "{counts:?}");
    assert!(counts.errors * 100 > counts.queries, "{counts:?}");
    assert!(counts.with_rows * 2 > counts.queries, "{counts:?}");
}

/// The four together are 3,200 queries.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_stars_agree_with_hash_joins_1() {
    run(0..50).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_stars_agree_with_hash_joins_2() {
    run(50..100).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_stars_agree_with_hash_joins_3() {
    run(100..150).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_stars_agree_with_hash_joins_4() {
    run(150..200).await;
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
    let keys = 2 * super::aggregate::COMBINATIONS_MAX as i64 / 300;
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

/// Scan of one batch that takes filters, and counts the rows that it returns.
#[derive(Debug)]
struct FilteringScan {
    inner: Arc<dyn ExecutionPlan>,
    filters: Vec<Arc<dyn PhysicalExpr>>,
    returned: Arc<AtomicUsize>,
}

impl FilteringScan {
    /// Rows that meet all filters, which must be known to the bitmap, too.
    fn passed(filters: &[Arc<dyn PhysicalExpr>], batch: &RecordBatch) -> EngineResult<RecordBatch> {
        let mut passed = batch.clone();
        for filter in filters {
            let known = filter.downcast_ref::<DynamicFilterPhysicalExpr>().unwrap().current()?;
            let terms = split_conjunction(&known);
            assert_eq!(terms.len(), 3, "{known}");
            assert!(terms[0].downcast_ref::<BinaryExpr>().is_some(), "{known}");
            let set = terms[2].downcast_ref::<KeySetExpr>().unwrap();
            let (min, _) = set.keys().bounds().unwrap();
            assert!(set.keys().contains(min) && set.keys().bitmap().unwrap()[0] & 1 == 1);
            let met = known.evaluate(&passed)?.into_array(passed.num_rows())?;
            passed = filter_record_batch(&passed, met.as_any().downcast_ref::<BooleanArray>().unwrap())?;
        }
        Ok(passed)
    }
}

impl DisplayAs for FilteringScan {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FilteringScan: filters={}", self.filters.len())
    }
}

impl ExecutionPlan for FilteringScan {
    fn name(&self) -> &str {
        "FilteringScan"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.inner.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> EngineResult<TreeNodeRecursion>,
    ) -> EngineResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> EngineResult<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> EngineResult<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> EngineResult<SendableRecordBatchStream> {
        let (filters, returned) = (self.filters.clone(), Arc::clone(&self.returned));
        let batches = self.inner.execute(partition, context)?.map(move |batch| {
            let passed = FilteringScan::passed(&filters, &batch?)?;
            returned.fetch_add(passed.num_rows(), Ordering::Relaxed);
            Ok(passed)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }

    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> EngineResult<Arc<Statistics>> {
        StatisticsContext::new().compute(self.inner.as_ref(), args)
    }

    fn handle_child_pushdown_result(
        &self,
        phase: FilterPushdownPhase,
        result: ChildPushdownResult,
        _: &ConfigOptions,
    ) -> EngineResult<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        // DataFusion's own rules ask, too.
        if phase == FilterPushdownPhase::Pre || result.parent_filters.is_empty() {
            return Ok(FilterPushdownPropagation::all_unsupported(result));
        }
        let offered = result.parent_filters.iter().map(|offered| Arc::clone(&offered.filter));
        let scan = FilteringScan {
            inner: Arc::clone(&self.inner),
            filters: self.filters.iter().cloned().chain(offered).collect(),
            returned: Arc::clone(&self.returned),
        };
        Ok(FilterPushdownPropagation::all_unsupported(result).with_updated_node(Arc::new(scan)))
    }
}

/// Table whose scans take filters.
#[derive(Debug)]
struct FilteringTable {
    inner: Arc<dyn TableProvider>,
    returned: Arc<AtomicUsize>,
}

#[async_trait]
impl TableProvider for FilteringTable {
    fn schema(&self) -> SchemaRef {
        self.inner.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> EngineResult<Arc<dyn ExecutionPlan>> {
        let inner = self.inner.scan(state, projection, filters, limit).await?;
        Ok(Arc::new(FilteringScan { inner, filters: Vec::new(), returned: Arc::clone(&self.returned) }))
    }
}

#[tokio::test]
async fn a_scan_that_takes_filters_leaves_out_rows_that_do_not_join() {
    let context = two_tables(10_000, 100, None);
    let inner = context.deregister_table("f").unwrap().unwrap();
    let returned = Arc::new(AtomicUsize::new(0));
    context.register_table("f", Arc::new(FilteringTable { inner, returned: Arc::clone(&returned) })).unwrap();
    // Below a filter and a projection, too.
    for from in ["f", "(SELECT v, v + 1 AS w, k FROM f WHERE v > 4999) g"] {
        let sql =
            format!("SELECT count(*), min(v) FROM {from}, d WHERE k = id AND name IN ('name 7', 'name 40')");
        let plan = context.sql(&sql).await.unwrap().create_physical_plan().await.unwrap();
        let shown = displayable(plan.as_ref()).indent(false).to_string();
        assert!(shown.contains("FilteringScan: filters=1"), "{shown}");
        returned.store(0, Ordering::Relaxed);
        let expected = if from == "f" { "200|7" } else { "100|5007" };
        assert_eq!(selected(&context, &sql).await.unwrap(), [expected]);
        assert_eq!(returned.load(Ordering::Relaxed), 200);
    }
    // A limit counts rows that do not join.
    let sql = "SELECT count(*) FROM (SELECT k FROM f LIMIT 5000) g, d WHERE k = id AND id = 3";
    let plan = context.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
    let shown = displayable(plan.as_ref()).indent(false).to_string();
    assert!(shown.contains("FilteringScan: filters=0") && shown.contains("StarJoinExec"), "{shown}");
    assert_eq!(selected(&context, sql).await.unwrap(), ["50"]);
}

/// Nanoseconds for each row of a fact of the Star Schema Benchmark's size, with the rule and without it:
/// `cargo test --profile demo -p entresol-query --lib star::tests::speed -- --ignored --nocapture`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn speed() {
    const ROWS: usize = 6_000_000;
    const BATCH: usize = 8192;
    let mut random = Random(1);
    let ints =
        |name: &str, values: Vec<i32>| (name.to_owned(), Arc::new(Int32Array::from(values)) as ArrayRef);
    let strings =
        |name: &str, values: Vec<String>| (name.to_owned(), Arc::new(StringArray::from(values)) as ArrayRef);
    let dates: Vec<i32> =
        (0..2556).map(|day| (1992 + day / 365) * 10_000 + day % 365 / 31 * 100 + 101 + day % 31).collect();
    let regions = |count: i32| (0..count).map(|at| format!("region {}", at % 5)).collect::<Vec<_>>();
    let nations = |count: i32| (0..count).map(|at| format!("nation {}", at % 25)).collect::<Vec<_>>();
    let tables = [
        (
            "date",
            vec![
                ints("d_key", dates.clone()),
                ints("d_year", dates.iter().map(|date| date / 10_000).collect()),
            ],
        ),
        (
            "part",
            vec![
                ints("p_key", (0..200_000).collect()),
                strings("p_category", (0..200_000).map(|at| format!("category {}", at % 25)).collect()),
                strings("p_brand", (0..200_000).map(|at| format!("brand {}", at % 1000)).collect()),
            ],
        ),
        (
            "supplier",
            vec![
                ints("s_key", (0..2_000).collect()),
                strings("s_region", regions(2_000)),
                strings("s_nation", nations(2_000)),
            ],
        ),
        (
            "customer",
            vec![
                ints("c_key", (0..30_000).collect()),
                strings("c_region", regions(30_000)),
                strings("c_nation", nations(30_000)),
            ],
        ),
    ];
    let batches: Vec<RecordBatch> = (0..ROWS.div_ceil(BATCH))
        .map(|_| {
            let column = |name: &str, random: &mut Random, bound: usize| {
                ints(name, (0..BATCH).map(|_| random.below(bound) as i32).collect())
            };
            let columns = vec![
                ints("lo_date", (0..BATCH).map(|_| *random.of(&dates)).collect()),
                column("lo_part", &mut random, 200_000),
                column("lo_supplier", &mut random, 2_000),
                column("lo_customer", &mut random, 30_000),
                column("lo_revenue", &mut random, 10_000),
                column("lo_cost", &mut random, 1_000),
            ];
            RecordBatch::try_from_iter(columns).unwrap()
        })
        .collect();
    let queries = [
        "SELECT sum(lo_revenue) FROM lineorder, date WHERE lo_date = d_key AND d_year = 1993",
        "SELECT sum(lo_revenue), d_year, p_brand FROM lineorder, date, part, supplier WHERE lo_date = d_key \
         AND lo_part = p_key AND lo_supplier = s_key AND p_category = 'category 7' AND s_region = 'region 2' \
         GROUP BY d_year, p_brand",
        "SELECT c_nation, s_nation, d_year, sum(lo_revenue) FROM customer, lineorder, supplier, date \
         WHERE lo_customer = c_key AND lo_supplier = s_key AND lo_date = d_key AND c_region = 'region 1' \
         AND s_region = 'region 2' AND d_year <= 1997 GROUP BY c_nation, s_nation, d_year",
        "SELECT d_year, c_nation, sum(lo_revenue - lo_cost) FROM date, customer, supplier, part, lineorder \
         WHERE lo_customer = c_key AND lo_supplier = s_key AND lo_part = p_key AND lo_date = d_key \
         AND c_region = 'region 1' AND s_region = 'region 2' AND p_key % 5 < 2 GROUP BY d_year, c_nation",
        "SELECT d_year, sum(lo_revenue) FROM lineorder, date WHERE lo_date = d_key GROUP BY d_year",
    ];
    for with_rule in [false, true] {
        for partitions in [1, 2] {
            let state = SessionStateBuilder::new_from_existing(state(with_rule, None))
                .with_config(SessionConfig::new().with_target_partitions(partitions).with_batch_size(BATCH))
                .build();
            let context = SessionContext::new_with_state(state);
            for (name, columns) in &tables {
                let batch = RecordBatch::try_from_iter(columns.clone()).unwrap();
                let table = MemTable::try_new(batch.schema(), vec![vec![batch]]).unwrap();
                context.register_table(*name, Arc::new(table)).unwrap();
            }
            let parts: Vec<Vec<RecordBatch>> =
                batches.chunks(batches.len().div_ceil(partitions)).map(<[RecordBatch]>::to_vec).collect();
            let table = MemTable::try_new(batches[0].schema(), parts).unwrap();
            context.register_table("lineorder", Arc::new(table)).unwrap();
            for (at, sql) in queries.iter().enumerate() {
                let mut best = f64::MAX;
                for _ in 0..5 {
                    let began = std::time::Instant::now();
                    context.sql(sql).await.unwrap().collect().await.unwrap();
                    best = best.min(began.elapsed().as_secs_f64());
                }
                let row = best * 1e9 / ROWS as f64;
                println!(
                    "query {at}, rule {with_rule}, {partitions} partitions: {:.1} ms, {row:.2} ns a row",
                    best * 1e3
                );
            }
        }
    }
}
