//! Sources of several files and of JSON lines.

use super::{append, rows, wait_for, wait_for_end};
use entresol::{Database, Options};

#[test]
fn files_of_a_pattern_are_read_once_each_over_restarts() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    append(&file("2026-02.csv"), "id,value\n3,3.5\n");
    append(&file("2026-01.csv"), "id,value\n1,1.5\n2,2.5\n");
    append(&file("notes.txt"), "no rows\n");
    let open = || Database::open(directory.path().join("db"), Options::default()).unwrap();
    let database = open();
    let mut session = database.session().unwrap();
    session
        .execute(&format!(
            "CREATE SOURCE lines (id INT NOT NULL, value DOUBLE)
                 WITH (connector = 'file', path = '{}', tail = true, rejects = 'bad_lines') FORMAT PLAIN ENCODE CSV;
             CREATE TABLE stored (id INT, value DOUBLE);
             CREATE TOPOLOGY follow COMMIT EVERY 2 ROWS OR EVERY INTERVAL '5 ms' AS (
                 INSERT INTO stored SELECT id, value FROM lines)",
            file("202?-*.csv").display()
        ))
        .unwrap();
    wait_for(&mut session, "SELECT count(*) FROM stored", "3");
    append(&file("2025-12.csv"), "id,value\n4,4.5\nx,y\n");
    append(&file("2026-02.csv"), "5,5.5\n");
    wait_for(&mut session, "SELECT count(*) FROM stored", "5");
    wait_for(&mut session, "SELECT count(*) FROM bad_lines", "1");
    let bad = rows(&mut session, "SELECT source, line, reason, record FROM bad_lines");
    assert_eq!((&*bad[0][0], &*bad[0][1], &*bad[0][3]), ("lines", "3", "x,y"));
    assert!(bad[0][2].contains("2025-12.csv: column id: 'x' is not a INT"), "{bad:?}");
    assert_eq!(rows(&mut session, "SELECT count(*) FROM streams_splits")[0], ["3"]);
    drop(session);
    database.close().unwrap();
    drop(database);
    append(&file("2026-01.csv"), "6,6.5\n");
    append(&file("2026-03.csv"), "id,value\n7,7.5\n");
    let database = open();
    let mut session = database.session().unwrap();
    wait_for(&mut session, "SELECT count(*) FROM stored", "7");
    let ids = rows(&mut session, "SELECT id FROM stored ORDER BY id");
    assert_eq!(ids.concat(), ["1", "2", "3", "4", "5", "6", "7"]);
    // One is replaced while the topology stands still.
    session.execute("ALTER TOPOLOGY follow PAUSE").unwrap();
    std::fs::write(file("2026-03.csv"), "id,value\n70,7.5\n71,7.5\n").unwrap();
    session.execute("ALTER TOPOLOGY follow RESUME").unwrap();
    wait_for(&mut session, "SELECT state FROM entresol.topologies", "failed");
    let error = rows(&mut session, "SELECT error FROM entresol.topologies");
    assert!(error[0][0].contains("2026-03.csv: the file has other content"), "{error:?}");
    assert_eq!(rows(&mut session, "SELECT count(*) FROM stored")[0], ["7"]);
    session.execute("DROP TOPOLOGY follow").unwrap();
    assert_eq!(rows(&mut session, "SELECT count(*) FROM streams_splits")[0], ["0"]);
}

#[test]
fn json_lines_have_columns_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lines.json");
    append(
        &path,
        "{\"id\": 1, \"at\": \"2026-01-01T00:00:00\", \"price\": 19.95, \"note\": \"ä \\\"b\\\"\", \"more\": [1]}\n\
         {\"note\": null, \"id\": 2}\n\
         {\"id\": \"3\"}\n\
         \n\
         {\"id\": 4, \"price\": \"12345678.91\"}\n\
         {\"id\": 5,\n",
    );
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(&format!(
            "CREATE SOURCE lines (id INT NOT NULL, at TIMESTAMP, price DECIMAL(10,2), note VARCHAR)
                 WITH (connector = 'file', path = '{}', rejects = 'bad_lines') FORMAT PLAIN ENCODE JSON;
             CREATE TABLE stored (id INT PRIMARY KEY, at TIMESTAMP, price DECIMAL(10,2), note VARCHAR);
             CREATE TOPOLOGY follow AS (INSERT INTO stored SELECT * FROM lines)",
            path.display()
        ))
        .unwrap();
    wait_for_end(&mut session, "follow");
    assert_eq!(
        rows(&mut session, "SELECT * FROM stored ORDER BY id"),
        [["1", "2026-01-01T00:00:00", "19.95", "ä \"b\""], ["2", "", "", ""], ["4", "", "12345678.91", ""]]
    );
    let bad = rows(&mut session, "SELECT line, record, reason FROM bad_lines ORDER BY line");
    assert_eq!(bad[0], ["3", "{\"id\": \"3\"}", "column id: expected INT, found the string \"3\""]);
    assert_eq!(bad[1][..2], ["6", "{\"id\": 5,"]);
    for (options, expected) in [
        (
            "connector = 'file', path = 'a', delimiter = ';') FORMAT PLAIN ENCODE JSON",
            "unrecognized option \"delimiter\"",
        ),
        (
            "connector = 'generator') FORMAT PLAIN ENCODE JSON",
            "FORMAT of a source with the connector \"generator\"",
        ),
        ("connector = 'file', path = '*/a.csv')", "wildcards in the folder *"),
    ] {
        let error =
            session.execute(&format!("CREATE SOURCE s (a INT) WITH ({options}")).unwrap_err().to_string();
        assert!(error.contains(expected), "{options}: {error}");
    }
}
