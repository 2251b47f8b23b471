//! The entire database: opening, closing, crashing, damaged files, errors.
#![allow(missing_docs, clippy::unwrap_used)]

use entresol::arrow::array::{Array, AsArray};
use entresol::arrow::datatypes::Int64Type;
use entresol::{Database, DomainChoice, Durability, ErrorKind, MemorySize, Options, Session, Value};
use std::fs;
use std::path::{Path, PathBuf};

fn options() -> Options {
    Options::default().domain(DomainChoice::Journal).worker_threads(2)
}

fn count(session: &mut Session, table: &str) -> i64 {
    let batches = session.query(&format!("SELECT count(*) FROM {table}")).unwrap();
    batches[0].column(0).as_primitive::<Int64Type>().value(0)
}

fn filled(dir: &Path) -> Database {
    let database = Database::open(dir, options()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR); INSERT INTO t VALUES (1, 'a'), (2, NULL)")
        .unwrap();
    database
}

fn pool_file(dir: &Path) -> PathBuf {
    dir.join("pool.entresol")
}

#[test]
fn committed_rows_are_there_after_closing() {
    let dir = tempfile::tempdir().unwrap();
    let database = filled(dir.path());
    database.close().unwrap();
    database.close().unwrap();
    drop(database);
    let database = Database::open(dir.path(), options()).unwrap();
    assert!(database.stats().was_clean);
    assert_eq!(count(&mut database.session().unwrap(), "t"), 2);
    let table = database.catalog().table("t").unwrap();
    let row = table.get(&database.begin().unwrap(), &[Value::Int(1)]).unwrap().unwrap();
    assert_eq!(row[1], Value::from("a"));
}

#[test]
fn dropping_without_closing_is_a_crash_that_loses_nothing_durable() {
    let dir = tempfile::tempdir().unwrap();
    let database = filled(dir.path());
    let mut session = database.session().unwrap();
    session.execute("BEGIN; INSERT INTO t VALUES (3, 'uncommitted')").unwrap();
    drop(session);
    drop(database);
    let database = Database::open(dir.path(), options()).unwrap();
    assert!(!database.stats().was_clean);
    assert_eq!(count(&mut database.session().unwrap(), "t"), 2);
}

#[test]
fn a_second_open_is_busy_and_names_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    let _database = filled(dir.path());
    let error = Database::open(dir.path(), options()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert!(error.message().contains(dir.path().to_str().unwrap()), "{error}");
}

#[test]
fn a_session_keeps_the_database_open() {
    let dir = tempfile::tempdir().unwrap();
    let database = filled(dir.path());
    let mut session = database.session().unwrap();
    drop(database);
    assert_eq!(Database::open(dir.path(), options()).unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(count(&mut session, "t"), 2);
    drop(session);
    Database::open(dir.path(), options()).unwrap();
}

#[test]
fn a_missing_database_is_not_made_if_it_must_exist() {
    let dir = tempfile::tempdir().unwrap();
    let error = Database::open(dir.path(), options().create_if_missing(false)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.message().contains(dir.path().to_str().unwrap()), "{error}");
}

#[test]
fn a_damaged_header_is_corrupt_and_names_the_file() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path()).close().unwrap();
    let path = pool_file(dir.path());
    let mut bytes = fs::read(&path).unwrap();
    bytes[0] ^= 0xFF;
    fs::write(&path, &bytes).unwrap();
    let error = Database::open(dir.path(), options()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.message().contains(path.to_str().unwrap()), "{error}");
}

#[test]
fn a_truncated_pool_file_is_corrupt() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path()).close().unwrap();
    let path = pool_file(dir.path());
    for bytes in [fs::metadata(&path).unwrap().len() / 2, 5000, 10] {
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(bytes).unwrap();
        let error = Database::open(dir.path(), options()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.message().contains(path.to_str().unwrap()), "{error}");
    }
}

#[test]
fn a_newer_format_is_unsupported_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path()).close().unwrap();
    let path = pool_file(dir.path());
    let mut bytes = fs::read(&path).unwrap();
    // The version is the second word of the header.
    bytes[8..12].copy_from_slice(&77u32.to_le_bytes());
    fs::write(&path, &bytes).unwrap();
    let error = Database::open(dir.path(), options()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.message().contains("77") && error.message().contains(path.to_str().unwrap()), "{error}");
}

#[test]
fn after_closing_commits_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let database = filled(dir.path());
    let mut session = database.session().unwrap();
    database.close().unwrap();
    let error = session.execute("INSERT INTO t VALUES (9, 'late')").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    let error = session.execute("CREATE TABLE late (id INT)").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
}

#[test]
fn errors_have_the_kind_that_says_what_to_do() {
    let database = Database::volatile(Options::default().worker_threads(1)).unwrap();
    let (mut a, mut b) = (database.session().unwrap(), database.session().unwrap());
    a.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT); INSERT INTO t VALUES (1, 1)").unwrap();
    let mut kind = |sql: &str| a.execute(sql).unwrap_err().kind();
    assert_eq!(kind("SELEC"), ErrorKind::Invalid);
    assert_eq!(kind("SELECT * FROM nothing"), ErrorKind::NotFound);
    assert_eq!(kind("INSERT INTO nothing VALUES (1)"), ErrorKind::NotFound);
    assert_eq!(kind("INSERT INTO t VALUES (1, 1)"), ErrorKind::Invalid);
    assert_eq!(kind("CREATE TRIGGER i AFTER INSERT ON t EXECUTE FUNCTION f()"), ErrorKind::Unsupported);
    a.execute("BEGIN; UPDATE t SET v = 2").unwrap();
    b.execute("UPDATE t SET v = 3").unwrap();
    assert_eq!(a.execute("COMMIT").unwrap_err().kind(), ErrorKind::Conflict);
}

#[test]
fn queries_that_need_too_much_memory_fail_and_say_so() {
    let options = Options::default().worker_threads(1).query_memory_bytes_max(1 << 20);
    let database = Database::volatile(options).unwrap();
    let mut session = database.session().unwrap();
    let sql = "SELECT count(*) FROM generate_series(1, 500000) a JOIN generate_series(1, 500000) b ON a.value = b.value";
    let error = session.query(sql).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::MemoryLimit, "{error}");
    assert_eq!(session.query("SELECT 1").unwrap()[0].num_rows(), 1);
}

#[test]
fn a_pattern_has_the_rows_of_its_open_match_in_memory() {
    let options = Options::default().worker_threads(1).query_memory_bytes_max(32 << 20);
    let database = Database::volatile(options).unwrap();
    let mut session = database.session().unwrap();
    let mut matches = |pattern: &str| {
        session.query(&format!(
            "SELECT count(*) FROM (SELECT value AS id FROM generate_series(1, 400000)) MATCH_RECOGNIZE (ORDER BY id MEASURES count(*) AS n PATTERN ({pattern}))"
        ))
    };
    let found = matches("a{1,100}").unwrap();
    assert_eq!(found[0].column(0).as_primitive::<Int64Type>().value(0), 4000);
    let error = matches("a+").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::MemoryLimit, "{error}");
    assert!(error.to_string().contains("MatchRecognizeExec"), "{error}");
}

#[test]
fn the_options_reach_the_sessions() {
    let database = Database::volatile(Options::default().durability(Durability::None)).unwrap();
    assert_eq!(database.session().unwrap().durability(), Durability::None);
    assert_eq!(database.stats().tables, 0);
    database.checkpoint().unwrap();
}

#[tokio::test]
async fn both_kinds_of_sessions_work_in_async_code() {
    let database = Database::volatile(Options::default().worker_threads(1)).unwrap();
    let mut session = database.async_session().unwrap();
    session.execute("CREATE TABLE t (id INT PRIMARY KEY); INSERT INTO t VALUES (1)").await.unwrap();
    assert_eq!(session.query("SELECT id FROM t").await.unwrap()[0].num_rows(), 1);
    assert_eq!(count(&mut database.session().unwrap(), "t"), 1);
}

#[test]
fn a_transaction_beyond_the_memory_budget_fails_and_names_the_consumers() {
    let too_small =
        Database::volatile(Options::default().memory_max(MemorySize::Bytes(1 << 20))).unwrap_err();
    assert_eq!(too_small.kind(), ErrorKind::Invalid);
    assert!(too_small.to_string().contains("at least 64MiB"), "{too_small}");

    let dir = tempfile::tempdir().unwrap();
    let options = Options::default().memory_max(MemorySize::Bytes(64 << 20)).durability(Durability::None);
    let db = Database::open(dir.path(), options).unwrap();
    let mut session = db.session().unwrap();
    session.execute("CREATE TABLE t (id INT PRIMARY KEY, note VARCHAR)").unwrap();
    let insert = |from: u32, to: u32| {
        format!(
            "INSERT INTO t SELECT value, 'a note of some length for row ' || value FROM generate_series({from}, {to})"
        )
    };
    session.execute("BEGIN").unwrap();
    session.execute(&insert(1, 10_000)).unwrap();
    let held = write_set_bytes(&db);
    let shown = session
        .query(
            "SELECT used_bytes FROM entresol.memory WHERE consumer = 'write sets' AND max_bytes = 67108864",
        )
        .unwrap();
    assert_eq!(shown[0].column(0).as_primitive::<Int64Type>().value(0).cast_unsigned(), held);
    assert!(held > 1 << 20, "10,000 rows count as {held} bytes");
    let error = session.execute(&insert(10_001, 1_000_000)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::MemoryLimit, "{error}");
    assert!(
        error.to_string().contains("write sets") && error.to_string().contains("memory_max = 64MiB"),
        "{error}"
    );
    session.execute("ROLLBACK").unwrap();
    assert_eq!(write_set_bytes(&db), 0);
    session.execute(&insert(1, 1_000)).unwrap();
    assert_eq!(write_set_bytes(&db), 0, "the statement has committed");
    drop(session);
    db.close().unwrap();
}

/// Bytes of the budget that transactions have reserved for what they wrote.
fn write_set_bytes(db: &Database) -> u64 {
    let usage = db.memory_usage();
    let line = usage.consumers.iter().find(|line| line.consumer.name() == "write sets");
    line.unwrap().used_bytes
}

#[test]
fn tables_in_three_tiers_change_together_and_are_back_as_their_placement_says() {
    let dir = tempfile::tempdir().unwrap();
    let options =
        || Options::default().domain(DomainChoice::DaxEmulated).disk_directory(dir.path().join("disk"));
    let main = dir.path().join("main");
    for run in 0..3 {
        let db = Database::open(&main, options()).unwrap();
        let mut session = db.session().unwrap();
        if run == 0 {
            for tier in ["pmem", "disk", "dram"] {
                let sql = format!(
                    "CREATE TABLE {tier} (id INT PRIMARY KEY, v TEXT UNIQUE) WITH (placement = '{tier}')"
                );
                session.execute(&sql).unwrap();
            }
        }
        let counts = ["pmem", "disk", "dram"].map(|table| count(&mut session, table));
        assert_eq!(counts, [run * 100, run * 100, 0], "run {run}");
        let wrong = session.query("SELECT name FROM entresol.tables WHERE name <> placement").unwrap();
        assert!(wrong.iter().all(|batch| batch.num_rows() == 0));
        session.execute("BEGIN").unwrap();
        for table in ["pmem", "disk", "dram"] {
            let sql = format!(
                "INSERT INTO {table} SELECT {run} * 100 + g, 'v' || {run} || '-' || g FROM generate_series(1, 100) t(g)"
            );
            session.execute(&sql).unwrap();
        }
        session.execute("COMMIT").unwrap();
        assert_eq!(db.check(|_| ()).unwrap().problems, []);
        drop(session);
        if run != 1 {
            db.close().unwrap();
        }
    }
    let without = Options::default().domain(DomainChoice::DaxEmulated);
    assert!(Database::open(&main, without).unwrap_err().to_string().contains("placed on disk"));
    let beside = Options::default().domain(DomainChoice::Journal).disk_directory(dir.path().join("other"));
    let refused = Database::open(dir.path().join("journal"), beside).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    assert!(
        refused.to_string().contains("domain journal") && !dir.path().join("other").exists(),
        "{refused}"
    );
}

/// A row of `entresol.placement`: pool, piece, writes at once, calibrated.
type PlacementRow = (String, Option<i64>, Option<i64>, Option<bool>);

fn placement(database: &Database) -> Vec<PlacementRow> {
    let sql = "SELECT pool, piece_bytes, writes_at_once, calibrated FROM entresol.placement ORDER BY pool";
    let batches = database.session().unwrap().query(sql).unwrap();
    let batch = &batches[0];
    let number = |column: usize, row| {
        let column = batch.column(column).as_primitive::<Int64Type>();
        column.is_valid(row).then(|| column.value(row))
    };
    let calibrated = batch.column(3).as_boolean();
    let rows = 0..batch.num_rows();
    rows.map(|row| {
        let pool = batch.column(0).as_string::<i32>().value(row).to_owned();
        (pool, number(1, row), number(2, row), calibrated.is_valid(row).then(|| calibrated.value(row)))
    })
    .collect()
}

/// Profile of a disk.
fn nvme() -> PathBuf {
    PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("../memory/profiles/nvme.toml")
}

#[test]
fn checkpoints_of_a_database_write_as_the_profile_of_its_disk_says() {
    let dir = tempfile::tempdir().unwrap();
    let database = Database::open(dir.path().join("without"), options()).unwrap();
    let [(_, piece_bytes, at_once, calibrated)] = &placement(&database)[..] else { panic!("one pool") };
    let (piece_bytes, in_flight) = (piece_bytes.unwrap(), at_once.unwrap());
    assert!([(256 << 10, 64), (1 << 20, 1)].contains(&(piece_bytes, in_flight)), "{piece_bytes} {in_flight}");
    assert_eq!(*calibrated, Some(false));

    let main = dir.path().join("with");
    let database = Database::open(&main, options().disk_profile(nvme())).unwrap();
    // This drive's bandwidth falls neither with large pieces nor with many writers.
    assert_eq!(placement(&database), [("main".to_owned(), Some(1 << 20), *at_once, Some(true))]);
    let mut session = database.session().unwrap();
    let sql = "CREATE TABLE t (id INT PRIMARY KEY, v TEXT);
               INSERT INTO t SELECT g, repeat('x', 200) FROM generate_series(1, 20000) s(g)";
    session.execute(sql).unwrap();
    database.checkpoint().unwrap();
    drop((session, database));
    let database = Database::open(&main, options()).unwrap();
    assert_eq!(count(&mut database.session().unwrap(), "t"), 20_000);
    assert_eq!(database.check(|_| ()).unwrap().problems, []);
    drop(database);

    // Beside persistent memory it is the profile of the disk there.
    let on_dax = || Options::default().domain(DomainChoice::DaxEmulated).disk_profile(nvme());
    let (pmem, disk) = (dir.path().join("pmem"), dir.path().join("disk"));
    let database = Database::open(&pmem, on_dax().disk_directory(disk)).unwrap();
    let expected = [("disk", Some(1 << 20), *at_once, Some(true)), ("main", None, None, None)];
    assert_eq!(placement(&database), expected.map(|(pool, a, b, c)| (pool.to_owned(), a, b, c)));
    drop(database);
    let alone = Database::open(dir.path().join("alone"), on_dax()).unwrap_err();
    assert_eq!(alone.kind(), ErrorKind::Invalid);
    assert!(alone.to_string().contains("nvme.toml is for databases with a journal"), "{alone}");
}

#[test]
fn an_invalid_disk_profile_is_refused_with_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |file: &Path, kind: ErrorKind| {
        let error = Database::open(dir.path().join("db"), options().disk_profile(file)).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(!dir.path().join("db").exists(), "{error}");
        let (text, name) = (error.to_string(), file.display().to_string());
        assert!(text.contains(&name), "{text}");
        text
    };
    assert!(refused(&dir.path().join("none.toml"), ErrorKind::Io).contains("read profile"));
    let file = dir.path().join("profile.toml");
    let text = fs::read_to_string(nvme()).unwrap();
    fs::write(&file, text.replacen("block_bytes = 4096", "block_bytes = 4095", 1)).unwrap();
    assert!(refused(&file, ErrorKind::Invalid).contains("medium.block_bytes is 4095"));
    fs::write(&file, "SELECT 1").unwrap();
    refused(&file, ErrorKind::Invalid);
    let memory = nvme().with_file_name("dram.toml");
    let said = refused(&memory, ErrorKind::Invalid);
    assert!(said.contains("transfer_bytes is 64") && said.contains("that of a disk"), "{said}");
    let in_memory = Database::volatile(Options::default().disk_profile(nvme())).unwrap_err();
    assert!(in_memory.to_string().contains("domain volatile"), "{in_memory}");
}
