//! Locks of keys, of all states of a context: a key has the lock that its hash says.
//!
//! One array for all groups: a group of its own for each table costs no locks, and a commit over several
//! groups takes the locks of all of its keys in one order, so there is no deadlock.
//!
//! A commit of many keys, or of ranges, has predicate locks ([`crate::locking::predicate_locks`]) in place of
//! them.
//!
//! Memory: 128 KiB.

use crate::StateId;
use crate::locking::predicate_locks::PredicateLocks;
use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;

/// Keys share locks if their hashes agree in so many bits. Two commits of ten keys share one in 160 times:
/// then one sleeps, for ten times as long as it would have waited.
const STRIPE_BITS: u32 = 14;

/// The stripes of so many keys are held without an allocation.
const USUAL_KEYS: usize = 16;

/// A lock of some keys; eight to a cache line.
#[repr(align(8))]
struct Stripe(Mutex<()>);

/// See the module.
pub(crate) struct Stripes {
    stripes: Box<[Stripe]>,
    pub(crate) predicates: PredicateLocks,
}

/// The locks of some keys.
pub(crate) type StripesGuard<'s> = SmallVec<[MutexGuard<'s, ()>; USUAL_KEYS]>;

impl Stripes {
    pub(crate) fn new() -> Stripes {
        let stripes = (0..1 << STRIPE_BITS).map(|_| Stripe(Mutex::new(()))).collect();
        Stripes { stripes, predicates: PredicateLocks::default() }
    }

    /// Waits for holders of the same keys. A caller that holds some already must not ask for more.
    pub(crate) fn hold<'s, 'k>(
        &'s self,
        keys: impl Iterator<Item = (StateId, &'k [u8])>,
    ) -> StripesGuard<'s> {
        let mut numbers: SmallVec<[usize; USUAL_KEYS]> =
            keys.map(|(state, key)| stripe(state, key)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers.into_iter().map(|number| self.stripes[number].0.lock()).collect()
    }

    /// Waits for the present holder of each of some keys, one after the other: the caller has none of them at
    /// a time.
    pub(crate) fn pass<'k>(&self, keys: impl Iterator<Item = (StateId, &'k [u8])>) {
        let mut numbers = [0_u64; 1 << (STRIPE_BITS - 6)];
        for (state, key) in keys {
            let number = stripe(state, key);
            numbers[number / 64] |= 1 << (number % 64);
        }
        for (word, mut bits) in numbers.into_iter().enumerate() {
            while bits != 0 {
                drop(self.stripes[64 * word + bits.trailing_zeros() as usize].0.lock());
                bits &= bits - 1;
            }
        }
    }
}

/// The stripe of a key: multiplicative hashing of its words.
fn stripe(state: StateId, key: &[u8]) -> usize {
    let mut hash = u64::from(state.0);
    for chunk in key.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        hash ^= hash >> 32;
    }
    (hash.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - STRIPE_BITS)) as usize
}
