//! Ordering points: the steps of a protocol that a crash depends on, each with a name, a rule and a
//! primitive.
//!
//! A floor declares its points with [`order_points!`](crate::order_points), beside the code: the comment of a
//! point is its rule. The code passes the point to a primitive of this module, which carries the step out:
//!
//! | kind of point | primitive | faults that a test may ask for |
//! | --- | --- | --- |
//! | [`Fence`] | [`fence`], [`Pool::fence_at`](crate::Pool::fence_at) | left out |
//! | [`Flush`] | [`flush`], [`to_flush`], [`Pool::flush_at`](crate::Pool::flush_at) | left out; in part: the first line or word alone |
//! | [`FlushWord`] | [`flush_word`], [`Pool::flush_word_at`](crate::Pool::flush_word_at) | left out |
//! | [`Barrier`] | [`Publication::barrier`](crate::Publication::barrier) | split: two publications; reversed: the later first |
//! | [`After`] | [`Publication::after`](crate::Publication::after) | reversed |
//! | [`Store`] | [`Publication::set_at`](crate::Publication::set_at) | in two: the word is 0 in between; stored only |
//! | [`Order`] | [`in_order`] | swapped |
//! | [`Later`] | [`not_yet`] | early: here already |
//! | [`Step`] | [`step`] | left out |
//! | [`Check`] | [`check`] | taken for true |
//! | [`Value`] | [`value`] | wrong: the other value |
//!
//! A fault at a point is a mutant; the mutants prove that the tests can fail. They exist with the feature
//! `mutants` alone, one at a time in a process (`order::faults`; `ENTRESOL_MUTANT=point:fault` selects one);
//! without it a primitive is the plain operation, and a point is nothing. No crate that a user builds upon
//! passes the feature on. Each floor has a list beside its tests that says of every mutant which test catches
//! it, or why it does no harm.

#[cfg(feature = "mutants")]
pub mod faults;
#[cfg(all(test, feature = "mutants"))]
pub(crate) mod tests;

use crate::offset::PoolOffset;
use std::marker::PhantomData;

/// A named point of a protocol, for one kind of primitive.
pub struct OrderPoint<K> {
    #[cfg(feature = "mutants")]
    id: u64,
    kind: PhantomData<K>,
}

impl<K> Clone for OrderPoint<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for OrderPoint<K> {}

impl<K: PointKind> OrderPoint<K> {
    /// A point of that name; the floors declare theirs with [`order_points!`](crate::order_points).
    #[doc(hidden)]
    pub const fn named(_name: &str) -> OrderPoint<K> {
        OrderPoint {
            #[cfg(feature = "mutants")]
            id: faults::id_of(_name.as_bytes()),
            kind: PhantomData,
        }
    }

    /// Returns true if a test asks for this fault here.
    #[inline(always)]
    pub(crate) fn asks_for(self, _fault: Fault) -> bool {
        #[cfg(feature = "mutants")]
        return faults::asked_for(self.id, _fault);
        #[cfg(not(feature = "mutants"))]
        false
    }
}

/// A deviation from a point's rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The step is not carried out.
    LeftOut,
    /// Only the first line of a range is flushed; of a range of up to a line its first word.
    InPart,
    /// Makes the part of a publication before the point durable ahead of the rest.
    Split,
    /// Makes the part of a publication after the point durable ahead of the rest.
    Reversed,
    /// A word is 0 between its old and its new value.
    InTwo,
    /// A word is stored outside of its publication, and not flushed.
    StoredOnly,
    /// The second of two steps comes first.
    Swapped,
    /// A step that comes later is carried out here already.
    Early,
    /// A condition that does not hold is taken for true.
    TakenForTrue,
    /// The other value is used.
    Wrong,
}

/// Kinds of points: what their primitive can do wrong.
pub trait PointKind {
    /// The faults that a test may ask for.
    const FAULTS: &'static [Fault];
}

macro_rules! kinds {
    ($($(#[$doc:meta])+ $kind:ident: $($fault:ident),+;)+) => {$(
        $(#[$doc])+
        pub enum $kind {}

        impl PointKind for $kind {
            const FAULTS: &'static [Fault] = &[$(Fault::$fault),+];
        }
    )+};
}

kinds! {
    /// Flushes before it are ordered before those after it.
    Fence: LeftOut;
    /// A range of words that is flushed here.
    Flush: LeftOut, InPart;
    /// A word that is flushed here.
    FlushWord: LeftOut;
    /// Changes before and after it survive a crash together.
    Barrier: Split, Reversed;
    /// Changes before it may survive without those after it, not the other way round.
    After: Reversed;
    /// A word that a publication changes in one store.
    Store: InTwo, StoredOnly;
    /// Two steps in a row.
    Order: Swapped;
    /// A step that comes later than here.
    Later: Early;
    /// A step that must not be missing.
    Step: LeftOut;
    /// A condition that must be asked.
    Check: TakenForTrue;
    /// A value that must be this one.
    Value: Wrong;
}

/// Declares the points of a floor, each as `/// its rule` and `NAME: Kind,`; with the feature `mutants` also
/// `POINTS`, the list of them. A point that nothing uses is a warning of the compiler.
#[macro_export]
macro_rules! order_points {
    ($($(#[doc = $rule:literal])+ $name:ident: $kind:ident,)+) => {
        $(
            $(#[doc = $rule])+
            pub(crate) const $name: $crate::order::OrderPoint<$crate::order::$kind> =
                $crate::order::OrderPoint::named(stringify!($name));
        )+

        /// All ordering points of this floor.
        #[cfg(feature = "mutants")]
        pub const POINTS: &[$crate::order::faults::DeclaredPoint] = &[$(
            $crate::order::faults::DeclaredPoint {
                name: stringify!($name),
                rule: concat!($($rule),+),
                faults: <$crate::order::$kind as $crate::order::PointKind>::FAULTS,
            },
        )+];
    };
}

/// Outcome of a step: nothing, or an error.
pub trait Outcome {
    /// The outcome of a step that was left out.
    fn left_out() -> Self;
    /// Goes on unless it is an error.
    fn then(self, next: impl FnOnce() -> Self) -> Self;
}

impl Outcome for () {
    #[inline(always)]
    fn left_out() -> Self {}

    #[inline(always)]
    fn then(self, next: impl FnOnce() -> Self) -> Self {
        next();
    }
}

impl<T: Default, E> Outcome for Result<T, E> {
    #[inline(always)]
    fn left_out() -> Self {
        Ok(T::default())
    }

    #[inline(always)]
    fn then(self, next: impl FnOnce() -> Self) -> Self {
        self.and_then(|_| next())
    }
}

/// Carries out a fence.
#[inline(always)]
pub fn fence(point: OrderPoint<Fence>, fence: impl FnOnce()) {
    if !point.asks_for(Fault::LeftOut) {
        fence();
    }
}

/// Flushes a range of so many bytes: `flush` gets how many.
#[inline(always)]
pub fn flush(point: OrderPoint<Flush>, bytes: usize, flush: impl FnOnce(usize)) {
    if point.asks_for(Fault::LeftOut) {
        return;
    }
    flush(if point.asks_for(Fault::InPart) { first_part_of(bytes) } else { bytes });
}

/// Returns the range (offset and bytes) that is to be flushed at a point, together with others.
#[inline(always)]
pub fn to_flush(point: OrderPoint<Flush>, (offset, bytes): (PoolOffset, usize)) -> (PoolOffset, usize) {
    let mut flushed = 0;
    flush(point, bytes, |bytes| flushed = bytes);
    (offset, flushed)
}

/// A line of what is longer, else a word.
fn first_part_of(bytes: usize) -> usize {
    if bytes > 64 { 64 } else { bytes.min(8) }
}

/// Flushes a word.
#[inline(always)]
pub fn flush_word(point: OrderPoint<FlushWord>, flush: impl FnOnce()) {
    if !point.asks_for(Fault::LeftOut) {
        flush();
    }
}

/// Carries out a step that must not be missing.
#[inline(always)]
pub fn step<T: Outcome>(point: OrderPoint<Step>, step: impl FnOnce() -> T) -> T {
    if point.asks_for(Fault::LeftOut) { T::left_out() } else { step() }
}

/// States that a step comes later than here.
#[inline(always)]
pub fn not_yet<T: Outcome>(point: OrderPoint<Later>, step: impl FnOnce() -> T) -> T {
    if point.asks_for(Fault::Early) { step() } else { T::left_out() }
}

/// Carries out two steps in this order; the second is left out if the first is an error.
#[inline(always)]
pub fn in_order<T: Outcome>(
    point: OrderPoint<Order>,
    first: impl FnOnce() -> T,
    second: impl FnOnce() -> T,
) -> T {
    if point.asks_for(Fault::Swapped) { second().then(first) } else { first().then(second) }
}

/// Returns the condition, which must not be taken for true.
#[inline(always)]
pub fn check(condition: bool, point: OrderPoint<Check>) -> bool {
    condition || point.asks_for(Fault::TakenForTrue)
}

/// Returns the value, which must not be the other.
#[inline(always)]
pub fn value<T>(value: T, other: T, point: OrderPoint<Value>) -> T {
    if point.asks_for(Fault::Wrong) { other } else { value }
}

/// Announces that this thread waits for another one, e.g. for a latch. Where threads of a test take turns,
/// another one runs; otherwise this does nothing.
#[inline(always)]
pub fn waits() {
    #[cfg(feature = "testkit")]
    crate::crash::waits();
}
