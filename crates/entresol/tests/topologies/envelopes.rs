//! Sources whose rows change, FORMAT UPSERT and DEBEZIUM, and sinks of them.

use super::tcp::free_address;
use super::{append, rows, wait_for, wait_for_end};
use entresol::{Database, Options, Session};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::TcpStream;
use std::path::Path;

/// Accounts by their numbers: owner and amount.
type Accounts = BTreeMap<u64, (String, i64)>;

fn random(n: u64) -> u64 {
    let mut z = n.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Changes of accounts as Debezium sends them, with copies, and what is there behind them.
fn debezium(accounts: &mut Accounts, from: u64, to: u64) -> String {
    let mut lines = String::new();
    let image = |id: u64, (owner, amount): &(String, i64)| {
        format!("{{\"id\": {id}, \"owner\": \"{owner}\", \"amount\": {amount}}}")
    };
    for n in from..to {
        let (id, next) = (random(n) % 23, random(n ^ 0x5555));
        let before = accounts.get(&id).map(|account| image(id, account));
        let line = match (before, next % 4) {
            (Some(before), 0) => {
                accounts.remove(&id);
                format!("{{\"before\": {before}, \"after\": null, \"op\": \"d\"}}\nnull")
            }
            (before, _) => {
                let account = (format!("o{}", next % 5), (next % 1000) as i64 - 300);
                let after = image(id, &account);
                accounts.insert(id, account);
                // Half of the updates have no row before, as without REPLICA IDENTITY FULL.
                let op = if before.is_some() { "u" } else { "c" };
                let before = before.filter(|_| n % 2 == 0).unwrap_or_else(|| "null".to_owned());
                format!(
                    "{{\"schema\": {{}}, \"payload\": {{\"before\": {before}, \"after\": {after}, \"op\": \"{op}\"}}}}"
                )
            }
        };
        writeln!(lines, "{line}").unwrap();
        if n % 7 == 0 {
            writeln!(lines, "{line}").unwrap();
        }
    }
    lines
}

const TARGETS: &str =
    "CREATE TABLE copy (id INT PRIMARY KEY, owner VARCHAR, amount BIGINT) WITH (changes = '1 hour');
     CREATE TABLE rich (id INT PRIMARY KEY, amount BIGINT);
     CREATE TABLE merged (id INT PRIMARY KEY, owner VARCHAR, amount BIGINT);
     CREATE TABLE label (owner VARCHAR PRIMARY KEY, label VARCHAR);
     INSERT INTO label VALUES ('o0', 'zero'), ('o1', 'one'), ('o3', 'three'), ('z', 'last');
     CREATE TABLE labelled (id INT PRIMARY KEY, label VARCHAR);
     CREATE TABLE largest (owner VARCHAR, place BIGINT, id INT, amount BIGINT, PRIMARY KEY (owner, place));
     CREATE TABLE owner_total (owner VARCHAR PRIMARY KEY, accounts BIGINT, amount BIGINT, least BIGINT);
     CREATE MATERIALIZED VIEW per_owner AS SELECT owner, count(*) AS accounts FROM copy GROUP BY owner;";

const STEPS: &str = "INSERT INTO copy SELECT id, owner, amount FROM account
         ON CONFLICT (id) DO UPDATE SET owner = EXCLUDED.owner, amount = EXCLUDED.amount;
       INSERT INTO rich SELECT id, amount FROM account WHERE amount > 400
         ON CONFLICT (id) DO UPDATE SET amount = EXCLUDED.amount;
       MERGE INTO merged m USING account a ON m.id = a.id
         WHEN MATCHED THEN UPDATE SET owner = a.owner, amount = a.amount
         WHEN NOT MATCHED THEN INSERT VALUES (a.id, a.owner, a.amount);
       INSERT INTO labelled SELECT a.id, l.label FROM account a JOIN label l ON l.owner = a.owner
         ON CONFLICT (id) DO UPDATE SET label = EXCLUDED.label;
       INSERT INTO largest SELECT owner, place, id, amount FROM (SELECT owner, id, amount, row_number() OVER
         (PARTITION BY owner ORDER BY amount DESC, id) AS place FROM account) r WHERE place <= 2
         ON CONFLICT (owner, place) DO UPDATE SET id = EXCLUDED.id, amount = EXCLUDED.amount;
       INSERT INTO owner_total SELECT owner, count(*), sum(amount), min(amount) FROM account GROUP BY owner
         ON CONFLICT (owner) DO UPDATE SET accounts = EXCLUDED.accounts, amount = EXCLUDED.amount, least = EXCLUDED.least;";

/// The targets are those of the accounts.
fn check(session: &mut Session, accounts: &Accounts) {
    let wanted: Vec<Vec<String>> = accounts
        .iter()
        .map(|(id, (owner, amount))| vec![id.to_string(), owner.clone(), amount.to_string()])
        .collect();
    assert_eq!(rows(session, "SELECT id, owner, amount FROM copy ORDER BY id"), wanted);
    let query = "SELECT owner, count(*), sum(amount), min(amount) FROM copy GROUP BY owner ORDER BY owner";
    let totals = rows(session, query);
    assert_eq!(rows(session, "SELECT * FROM owner_total ORDER BY owner"), totals);
    assert_eq!(rows(session, "SELECT id, owner, amount FROM merged ORDER BY id"), wanted);
    let labels = "SELECT c.id, l.label FROM copy c JOIN label l ON l.owner = c.owner ORDER BY c.id";
    let labels = rows(session, labels);
    assert_eq!(rows(session, "SELECT id, label FROM labelled ORDER BY id"), labels);
    let largest = "SELECT owner, place, id, amount FROM (SELECT owner, id, amount, row_number() OVER
        (PARTITION BY owner ORDER BY amount DESC, id) AS place FROM copy) r WHERE place <= 2 ORDER BY owner, place";
    let largest = rows(session, largest);
    assert_eq!(rows(session, "SELECT owner, place, id, amount FROM largest ORDER BY owner, place"), largest);
    let rich = rows(session, "SELECT id, amount FROM copy WHERE amount > 400 ORDER BY id");
    assert_eq!(rows(session, "SELECT * FROM rich ORDER BY id"), rich);
    let view = rows(session, "SELECT owner, count(*) FROM copy GROUP BY owner ORDER BY owner");
    assert_eq!(rows(session, "SELECT * FROM per_owner ORDER BY owner"), view);
}

fn create(session: &mut Session, path: &Path, commit: &str) {
    session
        .execute(&format!(
            "CREATE SOURCE account (id INT PRIMARY KEY, owner VARCHAR NOT NULL, amount BIGINT)
                 WITH (connector = 'file', path = '{}', tail = 'true', rejects = 'bad') FORMAT DEBEZIUM ENCODE JSON;
             {TARGETS}
             CREATE TOPOLOGY copying {commit} AS ({STEPS})",
            path.display()
        ))
        .unwrap();
}

/// Changes of a source, written into a table, filtered and summed, over restarts of which some are as after a crash.
#[test]
fn rows_of_debezium_are_those_that_are_there() {
    for commit in ["COMMIT EVERY 3 ROWS", "COMMIT EACH ROW", ""] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("account.json");
        let mut accounts = Accounts::new();
        for round in 0..4 {
            append(&path, &debezium(&mut accounts, round * 60, round * 60 + 60));
            append(
                &path,
                &format!(
                    "{{\"after\": {{\"id\": 1000, \"owner\": \"{round}\", \"amount\": 0}}, \"op\": \"r\"}}\n"
                ),
            );
            accounts.insert(1000, (round.to_string(), 0));
            let database = Database::open(directory.path().join("db"), Options::default()).unwrap();
            let mut session = database.session().unwrap();
            if round == 0 {
                create(&mut session, &path, commit);
            }
            wait_for(&mut session, "SELECT owner FROM copy WHERE id = 1000", &round.to_string());
            check(&mut session, &accounts);
            if round % 2 == 0 {
                drop(session);
                database.close().unwrap();
            }
        }
    }
}

#[test]
fn lines_that_are_no_changes_are_in_their_table_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("account.json");
    let database = Database::open(directory.path().join("db"), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    append(
        &path,
        "{\"op\": \"c\", \"after\": {\"id\": 1, \"owner\": \"a\", \"amount\": 5}}\n{\"op\": \"x\"}\n[1]\n",
    );
    append(
        &path,
        "{\"op\": \"u\", \"after\": null}\n{\"op\": \"c\", \"after\": {\"id\": 2, \"amount\": 5}}\n{\"op\": \n",
    );
    append(&path, "{\"op\": \"d\", \"before\": {\"id\": 1, \"owner\": \"\", \"amount\": 0}}\n");
    append(&path, "{\"op\": \"r\", \"after\": {\"id\": 1000, \"owner\": \"z\", \"amount\": 5}}\n");
    create(&mut session, &path, "");
    wait_for(&mut session, "SELECT owner FROM copy WHERE id = 1000", "z");
    check(&mut session, &Accounts::from([(1000, ("z".to_owned(), 5))]));
    let bad = rows(&mut session, "SELECT source, line, reason FROM bad ORDER BY line");
    let found: Vec<(&str, &str, &str)> = bad.iter().map(|row| (&*row[0], &*row[1], &*row[2])).collect();
    let reasons = [
        ("2", "op \"x\": expected c, r, u or d"),
        ("3", "expected an envelope"),
        ("4", "op u without the row after"),
        ("5", "column owner: NULL in a NOT NULL column"),
        ("6", "no JSON object"),
    ];
    assert_eq!(found.len(), reasons.len(), "{found:?}");
    for ((source, line, reason), (wanted_line, wanted)) in found.iter().zip(reasons) {
        assert_eq!((*source, *line), ("account", wanted_line));
        assert!(reason.contains(wanted), "{reason}");
    }
}

#[test]
fn connections_have_keys_with_values() {
    let directory = tempfile::tempdir().unwrap();
    let database = Database::open(directory.path().join("db"), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    let address = free_address();
    session
        .execute(&format!(
            "CREATE SOURCE account (id INT, owner VARCHAR, amount BIGINT, PRIMARY KEY (id))
                 WITH (connector = 'tcp', listen = '{address}') FORMAT UPSERT ENCODE JSON;
             {TARGETS}
             CREATE TOPOLOGY copying COMMIT EACH ROW AS ({STEPS})"
        ))
        .unwrap();
    let mut stream = super::tcp::connect(&address);
    let lines = "{\"key\": {\"id\": 1}, \"value\": {\"owner\": \"a\", \"amount\": 500}}
{\"key\": {\"id\": 2}, \"value\": {\"owner\": \"a\", \"amount\": 7}}
{\"key\": {\"id\": 1}, \"value\": {\"owner\": \"b\", \"amount\": 450}}
{\"key\": {\"id\": 2}, \"value\": null}
{\"key\": {\"id\": 3}, \"value\": null}
{\"key\": {\"id\": 1000}, \"value\": {\"owner\": \"z\", \"amount\": 0}}
";
    stream.write_all(lines.as_bytes()).unwrap();
    wait_for(&mut session, "SELECT owner FROM copy WHERE id = 1000", "z");
    check(&mut session, &Accounts::from([(1, ("b".to_owned(), 450)), (1000, ("z".to_owned(), 0))]));
    drop::<TcpStream>(stream);
}

/// Sinks beside sources of the same format: a table is the copy of the other, in every format.
#[test]
fn what_a_sink_writes_a_source_reads() {
    for format in ["DEBEZIUM", "UPSERT"] {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        let database = Database::open(directory.path().join("db"), Options::default()).unwrap();
        let mut session = database.session().unwrap();
        let (log, sums) = (path("log.json"), path("sums.json"));
        session
            .execute(&format!(
                "CREATE TABLE item (id INT PRIMARY KEY, kind VARCHAR, price DECIMAL(8,2), doc JSONB, at TIMESTAMP) WITH (changes = '1 hour');
                 CREATE SINK log FROM item WITH (connector = 'file', path = '{log}') FORMAT {format} ENCODE JSON;
                 CREATE SOURCE numbers (at TIMESTAMP NOT NULL, n INT NOT NULL) WITH (connector = 'generator', rows = 3000,
                     step = '1 second', n.cardinality = 9);
                 CREATE TABLE stored (at TIMESTAMP, n INT);
                 CREATE TOPOLOGY storing AS (INSERT INTO stored SELECT at, n FROM numbers);
                 CREATE SINK sums AS SELECT n, count(*) AS times FROM numbers GROUP BY n HAVING count(*) % 5 <> 0
                     WITH (connector = 'file', path = '{sums}') FORMAT {format} ENCODE JSON;
                 INSERT INTO item SELECT i, 'k' || i % 3, i * 1.5, '{{\"a\": [1, \"x\"]}}', TIMESTAMP '2026-01-01 00:00:00' + i * INTERVAL '1 second'
                     FROM generate_series(1, 40) g(i);
                 UPDATE item SET price = price + 1, doc = '\"text\"' WHERE id % 4 = 1;
                 DELETE FROM item WHERE id % 5 = 0;
                 UPDATE item SET id = 100 WHERE id = 1;
                 INSERT INTO item VALUES (5, NULL, NULL, NULL, NULL), (1000, 'last', 1, '7', NULL)"
            ))
            .unwrap();
        wait_for_end(&mut session, "sums");
        wait_for_end(&mut session, "storing");
        session
            .execute(&format!(
                "CREATE SOURCE items (id INT PRIMARY KEY, kind VARCHAR, price DECIMAL(8,2), doc JSONB, at TIMESTAMP)
                     WITH (connector = 'file', path = '{log}', tail = 'true', rejects = 'bad') FORMAT {format} ENCODE JSON;
                 CREATE TABLE copy (id INT PRIMARY KEY, kind VARCHAR, price DECIMAL(8,2), doc JSONB, at TIMESTAMP);
                 CREATE TOPOLOGY copying AS (INSERT INTO copy SELECT id, kind, price, doc, at FROM items ON CONFLICT (id) DO UPDATE
                     SET kind = EXCLUDED.kind, price = EXCLUDED.price, doc = EXCLUDED.doc, at = EXCLUDED.at);
                 CREATE SOURCE results (n INT PRIMARY KEY, times BIGINT) WITH (connector = 'file', path = '{sums}', rejects = 'bad')
                     FORMAT {format} ENCODE JSON;
                 CREATE TABLE result (n INT PRIMARY KEY, times BIGINT);
                 CREATE TOPOLOGY resulting AS (INSERT INTO result SELECT n, times FROM results ON CONFLICT (n) DO UPDATE
                     SET times = EXCLUDED.times)"
            ))
            .unwrap();
        wait_for(&mut session, "SELECT kind FROM copy WHERE id = 1000", "last");
        wait_for_end(&mut session, "resulting");
        let wanted = rows(&mut session, "SELECT * FROM item ORDER BY id");
        assert_eq!(wanted.len(), 34, "{format}");
        assert_eq!(rows(&mut session, "SELECT * FROM copy ORDER BY id"), wanted, "{format}");
        let counts = "SELECT n, count(*) FROM stored GROUP BY n HAVING count(*) % 5 <> 0 ORDER BY n";
        let counts = rows(&mut session, counts);
        assert!(!counts.is_empty());
        assert_eq!(rows(&mut session, "SELECT * FROM result ORDER BY n"), counts, "{format}");
        assert!(rows(&mut session, "SELECT * FROM bad").is_empty(), "{format}");
    }
}

#[test]
fn sources_and_steps_that_cannot_be_are_refused_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("account.json");
    append(&path, "");
    let database = Database::open(directory.path().join("db"), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    create(&mut session, &path, "");
    let with = format!("WITH (connector = 'file', path = '{}')", path.display());
    let stream = |step: &str| format!("CREATE TOPOLOGY t AS ({step})");
    for (sql, reason) in [
        (format!("CREATE SOURCE s (id INT) {with} FORMAT DEBEZIUM ENCODE JSON"), "needs a PRIMARY KEY"),
        (format!("CREATE SOURCE s (id INT PRIMARY KEY) {with} FORMAT PLAIN ENCODE JSON"), "its rows are inserts"),
        (format!("CREATE SOURCE s (id INT, PRIMARY KEY (x)) {with} FORMAT UPSERT ENCODE JSON"), "\"x\" named in the primary key"),
        (
            format!("CREATE SOURCE s (id INT PRIMARY KEY, deleted_ INT) {with} FORMAT UPSERT ENCODE JSON"),
            "column \"deleted_\" of a source whose rows change",
        ),
        (
            format!("CREATE SOURCE s (id INT PRIMARY KEY, at TIMESTAMP, WATERMARK FOR at AS at) {with} FORMAT UPSERT ENCODE JSON"),
            "WATERMARK of a source whose rows change",
        ),
        (
            "CREATE SOURCE s (id INT PRIMARY KEY) WITH (connector = 'file', path = 'x', timestamp_unit = 's') FORMAT DEBEZIUM ENCODE JSON".to_owned(),
            "invalid value for option \"timestamp_unit\"",
        ),
        ("ALTER SOURCE account ADD COLUMN more INT".to_owned(), "ADD COLUMN of source \"account\", whose rows change"),
        (
            stream("INSERT INTO copy SELECT id, owner, amount FROM account"),
            "rows that their source changes and deletes, other than ON CONFLICT (key) DO UPDATE",
        ),
        (
            stream("INSERT INTO owner_total SELECT owner, 1, amount, 1 FROM account ON CONFLICT (owner) DO UPDATE
                SET accounts = EXCLUDED.accounts, amount = EXCLUDED.amount, least = EXCLUDED.least"),
            "whose key is the PRIMARY KEY of the source",
        ),
        (
            format!("CREATE SINK s AS SELECT owner FROM account {with} FORMAT UPSERT ENCODE JSON"),
            "needs the option \"primary_key\"",
        ),
        (
            format!(
                "CREATE SINK s AS SELECT owner FROM account WITH (connector = 'file', path = '{}', primary_key = 'id') FORMAT UPSERT ENCODE JSON",
                path.display()
            ),
            "column \"id\" of the option \"primary_key\" does not exist",
        ),
    ] {
        let error = session.execute(&sql).unwrap_err().to_string();
        assert!(error.contains(reason), "{sql}: {error}");
    }
    let lines = rows(&mut session, "EXPLAIN TOPOLOGY copying");
    let text: Vec<&str> = lines.iter().map(|line| line[0].as_str()).collect();
    let text = text.join("\n");
    assert!(text.contains("state copying_account_rows: rows of source account by id"), "{text}");
    assert!(text.contains("changes, rows are taken back, by id"), "{text}");
}
