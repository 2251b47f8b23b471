//! Acknowledgements of a TCP source to those who sent its lines.
//!
//! - A sender gets the number of its lines, from the beginning of its connection, whose effects are committed and durable: as
//!   a decimal number in a line of its own. Empty and rejected lines count. The numbers increase, and not each of them is sent.
//! - So a sender that keeps its lines until then, and sends the rest again on its next connection, loses none: each line is
//!   counted at least once.
//! - A sender that does not read gets fewer numbers, and delays no other: the socket's buffer holds some, and a write that does
//!   not fit is given up, with those behind it.
//!
//! - A connection that has ended stays open for its number until its lines are committed. Of those, and of the open ones,
//!   at most [`SENDERS_MAX`] wait for a number: beyond that the one which ended first is closed without, as by a crash.
//!
//! Memory: [`BATCHES_MAX`] batches of lines that are not committed, and one of each sender. Descriptors: one of each sender.

use crate::sources::CommittedInput;
use crate::sources::tcp::{CONNECTIONS_MAX, QUEUE_BATCHES_MAX};
use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Maximum of batches that are noted each by itself; the lines of further ones are acknowledged together.
const BATCHES_MAX: usize = 4096;
/// Maximum of senders that wait for a number.
const SENDERS_MAX: usize = 256;
const _: () = assert!(
    SENDERS_MAX > CONNECTIONS_MAX + QUEUE_BATCHES_MAX + 1,
    "of as many senders one has ended, and its lines are all noted"
);
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
    /// Senders of the batches, in the order of their first ones. No batch keeps a connection open.
    senders: Vec<Arc<Sender>>,
    /// Rejected lines of all batches.
    rejected: u64,
}

#[derive(Debug)]
struct UnacknowledgedBatch {
    sender: Weak<Sender>,
    /// Lines of the sender up to its end.
    lines: u64,
    /// Position behind its tuples, and the rejected lines up to there.
    offset: u64,
    rejected: u64,
}

impl UnacknowledgedBatch {
    fn is_of(&self, sender: &Arc<Sender>) -> bool {
        std::ptr::eq(self.sender.as_ptr(), Arc::as_ptr(sender))
    }
}

impl UnacknowledgedInput {
    /// Notes the lines of the next batch, with the position behind it.
    pub(super) fn add(&mut self, sent: SentLines, offset: u64, rejects: usize) {
        self.rejected += rejects as u64;
        let SentLines { sender, lines } = sent;
        let weak = Arc::downgrade(&sender);
        let batch = UnacknowledgedBatch { sender: weak, lines, offset, rejected: self.rejected };
        if self.batches.len() >= BATCHES_MAX
            && let Some(last) = self.batches.iter_mut().rev().find(|other| other.is_of(&sender))
        {
            *last = batch;
            return;
        }
        if !self.senders.iter().rev().any(|known| Arc::ptr_eq(known, &sender)) {
            if self.senders.len() >= SENDERS_MAX {
                self.forget_sender();
            }
            self.senders.push(sender);
        }
        self.batches.push(batch);
    }

    /// Closes the connection that ended first, without a number.
    fn forget_sender(&mut self) {
        // The thread of a connection, and its batches in the queue, have the sender too.
        let ended = self.senders.iter().position(|sender| Arc::strong_count(sender) == 1);
        let forgotten = self.senders.remove(ended.unwrap_or(0));
        tracing::debug!(SENDERS_MAX, "too many senders wait for acknowledgements: one is closed without");
        self.batches.retain(|batch| !batch.is_of(&forgotten));
    }

    /// Acknowledges what is committed.
    pub(super) fn committed(&mut self, input: &CommittedInput) {
        // Of each sender with committed lines, their number.
        let mut committed: HashMap<*const Sender, u64> = HashMap::new();
        let mut waiting: HashSet<*const Sender> = HashSet::new();
        self.batches.retain(|batch| {
            if batch.offset > input.position.offset || batch.rejected > input.rejected {
                waiting.insert(batch.sender.as_ptr());
                return true;
            }
            let lines = committed.entry(batch.sender.as_ptr()).or_default();
            *lines = batch.lines.max(*lines);
            false
        });
        // Connections that have ended are closed with the last of their numbers.
        self.senders.retain(|sender| {
            if let Some(lines) = committed.get(&Arc::as_ptr(sender)) {
                sender.acknowledge(*lines);
            }
            waiting.contains(&Arc::as_ptr(sender))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::Position;
    use std::io::{BufRead, BufReader, Read};
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

    /// Bytes that a sender reads until its connection is closed.
    fn all(reader: &mut BufReader<TcpStream>) -> String {
        reader.get_ref().set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut read = String::new();
        reader.read_to_string(&mut read).expect("the connection is closed");
        read
    }

    #[test]
    fn few_connections_that_have_ended_wait_and_each_is_closed() {
        let mut unacknowledged = UnacknowledgedInput::default();
        let (open, mut to_open) = connection();
        unacknowledged.add(SentLines { sender: Arc::clone(&open), lines: 1 }, 1, 0);
        let (mut to_first, mut to_last) = (None, None);
        for offset in 2..=3 * SENDERS_MAX as u64 {
            let (sender, client) = connection();
            unacknowledged.add(SentLines { sender, lines: 1 }, offset, 0);
            // Of those between them no descriptor is kept.
            let place = if to_first.is_none() { &mut to_first } else { &mut to_last };
            *place = Some(client);
        }
        assert_eq!((unacknowledged.senders.len(), unacknowledged.batches.len()), (SENDERS_MAX, SENDERS_MAX));
        assert_eq!(all(to_first.as_mut().unwrap()), "", "it is closed without a number");
        unacknowledged.committed(&committed(3 * SENDERS_MAX as u64, 0));
        assert_eq!(all(to_last.as_mut().unwrap()), "1\n");
        assert_eq!((unacknowledged.senders.len(), unacknowledged.batches.len()), (0, 0));
        assert_eq!(number(&mut to_open), 1, "an open one is not among the closed");
        drop(open);
        assert_eq!(all(&mut to_open), "");
    }
}
