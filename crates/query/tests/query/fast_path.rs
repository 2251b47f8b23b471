//! The fast path of statements on single rows and the planned path through DataFusion are equivalent:
//! results, types, errors, and the table afterwards.

use crate::runner::{TestDatabase, rows};
use entresol_query::arrow::record_batch::RecordBatch;
use entresol_query::datafusion::common::ScalarValue;
use entresol_query::{CollectedRows, Outcome, Session, StatementResult};
use futures::TryStreamExt;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// Outcome of a statement, in a form that can be compared.
#[derive(Debug, PartialEq)]
enum Did {
    Rows(String, Vec<String>),
    Count(String),
    Failed(String),
}

fn columns(batches: &[RecordBatch], schema: &entresol_query::arrow::datatypes::Schema) -> String {
    // The schema of computed batches is more precise in nullability.
    let known = batches.first().map(RecordBatch::schema);
    let schema = known.as_deref().unwrap_or(schema);
    let columns = schema.fields().iter().map(|field| format!("{} {}", field.name(), field.data_type()));
    columns.collect::<Vec<_>>().join(",")
}

async fn text(session: &mut Session, sql: &str) -> Did {
    match session.execute(sql).await {
        Ok(mut results) => match results.pop().unwrap() {
            StatementResult::Rows(CollectedRows { schema, batches }) => {
                Did::Rows(columns(&batches, &schema), rows(&batches))
            }
            StatementResult::Count { verb, rows } => Did::Count(format!("{verb} {rows}")),
            other => panic!("{other:?}"),
        },
        Err(error) => Did::Failed(error.to_string()),
    }
}

async fn prepared(session: &mut Session, sql: &str, values: &[ScalarValue]) -> Did {
    let statement = match session.prepare(sql, &[]).await {
        Ok(statement) => statement,
        Err(error) => return Did::Failed(error.to_string()),
    };
    let outcome = match session.run_prepared(&statement, values).await {
        Ok(outcome) => outcome,
        Err(error) => return Did::Failed(error.to_string()),
    };
    match outcome {
        Outcome::Rows(stream) => {
            let schema = stream.schema();
            let batches: Vec<RecordBatch> = stream.try_collect().await.unwrap();
            Did::Rows(columns(&batches, &schema), rows(&batches))
        }
        Outcome::Count { verb, rows } => Did::Count(format!("{verb} {rows}")),
        other => panic!("{other:?}"),
    }
}

/// Values of the first key column, of the second, and of the others.
const NUMBERS: [&str; 9] =
    ["0", "1", "2", "3", "-1", "2147483647", "2147483648", "NULL", "9223372036854775807"];
const TEXTS: [&str; 5] = ["'a'", "'b'", "''", "'it''s'", "NULL"];
const OTHERS: [&str; 10] =
    ["NULL", "7", "-7", "1.5", "'7'", "true", "'x'", "2147483647", "DEFAULT", "DATE '2024-01-01'"];
const SUMS: [&str; 8] =
    ["i + 1", "i - 2147483647", "l + 9223372036854775807", "l - 5", "d + 0.25", "d - 3", "l - -1", "i + l"];

fn number() -> impl Strategy<Value = String> {
    proptest::sample::select(NUMBERS.to_vec()).prop_map(str::to_owned)
}

fn key_text() -> impl Strategy<Value = String> {
    proptest::sample::select(TEXTS.to_vec()).prop_map(str::to_owned)
}

fn other() -> impl Strategy<Value = String> {
    proptest::sample::select(OTHERS.to_vec()).prop_map(str::to_owned)
}

fn condition() -> impl Strategy<Value = String> {
    let numbers = || proptest::collection::vec(number(), 1..4).prop_map(|numbers| numbers.join(", "));
    let first = prop_oneof![
        number().prop_map(|number| format!("a = {number}")),
        number().prop_map(|number| format!("{number} = t.a")),
        numbers().prop_map(|numbers| format!("(a IN ({numbers}))")),
    ];
    let second = prop_oneof![
        key_text().prop_map(|text| format!("b = {text}")),
        proptest::collection::vec(key_text(), 1..4).prop_map(|texts| format!("B IN ({})", texts.join(", "))),
    ];
    (first, second, any::<bool>()).prop_map(|(first, second, swapped)| {
        if swapped { format!("{second} AND {first}") } else { format!("{first} AND {second}") }
    })
}

fn assignment() -> impl Strategy<Value = String> {
    let column = proptest::sample::select(vec!["i", "l", "d", "x", "n"]);
    prop_oneof![
        (column.clone(), other()).prop_map(|(column, value)| format!("{column} = {value}")),
        (column, proptest::sample::select(SUMS.to_vec()))
            .prop_map(|(column, sum)| format!("{column} = {sum}")),
    ]
}

/// Clauses of INSERT about rows that are there; `{where}` stands for a condition that is always true.
const CONFLICTS: [&str; 10] = [
    "DO NOTHING",
    "(b, a) DO NOTHING",
    "(a, b) DO UPDATE SET i = excluded.i, l = t.l + excluded.l{where}",
    "(a, b) DO UPDATE SET n = t.n + 1, d = excluded.d{where}",
    "(a, b) DO UPDATE SET d = t.d + 0.25, x = excluded.x{where}",
    "(a, b) DO UPDATE SET l = t.l - 5, x = 'new'{where}",
    "(a, b) DO UPDATE SET i = NULL, n = excluded.i{where}",
    "(a, b) DO UPDATE SET a = 7{where}",
    "(a, b) DO UPDATE SET i = t.i + t.n, l = excluded.l - t.l{where}",
    "(a, b) DO UPDATE SET i = nothing{where}",
];

/// Statement, with `{long}` for a condition that makes it take the planned path.
fn statement() -> impl Strategy<Value = String> {
    let items = prop_oneof![
        Just("*".to_owned()),
        Just("x, i AS \"I\", t.a".to_owned()),
        Just("n, d, l, b".to_owned()),
        Just("i, i".to_owned()),
        Just("nothing".to_owned()),
    ];
    let row = || {
        let values = (number(), key_text(), proptest::collection::vec(other(), 5));
        values.prop_map(|(a, b, others)| format!("({a}, {b}, {})", others.join(", ")))
    };
    let upserted = (proptest::collection::vec(row(), 1..3), proptest::sample::select(CONFLICTS.to_vec()));
    prop_oneof![
        3 => (items, condition()).prop_map(|(items, condition)| {
            format!("SELECT {items} FROM t WHERE {condition}{{long}}")
        }),
        3 => (proptest::collection::vec(assignment(), 1..3), condition()).prop_map(|(assigned, condition)| {
            format!("UPDATE t SET {} WHERE {condition}{{long}}", assigned.join(", "))
        }),
        1 => condition().prop_map(|condition| format!("DELETE FROM t WHERE {condition}{{long}}")),
        3 => row().prop_map(|row| format!("INSERT INTO t (a, b, i, l, d, x, n) VALUES {row}")),
        4 => upserted.prop_map(|(rows, conflict)| {
            format!("INSERT INTO t (a, b, i, l, d, x, n) VALUES {} ON CONFLICT {conflict}", rows.join(", "))
        }),
    ]
}

/// Database with a table whose rows are named by a primary key, or by a unique index.
async fn database(by_index: bool) -> (TestDatabase, Session) {
    let database = TestDatabase::volatile();
    let mut session = database.session();
    let key = if by_index { "UNIQUE (b, a)" } else { "PRIMARY KEY (a, b)" };
    let columns = "a INT, b VARCHAR, i INT, l BIGINT, d DOUBLE, x VARCHAR, n INT NOT NULL";
    session.execute(&format!("CREATE TABLE t ({columns}, {key})")).await.unwrap();
    let filled = "INSERT INTO t VALUES (1, 'a', 1, 1, 1, 'x', 1), (2, 'a', NULL, NULL, NULL, NULL, 2), \
                  (3, 'it''s', 2147483647, 9223372036854775807, -0.5, '', 3), (-1, '', 5, 5, 5, 'five', 4)";
    session.execute(filled).await.unwrap();
    (database, session)
}

#[test]
fn both_ways_do_the_same() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut runner = TestRunner::new(Config { cases: 40, failure_persistence: None, ..Config::default() });
    let histories = proptest::collection::vec((statement(), any::<bool>()), 1..12);
    let run = runner.run(&(histories, any::<bool>()), |(history, by_index)| {
        runtime.block_on(async {
            let (_short_database, mut short) = database(by_index).await;
            let (_long_database, mut long) = database(by_index).await;
            for (statement, in_block) in history {
                let short_sql = statement.replace("{long}", "").replace("{where}", "");
                // A condition that is always true, and VALUES under a query: not on the fast path.
                let long_sql = statement
                    .replace("{long}", " AND (n IS NULL OR n IS NOT NULL)")
                    .replace("{where}", " WHERE t.n IS NULL OR t.n IS NOT NULL");
                let long_sql = if long_sql.contains("DEFAULT") {
                    long_sql
                } else {
                    long_sql.replace("VALUES (", "VALUES (0 + ")
                };
                for session in [&mut short, &mut long] {
                    if in_block {
                        session.execute("BEGIN").await.unwrap();
                    }
                }
                let (ours, theirs) =
                    (prepared(&mut short, &short_sql, &[]).await, text(&mut long, &long_sql).await);
                // DataFusion computes in the order of its choice, so either of two errors may come first; and
                // `0 + NULL` has a type of its own.
                match (&ours, &theirs) {
                    (Did::Failed(_), Did::Failed(_)) => {}
                    _ => prop_assert_eq!(&ours, &theirs, "{}\n{}", short_sql, long_sql),
                }
                let end = match (&ours, in_block) {
                    (Did::Failed(_), true) => "ROLLBACK",
                    (_, true) => "COMMIT",
                    _ => "SELECT 1",
                };
                for session in [&mut short, &mut long] {
                    session.execute(end).await.unwrap();
                }
                let all = "SELECT * FROM t ORDER BY a, b, i, l, d, x, n";
                prop_assert_eq!(
                    text(&mut short, all).await,
                    text(&mut long, all).await,
                    "after {}",
                    short_sql
                );
            }
            Ok(())
        })
    });
    run.unwrap();
}

#[test]
fn values_of_parameters_do_what_literals_do() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let values = (
        any::<bool>(),
        proptest::option::of(proptest::sample::select(vec![0, 1, 2, 3, -1, i32::MAX])),
        proptest::option::of(proptest::sample::select(vec!["a", "b", "", "it's"])),
        proptest::option::of(proptest::sample::select(vec![1i64, -1, 7, i64::MAX, i64::MIN])),
        proptest::option::of(proptest::sample::select(vec![0.5, -0.0, 1e300, f64::NAN])),
    );
    let mut runner = TestRunner::new(Config { cases: 40, failure_persistence: None, ..Config::default() });
    let run = runner.run(&values, |(by_index, a, b, l, d)| {
        let number = |value: Option<String>| value.unwrap_or("NULL".into());
        let a_text = number(a.map(|a| a.to_string()));
        let b_text = b.map_or("NULL".to_owned(), |b| format!("'{}'", b.replace('\'', "''")));
        let l_text = number(l.map(|l| format!("CAST('{l}' AS BIGINT)")));
        let d_text = number(d.map(|d| format!("CAST('{d:e}' AS DOUBLE)")));
        let [a, b, l, d] = [
            ScalarValue::Int32(a),
            ScalarValue::Utf8(b.map(str::to_owned)),
            ScalarValue::Int64(l),
            ScalarValue::Float64(d),
        ];
        runtime.block_on(async {
            let (_one_database, mut one) = database(by_index).await;
            let (_other_database, mut other) = database(by_index).await;
            for (sql, literal, values) in [
                (
                    "UPDATE t SET l = l + $1 WHERE a = $2 AND b = $3",
                    vec![&l_text, &a_text, &b_text],
                    vec![&l, &a, &b],
                ),
                (
                    "UPDATE t SET l = $1, d = $4 WHERE a = $2 AND b = $3",
                    vec![&l_text, &a_text, &b_text, &d_text],
                    vec![&l, &a, &b, &d],
                ),
                ("SELECT * FROM t WHERE a = $1 AND b = $2", vec![&a_text, &b_text], vec![&a, &b]),
                ("SELECT * FROM t WHERE b = $2 AND a IN ($1, 2)", vec![&a_text, &b_text], vec![&a, &b]),
                (
                    "SELECT * FROM t WHERE l = $1 OR d > $2 ORDER BY a, b",
                    vec![&l_text, &d_text],
                    vec![&l, &d],
                ),
                ("DELETE FROM t WHERE a = $1 AND b = $2", vec![&a_text, &b_text], vec![&a, &b]),
                (
                    "INSERT INTO t (a, b, l, d, n) VALUES ($1, $2, $3, $4, 1)",
                    vec![&a_text, &b_text, &l_text, &d_text],
                    vec![&a, &b, &l, &d],
                ),
                (
                    "INSERT INTO t (a, b, l, d, n) VALUES ($1, $2, $3, $4, 1) ON CONFLICT (a, b) DO UPDATE \
                     SET l = t.l + $3, d = excluded.d",
                    vec![&a_text, &b_text, &l_text, &d_text],
                    vec![&a, &b, &l, &d],
                ),
                ("DELETE FROM t WHERE d > $1 OR l < $2", vec![&d_text, &l_text], vec![&d, &l]),
            ] {
                let values: Vec<ScalarValue> = values.into_iter().cloned().collect();
                let mut written = sql.to_owned();
                for (at, literal) in literal.iter().enumerate() {
                    written = written.replace(&format!("${}", at + 1), literal);
                }
                let ours = prepared(&mut one, sql, &values).await;
                let theirs = text(&mut other, &written).await;
                match (&ours, &theirs) {
                    (Did::Failed(_), Did::Failed(_)) => {}
                    _ => prop_assert_eq!(&ours, &theirs, "{}", written),
                }
                let all = "SELECT * FROM t ORDER BY a, b, i, l, d, x, n";
                prop_assert_eq!(text(&mut one, all).await, text(&mut other, all).await, "after {}", written);
            }
            Ok(())
        })
    });
    run.unwrap();
}

#[tokio::test]
async fn rows_of_a_unique_index_are_found_without_planning() {
    let (_database, mut session) = database(true).await;
    for sql in [
        "SELECT x FROM t WHERE a = $1 AND b = $2",
        "UPDATE t SET l = l + 1 WHERE b = 'a' AND a IN ($1, 2)",
        "DELETE FROM t WHERE a = $1 AND b = 'b'",
        "INSERT INTO t (a, b, n) VALUES ($1, $2, 1) ON CONFLICT DO NOTHING",
        "INSERT INTO t AS o (a, b, n) VALUES ($1, $2, 1) ON CONFLICT (a, b) DO UPDATE SET l = o.l + $3, x = excluded.x",
    ] {
        assert!(session.prepare(sql, &[]).await.unwrap().runs_on_fast_path(), "{sql}");
    }
    for sql in [
        "SELECT x FROM t WHERE a = $1",
        "UPDATE t SET a = 7 WHERE b = 'a' AND a = $1",
        "SELECT x FROM t WHERE a = $1 AND b = 'a' AND n = 1",
        "INSERT INTO t (a, b, n) VALUES ($1, $2, 1) ON CONFLICT (a, b) DO UPDATE SET l = t.l * 2",
    ] {
        assert!(!session.prepare(sql, &[]).await.unwrap().runs_on_fast_path(), "{sql}");
    }
}
