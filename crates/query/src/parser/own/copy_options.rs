//! Options of COPY, in the new syntax `WITH (FORMAT csv, …)` and in the old one, `WITH CSV …`.

use crate::error::{Error, Result};
use datafusion::sql::sqlparser::ast::{CopyLegacyCsvOption, CopyLegacyOption, CopyOption};

/// Format of rows on the client's side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Layout {
    Lines(Options),
    /// PostgreSQL's binary format, with values as on its wire: encoded by the server.
    Binary,
}

/// Format of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// Special characters are escaped by backslashes.
    Text,
    /// Values with special characters are quoted.
    Csv { quote: u8, escape: u8 },
}

/// All options, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) format: Format,
    pub(crate) delimiter: u8,
    /// String that stands for NULL.
    pub(crate) null: String,
    /// True if the first line has the names of the columns.
    pub(crate) header: bool,
}

/// Options as written.
#[derive(Default)]
struct Given {
    kind: Option<Kind>,
    delimiter: Option<char>,
    null: Option<String>,
    header: Option<bool>,
    quote: Option<char>,
    escape: Option<char>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Csv,
    Binary,
}

fn once<T>(place: &mut Option<T>, value: T) -> Result<()> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(Error::coded("42601", "conflicting or redundant options")),
    }
}

impl Layout {
    pub(crate) fn new(options: &[CopyOption], legacy: &[CopyLegacyOption]) -> Result<Layout> {
        let mut given = Given::default();
        for option in options {
            match option {
                CopyOption::Format(name) => match name.value.to_ascii_lowercase().as_str() {
                    "text" => once(&mut given.kind, Kind::Text)?,
                    "csv" => once(&mut given.kind, Kind::Csv)?,
                    "binary" => once(&mut given.kind, Kind::Binary)?,
                    other => {
                        return Err(Error::coded("22023", format!("COPY format \"{other}\" not recognized")));
                    }
                },
                CopyOption::Delimiter(delimiter) => once(&mut given.delimiter, *delimiter)?,
                CopyOption::Null(null) => once(&mut given.null, null.clone())?,
                CopyOption::Header(header) => once(&mut given.header, *header)?,
                CopyOption::Quote(quote) => once(&mut given.quote, *quote)?,
                CopyOption::Escape(escape) => once(&mut given.escape, *escape)?,
                // Reported by a notice when the COPY begins.
                CopyOption::Freeze(_) => {}
                CopyOption::Encoding(name) if is_utf8(name) => {}
                other => return Err(Error::unsupported(format!("COPY with {other}"))),
            }
        }
        for option in legacy {
            match option {
                CopyLegacyOption::Delimiter(delimiter) => once(&mut given.delimiter, *delimiter)?,
                CopyLegacyOption::Null(null) => once(&mut given.null, null.clone())?,
                CopyLegacyOption::Binary => once(&mut given.kind, Kind::Binary)?,
                CopyLegacyOption::Header => once(&mut given.header, true)?,
                CopyLegacyOption::Csv(options) => {
                    once(&mut given.kind, Kind::Csv)?;
                    for option in options {
                        match option {
                            CopyLegacyCsvOption::Header => once(&mut given.header, true)?,
                            CopyLegacyCsvOption::Quote(quote) => once(&mut given.quote, *quote)?,
                            CopyLegacyCsvOption::Escape(escape) => once(&mut given.escape, *escape)?,
                            other => return Err(Error::unsupported(format!("COPY with {other}"))),
                        }
                    }
                }
                other => return Err(Error::unsupported(format!("COPY with {other}"))),
            }
        }
        given.checked()
    }
}

fn is_utf8(name: &str) -> bool {
    ["utf8", "utf-8", "unicode"].iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// Option value of one single-byte character.
fn byte(what: &str, value: char) -> Result<u8> {
    match u8::try_from(value) {
        Ok(byte) if byte.is_ascii() => Ok(byte),
        _ => Err(invalid(format!("COPY {what} must be a single one-byte character"))),
    }
}

fn invalid(message: impl Into<String>) -> Error {
    Error::coded("22023", message)
}

impl Given {
    fn checked(self) -> Result<Layout> {
        if self.kind == Some(Kind::Binary) {
            return self.binary();
        }
        let csv = self.kind == Some(Kind::Csv);
        let delimiter = byte("delimiter", self.delimiter.unwrap_or(if csv { ',' } else { '\t' }))?;
        let null = self.null.unwrap_or_else(|| if csv { String::new() } else { "\\N".to_owned() });
        if null.contains(['\n', '\r']) {
            return Err(invalid("COPY null representation cannot use newline or carriage return"));
        }
        if matches!(delimiter, b'\n' | b'\r') {
            return Err(invalid("COPY delimiter cannot be newline or carriage return"));
        }
        if null.as_bytes().contains(&delimiter) {
            return Err(invalid("COPY delimiter character must not appear in the NULL specification"));
        }
        let format = if csv {
            let quote = byte("quote", self.quote.unwrap_or('"'))?;
            let escape = byte("escape", self.escape.unwrap_or(char::from(quote)))?;
            if quote == delimiter {
                return Err(invalid("COPY delimiter and quote must be different"));
            }
            if null.as_bytes().contains(&quote) {
                return Err(invalid("CSV quote character must not appear in the NULL specification"));
            }
            Format::Csv { quote, escape }
        } else {
            // Letters, digits, and the backslash have a meaning behind a backslash.
            if delimiter.is_ascii_alphanumeric() || matches!(delimiter, b'\\' | b'.') {
                let shown = char::from(delimiter);
                return Err(invalid(format!("COPY delimiter cannot be \"{shown}\"")));
            }
            if self.quote.is_some() {
                return Err(invalid("COPY QUOTE requires CSV mode"));
            }
            if self.escape.is_some() {
                return Err(invalid("COPY ESCAPE requires CSV mode"));
            }
            Format::Text
        };
        Ok(Layout::Lines(Options { format, delimiter, null, header: self.header.unwrap_or(false) }))
    }

    /// Checks that no option is about lines, which the binary format lacks.
    fn binary(self) -> Result<Layout> {
        let said = [
            ("DELIMITER", self.delimiter.is_some()),
            ("NULL", self.null.is_some()),
            ("HEADER", self.header.is_some()),
            ("QUOTE", self.quote.is_some()),
            ("ESCAPE", self.escape.is_some()),
        ];
        match said.into_iter().find(|(_, said)| *said) {
            Some((option, _)) => {
                Err(Error::coded("42601", format!("cannot specify {option} in BINARY mode")))
            }
            None => Ok(Layout::Binary),
        }
    }
}
