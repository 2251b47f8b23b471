//! Replay of one failing state alone.
//!
//! A failed check prints its state as `seed:fence:survivors`, for a crash during the recovery followed by
//! `/fence:survivors`. With that in [`REPLAY`] the same test checks nothing but that state.

use super::point::Survivors;
use std::fmt;
use std::str::FromStr;

/// Environment variable that names a single state to check.
pub const REPLAY: &str = "ENTRESOL_CRASH_REPLAY";

/// One crash: the fence before which it happens, and the survivors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Crash {
    pub(super) fence: u64,
    pub(super) survivors: Survivors,
}

/// Crash of a history, then crashes of the recoveries from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Trail {
    pub(super) seed: u64,
    pub(super) crashes: Vec<Crash>,
}

impl Trail {
    /// Trail that the environment names. Panics if it cannot be parsed.
    pub(super) fn from_environment() -> Option<Trail> {
        let text = std::env::var(REPLAY).ok().filter(|text| !text.is_empty())?;
        Some(text.parse().unwrap_or_else(|error| panic!("{REPLAY}: {error}")))
    }

    /// This trail, one crash longer.
    pub(super) fn with(&self, fence: u64, survivors: Survivors) -> Trail {
        let mut longer = self.clone();
        longer.crashes.push(Crash { fence, survivors });
        longer
    }
}

impl fmt::Display for Trail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.seed)?;
        for (depth, crash) in self.crashes.iter().enumerate() {
            let mark = if depth == 0 { ':' } else { '/' };
            write!(f, "{mark}{}:{}", crash.fence, crash.survivors)?;
        }
        Ok(())
    }
}

impl FromStr for Trail {
    type Err = String;

    fn from_str(text: &str) -> Result<Trail, String> {
        let number = |text: &str| text.parse::<u64>().map_err(|_| format!("'{text}' is not a number"));
        let (seed, crashes) =
            text.split_once(':').ok_or("expected seed:fence:survivors[/fence:survivors]")?;
        let crash = |text: &str| {
            let (fence, survivors) =
                text.split_once(':').ok_or_else(|| format!("'{text}': expected fence:survivors"))?;
            Ok::<_, String>(Crash { fence: number(fence)?, survivors: survivors.parse()? })
        };
        Ok(Trail { seed: number(seed)?, crashes: crashes.split('/').map(crash).collect::<Result<_, _>>()? })
    }
}

/// Command that checks a state again, as far as this process knows how it was started.
pub(super) fn command(trail: &Trail, test: Option<&str>) -> String {
    let package = std::env::var("CARGO_PKG_NAME").unwrap_or_else(|_| "PACKAGE".to_string());
    let binary = std::env::current_exe().ok().and_then(|path| {
        let stem = path.file_stem()?.to_str()?.to_string();
        // Cargo puts a hash behind the name of a test.
        let name = stem.rsplit_once('-').map_or(stem.clone(), |(name, _)| name.to_string());
        Some(if package.replace('-', "_") == name { "--lib".to_string() } else { format!("--test {name}") })
    });
    let test = test.filter(|name| *name != "main").unwrap_or("TEST");
    let binary = binary.unwrap_or_else(|| "--test BINARY".to_string());
    format!("{REPLAY}='{trail}' cargo test -p {package} {binary} -- --exact {test} --nocapture")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trails_read_back_as_they_are_printed() {
        let all = [
            Survivors::Fenced,
            Survivors::Flushed,
            Survivors::Everything,
            Survivors::OnlyEvicted,
            Survivors::Chosen(77),
            Survivors::Only(1),
            Survivors::Without(2),
            Survivors::Oldest(3),
            Survivors::Newest(4),
            Survivors::OnlyLine(5),
            Survivors::WithoutLine(6),
            Survivors::Lines(7),
            Survivors::Random(8),
            Survivors::RandomLines(9),
        ];
        for survivors in all {
            let trail = Trail { seed: 5, crashes: vec![] }.with(12, survivors).with(3, Survivors::Flushed);
            assert_eq!(trail.to_string().parse(), Ok(trail));
        }
        for wrong in ["", "1", "1:2", "x:1:fenced", "1:2:some", "1:2:fenced/3", "1:2:only-x"] {
            assert!(wrong.parse::<Trail>().is_err(), "{wrong}");
        }
    }
}
