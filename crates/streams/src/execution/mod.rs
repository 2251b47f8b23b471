//! Execution of a topology: sources are polled ([`feed`]), tuples and punctuations pass through the operators
//! ([`dataflow`]), and bounded parts of the stream, epochs, become transactions ([`executor`], [`commits`]). That is one
//! thread; commits may run in another one ([`committer`]).

mod acknowledgements;
mod commits;
pub(crate) mod committer;
pub(crate) mod dataflow;
pub(crate) mod dropped;
mod epoch;
pub(crate) mod epoch_transaction;
pub(crate) mod executor;
pub(crate) mod feed;
pub(crate) mod held_batches;
pub(crate) mod rejects_table;
pub(crate) mod skipped;
