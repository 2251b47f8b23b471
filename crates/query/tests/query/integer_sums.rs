//! Sums and averages of BIGINTs in all places where there may be one, beside those that are computed here in 128 bits.

use crate::runner::{TestDatabase, rows};
use entresol_query::{Session, StatementResult};
use std::collections::BTreeMap;

const ROWS: usize = 20_000;
const GROUPS: usize = 997;

async fn run(session: &mut Session, sql: &str) {
    session.execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

async fn read(session: &mut Session, sql: &str) -> Vec<String> {
    let mut results = session.execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    match results.pop().unwrap() {
        StatementResult::Rows(found) => rows(&found.batches),
        other => panic!("{sql}: {other:?}"),
    }
}

/// Value of a row: the least and the greatest BIGINT, NULL, and numbers between.
fn value(row: usize) -> Option<i64> {
    match row % 11 {
        0 => Some(i64::MAX),
        4 | 5 => Some(i64::MIN),
        7 => None,
        other => Some((row as i64 - 10_000) * (other as i64 - 6) * 1_000_000_007),
    }
}

/// Values of all rows; three groups have NULLs alone.
fn values() -> Vec<Option<i64>> {
    (0..ROWS).map(|row| if row % GROUPS < 3 { None } else { value(row) }).collect()
}

fn shown(sum: Option<i128>) -> String {
    sum.map_or("NULL".to_owned(), |sum| sum.to_string())
}

fn sum(values: impl Iterator<Item = Option<i64>>) -> Option<i128> {
    values.flatten().map(i128::from).reduce(|sum, value| sum + value)
}

/// Average with 16 digits, rounded half away from zero.
fn average(values: impl Iterator<Item = Option<i64>>) -> String {
    let values: Vec<i64> = values.flatten().collect();
    if values.is_empty() {
        return "NULL".to_owned();
    }
    let (sum, count) = (sum(values.iter().copied().map(Some)).unwrap_or(0), values.len() as i128);
    let (whole, rest) = (sum.abs() / count, sum.abs() % count);
    let digits = (rest * 10_i128.pow(16) * 2 + count) / (2 * count);
    let (whole, digits) = (whole + digits / 10_i128.pow(16), digits % 10_i128.pow(16));
    let sign = if sum < 0 { "-" } else { "" };
    format!("{sign}{whole}.{digits:016}")
}

async fn filled(layout: &str) -> (TestDatabase, Session) {
    let database = TestDatabase::volatile();
    let mut session = database.session();
    run(
        &mut session,
        &format!("CREATE TABLE t (k INT PRIMARY KEY, g INT NOT NULL, b BIGINT) WITH (layout = '{layout}')"),
    )
    .await;
    for part in values().chunks(5_000).enumerate() {
        let row = |(at, value): (usize, &Option<i64>)| {
            let row = part.0 * 5_000 + at;
            format!(
                "({row}, {}, {})",
                row % GROUPS,
                value.map_or("NULL".to_owned(), |value| value.to_string())
            )
        };
        let tuples: Vec<String> = part.1.iter().enumerate().map(row).collect();
        run(&mut session, &format!("INSERT INTO t VALUES {}", tuples.join(", "))).await;
    }
    if layout == "columns" {
        run(&mut session, "VACUUM t").await;
    }
    (database, session)
}

/// Values of each group, with their rows.
fn groups(values: &[Option<i64>]) -> BTreeMap<usize, Vec<(usize, Option<i64>)>> {
    let mut groups: BTreeMap<usize, Vec<_>> = BTreeMap::new();
    values
        .iter()
        .enumerate()
        .for_each(|(row, value)| groups.entry(row % GROUPS).or_default().push((row, *value)));
    groups
}

async fn compare_aggregates(session: &mut Session) {
    let values = values();
    let all = || values.iter().copied();
    let of_all = read(session, "SELECT count(b), sum(b), avg(b), sum(b + 0), min(b) FROM t").await;
    let total = shown(sum(all()));
    let count = values.iter().flatten().count();
    assert_eq!(of_all, [format!("{count} {total} {} {total} {}", average(all()), i64::MIN)]);
    let positive = values.iter().copied().filter(|value| value.is_some_and(|value| value > 0));
    let found = read(session, "SELECT sum(b) FILTER (WHERE b > 0), avg(b) FILTER (WHERE k < 0) FROM t").await;
    assert_eq!(found, [format!("{} NULL", shown(sum(positive)))]);
    assert_eq!(read(session, "SELECT sum(b), avg(b), count(b) FROM t WHERE k < 0").await, ["NULL NULL 0"]);
    assert_eq!(read(session, "SELECT g, sum(b) FROM t WHERE k < 0 GROUP BY g").await, [""; 0]);

    let sql = "SELECT g, sum(b), avg(b), sum(b) FILTER (WHERE k % 3 = 0) FROM t GROUP BY g ORDER BY g";
    let expected: Vec<String> = groups(&values)
        .iter()
        .map(|(group, rows)| {
            let of = || rows.iter().map(|(_, value)| *value);
            let third = rows.iter().filter(|(row, _)| row % 3 == 0).map(|(_, value)| *value);
            format!("{group} {} {} {}", shown(sum(of())), average(of()), shown(sum(third)))
        })
        .collect();
    assert_eq!(read(session, sql).await, expected);
    let of_groups =
        expected.iter().filter(|row| row.split(' ').nth(1).is_some_and(|sum| sum.starts_with('-')));
    let having = read(session, "SELECT count(*) FROM (SELECT g FROM t GROUP BY g HAVING sum(b) < 0) s").await;
    assert_eq!(having, [of_groups.count().to_string()]);
    let twice = "SELECT sum(s) FROM (SELECT g, sum(b) AS s FROM t GROUP BY g) q";
    assert_eq!(read(session, twice).await, [shown(sum(all()))]);

    let mut different: Vec<i64> = values.iter().copied().flatten().collect();
    different.sort_unstable();
    different.dedup();
    let distinct = || different.iter().copied().map(Some);
    let found = read(session, "SELECT sum(DISTINCT b), avg(DISTINCT b), sum(b), max(b) FROM t").await;
    let expected = [shown(sum(distinct())), average(distinct()), shown(sum(all())), i64::MAX.to_string()];
    assert_eq!(found, [expected.join(" ")]);
    // One DISTINCT argument beside a sum becomes an aggregate of an aggregate.
    let found = read(session, "SELECT sum(DISTINCT g), sum(b) FROM t").await;
    assert_eq!(found, [format!("{} {}", GROUPS * (GROUPS - 1) / 2, shown(sum(all())))]);
}

async fn compare_windows(session: &mut Session) {
    let values = values();
    let sql = "SELECT k, sum(b) OVER (ORDER BY k), \
         sum(b) OVER (ORDER BY k ROWS BETWEEN 3 PRECEDING AND 1 FOLLOWING), \
         avg(b) OVER (ORDER BY k ROWS BETWEEN 2 PRECEDING AND CURRENT ROW), \
         sum(b) OVER (PARTITION BY g) FROM t ORDER BY k";
    let groups = groups(&values);
    let mut running = None;
    let mut expected = Vec::with_capacity(ROWS);
    for (row, value) in values.iter().enumerate() {
        running = sum([*value].into_iter()).map_or(running, |value| Some(running.unwrap_or(0) + value));
        let frame = values[row.saturating_sub(3)..(row + 2).min(ROWS)].iter().copied();
        let before = values[row.saturating_sub(2)..=row].iter().copied();
        let of_group = sum(groups[&(row % GROUPS)].iter().map(|(_, value)| *value));
        let sums = [shown(running), shown(sum(frame)), average(before), shown(of_group)];
        expected.push(format!("{row} {}", sums.join(" ")));
    }
    let found = read(session, sql).await;
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found, expected);
    }
    assert_eq!(found.len(), expected.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sums_of_extreme_values_are_exact_in_rows() {
    let (_database, mut session) = filled("rows").await;
    compare_aggregates(&mut session).await;
    compare_windows(&mut session).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sums_of_extreme_values_are_exact_in_columns() {
    let (_database, mut session) = filled("columns").await;
    compare_aggregates(&mut session).await;
    compare_windows(&mut session).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sums_take_bigints_without_a_cast() {
    let (_database, mut session) = filled("columns").await;
    for sql in [
        "SELECT sum(b) FROM t",
        "SELECT avg(b), sum(b) FROM t",
        "SELECT g, sum(b), avg(b) FROM t GROUP BY g",
        "SELECT sum(b) OVER (ORDER BY k ROWS 3 PRECEDING) FROM t",
        "SELECT sum(b + k) FROM t",
    ] {
        let plan = read(&mut session, &format!("EXPLAIN {sql}")).await.join("\n");
        assert!(plan.contains("sum(") && !plan.contains("AS Decimal128"), "{sql}: {plan}");
    }
    // A sum that two results need is one.
    let plan = read(&mut session, "EXPLAIN SELECT avg(b), sum(b) FROM t").await.join("\n");
    let partial = plan.lines().find(|line| line.contains("AggregateExec: mode=Partial"));
    assert_eq!(partial.map(|line| line.matches("sum(").count()), Some(1), "{plan}");
    let types = "SELECT arrow_typeof(sum(b)), arrow_typeof(avg(b)), arrow_typeof(sum(k)) FROM t";
    assert_eq!(read(&mut session, types).await, ["Decimal128(29, 0) Decimal128(38, 16) Int64"]);
}
