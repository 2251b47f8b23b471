//! Workload, advice, the layout `auto` and EXPLAIN (COSTS) in SQL: what is recorded, what is proposed, and that the plan uses
//! a proposal that was carried out.

use crate::runner::rows;
use entresol_memory::{Pool, PoolOptions};
use entresol_query::{Session, SessionOptions, StatementResult};
use entresol_tables::Catalog;
use entresol_transactions::StateContext;

/// Rows of the table.
const ROWS: u64 = 60_000;

fn open() -> Session {
    let pool = Pool::volatile(&PoolOptions::default()).unwrap();
    let catalog = Catalog::open_or_create(StateContext::open_or_create(pool).unwrap()).unwrap();
    Session::new(catalog, SessionOptions { target_partitions: Some(2), ..SessionOptions::default() })
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

/// Session with a table of sales and no workload.
async fn filled(options: &str) -> Session {
    let mut session = open();
    run(
        &mut session,
        &format!("CREATE TABLE sales (id INT PRIMARY KEY, shop INT NOT NULL, day INT, price DECIMAL(12, 2)) {options}"),
    )
    .await;
    let insert = "INSERT INTO sales SELECT i, i * 7919 % 6007, i / 100, i % 977 / 10.0 FROM generate_series(1, 60000) g(i)";
    run(&mut session, insert).await;
    run(&mut session, "VACUUM sales").await;
    run(&mut session, "SELECT pg_stat_reset()").await;
    session
}

/// Proposed statements.
async fn proposed(session: &mut Session) -> Vec<String> {
    let all = "SELECT statement FROM entresol.advice WHERE statement IS NOT NULL ORDER BY rank";
    read(session, all).await
}

async fn explained(session: &mut Session, sql: &str) -> String {
    read(session, &format!("EXPLAIN {sql}")).await.join("\n")
}

#[tokio::test]
async fn an_index_is_proposed_and_the_plan_uses_it() {
    let mut session = filled("").await;
    assert_eq!(proposed(&mut session).await, [""; 0], "nothing is known");
    let query = |shop: u64| format!("SELECT id, price FROM sales WHERE shop = {shop}");
    for shop in 0..40 {
        run(&mut session, &query(shop)).await;
    }
    assert_eq!(proposed(&mut session).await, ["CREATE INDEX ON sales (shop)"]);
    let figures = "SELECT gain > 0.5 AND after_ms < before_ms / 2, why FROM entresol.advice";
    let figures = read(&mut session, figures).await.join("\n");
    assert!(figures.starts_with("true 40 queries have conditions on shop (=)"), "{figures}");
    assert!(explained(&mut session, &query(7)).await.contains("access=full"));
    let statement = proposed(&mut session).await.remove(0);
    run(&mut session, &statement).await;
    let plan = explained(&mut session, &query(7)).await;
    assert!(plan.contains("access=index sales_shop_idx"), "{plan}");
    for shop in 0..20 {
        run(&mut session, &query(shop)).await;
    }
    assert_eq!(proposed(&mut session).await, [""; 0], "it is used, and nothing else is worth it");
    let uses = "SELECT runs FROM entresol.workload WHERE kind = 'index' AND conditions = 'sales_shop_idx'";
    assert_eq!(read(&mut session, uses).await, ["20"]);
}

#[tokio::test]
async fn columns_are_proposed_for_sums_and_an_unused_index_is_proposed_to_be_dropped() {
    let mut session = filled("").await;
    for _ in 0..20 {
        run(&mut session, "SELECT sum(price) FROM sales").await;
    }
    assert_eq!(proposed(&mut session).await, ["ALTER TABLE sales SET (layout = 'columns')"]);
    let statement = proposed(&mut session).await.remove(0);
    run(&mut session, &statement).await;
    let plan = explained(&mut session, "SELECT sum(price) FROM sales").await;
    assert!(plan.contains("EntresolColumnScan"), "{plan}");
    assert_eq!(proposed(&mut session).await, [""; 0]);
    run(&mut session, "ALTER TABLE sales SET (layout = 'rows')").await;
    run(&mut session, "CREATE INDEX by_day ON sales (day)").await;
    run(&mut session, "SELECT pg_stat_reset()").await;
    for id in 1..60 {
        run(&mut session, &format!("UPDATE sales SET price = 1 WHERE id = {id}")).await;
    }
    assert_eq!(proposed(&mut session).await, ["DROP INDEX by_day"]);
}

#[tokio::test]
async fn the_workload_is_shown_and_reset() {
    let mut session = filled("").await;
    for id in 0..5 {
        run(&mut session, &format!("SELECT price FROM sales WHERE id = {id}")).await;
        run(
            &mut session,
            &format!("SELECT price FROM sales WHERE day BETWEEN {id} AND 59 + {id} AND shop IN (1, 2)"),
        )
        .await;
    }
    run(&mut session, "INSERT INTO sales VALUES (100001, 1, 1, 1), (100002, 1, 1, 1)").await;
    run(&mut session, "UPDATE sales SET price = 2 WHERE id = 100001").await;
    run(&mut session, "DELETE FROM sales WHERE id = 100002").await;
    let by_kind = "SELECT kind, conditions, runs FROM entresol.workload WHERE \"table\" = 'sales' ORDER BY kind, conditions";
    let shown = read(&mut session, by_kind).await;
    for line in ["delete NULL 1", "insert NULL 2", "read by key NULL 5", "update NULL 1"] {
        assert!(shown.contains(&line.to_owned()), "{line}: {shown:?}");
    }
    assert!(shown.contains(&"query shop IN, day range 5".to_owned()), "{shown:?}");
    let query = "SELECT columns, selectivity_class, bytes >= 0, elapsed_ms > 0 FROM entresol.workload WHERE kind = 'query' AND conditions LIKE 'shop IN%'";
    let query = read(&mut session, query).await.join("\n");
    assert_eq!(query, "shop, day, price < 0.1% true true", "{query}");
    run(&mut session, "SELECT pg_stat_reset()").await;
    assert_eq!(read(&mut session, by_kind).await, [""; 0]);
}

#[tokio::test]
async fn prepared_queries_are_recorded_with_the_values_of_their_first_run() {
    let mut session = filled("").await;
    run(&mut session, "PREPARE q AS SELECT id, price FROM sales WHERE shop = $1").await;
    for shop in 0..30 {
        run(&mut session, &format!("EXECUTE q({shop})")).await;
    }
    assert_eq!(proposed(&mut session).await, ["CREATE INDEX ON sales (shop)"]);
}

#[tokio::test]
async fn the_layout_auto_is_chosen_by_the_workload_and_ends_with_a_layout() {
    let mut session = filled("WITH (layout = 'auto')").await;
    let layout = "SELECT layout, layout_choice FROM entresol.tables WHERE name = 'sales'";
    assert_eq!(read(&mut session, layout).await, ["rows auto"]);
    run(&mut session, "ANALYZE sales").await;
    assert_eq!(read(&mut session, layout).await, ["rows auto"]);
    for _ in 0..20 {
        run(&mut session, "SELECT sum(price) FROM sales").await;
    }
    assert_eq!(proposed(&mut session).await, [""; 0], "the layout is not the user's to set");
    run(&mut session, "ANALYZE sales").await;
    assert_eq!(read(&mut session, layout).await, ["columns auto"]);
    let why = read(&mut session, "SELECT why FROM entresol.advice").await.join("\n");
    assert!(why.starts_with("layout 'auto' changed to 'columns': 20 queries read 1 columns"), "{why}");
    let sum = "SELECT count(*), count(DISTINCT shop) FROM sales";
    assert_eq!(read(&mut session, sum).await, [format!("{ROWS} 6007")]);
    run(&mut session, "ALTER TABLE sales SET (layout = 'columns')").await;
    assert_eq!(read(&mut session, layout).await, ["columns set"]);
    run(&mut session, "ALTER TABLE sales SET (layout = 'auto')").await;
    assert_eq!(read(&mut session, layout).await, ["columns auto"]);
}

#[tokio::test]
async fn clustering_is_proposed_as_a_statement_that_runs() {
    let mut session = filled("WITH (layout = 'columns')").await;
    for first in 0..40 {
        let shops = format!("shop BETWEEN {} AND {}", first * 100, first * 100 + 60);
        run(&mut session, &format!("SELECT sum(id), sum(day), sum(price) FROM sales WHERE {shops}")).await;
    }
    let proposed = proposed(&mut session).await;
    for statement in &proposed {
        run(&mut session, statement).await;
    }
    run(&mut session, "ALTER TABLE sales SET (layout = 'clustered', cluster_by = (shop))").await;
    let shops = "SELECT count(*) > 0, min(shop), max(shop) FROM sales WHERE shop BETWEEN 100 AND 160";
    assert_eq!(read(&mut session, shops).await, ["true 100 160"], "{proposed:?}");
    assert_eq!(read(&mut session, "SELECT count(*) FROM sales").await, [ROWS.to_string()]);
}

#[tokio::test]
async fn costs_are_shown_beside_the_paths_that_were_not_taken() {
    let mut session = filled("").await;
    run(&mut session, "CREATE INDEX by_shop ON sales (shop)").await;
    let query = "SELECT price FROM sales WHERE shop = 77";
    let plan = explained(&mut session, query).await;
    assert!(!plan.contains("Costs of"), "{plan}");
    let costs = read(&mut session, &format!("EXPLAIN (COSTS) {query}")).await;
    let at = costs.iter().position(|line| line.starts_with("Costs of sales (")).unwrap();
    assert!(costs[..at].iter().any(|line| line.contains("access=index by_shop")), "{costs:?}");
    assert!(
        costs[at + 1].starts_with("  index by_shop: rows=") && costs[at + 1].ends_with(", taken"),
        "{costs:?}"
    );
    assert!(costs[at + 2].starts_with("  all rows: rows="), "{costs:?}");
    let measured = read(&mut session, &format!("EXPLAIN (ANALYZE, COSTS) {query}")).await;
    let taken = measured.iter().find(|line| line.contains(", taken; measured rows=10 time=")).is_some();
    assert!(taken, "{measured:?}");
    run(&mut session, "ALTER TABLE sales SET (layout = 'columns')").await;
    let costs = read(&mut session, "EXPLAIN (COSTS) SELECT sum(price) FROM sales WHERE day < 30").await;
    assert!(
        costs.iter().any(|line| line.starts_with("  columns: rows=") && line.ends_with(", taken")),
        "{costs:?}"
    );
    let joined = "EXPLAIN (COSTS) SELECT count(*) FROM sales a JOIN sales b ON a.id = b.day";
    let costs = read(&mut session, joined).await;
    assert_eq!(costs.iter().filter(|line| line.starts_with("Costs of sales")).count(), 2, "{costs:?}");
}

#[tokio::test]
async fn the_structure_of_a_table_stands_beside_its_costs() {
    let mut session = open();
    for using in ["fptree", "wbtree", "auto"] {
        let table = format!("by_{using}");
        run(&mut session, &format!("CREATE TABLE {table} (id BIGINT PRIMARY KEY, v INT) USING {using}"))
            .await;
        run(&mut session, &format!("INSERT INTO {table} SELECT i, i FROM generate_series(1, 2000) g(i)"))
            .await;
    }
    let mut heads = Vec::new();
    for using in ["fptree", "wbtree", "auto"] {
        let costs =
            read(&mut session, &format!("EXPLAIN (COSTS) SELECT v FROM by_{using} WHERE id > 7")).await;
        heads.extend(costs.into_iter().filter(|line| line.starts_with("Costs of")));
    }
    assert!(
        heads[0].ends_with("rows, structure fptree):") && heads[1].ends_with("rows, structure wbtree):"),
        "{heads:?}"
    );
    assert!(heads[2].contains("structure 'auto': ") && heads[2].contains(" ms for "), "{heads:?}");
    // By columns a table has no choice, and says so; a recorded workload is one of the reasons.
    run(&mut session, "CREATE TABLE wide (id BIGINT PRIMARY KEY) USING auto WITH (layout = 'columns')").await;
    run(&mut session, "CREATE TABLE later (id BIGINT PRIMARY KEY) USING auto").await;
    let reasons =
        "SELECT structure_reason FROM entresol.tables WHERE name IN ('wide', 'later') ORDER BY name";
    let reasons = read(&mut session, reasons).await;
    assert!(reasons[0].contains("the recorded workload of tables by rows"), "{reasons:?}");
    assert_eq!(reasons[1], "the layout 'columns' has a structure of its own");
}
