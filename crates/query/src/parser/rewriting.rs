//! Syntax that sqlparser does not know, put into tokens that it does:
//!
//! ```text
//! TABLE t                                          SELECT * FROM t
//! TABLE(TUMBLE(TABLE t, DESCRIPTOR(c), ...))       TUMBLE(t, c, ...), see [`crate::parser::descriptors`]
//! SHOW TOPOLOGIES, SOURCES, STREAMS, SINKS, SUBSCRIPTIONS     SELECT * FROM entresol.topologies, ...
//! AS IDENTITY (options)                            the options in the order that the parser knows
//! ALTER TABLE t RESET (history)                    ALTER TABLE t SET (history = 'off'); changes likewise
//! SUBSCRIBE TO t ...                               SELECT * FROM subscribe('SUBSCRIBE TO t ...')
//! MERGE ...                                        see [`crate::parser::merge`]
//! WITH (cluster_by = (a 6, b))                     WITH (cluster_by = 'a 6, b'), and elf_by alike
//! CREATE TABLE t (...) USING m                     CREATE TABLE t (...) WITH (structure = 'm')
//! ABORT                                            ROLLBACK
//! BETWEEN SYMMETRIC a AND b                        BETWEEN !! a AND b: a mark, see [`SYMMETRIC`]
//! ORDER BY x USING <                               ORDER BY x ASC; USING > likewise DESC
//! x ISNULL                                         x IS NULL
//! GROUP BY ()                                      GROUP BY GROUPING SETS (())
//! x = ANY (VALUES ...)                             x = ANY (SELECT * FROM (VALUES ...) AS v)
//! trim(LEADING FROM x)                             trim(LEADING x)
//! EXPLAIN (FORMAT TEXT, ...)                       see [`crate::parser::explain_options`]
//! ANALYZE VERBOSE                                  without VERBOSE: there is nothing to report
//! ```
//!
//! A token in place of another has its place in the text, so that errors name what was written.

use crate::error::Result;
use crate::parser::descriptors::take_descriptors;
use crate::parser::explain_options::rewrite_options;
use crate::parser::merge;
use crate::parser::own::sequence;
use crate::parser::own::subscription::{SUBSCRIBE, Subscription};
use crate::parser::text::tokens::{BEGINNING, is_keyword, is_word, mentions, tokenize};
use crate::parser::windows::FUNCTIONS;
use crate::schema_names::SYSTEM_SCHEMA;
use datafusion::sql::sqlparser::ast::UnaryOperator;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Span, Token, TokenWithSpan};

/// Operator before the lower bound of BETWEEN SYMMETRIC, which PostgreSQL no longer has.
pub(crate) const SYMMETRIC: UnaryOperator = UnaryOperator::PGPrefixFactorial;

/// Words that may stand before TABLE where it is a query.
const BEFORE_TABLE: [&str; 8] =
    ["union", "except", "intersect", "all", "distinct", "as", "explain", "analyze"];
/// Words that begin a statement in which a query stands behind a parenthesis or a name.
const WITH_QUERY: [&str; 2] = ["insert", "with"];

/// Rewrites the tokens of a statement.
pub(crate) fn rewrite(tokens: &mut Vec<TokenWithSpan>) -> Result<()> {
    rewrite_beginning(tokens);
    rewrite_options(tokens)?;
    if mentions(tokens, &FUNCTIONS) {
        take_descriptors(tokens);
    }
    if has(tokens, Keyword::TABLE) {
        rewrite_table_queries(tokens);
        quote_dimensions(tokens);
        if has(tokens, Keyword::USING) {
            rewrite_structure(tokens);
        }
    }
    rewrite_subscription(tokens)?;
    if has(tokens, Keyword::MERGE) {
        merge::rewrite(tokens);
    }
    if has(tokens, Keyword::IDENTITY) {
        order_identity_options(tokens)?;
    }
    if has(tokens, Keyword::USING) && has(tokens, Keyword::ORDER) {
        rewrite_orders(tokens);
    }
    if has(tokens, Keyword::BETWEEN) || has(tokens, Keyword::TRIM) {
        rewrite_expressions(tokens);
    }
    if mentions(tokens, &["isnull"]) {
        rewrite_null_tests(tokens);
    }
    if has(tokens, Keyword::GROUP) {
        rewrite_empty_groups(tokens);
    }
    if has(tokens, Keyword::VALUES) {
        rewrite_quantified_values(tokens);
    }
    Ok(())
}

/// Rewrites ISNULL behind an operand; it is reserved, so there it is no name.
fn rewrite_null_tests(tokens: &mut Vec<TokenWithSpan>) {
    let follows_operand = |before: &Token| match before {
        Token::Word(_) => !is_keyword(before, Keyword::AS),
        Token::Number(..) | Token::SingleQuotedString(_) | Token::Placeholder(_) => true,
        Token::RParen | Token::RBracket => true,
        _ => false,
    };
    let mut from = 1;
    while let Some(found) = (from..tokens.len())
        .find(|&place| is(tokens.get(place), "isnull") && follows_operand(&tokens[place - 1].token))
    {
        let span = tokens[found].span;
        tokens.splice(found..=found, at(span, [keyword("IS"), keyword("NULL")]));
        from = found + 2;
    }
}

/// Rewrites the empty group, where it stands alone: all rows are one group.
fn rewrite_empty_groups(tokens: &mut Vec<TokenWithSpan>) {
    let is_empty = |tokens: &[TokenWithSpan]| match tokens {
        [group, by, open, close, rest @ ..] => {
            is(Some(group), "group")
                && is(Some(by), "by")
                && open.token == Token::LParen
                && close.token == Token::RParen
                && rest.first().is_none_or(|next| next.token != Token::Comma)
        }
        _ => false,
    };
    let mut from = 0;
    while let Some(found) = (from..tokens.len()).find(|&place| is_empty(&tokens[place..])) {
        let span = tokens[found + 2].span;
        let sets = [keyword("GROUPING"), keyword("SETS"), Token::LParen, Token::LParen, Token::RParen];
        tokens.splice(found + 2..found + 3, at(span, sets));
        from = found + 8;
    }
}

/// Rewrites the VALUES behind ANY, SOME and ALL into a query of them.
fn rewrite_quantified_values(tokens: &mut Vec<TokenWithSpan>) {
    let begins = |tokens: &[TokenWithSpan]| match tokens {
        [quantifier, open, values, ..] => {
            ["any", "some", "all"].iter().any(|word| is(Some(quantifier), word))
                && open.token == Token::LParen
                && is(Some(values), "values")
        }
        _ => false,
    };
    let mut from = 0;
    while let Some(found) = (from..tokens.len()).find(|&place| begins(&tokens[place..])) {
        let values = found + 2;
        let Some(length) = length_within(&tokens[values..]) else { return };
        let span = tokens[values].span;
        let alias = [Token::RParen, keyword("AS"), Token::make_word("v", None)];
        tokens.splice(values + length..values + length, at(span, alias));
        let select = [keyword("SELECT"), Token::Mul, keyword("FROM"), Token::LParen];
        tokens.splice(values..values, at(span, select));
        from = values + 4;
    }
}

/// Tokens until the parenthesis that closes one before them.
fn length_within(tokens: &[TokenWithSpan]) -> Option<usize> {
    let mut depth = 0;
    tokens.iter().position(|token| {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ => {}
        }
        depth < 0
    })
}

/// Rewrites the operators of ORDER BY into the directions that they mean.
fn rewrite_orders(tokens: &mut Vec<TokenWithSpan>) {
    let mut at = 0;
    while at + 1 < tokens.len() {
        let direction = match tokens[at + 1].token {
            Token::Lt => "ASC",
            Token::Gt => "DESC",
            _ => "",
        };
        if is_keyword(&tokens[at].token, Keyword::USING) && !direction.is_empty() {
            tokens[at].token = keyword(direction);
            tokens.remove(at + 1);
        }
        at += 1;
    }
}

/// Tokens before another, as far as they matter to it.
#[derive(Clone, Copy, PartialEq)]
enum TokensBefore {
    Between,
    Parenthesis,
    /// `(LEADING`, `(TRAILING` or `(BOTH`.
    Side,
    Other,
}

/// Rewrites BETWEEN SYMMETRIC, and trim without the characters to remove.
fn rewrite_expressions(tokens: &mut Vec<TokenWithSpan>) {
    let mut before = TokensBefore::Other;
    tokens.retain_mut(|TokenWithSpan { token, .. }| {
        let last = before;
        let is_side = ["leading", "trailing", "both"].iter().any(|side| is_word(token, side));
        before = match token {
            Token::LParen => TokensBefore::Parenthesis,
            _ if is_keyword(token, Keyword::BETWEEN) => TokensBefore::Between,
            _ if is_side && last == TokensBefore::Parenthesis => TokensBefore::Side,
            _ => TokensBefore::Other,
        };
        match last {
            TokensBefore::Between if is_word(token, "symmetric") => *token = Token::DoubleExclamationMark,
            TokensBefore::Between if is_word(token, "asymmetric") => return false,
            TokensBefore::Side if is_keyword(token, Keyword::FROM) => return false,
            _ => {}
        }
        true
    });
}

fn has(tokens: &[TokenWithSpan], keyword: Keyword) -> bool {
    tokens.iter().any(|token| is_keyword(&token.token, keyword))
}

fn is(token: Option<&TokenWithSpan>, wanted: &str) -> bool {
    token.is_some_and(|token| is_word(&token.token, wanted))
}

fn is_any_word(token: Option<&TokenWithSpan>) -> bool {
    matches!(token.map(|token| &token.token), Some(Token::Word(_)))
}

/// Tokens at the place of another.
fn at(span: Span, tokens: impl IntoIterator<Item = Token>) -> impl Iterator<Item = TokenWithSpan> {
    tokens.into_iter().map(move |token| TokenWithSpan { token, span })
}

fn keyword(word: &str) -> Token {
    Token::make_keyword(word)
}

/// Rewrites what the first words of a statement say.
fn rewrite_beginning(tokens: &mut Vec<TokenWithSpan>) {
    if is(tokens.first(), "abort") {
        tokens[0].token = keyword("ROLLBACK");
    } else if is(tokens.first(), "analyze") || is(tokens.first(), "analyse") {
        tokens[0].token = keyword("ANALYZE");
        if is(tokens.get(1), "verbose") {
            tokens.remove(1);
        }
    } else if is(tokens.first(), "show")
        && let [_, relation] = tokens.as_slice()
        && ["topologies", "sources", "streams", "sinks", "subscriptions"]
            .iter()
            .any(|word| is(Some(relation), word))
    {
        let (span, relation) = (relation.span, relation.token.clone());
        let schema = Token::make_word(SYSTEM_SCHEMA, None);
        let words = [keyword("SELECT"), Token::Mul, keyword("FROM"), schema, Token::Period, relation];
        *tokens = at(span, words).collect();
    } else if is(tokens.first(), "alter")
        && let [_, table, .., reset, open, option, close] = tokens.as_slice()
        && is(Some(table), "table")
        && is(Some(reset), "reset")
        && open.token == Token::LParen
        && (is(Some(option), "history") || is(Some(option), "changes"))
        && close.token == Token::RParen
    {
        let (span, from) = (reset.span, tokens.len() - 4);
        let off = [Token::Eq, Token::SingleQuotedString("off".to_owned())];
        let option = [keyword("SET"), Token::LParen, option.token.clone()];
        tokens.splice(from.., at(span, option.into_iter().chain(off).chain([Token::RParen])));
    }
}

/// Rewrites a SUBSCRIBE that begins the statement, or stands in COPY (...) or DECLARE ... FOR.
fn rewrite_subscription(tokens: &mut Vec<TokenWithSpan>) -> Result<()> {
    let begins = |at: usize| {
        is(tokens.get(at), "subscribe")
            && match at {
                0 => true,
                _ if is(tokens.first(), "copy") => at == 2 && tokens[1].token == Token::LParen,
                _ if is(tokens.first(), "declare") => is(tokens.get(at - 1), "for"),
                _ => is(tokens.first(), "explain") && at == 1,
            }
    };
    let Some(from) = (0..tokens.len()).find(|&at| begins(at)) else { return Ok(()) };
    let mut depth = 0;
    let closes = |token: &TokenWithSpan| {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ => {}
        }
        depth < 0 || token.token == Token::SemiColon
    };
    let end = tokens[from..].iter().position(closes).map_or(tokens.len(), |length| from + length);
    let words: Vec<String> = tokens[from..end].iter().map(|token| token.token.to_string()).collect();
    let text = words.join(" ");
    Subscription::parse(&text)?;
    let select = [keyword("SELECT"), Token::Mul, keyword("FROM"), Token::make_word(SUBSCRIBE, None)];
    let call = [Token::LParen, Token::SingleQuotedString(text), Token::RParen];
    let span = tokens[from].span;
    tokens.splice(from..end, at(span, select.into_iter().chain(call)));
    Ok(())
}

/// Rewrites each TABLE that begins a query.
fn rewrite_table_queries(tokens: &mut Vec<TokenWithSpan>) {
    let mut from = 0;
    while let Some(found) = (from..tokens.len()).find(|&at| is_table_query(tokens, at)) {
        let words = [keyword("SELECT"), Token::Mul, keyword("FROM")];
        let span = tokens[found].span;
        tokens.splice(found..=found, at(span, words));
        from = found + 3;
    }
}

/// Makes a string of the dimensions of a table option.
fn quote_dimensions(tokens: &mut Vec<TokenWithSpan>) {
    let begins = |at: usize| {
        (is(tokens.get(at), "cluster_by") || is(tokens.get(at), "elf_by"))
            && tokens.get(at + 1).is_some_and(|token| token.token == Token::Eq)
            && tokens.get(at + 2).is_some_and(|token| token.token == Token::LParen)
    };
    let Some(open) = (0..tokens.len()).find(|&at| begins(at)).map(|at| at + 2) else { return };
    let Some(length) = tokens[open..].iter().position(|token| token.token == Token::RParen) else { return };
    let words: Vec<String> =
        tokens[open + 1..open + length].iter().map(|token| token.token.to_string()).collect();
    let (span, text) = (tokens[open].span, words.join(" ").replace(" ,", ","));
    tokens.splice(open..=open + length, at(span, [Token::SingleQuotedString(text)]));
}

/// Makes an option of the structure of a new table, which is behind its columns.
fn rewrite_structure(tokens: &mut Vec<TokenWithSpan>) {
    // CREATE, and up to three words for where the table lives.
    let Some(table) = (1..5).find(|&at| is(tokens.get(at), "table")) else { return };
    if !is(tokens.first(), "create") {
        return;
    }
    let mut depth = 0;
    let ends = |token: &TokenWithSpan| {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ => {}
        }
        depth == 0 && ["using", "as"].iter().any(|word| is(Some(token), word))
    };
    let Some(using) = tokens[table..].iter().position(ends).map(|length| table + length) else { return };
    let Some(Token::Word(structure)) = tokens.get(using + 1).map(|token| token.token.clone()) else { return };
    if !is(tokens.get(using), "using") {
        return;
    }
    let opens = |at: usize| tokens.get(at).is_some_and(|token| token.token == Token::LParen);
    let has_options = is(tokens.get(using + 2), "with") && opens(using + 3);
    let (taken, last) = if has_options { (4, Token::Comma) } else { (2, Token::RParen) };
    let option = [keyword("WITH"), Token::LParen, Token::make_word("structure", None), Token::Eq];
    let value = [Token::SingleQuotedString(structure.value), last];
    let span = tokens[using].span;
    tokens.splice(using..using + taken, at(span, option.into_iter().chain(value)));
}

/// Returns true for a TABLE that begins a query.
fn is_table_query(tokens: &[TokenWithSpan], at: usize) -> bool {
    let before = at.checked_sub(1).map(|before| &tokens[before]);
    let begins = match before {
        None => true,
        Some(before) => {
            let within = WITH_QUERY.iter().any(|word| is(tokens.first(), word));
            let is_name = is_any_word(Some(before)) && !is(Some(before), "into");
            let behind_name = within && (before.token == Token::RParen || is_name);
            before.token == Token::LParen
                || behind_name
                || BEFORE_TABLE.iter().any(|word| is(Some(before), word))
        }
    };
    begins && is(tokens.get(at), "table") && is_any_word(tokens.get(at + 1))
}

/// Puts the options of identity columns into the order that sqlparser knows.
fn order_identity_options(tokens: &mut Vec<TokenWithSpan>) -> Result<()> {
    let mut from = 1;
    while let Some(open) = (from..tokens.len()).find(|&open| {
        is_keyword(&tokens[open - 1].token, Keyword::IDENTITY) && tokens[open].token == Token::LParen
    }) {
        let rest = &tokens[open + 1..];
        let Some(count) = rest.iter().position(|token| token.token == Token::RParen) else { break };
        let options: Vec<&Token> = rest[..count].iter().map(|token| &token.token).collect();
        let ordered = tokenize(&sequence::ordered(&options)?, BEGINNING)?;
        let (span, count_ordered) = (tokens[open].span, ordered.len());
        tokens.splice(open + 1..=open + count, at(span, ordered.into_iter().map(|token| token.token)));
        from = open + 1 + count_ordered;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(sql: &str) -> String {
        let mut tokens = tokenize(sql, BEGINNING).unwrap();
        rewrite(&mut tokens).unwrap();
        let texts: Vec<String> = tokens.iter().map(|token| token.token.to_string()).collect();
        texts.join(" ")
    }

    #[test]
    fn tokens_are_put_in_other_words() {
        for (sql, expected) in [
            ("abort WORK", "ROLLBACK WORK"),
            ("ANALYSE verbose t", "ANALYZE t"),
            ("SELECT a FROM t ORDER BY a USING <, b using >", "SELECT a FROM t ORDER BY a ASC , b DESC"),
            ("ALTER TABLE public.t RESET (history)", "ALTER TABLE public . t SET ( history = 'off' )"),
            ("TABLE t", "SELECT * FROM t"),
            ("SHOW topologies", "SELECT * FROM entresol . topologies"),
            ("SHOW SINKS", "SELECT * FROM entresol . SINKS"),
            ("WITH w AS (TABLE t) TABLE w", "WITH w AS ( SELECT * FROM t ) SELECT * FROM w"),
            ("INSERT INTO u (a) TABLE t", "INSERT INTO u ( a ) SELECT * FROM t"),
            (
                "WITH w AS (SELECT 1) SELECT * INTO TABLE u FROM w",
                "WITH w AS ( SELECT 1 ) SELECT * INTO TABLE u FROM w",
            ),
            ("INSERT INTO u TABLE t", "INSERT INTO u SELECT * FROM t"),
            (
                "SELECT count(*) FROM t GROUP BY () HAVING a = ANY (VALUES (1), (2))",
                "SELECT count ( * ) FROM t GROUP BY GROUPING SETS ( ( ) ) HAVING a = ANY ( SELECT * FROM ( VALUES ( 1 ) , ( 2 ) ) \
                 AS v )",
            ),
            ("SELECT a ISNULL, (b) isnull, \"isnull\"", "SELECT a IS NULL , ( b ) IS NULL , \"isnull\""),
            ("(TABLE t) UNION TABLE u", "( SELECT * FROM t ) UNION SELECT * FROM u"),
            ("CREATE TABLE t (a INT)", "CREATE TABLE t ( a INT )"),
            (
                "CREATE TABLE t (a INT) WITH (layout = 'clustered', cluster_by = (a 6, \"B\"), split = mean)",
                "CREATE TABLE t ( a INT ) WITH ( layout = 'clustered' , cluster_by = 'a 6, \"B\"' , split = mean )",
            ),
            (
                "ALTER TABLE t SET (layout = 'elf', elf_by = (a, \"B\"))",
                "ALTER TABLE t SET ( layout = 'elf' , elf_by = 'a, \"B\"' )",
            ),
            (
                "CREATE TABLE t (ä INT GENERATED ALWAYS AS IDENTITY ( start 5 increment 2 ), b INT)",
                "CREATE TABLE t ( ä INT GENERATED ALWAYS AS IDENTITY ( INCREMENT BY 2 START WITH 5 ) , b INT )",
            ),
            ("CREATE TABLE t (a INT AS IDENTITY)", "CREATE TABLE t ( a INT AS IDENTITY )"),
            ("CREATE TABLE t (a INT) USING wbtree", "CREATE TABLE t ( a INT ) WITH ( structure = 'wbtree' )"),
            (
                "CREATE UNLOGGED TABLE t (a INT) using WBTree WITH (history = '1 day')",
                "CREATE UNLOGGED TABLE t ( a INT ) WITH ( structure = 'WBTree' , history = '1 day' )",
            ),
            (
                "CREATE TABLE t USING wbtree AS SELECT * FROM a JOIN b USING (c)",
                "CREATE TABLE t WITH ( structure = 'wbtree' ) AS SELECT * FROM a JOIN b USING ( c )",
            ),
            (
                "CREATE TABLE t AS SELECT * FROM a JOIN b USING (c)",
                "CREATE TABLE t AS SELECT * FROM a JOIN b USING ( c )",
            ),
            (
                "MERGE INTO only t * USING ONLY s ON case when a then b end WHEN MATCHED AND (1 * 2) then do nothing",
                "MERGE INTO t USING s ON case when a then b end WHEN MATCHED AND ( 1 * 2 ) THEN UPDATE SET \"\u{1}nothing\" = NULL",
            ),
            (
                "MERGE INTO t USING s ON a WHEN NOT MATCHED AND CASE WHEN matched THEN b END THEN DO NOTHING",
                "MERGE INTO t USING s ON a WHEN NOT MATCHED AND CASE WHEN matched THEN b END THEN INSERT ( \"\u{1}nothing\" ) \
                 VALUES ( NULL )",
            ),
            (
                "WITH c AS (VALUES (1)) MERGE INTO t USING c ON a WHEN NOT MATCHED BY SOURCE THEN DO NOTHING \
                 WHEN NOT MATCHED BY TARGET AND x THEN INSERT (a) OVERRIDING USER VALUE VALUES ((1), 2) \
                 WHEN NOT MATCHED THEN INSERT DEFAULT VALUES RETURNING *",
                "WITH c AS ( VALUES ( 1 ) ) MERGE INTO t USING c ON a WHEN NOT MATCHED BY SOURCE THEN UPDATE SET \
                 \"\u{1}nothing\" = NULL WHEN NOT MATCHED BY TARGET AND x THEN INSERT ( a ) VALUES ( ( 1 ) , 2 ) \
                 WHERE \"\u{1}overriding user\" WHEN NOT MATCHED THEN INSERT VALUES ( DEFAULT ) RETURNING *",
            ),
        ] {
            assert_eq!(rewritten(sql), expected, "{sql}");
        }
        let mut wrong = tokenize("CREATE TABLE t (a INT AS IDENTITY (nonsense))", BEGINNING).unwrap();
        assert!(rewrite(&mut wrong).is_err());
    }
}
