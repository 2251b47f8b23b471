//! `entresol check`, `info` and `backup` on real files.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use support::{entresol, stderr, stdout, succeed};

const SETUP: &str = "CREATE TABLE meter (id INT PRIMARY KEY, place VARCHAR);
    CREATE TABLE reading (id INT PRIMARY KEY, text VARCHAR);
    INSERT INTO meter SELECT value, 'place ' || value FROM generate_series(1, 500);
    INSERT INTO reading SELECT value, 'reading number ' || value FROM generate_series(1, 3000)";

struct Database {
    dir: tempfile::TempDir,
    path: String,
}

impl Database {
    fn new() -> Database {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db").display().to_string();
        succeed(&["shell", &path, "-c", SETUP]);
        Database { dir, path }
    }

    fn beside(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    fn count(path: &str, table: &str) -> u64 {
        let sql = format!("SELECT count(*) AS n FROM {table}");
        let output = succeed(&["shell", path, "--format", "csv", "-c", &sql]);
        output.lines().nth(1).unwrap().parse().unwrap()
    }

    /// Flips a bit of the only offset that has this string.
    fn damage(&self, text: &str) -> u64 {
        let path = Path::new(&self.path).join("pool.entresol");
        let bytes = std::fs::read(&path).unwrap();
        let at = bytes.windows(text.len()).position(|window| window == text.as_bytes()).unwrap();
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(&[bytes[at] ^ 4], at as u64).unwrap();
        at as u64
    }
}

/// A shell that holds a database open until it is dropped.
struct Owner(Child);

impl Owner {
    fn of(path: &str) -> Owner {
        let mut child = Command::new(env!("CARGO_BIN_EXE_entresol"))
            .args(["shell", path, "--format", "csv"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        writeln!(child.stdin.as_mut().unwrap(), "SELECT 1 AS ready;").unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Owner(child)
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

#[test]
fn a_sound_database_checks_and_nothing_is_changed() {
    let database = Database::new();
    let files = ["pool.entresol", "journal.entresol", "checksums.entresol"];
    let bytes = || files.map(|name| std::fs::read(Path::new(&database.path).join(name)).unwrap());
    let before = bytes();
    let json = database.beside("check.json");
    let output = succeed(&["check", &database.path, "--json", &json]);
    assert!(
        output.contains("| reading ") && output.contains("| 3000 ") && output.contains("no problems"),
        "{output}"
    );
    let report: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!((&report["sound"], report["problems"].as_array().unwrap().len()), (&true.into(), 0));
    assert_eq!(report["tables"][0]["rows"], 500);
    assert!(report["pages"]["sound"].as_u64().unwrap() > 50, "{report}");

    let info = succeed(&["info", &database.path]);
    assert!(info.contains("closed in order") && info.contains("| meter "), "{info}");
    let info: serde_json::Value =
        serde_json::from_str(&succeed(&["info", &database.path, "--json"])).unwrap();
    assert_eq!((&info["clean"], &info["in_use"]), (&true.into(), &false.into()));
    assert_eq!((&info["tables"][1]["name"], &info["tables"][1]["rows"]), (&"reading".into(), &3000.into()));
    assert!(info["roots"].as_array().unwrap().len() >= 2 && info["uuid"].as_str().unwrap().len() == 36);
    assert!(before == bytes());
}

#[test]
fn a_flipped_bit_is_reported_with_place_and_table_and_status_1() {
    let database = Database::new();
    let at = database.damage("reading number 2718");
    let json = database.beside("check.json");
    let output = entresol(&["check", &database.path, "--json", &json, "--quiet"]);
    assert_eq!(output.status.code(), Some(1));
    let text = stdout(&output);
    let page = (at / 4096 * 4096).to_string();
    assert!(text.contains("PROBLEM") && text.contains("table reading") && text.contains(&page), "{text}");
    assert!(text.contains("pool.entresol") && text.contains("restore a backup"), "{text}");
    assert!(stderr(&output).ends_with("has a problem\n"), "{}", stderr(&output));
    let report: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(report["problems"][0]["offset"], at / 4096 * 4096);
    // The other table remains usable.
    let count = ["shell", &database.path, "--format", "csv", "-c", "SELECT count(*) AS n FROM meter"];
    assert_eq!(stdout(&support::entresol_on_damage(&count)), "n\n500\n");
    let backup = database.beside("backup");
    let output = entresol(&["backup", &database.path, &backup, "--verify"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("not sound"), "{}", stderr(&output));
}

#[test]
fn wrong_directories_are_clear_errors() {
    let database = Database::new();
    let nowhere = database.beside("nowhere");
    let file = database.beside("file");
    std::fs::write(&file, "no database").unwrap();
    let empty = database.beside("empty");
    std::fs::create_dir(&empty).unwrap();
    for command in ["check", "info", "backup"] {
        for wrong in [&nowhere, &file, &empty] {
            let mut arguments = vec![command, wrong.as_str()];
            let destination = database.beside("copy");
            if command == "backup" {
                arguments.push(&destination);
            }
            let output = entresol(&arguments);
            assert_eq!(output.status.code(), Some(1), "{arguments:?}");
            let text = stderr(&output);
            assert!(text.contains("error: no database at") && text.contains(wrong.as_str()), "{text}");
            assert!(!Path::new(&destination).exists());
        }
        assert_eq!(entresol(&[command]).status.code(), Some(2));
        assert!(succeed(&[command, "--help"]).contains("Examples:"));
    }
    assert!(!Path::new(&nowhere).exists());
    let destinations = [
        (database.path.clone(), "not empty"),
        (file.clone(), "a file of this name"),
        (database.beside("no/such/place"), "does not exist"),
    ];
    for (wrong, why) in destinations {
        let output = entresol(&["backup", &database.path, &wrong]);
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains(why) && stderr(&output).contains(&wrong), "{}", stderr(&output));
    }
}

#[test]
fn a_database_in_use_says_how_to_go_on() {
    let database = Database::new();
    let owner = Owner::of(&database.path);
    let copy = database.beside("copy");
    for arguments in [vec!["check", &database.path], vec!["backup", &database.path, &copy]] {
        let output = entresol(&arguments);
        assert_eq!(output.status.code(), Some(1));
        let text = stderr(&output);
        assert!(text.contains("in use") && text.contains("BACKUP TO"), "{text}");
    }
    assert!(!Path::new(&copy).exists());
    let info = succeed(&["info", &database.path]);
    assert!(info.contains("in use by another process") && info.contains("UUID"), "{info}");
    let info: serde_json::Value =
        serde_json::from_str(&succeed(&["info", &database.path, "--json"])).unwrap();
    assert_eq!(info["in_use"], true);
    drop(owner);
    succeed(&["backup", &database.path, &copy]);
}

#[test]
fn backups_are_databases() {
    let database = Database::new();
    let copy = database.beside("copy");
    let output = succeed(&["backup", &database.path, &copy, "--verify"]);
    assert!(output.contains("verified: 2 tables"), "{output}");
    assert_eq!(Database::count(&copy, "reading"), 3000);
    // By SQL, in the process that has it open; into a directory that is there and empty.
    let second = database.beside("second");
    std::fs::create_dir(&second).unwrap();
    let sql = format!("DELETE FROM meter WHERE id > 100; BACKUP TO '{second}'; DELETE FROM meter");
    let output = succeed(&["shell", &database.path, "-c", &sql]);
    assert!(output.contains("BACKUP\n"), "{output}");
    assert_eq!(Database::count(&second, "meter"), 100);
    assert_eq!(Database::count(&database.path, "meter"), 0);
    assert!(succeed(&["check", &second]).contains("no problems"));
    let output = entresol(&["shell", &database.path, "-c", &format!("BACKUP TO '{second}'")]);
    assert!(stderr(&output).contains("not empty"), "{}", stderr(&output));
}

#[test]
fn a_backup_that_is_killed_leaves_nothing_under_its_name() {
    let database = Database::new();
    let (mut whole, mut none) = (0, 0);
    for round in 0..12u64 {
        let copy = database.beside(&format!("copy {round}"));
        let mut child = Command::new(env!("CARGO_BIN_EXE_entresol"))
            .args(["backup", &database.path, &copy])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(round * 4));
        // It may have ended by itself.
        let _ = child.kill();
        child.wait().unwrap();
        if Path::new(&copy).exists() {
            whole += 1;
            assert!(succeed(&["check", &copy]).contains("no problems"));
        } else {
            none += 1;
            // Its leftovers are not in the way.
            succeed(&["backup", &database.path, &copy]);
        }
        assert!(!Path::new(&format!("{copy}.unfinished")).exists());
    }
    println!("{whole} whole, {none} not there");
    assert!(none > 0);
    assert_eq!(Database::count(&database.path, "reading"), 3000);
}
