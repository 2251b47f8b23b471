//! COPY in and out: round trips of every type in chunks of any size; errors with their positions.

use crate::runner::{TestDatabase, rows};
use datafusion::arrow::datatypes::DataType as ArrowType;
use datafusion::common::ScalarValue;
use entresol_query::{CopyStatement, Error, Result, Session};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

async fn run(session: &mut Session, sql: &str) {
    session.execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

async fn one(session: &mut Session, sql: &str) -> String {
    rows(&session.query(sql).await.unwrap()).join(";")
}

fn statement(sql: &str) -> CopyStatement {
    CopyStatement::parse(sql).unwrap().unwrap()
}

/// Copies bytes into a table, in chunks of `piece` bytes.
async fn copy_in(session: &mut Session, sql: &str, bytes: &[u8], piece: usize) -> Result<u64> {
    let mut copy = session.copy_in(&statement(sql))?;
    for piece in bytes.chunks(piece) {
        copy.push(piece)?;
        copy.commit_part().await?;
    }
    copy.finish().await
}

async fn copy_out(session: &mut Session, sql: &str) -> Result<Vec<u8>> {
    let mut copy = session.copy_out(&statement(sql)).await?;
    let mut bytes = Vec::new();
    while let Some(lines) = copy.next().await {
        bytes.extend(lines?);
    }
    Ok(bytes)
}

async fn table() -> (TestDatabase, Session) {
    let database = TestDatabase::volatile();
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id INT PRIMARY KEY, v BIGINT, s VARCHAR)").await;
    (database, session)
}

#[tokio::test]
async fn lines_become_rows_and_rows_lines() {
    let (_database, mut session) = table().await;
    let text = b"1\t10\tplain\n2\t\\N\ta\\tb\\\\c\\nd\n3\t-5\t\\x41\\102\\q\n4\t0\t\n\\.\nignored";
    for piece in [1, 3, 1000] {
        run(&mut session, "DELETE FROM t").await;
        assert_eq!(copy_in(&mut session, "COPY t FROM STDIN", text, piece).await.unwrap(), 4);
        assert_eq!(one(&mut session, "SELECT v, s = 'a\tb\\c\nd' FROM t WHERE id = 2").await, "NULL true");
        assert_eq!(one(&mut session, "SELECT s FROM t WHERE id = 3").await, "ABq");
        assert_eq!(one(&mut session, "SELECT s = '' FROM t WHERE id = 4").await, "true");
    }
    let out = copy_out(&mut session, "COPY t TO STDOUT").await.unwrap();
    assert_eq!(String::from_utf8(out).unwrap(), "1\t10\tplain\n2\t\\N\ta\\tb\\\\c\\nd\n3\t-5\tABq\n4\t0\t\n");
    let csv = "COPY t (s, id) FROM STDIN WITH (FORMAT csv, HEADER, DELIMITER ';', NULL 'nil')";
    let lines = b"s;id\r\n\"a;\"\"b\"\"\nc\";5\r\nnil;6\r\n\"nil\";7\r\n;8";
    assert_eq!(copy_in(&mut session, csv, lines, 2).await.unwrap(), 4);
    assert_eq!(one(&mut session, "SELECT s = 'a;\"b\"\nc' FROM t WHERE id = 5").await, "true");
    assert_eq!(one(&mut session, "SELECT s FROM t WHERE id > 5").await, "NULL;nil;");
    let out =
        copy_out(&mut session, "COPY (SELECT s, id FROM t WHERE id > 4 ORDER BY id) TO STDOUT CSV HEADER")
            .await;
    assert_eq!(String::from_utf8(out.unwrap()).unwrap(), "s,id\n\"a;\"\"b\"\"\nc\",5\n,6\nnil,7\n\"\",8\n");
    let out = copy_out(&mut session, "COPY public.t (v) TO STDOUT (DELIMITER '|', NULL '-')").await.unwrap();
    assert_eq!(String::from_utf8(out).unwrap(), "10\n-\n-5\n0\n-\n-\n-\n-\n");
}

#[tokio::test]
async fn errors_name_line_and_column_and_leave_nothing() {
    let (_database, mut session) = table().await;
    run(&mut session, "INSERT INTO t VALUES (9, 9, 'nine')").await;
    for (bytes, expected_code, expected) in [
        ("1\t1\tx\n2\t2\n", "22P04", "missing data for column \"s\" (COPY t, line 2)"),
        ("1\t1\tx\tmore\n", "22P04", "extra data after last expected column (COPY t, line 1)"),
        ("1\tten\tx\n", "22P02", "invalid input syntax for type bigint: \"ten\" (COPY t, line 1, column v)"),
        (
            "1\t1\tx\n3000000000\t1\tx\n",
            "22003",
            "value \"3000000000\" is out of range for type integer (COPY t, line 2, column id)",
        ),
        ("1\t1\ta\rb\n", "22P04", "literal carriage return found in data (COPY t, line 1)"),
        ("1\t1\ta\r\n2\t2\tb\n", "22P04", "literal newline found in data (COPY t, line 2)"),
        ("1\t1\t\\xff\n", "22021", "invalid byte sequence for encoding \"UTF8\" (COPY t, line 1)"),
    ] {
        match copy_in(&mut session, "COPY t FROM STDIN", bytes.as_bytes(), 7).await.unwrap_err() {
            Error::Coded { sqlstate, message } => {
                assert_eq!((sqlstate, message.as_str()), (expected_code, expected))
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(one(&mut session, "SELECT count(*) FROM t").await, "1");
    }
    let csv = copy_in(&mut session, "COPY t FROM STDIN CSV", b"1,1,\"open\n2,2,x\n", 100).await.unwrap_err();
    assert!(csv.to_string().contains("unterminated CSV quoted field (COPY t, line 1)"), "{csv}");
    for (bytes, expected) in [
        ("1\t1\tx\n9\t1\tx\n", "key (9) already exists (COPY t, line 2)"),
        ("1\t1\tx\n2\t1\tx\n1\t1\tx\n", "key (1) already exists (COPY t, line 3)"),
        ("\\N\t1\tx\n", "violates not-null constraint (COPY t, line 1)"),
    ] {
        let error = copy_in(&mut session, "COPY t FROM STDIN", bytes.as_bytes(), 100).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(one(&mut session, "SELECT count(*) FROM t").await, "1");
    }
    let error = copy_in(&mut session, "COPY nothing FROM STDIN", b"", 1).await.unwrap_err();
    assert!(error.to_string().contains("relation \"nothing\" does not exist"), "{error}");
    let error = copy_in(&mut session, "COPY t (id, nothing) FROM STDIN", b"", 1).await.unwrap_err();
    assert!(error.to_string().contains("column \"nothing\" of relation \"t\" does not exist"), "{error}");
}

#[tokio::test]
async fn a_copy_in_parts_commits_as_it_goes() {
    let (database, mut session) = table().await;
    let mut other = database.session();
    let lines: String = (0..1000).map(|id| format!("{id}\t{id}\tx\n")).collect();
    let sql = "COPY t FROM STDIN WITH (COMMIT_ROWS = 300)";
    let mut copy = session.copy_in(&statement(sql)).unwrap();
    let (front, rest) = lines.as_bytes().split_at(lines.len() / 2);
    for piece in front.chunks(100) {
        copy.push(piece).unwrap();
        copy.commit_part().await.unwrap();
    }
    // Rows that are not enough for a batch are not written yet.
    assert_eq!(one(&mut other, "SELECT count(*) FROM t").await, "0");
    for piece in rest.chunks(100) {
        copy.push(piece).unwrap();
        copy.commit_part().await.unwrap();
    }
    assert_eq!(copy.finish().await.unwrap(), 1000);
    assert_eq!(one(&mut other, "SELECT count(*), sum(v) FROM t").await, "1000 499500");

    run(&mut session, "DELETE FROM t").await;
    let lines: String = (0..20_000).map(|id| format!("{}\t{id}\tx\n", id % 17_000)).collect();
    let copied =
        copy_in(&mut session, "COPY t FROM STDIN (FORMAT text, COMMIT_ROWS 5000)", lines.as_bytes(), 10_000);
    let error = copied.await.unwrap_err();
    assert_eq!(error.sqlstate(), "23505", "{error}");
    assert!(error.to_string().ends_with("(COPY t, line 17001)"), "{error}");
    let committed = one(&mut other, "SELECT count(*) FROM t").await;
    assert!(["8192", "16384"].contains(&&committed[..]), "{committed} rows are committed");
    let told = format!("the first {committed} rows of COPY t are committed");
    assert_eq!(session.take_notices()[0].message, told);

    run(&mut session, "BEGIN").await;
    let error = session.copy_in(&statement(sql)).unwrap_err();
    assert_eq!(error.to_string(), "COPY with commit_rows cannot run inside a transaction block");
    run(&mut session, "ROLLBACK").await;
    for (options, expected) in [
        ("(COMMIT_ROWS 0)", "COPY commit_rows must be a number of rows from 1, not 0"),
        ("(COMMIT_ROWS = 1.5, FORMAT csv)", "COPY commit_rows must be a number of rows from 1, not 1.5"),
        ("(COMMIT_ROWS 1, COMMIT_ROWS 2)", "conflicting or redundant options"),
    ] {
        let error = CopyStatement::parse(&format!("COPY t FROM STDIN WITH {options}")).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    let error = CopyStatement::parse("COPY t TO STDOUT (COMMIT_ROWS 10)").unwrap_err();
    assert_eq!(error.to_string(), "COPY commit_rows cannot be used with COPY TO");
    run(&mut session, "CREATE TABLE named (commit_rows INT)").await;
    assert_eq!(copy_in(&mut session, "COPY named (commit_rows) FROM STDIN", b"1\n", 9).await.unwrap(), 1);
}

#[tokio::test]
async fn in_a_block_a_copy_is_a_statement() {
    let (database, mut session) = table().await;
    let mut other = database.session();
    run(&mut session, "BEGIN; INSERT INTO t VALUES (1, 1, 'a'); SAVEPOINT s").await;
    assert_eq!(copy_in(&mut session, "COPY t FROM STDIN", b"2\t2\tb\n", 100).await.unwrap(), 1);
    assert_eq!(one(&mut session, "SELECT count(*) FROM t").await, "2");
    assert_eq!(one(&mut other, "SELECT count(*) FROM t").await, "0");
    // Written rows of a failed one are undone, and the block has failed.
    let many: String = (10..3000).map(|id| format!("{id}\t0\tx\n")).chain(["2\t0\tx\n".into()]).collect();
    copy_in(&mut session, "COPY t FROM STDIN", many.as_bytes(), 1000).await.unwrap_err();
    assert!(session.is_failed());
    run(&mut session, "ROLLBACK TO s").await;
    assert_eq!(one(&mut session, "SELECT count(*) FROM t").await, "1");
    // So has one that is dropped before its end.
    let mut copy = session.copy_in(&statement("COPY t FROM STDIN")).unwrap();
    copy.push(many.as_bytes()).unwrap();
    drop(copy);
    let error = session.query("SELECT 1").await.unwrap_err();
    assert!(error.to_string().contains("COPY was not finished"), "{error}");
    run(&mut session, "ROLLBACK TO s; COMMIT").await;
    assert_eq!(one(&mut other, "SELECT id FROM t").await, "1");
    run(&mut session, "BEGIN READ ONLY").await;
    assert!(session.copy_in(&statement("COPY t FROM STDIN")).unwrap_err().to_string().contains("read-only"));
    run(&mut session, "ROLLBACK").await;
    // Outside of a block a dropped one leaves nothing behind.
    let mut copy = session.copy_in(&statement("COPY t FROM STDIN")).unwrap();
    copy.push(many.as_bytes()).unwrap();
    drop(copy);
    assert_eq!(one(&mut session, "SELECT count(*) FROM t").await, "1");
}

#[tokio::test]
async fn rows_of_values_are_for_the_binary_format() {
    let database = TestDatabase::volatile();
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id INT PRIMARY KEY, d DECIMAL(5, 2), s VARCHAR DEFAULT 'none')").await;
    let binary = statement("COPY t (d, id) FROM STDIN WITH (FORMAT binary)");
    assert!(binary.is_binary() && !statement("COPY t FROM STDIN").is_binary());
    let mut copy = session.copy_in(&binary).unwrap();
    let fields = copy.fields();
    let types: Vec<&ArrowType> = fields.iter().map(|field| field.data_type()).collect();
    assert_eq!(types, [&ArrowType::Decimal128(5, 2), &ArrowType::Int32]);
    let decimal = |value| ScalarValue::Decimal128(value, 5, 2);
    for id in 0..3000 {
        copy.push_row(&[decimal((id % 2 == 0).then_some(125)), ScalarValue::from(id)]).unwrap();
    }
    assert_eq!(copy.finish().await.unwrap(), 3000);
    assert_eq!(one(&mut session, "SELECT count(*) FROM t WHERE s = 'none' AND d = 1.25").await, "1500");
    let mut refused = |row: &[ScalarValue]| {
        let mut copy = session.copy_in(&binary).unwrap();
        copy.push_row(&[decimal(None), ScalarValue::from(5000)]).unwrap();
        copy.push_row(row).unwrap_err().to_string()
    };
    let error = refused(&[decimal(None)]);
    assert!(error.contains("row field count is 1, expected 2 (COPY t, line 2)"), "{error}");
    let error = refused(&[ScalarValue::from("1"), ScalarValue::from(5001)]);
    assert!(error.contains("column \"d\" is of type"), "{error}");
    let error = refused(&[decimal(Some(100_000)), ScalarValue::from(5001)]);
    assert!(error.contains("column \"d\" is of type"), "{error}");
    // Neither accepts the other's input.
    let mut copy = session.copy_in(&binary).unwrap();
    assert!(copy.push(b"1\t2\n").unwrap_err().to_string().contains("FORMAT binary"));
    drop(copy);
    let mut copy = session.copy_in(&statement("COPY t (d, id) FROM STDIN")).unwrap();
    assert!(copy.push_row(&[decimal(None), ScalarValue::from(1)]).is_err());
    drop(copy);
    assert!(copy_out(&mut session, "COPY t TO STDOUT WITH (FORMAT binary)").await.is_err());
    let mut copy = session.copy_out(&statement("COPY t TO STDOUT WITH (FORMAT binary)")).await.unwrap();
    let mut rows = 0;
    while let Some(batch) = copy.next_batch().await {
        rows += batch.unwrap().num_rows() as u64;
    }
    assert_eq!((rows, copy.rows()), (3000, 3000));
}

#[test]
fn what_is_no_copy_of_this_kind_is_refused() {
    assert!(CopyStatement::parse("SELECT 'copy t from stdin'").unwrap().is_none());
    assert!(CopyStatement::parse("-- copy\nSELECT 1").unwrap().is_none());
    assert!(CopyStatement::parse("/* x */ copy t from stdin;").unwrap().unwrap().is_in());
    assert!(!CopyStatement::parse("COPY t TO STDOUT").unwrap().unwrap().is_in());
    for (sql, expected) in [
        ("COPY t FROM PROGRAM 'file'", "unsupported: statement COPY t FROM PROGRAM 'file'"),
        ("COPY t FROM STDIN WITH (FORMAT parquet)", "STDIN or STDOUT: name a file"),
        ("COPY t TO STDOUT; SELECT 1", "one query text"),
        ("COPY t FROM STDIN WITH (FORMAT binary, FORMAT csv)", "conflicting or redundant options"),
        ("COPY t FROM STDIN WITH (FORMAT binary, HEADER)", "cannot specify HEADER in BINARY mode"),
        ("COPY t TO STDOUT WITH (FORMAT binary, NULL 'x')", "cannot specify NULL in BINARY mode"),
        ("COPY t FROM STDIN WITH (FORMAT xml)", "COPY format \"xml\" not recognized"),
        ("COPY t FROM STDIN WITH (QUOTE '''')", "COPY QUOTE requires CSV mode"),
        ("COPY t FROM STDIN WITH (FORMAT csv, DELIMITER '\"')", "delimiter and quote must be different"),
        ("COPY t FROM STDIN WITH (DELIMITER 'x')", "COPY delimiter cannot be \"x\""),
        ("COPY t FROM STDIN WITH (DELIMITER ';', NULL 'a;b')", "must not appear in the NULL specification"),
        ("COPY t FROM STDIN WITH (FORMAT csv, FORMAT text)", "conflicting or redundant options"),
        ("COPY t FROM STDIN WITH (DELIMITER 'ab')", "syntax error"),
        ("COPY FROM STDIN", "syntax error"),
    ] {
        let error = CopyStatement::parse(sql).unwrap_err().to_string();
        assert!(error.contains(expected), "{sql}: {error}");
    }
}

/// Row of every column type, as SQL literals.
fn row() -> impl Strategy<Value = Vec<String>> {
    let null = || Just("NULL".to_owned());
    let text = prop_oneof![
        "[ -~\\n\\r\\t\\\\\"',;|]{0,12}",
        "\\PC{0,6}",
        Just("\\.".to_owned()),
        Just("\\N".to_owned())
    ];
    (
        prop_oneof![null(), any::<bool>().prop_map(|value| value.to_string())],
        prop_oneof![null(), any::<i32>().prop_map(|value| format!("CAST('{value}' AS INT)"))],
        prop_oneof![null(), any::<i64>().prop_map(|value| format!("CAST('{value}' AS BIGINT)"))],
        prop_oneof![null(), any::<f64>().prop_map(|value| format!("CAST('{value:e}' AS DOUBLE)"))],
        prop_oneof![
            null(),
            any::<i32>().prop_map(|value| format!("{}.{:02}", value / 100, (value % 100).abs()))
        ],
        prop_oneof![
            null(),
            (1i32..9999, 1u32..13, 1u32..29).prop_map(|(y, m, d)| format!("'{y:04}-{m:02}-{d:02}'"))
        ],
        prop_oneof![
            null(),
            (1i32..9999, 0u32..86_400, 0u32..1_000_000).prop_map(|(year, second, micro)| {
                let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
                format!("'{year:04}-03-01 {hour:02}:{minute:02}:{second:02}.{micro:06}'")
            })
        ],
        prop_oneof![null(), text.prop_map(|value| format!("'{}'", value.replace('\'', "''")))],
    )
        .prop_map(|(b, i, l, d, n, day, ts, s)| vec![b, i, l, d, n, day, ts, s])
}

#[test]
fn every_type_comes_back_as_it_was() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let formats = [
        "",
        " WITH (FORMAT csv)",
        " WITH (FORMAT csv, HEADER, DELIMITER '|', QUOTE '''', ESCAPE '\\', NULL 'null')",
        " WITH (DELIMITER ',', NULL '')",
    ];
    let cases =
        (proptest::collection::vec(row(), 1..20), proptest::sample::select(formats.to_vec()), 1usize..64);
    let mut runner = TestRunner::new(Config { cases: 24, failure_persistence: None, ..Config::default() });
    let run_all = runner.run(&cases, |(rows, format, piece)| {
        runtime.block_on(async {
            let database = TestDatabase::volatile();
            let mut session = database.session();
            let columns = "(id INT PRIMARY KEY, b BOOLEAN, i INT, l BIGINT, d DOUBLE, n DECIMAL(12,2), day DATE, ts TIMESTAMP, s VARCHAR)";
            run(&mut session, &format!("CREATE TABLE a {columns}; CREATE TABLE b {columns}")).await;
            for (id, row) in rows.iter().enumerate() {
                run(&mut session, &format!("INSERT INTO a VALUES ({id}, {})", row.join(", "))).await;
            }
            let bytes = copy_out(&mut session, &format!("COPY a TO STDOUT{format}")).await.unwrap();
            // In this format an empty string and NULL are the same.
            let same = format.contains("NULL ''");
            let copied = copy_in(&mut session, &format!("COPY b FROM STDIN{format}"), &bytes, piece).await;
            prop_assert_eq!(copied.unwrap(), rows.len() as u64, "{}", String::from_utf8_lossy(&bytes));
            let text = if same { "coalesce(s, '')" } else { "s" };
            let select = |table: &str| format!("SELECT id, b, i, l, d, n, day, ts, {text}, s IS NULL AND NOT {same} FROM {table} ORDER BY id");
            prop_assert_eq!(one(&mut session, &select("b")).await, one(&mut session, &select("a")).await);
            Ok(())
        })
    });
    run_all.unwrap();
}
