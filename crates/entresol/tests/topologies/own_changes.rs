//! CHANGES(table) of a table that the topology writes: they equal its change log, by whichever steps it is written, over
//! aborts, restarts and kills.

use super::{Random, rows, sqlstate, wait_for, wait_for_end};
use entresol::{Database, Options, Session};
use std::collections::BTreeMap;
use std::path::Path;

/// Tables that the topology writes, all with columns `id` and `v`.
const TABLES: [&str; 3] = ["t", "sums", "merged"];

const LINES: &str = "CREATE SOURCE line (at TIMESTAMP NOT NULL, op INT NOT NULL, id INT NOT NULL, v INT NOT NULL)
    WITH (connector = 'generator', rows = 900, step = '1 second', op.cardinality = 8, id.cardinality = 9, v.cardinality = 5)";

/// Steps that write `t` in five ways, and the others by results that are taken back.
const WRITERS: &str = "
    INSERT INTO t SELECT id, v FROM line WHERE op < 2 ON CONFLICT (id) DO UPDATE SET v = EXCLUDED.v;
    MERGE INTO t USING (SELECT * FROM line WHERE op IN (2, 3)) l ON t.id = l.id
        WHEN MATCHED AND l.v = 0 THEN DELETE
        WHEN MATCHED THEN UPDATE SET v = t.v + l.v
        WHEN NOT MATCHED THEN INSERT (id, v) VALUES (l.id, l.v);
    DELETE FROM t USING (SELECT * FROM line WHERE op IN (4, 5)) l WHERE t.id = l.id AND l.v < 3;
    INSERT INTO t SELECT id, v FROM line WHERE op = 6 ON CONFLICT (id) DO NOTHING;
    INSERT INTO t SELECT 1000 + id + 100 * extract(epoch FROM at - TIMESTAMP '2026-01-01')::int, v FROM line WHERE op = 7;
    INSERT INTO sums SELECT id, sum(v)::int FROM line GROUP BY id HAVING sum(v)::int % 3 <> 0
        ON CONFLICT (id) DO UPDATE SET v = EXCLUDED.v;
    MERGE INTO merged m USING (SELECT id, count(*)::int AS n FROM line GROUP BY id HAVING count(*) % 4 <> 1) l ON m.id = l.id
        WHEN MATCHED AND l.n % 5 = 0 THEN DELETE
        WHEN MATCHED THEN UPDATE SET v = m.v + l.n
        WHEN NOT MATCHED AND l.n > 2 THEN INSERT (id, v) VALUES (l.id, l.n)";

/// Steps that note the changes of a table: each row, at the commit, and each row without those that are deleted.
fn readers(table: &str) -> String {
    let into = |form: &str| {
        format!(
            "INSERT INTO {table}_{form} (id, v, was_id, was_v, what) SELECT id, v, old_id, old_v, change_type"
        )
    };
    format!(
        "{} FROM CHANGES({table}) FOR EACH ROW; {} FROM CHANGES({table}) FOR EACH COMMIT;
         INSERT INTO {table}_plain (id, v) SELECT id, v FROM CHANGES({table}) FOR EACH ROW",
        into("row"),
        into("commit")
    )
}

fn create(session: &mut Session, boundary: &str, threads: u32) {
    for table in TABLES {
        session
            .execute(&format!(
                "CREATE TABLE {table} (id INT PRIMARY KEY, v INT); INSERT INTO {table} VALUES (1, 1000), (5, 5000);
                 ALTER TABLE {table} SET (changes = '1 day')"
            ))
            .unwrap();
        for form in ["row", "commit", "plain"] {
            session
                .execute(&format!(
                    "CREATE TABLE {table}_{form} (number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id INT, v INT,
                        was_id INT, was_v INT, what VARCHAR) WITH (changes = '1 day')"
                ))
                .unwrap();
        }
    }
    // The readers of `t` stand before its writers, the others behind.
    session
        .execute(&format!(
            "{LINES}; CREATE TABLE logged (cts BIGINT, id INT, v INT, was_id INT, was_v INT, what VARCHAR, PRIMARY KEY (cts, id));
             CREATE TOPOLOGY inside COMMIT {boundary} ON ERROR ABORT WITH (durability = 'none', parallelism = '{threads}') AS (
                 {}; {WRITERS}; {}; {};
                 ABORT WHEN (SELECT count(*) FROM CHANGES(t) WHERE change_type = 'delete' AND v = old_v) > 2);
             CREATE TOPOLOGY outside WITH (durability = 'none') AS (
                 INSERT INTO logged SELECT commit_cts, id, v, old_id, old_v, change_type FROM CHANGES(t))",
            readers("t"),
            readers("sums"),
            readers("merged")
        ))
        .unwrap();
}

/// Row of a change, as texts: `id`, `v`; none if there is none.
type Shown = Option<[String; 2]>;

/// Rows before and behind a change: columns `id`, `v`, `was_id`, `was_v`, `what`.
fn before_and_behind(change: &[String]) -> (Shown, Shown) {
    let [id, v, was_id, was_v, what] = change else { panic!("{change:?}") };
    let (new, old) = ([id.clone(), v.clone()], [was_id.clone(), was_v.clone()]);
    match what.as_str() {
        "insert" => {
            assert_eq!(old, ["", ""], "{change:?}");
            (None, Some(new))
        }
        "update" => (Some(old), Some(new)),
        "delete" => {
            assert_eq!(new, old, "{change:?}: a deleted row is as it was");
            (Some(old), None)
        }
        _ => panic!("{change:?}"),
    }
}

/// Compares what the topology has noted of a table with the log of the table; returns the number of logged changes.
fn compare(session: &mut Session, table: &str, context: &str) -> usize {
    session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ").unwrap();
    let logged = rows(
        session,
        &format!("SELECT commit_cts, id, v, old_id, old_v, change_type FROM CHANGES({table}) ORDER BY 1, 2"),
    );
    let noted = |form: &str, columns: &str| {
        format!(
            "SELECT commit_cts, {columns} FROM CHANGES({table}_{form}) WHERE change_type = 'insert' ORDER BY commit_cts"
        )
    };
    let at_commit = rows(session, &(noted("commit", "id, v, was_id, was_v, what") + ", id"));
    let each_row = rows(session, &(noted("row", "id, v, was_id, was_v, what") + ", number"));
    let plain = rows(session, &(noted("plain", "id, v") + ", number"));
    session.execute("COMMIT").unwrap();
    assert_eq!(at_commit, logged, "{context}: {table} at the commit");
    let written: Vec<&[String]> =
        each_row.iter().filter(|change| change[5] != "delete").map(|change| &change[..3]).collect();
    assert_eq!(
        written,
        plain.iter().map(|row| &row[..]).collect::<Vec<_>>(),
        "{context}: {table} without deletes"
    );
    // Changes of a key in a transaction follow each other, and make the logged one.
    let mut changed: BTreeMap<(&str, &str), (Shown, Shown)> = BTreeMap::new();
    for change in &each_row {
        let (old, new) = before_and_behind(&change[1..]);
        let key = (change[0].as_str(), change[1].as_str());
        match changed.get_mut(&key) {
            None => drop(changed.insert(key, (old, new))),
            Some((_, last)) => {
                assert_eq!(*last, old, "{context}: {table}: {change:?} follows the change before");
                *last = new;
            }
        }
    }
    changed.retain(|_, (old, new)| old.is_some() || new.is_some());
    let logged_rows = logged
        .iter()
        .map(|change| ((change[0].as_str(), change[1].as_str()), before_and_behind(&change[1..])));
    assert_eq!(changed, logged_rows.collect(), "{context}: {table} by each row");
    logged.len()
}

/// Opens a database, or opens it again.
fn open(directory: &Path) -> (Database, Session) {
    let database = Database::open(directory, Options::default()).unwrap();
    let session = database.session().unwrap();
    (database, session)
}

#[test]
fn changes_inside_a_topology_are_those_of_the_log() {
    let mut random = Random(11);
    for (boundary, threads) in
        [("EACH ROW", 1), ("EVERY 7 ROWS", 1), ("EVERY 40 ROWS", 2), ("EVERY 300 ROWS", 2)]
    {
        let directory = tempfile::tempdir().unwrap();
        let (context, mut aborts) = (format!("{boundary}, {threads} threads"), 0);
        for round in 0..4 {
            let (database, mut session) = open(directory.path());
            if round == 0 {
                create(&mut session, boundary, threads);
            }
            if round == 3 {
                wait_for_end(&mut session, "inside");
            } else {
                std::thread::sleep(std::time::Duration::from_millis(random.below(60) as u64));
            }
            let shown = rows(&mut session, "SELECT aborts FROM entresol.topologies WHERE name = 'inside'");
            aborts += shown[0][0].parse::<u64>().unwrap();
            let changes: Vec<usize> =
                TABLES.iter().map(|table| compare(&mut session, table, &context)).collect();
            if round == 3 {
                let is_whole = boundary != "EVERY 300 ROWS";
                assert!(changes.iter().all(|changes| *changes > 20) || !is_whole, "{context}: {changes:?}");
                let inside = "SELECT count(*) FROM CHANGES(t)";
                let count = rows(&mut session, inside)[0][0].clone();
                wait_for(&mut session, "SELECT count(*) FROM logged", &count);
                let differ = "SELECT count(*) FROM (SELECT * FROM logged EXCEPT
                    SELECT commit_cts, id, v, old_id, old_v, change_type FROM CHANGES(t)) d";
                assert_eq!(rows(&mut session, differ), [["0"]], "{context}");
                // No transaction with more deletes is there.
                let most = "SELECT coalesce(max(n), 0) <= 2 FROM (SELECT count(*) AS n FROM logged WHERE what = 'delete' GROUP BY cts) d";
                assert_eq!(rows(&mut session, most), [["true"]], "{context}");
                assert!(aborts > 0 || boundary != "EVERY 7 ROWS", "{context}");
                assert!(database.check(|_| {}).unwrap().problems.is_empty());
            }
            if round == 1 {
                drop(session);
                database.close().unwrap();
            }
        }
    }
}

/// A table that follows the changes of another one in the same topology equals it at each commit.
#[test]
fn a_table_that_follows_another_one_equals_it() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    let copies = ["ROW", "COMMIT"].map(|each| {
        session.execute(&format!("CREATE TABLE copy_{each} (id INT PRIMARY KEY, v INT)")).unwrap();
        format!(
            "MERGE INTO copy_{each} AS k USING CHANGES(t) FOR EACH {each} AS c ON k.id = c.id
                WHEN MATCHED AND c.change_type = 'delete' THEN DELETE
                WHEN MATCHED THEN UPDATE SET v = k.v + c.v - c.old_v
                WHEN NOT MATCHED AND c.change_type = 'insert' THEN INSERT (id, v) VALUES (c.id, c.v)"
        )
    });
    session
        .execute(&format!(
            "{LINES}; CREATE TABLE t (id INT PRIMARY KEY, v INT);
             CREATE TABLE sums (id INT PRIMARY KEY, v INT); CREATE TABLE merged (id INT PRIMARY KEY, v INT);
             CREATE TOPOLOGY x COMMIT EVERY 11 ROWS AS ({WRITERS}; {})",
            copies.join("; ")
        ))
        .unwrap();
    let mut compared = 0;
    while compared < 200 {
        let ended = rows(&mut session, "SELECT state FROM entresol.topologies") == [["ended"]];
        session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ").unwrap();
        let table = rows(&mut session, "SELECT * FROM t ORDER BY id");
        for each in ["row", "commit"] {
            assert_eq!(rows(&mut session, &format!("SELECT * FROM copy_{each} ORDER BY id")), table);
        }
        session.execute("COMMIT").unwrap();
        compared += 1;
        if ended {
            assert!(table.len() > 20, "{table:?}");
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    wait_for_end(&mut session, "x");
}

const NUMBERS: &str =
    "CREATE SOURCE number (n INT NOT NULL) WITH (connector = 'generator', rows = 40, n.cardinality = 4);
    CREATE TABLE t (n INT PRIMARY KEY, many INT)";

/// Steps that count numbers in `t`, and delete each third count.
const COUNTS: &str = "MERGE INTO t USING number r ON t.n = r.n WHEN MATCHED AND t.many = 2 THEN DELETE
        WHEN MATCHED THEN UPDATE SET many = t.many + 1 WHEN NOT MATCHED THEN INSERT VALUES (r.n, 1)";

/// Runs a topology that counts, with these steps behind.
fn run(steps: &str, tables: &str) -> (Database, Session) {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(&format!("{NUMBERS}; {tables}; CREATE TOPOLOGY x COMMIT EACH ROW AS ({COUNTS}; {steps})"))
        .unwrap();
    wait_for_end(&mut session, "x");
    (database, session)
}

#[test]
fn all_columns_are_those_of_the_log() {
    let wide = "(n INT, many INT, old_n INT, old_many INT, change_type VARCHAR, commit_cts BIGINT)";
    let (_database, mut session) = run(
        "INSERT INTO inside SELECT * FROM CHANGES(t) FOR EACH ROW",
        &format!(
            "ALTER TABLE t SET (changes = '1 day'); CREATE TABLE inside {wide}; CREATE TABLE outside {wide};
                  CREATE TOPOLOGY following AS (INSERT INTO outside SELECT * FROM CHANGES(t))"
        ),
    );
    wait_for(&mut session, "SELECT count(*) FROM outside", "40");
    let of = |table: &str| {
        format!("SELECT n, many, old_n, old_many, change_type FROM {table} ORDER BY 1, 2, 3, 4, 5")
    };
    let inside = rows(&mut session, &of("inside"));
    assert_eq!(inside, rows(&mut session, &of("outside")));
    let deletes = inside.iter().filter(|change| change[4] == "delete").count();
    assert!(deletes > 5 && inside.len() == 40, "{inside:?}");
    // A transaction has no timestamp before it commits.
    assert_eq!(rows(&mut session, "SELECT count(commit_cts) FROM inside"), [["0"]]);
    assert_eq!(rows(&mut session, "SELECT count(DISTINCT commit_cts) FROM outside"), [["40"]]);
}

/// Deleted rows come where something tells them from others.
#[test]
fn statements_that_read_the_columns_of_the_table_get_no_deleted_rows() {
    for (query, deletes) in [
        ("SELECT n, many FROM CHANGES(t)", false),
        ("SELECT n, many FROM CHANGES(t) FOR EACH ROW", false),
        // Nothing depends on the other columns here.
        ("SELECT n, many FROM (SELECT * FROM CHANGES(t) FOR EACH COMMIT) c WHERE many > 0", false),
        ("SELECT n, many FROM (SELECT n, many, change_type FROM CHANGES(t)) c", true),
        ("SELECT n, many FROM CHANGES(t) FOR EACH ROW WHERE change_type IS NOT NULL", true),
        ("SELECT n, many FROM CHANGES(t) FOR EACH ROW AS c WHERE c.old_n > 0 OR c.many > 0", true),
        ("SELECT n, coalesce(many, old_many) FROM CHANGES(t)", true),
    ] {
        let (_database, mut session) =
            run(&format!("INSERT INTO seen {query}"), "CREATE TABLE seen (n INT, many INT)");
        let found = rows(&mut session, "SELECT count(*) FROM seen")[0][0].clone();
        assert_eq!(found == "40", deletes, "{query}: {found}");
        assert!(found.parse::<u32>().unwrap() > 20, "{query}: {found}");
    }
}

/// Names that a table has are those of its columns.
#[test]
fn a_column_of_the_table_hides_another_one_of_its_name() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(
            "CREATE SOURCE number (n INT NOT NULL) WITH (connector = 'generator', rows = 9, n.cardinality = 3);
             CREATE TABLE t (n INT PRIMARY KEY, change_type VARCHAR, old_n INT);
             CREATE TABLE seen (n INT, what VARCHAR, old_n INT, old_what VARCHAR);
             CREATE TOPOLOGY x COMMIT EACH ROW AS (
                 INSERT INTO t SELECT n, 'written', 7 FROM number ON CONFLICT (n) DO UPDATE SET change_type = EXCLUDED.change_type, old_n = EXCLUDED.old_n;
                 INSERT INTO seen SELECT n, change_type, old_n, old_change_type FROM CHANGES(t))",
        )
        .unwrap();
    wait_for_end(&mut session, "x");
    let seen =
        "SELECT what, old_n, coalesce(old_what, 'none'), count(*) FROM seen GROUP BY 1, 2, 3 ORDER BY 4";
    let found = rows(&mut session, seen);
    assert_eq!(
        found.iter().map(|row| &row[..3]).collect::<Vec<_>>(),
        [["written", "7", "none"], ["written", "7", "written"]]
    );
}

/// A condition has the changes of the transaction: one of each key.
#[test]
fn conditions_read_rows_before_and_deleted_rows() {
    for (condition, aborts) in [
        ("(SELECT count(*) FROM CHANGES(t) WHERE change_type = 'delete') > 0", true),
        ("EXISTS (SELECT 1 FROM CHANGES(t) WHERE many = 2 AND old_many = 2)", true),
        ("(SELECT max(c.many - c.old_many) FROM CHANGES(t) c JOIN t ON t.n = c.n) > 1", false),
        ("(SELECT count(*) FROM CHANGES(t) WHERE many = 0 OR many > 2) > 0", false),
        // Without other columns there are no deleted rows.
        ("(SELECT count(*) FROM CHANGES(t)) = 0", true),
        ("(SELECT count(*) FROM (SELECT * FROM CHANGES(t)) c) = 0", true),
        ("(SELECT count(*) FROM CHANGES(t) WHERE change_type IS NOT NULL) = 0", false),
        ("EXISTS (SELECT 1 FROM CHANGES(t) WHERE commit_cts IS NOT NULL)", false),
    ] {
        let database = Database::volatile(Options::default()).unwrap();
        let mut session = database.session().unwrap();
        session
            .execute(&format!(
                "{NUMBERS}; CREATE TOPOLOGY x COMMIT EACH ROW ON ERROR ABORT AS ({COUNTS}; ABORT WHEN {condition})"
            ))
            .unwrap();
        wait_for_end(&mut session, "x");
        // The end of the source is a transaction without changes.
        let found = rows(&mut session, "SELECT aborts > 1 FROM entresol.topologies");
        assert_eq!(found[0][0], aborts.to_string(), "{condition}");
    }
}

/// A row that a step refuses changes nothing, and no change of it flows.
#[test]
fn rows_that_are_left_out_do_not_flow() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(
            "CREATE SOURCE number (n INT NOT NULL, v INT) WITH (connector = 'generator', rows = 100, n.cardinality = 6, v.cardinality = 9);
             CREATE TABLE t (n INT PRIMARY KEY, v INT CHECK (v <> 3)) WITH (changes = '1 day');
             CREATE TABLE seen (number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, n INT, v INT, old_v INT, what VARCHAR);
             CREATE TOPOLOGY x COMMIT EVERY 30 ROWS ON ERROR SKIP ROW AS (
                 INSERT INTO t SELECT n, v FROM number ON CONFLICT (n) DO UPDATE SET v = EXCLUDED.v;
                 INSERT INTO seen (n, v, old_v, what) SELECT n, v, old_v, change_type FROM CHANGES(t) FOR EACH ROW)",
        )
        .unwrap();
    wait_for_end(&mut session, "x");
    let found = rows(
        &mut session,
        "SELECT count(*) FILTER (WHERE v = 3), count(*) FILTER (WHERE old_v IS DISTINCT FROM lag), count(*) + (SELECT rejected FROM entresol.topologies)
         FROM (SELECT *, lag(v) OVER (PARTITION BY n ORDER BY number) AS lag FROM seen) s",
    );
    assert_eq!(found, [["0", "0", "100"]]);
    let last = "SELECT count(*) FROM t JOIN (SELECT DISTINCT ON (n) n, v FROM seen ORDER BY n, number DESC) s ON s.n = t.n AND s.v = t.v";
    assert_eq!(rows(&mut session, last), [["6"]]);
}

/// Rows before are those of the transaction before, which commits while the next one is computed.
#[test]
fn changes_flow_while_the_transaction_before_commits() {
    let directory = tempfile::tempdir().unwrap();
    let (database, mut session) = open(directory.path());
    session
        .execute(
            "CREATE SOURCE number (n INT NOT NULL, v INT) WITH (connector = 'generator', rows = 9000, n.cardinality = 200, v.cardinality = 1000);
             CREATE TABLE t (n INT PRIMARY KEY, v INT) WITH (changes = '1 day');
             CREATE TABLE seen (place BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, n INT, v INT, old_v INT);
             CREATE TABLE at_commit (n INT, v INT, old_v INT, change_type VARCHAR);
             CREATE TOPOLOGY x COMMIT EVERY 300 ROWS WITH (parallelism = '2') AS (
                 INSERT INTO t SELECT n, v FROM number ON CONFLICT (n) DO UPDATE SET v = EXCLUDED.v;
                 INSERT INTO seen (n, v, old_v) SELECT n, v, old_v FROM CHANGES(t) FOR EACH ROW;
                 INSERT INTO at_commit SELECT n, v, old_v, change_type FROM CHANGES(t) FOR EACH COMMIT)",
        )
        .unwrap();
    let plan: Vec<String> = rows(&mut session, "EXPLAIN TOPOLOGY x").into_iter().flatten().collect();
    assert!(plan.iter().any(|line| line.contains("commit beside the next transaction")), "{plan:#?}");
    wait_for_end(&mut session, "x");
    let wrong = "SELECT count(*), count(*) FILTER (WHERE old_v IS DISTINCT FROM before)
        FROM (SELECT *, lag(v) OVER (PARTITION BY n ORDER BY place) AS before FROM seen) s";
    assert_eq!(rows(&mut session, wrong), [["9000", "0"]]);
    for (one, other) in [("at_commit", "CHANGES(t)"), ("CHANGES(t)", "at_commit")] {
        let columns = "SELECT n, v, old_v, change_type FROM";
        let differ = format!("SELECT count(*) FROM ({columns} {one} EXCEPT ALL {columns} {other}) d");
        assert_eq!(rows(&mut session, &differ), [["0"]], "{one} and {other}");
    }
    assert!(database.check(|_| {}).unwrap().problems.is_empty());
}

/// A topology goes on with the columns that it knows when its table gets another one.
#[test]
fn a_table_gets_a_column_while_its_changes_flow() {
    let directory = tempfile::tempdir().unwrap();
    let (database, mut session) = open(directory.path());
    session
        .execute(
            "CREATE SOURCE number (n INT NOT NULL) WITH (connector = 'generator', rows = 400, rows_per_second = 800, n.cardinality = 5);
             CREATE TABLE t (n INT PRIMARY KEY, many INT);
             CREATE TABLE seen (number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, n INT, many INT, old_many INT);
             CREATE TABLE at_commit (number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, n INT, many INT, old_many INT);
             CREATE TOPOLOGY x COMMIT EVERY 5 ROWS AS (
                 INSERT INTO t SELECT n, 1 FROM number ON CONFLICT (n) DO UPDATE SET many = t.many + 1;
                 INSERT INTO seen (n, many, old_many) SELECT n, many, old_many FROM CHANGES(t) FOR EACH ROW;
                 INSERT INTO at_commit (n, many, old_many) SELECT n, many, old_many FROM CHANGES(t) FOR EACH COMMIT;
                 ABORT WHEN (SELECT max(many - old_many) FROM CHANGES(t)) > 5)",
        )
        .unwrap();
    wait_for(&mut session, "SELECT count(*) > 20 FROM seen", "true");
    session.execute("ALTER TABLE t ADD COLUMN more INT DEFAULT 3").unwrap();
    wait_for_end(&mut session, "x");
    assert_eq!(
        rows(&mut session, "SELECT count(*), sum(many - coalesce(old_many, 0))::bigint FROM seen"),
        [["400", "400"]]
    );
    assert_eq!(
        rows(&mut session, "SELECT sum(many - coalesce(old_many, 0))::bigint FROM at_commit"),
        [["400"]]
    );
    assert_eq!(rows(&mut session, "SELECT sum(many)::bigint, min(more) FROM t"), [["400", "3"]]);
    drop(session);
    database.close().unwrap();
    drop(database);
    let (_database, mut session) = open(directory.path());
    wait_for_end(&mut session, "x");
}

#[test]
fn what_changes_cannot_be_read_of_is_refused() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(&format!(
            "{NUMBERS}; CREATE TABLE keyless (n INT); CREATE TABLE seen (n INT, what VARCHAR); CREATE TABLE two (n INT, many INT)"
        ))
        .unwrap();
    for (steps, state, expected) in [
        (
            "INSERT INTO keyless SELECT n FROM number; INSERT INTO seen SELECT n, change_type FROM CHANGES(keyless)",
            "0A000",
            "CHANGES of table keyless, which has no key",
        ),
        (
            "INSERT INTO t SELECT n, 1 FROM number; INSERT INTO two SELECT * FROM CHANGES(t)",
            "42601",
            "INSERT INTO two has 2 columns, its query has 6",
        ),
        (
            "INSERT INTO t SELECT n, old_many + 1 FROM CHANGES(t) FOR EACH ROW",
            "22023",
            "a step writes the table whose changes it reads",
        ),
        (
            "INSERT INTO t SELECT n, 1 FROM number; INSERT INTO seen SELECT n, kind FROM CHANGES(t)",
            "42703",
            "kind",
        ),
    ] {
        let error = session.execute(&format!("CREATE TOPOLOGY x AS ({steps})")).unwrap_err();
        assert!(error.to_string().contains(expected), "{steps}: {error}");
        assert_eq!(sqlstate(&error), state, "{steps}: {error}");
    }
}
