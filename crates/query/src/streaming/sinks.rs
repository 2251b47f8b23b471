//! Connectors of sinks: where the rows of CREATE SINK go.
//!
//! | connector | options |
//! | --- | --- |
//! | `file` | `path`: each row exactly once; of ENCODE PARQUET in files that are rolled ([`super::parquet_sink`]) |
//! | `tcp` | `connect` (`host:port`): each row at least once |
//! | `table` | `table`, `type` (`upsert`, `append-only`): the step INSERT INTO of the table |
//!
//! All: `durability` of the topology; of CSV `delimiter` (comma), `null` (a string that means NULL); of FORMAT UPSERT and DEBEZIUM
//! `primary_key`, the columns of the key between commas. Without it that is the key of the table, or what the results replace each
//! other by.

use crate::error::{Error, Result};
use crate::parser::own::streaming::{Encoding, SinkClause};
use crate::streaming::connectors::{check_plain, file_format};
use crate::streaming::options::StreamOptions;
use crate::streaming::parquet_sink::ParquetSink;
use entresol_streams::{Envelope, FileFormat, Stream};
use entresol_tables::Table;

/// Sink as it was created.
#[derive(Debug, Clone)]
pub(crate) struct SinkDefinition {
    target: SinkTarget,
    format: SinkFormat,
    /// Relation behind FROM.
    from: Option<String>,
}

#[derive(Debug, Clone)]
enum SinkTarget {
    File(String),
    Tcp(String),
    Table(TableSink),
}

/// Table of a sink.
#[derive(Debug, Clone)]
pub(crate) struct TableSink {
    pub(crate) name: String,
    /// True if rows with the key of another replace it; without it, if the table has a key.
    pub(crate) upserts: Option<bool>,
}

#[derive(Debug, Clone)]
enum SinkFormat {
    Lines(FileFormat),
    Parquet(ParquetSink),
    /// Rows of a table.
    Rows,
}

impl SinkDefinition {
    /// Definition that a statement declares.
    pub(crate) fn new(name: &str, clause: &SinkClause) -> Result<SinkDefinition> {
        let mut options = StreamOptions::new(format!("sink \"{name}\""), &clause.options);
        let target = match options.require("connector")?.as_str() {
            "file" => SinkTarget::File(options.require("path")?),
            "tcp" => SinkTarget::Tcp(options.require("connect")?),
            "table" => SinkTarget::Table(TableSink {
                name: options.require("table")?,
                upserts: options.take("type").map(|kind| upserts(name, &kind)).transpose()?,
            }),
            other => {
                let message =
                    format!("connector \"{other}\" does not exist; of sinks, there are file, tcp and table");
                return Err(Error::coded("22023", message));
            }
        };
        let key = match clause.encoding {
            Some(Encoding::Changes(_)) => options.take("primary_key"),
            _ => None,
        };
        let key: Vec<String> = key.iter().flat_map(|key| key.split(',')).map(column_of_list).collect();
        let format = match (&target, clause.encoding) {
            (SinkTarget::File(_), Some(Encoding::Parquet)) => {
                SinkFormat::Parquet(ParquetSink::new(&mut options)?)
            }
            (SinkTarget::Table(_), None) => SinkFormat::Rows,
            (SinkTarget::Table(_), Some(_)) => {
                let message = format!("FORMAT of sink \"{name}\", whose connector is a table");
                return Err(Error::coded("22023", message));
            }
            (_, encoding) => SinkFormat::Lines(file_format(&mut options, (encoding, Some(&key)))?),
        };
        if let SinkFormat::Lines(FileFormat::Changes(changes)) = &format
            && changes.timestamp_unit_ns.is_some()
        {
            let message = format!("unrecognized option \"timestamp_unit\" of sink \"{name}\"");
            return Err(Error::coded("22023", message));
        }
        options.end()?;
        Ok(SinkDefinition { target, format, from: clause.from.clone() })
    }

    /// Name of its connector, if that writes files or connections.
    pub(crate) fn outside(&self) -> Option<&'static str> {
        match &self.target {
            SinkTarget::File(_) => Some("file"),
            SinkTarget::Tcp(_) => Some("tcp"),
            SinkTarget::Table(_) => None,
        }
    }

    /// Its target, as it is shown.
    pub(crate) fn describe(&self) -> String {
        match &self.target {
            SinkTarget::File(path) => format!("file {path}"),
            SinkTarget::Tcp(address) => format!("tcp {address}"),
            SinkTarget::Table(table) => format!("table {}", table.name),
        }
    }

    /// Table that it writes, if its connector is one.
    pub(crate) fn table(&self) -> Option<&TableSink> {
        match &self.target {
            SinkTarget::Table(table) => Some(table),
            SinkTarget::File(_) | SinkTarget::Tcp(_) => None,
        }
    }

    /// Returns true if its lines are changes, which may take rows back.
    pub(crate) fn has_changes(&self) -> bool {
        matches!(self.format, SinkFormat::Lines(FileFormat::Changes(_)))
    }

    /// Sends a stream there. `logged` is the table whose logged changes it has, `replaced` its columns by which results
    /// replace each other.
    pub(crate) fn attach(
        &self,
        stream: &Stream,
        logged: Option<&Table>,
        replaced: Option<Vec<String>>,
    ) -> Result<()> {
        let mut format = match (&self.format, &self.target) {
            (SinkFormat::Lines(format), _) => format.clone(),
            (SinkFormat::Parquet(files), SinkTarget::File(path)) => return files.attach(stream, path),
            (SinkFormat::Parquet(_), _) => {
                return Err(Error::Internal("Parquet over a connection".to_owned()));
            }
            (SinkFormat::Rows, _) => {
                return Err(Error::Internal("a step writes the table of a sink".to_owned()));
            }
        };
        if format == FileFormat::Plain {
            check_plain("a sink", stream.columns())?;
        }
        if let FileFormat::Changes(changes) = &mut format {
            let logged = logged.map(Table::schema);
            changes.logged_columns = logged.map(|schema| schema.visible_columns().len());
            if changes.key.is_empty() {
                let of_table = logged.filter(|schema| !schema.hidden_key());
                let of_table = of_table.map(|schema| schema.key_names().map(str::to_owned).collect());
                changes.key = of_table.or(replaced).unwrap_or_default();
            }
            let columns = &stream.columns()[..changes.logged_columns.unwrap_or(stream.columns().len())];
            let is_column = |name: &&String| columns.iter().any(|column| column.name == **name);
            if let Some(wrong) = changes.key.iter().find(|name| !is_column(name)) {
                let message = format!("column \"{wrong}\" of the option \"primary_key\" does not exist");
                return Err(Error::coded("42703", message));
            }
            if changes.key.is_empty() && changes.envelope == Envelope::Upsert {
                let message = "a sink of FORMAT UPSERT needs the option \"primary_key\": the columns by which rows replace each other";
                return Err(Error::coded("22023", message));
            }
        }
        match &self.target {
            SinkTarget::File(path) => stream.file_sink(path, format),
            SinkTarget::Tcp(address) => stream.tcp_sink(address, format),
            SinkTarget::Table(_) => {}
        }
        Ok(())
    }

    /// Relation behind FROM, if its rows are sent.
    pub(crate) fn from(&self) -> Option<&str> {
        self.from.as_deref()
    }
}

/// Tells whether the rows of a sink of this type replace those with their key.
fn upserts(name: &str, kind: &str) -> Result<bool> {
    match kind {
        "upsert" => Ok(true),
        "append-only" => Ok(false),
        other => {
            let message = format!("option \"type\" of sink \"{name}\" is upsert or append-only, not {other}");
            Err(Error::coded("22023", message))
        }
    }
}

/// Name of a column in a list of an option.
fn column_of_list(name: &str) -> String {
    name.trim().to_owned()
}
