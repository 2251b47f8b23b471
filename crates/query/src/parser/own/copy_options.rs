//! Options of COPY, in the new syntax `WITH (FORMAT csv, …)` and in the old one, `WITH CSV …`.

use crate::error::{Error, Result};
use datafusion::sql::sqlparser::ast::{CopyLegacyCsvOption, CopyLegacyOption, CopyOption};

/// Format of rows outside of the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Layout {
    Lines(Options),
    /// PostgreSQL's binary format, with values as on its wire: encoded by the server.
    Binary,
    /// Parquet file; the compression of one that is written.
    Parquet(Compression),
    /// Arrow IPC: the file format or a stream, which the file tells; one that is written is a stream if its name ends
    /// in `.arrows`.
    Arrow,
}

/// Compression of the pages of a Parquet file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Compression {
    None,
    #[default]
    Snappy,
    Lz4,
    Zstd,
}

impl Compression {
    /// Compression of this name.
    pub(crate) fn named(name: &str) -> Result<Compression> {
        Ok(match name.to_ascii_lowercase().as_str() {
            "none" | "uncompressed" => Compression::None,
            "snappy" => Compression::Snappy,
            "lz4" => Compression::Lz4,
            "zstd" => Compression::Zstd,
            _ => {
                let message =
                    format!("COPY compression \"{name}\" not recognized: none, snappy, lz4 or zstd");
                return Err(invalid(message));
            }
        })
    }
}

/// Format of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// Special characters are escaped by backslashes.
    Text,
    /// Values with special characters are quoted.
    Csv { quote: u8, escape: u8 },
    /// Values as they are, each followed by a delimiter: `.tbl` files of the generators of TPC-H and SSB.
    Tbl,
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
struct WrittenOptions {
    kind: Option<OptionKind>,
    delimiter: Option<char>,
    null: Option<String>,
    header: Option<bool>,
    quote: Option<char>,
    escape: Option<char>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum OptionKind {
    Text,
    Csv,
    Tbl,
    Binary,
    Parquet,
    Arrow,
}

impl OptionKind {
    /// Format that a file's name tells, where text is no choice.
    fn of_file(name: &str) -> Option<OptionKind> {
        let ending = name.rsplit_once('.')?.1.to_ascii_lowercase();
        match ending.as_str() {
            "parquet" => Some(OptionKind::Parquet),
            "arrow" | "arrows" | "feather" => Some(OptionKind::Arrow),
            _ => None,
        }
    }

    /// Name of a format without lines.
    fn name(self) -> &'static str {
        match self {
            OptionKind::Text => "TEXT",
            OptionKind::Csv => "CSV",
            OptionKind::Tbl => "TBL",
            OptionKind::Binary => "BINARY",
            OptionKind::Parquet => "PARQUET",
            OptionKind::Arrow => "ARROW",
        }
    }
}

fn once<T>(place: &mut Option<T>, value: T) -> Result<()> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(Error::coded("42601", "conflicting or redundant options")),
    }
}

impl Layout {
    /// Format of a COPY with these options, of this file, with this compression.
    pub(crate) fn new(
        options: &[CopyOption],
        legacy: &[CopyLegacyOption],
        (file, compression): (Option<&str>, Option<Compression>),
    ) -> Result<Layout> {
        let mut given = WrittenOptions::default();
        for option in options {
            match option {
                CopyOption::Format(name) => match name.value.to_ascii_lowercase().as_str() {
                    "text" => once(&mut given.kind, OptionKind::Text)?,
                    "csv" => once(&mut given.kind, OptionKind::Csv)?,
                    "tbl" => once(&mut given.kind, OptionKind::Tbl)?,
                    "parquet" => once(&mut given.kind, OptionKind::Parquet)?,
                    "arrow" => once(&mut given.kind, OptionKind::Arrow)?,
                    "binary" => once(&mut given.kind, OptionKind::Binary)?,
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
                CopyLegacyOption::Binary => once(&mut given.kind, OptionKind::Binary)?,
                CopyLegacyOption::Header => once(&mut given.header, true)?,
                CopyLegacyOption::Csv(options) => {
                    once(&mut given.kind, OptionKind::Csv)?;
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
        let kind = given.kind.or_else(|| file.and_then(OptionKind::of_file));
        if compression.is_some() && kind != Some(OptionKind::Parquet) {
            return Err(invalid("COPY compression requires FORMAT parquet"));
        }
        match (kind, file) {
            (Some(OptionKind::Parquet), Some(_)) => {
                given.without_lines(OptionKind::Parquet, Layout::Parquet(compression.unwrap_or_default()))
            }
            (Some(OptionKind::Arrow), Some(_)) => given.without_lines(OptionKind::Arrow, Layout::Arrow),
            (Some(kind @ (OptionKind::Parquet | OptionKind::Arrow)), None) => Err(Error::unsupported(
                format!("COPY with FORMAT {} and STDIN or STDOUT: name a file", kind.name()),
            )),
            (Some(OptionKind::Binary), Some(_)) => Err(Error::unsupported(
                "COPY of a file with FORMAT binary: use STDIN or STDOUT, or FORMAT parquet",
            )),
            _ => given.checked(),
        }
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

impl WrittenOptions {
    fn checked(self) -> Result<Layout> {
        if self.kind == Some(OptionKind::Binary) {
            return self.without_lines(OptionKind::Binary, Layout::Binary);
        }
        let (csv, tbl) = (self.kind == Some(OptionKind::Csv), self.kind == Some(OptionKind::Tbl));
        let usual = match self.kind {
            Some(OptionKind::Csv) => ',',
            Some(OptionKind::Tbl) => '|',
            _ => '\t',
        };
        let delimiter = byte("delimiter", self.delimiter.unwrap_or(usual))?;
        let null = self.null.unwrap_or_else(|| if csv || tbl { String::new() } else { "\\N".to_owned() });
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
            if !tbl && (delimiter.is_ascii_alphanumeric() || matches!(delimiter, b'\\' | b'.')) {
                let shown = char::from(delimiter);
                return Err(invalid(format!("COPY delimiter cannot be \"{shown}\"")));
            }
            if self.quote.is_some() {
                return Err(invalid("COPY QUOTE requires CSV mode"));
            }
            if self.escape.is_some() {
                return Err(invalid("COPY ESCAPE requires CSV mode"));
            }
            if tbl { Format::Tbl } else { Format::Text }
        };
        Ok(Layout::Lines(Options { format, delimiter, null, header: self.header.unwrap_or(false) }))
    }

    /// Checks that no option is about lines, which the format lacks.
    fn without_lines(self, kind: OptionKind, layout: Layout) -> Result<Layout> {
        let said = [
            ("DELIMITER", self.delimiter.is_some()),
            ("NULL", self.null.is_some()),
            ("HEADER", self.header.is_some()),
            ("QUOTE", self.quote.is_some()),
            ("ESCAPE", self.escape.is_some()),
        ];
        match said.into_iter().find(|(_, said)| *said) {
            Some((option, _)) => {
                Err(Error::coded("42601", format!("cannot specify {option} in {} mode", kind.name())))
            }
            None => Ok(layout),
        }
    }
}
