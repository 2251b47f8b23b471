//! Loads: COPY of TPC-H's `lineitem` from CSV, by one session and in one transaction, beside DuckDB's load of
//! the same file; batches in Rust, loaded into an empty table and appended to one with rows; INSERT ... SELECT.
//!
//! The rows are drawn here, with the columns and about the value lengths of TPC-H's generator. All figures
//! include the commit, which waits for the disk.

use crate::asked::AskedFigure;
use crate::measure::{Random, median};
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol::arrow::array::{Float64Array, Int32Array, Int64Array, RecordBatch, StringArray};
use entresol::arrow::datatypes::{DataType, Field, Schema};
use entresol::arrow::util::display::array_value_to_string;
use entresol::{Database, Durability, Options, Session};
use serde_json::json;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

const LINEITEM: &str = "CREATE TABLE lineitem (l_orderkey BIGINT, l_partkey BIGINT, l_suppkey BIGINT, \
     l_linenumber INT, l_quantity DECIMAL(15,2), l_extendedprice DECIMAL(15,2), l_discount DECIMAL(15,2), \
     l_tax DECIMAL(15,2), l_returnflag CHAR(1), l_linestatus CHAR(1), l_shipdate DATE, l_commitdate DATE, \
     l_receiptdate DATE, l_shipinstruct CHAR(25), l_shipmode CHAR(10), l_comment VARCHAR(44)";
const KEY: &str = "PRIMARY KEY (l_orderkey, l_linenumber)";

const READINGS: &str = "(id BIGINT PRIMARY KEY, meter INT, zone INT, kind INT, \
     at BIGINT, until BIGINT, power DOUBLE, energy DOUBLE, state INT, name VARCHAR)";

/// Rows of a batch, and batches of a transaction.
const BATCH_ROWS: u64 = 8192;
const BATCHES: u64 = 12;

/// Runs the experiment.
pub(super) fn run(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let (rows, times): (u64, _) = if options.quick { (5_000, 1) } else { (600_000, 3) };
    let dir = options.database_dir()?;
    let csv = dir.path().join("lineitem.csv");
    fs::write(&csv, lines(rows, options.seed)).map_err(|error| failed("write the rows", error))?;
    let mut copies = Vec::new();
    let mut duckdb = Vec::new();
    for number in 0..times {
        copies.push(copy(&dir.path().join(format!("copied-{number}")), &csv, rows, report)?);
        duckdb.extend(duckdb_load(&csv, rows)?);
    }
    let copied = median(&copies);
    report.row(json!({ "load": "COPY of lineitem", "rows": rows, "million_rows_per_s": copied }));
    report.asked(AskedFigure::at_least("COPY of lineitem", copied, 0.8).unit("M rows/s"));
    if duckdb.is_empty() {
        report.row(json!({ "peers": "not measured: `make drivers` installs DuckDB" }));
    } else {
        let theirs = median(&duckdb);
        report.row(json!({ "beside": "DuckDB's load of the CSV", "million_rows_per_s": theirs }));
        report.asked(AskedFigure::at_least("COPY beside DuckDB", copied / theirs, 0.5));
    }
    append_and_select(&dir.path().join("appended"), if options.quick { 20_000 } else { 2_000_000 }, report)
}

fn failed(action: &str, error: std::io::Error) -> Error {
    Error::Io { action: action.to_owned(), error }
}

/// Rows of `lineitem` as CSV.
fn lines(rows: u64, seed: u64) -> String {
    const WORDS: [&str; 8] =
        ["carefully", "pending", "deposits", "sleep", "furiously", "ironic", "requests", "above"];
    const SHIPPING: [&str; 4] = ["DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN"];
    const MODES: [&str; 7] = ["REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB"];
    let mut random = Random::new(seed);
    let mut text = String::new();
    let (mut order, mut line) = (1, 0);
    for _ in 0..rows {
        line += 1;
        if line > 1 + random.below(7) {
            (order, line) = (order + 1 + 24 * u64::from(order % 8 == 0), 1);
        }
        let quantity = 1 + random.below(50);
        let price = 90_000 + random.below(11_000);
        let (day, month) = (1 + random.below(28), 1 + random.below(12));
        let year = 1992 + random.below(7);
        let comment: Vec<&str> = (0..2 + random.below(3)).map(|_| WORDS[random.below(8) as usize]).collect();
        let cents = quantity * price;
        // Formatting into a string does not fail.
        let _ = writeln!(
            text,
            "{order},{},{},{line},{quantity},{}.{:02},0.0{},0.0{},{},{},{year}-{month:02}-{day:02},\
             {year}-{month:02}-{:02},{year}-{month:02}-{:02},{},{},{}",
            1 + random.below(200_000),
            1 + random.below(10_000),
            cents / 100,
            cents % 100,
            random.below(10),
            random.below(9),
            ["R", "A", "N"][random.below(3) as usize],
            ["O", "F"][random.below(2) as usize],
            1 + random.below(28),
            1 + random.below(28),
            SHIPPING[random.below(4) as usize],
            MODES[random.below(7) as usize],
            comment.join(" "),
        );
    }
    text
}

fn number(session: &mut Session, sql: &str) -> Result<String, Error> {
    let batches = session.query(sql)?;
    let shown = batches.first().map(|batch| array_value_to_string(batch.column(0), 0));
    shown.and_then(|shown| shown.ok()).ok_or_else(|| Error::Invalid(format!("no result of {sql}")))
}

/// Million rows a second of a COPY into a new table.
fn copy(dir: &Path, csv: &Path, rows: u64, report: &mut Report) -> Result<f64, Error> {
    let database = Database::open(dir, Options::default())?;
    let mut session = database.session()?;
    session.execute(&format!("{LINEITEM}, {KEY})"))?;
    let mut file = fs::File::open(csv).map_err(|error| failed("open the rows", error))?;
    let begin = Instant::now();
    let copied = session.copy_in("COPY lineitem FROM STDIN CSV", &mut file)?;
    let s = begin.elapsed().as_secs_f64();
    let found = number(&mut session, "SELECT count(*) FROM lineitem WHERE l_quantity BETWEEN 1 AND 50")?;
    report.check("COPY: all rows are there", copied == rows && found == rows.to_string());
    drop(session);
    database.close()?;
    fs::remove_dir_all(dir).map_err(|error| failed("remove the database", error))?;
    Ok(rows as f64 / s / 1e6)
}

/// Million rows a second of DuckDB's load of the same rows into a table of a database file; none where it is
/// not installed.
fn duckdb_load(csv: &Path, rows: u64) -> Result<Option<f64>, Error> {
    const PROGRAM: &str = "
import duckdb, sys, time
db = duckdb.connect(sys.argv[1])
db.execute('SET threads = 1')
db.execute(sys.argv[3])
begin = time.monotonic()
db.execute(f\"COPY lineitem FROM '{sys.argv[2]}' (FORMAT csv, HEADER false)\")
db.execute('CHECKPOINT')
print(time.monotonic() - begin)
print(db.execute('SELECT count(*) FROM lineitem').fetchone()[0])
";
    let Some(python) = python() else { return Ok(None) };
    let file = csv.with_file_name("duckdb.db");
    let output = Command::new(python)
        .args(["-c", PROGRAM])
        .args([file.as_os_str(), csv.as_os_str()])
        .arg(format!("{LINEITEM})"))
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| failed("run DuckDB", error))?;
    fs::remove_file(&file).map_err(|error| failed("remove DuckDB's file", error))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut numbers = text.split_whitespace().filter_map(|number| number.parse::<f64>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(s), Some(found)) if found == rows as f64 => Ok(Some(rows as f64 / s / 1e6)),
        _ => Err(Error::Invalid(format!("DuckDB ended with {}: {text}", output.status))),
    }
}

/// Python interpreter that `make drivers` installs, if it has DuckDB.
fn python() -> Option<PathBuf> {
    let given = std::env::var_os("ENTRESOL_DRIVERS").map(PathBuf::from);
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cache")));
    let python = given.or_else(|| Some(cache?.join("entresol/drivers")))?.join("venv/bin/python");
    let found = Command::new(&python).args(["-c", "import duckdb"]).stderr(Stdio::null()).status();
    found.is_ok_and(|status| status.success()).then_some(python)
}

/// Batches of ten columns appended in Rust, and an INSERT ... SELECT of the same rows.
fn append_and_select(dir: &Path, rows: u64, report: &mut Report) -> Result<(), Error> {
    let database = Database::open(dir, Options::default())?;
    let mut session = database.session()?;
    session.execute(&format!("CREATE TABLE readings {READINGS}"))?;
    let table = database.catalog().table("readings")?;
    let batches: Vec<RecordBatch> =
        (0..rows).step_by(BATCH_ROWS as usize).map(|at| batch(at, rows)).collect();
    load(&database, &mut session, &batches, rows, report)?;
    let begin = Instant::now();
    for batches in batches.chunks(BATCHES as usize) {
        let tx = database.begin()?;
        batches.iter().try_for_each(|batch| table.append(&tx, batch))?;
        tx.commit(Durability::Sync)?;
    }
    let rate = rows as f64 / begin.elapsed().as_secs_f64() / 1e6;
    report.row(json!({ "load": "batches appended", "rows": rows, "million_rows_per_s": rate }));
    report.asked(AskedFigure::at_least("batches appended", rate, 4.0).unit("M rows/s"));
    let sum = number(&mut session, "SELECT sum(at) FROM readings")?;
    report.check("append: all rows are there", sum == (rows * (rows - 1) / 2).to_string());
    session.execute("CREATE TABLE copied (id BIGINT PRIMARY KEY, at BIGINT, power DOUBLE, name VARCHAR)")?;
    let begin = Instant::now();
    session.execute("INSERT INTO copied SELECT id, at, power, name FROM readings")?;
    let rate = rows as f64 / begin.elapsed().as_secs_f64() / 1e6;
    report.row(json!({ "load": "INSERT ... SELECT", "rows": rows, "million_rows_per_s": rate }));
    let found = number(&mut session, "SELECT count(*) FROM copied")?;
    report.check("INSERT ... SELECT: all rows are there", found == rows.to_string());
    drop(session);
    Ok(database.close()?)
}

/// Batches of ten columns loaded into an empty table in Rust, by one transaction.
fn load(
    database: &Database,
    session: &mut Session,
    batches: &[RecordBatch],
    rows: u64,
    report: &mut Report,
) -> Result<(), Error> {
    session.execute(&format!("CREATE TABLE loaded {READINGS}"))?;
    let table = database.catalog().table("loaded")?;
    let begin = Instant::now();
    let tx = database.begin()?;
    report.check("load: the table is empty", table.begin_load(&tx)?);
    batches.iter().try_for_each(|batch| table.load(&tx, batch))?;
    tx.commit(Durability::Sync)?;
    let rate = rows as f64 / begin.elapsed().as_secs_f64() / 1e6;
    report.row(json!({ "load": "batches loaded", "rows": rows, "million_rows_per_s": rate }));
    report.asked(AskedFigure::at_least("batches loaded", rate, 4.0).unit("M rows/s"));
    let sum = number(session, "SELECT sum(at) FROM loaded")?;
    report.check("load: all rows are there", sum == (rows * (rows - 1) / 2).to_string());
    session.execute("DROP TABLE loaded")?;
    Ok(())
}

fn batch(first: u64, rows: u64) -> RecordBatch {
    let ids = || (first..(first + BATCH_ROWS).min(rows)).map(|id| id as i64);
    let int = |of: fn(i64) -> i64| Arc::new(ids().map(|id| of(id) as i32).collect::<Int32Array>()) as _;
    let bigint = |of: fn(i64) -> i64| Arc::new(ids().map(of).collect::<Int64Array>()) as _;
    let double = |of: fn(f64) -> f64| Arc::new(ids().map(|id| of(id as f64)).collect::<Float64Array>()) as _;
    let names = ids().map(|id| Some(format!("meter {}", id % 5000)));
    let types = [
        ("id", DataType::Int64),
        ("meter", DataType::Int32),
        ("zone", DataType::Int32),
        ("kind", DataType::Int32),
        ("at", DataType::Int64),
        ("until", DataType::Int64),
        ("power", DataType::Float64),
        ("energy", DataType::Float64),
        ("state", DataType::Int32),
        ("name", DataType::Utf8),
    ];
    let schema = Schema::new(types.map(|(name, data_type)| Field::new(name, data_type, true)).to_vec());
    let columns = vec![
        bigint(|id| id),
        int(|id| id % 5000),
        int(|id| id % 97),
        int(|id| id % 7),
        bigint(|id| id),
        bigint(|id| id + 60),
        double(|id| id / 2.0),
        double(|id| id / 3.0),
        int(|id| id % 3),
        Arc::new(names.collect::<StringArray>()) as _,
    ];
    RecordBatch::try_new(Arc::new(schema), columns).expect("columns have the types of the schema")
}
