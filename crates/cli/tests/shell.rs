//! `entresol shell`: -c, -f, standard input, formats, errors.
#![allow(clippy::unwrap_used)]

mod support;

use support::{entresol, entresol_with_input, stderr, stdout, succeed};

const SETUP: &str = "CREATE TABLE meter (id INT PRIMARY KEY, place VARCHAR, kwh DOUBLE);
                     INSERT INTO meter VALUES (1, 'cellar', 17.5), (2, NULL, -3.25), (3, 'a,\"b\"', 0.0)";

fn database() -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db").display().to_string();
    succeed(&["shell", &path, "-c", SETUP]);
    (dir, path)
}

#[test]
fn statements_run_in_order_and_are_kept() {
    let (_dir, path) = database();
    let output = succeed(&[
        "shell",
        &path,
        "-c",
        "DELETE FROM meter WHERE id = 3",
        "-c",
        "SELECT * FROM meter ORDER BY id",
    ]);
    let expected = "DELETE 1
+----+--------+-------+
| id | place  | kwh   |
+----+--------+-------+
| 1  | cellar | 17.5  |
| 2  | NULL   | -3.25 |
+----+--------+-------+
(2 rows)
";
    assert_eq!(output, expected);
}

#[test]
fn csv_and_json() {
    let (_dir, path) = database();
    let select = "SELECT id, place, kwh FROM meter ORDER BY id";
    let csv = succeed(&["shell", &path, "--format", "csv", "-c", select]);
    assert_eq!(csv, "id,place,kwh\n1,cellar,17.5\n2,,-3.25\n3,\"a,\"\"b\"\"\",0.0\n");
    let json = succeed(&["shell", &path, "--format", "json", "-c", select]);
    let rows: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(rows[0], serde_json::json!({"id": 1, "place": "cellar", "kwh": 17.5}));
    assert_eq!(rows[1]["place"], serde_json::Value::Null);
    assert_eq!(rows.as_array().unwrap().len(), 3);
    let empty = succeed(&["shell", &path, "--format", "json", "-c", "SELECT * FROM meter WHERE id = 99"]);
    assert_eq!(empty, "[]\n");
}

#[test]
fn files_and_standard_input() {
    let (dir, path) = database();
    let file = dir.path().join("query.sql");
    std::fs::write(
        &file,
        "-- a comment; with a semicolon\nSELECT count(*) AS n\nFROM meter;\nSELECT 'a;b' AS t",
    )
    .unwrap();
    let output = succeed(&["shell", &path, "--format", "csv", "-f", file.to_str().unwrap()]);
    assert_eq!(output, "n\n3\nt\na;b\n");

    let input = "\\format csv\nBEGIN;\nUPDATE meter SET kwh = 1\nWHERE id = 1;\nROLLBACK;\nSELECT kwh FROM meter WHERE id = 1;\n\\q\nSELECT 1;";
    let output = entresol_with_input(&["shell", &path], input);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stdout(&output), "kwh\n17.5\n");
}

#[test]
fn the_first_error_ends_with_status_1_and_says_where() {
    let (dir, path) = database();
    let output = entresol(&["shell", &path, "-c", "SELECT 1; SELECT * FROM nothing; SELECT 2"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("| 1 "), "{}", stdout(&output));
    assert!(!stdout(&output).contains("| 2 "), "{}", stdout(&output));
    assert!(
        stderr(&output).starts_with("error: ") && stderr(&output).contains("nothing"),
        "{}",
        stderr(&output)
    );

    let file = dir.path().join("bad.sql");
    std::fs::write(&file, "SELECT 1;\n\nSELEC 2;\n").unwrap();
    let output = entresol(&["shell", &path, "-f", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("bad.sql, line 3: "), "{}", stderr(&output));

    let output = entresol(&["shell", &path, "-f", "/nowhere/at/all.sql"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("cannot read /nowhere/at/all.sql"), "{}", stderr(&output));

    let output = entresol_with_input(&["shell", &path], "SELECT 1;\n\\nonsense\n");
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("line 2: unknown command '\\nonsense'"), "{}", stderr(&output));

    assert_eq!(entresol(&["shell"]).status.code(), Some(2));
    assert_eq!(entresol(&["shell", &path, "--format", "xml"]).status.code(), Some(2));
    assert_eq!(entresol(&["shell", &path, "--durability", "maybe"]).status.code(), Some(2));
}

#[test]
fn a_directory_that_is_none_is_a_clear_error() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "no database").unwrap();
    let output = entresol(&["shell", file.to_str().unwrap(), "-c", "SELECT 1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).starts_with("error: "), "{}", stderr(&output));
    assert!(!stderr(&output).contains("panicked"), "{}", stderr(&output));
}

#[test]
fn meta_commands_describe() {
    let (_dir, path) = database();
    let output =
        entresol_with_input(&["shell", &path], "\\d\n\\d METER\n\\timing on\nSELECT 1;\n\\d nothing\n");
    let text = stdout(&output);
    assert!(text.contains("| meter ") && text.contains("| id "), "{text}");
    assert!(text.contains("| kwh    | DOUBLE "), "{text}");
    assert!(text.contains("Time: "), "{text}");
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("nothing"), "{}", stderr(&output));
}

#[test]
fn the_structure_and_protocol_of_a_table_are_described() {
    let (_dir, path) = database();
    let sql = "CREATE TABLE counters (id INT PRIMARY KEY) USING wbtree WITH (protocol = 's2pl', hot_bytes = '1 MiB')";
    succeed(&["shell", &path, "-c", sql]);
    let text = stdout(&entresol_with_input(&["shell", &path], "\\d meter\n\\d counters\n"));
    assert!(text.contains("Structure: wbtree, Protocol: s2pl, Hot entries: 1048576 bytes"), "{text}");
    assert_eq!(text.matches("Structure").count(), 1, "{text}");
}

#[test]
fn views_and_sequences_are_described_and_kept() {
    let (_dir, path) = database();
    let setup =
        "CREATE VIEW big AS SELECT id, kwh FROM meter WHERE kwh > 10; CREATE TABLE log (id SERIAL, v INT)";
    succeed(&["shell", &path, "-c", setup]);
    let insert = "INSERT INTO log (v) SELECT id FROM big";
    succeed(&["shell", &path, "-c", insert]);
    succeed(&["shell", &path, "-c", insert]);
    let csv = succeed(&["shell", &path, "--format", "csv", "-c", "SELECT * FROM log ORDER BY id"]);
    assert_eq!(csv, "id,v\n1,1\n2,1\n", "closing gives back what was reserved");
    let output = entresol_with_input(&["shell", &path], "\\d\n\\d big\n\\d log_id_seq\n");
    let text = stdout(&output);
    assert!(text.contains("| big        | view     | 2       |"), "{text}");
    assert!(text.contains("| log_id_seq | sequence |"), "{text}");
    assert!(text.contains("View: SELECT id, kwh FROM meter WHERE kwh > 10"), "{text}");
    assert!(text.contains("| log.id "), "{text}");
}

#[test]
fn help_has_examples() {
    for arguments in [&["--help"][..], &["shell", "--help"], &["demo", "smart-metering", "--help"]] {
        assert!(succeed(arguments).contains("Examples:"), "{arguments:?}");
    }
}

#[test]
fn tables_lie_where_they_are_placed() {
    let (dir, path) = database();
    let fill = "CREATE TABLE latest (id INT PRIMARY KEY, kwh DOUBLE) WITH (placement = 'dram');
                INSERT INTO latest SELECT id, kwh FROM meter; SELECT count(*) FROM latest";
    assert!(succeed(&["shell", &path, "--format", "csv", "-c", fill]).ends_with("\n3\n"));
    let look = "SELECT (SELECT count(*) FROM latest), (SELECT count(*) FROM meter)";
    let counts = succeed(&["shell", &path, "--format", "csv", "-c", look]);
    assert!(counts.ends_with("\n0,3\n"), "{counts}");
    let checked = succeed(&["check", &path]);
    assert!(!checked.contains("PROBLEM"), "{checked}");
    let refused = entresol(&["shell", &path, "-c", "CREATE TABLE p (id INT) WITH (placement = 'pmem')"]);
    assert!(!refused.status.success());
    assert!(stderr(&refused).contains("journal"), "{}", stderr(&refused));
    let beside = dir.path().join("disk").display().to_string();
    let refused = entresol(&["shell", &path, "--disk-dir", &beside, "-c", "SELECT 1"]);
    assert!(!refused.status.success());
    assert!(stderr(&refused).contains("persistent memory"), "{}", stderr(&refused));
}
