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
    let bad = rows(&mut session, "SELECT source, line, reason, record, topology, byte_offset FROM bad_lines");
    assert_eq!((&*bad[0][0], &*bad[0][1], &*bad[0][3]), ("lines", "3", "x,y"));
    assert_eq!(bad[0][4..], ["follow", "15"]);
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

/// INCLUDE tells where a row comes from: its file, the place and the line in it, and when it was read.
#[test]
fn rows_say_where_they_come_from() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path();
    append(&folder.join("a.csv"), "id,word\n1,one\nx,y\n2,\"two\nlines\"\n3,three\n");
    append(&folder.join("b.csv"), "word,id\nfour,4\n");
    let database = Database::open(folder.join("db"), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(&format!(
            "CREATE SOURCE line (id INT NOT NULL, word VARCHAR, WATERMARK FOR read_at AS read_at)
                 INCLUDE PARTITION AS file INCLUDE OFFSET INCLUDE LINE AS line INCLUDE TIMESTAMP AS read_at
                 WITH (connector = 'file', path = '{}/*.csv', tail = true, rejects = 'bad') FORMAT PLAIN ENCODE CSV;
             CREATE SOURCE number (n INT NOT NULL) INCLUDE OFFSET AS number INCLUDE PARTITION AS part INCLUDE LINE
                 WITH (connector = 'generator', rows = 3);
             CREATE TABLE lines (id INT PRIMARY KEY, file TEXT, place BIGINT, line BIGINT, read_at TIMESTAMPTZ);
             CREATE TABLE numbers (number BIGINT PRIMARY KEY, part TEXT, line BIGINT);
             CREATE TOPOLOGY reading AS (
                 INSERT INTO lines SELECT id, file, \"offset\", line, read_at FROM line;
                 INSERT INTO numbers SELECT number, part, line FROM number)",
            folder.display()
        ))
        .unwrap();
    wait_for(&mut session, "SELECT count(*) FROM lines", "4");
    let (a, b) = (folder.join("a.csv").display().to_string(), folder.join("b.csv").display().to_string());
    let found = rows(&mut session, "SELECT id, file, place, line FROM lines ORDER BY id");
    assert_eq!(found[0], ["1", a.as_str(), "14", "2"]);
    assert_eq!(found[1], ["2", a.as_str(), "32", "5"]);
    assert_eq!(found[2], ["3", a.as_str(), "40", "6"]);
    assert_eq!(found[3], ["4", b.as_str(), "15", "2"]);
    let recent = "SELECT count(*) FROM lines WHERE read_at BETWEEN now() - INTERVAL '1 hour' AND now()";
    assert_eq!(rows(&mut session, recent), [["4"]]);
    assert_eq!(
        rows(&mut session, "SELECT * FROM numbers ORDER BY number"),
        [["1", "", ""], ["2", "", ""], ["3", "", ""]]
    );
    let columns: Vec<String> =
        rows(&mut session, "DESCRIBE line").into_iter().map(|mut row| row.remove(0)).collect();
    assert_eq!(columns, ["id", "word", "file", "offset", "line", "read_at"]);
    drop(session);
    database.close().unwrap();
    drop(database);
    // A place is one of the file after a restart too.
    append(&folder.join("b.csv"), "five,5\n");
    let database = Database::open(folder.join("db"), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    wait_for(&mut session, "SELECT count(*) FROM lines", "5");
    assert_eq!(
        rows(&mut session, "SELECT file, place, line FROM lines WHERE id = 5"),
        [[b.as_str(), "22", "3"]]
    );
    for (clause, expected) in [
        ("INCLUDE KEY", "INCLUDE KEY: records have PARTITION"),
        ("INCLUDE OFFSET AS id", "column \"id\" specified more than once"),
    ] {
        let sql = format!("CREATE SOURCE s (id INT) {clause} WITH (connector = 'file', path = 'a.csv')");
        let error = session.execute(&sql).unwrap_err().to_string();
        assert!(error.contains(expected), "{clause}: {error}");
    }
}

#[test]
fn plain_lines_are_rows_of_one_string() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    append(
        &file("a.log"),
        "2026-01-01T10:00:00 INFO  started, \"x\" \r\n\n2026-01-01T10:00:01 WARN {\"n\": 1}\n",
    );
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(&format!(
            "CREATE SOURCE log (line VARCHAR NOT NULL, at TIMESTAMP NOT NULL AS split_part(line, ' ', 1)::timestamp,
                 level VARCHAR AS split_part(line, ' ', 2), WATERMARK FOR at AS at)
                 INCLUDE PARTITION AS file
                 WITH (connector = 'file', path = '{}', tail = true, rejects = 'bad') FORMAT PLAIN ENCODE TEXT;
             CREATE TABLE logged (at TIMESTAMP, level VARCHAR, line VARCHAR);
             CREATE TOPOLOGY follow COMMIT EVERY INTERVAL '5 ms' AS (INSERT INTO logged SELECT at, level, line FROM log);
             CREATE SINK shouted AS SELECT upper(line) AS line FROM log
                 WITH (connector = 'file', path = '{}') FORMAT PLAIN ENCODE TEXT",
            file("*.log").display(),
            file("shouted.txt").display()
        ))
        .unwrap();
    wait_for(&mut session, "SELECT count(*) FROM logged", "2");
    append(&file("a.log"), "2026-01-01T10:00:02 INFO end\n");
    wait_for(&mut session, "SELECT count(*) FROM logged", "3");
    assert_eq!(
        rows(&mut session, "SELECT * FROM logged ORDER BY at"),
        [
            ["2026-01-01T10:00:00", "INFO", "2026-01-01T10:00:00 INFO  started, \"x\" "],
            ["2026-01-01T10:00:01", "WARN", "2026-01-01T10:00:01 WARN {\"n\": 1}"],
            ["2026-01-01T10:00:02", "INFO", "2026-01-01T10:00:02 INFO end"]
        ]
    );
    let bad = rows(&mut session, "SELECT line, record, topology FROM bad ORDER BY topology");
    assert_eq!(bad[0][0], "2");
    assert!(bad[0][1].starts_with("line = , file = "), "{bad:?}");
    let shouted = "2026-01-01T10:00:00 INFO  STARTED, \"X\" \n2026-01-01T10:00:01 WARN {\"N\": 1}\n2026-01-01T10:00:02 INFO END\n";
    let begin = std::time::Instant::now();
    while std::fs::read_to_string(file("shouted.txt")).unwrap_or_default() != shouted {
        assert!(begin.elapsed() < super::PATIENCE, "{:?}", std::fs::read_to_string(file("shouted.txt")));
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let path = file("x").display().to_string();
    for (statement, expected) in [
        (
            format!(
                "CREATE SOURCE s (a VARCHAR, b VARCHAR) WITH (connector = 'file', path = '{path}') FORMAT PLAIN ENCODE TEXT"
            ),
            "its rows are one VARCHAR, not VARCHAR, VARCHAR",
        ),
        (
            format!(
                "CREATE SOURCE s (a INT) WITH (connector = 'file', path = '{path}') FORMAT PLAIN ENCODE TEXT"
            ),
            "its rows are one VARCHAR, not INT",
        ),
        (
            format!(
                "CREATE SOURCE s (a VARCHAR) WITH (connector = 'file', path = '{path}') FORMAT UPSERT ENCODE TEXT"
            ),
            "ENCODE other than JSON",
        ),
        (
            format!(
                "CREATE SINK s AS SELECT at, line FROM log WITH (connector = 'file', path = '{path}') FORMAT PLAIN ENCODE TEXT"
            ),
            "its rows are one VARCHAR, not TIMESTAMP, VARCHAR",
        ),
    ] {
        let error = session.execute(&statement).err().unwrap_or_else(|| panic!("{statement} is accepted"));
        assert!(error.to_string().contains(expected), "{statement}: {error}");
    }
}
