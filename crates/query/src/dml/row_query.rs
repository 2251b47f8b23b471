//! Expressions with subqueries over rows in memory: RETURNING, the SET and WHERE of DO UPDATE, WHEN of MERGE.
//!
//! The rows become relations of a query of their own, which is planned and run as any other:
//!
//! ```text
//!   SELECT t.row, e, … FROM rows.t AS t, rows.excluded AS excluded WHERE t.row = excluded.row
//! ```
//!
//! The query runs before the statement writes these rows, so that its subqueries read the state before the
//! statement.
//!
//! Memory: the rows, and the values computed from them.

use crate::dml::column_use::{is_of, reads_relation};
use crate::dml::expressions::{Item, Relations};
use crate::dml::source::{name_relation, quoted, template_select};
use crate::error::{Error, Result};
use crate::parser::statement::query_statement;
use crate::parser::statement::template;
use crate::planner::query;
use crate::schema_names::CATALOG;
use crate::session::core::SessionCore;
use datafusion::arrow::array::Int64Array;
use datafusion::arrow::compute::{concat_batches, sort_to_indices, take_record_batch};
use datafusion::arrow::datatypes::{DataType as ArrowType, Field, Schema as ArrowSchema, SchemaRef};
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::catalog::{
    CatalogProvider, CatalogProviderList, MemoryCatalogProvider, MemoryCatalogProviderList,
    MemorySchemaProvider, SchemaProvider,
};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::dataframe::DataFrame;
use datafusion::datasource::MemTable;
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::SessionContext;
use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Query, SelectItem};
use std::sync::Arc;

/// Catalog and schema of the rows.
const ROWS: &str = "$rows";
/// Column with the number of a row.
const ROW: &str = "$row";

/// Query over rows.
pub(crate) struct RowQuery {
    what: &'static str,
    query: Box<Query>,
    relations: Vec<(String, SchemaRef)>,
    /// Plan of the query without rows.
    pub(crate) plan: LogicalPlan,
    /// Names and types of its values.
    pub(crate) fields: SchemaRef,
}

impl RowQuery {
    /// Plans expressions over relations; `what` names their clause in errors.
    pub(crate) async fn new(
        session: &SessionCore,
        what: &'static str,
        relations: Relations<'_>,
        items: &[Item],
    ) -> Result<RowQuery> {
        let mut query = Box::new(query_over(relations.named, items)?);
        query.with = relations.with.cloned();
        let relations: Vec<(String, SchemaRef)> =
            relations.named.iter().map(|(name, schema)| ((*name).to_owned(), Arc::clone(schema))).collect();
        let none: Vec<RecordBatch> =
            relations.iter().map(|(_, schema)| RecordBatch::new_empty(Arc::clone(schema))).collect();
        let (_, plan) = planned(session, &query, &relations, &none).await?;
        refuse_more_rows(what, &plan)?;
        let planned = plan.schema().fields().iter().skip(1).zip(items);
        let fields = planned.map(|(field, item)| field.as_ref().clone().with_name(&item.name));
        let fields = Arc::new(ArrowSchema::new(fields.collect::<Vec<_>>()));
        Ok(RowQuery { what, query, relations, plan, fields })
    }

    /// Returns true if its expressions read columns of a relation, the number of the row apart.
    pub(crate) fn reads(&self, relation: &str) -> Result<bool> {
        // The first expression of the projection is the number.
        reads_relation(&self.plan, 1, &|column| is_of(column, relation) && column.name != ROW)
    }

    /// Computes the values of rows, in their order. The columns of the relations stand one behind the other.
    pub(crate) async fn run(&self, session: &SessionCore, rows: &RecordBatch) -> Result<RecordBatch> {
        if rows.num_rows() == 0 {
            return Ok(RecordBatch::new_empty(Arc::clone(&self.fields)));
        }
        let mut given = Vec::with_capacity(self.relations.len());
        let mut from = 0;
        for (_, schema) in &self.relations {
            let to = from + schema.fields().len();
            given.push(rows.project(&(from..to).collect::<Vec<_>>())?);
            from = to;
        }
        let (state, plan) = planned(session, &self.query, &self.relations, &given).await?;
        let batches = DataFrame::new(state, plan).collect().await?;
        let Some(first) = batches.first() else {
            return Err(Error::Internal(format!("{} of {} rows returned none", self.what, rows.num_rows())));
        };
        let computed = concat_batches(&first.schema(), &batches)?;
        let computed = take_record_batch(&computed, &sort_to_indices(computed.column(0), None, None)?)?;
        if computed.num_rows() != rows.num_rows() {
            let (asked, found) = (rows.num_rows(), computed.num_rows());
            return Err(Error::Internal(format!("{} of {asked} rows returned {found}", self.what)));
        }
        let names = self.fields.fields().iter();
        let fields = computed
            .schema()
            .fields()
            .iter()
            .skip(1)
            .zip(names)
            .map(|(field, named)| field.as_ref().clone().with_name(named.name()))
            .collect::<Vec<_>>();
        let options = RecordBatchOptions::new().with_row_count(Some(computed.num_rows()));
        let columns = computed.columns()[1..].to_vec();
        Ok(RecordBatch::try_new_with_options(Arc::new(ArrowSchema::new(fields)), columns, &options)?)
    }
}

/// Plans the query over these rows, in a session state that has them as tables.
async fn planned(
    session: &SessionCore,
    query: &Query,
    relations: &[(String, SchemaRef)],
    given: &[RecordBatch],
) -> Result<(SessionState, LogicalPlan)> {
    let schema = MemorySchemaProvider::new();
    for ((name, _), batch) in relations.iter().zip(given) {
        let numbered = numbered(batch)?;
        let table = MemTable::try_new(numbered.schema(), vec![vec![numbered]])?;
        schema.register_table(name.clone(), Arc::new(table))?;
    }
    let rows = MemoryCatalogProvider::new();
    rows.register_schema(ROWS, Arc::new(schema))?;
    let state = session.context.state();
    let catalogs = MemoryCatalogProviderList::new();
    if let Some(own) = state.catalog_list().catalog(CATALOG) {
        catalogs.register_catalog(CATALOG.to_owned(), own);
    }
    catalogs.register_catalog(ROWS.to_owned(), Arc::new(rows));
    let context = SessionContext::new_with_state(state);
    context.register_catalog_list(Arc::new(catalogs));
    let state = context.state();
    let statement = query_statement(Box::new(query.clone()));
    let plan = query::logical_plan(session, &state, statement).await?;
    Ok((state, plan))
}

/// Appends the numbers of the rows as a last column.
fn numbered(batch: &RecordBatch) -> Result<RecordBatch> {
    let mut fields: Vec<Field> = batch.schema().fields().iter().map(|field| field.as_ref().clone()).collect();
    fields.push(Field::new(ROW, ArrowType::Int64, false));
    let mut columns = batch.columns().to_vec();
    columns.push(Arc::new(Int64Array::from_iter_values(0..batch.num_rows() as i64)));
    Ok(RecordBatch::try_new(Arc::new(ArrowSchema::new(fields)), columns)?)
}

/// Syntax tree of the query.
fn query_over(relations: &[(&str, &SchemaRef)], items: &[Item]) -> Result<Query> {
    let mut query = template()?;
    let select = template_select(&mut query)?;
    let row_of = |name: &str| Expr::CompoundIdentifier(vec![quoted(name), quoted(ROW)]);
    let named = |expr: Expr, name: String| SelectItem::ExprWithAlias { expr, alias: quoted(&name) };
    let Some((first, _)) = relations.first() else {
        return Err(Error::Internal("a query over rows has no relation".into()));
    };
    // Their own names may be equal, or those of the columns below.
    let items = items.iter().enumerate().map(|(at, item)| named(item.expr.clone(), format!("$value{at}")));
    select.projection = [named(row_of(first), ROW.to_owned())].into_iter().chain(items).collect();
    let Some(any) = select.from.pop() else {
        return Err(Error::Internal("the query template has no table".into()));
    };
    for (name, _) in relations {
        let mut from = any.clone();
        name_relation(&mut from.relation, [ROWS, ROWS, name], quoted(name))?;
        select.from.push(from);
    }
    select.selection = relations[1..]
        .iter()
        .map(|(name, _)| Expr::BinaryOp {
            left: Box::new(row_of(first)),
            op: BinaryOperator::Eq,
            right: Box::new(row_of(name)),
        })
        .reduce(|left, right| Expr::BinaryOp {
            left: Box::new(left),
            op: BinaryOperator::And,
            right: Box::new(right),
        });
    Ok(query)
}

/// Refuses expressions that would change the number of rows.
fn refuse_more_rows(what: &str, plan: &LogicalPlan) -> Result<()> {
    let mut refused = None;
    plan.apply(|node| {
        refused = refused.or(match node {
            LogicalPlan::Aggregate(_) => Some("an aggregate function"),
            LogicalPlan::Window(_) => Some("a window function"),
            LogicalPlan::Unnest(_) => Some("a set-returning function"),
            _ => None,
        });
        Ok(TreeNodeRecursion::Continue)
    })?;
    match refused {
        Some(refused) => Err(Error::unsupported(format!("{refused} in {what}"))),
        None => Ok(()),
    }
}
