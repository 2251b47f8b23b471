//! Summary of a run of the demo.

use serde_json::json;

/// The results of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Summary {
    /// Readings of households and infrastructure that were committed in this run.
    pub readings: u64,
    /// Transactions that were committed in this run; with crashes, positions that victims saw.
    pub transactions: u64,
    /// Transactions that were aborted.
    pub aborts: u64,
    /// Alarms of this run.
    pub alarms: u64,
    /// Duration of the streams, in seconds.
    pub seconds: f64,
    /// Time to write the input files before, in seconds; with crashes, none.
    pub input_seconds: f64,
    /// Median of the time a commit takes.
    pub commit_p50_us: f64,
    /// 99th percentile of the time a commit takes.
    pub commit_p99_us: f64,
    /// Time to open the database; with crashes, the longest.
    pub recovery_ms: f64,
    /// Checks of snapshots over several states.
    pub snapshot_checks: u64,
    /// Checks that found states that do not fit together.
    pub snapshot_violations: u64,
    /// Transactions that were reported committed and are lost.
    pub lost_transactions: u64,
    /// Transactions that are there in part, or states that no prefix of the streams explains.
    pub torn_transactions: u64,
    /// Bytes of the pool.
    pub pool_bytes: u64,
    /// Rows of the files that could not be read.
    pub rejected_rows: u64,
    /// Kills, with `--crash`.
    pub cycles: Option<u32>,
    /// Score against known failures, if there are any.
    pub failures: Option<FailureScore>,
}

/// Score of alarms against known failures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FailureScore {
    /// Known failures whose entire time has been processed.
    pub known: u64,
    /// Known failures with at least one alarm of their channel.
    pub hit: u64,
    /// Windows of these channels outside the failures.
    pub windows_outside: u64,
    /// Windows outside the failures with an alarm.
    pub alarms_outside: u64,
}

impl FailureScore {
    /// Share of the windows outside the failures that alarm, in percent.
    pub fn false_alarm_percent(&self) -> f64 {
        self.alarms_outside as f64 / self.windows_outside.max(1) as f64 * 100.0
    }
}

impl Summary {
    /// Readings per second.
    pub fn readings_per_s(&self) -> f64 {
        if self.seconds > 0.0 { self.readings as f64 / self.seconds } else { 0.0 }
    }

    /// Tells whether there were no violations, losses or torn transactions.
    pub fn is_sound(&self) -> bool {
        self.snapshot_violations == 0 && self.lost_transactions == 0 && self.torn_transactions == 0
    }

    /// Names and values of the results, as people read them.
    pub fn rows(&self) -> Vec<[String; 2]> {
        let mut rows = vec![
            ("readings", self.readings.to_string()),
            ("readings per second", format!("{:.0}", self.readings_per_s())),
            ("seconds", format!("{:.2}", self.seconds)),
            ("input written in", format!("{:.2} s", self.input_seconds)),
            ("transactions", self.transactions.to_string()),
            ("aborts", self.aborts.to_string()),
            ("alarms", self.alarms.to_string()),
            ("commit p50 / p99", format!("{:.0} / {:.0} us", self.commit_p50_us, self.commit_p99_us)),
            ("open or recovery", format!("{:.1} ms", self.recovery_ms)),
            (
                "snapshot checks / violations",
                format!("{} / {}", self.snapshot_checks, self.snapshot_violations),
            ),
            ("pool", format!("{:.1} MiB", self.pool_bytes as f64 / f64::from(1 << 20))),
            ("rejected rows", self.rejected_rows.to_string()),
        ];
        if let Some(cycles) = self.cycles {
            rows.push(("kills", cycles.to_string()));
            rows.push((
                "lost / torn transactions",
                format!("{} / {}", self.lost_transactions, self.torn_transactions),
            ));
        }
        if let Some(score) = &self.failures {
            rows.push(("known failures hit", format!("{} of {}", score.hit, score.known)));
            let outside = format!("{:.2}% of {} windows", score.false_alarm_percent(), score.windows_outside);
            rows.push(("alarms outside failures", outside));
        }
        rows.into_iter().map(|(name, value)| [name.to_string(), value]).collect()
    }

    /// The results as JSON.
    pub fn to_json(&self) -> serde_json::Value {
        let mut object = json!({
            "readings": self.readings,
            "transactions": self.transactions,
            "aborts": self.aborts,
            "alarms": self.alarms,
            "seconds": self.seconds,
            "input_seconds": self.input_seconds,
            "readings_per_s": self.readings_per_s(),
            "commit_p50_us": self.commit_p50_us,
            "commit_p99_us": self.commit_p99_us,
            "recovery_ms": self.recovery_ms,
            "snapshot_checks": self.snapshot_checks,
            "snapshot_violations": self.snapshot_violations,
            "lost_transactions": self.lost_transactions,
            "torn_transactions": self.torn_transactions,
            "pool_bytes": self.pool_bytes,
            "rejected_rows": self.rejected_rows,
        });
        if let Some(cycles) = self.cycles {
            object["cycles"] = json!(cycles);
        }
        if let Some(score) = &self.failures {
            object["failures_known"] = json!(score.known);
            object["failures_hit"] = json!(score.hit);
            object["false_alarm_percent"] = json!(score.false_alarm_percent());
        }
        object
    }
}
