//! The operator that sends rows over a TCP connection.
//!
//! - Rows are sent at the commit punctuation, before the commit: one that cannot be sent aborts the transaction
//!   and ends the topology with the reason; its input comes again. A transaction that is run again after a conflict,
//!   a failure or a crash is sent again: each row goes out at least once.
//! - The receiver does not answer. Rows that the system had taken and a broken connection did not deliver are
//!   lost to it. Where this matters, take a file.
//! - A receiver that does not read for [`SEND_TIMEOUT`] is an error; until then the topology waits for it.
//! - Rows are held within the memory budget until the commit punctuation.

use crate::element::Batch;
use crate::error::{Error, Result};
use crate::execution::held_batches::HeldBatches;
use crate::operators::{Context, Operator, Output};
use crate::sinks::encoding::RowEncoder;
use crate::sources::tcp::connected;
use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

/// Maximum of time in which the receiver takes nothing.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of encoded rows that are sent at once.
const SEND_BYTES: usize = 1 << 18;

pub(crate) struct TcpSinkOperator {
    name: String,
    address: String,
    encoder: RowEncoder,
    held: Vec<Batch>,
    memory: HeldBatches,
    stream: Option<TcpStream>,
}

impl TcpSinkOperator {
    pub(crate) fn new(name: String, address: String, encoder: RowEncoder, memory: HeldBatches) -> Self {
        TcpSinkOperator { name, address, encoder, held: Vec::new(), memory, stream: None }
    }

    fn failed(&self, source: std::io::Error) -> Error {
        let source = match source.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                let seconds = SEND_TIMEOUT.as_secs();
                std::io::Error::new(ErrorKind::TimedOut, format!("nothing was taken for {seconds} s"))
            }
            _ => source,
        };
        Error::Io { path: PathBuf::from(format!("tcp {}", self.address)), source }
    }

    /// Connection that is open, as far as it can be known.
    fn open(&mut self) -> std::io::Result<TcpStream> {
        if let Some(stream) = self.stream.take()
            && is_open(&stream)?
        {
            return Ok(stream);
        }
        let stream = connected(&self.address)?;
        stream.set_write_timeout(Some(SEND_TIMEOUT))?;
        Ok(stream)
    }

    fn send(&mut self) -> Result<()> {
        let mut stream = self.open().map_err(|error| self.failed(error))?;
        let mut lines = Vec::new();
        for batch in &self.held {
            self.encoder.rows(batch, &mut lines)?;
            if lines.len() >= SEND_BYTES {
                stream.write_all(&lines).map_err(|error| self.failed(error))?;
                lines.clear();
            }
        }
        stream.write_all(&lines).map_err(|error| self.failed(error))?;
        // Dropped after a failure: a line may have been sent in part.
        self.stream = Some(stream);
        Ok(())
    }
}

impl Operator for TcpSinkOperator {
    fn name(&self) -> &str {
        &self.name
    }

    fn batch(&mut self, _context: &Context<'_>, batch: &Batch, _output: &mut Output) -> Result<()> {
        self.memory.add(batch)?;
        self.held.push(batch.clone());
        Ok(())
    }

    fn commit(&mut self, _context: &Context<'_>, _output: &mut Output) -> Result<()> {
        if self.held.is_empty() { Ok(()) } else { self.send() }
    }

    fn committed(&mut self) -> Result<()> {
        self.aborted();
        Ok(())
    }

    fn aborted(&mut self) {
        self.held.clear();
        self.memory.clear();
    }
}

/// Returns true unless the receiver has closed the connection.
fn is_open(stream: &TcpStream) -> std::io::Result<bool> {
    stream.set_nonblocking(true)?;
    let peeked = stream.peek(&mut [0]);
    stream.set_nonblocking(false)?;
    Ok(match peeked {
        Ok(bytes) => bytes > 0,
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    })
}
