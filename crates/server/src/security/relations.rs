//! The tables that a statement names: all names but those of common table expressions, wherever they stand.
//!
//! A name is a common table expression only where the planner takes it for one. In `WITH a AS (… b …), b AS (…)` the
//! first
//! `b` is a table, and in the first term of `WITH RECURSIVE a AS (… UNION …)` so is `a`.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use entresol::query::datafusion::common::TableReference;
use entresol::query::datafusion::error::{DataFusionError, Result};
use entresol::query::datafusion::sql::parser::Statement as EngineStatement;
use entresol::query::datafusion::sql::planner::object_name_to_table_reference;
use entresol::query::datafusion::sql::sqlparser::ast::{
    Cte, ObjectName, Query, SetExpr, TableFactor, Visitor,
};
use entresol::query::walk::walk;

/// The tables that a statement names, those that it writes included.
pub(super) fn named(statement: &EngineStatement) -> Result<BTreeSet<TableReference>> {
    let mut named = TableNames::default();
    let mut statement = statement;
    while let EngineStatement::Explain(explain) = statement {
        statement = &explain.statement;
    }
    let EngineStatement::Statement(statement) = statement else {
        return Err(DataFusionError::Plan(format!("{statement} is not looked into")));
    };
    match walk(statement, &mut named) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(named.tables),
    }
}

#[derive(Default)]
struct TableNames {
    tables: BTreeSet<TableReference>,
    /// Common table expressions, the innermost last.
    in_scope: Vec<TableReference>,
    /// The next name is that of a function which makes rows.
    is_function: bool,
}

impl TableNames {
    /// Visits the parts of a common table expression that are planned before its own name refers to it.
    fn visit_anchor(&mut self, cte: &Cte, recursive: bool) -> ControlFlow<DataFusionError> {
        let mut anchor = cte.query.clone();
        if recursive && let SetExpr::SetOperation { left, .. } = *anchor.body {
            anchor.body = left;
        }
        walk(&anchor, self)
    }
}

impl Visitor for TableNames {
    type Break = DataFusionError;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<DataFusionError> {
        let Some(with) = &query.with else { return ControlFlow::Continue(()) };
        // The visit goes on into each of them with all names in scope: it adds nothing to what is found here.
        for cte in &with.cte_tables {
            self.visit_anchor(cte, with.recursive)?;
            match reference(&ObjectName::from(vec![cte.alias.name.clone()])) {
                Ok(name) => self.in_scope.push(name),
                Err(error) => return ControlFlow::Break(error),
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &Query) -> ControlFlow<DataFusionError> {
        let names = query.with.as_ref().map_or(0, |with| with.cte_tables.len());
        self.in_scope.truncate(self.in_scope.len().saturating_sub(names));
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<DataFusionError> {
        self.is_function = matches!(factor, TableFactor::Table { args: Some(_), .. });
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<DataFusionError> {
        if std::mem::take(&mut self.is_function) {
            return ControlFlow::Continue(());
        }
        match reference(relation) {
            Ok(name) if self.in_scope.contains(&name) => {}
            Ok(name) => {
                self.tables.insert(name);
            }
            Err(error) => return ControlFlow::Break(error),
        }
        ControlFlow::Continue(())
    }
}

fn reference(name: &ObjectName) -> Result<TableReference> {
    object_name_to_table_reference(name.clone(), true)
}
