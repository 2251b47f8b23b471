//! Defaults and checks of the tables that steps write, computed as those of statements are ([`crate::dml::completion`]).
//!
//! - Sequences advance outside of transactions: one that is aborted, or replayed behind a conflict, leaves a gap. What is
//!   committed has each number once.
//! - `now()` and its kin are the time at which a transaction first writes the table, and dates are those in UTC.
//! - A topology has no session: defaults of functions of one, such as `current_user`, are refused.

use crate::dml::completion::RowCompletion;
use crate::dml::defaults::Defaults;
use crate::dml::identity;
use crate::error::{Error, Result, as_stream_error};
use crate::parser::names::identifier;
use crate::parser::stored_expressions::stored_expression;
use crate::parser::visit::visit_expressions;
use crate::postgres::time_zones::Zone;
use crate::streaming::expressions::FIXED_BY_SESSION;
use datafusion::arrow::array::RecordBatch;
use datafusion::execution::SessionState;
use datafusion::sql::sqlparser::ast::Expr;
use entresol_streams::{Result as StreamResult, RowRules};
use entresol_tables::{Catalog, Identity, Table};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Rules of a table that a step writes.
pub(crate) struct TargetRules {
    state: SessionState,
    table: Arc<Table>,
    /// Completions of rows by the columns that have values.
    completions: BTreeMap<Vec<usize>, RowCompletion>,
}

impl TargetRules {
    /// Rules for rows with values of these lists of columns; an error if their defaults cannot be computed.
    pub(crate) fn new<'l>(
        state: &SessionState,
        table: &Arc<Table>,
        lists: impl IntoIterator<Item = &'l [usize]>,
    ) -> Result<TargetRules> {
        let mut rules =
            TargetRules { state: state.clone(), table: Arc::clone(table), completions: BTreeMap::new() };
        for given in lists {
            check_defaults(table, given)?;
            rules.completion(given)?;
        }
        // The time of those is that of now, before any transaction.
        rules.end_transaction();
        Ok(rules)
    }

    /// Refuses defaults that differ from row to row, or with the time, of columns without values.
    pub(crate) fn check_constant(&self, given: &[usize]) -> Result<()> {
        if Defaults::new(self.state.clone(), &self.table, given)?.are_constant() {
            return Ok(());
        }
        Err(Error::unsupported(format!(
            "a default of table {} that differs for each row, such as a number of a sequence or now(), in a MERGE of rows that may be \
             taken back: a row that changes would get another value each time",
            self.table.name()
        )))
    }

    fn completion(&mut self, given: &[usize]) -> Result<&RowCompletion> {
        if !self.completions.contains_key(given) {
            let state = || self.state.clone();
            let completion = RowCompletion::new(state, &Zone::utc(), &self.table, given)?;
            self.completions.insert(given.to_vec(), completion);
        }
        self.completions
            .get(given)
            .ok_or_else(|| Error::Internal("a completion of rows is missing".to_owned()))
    }

    fn completed(&mut self, given: &[usize], rows: &RecordBatch) -> Result<RecordBatch> {
        let values = given.iter().map(|&column| Arc::clone(rows.column(column))).collect();
        self.completion(given)?.checked(values, rows.num_rows())
    }
}

impl RowRules for TargetRules {
    fn complete(&mut self, given: &[usize], rows: &RecordBatch) -> StreamResult<RecordBatch> {
        let completed = self.completed(given, rows);
        completed.map_err(|error| as_stream_error(format!("rules of table {}", self.table.name()), error))
    }

    fn end_transaction(&mut self) {
        self.completions.retain(|_, completion| !completion.is_of_statement());
    }

    fn redefined(&mut self, table: &Arc<Table>) {
        self.table = Arc::clone(table);
        self.completions.clear();
    }
}

/// Refuses defaults of functions of a session, of columns without values.
fn check_defaults(table: &Table, given: &[usize]) -> Result<()> {
    for (column, default) in table.definition().defaults.iter().enumerate() {
        if let Some(default) = default.as_ref().filter(|_| !given.contains(&column)) {
            let name = &table.schema().columns()[column].name;
            check_default(table.name(), name, &stored_expression(default)?)?;
        }
    }
    Ok(())
}

/// Refuses a default of functions of a session.
pub(crate) fn check_default(table: &str, column: &str, default: &Expr) -> Result<()> {
    let found: ControlFlow<String> = visit_expressions(default, |expr| {
        let Expr::Function(call) = expr else { return ControlFlow::Continue(()) };
        let name = call.name.0.last().and_then(|part| part.as_ident()).map(identifier).unwrap_or_default();
        if FIXED_BY_SESSION.contains(&name.as_str()) {
            ControlFlow::Break(name)
        } else {
            ControlFlow::Continue(())
        }
    });
    match found {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(name) => Err(Error::unsupported(format!(
            "the default {name} of column \"{column}\" of table {table} in a topology, which has no session: give the column a value"
        ))),
    }
}

/// Refuses values for columns that are GENERATED ALWAYS.
pub(crate) fn check_given(catalog: &Catalog, table: &Table, given: &[usize]) -> Result<()> {
    for &column in given {
        if identity::identity(catalog, table, column)? == Some(Identity::Always) {
            return Err(identity::given_always(table, column));
        }
    }
    Ok(())
}
