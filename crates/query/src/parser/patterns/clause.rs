//! Clauses of one MATCH_RECOGNIZE: from tokens to the node of the syntax tree, and from that to what they mean.
//!
//! The tree of sqlparser has a node for it, which is written as it was read, so that the stored text of a view is text
//! that is read again. What the node has no place for stands where its text is right:
//!
//! | clause | in the node |
//! | --- | --- |
//! | PATTERN (...) | a symbol whose name is the text of the pattern |
//! | PATTERN (...) WITHIN (interval) | a second symbol, `) WITHIN (INTERVAL '…'` |
//! | FINAL measure | the measure with the prefix FINAL |

use super::named;
use super::text::{PatternText, written};
use crate::error::{Error, Result};
use crate::parser::durations::{interval, interval_of};
use crate::parser::names::identifier;
use crate::parser::text::tokens::is_word;
use datafusion::sql::sqlparser::ast::{
    AfterMatchSkip, Expr, Ident, MatchRecognizePattern, MatchRecognizeSymbol, Measure as SqlMeasure,
    ObjectName, OrderByExpr, RowsPerMatch, SymbolDefinition, TableFactor,
};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;
use entresol_streams::Pattern;
use std::fmt;
use std::time::Duration;

/// Text between a pattern and the interval of WITHIN.
const WITHIN: &str = ") WITHIN (INTERVAL '";
/// Prefix of a measure of all rows of a match.
const FINAL: &str = "FINAL";

/// MATCH_RECOGNIZE as it was written.
#[derive(Debug, Clone)]
pub(crate) struct PatternClause {
    pub(crate) partition: Vec<String>,
    pub(crate) order: Vec<OrderByExpr>,
    pub(crate) measures: Vec<Measure>,
    /// True if each row of a match is sent.
    pub(crate) all_rows: bool,
    /// True if the next match begins behind the last row of one.
    pub(crate) skips_match: bool,
    pub(crate) pattern: Pattern,
    /// Names of the variables, by their numbers in the pattern.
    pub(crate) variables: Vec<String>,
    /// Greatest time from the first to the last row of a match, if it is there.
    pub(crate) within: Option<Duration>,
    pub(crate) define: Vec<(String, Expr)>,
    /// All of it that says which rows match.
    pub(crate) text: String,
}

/// Measure as it was written.
#[derive(Debug, Clone)]
pub(crate) struct Measure {
    pub(crate) expr: Expr,
    pub(crate) name: String,
    /// True if it is of all rows of the match, in each row that is sent.
    pub(crate) is_final: bool,
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_final = if self.is_final { "FINAL " } else { "" };
        write!(f, "{is_final}{} AS {}", self.expr, self.name)
    }
}

impl fmt::Display for PatternClause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PATTERN ({})", written(&self.pattern, &self.variables, false))?;
        match self.within {
            Some(within) => write!(f, " WITHIN {} s", within.as_secs_f64()),
            None => Ok(()),
        }
    }
}

impl PatternClause {
    /// Clause of a node of the tree; none of another node.
    pub(crate) fn of(factor: &TableFactor) -> Result<Option<PatternClause>> {
        let TableFactor::MatchRecognize {
            partition_by,
            order_by,
            measures,
            rows_per_match,
            after_match_skip,
            pattern,
            symbols,
            ..
        } = factor
        else {
            return Ok(None);
        };
        let partition = partition_by.iter().map(partition_column).collect::<Result<Vec<_>>>()?;
        let all_rows = matches!(rows_per_match, Some(RowsPerMatch::AllRows(_)));
        if measures.is_empty() && partition.is_empty() && !all_rows {
            return Err(Error::Syntax("syntax error: MATCH_RECOGNIZE without MEASURES".to_owned()));
        }
        let (pattern, within) = pattern_texts(pattern)?;
        let (pattern, variables) = PatternText::new(pattern).parse()?;
        let define: Vec<(String, Expr)> =
            symbols.iter().map(|symbol| (identifier(&symbol.symbol), symbol.definition.clone())).collect();
        check_definitions(&define, &variables)?;
        let skips_match = !matches!(after_match_skip, Some(AfterMatchSkip::ToNextRow));
        let defined: Vec<String> = define.iter().map(|(name, expr)| format!("{name} AS {expr}")).collect();
        let order: Vec<String> = order_by.iter().map(ToString::to_string).collect();
        let text = format!(
            "PARTITION BY {partition:?} ORDER BY {} skips {skips_match} PATTERN ({pattern:?}) {variables:?} WITHIN {} DEFINE {}",
            order.join(", "),
            within.as_deref().unwrap_or("any time"),
            defined.join(", ")
        );
        Ok(Some(PatternClause {
            partition,
            order: order_by.clone(),
            measures: measures.iter().map(measure).collect(),
            all_rows,
            skips_match,
            pattern,
            variables,
            within: within.map(|within| interval("WITHIN", &within)).transpose()?,
            define,
            text,
        }))
    }

    /// Column of ORDER BY in a step: the event time, ascending.
    pub(crate) fn event_time(&self) -> Result<String> {
        if let [only] = self.order.as_slice()
            && only.options.asc != Some(false)
            && let Expr::Identifier(ident) = &only.expr
        {
            return Ok(identifier(ident));
        }
        Err(Error::unsupported("MATCH_RECOGNIZE in a step, other than ORDER BY the event time, ascending"))
    }
}

fn partition_column(expr: &Expr) -> Result<String> {
    match expr {
        Expr::Identifier(ident) => Ok(identifier(ident)),
        other => Err(Error::unsupported(format!(
            "PARTITION BY {other} in MATCH_RECOGNIZE: compute it as a column before, in a subquery or a CREATE STREAM"
        ))),
    }
}

fn measure(measure: &SqlMeasure) -> Measure {
    let name = identifier(&measure.alias);
    match &measure.expr {
        Expr::Prefixed { prefix, value } if prefix.value == FINAL => {
            Measure { expr: value.as_ref().clone(), name, is_final: true }
        }
        expr => Measure { expr: expr.clone(), name, is_final: false },
    }
}

/// Refuses definitions of variables that the pattern does not have, or has two of.
fn check_definitions(define: &[(String, Expr)], variables: &[String]) -> Result<()> {
    for (at, (name, _)) in define.iter().enumerate() {
        if !variables.contains(name) {
            return Err(Error::coded("42703", format!("DEFINE {name}: the pattern has no such variable")));
        }
        if define[..at].iter().any(|(other, _)| other == name) {
            return Err(Error::coded("42601", format!("DEFINE {name} specified more than once")));
        }
    }
    Ok(())
}

/// Text of the pattern of a node, and that of the interval of its WITHIN.
fn pattern_texts(pattern: &MatchRecognizePattern) -> Result<(&str, Option<String>)> {
    let MatchRecognizePattern::Concat(parts) = pattern else { return Err(malformed(pattern)) };
    let texts = parts.iter().filter_map(|part| match part {
        MatchRecognizePattern::Symbol(MatchRecognizeSymbol::Named(ident)) => Some(ident.value.as_str()),
        _ => None,
    });
    match texts.collect::<Vec<_>>().as_slice() {
        [text] => Ok((text, None)),
        [text, within] => {
            let within = within.strip_prefix(WITHIN).and_then(|within| within.strip_suffix('\''));
            Ok((text, Some(within.ok_or_else(|| malformed(pattern))?.replace("''", "'"))))
        }
        _ => Err(malformed(pattern)),
    }
}

fn malformed(pattern: &MatchRecognizePattern) -> Error {
    Error::Internal(format!("PATTERN ({pattern}) was not made by this parser"))
}

/// Parses the clauses in their order, as a node of a relation that is put in later.
pub(super) fn parse(parser: &mut Parser<'_>) -> Result<TableFactor, ParserError> {
    let mut partition_by = Vec::new();
    if parser.parse_keywords(&[Keyword::PARTITION, Keyword::BY]) {
        partition_by = parser.parse_comma_separated(Parser::parse_expr)?;
    }
    let mut order_by = Vec::new();
    if parser.parse_keywords(&[Keyword::ORDER, Keyword::BY]) {
        order_by = parser.parse_comma_separated(Parser::parse_order_by_expr)?;
    }
    let mut measures = Vec::new();
    if parser.parse_keyword(Keyword::MEASURES) {
        measures = parser.parse_comma_separated(parse_measure)?;
    }
    let mut rows_per_match = None;
    if parser.parse_keyword(Keyword::ALL) {
        parser.expect_keywords(&[Keyword::ROWS, Keyword::PER, Keyword::MATCH])?;
        rows_per_match = Some(RowsPerMatch::AllRows(None));
    } else if parser.parse_keyword(Keyword::ONE) {
        parser.expect_keywords(&[Keyword::ROW, Keyword::PER, Keyword::MATCH])?;
        rows_per_match = Some(RowsPerMatch::OneRow);
    }
    let after_match_skip = parse_skip(parser)?;
    let pattern = parse_pattern(parser)?;
    let mut symbols = Vec::new();
    if parser.parse_keyword(Keyword::DEFINE) && parser.peek_token().token != Token::EOF {
        symbols = parser.parse_comma_separated(|parser| {
            let symbol = parser.parse_identifier()?;
            parser.expect_keyword_is(Keyword::AS)?;
            Ok(SymbolDefinition { symbol, definition: parser.parse_expr()? })
        })?;
    }
    Ok(TableFactor::MatchRecognize {
        table: Box::new(named(ObjectName(Vec::new()), None)),
        partition_by,
        order_by,
        measures,
        rows_per_match,
        after_match_skip,
        pattern,
        symbols,
        alias: None,
    })
}

fn parse_measure(parser: &mut Parser<'_>) -> Result<SqlMeasure, ParserError> {
    let is_final = takes_semantics(parser);
    let mut expr = parser.parse_expr()?;
    parser.expect_keyword_is(Keyword::AS)?;
    if is_final {
        expr = Expr::Prefixed { prefix: Ident::new(FINAL), value: Box::new(expr) };
    }
    Ok(SqlMeasure { expr, alias: parser.parse_identifier()? })
}

fn parse_skip(parser: &mut Parser<'_>) -> Result<Option<AfterMatchSkip>, ParserError> {
    if !parser.parse_keywords(&[Keyword::AFTER, Keyword::MATCH, Keyword::SKIP]) {
        return Ok(None);
    }
    let is_past = parser.parse_keyword(Keyword::PAST);
    if !is_past {
        parser.expect_keyword_is(Keyword::TO)?;
    }
    parser.expect_keywords(&[if is_past { Keyword::LAST } else { Keyword::NEXT }, Keyword::ROW])?;
    Ok(Some(if is_past { AfterMatchSkip::PastLastRow } else { AfterMatchSkip::ToNextRow }))
}

/// Parses PATTERN with its WITHIN.
fn parse_pattern(parser: &mut Parser<'_>) -> Result<MatchRecognizePattern, ParserError> {
    parser.expect_keyword_is(Keyword::PATTERN)?;
    let mut texts = vec![pattern_text(parser)?];
    if parser.parse_keyword(Keyword::WITHIN) {
        let within = parser.parse_expr()?;
        let Some(text) = interval_of(&within) else {
            return Err(ParserError::ParserError(format!("expected WITHIN INTERVAL '…', found: {within}")));
        };
        texts.push(format!("{WITHIN}{}'", text.replace('\'', "''")));
    }
    let symbol = |text| MatchRecognizePattern::Symbol(MatchRecognizeSymbol::Named(Ident::new(text)));
    Ok(MatchRecognizePattern::Concat(texts.into_iter().map(symbol).collect()))
}

/// Takes RUNNING or FINAL before a measure, where it is no name; tells whether it is FINAL.
fn takes_semantics(parser: &mut Parser<'_>) -> bool {
    let [first, second] = [0, 1].map(|at| parser.peek_nth_token(at).token);
    let is_final = is_word(&first, "final");
    let is_before = (is_final || is_word(&first, "running"))
        && matches!(second, Token::Word(_))
        && !is_word(&second, "as");
    if is_before {
        parser.next_token();
    }
    is_before && is_final
}

/// Text of the pattern: all up to the parenthesis that closes it.
fn pattern_text(parser: &mut Parser<'_>) -> Result<String, ParserError> {
    parser.expect_token(&Token::LParen)?;
    let (mut depth, mut text) = (1, String::new());
    loop {
        let token = parser.next_token().token;
        match &token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            Token::EOF => return Err(ParserError::ParserError("expected ) behind PATTERN (".to_owned())),
            _ => {}
        }
        if depth == 0 {
            return Ok(text.trim_end().to_owned());
        }
        text.push_str(&token.to_string());
        text.push(' ');
    }
}
