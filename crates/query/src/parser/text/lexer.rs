//! Lexer of query texts: where each token ends, by PostgreSQL's rules, without a copy of any.
//!
//! Users need not know the meaning of a statement: [`script`](crate::parser::text::script) splits texts into
//! statements, [`fingerprint`](crate::parser::text::fingerprint) replaces literals. A statement that is
//! parsed is tokenized by sqlparser.
//!
//! The position of the lexer is apart from the text, which may grow between two calls: a token whose end has
//! not come yet goes on where its last bytes were seen. Cost: each byte is looked at once.

/// Kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// White space.
    Space,
    /// `-- …` to the end of the line, or `/* … */`, which nests.
    Comment,
    /// Keyword or name without quotes.
    Word,
    /// `"name"`.
    QuotedName,
    /// `'string'`, in which only quotes are doubled.
    String,
    /// `E'…'`, `B'…'`, `X'…'`, `N'…'`, `U&'…'`, `U&"…"`.
    PrefixedString,
    /// `$tag$…$tag$`.
    DollarString,
    /// `$1`.
    Parameter,
    /// Digits alone.
    Integer,
    /// Any other number.
    Number,
    /// One of the characters `;`, `(`, `)`, or any other.
    Symbol(u8),
}

/// Token of a text, by its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// False if the text ends before its closing quote.
    pub(crate) closed: bool,
}

/// End of a token that has a closing mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClosingMark {
    /// A quote that is not doubled; behind a backslash it does not count if `escapes`.
    Quote { quote: u8, escapes: bool },
    /// The tag, which is that many bytes long.
    Tag(usize),
    /// `*/`, as often as `/*` came.
    Comment(u32),
}

/// Token whose end was not in the text yet.
#[derive(Debug, Clone, Copy)]
struct OpenToken {
    kind: TokenKind,
    start: usize,
    closing: ClosingMark,
}

/// Position in a text; the text is given to each call, and may have grown since the last.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Lexer {
    at: usize,
    unclosed: Option<OpenToken>,
}

impl Lexer {
    /// The next token; `None` at the end of the text. A token that is not closed is returned again, longer or
    /// closed, when the text has grown.
    pub(crate) fn next(&mut self, text: &str) -> Option<Token> {
        let bytes = text.as_bytes();
        let open = match self.unclosed.take() {
            Some(open) if self.at >= bytes.len() => {
                self.unclosed = Some(open);
                return None;
            }
            Some(open) => open,
            None if self.at >= bytes.len() => return None,
            None => match start(text, self.at) {
                Start::Whole(kind, end) => {
                    let start = std::mem::replace(&mut self.at, end);
                    return Some(Token { kind, start, end, closed: true });
                }
                Start::Open(kind, closing, from) => {
                    let start = std::mem::replace(&mut self.at, from);
                    OpenToken { kind, start, closing }
                }
            },
        };
        let OpenToken { kind, start, mut closing } = open;
        match close(bytes, start, self.at, &mut closing) {
            Some(end) => {
                self.at = end;
                Some(Token { kind, start, end, closed: true })
            }
            None => {
                self.at = bytes.len();
                self.unclosed = Some(OpenToken { kind, start, closing });
                Some(Token { kind, start, end: bytes.len(), closed: false })
            }
        }
    }

    /// Forgets the first bytes of the text, which must be behind it.
    pub(crate) fn forget(&mut self, bytes: usize) {
        self.at -= bytes;
        if let Some(open) = &mut self.unclosed {
            open.start -= bytes;
        }
    }
}

/// Beginning of a token.
enum Start {
    /// Kind and end of a token without a closing mark.
    Whole(TokenKind, usize),
    /// Kind, closing mark, and where to begin to look for the mark.
    Open(TokenKind, ClosingMark, usize),
}

fn start(text: &str, at: usize) -> Start {
    let bytes = text.as_bytes();
    let next = bytes.get(at + 1).copied();
    let quote = |quote, escapes| ClosingMark::Quote { quote, escapes };
    match bytes[at] {
        b'\'' => Start::Open(TokenKind::String, quote(b'\'', false), at + 1),
        b'"' => Start::Open(TokenKind::QuotedName, quote(b'"', false), at + 1),
        prefix @ (b'e' | b'E' | b'b' | b'B' | b'x' | b'X' | b'n' | b'N') if next == Some(b'\'') => {
            let escapes = prefix.eq_ignore_ascii_case(&b'e');
            Start::Open(TokenKind::PrefixedString, quote(b'\'', escapes), at + 2)
        }
        b'u' | b'U' if next == Some(b'&') && matches!(bytes.get(at + 2), Some(b'\'' | b'"')) => {
            Start::Open(TokenKind::PrefixedString, quote(bytes[at + 2], false), at + 3)
        }
        b'$' => dollar(bytes, at),
        b'-' if next == Some(b'-') => {
            let end = bytes[at..].iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            Start::Whole(TokenKind::Comment, end.map_or(bytes.len(), |length| at + length))
        }
        b'/' if next == Some(b'*') => Start::Open(TokenKind::Comment, ClosingMark::Comment(1), at + 2),
        b'.' if next.is_some_and(|next| next.is_ascii_digit()) => number(bytes, at),
        byte if byte.is_ascii_digit() => number(bytes, at),
        byte if byte.is_ascii_whitespace() || byte == 0x0B => {
            Start::Whole(TokenKind::Space, run(bytes, at, |byte| byte.is_ascii_whitespace() || byte == 0x0B))
        }
        byte if byte >= 0x80 => match text[at..].chars().next() {
            Some(space) if space.is_whitespace() => Start::Whole(TokenKind::Space, at + space.len_utf8()),
            _ => Start::Whole(TokenKind::Word, run(bytes, at, is_word)),
        },
        byte if is_word(byte) => Start::Whole(TokenKind::Word, run(bytes, at, is_word)),
        byte => Start::Whole(TokenKind::Symbol(byte), at + 1),
    }
}

/// Returns true for a byte inside of a word, the dollar among them.
fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$') || byte >= 0x80
}

fn run(bytes: &[u8], at: usize, of: impl Fn(u8) -> bool) -> usize {
    bytes[at..].iter().position(|&byte| !of(byte)).map_or(bytes.len(), |length| at + length)
}

/// A number, with everything that is joined to it.
fn number(bytes: &[u8], at: usize) -> Start {
    let digits = run(bytes, at, |byte| byte.is_ascii_digit());
    let mut end = run(bytes, at, |byte| is_word(byte) || byte == b'.');
    let exponent = end > at + 1 && bytes[end - 1].eq_ignore_ascii_case(&b'e');
    if exponent && matches!(bytes.get(end), Some(b'+' | b'-')) {
        end = run(bytes, end + 1, is_word);
    }
    let kind = if digits == end { TokenKind::Integer } else { TokenKind::Number };
    Start::Whole(kind, end)
}

/// `$tag$ … $tag$`, a parameter `$1`, or a dollar.
fn dollar(bytes: &[u8], at: usize) -> Start {
    let in_tag = |byte: u8| byte != b'$' && is_word(byte);
    let tag = run(bytes, at + 1, in_tag);
    if bytes.get(at + 1).is_some_and(u8::is_ascii_digit) {
        return Start::Whole(TokenKind::Parameter, run(bytes, at + 1, |byte| byte.is_ascii_digit()));
    }
    if bytes.get(tag) == Some(&b'$') {
        return Start::Open(TokenKind::DollarString, ClosingMark::Tag(tag + 1 - at), tag + 1);
    }
    Start::Whole(TokenKind::Symbol(b'$'), at + 1)
}

/// The end of a token whose closing mark is looked for from `from`; `None` if it has not come.
fn close(bytes: &[u8], start: usize, from: usize, closing: &mut ClosingMark) -> Option<usize> {
    match closing {
        ClosingMark::Quote { quote, escapes } => {
            let mut at = from;
            while at < bytes.len() {
                let byte = bytes[at];
                if byte == b'\\' && *escapes {
                    at += 2;
                } else if byte != *quote {
                    at += 1;
                } else if bytes.get(at + 1) == Some(quote) {
                    at += 2;
                } else {
                    return Some(at + 1);
                }
            }
            None
        }
        ClosingMark::Tag(length) => {
            let tag = &bytes[start..start + *length];
            // Its first bytes may have come before.
            let from = from.saturating_sub(tag.len() - 1).max(start + tag.len());
            let found = bytes[from..].windows(tag.len()).position(|part| part == tag)?;
            Some(from + found + tag.len())
        }
        ClosingMark::Comment(depth) => {
            let mut at = from;
            while at < bytes.len() {
                if bytes[at..].starts_with(b"/*") {
                    (*depth, at) = (*depth + 1, at + 2);
                } else if bytes[at..].starts_with(b"*/") {
                    (*depth, at) = (*depth - 1, at + 2);
                    if *depth == 0 {
                        return Some(at);
                    }
                } else {
                    at += 1;
                }
            }
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::TokenKind::*;
    use super::*;

    fn kinds(text: &str) -> Vec<(TokenKind, &str)> {
        let mut lexer = Lexer::default();
        let tokens = std::iter::from_fn(|| lexer.next(text));
        tokens
            .filter(|token| token.kind != Space)
            .map(|token| (token.kind, &text[token.start..token.end]))
            .collect()
    }

    #[test]
    fn tokens_are_postgresqls() {
        assert_eq!(
            kinds("SELECT a$1, \"b\"\"c\" FROM ü;"),
            [
                (Word, "SELECT"),
                (Word, "a$1"),
                (Symbol(b','), ","),
                (QuotedName, "\"b\"\"c\""),
                (Word, "FROM"),
                (Word, "ü"),
                (Symbol(b';'), ";")
            ]
        );
        assert_eq!(
            kinds("'it''s\\' E'\\'' u&'a' $$;$$ $a$ $$ $a$ $1 $"),
            [
                (String, "'it''s\\'"),
                (PrefixedString, "E'\\''"),
                (PrefixedString, "u&'a'"),
                (DollarString, "$$;$$"),
                (DollarString, "$a$ $$ $a$"),
                (Parameter, "$1"),
                (Symbol(b'$'), "$")
            ]
        );
        assert_eq!(
            kinds("1 1.5 .5 1e-5 0x1F 1_000 -7 -- 'x\n/* /* ' */ */ e"),
            [
                (Integer, "1"),
                (Number, "1.5"),
                (Number, ".5"),
                (Number, "1e-5"),
                (Number, "0x1F"),
                (Number, "1_000"),
                (Symbol(b'-'), "-"),
                (Integer, "7"),
                (Comment, "-- 'x"),
                (Comment, "/* /* ' */ */"),
                (Word, "e")
            ]
        );
    }

    #[test]
    fn a_token_goes_on_when_the_text_has_grown() {
        for (whole, kind) in [
            ("'a;''b;'", String),
            ("$tag$ a $ta $tag$", DollarString),
            ("/* a /* b */ c */", Comment),
            ("E'\\';'", PrefixedString),
        ] {
            // Cut behind blanks and semicolons, as lines end.
            for cut in whole.char_indices().filter(|(_, c)| matches!(c, ' ' | ';')).map(|(at, _)| at + 1) {
                let mut lexer = Lexer::default();
                let first = lexer.next(&whole[..cut]).unwrap();
                assert!(!first.closed && first.kind == kind, "{whole}: {first:?}");
                assert_eq!(lexer.next(&whole[..cut]), None, "{whole}");
                let last = lexer.next(whole).unwrap();
                assert_eq!(
                    (last.start, last.end, last.closed),
                    (0, whole.len(), true),
                    "{whole} cut at {cut}"
                );
            }
        }
    }
}
