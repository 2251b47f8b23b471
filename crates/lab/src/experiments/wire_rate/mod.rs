//! Statements on one row over the PostgreSQL wire: SELECT and UPDATE by key, with 1, 2 and 8 connections, as
//! text (the simple protocol), prepared, and prepared and pipelined; at durability `none`.
//!
//! Clients and server are threads of this process and share its cores, so a statement costs both. The
//! processor time of the server's threads alone, and how often they slept, stand beside the rates: they say
//! what a statement costs where clients have machines of their own, and they hardly change when this machine
//! is busy. System calls are counted by `strace -f -c lab run wire-rate --quick`. A wrong answer ends the
//! run.

mod client;
mod threads;

use crate::asked::AskedFigure;
use crate::plot::{Figure, Series};
use crate::report::Report;
use crate::{Error, RunOptions};
use client::{Client, Protocol, StatementKind};
use entresol::{Database, Durability, Options};
use entresol_server::{Server, ServerOptions};
use serde_json::json;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};
use threads::ProcessorUse;

/// Statements of a pipeline that are sent before the first answer is read.
const DEPTH: usize = 128;
const CONNECTIONS: [usize; 3] = [1, 2, 8];
/// Name of the server's threads.
const SERVER_THREADS: &str = "lab wire server";
/// Asked for: statements a second of two connections that pipeline, and microseconds of a statement alone.
const RATE_ASKED: f64 = 40_000.0;
const LATENCY_ASKED_US: f64 = 100.0;

struct Sizes {
    rows: u64,
    phase: Duration,
}

impl Sizes {
    fn of(options: &RunOptions) -> Sizes {
        if options.quick {
            Sizes { rows: 10_000, phase: Duration::from_millis(150) }
        } else {
            Sizes { rows: 1_000_000, phase: Duration::from_secs(4) }
        }
    }
}

/// Result of one phase.
struct PhaseFigures {
    statements: u64,
    elapsed: Duration,
    /// Microseconds from sending to the last answer, of a statement or a pipeline of them; sorted.
    took_us: Vec<f64>,
    server: ProcessorUse,
}

impl PhaseFigures {
    fn rate(&self) -> f64 {
        self.statements as f64 / self.elapsed.as_secs_f64()
    }

    fn percentile(&self, of: f64) -> f64 {
        let last = self.took_us.len().saturating_sub(1);
        self.took_us.get((last as f64 * of) as usize).copied().unwrap_or(0.0)
    }
}

/// Runs the experiment.
pub(super) fn run(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let sizes = Sizes::of(options);
    let database = Database::volatile(Options::default().durability(Durability::None))?;
    let mut session = database.session()?;
    session.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")?;
    let last = sizes.rows - 1;
    session.execute(&format!("INSERT INTO t SELECT value, value * 3 FROM generate_series(0, {last})"))?;
    let served = ServerThreads::start(database)?;
    let mut updates = 0;
    for work in [StatementKind::Read, StatementKind::Update] {
        let mut series = Vec::new();
        for protocol in [Protocol::Simple, Protocol::Prepared, Protocol::Pipelined] {
            let mut points = Vec::new();
            for connections in CONNECTIONS {
                let measured = phase(&served, &sizes, options.seed, (work, protocol), connections)?;
                if work == StatementKind::Update {
                    // Each client has tried one before.
                    updates += measured.statements + connections as u64;
                }
                points.push((connections.to_string(), measured.rate() / 1000.0));
                row(report, (work, protocol), connections, &measured);
            }
            series.push(Series { name: protocol.name().to_owned(), points });
        }
        report.figure(Figure {
            title: format!("{} by key over the wire", work.verb()),
            x_label: "connections".to_owned(),
            y_label: "thousand statements/s".to_owned(),
            series,
        });
    }
    let changed = session.query(&format!("SELECT sum(v) - {} FROM t", (0..sizes.rows).sum::<u64>() * 3))?;
    let changed = entresol::arrow::util::display::array_value_to_string(changed[0].column(0), 0);
    report.check(
        "every UPDATE that was answered changed its row once",
        changed.is_ok_and(|changed| changed == updates.to_string()),
    );
    drop(session);
    served.stop()
}

fn row(
    report: &mut Report,
    (work, protocol): (StatementKind, Protocol),
    connections: usize,
    measured: &PhaseFigures,
) {
    let statements = measured.statements.max(1) as f64;
    let server_us = measured.server.processor.as_secs_f64() * 1e6 / statements;
    report.row(json!({
        "work": work.verb(),
        "protocol": protocol.name(),
        "connections": connections,
        "statements_per_s": measured.rate(),
        "answered_together": protocol.depth(),
        "p50_us": measured.percentile(0.5),
        "p99_us": measured.percentile(0.99),
        "p999_us": measured.percentile(0.999),
        "server_processor_us": server_us,
        "server_sleeps": measured.server.sleeps as f64 / statements,
    }));
    let name = format!("{} by key, {}, connections: {connections}", work.verb(), protocol.name());
    match (protocol, connections) {
        (Protocol::Pipelined, 2) => {
            report.asked(AskedFigure::at_least(name, measured.rate(), RATE_ASKED).unit("/s"))
        }
        (Protocol::Prepared, 1) => report.asked(
            AskedFigure::at_most(format!("{name}: p50"), measured.percentile(0.5), LATENCY_ASKED_US)
                .unit("us"),
        ),
        _ => {}
    }
}

/// All connections do the same for a while.
fn phase(
    served: &ServerThreads,
    sizes: &Sizes,
    seed: u64,
    (work, protocol): (StatementKind, Protocol),
    connections: usize,
) -> Result<PhaseFigures, Error> {
    let begin = Arc::new(Barrier::new(connections + 1));
    let clients: Vec<_> = (0..connections)
        .map(|number| {
            let (begin, address, rows, time) = (Arc::clone(&begin), served.address, sizes.rows, sizes.phase);
            let seed = seed.wrapping_add(number as u64 * 7919);
            thread::spawn(move || -> io::Result<Vec<f64>> {
                let connected = Client::connect(address, rows, seed, (work, protocol));
                begin.wait();
                let mut client = connected?;
                let started = Instant::now();
                let mut took_us = Vec::new();
                while started.elapsed() < time {
                    let one = Instant::now();
                    client.run(protocol.depth())?;
                    took_us.push(one.elapsed().as_secs_f64() * 1e6);
                }
                Ok(took_us)
            })
        })
        .collect();
    begin.wait();
    let (started, before) = (Instant::now(), threads::spent(SERVER_THREADS));
    let mut took_us = Vec::new();
    for client in clients {
        let one = client.join().expect("a client does not panic");
        took_us.extend(one.map_err(|error| Error::Io { action: "talk to the server".to_owned(), error })?);
    }
    let (elapsed, server) = (started.elapsed(), threads::spent(SERVER_THREADS) - before);
    let statements = (took_us.len() * protocol.depth()) as u64;
    took_us.sort_by(f64::total_cmp);
    Ok(PhaseFigures { statements, elapsed, took_us, server })
}

/// A server on threads of its own.
struct ServerThreads {
    address: SocketAddr,
    stop: tokio::sync::oneshot::Sender<()>,
    thread: thread::JoinHandle<()>,
}

impl ServerThreads {
    fn start(database: Database) -> Result<ServerThreads, Error> {
        let failed = |what: &str, error: io::Error| Error::Io { action: what.to_owned(), error };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .thread_name(SERVER_THREADS)
            .enable_all()
            .build()
            .map_err(|error| failed("start the server's threads", error))?;
        let options =
            ServerOptions { listen: SocketAddr::from(([127, 0, 0, 1], 0)), ..ServerOptions::default() };
        let server = runtime
            .block_on(Server::bind(database, options))
            .map_err(|error| failed("listen", io::Error::other(error.to_string())))?;
        let address = server.address().map_err(|error| failed("listen", error))?;
        let (stop, stopped) = tokio::sync::oneshot::channel();
        // As `entresol serve` does it: connections are tasks of the runtime.
        let thread = thread::spawn(move || {
            let ended = async move {
                let _ = stopped.await;
            };
            let serving = runtime.spawn(server.run(ended));
            let _ = runtime.block_on(serving);
        });
        Ok(ServerThreads { address, stop, thread })
    }

    fn stop(self) -> Result<(), Error> {
        let _ = self.stop.send(());
        self.thread.join().map_err(|_| Error::Invalid("the server panicked".to_owned()))
    }
}
