//! Parser over the words of a statement that DataFusion's parser does not know.

use datafusion::sql::sqlparser::ast::Ident;
use datafusion::sql::sqlparser::tokenizer::Token;

use crate::error::{Error, Result};

/// Remaining tokens of a statement, without blanks and the semicolon.
pub(crate) struct Words<'t>(pub(crate) &'t [&'t Token]);

impl Words<'_> {
    /// Takes a keyword, if it is next.
    pub(crate) fn word(&mut self, wanted: &str) -> bool {
        let found = matches!(self.0, [Token::Word(word), ..] if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(wanted));
        if found {
            self.0 = &self.0[1..];
        }
        found
    }

    pub(crate) fn expect(&mut self, wanted: &str) -> Result<()> {
        if self.word(wanted) { Ok(()) } else { Err(self.unexpected()) }
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
            // The tokenizer was told to leave quotes as they are.
            Some(quote) => Ident::with_quote(quote, word.value.replace("\"\"", "\"")),
            None => Ident::new(&word.value),
        })
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
    text.parse().map_err(|_| match digits.bytes().all(|byte| byte.is_ascii_digit()) {
        true => Error::coded("22003", format!("value \"{text}\" is out of range for type bigint")),
        false => Error::Syntax(format!("syntax error at or near \"{text}\"")),
    })
}

/// Returns true if query text has these letters anywhere, which are in lower case.
pub(crate) fn has_word(sql: &str, word: &str) -> bool {
    sql.as_bytes().windows(word.len()).any(|part| part.eq_ignore_ascii_case(word.as_bytes()))
}
