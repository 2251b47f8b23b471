//! Progress of subscriptions. `entresol.subscriptions` shows it.
//!
//! Memory: one entry per subscription that runs, which goes with it.

use crate::session::variables::Client;
use entresol_transactions::{AtomicTimestamp, Timestamp};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Progress of one subscription, shared between it and those who ask.
#[derive(Debug)]
pub(crate) struct SubscriptionProgress {
    relations: String,
    began: Instant,
    /// True once it sends changes.
    is_behind_snapshot: AtomicBool,
    /// Timestamp up to which changes were sent.
    position: AtomicTimestamp,
    rows: AtomicU64,
}

impl SubscriptionProgress {
    /// Progress of a subscription to relations that begins now.
    pub(crate) fn begin(relations: String) -> SubscriptionProgress {
        SubscriptionProgress {
            relations,
            began: Instant::now(),
            is_behind_snapshot: AtomicBool::new(false),
            position: AtomicTimestamp::new(Timestamp::START),
            rows: AtomicU64::new(0),
        }
    }

    /// Notes rows that are sent.
    pub(crate) fn add(&self, rows: usize) {
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
    }

    /// Notes that all changes up to a timestamp were sent.
    pub(crate) fn reached(&self, position: Timestamp) {
        self.is_behind_snapshot.store(true, Ordering::Relaxed);
        self.position.store(position, Ordering::Relaxed);
    }
}

/// Line of `entresol.subscriptions`.
pub(crate) struct SubscriptionLine {
    pub(crate) client: Client,
    pub(crate) relations: String,
    /// Phase: the rows that were there, or the changes.
    pub(crate) phase: &'static str,
    /// Timestamp up to which changes were sent; none before.
    pub(crate) position: Option<Timestamp>,
    pub(crate) rows: u64,
    pub(crate) elapsed: Duration,
}

impl SubscriptionLine {
    /// Line of a subscription of a client.
    pub(crate) fn new(client: Client, progress: &SubscriptionProgress) -> SubscriptionLine {
        let sends_changes = progress.is_behind_snapshot.load(Ordering::Relaxed);
        SubscriptionLine {
            client,
            relations: progress.relations.clone(),
            phase: if sends_changes { "changes" } else { "snapshot" },
            position: sends_changes.then(|| progress.position.load(Ordering::Relaxed)),
            rows: progress.rows.load(Ordering::Relaxed),
            elapsed: progress.began.elapsed(),
        }
    }
}
