//! Random transactions of an independent program, `adya`, over the wire, while the server is killed and
//! started again: at each level it finds no anomaly that the level forbids. Skipped where the program is not
//! there (`make checker`).
#![allow(clippy::unwrap_used)]

mod support;
#[path = "histories/topologies.rs"]
mod topologies;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The program, on the path or where `make checker` puts it.
fn checker() -> Option<PathBuf> {
    let named = std::env::var_os("ADYA").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::home_dir().map(|home| home.join(".cache")));
    let on_path = std::env::split_paths(&path).map(|dir| dir.join("adya"));
    let made = cache.map(|cache| cache.join("entresol/tools/bin/adya"));
    named.into_iter().chain(on_path).chain(made).find(|program| program.is_file())
}

/// A server on one port; killed when it is dropped.
struct Server {
    child: Child,
    port: u16,
}

impl Server {
    fn start(database: &Path, port: u16) -> Server {
        let mut child = Command::new(env!("CARGO_BIN_EXE_entresol"))
            .arg("serve")
            .arg(database)
            .args(["--listen", &format!("127.0.0.1:{port}")])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.strip_prefix("listening on ").and_then(|rest| rest.split(' ').next());
        let port = address.and_then(|address| address.rsplit(':').next()).and_then(|port| port.parse().ok());
        let port = port.unwrap_or_else(|| panic!("the server said {line:?}"));
        Server { child, port }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // SIGKILL: nothing is closed in order.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Transactions of four clients, three kills; returns the program's verdict.
fn history(checker: &Path, level: &str, model: &str, workload: &str) {
    let scratch = tempfile::tempdir().unwrap();
    let database = scratch.path().join("db");
    let mut server = Server::start(&database, 0);
    let port = server.port;
    let url = format!("postgres://anyone@127.0.0.1:{port}/entresol");
    let mut clients = Command::new(checker)
        .args(["run", "postgres", "--url", &url, "-p", "4", "-n", "100000", "--time-limit", "3"])
        .args(["-i", level, "-c", model, "-m", workload, "--cycle-search-timeout", "10000"])
        .arg("-o")
        .arg(scratch.path().join("history.jsonl"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(700));
        assert!(clients.try_wait().unwrap().is_none(), "the clients ended early");
        drop(server);
        support::succeed(&["check", database.to_str().unwrap(), "--quiet"]);
        server = Server::start(&database, port);
    }
    clients.wait().unwrap();
    let said = clients.wait_with_output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&said.stderr), String::from_utf8_lossy(&said.stdout));
    assert!(said.status.success(), "{level}, {workload}: {text}");
    let lines = std::fs::read_to_string(scratch.path().join("history.jsonl")).unwrap();
    let committed = lines.lines().filter(|line| line.contains("\"type\":\"ok\"")).count();
    assert!(committed > 50, "{level}, {workload}: {committed} committed; {text}");
    drop(server);
    support::succeed(&["check", database.to_str().unwrap(), "--quiet"]);
}

#[test]
fn no_level_shows_what_it_forbids_across_kills() {
    let Some(checker) = checker() else {
        eprintln!("skipped: the checker `adya` is not there; `make checker` installs it");
        return;
    };
    for (level, model) in [
        ("read-committed", "strong-read-committed"),
        ("repeatable-read", "strong-snapshot-isolation"),
        ("serializable", "strict-serializable"),
    ] {
        history(&checker, level, model, "list-append");
    }
    history(&checker, "serializable", "strict-serializable", "rw-register");
}
