//! Handlers of expected faults at a pool's addresses.
//!
//! Two signals are handled, for addresses of watched pools only; all others go to the previous handler:
//!
//! - SIGSEGV: an access to pages that are briefly closed to stores, or to all accesses, since pages are being
//!   evicted ([`Window`]). The handler waits until the window is closed, returns, and the access is repeated.
//!   So a window stops every store, of any thread, without a cost on the path of stores.
//! - SIGBUS: a page could not be read back from its file (an I/O error, or the file was truncated). No thread
//!   can go on without it: the process ends with a message that names file and offset. Committed transactions
//!   are not affected.
//!
//! The handlers use atomics, `nanosleep`, `write` and `abort`, nothing else. A handler of SIGSEGV installed
//! later that does not pass the signal on would end the process at such a store; so [`is_installed`] is
//! checked before each window.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Maximum number of watched pools of a process.
const POOLS_MAX: usize = 256;
/// Maximum number of open windows.
const WINDOWS_MAX: usize = 64;
/// Maximum number of retries of a store at one address without a window there: it may have been closed since
/// the fault.
const RETRIES_MAX: u64 = 100_000;

/// Range of addresses; empty if unused.
struct AddressSlot {
    start: AtomicUsize,
    end: AtomicUsize,
    /// Name of the file, for pools.
    name: AtomicPtr<Name>,
}

struct Name {
    bytes: Box<[u8]>,
}

impl AddressSlot {
    const fn empty() -> AddressSlot {
        AddressSlot {
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            name: AtomicPtr::new(ptr::null_mut()),
        }
    }

    fn holds(&self, address: usize) -> bool {
        // The end is set last and cleared first.
        address < self.end.load(Ordering::SeqCst) && address >= self.start.load(Ordering::SeqCst)
    }

    fn claim(slots: &'static [AddressSlot], range: &Range<usize>) -> Option<&'static AddressSlot> {
        let slot = slots.iter().find(|slot| {
            slot.start.compare_exchange(0, range.start, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        })?;
        slot.end.store(range.end, Ordering::SeqCst);
        Some(slot)
    }

    fn clear(&self) {
        self.end.store(0, Ordering::SeqCst);
        self.start.store(0, Ordering::SeqCst);
    }
}

static POOLS: [AddressSlot; POOLS_MAX] = [const { AddressSlot::empty() }; POOLS_MAX];
static WINDOWS: [AddressSlot; WINDOWS_MAX] = [const { AddressSlot::empty() }; WINDOWS_MAX];
static BEFORE_SEGV: OnceLock<libc::sigaction> = OnceLock::new();
static BEFORE_BUS: OnceLock<libc::sigaction> = OnceLock::new();
static LAST_ADDRESS: AtomicUsize = AtomicUsize::new(0);
static RETRIES: AtomicU64 = AtomicU64::new(0);

/// Registration of a pool whose faults are handled, until it is dropped.
pub(crate) struct WatchedPool {
    slot: &'static AddressSlot,
}

impl WatchedPool {
    /// Watches the addresses of a pool; `None` if there are too many pools, or the signals cannot be handled.
    pub(crate) fn new(addresses: &Range<usize>, file: &Path) -> Option<WatchedPool> {
        if !install() {
            return None;
        }
        let slot = AddressSlot::claim(&POOLS, addresses)?;
        let name = Box::new(Name { bytes: file.as_os_str().as_bytes().into() });
        slot.name.store(Box::into_raw(name), Ordering::SeqCst);
        Some(WatchedPool { slot })
    }
}

impl Drop for WatchedPool {
    fn drop(&mut self) {
        let name = self.slot.name.swap(ptr::null_mut(), Ordering::SeqCst);
        self.slot.clear();
        if !name.is_null() {
            // SAFETY: made by `Box::into_raw` in `new`, and taken out of the slot here; the pool is not used
            // any more, so no handler reads it.
            drop(unsafe { Box::from_raw(name) });
        }
    }
}

/// Addresses at which accesses wait while this value lives. Its owner closes the pages afterwards, and opens
/// them again before it is dropped; the owner must not wait for a lock that a storing thread may hold.
pub(crate) struct Window {
    slot: &'static AddressSlot,
}

impl Window {
    /// Opens a window; `None` if there are too many.
    pub(crate) fn open(addresses: &Range<usize>) -> Option<Window> {
        AddressSlot::claim(&WINDOWS, addresses).map(|slot| Window { slot })
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        self.slot.clear();
    }
}

/// Installs both handlers, once. False if that fails.
fn install() -> bool {
    static INSTALLING: Mutex<()> = Mutex::new(());
    let _alone = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
    take(libc::SIGSEGV, on_segv, &BEFORE_SEGV) && take(libc::SIGBUS, on_bus, &BEFORE_BUS)
}

type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

fn take(signal: c_int, handler: Handler, before: &OnceLock<libc::sigaction>) -> bool {
    if before.get().is_some() {
        return true;
    }
    let Some(present) = current(signal) else { return false };
    // The previous handler is known before ours can run.
    let _ = before.set(present);
    // SAFETY: all zeros is a valid value of this plain structure.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    // On the alternative stack where a thread has one: the signal may be a stack that overran.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: `action` is complete, and the handler keeps to what a signal handler may do.
    unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) == 0 }
}

fn current(signal: c_int) -> Option<libc::sigaction> {
    // SAFETY: all zeros is a valid value of this plain structure.
    let mut present: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: only asks; `present` outlives the call.
    let asked = unsafe { libc::sigaction(signal, ptr::null(), &raw mut present) };
    (asked == 0).then_some(present)
}

/// Returns true if stores to a window wait: no other handler was installed since.
pub(crate) fn is_installed() -> bool {
    let handler: Handler = on_segv;
    current(libc::SIGSEGV).is_some_and(|present| present.sa_sigaction == handler as *const () as usize)
}

fn address_of(info: *mut libc::siginfo_t) -> usize {
    // SAFETY: the kernel passes a valid structure to a handler with SA_SIGINFO.
    let info = unsafe { &*info };
    // SAFETY: both signals that are taken have an address.
    unsafe { info.si_addr() }.addr()
}

extern "C" fn on_segv(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let address = address_of(info);
    if POOLS.iter().any(|pool| pool.holds(address)) {
        // SAFETY: always a valid address of this thread.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: this thread's own word; the interrupted code may be about to read it.
        let before = unsafe { errno.read() };
        let waited = waited_at(address);
        // SAFETY: as above.
        unsafe { errno.write(before) };
        if waited {
            return;
        }
    }
    pass_on(signal, info, context, &BEFORE_SEGV);
}

/// Waits while there is a window at the address. False if there was none, and has not been one for long.
fn waited_at(address: usize) -> bool {
    let mut waited = false;
    while WINDOWS.iter().any(|window| window.holds(address)) {
        waited = true;
        let pause = libc::timespec { tv_sec: 0, tv_nsec: 20_000 };
        // SAFETY: may be called in a handler; yields the processor to the owner of the window.
        unsafe { libc::nanosleep(&raw const pause, ptr::null_mut()) };
    }
    if waited || LAST_ADDRESS.swap(address, Ordering::Relaxed) != address {
        RETRIES.store(0, Ordering::Relaxed);
        return true;
    }
    RETRIES.fetch_add(1, Ordering::Relaxed) < RETRIES_MAX
}

extern "C" fn on_bus(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let address = address_of(info);
    let Some(pool) = POOLS.iter().find(|pool| pool.holds(address)) else {
        return pass_on(signal, info, context, &BEFORE_BUS);
    };
    let mut digits = [0u8; 20];
    let offset = decimal(address - pool.start.load(Ordering::SeqCst), &mut digits);
    write_stderr(b"entresol: the page at byte ");
    write_stderr(offset);
    write_stderr(b" of ");
    let name = pool.name.load(Ordering::SeqCst);
    // SAFETY: set when the pool was watched, and freed only when no thread uses the pool any more.
    write_stderr(unsafe { name.as_ref() }.map_or(b"a pool", |name| &name.bytes));
    write_stderr(b" cannot be read back from the disk; the process ends. No committed transaction is lost: repair the disk \
          or the file, then open the database again.\n");
    // SAFETY: ends the process; allowed in a handler.
    unsafe { libc::abort() };
}

fn write_stderr(bytes: &[u8]) {
    // SAFETY: writes initialised bytes that outlive the call; allowed in a handler.
    unsafe { libc::write(2, bytes.as_ptr().cast(), bytes.len()) };
}

/// Decimal digits of a number, without memory from the heap.
fn decimal(mut number: usize, digits: &mut [u8; 20]) -> &[u8] {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &digits[at..];
        }
    }
}

/// Calls the previous handler.
fn pass_on(
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
    before: &OnceLock<libc::sigaction>,
) {
    let Some(before) = before.get() else { return };
    match before.sa_sigaction {
        libc::SIG_DFL | libc::SIG_IGN => {
            // The instruction is repeated when the handler returns, and then the kernel acts.
            // SAFETY: restores the default action of the signal.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: with SA_SIGINFO the address is of such a function; it was installed as the handler.
            let handler: Handler = unsafe { std::mem::transmute(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: without SA_SIGINFO the address is of such a function; it was installed as the handler.
            let handler: extern "C" fn(c_int) = unsafe { std::mem::transmute(handler) };
            handler(signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_without_memory() {
        for number in [0, 7, 10, 4096, usize::MAX] {
            assert_eq!(decimal(number, &mut [0; 20]), number.to_string().as_bytes());
        }
    }

    #[test]
    fn slots_hold_their_range_until_they_are_cleared() {
        let window = Window::open(&(4096..8192)).expect("there is room");
        let held = |address| WINDOWS.iter().any(|window| window.holds(address));
        assert!(held(4096) && held(8191) && !held(8192) && !held(4095));
        drop(window);
        assert!(!held(4096));
    }
}
