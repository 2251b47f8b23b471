//! Acknowledgements of a TCP source to those who sent its lines.
//!
//! - A sender gets the number of its lines, from the beginning of its connection, whose effects are committed and durable: as
//!   a decimal number in a line of its own. Empty and rejected lines count. The numbers increase, and not each of them is sent.
//! - So a sender that keeps its lines until then, and sends the rest again on its next connection, loses none: each line is
//!   counted at least once.
//! - A sender that does not read gets fewer numbers, and delays no other: the socket's buffer holds some, and a write that does
//!   not fit is given up, with those behind it.
//!
//! Memory: [`BATCHES_MAX`] batches of lines that are not committed, and one of each connection.

use crate::sources::CommittedInput;
use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Maximum of batches that are noted each by itself; the lines of further ones are acknowledged together.
const BATCHES_MAX: usize = 4096;
/// Longest wait for room in the buffer of a socket.
const WRITE_WAIT: Duration = Duration::from_millis(1);

/// Sender of a connection.
#[derive(Debug)]
pub(super) struct Sender {
    stream: TcpStream,
    /// True once a write has failed.
    is_deaf: AtomicBool,
}

impl Sender {
    /// Sender at the other end of a stream.
    pub(super) fn of(stream: &TcpStream) -> std::io::Result<Arc<Sender>> {
        let stream = stream.try_clone()?;
        stream.set_write_timeout(Some(WRITE_WAIT))?;
        Ok(Arc::new(Sender { stream, is_deaf: AtomicBool::new(false) }))
    }

    fn acknowledge(&self, lines: u64) {
        if self.is_deaf.load(Ordering::Relaxed) {
            return;
        }
        // A part of a number would be another number: after a failure nothing follows.
        if let Err(error) = (&self.stream).write_all(format!("{lines}\n").as_bytes()) {
            tracing::debug!(%error, lines, "a sender does not take acknowledgements");
            self.is_deaf.store(true, Ordering::Relaxed);
        }
    }
}

/// Lines of a sender, up to a number.
#[derive(Debug, Clone)]
pub(super) struct SentLines {
    pub(super) sender: Arc<Sender>,
    pub(super) lines: u64,
}

/// Lines that are not committed.
#[derive(Debug, Default)]
pub(super) struct UnacknowledgedInput {
    batches: Vec<UnacknowledgedBatch>,
    /// Rejected lines of all batches.
    rejected: u64,
}

#[derive(Debug)]
struct UnacknowledgedBatch {
    sent: SentLines,
    /// Position behind its tuples, and the rejected lines up to there.
    offset: u64,
    rejected: u64,
}

impl UnacknowledgedInput {
    /// Notes the lines of the next batch, with the position behind it.
    pub(super) fn add(&mut self, sent: SentLines, offset: u64, rejects: usize) {
        self.rejected += rejects as u64;
        let batch = UnacknowledgedBatch { sent, offset, rejected: self.rejected };
        if self.batches.len() >= BATCHES_MAX {
            let of_sender =
                |other: &&mut UnacknowledgedBatch| Arc::ptr_eq(&other.sent.sender, &batch.sent.sender);
            if let Some(last) = self.batches.iter_mut().rev().find(of_sender) {
                *last = batch;
                return;
            }
        }
        self.batches.push(batch);
    }

    /// Acknowledges what is committed.
    pub(super) fn committed(&mut self, input: &CommittedInput) {
        let (mut acknowledged, mut rest) = (Vec::<SentLines>::new(), Vec::new());
        for batch in self.batches.drain(..) {
            if batch.offset > input.position.offset || batch.rejected > input.rejected {
                rest.push(batch);
                continue;
            }
            let of_sender = |other: &&mut SentLines| Arc::ptr_eq(&other.sender, &batch.sent.sender);
            match acknowledged.iter_mut().find(of_sender) {
                Some(sent) => sent.lines = sent.lines.max(batch.sent.lines),
                None => acknowledged.push(batch.sent),
            }
        }
        self.batches = rest;
        acknowledged.iter().for_each(|sent| sent.sender.acknowledge(sent.lines));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::Position;
    use std::io::{BufRead, BufReader};
    use std::net::TcpListener;

    fn connection() -> (Arc<Sender>, BufReader<TcpStream>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Sender::of(&listener.accept().unwrap().0).unwrap(), BufReader::new(client))
    }

    fn committed(offset: u64, rejected: u64) -> CommittedInput {
        CommittedInput { position: Position { offset, line: 0 }, splits: Vec::new(), rejected }
    }

    fn number(reader: &mut BufReader<TcpStream>) -> u64 {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        line.trim().parse().unwrap()
    }

    #[test]
    fn each_sender_hears_of_its_own_lines_once_they_are_committed() {
        let ((first, mut to_first), (second, mut to_second)) = (connection(), connection());
        let mut unacknowledged = UnacknowledgedInput::default();
        let sent = |sender: &Arc<Sender>, lines| SentLines { sender: Arc::clone(sender), lines };
        unacknowledged.add(sent(&first, 10), 10, 0);
        unacknowledged.add(sent(&second, 3), 12, 1);
        unacknowledged.add(sent(&first, 12), 14, 0);
        unacknowledged.committed(&committed(9, 0));
        unacknowledged.committed(&committed(12, 0));
        assert_eq!(number(&mut to_first), 10);
        unacknowledged.committed(&committed(14, 1));
        assert_eq!((number(&mut to_first), number(&mut to_second)), (12, 3));
    }

    #[test]
    fn many_batches_are_acknowledged_together() {
        let (sender, mut reader) = connection();
        let mut unacknowledged = UnacknowledgedInput::default();
        for lines in 1..=2 * BATCHES_MAX as u64 {
            unacknowledged.add(SentLines { sender: Arc::clone(&sender), lines }, lines, 0);
        }
        assert_eq!(unacknowledged.batches.len(), BATCHES_MAX);
        unacknowledged.committed(&committed(2 * BATCHES_MAX as u64 - 1, 0));
        unacknowledged.committed(&committed(2 * BATCHES_MAX as u64, 0));
        assert_eq!(number(&mut reader), BATCHES_MAX as u64 - 1);
        assert_eq!(number(&mut reader), 2 * BATCHES_MAX as u64);
    }
}
