//! Depth limit of operator chains: `1+1+1`, `x::int::int`, `SELECT … UNION SELECT …`.
//!
//! The parser bounds its own recursion, parentheses among it. Chains that it parses in a loop become a tree
//! that is as deep as the query text is long, and every later walk down that tree, at the latest its drop,
//! needs a stack as deep: a stack overflow ends the process. So long query texts are checked before a tree is
//! built. Accepted statements need up to [`STACK_BYTES`], which servers give their threads.
//!
//! Cost: a pass over the tokens; nothing for statements of at most [`SELECTS_MAX`] tokens, which cannot have
//! so many links.

use crate::error::{Error, Result};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

/// Maximum nesting of expressions that the parser accepts.
pub(crate) const NESTING_MAX: usize = 128;
/// Maximum number of words, values and operators between two commas, or parentheses.
pub const CHAIN_MAX: usize = 2_000;
/// Maximum number of SELECTs of a UNION, INTERSECT or EXCEPT, each a join and an aggregation on top of those
/// before it.
pub const SELECTS_MAX: usize = 100;
/// Stack of a thread that runs untrusted statements. Reserved as addresses; memory is taken as the stack is
/// used.
pub const STACK_BYTES: usize = 64 << 20;

/// Counts between a pair of parentheses.
#[derive(Default)]
struct Level {
    /// Links since the last comma.
    links: usize,
    selects: usize,
}

/// Refuses a statement whose tree would be too deep, with SQLSTATE 54001.
pub(crate) fn check(tokens: &[TokenWithSpan]) -> Result<()> {
    if tokens.len() <= SELECTS_MAX {
        return Ok(());
    }
    let mut outer = Vec::new();
    let mut level = Level::default();
    for token in tokens {
        match &token.token {
            Token::LParen | Token::LBracket => {
                level.links += 1;
                outer.push(std::mem::take(&mut level));
            }
            Token::RParen | Token::RBracket => level = outer.pop().unwrap_or_default(),
            Token::Comma => level.links = 0,
            Token::Word(word) if is_set_operation(word.keyword) => {
                level.selects += 1;
                level.links = 0;
            }
            _ => level.links += 1,
        }
        if level.links > CHAIN_MAX || level.selects > SELECTS_MAX {
            let message = format!(
                "statement is too complex: at most {CHAIN_MAX} operators or {SELECTS_MAX} SELECTs of a UNION can be chained"
            );
            return Err(Error::coded("54001", message));
        }
    }
    Ok(())
}

fn is_set_operation(keyword: Keyword) -> bool {
    matches!(keyword, Keyword::UNION | Keyword::EXCEPT | Keyword::INTERSECT | Keyword::MINUS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::text::tokens::{BEGINNING, tokenize};

    fn refused(sql: &str) -> bool {
        check(&tokenize(sql, BEGINNING).unwrap()).is_err_and(|error| error.sqlstate() == "54001")
    }

    #[test]
    fn what_nests_is_counted_and_what_stands_side_by_side_is_not() {
        let chain = |first: &str, link: &str, links: usize| format!("SELECT {first}{}", link.repeat(links));
        for (first, link) in
            [("1", "+1"), ("1", "::int"), ("(1)", "+(1)"), ("a", "||','"), ("f(1)", " - f(1, 2)")]
        {
            assert!(!refused(&chain(first, link, CHAIN_MAX / 8)), "{link}");
            assert!(refused(&chain(first, link, CHAIN_MAX)), "{link}");
        }
        assert!(!refused(&chain("1, 2", " UNION ALL SELECT 1, 2", SELECTS_MAX)));
        assert!(refused(&chain("1, 2", " UNION ALL SELECT 1, 2", SELECTS_MAX + 1)));
        assert!(refused(&format!("SELECT ({})", chain("1", "+1", CHAIN_MAX))));
        for (first, link) in [("1", ",1+1"), ("(1)", ",(1+1)"), ("f(1)", ",f(1,'a''b')")] {
            assert!(!refused(&chain(first, link, 5 * CHAIN_MAX)), "{link}");
        }
        assert!(!refused(&format!("SELECT '{}'", "+1".repeat(CHAIN_MAX))));
        assert!(!refused(&format!("SELECT {}1", "(".repeat(2 * CHAIN_MAX))), "the parser's own bound");
    }
}
