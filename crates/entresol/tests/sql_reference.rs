//! The reference of SQL, docs/sql.md: all of its examples run, in their order, in one session.

#![allow(clippy::unwrap_used)]

use entresol::{Database, Options};

#[test]
fn the_examples_of_the_reference_run() {
    let text = include_str!("../../../docs/sql.md");
    let examples: Vec<&str> =
        text.split("```sql\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(examples.len(), 7);
    let directory = tempfile::tempdir().unwrap();
    let database = Database::open(directory.path().join("database"), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    let backup = directory.path().join("backup");
    for example in examples {
        let example = example.replace("BACKUP TO 'backup'", &format!("BACKUP TO '{}'", backup.display()));
        let example = example.replace("'days.", &format!("'{}/days.", directory.path().display()));
        for statement in example.split(";\n") {
            session.execute(statement).unwrap_or_else(|error| panic!("{statement}: {error}"));
        }
    }
    let kwh = session.query("SELECT count(*) FROM kwh_of_meter WHERE n = 96").unwrap();
    assert_eq!(kwh[0].num_rows(), 1);
    drop(session);
    database.close().unwrap();
    assert!(backup.exists(), "the backup is there");
}
