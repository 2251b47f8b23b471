//! Running: results compared with an independent evaluation, options, errors.

use crate::reference::Tables;
use crate::support::{loaded, ran, small_files, text};
use entresol_ssb::run::{QUERIES, Verdict};
use std::fs;

#[test]
fn results_are_those_of_an_independent_evaluation() {
    let dir = tempfile::tempdir().unwrap();
    let (db, answers, saved) = (dir.path().join("db"), dir.path().join("answers"), dir.path().join("saved"));
    fs::create_dir(&answers).unwrap();
    loaded(small_files(), &db, &[]).unwrap();
    let tables = Tables::of_files(small_files());
    tables.write_answers(&answers);
    // Most queries have rows at this scale factor.
    assert!(QUERIES.iter().filter(|query| tables.answer(query.name).len() > 5).count() >= 6);
    assert_ne!(tables.answer("1.1")[0][0], "");

    let report = ran(&db, &["--answers", text(&answers), "--save", text(&saved), "--repeat", "1"]).unwrap();
    assert_eq!(report.faults(), [""; 0]);
    assert_eq!((report.queries.len(), report.lineorder_rows), (13, Some(tables.lines.len() as u64)));
    for query in &report.queries {
        assert_eq!(query.verdict, Verdict::Same, "{}", query.query);
        assert_eq!(query.rows, tables.answer(query.query).len(), "{}", query.query);
        assert_eq!(query.repeated_ms.len(), 1);
        assert!(query.best_ms() > 0.0 && query.best_ms() <= query.first_ms);
    }
    // Within little memory, by one thread, with what was saved as the answers.
    let arguments = ["--answers", text(&saved), "--memory", "64MiB", "--threads", "1", "--repeat", "0"];
    let again = ran(&db, &arguments).unwrap();
    assert_eq!((again.faults(), again.memory_max_bytes, again.threads), (Vec::new(), 64 << 20, 1));
    assert!(again.queries.iter().all(|query| query.verdict == Verdict::Same && query.median_ms().is_none()));

    // A value, an order, and a number of rows that are others.
    let path = answers.join("q2.1.csv");
    let lines: Vec<String> = fs::read_to_string(&path).unwrap().lines().map(str::to_owned).collect();
    assert!(lines.len() > 8, "{lines:?}");
    let run_with = |lines: Vec<String>| {
        fs::write(&path, lines.join("\n") + "\n").unwrap();
        let arguments = ["--answers", text(&answers), "--queries", "1.1,2.1", "--repeat", "0"];
        let report = ran(&db, &arguments).unwrap();
        assert_eq!(report.queries[0].verdict, Verdict::Same);
        report.faults().join("; ")
    };
    let mut changed = lines.clone();
    changed[3] = format!("1{}", changed[3]);
    let fault = run_with(changed);
    assert!(fault.starts_with("query 2.1 is DIFFERENT: row 3 is ("), "{fault}");
    let mut swapped = lines.clone();
    swapped.swap(5, 6);
    assert!(run_with(swapped).starts_with("query 2.1 is DIFFERENT: row 5 is ("));
    let fault = run_with(lines[..lines.len() - 1].to_vec());
    assert!(
        fault.contains(&format!("{} rows, not {}: the first further one", lines.len() - 1, lines.len() - 2)),
        "{fault}"
    );
    assert_eq!(run_with(lines), "");
    fs::remove_file(&path).unwrap();
    let error = ran(&db, &["--answers", text(&answers), "--repeat", "0"]).unwrap_err().to_string();
    assert!(error.contains("cannot read") && error.contains("q2.1.csv"), "{error}");
}

#[test]
fn databases_without_the_tables_are_refused_with_advice() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing");
    let error = ran(&missing, &[]).unwrap_err().to_string();
    assert!(error.contains(text(&missing)) && !missing.exists(), "{error}");
    let db = dir.path().join("db");
    let database = entresol::Database::open(&db, entresol::Options::default()).unwrap();
    database.session().unwrap().execute("CREATE TABLE date (d_datekey INT)").unwrap();
    database.close().unwrap();
    drop(database);
    let error = ran(&db, &[]).unwrap_err().to_string();
    assert!(error.contains("has no customer, supplier, part, lineorder: `entresol ssb load"), "{error}");
}

#[test]
fn a_query_that_fails_is_reported_and_the_others_run() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    let database = entresol::Database::open(&db, entresol::Options::default()).unwrap();
    let tables = "CREATE TABLE customer (c INT); CREATE TABLE supplier (s INT); CREATE TABLE part (p INT);
        CREATE TABLE date (d_datekey INT, d_year INT);
        CREATE TABLE lineorder (lo_orderdate INT, lo_extendedprice INT, lo_discount INT, lo_quantity INT);
        INSERT INTO date VALUES (19930101, 1993); INSERT INTO lineorder VALUES (19930101, 100, 2, 1)";
    database.session().unwrap().execute(tables).unwrap();
    database.close().unwrap();
    drop(database);
    let report = ran(&db, &["--queries", "1.2,1.1", "--repeat", "2"]).unwrap();
    assert!(
        matches!(&report.queries[0].verdict, Verdict::Failed(message) if message.contains("d_yearmonthnum"))
    );
    assert_eq!((&report.queries[1].verdict, report.queries[1].rows), (&Verdict::NotCompared, 1));
    assert_eq!(report.faults().len(), 1);
}
