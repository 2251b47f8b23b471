//! Operators of a topology as a tree below each source, for EXPLAIN.
//!
//! ```text
//!   source reading: generator
//!   ├─ windows 1: TUMBLE(at, 1800s)
//!   │  └─ window metering_open: windows, stream per_meter
//!   │     └─ TO_TABLE half_hour
//!   └─ TO_TABLE latest: by its key (meter)
//! ```
//!
//! An operator with several inputs stands with all that follows below the first of them, and by its name below the others.
//! Projections that choose columns only are left out.

use datafusion::logical_expr::{Aggregate, Expr, Join};
use entresol_streams::TopologyOperator;

/// Greatest length of a shown expression, in characters.
const EXPRESSION_MAX: usize = 100;

/// Lines of the tree; `counters` stands behind the description of each operator.
pub(crate) fn lines(operators: &[TopologyOperator], counters: impl Fn(usize) -> String) -> Vec<String> {
    let shown: Vec<bool> =
        operators.iter().map(|operator| !operator.is_projection || operator.detail.is_some()).collect();
    let mut followers: Vec<Vec<usize>> = vec![Vec::new(); operators.len()];
    for (at, operator) in operators.iter().enumerate().filter(|(at, _)| shown[*at]) {
        let mut inputs = operator.inputs.clone();
        while let Some(input) = inputs.pop() {
            if !shown[input] {
                inputs.extend(&operators[input].inputs);
            } else if !followers[input].contains(&at) {
                followers[input].push(at);
            }
        }
    }
    let mut tree = Tree { operators, followers, counters: &counters, is_missing: shown, lines: Vec::new() };
    for (at, operator) in operators.iter().enumerate() {
        if operator.inputs.is_empty() {
            tree.add(at, "", "");
        }
    }
    tree.lines
}

/// Expression as a user reads it, shortened to fit in a line.
pub(crate) fn describe_expression(expr: &Expr) -> String {
    let shown = expr.clone().unalias_nested().data.human_display().to_string();
    match shown.char_indices().nth(EXPRESSION_MAX) {
        Some((end, _)) => format!("{} …", shown[..end].trim_end()),
        None => shown,
    }
}

/// Equal columns of both sides of a join.
pub(crate) fn describe_keys(join: &Join) -> String {
    let pair = |(left, right): &(Expr, Expr)| {
        format!("{} = {}", describe_expression(left), describe_expression(right))
    };
    let pairs: Vec<String> = join.on.iter().map(pair).collect();
    if pairs.is_empty() { "without equal columns".to_owned() } else { format!("on {}", pairs.join(" AND ")) }
}

/// Values and groups of an aggregate of windows, and the table of its late rows.
pub(crate) fn describe_aggregate(aggregate: &Aggregate, late: Option<&str>) -> String {
    let value = |expr: &Expr| match expr {
        // As it was written.
        Expr::Alias(alias) => alias.name.clone(),
        expr => describe_expression(expr),
    };
    let values: Vec<String> = aggregate.aggr_expr.iter().map(value).collect();
    let groups: Vec<String> = aggregate.group_expr.iter().map(describe_expression).collect();
    let late = late.map_or_else(String::new, |table| format!(", late rows into {table}"));
    format!("{} by {}{late}", values.join(", "), groups.join(", ")).trim_start().to_owned()
}

struct Tree<'o, F> {
    operators: &'o [TopologyOperator],
    /// Operators that stand below each one.
    followers: Vec<Vec<usize>>,
    counters: &'o F,
    /// True of an operator that the lines do not have yet.
    is_missing: Vec<bool>,
    lines: Vec<String>,
}

impl<F: Fn(usize) -> String> Tree<'_, F> {
    /// Adds an operator and what follows it; the first line begins with one prefix, those below with another.
    fn add(&mut self, at: usize, first: &str, below: &str) {
        let operator = &self.operators[at];
        if !std::mem::replace(&mut self.is_missing[at], false) {
            self.lines.push(format!("{first}→ {}", operator.name));
            return;
        }
        let detail = operator.detail.as_ref().map_or_else(String::new, |detail| format!(": {detail}"));
        self.lines.push(format!("{first}{}{detail}{}", operator.name, (self.counters)(at)));
        let followers = std::mem::take(&mut self.followers[at]);
        for (place, &follower) in followers.iter().enumerate() {
            let (branch, line) =
                if place + 1 == followers.len() { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            self.add(follower, &format!("{below}{branch}"), &format!("{below}{line}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operator(name: &str, detail: Option<&str>, inputs: &[usize]) -> TopologyOperator {
        TopologyOperator {
            name: name.to_owned(),
            detail: detail.map(str::to_owned),
            is_projection: name.starts_with("projection"),
            inputs: inputs.to_vec(),
            state_tables: Vec::new(),
        }
    }

    #[test]
    fn operators_stand_below_their_first_input_and_by_name_below_others() {
        let operators = [
            operator("source a", None, &[]),
            operator("source b", Some("file"), &[]),
            operator("projection 2", None, &[0]),
            operator("join j", None, &[2, 1]),
            operator("projection 4", Some("x + 1"), &[3]),
            operator("TO_TABLE t", None, &[4]),
            operator("TO_TABLE u", None, &[0]),
        ];
        let shown = lines(&operators, |at| if at == 3 { " (7 rows)".to_owned() } else { String::new() });
        let expected = [
            "source a",
            "├─ join j (7 rows)",
            "│  └─ projection 4: x + 1",
            "│     └─ TO_TABLE t",
            "└─ TO_TABLE u",
            "source b: file",
            "└─ → join j",
        ];
        assert_eq!(shown, expected);
    }
}
