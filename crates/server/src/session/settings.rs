//! Settings of the session that concern the connection: its timeouts, and the parameters that clients are
//! told.
//!
//! The settings are the session's ([`entresol::query`]); here are the values read last, and their version, so
//! that a statement costs the reading of a number.

use crate::values::temporal::{UTC, Zone};
use crate::wire::backend::Output;
use entresol::query::Session;
use std::time::Duration;

/// Values read from a session's settings.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    version: Option<u64>,
    /// `statement_timeout`
    pub(crate) statement: Option<Duration>,
    /// `idle_in_transaction_session_timeout`
    pub(crate) idle_in_transaction: Option<Duration>,
    /// `idle_session_timeout`
    pub(crate) idle: Option<Duration>,
    /// `TimeZone`
    pub(crate) zone: Zone,
    zone_name: String,
    /// Parameters that the client was told.
    reported: Vec<(&'static str, String)>,
    told_version: Option<u64>,
}

impl Settings {
    /// Reads the session's settings if they have changed.
    pub(crate) fn refresh(&mut self, session: &Session) {
        let version = Some(session.settings_version());
        if self.version != version {
            self.version = version;
            self.statement = session.time_setting("statement_timeout");
            self.idle_in_transaction = session.time_setting("idle_in_transaction_session_timeout");
            self.idle = session.time_setting("idle_session_timeout");
            self.zone_name = session.setting("TimeZone").unwrap_or_default();
            self.zone = Zone::named(&self.zone_name);
        }
    }

    /// The name of the zone.
    pub(crate) fn zone_name(&self) -> &str {
        if self.zone_name.is_empty() { UTC } else { &self.zone_name }
    }

    /// Tells the client the parameters that have changed; all at first.
    pub(crate) fn report_changes(&mut self, session: &Session, out: &mut Output) {
        let version = Some(session.settings_version());
        if self.told_version == version {
            return;
        }
        self.told_version = version;
        let now = session.reported_settings();
        for (name, value) in &now {
            if !self.reported.iter().any(|reported| reported.0 == *name && reported.1 == *value) {
                out.parameter(name, value);
            }
        }
        self.reported = now;
    }
}

/// The settings in the text of the start-up parameter `options`: `-c name=value` and `--name=value`. A
/// backslash stands before a blank that is part of a value.
pub(crate) fn options(text: &str) -> Vec<(String, String)> {
    let mut words = vec![String::new()];
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let last = words.len() - 1;
        match c {
            '\\' => words[last].extend(chars.next()),
            c if c.is_ascii_whitespace() => words.push(String::new()),
            c => words[last].push(c),
        }
    }
    let setting = |word: &String| {
        let word = word.strip_prefix("-c").or_else(|| word.strip_prefix("--")).unwrap_or(word);
        let (name, value) = word.split_once('=')?;
        Some((name.replace('-', "_"), value.to_owned()))
    };
    words.iter().filter_map(setting).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_settings() {
        let found = options("-c statement_timeout=5s --search-path=a -cgeqo=off  -c x=a\\ b");
        let expected = [("statement_timeout", "5s"), ("search_path", "a"), ("geqo", "off"), ("x", "a b")];
        assert_eq!(found, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
}
