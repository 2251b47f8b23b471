//! Messages to clients, appended to a connection's buffer.
//!
//! Complete messages only: the buffer can be sent at any time. Rows are written by [`crate::values::rows`],
//! which fills in their length when they end.

use crate::error::{Outcome, Report, Severity};
use crate::values::Format;
use bytes::{BufMut, BytesMut};
use pgwire::messages::Message;
use pgwire::messages::data::{FieldDescription, ParameterDescription, RowDescription};
use pgwire::messages::response::{CommandComplete, ErrorResponse, NoticeResponse};
use pgwire::messages::startup::{
    Authentication, BackendKeyData, NegotiateProtocolVersion, ParameterStatus, SecretKey,
};

/// Transaction status of a session, as in ReadyForQuery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    Idle,
    InTransaction,
    Failed,
}

/// Messages to be sent.
#[derive(Debug, Default)]
pub(crate) struct Output {
    pub(crate) bytes: BytesMut,
}

impl Output {
    fn message(&mut self, message: &impl Message) {
        let before = self.bytes.len();
        if let Err(error) = message.encode(&mut self.bytes) {
            // Only messages longer than the protocol allows fail; half a message must not go out.
            self.bytes.truncate(before);
            tracing::error!(%error, "a message was too long to be sent");
        }
    }

    fn bare(&mut self, kind: u8) {
        self.bytes.put_u8(kind);
        self.bytes.put_u32(4);
    }

    pub(crate) fn authentication(&mut self, message: Authentication) {
        self.message(&message);
    }

    pub(crate) fn parameter(&mut self, name: &str, value: &str) {
        self.message(&ParameterStatus::new(name.to_owned(), text(value)));
    }

    pub(crate) fn key(&mut self, pid: i32, key: SecretKey) {
        self.message(&BackendKeyData::new(pid, key));
    }

    pub(crate) fn negotiate(&mut self, newest_minor: i32, unsupported: Vec<String>) {
        self.message(&NegotiateProtocolVersion::new(newest_minor, unsupported));
    }

    /// One byte that answers a request for encryption.
    pub(crate) fn encryption(&mut self, accepted: bool) {
        self.bytes.put_u8(if accepted { b'S' } else { b'N' });
    }

    pub(crate) fn ready(&mut self, status: Status) {
        self.bytes.put_u8(b'Z');
        self.bytes.put_u32(5);
        self.bytes.put_u8(match status {
            Status::Idle => b'I',
            Status::InTransaction => b'T',
            Status::Failed => b'E',
        });
    }

    pub(crate) fn report(&mut self, report: &Report) {
        let fields = fields(report);
        match report.severity {
            Severity::Info | Severity::Notice | Severity::Warning => {
                self.message(&NoticeResponse::new(fields))
            }
            Severity::Error | Severity::Fatal => self.message(&ErrorResponse::new(fields)),
        }
    }

    pub(crate) fn complete(&mut self, tag: &str) {
        self.message(&CommandComplete::new(tag.to_owned()));
    }

    pub(crate) fn columns(&mut self, fields: Vec<FieldDescription>) {
        self.message(&RowDescription::new(fields));
    }

    pub(crate) fn parameters(&mut self, types: Vec<u32>) {
        self.message(&ParameterDescription::new(types));
    }

    pub(crate) fn no_data(&mut self) {
        self.bare(b'n');
    }

    pub(crate) fn empty_query(&mut self) {
        self.bare(b'I');
    }

    pub(crate) fn parse_complete(&mut self) {
        self.bare(b'1');
    }

    pub(crate) fn bind_complete(&mut self) {
        self.bare(b'2');
    }

    pub(crate) fn close_complete(&mut self) {
        self.bare(b'3');
    }

    pub(crate) fn portal_suspended(&mut self) {
        self.bare(b's');
    }

    /// The client may send rows: text, so many columns each.
    pub(crate) fn copy_in(&mut self, columns: usize, format: Format) {
        self.copy_response(b'G', columns, format);
    }

    /// Tells the client that rows follow.
    pub(crate) fn copy_out(&mut self, columns: usize, format: Format) {
        self.copy_response(b'H', columns, format);
    }

    fn copy_response(&mut self, kind: u8, columns: usize, format: Format) {
        // A table has at most some thousand columns, a query as many as a row on the wire.
        let columns = u16::try_from(columns).unwrap_or(u16::MAX);
        self.bytes.put_u8(kind);
        self.bytes.put_u32(4 + 1 + 2 + 2 * u32::from(columns));
        self.bytes.put_u8(format.code() as u8);
        self.bytes.put_u16(columns);
        (0..columns).for_each(|_| self.bytes.put_i16(format.code()));
    }

    pub(crate) fn copy_data(&mut self, data: &[u8]) -> Outcome<()> {
        let length = i32::try_from(data.len() + 4);
        let length =
            length.map_err(|_| Report::error("54000", "row exceeds the maximum length of the protocol"))?;
        self.bytes.put_u8(b'd');
        self.bytes.put_i32(length);
        self.bytes.put_slice(data);
        Ok(())
    }

    pub(crate) fn copy_done(&mut self) {
        self.bare(b'c');
    }
}

fn fields(report: &Report) -> Vec<(u8, String)> {
    let severity = report.severity.name().to_owned();
    let mut fields = vec![(b'S', severity.clone()), (b'V', severity), (b'C', report.code.to_owned())];
    fields.push((b'M', text(&report.message)));
    let optional = [(b'D', &report.detail), (b'H', &report.hint), (b'W', &report.context)];
    fields.extend(optional.into_iter().filter_map(|(kind, value)| Some((kind, text(value.as_ref()?)))));
    if let Some(position) = report.position {
        fields.push((b'P', position.to_string()));
    }
    fields
}

/// String without zero bytes, which would end it on the wire.
fn text(value: &str) -> String {
    value.replace('\0', "")
}
