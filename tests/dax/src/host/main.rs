//! Drives the guest: formats the NVDIMM, boots, fails the power, boots again and looks. See `tests/dax/README.md`.
//!
//! ```text
//! dax-host --root DIR --plugin FILE --guest FILE --mutants FILE --work DIR [--seed N] [--only PART-OF-A-NAME]
//! ```

mod archive;
mod image;
mod jobs;
mod kill;
mod machine;
mod power;

use std::path::PathBuf;
use std::process::ExitCode;

/// Why a part of the test failed, in a sentence.
type Failure = Box<dyn std::error::Error + Send + Sync>;
type Result<T> = std::result::Result<T, Failure>;

/// Where everything is.
struct Paths {
    /// What `packages.sh` unpacked.
    root: PathBuf,
    plugin: PathBuf,
    /// The guest program as it ships, and the one with mutants.
    guest: PathBuf,
    mutants: PathBuf,
    /// For images and logs; made anew.
    work: PathBuf,
}

fn main() -> ExitCode {
    match arguments().and_then(|(paths, seed, only)| jobs::run(&paths, seed, &only)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("dax-host: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn arguments() -> Result<(Paths, u64, String)> {
    let mut given = std::collections::BTreeMap::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
        given.insert(name, value);
    }
    let seed = given.remove("--seed").map_or(Ok(1), |text| text.parse())?;
    let only = given.remove("--only").unwrap_or_default();
    let mut path = |name: &str| -> Result<PathBuf> {
        let path = given.remove(name).ok_or_else(|| format!("{name} is missing"))?;
        Ok(std::path::absolute(path)?)
    };
    let paths = Paths {
        root: path("--root")?,
        plugin: path("--plugin")?,
        guest: path("--guest")?,
        mutants: path("--mutants")?,
        work: path("--work")?,
    };
    match given.into_keys().next() {
        Some(unknown) => Err(format!("unknown argument {unknown}").into()),
        None => Ok((paths, seed, only)),
    }
}
