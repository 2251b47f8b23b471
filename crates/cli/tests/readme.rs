//! The README's examples in SQL run as they stand (the one in Rust is a doc test of this crate).
#![allow(clippy::unwrap_used)]

mod support;

use support::succeed;

/// Output of an example, on a new database.
fn run(number: usize) -> String {
    let readme = include_str!("../../../README.md");
    let sql = readme.split("```sql\n").nth(number).and_then(|rest| rest.split("```").next()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    succeed(&["shell", db.to_str().unwrap(), "--format", "csv", "-c", sql])
}

#[test]
fn the_sql_example_runs() {
    let output = run(1);
    assert_eq!(output, "place,readings,mean_kw\ncellar,1,2.25\nroof,1,-0.75\nreadings\n1\n");
}

#[test]
fn the_time_travel_example_runs() {
    assert_eq!(run(2), "cents\n29.90\n");
}

#[test]
fn the_streams_example_runs() {
    let output = run(3);
    assert!(output.contains("\nmetering,"), "{output}");
}
