//! Allocation and publication under the crash checker, and the checker against a bug.

#![allow(clippy::unwrap_used)]

use entresol_memory::crash::{CrashOptions, check};
use entresol_memory::{Pool, Result};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Pushes on and pops off a linked list; objects of two sizes.
fn stack_history(pool: &Arc<Pool>, steps: u64, done: &AtomicU64) -> Result<()> {
    for step in 0..steps {
        let head = pool.root("stack").unwrap_or(0);
        let mut publication = pool.publication();
        if step % 3 == 2 {
            publication.set_root("stack", pool.words(head, 2)[0].load(Ordering::Relaxed))?;
            publication.free(head);
        } else {
            let object = pool.reserve(if step % 2 == 0 { 64 } else { 1024 })?;
            let words = pool.words(object.offset(), 2);
            words[0].store(head, Ordering::Relaxed);
            words[1].store(step, Ordering::Relaxed);
            pool.flush(object.offset(), 16);
            let offset = publication.allocate(object);
            publication.set_root("stack", offset)?;
        }
        publication.publish()?;
        done.store(step + 1, Ordering::Release);
    }
    Ok(())
}

/// The stack's numbers after so many steps.
fn stack_after(steps: u64) -> Vec<u64> {
    let mut stack = Vec::new();
    for step in 0..steps {
        if step % 3 == 2 {
            stack.pop();
        } else {
            stack.push(step);
        }
    }
    stack
}

#[test]
fn no_crash_state_leaks_an_object_or_loses_a_step() {
    let done = Arc::new(AtomicU64::new(0));
    let seen = done.clone();
    let report = check(
        &CrashOptions { crash_recovery_every: 3, ..CrashOptions::default() },
        |pool| stack_history(pool, 200, &done),
        move |pool| {
            let mut reachable = BTreeSet::new();
            let mut numbers = Vec::new();
            let mut at = pool.root("stack").unwrap_or(0);
            while at != 0 {
                if !reachable.insert(at) {
                    return Err("the stack is a ring".to_string());
                }
                numbers.push(pool.words(at, 2)[1].load(Ordering::Relaxed));
                at = pool.words(at, 2)[0].load(Ordering::Relaxed);
            }
            numbers.reverse();
            let mut allocated = BTreeSet::new();
            pool.for_each_object(|offset, _| {
                allocated.insert(offset);
            });
            if allocated != reachable {
                return Err(format!("allocated {allocated:?}, reachable {reachable:?}"));
            }
            let steps = seen.load(Ordering::Acquire);
            if numbers != stack_after(steps) && numbers != stack_after(steps + 1) {
                return Err(format!("after {steps} steps the stack is {numbers:?}"));
            }
            Ok(())
        },
    )
    .unwrap();
    assert!(report.fences > 500 && report.recovery_states > 500, "{report:?}");
    println!("{report:?}");
}

#[test]
fn the_checker_finds_a_missing_flush_and_a_missing_fence() {
    let run = |flush: bool, fence: bool| {
        check(
            &CrashOptions::default(),
            move |pool| {
                let object = pool.reserve(128)?;
                let at = object.offset();
                pool.words(at, 16).iter().for_each(|w| w.store(0, Ordering::Relaxed));
                pool.flush(at, 128);
                let mut publication = pool.publication();
                publication.allocate(object);
                publication.set_root("pair", at)?;
                publication.publish()?;
                for round in 1..10 {
                    pool.word(at).store(round, Ordering::Release);
                    if flush {
                        pool.flush(at, 8);
                    }
                    if fence {
                        pool.fence();
                    }
                    pool.word(at + 64).store(round, Ordering::Release);
                    pool.flush(at + 64, 8);
                    pool.fence();
                }
                Ok(())
            },
            |pool| {
                let Some(at) = pool.root("pair") else { return Ok(()) };
                let read = |offset| pool.word(offset).load(Ordering::Acquire);
                let (a, b) = (read(at), read(at + 64));
                if a >= b { Ok(()) } else { Err(format!("a = {a}, b = {b}")) }
            },
        )
    };
    run(true, true).unwrap();
    for (flush, fence) in [(false, true), (true, false), (false, false)] {
        let error = run(flush, fence).unwrap_err().to_string();
        assert!(error.contains("seed 1") && error.contains("fence"), "{error}");
    }
}
