//! `entresol serve DIR`: the database on the PostgreSQL wire, until a signal ends it.
//!
//! - SIGTERM and SIGINT end it in order: nothing new begins, running statements may finish within a limit,
//!   then the database is closed, and the next open has nothing to recover. Without them it ends as in a
//!   crash, which loses nothing either.
//! - If a thread is busy with something that cannot be stopped, the process ends without it, [`END_TIME_MAX`]
//!   after the limit.
//! - The lines on standard output name its addresses; they are written when clients can connect.

pub mod role;

use crate::arguments::{ServeArguments, TlsMode};
use crate::error::{Error, Result};
use crate::shell::output;
use entresol::query::STACK_BYTES;
use entresol::{Database, Options};
use entresol_server::{Limits, Server, ServerOptions, TlsOptions};
use nix::sys::signal::{SigSet, Signal};
use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::oneshot;

/// Maximum time for the process to end after statements had their time.
const END_TIME_MAX: Duration = Duration::from_millis(1500);
/// Maximum time for the threads of connections to end once there are none.
const THREADS_TIME_MAX: Duration = Duration::from_millis(200);
/// Number of polls of tasks after which a busy thread checks sockets and clocks. A poll of a query takes
/// milliseconds.
const TURNS_PER_LOOK: u32 = 8;

/// Runs `entresol serve`.
pub fn run(arguments: &ServeArguments) -> Result<()> {
    let options = server_options(arguments)?;
    // Before the first thread is made: all of them leave the signals to the one that waits for them.
    let stop = signalled(arguments.shutdown_timeout + END_TIME_MAX)?;
    let database_options = Options {
        durability: arguments.durability,
        query_memory_bytes_max: arguments.query_memory,
        max_snapshot_age: (!arguments.max_snapshot_age.is_zero()).then_some(arguments.max_snapshot_age),
        ..arguments.storage.options()
    };
    let database = Database::open(&arguments.dir, database_options)?;
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.thread_name("entresol client").thread_stack_size(STACK_BYTES).enable_all();
    builder.event_interval(TURNS_PER_LOOK);
    let runtime = builder.build()?;
    let served = runtime.block_on(serve(database.clone(), options, stop));
    // Nothing of a connection may hold the database any more when it is closed.
    runtime.shutdown_timeout(THREADS_TIME_MAX);
    let closed = database.close();
    served?;
    Ok(closed?)
}

async fn serve(database: Database, options: ServerOptions, stop: oneshot::Receiver<Signal>) -> Result<()> {
    let encrypted = options.tls.is_some();
    let server = Server::bind(database, options).await?;
    announce(server.address()?, server.metrics_address(), encrypted)?;
    server
        .run(async {
            if let Ok(signal) = stop.await {
                tracing::info!(%signal, "server shutting down");
            }
        })
        .await;
    Ok(())
}

/// Prints its addresses and how to connect.
fn announce(address: SocketAddr, metrics: Option<SocketAddr>, encrypted: bool) -> Result<()> {
    let mut out = output::stdout();
    let (host, port) = (address.ip(), address.port());
    let host = if host.is_unspecified() { "HOST".to_owned() } else { host.to_string() };
    let encryption = if encrypted { ", TLS" } else { "" };
    writeln!(
        out,
        "listening on {address} (PostgreSQL 3.0{encryption}); connect with: psql -h {host} -p {port}"
    )?;
    if let Some(metrics) = metrics {
        writeln!(out, "metrics on http://{metrics}/metrics, health on http://{metrics}/healthz")?;
    }
    Ok(out.flush()?)
}

/// Blocks the signals that end the server and reports the first of them. The process ends within `time_max`
/// of it.
fn signalled(time_max: Duration) -> Result<oneshot::Receiver<Signal>> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTERM);
    signals.add(Signal::SIGINT);
    let refused = |error: nix::Error| Error::Output(error.into());
    signals.thread_block().map_err(refused)?;
    let (sender, receiver) = oneshot::channel();
    let wait = move || {
        if let Ok(signal) = signals.wait() {
            // There is no receiver if the server never started.
            let _ = sender.send(signal);
            std::thread::sleep(time_max);
            // As in a crash: committed transactions are there, others never happened.
            eprintln!("entresol: a statement did not stop in time: exiting without closing the database");
            std::process::exit(1);
        }
    };
    std::thread::Builder::new().name("entresol signals".to_owned()).spawn(wait)?;
    Ok(receiver)
}

fn server_options(arguments: &ServeArguments) -> Result<ServerOptions> {
    let tls = match (&arguments.tls_cert, &arguments.tls_key) {
        (Some(certificate), Some(key)) => Some(TlsOptions {
            certificate: certificate.clone(),
            key: key.clone(),
            required: arguments.tls == TlsMode::Require,
        }),
        _ if arguments.tls == TlsMode::Require => {
            return Err(Error::Invalid("--tls require needs --tls-cert and --tls-key".to_owned()));
        }
        _ => None,
    };
    let limit = |time: Duration| (!time.is_zero()).then_some(time);
    let limits = Limits {
        connections: arguments.connections,
        packet_bytes: arguments.packet_size,
        statement: limit(arguments.statement_timeout),
        idle_in_transaction: limit(arguments.idle_in_transaction_timeout),
        startup: arguments.startup_timeout,
        statement_memory_bytes: arguments.statement_memory,
        shutdown: arguments.shutdown_timeout,
    };
    Ok(ServerOptions { listen: arguments.listen, metrics: arguments.metrics, tls, limits })
}
