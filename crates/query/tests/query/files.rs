//! COPY of files: all formats in and out, columns by name, types, errors with their places, and who may.

use crate::runner::{TestDatabase, rows};
use entresol_query::arrow::array::{
    ArrayRef, Date32Array, Float64Array, Int32Array, Int64Array, StringArray,
};
use entresol_query::arrow::ipc::writer::StreamWriter;
use entresol_query::arrow::record_batch::RecordBatch;
use entresol_query::{Role, Session, StatementResult};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

async fn run(session: &mut Session, sql: &str) -> u64 {
    match session.execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}")).pop() {
        Some(StatementResult::Count { rows, .. }) => rows,
        _ => 0,
    }
}

async fn one(session: &mut Session, sql: &str) -> String {
    rows(&session.query(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"))).join(";")
}

/// SQLSTATE and message of a statement that fails.
async fn error(session: &mut Session, sql: &str) -> (&'static str, String) {
    let error = session.execute(sql).await.map(|_| ()).expect_err(sql);
    (error.sqlstate(), error.to_string())
}

const COLUMNS: &str = "(id INT PRIMARY KEY, big BIGINT, small SMALLINT, price DECIMAL(12, 2), ratio DOUBLE, at TIMESTAMP, \
                       zoned TIMESTAMPTZ, day DATE, flag BOOLEAN, name VARCHAR, code CHAR(4))";
const ROWS: &str = "INSERT INTO source SELECT i, i::bigint * 1000000007, (i % 100)::smallint, i * 0.25, i / 3.0, \
                    timestamp '2024-02-29 12:00:00' + i * interval '1 second', \
                    timestamptz '2024-02-29 12:00:00+00' + i * interval '1 second', date '2024-01-01' + i % 1000, \
                    CASE WHEN i % 3 = 0 THEN NULL ELSE i % 2 = 0 END, CASE WHEN i % 5 = 0 THEN NULL ELSE 'näme ' || i END, \
                    'c' || (i % 10) FROM generate_series(1, 20000) g(i)";

/// Number of rows and sums that tell tables apart, beside rows that are in one of both.
async fn difference(session: &mut Session, table: &str) -> String {
    let missing = format!("SELECT * FROM source EXCEPT SELECT * FROM {table}");
    let more = format!("SELECT * FROM {table} EXCEPT SELECT * FROM source");
    one(session, &format!("SELECT count(*) FROM (({missing}) UNION ALL ({more})) x")).await
}

#[tokio::test]
async fn all_formats_bring_the_rows_back() {
    let database = TestDatabase::journal();
    let mut session = database.session();
    let directory = tempfile::tempdir().unwrap();
    run(&mut session, &format!("CREATE TABLE source {COLUMNS}")).await;
    run(&mut session, ROWS).await;
    let formats = [
        ("a.parquet", "WITH (FORMAT parquet)", ""),
        ("b.parquet", "WITH (FORMAT parquet, COMPRESSION zstd)", ""),
        ("c.parquet", "WITH (COMPRESSION 'none', FORMAT 'parquet')", ""),
        ("d.data", "(FORMAT parquet, COMPRESSION lz4)", "(FORMAT parquet)"),
        ("e.arrow", "", ""),
        ("f.arrows", "(FORMAT arrow)", ""),
        ("g.csv", "(FORMAT csv, HEADER, NULL '-')", "(FORMAT csv, HEADER, NULL '-')"),
        ("h.txt", "", ""),
        ("i.tbl", "(FORMAT tbl, NULL '-')", "(FORMAT tbl, NULL '-')"),
    ];
    for (at, (name, to, from)) in formats.into_iter().enumerate() {
        let file = directory.path().join(name);
        let file = file.display();
        assert_eq!(run(&mut session, &format!("COPY source TO '{file}' {to}")).await, 20_000, "{name}");
        let layout = if at % 2 == 0 { "rows" } else { "columns" };
        run(&mut session, &format!("CREATE TABLE t{at} {COLUMNS} WITH (layout = {layout})")).await;
        assert_eq!(run(&mut session, &format!("COPY t{at} FROM '{file}' {from}")).await, 20_000, "{name}");
        assert_eq!(difference(&mut session, &format!("t{at}")).await, "0", "{name}");
        // Again, into a table with rows: nothing of it stays.
        let (code, message) = error(&mut session, &format!("COPY t{at} FROM '{file}' {from}")).await;
        assert_eq!(code, "23505", "{name}: {message}");
        assert!(message.contains(name) && message.contains(&format!("t{at}")), "{message}");
        assert_eq!(one(&mut session, &format!("SELECT count(*) FROM t{at}")).await, "20000");
    }
    let left = std::fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(left, formats.len(), "no incomplete file is left");
    let tbl = std::fs::read_to_string(directory.path().join("i.tbl")).unwrap();
    assert!(tbl.lines().next().unwrap().ends_with("|c1  |"), "{tbl:.100}");
    // Behind a load the planner knows the table.
    assert_eq!(
        one(&mut session, "SELECT reltuples > 10000 FROM pg_class WHERE relname = 't0'").await,
        "true"
    );
}

fn parquet(path: &Path, columns: Vec<(&str, ArrayRef)>, group_rows: usize) {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(group_rows)).build();
    let file = std::fs::File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

#[tokio::test]
async fn columns_are_found_by_name_and_types_widen() {
    let database = TestDatabase::journal();
    let mut session = database.session();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file.parquet");
    let file = path.display();
    let strings: ArrayRef = Arc::new(StringArray::from(vec!["1.5", "2.5", "3.25"]));
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("Name", Arc::new(StringArray::from(vec![Some("x"), None, Some("z")]))),
        ("amount", strings),
        ("extra", Arc::new(Float64Array::from(vec![0.5, 1.5, 2.5]))),
        ("day", Arc::new(Date32Array::from(vec![0, 1, 2]))),
        ("id", Arc::new(Int32Array::from(vec![3, 1, 2]))),
    ];
    parquet(&path, columns, 2);
    run(
        &mut session,
        "CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR, day TIMESTAMP, amount DECIMAL(8, 2) DEFAULT 7)",
    )
    .await;
    let (code, message) = error(&mut session, &format!("COPY t FROM '{file}'")).await;
    assert_eq!(code, "22P04");
    assert!(message.contains("does not have: extra"), "{message}");
    assert_eq!(run(&mut session, &format!("COPY t (name, id, day) FROM '{file}' (FORMAT parquet)")).await, 3);
    let found = one(&mut session, "SELECT id, name, day::date, amount FROM t ORDER BY id").await;
    assert_eq!(found, "1 NULL 1970-01-02 7.00;2 z 1970-01-03 7.00;3 x 1970-01-01 7.00");
    run(&mut session, "DELETE FROM t").await;
    assert_eq!(run(&mut session, &format!("COPY t (id, amount) FROM '{file}'")).await, 3);
    assert_eq!(one(&mut session, "SELECT sum(amount) FROM t").await, "7.25");
    let (code, message) = error(&mut session, &format!("COPY t (id, missing) FROM '{file}'")).await;
    assert_eq!(code, "42703", "{message}");
    run(&mut session, "CREATE TABLE u (id INT PRIMARY KEY, missing INT)").await;
    let (code, message) = error(&mut session, &format!("COPY u FROM '{file}'")).await;
    assert_eq!(code, "22P04");
    assert!(
        message.contains("no column \"missing\" for table u: it has Name, amount, extra, day, id"),
        "{message}"
    );
}

#[tokio::test]
async fn errors_name_file_row_group_and_row() {
    let database = TestDatabase::journal();
    let mut session = database.session();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("wrong.parquet");
    let file = path.display();
    run(&mut session, "CREATE TABLE t (id INT PRIMARY KEY, v SMALLINT NOT NULL)").await;
    let ids: ArrayRef = Arc::new(Int32Array::from_iter_values(0..100));
    let v = |wrong: Option<Option<i64>>| -> ArrayRef {
        Arc::new(Int64Array::from_iter((0..100).map(|at| if at == 57 { wrong.flatten() } else { Some(at) })))
    };
    parquet(&path, vec![("id", ids.clone()), ("v", v(Some(Some(40_000))))], 50);
    let (code, message) = error(&mut session, &format!("COPY t FROM '{file}'")).await;
    assert_eq!(code, "22003");
    assert!(
        message.contains("column v") && message.contains("40000") && message.contains("row group 2"),
        "{message}"
    );
    parquet(&path, vec![("id", ids.clone()), ("v", v(None))], 50);
    let (code, message) = error(&mut session, &format!("COPY t FROM '{file}'")).await;
    assert_eq!(code, "23502");
    assert!(message.contains("wrong.parquet\", row group 2, row 8)"), "{message}");
    parquet(&path, vec![("id", ids.clone()), ("v", ids.clone())], 50);
    run(&mut session, "CREATE TABLE dated (id INT PRIMARY KEY, v DATE)").await;
    let (code, message) = error(&mut session, &format!("COPY dated FROM '{file}'")).await;
    assert_eq!(code, "42804");
    assert!(
        message.contains("column \"v\" of table dated is of type DATE, but of type Int32 in file"),
        "{message}"
    );
    assert_eq!(one(&mut session, "SELECT count(*) FROM t").await, "0");

    let bytes = std::fs::read(&path).unwrap();
    for (name, bytes) in
        [("cut.parquet", &bytes[..bytes.len() / 2]), ("empty.parquet", &[]), ("cut.arrow", b"ARROW1")]
    {
        let path = directory.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let (code, message) = error(&mut session, &format!("COPY t FROM '{}'", path.display())).await;
        assert_eq!(code, "22P04", "{message}");
        assert!(message.contains("cannot be read as") && message.contains(name), "{message}");
    }
    let missing = directory.path().join("missing.csv");
    let (code, message) = error(&mut session, &format!("COPY t FROM '{}' CSV", missing.display())).await;
    assert_eq!(code, "58P01", "{message}");
    let (code, _) = error(&mut session, &format!("COPY t FROM '{}'", directory.path().display())).await;
    assert_eq!(code, "42809");
    let inside = missing.join("x.csv");
    assert_eq!(error(&mut session, &format!("COPY t TO '{}'", inside.display())).await.0, "58P01");
    let lines = directory.path().join("lines.csv");
    std::fs::write(&lines, "1,1\n2,x\n").unwrap();
    let (code, message) = error(&mut session, &format!("COPY t FROM '{}' CSV", lines.display())).await;
    assert_eq!(code, "22P02");
    assert!(message.ends_with("lines.csv\", line 2, column v)"), "{message}");
    run(&mut session, "BEGIN; INSERT INTO t VALUES (1, 1); SAVEPOINT s").await;
    error(&mut session, &format!("COPY t FROM '{}' CSV", lines.display())).await;
    assert_eq!(error(&mut session, "SELECT 1").await.0, "25P02", "the block has failed");
    run(&mut session, "ROLLBACK TO s; COMMIT").await;
    assert_eq!(one(&mut session, "SELECT count(*) FROM t").await, "1");
}

#[tokio::test]
async fn streams_slices_and_patterns_are_read() {
    let database = TestDatabase::journal();
    let mut session = database.session();
    let directory = tempfile::tempdir().unwrap();
    for part in 0..3 {
        let ids: ArrayRef = Arc::new(Int32Array::from_iter_values(part * 30_000..(part + 1) * 30_000));
        let batch = RecordBatch::try_from_iter([("id", ids)]).unwrap();
        let file = std::fs::File::create(directory.path().join(format!("part-{part}.feed"))).unwrap();
        let mut writer = StreamWriter::try_new(file, &batch.schema()).unwrap();
        writer.write(&batch).unwrap();
        writer.write(&batch.slice(0, 0)).unwrap();
        writer.finish().unwrap();
    }
    std::fs::write(directory.path().join("part-4.other"), "no such file").unwrap();
    let pattern = directory.path().join("part-?.feed");
    for layout in ["rows", "columns"] {
        run(&mut session, &format!("CREATE TABLE {layout}_t (id INT PRIMARY KEY) WITH (layout = {layout})"))
            .await;
        let copied =
            run(&mut session, &format!("COPY {layout}_t FROM '{}' (FORMAT arrow)", pattern.display())).await;
        assert_eq!(copied, 90_000);
        let found = one(&mut session, &format!("SELECT count(*), sum(id), max(id) FROM {layout}_t")).await;
        assert_eq!(found, "90000 4049955000 89999");
    }
    let none = directory.path().join("*.none");
    assert_eq!(error(&mut session, &format!("COPY rows_t FROM '{}'", none.display())).await.0, "58P01");
    let copied = directory.path().join("sum.parquet");
    let query = format!(
        "COPY (SELECT id % 3 AS rest, count(*) AS n FROM rows_t GROUP BY 1) TO '{}'",
        copied.display()
    );
    assert_eq!(run(&mut session, &query).await, 3);
    run(&mut session, "CREATE TABLE sums (rest INT PRIMARY KEY, n INT)").await;
    run(&mut session, &format!("COPY sums FROM '{}'", copied.display())).await;
    assert_eq!(one(&mut session, "SELECT min(n), max(n), sum(n) FROM sums").await, "30000 30000 90000");
}

#[tokio::test]
async fn files_are_for_superusers() {
    let database = TestDatabase::volatile();
    let mut session = database.session();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("t.csv");
    run(&mut session, "CREATE TABLE t (id INT PRIMARY KEY); INSERT INTO t VALUES (1)").await;
    let role = |administrator| Role {
        name: "r".into(),
        administrator,
        grants: [("t".to_owned(), entresol_query::Privileges::ALL)].into(),
    };
    session.set_role(role(false));
    for sql in [format!("COPY t TO '{}'", file.display()), format!("COPY t FROM '{}'", file.display())] {
        let (code, message) = error(&mut session, &sql).await;
        assert_eq!(code, "42501", "{message}");
        assert_eq!(session.prepare(&sql, &[]).await.unwrap_err().sqlstate(), "42501");
    }
    assert!(!file.exists());
    session.set_role(role(true));
    assert_eq!(run(&mut session, &format!("COPY t TO '{}'", file.display())).await, 1);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "1\n");
    for (sql, code) in [
        ("COPY t FROM 'x' (FORMAT binary)", "0A000"),
        ("COPY t FROM STDIN (FORMAT parquet)", "0A000"),
        ("COPY t TO 'x' (FORMAT csv, COMPRESSION zstd)", "22023"),
        ("COPY t TO 'x' (FORMAT parquet, COMPRESSION rar)", "22023"),
        ("COPY t FROM 'x' (FORMAT parquet, COMPRESSION zstd)", "0A000"),
        ("COPY t FROM 'x' (FORMAT parquet, HEADER)", "42601"),
        ("COPY t FROM PROGRAM 'cat'", "0A000"),
    ] {
        assert_eq!(error(&mut session, sql).await.0, code, "{sql}");
    }
}

/// A pipe is read once: a COPY of it that lost against another transaction is not repeated.
#[tokio::test]
async fn a_pipe_is_read_once() {
    let database = TestDatabase::journal();
    let (mut session, mut other) = (database.session(), database.session());
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pipe.csv");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    run(&mut session, "CREATE TABLE target (id INT PRIMARY KEY, n INT)").await;
    let copy = format!("COPY target FROM '{}' WITH (FORMAT csv)", path.display());
    let write = async {
        // It opens once the statement has begun.
        let opened = tokio::task::spawn_blocking(move || std::fs::OpenOptions::new().write(true).open(&path));
        let mut pipe = opened.await.unwrap().unwrap();
        pipe.write_all(b"1,1\n2,2\n").unwrap();
        run(&mut other, "INSERT INTO target VALUES (2, 0)").await;
    };
    let ((code, message), ()) = tokio::join!(error(&mut session, &copy), write);
    assert_eq!(code, "40001", "{message}");
    assert_eq!(one(&mut session, "SELECT count(*), sum(n) FROM target").await, "1 0");
}

/// A stream that was cut off between two batches looks whole but for its end mark.
#[tokio::test]
async fn a_truncated_arrow_stream_is_refused() {
    let database = TestDatabase::journal();
    let mut session = database.session();
    let directory = tempfile::tempdir().unwrap();
    let (whole, cut) = (directory.path().join("whole.arrows"), directory.path().join("cut.arrows"));
    run(&mut session, "CREATE TABLE t (id INT PRIMARY KEY, n INT)").await;
    let rows = "SELECT i AS id, i AS n FROM generate_series(1, 50000) g(i)";
    run(&mut session, &format!("COPY ({rows}) TO '{}'", whole.display())).await;
    let bytes = std::fs::read(&whole).unwrap();
    for missing in [1, 8, 9, 1000, bytes.len() / 2, bytes.len() - 1, bytes.len()] {
        std::fs::write(&cut, &bytes[..bytes.len() - missing]).unwrap();
        let (code, message) =
            error(&mut session, &format!("COPY t FROM '{}' (FORMAT arrow)", cut.display())).await;
        assert_eq!(code, "22P04", "{missing}: {message}");
        assert!(message.contains("no end mark"), "{missing}: {message}");
        assert_eq!(one(&mut session, "SELECT count(*) FROM t").await, "0");
    }
    assert_eq!(run(&mut session, &format!("COPY t FROM '{}'", whole.display())).await, 50_000);
}

/// A `.tbl` file that was cut off in a value has the value's rest nowhere.
#[tokio::test]
async fn a_truncated_tbl_file_is_refused() {
    let database = TestDatabase::journal();
    let mut session = database.session();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lines.tbl");
    run(&mut session, "CREATE TABLE t (id INT PRIMARY KEY, n INT, name VARCHAR)").await;
    let copy = format!("COPY t FROM '{}' (FORMAT tbl)", path.display());
    for (text, cut) in [("1|2|abc|\n2|3|de", "2|3|de"), ("1|2|abc|\n2|3", "2|3"), ("1", "1")] {
        std::fs::write(&path, text).unwrap();
        let (code, message) = error(&mut session, &copy).await;
        assert_eq!(code, "22P04", "{message}");
        assert!(message.contains(&format!("\"{cut}\": the file is truncated")), "{message}");
        assert_eq!(one(&mut session, "SELECT count(*) FROM t").await, "0");
    }
    // Generators leave out the end of the last line, but no delimiter.
    std::fs::write(&path, "1|2|abc|\n2|3|de|").unwrap();
    assert_eq!(run(&mut session, &copy).await, 2);
}
