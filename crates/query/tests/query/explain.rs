//! EXPLAIN (FORMAT JSON): the tree of a plan, what ANALYZE measured, and that a statement that writes does.

use crate::runner::{TestDatabase, rows};
use entresol_query::Session;

async fn explained(session: &mut Session, sql: &str) -> String {
    let found = rows(&session.query(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}")));
    let [document] = found.as_slice() else { panic!("{sql}: {found:?}") };
    document.clone()
}

/// Value at a path of a document.
async fn at(session: &mut Session, document: &str, path: &str) -> String {
    let sql = format!("SELECT '{}'::json #>> '{path}'", document.replace('\'', "''"));
    rows(&session.query(&sql).await.unwrap()).join("")
}

#[tokio::test(flavor = "multi_thread")]
async fn plans_are_trees_of_json() {
    let database = TestDatabase::volatile();
    let mut session = database.session();
    session.execute("CREATE TABLE t (id INT PRIMARY KEY, v TEXT)").await.unwrap();
    session.execute("INSERT INTO t SELECT i, 'v' || i % 3 FROM generate_series(1, 30) g(i)").await.unwrap();
    let plain = explained(&mut session, "EXPLAIN (FORMAT JSON) SELECT v FROM t WHERE id = 2").await;
    let expected = r#"[
  {
    "Plan": {
      "Node Type": "EntresolScan",
      "Relation Name": "t",
      "Details": "table=t, access=point, projection=[v]"
    }
  }
]"#;
    assert_eq!(plain, expected);
    let sql = "SELECT v, count(*) FROM t WHERE id > 10 GROUP BY v";
    let document =
        explained(&mut session, &format!("EXPLAIN (FORMAT JSON, ANALYZE, COSTS, VERBOSE) {sql}")).await;
    assert_eq!(at(&mut session, &document, "{0,Plan,Actual Rows}").await, "3", "{document}");
    for path in ["{0,Costs,0}", "{0,Logical Plan}", "{0,Execution Time}", "{0,Plan,Plans,0,Node Type}"] {
        assert!(!at(&mut session, &document, path).await.is_empty(), "{path}: {document}");
    }
    assert!(document.contains("elapsed_compute_ms"), "{document}");
    let document =
        explained(&mut session, &format!("EXPLAIN (FORMAT JSON, ANALYZE, TIMING OFF) {sql}")).await;
    assert!(
        document.contains("\"Actual Rows\": 20") && !document.contains("elapsed_compute_ms"),
        "{document}"
    );
    // Without ANALYZE it only says what it would do.
    explained(&mut session, "EXPLAIN (FORMAT JSON) DELETE FROM t").await;
    let document =
        explained(&mut session, "EXPLAIN (FORMAT JSON, ANALYZE) DELETE FROM t WHERE id <= 10").await;
    assert_eq!(at(&mut session, &document, "{0,Plan,Operation}").await, "Delete");
    assert_eq!(at(&mut session, &document, "{0,Plan,Actual Rows}").await, "10");
    assert!(document.contains("\"Relation Name\": \"t\""), "{document}");
    assert_eq!(rows(&session.query("SELECT count(*) FROM t").await.unwrap()), ["20"]);
}
