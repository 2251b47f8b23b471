//! A sample of another generator, with the answers of another database. It is not part of the project: without it, the
//! test prints a notice and passes.

use crate::reference::Tables;
use crate::support::{loaded, ran, text};
use entresol_ssb::run::{QUERIES, Verdict};
use std::path::PathBuf;

#[test]
fn the_sample_of_another_generator_has_its_answers() {
    let beside = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("../../../shared/ssb");
    let sample = std::env::var_os("ENTRESOL_SSB").map_or(beside, PathBuf::from);
    let (files, answers) = (sample.join("sf0.05"), sample.join("answers_sf0.05"));
    if !files.is_dir() || !answers.is_dir() {
        eprintln!("skipped: no sample in {} (set ENTRESOL_SSB)", sample.display());
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (db, ours) = (dir.path().join("db"), dir.path().join("answers"));
    loaded(&files, &db, &[]).unwrap();
    let report = ran(&db, &["--answers", text(&answers), "--repeat", "0"]).unwrap();
    assert_eq!(report.faults(), [""; 0]);
    assert!(report.queries.iter().all(|query| query.verdict == Verdict::Same));
    // The evaluation that other tests rely on has the same answers.
    std::fs::create_dir(&ours).unwrap();
    let tables = Tables::of_files(&files);
    tables.write_answers(&ours);
    let report = ran(&db, &["--answers", text(&ours), "--repeat", "0"]).unwrap();
    assert_eq!(report.faults(), [""; 0]);
    assert_eq!(report.queries.len(), QUERIES.len());
}
