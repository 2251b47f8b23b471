//! Topologies among the writers of an operation history: two of them and clients over the wire read and append to the same
//! lists, while the server is killed. What the topologies have read is in tables that they write in the same transactions.

use crate::{Server, checker, support};
use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

const TOPOLOGIES: u64 = 2;
const CLIENTS: u64 = 3;
const KILLS: u32 = 3;
/// Keys in use at a time; after so many numbers the window moves on by one.
const WINDOW: u64 = 6;
const NUMBERS_PER_KEY: u64 = 24;
/// Transactions of a topology that are sent and not seen yet.
const SENT_MAX: usize = 4;
/// Process numbers of the checker: a process that died in a transaction has another one after it.
const PROCESSES: u64 = 1_000_000;

/// Operation of a transaction.
#[derive(Debug, Clone, Copy)]
enum Operation {
    Read(u64),
    Append(u64, u64),
}

type Lists = BTreeMap<u64, Vec<u64>>;

/// The history, and what its end has to show.
struct History {
    file: Mutex<File>,
    /// Numbers that were appended so far.
    numbers: AtomicU64,
    random: Mutex<u64>,
    committed: Mutex<HashSet<u64>>,
    aborted: Mutex<HashSet<u64>>,
    /// Set when no more transactions are to begin.
    ends: AtomicBool,
}

impl History {
    fn new(path: &Path) -> History {
        History {
            file: Mutex::new(File::create(path).unwrap()),
            numbers: AtomicU64::new(0),
            random: Mutex::new(0x9E37_79B9_7F4A_7C15),
            committed: Mutex::default(),
            aborted: Mutex::default(),
            ends: AtomicBool::new(false),
        }
    }

    /// Random number below a limit.
    fn below(&self, limit: u64) -> u64 {
        let mut state = self.random.lock().unwrap();
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        (*state >> 11) % limit
    }

    /// Operations of a transaction, each on another key, the first of them a read.
    fn transaction(&self) -> Vec<Operation> {
        let first = self.numbers.load(Ordering::Relaxed) / NUMBERS_PER_KEY;
        let mut keys: Vec<u64> = (0..1 + self.below(4)).map(|_| first + self.below(WINDOW)).collect();
        keys.sort_unstable();
        keys.dedup();
        let mut operations = vec![Operation::Read(keys[0])];
        for &key in &keys[1..] {
            operations.push(match self.below(3) {
                0 => Operation::Read(key),
                _ => Operation::Append(key, self.numbers.fetch_add(1, Ordering::Relaxed)),
            });
        }
        operations
    }

    fn line(&self, kind: &str, process: u64, operations: &[Operation], reads: Option<&Lists>) {
        let text = operations.iter().map(|operation| match (*operation, reads) {
            (Operation::Append(key, number), _) => format!("[\"append\",{key},{number}]"),
            (Operation::Read(key), None) => format!("[\"r\",{key},null]"),
            (Operation::Read(key), Some(lists)) => format!("[\"r\",{key},{:?}]", lists[&key]),
        });
        let text = text.collect::<Vec<String>>().join(",");
        let line =
            format!("{{\"type\":\"{kind}\",\"f\":\"txn\",\"process\":{process},\"value\":[{text}]}}\n");
        self.file.lock().unwrap().write_all(line.as_bytes()).unwrap();
    }

    /// Notes the end of a transaction: committed if there are reads, aborted, or unknown.
    fn end(&self, kind: &str, process: u64, operations: &[Operation], reads: Option<&Lists>) {
        self.line(kind, process, operations, reads);
        let set = match kind {
            "ok" => &self.committed,
            "fail" => &self.aborted,
            _ => return,
        };
        let appended = operations.iter().filter_map(|operation| match operation {
            Operation::Append(_, number) => Some(*number),
            Operation::Read(_) => None,
        });
        set.lock().unwrap().extend(appended);
    }
}

/// Numbers of a list.
fn numbers(text: &str) -> Vec<u64> {
    text.split(',').filter(|number| !number.is_empty()).map(|number| number.parse().unwrap()).collect()
}

/// Connection to a server that may be down for a while.
async fn connect(port: u16) -> Client {
    let begun = Instant::now();
    loop {
        let url = format!("postgres://anyone@127.0.0.1:{port}/entresol");
        match tokio_postgres::connect(&url, NoTls).await {
            Ok((client, connection)) => {
                tokio::spawn(connection);
                return client;
            }
            Err(error) => assert!(begun.elapsed() < Duration::from_secs(20), "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Rows of a query.
async fn rows(client: &Client, sql: &str) -> Result<Vec<Vec<String>>, tokio_postgres::Error> {
    let messages = client.simple_query(sql).await?;
    let rows = messages.into_iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => {
            Some((0..row.len()).map(|at| row.get(at).unwrap_or_default().to_owned()).collect())
        }
        _ => None,
    });
    Ok(rows.collect())
}

/// Statements of a transaction but for its COMMIT: what it has read, or an error.
async fn run(client: &Client, level: &str, operations: &[Operation]) -> Result<Lists, tokio_postgres::Error> {
    let mut lists = Lists::new();
    client.simple_query(&format!("BEGIN ISOLATION LEVEL {level}")).await?;
    for operation in operations {
        match operation {
            Operation::Read(key) => {
                let found = rows(client, &format!("SELECT items FROM list WHERE key = {key}")).await?;
                lists.insert(*key, found.first().map(|row| numbers(&row[0])).unwrap_or_default());
            }
            Operation::Append(key, number) => {
                let append = format!(
                    "INSERT INTO list VALUES ({key}, '{number}')
                         ON CONFLICT (key) DO UPDATE SET items = list.items || ',' || EXCLUDED.items"
                );
                client.simple_query(&append).await?;
            }
        }
    }
    Ok(lists)
}

/// Transactions of a client.
async fn client(history: Arc<History>, port: u16, level: &'static str, number: u64) {
    let mut process = number * PROCESSES;
    let mut client = connect(port).await;
    while !history.ends.load(Ordering::Relaxed) {
        let operations = history.transaction();
        history.line("invoke", process, &operations, None);
        let read = run(&client, level, &operations).await;
        let (outcome, error) = match read {
            Ok(lists) => match client.simple_query("COMMIT").await {
                Ok(_) => (("ok", Some(lists)), None),
                // Without an answer it may have committed.
                Err(error) if error.as_db_error().is_none() => (("info", None), Some(error)),
                Err(error) => (("fail", None), Some(error)),
            },
            Err(error) => (("fail", None), Some(error)),
        };
        history.end(outcome.0, process, &operations, outcome.1.as_ref());
        match error.as_ref().map(tokio_postgres::Error::as_db_error) {
            None => {}
            Some(Some(error)) => {
                assert_eq!(error.code().code(), "40001", "{operations:?}: {error}");
                let _ = client.simple_query("ROLLBACK").await;
            }
            Some(None) => {
                process += 1;
                client = connect(port).await;
            }
        }
        tokio::time::sleep(Duration::from_millis(1 + history.below(3))).await;
    }
}

/// Transactions of a topology: sent as lines of its file, and committed when what it has read is seen.
async fn topology(history: Arc<History>, port: u16, path: PathBuf, number: u64) {
    let process = |transaction: u64| (CLIENTS + number) * PROCESSES + transaction;
    let mut sent: BTreeMap<u64, Vec<Operation>> = BTreeMap::new();
    let (mut next, mut last_seen) = (1, Instant::now());
    let mut client = connect(port).await;
    let mut file = OpenOptions::new().append(true).open(path).unwrap();
    loop {
        let ends = history.ends.load(Ordering::Relaxed);
        if ends && sent.is_empty() {
            return;
        }
        if !ends && sent.len() < SENT_MAX {
            let operations = history.transaction();
            history.line("invoke", process(next), &operations, None);
            let mut lines = String::new();
            for (place, operation) in operations.iter().enumerate() {
                match operation {
                    Operation::Read(key) => writeln!(lines, "{next},{place},{key},,false").unwrap(),
                    Operation::Append(key, number) => {
                        writeln!(lines, "{next},{place},{key},{number},false").unwrap()
                    }
                }
            }
            writeln!(lines, "{next},,,,true").unwrap();
            file.write_all(lines.as_bytes()).unwrap();
            sent.insert(next, operations);
            next += 1;
        }
        let from = sent.keys().next().copied().unwrap_or(next);
        let sql = format!("SELECT tx, key, items FROM seen_{number} WHERE tx >= {from} ORDER BY tx, place");
        match rows(&client, &sql).await {
            Err(error) => {
                assert!(error.as_db_error().is_none(), "{error}");
                client = connect(port).await;
            }
            Ok(found) => {
                let mut seen: BTreeMap<u64, Lists> = BTreeMap::new();
                for row in &found {
                    let lists = seen.entry(row[0].parse().unwrap()).or_default();
                    lists.insert(row[1].parse().unwrap(), numbers(&row[2]));
                }
                for (transaction, lists) in seen {
                    let operations = sent.remove(&transaction).expect("a transaction is carried out once");
                    history.end("ok", process(transaction), &operations, Some(&lists));
                    last_seen = Instant::now();
                }
            }
        }
        if last_seen.elapsed() > Duration::from_secs(20) {
            let states = rows(&client, "SELECT name, state, error FROM entresol.topologies").await;
            panic!("topology {number} does not go on: {states:?}");
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn prepare(port: u16, level: &str, files: &[PathBuf]) {
    let client = connect(port).await;
    client.simple_query("CREATE TABLE list (key BIGINT PRIMARY KEY, items VARCHAR NOT NULL)").await.unwrap();
    for (number, path) in files.iter().enumerate() {
        std::fs::write(path, "tx,place,key,number,last\n").unwrap();
        let statements = format!(
            "CREATE SOURCE operation_{number} (tx BIGINT NOT NULL, place INT, key BIGINT, number BIGINT, last BOOLEAN)
                 WITH (connector = 'file', path = '{}', tail = true, transaction_id = 'tx', transaction_end = 'last');
             CREATE TABLE seen_{number} (tx BIGINT, place INT, key BIGINT, items VARCHAR, PRIMARY KEY (tx, place));
             CREATE TOPOLOGY writer_{number} COMMIT WITH SOURCE ISOLATION LEVEL {level} WITH (durability = 'sync') AS (
                 INSERT INTO seen_{number} SELECT o.tx, o.place, o.key, l.items
                     FROM operation_{number} o LEFT JOIN list l ON l.key = o.key WHERE o.number IS NULL;
                 INSERT INTO list SELECT key, number::varchar FROM operation_{number} WHERE number IS NOT NULL
                     ON CONFLICT (key) DO UPDATE SET items = list.items || ',' || EXCLUDED.items)",
            path.display()
        );
        client.batch_execute(&statements).await.unwrap();
    }
}

/// Compares the lists at the end with what was acknowledged: nothing lost, nothing back, nothing twice.
async fn check_end(history: &History, port: u16) -> usize {
    let client = connect(port).await;
    let lists = rows(&client, "SELECT items FROM list").await.unwrap();
    let all: Vec<u64> = lists.iter().flat_map(|row| numbers(&row[0])).collect();
    let there: HashSet<u64> = all.iter().copied().collect();
    assert_eq!(all.len(), there.len(), "a number is there twice");
    let (committed, aborted) = (history.committed.lock().unwrap(), history.aborted.lock().unwrap());
    let lost: Vec<&u64> = committed.difference(&there).collect();
    let back: Vec<&u64> = aborted.intersection(&there).collect();
    assert!(lost.is_empty() && back.is_empty(), "lost: {lost:?}; back: {back:?}");
    committed.len()
}

/// Transactions of two topologies and three clients, and three kills.
fn history(checker: &Path, level: &'static str, model: &str) {
    let scratch = tempfile::tempdir().unwrap();
    let (database, lines) = (scratch.path().join("db"), scratch.path().join("history.jsonl"));
    let history = Arc::new(History::new(&lines));
    let files: Vec<PathBuf> =
        (0..TOPOLOGIES).map(|number| scratch.path().join(format!("operations {number}.csv"))).collect();
    let mut server = Server::start(&database, 0);
    let port = server.port;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(prepare(port, level, &files));
    let mut writers = Vec::new();
    for number in 0..CLIENTS {
        writers.push(runtime.spawn(client(Arc::clone(&history), port, level, number)));
    }
    for (number, path) in (0..).zip(files) {
        writers.push(runtime.spawn(topology(Arc::clone(&history), port, path, number)));
    }
    for _ in 0..KILLS {
        std::thread::sleep(Duration::from_millis(700));
        drop(server);
        support::succeed(&["check", database.to_str().unwrap(), "--quiet"]);
        server = Server::start(&database, port);
    }
    std::thread::sleep(Duration::from_millis(700));
    history.ends.store(true, Ordering::Relaxed);
    writers.into_iter().for_each(|writer| runtime.block_on(writer).unwrap());
    let appended = runtime.block_on(check_end(&history, port));
    assert!(appended > 100, "{level}: {appended} numbers were appended");
    drop(server);
    support::succeed(&["check", database.to_str().unwrap(), "--quiet"]);

    let judged = Command::new(checker)
        .args(["check", "--cycle-search-timeout", "10000", "-m", "list-append", "-c", model])
        .arg(&lines)
        .output()
        .unwrap();
    let said =
        format!("{}{}", String::from_utf8_lossy(&judged.stdout), String::from_utf8_lossy(&judged.stderr));
    if !judged.status.success() {
        let kept = std::env::temp_dir().join(format!("history {level}.jsonl"));
        std::fs::copy(&lines, &kept).unwrap();
        panic!("{level}: {said}\nthe history is in {}", kept.display());
    }
}

#[test]
fn no_level_shows_what_it_forbids_with_topologies_among_the_writers() {
    let Some(checker) = checker() else {
        eprintln!("skipped: the checker `adya` is not there; `make checker` installs it");
        return;
    };
    for (level, model) in [
        ("READ COMMITTED", "strong-read-committed"),
        ("REPEATABLE READ", "strong-snapshot-isolation"),
        ("SERIALIZABLE", "strict-serializable"),
    ] {
        history(&checker, level, model);
    }
}
