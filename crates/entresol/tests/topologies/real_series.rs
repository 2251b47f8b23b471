//! Windows over the loads of transformers and alarms on a labelled series equal what plain code computes of the same files.

use super::{rows, wait_for, wait_for_end};
use entresol::{Database, Durability, Options};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The real series, if they are there: they are not part of the project.
fn real_series() -> Option<PathBuf> {
    let beside = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("../../../shared/data");
    let directory = std::env::var_os("ENTRESOL_DATA").map_or(beside, PathBuf::from);
    if !directory.join("nab").is_dir() {
        eprintln!("skipped: no real series in {} (set ENTRESOL_DATA)", directory.display());
        return None;
    }
    Some(directory)
}

/// Time of a row, `2016-07-01 00:00:00`, in hours since 1 January 2000, and its minute.
fn hour_and_minute(time: &str) -> (i64, i64) {
    let part = |range: std::ops::Range<usize>| time[range].parse::<i64>().unwrap();
    let (year, month, day) = (part(0..4), part(5..7), part(8..10));
    let is_leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let of_years: i64 = (2000..year).map(|year| if is_leap(year) { 366 } else { 365 }).sum();
    let of_month = |month: i64| match month {
        2 => 28 + i64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    let days = of_years + (1..month).map(of_month).sum::<i64>() + day - 1;
    (days * 24 + part(11..13), part(14..16))
}

/// Times and values of a column of a file.
fn series(path: &Path, column: usize) -> Vec<(i64, f64)> {
    let text = std::fs::read_to_string(path).unwrap();
    let row = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        (hour_and_minute(fields[0]).0, fields[column].parse().unwrap())
    };
    text.lines().skip(1).filter(|line| !line.is_empty()).map(row).collect()
}

/// Count, mean, least and greatest value of each window that begins at one of these hours.
fn windows(series: &[(i64, f64)], slide: i64, size: i64) -> BTreeMap<i64, (u64, f64, f64, f64)> {
    let mut windows: BTreeMap<i64, Vec<f64>> = BTreeMap::new();
    for &(hour, value) in series {
        let last = hour.div_euclid(slide) * slide;
        for start in (0..size / slide).map(|before| last - before * slide) {
            windows.entry(start).or_default().push(value);
        }
    }
    let of = |values: Vec<f64>| {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        (values.len() as u64, mean, least, values.iter().copied().fold(f64::NEG_INFINITY, f64::max))
    };
    windows.into_iter().map(|(start, values)| (start, of(values))).collect()
}

#[test]
fn windows_over_the_loads_of_transformers_equal_the_reference() {
    let Some(data) = real_series() else { return };
    for (file, durability) in [("ETTh1.csv", Durability::None), ("ETTh2.csv", Durability::Sync)] {
        let path = data.join("transformer").join(file);
        let directory = tempfile::tempdir().unwrap();
        let open = || Database::open(directory.path(), Options { durability, ..Options::default() }).unwrap();
        let database = open();
        let mut session = database.session().unwrap();
        let columns = "count(*) AS n, avg(\"OT\") AS mean, min(\"OT\") AS least, max(\"OT\") AS most";
        session
            .execute(&format!(
                "CREATE SOURCE transformer (date TIMESTAMP NOT NULL, \"OT\" DOUBLE, WATERMARK FOR date AS date)
                     WITH (connector = 'file', path = '{}') FORMAT PLAIN ENCODE CSV;
                 CREATE TABLE tumbling (start TIMESTAMP PRIMARY KEY, n BIGINT, mean DOUBLE, least DOUBLE, most DOUBLE);
                 CREATE TABLE hopping (start TIMESTAMP PRIMARY KEY, n BIGINT, mean DOUBLE, least DOUBLE, most DOUBLE);
                 CREATE TOPOLOGY loads COMMIT EVERY 500 ROWS AS (
                     INSERT INTO tumbling SELECT window_start, {columns}
                         FROM TUMBLE(transformer, date, INTERVAL '6 hours') GROUP BY window_start EMIT ON WINDOW CLOSE;
                     INSERT INTO hopping SELECT window_start, {columns}
                         FROM HOP(transformer, date, INTERVAL '4 hours', INTERVAL '1 day') GROUP BY window_start EMIT ON WINDOW CLOSE)",
                path.display()
            ))
            .unwrap();
        wait_for(&mut session, "SELECT count(*) > 100 FROM tumbling", "true");
        // It goes on where it was, if it has not ended yet.
        drop((session, database));
        let database = open();
        let mut session = database.session().unwrap();
        wait_for_end(&mut session, "loads");
        let loads = series(&path, 7);
        for (table, slide, size) in [("tumbling", 6, 6), ("hopping", 4, 24)] {
            let sql = format!("SELECT start, n, mean, least, most FROM {table} ORDER BY start");
            let found = rows(&mut session, &sql);
            let expected = windows(&loads, slide, size);
            assert_eq!(found.len(), expected.len(), "{file}, {table}");
            for (row, (start, (count, mean, least, most))) in found.iter().zip(expected) {
                let number = |at: usize| row[at].parse::<f64>().unwrap();
                assert_eq!(hour_and_minute(&row[0]).0, start, "{file}, {table}: {row:?}");
                assert_eq!(
                    (row[1].parse::<u64>().unwrap(), number(3), number(4)),
                    (count, least, most),
                    "{row:?}"
                );
                assert!((number(2) - mean).abs() <= 1e-9 * mean.abs().max(1.0), "{row:?}: {mean}");
            }
        }
    }
}

/// Begin and end of each labelled window of a file of the benchmark.
fn labels(data: &Path, file: &str) -> Vec<(i64, i64)> {
    let text = std::fs::read_to_string(data.join("nab/labels/combined_windows.json")).unwrap();
    let of_file = text.split(&format!("\"{file}\": [")).nth(1).unwrap();
    let of_file = of_file.split("],\n    \"").next().unwrap();
    let times: Vec<i64> = of_file.split('"').skip(1).step_by(2).map(|time| hour_and_minute(time).0).collect();
    times.chunks(2).map(|window| (window[0], window[1])).collect()
}

#[test]
fn alarms_on_a_labelled_series_equal_the_reference() {
    const COLDEST: f64 = 55.0;
    let Some(data) = real_series() else { return };
    let file = "realKnownCause/machine_temperature_system_failure.csv";
    let path = data.join("nab/data").join(file);
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    // The clock of the series is set back an hour once.
    session
        .execute(&format!(
            "CREATE SOURCE machine (timestamp TIMESTAMP NOT NULL, value DOUBLE,
                     WATERMARK FOR timestamp AS timestamp - INTERVAL '2 hours')
                 WITH (connector = 'file', path = '{}') FORMAT PLAIN ENCODE CSV;
             CREATE TABLE hourly (hour TIMESTAMP PRIMARY KEY, mean DOUBLE);
             CREATE TABLE bounds (id INT PRIMARY KEY, coldest DOUBLE);
             CREATE TABLE alarms (hour TIMESTAMP PRIMARY KEY, mean DOUBLE);
             INSERT INTO bounds VALUES (1, {COLDEST});
             CREATE TOPOLOGY watching COMMIT EVERY 100 ROWS AS (
                 INSERT INTO hourly SELECT window_start, avg(value)
                     FROM TUMBLE(machine, timestamp, INTERVAL '1 hour') GROUP BY window_start EMIT ON WINDOW CLOSE;
                 INSERT INTO alarms SELECT h.hour, h.mean FROM CHANGES(hourly) FOR EACH COMMIT AS h
                     JOIN bounds b ON b.id = 1 WHERE h.mean < b.coldest)",
            path.display()
        ))
        .unwrap();
    wait_for_end(&mut session, "watching");
    assert_eq!(rows(&mut session, "SELECT late FROM entresol.topologies"), [["0"]]);
    let alarms = rows(&mut session, "SELECT hour, mean FROM alarms ORDER BY hour");
    let alarms: Vec<(i64, f64)> =
        alarms.iter().map(|row| (hour_and_minute(&row[0]).0, row[1].parse().unwrap())).collect();
    let expected = windows(&series(&path, 1), 1, 1);
    let expected: Vec<(i64, f64)> = expected
        .into_iter()
        .map(|(hour, (_, mean, ..))| (hour, mean))
        .filter(|(_, mean)| *mean < COLDEST)
        .collect();
    assert_eq!(alarms.len(), expected.len());
    for (found, wanted) in alarms.iter().zip(&expected) {
        assert!(found.0 == wanted.0 && (found.1 - wanted.1).abs() < 1e-9, "{found:?}, {wanted:?}");
    }
    let labels = labels(&data, file);
    assert_eq!(labels.len(), 4);
    for (begin, end) in labels {
        assert!(
            alarms.iter().any(|(hour, _)| (begin..=end).contains(hour)),
            "no alarm from {begin} to {end}"
        );
    }
}
