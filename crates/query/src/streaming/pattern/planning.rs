//! MATCH_RECOGNIZE as planned expressions: DataFusion plans what is read of rows as queries over the stream, and what is
//! computed from that as queries over a relation with a column for each read.

use crate::error::{Error, Result};
use crate::parser::statement::{inner_mut, query_of};
use crate::planner::query::logical_plan;
use crate::postgres::time_zones::UTC;
use crate::postgres::types::column_type;
use crate::session::core::SessionCore;
use crate::streaming::expressions::check_plan;
use crate::streaming::merge::conjuncts;
use crate::streaming::names::resolve;
use crate::streaming::pattern::clause::{Measure, PatternClause};
use crate::streaming::pattern::navigation::{Navigator, Read, read_name};
use datafusion::arrow::datatypes::DataType as ArrowType;
use datafusion::catalog::{MemorySchemaProvider, SchemaProvider};
use datafusion::common::DFSchemaRef;
use datafusion::datasource::MemTable;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::Optimizer;
use datafusion::optimizer::simplify_expressions::SimplifyExpressions;
use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr as SqlExpr, FunctionArguments, Ident};
use entresol_streams::Navigation;
use entresol_tables::{Column, DataType, arrow_schema};
use std::fmt;
use std::sync::Arc;

/// Relation of the rows of the stream, and that of what is read of them.
const ROWS: &str = "rows of a pattern";
const READS: &str = "reads of a pattern";

/// MATCH_RECOGNIZE whose expressions are planned.
pub(crate) struct PlannedPattern {
    pub(crate) clause: PatternClause,
    /// Columns of its result: the partition and the measures; of all rows the event time between them, and the other
    /// columns of the rows behind them.
    pub(crate) measures: Vec<(Column, PlannedMeasure)>,
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
pub(crate) struct PlannedExpression {
    pub(crate) reads: Vec<PlannedRead>,
    /// Columns of the reads, as they are planned.
    pub(crate) planned: DFSchemaRef,
    pub(crate) expr: Expr,
    pub(crate) result: ArrowType,
}

/// Value read of rows.
pub(crate) struct PlannedRead {
    pub(crate) navigation: Navigation,
    /// Expression over the columns of a row, or of an aggregate's result.
    pub(crate) expr: Expr,
    /// Aggregate over rows.
    pub(crate) aggregate: Option<Expr>,
    /// Columns that `expr` reads.
    pub(crate) planned: DFSchemaRef,
    /// Columns of the rows.
    pub(crate) rows: DFSchemaRef,
    pub(crate) column: Column,
}

/// Planner of the expressions of a pattern.
pub(crate) struct PatternPlanner<'s> {
    pub(crate) session: &'s SessionCore,
    pub(crate) state: SessionState,
    pub(crate) relations: &'s MemorySchemaProvider,
}

impl PatternPlanner<'_> {
    /// Plans a pattern over rows with these columns.
    pub(crate) async fn plan(&self, clause: PatternClause, columns: &[Column]) -> Result<PlannedPattern> {
        self.register(ROWS, columns)?;
        let mut measures: Vec<(Column, PlannedMeasure)> = Vec::new();
        for measure in columns_of_result(&clause, columns) {
            let name = measure.name.clone();
            if measures.iter().any(|(column, _)| column.name == name) {
                return Err(Error::coded("42701", format!("measure \"{name}\" specified more than once")));
            }
            let (data_type, planned) = self.measure(&clause, measure).await?;
            measures.push((Column::new(name, data_type), planned));
        }
        let mut conditions = Vec::new();
        for (number, variable) in clause.variables.iter().enumerate() {
            let defined = clause.define.iter().find(|(name, _)| name == variable);
            let mut of_variable = (None, None);
            if let Some((_, expr)) = defined {
                let (of_row, of_match) = self.divided(&clause, number, expr)?;
                of_variable = (
                    self.condition(&clause, number, of_row).await?,
                    self.condition(&clause, number, of_match).await?,
                );
            }
            conditions.push(of_variable);
        }
        for relation in [ROWS, READS] {
            self.relations.deregister_table(relation)?;
        }
        Ok(PlannedPattern { clause, measures, conditions })
    }

    /// Plans a measure.
    async fn measure(&self, clause: &PatternClause, measure: Measure) -> Result<(DataType, PlannedMeasure)> {
        if is_call(&measure.expr, "classifier") {
            return Ok((DataType::Varchar, PlannedMeasure::Classifier));
        }
        if is_call(&measure.expr, "match_number") {
            return Ok((DataType::BigInt, PlannedMeasure::MatchNumber));
        }
        let Measure { expr, name, is_final } = measure;
        let planned = self.expression(clause, None, expr).await?;
        let data_type = column_type(&planned.result).ok_or_else(|| {
            Error::unsupported(format!("measure \"{name}\" of type {} in a stream", planned.result))
        })?;
        Ok((data_type, PlannedMeasure::Expression { planned, is_final }))
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

    async fn condition(
        &self,
        clause: &PatternClause,
        number: usize,
        condition: Option<SqlExpr>,
    ) -> Result<Option<PlannedExpression>> {
        let Some(condition) = condition else { return Ok(None) };
        let text = condition.to_string();
        let planned = self.expression(clause, Some(number), condition).await?;
        if planned.result != ArrowType::Boolean {
            let name = &clause.variables[number];
            let message = format!("DEFINE {name} AS {text} is {}, not a truth value", planned.result);
            return Err(Error::coded("42804", message));
        }
        Ok(Some(planned))
    }

    fn is_aggregate(&self, name: &str) -> bool {
        self.state.aggregate_functions().contains_key(name)
    }

    /// Plans an expression: what it reads, and what it computes from that.
    async fn expression(
        &self,
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
        let mut planned = Vec::with_capacity(reads.len());
        for (number, read) in reads.into_iter().enumerate() {
            planned.push(self.read(number, read).await?);
        }
        let columns: Vec<Column> = planned.iter().map(|read| read.column.clone()).collect();
        self.register(READS, &columns)?;
        let (expr, input, result) = projected(self.select(&expr, READS).await?)?;
        let columns = Arc::clone(input.schema());
        Ok(PlannedExpression { reads: planned, planned: columns, expr, result })
    }

    /// Plans what is read of rows.
    async fn read(&self, number: usize, read: Read) -> Result<PlannedRead> {
        let (expr, input, result) = projected(self.select(&read.argument, ROWS).await?)?;
        let data_type = column_type(&result)
            .ok_or_else(|| Error::unsupported(format!("{} of type {result} in a stream", read.argument)))?;
        let (aggregate, rows) = match (&input, read.navigation) {
            (LogicalPlan::Aggregate(aggregate), Navigation::All { .. })
                if aggregate.aggr_expr.len() == 1 && aggregate.group_expr.is_empty() =>
            {
                (aggregate.aggr_expr.first().cloned(), Arc::clone(aggregate.input.schema()))
            }
            (LogicalPlan::Aggregate(_), _) | (_, Navigation::All { .. }) => {
                return Err(Error::unsupported(format!("{} in MATCH_RECOGNIZE of a step", read.argument)));
            }
            (other, _) => (None, Arc::clone(other.schema())),
        };
        Ok(PlannedRead {
            navigation: read.navigation,
            expr,
            aggregate,
            planned: Arc::clone(input.schema()),
            rows,
            column: Column::new(read_name(number), data_type),
        })
    }

    fn register(&self, relation: &str, columns: &[Column]) -> Result<()> {
        let columns: Vec<Column> =
            columns.iter().map(|column| Column { nullable: true, ..column.clone() }).collect();
        let table = MemTable::try_new(arrow_schema(&columns, UTC), vec![Vec::new()])?;
        self.relations.deregister_table(relation)?;
        self.relations.register_table(relation.to_owned(), Arc::new(table))?;
        Ok(())
    }

    /// Plan of a query of one expression.
    async fn select(&self, expr: &SqlExpr, relation: &str) -> Result<LogicalPlan> {
        let mut statement = query_of(&format!("SELECT {expr} FROM \"{relation}\""))?;
        if let Some(tree) = inner_mut(&mut statement) {
            resolve(tree, |name| name == relation)?;
        }
        let plan = logical_plan(self.session, &self.state, statement).await?;
        let options = self.state.config_options();
        let plan = self.state.analyzer().execute_and_check(plan, options, |_, _| {})?;
        check_plan(&plan)?;
        let rules = Optimizer::with_rules(vec![Arc::new(SimplifyExpressions::new())]);
        Ok(rules.optimize(plan, &self.state, |_, _| {})?)
    }
}

/// Measures that are the columns of a result.
fn columns_of_result(clause: &PatternClause, columns: &[Column]) -> Vec<Measure> {
    let column = |name: &String| Measure {
        expr: SqlExpr::Identifier(Ident::with_quote('"', name)),
        name: name.clone(),
        is_final: false,
    };
    let mut measures: Vec<Measure> = clause.partition.iter().map(column).collect();
    if clause.all_rows && !clause.partition.contains(&clause.time) {
        measures.push(column(&clause.time));
    }
    measures.extend(clause.measures.iter().cloned());
    if clause.all_rows {
        let others = columns.iter().map(|column| &column.name);
        let others = others.filter(|name| !clause.partition.contains(name) && **name != clause.time);
        measures.extend(others.map(column));
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

/// Expression of a query of one, its input, and its type.
fn projected(plan: LogicalPlan) -> Result<(Expr, LogicalPlan, ArrowType)> {
    let result = plan.schema().field(0).data_type().clone();
    match plan {
        LogicalPlan::Projection(projection) if projection.expr.len() == 1 => {
            Ok((projection.expr[0].clone(), projection.input.as_ref().clone(), result))
        }
        other => Err(Error::unsupported(format!("{} in MATCH_RECOGNIZE of a step", other.display()))),
    }
}
