//! MATCH_RECOGNIZE as a node of logical plans.
//!
//! - Its input is a projection: the columns that conditions and measures read, then keys that are computed.
//! - Conditions on columns of the partition may go below it: all rows of a partition are there, or none. Others
//!   would take rows out of matches.
//! - Parameters in conditions and measures are expressions of the node, so that they get types and values as any.

use crate::error::{Error, Result, external};
use crate::planner::patterns::planning::PlannedPattern;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, DFSchemaRef, Result as DFResult, internal_err};
use datafusion::logical_expr::expr::{Cast, Placeholder};
use datafusion::logical_expr::{Expr, Extension, LogicalPlan, SortExpr, UserDefinedLogicalNodeCore};
use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Node of a pattern; see the [module](self).
#[derive(Debug, Clone)]
pub(crate) struct PatternNode {
    planned: Arc<PlannedPattern>,
    input: LogicalPlan,
    /// Columns of the rows that the pattern was planned over, which are the first of the input.
    read: Vec<usize>,
    /// Columns of the input by which rows are divided.
    partition: Vec<Expr>,
    order: Vec<SortExpr>,
    /// Parameters of conditions and measures, and their values.
    parameters: Vec<(Placeholder, Expr)>,
    schema: DFSchemaRef,
    /// All that the clause says.
    clause: String,
}

impl PatternNode {
    /// Node over an input, whose keys are columns of it.
    pub(super) fn new(
        planned: PlannedPattern,
        input: LogicalPlan,
        read: Vec<usize>,
        (partition, order): (Vec<Expr>, Vec<SortExpr>),
    ) -> Result<PatternNode> {
        let fields = planned.measures.iter().enumerate().map(|(at, (field, _))| {
            let is_key = planned.clause.partition.get(at).is_some();
            let column = input.schema().iter().find(|(_, column)| is_key && column.name() == field.name());
            (column.and_then(|(qualifier, _)| qualifier.cloned()), Arc::clone(field))
        });
        let schema = Arc::new(DFSchema::new_with_metadata(fields.collect(), HashMap::new())?);
        let mut parameters: Vec<(Placeholder, Expr)> = Vec::new();
        for expr in planned.exprs() {
            expr.apply(|part| {
                if let Expr::Placeholder(parameter) = part
                    && !parameters.iter().any(|(known, _)| known == parameter)
                {
                    parameters.push((parameter.clone(), part.clone()));
                }
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        let clause = format!("{planned:?}");
        Ok(PatternNode {
            planned: Arc::new(planned),
            input,
            read,
            partition,
            order,
            parameters,
            schema,
            clause,
        })
    }

    pub(super) fn into_plan(self) -> LogicalPlan {
        LogicalPlan::Extension(Extension { node: Arc::new(self) })
    }

    /// Node that a plan is; none if it is of another kind.
    pub(crate) fn of(plan: &LogicalPlan) -> Option<&PatternNode> {
        match plan {
            LogicalPlan::Extension(extension) => extension.node.as_any().downcast_ref::<PatternNode>(),
            _ => None,
        }
    }

    pub(crate) fn planned(&self) -> &PlannedPattern {
        &self.planned
    }

    pub(crate) fn input(&self) -> &LogicalPlan {
        &self.input
    }

    /// Columns of the rows that the pattern was planned over, which are the first of the input.
    pub(super) fn read(&self) -> &[usize] {
        &self.read
    }

    pub(super) fn order(&self) -> &[SortExpr] {
        &self.order
    }

    pub(super) fn partition(&self) -> &[Expr] {
        &self.partition
    }

    /// Place in the input of a column of the result by which rows are divided; none of another column.
    pub(crate) fn partition_origin(&self, place: usize) -> Option<usize> {
        self.planned.clause.partition.get(place)?;
        let (qualifier, field) = self.schema.qualified_field(place);
        self.input.schema().index_of_column(&Column::new(qualifier.cloned(), field.name())).ok()
    }

    /// Pattern with the values of its parameters.
    pub(super) fn with_values(&self) -> Result<PlannedPattern> {
        let value_of = |parameter: &Placeholder| {
            let value = self.parameters.iter().find(|(known, _)| known == parameter);
            let Some((_, value)) = value else { return Err(external(unknown(parameter))) };
            // A client may give a value of another type than the one that the expression was planned with.
            Ok(match &parameter.field {
                Some(field) => {
                    Expr::Cast(Cast::new(Box::new(value.clone().unalias()), field.data_type().clone()))
                }
                None => value.clone().unalias(),
            })
        };
        if self.parameters.is_empty() {
            return Ok(self.planned.as_ref().clone());
        }
        self.planned.changed(&|expr| {
            let valued = expr.transform_up(|part| match &part {
                Expr::Placeholder(parameter) => value_of(parameter).map(Transformed::yes),
                _ => Ok(Transformed::no(part)),
            });
            Ok(valued.data()?)
        })
    }

    /// Parts that are compared.
    fn compared(&self) -> impl PartialEq + Hash + '_ {
        (&self.clause, &self.input, &self.partition, &self.order, &self.parameters)
    }
}

fn unknown(parameter: &Placeholder) -> Error {
    Error::coded("42P02", format!("there is no parameter {}", parameter.id))
}

impl PartialEq for PatternNode {
    fn eq(&self, other: &PatternNode) -> bool {
        self.compared() == other.compared()
    }
}

impl Eq for PatternNode {}

impl PartialOrd for PatternNode {
    fn partial_cmp(&self, other: &PatternNode) -> Option<Ordering> {
        let by_clause = self.clause.cmp(&other.clause);
        let order =
            if by_clause == Ordering::Equal { self.input.partial_cmp(&other.input)? } else { by_clause };
        // Parts that have no order may differ.
        (order != Ordering::Equal || self == other).then_some(order)
    }
}

impl Hash for PatternNode {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.compared().hash(state);
    }
}

impl UserDefinedLogicalNodeCore for PatternNode {
    fn name(&self) -> &str {
        "MatchRecognize"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        let keys = self.partition.iter().cloned().chain(self.order.iter().map(|key| key.expr.clone()));
        keys.chain(self.parameters.iter().map(|(_, value)| value.clone())).collect()
    }

    fn prevent_predicate_push_down_columns(&self) -> HashSet<String> {
        let measures = self.schema.fields().iter().skip(self.planned.clause.partition.len());
        measures.map(|field| field.name().clone()).collect()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MatchRecognize: {}", self.planned.described())
    }

    fn with_exprs_and_inputs(&self, exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> DFResult<PatternNode> {
        let wanted = self.partition.len() + self.order.len() + self.parameters.len();
        let [input] = inputs.as_slice() else {
            return internal_err!("a pattern has one input, not {}", inputs.len());
        };
        if exprs.len() != wanted {
            return internal_err!("a pattern has {wanted} expressions, not {}", exprs.len());
        }
        let mut exprs = exprs.into_iter();
        let partition = exprs.by_ref().take(self.partition.len()).collect();
        let order = self.order.iter().zip(exprs.by_ref());
        let order = order.map(|(key, expr)| SortExpr { expr, ..key.clone() }).collect();
        let parameters = self.parameters.iter().zip(exprs);
        let parameters = parameters.map(|((parameter, _), value)| (parameter.clone(), value)).collect();
        Ok(PatternNode { input: input.clone(), partition, order, parameters, ..self.clone() })
    }
}
