//! Options of sources and topologies: `WITH (name = 'value', ...)`.

use crate::error::{Error, Result};
use crate::parser::durations::{interval, invalid};
use std::str::FromStr;
use std::time::Duration;

/// Options of a statement, each of which must be taken.
pub(crate) struct StreamOptions {
    of: String,
    options: Vec<(String, String)>,
}

impl StreamOptions {
    /// Options of an object, which errors name.
    pub(crate) fn new(of: String, options: &[(String, String)]) -> StreamOptions {
        StreamOptions { of, options: options.to_vec() }
    }

    /// Takes an option.
    pub(crate) fn take(&mut self, name: &str) -> Option<String> {
        let at = self.options.iter().position(|(other, _)| other == name)?;
        Some(self.options.swap_remove(at).1)
    }

    /// Takes an option that must be there.
    pub(crate) fn require(&mut self, name: &str) -> Result<String> {
        self.take(name)
            .ok_or_else(|| Error::coded("22023", format!("{} needs the option \"{name}\"", self.of)))
    }

    /// Takes an option and parses it.
    pub(crate) fn parsed<T: FromStr>(&mut self, name: &str) -> Result<Option<T>> {
        let Some(text) = self.take(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| invalid(name, &text))
    }

    /// Takes an option that is an interval.
    pub(crate) fn interval(&mut self, name: &str) -> Result<Option<Duration>> {
        self.take(name).map(|text| interval(name, &text)).transpose()
    }

    /// Checks that all options were taken.
    pub(crate) fn end(self) -> Result<()> {
        match self.options.first() {
            None => Ok(()),
            Some((name, _)) => {
                Err(Error::coded("22023", format!("unrecognized option \"{name}\" of {}", self.of)))
            }
        }
    }
}
