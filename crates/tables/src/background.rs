//! Background threads of a catalog.

use crate::catalog::Catalog;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

/// Thread that works on the tables of a catalog until it is stopped or dropped, or the catalog is dropped.
pub(crate) struct BackgroundThread {
    stop: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl BackgroundThread {
    /// Starts a thread that runs `work` until its flag is set, parked between its rounds. There is none in a simulated
    /// environment, and none, with a warning, where none can be had: `purpose` says what it was for.
    pub(crate) fn start(
        catalog: &Arc<Catalog>,
        name: &str,
        purpose: &str,
        work: fn(&Weak<Catalog>, &AtomicBool),
    ) -> BackgroundThread {
        let stop = Arc::new(AtomicBool::new(false));
        let env = catalog.context().pool().env();
        let mut thread = None;
        if !env.is_simulated() {
            let (catalog, stop) = (Arc::downgrade(catalog), Arc::clone(&stop));
            match env.spawn(name, move || work(&catalog, &stop)) {
                Ok(handle) => thread = Some(handle),
                Err(error) => tracing::warn!(%error, "cannot start a thread to {purpose}"),
            }
        }
        BackgroundThread { stop, thread: Mutex::new(thread) }
    }

    /// Ends the thread, after the step that it is at.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
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

impl Drop for BackgroundThread {
    fn drop(&mut self) {
        self.stop();
    }
}
