//! Common drivers and tools against `entresol serve`: psql, psycopg, asyncpg, SQLAlchemy, JDBC.
//!
//! Their scripts are in `tests/drivers`; `make drivers` installs them. Missing ones are skipped with a
//! notice.
#![allow(clippy::unwrap_used)]

mod support;

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use support::succeed;

/// A server process with an empty database; killed at the end of the test.
struct Served {
    child: Child,
    host: String,
    port: String,
    path: String,
    _directory: tempfile::TempDir,
}

impl Served {
    fn start() -> Served {
        Served::start_with(|_| {})
    }

    /// A server whose database was prepared.
    fn start_with(prepare: impl FnOnce(&str)) -> Served {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db").display().to_string();
        prepare(&path);
        let mut child = Command::new(env!("CARGO_BIN_EXE_entresol"))
            .args(["serve", &path, "--listen", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.strip_prefix("listening on ").and_then(|rest| rest.split(' ').next());
        let (host, port) = address.and_then(|address| address.split_once(':')).expect("an address");
        Served { child, host: host.to_owned(), port: port.to_owned(), path, _directory: directory }
    }

    /// Ends the server in order; the database is sound.
    fn stop(mut self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", "TERM", &pid]).status().unwrap().success());
        assert!(self.child.wait().unwrap().success());
        let mut log = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        assert!(!log.contains("panicked"), "{log}");
        succeed(&["check", &self.path, "--quiet"]);
    }

    /// psql with an empty environment.
    fn psql(&self, user: &str, arguments: &[&str]) -> Output {
        let mut command = Command::new("psql");
        command.env("PGHOST", &self.host).env("PGPORT", &self.port).env("PGUSER", user);
        command.env("PGDATABASE", "entresol").env("PGCONNECT_TIMEOUT", "20").env("PGPASSWORD", "secret");
        command.env("LC_ALL", "C.UTF-8").env("PAGER", "cat").arg("-X").args(arguments).output().unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Directory in which `make drivers` installs them.
fn installed() -> PathBuf {
    if let Some(given) = std::env::var_os("ENTRESOL_DRIVERS") {
        return given.into();
    }
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cache")));
    cache.unwrap_or_else(|| ".".into()).join("entresol/drivers")
}

/// The program if it is there; otherwise the test is skipped.
fn program(path: PathBuf, argument: &str) -> Option<PathBuf> {
    let found = Command::new(&path).arg(argument).output().is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("skipped: {} is not installed, `make drivers` does that", path.display());
    }
    found.then_some(path)
}

fn source(name: &str) -> PathBuf {
    PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("../../tests/drivers").join(name)
}

fn shown(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Runs a script of Python's against a server.
fn python(script: &str) {
    let Some(python) = program(installed().join("venv/bin/python"), "--version") else { return };
    let served = Served::start();
    let output = Command::new(python)
        .arg(source(script))
        .args([&served.host, &served.port])
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap();
    assert!(output.status.success() && shown(&output).contains("all is well"), "{}", shown(&output));
    served.stop();
}

#[test]
fn psycopg_does_what_it_does_with_postgresql() {
    python("with_psycopg.py");
}

#[test]
fn asyncpg_does_what_it_does_with_postgresql() {
    python("with_asyncpg.py");
}

#[test]
fn sqlalchemy_reflects_and_maps_tables() {
    python("with_sqlalchemy.py");
}

#[test]
fn jdbc_describes_reads_and_writes() {
    let Some(java) = program("java".into(), "-version") else { return };
    let jars = installed().join("jars");
    let Some(jar) = std::fs::read_dir(&jars).ok().and_then(|mut files| files.next()?.ok()) else {
        eprintln!("skipped: there is no driver in {}, `make drivers` puts one there", jars.display());
        return;
    };
    let served = Served::start();
    let output = Command::new(java)
        .arg("-cp")
        .arg(jar.path())
        .arg(source("WithJdbc.java"))
        .args([&served.host, &served.port])
        .output()
        .unwrap();
    assert!(output.status.success() && shown(&output).contains("all is well"), "{}", shown(&output));
    served.stop();
}

/// The tables that psql and the tools describe.
fn make_tables(served: &Served) {
    let made = served.psql(
        "tester",
        &[
            "-v",
            "ON_ERROR_STOP=1",
            "-c",
            "CREATE TABLE stock (shop INT, item VARCHAR, amount INT NOT NULL DEFAULT 7, price DECIMAL(8,2), \
             seen TIMESTAMP, CONSTRAINT stock_key PRIMARY KEY (shop, item), \
             CONSTRAINT amount_check CHECK (amount >= 0), CONSTRAINT once UNIQUE (seen, price))",
            "-c",
            "CREATE INDEX by_price ON stock (price)",
            "-c",
            "CREATE TABLE \"Log Book\" (line VARCHAR)",
        ],
    );
    assert!(made.status.success(), "{}", shown(&made));
}

#[test]
fn queries_of_tools_are_answered() {
    if program("psql".into(), "--version").is_none() {
        return;
    }
    let served = Served::start();
    make_tables(&served);
    let script = source("tools.sql");
    let output = served.psql("tester", &["-v", "ON_ERROR_STOP=1", "-At", "-f", script.to_str().unwrap()]);
    assert!(output.status.success(), "{}", shown(&output));
    let text = shown(&output);
    // Of Grafana, DBeaver, Django and Rails a line each.
    for line in [
        "stock\n",
        "price|numeric\n",
        "2200|2200|public|10||\n",
        "stock_key|{shop,item}|p\n",
        "price|numeric(8,2)||f|1700|524294|||",
        "shop\nitem\n",
        "once|{seen,price}|u\n",
        "once|t|5 4|CREATE UNIQUE INDEX once ON public.stock USING btree (seen, price)|",
    ] {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
    served.stop();
}

#[test]
fn psql_describes_a_database() {
    if program("psql".into(), "--version").is_none() {
        return;
    }
    let served = Served::start();
    make_tables(&served);
    let script = std::fs::read_to_string(source("psql.txt")).unwrap();
    // Commands stand behind `> `, their output behind them.
    for part in script.split("\n> ").skip(1) {
        let (command, expected) = part.split_once('\n').unwrap();
        let output = served.psql("tester", &["-v", "ON_ERROR_STOP=1", "-c", command]);
        assert!(output.status.success(), "{command}: {}", shown(&output));
        let found = shown(&output);
        let trimmed =
            |text: &str| text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n").trim().to_owned();
        assert_eq!(trimmed(&found), trimmed(expected), "{command}:\n{found}");
    }
    served.stop();
}
