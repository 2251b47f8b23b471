//! Crash history of this crate: a linked stack whose objects are allocated and freed, of sizes from one slab
//! and from several, so that allocation, publications, root names and growth of the pool all take part.

use super::recorder::{Model, Recorder};
use super::{CrashOptions, CrashReport, check_at};
use crate::error::Result;
use crate::offset::PoolOffset;
use crate::pool::Pool;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const ROOT: &str = "stack";
/// Number pushed to try a recovered stack; larger than any step of a history.
const LATER: u64 = u64::MAX;

#[derive(Debug, Clone, Copy)]
enum Step {
    Push { number: u64, bytes: usize },
    Pop,
}

impl Model for Vec<u64> {
    type Operation = Option<u64>;

    /// Pushes a number, or pops one.
    fn apply(&mut self, pushed: &Option<u64>) {
        match pushed {
            Some(number) => self.push(*number),
            None => drop(self.pop()),
        }
    }

    fn difference(&self, found: &Self) -> String {
        format!("the stack is {found:?} in place of {self:?}")
    }
}

fn step(pool: &Pool, step: Step) -> Result<()> {
    let head = pool.root(ROOT).unwrap_or(PoolOffset::NULL);
    let mut publication = pool.publication();
    match step {
        Step::Pop => {
            publication.set_root(ROOT, PoolOffset::from_word(pool.word(head).load(Ordering::Relaxed)))?;
            publication.free(head);
        }
        Step::Push { number, bytes } => {
            let object = pool.reserve(bytes)?;
            // Both ways in which a publication includes a new object.
            if number % 2 == 0 {
                publication.write(object.offset(), head.to_word());
                publication.write(object.offset().plus(8), number);
            } else {
                let words = pool.words(object.offset(), 2);
                words[0].store(head.to_word(), Ordering::Relaxed);
                words[1].store(number, Ordering::Relaxed);
                publication.flush(object.offset(), 16);
            }
            let offset = publication.allocate(object);
            publication.set_root(ROOT, offset)?;
        }
    }
    publication.publish()
}

/// Runs `steps` pushes and pops of a seeded history under the checker: no state loses a step, leaks an object
/// or refers to a free one, and each works on.
pub fn check_stack(options: &CrashOptions, steps: u64) -> Result<CrashReport> {
    let recorder = Recorder::new(Vec::new());
    let recorded = Arc::clone(&recorder);
    let env = crate::Env::simulated(options.seed);
    let history = move |pool: &Arc<Pool>| {
        for number in 0..steps {
            let pops = env.random_u64() % 5 < 2 && !recorded.returned().is_empty();
            if pops {
                recorded.run(None, || step(pool, Step::Pop))?;
                continue;
            }
            // The large ones take a chunk each, so the pool grows, and chunks change their use.
            let bytes = [64, 64, 64, 1024, 1024, 4096, 20_000, 70_000][(env.random_u64() % 8) as usize];
            recorded.run(Some(number), || step(pool, Step::Push { number, bytes }))?;
        }
        Ok(())
    };
    check_at(options, history, recorder.legal_contents(), |pool, legal| {
        // A crash can come again while a recovered stack is tried.
        legal.judge(&without_later(sound_numbers(pool)?))?;
        let later = step(pool, Step::Push { number: LATER, bytes: 64 });
        later.map_err(|error| error.to_string())?;
        step(pool, Step::Pop).map_err(|error| error.to_string())?;
        legal.judge(&without_later(sound_numbers(pool)?))
    })
}

fn without_later(mut numbers: Vec<u64>) -> Vec<u64> {
    numbers.retain(|number| *number != LATER);
    numbers
}

/// Numbers on the stack, oldest first, if its objects are exactly the allocated ones.
fn sound_numbers(pool: &Pool) -> std::result::Result<Vec<u64>, String> {
    let mut reachable = Vec::new();
    let mut numbers = Vec::new();
    let mut at = pool.root(ROOT).unwrap_or(PoolOffset::NULL);
    while !at.is_null() {
        if reachable.contains(&at) {
            return Err("the stack is circular".to_string());
        }
        reachable.push(at);
        numbers.push(pool.word(at.plus(8)).load(Ordering::Relaxed));
        at = PoolOffset::from_word(pool.word(at).load(Ordering::Relaxed));
    }
    numbers.reverse();
    reachable.sort_unstable();
    let mut allocated = Vec::new();
    pool.for_each_object(|offset, _| allocated.push(offset));
    allocated.sort_unstable();
    if allocated != reachable {
        return Err(format!("allocated {allocated:?}, reachable {reachable:?}"));
    }
    Ok(numbers)
}
