//! Activities of sessions as others see them, and how others stop them.

use crate::support::{PATIENCE, Served, code, one, options, texts};
use entresol::{Database, Options};
use entresol_server::roles::{self, Role};
use std::time::{Duration, Instant};
use tokio_postgres::Client;

const ENDLESS: &str = "SELECT count(*) FROM generate_series(1, 100000000) a, generate_series(1, 100000000) b";

/// Column of the activity of a session.
async fn activity(observer: &Client, column: &str, pid: &str) -> Option<String> {
    let sql = format!("SELECT {column} FROM pg_stat_activity WHERE pid = {pid}");
    texts(observer, &sql).await.first().and_then(|row| row[0].clone())
}

async fn pid(client: &Client) -> String {
    one(client, "SELECT pg_backend_pid()").await
}

/// Waits until a column of a session's activity has a value.
async fn eventually(observer: &Client, column: &str, pid: &str, expected: Option<&str>) {
    let start = Instant::now();
    loop {
        let found = activity(observer, column, pid).await;
        if found.as_deref() == expected {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "{column} of {pid} is {found:?}, not {expected:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Spawns the endless query.
fn busy(client: Client) -> tokio::task::JoinHandle<(Client, String)> {
    tokio::spawn(async move {
        let ended = code(client.batch_execute(ENDLESS).await);
        (client, ended)
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_show_what_they_do() {
    let served = Served::start().await;
    let (observer, other) = (served.client().await, served.client().await);
    let pid = pid(&other).await;
    let is = async |expected: [&str; 2]| {
        let row =
            texts(&observer, &format!("SELECT state, query FROM pg_stat_activity WHERE pid = {pid}")).await;
        assert_eq!(row[0], expected.map(|text| Some(text.to_owned())));
    };
    is(["idle", "SELECT pg_backend_pid()"]).await;
    other.batch_execute("BEGIN").await.unwrap();
    is(["idle in transaction", "BEGIN"]).await;
    let began = activity(&observer, "xact_start", &pid).await.unwrap();
    // A prepared statement shows its text too.
    other.query("SELECT $1::int + 1", &[&1i32]).await.unwrap();
    is(["idle in transaction", "SELECT $1::int + 1"]).await;
    assert_eq!(activity(&observer, "xact_start", &pid).await, Some(began));
    assert_eq!(code(other.batch_execute("SELECT 1/0").await), "22012");
    is(["idle in transaction (aborted)", "SELECT 1/0"]).await;
    other.batch_execute("ROLLBACK; SET application_name = 'meters'").await.unwrap();
    is(["idle", "SET application_name = 'meters'"]).await;
    let row = "SELECT usename, application_name, client_addr, client_port > 0, xact_start IS NULL, \
               backend_start <= query_start, query_start <= state_change, backend_type FROM pg_stat_activity WHERE pid =";
    let expected = ["test", "meters", "127.0.0.1", "t", "t", "t", "t", "client backend"];
    assert_eq!(
        texts(&observer, &format!("{row} {pid}")).await[0],
        expected.map(|text| Some(text.to_owned()))
    );
    let itself = "SELECT count(*) FROM pg_stat_activity WHERE pid = pg_backend_pid() AND state = 'active'";
    assert_eq!(one(&observer, itself).await, "1");
    drop(other);
    eventually(&observer, "pid", &pid, None).await;
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_is_cancelled_and_a_connection_ended_from_another_session() {
    let served = Served::start().await;
    let (observer, other) = (served.client().await, served.client().await);
    let pid = pid(&other).await;
    let running = busy(other);
    eventually(&observer, "query", &pid, Some(ENDLESS)).await;
    // A plan alone stops nothing.
    texts(&observer, &format!("EXPLAIN SELECT pg_terminate_backend({pid}), pg_cancel_backend({pid})")).await;
    eventually(&observer, "state", &pid, Some("active")).await;
    assert_eq!(one(&observer, &format!("SELECT pg_cancel_backend({pid})")).await, "t");
    let (other, ended) = running.await.unwrap();
    assert_eq!(ended, "57014");
    // The connection goes on, and a cancel request of an idle one is none of its next statement.
    assert_eq!(one(&observer, &format!("SELECT pg_cancel_backend({pid})")).await, "t");
    assert_eq!(one(&other, "SELECT 1").await, "1");

    let running = busy(other);
    eventually(&observer, "query", &pid, Some(ENDLESS)).await;
    let all = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = '{ENDLESS}'");
    assert_eq!(one(&observer, &all).await, "t");
    let (other, ended) = running.await.unwrap();
    assert_eq!(ended, "57P01");
    assert!(other.batch_execute("SELECT 1").await.is_err());
    eventually(&observer, "pid", &pid, None).await;
    assert_eq!(code(observer.batch_execute("SELECT pg_terminate_backend('x')").await), "22P02");
    for of in [pid.as_str(), "0", "-1", "2147483647"] {
        assert_eq!(one(&observer, &format!("SELECT pg_terminate_backend({of})")).await, "f");
    }
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_connection_ends_and_its_block_is_rolled_back() {
    let served = Served::start().await;
    let (observer, other) = (served.client().await, served.client().await);
    other.batch_execute("CREATE TABLE t (id INT PRIMARY KEY)").await.unwrap();
    other.batch_execute("BEGIN; INSERT INTO t VALUES (1)").await.unwrap();
    let pid = pid(&other).await;
    eventually(&observer, "state", &pid, Some("idle in transaction")).await;
    assert_eq!(one(&observer, &format!("SELECT pg_terminate_backend({pid})")).await, "t");
    eventually(&observer, "pid", &pid, None).await;
    assert_eq!(one(&observer, "SELECT count(*) FROM t").await, "0");
    observer.batch_execute("INSERT INTO t VALUES (1)").await.unwrap();
    // A session may end itself.
    let ended = observer.batch_execute("SELECT pg_terminate_backend(pg_backend_pid())").await;
    assert_eq!(code(ended), "57P01");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_roles_are_hidden_and_safe() {
    let db = Database::volatile(Options::default().worker_threads(2)).unwrap();
    for (name, administrator) in [("admin", true), ("anna", false), ("ben", false)] {
        let role = Role { name: name.to_owned(), administrator, grants: Default::default() };
        roles::create(&db, &role, "secret").unwrap();
    }
    let served = Served::on(db, options()).await;
    let connect = async |name: &str| {
        let mut config = served.config();
        served.connect(config.user(name).password("secret")).await.unwrap()
    };
    let (admin, anna, ben) = (connect("admin").await, connect("anna").await, connect("ben").await);
    let again = connect("anna").await;
    let (of_ben, of_again) = (pid(&ben).await, pid(&again).await);
    assert_eq!(activity(&anna, "query", &of_ben).await.as_deref(), Some("<insufficient privilege>"));
    assert_eq!(activity(&anna, "state", &of_ben).await, None);
    assert_eq!(activity(&admin, "state", &of_ben).await.as_deref(), Some("idle"));
    for function in ["pg_cancel_backend", "pg_terminate_backend"] {
        assert_eq!(code(anna.batch_execute(&format!("SELECT {function}({of_ben})")).await), "42501");
    }
    assert_eq!(one(&ben, "SELECT 1").await, "1");
    assert_eq!(one(&anna, &format!("SELECT pg_terminate_backend({of_again})")).await, "t");
    eventually(&admin, "pid", &of_again, None).await;
    assert_eq!(one(&admin, &format!("SELECT pg_terminate_backend({of_ben})")).await, "t");
    eventually(&admin, "pid", &of_ben, None).await;
    served.stop().await;
}
