//! Durability levels: how long a returned commit may be lost, chosen per database and per transaction.

use std::fmt;
use std::str::FromStr;

/// Durability of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// A commit that returned survives a power failure.
    #[default]
    Sync,
    /// A commit becomes durable at most this long after it returned; commits in between share one sync.
    Group {
        /// Maximum time that a returned commit may stay undurable.
        interval_ms: u32,
    },
    /// Durable at some later time. After a crash the state is still a consistent prefix.
    None,
}

/// Error of a string that is not a durability level.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown durability '{0}': use 'sync', 'group:10ms' (any number of milliseconds) or 'none'")]
pub struct ParseDurabilityError(String);

impl FromStr for Durability {
    type Err = ParseDurabilityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let lower = text.trim().to_ascii_lowercase();
        let unknown = || ParseDurabilityError(text.to_string());
        match lower.as_str() {
            "sync" => Ok(Durability::Sync),
            "none" => Ok(Durability::None),
            _ => {
                let rest = lower.strip_prefix("group:").ok_or_else(unknown)?;
                let digits = rest.strip_suffix("ms").unwrap_or(rest);
                let interval_ms: u32 = digits.parse().map_err(|_| unknown())?;
                if interval_ms == 0 {
                    return Err(unknown());
                }
                Ok(Durability::Group { interval_ms })
            }
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Durability::Sync => f.write_str("sync"),
            Durability::Group { interval_ms } => write!(f, "group:{interval_ms}ms"),
            Durability::None => f.write_str("none"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_read_back_as_they_print() {
        for level in [Durability::Sync, Durability::Group { interval_ms: 10 }, Durability::None] {
            assert_eq!(level.to_string().parse::<Durability>(), Ok(level));
        }
        assert_eq!("GROUP:5".parse(), Ok(Durability::Group { interval_ms: 5 }));
    }

    #[test]
    fn other_words_are_refused_by_name() {
        for text in ["", "group", "group:0ms", "group:-1", "always"] {
            let error = text.parse::<Durability>().unwrap_err();
            assert!(error.to_string().contains(&format!("'{text}'")), "{error}");
        }
    }
}
