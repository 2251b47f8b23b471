//! Deterministic interleavings: threads run one at a time, and a seed selects the next one at each flush and
//! fence of a crashing pool. So an interleaving of threads can be repeated.
//!
//! The thread whose turn it is may wait for a latch that another one holds. If it calls [`waits`], another
//! one runs. A lock that sleeps reports nothing, so a thread that has waited [`STUCK_AFTER`] without progress
//! takes the turn; the other then runs beside it until its next flush. Schedules repeat up to that.

use super::point::SplitMix;
use parking_lot::{Condvar, Mutex};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Time without progress after which a turn counts as stuck.
const STUCK_AFTER: Duration = Duration::from_millis(20);

struct Turns {
    state: Mutex<State>,
    changed: Condvar,
    /// Counter of progress, so that waiting threads see whether another is stuck.
    progress: AtomicU64,
    /// True while crash states are explored, which takes its time.
    exploring: AtomicBool,
}

struct State {
    dice: SplitMix,
    turn: usize,
    alive: Vec<bool>,
}

thread_local! {
    /// Turns that this thread takes part in, and its number.
    static PART: RefCell<Option<(Arc<Turns>, usize)>> = const { RefCell::new(None) };
}

/// Runs threads to their ends, one at a time, switching at flushes and fences of crashing pools as the seed
/// selects. A panic of one of them is passed on.
///
/// ```
/// let log = std::sync::Mutex::new(Vec::new());
/// let threads: Vec<Box<dyn FnOnce() + Send>> =
///     vec![Box::new(|| log.lock().unwrap().push('a')), Box::new(|| log.lock().unwrap().push('b'))];
/// entresol_memory::crash::take_turns(7, threads);
/// assert_eq!(log.lock().unwrap().len(), 2);
/// ```
pub fn take_turns(seed: u64, threads: Vec<Box<dyn FnOnce() + Send + '_>>) {
    let mut dice = SplitMix::new(seed);
    let turn = dice.below(threads.len() as u64) as usize;
    let state = State { dice, turn, alive: vec![true; threads.len()] };
    let started = std::sync::Barrier::new(threads.len());
    let turns = Arc::new(Turns {
        state: Mutex::new(state),
        changed: Condvar::new(),
        progress: AtomicU64::new(0),
        exploring: AtomicBool::new(false),
    });
    std::thread::scope(|scope| {
        for (number, work) in threads.into_iter().enumerate() {
            let turns = Arc::clone(&turns);
            let started = &started;
            scope.spawn(move || {
                PART.set(Some((Arc::clone(&turns), number)));
                // Also when the thread panics: the others must go on.
                let _leaves = Leaves { turns: &turns, number };
                started.wait();
                turns.wait(number);
                work();
            });
        }
    });
}

/// Switches to another thread, perhaps: called before each flush and fence.
pub(crate) fn pass() {
    let part = PART.with_borrow(Option::clone);
    if let Some((turns, number)) = part {
        turns.pass(number);
    }
}

/// Announces that this thread waits for another one, e.g. for a latch, so that others run if threads take
/// turns. Otherwise the cost is a read of a thread-local.
pub fn waits() {
    let part = PART.with_borrow(Option::clone);
    if let Some((turns, number)) = part {
        turns.step_back(number);
    }
}

/// Runs a function outside of the turns: its flushes and fences switch no thread.
pub(crate) fn paused<T>(work: impl FnOnce() -> T) -> T {
    struct ResumeGuard(Option<(Arc<Turns>, usize)>);
    impl Drop for ResumeGuard {
        fn drop(&mut self) {
            if let Some((turns, number)) = self.0.take() {
                turns.exploring.store(false, Ordering::Release);
                turns.progress.fetch_add(1, Ordering::Relaxed);
                PART.set(Some((turns, number)));
            }
        }
    }
    let part = PART.take();
    if let Some((turns, _)) = &part {
        turns.exploring.store(true, Ordering::Release);
    }
    let _resumes = ResumeGuard(part);
    work()
}

impl Turns {
    fn pass(&self, number: usize) {
        self.progress.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state.lock();
        if state.turn == number && state.dice.below(3) == 0 {
            state.hand_over();
            self.changed.notify_all();
        }
        drop(state);
        self.wait(number);
    }

    fn step_back(&self, number: usize) {
        self.progress.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state.lock();
        if state.turn == number {
            let others: Vec<usize> =
                (0..state.alive.len()).filter(|other| *other != number && state.alive[*other]).collect();
            if others.is_empty() {
                return;
            }
            state.turn = others[state.dice.below(others.len() as u64) as usize];
            self.changed.notify_all();
        }
        drop(state);
        self.wait(number);
    }

    fn wait(&self, number: usize) {
        let mut state = self.state.lock();
        while state.turn != number {
            let before = self.progress.load(Ordering::Relaxed);
            let late = self.changed.wait_for(&mut state, STUCK_AFTER).timed_out();
            let still = before == self.progress.load(Ordering::Relaxed);
            if late && still && !self.exploring.load(Ordering::Acquire) {
                state.turn = number;
            }
        }
    }
}

impl State {
    /// Hands the turn over to some thread that has not ended.
    fn hand_over(&mut self) {
        let alive: Vec<usize> = (0..self.alive.len()).filter(|thread| self.alive[*thread]).collect();
        if !alive.is_empty() {
            self.turn = alive[self.dice.below(alive.len() as u64) as usize];
        }
    }
}

struct Leaves<'t> {
    turns: &'t Turns,
    number: usize,
}

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        PART.set(None);
        let mut state = self.turns.state.lock();
        state.alive[self.number] = false;
        if state.turn == self.number {
            state.hand_over();
        }
        self.turns.progress.fetch_add(1, Ordering::Relaxed);
        self.turns.changed.notify_all();
    }
}
