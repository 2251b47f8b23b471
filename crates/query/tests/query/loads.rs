//! Bulk loads by SQL: the statements that load, those that do not, and what others see meanwhile.

use crate::runner::{TestDatabase, rows};
use entresol_query::{CopyStatement, Result, Session, SessionOptions};
use std::sync::Arc;

/// Rows: more than the least that are loaded.
const ROWS: usize = 10_000;

async fn run(session: &mut Session, sql: &str) {
    session.execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

async fn one(session: &mut Session, sql: &str) -> String {
    rows(&session.query(sql).await.unwrap()).join(";")
}

/// Lines of rows with these numbers.
fn lines(numbers: impl Iterator<Item = usize>) -> Vec<String> {
    numbers.map(|id| format!("{id}\t{}\tname {}\n", id % 7, id * 3)).collect()
}

async fn copy(session: &mut Session, table: &str, lines: &[String]) -> Result<u64> {
    let statement = CopyStatement::parse(&format!("COPY {table} FROM STDIN")).unwrap().unwrap();
    let mut copy = session.copy_in(&statement)?;
    for line in lines {
        copy.push(line.as_bytes())?;
    }
    copy.finish().await
}

/// Way of the rows of an INSERT.
async fn explained(session: &mut Session, insert: &str) -> String {
    let plan = one(session, &format!("EXPLAIN ANALYZE {insert}")).await;
    plan.split(" (").next().unwrap().to_owned()
}

const TABLE: &str = "(id INT PRIMARY KEY, kind INT, name VARCHAR)";
const SERIES: &str =
    "SELECT i, i % 7 AS kind, 'name ' || (i * 3)::varchar AS name FROM generate_series(0, 9999) g(i)";
const LOADED: &str = "10000 49995000 29995";

async fn sums(session: &mut Session, table: &str) -> String {
    one(session, &format!("SELECT count(*), sum(id), sum(kind) FROM {table}")).await
}

#[tokio::test]
async fn statements_of_their_own_load_empty_tables() {
    let database = TestDatabase::journal();
    let mut session = database.session();
    for table in ["copied", "selected", "shuffled", "in_a_block"] {
        run(&mut session, &format!("CREATE TABLE {table} {TABLE}")).await;
        run(&mut session, &format!("CREATE UNIQUE INDEX {table}_name ON {table} (name)")).await;
        run(&mut session, &format!("CREATE INDEX {table}_kind ON {table} (kind)")).await;
    }
    assert_eq!(copy(&mut session, "copied", &lines(0..ROWS)).await.unwrap(), ROWS as u64);
    assert_eq!(
        explained(&mut session, &format!("INSERT INTO selected {SERIES}")).await,
        "INSERT by bulk load"
    );
    // 4001 and 10,000 have no common divisor.
    copy(&mut session, "shuffled", &lines((0..ROWS).map(|at| at * 4001 % ROWS))).await.unwrap();
    run(&mut session, &format!("CREATE TABLE made AS {SERIES}")).await;
    run(&mut session, "BEGIN").await;
    let in_a_block = explained(&mut session, &format!("INSERT INTO in_a_block {SERIES}")).await;
    assert_eq!(in_a_block, "INSERT", "later statements of the block see its rows");
    assert_eq!(sums(&mut session, "in_a_block").await.split(' ').next(), Some("10000"));
    run(&mut session, "COMMIT").await;
    let database = database.copied();
    let mut session = database.session();
    let expected = sums(&mut session, "in_a_block").await;
    for table in ["copied", "selected", "shuffled"] {
        assert_eq!(sums(&mut session, table).await, expected, "{table}");
        let by_index = format!("SELECT id FROM {table} WHERE name = 'name 2997'");
        assert_eq!(one(&mut session, &by_index).await, "999", "{table}");
        let by_kind = format!("SELECT count(*) FROM {table} WHERE kind = 3");
        assert_eq!(one(&mut session, &by_kind).await, "1429", "{table}");
        let twice = session.execute(&format!("INSERT INTO {table} VALUES (-1, 0, 'name 3')")).await;
        assert_eq!(twice.unwrap_err().sqlstate(), "23505");
        run(&mut session, &format!("UPDATE {table} SET name = name || '!' WHERE id < 100")).await;
        run(&mut session, &format!("DELETE FROM {table} WHERE id >= 9000")).await;
        let changed = format!("SELECT count(*), max(id), min(name) FROM {table} WHERE name LIKE '%!'");
        assert_eq!(one(&mut session, &changed).await, "100 99 name 0!");
    }
    assert_eq!(one(&mut session, "SELECT count(*), sum(i) FROM made").await, "10000 49995000");
    let problems = entresol_tables::check(database.catalog(), |_| {}).unwrap().problems;
    assert_eq!(problems, []);
    assert!(expected.starts_with(LOADED.split_once(' ').unwrap().0), "{expected}");
}

#[tokio::test]
async fn tables_that_cannot_be_loaded_are_written_as_before() {
    let database = TestDatabase::journal();
    let mut session = database.session();
    let layouts =
        ["columns", "elf", "clustered, cluster_by = (id)"].map(|layout| format!("layout = {layout}"));
    let loads = layouts.iter().map(|options| (options.as_str(), "INSERT by bulk load"));
    let writes = ["history = '1 hour'", "changes = '1 hour'", "layout = columns, changes = '1 hour'"];
    for (at, (options, way)) in writes.map(|options| (options, "INSERT")).into_iter().chain(loads).enumerate()
    {
        run(&mut session, &format!("CREATE TABLE t{at} {TABLE} WITH ({options})")).await;
        let insert = format!("INSERT INTO t{at} {SERIES}");
        assert_eq!(explained(&mut session, &insert).await, way, "{options}");
        assert_eq!(one(&mut session, &format!("SELECT count(*) FROM t{at}")).await, "10000");
        assert_eq!(explained(&mut session, &format!("{insert} ON CONFLICT DO NOTHING")).await, "INSERT");
        run(&mut session, &format!("VACUUM t{at}")).await;
        assert_eq!(
            one(&mut session, &format!("SELECT count(*), min(id), max(id) FROM t{at}")).await,
            "10000 0 9999"
        );
    }
    run(&mut session, &format!("CREATE TABLE t {TABLE}")).await;
    let few = "INSERT INTO t SELECT i, 0, 'x' FROM generate_series(1, 100) g(i)";
    assert_eq!(explained(&mut session, few).await, "INSERT", "few rows");
    run(&mut session, "DELETE FROM t; VACUUM t").await;
    let many = format!("INSERT INTO t {SERIES}");
    assert_eq!(explained(&mut session, &many).await, "INSERT by bulk load", "it is empty again");
    let more = "INSERT INTO t SELECT i, 0, 'x' FROM generate_series(10000, 20000) g(i)";
    assert_eq!(explained(&mut session, more).await, "INSERT", "it has rows");
    run(&mut session, "DELETE FROM t; VACUUM t").await;
    let on_conflict = format!("{many} ON CONFLICT DO NOTHING");
    assert_eq!(explained(&mut session, &on_conflict).await, "INSERT");
    run(&mut session, "DELETE FROM t; VACUUM t").await;
    let returning = format!("INSERT INTO t {SERIES} RETURNING id");
    assert_eq!(
        session.query(&returning).await.unwrap().iter().map(|batch| batch.num_rows()).sum::<usize>(),
        ROWS
    );
    assert_eq!(one(&mut session, "SELECT count(*) FROM t").await, "10000");
}

#[tokio::test]
async fn a_load_that_fails_leaves_an_empty_table() {
    let database = TestDatabase::journal();
    let mut session = database.session();
    run(&mut session, &format!("CREATE TABLE t {TABLE}")).await;
    run(&mut session, "CREATE UNIQUE INDEX t_name ON t (name)").await;
    let mut twice = lines(0..ROWS);
    twice.push(lines(5..6).swap_remove(0));
    let error = copy(&mut session, "t", &twice).await.unwrap_err();
    assert_eq!(error.sqlstate(), "23505", "{error}");
    let mut same_name = lines(0..ROWS);
    same_name[9000] = "9000\t1\tname 3\n".to_owned();
    let error = copy(&mut session, "t", &same_name).await.unwrap_err();
    assert!(error.sqlstate() == "23505" && error.to_string().contains("t_name"), "{error}");
    let mut no_key = lines(0..ROWS);
    no_key[9500] = "\\N\t1\tx\n".to_owned();
    let error = copy(&mut session, "t", &no_key).await.unwrap_err();
    assert!(error.sqlstate() == "23502" && error.to_string().ends_with("(COPY t, line 9501)"), "{error}");
    let error =
        session.execute("INSERT INTO t SELECT i % 9000, 0, i::varchar FROM generate_series(1, 10000) g(i)");
    assert_eq!(error.await.unwrap_err().sqlstate(), "23505");
    let error =
        session.execute("CREATE TABLE made AS SELECT 1 / (9000 - i) AS x FROM generate_series(1, 9999) g(i)");
    assert_eq!(error.await.unwrap_err().sqlstate(), "22012");
    assert!(session.execute("SELECT * FROM made").await.is_err());
    assert_eq!(one(&mut session, "SELECT count(*) FROM t").await, "0");
    run(&mut session, "VACUUM").await;
    assert_eq!(entresol_tables::check(database.catalog(), |_| {}).unwrap().problems, []);
    copy(&mut session, "t", &lines(0..ROWS)).await.unwrap();
    assert_eq!(one(&mut session, "SELECT count(*) FROM t").await, "10000");
}

#[tokio::test]
async fn others_read_an_empty_table_and_see_the_progress() {
    let database = TestDatabase::volatile();
    let options = SessionOptions::default();
    let [mut session, mut other] =
        [(); 2].map(|()| Session::new(Arc::clone(database.catalog()), options.clone()));
    run(&mut session, &format!("CREATE TABLE t {TABLE}")).await;
    run(&mut other, "BEGIN ISOLATION LEVEL REPEATABLE READ").await;
    assert_eq!(one(&mut other, "SELECT count(*) FROM t").await, "0");
    let statement = CopyStatement::parse("COPY t FROM STDIN").unwrap().unwrap();
    let progress = "SELECT \"table\", rows, way FROM entresol.loads";
    let mut copy = session.copy_in(&statement).unwrap();
    assert_eq!(one(&mut other, progress).await, "t 0 write set");
    for line in lines(0..ROWS) {
        copy.push(line.as_bytes()).unwrap();
    }
    assert_eq!(one(&mut other, progress).await, "t 8192 bulk load");
    assert_eq!(copy.finish().await.unwrap(), ROWS as u64);
    assert_eq!(one(&mut other, "SELECT count(*) FROM t").await, "0", "the block's snapshot is older");
    let error = other.execute("INSERT INTO t VALUES (5, 5, 'five')").await.err();
    let error = error.or(other.execute("COMMIT").await.err()).expect("the row is there");
    assert_eq!(error.sqlstate(), "40001", "{error}");
    let _ = other.execute("ROLLBACK").await;
    assert_eq!(one(&mut other, progress).await, "");
    assert_eq!(one(&mut other, "SELECT count(*) FROM t").await, "10000");
    // A row that comes while another one is loading: the load reports it.
    run(&mut session, "DELETE FROM t; VACUUM t").await;
    let mut copy = session.copy_in(&statement).unwrap();
    for line in lines(0..ROWS) {
        copy.push(line.as_bytes()).unwrap();
    }
    run(&mut other, "INSERT INTO t VALUES (50000, 5, 'five')").await;
    let error = copy.finish().await.unwrap_err();
    assert_eq!(error.sqlstate(), "40001", "{error}");
    assert_eq!(one(&mut other, "SELECT id FROM t").await, "50000");
    // One that is given up, or cancelled.
    run(&mut other, "DELETE FROM t; VACUUM t").await;
    let canceller = session.canceller();
    let mut copy = session.copy_in(&statement).unwrap();
    let cancelled = lines(0..ROWS).iter().enumerate().try_for_each(|(at, line)| {
        if at == 6000 {
            canceller.cancel();
        }
        copy.push(line.as_bytes())
    });
    assert_eq!(cancelled.unwrap_err().sqlstate(), "57014");
    drop(copy);
    assert_eq!(one(&mut other, "SELECT count(*) FROM t").await, "0");
}
