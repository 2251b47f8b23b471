//! Scripts: query texts of several statements, split at the semicolons outside of quotes, comments and
//! parentheses.
//!
//! Server, shell and library split with this alone. [`statements`] takes a whole text; a [`Splitter`] takes
//! one that grows, as a file or a terminal gives it line by line. Cost: each byte is looked at once, also by
//! a text that grows.

use crate::parser::text::kind::StatementKind;
use crate::parser::text::lexer::{Lexer, Token, TokenKind};

/// Statement of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatementText<'s> {
    /// Its text, without the semicolon, and without what stands before its first token.
    pub sql: &'s str,
    /// Its beginning, in bytes of the script.
    pub start: usize,
    /// Kind by its first words.
    pub kind: StatementKind,
}

/// Statements of a script; empty ones are left out. The last one need not be ended by a semicolon.
pub fn statements(text: &str) -> Vec<StatementText<'_>> {
    let mut splitter = Splitter::default();
    let mut all: Vec<_> = std::iter::from_fn(|| splitter.next_statement(text)).collect();
    all.extend(splitter.rest(text));
    all
}

/// Words that decide the kind of a statement, by their bytes.
#[derive(Debug, Clone, Copy, Default)]
struct FirstWords {
    words: [(usize, usize); StatementKind::WORDS],
    count: usize,
}

/// Splits a text that may grow between two calls, and is given to each. See the [module](self).
#[derive(Debug, Clone, Copy, Default)]
pub struct Splitter {
    lexer: Lexer,
    /// First token of the statement at hand.
    start: Option<usize>,
    words: FirstWords,
    /// Number of open parentheses.
    depth: usize,
    /// The text ends inside of a quote or a block comment.
    unclosed: bool,
    /// Bytes up to and including the last semicolon.
    consumed: usize,
}

impl Splitter {
    /// The next statement that a semicolon ends.
    pub fn next_statement<'s>(&mut self, text: &'s str) -> Option<StatementText<'s>> {
        while let Some(token) = self.lexer.next(text) {
            self.unclosed = !token.closed;
            match token.kind {
                TokenKind::Space | TokenKind::Comment => {}
                TokenKind::Symbol(b';') if self.depth == 0 => {
                    let ended = self.rest_before(text, token.start);
                    *self = Splitter { lexer: self.lexer, consumed: token.end, ..Splitter::default() };
                    if ended.is_some() {
                        return ended;
                    }
                }
                _ => self.take(token),
            }
        }
        None
    }

    fn take(&mut self, token: Token) {
        if self.start.is_none() {
            self.start = Some(token.start);
        }
        match token.kind {
            TokenKind::Symbol(b'(') => self.depth += 1,
            TokenKind::Symbol(b')') => self.depth = self.depth.saturating_sub(1),
            TokenKind::Word if self.words.count < StatementKind::WORDS => {
                self.words.words[self.words.count] = (token.start, token.end);
                self.words.count += 1;
            }
            _ => {}
        }
    }

    /// Statement behind the last semicolon, if there is more than blanks and comments. Called when
    /// [`next_statement`](Self::next_statement) has returned `None`.
    pub fn rest<'s>(&self, text: &'s str) -> Option<StatementText<'s>> {
        self.rest_before(text, text.len())
    }

    fn rest_before<'s>(&self, text: &'s str, end: usize) -> Option<StatementText<'s>> {
        let start = self.start?;
        let words = self.words.words.map(|(start, end)| &text[start..end]);
        Some(StatementText { sql: text[start..end].trim_end(), start, kind: StatementKind::of(words) })
    }

    /// Returns true if the text ends inside of a quote or a block comment.
    pub fn is_unclosed(&self) -> bool {
        self.unclosed
    }

    /// Number of bytes up to and including the last semicolon that ended a statement.
    pub fn consumed(&self) -> usize {
        self.consumed
    }

    /// Forgets the [`consumed`](Self::consumed) bytes, for a caller that has removed them from its text.
    pub fn forget_consumed(&mut self) {
        let bytes = std::mem::take(&mut self.consumed);
        self.lexer.forget(bytes);
        self.start = self.start.map(|start| start - bytes);
        for (start, end) in &mut self.words.words[..self.words.count] {
            (*start, *end) = (*start - bytes, *end - bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<&str> {
        statements(text).iter().map(|statement| statement.sql).collect()
    }

    #[test]
    fn semicolons_in_quotes_comments_and_parentheses_do_not_split() {
        assert_eq!(texts("SELECT 1; SELECT 2 ;"), ["SELECT 1", "SELECT 2"]);
        assert_eq!(texts("SELECT ';'; SELECT \";\""), ["SELECT ';'", "SELECT \";\""]);
        assert_eq!(texts("SELECT 'it''s; ok'; S"), ["SELECT 'it''s; ok'", "S"]);
        assert_eq!(texts("SELECT E'\\';'; S"), ["SELECT E'\\';'", "S"]);
        assert_eq!(texts("SELECT 'a\\'; S"), ["SELECT 'a\\'", "S"]);
        assert_eq!(texts("SELECT $$;$$, $a$;$$;$a$, $1; S"), ["SELECT $$;$$, $a$;$$;$a$, $1", "S"]);
        assert_eq!(texts("-- one;\nSELECT 1 /* ; /* ; */ ; */; S"), ["SELECT 1 /* ; /* ; */ ; */", "S"]);
        assert_eq!(texts("CREATE X (a; b (c; d);); S"), ["CREATE X (a; b (c; d);)", "S"]);
        assert_eq!(texts("SELECT 1); S"), ["SELECT 1)", "S"]);
        assert_eq!(texts(" ; -- nothing\n ;; /* */"), [""; 0]);
        assert_eq!(texts("SELECT 'ü;"), ["SELECT 'ü;"]);
        assert_eq!(statements("; SELECT 1")[0].start, 2);
    }

    #[test]
    fn a_text_that_grows_gives_the_same_statements() {
        let script = "SELECT ';' AS \"a;b\"; -- not; here\n/* nor; /* here;\n */ ; */\n  SELECT 'it''s;\n' || $$a;\n$$\n;;\n\
                      CREATE X (\n a;\n b;\n); INSERT\nINTO t; rest";
        let expected: Vec<(String, StatementKind)> =
            statements(script).iter().map(|statement| (statement.sql.to_owned(), statement.kind)).collect();
        assert_eq!(expected.len(), 5);
        let (mut text, mut splitter, mut found) = (String::new(), Splitter::default(), Vec::new());
        for line in script.split_inclusive('\n') {
            text.push_str(line);
            while let Some(statement) = splitter.next_statement(&text) {
                found.push((statement.sql.to_owned(), statement.kind));
            }
            text.drain(..splitter.consumed());
            splitter.forget_consumed();
        }
        found.extend(splitter.rest(&text).map(|statement| (statement.sql.to_owned(), statement.kind)));
        assert_eq!(found, expected);
    }

    #[test]
    fn open_quotes_and_comments_are_noticed() {
        for (text, unclosed) in [
            ("SELECT 'a;", true),
            ("/* a;", true),
            ("SELECT $$a", true),
            ("SELECT 1; -- done", false),
            ("", false),
        ] {
            let mut splitter = Splitter::default();
            while splitter.next_statement(text).is_some() {}
            assert_eq!(splitter.is_unclosed(), unclosed, "{text}");
        }
    }

    #[test]
    fn a_large_script_takes_a_pass() {
        // Line by line inside of one string: a pass for each line would look at 10^12 bytes.
        let line = "a line; of a string\n";
        let (mut text, mut splitter) = (String::from("SELECT '"), Splitter::default());
        for _ in 0..(10 << 20) / line.len() {
            text.push_str(line);
            assert!(splitter.next_statement(&text).is_none());
        }
        text.push_str("';");
        assert_eq!(splitter.next_statement(&text).map(|statement| statement.sql.len()), Some(text.len() - 1));
    }
}
