//! Running the `entresol` program as a user does.
// Each test file uses its part.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// Arguments as separate words.
pub fn entresol(arguments: &[&str]) -> Output {
    command(arguments).stdin(Stdio::null()).output().unwrap()
}

/// With a database that is known to be damaged, so that it is not checked when it is closed.
pub fn entresol_on_damage(arguments: &[&str]) -> Output {
    command(arguments).env_remove("ENTRESOL_CHECK_ON_CLOSE").stdin(Stdio::null()).output().unwrap()
}

/// With something on standard input.
pub fn entresol_with_input(arguments: &[&str], input: &str) -> Output {
    let mut child = command(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

/// Begins a call, whose output nobody reads.
pub fn begin(arguments: &[&str]) -> Child {
    command(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_entresol"));
    command.args(arguments).env_remove("ENTRESOL_LOG");
    command
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// The standard output of a call that must succeed.
pub fn succeed(arguments: &[&str]) -> String {
    let output = entresol(arguments);
    assert!(output.status.success(), "{arguments:?}: {}\n{}", output.status, stderr(&output));
    stdout(&output)
}

/// Runs the demo, and returns its JSON and standard output.
pub fn demo(dir: &Path, arguments: &[&str]) -> (serde_json::Value, String) {
    let json = dir.join("result.json");
    let mut all = vec!["demo", "smart-metering", "--json", json.to_str().unwrap()];
    all.extend(arguments);
    let output = succeed(&all);
    (serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap(), output)
}

/// The real series, if they exist: they are not part of the project. Tests without them print a notice and
/// pass.
pub fn real_series() -> Option<PathBuf> {
    let beside = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("../../../shared/data");
    let dir = std::env::var_os("ENTRESOL_DATA").map_or(beside, PathBuf::from);
    if !dir.join("nab").is_dir() {
        eprintln!("skipped: no real series in {} (set ENTRESOL_DATA)", dir.display());
        return None;
    }
    Some(dir)
}
