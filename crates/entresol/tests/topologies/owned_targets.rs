//! Targets that a topology owns: nothing else writes them while it is there, over ALTER, DROP, restarts and kills.

use super::*;
use entresol::query::arrow::datatypes::DataType;
use entresol::query::datafusion::common::ScalarValue;
use entresol::streams::{GeneratorSource, target_owner};
use entresol::tables::{Column, DataType as ColumnType};
use std::path::PathBuf;
use std::process::{Command, Stdio};

const SOURCE: &str = "CREATE SOURCE number (at TIMESTAMP NOT NULL, n INT NOT NULL, WATERMARK FOR at AS at)
    WITH (connector = 'generator', rows = 500, step = '1 second', n.cardinality = 5)";

const TABLES: &str =
    "CREATE TABLE counts (n INT PRIMARY KEY, many BIGINT) WITH (changes = '1 hour', history = '1 hour');
    CREATE TABLE seen (n INT PRIMARY KEY, at TIMESTAMP);
    CREATE TABLE others (n INT PRIMARY KEY, at TIMESTAMP)";

const STEPS: &str = "INSERT INTO counts SELECT n, count(*) FROM number GROUP BY n
        ON CONFLICT (n) DO UPDATE SET many = EXCLUDED.many;
    MERGE INTO seen s USING number x ON s.n = x.n WHEN MATCHED THEN UPDATE SET at = x.at
        WHEN NOT MATCHED THEN INSERT VALUES (x.n, x.at)";

fn database() -> (Database, Session) {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session.execute(SOURCE).unwrap();
    session.execute(TABLES).unwrap();
    (database, session)
}

/// Names of the tables that a topology owns, with it.
fn owned(database: &Database) -> Vec<(String, String)> {
    let tables = database.catalog().tables();
    let owner = |table: &std::sync::Arc<entresol::tables::Table>| {
        target_owner(table).map(|topology| (table.name().to_owned(), topology.to_owned()))
    };
    let mut owned: Vec<(String, String)> = tables.iter().filter_map(owner).collect();
    owned.sort();
    owned
}

fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|(table, topology)| ((*table).to_owned(), (*topology).to_owned())).collect()
}

fn refused(session: &mut Session, statement: &str, code: &str, expected: &str) {
    let error = session.execute(statement).err().unwrap_or_else(|| panic!("{statement} is accepted"));
    assert!(error.to_string().contains(expected), "{statement}: {error}");
    assert_eq!(sqlstate(&error), code, "{statement}: {error}");
}

#[test]
fn nothing_else_writes_what_a_topology_owns() {
    let (database, mut session) = database();
    let mut other = database.session().unwrap();
    session.execute("PREPARE one (INT) AS INSERT INTO counts VALUES ($1, 0)").unwrap();
    let prepared =
        session.prepare("UPDATE counts SET many = $1 WHERE n = 1", &[Some(DataType::Int64)]).unwrap();
    session.execute(&format!("CREATE TOPOLOGY t COMMIT EVERY 50 ROWS WITH (owned) AS ({STEPS})")).unwrap();
    wait_for_end(&mut session, "t");
    assert_eq!(owned(&database), pairs(&[("counts", "t"), ("seen", "t")]));
    let belongs = "belongs to topology t";
    for (statement, expected) in [
        ("INSERT INTO counts VALUES (9, 1)", "cannot insert into table \"counts\": it belongs to topology t"),
        ("INSERT INTO counts SELECT n, 1 FROM seen", belongs),
        ("INSERT INTO counts VALUES (1, 1) ON CONFLICT (n) DO UPDATE SET many = 0", belongs),
        ("UPDATE counts SET many = 0", belongs),
        ("UPDATE seen SET at = NULL WHERE n = 1", belongs),
        ("DELETE FROM counts WHERE n = 1", belongs),
        ("TRUNCATE counts", belongs),
        ("MERGE INTO seen USING counts c ON c.n = seen.n WHEN MATCHED THEN DELETE", belongs),
        ("EXECUTE one (7)", belongs),
        ("CREATE TOPOLOGY x AS (INSERT INTO seen SELECT n, at FROM number)", belongs),
        ("CREATE TOPOLOGY x AS (DELETE FROM seen USING number x WHERE seen.n = x.n)", belongs),
        (
            "CREATE TOPOLOGY x AS (MERGE INTO seen s USING number x ON s.n = x.n WHEN MATCHED THEN DELETE)",
            belongs,
        ),
        (
            "CREATE TOPOLOGY x ON ERROR SKIP ROW INTO seen AS (INSERT INTO others SELECT n, at FROM number)",
            belongs,
        ),
    ] {
        refused(&mut session, statement, "55000", expected);
    }
    let error = session.run_prepared(&prepared, &[ScalarValue::Int64(Some(3))]).err().unwrap();
    assert!(error.to_string().contains(belongs), "{error}");
    let copied = session.copy_in("COPY counts FROM STDIN", &mut &b"8\t1\n"[..]).unwrap_err();
    assert!(
        copied.to_string().contains("cannot copy to table \"counts\": it belongs to topology t"),
        "{copied}"
    );
    let topology = database.topology("in_rust");
    let columns =
        vec![Column::new("n", ColumnType::Int).not_null(), Column::new("at", ColumnType::Timestamp)];
    topology.source("rows", GeneratorSource::new(columns, |_| None)).to_table("seen");
    let error = topology.build().err().unwrap().to_string();
    assert!(error.contains(&format!("table seen {belongs}")), "{error}");
    // It is read as any table.
    assert_eq!(rows(&mut other, "SELECT count(*), sum(many)::bigint FROM counts"), [["5", "500"]]);
    assert_eq!(rows(&mut other, "SELECT count(*) > 5 FROM CHANGES(counts)"), [["true"]]);
    assert_eq!(rows(&mut other, "SELECT count(*) FROM counts FOR SYSTEM_TIME AS OF now()"), [["5"]]);
    let explained = rows(&mut session, "EXPLAIN TOPOLOGY t");
    assert_eq!(explained[0], ["Topology t, commit every 50 rows, owns its targets"]);
    session.execute("DROP TOPOLOGY t; INSERT INTO counts VALUES (9, 1); EXECUTE one (7)").unwrap();
    assert!(owned(&database).is_empty());
    assert_eq!(rows(&mut session, "SELECT count(*) FROM counts"), [["7"]]);
}

/// Alterations depend on what a target is, and what depends on it, as of any target of a topology.
#[test]
fn an_owned_target_is_altered_as_others_are() {
    let (database, mut session) = database();
    session.execute(&format!("CREATE TOPOLOGY t WITH (owned = 'true') AS ({STEPS})")).unwrap();
    wait_for_end(&mut session, "t");
    session
        .execute("ALTER TABLE counts ADD COLUMN note VARCHAR; CREATE INDEX of_many ON counts (many); CREATE VIEW v AS SELECT n FROM seen")
        .unwrap();
    assert_eq!(owned(&database), pairs(&[("counts", "t"), ("seen", "t")]));
    refused(&mut session, "ALTER TABLE counts RENAME TO c", "2BP01", "topology t uses it");
    refused(&mut session, "ALTER TABLE seen DROP COLUMN at", "2BP01", "topology t");
    refused(&mut session, "DROP TABLE counts", "2BP01", "topology t uses it");
    refused(
        &mut session,
        "ALTER TABLE seen SET (layout = 'columns')",
        "0A000",
        "the steps of topology t, which alone",
    );
    session.execute("DROP TABLE counts CASCADE; INSERT INTO seen VALUES (9, NULL)").unwrap();
    assert!(owned(&database).is_empty());
    assert_eq!(rows(&mut session, "SELECT count(*) FROM entresol.topologies"), [["0"]]);
}

/// A table with another writer is not owned; a transaction that wrote it before gets a conflict.
#[test]
fn a_target_with_other_writers_is_refused() {
    let (database, mut session) = database();
    session.execute("CREATE TOPOLOGY writer AS (INSERT INTO others SELECT n, max(at) FROM number GROUP BY n ON CONFLICT (n) DO UPDATE SET at = EXCLUDED.at)").unwrap();
    let with_others = "CREATE TOPOLOGY t WITH (owned) AS (INSERT INTO counts SELECT n, count(*) FROM number GROUP BY n
        ON CONFLICT (n) DO UPDATE SET many = EXCLUDED.many; DELETE FROM others USING number x WHERE others.n = x.n)";
    refused(
        &mut session,
        with_others,
        "55000",
        "topology \"t\" cannot own table others, which has another writer, topology writer",
    );
    refused(
        &mut session,
        &format!("CREATE TOPOLOGY t WITH (owned = 'perhaps') AS ({STEPS})"),
        "22023",
        "owned",
    );
    let view =
        "CREATE MATERIALIZED VIEW v WITH (owned = 'true') AS SELECT n, count(*) FROM number GROUP BY n";
    let error = session.execute(view).unwrap_err().to_string();
    assert!(error.contains("option \"owned\" of materialized view"), "{error}");
    assert!(owned(&database).is_empty());
    let mut before = database.session().unwrap();
    before.execute("BEGIN; INSERT INTO counts VALUES (99, 1)").unwrap();
    session.execute(&format!("CREATE TOPOLOGY t WITH (owned) AS ({STEPS})")).unwrap();
    let error = before.execute("COMMIT").unwrap_err();
    assert_eq!(sqlstate(&error), "40001", "{error}");
    wait_for_end(&mut session, "t");
    assert_eq!(rows(&mut session, "SELECT count(*) FROM counts WHERE n = 99"), [["0"]]);
    assert_eq!(rows(&mut session, "SELECT retries FROM entresol.topologies WHERE name = 't'"), [["0"]]);
}

/// ALTER and CREATE OR REPLACE change what is owned, with the statement that is stored.
#[test]
fn owners_follow_the_options_and_steps() {
    let directory = tempfile::tempdir().unwrap();
    let database = Database::open(directory.path(), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session.execute(SOURCE).unwrap();
    session.execute(TABLES).unwrap();
    session.execute(&format!("CREATE TOPOLOGY t AS ({STEPS})")).unwrap();
    assert!(owned(&database).is_empty());
    let both = pairs(&[("counts", "t"), ("seen", "t")]);
    session.execute("ALTER TOPOLOGY t SET (owned = 'true')").unwrap();
    assert_eq!(owned(&database), both);
    session
        .execute(
            "ALTER TOPOLOGY t PAUSE; ALTER TOPOLOGY t RESUME; ALTER TOPOLOGY t SET (durability = 'none')",
        )
        .unwrap();
    assert_eq!(owned(&database), both);
    refused(&mut session, "INSERT INTO seen VALUES (9, NULL)", "55000", "belongs to topology t");
    let without_state =
        "ALTER TOPOLOGY t AS (INSERT INTO others SELECT n, at FROM number ON CONFLICT (n) DO NOTHING)";
    refused(&mut session, without_state, "55000", "cannot go on with its state");
    assert_eq!(owned(&database), both);
    session
        .execute(
            "CREATE OR REPLACE TOPOLOGY t WITH (owned) AS (
                 INSERT INTO others SELECT n, at FROM number ON CONFLICT (n) DO NOTHING)",
        )
        .unwrap();
    assert_eq!(owned(&database), pairs(&[("others", "t")]));
    session.execute("INSERT INTO seen VALUES (9, NULL)").unwrap();
    session
        .execute("ALTER TOPOLOGY t AS (INSERT INTO seen SELECT n + 100, at FROM number ON CONFLICT (n) DO NOTHING)")
        .unwrap();
    assert_eq!(owned(&database), pairs(&[("seen", "t")]));
    session.execute("ALTER TOPOLOGY t SET (owned = false); INSERT INTO seen VALUES (10, NULL)").unwrap();
    assert!(owned(&database).is_empty());
    session.execute("ALTER TOPOLOGY t PAUSE; ALTER TOPOLOGY t SET (owned)").unwrap();
    drop(session);
    drop(database);
    // Without its topologies too it is known what they own.
    let database = Database::open(directory.path(), Options::default().start_topologies(false)).unwrap();
    let mut session = database.session().unwrap();
    assert_eq!(owned(&database), pairs(&[("seen", "t")]));
    refused(&mut session, "DELETE FROM seen", "55000", "belongs to topology t");
    refused(&mut session, "DROP TABLE seen", "2BP01", "the database was opened without its topologies");
    session.execute("INSERT INTO others VALUES (77, NULL)").unwrap();
    drop(session);
    drop(database);
    let database = Database::open(directory.path(), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    refused(&mut session, "DELETE FROM seen", "55000", "belongs to topology t");
    session.execute("ALTER TOPOLOGY t RESUME").unwrap();
    session.execute("DROP TOPOLOGY t; DELETE FROM seen").unwrap();
    assert!(owned(&database).is_empty());
}

/// Directory of a database that this process opens to be killed, if it is the child of the test below.
const KILLED: &str = "ENTRESOL_OWNED_TARGETS_DIRECTORY";

#[test]
fn child_that_is_killed() {
    let Some(directory) = std::env::var_os(KILLED).map(PathBuf::from) else { return };
    let database = Database::open(&directory, Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session.execute("DROP TOPOLOGY IF EXISTS t").unwrap();
    println!("open");
    for round in 0.. {
        let owned = if round % 3 == 0 { "durability = 'none'" } else { "owned" };
        session.execute(&format!("CREATE TOPOLOGY t WITH ({owned}) AS ({STEPS})")).unwrap();
        session.execute("ALTER TOPOLOGY t SET (owned)").unwrap();
        session
            .execute(
                "CREATE OR REPLACE TOPOLOGY t WITH (owned) AS (
                     INSERT INTO others SELECT n, at FROM number ON CONFLICT (n) DO NOTHING)",
            )
            .unwrap();
        session.execute("DROP TOPOLOGY t").unwrap();
    }
}

/// A process that creates, alters and drops a topology is killed again and again: tables belong to it as its stored statement
/// says, and to none that is not there.
#[test]
fn owners_are_those_of_stored_topologies_over_kills() {
    let directory = tempfile::tempdir().unwrap();
    let database = Database::open(directory.path(), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session.execute(SOURCE).unwrap();
    session.execute(TABLES).unwrap();
    drop(session);
    database.close().unwrap();
    drop(database);
    let mut found = std::collections::BTreeSet::new();
    for kill in 0..12_u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "owned_targets::child_that_is_killed", "--nocapture"])
            .env(KILLED, directory.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = std::io::BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains("open") {
            line.clear();
            assert_ne!(
                std::io::BufRead::read_line(&mut output, &mut line).unwrap(),
                0,
                "the child has ended"
            );
        }
        std::thread::sleep(Duration::from_millis(kill * 131 % 700));
        child.kill().unwrap();
        child.wait().unwrap();
        let database = Database::open(directory.path(), Options::default().start_topologies(false)).unwrap();
        let mut session = database.session().unwrap();
        // Of a new database there is no table of topologies yet.
        let stored = match session.query("SELECT 1 FROM streams_topologies") {
            Ok(_) => rows(&mut session, "SELECT definition FROM streams_topologies"),
            Err(_) => Vec::new(),
        };
        let expected = match stored.first().map(|row| row[0].as_str()) {
            Some(text) if text.contains("others") => pairs(&[("others", "t")]),
            Some(text) if text.contains("owned") => pairs(&[("counts", "t"), ("seen", "t")]),
            _ => Vec::new(),
        };
        assert_eq!(owned(&database), expected, "kill {kill}: {stored:?}");
        found.insert(expected);
        for table in ["counts", "seen", "others"] {
            let is_owned = owned(&database).iter().any(|(owned, _)| owned == table);
            let deleted = session.execute(&format!("DELETE FROM {table} WHERE n < 0"));
            assert_eq!(deleted.is_err(), is_owned, "{table}");
        }
        drop(session);
        database.close().unwrap();
    }
    assert!(found.len() > 1, "all kills came at {found:?}");
}
