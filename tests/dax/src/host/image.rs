//! The NVDIMM's content: what Linux calls a pfn device, with an ext4 file system on it.
//!
//! ```text
//! byte   what
//! 4096   pfn superblock (the kernel's drivers/nvdimm/pfn.h): makes a raw NVDIMM one that ext4 can map directly
//! 2 MiB  ext4
//! ```

use crate::Result;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

/// Bytes of an NVDIMM.
pub(crate) const NVDIMM_BYTES: u64 = 32 << 20;
/// Where its file system begins; also the alignment that huge pages ask for.
const DATA_OFFSET: u64 = 2 << 20;
const BLOCK_BYTES: u64 = 4096;
const UUID: &str = "d0d0cafe-0000-4000-8000-000000000001";
const HASH_SEED: &str = "d0d0cafe-0000-4000-8000-000000000002";
const SUPERBLOCK_OFFSET: u64 = 4096;

/// Makes a formatted image.
pub(crate) fn format(path: &Path) -> Result<()> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
    file.set_len(NVDIMM_BYTES)?;
    file.write_all_at(&pfn_superblock(), SUPERBLOCK_OFFSET)?;
    drop(file);
    let sbin = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    // Nothing random, so that a run repeats from its seed.
    let made = Command::new("mke2fs")
        .env("PATH", sbin)
        .env("E2FSPROGS_FAKE_TIME", "1700000000")
        .args(["-q", "-F", "-t", "ext4", "-b", &BLOCK_BYTES.to_string(), "-J", "size=4", "-m", "0"])
        .args(["-U", UUID])
        .args(["-E", &format!("offset={DATA_OFFSET},hash_seed={HASH_SEED},lazy_itable_init=0")])
        .arg(path)
        .arg(format!("{}k", (NVDIMM_BYTES - DATA_OFFSET) / 1024))
        .status()
        .map_err(|e| format!("mke2fs (of e2fsprogs) does not start: {e}"))?;
    if made.success() { Ok(()) } else { Err(format!("mke2fs: {made}").into()) }
}

fn pfn_superblock() -> [u8; 4096] {
    let mut block = [0u8; 4096];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"NVDIMM_PFN_INFO\0");
    put(16, b"entresoldaxtest1"); // its UUID; the parent's, behind it, is zero without labels
    put(52, &1u16.to_le_bytes()); // version 1.4
    put(54, &4u16.to_le_bytes());
    put(56, &DATA_OFFSET.to_le_bytes());
    put(64, &((NVDIMM_BYTES - DATA_OFFSET) / BLOCK_BYTES).to_le_bytes());
    put(72, &1u32.to_le_bytes()); // the kernel's page descriptors are in DRAM
    put(84, &(DATA_OFFSET as u32).to_le_bytes()); // alignment
    put(88, &4096u32.to_le_bytes()); // bytes of a page, and of its descriptor
    put(92, &64u16.to_le_bytes());
    let checksum = fletcher(&block);
    block[4088..].copy_from_slice(&checksum.to_le_bytes());
    block
}

/// The checksum of NVDIMM metadata: Fletcher's over 32-bit words.
fn fletcher(block: &[u8]) -> u64 {
    let (mut low, mut high) = (0u32, 0u64);
    for word in block.chunks_exact(4) {
        low = low.wrapping_add(word.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte)));
        high = high.wrapping_add(u64::from(low));
    }
    high << 32 | u64::from(low)
}
