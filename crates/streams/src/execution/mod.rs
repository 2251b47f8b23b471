//! Execution of a topology in one thread: sources are polled ([`feed`]), tuples and punctuations pass through
//! the operators ([`dataflow`]), and bounded parts of the stream become transactions ([`executor`]).

pub(crate) mod dataflow;
pub(crate) mod executor;
pub(crate) mod feed;
pub(crate) mod held_batches;
pub(crate) mod rejects_table;
pub(crate) mod skipped;
