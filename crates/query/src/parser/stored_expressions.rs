//! Expressions that the catalog has as SQL: defaults of columns, conditions of checks.

use crate::error::{Error, Result};
use crate::parser::depth::{self, NESTING_MAX};
use crate::parser::text::tokens::{BEGINNING, POSTGRESQL, tokenize};
use datafusion::sql::sqlparser::ast::Expr;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;

/// Parses an expression that was stored as SQL. One that cannot be parsed is a damaged catalog, or a bug.
pub(crate) fn stored_expression(sql: &str) -> Result<Expr> {
    let failed =
        |error: String| Error::Internal(format!("could not parse the stored expression {sql}: {error}"));
    let tokens = tokenize(sql, BEGINNING).map_err(|error| failed(error.to_string()))?;
    depth::check(&tokens)?;
    let mut parser =
        Parser::new(&POSTGRESQL).with_recursion_limit(NESTING_MAX).with_tokens_with_locations(tokens);
    let parsed = parser.parse_expr().and_then(|expr| {
        parser.expect_token(&Token::EOF)?;
        Ok(expr)
    });
    parsed.map_err(|error: ParserError| failed(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_is_all_of_the_text() {
        assert_eq!(stored_expression("a > 0 AND b").unwrap().to_string(), "a > 0 AND b");
        for wrong in ["", "a >", "a > 0; b", "a b", "'a", "\"\u{1}a\""] {
            let error = stored_expression(wrong).unwrap_err();
            assert!(matches!(error, Error::Internal(_)), "{wrong}: {error}");
            assert!(error.to_string().contains(wrong), "{error}");
        }
    }
}
