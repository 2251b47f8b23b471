//! Strings of column pages: a sorted dictionary where few are different, else one after another, by symbols where
//! these make them smaller ([`crate::columns::symbols`]).

use crate::columns::integers::IntegerBlock;
use crate::columns::symbols::SymbolTable;
use std::collections::HashMap;

/// Number of rows for each entry of a dictionary, at least.
const ROWS_PER_ENTRY: usize = 4;

/// Sorted, different strings; the number of each is its code.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Dictionary {
    ends: Vec<u32>,
    texts: String,
}

impl Dictionary {
    /// Dictionary of some strings and the code of each; none if too many are different.
    pub(super) fn of(texts: &[&str]) -> Option<(Dictionary, Vec<i64>)> {
        let entries_max = texts.len().div_ceil(ROWS_PER_ENTRY);
        let mut codes: HashMap<&str, i64> = HashMap::new();
        for text in texts {
            codes.insert(text, 0);
            if codes.len() > entries_max {
                return None;
            }
        }
        let mut sorted: Vec<&str> = codes.keys().copied().collect();
        sorted.sort_unstable();
        let dictionary = Dictionary::of_sorted(&sorted);
        for (code, text) in sorted.into_iter().enumerate() {
            codes.insert(text, code as i64);
        }
        let of_texts = texts.iter().map(|text| codes[text]).collect();
        Some((dictionary, of_texts))
    }

    /// Dictionary of different strings that are sorted.
    pub(super) fn of_sorted(sorted: &[&str]) -> Dictionary {
        debug_assert!(sorted.is_sorted_by(|text, next| text < next), "codes order as their strings do");
        let mut dictionary = Dictionary::default();
        for text in sorted {
            dictionary.texts.push_str(text);
            dictionary.ends.push(dictionary.texts.len() as u32);
        }
        assert!(u32::try_from(dictionary.texts.len()).is_ok(), "ends of strings have 32 bits");
        dictionary
    }

    pub(super) fn encode(&self, words: &mut Vec<u32>) {
        words.push(self.ends.len() as u32);
        words.extend_from_slice(&self.ends);
        put_bytes(self.texts.as_bytes(), words);
    }

    /// Dictionary that some words begin with; none if they are damaged.
    pub(super) fn decode(words: &[u32]) -> Option<Dictionary> {
        Dictionary::decode_first(words).map(|(dictionary, _)| dictionary)
    }

    /// As [`Dictionary::decode`], and the words behind it.
    pub(super) fn decode_first(words: &[u32]) -> Option<(Dictionary, &[u32])> {
        let (entries, words) = words.split_first()?;
        let (ends, words) = words.split_at_checked(*entries as usize)?;
        let bytes = *ends.last().unwrap_or(&0) as usize;
        let (stored, rest) = words.split_at_checked(bytes.div_ceil(4))?;
        let mut stored: Vec<u8> = stored.iter().flat_map(|word| word.to_le_bytes()).collect();
        stored.truncate(bytes);
        let texts = String::from_utf8(stored).ok()?;
        let ascends = ends.is_sorted() && ends.iter().all(|end| texts.is_char_boundary(*end as usize));
        ascends.then(|| (Dictionary { ends: ends.to_vec(), texts }, rest))
    }

    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// String of a code; the empty one for a code that there is not.
    pub(crate) fn entry(&self, code: usize) -> &str {
        let end = |code: usize| self.ends.get(code).map_or(self.texts.len(), |end| *end as usize);
        let start = if code == 0 { 0 } else { end(code - 1) };
        &self.texts[start..end(code)]
    }

    pub(super) fn memory_bytes(&self) -> usize {
        4 * self.ends.len() + self.texts.len()
    }
}

fn put_bytes(bytes: &[u8], words: &mut Vec<u32>) {
    words.extend(bytes.chunks(4).map(|chunk| {
        let mut word = [0; 4];
        word[..chunk.len()].copy_from_slice(chunk);
        u32::from_le_bytes(word)
    }));
}

/// Encodes strings one after another, by symbols if there are such; returns the places of their ends and of the
/// strings.
pub(super) fn encode_texts(
    texts: &[&str],
    symbols: Option<&SymbolTable>,
    words: &mut Vec<u32>,
) -> (usize, IntegerBlock, usize) {
    let mut encoded: Vec<u8> = Vec::new();
    let mut ends: Vec<i64> = Vec::with_capacity(texts.len());
    for text in texts {
        match symbols {
            Some(symbols) => symbols.encode(text.as_bytes(), &mut encoded),
            None => encoded.extend_from_slice(text.as_bytes()),
        }
        ends.push(encoded.len() as i64);
    }
    let data = words.len();
    let integers = IntegerBlock::encode(&ends, words);
    let at = words.len();
    put_bytes(&encoded, words);
    (data, integers, at)
}
