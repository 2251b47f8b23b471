//! MATCH_RECOGNIZE in the tokens of a step: its clauses, and its pattern.
//!
//! The parser of other statements does not know it in PostgreSQL's dialect. So it is taken out of the tokens, and in its
//! place stands a function of the relation that it reads and of its number.

use crate::error::{Error, Result};
use crate::parser::durations::{interval, interval_of};
use crate::parser::names::identifier;
use crate::parser::own::streaming::{parenthesised, with_parser};
use crate::parser::text::tokens::is_word;
use crate::streaming::names::PATTERN_FUNCTION;
use datafusion::sql::sqlparser::ast::{Expr, Ident, OrderByExpr};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use entresol_streams::{PATTERN_VARIABLES_MAX, Pattern};
use std::fmt;
use std::time::Duration;

/// Greatest number in a quantifier.
const TIMES_MAX: u32 = 10_000;

/// MATCH_RECOGNIZE as it was written.
#[derive(Debug, Clone)]
pub(crate) struct PatternClause {
    pub(crate) partition: Vec<String>,
    /// Column of the event time.
    pub(crate) time: String,
    pub(crate) measures: Vec<Measure>,
    /// True if each row of a match is sent.
    pub(crate) all_rows: bool,
    /// True if the next match begins behind the last row of one.
    pub(crate) skips_match: bool,
    pub(crate) pattern: Pattern,
    /// Names of the variables, by their numbers in the pattern.
    pub(crate) variables: Vec<String>,
    pub(crate) within: Duration,
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

/// Clauses as they are parsed.
struct Clauses {
    partition: Vec<Expr>,
    order: Vec<OrderByExpr>,
    measures: Vec<Measure>,
    has_all_rows: bool,
    skips_match: Option<bool>,
    pattern: String,
    within: Option<Expr>,
    define: Vec<(Ident, Expr)>,
}

/// Takes each MATCH_RECOGNIZE out of the tokens of a step.
pub(crate) fn take_patterns(tokens: &mut Vec<TokenWithSpan>) -> Result<Vec<PatternClause>> {
    let mut found = Vec::new();
    while let Some(at) = tokens.iter().position(|token| is_word(&token.token, "match_recognize")) {
        let is_relation = at > 0 && matches!(tokens[at - 1].token, Token::Word(_));
        let begins = |token: &TokenWithSpan| {
            is_word(&token.token, "from") || is_word(&token.token, "join") || token.token == Token::Comma
        };
        if !(is_relation && at > 1 && begins(&tokens[at - 2])) {
            return Err(Error::unsupported(
                "MATCH_RECOGNIZE of anything but the name of a source or stream: make it a CREATE STREAM before",
            ));
        }
        let (body, behind) = parenthesised(&tokens[at + 1..])?;
        let (clause, end) = (PatternClause::parse(body)?, tokens.len() - behind.len());
        let mut relation = tokens[at - 1].clone();
        let span = relation.span;
        let token = |token: Token| TokenWithSpan { token, span };
        relation.span = span;
        let call = vec![
            token(Token::make_word(PATTERN_FUNCTION, None)),
            token(Token::LParen),
            relation,
            token(Token::Comma),
            token(Token::Number(found.len().to_string(), false)),
            token(Token::RParen),
        ];
        tokens.splice(at - 1..end, call);
        found.push(clause);
    }
    Ok(found)
}

impl fmt::Display for PatternClause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pattern = written(&self.pattern, &self.variables, false);
        write!(f, "PATTERN ({pattern}) WITHIN {} s", self.within.as_secs_f64())
    }
}

/// Text of a pattern; in parentheses if it has parts and is one itself.
fn written(pattern: &Pattern, variables: &[String], is_part: bool) -> String {
    let joined = |parts: &[Pattern], separator: &str| {
        let parts: Vec<String> = parts.iter().map(|part| written(part, variables, true)).collect();
        let text = parts.join(separator);
        if is_part { format!("({text})") } else { text }
    };
    match pattern {
        Pattern::Variable(variable) => variables.get(*variable).cloned().unwrap_or_default(),
        Pattern::Sequence(parts) => joined(parts, " "),
        Pattern::Alternation(parts) => joined(parts, " | "),
        Pattern::Repetition { of, least, most, is_reluctant } => {
            let times = match (least, most) {
                (0, None) => "*".to_owned(),
                (1, None) => "+".to_owned(),
                (0, Some(1)) => "?".to_owned(),
                (least, None) => format!("{{{least},}}"),
                (least, Some(most)) => format!("{{{least},{most}}}"),
            };
            let reluctant = if *is_reluctant { "?" } else { "" };
            format!("{}{times}{reluctant}", written(of, variables, true))
        }
    }
}

impl PatternClause {
    fn parse(body: &[TokenWithSpan]) -> Result<PatternClause> {
        let parsed = with_parser(body, clauses)?;
        let plain = |expr: &Expr| match expr {
            Expr::Identifier(ident) => Ok(identifier(ident)),
            other => Err(Error::unsupported(format!(
                "PARTITION BY {other} in MATCH_RECOGNIZE: compute it as a column in a CREATE STREAM before"
            ))),
        };
        let partition = parsed.partition.iter().map(plain).collect::<Result<Vec<_>>>()?;
        let time = event_time(&parsed.order)?;
        if parsed.measures.is_empty() && partition.is_empty() && !parsed.has_all_rows {
            return Err(Error::Syntax("syntax error: MATCH_RECOGNIZE without MEASURES".to_owned()));
        }
        let within = parsed.within.as_ref().and_then(interval_of).ok_or_else(|| {
            Error::unsupported(
                "MATCH_RECOGNIZE of a stream without end, without WITHIN INTERVAL '…' behind its PATTERN",
            )
        })?;
        let (pattern, variables) = PatternText::new(&parsed.pattern).parse()?;
        let define: Vec<(String, Expr)> =
            parsed.define.into_iter().map(|(name, expr)| (identifier(&name), expr)).collect();
        for (at, (name, _)) in define.iter().enumerate() {
            if !variables.contains(name) {
                return Err(Error::coded(
                    "42703",
                    format!("DEFINE {name}: the pattern has no such variable"),
                ));
            }
            if define[..at].iter().any(|(other, _)| other == name) {
                return Err(Error::coded("42601", format!("DEFINE {name} specified more than once")));
            }
        }
        let skips_match = parsed.skips_match.unwrap_or(true);
        let defined: Vec<String> = define.iter().map(|(name, expr)| format!("{name} AS {expr}")).collect();
        let text = format!(
            "PARTITION BY {partition:?} ORDER BY {time} skips {skips_match} PATTERN ({pattern:?}) {variables:?} WITHIN {within} DEFINE {}",
            defined.join(", ")
        );
        Ok(PatternClause {
            partition,
            time,
            measures: parsed.measures,
            all_rows: parsed.has_all_rows,
            skips_match,
            pattern,
            variables,
            within: interval("WITHIN", &within)?,
            define,
            text,
        })
    }
}

/// Parses the clauses in their order.
fn clauses(parser: &mut Parser<'_>) -> Result<Clauses, ParserError> {
    let mut clauses = Clauses {
        partition: Vec::new(),
        order: Vec::new(),
        measures: Vec::new(),
        has_all_rows: false,
        skips_match: None,
        pattern: String::new(),
        within: None,
        define: Vec::new(),
    };
    if parser.parse_keywords(&[Keyword::PARTITION, Keyword::BY]) {
        clauses.partition = parser.parse_comma_separated(Parser::parse_expr)?;
    }
    if parser.parse_keywords(&[Keyword::ORDER, Keyword::BY]) {
        clauses.order = parser.parse_comma_separated(Parser::parse_order_by_expr)?;
    }
    if parser.parse_keyword(Keyword::MEASURES) {
        clauses.measures = parser.parse_comma_separated(|parser| {
            let is_final = takes_semantics(parser);
            let expr = parser.parse_expr()?;
            parser.expect_keyword_is(Keyword::AS)?;
            Ok(Measure { expr, name: identifier(&parser.parse_identifier()?), is_final })
        })?;
    }
    if parser.parse_keyword(Keyword::ALL) {
        parser.expect_keywords(&[Keyword::ROWS, Keyword::PER, Keyword::MATCH])?;
        clauses.has_all_rows = true;
    } else if parser.parse_keyword(Keyword::ONE) {
        parser.expect_keywords(&[Keyword::ROW, Keyword::PER, Keyword::MATCH])?;
    }
    if parser.parse_keywords(&[Keyword::AFTER, Keyword::MATCH, Keyword::SKIP]) {
        let skips_match = parser.parse_keyword(Keyword::PAST);
        let behind = if skips_match { Keyword::LAST } else { Keyword::NEXT };
        if !skips_match {
            parser.expect_keyword_is(Keyword::TO)?;
        }
        parser.expect_keywords(&[behind, Keyword::ROW])?;
        clauses.skips_match = Some(skips_match);
    }
    parser.expect_keyword_is(Keyword::PATTERN)?;
    clauses.pattern = pattern_text(parser)?;
    if parser.parse_keyword(Keyword::WITHIN) {
        clauses.within = Some(parser.parse_expr()?);
    }
    if parser.parse_keyword(Keyword::DEFINE) {
        clauses.define = parser.parse_comma_separated(|parser| {
            let name = parser.parse_identifier()?;
            parser.expect_keyword_is(Keyword::AS)?;
            Ok((name, parser.parse_expr()?))
        })?;
    }
    Ok(clauses)
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
            return Ok(text);
        }
        text.push_str(&token.to_string());
        text.push(' ');
    }
}

/// Column of ORDER BY: the event time, ascending.
fn event_time(order: &[OrderByExpr]) -> Result<String> {
    if let [only] = order
        && only.options.asc != Some(false)
        && let Expr::Identifier(ident) = &only.expr
    {
        return Ok(identifier(ident));
    }
    Err(Error::unsupported("MATCH_RECOGNIZE in a step, other than ORDER BY the event time, ascending"))
}

/// Pattern that is parsed from its text.
struct PatternText {
    parts: Vec<char>,
    at: usize,
    variables: Vec<String>,
}

impl PatternText {
    fn new(text: &str) -> PatternText {
        PatternText { parts: text.chars().collect(), at: 0, variables: Vec::new() }
    }

    fn parse(mut self) -> Result<(Pattern, Vec<String>)> {
        let pattern = self.alternation()?;
        if let Some(other) = self.peek() {
            return Err(wrong(&format!("\"{other}\"")));
        }
        if pattern.matches_empty() {
            return Err(Error::unsupported("a PATTERN in a step that matches no rows at all"));
        }
        if pattern.repeats_empty() {
            return Err(Error::unsupported(
                "a PATTERN in a step with a quantifier of a part that matches no rows at all: (A?)* is A*",
            ));
        }
        Ok((pattern, self.variables))
    }

    /// Next character that is no space.
    fn peek(&mut self) -> Option<char> {
        while self.parts.get(self.at).is_some_and(|part| part.is_whitespace()) {
            self.at += 1;
        }
        self.parts.get(self.at).copied()
    }

    fn takes(&mut self, wanted: char) -> bool {
        let is_next = self.peek() == Some(wanted);
        self.at += usize::from(is_next);
        is_next
    }

    fn alternation(&mut self) -> Result<Pattern> {
        let mut parts = vec![self.sequence()?];
        while self.takes('|') {
            parts.push(self.sequence()?);
        }
        Ok(if parts.len() == 1 { parts.swap_remove(0) } else { Pattern::Alternation(parts) })
    }

    fn sequence(&mut self) -> Result<Pattern> {
        let mut parts = Vec::new();
        while self.peek().is_some_and(|next| next != '|' && next != ')') {
            parts.push(self.repetition()?);
        }
        match parts.len() {
            0 => Err(wrong("an empty part")),
            1 => Ok(parts.swap_remove(0)),
            _ => Ok(Pattern::Sequence(parts)),
        }
    }

    fn repetition(&mut self) -> Result<Pattern> {
        let of = if self.takes('(') {
            let inner = self.alternation()?;
            if !self.takes(')') {
                return Err(wrong("a parenthesis that is not closed"));
            }
            inner
        } else {
            Pattern::Variable(self.variable()?)
        };
        let Some((least, most)) = self.quantifier()? else { return Ok(of) };
        let is_reluctant = self.takes('?');
        Ok(Pattern::Repetition { of: Box::new(of), least, most, is_reluctant })
    }

    /// Least and greatest number of times.
    fn quantifier(&mut self) -> Result<Option<(u32, Option<u32>)>> {
        for (sign, times) in [('*', (0, None)), ('+', (1, None)), ('?', (0, Some(1)))] {
            if self.takes(sign) {
                return Ok(Some(times));
            }
        }
        if !self.takes('{') {
            return Ok(None);
        }
        let least = self.number()?;
        let most = if self.takes(',') { self.number()? } else { least };
        if !self.takes('}') || (least.is_none() && most.is_none()) {
            return Err(wrong("a quantifier other than ?, *, +, {n}, {n,}, {n,m} and {,m}"));
        }
        let least = least.unwrap_or(0);
        if most.is_some_and(|most| most < least || most == 0) {
            return Err(wrong(&format!("the quantifier {{{least},{}}}", most.unwrap_or_default())));
        }
        Ok(Some((least, most)))
    }

    fn number(&mut self) -> Result<Option<u32>> {
        let mut digits = String::new();
        while let Some(digit) = self.peek().filter(char::is_ascii_digit) {
            digits.push(digit);
            self.at += 1;
        }
        if digits.is_empty() {
            return Ok(None);
        }
        let number = digits.parse().ok().filter(|number| *number <= TIMES_MAX);
        number
            .map(Some)
            .ok_or_else(|| wrong(&format!("the number {digits} in a quantifier, at most {TIMES_MAX},")))
    }

    /// Number of the variable that is named next.
    fn variable(&mut self) -> Result<usize> {
        let is_quoted = self.takes('"');
        let is_part =
            |part: &char| if is_quoted { *part != '"' } else { part.is_alphanumeric() || *part == '_' };
        let rest = self.parts.get(self.at..).unwrap_or_default();
        let name: String = rest.iter().copied().take_while(is_part).collect();
        if name.is_empty() {
            let found = rest.first().map_or_else(|| "its end".to_owned(), |other| format!("\"{other}\""));
            return Err(wrong(&found));
        }
        self.at += name.chars().count() + usize::from(is_quoted);
        let name = if is_quoted { name } else { name.to_lowercase() };
        if let Some(known) = self.variables.iter().position(|known| *known == name) {
            return Ok(known);
        }
        if self.variables.len() == PATTERN_VARIABLES_MAX {
            return Err(wrong(&format!("more than {PATTERN_VARIABLES_MAX} variables")));
        }
        self.variables.push(name);
        Ok(self.variables.len() - 1)
    }
}

/// Refusal of a pattern.
fn wrong(found: &str) -> Error {
    Error::Syntax(format!(
        "syntax error: PATTERN with {found}: there are variables, sequences, |, parentheses, and quantifiers with or without ?"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_parsed() {
        let parse = |text: &str| PatternText::new(text).parse();
        let (pattern, variables) = parse("a (B | \"C d\"+?){2,} a?").unwrap();
        assert_eq!(variables, ["a", "b", "C d"]);
        let of = Pattern::Repetition {
            of: Box::new(Pattern::Alternation(vec![
                Pattern::Variable(1),
                Pattern::Repetition {
                    of: Box::new(Pattern::Variable(2)),
                    least: 1,
                    most: None,
                    is_reluctant: true,
                },
            ])),
            least: 2,
            most: None,
            is_reluctant: false,
        };
        let end = Pattern::Repetition {
            of: Box::new(Pattern::Variable(0)),
            least: 0,
            most: Some(1),
            is_reluctant: false,
        };
        assert_eq!(written(&pattern, &variables, false), "a (b | C d+?){2,} a?");
        assert_eq!(pattern, Pattern::Sequence(vec![Pattern::Variable(0), of, end]));
        for (text, expected) in [
            ("", "an empty part"),
            ("a | ", "an empty part"),
            ("(a", "not closed"),
            ("a)", "\")\""),
            ("a{}", "a quantifier other than"),
            ("a{3,2}", "the quantifier {3,2}"),
            ("a{20000}", "the number 20000"),
            ("^ a", "\"^\""),
            ("a*", "matches no rows at all"),
            ("(a?)* b", "(A?)* is A*"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
