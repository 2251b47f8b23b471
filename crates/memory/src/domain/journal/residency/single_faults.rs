//! Faults that load one page, and not its neighbours as well.
//!
//! At the first read of a page of a file the system maps the pages in its cache around it: 16 pages, or all
//! of a folio, up to 2 MiB. That is right while all fits. When memory is short it loads unneeded pages,
//! faster than they can be evicted, and hides which page was needed. A range that is registered with
//! `userfaultfd` is excluded from it, and reads nothing ahead from the disk: who knows what comes next says
//! so ([`crate::Pool::read_ahead`]). Nothing else of that system call is used: asynchronous write protection
//! (Linux 6.7) needs no thread that answers, and no page is ever protected.

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const UFFD_API: u64 = 0xAA;
/// Only faults of user code: available without privileges.
const UFFD_USER_MODE_ONLY: libc::c_int = 1;
const UFFD_FEATURE_WP_ASYNC: u64 = 1 << 15;
const UFFDIO_REGISTER_MODE_WP: u64 = 1 << 1;
const UFFDIO_API: libc::c_ulong = 0xC018_AA3F;
const UFFDIO_REGISTER: libc::c_ulong = 0xC020_AA00;
const UFFDIO_UNREGISTER: libc::c_ulong = 0x8010_AA01;

#[repr(C)]
struct Handshake {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct Addresses {
    start: u64,
    bytes: u64,
}

#[repr(C)]
struct Register {
    addresses: Addresses,
    mode: u64,
    ioctls: u64,
}

impl Addresses {
    fn of(range: &Range<usize>) -> Addresses {
        Addresses { start: range.start as u64, bytes: range.len() as u64 }
    }
}

/// Registered ranges of addresses. A large folio of 2 MiB would still be mapped as a huge page, so such
/// ranges have none.
pub(super) struct SingleFaults {
    descriptor: OwnedFd,
}

impl SingleFaults {
    /// Opens the descriptor. Fails where the system does not support or allow it.
    pub(super) fn open() -> io::Result<SingleFaults> {
        let flags = libc::O_CLOEXEC | UFFD_USER_MODE_ONLY;
        // SAFETY: makes a descriptor, touches no memory.
        let descriptor = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
        let descriptor = i32::try_from(descriptor).ok().filter(|descriptor| *descriptor >= 0);
        let descriptor = descriptor.ok_or_else(io::Error::last_os_error)?;
        // SAFETY: made above, and owned by nothing else.
        let faults = SingleFaults { descriptor: unsafe { OwnedFd::from_raw_fd(descriptor) } };
        let mut handshake = Handshake { api: UFFD_API, features: UFFD_FEATURE_WP_ASYNC, ioctls: 0 };
        faults.control(UFFDIO_API, &mut handshake)?;
        Ok(faults)
    }

    /// Makes faults in a page-aligned, mapped range load one page from now on.
    pub(super) fn register(&self, range: &Range<usize>) -> io::Result<()> {
        let mut register =
            Register { addresses: Addresses::of(range), mode: UFFDIO_REGISTER_MODE_WP, ioctls: 0 };
        advise(range, libc::MADV_NOHUGEPAGE);
        // Else a miss reads as much as the device's read-ahead says, megabytes on some machines.
        advise(range, libc::MADV_RANDOM);
        self.control(UFFDIO_REGISTER, &mut register)
    }

    /// Reverts [`SingleFaults::register`].
    pub(super) fn unregister(&self, range: &Range<usize>) -> io::Result<()> {
        advise(range, libc::MADV_HUGEPAGE);
        advise(range, libc::MADV_NORMAL);
        self.control(UFFDIO_UNREGISTER, &mut Addresses::of(range))
    }

    fn control<A>(&self, request: libc::c_ulong, argument: &mut A) -> io::Result<()> {
        // SAFETY: the argument is the structure that the request takes; no content of a mapped page is
        // changed.
        match unsafe { libc::ioctl(self.descriptor.as_raw_fd(), request, std::ptr::from_mut(argument)) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

fn advise(range: &Range<usize>, advice: libc::c_int) {
    let start = std::ptr::without_provenance_mut(range.start);
    // SAFETY: advice that changes no content, on a range of a pool's mapping.
    unsafe { libc::madvise(start, range.len(), advice) };
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::pages::{PageMap, PageState};
    use super::*;
    use crate::mapping::{Backing, Mapping};
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::Ordering;

    #[test]
    fn a_fault_in_a_registered_range_brings_one_page() {
        const BYTES: u64 = 1 << 20;
        let Ok(faults) = SingleFaults::open() else {
            println!("this system has no userfaultfd with asynchronous write protection, or not for us");
            return;
        };
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&vec![1; BYTES as usize], 0).unwrap();
        let mapping = Mapping::reserve(BYTES).unwrap();
        mapping.grow(BYTES, &Backing::Private(file.as_fd())).unwrap();
        let (mut map, mut pages) = (PageMap::open().unwrap(), Vec::new());
        let addresses = mapping.addresses();
        let mut present_after = |store: bool| {
            mapping.forget(0, BYTES);
            let word = &mapping.words(40 * 4096, 1)[0];
            assert_eq!(word.load(Ordering::Relaxed), u64::from_le_bytes([1; 8]));
            if store {
                word.store(7, Ordering::Relaxed);
            }
            map.read(addresses.start, (BYTES / 4096) as usize, &mut pages).unwrap();
            (pages.iter().filter(|page| **page != PageState::Absent).count(), pages[40])
        };
        assert!(present_after(false).0 > 1, "neighbours come as well");
        faults.register(&addresses).unwrap();
        assert_eq!(present_after(false), (1, PageState::OfFile));
        assert_eq!(present_after(true), (1, PageState::Own));
        faults.unregister(&addresses).unwrap();
        assert!(present_after(false).0 > 1, "neighbours come again");
    }
}
