//! MATCH_RECOGNIZE in FROM: taken out of the tokens of a statement, and put into its tree.
//!
//! ```text
//! FROM t MATCH_RECOGNIZE (clauses) AS m      FROM "\u{1}row_pattern"(t, 0) AS m      sqlparser's node for it
//! ```
//!
//! sqlparser knows it for other dialects than PostgreSQL's, and without WITHIN and reluctant quantifiers. So the clauses are
//! parsed here, and sqlparser gets a function of the relation and of the number of the clause, in whose place the node is
//! put. Steps of topologies take the clauses by these numbers ([`crate::streaming::names`]), all other statements have
//! the nodes, which [`crate::planner::patterns`] plans.

mod clause;
mod text;

pub(crate) use self::clause::{Measure, PatternClause};
use crate::error::{Error, Result};
use crate::parser::durations::interval_of;
use crate::parser::own::streaming::{parenthesised, with_parser};
use crate::parser::text::tokens::{is_word, mentions};
use crate::parser::visit::walk_mut;
use crate::parser::windows::expressions;
use crate::schema_names::HIDDEN;
use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArguments, ObjectName, ObjectNamePart, TableFactor, TableFunctionArgs, VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use std::ops::ControlFlow;

/// Word of the clause.
const MATCH_RECOGNIZE: &str = "match_recognize";
/// Words with which its clauses begin, but for MEASURES and PATTERN (.
const FIRST_WORDS: [(&str, &str); 5] =
    [("partition", "by"), ("order", "by"), ("one", "row"), ("all", "rows"), ("after", "match")];
/// Words before a relation.
const BEFORE_RELATION: [&str; 3] = ["from", "join", "using"];

/// Name by which sqlparser knows MATCH_RECOGNIZE; no statement can write it.
pub(crate) fn pattern_function() -> String {
    format!("{HIDDEN}row_pattern")
}

/// Clauses of a statement, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct RowPatterns(Vec<TableFactor>);

impl RowPatterns {
    /// Takes each MATCH_RECOGNIZE out of the tokens of a statement.
    pub(crate) fn take(tokens: &mut Vec<TokenWithSpan>) -> Result<RowPatterns> {
        let mut found = RowPatterns::default();
        if !mentions(tokens, &[MATCH_RECOGNIZE]) {
            return Ok(found);
        }
        let mut from = 1;
        while let Some(at) = (from..tokens.len()).find(|&at| is_clause(tokens, at)) {
            let Some(first) = relation_before(tokens, at) else {
                return Err(Error::Syntax(
                    "syntax error: MATCH_RECOGNIZE: expected FROM relation MATCH_RECOGNIZE (...), behind the name of a relation \
                     or a query in parentheses, and with an alias behind it"
                        .to_owned(),
                ));
            };
            let (body, behind) = parenthesised(&tokens[at + 1..])?;
            let (clause, end) = (with_parser(body, clause::parse)?, tokens.len() - behind.len());
            let span = tokens[at].span;
            let token = |token: Token| TokenWithSpan { token, span };
            let mut call =
                vec![token(Token::make_word(&pattern_function(), Some('"'))), token(Token::LParen)];
            call.extend_from_slice(&tokens[first..at]);
            call.extend([
                token(Token::Comma),
                token(Token::Number(found.0.len().to_string(), false)),
                token(Token::RParen),
            ]);
            from = first + call.len();
            tokens.splice(first..end, call);
            found.0.push(clause);
        }
        Ok(found)
    }

    /// Puts the clauses into the tree that was parsed from the other tokens.
    pub(crate) fn put(self, tree: &mut impl VisitMut) -> Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        match walk_mut(tree, &mut PatternInserter(self)) {
            ControlFlow::Break(error) => Err(error),
            ControlFlow::Continue(()) => Ok(()),
        }
    }

    /// Clause of a number.
    pub(crate) fn clause(&self, number: usize) -> Option<&TableFactor> {
        self.0.get(number)
    }
}

/// Tells whether the clause begins at a token: a table of this name has columns in its parentheses, a function arguments.
fn is_clause(tokens: &[TokenWithSpan], at: usize) -> bool {
    let is = |at: usize, word: &str| tokens.get(at).is_some_and(|token| is_word(&token.token, word));
    let opens = |at: usize| tokens.get(at).is_some_and(|token| token.token == Token::LParen);
    let ends_relation = matches!(tokens[at - 1].token, Token::Word(_) | Token::RParen);
    let begins = |(first, second): (&str, &str)| is(at + 2, first) && is(at + 3, second);
    is(at, MATCH_RECOGNIZE)
        && ends_relation
        && opens(at + 1)
        && (FIRST_WORDS.into_iter().any(begins)
            || is(at + 2, "measures")
            || (is(at + 2, "pattern") && opens(at + 3)))
}

/// First token of the relation that ends before a token: a name, a query in parentheses, or the call of a function.
fn relation_before(tokens: &[TokenWithSpan], at: usize) -> Option<usize> {
    let is_word_at = |at: usize| matches!(tokens.get(at).map(|token| &token.token), Some(Token::Word(_)));
    let begins = |first: usize| {
        let before = first.checked_sub(1).and_then(|before| tokens.get(before));
        before.is_some_and(|before| {
            matches!(before.token, Token::Comma | Token::LParen)
                || BEFORE_RELATION.iter().any(|word| is_word(&before.token, word))
        })
    };
    let mut first = at.checked_sub(1)?;
    if tokens[first].token == Token::RParen {
        let mut depth = 0_usize;
        first = (0..at).rev().find(|&at| {
            match tokens[at].token {
                Token::RParen => depth += 1,
                Token::LParen => depth -= 1,
                _ => {}
            }
            depth == 0
        })?;
        if begins(first) {
            return Some(first);
        }
        first = first.checked_sub(1)?;
    }
    while first >= 2 && tokens[first - 1].token == Token::Period && is_word_at(first - 2) {
        first -= 2;
    }
    // The result of another clause has no name of its own.
    let is_result = matches!(&tokens[first].token, Token::Word(word) if word.value.contains(HIDDEN));
    let is_name = is_word_at(first) && !is_result && !is_word(&tokens[first].token, "lateral");
    (is_name && begins(first)).then_some(first)
}

/// Visitor that replaces the functions by the nodes of their clauses.
struct PatternInserter(RowPatterns);

impl VisitorMut for PatternInserter {
    type Break = Error;

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Error> {
        match self.node(factor) {
            Ok(Some(node)) => *factor = node,
            Ok(None) => {}
            Err(error) => return ControlFlow::Break(error),
        }
        ControlFlow::Continue(())
    }
}

impl PatternInserter {
    fn node(&self, factor: &TableFactor) -> Result<Option<TableFactor>> {
        let TableFactor::Table { name, args: Some(args), alias: shown, .. } = factor else { return Ok(None) };
        let [ObjectNamePart::Identifier(called)] = name.0.as_slice() else { return Ok(None) };
        if called.value != pattern_function() {
            return Ok(None);
        }
        let args = expressions(&args.args);
        let [of, number] = args.as_slice() else { return Err(not_a_relation(factor)) };
        let number = interval_of(number).and_then(|number| number.parse().ok());
        let clause = number.and_then(|number: usize| self.0.clause(number));
        let mut node = clause.ok_or_else(|| not_a_relation(factor))?.clone();
        if let TableFactor::MatchRecognize { table, alias, .. } = &mut node {
            **table = relation(of).ok_or_else(|| not_a_relation(of))?;
            alias.clone_from(shown);
        }
        Ok(Some(node))
    }
}

fn not_a_relation(found: &impl std::fmt::Display) -> Error {
    Error::Syntax(format!("syntax error: MATCH_RECOGNIZE of {found}, which is not a relation"))
}

/// Relation that an argument names, computes or calls.
fn relation(expr: &Expr) -> Option<TableFactor> {
    Some(match expr {
        Expr::Identifier(name) => named(ObjectName::from(vec![name.clone()]), None),
        Expr::CompoundIdentifier(parts) => named(ObjectName::from(parts.clone()), None),
        Expr::Subquery(query) => {
            TableFactor::Derived { lateral: false, subquery: query.clone(), alias: None, sample: None }
        }
        Expr::Function(function) => {
            let FunctionArguments::List(list) = &function.args else { return None };
            let args = TableFunctionArgs { args: list.args.clone(), settings: None };
            named(function.name.clone(), Some(args))
        }
        _ => return None,
    })
}

/// Relation of a name, or function of it in FROM.
pub(crate) fn named(name: ObjectName, args: Option<TableFunctionArgs>) -> TableFactor {
    TableFactor::Table {
        name,
        alias: None,
        args,
        with_hints: Vec::new(),
        version: None,
        with_ordinality: false,
        partitions: Vec::new(),
        json_path: None,
        sample: None,
        index_hints: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use crate::parser::statement::query_of;

    #[test]
    fn clauses_are_written_as_they_are_read() {
        for sql in [
            "SELECT * FROM t MATCH_RECOGNIZE(ORDER BY at MEASURES FINAL last(a.x) AS x ALL ROWS PER MATCH AFTER MATCH SKIP PAST LAST ROW PATTERN (a + ? b { 2 , 3 } | \"C d\" ) WITHIN (INTERVAL '1 hour') DEFINE a AS a.x > $1)",
            "SELECT m.x FROM (SELECT * FROM s.t) MATCH_RECOGNIZE(PARTITION BY p ORDER BY at, id DESC MEASURES a.x AS x ONE ROW PER MATCH PATTERN (a) DEFINE ) AS m (x) JOIN u ON true",
            "SELECT 1 FROM (SELECT 1 FROM t MATCH_RECOGNIZE(ORDER BY at MEASURES 1 AS x PATTERN (a) DEFINE a AS true)) MATCH_RECOGNIZE(ORDER BY x MEASURES 2 AS y PATTERN (b) DEFINE )",
            "SELECT 1 FROM TUMBLE(t, at, INTERVAL '1 hour') MATCH_RECOGNIZE(ORDER BY x MEASURES 2 AS y PATTERN (b) DEFINE )",
        ] {
            let once = query_of(sql).unwrap().to_string();
            assert_eq!(query_of(&once).unwrap().to_string(), once);
            let compared = |text: &str| text.replace([' ', '(', ')'], "");
            assert_eq!(compared(&once), compared(sql));
        }
        let error = query_of("SELECT * FROM t AS x MATCH_RECOGNIZE (ORDER BY at PATTERN (a))").unwrap_err();
        assert!(error.to_string().contains("behind the name of a relation"), "{error}");
        query_of("SELECT match_recognize(1), match_recognize FROM match_recognize").unwrap();
    }
}
