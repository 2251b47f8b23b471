//! Random queries over random stars, with the rule and without it.

use super::{Random, rows, star_joins, state};
use datafusion::arrow::array::{
    Array, ArrayRef, Date32Array, Decimal128Array, Float64Array, Int16Array, Int32Array, Int64Array,
    RecordBatch, StringArray,
};
use datafusion::catalog::MemTable;
use datafusion::execution::SessionState;
use datafusion::physical_plan::{collect, displayable};
use datafusion::prelude::SessionContext;
use std::sync::Arc;

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

/// Relations of a random query, its conditions, and the prefixes of the columns that it may name.
#[derive(Default)]
struct Joined {
    tables: Vec<String>,
    conditions: Vec<String>,
    prefixes: Vec<String>,
}

impl Joined {
    /// Fact table with some of the dimensions, joined or in subqueries.
    fn new(random: &mut Random, star: &Star) -> Joined {
        let used: Vec<usize> = (0..star.dimensions).filter(|_| !random.one_in(5)).collect();
        let used = if used.is_empty() { vec![0] } else { used };
        let mut joined = Joined { tables: vec!["f".to_owned()], ..Joined::default() };
        for (number, &at) in used.iter().enumerate() {
            let has_arm = star.arms[at] && !random.one_in(3);
            if number > 0 && random.one_in(5) {
                let mut within = if random.one_in(2) { format!(" AND d{at}a > 0") } else { String::new() };
                if has_arm {
                    within += &format!(" AND d{at}.e{at} IN (SELECT eid{at} FROM e{at})");
                }
                joined.conditions.push(if random.one_in(2) {
                    format!("EXISTS (SELECT 1 FROM d{at} WHERE k{at} = id{at}{within})")
                } else {
                    format!("k{at} IN (SELECT id{at} FROM d{at} WHERE 1 = 1{within})")
                });
                continue;
            }
            joined.tables.push(format!("d{at}"));
            joined.conditions.push(format!("k{at} = id{at}"));
            joined.prefixes.push(format!("d{at}"));
            if has_arm && random.one_in(4) {
                joined.conditions.push(format!("d{at}.e{at} IN (SELECT eid{at} FROM e{at})"));
            } else if has_arm {
                joined.tables.push(format!("e{at}"));
                joined.conditions.push(format!("e{at}.eid{at} = d{at}.e{at}"));
                joined.prefixes.push(format!("e{at}.e{at}"));
            }
        }
        for at in (1..joined.tables.len()).rev() {
            joined.tables.swap(at, random.below(at + 1));
        }
        joined
    }

    /// Prefix of a table that is joined.
    fn any(&self, random: &mut Random) -> String {
        random.of(&self.prefixes).clone()
    }

    /// Adds conditions on one table, and on two of them.
    fn add_conditions(&mut self, random: &mut Random) {
        for prefix in &self.prefixes {
            if random.one_in(3) {
                self.conditions.push(condition(random, prefix));
            }
        }
        if random.one_in(3) {
            self.conditions.push(condition(random, "f"));
        }
        if random.one_in(3) {
            let (one, other) = (self.any(random), self.any(random));
            self.conditions.push(match random.below(6) {
                0 => format!("{one}a = {other}a"),
                1 => format!("{one}s = {other}s"),
                2 => format!("{one}a + 1 > {other}a"),
                3 => format!("fa = {one}a"),
                4 => format!("({one}s = 'x' AND {other}a > 0 OR {one}s = 'yy' AND fa < 2)"),
                _ => format!("{one}a <> fa"),
            });
        }
    }

    /// Expression to group by.
    fn key(&self, random: &mut Random) -> String {
        let of = self.any(random);
        match random.below(9) {
            0 => format!("{of}a + 1"),
            1 => format!("{of}w * 2"),
            2 => format!("coalesce({of}s, 'none')"),
            3 => "fa".to_owned(),
            4 | 5 => format!("{of}a"),
            6 => format!("{of}w"),
            _ => format!("{of}s"),
        }
    }

    fn aggregate(&self, random: &mut Random) -> String {
        let of = self.any(random);
        match random.below(16) {
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
        }
    }
}

/// Random query over a star.
fn query(random: &mut Random, star: &Star) -> String {
    let mut joined = Joined::new(random, star);
    joined.add_conditions(random);
    let groups = random.below(4);
    let mut selected: Vec<String> = (0..groups).map(|_| joined.key(random)).collect();
    for _ in 0..1 + random.below(4) {
        selected.push(joined.aggregate(random));
    }
    let named = selected.iter().enumerate().map(|(at, of)| format!("{of} AS c{at}"));
    let named: Vec<String> = named.collect();
    let mut sql = format!("SELECT {} FROM {}", named.join(", "), joined.tables.join(", "));
    sql += &format!(" WHERE {}", joined.conditions.join(" AND "));
    if groups > 0 {
        let keys: Vec<String> = (1..=groups).map(|at| at.to_string()).collect();
        sql += &format!(" GROUP BY {}", keys.join(", "));
    }
    sql
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
