//! ORDER BY with LIMIT: the first rows of all, which are a ranking without PARTITION BY.
//!
//! | ORDER BY | rows are sent |
//! | --- | --- |
//! | the place that `row_number()` without PARTITION BY has given them, ascending | as with a bound on it in WHERE |
//! | the event time, ascending | when the watermark has passed them, once |
//! | others | at the commit: those that are new among the first ones, or have left them |
//!
//! Rows of the last kind have no place in the result, so a row that only gets another one is not sent. They are found in a table
//! by what identifies the rows that are ordered; one row alone is found by any key.

use crate::error::{Error, Result};
use crate::streaming::operators::{ALL_ROWS, Flow, Translator};
use crate::streaming::ranking::{PlannedRanking, ranking_of, uncast};
use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch};
use datafusion::arrow::compute::kernels::cmp::gt;
use datafusion::logical_expr::{
    Expr, FetchType, Filter, Limit, LogicalPlan, Projection, SkipType, Sort, lit,
};
use entresol_streams::{RankChanges, RankFunction};
use std::sync::Arc;

/// Places of the rows that LIMIT and OFFSET leave.
struct RowBounds {
    skipped: usize,
    end: usize,
}

impl RowBounds {
    fn of(limit: &Limit) -> Result<RowBounds> {
        let wrong = |clause: &str| {
            Error::unsupported(format!(
                "{clause} in a step that is not an integer: it is part of the statement that is stored"
            ))
        };
        let SkipType::Literal(skipped) = limit.get_skip_type()? else { return Err(wrong("OFFSET")) };
        let count = match limit.get_fetch_type()? {
            FetchType::Literal(Some(count)) => count,
            FetchType::Literal(None) => return Err(Error::unsupported(ALL_ROWS)),
            FetchType::UnsupportedExpr => return Err(wrong("LIMIT")),
        };
        if count == 0 {
            return Err(Error::unsupported("LIMIT 0 in a step, which would have no rows"));
        }
        Ok(RowBounds { skipped, end: skipped.saturating_add(count) })
    }
}

/// Place by which rows are ordered, if it is that of an order of all.
fn place_of(sort: &Sort) -> Option<&Expr> {
    let [by] = sort.expr.as_slice() else { return None };
    let Expr::Column(column) = uncast(&by.expr) else { return None };
    let index = sort.input.schema().index_of_column(column).ok()?;
    let (called, function) = ranking_of(&sort.input, index)?;
    let is_place = by.asc && function == RankFunction::RowNumber && called.params.partition_by.is_empty();
    is_place.then_some(&by.expr)
}

/// Order below a LIMIT, and the projection between them, if there is one.
fn order_of(limit: &Limit) -> Option<(&Sort, Option<&Projection>)> {
    match limit.input.as_ref() {
        LogicalPlan::Sort(sort) => Some((sort, None)),
        LogicalPlan::Projection(projection) => match projection.input.as_ref() {
            LogicalPlan::Sort(sort) => Some((sort, Some(projection))),
            _ => None,
        },
        _ => None,
    }
}

impl Translator<'_> {
    /// First rows of a stream in an order.
    pub(crate) fn limit_node(&mut self, limit: &Limit) -> Result<Flow> {
        let bounds = RowBounds::of(limit)?;
        let (sort, projection) = order_of(limit).ok_or_else(|| {
            Error::unsupported(
                "LIMIT without ORDER BY, or of DISTINCT ON, in a step: which rows it leaves is not said; order the query, or one \
                 around DISTINCT ON",
            )
        })?;
        let flow = self.first_rows(limit, sort, &bounds)?;
        match projection {
            Some(projection) => {
                self.project_flow(&flow, sort.input.schema(), &projection.expr, &projection.schema)
            }
            None => Ok(flow),
        }
    }

    /// Rows of an order with these places.
    fn first_rows(&mut self, limit: &Limit, sort: &Sort, bounds: &RowBounds) -> Result<Flow> {
        let literal = |place: usize| lit(i64::try_from(place).unwrap_or(i64::MAX));
        if let Some(place) = place_of(sort) {
            let mut predicate = place.clone().lt_eq(literal(bounds.end));
            if bounds.skipped > 0 {
                predicate = predicate.and(place.clone().gt(literal(bounds.skipped)));
            }
            return self.filter_node(&Filter::try_new(predicate, Arc::clone(&sort.input))?);
        }
        let flow = self.node(&sort.input)?;
        let planned = sort.input.schema();
        let (width, skipped) = (flow.stream.columns().len(), bounds.skipped);
        let plan = LogicalPlan::Limit(limit.clone());
        let ranking = PlannedRanking {
            function: RankFunction::RowNumber,
            partition: &[],
            order: &sort.expr,
            limit: Some(bounds.end),
            changes: RankChanges::OfRows { skipped },
            rank_column: "place".to_owned(),
            plan: &plan,
        };
        let mut ranked = self.ranked(flow, planned, &ranking)?;
        if skipped > 0 && ranked.replaced.is_none() {
            // Each row is sent once, with its place.
            let skipped = Int64Array::new_scalar(i64::try_from(skipped).unwrap_or(i64::MAX));
            ranked.stream = ranked.stream.filter_by(move |rows: &RecordBatch| -> Result<ArrayRef, String> {
                let is_behind = gt(rows.column(width), &skipped).map_err(|error| error.to_string())?;
                Ok(Arc::new(is_behind))
            });
        }
        let columns: Vec<Expr> = planned.columns().into_iter().map(Expr::Column).collect();
        self.project_flow(&ranked, planned, &columns, planned)
    }
}
