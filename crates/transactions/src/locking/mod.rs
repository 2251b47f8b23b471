//! Locks of keys and ranges, and the validation of what was read, for the protocols that need them.

#[cfg(test)]
pub(crate) mod claim_protocol;
pub(crate) mod locks;
pub(crate) mod predicate_locks;
pub(crate) mod stripes;
pub(crate) mod validation_sets;
pub(crate) mod waits;
