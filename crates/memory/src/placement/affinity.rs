//! System calls that pin threads and place memory.

use super::Topology;
use crate::error::{Error, Result};
use std::io;
use std::path::Path;
use std::sync::atomic::AtomicU64;

/// Number of processors that a mask of the C library can name.
const CPUS_MAX: usize = libc::CPU_SETSIZE as usize;
/// Number of nodes that our masks can name: the maximum of Linux.
const NODES_MAX: usize = 1024;
/// Moves pages that only this process uses (`linux/mempolicy.h`; the C library has it in `numaif.h` only).
const MPOL_MF_MOVE: libc::c_long = 2;

fn failed(call: &'static str, error: &io::Error) -> Error {
    Error::io(call, Path::new("this thread"), error)
}

/// Processors that this thread may run on, ascending.
pub fn allowed_cpus() -> Result<Vec<usize>> {
    // SAFETY: an all-zero mask is an empty mask.
    let mut mask: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the mask is as long as said, and lives during the call.
    let result = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut mask) };
    if result != 0 {
        return Err(failed("get the processors of", &io::Error::last_os_error()));
    }
    // SAFETY: the index is below what the mask holds.
    Ok((0..CPUS_MAX).filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &mask) }).collect())
}

/// Pins this thread to the processors. Threads that it starts later inherit that.
pub fn pin_thread(cpus: &[usize]) -> Result<()> {
    if cpus.is_empty() || cpus.iter().any(|cpu| *cpu >= CPUS_MAX) {
        return Err(Error::Invalid(format!(
            "cannot pin to processors {cpus:?}; give numbers below {CPUS_MAX}"
        )));
    }
    // SAFETY: an all-zero mask is an empty mask.
    let mut mask: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for cpu in cpus {
        // SAFETY: the index is below what the mask holds (checked above).
        unsafe { libc::CPU_SET(*cpu, &mut mask) };
    }
    // SAFETY: the mask is as long as said, and lives during the call.
    match unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const mask) } {
        0 => Ok(()),
        _ => Err(failed("pin", &io::Error::last_os_error())),
    }
}

/// Mask with one node, for the kernel.
fn node_mask(node: usize) -> Result<[u64; NODES_MAX / 64]> {
    if node >= NODES_MAX {
        return Err(Error::Invalid(format!("memory node {node}; the maximum is {}", NODES_MAX - 1)));
    }
    let mut mask = [0; NODES_MAX / 64];
    mask[node / 64] = 1 << (node % 64);
    Ok(mask)
}

/// Makes this thread's first touches allocate memory from the node, as long as that has memory. Does nothing
/// on a machine with one node.
pub fn prefer_node(topology: &Topology, node: usize) -> Result<()> {
    if topology.nodes().len() < 2 {
        return Ok(());
    }
    prefer(node)
}

/// As [`prefer_node`], on any machine.
pub(super) fn prefer(node: usize) -> Result<()> {
    let mask = node_mask(node)?;
    // SAFETY: reads the mask, which is as long as said; changes only this thread's memory policy. The
    // kernel's count of bits is one more than there are.
    let result = unsafe {
        libc::syscall(
            libc::SYS_set_mempolicy,
            libc::c_long::from(libc::MPOL_PREFERRED),
            mask.as_ptr(),
            NODES_MAX + 1,
        )
    };
    if result == 0 { Ok(()) } else { Err(failed("set the memory node of", &io::Error::last_os_error())) }
}

/// Returns true if a memory policy was set for this thread, by itself or at the start of the process.
pub(super) fn prefers_some_node() -> Result<bool> {
    let mut mode: libc::c_int = 0;
    let (nowhere, flags): (*mut u64, libc::c_long) = (std::ptr::null_mut(), 0);
    // SAFETY: stores the policy's number, and no mask: there is no place for one.
    let result =
        unsafe { libc::syscall(libc::SYS_get_mempolicy, &raw mut mode, nowhere, 0usize, nowhere, flags) };
    match result {
        0 => Ok(mode != libc::MPOL_DEFAULT),
        _ => Err(failed("get the memory policy of", &io::Error::last_os_error())),
    }
}

/// Places the complete pages of a range on the node; pages that are elsewhere move. Does nothing on a machine
/// with one node. Not for mapped persistent memory or files, whose place the file system has determined.
pub fn bind_near(topology: &Topology, words: &[AtomicU64], node: usize) -> Result<()> {
    if topology.nodes().len() < 2 {
        return Ok(());
    }
    bind_pages(words, node)
}

fn bind_pages(words: &[AtomicU64], node: usize) -> Result<()> {
    let mask = node_mask(node)?;
    // SAFETY: asks for a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let page = usize::try_from(page).unwrap_or(4096);
    let start = (words.as_ptr() as usize).next_multiple_of(page);
    let end = (words.as_ptr() as usize + size_of_val(words)) / page * page;
    if start >= end {
        return Ok(());
    }
    // SAFETY: the pages are part of a live slice; where they lie changes, their content and address do not.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            start,
            end - start,
            libc::c_long::from(libc::MPOL_BIND),
            mask.as_ptr(),
            NODES_MAX + 1,
            MPOL_MF_MOVE,
        )
    };
    if result == 0 { Ok(()) } else { Err(failed("place memory of", &io::Error::last_os_error())) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_thread_is_pinned_where_it_may_run() {
        std::thread::spawn(|| {
            let allowed = allowed_cpus().unwrap();
            let last = *allowed.last().unwrap();
            pin_thread(&[last]).unwrap();
            assert_eq!(allowed_cpus().unwrap(), [last]);
            pin_thread(&allowed).unwrap();
            assert_eq!(allowed_cpus().unwrap(), allowed);
            assert!(pin_thread(&[]).is_err());
            assert!(pin_thread(&[CPUS_MAX]).is_err());
        })
        .join()
        .unwrap();
    }

    #[test]
    fn memory_is_bound_to_the_node_that_there_is() {
        let words: Vec<AtomicU64> = (0..4096).map(AtomicU64::new).collect();
        match bind_pages(&words, 0) {
            Ok(()) => assert!(bind_pages(&words, NODES_MAX - 1).is_err(), "there is no such node"),
            // A container may forbid the call; then it says so.
            Err(error) => assert!(error.to_string().contains("place memory"), "{error}"),
        }
        assert!(
            words
                .iter()
                .enumerate()
                .all(|(i, word)| word.load(std::sync::atomic::Ordering::Relaxed) == i as u64)
        );
        assert!(bind_pages(&words[..8], 0).is_ok(), "less than a page: nothing to do");
        assert!(bind_pages(&words, NODES_MAX).is_err());
    }
}
