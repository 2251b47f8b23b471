//! ALTER SOURCE ... SEEK TO: rows are read from there on, by all topologies that read the source; what has no such
//! position.

use super::{append, rows, sqlstate, wait_for, wait_for_end};
use entresol::{Database, Options, Session};

fn position(session: &mut Session, source: &str) -> String {
    let sql = format!("SELECT position FROM entresol.sources WHERE name = '{source}'");
    rows(session, &sql).swap_remove(0).swap_remove(0)
}

#[test]
fn generated_rows_are_read_again_from_a_position() {
    let directory = tempfile::tempdir().unwrap();
    let open = || Database::open(directory.path(), Options::default()).unwrap();
    {
        let database = open();
        let mut session = database.session().unwrap();
        session
            .execute(
                "CREATE SOURCE numbers (n INT NOT NULL, at TIMESTAMP NOT NULL) WITH (connector = 'generator', rows = 100, n.cardinality = 7);
                 CREATE TABLE one (n INT, at TIMESTAMP);
                 CREATE TABLE two (at TIMESTAMP PRIMARY KEY, n INT);
                 CREATE TOPOLOGY first AS (INSERT INTO one SELECT n, at FROM numbers);
                 CREATE TOPOLOGY second AS (INSERT INTO two SELECT at, n FROM numbers ON CONFLICT (at) DO UPDATE SET n = EXCLUDED.n)",
            )
            .unwrap();
        for topology in ["first", "second"] {
            wait_for_end(&mut session, topology);
        }
        assert_eq!(position(&mut session, "numbers"), "100");
        session.execute("ALTER SOURCE numbers SEEK TO 90").unwrap();
        assert_eq!(
            rows(&mut session, "SELECT topology, tuples, position FROM entresol.sources ORDER BY topology"),
            [["first", "100", "90"], ["second", "100", "90"]]
        );
        // Left as by a crash; it is read on there when the database is opened.
    }
    let database = open();
    let mut session = database.session().unwrap();
    wait_for(&mut session, "SELECT count(*) FROM one", "110");
    wait_for(&mut session, "SELECT min(position) FROM entresol.sources", "100");
    wait_for_end(&mut session, "first");
    wait_for_end(&mut session, "second");
    assert_eq!(rows(&mut session, "SELECT count(*), count(DISTINCT at) FROM one"), [["110", "100"]]);
    assert_eq!(rows(&mut session, "SELECT count(*) FROM two"), [["100"]]);
    session.execute("ALTER SOURCE numbers SEEK TO BEGINNING; ALTER TOPOLOGY first RESUME").unwrap();
    wait_for(&mut session, "SELECT count(*) FROM one", "210");
    assert_eq!(
        rows(
            &mut session,
            "SELECT min(n) = 2, max(n) = 3 FROM (SELECT at, count(*) AS n FROM one GROUP BY at) c"
        ),
        [["true", "true"]]
    );
}

#[test]
fn files_are_read_again_behind_a_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lines.csv");
    append(&path, "id,name\n1,one\n2,\"two\nlines\"\n3,three\n");
    append(&directory.path().join("part-1.csv"), "id,name\n1,one\n");
    append(&directory.path().join("part-2.csv"), "id,name\n2,two\n3,three\n");
    let database = Database::open(directory.path().join("db"), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(&format!(
            "CREATE SOURCE lines (id INT, name VARCHAR) INCLUDE OFFSET AS behind WITH (connector = 'file', path = '{0}/lines.csv', tail = true);
             CREATE SOURCE parts (id INT, name VARCHAR) WITH (connector = 'file', path = '{0}/part-*.csv');
             CREATE TABLE seen (id INT, name VARCHAR, behind BIGINT);
             CREATE TABLE seen_parts (id INT, name VARCHAR);
             CREATE TOPOLOGY following COMMIT EACH ROW AS (INSERT INTO seen SELECT id, name, behind FROM lines);
             CREATE TOPOLOGY once AS (INSERT INTO seen_parts SELECT id, name FROM parts)",
            directory.path().display()
        ))
        .unwrap();
    wait_for(&mut session, "SELECT count(*) FROM seen", "3");
    let error = session.execute("ALTER SOURCE lines SEEK TO BEGINNING").unwrap_err();
    assert_eq!(sqlstate(&error), "55006");
    assert!(error.to_string().contains("ALTER TOPOLOGY following PAUSE before"), "{error}");
    session.execute("ALTER TOPOLOGY following PAUSE").unwrap();
    let behind_two = rows(&mut session, "SELECT behind FROM seen WHERE id = 2").swap_remove(0).swap_remove(0);
    session.execute(&format!("ALTER SOURCE lines SEEK TO {behind_two}")).unwrap();
    assert_eq!(position(&mut session, "lines"), behind_two);
    session.execute("ALTER TOPOLOGY following RESUME").unwrap();
    wait_for(&mut session, "SELECT count(*) FROM seen WHERE id = 3", "2");
    append(&path, "4,four\n");
    wait_for(&mut session, "SELECT count(*) FROM seen WHERE id = 4", "1");
    session.execute("ALTER TOPOLOGY following PAUSE; ALTER SOURCE lines SEEK TO 0").unwrap();
    session.execute("ALTER TOPOLOGY following RESUME").unwrap();
    wait_for(&mut session, "SELECT count(*) FROM seen WHERE id = 4", "2");
    assert_eq!(
        rows(&mut session, "SELECT id, count(*) FROM seen GROUP BY id ORDER BY id"),
        [["1", "2"], ["2", "2"], ["3", "3"], ["4", "2"]]
    );
    session.execute("ALTER TOPOLOGY following PAUSE").unwrap();
    for (offset, expected) in [
        ("3", "is not behind a line"),
        // Within quotes.
        ("21", "is not behind a line"),
        ("1000", "which has"),
    ] {
        let error = session.execute(&format!("ALTER SOURCE lines SEEK TO {offset}")).unwrap_err();
        assert!(error.to_string().contains(expected), "{offset}: {error}");
        assert_eq!(sqlstate(&error), "22003");
    }
    wait_for_end(&mut session, "once");
    let shown = position(&mut session, "parts");
    assert!(shown.contains("part-1.csv: 14, ") && shown.ends_with("part-2.csv: 22"), "{shown}");
    let error = session.execute("ALTER SOURCE parts SEEK TO 8").unwrap_err().to_string();
    assert!(error.contains("of several files, each of which has its own"), "{error}");
    session.execute("ALTER SOURCE parts SEEK TO BEGINNING; ALTER TOPOLOGY once RESUME").unwrap();
    wait_for(&mut session, "SELECT count(*) FROM seen_parts", "6");
}

#[test]
fn what_has_no_position_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    append(
        &directory.path().join("changes.json"),
        "{\"key\": {\"id\": 1}, \"value\": {\"id\": 1, \"a\": 2}}\n",
    );
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(&format!(
            "CREATE SOURCE ticker (id INT) WITH (connector = 'tcp', listen = '127.0.0.1:0');
             CREATE SOURCE changing (id INT PRIMARY KEY, a INT) WITH (connector = 'file', path = '{}/changes.json') FORMAT UPSERT ENCODE JSON;
             CREATE SOURCE numbers (n INT) WITH (connector = 'generator', rows = 10);
             CREATE SOURCE unused (n INT) WITH (connector = 'generator', rows = 10);
             CREATE TABLE seen (id INT);
             CREATE TABLE rows_there (id INT PRIMARY KEY, a INT);
             CREATE TOPOLOGY listening AS (INSERT INTO seen SELECT id FROM ticker);
             CREATE TOPOLOGY keyed AS (INSERT INTO rows_there SELECT id, a FROM changing ON CONFLICT (id) DO UPDATE SET a = EXCLUDED.a);
             CREATE TOPOLOGY counting AS (INSERT INTO seen SELECT n FROM numbers);
             ALTER TOPOLOGY listening PAUSE",
            directory.path().display()
        ))
        .unwrap();
    for topology in ["keyed", "counting"] {
        wait_for_end(&mut session, topology);
    }
    for (statement, expected) in [
        ("ALTER SOURCE ticker SEEK TO BEGINNING", "of connections, which cannot be read again"),
        ("ALTER SOURCE changing SEEK TO BEGINNING", "whose rows change"),
        ("ALTER SOURCE numbers SEEK TO 11", "which has 10 rows"),
        ("ALTER SOURCE unused SEEK TO 1", "no topology reads source"),
        ("ALTER SOURCE nothing SEEK TO 1", "does not exist"),
        ("ALTER SOURCE numbers SEEK TO -1", "is not negative"),
        ("ALTER TOPOLOGY counting SEEK TO 1", "ALTER of a topology other than"),
    ] {
        let error = session.execute(statement).unwrap_err().to_string();
        assert!(error.contains(expected), "{statement}: {error}");
    }
}
