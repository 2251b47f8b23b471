//! Errors of the structures floor.

/// The result of this crate's calls.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the structures floor.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// From the floor below.
    #[error(transparent)]
    Memory(#[from] entresol_memory::Error),
    /// A key does not fit the index.
    #[error("a key of {found_bytes} bytes does not fit an index whose keys have at most {limit_bytes} bytes")]
    KeyTooLong {
        /// Bytes of the key.
        found_bytes: usize,
        /// The most that the index takes.
        limit_bytes: usize,
    },
    /// The call cannot be carried out as it is.
    #[error("{0}")]
    Invalid(String),
    /// The persistent bytes are not those of a sound structure.
    #[error("the index at pool offset {offset:#x} is damaged: {what}")]
    Corrupt {
        /// Where in the pool.
        offset: u64,
        /// What was found.
        what: String,
    },
}
