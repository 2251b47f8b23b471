//! Pool-relative references.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;

/// Reference to a `T` inside a pool: an 8-byte offset, valid at whatever address the pool is mapped. Offset 0
/// is null.
pub struct Ptr<T> {
    offset: u64,
    target: PhantomData<fn() -> T>,
}

impl<T> Ptr<T> {
    /// Null reference.
    pub const NULL: Ptr<T> = Ptr { offset: 0, target: PhantomData };

    /// Reference with this pool offset in bytes.
    pub const fn from_offset(offset: u64) -> Ptr<T> {
        Ptr { offset, target: PhantomData }
    }

    /// Pool offset in bytes.
    pub const fn offset(self) -> u64 {
        self.offset
    }

    /// Returns true if this is [`Ptr::NULL`].
    pub const fn is_null(self) -> bool {
        self.offset == 0
    }

    /// Offset of a word of the target.
    pub const fn word(self, index: usize) -> u64 {
        self.offset + 8 * index as u64
    }
}

impl<T> Clone for Ptr<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Ptr<T> {}
impl<T> PartialEq for Ptr<T> {
    fn eq(&self, other: &Self) -> bool {
        self.offset == other.offset
    }
}
impl<T> Eq for Ptr<T> {}
impl<T> Hash for Ptr<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.offset.hash(state);
    }
}
impl<T> fmt::Debug for Ptr<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.offset)
    }
}
