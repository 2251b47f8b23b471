//! Address range of a pool: reserved once, mapped extent by extent, never moved.
//!
//! All of the mapped range is accessed as atomic words; no reference to plain data ever points into it. That
//! makes shared access from safe code sound, whatever the bytes are.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Extents start at multiples of this, so that huge pages fit.
const ALIGNMENT: usize = 2 * 1024 * 1024;

/// Bytes of a page of the system: the unit of faults, of evictions and of what a checkpoint copies.
pub(crate) const PAGE_BYTES: u64 = 4096;

/// Words of a page.
const COPIED_WORDS: usize = 512;

/// Backing of an extent.
pub(crate) enum Backing<'f> {
    /// Zeroed DRAM.
    Anonymous,
    /// Zeroed DRAM of which little is touched: in small pages, since zeroing a huge one takes as long as
    /// opening a pool.
    Sparse,
    /// The file's bytes; stores stay in DRAM.
    Private(BorrowedFd<'f>),
    /// The file itself; stores reach it through the page cache.
    Shared(BorrowedFd<'f>),
    /// The persistent memory behind the file; a flushed line is durable. Fails if the file has none.
    SharedSync(BorrowedFd<'f>),
}

/// Permitted access to a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// No access.
    None,
    /// Reads only.
    Readers,
    /// Reads and stores.
    All,
}

/// Receiver of all accesses; see [`crate::domain::modelled`].
pub(crate) trait Bill: Send + Sync {
    /// Reports bytes that are read or about to be written; they are mapped.
    fn touched(&self, mapping: &Mapping, offset: u64, bytes: u64);
    /// Reports a prefetch of a line; it need not be mapped.
    fn prefetched(&self, mapping: &Mapping, offset: u64);
}

/// Reserved address range whose front part is mapped.
pub(crate) struct Mapping {
    base: *mut u8,
    reservation: *mut libc::c_void,
    reservation_bytes: usize,
    capacity_bytes: u64,
    mapped_bytes: AtomicU64,
    /// End of the range whose words are returned without billing: the mapped range, or none if accesses are
    /// billed. So the mandatory bounds check distinguishes the two at no cost.
    free_bytes: AtomicU64,
    bill: Option<Arc<dyn Bill>>,
    /// Blocks that were accessed, in builds for tests: every change is in one of them.
    #[cfg(debug_assertions)]
    touched: Option<Box<[AtomicU64]>>,
}

/// Words of a block whose accesses are tracked.
#[cfg(debug_assertions)]
const BLOCK_WORDS: usize = 128;

// SAFETY: the range is owned by this value, lives until drop, and is accessed as atomics only.
unsafe impl Send for Mapping {}
// SAFETY: see `Send`.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Reserves addresses for `capacity_bytes`; takes no memory.
    pub(crate) fn reserve(capacity_bytes: u64) -> io::Result<Mapping> {
        let capacity = usize::try_from(capacity_bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
        let reservation_bytes = capacity.checked_add(ALIGNMENT).ok_or(io::ErrorKind::InvalidInput)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: asks for a fresh range, touches no existing mapping.
        let reservation =
            unsafe { libc::mmap(std::ptr::null_mut(), reservation_bytes, libc::PROT_NONE, flags, -1, 0) };
        if reservation == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let padding = (reservation as usize).next_multiple_of(ALIGNMENT) - reservation as usize;
        // SAFETY: `padding` < ALIGNMENT, which the reservation has on top of the capacity.
        let base = unsafe { reservation.cast::<u8>().add(padding) };
        Ok(Mapping {
            base,
            reservation,
            reservation_bytes,
            capacity_bytes,
            mapped_bytes: AtomicU64::new(0),
            free_bytes: AtomicU64::new(0),
            bill: None,
            #[cfg(debug_assertions)]
            touched: None,
        })
    }

    /// Reports all accesses from now on to `bill`.
    #[cfg(feature = "testkit")]
    pub(crate) fn bill_to(&mut self, bill: Arc<dyn Bill>) {
        self.bill = Some(bill);
        *self.free_bytes.get_mut() = 0;
    }

    /// As [`Mapping::reserve`], for [`Mapping::touched_words`].
    #[cfg(feature = "testkit")]
    pub(crate) fn reserve_tracked(capacity_bytes: u64) -> io::Result<Mapping> {
        #[allow(unused_mut)]
        let mut mapping = Mapping::reserve(capacity_bytes)?;
        #[cfg(debug_assertions)]
        {
            let blocks = capacity_bytes.div_ceil(BLOCK_WORDS as u64 * 8);
            mapping.touched = Some((0..blocks.div_ceil(64)).map(|_| AtomicU64::new(0)).collect());
        }
        Ok(mapping)
    }

    /// Ranges of words that contain all accessed ones. Only a tracked mapping in a build with debug
    /// assertions records them; any other returns the complete mapped range.
    #[cfg(feature = "testkit")]
    pub(crate) fn touched_words(&self) -> Vec<std::ops::Range<usize>> {
        let mapped = (self.mapped_bytes() / 8) as usize;
        #[cfg(debug_assertions)]
        if let Some(touched) = &self.touched {
            let mut ranges: Vec<std::ops::Range<usize>> = Vec::new();
            for (word, bits) in touched.iter().enumerate().take(mapped.div_ceil(64 * BLOCK_WORDS)) {
                let mut bits = bits.load(Ordering::Acquire);
                while bits != 0 {
                    let start = (word * 64 + bits.trailing_zeros() as usize) * BLOCK_WORDS;
                    let end = (start + BLOCK_WORDS).min(mapped);
                    bits &= bits - 1;
                    match ranges.last_mut() {
                        Some(last) if last.end == start => last.end = end,
                        _ if start < end => ranges.push(start..end),
                        _ => {}
                    }
                }
            }
            return ranges;
        }
        std::iter::once(0..mapped).collect()
    }

    /// Resets the tracking: no block counts as accessed.
    #[cfg(feature = "testkit")]
    pub(crate) fn forget_touched(&mut self) {
        #[cfg(debug_assertions)]
        for bits in self.touched.iter_mut().flatten() {
            *bits.get_mut() = 0;
        }
    }

    #[cfg(debug_assertions)]
    fn note_touched(&self, offset: u64, bytes: u64) {
        let Some(touched) = &self.touched else { return };
        let block_bytes = BLOCK_WORDS as u64 * 8;
        for block in offset / block_bytes..(offset + bytes).div_ceil(block_bytes) {
            let (word, bit) = (&touched[(block / 64) as usize], 1 << (block % 64));
            if word.load(Ordering::Relaxed) & bit == 0 {
                word.fetch_or(bit, Ordering::AcqRel);
            }
        }
    }

    /// Bytes mapped.
    #[inline]
    pub(crate) fn mapped_bytes(&self) -> u64 {
        self.mapped_bytes.load(Ordering::Acquire)
    }

    /// Bytes to which the mapping can grow.
    pub(crate) fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    /// Maps `bytes` more, directly behind the mapped range; for files, from the same offset of the file.
    pub(crate) fn grow(&self, bytes: u64, backing: &Backing<'_>) -> io::Result<()> {
        assert!(
            bytes > 0 && bytes.is_multiple_of(PAGE_BYTES),
            "a mapping grows by whole pages, not by {bytes} bytes"
        );
        let start = self.mapped_bytes.load(Ordering::Acquire);
        let end = start.checked_add(bytes).filter(|end| *end <= self.capacity_bytes);
        let end = end.ok_or(io::ErrorKind::OutOfMemory)?;
        let (flags, descriptor, file_offset) = match backing {
            Backing::Anonymous | Backing::Sparse => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0),
            Backing::Private(fd) => (libc::MAP_PRIVATE, fd.as_raw_fd(), start),
            Backing::Shared(fd) => (libc::MAP_SHARED, fd.as_raw_fd(), start),
            Backing::SharedSync(fd) => (libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC, fd.as_raw_fd(), start),
        };
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: `start` is inside the reservation.
        let address = unsafe { self.base.add(start as usize) }.cast::<libc::c_void>();
        // SAFETY: replaces a part of our own reservation that nothing has a reference into yet.
        let mapped = unsafe {
            libc::mmap(
                address,
                bytes as usize,
                protection,
                flags | libc::MAP_FIXED | libc::MAP_NORESERVE,
                descriptor,
                file_offset.cast_signed(),
            )
        };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        if matches!(backing, Backing::Anonymous) {
            // Only a hint: a kernel without huge pages refuses, and nothing depends on it.
            // SAFETY: advice on the range just mapped.
            unsafe { libc::madvise(mapped, bytes as usize, libc::MADV_HUGEPAGE) };
        }
        self.mapped_bytes.store(end, Ordering::Release);
        if self.bill.is_none() {
            self.free_bytes.store(end, Ordering::Release);
        }
        Ok(())
    }

    /// Words at a byte offset. Panics outside the mapped range or off the 8-byte grid: such an offset is a
    /// bug or damage, and must never become a stray store.
    #[inline]
    pub(crate) fn words(&self, offset: u64, count: usize) -> &[AtomicU64] {
        let bytes = (count as u64) * 8;
        let end = offset.wrapping_add(bytes);
        let free = self.free_bytes.load(Ordering::Acquire);
        if !(offset.is_multiple_of(8) && end >= offset && end <= free) {
            self.bill_or_panic(offset, count);
        }
        #[cfg(debug_assertions)]
        self.note_touched(offset, bytes);
        // SAFETY: the offset is inside the mapped range (checked here, or by the bill).
        let start = unsafe { self.base.add(offset as usize) }.cast::<AtomicU64>();
        // SAFETY: aligned (checked as well), mapped readable and writable until drop, and only ever seen as
        // atomics.
        unsafe { std::slice::from_raw_parts(start, count) }
    }

    /// Copies words out, each atomically; they include every store before the call.
    #[inline]
    pub(crate) fn copy_words(&self, offset: u64, to: &mut [u64]) {
        let words = self.words(offset, to.len());
        for (to, word) in to.iter_mut().zip(words) {
            *to = word.load(Ordering::Acquire);
        }
    }

    /// Returns true if accesses are billed.
    #[inline]
    pub(crate) fn is_billed(&self) -> bool {
        self.bill.is_some()
    }

    /// As [`Mapping::words`], but without billing: the caller reports its accesses by [`Mapping::touch`].
    #[inline]
    pub(crate) fn view(&self, offset: u64, count: usize) -> &[AtomicU64] {
        self.assert_mapped(offset, count);
        #[cfg(debug_assertions)]
        self.note_touched(offset, count as u64 * 8);
        // SAFETY: the offset is inside the mapped range (asserted).
        let start = unsafe { self.base.add(offset as usize) }.cast::<AtomicU64>();
        // SAFETY: as in `words`.
        unsafe { std::slice::from_raw_parts(start, count) }
    }

    /// Reports that bytes of a view are read or about to be written.
    #[inline]
    pub(crate) fn touch(&self, offset: u64, bytes: usize) {
        if self.free_bytes.load(Ordering::Relaxed) == 0 {
            self.bill_or_panic(offset & !7, (offset % 8 + bytes as u64).div_ceil(8) as usize);
        }
    }

    /// Panics if the words are out of bounds, otherwise bills them.
    #[cold]
    #[inline(never)]
    fn bill_or_panic(&self, offset: u64, count: usize) {
        self.assert_mapped(offset, count);
        if let Some(bill) = &self.bill {
            bill.touched(self, offset, count as u64 * 8);
        }
    }

    /// Maps zeroed memory up to `bytes`.
    #[cfg(feature = "testkit")]
    pub(crate) fn grow_zeroed(&self, bytes: u64) -> io::Result<()> {
        match bytes.saturating_sub(self.mapped_bytes()) {
            0 => Ok(()),
            more => self.grow(more, &Backing::Anonymous),
        }
    }

    /// Unmaps everything beyond `bytes`; growing again maps zeroed memory.
    #[cfg(feature = "testkit")]
    pub(crate) fn shrink_to(&mut self, bytes: u64) {
        for end in [&mut self.mapped_bytes, &mut self.free_bytes] {
            let end = end.get_mut();
            *end = bytes.min(*end);
        }
    }

    /// All mapped words, for the exclusive owner of the mapping.
    #[cfg(feature = "testkit")]
    pub(crate) fn exclusive_words(&mut self) -> &mut [u64] {
        let count = (*self.mapped_bytes.get_mut() / 8) as usize;
        // SAFETY: mapped readable and writable, aligned, and borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.base.cast::<u64>(), count) }
    }

    /// Panics if the words are outside the mapped range; see [`Mapping::words`].
    #[inline]
    pub(crate) fn assert_mapped(&self, offset: u64, count: usize) {
        let bytes = (count as u64) * 8;
        let end = offset.wrapping_add(bytes);
        assert!(
            offset.is_multiple_of(8) && end >= offset && end <= self.mapped_bytes.load(Ordering::Acquire),
            "pool offset {offset:#x} (+{bytes}) is outside the pool"
        );
    }

    /// Starts reading the pages of a range from the file behind the mapping, without waiting. Only advice.
    pub(crate) fn read_ahead(&self, offset: u64, bytes: u64) {
        self.advise(offset, bytes, libc::MADV_WILLNEED);
    }

    /// Prepares the pages of a range for stores: one call in place of a fault for each. Only advice.
    pub(crate) fn populate(&self, offset: u64, bytes: u64) {
        self.advise(offset, bytes, libc::MADV_POPULATE_WRITE);
    }

    /// Prepares the pages of a range for reads. False if one cannot be read, or the system does not support
    /// it.
    pub(crate) fn populate_for_readers(&self, offset: u64, bytes: u64) -> bool {
        self.advise(offset, bytes, libc::MADV_POPULATE_READ)
    }

    fn advise(&self, offset: u64, bytes: u64, advice: libc::c_int) -> bool {
        self.assert_mapped(offset, (bytes / 8) as usize);
        let address = self.base.wrapping_add(offset as usize).cast::<libc::c_void>();
        // SAFETY: advice on a mapped range (asserted) that changes no content.
        unsafe { libc::madvise(address, bytes as usize, advice) == 0 }
    }

    /// Number of pages of a page-aligned range that are in memory: of the process, or in the page cache of the
    /// file. All of them where the system does not say.
    pub(crate) fn resident_pages(&self, offset: u64, bytes: u64) -> u64 {
        self.assert_mapped(offset, (bytes / 8) as usize);
        let pages = bytes.div_ceil(PAGE_BYTES);
        let mut states = vec![0_u8; pages as usize];
        let address = self.base.wrapping_add(offset as usize).cast::<libc::c_void>();
        // SAFETY: asks about a mapped range (asserted); `states` has a byte for each of its pages.
        if unsafe { libc::mincore(address, bytes as usize, states.as_mut_ptr()) } != 0 {
            return pages;
        }
        states.iter().map(|state| u64::from(state & 1)).sum()
    }

    /// Frees the DRAM behind a page-aligned range whose content is not needed: it then reads as the file's
    /// bytes, or as zeros.
    pub(crate) fn forget(&self, offset: u64, bytes: u64) {
        self.assert_mapped(offset, (bytes / 8) as usize);
        let address = self.base.wrapping_add(offset as usize).cast::<libc::c_void>();
        // Only a hint: pages that stay do no harm.
        // SAFETY: inside our own mapping (asserted), which is seen as atomics only and stays mapped.
        unsafe { libc::madvise(address, bytes as usize, libc::MADV_DONTNEED) };
    }

    /// Backs an aligned range by huge pages from now on, or by small ones.
    pub(crate) fn advise_huge(&self, offset: u64, bytes: u64, is_huge: bool) -> bool {
        self.advise(offset, bytes, if is_huge { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE })
    }

    /// Addresses of the mapping.
    pub(crate) fn addresses(&self) -> std::ops::Range<usize> {
        let start = self.base.addr();
        start..start + self.capacity_bytes as usize
    }

    /// Sets the permitted access to a page-aligned range.
    pub(crate) fn set_access(&self, offset: u64, bytes: u64, access: Access) -> io::Result<()> {
        self.assert_mapped(offset, (bytes / 8) as usize);
        let address = self.base.wrapping_add(offset as usize).cast::<libc::c_void>();
        let protection = match access {
            Access::None => libc::PROT_NONE,
            Access::Readers => libc::PROT_READ,
            Access::All => libc::PROT_READ | libc::PROT_WRITE,
        };
        // SAFETY: inside our own mapping (asserted). An access that is not allowed waits in the handler of
        // its fault.
        match unsafe { libc::mprotect(address, bytes as usize, protection) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Replaces zeroed DRAM by the file's bytes, except the pages at some offsets, which stay as they are. A
    /// reader sees the old or the new pages at any time, never a mixture. The range must be read-only, and is
    /// writable afterwards; all its other pages must have the content of the file.
    pub(crate) fn back_by_file(
        &self,
        offset: u64,
        bytes: u64,
        file: BorrowedFd<'_>,
        kept: &[u64],
    ) -> io::Result<()> {
        self.assert_mapped(offset, (bytes / 8) as usize);
        assert!(offset.is_multiple_of(PAGE_BYTES), "whole pages are mapped anew, from {offset:#x} on");
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_NORESERVE;
        // SAFETY: asks for a fresh range, touches no existing mapping.
        let fresh = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes as usize,
                protection,
                flags,
                file.as_raw_fd(),
                offset.cast_signed(),
            )
        };
        if fresh == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        for page in kept {
            assert!(
                page.is_multiple_of(PAGE_BYTES) && (offset..offset + bytes).contains(page),
                "a page with changes lies in the range that is mapped anew: {page:#x}"
            );
            let from = self.base.wrapping_add(*page as usize).cast::<u64>();
            let to = fresh.cast::<u8>().wrapping_add((page - offset) as usize).cast::<u64>();
            // SAFETY: a page of our mapping, which no thread can store to now, and one of the fresh range,
            // which only we use.
            unsafe { std::ptr::copy_nonoverlapping(from, to, COPIED_WORDS) };
        }
        let address = self.base.wrapping_add(offset as usize).cast::<libc::c_void>();
        let moving = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        // SAFETY: moves the fresh range over a part of our mapping (asserted), in one step of the kernel;
        // both have the same content, and ours is only seen as atomics.
        let moved = unsafe { libc::mremap(fresh, bytes as usize, bytes as usize, moving, address) };
        if moved == libc::MAP_FAILED {
            let error = io::Error::last_os_error();
            // SAFETY: the fresh range, which is still where it was, and which only we use.
            unsafe { libc::munmap(fresh, bytes as usize) };
            return Err(error);
        }
        Ok(())
    }

    /// Replaces the file's bytes by DRAM in huge pages with the same content, as far as the system has them.
    /// A reader sees the old or the new pages at any time, never a mixture. The range is one of 2 MiB that
    /// starts at a multiple of that; it must be read-only, and is writable afterwards.
    pub(crate) fn back_by_huge_page(&self, offset: u64) -> io::Result<()> {
        self.assert_mapped(offset, ALIGNMENT / 8);
        let address = self.base.wrapping_add(offset as usize);
        if !address.addr().is_multiple_of(ALIGNMENT) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: asks for a fresh range, touches no existing mapping.
        let fresh = unsafe { libc::mmap(std::ptr::null_mut(), 2 * ALIGNMENT, protection, flags, -1, 0) };
        if fresh == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let padding = fresh.addr().next_multiple_of(ALIGNMENT) - fresh.addr();
        let aligned = fresh.cast::<u8>().wrapping_add(padding);
        // Before anything moves: another thread may map something at the aligned part's old address then.
        for (start, bytes) in
            [(fresh, padding), (aligned.wrapping_add(ALIGNMENT).cast(), ALIGNMENT - padding)]
        {
            if bytes > 0 {
                // SAFETY: a part of the fresh range, which only we use, beside the one that is used.
                unsafe { libc::munmap(start, bytes) };
            }
        }
        // SAFETY: advice on the fresh range.
        unsafe { libc::madvise(aligned.cast(), ALIGNMENT, libc::MADV_HUGEPAGE) };
        // SAFETY: a part of our mapping (asserted), which no thread can store to now, and one of the fresh
        // range, which only we use.
        unsafe { std::ptr::copy_nonoverlapping(address.cast::<u64>(), aligned.cast::<u64>(), ALIGNMENT / 8) };
        let moving = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        // SAFETY: moves a part of the fresh range over a part of our mapping (asserted), in one step of the
        // kernel; both have the same content, and ours is only seen as atomics.
        let moved = unsafe {
            libc::mremap(aligned.cast(), ALIGNMENT, ALIGNMENT, moving, address.cast::<libc::c_void>())
        };
        if moved == libc::MAP_FAILED {
            let error = io::Error::last_os_error();
            // SAFETY: the fresh range, which is still where it was, and which only we use.
            unsafe { libc::munmap(aligned.cast(), ALIGNMENT) };
            return Err(error);
        }
        Ok(())
    }

    /// Prefetches the cache line.
    #[inline]
    pub(crate) fn prefetch(&self, offset: u64) {
        if self.free_bytes.load(Ordering::Relaxed) == 0 {
            return self.bill_prefetch(offset);
        }
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let address = self.base.wrapping_add(offset as usize);
            // SAFETY: a prefetch never faults, whatever the address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast::<i8>()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = offset;
    }

    #[cold]
    #[inline(never)]
    fn bill_prefetch(&self, offset: u64) {
        if let Some(bill) = &self.bill {
            bill.prefetched(self, offset);
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly what `reserve` got, with all that was mapped inside; no borrow outlives
        // self.
        unsafe { libc::munmap(self.reservation, self.reservation_bytes) };
    }
}
