//! Building: sort the tuples by their codes, then write the tree depth first.
//!
//! The leading codes of a tuple and its id are packed into one 128-bit number, as many as 96 bits hold, in the
//! order of the dimensions; dimensions behind them are compared in place. So a sort compares numbers, and the
//! tree is written from them in the order in which they lie in memory. Where the first dimension has few codes,
//! tuples are put into a bucket for each code first, and buckets are sorted alone, in the processor's caches.

use super::{ELF_CODE_MAX, ELF_DIMENSIONS_MAX, FORMAT, HEADER_WORDS, LEVEL_WORDS, MARK};
use crate::error::{Error, Result};
use std::cmp::Ordering;
use std::ops::Range;

/// Bits of a packed tuple below those of its codes.
const ID_BITS: u32 = 32;
/// Bits of a packed tuple for its codes.
const CODE_BITS: u32 = 128 - ID_BITS;
/// Slots of the first dimension for each code that occurs, at most, and beyond.
const SLOTS_PER_CODE: usize = 2;
const SLOTS_MIN: usize = 64;

/// Tuples in the order of their codes.
struct TupleOrder<'c> {
    codes: &'c [&'c [u32]],
    /// Codes of the packed dimensions, then the id.
    packed: Vec<u128>,
    /// Position of the lowest bit of each packed dimension, and its bits.
    places: Vec<(u32, u32)>,
}

/// Words of the tree so far.
struct ElfWriter<'c> {
    sorted: TupleOrder<'c>,
    words: Vec<u32>,
    /// Entries of the lists that are being written: a code, and the end of its tuples.
    entries: Vec<(u32, usize)>,
}

/// Words of the index of some tuples.
pub(super) fn build(codes: &[&[u32]]) -> Result<Vec<u32>> {
    let tuples = check_arguments(codes)?;
    let greatest: Vec<u32> = codes.iter().map(|codes| codes.iter().copied().max().unwrap_or(0)).collect();
    if let Some(at) = greatest.iter().position(|code| *code > ELF_CODE_MAX) {
        let code = greatest[at];
        return Err(Error::Invalid(format!(
            "code {code} of dimension {at} exceeds the maximum of an Elf, {ELF_CODE_MAX}"
        )));
    }
    let sorted = TupleOrder::new(codes, &greatest);
    let mut words = vec![0; HEADER_WORDS + LEVEL_WORDS * codes.len()];
    words[..3].copy_from_slice(&[FORMAT, codes.len() as u32, tuples as u32]);
    // The codes that remain after the prefix of a few dimensions, and an id, of each tuple.
    words.reserve(tuples * (codes.len().min(8) + 1));
    let mut writer = ElfWriter { sorted, words, entries: Vec::new() };
    if tuples > 0 {
        writer.write_root()?;
    }
    let ElfWriter { mut words, .. } = writer;
    words[3] = words.len() as u32;
    words.shrink_to_fit();
    Ok(words)
}

/// Number of tuples of valid arguments.
fn check_arguments(codes: &[&[u32]]) -> Result<usize> {
    if codes.is_empty() || codes.len() > ELF_DIMENSIONS_MAX {
        return Err(Error::Invalid(format!(
            "an Elf has 1 to {ELF_DIMENSIONS_MAX} dimensions, not {}",
            codes.len()
        )));
    }
    let tuples = codes[0].len();
    if let Some(at) = codes.iter().position(|codes| codes.len() != tuples) {
        return Err(Error::Invalid(format!(
            "dimension {at} of an Elf has {} codes, dimension 0 has {tuples}",
            codes[at].len()
        )));
    }
    if tuples > ELF_CODE_MAX as usize {
        return Err(Error::Invalid(format!("an Elf has at most {ELF_CODE_MAX} tuples, not {tuples}")));
    }
    Ok(tuples)
}

impl<'c> TupleOrder<'c> {
    fn new(codes: &'c [&'c [u32]], greatest: &[u32]) -> TupleOrder<'c> {
        let mut places = Vec::new();
        let mut free = CODE_BITS;
        for code in greatest {
            let bits = (u32::BITS - code.leading_zeros()).max(1);
            if bits > free {
                break;
            }
            free -= bits;
            places.push((ID_BITS + free, bits));
        }
        let mut sorted = TupleOrder { codes, packed: Vec::new(), places };
        let buckets = greatest[0] as usize + 1;
        if buckets <= codes[0].len() {
            sorted.pack_by_bucket(buckets);
        } else {
            sorted.packed = (0..codes[0].len()).map(|id| sorted.pack(id)).collect();
            let mut packed = std::mem::take(&mut sorted.packed);
            sorted.sort(&mut packed);
            sorted.packed = packed;
        }
        sorted
    }

    fn pack(&self, id: usize) -> u128 {
        let places = self.places.iter().zip(self.codes);
        places.fold(id as u128, |packed, ((place, _), codes)| packed | u128::from(codes[id]) << place)
    }

    /// Packs the tuples into a bucket for each code of the first dimension, and sorts each.
    fn pack_by_bucket(&mut self, buckets: usize) {
        let first = self.codes[0];
        let mut next = vec![0_usize; buckets + 1];
        first.iter().for_each(|code| next[*code as usize + 1] += 1);
        for bucket in 0..buckets {
            next[bucket + 1] += next[bucket];
        }
        let starts = next.clone();
        let mut packed = vec![0; first.len()];
        for (id, code) in first.iter().enumerate() {
            let at = &mut next[*code as usize];
            packed[*at] = self.pack(id);
            *at += 1;
        }
        starts.windows(2).for_each(|ends| self.sort(&mut packed[ends[0]..ends[1]]));
        self.packed = packed;
    }

    fn sort(&self, packed: &mut [u128]) {
        if self.places.len() == self.codes.len() {
            packed.sort_unstable();
            return;
        }
        let rest = &self.codes[self.places.len()..];
        packed.sort_unstable_by(|a, b| {
            (a >> ID_BITS).cmp(&(b >> ID_BITS)).then_with(|| {
                let (a, b) = (*a as u32 as usize, *b as u32 as usize);
                let compared = rest.iter().map(|codes| codes[a].cmp(&codes[b]));
                compared.fold(Ordering::Equal, Ordering::then).then(a.cmp(&b))
            })
        });
    }

    fn id(&self, at: usize) -> u32 {
        self.packed[at] as u32
    }

    /// Code of a dimension of the tuple at a position.
    #[inline]
    fn code(&self, dimension: usize, at: usize) -> u32 {
        match self.places.get(dimension) {
            Some((place, bits)) => (self.packed[at] >> place) as u32 & ((1_u64 << bits) - 1) as u32,
            None => self.codes[dimension][self.id(at) as usize],
        }
    }

    /// Tells whether all tuples of a range have the same codes from a dimension on.
    fn is_one(&self, range: &Range<usize>, dimension: usize) -> bool {
        let (first, last) = (range.start, range.end - 1);
        first == last || (dimension..self.codes.len()).all(|at| self.code(at, first) == self.code(at, last))
    }

    /// Appends the code of each run of equal codes of a dimension, and the end of the run.
    fn runs(&self, range: Range<usize>, dimension: usize, entries: &mut Vec<(u32, usize)>) {
        let mut code = self.code(dimension, range.start);
        for at in range.start + 1..range.end {
            let next = self.code(dimension, at);
            if next != code {
                entries.push((code, at));
                code = next;
            }
        }
        entries.push((code, range.end));
    }
}

impl ElfWriter<'_> {
    /// Counts of a dimension in the header.
    fn count(&mut self, dimension: usize, what: usize, by: usize) {
        self.words[HEADER_WORDS + LEVEL_WORDS * dimension + what] += by as u32;
    }

    /// Writes the first dimension, as slots if most codes occur, and all below.
    fn write_root(&mut self) -> Result<()> {
        let all = 0..self.sorted.packed.len();
        self.sorted.runs(all.clone(), 0, &mut self.entries);
        let codes = self.entries.len();
        let slots = self.entries[codes - 1].0 as usize + 1;
        if slots > SLOTS_PER_CODE * codes + SLOTS_MIN {
            self.entries.clear();
            return self.write_list(all, 0);
        }
        self.words[4] = slots as u32;
        self.count(0, 0, 1);
        self.count(0, 1, codes);
        let first = self.words.len();
        self.words.resize(first + slots, 0);
        let entries = std::mem::take(&mut self.entries);
        let mut start = 0;
        for (code, end) in entries {
            self.words[first + code as usize] = self.write_child(start..end, 1)?;
            start = end;
        }
        Ok(())
    }

    /// Writes the DimensionList of a range of tuples, and all below.
    fn write_list(&mut self, range: Range<usize>, dimension: usize) -> Result<()> {
        let base = self.entries.len();
        self.sorted.runs(range.clone(), dimension, &mut self.entries);
        let count = self.entries.len() - base;
        self.count(dimension, 0, 1);
        self.count(dimension, 1, count);
        self.words.push(count as u32);
        self.words.extend(self.entries[base..].iter().map(|(code, _)| code));
        let children = self.words.len();
        self.words.resize(children + count, 0);
        let mut start = range.start;
        for at in 0..count {
            let end = self.entries[base + at].1;
            self.words[children + at] = self.write_child(start..end, dimension + 1)?;
            start = end;
        }
        self.entries.truncate(base);
        Ok(())
    }

    /// Writes what follows a code: a MonoList if it is one combination of codes, else a DimensionList.
    fn write_child(&mut self, range: Range<usize>, dimension: usize) -> Result<u32> {
        let offset = self.words.len();
        if offset > ELF_CODE_MAX as usize {
            return Err(Error::Invalid(format!(
                "an Elf has at most {ELF_CODE_MAX} words; {} tuples of {} dimensions take more",
                self.sorted.packed.len(),
                self.sorted.codes.len()
            )));
        }
        if !self.sorted.is_one(&range, dimension) {
            self.write_list(range, dimension)?;
            return Ok(offset as u32);
        }
        if dimension < self.sorted.codes.len() {
            self.count(dimension, 2, 1);
        }
        for at in dimension..self.sorted.codes.len() {
            self.words.push(self.sorted.code(at, range.start));
        }
        let last = range.end - 1;
        self.words.extend(range.map(|at| self.sorted.id(at) | if at == last { MARK } else { 0 }));
        Ok(offset as u32 | MARK)
    }
}
