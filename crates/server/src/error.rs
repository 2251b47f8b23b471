//! What goes wrong, as clients of PostgreSQL know it: SQLSTATE, severity, message, detail, hint, position.
//!
//! Codes come from the kinds of errors; where the engine gives only a text, from its words. Messages of what every
//! client meets are PostgreSQL's; others say what Entresol says, with names and values.

use entresol::ErrorKind;
use entresol::query::Error as QueryError;
use entresol::tables::Error as TableError;
use entresol::transactions::Error as TransactionError;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Severity {
    Warning,
    Error,
    /// The connection ends.
    Fatal,
}

impl Severity {
    pub(crate) fn name(self) -> &'static str {
        match self {
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
    /// Five characters.
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) detail: Option<String>,
    pub(crate) hint: Option<String>,
    /// Where it happened: the line of a COPY.
    pub(crate) context: Option<String>,
    /// Character of the statement's text, from 1.
    pub(crate) position: Option<usize>,
}

impl Report {
    fn of(severity: Severity, code: &'static str, message: impl Into<String>) -> Report {
        Report { severity, code, message: message.into(), detail: None, hint: None, context: None, position: None }
    }

    pub(crate) fn error(code: &'static str, message: impl Into<String>) -> Report {
        Report::of(Severity::Error, code, message)
    }

    pub(crate) fn fatal(code: &'static str, message: impl Into<String>) -> Report {
        Report::of(Severity::Fatal, code, message)
    }

    pub(crate) fn warning(code: &'static str, message: impl Into<String>) -> Report {
        Report::of(Severity::Warning, code, message)
    }

    /// The same, and the connection ends.
    pub(crate) fn into_fatal(self) -> Report {
        Report { severity: Severity::Fatal, ..self }
    }

    pub(crate) fn detail(mut self, detail: impl Into<String>) -> Report {
        self.detail = Some(detail.into());
        self
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Report {
        self.hint = Some(hint.into());
        self
    }

    /// Says where in `sql` the parser stopped, if the message tells; `before` characters stand in front of `sql`.
    pub(crate) fn positioned(mut self, sql: &str, before: usize) -> Report {
        self.position = position(&self.message, sql).map(|position| position + before);
        self
    }
}

/// Result with what a client is told on failure.
pub(crate) type Outcome<T> = std::result::Result<T, Report>;

/// A statement in a block that has failed.
pub(crate) fn failed_block() -> Report {
    let message = "current transaction is aborted, commands ignored until end of transaction block";
    Report::error("25P02", message)
}

/// Takes the place of a COPY out of a message, where it stands in parentheses at the end.
fn context(message: &str) -> Option<(&str, &str)> {
    let (message, context) = message.strip_suffix(')')?.rsplit_once(" (COPY ")?;
    Some((message, context))
}

impl From<QueryError> for Report {
    fn from(error: QueryError) -> Report {
        let message = error.to_string();
        match error {
            QueryError::Tables(error) => tables(error),
            QueryError::Transactions(error) => transactions(&error),
            QueryError::Syntax(_) => Report::error("42601", message),
            QueryError::Unsupported(what) => Report::error("0A000", format!("{what} is not supported")),
            QueryError::NoSuchTable(name) => no_table(&name),
            QueryError::Assignment { .. } => Report::error(by_words(&message, "42804"), message),
            QueryError::TransactionAborted(first) => {
                failed_block().detail(format!("The statement that failed: {first}"))
            }
            QueryError::RolledBack(_) => Report::error("25P02", message),
            QueryError::MemoryLimit(_) => Report::error("53200", "out of memory").detail(message),
            QueryError::Invalid(_) => Report::error(by_words(&message, "42000"), message),
            QueryError::Execution(_) => Report::error(by_words(&message, "22000"), message),
            QueryError::Internal(_) => Report::error(by_words(&message, "XX000"), message),
            QueryError::Copy { table, line, error } => {
                Report { context: Some(format!("COPY {table}, line {line}")), ..Report::from(*error) }
            }
            QueryError::Coded { sqlstate, message } => match context(&message) {
                Some((message, context)) => {
                    Report { context: Some(format!("COPY {context}")), ..Report::error(sqlstate, message) }
                }
                None => Report::error(sqlstate, message),
            },
            other => Report::error(other.sqlstate(), message),
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
            ErrorKind::Closed => "57P01",
            ErrorKind::Unsupported => "0A000",
            _ => "XX000",
        };
        Report::error(code, error.to_string())
    }
}

fn no_table(name: &str) -> Report {
    Report::error("42P01", format!("relation \"{name}\" does not exist"))
}

fn tables(error: TableError) -> Report {
    let message = error.to_string();
    match error {
        TableError::NoSuchTable { table } => no_table(&table),
        TableError::TableExists { table } => {
            Report::error("42P07", format!("relation \"{table}\" already exists"))
        }
        TableError::NoSuchColumn { table, column } => {
            Report::error("42703", format!("column \"{column}\" of relation \"{table}\" does not exist"))
        }
        TableError::NotNull { table, column } => {
            let message = format!(
                "null value in column \"{column}\" of relation \"{table}\" violates not-null constraint"
            );
            Report::error("23502", message)
        }
        TableError::DuplicateKey { table, key } => {
            let message = format!("duplicate key value violates unique constraint \"{table}_pkey\"");
            Report::error("23505", message).detail(format!("Key {key} already exists."))
        }
        TableError::WrongType { .. } => Report::error("42804", message),
        TableError::OutOfRange { .. } => Report::error("22003", message),
        TableError::Parse { .. } => Report::error("22P02", message),
        TableError::WrongValueCount { .. } => Report::error("42601", message),
        TableError::RowTooLarge { .. } | TableError::KeyTooLarge { .. } => Report::error("54000", message),
        TableError::InvalidSchema { .. } => Report::error("42P16", message),
        TableError::InvalidName { .. } => Report::error("42602", message),
        TableError::RowNumbersUsedUp { .. } => Report::error("54000", message),
        TableError::Corrupt { .. } => Report::error("XX001", message),
        TableError::Transactions(error) => transactions(&error),
        TableError::Memory(error) => memory(&error),
        other => Report::error(other.sqlstate(), message),
    }
}

fn transactions(error: &TransactionError) -> Report {
    let message = error.to_string();
    match error {
        TransactionError::Conflict { .. } | TransactionError::VotedAbort(_) => {
            Report::error("40001", "could not serialize access due to concurrent update").detail(message)
        }
        TransactionError::ReadConflict { .. } => {
            let text = "could not serialize access due to read/write dependencies among transactions";
            Report::error("40001", text).detail(message).hint("The transaction might succeed if retried.")
        }
        TransactionError::Busy(_) => Report::error("53000", message).hint("Try again later."),
        TransactionError::WriteSetFull { .. } => {
            Report::error("53200", message).hint("Commit in smaller transactions.")
        }
        TransactionError::Full { .. } => Report::error("54000", message),
        TransactionError::KeyLength { .. } | TransactionError::ValueLength { .. } => {
            Report::error("54000", message)
        }
        TransactionError::OutcomeUnknown { .. } => Report::error("08007", message),
        TransactionError::Latched(_) => Report::error("58030", message),
        TransactionError::Corrupt(_) => Report::error("XX001", message),
        TransactionError::Memory(error) => memory(error),
        TransactionError::NoSuchState(_) => Report::error("42P01", message),
        _ => Report::error("XX000", message),
    }
}

fn memory(error: &entresol::memory::Error) -> Report {
    use entresol::memory::Error as E;
    let code = match error {
        E::OutOfSpace { .. } => "53100",
        E::Io { .. } | E::Failed { .. } => "58030",
        E::Corrupt { .. } => "XX001",
        E::Closed => "57P01",
        _ => "XX000",
    };
    Report::error(code, error.to_string())
}

/// What the engine says in words only.
fn by_words(message: &str, otherwise: &'static str) -> &'static str {
    const WORDS: &[(&str, &str)] = &[
        ("No field named", "42703"),
        ("has no column", "42703"),
        ("there is no column", "42703"),
        ("Ambiguous reference", "42702"),
        ("is ambiguous", "42702"),
        ("Invalid function", "42883"),
        ("does not exist", "42704"),
        ("No function matches", "42883"),
        ("Divide by zero", "22012"),
        ("division by zero", "22012"),
        ("out of range", "22003"),
        ("verflow", "22003"),
        ("too large to store", "22003"),
        ("does not fit", "22003"),
        ("Cannot cast string", "22P02"),
        ("Error parsing timestamp", "22007"),
        ("Error parsing", "22P02"),
        ("Cannot infer common argument type", "42883"),
        ("Cannot coerce", "42804"),
        ("could not be coerced", "42804"),
        ("is not of type", "42804"),
        ("Unsupported CAST", "42846"),
        ("must appear in the GROUP BY", "42803"),
        ("in the SELECT list", "42803"),
        ("must be in GROUP BY", "42803"),
        ("a transaction is open already", "25001"),
        ("there is no transaction", "25P01"),
        ("READ ONLY", "25006"),
        ("savepoint", "3B001"),
        ("values for", "42601"),
        ("Recursion", "54001"),
        ("longest", "54000"),
        ("NULL in a NOT NULL column", "23502"),
    ];
    WORDS.iter().find(|(words, _)| message.contains(words)).map_or(otherwise, |(_, code)| code)
}

/// The parser says `Line: 2, Column: 5`.
fn position(message: &str, sql: &str) -> Option<usize> {
    let number = |mark: &str| -> Option<usize> {
        let digits = &message[message.rfind(mark)? + mark.len()..];
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        digits[..end].parse().ok()
    };
    let (line, column) = (number("Line: ")?, number("Column: ")?);
    let before: usize = sql.split('\n').take(line.checked_sub(1)?).map(|line| line.chars().count() + 1).sum();
    Some(before + column)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_codes_of_postgresql() {
        let code = |error: QueryError| Report::from(error).code;
        assert_eq!(code(QueryError::NoSuchTable("t".into())), "42P01");
        assert_eq!(code(QueryError::Invalid("No field named x.".into())), "42703");
        assert_eq!(code(QueryError::Execution("Arrow error: Divide by zero error".into())), "22012");
        assert_eq!(code(QueryError::MemoryLimit(String::new())), "53200");
        let exists = TableError::DuplicateKey { table: "t".into(), key: "(1)".into() };
        assert_eq!(code(exists.into()), "23505");
    }

    #[test]
    fn positions_count_characters_of_the_text() {
        let report = Report::error("42601", "syntax error at Line: 2, Column: 3").positioned("ü\nab", 10);
        assert_eq!(report.position, Some(15));
        assert_eq!(Report::error("42601", "no place").positioned("x", 0).position, None);
    }
}
