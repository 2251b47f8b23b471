//! Metrics of the server, in the text format of Prometheus.
//!
//! Counting a statement that succeeds is a few atomic additions. Statements that fail are counted by SQLSTATE
//! under a lock; the codes are those of [`crate::error`], so there is a bound.

use crate::clients::Clients;
use entresol::Database;
use entresol::memory::budget::{ConsumerUsage, MemoryUsage};
use entresol::query::{StatementKind, StreamMetric};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Upper bounds of the histogram's buckets, in microseconds.
const BUCKETS_US: [u64; 14] = [
    50,
    100,
    250,
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    50_000,
    100_000,
    500_000,
    1_000_000,
    10_000_000,
    100_000_000,
];

/// Counters of a server since it was started.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) connections_total: AtomicU64,
    pub(crate) refused_total: AtomicU64,
    pub(crate) authentication_failures_total: AtomicU64,
    pub(crate) cancelled_total: AtomicU64,
    pub(crate) vanished_total: AtomicU64,
    pub(crate) commits_total: AtomicU64,
    pub(crate) rollbacks_total: AtomicU64,
    pub(crate) rows_sent_total: AtomicU64,
    pub(crate) rows_written_total: AtomicU64,
    pub(crate) bytes_received_total: AtomicU64,
    pub(crate) bytes_sent_total: AtomicU64,
    succeeded: [AtomicU64; StatementKind::ALL.len()],
    failed: Mutex<BTreeMap<(&'static str, &'static str), u64>>,
    buckets: [AtomicU64; BUCKETS_US.len() + 1],
    microseconds: AtomicU64,
}

pub(crate) fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

impl Metrics {
    /// Counts a statement that ended; `code` is its SQLSTATE if it failed.
    pub(crate) fn statement(&self, kind: StatementKind, code: Option<&'static str>, took: Duration) {
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = BUCKETS_US.iter().position(|&bound| took_us <= bound).unwrap_or(BUCKETS_US.len());
        add(&self.buckets[bucket], 1);
        add(&self.microseconds, took_us);
        match code {
            None => add(&self.succeeded[kind as usize], 1),
            Some(code) => {
                let mut counts = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
                *counts.entry((kind.name(), code)).or_default() += 1;
            }
        }
    }

    /// The metrics in the text format of Prometheus.
    pub(crate) fn text(&self, db: &Database, clients: &Clients) -> String {
        let mut out = String::new();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let pool = db.stats().pool;
        let gauges = [
            ("connections", "Open connections.", clients.count()),
            ("open_transactions", "Open transaction blocks.", clients.open_transactions()),
            ("query_memory_bytes", "Memory used by queries.", db.query_memory_bytes() as u64),
            ("pool_bytes", "Size of the pool.", pool.pool_bytes),
            ("allocated_bytes", "Bytes of the pool in use.", pool.allocated_bytes),
            ("journal_bytes", "Bytes in the journal since the last checkpoint.", pool.journal_bytes),
        ];
        for (name, help, value) in gauges {
            metric(&mut out, name, "gauge", help, value);
        }
        memory(&mut out, &db.memory_usage());
        header(&mut out, "oldest_transaction_seconds", "gauge", "Age of the oldest open transaction block.");
        let _ = writeln!(
            out,
            "entresol_oldest_transaction_seconds {}",
            clients.oldest_transaction().as_secs_f64()
        );
        let counters = [
            ("connections_total", "Connections accepted.", count(&self.connections_total)),
            ("connections_refused_total", "Connections refused above the limit.", count(&self.refused_total)),
            (
                "authentication_failures_total",
                "Failed authentications: wrong passwords and unknown roles.",
                count(&self.authentication_failures_total),
            ),
            ("cancelled_total", "Statements cancelled or timed out.", count(&self.cancelled_total)),
            (
                "clients_vanished_total",
                "Clients that disconnected without a Terminate message.",
                count(&self.vanished_total),
            ),
            ("commits_total", "Commits of blocks and of single writes.", count(&self.commits_total)),
            ("rollbacks_total", "Blocks rolled back.", count(&self.rollbacks_total)),
            ("conflicts_total", "Statements that failed with SQLSTATE class 40.", self.conflicts()),
            ("rows_sent_total", "Rows sent to clients.", count(&self.rows_sent_total)),
            ("rows_written_total", "Rows inserted, updated, deleted.", count(&self.rows_written_total)),
            ("bytes_received_total", "Bytes from clients.", count(&self.bytes_received_total)),
            ("bytes_sent_total", "Bytes to clients.", count(&self.bytes_sent_total)),
            ("journal_appended_bytes_total", "Bytes appended to the journal.", pool.journal_appended_bytes),
            ("checkpoints_total", "Checkpoints.", pool.checkpoints),
            ("checkpoint_bytes_total", "Bytes written by checkpoints.", pool.checkpoint_bytes),
            ("flushes_total", "Flushes.", pool.flushes),
            ("fences_total", "Fences.", pool.fences),
            ("syncs_total", "Syncs of files.", pool.syncs),
        ];
        for (name, help, value) in counters {
            metric(&mut out, name, "counter", help, value);
        }
        match db.stream_metrics() {
            Ok(metrics) => metrics.iter().for_each(|metric| stream_metric(&mut out, metric)),
            Err(error) => tracing::warn!(%error, "could not read the metrics of topologies"),
        }
        self.statements(&mut out);
        self.histogram(&mut out);
        out
    }

    fn conflicts(&self) -> u64 {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.iter().filter(|((_, code), _)| code.starts_with("40")).map(|(_, count)| count).sum()
    }

    fn statements(&self, out: &mut String) {
        header(out, "statements_total", "counter", "Statements by kind and SQLSTATE.");
        for (kind, count) in StatementKind::ALL.iter().zip(&self.succeeded) {
            let (kind, count) = (kind.name(), count.load(Ordering::Relaxed));
            let _ = writeln!(out, "entresol_statements_total{{kind=\"{kind}\",sqlstate=\"00000\"}} {count}");
        }
        for ((kind, code), count) in &*self.failed.lock().unwrap_or_else(PoisonError::into_inner) {
            let _ = writeln!(out, "entresol_statements_total{{kind=\"{kind}\",sqlstate=\"{code}\"}} {count}");
        }
    }

    fn histogram(&self, out: &mut String) {
        header(out, "statement_seconds", "histogram", "Duration of statements, sending their rows included.");
        let mut sum = 0;
        for (at, bucket) in self.buckets.iter().enumerate() {
            sum += bucket.load(Ordering::Relaxed);
            let bound = BUCKETS_US.get(at).map(|&us| (us as f64 / 1e6).to_string());
            let bound = bound.unwrap_or_else(|| "+Inf".to_owned());
            let _ = writeln!(out, "entresol_statement_seconds_bucket{{le=\"{bound}\"}} {sum}");
        }
        let seconds = self.microseconds.load(Ordering::Relaxed) as f64 / 1e6;
        let _ = writeln!(out, "entresol_statement_seconds_sum {seconds}");
        let _ = writeln!(out, "entresol_statement_seconds_count {sum}");
    }
}

fn header(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP entresol_{name} {help}\n# TYPE entresol_{name} {kind}");
}

/// The memory budget and its consumers.
fn memory(out: &mut String, usage: &MemoryUsage) {
    metric(out, "memory_max_bytes", "gauge", "Memory budget of the database.", usage.max_bytes);
    type Value = fn(&ConsumerUsage) -> u64;
    let gauges: [(&str, &str, Value); 2] = [
        ("memory_used_bytes", "Memory in use, by consumer.", |line| line.used_bytes),
        ("memory_peak_bytes", "Peak memory use, by consumer.", |line| line.peak_bytes),
    ];
    for (name, help, value) in gauges {
        header(out, name, "gauge", help);
        for line in &usage.consumers {
            let _ = writeln!(out, "entresol_{name}{{consumer=\"{}\"}} {}", line.consumer, value(line));
        }
    }
}

/// Metric of topologies, operators or sources.
fn stream_metric(out: &mut String, metric: &StreamMetric) {
    header(out, metric.name, if metric.is_counter { "counter" } else { "gauge" }, metric.help);
    for (labels, value) in &metric.values {
        let labels: Vec<String> =
            labels.iter().map(|(label, value)| format!("{label}=\"{}\"", escaped(value))).collect();
        let _ = writeln!(out, "entresol_{}{{{}}} {value}", metric.name, labels.join(","));
    }
}

/// Value of a label, as Prometheus reads it.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn metric(out: &mut String, name: &str, kind: &str, help: &str, value: u64) {
    header(out, name, kind, help);
    let _ = writeln!(out, "entresol_{name} {value}");
}
