//! Expressions of DataFusion over rows of matches.

use crate::error::{Error, Result};
use crate::planner::patterns::planning::{PlannedExpression, PlannedMeasure, PlannedPattern, PlannedRead};
use crate::planner::row_expressions::aggregates::{SharedFunction, datafusion_function};
use crate::planner::row_expressions::{Columns, PhysicalExpression};
use crate::postgres::types::column_type;
use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, new_empty_array};
use datafusion::arrow::compute::concat;
use datafusion::arrow::datatypes::{DataType as ArrowType, Field, Schema, SchemaRef};
use datafusion::common::DFSchema;
use datafusion::execution::SessionState;
use datafusion::logical_expr::expr::AggregateFunction as AggregateCall;
use datafusion::logical_expr::{EmptyRelation, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder};
use datafusion::optimizer::Optimizer;
use datafusion::optimizer::simplify_expressions::SimplifyExpressions;
use entresol_streams::{
    AggregateFunction, Expression, MatchExpression, NavigatedRows, Navigation, PatternExpression,
    PatternMeasure, PatternVariable, Reason,
};
use entresol_tables::arrow_type;
use std::collections::HashMap;
use std::sync::Arc;

/// Type of the arrays of values: that of columns of tables, if they have the type.
pub(crate) fn stored_type(planned: &ArrowType) -> ArrowType {
    column_type(planned).map_or_else(|| planned.clone(), |known| arrow_type(known, "UTC"))
}

/// Pattern whose expressions can be computed.
#[derive(Clone)]
pub(crate) struct CompiledPattern {
    conditions: Vec<(Option<CompiledExpression>, Option<CompiledExpression>)>,
    measures: Vec<CompiledMeasure>,
}

#[derive(Clone)]
enum CompiledMeasure {
    Expression { expression: CompiledExpression, is_final: bool },
    Classifier(Vec<String>),
    MatchNumber,
}

impl CompiledPattern {
    /// Pattern over rows with these columns of those that it was planned over, of these types; `results` has the types
    /// of the measures.
    pub(crate) fn new(
        state: &SessionState,
        planned: &PlannedPattern,
        rows: (&[usize], &[ArrowType]),
        results: &[ArrowType],
    ) -> Result<CompiledPattern> {
        let over = ReadRows { state, planned: &planned.rows, columns: rows.0, stored: rows.1 };
        let condition = |condition: &Option<PlannedExpression>| {
            condition.as_ref().map(|planned| over.compiled(planned, &ArrowType::Boolean)).transpose()
        };
        let mut conditions = Vec::with_capacity(planned.conditions.len());
        for (of_row, of_match) in &planned.conditions {
            conditions.push((condition(of_row)?, condition(of_match)?));
        }
        let mut measures = Vec::with_capacity(planned.measures.len());
        for ((_, measure), result) in planned.measures.iter().zip(results) {
            measures.push(match measure {
                PlannedMeasure::Expression { planned, is_final } => CompiledMeasure::Expression {
                    expression: over.compiled(planned, result)?,
                    is_final: *is_final,
                },
                PlannedMeasure::Classifier => CompiledMeasure::Classifier(planned.clause.variables.clone()),
                PlannedMeasure::MatchNumber => CompiledMeasure::MatchNumber,
            });
        }
        Ok(CompiledPattern { conditions, measures })
    }

    /// Conditions of the variables.
    pub(crate) fn variables(&self) -> Vec<PatternVariable> {
        let expression =
            |compiled: &Option<CompiledExpression>| compiled.as_ref().map(CompiledExpression::expression);
        let conditions = self.conditions.iter().map(|(of_row, of_match)| PatternVariable {
            of_row: expression(of_row),
            of_match: expression(of_match),
        });
        conditions.collect()
    }

    /// Measures in their order.
    pub(crate) fn measures(&self) -> Vec<PatternMeasure> {
        let measures = self.measures.iter().map(|measure| match measure {
            CompiledMeasure::Expression { expression, is_final } => {
                PatternMeasure::Expression { expression: expression.expression(), is_final: *is_final }
            }
            CompiledMeasure::Classifier(names) => PatternMeasure::Classifier(names.clone()),
            CompiledMeasure::MatchNumber => PatternMeasure::MatchNumber,
        });
        measures.collect()
    }
}

/// Expression with the rows that it reads.
#[derive(Clone)]
struct CompiledExpression {
    navigations: Vec<Navigation>,
    expression: DataFusionExpression,
}

impl CompiledExpression {
    fn expression(&self) -> PatternExpression {
        PatternExpression {
            navigations: self.navigations.clone(),
            expression: Box::new(self.expression.clone()),
        }
    }
}

/// Expression over what is read of matches.
#[derive(Clone)]
struct DataFusionExpression {
    reads: Vec<DataFusionRead>,
    /// Columns of the reads.
    schema: SchemaRef,
    expression: PhysicalExpression,
}

/// Value read of the rows of a match.
#[derive(Clone)]
struct DataFusionRead {
    aggregates: Vec<DataFusionAggregate>,
    /// Value of a row, or of the results of the aggregates.
    value: PhysicalExpression,
}

#[derive(Clone)]
struct DataFusionAggregate {
    function: SharedFunction,
    arguments: Vec<PhysicalExpression>,
    result: ArrowType,
}

/// Rows that expressions read: columns of those that they were planned over, of these types.
struct ReadRows<'r> {
    state: &'r SessionState,
    planned: &'r DFSchema,
    columns: &'r [usize],
    stored: &'r [ArrowType],
}

impl ReadRows<'_> {
    fn compiled(&self, planned: &PlannedExpression, result: &ArrowType) -> Result<CompiledExpression> {
        let types: Vec<ArrowType> = planned.reads.iter().map(|read| stored_type(&read.result)).collect();
        let reads = planned.reads.iter().map(|read| self.read(read));
        let fields = types.iter().enumerate().map(|(at, of)| Field::new(format!("{at}"), of.clone(), true));
        let read = Columns { planned: &planned.planned, stored: &types };
        let expression = DataFusionExpression {
            reads: reads.collect::<Result<_>>()?,
            schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())),
            expression: self.physical(&read, &planned.expr, result)?,
        };
        let navigations = planned.reads.iter().map(|read| read.navigation).collect();
        Ok(CompiledExpression { navigations, expression })
    }

    fn read(&self, read: &PlannedRead) -> Result<DataFusionRead> {
        let result = stored_type(&read.result);
        let fields = self.columns.iter().map(|&column| {
            let (qualifier, field) = self.planned.qualified_field(column);
            (qualifier.cloned(), Arc::clone(field))
        });
        let planned = DFSchema::new_with_metadata(fields.collect(), HashMap::new())?;
        let rows = Columns { planned: &planned, stored: self.stored };
        if read.aggregates.is_empty() {
            let value = self.physical(&rows, &read.expr, &result)?;
            return Ok(DataFusionRead { aggregates: Vec::new(), value });
        }
        let aggregates = read.aggregates.iter().map(|aggregate| self.aggregate(aggregate, &rows));
        let aggregates = aggregates.collect::<Result<Vec<_>>>()?;
        let results: Vec<ArrowType> = aggregates.iter().map(|aggregate| aggregate.result.clone()).collect();
        let columns = Columns { planned: &read.planned, stored: &results };
        let value = self.physical(&columns, &read.expr, &result)?;
        Ok(DataFusionRead { aggregates, value })
    }

    fn aggregate(&self, expr: &Expr, rows: &Columns<'_>) -> Result<DataFusionAggregate> {
        let found = expr.get_type(rows.planned)?;
        let data_type = column_type(&found)
            .ok_or_else(|| Error::unsupported(format!("{expr} of type {found} in MATCH_RECOGNIZE")))?;
        let plan = self.over(rows).aggregate(Vec::<Expr>::new(), [expr.clone()])?.build()?;
        let simplified = match self.simplified(plan)? {
            LogicalPlan::Aggregate(aggregate) => aggregate.aggr_expr.first().cloned(),
            _ => None,
        };
        let Some(Expr::AggregateFunction(AggregateCall { func, params })) = simplified.map(Expr::unalias)
        else {
            return Err(Error::unsupported(format!("{expr} in MATCH_RECOGNIZE")));
        };
        let (function, arguments) = datafusion_function(&func, &params, rows, &found)?;
        let arguments = arguments.iter().map(|argument| {
            let wanted = argument.get_type(rows.planned)?;
            self.physical(rows, argument, &wanted)
        });
        Ok(DataFusionAggregate {
            arguments: arguments.collect::<Result<_>>()?,
            function: SharedFunction(Arc::new(function)),
            result: arrow_type(data_type, "UTC"),
        })
    }

    fn physical(&self, columns: &Columns<'_>, expr: &Expr, result: &ArrowType) -> Result<PhysicalExpression> {
        let plan = self.over(columns).project([expr.clone().unalias().alias("value")])?.build()?;
        match self.simplified(plan)? {
            LogicalPlan::Projection(projection) if projection.expr.len() == 1 => {
                columns.expression(self.state, &projection.expr[0].clone().unalias(), result)
            }
            other => Err(Error::Internal(format!("{} in place of an expression", other.display()))),
        }
    }

    fn over(&self, columns: &Columns<'_>) -> LogicalPlanBuilder {
        let rows = EmptyRelation { produce_one_row: false, schema: Arc::new(columns.planned.clone()) };
        LogicalPlanBuilder::from(LogicalPlan::EmptyRelation(rows))
    }

    /// Plan with the values of constants, and of functions of the statement such as `now()`.
    fn simplified(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let rules = Optimizer::with_rules(vec![Arc::new(SimplifyExpressions::new())]);
        Ok(rules.optimize(plan, self.state, |_, _| {})?)
    }
}

impl DataFusionRead {
    fn evaluate(&mut self, navigated: &NavigatedRows) -> Result<ArrayRef, Reason> {
        if self.aggregates.is_empty() {
            return self.value.evaluate(&navigated.rows);
        }
        let results = self.aggregates.iter_mut().map(|aggregate| aggregate.evaluate(navigated));
        let results = results.collect::<Result<Vec<_>, _>>()?;
        let fields = results.iter().enumerate();
        let fields = fields.map(|(at, result)| Field::new(format!("{at}"), result.data_type().clone(), true));
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields.collect::<Vec<_>>())), results);
        self.value.evaluate(&batch.map_err(Error::from)?)
    }
}

impl DataFusionAggregate {
    /// Results of each match.
    fn evaluate(&mut self, navigated: &NavigatedRows) -> Result<ArrayRef, Reason> {
        let arguments = self.arguments.iter_mut().map(|argument| argument.evaluate(&navigated.rows));
        let arguments = arguments.collect::<Result<Vec<_>, _>>()?;
        let (mut results, mut begin) = (Vec::with_capacity(navigated.ends.len()), 0);
        for &end in &navigated.ends {
            let columns: Vec<ArrayRef> =
                arguments.iter().map(|argument| argument.slice(begin, end - begin)).collect();
            let mut group = self.function.group()?;
            group.add(&columns)?;
            results.push(group.result()?);
            begin = end;
        }
        if results.is_empty() {
            return Ok(new_empty_array(&self.result));
        }
        let results: Vec<_> = results.iter().map(|result| result.as_ref()).collect();
        Ok(concat(&results).map_err(Error::from)?)
    }
}

impl MatchExpression for DataFusionExpression {
    fn evaluate(&mut self, matches: usize, navigated: &[NavigatedRows]) -> Result<ArrayRef, Reason> {
        let reads = self.reads.iter_mut().zip(navigated).map(|(read, rows)| read.evaluate(rows));
        let columns = reads.collect::<Result<Vec<_>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(matches));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options);
        self.expression.evaluate(&batch.map_err(Error::from)?)
    }
}
