//! COMMIT WITH SOURCE: transactions of Debezium, and those that rows mark, of several tables, are whole or not there.

use super::tcp::{connect, free_address};
use super::{append, rows, sqlstate, wait_for, wait_for_end};
use entresol::{Database, Options, Session};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const TABLES: [&str; 2] = ["debit", "credit"];
const SUM: &str = "SELECT (SELECT count(*) FROM debit_copy), (SELECT sum(amount)::bigint FROM debit_copy),
    (SELECT count(*) FROM credit_copy), (SELECT sum(amount)::bigint FROM credit_copy)";

/// Transactions of which each adds rows with the same amounts to both tables, in another order and number.
fn transfer(directory: &Path, from: u64, to: u64) {
    for number in from..to {
        let parts = 1 + number % 3;
        for (table, parts) in TABLES.iter().zip([parts, 1]) {
            let mut lines = String::new();
            for part in 0..parts {
                let amount = 6 / parts;
                let id = number * 10 + part;
                writeln!(
                    lines,
                    "{{\"before\": null, \"after\": {{\"id\": {id}, \"amount\": {amount}}}, \"op\": \"c\", \"transaction\": {{\"id\": \"t{number}\"}}}}"
                )
                .unwrap();
            }
            append(&directory.join(table), &lines);
        }
        let collections = format!(
            "[{{\"data_collection\": \"bank.debit\", \"event_count\": {parts}}}, {{\"data_collection\": \"bank.credit\", \"event_count\": 1}}]"
        );
        append(
            &directory.join("marks"),
            &format!(
                "{{\"status\": \"BEGIN\", \"id\": \"t{number}\"}}
{{\"status\": \"END\", \"id\": \"t{number}\", \"event_count\": {}, \"data_collections\": {collections}}}\n",
                parts + 1
            ),
        );
    }
}

fn create(session: &mut Session, directory: &Path) {
    for table in TABLES {
        session
            .execute(&format!(
                "CREATE SOURCE {table} (id BIGINT PRIMARY KEY, amount BIGINT NOT NULL) WITH (connector = 'file', path = '{}', tail = true,
                     transactions = '{}', collection = 'bank.{table}') FORMAT DEBEZIUM ENCODE JSON;
                 CREATE TABLE {table}_copy (id BIGINT PRIMARY KEY, amount BIGINT)",
                directory.join(table).display(),
                directory.join("marks").display()
            ))
            .unwrap();
    }
    session
        .execute(
            "CREATE TOPOLOGY bank COMMIT WITH SOURCE AS (
                 INSERT INTO debit_copy SELECT id, amount FROM debit ON CONFLICT (id) DO UPDATE SET amount = EXCLUDED.amount;
                 INSERT INTO credit_copy SELECT id, amount FROM credit ON CONFLICT (id) DO UPDATE SET amount = EXCLUDED.amount)",
        )
        .unwrap();
}

/// Number of transactions that are there; each is in both tables, as a whole.
fn check(session: &mut Session) -> u64 {
    let sums = rows(session, SUM).remove(0);
    let transactions: u64 = sums[2].parse().unwrap();
    let (debits, sum) = ((0..transactions).map(|number| 1 + number % 3).sum::<u64>(), 6 * transactions);
    let sum = if transactions == 0 { sums[1].clone() } else { sum.to_string() };
    assert_eq!(sums, [debits.to_string(), sum.clone(), transactions.to_string(), sum]);
    transactions
}

fn wait_for_transactions(session: &mut Session, wanted: u64) {
    let begun = Instant::now();
    while check(session) < wanted {
        let mut state = || rows(session, "SELECT state, error FROM entresol.topologies");
        assert!(begun.elapsed() < Duration::from_secs(120), "{:?}", state());
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_reader_sees_transactions_as_they_were() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    for round in 0..4 {
        transfer(path, round * 50, round * 50 + 50);
        let database = Database::open(path.join("db"), Options::default()).unwrap();
        let mut session = database.session().unwrap();
        if round == 0 {
            create(&mut session, path);
        }
        wait_for_transactions(&mut session, round * 50 + 50);
        if round % 2 == 0 {
            drop(session);
            database.close().unwrap();
        }
    }
}

/// Events whose END is not there are not read; with it, all of them are.
#[test]
fn a_transaction_waits_for_its_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    transfer(path, 0, 3);
    let marks = std::fs::read_to_string(path.join("marks")).unwrap();
    let (before, last) = marks.split_at(marks.find("{\"status\": \"END\", \"id\": \"t2\"").unwrap());
    std::fs::write(path.join("marks"), before).unwrap();
    let database = Database::open(path.join("db"), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    create(&mut session, path);
    wait_for_transactions(&mut session, 2);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(check(&mut session), 2);
    session.execute("ALTER TOPOLOGY bank PAUSE; ALTER TOPOLOGY bank RESUME").unwrap();
    append(&path.join("marks"), last);
    wait_for_transactions(&mut session, 3);
}

/// Directory of a database that this process opens to be killed, if it is the child of the test below.
const CHILD: &str = "ENTRESOL_SOURCE_TRANSACTIONS_CHILD";

#[test]
fn child_that_is_killed() {
    let Some(directory) = std::env::var_os(CHILD) else { return };
    let path = Path::new(&directory);
    let database = Database::open(path.join("db"), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    if rows(&mut session, "SHOW TOPOLOGIES").is_empty() {
        create(&mut session, path);
    }
    std::fs::write(path.join("ready"), "").unwrap();
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn nothing_is_there_in_part_over_kills() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    transfer(path, 0, 2000);
    for kill in 1..=4 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "source_transactions::child_that_is_killed"])
            .env(CHILD, path)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        while !path.join("ready").exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::fs::remove_file(path.join("ready")).unwrap();
        std::thread::sleep(Duration::from_millis(17 * kill));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let database = Database::open(path.join("db"), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    wait_for_transactions(&mut session, 2000);
    wait_for(&mut session, "SELECT count(*) FROM credit_copy", "2000");
}

#[test]
fn boundaries_that_would_divide_transactions_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    transfer(path, 0, 1);
    let database = Database::open(path.join("db"), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    create(&mut session, path);
    session
        .execute(&format!(
            "CREATE SOURCE other (id BIGINT PRIMARY KEY, amount BIGINT) WITH (connector = 'file', path = '{0}/debit', transactions = '{0}/others')
                 FORMAT DEBEZIUM ENCODE JSON;
             CREATE SOURCE numbers (n INT) WITH (connector = 'generator', rows = 3)",
            path.display()
        ))
        .unwrap();
    let step = "INSERT INTO debit_copy SELECT id, amount FROM";
    let by_key = "ON CONFLICT (id) DO UPDATE SET amount = EXCLUDED.amount";
    for (sql, reason) in [
        (
            format!("CREATE TOPOLOGY t COMMIT EVERY 5 ROWS AS ({step} debit {by_key})"),
            "source \"debit\" marks transactions: COMMIT WITH SOURCE is the boundary",
        ),
        (
            format!("CREATE TOPOLOGY t COMMIT WITH SOURCE AS ({step} debit {by_key}; {step} other {by_key})"),
            "have different files in the option \"transactions\"",
        ),
        (
            format!(
                "CREATE TOPOLOGY t COMMIT WITH SOURCE AS ({step} debit {by_key}; INSERT INTO debit_copy SELECT n, n FROM numbers)"
            ),
            "source \"numbers\" marks no transactions",
        ),
    ] {
        let error = session.execute(&sql).unwrap_err();
        assert_eq!(sqlstate(&error), "0A000", "{error}");
        assert!(error.to_string().contains(reason), "{sql}: {error}");
    }
    let same = format!(
        "CREATE SOURCE s (id BIGINT PRIMARY KEY) WITH (connector = 'file', path = '{0}', transactions = '{0}') FORMAT DEBEZIUM ENCODE JSON",
        path.join("debit").display()
    );
    let error = session.execute(&same).unwrap_err().to_string();
    assert!(error.contains("invalid value for option \"transactions\""), "{error}");
}

/// A change of the id ends a transaction, so the last one waits for the next, or for the end of the files.
#[test]
fn rows_are_committed_with_their_transaction() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    append(&path.join("a.csv"), "tx,id\n1,1\n1,2\nx,y\n2,3\n");
    let database = Database::open(path.join("db"), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(&format!(
            "CREATE SOURCE line (tx INT NOT NULL, id INT NOT NULL) WITH (connector = 'file', path = '{0}/*.csv', tail = true, rejects = 'bad',
                 transaction_id = 'tx');
             CREATE TABLE stored (id INT PRIMARY KEY, tx INT);
             CREATE TABLE counted (tx INT PRIMARY KEY, lines BIGINT);
             CREATE TOPOLOGY lines COMMIT WITH SOURCE AS (
                 INSERT INTO stored SELECT id, tx FROM line;
                 INSERT INTO counted SELECT tx, count(*) FROM line GROUP BY tx ON CONFLICT (tx) DO UPDATE SET lines = EXCLUDED.lines)",
            path.display()
        ))
        .unwrap();
    wait_for(&mut session, "SELECT count(*) FROM stored", "2");
    append(&path.join("a.csv"), "2,4\n");
    append(&path.join("b.csv"), "tx,id\n2,5\n3,6\n");
    wait_for(&mut session, "SELECT count(*) FROM stored", "5");
    let agree = "SELECT count(*), sum(lines)::bigint, (SELECT count(*) FROM stored) FROM counted";
    assert_eq!(rows(&mut session, agree), [["2", "5", "5"]]);
    assert_eq!(rows(&mut session, "SELECT count(*) FROM bad"), [["1"]]);
    // Without the rest of the third transaction, a stop leaves nothing of it.
    session.execute("ALTER TOPOLOGY lines PAUSE; ALTER TOPOLOGY lines RESUME").unwrap();
    append(&path.join("b.csv"), "3,7\n4,8\n");
    wait_for(&mut session, "SELECT count(*) FROM stored", "7");
    assert_eq!(
        rows(&mut session, "SELECT tx, lines FROM counted ORDER BY tx"),
        [["1", "2"], ["2", "3"], ["3", "2"]]
    );
    // Parquet files have transactions too; the end of the source ends the last one.
    session
        .execute(&format!(
            "COPY (SELECT g / 10 AS tx, g AS id FROM generate_series(1000, 2999) s(g) ORDER BY g) TO '{0}/rows.parquet';
             CREATE SOURCE line_of_file (tx BIGINT, id INT NOT NULL) WITH (connector = 'file', path = '{0}/rows.parquet', transaction_id = 'tx')
                 FORMAT PLAIN ENCODE PARQUET;
             CREATE TOPOLOGY of_file COMMIT WITH SOURCE AS (INSERT INTO stored SELECT id, tx FROM line_of_file)",
            path.display()
        ))
        .unwrap();
    wait_for_end(&mut session, "of_file");
    assert_eq!(rows(&mut session, "SELECT count(*) FROM stored WHERE id >= 1000"), [["2000"]]);
    assert_eq!(
        rows(&mut session, "SELECT commits >= 200 FROM entresol.topologies WHERE name = 'of_file'"),
        [["true"]]
    );
}

/// Lines over a connection are committed when the mark behind them comes.
#[test]
fn mark_rows_end_transactions_of_connections() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    let address = free_address();
    session
        .execute(&format!(
            "CREATE SOURCE line (id INT, last BOOLEAN) WITH (connector = 'tcp', listen = '{address}', transaction_end = 'last', acknowledge = 'true')
                 FORMAT PLAIN ENCODE JSON;
             CREATE TABLE stored (id INT PRIMARY KEY);
             CREATE TOPOLOGY lines COMMIT WITH SOURCE AS (INSERT INTO stored SELECT id FROM line)"
        ))
        .unwrap();
    let mut sender = connect(&address);
    sender.write_all(b"{\"id\": 1}\n{\"id\": 2}\n{\"last\": true}\n{\"id\": 3}\n").unwrap();
    wait_for(&mut session, "SELECT count(*) FROM stored", "2");
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(rows(&mut session, "SELECT count(*) FROM stored"), [["2"]]);
    sender.write_all(b"{\"id\": 4, \"last\": false}\n{\"last\": true}\n").unwrap();
    wait_for(&mut session, "SELECT count(*) FROM stored", "4");
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(sender));
    // Acknowledged are lines of committed transactions, mark rows included.
    let mut acknowledged = || lines.next().unwrap().unwrap().parse::<u64>().unwrap();
    while acknowledged() < 6 {}
}

/// Directory of a database with sources that mark transactions in their rows, which the child below opens to be killed.
const MARKED_CHILD: &str = "ENTRESOL_MARKED_CHILD";

fn create_marked(session: &mut Session, path: &Path) {
    for table in TABLES {
        session
            .execute(&format!(
                "CREATE SOURCE {table} (tx INT NOT NULL, last BOOLEAN, id BIGINT, amount BIGINT) WITH (connector = 'file', path = '{}/{table}.csv',
                     tail = true, transaction_id = 'tx', transaction_end = 'last');
                 CREATE TABLE {table}_copy (id BIGINT PRIMARY KEY, amount BIGINT)",
                path.display()
            ))
            .unwrap();
    }
    session
        .execute(
            "CREATE TOPOLOGY bank COMMIT WITH SOURCE AS (
                 INSERT INTO debit_copy SELECT id, amount FROM debit; INSERT INTO credit_copy SELECT id, amount FROM credit)",
        )
        .unwrap();
}

#[test]
fn marked_child_that_is_killed() {
    let Some(directory) = std::env::var_os(MARKED_CHILD) else { return };
    let path = Path::new(&directory);
    let database = Database::open(path.join("db"), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    if rows(&mut session, "SHOW TOPOLOGIES").is_empty() {
        create_marked(&mut session, path);
    }
    std::fs::write(path.join("ready"), "").unwrap();
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn marked_transactions_of_two_sources_are_there_in_both_over_kills_and_stops() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    // The same transactions as those with a file of marks have.
    let mut lines = TABLES.map(|_| "tx,last,id,amount\n".to_owned());
    for number in 0..2000_u64 {
        for (lines, parts) in lines.iter_mut().zip([1 + number % 3, 1]) {
            for part in 0..parts {
                writeln!(lines, "{number},,{},{}", number * 10 + part, 6 / parts).unwrap();
            }
            writeln!(lines, "{number},true,,").unwrap();
        }
    }
    for (table, lines) in TABLES.iter().zip(&lines) {
        append(&path.join(format!("{table}.csv")), lines);
    }
    for kill in 1..=4 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "source_transactions::marked_child_that_is_killed"])
            .env(MARKED_CHILD, path)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        while !path.join("ready").exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::fs::remove_file(path.join("ready")).unwrap();
        std::thread::sleep(Duration::from_millis(17 * kill));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let database = Database::open(path.join("db"), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    for _ in 0..5 {
        check(&mut session);
        session.execute("ALTER TOPOLOGY bank PAUSE").unwrap();
        check(&mut session);
        session.execute("ALTER TOPOLOGY bank RESUME").unwrap();
    }
    wait_for_transactions(&mut session, 2000);
}

#[test]
fn marks_that_do_not_fit_are_refused() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    let source = |name: &str, options: &str| {
        format!(
            "CREATE SOURCE {name} (tx INT, last BOOLEAN, n INT) WITH (connector = 'generator', rows = 3{options})"
        )
    };
    session.execute(&source("plain", "")).unwrap();
    session.execute(&source("with_id", ", transaction_id = 'tx'")).unwrap();
    session.execute(&source("with_end", ", transaction_end = 'last'")).unwrap();
    session.execute(&source("with_end_too", ", transaction_end = 'last'")).unwrap();
    session.execute("CREATE TABLE t (n INT, tx INT)").unwrap();
    let topology = |clauses: &str, sources: &[&str]| {
        let steps: Vec<String> =
            sources.iter().map(|source| format!("INSERT INTO t SELECT n, tx FROM {source}")).collect();
        format!("CREATE TOPOLOGY x {clauses} AS ({})", steps.join("; "))
    };
    let led = |by: &str| format!("COMMIT WITH SOURCE WITH (leader = '{by}')");
    for (sql, code, expected) in [
        (
            source("s", ", transaction_id = 'id'"),
            "42703",
            "column \"id\" that marks transactions does not exist",
        ),
        (source("s", ", transaction_end = 'tx'"), "42804", "is INT, not BOOLEAN"),
        (topology("", &["with_id"]), "0A000", "COMMIT WITH SOURCE is the boundary"),
        (topology("COMMIT WITH SOURCE", &["with_id", "plain"]), "0A000", "\"plain\" marks no transactions"),
        (
            topology("COMMIT WITH SOURCE", &["with_id", "with_end"]),
            "0A000",
            "only one has ids of transactions",
        ),
        (topology("COMMIT WITH SOURCE", &["with_end", "with_end_too"]), "0A000", "has no \"transaction_id\""),
        (topology("WITH (leader = 'plain')", &["plain"]), "0A000", "without COMMIT WITH SOURCE"),
        (
            topology(&led("plain"), &["plain", "with_id"]),
            "0A000",
            "\"plain\" leads, and marks no transactions",
        ),
        (topology(&led("with_id"), &["with_end"]), "22023", "invalid value for option \"leader\""),
    ] {
        let error = session.execute(&sql).unwrap_err();
        assert!(error.to_string().contains(expected), "{sql}: {error}");
        assert_eq!(sqlstate(&error), code, "{error}");
    }
    session.execute(&topology(&led("with_id"), &["with_id", "plain"])).unwrap();
    wait_for_end(&mut session, "x");
    assert_eq!(rows(&mut session, "SELECT count(*) >= 3 FROM t"), [["true"]]);
    let explained = rows(&mut session, "EXPLAIN TOPOLOGY x").concat();
    assert_eq!(explained[0], "Topology x, commit with source, led by source with_id");
}

/// Bad lines before the first row of a marked transaction are of it: it is not divided for them.
#[test]
fn a_marked_transaction_is_not_divided_for_its_bad_lines() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("orders.csv");
    append(&path, "tx,id,last\n1,1,false\n,,true\n");
    append(&path, &"2,none,false\n".repeat(20_000));
    append(&path, "2,2,false\n,,true\n");
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(&format!(
            "CREATE SOURCE order_line (tx BIGINT, id INT, last BOOLEAN) WITH (connector = 'file', path = '{}',
                 transaction_id = 'tx', transaction_end = 'last', rejects = 'bad_lines');
             CREATE TABLE copied (id INT PRIMARY KEY);
             CREATE TOPOLOGY orders COMMIT WITH SOURCE AS (INSERT INTO copied SELECT id FROM order_line)",
            path.display()
        ))
        .unwrap();
    wait_for(&mut session, "SELECT state FROM entresol.topologies", "failed");
    let shown = rows(&mut session, "SELECT error FROM entresol.topologies").remove(0).remove(0);
    assert!(shown.contains("bad records and skipped tuples in a transaction of orders"), "{shown}");
    assert_eq!(rows(&mut session, "SELECT id FROM copied"), [["1"]]);
    // Nothing of the second transaction is committed: its lines come again.
    assert_eq!(rows(&mut session, "SELECT count(*) FROM bad_lines"), [["0"]]);
}
