//! Waits that may be long: for a lock, for a slot among the active transactions, for versions that readers
//! hold.
//!
//! They hold their thread. Where threads are few and the lock holder needs one of them, as in an asynchronous
//! runtime, a blocking executor runs them:
//! [`StateContext::set_blocking_executor`](crate::StateContext::set_blocking_executor).

use std::sync::OnceLock;

/// Executor for blocking calls: runs a wait, once, and returns when it is over.
pub type BlockingExecutor = fn(&mut dyn FnMut());

/// Executor of waits: the waiting thread itself if none is set.
#[derive(Debug, Default)]
pub(crate) struct Waits(OnceLock<BlockingExecutor>);

impl Waits {
    /// Sets the executor from now on. Only the first one counts.
    pub(crate) fn run_with(&self, run: BlockingExecutor) {
        let _ = self.0.set(run);
    }

    /// Waits. Cost without an executor: a load.
    pub(crate) fn run<R>(&self, wait: impl FnOnce() -> R) -> R {
        let Some(run) = self.0.get() else { return wait() };
        let (mut wait, mut waited) = (Some(wait), None);
        run(&mut || {
            if let Some(wait) = wait.take() {
                waited = Some(wait());
            }
        });
        match (waited, wait) {
            (Some(result), _) => result,
            // Not run: the executor has nothing to run it with.
            (None, Some(wait)) => wait(),
            (None, None) => unreachable!("a wait that was taken has a result"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wait_is_run_once_by_either_executor() {
        let waits = Waits::default();
        assert_eq!(waits.run(|| 1), 1);
        waits.run_with(|wait| {
            wait();
            wait();
        });
        waits.run_with(|_| panic!("only the first one counts"));
        let mut runs = 0;
        waits.run(|| runs += 1);
        assert_eq!(runs, 1);
        let lazy = Waits::default();
        lazy.run_with(|_| {});
        assert_eq!(lazy.run(|| 7), 7);
    }
}
