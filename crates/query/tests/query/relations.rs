//! Views, sequences and identity columns beyond the SQL text tests: COPY, prepared statements, concurrent
//! sessions, kills.

use crate::runner::{TestDatabase, rows};
use entresol_query::datafusion::common::ScalarValue;
use entresol_query::{
    CopyStatement, Outcome, PreparedStatement, Result, STACK_BYTES, Session, VIEW_DEPTH_MAX,
};
use futures::TryStreamExt;

async fn run(session: &mut Session, sql: &str) {
    session.execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

async fn one(session: &mut Session, sql: &str) -> String {
    let batches = session.query(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    rows(&batches).join(";")
}

/// SQLSTATE of a statement that fails.
async fn code(session: &mut Session, sql: &str) -> &'static str {
    match session.execute(sql).await {
        Err(error) => error.sqlstate(),
        Ok(_) => panic!("{sql} succeeded"),
    }
}

async fn copy_in(session: &mut Session, sql: &str, bytes: &[u8]) -> Result<u64> {
    let statement = CopyStatement::parse(sql).unwrap().unwrap();
    let mut copy = session.copy_in(&statement)?;
    copy.push(bytes)?;
    copy.finish().await
}

async fn given(
    session: &mut Session,
    statement: &PreparedStatement,
    values: &[ScalarValue],
) -> Result<String> {
    Ok(match session.run_prepared(statement, values).await? {
        Outcome::Rows(stream) => rows(&stream.try_collect::<Vec<_>>().await?).join(";"),
        other => format!("{other:?}"),
    })
}

#[tokio::test]
async fn errors_have_the_codes_that_clients_know() {
    let database = TestDatabase::volatile();
    let mut session = database.session();
    let setup =
        "CREATE TABLE t (id INT GENERATED ALWAYS AS IDENTITY, a INT); CREATE VIEW v AS SELECT id, a FROM t;
                 CREATE SEQUENCE s MAXVALUE 2; SELECT setval('s', 2)";
    run(&mut session, setup).await;
    for (sql, expected) in [
        ("CREATE VIEW v AS SELECT 1 AS x", "42P07"),
        ("CREATE VIEW w AS SELECT x.id, y.id FROM t x, t y", "42701"),
        ("CREATE VIEW w AS SELECT $1 AS x", "42P02"),
        ("CREATE OR REPLACE VIEW v AS SELECT id FROM t", "42P16"),
        ("CREATE OR REPLACE VIEW v AS SELECT id, a FROM v", "42P17"),
        ("DROP TABLE v", "42809"),
        ("DROP VIEW t", "42809"),
        ("DROP VIEW nothing", "42P01"),
        ("DROP TABLE t", "2BP01"),
        ("ALTER TABLE t DROP COLUMN a", "2BP01"),
        ("ALTER TABLE t RENAME TO u", "2BP01"),
        ("INSERT INTO v VALUES (1, 2)", "55000"),
        ("UPDATE v SET a = 1", "55000"),
        ("DELETE FROM v", "55000"),
        ("SELECT nextval('t')", "42809"),
        ("SELECT nextval('nothing')", "42P01"),
        ("SELECT nextval('not a name')", "42602"),
        ("SELECT nextval('s')", "2200H"),
        ("SELECT setval('s', 3)", "22003"),
        ("DROP SEQUENCE t_id_seq", "2BP01"),
        ("CREATE SEQUENCE x START 0", "22023"),
        ("CREATE SEQUENCE x AS text", "22023"),
        ("CREATE SEQUENCE s", "42P07"),
        ("INSERT INTO t VALUES (1, 2)", "428C9"),
        ("UPDATE t SET id = 2", "428C9"),
        ("CREATE TEMPORARY SEQUENCE x", "0A000"),
    ] {
        assert_eq!(code(&mut session, sql).await, expected, "{sql}");
    }
    let mut other = database.session();
    assert_eq!(code(&mut other, "SELECT currval('s')").await, "55000");
    assert_eq!(code(&mut other, "SELECT lastval()").await, "55000");
    let copied = copy_in(&mut session, "COPY v FROM STDIN", b"").await.unwrap_err();
    assert_eq!(copied.sqlstate(), "55000");
}

#[tokio::test]
async fn copy_draws_what_its_lines_do_not_give() {
    let database = TestDatabase::volatile();
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v INT)").await;
    let lines: String = (0..3000).map(|line| format!("{line}\n")).collect();
    assert_eq!(copy_in(&mut session, "COPY t (v) FROM STDIN", lines.as_bytes()).await.unwrap(), 3000);
    let counted = "SELECT count(*), min(id), max(id), sum(id - v) FROM t";
    assert_eq!(one(&mut session, counted).await, "3000 1 3000 3000");
    assert_eq!(one(&mut session, "SELECT lastval()").await, "3000");
    // As in PostgreSQL, whose dumps are loaded that way.
    assert_eq!(copy_in(&mut session, "COPY t FROM STDIN", b"9000\t1\n").await.unwrap(), 1);
    assert_eq!(one(&mut session, "INSERT INTO t (v) VALUES (5) RETURNING id").await, "3001");
}

#[tokio::test]
async fn prepared_statements_follow_their_views() {
    let database = TestDatabase::volatile();
    let (mut session, mut other) = (database.session(), database.session());
    run(&mut session, "CREATE TABLE t (id INT PRIMARY KEY, a INT); INSERT INTO t VALUES (1, 10), (2, 20)")
        .await;
    run(&mut session, "CREATE VIEW v AS SELECT id, a FROM t").await;
    let query = session.prepare("SELECT a FROM v WHERE id = $1", &[]).await.unwrap();
    let all = session.prepare("SELECT * FROM v", &[]).await.unwrap();
    let value = [ScalarValue::from(2)];
    assert_eq!(given(&mut session, &query, &value).await.unwrap(), "20");
    run(&mut other, "CREATE OR REPLACE VIEW v AS SELECT id, a + a AS a, 'more' AS more FROM t").await;
    let error = given(&mut session, &all, &[]).await.unwrap_err();
    assert_eq!(error.sqlstate(), "0A000", "{error}");
    assert_eq!(given(&mut session, &query, &value).await.unwrap(), "40");
    run(&mut other, "DROP VIEW v").await;
    assert_eq!(given(&mut session, &query, &value).await.unwrap_err().sqlstate(), "42P01");
    run(&mut other, "CREATE TABLE v (id INT PRIMARY KEY, a INT); INSERT INTO v VALUES (2, 7)").await;
    assert_eq!(given(&mut session, &query, &value).await.unwrap(), "7");

    run(&mut session, "CREATE TABLE s (id SERIAL PRIMARY KEY, v INT)").await;
    let insert = session.prepare("INSERT INTO s (v) VALUES ($1)", &[]).await.unwrap();
    for value in [5, 6, 7] {
        session.run_prepared(&insert, &[ScalarValue::from(value)]).await.unwrap();
    }
    assert_eq!(one(&mut session, "SELECT id, v FROM s ORDER BY id").await, "1 5;2 6;3 7");
    let draw = session.prepare("SELECT nextval('s_id_seq')", &[]).await.unwrap();
    assert_eq!(given(&mut session, &draw, &[]).await.unwrap(), "4");
    assert_eq!(given(&mut session, &draw, &[]).await.unwrap(), "5");
}

/// On a stack as threads of a database have it.
#[test]
fn views_lie_as_deep_as_is_allowed() {
    let deep = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(check_deep_views());
    });
    deep.unwrap().join().unwrap();
}

async fn check_deep_views() {
    let database = TestDatabase::volatile();
    let mut session = database.session();
    run(&mut session, "CREATE TABLE v0 (id INT PRIMARY KEY); INSERT INTO v0 VALUES (1), (2)").await;
    for depth in 1..=VIEW_DEPTH_MAX {
        run(&mut session, &format!("CREATE VIEW v{depth} AS SELECT * FROM v{} WHERE id < 2", depth - 1))
            .await;
    }
    assert_eq!(one(&mut session, &format!("SELECT * FROM v{VIEW_DEPTH_MAX}")).await, "1");
    let deeper = format!("CREATE VIEW deeper AS SELECT * FROM v{VIEW_DEPTH_MAX}");
    assert_eq!(code(&mut session, &deeper).await, "54001");
    run(&mut session, "DROP TABLE v0 CASCADE").await;
    assert!(database.session().catalog().views().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_at_once_never_draw_the_same() {
    const ROWS: usize = 100;
    let database = TestDatabase::volatile();
    run(&mut database.session(), "CREATE TABLE t (id SERIAL PRIMARY KEY, who INT)").await;
    let insert = |who: usize| {
        let mut session = database.session();
        async move {
            for _ in 0..ROWS {
                run(&mut session, &format!("INSERT INTO t (who) VALUES ({who})")).await;
            }
            one(&mut session, "SELECT currval('t_id_seq')").await
        }
    };
    let last = futures::future::join_all((0..3).map(|who| tokio::spawn(insert(who)))).await;
    let mut last: Vec<String> = last.into_iter().map(|last| last.unwrap()).collect();
    last.sort();
    last.dedup();
    assert_eq!(last.len(), 3, "each session has its own last value");
    assert_eq!(one(&mut database.session(), "SELECT count(*), max(id) FROM t").await, "300 300");
}

#[tokio::test]
async fn a_kill_loses_no_view_and_repeats_no_value() {
    let database = TestDatabase::journal();
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id SERIAL PRIMARY KEY, v INT); CREATE VIEW w AS SELECT * FROM t")
        .await;
    run(&mut session, "INSERT INTO t (v) VALUES (1), (2), (3)").await;
    let mut known = 3;
    for _ in 0..3 {
        let killed = database.copied();
        let mut after = killed.session();
        assert_eq!(one(&mut after, "SELECT count(*) FROM w").await, known.to_string());
        run(&mut after, "INSERT INTO t (v) SELECT 7 FROM generate_series(1, 50)").await;
        assert_eq!(one(&mut after, "SELECT count(*) FROM w").await, (known + 50).to_string());
        run(&mut session, "INSERT INTO t (v) SELECT 8 FROM generate_series(1, 20)").await;
        known += 20;
    }
    assert_eq!(one(&mut session, "SELECT max(id) FROM t").await, "63");
}

#[tokio::test]
async fn a_table_with_an_owner_is_read_by_all_and_written_by_no_statement() {
    let database = TestDatabase::volatile();
    let mut session = database.session();
    for sql in ["CREATE TABLE open (id INT PRIMARY KEY, n INT)", "INSERT INTO open VALUES (1, 1), (2, 2)"] {
        session.execute(sql).await.unwrap();
    }
    let own = |definition: &mut entresol_tables::TableDefinition| {
        definition.owner = Some("topology metering".to_owned());
        Ok(())
    };
    let verify = None::<entresol_tables::Verify<'_, entresol_tables::Error>>;
    database.catalog().redefine("open", verify, own).unwrap();
    let refused = "it is state of topology metering, which alone writes it";
    for (sql, verb) in [
        ("INSERT INTO open VALUES (3, 3)", "insert into"),
        ("INSERT INTO open SELECT 3, 3", "insert into"),
        ("UPDATE open SET n = 5 WHERE id = 1", "update"),
        ("UPDATE open SET n = n + 1", "update"),
        ("DELETE FROM open WHERE id = 1", "delete from"),
        ("DELETE FROM open", "delete from"),
        ("TRUNCATE open", "delete from"),
        ("MERGE INTO open USING (SELECT 1) AS s ON true WHEN MATCHED THEN DELETE", "merge into"),
    ] {
        let error = session.execute(sql).await.unwrap_err();
        assert_eq!(error.to_string(), format!("cannot {verb} table \"open\": {refused}"), "{sql}");
        assert_eq!(error.sqlstate(), "55000");
    }
    let error = copy_in(&mut session, "COPY open FROM STDIN", b"3\t3\n").await.unwrap_err();
    assert_eq!(error.to_string(), format!("cannot copy to table \"open\": {refused}"));
    assert!(session.prepare("DELETE FROM open WHERE id = $1", &[]).await.is_err());
    let found = session.query("SELECT sum(n) FROM open WHERE id IN (1, 2)").await.unwrap();
    assert_eq!(rows(&found), ["3"]);
    session.execute("DROP TABLE open").await.unwrap();
}
