//! Entries of pages, loaded lazily by the block of the file, so that opening a pool costs the same whatever
//! it holds.

use super::{BLOCK_BYTES, ENTRIES_PER_BLOCK, ENTRIES_START, ENTRY_BYTES, UNKNOWN};
use crate::env::StorageFile;
use std::io;

type Block = [u32; ENTRIES_PER_BLOCK];

/// Entries of all pages.
pub(super) struct Table {
    blocks: Vec<Option<Box<Block>>>,
    /// Number of blocks of the file that count; the entries of others are unknown.
    in_file: usize,
    /// Number of blocks in memory.
    present: usize,
}

impl Table {
    /// Table of a file whose first `in_file` blocks count.
    pub(super) fn new(in_file: usize) -> Table {
        Table { blocks: Vec::new(), in_file, present: 0 }
    }

    /// Bytes of the blocks in memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.blocks.capacity() * size_of::<Option<Box<Block>>>() + self.present * size_of::<Block>()
    }

    /// Entry of a page. Cost: a read of 4 KiB for the first one of a block.
    pub(super) fn get(&mut self, file: &dyn StorageFile, page: u64) -> io::Result<u32> {
        let (block, index) = place(page);
        if block >= self.in_file && self.blocks.get(block).is_none_or(Option::is_none) {
            return Ok(UNKNOWN);
        }
        Ok(self.block(file, block)?[index])
    }

    /// Sets the entry of a page; returns the block that changed, if one did.
    pub(super) fn put(&mut self, file: &dyn StorageFile, page: u64, entry: u32) -> io::Result<Option<usize>> {
        let (block, index) = place(page);
        let word = &mut self.block(file, block)?[index];
        Ok((std::mem::replace(word, entry) != entry).then_some(block))
    }

    /// Encodes a block for the file.
    pub(super) fn encode(&mut self, file: &dyn StorageFile, block: usize) -> io::Result<[u8; BLOCK_BYTES]> {
        let mut bytes = [0; BLOCK_BYTES];
        for (to, word) in bytes.chunks_exact_mut(ENTRY_BYTES).zip(self.block(file, block)?) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        Ok(bytes)
    }

    fn block(&mut self, file: &dyn StorageFile, block: usize) -> io::Result<&mut Block> {
        if self.blocks.len() <= block {
            self.blocks.resize_with(block + 1, || None);
        }
        debug_assert!(self.present <= self.blocks.len(), "no more blocks are present than there are");
        let slot = &mut self.blocks[block];
        if slot.is_none() {
            let mut words = Box::new([UNKNOWN; ENTRIES_PER_BLOCK]);
            if block < self.in_file {
                let mut bytes = [0; BLOCK_BYTES];
                file.read_at(&mut bytes, ENTRIES_START + (block * BLOCK_BYTES) as u64)?;
                for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<ENTRY_BYTES>().0) {
                    *word = u32::from_le_bytes(*bytes);
                }
            }
            *slot = Some(words);
            self.present += 1;
        }
        Ok(slot.as_mut().expect("it was just read"))
    }
}

/// Block of a page's entry, and its index there.
fn place(page: u64) -> (usize, usize) {
    (page as usize / ENTRIES_PER_BLOCK, page as usize % ENTRIES_PER_BLOCK)
}
