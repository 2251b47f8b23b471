//! Lists of the array as copies; the words are in [`super::copies`].

use super::copies::{HEADER, KIND_LIST, KIND_MONO, KIND_SHIFT, KIND_SLOTS};
use crate::elf::storage::ElfStorage;
use crate::elf::{ElfShape, MARK};

/// Words of a copy, at most: a longer list is read where it is.
pub(super) const COPY_WORDS_MAX: usize = 1 << 14;
/// Slots for each code that a list has, at most: with more, a copy has codes and children.
const SLOTS_PER_CODE: usize = 2;

/// Writes the copy of a list, but for the number of its entry; false if it is too long, or damaged.
pub(super) fn copy_list<S: ElfStorage + ?Sized>(
    storage: &S,
    (child, dimension): (u32, usize),
    shape: &ElfShape,
    copy: &mut Vec<u32>,
) -> bool {
    let at = (child & !MARK) as usize;
    copy.clear();
    copy.resize(HEADER, 0);
    copy[super::copies::OFFSET] = child;
    if child & MARK != 0 {
        return copy_mono(storage, at, (shape, dimension), copy);
    }
    if dimension >= shape.dimensions() {
        return false;
    }
    storage.touch(at, 1);
    let count = storage.word(at) as usize;
    if count == 0 || 2 * count + HEADER > COPY_WORDS_MAX || at + 2 * count >= storage.len() {
        return false;
    }
    storage.touch(at + 1, 2 * count);
    let (codes, children) = (at + 1, at + 1 + count);
    let (least, greatest) = (storage.word(codes), storage.word(children - 1));
    let span = (greatest.wrapping_sub(least) as usize).saturating_add(1);
    if greatest < least || span > SLOTS_PER_CODE * count {
        copy.extend((codes..children + count).map(|at| storage.word(at)));
        copy[0] = KIND_LIST << KIND_SHIFT | count as u32;
        return has_children_of(storage, copy);
    }
    // From code 0 on, if that takes no more than codes would: a search for one code knows the place then.
    let least = if (greatest as usize) < SLOTS_PER_CODE * count { 0 } else { least };
    let slots = (greatest - least) as usize + 1;
    copy.resize(HEADER + slots, 0);
    for entry in 0..count {
        let code = storage.word(codes + entry);
        let Some(slot) = copy[HEADER..].get_mut(code.wrapping_sub(least) as usize) else { return false };
        *slot = storage.word(children + entry);
    }
    copy[0] = KIND_SLOTS << KIND_SHIFT | slots as u32;
    copy[super::copies::LEAST] = least;
    has_children_of(storage, copy)
}

/// Returns true if the children of a copy are places of the array: another word could be taken for a copy, and a search
/// for it would not end.
fn has_children_of<S: ElfStorage + ?Sized>(storage: &S, copy: &[u32]) -> bool {
    copy[children(copy)].iter().all(|child| ((child & !MARK) as usize) < storage.len())
}

fn copy_mono<S: ElfStorage + ?Sized>(
    storage: &S,
    at: usize,
    (shape, dimension): (&ElfShape, usize),
    copy: &mut Vec<u32>,
) -> bool {
    let codes = shape.dimensions() - dimension;
    storage.touch_mono(at, codes + 1);
    for at in at..storage.len().min(at + COPY_WORDS_MAX - HEADER) {
        let word = storage.mono_word(at);
        copy.push(word);
        if copy.len() <= HEADER + codes {
            continue;
        }
        if word & !MARK >= shape.tuples {
            return false;
        }
        if word & MARK != 0 {
            copy[0] = KIND_MONO << KIND_SHIFT | (copy.len() - HEADER) as u32;
            return true;
        }
    }
    false
}

/// Writes the copy of the first dimension, which is a list or slots; false if it is longer than some words.
pub(super) fn copy_root<S: ElfStorage + ?Sized>(storage: &S, shape: &ElfShape, copy: &mut Vec<u32>) -> bool {
    let (first, slots) = (shape.root(), shape.slots as usize);
    if slots == 0 {
        return copy_list(storage, (first as u32, 0), shape, copy);
    }
    copy.clear();
    if slots + HEADER > COPY_WORDS_MAX || first + slots > storage.len() {
        return false;
    }
    storage.touch(first, slots);
    copy.extend([KIND_SLOTS << KIND_SHIFT | slots as u32, 0, 0, first as u32]);
    copy.extend((first..first + slots).map(|at| storage.word(at)));
    has_children_of(storage, copy)
}

/// Positions of the children in a copy that was just made.
pub(super) fn children(copy: &[u32]) -> std::ops::Range<usize> {
    let count = (copy[0] & ((1 << KIND_SHIFT) - 1)) as usize;
    match copy[0] >> KIND_SHIFT {
        KIND_SLOTS => HEADER..HEADER + count,
        KIND_MONO => HEADER..HEADER,
        _ => HEADER + count..HEADER + 2 * count,
    }
}

/// Estimate of the words of a list and what is below it: as if the last child took as many as the others on average.
pub(super) fn words_below<S: ElfStorage + ?Sized>(storage: &S, child: u32) -> u32 {
    let (at, mut words) = ((child & !MARK) as usize, 3);
    if child & MARK != 0 {
        return 1;
    }
    storage.touch(at, 1);
    let count = storage.word(at) as usize;
    if count >= 2 && at + 2 * count < storage.len() {
        storage.touch(at + 2 * count, 1);
        let last = storage.word(at + 2 * count) & !MARK;
        let first = (at + 1 + 2 * count) as u32;
        let between = last.saturating_sub(first);
        words = last.saturating_sub(at as u32).saturating_add(between / (count as u32 - 1));
    }
    words
}
