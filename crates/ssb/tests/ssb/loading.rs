//! Loading: forms of files, errors, and what they leave.

use crate::support::{copied_files, file, loaded, ran, small_files, text};
use entresol::arrow::util::display::array_value_to_string;
use entresol::{Database, Options};
use entresol_ssb::{Error, TABLES};
use std::fs;
use std::path::Path;

/// First value of a query.
fn value(dir: &Path, sql: &str) -> String {
    let database = Database::open(dir, Options::default()).unwrap();
    let batches = database.session().unwrap().query(sql).unwrap();
    let value = array_value_to_string(batches[0].column(0), 0).unwrap();
    database.close().unwrap();
    value
}

/// Names of all tables of a database.
fn tables(dir: &Path) -> Vec<String> {
    let database = Database::open(dir, Options::default()).unwrap();
    let mut names: Vec<String> =
        database.catalog().tables().iter().map(|table| table.name().to_owned()).collect();
    names.sort();
    database.close().unwrap();
    names
}

/// Replaces a line of a table's file, counted from 1, by another.
fn change_line(files: &Path, table: &str, number: usize, change: impl Fn(&str) -> String) {
    let path = file(files, table);
    let text = fs::read_to_string(&path).unwrap();
    let changed: Vec<String> = text
        .lines()
        .enumerate()
        .map(|(at, line)| if at + 1 == number { change(line) } else { line.to_owned() })
        .collect();
    fs::write(path, changed.join("\n") + "\n").unwrap();
}

/// A line with another value of a column.
fn with_field(line: &str, column: usize, value: &str) -> String {
    let mut fields: Vec<&str> = line.split('|').collect();
    fields[column] = value;
    fields.join("|")
}

#[test]
fn all_rows_are_loaded_from_files_of_either_form() {
    let sums = "SELECT sum(lo_revenue) || ' ' || sum(length(lo_shipmode)) || ' ' || count(*) FROM lineorder";
    let dir = tempfile::tempdir().unwrap();
    let plain = dir.path().join("plain");
    let rows = loaded(small_files(), &plain, &[]).unwrap();
    assert_eq!(rows.iter().map(|table| table.table).collect::<Vec<_>>(), TABLES);
    assert_eq!(tables(&plain), ["customer", "date", "lineorder", "part", "supplier"]);
    for table in &rows {
        let count = fs::read_to_string(file(small_files(), table.table)).unwrap().lines().count() as u64;
        assert_eq!((table.table, table.rows), (table.table, count));
        assert_eq!(value(&plain, &format!("SELECT count(*) FROM {}", table.table)), count.to_string());
    }
    let address = fs::read_to_string(file(small_files(), "customer")).unwrap();
    let address = address.lines().nth(16).unwrap().split('|').nth(2).unwrap();
    assert_eq!(value(&plain, "SELECT c_address FROM customer WHERE c_custkey = 17"), address);

    // A separator at the end of lines, and lines as on Windows.
    let files = copied_files();
    for (table, end) in TABLES.into_iter().zip(["|\n", "\r\n", "|\r\n", "|\n", "|\n"]) {
        let path = file(files.path(), table);
        fs::write(&path, fs::read_to_string(&path).unwrap().replace('\n', end)).unwrap();
    }
    let separated = dir.path().join("separated");
    let again = loaded(files.path(), &separated, &["--memory", "256MiB"]).unwrap();
    assert_eq!(
        again.iter().map(|table| table.rows).collect::<Vec<_>>(),
        rows.iter().map(|table| table.rows).collect::<Vec<_>>()
    );
    assert_eq!(value(&separated, sums), value(&plain, sums));
    assert_eq!(value(&separated, "SELECT c_address FROM customer WHERE c_custkey = 17"), address);
}

#[test]
fn a_wrong_line_is_named_and_nothing_is_loaded() {
    type Damage = fn(&Path);
    let cases: [(Damage, &[&str]); 9] = [
        (
            |files| change_line(files, "lineorder", 50_001, |line| with_field(line, 8, "many")),
            &["lineorder.tbl, line 50001, column lo_quantity: 'many' is not a valid INT"],
        ),
        (
            |files| change_line(files, "lineorder", 7, |line| with_field(line, 9, "2147483648")),
            &["lineorder.tbl, line 7, column lo_extendedprice: '2147483648' is out of range for INT"],
        ),
        (
            |files| change_line(files, "lineorder", 7, |line| with_field(line, 0, "9223372036854775808")),
            &["line 7, column lo_orderkey: '9223372036854775808' is out of range for BIGINT"],
        ),
        (
            |files| change_line(files, "part", 12, |line| line.rsplit_once('|').unwrap().0.to_owned()),
            &["part.tbl, line 12: 8 fields, not 9", "ends with column p_size"],
        ),
        (
            |files| change_line(files, "date", 2557, |line| format!("{line}|more|")),
            &["date.tbl, line 2557: more than 17 fields: 'more' is behind the last"],
        ),
        (
            |files| change_line(files, "supplier", 3, |_| String::new()),
            &["supplier.tbl, line 3, column s_suppkey: '' is not a valid INT"],
        ),
        (
            |files| change_line(files, "customer", 200, |line| with_field(line, 0, "17")),
            &["customer.tbl, lines 1 to 300", "table \"customer\": key (17) already exists"],
        ),
        (
            // Within the last field, so that the line has all of them.
            |files| {
                let path = file(files, "lineorder");
                let bytes = fs::read(&path).unwrap();
                fs::write(path, &bytes[..bytes.len() - 2]).unwrap();
            },
            &["lineorder.tbl, line ", "it is truncated"],
        ),
        (
            |files| fs::write(file(files, "part"), vec![0x80; 100_000]).unwrap(),
            &["part.tbl, line 1: the line is longer than 65536 bytes"],
        ),
    ];
    let dir = tempfile::tempdir().unwrap();
    for (number, (damage, words)) in cases.iter().enumerate() {
        let (files, db) = (copied_files(), dir.path().join(format!("db{number}")));
        damage(files.path());
        let message = loaded(files.path(), &db, &[]).unwrap_err().to_string();
        assert!(words.iter().all(|word| message.contains(word)), "{number}: {message}");
        assert!(message.contains("nothing was loaded"), "{message}");
        assert_eq!(tables(&db), [""; 0], "{message}");
    }
}

#[test]
fn a_failed_load_leaves_the_tables_as_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let (db, answers) = (dir.path().join("db"), dir.path().join("answers"));
    loaded(small_files(), &db, &[]).unwrap();
    ran(&db, &["--queries", "2,3.1", "--repeat", "0", "--save", text(&answers)]).unwrap();

    let error = loaded(small_files(), &db, &[]).unwrap_err().to_string();
    assert!(error.contains("has tables named customer, supplier, part, date, lineorder: --force"), "{error}");
    let files = copied_files();
    change_line(files.path(), "lineorder", 59_000, |line| with_field(line, 5, "1992-01-01"));
    let error = loaded(files.path(), &db, &["--force"]).unwrap_err().to_string();
    assert!(error.contains("column lo_orderdate: '1992-01-01' is not a valid INT"), "{error}");
    let report = ran(&db, &["--queries", "2,3.1", "--repeat", "0", "--answers", text(&answers)]).unwrap();
    assert_eq!(report.faults(), [""; 0]);

    // A killed load leaves tables under other names; the next one drops them, and replaces the others.
    let database = Database::open(&db, Options::default()).unwrap();
    database.session().unwrap().execute("CREATE TABLE ssb_loading_part (id INT)").unwrap();
    database.close().unwrap();
    drop(database);
    let files = copied_files();
    change_line(files.path(), "date", 1, |line| with_field(line, 1, "New Year"));
    loaded(files.path(), &db, &["--force"]).unwrap();
    assert_eq!(tables(&db), ["customer", "date", "lineorder", "part", "supplier"]);
    assert_eq!(value(&db, "SELECT d_date FROM date WHERE d_datekey = 19920101"), "New Year");
    assert_eq!(value(&db, "SELECT count(*) FROM lineorder WHERE lo_linenumber = 1"), "15000");
}

#[test]
fn what_cannot_be_replaced_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    let database = Database::open(&db, Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session.execute("CREATE TABLE part (id INT); CREATE VIEW parts AS SELECT id FROM part").unwrap();
    drop(session);
    database.close().unwrap();
    drop(database);
    let error = loaded(small_files(), &db, &["--force"]).unwrap_err();
    assert!(matches!(error, Error::Load { .. }), "{error:?}");
    let message = error.to_string();
    assert!(message.contains("nothing was loaded"), "{message}");
    assert_eq!(tables(&db), ["part"]);
    assert!(message.contains("part") && message.contains("parts"), "{message}");
    let database = Database::open(&db, Options::default()).unwrap();
    database
        .session()
        .unwrap()
        .execute("DROP VIEW parts; DROP TABLE part; CREATE VIEW part AS SELECT 1")
        .unwrap();
    database.close().unwrap();
    drop(database);
    let message = loaded(small_files(), &db, &["--force"]).unwrap_err().to_string();
    assert!(message.contains("part in ") && message.contains("is not a table"), "{message}");
}

/// Runs statements on a database that no process has open.
fn execute(dir: &Path, sql: &str) {
    let database = Database::open(dir, Options::default()).unwrap();
    database.session().unwrap().execute(sql).unwrap();
    database.close().unwrap();
}

/// Tables as a kill while they take their names leaves them: some of the old ones renamed, some new ones there.
#[test]
fn a_killed_change_of_names_is_ended_by_the_next_load() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    let all = ["customer", "date", "lineorder", "part", "supplier"];
    loaded(small_files(), &db, &[]).unwrap();
    let renamed = TABLES.map(|table| format!("ALTER TABLE {table} RENAME TO ssb_replaced_{table};"));
    // Some old tables, no new one; all old tables, two new ones.
    for (old, new) in [(2, 0), (5, 2)] {
        let new = TABLES[..new].iter().map(|table| format!("CREATE TABLE {table} (other INT);"));
        execute(&db, &(renamed[..old].concat() + &new.collect::<String>()));
        assert!(ran(&db, &[]).unwrap_err().to_string().contains("has no "));
        let error = loaded(small_files(), &db, &[]).unwrap_err().to_string();
        assert!(error.contains("--force replaces them"), "{error}");
        assert_eq!(tables(&db), all);
        assert_eq!(value(&db, "SELECT count(c_city) FROM customer"), "300");
        assert_eq!(ran(&db, &["--queries", "4.1", "--repeat", "0"]).unwrap().faults(), [""; 0]);
    }
    // All new tables, and old ones that are left.
    execute(
        &db,
        "CREATE TABLE ssb_replaced_part (other INT); CREATE TABLE ssb_replaced_lineorder (other INT)",
    );
    assert!(loaded(small_files(), &db, &[]).is_err());
    assert_eq!(tables(&db), all);
    assert_eq!(value(&db, "SELECT count(p_brand1) FROM part"), "2000");
}

#[test]
fn files_that_are_not_there_are_named_before_anything_happens() {
    let (dir, files) = (tempfile::tempdir().unwrap(), copied_files());
    fs::remove_file(file(files.path(), "part")).unwrap();
    fs::remove_file(file(files.path(), "lineorder")).unwrap();
    let db = dir.path().join("db");
    let message = loaded(files.path(), &db, &[]).unwrap_err().to_string();
    assert!(message.contains("part.tbl") && message.contains("lineorder.tbl"), "{message}");
    assert!(!message.contains("date.tbl") && !db.exists(), "{message}");
}
