//! Background work: buffers become runs, runs are merged, obsolete files go.

pub(crate) mod maintain;
pub(crate) mod obsolete;
pub(crate) mod version;
pub(crate) mod worker;
