//! The server: accepts connections, limits their number, and ends them.

use crate::clients::Clients;
use crate::metrics::{Metrics, add};
use crate::options::{Limits, ServerOptions};
use crate::security::scram::random;
use crate::security::{roles, tls};
use crate::{http, session, startup};
use entresol::Database;
use pgwire::tokio::TlsAcceptor;
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

/// Maximum number of connections that get the error that there are too many; beyond, they are closed without
/// one.
const REFUSALS_MAX: usize = 64;
/// Idle time after which a client is probed.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
/// Interval of further probes, until the system gives the client up; Linux sends nine.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum time for a statement to stop once the server ends.
const STOP_TIME_MAX: Duration = Duration::from_millis(800);
/// A pause when the system has no room for another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Error of starting a server.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The reason.
        source: io::Error,
    },
    /// Others could connect, and no password is required.
    #[error(
        "refusing to listen on {0} without roles: every client that reaches it would be a superuser; create a role with \
         `entresol role add`, or listen on 127.0.0.1"
    )]
    Open(SocketAddr),
    /// Certificate or key cannot be used.
    #[error("cannot use the TLS certificate and key: {0}")]
    Tls(io::Error),
    /// The roles cannot be read.
    #[error("{0}")]
    Roles(#[from] roles::Error),
    /// The system has no random numbers.
    #[error("the system provides no random numbers")]
    NoRandomNumbers,
}

/// Phase of the life of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Running,
    /// No new work; running statements may finish.
    Draining,
    /// Running statements are interrupted.
    Ending,
}

/// State that all connections share.
pub(crate) struct ServerState {
    pub(crate) db: Database,
    pub(crate) limits: Limits,
    /// True if it listens on this machine alone.
    pub(crate) is_local: bool,
    pub(crate) tls: Option<TlsAcceptor>,
    pub(crate) tls_required: bool,
    pub(crate) metrics: Metrics,
    pub(crate) clients: Arc<Clients>,
    pub(crate) phase: watch::Receiver<Phase>,
    /// Key for answers about unknown roles that cannot be told from those about known ones.
    pub(crate) secret: [u8; 32],
    /// Counts changes of roles: connections look up theirs again.
    pub(crate) roles_version: AtomicU64,
}

impl ServerState {
    /// Checks that statements can run.
    pub(crate) fn health(&self) -> Result<(), String> {
        if *self.phase.borrow() != Phase::Running {
            return Err("the server is shutting down".to_owned());
        }
        self.db.begin().map(drop).map_err(|error| error.to_string())
    }
}

/// A server that listens and does not accept yet.
pub struct Server {
    listener: TcpListener,
    metrics: Option<TcpListener>,
    shared: Arc<ServerState>,
    phase: watch::Sender<Phase>,
}

/// Counts of open connections and transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Connections.
    pub connections: u64,
    /// Transaction blocks that are open.
    pub open_transactions: u64,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("listener", &self.listener).finish_non_exhaustive()
    }
}

impl Server {
    /// Listens. Nothing is accepted before [`Server::run`].
    pub async fn bind(db: Database, options: ServerOptions) -> Result<Server, Error> {
        if !options.listen.ip().is_loopback() && !roles::exist(&db)? {
            return Err(Error::Open(options.listen));
        }
        let acceptor = options.tls.as_ref().map(tls::acceptor).transpose().map_err(Error::Tls)?;
        let listener = listen(options.listen).await?;
        let metrics = match options.metrics {
            Some(address) => Some(listen(address).await?),
            None => None,
        };
        db.set_blocking_executor(run_blocking);
        let (phase, watched) = watch::channel(Phase::Running);
        let shared = ServerState {
            db,
            limits: options.limits,
            is_local: options.listen.ip().is_loopback(),
            tls: acceptor,
            tls_required: options.tls.is_some_and(|tls| tls.required),
            metrics: Metrics::default(),
            clients: Arc::new(Clients::new()),
            phase: watched,
            secret: random().ok_or(Error::NoRandomNumbers)?,
            roles_version: AtomicU64::new(0),
        };
        Ok(Server { listener, metrics, shared: Arc::new(shared), phase })
    }

    /// Address that it listens on.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Address that it serves metrics on.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// Returns a function that counts connections and transactions while the server runs.
    pub fn counts(&self) -> impl Fn() -> Counts + Send + Sync + 'static {
        let shared = Arc::clone(&self.shared);
        move || Counts {
            connections: shared.clients.count(),
            open_transactions: shared.clients.open_transactions(),
        }
    }

    /// Serves until `stop` is ready. Then nothing new begins; statements and open transactions have
    /// [`Limits::shutdown`] to finish, then they are interrupted. All connections are closed when it returns,
    /// most often less than a second later: parts that cannot be stopped are waited for.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let Server { listener, metrics, shared, phase } = self;
        let mut connections = JoinSet::new();
        let permits = Arc::new(Semaphore::new(shared.limits.connections));
        let refusals = Arc::new(Semaphore::new(REFUSALS_MAX));
        let http = metrics.map(|listener| tokio::spawn(http::serve(listener, Arc::clone(&shared))));
        tokio::pin!(stop);
        loop {
            let socket = tokio::select! {
                () = &mut stop => break,
                // Ended connections are taken out as they end.
                Some(_) = connections.join_next() => continue,
                accepted = listener.accept() => match accepted {
                    Ok((socket, _)) => socket,
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a connection");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                        continue;
                    }
                },
            };
            let place = Arc::clone(&permits).try_acquire_owned().ok();
            let refusal = match place {
                Some(_) => None,
                None => match Arc::clone(&refusals).try_acquire_owned() {
                    Ok(refusal) => Some(refusal),
                    Err(_) => {
                        add(&shared.metrics.refused_total, 1);
                        continue;
                    }
                },
            };
            connections.spawn(connection(socket, Arc::clone(&shared), place, refusal));
        }
        drop(listener);
        phase.send_replace(Phase::Draining);
        let all_ended = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(shared.limits.shutdown, all_ended).await.is_err() {
            phase.send_replace(Phase::Ending);
            shared.clients.shut_down();
            let all_ended = async { while connections.join_next().await.is_some() {} };
            // Dropping a connection aborts its transaction.
            if tokio::time::timeout(STOP_TIME_MAX, all_ended).await.is_err() {
                connections.shutdown().await;
            }
        }
        if let Some(http) = http {
            http.abort();
            let _ = http.await;
        }
    }
}

async fn listen(address: SocketAddr) -> Result<TcpListener, Error> {
    TcpListener::bind(address).await.map_err(|source| Error::Listen { address, source })
}

/// One connection from its first to its last byte.
async fn connection(
    socket: TcpStream,
    shared: Arc<ServerState>,
    place: Option<OwnedSemaphorePermit>,
    refusal: Option<OwnedSemaphorePermit>,
) {
    // Answers are written at once: waiting for more to send would only delay them.
    let _ = socket.set_nodelay(true);
    // A client whose machine disappeared without closing is detected, and its transaction aborted.
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL);
    let _ = SockRef::from(&socket).set_tcp_keepalive(&keepalive);
    let metrics = &shared.metrics;
    if place.is_none() {
        add(&metrics.refused_total, 1);
    }
    let started = startup::start(socket, &shared, place.is_some());
    let started = tokio::time::timeout(shared.limits.startup, started).await;
    if let Ok(Some(started)) = started {
        add(&metrics.connections_total, 1);
        session::serve(started, Arc::clone(&shared)).await;
    }
    drop((place, refusal));
}

/// Blocking executor: the runtime replaces the thread, which the lock holder may need.
fn run_blocking(wait: &mut dyn FnMut()) {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(wait),
        _ => wait(),
    }
}
