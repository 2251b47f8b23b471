//! Settings that belong to the connection: what PostgreSQL's clients set when they start, and time limits.
//!
//! Their values are checked where another would change what a client sees; the rest is kept and shown. All other
//! settings are the session's.

use std::sync::Arc;
use std::time::Duration;

use entresol::arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use crate::error::{Outcome, Report};
use crate::security::roles::Role;

/// The version that clients are told: of PostgreSQL, whose protocol and dialect this is, and ours.
pub(crate) const SERVER_VERSION: &str = concat!("16.0 (Entresol ", env!("CARGO_PKG_VERSION"), ")");

/// What a value must be.
#[derive(Debug, Clone, Copy)]
enum Rule {
    /// Anything.
    Any,
    /// One of these; case does not count. The first is what is shown.
    One(&'static [&'static str]),
    /// On or off.
    Switch,
    /// Milliseconds, or a number with a unit.
    Time,
    /// Cannot be set.
    Fixed,
}

struct Known {
    name: &'static str,
    default: &'static str,
    rule: Rule,
    /// Whether clients are told its value when it changes.
    reported: bool,
}

const fn known(name: &'static str, default: &'static str, rule: Rule, reported: bool) -> Known {
    Known { name, default, rule, reported }
}

const ON: Rule = Rule::One(&["on", "true", "yes", "1"]);

/// Sorted by name, as SHOW ALL would have it.
const KNOWN: &[Known] = &[
    known("DateStyle", "ISO, MDY", Rule::One(&["ISO, MDY", "ISO", "ISO,MDY", "iso, mdy", "MDY"]), true),
    known("IntervalStyle", "postgres", Rule::One(&["postgres"]), true),
    known("TimeZone", "UTC", Rule::One(&["UTC", "Etc/UTC", "GMT", "Z", "+00", "0"]), true),
    known("application_name", "", Rule::Any, true),
    known("bytea_output", "hex", Rule::One(&["hex"]), false),
    known("client_encoding", "UTF8", Rule::One(&["UTF8", "UTF-8", "unicode", "SQL_ASCII"]), true),
    known("client_min_messages", "notice", Rule::Any, false),
    known("extra_float_digits", "1", Rule::One(&["1", "2", "3", "0"]), false),
    known("idle_in_transaction_session_timeout", "0", Rule::Time, false),
    known("in_hot_standby", "off", Rule::Fixed, true),
    known("integer_datetimes", "on", Rule::Fixed, true),
    known("is_superuser", "on", Rule::Fixed, true),
    known("jit", "off", Rule::Any, false),
    known("lock_timeout", "0", Rule::Time, false),
    known("row_security", "on", Rule::Switch, false),
    known("search_path", "\"$user\", public", Rule::Any, false),
    known("server_encoding", "UTF8", Rule::Fixed, true),
    known("server_version", SERVER_VERSION, Rule::Fixed, true),
    known("server_version_num", "160000", Rule::Fixed, false),
    known("session_authorization", "", Rule::Fixed, true),
    known("standard_conforming_strings", "on", ON, true),
    known("statement_timeout", "0", Rule::Time, false),
];

/// The settings of a connection: values that differ from the defaults.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    values: Vec<(&'static str, String)>,
    /// What the client gave when it connected: RESET goes back to it.
    started: Vec<(&'static str, String)>,
}

/// A statement about a setting.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Change<'s> {
    Set { name: &'static str, value: &'s str },
    Reset { name: &'static str },
    Show { name: &'static str },
}

/// The column that SHOW gives.
pub(crate) fn column(name: &str) -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new(name, DataType::Utf8, false)]))
}

fn find(name: &str) -> Option<&'static Known> {
    KNOWN.iter().find(|known| known.name.eq_ignore_ascii_case(name))
}

/// A statement about one of these settings; `None` if it is the session's business.
pub(crate) fn parse(sql: &str) -> Option<Change<'_>> {
    let (verb, rest) = word(sql)?;
    if verb.eq_ignore_ascii_case("show") {
        let (name, rest) = word(rest)?;
        let known = find(name).filter(|_| rest.trim().is_empty())?;
        return Some(Change::Show { name: known.name });
    }
    if verb.eq_ignore_ascii_case("reset") {
        let (name, rest) = word(rest)?;
        let known = find(name).filter(|_| rest.trim().is_empty())?;
        return Some(Change::Reset { name: known.name });
    }
    if !verb.eq_ignore_ascii_case("set") {
        return None;
    }
    let (mut name, mut rest) = word(rest)?;
    if name.eq_ignore_ascii_case("session") {
        (name, rest) = word(rest)?;
    }
    // SET NAMES 'x', SET TIME ZONE 'x'.
    if name.eq_ignore_ascii_case("names") {
        return Some(Change::Set { name: "client_encoding", value: unquoted(rest) });
    }
    if let ("time", Some((zone, rest))) = (name.to_ascii_lowercase().as_str(), word(rest))
        && zone.eq_ignore_ascii_case("zone")
    {
        return Some(Change::Set { name: "TimeZone", value: unquoted(rest) });
    }
    let known = find(name)?;
    let rest = rest.trim_start();
    let value = match rest.strip_prefix('=') {
        Some(value) => value,
        None => word(rest).filter(|(to, _)| to.eq_ignore_ascii_case("to"))?.1,
    };
    match unquoted(value) {
        value if value.eq_ignore_ascii_case("default") => Some(Change::Reset { name: known.name }),
        value => Some(Change::Set { name: known.name, value }),
    }
}

fn word(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

fn unquoted(value: &str) -> &str {
    let value = value.trim();
    let inner = |quote| value.strip_prefix(quote)?.strip_suffix(quote);
    inner('\'').or_else(|| inner('"')).unwrap_or(value)
}

impl Settings {
    /// A setting of the startup packet; unknown ones are kept by nobody.
    pub(crate) fn start(&mut self, name: &str, value: &str) -> Outcome<()> {
        let Some(known) = find(name) else { return Ok(()) };
        // Drivers send the zone of their machine; times are in UTC whatever they send, and say so.
        if known.name != "TimeZone" {
            self.set(known.name, value)?;
        }
        self.started = self.values.clone();
        Ok(())
    }

    /// `-c name=value` and `--name=value`, as many as there are.
    pub(crate) fn start_options(&mut self, options: &str) -> Outcome<()> {
        for option in options.split_ascii_whitespace() {
            let option = option.strip_prefix("-c").or_else(|| option.strip_prefix("--")).unwrap_or(option);
            if let Some((name, value)) = option.split_once('=') {
                self.start(&name.replace('-', "_"), value)?;
            }
        }
        Ok(())
    }

    /// Sets a value; the value to report to the client, if it wants to know.
    pub(crate) fn set(&mut self, name: &'static str, value: &str) -> Outcome<Option<String>> {
        let Some(known) = find(name) else { return Ok(None) };
        let refused =
            || Report::error("22023", format!("invalid value for parameter \"{name}\": \"{value}\""));
        let value = match known.rule {
            Rule::Any => value.to_owned(),
            Rule::One(values) => {
                let one = values.iter().find(|one| one.eq_ignore_ascii_case(value)).ok_or_else(refused)?;
                // The other values mean the same as the first, but for the digits, which are all the same to us.
                if name == "extra_float_digits" { (*one).to_owned() } else { values[0].to_owned() }
            }
            Rule::Switch => switch(value).ok_or_else(refused)?.to_owned(),
            Rule::Time => milliseconds(value).ok_or_else(refused)?.to_string(),
            Rule::Fixed => {
                return Err(Report::error("55P02", format!("parameter \"{name}\" cannot be changed")));
            }
        };
        self.values.retain(|(other, _)| *other != name);
        self.values.push((name, value.clone()));
        Ok(known.reported.then_some(value))
    }

    /// Back to what it was when the client connected.
    pub(crate) fn reset(&mut self, name: &'static str) -> Outcome<Option<String>> {
        let started = self.started.iter().find(|(other, _)| *other == name).map(|(_, value)| value.clone());
        let default = find(name).map_or("", |known| known.default);
        self.set(name, &started.unwrap_or_else(|| default.to_owned()))
    }

    pub(crate) fn get(&self, name: &str) -> String {
        let set = self.values.iter().find(|(other, _)| *other == name);
        match set {
            Some((_, value)) => value.clone(),
            None => find(name).map_or("", |known| known.default).to_owned(),
        }
    }

    /// A time limit, if one is set.
    pub(crate) fn time(&self, name: &str) -> Option<Duration> {
        let ms = self.values.iter().find(|(other, _)| *other == name)?.1.parse().ok()?;
        (ms > 0).then(|| Duration::from_millis(ms))
    }

    /// What clients are told when they have connected.
    pub(crate) fn reported(&self, role: &Role) -> Vec<(&'static str, String)> {
        let value = |known: &Known| match known.name {
            "session_authorization" => role.name.clone(),
            "is_superuser" => if role.administrator { "on" } else { "off" }.to_owned(),
            name => self.get(name),
        };
        KNOWN.iter().filter(|known| known.reported).map(|known| (known.name, value(known))).collect()
    }
}

fn switch(value: &str) -> Option<&'static str> {
    match value.to_ascii_lowercase().as_str() {
        "on" | "true" | "yes" | "1" => Some("on"),
        "off" | "false" | "no" | "0" => Some("off"),
        _ => None,
    }
}

/// `250`, `250ms`, `2s`, `1min`, `1h`.
fn milliseconds(value: &str) -> Option<u64> {
    let value = value.trim();
    let digits = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    let number: u64 = value[..digits].parse().ok()?;
    let unit = match value[digits..].trim() {
        "" | "ms" => 1,
        "s" => 1_000,
        "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn statements_about_these_settings_are_recognised() {
        let set = |name, value| Some(Change::Set { name, value });
        assert_eq!(parse("SET application_name = 'x y'"), set("application_name", "x y"));
        assert_eq!(parse("set session DATESTYLE to ISO"), set("DateStyle", "ISO"));
        assert_eq!(parse("SET NAMES 'UTF8'"), set("client_encoding", "UTF8"));
        assert_eq!(parse("SET TIME ZONE 'UTC'"), set("TimeZone", "UTC"));
        assert_eq!(
            parse("SET statement_timeout TO DEFAULT"),
            Some(Change::Reset { name: "statement_timeout" })
        );
        assert_eq!(parse("SHOW server_version"), Some(Change::Show { name: "server_version" }));
        assert_eq!(parse("SHOW durability"), None);
        assert_eq!(parse("SET durability = none"), None);
    }

    #[test]
    fn values_are_checked_and_reset() {
        let mut settings = Settings::default();
        settings.start("application_name", "a").unwrap();
        assert_eq!(settings.set("application_name", "b"), Ok(Some("b".into())));
        assert_eq!(settings.reset("application_name"), Ok(Some("a".into())));
        assert_eq!(settings.set("client_encoding", "LATIN1").unwrap_err().code, "22023");
        assert_eq!(settings.set("client_encoding", "utf-8"), Ok(Some("UTF8".into())));
        settings.set("statement_timeout", "2s").unwrap();
        assert_eq!(settings.time("statement_timeout"), Some(Duration::from_secs(2)));
        assert_eq!(settings.set("statement_timeout", "soon").unwrap_err().code, "22023");
        settings.set("row_security", "false").unwrap();
        assert_eq!(settings.get("row_security"), "off");
    }
}
