//! Targets with defaults, checks, identity columns and unique constraints: their rows are those that INSERT would write.

use super::{append, rows, sqlstate, wait_for};
use entresol::{Database, Options, Session};
use std::path::Path;

fn source(session: &mut Session, path: &Path) {
    session
        .execute(&format!(
            "CREATE SOURCE line (id INT NOT NULL, n INT, name VARCHAR) WITH (connector = 'file', path = '{}', tail = true)",
            path.display()
        ))
        .unwrap();
}

fn lines(ids: std::ops::Range<i32>) -> String {
    ids.map(|id| format!("{id},{},name {id}\n", id % 7)).collect()
}

const TABLE: &str = "(number BIGINT GENERATED ALWAYS AS IDENTITY, serial SERIAL, id INT NOT NULL, n INT CHECK (n >= 0),
    state VARCHAR(8) NOT NULL DEFAULT 'new', price DECIMAL(8,2) DEFAULT 1.5, at TIMESTAMPTZ NOT NULL DEFAULT now(),
    day DATE DEFAULT current_date, CONSTRAINT sane CHECK (state <> 'bad' AND price < 100), PRIMARY KEY (id))";

#[test]
fn columns_without_values_get_their_defaults() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lines.csv");
    append(&path, "id,n,name\n");
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    source(&mut session, &path);
    session.execute(&format!("CREATE TABLE by_topology {TABLE}; CREATE TABLE by_insert {TABLE}")).unwrap();
    session
        .execute(
            "CREATE TABLE lines (id INT PRIMARY KEY, n INT, name VARCHAR);
             CREATE TOPOLOGY filling COMMIT EVERY 100 ROWS WITH (durability = 'none', parallelism = '2') AS (
                 INSERT INTO lines SELECT * FROM line;
                 INSERT INTO by_topology (id, n) SELECT id, n FROM line)",
        )
        .unwrap();
    // Times are of transactions, not of the start of the topology.
    session.execute("CREATE TABLE started AS SELECT now() AS at").unwrap();
    append(&path, &lines(0..1000));
    wait_for(&mut session, "SELECT count(*) FROM by_topology", "1000");
    let is_later = "SELECT (SELECT min(at) FROM by_topology) > (SELECT at FROM started)";
    assert_eq!(rows(&mut session, is_later), [["true"]]);
    session.execute("INSERT INTO by_insert (id, n) SELECT id, n FROM lines ORDER BY id").unwrap();
    // The file is read in order, so the numbers are the same, too.
    let columns = "number, serial, id, n, state, price";
    let differ = format!(
        "SELECT count(*) FROM ((SELECT {columns} FROM by_topology EXCEPT SELECT {columns} FROM by_insert)
            UNION ALL (SELECT {columns} FROM by_insert EXCEPT SELECT {columns} FROM by_topology)) d"
    );
    assert_eq!(rows(&mut session, &differ), [["0"]]);
    // now() is one time for each transaction.
    let times = "SELECT count(DISTINCT at) BETWEEN 2 AND 11, count(DISTINCT day) <= 2, max(at) <= now(), min(at) > now() - INTERVAL '1 hour'
        FROM by_topology";
    assert_eq!(rows(&mut session, times), [["true", "true", "true", "true"]]);
}

/// Numbers may have gaps behind transactions that did not commit, and none comes twice.
#[test]
fn numbers_of_a_sequence_are_unique_over_restarts_and_dropped_transactions() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lines.csv");
    append(&path, "id,n,name\n");
    for round in 0..4 {
        let database = Database::open(directory.path().join("db"), Options::default()).unwrap();
        let mut session = database.session().unwrap();
        if round == 0 {
            source(&mut session, &path);
            session.execute(&format!("CREATE TABLE target {TABLE}")).unwrap();
            session
                .execute(
                    "CREATE TOPOLOGY filling COMMIT EVERY 10 ROWS OR EVERY INTERVAL '20 ms' ON ERROR ABORT AS (
                        INSERT INTO target (id, n) SELECT id, n FROM line)",
                )
                .unwrap();
        }
        append(&path, &lines(round * 100..round * 100 + 100));
        // A transaction that is dropped for its last row has taken numbers.
        append(&path, &format!("{},-1,x\n", 1000 + round));
        wait_for(&mut session, "SELECT tuples >= 1 AND aborts >= 1 FROM entresol.topologies", "true");
        let wanted = format!("SELECT count(*) >= {} FROM target", 90 * (round + 1));
        wait_for(&mut session, &wanted, "true");
        drop(session);
        // Closed, or left as by a crash.
        if round % 2 == 0 {
            database.close().unwrap();
        }
    }
    let database = Database::open(directory.path().join("db"), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    let unique = "SELECT count(*) = count(DISTINCT number), count(*) = count(DISTINCT serial), count(*) >= 360, min(n) FROM target";
    assert_eq!(rows(&mut session, unique), [["true", "true", "true", "0"]]);
    session.execute("INSERT INTO target (id, n) VALUES (5000, 1)").unwrap();
    let last = "SELECT (SELECT number FROM target WHERE id = 5000) > (SELECT max(number) FROM target WHERE id < 5000)";
    assert_eq!(rows(&mut session, last), [["true"]]);
}

#[test]
fn merges_and_upserts_complete_the_rows_that_they_insert() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lines.csv");
    append(&path, "id,n,name\n1,1,a\n2,2,b\n3,3,c\n1,5,d\n4,9,e\n2,9,f\n");
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    source(&mut session, &path);
    let table = "(id INT PRIMARY KEY, serial SERIAL, n INT DEFAULT 40 CHECK (n <> 3), state VARCHAR NOT NULL DEFAULT 'new', name VARCHAR)";
    session
        .execute(&format!(
            "CREATE TABLE merged {table}; CREATE TABLE conflicting {table}; CREATE TABLE replaced {table}; CREATE TABLE counted {table};
             CREATE TOPOLOGY filling COMMIT EVERY 4 ROWS OR EVERY INTERVAL '20 ms' ON ERROR SKIP ROW INTO skipped AS (
                 MERGE INTO merged m USING line l ON m.id = l.id
                     WHEN MATCHED AND l.n > 8 THEN DELETE
                     WHEN MATCHED THEN UPDATE SET n = l.n, state = 'old'
                     WHEN NOT MATCHED AND l.n > 8 THEN INSERT (id, name, n) VALUES (l.id, l.name, DEFAULT)
                     WHEN NOT MATCHED THEN INSERT (id, n, name) VALUES (l.id, l.n, l.name);
                 INSERT INTO conflicting AS c (id, n) SELECT id, n FROM line
                     ON CONFLICT (id) DO UPDATE SET n = c.n + EXCLUDED.n;
                 INSERT INTO replaced (id, n, name, state, serial) SELECT id, n, name, upper(name), n FROM line
                     ON CONFLICT (id) DO UPDATE SET n = EXCLUDED.n, name = EXCLUDED.name, state = EXCLUDED.state, serial = EXCLUDED.serial;
                 INSERT INTO counted (id, n, name, serial, state) SELECT id, count(*)::int, max(name), 1, 'x' FROM line WHERE n <> 3 GROUP BY id
                     ON CONFLICT (id) DO UPDATE SET n = EXCLUDED.n, name = EXCLUDED.name, serial = EXCLUDED.serial, state = EXCLUDED.state)"
        ))
        .unwrap();
    wait_for(&mut session, "SELECT sum(n)::bigint FROM counted", "5");
    let of = |session: &mut Session, sql: &str| -> Vec<String> {
        rows(session, sql).into_iter().map(|row| row.join(" ")).collect()
    };
    assert_eq!(
        of(&mut session, "SELECT id, n, state, name FROM merged ORDER BY id"),
        ["1 5 old a", "4 40 new e"]
    );
    assert_eq!(
        of(&mut session, "SELECT id, n, state FROM conflicting ORDER BY id"),
        ["1 6 new", "2 11 new", "4 9 new"]
    );
    let numbers = "SELECT count(DISTINCT serial) FROM conflicting WHERE serial IS NOT NULL";
    assert_eq!(rows(&mut session, numbers), [["3"]]);
    assert_eq!(
        of(&mut session, "SELECT id, n, state, serial FROM replaced ORDER BY id"),
        ["1 5 D 5", "2 9 F 9", "4 9 E 9"]
    );
    let skipped =
        "SELECT count(*), count(DISTINCT source), bool_and(reason LIKE '%(SQLSTATE 23514)') FROM skipped";
    assert_eq!(rows(&mut session, skipped), [["3", "3", "true"]]);
}

/// Refusals, with the reason, when the topology is created.
#[test]
fn values_for_generated_columns_and_defaults_of_sessions_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lines.csv");
    append(&path, "id,n,name\n");
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    source(&mut session, &path);
    session
        .execute(
            "CREATE TABLE numbered (number INT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id INT);
             CREATE TABLE keyed (id INT PRIMARY KEY, number INT GENERATED ALWAYS AS IDENTITY, n INT);
             CREATE TABLE owned (id INT PRIMARY KEY, owner VARCHAR DEFAULT current_user)",
        )
        .unwrap();
    for (step, code, expected) in [
        (
            "INSERT INTO numbered SELECT id, n FROM line",
            "428C9",
            "cannot insert a non-DEFAULT value into column \"number\"",
        ),
        ("INSERT INTO numbered (id, number) SELECT id, n FROM line", "428C9", "column \"number\""),
        (
            "MERGE INTO keyed k USING line l ON k.id = l.id WHEN NOT MATCHED THEN INSERT (id, number) VALUES (l.id, l.n)",
            "428C9",
            "column \"number\"",
        ),
        (
            "MERGE INTO keyed k USING line l ON k.id = l.id WHEN MATCHED THEN UPDATE SET number = l.n",
            "428C9",
            "can only be updated to DEFAULT",
        ),
        (
            "INSERT INTO keyed AS k (id, n) SELECT id, n FROM line ON CONFLICT (id) DO UPDATE SET number = 1",
            "428C9",
            "can only be updated to DEFAULT",
        ),
        (
            "INSERT INTO owned (id) SELECT id FROM line",
            "0A000",
            "the default current_user of column \"owner\"",
        ),
        (
            "MERGE INTO keyed k USING (SELECT id, count(*)::int AS n FROM line GROUP BY id) l ON k.id = l.id
                WHEN NOT MATCHED THEN INSERT (id, n) VALUES (l.id, l.n)",
            "0A000",
            "a default of table keyed that differs for each row",
        ),
    ] {
        let error = session.execute(&format!("CREATE TOPOLOGY filling AS ({step})")).unwrap_err();
        assert!(error.to_string().contains(expected), "{step}: {error}");
        assert_eq!(sqlstate(&error), code, "{step}");
    }
    session
        .execute("CREATE TOPOLOGY filling AS (INSERT INTO owned SELECT id, name FROM line; INSERT INTO numbered (id) SELECT id FROM line)")
        .unwrap();
    append(&path, &lines(0..3));
    wait_for(&mut session, "SELECT string_agg(owner, ',' ORDER BY id) FROM owned", "name 0,name 1,name 2");
    wait_for(&mut session, "SELECT string_agg(number::varchar, ',' ORDER BY id) FROM numbered", "1,2,3");
}

/// A target that is altered while rows come has from then on the rows that it asks for.
#[test]
fn defaults_and_checks_may_be_altered_while_rows_come() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lines.csv");
    append(&path, &format!("id,n,name\n{}", lines(0..10)));
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    source(&mut session, &path);
    session
        .execute(
            "CREATE TABLE target (id INT PRIMARY KEY, n INT, name VARCHAR);
             CREATE TABLE other (id INT PRIMARY KEY, n INT, name VARCHAR);
             CREATE TOPOLOGY filling COMMIT EVERY 10 ROWS OR EVERY INTERVAL '20 ms' ON ERROR SKIP ROW INTO skipped AS (
                 INSERT INTO target (id, n) SELECT id, n FROM line;
                 INSERT INTO other AS o (id, n) SELECT id, n FROM line ON CONFLICT (id) DO UPDATE SET n = o.n + 1)",
        )
        .unwrap();
    wait_for(&mut session, "SELECT count(*) FROM other", "10");
    for table in ["target", "other"] {
        let altered = session.execute(&format!(
            "ALTER TABLE {table} ALTER COLUMN name SET DEFAULT 'none';
             ALTER TABLE {table} ADD COLUMN place INT NOT NULL DEFAULT 7;
             ALTER TABLE {table} ADD CONSTRAINT low CHECK (n < 6)"
        ));
        if let Err(error) = altered {
            assert!(error.to_string().contains("violated by some row"), "{error}");
        }
        session
            .execute(&format!(
                "DELETE FROM {table} WHERE n >= 6; ALTER TABLE {table} ADD CONSTRAINT low CHECK (n < 6)"
            ))
            .unwrap();
    }
    append(&path, &lines(10..30));
    wait_for(&mut session, "SELECT count(*) FROM skipped", "6");
    for table in ["target", "other"] {
        let added = format!("SELECT count(*), min(name), min(place), max(n) FROM {table} WHERE id >= 10");
        assert_eq!(rows(&mut session, &added), [["17", "none", "7", "5"]], "{table}");
    }
    let error = session.execute("ALTER TABLE target ALTER COLUMN name SET DEFAULT current_user").unwrap_err();
    assert!(error.to_string().contains("in a topology, which has no session"), "{error}");
    let error = session.execute("ALTER TABLE target ALTER COLUMN n SET NOT NULL").err();
    assert!(error.is_none(), "{error:?}");
    let error = session.execute("ALTER TABLE target ADD COLUMN needed INT NOT NULL").unwrap_err();
    assert_eq!(sqlstate(&error), "2BP01", "{error}");
    session.execute("ALTER TOPOLOGY filling PAUSE; ALTER TOPOLOGY filling RESUME").unwrap();
    append(&path, &lines(30..33));
    wait_for(&mut session, "SELECT count(*) FROM target WHERE id >= 30 AND place = 7", "3");
    session.execute("DROP TOPOLOGY filling").unwrap();
}
