//! Statements on materialized views.
//!
//! ```text
//! CREATE MATERIALIZED VIEW [IF NOT EXISTS] name [(columns)] AS query      sqlparser's
//! DROP MATERIALIZED VIEW [IF EXISTS] name, ...                           sqlparser's
//! REFRESH MATERIALIZED VIEW name
//! ```

use crate::error::{Error, Result};
use crate::parser::text::tokens::{is_word, shown};
use datafusion::sql::sqlparser::ast::{CreateView, ObjectName};
use datafusion::sql::sqlparser::tokenizer::Token;

/// Parsed statement on materialized views.
#[derive(Debug, Clone)]
pub(crate) enum MaterializedStatement {
    Create(Box<CreateView>),
    Drop { if_exists: bool, names: Vec<ObjectName>, cascade: bool },
    Refresh(String),
}

impl MaterializedStatement {
    /// Command tag.
    pub(crate) fn verb(&self) -> &'static str {
        match self {
            MaterializedStatement::Create(_) => "CREATE MATERIALIZED VIEW",
            MaterializedStatement::Drop { .. } => "DROP MATERIALIZED VIEW",
            MaterializedStatement::Refresh(_) => "REFRESH MATERIALIZED VIEW",
        }
    }

    /// Parses REFRESH.
    pub(crate) fn refresh(words: &[&Token]) -> Result<MaterializedStatement> {
        match words {
            [_, materialized, view, Token::Word(name)]
                if is_word(materialized, "materialized") && is_word(view, "view") =>
            {
                let quoted = name.quote_style.is_some();
                let name = if quoted { name.value.clone() } else { name.value.to_lowercase() };
                Ok(MaterializedStatement::Refresh(name))
            }
            _ => Err(Error::Syntax(format!(
                "syntax error: {}: expected REFRESH MATERIALIZED VIEW name",
                shown(words)
            ))),
        }
    }
}
