//! Aggregate views that a commit changes by what it changed: counts and sums of exact numbers over one table.
//!
//! ```text
//!   changed rows, old and new ─▶ WHERE, expressions ─▶ groups, -1 and +1 ─▶ state of the groups ─▶ HAVING, expressions ─▶ rows
//!                                                                           (a table of its own)
//! ```
//! Filters and projections on both sides of the aggregate become conditions and expressions over the columns of the table and
//! over its own ([`composition`]); of few rows those that are columns take no arrays ([`expressions`]).
//!
//! The state of a group is the number of its rows, and of each aggregate the number of values and their sum, which a row
//! that goes takes back exactly. So a commit reads and writes as many rows of state and view as it touches groups, runs no
//! query, and does it on its own thread. Sums of floating point numbers cannot be taken back, and extremes neither: views
//! with such are computed by their query ([`super::maintenance`]).
//!
//! # Invariants
//! - At each snapshot the state table has a row for each group with rows, and one for the group of a view without GROUP BY.
//! - `row` is the number of the group's row in the view; NULL if HAVING keeps it out.
//! - Two transactions that change the same group write the same row of state: the first committer wins. Of a group without a row a
//!   guard is stored too: it may be one that goes before the view was filled, which changes no row of state.

mod aggregates;
mod changes;
mod composition;
mod expressions;
mod value_expression;

use self::aggregates::AdditiveAggregate;
use self::changes::Changes;
use self::composition::composed;
use self::expressions::{ExpressionPlanner, RowColumns, RowExpression, RowPredicate};
use crate::error::{Error, Result};
use crate::planner::scans::provider::EntresolTable;
use crate::postgres::time_zones::Zone;
use crate::session::materialized::{MaintainsRows, state_table};
use datafusion::arrow::row::{RowConverter, SortField};
use datafusion::datasource::source_as_provider;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{ExprSchemable, LogicalPlan, TableScan};
use entresol_tables::{Catalog, Column, DataType, Row, ScanRange, Schema, Table, TableDefinition, decimal};
use entresol_transactions::Transaction;
use std::fmt;
use std::sync::Arc;

/// Longest key of a group that is stored as it is; of a longer one a part and a digest.
const KEY_TEXT_MAX: usize = 640;
/// Rows of a table that are added together when a view is filled.
const FILL_ROWS: usize = 4096;

/// View that is maintained by what changed.
pub(crate) struct IncrementalView {
    catalog: Arc<Catalog>,
    view: String,
    table: String,
    /// Names of the columns of the table that it reads.
    columns: Vec<String>,
    read: RowColumns,
    /// WHERE.
    conditions: Vec<RowPredicate>,
    groups: Vec<RowExpression>,
    aggregates: Vec<AdditiveAggregate>,
    /// Columns of the aggregate, and their places in its rows.
    aggregated: RowColumns,
    places: Vec<usize>,
    /// HAVING.
    having: Vec<RowPredicate>,
    /// Columns of the view.
    results: Vec<RowExpression>,
    /// None of a view without GROUP BY.
    converter: Option<RowConverter>,
    zone: Zone,
}

impl fmt::Debug for IncrementalView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IncrementalView")
            .field("view", &self.view)
            .field("table", &self.table)
            .finish_non_exhaustive()
    }
}

impl IncrementalView {
    /// View that is maintained so, if the plan of its query is one of these. `plan` was analyzed.
    pub(crate) fn new(
        catalog: &Arc<Catalog>,
        view: &str,
        state: &SessionState,
        plan: &LogicalPlan,
    ) -> Option<IncrementalView> {
        let is_aggregate = |node: &LogicalPlan| matches!(node, LogicalPlan::Aggregate(_));
        let (LogicalPlan::Aggregate(aggregate), above) = composed(plan, &is_aggregate)? else { return None };
        let is_scan = |node: &LogicalPlan| matches!(node, LogicalPlan::TableScan(_));
        let (LogicalPlan::TableScan(scan), below) = composed(&aggregate.input, &is_scan)? else {
            return None;
        };
        let columns = columns_of(catalog, scan)?;

        let (input, table) = (aggregate.input.schema(), &scan.projected_schema);
        let mut planner = ExpressionPlanner::new(state, table)?;
        let conditions = planner.all_predicates(&below.conditions)?;
        let mut groups = Vec::with_capacity(aggregate.group_expr.len());
        for expr in &aggregate.group_expr {
            let expr = below.over(expr, input)?;
            expr.get_type(table).ok().filter(|of| !of.is_floating() && !of.is_nested())?;
            groups.push(planner.expression(&expr).ok()?);
        }
        let mut aggregates = Vec::with_capacity(aggregate.aggr_expr.len());
        let results = aggregate.schema.fields().iter().skip(groups.len());
        for (expr, result) in aggregate.aggr_expr.iter().zip(results) {
            let expr = below.over(expr, input)?;
            aggregates.push(AdditiveAggregate::new(&mut planner, &expr, table, result.data_type())?);
        }
        let read = planner.into_columns();

        let mut planner = ExpressionPlanner::new(state, &aggregate.schema)?;
        let having = planner.all_predicates(&above.conditions)?;
        let results = above.columns.iter().map(|expr| planner.expression(expr).ok());
        let results = results.collect::<Option<Vec<_>>>()?;
        let fields = aggregate.schema.fields()[..groups.len()].iter();
        let fields: Vec<SortField> = fields.map(|field| SortField::new(field.data_type().clone())).collect();
        let converter = if fields.is_empty() { None } else { Some(RowConverter::new(fields).ok()?) };
        Some(IncrementalView {
            catalog: Arc::clone(catalog),
            view: view.to_owned(),
            table: scan.table_name.table().to_owned(),
            columns,
            read,
            conditions,
            places: (0..groups.len() + aggregates.len()).collect(),
            groups,
            aggregates,
            aggregated: planner.into_columns(),
            having,
            results,
            converter,
            zone: Zone::utc(),
        })
    }

    /// Definition of the table of the state.
    pub(crate) fn state_definition(&self, owner: String) -> Result<TableDefinition> {
        let mut columns = vec![
            Column::new("group_key", DataType::Varchar).not_null(),
            Column::new("whole_key", DataType::Varchar),
            Column::new("row", DataType::BigInt),
            Column::new("rows", DataType::BigInt).not_null(),
        ];
        for number in 1..=self.aggregates.len() {
            columns.push(Column::new(format!("count_{number}"), DataType::BigInt).not_null());
            let sum = DataType::Decimal { precision: decimal::DECIMAL_PRECISION_MAX, scale: 0 };
            columns.push(Column::new(format!("sum_{number}"), sum).not_null());
        }
        let mut definition = TableDefinition::plain(Schema::new(columns, &["group_key"])?);
        definition.owner = Some(owner);
        Ok(definition)
    }

    fn state(&self) -> Result<Arc<Table>> {
        Ok(self.catalog.table(&state_table(&self.view))?)
    }

    /// Tells whether a column of the view is the same in all rows of a group, whatever changes in it.
    fn stays(&self, column: usize) -> bool {
        matches!(self.results.get(column), Some(RowExpression::Column(place)) if *place < self.groups.len())
    }

    fn overflows(&self) -> Error {
        Error::coded("22003", format!("a sum of materialized view {} is out of range", self.view))
    }
}

impl MaintainsRows for IncrementalView {
    fn maintain(&self, transaction: &Transaction) -> Result<()> {
        let table = self.catalog.table(&self.table)?;
        let changed = table.changed_rows(transaction)?;
        if changed.is_empty() {
            return Ok(());
        }
        let mut changes = Changes::new(self);
        let old = changed.iter().filter_map(|(old, _)| old.as_ref()).map(|row| (row, -1));
        let new = changed.iter().filter_map(|(_, new)| new.as_ref()).map(|row| (row, 1));
        changes.add(&table, &old.chain(new).collect::<Vec<_>>())?;
        changes.apply(transaction)
    }

    /// Stores the rows of the view and its state anew.
    fn fill(&self, transaction: &Transaction) -> Result<()> {
        let (held, state) = (self.catalog.table(&self.view)?, self.state()?);
        for table in [&held, &state] {
            let rows = table.scan(ScanRange::full()).rows(transaction)?;
            let keys: Vec<Row> = rows.iter().map(|row| table.key_of(row)).collect();
            table.delete_many(transaction, &keys)?;
        }
        let table = self.catalog.table(&self.table)?;
        let mut changes = Changes::new(self);
        if self.groups.is_empty() {
            changes.add_empty()?;
        }
        let mut cursor = table.scan(ScanRange::full());
        let mut rows: Vec<Row> = Vec::new();
        loop {
            let more = cursor.next_batch(transaction, |row| rows.push(row.to_row()))?;
            if rows.len() >= FILL_ROWS || !more {
                changes.add(&table, &rows.iter().map(|row| (row, 1)).collect::<Vec<_>>())?;
                rows.clear();
            }
            if !more {
                break;
            }
        }
        changes.apply(transaction)
    }
}

/// Names of the columns that a scan reads, if it is all of a table.
fn columns_of(catalog: &Catalog, scan: &TableScan) -> Option<Vec<String>> {
    source_as_provider(&scan.source).ok()?.downcast_ref::<EntresolTable>()?;
    if !scan.filters.is_empty() || scan.fetch.is_some() {
        return None;
    }
    let table = catalog.table(scan.table_name.table()).ok()?;
    let names = scan.projected_schema.fields().iter().map(|field| field.name().clone());
    let is_known = |name: &String| table.schema().columns().iter().any(|column| column.name == *name);
    names.map(|name| Some(name).filter(is_known)).collect()
}
