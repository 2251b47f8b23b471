//! Syntax that DataFusion's parser does not know, rewritten before parsing into syntax that it does:
//!
//! ```text
//! TABLE t                                          SELECT * FROM t
//! FROM t AS a FOR SYSTEM_TIME AS OF time           FROM t FOR SYSTEM_TIME AS OF time AS a
//! ```

use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::parser::dialect::TimeTravelDialect;

/// Words that may stand before TABLE where it is a query.
const BEFORE_TABLE: [&str; 8] =
    ["union", "except", "intersect", "all", "distinct", "as", "explain", "analyze"];
/// Words before a relation that has no alias yet.
const BEFORE_RELATION: [&str; 6] = ["from", "join", "only", "lateral", "into", "update"];

/// Rewritten query text of a statement; `None` if it needs no rewriting. `words` are its tokens without blanks; `byte`
/// returns the offset at which one begins.
pub(crate) fn respelled(
    sql: &str,
    range: std::ops::Range<usize>,
    words: &[&TokenWithSpan],
    byte: impl Fn(&TokenWithSpan) -> usize,
) -> Option<String> {
    let start_of = |at: usize| words.get(at).map_or(range.end, |word| byte(word));
    // Edits: ranges to remove, and strings to insert.
    let mut edits: Vec<(std::ops::Range<usize>, String)> = Vec::new();
    for at in 0..words.len() {
        if is_table_query(words, at) {
            edits.push((start_of(at)..start_of(at + 1), "SELECT * FROM ".to_owned()));
        } else if let Some(alias) = alias_before_moment(words, at) {
            let moment: Vec<Token> = words[at + 4..].iter().map(|word| word.token.clone()).collect();
            let mut parser = Parser::new(&TimeTravelDialect).with_tokens(moment);
            if parser.parse_expr().is_err() {
                continue;
            }
            let end = start_of(at + 4 + parser.index());
            edits.push((start_of(alias)..start_of(at), String::new()));
            edits.push((end..end, format!(" {} ", sql[start_of(alias)..start_of(at)].trim_end())));
        }
    }
    if edits.is_empty() {
        return None;
    }
    let (mut text, mut copied) = (String::new(), range.start);
    for (cut, put) in edits {
        text.push_str(&sql[copied..cut.start]);
        text.push_str(&put);
        copied = cut.end;
    }
    text.push_str(&sql[copied..range.end]);
    Some(text)
}

fn is(token: Option<&&TokenWithSpan>, wanted: &str) -> bool {
    matches!(token.map(|token| &token.token), Some(Token::Word(word))
        if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(wanted))
}

fn is_word(token: Option<&&TokenWithSpan>) -> bool {
    matches!(token.map(|token| &token.token), Some(Token::Word(_)))
}

/// Returns true for a TABLE that begins a query.
fn is_table_query(words: &[&TokenWithSpan], at: usize) -> bool {
    let before = at.checked_sub(1).map(|before| words[before]);
    let begins = match before {
        None => true,
        Some(before) => {
            before.token == Token::LParen || BEFORE_TABLE.iter().any(|word| is(Some(&before), word))
        }
    };
    begins && is(words.get(at), "table") && is_word(words.get(at + 1))
}

/// Position of the alias before FOR SYSTEM_TIME AS OF.
fn alias_before_moment(words: &[&TokenWithSpan], at: usize) -> Option<usize> {
    let clause = ["for", "system_time", "as", "of"];
    if !(0..4).all(|part| is(words.get(at + part), clause[part])) || !is_word(words.get(at.checked_sub(1)?)) {
        return None;
    }
    let alias = at - 1;
    let before = words.get(alias.checked_sub(1)?);
    match is(before, "as") {
        true => Some(alias - 1),
        false => (is_word(before) && !BEFORE_RELATION.iter().any(|word| is(before, word))).then_some(alias),
    }
}
