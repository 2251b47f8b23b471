//! Query text, as far as it is examined before the session gets it.

use entresol::query::{ParsedStatement, fingerprint, statements};

/// Takes a query text. Returns the number of its statements.
pub fn statement(bytes: &[u8]) -> usize {
    let Ok(text) = std::str::from_utf8(bytes) else { return 0 };
    assert_split(text);
    let statements = statements(text);
    for statement in &statements {
        // Errors are for the client.
        let _ = ParsedStatement::parse(statement.sql);
    }
    statements.len()
}

/// Splits a query text into statements, and asserts that each of them is where its position says, and that
/// the parts of its fingerprint were in it.
pub(super) fn assert_split(sql: &str) {
    for statement in statements(sql) {
        assert!(sql[statement.start..].starts_with(statement.sql));
        let (mut out, mut literals) = (String::new(), Vec::new());
        if fingerprint(statement.sql, &mut out, &mut literals) {
            // A parameter may be longer than its literal: $1 for 7.
            assert!(out.len() <= statement.sql.len() + literals.len() * 5, "{sql}");
        }
    }
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        "SELECT a, 'b''c', E'\\'', $1::int4, $$x$$ FROM t AS u (c) WHERE a = ANY($2) AND b IN (1, 2.5e3)",
        "WITH c AS (SELECT 1 UNION ALL SELECT 2) SELECT * FROM c JOIN d USING (id) ORDER BY 1 LIMIT 5 FOR UPDATE",
        "INSERT INTO t (a, b) VALUES (1, 'x'), ($1, DEFAULT) ON CONFLICT (a) DO UPDATE SET b = excluded.b RETURNING *",
        "UPDATE public.t SET a = a + 1, b = (SELECT max(b) FROM u) WHERE NOT EXISTS (SELECT 1 FROM v WHERE v.a = t.a)",
        "DELETE FROM t USING u WHERE t.a = u.a; BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY; COMMIT",
        "CREATE TABLE t (id INT PRIMARY KEY, v DECIMAL(10, 2) DEFAULT 1 CHECK (v > 0)) WITH (history = '7 days')",
        "COPY t (a, b) FROM STDIN WITH (FORMAT csv, DELIMITER ';', NULL '', QUOTE '''', ESCAPE '\\', HEADER)",
        "COPY (SELECT 1) TO STDOUT WITH CSV HEADER; COPY t FROM STDIN BINARY",
        "CREATE ROLE anna WITH SUPERUSER LOGIN ENCRYPTED PASSWORD 'x' VALID UNTIL 'infinity' CONNECTION LIMIT -1",
        "GRANT SELECT, INSERT ON TABLE public.a, \"B\" TO anna, bob; REVOKE ALL PRIVILEGES ON ALL TABLES IN SCHEMA public FROM anna CASCADE",
        "ALTER USER a PASSWORD NULL; DROP ROLE IF EXISTS a, b; DEALLOCATE PREPARE \"s\"\"1\"; DEALLOCATE all",
        "PREPARE s (int) AS SELECT $1; EXECUTE s(1); DECLARE c CURSOR FOR SELECT nextval('q'); FETCH 5 FROM c; SET a = 'b'",
        "EXPLAIN ANALYZE SELECT sum(a) OVER (PARTITION BY b ORDER BY c ROWS 1 PRECEDING) FROM generate_series(1, 5) g(c) /* /* */ */ -- x",
        "SELECT * FROM t FOR SYSTEM_TIME AS OF TRANSACTION 5; BEGIN AS OF (SELECT max(m) FROM instants)",
    ];
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}
