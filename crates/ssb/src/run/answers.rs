//! Results as CSV files, and their comparison.
//!
//! A file has a header, whose names do not matter, and the rows in the order of the query's ORDER BY. Rows that
//! are equal in its columns may come in any order. NULL is an empty field.

use super::queries::Query;
use crate::error::{Error, Result};
use std::path::{Path, PathBuf};

/// A row of a result, each value as its string.
pub(super) type Row = Vec<String>;

/// File of a query in a directory.
fn file(directory: &Path, query: &Query) -> PathBuf {
    directory.join(format!("q{}.csv", query.name))
}

/// Reads the answer to a query.
pub(super) fn read(directory: &Path, query: &Query) -> Result<Vec<Row>> {
    let path = file(directory, query);
    let failed = |error| Error::csv("read", &path, error);
    let mut reader = csv::Reader::from_path(&path).map_err(failed)?;
    let found = reader.headers().map_err(failed)?.len();
    if found != query.columns.len() {
        let columns = query.columns.join(", ");
        let path = path.display();
        return Err(Error::Invalid(format!(
            "{path} has {found} columns, query {} has {columns}",
            query.name
        )));
    }
    let rows = reader.records().map(|record| {
        let record = record.map_err(failed)?;
        Ok(record.iter().map(str::to_owned).collect())
    });
    let rows: Vec<Row> = rows.collect::<Result<_>>()?;
    // A sum without groups is one row; if it is NULL, most writers leave its line empty, which CSV skips.
    let is_null_sum = rows.is_empty() && query.order_by.is_empty();
    Ok(if is_null_sum { vec![vec![String::new()]] } else { rows })
}

/// Writes the result of a query.
pub(super) fn save(directory: &Path, query: &Query, rows: &[Row]) -> Result<()> {
    let path = file(directory, query);
    let failed = |error| Error::csv("write", &path, error);
    let mut writer = csv::Writer::from_path(&path).map_err(failed)?;
    writer.write_record(query.columns).map_err(failed)?;
    rows.iter().try_for_each(|row| writer.write_record(row)).map_err(failed)?;
    writer.flush().map_err(|error| Error::file("write", &path, error))
}

/// Compares a result with the expected one; returns the first difference.
pub(super) fn difference(query: &Query, found: &[Row], expected: &[Row]) -> Option<String> {
    let (found, expected) = (without_ties(query, found), without_ties(query, expected));
    let mut pairs = found.iter().zip(&expected).enumerate();
    if let Some((at, (found, expected))) = pairs.find(|(_, (found, expected))| found != expected) {
        let (found, expected) = (found.join(", "), expected.join(", "));
        return Some(format!("row {} is ({found}), not ({expected})", at + 1));
    }
    let (found_rows, expected_rows) = (found.len(), expected.len());
    let first = |rows: &[Row], at: usize| rows.get(at).map_or(String::new(), |row| row.join(", "));
    match found_rows.cmp(&expected_rows) {
        std::cmp::Ordering::Equal => None,
        std::cmp::Ordering::Less => {
            let missing = first(&expected, found_rows);
            Some(format!("{found_rows} rows, not {expected_rows}: the first missing one is ({missing})"))
        }
        std::cmp::Ordering::Greater => {
            let further = first(&found, expected_rows);
            Some(format!("{found_rows} rows, not {expected_rows}: the first further one is ({further})"))
        }
    }
}

/// Rows with comparable values, those with equal values in the columns of ORDER BY in a definite order.
fn without_ties(query: &Query, rows: &[Row]) -> Vec<Row> {
    let mut rows: Vec<Row> =
        rows.iter().map(|row| row.iter().map(|value| comparable(value)).collect()).collect();
    let ties = rows.chunk_by_mut(|a, b| query.order_by.iter().all(|&column| a[column] == b[column]));
    ties.for_each(|tied| tied.sort_unstable());
    rows
}

/// The value, a number without digits behind the point that are zero.
fn comparable(value: &str) -> String {
    if let Some((whole, rest)) = value.split_once('.')
        && rest.bytes().all(|byte| byte == b'0')
        && whole.parse::<i128>().is_ok()
    {
        return whole.to_owned();
    }
    value.to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::queries::QUERIES;
    use super::*;

    fn query(name: &str) -> &'static Query {
        QUERIES.iter().find(|query| query.name == name).unwrap()
    }

    fn rows(text: &str) -> Vec<Row> {
        text.split(' ').map(|row| row.split(',').map(str::to_owned).collect()).collect()
    }

    #[test]
    fn order_and_values_count_and_ties_do_not() {
        let expected = rows("A,B,1992,9 C,D,1992,9 E,F,1992,7 A,B,1993,8");
        let compared = |text: &str| difference(query("3.1"), &rows(text), &expected);
        assert_eq!(compared("A,B,1992,9 C,D,1992,9 E,F,1992,7 A,B,1993,8"), None);
        assert_eq!(compared("C,D,1992,9.0 A,B,1992,9 E,F,1992,7 A,B,1993,8.00"), None);
        for (wrong, message) in [
            ("A,B,1992,9 C,D,1992,9 A,B,1993,8 E,F,1992,7", "row 3 is (A, B, 1993, 8), not (E, F, 1992, 7)"),
            ("A,B,1992,9 C,D,1992,9 E,F,1992,6 A,B,1993,8", "row 3 is (E, F, 1992, 6), not (E, F, 1992, 7)"),
            (
                "A,B,1992,9 C,D,1992,9 E,F,1992,7.5 A,B,1993,8",
                "row 3 is (E, F, 1992, 7.5), not (E, F, 1992, 7)",
            ),
            ("A,B,1992,9 C,D,1992,9 E,F,1992,7", "3 rows, not 4: the first missing one is (A, B, 1993, 8)"),
            (
                "A,B,1992,9 C,D,1992,9 E,F,1992,7 A,B,1993,8 X,Y,1993,1",
                "5 rows, not 4: the first further one is (X, Y, 1993, 1)",
            ),
        ] {
            assert_eq!(compared(wrong).as_deref(), Some(message));
        }
    }

    #[test]
    fn a_saved_result_is_the_same_when_it_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let query = query("3.2");
        let result = rows("UNITED,\"x\",1992,9 B|,C,1992,");
        save(dir.path(), query, &result).unwrap();
        assert_eq!(read(dir.path(), query).unwrap(), result);
        let text = std::fs::read_to_string(dir.path().join("q3.2.csv")).unwrap();
        assert!(text.starts_with("c_city,s_city,d_year,revenue\n"), "{text}");
        let error = read(dir.path(), &QUERIES[0]).unwrap_err();
        assert!(
            error.to_string().contains("cannot read") && error.to_string().contains("q1.1.csv"),
            "{error}"
        );
        std::fs::write(dir.path().join("q1.1.csv"), "revenue\n\n").unwrap();
        assert_eq!(read(dir.path(), &QUERIES[0]).unwrap(), [[""]]);
        std::fs::write(dir.path().join("q1.1.csv"), "revenue,more\n1,2\n").unwrap();
        let error = read(dir.path(), &QUERIES[0]).unwrap_err();
        assert!(error.to_string().contains("has 2 columns, query 1.1 has revenue"), "{error}");
    }
}
