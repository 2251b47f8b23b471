//! Searches: tuples that meet a condition on each of some dimensions.
//!
//! A list of a dimension with a condition is entered at the least code that can meet it, by a binary search, and
//! left at the greatest. Below the last dimension with a condition all tuples are results.

use super::{Elf, MARK};
use std::ops::ControlFlow;

/// Entries of a list up to which it is searched from its beginning.
const SHORT_LIST: usize = 8;
/// Bits of a set, at most; sets that span more are searched.
const SET_BITS_MAX: u32 = 1 << 20;

/// Set of codes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeSet {
    /// TupleOrder, each once.
    codes: Box<[u32]>,
    /// Bit for each code from the least to the greatest; none if they span too many.
    bits: Box<[u64]>,
}

impl CodeSet {
    /// Set of these codes.
    pub fn new(mut codes: Vec<u32>) -> CodeSet {
        codes.sort_unstable();
        codes.dedup();
        let mut bits = Vec::new();
        if let (Some(least), Some(greatest)) = (codes.first(), codes.last())
            && greatest - least < SET_BITS_MAX
        {
            bits.resize(((greatest - least) / 64 + 1) as usize, 0);
            codes
                .iter()
                .map(|code| code - least)
                .for_each(|bit| bits[(bit / 64) as usize] |= 1_u64 << (bit % 64));
        }
        CodeSet { codes: codes.into_boxed_slice(), bits: bits.into_boxed_slice() }
    }

    /// Codes of the set, sorted.
    pub fn codes(&self) -> &[u32] {
        &self.codes
    }

    /// Tells whether a code is in the set.
    #[inline]
    pub fn contains(&self, code: u32) -> bool {
        let Some(bit) = self.codes.first().and_then(|least| code.checked_sub(*least)) else { return false };
        if self.bits.is_empty() {
            return self.codes.binary_search(&code).is_ok();
        }
        self.bits.get((bit / 64) as usize).is_some_and(|word| word >> (bit % 64) & 1 == 1)
    }
}

/// Condition on the codes of a dimension.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum CodeCondition {
    /// No condition.
    #[default]
    Any,
    /// Codes between two, included; none if the least is above the greatest.
    Between {
        /// Least code.
        least: u32,
        /// Greatest code.
        greatest: u32,
    },
    /// Codes of a set.
    Among(CodeSet),
}

impl CodeCondition {
    /// Condition that one code meets.
    pub fn equals(code: u32) -> CodeCondition {
        CodeCondition::Between { least: code, greatest: code }
    }

    /// Tells whether a code meets it.
    #[inline]
    pub fn is_met(&self, code: u32) -> bool {
        match self {
            CodeCondition::Any => true,
            CodeCondition::Between { least, greatest } => (*least..=*greatest).contains(&code),
            CodeCondition::Among(set) => set.contains(code),
        }
    }

    /// Least and greatest code that may meet it; none if none does.
    fn bounds(&self) -> Option<(u32, u32)> {
        match self {
            CodeCondition::Any => Some((0, u32::MAX)),
            CodeCondition::Between { least, greatest } => (least <= greatest).then_some((*least, *greatest)),
            CodeCondition::Among(set) => Some((*set.codes.first()?, *set.codes.last()?)),
        }
    }
}

/// Search for the tuples that meet all conditions.
struct ElfSearch<'e, F> {
    elf: &'e Elf,
    /// Conditions of the first dimensions; the last one is one.
    conditions: &'e [CodeCondition],
    found: F,
}

impl Elf {
    /// Calls `found` with the id of each tuple that meets the conditions, one per dimension, until it breaks;
    /// dimensions without one have none. Ids come in the order of the codes.
    pub fn search<F: FnMut(u32) -> ControlFlow<()>>(
        &self,
        conditions: &[CodeCondition],
        found: F,
    ) -> ControlFlow<()> {
        let used = conditions.iter().rposition(|condition| *condition != CodeCondition::Any);
        let conditions = &conditions[..used.map_or(0, |last| last + 1).min(self.dimensions())];
        let is_possible = conditions.iter().all(|condition| condition.bounds().is_some());
        if self.tuples == 0 || !is_possible {
            return ControlFlow::Continue(());
        }
        ElfSearch { elf: self, conditions, found }.root()
    }

    /// Appends the ids of the tuples that meet the conditions.
    pub fn collect(&self, conditions: &[CodeCondition], ids: &mut Vec<u32>) {
        let _ = self.search(conditions, |id| {
            ids.push(id);
            ControlFlow::Continue(())
        });
    }

    /// Number of tuples that meet the conditions.
    pub fn count(&self, conditions: &[CodeCondition]) -> usize {
        let mut count = 0;
        let _ = self.search(conditions, |_| {
            count += 1;
            ControlFlow::Continue(())
        });
        count
    }
}

impl<F: FnMut(u32) -> ControlFlow<()>> ElfSearch<'_, F> {
    fn root(&mut self) -> ControlFlow<()> {
        let (elf, first) = (self.elf, self.elf.root());
        let slots = elf.slots as usize;
        if slots == 0 {
            return self.list(first, 0);
        }
        let children = &elf.words[first..first + slots];
        let condition = self.conditions.first().unwrap_or(&CodeCondition::Any);
        let Some((least, greatest)) = condition.bounds() else { return ControlFlow::Continue(()) };
        for code in least..=greatest.min(elf.slots - 1) {
            let child = children[code as usize];
            if child != 0 && condition.is_met(code) {
                self.child(child, 1)?;
            }
        }
        ControlFlow::Continue(())
    }

    #[inline]
    fn child(&mut self, child: u32, dimension: usize) -> ControlFlow<()> {
        let at = (child & !MARK) as usize;
        if child & MARK == 0 { self.list(at, dimension) } else { self.mono(at, dimension) }
    }

    fn list(&mut self, at: usize, dimension: usize) -> ControlFlow<()> {
        let words = &self.elf.words;
        let count = words[at] as usize;
        let (codes, children) = words[at + 1..at + 1 + 2 * count].split_at(count);
        let below = dimension + 1;
        match self.conditions.get(dimension).unwrap_or(&CodeCondition::Any) {
            CodeCondition::Any => children.iter().try_for_each(|child| self.child(*child, below)),
            CodeCondition::Between { least, greatest } => {
                let from = lower_bound(codes, *least);
                let within = codes[from..].iter().take_while(|code| **code <= *greatest);
                within.zip(&children[from..]).try_for_each(|(_, child)| self.child(*child, below))
            }
            CodeCondition::Among(set) if set.codes.len() < count => {
                let mut from = 0;
                set.codes.iter().try_for_each(|code| {
                    from += lower_bound(&codes[from..], *code);
                    let is_found = codes.get(from) == Some(code);
                    if is_found { self.child(children[from], below) } else { ControlFlow::Continue(()) }
                })
            }
            CodeCondition::Among(set) => {
                let entries = codes.iter().zip(children).filter(|(code, _)| set.contains(**code));
                entries.map(|(_, child)| child).try_for_each(|child| self.child(*child, below))
            }
        }
    }

    #[inline]
    fn mono(&mut self, at: usize, dimension: usize) -> ControlFlow<()> {
        let (codes, ids) = self.elf.words[at..].split_at(self.elf.dimensions() - dimension);
        let conditions = self.conditions.get(dimension..).unwrap_or_default();
        if !conditions.iter().zip(codes).all(|(condition, code)| condition.is_met(*code)) {
            return ControlFlow::Continue(());
        }
        for word in ids {
            (self.found)(word & !MARK)?;
            if word & MARK != 0 {
                break;
            }
        }
        ControlFlow::Continue(())
    }
}

/// Position of the first code that is not below another one.
#[inline]
fn lower_bound(codes: &[u32], least: u32) -> usize {
    if codes.len() <= SHORT_LIST {
        return codes.iter().take_while(|code| **code < least).count();
    }
    codes.partition_point(|code| *code < least)
}
