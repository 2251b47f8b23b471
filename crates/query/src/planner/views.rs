//! Views in the planner: their query text is planned when they are used, in the statement's transaction.
//!
//! ```text
//!   FROM v ─▶ schemas ─▶ Views::relation ─▶ plan of v's text ─▶ named as v's columns ─▶ inlined into the query
//!                                              │ FROM t
//!                                              ▼
//!                                           Scope: t, with the columns that it had when v was made
//! ```
//!
//! - A view is stored as query text. Names in it are resolved as in any statement; `*` does not grow, because
//!   the scope hides columns added to relations since.
//! - Nothing is cached: a view is planned again by each statement, as tables are looked up again. Prepared
//!   statements are planned again when the catalog changes.
//! - Views may be over views, [`VIEW_DEPTH_MAX`] deep.
//! - A sequence is a relation of one row: `last_value`, `log_cnt`, `is_called`.
//!
//! Cost: parsing and planning of the text for each use. Memory: the plan, which becomes part of the
//! statement's.

use crate::error::{Error, Result, external};
use crate::parser::statement::query_of;
use crate::planner::from_names;
use crate::planner::join_using::merged;
use crate::planner::relation_aliases;
use crate::planner::relation_rows;
use crate::planner::sampling;
use crate::planner::translation;
use crate::planner::windows;
use crate::postgres::number_types::typed;
use crate::postgres::numbers;
use crate::schema_names::{CATALOG, OWNED_SCHEMA, SCHEMA};
use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, BooleanArray, Int64Array};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::{
    CatalogProvider, CatalogProviderList, MemoryCatalogProviderList, SchemaProvider, TableProvider,
};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Result as DFResult, TableReference};
use datafusion::datasource::{MemTable, ViewTable, provider_as_source};
use datafusion::error::DataFusionError;
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, TableType};
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::Statement as DFStatement;
use entresol_tables::{Catalog, ReadColumn, RelationKind, View, ViewRead};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Weak};

/// Maximum nesting of views.
pub const VIEW_DEPTH_MAX: usize = 32;

/// Planner of a session's views.
#[derive(Clone)]
pub(crate) struct Views {
    pub(super) catalog: Arc<Catalog>,
    /// State of the session's context, which owns this.
    pub(super) state: Weak<RwLock<SessionState>>,
}

impl fmt::Debug for Views {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Views").finish_non_exhaustive()
    }
}

impl Views {
    /// Creates the planner for the views of a context.
    pub(crate) fn new(catalog: &Arc<Catalog>, context: &SessionContext) -> Views {
        Views { catalog: Arc::clone(catalog), state: context.state_weak_ref() }
    }

    /// The names of the views.
    pub(crate) fn names(&self) -> Vec<String> {
        self.catalog.views().iter().map(|view| view.name().to_owned()).collect()
    }

    /// Returns true if a name is a view's.
    pub(crate) fn is_view(&self, name: &str) -> bool {
        self.catalog.relation_kind(name) == Some(RelationKind::View)
    }
}

/// Puts a query text into the words of DataFusion.
pub(super) fn rewrite(catalog: &Arc<Catalog>, statement: &mut DFStatement) -> Result<()> {
    relation_aliases::rename(catalog, statement);
    sampling::resolve(catalog, statement)?;
    windows::resolve(catalog, statement)?;
    translation::translate(statement);
    numbers::type_exponents(statement);
    Ok(())
}

/// Error for planning in a closed session.
pub(super) fn closed() -> DataFusionError {
    external(Error::Internal("the session of a view is closed".into()))
}

pub(super) async fn relation(
    catalog: &Arc<Catalog>,
    state: &Arc<SessionState>,
    name: &str,
    depth: usize,
) -> Result<Option<Arc<dyn TableProvider>>> {
    match catalog.relation_kind(name) {
        Some(RelationKind::View) => {
            let view = catalog.view(name)?;
            let plan = planned(catalog, state, &view, depth).await?;
            let query = view.definition().query.clone();
            Ok(Some(Arc::new(ViewTable::new(plan, Some(query)))))
        }
        Some(RelationKind::Sequence) => Ok(Some(sequence(catalog, name)?)),
        _ => Ok(None),
    }
}

/// Single row of a sequence, as of now.
fn sequence(catalog: &Catalog, name: &str) -> Result<Arc<dyn TableProvider>> {
    let status = catalog.sequence(name)?.status();
    let ready = i64::try_from(status.ready).unwrap_or(i64::MAX);
    let columns: [(&str, ArrayRef); 3] = [
        ("last_value", Arc::new(Int64Array::from(vec![status.position.last]))),
        ("log_cnt", Arc::new(Int64Array::from(vec![ready]))),
        ("is_called", Arc::new(BooleanArray::from(vec![status.position.called]))),
    ];
    let batch = RecordBatch::try_from_iter(columns)?;
    Ok(Arc::new(MemTable::try_new(batch.schema(), vec![vec![batch]])?))
}

/// Plan of a view, with its own column names.
pub(crate) async fn planned(
    catalog: &Arc<Catalog>,
    state: &Arc<SessionState>,
    view: &View,
    depth: usize,
) -> Result<LogicalPlan> {
    if depth >= VIEW_DEPTH_MAX {
        let message =
            format!("view {} is nested under {depth} others, the maximum is {VIEW_DEPTH_MAX}", view.name());
        return Err(Error::coded("54001", message));
    }
    let definition = view.definition();
    let (plan, _) = scoped(catalog, state, &definition.query, Some(&definition.reads), depth).await?;
    named(plan, &definition.columns)
}

/// Renames the columns of a plan.
pub(crate) fn named(plan: LogicalPlan, names: &[String]) -> Result<LogicalPlan> {
    let columns = plan.schema().columns();
    if columns.len() != names.len() {
        return Err(Error::Internal(format!("a view of {} columns has {}", names.len(), columns.len())));
    }
    let columns = columns.into_iter().zip(names).map(|(column, name)| Expr::Column(column).alias(name));
    Ok(LogicalPlanBuilder::from(plan).project(columns.collect::<Vec<_>>())?.build()?)
}

/// Plans a query text in a scope of its own: with the columns in `reads`, or all of them. Returns the
/// relations and columns read too.
async fn scoped(
    catalog: &Arc<Catalog>,
    state: &Arc<SessionState>,
    query: &str,
    reads: Option<&[ViewRead]>,
    depth: usize,
) -> Result<(LogicalPlan, BTreeMap<String, Vec<String>>)> {
    let mut statement = query_of(query)?;
    rewrite(catalog, &mut statement)?;
    if reads.is_none() {
        // Of a new view: one that is stored goes on.
        from_names::check(&statement)?;
    }
    let names = state.catalog_list().catalog(CATALOG).ok_or_else(closed)?;
    let hidden = reads.map(|reads| {
        let columns = |read: &ViewRead| read.columns.iter().map(|column| column.name.clone()).collect();
        reads.iter().map(|read| (read.relation.clone(), columns(read))).collect()
    });
    // Views under this one resolve names in their own scope, independently of this one's.
    let base = match names.downcast_ref::<ScopedNames>() {
        Some(scoped) => Arc::clone(&scoped.base),
        None => names,
    };
    let public = base.schema(OWNED_SCHEMA).ok_or_else(closed)?;
    let scope = Arc::new(Scope {
        catalog: Arc::clone(catalog),
        public,
        state: Arc::clone(state),
        columns: hidden,
        read: Mutex::default(),
        depth,
    });
    let list = MemoryCatalogProviderList::new();
    list.register_catalog(CATALOG.to_owned(), Arc::new(ScopedNames { base, scope: Arc::clone(&scope) }));
    let context = SessionContext::new_with_state(SessionState::clone(state));
    context.register_catalog_list(Arc::new(list));
    let plan = typed(merged(relation_rows::plan(&context.state(), statement).await?)?)?;
    let read = std::mem::take(&mut *scope.read.lock());
    Ok((plan, read))
}

/// Plans the query of a new view, and finds the relations that it reads.
pub(crate) async fn analysed(
    catalog: &Arc<Catalog>,
    state: &Arc<SessionState>,
    query: &str,
) -> Result<(LogicalPlan, Vec<ViewRead>)> {
    let (plan, read) = scoped(catalog, state, query, None, 0).await?;
    let names = column_names(&plan)?;
    let column = |name: String| ReadColumn { used: names.contains(&name), name };
    let reads = read
        .into_iter()
        .map(|(relation, columns)| ViewRead { relation, columns: columns.into_iter().map(column).collect() });
    Ok((plan, reads.collect()))
}

/// Names of all columns mentioned anywhere in an unoptimised plan: a superset of the columns that the query
/// needs, of any relation.
fn column_names(plan: &LogicalPlan) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                if let Expr::Column(column) | Expr::OuterReferenceColumn(_, column) = expr {
                    names.insert(column.name.clone());
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(names)
}

/// Catalog provider for the query text of a view.
#[derive(Debug)]
struct ScopedNames {
    base: Arc<dyn CatalogProvider>,
    scope: Arc<Scope>,
}

impl CatalogProvider for ScopedNames {
    fn schema_names(&self) -> Vec<String> {
        self.base.schema_names()
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        match name {
            SCHEMA => Some(Arc::clone(&self.scope) as _),
            name => self.base.schema(name),
        }
    }
}

/// Schema provider for the query text of a view.
struct Scope {
    catalog: Arc<Catalog>,
    public: Arc<dyn SchemaProvider>,
    state: Arc<SessionState>,
    /// Visible columns of relations; all of them if `None`.
    columns: Option<BTreeMap<String, Vec<String>>>,
    /// Relations looked up, with all columns.
    read: Mutex<BTreeMap<String, Vec<String>>>,
    depth: usize,
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").field("columns", &self.columns).finish_non_exhaustive()
    }
}

#[async_trait]
impl SchemaProvider for Scope {
    fn table_names(&self) -> Vec<String> {
        self.public.table_names()
    }

    async fn table(&self, name: &str) -> DFResult<Option<Arc<dyn TableProvider>>> {
        let under = relation(&self.catalog, &self.state, name, self.depth + 1).await.map_err(external)?;
        let found = match under {
            Some(found) => Some(found),
            None => self.public.table(name).await?,
        };
        let Some(found) = found else { return Ok(None) };
        let schema = found.schema();
        let all: Vec<String> = schema.fields().iter().map(|field| field.name().clone()).collect();
        self.read.lock().insert(name.to_owned(), all);
        match self.columns.as_ref().and_then(|columns| columns.get(name)) {
            Some(columns) => narrowed(name, found, columns).map(Some),
            None => Ok(Some(found)),
        }
    }

    async fn table_type(&self, name: &str) -> DFResult<Option<TableType>> {
        self.public.table_type(name).await
    }

    fn table_exist(&self, name: &str) -> bool {
        self.public.table_exist(name)
    }
}

/// Relation with some of its columns.
fn narrowed(
    name: &str,
    whole: Arc<dyn TableProvider>,
    columns: &[String],
) -> DFResult<Arc<dyn TableProvider>> {
    let schema = whole.schema();
    let shown: Vec<usize> =
        (0..schema.fields().len()).filter(|&at| columns.contains(schema.field(at).name())).collect();
    if shown.len() == schema.fields().len() {
        return Ok(whole);
    }
    let source = provider_as_source(whole);
    let plan = LogicalPlanBuilder::scan(TableReference::bare(name), source, Some(shown))?.build()?;
    Ok(Arc::new(ViewTable::new(plan, None)))
}
