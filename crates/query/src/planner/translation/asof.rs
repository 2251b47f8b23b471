//! ASOF JOIN: a LEFT JOIN with a mark around its MATCH_CONDITION, by which [`crate::planner::rules::asof`] finds it in the plan.

use super::build::call;
use crate::planner::rules::asof::ASOF;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, JoinConstraint, JoinOperator, Select, TableFactor, TableWithJoins,
};

/// Replaces the ASOF joins of a SELECT.
pub(super) fn mark(select: &mut Select) {
    select.from.iter_mut().for_each(mark_joins);
}

fn mark_joins(tables: &mut TableWithJoins) {
    let nested = |factor: &mut TableFactor| {
        if let TableFactor::NestedJoin { table_with_joins, .. } = factor {
            mark_joins(table_with_joins);
        }
    };
    nested(&mut tables.relation);
    for join in &mut tables.joins {
        nested(&mut join.relation);
        let JoinOperator::AsOf { match_condition, constraint } = &join.join_operator else { continue };
        let marked = call(ASOF, vec![match_condition.clone()]);
        let condition = match constraint {
            JoinConstraint::On(on) => Expr::BinaryOp {
                left: Box::new(Expr::Nested(Box::new(on.clone()))),
                op: BinaryOperator::And,
                right: Box::new(marked),
            },
            // USING and NATURAL were refused.
            _ => marked,
        };
        join.join_operator = JoinOperator::LeftOuter(JoinConstraint::On(condition));
    }
}
