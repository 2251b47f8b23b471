//! Selections of a table by columns with Elf indexes beside those of the same table by rows, once the indexes are
//! in the cache; and what EXPLAIN ANALYZE says of them.

use crate::runner::rows;
use entresol_memory::budget::MemoryBudget;
use entresol_memory::{Pool, PoolOptions};
use entresol_query::{Session, SessionOptions, StatementResult};
use entresol_tables::{Catalog, check};
use entresol_transactions::StateContext;
use std::sync::Arc;

const ROWS: u64 = 30_000;
/// Executions after which the indexes are in the cache.
const WARM: usize = 40;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }
}

fn catalog() -> Arc<Catalog> {
    let memory = Some(MemoryBudget::new(512 << 20).unwrap());
    let pool = Pool::volatile(&PoolOptions { memory, ..PoolOptions::default() }).unwrap();
    Catalog::open_or_create(StateContext::open_or_create(pool).unwrap()).unwrap()
}

fn session(catalog: &Arc<Catalog>) -> Session {
    let options = SessionOptions { target_partitions: Some(2), ..SessionOptions::default() };
    Session::new(Arc::clone(catalog), options)
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

/// Sum of a counter in what EXPLAIN ANALYZE says.
async fn counter(session: &mut Session, sql: &str, name: &str) -> u64 {
    let plan = read(session, &format!("EXPLAIN ANALYZE {sql}")).await.join("\n");
    let found = plan.split(&format!("{name}=")).nth(1).unwrap_or_else(|| panic!("no {name} in {plan}"));
    found.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

/// Both tables, with the same rows.
async fn fill(session: &mut Session) {
    const COLUMNS: &str = "id BIGINT PRIMARY KEY, day DATE, price DECIMAL(12, 2), part INT, mode VARCHAR, \
         weight DOUBLE, ratio REAL, flag BOOLEAN";
    run(session, &format!("CREATE TABLE by_rows ({COLUMNS})")).await;
    run(session, &format!("CREATE TABLE t ({COLUMNS}) WITH (layout = 'columns')")).await;
    run(
        session,
        &format!(
            "INSERT INTO by_rows SELECT i, DATE '2026-01-01' + CAST(i * 7919 % 50 AS INT), \
             CASE WHEN i % 11 = 0 THEN NULL ELSE (i * 31 % 40) / 4.0 END, i * 17 % 97, \
             CASE WHEN i % 13 = 0 THEN NULL ELSE 'mode ' || (i * 5 % 7) END, \
             CASE i % 1000 WHEN 1 THEN 'NaN'::double WHEN 2 THEN -0.0::double WHEN 3 THEN 'Infinity'::double \
             WHEN 4 THEN NULL ELSE CAST((i * 3 % 64 - 20) / 8.0 AS DOUBLE) END, (i * 3 % 17) / 4.0, i % 3 = 0 \
             FROM generate_series(1, {ROWS}) g(i)"
        ),
    )
    .await;
    run(session, "INSERT INTO t SELECT * FROM by_rows").await;
    run(session, "VACUUM t").await;
}

fn comparison(random: &mut Random) -> String {
    let op = ["=", "<", "<=", ">", ">="][random.below(5) as usize];
    match random.below(12) {
        0 | 1 => format!("day = DATE '2026-01-01' + {}", random.below(55)),
        2 => format!("day BETWEEN '2026-01-10' AND DATE '2026-01-10' + {}", random.below(20)),
        3 => format!("price {op} {}.25", random.below(11)),
        4 => format!("part IN ({}, {}, 5)", random.below(100), random.below(100)),
        5 => format!("part {op} {}", random.below(97)),
        6 => format!("mode {op} 'mode {}'", random.below(8)),
        7 => "mode IS NULL".to_owned(),
        8 => "price IS NOT NULL".to_owned(),
        9 => format!("weight {op} {}", (random.below(60) as f64 - 20.0) / 8.0),
        10 => format!("ratio {op} {}", random.below(17) as f64 / 4.0),
        _ => ["flag", "NOT flag"][random.below(2) as usize].to_owned(),
    }
}

async fn compare(session: &mut Session, random: &mut Random, times: usize) {
    for _ in 0..times {
        let count = 1 + random.below(4);
        let conditions: Vec<String> = (0..count).map(|_| comparison(random)).collect();
        let of = |table: &str| {
            let conditions = conditions.join(" AND ");
            format!("SELECT id, price, weight FROM {table} WHERE {conditions} ORDER BY id")
        };
        assert_eq!(read(session, &of("t")).await, read(session, &of("by_rows")).await, "{conditions:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn selections_with_an_elf_agree_with_those_of_rows() {
    let catalog = catalog();
    let (mut session, mut random) = (session(&catalog), Random(11));
    fill(&mut session).await;
    run(&mut session, "CREATE INDEX e ON t USING elf (day, price, part, mode, weight, ratio, flag)").await;
    run(&mut session, "CREATE INDEX f ON t USING elf (weight, mode, flag) WITH (dimension_order = 'auto')")
        .await;
    let few = "SELECT id FROM t WHERE day = '2026-01-05' AND part = 7 AND mode = 'mode 3'";
    let before = read(&mut session, few).await;
    assert_eq!(counter(&mut session, few, "elf_searches").await, 0, "it is not read for one query");
    for _ in 0..WARM {
        assert_eq!(read(&mut session, few).await, before);
    }
    assert_eq!(counter(&mut session, few, "elf_searches").await, 1);
    assert_eq!(counter(&mut session, few, "elf_rows").await, before.len() as u64);
    let weights = "SELECT id FROM t WHERE weight BETWEEN 0.25 AND 0.5 AND mode = 'mode 3' AND flag";
    for _ in 0..WARM {
        read(&mut session, weights).await;
    }
    compare(&mut session, &mut random, 30).await;
    // Changes that are not merged, in a transaction and after it.
    run(&mut session, "BEGIN").await;
    for table in ["t", "by_rows"] {
        run(&mut session, &format!("UPDATE {table} SET part = 7, mode = 'mode 3' WHERE id % 100 = 5")).await;
        run(&mut session, &format!("DELETE FROM {table} WHERE id % 50 = 7")).await;
    }
    compare(&mut session, &mut random, 15).await;
    run(&mut session, "COMMIT").await;
    compare(&mut session, &mut random, 15).await;
    run(&mut session, "VACUUM t").await;
    compare(&mut session, &mut random, 15).await;
    run(&mut session, "DROP INDEX f").await;
    compare(&mut session, &mut random, 15).await;
    assert_eq!(check(&catalog, |_| {}).unwrap().problems, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_in_the_cache_find_the_rows_and_show_what_they_are() {
    let catalog = catalog();
    let (mut session, mut random) = (session(&catalog), Random(12));
    fill(&mut session).await;
    run(
        &mut session,
        "CREATE INDEX e ON t USING elf (day, part, mode) WITH (cache = 'lists', cache_policy = 'levels:1+lru')",
    )
    .await;
    let few = "SELECT id FROM t WHERE day = '2026-01-05' AND part = 7 AND mode = 'mode 3'";
    let before = read(&mut session, few).await;
    for _ in 0..WARM {
        assert_eq!(read(&mut session, few).await, before);
    }
    assert_eq!(counter(&mut session, few, "elf_searches").await, 1);
    let plan = read(&mut session, &format!("EXPLAIN {few}")).await.join("\n");
    assert!(plan.contains("elf=e (lists by levels:1+lru)"), "{plan}");
    compare(&mut session, &mut random, 30).await;
    let shown = "SELECT pages, bytes > 0, hits > 0, lists > 1, levels LIKE '1, %', expected_gain_ms = 0 FROM entresol.cache WHERE \"column\" = 'e'";
    let shown = read(&mut session, shown).await;
    assert_eq!(shown.len(), 1, "{shown:?}");
    assert!(!shown[0].contains("false") && !shown[0].contains("|f"), "{shown:?}");
    run(&mut session, "DELETE FROM t WHERE part = 7").await;
    run(&mut session, "DELETE FROM by_rows WHERE part = 7").await;
    run(&mut session, "VACUUM t").await;
    compare(&mut session, &mut random, 15).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doubles_that_are_equal_or_unordered_are_found() {
    let catalog = catalog();
    let mut session = session(&catalog);
    fill(&mut session).await;
    run(&mut session, "CREATE INDEX e ON t USING elf (weight, day)").await;
    for condition in [
        "weight = 0",
        "weight >= 0 AND weight <= 0",
        "weight < 0 AND weight > -0.2",
        "weight > 5.3",
        "weight = 'NaN'",
        "weight >= 'Infinity'",
        "weight IS NULL",
    ] {
        let of = |table: &str| format!("SELECT id FROM {table} WHERE {condition} ORDER BY id");
        let expected = read(&mut session, &of("by_rows")).await;
        assert!(!expected.is_empty(), "{condition}");
        for _ in 0..4 {
            assert_eq!(read(&mut session, &of("t")).await, expected, "{condition}");
        }
    }
}
