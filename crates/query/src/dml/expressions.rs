//! Expressions over rows that are not in any table yet: defaults, checks, RETURNING, the SET of ON CONFLICT.
//!
//! They are planned as the projection of a query would be, with the same rules for types and numbers, and
//! evaluated by DataFusion's physical expressions. `now()` is the time of the statement. Aggregates are
//! refused; so are subqueries in defaults and checks, while those of RETURNING and ON CONFLICT are for
//! [`crate::dml::row_query`].

use crate::dml::source::quoted;
use crate::error::{Error, Result};
use crate::parser::names::{identifier, table_name};
use crate::planner::translation;
use crate::postgres::number_types;
use crate::postgres::numbers;
use crate::postgres::overflow;
use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::{DataType as ArrowType, Field, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::DFSchema;
use datafusion::common::tree_node::TreeNode;
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{
    EmptyRelation, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Volatility,
};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::sql::sqlparser::ast::{
    Expr as SqlExpr, ExprWithAlias, SelectItem, SelectItemQualifiedWildcardKind, With,
};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Columns that names in expressions refer to.
pub(crate) struct Scope {
    state: SessionState,
    schema: DFSchema,
}

/// Planned expression, ready to be evaluated.
#[derive(Debug)]
pub(crate) struct ComputedExpression {
    expr: Arc<dyn PhysicalExpr>,
    /// Name and type of its values.
    pub(crate) field: Field,
    /// Names of the relations whose columns it reads.
    pub(crate) relations: BTreeSet<String>,
    /// True if it may give another value for each row, whatever the row contains.
    pub(crate) is_volatile: bool,
    /// True if it calls a function whose value is fixed for a statement, as the time.
    pub(crate) is_of_statement: bool,
}

/// Relations whose columns expressions name.
#[derive(Clone, Copy)]
pub(crate) struct Relations<'r> {
    /// Names and columns, in the order of the columns of the rows.
    pub(crate) named: &'r [(&'r str, &'r SchemaRef)],
    /// Common table expressions of the statement, for subqueries.
    pub(crate) with: Option<&'r With>,
}

/// Expression with the name of its result.
pub(crate) struct Item {
    pub(crate) expr: SqlExpr,
    pub(crate) name: String,
}

/// Items of a RETURNING, with all columns of the relations in place of `*`.
pub(crate) fn returned_items(items: &[SelectItem], relations: &[(&str, &SchemaRef)]) -> Result<Vec<Item>> {
    let mut named = Vec::with_capacity(items.len());
    for item in items {
        let whole = match item {
            SelectItem::UnnamedExpr(expr) => {
                named.push(Item { expr: expr.clone(), name: translation::column_name(expr) });
                continue;
            }
            SelectItem::ExprWithAlias { expr, alias } => {
                named.push(Item { expr: expr.clone(), name: identifier(alias) });
                continue;
            }
            SelectItem::Wildcard(options) if options.to_string().is_empty() => None,
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), options)
                if options.to_string().is_empty() =>
            {
                Some(table_name(name)?)
            }
            other => return Err(Error::unsupported(format!("{other} in RETURNING"))),
        };
        if let Some(whole) = &whole
            && !relations.iter().any(|(name, _)| name == whole)
        {
            let message = format!("missing FROM-clause entry for table \"{whole}\"");
            return Err(Error::coded("42P01", message));
        }
        for (relation, columns) in
            relations.iter().filter(|(name, _)| whole.as_deref().is_none_or(|whole| whole == *name))
        {
            named.extend(columns.fields().iter().map(|field| Item {
                expr: SqlExpr::CompoundIdentifier(vec![quoted(relation), quoted(field.name())]),
                name: field.name().clone(),
            }));
        }
    }
    Ok(named)
}

impl<'r> Relations<'r> {
    /// Relations of a statement without common table expressions.
    pub(crate) fn of(named: &'r [(&'r str, &'r SchemaRef)]) -> Relations<'r> {
        Relations { named, with: None }
    }
}

impl ComputedExpression {
    /// Values for the rows of a batch of the scope.
    pub(crate) fn evaluate(&self, batch: &RecordBatch) -> Result<ArrayRef> {
        Ok(self.expr.evaluate(batch)?.into_array(batch.num_rows())?)
    }
}

impl Scope {
    /// Scope in which names are columns of these relations.
    pub(crate) fn new(state: SessionState, relations: &[(&str, &SchemaRef)]) -> Result<Scope> {
        let mut schema = DFSchema::empty();
        for (name, columns) in relations {
            let relation = datafusion::common::TableReference::bare(*name);
            schema = schema.join(&DFSchema::try_from_qualified_schema(relation, columns)?)?;
        }
        Ok(Scope { state, schema })
    }

    /// Plans an expression; `what` names it in errors.
    pub(crate) fn plan(&self, what: &str, expr: &SqlExpr) -> Result<ComputedExpression> {
        self.plan_if(what, expr, |_| Ok(()))
    }

    /// Plans an expression that a check accepts.
    pub(crate) fn plan_if(
        &self,
        what: &str,
        expr: &SqlExpr,
        check: impl FnOnce(&Expr) -> Result<()>,
    ) -> Result<ComputedExpression> {
        let logical = self.logical(what, expr.clone(), None)?;
        check(&logical)?;
        let mut computed = self.physical(vec![logical])?;
        computed.pop().ok_or_else(|| Error::Internal("a planned expression is missing".into()))
    }

    /// Plans expressions that have names; `what` names their clause in errors.
    pub(crate) fn plan_items<'i>(
        &self,
        what: &str,
        items: impl Iterator<Item = &'i Item>,
    ) -> Result<Vec<ComputedExpression>> {
        let named = items.map(|item| self.logical(what, item.expr.clone(), Some(item.name.clone())));
        self.physical(named.collect::<Result<_>>()?)
    }

    fn logical(&self, what: &str, mut expr: SqlExpr, alias: Option<String>) -> Result<Expr> {
        translation::translate_expr(&mut expr);
        numbers::type_exponents_in(&mut expr);
        let named = ExprWithAlias { expr, alias: None };
        let planned = self.state.create_logical_expr_from_sql_expr(named, &self.schema)?;
        let mut refused = None;
        planned.apply_subexpressions(|part| {
            refused = refused.or(match part {
                Expr::ScalarSubquery(_) | Expr::InSubquery(_) | Expr::Exists(_) => Some("a subquery"),
                Expr::AggregateFunction(_) => Some("an aggregate function"),
                Expr::WindowFunction(_) => Some("a window function"),
                _ => None,
            });
        })?;
        if let Some(refused) = refused {
            return Err(Error::unsupported(format!("{refused} in {what}")));
        }
        Ok(match alias {
            Some(alias) => planned.alias(alias),
            None => planned,
        })
    }

    fn physical(&self, exprs: Vec<Expr>) -> Result<Vec<ComputedExpression>> {
        let schema = Arc::new(self.schema.clone());
        let rows = LogicalPlan::EmptyRelation(EmptyRelation { produce_one_row: false, schema });
        let names: Vec<String> = exprs.iter().map(name_of).collect();
        // Distinct names for all expressions.
        let numbered =
            exprs.into_iter().enumerate().map(|(at, expr)| expr.unalias().alias(format!("value{at}")));
        let plan = LogicalPlanBuilder::from(rows).project(numbered.collect::<Vec<_>>())?.build()?;
        let plan = number_types::typed(plan)?;
        let options = self.state.config_options();
        let plan = self.state.analyzer().execute_and_check(plan, options, |_, _| {})?;
        let LogicalPlan::Projection(projection) = plan else {
            return Err(Error::Internal("the analyzer replaced a projection".into()));
        };
        // Replaces now() by the time of the statement.
        let context = SimplifyContext::builder()
            .with_schema(Arc::new(self.schema.clone()))
            .with_config_options(Arc::clone(self.state.config_options()))
            .with_current_time()
            .build();
        let simplifier = ExprSimplifier::new(context);
        let computed = projection.expr.into_iter().zip(names).map(|(expr, name)| {
            let expr = expr.unalias();
            let (_, field) = expr.to_field(&self.schema)?;
            let (data_type, nullable) = (field.data_type().clone(), field.is_nullable());
            let is_volatile = expr.is_volatile();
            let is_of_statement = expr.exists(|part| Ok(is_stable(part)))?;
            let relations = expr.column_refs().into_iter().filter_map(|column| column.relation.as_ref());
            let relations = relations.map(|relation| relation.table().to_owned()).collect();
            let expr = self.state.create_physical_expr(simplifier.simplify(expr)?, &self.schema)?;
            let expr = overflow::checked(expr, self.schema.as_arrow())?.data;
            Ok(ComputedExpression {
                expr,
                field: Field::new(name, data_type, nullable),
                relations,
                is_volatile,
                is_of_statement,
            })
        });
        computed.collect()
    }
}

/// Tells whether an expression is a call of a function whose value is fixed for a statement.
fn is_stable(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(call) if call.func.signature().volatility == Volatility::Stable)
}

/// Name of a result column.
fn name_of(expr: &Expr) -> String {
    match expr {
        Expr::Column(column) => column.name.clone(),
        Expr::Alias(alias) => alias.name.clone(),
        other => other.schema_name().to_string(),
    }
}

/// Refuses expressions that are not BOOLEAN.
pub(crate) fn check_boolean(what: &str, data_type: &ArrowType) -> Result<()> {
    match data_type {
        ArrowType::Boolean | ArrowType::Null => Ok(()),
        other => {
            Err(Error::coded("42804", format!("argument of {what} must be type boolean, not type {other}")))
        }
    }
}

/// Traversal of an expression: calls a function with it and all expressions in it.
trait Parts {
    fn apply_subexpressions(&self, f: impl FnMut(&Expr)) -> Result<()>;
}

impl Parts for Expr {
    fn apply_subexpressions(&self, mut f: impl FnMut(&Expr)) -> Result<()> {
        use datafusion::common::tree_node::TreeNodeRecursion;
        self.apply(|part| {
            f(part);
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(())
    }
}
