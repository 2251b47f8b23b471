//! Strings as codes of frequent pieces, the symbols of a page.
//!
//! After FSST (Boncz, Neumann, Leis, "FSST: Fast Random Access String Compression", PVLDB 13 (11), 2020):
//!
//! - A symbol is 1 to 8 bytes; a page has at most 255, and a code is a byte. A byte that begins no symbol is written
//!   behind the code [`ESCAPE`].
//! - A string is encoded by the longest symbol that it goes on with, again and again. Each string is decoded alone.
//! - Symbols are found in rounds: a sample is encoded with those so far, and those that save the most bytes, and
//!   pairs that come one behind the other as one, are the symbols of the next round.
//!
//! A page's table is 1 word for their number, a byte for the length of each, filled up to words, and 2 words for each.
//! Codes ascend by first byte, and descend by length within it, so that the first match is the longest.

/// Greatest number of symbols.
const SYMBOLS_MAX: usize = 255;
/// Code before a byte that stands for itself.
const ESCAPE: u8 = 255;
const SYMBOL_BYTES_MAX: usize = 8;
/// Bytes of a page from which symbols are made, and of one string.
const SAMPLE_BYTES: usize = 16 << 10;
const SAMPLE_STRING_BYTES: usize = 512;
const ROUNDS: usize = 5;
/// Bytes of strings below which a table does not pay.
const PAGE_BYTES_MIN: usize = 8 << 10;
/// Size of encoded strings beside that of the strings at which they are encoded, as a fraction.
const SMALLER: (usize, usize) = (7, 8);
/// Units of counting: a symbol or a byte that stands for itself.
const UNITS: usize = 512;
/// Weight of symbols of one byte: without them a byte takes two.
const SINGLE_WEIGHT: u64 = 8;
/// Bytes that are decoded before they are appended.
const DECODED_BYTES: usize = 1024;

/// Symbols of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SymbolTable {
    /// Bytes of the symbols, little-endian, and zeros.
    symbols: [u64; 256],
    lengths: [u8; 256],
    count: usize,
    /// Number of the first symbol that begins with each byte, or one greater.
    first: [u16; 257],
}

/// Symbol, and its number of bytes.
type Symbol = (u64, u8);

/// Next bytes of a string, at most eight, as a number.
fn next_bytes(text: &[u8], at: usize) -> (u64, usize) {
    if let Some(bytes) = text[at..].first_chunk::<SYMBOL_BYTES_MAX>() {
        return (u64::from_le_bytes(*bytes), SYMBOL_BYTES_MAX);
    }
    let mut bytes = [0; SYMBOL_BYTES_MAX];
    let rest = &text[at..];
    bytes[..rest.len()].copy_from_slice(rest);
    (u64::from_le_bytes(bytes), rest.len())
}

fn mask(bytes: u8) -> u64 {
    u64::MAX >> (64 - 8 * u32::from(bytes))
}

impl SymbolTable {
    /// Table of different symbols, at most [`SYMBOLS_MAX`].
    fn of(mut symbols: Vec<Symbol>) -> SymbolTable {
        assert!(symbols.len() <= SYMBOLS_MAX, "{} symbols leave the escape a code", symbols.len());
        symbols
            .sort_unstable_by_key(|(symbol, bytes)| (*symbol as u8, SYMBOL_BYTES_MAX as u8 - bytes, *symbol));
        let mut table =
            SymbolTable { symbols: [0; 256], lengths: [0; 256], count: symbols.len(), first: [0; 257] };
        for (code, (symbol, bytes)) in symbols.iter().enumerate() {
            table.symbols[code] = *symbol;
            table.lengths[code] = *bytes;
            table.first[usize::from(*symbol as u8) + 1] = code as u16 + 1;
        }
        for byte in 1..table.first.len() {
            table.first[byte] = table.first[byte].max(table.first[byte - 1]);
        }
        table
    }

    /// Symbols of some strings, if they make them smaller.
    pub(super) fn of_strings(texts: &[&str]) -> Option<SymbolTable> {
        let total: usize = texts.iter().map(|text| text.len()).sum();
        if total < PAGE_BYTES_MIN {
            return None;
        }
        let mut table = SymbolTable::of(Vec::new());
        let sample = sample_of(texts, total, 0);
        for _ in 0..ROUNDS {
            table = table.improved(&sample);
        }
        // By other strings than those that the symbols are made for, where there are such.
        let (mut before, mut encoded) = (0, Vec::new());
        for text in sample_of(texts, total, 1) {
            before += text.len();
            table.encode(text, &mut encoded);
        }
        let of_table = 4 * table.words();
        let expected = encoded.len() * total / before.max(1) + of_table;
        (expected * SMALLER.1 < total * SMALLER.0).then_some(table)
    }

    /// Code of the longest symbol that some bytes begin with.
    #[inline]
    fn longest(&self, (next, available): (u64, usize)) -> Option<u8> {
        let byte = usize::from(next as u8);
        let codes = self.first[byte]..self.first[byte + 1];
        let is_prefix = |code: &u16| {
            let (symbol, bytes) = (self.symbols[usize::from(*code)], self.lengths[usize::from(*code)]);
            next & mask(bytes) == symbol && usize::from(bytes) <= available
        };
        codes.into_iter().find(is_prefix).map(|code| code as u8)
    }

    /// Appends the codes of a string.
    pub(super) fn encode(&self, text: &[u8], out: &mut Vec<u8>) {
        let mut at = 0;
        while at < text.len() {
            match self.longest(next_bytes(text, at)) {
                Some(code) => {
                    out.push(code);
                    at += usize::from(self.lengths[usize::from(code)]);
                }
                None => {
                    out.extend([ESCAPE, text[at]]);
                    at += 1;
                }
            }
        }
    }

    /// Appends the bytes of a string. Codes that no string has are left out.
    pub(super) fn decode(&self, codes: &[u8], out: &mut Vec<u8>) {
        let mut decoded = [0_u8; DECODED_BYTES];
        let mut count = 0;
        let mut codes = codes.iter();
        while let Some(code) = codes.next() {
            if count + SYMBOL_BYTES_MAX > DECODED_BYTES {
                out.extend_from_slice(&decoded[..count]);
                count = 0;
            }
            if *code == ESCAPE {
                decoded[count] = codes.next().copied().unwrap_or_default();
                count += 1;
            } else {
                let symbol = self.symbols[usize::from(*code)].to_le_bytes();
                decoded[count..count + SYMBOL_BYTES_MAX].copy_from_slice(&symbol);
                count += usize::from(self.lengths[usize::from(*code)]);
            }
        }
        out.extend_from_slice(&decoded[..count]);
    }

    /// Symbols that save the most for some strings, of those that there are and of pairs of them.
    fn improved(&self, sample: &[&[u8]]) -> SymbolTable {
        let mut counts = vec![0_u32; UNITS];
        let mut pairs = vec![0_u16; UNITS * UNITS];
        for text in sample {
            let (mut at, mut before) = (0, None);
            while at < text.len() {
                let unit = match self.longest(next_bytes(text, at)) {
                    Some(code) => usize::from(code),
                    None => 256 + usize::from(text[at]),
                };
                counts[unit] += 1;
                if let Some(before) = before {
                    // A sample has fewer bytes than a count may be.
                    pairs[before * UNITS + unit] += 1;
                    let byte = 256 + usize::from(text[at]);
                    if byte != unit && self.unit(unit).1 > 1 {
                        pairs[before * UNITS + byte] += 1;
                        counts[byte] += 1;
                    }
                }
                before = Some(unit);
                at += usize::from(self.unit(unit).1);
            }
        }
        self.most_valuable(&counts, &pairs)
    }

    /// Symbol of a unit.
    fn unit(&self, unit: usize) -> Symbol {
        if unit < 256 { (self.symbols[unit], self.lengths[unit]) } else { (unit as u64 - 256, 1) }
    }

    fn most_valuable(&self, counts: &[u32], pairs: &[u16]) -> SymbolTable {
        let mut gains: Vec<(Symbol, u64)> = Vec::new();
        for (unit, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let symbol = self.unit(unit);
            let weight = if symbol.1 == 1 { SINGLE_WEIGHT } else { 1 };
            gains.push((symbol, u64::from(*count) * u64::from(symbol.1) * weight));
        }
        for (pair, count) in pairs.iter().enumerate().filter(|(_, count)| **count > 1) {
            let ((first, bytes), (second, more)) = (self.unit(pair / UNITS), self.unit(pair % UNITS));
            if usize::from(bytes + more) <= SYMBOL_BYTES_MAX {
                let symbol = (first | second << (8 * u32::from(bytes)), bytes + more);
                gains.push((symbol, u64::from(*count) * u64::from(symbol.1)));
            }
        }
        // A symbol may come of several pairs.
        gains.sort_unstable();
        let mut merged: Vec<(Symbol, u64)> = Vec::with_capacity(gains.len());
        for (symbol, gain) in gains {
            match merged.last_mut() {
                Some((last, sum)) if *last == symbol => *sum += gain,
                _ => merged.push((symbol, gain)),
            }
        }
        merged.sort_unstable_by_key(|(symbol, gain)| (std::cmp::Reverse(*gain), *symbol));
        SymbolTable::of(merged.into_iter().take(SYMBOLS_MAX).map(|(symbol, _)| symbol).collect())
    }

    /// Number of words of the table in a page.
    fn words(&self) -> usize {
        1 + self.count.div_ceil(4) + 2 * self.count
    }

    pub(super) fn write(&self, words: &mut Vec<u32>) {
        let before = words.len();
        words.push(self.count as u32);
        let (lengths, _) = self.lengths.as_chunks::<4>();
        words.extend(lengths[..self.count.div_ceil(4)].iter().map(|lengths| u32::from_le_bytes(*lengths)));
        for symbol in &self.symbols[..self.count] {
            words.extend([*symbol as u32, (*symbol >> 32) as u32]);
        }
        assert_eq!(
            words.len() - before,
            self.words(),
            "the table of {} symbols is as long as said",
            self.count
        );
    }

    /// Table that some words begin with; none if they are damaged.
    pub(super) fn read(words: &[u32]) -> Option<SymbolTable> {
        let (count, rest) = words.split_first()?;
        let count = usize::try_from(*count).ok().filter(|count| *count <= SYMBOLS_MAX)?;
        let (lengths, rest) = rest.split_at_checked(count.div_ceil(4))?;
        let lengths: Vec<u8> = lengths.iter().flat_map(|word| word.to_le_bytes()).collect();
        let (halves, _) = rest.get(..2 * count)?.as_chunks::<2>();
        let symbols = halves.iter().map(|[low, high]| u64::from(*low) | u64::from(*high) << 32);
        let symbols: Vec<Symbol> = symbols.zip(lengths).collect();
        let is_sound = |(symbol, bytes): &Symbol| {
            (1..=SYMBOL_BYTES_MAX as u8).contains(bytes) && symbol & mask(*bytes) == *symbol
        };
        if !symbols.iter().all(is_sound) {
            return None;
        }
        let table = SymbolTable::of(symbols.clone());
        // Codes are places in the table.
        (0..count).all(|code| (table.symbols[code], table.lengths[code]) == symbols[code]).then_some(table)
    }
}

/// Pieces of strings, one at about each of equal distances: the `part`-th of two samples.
fn sample_of<'t>(texts: &[&'t str], total: usize, part: usize) -> Vec<&'t [u8]> {
    let stride = (total / SAMPLE_BYTES).max(1);
    let mut left = SAMPLE_BYTES;
    let mut sample = Vec::new();
    let pieces = texts.iter().flat_map(|text| text.as_bytes().chunks(SAMPLE_STRING_BYTES));
    for (number, piece) in pieces.enumerate() {
        // Not always the first of a stride: strings may repeat at such distances.
        let chosen = (number / stride * 2 + part).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        if number % stride == chosen % stride {
            let piece = &piece[..piece.len().min(left)];
            left -= piece.len();
            sample.push(piece);
        }
    }
    sample
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(table: &SymbolTable, texts: &[&str]) -> usize {
        let mut bytes = 0;
        for text in texts {
            let (mut codes, mut decoded) = (Vec::new(), b"before".to_vec());
            table.encode(text.as_bytes(), &mut codes);
            table.decode(&codes, &mut decoded);
            assert_eq!(&decoded[6..], text.as_bytes());
            bytes += codes.len();
        }
        let mut words = vec![];
        table.write(&mut words);
        assert_eq!(words.len(), table.words());
        assert_eq!(SymbolTable::read(&words).as_ref(), Some(table));
        for end in 0..words.len() {
            assert_eq!(SymbolTable::read(&words[..end]), None);
        }
        bytes
    }

    #[test]
    fn strings_of_few_pieces_become_a_third() {
        let words =
            ["furiously", "regular", "deposits", "sleep", "quickly", "across", "the", "ironic", "accounts"];
        let text = |row: usize| {
            let word = |at: usize| words[(row * 31 + at * at * 17 + row / 7 * at) % words.len()];
            (0..5).map(word).collect::<Vec<_>>().join(" ")
        };
        let texts: Vec<String> = (0..4000).map(text).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let table = SymbolTable::of_strings(&texts).unwrap();
        let total: usize = texts.iter().map(|text| text.len()).sum();
        let encoded = check(&table, &texts);
        assert!(encoded * 3 < total, "{encoded} of {total} bytes");
    }

    #[test]
    fn strings_that_do_not_repeat_are_left_alone() {
        let mut state = 1_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            char::from(b'!' + (state >> 33) as u8 % 94)
        };
        let texts: Vec<String> = (0..2000).map(|_| (0..20).map(|_| random()).collect()).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        assert_eq!(SymbolTable::of_strings(&texts), None);
        assert_eq!(SymbolTable::of_strings(&["abc"; 10]), None, "few bytes");
    }

    #[test]
    fn the_longest_symbol_is_taken_and_other_bytes_are_escaped() {
        let symbol = |text: &str| (next_bytes(text.as_bytes(), 0).0, text.len() as u8);
        let table = SymbolTable::of(["a", "ab", "abcdefgh", "b"].map(symbol).to_vec());
        let mut codes = Vec::new();
        table.encode(b"abcdefghabcaz", &mut codes);
        assert_eq!(codes, [0, 1, ESCAPE, b'c', 2, ESCAPE, b'z']);
        check(&table, &["", "z", "ab", "abcdefg", "abcdefgh", "b\0", "äöü", &"abz".repeat(5000)]);
        assert_eq!(SymbolTable::read(&[1, 9, 0, 0]), None, "nine bytes");
        assert_eq!(SymbolTable::read(&[1, 1, 0x6161, 0]), None, "more bytes than its length");
        assert_eq!(SymbolTable::read(&[2, 0x0101, 0x62, 0, 0x61, 0]), None, "in another order");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn any_strings_are_decoded_as_they_were_encoded(
            texts in prop::collection::vec("[a-d]{0,40}|\\PC{0,30}|(https://[a-z]{1,9}[.]com/){1,40}", 1..300),
            copies in 1_usize..20,
        ) {
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let repeated: Vec<&str> = texts.iter().copied().cycle().take(texts.len() * copies).collect();
            if let Some(table) = SymbolTable::of_strings(&repeated) {
                check(&table, &texts);
            }
            let table = SymbolTable::of(Vec::new()).improved(&sample_of(&texts, 1 << 20, 0));
            check(&table.improved(&sample_of(&texts, 1 << 10, 0)), &texts);
        }
    }
}
