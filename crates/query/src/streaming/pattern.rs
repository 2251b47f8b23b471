//! MATCH_RECOGNIZE in steps: a pattern that is planned as that of a query ([`crate::planner::patterns`]), as the operator
//! that finds it in a stream, `entresol_streams::RowPattern`.

use crate::error::{Error, Result};
use crate::planner::patterns::expression::CompiledPattern;
use crate::planner::patterns::planning::{PlannedExpression, PlannedMeasure, PlannedPattern};
use crate::streaming::expressions::ComputedColumn;
use crate::streaming::operators::{Flow, Translator, storage};
use crate::streaming::planned_pattern::result_columns;
use crate::streaming::watermarks::EventTime;
use datafusion::logical_expr::Expr;
use entresol_streams::{ColumnExpression, Navigation, PatternMeasure, RowPattern, numbers_table};
use entresol_tables::Column;
use std::time::Duration;

impl Translator<'_> {
    /// Stream of the matches of a pattern in a source or stream.
    pub(crate) fn match_pattern(&mut self, of: &str, planned: &PlannedPattern) -> Result<Flow> {
        let flow = self.named_flow(of)?;
        flow.check_sent_once("MATCH_RECOGNIZE")?;
        let clause = &planned.clause;
        let time_column = clause.event_time()?;
        let is_time = |at: &EventTime| flow.stream.columns()[at.column].name == time_column;
        let time = flow.event_time.filter(is_time).ok_or_else(|| {
            Error::unsupported(format!(
                "MATCH_RECOGNIZE ORDER BY \"{time_column}\" of \"{of}\", which has no watermark: declare WATERMARK FOR {time_column} AS … in CREATE SOURCE"
            ))
        })?;
        let flow = flow.with_times(time.column);
        // Only columns that are read: each row is stored until the watermark has passed it.
        let late = self.step.and_then(|step| step.late.table.clone());
        let mut read = planned.columns_read()?;
        read.insert(time.column);
        if late.is_some() {
            read.extend(0..flow.stream.columns().len());
        }
        let read: Vec<usize> = read.into_iter().collect();
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
        let results = result_columns(planned)?;
        let compiled =
            CompiledPattern::new(&self.planned.state, planned, (&read, &stored), &storage(&results))?;
        let measures: Vec<(Column, PatternMeasure)> = results.into_iter().zip(compiled.measures()).collect();
        let state_table = self.pattern_state(of, planned, rows.columns());
        if measures.iter().any(|(_, measure)| matches!(measure, PatternMeasure::MatchNumber)) {
            self.state_beside(&numbers_table(&state_table), "numbers of the matches");
        }
        let late_columns = (0..rows.columns().len()).collect();
        self.patterns = true;
        let stream = rows.match_pattern(RowPattern {
            pattern: clause.pattern.clone(),
            variables: compiled.variables(),
            measures,
            all_rows: clause.all_rows,
            partition,
            time: place(&time_column)?,
            within: clause.within.unwrap_or(Duration::MAX),
            skips_match: clause.skips_match,
            lateness: time.lateness,
            future_limit: time.future_limit,
            state_table,
            late: late.map(|table| (table, late_columns)),
        });
        // A match is sent before the watermark passes its first row: rows of it are times of what follows.
        let is_time = |measure: &PlannedMeasure| {
            measure.expression().is_some_and(|measure| is_time_of_match(measure, &time_column))
        };
        let of_time = planned.measures.iter().position(|(_, measure)| is_time(measure));
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
