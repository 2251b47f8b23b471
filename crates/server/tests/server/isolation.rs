//! Visibility between transactions of several connections: the scripts of `isolation.txt`, at each level,
//! with each protocol. Serializable runs are compared with all serial orders besides.

use crate::support::{Served, one, options};
use entresol::transactions::{ContextOptions, Protocol};
use entresol::{Database, Options};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio_postgres::{Client, SimpleQueryMessage};

const SCRIPTS: &str = include_str!("isolation.txt");
const LEVELS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

struct Script {
    name: String,
    steps: Vec<Step>,
    /// Rows at the end, at each level.
    now: [String; 3],
}

struct Step {
    connection: usize,
    sql: String,
    expected: Option<[String; 3]>,
}

/// One text for each level, or one for all.
fn each_level(text: &str) -> [String; 3] {
    let texts: Vec<String> = text.split('|').map(|text| text.trim().to_owned()).collect();
    match <[String; 3]>::try_from(texts) {
        Ok(each) => each,
        Err(one) => [one[0].clone(), one[0].clone(), one[0].clone()],
    }
}

fn scripts() -> Vec<Script> {
    let mut scripts: Vec<Script> = Vec::new();
    for line in SCRIPTS.lines().skip_while(|line| !line.starts_with('#')).filter(|line| !line.is_empty()) {
        if let Some(name) = line.strip_prefix("# ") {
            scripts.push(Script { name: name.to_owned(), steps: Vec::new(), now: Default::default() });
            continue;
        }
        let script = scripts.last_mut().unwrap();
        if let Some(now) = line.strip_prefix("now ") {
            script.now = each_level(now);
            continue;
        }
        let (connection, rest) = line.split_once(' ').unwrap();
        let (sql, expected) = match rest.split_once(" => ") {
            Some((sql, expected)) => (sql, Some(each_level(expected))),
            None => (rest, None),
        };
        let connection = connection.parse::<usize>().unwrap() - 1;
        script.steps.push(Step { connection, sql: sql.to_owned(), expected });
    }
    assert!(scripts.len() > 15 && scripts.iter().all(|script| !script.now[0].is_empty()));
    scripts
}

/// Results of the statements, by connection, and the rows at the end.
struct Played {
    outcomes: Vec<String>,
    committed: Vec<usize>,
    now: String,
}

async fn run(client: &Client, sql: &str) -> String {
    match client.simple_query(sql).await {
        Err(error) => error.code().unwrap_or_else(|| panic!("{sql}: {error:?}")).code().to_owned(),
        Ok(messages) => {
            let mut rows = BTreeMap::new();
            let mut count = 0;
            for message in messages {
                match message {
                    SimpleQueryMessage::Row(row) => {
                        rows.insert(row.get(0).unwrap().to_owned(), row.get(1).unwrap().to_owned());
                    }
                    SimpleQueryMessage::CommandComplete(rows) => count = rows,
                    _ => {}
                }
            }
            let rows: Vec<String> = rows.into_iter().map(|(id, value)| format!("{id}:{value}")).collect();
            match sql.split(' ').next().unwrap() {
                "SELECT" if rows.is_empty() => "none".to_owned(),
                "SELECT" => rows.join(" "),
                "INSERT" | "UPDATE" | "DELETE" => format!("{count} row{}", if count == 1 { "" } else { "s" }),
                _ => "ok".to_owned(),
            }
        }
    }
}

async fn reset(client: &Client) {
    client.batch_execute("DELETE FROM test; INSERT INTO test VALUES (1, 10), (2, 20)").await.unwrap();
}

/// Plays a script; the last of the connections reads the rows at the end.
async fn play(clients: &[Client], script: &Script, level: &str) -> Played {
    let (observer, clients) = clients.split_last().unwrap();
    reset(observer).await;
    let mut begun = vec![false; clients.len()];
    let mut failed = vec![false; clients.len()];
    let mut played = Played { outcomes: Vec::new(), committed: Vec::new(), now: String::new() };
    for step in &script.steps {
        let at = step.connection;
        if !std::mem::replace(&mut begun[at], true) {
            clients[at].batch_execute(&format!("BEGIN ISOLATION LEVEL {level}")).await.unwrap();
        }
        let mut outcome = run(&clients[at], &step.sql).await;
        if step.sql == "COMMIT" && outcome == "ok" {
            if failed[at] { outcome = "rolled back".to_owned() } else { played.committed.push(at) }
        }
        failed[at] |= outcome == "40001" || outcome == "25P02";
        played.outcomes.push(outcome);
    }
    played.now = run(observer, "SELECT * FROM test").await;
    played
}

/// Tells whether the transactions that committed could have run one after the other.
async fn is_serial(oracle: &Client, script: &Script, played: &Played) -> bool {
    for order in orders(&played.committed) {
        reset(oracle).await;
        let mut same = true;
        for connection in order {
            let steps = script.steps.iter().zip(&played.outcomes);
            for (step, outcome) in
                steps.filter(|(step, _)| step.connection == connection && step.sql != "COMMIT")
            {
                same &= run(oracle, &step.sql).await == *outcome;
            }
        }
        if same && run(oracle, "SELECT * FROM test").await == played.now {
            return true;
        }
    }
    false
}

fn orders(of: &[usize]) -> Vec<Vec<usize>> {
    if of.is_empty() {
        return vec![Vec::new()];
    }
    let rest = |first: usize| of.iter().copied().filter(|&other| other != first).collect::<Vec<_>>();
    let with =
        |first: usize| orders(&rest(first)).into_iter().map(move |order| [vec![first], order].concat());
    of.iter().flat_map(|&first| with(first).collect::<Vec<_>>()).collect()
}

async fn clients(served: &Served, count: usize) -> Vec<Client> {
    let mut clients = Vec::new();
    for _ in 0..count {
        clients.push(served.client().await);
    }
    clients[0].batch_execute("CREATE TABLE test (id INT PRIMARY KEY, value INT)").await.unwrap();
    clients
}

async fn serve(protocol: Protocol) -> Served {
    // A transaction that waits for a lock here waits for one that does not move.
    let concurrency =
        ContextOptions { protocol, lock_wait_max: Duration::from_millis(20), ..ContextOptions::default() };
    let database = Options::default().worker_threads(2).concurrency(concurrency);
    Served::on(Database::volatile(database).unwrap(), options()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn anomalies_happen_at_their_levels_only() {
    for protocol in [Protocol::MvccInPlace, Protocol::MvccOutOfPlace] {
        let (served, other) = (serve(protocol).await, Served::start().await);
        let (connections, oracle) = (clients(&served, 4).await, clients(&other, 1).await);
        for script in scripts() {
            for (at, level) in LEVELS.into_iter().enumerate() {
                let played = play(&connections, &script, level).await;
                for (step, outcome) in script.steps.iter().zip(&played.outcomes) {
                    let place = format!(
                        "{protocol:?}, {}, {level}: {} {}",
                        script.name,
                        step.connection + 1,
                        step.sql
                    );
                    match &step.expected {
                        Some(expected) => assert_eq!(*outcome, expected[at], "{place}"),
                        None => assert!(outcome == "ok" || outcome.contains("row"), "{place}: {outcome}"),
                    }
                }
                assert_eq!(played.now, script.now[at], "{protocol:?}, {}, {level}", script.name);
                if level == "SERIALIZABLE" {
                    assert!(is_serial(&oracle[0], &script, &played).await, "{protocol:?}, {}", script.name);
                }
            }
        }
        drop((connections, oracle));
        served.stop().await;
        other.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_and_validation_are_serializable_at_each_level() {
    let mut committed = 0;
    for protocol in [Protocol::S2pl, Protocol::Bocc] {
        let (served, other) = (serve(protocol).await, Served::start().await);
        let (connections, oracle) = (clients(&served, 4).await, clients(&other, 1).await);
        for script in scripts() {
            for level in LEVELS {
                let played = play(&connections, &script, level).await;
                let shown = format!("{protocol:?}, {}, {level}: {:?}", script.name, played.outcomes);
                assert!(is_serial(&oracle[0], &script, &played).await, "{shown}, now {}", played.now);
                let is_code =
                    |text: &&String| text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
                let refused = |code: &String| ["40001", "25P02"].contains(&code.as_str());
                assert!(played.outcomes.iter().filter(is_code).all(refused), "{shown}");
                committed += played.committed.len();
            }
        }
        drop((connections, oracle));
        served.stop().await;
        other.stop().await;
    }
    // Not by refusing all: most scripts have a transaction that commits, though they interleave as badly as
    // possible.
    assert!(committed > 4 * scripts().len(), "{committed} committed");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_oracle_tells_anomalies() {
    let served = Served::start().await;
    let connections = clients(&served, 4).await;
    let oracle = served.client().await;
    let skew = scripts().into_iter().find(|script| script.name == "G2-item write skew").unwrap();
    let played = play(&connections, &skew, "REPEATABLE READ").await;
    assert_eq!(played.committed, [0, 1]);
    assert!(!is_serial(&oracle, &skew, &played).await);
    drop((connections, oracle));
    served.stop().await;
}

/// The runtime has fewer threads than there are waiting sessions, and the lock holder needs one.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_lock_wait_leaves_the_thread_to_the_holder() {
    let concurrency = ContextOptions {
        protocol: Protocol::S2pl,
        lock_wait_max: Duration::from_secs(10),
        ..ContextOptions::default()
    };
    let database = Options::default().worker_threads(2).concurrency(concurrency);
    let served = Served::on(Database::volatile(database).unwrap(), options()).await;
    let connections = clients(&served, 5).await;
    let [holder, bystander, waiters @ ..] = connections.as_slice() else { panic!() };
    holder.batch_execute("INSERT INTO test VALUES (0, 0), (1, 0), (2, 0)").await.unwrap();
    // Sessions that have begun and written before the holder wait for it; the others would be restarted.
    for (at, waiter) in waiters.iter().enumerate() {
        waiter.batch_execute(&format!("BEGIN; INSERT INTO test VALUES ({}, 0)", 10 + at)).await.unwrap();
    }
    holder.batch_execute("BEGIN; UPDATE test SET value = 1 WHERE id IN (0, 1, 2)").await.unwrap();
    let updates = waiters.iter().enumerate().map(|(at, waiter)| async move {
        waiter.batch_execute(&format!("UPDATE test SET value = value + 1 WHERE id = {at}; COMMIT")).await
    });
    let release = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        bystander.batch_execute("SELECT 1").await.unwrap();
        holder.batch_execute("COMMIT").await
    };
    let (released, updated) = tokio::join!(release, futures::future::join_all(updates));
    released.unwrap();
    assert!(updated.iter().all(Result::is_ok), "{updated:?}");
    assert_eq!(one(holder, "SELECT sum(value) FROM test WHERE id < 10").await, "6");
    drop(connections);
    served.stop().await;
}
