//! The path of a write into the journal: appenders, buffers, frames, and the files.

pub(crate) mod append;
pub(crate) mod buffer;
pub(crate) mod commit;
pub(crate) mod frame;
pub(crate) mod log;
pub(crate) mod room;
pub(crate) mod slots;
pub(crate) mod stage;
