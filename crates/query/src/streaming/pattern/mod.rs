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
use crate::streaming::operators::{Flow, Translator, storage};
use crate::streaming::pattern::expression::pattern_expression;
use crate::streaming::pattern::planning::{PlannedExpression, PlannedPattern};
use datafusion::arrow::datatypes::DataType as ArrowType;
use datafusion::logical_expr::Expr;
use entresol_streams::{Navigation, PatternVariable, RowPattern};
use std::time::Duration;

impl Translator<'_> {
    /// Stream of the matches of a pattern in a source or stream.
    pub(crate) fn match_pattern(&mut self, of: &str, planned: &PlannedPattern) -> Result<Flow> {
        let flow = self.named_flow(of)?;
        flow.check_appended("MATCH_RECOGNIZE")?;
        let clause = &planned.clause;
        let is_time = |at: &EventTime| flow.stream.columns()[at.column].name == clause.time;
        let time = flow.event_time.filter(is_time).ok_or_else(|| {
            Error::unsupported(format!(
                "MATCH_RECOGNIZE ORDER BY \"{}\" of \"{of}\", which has no watermark: declare WATERMARK FOR {} AS … in CREATE SOURCE",
                clause.time, clause.time
            ))
        })?;
        let partition = clause.partition.iter().map(|name| {
            let column = flow.stream.column(name);
            column.ok_or_else(|| Error::coded("42703", format!("column \"{name}\" does not exist")))
        });
        let partition = partition.collect::<Result<Vec<usize>>>()?;
        let stored = storage(flow.stream.columns());
        let state = &self.planned.state;
        let compile = |planned: &PlannedExpression, result: &ArrowType| {
            pattern_expression(state, planned, &stored, result)
        };
        let condition = |planned: &Option<PlannedExpression>| {
            planned.as_ref().map(|planned| compile(planned, &ArrowType::Boolean)).transpose()
        };
        let mut variables = Vec::with_capacity(planned.conditions.len());
        for (of_row, of_match) in &planned.conditions {
            variables.push(PatternVariable { of_row: condition(of_row)?, of_match: condition(of_match)? });
        }
        let mut measures = Vec::with_capacity(planned.measures.len());
        for (column, expression) in &planned.measures {
            let result = storage(std::slice::from_ref(column)).swap_remove(0);
            measures.push((column.clone(), compile(expression, &result)?));
        }
        let state_table = self.pattern_state(of, planned);
        let late = self.step.and_then(|step| step.late_table.clone());
        let late_columns = (0..flow.stream.columns().len()).collect();
        self.patterns = true;
        let stream = flow.stream.match_pattern(RowPattern {
            pattern: clause.pattern.clone(),
            variables,
            measures,
            partition,
            time: time.column,
            within: clause.within,
            skips_match: clause.skips_match,
            lateness: time.lateness,
            future_limit: time.future_limit,
            state_table,
            late: late.map(|table| (table, late_columns)),
        });
        // A match is sent before the watermark passes its first row: rows of it are times of what follows.
        let of_time =
            planned.measures.iter().position(|(_, measure)| is_time_of_match(measure, &clause.time));
        let (lateness, future_limit) = (Duration::MAX, Duration::MAX);
        let event_time = of_time.map(|column| EventTime { column, lateness, future_limit });
        Ok(Flow { stream, windows: None, event_time, replaced: None })
    }
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
