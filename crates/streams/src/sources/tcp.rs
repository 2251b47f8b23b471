//! Lines from TCP connections as a source.
//!
//! - It listens, and reads all connections that come, up to [`CONNECTIONS_MAX`] at a time, or it connects.
//! - Each connection has a thread, which parses lines and puts batches into one queue of
//!   [`QUEUE_BATCHES_MAX`] batches. While the queue is full nothing is read, so the senders' writes wait.
//! - A line has at most 1 MiB. One that is longer, or is no tuple, or has no end when the connection ends, is
//!   rejected.
//! - Nothing can be read again: after a crash, a stop or a failure, lines that were received and not committed
//!   are lost. Each counts at most once; the position is the number of tuples. Senders may ask what is committed
//!   ([`TcpSource::acknowledged`]), and send the rest again.

use crate::error::{Error, Result};
use crate::sources::acknowledged::{Sender as LineSender, SentLines, UnacknowledgedInput};
use crate::sources::files::FileFormat;
use crate::sources::lines::{LineBuffer, LineParser};
use crate::sources::{CommittedInput, Next, Position, Positions, Reject, Source, SourceBatch};
use arrow_array::RecordBatch;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use entresol_tables::{BatchBuilder, Column};
use std::io::{ErrorKind, Read};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Maximum of connections that are read at a time; more are closed at once.
pub const CONNECTIONS_MAX: usize = 64;
/// Maximum of batches that wait for the topology.
pub const QUEUE_BATCHES_MAX: usize = 4;
/// Tuples and rejects of a batch.
const BATCH_LINES: usize = 1024;
/// Bytes that are read at once.
const READ_BYTES: usize = 64 * 1024;
/// Bytes of a line that a reject shows.
const SHOWN_BYTES: usize = 4096;
/// Wait for a batch, for a connection, and for bytes of one.
const WAIT: Duration = Duration::from_millis(5);
const READ_WAIT: Duration = Duration::from_millis(50);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Side of the connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TcpEndpoint {
    /// Address to listen on, `host:port`.
    Listen(String),
    /// Address to connect to. When the connection has ended or cannot be made, another is made after the
    /// interval; without one, its end is the end of the source, and a failure its error.
    Connect {
        /// `host:port`.
        address: String,
        /// Interval between two attempts.
        retry: Option<Duration>,
    },
}

impl TcpEndpoint {
    fn address(&self) -> &str {
        match self {
            TcpEndpoint::Listen(address) | TcpEndpoint::Connect { address, .. } => address,
        }
    }

    fn error(&self, source: std::io::Error) -> Error {
        Error::Io { path: PathBuf::from(format!("tcp {}", self.address())), source }
    }
}

/// Lines from connections; see the [module](self).
pub struct TcpSource {
    endpoint: TcpEndpoint,
    parser: LineParser,
    position: u64,
    reader: Option<Reader>,
    /// Lines that are to be acknowledged; none if it does not.
    unacknowledged: Option<UnacknowledgedInput>,
}

/// Batch of a connection.
struct ReceivedBatch {
    tuples: RecordBatch,
    rejects: Vec<Reject>,
    /// Lines of its connection up to its end, if they are acknowledged.
    sent: Option<SentLines>,
}

/// Thread that makes connections.
struct Reader {
    batches: Receiver<Result<ReceivedBatch>>,
    thread: Option<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
}

impl TcpSource {
    /// Creates a source of tuples with these columns; fields of CSV lines are in their order.
    pub fn new(endpoint: TcpEndpoint, columns: Vec<Column>, format: FileFormat) -> TcpSource {
        let parser = LineParser { format, columns };
        TcpSource { endpoint, parser, position: 0, reader: None, unacknowledged: None }
    }

    /// Lets it send to each connection the number of lines that are committed and durable, each time in a line.
    pub fn acknowledged(self) -> TcpSource {
        TcpSource { unacknowledged: Some(UnacknowledgedInput::default()), ..self }
    }
}

impl Source for TcpSource {
    fn columns(&self) -> Vec<Column> {
        self.parser.tuple_columns()
    }

    fn open(&mut self, from: Option<Position>) -> Result<()> {
        self.position = from.unwrap_or_default().offset;
        let (sender, batches) = bounded(QUEUE_BATCHES_MAX);
        let stop = Arc::new(AtomicBool::new(false));
        let connections = Connections {
            endpoint: self.endpoint.clone(),
            parser: self.parser.clone(),
            acknowledges: self.unacknowledged.is_some(),
            sender,
            stop: Arc::clone(&stop),
        };
        let listener = match &self.endpoint {
            TcpEndpoint::Listen(address) => Some(listen(address).map_err(|e| self.endpoint.error(e))?),
            TcpEndpoint::Connect { .. } => None,
        };
        let run = move || match listener {
            Some(listener) => connections.accept(&listener),
            None => connections.connect(),
        };
        let spawned = std::thread::Builder::new().name("entresol-tcp".to_owned()).spawn(run);
        let thread = Some(spawned.map_err(|source| self.endpoint.error(source))?);
        self.reader = Some(Reader { batches, thread, stop });
        Ok(())
    }

    fn next(&mut self, _tuples_max: usize) -> Result<Next> {
        let Some(reader) = &self.reader else { return Ok(Next::End) };
        let ReceivedBatch { tuples, rejects, sent } = match reader.batches.recv_timeout(WAIT) {
            Ok(received) => received?,
            Err(RecvTimeoutError::Timeout) => return Ok(Next::Idle),
            Err(RecvTimeoutError::Disconnected) => return Ok(Next::End),
        };
        let first = self.position + 1;
        self.position += tuples.num_rows() as u64;
        let end = Position { offset: self.position, line: 0 };
        let positions = Positions::Counted { first };
        if let (Some(unacknowledged), Some(sent)) = (&mut self.unacknowledged, sent) {
            unacknowledged.add(sent, self.position, rejects.len());
        }
        Ok(Next::Batch(SourceBatch { tuples, positions, rejects, end, split: None }))
    }

    fn acknowledges(&self) -> bool {
        self.unacknowledged.is_some()
    }

    fn committed(&mut self, input: &CommittedInput) -> Result<()> {
        if let Some(unacknowledged) = &mut self.unacknowledged {
            unacknowledged.committed(input);
        }
        Ok(())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Threads that wait for room end.
        self.batches = crossbeam_channel::never();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn listen(address: &str) -> std::io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Connections of a source.
struct Connections {
    endpoint: TcpEndpoint,
    parser: LineParser,
    acknowledges: bool,
    sender: Sender<Result<ReceivedBatch>>,
    stop: Arc<AtomicBool>,
}

impl Connections {
    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Accepts connections, each with a thread of its own.
    fn accept(&self, listener: &TcpListener) {
        std::thread::scope(|scope| {
            let mut open: Vec<std::thread::ScopedJoinHandle<'_, ()>> = Vec::new();
            while !self.is_stopped() {
                match listener.accept() {
                    Ok((stream, peer)) => {
                        open.retain(|thread| !thread.is_finished());
                        if open.len() == CONNECTIONS_MAX {
                            let address = self.endpoint.address();
                            tracing::warn!(address, %peer, CONNECTIONS_MAX, "a connection is closed: too many are open");
                            continue;
                        }
                        open.push(scope.spawn(move || {
                            if let Err(error) = self.read(stream) {
                                tracing::warn!(%peer, %error, "a connection of a source ended");
                            }
                        }));
                    }
                    Err(error) if is_temporary(&error) => std::thread::sleep(WAIT),
                    Err(error) => {
                        let _ = self.sender.send(Err(self.endpoint.error(error)));
                        return;
                    }
                }
            }
        });
    }

    /// Connects, again if it was told to.
    fn connect(&self) {
        let TcpEndpoint::Connect { address, retry } = &self.endpoint else { return };
        while !self.is_stopped() {
            let ended = connected(address).and_then(|stream| self.read(stream));
            let Some(interval) = retry else {
                if let Err(error) = ended {
                    let _ = self.sender.send(Err(self.endpoint.error(error)));
                }
                return;
            };
            if let Err(error) = ended {
                tracing::warn!(address, %error, "the connection of a source is made again");
            }
            let since = Instant::now();
            while !self.is_stopped() && since.elapsed() < *interval {
                std::thread::sleep(WAIT.min(*interval));
            }
        }
    }

    /// Reads a connection to its end.
    fn read(&self, mut stream: TcpStream) -> std::io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(READ_WAIT))?;
        let sender = if self.acknowledges { Some(LineSender::of(&stream)?) } else { None };
        let mut made = PartialBatch::new(&self.parser, sender);
        let mut lines = LineBuffer::default();
        let mut bytes = vec![0; READ_BYTES];
        let result = loop {
            if self.is_stopped() {
                return Ok(());
            }
            match stream.read(&mut bytes) {
                Ok(0) => break Ok(()),
                Ok(read) => {
                    if !self.take(&mut lines, &mut made, &bytes[..read]) {
                        return Ok(());
                    }
                }
                Err(error) if is_temporary(&error) => {}
                Err(error) => break Err(error),
            }
        };
        if let Some((number, line)) = lines.rest() {
            made.reject(number, line, "the connection ended within the line".to_owned());
        }
        self.send(&mut made);
        result
    }

    /// Makes tuples of bytes and sends them; returns false if the topology has stopped.
    fn take(&self, lines: &mut LineBuffer, made: &mut PartialBatch<'_>, bytes: &[u8]) -> bool {
        let mut goes_on = true;
        lines.push(bytes, |number, line, is_long| {
            made.line(number, line, is_long);
            if made.len() >= BATCH_LINES {
                goes_on &= self.send(made);
            }
        });
        goes_on && self.send(made)
    }

    fn send(&self, made: &mut PartialBatch<'_>) -> bool {
        made.len() == 0 || self.sender.send(Ok(made.finish())).is_ok()
    }
}

/// Batch in the making.
struct PartialBatch<'p> {
    parser: &'p LineParser,
    builder: BatchBuilder,
    rejects: Vec<Reject>,
    /// Sender of the connection, if its lines are acknowledged, and their number.
    sender: Option<Arc<LineSender>>,
    lines: u64,
}

impl PartialBatch<'_> {
    fn new(parser: &LineParser, sender: Option<Arc<LineSender>>) -> PartialBatch<'_> {
        let builder = BatchBuilder::new(&parser.tuple_columns(), 0);
        PartialBatch { parser, builder, rejects: Vec::new(), sender, lines: 0 }
    }

    fn len(&self) -> usize {
        self.builder.len() + self.rejects.len()
    }

    fn line(&mut self, number: u64, line: &[u8], is_long: bool) {
        self.lines = number;
        let Some(record) = self.parser.record(line) else { return };
        let made = if is_long {
            Err(format!("the line is longer than {} bytes", line.len()))
        } else {
            // One that says nothing counts as an empty line.
            let tuple = self.parser.tuple(record);
            tuple.and_then(|tuple| tuple.map_or(Ok(()), |tuple| self.builder.push(&tuple)))
        };
        if let Err(reason) = made {
            self.reject(number, record, reason);
        }
    }

    fn reject(&mut self, line: u64, text: &[u8], reason: String) {
        let raw = String::from_utf8_lossy(&text[..text.len().min(SHOWN_BYTES)]).into_owned();
        let (tuples_before, offset) = (self.builder.len(), None);
        self.rejects.push(Reject { tuples_before, line, offset, reason, raw });
    }

    fn finish(&mut self) -> ReceivedBatch {
        let sent =
            self.sender.as_ref().map(|sender| SentLines { sender: Arc::clone(sender), lines: self.lines });
        ReceivedBatch { tuples: self.builder.finish(), rejects: std::mem::take(&mut self.rejects), sent }
    }
}

/// Connection to the first of an address's that answers.
pub(crate) fn connected(address: &str) -> std::io::Result<TcpStream> {
    let mut failed = ErrorKind::AddrNotAvailable.into();
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// Returns true if the call may succeed when it is made again.
fn is_temporary(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted | ErrorKind::ConnectionAborted
    )
}
