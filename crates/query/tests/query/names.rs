//! Names of columns that a statement does not name, as in PostgreSQL.

use crate::runner::{TestDatabase, rows};
use entresol_query::Session;

async fn run(session: &mut Session, sql: &str) {
    session.execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// Names of a query's columns, as clients see them, and its first row.
async fn given(session: &mut Session, sql: &str) -> (String, String) {
    let batches = session.query(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let schema = batches[0].schema();
    let names: Vec<_> = schema.fields().iter().map(|field| field.name().replace('\0', "")).collect();
    (names.join(" "), rows(&batches).first().cloned().unwrap_or_default())
}

async fn meters() -> (TestDatabase, Session) {
    let database = TestDatabase::volatile();
    let mut session = database.session();
    run(&mut session, "CREATE TABLE m (id INT PRIMARY KEY, kw DOUBLE, max INT, at TIMESTAMP)").await;
    run(&mut session, "INSERT INTO m VALUES (9, 1.5, 4, '2024-07-01 12:30'), (10, 2.5, 2, NULL)").await;
    (database, session)
}

#[tokio::test]
async fn columns_without_a_name_are_called_as_in_postgresql() {
    let (_database, mut session) = meters().await;
    for (items, names) in [
        ("id, m.kw, (id)", "id kw id"),
        ("count(*), sum(kw), pg_catalog.max(id)", "count sum max"),
        ("1, 'a', -max(id), count(*) + 1, max(kw) IS NULL", "?column? ?column? ?column? ?column? ?column?"),
        ("id::TEXT, CAST(kw AS INT), (at::DATE)::TIMESTAMP", "id kw at"),
        (
            "5::BIGINT, '1'::NUMERIC, DATE '2024-01-01', '{1}'::INT[], 'm'::REGCLASS",
            "int8 numeric date int4 regclass",
        ),
        (
            "TIMESTAMPTZ '2024-01-01', INTERVAL '1 day', 1.5::REAL, now()::TIMESTAMP",
            "timestamptz interval float4 now",
        ),
        (
            "CASE WHEN true THEN 1 END, CASE WHEN true THEN 1 ELSE min(id) END, max(CASE WHEN id > 1 THEN 1 END)",
            "case min max",
        ),
        (
            "coalesce(max(id), 1), nullif(1, 2), greatest(1, 2), (SELECT id FROM m LIMIT 1), (SELECT max(max) AS top FROM m)",
            "coalesce nullif greatest id top",
        ),
        (
            "EXISTS (SELECT 1), ARRAY[1], ARRAY(SELECT id FROM m), now() AT TIME ZONE 'UTC'",
            "exists array array timezone",
        ),
        (
            "extract(year FROM max(at)), substring('abc', 2), trim('a'), trim(LEADING 'x' FROM 'a'), ceil(1.5), position('b' IN 'abc')",
            "extract substring btrim ltrim ceil position",
        ),
        (
            "current_date, upper('a'), count(*) FILTER (WHERE id > 1), \"max\"(id)",
            "current_date upper count max",
        ),
    ] {
        let from = if items.contains("id::") || items.starts_with("id") { "m WHERE id = 9" } else { "m" };
        assert_eq!(given(&mut session, &format!("SELECT {items} FROM {from}")).await.0, names, "{items}");
    }
    for (sql, names) in [
        ("SELECT *, count(*) OVER () FROM m", "id kw max at count"),
        ("SELECT id, id, id::TEXT FROM m", "id id id"),
        ("SELECT max(id), max FROM m GROUP BY max", "max max"),
        ("VALUES (1, 2)", "column1 column2"),
        ("SELECT 1 UNION SELECT 2", "?column?"),
        ("WITH c AS (SELECT count(*) FROM m) SELECT * FROM c", "count"),
    ] {
        assert_eq!(given(&mut session, sql).await.0, names, "{sql}");
    }
    let returned = given(
        &mut session,
        "UPDATE m SET max = 3 WHERE id = 10 RETURNING id, max + 1, max::TEXT, upper('a')",
    )
    .await;
    assert_eq!(returned, ("id ?column? max upper".to_owned(), "10 4 3 A".to_owned()));
}

/// Generated names can be referenced, and do not hide columns.
#[tokio::test]
async fn names_that_are_given_are_names() {
    let (_database, mut session) = meters().await;
    for (sql, first) in [
        ("SELECT count FROM (SELECT count(*) FROM m) s", "2"),
        ("SELECT s.sum / s.count FROM (SELECT sum(kw), count(*) FROM m) s", "2.0"),
        ("SELECT id::TEXT FROM m ORDER BY id", "10"),
        ("SELECT id::TEXT FROM m ORDER BY m.id", "9"),
        ("SELECT id % 10, count(*) FROM m GROUP BY id % 10 ORDER BY count, id % 10", "0 1"),
        ("SELECT id % 10, count(*) FROM m GROUP BY id % 10 ORDER BY count(*) DESC, 1 DESC", "9 1"),
        ("SELECT max, max(id) FROM m GROUP BY max HAVING max(id) > 9 ORDER BY max", "2 10"),
        ("SELECT max(id) FROM m GROUP BY max ORDER BY m.max", "10"),
        ("SELECT max(id) FROM m GROUP BY max ORDER BY max + 0", "10"),
        ("SELECT abs(max) FROM m ORDER BY max", "2"),
        ("SELECT DISTINCT abs(max) FROM m ORDER BY abs(max)", "2"),
        ("SELECT abs(id) FROM m WHERE id > 1 ORDER BY abs DESC LIMIT 1", "10"),
        (
            "SELECT date_trunc('day', at), count(*) FROM m WHERE at IS NOT NULL GROUP BY date_trunc('day', at) ORDER BY 1",
            "2024-07-01T00:00:00 1",
        ),
        ("SELECT lower('A') || upper('b') FROM m ORDER BY kw DESC LIMIT 1", "aB"),
        ("SELECT id FROM m WHERE id IN (SELECT max(id) FROM m) AND kw > (SELECT avg(kw) FROM m)", "10"),
    ] {
        assert_eq!(given(&mut session, sql).await.1, first, "{sql}");
    }
    run(&mut session, "CREATE VIEW v AS SELECT max, count(*), sum(kw) FROM m GROUP BY max").await;
    assert_eq!(given(&mut session, "SELECT sum, count FROM v WHERE max = 2").await.1, "2.5 1");
    run(
        &mut session,
        "CREATE VIEW w AS SELECT *, at AT TIME ZONE 'UTC', id = ANY('{9,11}') AS is_ours FROM m",
    )
    .await;
    assert_eq!(
        given(&mut session, "SELECT timezone IS NULL, is_ours FROM w ORDER BY id").await.1,
        "false true"
    );
    for twice in [
        "CREATE VIEW x AS SELECT sum(id), sum(kw) FROM m",
        "CREATE TABLE x AS SELECT sum(id), sum(kw) FROM m",
    ] {
        let error = session.execute(twice).await.unwrap_err();
        assert!(error.to_string().contains("sum"), "{twice}: {error}");
    }
    run(&mut session, "CREATE TABLE summary AS SELECT count(*), min(at)::DATE FROM m").await;
    assert_eq!(given(&mut session, "SELECT count, min FROM summary").await.1, "2 2024-07-01");
}
