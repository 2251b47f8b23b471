//! The thread that gives columns their shares, for proportional caching.
//!
//! Begins with the first pipeline, and sleeps until there is another one; between two solutions are at least
//! [`INTERVAL`] and [`REST`] times what the last one took: a twentieth of a processor at most. Ends with the cache.

use super::PageCache;
use super::model::{Share, Shares};
use entresol_memory::Env;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time between two solutions at least.
const INTERVAL: Duration = Duration::from_millis(200);
/// Time between two solutions to that of the last one, at least.
const REST: u32 = 20;

/// Change of a share's bytes that is passed on to the policy.
const CHANGE_MIN: f64 = 0.01;

/// Thread that tunes a cache; see the [module](self).
pub(super) struct Tuner {
    env: Option<Env>,
    signals: Arc<Signals>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Signals {
    stop: AtomicBool,
    has_news: AtomicBool,
}

impl Tuner {
    /// Tuner whose thread runs in an environment; without one it has none.
    pub(super) fn new(env: Option<&Env>) -> Tuner {
        Tuner { env: env.cloned(), signals: Arc::default(), thread: Mutex::new(None) }
    }

    /// Lets the thread look at the pipelines; starts it if there is none.
    pub(super) fn wake(&self, cache: &Arc<PageCache>) {
        if self.signals.has_news.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut thread = self.thread.lock();
        if let Some(thread) = &*thread {
            thread.thread().unpark();
            return;
        }
        let Some(env) = &self.env else { return };
        let (cache, signals) = (Arc::downgrade(cache), Arc::clone(&self.signals));
        match env.spawn("entresol-cache", move || run(&cache, &signals)) {
            Ok(handle) => *thread = Some(handle),
            Err(error) => tracing::warn!(%error, "cannot start a thread to tune the page cache"),
        }
    }
}

impl Drop for Tuner {
    fn drop(&mut self) {
        self.signals.stop.store(true, Ordering::Release);
        let thread = self.thread.lock().take();
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
        {
            thread.thread().unpark();
            // Its panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

fn run(cache: &Weak<PageCache>, signals: &Signals) {
    while !signals.stop.load(Ordering::Acquire) {
        if !signals.has_news.swap(false, Ordering::AcqRel) {
            std::thread::park();
            continue;
        }
        let Some(cache) = cache.upgrade() else { return };
        let began = Instant::now();
        cache.tune();
        drop(cache);
        let next = Instant::now() + INTERVAL.max(REST * began.elapsed());
        while !signals.stop.load(Ordering::Acquire)
            && let Some(left) = next.checked_duration_since(Instant::now())
        {
            std::thread::park_timeout(left);
        }
    }
}

/// Tells whether shares differ so much that the policy should have them.
pub(super) fn has_changed(before: &Shares, after: &Shares) -> bool {
    let is_other = |share: &Share, known: &Share| {
        (known.bytes as f64 - share.bytes as f64).abs() > CHANGE_MIN * known.bytes.max(share.bytes) as f64
    };
    before.keys().ne(after.keys())
        || before.values().zip(after.values()).any(|(known, share)| is_other(share, known))
}
