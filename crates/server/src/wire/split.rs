//! Splits a query text into its statements and determines the kind of each, by its words alone.
//!
//! Quotes, dollar quotes and comments are those of PostgreSQL. The parser decides later whether a statement makes
//! sense; it gets each statement unchanged.

/// Kind of a statement with regard to transactions, by its first words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// SELECT, VALUES, WITH, TABLE.
    Read,
    /// SHOW.
    Show,
    /// EXPLAIN.
    Explain,
    /// INSERT, UPDATE, DELETE.
    Write,
    /// COPY.
    Copy,
    /// DECLARE, FETCH, MOVE, CLOSE.
    Cursor,
    /// BEGIN, START TRANSACTION.
    Begin,
    /// COMMIT, END.
    Commit,
    /// ROLLBACK, ABORT, but not to a savepoint.
    Rollback,
    /// SAVEPOINT, RELEASE.
    Savepoint,
    /// ROLLBACK TO.
    RollbackTo,
    /// SET, RESET, DISCARD, DEALLOCATE, PREPARE, EXECUTE and the like.
    Setting,
    /// Everything else: definitions, BACKUP.
    Definition,
}

impl Kind {
    /// Tells whether it may run in a transaction block that has failed.
    pub(crate) fn ends_failure(self) -> bool {
        matches!(self, Kind::Commit | Kind::Rollback | Kind::RollbackTo)
    }

    /// Tells whether several such may share one transaction that the server opens.
    pub(crate) fn shares_transaction(self) -> bool {
        matches!(self, Kind::Read | Kind::Write | Kind::Copy | Kind::Explain | Kind::Show)
    }

    /// All kinds, in the order of their numbers.
    pub(crate) const ALL: [Kind; 13] = [
        Kind::Read,
        Kind::Show,
        Kind::Explain,
        Kind::Write,
        Kind::Copy,
        Kind::Cursor,
        Kind::Begin,
        Kind::Commit,
        Kind::Rollback,
        Kind::Savepoint,
        Kind::RollbackTo,
        Kind::Setting,
        Kind::Definition,
    ];

    /// The name in metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Read => "select",
            Kind::Show => "show",
            Kind::Explain => "explain",
            Kind::Write => "write",
            Kind::Copy => "copy",
            Kind::Cursor => "cursor",
            Kind::Begin => "begin",
            Kind::Commit => "commit",
            Kind::Rollback => "rollback",
            Kind::RollbackTo => "rollback_to",
            Kind::Savepoint => "savepoint",
            Kind::Setting => "set",
            Kind::Definition => "definition",
        }
    }
}

/// A statement of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece<'s> {
    /// Its text, without the semicolon.
    pub(crate) sql: &'s str,
    /// Its beginning, in bytes of the query text.
    pub(crate) at: usize,
    /// Its kind.
    pub(crate) kind: Kind,
}

/// The statements of a text; empty ones are left out.
pub(crate) fn split(text: &str) -> Vec<Piece<'_>> {
    let bytes = text.as_bytes();
    let mut pieces = Vec::new();
    let mut words: Vec<&str> = Vec::new();
    // Start of the first token of the statement.
    let mut start = None;
    let mut at = 0;
    while at < bytes.len() {
        let end = token(text, at);
        let token = &text[at..end];
        if token == ";" {
            finish(text, &mut start, at, &mut words, &mut pieces);
        } else if !is_blank(token) {
            start.get_or_insert(at);
            if words.len() < WORDS_MAX && token.starts_with(|c: char| c.is_ascii_alphabetic()) {
                words.push(token);
            }
        }
        at = end;
    }
    finish(text, &mut start, bytes.len(), &mut words, &mut pieces);
    pieces
}

/// Maximum number of words that decide the kind.
const WORDS_MAX: usize = 3;

fn finish<'s>(
    text: &'s str,
    start: &mut Option<usize>,
    end: usize,
    words: &mut Vec<&'s str>,
    pieces: &mut Vec<Piece<'s>>,
) {
    if let Some(at) = start.take() {
        pieces.push(Piece { sql: text[at..end].trim_end(), at, kind: kind(words) });
    }
    words.clear();
}

fn kind(words: &[&str]) -> Kind {
    let word = |at: usize| words.get(at).map(|word| word.to_ascii_uppercase()).unwrap_or_default();
    match word(0).as_str() {
        "SELECT" | "VALUES" | "WITH" | "TABLE" => Kind::Read,
        "SHOW" => Kind::Show,
        "EXPLAIN" => Kind::Explain,
        "INSERT" | "UPDATE" | "DELETE" => Kind::Write,
        "COPY" => Kind::Copy,
        "DECLARE" | "FETCH" | "MOVE" | "CLOSE" => Kind::Cursor,
        "BEGIN" => Kind::Begin,
        "START" if word(1) == "TRANSACTION" => Kind::Begin,
        "COMMIT" | "END" => Kind::Commit,
        "ROLLBACK" if word(1) == "TO" || word(2) == "TO" => Kind::RollbackTo,
        "ROLLBACK" | "ABORT" => Kind::Rollback,
        "SAVEPOINT" | "RELEASE" => Kind::Savepoint,
        "SET" | "RESET" | "DISCARD" | "DEALLOCATE" | "PREPARE" | "EXECUTE" | "LISTEN" | "UNLISTEN" => {
            Kind::Setting
        }
        // A query in parentheses.
        "" => Kind::Read,
        _ => Kind::Definition,
    }
}

fn is_blank(token: &str) -> bool {
    token.starts_with("--") || token.starts_with("/*") || token.starts_with(char::is_whitespace)
}

/// The end of the token that begins at `at`.
fn token(text: &str, at: usize) -> usize {
    let rest = &text[at..];
    let mut chars = rest.chars();
    let first = chars.next().unwrap_or(' ');
    let length = match first {
        '\'' => quoted(rest, '\'', false),
        '"' => quoted(rest, '"', false),
        'e' | 'E' if rest[1..].starts_with('\'') => 1 + quoted(&rest[1..], '\'', true),
        '$' => dollar_quoted(rest),
        '-' if rest.starts_with("--") => rest.find('\n').unwrap_or(rest.len()),
        '/' if rest.starts_with("/*") => comment(rest),
        first if first.is_whitespace() => run(rest, char::is_whitespace),
        first if is_word(first) => run(rest, |c| is_word(c) || c == '$'),
        first => first.len_utf8(),
    };
    at + length
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn run(rest: &str, of: impl Fn(char) -> bool) -> usize {
    rest.find(|c| !of(c)).unwrap_or(rest.len())
}

/// Bytes of a quoted string at the beginning of `rest`; to the end if it is not closed.
fn quoted(rest: &str, quote: char, escapes: bool) -> usize {
    let mut chars = rest.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        if escapes && c == '\\' {
            chars.next();
        } else if c == quote {
            match chars.peek() {
                Some((_, next)) if *next == quote => {
                    chars.next();
                }
                _ => return at + 1,
            }
        }
    }
    rest.len()
}

/// `$tag$ … $tag$`, or a parameter `$1`.
fn dollar_quoted(rest: &str) -> usize {
    let tag = rest[1..].find(|c: char| !is_word(c)).map_or(rest.len(), |end| end + 1);
    let names_tag = !rest[1..].starts_with(|c: char| c.is_ascii_digit());
    if !names_tag || !rest[tag..].starts_with('$') {
        return tag;
    }
    let mark = &rest[..=tag];
    rest[tag + 1..].find(mark).map_or(rest.len(), |end| tag + 1 + end + mark.len())
}

/// Comments nest.
fn comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        let here = &rest.as_bytes()[at..];
        if here.starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if here.starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<&str> {
        split(text).iter().map(|piece| piece.sql).collect()
    }

    #[test]
    fn semicolons_in_quotes_and_comments_do_not_split() {
        assert_eq!(texts("SELECT 1; SELECT 2 ;"), ["SELECT 1", "SELECT 2"]);
        assert_eq!(texts("SELECT ';'; SELECT \";\""), ["SELECT ';'", "SELECT \";\""]);
        assert_eq!(texts("SELECT 'it''s; ok'; S"), ["SELECT 'it''s; ok'", "S"]);
        assert_eq!(texts("SELECT E'\\';'; S"), ["SELECT E'\\';'", "S"]);
        assert_eq!(texts("SELECT $$;$$, $a$;$$;$a$, $1; S"), ["SELECT $$;$$, $a$;$$;$a$, $1", "S"]);
        assert_eq!(texts("-- one;\nSELECT 1 /* ; /* ; */ ; */; S"), ["SELECT 1 /* ; /* ; */ ; */", "S"]);
        assert_eq!(texts(" ; -- nothing\n ;; /* */"), [""; 0]);
        assert_eq!(texts("SELECT 'ü;"), ["SELECT 'ü;"]);
        assert_eq!(split("; SELECT 1")[0].at, 2);
    }

    #[test]
    fn kinds_have_their_numbers() {
        assert!(Kind::ALL.iter().enumerate().all(|(number, kind)| *kind as usize == number));
    }

    #[test]
    fn kinds_are_told_by_words() {
        let kind = |sql| split(sql)[0].kind;
        assert_eq!(kind("/* c */ begin"), Kind::Begin);
        assert_eq!(kind("START TRANSACTION"), Kind::Begin);
        assert_eq!(kind("rollback to savepoint a"), Kind::RollbackTo);
        assert_eq!(kind("ROLLBACK WORK TO a"), Kind::RollbackTo);
        assert_eq!(kind("ROLLBACK"), Kind::Rollback);
        assert_eq!(kind("(SELECT 1)"), Kind::Read);
        assert_eq!(kind("INSERT INTO t VALUES (1)"), Kind::Write);
        assert_eq!(kind("CREATE TABLE t (a INT)"), Kind::Definition);
    }
}
