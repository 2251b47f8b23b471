//! A client's socket, encrypted or not: packets in, messages out, and interruptions of a statement meanwhile.

use crate::clients::Client;
use crate::error::Report;
use crate::metrics::add;
use crate::server::{Phase, ServerState};
use crate::wire::backend::Output;
use crate::wire::frontend::{self, Packet};
use bytes::BytesMut;
use entresol::transactions::Cancellation;
pub(crate) use entresol::transactions::Interrupt;
use pgwire::tokio::server::MaybeTls;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;

/// Bytes that are read while a statement runs, to detect that the client is gone; what it sends beyond waits.
pub(crate) const READ_AHEAD_BYTES_MAX: usize = 256 << 10;
/// Rows are sent when so many bytes are together.
pub(crate) const SEND_BYTES: usize = 64 << 10;
/// Room for one read.
const READ_BYTES: usize = 16 << 10;
/// Buffers with more room than this are freed.
const KEPT_BYTES: usize = 1 << 20;
/// Terminate message of a client.
const TERMINATE: &[u8] = b"X\0\0\0\x04";

/// Reason for the end of a connection.
#[derive(Debug)]
pub(crate) enum End {
    /// The client disconnected, in good order or not.
    Gone,
    /// A fatal report is sent.
    Fatal(Report),
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> End {
        End::Gone
    }
}

/// Events that may interrupt a statement.
pub(crate) struct Guard {
    pub(crate) client: Arc<Client>,
    pub(crate) phase: watch::Receiver<Phase>,
    /// The statement that runs.
    pub(crate) statement: Arc<Cancellation>,
}

impl Guard {
    async fn interrupted(&mut self) -> Interrupt {
        let deadline = async {
            match self.statement.deadline() {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            reason = self.client.stopped() => reason,
            () = deadline => Interrupt::TimedOut,
            () = ending(&mut self.phase) => Interrupt::Shutdown,
        }
    }

    /// Stops the statement. False if it is too late: then its result stands, and is reported.
    fn try_stop(&self, reason: Interrupt) -> bool {
        self.statement.interrupt(reason)
    }
}

/// Waits until running statements are to end.
async fn ending(phase: &mut watch::Receiver<Phase>) {
    // The sender lives as long as the server, which waits for its connections.
    let _ = phase.wait_for(|phase| *phase == Phase::Ending).await;
}

/// A client's socket.
pub(crate) struct Socket {
    io: MaybeTls,
    input: BytesMut,
    pub(crate) out: Output,
    /// Answers that could have been sent wait for those of messages that have arrived behind them.
    deferred: bool,
    shared: Arc<ServerState>,
}

impl Socket {
    pub(crate) fn new(io: MaybeTls, input: BytesMut, shared: Arc<ServerState>) -> Socket {
        Socket { io, input, out: Output::default(), deferred: false, shared }
    }

    /// Reads what there is; false at the end.
    async fn read_more(&mut self) -> io::Result<bool> {
        self.input.reserve(READ_BYTES);
        let read = self.io.read_buf(&mut self.input).await?;
        add(&self.shared.metrics.bytes_received_total, read as u64);
        Ok(read > 0)
    }

    /// The next packet. Before it waits for one, it sends the deferred answers.
    pub(crate) async fn packet(&mut self, bytes_max: usize) -> Result<Packet, End> {
        loop {
            let packet = frontend::next_packet(&mut self.input, bytes_max);
            if let Some(packet) = packet.map_err(|frontend::Violation(reason)| violation(reason))? {
                if self.input.is_empty() && self.input.capacity() > KEPT_BYTES {
                    self.input = BytesMut::new();
                }
                return Ok(packet);
            }
            if self.deferred {
                self.flush().await?;
            }
            if !self.read_more().await? {
                return Err(End::Gone);
            }
        }
    }

    /// The next packet of a statement that needs more of them, unless it is interrupted.
    pub(crate) async fn packet_guarded(
        &mut self,
        guard: &mut Guard,
        bytes_max: usize,
    ) -> Result<Result<Packet, End>, Interrupt> {
        tokio::select! {
            biased;
            packet = self.packet(bytes_max) => Ok(packet),
            reason = guard.interrupted() => {
                guard.try_stop(reason);
                Err(reason)
            }
        }
    }

    /// The type of the next packet, if it has arrived.
    pub(crate) fn next_kind(&self) -> Option<u8> {
        frontend::next_kind(&self.input, self.shared.limits.packet_bytes)
    }

    /// Defers sending answers that are ready, if more messages have arrived: one system call for many
    /// answers. Steps that may take time send them first ([`Socket::send_deferred`]); so do waits. False if
    /// they are to be sent now.
    pub(crate) fn defer(&mut self) -> bool {
        self.deferred = self.out.bytes.len() < SEND_BYTES && self.next_kind().is_some();
        self.deferred
    }

    /// Sends the deferred answers.
    pub(crate) async fn send_deferred(&mut self, guard: &mut Guard) -> Result<(), Interrupt> {
        if self.deferred { self.flush_answers(guard).await } else { Ok(()) }
    }

    /// Sends all messages.
    pub(crate) async fn flush(&mut self) -> Result<(), End> {
        while !self.out.bytes.is_empty() {
            let sent = self.io.write_buf(&mut self.out.bytes).await?;
            if sent == 0 {
                return Err(End::Gone);
            }
            add(&self.shared.metrics.bytes_sent_total, sent as u64);
        }
        self.io.flush().await?;
        self.deferred = false;
        if self.out.bytes.capacity() > KEPT_BYTES {
            self.out.bytes = BytesMut::new();
        }
        Ok(())
    }

    /// As [`Socket::flush_guarded`], between statements: a client that has sent Terminate need not listen to the answers
    /// so far, and what it sent is still done.
    pub(crate) async fn flush_answers(&mut self, guard: &mut Guard) -> Result<(), Interrupt> {
        match self.flush_guarded(guard).await {
            Err(Interrupt::Disconnected) if self.has_terminated().await => {
                self.out.bytes.clear();
                self.deferred = false;
                Ok(())
            }
            flushed => flushed,
        }
    }

    /// Tells whether Terminate is the last message of a client that does not listen any more. What arrived before
    /// it closed its socket can still be read.
    async fn has_terminated(&mut self) -> bool {
        while self.input.len() < READ_AHEAD_BYTES_MAX && self.read_more().await.unwrap_or(false) {}
        self.input.ends_with(TERMINATE)
    }

    /// Sends all messages, unless the statement is interrupted first: then the rest is still to be sent. A
    /// result that has taken effect is sent to the end, if the client listens.
    pub(crate) async fn flush_guarded(&mut self, guard: &mut Guard) -> Result<(), Interrupt> {
        let reason = tokio::select! {
            biased;
            flushed = self.flush() => return flushed.map_err(|_| Interrupt::Disconnected),
            reason = guard.interrupted() => reason,
        };
        if guard.try_stop(reason) || reason == Interrupt::Shutdown {
            return Err(reason);
        }
        tokio::select! {
            biased;
            flushed = self.flush() => flushed.map_err(|_| Interrupt::Disconnected),
            () = ending(&mut guard.phase) => Err(Interrupt::Shutdown),
        }
    }

    /// Runs a part of a statement, unless it is interrupted before its point of no return: then the part is
    /// dropped, and nothing of the statement takes effect. Behind that point it runs to its end, and its
    /// result is what happened.
    pub(crate) async fn guarded<T>(
        &mut self,
        guard: &mut Guard,
        future: impl Future<Output = T>,
    ) -> Result<T, Interrupt> {
        let mut future = pin!(future);
        let reason = tokio::select! {
            // Most statements end at the first poll; then nothing else is polled.
            biased;
            result = &mut future => return Ok(result),
            reason = guard.interrupted() => reason,
            () = self.disconnected() => Interrupt::Disconnected,
        };
        if guard.try_stop(reason) { Err(reason) } else { Ok(future.await) }
    }

    /// As [`Socket::guarded`], for the next rows of a result: those that were written are sent while it waits.
    pub(crate) async fn guarded_rows<T>(
        &mut self,
        guard: &mut Guard,
        rows: impl Future<Output = T>,
    ) -> Result<T, Interrupt> {
        let deferred = std::mem::replace(&mut self.deferred, true);
        let next = self.guarded(guard, rows).await;
        self.deferred &= deferred;
        next
    }

    /// Waits until the client is gone, and reads ahead to detect it; sends the deferred answers.
    async fn disconnected(&mut self) {
        if self.deferred && self.flush().await.is_err() {
            return;
        }
        while self.input.len() < READ_AHEAD_BYTES_MAX {
            match self.read_more().await {
                Ok(true) => {}
                // It has sent all that it wanted, Terminate included: that is still done. The read fails
                // if it closed its socket before it read all answers.
                Ok(false) | Err(_) if self.input.ends_with(TERMINATE) => break,
                Ok(false) | Err(_) => return,
            }
        }
        std::future::pending().await
    }

    /// Sends a report of the end, if the client still listens.
    pub(crate) async fn close(&mut self) {
        let _ = self.flush().await;
        let _ = self.io.shutdown().await;
    }
}

/// A protocol violation: nothing that follows would have a meaning.
pub(crate) fn violation(reason: String) -> End {
    End::Fatal(Report::fatal("08P01", reason))
}
