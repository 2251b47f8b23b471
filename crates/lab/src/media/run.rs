//! Threads that start together, work for a while and are counted.

use crate::Error;
use crate::measure::median;
use entresol_memory::placement::pin_thread;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Length and number of measurements.
#[derive(Debug, Clone, Copy)]
pub struct Rounds {
    /// One round.
    pub window: Duration,
    /// Rounds; the median counts.
    pub count: usize,
}

/// A thread's work: called again and again, returns the bytes that it has moved. It should take microseconds.
pub(super) type ThreadWork<'w> = Box<dyn FnMut() -> Result<u64, Error> + Send + 'w>;

/// GB/s of the first `measured` workers; the others only disturb them. `cpus`: where each one runs; none:
/// anywhere.
pub(super) fn gb_per_s<'w>(
    rounds: Rounds,
    measured: usize,
    cpus: Option<&[usize]>,
    make: impl Fn(usize) -> Result<Vec<ThreadWork<'w>>, Error>,
) -> Result<f64, Error> {
    let mut samples = Vec::new();
    for round in 0..rounds.count {
        samples.push(one_round(rounds.window, measured, cpus, make(round)?)?);
    }
    Ok(median(&samples))
}

fn one_round(
    window: Duration,
    measured: usize,
    cpus: Option<&[usize]>,
    workers: Vec<ThreadWork<'_>>,
) -> Result<f64, Error> {
    let barrier = Barrier::new(workers.len() + 1);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (barrier, over) = (&barrier, &over);
        let threads: Vec<_> = workers
            .into_iter()
            .enumerate()
            .map(|(i, work)| {
                let cpu = cpus.map(|cpus| cpus[i % cpus.len()]);
                scope.spawn(move || one_thread(barrier, over, cpu, work))
            })
            .collect();
        barrier.wait();
        std::thread::sleep(window);
        over.store(true, Ordering::Relaxed);
        let mut ran = Vec::new();
        for thread in threads {
            ran.push(thread.join().expect("a measuring thread does not panic")?);
        }
        // The last to arrive lets all go. A thread that gets no processor at first has worked since then,
        // too.
        let start = ran.iter().map(|ran| ran.arrived).max().expect("there is a worker");
        let rate_of = |ran: &ThreadRun| ran.bytes as f64 / (ran.ended - start).as_secs_f64() / 1e9;
        Ok(ran.iter().take(measured).map(rate_of).sum())
    })
}

/// Bytes of a thread, with begin and end.
struct ThreadRun {
    bytes: u64,
    arrived: Instant,
    ended: Instant,
}

fn one_thread(
    barrier: &Barrier,
    over: &AtomicBool,
    cpu: Option<usize>,
    mut work: ThreadWork<'_>,
) -> Result<ThreadRun, Error> {
    let pinned = cpu.map_or(Ok(()), |cpu| pin_thread(&[cpu]));
    let arrived = Instant::now();
    // Even a thread that could not be pinned must not keep the others waiting.
    barrier.wait();
    pinned?;
    let mut bytes = work()?;
    while !over.load(Ordering::Relaxed) {
        bytes += work()?;
    }
    Ok(ThreadRun { bytes, arrived, ended: Instant::now() })
}
