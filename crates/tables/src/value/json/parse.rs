//! Parser of JSON (RFC 8259), with PostgreSQL's reasons for what it refuses.

use super::{DEPTH_MAX, Json, JsonError, JsonValue};
use std::borrow::Cow;

/// Longest part of a string that an error shows.
const SHOWN_CHARS: usize = 40;

/// Parses a string, all of which is one value.
pub fn parse(text: &str) -> Result<Json<'_>, JsonError> {
    let mut parser = Parser { text, at: 0, depth: 0 };
    let json = parser.value()?;
    parser.skip_blanks();
    match parser.rest() {
        "" => Ok(json),
        _ => Err(parser.expected("end of input")),
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_blanks(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    /// Word, number or character at which the parser stands.
    fn token(&self) -> &'a str {
        let rest = self.rest();
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '+' | '-') || !c.is_ascii();
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let end = if end == 0 { rest.chars().next().map_or(0, char::len_utf8) } else { end };
        let token = &rest[..end];
        token.char_indices().nth(SHOWN_CHARS).map_or(token, |(end, _)| &token[..end])
    }

    fn expected(&self, what: &str) -> JsonError {
        JsonError::Syntax(match self.token() {
            "" => "The input string ended unexpectedly.".to_owned(),
            token if self.is_known(token) => format!("Expected {what}, but found \"{token}\"."),
            token => format!("Token \"{token}\" is invalid."),
        })
    }

    /// Returns true if JSON has the token at all.
    fn is_known(&self, token: &str) -> bool {
        matches!(token, "{" | "}" | "[" | "]" | ":" | "," | "\"" | "true" | "false" | "null")
            || is_number(token)
    }

    fn value(&mut self) -> Result<Json<'a>, JsonError> {
        self.skip_blanks();
        let start = self.at;
        let value = match self.peek() {
            Some(b'{') => self.nested(Parser::object)?,
            Some(b'[') => self.nested(Parser::array)?,
            Some(b'"') => JsonValue::String(self.string()?),
            _ => self.word()?,
        };
        Ok(Json { text: &self.text[start..self.at], value })
    }

    fn nested(
        &mut self,
        parse: impl FnOnce(&mut Parser<'a>) -> Result<JsonValue<'a>, JsonError>,
    ) -> Result<JsonValue<'a>, JsonError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(JsonError::Depth);
        }
        // The bracket.
        self.at += 1;
        let value = parse(self)?;
        self.depth -= 1;
        Ok(value)
    }

    fn array(&mut self) -> Result<JsonValue<'a>, JsonError> {
        let mut elements = Vec::new();
        self.skip_blanks();
        if self.take(b']') {
            return Ok(JsonValue::Array(elements));
        }
        loop {
            elements.push(self.value()?);
            self.skip_blanks();
            if self.take(b']') {
                return Ok(JsonValue::Array(elements));
            }
            if !self.take(b',') {
                return Err(self.expected("\",\" or \"]\""));
            }
        }
    }

    fn object(&mut self) -> Result<JsonValue<'a>, JsonError> {
        let mut fields = Vec::new();
        self.skip_blanks();
        if self.take(b'}') {
            return Ok(JsonValue::Object(fields));
        }
        loop {
            self.skip_blanks();
            if self.peek() != Some(b'"') {
                return Err(self.expected(if fields.is_empty() { "string or \"}\"" } else { "string" }));
            }
            let key = self.string()?;
            self.skip_blanks();
            if !self.take(b':') {
                return Err(self.expected("\":\""));
            }
            fields.push((key, self.value()?));
            self.skip_blanks();
            if self.take(b'}') {
                return Ok(JsonValue::Object(fields));
            }
            if !self.take(b',') {
                return Err(self.expected("\",\" or \"}\""));
            }
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// Number, or one of the words of JSON.
    fn word(&mut self) -> Result<JsonValue<'a>, JsonError> {
        let rest = self.rest();
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '+' | '-') || !c.is_ascii();
        let word = &rest[..rest.find(|c| !is_part(c)).unwrap_or(rest.len())];
        let value = match word {
            "null" => JsonValue::Null,
            "true" => JsonValue::Bool(true),
            "false" => JsonValue::Bool(false),
            number if is_number(number) => JsonValue::Number(number),
            _ => return Err(self.expected("JSON value")),
        };
        self.at += word.len();
        Ok(value)
    }

    /// String at its opening quote.
    fn string(&mut self) -> Result<Cow<'a, str>, JsonError> {
        self.at += 1;
        let start = self.at;
        let mut unescaped: Option<String> = None;
        loop {
            let rest = self.rest();
            let end = rest.bytes().position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20));
            let Some(end) = end else {
                self.at = self.text.len();
                return Err(self.expected("string"));
            };
            if let Some(text) = &mut unescaped {
                text.push_str(&rest[..end]);
            }
            self.at += end;
            match self.peek() {
                Some(b'"') => {
                    let whole = &self.text[start..self.at];
                    self.at += 1;
                    return Ok(unescaped.map_or(Cow::Borrowed(whole), Cow::Owned));
                }
                Some(b'\\') => {
                    let text = unescaped.get_or_insert_with(|| self.text[start..self.at].to_owned());
                    let (character, bytes) = escape(&self.text[self.at..])?;
                    text.push(character);
                    self.at += bytes;
                }
                other => {
                    let byte = other.unwrap_or_default();
                    return Err(JsonError::Syntax(format!(
                        "Character with value 0x{byte:02x} must be escaped."
                    )));
                }
            }
        }
    }
}

/// Character of an escape at the start of a string, and the number of its bytes.
fn escape(text: &str) -> Result<(char, usize), JsonError> {
    let invalid = || {
        let shown: String = text.chars().take(2).collect();
        JsonError::Syntax(format!("Escape sequence \"{shown}\" is invalid."))
    };
    let simple = |character| Ok((character, 2));
    match text.as_bytes().get(1) {
        Some(b'"') => simple('"'),
        Some(b'\\') => simple('\\'),
        Some(b'/') => simple('/'),
        Some(b'b') => simple('\u{8}'),
        Some(b'f') => simple('\u{c}'),
        Some(b'n') => simple('\n'),
        Some(b'r') => simple('\r'),
        Some(b't') => simple('\t'),
        Some(b'u') => unicode(text),
        _ => Err(invalid()),
    }
}

fn unicode(text: &str) -> Result<(char, usize), JsonError> {
    let digits = |at: usize| -> Option<u32> {
        let digits = text.get(at..at + 4)?;
        // `from_str_radix` takes a sign.
        digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| u32::from_str_radix(digits, 16).ok())?
    };
    let wrong = |what: &str| JsonError::Syntax(what.to_owned());
    let first = digits(2).ok_or_else(|| wrong("\"\\u\" must be followed by four hexadecimal digits."))?;
    let low = || (text.get(6..8) == Some("\\u")).then(|| digits(8)).flatten();
    match (first, low()) {
        (0xD800..=0xDBFF, Some(low @ 0xDC00..=0xDFFF)) => {
            let point = 0x1_0000 + ((first - 0xD800) << 10) + (low - 0xDC00);
            Ok((char::from_u32(point).ok_or_else(|| wrong("A Unicode character is invalid."))?, 12))
        }
        (0xD800..=0xDBFF, _) => Err(wrong("Unicode low surrogate must follow a high surrogate.")),
        (0xDC00..=0xDFFF, _) => Err(wrong("Unicode low surrogate must follow a high surrogate.")),
        (point, _) => Ok((char::from_u32(point).ok_or_else(|| wrong("A Unicode character is invalid."))?, 6)),
    }
}

/// Returns true for a number of JSON: `-1.5e+3`, without zeros before the first digit.
fn is_number(text: &str) -> bool {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
        Some(at) => (&unsigned[..at], Some(&unsigned[at + 1..])),
        None => (unsigned, None),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let exponent = exponent.map(|exponent| exponent.strip_prefix(['+', '-']).unwrap_or(exponent));
    is_digits(whole)
        && (whole.len() == 1 || !whole.starts_with('0'))
        && fraction.is_none_or(is_digits)
        && exponent.is_none_or(is_digits)
}
