//! Scans backwards, in parts and by ranges of keys return what a scan of everything does, beside the
//! transaction's own writes and rows that are gone.

use crate::runner::{TestDatabase, rows};
use entresol_query::{Session, StatementResult};
use std::collections::BTreeMap;

/// Enough for two parts of a range.
const ROWS: i64 = 60_000;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: i64) -> i64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % bound as u64) as i64
    }
}

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

/// Rows of a model in a range, in the order of the key.
fn shown(model: &BTreeMap<i64, i64>, from: i64, to: i64) -> Vec<String> {
    model.range(from..to).map(|(id, v)| format!("{id} {v}")).collect()
}

async fn compare(session: &mut Session, model: &BTreeMap<i64, i64>, random: &mut Random) {
    let (from, to) = (random.below(ROWS), random.below(2 * ROWS));
    let (from, to) = (from.min(to), from.max(to));
    let expected = shown(model, from, to);
    let condition = format!("id >= {from} AND id < {to}");
    let mut found = read(session, &format!("SELECT id, v FROM t WHERE {condition} ORDER BY id DESC")).await;
    found.reverse();
    assert_eq!(found, expected, "{condition}");
    let sums = model.range(from..to).fold((0, 0), |(rows, sum), (_, v)| (rows + 1, sum + v));
    let sums = if sums.0 == 0 { "0 NULL".to_owned() } else { format!("{} {}", sums.0, sums.1) };
    let aggregate = format!("SELECT count(*), sum(v) FROM t WHERE {condition}");
    assert_eq!(read(session, &aggregate).await, [sums], "{condition}");
    let limit = 1 + random.below(2000) as usize;
    let latest =
        format!("SELECT id, v FROM t WHERE {condition} AND v % 3 = 0 ORDER BY id DESC LIMIT {limit}");
    let divisible = model.range(from..to).rev().filter(|(_, v)| *v % 3 == 0);
    let divisible: Vec<String> = divisible.take(limit).map(|(id, v)| format!("{id} {v}")).collect();
    assert_eq!(read(session, &latest).await, divisible, "{condition}, {limit}");
    let ends = read(session, &format!("SELECT min(id) FROM t WHERE {condition}")).await;
    let first = model.range(from..to).next().map_or("NULL".to_owned(), |(id, _)| id.to_string());
    assert_eq!(ends, [first]);
}

/// Changes every row of one residue class, or deletes or inserts them.
async fn change(session: &mut Session, model: &mut BTreeMap<i64, i64>, random: &mut Random) {
    let (modulus, rest) = (3 + random.below(7), random.below(3));
    let hit = |id: &i64| id % modulus == rest;
    match random.below(3) {
        0 => {
            run(session, &format!("DELETE FROM t WHERE id % {modulus} = {rest}")).await;
            model.retain(|id, _| !hit(id));
        }
        1 => {
            run(session, &format!("UPDATE t SET v = v + 1 WHERE id % {modulus} = {rest}")).await;
            model.iter_mut().filter(|(id, _)| hit(id)).for_each(|(_, v)| *v += 1);
        }
        _ => {
            let sql = format!(
                "INSERT INTO t SELECT i, i FROM generate_series(1, {ROWS}) g(i) WHERE i % {modulus} = {rest} \
                 ON CONFLICT DO NOTHING"
            );
            run(session, &sql).await;
            (1..=ROWS).filter(hit).for_each(|id| {
                model.entry(id).or_insert(id);
            });
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scans_backwards_and_in_parts_agree_with_a_model() {
    let database = TestDatabase::volatile();
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)").await;
    run(&mut session, &format!("INSERT INTO t SELECT i, i FROM generate_series(1, {ROWS}) g(i)")).await;
    let mut model: BTreeMap<i64, i64> = (1..=ROWS).map(|id| (id, id)).collect();
    let plan = read(&mut session, "EXPLAIN SELECT sum(v) FROM t").await.join("\n");
    assert!(plan.contains("partitions=2"), "{plan}");
    let mut random = Random(7);
    for _ in 0..6 {
        change(&mut session, &mut model, &mut random).await;
        compare(&mut session, &model, &mut random).await;
        // The same within a transaction, which is rolled back.
        run(&mut session, "BEGIN").await;
        let mut own = model.clone();
        change(&mut session, &mut own, &mut random).await;
        compare(&mut session, &own, &mut random).await;
        run(&mut session, "ROLLBACK").await;
        compare(&mut session, &model, &mut random).await;
    }
}
