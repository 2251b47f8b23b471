//! COPY over the wire: rows of a table as the client sends them, or as it gets them.
//!
//! ```text
//!   FROM STDIN   CopyInResponse ─▶   ◀─ CopyData … CopyDone | CopyFail    CommandComplete | an error ─▶
//!   TO STDOUT    CopyOutResponse, CopyData (a line each) …, CopyDone, CommandComplete ─▶
//! ```
//!
//! - Both ways stream. In: what has arrived is parsed and written before more is read. Out: a batch at a time, and no
//!   more than [`SEND_BYTES`] wait for a client that does not read.
//! - A COPY is one statement: all of its rows or none. Dropping it, by an error, CopyFail, a cancel request, its time or
//!   its client's end, takes back what it wrote.
//! - Flush and Sync are ignored while data comes, as in PostgreSQL: clients send Sync behind Execute before they know
//!   that the statement is a COPY. What comes after a COPY has failed is skipped.
//!
//! Memory: one message, what [`CopyIn`] keeps, and the write set of the transaction.

use entresol::query::{CopyIn, CopyLines, CopyStatement};

use super::{Connection, Failure};
use crate::error::Report;
use crate::metrics::add;
use crate::security::privileges;
use crate::socket::{End, SEND_BYTES, violation};
use crate::wire::frontend::{self, Frontend};
use crate::wire::split::Kind;

/// Bytes that are parsed before anybody else gets a turn, and the statement may be interrupted.
const TURN_BYTES: usize = 64 << 10;

impl Connection {
    /// Parses a COPY and looks whether the role may run it.
    pub(super) fn parse_copy(&self, sql: &str) -> Result<CopyStatement, Failure> {
        self.admit_now(Kind::Copy)?;
        let statement = CopyStatement::parse(sql)?;
        let statement = statement.ok_or_else(|| Report::error("42601", "syntax error: this is no COPY"))?;
        let kind = if statement.is_in() { Kind::Write } else { Kind::Read };
        privileges::check(&self.role, &statement.equivalent(), kind)?;
        Ok(statement)
    }

    /// Runs a COPY, whichever way its rows go.
    pub(super) async fn copy(&mut self, statement: &CopyStatement) -> Result<(), Failure> {
        self.socket.send_deferred(&mut self.guard).await?;
        let rows = match statement.is_in() {
            true => self.copy_in(statement).await?,
            false => self.copy_out(statement).await?,
        };
        self.socket.out.complete(&format!("COPY {rows}"));
        Ok(())
    }

    async fn copy_in(&mut self, statement: &CopyStatement) -> Result<u64, Failure> {
        let alone = !self.session.in_transaction();
        let mut copy = self.session.copy_in(statement)?;
        self.socket.out.copy_in(copy.columns());
        self.socket.flush_guarded(&mut self.guard).await?;
        while let Some(data) = self.copy_data().await? {
            self.push(&mut copy, &data).await?;
        }
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
            match frontend::decode(packet).map_err(|frontend::Violation(why)| violation(why))? {
                Frontend::CopyData(data) => return Ok(Some(data)),
                Frontend::CopyDone => return Ok(None),
                Frontend::CopyFail(why) => {
                    return Err(Report::error("57014", format!("COPY from stdin failed: {why}")).into());
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

    async fn push(&mut self, copy: &mut CopyIn, data: &[u8]) -> Result<(), Failure> {
        for (turn, piece) in data.chunks(TURN_BYTES).enumerate() {
            if turn > 0 {
                self.socket.guarded(&mut self.guard, tokio::task::yield_now()).await?;
            }
            copy.push(piece)?;
        }
        Ok(())
    }

    async fn copy_out(&mut self, statement: &CopyStatement) -> Result<u64, Failure> {
        let starting = self.session.copy_out(statement);
        let mut copy = self.socket.guarded(&mut self.guard, starting).await??;
        self.socket.out.copy_out(copy.schema().fields().len());
        while let Some(lines) = self.socket.guarded(&mut self.guard, copy.next_lines()).await? {
            self.send_lines(&lines?).await?;
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
}
