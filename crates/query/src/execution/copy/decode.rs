//! COPY input: lines into fields, from chunks of bytes of any size.
//!
//! | | text | csv | tbl |
//! | --- | --- | --- | --- |
//! | end of a line | `\n` or `\r\n`, the same for all; a backslash before it makes it data | `\n` or `\r\n` outside of quotes | `\n` or `\r\n` |
//! | special characters | `\b \f \n \r \t \v`, `\` and 1 to 3 octal digits, `\x` and 1 or 2 hex digits, `\` and any other | in quotes; quotes in them escaped | none |
//! | NULL | the null string as it stands, before escapes are decoded | the null string without quotes | the null string |
//! | end of a field | delimiter, or end of the line | the same | delimiter; the last of a line may lack it, but not that of a last line without end: it may be truncated |
//! | end of the data | `\.` alone on a line, or no more bytes | the same | the same |
//!
//! Bytes are UTF-8 once escapes are decoded. Memory: one line, at most [`LINE_BYTES_MAX`], and the last
//! chunk.

use crate::error::{Error, Result};
use crate::parser::own::copy_options::{Format, Options};
use memchr::{memchr, memchr2};

/// Maximum characters of a value in a message.
pub(super) const SHOWN_CHARS_MAX: usize = 100;
/// Maximum bytes of a line of a COPY FROM.
pub const LINE_BYTES_MAX: usize = 4 << 20;

/// Fields of a line.
#[derive(Debug, Default)]
pub(super) struct Fields {
    /// Their bytes, one field after another.
    text: Vec<u8>,
    /// End of each, and whether it is not NULL.
    ends: Vec<(usize, bool)>,
}

impl Fields {
    fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
    }

    /// Ends a field that consists of the bytes since the last one.
    fn end(&mut self) {
        self.ends.push((self.text.len(), true));
    }

    fn end_null(&mut self) {
        let start = self.start();
        self.text.truncate(start);
        self.ends.push((start, false));
    }

    /// Beginning of the field that has not ended yet.
    fn start(&self) -> usize {
        self.ends.last().map_or(0, |(end, _)| *end)
    }

    /// Number of fields.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Bytes of all of them.
    pub(super) fn bytes(&self) -> usize {
        self.text.len()
    }

    /// Strings of the fields; `None` is NULL.
    pub(super) fn texts(&self) -> Result<impl Iterator<Item = Option<&str>>> {
        let invalid =
            |what: &str| Error::coded("22021", format!("invalid byte sequence for encoding \"UTF8\"{what}"));
        let text = std::str::from_utf8(&self.text).map_err(|_| invalid(""))?;
        if text.contains('\0') {
            return Err(invalid(": 0x00"));
        }
        if self.ends.iter().any(|(end, _)| !text.is_char_boundary(*end)) {
            return Err(invalid(""));
        }
        let mut start = 0;
        Ok(self.ends.iter().map(move |(end, is_there)| {
            let field = &text[start..*end];
            start = *end;
            is_there.then_some(field)
        }))
    }
}

/// Decoder that splits bytes into lines and lines into fields.
#[derive(Debug)]
pub(super) struct Decoder {
    options: Options,
    /// Bytes of an incomplete line.
    rest: Vec<u8>,
    /// Scan position of the search for the line's end.
    looked: LineScan,
    /// Number of lines so far, for messages.
    line: u64,
    /// True if lines end with `\r\n`; known after the first.
    carriage_returns: Option<bool>,
    header: bool,
    ended: bool,
    fields: Fields,
}

/// Scan position in a line, and whether it is in quotes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct LineScan {
    at: usize,
    quoted: bool,
}

fn malformed(message: impl Into<String>) -> Error {
    Error::coded("22P04", message)
}

impl Decoder {
    pub(super) fn new(options: Options) -> Decoder {
        let header = options.header;
        Decoder {
            options,
            rest: Vec::new(),
            looked: LineScan::default(),
            line: 0,
            carriage_returns: None,
            header,
            ended: false,
            fields: Fields::default(),
        }
    }

    /// Number of the last line decoded, from 1.
    pub(super) fn line(&self) -> u64 {
        self.line
    }

    /// Decodes a chunk and passes the fields of each complete line to `f`.
    pub(super) fn push(&mut self, bytes: &[u8], mut f: impl FnMut(u64, &Fields) -> Result<()>) -> Result<()> {
        if self.ended {
            return Ok(());
        }
        let mut pending = std::mem::take(&mut self.rest);
        pending.extend_from_slice(bytes);
        let mut start = 0;
        while let Some(end) = self.line_end(&pending[start..]) {
            self.take(&pending[start..start + end], true, &mut f)?;
            start += end + 1;
            if self.ended {
                return Ok(());
            }
        }
        pending.drain(..start);
        if pending.len() > LINE_BYTES_MAX {
            self.line += 1;
            return Err(Error::coded("54000", format!("line exceeds the maximum of {LINE_BYTES_MAX} bytes")));
        }
        self.rest = pending;
        Ok(())
    }

    /// Ends the input: the last line may lack its end.
    pub(super) fn finish(&mut self, mut f: impl FnMut(u64, &Fields) -> Result<()>) -> Result<()> {
        let rest = std::mem::take(&mut self.rest);
        if !self.ended && !rest.is_empty() {
            self.check_last(&rest)?;
            self.take(&rest, false, &mut f)?;
        }
        self.ended = true;
        Ok(())
    }

    /// Refuses the last line of a `.tbl` file if it has neither an end nor the delimiter behind its last value: the value
    /// may be truncated.
    fn check_last(&self, line: &[u8]) -> Result<()> {
        if self.options.format == Format::Tbl && !line.ends_with(&[self.options.delimiter]) && line != b"\\."
        {
            let shown: String = String::from_utf8_lossy(line).chars().take(SHOWN_CHARS_MAX).collect();
            return Err(malformed(format!(
                "input ends within line {}, \"{shown}\": the file is truncated",
                self.line + 1
            )));
        }
        Ok(())
    }

    /// End of the first line, if it is complete; else the position is recorded, so that no byte is scanned
    /// twice.
    fn line_end(&mut self, bytes: &[u8]) -> Option<usize> {
        let LineScan { mut at, mut quoted } = std::mem::take(&mut self.looked);
        match self.options.format {
            Format::Text => {
                while let Some(length) = bytes.get(at..).and_then(|rest| memchr2(b'\n', b'\\', rest)) {
                    at += length;
                    if bytes[at] == b'\n' {
                        return Some(at);
                    }
                    // A backslash escapes any byte behind it; but `\.` ends the data, and its line.
                    at += 2;
                }
                at = at.max(bytes.len());
            }
            Format::Tbl => {
                if let Some(length) = bytes.get(at..).and_then(|rest| memchr(b'\n', rest)) {
                    return Some(at + length);
                }
                at = at.max(bytes.len());
            }
            Format::Csv { quote, escape } => {
                let stop = |quoted| if quoted { escape } else { b'\n' };
                while let Some(rest) = bytes.get(at..)
                    && let Some(length) = memchr2(stop(quoted), quote, rest)
                {
                    at += length;
                    match bytes[at] {
                        b'\n' if !quoted => return Some(at),
                        byte if quoted && byte == escape && escape != quote => at += 1,
                        _ => quoted = !quoted,
                    }
                    at += 1;
                }
                at = at.max(bytes.len());
            }
        }
        self.looked = LineScan { at, quoted };
        None
    }

    fn take(
        &mut self,
        line: &[u8],
        whole: bool,
        f: &mut impl FnMut(u64, &Fields) -> Result<()>,
    ) -> Result<()> {
        self.line += 1;
        let line = match (line.strip_suffix(b"\r"), whole) {
            (Some(stripped), _) if self.carriage_returns != Some(false) => {
                self.carriage_returns = Some(true);
                stripped
            }
            (_, true) if self.carriage_returns == Some(true) => {
                return Err(malformed("literal newline found in data"));
            }
            (_, true) => {
                self.carriage_returns = Some(false);
                line
            }
            (_, false) => line,
        };
        if line == b"\\." {
            self.ended = true;
            return Ok(());
        }
        if std::mem::take(&mut self.header) {
            return Ok(());
        }
        self.fields.clear();
        match self.options.format {
            Format::Text => self.text_fields(line)?,
            Format::Tbl => self.tbl_fields(line),
            Format::Csv { quote, escape } => self.csv_fields(line, quote, escape)?,
        }
        f(self.line, &self.fields)
    }

    fn text_fields(&mut self, line: &[u8]) -> Result<()> {
        let Decoder { options, fields, .. } = self;
        let mut start = 0;
        let mut at = 0;
        while at <= line.len() {
            match line.get(at) {
                Some(b'\\') => at += 2,
                Some(b'\r') => return Err(malformed("literal carriage return found in data")),
                Some(&byte) if byte != options.delimiter => at += 1,
                // Delimiter, or end of the line.
                _ => {
                    let raw = &line[start..at];
                    if raw == options.null.as_bytes() {
                        fields.end_null();
                    } else {
                        unescape(raw, &mut fields.text);
                        fields.end();
                    }
                    at += 1;
                    start = at;
                }
            }
        }
        // The last byte of the line was a backslash.
        if start <= line.len() {
            unescape(&line[start..], &mut fields.text);
            fields.end();
        }
        Ok(())
    }

    fn tbl_fields(&mut self, line: &[u8]) {
        let Decoder { options, fields, .. } = self;
        let line = line.strip_suffix(&[options.delimiter]).unwrap_or(line);
        for field in line.split(|byte| *byte == options.delimiter) {
            if field == options.null.as_bytes() {
                fields.end_null();
            } else {
                fields.text.extend_from_slice(field);
                fields.end();
            }
        }
    }

    fn csv_fields(&mut self, line: &[u8], quote: u8, escape: u8) -> Result<()> {
        let Decoder { options, fields, .. } = self;
        let (mut has_quotes, mut quoted) = (false, false);
        let mut at = 0;
        loop {
            if !quoted {
                // All that is no quote and no delimiter, at once.
                let rest = &line[at..];
                let plain = memchr2(quote, options.delimiter, rest).unwrap_or(rest.len());
                fields.text.extend_from_slice(&rest[..plain]);
                at += plain;
            }
            let next = line.get(at).copied();
            match next {
                None if quoted => return Err(malformed("unterminated CSV quoted field")),
                Some(byte) if quoted => {
                    let following = line.get(at + 1).copied();
                    if byte == escape && following.is_some_and(|next| next == quote || next == escape) {
                        fields.text.extend(following);
                        at += 1;
                    } else if byte == quote {
                        quoted = false;
                    } else {
                        fields.text.push(byte);
                    }
                }
                Some(byte) if byte == quote => (quoted, has_quotes) = (true, true),
                _ => {
                    if !has_quotes && fields.text[fields.start()..] == *options.null.as_bytes() {
                        fields.end_null();
                    } else {
                        fields.end();
                    }
                    has_quotes = false;
                    if next.is_none() {
                        return Ok(());
                    }
                }
            }
            at += 1;
        }
    }
}

/// Appends a field of the text format, its escapes decoded.
fn unescape(raw: &[u8], bytes: &mut Vec<u8>) {
    if !raw.contains(&b'\\') {
        return bytes.extend_from_slice(raw);
    }
    let mut rest = raw.iter().copied().peekable();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let Some(escaped) = rest.next() else {
            bytes.push(byte);
            break;
        };
        let mut octal = |first: u32| {
            let mut value = first;
            for _ in 0..2 {
                let Some(digit) = digit(rest.peek(), 8) else { break };
                value = value * 8 + digit;
                rest.next();
            }
            // As in PostgreSQL: \777 is \377.
            value as u8
        };
        bytes.push(match escaped {
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 0x0b,
            b'0'..=b'7' => octal(u32::from(escaped - b'0')),
            b'x' => match digit(rest.peek(), 16) {
                Some(mut value) => {
                    rest.next();
                    if let Some(second) = digit(rest.peek(), 16) {
                        value = value * 16 + second;
                        rest.next();
                    }
                    value as u8
                }
                None => b'x',
            },
            other => other,
        });
    }
}

fn digit(byte: Option<&u8>, radix: u32) -> Option<u32> {
    char::from(*byte?).to_digit(radix)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::own::copy::CopyStatement;
    use crate::parser::own::copy_options::Layout;

    /// Quadratic scanning of what came before each chunk would take hours.
    #[test]
    fn a_long_line_in_short_pieces_is_looked_through_once() {
        for (sql, line) in [
            ("COPY t FROM STDIN", "a\\\n\\\\b"),
            ("COPY t FROM STDIN CSV", "a,\"b\nc\"\"\","),
            ("COPY t FROM STDIN (FORMAT csv, ESCAPE '\\')", "\"\\\"\n\\\\\","),
        ] {
            let Ok(Some(CopyStatement { layout: Layout::Lines(options), .. })) = CopyStatement::parse(sql)
            else {
                panic!("{sql}");
            };
            let times = LINE_BYTES_MAX / 4 / line.len();
            let mut decoder = Decoder::new(options);
            let mut lines = 0;
            let mut count = |_, _: &Fields| {
                lines += 1;
                Ok(())
            };
            for piece in line.repeat(times).as_bytes().chunks(1) {
                decoder.push(piece, &mut count).unwrap();
            }
            decoder.push(b"\n", &mut count).unwrap();
            assert_eq!(lines, 1, "{sql}");
        }
    }
}
