//! Topologies beside other writers: one waits for the commit that is in its way, and looks up what is committed.

use super::{rows, sqlstate, wait_for, wait_for_end};
use entresol::{Database, Options, Session};

/// A commit that is on its way to the disk is visible to nobody, and already in the way of the other topology.
#[test]
fn a_topology_waits_for_the_commit_that_it_conflicts_with() {
    let directory = tempfile::tempdir().unwrap();
    let database = Database::open(directory.path(), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session.execute("CREATE TABLE total (id INT PRIMARY KEY, n BIGINT)").unwrap();
    for name in ["one", "two"] {
        // Both have the same rows in the same order, so the one that is behind meets the other now and then.
        let statements = format!(
            "CREATE SOURCE {name}_row (id INT NOT NULL) WITH (connector = 'generator', rows = 300, id.cardinality = 4);
             CREATE TOPOLOGY {name} COMMIT EACH ROW AS (
                INSERT INTO total AS t SELECT id, 1 FROM {name}_row ON CONFLICT (id) DO UPDATE SET n = t.n + 1
             )"
        );
        session.execute(&statements).unwrap();
    }
    wait_for_end(&mut session, "one");
    wait_for_end(&mut session, "two");
    assert_eq!(rows(&mut session, "SELECT sum(n)::bigint FROM total"), [["600"]]);
    let retries = rows(&mut session, "SELECT sum(retries)::bigint > 0 FROM entresol.topologies");
    assert_eq!(retries, [["true"]], "the topologies were never in each other's way");
    drop(session);
    database.close().unwrap();
}

/// Changes are joined with rows that were committed with them, while the topology's transaction was open.
#[test]
fn changes_are_looked_up_in_the_tables_of_their_commit() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(
            "CREATE TABLE item (id INT PRIMARY KEY, n INT) WITH (changes = '1 hour');
             CREATE TABLE name (id INT PRIMARY KEY, name VARCHAR);
             CREATE TABLE named (id INT PRIMARY KEY, name VARCHAR);
             CREATE TOPOLOGY naming COMMIT EVERY 1000 ROWS OR EVERY INTERVAL '1 second' AS (
                INSERT INTO named SELECT i.id, m.name FROM CHANGES(item) i JOIN name m ON m.id = i.id
             )",
        )
        .unwrap();
    for id in 0..50 {
        session.execute("BEGIN").unwrap();
        session.execute(&format!("INSERT INTO name VALUES ({id}, 'name {id}')")).unwrap();
        session.execute(&format!("INSERT INTO item VALUES ({id}, 0)")).unwrap();
        session.execute("COMMIT").unwrap();
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let read = "SELECT sum(tuples)::bigint FROM streams_positions WHERE topology = 'naming'";
    wait_for(&mut session, read, "50");
    assert_eq!(rows(&mut session, "SELECT count(*) FROM named"), [["50"]]);
}

/// The table of a view is redefined while a topology writes what the view reads.
#[test]
fn a_view_may_get_a_log_of_changes_while_topologies_write() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(
            "CREATE SOURCE number (n INT NOT NULL) WITH (connector = 'generator', rows = 20000, n.cardinality = 7);
             CREATE TABLE counted (n INT);
             CREATE MATERIALIZED VIEW counts WITH (changes = '1 hour') AS
                SELECT n, count(*) AS rows FROM counted GROUP BY n;
             CREATE TOPOLOGY counting COMMIT EVERY 5 ROWS AS (INSERT INTO counted SELECT n FROM number)",
        )
        .unwrap();
    for hours in 2..30 {
        session.execute(&format!("ALTER TABLE counts SET (changes = '{hours} hours')")).unwrap();
    }
    wait_for_end(&mut session, "counting");
    let sums = "SELECT sum(rows)::bigint, (SELECT count(*) FROM counted) FROM counts";
    assert_eq!(rows(&mut session, sums), [["20000", "20000"]]);
    let logged = "SELECT count(DISTINCT n) FROM CHANGES(counts) WHERE change_type = 'insert'";
    assert_eq!(rows(&mut session, logged), [["7"]]);
    let error =
        session.execute("CREATE MATERIALIZED VIEW past WITH (history = '1 day') AS SELECT n FROM counted");
    let message = error.unwrap_err().to_string();
    assert!(message.contains("CREATE MATERIALIZED VIEW WITH (history"), "{message}");
}

/// Two writers that each look at what the other has written take no more together than there is, if both are serializable.
#[test]
fn a_serializable_topology_has_no_write_skew() {
    const PLACES: usize = 60;
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(&format!(
            "CREATE SOURCE guest (at TIMESTAMP NOT NULL) WITH (connector = 'generator', rows = 150, rows_per_second = 200);
             CREATE TABLE taken (at TIMESTAMP PRIMARY KEY);
             CREATE TABLE reserved (id INT PRIMARY KEY);
             CREATE TOPOLOGY seating COMMIT EACH ROW ISOLATION LEVEL SERIALIZABLE WITH (durability = 'none') AS (
                 INSERT INTO taken SELECT at FROM guest
                     WHERE (SELECT count(*) FROM taken) + (SELECT count(*) FROM reserved) < {PLACES})"
        ))
        .unwrap();
    let plan = rows(&mut session, "EXPLAIN TOPOLOGY seating");
    assert!(plan[1][0].starts_with("  isolation serializable,"), "{plan:?}");
    let (mut id, mut conflicts) = (0, 0);
    loop {
        session.execute("BEGIN ISOLATION LEVEL SERIALIZABLE").unwrap();
        let both = "SELECT (SELECT count(*) FROM taken) + (SELECT count(*) FROM reserved)";
        let is_full = rows(&mut session, both)[0][0].parse::<usize>().unwrap() >= PLACES;
        if is_full {
            session.execute("COMMIT").unwrap();
            break;
        }
        session.execute(&format!("INSERT INTO reserved VALUES ({id})")).unwrap();
        match session.execute("COMMIT") {
            Ok(_) => id += 1,
            Err(error) => {
                assert_eq!(sqlstate(&error), "40001", "{error}");
                conflicts += 1;
            }
        }
    }
    wait_for_end(&mut session, "seating");
    let count = |session: &mut Session, table: &str| -> usize {
        rows(session, &format!("SELECT count(*) FROM {table}"))[0][0].parse().unwrap()
    };
    let (taken, reserved) = (count(&mut session, "taken"), count(&mut session, "reserved"));
    assert_eq!(taken + reserved, PLACES, "{taken} and {reserved}, {conflicts} conflicts");
    assert!(reserved > 0);
    let error = session
        .execute("CREATE TOPOLOGY x ISOLATION LEVEL CHAOS AS (INSERT INTO taken SELECT at FROM guest)")
        .unwrap_err();
    assert_eq!(sqlstate(&error), "42601", "{error}");
}
