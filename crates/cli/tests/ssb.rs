//! `entresol ssb`: the three steps, their output, and the exit status.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;
use support::{entresol, stderr, stdout, succeed};

#[test]
fn the_three_steps_lead_to_times_and_answers() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (files, db, answers) = (at("files"), at("db"), at("answers"));
    let text = succeed(&["ssb", "generate", "--sf", "0.002", "--out", &files]);
    assert!(text.contains("lineorder.tbl | ") && text.contains("| 2557 "), "{text}");
    let text = succeed(&["ssb", "load", &files, "--dir", &db]);
    assert!(text.contains("| customer  | 60 "), "{text}");

    let (json, plot) = (at("times.json"), at("times.svg"));
    let run = ["ssb", "run", "--dir", &db, "--repeat", "1"];
    let text = succeed(&[&run[..], &["--save", &answers, "--json", &json, "--plot", &plot]].concat());
    assert!(text.contains("| query | rows | first ms | median ms | best ms | answer |"), "{text}");
    assert!(text.contains("| q4.3 ") && text.contains("| sum ") && !text.contains("ok"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    let queries = json["queries"].as_array().unwrap();
    assert!(queries.len() == 13 && queries.iter().all(|query| query["first_ms"].as_f64().unwrap() > 0.0));
    let sum: f64 = queries.iter().map(|query| query["best_ms"].as_f64().unwrap()).sum();
    assert!((json["sum_best_ms"].as_f64().unwrap() - sum).abs() < 1e-6);
    assert!(fs::read_to_string(plot).unwrap().contains("q3.4"));

    let compare = [&run[..], &["--answers", &answers, "--queries", "1.1,q4.1"]].concat();
    let text = succeed(&compare);
    assert_eq!(text.matches("| ok ").count(), 2, "{text}");
    fs::write(dir.path().join("answers/q1.1.csv"), "revenue\n7\n").unwrap();
    let output = entresol(&compare);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("| DIFFERENT |") && stdout(&output).contains("| ok "));
    let message = stderr(&output);
    assert!(message.contains("error: query 1.1 is DIFFERENT: row 1 is (") && message.contains("not (7)"));
}

#[test]
fn errors_have_a_status_and_say_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db").to_str().unwrap().to_owned();
    for (arguments, status, words) in [
        (&["ssb", "run", "--dir", &db, "--queries", "9"][..], 2, "'9' is not a query: use 1.1, "),
        (&["ssb", "generate", "--sf", "-1"], 2, "--sf"),
        (&["ssb", "run", "--dir", &db], 1, &db),
        (&["ssb", "load", dir.path().to_str().unwrap(), "--dir", &db], 1, "there is no file "),
    ] {
        let output = entresol(arguments);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}");
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
    }
    assert!(!dir.path().join("db").exists());
}

/// After a kill, the tables are all there or none is.
#[test]
fn a_killed_load_leaves_no_part_of_a_table() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (files, db) = (at("files"), at("db"));
    succeed(&["ssb", "generate", "--sf", "0.02", "--out", &files]);
    for ms in [20, 80, 200, 400, 800] {
        let mut load = Command::new(env!("CARGO_BIN_EXE_entresol"));
        load.args(["ssb", "load", &files, "--dir", &db, "--force"])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut load = load.spawn().unwrap();
        sleep(Duration::from_millis(ms));
        load.kill().unwrap();
        load.wait().unwrap();
        let output = entresol(&["ssb", "run", "--dir", &db, "--queries", "1.1", "--repeat", "0"]);
        let message = stderr(&output);
        // Else there is no database yet, or it has not all of the tables.
        assert!(output.status.success() || message.contains(&db), "{ms} ms: {message}");
        if output.status.success() {
            let count = succeed(&["shell", &db, "--format", "csv", "-c", "SELECT count(*) FROM lineorder"]);
            let lines = fs::read_to_string(dir.path().join("files/lineorder.tbl")).unwrap().lines().count();
            assert_eq!(count, format!("count\n{lines}\n"));
        }
    }
    succeed(&["ssb", "load", &files, "--dir", &db, "--force"]);
    let names =
        succeed(&["shell", &db, "--format", "csv", "-c", "SELECT name FROM entresol.tables ORDER BY name"]);
    assert_eq!(names, "name\ncustomer\ndate\nlineorder\npart\nsupplier\n");
    succeed(&["ssb", "run", "--dir", &db, "--queries", "2", "--repeat", "0"]);
}
