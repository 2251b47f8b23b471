//! Parser over the words of a statement that DataFusion's parser does not know.

use crate::error::{Error, Result};
use crate::parser::names::{identifier, table_name};
use crate::parser::text::tokens::is_word;
use crate::schema_names::SCHEMA;
use datafusion::sql::sqlparser::ast::{Ident, ObjectName};
use datafusion::sql::sqlparser::tokenizer::Token;

/// Remaining tokens of a statement, without blanks and the semicolon.
#[derive(Clone)]
pub(crate) struct Words<'t>(pub(crate) &'t [&'t Token]);

impl Words<'_> {
    /// Takes a keyword, if it is next.
    pub(crate) fn word(&mut self, wanted: &str) -> bool {
        let found = self.0.first().is_some_and(|next| is_word(next, wanted));
        if found {
            self.skip();
        }
        found
    }

    pub(crate) fn expect(&mut self, wanted: &str) -> Result<()> {
        if self.word(wanted) { Ok(()) } else { Err(self.unexpected()) }
    }

    /// Takes several keywords, if all of them are next.
    pub(crate) fn phrase(&mut self, wanted: &[&str]) -> bool {
        let before = self.0;
        let found = wanted.iter().all(|word| self.word(word));
        if !found {
            self.0 = before;
        }
        found
    }

    /// Skips a token, if there is one.
    pub(crate) fn skip(&mut self) {
        self.0 = self.0.get(1..).unwrap_or_default();
    }

    /// Takes a comma, if it is next.
    pub(crate) fn comma(&mut self) -> bool {
        let found = self.0.first() == Some(&&Token::Comma);
        if found {
            self.skip();
        }
        found
    }

    /// Returns true if one of these keywords is behind the next token.
    pub(crate) fn is_followed_by(&self, words: &[&str]) -> bool {
        self.0.get(1).is_some_and(|second| words.iter().any(|word| is_word(second, word)))
    }

    pub(crate) fn unexpected(&self) -> Error {
        Error::Syntax(match self.0.first() {
            Some(token) => format!("syntax error at or near \"{token}\""),
            None => "syntax error at end of input".to_owned(),
        })
    }

    /// Checks that no token is left.
    pub(crate) fn end(&self) -> Result<()> {
        if self.0.is_empty() { Ok(()) } else { Err(self.unexpected()) }
    }

    /// Takes a name, possibly qualified.
    pub(crate) fn name(&mut self) -> Result<Vec<Ident>> {
        let mut parts = vec![self.ident()?];
        while let [Token::Period, rest @ ..] = self.0 {
            self.0 = rest;
            parts.push(self.ident()?);
        }
        Ok(parts)
    }

    /// Takes an unqualified name.
    pub(crate) fn ident(&mut self) -> Result<Ident> {
        let [Token::Word(word), rest @ ..] = self.0 else { return Err(self.unexpected()) };
        self.0 = rest;
        Ok(match word.quote_style {
            Some(quote) => Ident::with_quote(quote, &word.value),
            None => Ident::new(&word.value),
        })
    }

    /// Takes an unqualified name, as the catalog has it.
    pub(crate) fn folded(&mut self) -> Result<String> {
        Ok(identifier(&self.ident()?))
    }

    /// Takes the name of a relation, source, stream or topology, possibly behind its schema, as the catalog has it.
    pub(crate) fn relation(&mut self) -> Result<String> {
        let name = ObjectName::from(self.name()?);
        table_name(&name).map_err(|_| {
            let message =
                format!("{name}: tables, sources, streams and topologies are in schema {SCHEMA} alone");
            Error::coded("3F000", message)
        })
    }

    /// Takes a string.
    pub(crate) fn string(&mut self) -> Result<String> {
        let [Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text), rest @ ..] = self.0 else {
            return Err(self.unexpected());
        };
        self.0 = rest;
        Ok(text.clone())
    }

    /// Returns true if a number is next.
    pub(crate) fn is_number(&self) -> bool {
        matches!(self.0, [Token::Number(..) | Token::Minus | Token::Plus, ..])
    }

    pub(crate) fn number(&mut self) -> Result<i64> {
        let (sign, rest) = match self.0 {
            [Token::Minus, rest @ ..] => ("-", rest),
            [Token::Plus, rest @ ..] => ("", rest),
            rest => ("", rest),
        };
        let [Token::Number(digits, _), rest @ ..] = rest else { return Err(self.unexpected()) };
        self.0 = rest;
        number(sign, digits)
    }
}

/// Parses a number from its sign and digits.
pub(crate) fn number(sign: &str, digits: &str) -> Result<i64> {
    let text = format!("{sign}{digits}");
    text.parse().map_err(|_| {
        if digits.bytes().all(|byte| byte.is_ascii_digit()) {
            Error::coded("22003", format!("value \"{text}\" is out of range for type bigint"))
        } else {
            Error::Syntax(format!("syntax error at or near \"{text}\""))
        }
    })
}
