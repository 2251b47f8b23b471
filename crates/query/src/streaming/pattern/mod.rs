//! MATCH_RECOGNIZE: sequences of rows of a stream, from the tokens of a step to the operator that finds them.
//!
//! ```text
//!   tokens ─▶ clause ─▶ navigation: which rows an expression reads ─▶ planning: DataFusion's expressions
//!                                                                        │
//!                                       expression: arrays over rows of matches ─▶ entresol_streams::RowPattern
//! ```

pub(crate) mod clause;
pub(crate) mod expression;
pub(crate) mod navigation;
pub(crate) mod planning;

use crate::error::{Error, Result};
use crate::streaming::connectors::EventTime;
use crate::streaming::operators::{ComputedColumn, Flow, Translator, storage};
use crate::streaming::pattern::expression::pattern_expression;
use crate::streaming::pattern::planning::{PlannedExpression, PlannedMeasure, PlannedPattern};
use datafusion::arrow::datatypes::DataType as ArrowType;
use datafusion::execution::SessionState;
use datafusion::logical_expr::Expr;
use entresol_streams::{
    ColumnExpression, Navigation, PatternMeasure, PatternVariable, RowPattern, numbers_table,
};
use entresol_tables::Column;
use std::collections::BTreeSet;
use std::time::Duration;

impl Translator<'_> {
    /// Stream of the matches of a pattern in a source or stream.
    pub(crate) fn match_pattern(&mut self, of: &str, planned: &PlannedPattern) -> Result<Flow> {
        let flow = self.named_flow(of)?;
        flow.check_sent_once("MATCH_RECOGNIZE")?;
        let clause = &planned.clause;
        let is_time = |at: &EventTime| flow.stream.columns()[at.column].name == clause.time;
        let time = flow.event_time.filter(is_time).ok_or_else(|| {
            Error::unsupported(format!(
                "MATCH_RECOGNIZE ORDER BY \"{}\" of \"{of}\", which has no watermark: declare WATERMARK FOR {} AS … in CREATE SOURCE",
                clause.time, clause.time
            ))
        })?;
        // Only columns that are read: each row is stored until the watermark has passed it.
        let late = self.step.and_then(|step| step.late.table.clone());
        let read = columns_read(planned, &flow, time.column, late.is_some())?;
        let columns = read.iter().map(|&column| -> ComputedColumn {
            (flow.stream.columns()[column].clone(), Box::new(ColumnExpression(column)))
        });
        let rows = flow.stream.project(columns.collect());
        let place = |name: &String| {
            let column = rows.column(name);
            column.ok_or_else(|| Error::coded("42703", format!("column \"{name}\" does not exist")))
        };
        let partition = clause.partition.iter().map(place).collect::<Result<Vec<usize>>>()?;
        let stored = storage(rows.columns());
        let state = &self.planned.state;
        let condition = |planned: &Option<PlannedExpression>| {
            let compile = |planned| pattern_expression(state, planned, (&read, &stored), &ArrowType::Boolean);
            planned.as_ref().map(compile).transpose()
        };
        let mut variables = Vec::with_capacity(planned.conditions.len());
        for (of_row, of_match) in &planned.conditions {
            variables.push(PatternVariable { of_row: condition(of_row)?, of_match: condition(of_match)? });
        }
        let measures = measures_of(state, planned, (&read, &stored))?;
        let state_table = self.pattern_state(of, planned, rows.columns());
        if measures.iter().any(|(_, measure)| matches!(measure, PatternMeasure::MatchNumber)) {
            self.state_beside(&numbers_table(&state_table), "numbers of the matches");
        }
        let late_columns = (0..rows.columns().len()).collect();
        self.patterns = true;
        let stream = rows.match_pattern(RowPattern {
            pattern: clause.pattern.clone(),
            variables,
            measures,
            all_rows: clause.all_rows,
            partition,
            time: place(&clause.time)?,
            within: clause.within,
            skips_match: clause.skips_match,
            lateness: time.lateness,
            future_limit: time.future_limit,
            state_table,
            late: late.map(|table| (table, late_columns)),
        });
        // A match is sent before the watermark passes its first row: rows of it are times of what follows.
        let is_time = |measure: &PlannedMeasure| {
            measure.expression().is_some_and(|measure| is_time_of_match(measure, &clause.time))
        };
        let of_time = planned.measures.iter().position(|(_, measure)| is_time(measure));
        let (lateness, future_limit) = (Duration::MAX, Duration::MAX);
        let event_time = of_time.map(|column| EventTime { column, lateness, future_limit });
        Ok(Flow { stream, windows: None, event_time, replaced: None })
    }
}

/// Measures of a pattern over rows with these columns of the stream, of these types.
fn measures_of(
    state: &SessionState,
    planned: &PlannedPattern,
    rows: (&[usize], &[ArrowType]),
) -> Result<Vec<(Column, PatternMeasure)>> {
    let mut measures = Vec::with_capacity(planned.measures.len());
    for (column, measure) in &planned.measures {
        let measure = match measure {
            PlannedMeasure::Expression { planned, is_final } => {
                let result = storage(std::slice::from_ref(column)).swap_remove(0);
                let expression = pattern_expression(state, planned, rows, &result)?;
                PatternMeasure::Expression { expression, is_final: *is_final }
            }
            PlannedMeasure::Classifier => PatternMeasure::Classifier(planned.clause.variables.clone()),
            PlannedMeasure::MatchNumber => PatternMeasure::MatchNumber,
        };
        measures.push((column.clone(), measure));
    }
    Ok(measures)
}

/// Columns of a stream that a pattern reads, in their order; all of them if late rows are stored.
fn columns_read(planned: &PlannedPattern, flow: &Flow, time: usize, all: bool) -> Result<Vec<usize>> {
    let measures = planned.measures.iter().filter_map(|(_, measure)| measure.expression());
    let conditions = planned.conditions.iter().flat_map(|(of_row, of_match)| [of_row, of_match]).flatten();
    let mut columns = BTreeSet::from([time]);
    if all {
        columns.extend(0..flow.stream.columns().len());
    }
    for read in measures.chain(conditions).flat_map(|expression| &expression.reads) {
        for column in read.aggregate.as_ref().unwrap_or(&read.expr).column_refs() {
            columns.insert(read.rows.index_of_column(column)?);
        }
    }
    Ok(columns.into_iter().collect())
}

/// Tells whether a measure is the time of the first or last row of the match.
fn is_time_of_match(measure: &PlannedExpression, time: &str) -> bool {
    let is_plain = matches!(unaliased(&measure.expr), Expr::Column(_));
    let [read] = measure.reads.as_slice() else { return false };
    let is_row = matches!(
        read.navigation,
        Navigation::First { variable: None, offset: 0 } | Navigation::Last { variable: None, offset: 0 }
    );
    let is_column = |expr: &Expr| matches!(unaliased(expr), Expr::Column(column) if column.name == time);
    is_plain && is_row && is_column(&read.expr)
}

fn unaliased(expr: &Expr) -> &Expr {
    match expr {
        Expr::Alias(alias) => unaliased(&alias.expr),
        other => other,
    }
}
