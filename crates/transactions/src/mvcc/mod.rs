//! Versions of one key: in place with [`object`], out of place with [`chain`], and old ones in DRAM.

pub(crate) mod chain;
pub(crate) mod object;
pub(crate) mod old_versions;
pub(crate) mod value_buffer;
