//! Settings of a session: those that PostgreSQL clients set when they connect, and our own.
//!
//! - One table, [`SETTINGS`], has the name, kind, default and meaning of each. Names fold as PostgreSQL's do.
//! - A setting whose effect Entresol lacks accepts only the values that describe Entresol's behaviour: a
//!   client never relies on a behaviour that is not there. Settings that only tune are accepted and shown.
//! - `SET LOCAL` lasts until the end of the transaction block. A block that is rolled back undoes its SETs.
//! - Options of DataFusion (`datafusion.…`) are stored by DataFusion. Other names with a point, as `app.tenant`, are settings
//!   of the application: any string, known from the first SET on.
//! - Clients on the wire are told the values of [`REPORTED`] when they connect and when they change.
//!
//! Memory: one string per changed setting, at most [`VALUE_BYTES_MAX`] long; of the application's at most [`CUSTOM_MAX`].

use crate::error::{Error, Result};
use crate::postgres::time_zones;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Maximum bytes of a value of a setting.
pub(crate) const VALUE_BYTES_MAX: usize = 1024;
/// Maximum of settings of the application, and of the bytes of the name of one.
const CUSTOM_MAX: usize = 256;
const CUSTOM_NAME_BYTES_MAX: usize = 63;

/// Values that a setting accepts.
#[derive(Debug, Clone, Copy)]
enum SettingType {
    /// Any string.
    Text,
    /// on or off.
    Boolean,
    /// One of these; the first of several with the same meaning is shown.
    OneOf(&'static [&'static str]),
    /// One of these, which all mean the first.
    Always(&'static [&'static str]),
    /// Integer between these.
    Integer(i64, i64),
    /// Time in milliseconds, or with a unit.
    Milliseconds,
    /// Durability level.
    Durability,
    /// Isolation level.
    Isolation,
    /// Time zone.
    Zone,
    /// Cannot be set.
    ReadOnly,
}

/// Setting of a session.
#[derive(Debug, Clone)]
pub(crate) struct Setting {
    pub(crate) name: Cow<'static, str>,
    kind: SettingType,
    default: &'static str,
    pub(crate) help: &'static str,
}

const fn setting(
    name: &'static str,
    kind: SettingType,
    default: &'static str,
    help: &'static str,
) -> Setting {
    Setting { name: Cow::Borrowed(name), kind, default, help }
}

const MESSAGE_LEVELS: &[&str] =
    &["notice", "debug5", "debug4", "debug3", "debug2", "debug1", "log", "warning", "error"];
const UTF8: &[&str] = &["UTF8", "UTF-8", "UNICODE"];

/// Version of PostgreSQL that clients are told; they choose their catalog queries by it.
pub const SERVER_VERSION: &str = concat!("16.0 (Entresol ", env!("CARGO_PKG_VERSION"), ")");

/// All settings, by name.
pub(crate) const SETTINGS: &[Setting] = &[
    setting("application_name", SettingType::Text, "", "Name of the program that uses the session."),
    setting("bytea_output", SettingType::Always(&["hex"]), "hex", "Output format of bytea."),
    setting(
        "check_function_bodies",
        SettingType::Boolean,
        "on",
        "No effect: there are no functions to create.",
    ),
    setting(
        "client_encoding",
        SettingType::Always(UTF8),
        "UTF8",
        "Encoding of strings sent to and from the client.",
    ),
    setting(
        "client_min_messages",
        SettingType::OneOf(MESSAGE_LEVELS),
        "notice",
        "Lowest level of messages sent to the client.",
    ),
    setting(
        "DateStyle",
        SettingType::Always(&["ISO, MDY", "ISO", "ISO,MDY", "ISO, DMY", "ISO, YMD", "ISO,DMY", "ISO,YMD"]),
        "ISO, MDY",
        "Format of dates: 2024-12-31.",
    ),
    setting(
        "default_transaction_isolation",
        SettingType::Isolation,
        "repeatable read",
        "Default isolation level of transactions.",
    ),
    setting(
        "default_transaction_read_only",
        SettingType::Boolean,
        "off",
        "Default read-only mode of transactions.",
    ),
    setting(
        "durability",
        SettingType::Durability,
        "sync",
        "Durability of commits: sync, group:TIME or none.",
    ),
    setting("extra_float_digits", SettingType::Integer(-15, 3), "1", "No effect: doubles are shown exactly."),
    setting(
        "idle_in_transaction_session_timeout",
        SettingType::Milliseconds,
        "0",
        "Maximum idle time inside of a transaction block; 0: no limit.",
    ),
    setting(
        "idle_session_timeout",
        SettingType::Milliseconds,
        "0",
        "Maximum idle time outside of a transaction block; 0: no limit.",
    ),
    setting("in_hot_standby", SettingType::ReadOnly, "off", "There is no standby."),
    setting("integer_datetimes", SettingType::ReadOnly, "on", "Timestamps are integers."),
    setting("IntervalStyle", SettingType::Always(&["postgres"]), "postgres", "Output format of intervals."),
    setting("is_superuser", SettingType::ReadOnly, "on", "True if the user has all privileges."),
    setting("jit", SettingType::Boolean, "off", "No effect: nothing is compiled."),
    setting(
        "lock_timeout",
        SettingType::Milliseconds,
        "0",
        "No effect: only writers of tables with locks wait for any, for at most five seconds.",
    ),
    setting(
        "max_identifier_length",
        SettingType::ReadOnly,
        "63",
        "Maximum length of a column name, in bytes.",
    ),
    setting("max_index_keys", SettingType::ReadOnly, "16", "Maximum number of columns of an index."),
    setting(
        "max_snapshot_age",
        SettingType::ReadOnly,
        "0",
        "Age at which the database ends the snapshot of a session; 0: none.",
    ),
    setting("memory_max", SettingType::ReadOnly, "0", "Memory of the database; 0: no limit."),
    setting("row_security", SettingType::Boolean, "on", "No effect: there are no policies."),
    setting(
        "search_path",
        SettingType::Text,
        "\"$user\", public",
        "Schemas of names without one; tables are in public.",
    ),
    setting("server_encoding", SettingType::ReadOnly, "UTF8", "Encoding of stored strings."),
    setting(
        "server_version",
        SettingType::ReadOnly,
        SERVER_VERSION,
        "PostgreSQL version reported to clients.",
    ),
    setting(
        "server_version_num",
        SettingType::ReadOnly,
        "160000",
        "PostgreSQL version reported to clients, as a number.",
    ),
    setting("session_authorization", SettingType::ReadOnly, "", "User of the session."),
    setting(
        "standard_conforming_strings",
        SettingType::Always(&["on", "true", "yes", "1"]),
        "on",
        "Backslashes have no special meaning in '…'.",
    ),
    setting("statement_timeout", SettingType::Milliseconds, "0", "Maximum time of a statement; 0: no limit."),
    setting("synchronize_seqscans", SettingType::Boolean, "on", "No effect: scans begin at the first row."),
    setting("TimeZone", SettingType::Zone, time_zones::UTC, "The zone of timestamps with one."),
    setting(
        "transaction_isolation",
        SettingType::Isolation,
        "repeatable read",
        "Isolation level of the open transaction block.",
    ),
    setting(
        "transaction_read_only",
        SettingType::Boolean,
        "off",
        "Read-only mode of the open transaction block.",
    ),
    setting(
        "xmloption",
        SettingType::OneOf(&["content", "document"]),
        "content",
        "No effect: there is no XML.",
    ),
];

/// Settings reported to clients on the wire.
pub(crate) const REPORTED: &[&str] = &[
    "application_name",
    "client_encoding",
    "DateStyle",
    "default_transaction_read_only",
    "in_hot_standby",
    "integer_datetimes",
    "IntervalStyle",
    "is_superuser",
    "server_encoding",
    "server_version",
    "session_authorization",
    "standard_conforming_strings",
    "TimeZone",
];

/// Setting of this name, of the application if it is none of ours and has a point.
pub(crate) fn find(name: &str) -> Result<Cow<'static, Setting>> {
    if let Some(setting) = SETTINGS.iter().find(|setting| setting.name.eq_ignore_ascii_case(name)) {
        return Ok(Cow::Borrowed(setting));
    }
    if !is_custom(name) {
        return Err(unrecognized(name));
    }
    let (name, kind) = (Cow::Owned(name.to_lowercase()), SettingType::Text);
    Ok(Cow::Owned(Setting { name, kind, default: "", help: "Setting of the application." }))
}

/// Error for a name that no setting has.
pub(crate) fn unrecognized(name: &str) -> Error {
    Error::coded("42704", format!("unrecognized configuration parameter \"{name}\""))
}

/// Tells whether a name is one of a setting of the application: two or more words with points between them.
fn is_custom(name: &str) -> bool {
    let is_word = |word: &str| {
        let mut letters = word.chars();
        letters.next().is_some_and(|first| first.is_alphabetic() || first == '_')
            && letters.all(|letter| letter.is_alphanumeric() || letter == '_' || letter == '$')
    };
    let is_ours = name.split('.').next().is_some_and(|first| first.eq_ignore_ascii_case("datafusion"));
    name.contains('.') && !is_ours && name.len() <= CUSTOM_NAME_BYTES_MAX && name.split('.').all(is_word)
}

impl Setting {
    /// Value as stored and shown, if it is valid.
    pub(crate) fn check(&self, value: &str) -> Result<String> {
        if matches!(self.kind, SettingType::ReadOnly) {
            return Err(Error::coded("55P02", format!("parameter \"{}\" cannot be changed", self.name)));
        }
        // Blanks around a value are those of the application, if the setting is.
        self.checked(if self.is_custom() { value } else { value.trim() }).ok_or_else(|| {
            let name = &self.name;
            let choices = match self.kind {
                SettingType::OneOf(choices) => format!(": it is one of {}", choices.join(", ")),
                SettingType::Always(choices) => format!(": only {} is supported", choices[0]),
                SettingType::Integer(least, most) => format!(": it is between {least} and {most}"),
                SettingType::Durability => match value.parse::<entresol_memory::Durability>() {
                    Err(error) => format!(": {error}"),
                    Ok(_) => String::new(),
                },
                _ => String::new(),
            };
            Error::coded("22023", format!("invalid value for parameter \"{name}\": \"{value}\"{choices}"))
        })
    }

    /// Returns true if a change of the setting has no effect outside of the settings.
    pub(crate) fn is_only_a_value(&self) -> bool {
        !["durability", "TimeZone", "transaction_isolation", "transaction_read_only"].contains(&&*self.name)
    }

    /// Returns true if it is one of the application.
    pub(crate) fn is_custom(&self) -> bool {
        matches!(self.name, Cow::Owned(_))
    }

    fn checked(&self, value: &str) -> Option<String> {
        let is = |choice: &&&str| choice.eq_ignore_ascii_case(value);
        match self.kind {
            SettingType::Text => {
                (value.len() <= VALUE_BYTES_MAX && !value.contains('\0')).then(|| value.to_owned())
            }
            SettingType::Boolean => boolean(value).map(|on| if on { "on" } else { "off" }.to_owned()),
            SettingType::OneOf(choices) => choices.iter().find(is).map(|&choice| choice.to_owned()),
            // Clients spell it in many ways, even quoted: only letters and digits count, as in PostgreSQL.
            SettingType::Always(UTF8) => {
                let plain: String = value.chars().filter(char::is_ascii_alphanumeric).collect();
                ["utf8", "unicode"].contains(&plain.to_ascii_lowercase().as_str()).then(|| UTF8[0].to_owned())
            }
            SettingType::Always(choices) => choices.iter().find(is).map(|_| choices[0].to_owned()),
            SettingType::Integer(least, most) => {
                let number: i64 = value.parse().ok()?;
                (least..=most).contains(&number).then(|| number.to_string())
            }
            SettingType::Milliseconds => milliseconds(value).map(shown_time),
            SettingType::Durability => {
                value.parse::<entresol_memory::Durability>().ok().map(|durability| durability.to_string())
            }
            SettingType::Isolation => {
                let level = value.to_ascii_lowercase().split_ascii_whitespace().collect::<Vec<_>>().join(" ");
                let levels = ["read uncommitted", "read committed", "repeatable read", "serializable"];
                levels.contains(&level.as_str()).then_some(level)
            }
            SettingType::Zone => time_zones::named(value),
            SettingType::ReadOnly => None,
        }
    }
}

fn boolean(value: &str) -> Option<bool> {
    match value.to_ascii_lowercase().as_str() {
        "on" | "true" | "yes" | "1" | "t" | "y" => Some(true),
        "off" | "false" | "no" | "0" | "f" | "n" => Some(false),
        _ => None,
    }
}

/// Units of times, from the longest.
const UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000), ("ms", 1)];

/// Milliseconds of a time such as `5s`; at most PostgreSQL's maximum.
pub(crate) fn milliseconds(text: &str) -> Option<u64> {
    let digits = text.find(|digit: char| !digit.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit.trim() {
        "" => 1,
        unit => UNITS.iter().find(|(name, _)| *name == unit)?.1,
    };
    number.parse::<u64>().ok()?.checked_mul(factor).filter(|&time| time <= i32::MAX as u64)
}

/// Formats a time in the longest unit that it is a multiple of.
pub(crate) fn shown_time(time_ms: u64) -> String {
    match UNITS.iter().find(|&&(_, factor)| time_ms > 0 && time_ms.is_multiple_of(factor)) {
        Some((unit, factor)) => format!("{}{unit}", time_ms / factor),
        None => time_ms.to_string(),
    }
}

/// Values of a session's settings.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    /// Initial values of the session.
    initial: BTreeMap<Cow<'static, str>, String>,
    session: BTreeMap<Cow<'static, str>, String>,
    /// Values until the end of the block.
    local: BTreeMap<Cow<'static, str>, String>,
}

impl Settings {
    /// Value of a setting.
    pub(crate) fn get(&self, setting: &Setting) -> &str {
        self.given(setting).map_or(setting.default, String::as_str)
    }

    /// Value that a setting was given.
    fn given(&self, setting: &Setting) -> Option<&String> {
        let name = &*setting.name;
        self.local.get(name).or_else(|| self.session.get(name)).or_else(|| self.initial.get(name))
    }

    /// Returns true if there is such a setting: one of the application is there once it was set.
    pub(crate) fn has(&self, setting: &Setting) -> bool {
        !setting.is_custom() || self.given(setting).is_some()
    }

    /// Value of the setting of this name; empty if there is none.
    pub(crate) fn value(&self, name: &str) -> &str {
        find(name).map_or("", |setting| self.given(&setting).map_or(setting.default, String::as_str))
    }

    /// Refuses one more setting of the application than there may be.
    pub(crate) fn check_room(&self, setting: &Setting) -> Result<()> {
        let custom = self.session.keys().filter(|name| matches!(name, Cow::Owned(_))).count();
        if self.has(setting) || custom < CUSTOM_MAX {
            return Ok(());
        }
        let message =
            format!("no room for setting \"{}\": the session has {custom} of its application", setting.name);
        Err(Error::coded("53400", message))
    }

    /// Sets the initial value, which RESET restores.
    pub(crate) fn set_initial(&mut self, setting: &Setting, value: String) {
        self.initial.insert(setting.name.clone(), value);
    }

    /// Sets a checked value; None restores the initial one.
    pub(crate) fn set(&mut self, setting: &Setting, value: Option<String>, local: bool) {
        let name = &setting.name;
        let initial = || self.initial.get(name).map_or(setting.default, String::as_str).to_owned();
        let value = value.unwrap_or_else(initial);
        if local {
            if setting.is_custom() {
                // It is known behind the block too.
                self.session.entry(name.clone()).or_default();
            }
            self.local.insert(name.clone(), value);
        } else {
            self.local.remove(name);
            self.session.insert(name.clone(), value);
        }
    }

    /// Resets all settings to their initial values.
    pub(crate) fn reset(&mut self) {
        // Those of the application are known on, and empty if the client gave them no initial value.
        let initial = &self.initial;
        self.session.retain(|name, _| matches!(name, Cow::Owned(_)) && !initial.contains_key(name));
        self.session.values_mut().for_each(String::clear);
        self.local.clear();
    }

    /// Returns true if a value lasts only until the end of the block.
    pub(crate) fn has_local(&self) -> bool {
        !self.local.is_empty()
    }

    /// Ends a block: local values end.
    pub(crate) fn end_block(&mut self) {
        self.local.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_the_application_go_back_to_their_initial_values() {
        let mut settings = Settings::default();
        let (given, other) = (find("app.given").unwrap(), find("App.Other").unwrap());
        settings.set_initial(&given, "first".into());
        assert!(settings.has(&given) && !settings.has(&other));
        settings.set(&given, Some("second".into()), false);
        settings.set(&other, Some("second".into()), true);
        assert_eq!((settings.get(&given), settings.value("app.other")), ("second", "second"));
        settings.reset();
        assert_eq!((settings.get(&given), settings.value("app.other")), ("first", ""));
        assert!(settings.has(&other));
        for number in 1..CUSTOM_MAX {
            settings.set(&find(&format!("app.n{number}")).unwrap(), Some(String::new()), false);
        }
        assert!(settings.check_room(&other).is_ok());
        assert!(settings.check_room(&find("app.more").unwrap()).is_err());
    }

    fn checked(name: &str, value: &str) -> Result<String> {
        find(name)?.check(value)
    }

    #[test]
    fn every_default_is_a_value_and_names_are_sorted() {
        for setting in SETTINGS {
            if !matches!(setting.kind, SettingType::ReadOnly) {
                assert_eq!(setting.check(setting.default).unwrap(), setting.default, "{}", setting.name);
            }
            assert!(!setting.help.is_empty());
        }
        assert!(REPORTED.iter().all(|name| find(name).is_ok_and(|setting| setting.name == *name)));
        let names: Vec<String> = SETTINGS.iter().map(|setting| setting.name.to_lowercase()).collect();
        assert!(names.is_sorted(), "{names:?}");
    }

    #[test]
    fn values_are_checked_and_shown_as_postgresql_shows_them() {
        assert_eq!(checked("STATEMENT_TIMEOUT", "5000").unwrap(), "5s");
        assert_eq!(checked("statement_timeout", "1500ms").unwrap(), "1500ms");
        assert_eq!(checked("statement_timeout", "2min").unwrap(), "2min");
        assert_eq!(checked("timezone", "etc/utc").unwrap(), "UTC");
        assert_eq!(checked("TimeZone", "+02:00").unwrap(), "+02:00");
        assert_eq!(checked("datestyle", "iso, dmy").unwrap(), "ISO, MDY");
        assert_eq!(checked("client_encoding", "utf-8").unwrap(), "UTF8");
        assert_eq!(checked("default_transaction_read_only", "TRUE").unwrap(), "on");
        assert_eq!(checked("default_transaction_isolation", "READ  Committed").unwrap(), "read committed");
        for (name, value, code) in [
            ("client_encoding", "LATIN1", "22023"),
            ("statement_timeout", "-1", "22023"),
            ("statement_timeout", "5 weeks", "22023"),
            ("statement_timeout", "99999999999999999999", "22023"),
            ("extra_float_digits", "4", "22023"),
            ("TimeZone", "Europe/Nowhere", "22023"),
            ("standard_conforming_strings", "off", "22023"),
            ("server_version", "17", "55P02"),
            ("nothing", "1", "42704"),
        ] {
            let error = checked(name, value).unwrap_err();
            assert!(matches!(error, Error::Coded { sqlstate, .. } if sqlstate == code), "{name}: {error:?}");
        }
    }
}
