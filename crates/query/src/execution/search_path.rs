//! Check of the names without a schema in a command against the setting `search_path`.
//!
//! All that statements create is in `public`. While the path has it, such a name means a relation there; else it
//! means none (42P01), and nothing can be created by it (3F000), as in PostgreSQL. Relations of `pg_catalog` are
//! found always.

use crate::catalog::is_catalog_relation;
use crate::error::{Error, Result};
use crate::parser::command::Command;
use crate::parser::names::identifier;
use crate::parser::own::copy::{CopyStatement, Source};
use crate::parser::own::materialized::MaterializedStatement;
use crate::parser::statement::inner;
use crate::parser::visit::walk;
use crate::session::variables::SessionVariables;
use datafusion::sql::parser::Statement as DFStatement;
use datafusion::sql::sqlparser::ast::{
    CommentObject, ObjectName, Query, Statement, TableFactor, Visit, Visitor,
};
use std::ops::ControlFlow;

/// Checks the names of a command.
pub(crate) fn check(variables: &SessionVariables, command: &Command) -> Result<()> {
    if variables.has_public() {
        return Ok(());
    }
    match command {
        Command::CreateTable(create) => {
            check_created(&create.name)?;
            create.query.as_ref().map_or(Ok(()), |query| check_found(query.as_ref()))
        }
        Command::Define(statement) => match statement.as_ref() {
            Statement::CreateView(create) => {
                check_created(&create.name)?;
                check_found(create.query.as_ref())
            }
            Statement::Drop { names, .. } => names.iter().try_for_each(check_name),
            // The last part is a column.
            Statement::Comment { object_type: CommentObject::Column, object_name, .. } => {
                let relation = object_name.0.split_last().map_or(&[][..], |(_, relation)| relation);
                check_name(&ObjectName(relation.to_vec()))
            }
            Statement::Comment { object_name, .. } => check_name(object_name),
            statement => check_found(statement),
        },
        Command::DropTable { names, .. } => names.iter().try_for_each(check_name),
        Command::Materialized(statement) => match statement.as_ref() {
            MaterializedStatement::Create(create) => create.over_tables.as_ref().map_or(Ok(()), |create| {
                check_created(&create.name)?;
                check_found(create.query.as_ref())
            }),
            MaterializedStatement::Drop { names, .. } => names.iter().try_for_each(check_name),
            MaterializedStatement::Refresh(_) | MaterializedStatement::Explain { .. } => Ok(()),
        },
        Command::Insert(insert) => check_found(insert.as_ref()),
        Command::Update(update) => check_found(update.as_ref()),
        Command::Delete(delete) => check_found(delete.as_ref()),
        Command::Merge(query) => check_found(query.as_ref()),
        Command::Truncate(truncate) => check_found(truncate.as_ref()),
        Command::Query(statement) | Command::Declare { query: statement, .. } => {
            check_statement(variables, statement)
        }
        Command::Prepare { command, .. } | Command::ExplainWrite { command, .. } => check(variables, command),
        Command::Copy(copy) => check_copy(variables, copy),
        _ => Ok(()),
    }
}

/// Checks the names of a COPY.
pub(crate) fn check_copy(variables: &SessionVariables, copy: &CopyStatement) -> Result<()> {
    match &copy.source {
        _ if variables.has_public() => Ok(()),
        Source::Table { name, .. } => check_name(name),
        Source::Query(query) => check_found(query.as_ref()),
    }
}

/// Checks the names of a statement that reads.
pub(crate) fn check_statement(variables: &SessionVariables, statement: &DFStatement) -> Result<()> {
    inner(statement).filter(|_| !variables.has_public()).map_or(Ok(()), check_found)
}

/// Name of a relation that is created.
fn check_created(name: &ObjectName) -> Result<()> {
    if name.0.len() > 1 {
        return Ok(());
    }
    Err(Error::coded("3F000", "no schema has been selected to create in"))
}

/// Name of a relation that has to be there.
fn check_name(name: &ObjectName) -> Result<()> {
    match unqualified(name) {
        Some(name) if !is_catalog_relation(&name) => Err(Error::NoSuchTable(name)),
        _ => Ok(()),
    }
}

fn unqualified(name: &ObjectName) -> Option<String> {
    match name.0.as_slice() {
        [only] => only.as_ident().map(identifier),
        _ => None,
    }
}

/// Checks the relations that a tree names.
fn check_found(tree: &impl Visit) -> Result<()> {
    match walk(tree, &mut Names::default()) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// Names of queries in WITH, and of functions, which are no relations.
#[derive(Default)]
struct Names(Vec<String>);

impl Visitor for Names {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Error> {
        let named = query.with.iter().flat_map(|with| &with.cte_tables);
        self.0.extend(named.map(|query| identifier(&query.alias.name)));
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<Error> {
        if let TableFactor::Table { name, args: Some(_), .. } = factor {
            self.0.extend(unqualified(name));
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, name: &ObjectName) -> ControlFlow<Error> {
        match unqualified(name) {
            Some(name) if self.0.contains(&name) => ControlFlow::Continue(()),
            _ => check_name(name).map_or_else(ControlFlow::Break, ControlFlow::Continue),
        }
    }
}
