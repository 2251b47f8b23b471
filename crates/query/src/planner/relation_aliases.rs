//! Aliases of relations that are names of columns too.
//!
//! In a subquery `a.id` is a column of the relation `a`, also of one of a query around it. DataFusion looks for a column `a`
//! of the subquery first, and then for a field of it. So where a statement has subqueries, an alias that is the name of one of
//! its columns gets another name, in all places: what it names in which query stays.

use crate::parser::names::{identifier, table_name};
use crate::parser::statement::{inner, inner_mut};
use crate::parser::visit::{walk, walk_mut};
use crate::planner::translation::system_name;
use datafusion::sql::parser::Statement as DFStatement;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, ObjectName, ObjectNamePart, Select, SelectItem, SelectItemQualifiedWildcardKind, TableAlias,
    TableAliasColumnDef, TableFactor, Visitor, VisitorMut,
};
use entresol_tables::Catalog;
use std::collections::BTreeSet;
use std::ops::ControlFlow;

/// Renames aliases that are names of columns.
pub(crate) fn rename(catalog: &Catalog, statement: &mut DFStatement) {
    let mut found = Names::default();
    let Some(tree) = inner(statement) else { return };
    let _ = walk(tree, &mut found);
    if !found.has_subquery || found.aliases.is_empty() {
        return;
    }
    for table in found.tables.iter().filter_map(|name| catalog.table(name).ok()) {
        found.columns.extend(table.schema().visible_columns().iter().map(|column| column.name.clone()));
    }
    let renamed: BTreeSet<String> = found.aliases.intersection(&found.columns).cloned().collect();
    if renamed.is_empty() {
        return;
    }
    if let Some(tree) = inner_mut(statement) {
        let _ = walk_mut(tree, &mut AliasRenamer { renamed });
    }
}

/// Suffix of the other name of an alias.
const RENAMED: char = '\'';

/// Alias as it was written.
pub(crate) fn written(alias: &str) -> &str {
    alias.strip_suffix(RENAMED).unwrap_or(alias)
}

/// Names in a statement.
#[derive(Default)]
struct Names {
    aliases: BTreeSet<String>,
    tables: BTreeSet<String>,
    /// Of its tables, and those that it gives to results.
    columns: BTreeSet<String>,
    /// True if an expression has a subquery.
    has_subquery: bool,
}

impl Visitor for Names {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table { alias, .. } | TableFactor::Derived { alias, .. } = factor
            && let Some(alias) = alias
        {
            self.aliases.insert(identifier(&alias.name));
            self.columns.extend(alias.columns.iter().map(|column| identifier(&column.name)));
        }
        if let TableFactor::Table { name, .. } = factor
            && let Ok(name) = table_name(name)
        {
            self.tables.insert(name);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        for item in &select.projection {
            match item {
                SelectItem::ExprWithAlias { alias, .. } => drop(self.columns.insert(identifier(alias))),
                SelectItem::UnnamedExpr(Expr::Identifier(column)) => {
                    self.columns.insert(identifier(column));
                }
                _ => {}
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        self.has_subquery |=
            matches!(expr, Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. });
        ControlFlow::Continue(())
    }
}

struct AliasRenamer {
    renamed: BTreeSet<String>,
}

impl AliasRenamer {
    /// Other name of a relation, if it has one.
    fn name(&self, relation: &Ident) -> Option<Ident> {
        let name = identifier(relation);
        self.renamed.contains(&name).then(|| Ident::with_quote('"', format!("{name}{RENAMED}")))
    }

    fn rename(&self, relation: &mut Ident) {
        if let Some(name) = self.name(relation) {
            *relation = name;
        }
    }
}

impl VisitorMut for AliasRenamer {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        // The column of a function has the name of its alias.
        if let TableFactor::Table { name, alias: Some(alias), args: Some(_), .. } = factor
            && alias.columns.is_empty()
            && system_name(name).is_some_and(|name| name == "generate_series")
        {
            alias.columns.push(TableAliasColumnDef { name: alias.name.clone(), data_type: None });
        }
        match factor {
            TableFactor::Table { alias: Some(alias), .. }
            | TableFactor::Derived { alias: Some(alias), .. } => {
                self.rename(&mut alias.name);
            }
            TableFactor::Table { name: ObjectName(parts), alias: alias @ None, .. } => {
                if let [.., ObjectNamePart::Identifier(last)] = parts.as_slice()
                    && let Some(name) = self.name(last)
                {
                    *alias = Some(TableAlias { explicit: true, name, columns: Vec::new(), at: None });
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        for item in &mut select.projection {
            if let SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) = item
                && let [ObjectNamePart::Identifier(relation)] = name.0.as_mut_slice()
            {
                self.rename(relation);
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::CompoundIdentifier(names) = expr
            && let [relation, _] = names.as_mut_slice()
        {
            self.rename(relation);
        }
        ControlFlow::Continue(())
    }
}
