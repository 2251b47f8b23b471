//! Soundness of an array that was stored.
//!
//! One pass, depth first, in which each child has to begin where the one before it ended: so every word belongs
//! to one list only, and a search reads each word at most once.

use super::{ELF_CODE_MAX, Elf, ElfLevel, MARK, damaged};
use crate::error::Result;

/// Walk over the words.
struct ElfWalk<'e> {
    elf: &'e Elf,
    /// Word at which the next list begins.
    next: usize,
    levels: Vec<ElfLevel>,
    /// Bit for each tuple id that was met.
    met: Vec<u64>,
    tuples: usize,
}

impl Elf {
    /// Checks the invariants of the [module](super).
    pub(super) fn check(&self) -> Result<()> {
        if self.shape.tuples > ELF_CODE_MAX {
            return Err(damaged(
                2,
                format!("it has {} tuples, at most {ELF_CODE_MAX} are possible", self.shape.tuples),
            ));
        }
        // Each tuple id takes a word.
        if self.tuples() > self.words.len() {
            return Err(damaged(2, format!("{} tuples in {} words", self.tuples(), self.words.len())));
        }
        let met = vec![0; self.tuples().div_ceil(64)];
        let levels = vec![ElfLevel::default(); self.dimensions()];
        let mut walk = ElfWalk { elf: self, next: self.root(), levels, met, tuples: 0 };
        if self.tuples() > 0 {
            walk.root()?;
        }
        walk.end()
    }
}

impl<'e> ElfWalk<'e> {
    /// Next words, which are passed.
    fn take(&mut self, count: usize) -> Result<&'e [u32]> {
        let words = self.elf.words[self.next..].get(..count);
        let words = words.ok_or_else(|| damaged(self.next, format!("{count} more words are missing")))?;
        self.next += count;
        Ok(words)
    }

    fn root(&mut self) -> Result<()> {
        let slots = self.elf.shape.slots as usize;
        if slots == 0 {
            return self.list(0);
        }
        let children = self.take(slots)?;
        self.levels[0].lists += 1;
        for child in children.iter().filter(|child| **child != 0) {
            self.levels[0].entries += 1;
            self.child(*child, 1)?;
        }
        Ok(())
    }

    fn list(&mut self, dimension: usize) -> Result<()> {
        let at = self.next;
        let count = self.take(1)?[0] as usize;
        if count == 0 {
            return Err(damaged(at, "an empty list".to_owned()));
        }
        let (codes, children) = (self.take(count)?, self.take(count)?);
        let ascends = codes.windows(2).all(|pair| pair[0] < pair[1]);
        if !ascends || codes[count - 1] > ELF_CODE_MAX {
            return Err(damaged(at, format!("codes of dimension {dimension} do not ascend")));
        }
        self.levels[dimension].lists += 1;
        self.levels[dimension].entries += count as u32;
        children.iter().try_for_each(|child| self.child(*child, dimension + 1))
    }

    fn child(&mut self, child: u32, dimension: usize) -> Result<()> {
        let offset = (child & !MARK) as usize;
        if offset != self.next {
            return Err(damaged(
                self.next,
                format!("a child of dimension {dimension} is said to be at {offset}"),
            ));
        }
        if child & MARK != 0 {
            return self.mono(dimension);
        }
        if dimension == self.elf.dimensions() {
            return Err(damaged(offset, "a list below the last dimension".to_owned()));
        }
        self.list(dimension)
    }

    fn mono(&mut self, dimension: usize) -> Result<()> {
        let at = self.next;
        let codes = self.take(self.elf.dimensions() - dimension)?;
        if codes.iter().any(|code| *code > ELF_CODE_MAX) {
            return Err(damaged(at, "a code above the maximum".to_owned()));
        }
        if let Some(level) = self.levels.get_mut(dimension) {
            level.monos += 1;
        }
        loop {
            let word = self.take(1)?[0];
            self.tuple(word & !MARK)?;
            if word & MARK != 0 {
                return Ok(());
            }
        }
    }

    fn tuple(&mut self, id: u32) -> Result<()> {
        let (word, bit) = (id as usize / 64, 1 << (id % 64));
        if id >= self.elf.shape.tuples || self.met[word] & bit != 0 {
            let of = self.elf.shape.tuples;
            return Err(damaged(self.next - 1, format!("tuple {id} of {of} is beyond them, or there twice")));
        }
        self.met[word] |= bit;
        self.tuples += 1;
        Ok(())
    }

    fn end(&self) -> Result<()> {
        let words = self.elf.words.len();
        if self.next != words {
            return Err(damaged(self.next, format!("{} words belong to no list", words - self.next)));
        }
        if self.tuples != self.elf.tuples() {
            return Err(damaged(2, format!("{} tuples of {} are there", self.tuples, self.elf.tuples())));
        }
        if self.levels != self.elf.shape.levels {
            return Err(damaged(5, "the counts of dimensions are not those of the lists".to_owned()));
        }
        Ok(())
    }
}
