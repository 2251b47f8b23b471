//! Common parts of steps: an aggregate or a join of streams that several steps have in the same words is one operator.
//!
//! - Parts are the same if their plans are, with all that the step reads. Aliases above them may differ.
//! - Steps with EMIT, LATE ROWS, `state_table` or `state_ttl` have operators of their own: these clauses are about them.
//! - The numbers of state tables count a common part each time, so a topology finds the state that it stored without them.

use crate::error::Result;
use crate::streaming::emission::Emit;
use crate::streaming::operators::{CommonPart, Flow, Translator};
use crate::streaming::steps::PlannedStep;
use datafusion::logical_expr::LogicalPlan;

impl PlannedStep {
    /// Tells whether nothing is said about the operators of the step.
    fn is_plain(&self) -> bool {
        let late = &self.late;
        late.emit == Emit::Default
            && late.clause.is_none()
            && !late.is_there()
            && self.state_table.is_none()
            && self.state_ttl.is_none()
    }
}

impl Translator<'_> {
    /// Operators of a node, of an earlier step if that has the same one.
    pub(crate) fn common_part(
        &mut self,
        plan: &LogicalPlan,
        translate: impl FnOnce(&mut Self) -> Result<Flow>,
    ) -> Result<Flow> {
        if !self.step.is_some_and(PlannedStep::is_plain) {
            return translate(self);
        }
        let meaning = self.meaning(plan);
        if let Some(part) = self.common_parts.get(&meaning).filter(|part| part.step < self.edges.len()) {
            self.has_used_ttl |= part.has_used_ttl;
            self.state_number += part.states;
            self.common_with.push(part.step);
            self.common_windows.get_or_insert_with(|| part.windows.clone());
            return Ok(part.flow.clone());
        }
        let (states, windows) = (self.state_number, self.builder.windows());
        let flow = translate(self)?;
        let part = CommonPart {
            flow: flow.clone(),
            step: self.edges.len(),
            has_used_ttl: self.has_used_ttl,
            states: self.state_number - states,
            windows: windows..self.builder.windows(),
        };
        self.common_parts.insert(meaning, part);
        Ok(flow)
    }

    /// Text for EXPLAIN of a step that has operators of earlier ones.
    pub(crate) fn describe_common(&mut self) -> String {
        let steps = std::mem::take(&mut self.common_with);
        let labels =
            steps.iter().filter_map(|step| self.planned.steps.get(*step)).map(|step| step.label.as_str());
        let mut labels: Vec<&str> = labels.collect();
        labels.dedup();
        if labels.is_empty() {
            String::new()
        } else {
            format!(", by the operators of {}", labels.join(" and "))
        }
    }
}
