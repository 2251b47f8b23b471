//! Tests of files that are read, left and read again, and of those that are not the same any more.

use super::*;
use crate::sources::Split;
use entresol_tables::{DataType, Value, rows_of};
use std::collections::BTreeMap;
use std::io::Write;
use std::time::Instant;
use tempfile::TempDir;

fn source(path: &Path, format: FileFormat) -> FilesSource {
    FilesSource::new(path, vec![Column::new("id", DataType::Int).not_null()], format)
}

/// Reads until so many tuples are there, or the end, or an error.
fn read(
    source: &mut FilesSource,
    positions: &mut BTreeMap<Arc<str>, SplitPosition>,
    tuples: usize,
) -> Result<Vec<i32>> {
    let mut ids = Vec::new();
    let begun = Instant::now();
    while ids.len() < tuples {
        assert!(begun.elapsed() < Duration::from_secs(20), "{ids:?}");
        let batch = match source.next(usize::MAX)? {
            Next::Batch(batch) => batch,
            Next::End => break,
            _ => continue,
        };
        let id = |row: &Vec<Value>| match row[0] {
            Value::Int(id) => id,
            _ => panic!("{row:?}"),
        };
        ids.extend(rows_of(&batch.tuples).unwrap().iter().map(id));
        let split: Split = batch.split.unwrap();
        positions.insert(Arc::clone(&split.name), SplitPosition { split, position: batch.end });
    }
    Ok(ids)
}

fn open(source: &mut FilesSource, positions: &BTreeMap<Arc<str>, SplitPosition>) {
    source.open_splits(None, &positions.values().cloned().collect::<Vec<_>>()).unwrap();
}

fn append(path: &Path, text: &str) {
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

#[test]
fn files_are_read_in_order_and_each_goes_on_at_its_own_position() {
    let directory = TempDir::new().unwrap();
    let file = |name: &str| directory.path().join(name);
    append(&file("b.csv"), "id\n3\n4\n");
    append(&file("a.csv"), "id\n1\n2");
    append(&file("empty.csv"), "");
    let pattern = file("*.csv");
    let mut positions = BTreeMap::new();
    let mut all = source(&pattern, FileFormat::csv());
    open(&mut all, &positions);
    assert_eq!(read(&mut all, &mut positions, usize::MAX).unwrap(), [1, 2, 3, 4]);
    drop(all);
    append(&file("b.csv"), "5\n");
    append(&file("0.csv"), "id\n0\n");
    append(&file("a.csv"), "\n6\n");
    let mut again = source(&pattern, FileFormat::csv());
    open(&mut again, &positions);
    assert_eq!(read(&mut again, &mut positions, usize::MAX).unwrap(), [0, 6, 5]);
    let mut none = source(&file("*.json"), FileFormat::Json);
    open(&mut none, &BTreeMap::new());
    let error = read(&mut none, &mut positions, 1).unwrap_err().to_string();
    assert!(error.contains("no file has a name of this form"), "{error}");
}

#[test]
fn files_that_come_and_grow_are_followed_line_by_line() {
    for (format, header) in [(FileFormat::csv(), "id\n"), (FileFormat::Json, "")] {
        let line =
            |id: i32| if header.is_empty() { format!("{{\"id\": {id}}}\n") } else { format!("{id}\n") };
        let directory = TempDir::new().unwrap();
        let file = |name: &str| directory.path().join(name);
        let mut positions = BTreeMap::new();
        let mut tail = source(&file("day-?"), format.clone()).tail();
        open(&mut tail, &positions);
        append(&file("day-2"), header);
        append(&file("day-2"), &line(1));
        append(&file("day-10"), "no day");
        assert_eq!(read(&mut tail, &mut positions, 1).unwrap(), [1]);
        // A line in two pieces is one line, and an earlier name may come later.
        append(&file("day-1"), &format!("{header}{}", line(2)));
        append(&file("day-2"), &line(34)[..line(34).len() - 2]);
        assert_eq!(read(&mut tail, &mut positions, 1).unwrap(), [2]);
        std::thread::sleep(Duration::from_millis(30));
        append(&file("day-2"), &line(34)[line(34).len() - 2..]);
        assert_eq!(read(&mut tail, &mut positions, 1).unwrap(), [34]);
        drop(tail);
        append(&file("day-1"), &line(5));
        let mut tail = source(&file("day-?"), format).tail();
        open(&mut tail, &positions);
        assert_eq!(read(&mut tail, &mut positions, 1).unwrap(), [5]);
        // One that was read may be taken away.
        std::fs::remove_file(file("day-1")).unwrap();
        append(&file("day-2"), &line(6));
        assert_eq!(read(&mut tail, &mut positions, 1).unwrap(), [6]);
    }
}

#[test]
fn a_file_that_is_another_one_is_refused() {
    let text = "id\n1\n2\n3\n";
    type Change<'c> = (&'c str, &'c dyn Fn(&Path));
    let changes: [Change<'_>; 5] = [
        ("shorter than the stored position 9", &|path| std::fs::write(path, "id\n1\n").unwrap()),
        ("other content", &|path| std::fs::write(path, "id\n7\n8\n9\n10\n").unwrap()),
        ("other content", &|path| std::fs::write(path, "id\n17\n18\n19\n20\n").unwrap()),
        ("replaced by another", &|path| {
            let other = path.with_extension("new");
            std::fs::write(&other, format!("{text}4\n")).unwrap();
            std::fs::rename(other, path).unwrap();
        }),
        ("No such file", &|path| std::fs::remove_file(path).unwrap()),
    ];
    for (expected, change) in changes {
        for restarts in [false, true] {
            let directory = TempDir::new().unwrap();
            let path = directory.path().join("lines");
            append(&path, text);
            let mut positions = BTreeMap::new();
            let mut tail = source(&path, FileFormat::csv()).tail();
            open(&mut tail, &positions);
            assert_eq!(read(&mut tail, &mut positions, 3).unwrap(), [1, 2, 3]);
            if restarts {
                drop(tail);
                tail = source(&path, FileFormat::csv()).tail();
            }
            change(&path);
            if restarts {
                open(&mut tail, &positions);
                // The same content under another identity is the same file.
                if expected.contains("replaced") {
                    assert_eq!(read(&mut tail, &mut positions, 1).unwrap(), [4]);
                    continue;
                }
            }
            let error = read(&mut tail, &mut positions, 1).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}, wanted {expected}");
        }
    }
}
