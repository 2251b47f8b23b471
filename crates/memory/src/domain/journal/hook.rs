//! Points at which the order of threads matters. Tests can stop a thread at each; in other builds they are
//! empty.

/// Point that a thread passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(test), allow(dead_code))]
pub(super) enum HookPoint {
    /// A publication has marked the page of its first update; the store comes next.
    Marked,
    /// A publication has made its first store; the others, and the end of its record, come next.
    HalfStored,
    /// A checkpoint has taken marks; the copies come next.
    MarksTaken,
    /// A checkpoint has written copied pages to the pool file.
    PagesWritten,
}

#[cfg(not(test))]
#[inline(always)]
pub(super) fn pass(_place: HookPoint) {}

#[cfg(test)]
pub(super) use tests::pass;

#[cfg(test)]
pub(super) mod tests {
    use super::HookPoint;
    use std::cell::RefCell;

    type Hook = Box<dyn Fn(HookPoint)>;

    thread_local! {
        static HOOK: RefCell<Option<Hook>> = const { RefCell::new(None) };
    }

    pub(in super::super) fn pass(place: HookPoint) {
        HOOK.with_borrow(|hook| hook.iter().for_each(|hook| hook(place)));
    }

    /// Calls the hook at every place that this thread passes from now on.
    pub(in super::super) fn watch(hook: impl Fn(HookPoint) + 'static) {
        HOOK.set(Some(Box::new(hook)));
    }
}
