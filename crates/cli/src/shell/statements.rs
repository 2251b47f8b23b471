//! Splitting a script into statements at `;`, outside of quotes and comments.

/// State of the scanner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScanState {
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
pub fn split(text: &str) -> Statements<'_> {
    let bytes = text.as_bytes();
    let mut state = ScanState::Plain;
    let (mut complete, mut consumed, mut line) = (Vec::new(), 0, 1);
    // First byte that is neither blank nor comment, and its line.
    let mut begin: Option<(usize, usize)> = None;
    let mut at = 0;
    while at < bytes.len() {
        let (byte, next) = (bytes[at], bytes.get(at + 1).copied());
        let mut width = 1;
        match state {
            ScanState::Plain => match (byte, next) {
                (b'-', Some(b'-')) => (state, width) = (ScanState::LineComment, 2),
                (b'/', Some(b'*')) => (state, width) = (ScanState::BlockComment(1), 2),
                (b';', _) => {
                    if let Some((from, line)) = begin.take() {
                        complete.push((line, text[from..at].trim_end()));
                    }
                    consumed = at + 1;
                }
                _ => {
                    if matches!(byte, b'\'' | b'"') {
                        state = ScanState::Quoted(byte);
                    }
                    if begin.is_none() && !byte.is_ascii_whitespace() {
                        begin = Some((at, line));
                    }
                }
            },
            ScanState::Quoted(quote) if byte == quote => state = ScanState::Plain,
            ScanState::LineComment if byte == b'\n' => state = ScanState::Plain,
            ScanState::BlockComment(depth) => match (byte, next) {
                (b'*', Some(b'/')) => {
                    width = 2;
                    state = if depth == 1 { ScanState::Plain } else { ScanState::BlockComment(depth - 1) };
                }
                (b'/', Some(b'*')) => (state, width) = (ScanState::BlockComment(depth + 1), 2),
                _ => {}
            },
            _ => {}
        }
        line += usize::from(byte == b'\n');
        at += width;
    }
    let rest = begin.map(|(from, line)| (line, text[from..].trim_end()));
    let open = matches!(state, ScanState::Quoted(_) | ScanState::BlockComment(_));
    Statements { complete, rest, consumed, open }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_outside_of_quotes_and_comments() {
        let text =
            "SELECT ';' AS \"a;b\"; -- not; here\n/* nor; /* here; */ ; */\n  SELECT 'it''s;'\n;;\nrest";
        let split = split(text);
        assert_eq!(split.complete, [(1, "SELECT ';' AS \"a;b\""), (3, "SELECT 'it''s;'")]);
        assert_eq!(split.rest, Some((5, "rest")));
        assert!(!split.open);
    }

    #[test]
    fn open_quotes_and_comments_are_noticed() {
        assert!(split("SELECT 'a;").open);
        assert!(split("/* a;").open);
        assert_eq!(
            split("SELECT 1; -- done"),
            Statements { complete: vec![(1, "SELECT 1")], rest: None, consumed: 9, open: false }
        );
        assert_eq!(split("").rest, None);
        assert_eq!(split("ä;ö").rest, Some((1, "ö")));
    }
}
