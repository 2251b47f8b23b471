//! Exit status and last line of `lab run`.

#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::process::{Command, Output};

const FIGURE: &str = "a level in DRAM";

/// Runs the smallest experiment with an asked figure that is judged at small sizes.
fn lab(arguments: &[&str]) -> Output {
    let lab = env!("CARGO_BIN_EXE_lab");
    Command::new(lab).args(["run", "e2", "--quick"]).args(arguments).output().unwrap()
}

fn last_line(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).lines().last().unwrap_or_default().to_string()
}

/// A list of known misses with one entry for an experiment's figure.
fn known_miss(experiment: &str, name: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "[[miss]]\nexperiment = \"{experiment}\"\nname = \"{name}\"").unwrap();
    writeln!(file, "reason = \"the test asks for too much\"\nlast_measured = 80").unwrap();
    file
}

#[test]
fn a_miss_fails_the_run_and_is_named_in_the_last_line() {
    let output = lab(&["--ask", &format!("{FIGURE}=1")]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let line = last_line(&output);
    assert!(line.starts_with(&format!("missed: e2: {FIGURE} ")), "{line}");
    assert!(line.ends_with(" ns, asked at most 1.00 (tolerance 0%)"), "{line}");
    assert_eq!(lab(&[]).status.code(), Some(0));
}

#[test]
fn a_known_miss_does_not_fail_the_run() {
    let known = known_miss("e2", FIGURE);
    let path = known.path().to_str().unwrap();
    let output = lab(&["--ask", &format!("{FIGURE}=1"), "--known-misses", path]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("missed, known: the test asks for too much"), "{text}");
    assert!(!last_line(&output).starts_with("missed"), "{text}");
}

#[test]
fn a_known_miss_that_is_met_is_reported() {
    let known = known_miss("e2", FIGURE);
    let output = lab(&["--known-misses", known.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let line = last_line(&output);
    assert!(line.starts_with(&format!("met now, remove from the known misses: e2: {FIGURE} ")), "{line}");
}

#[test]
fn names_that_do_not_exist_are_errors() {
    for (experiment, name, message) in [
        ("e2", "no such figure", "e2 reports no asked figure 'no such figure'"),
        ("e77", FIGURE, "no experiment 'e77'"),
    ] {
        let known = known_miss(experiment, name);
        let output = lab(&["--known-misses", known.path().to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains(message), "{error}");
    }
    assert_eq!(lab(&["--ask", "no such figure=1"]).status.code(), Some(2));
}
