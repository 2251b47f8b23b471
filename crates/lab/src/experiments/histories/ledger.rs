//! Ledger of an operation history: which writes were acknowledged, which were taken back, and what was there
//! in the end. Needs no theory: an acknowledged write is there, one that was taken back is not, none twice.

use super::operations::WINDOW;
use crate::Error;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::PathBuf;

/// A key and a number that was written to it.
type LoggedWrite = (u64, u64);

/// The history of all lives so far.
pub(super) struct Ledger {
    pub(super) path: PathBuf,
    /// Offset at which the lines of the next life begin.
    read_to: u64,
    acknowledged: HashSet<LoggedWrite>,
    aborted: HashSet<LoggedWrite>,
    /// Operations in flight, by process.
    in_flight: HashMap<u64, Value>,
    /// The last thing that was read of each key.
    last: BTreeMap<u64, Value>,
    last_key: u64,
    pub(super) committed: u64,
    pub(super) refused: u64,
    /// Killed in the middle: whether they committed is unknown.
    pub(super) unknown: u64,
}

/// Faults at the end.
#[derive(Default)]
pub(super) struct Faults {
    pub(super) lost: Vec<LoggedWrite>,
    pub(super) came_back: Vec<LoggedWrite>,
    pub(super) twice: Vec<LoggedWrite>,
}

impl Faults {
    pub(super) fn is_empty(&self) -> bool {
        self.lost.is_empty() && self.came_back.is_empty() && self.twice.is_empty()
    }
}

/// Number of faults, and the first few.
impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [("lost", &self.lost), ("came back", &self.came_back), ("there twice", &self.twice)];
        for (what, puts) in all.into_iter().filter(|(_, puts)| !puts.is_empty()) {
            write!(f, "{} {what}, as (key, number) {:?}; ", puts.len(), &puts[..puts.len().min(5)])?;
        }
        Ok(())
    }
}

fn failed(what: &str) -> impl FnOnce(std::io::Error) -> Error + '_ {
    move |error| Error::Io { action: format!("{what} the history"), error }
}

fn puts(operations: &Value) -> impl Iterator<Item = LoggedWrite> + '_ {
    let operations = operations.as_array().into_iter().flatten();
    operations
        .filter(|operation| operation[0] != "r")
        .filter_map(|operation| Some((operation[1].as_u64()?, operation[2].as_u64()?)))
}

impl Ledger {
    pub(super) fn new(path: PathBuf) -> Result<Ledger, Error> {
        File::create(&path).map_err(failed("create"))?;
        Ok(Ledger {
            path,
            read_to: 0,
            acknowledged: HashSet::new(),
            aborted: HashSet::new(),
            in_flight: HashMap::new(),
            last: BTreeMap::new(),
            last_key: 0,
            committed: 0,
            refused: 0,
            unknown: 0,
        })
    }

    /// Opens the file to which a life appends its lines.
    pub(super) fn file(&self) -> Result<File, Error> {
        OpenOptions::new().append(true).open(&self.path).map_err(failed("open"))
    }

    /// Returns true if the life that runs has written nothing yet.
    pub(super) fn is_waiting(&self) -> Result<bool, Error> {
        let length = std::fs::metadata(&self.path).map_err(failed("look at"))?.len();
        Ok(length == self.read_to)
    }

    /// First key of the next life's window, which overlaps the one before.
    pub(super) fn first_key(&self) -> u64 {
        (self.last_key + 1).saturating_sub(WINDOW)
    }

    /// Reads what a life wrote, and ends operations that it left open as "unknown".
    pub(super) fn end_life(&mut self) -> Result<(), Error> {
        let mut file = OpenOptions::new().read(true).write(true).open(&self.path).map_err(failed("open"))?;
        file.seek(SeekFrom::Start(self.read_to)).map_err(failed("read"))?;
        let mut lines = BufReader::new(&file);
        let mut line = String::new();
        while lines.read_line(&mut line).map_err(failed("read"))? > 0 && line.ends_with('\n') {
            self.read_to += line.len() as u64;
            self.note(&line)?;
            line.clear();
        }
        // The kill may have torn the last line; what it was to say did not happen in front of witnesses.
        file.set_len(self.read_to).map_err(failed("truncate"))?;
        let mut ends = String::new();
        for (process, operations) in std::mem::take(&mut self.in_flight) {
            ends += &format!(
                "{{\"type\":\"info\",\"f\":\"txn\",\"process\":{process},\"value\":{operations}}}\n"
            );
            self.unknown += 1;
        }
        self.read_to += ends.len() as u64;
        self.file()?.write_all(ends.as_bytes()).map_err(failed("write"))
    }

    fn note(&mut self, line: &str) -> Result<(), Error> {
        let wrong = || Error::Invalid(format!("not a line of an operation history: {line}"));
        let mut event: Value = serde_json::from_str(line).map_err(|_| wrong())?;
        let process = event["process"].as_u64().ok_or_else(wrong)?;
        let operations = event["value"].take();
        for operation in operations.as_array().into_iter().flatten() {
            self.last_key = self.last_key.max(operation[1].as_u64().ok_or_else(wrong)?);
        }
        match event["type"].as_str() {
            Some("invoke") => {
                self.in_flight.insert(process, operations);
                return Ok(());
            }
            Some("ok") => {
                self.committed += 1;
                self.acknowledged.extend(puts(&operations));
                let reads = operations.as_array().into_iter().flatten().filter(|read| read[0] == "r");
                for read in reads {
                    self.last.insert(read[1].as_u64().ok_or_else(wrong)?, read[2].clone());
                }
            }
            Some("fail") => {
                self.refused += 1;
                self.aborted.extend(puts(&operations));
            }
            _ => return Err(wrong()),
        }
        self.in_flight.remove(&process);
        Ok(())
    }

    /// Compares what was read of every key in the end with what was said before.
    pub(super) fn faults(&self) -> Faults {
        let mut faults = Faults::default();
        let mut seen = HashSet::new();
        let are_lists = self.last.values().any(Value::is_array);
        for (key, value) in &self.last {
            let numbers: Vec<u64> = match value {
                Value::Array(numbers) => numbers.iter().filter_map(Value::as_u64).collect(),
                register => register.as_u64().into_iter().collect(),
            };
            for number in numbers {
                if self.aborted.contains(&(*key, number)) {
                    faults.came_back.push((*key, number));
                }
                if !seen.insert((*key, number)) {
                    faults.twice.push((*key, number));
                }
            }
        }
        // A register forgets by design what was overwritten.
        if are_lists {
            faults.lost.extend(self.acknowledged.difference(&seen));
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn ledger(lines: &str) -> (tempfile::TempDir, Ledger) {
        let dir = tempfile::TempDir::new().unwrap();
        let mut ledger = Ledger::new(dir.path().join("history.jsonl")).unwrap();
        ledger.file().unwrap().write_all(lines.as_bytes()).unwrap();
        ledger.end_life().unwrap();
        (dir, ledger)
    }

    fn line(kind: &str, process: u64, value: &str) -> String {
        format!("{{\"type\":\"{kind}\",\"process\":{process},\"value\":{value}}}\n")
    }

    #[test]
    fn what_was_lost_came_back_or_is_there_twice_is_found() {
        let history = [
            line("invoke", 0, r#"[["append",1,7],["append",2,7]]"#),
            line("ok", 0, r#"[["append",1,7],["append",2,7]]"#),
            line("invoke", 1, r#"[["append",1,8]]"#),
            line("fail", 1, r#"[["append",1,8]]"#),
            line("ok", 9, r#"[["r",1,[8]],["r",2,[7,7]]]"#),
        ];
        let faults = ledger(&history.concat()).1.faults();
        assert_eq!(faults.lost, [(1, 7)]);
        assert_eq!(faults.came_back, [(1, 8)]);
        assert_eq!(faults.twice, [(2, 7)]);
    }

    #[test]
    fn what_a_kill_leaves_open_ends_as_unknown_and_half_a_line_is_cut() {
        let whole = line("invoke", 3, r#"[["append",11,1]]"#);
        let (_dir, ledger) = ledger(&(whole.clone() + "{\"type\":\"ok\",\"proc"));
        assert_eq!((ledger.unknown, ledger.first_key()), (1, 4));
        let text = std::fs::read_to_string(&ledger.path).unwrap();
        assert!(text.starts_with(&whole) && text.ends_with("[[\"append\",11,1]]}\n"), "{text}");
        assert!(text.contains("\"info\"") && !text.contains("\"ok\""), "{text}");
        assert!(ledger.faults().is_empty());
    }
}
