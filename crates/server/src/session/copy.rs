//! COPY over the wire: rows of a table as the client sends them, or as it gets them.
//!
//! ```text
//!   FROM STDIN   CopyInResponse ─▶   ◀─ CopyData … CopyDone | CopyFail    CommandComplete | an error ─▶
//!   TO STDOUT    CopyOutResponse, CopyData (a line each) …, CopyDone, CommandComplete ─▶
//! ```
//!
//! - Both directions stream. In: data that has arrived is parsed and written before more is read. Out: a
//!   batch at a time, and no more than [`SEND_BYTES`] wait for a client that does not read.
//! - A COPY is one statement: all of its rows or none. Dropping it, by an error, CopyFail, a cancel request,
//!   its time or its client's end, rolls back its writes.
//! - In the binary format a row is a message, too; [`binary_copy`] decodes it.
//! - Flush and Sync are ignored while data comes, as in PostgreSQL: clients send Sync behind Execute before
//!   they know that the statement is a COPY. Data that comes after a COPY has failed is skipped.
//!
//! Memory: one message, the buffer of [`CopyIn`], and the write set of the transaction.

use super::{Connection, Failure};
use crate::error::Report;
use crate::metrics::add;
use crate::socket::{End, SEND_BYTES, violation};
use crate::values::Format;
use crate::values::binary_copy::{self, Reader, Rows};
use crate::wire::frontend::{self, Frontend};
use bytes::BytesMut;
use entresol::arrow::record_batch::RecordBatch;
use entresol::query::{CopyIn, CopyLines, CopyOut, CopyStatement};

/// Bytes that are parsed before other tasks get a turn, and the statement may be interrupted.
const TURN_BYTES: usize = 64 << 10;

impl Connection {
    /// Runs a COPY in either direction.
    pub(super) async fn copy(&mut self, statement: &CopyStatement) -> Result<(), Failure> {
        self.socket.send_deferred(&mut self.guard).await?;
        let rows =
            if statement.is_in() { self.copy_in(statement).await? } else { self.copy_out(statement).await? };
        self.socket.out.complete(&format!("COPY {rows}"));
        Ok(())
    }

    async fn copy_in(&mut self, statement: &CopyStatement) -> Result<u64, Failure> {
        let alone = !self.session.in_transaction();
        let mut copy = self.session.copy_in(statement)?;
        let mut reader = statement.is_binary().then(|| Reader::new(&copy.fields()));
        self.socket.out.copy_in(copy.columns(), format_of(statement));
        self.socket.flush_guarded(&mut self.guard).await?;
        while let Some(data) = self.copy_data().await? {
            self.push(&mut copy, reader.as_mut(), &data).await?;
        }
        reader.map_or(Ok(()), |reader| reader.finish().map_err(|report| at_row(report, &reader, &copy)))?;
        let finished = self.socket.guarded(&mut self.guard, copy.finish()).await?;
        let rows = finished?;
        add(&self.shared.metrics.rows_written_total, rows);
        if alone {
            add(&self.shared.metrics.commits_total, 1);
        }
        Ok(rows)
    }

    /// The next data; `None` at its end.
    async fn copy_data(&mut self) -> Result<Option<bytes::Bytes>, Failure> {
        loop {
            let bytes_max = self.shared.limits.packet_bytes;
            let packet = self.socket.packet_guarded(&mut self.guard, bytes_max).await??;
            let kind = packet.0;
            match frontend::decode(packet).map_err(|frontend::Violation(reason)| violation(reason))? {
                Frontend::CopyData(data) => return Ok(Some(data)),
                Frontend::CopyDone => return Ok(None),
                Frontend::CopyFail(reason) => {
                    return Err(Report::error("57014", format!("COPY from stdin failed: {reason}")).into());
                }
                Frontend::Flush | Frontend::Sync => {}
                Frontend::Terminate => return Err(End::Gone.into()),
                _ => {
                    let message = format!("unexpected message type 0x{kind:02X} during COPY from stdin");
                    return Err(Report::error("08P01", message).into());
                }
            }
        }
    }

    async fn push(
        &mut self,
        copy: &mut CopyIn,
        mut reader: Option<&mut Reader>,
        data: &[u8],
    ) -> Result<(), Failure> {
        for (turn, piece) in data.chunks(TURN_BYTES).enumerate() {
            if turn > 0 {
                self.socket.guarded(&mut self.guard, tokio::task::yield_now()).await?;
            }
            match &mut reader {
                None => copy.push(piece)?,
                Some(reader) => push_rows(copy, reader, piece)?,
            }
            self.socket.guarded(&mut self.guard, copy.commit_part()).await??;
        }
        Ok(())
    }

    async fn copy_out(&mut self, statement: &CopyStatement) -> Result<u64, Failure> {
        let starting = self.session.copy_out(statement);
        let mut copy = self.socket.guarded(&mut self.guard, starting).await??;
        self.socket.out.copy_out(copy.schema().fields().len(), format_of(statement));
        if statement.is_binary() {
            self.copy_rows(&mut copy).await?
        } else {
            while let Some(lines) = self.socket.guarded_rows(&mut self.guard, copy.next_lines()).await? {
                self.send_lines(&lines?).await?;
            }
        }
        self.socket.out.copy_done();
        add(&self.shared.metrics.rows_sent_total, copy.rows());
        Ok(copy.rows())
    }

    async fn send_lines(&mut self, lines: &CopyLines) -> Result<(), Failure> {
        for line in (0..lines.len()).filter_map(|line| lines.get(line)) {
            self.socket.out.copy_data(line)?;
            if self.socket.out.bytes.len() >= SEND_BYTES {
                self.socket.flush_guarded(&mut self.guard).await?;
            }
        }
        Ok(())
    }

    async fn copy_rows(&mut self, copy: &mut CopyOut) -> Result<(), Failure> {
        // PostgreSQL sends the header with the first row, and clients rely on it.
        let mut bytes = BytesMut::from(&binary_copy::header()[..]);
        while let Some(batch) = self.socket.guarded_rows(&mut self.guard, copy.next_batch()).await? {
            self.send_rows(&batch?, &mut bytes).await?;
        }
        bytes.extend_from_slice(&binary_copy::TRAILER);
        Ok(self.socket.out.copy_data(&bytes)?)
    }

    /// Sends rows, the first one behind bytes that are waiting already.
    async fn send_rows(&mut self, batch: &RecordBatch, waiting: &mut BytesMut) -> Result<(), Failure> {
        let rows = Rows::new(batch)?;
        for row in 0..batch.num_rows() {
            rows.write(row, waiting)?;
            self.socket.out.copy_data(waiting)?;
            waiting.clear();
            if self.socket.out.bytes.len() >= SEND_BYTES {
                self.socket.flush_guarded(&mut self.guard).await?;
            }
        }
        Ok(())
    }
}

fn format_of(statement: &CopyStatement) -> Format {
    if statement.is_binary() { Format::Binary } else { Format::Text }
}

/// Writes the rows that are complete with these bytes.
fn push_rows(copy: &mut CopyIn, reader: &mut Reader, bytes: &[u8]) -> Result<(), Failure> {
    reader.push(bytes);
    while let Some(row) = reader.next().map_err(|report| at_row(report, reader, copy))? {
        copy.push_row(&row)?;
    }
    Ok(())
}

fn at_row(report: Report, reader: &Reader, copy: &CopyIn) -> Report {
    Report { context: Some(format!("COPY {}, line {}", copy.table(), reader.row()).into()), ..report }
}
