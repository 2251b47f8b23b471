//! Changes as lines of JSON: the envelopes of Debezium, and keys with values.
//!
//! | tuples | Debezium | Upsert |
//! | --- | --- | --- |
//! | inserted | `c` with the row after | the key with the row |
//! | taken back | `d` with the row before | the key with `null`, unless the batch inserts a row with it |
//! | logged changes of a table | `c`, `u`, `d` with both rows, and the timestamp of the commit in `source` | the key with the row, or `null` |
//!
//! Of a batch, what is taken back stands before what is inserted: a reader that keeps the last row of each key has those
//! that are there.

use crate::element::{Batch, Tuple};
use crate::error::{Error, Result};
use crate::sinks::encoding::json_object;
use crate::sources::envelopes::{ChangeFormat, Envelope};
use entresol_tables::{Column, Value};
use std::collections::BTreeSet;

/// Encoder of changes with these columns.
#[derive(Debug, Clone)]
pub(crate) struct ChangeEncoder {
    format: ChangeFormat,
    columns: Vec<Column>,
    /// Columns of the rows that are the key.
    key: Vec<usize>,
}

impl ChangeEncoder {
    pub(crate) fn new(format: &ChangeFormat, columns: &[Column]) -> ChangeEncoder {
        let columns = &columns[..format.logged_columns.unwrap_or(columns.len())];
        let columns: Vec<Column> = match format.envelope {
            Envelope::Upsert => columns.to_vec(),
            // JSON is a string there.
            Envelope::Debezium => {
                columns.iter().map(|column| Column::new(column.name.clone(), column.data_type)).collect()
            }
        };
        let is_key = |at: &usize| format.key.contains(&columns[*at].name);
        let key = (0..columns.len()).filter(is_key).collect();
        ChangeEncoder { format: format.clone(), columns, key }
    }

    /// Adds a line for each change.
    pub(crate) fn rows(&self, batch: &Batch, lines: &mut Vec<u8>) -> Result<()> {
        let tuples = batch.tuples()?;
        if self.format.logged_columns.is_some() {
            return tuples.iter().try_for_each(|tuple| self.logged(tuple, lines));
        }
        let Some(retracted) = batch.retracted() else {
            tuples.iter().for_each(|tuple| self.change(None, Some(tuple), None, lines));
            return Ok(());
        };
        let is_retracted: Vec<bool> =
            retracted.iter().map(|is_retracted| is_retracted == Some(true)).collect();
        let written = tuples.iter().zip(&is_retracted).filter(|(_, is_retracted)| !**is_retracted);
        let written: BTreeSet<Vec<u8>> = match self.format.envelope {
            Envelope::Upsert => written.map(|(tuple, _)| self.key_object(tuple)).collect(),
            Envelope::Debezium => BTreeSet::new(),
        };
        for (tuple, _) in tuples.iter().zip(&is_retracted).filter(|(_, is_retracted)| **is_retracted) {
            if !written.contains(&self.key_object(tuple)) {
                self.change(Some(tuple), None, None, lines);
            }
        }
        for (tuple, _) in tuples.iter().zip(&is_retracted).filter(|(_, is_retracted)| !**is_retracted) {
            self.change(None, Some(tuple), None, lines);
        }
        Ok(())
    }

    /// Change of a table's log: the row, the row before, the type of the change and the timestamp of the commit.
    fn logged(&self, tuple: &Tuple, lines: &mut Vec<u8>) -> Result<()> {
        let width = self.columns.len();
        let (row, before) = (&tuple[..width], &tuple[width..2 * width]);
        let (Some(Value::Varchar(change_type)), Some(Value::BigInt(cts))) =
            (tuple.get(2 * width), tuple.get(2 * width + 1))
        else {
            let reason = "the tuples are not logged changes of a table".to_owned();
            return Err(Error::Tuple { operator: "sink".to_owned(), reason });
        };
        let (before, after) = match &**change_type {
            "insert" => (None, Some(row)),
            "delete" => (Some(row), None),
            _ => (Some(before), Some(row)),
        };
        self.change(before, after, Some(*cts), lines);
        Ok(())
    }

    fn change(
        &self,
        before: Option<&[Value]>,
        after: Option<&[Value]>,
        commit: Option<i64>,
        lines: &mut Vec<u8>,
    ) {
        match self.format.envelope {
            Envelope::Upsert => {
                let Some(of_key) = after.or(before) else { return };
                lines.extend_from_slice(b"{\"key\":");
                lines.extend(self.key_object(of_key));
                lines.extend_from_slice(b",\"value\":");
                self.row(after, lines);
            }
            Envelope::Debezium => {
                let op = match (before, after) {
                    (None, _) => "c",
                    (Some(_), Some(_)) => "u",
                    (Some(_), None) => "d",
                };
                lines.extend_from_slice(b"{\"before\":");
                self.row(before, lines);
                lines.extend_from_slice(b",\"after\":");
                self.row(after, lines);
                if let Some(commit) = commit {
                    lines.extend_from_slice(format!(",\"source\":{{\"commit_cts\":{commit}}}").as_bytes());
                }
                lines.extend_from_slice(format!(",\"op\":\"{op}\"").as_bytes());
            }
        }
        lines.extend_from_slice(b"}\n");
    }

    fn row(&self, row: Option<&[Value]>, lines: &mut Vec<u8>) {
        match row {
            Some(row) => json_object(self.columns.iter().zip(row), lines),
            None => lines.extend_from_slice(b"null"),
        }
    }

    fn key_object(&self, row: &[Value]) -> Vec<u8> {
        let mut object = Vec::new();
        json_object(self.key.iter().map(|&at| (&self.columns[at], &row[at])), &mut object);
        object
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::BooleanArray;
    use entresol_tables::{BatchBuilder, DataType, change_columns};

    fn columns() -> Vec<Column> {
        vec![Column::new("id", DataType::Int).not_null(), Column::new("name", DataType::Varchar)]
    }

    fn lines(
        format: &ChangeFormat,
        columns: &[Column],
        rows: &[Vec<Value>],
        retracted: &[bool],
    ) -> Vec<String> {
        let mut builder = BatchBuilder::new(columns, 0);
        rows.iter().for_each(|row| builder.push(row).unwrap());
        let batch = Batch::of_changes(builder.finish(), BooleanArray::from(retracted.to_vec()));
        let mut lines = Vec::new();
        ChangeEncoder::new(format, columns).rows(&batch, &mut lines).unwrap();
        String::from_utf8(lines).unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn what_is_taken_back_stands_before_what_is_inserted() {
        let row = |id: i32, name: &str| vec![Value::Int(id), Value::from(name)];
        let rows = [row(1, "new"), row(1, "old"), row(2, "gone"), row(3, "first")];
        let retracted = [false, true, true, false];
        let key = vec!["id".to_owned()];
        let upsert = ChangeFormat::new(Envelope::Upsert, key.clone());
        let wanted = [
            r#"{"key":{"id":2},"value":null}"#,
            r#"{"key":{"id":1},"value":{"id":1,"name":"new"}}"#,
            r#"{"key":{"id":3},"value":{"id":3,"name":"first"}}"#,
        ];
        assert_eq!(lines(&upsert, &columns(), &rows, &retracted), wanted);
        let debezium = ChangeFormat::new(Envelope::Debezium, key);
        let wanted = [
            r#"{"before":{"id":1,"name":"old"},"after":null,"op":"d"}"#,
            r#"{"before":{"id":2,"name":"gone"},"after":null,"op":"d"}"#,
            r#"{"before":null,"after":{"id":1,"name":"new"},"op":"c"}"#,
            r#"{"before":null,"after":{"id":3,"name":"first"},"op":"c"}"#,
        ];
        assert_eq!(lines(&debezium, &columns(), &rows, &retracted), wanted);
    }

    #[test]
    fn logged_changes_have_both_rows_and_their_commit() {
        let of_log = change_columns(&columns());
        let change = |row: [Value; 2], old: [Value; 2], kind: &str| {
            row.into_iter().chain(old).chain([Value::from(kind), Value::BigInt(17)]).collect::<Vec<Value>>()
        };
        let row = |name: &str| [Value::Int(1), Value::from(name)];
        let none = || [Value::Null, Value::Null];
        let rows = [
            change(row("a"), none(), "insert"),
            change(row("b"), row("a"), "update"),
            change(row("b"), row("b"), "delete"),
        ];
        let format = ChangeFormat {
            logged_columns: Some(2),
            ..ChangeFormat::new(Envelope::Debezium, vec!["id".to_owned()])
        };
        let wanted = [
            r#"{"before":null,"after":{"id":1,"name":"a"},"source":{"commit_cts":17},"op":"c"}"#,
            r#"{"before":{"id":1,"name":"a"},"after":{"id":1,"name":"b"},"source":{"commit_cts":17},"op":"u"}"#,
            r#"{"before":{"id":1,"name":"b"},"after":null,"source":{"commit_cts":17},"op":"d"}"#,
        ];
        assert_eq!(lines(&format, &of_log, &rows, &[false; 3]), wanted);
        let format = ChangeFormat { envelope: Envelope::Upsert, ..format };
        assert_eq!(lines(&format, &of_log, &rows, &[false; 3])[2], r#"{"key":{"id":1},"value":null}"#);
    }
}
