//! Portals that were bound by message, used by FETCH, MOVE and CLOSE.

use crate::raw::{Message, Raw, message, shorts};
use crate::support::Served;

impl Raw {
    /// Sends messages and a Sync.
    async fn synced(&mut self, messages: &[(char, &[u8])]) -> Vec<Message> {
        let mut bytes: Vec<u8> = messages.iter().flat_map(|(kind, body)| message(*kind, body)).collect();
        bytes.extend(message('S', b""));
        self.send(&bytes).await;
        self.until_ready().await
    }

    /// Parses a statement and binds it to a portal of this name.
    async fn bind(&mut self, portal: &str, sql: &str) -> Vec<String> {
        let parse = format!("\0{sql}\0\0\0");
        let bind = format!("{portal}\0\0\0\0\0\0\0\0");
        shorts(&self.synced(&[('P', parse.as_bytes()), ('B', bind.as_bytes())]).await)
    }

    /// Executes a portal.
    async fn execute(&mut self, portal: &str, rows_max: u8) -> Vec<Message> {
        let mut body = format!("{portal}\0\0\0\0").into_bytes();
        body.push(rows_max);
        self.synced(&[('E', &body)]).await
    }

    async fn text(&mut self, sql: &str) -> Vec<Message> {
        self.send(&message('Q', format!("{sql}\0").as_bytes())).await;
        self.until_ready().await
    }
}

/// The first column of the rows, which is a string, and the short forms of all other messages.
fn told(messages: &[Message]) -> (Vec<String>, Vec<String>) {
    let (rows, others): (Vec<Message>, Vec<Message>) =
        messages.iter().cloned().partition(|(kind, _)| *kind == 'D');
    let first = |(_, body): &Message| {
        let length = u32::from_be_bytes(body[2..6].try_into().unwrap()) as usize;
        String::from_utf8(body[6..6 + length].to_vec()).unwrap()
    };
    (rows.iter().map(first).collect(), shorts(&others))
}

fn expected(rows: std::ops::Range<u32>, others: &[&str]) -> (Vec<String>, Vec<String>) {
    (rows.map(|row| row.to_string()).collect(), others.iter().map(|&other| other.to_owned()).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn fetch_and_move_find_portals() {
    let served = Served::start().await;
    let mut raw = Raw::start(served.address).await;
    raw.query("BEGIN").await;
    assert_eq!(raw.bind("p", "SELECT value FROM generate_series(1, 20)").await, ["1", "2", "Z T"]);
    // It has not run yet; asyncpg leaves out FROM.
    assert_eq!(raw.query("MOVE FORWARD 3 p").await, ["C MOVE 3", "Z T"]);
    assert_eq!(told(&raw.execute("p", 2).await), expected(4..6, &["s", "Z T"]));
    assert_eq!(told(&raw.text("FETCH 2 FROM p").await), expected(6..8, &["T", "C FETCH 2", "Z T"]));
    // By message, too: its columns are known before it runs, and it may be suspended itself.
    let messages = raw.synced(&[('P', b"f\0FETCH FORWARD 3 IN \"p\"\0\0\0"), ('D', b"Sf\0")]).await;
    assert_eq!(shorts(&messages), ["1", "t", "T", "Z T"]);
    let messages = raw.synced(&[('B', b"q\0f\0\0\0\0\0\0\0"), ('E', b"q\0\0\0\0\x02")]).await;
    assert_eq!(told(&messages), expected(8..10, &["2", "s", "Z T"]));
    assert_eq!(told(&raw.execute("q", 0).await), expected(10..11, &["C FETCH 1", "Z T"]));
    assert_eq!(told(&raw.execute("p", 1).await), expected(11..12, &["s", "Z T"]));
    assert_eq!(raw.query("MOVE ALL IN p").await, ["C MOVE 9", "Z T"]);
    assert_eq!(raw.query("FETCH p; MOVE p").await, ["T", "C FETCH 0", "C MOVE 0", "Z T"]);
    assert_eq!(told(&raw.execute("p", 0).await), expected(0..0, &["C SELECT 0", "Z T"]));
    assert_eq!(raw.query("CLOSE p").await, ["C CLOSE CURSOR", "Z T"]);
    assert_eq!(shorts(&raw.execute("p", 0).await), ["E ERROR 34000", "Z E"]);
    drop(raw);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn portals_and_declared_cursors_share_their_names() {
    let served = Served::start().await;
    let mut raw = Raw::start(served.address).await;
    raw.query("BEGIN").await;
    raw.query("DECLARE c CURSOR FOR SELECT 1").await;
    raw.query("SAVEPOINT s").await;
    assert_eq!(raw.bind("c", "SELECT 2").await, ["1", "E ERROR 42P03", "Z E"]);
    raw.query("ROLLBACK TO s").await;
    assert_eq!(raw.bind("p", "SELECT 2").await, ["1", "2", "Z T"]);
    assert_eq!(raw.query("DECLARE p CURSOR FOR SELECT 3").await, ["E ERROR 42P03", "Z E"]);
    // A portal bound after the savepoint goes with it.
    raw.query("ROLLBACK TO s").await;
    assert_eq!(raw.query("FETCH p").await, ["E ERROR 34000", "Z E"]);
    raw.query("ROLLBACK TO s").await;
    assert_eq!(raw.query("FETCH c").await, ["T", "D", "C FETCH 1", "Z T"]);
    raw.bind("p", "SELECT 2").await;
    assert_eq!(raw.query("CLOSE ALL").await, ["C CLOSE CURSOR", "Z T"]);
    assert_eq!(raw.query("FETCH p").await, ["E ERROR 34000", "Z E"]);
    raw.query("ROLLBACK TO s").await;
    assert_eq!(raw.query("FETCH c").await, ["E ERROR 34000", "Z E"]);
    raw.query("ROLLBACK; BEGIN").await;
    raw.bind("p", "SELECT 2").await;
    raw.query("COMMIT").await;
    assert_eq!(raw.query("FETCH p").await, ["E ERROR 34000", "Z I"]);
    drop(raw);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_portal_that_writes_is_fetched_from_and_runs_once() {
    let served = Served::start().await;
    let mut raw = Raw::start(served.address).await;
    raw.query("CREATE TABLE t (id INT PRIMARY KEY); BEGIN").await;
    raw.bind("r", "INSERT INTO t VALUES (1), (2), (3) RETURNING id").await;
    assert_eq!(told(&raw.text("FETCH r").await), expected(1..2, &["T", "C FETCH 1", "Z T"]));
    assert_eq!(told(&raw.execute("r", 0).await), expected(2..4, &["C INSERT 0 2", "Z T"]));
    assert_eq!(told(&raw.text("SELECT count(*) FROM t").await), expected(3..4, &["T", "C SELECT 1", "Z T"]));
    let prepared = "PREPARE i AS INSERT INTO t VALUES (4) RETURNING id; EXECUTE i";
    assert_eq!(raw.query(prepared).await, ["C PREPARE", "T", "D", "C INSERT 0 1", "Z T"]);
    let merge = "PREPARE m AS MERGE INTO t USING (VALUES (4), (5)) AS s (id) ON t.id = s.id
                 WHEN MATCHED AND EXISTS (SELECT * FROM t) THEN UPDATE SET id = s.id
                 WHEN NOT MATCHED THEN INSERT VALUES ((SELECT max(id) + 1 FROM t)) RETURNING t.id, (SELECT 1 FROM t LIMIT 1);
                 EXECUTE m";
    assert_eq!(raw.query(merge).await, ["C PREPARE", "T", "D", "D", "C MERGE 2", "Z T"]);
    raw.bind(
        "g",
        "MERGE INTO t USING t AS s ON t.id = s.id WHEN MATCHED THEN UPDATE SET id = -s.id RETURNING t.id",
    )
    .await;
    assert_eq!(shorts(&raw.text("FETCH g").await), ["T", "D", "C FETCH 1", "Z T"]);
    // A statement without rows is no cursor, and does not run again.
    raw.bind("w", "DELETE FROM t").await;
    raw.query("SAVEPOINT s").await;
    assert_eq!(raw.query("FETCH w").await, ["E ERROR 34000", "Z E"]);
    raw.query("ROLLBACK TO s").await;
    assert_eq!(shorts(&raw.execute("w", 0).await), ["C DELETE 5", "Z T"]);
    assert_eq!(shorts(&raw.execute("w", 0).await), ["E ERROR 55000", "Z E"]);
    drop(raw);
    served.stop().await;
}
