//! The README's example in SQL runs as it stands (the one in Rust is a doc test of this crate).
#![allow(clippy::unwrap_used)]

mod support;

use support::succeed;

#[test]
fn the_sql_example_runs() {
    let readme = include_str!("../../../README.md");
    let sql = readme.split("```sql\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    let output = succeed(&["shell", db.to_str().unwrap(), "--format", "csv", "-c", sql]);
    assert_eq!(output, "place,readings,mean_kw\ncellar,1,2.25\nroof,1,-0.75\nreadings\n1\n");
}
