//! One file of awkward statements, through the shell, the server and the library: each takes it the same way.
#![allow(clippy::unwrap_used)]

mod support;

use entresol::arrow::array::AsArray;
use entresol::arrow::compute::cast;
use entresol::arrow::datatypes::DataType;
use entresol::{Database, Options, Session};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

const SCRIPT: &str = r#"-- a comment; with a semicolon
CREATE TABLE awkward (id INT PRIMARY KEY, v VARCHAR); /* one /* nested; */ 'two; */
INSERT INTO awkward VALUES (1, 'it''s; fine'), (2, E'a\';b'), (3, $$dollar; 'quote'$$), (4, $tag$ $$;$$ $tag$);
INSERT INTO awkward
  SELECT 5, (
    SELECT ';)' -- not ) the end;
  );;
INSERT INTO "awkward" (id, "v") VALUES (6, 'a\'), (7, 'a
b;'); insert into awkward select id + 10, v || ';' from awkward where v like '%;%' and id < 3
; UPDATE awkward SET v = '$1;' WHERE id = 7;
BEGIN; ABORT; (TABLE awkward);
ALTER TABLE awkward ADD COLUMN s BIGINT;
CREATE SEQUENCE awkward_ids START 5 INCREMENT BY 2; UPDATE awkward SET s = nextval('awkward_ids') WHERE id = 1;
COPY (SELECT id + 20, v, s FROM awkward WHERE v <> $$';'$$ AND /* ; ' */ v LIKE E'a\'%;%') TO 'DIRECTORY/rows; of ''awkward''';
COPY awkward (id, v, s) FROM 'DIRECTORY/rows; of ''awkward''' -- ; its file
"#;

/// The script, with files in a directory.
fn script(directory: &Path) -> String {
    SCRIPT.replace("DIRECTORY", directory.to_str().unwrap())
}

const EXPECTED: [&str; 11] = [
    "1|it's; fine|5",
    "2|a';b|",
    "3|dollar; 'quote'|",
    "4| $$;$$ |",
    "5|;)|",
    "6|a\\|",
    "7|$1;|",
    "11|it's; fine;|",
    "12|a';b;|",
    "22|a';b|",
    "32|a';b;|",
];

/// Rows of the table that the script leaves.
fn rows(session: &mut Session) -> Vec<String> {
    let sql = "SELECT id || '|' || v || '|' || coalesce(s::text, '') AS line FROM awkward ORDER BY id";
    let batches = session.query(sql).unwrap();
    let lines = batches.iter().flat_map(|batch| {
        let column = cast(batch.column(0), &DataType::Utf8).unwrap();
        column.as_string::<i32>().iter().map(|line| line.unwrap().to_owned()).collect::<Vec<_>>()
    });
    lines.collect()
}

fn rows_in(directory: &Path) -> Vec<String> {
    let database = Database::open(directory, Options::default()).unwrap();
    rows(&mut database.session().unwrap())
}

#[test]
fn the_library_takes_the_script() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let database = Database::open(&path, Options::default()).unwrap();
    let mut session = database.session().unwrap();
    let results = session.execute(&script(directory.path())).unwrap();
    assert_eq!(results.len(), 14);
    assert_eq!(rows(&mut session), EXPECTED);
}

#[test]
fn the_shell_takes_the_script() {
    let directory = tempfile::tempdir().unwrap();
    for (name, from_file) in [("file", true), ("argument", false)] {
        let path = directory.path().join(name);
        let (file, script) = (directory.path().join("script.sql"), script(directory.path()));
        std::fs::write(&file, &script).unwrap();
        let source =
            if from_file { format!("--file={}", file.display()) } else { format!("--command={script}") };
        support::succeed(&["shell", path.to_str().unwrap(), &source]);
        assert_eq!(rows_in(&path), EXPECTED, "{name}");
    }
}

#[test]
fn the_server_takes_the_script() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    // `-c` sends all of it in one message; the server splits it.
    if psql(&path, &["-c", &script(directory.path())]) {
        assert_eq!(rows_in(&path), EXPECTED);
    }
}

/// Runs psql on a database that is served meanwhile; returns false where there is no psql.
fn psql(path: &Path, arguments: &[&str]) -> bool {
    if Command::new("psql").arg("--version").output().is_err() {
        eprintln!("skipped: psql is not installed (package postgresql-client)");
        return false;
    }
    let mut server = Command::new(env!("CARGO_BIN_EXE_entresol"))
        .args(["serve", path.to_str().unwrap(), "--listen", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.strip_prefix("listening on ").unwrap().split(' ').next().unwrap();
    let (host, port) = address.rsplit_once(':').unwrap();
    let sent = Command::new("psql")
        .args(["-X", "-v", "ON_ERROR_STOP=1", "-h", host, "-p", port, "-U", "test", "-d", "entresol"])
        .args(arguments)
        .output();
    let _ = Command::new("kill").arg(server.id().to_string()).status();
    server.wait().unwrap();
    let sent = sent.unwrap();
    assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
    true
}

/// The shell's COPY with a file of its own has the quotes and comments of SQL.
#[test]
fn a_copy_with_a_file_of_the_client_takes_all_quotes() {
    let directory = tempfile::tempdir().unwrap();
    let (path, script) = (directory.path().join("db"), directory.path().join("script.sql"));
    let file = directory.path().join("it's; a file");
    let quoted = file.to_str().unwrap().replace('\'', "''");
    let query = r"SELECT 1, $$it's$$ || E' to \'x\' ' || $a$ to 'y' ($a$ /* ' ) to 'z' */";
    std::fs::write(
        &script,
        format!(
            "CREATE TABLE copied (id INT PRIMARY KEY, v VARCHAR);\n\\copy ({query}) TO '{quoted}'\n\
             \\copy copied FROM '{quoted}' -- the ' same;\n"
        ),
    )
    .unwrap();
    support::succeed(&["shell", path.to_str().unwrap(), &format!("--file={}", script.display())]);
    assert_eq!(copied_rows(&path), ["1|it's to 'x'  to 'y' ("]);
}

const DUMP: &str = r#"CREATE TABLE copied (id INT PRIMARY KEY, v VARCHAR);
COPY copied (id, v) FROM STDIN;
1	semi;colon
2	$$ 'quote'
3	\N
\.
COPY copied FROM STDIN WITH (FORMAT csv); -- rows begin on the next line
4,"two
lines"
\.

INSERT INTO copied VALUES (5, 'behind');
"#;

const DUMPED: [&str; 5] = ["1|semi;colon", "2|$$ 'quote'", "3|", "4|two\nlines", "5|behind"];

fn copied_rows(directory: &Path) -> Vec<String> {
    let database = Database::open(directory, Options::default()).unwrap();
    let sql = "SELECT id || '|' || coalesce(v, '') AS line FROM copied ORDER BY id";
    let batches = database.session().unwrap().query(sql).unwrap();
    let lines = batches.iter().flat_map(|batch| {
        let column = cast(batch.column(0), &DataType::Utf8).unwrap();
        column.as_string::<i32>().iter().map(|line| line.unwrap().to_owned()).collect::<Vec<_>>()
    });
    lines.collect()
}

/// Rows in a script, as pg_dump writes them: psql sends them to the server, the shell reads them itself.
#[test]
fn rows_of_a_copy_follow_it_in_a_script() {
    let directory = tempfile::tempdir().unwrap();
    let (path, script) = (directory.path().join("shell"), directory.path().join("dump.sql"));
    std::fs::write(&script, DUMP).unwrap();
    let file = format!("--file={}", script.display());
    support::succeed(&["shell", path.to_str().unwrap(), &file]);
    assert_eq!(copied_rows(&path), DUMPED);
    let path = directory.path().join("server");
    if psql(&path, &["-f", script.to_str().unwrap()]) {
        assert_eq!(copied_rows(&path), DUMPED);
    }
}

/// An error in the rows tells the line of the COPY, and a script that ends in the middle of them ends them.
#[test]
fn wrong_rows_of_a_copy_in_a_script_are_an_error_with_its_line() {
    let directory = tempfile::tempdir().unwrap();
    let (path, script) = (directory.path().join("db"), directory.path().join("dump.sql"));
    std::fs::write(
        &script,
        "CREATE TABLE copied (id INT PRIMARY KEY, v VARCHAR);\n\nCOPY copied FROM STDIN;\nx\ty\n\\.\n",
    )
    .unwrap();
    let file = format!("--file={}", script.display());
    let failed = support::entresol(&["shell", path.to_str().unwrap(), &file]);
    let message = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert!(!failed.status.success() && message.contains("line 3") && message.contains("\"x\""), "{message}");
    std::fs::write(&script, "COPY copied FROM STDIN;\n7\tno end\n").unwrap();
    support::succeed(&["shell", path.to_str().unwrap(), &file]);
    assert_eq!(copied_rows(&path), ["7|no end"]);
}
