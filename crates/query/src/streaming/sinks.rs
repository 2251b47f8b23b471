//! Connectors of sinks: where the rows of CREATE SINK go.
//!
//! | connector | options |
//! | --- | --- |
//! | `file` | `path`: each row exactly once |
//! | `tcp` | `connect` (`host:port`): each row at least once |
//!
//! All: `durability` of the topology; of CSV `delimiter` (comma), `null` (a string that means NULL).

use crate::error::{Error, Result};
use crate::parser::own::streaming::SinkClause;
use crate::streaming::connectors::file_format;
use crate::streaming::options::StreamOptions;
use entresol_streams::{FileFormat, Stream};

/// Sink as it was created.
#[derive(Debug, Clone)]
pub(crate) struct SinkDefinition {
    target: SinkTarget,
    format: FileFormat,
}

#[derive(Debug, Clone)]
enum SinkTarget {
    File(String),
    Tcp(String),
}

impl SinkDefinition {
    /// Definition that a statement declares.
    pub(crate) fn new(name: &str, clause: &SinkClause) -> Result<SinkDefinition> {
        let mut options = StreamOptions::new(format!("sink \"{name}\""), &clause.options);
        let target = match options.require("connector")?.as_str() {
            "file" => SinkTarget::File(options.require("path")?),
            "tcp" => SinkTarget::Tcp(options.require("connect")?),
            other => {
                let message =
                    format!("connector \"{other}\" does not exist; of sinks, there are file and tcp");
                return Err(Error::coded("22023", message));
            }
        };
        let format = file_format(&mut options, clause.encoding)?;
        options.end()?;
        Ok(SinkDefinition { target, format })
    }

    /// Its target, as it is shown.
    pub(crate) fn describe(&self) -> String {
        match &self.target {
            SinkTarget::File(path) => format!("file {path}"),
            SinkTarget::Tcp(address) => format!("tcp {address}"),
        }
    }

    /// Sends a stream there.
    pub(crate) fn attach(&self, stream: &Stream) {
        match &self.target {
            SinkTarget::File(path) => stream.file_sink(path, self.format.clone()),
            SinkTarget::Tcp(address) => stream.tcp_sink(address, self.format.clone()),
        }
    }
}
