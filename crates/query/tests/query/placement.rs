//! Tables in DRAM beside durable ones, over a kill.

use crate::runner::{TestDatabase, rows};
use entresol_query::Session;

async fn one(session: &mut Session, sql: &str) -> String {
    let batches = session.query(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    rows(&batches).join(";")
}

#[tokio::test]
async fn a_table_in_dram_is_empty_after_a_kill_and_says_so() {
    let database = TestDatabase::journal();
    let mut session = database.session();
    let setup = "CREATE TABLE kept (id INT PRIMARY KEY, v TEXT);
                 CREATE TABLE lost (id INT PRIMARY KEY, v TEXT UNIQUE) WITH (placement = 'dram');
                 BEGIN; INSERT INTO kept VALUES (1, 'a'), (2, 'b'); INSERT INTO lost SELECT * FROM kept; COMMIT";
    session.execute(setup).await.unwrap();
    let joined = "SELECT count(*) FROM kept JOIN lost USING (id, v)";
    assert_eq!(one(&mut session, joined).await, "2");
    let persistence = "SELECT relname, relpersistence FROM pg_class WHERE relname LIKE 'lost%' OR relname = 'kept' \
                       ORDER BY relname";
    assert_eq!(one(&mut session, persistence).await, "kept p;lost u;lost_pkey u;lost_v_key u");
    let tiers = "SELECT name, placement FROM entresol.tables ORDER BY name";
    assert_eq!(one(&mut session, tiers).await, "kept disk;lost dram");
    session.execute("DELETE FROM lost WHERE id = 1; VACUUM; VACUUM FULL").await.unwrap();
    assert_eq!(one(&mut session, "SELECT id FROM lost").await, "2");

    let copy = database.copied();
    let mut session = copy.session();
    assert_eq!(one(&mut session, "SELECT count(*) FROM kept").await, "2");
    assert_eq!(one(&mut session, "SELECT count(*) FROM lost").await, "0");
    assert_eq!(one(&mut session, tiers).await, "kept disk;lost dram");
    session.execute("INSERT INTO lost VALUES (2, 'b')").await.unwrap();
    let twice = session.execute("INSERT INTO lost VALUES (3, 'b')").await.unwrap_err();
    assert_eq!(twice.sqlstate(), "23505");
    assert_eq!(one(&mut session, "SELECT id FROM lost WHERE v = 'b'").await, "2");
    for sql in
        ["CREATE TABLE t (id INT) WITH (placement = 'pmem')", "ALTER TABLE lost SET (placement = 'auto')"]
    {
        assert_eq!(session.execute(sql).await.unwrap_err().sqlstate(), "0A000", "{sql}");
    }
}
