//! Lines of `.tbl` files: fields with `|` between them.

use super::random::Random;

const ADDRESS_CHARACTERS: &[u8; 64] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ, ";

/// Writer of the fields of a line.
pub(super) struct Line<'a> {
    bytes: &'a mut Vec<u8>,
}

impl Line<'_> {
    /// Begins a line behind the others.
    pub(super) fn new(bytes: &mut Vec<u8>) -> Line<'_> {
        Line { bytes }
    }

    /// Adds a string.
    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        self.bytes.extend_from_slice(text.as_bytes());
        self.end_field()
    }

    /// Adds the strings as one field.
    pub(super) fn texts(&mut self, parts: &[&str]) -> &mut Self {
        parts.iter().for_each(|part| self.bytes.extend_from_slice(part.as_bytes()));
        self.end_field()
    }

    /// Adds a number.
    pub(super) fn number(&mut self, value: impl Into<u64>) -> &mut Self {
        self.digits(value.into(), 1);
        self.end_field()
    }

    /// Adds 1 or 0.
    pub(super) fn flag(&mut self, is_set: bool) -> &mut Self {
        self.number(u8::from(is_set))
    }

    /// Adds a name and a number of nine digits, such as `Customer#000000001`.
    pub(super) fn numbered(&mut self, name: &str, value: u32) -> &mut Self {
        self.bytes.extend_from_slice(name.as_bytes());
        self.digits(value.into(), 9);
        self.end_field()
    }

    /// Adds a city: the first nine characters of its nation, filled up with spaces, and a digit.
    pub(super) fn city(&mut self, nation: &str, digit: u32) -> &mut Self {
        let begin = &nation.as_bytes()[..nation.len().min(9)];
        self.bytes.extend_from_slice(begin);
        self.bytes.resize(self.bytes.len() + 9 - begin.len(), b' ');
        self.digits(digit.into(), 1);
        self.end_field()
    }

    /// Adds an address of random characters.
    pub(super) fn address(&mut self, random: &mut Random) -> &mut Self {
        let length = random.between(6, 24);
        self.bytes.extend((0..length).map(|_| random.pick(ADDRESS_CHARACTERS)));
        self.end_field()
    }

    /// Adds a telephone number of a country, such as `25-989-741-2988`.
    pub(super) fn phone(&mut self, country: u32, random: &mut Random) -> &mut Self {
        self.digits(country.into(), 2);
        for (least, most) in [(100, 999), (100, 999), (1000, 9999)] {
            self.bytes.push(b'-');
            self.digits(random.between(least, most).into(), 3);
        }
        self.end_field()
    }

    fn end_field(&mut self) -> &mut Self {
        self.bytes.push(b'|');
        self
    }

    /// Ends the line, which has a field.
    pub(super) fn end(&mut self) {
        if let Some(last) = self.bytes.last_mut() {
            *last = b'\n';
        }
    }

    /// Adds at least `least` digits.
    fn digits(&mut self, mut value: u64, least: usize) {
        let mut digits = [b'0'; 20];
        let mut at = digits.len();
        while value > 0 {
            at -= 1;
            digits[at] += (value % 10) as u8;
            value /= 10;
        }
        self.bytes.extend_from_slice(&digits[at.min(20 - least)..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_written_as_the_specification_says() {
        let mut bytes = Vec::new();
        let mut line = Line::new(&mut bytes);
        line.number(0u32).number(u64::MAX).numbered("Customer#", 1).flag(true).texts(&["MFGR#", "11"]);
        line.city("UNITED KINGDOM", 1).city("PERU", 9).city("INDONESIA", 0).end();
        let expected =
            "0|18446744073709551615|Customer#000000001|1|MFGR#11|UNITED KI1|PERU     9|INDONESIA0\n";
        assert_eq!(String::from_utf8(bytes).unwrap(), expected);
    }
}
