//! The open connections: how one stops another, and the age of their transactions.

use crate::security::scram::{equal, random};
use entresol::query::ClientConnection;
use entresol::transactions::{Cancellation, Interrupt};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Bytes of the secret that a cancel request must have; every version of the protocol can carry as many.
const KEY_BYTES: usize = 4;

/// A client, as other connections see it.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) pid: i32,
    pub(crate) key: [u8; KEY_BYTES],
    address: Option<SocketAddr>,
    cancelled: AtomicBool,
    /// Its connection is to end.
    terminated: AtomicBool,
    wake: Notify,
    /// Statement that it runs.
    statement: Mutex<Arc<Cancellation>>,
    /// Milliseconds from the server's start to the begin of the open block, plus one; 0 if there is none.
    transaction_since: AtomicU64,
}

impl Client {
    /// Begins a statement, and forgets a request that came before it.
    pub(crate) fn begin_statement(&self, statement: Arc<Cancellation>) {
        let mut current = self.statement.lock().unwrap_or_else(PoisonError::into_inner);
        self.cancelled.store(false, Ordering::Release);
        *current = statement;
    }

    /// Waits until the statement is to stop, and returns the reason.
    pub(crate) async fn stopped(&self) -> Interrupt {
        loop {
            if self.terminated.load(Ordering::Acquire) {
                return Interrupt::Shutdown;
            }
            if self.cancelled.load(Ordering::Acquire) {
                return Interrupt::Requested;
            }
            self.wake.notified().await;
        }
    }

    /// Waits until the connection is to end.
    pub(crate) async fn terminated(&self) {
        while !self.terminated.load(Ordering::Acquire) {
            self.wake.notified().await;
        }
    }

    /// Stops the running statement, also where nothing waits that could be woken: in a loop that holds its
    /// thread.
    fn stop(&self, flag: &AtomicBool, reason: Interrupt) {
        let statement = self.statement.lock().unwrap_or_else(PoisonError::into_inner);
        statement.interrupt(reason);
        flag.store(true, Ordering::Release);
        self.wake.notify_one();
    }
}

impl ClientConnection for Client {
    fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    fn cancel(&self) {
        self.stop(&self.cancelled, Interrupt::Requested);
    }

    fn terminate(&self) {
        self.stop(&self.terminated, Interrupt::Shutdown);
    }
}

/// All clients of a server.
#[derive(Debug)]
pub(crate) struct Clients {
    started: Instant,
    next: AtomicI32,
    /// Blocks that are open.
    transactions: AtomicI64,
    open: Mutex<HashMap<i32, Arc<Client>>>,
}

/// Takes the client off the list when its connection ends.
#[derive(Debug)]
pub(crate) struct ClientRegistration {
    pub(crate) client: Arc<Client>,
    clients: Arc<Clients>,
}

impl Clients {
    pub(crate) fn new() -> Clients {
        Clients {
            started: Instant::now(),
            next: AtomicI32::new(0),
            transactions: AtomicI64::new(0),
            open: Mutex::default(),
        }
    }

    /// Registers a client under a number that no other has; `None` if the system provides no random numbers.
    pub(crate) fn register(self: &Arc<Self>, address: Option<SocketAddr>) -> Option<ClientRegistration> {
        let key = random::<KEY_BYTES>()?;
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let pid = loop {
            let pid = self.next.fetch_add(1, Ordering::Relaxed) & i32::MAX;
            if pid != 0 && !open.contains_key(&pid) {
                break pid;
            }
        };
        let client = Arc::new(Client {
            pid,
            key,
            address,
            cancelled: AtomicBool::new(false),
            terminated: AtomicBool::new(false),
            wake: Notify::new(),
            statement: Mutex::default(),
            transaction_since: AtomicU64::new(0),
        });
        open.insert(pid, Arc::clone(&client));
        Some(ClientRegistration { client, clients: Arc::clone(self) })
    }

    /// Cancels the running statement of a client, if the key is the client's.
    pub(crate) fn cancel(&self, pid: i32, key: &[u8]) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = open.get(&pid)
            && equal(&client.key, key)
        {
            client.cancel();
        }
    }

    /// Stops the running statements of all clients, because the server ends.
    pub(crate) fn shut_down(&self) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        for client in open.values() {
            let statement = client.statement.lock().unwrap_or_else(PoisonError::into_inner);
            statement.interrupt(Interrupt::Shutdown);
        }
    }

    /// Clients that are connected: those that were told that statements may come.
    pub(crate) fn count(&self) -> u64 {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).len() as u64
    }

    /// Blocks that are open now.
    pub(crate) fn open_transactions(&self) -> u64 {
        u64::try_from(self.transactions.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Age of the oldest open block.
    pub(crate) fn oldest_transaction(&self) -> Duration {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let since = open.values().filter_map(|client| {
            client.transaction_since.load(Ordering::Relaxed).checked_sub(1).map(Duration::from_millis)
        });
        since.min().map_or(Duration::ZERO, |since| self.started.elapsed().saturating_sub(since))
    }
}

impl ClientRegistration {
    /// Notes whether a block is open; the age counts from the first call with true.
    pub(crate) fn in_transaction(&self, open: bool) {
        let since = &self.client.transaction_since;
        match (open, since.load(Ordering::Relaxed)) {
            (true, 0) => {
                let ms = u64::try_from(self.clients.started.elapsed().as_millis()).unwrap_or(u64::MAX - 1);
                since.store(ms + 1, Ordering::Relaxed);
                self.clients.transactions.fetch_add(1, Ordering::Relaxed);
            }
            (false, 1..) => {
                since.store(0, Ordering::Relaxed);
                self.clients.transactions.fetch_sub(1, Ordering::Relaxed);
            }
            _ => {}
        }
    }
}

impl Drop for ClientRegistration {
    fn drop(&mut self) {
        self.in_transaction(false);
        self.clients.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.client.pid);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn only_the_right_key_cancels() {
        let clients = Arc::new(Clients::new());
        let one = clients.register(None).unwrap();
        let mut wrong = one.client.key;
        wrong[0] ^= 1;
        clients.cancel(one.client.pid, &wrong);
        clients.cancel(one.client.pid + 1, &one.client.key);
        assert!(!one.client.cancelled.load(Ordering::Acquire));
        clients.cancel(one.client.pid, &one.client.key);
        assert!(one.client.cancelled.load(Ordering::Acquire));
    }

    #[test]
    fn a_request_stops_the_statement_that_runs_and_no_later_one() {
        let clients = Arc::new(Clients::new());
        let one = clients.register(None).unwrap();
        let (first, second) = (Arc::<Cancellation>::default(), Arc::<Cancellation>::default());
        one.client.begin_statement(Arc::clone(&first));
        clients.cancel(one.client.pid, &one.client.key);
        assert!(first.check().is_err());
        one.client.begin_statement(Arc::clone(&second));
        assert!(second.check().is_ok() && !one.client.cancelled.load(Ordering::Acquire));
        clients.shut_down();
        assert!(second.check().is_err());
    }

    #[test]
    fn the_oldest_block_counts() {
        let clients = Arc::new(Clients::new());
        let (one, two) = (clients.register(None).unwrap(), clients.register(None).unwrap());
        assert_eq!(clients.oldest_transaction(), Duration::ZERO);
        one.in_transaction(true);
        std::thread::sleep(Duration::from_millis(20));
        two.in_transaction(true);
        assert!(clients.oldest_transaction() >= Duration::from_millis(15));
        one.in_transaction(false);
        assert!(clients.oldest_transaction() < Duration::from_millis(15));
        drop(two);
        assert_eq!(clients.oldest_transaction(), Duration::ZERO);
    }
}
