//! Files that a sink rolls: each row is in one of them, whatever fails between a full file and the complete one.

use crate::support::*;
use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use entresol_memory::Durability;
use entresol_streams::{
    Boundary, GeneratorSource, OnError, Report, RolledFileFormat, RolledFiles, ToTable, Topology,
};
use entresol_tables::{Catalog, Column, DataType, Value};
use std::fs::File;
use std::io::{BufRead, Error, ErrorKind, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const END: &str = "end\n";

/// Lines of numbers, and an end.
#[derive(Debug, Default)]
struct Numbers {
    /// Number of calls of either kind until one fails; 0 is never.
    append_fails: AtomicU32,
    complete_fails: AtomicU32,
}

impl Numbers {
    fn fails(calls: &AtomicU32) -> bool {
        calls.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)) == Ok(1)
    }
}

impl RolledFileFormat for Numbers {
    fn append(&self, rows: &[&RecordBatch], waiting: &mut dyn Write) -> std::io::Result<()> {
        let fails = Numbers::fails(&self.append_fails);
        for ids in rows.iter().map(|rows| rows.column(0).as_primitive::<Int64Type>()) {
            for at in 0..ids.len() {
                writeln!(waiting, "{}", ids.value(at))?;
                if fails {
                    return Err(Error::from(ErrorKind::StorageFull));
                }
            }
        }
        Ok(())
    }

    fn complete(&self, waiting: &mut dyn BufRead, mut file: File) -> std::io::Result<u64> {
        let mut text = String::new();
        waiting.read_to_string(&mut text)?;
        let (first, rest) = text.split_at(text.len() / 2);
        file.write_all(first.as_bytes())?;
        if Numbers::fails(&self.complete_fails) {
            return Err(Error::from(ErrorKind::StorageFull));
        }
        file.write_all(rest.as_bytes())?;
        file.write_all(END.as_bytes())?;
        Ok(text.lines().count() as u64)
    }
}

struct Run<'r> {
    directory: &'r Path,
    format: Arc<Numbers>,
    rows_max: u64,
    durability: Durability,
    /// Number that is there twice in the table of the topology, which drops its transaction.
    twice: Option<i64>,
}

impl<'r> Run<'r> {
    fn new(directory: &'r Path) -> Run<'r> {
        let format = Arc::new(Numbers::default());
        Run { directory, format, rows_max: 10, durability: Durability::Sync, twice: None }
    }

    /// Runs a topology over numbers up to one, in transactions of four.
    fn to(&self, catalog: &Arc<Catalog>, numbers: i64) -> Result<Report, String> {
        let columns = vec![
            Column::new("id", DataType::BigInt).not_null(),
            Column::new("key", DataType::BigInt).not_null(),
        ];
        let topology = Topology::builder("t", catalog)
            .boundary(Boundary::Every(4))
            .on_error(OnError::Abort)
            .durability(self.durability);
        let twice = self.twice;
        let source = GeneratorSource::new(columns, move |n| {
            let id = n as i64;
            let key = if Some(id) == twice { 0 } else { id };
            (id < numbers).then(|| vec![Value::BigInt(id), Value::BigInt(key)])
        });
        let files = RolledFiles {
            format: Arc::clone(&self.format) as Arc<dyn RolledFileFormat>,
            rows_max: self.rows_max,
            bytes_max: u64::MAX,
            interval: Duration::from_secs(3600),
        };
        let numbers = topology.source("numbers", source);
        numbers.rolled_sink(self.directory.join("n-{n}.txt"), files);
        numbers.to_table(ToTable::insert("stored").key(&["key"]));
        topology.build().and_then(|topology| topology.run()).map_err(|error| error.to_string())
    }
}

/// Names of all files.
fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}

/// Numbers in the complete files, each of which is asserted to have its end.
fn numbers(directory: &Path) -> Vec<i64> {
    let mut found = Vec::new();
    for name in names(directory).iter().filter(|name| name.ends_with(".txt")) {
        let text = std::fs::read_to_string(directory.join(name)).unwrap();
        let lines = text.strip_suffix(END).unwrap_or_else(|| panic!("{name} is incomplete: {text}"));
        found.extend(lines.lines().map(|line| line.parse::<i64>().unwrap()));
    }
    found
}

#[test]
fn files_have_transactions_up_to_their_limit_and_the_rest_at_the_end_of_a_run() {
    for durability in [Durability::Sync, Durability::None] {
        let (directory, database) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = directory.path();
        let run = Run { durability, ..Run::new(path) };
        for (to, files) in [(0, 0), (25, 3), (25, 3), (26, 4), (49, 6)] {
            run.to(&journal(database.path()), to).unwrap();
            assert_eq!(numbers(path), (0..to).collect::<Vec<_>>());
            let wanted: Vec<String> = (1..=files).map(|number| format!("n-{number:08}.txt")).collect();
            assert_eq!(names(path), wanted, "nothing else is left");
        }
        let lengths: Vec<usize> = names(path)
            .iter()
            .map(|name| std::fs::read_to_string(path.join(name)).unwrap().lines().count() - 1)
            .collect();
        assert_eq!(lengths, [12, 12, 1, 1, 12, 11]);
    }
}

#[test]
fn rows_of_dropped_transactions_are_in_no_file() {
    let (directory, database) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let run = Run { twice: Some(14), ..Run::new(directory.path()) };
    let report = run.to(&journal(database.path()), 30).unwrap();
    assert_eq!(report.aborts, 1);
    assert_eq!(numbers(directory.path()), (0..12).chain(16..30).collect::<Vec<_>>());
}

#[test]
fn a_call_that_fails_ends_the_topology_and_it_goes_on_there() {
    for call in 1..=6 {
        for of_append in [false, true] {
            let (directory, database) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let run = Run::new(directory.path());
            let calls = if of_append { &run.format.append_fails } else { &run.format.complete_fails };
            calls.store(call, Ordering::SeqCst);
            let catalog = journal(database.path());
            let result = run.to(&catalog, 40);
            if !of_append && call > 4 {
                assert!(result.is_ok(), "four files are made");
                continue;
            }
            let error = result.unwrap_err();
            assert!(error.contains("no storage space") || error.contains("No space"), "{error}");
            let complete = numbers(directory.path());
            assert_eq!(complete, (0..complete.len() as i64).collect::<Vec<_>>());
            drop(catalog);
            run.to(&journal(database.path()), 40).unwrap();
            assert_eq!(numbers(directory.path()), (0..40).collect::<Vec<_>>());
            assert!(names(directory.path()).iter().all(|name| name.ends_with(".txt")), "nothing is left");
        }
    }
}

/// Files as a crash leaves them between any two steps of making a file.
#[test]
fn a_full_file_is_made_from_what_a_crash_left() {
    type Crash = fn(&Path);
    const WAITING: &str = "n-00000002.txt.t.rows";
    const PART: &str = "n-00000002.txt.t.part";
    let steps: [(&str, bool, Crash); 5] = [
        ("before the part", true, |path| std::fs::remove_file(path.join(PART)).unwrap()),
        ("within the part", true, |path| std::fs::write(path.join(PART), "12\n13").unwrap()),
        ("behind the part", true, |path| {
            let text = std::fs::read_to_string(path.join(WAITING)).unwrap();
            std::fs::write(path.join(PART), text + END).unwrap();
        }),
        ("behind the removal", true, |path| {
            let text = std::fs::read_to_string(path.join(WAITING)).unwrap();
            std::fs::write(path.join(PART), text + END).unwrap();
            std::fs::remove_file(path.join(WAITING)).unwrap();
        }),
        // Another has taken the complete file already: it is not made again.
        ("behind the rename", false, |path| {
            std::fs::remove_file(path.join(WAITING)).unwrap();
            std::fs::remove_file(path.join(PART)).unwrap();
        }),
    ];
    for (step, is_made, crash) in steps {
        let (directory, database) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = directory.path();
        let run = Run::new(path);
        run.format.complete_fails.store(2, Ordering::SeqCst);
        let catalog = journal(database.path());
        run.to(&catalog, 40).unwrap_err();
        drop(catalog);
        assert_eq!(names(path), ["n-00000001.txt", PART, WAITING], "{step}");
        crash(path);
        run.to(&journal(database.path()), 40).unwrap();
        let wanted: Vec<i64> = (0..40).filter(|id| is_made || !(12..24).contains(id)).collect();
        assert_eq!(numbers(path), wanted, "{step}");
        assert!(names(path).iter().all(|name| name.ends_with(".txt")), "{step}: {:?}", names(path));
    }
}

/// Waiting rows that are others than were committed, and a file that another wrote, are left as they are.
#[test]
fn files_of_others_are_not_overwritten() {
    let (directory, database) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = directory.path();
    std::fs::write(path.join("n-00000004.txt"), "1000\nend\n").unwrap();
    let run = Run::new(path);
    run.format.append_fails.store(3, Ordering::SeqCst);
    run.to(&journal(database.path()), 40).unwrap_err();
    // Rows that were not committed are behind those that were.
    let waiting = path.join("n-00000005.txt.t.rows");
    let text = std::fs::read_to_string(&waiting).unwrap();
    assert!(text.starts_with("0\n1\n2\n3\n4\n5\n6\n7\n"), "{text}");
    for (spoilt, reason) in
        [("0\n1\n", "4 bytes, 16 were written"), ("9\n1\n2\n3\n4\n5\n6\n7\n", "other content before byte 16")]
    {
        std::fs::write(&waiting, spoilt).unwrap();
        let error = run.to(&journal(database.path()), 40).unwrap_err();
        assert!(error.contains(reason), "{error}");
        assert_eq!(std::fs::read_to_string(&waiting).unwrap(), spoilt);
    }
    std::fs::write(&waiting, text + "8\n9").unwrap();
    std::fs::write(path.join("n-00000005.txt"), "2000\nend\n").unwrap();
    std::fs::write(path.join("n-00000006.txt"), "3000\nend\n").unwrap();
    let error = run.to(&journal(database.path()), 40).unwrap_err();
    assert!(error.contains("another wrote it"), "{error}");
    std::fs::remove_file(path.join("n-00000005.txt")).unwrap();
    run.to(&journal(database.path()), 40).unwrap();
    let wanted: Vec<i64> = [1000].into_iter().chain(0..12).chain([3000]).chain(12..40).collect();
    assert_eq!(numbers(path), wanted);
}
