//! Prepared statements: types, values, cached plans and their renewal.

use crate::runner::{TestDatabase, rows};
use entresol_query::arrow::datatypes::DataType;
use entresol_query::arrow::record_batch::RecordBatch;
use entresol_query::datafusion::common::ScalarValue;
use entresol_query::{Error, Outcome, PreparedStatement, Result, Session};
use futures::TryStreamExt;

async fn run(session: &mut Session, sql: &str) {
    session.execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

async fn prepared(session: &mut Session, sql: &str) -> PreparedStatement {
    session.prepare(sql, &[]).await.unwrap_or_else(|error| panic!("{sql}: {error}"))
}

/// Runs a statement; returns rows joined by `;`, or the verb and the count.
async fn given(
    session: &mut Session,
    statement: &PreparedStatement,
    values: &[ScalarValue],
) -> Result<String> {
    Ok(match session.run_prepared(statement, values).await? {
        Outcome::Rows(stream) => {
            let batches: Vec<RecordBatch> = stream.try_collect().await?;
            rows(&batches).join(";")
        }
        Outcome::Count { verb, rows } => format!("{verb} {rows}"),
        Outcome::Done { verb } => verb.to_owned(),
        other => format!("{other:?}"),
    })
}

fn int(value: i32) -> ScalarValue {
    ScalarValue::from(value)
}

fn bigint(value: i64) -> ScalarValue {
    ScalarValue::from(value)
}

fn text(value: &str) -> ScalarValue {
    ScalarValue::from(value)
}

async fn meters() -> (TestDatabase, Session) {
    let database = TestDatabase::volatile();
    let mut session = database.session();
    run(
        &mut session,
        "CREATE TABLE meters (id INT PRIMARY KEY, place VARCHAR NOT NULL, power BIGINT, d DOUBLE)",
    )
    .await;
    run(&mut session, "INSERT INTO meters VALUES (1, 'cellar', 10, 0.5), (2, 'roof', 20, NULL)").await;
    (database, session)
}

fn code(error: &Error) -> &'static str {
    match error {
        Error::Coded { sqlstate, .. } => sqlstate,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn parameters_have_the_types_of_what_they_meet() {
    use DataType::{Boolean, Date32, Float64, Int32, Int64, Utf8};
    let (_database, mut session) = meters().await;
    run(&mut session, "CREATE TABLE days (day DATE PRIMARY KEY, price DECIMAL(8,2), ok BOOLEAN)").await;
    for (sql, expected) in [
        ("SELECT place FROM meters WHERE id = $1", vec![Int32]),
        ("SELECT place FROM meters WHERE id IN ($2, $1)", vec![Int32, Int32]),
        ("SELECT place FROM meters WHERE power > $1 AND place = $2", vec![Int64, Utf8]),
        ("SELECT place FROM meters WHERE power + $1 > 5 ORDER BY id LIMIT $2", vec![Int64, Int64]),
        ("SELECT $1", vec![Utf8]),
        ("SELECT $1::double precision, CAST($2 AS BOOLEAN)", vec![Float64, Boolean]),
        ("INSERT INTO meters VALUES ($1, $2, $3, $4)", vec![Int32, Utf8, Int64, Float64]),
        ("INSERT INTO meters (place, id) VALUES ($1, $2), ($3, $4)", vec![Utf8, Int32, Utf8, Int32]),
        ("INSERT INTO meters (id, place) SELECT $1, place FROM meters WHERE d = $2", vec![Int32, Float64]),
        ("UPDATE meters SET power = power + $1, place = $2 WHERE id = $3", vec![Int64, Utf8, Int32]),
        ("UPDATE meters SET place = $1 WHERE power > $2", vec![Utf8, Int64]),
        ("DELETE FROM days WHERE day = $1", vec![Date32]),
        ("UPDATE meters SET power = 1 WHERE id = 1 RETURNING power + $1, $2::date", vec![Int64, Date32]),
        (
            "MERGE INTO meters m USING (SELECT 1 AS id WHERE 2.5::double precision > $1) AS s ON m.id = s.id AND m.power < $2
             WHEN MATCHED AND m.d > $3 THEN UPDATE SET place = $4, power = m.power * $5
             WHEN NOT MATCHED AND (SELECT max(day) FROM days) = $6 THEN INSERT (id, d, place) VALUES ($7, $8, 'p')
             RETURNING m.id = $9",
            vec![Float64, Int64, Float64, Utf8, Int64, Date32, Int32, Float64, Int32],
        ),
        ("DELETE FROM days WHERE price < $1 OR ok = $2", vec![DataType::Decimal128(8, 2), Boolean]),
        ("SELECT id FROM meters WHERE id = (SELECT max(id) FROM meters WHERE place = $1)", vec![Utf8]),
        ("BEGIN", vec![]),
    ] {
        assert_eq!(prepared(&mut session, sql).await.parameters(), expected, "{sql}");
    }
    let declared = session.prepare("SELECT place FROM meters WHERE id = $1", &[Some(Int64)]).await.unwrap();
    assert_eq!(declared.parameters(), [Int64]);
    assert_eq!(given(&mut session, &declared, &[bigint(2)]).await.unwrap(), "roof");
    assert_eq!(given(&mut session, &declared, &[bigint(1 << 40)]).await.unwrap(), "");
}

#[tokio::test]
async fn columns_are_known_before_the_first_run() {
    let (_database, mut session) = meters().await;
    for (sql, expected) in [
        ("SELECT * FROM meters WHERE id = 1", Some("id Int32,place Utf8,power Int64,d Float64")),
        ("SELECT m.power AS \"P\", ID FROM meters m WHERE m.id = $1", Some("P Int64,id Int32")),
        ("SELECT count(*) AS n, max(d) AS m FROM meters WHERE power > $1", Some("n Int64,m Float64")),
        ("SHOW TimeZone", Some("TimeZone Utf8")),
        ("EXPLAIN SELECT 1", Some("QUERY PLAN Utf8")),
        ("UPDATE meters SET d = 1", None),
        ("COMMIT", None),
        ("", None),
    ] {
        let statement = prepared(&mut session, sql).await;
        let columns = statement.columns().map(|schema| {
            let columns =
                schema.fields().iter().map(|field| format!("{} {}", field.name(), field.data_type()));
            columns.collect::<Vec<_>>().join(",")
        });
        assert_eq!(columns.as_deref(), expected, "{sql}");
    }
}

#[tokio::test]
async fn values_go_where_the_parameters_are() {
    let (_database, mut session) = meters().await;
    let insert = prepared(&mut session, "INSERT INTO meters VALUES ($1, $2, $3, $4)").await;
    let null = ScalarValue::Int64(None);
    for id in 3..6 {
        let values = [int(id), text("hall"), null.clone(), ScalarValue::from(f64::from(id))];
        assert_eq!(given(&mut session, &insert, &values).await.unwrap(), "INSERT 1");
    }
    let error =
        given(&mut session, &insert, &[int(3), text("x"), null.clone(), ScalarValue::Float64(None)]).await;
    assert!(error.unwrap_err().to_string().contains("key (3) already exists"));
    let point = prepared(&mut session, "SELECT place, power FROM meters WHERE id = $1").await;
    assert_eq!(given(&mut session, &point, &[int(1)]).await.unwrap(), "cellar 10");
    assert_eq!(given(&mut session, &point, &[int(3)]).await.unwrap(), "hall NULL");
    assert_eq!(given(&mut session, &point, &[int(9)]).await.unwrap(), "");
    assert_eq!(given(&mut session, &point, &[ScalarValue::Int32(None)]).await.unwrap(), "");
    let some = prepared(&mut session, "SELECT id FROM meters WHERE id IN ($1, 1, $2)").await;
    assert_eq!(given(&mut session, &some, &[int(2), int(1)]).await.unwrap(), "1;2");
    let scan = prepared(&mut session, "SELECT id FROM meters WHERE place = $1 AND id > $2 ORDER BY id").await;
    assert_eq!(given(&mut session, &scan, &[text("hall"), int(3)]).await.unwrap(), "4;5");
    assert_eq!(given(&mut session, &scan, &[text("roof"), int(0)]).await.unwrap(), "2");
    let sum = prepared(&mut session, "UPDATE meters SET power = power - $1, d = $2 WHERE id = $3").await;
    let values = [bigint(-5), ScalarValue::from(1.5), int(1)];
    assert_eq!(given(&mut session, &sum, &values).await.unwrap(), "UPDATE 1");
    let many = prepared(&mut session, "UPDATE meters SET place = $1 WHERE power > $2").await;
    assert_eq!(given(&mut session, &many, &[text("it's"), bigint(-1)]).await.unwrap(), "UPDATE 2");
    let delete = prepared(&mut session, "DELETE FROM meters WHERE id IN ($1, $2)").await;
    assert_eq!(given(&mut session, &delete, &[int(4), int(40)]).await.unwrap(), "DELETE 1");
    let all = prepared(&mut session, "SELECT * FROM meters ORDER BY id").await;
    let expected = "1 it's 15 1.5;2 it's 20 NULL;3 hall NULL 3.0;5 hall NULL 5.0";
    assert_eq!(given(&mut session, &all, &[]).await.unwrap(), expected);
    assert_eq!(given(&mut session, &all, &[]).await.unwrap(), expected);
    let limited = prepared(&mut session, "SELECT id FROM meters ORDER BY id LIMIT $1 OFFSET $2").await;
    assert_eq!(given(&mut session, &limited, &[bigint(2), bigint(1)]).await.unwrap(), "2;3");
    let every =
        prepared(&mut session, "SELECT $1 = 'x', $2::int + 1, $3::date, $4::timestamp, $5::decimal(6,2)")
            .await;
    let values = [text("x"), int(41), text("2024-02-29"), text("2024-02-29 10:00:00"), text("1.5")];
    let given = given(&mut session, &every, &values).await.unwrap();
    assert_eq!(given, "true 42 2024-02-29 2024-02-29T10:00:00 1.50");
}

#[tokio::test]
async fn values_of_other_types_are_converted_or_refused() {
    let (_database, mut session) = meters().await;
    let point = prepared(&mut session, "SELECT place FROM meters WHERE id = $1").await;
    assert_eq!(given(&mut session, &point, &[text("2")]).await.unwrap(), "roof");
    assert_eq!(given(&mut session, &point, &[bigint(2)]).await.unwrap(), "roof");
    for (values, expected) in
        [(vec![text("two")], "22P02"), (vec![], "08P01"), (vec![int(1), int(2)], "08P01")]
    {
        assert_eq!(code(&given(&mut session, &point, &values).await.unwrap_err()), expected, "{values:?}");
    }
    for (sql, expected) in
        [("SELECT 1; SELECT 2", "42601"), ("SELECT $0", "42P02"), ("SELECT $99999", "42P02")]
    {
        assert_eq!(code(&session.prepare(sql, &[]).await.unwrap_err()), expected, "{sql}");
    }
    assert!(matches!(session.prepare("SELEC 1", &[]).await.unwrap_err(), Error::Syntax(_)));
    assert!(matches!(
        session.prepare("SELECT 1 FROM nothing", &[]).await.unwrap_err(),
        Error::NoSuchTable(_)
    ));
    session.prepare("UPDATE meters SET nothing = $1", &[]).await.unwrap_err();
    session.prepare("DELETE FROM meters WHERE nothing = $1", &[]).await.unwrap_err();
}

#[tokio::test]
async fn a_changed_catalog_is_planned_again() {
    let (_database, mut session) = meters().await;
    let point = prepared(&mut session, "SELECT * FROM meters WHERE id = $1").await;
    let count = prepared(&mut session, "SELECT count(*) FROM meters").await;
    assert_eq!(given(&mut session, &count, &[]).await.unwrap(), "2");
    run(&mut session, "DROP TABLE meters").await;
    let error = given(&mut session, &point, &[int(1)]).await.unwrap_err();
    assert!(error.to_string().contains("relation \"meters\" does not exist"), "{error}");
    let same = "CREATE TABLE meters (id INT PRIMARY KEY, place VARCHAR NOT NULL, power BIGINT, d DOUBLE)";
    run(&mut session, same).await;
    run(&mut session, "INSERT INTO meters VALUES (1, 'new', 1, 1)").await;
    assert_eq!(given(&mut session, &point, &[int(1)]).await.unwrap(), "1 new 1 1.0");
    assert_eq!(given(&mut session, &count, &[]).await.unwrap(), "1");
    run(&mut session, "DROP TABLE meters; CREATE TABLE meters (id INT PRIMARY KEY, place INT)").await;
    let error = given(&mut session, &point, &[int(1)]).await.unwrap_err();
    assert_eq!(
        (code(&error), error.to_string().as_str()),
        ("0A000", "cached plan must not change result type")
    );
    assert_eq!(given(&mut session, &count, &[]).await.unwrap(), "0");
}

#[tokio::test]
async fn what_depends_on_time_or_session_is_not_kept() {
    let (_database, mut session) = meters().await;
    let now = prepared(&mut session, "SELECT now() FROM meters WHERE power = 10").await;
    let first = given(&mut session, &now, &[]).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    assert_ne!(given(&mut session, &now, &[]).await.unwrap(), first);
    let tables = prepared(&mut session, "SELECT count(*) FROM entresol.tables").await;
    assert_eq!(given(&mut session, &tables, &[]).await.unwrap(), "1");
    let zone = prepared(&mut session, "SELECT current_setting('application_name')").await;
    run(&mut session, "CREATE TABLE another (id INT); SET application_name = 'tests'").await;
    assert_eq!(given(&mut session, &tables, &[]).await.unwrap(), "2");
    assert_eq!(given(&mut session, &zone, &[]).await.unwrap(), "tests");
}

#[tokio::test]
async fn prepared_statements_run_in_blocks() {
    let (database, mut a) = meters().await;
    let mut b = database.session();
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        let begin = prepared(&mut a, &format!("BEGIN ISOLATION LEVEL {level}")).await;
        let read = prepared(&mut a, "SELECT power FROM meters WHERE id = $1").await;
        let sum = prepared(&mut a, "SELECT sum(power) FROM meters").await;
        let add = prepared(&mut a, "UPDATE meters SET power = power + $1 WHERE id = $2").await;
        let commit = prepared(&mut a, "COMMIT").await;
        run(&mut b, "UPDATE meters SET power = 10 WHERE id = 1; UPDATE meters SET power = 20 WHERE id = 2")
            .await;
        assert_eq!(given(&mut a, &begin, &[]).await.unwrap(), "BEGIN");
        assert_eq!(given(&mut a, &read, &[int(1)]).await.unwrap(), "10");
        assert_eq!(given(&mut a, &add, &[bigint(1), int(1)]).await.unwrap(), "UPDATE 1");
        assert_eq!(given(&mut a, &read, &[int(1)]).await.unwrap(), "11");
        run(&mut b, "UPDATE meters SET power = 200 WHERE id = 2").await;
        let seen = if level == "READ COMMITTED" { "211" } else { "31" };
        assert_eq!(given(&mut a, &sum, &[]).await.unwrap(), seen, "{level}");
        // A row that was read was changed by another session.
        let committed = given(&mut a, &commit, &[]).await;
        match level {
            "SERIALIZABLE" => assert!(committed.unwrap_err().is_conflict()),
            _ => assert_eq!(committed.unwrap(), "COMMIT"),
        }
    }
}

#[tokio::test]
async fn errors_fail_the_block_even_while_rows_are_read() {
    let (_database, mut session) = meters().await;
    let insert = prepared(&mut session, "INSERT INTO meters (id, place) VALUES ($1, 'x')").await;
    let divide = prepared(&mut session, "SELECT 1 / (power - $1) FROM meters").await;
    run(&mut session, "BEGIN; SAVEPOINT s").await;
    given(&mut session, &insert, &[int(1)]).await.unwrap_err();
    assert!(session.is_failed());
    let error = given(&mut session, &insert, &[int(7)]).await.unwrap_err();
    assert!(matches!(error, Error::TransactionAborted(_)), "{error:?}");
    run(&mut session, "ROLLBACK TO s").await;
    given(&mut session, &divide, &[bigint(10)]).await.unwrap_err();
    assert!(session.is_failed());
    run(&mut session, "ROLLBACK; BEGIN READ ONLY").await;
    let error = given(&mut session, &insert, &[int(7)]).await.unwrap_err();
    assert!(error.to_string().contains("read-only transaction"), "{error}");
    run(&mut session, "ROLLBACK").await;
    assert_eq!(given(&mut session, &insert, &[int(7)]).await.unwrap(), "INSERT 1");
}

#[tokio::test]
async fn statements_belong_to_their_session() {
    let (database, mut a) = meters().await;
    let mut b = database.session();
    let statement = prepared(&mut a, "SELECT 1").await;
    assert!(given(&mut b, &statement, &[]).await.unwrap_err().to_string().contains("another session"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prepared_statements_are_run_again_after_conflicts() {
    let (database, mut session) = meters().await;
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let mut session = database.session();
        tasks.push(tokio::spawn(async move {
            let add = prepared(&mut session, "UPDATE meters SET power = power + 1 WHERE id = $1").await;
            for _ in 0..50 {
                assert_eq!(given(&mut session, &add, &[int(1)]).await.unwrap(), "UPDATE 1");
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let read = prepared(&mut session, "SELECT power FROM meters WHERE id = 1").await;
    assert_eq!(given(&mut session, &read, &[]).await.unwrap(), "210");
}

/// Correlated subqueries planned while rows are computed read in the statement's transaction.
#[tokio::test]
async fn subqueries_that_are_run_by_row_read_in_the_statements_transaction() {
    let (database, mut session) = meters().await;
    let by_row =
        "SELECT id, (SELECT i.place FROM meters i WHERE i.id = o.id AND i.power >= o.id * 10) FROM meters o";
    let looked_for = "SELECT id, id IN (SELECT power / 10 FROM meters) FROM meters";
    for (sql, before, within) in [
        (by_row, "1 cellar;2 roof", "1 cellar;2 roof;3 shed"),
        (looked_for, "1 true;2 true", "1 true;2 true;3 true"),
    ] {
        let statement = prepared(&mut session, &format!("{sql} ORDER BY id")).await;
        assert_eq!(given(&mut session, &statement, &[]).await.unwrap(), before);
        run(&mut session, "BEGIN").await;
        // Its own writes.
        run(&mut session, "INSERT INTO meters VALUES (3, 'shed', 30, NULL)").await;
        assert_eq!(given(&mut session, &statement, &[]).await.unwrap(), within);
        run(&mut session, "ROLLBACK").await;
        assert_eq!(given(&mut session, &statement, &[]).await.unwrap(), before);
        // And no row that was committed after its snapshot.
        run(&mut session, "BEGIN").await;
        assert_eq!(given(&mut session, &statement, &[]).await.unwrap(), before);
        let mut other = database.session();
        run(&mut other, "UPDATE meters SET place = 'changed', power = 0 WHERE id = 2").await;
        assert_eq!(given(&mut session, &statement, &[]).await.unwrap(), before);
        run(&mut session, "COMMIT").await;
        run(&mut other, "UPDATE meters SET place = 'roof', power = 20 WHERE id = 2").await;
    }
}

/// A value that is finer than its column is compared as it is, and rounded only where it is assigned.
#[tokio::test]
async fn decimals_keep_their_digits_until_they_are_assigned() {
    let (_database, mut session) = meters().await;
    run(&mut session, "CREATE TABLE prices (id INT PRIMARY KEY, price DECIMAL(10,2))").await;
    run(&mut session, "INSERT INTO prices VALUES (1, 1.00), (2, 1.01), (3, 1.02)").await;
    let fine = ScalarValue::Decimal128(Some(1_005), 38, 3);
    let list = |values: &[ScalarValue]| {
        ScalarValue::List(ScalarValue::new_list(values, &DataType::Decimal128(38, 3), true))
    };
    let exact = ScalarValue::Decimal128(Some(1_020), 38, 3);
    for (condition, value, expected) in [
        ("price = $1", fine.clone(), ""),
        ("price = $1", exact.clone(), "3"),
        ("price IN ($1, 1.00)", fine.clone(), "1"),
        ("price > $1", fine.clone(), "2;3"),
        ("price + $1 < 2.01", fine.clone(), "1"),
        ("price BETWEEN $1 AND 1.01", fine.clone(), "2"),
        ("price = ANY($1)", list(&[fine.clone(), exact.clone()]), "3"),
        ("price <> ALL($1)", list(&[fine.clone(), exact.clone()]), "1;2"),
        ("price = $1", ScalarValue::Decimal128(None, 38, 3), ""),
        ("price = $1", ScalarValue::from(1.005), ""),
        ("price = $1", ScalarValue::from(1_i64), "1"),
        ("price = $1", text("1.0"), "1"),
        ("price > $1", text("1.0"), "2;3"),
        ("price > $1", text("-10.005"), "1;2;3"),
        ("price < $1", text("9"), "1;2;3"),
        ("price < $1", text("10.5"), "1;2;3"),
    ] {
        let sql = format!("SELECT id FROM prices WHERE {condition} ORDER BY id");
        let statement = prepared(&mut session, &sql).await;
        assert_eq!(given(&mut session, &statement, &[value]).await.unwrap(), expected, "{condition}");
        let other = ScalarValue::Decimal128(Some(101), 10, 2);
        if !condition.contains("($1)") {
            given(&mut session, &statement, &[other]).await.unwrap();
        }
    }
    let update = prepared(&mut session, "UPDATE prices SET price = $1 WHERE price > $2").await;
    assert_eq!(given(&mut session, &update, &[fine.clone(), exact.clone()]).await.unwrap(), "UPDATE 0");
    assert_eq!(given(&mut session, &update, &[fine.clone(), fine.clone()]).await.unwrap(), "UPDATE 2");
    let insert = prepared(&mut session, "INSERT INTO prices VALUES (4, $1)").await;
    assert_eq!(given(&mut session, &insert, &[fine]).await.unwrap(), "INSERT 1");
    let all = prepared(&mut session, "SELECT count(*) FROM prices WHERE price = 1.01").await;
    assert_eq!(given(&mut session, &all, &[]).await.unwrap(), "3");
}
