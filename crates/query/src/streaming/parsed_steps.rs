//! Parsing of a step: its query or statement, and the clauses around it that only streams have.

use crate::error::{Error, Result};
use crate::parser::own::streaming::{options_of, parenthesised, with_parser};
use crate::parser::own::words::Words;
use crate::parser::patterns::RowPatterns;
use crate::parser::statement::{self, statement_of};
use crate::parser::text::tokens::is_word;
use crate::streaming::late::{LateClauses, take_clauses};
use crate::streaming::names::{Reference, relations_in, take_triggers};
use crate::streaming::options::StreamOptions;
use crate::streaming::retention::StateTtl;
use datafusion::sql::parser::Statement as DFStatement;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

/// Text of a step, and what stands around its query.
pub(crate) struct StepText {
    pub(crate) statement: DFStatement,
    /// Text of the condition of an ABORT WHEN, of which the statement is a query.
    pub(crate) condition: Option<String>,
    /// Table behind INTO of an ABORT WHEN.
    pub(crate) into: Option<String>,
    pub(crate) stream: Option<String>,
    pub(crate) state_table: Option<String>,
    pub(crate) state_ttl: Option<StateTtl>,
    pub(crate) late: LateClauses,
    pub(crate) patterns: RowPatterns,
}

/// Label of a step: its number among those of the topology, its verb, and the stream or table of it.
pub(crate) fn numbered_label(number: usize, tokens: &[TokenWithSpan]) -> String {
    let verb = tokens.iter().take(2).map(|token| token.token.to_string().to_uppercase());
    let verb = verb.collect::<Vec<_>>().join(" ");
    let of =
        written_table(tokens).or_else(|| names_of(tokens).0).map_or_else(String::new, |of| format!(" {of}"));
    format!("step {number} ({verb}{of})")
}

/// Table that a step writes: the name behind INSERT INTO, MERGE INTO or DELETE FROM.
pub(crate) fn written_table(tokens: &[TokenWithSpan]) -> Option<String> {
    let [verb, into, rest @ ..] = tokens else { return None };
    let begins = |words: [&str; 2]| is_word(&verb.token, words[0]) && is_word(&into.token, words[1]);
    let writes = begins(["insert", "into"]) || begins(["merge", "into"]) || begins(["delete", "from"]);
    let [first, second, third, ..] = rest else { return None };
    let name = if second.token == Token::Period { third } else { first };
    match &name.token {
        Token::Word(word) if !writes || word.value.is_empty() => None,
        Token::Word(word) if word.quote_style.is_some() => Some(word.value.clone()),
        Token::Word(word) => Some(word.value.to_lowercase()),
        _ => None,
    }
}

/// Parses a step: its query or statement, without the clauses that only streams have.
pub(crate) fn parse_step(mut tokens: Vec<TokenWithSpan>) -> Result<StepText> {
    take_triggers(&mut tokens);
    let patterns = RowPatterns::take(&mut tokens)?;
    let late = take_clauses(&mut tokens)?;
    let is = |at: usize, word: &str| tokens.get(at).is_some_and(|token| is_word(&token.token, word));
    if is(0, "abort") {
        return parse_condition(tokens);
    }
    if !(is(0, "create") && is(1, "stream")) {
        let statement = statement_of(tokens)?;
        return Ok(StepText {
            statement,
            condition: None,
            into: None,
            stream: None,
            state_table: None,
            state_ttl: None,
            late,
            patterns,
        });
    }
    let all: Vec<&Token> = tokens.iter().map(|token| &token.token).collect();
    let mut words = Words(&all[2..]);
    let name = words.relation()?;
    let mut rest = &tokens[tokens.len() - words.0.len()..];
    let (mut state_table, mut state_ttl) = (None, None);
    if rest.first().is_some_and(|token| is_word(&token.token, "with")) {
        let (body, behind) = parenthesised(&rest[1..])?;
        let mut options = StreamOptions::new(format!("stream \"{name}\""), &options_of(body)?);
        state_table = options.take("state_table");
        state_ttl = StateTtl::take(&mut options)?;
        options.end()?;
        rest = behind;
    }
    match rest {
        [as_word, query @ ..] if is_word(&as_word.token, "as") => {
            let statement = statement_of(query.to_vec())?;
            Ok(StepText {
                statement,
                condition: None,
                into: None,
                stream: Some(name),
                state_table,
                state_ttl,
                late,
                patterns,
            })
        }
        _ => Err(Error::Syntax(format!("syntax error: CREATE STREAM {name}: expected AS query"))),
    }
}

/// Parses `ABORT WHEN condition [INTO table]` as a query of the condition.
fn parse_condition(tokens: Vec<TokenWithSpan>) -> Result<StepText> {
    let wrong = || Error::Syntax("syntax error: expected ABORT WHEN condition [INTO table]".to_owned());
    let [abort, when, condition @ ..] = tokens.as_slice() else { return Err(wrong()) };
    let (condition, into) = match condition {
        [condition @ .., word, table] if is_word(&word.token, "into") => {
            (condition, Some(Words(&[&table.token]).relation()?))
        }
        [condition @ .., word, schema, dot, table]
            if is_word(&word.token, "into") && dot.token == Token::Period =>
        {
            (condition, Some(Words(&[&schema.token, &dot.token, &table.token]).relation()?))
        }
        condition => (condition, None),
    };
    if !is_word(&when.token, "when") || condition.is_empty() {
        return Err(wrong());
    }
    with_parser(condition, |parser| parser.parse_expr())?;
    let select = TokenWithSpan { token: Token::make_keyword("SELECT"), span: abort.span };
    let query: Vec<TokenWithSpan> = std::iter::once(select).chain(condition.iter().cloned()).collect();
    Ok(StepText {
        statement: statement_of(query)?,
        condition: Some(format!("ABORT WHEN {}", written(condition))),
        into,
        stream: None,
        state_table: None,
        state_ttl: None,
        late: LateClauses::default(),
        patterns: RowPatterns::default(),
    })
}

/// Text of tokens as it was written: with blanks where there were some, and without comments.
fn written(tokens: &[TokenWithSpan]) -> String {
    let mut text = String::new();
    let mut end = None;
    for token in tokens {
        if end.is_some_and(|end| end != token.span.start) {
            text.push(' ');
        }
        text.push_str(&token.token.to_string());
        end = Some(token.span.end);
    }
    text
}

/// Relations that a step names, and the stream that it creates. Nothing is known of a step that cannot be parsed.
pub(crate) fn names_of(tokens: &[TokenWithSpan]) -> (Option<String>, Vec<String>) {
    let mut names: Vec<String> = written_table(tokens).into_iter().collect();
    let Ok(StepText { mut statement, into, stream, late, .. }) = parse_step(tokens.to_vec()) else {
        return (None, names);
    };
    names.extend(into.into_iter().chain(late.table));
    names.extend(references_in(&mut statement).iter().map(|reference| reference.name().to_owned()));
    (stream, names)
}

/// Relations that a step reads; an error if it cannot be parsed.
pub(crate) fn references_of(tokens: &[TokenWithSpan]) -> Result<Vec<Reference>> {
    Ok(references_in(&mut parse_step(tokens.to_vec())?.statement))
}

fn references_in(statement: &mut DFStatement) -> Vec<Reference> {
    let resolved = statement::inner_mut(statement).map(relations_in);
    resolved.and_then(Result::ok).unwrap_or_default().into_values().collect()
}
