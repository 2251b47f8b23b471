//! The independent checker: `adya`, a program of its own that knows Elle's anomalies and nothing of this
//! database.

use super::worker::Workload;
use crate::Error;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Installation of the checker.
pub(super) const HOW_TO_INSTALL: &str = "`make histories` installs it, or: cargo install adya --version 0.1.0 --locked \
                                         --no-default-features --features postgres; the environment variable ADYA names it elsewhere";

/// Verdict on an operation history.
#[derive(Debug)]
pub(super) struct Verdict {
    pub(super) is_valid: bool,
    /// The anomalies that the model forbids, by name.
    pub(super) anomalies: Vec<String>,
}

/// The checker's program.
pub(super) struct Checker {
    program: PathBuf,
}

impl Checker {
    /// The one that is named by the environment, on the path, or where `make histories` puts it.
    pub(super) fn find() -> Option<Checker> {
        let named = std::env::var_os("ADYA").map(PathBuf::from);
        let on_path = std::env::var_os("PATH")
            .into_iter()
            .flat_map(|path| std::env::split_paths(&path).map(|dir| dir.join("adya")).collect::<Vec<_>>());
        let cache = std::env::var_os("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .or_else(|| std::env::home_dir().map(|home| home.join(".cache")))
            .map(|cache| cache.join("entresol/tools/bin/adya"));
        let program = named.into_iter().chain(on_path).chain(cache).find(|program| program.is_file())?;
        Some(Checker { program })
    }

    /// Judges whether an operation history keeps what the model promises.
    pub(super) fn check(&self, history: &Path, workload: Workload, model: &str) -> Result<Verdict, Error> {
        let workload = match workload {
            Workload::Lists => "list-append",
            Workload::Registers => "rw-register",
        };
        let output = Command::new(&self.program)
            .args(["check", "--json", "--cycle-search-timeout", "10000", "--linearizable-keys"])
            .args(["-m", workload, "-c", model])
            .arg(history)
            .output()
            .map_err(|error| Error::Io { action: format!("run {}", self.program.display()), error })?;
        let text = String::from_utf8_lossy(&output.stdout);
        let failed = || {
            let said = String::from_utf8_lossy(&output.stderr);
            Error::Peer { peer: "adya", error: format!("{}: {said}{text}", output.status) }
        };
        // 0: valid, 1: anomalies, 2: it cannot tell.
        if !matches!(output.status.code(), Some(0..=2)) {
            return Err(failed());
        }
        let report: Value = serde_json::from_str(&text).map_err(|_| failed())?;
        let report = report.as_array().and_then(|reports| reports.first()).unwrap_or(&report);
        let anomalies = report["anomaly_types"].as_array().ok_or_else(failed)?;
        Ok(Verdict {
            is_valid: report["valid"] == Value::Bool(true),
            anomalies: anomalies.iter().filter_map(|name| name.as_str().map(str::to_string)).collect(),
        })
    }
}
