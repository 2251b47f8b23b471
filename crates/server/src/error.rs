//! Errors as PostgreSQL clients know them: SQLSTATE, severity, message, detail, hint, position.
//!
//! Codes are those that the errors have themselves ([`QueryError::sqlstate`]). Messages of the most common
//! errors are PostgreSQL's; others are Entresol's, with names and values.

use entresol::ErrorKind;
use entresol::query::Error as QueryError;
use entresol::query::{Notice, NoticeLevel, tables_sqlstate, transactions_sqlstate};
use entresol::tables::Error as TableError;
use entresol::transactions::Error as TransactionError;

/// Severity of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Severity {
    Info,
    Notice,
    Warning,
    Error,
    /// The connection ends.
    Fatal,
}

impl Severity {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Severity::Info => NoticeLevel::Info.name(),
            Severity::Notice => NoticeLevel::Notice.name(),
            Severity::Warning => "WARNING",
            Severity::Error => "ERROR",
            Severity::Fatal => "FATAL",
        }
    }
}

/// An error or a notice for a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) severity: Severity,
    /// SQLSTATE: five characters.
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) detail: Option<Box<str>>,
    pub(crate) hint: Option<Box<str>>,
    /// Context of the error: the line of a COPY, or the step of a topology.
    pub(crate) context: Option<Box<str>>,
    /// Line and column in the statement, from 1.
    pub(crate) place: Option<(u32, u32)>,
    /// Position in the query text, in characters, from 1.
    pub(crate) position: Option<usize>,
}

impl Report {
    fn of(severity: Severity, code: &'static str, message: impl Into<String>) -> Report {
        Report {
            severity,
            code,
            message: message.into(),
            detail: None,
            hint: None,
            context: None,
            place: None,
            position: None,
        }
    }

    pub(crate) fn error(code: &'static str, message: impl Into<String>) -> Report {
        Report::of(Severity::Error, code, message)
    }

    pub(crate) fn fatal(code: &'static str, message: impl Into<String>) -> Report {
        Report::of(Severity::Fatal, code, message)
    }

    pub(crate) fn notice(message: impl Into<String>) -> Report {
        Report::of(Severity::Notice, "00000", message)
    }

    pub(crate) fn warning(code: &'static str, message: impl Into<String>) -> Report {
        Report::of(Severity::Warning, code, message)
    }

    /// The same, and the connection ends.
    pub(crate) fn into_fatal(self) -> Report {
        Report { severity: Severity::Fatal, ..self }
    }

    pub(crate) fn detail(mut self, detail: impl Into<Box<str>>) -> Report {
        self.detail = Some(detail.into());
        self
    }

    pub(crate) fn hint(mut self, hint: impl Into<Box<str>>) -> Report {
        self.hint = Some(hint.into());
        self
    }

    /// Adds the position in `sql` at which the parser stopped, if the message has it, or of what is refused, if that is known;
    /// `text` ends with `sql`, which begins at byte `start`.
    pub(crate) fn positioned(mut self, text: &str, start: usize, sql: &str) -> Report {
        let place = self.place.or_else(|| place(&self.message).filter(|_| self.code == "42601"));
        self.position = place
            .and_then(|place| position(place, sql))
            .map(|position| position + text[..start].chars().count());
        self
    }
}

/// Result whose error is a report for the client.
pub(crate) type Outcome<T> = std::result::Result<T, Report>;

/// A statement in a block that has failed.
pub(crate) fn failed_block() -> Report {
    let message = "current transaction is aborted, commands ignored until end of transaction block";
    Report::error("25P02", message)
}

/// Splits the context of a COPY from a message, where it stands in parentheses at the end.
fn context(message: &str) -> Option<(&str, &str)> {
    let (message, context) = message.strip_suffix(')')?.rsplit_once(" (COPY ")?;
    Some((message, context))
}

/// Report of something that is not supported: what stands behind a colon says what to do instead.
fn unsupported(code: &'static str, what: &str) -> Report {
    // Of DataFusion's messages a value or type may stand there.
    let hint = what.split_once(": ").filter(|(_, hint)| hint.starts_with(|c: char| c.is_ascii_lowercase()));
    let (what, instead) = hint.map_or((what, None), |(what, hint)| (what, Some(hint)));
    let is_said = what.contains("not supported") || what.starts_with("Unsupported ");
    let report =
        Report::error(code, if is_said { what.to_owned() } else { format!("{what} is not supported") });
    match instead {
        Some(hint) => report.hint(sentence(hint)),
        None => report,
    }
}

/// Text with a capital at its beginning and a point at its end.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    let end = if text.ends_with(['.', '!', '?']) { "" } else { "." };
    first.chain(letters.by_ref()).collect::<String>() + end
}

impl From<Notice> for Report {
    fn from(notice: Notice) -> Report {
        let severity = match notice.level {
            NoticeLevel::Notice => Severity::Notice,
            NoticeLevel::Info => Severity::Info,
        };
        Report::of(severity, "00000", notice.message)
    }
}

impl From<QueryError> for Report {
    fn from(error: QueryError) -> Report {
        let (code, message) = (error.sqlstate(), error.to_string());
        match error {
            QueryError::Tables(error) => tables(&error),
            QueryError::Transactions(error) => transactions(&error),
            QueryError::Unsupported(what) => unsupported(code, &what),
            QueryError::NoSuchTable(name) => Report::error(code, no_table(&name)),
            QueryError::TransactionAborted(first) => {
                failed_block().detail(format!("The statement that failed: {first}"))
            }
            QueryError::MemoryLimit(_) => Report::error(code, "out of memory").detail(message),
            QueryError::Copy { place, error } => {
                Report { context: Some(format!("COPY {place}").into()), ..Report::from(*error) }
            }
            QueryError::InStep { step, place, error } => {
                let place =
                    place.and_then(|(line, column)| Some((line.try_into().ok()?, column.try_into().ok()?)));
                Report { context: Some(step.into()), place, ..Report::from(*error) }
            }
            QueryError::Coded { .. } => match context(&message) {
                Some((message, context)) => {
                    Report { context: Some(format!("COPY {context}").into()), ..Report::error(code, message) }
                }
                None => Report::error(code, message),
            },
            QueryError::DataFusion { hint: Some(hint), .. } => Report::error(code, message).hint(hint),
            _ => Report::error(code, message),
        }
    }
}

impl From<entresol::Error> for Report {
    fn from(error: entresol::Error) -> Report {
        let code = match error.kind() {
            ErrorKind::Conflict => "40001",
            ErrorKind::Busy => "53300",
            ErrorKind::Invalid => "42000",
            ErrorKind::NotFound => "42P01",
            ErrorKind::MemoryLimit => "53200",
            ErrorKind::Corrupt => "XX001",
            ErrorKind::Io => "58030",
            ErrorKind::OutcomeUnknown => "08007",
            ErrorKind::Cancelled => "57014",
            ErrorKind::Closed => "57P01",
            ErrorKind::Unsupported => "0A000",
            _ => "XX000",
        };
        Report::error(code, error.to_string())
    }
}

fn no_table(name: &str) -> String {
    format!("relation \"{name}\" does not exist")
}

/// PostgreSQL's messages for the most common errors of tables.
fn tables(error: &TableError) -> Report {
    let report = |message: String| Report::error(tables_sqlstate(error), message);
    match error {
        TableError::NoSuchTable { table } => report(no_table(table)),
        TableError::TableExists { table } => report(format!("relation \"{table}\" already exists")),
        TableError::NoSuchColumn { table, column } => {
            report(format!("column \"{column}\" of relation \"{table}\" does not exist"))
        }
        TableError::NotNull { table, column } => report(format!(
            "null value in column \"{column}\" of relation \"{table}\" violates not-null constraint"
        )),
        TableError::DuplicateKey { table, key } => {
            report(format!("duplicate key value violates unique constraint \"{table}_pkey\""))
                .detail(format!("Key {key} already exists."))
        }
        TableError::Transactions(error) => transactions(error),
        error => report(error.to_string()),
    }
}

fn transactions(error: &TransactionError) -> Report {
    let message = error.to_string();
    let report = |message: &str| Report::error(transactions_sqlstate(error), message);
    match error {
        TransactionError::Conflict { .. } | TransactionError::VotedAbort(_) => {
            report("could not serialize access due to concurrent update").detail(message)
        }
        TransactionError::ReadConflict { .. } => {
            let text = "could not serialize access due to read/write dependencies among transactions";
            report(text).detail(message).hint("The transaction might succeed if retried.")
        }
        TransactionError::Restart { .. } => {
            report(&message).hint("The transaction might succeed if retried.")
        }
        TransactionError::Busy(_) => report(&message).hint("Try again later."),
        TransactionError::WriteSetFull { .. } => report(&message).hint("Commit in smaller transactions."),
        _ => report(&message),
    }
}

/// Line and column of the parser's `Line: 2, Column: 5`.
fn place(message: &str) -> Option<(u32, u32)> {
    let number = |mark: &str| -> Option<u32> {
        let digits = &message[message.rfind(mark)? + mark.len()..];
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        digits[..end].parse().ok()
    };
    Some((number("Line: ")?, number("Column: ")?))
}

/// Position in characters, from 1, of a line and column; none if the text has no such line.
fn position((line, column): (u32, u32), sql: &str) -> Option<usize> {
    let (line, column) = (usize::try_from(line).ok()?, usize::try_from(column).ok()?);
    let before = line.checked_sub(1)?;
    sql.split('\n').nth(before)?;
    let lines = sql.split('\n').take(before);
    Some(lines.map(|line| line.chars().count() + 1).sum::<usize>() + column)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_codes_of_postgresql() {
        let code = |error: QueryError| Report::from(error).code;
        assert_eq!(code(QueryError::NoSuchTable("t".into())), "42P01");
        assert_eq!(code(QueryError::MemoryLimit(String::new())), "53200");
        let exists = TableError::DuplicateKey { table: "t".into(), key: "(1)".into() };
        assert_eq!(code(exists.into()), "23505");
    }

    #[test]
    fn what_is_not_supported_is_said_once() {
        let said = |what: &str| {
            let report = Report::from(QueryError::Unsupported(what.to_owned()));
            (report.message, report.hint.map(String::from))
        };
        assert_eq!(said("a: take b"), ("a is not supported".to_owned(), Some("Take b.".to_owned())));
        let cast = "Unsupported CAST from Struct(\"c0\": Int32) to Utf8";
        assert_eq!(said(cast), (cast.to_owned(), None));
        assert_eq!(said("nth_value not supported for n: 1").0, "nth_value not supported for n: 1");
    }

    #[test]
    fn the_place_of_a_copy_is_no_part_of_the_message() {
        let broken = QueryError::Coded { sqlstate: "22P04", message: "bad (a) line (COPY t, line 7)".into() };
        let report = Report::from(broken);
        assert_eq!(
            (report.message.as_str(), report.context.as_deref()),
            ("bad (a) line", Some("COPY t, line 7"))
        );
        let plain = Report::from(QueryError::Coded { sqlstate: "22P02", message: "bad (a)".into() });
        assert_eq!((plain.message.as_str(), plain.context), ("bad (a)", None));
    }

    #[test]
    fn positions_count_characters_of_the_text() {
        let text = "SELECT 1; ü\nab";
        let report =
            Report::error("42601", "syntax error at Line: 2, Column: 3").positioned(text, 10, &text[10..]);
        assert_eq!(report.position, Some(15));
        assert_eq!(Report::error("42601", "no place").positioned("x", 0, "x").position, None);
    }
}
