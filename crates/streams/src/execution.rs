//! Running a topology, in one thread: sources are fed ([`feed`]), tuples and punctuations flow through the
//! operators ([`dataflow`]), and bounded parts of the stream become transactions ([`executor`]).

pub(crate) mod dataflow;
pub(crate) mod executor;
pub(crate) mod feed;
