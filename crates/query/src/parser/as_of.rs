//! The point in time behind AS OF in BEGIN and SET TRANSACTION.

use datafusion::sql::parser::Statement as EngineStatement;
use datafusion::sql::sqlparser::ast::{Expr, SelectItem, SetExpr, Statement};

use crate::error::{Error, Result};
use crate::parser::split::{self, QueryPart};
use crate::parser::statement::query_of;

/// The query that computes the moment of a `BEGIN AS OF` or `SET TRANSACTION AS OF`, for those who ask what it reads;
/// `None` for all other statements.
pub fn moment_query(sql: &str) -> Result<Option<EngineStatement>> {
    let parts = split::split_statements(sql)?.unwrap_or_default();
    let moment = parts.iter().find_map(|part| match part {
        QueryPart::BeginAsOf(moment) | QueryPart::SetAsOf(moment) => Some(moment),
        _ => None,
    });
    moment.map(|moment| query_computing(moment)).transpose()
}

fn query_computing(moment: &str) -> Result<EngineStatement> {
    query_of(&format!("SELECT {moment}\n/* system_time */"))
}

/// The moment behind AS OF in a statement on transactions, from its text.
pub(crate) fn parse_as_of(sql: &str) -> Result<Expr> {
    let parsed = query_computing(sql)?;
    let only = || Error::Syntax(format!("syntax error: AS OF {sql}: expected a single point in time"));
    let EngineStatement::Statement(statement) = parsed else { return Err(only()) };
    let Statement::Query(query) = *statement else { return Err(only()) };
    let SetExpr::Select(select) = *query.body else { return Err(only()) };
    match <[SelectItem; 1]>::try_from(select.projection) {
        Ok([SelectItem::UnnamedExpr(moment)]) if select.from.is_empty() && select.selection.is_none() => {
            Ok(moment)
        }
        _ => Err(only()),
    }
}
