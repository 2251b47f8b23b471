//! Queries of one name in nested WITHs: the inner one hides the outer one, as in PostgreSQL, and within its own query the name
//! is still that of the outer one.
//!
//! DataFusion refuses such a name, as if both were in one WITH. So inner queries whose name another WITH of the statement has
//! too get another name, with zero characters behind it, and relations that name them an alias.

use super::from::alias_named;
use crate::parser::names::identifier;
use crate::parser::visit::{walk, walk_mut};
use datafusion::sql::sqlparser::ast::{
    Ident, ObjectName, ObjectNamePart, Query, Statement, TableFactor, Visitor, VisitorMut, With,
};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// Gives queries of WITH distinct names.
pub(super) fn set_apart(statement: &mut Statement) {
    let mut names = Names::default();
    let _ = walk(statement, &mut names);
    if names.0.values().any(|times| *times > 1) {
        let _ = walk_mut(statement, &mut Renamer { times: names.0, depth: 0, renamed: 0 });
    }
}

/// Names of the queries of a WITH.
fn names_of(with: &With) -> Vec<String> {
    with.cte_tables.iter().map(|table| identifier(&table.alias.name)).collect()
}

/// Number of WITHs that have a name.
#[derive(Default)]
struct Names(BTreeMap<String, usize>);

impl Visitor for Names {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        for name in query.with.iter().flat_map(names_of) {
            *self.0.entry(name).or_default() += 1;
        }
        ControlFlow::Continue(())
    }
}

/// Renames from the inside to the outside: what still has the name then is of this WITH, or of one around it.
struct Renamer {
    times: BTreeMap<String, usize>,
    /// Number of queries around.
    depth: usize,
    /// Number of queries that have another name.
    renamed: usize,
}

impl VisitorMut for Renamer {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        if self.depth > 0
            && let Some(mut with) = query.with.take()
        {
            self.rename(&mut with, query);
            query.with = Some(with);
        }
        ControlFlow::Continue(())
    }
}

impl Renamer {
    /// Renames queries of a WITH, and what names them in the query behind it and in the queries that see them.
    fn rename(&mut self, with: &mut With, query: &mut Query) {
        let names = names_of(with);
        for (at, from) in names.iter().enumerate() {
            let is_own = names.iter().filter(|name| *name == from).count() == 1;
            if !is_own || self.times.get(from).is_none_or(|times| *times < 2) {
                continue;
            }
            self.renamed += 1;
            let to = format!("{from}{}", "\0".repeat(self.renamed));
            let mut references = References { from, to: &to };
            let _ = walk_mut(query, &mut references);
            // A query sees those before it, of WITH RECURSIVE itself and all others.
            let first = if with.recursive { 0 } else { at + 1 };
            for table in &mut with.cte_tables[first..] {
                let _ = walk_mut(table.query.as_mut(), &mut references);
            }
            with.cte_tables[at].alias.name = Ident::with_quote('"', to.as_str());
        }
    }
}

/// Relations of a name, to give them another.
struct References<'n> {
    from: &'n str,
    to: &'n str,
}

impl VisitorMut for References<'_> {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table { name: ObjectName(parts), alias, args: None, .. } = factor
            && let [ObjectNamePart::Identifier(name)] = parts.as_mut_slice()
            && identifier(name) == self.from
        {
            alias.get_or_insert_with(|| alias_named(self.from));
            *name = Ident::with_quote('"', self.to);
        }
        ControlFlow::Continue(())
    }
}
