//! Messages behind the startup packet, to a real server over loopback.
//!
//! An input is messages with [`BETWEEN`] between them, each a type and a body: their lengths are computed, so that most
//! mutants are whole messages. Each answer must be whole messages, and end in time.
#![no_main]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Mutex;
use std::time::Duration;

use entresol::{Database, Options};
use entresol_server::{Limits, Server, ServerOptions};
use libfuzzer_sys::fuzz_target;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

const BETWEEN: &[u8] = b"\n--\n";
/// Statements that take longer are cancelled by the server.
const STATEMENT_TIME: Duration = Duration::from_secs(2);
/// An answer that takes longer does not come.
const PATIENCE: Duration = Duration::from_secs(30);
/// After so many inputs the database is a new one: they leave tables behind.
const INPUTS_MAX: usize = 500;
const TABLE: &str =
    "CREATE TABLE t (id INT PRIMARY KEY, s VARCHAR, d DECIMAL(10, 2), at TIMESTAMP, x DOUBLE)";

struct Served {
    address: SocketAddr,
    inputs: usize,
    runtime: Runtime,
    stop: oneshot::Sender<()>,
}

static SERVED: Mutex<Option<Served>> = Mutex::new(None);

impl Served {
    fn start() -> Served {
        let options = Options::default().query_memory_bytes_max(64 << 20).worker_threads(1);
        let db = Database::volatile(options).expect("a database");
        db.session().and_then(|mut session| session.execute(TABLE)).expect("a table");
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let limits = Limits {
            statement: Some(STATEMENT_TIME),
            statement_memory_bytes: 16 << 20,
            packet_bytes: 1 << 20,
            ..Limits::default()
        };
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let options = ServerOptions { listen, limits, ..ServerOptions::default() };
        let server = runtime.block_on(Server::bind(db, options)).expect("a server");
        let address = server.address().expect("an address");
        let (stop, stopped) = oneshot::channel();
        runtime.spawn(server.run(async {
            let _ = stopped.await;
        }));
        Served { address, inputs: 0, runtime, stop }
    }

    fn end(self) {
        let _ = self.stop.send(());
        self.runtime.shutdown_timeout(PATIENCE);
    }
}

fn answer(address: SocketAddr, messages: &[u8]) -> Vec<u8> {
    let mut socket = TcpStream::connect(address).expect("the server listens");
    socket.set_read_timeout(Some(PATIENCE)).expect("a time");
    let reader = socket.try_clone().expect("another handle");
    let reading = std::thread::spawn(move || {
        let (mut reader, mut answer) = (reader, Vec::new());
        match reader.read_to_end(&mut answer) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("no answer in time"),
            _ => answer,
        }
    });
    // It may hang up before everything is sent.
    let _ = socket.write_all(b"\0\0\0\x13\0\x03\0\0user\0fuzz\0\0");
    let _ = socket.write_all(messages);
    let _ = socket.shutdown(Shutdown::Write);
    reading.join().expect("an answer")
}

fn message(chunk: &[u8]) -> Vec<u8> {
    let Some((kind, body)) = chunk.split_first() else { return Vec::new() };
    [&[*kind], &(body.len() as u32 + 4).to_be_bytes()[..], body].concat()
}

fn chunks(input: &[u8]) -> Vec<&[u8]> {
    let mut chunks = Vec::new();
    let mut rest = input;
    while let Some(at) = rest.windows(BETWEEN.len()).position(|window| window == BETWEEN) {
        chunks.push(&rest[..at]);
        rest = &rest[at + BETWEEN.len()..];
    }
    chunks.push(rest);
    chunks
}

/// It consists of messages. A connection that is reset loses the end of the last one.
fn look(answer: &[u8]) {
    let mut rest = answer;
    while let Some((header, behind)) = rest.split_first_chunk::<5>() {
        assert!(b"RSKZTDCEN123nItsAGHWcdv".contains(&header[0]), "a message of type {}", header[0]);
        let length = u32::from_be_bytes([header[1], header[2], header[3], header[4]]) as usize;
        assert!(length >= 4, "a message of {length} bytes");
        let Some((_, next)) = behind.split_at_checked(length - 4) else { return };
        rest = next;
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let extended: [&[u8]; 5] = [
        b"Ps\0SELECT $1::int + id, s FROM t WHERE d = $2\0\0\0\n--\nBp\0s\0\0\x02\0\x01\0\0\0\x02\0\0\0\x04\0\0\0\x07\0\0\0\x031.5\0\x01\0\x01\n--\nDPp\0\n--\nEp\0\0\0\0\x01\n--\nS",
        b"P\0SELECT * FROM t WHERE id = ANY($1)\0\0\x01\0\0\x03\xef\n--\nB\0\0\0\0\0\x01\0\0\0\x05{1,2}\0\0\n--\nE\0\0\0\0\0\n--\nS",
        b"P\0INSERT INTO t VALUES ($1, $2, $3, $4, $5) RETURNING *\0\0\0\n--\nDS\0\n--\nB\0\0\0\0\0\x05\0\0\0\x019\0\0\0\x01x\0\0\0\x032.5\0\0\0\x0a2024-02-29\0\0\0\x030.5\0\0\n--\nE\0\0\0\0\0\n--\nH\n--\nCS\0\n--\nS\n--\nX",
        b"QCOPY t FROM STDIN\0\n--\nd1\ta\t1.5\t2024-02-29 12:00:00\t0.5\n\n--\nd2\t\\N\t\\N\t\\N\t\\N\n\n--\nc\n--\nQCOPY t TO STDOUT (FORMAT csv)\0",
        b"QBEGIN; INSERT INTO t (id) VALUES (5)\0\n--\nQDECLARE c CURSOR FOR SELECT * FROM t\0\n--\nQFETCH ALL FROM c\0\n--\nQSAVEPOINT a; ROLLBACK TO a; COMMIT\0\n--\nf\n--\nF",
    ];
    let texts = entresol_server::fuzzing::seeds("statement");
    let simple = texts.iter().map(|text| [b"Q", &text[..], b"\0"].concat());
    extended.iter().map(|seed| seed.to_vec()).chain(simple).collect()
}

fuzz_target!(init: entresol_fuzz::plant(seeds()), |bytes: &[u8]| {
    // A backup goes where its statement says.
    if bytes.windows(6).any(|word| word.eq_ignore_ascii_case(b"backup")) {
        return;
    }
    let messages: Vec<u8> = chunks(bytes).into_iter().flat_map(message).collect();
    let mut served = SERVED.lock().expect("nobody failed");
    if served.as_ref().is_some_and(|served| served.inputs >= INPUTS_MAX) {
        served.take().into_iter().for_each(Served::end);
    }
    let served = served.get_or_insert_with(Served::start);
    served.inputs += 1;
    look(&answer(served.address, &messages));
});
