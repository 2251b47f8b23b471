//! Errors of the index structures.

use entresol_memory::PoolOffset;

/// The result of this crate's calls.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the index structures.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// From the memory crate.
    #[error(transparent)]
    Memory(#[from] entresol_memory::Error),
    /// A key does not fit the index.
    #[error("key of {found_bytes} bytes exceeds the maximum of {limit_bytes} bytes of the index")]
    KeyTooLong {
        /// Bytes of the key.
        found_bytes: usize,
        /// The longest key of the index.
        limit_bytes: usize,
    },
    /// The call's arguments are not valid.
    #[error("{0}")]
    Invalid(String),
    /// The persistent bytes are not those of a sound structure.
    #[error("the index at pool offset {offset:#x} is damaged: {message}")]
    Corrupt {
        /// Pool offset.
        offset: PoolOffset,
        /// Description of the damage.
        message: String,
    },
    /// The words are not those of an Elf.
    #[error("the Elf is damaged at word {word}: {message}")]
    DamagedElf {
        /// Word at which it shows.
        word: usize,
        /// Description of the damage.
        message: String,
    },
}

/// Reason of an incomplete descent.
pub(crate) enum DescentError {
    /// A node on the path was removed: retry.
    Conflict,
    Damage(Error),
}

impl From<Error> for DescentError {
    fn from(error: Error) -> DescentError {
        DescentError::Damage(error)
    }
}
