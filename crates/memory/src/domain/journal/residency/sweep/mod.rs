//! The clock hand: visits the pool slice by slice and evicts clean pages.
//!
//! A slice is inspected without any lock. If some of its pages may be evicted, a window is opened
//! ([`Window`]): the slice is read-only for about 100 us, and threads that store to it wait; every page is
//! inspected again, and evicted. Within the window nothing waits for a lock or for the disk, and nothing
//! allocates from the heap, since a stopped thread may hold any lock.
//!
//! A slice of zeroed memory (extents that are new since the pool was opened) cannot be evicted page by page:
//! it would read as zeros. It is replaced by the file's bytes as a unit; pages that are not clean are copied
//! over ([`Mapping::back_by_file`](crate::mapping::Mapping::back_by_file)). From then on it is like others.

mod granularity;

use super::super::JournalState;
use super::super::checkpoint::checksums::ContentMatch;
use super::super::writing::buffer::AlignedBuffer;
use super::pages::{PageMap, PageState, ProcessMemory};
use super::replacement::{PageReplacement, Replacement};
use super::single_faults::SingleFaults;
use crate::budget::MEMORY_MAX_MIN;
use crate::fault::{self, Window};
use crate::mapping::{Access, Mapping, PAGE_BYTES};
use crate::offset::PoolOffset;
use crate::order::{check, step};
use crate::points::{LEAVING_PAGES_CLOSED, ONLY_CLEAN_PAGES_GO};
use crate::pool::is_short_memory_requested;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Bytes evicted together: those of a huge page, or of an extent where that is less.
const SLICE_BYTES_MAX: u64 = 2 << 20;
const SLICE_PAGES_MAX: usize = (SLICE_BYTES_MAX / PAGE_BYTES) as usize;
/// Interval between two counts of the pool's pages; in between they are estimated.
const RECOUNT: Duration = Duration::from_secs(2);
/// Least number of pages whose states the system reports in a millisecond.
const COUNTED_PAGES_PER_MS: u64 = 10_000;
/// Number of slices between two reads of the process's memory.
const SLICES_AT_ONCE: usize = 8;
/// Number of pages of a slice that tests compare with the file on eviction.
const COMPARED_PAGES: usize = 2;

/// Clock hand, and its state.
pub(super) struct Sweeper {
    map: PageMap,
    process: ProcessMemory,
    policy: Box<dyn Replacement>,
    /// Pages that differ from the file without a mark, and did so at the last visit; one bit each.
    known_strays: Vec<u64>,
    single_faults: Option<SingleFaults>,
    slice_bytes: u64,
    /// Bytes from the front that were mapped from the file when the pool was opened.
    opened_bytes: u64,
    /// Slices behind them that the file backs by now, one bit each.
    replaced: Vec<u64>,
    /// Slices before that end that huge pages back by now, one bit each.
    huge: Vec<u64>,
    /// Next slice to consider for huge pages.
    huge_hand: usize,
    /// True if the system has huge pages on request.
    has_huge_pages: bool,
    /// Next slice to visit.
    hand: usize,
    /// Number of pages evicted in sweeps.
    evicted: u64,
    /// Resident bytes of the pool, and of the process, at the last count.
    known: Option<(u64, u64)>,
    /// Time of the last count.
    counted: Instant,
    /// Bytes of the pool after the last check, and its time.
    left: (u64, Instant),
    pages: Vec<PageState>,
    chosen: Vec<u16>,
    strays: Vec<u16>,
    kept: Vec<u64>,
    content: AlignedBuffer,
    warned: bool,
    /// True if pages are compared with the file before eviction: a read for each.
    compares: bool,
}

/// Pages with restricted access, until it is dropped.
struct RestrictedPages<'m> {
    mapping: &'m Mapping,
    range: Range<u64>,
}

impl<'m> RestrictedPages<'m> {
    fn to(mapping: &'m Mapping, range: &Range<u64>, open: Access) -> Option<RestrictedPages<'m>> {
        step(LEAVING_PAGES_CLOSED, || mapping.set_access(range.start, range.end - range.start, open)).ok()?;
        Some(RestrictedPages { mapping, range: range.clone() })
    }
}

impl Drop for RestrictedPages<'_> {
    fn drop(&mut self) {
        let Range { start, end } = self.range;
        if self.mapping.set_access(start, end - start, Access::All).is_err() {
            // Others would wait for ever; every state of the files is prepared for a crash.
            tracing::error!(start, "cannot restore access to pages of the pool; the process ends");
            std::process::abort();
        }
    }
}

impl Sweeper {
    pub(super) fn new(
        map: PageMap,
        process: ProcessMemory,
        mapping: &Mapping,
        extent_bytes: u64,
        budget_bytes: u64,
        replacement: PageReplacement,
    ) -> Sweeper {
        Sweeper {
            // Never across the end of the mapping.
            slice_bytes: SLICE_BYTES_MAX.min(extent_bytes),
            opened_bytes: mapping.mapped_bytes(),
            map,
            process,
            policy: replacement.policy(),
            known_strays: Vec::new(),
            single_faults: SingleFaults::open()
                .inspect_err(|error| tracing::debug!(%error, "cannot restrict page faults to single pages"))
                .ok(),
            replaced: Vec::new(),
            huge: Vec::new(),
            huge_hand: 0,
            has_huge_pages: granularity::has_huge_pages(),
            hand: 0,
            evicted: 0,
            known: None,
            counted: Instant::now(),
            left: (0, Instant::now()),
            // As much as is ever needed.
            pages: Vec::with_capacity(SLICE_PAGES_MAX),
            chosen: Vec::with_capacity(SLICE_PAGES_MAX),
            strays: Vec::with_capacity(SLICE_PAGES_MAX),
            kept: Vec::with_capacity(SLICE_PAGES_MAX),
            content: AlignedBuffer::new(PAGE_BYTES as usize),
            warned: false,
            compares: cfg!(test) || is_short_memory_requested() && budget_bytes < MEMORY_MAX_MIN,
        }
    }

    /// Approximate bytes of the pool in memory: the last count, plus the growth of the process since.
    pub(super) fn estimate(&mut self, mapping: &Mapping) -> u64 {
        let process = self.process_bytes();
        let (pool, before) = match self.known {
            Some(known) => known,
            None => (self.count(mapping), process),
        };
        self.known = Some((pool, before));
        (pool + process).saturating_sub(before).min(mapping.mapped_bytes())
    }

    /// Resident bytes of the process.
    pub(super) fn process_bytes(&self) -> u64 {
        self.process.resident_bytes().unwrap_or(0)
    }

    /// As [`Sweeper::estimate`]; counts again if much seems to have changed since the last time.
    pub(super) fn estimate_idle(&mut self, mapping: &Mapping) -> u64 {
        let estimate = self.estimate(mapping);
        let counted = self.known.map_or(0, |(pool, _)| pool);
        if estimate.abs_diff(counted) > mapping.mapped_bytes() / 8 {
            self.known = None;
            return self.estimate(mapping);
        }
        estimate
    }

    /// Bytes of the sweeper's state of pages.
    pub(super) fn remembered_bytes(&self) -> u64 {
        let words = self.replaced.capacity() + self.known_strays.capacity();
        (self.policy.memory_bytes() + words * size_of::<u64>()) as u64
    }

    /// Growth in bytes a millisecond since the last check.
    pub(super) fn growth_per_ms(&self, resident: u64) -> u64 {
        let (before, at) = self.left;
        let elapsed_ms = u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
        resident.saturating_sub(before) / elapsed_ms
    }

    /// Notes the end of a check.
    pub(super) fn note_usage(&mut self, resident: u64) {
        self.left = (resident, Instant::now());
    }

    /// Counts the pages again, if that takes a millisecond or two, or the last count is old.
    pub(super) fn recount_if_cheap(&mut self, mapping: &Mapping) -> u64 {
        if counting_ms(mapping) <= 2 || self.counted.elapsed() >= RECOUNT {
            self.known = None;
        }
        self.estimate(mapping)
    }

    /// Counts the pages again, if the last count is old and the pool has room for what is loaded meanwhile.
    pub(super) fn recount_if_calm(&mut self, mapping: &Mapping, growth_per_ms: u64, headroom: u64) {
        if self.counted.elapsed() >= RECOUNT && growth_per_ms * counting_ms(mapping) * 2 < headroom {
            self.known = None;
            self.estimate(mapping);
        }
    }

    fn count(&mut self, mapping: &Mapping) -> u64 {
        self.counted = Instant::now();
        let mut pages = 0;
        for slice in 0..self.slices(mapping) {
            pages += self.read(mapping, &self.range(slice)) as u64;
        }
        pages * PAGE_BYTES
    }

    /// Reads the states of a slice's pages; returns the number of present ones.
    fn read(&mut self, mapping: &Mapping, slice: &Range<u64>) -> usize {
        let address = mapping.addresses().start + slice.start as usize;
        let count = ((slice.end - slice.start) / PAGE_BYTES) as usize;
        if self.map.read(address, count, &mut self.pages).is_err() {
            self.pages.clear();
        }
        self.pages.iter().filter(|page| **page != PageState::Absent).count()
    }

    /// Evicts pages until the pool has at most `low` bytes, or no more can be evicted; returns its bytes
    /// then, and true if any page was evicted. While it has more than `target`, or after a complete turn, no
    /// page stays for its turns.
    pub(super) fn sweep(&mut self, shared: &JournalState, low: u64, target: u64) -> (u64, bool) {
        let mapping = &shared.mapping;
        let slices = self.slices(mapping);
        let mut resident = self.estimate(mapping);
        let (mut urgent_visits, mut dropped) = (0, 0);
        for visited in 0..slices * 2 {
            if visited.is_multiple_of(SLICES_AT_ONCE) {
                resident = self.estimate(mapping);
                if resident > target {
                    let before = resident;
                    resident = self.drop_pages_of_file(mapping, low);
                    dropped += before.saturating_sub(resident) as usize;
                }
                // After an urgent turn no page is left that can be evicted.
                if resident <= low || urgent_visits >= slices || shared.background.is_stopping() {
                    break;
                }
            }
            self.hand = if self.hand >= slices { 0 } else { self.hand };
            let urgent = resident > target || visited >= slices;
            urgent_visits += usize::from(urgent);
            let count = self.visit(shared, self.hand, urgent);
            dropped += count;
            self.evicted += count as u64;
            self.hand += 1;
        }
        (self.estimate(mapping), dropped > 0)
    }

    /// Evicts pages of the file's cache while all accesses to the pool wait, until it has at most `low`
    /// bytes; returns its bytes then. For when pages are loaded faster than they are evicted: one fault maps
    /// all its neighbours that are in the cache, so readers would win. They wait for about 10 ms. Such pages
    /// were never stored to, so they need no checks.
    fn drop_pages_of_file(&mut self, mapping: &Mapping, low: u64) -> u64 {
        let slices = self.slices(mapping);
        let all = 0..slices as u64 * self.slice_bytes;
        if slices == 0 || !self.may_open_windows() {
            return self.estimate(mapping);
        }
        self.policy.make_room((all.end / PAGE_BYTES) as usize);
        let Some(_window) = Window::open(&self.addresses(mapping, &all)) else {
            return self.estimate(mapping);
        };
        let Some(_closed) = RestrictedPages::to(mapping, &all, Access::None) else {
            return self.estimate(mapping);
        };
        let mut resident = self.estimate(mapping);
        for _ in 0..slices {
            if resident <= low {
                break;
            }
            self.hand = if self.hand >= slices { 0 } else { self.hand };
            let range = self.range(self.hand);
            self.hand += 1;
            if self.read(mapping, &range) == 0 || !self.is_of_file(&range) {
                continue;
            }
            let mut at = range.start;
            for run in self.pages.chunk_by(|page, next| page == next) {
                let bytes = run.len() as u64 * PAGE_BYTES;
                if run[0] == PageState::OfFile {
                    mapping.forget(at, bytes);
                    let first = (at / PAGE_BYTES) as usize;
                    (first..first + run.len()).for_each(|page| self.policy.note_eviction(page));
                    self.evicted += run.len() as u64;
                    resident = resident.saturating_sub(bytes);
                }
                at += bytes;
            }
        }
        self.estimate(mapping)
    }

    /// Evicts all pages that may be evicted; returns the number of pages evicted since the last call, by any
    /// thread.
    #[cfg(test)]
    pub(super) fn drop_all_clean(&mut self, shared: &JournalState) -> u64 {
        let slices = 0..self.slices(&shared.mapping);
        let count: u64 = slices.map(|slice| self.visit(shared, slice, true) as u64).sum();
        count + std::mem::take(&mut self.evicted)
    }

    /// Number of pages that were stored to and are still present, in slices of the file.
    #[cfg(test)]
    pub(super) fn stored_pages(&mut self, mapping: &Mapping) -> u64 {
        let mut stored = 0;
        for slice in 0..self.slices(mapping) {
            let range = self.range(slice);
            self.read(mapping, &range);
            let own = self.pages.iter().filter(|page| **page == PageState::Own).count() as u64;
            stored += if self.is_of_file(&range) { own } else { 0 };
        }
        stored
    }

    /// Evicts pages of a slice; returns their number.
    fn visit(&mut self, shared: &JournalState, slice: usize, urgent: bool) -> usize {
        let mapping = &*shared.mapping;
        let range = self.range(slice);
        let present = self.read(mapping, &range);
        if present == 0 || !self.may_open_windows() {
            return 0;
        }
        let first = range.start / PAGE_BYTES;
        let of_file = self.is_of_file(&range);
        self.choose(shared, first, of_file, urgent);
        let last = first + self.pages.len() as u64;
        if self.chosen.is_empty() || shared.checksums.load(first..last).is_err() {
            return 0;
        }
        let dropped = if of_file { self.evict_chosen(shared, &range) } else { self.replace(shared, &range) };
        if !of_file
            && self.is_of_file(&range)
            && shared.loads_single_pages()
            && let Some(faults) = &self.single_faults
        {
            // Only advice, as all of it.
            faults.register(&self.addresses(mapping, &range)).ok();
        }
        self.note_strays(shared, first);
        dropped
    }

    /// Chooses pages to evict, by what is known without a window.
    fn choose(&mut self, shared: &JournalState, first: u64, of_file: bool, urgent: bool) {
        self.chosen.clear();
        self.strays.clear();
        if !of_file {
            // All pages or none: the slice has the state of its first page.
            if self.policy.may_evict(first as usize) || urgent {
                self.chosen.extend(0..self.pages.len() as u16);
            }
            return;
        }
        for (index, page) in self.pages.iter().enumerate() {
            let number = first + index as u64;
            if *page != PageState::Absent
                && (self.policy.may_evict(number as usize) || urgent)
                && check(shared.dirty.is_clean(number), ONLY_CLEAN_PAGES_GO)
            {
                self.chosen.push(index as u16);
            }
        }
    }

    /// Evicts the chosen pages of a slice of the file that are clean within a window.
    fn evict_chosen(&mut self, shared: &JournalState, range: &Range<u64>) -> usize {
        let mapping = &*shared.mapping;
        let first = range.start / PAGE_BYTES;
        let Some(_window) = Window::open(&self.addresses(mapping, range)) else { return 0 };
        let Some(_closed) = RestrictedPages::to(mapping, range, Access::Readers) else { return 0 };
        self.read(mapping, range);
        let Sweeper { pages, chosen, strays, content, .. } = self;
        shared.checksums.try_compare(|compare| {
            chosen.retain(|index| {
                let page = first + u64::from(*index);
                match pages.get(usize::from(*index)) {
                    Some(PageState::OfFile) => check(shared.dirty.is_clean(page), ONLY_CLEAN_PAGES_GO),
                    Some(PageState::Own) if check(shared.dirty.is_clean(page), ONLY_CLEAN_PAGES_GO) => {
                        let found = compare(page, copied(mapping, page, content));
                        if matches!(found, ContentMatch::Other | ContentMatch::Never) {
                            strays.push(*index);
                        }
                        check(found == ContentMatch::Same, ONLY_CLEAN_PAGES_GO)
                    }
                    _ => false,
                }
            });
        });
        if self.compares {
            compare_with_file(shared, first, pages, chosen, content);
        }
        for run in chosen.chunk_by(|page, next| page + 1 == *next) {
            mapping.forget(range.start + u64::from(run[0]) * PAGE_BYTES, run.len() as u64 * PAGE_BYTES);
        }
        chosen.iter().for_each(|index| self.policy.note_eviction((first + u64::from(*index)) as usize));
        self.chosen.len()
    }

    /// Replaces a slice of zeroed memory by the file, if at least half of its pages are clean.
    fn replace(&mut self, shared: &JournalState, range: &Range<u64>) -> usize {
        let mapping = &*shared.mapping;
        let first = range.start / PAGE_BYTES;
        let Some(_window) = Window::open(&self.addresses(mapping, range)) else { return 0 };
        let Some(_closed) = RestrictedPages::to(mapping, range, Access::Readers) else { return 0 };
        let present = self.read(mapping, range);
        let Sweeper { pages, strays, kept, content, .. } = self;
        kept.clear();
        shared.checksums.try_compare(|compare| {
            for (index, page) in pages.iter().enumerate() {
                let number = first + index as u64;
                let clean = match page {
                    // New extents are zeros in the file as well.
                    PageState::Absent => true,
                    _ if !check(shared.dirty.is_clean(number), ONLY_CLEAN_PAGES_GO) => false,
                    _ => {
                        let content = copied(mapping, number, content);
                        let found = compare(number, content);
                        let clean = match found {
                            ContentMatch::Same => true,
                            // The file has zeros there still, or again.
                            ContentMatch::Never => content.iter().all(|byte| *byte == 0),
                            ContentMatch::Other | ContentMatch::NotKnown => false,
                        };
                        if !clean && found != ContentMatch::NotKnown {
                            strays.push(index as u16);
                        }
                        clean
                    }
                };
                if !clean {
                    kept.push(number * PAGE_BYTES);
                }
            }
        });
        if kept.len() * 2 > pages.len() {
            return 0;
        }
        let file = shared.pages_file.descriptor();
        if mapping.back_by_file(range.start, range.end - range.start, file, kept).is_err() {
            return 0;
        }
        let slice = (range.start / self.slice_bytes) as usize;
        if self.replaced.len() <= slice / 64 {
            // May allocate within the window: that stops only threads that store to the pool.
            self.replaced.resize(slice / 64 + 1, 0);
        }
        self.replaced[slice / 64] |= 1 << (slice % 64);
        if let Some(bits) = self.huge.get_mut(slice / 64) {
            *bits &= !(1 << (slice % 64));
        }
        present.saturating_sub(self.kept.len())
    }

    fn slices(&self, mapping: &Mapping) -> usize {
        (mapping.mapped_bytes() / self.slice_bytes) as usize
    }

    fn range(&self, slice: usize) -> Range<u64> {
        let start = slice as u64 * self.slice_bytes;
        start..start + self.slice_bytes
    }

    fn may_open_windows(&mut self) -> bool {
        let may = fault::is_installed();
        if !may && !std::mem::replace(&mut self.warned, true) {
            tracing::warn!("another handler of SIGSEGV was installed: page eviction is disabled");
        }
        may
    }

    fn addresses(&self, mapping: &Mapping, range: &Range<u64>) -> Range<usize> {
        let base = mapping.addresses().start;
        base + range.start as usize..base + range.end as usize
    }

    fn is_of_file(&self, range: &Range<u64>) -> bool {
        let slice = (range.start / self.slice_bytes) as usize;
        let has = |bits: &[u64]| bits.get(slice / 64).is_some_and(|bits| bits & 1 << (slice % 64) != 0);
        has(&self.replaced) || range.end <= self.opened_bytes && !has(&self.huge)
    }

    /// Notes that the page differs from the file without a mark; true for the second time in a row.
    fn is_stray_again(&mut self, page: usize) -> bool {
        let (word, bit) = (page / 64, 1 << (page % 64));
        if self.known_strays.len() <= word {
            self.known_strays.resize(word + 1, 0);
        }
        self.known_strays[word] ^= bit;
        self.known_strays[word] & bit == 0
    }

    /// Marks pages that differ from the file without a mark for the second time in a row.
    fn note_strays(&mut self, shared: &JournalState, first: u64) {
        for index in 0..self.strays.len() {
            let page = first + u64::from(self.strays[index]);
            if self.is_stray_again(page as usize) {
                let _held = shared.appender.active.lock();
                shared.dirty.mark(PoolOffset::new(page * PAGE_BYTES), PAGE_BYTES);
            }
        }
    }
}

/// Duration of a count of all pages, rounded up.
fn counting_ms(mapping: &Mapping) -> u64 {
    mapping.mapped_bytes() / PAGE_BYTES / COUNTED_PAGES_PER_MS + 1
}

/// Copies the content of a page.
fn copied<'b>(mapping: &Mapping, page: u64, to: &'b mut AlignedBuffer) -> &'b [u8] {
    let words = mapping.view(page * PAGE_BYTES, PAGE_BYTES as usize / 8);
    for (to, word) in to.words_mut().iter_mut().zip(words) {
        *to = word.load(Ordering::Relaxed);
    }
    to.bytes()
}

/// Panics if a page that is about to be evicted differs from the file: a store would be lost.
fn compare_with_file(
    shared: &JournalState,
    first: u64,
    pages: &[PageState],
    chosen: &[u16],
    content: &mut AlignedBuffer,
) {
    let mut in_file = AlignedBuffer::new(PAGE_BYTES as usize);
    let stored = chosen.iter().filter(|index| pages.get(usize::from(**index)) == Some(&PageState::Own));
    for index in stored.take(COMPARED_PAGES) {
        let page = first + u64::from(*index);
        if shared.pages_file.read_at(in_file.bytes_mut(), page * PAGE_BYTES).is_ok() {
            let same = copied(&shared.mapping, page, content) == in_file.bytes();
            assert!(same, "page {page} is evicted, but the file has another content");
        }
    }
}
