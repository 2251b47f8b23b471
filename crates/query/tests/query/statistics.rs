//! ANALYZE: what it stores, who sees it, and what plans make of it; extremes without a scan, pages of scans.

use crate::runner::{TestDatabase, rows};
use entresol_query::{Privileges, Role, Session};

async fn run(session: &mut Session, sql: &str) {
    session.execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

async fn one(session: &mut Session, sql: &str) -> String {
    rows(&session.query(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"))).join(";")
}

async fn plan(session: &mut Session, sql: &str) -> String {
    one(session, &format!("EXPLAIN {sql}")).await
}

#[tokio::test]
async fn analyze_is_seen_in_the_catalog_and_survives_changes() {
    let database = TestDatabase::journal();
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id INT PRIMARY KEY, kind INT, name VARCHAR, empty INT)").await;
    let tuples = "SELECT reltuples::int FROM pg_class WHERE relname = 't'";
    assert_eq!(one(&mut session, tuples).await, "-1");
    run(&mut session, "INSERT INTO t SELECT i, i % 4, 'n' || i, NULL FROM generate_series(1, 5000) g(i)")
        .await;
    assert_eq!(one(&mut session, "SELECT count(*) FROM pg_stats").await, "0", "too few rows for a load");
    run(&mut session, "ANALYZE t (id, kind)").await;
    assert_eq!(session.take_notices(), []);
    assert_eq!(one(&mut session, tuples).await, "5000");
    assert_eq!(one(&mut session, "SELECT attname FROM pg_stats ORDER BY 1").await, "id;kind");
    run(&mut session, "VACUUM ANALYZE t").await;
    let stats = "SELECT attname, null_frac, avg_width, n_distinct, least_value, greatest_value FROM pg_stats \
                 WHERE tablename = 't' ORDER BY 1";
    let expected =
        "empty 1.0 0 1.0 NULL NULL;id 0.0 4 -1.0 1 5000;kind 0.0 4 4.0 0 3;name 0.0 9 -1.0 n1 n999";
    assert_eq!(one(&mut session, stats).await, expected);
    let lists = "SELECT cardinality(most_common_vals), most_common_freqs[1], cardinality(histogram_bounds) FROM pg_stats \
                 WHERE attname IN ('kind', 'id') ORDER BY attname";
    assert_eq!(one(&mut session, lists).await, "NULL NULL 65;4 0.250000 NULL");
    let analyzed = "SELECT n_live_tup, last_analyze > now() - interval '1 hour', last_analyze <= now() \
                    FROM pg_stat_user_tables WHERE relname = 't'";
    assert_eq!(one(&mut session, analyzed).await, "5000 true true");
    run(&mut session, "ALTER TABLE t DROP COLUMN empty; ALTER TABLE t RENAME COLUMN kind TO sort").await;
    run(&mut session, "ALTER TABLE t ADD COLUMN more INT; ALTER TABLE t RENAME TO u").await;
    let database = database.copied();
    let mut session = database.session();
    let expected = "id 1 5000;name n1 n999;sort 0 3";
    let stats = "SELECT attname, least_value, greatest_value FROM pg_stats WHERE tablename = 'u' ORDER BY 1";
    assert_eq!(one(&mut session, stats).await, expected);
    let role = |privileges| Role {
        name: "r".into(),
        administrator: false,
        grants: [("u".to_owned(), privileges)].into(),
    };
    session.set_role(role(Privileges::INSERT));
    assert_eq!(
        one(&mut session, "SELECT count(*) FROM pg_stats").await,
        "0",
        "no value of a table that is not read"
    );
    session.set_role(role(Privileges::SELECT));
    assert_eq!(one(&mut session, stats).await, expected);
    session.set_role(Role { name: "s".into(), administrator: true, grants: Default::default() });
    run(&mut session, "DROP TABLE u").await;
    assert_eq!(one(&mut session, "SELECT count(*) FROM pg_stats").await, "0");
    let error = session.execute("ANALYZE u").await.unwrap_err();
    assert_eq!(error.sqlstate(), "42P01");
}

#[tokio::test]
async fn large_statements_leave_statistics() {
    let database = TestDatabase::journal();
    let mut session = database.session();
    // Rows of a large table are estimated, by rows to some 15 %.
    let tuples = |table: &str| {
        format!(
            "SELECT reltuples BETWEEN 9000 AND 18000 FROM pg_class WHERE relname = '{table}' AND reltuples > 0"
        )
    };
    let series = |to: u32| format!("SELECT i, i % 7 AS v FROM generate_series(1, {to}) g(i)");
    run(&mut session, &format!("CREATE TABLE made AS {}", series(12_000))).await;
    assert_eq!(one(&mut session, &tuples("made")).await, "true");
    for layout in ["rows", "columns"] {
        run(
            &mut session,
            &format!("CREATE TABLE {layout}_t (i INT PRIMARY KEY, v INT) WITH (layout = {layout})"),
        )
        .await;
        run(&mut session, &format!("INSERT INTO {layout}_t {}", series(15_000))).await;
        assert_eq!(one(&mut session, &tuples(&format!("{layout}_t"))).await, "true", "{layout}");
    }
    run(&mut session, "CREATE TABLE undone (i INT PRIMARY KEY, v INT)").await;
    run(&mut session, &format!("BEGIN; INSERT INTO undone {}; ROLLBACK", series(15_000))).await;
    let twice = format!("INSERT INTO undone SELECT i % 14000 + 1, v FROM ({}) x", series(15_000));
    assert_eq!(session.execute(&twice).await.unwrap_err().sqlstate(), "23505");
    run(&mut session, "INSERT INTO undone VALUES (1, 1)").await;
    assert_eq!(one(&mut session, &tuples("undone")).await, "", "nothing of it was committed");
}

#[tokio::test]
async fn joins_build_on_the_side_that_filters_leave_small() {
    let database = TestDatabase::journal();
    let mut session = database.session();
    run(&mut session, "CREATE TABLE large (id INT PRIMARY KEY, other INT, day DATE, mode VARCHAR)").await;
    run(&mut session, "CREATE TABLE middle (id INT PRIMARY KEY, v INT)").await;
    run(
        &mut session,
        "INSERT INTO large SELECT i, i % 3000, date '2020-01-01' + i % 2000, CASE WHEN i % 500 = 0 THEN 'RARE' ELSE 'MAIL' END \
         FROM generate_series(1, 9000) g(i)",
    )
    .await;
    run(&mut session, "INSERT INTO middle SELECT i, i FROM generate_series(1, 1000) g(i)").await;
    // Table of the side that is built: the dimension of a star, or the first table named in the plan of a hash join.
    let first = |plan: &str| match (plan.find("table=large"), plan.find("table=middle")) {
        _ if plan.contains("dimensions=[large") => "large".to_owned(),
        _ if plan.contains("dimensions=[middle") => "middle".to_owned(),
        (Some(large), Some(middle)) => if large < middle { "large" } else { "middle" }.to_owned(),
        _ => plan.to_owned(),
    };
    for condition in ["mode = 'RARE'", "day < date '2020-02-01'", "mode LIKE 'RA%'"] {
        let query =
            format!("SELECT count(*) FROM large, middle WHERE large.other = middle.v AND {condition}");
        let answer = one(&mut session, &query).await;
        let before = plan(&mut session, &query).await;
        assert_eq!(first(&before), "middle", "a fifth of 9,000: {before}");
        run(&mut session, "ANALYZE").await;
        let after = plan(&mut session, &query).await;
        assert_eq!(first(&after), "large", "{condition}: {after}");
        assert_eq!(one(&mut session, &query).await, answer);
        run(
            &mut session,
            "DROP TABLE IF EXISTS copy; CREATE TABLE copy AS SELECT * FROM large; DROP TABLE large",
        )
        .await;
        run(&mut session, "CREATE TABLE large (id INT PRIMARY KEY, other INT, day DATE, mode VARCHAR)").await;
        run(&mut session, "INSERT INTO large SELECT * FROM copy").await;
    }
}

#[tokio::test]
async fn several_extremes_read_a_row_each() {
    let database = TestDatabase::journal();
    let mut session = database.session();
    run(&mut session, "CREATE TABLE r (id INT PRIMARY KEY, v INT NOT NULL, n INT); CREATE INDEX ON r (v)")
        .await;
    run(&mut session, "INSERT INTO r SELECT i, -i, i FROM generate_series(1, 20000) g(i)").await;
    let extremes = "SELECT max(id), min(id), min(v), max(v) FROM r";
    assert_eq!(one(&mut session, extremes).await, "20000 1 -20000 -1");
    let explained = one(&mut session, &format!("EXPLAIN ANALYZE {extremes}")).await;
    assert_eq!(explained.matches("limit=1").count(), 4, "{explained}");
    assert_eq!(one(&mut session, "SELECT min(id), max(id) FROM r WHERE id < 100 AND id > 7").await, "8 99");
    assert_eq!(
        one(&mut session, "SELECT max(id) - min(id) AS d, min(id) FROM r HAVING min(id) > 0").await,
        "19999 1"
    );
    assert_eq!(one(&mut session, "SELECT min(id), max(id) FROM r WHERE id < 0").await, "NULL NULL");
    assert_eq!(one(&mut session, "SELECT min(id), max(n) FROM r").await, "1 20000", "n has no order");
    assert_eq!(one(&mut session, "SELECT min(id), max(id) FROM r WHERE n = 500").await, "500 500");
}

#[tokio::test]
async fn explain_analyze_shows_the_pages_of_a_column_scan() {
    let database = TestDatabase::journal();
    let mut session = database.session();
    run(&mut session, "CREATE TABLE c (id INT PRIMARY KEY, v INT, w INT) WITH (layout = columns)").await;
    run(&mut session, "INSERT INTO c SELECT i, i, i FROM generate_series(1, 300000) g(i)").await;
    run(&mut session, "VACUUM c").await;
    let database = database.copied();
    let mut session = database.session();
    let value = |plan: &str, name: &str| {
        let at = plan.find(&format!("{name}=")).unwrap_or_else(|| panic!("{name} in {plan}"));
        plan[at + name.len() + 1..].split([',', ']']).next().unwrap().trim().to_owned()
    };
    let query = "EXPLAIN ANALYZE SELECT sum(w) FROM c WHERE v > 290000";
    let cold = one(&mut session, query).await;
    let pages = |plan: &str| ["pages_read", "pages_cached", "pages_skipped"].map(|name| value(plan, name));
    // Three row groups, of which two are ruled out, and two columns; a database without a budget has no cache.
    assert_eq!(pages(&cold), ["2", "0", "4"], "{cold}");
    assert_ne!(value(&cold, "bytes_read"), "0");
    assert_eq!(value(&cold, "bytes_cached"), "0");
    let all = one(&mut session, "EXPLAIN ANALYZE SELECT sum(w) FROM c").await;
    assert_eq!(pages(&all), ["3", "0", "0"], "{all}");
}
