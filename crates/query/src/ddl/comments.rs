//! COMMENT ON TABLE, COLUMN, VIEW, MATERIALIZED VIEW, INDEX and SEQUENCE.
//!
//! `IS NULL` and an empty string remove the comment. Clients read comments from `pg_description`, and by `obj_description` and
//! `col_description` ([`crate::catalog::rows::comments`]).

use crate::error::{Error, Result};
use crate::parser::names::{identifier, table_name};
use crate::session::commit::blocking;
use crate::session::core::SessionCore;
use crate::session::materialized::held_by;
use crate::session::result::StatementResult;
use datafusion::sql::sqlparser::ast::{CommentObject, ObjectName};
use entresol_tables::{CommentTarget, RelationKind};
use std::sync::Arc;

/// Sets or removes the comment on an object.
pub(crate) async fn comment(
    session: &SessionCore,
    of: CommentObject,
    name: &ObjectName,
    content: Option<&str>,
) -> Result<StatementResult> {
    let (relation, column) = match of {
        CommentObject::Column => column_of(name)?,
        _ => (table_name(name)?, None),
    };
    let kind = match of {
        CommentObject::Table | CommentObject::MaterializedView | CommentObject::Column => RelationKind::Table,
        CommentObject::View => RelationKind::View,
        CommentObject::Index => RelationKind::Index,
        CommentObject::Sequence => RelationKind::Sequence,
        other => return Err(Error::unsupported(format!("COMMENT ON {other}"))),
    };
    if matches!(of, CommentObject::Table | CommentObject::MaterializedView) {
        let is_held = held_by(session.catalog.table(&relation)?.as_ref()).is_some();
        let (wants_held, what) = match of {
            CommentObject::Table => (false, "table"),
            _ => (true, "materialized view"),
        };
        if is_held != wants_held {
            return Err(Error::coded("42809", format!("\"{relation}\" is not a {what}")));
        }
    }
    let catalog = Arc::clone(&session.catalog);
    let content = content.filter(|content| !content.is_empty()).map(str::to_owned);
    let set = move || {
        let target = match &column {
            Some(column) => CommentTarget::Column(&relation, column),
            None => CommentTarget::Relation(kind, &relation),
        };
        catalog.set_comment(&target, content.as_deref())
    };
    blocking(set).await??;
    Ok(StatementResult::Done { verb: "COMMENT" })
}

/// Relation and column of a qualified name.
fn column_of(name: &ObjectName) -> Result<(String, Option<String>)> {
    match name.0.as_slice() {
        [relation @ .., column] if !relation.is_empty() => {
            let column = column.as_ident().map(identifier);
            Ok((table_name(&ObjectName(relation.to_vec()))?, column))
        }
        _ => Err(Error::Syntax("syntax error: column name must be qualified".to_owned())),
    }
}
