//! Tables whose row groups are objects, in SQL: options, queries beside a table in the pool, EXPLAIN, counters, errors.

use crate::runner::{TestDatabase, rows};
use entresol_query::Session;
use std::path::Path;

async fn one(session: &mut Session, sql: &str) -> String {
    let batches = session.query(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    rows(&batches).join(";")
}

async fn refused(session: &mut Session, sql: &str) -> (&'static str, String) {
    let error = session.execute(sql).await.expect_err(sql);
    (error.sqlstate(), error.to_string())
}

fn objects(directory: &Path) -> usize {
    let entries = std::fs::read_dir(directory).unwrap().flatten();
    entries.map(|entry| if entry.path().is_dir() { objects(&entry.path()) } else { 1 }).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_over_objects_are_those_over_the_pool() {
    let (database, store) = (TestDatabase::journal(), tempfile::tempdir().unwrap());
    let mut session = database.session();
    let url = format!("file://{}", store.path().display());
    let setup = format!(
        "CREATE TABLE lines (id BIGINT PRIMARY KEY, part INT, price DECIMAL(12, 2), note TEXT)
             WITH (layout = 'columns', object_store = '{url}');
         CREATE TABLE pooled (id BIGINT PRIMARY KEY, part INT, price DECIMAL(12, 2), note TEXT) WITH (layout = 'columns');
         CREATE TABLE parts (part INT PRIMARY KEY, brand TEXT);
         INSERT INTO parts SELECT v, 'brand ' || v % 7 FROM generate_series(0, 99) AS g (v);
         INSERT INTO lines SELECT v, v % 100, v * 0.01, 'note ' || v % 1000 FROM generate_series(1, 40000) AS g (v);
         INSERT INTO pooled SELECT * FROM lines;
         VACUUM"
    );
    session.execute(&setup).await.unwrap();
    assert_eq!(objects(store.path()), 1);
    for change in [
        "SELECT 1",
        "DELETE FROM lines WHERE id % 3 = 0; DELETE FROM pooled WHERE id % 3 = 0",
        "UPDATE lines SET price = price + 1 WHERE part < 5; UPDATE pooled SET price = price + 1 WHERE part < 5",
        "VACUUM",
        "ANALYZE lines; ANALYZE pooled",
    ] {
        session.execute(change).await.unwrap();
        for query in [
            "SELECT count(*), sum(price), min(note), max(id) FROM lines",
            "SELECT brand, sum(price) FROM lines JOIN parts USING (part) GROUP BY brand ORDER BY brand",
            "SELECT * FROM lines WHERE id BETWEEN 100 AND 110 OR note = 'note 77' ORDER BY id",
            "SELECT part, count(*) FROM lines WHERE price > 300 GROUP BY part ORDER BY part",
        ] {
            let in_pool = one(&mut session, &query.replace("lines", "pooled")).await;
            assert_eq!(one(&mut session, query).await, in_pool, "{change}: {query}");
        }
    }
    assert_eq!(objects(store.path()), 1, "VACUUM deletes the object of the row group before");
    let shown = "SELECT name, object_store FROM entresol.tables WHERE object_store <> ''";
    assert_eq!(one(&mut session, shown).await, format!("lines {url}"));
    let options = "SELECT reloptions FROM pg_class WHERE relname = 'lines'";
    assert!(one(&mut session, options).await.contains(&format!("object_store={url}")));
    let plan = one(&mut session, "EXPLAIN ANALYZE SELECT sum(price) FROM lines WHERE part < 50").await;
    assert!(plan.contains(&format!("object_store={url}")) && plan.contains("pages_cached="), "{plan}");
    let counted = "SELECT count(*) FROM entresol.pool WHERE value > 0 AND counter IN ('object_reads', 'object_read_bytes',
                   'object_writes', 'object_written_bytes', 'object_lists', 'object_deletes')";
    assert_eq!(one(&mut session, counted).await, "6");
    let cached = "SELECT count(*) > 0 FROM entresol.cache WHERE \"table\" = 'lines' AND misses > 0";
    assert_eq!(one(&mut session, cached).await, "true");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stores_are_chosen_changed_and_refused() {
    let (database, store) = (TestDatabase::journal(), tempfile::tempdir().unwrap());
    let mut session = database.session();
    let url = format!("file://{}", store.path().display());
    for (sql, sqlstate, part) in [
        ("CREATE TABLE t (a INT) WITH (object_store = 'URL')", "0A000", "for the layouts"),
        (
            "CREATE TABLE t (a INT) WITH (layout = 'columns', object_store = 'URL/none')",
            "58030",
            "cannot open it",
        ),
        (
            "CREATE TABLE t (a INT) WITH (layout = 'columns', object_store = 'http://x')",
            "22023",
            "no store for",
        ),
        (
            "CREATE TABLE t (a INT) WITH (layout = 'columns', object_store = 's3://k:s@x')",
            "22023",
            "environment",
        ),
    ] {
        let (found, message) = refused(&mut session, &sql.replace("URL", &url)).await;
        assert!(found == sqlstate && message.contains(part), "{sql}: {found} {message}");
    }
    session
        .execute(
            "CREATE TABLE t (a BIGINT PRIMARY KEY, b TEXT);
             INSERT INTO t SELECT v, 'b ' || v FROM generate_series(1, 20000) AS g (v)",
        )
        .await
        .unwrap();
    let set = format!("ALTER TABLE t SET (object_store = '{url}')");
    assert_eq!(refused(&mut session, &set).await.0, "0A000");
    let clustered =
        format!("ALTER TABLE t SET (layout = 'clustered', cluster_by = (a), object_store = '{url}')");
    assert_eq!(refused(&mut session, &clustered).await.0, "0A000");
    assert_eq!(one(&mut session, "SELECT layout FROM entresol.tables WHERE name = 't'").await, "rows");
    session
        .execute(&format!("ALTER TABLE t SET (layout = 'columns', object_store = '{url}'); VACUUM"))
        .await
        .unwrap();
    assert_eq!(objects(store.path()), 1);
    assert_eq!(one(&mut session, "SELECT count(*), sum(a) FROM t").await, "20000 200010000");
    session.execute("ALTER TABLE t SET (object_store = 'none'); VACUUM").await.unwrap();
    assert_eq!(objects(store.path()), 0);
    assert_eq!(one(&mut session, "SELECT count(*), sum(a) FROM t").await, "20000 200010000");
    // A statement over an object that is lost says which one, and other tables go on.
    session.execute(&set).await.unwrap();
    // The last statement makes the merge durable.
    session.execute("VACUUM; CREATE TABLE other (a INT)").await.unwrap();
    std::fs::remove_dir_all(std::fs::read_dir(store.path()).unwrap().next().unwrap().unwrap().path())
        .unwrap();
    let copy = database.copied();
    let mut session = copy.session();
    let lost = session.query("SELECT max(b) FROM t").await.unwrap_err();
    assert_eq!(lost.sqlstate(), "XX001");
    assert!(lost.to_string().contains("is missing"), "{lost}");
    assert_eq!(one(&mut session, "SELECT 1").await, "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_load_leaves_no_object() {
    let (database, store) = (TestDatabase::journal(), tempfile::tempdir().unwrap());
    let mut session = database.session();
    let url = format!("file://{}", store.path().display());
    session
        .execute(&format!(
            "CREATE TABLE t (a BIGINT, b INT) WITH (layout = 'columns', object_store = '{url}')"
        ))
        .await
        .unwrap();
    let failing = "INSERT INTO t SELECT v, 100 / (300000 - v) FROM generate_series(1, 300000) AS g (v)";
    assert_eq!(refused(&mut session, failing).await.0, "22012");
    session.execute("VACUUM").await.unwrap();
    assert_eq!(objects(store.path()), 0);
    session
        .execute("BEGIN; INSERT INTO t SELECT v, 1 FROM generate_series(1, 20000) AS g (v)")
        .await
        .unwrap();
    assert_eq!(one(&mut session, "SELECT count(*) FROM t").await, "20000", "of its own transaction");
    session.execute("ROLLBACK").await.unwrap();
    session.execute("VACUUM").await.unwrap();
    assert_eq!((objects(store.path()), &one(&mut session, "SELECT count(*) FROM t").await[..]), (0, "0"));
}
