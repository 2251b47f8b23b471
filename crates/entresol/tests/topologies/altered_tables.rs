//! ALTER TABLE of tables that topologies read and write: what they use stays, what is added does not stop them.

use super::{append, rows, sqlstate, wait_for};
use entresol::{Database, Options, Session};
use std::path::Path;

/// Topologies of each way to use a table, over lines of a file.
fn prepare(session: &mut Session, path: &Path) {
    append(path, "id,n\n");
    session
        .execute(&format!(
            "CREATE SOURCE line (id INT NOT NULL, n INT) WITH (connector = 'file', path = '{}', tail = true);
             CREATE TABLE added (id INT PRIMARY KEY, n INT) WITH (changes = '1 hour');
             CREATE TABLE listed (id INT PRIMARY KEY, n INT, more INT);
             CREATE TABLE replaced (id INT PRIMARY KEY, n INT);
             CREATE TABLE summed (id INT PRIMARY KEY, n INT);
             CREATE TABLE merged (id INT PRIMARY KEY, n INT) WITH (changes = '1 hour');
             CREATE TABLE place (id INT PRIMARY KEY, name VARCHAR);
             CREATE TABLE placed (id INT PRIMARY KEY, name VARCHAR);
             CREATE TABLE copied (id INT, n INT, PRIMARY KEY (id, n));
             CREATE TABLE flowed (id INT PRIMARY KEY, n INT);
             INSERT INTO place SELECT i, 'place ' || i FROM generate_series(0, 999) g(i);
             CREATE TOPOLOGY adding COMMIT EACH ROW AS (
                 INSERT INTO added SELECT id, n FROM line;
                 INSERT INTO listed (n, id) SELECT n, id FROM line);
             CREATE TOPOLOGY replacing COMMIT EACH ROW AS (
                 INSERT INTO replaced SELECT id, n FROM line ON CONFLICT (id) DO UPDATE SET n = EXCLUDED.n;
                 INSERT INTO summed AS s SELECT id, n FROM line ON CONFLICT (id) DO UPDATE SET n = s.n + EXCLUDED.n;
                 MERGE INTO merged m USING line l ON m.id = l.id
                     WHEN MATCHED THEN UPDATE SET n = m.n + l.n WHEN NOT MATCHED THEN INSERT (id, n) VALUES (l.id, l.n);
                 INSERT INTO flowed SELECT id, n FROM CHANGES(merged) FOR EACH COMMIT
                     ON CONFLICT (id) DO UPDATE SET n = EXCLUDED.n;
                 ABORT WHEN (SELECT count(*) FROM CHANGES(merged)) > 5);
             CREATE TOPOLOGY placing COMMIT EACH ROW AS (
                 INSERT INTO placed SELECT l.id, p.name FROM line l JOIN place p ON p.id = l.id);
             CREATE TOPOLOGY copying AS (INSERT INTO copied SELECT id, n FROM CHANGES(added))",
            path.display()
        ))
        .unwrap();
}

const TARGETS: [&str; 7] = ["added", "listed", "replaced", "summed", "merged", "placed", "flowed"];
const STATES: &str = "SELECT string_agg(name || ' ' || state || coalesce(error, ''), ', ' ORDER BY name) FROM entresol.topologies";

fn write(path: &Path, ids: std::ops::Range<u32>) {
    let lines: String = ids.map(|id| format!("{id},{}\n", id * 2)).collect();
    append(path, &lines);
}

/// Waits until all have so many rows.
fn wait_for_rows(session: &mut Session, rows: u32) {
    for table in TARGETS.into_iter().chain(["copied"]) {
        wait_for(session, &format!("SELECT count(*) FROM {table}"), &rows.to_string());
    }
}

#[test]
fn topologies_go_on_when_columns_are_added() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lines.csv");
    let database = Database::open(directory.path().join("db"), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    prepare(&mut session, &path);
    write(&path, 0..10);
    wait_for_rows(&mut session, 10);
    for table in TARGETS.into_iter().chain(["copied", "place"]) {
        session.execute(&format!("ALTER TABLE {table} ADD COLUMN extra INT")).unwrap();
    }
    for table in ["summed", "merged", "replaced", "place"] {
        session.execute(&format!("UPDATE {table} SET extra = 7 WHERE id = 3")).unwrap();
    }
    write(&path, 10..20);
    wait_for_rows(&mut session, 20);
    // A row that is there keeps what the topology does not know.
    append(&path, "3,100\n");
    let expected = [["106", "7"]];
    wait_for(&mut session, "SELECT n FROM summed WHERE id = 3", "106");
    assert_eq!(rows(&mut session, "SELECT n, extra FROM summed WHERE id = 3"), expected);
    assert_eq!(rows(&mut session, "SELECT n, extra FROM merged WHERE id = 3"), expected);
    assert_eq!(rows(&mut session, "SELECT n, extra FROM replaced WHERE id = 3"), [["100", "7"]]);
    assert_eq!(rows(&mut session, "SELECT n FROM flowed WHERE id = 3"), [["106"]]);
    // The key that is there ends the topologies that only insert, for this reason alone.
    wait_for(&mut session, "SELECT state FROM entresol.topologies WHERE name = 'placing'", "failed");
    session.execute("DROP TOPOLOGY adding; DROP TOPOLOGY placing").unwrap();
    assert_eq!(rows(&mut session, STATES), [["copying running, replacing running"]]);
    drop(session);
    database.close().unwrap();
    drop(database);
    let database = Database::open(directory.path().join("db"), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    assert_eq!(rows(&mut session, STATES), [["copying running, replacing running"]]);
    append(&path, "500,1\n");
    wait_for(&mut session, "SELECT n FROM flowed WHERE id = 500", "1");
}

/// A definition changes again and again while transactions run.
#[test]
fn a_target_is_altered_while_rows_come() {
    for parallelism in ["1", "2"] {
        let database = Database::volatile(Options::default()).unwrap();
        let mut session = database.session().unwrap();
        session
            .execute(&format!(
                "CREATE SOURCE number (n INT NOT NULL) WITH (connector = 'generator', rows = 60000, n.cardinality = 100);
                 CREATE TABLE stored (n INT) WITH (changes = '1 hour');
                 CREATE TABLE latest (n INT PRIMARY KEY, twice INT);
                 CREATE TABLE copied (n INT, change_type VARCHAR);
                 CREATE TOPOLOGY storing COMMIT EVERY 300 ROWS WITH (parallelism = '{parallelism}') AS (
                     INSERT INTO stored SELECT n FROM number;
                     INSERT INTO latest SELECT n, 2 * n FROM number ON CONFLICT (n) DO UPDATE SET twice = EXCLUDED.twice);
                 CREATE TOPOLOGY copying AS (INSERT INTO copied SELECT n, change_type FROM CHANGES(stored))"
            ))
            .unwrap();
        for number in 0..15 {
            for table in ["stored", "latest", "copied"] {
                session.execute(&format!("ALTER TABLE {table} ADD COLUMN more_{number} INT")).unwrap();
            }
            session.execute(&format!("CREATE INDEX by_n_{number} ON stored (n)")).unwrap();
        }
        wait_for(
            &mut session,
            "SELECT state || coalesce(error, '') FROM entresol.topologies WHERE name = 'storing'",
            "ended",
        );
        wait_for(&mut session, "SELECT count(*) FROM copied", "60000");
        assert_eq!(rows(&mut session, "SELECT count(*) FROM stored"), [["60000"]]);
        assert_eq!(rows(&mut session, "SELECT count(*) FROM latest WHERE twice = 2 * n"), [["100"]]);
    }
}

#[test]
fn what_topologies_use_is_neither_renamed_nor_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lines.csv");
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    prepare(&mut session, &path);
    write(&path, 0..10);
    wait_for_rows(&mut session, 10);
    session.execute("ALTER TOPOLOGY placing PAUSE; ALTER TABLE added ADD COLUMN unused INT").unwrap();
    for (statement, expected) in [
        (
            "ALTER TABLE added RENAME TO other",
            "cannot rename table added because other objects depend on it: topology adding uses it, topology copying uses it",
        ),
        ("ALTER TABLE place RENAME TO other", "topology placing uses it"),
        (
            "ALTER TABLE listed RENAME COLUMN n TO other",
            "cannot rename column n of table listed because other objects depend on it: topology adding uses it",
        ),
        ("ALTER TABLE listed DROP COLUMN n", "cannot drop column n of table listed"),
        ("ALTER TABLE place RENAME COLUMN name TO other", "topology placing uses it"),
        ("ALTER TABLE merged RENAME COLUMN n TO other", "topology replacing uses it"),
        ("ALTER TABLE added DROP COLUMN n", "topology copying uses it"),
        ("ALTER TABLE added ADD COLUMN d INT NOT NULL", "adding write it"),
        (
            "ALTER TABLE added ALTER COLUMN n ADD GENERATED ALWAYS AS IDENTITY",
            "column n would be generated, and rows of topologies adding have values for it",
        ),
        (
            "ALTER TABLE listed ALTER COLUMN more SET NOT NULL",
            "rows of topologies adding have no value for it",
        ),
    ] {
        let error = session.execute(statement).err().unwrap_or_else(|| panic!("{statement} is accepted"));
        let code = sqlstate(&error);
        let error = error.to_string();
        assert!(error.contains(expected), "{statement}: {error}");
        assert_eq!(code, "2BP01", "{statement}");
    }
    // What none of them uses.
    session
        .execute(
            "ALTER TABLE listed RENAME COLUMN more TO less;
             ALTER TABLE listed DROP COLUMN less;
             ALTER TABLE replaced ALTER COLUMN n SET NOT NULL",
        )
        .unwrap();
    session.execute("ALTER TOPOLOGY placing RESUME").unwrap();
    write(&path, 10..20);
    wait_for_rows(&mut session, 20);
    super::notices_of(&session);
    session.execute("ALTER TABLE place DROP COLUMN name CASCADE").unwrap();
    assert_eq!(super::notices_of(&session), ["drop cascades to topology placing"]);
    assert_eq!(rows(&mut session, STATES), [["adding running, copying running, replacing running"]]);
}

/// A step with `SELECT *` could not be planned with one column more.
#[test]
fn a_column_that_a_topology_could_not_go_on_with_is_refused() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(
            "CREATE TABLE account (id INT PRIMARY KEY, amount BIGINT) WITH (changes = '1 hour');
             CREATE TABLE movement (id INT, amount BIGINT, old_id INT, old_amount BIGINT, what VARCHAR, cts BIGINT PRIMARY KEY);
             CREATE TOPOLOGY movements AS (INSERT INTO movement SELECT * FROM CHANGES(account));
             INSERT INTO account VALUES (1, 10)",
        )
        .unwrap();
    wait_for(&mut session, "SELECT count(*) FROM movement", "1");
    let error = session.execute("ALTER TABLE account ADD COLUMN owner VARCHAR").unwrap_err().to_string();
    assert!(error.contains("topology movements could not go on"), "{error}");
    session.execute("UPDATE account SET amount = 11").unwrap();
    wait_for(&mut session, "SELECT count(*) FROM movement", "2");
    assert_eq!(rows(&mut session, STATES), [["movements running"]]);
    let columns = "SELECT count(*) FROM information_schema.columns WHERE table_name = 'account'";
    assert_eq!(rows(&mut session, columns), [["2"]]);
}

/// Statements that are refused, or find nothing, leave the topologies that they would drop.
#[test]
fn a_refused_drop_column_drops_no_topology() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lines.csv");
    let database = Database::open(directory.path().join("db"), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    prepare(&mut session, &path);
    session
        .execute(
            "CREATE INDEX by_name ON place (name);
             CREATE TABLE one (id INT) WITH (changes = '1 hour');
             CREATE TABLE ones (id INT);
             CREATE TOPOLOGY following AS (INSERT INTO ones SELECT id FROM CHANGES(one));
             CREATE MATERIALIZED VIEW latest WITH (refresh = 'deferred', refresh_interval = '5 milliseconds') AS
                 SELECT id, n FROM added;
             CREATE MATERIALIZED VIEW sums AS SELECT n, count(*) AS many FROM merged GROUP BY n",
        )
        .unwrap();
    write(&path, 0..3);
    wait_for_rows(&mut session, 3);
    let states = rows(&mut session, STATES);
    super::notices_of(&session);
    for (statement, code) in [
        ("ALTER TABLE place DROP COLUMN typo CASCADE", "42703"),
        ("ALTER TABLE place DROP COLUMN id CASCADE", "2BP01"),
        ("ALTER TABLE place DROP COLUMN name CASCADE", "2BP01"),
        ("ALTER TABLE place DROP COLUMN name, DROP COLUMN id CASCADE", "0A000"),
        ("ALTER TABLE one DROP COLUMN id CASCADE", "0A000"),
        ("ALTER TABLE added DROP COLUMN n CASCADE", "2BP01"),
        ("ALTER TABLE merged DROP COLUMN n CASCADE", "2BP01"),
    ] {
        let error = session.execute(statement).err().unwrap_or_else(|| panic!("{statement} is accepted"));
        assert_eq!(sqlstate(&error), code, "{statement}: {error}");
        assert_eq!(rows(&mut session, STATES), states, "{statement}");
    }
    session
        .execute(
            "ALTER TABLE place DROP COLUMN IF EXISTS typo CASCADE; ALTER TABLE added DROP COLUMN IF EXISTS typo;
             ALTER TABLE IF EXISTS gone DROP COLUMN typo CASCADE",
        )
        .unwrap();
    assert_eq!(rows(&mut session, STATES), states);
    assert!(super::notices_of(&session).is_empty());
    write(&path, 3..5);
    wait_for_rows(&mut session, 5);
    wait_for(&mut session, "SELECT count(*) FROM latest", "5");
    wait_for(&mut session, "SELECT sum(many) FROM sums", "5");
}

/// Definitions with which a topology could not go on are taken back, whatever has changed.
#[test]
fn a_refused_change_leaves_the_definition() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lines.csv");
    append(&path, "id,n\n1,5\n");
    let database = Database::open(directory.path().join("db"), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    // The column `missing` is constant, and so may be in the key, as long as no place lacks a rank.
    session
        .execute(&format!(
            "CREATE SOURCE line (id INT NOT NULL, n INT) WITH (connector = 'file', path = '{}', tail = true);
             CREATE TABLE place (id INT PRIMARY KEY, rank INT NOT NULL);
             INSERT INTO place SELECT i, i FROM generate_series(0, 99) g(i);
             CREATE TABLE best (id INT, missing BOOLEAN, n INT, PRIMARY KEY (id, missing));
             CREATE TOPOLOGY ranking COMMIT EACH ROW AS (
                 INSERT INTO best SELECT id, rank IS NULL, n
                     FROM (SELECT l.id, l.n, p.rank, row_number() OVER (PARTITION BY l.id ORDER BY l.n DESC) AS number
                         FROM line l JOIN place p ON p.id = l.id) r
                     WHERE number = 1
                     ON CONFLICT (id, missing) DO UPDATE SET n = EXCLUDED.n)",
            path.display()
        ))
        .unwrap();
    wait_for(&mut session, "SELECT n FROM best", "5");
    let error = session.execute("ALTER TABLE place ALTER COLUMN rank DROP NOT NULL").unwrap_err();
    assert_eq!(sqlstate(&error), "2BP01", "{error}");
    assert!(error.to_string().contains("topology ranking could not go on"), "{error}");
    let error = session.execute("INSERT INTO place VALUES (100, NULL)").unwrap_err();
    assert_eq!(sqlstate(&error), "23502", "{error}");
    append(&path, "1,7\n");
    wait_for(&mut session, "SELECT n FROM best", "7");
    assert_eq!(rows(&mut session, STATES), [["ranking running"]]);
}

/// A topology that cannot be planned holds up neither a statement nor the topologies beside it.
#[test]
fn one_that_cannot_go_on_leaves_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lines.csv");
    append(&path, "id,n\n1,1\n");
    let database = Database::open(directory.path().join("db"), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(&format!(
            "CREATE SOURCE line (id INT NOT NULL, n INT) WITH (connector = 'file', path = '{}', tail = true);
             CREATE TABLE place (id INT PRIMARY KEY, name VARCHAR);
             INSERT INTO place SELECT i, 'place ' || i FROM generate_series(0, 99) g(i);
             CREATE TABLE one (id INT PRIMARY KEY, name VARCHAR);
             CREATE TABLE other (id INT PRIMARY KEY, name VARCHAR);
             CREATE TOPOLOGY a COMMIT EACH ROW AS (
                 INSERT INTO one SELECT l.id, p.name FROM line l JOIN place p ON p.id = l.id);
             CREATE TOPOLOGY b COMMIT EACH ROW AS (
                 INSERT INTO other SELECT l.id, p.name FROM line l JOIN place p ON p.id = l.id)",
            path.display()
        ))
        .unwrap();
    wait_for(&mut session, "SELECT count(*) FROM other", "1");
    // As damage might leave it.
    let table = database.catalog().table("streams_topologies").unwrap();
    let transaction = database.begin().unwrap();
    let stored = table.scan(entresol::tables::ScanRange::full()).rows(&transaction).unwrap();
    let mut damaged = stored.into_iter().find(|row| row[0] == entresol::tables::Value::from("a")).unwrap();
    damaged[1] = "CREATE TOPOLOGY a AS (".into();
    table.upsert(&transaction, &damaged).unwrap();
    transaction.commit(entresol::Durability::Sync).unwrap();
    session.execute("ALTER TABLE place ADD COLUMN more INT").unwrap();
    let state = "SELECT state FROM entresol.topologies WHERE name = ";
    assert_eq!(rows(&mut session, &format!("{state}'a'")), [["failed"]]);
    session.execute("ALTER SOURCE line SET (rejects = 'bad_lines')").unwrap();
    assert_eq!(rows(&mut session, &format!("{state}'b'")), [["running"]]);
    append(&path, "2,2\n");
    wait_for(&mut session, "SELECT count(*) FROM other", "2");
    // It still uses what it did.
    let error = session.execute("DROP TABLE one").unwrap_err().to_string();
    assert!(error.contains("topology a uses it"), "{error}");
}

/// A topology that reads the changes of a table would find a log without its position.
#[test]
fn a_change_log_that_topologies_read_stays() {
    let directory = tempfile::tempdir().unwrap();
    let database = Database::open(directory.path(), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(
            "CREATE TABLE t (id INT PRIMARY KEY, n INT) WITH (changes = '1 hour');
             CREATE TABLE copied (id INT PRIMARY KEY, n INT);
             CREATE TOPOLOGY copying COMMIT EACH ROW AS (INSERT INTO copied SELECT id, n FROM CHANGES(t))",
        )
        .unwrap();
    for statement in ["ALTER TABLE t RESET (changes)", "ALTER TABLE t SET (changes = 'off')"] {
        let error = session.execute(statement).unwrap_err();
        assert_eq!(sqlstate(&error), "2BP01", "{error}");
        assert!(error.to_string().contains("copying"), "{error}");
    }
    session.execute("ALTER TABLE t SET (changes = '2 hours'); INSERT INTO t VALUES (1, 2)").unwrap();
    wait_for(&mut session, "SELECT count(*) FROM copied", "1");
    session.execute("DROP TOPOLOGY copying; ALTER TABLE t RESET (changes)").unwrap();
}

/// Relations, sources and streams share one space of names.
#[test]
fn a_relation_has_no_name_of_a_source() {
    let directory = tempfile::tempdir().unwrap();
    let database = Database::open(directory.path(), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(
            "CREATE TABLE t (id INT PRIMARY KEY);
             CREATE SOURCE number (n INT NOT NULL) WITH (connector = 'generator', rows = 10, n.cardinality = 100);
             CREATE STREAM doubled AS SELECT 2 * n AS n FROM number",
        )
        .unwrap();
    for name in ["number", "doubled"] {
        for statement in [
            format!("CREATE TABLE {name} (id INT PRIMARY KEY)"),
            format!("CREATE TABLE {name} AS SELECT * FROM t"),
            format!("CREATE VIEW {name} AS SELECT * FROM t"),
            format!("CREATE MATERIALIZED VIEW {name} AS SELECT * FROM t"),
            format!("ALTER TABLE t RENAME TO {name}"),
        ] {
            let error = session.execute(&statement).unwrap_err();
            assert_eq!(sqlstate(&error), "42P07", "{statement}: {error}");
        }
    }
}
