//! Codes of one dimension by tuple id: a column of the tuples, out of the index that holds them.
//!
//! One pass over all lists. The index was checked when it was made, so each word is read once.

use super::lists::is_mono;
use super::{Elf, MARK};

/// Walk over all lists for the codes of a dimension.
struct CodeWalk<'e> {
    elf: &'e Elf,
    dimension: usize,
    codes: Vec<u32>,
}

impl Elf {
    /// Codes of a dimension, by tuple id. The dimension is one of the index.
    pub fn codes(&self, dimension: usize) -> Vec<u32> {
        assert!(dimension < self.dimensions(), "dimension {dimension} of {}", self.dimensions());
        let mut walk = CodeWalk { elf: self, dimension, codes: vec![0; self.tuples()] };
        if self.tuples() > 0 {
            walk.root();
        }
        walk.codes
    }
}

impl CodeWalk<'_> {
    fn root(&mut self) {
        let (words, first) = (&self.elf.words, self.elf.root());
        let slots = self.elf.shape.slots as usize;
        if slots == 0 {
            return self.list(first, 0, 0);
        }
        for (code, child) in words[first..first + slots].iter().enumerate() {
            if *child != 0 {
                self.child(*child, 1, code as u32);
            }
        }
    }

    /// Walks a DimensionList of a level; `code` is that of the dimension, if its level is above.
    fn list(&mut self, at: usize, level: usize, code: u32) {
        let words = &self.elf.words;
        let count = words[at] as usize;
        let (codes, children) = words[at + 1..at + 1 + 2 * count].split_at(count);
        for (own, child) in codes.iter().zip(children) {
            self.child(*child, level + 1, if level == self.dimension { *own } else { code });
        }
    }

    fn child(&mut self, child: u32, level: usize, code: u32) {
        let at = (child & !MARK) as usize;
        if !is_mono(child) {
            return self.list(at, level, code);
        }
        let words = &self.elf.words[at..];
        let code = if level <= self.dimension { words[self.dimension - level] } else { code };
        for word in &words[self.elf.dimensions() - level..] {
            self.codes[(word & !MARK) as usize] = code;
            if word & MARK != 0 {
                return;
            }
        }
    }
}
