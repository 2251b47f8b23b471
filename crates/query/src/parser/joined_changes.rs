//! `UPDATE t SET … FROM s WHERE c` and `DELETE FROM t USING s WHERE c`, as the MERGE that has their effect:
//!
//! ```text
//! MERGE INTO t USING s ON c WHEN MATCHED THEN UPDATE SET … | DELETE
//! ```
//!
//! with two differences: FROM and USING may list several relations, and a row of t that joins with several rows is
//! changed once, with any of them.

use crate::error::Result;
use crate::parser::merge::{Action, Match, MergeStatement, WhenClause};
use crate::parser::names::{from_tables, not_one_table, refuse};
use datafusion::sql::sqlparser::ast::{
    Delete, Expr, SelectItem, TableFactor, TableWithJoins, Update, UpdateTableFromKind, Value as Literal,
};
use std::sync::LazyLock;

/// Condition of a statement without WHERE.
static ALWAYS: LazyLock<Expr> = LazyLock::new(|| Expr::value(Literal::Boolean(true)));

/// Refuses clauses that an UPDATE of PostgreSQL's does not have.
pub(crate) fn refuse_in_update(update: &Update) -> Result<()> {
    refuse(
        "UPDATE",
        &[
            (matches!(update.from, Some(UpdateTableFromKind::BeforeSet(_))), "FROM before SET"),
            (update.output.is_some(), "OUTPUT"),
            (update.or.is_some(), "OR"),
            (!update.order_by.is_empty(), "ORDER BY"),
            (update.limit.is_some(), "LIMIT"),
        ],
    )
}

/// Refuses clauses that a DELETE of PostgreSQL's does not have.
pub(crate) fn refuse_in_delete(delete: &Delete) -> Result<()> {
    refuse(
        "DELETE",
        &[
            (!delete.tables.is_empty(), "a table list"),
            (delete.output.is_some(), "OUTPUT"),
            (!delete.order_by.is_empty(), "ORDER BY"),
            (delete.limit.is_some(), "LIMIT"),
        ],
    )
}

impl<'s> MergeStatement<'s> {
    /// UPDATE with a FROM; none of one without.
    pub(crate) fn of_update(update: &'s Update) -> Result<Option<MergeStatement<'s>>> {
        let Some(UpdateTableFromKind::AfterSet(from)) = &update.from else { return Ok(None) };
        refuse_in_update(update)?;
        let target = only_table("UPDATE", std::slice::from_ref(&update.table))?;
        let action = Action::Update(&update.assignments);
        let (condition, returning) = (update.selection.as_ref(), update.returning.as_deref());
        Ok(joined("UPDATE", target, from, condition, action, returning))
    }

    /// DELETE with a USING; none of one without.
    pub(crate) fn of_delete(delete: &'s Delete) -> Result<Option<MergeStatement<'s>>> {
        let Some(from) = &delete.using else { return Ok(None) };
        refuse_in_delete(delete)?;
        let target = only_table("DELETE", from_tables(&delete.from))?;
        let (condition, returning) = (delete.selection.as_ref(), delete.returning.as_deref());
        Ok(joined("DELETE", target, from, condition, Action::Delete, returning))
    }
}

fn joined<'s>(
    verb: &'static str,
    target: &'s TableFactor,
    from: &'s [TableWithJoins],
    condition: Option<&'s Expr>,
    action: Action<'s>,
    returning: Option<&'s [SelectItem]>,
) -> Option<MergeStatement<'s>> {
    let source = &from.first()?.relation;
    let whens = vec![WhenClause { kind: Match::Matched, condition: None, action }];
    let on = condition.unwrap_or(&ALWAYS);
    Some(MergeStatement { verb, with: None, target, source, from, on, whens, returning })
}

/// Table that a statement changes.
fn only_table<'s>(verb: &str, tables: &'s [TableWithJoins]) -> Result<&'s TableFactor> {
    match tables {
        [TableWithJoins { relation, joins }] if joins.is_empty() => Ok(relation),
        _ => Err(not_one_table(verb)),
    }
}
