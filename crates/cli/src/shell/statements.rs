//! Splitting a script into statements at `;`, outside of quotes and comments.

/// State of the scanner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Plain,
    /// Inside `'...'` or `"..."`; a doubled quote ends and begins again.
    Quoted(u8),
    LineComment,
    /// Nested as deep as the number says.
    BlockComment(u32),
}

/// The statements of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statements<'a> {
    /// Statements that are ended by `;` (which is left out), each with the line on which it begins, from 1.
    pub complete: Vec<(usize, &'a str)>,
    /// Text behind the last `;`, if it is more than blanks and comments.
    pub rest: Option<(usize, &'a str)>,
    /// Bytes up to and including the last `;`.
    pub consumed: usize,
    /// The rest ends inside a quote or a block comment.
    pub open: bool,
}

/// Splits a script.
pub fn cut(text: &str) -> Statements<'_> {
    let bytes = text.as_bytes();
    let mut place = Place::Plain;
    let (mut complete, mut consumed, mut line) = (Vec::new(), 0, 1);
    // First byte that is neither blank nor comment, and its line.
    let mut begin: Option<(usize, usize)> = None;
    let mut at = 0;
    while at < bytes.len() {
        let (byte, next) = (bytes[at], bytes.get(at + 1).copied());
        let mut width = 1;
        match place {
            Place::Plain => match (byte, next) {
                (b'-', Some(b'-')) => (place, width) = (Place::LineComment, 2),
                (b'/', Some(b'*')) => (place, width) = (Place::BlockComment(1), 2),
                (b';', _) => {
                    if let Some((from, line)) = begin.take() {
                        complete.push((line, text[from..at].trim_end()));
                    }
                    consumed = at + 1;
                }
                _ => {
                    if matches!(byte, b'\'' | b'"') {
                        place = Place::Quoted(byte);
                    }
                    if begin.is_none() && !byte.is_ascii_whitespace() {
                        begin = Some((at, line));
                    }
                }
            },
            Place::Quoted(quote) if byte == quote => place = Place::Plain,
            Place::LineComment if byte == b'\n' => place = Place::Plain,
            Place::BlockComment(depth) => match (byte, next) {
                (b'*', Some(b'/')) => {
                    width = 2;
                    place = if depth == 1 { Place::Plain } else { Place::BlockComment(depth - 1) };
                }
                (b'/', Some(b'*')) => (place, width) = (Place::BlockComment(depth + 1), 2),
                _ => {}
            },
            _ => {}
        }
        line += usize::from(byte == b'\n');
        at += width;
    }
    let rest = begin.map(|(from, line)| (line, text[from..].trim_end()));
    let open = matches!(place, Place::Quoted(_) | Place::BlockComment(_));
    Statements { complete, rest, consumed, open }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_outside_of_quotes_and_comments() {
        let text =
            "SELECT ';' AS \"a;b\"; -- not; here\n/* nor; /* here; */ ; */\n  SELECT 'it''s;'\n;;\nrest";
        let cut = cut(text);
        assert_eq!(cut.complete, [(1, "SELECT ';' AS \"a;b\""), (3, "SELECT 'it''s;'")]);
        assert_eq!(cut.rest, Some((5, "rest")));
        assert!(!cut.open);
    }

    #[test]
    fn tells_what_is_open() {
        assert!(cut("SELECT 'a;").open);
        assert!(cut("/* a;").open);
        assert_eq!(
            cut("SELECT 1; -- done"),
            Statements { complete: vec![(1, "SELECT 1")], rest: None, consumed: 9, open: false }
        );
        assert_eq!(cut("").rest, None);
        assert_eq!(cut("ä;ö").rest, Some((1, "ö")));
    }
}
