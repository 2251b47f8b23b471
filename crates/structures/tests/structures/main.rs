//! Tests of indexes from outside.

#![allow(clippy::unwrap_used, reason = "tests")]

mod apply_many;
mod concurrency;
mod damage;
mod flushes;
mod hash_concurrency;
mod hash_damage;
mod hash_flushes;
mod hash_model;
mod hotspot;
mod lists_flushes;
mod lists_modelled;
mod load;
mod lsm;
mod lsm_flushes;
mod many;
mod model;
mod modelled;
mod nodes;
mod ordered;
