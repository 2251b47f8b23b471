//! COMMIT WITH SOURCE: transactions of Debezium, of several tables, are whole or not there.

use super::{append, rows, sqlstate, wait_for};
use entresol::{Database, Options, Session};
use std::fmt::Write as _;
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
