//! Values that RETURNING, ON CONFLICT and MERGE compute from rows: by expressions, or by a query if they have
//! subqueries. A statement with parameters, which is only prepared, has a query too: its plan has their types.

use crate::dml::expressions::{ComputedExpression, Item, Relations, Scope};
use crate::dml::row_query::RowQuery;
use crate::error::Result;
use crate::parser::names::has_subquery;
use crate::planner::parameters;
use crate::session::core::SessionCore;
use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::{Field, Schema as ArrowSchema, SchemaRef};
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::logical_expr::LogicalPlan;
use std::sync::Arc;

/// Expressions over the rows of relations.
pub(crate) enum Computation {
    Expressions(Vec<ComputedExpression>),
    Query(Box<RowQuery>),
}

impl Computation {
    /// Plans expressions over relations; `what` names their clause in errors.
    pub(crate) async fn new(
        session: &SessionCore,
        what: &'static str,
        relations: Relations<'_>,
        items: &[Item],
    ) -> Result<Computation> {
        let scope = Scope::new(session.context.state(), relations.named)?;
        if items.is_empty() {
            return Ok(Computation::Expressions(Vec::new()));
        }
        let mut plain = Vec::with_capacity(items.len());
        for item in items {
            if !has_subquery(&item.expr) && parameters::count(&item.expr)? == 0 {
                plain.push(item);
            }
        }
        let computed = scope.plan_items(what, plain.into_iter())?;
        if computed.len() == items.len() {
            return Ok(Computation::Expressions(computed));
        }
        let query = RowQuery::new(session, what, relations, items).await?;
        Ok(Computation::Query(Box::new(query)))
    }

    /// Returns true if it reads tables, and so has to run before they are written.
    pub(crate) fn reads_tables(&self) -> bool {
        self.plan().is_some()
    }

    /// Returns true if it reads columns of one of its relations.
    pub(crate) fn reads(&self, relation: &str) -> Result<bool> {
        match self {
            Computation::Expressions(computed) => {
                Ok(computed.iter().any(|one| one.relations.contains(relation)))
            }
            Computation::Query(query) => query.reads(relation),
        }
    }

    /// Plan of its query, if there is one.
    pub(crate) fn plan(&self) -> Option<&LogicalPlan> {
        match self {
            Computation::Expressions(_) => None,
            Computation::Query(query) => Some(&query.plan),
        }
    }

    /// Names and types of its values.
    pub(crate) fn fields(&self) -> SchemaRef {
        match self {
            Computation::Expressions(computed) => schema_of(computed.iter().map(|one| one.field.clone())),
            Computation::Query(query) => Arc::clone(&query.fields),
        }
    }

    /// Computes the values of rows, in their order. The columns of the relations stand one behind the other.
    pub(crate) async fn of(&self, session: &SessionCore, rows: &RecordBatch) -> Result<RecordBatch> {
        let computed = match self {
            Computation::Query(query) => return query.run(session, rows).await,
            Computation::Expressions(computed) => computed,
        };
        let arrays: Result<Vec<ArrayRef>> = computed.iter().map(|one| one.evaluate(rows)).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        Ok(RecordBatch::try_new_with_options(self.fields(), arrays?, &options)?)
    }
}

fn schema_of(fields: impl Iterator<Item = Field>) -> SchemaRef {
    Arc::new(ArrowSchema::new(fields.collect::<Vec<_>>()))
}
