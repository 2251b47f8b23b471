//! Generic plans: prepared queries that are run again with other values give what their text gives.

use crate::runner::{TestDatabase, rows};
use entresol_query::arrow::record_batch::RecordBatch;
use entresol_query::datafusion::common::ScalarValue;
use entresol_query::{Outcome, PreparedStatement, Session, StatementResult};
use futures::TryStreamExt;

/// Queries, with the type of each parameter: `i`nteger of a small range, `t`ext, `n`umber of rows.
const QUERIES: [(&str, &str); 33] = [
    ("SELECT sum(v) FROM a WHERE id BETWEEN $1 AND $2 + 7", "ii"),
    ("SELECT id FROM a WHERE id > $1 - 3 AND id <= $2::bigint * 2 ORDER BY id", "ii"),
    ("SELECT id FROM a WHERE id = abs($1::int) OR v = 0 - $2::int ORDER BY id", "ii"),
    ("SELECT sum(v) FROM a WHERE id BETWEEN $1 AND $2", "ii"),
    ("SELECT id, v FROM a WHERE id >= $1 AND id < $2 ORDER BY id", "ii"),
    ("SELECT id FROM a WHERE id > $1 ORDER BY id LIMIT 3", "i"),
    ("SELECT id FROM a WHERE id > $1 ORDER BY id DESC LIMIT $2", "in"),
    ("SELECT id, v + $1 FROM a WHERE id = $2", "ii"),
    ("SELECT id FROM a WHERE id IN ($1, $2, $3)", "iii"),
    ("SELECT count(*) FROM a WHERE v IN ($1, $2)", "ii"),
    ("SELECT id FROM a WHERE v = $1 ORDER BY id", "i"),
    ("SELECT id FROM a WHERE v = $1 AND t = $2 ORDER BY id", "it"),
    ("SELECT id FROM a WHERE v = $1 OR id = $2 ORDER BY id", "ii"),
    ("SELECT id, t FROM a WHERE t = $1 ORDER BY id", "t"),
    ("SELECT id FROM a WHERE t LIKE $1 ORDER BY id", "t"),
    ("SELECT t, count(*), sum(v) FROM a WHERE v > $1 GROUP BY t HAVING count(*) > $2 ORDER BY t", "in"),
    ("SELECT DISTINCT v FROM a WHERE id BETWEEN $1 AND $2 ORDER BY v", "ii"),
    ("SELECT a.id, b.w FROM a JOIN b ON a.v = b.k WHERE a.id = $1", "i"),
    ("SELECT a.id, b.w FROM a LEFT JOIN b ON a.v = b.k WHERE a.id BETWEEN $1 AND $2 ORDER BY a.id", "ii"),
    ("SELECT a.id, b.w FROM a RIGHT JOIN b ON a.v = b.k AND a.id > $1 ORDER BY b.k, a.id", "i"),
    ("SELECT a.id, b.k FROM a JOIN b ON a.v > b.k + $1 WHERE a.id < $2 ORDER BY 1, 2", "ii"),
    ("SELECT a.id, b.k FROM a CROSS JOIN b WHERE a.id = $1 AND b.w = $2 ORDER BY 2", "ii"),
    ("SELECT id, row_number() OVER (PARTITION BY t ORDER BY id) FROM a WHERE v < $1 ORDER BY id", "i"),
    ("SELECT id, sum(v) OVER (ORDER BY id ROWS 2 PRECEDING) FROM a WHERE id > $1 ORDER BY id", "i"),
    ("SELECT max(id), min(id) FROM a WHERE v >= $1", "i"),
    ("SELECT k, w FROM b WHERE k = $1 AND w > $2", "ii"),
    ("SELECT w FROM b WHERE k > $1 AND k > $2 AND k < $3 ORDER BY k", "iii"),
    ("SELECT id FROM a WHERE v = $1 AND id > $2 ORDER BY id LIMIT 2", "ii"),
    ("SELECT x, y FROM c WHERE x = $1 ORDER BY y LIMIT 4", "i"),
    ("SELECT x, y FROM c WHERE x = $1 AND y >= $2 ORDER BY y DESC", "ii"),
    ("SELECT x, y FROM c WHERE x IN ($1, $2) ORDER BY x, y", "ii"),
    ("SELECT count(*) FROM c JOIN a ON c.x = a.id WHERE c.y BETWEEN $1 AND $2", "ii"),
    ("SELECT CASE WHEN v > $1 THEN t ELSE 'none' END FROM a WHERE id = $2", "ii"),
];

/// Pseudo-random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn value(&mut self, kind: char) -> ScalarValue {
        let is_null = self.below(12) == 0;
        match kind {
            'n' => ScalarValue::Int64(Some(self.below(4) as i64)),
            't' if is_null => ScalarValue::Utf8(None),
            't' => ScalarValue::from(["x", "y", "zz", "%z%", ""][self.below(5) as usize]),
            _ if is_null => ScalarValue::Int32(None),
            _ => ScalarValue::from(self.below(40) as i32 - 3),
        }
    }
}

async fn run(session: &mut Session, sql: &str) {
    session.execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

async fn rows_of(
    session: &mut Session,
    statement: &PreparedStatement,
    values: &[ScalarValue],
) -> Vec<String> {
    match session.run_prepared(statement, values).await.unwrap() {
        Outcome::Rows(stream) => rows(&stream.try_collect::<Vec<RecordBatch>>().await.unwrap()),
        other => panic!("{other:?}"),
    }
}

/// Text of a query with literals in the place of its parameters.
fn with_literals(sql: &str, values: &[ScalarValue]) -> String {
    let mut text = sql.to_owned();
    for (at, value) in values.iter().enumerate().rev() {
        let literal = match value {
            ScalarValue::Utf8(None) => "CAST(NULL AS VARCHAR)".to_owned(),
            ScalarValue::Int32(None) => "CAST(NULL AS INT)".to_owned(),
            ScalarValue::Utf8(Some(text)) => format!("'{text}'"),
            number => format!("({number})"),
        };
        text = text.replace(&format!("${}", at + 1), &literal);
    }
    text
}

async fn tables(session: &mut Session) {
    run(session, "CREATE TABLE a (id INT PRIMARY KEY, v INT, t VARCHAR)").await;
    run(session, "CREATE TABLE b (k INT, w INT)").await;
    run(session, "CREATE UNIQUE INDEX b_k ON b (k)").await;
    run(session, "CREATE TABLE c (x INT, y INT, PRIMARY KEY (x, y))").await;
    run(session, "CREATE INDEX a_v ON a (v, t)").await;
    run(session, "INSERT INTO a SELECT i, CASE WHEN i % 7 > 0 THEN i % 11 END, substr('xyzz', i % 4 + 1, 2) FROM generate_series(1, 35) g(i)").await;
    run(session, "INSERT INTO b SELECT i, i % 3 FROM generate_series(0, 9) g(i)").await;
    run(session, "INSERT INTO c SELECT i % 5, i FROM generate_series(0, 30) g(i)").await;
}

#[tokio::test]
async fn a_generic_plan_gives_what_the_text_gives() {
    let database = TestDatabase::volatile();
    let mut session = database.session();
    tables(&mut session).await;
    let mut random = Random(0x5eed);
    let mut statements = Vec::new();
    for (sql, kinds) in QUERIES {
        let statement = session.prepare(sql, &[]).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        statements.push((sql, kinds, statement));
    }
    for round in 0..25 {
        for (sql, kinds, statement) in &statements {
            let values: Vec<ScalarValue> = kinds.chars().map(|kind| random.value(kind)).collect();
            let types = statement.parameters().iter().zip(&values);
            let values: Vec<ScalarValue> = types.map(|(of, value)| value.cast_to(of).unwrap()).collect();
            let found = rows_of(&mut session, statement, &values).await;
            let text = with_literals(sql, &values);
            let expected = rows(&session.query(&text).await.unwrap_or_else(|e| panic!("{text}: {e}")));
            let ordered = sql.contains("ORDER BY");
            let sorted = |mut rows: Vec<String>| {
                rows.sort_unstable();
                rows
            };
            if ordered {
                assert_eq!(found, expected, "{text}");
            } else {
                assert_eq!(sorted(found), sorted(expected), "{text}");
            }
        }
        let id = 36 + round;
        run(&mut session, &format!("INSERT INTO a VALUES ({id}, {}, 'zz')", round % 11)).await;
        run(&mut session, &format!("DELETE FROM a WHERE id = {}", round * 3 % 35)).await;
        match round {
            // Plans are made anew after each, in a session whose statements live on.
            8 => run(&mut session, "DROP INDEX a_v").await,
            16 => run(&mut session, "CREATE INDEX a_t ON a (t)").await,
            _ => {}
        }
    }
    for (sql, _, statement) in &statements {
        assert!(
            statement.runs_on_fast_path() || statement.generic_reuses() > 0,
            "{sql} was planned in each run"
        );
    }
}

#[tokio::test]
async fn a_run_beside_an_open_one_has_its_own_values() {
    let database = TestDatabase::volatile();
    let mut session = database.session();
    tables(&mut session).await;
    let sql = "SELECT id + $1 FROM a WHERE id >= $2 ORDER BY id";
    let statement = session.prepare(sql, &[]).await.unwrap();
    let values = |plus: i32, from: i32| [ScalarValue::from(plus), ScalarValue::from(from)];
    assert_eq!(rows_of(&mut session, &statement, &values(1, 35)).await, ["36"]);
    run(&mut session, "BEGIN").await;
    let Outcome::Rows(open) = session.run_prepared(&statement, &values(100, 34)).await.unwrap() else {
        panic!("rows");
    };
    assert_eq!(rows_of(&mut session, &statement, &values(200, 35)).await, ["235"]);
    assert_eq!(rows(&open.try_collect::<Vec<_>>().await.unwrap()), ["134", "135"]);
    run(&mut session, "COMMIT").await;
    assert_eq!(rows_of(&mut session, &statement, &values(0, 35)).await, ["35"]);
}

#[tokio::test]
async fn a_template_holds_no_snapshot() {
    let database = TestDatabase::volatile();
    let mut session = database.session();
    tables(&mut session).await;
    let statement = session.prepare("SELECT count(*) FROM a WHERE id > $1", &[]).await.unwrap();
    let all = [ScalarValue::from(0)];
    for _ in 0..2 {
        assert_eq!(rows_of(&mut session, &statement, &all).await, ["35"]);
    }
    run(&mut session, "DELETE FROM a WHERE id > 5").await;
    // The deleted rows are reclaimed, which a snapshot of the time before would prevent.
    run(&mut session, "VACUUM a").await;
    let dead = session
        .query("SELECT dead_keys FROM entresol.vacuum WHERE \"table\" = 'a' AND \"index\" IS NULL")
        .await
        .unwrap();
    assert_eq!(rows(&dead), ["0"]);
    assert_eq!(rows_of(&mut session, &statement, &all).await, ["5"]);
}

#[tokio::test]
async fn many_rows_have_a_plan_for_all_processors() {
    let database = TestDatabase::volatile();
    let mut session = database.session();
    run(&mut session, "CREATE TABLE big (id INT PRIMARY KEY, v INT)").await;
    run(&mut session, "INSERT INTO big SELECT i, i % 10 FROM generate_series(1, 60000) g(i)").await;
    let sql = "SELECT count(*), sum(v) FROM big WHERE id BETWEEN $1 AND $2";
    let statement = session.prepare(sql, &[]).await.unwrap();
    let between = |from: i32, to: i32| [ScalarValue::from(from), ScalarValue::from(to)];
    for _ in 0..3 {
        assert_eq!(rows_of(&mut session, &statement, &between(1, 60_000)).await, ["60000 270000"]);
    }
    let wide = statement.generic_reuses();
    assert!(wide >= 1, "the plan of the whole table is kept");
    for from in 1..5 {
        assert_eq!(rows_of(&mut session, &statement, &between(from * 10, from * 10 + 9)).await, ["10 45"]);
        assert_eq!(rows_of(&mut session, &statement, &between(1, 60_000)).await, ["60000 270000"]);
    }
    assert!(statement.generic_reuses() >= wide + 7, "a plan for few rows and one for many are kept");
}

/// Queries of many rows by rows and columns, which make dynamic filters: keys of joins, greatest values, the first of an
/// order.
const LARGE_QUERIES: [(&str, &str); 14] = [
    ("SELECT sum(v), count(*) FROM fact WHERE v BETWEEN $1 AND $2", "ii"),
    ("SELECT min(id), max(id) FROM fact WHERE d < $1", "i"),
    ("SELECT max(v) FROM fact WHERE id > $1 * 100", "i"),
    ("SELECT id, v FROM fact WHERE v > $1 ORDER BY v DESC, id LIMIT 5", "i"),
    ("SELECT id, t FROM fact ORDER BY id DESC LIMIT 3 + $1", "n"),
    (
        "SELECT dim.name, sum(fact.v) FROM fact, dim WHERE fact.d = dim.d AND dim.r = $1 GROUP BY name ORDER BY name",
        "t",
    ),
    (
        "SELECT dim.name, other.w, count(*), min(fact.v) FROM fact, dim, other WHERE fact.d = dim.d AND fact.o = other.o \
      AND dim.d < $1 AND other.w >= $2 GROUP BY 1, 2 ORDER BY 1, 2",
        "ii",
    ),
    ("SELECT count(*), sum(a.v) FROM fact a JOIN fact b ON a.id = b.id + $1 WHERE b.d = $2", "ii"),
    ("SELECT count(*) FROM fact WHERE d IN (SELECT d FROM dim WHERE r = 'x') AND v >= $1", "i"),
    ("SELECT d, avg(v), count(DISTINCT t) FROM fact WHERE o <> $1 GROUP BY d ORDER BY d", "i"),
    ("SELECT v, count(*) FROM fact WHERE t = $1 GROUP BY v HAVING count(*) > $2 ORDER BY v", "ti"),
    (
        "SELECT count(*) FROM (SELECT v FROM fact WHERE d = $1 UNION ALL SELECT d FROM fact WHERE v = $2) u",
        "ii",
    ),
    (
        "SELECT sum(s.v), count(s.name) FROM (SELECT fact.v, dim.name FROM fact LEFT JOIN dim ON fact.d = dim.d AND dim.d > $1) s",
        "i",
    ),
    (
        "SELECT id, row_number() OVER (PARTITION BY d ORDER BY id) FROM fact WHERE v = $1 ORDER BY id LIMIT 20",
        "i",
    ),
];

async fn large_tables(session: &mut Session, layout: &str) {
    run(
        session,
        &format!(
            "CREATE TABLE fact (id INT PRIMARY KEY, d INT, o INT, v INT, t TEXT) WITH (layout = '{layout}')"
        ),
    )
    .await;
    run(session, "CREATE TABLE dim (d INT PRIMARY KEY, name TEXT, r TEXT)").await;
    run(session, "CREATE TABLE other (o INT PRIMARY KEY, w INT)").await;
    run(
        session,
        "INSERT INTO fact SELECT i, CASE WHEN i % 13 > 0 THEN i % 40 END, i % 17, i * 7919 % 101 - 20, \
                  substr('xyzz', i % 4 + 1, 2) FROM generate_series(1, 70000) g(i)",
    )
    .await;
    run(session, "INSERT INTO dim SELECT i, 'n' || i % 6, substr('xyzz', i % 4 + 1, 2) FROM generate_series(0, 29) g(i)").await;
    run(session, "INSERT INTO other SELECT i, i % 5 FROM generate_series(0, 11) g(i)").await;
    run(session, "VACUUM fact").await;
    run(session, "ANALYZE").await;
}

async fn large_queries_give_what_their_texts_give(layout: &str) {
    let database = TestDatabase::volatile();
    let mut session = database.session();
    large_tables(&mut session, layout).await;
    let mut random = Random(0xfac7);
    let mut statements = Vec::new();
    for (sql, kinds) in LARGE_QUERIES {
        let statement = session.prepare(sql, &[]).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        statements.push((sql, kinds, statement));
    }
    // Each takes something away that a run before has learned: the greatest value, the last rows, keys of dimensions.
    let changes = [
        "SELECT 1",
        "DELETE FROM fact WHERE v > 70 OR id > 69990",
        "UPDATE dim SET r = CASE r WHEN 'x' THEN 'y' ELSE 'x' END",
        "INSERT INTO fact SELECT i, i % 40, i % 17, 300 - i % 7, 'zz' FROM generate_series(80001, 80100) g(i)",
        "DELETE FROM dim WHERE d < 10",
        "INSERT INTO dim SELECT i, 'm', 'zz' FROM generate_series(0, 4) g(i)",
        "DELETE FROM fact WHERE id % 8 > 0",
        "VACUUM fact",
        "DELETE FROM fact WHERE id > 100",
    ];
    for change in changes {
        run(&mut session, change).await;
        for _ in 0..2 {
            for (sql, kinds, statement) in &statements {
                let values: Vec<ScalarValue> = kinds.chars().map(|kind| random.value(kind)).collect();
                let types = statement.parameters().iter().zip(&values);
                let values: Vec<ScalarValue> = types.map(|(of, value)| value.cast_to(of).unwrap()).collect();
                let found = rows_of(&mut session, statement, &values).await;
                let text = with_literals(sql, &values);
                let mut fresh = database.session();
                let expected = rows(&fresh.query(&text).await.unwrap_or_else(|e| panic!("{text}: {e}")));
                assert_eq!(found, expected, "after {change}: {text}");
                assert_eq!(
                    rows(&session.query(&text).await.unwrap()),
                    expected,
                    "as a text after {change}: {text}"
                );
            }
        }
    }
    for (sql, _, statement) in &statements {
        // Subqueries are planned in the transaction that reads them.
        let is_kept = statement.generic_reuses() > 0;
        assert_eq!(is_kept, !sql.contains("IN (SELECT"), "{layout}: {sql} is planned once, or in each run");
    }
}

#[tokio::test]
async fn large_queries_of_rows_give_what_their_texts_give() {
    large_queries_give_what_their_texts_give("row").await;
}

#[tokio::test]
async fn large_queries_of_columns_give_what_their_texts_give() {
    large_queries_give_what_their_texts_give("columns").await;
}

#[tokio::test]
async fn a_text_that_comes_again_is_planned_once() {
    let database = TestDatabase::volatile();
    for layout in ["row", "columns"] {
        let mut session = database.session();
        large_tables(&mut session, layout).await;
        let texts = [
            "SELECT 1",
            "SELECT max(v) FROM fact",
            "SELECT id, v FROM fact ORDER BY v DESC, id LIMIT 2",
            "SELECT name, sum(v) FROM fact, dim WHERE fact.d = dim.d AND r = 'x' GROUP BY name ORDER BY name",
        ];
        for text in texts {
            let before = session.template_reuses();
            let mut first = None;
            for _ in 0..5 {
                let found = rows(&session.query(text).await.unwrap());
                assert_eq!(*first.get_or_insert_with(|| found.clone()), found, "{text}");
            }
            assert!(session.template_reuses() >= before + 3, "{layout}: {text} was planned in each run");
            // A client that prepares it again, as the server does with each text, has its plan, too.
            let again = session.prepare(text, &[]).await.unwrap();
            assert_eq!(Some(rows_of(&mut session, &again, &[]).await), first, "{text}");
            assert!(
                session.template_reuses() >= before + 4,
                "{layout}: {text} was planned for another handle"
            );
        }
        // What the last runs have learned is not true any more.
        run(&mut session, "DELETE FROM fact WHERE v > 50").await;
        run(&mut session, "UPDATE dim SET r = 'x' WHERE d = 1").await;
        for text in texts {
            let expected = rows(&database.session().query(text).await.unwrap());
            assert_eq!(rows(&session.query(text).await.unwrap()), expected, "{text}");
        }
        // A setting of the planner takes effect at once, and a smaller table has another plan.
        run(&mut session, "SET datafusion.execution.target_partitions = 1").await;
        run(&mut session, "DELETE FROM fact WHERE id > 50").await;
        for text in texts {
            let expected = rows(&database.session().query(text).await.unwrap());
            for _ in 0..3 {
                assert_eq!(rows(&session.query(text).await.unwrap()), expected, "{text}");
            }
        }
        run(&mut session, "DROP TABLE fact").await;
        run(&mut session, "DROP TABLE dim").await;
        run(&mut session, "DROP TABLE other").await;
    }
}

/// Changes, with the type of each parameter.
const CHANGES: [(&str, &str); 8] = [
    ("UPDATE a SET v = v + $1 WHERE id BETWEEN $2 AND $3", "iii"),
    ("UPDATE a SET t = $1, v = v * 2 WHERE v = $2 AND id > $3", "tii"),
    ("UPDATE b SET w = w + $1 WHERE k > $2", "ii"),
    ("UPDATE b SET k = k + 1000 WHERE w = $1 AND k < $2", "ii"),
    ("UPDATE c SET y = y + 100 * $1 WHERE x = $2 AND y < 20", "ii"),
    ("UPDATE a SET v = (CASE WHEN v > $1 THEN $2 ELSE v END) WHERE t LIKE 'x%'", "ii"),
    ("DELETE FROM a WHERE v = $1 AND t = $2", "it"),
    ("DELETE FROM c WHERE y BETWEEN $1 AND $2 AND x <> 3", "ii"),
];

/// Verb and count of a statement, or its error.
async fn count_of(session: &mut Session, statement: &PreparedStatement, values: &[ScalarValue]) -> String {
    match session.run_prepared(statement, values).await {
        Ok(Outcome::Count { verb, rows }) => format!("{verb} {rows}"),
        Ok(other) => panic!("{other:?}"),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn changes_by_generic_plans_are_those_of_the_text() {
    let (ours, theirs) = (TestDatabase::volatile(), TestDatabase::volatile());
    let (mut session, mut other) = (ours.session(), theirs.session());
    tables(&mut session).await;
    tables(&mut other).await;
    let mut random = Random(0xfeed);
    let mut statements = Vec::new();
    for (sql, kinds) in CHANGES {
        let statement = session.prepare(sql, &[]).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        statements.push((sql, kinds, statement));
    }
    for round in 0..20 {
        for (sql, kinds, statement) in &statements {
            let values: Vec<ScalarValue> = kinds.chars().map(|kind| random.value(kind)).collect();
            let types = statement.parameters().iter().zip(&values);
            let values: Vec<ScalarValue> = types.map(|(of, value)| value.cast_to(of).unwrap()).collect();
            let text = with_literals(sql, &values);
            let in_block = round % 3 == 0;
            if in_block {
                run(&mut session, "BEGIN").await;
            }
            let found = count_of(&mut session, statement, &values).await;
            if in_block {
                run(
                    &mut session,
                    if found.contains(' ') && found.len() < 20 { "COMMIT" } else { "ROLLBACK" },
                )
                .await;
            }
            let expected = match other.execute(&text).await {
                Ok(mut results) => match results.pop().unwrap() {
                    StatementResult::Count { verb, rows } => format!("{verb} {rows}"),
                    other => panic!("{other:?}"),
                },
                Err(error) => error.to_string(),
            };
            assert_eq!(found, expected, "{text}");
            for all in
                ["SELECT * FROM a ORDER BY id", "SELECT * FROM b ORDER BY k", "SELECT * FROM c ORDER BY x, y"]
            {
                let (left, right) = (session.query(all).await.unwrap(), other.query(all).await.unwrap());
                assert_eq!(rows(&left), rows(&right), "after {text}");
            }
        }
    }
    for (sql, _, statement) in &statements {
        assert!(statement.generic_reuses() > 0, "{sql} was planned in each run");
    }
}

#[tokio::test]
async fn ends_of_ranges_are_computed_in_each_run() {
    let database = TestDatabase::volatile();
    let mut session = database.session();
    run(&mut session, "CREATE TABLE big (id INT PRIMARY KEY, v INT)").await;
    run(&mut session, "INSERT INTO big SELECT i, i % 10 FROM generate_series(1, 60000) g(i)").await;
    let sql = "SELECT count(*), sum(v) FROM big WHERE id BETWEEN $1 AND $1 + 9";
    let statement = session.prepare(sql, &[]).await.unwrap();
    let from = |statement: &PreparedStatement, from: i64| {
        [ScalarValue::from(from).cast_to(&statement.parameters()[0]).unwrap()]
    };
    for at in [10, 20, 30, 59_995] {
        let expected = if at == 59_995 { "6 35" } else { "10 45" };
        assert_eq!(rows_of(&mut session, &statement, &from(&statement, at)).await, [expected]);
    }
    assert!(statement.generic_reuses() >= 2);
    let statement = session.prepare("SELECT v FROM big WHERE id = $1::int + 1", &[]).await.unwrap();
    let largest = ScalarValue::from(i64::from(i32::MAX)).cast_to(&statement.parameters()[0]).unwrap();
    let Outcome::Rows(stream) = session.run_prepared(&statement, &[largest]).await.unwrap() else {
        panic!("rows");
    };
    let error = stream.try_collect::<Vec<RecordBatch>>().await.unwrap_err();
    assert!(error.to_string().to_lowercase().contains("overflow"), "{error}");
}
