//! The Star Schema Benchmark: generator, loader and queries, on small scale factors.
#![allow(unreachable_pub, clippy::unwrap_used)]

mod generator;
mod loading;
mod reference;
mod running;
mod sample;
mod support;
