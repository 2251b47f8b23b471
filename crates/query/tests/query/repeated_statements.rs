//! Statements that come again in a session: they give what a session gives that runs them for the first time.

use crate::runner::{TestDatabase, rows};
use entresol_query::Session;

const QUERIES: [&str; 12] = [
    "SELECT sum(v) FROM fact WHERE v < 5",
    "SELECT name, sum(v) FROM fact, dim WHERE fact.d = dim.d AND dim.r = 'east' GROUP BY name ORDER BY name",
    "SELECT count(*) FROM fact, dim, other WHERE fact.d = dim.d AND fact.o = other.o AND w > 1",
    "SELECT id, v FROM fact WHERE id = 7",
    "SELECT id FROM fact WHERE v = 3 ORDER BY id LIMIT 3",
    "SELECT max(v), min(id) FROM fact",
    "SELECT name FROM dim WHERE d IN (SELECT o FROM other WHERE w > 1) ORDER BY name",
    "SELECT name, (SELECT max(w) FROM other WHERE other.o = dim.d) FROM dim ORDER BY name",
    "SELECT d, count(*) FROM fact GROUP BY d HAVING count(*) > (SELECT count(*) FROM other) ORDER BY d",
    "SELECT DISTINCT o FROM fact WHERE v BETWEEN 2 AND 8 ORDER BY o LIMIT 1 + 2",
    "SELECT east.name FROM east ORDER BY 1",
    "SELECT at::text FROM times ORDER BY 1",
];

/// Changes between the rounds, each of which makes some plan of before wrong or slow.
const CHANGES: [&str; 14] = [
    "INSERT INTO fact SELECT i, i % 5, i % 3, i % 17 FROM generate_series(1001, 1500) g(i)",
    "CREATE INDEX fact_v ON fact (v)",
    "DELETE FROM fact WHERE id % 3 = 0",
    "ALTER TABLE dim ADD COLUMN extra INT",
    "DROP INDEX fact_v",
    "SET TIME ZONE 'Asia/Tokyo'",
    "CREATE OR REPLACE VIEW east AS SELECT name FROM dim WHERE r = 'west'",
    "ALTER TABLE fact SET (layout = 'columns')",
    "UPDATE dim SET r = 'east' WHERE d = 1",
    "VACUUM fact",
    "CREATE UNIQUE INDEX other_o ON other (o)",
    "DROP TABLE other",
    "CREATE TABLE other (w INT, o INT)",
    "INSERT INTO other VALUES (2, 1), (3, 2), (0, 4)",
];

async fn run(session: &mut Session, sql: &str) {
    session.execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

async fn result(session: &mut Session, sql: &str) -> Result<Vec<String>, String> {
    session.query(sql).await.map(|batches| rows(&batches)).map_err(|error| error.to_string())
}

async fn tables(session: &mut Session) {
    run(session, "CREATE TABLE fact (id INT PRIMARY KEY, d INT, o INT, v INT)").await;
    run(session, "CREATE TABLE dim (d INT PRIMARY KEY, name TEXT, r TEXT)").await;
    run(session, "CREATE TABLE other (o INT, w INT)").await;
    run(session, "CREATE TABLE times (at TIMESTAMPTZ)").await;
    run(session, "CREATE VIEW east AS SELECT name FROM dim WHERE r = 'east'").await;
    run(session, "INSERT INTO fact SELECT i, i % 5, i % 3, i % 11 FROM generate_series(1, 1000) g(i)").await;
    run(
        session,
        "INSERT INTO dim VALUES (0, 'a', 'east'), (1, 'b', 'west'), (2, 'c', 'east'), (3, 'e', 'west')",
    )
    .await;
    run(session, "INSERT INTO other VALUES (0, 1), (1, 2), (2, 3)").await;
    run(session, "INSERT INTO times VALUES ('2026-01-01 00:00:00Z'), ('2026-07-01 12:30:00Z')").await;
}

#[tokio::test]
async fn a_statement_that_comes_again_gives_what_it_gives_for_the_first_time() {
    let database = TestDatabase::volatile();
    let mut session = database.session();
    tables(&mut session).await;
    for change in ["SELECT 1"].into_iter().chain(CHANGES) {
        run(&mut session, change).await;
        for repeat in 0..4 {
            for sql in QUERIES {
                let mut fresh = database.session();
                if change != "SELECT 1" && CHANGES.iter().position(|at| *at == change) >= Some(5) {
                    run(&mut fresh, "SET TIME ZONE 'Asia/Tokyo'").await;
                }
                let expected = result(&mut fresh, sql).await;
                assert_eq!(result(&mut session, sql).await, expected, "run {repeat} after {change}: {sql}");
                assert_eq!(fresh.plan_reuses(), 0);
            }
        }
    }
    assert!(session.plan_reuses() > 200, "{} plans were reused", session.plan_reuses());
}

#[tokio::test]
async fn plans_are_of_the_transaction_and_of_the_point_in_time() {
    let database = TestDatabase::journal();
    let (mut session, mut writer) = (database.session(), database.session());
    tables(&mut session).await;
    let count = "SELECT count(*) FROM fact";
    for _ in 0..3 {
        assert_eq!(result(&mut session, count).await, Ok(vec!["1000".to_owned()]));
    }
    run(&mut session, "BEGIN").await;
    assert_eq!(result(&mut session, count).await, Ok(vec!["1000".to_owned()]));
    run(&mut writer, "DELETE FROM fact WHERE id > 10").await;
    assert_eq!(result(&mut session, count).await, Ok(vec!["1000".to_owned()]), "the snapshot of the block");
    run(&mut session, "DELETE FROM fact WHERE id = 1").await;
    assert_eq!(result(&mut session, count).await, Ok(vec!["999".to_owned()]), "its own writes");
    run(&mut session, "ROLLBACK").await;
    assert_eq!(result(&mut session, count).await, Ok(vec!["10".to_owned()]));
    assert!(session.plan_reuses() >= 4);
}

#[tokio::test]
async fn functions_of_the_time_and_of_chance_are_computed_in_each_run() {
    let database = TestDatabase::volatile();
    let mut session = database.session();
    tables(&mut session).await;
    run(&mut session, "CREATE SEQUENCE s").await;
    let mut texts = std::collections::BTreeSet::new();
    for sql in ["SELECT random()", "SELECT nextval('s')", "SELECT clock_timestamp()::text"] {
        for _ in 0..4 {
            texts.insert(result(&mut session, sql).await.unwrap());
        }
    }
    assert_eq!(texts.len(), 12, "{texts:?}");
    assert_eq!(session.plan_reuses(), 0);
    for value in ["a", "b"] {
        run(&mut session, &format!("SET application_name = '{value}'")).await;
        for _ in 0..3 {
            let shown = result(&mut session, "SELECT current_setting('application_name')").await;
            assert_eq!(shown, Ok(vec![value.to_owned()]));
        }
    }
}
