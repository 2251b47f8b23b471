//! Tests of pools from outside. What measures the memory of the process, or needs a process for each test, has a binary of its own.

#![allow(clippy::unwrap_used, reason = "tests")]

mod allocation;
mod allocation_crash;
mod backup;
mod crash;
mod faults;
mod journal;
mod media;
mod modelled;
mod placement;
mod pool;
mod profiles;
mod recovery;
