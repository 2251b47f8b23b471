//! MATCH_RECOGNIZE as planned expressions: DataFusion plans what is read of rows as queries over the relation, and what
//! is computed from that as queries over a relation with a column for each read.

use crate::error::{Error, Result};
use crate::parser::names::identifier;
use crate::parser::patterns::{Measure, PatternClause};
use crate::parser::visit::conjuncts;
use crate::planner::patterns::navigation::{Navigator, Read, read_name};
use crate::postgres::number_types;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, DFSchemaRef, Result as DFResult};
use datafusion::execution::SessionState;
use datafusion::logical_expr::planner::RelationPlannerContext;
use datafusion::logical_expr::utils::find_aggregate_exprs;
use datafusion::logical_expr::{
    EmptyRelation, Expr, LogicalPlan, LogicalPlanBuilder, Projection, Volatility,
};
use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr as SqlExpr, FunctionArguments, Ident};
use entresol_streams::Navigation;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

/// MATCH_RECOGNIZE whose expressions are planned.
#[derive(Clone)]
pub(crate) struct PlannedPattern {
    pub(crate) clause: PatternClause,
    /// Columns of the rows that it is planned over.
    pub(crate) rows: DFSchemaRef,
    /// Columns of its result: the partition and the measures; of all rows those of ORDER BY between them, and the other
    /// columns of the rows behind them.
    pub(crate) measures: Vec<(FieldRef, PlannedMeasure)>,
    /// Conditions of the variables: on a row alone, and on the match.
    pub(crate) conditions: Vec<(Option<PlannedExpression>, Option<PlannedExpression>)>,
}

impl fmt::Debug for PlannedPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let measures: Vec<String> = self.clause.measures.iter().map(|measure| measure.to_string()).collect();
        let all_rows = if self.clause.all_rows { " ALL ROWS PER MATCH" } else { "" };
        write!(f, "MATCH_RECOGNIZE ({} MEASURES {}{all_rows})", self.clause.text, measures.join(", "))
    }
}

/// Measure of a pattern.
#[derive(Clone)]
pub(crate) enum PlannedMeasure {
    Expression {
        planned: PlannedExpression,
        is_final: bool,
    },
    /// Name of the variable of the row.
    Classifier,
    /// Number of the match in its partition.
    MatchNumber,
}

impl PlannedMeasure {
    /// Expression that it is, if it is one.
    pub(crate) fn expression(&self) -> Option<&PlannedExpression> {
        match self {
            PlannedMeasure::Expression { planned, .. } => Some(planned),
            PlannedMeasure::Classifier | PlannedMeasure::MatchNumber => None,
        }
    }
}

/// Expression over what is read of rows.
#[derive(Clone)]
pub(crate) struct PlannedExpression {
    pub(crate) reads: Vec<PlannedRead>,
    /// Columns of the reads, as they are planned.
    pub(crate) planned: DFSchemaRef,
    pub(crate) expr: Expr,
    pub(crate) result: FieldRef,
}

/// Value read of rows.
#[derive(Clone)]
pub(crate) struct PlannedRead {
    pub(crate) navigation: Navigation,
    /// Expression over the columns of a row, or over the results of the aggregates.
    pub(crate) expr: Expr,
    /// Aggregates over rows.
    pub(crate) aggregates: Vec<Expr>,
    /// Columns that `expr` reads.
    pub(crate) planned: DFSchemaRef,
    pub(crate) result: DataType,
}

impl PlannedPattern {
    /// Text of it in plans.
    pub(crate) fn described(&self) -> String {
        let list = |items: Vec<String>| items.join(", ");
        let clause = &self.clause;
        let mut text = String::new();
        if !clause.partition.is_empty() {
            text += &format!("PARTITION BY {} ", list(clause.partition.clone()));
        }
        text += &format!("ORDER BY {} ", list(clause.order.iter().map(ToString::to_string).collect()));
        if !clause.measures.is_empty() {
            text += &format!("MEASURES {} ", list(clause.measures.iter().map(ToString::to_string).collect()));
        }
        text += if clause.all_rows { "ALL ROWS PER MATCH " } else { "ONE ROW PER MATCH " };
        text += if clause.skips_match {
            "AFTER MATCH SKIP PAST LAST ROW "
        } else {
            "AFTER MATCH SKIP TO NEXT ROW "
        };
        text += &clause.to_string();
        if !clause.define.is_empty() {
            let define = clause.define.iter().map(|(name, expr)| format!("{name} AS {expr}"));
            text += &format!(" DEFINE {}", list(define.collect()));
        }
        text
    }

    /// Expressions of conditions and measures.
    pub(crate) fn expressions(&self) -> impl Iterator<Item = &PlannedExpression> {
        let conditions = self.conditions.iter().flat_map(|(of_row, of_match)| [of_row, of_match]).flatten();
        conditions.chain(self.measures.iter().filter_map(|(_, measure)| measure.expression()))
    }

    /// Planned parts of all expressions.
    pub(crate) fn exprs(&self) -> impl Iterator<Item = &Expr> {
        self.expressions().flat_map(|expression| {
            let reads = expression.reads.iter();
            let of_reads = reads.flat_map(|read| std::iter::once(&read.expr).chain(&read.aggregates));
            std::iter::once(&expression.expr).chain(of_reads)
        })
    }

    /// Places of the columns of a row that conditions and measures read.
    pub(crate) fn columns_read(&self) -> Result<BTreeSet<usize>> {
        let mut columns = BTreeSet::new();
        for read in self.expressions().flat_map(|expression| &expression.reads) {
            let of_row =
                if read.aggregates.is_empty() { std::slice::from_ref(&read.expr) } else { &read.aggregates };
            for column in of_row.iter().flat_map(Expr::column_refs) {
                columns.insert(self.rows.index_of_column(column)?);
            }
        }
        Ok(columns)
    }

    /// Tells whether a function of it has another value in another statement or session.
    pub(crate) fn varies(&self) -> DFResult<bool> {
        let mut varies = false;
        for expr in self.exprs() {
            varies |= expr.exists(|part| {
                Ok(matches!(part, Expr::ScalarFunction(function)
                    if function.func.signature().volatility != Volatility::Immutable))
            })?;
        }
        Ok(varies)
    }

    /// The same pattern with changed expressions.
    pub(crate) fn changed(&self, change: &dyn Fn(Expr) -> Result<Expr>) -> Result<PlannedPattern> {
        let mut pattern = self.clone();
        let conditions = pattern.conditions.iter_mut().flat_map(|(of_row, of_match)| [of_row, of_match]);
        let measures = pattern.measures.iter_mut().filter_map(|(_, measure)| match measure {
            PlannedMeasure::Expression { planned, .. } => Some(planned),
            PlannedMeasure::Classifier | PlannedMeasure::MatchNumber => None,
        });
        for expression in conditions.flatten().chain(measures) {
            expression.expr = change(std::mem::take(&mut expression.expr))?;
            for read in &mut expression.reads {
                read.expr = change(std::mem::take(&mut read.expr))?;
                for aggregate in &mut read.aggregates {
                    *aggregate = change(std::mem::take(aggregate))?;
                }
            }
        }
        Ok(pattern)
    }
}

/// Planner of the expressions of a pattern over rows with these columns.
pub(super) struct PatternPlanner<'c> {
    pub(super) context: &'c mut dyn RelationPlannerContext,
    pub(super) state: &'c SessionState,
    pub(super) rows: DFSchemaRef,
}

impl PatternPlanner<'_> {
    /// Plans a pattern.
    pub(super) fn plan(&mut self, clause: PatternClause) -> Result<PlannedPattern> {
        let mut measures: Vec<(FieldRef, PlannedMeasure)> = Vec::new();
        for measure in columns_of_result(&clause, &self.rows) {
            let name = measure.name.clone();
            if measures.iter().any(|(field, _)| *field.name() == name) {
                return Err(Error::coded("42701", format!("measure \"{name}\" specified more than once")));
            }
            let (field, planned) = self.measure(&clause, measure)?;
            measures.push((Arc::new(field.as_ref().clone().with_name(name).with_nullable(true)), planned));
        }
        let mut conditions = Vec::new();
        for (number, variable) in clause.variables.iter().enumerate() {
            let defined = clause.define.iter().find(|(name, _)| name == variable);
            let mut of_variable = (None, None);
            if let Some((_, expr)) = defined {
                let (of_row, of_match) = self.divided(&clause, number, expr)?;
                of_variable =
                    (self.condition(&clause, number, of_row)?, self.condition(&clause, number, of_match)?);
            }
            conditions.push(of_variable);
        }
        Ok(PlannedPattern { clause, rows: Arc::clone(&self.rows), measures, conditions })
    }

    /// Plans a measure.
    fn measure(&mut self, clause: &PatternClause, measure: Measure) -> Result<(FieldRef, PlannedMeasure)> {
        let field = |data_type| Arc::new(Field::new("", data_type, true));
        if is_call(&measure.expr, "classifier") {
            return Ok((field(DataType::Utf8), PlannedMeasure::Classifier));
        }
        if is_call(&measure.expr, "match_number") {
            return Ok((field(DataType::Int64), PlannedMeasure::MatchNumber));
        }
        let Measure { expr, is_final, .. } = measure;
        let planned = self.expression(clause, None, expr)?;
        Ok((Arc::clone(&planned.result), PlannedMeasure::Expression { planned, is_final }))
    }

    /// Conjuncts of a condition that read the row alone, and the others.
    fn divided(
        &self,
        clause: &PatternClause,
        number: usize,
        condition: &SqlExpr,
    ) -> Result<(Option<SqlExpr>, Option<SqlExpr>)> {
        let (mut of_row, mut of_match) = (None, None);
        for conjunct in conjuncts(condition) {
            let mut replaced = conjunct.clone();
            let is_aggregate = |name: &str| self.is_aggregate(name);
            let mut navigator = navigator(clause, Some(number), &is_aggregate);
            navigator.replace(&mut replaced)?;
            let part = if navigator.reads_row_alone() { &mut of_row } else { &mut of_match };
            *part = Some(match part.take() {
                None => nested(conjunct),
                Some(before) => SqlExpr::BinaryOp {
                    left: Box::new(before),
                    op: BinaryOperator::And,
                    right: Box::new(nested(conjunct)),
                },
            });
        }
        Ok((of_row, of_match))
    }

    fn condition(
        &mut self,
        clause: &PatternClause,
        number: usize,
        condition: Option<SqlExpr>,
    ) -> Result<Option<PlannedExpression>> {
        let Some(condition) = condition else { return Ok(None) };
        let text = condition.to_string();
        let planned = self.expression(clause, Some(number), condition)?;
        let result = planned.result.data_type();
        if !matches!(result, DataType::Boolean | DataType::Null) {
            let name = &clause.variables[number];
            let message = format!("DEFINE {name} AS {text} is {result}, not a truth value");
            return Err(Error::coded("42804", message));
        }
        Ok(Some(planned))
    }

    fn is_aggregate(&self, name: &str) -> bool {
        self.state.aggregate_functions().contains_key(name)
    }

    /// Plans an expression: what it reads, and what it computes from that.
    fn expression(
        &mut self,
        clause: &PatternClause,
        condition_of: Option<usize>,
        mut expr: SqlExpr,
    ) -> Result<PlannedExpression> {
        let reads = {
            let is_aggregate = |name: &str| self.is_aggregate(name);
            let mut navigator = navigator(clause, condition_of, &is_aggregate);
            navigator.replace(&mut expr)?;
            navigator.reads
        };
        let (mut planned, mut fields) = (Vec::with_capacity(reads.len()), Vec::with_capacity(reads.len()));
        for (number, read) in reads.into_iter().enumerate() {
            let (read, field) = self.read(read)?;
            fields.push((None, Arc::new(field.as_ref().clone().with_name(read_name(number)))));
            planned.push(read);
        }
        let columns = Arc::new(DFSchema::new_with_metadata(fields, HashMap::new())?);
        let selected = self.select(&expr, &columns)?;
        if !selected.aggregates.is_empty() {
            return Err(Error::unsupported(format!("{expr} in MATCH_RECOGNIZE")));
        }
        Ok(PlannedExpression {
            reads: planned,
            planned: columns,
            expr: selected.expr,
            result: selected.field,
        })
    }

    /// Plans what is read of rows.
    fn read(&mut self, read: Read) -> Result<(PlannedRead, FieldRef)> {
        let rows = Arc::clone(&self.rows);
        let selected = self.select(&read.argument, &rows)?;
        if selected.aggregates.is_empty() == matches!(read.navigation, Navigation::All { .. }) {
            return Err(Error::unsupported(format!("{} in MATCH_RECOGNIZE", read.argument)));
        }
        let field = Arc::new(selected.field.as_ref().clone().with_nullable(true));
        let planned = PlannedRead {
            navigation: read.navigation,
            expr: selected.expr,
            aggregates: selected.aggregates,
            planned: selected.input,
            result: field.data_type().clone(),
        };
        Ok((planned, field))
    }

    /// Plans an expression as a query over rows with these columns.
    fn select(&mut self, expr: &SqlExpr, rows: &DFSchemaRef) -> Result<RowExpression> {
        let planned = self.context.sql_to_expr(expr.clone(), rows)?;
        check_expression(&planned)?;
        let input =
            LogicalPlan::EmptyRelation(EmptyRelation { produce_one_row: false, schema: Arc::clone(rows) });
        let aggregates = find_aggregate_exprs([&planned]);
        let builder = LogicalPlanBuilder::from(input);
        let plan = if aggregates.is_empty() {
            builder.project([planned])?.build()?
        } else {
            let over_results = planned.transform_down(|part| {
                if !aggregates.contains(&part) {
                    return Ok(Transformed::no(part));
                }
                let column = Column::new_unqualified(part.schema_name().to_string());
                Ok(Transformed::new(Expr::Column(column), true, TreeNodeRecursion::Jump))
            });
            let over_results = over_results?.data;
            builder.aggregate(Vec::<Expr>::new(), aggregates.clone())?.project([over_results])?.build()?
        };
        let plan = number_types::typed(plan)?;
        let options = self.context.context_provider().options();
        let plan = self.state.analyzer().execute_and_check(plan, options, |_, _| {})?;
        selected(plan)
    }
}

/// Planned expression over rows.
struct RowExpression {
    expr: Expr,
    field: FieldRef,
    /// Aggregates whose results it is computed from, if there are any.
    aggregates: Vec<Expr>,
    /// Columns that it reads: of the rows, or the results.
    input: DFSchemaRef,
}

/// Parts of a planned query of one expression: projections over an aggregate or over the rows.
fn selected(plan: LogicalPlan) -> Result<RowExpression> {
    let field = Arc::clone(plan.schema().field(0));
    let unexpected =
        |plan: &LogicalPlan| Error::unsupported(format!("{} in MATCH_RECOGNIZE", plan.display()));
    let LogicalPlan::Projection(Projection { expr, input, .. }) = plan else { return Err(unexpected(&plan)) };
    let [only] = expr.as_slice() else { return Err(Error::Internal("a query of one expression".to_owned())) };
    let (mut expr, mut input) = (only.clone(), input);
    while let LogicalPlan::Projection(inner) = input.as_ref() {
        let (schema, exprs) = (&inner.schema, &inner.expr);
        let merged = expr.transform_up(|part| match &part {
            Expr::Column(column) => {
                let inner = exprs.get(schema.index_of_column(column)?).cloned();
                Ok(inner.map_or_else(|| Transformed::no(part), |inner| Transformed::yes(inner.unalias())))
            }
            _ => Ok(Transformed::no(part)),
        });
        expr = merged?.data;
        input = Arc::clone(&inner.input);
    }
    match input.as_ref() {
        LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty() => Ok(RowExpression {
            expr,
            field,
            aggregates: aggregate.aggr_expr.clone(),
            input: Arc::clone(&aggregate.schema),
        }),
        LogicalPlan::EmptyRelation(rows) => {
            Ok(RowExpression { expr, field, aggregates: Vec::new(), input: Arc::clone(&rows.schema) })
        }
        other => Err(unexpected(other)),
    }
}

/// Refuses what has no value of a row: subqueries, window functions, rows of functions; and what has another for each look
/// at a row.
pub(super) fn check_expression(expr: &Expr) -> Result<()> {
    let mut refused = None;
    expr.apply(|part| {
        refused = match part {
            Expr::ScalarSubquery(_)
            | Expr::InSubquery(_)
            | Expr::Exists(_)
            | Expr::SetComparison(_)
            | Expr::OuterReferenceColumn(..) => Some(
                "a subquery or a column of another relation in MATCH_RECOGNIZE: join it with the rows before"
                    .to_owned(),
            ),
            Expr::WindowFunction(_) => {
                Some("a window function in MATCH_RECOGNIZE: compute it as a column before".to_owned())
            }
            Expr::Unnest(_) => Some("a function of several rows in MATCH_RECOGNIZE".to_owned()),
            Expr::ScalarFunction(function)
                if function.func.signature().volatility == Volatility::Volatile =>
            {
                Some(format!(
                    "{}() in MATCH_RECOGNIZE: it has another value each time that a row is looked at",
                    function.func.name()
                ))
            }
            _ => return Ok(TreeNodeRecursion::Continue),
        };
        Ok(TreeNodeRecursion::Stop)
    })?;
    refused.map_or(Ok(()), |what| Err(Error::unsupported(what)))
}

/// Measures that are the columns of a result.
fn columns_of_result(clause: &PatternClause, rows: &DFSchema) -> Vec<Measure> {
    let column = |name: &String| Measure {
        expr: SqlExpr::Identifier(Ident::with_quote('"', name)),
        name: name.clone(),
        is_final: false,
    };
    let mut measures: Vec<Measure> = clause.partition.iter().map(column).collect();
    if clause.all_rows {
        let ordered = clause.order.iter().filter_map(|order| match &order.expr {
            SqlExpr::Identifier(ident) => Some(identifier(ident)),
            _ => None,
        });
        for name in ordered {
            if !measures.iter().any(|measure| measure.name == name) {
                measures.push(column(&name));
            }
        }
    }
    let keys: Vec<String> = measures.iter().map(|measure| measure.name.clone()).collect();
    measures.extend(clause.measures.iter().cloned());
    if clause.all_rows {
        let others = rows.fields().iter().map(|field| field.name());
        measures.extend(others.filter(|name| !keys.contains(name)).map(column));
    }
    measures
}

/// Tells whether an expression is the call of a function without arguments.
fn is_call(expr: &SqlExpr, name: &str) -> bool {
    match expr {
        SqlExpr::Function(function) => {
            function.name.to_string().eq_ignore_ascii_case(name)
                && matches!(&function.args, FunctionArguments::List(list) if list.args.is_empty())
        }
        _ => false,
    }
}

fn navigator<'v>(
    clause: &'v PatternClause,
    condition_of: Option<usize>,
    is_aggregate: &'v dyn Fn(&str) -> bool,
) -> Navigator<'v> {
    Navigator { variables: &clause.variables, condition_of, is_aggregate, reads: Vec::new() }
}

fn nested(expr: &SqlExpr) -> SqlExpr {
    SqlExpr::Nested(Box::new(expr.clone()))
}
