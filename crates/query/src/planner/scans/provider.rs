//! Table provider: a table for DataFusion's planner.
//!
//! - A scan is bound to the transaction that is current when it is planned, see [`Current`].
//! - Comparisons of columns of the key or of an index with literals become the scan's access
//!   ([`crate::planner::scans::access`]); what the access does exactly is not filtered again.
//! - The hidden key is not a column, except in providers made for UPDATE and DELETE.

use crate::planner::scans::access::choice::{Choice, ColumnChoice, chosen_iterator, is_by_columns};
use crate::planner::scans::access::columns::{ColumnAnalysis, column_filters};
use crate::planner::scans::access::known::FilterColumns;
use crate::planner::scans::access::{Analysis, Coverage, choose};
use crate::planner::scans::column_scan::EntresolColumnScan;
use crate::planner::scans::scan::EntresolScan;
use crate::planner::scans::statistics::selectivity;
use crate::postgres::time_zones::UTC;
use crate::postgres::types::nullable;
use crate::postgres::types::{arrow_schema, visible_schema};
use crate::session::current::Current;
use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::common::{Constraint, Constraints, DFSchema, Result as DFResult, ScalarValue};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, LogicalPlan, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::FilterExecBuilder;
use entresol_tables::workload::RecordedScan;
use entresol_tables::{Catalog, Index, Table};
use entresol_transactions::Transaction;
use parking_lot::Mutex;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Table of the catalog for the planner.
#[derive(Debug)]
pub(crate) struct EntresolTable {
    catalog: Arc<Catalog>,
    current: Arc<Current>,
    table: Arc<Table>,
    schema: SchemaRef,
    constraints: Option<Constraints>,
    /// Filters that the optimizer offered last, those that it applies itself among them: for the recorded workload.
    offered: Mutex<Vec<Expr>>,
}

impl EntresolTable {
    /// Provider of a table; with its hidden key as a last column if `hidden_key`.
    pub(crate) fn new(
        catalog: Arc<Catalog>,
        current: Arc<Current>,
        table: Arc<Table>,
        hidden_key: bool,
        zone: &str,
    ) -> EntresolTable {
        let schema = if hidden_key {
            arrow_schema(table.schema().columns(), zone)
        } else {
            visible_schema(table.schema(), zone)
        };
        if current.is_past() {
            // Rules may be younger than rows; the key is not.
            let schema = nullable(&schema, table.schema().key());
            return EntresolTable {
                catalog,
                current,
                table,
                schema,
                constraints: None,
                offered: Mutex::default(),
            };
        }
        let has_key = hidden_key || !table.schema().hidden_key();
        let key = has_key.then(|| Constraint::PrimaryKey(table.schema().key().to_vec()));
        // An index that is being built, or younger than an open snapshot, implies nothing about the rows that
        // are read.
        let holds = |index: &Index| {
            index.definition().unique && catalog.context().is_seen_by_all(index.readable_from())
        };
        let unique = table.indexes().iter().filter(|index| holds(index));
        let unique = unique.map(|index| Constraint::Unique(index.definition().columns.clone()));
        let constraints: Vec<Constraint> = key.into_iter().chain(unique).collect();
        let constraints = (!constraints.is_empty()).then(|| Constraints::new_unverified(constraints));
        EntresolTable { catalog, current, table, schema, constraints, offered: Mutex::default() }
    }
}

/// Binds the tables of a plan to a transaction.
pub(crate) fn pinned(plan: LogicalPlan, transaction: &Arc<Transaction>) -> DFResult<LogicalPlan> {
    let pinned = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::TableScan(mut scan) => {
            let provider = source_as_provider(&scan.source)?;
            let Some(table) = provider.downcast_ref::<EntresolTable>() else {
                return Ok(Transformed::no(LogicalPlan::TableScan(scan)));
            };
            scan.source = provider_as_source(Arc::new(table.pinned(transaction)));
            Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
        }
        other => Ok(Transformed::no(other)),
    });
    pinned.data()
}

impl EntresolTable {
    /// Table behind it.
    pub(crate) fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// The same provider, with TIMESTAMPTZ in UTC.
    pub(crate) fn in_utc(&self) -> EntresolTable {
        let (catalog, current) = (Arc::clone(&self.catalog), Arc::clone(&self.current));
        EntresolTable::new(catalog, current, Arc::clone(&self.table), false, UTC)
    }

    /// The same provider, bound to this transaction.
    pub(crate) fn pinned(&self, transaction: &Arc<Transaction>) -> EntresolTable {
        let current = Current::default();
        current.set(Some(Arc::clone(transaction)));
        EntresolTable {
            catalog: Arc::clone(&self.catalog),
            current: Arc::new(current),
            table: Arc::clone(&self.table),
            schema: Arc::clone(&self.schema),
            constraints: self.constraints.clone(),
            offered: Mutex::default(),
        }
    }

    /// The same provider, bound to this transaction, with the definition that its table has now, if that has the same columns
    /// and perhaps some more behind them: indexes come and go while a plan lives.
    pub(crate) fn pinned_now(&self, transaction: &Arc<Transaction>) -> EntresolTable {
        let pinned = self.pinned(transaction);
        let columns = self.table.schema().visible_columns();
        let fits = |now: &Arc<Table>| {
            !Arc::ptr_eq(now, &self.table) && now.schema().visible_columns().starts_with(columns)
        };
        match self.table.current().filter(fits) {
            Some(table) => EntresolTable { table, constraints: None, ..pinned },
            None => pinned,
        }
    }

    /// Filters with the values that are assumed of their parameters.
    fn known<'f>(
        &self,
        filters: impl Iterator<Item = &'f Expr>,
        assumed: Option<&[ScalarValue]>,
    ) -> DFResult<Vec<Cow<'f, Expr>>> {
        let Some(values) = assumed else { return Ok(filters.map(Cow::Borrowed).collect()) };
        let columns = FilterColumns::new(&self.schema)?;
        filters.map(|filter| Ok(Cow::Owned(columns.with_values(filter, values)?))).collect()
    }

    /// Scan of the table whose runs are recorded; none in time travel, which reads rows of another time. Its
    /// conditions are all that the optimizer knows, if those of this scan are among them: a query that reads the
    /// table twice may have offered others for its other scan.
    fn recorded(
        &self,
        transaction: &Transaction,
        (filters, assumed): (&[Expr], Option<&[ScalarValue]>),
        projection: &[usize],
    ) -> DFResult<Option<Arc<RecordedScan>>> {
        if transaction.as_of().is_some() {
            return Ok(None);
        }
        let offered = self.offered.lock().clone();
        let is_of_this = filters.iter().all(|filter| offered.contains(filter));
        let all = if is_of_this { &offered[..] } else { filters };
        let known = self.known(all.iter(), assumed)?;
        let conditions = column_filters(self.table.schema(), known.iter().map(AsRef::as_ref)).filters;
        let visible = self.table.schema().visible_columns().len();
        // Columns of conditions that the optimizer applies are not in the projection.
        let read = known.iter().fold(projection.to_vec(), |read, filter| self.with_columns_of(filter, &read));
        let columns: Vec<usize> = read.into_iter().filter(|column| *column < visible).collect();
        Ok(Some(Arc::new(self.table.workload().scan(&conditions, &columns))))
    }

    /// Projected columns, and behind them the further ones that a filter needs.
    fn with_columns_of(&self, filter: &Expr, projection: &[usize]) -> Vec<usize> {
        let mut columns = projection.to_vec();
        let needed =
            filter.column_refs().into_iter().filter_map(|column| self.schema.index_of(&column.name).ok());
        let needed: BTreeSet<usize> = needed.filter(|column| !projection.contains(column)).collect();
        columns.extend(needed);
        columns
    }
}

/// Applies a filter to a scan and returns its first `columns`.
///
/// DataFusion applies again the filters reported as inexact, but drops those that were exact when it asked;
/// and it may have rewritten them since into conditions that the access no longer covers.
fn filtered(
    state: &dyn Session,
    scan: Arc<dyn ExecutionPlan>,
    (filter, selectivity): (&Expr, Option<u8>),
    columns: usize,
    limit: Option<usize>,
) -> DFResult<Arc<dyn ExecutionPlan>> {
    let schema = DFSchema::try_from(scan.schema())?;
    let predicate = state.create_physical_expr(filter.clone(), &schema)?;
    let projection = (columns < schema.fields().len()).then(|| (0..columns).collect());
    let filter = FilterExecBuilder::new(predicate, scan).apply_projection(projection)?.with_fetch(limit);
    let filter = match selectivity {
        Some(percentage) => filter.with_default_selectivity(percentage),
        None => filter,
    };
    Ok(Arc::new(filter.build()?))
}

#[async_trait]
impl TableProvider for EntresolTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn constraints(&self) -> Option<&Constraints> {
        self.constraints.as_ref()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> DFResult<Arc<dyn ExecutionPlan>> {
        let projection = match projection {
            Some(columns) => columns.clone(),
            None => (0..self.schema.fields().len()).collect(),
        };
        let transaction = self.current.get(&self.catalog)?;
        let assumed = self.current.assumed();
        let known = self.known(filters.iter(), assumed.as_deref())?;
        let analysis = choose(&self.table, &transaction, known.iter().map(AsRef::as_ref));
        let choice = match &assumed {
            Some(_) => Choice::new(&self.table, FilterColumns::new(&self.schema)?, filters, &analysis),
            None => None,
        };
        let Analysis { access, coverage } = analysis;
        let table = Arc::clone(&self.table);
        let conditions = column_filters(table.schema(), known.iter().map(AsRef::as_ref));
        let recorded = self.recorded(&transaction, (filters, assumed.as_deref()), &projection)?;
        let iterator = chosen_iterator(&table, &transaction, &access, &conditions.filters)?;
        let is_by_places = iterator.is_some_and(|iterator| iterator.is_by_places());
        if is_by_columns(&table, &access, &transaction)? && !is_by_places {
            let ColumnAnalysis { filters: conditions, coverage } = conditions;
            let choice = match &assumed {
                Some(_) => {
                    let columns = FilterColumns::new(&self.schema)?;
                    Some(Arc::new(ColumnChoice::new(columns, filters, &coverage)))
                }
                None => None,
            };
            let rest = filters.iter().zip(coverage).filter(|(_, coverage)| *coverage != Coverage::Exact);
            let scan = |projection: Vec<usize>, limit| -> DFResult<Arc<dyn ExecutionPlan>> {
                let schema = Arc::new(self.schema.project(&projection)?);
                let (table, transaction) = (Arc::clone(&table), Arc::clone(&transaction));
                let scan = EntresolColumnScan::new(
                    table,
                    schema,
                    projection,
                    conditions.clone(),
                    limit,
                    transaction,
                );
                Ok(Arc::new(scan.chosen(iterator, choice.clone()).recorded(recorded.clone())))
            };
            return match conjunction(rest.map(|(filter, _)| filter.clone())) {
                None => Ok(scan(projection, limit)?),
                Some(rest) => {
                    let wide = self.with_columns_of(&rest, &projection);
                    filtered(state, scan(wide, None)?, (&rest, None), projection.len(), limit)
                }
            };
        }
        let scan = |schema, projection, access, limit, transaction| {
            let scan =
                EntresolScan::new(Arc::clone(&self.table), schema, projection, access, limit, transaction);
            let scan = scan.read_by(iterator).recorded(recorded.clone());
            match choice {
                Some(choice) => scan.chosen(choice),
                None => scan,
            }
        };
        // Those that the access covers in part are in its estimate.
        let unknown = known.iter().zip(&coverage).filter(|(_, coverage)| **coverage == Coverage::None);
        let percentage = selectivity(&table, unknown.map(|(filter, _)| filter.as_ref()));
        let rest = filters.iter().zip(coverage).filter(|(_, coverage)| *coverage != Coverage::Exact);
        match conjunction(rest.map(|(filter, _)| filter.clone())) {
            None => {
                let schema = Arc::new(self.schema.project(&projection)?);
                Ok(Arc::new(scan(schema, projection, access, limit, transaction)))
            }
            Some(rest) => {
                let wide = self.with_columns_of(&rest, &projection);
                let schema = Arc::new(self.schema.project(&wide)?);
                let scan = scan(schema, wide, access, None, transaction);
                filtered(state, Arc::new(scan), (&rest, percentage), projection.len(), limit)
            }
        }
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> DFResult<Vec<TableProviderFilterPushDown>> {
        let transaction = self.current.get(&self.catalog)?;
        *self.offered.lock() = filters.iter().map(|filter| (*filter).clone()).collect();
        let known = self.known(filters.iter().copied(), self.current.assumed().as_deref())?;
        let filters: Vec<&Expr> = known.iter().map(AsRef::as_ref).collect();
        let analysis = choose(&self.table, &transaction, filters.iter().copied());
        let is_by_columns = is_by_columns(&self.table, &analysis.access, &transaction)?;
        let coverage = if is_by_columns {
            column_filters(self.table.schema(), filters.iter().copied()).coverage
        } else {
            analysis.coverage
        };
        // The filter over a scan is its own where statistics say what it leaves.
        let is_estimated =
            |filter: &Expr| !is_by_columns && selectivity(&self.table, std::iter::once(filter)).is_some();
        let answers = coverage.into_iter().zip(filters).map(|(coverage, filter)| match coverage {
            Coverage::None if is_estimated(filter) => TableProviderFilterPushDown::Exact,
            Coverage::None => TableProviderFilterPushDown::Unsupported,
            Coverage::Partial => TableProviderFilterPushDown::Inexact,
            Coverage::Exact => TableProviderFilterPushDown::Exact,
        });
        Ok(answers.collect())
    }
}
