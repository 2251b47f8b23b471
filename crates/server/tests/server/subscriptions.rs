//! SUBSCRIBE over the wire: rows arrive as they are committed, by COPY, by a query and by a cursor; a client
//! that is gone, cancelled or slow holds nothing.

use crate::psql::{command, installed};
use crate::support::{PATIENCE, Served, code, one, options};
use futures::{StreamExt, pin_mut};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tokio_postgres::{Client, NoTls};

async fn alarms(served: &Served) -> Client {
    let client = served.client().await;
    client
        .batch_execute("CREATE TABLE alarm (id INT PRIMARY KEY, what VARCHAR) WITH (changes = '1 hour')")
        .await
        .unwrap();
    client
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_has_each_commit_as_it_happens() {
    let served = Served::start().await;
    let writer = alarms(&served).await;
    writer.batch_execute("INSERT INTO alarm VALUES (0, 'before')").await.unwrap();
    let reader = served.client().await;
    let cancel = reader.cancel_token();
    let lines = reader.copy_out("COPY (SUBSCRIBE alarm) TO STDOUT").await.unwrap();
    pin_mut!(lines);
    let mut next = async || -> String {
        let line = tokio::time::timeout(PATIENCE, lines.next()).await.unwrap().unwrap();
        let line = line.map(|line| String::from_utf8(line.to_vec()).unwrap());
        line.unwrap_or_else(|error| error.code().map_or(String::new(), |code| code.code().to_owned()))
    };
    let row = |line: String| line.split_once('\t').map_or(line.clone(), |(_, row)| row.trim_end().to_owned());
    assert_eq!(row(next().await), "snapshot\t0\tbefore");
    let mut waits = Vec::new();
    for id in 1..=50 {
        let statement = format!("INSERT INTO alarm VALUES ({id}, 'x')");
        writer.batch_execute(&statement).await.unwrap();
        let committed = Instant::now();
        assert_eq!(row(next().await), format!("insert\t{id}\tx"));
        waits.push(committed.elapsed());
    }
    // Not a measurement: it would be the interval of the waits if nothing woke the subscriber.
    waits.sort_unstable();
    assert!(waits[25] < Duration::from_millis(50), "{waits:?}");
    cancel.cancel_query(NoTls).await.unwrap();
    assert_eq!(next().await, "57014");
}

#[tokio::test(flavor = "multi_thread")]
async fn psql_prints_rows_while_the_subscription_runs() {
    let served = Served::start().await;
    let writer = alarms(&served).await;
    if !installed() {
        return;
    }
    let statement = "COPY (SUBSCRIBE TO (alarm) WITH (SNAPSHOT = false, PROGRESS)) TO STDOUT";
    // Into a pipe psql prints pages, not lines.
    let (plain, mut psql) = (command(served.address), Command::new("stdbuf"));
    psql.args(["-oL", "psql"]).args(plain.get_args()).args(["-Atqc", statement]);
    psql.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut psql = psql.stdout(Stdio::piped()).spawn().unwrap();
    let output = BufReader::new(psql.stdout.take().unwrap());
    let (sender, mut lines) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    let mut next = async || {
        let line = tokio::time::timeout(PATIENCE, lines.recv()).await.unwrap().unwrap();
        line.split_once('\t').unwrap().1.to_owned()
    };
    assert_eq!(next().await, "\\N\tprogress\t\\N");
    writer.batch_execute("INSERT INTO alarm VALUES (1, 'hot')").await.unwrap();
    let mut found = next().await;
    while found.contains("progress") {
        found = next().await;
    }
    assert_eq!(found, r#"alarm	insert	{"id":1,"what":"hot"}"#);
    // A client that is gone ends its subscription.
    psql.kill().unwrap();
    psql.wait().unwrap();
    served.eventually("the subscription ends", |counts| counts.connections == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_and_the_rights_of_a_role() {
    let served = Served::with(options()).await;
    let writer = alarms(&served).await;
    let reader = served.client().await;
    reader.batch_execute("BEGIN; DECLARE c CURSOR FOR SUBSCRIBE alarm").await.unwrap();
    writer.batch_execute("INSERT INTO alarm VALUES (1, 'a'), (2, 'b')").await.unwrap();
    let rows = reader.query("FETCH ALL c", &[]).await.unwrap();
    let found: Vec<(String, i32)> = rows.iter().map(|row| (row.get(1), row.get(2))).collect();
    assert_eq!(found, [("insert".to_owned(), 1), ("insert".to_owned(), 2)]);
    let begun = Instant::now();
    assert_eq!(reader.query("FETCH 5 c", &[]).await.unwrap().len(), 0);
    assert!(begun.elapsed() < PATIENCE);
    reader.batch_execute("COMMIT").await.unwrap();
    assert_eq!(code(reader.batch_execute("SUBSCRIBE nothing").await), "42P01");
    assert_eq!(code(reader.batch_execute("SUBSCRIBE").await), "42601");
    // From a commit on, up to another: an end.
    let last = one(&reader, "SELECT max(commit_cts)::text FROM CHANGES(alarm)").await;
    writer.batch_execute("DELETE FROM alarm WHERE id = 1").await.unwrap();
    let end = one(&reader, "SELECT max(commit_cts)::text FROM CHANGES(alarm)").await;
    let between = format!("SUBSCRIBE alarm AS OF {last} UP TO {end}");
    let rows = reader.query(&between, &[]).await.unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].get::<_, String>(1), "delete");
    writer.batch_execute("UPDATE alarm SET what = 'c' WHERE id = 2").await.unwrap();
    let end = one(&reader, "SELECT max(commit_cts)::text FROM CHANGES(alarm)").await;
    let query = "SELECT id, upper(what) AS what FROM alarm WHERE id > 1 OR what = 'x'";
    let rows = reader.query(&format!("SUBSCRIBE TO ({query}) AS OF {last} UP TO {end}"), &[]).await.unwrap();
    let found: Vec<(String, i32, String)> =
        rows.iter().map(|row| (row.get(1), row.get(2), row.get(3))).collect();
    assert_eq!(found, [("update".to_owned(), 2, "C".to_owned())]);
    let copied = format!("COPY (SUBSCRIBE TO ({query}) WITH (PROGRESS) AS OF {last} UP TO {end}) TO STDOUT");
    let lines: Vec<_> = reader.copy_out(&copied).await.unwrap().collect().await;
    let lines: Vec<String> =
        lines.into_iter().map(|line| String::from_utf8(line.unwrap().to_vec()).unwrap()).collect();
    let kinds: Vec<&str> = lines.iter().filter_map(|line| line.split('\t').nth(1)).collect();
    assert_eq!(kinds, ["update", "progress"], "{lines:?}");
}
