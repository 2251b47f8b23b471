//! Privileges of a session's role: checked where names are resolved, wherever they stand.

use crate::runner::TestDatabase;
use entresol_query::{CopyStatement, Privileges, Role, Session};

/// Role with SELECT on `a` and `v`, all on `b` and `own`, INSERT on `i`, UPDATE and DELETE on `u`; nothing on
/// `c`.
fn role() -> Role {
    let grants = [
        ("a", Privileges::SELECT),
        ("b", Privileges::ALL),
        ("own", Privileges::ALL),
        ("v", Privileges::SELECT),
        ("i", Privileges::INSERT),
        ("u", Privileges::UPDATE.with(Privileges::DELETE)),
    ];
    let grants = grants.map(|(table, granted)| (table.to_owned(), granted));
    Role { name: "r".into(), administrator: false, grants: grants.into() }
}

async fn session(database: &TestDatabase) -> Session {
    let mut session = database.session();
    session
        .execute(
            "CREATE TABLE a (x INT PRIMARY KEY, y INT) WITH (history = '1 day');
             CREATE TABLE b (x INT PRIMARY KEY, y INT); CREATE TABLE c (x INT PRIMARY KEY, y INT) WITH (history = '1 day');
             CREATE TABLE i (x INT PRIMARY KEY, y INT); CREATE TABLE u (x INT PRIMARY KEY, y INT);
             CREATE SEQUENCE own; CREATE SEQUENCE other;
             CREATE VIEW v AS SELECT c.x FROM c; CREATE VIEW w AS SELECT a.x FROM a;
             INSERT INTO c VALUES (1, 1)",
        )
        .await
        .unwrap();
    session.set_role(role());
    session
}

/// SQLSTATE of a statement by each way that runs it; all are the same.
async fn code(session: &mut Session, sql: &str) -> &'static str {
    let code = |error: entresol_query::Error| error.sqlstate();
    let direct = session.execute(sql).await.map_or_else(code, |_| "00000");
    if session.in_transaction() {
        session.execute("ROLLBACK").await.unwrap();
    }
    let prepared = match session.prepare(sql, &[]).await {
        Err(error) => error.sqlstate(),
        Ok(prepared) => match session.run_prepared(&prepared, &[]).await {
            Ok(outcome) => session.collect(outcome).await.map_or_else(code, |_| "00000"),
            Err(error) => error.sqlstate(),
        },
    };
    if session.in_transaction() {
        session.execute("ROLLBACK").await.unwrap();
    }
    // A row may be there already.
    let same = direct == prepared || [direct, prepared].contains(&"23505");
    assert!(same, "{sql}: {direct} at once, {prepared} prepared");
    if direct == "23505" { prepared } else { direct }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_granted_is_allowed() {
    let database = TestDatabase::journal();
    let mut session = session(&database).await;
    for sql in [
        "SELECT * FROM a JOIN b ON true",
        "SELECT x FROM a WHERE x = 1",
        "SELECT y FROM v MATCH_RECOGNIZE (ORDER BY x MEASURES x AS y PATTERN (p))",
        "INSERT INTO b SELECT x + 100, y FROM a",
        "SELECT 1",
        "SELECT relname FROM pg_class JOIN pg_catalog.pg_namespace ON true",
        "SELECT table_name FROM information_schema.tables",
        "SELECT * FROM entresol.memory",
        "INSERT INTO i VALUES (1)",
        "INSERT INTO i SELECT * FROM a",
        "UPDATE u SET y = 1",
        "DELETE FROM u",
        "BEGIN AS OF SYSTEM TIME (SELECT now() FROM (SELECT count(*) FROM a) AS one)",
        "SET search_path = public",
        "SELECT * FROM v",
        "WITH c AS (SELECT 1), d AS (SELECT * FROM c) SELECT * FROM c, d",
        "WITH RECURSIVE n AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM n WHERE x < 9) SELECT * FROM n",
        "SELECT * FROM generate_series(1, 3)",
        "SELECT nextval('own')",
        "INSERT INTO b VALUES (7, 1) ON CONFLICT (x) DO UPDATE SET y = 2 RETURNING y",
        "UPDATE b SET y = y + (SELECT count(*) FROM a) WHERE x = 7",
        "DELETE FROM b WHERE x = 7 RETURNING x",
        "MERGE INTO b USING a ON b.x = a.x WHEN MATCHED THEN UPDATE SET y = a.y WHEN NOT MATCHED THEN INSERT VALUES (a.x, a.y)",
        "MERGE INTO b USING v ON b.x = v.x WHEN MATCHED AND b.y > (SELECT max(x) FROM a) THEN DELETE",
        "MERGE INTO b USING a ON b.x = a.x WHEN NOT MATCHED BY SOURCE THEN UPDATE SET y = nextval('own') RETURNING b.*",
        "MERGE INTO i USING a ON false WHEN NOT MATCHED AND a.y > 100 THEN INSERT VALUES (a.x, a.y)",
        "MERGE INTO i USING a ON false WHEN NOT MATCHED AND a.y > 100 THEN INSERT VALUES (a.x, a.y) RETURNING a.x",
        "INSERT INTO i VALUES (2) ON CONFLICT DO NOTHING RETURNING 1",
        "INSERT INTO i VALUES (3) ON CONFLICT DO NOTHING RETURNING (SELECT max(i.x) FROM a AS i)",
        "UPDATE u SET y = (SELECT max(x) FROM a)",
        "UPDATE u SET (x, y) = (SELECT max(x), 1 FROM a)",
        "WITH q AS (SELECT max(x) AS x FROM a) UPDATE u SET y = q.x FROM q",
        "UPDATE u SET y = (SELECT max(u.x) FROM a AS u WHERE u.x > 0)",
        "UPDATE u SET y = 1 WHERE EXISTS (SELECT 1 FROM a WHERE a.x = 1) RETURNING 1",
        "UPDATE u SET y = a.y FROM a WHERE a.x = 1",
        "UPDATE u AS t SET y = 1 FROM (SELECT t.x FROM a AS t) AS q",
        "DELETE FROM u USING a",
        "DELETE FROM u WHERE true RETURNING (SELECT count(*) FROM a)",
        "EXPLAIN UPDATE u SET y = 1",
        "EXPLAIN INSERT INTO i SELECT * FROM a",
        "EXPLAIN ANALYZE DELETE FROM u WHERE 1 = 2",
        "MERGE INTO u USING a ON true WHEN MATCHED THEN UPDATE SET y = 1",
        "MERGE INTO u USING a ON false WHEN NOT MATCHED BY SOURCE THEN DELETE",
        "MERGE INTO a USING b ON a.x = b.x WHEN MATCHED THEN DO NOTHING",
        "EXPLAIN MERGE INTO b USING a ON b.x = a.x WHEN MATCHED THEN DELETE",
        "EXPLAIN SELECT * FROM a",
        "SHOW TABLES",
    ] {
        assert_eq!(code(&mut session, sql).await, "00000", "{sql}");
    }
    let copy = |sql: &str| CopyStatement::parse(sql).unwrap().unwrap();
    assert!(session.copy_in(&copy("COPY i FROM STDIN")).is_ok());
    assert!(session.copy_out(&copy("COPY a TO STDOUT")).await.is_ok());
    assert!(session.copy_out(&copy("COPY (SELECT * FROM v) TO STDOUT")).await.is_ok());
}

/// Statements that need what the role was not granted.
const REFUSED: [&str; 73] = [
    "SELECT pg_stat_reset()",
    "SELECT nextval('other')",
    "SELECT 1 + pg_catalog.setval('other', 1)",
    "INSERT INTO b VALUES (NEXTVAL('other'))",
    "EXPLAIN SELECT nextval('other')",
    "SELECT nextval(x) FROM (VALUES ('own')) AS o (x)",
    "SELECT nextval('own' || '')",
    "SELECT * FROM c",
    "SELECT x FROM c WHERE x = 1",
    "SUBSCRIBE TO (SELECT x FROM c)",
    "SELECT * FROM c MATCH_RECOGNIZE (ORDER BY x MEASURES x AS x PATTERN (a))",
    "SELECT * FROM other",
    "SELECT * FROM w",
    "SELECT (SELECT max(x) FROM c)",
    "WITH q AS (SELECT * FROM c) SELECT * FROM q",
    "SELECT * FROM a WHERE x IN (SELECT x FROM public.c)",
    "INSERT INTO a VALUES (1)",
    "SELECT * FROM i",
    "SELECT x FROM i WHERE x = 1",
    "INSERT INTO i VALUES (1) RETURNING x",
    "INSERT INTO i SELECT * FROM i",
    "INSERT INTO i VALUES (1) ON CONFLICT (x) DO NOTHING",
    "INSERT INTO i VALUES (1) ON CONFLICT (x) DO UPDATE SET x = 2",
    "DELETE FROM i",
    "UPDATE u SET y = 1 WHERE x = 2",
    "UPDATE u SET y = y + 1",
    "UPDATE u SET (x, y) = (SELECT max(a.x), 1 FROM a) WHERE y = 1",
    "UPDATE u SET (x, y) = (SELECT max(a.x), 1 FROM a WHERE a.x = u.x)",
    "UPDATE u SET (x, y) = (SELECT c.x, 1 FROM c)",
    "WITH q AS (SELECT x FROM c) UPDATE u SET y = q.x FROM q",
    "UPDATE u SET y = (SELECT max(x) FROM u)",
    "UPDATE u SET y = (SELECT max(a.x) FROM a WHERE a.x = u.x)",
    "UPDATE u SET y = 1 WHERE EXISTS (SELECT 1 FROM a WHERE a.x = u.y)",
    "UPDATE u SET y = 1 WHERE u.y > ALL (SELECT x FROM a)",
    "UPDATE u AS t SET y = 1 RETURNING t.y",
    "UPDATE u SET y = 1 RETURNING (SELECT max(a.x) FROM a WHERE a.x = u.x)",
    "INSERT INTO i VALUES (1) ON CONFLICT DO NOTHING RETURNING (SELECT i.y)",
    "INSERT INTO i VALUES (1) ON CONFLICT ON CONSTRAINT i_pkey DO NOTHING",
    "EXPLAIN UPDATE u SET y = x",
    "EXPLAIN INSERT INTO i VALUES (1) RETURNING x",
    "DELETE FROM u WHERE x = 1",
    "DELETE FROM u RETURNING x",
    "INSERT INTO b SELECT * FROM c",
    "UPDATE a SET y = 1",
    "UPDATE b SET y = (SELECT max(x) FROM c)",
    "DELETE FROM a",
    "DELETE FROM a WHERE x = 1",
    "EXPLAIN ANALYZE DELETE FROM a",
    "EXPLAIN DELETE FROM a",
    "EXPLAIN SELECT * FROM c",
    "CREATE TABLE d (x INT)",
    "CREATE VIEW d AS SELECT 1",
    "CREATE SEQUENCE d",
    "ALTER TABLE b ADD COLUMN z INT",
    "DROP TABLE b",
    "TRUNCATE b",
    "CREATE SOURCE d (x INT) WITH (connector = 'file', path = '/etc/passwd')",
    "CREATE SINK d FROM a WITH (connector = 'file', path = '/nonexistent/x')",
    "VACUUM",
    "ANALYZE b",
    "BACKUP TO '/nonexistent/x'",
    "PREPARE p AS SELECT * FROM c",
    "DECLARE d CURSOR FOR SELECT nextval('other')",
    "BEGIN AS OF SYSTEM TIME (SELECT now() FROM c)",
    "START TRANSACTION AS OF SYSTEM TIME now() - (SELECT max(x) FROM c) * INTERVAL '1 s'",
    "BEGIN AS OF SYSTEM TIME nextval('other')",
    "SELECT * FROM c FOR SYSTEM_TIME AS OF '2026-01-01'",
    "SELECT * FROM a FOR SYSTEM_TIME AS OF (SELECT now() FROM c)",
    "WITH q AS (SELECT * FROM c), c AS (SELECT 1) SELECT * FROM q",
    "SELECT * FROM (WITH c AS (SELECT 1) SELECT * FROM c) AS x, c",
    "WITH c AS (SELECT 1) SELECT * FROM public.c",
    "DESCRIBE c",
    "SHOW COLUMNS FROM c",
];

#[tokio::test(flavor = "multi_thread")]
async fn what_was_not_granted_is_refused_wherever_it_stands() {
    let database = TestDatabase::journal();
    let mut session = session(&database).await;
    for sql in REFUSED {
        assert_eq!(code(&mut session, sql).await, "42501", "{sql}");
    }
    // Here DataFusion does not look for the table at all.
    let recursive = "WITH RECURSIVE c AS (SELECT * FROM c UNION ALL SELECT * FROM c) SELECT * FROM c";
    assert_eq!(code(&mut session, recursive).await, "42P01");
    session.execute("BEGIN").await.unwrap();
    let declared = session.execute("DECLARE d CURSOR FOR SELECT * FROM c").await.unwrap_err();
    assert_eq!(declared.sqlstate(), "42501");
    session.execute("ROLLBACK").await.unwrap();
    let copy = |sql: &str| CopyStatement::parse(sql).unwrap().unwrap();
    assert_eq!(session.copy_in(&copy("COPY a FROM STDIN")).unwrap_err().sqlstate(), "42501");
    for sql in ["COPY c TO STDOUT", "COPY i TO STDOUT", "COPY (SELECT * FROM w, c) TO STDOUT"] {
        assert_eq!(session.copy_out(&copy(sql)).await.unwrap_err().sqlstate(), "42501", "{sql}");
    }
    // Schemas of the planner's own have no name in SQL.
    for schema in ["keyed", "owned", "as of 1"] {
        let found = code(&mut session, &format!("SELECT * FROM \"\u{1}{schema}\".c")).await;
        assert_eq!(found, "42602", "{schema}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_merge_needs_the_privileges_of_all_that_it_reads_and_may_do() {
    let database = TestDatabase::journal();
    let mut session = session(&database).await;
    for sql in [
        "MERGE INTO b USING c ON b.x = c.x WHEN MATCHED THEN DELETE",
        "MERGE INTO b USING (SELECT * FROM c) AS q ON b.x = q.x WHEN MATCHED THEN DELETE",
        "WITH q AS (SELECT * FROM c) MERGE INTO b USING q ON b.x = q.x WHEN MATCHED THEN DELETE",
        "MERGE INTO b USING a ON b.x = a.x WHEN MATCHED AND EXISTS (SELECT * FROM c) THEN DELETE",
        "MERGE INTO b USING a ON b.x = a.x WHEN MATCHED THEN UPDATE SET y = (SELECT max(x) FROM c)",
        "MERGE INTO b USING a ON b.x = a.x WHEN NOT MATCHED THEN INSERT VALUES (1, (SELECT max(x) FROM c))",
        "MERGE INTO b USING a ON b.x = a.x WHEN MATCHED THEN DO NOTHING RETURNING (SELECT max(x) FROM c)",
        "MERGE INTO b USING a ON b.x = a.x WHEN MATCHED THEN UPDATE SET y = nextval('other')",
        "MERGE INTO a USING b ON a.x = b.x WHEN MATCHED THEN UPDATE SET y = 1",
        "MERGE INTO a USING b ON a.x = b.x WHEN MATCHED THEN DELETE",
        "MERGE INTO a USING b ON a.x = b.x WHEN NOT MATCHED THEN INSERT VALUES (b.x)",
        "MERGE INTO c USING b ON c.x = b.x WHEN MATCHED THEN DO NOTHING",
        "MERGE INTO i USING a ON i.x = a.x WHEN NOT MATCHED THEN INSERT VALUES (a.x)",
        "MERGE INTO i USING a ON false WHEN NOT MATCHED THEN INSERT VALUES (a.x) RETURNING i.x",
        "MERGE INTO i USING a ON false WHEN NOT MATCHED THEN INSERT VALUES (a.x) WHEN MATCHED THEN DELETE",
        "MERGE INTO u USING a ON u.x = a.x WHEN MATCHED THEN UPDATE SET y = 1",
        "MERGE INTO u USING a ON true WHEN MATCHED AND u.y = 1 THEN DELETE",
        "MERGE INTO u USING a ON true WHEN MATCHED THEN UPDATE SET y = u.y",
        "EXPLAIN MERGE INTO a USING b ON a.x = b.x WHEN MATCHED THEN DELETE",
        "EXPLAIN ANALYZE WITH q AS (SELECT 1) MERGE INTO a USING b ON a.x = b.x WHEN MATCHED THEN DELETE",
        "PREPARE p AS MERGE INTO a USING b ON a.x = b.x WHEN MATCHED THEN DELETE",
    ] {
        assert_eq!(code(&mut session, sql).await, "42501", "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_joined_rows_need_the_privileges_of_all_relations() {
    let database = TestDatabase::journal();
    let mut session = session(&database).await;
    for sql in [
        "UPDATE b SET y = c.y FROM c WHERE b.x = c.x",
        "UPDATE b SET y = 1 FROM a, c",
        "UPDATE b SET y = 1 FROM a JOIN c ON a.x = c.x",
        "UPDATE b SET y = 1 FROM a WHERE b.x = (SELECT max(x) FROM c)",
        "UPDATE b SET y = 1 FROM a RETURNING (SELECT max(x) FROM c)",
        "UPDATE a SET y = 1 FROM b WHERE a.x = b.x",
        "UPDATE u SET y = 1 FROM a WHERE u.x = a.x",
        "DELETE FROM b USING c",
        "DELETE FROM b USING (SELECT * FROM c) AS q",
        "DELETE FROM a USING b WHERE a.x = b.x",
        "DELETE FROM u USING a WHERE u.x > a.x",
        "DELETE FROM u USING a RETURNING u.y",
        "UPDATE u AS t SET y = t.x FROM a",
        "UPDATE u SET y = 1 FROM a WHERE EXISTS (SELECT 1 FROM a AS q WHERE q.x = u.x)",
        "EXPLAIN UPDATE b SET y = c.y FROM c WHERE b.x = c.x",
        "EXPLAIN ANALYZE DELETE FROM b USING c",
        "PREPARE p AS DELETE FROM b USING c",
    ] {
        assert_eq!(code(&mut session, sql).await, "42501", "{sql}");
    }
    for sql in ["UPDATE b SET y = a.y FROM a, v WHERE b.x = a.x", "DELETE FROM b USING a WHERE b.x = a.x"] {
        assert_eq!(code(&mut session, sql).await, "00000", "{sql}");
    }
}

/// Privileges are those of relations that were found: a name that means nothing is told before.
#[tokio::test(flavor = "multi_thread")]
async fn wrong_names_are_told_before_missing_privileges() {
    let database = TestDatabase::journal();
    let mut session = session(&database).await;
    for (sql, expected) in [
        ("INSERT INTO nope VALUES (1)", "42P01"),
        ("UPDATE nope SET y = 1", "42P01"),
        ("DELETE FROM nope", "42P01"),
        ("UPDATE a SET z = 1", "42703"),
        ("UPDATE a SET y = z", "42703"),
        ("DELETE FROM a WHERE z = 1", "42703"),
        ("INSERT INTO a (z) VALUES (1)", "42703"),
        ("UPDATE v SET x = 1", "55000"),
        ("MERGE INTO v USING a ON true WHEN MATCHED THEN DELETE", "55000"),
        ("MERGE INTO a USING b ON a.x = b.z WHEN MATCHED THEN DELETE", "42703"),
    ] {
        assert_eq!(code(&mut session, sql).await, expected, "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denial_names_the_kind_of_the_relation() {
    let database = TestDatabase::journal();
    let mut session = session(&database).await;
    for (sql, expected) in [
        ("SELECT * FROM w", "permission denied for view w"),
        ("SELECT * FROM c", "permission denied for table c"),
    ] {
        assert_eq!(session.execute(sql).await.unwrap_err().to_string(), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prepared_statement_is_checked_again_when_the_role_has_changed() {
    let database = TestDatabase::journal();
    let mut session = session(&database).await;
    session.execute("PREPARE p AS SELECT count(*) FROM a").await.unwrap();
    let sqls = [
        "SELECT x FROM a",
        "SELECT x FROM a WHERE x = 1",
        "INSERT INTO b VALUES (9, 9)",
        "UPDATE u SET y = 1",
    ];
    let mut prepared = Vec::new();
    for sql in sqls {
        prepared.push(session.prepare(sql, &[]).await.unwrap());
    }
    session.set_role(Role { grants: Default::default(), ..role() });
    for (sql, prepared) in sqls.iter().zip(&prepared) {
        let short = session.run_on_fast_path(prepared, &[]);
        assert!(short.is_none_or(|ran| ran.is_err()), "{sql}");
        let error = session.run_prepared(prepared, &[]).await.unwrap_err();
        assert_eq!(error.sqlstate(), "42501", "{sql}");
    }
    assert_eq!(session.execute("EXECUTE p").await.unwrap_err().sqlstate(), "42501");
    session.set_role(role());
    for (sql, prepared) in sqls.iter().zip(&prepared) {
        session.run_prepared(prepared, &[]).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    session.execute("EXECUTE p").await.unwrap();
}
