//! Lookup joins: they give what hash joins give, and read what they need.

use crate::runner::{TestDatabase, rows};
use entresol_query::Session;

async fn run(session: &mut Session, sql: &str) {
    session.execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

async fn of(session: &mut Session, sql: &str) -> Vec<String> {
    rows(&session.query(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}")))
}

/// Large tables by key, by two key columns and by an index, and small ones that join with them.
async fn tables() -> (TestDatabase, Session) {
    let database = TestDatabase::volatile();
    let mut session = database.session();
    for sql in [
        "CREATE TABLE big (id INT PRIMARY KEY, v INT, t VARCHAR)",
        "INSERT INTO big SELECT i, i % 500, 'n' || i % 700 FROM generate_series(1, 4000) g(i)",
        "INSERT INTO big VALUES (5000, NULL, NULL), (5001, NULL, 'n1')",
        "CREATE INDEX big_v ON big (v, t)",
        "CREATE TABLE pairs (x INT, y INT, z INT, PRIMARY KEY (x, y))",
        "INSERT INTO pairs SELECT i % 400, i, i % 7 FROM generate_series(1, 4000) g(i)",
        "CREATE TABLE few (k INT, l BIGINT, t VARCHAR)",
        "INSERT INTO few VALUES (1, 1, 'n1'), (7, 2, 'n7'), (7, 3, NULL), (NULL, 4, 'n2'), (9999, 5, 'n3'), (3, 6, 'n3')",
        "CREATE TABLE none (k INT)",
    ] {
        run(&mut session, sql).await;
    }
    (database, session)
}

/// Joins with columns of the large table in brackets, and whether they look up rows.
const JOINS: [(&str, bool); 17] = [
    ("SELECT k, l, v FROM few JOIN big ON k = [id]", true),
    ("SELECT k, l, v FROM few JOIN big ON k + 2 = [id]", true),
    ("SELECT k, v FROM few LEFT JOIN big ON k = [id]", true),
    ("SELECT k, id FROM few LEFT JOIN big ON k = [id] AND big.t <> 'n7' AND few.l < 6", true),
    ("SELECT k, id FROM few JOIN big ON k = [v]", true),
    ("SELECT k, id FROM few JOIN big ON k = [v] AND few.t = big.t", true),
    ("SELECT k, y, z FROM few JOIN pairs ON k = [x]", true),
    ("SELECT k, y FROM few JOIN pairs ON k = [x] AND z = 3", true),
    ("SELECT k FROM few WHERE EXISTS (SELECT 1 FROM big WHERE [id] = k)", true),
    ("SELECT k FROM few WHERE NOT EXISTS (SELECT 1 FROM big WHERE [id] = k)", true),
    ("SELECT k FROM few WHERE k IN (SELECT [v] FROM big WHERE t = 'n7')", false),
    ("SELECT k FROM few WHERE k NOT IN (SELECT [v] FROM big)", false),
    ("SELECT k FROM few WHERE k NOT IN (SELECT [id] FROM big)", false),
    ("SELECT k, id FROM few RIGHT JOIN big ON k = [id] WHERE id < 20", false),
    ("SELECT k, id FROM few FULL JOIN big ON k = [id] WHERE id < 20 OR id IS NULL", false),
    ("SELECT few.k, id FROM none JOIN few USING (k) JOIN big ON few.k = [id]", false),
    ("SELECT a.id, b.v FROM big a JOIN big b ON a.v = [b.id] WHERE a.id BETWEEN 10 AND 14", false),
];

#[tokio::test]
async fn a_lookup_join_gives_what_a_hash_join_gives() {
    let (_database, mut session) = tables().await;
    for (sql, looks_up) in JOINS {
        let by_key = sql.replace(['[', ']'], "");
        // No key is compared: the column is part of an expression.
        let by_hash = sql.replace('[', "(").replace(']', " + 0)");
        let sorted = |mut rows: Vec<String>| {
            rows.sort_unstable();
            rows
        };
        let expected = sorted(of(&mut session, &by_hash).await);
        assert_eq!(sorted(of(&mut session, &by_key).await), expected, "{by_key}");
        if looks_up {
            let plan = of(&mut session, &format!("EXPLAIN ANALYZE {by_key}")).await.join("\n");
            assert!(plan.contains("LookupJoinExec") && plan.contains("lookups=1"), "{by_key}\n{plan}");
            let plan = of(&mut session, &format!("EXPLAIN {by_hash}")).await.join("\n");
            assert!(!plan.contains("LookupJoinExec"), "{by_hash}\n{plan}");
        }
    }
}

#[tokio::test]
async fn many_keys_are_joined_by_a_scan() {
    let (_database, mut session) = tables().await;
    run(&mut session, "INSERT INTO few SELECT i, i, NULL FROM generate_series(1, 2000) g(i)").await;
    let sql = "SELECT count(*), sum(v) FROM few JOIN big ON few.k = big.id";
    assert_eq!(of(&mut session, sql).await, ["2004 499018"]);
    let plan = of(&mut session, &format!("EXPLAIN ANALYZE {sql}")).await.join("\n");
    assert!(!plan.contains("lookups=1"), "{plan}");
}

#[tokio::test]
async fn lookups_see_what_their_transaction_sees() {
    let (database, mut session) = tables().await;
    let mut other = database.session();
    let sql = "SELECT few.k, v FROM few JOIN big ON few.k = big.id WHERE l < 3 ORDER BY k";
    run(&mut session, "BEGIN ISOLATION LEVEL REPEATABLE READ").await;
    assert_eq!(of(&mut session, sql).await, ["1 1", "7 7"]);
    run(&mut other, "DELETE FROM big WHERE id = 1").await;
    assert_eq!(of(&mut session, sql).await, ["1 1", "7 7"]);
    run(&mut session, "UPDATE big SET v = 70 WHERE id = 7").await;
    assert_eq!(of(&mut session, sql).await, ["1 1", "7 70"]);
    run(&mut session, "ROLLBACK").await;
    assert_eq!(of(&mut session, sql).await, ["7 7"]);
}

#[tokio::test]
async fn rows_stay_in_the_order_that_the_plan_relies_on() {
    let database = TestDatabase::volatile();
    let mut session = database.session();
    for sql in [
        "CREATE TABLE big (a INT, id INT, k INT, PRIMARY KEY (a, id))",
        "INSERT INTO big SELECT i % 7, i, (i * 37) % 500 FROM generate_series(1, 5000) g(i)",
        "CREATE INDEX big_k ON big (k)",
        "CREATE TABLE few (k INT)",
        "INSERT INTO few VALUES (400), (2), (77)",
    ] {
        run(&mut session, sql).await;
    }
    for sql in [
        "SELECT big.a, big.id FROM few JOIN big ON few.k = [k] ORDER BY big.a, big.id",
        "SELECT big.a, big.id FROM few JOIN big ON few.k = [k] ORDER BY big.a DESC, big.id DESC LIMIT 9",
        "SELECT big.a, count(*) FROM few JOIN big ON few.k = [k] GROUP BY big.a ORDER BY big.a",
        "SELECT big.a, row_number() OVER (PARTITION BY big.a ORDER BY big.id) FROM few JOIN big ON few.k = [k] ORDER BY 1, 2",
    ] {
        let by_key = sql.replace("[k]", "big.k");
        let expected = of(&mut session, &sql.replace("[k]", "(big.k + 0)")).await;
        assert_eq!(of(&mut session, &by_key).await, expected, "{by_key}");
        let statement = session.prepare(&by_key, &[]).await.unwrap();
        let entresol_query::Outcome::Rows(found) = session.run_prepared(&statement, &[]).await.unwrap()
        else {
            panic!("rows");
        };
        assert_eq!(
            rows(&futures::TryStreamExt::try_collect::<Vec<_>>(found).await.unwrap()),
            expected,
            "{by_key}"
        );
    }
}
