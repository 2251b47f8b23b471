//! `entresol demo smart-metering`: results, JSON, going on, bad rows, the rule on real series.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::path::Path;
use support::{demo, entresol, real_series, stderr, succeed};

fn count(dir: &Path, sql: &str) -> i64 {
    let text = succeed(&["shell", dir.to_str().unwrap(), "--format", "csv", "-c", sql]);
    text.lines().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_small_run_fills_all_states_and_the_json() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    let arguments = ["--readings", "30000", "--dir", db.to_str().unwrap(), "--durability", "group:10ms"];
    let (json, text) = demo(dir.path(), &arguments);
    for key in [
        "readings",
        "transactions",
        "aborts",
        "alarms",
        "seconds",
        "input_seconds",
        "readings_per_s",
        "commit_p50_us",
        "commit_p99_us",
        "recovery_ms",
        "snapshot_checks",
        "snapshot_violations",
        "lost_transactions",
        "torn_transactions",
        "pool_bytes",
        "rejected_rows",
    ] {
        assert!(json[key].is_number(), "{key} in {json}");
    }
    assert_eq!(json["readings"], 30_000);
    assert!(json["alarms"].as_u64().unwrap() > 0, "{json}");
    assert!(json["snapshot_checks"].as_u64().unwrap() > 0, "{json}");
    for key in ["snapshot_violations", "lost_transactions", "torn_transactions", "rejected_rows", "aborts"] {
        assert_eq!(json[key], 0, "{key}");
    }
    assert!(text.contains("ALARM 2025-01-06"), "{text}");
    assert!(text.contains("| readings "), "{text}");

    let alarms = json["alarms"].as_i64().unwrap();
    assert_eq!(count(&db, "SELECT count(*) FROM alarms"), alarms);
    let all = "SELECT (SELECT sum(readings) FROM meter) + (SELECT sum(readings) FROM infrastructure)";
    assert_eq!(count(&db, all), 30_000);
    assert_eq!(count(&db, "SELECT count(*) FROM latest"), 6);
    assert!(count(&db, "SELECT count(*) FROM alarms WHERE reason = 'above demand'") > 0);
    assert!(count(&db, "SELECT count(*) FROM alarms WHERE reason <> 'above demand'") > 0);
    assert_eq!(count(&db, "SELECT count(DISTINCT feeder) FROM household"), 2);
    // Every failure whose time is over is hit, and nothing else alarms.
    assert_eq!(json["failures_hit"], json["failures_known"]);
    assert!(json["false_alarm_percent"].as_f64().unwrap() < 1.0, "{json}");

    // The same again: nothing is left to do; other arguments: refused.
    let (again, _) = demo(dir.path(), &arguments);
    assert_eq!((&again["readings"], &again["alarms"]), (&serde_json::json!(0), &serde_json::json!(0)));
    let other = entresol(&[
        "demo",
        "smart-metering",
        "--dir",
        db.to_str().unwrap(),
        "--readings",
        "30000",
        "--seed",
        "9",
    ]);
    assert_eq!(other.status.code(), Some(1));
    assert!(stderr(&other).contains("holds a demo with"), "{}", stderr(&other));
}

#[test]
fn seeds_repeat_and_differ() {
    let dir = tempfile::tempdir().unwrap();
    let alarms = |db: &str, seed: &str| {
        let db = dir.path().join(db);
        let arguments = ["--readings", "20000", "--durability", "none", "--seed", seed, "--dir"];
        demo(dir.path(), &[&arguments[..], &[db.to_str().unwrap()]].concat());
        succeed(&[
            "shell",
            db.to_str().unwrap(),
            "--format",
            "csv",
            "-c",
            "SELECT * FROM alarms ORDER BY asset, quantity, window_start",
        ])
    };
    let first = alarms("a", "1");
    assert_eq!(first, alarms("b", "1"));
    assert_ne!(first, alarms("c", "2"));
}

/// A small directory of series in the layout of the real ones, with bad rows.
fn series(dir: &Path) {
    let household = dir.join("household");
    fs::create_dir_all(&household).unwrap();
    let mut text =
        String::from("Date;Time;Global_active_power;Global_reactive_power;Voltage;Global_intensity;a;b;c\n");
    for minute in 0..1500 {
        let (day, hour, minute) = (16 + minute / 1440, minute / 60 % 24, minute % 60);
        let kw = if minute == 7 { "?" } else { "1.25" };
        text += &format!("{day}/12/2006;{hour:02}:{minute:02}:00;{kw};0.1;235.5;5;0;0;0\n");
    }
    text +=
        "17/12/2006;02:00:00;lots;0.1;235.5;5;0;0;0\n17/12/2006;02:01\n99/99/2006;02:02:00;1;1;1;1;1;1;1\n";
    fs::write(household.join("household_power_consumption.txt"), text).unwrap();
    let transformer = dir.join("transformer");
    fs::create_dir_all(&transformer).unwrap();
    let mut text = String::from("date,HUFL,HULL,MUFL,MULL,LUFL,LULL,OT\n");
    for hour in 0..48 {
        text += &format!(
            "2016-07-{:02} {:02}:00:00,5.8,2,1.5,0.4,4.2,1.3,{}\n",
            1 + hour / 24,
            hour % 24,
            20 + hour % 5
        );
    }
    text += "2016-07-03 00:00:00,5.8,2,1.5,0.4,4.2,1.3,\"hot\n";
    fs::write(transformer.join("ETTh1.csv"), text).unwrap();
}

#[test]
fn bad_rows_are_counted_and_written_down() {
    let dir = tempfile::tempdir().unwrap();
    let (data, db, rejects) = (dir.path().join("data"), dir.path().join("db"), dir.path().join("bad.csv"));
    series(&data);
    let arguments = [
        "--data",
        data.to_str().unwrap(),
        "--dir",
        db.to_str().unwrap(),
        "--rejects",
        rejects.to_str().unwrap(),
        "--meters",
        "3",
    ];
    let (json, _) = demo(dir.path(), &arguments);
    assert_eq!(json["rejected_rows"], 4, "{json}");
    let text = fs::read_to_string(&rejects).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 5, "{text}");
    assert!(lines[1].contains(",1502,Global_active_power: 'lots' is not a number,"), "{}", lines[1]);
    assert!(lines[2].contains(",1503,\"2 fields, 9 expected\","), "{}", lines[2]);
    assert!(lines[4].contains("ETTh1.csv,50,"), "{}", lines[4]);
    // The rest goes on: all meters over the time of the transformer, `?` as missing.
    assert_eq!(json["readings"], 3 * (47 * 60 + 1) + 2 * 48);
    assert_eq!(count(&db, "SELECT count(DISTINCT meter) FROM meter"), 3);
    assert!(count(&db, "SELECT sum(readings - measured) FROM meter") > 0);
    assert_eq!(count(&db, "SELECT count(*) FROM infrastructure WHERE quantity = 'oil_temperature'"), 48);
}

#[test]
fn a_directory_without_series_is_a_clear_error() {
    let dir = tempfile::tempdir().unwrap();
    let output = entresol(&["demo", "smart-metering", "--data", dir.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("error: no series in "), "{}", stderr(&output));
    fs::create_dir_all(dir.path().join("transformer")).unwrap();
    fs::write(dir.path().join("transformer/ETTh1.csv"), "when,what\n1,2\n").unwrap();
    let output = entresol(&["demo", "smart-metering", "--data", dir.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("ETTh1.csv: the first line has no column 'date'"),
        "{}",
        stderr(&output)
    );
}

/// The rule (limits of a machine: the mean of its first week, give or take three standard deviations) hits at
/// least three of the four labelled failures, with at most 5% of the half hours outside of them.
#[test]
fn the_temperature_rule_hits_the_labelled_failures() {
    let Some(data) = real_series() else { return };
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    let arguments = [
        "--data",
        data.to_str().unwrap(),
        "--readings",
        "100000",
        "--meters",
        "2",
        "--durability",
        "none",
        "--dir",
        db.to_str().unwrap(),
    ];
    let (json, _) = demo(dir.path(), &arguments);
    assert_eq!(json["readings"], 100_000);
    assert_eq!(json["failures_known"], 4, "{json}");
    assert!(json["failures_hit"].as_u64().unwrap() >= 3, "{json}");
    assert!(json["false_alarm_percent"].as_f64().unwrap() <= 5.0, "{json}");

    // The same from the table, without the demo's own count.
    let hits = |from: &str, until: &str| {
        count(
            &db,
            &format!(
                "SELECT count(*) FROM alarms WHERE asset = 'machine-1' AND window_start BETWEEN TIMESTAMP '{from}' \
                 AND TIMESTAMP '{until}'"
            ),
        )
    };
    let windows = [
        ("2013-12-10 06:00:00", "2013-12-12 05:35:00"),
        ("2013-12-15 17:30:00", "2013-12-17 17:00:00"),
        ("2014-01-27 14:00:00", "2014-01-29 13:30:00"),
        ("2014-02-07 14:30:00", "2014-02-09 14:05:00"),
    ];
    let inside: Vec<i64> = windows.iter().map(|(from, until)| hits(from, until)).collect();
    assert!(inside.iter().filter(|hits| **hits > 0).count() >= 3, "{inside:?}");
    let all = count(&db, "SELECT count(*) FROM alarms WHERE asset = 'machine-1'");
    let half_hours = count(&db, "SELECT count(*) FROM infrastructure WHERE asset = 'machine-1'");
    let outside = all - inside.iter().sum::<i64>();
    assert!(outside * 20 <= half_hours, "{outside} of about {half_hours}");
}

/// The sessions' checks must be able to fail: states that do not fit together are violations.
#[test]
fn states_that_do_not_fit_are_violations() {
    let dir = tempfile::tempdir().unwrap();
    for (number, tampering) in [
        "UPDATE latest SET window_start = TIMESTAMP '2020-01-01 00:00:00' WHERE asset = 'generator-1'",
        "DELETE FROM meter WHERE meter = 2",
        "UPDATE household SET readings = readings + 1 WHERE feeder = 'transformer-1'",
        "DELETE FROM infrastructure WHERE window_start = (SELECT MIN(window_start) FROM infrastructure)",
    ]
    .iter()
    .enumerate()
    {
        let db = dir.path().join(number.to_string());
        let arguments = ["--readings", "10000", "--durability", "none", "--dir", db.to_str().unwrap()];
        demo(dir.path(), &arguments);
        succeed(&["shell", db.to_str().unwrap(), "-c", tampering]);
        let output = entresol(&[&["demo", "smart-metering"], &arguments[..]].concat());
        assert_eq!(output.status.code(), Some(1), "not noticed: {tampering}");
        assert!(stderr(&output).contains("snapshot violation: "), "{tampering}: {}", stderr(&output));
    }
}
