//! pgbench against a server: its tables, and its built-in scripts.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

/// A server process; killed at the end.
struct Served {
    child: Child,
    host: String,
    port: String,
}

impl Served {
    fn start(path: &str) -> Served {
        let mut child = Command::new(env!("CARGO_BIN_EXE_entresol"))
            .args(["serve", path, "--listen", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.strip_prefix("listening on ").unwrap().split(' ').next().unwrap();
        let (host, port) = address.rsplit_once(':').unwrap();
        Served { child, host: host.to_owned(), port: port.to_owned() }
    }

    fn pgbench(&self, program: &PathBuf, arguments: &[&str]) -> Output {
        let mut command = Command::new(program);
        command.env("PGHOST", &self.host).env("PGPORT", &self.port).env("PGUSER", "test");
        command.env("PGDATABASE", "entresol").env("LC_ALL", "C.UTF-8").args(arguments);
        command.output().unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// pgbench, in the PATH or where Debian has it.
fn installed() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut all: Vec<PathBuf> = versions.map(|version| version.path().join("bin/pgbench")).collect();
    all.push(PathBuf::from("pgbench"));
    let works = |program: &PathBuf| {
        Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
    };
    let found = all.into_iter().find(works);
    if found.is_none() {
        eprintln!("skipped: pgbench is not installed (package postgresql)");
    }
    found
}

/// Initialisation; then each script, simple and prepared.
#[test]
fn pgbench_makes_its_tables_and_runs_its_scripts() {
    let Some(program) = installed() else { return };
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&dir.path().join("db").display().to_string());
    // Twice: the second time the tables are there.
    for _ in 0..2 {
        let output = served.pgbench(&program, &["-i", "-s", "1", "-q"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    for script in ["tpcb-like", "simple-update", "select-only"] {
        for mode in ["simple", "prepared"] {
            let arguments = ["-n", "-b", script, "-M", mode, "-c", "1", "-t", "20"];
            let output = served.pgbench(&program, &arguments);
            let text = String::from_utf8_lossy(&output.stdout);
            let complaints = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{script} {mode}: {complaints}");
            assert!(text.contains("number of transactions actually processed: 20/20"), "{text}");
        }
    }
    // Two that update the same branch: one of them loses now and then, and runs again.
    let arguments = ["-n", "-b", "tpcb-like", "-c", "2", "-j", "2", "-t", "20", "--max-tries", "100"];
    let output = served.pgbench(&program, &arguments);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("number of transactions actually processed: 40/40"), "{text}");
    // The sum of changes of the accounts is that of the tellers and the branch.
    let sums = "SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM pgbench_history) AS \
                same \\gset\n\\if :same\nSELECT 1;\n\\else\nSELECT 1 / 0;\n\\endif\n";
    let script = dir.path().join("sums.sql");
    std::fs::write(&script, sums).unwrap();
    let output = served.pgbench(&program, &["-n", "-f", script.to_str().unwrap(), "-t", "1"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("processed: 1/1"), "{output:?}");
}
